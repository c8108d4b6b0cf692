"""qmgr.aio over TCP and over TLS: the same calls, and what a cancellation can do there."""

import asyncio
import contextlib
import errno
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest

import qmgr.aio
from qmgr import Reason, UowState, Xid, locations
from qmgr.aio.channel import OPENINGS, Pool
from qmgr.aio.outside import Outside
from qmgr.client import FIRST_PAGE
from qmgr.daemon import strangers
from qmgr.daemon.client import MAX_REMOTE_SOCKETS, Client
from qmgr.errors import (
    BackedOut,
    MQError,
    NoMessageAvailable,
    NotAuthorized,
    ResourceProblem,
    Unavailable,
    UnitOfWorkEnded,
)
from qmgr.session import Session
from tests.daemon.certificates import Authority
from tests.daemon.serving import LONG, Daemon, Served, create, daemon, serving, waits
from tests.daemon.test_client import far
from tests.qmgr.world import NAME, bodies

MOST = 4  # sockets, fewer than the daemon had told


async def settle(qm: qmgr.aio.Connection) -> None:
    for _ in range(5):
        await qm.status()


async def work(qm: qmgr.aio.Connection) -> None:
    large = bytes(range(256)) * 300
    async with qm.begin() as unit:
        await unit.put("A", large)
        assert await unit.put_many("A", [b"1", large]) != []
    assert [message.body async for message in qm.browse("A")] == [large, b"1", large]
    assert (await qm.get("A")).body == large
    waiting = [asyncio.create_task(qm.get("B", wait=None)) for _ in range(10)]
    await settle(qm)
    cancelled = asyncio.create_task(qm.get("B", wait=None))
    await settle(qm)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await settle(qm)
    await qm.put_many("B", [b"%d" % n for n in range(11)])
    assert len({message.body for message in await asyncio.gather(*waiting)}) == 10
    assert len(await qm.get_many("B", 99)) == 1
    assert len(await qm.get_many("A", 99)) == 2


def test_over_tcp(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url, application="till") as qm:
            await work(qm)
            unit = qm.begin()
            await unit.commit()
            with pytest.raises(UnitOfWorkEnded, match=r"^this unit of work is committed"):  # it never had a number
                await unit.commit()

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))


def test_calls_of_more_tasks_than_there_may_be_sockets_stand_in_line_behind_no_wait(tmp_path: Path) -> None:
    """There may be 32 over a network. Commits and backouts were refused when gets waited in all of them."""

    async def transfers(qm: qmgr.aio.Connection, number: int) -> None:
        async with qm.begin() as unit:
            await unit.put("B", b"%d" % number)
            await unit.send("B", b"%d" % number)
        with contextlib.suppress(ValueError):
            async with qm.begin() as unit:
                await unit.put("B", b"backed out")
                raise ValueError

    async def main(url: str) -> None:
        async with asyncio.timeout(60), qmgr.aio.connect(url) as qm:
            cancelled = [asyncio.create_task(qm.status()) for _ in range(MAX_REMOTE_SOCKETS + 8)]
            await asyncio.sleep(0)  # sockets are being opened, or stood in line for
            for task in cancelled:
                task.cancel()
            await asyncio.wait(cancelled)
            await qm.status()
            waiting = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(MAX_REMOTE_SOCKETS + 8)]
            working = [asyncio.create_task(transfers(qm, number)) for number in range(100)]
            await asyncio.gather(*working)
            refused = [task.exception() for task in waiting if task.done()]
            assert [getattr(one, "reason", None) for one in refused] == [Reason.MAX_CONNS_LIMIT_REACHED] * 9
            for task in waiting[:5]:
                task.cancel()
            await asyncio.wait(waiting[:5])
            waiting += [asyncio.create_task(qm.get("A", wait=60.0)) for _ in range(5)]
            await qm.put_many("A", [b"x"] * 31)
            told = await asyncio.gather(*waiting, return_exceptions=True)
            assert len([one for one in told if isinstance(one, qmgr.Message)]) == 31
            assert (await qm.queue("B")).depth == 200

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))
        assert served.manager.transactions() == []


