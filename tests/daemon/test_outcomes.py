"""What became of a unit of work whose commit was not answered, also after the daemon was killed."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

import qmgr.aio
from logger.log import Log
from logger.reader import LogReader
from qmgr.aio.outside import Outside
from qmgr.errors import (
    BackedOut,
    Mistake,
    Reason,
    Unavailable,
    UnitOfWorkEnded,
)
from qmgr.state import MAX_ENDED, MAX_UNLOGGED
from recovery.records import Xid
from recovery.uows import UowState
from tests.conftest import SOAK
from tests.daemon.serving import Served, daemon, serving
from tests.qmgr.world import NAME, World, bodies
from tests.sim.loss import LOSE_ALL

XID = Xid(1, b"global", b"branch")


def forget(qm: qmgr.QueueManager) -> None:
    """The log alone tells now: thousands of other units of work have ended since."""
    qm._engine.state.ended.clear()
    qm._engine.state.ended_before.clear()


def test_the_outcome_of_a_unit_is_found_in_the_log(served: Served, connection: qmgr.Connection) -> None:
    """Row 78."""
    units = [connection.begin() for _ in range(4)]
    for unit in units:
        unit.put("A", b"x" * 1000)
    units[0].commit()
    units[1].backout()
    volatile = connection.begin()
    volatile.put("A", b"y", persistent=False)
    volatile.commit()
    prepared = connection.begin(XID)
    prepared.put("A", b"z")
    prepared.prepare()
    known = {unit.id: connection.outcome(unit.id) for unit in (*units, volatile, prepared)}
    assert list(known.values()) == [
        *(UowState.COMMITTED, UowState.BACKED_OUT, UowState.ACTIVE, UowState.ACTIVE),
        *(UowState.COMMITTED, UowState.PREPARED),
    ]
    units[2].commit()
    prepared.commit()
    assert connection.outcome(units[2].id, since=units[2]._since_lsn) is UowState.COMMITTED
    assert connection.outcome(prepared.id) is UowState.COMMITTED
    for number in (0, 7, units[0].id << 30):
        with pytest.raises(Mistake):
            connection.outcome(number)


def test_a_log_that_reaches_back_no_more_does_not_tell(served: Served, connection: qmgr.Connection) -> None:
    with connection.begin() as unit:
        unit.put("A", b"x")
    since = unit._since_lsn
    gone = connection.begin()
    gone.put("A", b"y")
    gone.backout()
    for _ in range(60):
        with connection.begin() as filler:
            filler.put("A", bytes(20_000))
            filler.get("A")
        connection.checkpoint()
    assert served.manager._log.reaches_back_to() > since
    assert connection.outcome(unit.id) is UowState.COMMITTED, "it is remembered"
    forget(served.manager)
    assert (
        connection.outcome(unit.id) is connection.outcome(unit.id, since=since) is connection.outcome(gone.id) is None
    )
    assert connection.outcome(filler.id) is UowState.COMMITTED


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_killed_daemons_and_lost_answers_leave_no_doubt(tmp_path: Path, log_type: str) -> None:
    """Row 78: each unit is committed, or not, or one can ask which; the queue has just those that are committed."""
    wanted: list[bytes] = []
    with daemon(tmp_path, log_type=log_type) as one, one.connect() as client:
        for turn in range(12 if SOAK else 3):
            killer = threading.Timer(0.05 + 0.01 * turn, one.kill)
            killer.start()
            for number in range(100_000):
                unit = client.begin()
                body = b"%d %d" % (turn, number)
                try:
                    unit.put("A", body)
                    unit.commit()
                except Unavailable as exc:
                    assert exc.reason == Reason.CONNECTION_BROKEN
                    break
                wanted.append(body)
            killer.join()
            with pytest.raises(Unavailable, match="is not running; start it with strmqm QM1"):
                client.queues()
            one.start()
            told = client.outcome(unit._id) if unit._id else UowState.BACKED_OUT
            assert told in (UowState.COMMITTED, UowState.BACKED_OUT)
            if told is UowState.COMMITTED:
                wanted.append(body)
            with pytest.raises((UnitOfWorkEnded, BackedOut)):
                unit.commit()
            assert [message.body for message in client.browse("A")] == wanted


class Stopped:
    """A queue manager that stops in the next force, once its record is on the disk, and its daemon with it."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self._served = served
        self._monkeypatch = monkeypatch
        usual = Log._write

        def fails(log: Log) -> int:
            usual(log)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(Log, "_write", fails)

    def goes(self) -> None:
        self._monkeypatch.undo()
        self._served.manager.abandon()
        for session in list(self._served.manager.sessions):
            session.stop()


