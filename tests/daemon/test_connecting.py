"""Connecting, refusing, closing, forking: what a client hears, and what is left behind."""

import asyncio
import copy
import errno
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsIndex

import pytest

import qmgr
import qmgr.aio
from logger.disk import Disk
from logger.posix_disk import PosixDisk
from qmgr import locations, sockets, targets, wire
from qmgr.daemon import local
from qmgr.daemon.local import LocalListener
from qmgr.errors import (
    BackedOut,
    Mistake,
    Reason,
    Unavailable,
)
from qmgr.sockets import Socket
from recovery.records import Xid
from tests.conformance.nursery import halt
from tests.daemon.raw import RawSocket, hello
from tests.daemon.serving import LONG, Served, daemon, location, nobody_is_there, serving, until, waits
from tests.qmgr.world import NAME, Call, bodies

XID = Xid(1, b"global", b"branch")


def test_without_a_daemon_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no queue manager 'QM1'") as caught:
        qmgr.connect(NAME, data_path=tmp_path)
    assert caught.value.reason == Reason.Q_MGR_NAME_ERROR
    qmgr.create(NAME, data_path=tmp_path)
    with pytest.raises(Unavailable, match="is not running; start it with strmqm QM1") as caught:
        qmgr.connect(NAME, data_path=tmp_path)
    assert caught.value.reason == Reason.Q_MGR_NOT_AVAILABLE
    with (
        qmgr.start(NAME, data_path=tmp_path),
        pytest.raises(Unavailable, match=f"is run by pid {os.getpid()}, which serves no clients"),
    ):
        qmgr.connect(NAME, data_path=tmp_path)
    with pytest.raises(Mistake, match="qmgr://host:port/QM1"):
        qmgr.connect("http://localhost:1/QM1")
    for url in ("qmgr://localhost:1", "qmgrs://localhost:1/"):
        with pytest.raises(Mistake, match=r"name of the queue manager is missing behind the port; write .*/QM1"):
            qmgr.connect(url)
    with pytest.raises(Mistake, match="something is behind the name of the queue manager; write "):
        qmgr.connect("qmgr://localhost:1/QM1?ca=ca.pem")
    for tls in ({"ca": "ca.pem"}, {"certificate": "mia.pem"}, {"key": "mia.key"}):
        with pytest.raises(Mistake, match=r"are for TLS, and it would go without; write .* qmgrs:// for TLS"):
            qmgr.connect("qmgr://mia:secret@localhost:1/QM1", **tls)


