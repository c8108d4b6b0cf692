"""A get by id goes the way of the usual get; what is more than that goes the long way, and finds the same."""

import random
from typing import Any

import pytest

import qmgr
from qmgr.engine import Engine
from qmgr.verbs import wanted
from tests.qmgr.world import World, bodies
from tests.sim.loss import LOSE_ALL
from tests.sim.paging import Counted

SMALL_BUFFERS = {"DefaultQBufferSize": "4096", "DefaultPQBufferSize": "4096"}
KEYS = [bytes([number]) * 24 for number in range(1, 7)]


def short(qm: qmgr.QueueManager, **ids: bytes) -> bytes | None:
    """What the short way gets, outside a unit of work."""
    message = qm._engine.get_first(None, "A", wanted(ids))  # type: ignore[arg-type]
    return None if message is None else message.body


def test_what_it_takes_and_what_it_leaves_alone() -> None:
    world = World()
    qm = world.qm
    qm.define_queue("A")
    ours = qm.put("A", b"0", correlation_id=KEYS[0])
    qm.put("A", b"1", correlation_id=KEYS[1])
    qm.put("A", b"2", correlation_id=KEYS[1], group_id=KEYS[2])
    qm.put("A", b"not logged", correlation_id=KEYS[3], persistent=False)
    qm.put("A", b"over soon", correlation_id=KEYS[4], expiry=1.0)
    assert short(qm, correlation_id=KEYS[5]) is None
    assert short(qm, correlation_id=KEYS[3]) is None
    assert short(qm, correlation_id=KEYS[4]) is None
    assert short(qm, message_id=ours.message_id, correlation_id=KEYS[1]) is None
    assert qm.queue("A").depth == 5
    assert short(qm, message_id=ours.message_id, correlation_id=KEYS[0]) == b"0"
    assert short(qm, group_id=KEYS[2]) == b"2"
    assert short(qm, correlation_id=KEYS[1]) == b"1"
    assert qm.get("A", correlation_id=KEYS[3]).body == b"not logged"
    world.clock.advance(2)
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A", correlation_id=KEYS[4])
    assert qm.queue("A").depth == 0
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == []


def test_where_segments_have_to_be_read_first_that_is_left_to_the_long_way(small_segments: object) -> None:
    world = World(ini=SMALL_BUFFERS)
    world.qm.define_queue("A")
    for key in KEYS:
        world.qm.put("A", bytes(2000) + key, correlation_id=key)
    world.restart()
    assert short(world.qm, correlation_id=KEYS[3]) is None
    assert world.qm.get("A", correlation_id=KEYS[3]).body[2000:] == KEYS[3]
    found = short(world.qm, correlation_id=KEYS[4])
    assert found is not None and found[2000:] == KEYS[4]


@pytest.mark.interpreted  # a compiled class keeps its methods
@pytest.mark.parametrize("seed", range(10))
def test_both_ways_find_the_same(seed: int, small_segments: object, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[Any]] = []
    for long in (False, True):
        with monkeypatch.context() as patch:
            if long:
                patch.setattr(Engine, "get_first", lambda *args: None)
            told.append(life(random.Random(seed)))
    assert told[0] == told[1]
    assert sum(isinstance(one, bytes) for one in told[0]) > 20


