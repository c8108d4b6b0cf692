"""Gets that meet many messages whose time is over: others have their turn, and nothing is missed behind them."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

import qmgr
from qmgr import Reason
from qmgr.engine import Engine
from tests.qmgr.world import World, bodies

MANY = 4500  # some times as many as a get looks at before others have the lock
Way = Callable[[qmgr.QueueManager], list[bytes]]


def one(qm: qmgr.QueueManager) -> list[bytes]:
    return [qm.get("A").body]


def several(qm: qmgr.QueueManager) -> list[bytes]:
    return [message.body for message in qm.get_many("A", 3)]


def by_id(qm: qmgr.QueueManager) -> list[bytes]:
    return [qm.get("A", correlation_id=b"c").body]


def in_a_unit(qm: qmgr.QueueManager) -> list[bytes]:
    with qm.begin() as unit:
        return [unit.get("A").body]


WAYS = [one, several, by_id, in_a_unit]


@pytest.fixture(params=["in memory", "in segments"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Many messages whose time is over, and one behind them."""
    world = World(log_file_pages=512)
    qm = world.qm
    for name in ("A", "B"):
        qm.define_queue(name, buffer_size=2000 if request.param == "in segments" else None)
    for _ in range(MANY // 100):
        qm.put_many("A", [b"over"] * 100, expiry=10, correlation_id=b"c")
    qm.put("A", b"stays", correlation_id=b"c")
    qm.checkpoint()
    world.clock.advance(11)
    yield world
    world.qm.end("immediate")


def meanwhile(world: World, do: Callable[[], object]) -> list[int]:
    """`do` it whenever others may have their turn; the depths of the queue then."""
    depths: list[int] = []

    def others() -> None:
        if world.qm._engine.lock.locked():  # a checkpoint, with its own turns
            return
        depths.append(world.qm.queue("A").depth)
        do()

    world.clock.give_way = others  # type: ignore[method-assign]
    return depths


def alone(world: World) -> None:
    world.clock.give_way = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize("way", WAYS)
def test_others_have_the_lock_while_they_go(world: World, way: Way) -> None:
    qm = world.qm
    depths = meanwhile(world, lambda: qm.put("B", b"meanwhile"))
    assert way(qm) == [b"stays"]
    assert len(set(depths)) > 2 and depths == sorted(depths, reverse=True), "they go while it looks"
    assert max(before - after for before, after in pairwise([MANY + 1, *depths])) < 2000
    assert qm.queue("A").depth == 0
    assert len(bodies(qm, "B")) == len(depths)
    alone(world)
    world.crash()
    assert bodies(world.qm, "A") == []


@pytest.mark.parametrize("way", WAYS)
def test_what_others_change_meanwhile_counts(world: World, way: Way) -> None:
    qm = world.qm
    depths = meanwhile(world, lambda: qm.alter_queue("A", get_enabled=False))
    with pytest.raises(qmgr.MQError) as refused:
        way(qm)
    assert refused.value.reason == Reason.GET_INHIBITED
    assert depths, "it was altered while the get was under way"
    alone(world)
    qm.alter_queue("A", get_enabled=True)
    assert way(qm) == [b"stays"]


def test_a_unit_that_is_ended_meanwhile_gets_nothing(world: World) -> None:
    unit = world.qm.begin()
    meanwhile(world, unit.backout)
    with pytest.raises(qmgr.UnitOfWorkEnded):
        unit.get("A")
    assert bodies(world.qm, "A") == [b"stays"]


@pytest.mark.interpreted
@pytest.mark.parametrize("way", WAYS)
def test_where_the_log_has_no_room_for_saying_so_it_looks_behind_them(
    world: World, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def no_room(self: Engine, queue: object, entries: list[object], kept: int = 0) -> bool:
        looked.append(len(entries))
        return False

    monkeypatch.setattr(Engine, "expire_locked", no_room)
    assert way(world.qm) == [b"stays"]
    assert sum(looked) < 4 * MANY, "it looks at twice as many each time, not at a few more"
    assert world.qm.queue("A").depth == MANY
