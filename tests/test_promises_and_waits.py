"""Units of work in flight: what is promised for them, and what interrupts, a full log or other threads do meanwhile."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import qmgr
from logger.frame import HEADER
from qmgr import Xid
from qmgr.message import describe
from recovery.records import QUEUE_PLACE, Put
from tests.conftest import SOAK
from tests.logger.test_force import until
from tests.qmgr.test_interrupts import Tracer, interrupted
from tests.qmgr.world import Call, World, bodies
from tests.sim.clock import SimClock
from tests.sim.loss import LOSE_ALL

XID = Xid(1, b"x", b"")
HEAD = describe(0, True).head(bytes(24), 0)


def world_with(*queues: str, **options: Any) -> World:
    made = World(**options)
    for queue in queues:
        made.qm.define_queue(queue, max_depth=100_000)
    return made


def copy_of(base: World) -> World:
    """The same queue manager again, started."""
    world = World.__new__(World)
    world.disk, world.clock = base.disk.snapshot(), base.clock
    world.start()
    return world


def promise_is_what_is_needed(world: World) -> bool:
    engine = world.qm._engine
    return all(unit.promise == engine.promise_of(unit) + unit.ahead for unit in engine.state.uows)


def fill(world: World, room: int) -> None:
    """Leave `room` bytes in the log buffer, or some less, by puts to FILL whose callers have not forced them yet."""
    engine = world.qm._engine
    queue = engine.state.queues["FILL"]
    least = engine.log.cost(QUEUE_PLACE.size + len(HEAD))
    with engine.lock:
        while engine.log.buffer.room > room:
            size = min(2000, engine.log.buffer.room - room - least)
            engine.log_locked(Put(queue.id, queue.next_sequence, HEAD, bytes(max(0, size))))


def fill_exactly(world: World, room: int) -> None:
    """Leave just so many bytes, a multiple of 8 that is not about the end of a page."""
    fill(world, room + 1000)
    engine = world.qm._engine
    queue, frame = engine.state.queues["FILL"], HEADER.size + QUEUE_PLACE.size + len(HEAD)
    with engine.lock:
        engine.log_locked(Put(queue.id, queue.next_sequence, HEAD, bytes(engine.log.buffer.room - room - frame)))
    assert engine.log.buffer.room == room


class Writing:
    """Somebody forces the log and writes until told to go on: records pile up in the buffer, and then wait for room."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._log = world.qm._engine.log
        self._writes, self._go = threading.Event(), threading.Event()
        world.disk.before_effect = self._wait
        self._calls = [Call(lambda: world.qm.put("FILL", b""))]
        assert self._writes.wait(120)

    def _wait(self, kind: str, path: str) -> None:
        if not self._writes.is_set():
            self._writes.set()
            assert self._go.wait(120)

    def waits(self, call: Any) -> Call:
        """Make a call that waits for room in the buffer."""
        before = len(self._log._appenders)
        made = Call(call)
        self._calls.append(made)
        until(lambda: len(self._log._appenders) > before)
        return made

    def forces(self, call: Any) -> Call:
        """Make a call that waits until its record is on disk."""
        before = len(self._log._waiting)
        made = Call(call)
        self._calls.append(made)
        until(lambda: len(self._log._waiting) > before)
        return made

    def done(self) -> None:
        """Go on; every call ends."""
        self._go.set()
        for call in self._calls:
            call.join(120)
            assert not call.is_alive(), "the call hangs"


# ---- interrupts


def test_a_commit_that_is_interrupted_and_made_again_is_durable() -> None:
    base = world_with("A")
    base.qm.end()
    n = 0
    while True:
        n += 1
        world = copy_of(base)
        unit = world.qm.begin()
        unit.put("A", b"mine")
        tracer = Tracer(n)
        interrupted(tracer, unit.commit)
        if not tracer.where:
            break
        with contextlib.suppress(qmgr.Unavailable, qmgr.UnitOfWorkEnded):
            unit.commit()
            world.crash(LOSE_ALL)
            assert bodies(world.qm, "A") == [b"mine"], tracer.where
    assert n > 20