def life(rng: random.Random) -> list[Any]:
    """Puts and gets in and out of units of work, with checkpoints, restarts and crashes: all that callers heard."""
    world, heard, count = World(ini=SMALL_BUFFERS), [], 0
    world.qm.define_queue("A")
    unit = world.qm.begin()
    for _ in range(150):
        key, way, inside = rng.choice(KEYS), rng.random(), rng.random() < 0.5
        if way < 0.5:
            count += 1
            options: dict[str, Any] = {"correlation_id": key, "priority": rng.choice((0, 0, 5))}
            options |= rng.choice(
                ({}, {}, {}, {"persistent": False}, {"expiry": rng.randint(1, 20)}, {"group_id": key})
            )
            (unit if inside else world.qm).put("A", b"%d" % count + bytes(rng.randint(0, 300)), **options)
        elif way < 0.9:
            ids = rng.choice(({"correlation_id": key}, {"correlation_id": key, "group_id": key}, {"group_id": key}))
            try:
                message = (unit if inside else world.qm).get("A", **ids)
                heard += [message.body, message.backout_count, message.expiry]
            except qmgr.NoMessageAvailable:
                heard.append(None)
            world.clock.advance(rng.random())
        elif way < 0.94:
            world.qm.checkpoint()
        elif way < 0.97:
            unit.commit() if inside else unit.backout()
            unit = world.qm.begin()
        else:
            world.restart() if inside else world.crash(LOSE_ALL)
            unit = world.qm.begin()
        heard.append(world.qm.queue("A").depth)
    unit.backout()
    return [*heard, *(message.body for message in world.qm.get_many("A", 200)), world.qm.queue("A").depth]


def paged(**options: Any) -> World:
    """Messages that segments have and memory does not, of each id one; the index is made."""
    world = World(ini=SMALL_BUFFERS)
    world.qm.define_queue("A")
    for number in range(40):
        world.qm.put("A", bytes(500) + b"%d" % number, correlation_id=bytes([number + 1]) * 24, **options)
    with world.qm.begin() as unit:
        unit.get_many("A", 40)
        unit.backout()
    world.restart()
    assert not list(world.qm.browse("A", correlation_id=b"none"))
    return world


def test_one_that_memory_does_not_hold_is_counted_no_more(small_segments: Counted) -> None:
    world = paged(expiry=1000.0)
    queue = world.qm._engine.state.queues["A"]
    before = queue.expiring, len(dict(queue.backed_out[1].items()))
    assert before == (40, 40)
    for number in (39, 30):
        assert world.qm.get("A", correlation_id=bytes([number + 1]) * 24).backout_count == 1
    assert small_segments.calls["_take_paged"] >= 2
    assert (queue.expiring, len(dict(queue.backed_out[1].items())), queue.depth) == (38, 38, 38)
    assert len(world.qm.get_many("A", 50)) == 38
    assert (queue.expiring, len(dict(queue.backed_out[1].items())), queue.depth) == (0, 0, 0)


def test_none_is_got_by_id_where_gets_are_inhibited(small_segments: object) -> None:
    world = paged()
    world.qm.alter_queue("A", get_enabled=False)
    for by in (world.qm, world.qm.begin()):
        with pytest.raises(qmgr.Inhibited):
            by.get("A", correlation_id=bytes([40]) * 24)
    world.qm.alter_queue("A", get_enabled=True)
    assert world.qm.get("A", correlation_id=bytes([40]) * 24).body[500:] == b"39"


def test_one_in_memory_comes_before_paged_ones_of_the_same_id(small_segments: object) -> None:
    world = paged()
    world.qm.put("A", b"in memory", correlation_id=bytes([40]) * 24, priority=5)
    found = [world.qm.get("A", correlation_id=bytes([40]) * 24).body[-9:] for _ in range(2)]
    assert found == [b"in memory", bytes(7) + b"39"]


def test_what_more_is_asked_for_than_an_id_goes_the_long_way() -> None:
    world = World()
    for name in ("A", "BACK"):
        world.qm.define_queue(name)
    world.qm.alter_queue("A", backout_threshold=1, backout_queue="BACK")
    for body, key in ((b"poison", KEYS[0]), (b"sound", KEYS[0])):
        world.qm.put("A", body, correlation_id=key)
    with world.qm.begin() as unit:
        assert unit.get("A", correlation_id=KEYS[0]).body == b"poison"
        unit.backout()
    assert world.qm.get("A", correlation_id=KEYS[0], backout_requeue=True).body == b"sound"
    assert bodies(world.qm, "BACK") == [b"poison"]
    with pytest.raises(qmgr.Mistake, match="logical order"):
        world.qm.get("A", logical_order=True)
