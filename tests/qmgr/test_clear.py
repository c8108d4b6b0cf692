"""clear_queue: all messages go, whatever stands in the way of getting them."""

from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import values
from qmgr.errors import ObjectInUse, UnknownQueue
from qmgr.ids import BEFORE_ALL
from tests.qmgr.world import World, bodies
from tests.sim.life import Lookout
from tests.sim.loss import LOSE_ALL, mixed
from tests.sim.paging import Counted


def test_persistent_and_other_messages_of_any_priority_go(world: World) -> None:
    for number in range(150):
        world.qm.put("A", b"%d" % number, persistent=number % 3 > 0, priority=number % 10)
    world.qm.put("B", b"stays")
    assert world.qm.clear_queue("A") == 150
    assert world.qm.queue("A").depth == 0
    world.qm.put("A", b"new")
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"new"]
    assert bodies(world.qm, "B") == [b"stays"]
    assert world.qm.clear_queue("A") == 1
    assert world.qm.clear_queue("A") == 0


def test_a_queue_whose_gets_are_disabled_is_cleared_too(world: World) -> None:
    world.qm.put_many("A", [b"1", b"2"])
    world.qm.alter_queue("A", get_enabled=False, put_enabled=False)
    assert world.qm.clear_queue("A") == 2
    world.crash(LOSE_ALL)
    assert world.qm.queue("A").depth == 0


def test_what_came_since_is_not_walked_through(world: World) -> None:
    """It may be much, and the lock is held."""
    world.qm.put_many("A", [b"old"] * 10)
    queue = world.qm._engine.state.queues["A"]
    before = queue.next_sequence
    for _ in range(10):
        world.qm.put_many("A", [b"new"] * 10)
    with world.qm._engine.lock:
        assert [entry.body for entry in queue.after(BEFORE_ALL, before)] == [b"old"] * 10
    [lane] = queue._lanes.values()
    assert len(lane.behind) == 9, "batches that are no entries yet"


def test_messages_that_have_left_memory_go(small_segments: Counted) -> None:
    world = World(ini={"DefaultQBufferSize": "4096", "DefaultPQBufferSize": "4096"})
    world.qm.define_queue("A")
    world.qm.put_many("A", [b"%06d" % number for number in range(2000)])
    world.qm.checkpoint()
    assert world.qm.queue("A").memory < 100_000
    assert world.qm.clear_queue("A") == 2000
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == []


def test_nothing_goes_while_somebody_holds_messages(world: World) -> None:
    world.qm.put_many("A", [b"1", b"2"])
    with world.qm.begin() as unit:
        unit.put("A", b"3")
        with pytest.raises(ObjectInUse, match=r"open units of work \(messages: 1\)"):
            world.qm.clear_queue("A")
        unit.backout()
    with world.qm.begin() as unit:
        assert unit.get("A").body == b"1"
        with pytest.raises(ObjectInUse):
            world.qm.clear_queue("A")
    assert bodies(world.qm, "A") == [b"2"]
    with pytest.raises(UnknownQueue):
        world.qm.clear_queue("NONE")


def test_messages_whose_time_is_over_go_and_count(world: World) -> None:
    world.qm.put("A", b"1", expiry=1)
    world.clock.advance(10)
    assert world.qm.clear_queue("A") == 1


def test_after_a_crash_in_the_middle_the_last_ones_are_still_there(world: World) -> None:
    there = [b"%d" % number for number in range(300)]
    world.qm.put_many("A", there)
    found: list[int] = []

    def look(kind: str, path: str) -> None:
        other = World(start=False)
        other.disk = world.disk.snapshot(mixed(len(found)))
        left = bodies(other.start(), "A")
        assert left == there[len(there) - len(left) :]
        found.append(len(left))

    with Lookout(world.disk, look):
        assert world.qm.clear_queue("A") == 300
    look("", "")
    assert found[0] == 300 and found[-1] == 0


def test_the_result_of_mqsc_can_be_sent() -> None:
    result = World().qm.mqsc("ping qmgr\nrubbish")
    assert values.loads(values.dumps(result)) == result
    assert isinstance(result, qmgr.mqsc.MqscResult)


