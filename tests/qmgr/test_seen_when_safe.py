"""What a caller is shown, or told to have, no crash takes back: whoever finds what is not safe yet waits for it."""

from collections.abc import Callable

import pytest

import qmgr
from qmgr.verbs import ANY, Wanted
from tests.qmgr.world import World
from tests.sim.loss import LOSE_ALL

ID = b"c".ljust(24, b"\0")
Put = Callable[[qmgr.QueueManager], int]
Look = Callable[[qmgr.QueueManager, qmgr.UnitOfWork], int]


def put(qm: qmgr.QueueManager) -> int:
    return qm._engine.put_later(None, "A", b"0", {"correlation_id": ID})[1]


def put_many(qm: qmgr.QueueManager) -> int:
    return qm._engine.put_many_later(None, "A", [b"0", b"1"], {"correlation_id": ID})[1]


def commit(qm: qmgr.QueueManager) -> int:
    unit = qm.begin()
    unit.put("A", b"0", correlation_id=ID)
    return qm._engine.commit_later(unit._unit)


PUTS: list[Put] = [put, put_many, commit]
LOOKS: dict[str, Look] = {
    "browse": lambda qm, unit: shown(next(qm.browse("A"))),
    "browse by id": lambda qm, unit: shown(next(qm.browse("A", correlation_id=ID))),
    "get": lambda qm, unit: shown(unit.get("A")),
    "get many": lambda qm, unit: shown(unit.get_many("A", 1)[0]),
    "get by id": lambda qm, unit: shown(unit.get("A", correlation_id=ID)),
    "the daemon's get": lambda qm, unit: got_now(qm, unit, ANY),
    "a delivery": lambda qm, unit: qm._engine.hold(qm._engine.new_holder("", 0), "A", 1, None, 1)[2],
}


def shown(message: qmgr.Message) -> int:
    """Whoever has the message was told of it already."""
    assert message.body == b"0"
    return 0


def got_now(qm: qmgr.QueueManager, unit: qmgr.UnitOfWork | None, wanted: Wanted) -> int:
    found = qm._engine.get_now(None if unit is None else unit._unit, "A", 1, wanted)
    assert found is not None and [message.body for message in found[0]] == [b"0"]
    return found[1]


@pytest.fixture
def world() -> World:
    world = World()
    world.qm.define_queue("A")
    return world


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("how", PUTS)
def test_nobody_sees_a_message_before_it_is_safe(world: World, how: Put, look: str) -> None:
    """Faults 2: it was put by somebody who has not been told yet."""
    qm = world.qm
    end = how(qm)
    assert qm._log.safe < end
    told = LOOKS[look](qm, qm.begin())  # 0, or the LSN that is waited for before anybody hears of it
    assert max(told, qm._log.safe) >= end
    if not told:
        assert b"0" in [message.body for message in world.crash(LOSE_ALL).browse("A")]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_message_that_is_not_logged_waits_for_what_it_came_with(world: World, persistent: bool) -> None:
    """Faults 2: the unit of work that brought it, of which a crash may still take the rest."""
    qm = world.qm
    unit = qm.begin()
    unit.put("A", b"0", persistent=persistent, priority=9)
    unit.put("A", b"1", persistent=not persistent)
    end = qm._engine.commit_later(unit._unit)
    assert qm._log.safe < end
    assert qm.get_many("A", 1)[0].body == b"0"
    assert qm._log.safe >= end


@pytest.mark.parametrize("wanted", [ANY, Wanted(correlation_id=ID)], ids=["any", "by id"])
def test_the_daemon_tells_of_a_get_when_no_crash_brings_the_message_back(world: World, wanted: Wanted) -> None:
    """Faults 2, 15."""
    qm = world.qm
    qm.put("A", b"0", correlation_id=ID)
    assert got_now(qm, None, wanted) == qm._log.buffer.tail > qm._log.safe


@pytest.mark.interpreted
@pytest.mark.parametrize("first", [True, False])
def test_the_backout_count_is_that_of_the_get_and_not_of_what_comes_while_it_waits(
    world: World, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue manager rolls the unit of work back while its get waits until the message is safe."""
    engine = world.qm._engine
    if not first:
        world.qm.put("A", b"before")
    put(world.qm)
    unit = world.qm.begin()
    if not first:
        unit.get("A")  # the next one goes the short way
    usual = engine.log.force

    def force(lsn: int) -> None:
        with engine.lock:
            unit._unit.evicted = True
            engine.back_out_locked(unit._unit)
        usual(lsn)

    with monkeypatch.context() as patched:
        patched.setattr(type(engine.log), "force", lambda log, lsn: force(lsn))
        assert unit.get("A").backout_count == 0
    assert [message.backout_count for message in world.qm.browse("A")][-1] == 1