def test_of_calls_for_which_the_daemon_refuses_a_socket_only_the_surplus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that the daemon had refused was taken by another task, and closed under it: the session seemed lost."""

    async def comes_back(qm: qmgr.aio.Connection) -> list[Reason]:
        told = []
        for _ in range(10):
            with pytest.raises(MQError) as caught:
                await qm.get("A", wait=0.01)
            told.append(caught.value.reason)
        return told

    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url) as qm:
            monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", MOST)
            unit = qm.begin()
            await unit.put("B", b"kept")
            told = set(chain(*await asyncio.gather(*[comes_back(qm) for _ in range(MOST + 8)])))
            assert told == {Reason.NO_MSG_AVAILABLE, Reason.MAX_CONNS_LIMIT_REACHED}
            waiting = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(MOST + 8)]
            while sum(task.done() for task in waiting) < 8:
                await asyncio.sleep(0.01)
            waits(served, "A", MOST)
            served.manager.put_many("A", [b"x"] * MOST)
            told = await asyncio.gather(*waiting, return_exceptions=True)
            refused = [one for one in told if isinstance(one, Unavailable)]
            assert [one.reason for one in refused] == [Reason.MAX_CONNS_LIMIT_REACHED] * 8
            assert len([one for one in told if isinstance(one, qmgr.Message)]) == MOST
            await unit.commit()

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))
        assert bodies(served.manager, "B") == [b"kept"]


def test_sockets_of_many_calls_at_once_do_not_crowd_each_other_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sockets that have not joined yet the daemon closes the oldest: the calls of 300 tasks were refused by that."""
    monkeypatch.setattr(strangers, "GRACE_NS", 0)
    served.listener._strangers._most = OPENINGS

    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as qm:
            waiting = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(300)]
            await qm.put_many("A", [b"%d" % number for number in range(300)])
            assert len({message.body for message in await asyncio.gather(*waiting)}) == 300

    asyncio.run(main())


