"""Sessions: what a client has begun ends with it; what is delivered to it is held until it says what becomes of it."""

import contextlib
import errno
import itertools
import json
from types import FunctionType

import pytest

import qmgr
from qmgr.delivery import Holder, Watch
from qmgr.errors import BackedOut, Inhibited, Mistake, NotAuthorized, Reason, Unavailable, UnitOfWorkEnded
from qmgr.infos import Peer
from qmgr.manager import UnitOfWork
from qmgr.session import AllRights, Session, Sessions
from qmgr.units import Units
from recovery.uows import UowState
from tests.conftest import SOAK
from tests.qmgr.test_interrupts import Strike, Tracer, interrupted, safe_places
from tests.qmgr.world import Call, World, bodies
from tests.sim.loss import LOSE_ALL

SOMEBODY = Peer(user="mia", application="till", process=7)


def world(**options: object) -> World:
    made = World(**options)  # type: ignore[arg-type]
    made.qm.define_queue("A", backout_threshold=3)
    made.qm.define_queue("B")
    for number in range(5):
        made.qm.put("A", b"%d" % number, persistent=number != 1)
    return made


def session(made: World) -> Session:
    return made.qm.sessions.open(SOMEBODY, AllRights())


def counts(made: World) -> dict[bytes, int]:
    return {message.body: message.backout_count for message in made.qm.browse("A")}


def test_what_is_delivered_is_held_and_nothing_of_it_is_logged() -> None:
    made = world()
    one = session(made)
    tail = made.qm.status().log.tail
    held, _ = one.deliver("A", 3)
    assert [each.message.body for each in held] == [b"0", b"1", b"2"]
    assert bodies(made.qm, "A") == [b"3", b"4"]
    assert made.qm.status().log.tail == tail
    assert made.qm.transactions() == []
    one.release(held)
    assert counts(made) == dict.fromkeys([b"0", b"1", b"2", b"3", b"4"], 0)
    made.qm.force(one.deliver("A", 2)[1])
    made.crash(LOSE_ALL)
    assert counts(made) == dict.fromkeys([b"0", b"2", b"3", b"4"], 0)


@pytest.mark.parametrize("had", [False, True])
def test_a_session_that_is_over_is_given_nothing_more(had: bool) -> None:
    """Nobody would give it back."""
    made = world()
    one = session(made)
    if had:
        one.deliver("A", 1)
    one.close()
    assert one.deliver("A", 3) == ([], 0)
    assert len(bodies(made.qm, "A")) == 5
    with pytest.raises(Unavailable) as caught:
        one.begin()
    assert caught.value.reason is Reason.CONNECTION_BROKEN
    assert made.qm.transactions() == []


def test_a_session_ends_though_its_units_of_work_can_not_be_backed_out() -> None:
    """Nobody is there to be told, and what comes behind would not be done."""
    made = world()
    one = session(made)
    for _ in range(2):
        one.put(one.begin(), "A", b"x", {})
    made.disk.fail("write", errno.EIO, once=False, where=lambda path: path.endswith(".LOG"))
    with pytest.raises(qmgr.MQError):
        made.qm.put("A", b"y")
    assert made.qm.refusal is not None
    one.close()
    assert len(made.qm.sessions) == 0


def test_what_is_counted_as_ended_are_units_of_work_that_did_something() -> None:
    made = world()
    made.qm.define_queue("BAD")
    made.qm.alter_queue("A", backout_queue="BAD")
    one = session(made)
    held, _ = one.deliver("A", 1)
    one.release(held)
    assert made.qm.get("A", backout_requeue=True).body == b"0"
    with pytest.raises(qmgr.NoMessageAvailable):
        made.qm.get("BAD", backout_requeue=True)
    one.close()
    picture = made.qm.picture()
    assert (picture["committed"], picture["backed_out"], picture["units_of_work"]) == (0, 0, 0)


def test_accepted_messages_are_gone_when_the_log_is_forced() -> None:
    made = world()
    one = session(made)
    held, _ = one.deliver("A", 3)
    made.qm.force(one.accept(held[:2]))
    made.crash(LOSE_ALL)
    assert bodies(made.qm, "A") == [b"2", b"3", b"4"]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "backout"])
def test_accepted_in_a_unit_of_work_they_share_its_fate(commits: bool) -> None:
    made = world()
    one = session(made)
    held, _ = one.deliver("A", 3)
    unit = one.begin()
    one.put_later(unit, "B", b"copy", {})
    assert one.accept(held, unit) == 0
    made.qm.force(one.commit_later(unit) if commits else one.backout_later(unit))
    with pytest.raises(UnitOfWorkEnded):
        one.unit(unit.id)
    made.crash(LOSE_ALL)
    if commits:
        assert bodies(made.qm, "A") == [b"3", b"4"]
        assert bodies(made.qm, "B") == [b"copy"]
    else:
        assert counts(made) == {b"0": 1, b"2": 1, b"3": 0, b"4": 0}
        assert bodies(made.qm, "B") == []


