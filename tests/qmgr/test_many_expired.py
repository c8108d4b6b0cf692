"""Gets that meet many messages whose time is over: others have their turn, and nothing is missed behind them."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

import qmgr
from qmgr import Reason
from qmgr.engine import Engine
from tests.qmgr.world import World, bodies, ending

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


def behind_poison(qm: qmgr.QueueManager) -> list[bytes]:
    """It looks first for what was backed out too often."""
    qm.alter_queue("A", backout_threshold=3, backout_queue="B")
    return [qm.get("A", backout_requeue=True).body]


WAYS = [one, several, by_id, in_a_unit]
LOOKS = dict.fromkeys(WAYS, 1) | {behind_poison: 2}  # at all that is on the queue


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


@pytest.mark.parametrize("way", LOOKS)
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


@pytest.mark.parametrize("way", LOOKS)
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
@pytest.mark.parametrize("way", LOOKS)
def test_where_the_log_has_no_room_for_saying_so_it_looks_behind_them(
    world: World, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []

    def no_room(self: Engine, queue: object, entries: list[object], kept: int = 0) -> bool:
        looked.append(len(entries))
        return False

    monkeypatch.setattr(Engine, "expire_locked", no_room)
    assert way(world.qm) == [b"stays"]
    assert sum(looked) < 4 * MANY * LOOKS[way], "it looks at twice as many each time, not at a few more"
    assert world.qm.queue("A").depth == MANY


@pytest.mark.interpreted
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_removed_behind_the_last_checkpoint_of_an_end_in_order(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who found no room in the log buffer for saying so said it when there was some: the log had a record then from
    after the end, and what that had kept of non-persistent messages was lost."""
    world = World()
    qm = world.qm
    qm.define_queue("H", non_persistent_class="HIGH")
    qm.put("H", b"kept", persistent=False)
    qm.define_queue("A")
    qm.put_many("A", [b"over"] * 3, expiry=10, correlation_id=b"c")
    world.clock.advance(11)
    go_on: list[Callable[[], None]] = []
    remove = Engine.expire_locked

    def expire_locked(self: Engine, *said: Any, **more: int) -> bool:
        reserve = self.log.reserve

        def waits(*said: int) -> bool:
            self.log.changed.unlocked(lambda: go_on.append(ending(world)))
            return reserve(*said)

        with monkeypatch.context() as patch:
            patch.setattr(self.log, "reserve", waits)
            return remove(self, *said, **more)

    monkeypatch.setattr(Engine, "expire_locked", expire_locked)
    with pytest.raises(qmgr.MQError):
        way(qm)
    assert len(go_on) == 1
    go_on[0]()
    monkeypatch.undo()
    world.start()
    assert bodies(world.qm, "H") == [b"kept"]
    assert world.qm.queue("A").depth == 3


@pytest.mark.parametrize("kind", ["in memory", "in segments"])
def test_a_browse_removes_nothing_behind_the_last_checkpoint_of_an_end_in_order(kind: str) -> None:
    world = World()
    qm = world.qm
    qm.define_queue("H", non_persistent_class="HIGH")
    qm.put("H", b"kept", persistent=False)
    qm.define_queue("A", buffer_size=2000 if kind == "in segments" else None)
    qm.put_many("A", [b"stays"] * 100)  # more than a browse looks at at once
    qm.put_many("A", [b"over"] * 3, expiry=10)
    qm.checkpoint()
    browse = qm.browse("A")
    assert [next(browse).body for _ in range(64)] == [b"stays"] * 64
    world.clock.advance(11)
    go_on = ending(world)
    with pytest.raises(qmgr.Unavailable):
        list(browse)
    go_on()
    world.start()
    assert bodies(world.qm, "H") == [b"kept"]
    assert world.qm.queue("A").depth == 103


def test_a_sweep_finds_many_at_once_in_memory() -> None:
    """It looks at all that is there each time: with a hundred at a time a deep queue took that many looks."""
    world = World()
    world.qm.define_queue("A")
    world.qm.put_many("A", [b"over"] * 500, expiry=10)
    world.clock.advance(11)
    engine = world.qm._engine
    with engine.lock:
        assert len(engine.state.queues["A"].sweep(engine.steady.now_us(), 100)) == 500