def test_what_the_daemon_has_not_seen_yet_that_it_was_given_up_takes_nobodys_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gets are cancelled, which closes their sockets; those of the calls behind them come before the daemon knows."""
    monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", MOST)
    leave = Client.leave

    def later(client: Client, sock: Any) -> None:
        time.sleep(0.02)
        leave(client, sock)

    monkeypatch.setattr(Client, "leave", later)

    async def main(url: str) -> None:
        async with asyncio.timeout(60), qmgr.aio.connect(url) as qm:
            for _ in range(5):
                waiting = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(MOST - 1)]
                await asyncio.sleep(0.05)
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*[qm.put("B", b"x") for _ in range(2 * MOST)])
                await asyncio.wait(waiting)
            assert (await qm.queue("B")).depth == 5 * 2 * MOST

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))


def test_a_socket_that_can_not_be_made_is_not_a_session_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")

    def refused(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url, ca=signer.path) as qm:
            unit = qm.begin()
            await unit.put("B", b"kept")
            idle = cast(Any, qm)._backend._pool._idle
            waiting = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(len(idle))]
            while idle:
                await asyncio.sleep(0.01)
            with monkeypatch.context() as patch:
                patch.setattr("qmgr.sockets.connect_tcp", refused)
                with pytest.raises(Unavailable, match=r"no connection can be made .*; nothing was done") as caught:
                    await unit.commit()
            assert caught.value.reason == Reason.Q_MGR_NOT_AVAILABLE
            assert unit.state is UowState.ACTIVE
            await unit.commit()
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    tls = {"tls_certificate": certificate, "tls_key": key}
    with serving(tmp_path) as served, far(served, authentication=("NONE",), **tls) as place:
        asyncio.run(main(f"qmgrs://{place}"))
        assert bodies(served.manager, "B") == [b"kept"]


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("sends", [False, True])
def test_an_end_of_a_unit_for_which_there_is_no_socket_is_refused_and_can_be_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepares: bool, sends: bool
) -> None:
    """Nobody had asked the daemon, and still the unit of work was prepared here, or its outcome not known."""
    xid = Xid(1, b"a", b"") if prepares else None

    async def waits_in_all(qm: qmgr.aio.Connection) -> list[asyncio.Task[qmgr.Message]]:
        tasks = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(MOST)]
        while len(served.manager._engine.state.queues["A"].waiters.line) < MOST:
            await asyncio.sleep(0.01)
        return tasks

    async def frees(waiting: list[asyncio.Task[qmgr.Message]]) -> None:
        served.manager.put_many("A", [b"x"] * len(waiting))
        await asyncio.gather(*waiting)

    async def refused(call: Awaitable[None]) -> None:
        with pytest.raises(Unavailable) as caught:
            await call
        assert caught.value.reason is Reason.MAX_CONNS_LIMIT_REACHED

    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url) as qm:
            monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", MOST)
            unit, other = qm.begin(xid), qm.begin()
            await unit.put("B", b"first")
            if sends:
                await unit.send("B", b"second")
            await other.put("B", b"never")
            waiting = await waits_in_all(qm)
            await refused(unit.prepare() if prepares else unit.commit())
            await refused(other.backout())
            assert unit.state is other.state is UowState.ACTIVE
            assert served.manager.in_doubt() == []
            await frees(waiting)
            await other.backout()
            if prepares:
                await unit.prepare()
                waiting = await waits_in_all(qm)
                await refused(unit.commit())
                assert unit.state is UowState.PREPARED
                await frees(waiting)
            await unit.commit()
            assert unit.state is UowState.COMMITTED

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))
        assert bodies(served.manager, "B") == ([b"first", b"second"] if sends else [b"first"])


def test_a_commit_that_finds_the_daemon_gone_says_that_nothing_was_done(tmp_path: Path) -> None:
    """It was called unknown, and with a prepared unit of work nobody could tell."""

    async def main(far: Daemon) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(NAME, data_path=tmp_path) as qm:
            unit, preparing, prepared = qm.begin(), qm.begin(Xid(1, b"a", b"")), qm.begin(Xid(1, b"b", b""))
            for one in (unit, preparing, prepared):
                await one.put("A", b"x")
            await prepared.prepare()
            far.kill()
            await asyncio.sleep(0.1)  # the loop sees that the idle sockets are closed
            with pytest.raises(BackedOut):
                await unit.commit()
            with pytest.raises(BackedOut):
                await preparing.prepare()
            with pytest.raises(Unavailable, match="is in doubt"):
                await prepared.commit()

    with daemon(tmp_path) as started:
        asyncio.run(main(started))


def test_over_tls(tmp_path: Path) -> None:
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    mine, my_key = signer.issue("mia")

    async def main(url: str) -> None:
        async with (
            asyncio.timeout(30),
            qmgr.aio.connect(url, ca=signer.path, certificate=mine, key=my_key) as qm,
        ):
            await work(qm)
            unit = qm.begin()
            await unit.put("A", b"x")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await unit.get("B", wait=None)
            with pytest.raises(BackedOut, match="was cancelled"):
                await unit.commit()
            await unit.backout()
            assert unit.state is UowState.BACKED_OUT
            with pytest.raises(UnitOfWorkEnded):
                await unit.put("A", b"y")
            with pytest.raises(NotAuthorized):
                await qm.define_queue("C")

    tls = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": signer.path}
    with serving(tmp_path) as served, far(served, authentication=("EXTERNAL",), **tls) as place:
        served.manager.authorize("mia", add=["connect", "inquire"])
        for queue in ("A", "B"):
            served.manager.authorize("mia", queue, add=["put", "get", "browse"])
        asyncio.run(main(f"qmgrs://{place}"))
        assert bodies(served.manager, "A") == []


def test_a_get_that_does_not_wait_and_is_cancelled_over_tls_takes_no_message_or_returns_it(tmp_path: Path) -> None:
    """It was given up by cutting the connection, and with that the answer that had the message."""
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    mine, my_key = signer.issue("mia")
    count = 200

    async def main(url: str) -> None:
        got = struck = 0
        async with asyncio.timeout(60), qmgr.aio.connect(url, ca=signer.path, certificate=mine, key=my_key) as qm:
            await qm.put_many("A", [b"%d" % number for number in range(count)])
            for number in range(count):
                call = qm.get("A") if number % 2 else qm.get_many("A", 2)
                try:
                    async with asyncio.timeout(number % 16 * 0.00004) as limit:
                        found = await call
                        got += len(found) if isinstance(found, list) else 1
                except (TimeoutError, NoMessageAvailable):
                    pass
                struck += limit.expired()
            await settle(qm)
            assert got + (await qm.queue("A")).depth == count
        assert struck > 5, "they are struck"

    tls = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": signer.path}
    with serving(tmp_path) as served, far(served, authentication=("EXTERNAL",), **tls) as place:
        served.manager.authorize("mia", add=["connect", "inquire"])
        served.manager.authorize("mia", "A", add=["put", "get", "inquire"])
        asyncio.run(main(f"qmgrs://{place}"))


class OtherTransport:
    """Like those of uvloop: what a transport does, by a class that has nothing to do with asyncio's."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OtherLoop(asyncio.SelectorEventLoop):
    """An event loop with such transports."""

    async def create_connection(self, factory: Any, *args: Any, **options: Any) -> Any:
        def make() -> asyncio.BaseProtocol:
            protocol: asyncio.BaseProtocol = factory()
            made = protocol.connection_made
            protocol.connection_made = lambda transport: made(  # type: ignore[method-assign]
                cast(asyncio.BaseTransport, OtherTransport(transport))
            )
            return protocol

        return await super().create_connection(make, *args, **options)