def test_another_thread_may_end_a_unit_while_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    one = session(made)
    made.qm.alter(max_handles=2)
    first, _ = one.begin(), one.begin()
    state = UnitOfWork.state.fget  # type: ignore[attr-defined]

    def meanwhile(unit: UnitOfWork) -> UowState:
        if first.id in one.units:
            monkeypatch.undo()
            Call(lambda: one.commit(first)).outcome()
        found: UowState = state(unit)
        return found

    monkeypatch.setattr(UnitOfWork, "state", property(meanwhile))
    one.begin()
    assert first.id not in one.units


def test_units_that_the_queue_manager_has_rolled_back_count_no_more() -> None:
    """Row 77: their client may never hear of it; until it does, a few of them are known."""
    made = world()
    one = session(made)
    made.qm.alter(max_handles=2)
    engine = made.qm._engine
    rolled_back = []
    for _ in range(10):
        unit = one.begin()
        one.put(unit, "A", b"x", {})
        with engine.lock:
            unit._unit.evicted = True
            engine.back_out_locked(unit._unit)
        rolled_back.append(unit)
        assert len(one.units) <= 5
    with pytest.raises(BackedOut):
        one.commit(one.unit(rolled_back[-1].id))
    first, second = one.begin(), one.begin()
    with pytest.raises(Mistake) as caught:
        one.begin()
    assert caught.value.reason is Reason.HANDLE_NOT_AVAILABLE
    one.commit(first)
    one.commit(second)


def test_an_event_names_the_client_that_was_refused() -> None:
    made = world()
    made.qm.alter(inhibit_events=True)
    made.qm.alter_queue("A", put_enabled=False)
    one = made.qm.sessions.open(Peer(user="u", application="shop", process=7), AllRights())
    with pytest.raises(Inhibited):
        one.put(None, "A", b"", {})
    event = json.loads(made.qm.get("SYSTEM.ADMIN.QMGR.EVENT", wait=0.0).body)
    assert event["eventData"]["applName"] == "shop pid 7"


def test_rejected_messages_return_with_a_higher_backout_count_that_lasts() -> None:
    """Row 80."""
    made = world()
    one = session(made)
    held, _ = one.deliver("A", 2)
    made.qm.force(one.reject(held))
    assert counts(made) == {b"0": 1, b"1": 1, b"2": 0, b"3": 0, b"4": 0}
    made.crash(LOSE_ALL)
    assert counts(made)[b"0"] == 1


def test_a_message_is_acknowledged_once_only() -> None:
    made = world()
    one, other = session(made), session(made)
    held, _ = one.deliver("A", 2)
    one.accept(held[:1])
    for wrong in (
        lambda: one.accept(held),
        lambda: one.reject(held[:1]),
        lambda: other.deliver("A", 1) and other.accept(held),
    ):
        with pytest.raises(Mistake) as caught:
            wrong()
        assert caught.value.reason is Reason.NO_MSG_LOCKED
    one.release(held)  # the other one: the first is gone
    assert bodies(made.qm, "A") == [b"1", b"3", b"4"]
    assert made.qm.transactions() == []


def test_the_end_of_a_client_undoes_what_it_has_not_ended() -> None:
    made = world()
    one = session(made)
    unit = one.begin()
    one.get(unit, "A")
    one.put(unit, "B", b"never", {})
    doubtful = one.begin(qmgr.Xid(1, b"x", b""))
    one.put(doubtful, "B", b"perhaps", {})
    one.prepare(doubtful)
    one.deliver("A", 2)
    one.close()
    one.close()
    assert counts(made) == {b"0": 1, b"1": 1, b"2": 1, b"3": 0, b"4": 0}
    assert [unit.xid for unit in made.qm.transactions()] == [qmgr.Xid(1, b"x", b"")]
    with pytest.raises(Unavailable):
        one.begin()
    assert one.deliver("A", 1) == ([], 0)
    assert len(made.qm.sessions) == 0


def test_units_of_work_are_fenced() -> None:
    """Row 78."""
    made = world()
    one, other = session(made), session(made)
    unit = one.begin()
    one.begin()
    other.begin()
    assert one.unit(unit.id) is unit
    with pytest.raises(UnitOfWorkEnded):
        other.unit(unit.id)
    one.commit(unit)
    with pytest.raises(UnitOfWorkEnded):
        one.unit(unit.id)