def test_an_interrupt_of_one_caller_drops_nothing_of_the_unit_of_another() -> None:
    base = world_with("A", "B")
    base.qm.end()
    n = 0
    while True:
        n += 1 if SOAK else 3
        world = copy_of(base)
        unit = world.qm.begin()
        unit.put("A", b"first")
        tracer = Tracer(n)
        interrupted(tracer, lambda: world.qm.put("B", b"other"))  # noqa: B023
        if not tracer.where:
            break
        with contextlib.suppress(qmgr.Unavailable):
            unit.put("A", b"second")
            unit.commit()
            world.crash(LOSE_ALL)
            assert bodies(world.qm, "A") == [b"first", b"second"], tracer.where
    assert n > 20


def test_a_prepare_that_is_interrupted_leaves_no_room_promised_after_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(self: SimClock) -> int:
        raise KeyboardInterrupt

    world = world_with("A")
    unit = world.qm.begin(XID)
    with monkeypatch.context() as patch:
        patch.setattr(SimClock, "wall_us", interrupt)  # the record's time: just before it is appended
        with pytest.raises(KeyboardInterrupt):
            unit.prepare()
    assert world.qm.status().log.promised > 0
    unit.commit()
    assert world.qm.status().log.promised == 0


# ---- what is promised


def test_a_get_of_many_promises_for_what_it_took() -> None:
    world = world_with("A")
    world.qm.put("A", b"", correlation_id=b"wanted")
    world.qm.put_many("A", [b""] * 499)
    promised = []
    for limit in (1, 500):
        unit = world.qm.begin()
        assert len(unit.get_many("A", limit, correlation_id=b"wanted")) == 1
        promised.append(world.qm.status().log.promised)
        unit.backout()
    assert promised[0] == promised[1] > 0


def test_a_put_that_has_to_make_room_promises_what_is_needed_by_then() -> None:
    """The release sequence logs what the unit has held back: that its calls were to be logged is no cost any more."""
    world = world_with("A", log_primary_files=3)
    for _ in range(250):
        world.qm.put("A", bytes(1000))  # the tail moves into the second extent, so a checkpoint gives the first back
    unit, large = world.qm.begin(), world.qm.begin(XID)
    files = world.qm.status().log.files
    before = world.qm.status().checkpoints
    while world.qm.status().checkpoints == before:
        large.put("A", bytes(4000))
        unit.put("A", bytes(100))
        assert promise_is_what_is_needed(world)
    assert world.qm.status().log.files == files


def test_preparing_a_unit_that_has_ended_promises_nothing() -> None:
    world = world_with("A")
    unit = world.qm.begin(XID)
    unit.put("A", b"")
    unit.commit()
    with pytest.raises(qmgr.UnitOfWorkEnded):
        unit.prepare()
    assert world.qm.status().log.promised == 0


def test_idle_units_whose_calls_are_held_back_are_rolled_back_when_the_log_is_full() -> None:
    world = world_with("A")
    idle = []
    for _ in range(60):  # each keeps back 14 KB; together they are promised more than the log has
        idle.append(world.qm.begin())
        idle[-1].put_many("A", [bytes(1000)] * 14)
    idle[-1].put("A", b"goes on")
    with pytest.raises(qmgr.BackedOut):
        idle[0].commit()
    idle[-1].commit()
    assert bodies(world.qm, "A") == [*[bytes(1000)] * 14, b"goes on"]


# ---- what happens while a call waits for room in the log buffer


