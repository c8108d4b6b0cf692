"""A daemon that is stopped, or hangs: clients are told so after a time, and what is only slow is waited for."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import pytest

import qmgr
import qmgr.aio
from logger.clock import SystemClock
from logger.progress import Progress
from qmgr import sockets, wire
from qmgr.daemon.beats import NEVER, Beats
from qmgr.daemon.pulse import Pulse
from qmgr.errors import BackedOut, Mistake, Reason, Unavailable, UnitOfWorkEnded
from qmgr.verbs import MAX_WAIT_S
from recovery.uows import UowState
from tests.conformance.nursery import halt
from tests.daemon.certificates import Authority
from tests.daemon.serving import LONG, SPAWN, Daemon, Served, daemon, until
from tests.qmgr.world import NAME, Call, bodies

SOON = 0.5  # seconds without a word


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path) as one:
        yield one


@contextlib.contextmanager
def stopped(one: Daemon) -> Iterator[None]:
    """In the block no thread of the daemon does anything."""
    assert one.process.pid is not None
    try:
        halt(one.process.pid)
        yield
    finally:
        os.kill(one.process.pid, signal.SIGCONT)


def given_up(call: Callable[[], Any]) -> str:
    """What the call raises: 2009."""
    with pytest.raises(Unavailable) as caught:
        Call(call).outcome()
    assert caught.value.reason == Reason.CONNECTION_BROKEN
    return str(caught.value)


CALLS: dict[str, Callable[[qmgr.Connection], Any]] = {
    "put": lambda client: client.put("A", b"x"),
    "put_many": lambda client: client.put_many("A", [b"x"]),
    "a long put": lambda client: client.put("A", bytes(3_000_000)),
    "get": lambda client: client.get("A"),
    "get that waits": lambda client: client.get("A", wait=3600),
    "get that waits for ever": lambda client: client.get("A", wait=None),
    "get_many": lambda client: client.get_many("A", 5, wait=None),
    "browse": lambda client: list(client.browse("A")),
    "queues": lambda client: client.queues(),
    "checkpoint": lambda client: client.checkpoint(),
}


def test_row_63_every_call_of_a_daemon_that_is_stopped_comes_to_an_end(far: Daemon) -> None:
    clients = {name: far.connect(timeout=SOON) for name in CALLS}
    for client in clients.values():
        assert client.queue("A").depth == 0
    with stopped(far):
        calls = {name: Call(lambda name=name: CALLS[name](clients[name])) for name in CALLS}  # type: ignore[misc]
        for name, call in calls.items():
            with pytest.raises(Unavailable, match=r"it has said nothing for 0\.5 seconds") as caught:
                call.outcome()
            assert caught.value.reason == Reason.CONNECTION_BROKEN, name
        silent = r"does not answer \(it has said nothing for 0\.5 seconds\)"
        with pytest.raises(Unavailable, match=silent):  # the next one would connect again
            clients["get"].get("A")
    for client in clients.values():  # gets that were asked for may be made now, so not from their queue
        client.put("B", b"after")
        assert client.get("B").body == b"after"
    for client in clients.values():
        client.close()


def test_a_call_whose_socket_a_daemon_that_is_stopped_never_takes_was_not_made(far: Daemon) -> None:
    with far.connect(timeout=SOON) as client:
        with stopped(far):
            assert "nothing of this call was done" in given_up(lambda: client.put("A", b"x"))
        assert bodies(client, "A") == []  # type: ignore[arg-type]


def test_a_wait_that_has_begun_before_is_given_up_too(far: Daemon) -> None:
    with far.connect(timeout=SOON) as client, far.connect() as other:
        waiting = Call(lambda: client.get("A", wait=None))
        waiting.join(3 * SOON)
        assert waiting.is_alive()
        with stopped(far):
            assert "said nothing" in given_up(waiting.outcome)
        until(lambda: len(other.connections()) == 2)  # the other, and the daemon itself
        other.put("A", b"x")
        assert client.get("A").body == b"x"  # nobody has taken it for who is not there


def test_gets_that_were_given_up_before_a_stopped_daemon_sees_them_take_nothing(far: Daemon) -> None:
    """Outside a unit of work what they took would be lost."""
    asked = [CALLS[name] for name in ("get", "get that waits", "get_many")] * 4
    sent = [b"%d" % number for number in range(5 * len(asked))]
    with far.connect() as other, contextlib.ExitStack() as stack:
        other.put_many("A", sent)
        clients = [stack.enter_context(far.connect(timeout=SOON)) for _ in asked]
        for client in clients:
            client.put("B", b"x")  # by the socket that its get is going to have
        with stopped(far):
            calls = [
                Call(lambda get=get, client=client: get(client)) for get, client in zip(asked, clients, strict=True)
            ]  # type: ignore[misc]
            for call in calls:
                assert "said nothing" in given_up(call.outcome)
        until(lambda: len(other.connections()) == 2)  # the other, and the daemon itself
        assert bodies(other, "A") == sent  # type: ignore[arg-type]


def test_gets_that_waited_before_the_daemon_was_stopped_take_nothing_of_what_comes_then(far: Daemon) -> None:
    sent = [b"%d" % number for number in range(40)]
    with far.connect() as other, contextlib.ExitStack() as stack:
        other.put("B", b"x")
        clients = [stack.enter_context(far.connect(timeout=SOON)) for _ in range(30)]
        waiting = [
            Call(lambda get=get, client=client: get(client))  # type: ignore[misc]
            for get, client in zip((CALLS["get that waits for ever"], CALLS["get_many"]) * 15, clients, strict=True)
        ]
        waiting[-1].join(2 * SOON)
        with stopped(far):
            for call in waiting:
                assert "said nothing" in given_up(call.outcome)
            putting = Call(lambda: other.put_many("A", sent))
            putting.join(SOON)
        putting.outcome()
        until(lambda: len(other.connections()) == 2)  # the other, and the daemon itself
        assert bodies(other, "A") == sent  # type: ignore[arg-type]


def test_row_63_what_became_of_a_commit_can_be_asked_for_when_the_daemon_goes_on(far: Daemon) -> None:
    with far.connect(timeout=SOON) as client:
        unit = client.begin()
        unit.put("A", b"x")
        lost = client.begin()
        lost.put("A", b"y")
        with stopped(far):
            assert f"outcome({unit.id})" in given_up(unit.commit)
            with pytest.raises(BackedOut):
                lost.put("A", b"z")
        until(lambda: client.outcome(unit.id) is not None)
        outcome = client.outcome(unit.id)
        assert bodies(client, "A") == ([b"x"] if outcome is UowState.COMMITTED else [])  # type: ignore[arg-type]
        assert client.outcome(lost.id) in (UowState.BACKED_OUT, None)


def test_asyncio_clients_are_told_too(far: Daemon) -> None:
    async def main() -> None:
        async with qmgr.aio.connect(NAME, data_path=far.path, timeout=SOON) as client:
            await client.put("A", b"one")
            assert (await client.get("A", wait=None)).body == b"one"
            unit = client.begin()
            await unit.put("A", b"two")
            await asyncio.gather(client.queues(), client.queues())  # so there is a socket for each of the next calls
            waiting = asyncio.ensure_future(client.get("B", wait=None))
            await asyncio.sleep(0)
            with stopped(far):
                for call, told in ((unit.commit(), rf"outcome\({unit.id}\) tells"), (waiting, "was lost")):
                    with pytest.raises(Unavailable, match=told) as caught:
                        await call
                    assert caught.value.reason == Reason.CONNECTION_BROKEN
                with pytest.raises(Unavailable, match="does not answer"):
                    await client.queues()
            assert await client.outcome(unit.id) in (UowState.COMMITTED, UowState.BACKED_OUT)
            await client.put("B", b"three")
            assert (await client.get("B")).body == b"three"

    asyncio.run(asyncio.wait_for(main(), 120))


def _wait_with_asyncio(path: Path, tells: Pipe) -> None:
    """A client in a process of its own: says when it waits, and then what it got."""

    async def main() -> bytes:
        async with qmgr.aio.connect(NAME, data_path=path, timeout=SOON) as client:
            waiting = asyncio.ensure_future(client.get("A", wait=None))
            await asyncio.sleep(0)
            tells.send(b"waits")
            return (await waiting).body

    try:
        tells.send(asyncio.run(main()))
    except Unavailable as exc:
        tells.send(str(exc).encode())


@contextlib.contextmanager
def halted(served: Served) -> Iterator[tuple[int, Pipe]]:
    """An asyncio client that waits for a message, and whose process is stopped; what it says of it comes here."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_wait_with_asyncio, args=(served.path, theirs))
    process.start()
    try:
        assert ours.recv() == b"waits"
        assert process.pid is not None
        threading.Event().wait(SOON)  # by then its loop sleeps
        halt(process.pid)
        yield process.pid, ours
    finally:
        process.kill()
        process.join()


