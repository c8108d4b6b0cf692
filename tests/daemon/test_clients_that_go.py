"""What a client has begun ends with it, wherever it is cut off or killed; late requests of it have no effect."""

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

import qmgr
from logger.clock import SystemClock
from qmgr import sockets, wire
from qmgr.daemon.client import MAX_ENDED_UNITS
from qmgr.errors import (
    BackedOut,
    UnitOfWorkEnded,
)
from qmgr.infos import Peer
from qmgr.session import AllRights
from recovery.records import Xid
from recovery.uows import UowState
from tests.daemon.raw import Raw, RawSocket, hello
from tests.daemon.serving import LONG, SPAWN, Served, nobody_is_there, until, waits
from tests.qmgr.world import NAME, Call, bodies

XID = Xid(1, b"global", b"branch")


def test_cut_off_at_every_byte_a_unit_is_there_wholly_or_not_at_all(served: Served) -> None:
    """Row 74."""
    body = b"a body"
    put = wire.put(wire.BEGIN, 1, "A", body, {"priority": 4, "correlation_id": b"c"})
    commit = wire.request(wire.COMMIT, 0, 1)
    whole = len(put) + len(commit)
    for cut in range(whole + 1):
        raw = Raw(served.path)
        raw.calls.send(put[:cut])
        if cut >= len(put):
            raw.calls.receive()
            raw.calls.send(commit[: cut - len(put)])
        raw.cut() if cut % 2 else raw.close()
        until(lambda: nobody_is_there(served))
        assert served.manager.transactions() == []
        found = [message.body for message in served.manager.get_many("A", 10)]
        assert found in ([[]] if cut < whole else [[], [body]]), cut


def test_a_put_outside_a_unit_happens_when_all_of_it_has_come(served: Served) -> None:
    """Row 74."""
    put = wire.put(0, 0, "A", b"a body", {"priority": 4})
    for cut in range(len(put) + 1):
        raw = Raw(served.path)
        raw.calls.send(put[:cut])
        if cut == len(put):
            raw.calls.receive()
        raw.cut() if cut % 2 else raw.close()
        until(lambda: nobody_is_there(served))
        assert bodies(served.manager, "A") == ([b"a body"] if cut == len(put) else []), cut


def test_cut_off_while_it_says_hello(served: Served) -> None:
    """Row 74."""
    frame = hello()
    for cut in range(0, len(frame), 7):
        sock = RawSocket(served.path)
        sock.send(frame[:cut])
        sock.close()
    with served.connect() as client:
        client.put("A", b"x")
    until(lambda: nobody_is_there(served))


def child(path: Path, what: str, told: Pipe) -> None:
    """A client that is going to be killed."""
    client = qmgr.connect(NAME, data_path=path, application="child")
    unit = client.begin(XID if what == "prepared" else None)
    if what == "wait":
        told.send("waits")
        client.get("B", wait=None)
    if what == "unit wait":
        unit.put("A", b"never seen")
        told.send("waits")
        unit.get("B", wait=None)
    unit.get("A")
    unit.put("B", b"never seen")
    if what == "prepared":
        unit.prepare()
    told.send("done")
    threading.Event().wait()


