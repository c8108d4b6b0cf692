"""The thread that answers the quick calls of all sockets: nobody waits for another's wait, and forces are shared."""

import select
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
from logger.errors import LogFailed
from logger.force import GroupCommit
from qmgr import sockets, wire
from qmgr.daemon import hands, rounds
from qmgr.daemon.calls import Calls
from qmgr.daemon.hands import Hands
from qmgr.errors import Reason, Unavailable
from qmgr.logged import WouldWait
from qmgr.session import Sessions
from recovery.uows import UowState
from tests.daemon.raw import MOST, Raw
from tests.daemon.serving import LONG, Served, serving, until, waits
from tests.qmgr.world import bodies

BODY = b"x" * 256
ROUNDS = "qmgr client rounds"


def put(body: bytes = BODY, unit: int = 0) -> bytes:
    return wire.put(wire.BEGIN if unit else 0, unit, "A", body, {})


def get(wait: float = 0.0) -> bytes:
    return wire.get(0, 0, "A", wait, {})


def all_there(served: Served, count: int) -> None:
    """Wait until so many sockets are served by the one thread; the kernel watches one a little later than the map."""
    rounds = served.listener._clients.rounds

    def are_there() -> bool:
        with rounds._lock:
            return len(rounds._selector.get_map()) == 1 + count

    until(are_there)


def test_sockets_that_are_idle_have_no_threads(served: Served) -> None:
    with served.connect() as connection:
        connection.put("A", BODY)
        before = threading.active_count()
        clients = [Raw(served.path) for _ in range(20)]
        until(lambda: threading.active_count() <= before)
        for one in clients:
            assert one.calls.ask(put())[1].op == wire.OK
        assert threading.active_count() <= before
        for one in clients:
            one.close()
    assert len(bodies(served.manager, "A")) == 21


def slow_force(served: Served) -> tuple[Callable[[int], None], threading.Event, threading.Event]:
    """A force that says that it is at work, and waits until it may go on."""
    at_work, go_on, force = threading.Event(), threading.Event(), served.manager.force

    def slow(lsn: int) -> None:
        at_work.set()
        assert go_on.wait(LONG)
        force(lsn)

    return slow, at_work, go_on