def test_the_transports_of_an_event_loop_may_be_of_any_class(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(NAME, data_path=tmp_path) as qm:
            await work(qm)

    with serving(tmp_path), asyncio.Runner(loop_factory=OtherLoop) as runner:
        runner.run(main())


@pytest.mark.interpreted
def test_a_consumers_commit_that_is_refused_leaves_no_message_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*given: Any, **options: Any) -> None:
        raise ResourceProblem("no room")

    async def main() -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(NAME, data_path=tmp_path) as qm:
            await qm.put("A", b"one")
            consumer = qm.consume("A", wait=0.0)
            await anext(consumer)
            with monkeypatch.context() as patch, pytest.raises(ResourceProblem):
                patch.setattr(Session, "commit_later", refuses)
                await anext(consumer)
            assert served.manager.transactions() == []
            message, _ = await anext(consumer)
            assert message.backout_count == 1

    with serving(tmp_path) as served:
        asyncio.run(main())


def test_what_is_not_awaited_yet_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        opening = qmgr.aio.connect(NAME, data_path=tmp_path)
        with pytest.raises(AttributeError, match="not connected yet, so there is no 'put': use this as `async with`"):
            opening.put  # type: ignore[attr-defined]  # noqa: B018
        connection = await opening
        await connection.put("A", b"x")
        await connection.close()

    with serving(tmp_path):
        asyncio.run(main())


