"""When a message was put to a queue last, and when one was got: outside units of work, and with their commit."""

import pytest

import qmgr
from tests.qmgr.world import World


def times(qm: qmgr.QueueManager) -> tuple[int, int]:
    """In seconds."""
    info = qm.queue("A")
    return info.last_put // 1_000_000, info.last_get // 1_000_000


def now(world: World) -> int:
    return world.clock.wall_us() // 1_000_000


@pytest.mark.parametrize("persistent", [False, True])
def test_puts_and_gets(world: World, qm: qmgr.QueueManager, persistent: bool) -> None:
    assert times(qm) == (0, 0)
    qm.put("A", b"1", persistent=persistent)
    first = now(world)
    assert times(qm) == (first, 0)
    world.clock.advance(10)
    qm.put_many("A", [b"2", b"3"], persistent=persistent)
    second = now(world)
    assert times(qm) == (second, 0)
    world.clock.advance(10)
    qm.get("A")
    third = now(world)
    assert times(qm) == (second, third)
    with qm.begin() as unit:
        unit.put("A", b"4", persistent=persistent)
        unit.get("A")
        world.clock.advance(10)
        assert times(qm) == (second, third)
    assert times(qm) == (now(world),) * 2


def test_what_is_backed_out_or_expires_is_neither(world: World, qm: qmgr.QueueManager) -> None:
    qm.put("A", b"1", expiry=5.0)
    before = times(qm)
    world.clock.advance(1)
    with qm.begin() as unit:
        unit.put("A", b"2")
        unit.get("A")
        unit.backout()
    world.clock.advance(10)
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A")
    assert times(qm) == before


def test_they_are_read_from_the_log_again(world: World, qm: qmgr.QueueManager) -> None:
    qm.checkpoint()
    with qm.begin() as unit:
        unit.put("A", b"1")
    qm.get("A")
    before = times(qm)
    world.clock.advance(60)
    assert times(world.crash()) == before != (0, 0)