@contextlib.contextmanager
def killed(served: Served, what: str) -> Iterator[None]:
    """A client process that is killed when the block is left."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=child, args=(served.path, what, theirs))
    process.start()
    try:
        assert ours.poll(LONG), "the client does nothing"
        ours.recv()
        yield
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(LONG)


def test_who_has_gone_before_it_is_welcomed_leaves_no_session(served: Served) -> None:
    sock = RawSocket(served.path)
    sock.sock.shutdown(socket.SHUT_RD)
    sock.send(hello())
    closed = select.poll()
    closed.register(sock.sock, 0)
    until(lambda: any(event & select.POLLHUP for _, event in closed.poll(0)))
    until(lambda: nobody_is_there(served))
    sock.close()


def test_a_client_that_is_killed_in_a_unit_is_backed_out_at_once(served: Served, connection: qmgr.Connection) -> None:
    """Row 64."""
    connection.put("A", b"held")
    with killed(served, "unit"):
        assert [one.peer.application for one in connection.connections() if one.units] == ["child"]
        waiting = Call(lambda: connection.get("A", wait=LONG))
        waits(served)
    found = waiting.outcome()
    assert (found.body, found.backout_count) == (b"held", 1)
    assert bodies(served.manager, "B") == []


@pytest.mark.parametrize("what", ["wait", "unit wait"])
def test_a_client_that_is_killed_while_it_waits_takes_nothing(
    served: Served, connection: qmgr.Connection, what: str
) -> None:
    """Row 64."""
    with killed(served, what):
        waits(served, "B")
    waits(served, "B", count=0)
    until(lambda: len(served.manager.sessions) == 1)
    connection.put("B", b"for others")
    assert connection.get("B").body == b"for others"
    assert served.manager.transactions() == []
    assert bodies(served.manager, "A") == []


class Late(SystemClock):
    """Who waits finds, when it is woken, what `before` has done meanwhile; once."""

    def __init__(self) -> None:
        self.before: Callable[[], None] = lambda: None

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        before, self.before = self.before, lambda: None
        before()
        return super().wait(event, seconds)


def test_row_64_a_message_that_comes_when_the_client_has_just_gone_stays(served: Served) -> None:
    clock = served.service.clock = Late()
    raw = Raw(served.path)
    [theirs] = served.listener._clients._clients.values()
    [calls] = theirs._sockets.values()

    def goes_and_a_message_comes() -> None:
        raw.calls.close()
        until(lambda: calls._waits.watch is not None and calls._waits.watch.gone)  # type: ignore[attr-defined]
        served.manager.put("B", b"for others")

    clock.before = goes_and_a_message_comes
    raw.calls.send(wire.get(0, 0, "B", wire.FOR_EVER, {}))
    until(lambda: not theirs._sockets)
    assert bodies(served.manager, "B") == [b"for others"]
    raw.close()


def test_row_64_the_word_of_a_message_that_finds_its_client_gone_goes_to_the_next(
    served: Served, connection: qmgr.Connection
) -> None:
    clock = served.service.clock = Late()
    raw = Raw(served.path)
    theirs = list(served.listener._clients._clients.values())[-1]
    [calls] = theirs._sockets.values()
    next_ones: list[Call] = []

    def goes_and_a_message_comes() -> None:
        next_ones.append(Call(lambda: connection.get("B", wait=None)))
        waits(served, "B", count=2)
        raw.calls.close()
        until(lambda: calls._waits.watch is not None and calls._waits.watch.gone)  # type: ignore[attr-defined]
        served.manager.put("B", b"for the next")

    clock.before = goes_and_a_message_comes
    raw.calls.send(wire.get(0, 0, "B", wire.FOR_EVER, {}))
    until(lambda: not theirs._sockets)
    until(lambda: not next_ones[0].is_alive())
    assert next_ones[0].outcome().body == b"for the next"
    raw.close()


def test_what_was_prepared_outlives_its_client(served: Served, connection: qmgr.Connection) -> None:
    """Row 64."""
    connection.put("A", b"held")
    with killed(served, "prepared"):
        pass
    until(lambda: len(served.manager.sessions) == 1)
    assert connection.in_doubt() == [XID]
    connection.resolve(XID, True)
    assert bodies(served.manager, "B") == [b"never seen"]


def test_the_session_goes_on_when_a_socket_of_a_call_is_lost(served: Served) -> None:
    """Row 74."""
    raw = Raw(served.path)
    raw.calls.ask(wire.put(wire.BEGIN, 1, "A", b"x", {}))
    raw.calls.send(wire.get(0, 1, "B", wire.FOR_EVER, {}))
    waits(served, "B")
    raw.calls.close()
    waits(served, "B", count=0)
    assert len(served.manager.transactions()) == 1
    _, head = raw.join().ask(wire.request(wire.COMMIT, 0, 1))
    assert head.op == wire.OK
    assert bodies(served.manager, "A") == [b"x"]
    raw.close()


@pytest.mark.parametrize("error", [None, RuntimeError("can't start new thread"), MemoryError()])
def test_rows_64_and_74_when_the_anchor_is_lost_calls_that_wait_are_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """The other sockets are closed, so that their client hears of it too; also where the system has no threads."""
    raw = Raw(served.path)
    raw.calls.ask(wire.put(wire.BEGIN, 1, "A", b"x", {}))
    idle = raw.join()
    raw.calls.send(wire.get(0, 1, "B", wire.FOR_EVER, {}))
    waits(served, "B")

    def none_left(work: object, name: str) -> None:
        assert error is not None
        raise error

    if error is not None:
        monkeypatch.setattr("qmgr.daemon.local.start_thread", none_left)
    raw.anchor.close()
    assert raw.calls.is_closed()
    assert idle.is_closed()
    waits(served, "B", count=0)
    until(lambda: nobody_is_there(served))
    assert served.manager.transactions() == []


def test_a_session_that_was_lost_ends_when_its_client_comes_again(served: Served, connection: qmgr.Connection) -> None:
    """Row 78."""
    connection.put("A", b"held")
    unit = connection.begin()
    unit.get("A")
    connection._link.broken = True  # as for a connection that heard of a lost network before the daemon has
    with pytest.raises(BackedOut):
        unit.put("A", b"x")
    assert connection.get("A").body == b"held"
    unit.backout()
    assert unit.state is UowState.BACKED_OUT
    assert len(served.manager.sessions) == 1


@pytest.mark.parametrize("end", ["commit", "prepare"])
def test_a_unit_of_work_whose_connection_was_lost_before_its_end_was_backed_out(
    served: Served, connection: qmgr.Connection, end: str
) -> None:
    """Nothing was under way, so it is known: nobody has to ask for the outcome."""
    unit = connection.begin(qmgr.Xid(1, b"lost", b""))
    unit.put("A", b"x")
    for session in list(served.manager.sessions):
        session.stop()
    until(lambda: not connection._link.is_there())
    with pytest.raises(BackedOut, match="was backed out when its connection was lost"):
        getattr(unit, end)()
    unit.backout()
    until(lambda: served.manager.transactions() == [])


def test_a_unit_of_work_whose_number_never_came_says_so(served: Served, connection: qmgr.Connection) -> None:
    unit = connection.begin()
    connection._link.broken = True
    assert unit.id == 0  # for a handler that only wants to log it
    with pytest.raises(BackedOut, match=r"^this unit of work was backed out when its connection was lost"):
        unit.put("A", b"x")
    unit.backout()


@pytest.mark.parametrize("end", ["commit", "backout"])
def test_a_unit_of_work_that_ended_without_any_call_has_no_number(connection: qmgr.Connection, end: str) -> None:
    unit = connection.begin()
    getattr(unit, end)()
    assert unit.id == 0
    with pytest.raises(UnitOfWorkEnded):
        unit.put("A", b"x")


# ---- fencing


def test_requests_of_ended_and_of_others_units_are_fenced(served: Served) -> None:
    """Row 78."""
    raw, other = Raw(served.path), Raw(served.path)
    _, head = raw.calls.ask(wire.put(wire.BEGIN, 1, "A", b"x", {}))
    assert head.begun is not None
    for stranger in (wire.put(0, 1, "A", b"y", {}), wire.request(wire.COMMIT, 0, 1)):
        assert isinstance(other.calls.refused(stranger), UnitOfWorkEnded)
    assert raw.calls.ask(wire.request(wire.COMMIT, 0, 1))[1].op == wire.OK
    for late in (
        wire.request(wire.COMMIT, 0, 1),
        wire.request(wire.BACKOUT, 0, 1),
        wire.put(0, 1, "A", b"z", {}),
        wire.put(wire.BEGIN, 1, "A", b"z", {}),
        wire.request(wire.PREPARE, 0, 1),
    ):
        error = raw.calls.refused(late)
        assert isinstance(error, UnitOfWorkEnded)
        assert f"unit of work {head.begun[0]} is committed" in str(error)
    assert bodies(served.manager, "A") == [b"x"]
    assert served.manager.transactions() == []
    raw.close()
    other.close()


def test_a_first_call_that_comes_after_the_backout_has_no_effect(served: Served) -> None:
    """Row 78."""
    raw = Raw(served.path)
    assert raw.calls.ask(wire.request(wire.BACKOUT, wire.BEGIN, 1))[1].op == wire.OK
    assert isinstance(raw.join().refused(wire.put(wire.BEGIN, 1, "A", b"late", {})), UnitOfWorkEnded)
    assert served.manager.transactions() == []
    raw.close()


def test_a_first_call_that_comes_in_the_midst_of_the_backout_is_backed_out_too(served: Served) -> None:
    """Row 78: the backout had found no such unit of work, and then it began, with nobody to end it."""
    raw = Raw(served.path)
    [theirs] = served.listener._clients._clients.values()

    class Contended:
        """Somebody else is quicker to have the lock, once."""

        def __init__(self) -> None:
            self.lock, self.before = theirs._lock, lambda: theirs.begin(1, None)

        def __enter__(self) -> None:
            before, self.before = self.before, lambda: None
            before()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    theirs._lock = Contended()  # type: ignore[assignment]
    assert raw.calls.ask(wire.request(wire.BACKOUT, wire.BEGIN, 1))[1].op == wire.OK
    assert served.manager.transactions() == []
    raw.close()


def test_row_77_units_of_work_that_were_rolled_back_are_forgotten_though_their_client_never_asks(
    served: Served,
) -> None:
    served.manager.alter(max_handles=2)
    raw, engine = Raw(served.path), served.manager._engine
    [theirs] = served.listener._clients._clients.values()
    for number in range(1, 3 * MAX_ENDED_UNITS):
        assert raw.calls.ask(wire.put(wire.BEGIN, number, "A", b"x", {}))[1].op == wire.OK
        unit = theirs.units[number][0]._unit
        with engine.lock:
            unit.evicted = True
            engine.back_out_locked(unit)
    assert len(theirs.units) < 2 * MAX_ENDED_UNITS
    error = raw.calls.refused(wire.request(wire.COMMIT, 0, number))
    assert isinstance(error, BackedOut), "the last ones are known"
    raw.close()


def test_row_77_a_unit_of_work_that_was_rolled_back_and_is_forgotten_does_not_begin_again(
    served: Served, connection: qmgr.Connection
) -> None:
    """What followed would be committed, without what came before."""
    served.manager.alter(max_handles=2)
    engine = served.manager._engine
    [theirs] = served.listener._clients._clients.values()
    units = [connection.begin() for _ in range(3 * MAX_ENDED_UNITS)]
    for unit in units:
        unit.put("A", b"x")
        known = theirs.units[unit._number][0]._unit
        with engine.lock:
            known.evicted = True
            engine.back_out_locked(known)
    with pytest.raises(UnitOfWorkEnded, match="is over"):
        units[0].put("A", b"y")
    units[0].backout()
    assert units[0].state is UowState.BACKED_OUT


def test_row_77_of_units_of_work_that_have_ended_the_last_ones_are_remembered(served: Served) -> None:
    raw = Raw(served.path)
    [theirs] = served.listener._clients._clients.values()
    last = MAX_ENDED_UNITS + 10
    for number in range(1, last + 1):
        raw.calls.ask(wire.put(wire.BEGIN, number, "B", b"x", {"persistent": False}))
        assert raw.calls.ask(wire.request(wire.COMMIT, 0, number))[1].op == wire.OK
    assert len(theirs._ended) == MAX_ENDED_UNITS
    assert not theirs.units
    assert "is committed" in str(raw.calls.refused(wire.request(wire.COMMIT, 0, last)))
    raw.close()


def test_row_78_a_session_is_replaced_by_its_own_user_only(served: Served, connection: qmgr.Connection) -> None:
    """Whoever knows its token is not yet who it is."""
    connection.begin().put("A", b"mine")
    clients = served.listener._clients
    [theirs] = clients._clients.values()
    told = {"replaces": theirs.token.hex(), "patience": 0.0}
    ours, far = sockets.pair()
    other = clients.open(ours, Peer(user="somebody else", application="", process=0), AllRights(), told)
    assert not theirs.closed
    assert len(served.manager.transactions()) == 1
    clients.end(other)
    own = clients.open(ours, Peer(user=theirs.session.peer.user, application="", process=0), AllRights(), told)
    assert theirs.closed
    assert served.manager.transactions() == []
    clients.end(own)
    far.close()


def test_row_77_units_of_work_that_end_before_they_begin_are_bounded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmgr.daemon.client.MAX_UNBEGUN", 3)
    raw = Raw(served.path)
    for number in range(1, 4):
        assert raw.calls.ask(wire.request(wire.BACKOUT, wire.BEGIN, number))[1].op == wire.OK
    assert "too many calls were interrupted" in str(raw.calls.refused(wire.request(wire.BACKOUT, wire.BEGIN, 4)))
    raw.close()