def test_without_descriptors_it_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the client: there is one for the socket, and none to look who has the queue manager."""
    qmgr.create(NAME, data_path=tmp_path)

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(PosixDisk, "locked_by", none_left)
    with pytest.raises(Unavailable, match=r"'QM1' can't be reached: .*Too many open files"):
        qmgr.connect(NAME, data_path=tmp_path)


def test_the_socket_is_this_users_and_a_dead_ones_is_replaced(tmp_path: Path) -> None:
    path = location(tmp_path).socket
    with daemon(tmp_path) as one:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        one.kill()
        assert os.path.exists(path)
        one.start()
        with one.connect() as client:
            client.put("A", b"x")
    os.unlink(path)
    Path(path).write_text("not a socket")
    qm = qmgr.start(NAME, data_path=tmp_path)
    qm.end()
    with pytest.raises(OSError, match="not a socket"), serving(tmp_path):
        pass


def test_a_socket_that_took_the_place_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "qm.sock")
    first, number = sockets.listen_unix(path)
    second, _ = sockets.listen_unix(path)
    sockets.remove_unix(path, number)
    sockets.connect_unix(path).close()
    first.close()
    second.close()


def test_a_socket_that_cannot_be_made_is_named() -> None:
    path = "/sys/qm.sock"  # where not even root makes a file; the system's own error names none
    with pytest.raises(OSError) as caught:
        sockets.listen_unix(path)
    assert caught.value.filename == path


def test_paths_may_be_longer_than_the_system_takes(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with serving(deep) as served, served.connect() as client:
        client.put("A", b"x")
        [me] = [one for one in client.connections() if one.number]
        assert me.peer.process == os.getpid()


@pytest.mark.parametrize("awaited", [False, True])
def test_an_idle_connection_that_was_lost_says_that_nothing_was_done(tmp_path: Path, awaited: bool) -> None:
    """2009 for the first call, of which nothing was sent; the next one is made by another session."""

    async def opened() -> qmgr.aio.Connection:
        return await qmgr.aio.connect(NAME, data_path=tmp_path)

    async def put(qm: qmgr.aio.Connection) -> None:
        await qm.put("A", b"x")

    with daemon(tmp_path) as one, asyncio.Runner() as loop, one.connect() as client:
        other = loop.run(opened()) if awaited else None
        call = (lambda: loop.run(put(other))) if other is not None else (lambda: client.put("A", b"x"))
        call()
        one.kill()
        one.start()
        with pytest.raises(Unavailable, match="before this call, of which nothing was done") as caught:
            call()
        assert caught.value.reason == Reason.CONNECTION_BROKEN
        call()
        with one.connect() as third:
            assert third.queue("A").depth == 2
        if other is not None:
            loop.run(other.close())


def test_who_consumes_hears_once_that_the_connection_was_lost_and_goes_on(tmp_path: Path) -> None:
    with daemon(tmp_path) as one, one.connect() as client:
        client.put_many("A", [b"1", b"2"])
        consumer = client.consume("A", wait=0.0)
        message, _ = next(consumer)
        assert message.body == b"1"
        one.kill()
        one.start()
        with pytest.raises(Unavailable) as caught:
            next(consumer)
        assert caught.value.reason == Reason.CONNECTION_BROKEN
        assert [message.body for message, _ in consumer] == [b"1", b"2"]


def test_another_version_and_another_queue_manager_are_refused_clearly(served: Served) -> None:
    """Row 79. A client of version 1 would take it for the answer to a commit that the daemon is there."""
    for version in (1, 7):
        sock = RawSocket(served.path)
        error = sock.refused(wire.hello(wire.HELLO, b"{}", version=version))
        said = f"speaks version 2 of the client protocol, and this client version {version}; install the same version"
        assert said in str(error)
        assert sock.is_closed()
    sock = RawSocket(served.path)
    assert "this is queue manager 'QM1', not 'QM2'" in str(sock.refused(hello(manager="QM2")))
    sock = RawSocket(served.path)
    error = sock.refused(wire.hello(wire.JOIN, bytes(16)))
    assert isinstance(error, Unavailable) and error.reason == Reason.CONNECTION_BROKEN


def test_refusing_lets_those_that_are_there_go_on(served: Served, connection: qmgr.Connection) -> None:
    unit = connection.begin()
    unit.put("A", b"x")
    served.listener.refuse()
    with pytest.raises(Unavailable) as caught:
        served.connect()
    assert caught.value.reason == Reason.Q_MGR_QUIESCING
    waiting = Call(lambda: connection.get("B", wait=LONG))
    waits(served, "B")
    connection.put("B", b"y")  # by a socket that has to be opened
    waiting.outcome()
    unit.commit()
    served.listener.close()
    with pytest.raises(Unavailable) as caught:
        connection.queues()
    assert caught.value.reason == Reason.CONNECTION_BROKEN
    assert not os.path.exists(location(served.path).socket)
    assert nobody_is_there(served)


def test_closing_ends_units_and_waits_at_once(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waits hears why, and not that its connection is lost."""
    monkeypatch.setattr(local, "END_GRACE_NS", int(LONG * 1e9))
    unit = connection.begin()
    unit.put("A", b"x")
    waiting = Call(lambda: connection.get("B", wait=None))
    waits(served, "B")
    served.listener.close()
    with pytest.raises(Unavailable, match=r"is ending .*2162"):
        waiting.outcome()
    with pytest.raises((Unavailable, BackedOut)):
        unit.commit()
    assert served.manager.transactions() == []


def test_closing_ends_those_who_have_not_said_who_they_are(tmp_path: Path) -> None:
    with serving(tmp_path, channels={"connect_timeout": 3600}) as served:
        stranger = RawSocket(tmp_path)
        until(lambda: len(served.listener._strangers) == 1)
        served.listener.close()
        assert stranger.is_closed()
        stranger.close()