def test_who_waits_is_woken_once_and_passes_on_what_it_does_not_take() -> None:
    made = world()
    one, other = session(made), session(made)
    woken: list[str] = []
    watch, second = Watch(lambda: woken.append("one")), Watch(lambda: woken.append("other"))
    assert one.deliver("B", 5, watch) == ([], 0)
    assert other.deliver("B", 5, second) == ([], 0)
    made.qm.put("B", b"first")
    assert woken == ["one"]
    one.unwatch("B", watch)
    assert woken == ["one", "other"]
    made.qm.put("B", b"second")
    held, _ = other.deliver("B", 1, second)
    assert [each.message.body for each in held] == [b"first"]
    assert woken == ["one", "other"]


def test_who_is_woken_finds_that_he_was() -> None:
    """Another thread looks as soon as the word is passed on; if it found that he was not, he would wait for ever."""
    made, found = world(), list[bool]()
    watch = Watch(lambda: found.append(watch.is_set()))
    session(made).deliver("B", 1, watch)
    made.qm.put("B", b"first")
    assert found == [True]


def test_a_queue_that_is_built_anew_forgets_what_was_held() -> None:
    made = world(log_type="linear", log_primary_files=4)
    one = session(made)
    held, _ = one.deliver("A", 2)
    made.qm.recreate("A")
    assert bodies(made.qm, "A") == [b"0", b"2", b"3", b"4"]
    with pytest.raises(Mistake):
        one.accept(held)
    one.release(held)
    one.close()
    assert counts(made) == dict.fromkeys([b"0", b"2", b"3", b"4"], 0)


def test_a_checkpoint_keeps_what_is_held() -> None:
    made = world()
    held, _ = session(made).deliver("A", 2)
    made.qm.checkpoint()
    made.crash(LOSE_ALL)
    assert bodies(made.qm, "A") == [b"0", b"2", b"3", b"4"]
    assert held


def test_there_are_as_many_clients_as_the_limit_allows_and_as_rights_let_in() -> None:
    """Rows 76 and 79."""

    class None_(AllRights):
        def require(self, verb: str, name: str) -> None:
            raise NotAuthorized(f"{verb} {name}")

    made = world()
    with pytest.raises(NotAuthorized):
        made.qm.sessions.open(SOMEBODY, None_())
    made.qm.sessions.limit = 1
    far = Peer(user="mia", channel="TCP")
    one = made.qm.sessions.open(far, AllRights())
    with pytest.raises(Unavailable) as caught:
        made.qm.sessions.open(far, AllRights())
    assert caught.value.reason is Reason.MAX_CONNS_LIMIT_REACHED
    session(made).close()  # those of this machine are not counted
    one.close()
    one = session(made)
    assert one.call("queue", "A").depth == 5
    assert one.call("attributes") == made.qm.attributes
    with pytest.raises(Mistake):
        one.call("end")
    unit = one.begin()
    here, client = made.qm.connections()
    assert (here.units, client.peer) == ((), SOMEBODY)
    assert [each.owner for each in client.units] == ["till pid 7"]
    one.backout(unit)


def test_refusals_have_room_in_the_log_and_wait_for_no_checkpoint() -> None:
    """Over and over: this is what a poison message makes a client do."""
    made = world()
    one = session(made)
    for _ in range(400):
        made.qm.put("A", b"x" * 50)
    for _ in range(150):
        one.reject(one.deliver("A", 400)[0])
    made.qm.put("A", b"and on")
    made.crash(LOSE_ALL)
    assert made.qm.queue("A").depth > 400


@pytest.mark.interpreted
def test_where_the_log_is_full_refused_messages_return_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    one = session(made)
    held, _ = one.deliver("A", 5)

    def no_room(*_: object) -> None:
        raise qmgr.ResourceProblem("the log is full")

    monkeypatch.setattr(made.qm._engine, "_room_for_calls", no_room)
    assert one.reject(held) == 0
    monkeypatch.undo()
    assert counts(made) == dict.fromkeys([b"0", b"1", b"2", b"3", b"4"], 0)


def test_an_end_in_order_counts_nothing_that_is_only_held() -> None:
    made = world()
    session(made).deliver("A", 3)
    made.restart()
    assert counts(made) == dict.fromkeys([b"0", b"2", b"3", b"4"], 0)


def test_thousands_of_messages_are_released_at_once() -> None:
    made = world()
    made.qm.put_many("B", [b""] * 9000, persistent=False)
    one = session(made)
    held, _ = one.deliver("B", 9000)
    one.release(held)
    held, _ = one.deliver("B", 9000)
    one.close()
    assert {message.backout_count for message in made.qm.browse("B")} == {1}
    assert len(held) == 9000


