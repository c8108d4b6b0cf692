"""Ends of units of work whose answer nobody has heard: what is said of them then is what is known, and no guess."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import Reason, UowState, Xid, link, sockets
from qmgr.daemon.client import MAX_ENDED_UNITS, MAX_REMOTE_SOCKETS
from qmgr.errors import BackedOut, MQError, NoMessageAvailable, Unavailable, UnitOfWorkEnded
from qmgr.session import Session
from tests.daemon.serving import LONG, Served, until, waits
from tests.daemon.test_client import far
from tests.qmgr.world import Call, bodies

XID = Xid(1, b"global", b"branch")


class Strikes:
    """An interrupt strikes behind the next answer, the `nth` of those that come."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, nth: int = 1, before: Callable[[], None] = lambda: None
    ) -> None:
        answer, self.left = link.Link.answer, nth

        def interrupted(here: link.Link, sock: sockets.Socket) -> bytes:
            told = answer(here, sock)
            self.left -= 1
            if not self.left:
                before()
                raise KeyboardInterrupt
            return told

        monkeypatch.setattr(link.Link, "answer", interrupted)


def lose(served: Served, connection: qmgr.Connection) -> None:
    """As an operator does it with STOP CONN, or the network."""
    for session in list(served.manager.sessions):
        session.stop()
    until(lambda: not connection._link.is_there())