@pytest.mark.parametrize("mode", ["quiesce", "immediate"])
def test_a_client_ends_the_queue_manager(tmp_path: Path, mode: str) -> None:
    with daemon(tmp_path) as one:
        client = one.connect()
        client.put("A", b"x")
        open_unit = client.begin()
        open_unit.put("A", b"y")
        client.end(mode)
        with pytest.raises(Unavailable, match="not running"):
            client.put("A", b"z")
        one.process.join(LONG)
        assert one.process.exitcode == 0
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        assert bodies(qm, "A") == [b"x"]
        assert (qm.restart_report.in_flight, qm.restart_report.torn_tail) == (0, False)


def test_who_ends_it_does_not_back_out_what_a_thread_began_that_is_gone(tmp_path: Path) -> None:
    """The system gives the number of a thread to the next one."""
    with daemon(tmp_path) as one:
        client, begun = one.connect(), []
        gone = Call(lambda: begun.append(client.begin()))
        gone.outcome()
        [unit] = begun
        unit.put("A", b"x")
        go = threading.Event()

        def end() -> None:
            go.wait()
            if threading.get_ident() == gone.ident:
                client.end("quiesce")

        others = [Call(end)]
        while others[-1].ident != gone.ident:
            assert len(others) < 100
            others.append(Call(end))
        go.set()
        with pytest.raises(Unavailable):
            while True:  # until it quiesces
                with client.begin() as other:
                    other.put("B", b"")
        unit.commit()
        for call in others:
            call.outcome()
        one.process.join(LONG)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        assert bodies(qm, "A") == [b"x"]


def test_who_ends_it_leaves_in_doubt_what_was_prepared(tmp_path: Path) -> None:
    with daemon(tmp_path) as one, one.connect() as client:
        unit = client.begin(XID)
        unit.put("A", b"x")
        unit.prepare()
        client.end()
        one.process.join(LONG)
        one.start()
        assert client.in_doubt() == [XID]


def test_a_client_that_has_no_descriptors_left_is_told_that_it_is_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(location: locations.Location, disk: Disk) -> str | None:
        raise OSError(errno.EMFILE, "Too many open files", location.lock)

    with daemon(tmp_path) as one:
        client = one.connect()
        with monkeypatch.context() as scarce:
            scarce.setattr(locations, "running", none_left)
            with pytest.raises(Unavailable, match="whether it has ended can't be seen") as caught:
                client.end("immediate")
        assert caught.value.reason == Reason.Q_MGR_STOPPING
        one.process.join(LONG)
        assert one.process.exitcode == 0


def test_threads_that_find_their_connection_lost_make_one_together(served: Served, connection: qmgr.Connection) -> None:
    """One that was made for each of them would end that of the one before."""

    class Line:
        def __init__(self) -> None:
            self.lock, self.came = threading.Lock(), 0

        def __enter__(self) -> None:
            self.came += 1
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    line, number = Line(), connection._link.number
    connection._connecting = line  # type: ignore[assignment]
    served.manager.stop_connection(number)
    until(connection._link.is_lost)
    with line.lock:
        calls = [Call(connection.queues) for _ in range(3)]
        until(lambda: line.came == len(calls))
    for call in calls:
        call.outcome()
    assert connection._link.number == number + 1


def test_a_closed_connection_says_so(connection: qmgr.Connection) -> None:
    unit = connection.begin()
    unit.put("A", b"x")
    connection.close()
    for call in (connection.queues, connection.begin, lambda: connection.put("A", b"")):
        with pytest.raises(Unavailable, match="is closed") as caught:
            call()
        assert caught.value.reason == Reason.HCONN_ERROR
    with pytest.raises(BackedOut):
        unit.commit()