def test_calls_that_come_together_share_a_force(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    force = served.manager.force
    monkeypatch.setattr(served.manager, "force", lambda lsn: [forced.append(lsn), force(lsn)])
    clients = [Raw(served.path) for _ in range(8)]
    all_there(served, 8)
    with served.manager._engine.lock:
        for one in clients:
            one.calls.send(put())
    assert clients[0].calls.receive()[1].op == wire.OK
    log = served.manager._engine.log
    assert log.safe == log.buffer.tail
    assert {one.calls.receive()[1].op for one in clients[1:]} == {wire.OK}
    assert len(forced) == 1
    for one in clients:
        one.close()


@pytest.mark.interpreted
def test_a_call_alone_has_the_disk_begin_and_those_with_company_do_not(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    begin = GroupCommit.begin_force
    monkeypatch.setattr(GroupCommit, "begin_force", lambda log: [begun.append(log), begin(log)])
    one, other = Raw(served.path), Raw(served.path)
    all_there(served, 2)

    def ask(*frames: bytes) -> int:
        """How many of these calls have it begin?"""
        before = len(begun)
        assert all(one.calls.ask(frame)[1].op == wire.OK for frame in frames)
        return len(begun) - before

    assert ask(put(), get()) == 2
    assert ask(put(unit=1)) == 0
    assert ask(wire.request(wire.COMMIT, 0, 1)) == 1
    with served.manager._engine.lock:
        one.calls.send(put())
        other.calls.send(put())
    for raw in (one, other):
        assert raw.calls.receive()[1].op == wire.OK
    assert ask(*[put()] * rounds.CONTENDED_FORCES) == 0
    assert ask(*[put()] * 3) == 3
    assert len(bodies(served.manager, "A")) == rounds.CONTENDED_FORCES + 6
    for raw in (one, other):
        raw.close()


def test_a_commit_whose_force_fails_is_told_to_have_failed_and_does_not_count(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 2."""

    def fails(lsn: int) -> None:
        raise Unavailable("the log can't be written", reason=Reason.Q_MGR_NOT_AVAILABLE)

    raws = [Raw(served.path) for _ in range(2)]
    for one in raws:
        one.calls.ask(put(unit=1))
    monkeypatch.setattr(served.manager, "force", fails)
    with served.manager._engine.lock:
        for one in raws:
            one.calls.send(wire.request(wire.COMMIT, 0, 1))
    for one in raws:
        frame, head = one.calls.receive()
        assert head.op == wire.ERROR and "can't be written" in str(wire.error(frame, head))
    assert all(not client._ended for client in served.listener._clients._clients.values())
    for one in raws:
        one.close()


def test_a_commit_leaves_the_puts_of_others_until_its_force(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most are committed by then, and are in the log with their outcome; who lasts holds the head from then on."""
    raws = [Raw(served.path) for _ in range(3)]
    all_there(served, 3)
    for one in raws:
        one.calls.ask(put(unit=1))
    engine = served.manager._engine
    logged: list[int] = []
    log_calls = engine._log_calls
    monkeypatch.setattr(engine, "_log_calls", lambda unit: [logged.append(unit.number), log_calls(unit)])
    with engine.lock:
        for one in raws[:2]:
            one.calls.send(wire.request(wire.COMMIT, 0, 1))
    for one in raws[:2]:
        assert one.calls.receive()[1].op == wire.OK
    [left] = served.manager.transactions()
    assert logged == [left.number] and left.first_lsn
    for one in raws:
        one.close()


def test_who_lasts_holds_the_head_from_a_commit_of_a_thread_that_may_wait_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    raws = [Raw(served.path) for _ in range(2)]
    monkeypatch.setattr(Sessions, "needs_checkpoint", True)
    for one in raws:
        one.calls.ask(put(unit=1))
    assert raws[0].calls.ask(wire.request(wire.COMMIT, 0, 1))[1].op == wire.OK
    [left] = served.manager.transactions()
    assert left.first_lsn
    for one in raws:
        one.close()


def test_calls_that_can_not_be_logged_before_a_force_are_told_as_a_force_that_fails(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 52: whoever waits for the force hears it as he would hear that."""

    def fails(*unit: object) -> None:
        raise LogFailed("the disk is gone")

    raws = [Raw(served.path) for _ in range(2)]
    all_there(served, 2)
    for one in raws:
        one.calls.ask(put(unit=1))
    with monkeypatch.context() as patched:
        patched.setattr(served.manager._engine, "_log_calls", fails)
        exc = raws[0].calls.refused(wire.request(wire.COMMIT, 0, 1))
    assert isinstance(exc, Unavailable) and "the disk is gone" in str(exc)
    for one in raws:
        one.close()


def test_what_a_client_had_sent_before_it_went_is_not_done(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lay in its socket while the thread was at work for another one."""
    connection.put("A", BODY)
    slow, at_work, go_on = slow_force(served)
    with monkeypatch.context() as patched:
        patched.setattr(served.manager, "force", slow)
        busy, gone = Raw(served.path), Raw(served.path)
        busy.calls.send(put())
        assert at_work.wait(LONG)
        gone.calls.send(get())
        gone.close()
        until(lambda: len(served.manager.sessions) == 2)
        go_on.set()
        assert busy.calls.receive()[1].op == wire.OK
    connection.put("A", BODY)
    busy.close()
    assert bodies(served.manager, "A") == [BODY] * 3


def test_who_waits_keeps_nobody_waiting(served: Served, connection: qmgr.Connection) -> None:
    raws = [Raw(served.path) for _ in range(3)]
    for one in raws:
        one.calls.send(get(wait=LONG))
    waits(served, count=3)
    with connection.begin() as unit:
        unit.put("B", BODY)
    assert connection.get("B").body == BODY
    connection.put_many("A", [BODY] * 3)
    for one in raws:
        frame, head = one.calls.receive()
        assert wire.got_message(frame, head, "A").body == BODY
        assert one.calls.ask(put())[1].op == wire.OK  # its socket is among the others again
        one.close()
    assert bodies(served.manager, "A") == [BODY] * 3


def test_who_does_not_read_its_answer_keeps_nobody_waiting(tmp_path: Path) -> None:
    large = bytes(range(256)) * 4096
    with serving(tmp_path, log_file_pages=2048) as served, served.connect() as connection:
        connection.put("A", large)
        raw = Raw(served.path)
        raw.calls.send(get())
        until(lambda: not bodies(served.manager, "A"))
        connection.put("B", BODY)
        assert connection.get("B").body == BODY
        frame, head = raw.calls.receive()
        assert wire.got_message(frame, head, "A").body == large
        assert raw.calls.ask(put())[1].op == wire.OK
        raw.close()


def test_a_request_that_comes_in_pieces_keeps_nobody_waiting(served: Served, connection: qmgr.Connection) -> None:
    raw, frame = Raw(served.path), put()
    for piece in (frame[:2], frame[2:20], frame[20:]):
        raw.calls.send(piece)
        connection.put("B", BODY)
    assert raw.calls.receive()[1].op == wire.OK
    raw.close()
    assert bodies(served.manager, "A") == [BODY]


def test_who_outruns_checkpoints_waits_for_one_elsewhere(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, waited = served.manager._engine, set[str]()
    look_around = served.manager.look_around
    monkeypatch.setattr(
        served.manager,
        "look_around",
        lambda **how: [how or waited.add(threading.current_thread().name), look_around(**how)],
    )
    taken = engine.checkpointer.count
    connection.put("A", BODY)
    with engine.lock:
        engine.checkpointer.arrived_max_bytes = len(BODY)
        engine.checkpointer.arrived_bytes = 3 * len(BODY)
    engine.attention = True
    connection.put("A", BODY)
    assert engine.checkpointer.count > taken
    assert not served.manager.sessions.needs_checkpoint
    assert waited and ROUNDS not in waited


def test_where_a_force_takes_long_others_are_served(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, at_work, go_on = slow_force(served)
    connection.put("B", BODY)
    # Of other tests:
    others = {one for one in threading.enumerate() if one is not served.listener._clients.rounds._thread}
    raws = [Raw(served.path) for _ in range(3)]
    monkeypatch.setattr(rounds, "SLOW_FORCE_NS", 1_000_000)
    monkeypatch.setattr(served.manager, "force", slow)
    for one in raws[:2]:
        one.calls.send(put())
        assert at_work.wait(LONG)
        at_work.clear()
        connection.put("B", BODY, persistent=False)
        assert connection.queue("A").depth >= 1
        with connection.begin() as unit:
            unit.put("B", BODY)
            unit.backout()
    raws[1].anchor.close()  # while its put waits
    go_on.set()
    assert raws[0].calls.receive()[1].op == wire.OK
    for one in (raws[0], raws[2]):
        assert one.calls.ask(put())[1].op == wire.OK
    until(lambda: [one.name for one in threading.enumerate() if one not in others].count(ROUNDS) == 1)
    for one in raws:
        one.close()
    assert len(bodies(served.manager, "A")) == 4


def test_what_comes_before_an_answer_waits_for_it_also_where_another_thread_serves(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, at_work, go_on = slow_force(served)
    raw = Raw(served.path)
    all_there(served, 1)
    monkeypatch.setattr(rounds, "SLOW_FORCE_NS", 1_000_000)
    with monkeypatch.context() as patched:
        patched.setattr(served.manager, "force", slow)
        raw.calls.send(put(b"first"))
        assert at_work.wait(LONG)
        connection.put("B", BODY, persistent=False)  # the other thread is there
        raw.calls.send(put(b"second"))
        for _ in range(2):
            connection.put("B", BODY, persistent=False)
        assert connection.queue("A").depth == 1
        go_on.set()
    for _ in range(2):
        assert wire.decode_reply(sockets.receive_one(raw.calls.sock, MOST)).op == wire.OK
    assert bodies(served.manager, "A") == [b"first", b"second"]
    raw.close()


def test_where_a_force_takes_long_and_there_is_no_other_thread_all_are_served_after_it(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, at_work, tried = slow_force(served)

    def none(*args: object) -> None:
        tried.set()
        raise RuntimeError("can't start new thread")

    raws = [Raw(served.path) for _ in range(2)]
    all_there(served, 2)
    monkeypatch.setattr(rounds, "SLOW_FORCE_NS", 1_000_000)
    with monkeypatch.context() as patched:
        patched.setattr(served.manager, "force", slow)
        patched.setattr(rounds, "start_thread", none)
        raws[0].calls.send(put())
        assert at_work.wait(LONG)
        raws[1].calls.send(put())
        for raw in raws:
            assert raw.calls.receive()[1].op == wire.OK
    for raw in raws:
        assert raw.calls.ask(put())[1].op == wire.OK
        raw.close()
    assert len(bodies(served.manager, "A")) == 4


def test_room_in_the_log_is_made_elsewhere(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, made = served.manager._engine, list[str]()
    make_space = engine._make_space

    def noted(size: int, promise: int, spare: bool) -> str:
        made.append(threading.current_thread().name)
        return make_space(size, promise, spare)

    monkeypatch.setattr(engine, "_make_space", noted)
    reserve, full = engine.log.reserve, [True] * 4  # twice here, and twice there
    monkeypatch.setattr(engine.log, "reserve", lambda *sizes: not (full and full.pop()) and reserve(*sizes))
    connection.put("A", BODY)
    with connection.begin() as unit:
        unit.put("A", BODY)
        unit.get("A")
    assert made and ROUNDS not in made
    assert bodies(served.manager, "A") == [BODY]


def test_a_call_is_not_made_again_for_what_follows_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done, and what has to be looked after then finds no room in the log."""

    def full(**how: object) -> None:
        raise WouldWait

    raw = Raw(served.path)
    all_there(served, 1)
    with monkeypatch.context() as patched:
        patched.setattr(served.manager, "look_around", full)
        served.manager._engine.attention = True
        assert raw.calls.ask(put())[1].op == wire.OK
    assert bodies(served.manager, "A") == [BODY]
    raw.close()


def test_what_comes_before_an_answer_is_answered_after_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol does not have it; no answer is lost or told twice."""
    raw, received, receive_now = Raw(served.path), threading.Event(), Calls.receive_now
    all_there(served, 1)

    def noted(calls: Calls) -> bytes:
        data = receive_now(calls)
        received.set()
        return data

    monkeypatch.setattr(Calls, "receive_now", noted)
    with served.manager._engine.lock:
        raw.calls.send(put(b"first"))
        assert received.wait(LONG)
        raw.calls.send(put(b"second"))
    for _ in range(2):
        assert wire.decode_reply(sockets.receive_one(raw.calls.sock, MOST)).op == wire.OK
    assert bodies(served.manager, "A") == [b"first", b"second"]
    raw.close()


def test_that_a_unit_is_committed_is_told_when_that_is_safe(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another socket of its client, which asks in the moment before the force."""
    raw = Raw(served.path)
    other, force, early = raw.join(), served.manager.force, list[bool]()
    received, receive_now = threading.Event(), Calls.receive_now

    def receives(calls: Calls) -> bytes:
        data = receive_now(calls)
        received.set()
        return data

    def noted(lsn: int) -> None:
        early.append(bool(select.select([other.sock], [], [], 0)[0]))
        force(lsn)

    monkeypatch.setattr(served.manager, "force", noted)
    monkeypatch.setattr(Calls, "receive_now", receives)
    for number, op in enumerate((wire.STATE, wire.COMMIT), 1):
        raw.calls.ask(put(unit=number))
        all_there(served, 2)
        received.clear()
        with served.manager._engine.lock:
            raw.calls.send(wire.request(wire.COMMIT, 0, number))
            assert received.wait(LONG)
            other.send(wire.request(op, 0, number))
        raw.calls.receive()
        other.receive()
    assert early == [False, False]
    raw.close()
    other.close()


@pytest.mark.parametrize("puts", [1, 2])
def test_row_02_a_force_reaches_all_that_wait_for_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, puts: int
) -> None:
    """The last call of a round, or of the rounds before a force, may wait for less than those before it."""
    raws, received, receive_now = [Raw(served.path) for _ in range(3)], threading.Semaphore(0), Calls.receive_now
    all_there(served, 3)
    engine, forced, force = served.manager._engine, list[int](), served.manager.force

    def receives(calls: Calls) -> bytes:
        data = receive_now(calls)
        received.release()
        return data

    monkeypatch.setattr(Calls, "receive_now", receives)
    monkeypatch.setattr(served.manager, "force", lambda lsn: [forced.append(lsn), force(lsn)])
    before = engine.log.buffer.tail
    _, unsafe = engine.put_later(None, "A", BODY, {})
    with engine.lock:
        raws[0].calls.send(put())  # a round of its own
        assert received.acquire(timeout=LONG)
        for one in raws[1:puts]:
            one.calls.send(put())
        raws[2].calls.send(wire.get(wire.BEGIN, 1, "A", 0.0, {}))
    for one in [*raws[:puts], raws[2]]:
        assert one.calls.receive()[1].op != wire.ERROR
    assert forced == [unsafe + puts * (unsafe - before)]
    for one in raws:
        one.close()


def test_row_02_what_is_done_by_a_thread_that_may_wait_is_told_when_it_is_safe(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each call of a client with TLS, and whatever comes where the log is nearly full."""
    raw, force, early = Raw(served.path), served.manager.force, list[bool]()

    def noted(lsn: int) -> None:
        early.append(bool(select.select([raw.calls.sock], [], [], 0)[0]))
        force(lsn)

    def fails(lsn: int) -> None:
        raise Unavailable("the log can't be written", reason=Reason.Q_MGR_NOT_AVAILABLE)

    all_there(served, 1)
    monkeypatch.setattr(Sessions, "needs_checkpoint", True)
    monkeypatch.setattr(served.manager, "force", noted)
    assert raw.calls.ask(put())[1].op == wire.OK
    assert early == [False]
    monkeypatch.setattr(served.manager, "force", fails)
    assert "can't be written" in str(raw.calls.refused(put()))
    raw.close()


def test_row_78_a_unit_that_ends_is_known_as_ended_before_it_leaves_the_others(served: Served) -> None:
    """Who looks from another thread finds it in one of them, and begins no other by its number."""
    raw, there = Raw(served.path), list[bool]()
    [client] = served.listener._clients._clients.values()

    class Noted(OrderedDict[int, tuple[int, UowState]]):
        def __setitem__(self, number: int, told: tuple[int, UowState]) -> None:
            there.append(number in client.units)
            super().__setitem__(number, told)

    client._ended = Noted()
    raw.calls.ask(put(unit=1))
    raw.calls.ask(wire.request(wire.COMMIT, 0, 1))
    assert there == [True]
    raw.close()


def test_whatever_goes_wrong_with_one_socket_the_others_are_served(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 57."""

    def fails(*args: object, **inserts: object) -> None:
        raise MemoryError

    connection.put("A", BODY)
    for method in ("after_force", "send_now", "receive_now", "answer"):
        raw = Raw(served.path)
        with monkeypatch.context() as patched:
            patched.setattr(Calls, method, fails)
            raw.calls.send(put())
            with pytest.raises((EOFError, ConnectionError, Unavailable)):
                frame, head = raw.calls.receive()
                raise wire.error(frame, head)
        assert connection.get("A", wait=LONG).body == BODY
        connection.put("A", BODY)
        raw.close()
    garbage = wire.REQUEST.pack(12, wire.PUT, 0, 99, 0)  # a name that is longer than its frame
    with monkeypatch.context() as patched:
        patched.setattr(served.service, "say", fails)
        raw = Raw(served.path)
        raw.calls.send(garbage)
        with pytest.raises((EOFError, ConnectionError)):
            raw.calls.receive()
        assert connection.get("A", wait=LONG).body == BODY
        raw.close()


def test_who_waits_for_a_force_that_can_not_be_begun_hears_that_his_connection_is_lost(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 57."""

    def fails(*args: object) -> None:
        raise MemoryError

    raw = Raw(served.path)
    all_there(served, 1)
    with monkeypatch.context() as patched:
        patched.setattr(served.listener._clients.rounds._beats, "add", fails)
        raw.calls.send(put())
        assert raw.calls.is_closed()
    connection.put("B", BODY)
    assert connection.get("B").body == BODY
    raw.close()


def test_a_socket_that_can_not_be_taken_back_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Raw(served.path)
    all_there(served, 1)
    with monkeypatch.context() as patched:
        patched.setattr(served.listener._clients.rounds._selector, "register", no_room)
        assert raw.calls.ask(wire.request(wire.CLOSE, 0, 1))[1].op == wire.OK
        with pytest.raises((EOFError, ConnectionError, Unavailable)):
            frame, head = raw.calls.receive()
            raise wire.error(frame, head)
    raw.close()


def no_room(*args: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_call_for_which_there_is_no_thread_loses_its_connection_only(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 55."""

    def none(*args: object) -> None:
        raise RuntimeError("can't start new thread")

    raw = Raw(served.path)
    until(lambda: "qmgr client call" not in {one.name for one in threading.enumerate()})
    with monkeypatch.context() as patched:
        patched.setattr(hands, "start_thread", none)
        raw.calls.send(get(wait=LONG))
        assert raw.calls.is_closed()
        connection.put("A", BODY)
    assert connection.get("A", wait=LONG).body == BODY
    raw.close()


def test_hands_are_used_again_and_go_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, done, used = Hands("hands of this test"), threading.Event(), set[int]()

    def work() -> None:
        used.add(threading.get_ident())
        done.set()

    def count() -> int:
        return sum(one.name == "hands of this test" for one in threading.enumerate())

    for _ in range(5):
        until(lambda: pool._free == count())
        done.clear()
        pool.do(work)
        assert done.wait(LONG)
    assert len(used) == 1
    monkeypatch.setattr(hands, "IDLE_TIMEOUT_S", 0.001)
    until(lambda: pool._free == count())
    pool.do(work)
    until(lambda: count() == 0)
    assert pool._free == 0
