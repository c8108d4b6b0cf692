"""What lies at the front of a queue is got as it lies: batches, blocks of segments; none of it becomes an entry."""

import random
from collections import Counter
from typing import Any

import pytest

import qmgr
from qmgr import batch as batch_module
from qmgr.batch import Batch
from qmgr.entry import GONE, OVERHEAD, Entry
from qmgr.front import Front
from qmgr.queue import Queue
from recovery.uows import UowState
from tests.conftest import SOAK
from tests.qmgr.test_interrupts import Strike, interrupted
from tests.qmgr.world import World, bodies
from tests.sim.loss import LOSE_ALL
from tests.sim.paging import Counted


class Parts(Counter[str]):
    """What was got so, counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        take = Queue.take_front

        def counting(queue: Queue, front: Front) -> None:
            self["gets"] += 1
            self["entries"] += bool(front.entries)
            for part in front.parts:
                batch, count = part.batch, len(part.heads)
                self["blocks" if batch is None else "batches"] += 1
                self["a part"] += batch is not None and count < batch.count
                self["in a segment"] += batch is not None and batch.segment > 0
            take(queue, front)

        patch.setattr(Queue, "take_front", counting)


def world_with(**attributes: Any) -> tuple[World, Queue]:
    world = World()
    world.qm.define_queue("A", **attributes)
    return world, world.qm._engine.state.queues["A"]


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def got(world: World, limit: int) -> list[bytes]:
    return [message.body for message in world.qm.get_many("A", limit)]


def held(queue: Queue) -> int:
    """Bytes of memory that persistent messages take, counted anew."""
    size = 0
    for lane in queue._lanes.values():
        seen: dict[int, Entry] = {id(entry): entry for entry in lane.all() if entry.status != GONE}
        if lane.persistent:
            size += sum(len(entry.head) + len(entry.body) + OVERHEAD for entry in seen.values())
            for item in lane.behind:
                size += item.weight if isinstance(item, Batch) else sum(len(e.head) + len(e.body) + 400 for e in item)
    return size


@pytest.mark.interpreted
def test_they_are_got_in_their_order_whole_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch)
    world, queue = world_with()
    for first in range(0, 60, 20):
        world.qm.put_many("A", numbers(first, 20))
    assert got(world, 5) == numbers(0, 5)
    assert got(world, 40) == numbers(5, 40)
    assert +parts == {"gets": 2, "batches": 4, "a part": 2}
    assert queue.depth == 15
    assert queue.memory_bytes[1] == held(queue)
    world.crash(LOSE_ALL)
    assert got(world, 6) == numbers(45, 6)
    world.qm.checkpoint()
    assert got(world, 2) == numbers(51, 2)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == numbers(53, 7)


@pytest.mark.interpreted
def test_those_that_a_segment_has_are_gone_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch)
    world, queue = world_with(buffer_size=1 << 20)
    world.qm.put_many("A", numbers(0, 20))
    world.qm.put_many("A", numbers(20, 20))
    world.qm.checkpoint()
    [segment] = queue.segments.values()
    [lane] = queue._lanes.values()
    assert got(world, 27) == numbers(0, 27)
    assert +parts == {"gets": 1, "batches": 2, "a part": 1, "in a segment": 2}
    assert segment.gone_count == 27
    assert lane.placed == sum(item.weight for item in lane.behind if isinstance(item, Batch))
    size = segment.gone_bytes
    assert got(world, 13) == numbers(27, 13)
    assert lane.placed == queue.memory_bytes[1] == 0
    assert segment.gone_count == 40
    assert size < segment.gone_bytes <= segment.gone_bytes + segment.live_bytes
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == []


def test_what_was_got_is_told_when_it_is_durable_and_not_before() -> None:
    world, _ = world_with()
    engine = world.qm._engine
    _, end = engine.put_many_later(None, "A", numbers(0, 10), {})
    assert engine.log.safe < end
    assert got(world, 4) == numbers(0, 4)
    assert engine.log.safe > end


def a_single_one(world: World, queue: Queue) -> None:
    assert world.qm.get("A").body == b"0"
    world.qm.put("A", b"0", priority=9)


def given_back(world: World, queue: Queue) -> None:
    with world.qm.begin() as unit:
        assert unit.get("A").body == b"0"
        unit.backout()


def looked_at(world: World, queue: Queue) -> None:
    assert len(list(world.qm.browse("A"))) == 20


def known_by_id(world: World, queue: Queue) -> None:
    assert not list(world.qm.browse("A", message_id=b"none of them"))


def fleeting(world: World, queue: Queue) -> None:
    world.qm.put("A", b"behind all", persistent=False)


def in_a_checkpoint(world: World, queue: Queue) -> None:
    queue.begin_snapshot()


def low(world: World, queue: Queue) -> None:
    queue.arm(2)


@pytest.mark.interpreted
@pytest.mark.parametrize("happens", [a_single_one, given_back, looked_at, known_by_id, fleeting, in_a_checkpoint, low])
def test_what_is_not_usual_goes_the_long_way(happens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch)
    world, queue = world_with(default_priority=4)
    world.qm.put_many("A", numbers(0, 20))
    happens(world, queue)
    assert got(world, 7) == numbers(0, 7)
    assert parts == {}
    assert queue.depth == (14 if happens is fleeting else 13)


@pytest.mark.parametrize("locked", [False, True])
def test_what_stands_before_batches_and_can_not_be_got_is_passed_over(locked: bool) -> None:
    """A message whose time is over, and others behind it that a unit of work has got meanwhile."""
    world, _ = world_with()
    world.qm.put("A", b"late", expiry=1.0)
    if locked:
        world.qm.put("A", b"locked")
    world.qm.put_many("A", numbers(0, 20))
    world.clock.advance(2)
    unit = world.qm.begin()
    if locked:
        assert unit.get("A").body == b"locked"
    assert got(world, 7) == numbers(0, 7)
    unit.backout()
    assert bodies(world.qm, "A") == [b"locked"] * locked + numbers(7, 13)


@pytest.mark.interpreted
def test_while_groups_are_learnt_each_message_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch)
    world, queue = world_with()
    for first in (0, 10):
        world.qm.put_many("A", numbers(first, 10))
    with world.qm._engine.lock:
        assert queue.index_groups(1)
    assert got(world, 10) == numbers(0, 10)
    assert got(world, 5) == numbers(10, 5)
    assert parts == {}


def deep(count: int = 60) -> tuple[World, Queue, list[qmgr.Message]]:
    """A queue of which only segments have the messages, a few in each block."""
    world, queue = world_with(buffer_size=1)
    put = world.qm.put_many("A", numbers(0, count))
    world.qm.checkpoint()
    [lane] = queue._lanes.values()
    assert lane.paged == count
    return world, queue, put


@pytest.mark.interpreted
def test_blocks_are_got_in_parts_and_no_message_becomes_an_entry(
    small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(monkeypatch)
    world, queue, put = deep()
    first = world.qm.get_many("A", 7)
    assert [(m.body, m.message_id, m.put_time, m.backout_count) for m in first] == [
        (m.body, m.message_id, m.put_time, 0) for m in put[:7]
    ]
    assert got(world, 13) == numbers(7, 13)
    [lane] = queue._lanes.values()
    assert (lane.paged, len(lane.line), queue.depth, queue.memory_bytes[1]) == (40, 0, 40, 0)
    assert +parts == {"gets": 2, "blocks": parts["blocks"]}
    assert sum(segment.gone_count for segment in queue.segments.values()) == 20
    world.crash(LOSE_ALL)
    assert got(world, 30) == numbers(20, 30)
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == numbers(50, 10)


@pytest.mark.interpreted
def test_a_block_of_which_one_is_gone_or_was_backed_out_goes_the_long_way(
    small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(monkeypatch)
    world, _, put = deep()
    assert world.qm.get("A", message_id=put[3].message_id).body == b"3"
    assert got(world, 8) == [b"0", b"1", b"2", *numbers(4, 5)]
    assert parts == {}
    world, queue, _ = deep()
    with world.qm.begin() as unit:
        assert unit.get("A").body == b"0"
        unit.backout()
    world.qm.checkpoint()
    assert queue.backed_out[1]
    found = world.qm.get_many("A", 8)
    assert [(message.body, message.backout_count) for message in found] == [
        (b"%d" % number, int(number == 0)) for number in range(8)
    ]
    assert parts == {}


def test_a_block_of_which_a_unit_of_work_holds_some_goes_the_long_way(small_segments: Counted) -> None:
    world, queue = world_with(buffer_size=1)
    world.qm.put_many("A", numbers(0, 60))
    holder, other = world.qm.begin(), world.qm.begin()
    assert len(other.get_many("A", 20)) == 20
    assert [message.body for message in holder.get_many("A", 20)] == numbers(20, 20)
    other.backout()
    for _ in range(2):
        world.qm.checkpoint()
    [lane] = queue._lanes.values()
    assert (lane.paged, len(lane.line)) == (40, 0)
    found: list[bytes] = []
    while some := got(world, 10):
        found += some
    assert found == [*numbers(0, 20), *numbers(40, 20)]
    holder.backout()
    assert bodies(world.qm, "A") == numbers(20, 20)


@pytest.mark.interpreted
def test_a_few_messages_of_a_large_block_become_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch)
    world, queue, _ = deep()
    [segment] = queue.segments.values()
    assert [block.cells for block in segment.blocks[0]] == [60]
    assert got(world, 14) == numbers(0, 14)
    assert parts == {}
    assert got(world, 46) == numbers(14, 46)


def test_a_block_that_can_not_be_believed_makes_the_queue_a_damaged_one(small_segments: Counted) -> None:
    world, queue, _ = deep()
    [number, *_] = queue.segments
    path = queue.reader.path(queue.segments[number])
    world.disk.poke(path, world.disk.peek(path)[:-9].ljust(len(world.disk.peek(path)), b"?"))
    with pytest.raises(qmgr.Damaged):
        while got(world, 10):
            pass
    assert queue.damaged


@pytest.mark.interpreted
@pytest.mark.parametrize("line", range(1, 9))
def test_an_interrupt_while_the_lane_is_looked_for_leaves_no_other_one(line: int) -> None:
    world, _ = world_with()
    world.qm.put_many("A", numbers(0, 20))
    assert got(world, 4) == numbers(0, 4)
    world.qm.put_many("A", numbers(100, 10), priority=5)
    left = iter(range(line - 1, -1, -1))
    strike = Strike(Queue._find_foremost.__code__, lambda frame: next(left) == 0)
    assert not interrupted(strike, lambda: got(world, 5))
    assert got(world, 5) == numbers(100, 5)
    assert got(world, 5) == numbers(105, 5)
    assert got(world, 5) == numbers(4, 5)


@pytest.mark.interpreted
@pytest.mark.parametrize("line", range(1, 9))
def test_nor_one_of_lanes_that_have_messages_again(line: int) -> None:
    world, _ = world_with()
    for first in (0, 20):
        world.qm.put_many("A", numbers(first, 20))
    world.qm.put_many("A", numbers(100, 10), priority=5)
    assert got(world, 10) == numbers(100, 10)
    assert world.qm.get("A").body == b"0"
    left = iter(range(line - 1, -1, -1))
    strike = Strike(Queue._find_foremost.__code__, lambda frame: next(left) == 0)
    assert not interrupted(strike, lambda: got(world, 30))
    world.qm.put_many("A", numbers(200, 10), priority=5)
    assert got(world, 25) == numbers(200, 10) + numbers(1, 15)


@pytest.mark.interpreted
def test_nothing_is_read_where_messages_are_lacking(small_segments: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit of work has put some, so that there are fewer than the depth says."""
    world, queue, _ = deep()
    unit = world.qm.begin()
    unit.put_many("A", numbers(60, 10))

    def reads(*of: object) -> None:
        raise AssertionError

    monkeypatch.setattr(queue.reader, "read_block", reads)
    assert queue.front(70) is None
    monkeypatch.undo()
    assert got(world, 70) == numbers(0, 60)