def check_found(path: Path, end: str, number: int) -> None:
    with qmgr.start(NAME, data_path=path) as qm:
        assert qm.outcome(number) is (UowState.COMMITTED if "commit" in end else UowState.PREPARED)
        assert [message.body for message in qm.browse("A")] == [b"once"] * ("commit" in end)
        assert qm.in_doubt() == ([] if "commit" in end else [XID])


ENDS = pytest.mark.parametrize("end", ["commit", "prepare", "commit of a prepared one"])
NOT_KNOWN = {"commit": r"in the commit of .*outcome\(", "prepare": "in doubt", "commit of a prepared one": "in doubt"}


@pytest.mark.interpreted
@ENDS
def test_an_answer_that_the_queue_manager_has_stopped_says_nothing_of_the_unit(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 78: the record is on the disk, and then its sync fails: nobody may hear that it was backed out."""
    with serving(tmp_path) as served:
        unit = served.connect().begin(XID)
        unit.put("A", b"once")
        if "of" in end:
            unit.prepare()
        stopped = Stopped(served, monkeypatch)
        with pytest.raises(Unavailable, match="nobody knows what reached the disk"):
            getattr(unit, end.split()[0])()
        stopped.goes()
        for call in (unit.commit, unit.backout):
            with pytest.raises((UnitOfWorkEnded, Unavailable), match=NOT_KNOWN[end]):
                call()
        check_found(tmp_path, end, unit.id)


@pytest.mark.interpreted
@ENDS
def test_the_same_of_asynchronous_calls(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            connection = await qmgr.aio.connect(NAME, data_path=tmp_path)
            unit = connection.begin(XID)
            await unit.put("A", b"once")
            if "of" in end:
                await unit.prepare()
            numbers.append(unit.id)
            stopped = Stopped(served, monkeypatch)
            with pytest.raises(Unavailable, match="nobody knows what reached the disk"):
                await getattr(unit, end.split()[0])()
            await asyncio.to_thread(stopped.goes)
            for call in (unit.commit, unit.backout):
                with pytest.raises((UnitOfWorkEnded, Unavailable), match=NOT_KNOWN[end]):
                    await call()

    numbers: list[int] = []
    with serving(tmp_path) as served:
        asyncio.run(main())
        check_found(tmp_path, end, *numbers)


def test_a_cancelled_prepare_is_not_said_to_be_undone_when_the_connection_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def struck(way: Outside, answer: "asyncio.Future[list[bytes]]") -> list[bytes]:
        await answer
        raise asyncio.CancelledError

    async def main() -> None:
        async with asyncio.timeout(60):
            connection = await qmgr.aio.connect(NAME, data_path=tmp_path)
            unit = connection.begin(XID)
            await unit.put("A", b"once")
            with monkeypatch.context() as patched:
                patched.setattr(Outside, "_answer", struck)
                with pytest.raises(asyncio.CancelledError):
                    await unit.prepare()
            await asyncio.to_thread(one.kill)
            with pytest.raises(Unavailable):
                await connection.queues()
            for call in (unit.backout, unit.commit):
                with pytest.raises(Unavailable, match="in doubt"):
                    await call()
            await asyncio.to_thread(one.start)
            assert await connection.outcome(unit.id) is UowState.PREPARED

    with daemon(tmp_path) as one:
        asyncio.run(main())


def test_a_backout_that_is_refused_since_the_queue_manager_has_ended_is_one(
    served: Served, connection: qmgr.Connection
) -> None:
    """It was made when the queue manager ended: who consumes hears of that end, and not that the unit is over."""
    connection.put("A", b"x")
    orders = connection.consume("A")
    _, unit = next(orders)
    served.manager.end("immediate")
    with pytest.raises(Unavailable, match="2162"):
        unit.backout()
    assert unit.state is UowState.BACKED_OUT
    with pytest.raises(Unavailable, match="2162"):
        next(orders)


def test_the_same_of_an_asynchronous_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            connection = await qmgr.aio.connect(NAME, data_path=tmp_path)
            await connection.put("A", b"x")
            orders = connection.consume("A")
            _, unit = await anext(orders)
            await asyncio.to_thread(served.manager.end, "immediate")
            with pytest.raises(Unavailable, match="2162"):
                await unit.backout()
            assert unit.state is UowState.BACKED_OUT
            with pytest.raises(Unavailable, match="2162"):
                await anext(orders)

    with serving(tmp_path) as served:
        asyncio.run(main())


def test_of_a_unit_that_never_began_it_is_known_that_nothing_was_done(served: Served) -> None:
    """Its first call is refused, and so is what would end it: it is neither in doubt nor unknown."""
    connection = served.connect()
    units = connection.begin(), connection.begin()
    served.manager.quiesce()
    for unit, end in zip(units, ("commit", "prepare"), strict=True):
        with pytest.raises(Unavailable, match="2161"):
            unit.put("A", b"x")
        with pytest.raises(Unavailable, match="2161"):
            getattr(unit, end)()
        assert unit.state is UowState.ACTIVE
        unit.backout()
        assert unit.state is UowState.BACKED_OUT


def test_the_same_of_one_of_asynchronous_calls(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            connection = await qmgr.aio.connect(NAME, data_path=tmp_path)
            units = connection.begin(), connection.begin()
            await asyncio.to_thread(served.manager.quiesce)
            for unit, end in zip(units, ("commit", "prepare"), strict=True):
                with pytest.raises(Unavailable, match="2161"):
                    await unit.put("A", b"x")
                with pytest.raises(Unavailable, match="2161"):
                    await getattr(unit, end)()
                assert unit.state is UowState.ACTIVE
                await unit.backout()
                assert unit.state is UowState.BACKED_OUT

    with serving(tmp_path) as served:
        asyncio.run(main())


def test_what_may_have_been_committed_is_not_said_to_be_backed_out() -> None:
    """Of units with non-persistent messages only the log has nothing, and memory the last ones."""
    made = World()
    made.qm.define_queue("A")
    made.qm.define_queue("B", backout_threshold=3)
    since = made.qm.status().log.durable
    units = []
    for _ in range(MAX_UNLOGGED + 1):
        with made.qm.begin() as unit:
            unit.put("A", b"x", persistent=False)
            units.append(unit.id)
        with pytest.raises(qmgr.NoMessageAvailable):
            made.qm.get("B", backout_requeue=True)  # its own unit of work is empty: nobody asks for it
    later = made.qm.begin()
    later.backout()
    assert made.qm.outcome(units[0], since=since) is None
    assert made.qm.outcome(units[1], since=since) is UowState.COMMITTED
    assert made.qm.outcome(later.id, since=since) is UowState.BACKED_OUT


def test_a_unit_that_was_begun_early_and_committed_late_hides_none_that_are_remembered_no_more() -> None:
    made = World()
    made.qm.define_queue("A")
    since = made.qm.status().log.durable
    early = made.qm.begin()
    early.put("A", b"x", persistent=False)
    units = []
    for number in range(2 * MAX_UNLOGGED):
        if number == MAX_UNLOGGED:
            early.commit()
        with made.qm.begin() as unit:
            unit.put("A", b"x", persistent=False)
            units.append(unit.id)
    assert made.qm.outcome(units[MAX_UNLOGGED - 1], since=since) is None, "the last before it"
    assert made.qm.outcome(early.id, since=since) is None
    assert made.qm.outcome(units[-1], since=since) is UowState.COMMITTED


def test_nothing_is_known_of_a_unit_that_is_looked_for_behind_the_end_of_the_log() -> None:
    made = World()
    made.qm.define_queue("A")
    with made.qm.begin() as unit:
        unit.put("A", b"x")
    forget(made.qm)
    assert made.qm.outcome(unit.id, since=made.qm.status().log.durable + 1) is None
    assert made.qm.outcome(unit.id) is UowState.COMMITTED


def test_outcomes_of_late_are_told_without_reading_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks again and again, with a time-out shorter than a search, kept the daemon from all else."""
    world = World()
    world.qm.define_queue("A")

    def ended() -> dict[int, UowState]:
        units = [world.qm.begin(), world.qm.begin(XID), world.qm.begin(), world.qm.begin()]
        for unit in units:
            unit.put("A", b"x" * 30_000)  # too much to be held back until it ends
        units[1].prepare()
        units[0].commit()
        units[1].commit()
        units[2].backout()
        return {
            units[0].id: UowState.COMMITTED,
            units[1].id: UowState.COMMITTED,
            units[2].id: UowState.BACKED_OUT,
            units[3].id: UowState.ACTIVE,
        }

    def asked(expected: dict[int, UowState]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Log, "live_reader", None)
            assert {number: world.qm.outcome(number) for number in expected} == expected

    first = ended()
    asked(first)
    second = ended()
    world.crash()  # what it replays it remembers
    asked({**first, **second, list(first)[3]: UowState.BACKED_OUT, list(second)[3]: UowState.BACKED_OUT})
    for _ in range(2 * MAX_ENDED):
        world.qm.begin().backout()
    state = world.qm._engine.state
    assert not second.keys() & (state.ended.keys() | state.ended_before.keys()), "there is an end to it"
    for number, outcome in [*second.items()][:3]:
        assert world.qm.outcome(number) is outcome


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_what_ended_just_now_is_found_at_the_end_of_a_long_log(log_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log was read from its beginning, however long it was: producers that asked at a time held up all others."""
    world = World(log_type=log_type, log_primary_files=8)

    def fill() -> None:
        for _ in range(20):
            world.qm.put("B", bytes(50_000))
            world.qm.get("B")
        world.qm.checkpoint()

    def extents_read(number: int, expected: UowState) -> list[int]:
        forget(world.qm)
        read = list[int]()
        with monkeypatch.context() as patched:
            patched.setattr(LogReader, "_open_view", lambda self, at: read.append(at) or open_view(self, at))
            assert world.qm.outcome(number) is expected
        return sorted(read)

    open_view = LogReader._open_view
    for name in ("A", "B"):
        world.qm.define_queue(name)
    fill()
    early = world.qm.begin(XID)
    early.put("A", b"y")
    early.prepare()
    fill()
    late, undone, lost = (world.qm.begin() for _ in range(3))
    for unit in (late, undone, lost):
        unit.put("A", b"x")
    early.commit()
    undone.backout()
    late.commit()
    newest = world.qm._log.buffer.tail // world.qm._log.state.extent_bytes
    assert newest - world.qm._log.reaches_back_to() // world.qm._log.state.extent_bytes >= 6
    for unit, expected in ((late, UowState.COMMITTED), (undone, UowState.BACKED_OUT), (early, UowState.COMMITTED)):
        assert extents_read(unit.id, expected) == [newest]
    world.crash(LOSE_ALL)
    assert min(extents_read(lost.id, UowState.BACKED_OUT)) >= newest - 1, "nothing of it was logged: how far it looks"
    assert min(extents_read(late.id, UowState.COMMITTED)) >= newest - 1
    fill()
    assert min(extents_read(late.id, UowState.COMMITTED)) >= newest - 1
    assert min(extents_read(early.id, UowState.COMMITTED)) >= newest - 1


def test_no_outcome_is_hidden_by_the_ends_of_extents() -> None:
    world = World(log_type="linear")
    qm = world.qm
    qm.define_queue("A")
    expected = dict[int, UowState]()
    for number in range(300):
        unit = qm.begin()
        unit.put("A", bytes(number * 37 % 9000))
        unit.commit() if number % 3 else unit.backout()
        expected[unit.id] = UowState.COMMITTED if number % 3 else UowState.BACKED_OUT
    lost = qm.begin()
    lost.put("A", b"x" * 100_000)
    expected[lost.id] = UowState.BACKED_OUT
    qm = world.crash(LOSE_ALL)
    forget(qm)
    assert qm._log.buffer.tail > 4 * qm._log.state.extent_bytes
    assert {number: qm.outcome(number) for number in expected} == expected
    qm.checkpoint()
    assert {number: qm.outcome(number) for number in expected} == expected


@pytest.mark.parametrize("kind", ["open", "read"])
def test_an_extent_that_can_not_be_read_just_now_hides_no_outcome(kind: str) -> None:
    world = World(log_type="linear", log_secondary_files=14)
    qm = world.qm
    for name in ("A", "B"):
        qm.define_queue(name)
    unit = qm.begin()
    unit.put("A", b"x")
    unit.commit()
    while qm._log.buffer.tail < 5 * qm._log.state.extent_bytes:
        qm.put("B", bytes(50_000))
        qm.get("B")
        qm.checkpoint()
    forget(qm)
    assert qm.outcome(unit.id) is UowState.COMMITTED
    paths = [place.path for place in qm._log.history().places().values()]
    for path in paths[:-1]:
        for nth in range(1, 9):
            world.disk.fail(kind, errno.EIO, nth=nth, where=path.__eq__)
            try:
                assert qm.outcome(unit.id) is UowState.COMMITTED
            except Unavailable as exc:
                assert path in str(exc)
            world.disk.heal()


def test_what_is_written_over_while_it_is_read_hides_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small circular log: others fill it while the outcome is looked for from the last checkpoint on."""
    world = World(log_primary_files=6)
    qm = world.qm
    for name in ("A", "B"):
        qm.define_queue(name)

    def fill(count: int) -> None:
        for _ in range(count):
            qm.put("B", bytes(50_000))
            qm.get("B")
        qm.checkpoint()

    fill(40)  # the ring is full of what no restart needs
    checkpoint = qm._log.state.checkpoint
    for _ in range(16):
        qm.put("B", bytes(50_000))
        qm.get("B")
    with qm.begin() as unit:
        unit.put("A", b"x")
    assert qm._log.state.checkpoint == checkpoint
    forget(qm)
    began = [qm._log.reaches_back_to()]

    def write_over() -> None:
        monkeypatch.undo()
        fill(24)
        assert qm._log.reaches_back_to() > checkpoint, "where it is read"
        began.append(qm._log.reaches_back_to())

    monkeypatch.setattr(world.clock, "give_way", write_over)
    assert qm.outcome(unit.id) is UowState.COMMITTED
    assert began[0] < began[1]


def test_what_began_behind_a_checkpoint_that_the_log_still_has_is_known_to_be_backed_out() -> None:
    """A circular log has gone round: it was "the log has it no more", of a unit that had only just been backed out."""
    world = World(log_primary_files=2)
    for name in ("A", "B"):
        world.qm.define_queue(name)

    def fill() -> None:
        for _ in range(40):
            world.qm.put("B", bytes(50_000))
            world.qm.get("B")
        world.qm.checkpoint()

    fill()
    idle = world.qm.begin()
    fill()
    assert world.qm._log.reaches_back_to() > world.qm._log.state.extent_bytes, "its beginning is written over"
    undone = world.qm.begin()
    undone.put("A", b"x")
    undone.backout()
    forget(world.qm)
    assert world.qm.outcome(undone.id) is UowState.BACKED_OUT
    fill()
    idle.backout()
    forget(world.qm)
    assert world.qm.outcome(idle.id) is None, "it is older than all that there is"
    flying = world.qm.begin()
    flying.put("A", b"x")
    done = world.qm.begin()
    done.put("A", b"y")
    done.commit()
    world.crash(LOSE_ALL)
    assert world.qm.outcome(flying.id) is UowState.BACKED_OUT
    assert world.qm.outcome(done.id) is UowState.COMMITTED
    fill()
    fill()
    forget(world.qm)
    assert world.qm.outcome(done.id) is None


def test_what_an_end_in_order_keeps_of_non_persistent_messages_was_committed() -> None:
    """A crash takes such messages, and the unit of work with them; an end in order may keep them."""
    world = World()
    world.qm.define_queue("A", non_persistent_class="HIGH")
    units = []
    for _ in range(MAX_UNLOGGED + 1):
        with world.qm.begin() as unit:
            unit.put("A", b"x", persistent=False)
            units.append(unit.id)
    undone = world.qm.begin()
    undone.put("A", b"y", persistent=False)
    undone.backout()
    for _ in range(2):
        world.restart()
        assert world.qm.queue("A").depth == len(units)
        assert world.qm.outcome(units[0]) is None, "it is remembered no more"
        assert {world.qm.outcome(number) for number in units[1:]} == {UowState.COMMITTED}
        assert world.qm.outcome(undone.id) is UowState.BACKED_OUT
    world.crash(LOSE_ALL)
    assert world.qm.queue("A").depth == 0
    assert {world.qm.outcome(number) for number in units[-3:]} == {UowState.BACKED_OUT}


def test_what_an_end_in_order_has_kept_is_not_committed_after_a_crash_without_a_checkpoint() -> None:
    """That of the end is still the last one, but the messages that it has kept are gone."""
    world = World()
    world.qm.define_queue("A", non_persistent_class="HIGH")
    with world.qm.begin() as unit:
        unit.put("A", b"x", persistent=False)
    world.qm.end()
    world.disk.fail(("write", "create"), errno.ENOSPC, once=False, where=lambda path: "amqalchk" in path)
    world.start()
    assert world.qm.outcome(unit.id) is UowState.COMMITTED
    world.qm.put("A", b"forces the log", persistent=True)
    world.disk.heal()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"forces the log"]
    assert world.qm.outcome(unit.id) is UowState.BACKED_OUT


def test_a_number_that_nobody_has_had_is_refused() -> None:
    world = World()
    world.qm.define_queue("A")
    unit = world.qm.begin()
    with pytest.raises(Mistake, match="no unit of work has had"):
        world.qm.outcome(unit.id + 1)
    assert world.qm.outcome(unit.id) is UowState.ACTIVE
    unit.backout()


def test_nobody_hears_that_a_unit_is_prepared_before_that_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.qm.define_queue("A")
    unit = world.qm.begin(XID)
    unit.put("A", b"x")
    log = world.qm._log
    with monkeypatch.context() as patched:
        patched.setattr(log, "force", lambda end: None)  # another thread's prepare, which has come no further
        unit.prepare()
    assert log.durable < log.buffer.tail
    assert world.qm.outcome(unit.id) is UowState.PREPARED
    assert log.durable == log.buffer.tail
    world.crash(LOSE_ALL)
    assert world.qm.outcome(unit.id) is UowState.PREPARED