def test_a_client_that_was_stopped_itself_hears_what_came_meanwhile(served: Served) -> None:
    """It gave up the daemon, whose message lay in its socket and was lost."""
    with halted(served) as (process, ours):
        served.manager.put("A", b"x")
        threading.Event().wait(3 * SOON)
        os.kill(process, signal.SIGCONT)
        assert ours.recv() == b"x"


def test_a_client_that_reads_no_heartbeat_is_given_no_message(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped for hours, and its socket full: the message that it waited for could not be sent, and was lost."""
    limit_send = sockets.limit_send

    def narrow(sock: socket.socket, seconds: float) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        limit_send(sock, seconds)

    monkeypatch.setattr(sockets, "limit_send", narrow)
    with halted(served) as (process, ours):
        calls = next(iter(served.listener._clients._clients.values()))._sockets
        threading.Event().wait(5 * SOON)
        served.manager.put("A", b"x")
        assert bodies(served.manager, "A") == [b"x"]
        until(lambda: not calls)
        os.kill(process, signal.SIGCONT)
        assert b"was lost" in ours.recv()


# ---- what is only slow


def test_waits_and_long_calls_are_not_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client hears several times that its call is at work."""
    go_on = threading.Event()

    def checkpoint() -> None:
        assert go_on.wait(120)

    monkeypatch.setattr(served.manager, "checkpoint", checkpoint)
    with served.connect(timeout=SOON) as client, served.connect(timeout=SOON) as other:
        calls = [Call(lambda: client.get("A", wait=None)), Call(other.checkpoint)]
        for call in calls:
            call.join(4 * SOON)
            assert call.is_alive()
        go_on.set()
        served.manager.put("A", b"x")
        assert calls[0].outcome().body == b"x"
        calls[1].outcome()
        assert client.status().state == other.status().state == "running"


def test_who_is_slow_to_hear_of_progress_is_not_taken_to_be_gone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket is full of progress, which it reads bit by bit: heartbeats that find no room are not missed."""
    limit_send = sockets.limit_send

    def narrow(sock: socket.socket, seconds: float) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        limit_send(sock, seconds)

    def recreate(name: str, *, progress: Progress) -> str:
        for done in range(10):
            progress(done, 10)
        threading.Event().wait(2 * SOON)
        return name

    heard = []

    def hear(done: int, total: int) -> None:
        heard.append(done)
        threading.Event().wait(SOON / 2)

    monkeypatch.setattr(sockets, "limit_send", narrow)
    monkeypatch.setattr(served.manager, "recreate", recreate)
    with served.connect(timeout=SOON) as client:
        assert str(client.recreate("A", progress=hear)) == "A"
    assert heard == list(range(10))


def test_asyncio_waits_are_not_given_up(served: Served) -> None:
    async def main() -> None:
        async with qmgr.aio.connect(NAME, data_path=served.path, timeout=SOON) as client:
            waiting = asyncio.ensure_future(client.get("A", wait=None))
            assert not (await asyncio.wait([waiting], timeout=4 * SOON))[0]
            await client.put("A", b"x")
            assert (await waiting).body == b"x"

    asyncio.run(asyncio.wait_for(main(), 120))


def test_who_has_no_timeout_hears_nothing_and_waits(served: Served) -> None:
    with served.connect(timeout=None) as client:
        assert [one.beat_ns for one in served.listener._clients._clients.values()] == [0]
        waiting = Call(lambda: client.get("A", wait=None))
        waiting.join(SOON)
        served.manager.put("A", b"x")
        assert waiting.outcome().body == b"x"


@pytest.mark.parametrize("timeout", [2_147_483.9, 4_294_967.5, MAX_WAIT_S])
def test_a_timeout_of_months_is_for_ever(served: Served, timeout: float) -> None:
    with served.connect(timeout=timeout) as client:
        client.put("A", b"x")
        assert client.get("A").body == b"x"
        waiting = Call(lambda: client.get("A", wait=None))
        waiting.join(2 * SOON)
        assert waiting.is_alive()
        served.manager.put("A", b"y")
        assert waiting.outcome().body == b"y"


@pytest.mark.parametrize("timeout", [0, -1, "5", True, 1e30, float("nan")])
def test_a_timeout_is_a_number_of_seconds(served: Served, timeout: Any) -> None:
    for connect in (qmgr.connect, qmgr.aio.connect):
        with pytest.raises(Mistake, match="timeout is seconds"):
            connect(NAME, data_path=served.path, timeout=timeout)


# ---- beats


class Slow:
    def __init__(self, due: int) -> None:
        self.due = due
        self.told = threading.Semaphore(0)

    def on_due(self, now: int) -> None:
        assert now >= self.due
        self.due = NEVER
        self.told.release()


class Counted(SystemClock):
    waits = 0

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        self.waits += 1
        return super().wait(event, seconds)


def test_each_is_told_when_it_is_due() -> None:
    clock = Counted()
    beats = Beats(clock)
    now = clock.elapsed_ns()
    calls = [Slow(now + steps * 10**7) for steps in (5, 1, 3)]
    far_off = Slow(now + 3600 * 10**9)
    beats.start()
    try:
        with contextlib.ExitStack() as stack:
            for call in (far_off, *calls):
                stack.enter_context(beats.during(call))
            for call in calls:
                assert call.told.acquire(timeout=60)
            late = Slow(clock.elapsed_ns())  # while the thread sleeps for ever
            with pytest.raises(KeyError), beats.during(late):
                assert late.told.acquire(timeout=60)
                raise KeyError
    finally:
        beats.close()
    assert not beats._busy
    assert clock.waits < 30, "it sleeps until somebody is due"


def test_row_75_who_does_not_read_over_tls_holds_up_no_beat_of_others(tmp_path: Path) -> None:
    signer = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signer.issue("localhost"))
    ours, theirs = sockets.pair()
    with ThreadPoolExecutor(1) as other:
        client = other.submit(
            sockets.with_tls, theirs, ssl.create_default_context(cafile=signer.path), LONG, "localhost"
        )
        ours = sockets.with_tls(ours, context, LONG)
        theirs = client.result()
        sockets.send_if_room(ours, b"heard")
        assert theirs.recv(10) == b"heard"
        with pytest.raises(BlockingIOError):
            while True:  # below TLS, until there is no room
                socket.socket.send(ours, bytes(1000), socket.MSG_DONTWAIT)
        beat = other.submit(sockets.send_if_room, ours, b"beat")
        try:
            assert not beat.result(LONG), "there is no room"
        finally:
            sockets.close(theirs)
            sockets.close(ours)


def fill(sock: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        while True:
            sock.send(wire.HEARTBEAT, socket.MSG_DONTWAIT)


def test_a_call_that_told_of_its_progress_excuses_none_after_it() -> None:
    clock = SystemClock()
    ours, theirs = sockets.pair()
    with ours, theirs:
        pulse = Pulse(ours, 10**9, Beats(clock), clock)
        with pulse.beating():
            pulse.tell_progress(1, 2)
            fill(ours)
            pulse.on_due(0)
            assert not sockets.peer_has_closed(theirs)
        with pulse.beating():
            pulse.on_due(0)
            assert sockets.peer_has_closed(theirs)


@pytest.mark.parametrize("timeout", [None, 3600.0])
def test_a_network_that_the_system_gives_up_is_a_lost_connection(
    far: Daemon, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    """ETIMEDOUT, of which Python makes the TimeoutError of a bound of time that we had set: it was a TypeError."""
    receive, gone = sockets.receive_answer, OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    def brings_nothing(sock: sockets.Socket, *told: Any) -> bytes:
        receive(sock, *told)
        raise gone

    with far.connect(timeout=timeout) as client:
        unit = client.begin()
        unit.put("A", b"x")
        with monkeypatch.context() as patched:
            patched.setattr(sockets, "receive_answer", brings_nothing)
            assert "in the commit of unit of work" in given_up(unit.commit)
        with pytest.raises(UnitOfWorkEnded, match=r"outcome\("):
            unit.backout()
        assert client.outcome(unit.id) is UowState.COMMITTED
        with monkeypatch.context() as patched:
            patched.setattr(sockets, "receive_answer", brings_nothing)
            assert "Connection timed out" in given_up(lambda: client.put("A", b"x"))
