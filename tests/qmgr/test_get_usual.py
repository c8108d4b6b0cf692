"""The usual get of a unit of work by the short way: as by the long one, to which all else is left."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import Reason, UowState, Xid
from qmgr.entry import LOCKED
from qmgr.logged import never_wait_for_room
from qmgr.units import MAX_AHEAD_BYTES
from recovery.records import GET_COST
from tests.qmgr.test_interrupts import Strike, interrupted
from tests.qmgr.world import Call, World, bodies, reason_of
from tests.sim.loss import LOSE_ALL


def another(unit: qmgr.UnitOfWork, name: Any = "A") -> bytes | None:
    """What the short way gets."""
    message = unit._engine.get_usual(unit._unit, name)
    return None if message is None else message.body


def made(count: int = 5) -> tuple[World, qmgr.UnitOfWork]:
    """A queue with messages in a line, and a unit of work that has got the one before them."""
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
        world.qm.put_many(name, [b"%d" % number for number in range(count)])
    world.qm.define_alias("OF.A", "A")
    unit = world.qm.begin()
    assert unit.get("A").body == b"0"
    return world, unit


def counts(world: World, unit: qmgr.UnitOfWork) -> dict[str, int]:
    """All that a get counts."""
    one, queue = unit._unit, world.qm._engine.state.queues["A"]
    counted = {name: getattr(one, name) for name in ("put_count", "put_bytes", "held_back")}
    return counted | {
        "promise": one.promise - one.ahead,
        "promised": world.qm._engine.log.space.promised - one.ahead,
        "gets": sum(entry.status == LOCKED for _, entry in one.gets),
        "depth": queue.depth,
        "uncommitted": queue.uncommitted,
        "held by": len(unit._engine.state.holding),
    }


def test_it_counts_and_promises_what_the_long_way_does() -> None:
    found = []
    for short in (True, False):
        world, unit = made(20)
        for number in range(1, 15):
            get = unit._engine.get_usual if short else unit._engine.get_first
            message = get(unit._unit, "A")
            assert message is not None
            assert (message.body, message.queue, message.backout_count) == (b"%d" % number, "A", 0)
        found.append(counts(world, unit))
        unit.commit()
        found.append(counts(world, unit))
        world.crash(LOSE_ALL)
        assert bodies(world.qm, "A") == [b"%d" % number for number in range(15, 20)]
    assert found[:2] == found[2:]


def test_what_it_has_got_is_given_back_with_a_higher_backout_count() -> None:
    world, unit = made()
    assert another(unit) == b"1"
    unit.backout()
    assert [(message.body, message.backout_count) for message in world.qm.browse("A")] == [
        *[(b"0", 1), (b"1", 1)],
        *[(b"2", 0), (b"3", 0), (b"4", 0)],
    ]
    world.crash(LOSE_ALL)
    assert [message.backout_count for message in world.qm.browse("A")] == [1, 1, 0, 0, 0]


def inhibited(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.alter_queue("A", get_enabled=False)


def too_many(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.alter(max_uncommitted=1)


def emptied(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.get_many("A", 9)


def ended(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.commit()


def backed_out(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.backout()


def stopped(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.end("immediate")


def damaged(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.state.queues["A"].damage("a segment is gone")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (inhibited, Reason.GET_INHIBITED),
        (too_many, Reason.SYNCPOINT_LIMIT_REACHED),
        (emptied, Reason.NO_MSG_AVAILABLE),
        (damaged, Reason.OBJECT_DAMAGED),
        (ended, None),
        (backed_out, None),
        (stopped, None),
    ],
)
def test_what_has_changed_since_the_last_get_is_heeded(
    change: Callable[[World, qmgr.UnitOfWork], None], reason: Reason | None
) -> None:
    world, unit = made()
    change(world, unit)
    before = counts(world, unit)
    with pytest.raises(qmgr.MQError) as caught:
        unit.get("A")
    assert reason is None or reason_of(caught.value) == reason
    assert counts(world, unit) == before


def no_room_in_the_log(world: World, unit: qmgr.UnitOfWork) -> None:
    space = world.qm._engine.log.space
    space.promised += space.limit - world.qm._engine.log.buffer.tail - space.promised - GET_COST + 1


def no_more_held(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine._max_held_bytes = unit._unit.held_back + GET_COST


def no_more_in_a_unit(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.max_uncommitted = 1


def put_as_well(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.max_uncommitted = 2
    unit.put("B", b"counts too")


def another_thread_logs(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put("B", b"of another")


def refused(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.refusal = qmgr.Unavailable("no more")


def deleted(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.state.queues["A"].retire()  # as its deletion does, which waits for the unit of work


def event_wanted(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.state.queues["A"].arm(2)


def known_by_id(world: World, unit: qmgr.UnitOfWork) -> None:
    assert not list(world.qm.browse("A", message_id=b"none of them"))


def known_by_group(world: World, unit: qmgr.UnitOfWork) -> None:
    with world.qm._engine.lock:
        assert not world.qm._engine.state.queues["A"].index_groups(100)


def higher_priority(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put_many("A", [b"first", b"second"], priority=9)


def fleeting(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put("A", b"behind all", persistent=False)


class Meanwhile:
    """The lock of the log; something happens before it is had for the first time."""

    def __init__(self, lock: Any, happens: Callable[[], None]) -> None:
        self.lock = lock
        self.happens: Callable[[], None] | None = happens
        self.locked = lock.locked

    def __enter__(self) -> None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        self.lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self.lock.release()


@pytest.mark.interpreted  # a compiled class has no other lock
@pytest.mark.parametrize(
    "happens",
    [
        *(no_room_in_the_log, no_more_held, no_more_in_a_unit, put_as_well, refused, deleted),
        *(event_wanted, known_by_id, known_by_group, fleeting, ended, backed_out, inhibited),
    ],
)
def test_what_happens_before_it_has_the_lock_leaves_it_to_the_long_way(
    happens: Callable[[World, qmgr.UnitOfWork], None],
) -> None:
    world, unit = made()
    engine, queue = world.qm._engine, world.qm._engine.state.queues["A"]
    depths: list[int] = []

    def before() -> None:
        engine.lock = lock
        happens(world, unit)
        depths.append(queue.depth)
        engine.lock = meanwhile  # type: ignore[assignment]

    lock = engine.lock
    meanwhile = Meanwhile(lock, before)
    engine.lock = meanwhile  # type: ignore[assignment]
    assert another(unit) is None
    engine.lock = lock
    assert depths == [queue.depth]


@pytest.mark.interpreted
@pytest.mark.parametrize(("happens", "body"), [(another_thread_logs, b"1"), (higher_priority, b"first")])
def test_what_others_log_and_put_before_it_has_the_lock_does_not_hinder_it(
    happens: Callable[[World, qmgr.UnitOfWork], None], body: bytes
) -> None:
    world, unit = made()
    engine = world.qm._engine

    def before() -> None:
        engine.lock = lock
        happens(world, unit)

    lock = engine.lock
    engine.lock = Meanwhile(lock, before)  # type: ignore[assignment]
    assert another(unit) == body
    assert unit._unit.promise == engine.promise_of(unit._unit), "what is logged of it is promised no more"
    unit.commit()
    world.crash(LOSE_ALL)
    assert body not in bodies(world.qm, "A")


def test_what_was_given_back_comes_first() -> None:
    world, unit = made(6)
    other = world.qm.begin()
    assert [other.get("A").body for _ in range(2)] == [b"1", b"2"]
    other.backout()
    assert unit.get("A").body == b"1"
    assert another(unit) is None
    assert [unit.get("A").body for _ in range(3)] == [b"2", b"3", b"4"]


def test_the_backout_count_of_an_earlier_life_is_told() -> None:
    world, unit = made()
    assert another(unit) == b"1"
    unit.backout()
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    unit = world.qm.begin()
    unit.get("A")
    message = unit._engine.get_usual(unit._unit, "A")
    assert message is not None
    assert (message.body, message.backout_count) == (b"1", 1)


def test_no_message_is_told_before_it_is_durable() -> None:
    world, other = made()
    other.commit()
    engine = world.qm._engine
    _, end = engine.put_many_later(None, "A", [b"5"] * 20, {})
    assert engine.log.safe < end
    unit = world.qm.begin()
    assert unit.get("A").body == b"1"
    assert [another(unit) for _ in range(3)] == [b"2", b"3", b"4"]
    assert engine.log.safe < end
    world.qm._engine.state.queues["A"].make_entries(world.qm._engine.state.queues["A"]._lanes[1])
    assert another(unit) == b"5"
    assert engine.log.safe >= end


def test_an_empty_queue_is_told_each_time() -> None:
    world, unit = made(1)
    for _ in range(3):
        with pytest.raises(qmgr.NoMessageAvailable):
            unit.get("A")
    world.qm.put("A", b"another")
    assert unit.get("A").body == b"another"


def test_room_is_promised_for_as_many_gets_as_there_were() -> None:
    world, unit = made(600)
    one, engine = unit._unit, world.qm._engine
    for _ in range(64):
        assert another(unit) is not None
    assert 0 < one.ahead <= one.held_back
    assert one.promise == engine.promise_of(one) + one.ahead
    assert engine.log.space.promised == one.promise
    world.qm.put("B", b"of another, before which all that it has done is logged")
    assert (one.held_back, one.ahead, one.promise) == (0, 0, engine.promise_of(one))
    for _ in range(500):
        unit.get("A")
    assert 0 < one.ahead <= MAX_AHEAD_BYTES
    unit.commit()
    assert (one.ahead, engine.log.space.promised) == (0, 0)


def test_no_more_is_promised_than_is_taken_where_the_log_has_little_room() -> None:
    world, unit = made(100)
    one, engine = unit._unit, world.qm._engine
    engine.log.space.checkpoint_at = engine.log.buffer.tail
    for _ in range(64):
        assert another(unit) is not None
        assert one.ahead == 0


def test_what_is_promised_ahead_does_not_pass_over_the_most_that_a_unit_may_have() -> None:
    world, unit = made(100)
    world.qm.alter(max_uncommitted=40)
    for _ in range(20):
        assert another(unit) is not None
    assert unit._unit.ahead > 0
    for number in range(10):
        unit.put("B", b"%d" % number, persistent=False)
    found = [another(unit) for _ in range(20)]
    assert found[:9] == [b"%d" % number for number in range(21, 30)]
    assert found[9:] == [None] * 11
    with pytest.raises(qmgr.MQError) as caught:
        unit.get("A")
    assert reason_of(caught.value) == Reason.SYNCPOINT_LIMIT_REACHED


def test_it_is_taken_back_where_less_is_allowed() -> None:
    world, unit = made(100)
    for _ in range(40):
        assert another(unit) is not None
    assert unit._unit.ahead > 0
    world.qm.alter(max_uncommitted=30)
    assert another(unit) is None
    assert unit._unit.ahead == 0


def test_it_is_taken_back_before_anybody_else_has_to_give_way() -> None:
    world, unit = made(100)
    for _ in range(40):
        assert another(unit) is not None
    engine, ahead, taken = world.qm._engine, unit._unit.ahead, world.qm.status().checkpoints
    assert ahead > 0
    space = engine.log.space
    space.limit = engine.log.buffer.tail + space.promised  # no room is left

    def reserve() -> None:
        never_wait_for_room()
        with engine.lock:
            engine._reserve(ahead, 0)

    Call(reserve).outcome()
    assert (unit._unit.ahead, world.qm.status().checkpoints) == (0, taken)
    assert another(unit) is None


@pytest.mark.interpreted
def test_what_a_unit_is_promised_while_another_thread_makes_room_for_it_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, unit = made(100)
    world.qm.put_many("B", [b"fleeting"] * 40, persistent=False, priority=9)
    world.qm.alter(max_uncommitted=60)
    engine = world.qm._engine
    space, limit = engine.log.space, engine.log.space.limit

    def lets_go(size: int, promise: int, kept: int = 0) -> None:
        space.limit = limit
        engine.log.changed.unlocked(lambda: [another(unit) for _ in range(29)])
        assert unit._unit.ahead > 0

    monkeypatch.setattr(engine, "_reserve", lets_go)
    space.limit = 0
    assert len(unit.get_many("B", 20)) == 20
    assert len(unit._unit.gets) == 50
    assert unit._unit.ahead == 0
    assert [another(unit) is not None for _ in range(11)] == [True] * 10 + [False]


def test_what_a_put_adds_to_the_outcome_is_promised_whatever_is_promised_ahead() -> None:
    world, unit = made(100)
    for _ in range(40):
        assert another(unit) is not None
    one, engine = unit._unit, world.qm._engine
    assert one.ahead > 200
    assert engine.put_usual(one, "B", b"the first to this queue") is not None
    assert one.promise == engine.promise_of(one) + one.ahead
    unit.commit()


def test_it_has_its_bounds() -> None:
    world, unit = made(5)
    one, engine = unit._unit, world.qm._engine
    engine._max_held_bytes = 60_000
    largest = 0
    for _ in range(300):
        if engine.put_usual(one, "A", bytes(1000)) is None:
            break
        largest = max(largest, one.ahead)
        assert one.held_back + one.ahead < engine._max_held_bytes
    assert MAX_AHEAD_BYTES - 2000 < largest <= MAX_AHEAD_BYTES
    assert one.held_back > engine._max_held_bytes - MAX_AHEAD_BYTES - 2000


def test_another_order_of_delivery_is_heeded_at_once() -> None:
    world = World()
    world.qm.define_queue("A")
    for number in range(4):
        world.qm.put("A", b"low %d" % number, priority=0)
        world.qm.put("A", b"high %d" % number, priority=9)
    unit = world.qm.begin()
    assert another(unit) == b"high 0"
    world.qm.alter_queue("A", delivery_sequence="FIFO")
    assert [unit.get("A").body for _ in range(3)] == [b"low 0", b"low 1", b"high 1"]
    world.qm.alter_queue("A", delivery_sequence="PRIORITY")
    assert [unit.get("A").body for _ in range(3)] == [b"high 2", b"high 3", b"low 2"]


def test_nothing_of_it_is_left_when_the_unit_is_rolled_back_for_room() -> None:
    world, unit = made(100)
    for _ in range(40):
        assert another(unit) is not None
    assert unit._unit.ahead > 0
    engine = world.qm._engine
    with engine.lock:
        engine.make_room_for_end(unit._unit)
        engine.back_out_locked(unit._unit)
    assert (unit._unit.ahead, engine.log.space.promised) == (0, 0)
    assert another(unit) is None
    assert world.qm.queue("A").depth == 100


def test_what_would_not_survive_a_crash_is_left_to_the_long_way() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", b"first", priority=9)
    world.qm.put_many("A", [b"second", b"third"], persistent=False, priority=5)
    unit = world.qm.begin()
    assert unit.get("A").body == b"first"
    assert another(unit) is None
    assert [unit.get("A").body for _ in range(2)] == [b"second", b"third"]
    assert unit._unit.held_back == GET_COST


def test_a_refusal_is_heard_without_the_lock_which_a_forked_child_may_find_taken_for_ever() -> None:
    world, unit = made()
    world.qm._engine.refusal = qmgr.Unavailable("this is a forked child")
    with world.qm._engine.lock:
        thread = threading.Thread(target=lambda: another(unit), daemon=True)
        thread.start()
        thread.join(5.0)
        assert not thread.is_alive()


def test_what_is_not_usual_is_left_to_the_long_way() -> None:
    world, unit = made(20)
    assert another(unit) == b"1"
    assert another(unit, name="OF.A") is None
    assert another(unit, name="B") is None
    assert another(unit, name=["A"]) is None
    world.qm.put("B", b"of another")
    assert another(unit) == b"2"
    prepared = world.qm.begin(Xid(1, b"global", b"branch"))
    assert another(prepared) is None, "more is promised for its end"
    assert prepared.get("A").body == b"3"
    assert another(prepared) is None


@pytest.mark.parametrize("wait", [False, -1, "long"])
def test_a_wait_that_is_none_is_refused_by_a_get_of_many_too(wait: Any) -> None:
    _, unit = made()
    with pytest.raises(qmgr.Mistake):
        unit.get("A", wait=wait)


@pytest.mark.parametrize("delivery", ["PRIORITY", "FIFO"])
def test_it_keeps_the_order_of_any_queue(delivery: str) -> None:
    world = World()
    world.qm.define_queue("A", delivery_sequence=delivery)
    for number in range(60):
        world.qm.put("A", b"%d" % number, priority=number % 2, persistent=number % 5 > 0)
    expected = [message.body for message in world.qm.browse("A")]
    with world.qm.begin() as unit:
        assert [unit.get("A").body for _ in range(60)] == expected
    assert world.qm.queue("A").depth == 0


def test_what_has_expired_is_passed_over() -> None:
    world = World()
    world.qm.define_queue("A")
    for body, expiry in ((b"1", None), (b"2", None), (b"3", 1.0), (b"4", None)):
        world.qm.put("A", body, expiry=expiry)
    unit = world.qm.begin()
    assert unit.get("A").body == b"1"
    assert another(unit) == b"2"
    world.clock.advance(5.0)
    assert another(unit) is None
    assert unit.get("A").body == b"4"


def test_what_was_taken_out_of_the_middle_is_passed_over() -> None:
    world = World()
    world.qm.define_queue("A")
    for body in (b"1", b"2", b"3"):
        world.qm.put("A", body, message_id=body)
    assert world.qm.get("A", message_id=b"2").body == b"2"
    world.qm.alter_queue("A", description="whoever is told of this looks for no ids any more")
    unit = world.qm.begin()
    assert unit.get("A").body == b"1"
    assert another(unit) is None
    assert unit.get("A").body == b"3"


def test_units_of_work_of_which_several_threads_get_lose_nothing() -> None:
    world, unit = made(1000)
    got: list[bytes] = []

    def get() -> None:
        for _ in range(200):
            got.append(unit.get("A").body)

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, got)) == list(range(1, 801))
    unit.backout()
    assert bodies(world.qm, "A") == [b"%d" % number for number in range(1000)]


@pytest.mark.interpreted
def test_an_interrupt_in_the_middle_of_one_stops_the_queue_manager_and_a_restart_has_all_messages() -> None:
    world, unit = made()
    queue = world.qm._engine.state.queues["A"]
    strike = Strike(type(world.qm._engine).get_usual.__code__, lambda frame: queue.depth == 3)
    assert not interrupted(strike, lambda: unit.get("A"))
    assert world.qm.refusal is not None
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"%d" % number for number in range(5)]
    assert unit.state is UowState.ACTIVE