def test_get_disabled_is_heeded() -> None:
    world, _ = world_with()
    world.qm.put_many("A", numbers(0, 20))
    world.qm.alter_queue("A", get_enabled=False)
    with pytest.raises(qmgr.Inhibited):
        world.qm.get_many("A", 5)
    assert world.qm.queue("A").depth == 20


@pytest.mark.interpreted
@pytest.mark.parametrize("delivery", ["PRIORITY", "FIFO"])
@pytest.mark.parametrize("deep", [False, True])
def test_random_lives(delivery: str, deep: bool, small_segments: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MIN_MESSAGES", 2)
    monkeypatch.setattr(batch_module, "MAX_MESSAGES", 9)
    parts = Parts(monkeypatch)
    for seed in range(400 if SOAK else 11):
        one_life(random.Random(seed), delivery, deep)
    assert parts["gets"] > 100
    assert parts["blocks" if deep else "in a segment"] > 20
    assert min(parts["a part"], parts["entries"]) > 20


def one_life(rng: random.Random, delivery: str, deep: bool) -> None:
    """Puts and gets of many, some of one, checkpoints and crashes, beside a list of what is there."""
    world, queue = world_with(delivery_sequence=delivery, buffer_size=2000 if deep else 1 << 20)
    there: list[tuple[int, int, bytes]] = []  # as they are to come
    count = 0
    higher = rng.random() < 0.3
    unit: qmgr.UnitOfWork | None = None
    locked: list[tuple[int, int, bytes]] = []
    for _ in range(120):
        way = rng.random()
        if way < 0.3:
            several = numbers(count, rng.randint(1, 20))
            priority = rng.choice((0, 0, 0, 5)) if higher else 0
            world.qm.put_many("A", several, priority=priority)
            rank = 0 if delivery == "FIFO" else -priority
            there += [(rank, number, body) for number, body in enumerate(several, count)]
            there.sort()
            count += len(several)
        elif way < 0.7:
            limit = rng.choice((2, 5, 10, 30))
            found = got(world, limit)
            assert found == [body for *_, body in there[: len(found)]]
            assert len(found) == min(limit, len(there)) or (deep and found)
            del there[: len(found)]
        elif way < 0.75 and there:
            assert world.qm.get("A").body == there.pop(0)[2]
        elif way < 0.82 and there and unit is None:
            unit = world.qm.begin()
            locked = there[: len(unit.get_many("A", rng.randint(1, 6)))]
            del there[: len(locked)]
        elif way < 0.9 and unit is not None:
            if rng.random() < 0.5 and unit.state is UowState.ACTIVE:
                unit.commit()
            else:
                unit.backout()
                there = sorted(there + locked)
            unit, locked = None, []
        elif way < 0.96:
            world.qm.checkpoint()
        else:
            world.crash(LOSE_ALL)
            queue = world.qm._engine.state.queues["A"]
            there, locked, unit = sorted(there + locked), [], None
        assert queue.depth == len(there)
        if not deep and not locked:
            assert queue.memory_bytes[1] == held(queue)
        for lane in queue._lanes.values():
            assert lane.placed == sum(one.weight for one in lane.behind if isinstance(one, Batch) and one.segment)
    if unit is not None:
        unit.backout()
        there = sorted(there + locked)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [body for *_, body in there]