class Network:
    """What lies between a client and the daemon. It can lose an answer, and then the connection of it."""

    def __init__(self) -> None:
        self.losing = False
        self.lost = asyncio.Event()  # an answer is
        self._tasks: set[asyncio.Task[None]] = set()

    async def between(self, near: Path, far: Path) -> asyncio.Server:
        def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._carry(str(far), reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return await asyncio.start_unix_server(join, near)

    async def _carry(self, far: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(far)
        await asyncio.gather(self._forth(reader, requests, writer), self._back(answers, writer))

    async def _forth(
        self, reader: asyncio.StreamReader, requests: asyncio.StreamWriter, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            requests.write(data)
        if self.losing:
            self.losing = False
            writer.transport.abort()
            requests.close()
        else:
            requests.write_eof()

    async def _back(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await answers.read(65536):
            if self.losing:
                self.lost.set()
            else:
                writer.write(data)
        writer.close()


def test_a_get_whose_cancellation_and_answer_cross_on_a_network_that_is_cut_loses_no_message(tmp_path: Path) -> None:
    """The daemon has taken the message in the unit of work, which must not go on without whoever was to have it."""
    near = Path(locations.find(NAME, tmp_path / "near").socket)
    near.parent.mkdir(parents=True)

    async def main(far: str) -> None:
        network = Network()
        server = await network.between(near, Path(far))
        async with asyncio.timeout(30), qmgr.aio.connect(NAME, data_path=tmp_path / "near") as qm:
            unit = qm.begin()
            await unit.put("A", b"with it")
            waiting = asyncio.create_task(unit.get("B", wait=None))
            while not served.manager._engine.state.queues["B"].waiters.line:  # it may need another connection first
                await asyncio.sleep(0.001)
            network.losing = True
            served.manager.put("B", b"x")
            await network.lost.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(BackedOut, match="its answer was lost"):
                await unit.commit()
            await unit.backout()
            assert (await qm.get("B")).body == b"x"
            assert (await qm.queue("A")).depth == 0
        server.close()

    with serving(tmp_path) as served:
        asyncio.run(main(locations.find(NAME, tmp_path).socket))


# From 3.14 on asyncio does not end where a forked task raises SystemExit: there the child leaves the blocks only.
EXITS = """
async def blocks_and_loop() -> None:
    try:
        await main()
    except SystemExit as exc:
        if sys.version_info >= (3, 14):
            os._exit(exc.code)
        raise

asyncio.run(blocks_and_loop())
"""

FORKS = """
import asyncio, os, sys
import qmgr.aio

async def main() -> None:
    async with qmgr.aio.connect("{name}", data_path=sys.argv[1]) as qm:
        unit = qm.begin()
        await unit.get("A")
        child = os.fork()
        if not child:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        await unit.commit()
        child = os.fork()
        if not child:
            os.read(0, 1)  # it lives on, and so would the session
            os._exit(0)
        unit = qm.begin()
        await unit.get("A")
        print("got", flush=True)
        os.kill(os.getpid(), 9)
"""


FORKS_AND_EXITS = """
import asyncio, contextlib, os, sys
import qmgr.aio

async def main() -> None:
    way, path = sys.argv[1:]
    async with contextlib.AsyncExitStack() as stack:
        if way == "start":
            qm = await stack.enter_async_context(qmgr.aio.start("{name}", data_path=path))
        else:
            qm = await stack.enter_async_context(qmgr.aio.connect("{name}", data_path=path, timeout=600))
        if way == "get":
            waits = asyncio.create_task(qm.get("EMPTY", wait=None))
            await asyncio.sleep(0.3)
        elif way == "unit":
            unit = await stack.enter_async_context(qm.begin())
            await unit.put("EMPTY", b"x")
        elif way == "consume":
            consumer = await stack.enter_async_context(qm.consume("A", wait=0.0))
            await anext(consumer)
        child = os.fork()
        if not child:
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        os._exit(0)
"""


@pytest.mark.parametrize("way", ["get", "unit", "consume", "start"])
def test_a_forked_child_that_exits_leaves_all_blocks_at_once(tmp_path: Path, way: str) -> None:
    """Nothing of the parent's answers there, and its loop does not run. Seldom is heard of a call that waits."""
    with contextlib.ExitStack() as stack:
        if way == "start":
            create(tmp_path)
        else:
            served = stack.enter_context(serving(tmp_path))
            served.manager.define_queue("EMPTY")
            served.manager.put("A", b"1")
        program = [sys.executable, "-c", FORKS_AND_EXITS.format(name=NAME) + EXITS, way, str(tmp_path)]
        assert subprocess.run(program, capture_output=True, text=True, timeout=30).stdout == "7\n"


FORKS_AND_CALLS = """
import asyncio, os, sys
import qmgr.aio
from qmgr.errors import MQError

async def told(call):
    try:
        return repr(await call())
    except MQError as exc:
        return str(int(exc.reason))

async def first(messages):
    async for one in messages():
        return one

async def main() -> None:
    way, path = sys.argv[1:]
    open_it = qmgr.aio.start if way == "start" else qmgr.aio.connect
    async with open_it("{name}", data_path=path) as qm:
        async def begins():
            qm.begin()

        await asyncio.gather(*[qm.put("A", b"x") for _ in range(4)])
        unit = qm.begin()
        await unit.put("A", b"x")
        child = os.fork()
        if not child:
            for call in (
                lambda: qm.put("A", b"x"), lambda: qm.get("A"), lambda: qm.get("A", wait=None), lambda: qm.status(),
                lambda: qm.put_many("A", [b"x"]), lambda: first(lambda: qm.browse("A")),
                lambda: first(lambda: qm.consume("A")), lambda: unit.put("A", b"x"), lambda: unit.commit(),
                lambda: unit.backout(), begins,
            ):
                print(await told(call), end=" ", flush=True)
            await qm.close()
            print(flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        await unit.commit()
        print((await qm.queue("A")).depth)

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["start", "connect"])
def test_a_forked_child_that_calls_is_told_so_by_each_call(tmp_path: Path, way: str) -> None:
    """It hung, or heard that there is no running event loop, which no `except MQError` knows."""
    with contextlib.ExitStack() as stack:
        if way == "start":
            create(tmp_path)
            with qmgr.start(NAME, data_path=tmp_path) as qm:
                qm.define_queue("A")
        else:
            stack.enter_context(serving(tmp_path))
        program = [sys.executable, "-c", FORKS_AND_CALLS.format(name=NAME), way, str(tmp_path)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=30)
        assert done.stdout.split() == ["2018"] * 11 + ["5"], done.stderr


FORKS_WITH_ALL_SOCKETS_USED = """
import asyncio, os, sys
import qmgr.aio

async def goes_on(messages, qm) -> None:
    try:
        async for _ in messages:
            pass
    except qmgr.Unavailable:
        await qm.put("A", b"by the child")

async def main() -> None:
    async with qmgr.aio.connect(sys.argv[1]) as qm:
        messages = qm.browse("A")
        await anext(messages)
        waiting = [asyncio.create_task(qm.get("B", wait=None)) for _ in range(31)]
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(qm.status()))
        await asyncio.sleep(0)
        child = os.fork()
        if not child:
            asyncio.run(goes_on(messages, qm))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        os._exit(0)

asyncio.run(main())
"""


@pytest.mark.parametrize("read", [0, 1, FIRST_PAGE, 2 * FIRST_PAGE])
@pytest.mark.parametrize("look", ["browse", "replay"])
def test_who_reads_on_when_the_connection_is_closed_hears_so(tmp_path: Path, look: str, read: int) -> None:
    async def main() -> None:
        async with qmgr.aio.connect(NAME, data_path=tmp_path) as qm:
            reading = qm.browse("A") if look == "browse" else qm.replay("A", "oldest")
            for _ in range(read):
                await anext(reading)
        with pytest.raises(Unavailable, match=f"the connection to queue manager '{NAME}' is closed") as caught:
            await anext(reading)
        assert caught.value.reason == Reason.HCONN_ERROR

    with serving(tmp_path, log_type="linear") as served:
        served.manager.put_many("A", [b""] * 4 * FIRST_PAGE)
        asyncio.run(main())


def test_a_forked_child_does_not_stand_in_line_for_sockets_of_its_parent(tmp_path: Path) -> None:
    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        served.manager.put_many("A", [b"x"] * 500)
        program = [sys.executable, "-c", FORKS_WITH_ALL_SOCKETS_USED, f"qmgr://{place}"]
        done = subprocess.run(program, capture_output=True, text=True, timeout=30)
        assert done.stdout == "0\n", done.stderr
        assert bodies(served.manager, "A")[-1] == b"by the child"


def test_a_forked_child_neither_ends_the_session_nor_keeps_it(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.manager.put_many("A", [b"1", b"2"])
        with subprocess.Popen(
            [sys.executable, "-c", FORKS.format(name=NAME) + EXITS, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as program:
            assert program.stdout is not None and program.stdin is not None
            assert program.stdout.readline() == b"got\n"
            assert served.manager.get("A", wait=60.0).body == b"2"
            program.stdin.close()
        assert served.manager.queue("A").depth == 0


@pytest.mark.parametrize("loop", [False, True])
def test_a_unit_of_work_that_nobody_could_back_out_is_backed_out_by_the_next_free_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: bool
) -> None:
    """Its message was locked until the connection ended."""

    async def main(url: str) -> None:
        line = served.manager._engine.state.queues["A"].waiters.line
        async with asyncio.timeout(30), qmgr.aio.connect(url) as qm:
            await qm.put("B", b"x")
            monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", MOST)
            with pytest.raises(ValueError):
                async with qm.consume("B") if loop else contextlib.nullcontext() as consumer, qm.begin() as unit:
                    if consumer is None:
                        await unit.get("B")
                    else:
                        _, unit = await anext(consumer)
                    waiting = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(MOST)]
                    while len(line) < MOST:
                        await asyncio.sleep(0.01)
                    raise ValueError
            assert unit.state is UowState.BACKED_OUT
            assert len(served.manager.transactions()) == 1
            served.manager.put_many("A", [b"x"] * MOST)
            await asyncio.gather(*waiting)
            while served.manager.transactions():
                await asyncio.sleep(0.01)
            assert (await qm.get("B")).body == b"x"

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))


def test_a_connection_needs_none_of_the_threads_that_the_loop_lends(served: Served) -> None:
    """They may all wait for what comes of its calls, as in gets of `qmgr.connect`: then all stood still."""

    async def main(goes: threading.Event) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        held = asyncio.create_task(asyncio.to_thread(goes.wait, LONG))
        await asyncio.sleep(0)
        async with asyncio.timeout(LONG / 2), qmgr.aio.connect(NAME, data_path=served.path) as qm:
            await asyncio.gather(*[qm.put("A", b"x") for _ in range(3)])
            assert not held.done()
        goes.set()
        assert await held

    goes = threading.Event()
    try:
        asyncio.run(main(goes))
    finally:
        goes.set()
    assert bodies(served.manager, "A") == [b"x"] * 3


@pytest.mark.parametrize("how", ["answered", "cancelled"])
def test_a_unit_of_work_that_nobody_could_back_out_is_backed_out_by_a_socket_that_is_free_since_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It was for the next call, which might never come: its message was locked until the connection ended."""

    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url) as qm:
            await qm.put("B", b"x")
            monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
            joined = Pool._join

            async def refused_late(pool: Pool) -> Any:
                try:
                    return await joined(pool)
                except Unavailable:
                    if how == "answered" and not waiting.done():
                        served.manager.put("A", b"x")
                        await asyncio.wait([waiting])
                    raise

            monkeypatch.setattr(Pool, "_join", refused_late)
            with pytest.raises(ValueError):
                async with qm.begin() as unit:
                    await unit.get("B")
                    waiting = asyncio.create_task(qm.get("A", wait=None))
                    while not served.manager._engine.state.queues["A"].waiters.line:
                        await asyncio.sleep(0.01)
                    raise ValueError
            if how == "cancelled":
                assert len(served.manager.transactions()) == 1
                waiting.cancel()
            pool = cast(Outside, qm._backend)._pool
            while served.manager.transactions() or not pool._idle:
                await asyncio.sleep(0.01)
            assert (await qm.get("B")).body == b"x"
            assert pool._slots._value == MAX_REMOTE_SOCKETS

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))