@pytest.mark.parametrize("found", [False, True], ids=["by this call", "before"])
def test_an_interrupted_commit_whose_connection_is_lost_then_is_not_said_to_be_backed_out(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """The daemon had committed it."""
    unit = connection.begin()
    unit.put("A", b"x")
    Strikes(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        unit.commit()
    lose(served, connection)
    if found:
        assert connection._link.is_lost()
    for call in (unit.backout, unit.commit, lambda: unit.put("A", b"y")):
        with pytest.raises(UnitOfWorkEnded, match=r"outcome\("):
            call()
    assert unit.state is not UowState.BACKED_OUT
    assert connection.outcome(unit.id) is UowState.COMMITTED
    assert bodies(served.manager, "A") == [b"x"]


def test_a_block_that_is_interrupted_in_its_commit_and_loses_its_connection_is_not_said_to_be_backed_out(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = connection.begin()
    Strikes(monkeypatch, 2, lambda: lose(served, connection))
    with pytest.raises(KeyboardInterrupt), unit:
        unit.put("A", b"x")
    assert unit.state is UowState.ACTIVE
    with pytest.raises(UnitOfWorkEnded, match=r"outcome\("):
        unit.backout()
    assert connection.outcome(unit.id) is UowState.COMMITTED


def test_an_interrupted_prepare_whose_connection_is_lost_then_may_be_in_doubt(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = connection.begin(XID)
    unit.put("A", b"x")
    Strikes(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        unit.prepare()
    lose(served, connection)
    for call in (unit.backout, unit.commit, lambda: unit.put("A", b"y")):
        with pytest.raises(Unavailable, match="in doubt"):
            call()
    assert unit.state is not UowState.BACKED_OUT
    assert connection.in_doubt() == [XID]
    connection.resolve(XID, False)


def test_a_backout_of_a_prepared_unit_that_finds_the_connection_lost_is_none(
    served: Served, connection: qmgr.Connection
) -> None:
    unit = connection.begin(XID)
    unit.put("A", b"x")
    unit.prepare()
    lose(served, connection)
    with pytest.raises(Unavailable, match="in doubt"):
        unit.backout()
    assert unit.state is UowState.PREPARED
    assert connection.in_doubt() == [XID]
    connection.resolve(XID, False)


def test_the_state_of_a_unit_whose_connection_is_lost_is_what_the_daemon_said_last(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was what had come of the calls before: an interrupted prepare was none, a resolved unit was prepared."""
    units = [connection.begin(Xid(1, b"%d" % number, b"")) for number in range(2)]
    for unit in units:
        unit.put("A", b"x")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Strikes(patched)
        units[0].prepare()
    units[1].prepare()
    served.manager.resolve(Xid(1, b"1", b""), False)
    before = [unit.state for unit in units]
    assert before == [UowState.PREPARED, UowState.BACKED_OUT]
    lose(served, connection)
    assert connection._link.is_lost()
    assert [unit.state for unit in units] == before
    served.manager.resolve(Xid(1, b"0", b""), True)


@pytest.mark.parametrize("ask", ["state", "in_doubt"])
def test_that_a_unit_is_prepared_is_told_when_that_is_safe(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """Who is told so has another one commit, and a crash would back this one out."""
    log = served.manager._engine.log
    force, asked, gate = log.force, threading.Event(), threading.Event()
    unit = connection.begin(XID)
    unit.put("A", b"x")

    def gated(lsn: int) -> int:
        asked.set()
        assert gate.wait(LONG)
        return force(lsn)

    monkeypatch.setattr(log, "force", gated)
    prepare = Call(unit.prepare)
    assert asked.wait(LONG)
    asked.clear()
    told = Call(lambda: unit.state if ask == "state" else connection.in_doubt())
    until(lambda: asked.is_set() or not told.is_alive())
    early = not told.is_alive()
    gate.set()
    prepare.outcome()
    assert (early, told.outcome()) == (False, UowState.PREPARED if ask == "state" else [XID])
    unit.backout()


@pytest.mark.parametrize("ask", ["state", "in_doubt"])
def test_that_a_prepared_unit_is_resolved_is_told_when_that_is_safe(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """Who is told so forgets it, and after a crash it would be in doubt again."""
    log = served.manager._engine.log
    force, asked, gate = log.force, threading.Event(), threading.Event()
    unit = connection.begin(XID)
    unit.put("A", b"x")
    unit.prepare()

    def gated(lsn: int) -> int:
        asked.set()
        assert gate.wait(LONG)
        return force(lsn)

    monkeypatch.setattr(log, "force", gated)
    resolve = Call(lambda: connection.resolve(XID, False))
    assert asked.wait(LONG)
    asked.clear()
    told = Call(lambda: unit.state if ask == "state" else connection.in_doubt())
    until(lambda: asked.is_set() or not told.is_alive())
    early = not told.is_alive()
    gate.set()
    resolve.outcome()
    assert (early, told.outcome()) == (False, UowState.BACKED_OUT if ask == "state" else [])


def test_an_interrupted_commit_can_be_backed_out_where_the_daemon_has_not_heard_of_it(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*_: object) -> Any:
        raise KeyboardInterrupt

    unit = connection.begin()
    unit.put("A", b"x")
    with monkeypatch.context() as patched:
        patched.setattr(link.Link, "ask", strike)
        with pytest.raises(KeyboardInterrupt):
            unit.commit()
    unit.backout()
    lose(served, connection)
    for call in (unit.commit, unit.backout):
        with pytest.raises(UnitOfWorkEnded, match="is backed out"):
            call()
    assert bodies(served.manager, "A") == []


def test_a_commit_that_is_refused_leaves_nothing_unknown(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> int:
        raise qmgr.errors.ResourceProblem("the log is full")

    unit = connection.begin()
    unit.put("A", b"x")
    monkeypatch.setattr("qmgr.session.Session.commit_later", refuses)
    with pytest.raises(qmgr.errors.ResourceProblem):
        unit.commit()
    lose(served, connection)
    with pytest.raises(BackedOut):
        unit.commit()
    unit.backout()


ENDS = pytest.mark.parametrize("end", ["commit", "prepare", "commit of a prepared one"])


@ENDS
def test_an_end_for_which_there_is_no_socket_is_refused_and_can_be_called_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with far(served, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as connection:
        unit = connection.begin(XID)
        unit.put("B", b"x")
        if "of" in end:
            unit.prepare()
        before, call = unit.state, getattr(unit, end.split()[0])
        monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
        waiting = Call(lambda: connection.get("A", wait=LONG))
        waits(served)
        with pytest.raises(Unavailable) as caught:
            call()
        assert caught.value.reason is Reason.MAX_CONNS_LIMIT_REACHED
        served.manager.put("A", b"x")
        waiting.outcome()
        assert unit.state is before
        call()
        assert unit.state is (UowState.PREPARED if end == "prepare" else UowState.COMMITTED)
        assert len(served.manager.in_doubt()) == (end == "prepare")


def test_a_prepare_for_which_there_was_no_socket_leaves_a_unit_that_its_block_backs_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody had asked the daemon, and still it counted as prepared: the block left it open, its message locked."""
    with far(served, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as connection:
        connection.put("B", b"x")
        monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
        with pytest.raises(ValueError), connection.begin(XID) as unit:
            unit.get("B")
            waiting = Call(lambda: connection.get("A", wait=LONG))
            waits(served)
            with pytest.raises(Unavailable):
                unit.prepare()
            served.manager.put("A", b"x")
            waiting.outcome()
            raise ValueError
        assert connection.get("B").body == b"x"


@ENDS
@pytest.mark.parametrize("sends", [False, True])
def test_of_an_end_that_was_never_asked_for_since_the_connection_was_lost_it_is_known(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, end: str, sends: bool
) -> None:
    """It was called unknown, or perhaps in doubt."""
    unit = connection.begin(XID)
    unit.put("B", b"x")
    if "of" in end:
        unit.prepare()
    elif sends:
        unit.send("B", b"y")
    waiting = Call(lambda: connection.get("A", wait=LONG))
    waits(served)
    another = link.Link._new_socket

    def lost(here: link.Link) -> sockets.Socket:
        lose(served, connection)
        return another(here)

    monkeypatch.setattr(link.Link, "_new_socket", lost)
    with pytest.raises(Unavailable if "of" in end else BackedOut, match="in doubt" if "of" in end else "backed out"):
        getattr(unit, end.split()[0])()
    with pytest.raises(MQError):
        waiting.outcome()
    if "of" not in end:
        unit.backout()
        assert unit.state is UowState.BACKED_OUT


def test_a_call_that_was_never_asked_for_since_the_connection_was_lost_says_so(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = link.Link._new_socket

    def lost(here: link.Link) -> sockets.Socket:
        lose(served, connection)
        return another(here)

    monkeypatch.setattr(link.Link, "_new_socket", lost)
    with pytest.raises(Unavailable, match="nothing of this call was done") as caught:
        connection.put("A", b"x")
    assert caught.value.reason is Reason.CONNECTION_BROKEN


def test_an_interrupted_begin_leaves_no_unit_that_nobody_has(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Xid was in use as long as the connection was open."""
    Strikes(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        connection.begin(XID)
    assert served.manager.transactions() == []
    connection.begin(XID).backout()


@pytest.mark.parametrize("end", ["commit", "backout"])
def test_a_unit_whose_end_was_interrupted_says_what_became_of_it(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Its state was an error: 2255."""
    unit = connection.begin()
    unit.put("A", b"x")
    Strikes(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        getattr(unit, end)()
    became = UowState.COMMITTED if end == "commit" else UowState.BACKED_OUT
    assert unit.state is became
    with pytest.raises(UnitOfWorkEnded, match=f"is {became.value}"):
        getattr(unit, end)()
    lose(served, connection)
    with pytest.raises((UnitOfWorkEnded, BackedOut), match=f"unit of work {unit.id} (is|was) {became.value}"):
        (unit.backout if end == "commit" else unit.commit)()


def test_a_consumer_whose_get_was_interrupted_gives_that_message_when_it_goes_on(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit of work has the message, and was not to be committed."""
    connection.put("A", b"x")
    orders = connection.consume("A", wait=0.0)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Strikes(patched)
        next(orders)
    assert [message.body for message, _ in orders] == [b"x"]


def test_who_has_heard_that_a_unit_was_rolled_back_goes_on_with_his_consumer(
    served: Served, connection: qmgr.Connection
) -> None:
    connection.put("A", b"x")
    orders = connection.consume("A", wait=0.0)
    _, unit = next(orders)
    engine = served.manager._engine
    [theirs] = served.listener._clients._clients.values()
    known = theirs.units[unit._number][0]._unit
    with engine.lock:
        known.evicted = True
        engine.back_out_locked(known)
    with pytest.raises(BackedOut, match="rolled back by the queue manager"):
        unit.commit()
    assert [message.body for message, _ in orders] == [b"x"]


def test_who_has_heard_that_an_outcome_is_not_known_goes_on_with_his_consumer(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"1", b"2"):
        connection.put("A", body)
    orders = connection.consume("A", wait=0.0)
    _, unit = next(orders)
    answer = link.Link.answer

    def lost(here: link.Link, sock: sockets.Socket) -> bytes:
        answer(here, sock)
        lose(served, connection)
        raise here._lost(sock, EOFError())

    with monkeypatch.context() as patched, pytest.raises(Unavailable, match=r"outcome\("):
        patched.setattr(link.Link, "answer", lost)
        unit.commit()
    assert [message.body for message, _ in orders] == [b"2"]
    assert connection.outcome(unit.id) is UowState.COMMITTED


@pytest.mark.parametrize("lost", [False, True])
def test_what_ends_the_block_of_a_consumer_is_heard_of(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """It was an error of the unit of work, or of the connection."""
    connection.put("A", b"x")
    with pytest.raises(KeyboardInterrupt), connection.consume("A", wait=0.0) as consumer:
        for _ in consumer:
            if lost:
                lose(served, connection)
                raise KeyboardInterrupt
            Strikes(monkeypatch, 2)  # behind its state, in the commit
    assert bodies(served.manager, "A") == [b"x"] * lost


def test_a_get_that_waits_leaves_a_socket_to_the_other_calls(served: Served) -> None:
    """Else whoever has what they wait for could neither commit nor back out, and all would wait for ever."""
    with far(served, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as connection:
        connection.put("B", b"x")
        with pytest.raises(ValueError), connection.begin() as unit:
            unit.get("B")
            waiting = [Call(lambda: connection.get("A", wait=LONG)) for _ in range(MAX_REMOTE_SOCKETS - 1)]
            waits(served, "A", MAX_REMOTE_SOCKETS - 1)
            for get in (lambda: connection.get("A", wait=LONG), lambda: connection.get_many("A", 2, wait=None)):
                with pytest.raises(Unavailable, match="31 calls at a time") as caught:
                    get()
                assert caught.value.reason is Reason.MAX_CONNS_LIMIT_REACHED
            assert connection.get_many("B", 2) == unit.get_many("B", 2) == []  # which do not wait
            raise ValueError
        assert connection.get("B").body == b"x"
        served.manager.put_many("A", [b"x"] * len(waiting))
        for one in waiting:
            one.outcome()
        with pytest.raises(NoMessageAvailable):
            connection.get("A", wait=0.01)


@pytest.mark.parametrize("loop", [False, True])
def test_a_unit_of_work_that_nobody_could_back_out_is_backed_out_by_the_next_free_socket(
    served: Served, monkeypatch: pytest.MonkeyPatch, loop: bool
) -> None:
    """Its messages were locked until the connection ended."""
    with far(served, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as connection:
        connection.put("B", b"x")
        units, waiting = [], []

        def leaves(unit: qmgr.client.RemoteUnit) -> None:
            units.append(unit)
            monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
            waiting.append(Call(lambda: connection.get("A", wait=LONG)))
            waits(served)
            raise ValueError

        with pytest.raises(ValueError), connection.begin() as second:
            second.put("A", b"y")
            with connection.consume("B") if loop else contextlib.nullcontext() as consumer:
                if consumer is not None:
                    leaves(next(consumer)[1])
                with connection.begin() as unit:
                    unit.get("B")
                    leaves(unit)
        assert len(served.manager.transactions()) == 2
        for call in (units[0].commit, units[0].backout, second.commit):
            with pytest.raises(UnitOfWorkEnded, match="is backed out"):
                call()
        served.manager.put("A", b"x")
        waiting[0].outcome()
        until(lambda: not served.manager.transactions() and len(connection._link._idle) == 1)
        assert connection.get("B").body == b"x"


def test_a_backout_whose_socket_another_call_has_taken_goes_by_the_one_after(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits_in_it() -> Call:
        waiting = Call(lambda: connection.get("A", wait=LONG))
        waits(served)
        return waiting

    with far(served, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as connection:
        connection.put("B", b"x")
        monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
        with pytest.raises(ValueError), connection.begin() as unit:
            unit.get("B")
            waiting = waits_in_it()
            raise ValueError
        threads: list[tuple[Any, ...]] = []
        with monkeypatch.context() as patched:
            patched.setattr(link._thread, "start_new_thread", lambda *thread: threads.append(thread))
            served.manager.put("A", b"x")
            waiting.outcome()
            waiting = waits_in_it()
        [(back_out, told)] = threads
        back_out(*told)
        assert len(served.manager.transactions()) == 1
        served.manager.put("A", b"x")
        waiting.outcome()
        until(lambda: not served.manager.transactions())


def test_a_commit_that_was_interrupted_may_have_been_done_when_its_unit_can_be_backed_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with far(served, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as connection:
        unit, waiting = connection.begin(), []

        def waits_in_it() -> None:
            monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
            waiting.append(Call(lambda: connection.get("A", wait=LONG)))
            waits(served)

        with pytest.raises(KeyboardInterrupt), unit:
            unit.put("B", b"x")
            Strikes(monkeypatch, 1, waits_in_it)
        served.manager.put("A", b"x")
        waiting[0].outcome()
        until(lambda: not connection._link.pending_backouts and len(connection._link._idle) == 1)
        assert unit.state is UowState.COMMITTED
        assert bodies(served.manager, "B") == [b"x"]


def test_an_interrupted_commit_that_the_daemon_remembers_no_more_is_not_said_to_be_backed_out(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a unit of work that had not begun, which a backout ends before it does."""
    unit = connection.begin()
    unit.put("A", b"x")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Strikes(patched)
        unit.commit()
    for _ in range(MAX_ENDED_UNITS + 1):
        with connection.begin() as other:
            other.put("B", b"y", persistent=False)
    for call in (unit.backout, unit.commit):
        with pytest.raises(UnitOfWorkEnded, match="is over"):
            call()
    lose(served, connection)
    with pytest.raises(UnitOfWorkEnded, match=r"outcome\("):
        unit.backout()
    assert connection.outcome(unit.id) is UowState.COMMITTED


def test_a_commit_that_ends_in_an_internal_error_may_have_been_done(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = connection.begin()
    unit.put("A", b"x")
    commit = Session.commit_later

    def fails_then(session: Session, *told: Any, **options: Any) -> int:
        commit(session, *told, **options)
        raise RuntimeError

    with monkeypatch.context() as patched, pytest.raises(MQError, match="internal error"):
        patched.setattr(Session, "commit_later", fails_then)
        unit.commit()
    lose(served, connection)
    with pytest.raises(UnitOfWorkEnded, match=r"outcome\("):
        unit.backout()
    assert connection.outcome(unit.id) is UowState.COMMITTED


def test_a_consumer_that_goes_on_after_an_interrupted_commit_and_a_lost_connection_hears_what_is_known_of_it(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It heard that what had not ended was backed out: the daemon had committed it."""
    connection.put_many("A", [b"1", b"2"])
    consumer = connection.consume("A", wait=0.0)
    _, unit = next(consumer)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Strikes(patched)
        next(consumer)
    lose(served, connection)
    with pytest.raises(UnitOfWorkEnded, match=rf"outcome\({unit.id}\)"):
        next(consumer)
    assert connection.outcome(unit.id) is UowState.COMMITTED
    assert next(consumer)[0].body == b"2"


def test_a_block_that_is_interrupted_as_it_backs_out_leaves_no_unit_of_work_open(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = link.Link.ask

    def strike(*_: object) -> Any:
        monkeypatch.setattr(link.Link, "ask", ask)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), connection.begin() as unit:
        unit.put("A", b"x")
        monkeypatch.setattr(link.Link, "ask", strike)
        raise ValueError
    until(lambda: not served.manager.transactions())
    assert unit.state is UowState.BACKED_OUT


def test_an_interrupt_that_strikes_as_the_next_free_socket_is_given_to_a_backout_leaves_it_to_the_one_after(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*_: object) -> Any:
        raise KeyboardInterrupt

    connection.put("A", b"x")
    unit = connection.begin()
    unit.get("A")
    connection._link.pending_backouts.append(unit._backout_request())
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(link._thread, "start_new_thread", strike)
        connection.queues()
    connection.queues()
    until(lambda: not served.manager.transactions())