@pytest.mark.parametrize("awaited", [False, True])
def test_who_closes_a_connection_that_is_just_being_made_again_leaves_no_session(
    served: Served, monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    opening, closed = threading.Event(), threading.Event()
    usual = targets.Local.open

    def slow(self: targets.Local, seconds: float) -> Socket:
        opening.set()
        assert closed.wait(LONG)
        return usual(self, seconds)

    def lose() -> None:
        [session] = served.manager.sessions
        session.stop()
        until(lambda: nobody_is_there(served))

    async def closing() -> None:
        qm = await qmgr.aio.connect(NAME, data_path=served.path)
        lose()
        with pytest.raises(Unavailable):
            await qm.put("A", b"x")
        monkeypatch.setattr(targets.Local, "open", slow)
        putting = asyncio.create_task(qm.put("A", b"x"))
        assert await asyncio.to_thread(opening.wait, LONG)
        await qm.close()
        closed.set()
        with pytest.raises(Unavailable, match="is closed"):
            await putting

    if awaited:
        asyncio.run(closing())
    else:
        connection = served.connect()
        lose()
        with pytest.raises(Unavailable):
            connection.put("A", b"x")
        monkeypatch.setattr(targets.Local, "open", slow)
        putting = Call(lambda: connection.put("A", b"x"))
        assert opening.wait(LONG)
        connection.close()
        closed.set()
        with pytest.raises(Unavailable, match="is closed"):
            putting.outcome()
    assert nobody_is_there(served)


def test_tasks_that_wait_for_a_connection_that_is_closed_meanwhile_make_none(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed, usual = list[targets.Local](), threading.Event(), targets.Local.open

    def slow(self: targets.Local, seconds: float) -> Socket:
        opened.append(self)
        assert closed.wait(LONG)
        return usual(self, seconds)

    async def closing() -> None:
        qm = await qmgr.aio.connect(NAME, data_path=served.path)
        [session] = served.manager.sessions
        session.stop()
        until(lambda: nobody_is_there(served))
        with pytest.raises(Unavailable):
            await qm.put("A", b"x")
        monkeypatch.setattr(targets.Local, "open", slow)
        putting = [asyncio.create_task(qm.put("A", b"x")) for _ in range(5)]
        while not opened:
            await asyncio.sleep(0.001)
        await qm.close()
        closed.set()
        for one in putting:
            with pytest.raises(Unavailable, match="is closed"):
                await one

    asyncio.run(closing())
    assert len(opened) == 1
    until(lambda: nobody_is_there(served))


def test_a_browse_that_nobody_reads_is_given_up_by_one_thread_only(served: Served) -> None:
    class Taken(list[int]):
        def pop(self, at: SupportsIndex = -1) -> int:
            self.clear()  # by another thread
            return super().pop(at)

    with served.connect() as connection:
        connection._link.unclosed_cursors = Taken([1])
        assert [queue.name for queue in connection.queues()] == ["A", "B"]


def in_forked_child(connection: qmgr.Connection, unit: object, path: str) -> None:
    """Runs in the child; what goes wrong there is its exit code."""
    assert isinstance(unit, type(connection.begin()))
    try:
        unit.put("A", b"of the child")
        os._exit(2)
    except Unavailable as exc:
        if exc.reason != Reason.HCONN_ERROR:
            os._exit(3)
    unit.__exit__(KeyError, KeyError(), None)
    with connection.begin() as own:
        own.put("B", b"from the child")
    os._exit(0)


def test_a_forked_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    with daemon(tmp_path) as one, one.connect() as client:
        with client.begin() as unit:
            unit.put("A", b"from the parent")
            pid = os.fork()
            if not pid:
                try:
                    in_forked_child(client, unit, str(tmp_path))
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            unit.put("A", b"and again")
        assert [message.body for message in client.browse("A")] == [b"from the parent", b"and again"]
        assert [message.body for message in client.browse("B")] == [b"from the child"]


FORKS = f"""
import os, sys
import qmgr

qm = qmgr.connect("{NAME}", data_path=sys.argv[1])
unit = qm.begin()
unit.get("A")
if not os.fork():
    os.read(0, 1)  # it lives on
    os._exit(0)
print("got", flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_forked_child_keeps_no_session_of_its_parent_that_is_killed(served: Served) -> None:
    served.manager.put("A", b"x")
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, str(served.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None and program.stdin is not None
        assert program.stdout.readline() == b"got\n"
        assert served.manager.get("A", wait=LONG).body == b"x"
        program.stdin.close()


def test_a_child_that_is_forked_while_a_thread_connects_again_connects_itself(tmp_path: Path) -> None:
    with daemon(tmp_path) as one, one.connect() as client:
        one.kill()
        one.start()
        with pytest.raises(Unavailable, match="the next one connects again"):
            client.queues()
        assert one.process.pid is not None
        halt(one.process.pid)
        connecting = Call(client.queues)
        until(client._connecting.locked)
        child = os.fork()
        if not child:
            try:
                os.kill(one.process.pid, signal.SIGCONT)
                client.put("A", b"from the child")
                os._exit(0)
            finally:
                os._exit(1)
        try:
            until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
        finally:
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        connecting.outcome()
        assert bodies(client, "A") == [b"from the child"]  # type: ignore[arg-type]


def test_a_child_that_is_forked_while_a_thread_has_a_replay_does_not_wait_for_it(tmp_path: Path) -> None:
    with serving(tmp_path, log_type="linear") as served, served.connect() as client:
        client.put("A", b"x")
        again = client.replay("A", "oldest")
        inside, go_on = threading.Event(), threading.Event()

        def call() -> None:
            with again._turn:  # as in its __next__
                inside.set()
                go_on.wait(60)

        other = Call(call)
        assert inside.wait(60)
        child = os.fork()
        if not child:
            try:
                signal.alarm(20)
                with pytest.raises(Unavailable, match="this replay is the parent's"), again:
                    next(again)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        other.outcome()
        assert [found.message.body for found in again] == [b"x"]


def has_no_descriptor(patched: pytest.MonkeyPatch) -> None:
    """The daemon closes each socket that it has accepted."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    patched.setattr(LocalListener, "_let_in", none_left)


def test_a_socket_for_which_the_daemon_has_no_descriptor_does_not_end_the_session(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its units of work were backed out, and other threads' gets that waited heard 2009."""
    unit = connection.begin()
    unit.put("B", b"kept")
    waiting = Call(lambda: connection.get("A", wait=LONG).body)
    waits(served)
    with monkeypatch.context() as patched:
        has_no_descriptor(patched)
        with pytest.raises(Unavailable, match="does not answer") as caught:
            unit.commit()
        assert caught.value.reason is Reason.Q_MGR_NOT_AVAILABLE
    served.manager.put("A", b"x")
    assert waiting.outcome() == b"x"
    unit.commit()
    assert bodies(served.manager, "B") == [b"kept"]


def test_a_socket_that_the_client_can_not_make_does_not_end_the_session(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    unit = connection.begin()
    unit.put("B", b"kept")
    waiting = Call(lambda: connection.get("A", wait=LONG).body)
    waits(served)
    with monkeypatch.context() as patched, pytest.raises(Unavailable) as caught:
        patched.setattr(sockets, "connect_unix", none_left)
        unit.commit()
    assert caught.value.reason is Reason.Q_MGR_NOT_AVAILABLE
    served.manager.put("A", b"x")
    assert waiting.outcome() == b"x"
    unit.commit()
    assert bodies(served.manager, "B") == [b"kept"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_would_be_sent_to_another_process_says_that_it_connects_itself(
    served: Served, connection: qmgr.Connection, copied: Callable[[object], object]
) -> None:
    for each in (connection, served.manager):
        with pytest.raises(TypeError, match=r"^<.*> can't be copied, or sent to another process: have that connect"):
            copied(each)


def test_of_tasks_neither(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as qm:
            unit = qm.begin()
            await unit.put("B", b"kept")
            waiting = asyncio.create_task(qm.get("A", wait=None))
            while not served.manager._engine.state.queues["A"].waiters.line:
                await asyncio.sleep(0.01)
            with monkeypatch.context() as patched:
                has_no_descriptor(patched)
                with pytest.raises(Unavailable, match="no connection can be made") as caught:
                    await unit.commit()
                assert caught.value.reason is Reason.Q_MGR_NOT_AVAILABLE
            served.manager.put("A", b"x")
            assert (await waiting).body == b"x"
            await unit.commit()

    asyncio.run(main())
    assert bodies(served.manager, "B") == [b"kept"]


@pytest.mark.parametrize("wrong", [5, 1.5, True, {"a": 1}])
def test_arguments_of_a_connect_that_are_no_text_are_mistakes(served: Served, wrong: Any) -> None:
    with pytest.raises(Mistake, match="application is the name that operators see"):
        qmgr.connect(NAME, data_path=served.path, application=wrong)
    with pytest.raises(Mistake, match="application is the name that operators see"):
        qmgr.aio.connect(NAME, data_path=served.path, application=wrong)
    with pytest.raises(Mistake, match=r"the TLS files .* can't be used"):
        qmgr.connect(f"qmgrs://127.0.0.1:1/{NAME}", ca=wrong)