@pytest.mark.parametrize("refused", ["page", "close"])
def test_a_browse_whose_page_or_close_finds_no_socket_is_let_go_of_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """The daemon kept it until the connection ended, and a replay the log with it."""

    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url) as qm:
            [theirs] = [one for one in gc.get_objects() if type(one) is Client and not one.closed]
            browse = qm.browse("A")
            assert (await anext(browse)).body == b"x"
            if refused == "close":
                await browse.aclose()
            with monkeypatch.context() as patched:
                patched.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
                waiting = asyncio.create_task(qm.get("B", wait=None))
                while not served.manager._engine.state.queues["B"].waiters.line:
                    await asyncio.sleep(0.01)
                with pytest.raises(Unavailable, match="at a time"):
                    assert not [one async for one in (browse if refused == "page" else qm.browse("B"))][:0]
            await browse.aclose()
            assert len(theirs.cursors) == 1
            served.manager.put("B", b"x")
            await waiting
            assert [one async for one in qm.browse("B")] == []
            assert not theirs.cursors

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        served.manager.put_many("A", [b"x"] * 300)
        asyncio.run(main(f"qmgr://{place}"))


def test_a_prepare_that_was_cancelled_is_not_said_to_be_backed_out_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon may have prepared it by the time at which there is a socket for its backout."""

    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url) as qm:
            prepare = Session.prepare
            may_prepare = threading.Event()

            def late(session: Session, unit: Any) -> None:
                assert may_prepare.wait(LONG)
                prepare(session, unit)

            monkeypatch.setattr(Session, "prepare", late)
            monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
            with pytest.raises(TimeoutError):
                async with qm.begin(Xid(1, b"g", b"b")) as unit:
                    await unit.put("B", b"x")
                    async with asyncio.timeout(0.05):
                        await unit.prepare()
            assert unit.state is UowState.ACTIVE
            may_prepare.set()
            while served.manager.transactions():
                await asyncio.sleep(0.01)

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))
