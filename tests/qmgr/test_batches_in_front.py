"""Batches at the front of a queue that are got whole, or their first messages: none of them becomes an entry."""

import random
from collections import Counter
from typing import Any

import pytest

import qmgr
from qmgr import queue as queue_module
from qmgr.batch import Batch
from qmgr.entry import GONE, OVERHEAD, Entry
from qmgr.queue import Queue
from recovery.uows import UowState
from tests.conftest import SOAK
from tests.qmgr.world import World, bodies
from tests.sim.loss import LOSE_ALL
from tests.sim.paging import Counted


class Parts(Counter[str]):
    """What was got so, counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        take = Queue.take_batches

        def counting(queue: Queue, parts: list[Any]) -> None:
            self["gets"] += 1
            self["several"] += len(parts) > 1
            self["a part"] += parts[-1][1] < parts[-1][0].count
            self["in a segment"] += any(batch.segment for batch, _ in parts)
            take(queue, parts)

        patch.setattr(Queue, "take_batches", counting)


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
    assert parts == {"gets": 2, "several": 1, "a part": 2, "in a segment": 0}
    assert queue.depth == 15
    assert queue.held[1] == held(queue)
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
    assert parts == {"gets": 1, "several": 1, "a part": 1, "in a segment": 1}
    assert segment.gone_count == 27
    assert lane.placed == sum(item.weight for item in lane.behind if isinstance(item, Batch))
    size = segment.gone_bytes
    assert got(world, 13) == numbers(27, 13)
    assert lane.placed == queue.held[1] == 0
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


@pytest.mark.interpreted
def test_while_groups_are_learnt_each_message_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(monkeypatch)
    world, queue = world_with()
    for first in (0, 10):
        world.qm.put_many("A", numbers(first, 10))
    with world.qm._engine.lock:
        assert queue.gather(1)
    assert got(world, 10) == numbers(0, 10)
    assert got(world, 5) == numbers(10, 5)
    assert parts == {}


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
    monkeypatch.setattr(queue_module, "FEWEST", 2)
    monkeypatch.setattr(queue_module, "MOST", 9)
    parts = Parts(monkeypatch)
    for seed in range(400 if SOAK else 25):
        one_life(random.Random(seed), delivery, deep)
    assert min(parts[what] for what in ("gets", "several", "a part")) > 20
    assert deep or parts["in a segment"] > 20


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
            assert queue.held[1] == held(queue)
        for lane in queue._lanes.values():
            assert lane.placed == sum(one.weight for one in lane.behind if isinstance(one, Batch) and one.segment)
    if unit is not None:
        unit.backout()
        there = sorted(there + locked)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [body for *_, body in there]