def test_a_wake_that_its_receiver_can_not_use_goes_to_the_next() -> None:
    class Revoked(AllRights):
        def require(self, verb: str, name: str) -> None:
            if verb == "get" and self.user in revoked:
                raise NotAuthorized("no more")

    made = world()
    revoked: set[str] = set()
    one = made.qm.sessions.open(SOMEBODY, Revoked("mia"))
    other = session(made)
    woken: list[str] = []
    one.deliver("B", 1, Watch(lambda: woken.append("one")))
    other.deliver("B", 1, Watch(lambda: woken.append("other")))
    revoked.add("mia")
    made.qm.put("B", b"x")
    with pytest.raises(NotAuthorized):
        one.deliver("B", 1)
    assert woken == ["one", "other"]


def test_a_small_maxumsgs_holds_up_no_end_of_a_client() -> None:
    made = world()
    made.qm.alter(max_uncommitted=2)
    one = session(made)
    held, _ = one.deliver("A", 5)
    one.reject(held)
    one.deliver("A", 5)
    one.close()
    assert counts(made) == dict.fromkeys([b"0", b"1", b"2", b"3", b"4"], 2)
    assert made.qm.queue("A").uncommitted == 0
    assert len(made.qm._engine.state.uows) == 0


@pytest.mark.interpreted
def test_a_client_that_can_not_be_refused_for_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    one = session(made)
    one.deliver("A", 5)

    def never(*_: object) -> None:
        raise Mistake("never")

    monkeypatch.setattr(made.qm._engine, "_take_over", never)
    one.close()
    assert made.qm.queue("A").uncommitted == 0
    assert len(made.qm._engine.state.uows) == 0


def test_a_checkpoint_without_descriptors_is_tried_again() -> None:
    """Row 56."""
    made = world()
    made.disk.fail(("open", "create"), errno.EMFILE, once=False)
    with pytest.raises(Unavailable, match="ulimit"):
        made.qm.checkpoint()
    made.disk.heal()
    made.qm.put("A", b"and on")
    made.qm.checkpoint()
    made.crash(LOSE_ALL)
    assert made.qm.queue("A").depth == 5


STRUCK = {
    "accept": lambda one, held: one.accept(held),
    "accept in a unit": lambda one, held: one.accept(held, one.begin()),
    "reject": lambda one, held: one.reject(held),
    "release": lambda one, held: one.release(held),
    "deliver": lambda one, held: one.deliver("A", 2),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("call", STRUCK)
def test_row_57_no_memory_at_a_line_of_it_leaves_no_message_that_nobody_can_let_go_of(call: str) -> None:
    base = world()
    base.qm.end()
    n = 0
    while True:
        n += 1 if SOAK else 4
        made = World.__new__(World)
        made.disk, made.clock = base.disk.snapshot(), base.clock
        made.start()
        one = session(made)
        held, _ = one.deliver("A", 2)
        tracer = Tracer(n, MemoryError)
        interrupted(tracer, lambda: STRUCK[call](one, held))  # noqa: B023
        if not tracer.where:
            break  # every line has had its turn
        with contextlib.suppress(Unavailable):
            one.close()
            info = made.qm.queue("A")
            there = len(bodies(made.qm, "A"))
            assert (info.depth, info.uncommitted) == (there, 0), f"line {n}: {tracer.where}"
            continue
        assert made.qm.refusal is not None
    assert n > 20, "the call has lines"


@pytest.mark.interpreted
def test_row_57_where_a_unit_of_a_client_that_is_gone_can_not_be_backed_out_the_rest_of_it_ends() -> None:
    made = world()
    one = session(made)
    one.deliver("A", 2)
    unit = one.begin()
    one.put_later(unit, "B", b"x", {})
    assert not interrupted(Strike(Units.back_out_later.__code__, lambda frame: True), one.close)
    assert len(bodies(made.qm, "A")) == 5
    assert SOMEBODY not in [connection.peer for connection in made.qm.connections()]


@pytest.mark.interpreted
@pytest.mark.parametrize("step", [Session._end, Session._back_out, Sessions.forget, Holder.close, Units.back_out_later])
def test_row_57_no_memory_in_a_step_of_its_end_leaves_nothing_of_a_client(step: FunctionType) -> None:
    for n in range(1, 100):
        made = world()
        one = session(made)
        one.deliver("A", 2)
        one.put_later(one.begin(), "B", b"x", {})
        lines, safe = itertools.count(1), safe_places(step.__code__)
        tracer = Strike(step.__code__, lambda frame: frame.f_lasti not in safe and next(lines) == n)  # noqa: B023
        tracer.kind = MemoryError
        assert interrupted(tracer, one.close), f"line {n}: {tracer.where}"
        assert made.qm.transactions() == [], f"line {n}: {tracer.where}"
        assert (len(bodies(made.qm, "A")), made.qm.queue("B").uncommitted) == (5, 0), f"line {n}: {tracer.where}"
        assert SOMEBODY not in [connection.peer for connection in made.qm.connections()]
        if not tracer.where:
            break  # every line has had its turn
    assert n > 1, "it has lines"
