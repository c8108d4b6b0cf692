"""The usual put of a unit of work by the short way: as by the long one, to which all else is left."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import Reason, UowState, Xid, units
from qmgr.engine import Engine
from qmgr.entry import OVERHEAD
from qmgr.infos import Peer
from qmgr.puts import Puts
from qmgr.session import AllRights
from qmgr.units import MAX_HELD_BYTES
from qmgr.verbs import PutOptions
from recovery.uows import Uow
from tests.conftest import SOAK
from tests.qmgr.test_interrupts import Strike, interrupted
from tests.qmgr.world import World, bodies, reason_of
from tests.sim.loss import LOSE_ALL


def another(unit: qmgr.UnitOfWork, body: Any = b"another", name: Any = "A") -> bool:
    """Is it put by the short way?"""
    return unit._engine.put_usual(unit._unit, name, body) is not None


def counts(world: World, unit: qmgr.UnitOfWork) -> dict[str, int]:
    """All that a put counts."""
    one, queue, log = unit._unit, world.qm._engine.state.queues["A"], world.qm._engine.log
    counted = {name: getattr(one, name) for name in ("put_count", "put_bytes", "held_back")}
    ahead = sum(other.ahead for other in world.qm._engine.state.uows)
    counted |= {"promise": one.promise - one.ahead, "promised": log.space.promised - ahead}
    return counted | {
        "came": world.qm._engine.checkpointer.arrived_bytes,
        "depth": queue.depth,
        "uncommitted": queue.uncommitted,
        "held by": len(unit._engine.state.holding),
    }


@pytest.mark.parametrize("gets", [0, 3])
def test_it_counts_and_promises_what_the_long_way_does(gets: int) -> None:
    found = []
    for short in (True, False):
        world = World()
        for name in ("A", "B"):
            world.qm.define_queue(name)
        before = world.qm.put_many("B", [b"old"] * 3)[0]
        unit = world.qm.begin()
        for _ in range(gets):
            unit.get("B")
        for number in range(20):
            body = b"body %d" % number * number
            if short:
                made = unit._engine.put_usual(unit._unit, "A", body)
                assert made is not None
            else:
                made, end = unit._engine.put_later(unit._unit, "A", body, {})
                assert end == 0
            assert (made.body, made.queue, made.persistent, made.priority) == (body, "A", True, before.priority)
            assert (made.format, made.reply_to, dict(made.properties), made.expiry) == ("", "", {}, None)
            assert made.message_id > before.message_id
            before = made
            if number in (0, 19):
                found.append(counts(world, unit))
        unit.commit()
        found.append(counts(world, unit))
        world.crash(LOSE_ALL)
        assert bodies(world.qm, "A") == [b"body %d" % number * number for number in range(20)]
    assert found[:3] == found[3:]


def full(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.alter_queue("A", max_depth=2)


def inhibited(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.alter_queue("A", put_enabled=False)


def shorter(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.alter_queue("A", max_message_length=3)


def too_many(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.alter(max_uncommitted=2)


def ended(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.commit()


def backed_out(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.backout()


def stopped(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.end("immediate")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (full, Reason.Q_FULL),
        (inhibited, Reason.PUT_INHIBITED),
        (shorter, Reason.MSG_TOO_BIG_FOR_Q),
        (too_many, Reason.SYNCPOINT_LIMIT_REACHED),
        (ended, None),
        (backed_out, None),
        (stopped, None),
    ],
)
def test_what_has_changed_since_the_last_put_is_heeded(
    change: Callable[[World, qmgr.UnitOfWork], None], reason: Reason | None
) -> None:
    world = World()
    world.qm.define_queue("A")
    unit = world.qm.begin()
    for body in (b"1", b"2"):
        unit.put("A", body)
    change(world, unit)
    before = counts(world, unit)
    with pytest.raises(qmgr.MQError) as caught:
        unit.put("A", b"refused")
    assert reason is None or reason_of(caught.value) == reason
    assert counts(world, unit) == before
    if unit.state is UowState.ACTIVE and world.qm.refusal is None:
        unit.commit()
        assert bodies(world.qm, "A") == [b"1", b"2"]


def no_room_in_the_log(world: World, unit: qmgr.UnitOfWork) -> None:
    space = world.qm._engine.log.space
    space.promised += space.limit - world.qm._engine.log.buffer.tail - space.promised - space.for_gets - 300


def no_more_held(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine._max_held_bytes = unit._unit.held_back + 300


def no_more_in_a_unit(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.max_uncommitted = unit._unit.put_count


def got_as_well(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.max_uncommitted = unit._unit.put_count + 1
    unit.get("B")


def no_more_on_the_queue(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.state.queues["A"].unchecked_depth = unit._unit.put_count


def none_so_long(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.state.queues["A"].max_length = 199


def another_kind(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.put("A", b"before it", priority=1)


def another_thread_logs(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put("B", b"of another")


def damaged(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.state.queues["A"].damage("a segment is gone")


def deleted(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.state.queues["A"].retire()  # as its deletion does, which waits for the unit of work


def refused(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm._engine.refusal = qmgr.Unavailable("no more")


class Meanwhile:
    """The clock, which is asked when the put has looked at the unit of work and has not got the lock yet."""

    def __init__(self, clock: Any, happens: Callable[[], None]) -> None:
        self.clock = clock
        self.happens: Callable[[], None] | None = happens

    def wall_us(self) -> int:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return int(self.clock.wall_us())


HAPPENINGS = (
    *(no_room_in_the_log, no_more_held, no_more_in_a_unit, got_as_well, no_more_on_the_queue, none_so_long),
    *(another_kind, damaged, deleted, refused, ended, backed_out),
)


@pytest.mark.parametrize(
    ("happens", "count"),
    [*((one, 0) for one in HAPPENINGS), *((one, 2) for one in HAPPENINGS), (another_thread_logs, 2)],
)
def test_what_happens_before_it_has_the_lock_leaves_it_to_the_long_way(
    happens: Callable[[World, qmgr.UnitOfWork], None], count: int
) -> None:
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
        world.qm.put(name, b"old")
    world.qm.get("A")
    unit, engine = world.qm.begin(), world.qm._engine
    for _ in range(count):
        unit.put("A", bytes(200))
    engine.clock = Meanwhile(engine.clock, lambda: happens(world, unit))  # type: ignore[assignment]
    before = unit._unit.put_count
    assert not another(unit, bytes(200))
    assert unit._unit.put_count - before == (1 if happens is another_kind else 0)
    assert engine.state.queues["A"].depth == (0 if happens is backed_out else count + (happens is another_kind))


def test_attributes_that_have_changed_since_the_last_put_are_those_of_the_next() -> None:
    world = World()
    world.qm.define_queue("A")
    unit = world.qm.begin()
    unit.put("A", b"as it was")
    world.qm.alter_queue("A", default_priority=7)
    higher = unit.put("A", b"higher")
    world.qm.alter_queue("A", default_persistence=False)
    fleeting = unit.put("A", b"fleeting")
    assert (higher.priority, higher.persistent, fleeting.persistent) == (7, True, False)
    unit.commit()
    assert bodies(world.qm, "A") == [b"higher", b"fleeting", b"as it was"]
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"higher", b"as it was"]


def test_a_client_that_says_what_is_usual_anyway_goes_the_short_way() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.define_queue("B", default_persistence=False)
    session = world.qm.sessions.open(Peer(user="mia", application="till", process=7), AllRights())
    unit = session.begin()
    for persistent in (None, True, True, False, True):
        options: PutOptions = {} if persistent is None else {"persistent": persistent}
        session.put_later(unit, "A", b"in a unit of work", options)
    assert [(len(run.heads), run.persistent) for run in unit._unit.puts] == [(3, True), (1, False), (1, True)]
    for name in ("A", "B"):
        for persistent in (True, False):
            session.put_later(None, name, b"outside", {"persistent": persistent})
    session.commit(unit)
    assert [message.persistent for message in world.qm.browse("A")] == [True, False, *[True] * 3, False, True]
    assert [message.persistent for message in world.qm.browse("B")] == [True, False]


def test_what_is_not_usual_is_left_to_the_long_way() -> None:
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
    world.qm.define_queue("F", default_persistence=False)
    world.qm.define_alias("TO.A", "A")
    world.qm.define_queue("CAP", expiry_cap=10)
    unit = world.qm.begin()
    for _ in range(2):  # as the first, and as one more
        assert not another(unit, name="TO.A")
        assert not another(unit, name="F")
        assert not another(unit, name="CAP")
        assert not another(unit, name="NONE")
        assert not another(unit, name=["A"])
        assert not another(unit, bytearray(b"changes"))
        assert not another(unit, "text")
        assert not another(unit, bytes(MAX_HELD_BYTES)), "so much is logged before the commit"
        assert another(unit)
        assert not another(unit, name="B")
    world.qm.put("A", b"of another")
    assert not another(unit), "what it has put is logged"
    unit.put("A", b"behind it")
    assert another(unit)
    unit.put("A", b"of its own kind", priority=1)
    assert not another(unit)
    unit.put("F", b"fleeting")
    assert not another(unit, name="F")
    prepared = world.qm.begin(Xid(1, b"global", b"branch"))
    assert not another(prepared)
    prepared.put("A", b"more is promised for its end")
    assert not another(prepared)


def test_a_queue_of_the_same_name_is_another_one() -> None:
    world = World()
    world.qm.define_queue("A")
    unit = world.qm.begin()
    unit.put("A", b"first")
    queue = world.qm._engine.state.queues["A"]
    queue.retire()  # as its deletion does, which waits for the unit of work
    assert not another(unit)


def test_units_of_work_of_which_several_threads_put_lose_nothing() -> None:
    world = World()
    world.qm.define_queue("A")
    unit = world.qm.begin()

    def put(first: int) -> None:
        for number in range(first, first + 200):
            unit.put("A", b"%04d" % number)

    threads = [threading.Thread(target=put, args=(first,)) for first in range(0, 800, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    unit.commit()
    world.crash(LOSE_ALL)
    assert sorted(bodies(world.qm, "A")) == [b"%04d" % number for number in range(800)]


@pytest.mark.interpreted
@pytest.mark.parametrize("before", [0, 1])
def test_an_interrupt_in_the_middle_of_one_stops_the_queue_manager_and_a_restart_has_nothing_of_the_unit(
    before: int,
) -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", b"old")
    unit = world.qm.begin()
    for _ in range(before):
        unit.put("A", b"first")
    queue = world.qm._engine.state.queues["A"]
    strike = Strike(type(world.qm._engine).put_usual.__code__, lambda frame: queue.depth == 2 + before)
    assert not interrupted(strike, lambda: unit.put("A", b"second"))
    assert world.qm.refusal is not None
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"old"]


@pytest.mark.interpreted  # a compiled class keeps its methods
@pytest.mark.parametrize("seed", range(200 if SOAK else 6))
def test_both_ways_count_and_promise_the_same_in_any_life(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[Any]] = []
    for long in (False, True):
        with monkeypatch.context() as patch:
            if long:
                patch.setattr(Puts, "put_usual", lambda *args: None)
                patch.setattr(Engine, "get_usual", lambda *args: None)
            told.append(life(random.Random(seed)))
    assert told[0] == told[1]


def life(rng: random.Random) -> list[Any]:
    """Units of work side by side, until the log is full and beyond: all that callers heard, and all counts."""
    world = World()
    world.qm.define_queue("A", max_depth=60, max_message_length=9003)
    world.qm.define_queue("B", default_persistence=False)
    world.qm.define_queue("C", default_priority=3)
    world.qm.define_alias("OF.C", "C")
    heard: list[Any] = []
    units: list[qmgr.UnitOfWork] = []
    for step in range(400):
        try:
            if len(units) < 3:
                units.append(world.qm.begin(Xid(1, b"%d" % step, b"b") if rng.random() < 0.1 else None))
            unit, way = rng.choice(units), rng.random()
            if way < 0.7:
                options: dict[str, Any] = rng.choice(({}, {}, {}, {}, {"priority": 7}, {"persistent": False}))
                size = rng.choice((0, 300, 300, 9000, 9000, 9000, 9000, 9000, 9009))
                unit.put(rng.choice(("A", "A", "C", "C", "B", "OF.C")), bytes(size) + b"%d" % step, **options)
            elif way < 0.8:
                heard.append(unit.get(rng.choice("ABC")).body)
            elif way < 0.86:
                units.remove(unit)
                unit.commit() if rng.random() < 0.6 else unit.backout()
            elif way < 0.96:
                world.qm.put("A", b"outside %d" % step)
            elif way < 0.98:
                world.qm.alter_queue("A", put_enabled=rng.random() < 0.9)
            elif way < 0.99:
                world.qm.checkpoint()
            else:
                world.crash(LOSE_ALL)
                units.clear()
        except qmgr.MQError as exc:
            heard.append(str(exc))
        units = [unit for unit in units if unit.state is UowState.ACTIVE]
        heard += [counts(world, unit) for unit in units]
    world.crash(LOSE_ALL)
    return [*heard, *(bodies(world.qm, name) for name in "ABC")]


@pytest.mark.parametrize("persistent", [True, False])
def test_what_a_unit_of_work_has_put_came_when_it_was_committed(persistent: bool) -> None:
    """Until then no checkpoint could move it out of memory, and what is backed out never comes."""
    world = World()
    world.qm.define_queue("A", default_persistence=persistent)
    checkpointer, options = world.qm._engine.checkpointer, {} if persistent else {"priority": 0}
    before = checkpointer.arrived_bytes
    unit = world.qm.begin()
    heads = sum(len(unit.put("A", bytes(100), **options).head) for _ in range(3))
    assert checkpointer.arrived_bytes == before
    unit.commit()
    assert checkpointer.arrived_bytes == before + heads + 300 + 3 * OVERHEAD
    unit = world.qm.begin()
    unit.put_many("A", [bytes(100)] * 3)
    unit.backout()
    assert checkpointer.arrived_bytes == before + heads + 300 + 3 * OVERHEAD


def test_a_checkpoint_is_due_when_a_commit_brings_enough() -> None:
    world = World(log_primary_files=4, log_file_pages=1024)
    world.qm.define_queue("A")
    engine = world.qm._engine
    engine.checkpointer.arrived_max_bytes = engine.checkpointer.arrived_bytes + 100 + OVERHEAD
    taken = engine.checkpointer.count
    unit = world.qm.begin()
    unit.put("A", bytes(100))
    assert not engine.checkpointer.limit_reached()
    unit.commit()
    assert engine.checkpointer.limit_reached() or engine.checkpointer.count > taken


@pytest.mark.parametrize("persistent", [True, False])
def test_a_checkpoint_while_a_unit_of_work_is_in_flight_forgets_nothing_of_it(persistent: bool) -> None:
    """It moves nothing of it out of memory; else that would stay there for as long as nothing more is put."""
    world = World(log_primary_files=4, log_file_pages=1024)
    world.qm.define_queue("A", default_persistence=persistent, buffer_size=1000)
    checkpointer = world.qm._engine.checkpointer
    checkpointer.arrived_max_bytes = 20_000
    unit = world.qm.begin()
    for _ in range(30):
        unit.put("A", bytes(1000))
    world.qm.checkpoint()
    taken = checkpointer.count
    unit.commit()
    assert checkpointer.count == taken + 1
    assert world.qm.queue("A").memory < 3000


@pytest.mark.interpreted
def test_a_commit_succeeds_where_there_is_no_memory_for_the_next_unit_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.qm.define_queue("A")
    unit = world.qm.begin()
    unit.put("A", b"first")
    failed = []

    def short() -> Uow:
        failed.append(1)
        raise MemoryError

    world.qm._engine._spare_units.clear()
    with monkeypatch.context() as patch:
        patch.setattr(units, "Uow", short)
        unit.commit()
    assert failed
    with world.qm.begin() as following:
        following.put("A", b"next")
    assert bodies(world.qm, "A")[-1] == b"next"


def test_what_is_not_persistent_needs_no_room_for_a_unit_that_may_be_prepared() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.put_many("A", [b""] * 500, persistent=False)
    unit = world.qm.begin(Xid(1, b"g", b""))
    unit.put("A", b"first")
    alone = world.qm._engine.promise_of(unit._unit)
    unit.put_many("A", [b""] * 500, persistent=False)
    assert len(unit.get_many("A", 500)) == 500
    assert world.qm._engine.promise_of(unit._unit) == alone
    unit.put("A", b"second")
    assert world.qm._engine.promise_of(unit._unit) - alone < 500
    unit.prepare()
    assert world.qm._engine.log.space.promised < 2 * alone


def test_a_commit_of_much_asks_for_a_checkpoint_itself() -> None:
    world = World(ini={"CheckPointLogRecdMax": "5000"}, log_primary_files=4, log_file_pages=1024)
    world.qm.define_queue("A")
    engine = world.qm._engine
    unit = world.qm.begin()
    unit.put_many("A", [b""] * 4000)
    unit.commit()
    unit = world.qm.begin()
    unit.put_many("A", [b""] * 4000)
    engine._records_max = engine.checkpointer.records + 1000
    engine.commit_later(unit._unit)
    assert engine.attention


def test_what_an_interrupted_call_was_promised_counts_for_the_next_one() -> None:
    """Also where all calls before it have been logged."""
    world = World()
    world.qm.define_queue("A")
    engine = world.qm._engine
    unit = world.qm.begin()
    unit.put("A", b"first")
    world.qm.put("A", b"another")  # which logs it
    one = unit._unit
    assert one.promise and not one.held_back
    with engine.lock:
        for cost in (500, 300):
            assert engine._promise_ahead(one, cost)
            assert one.promise == engine.promise_of(one, cost)
    unit.put("A", b"second")
    assert one.promise - one.ahead == engine.promise_of(one)
    unit.commit()
    assert engine.log.space.promised == 0
