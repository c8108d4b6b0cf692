"""clear_queue: all messages go, whatever stands in the way of getting them."""

import pytest

import qmgr
from qmgr import values
from qmgr.errors import ObjectInUse, UnknownQueue
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