@pytest.mark.parametrize("its_own", [False, True], ids=["of another", "of its own"])
def test_calls_that_a_unit_makes_while_those_before_wait_for_room_get_their_room_too(
    its_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before wait with a commit, of another unit or of its own."""
    world = world_with("A", "B", "FILL", log_file_pages=1024, log_sync="os")
    log = world.qm._engine.log
    leads, go = threading.Event(), threading.Event()
    write_and_sync = log._write_and_sync

    def preempted() -> None:
        leads.set()
        assert go.wait(120)
        write_and_sync()

    def writes(kind: str, path: str) -> None:
        """Until those who wait have looked at the room that there is since the leader took what it writes."""
        world.disk.before_effect = None
        until(lambda: len(log.changed._gates) == 2 or not all(call.is_alive() for call in calls))

    monkeypatch.setattr(log, "_write_and_sync", preempted)
    fill(world, 9000)
    calls = [Call(lambda: log.sync(log.buffer.tail))]
    assert leads.wait(120)
    grows, other = world.qm.begin(), world.qm.begin()
    other.put("B", b"other")
    grows.put("A", bytes(9000))
    first, last = (grows, other) if its_own else (other, grows)
    for n, call in enumerate((first.commit, lambda: grows.put("A", bytes(400_000))), 1):
        calls.append(Call(call))
        until(lambda: len(log._appenders) == n)  # noqa: B023
    world.disk.before_effect = writes
    go.set()
    for made in calls:
        made.outcome()
    last.commit()
    world.crash()
    assert (list(map(len, bodies(world.qm, "A"))), bodies(world.qm, "B")) == ([9000, 400_000], [b"other"])


def test_a_get_that_has_waited_takes_nothing_for_a_unit_that_was_rolled_back_meanwhile() -> None:
    world = world_with("A", "B", "FILL", log_file_pages=256)
    world.qm.put_many("A", [b"old"] * 100, expiry=1.0)
    world.clock.advance(5)
    unit = world.qm.begin()
    unit.put("B", b"")
    world.qm.put("B", b"other")  # which logs the unit's call: it can be rolled back
    writing = Writing(world)
    fill(world, 3000)
    get = writing.waits(lambda: unit.get("A"))  # for room to say which messages have expired
    assert world.qm._housekeeper.log_space._release_unit(unit._unit)
    put = writing.forces(lambda: world.qm.put("A", b"good"))
    writing.done()
    put.outcome()
    with pytest.raises(qmgr.BackedOut):
        get.outcome()
    unit.backout()
    assert (bodies(world.qm, "A"), world.qm.queue("A").uncommitted) == ([b"good"], 0)
    assert world.qm.status().log.promised == 0


@pytest.mark.parametrize("good", [False, True])
def test_a_get_that_has_waited_takes_nothing_from_a_queue_that_was_deleted_meanwhile(good: bool) -> None:
    """Else a restart would find a record of a queue that is not there, and refuse it."""
    world = world_with("A", "FILL", log_file_pages=256)
    world.qm.put_many("A", [b"old"] * 100, expiry=1.0)
    world.clock.advance(5)
    writing = Writing(world)
    fill_exactly(world, 2800)
    get = writing.waits(lambda: world.qm.get("A", wait=None))  # for room to say which messages have expired
    if good:
        writing.forces(lambda: world.qm.put("A", b"good"))
    delete = writing.forces(lambda: world.qm.delete_queue("A", purge=True))
    writing.done()
    delete.outcome()
    with pytest.raises(qmgr.UnknownQueue) as caught:
        get.outcome()
    assert caught.value.reason is qmgr.Reason.Q_DELETED
    world.crash(LOSE_ALL)
    assert set(world.depths()) == {"FILL"}


def test_a_message_is_not_moved_away_from_a_queue_that_was_deleted_while_room_was_made() -> None:
    world = world_with("BAD", "FILL")
    world.qm.define_queue("A", backout_threshold=1, backout_queue="BAD")
    world.qm.put("A", b"poison")
    unit = world.qm.begin()
    unit.get("A")
    unit.backout()
    engine = world.qm._engine
    log, queue = engine.log, engine.state.queues["FILL"]
    with engine.lock:
        while log.space.fits(log.buffer.tail, 500, log.space.for_gets):
            log.make_room(500)
            engine.log_locked(Put(queue.id, queue.next_sequence, HEAD, bytes(100)))

    def meanwhile(kind: str, path: str) -> None:
        if "amqalchk" in path:
            world.disk.before_effect = None
            engine.delete("A", purge=True)

    world.disk.before_effect = meanwhile
    unit = world.qm.begin()
    with pytest.raises(qmgr.UnknownQueue):
        unit.get("A", backout_requeue=True)
    unit.commit()
    world.crash(LOSE_ALL)
    assert "A" not in world.depths()
    assert bodies(world.qm, "BAD") == []


NOT_ANY_MORE: dict[str, Callable[[Any], object]] = {
    "put": lambda face: face.put("A", b"new"),
    "put_many": lambda face: face.put_many("A", [b"new", b"too"]),
    "get": lambda face: face.get("A"),
    "get_many": lambda face: face.get_many("A", 2),
}


@pytest.mark.parametrize("in_unit", [False, True])
@pytest.mark.parametrize("how", NOT_ANY_MORE)
def test_what_a_queue_takes_and_gives_counts_when_there_is_room_for_the_call(how: str, in_unit: bool) -> None:
    """It is altered while a checkpoint makes that room."""
    world = world_with("A", "FILL")
    world.qm.put_many("A", [b"1", b"2"])
    engine = world.qm._engine
    log, queue, altered = engine.log, engine.state.queues["FILL"], engine.state.queues["A"]
    kept = log.space.for_gets if how.startswith("put") else 0
    with engine.lock:
        while log.space.fits(log.buffer.tail, 50, kept):
            log.make_room(500)
            engine.log_locked(Put(queue.id, queue.next_sequence, HEAD, bytes(100)))

    def meanwhile(kind: str, path: str) -> None:
        if "amqalchk" in path:
            world.disk.before_effect = None
            with engine.lock:
                altered.redefine(attrs.evolve(altered.definition, max_depth=2, get_enabled=False))

    world.disk.before_effect = meanwhile
    unit = world.qm.begin()
    with pytest.raises((qmgr.QueueFull, qmgr.Inhibited)):
        NOT_ANY_MORE[how](unit if in_unit else world.qm)
    unit.backout()


def test_a_put_made_while_the_prepare_of_its_unit_waits_is_prepared_with_it() -> None:
    world = world_with("A", "B", "FILL", log_file_pages=256)
    writing = Writing(world)
    fill(world, 5000)
    unit, other = world.qm.begin(XID), world.qm.begin()
    unit.put("A", b"first")
    other.put("B", bytes(4000))
    prepare = writing.waits(unit.prepare)  # for room for the calls of the other unit
    unit.put("A", b"second")
    writing.done()
    prepare.outcome()
    world.crash(LOSE_ALL)
    world.qm.resolve(XID, commit=True)
    assert bodies(world.qm, "A") == [b"first", b"second"]


@pytest.mark.parametrize("how", ["begins", "ends"])
def test_a_checkpoint_that_has_waited_names_the_units_of_work_of_the_moment_that_it_holds(how: str) -> None:
    """A restart reads what they have logged before it: of too few it misses some, of too many it does things twice."""
    world = world_with("A", "B", "FILL", log_file_pages=256)
    world.qm.put("A", b"got")
    unit = world.qm.begin()
    if how == "ends":
        unit.get("A")
        unit.put("B", b"once")
        world.qm.put("A", b"other")  # which logs the unit's calls
    writing = Writing(world)
    fill_exactly(world, 2176)  # room for the record of an end, or of a get, and not for that of a checkpoint
    checkpoint = writing.waits(world.qm.checkpoint)
    if how == "ends":
        commit = writing.forces(unit.commit)
        writing.done()
        commit.outcome()
    else:
        unit.get("A")
        put = writing.waits(lambda: world.qm.put("A", b"other"))  # it logs the unit's call before it waits
        writing.done()
        put.outcome()
    checkpoint.outcome()
    if how == "begins":
        unit.put("B", b"once")
        unit.commit()
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == ([b"other"], [b"once"])


@pytest.mark.interpreted
@pytest.mark.parametrize("how, step", [("get", "_known"), ("put", "_put_now")])
def test_a_call_that_comes_to_its_turn_when_the_log_is_closed_leaves_one_that_can_be_started(
    how: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears that the queue manager ends. (What the log does with a record that comes so late is tested there.)"""
    world = world_with("A")
    world.qm.put("A", b"there")
    engine, log, main = world.qm._engine, world.qm._engine.log, threading.current_thread()
    real_step, force, name_end = getattr(engine, step), log.force, log._record_clean_end
    real_close = log.close
    passed, go, closes, closed = (threading.Event() for _ in range(4))

    def passes(*given: Any, **more: Any) -> Any:
        """The call has looked whether it may be, and has no lock yet."""
        queue = real_step(*given, **more) if how == "get" else None
        passed.set()
        assert go.wait(120)
        return queue or real_step(*given, **more)

    def forces(target: int) -> None:
        assert threading.current_thread() is main or closed.wait(120)
        force(target)

    def names_end() -> None:
        if closes.is_set():
            go.set()
            until(lambda: log.buffer.tail > log.durable or not call.is_alive())
        name_end()

    def close(*, clean: bool) -> None:
        closes.set()
        real_close(clean=clean)

    monkeypatch.setattr(log, "close", close)
    monkeypatch.setattr(engine, step, passes)
    monkeypatch.setattr(log, "force", forces)
    monkeypatch.setattr(log, "_record_clean_end", names_end)
    call = Call(lambda: world.qm.get("A") if how == "get" else world.qm.put("A", b"late"))
    assert passed.wait(120)
    world.qm.end("immediate")
    closed.set()
    with pytest.raises(qmgr.Unavailable):
        call.outcome()
    world.start()
    assert bodies(world.qm, "A") == [b"there"]


def test_no_checkpoint_comes_after_that_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that the queue manager has not ended in order, and what NPMCLASS(HIGH) has kept would be lost."""
    world = world_with()
    world.qm.define_queue("A", non_persistent_class="HIGH")
    world.qm.put("A", b"kept", persistent=False)
    checkpointer, log = world.qm._checkpointer, world.qm._engine.log
    take, close = checkpointer.take, log.close
    waits, go = threading.Event(), threading.Event()

    def takes(*, clean: bool, **more: Any) -> Any:
        if not clean:
            waits.set()
            assert go.wait(120)
        return take(clean=clean, **more)

    def closes(*, clean: bool) -> None:
        go.set()
        call.join(120)
        close(clean=clean)

    monkeypatch.setattr(checkpointer, "take", takes)
    monkeypatch.setattr(log, "close", closes)
    call = Call(world.qm.checkpoint)
    assert waits.wait(120)
    world.qm.end()
    with pytest.raises(qmgr.Unavailable):
        call.outcome()
    world.start()
    assert bodies(world.qm, "A") == [b"kept"]


def test_a_record_that_meets_the_end_of_its_extent_has_room_for_the_padding() -> None:
    world = world_with("A", "FILL")
    log = world.qm._engine.log
    extent, buffer = world.qm.status().log.config.extent_bytes, log.buffer
    while extent - buffer.tail % extent > buffer.capacity - 2 * 4096:
        world.qm.put("A", bytes(500))
    writing = Writing(world)
    fill(world, log.buffer.room - (extent - buffer.tail % extent) + 400)
    fits = bytes(log.buffer.room - log.cost(0) - 200)
    put = Call(lambda: world.qm.put("A", fits))
    until(lambda: bool(log._appenders) or not put.is_alive())
    writing.done()
    put.outcome()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A")[-1] == fits


# ---- what can be done without


def test_what_could_not_get_a_thread_of_its_own_is_not_waited_for_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qmgr.create("FEW", data_path=tmp_path, log_file_pages=64)
    qm = qmgr.start("FEW", data_path=tmp_path)

    def cannot_start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot_start)
        with pytest.raises(RuntimeError, match="new thread"):
            qm._housekeeper._do_chores()
    qm.end()
    qmgr.start("FEW", data_path=tmp_path).end()