def meanwhile(world: World, others: Callable[[], object]) -> None:
    """Let others do that as soon as the first messages have been cleared."""
    engine, done = world.qm._engine, []
    before = engine._log_gets

    def log_gets(*given: Any, **named: Any) -> int:
        end = before(*given, **named)
        if not done:
            done.append(None)
            engine.lock.release()
            try:
                others()
            finally:
                engine.lock.acquire()
        return end

    engine._log_gets = log_gets  # type: ignore[method-assign]


@pytest.mark.interpreted
@pytest.mark.parametrize("order", ["PRIORITY", "FIFO"])
def test_what_comes_meanwhile_stays_and_all_that_was_there_goes(world: World, order: str) -> None:
    world.qm.define_queue("Q", delivery_sequence=order)
    world.qm.put_many("Q", [b"old"] * 500, priority=4)
    world.qm.checkpoint()
    world.qm.put_many("Q", [b"old"] * 500, priority=4)

    def others() -> None:
        for priority in (0, 4, 9):
            world.qm.put_many("Q", [b"new"] * 100, priority=priority)
        assert len(world.qm.get_many("Q", 110)) == 110

    meanwhile(world, others)
    removed = world.qm.clear_queue("Q")
    taken_first = 100 if order == "PRIORITY" else 0  # of the new ones
    assert removed == 1000 - (110 - taken_first)
    assert [message.body for message in world.qm.browse("Q")] == [b"new"] * (300 - taken_first)


@pytest.mark.interpreted
def test_a_queue_that_is_defined_anew_meanwhile_is_left_alone(world: World) -> None:
    world.qm.define_queue("Q")
    world.qm.put_many("Q", [b"old"] * 500)

    def others() -> None:
        world.qm.delete_queue("Q", purge=True)
        world.qm.define_queue("Q")
        world.qm.put_many("Q", [b"new"] * 100)

    meanwhile(world, others)
    with pytest.raises(qmgr.UnknownQueue, match="was deleted while it was being cleared"):
        world.qm.clear_queue("Q")
    assert world.qm.queue("Q").depth == 100


@pytest.mark.interpreted
def test_a_queue_that_is_recreated_meanwhile_is_cleared_all_the_same() -> None:
    world = World(log_type="linear", log_primary_files=10)
    world.qm.define_queue("Q")
    world.qm.put_many("Q", [b"old"] * 500)
    world.qm.record_image()
    meanwhile(world, lambda: world.qm.recreate("Q"))
    assert world.qm.clear_queue("Q") == 500
    assert world.qm.queue("Q").depth == 0


@pytest.mark.interpreted
def test_an_order_of_delivery_that_is_altered_meanwhile_leaves_nothing(world: World) -> None:
    world.qm.define_queue("Q", delivery_sequence="PRIORITY")
    for priority in (0, 9, 4):
        world.qm.put_many("Q", [b"old"] * 200, priority=priority)

    def others() -> None:
        world.qm.put_many("Q", [b"new"] * 100, priority=9)
        world.qm.alter_queue("Q", delivery_sequence="FIFO")

    meanwhile(world, others)
    assert world.qm.clear_queue("Q") == 600
    assert bodies(world.qm, "Q") == [b"new"] * 100


@pytest.mark.interpreted
def test_a_unit_of_work_that_gets_one_meanwhile_has_it_and_the_rest_goes(world: World) -> None:
    world.qm.define_queue("Q")
    world.qm.put_many("Q", [b"%d" % number for number in range(500)])
    units: list[qmgr.UnitOfWork] = []

    def others() -> None:
        units.append(world.qm.begin())
        units[0].get("Q")

    meanwhile(world, others)
    assert world.qm.clear_queue("Q") == 499
    units[0].backout()
    world.crash()
    assert bodies(world.qm, "Q") == [b"64"]


@pytest.mark.interpreted
def test_a_queue_that_is_found_damaged_meanwhile_is_left_as_it_is(world: World) -> None:
    world.qm.put_many("A", [b"old"] * 500)
    meanwhile(world, lambda: world.qm._engine.state.queues["A"].damage("a segment is gone"))
    with pytest.raises(qmgr.Damaged, match="a segment is gone"):
        world.qm.clear_queue("A")
    assert world.qm.queue("A").damaged == "a segment is gone"
    with pytest.raises(qmgr.Damaged, match="a segment is gone"):
        world.qm.clear_queue("A")
