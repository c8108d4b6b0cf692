"""Deep queues: most messages are on disk alone, and nobody can tell but by looking at memory.

Everything is small: a queue keeps about four messages in memory, a block has a dozen, a segment a few blocks.
"""

import contextlib
import errno
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import qmgr
from qmgr import engine, media, queue_snapshot, segment_writer, segments, snapshot, store
from qmgr.entry import OVERHEAD
from qmgr.finding import Finding
from qmgr.segment_format import size_of_cell
from qmgr.segment_reader import SegmentReader
from recovery import checkpoint
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, Call, World, bodies, drain, reason_of
from tests.sim.life import Life, Setup
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed
from tests.sim.paging import BLOCK_BYTES, INDEX_BYTES, PAGE, SEGMENT_BYTES, SURPLUS_BYTES, Counted, files, inside, paged
from tests.test_crash import always, mixes, sweep, work_on

pytestmark = pytest.mark.usefixtures("small_segments")

BUFFER = 2000
XID = qmgr.Xid(1, b"deep", b"")
ONE = OVERHEAD + 100  # bytes of a small message in memory, about
A_BLOCK = BLOCK_BYTES // 100 * ONE  # bytes that a block of small messages takes in memory, about


def deep_world(**options: Any) -> World:
    world = World(
        ini={"DefaultPQBufferSize": str(BUFFER), "DefaultQBufferSize": str(BUFFER)} | options.pop("ini", {}), **options
    )
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    return world


def body(n: int) -> bytes:
    return b"%d" % n


def fill(world: World, numbers: Iterable[int], *, priorities: int = 1, checkpoints: int = 40, **options: Any) -> None:
    """Put numbers to A, `n % priorities` as the priority; a checkpoint after so many, and one at the end."""
    for n in numbers:
        world.qm.put("A", body(n), priority=n % priorities, correlation_id=tag(n % 7), message_id=tag(n), **options)
        if n % checkpoints == checkpoints - 1:
            world.qm.checkpoint()
    world.qm.checkpoint()


def tag(n: int) -> bytes:
    return (n + 1).to_bytes(24, "big")  # zeros alone would ask for a new one


def ordered(numbers: Iterable[int], priorities: int = 1) -> list[bytes]:
    return [body(n) for n in sorted(numbers, key=lambda n: (-(n % priorities), n))]


def deep(world: World, queue: str = "A") -> int:
    """How many messages of the queue are on disk alone."""
    return paged(inside(world.qm, queue))


def memory(world: World, queue: str = "A") -> int:
    return sum(inside(world.qm, queue).memory_bytes)


# -- order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", ["PRIORITY", "FIFO"])
@pytest.mark.parametrize("again", ["live", "restart", "crash"])
def test_the_order_of_delivery_is_that_of_any_queue(sequence: str, again: str) -> None:
    world = deep_world()
    world.qm.alter_queue("A", delivery_sequence=sequence)
    fill(world, range(300), priorities=10)
    if again == "restart":
        world.restart()
    elif again == "crash":
        world.crash(LOSE_ALL)
    assert deep(world) >= 290
    expected = ordered(range(300), 10 if sequence == "PRIORITY" else 1)
    assert bodies(world.qm, "A") == expected
    assert drain(world.qm, "A") == expected
    assert (deep(world), memory(world), world.depths()["A"]) == (0, 0, 0)


@pytest.mark.parametrize("sequence", ["PRIORITY", "FIFO"])
def test_who_looks_at_many_messages_with_one_id_reads_each_of_them_about_once(
    sequence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: all that is read in one go is read with the queue manager locked."""
    world = deep_world()
    world.qm.alter_queue("A", delivery_sequence=sequence)
    for n in range(600):
        world.qm.put("A", body(n), priority=n % 2, correlation_id=tag(n % 7 > 0))
        if n % 50 == 49:
            world.qm.checkpoint()
    wanted = [n for n in range(600) if n % 7]
    if sequence == "PRIORITY":
        wanted.sort(key=lambda n: -(n % 2))
    assert deep(world) > 500
    read = 0
    real = SegmentReader.read_one

    def counted(*given: Any) -> Any:
        nonlocal read
        read += 1
        return real(*given)

    monkeypatch.setattr(SegmentReader, "read_one", counted)
    assert [message.body for message in world.qm.browse("A", correlation_id=tag(1))] == [body(n) for n in wanted]
    assert len(wanted) - 100 < read < 2 * len(wanted)


def test_the_order_can_be_altered_while_messages_are_paged() -> None:
    world = deep_world()
    fill(world, range(200), priorities=4)
    left = set(range(200))
    for turn in range(12):
        fifo = turn % 2 == 1
        world.qm.alter_queue("A", delivery_sequence="FIFO" if fifo else "PRIORITY")
        expected = ordered(left, 1 if fifo else 4)
        assert bodies(world.qm, "A") == expected
        got = [world.qm.get("A").body for _ in range(9)]
        assert got == expected[:9]
        left -= {int(one) for one in got}
        if turn % 3 == 0:
            world.qm.checkpoint()
        if turn == 7:
            world.crash(LOSE_ALL)
    assert drain(world.qm, "A") == ordered(left, 1)


@pytest.mark.parametrize("limit", [1, 2, 13, 14, 40, 1000])
def test_get_many_goes_over_the_borders_of_blocks_and_segments(limit: int) -> None:
    world = deep_world()
    fill(world, range(250), priorities=3)
    got: list[bytes] = []
    while some := world.qm.get_many("A", limit):
        assert len(some) == min(limit, 250 - len(got))
        got += [message.body for message in some]
    assert got == ordered(range(250), 3)


def test_messages_that_are_put_meanwhile_come_in_their_turn() -> None:
    """What is put goes behind what is paged, of its priority."""
    world = deep_world()
    fill(world, range(200), priorities=3)
    left = set(range(200))
    rng = random.Random(1)
    for n in range(200, 500):
        world.qm.put("A", body(n), priority=n % 3, persistent=n % 5 != 0)
        left.add(n)
        if rng.random() < 0.6:
            expected = ordered(left, 3)[0]
            assert world.qm.get("A").body == expected
            left.remove(int(expected))
        if rng.random() < 0.1:
            world.qm.checkpoint()
            assert bodies(world.qm, "A") == ordered(left, 3)
    assert drain(world.qm, "A") == ordered(left, 3)


def test_fifo_passes_over_expired_messages_in_the_order_of_arrival() -> None:
    """Those of one priority that are in memory have expired; the next one that counts has to be read first."""
    world = deep_world()
    world.qm.alter_queue("A", delivery_sequence="FIFO")
    for n in range(80):
        world.qm.put("A", body(n), priority=9 if n < 60 else 0, expiry=1.0 if n < 30 else None)
    world.qm.checkpoint()
    world.clock.advance(5)
    assert world.qm.get("A").body == body(30)
    assert [message.body for message in world.qm.get_many("A", 5)] == [body(n) for n in range(31, 36)]
    assert drain(world.qm, "A") == [body(n) for n in range(36, 80)]


# -- units of work -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["live", "checkpoint", "restart", "crash"])
def test_messages_given_back_find_their_old_places(again: str) -> None:
    world = deep_world()
    fill(world, range(200), priorities=2)
    unit = world.qm.begin()
    got = [message.body for message in unit.get_many("A", 30)]
    got += [unit.get("A", message_id=tag(n)).body for n in (198, 77, 120, 2)]
    unit.put("A", b"never there")
    assert bodies(world.qm, "A") == [one for one in ordered(range(200), 2) if one not in got]
    world.qm.checkpoint()
    assert bodies(world.qm, "A") == [one for one in ordered(range(200), 2) if one not in got]
    unit.backout()
    if again == "checkpoint":
        world.qm.checkpoint()
    elif again == "restart":
        world.restart()
    elif again == "crash":
        world.qm.put("B", b"forces the log")
        world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == ordered(range(200), 2)
    assert {message.body: message.backout_count for message in world.qm.browse("A")} == {
        body(n): int(body(n) in got) for n in range(200)
    }
    assert world.depths()["A"] == 200
    world.qm.checkpoint()
    assert drain(world.qm, "A") == ordered(range(200), 2)


@pytest.mark.parametrize("outcome", ["commit", "backout"])
def test_a_prepared_unit_keeps_paged_messages_over_checkpoints_and_restarts(outcome: str) -> None:
    world = deep_world()
    fill(world, range(200), priorities=2)
    unit = world.qm.begin(XID)
    got = {int(message.body) for message in unit.get_many("A", 40)}
    got |= {int(unit.get("A", message_id=tag(n)).body) for n in (0, 66, 190)}
    for n in range(200, 220):
        unit.put("A", body(n))
    unit.prepare()
    left = set(range(200)) - got
    for turn in range(4):
        world.qm.checkpoint()
        for _ in range(15):
            left.remove(int(world.qm.get("A").body))
        assert bodies(world.qm, "A") == ordered(left, 2)
        if turn % 2:
            world.restart()
        else:
            world.crash(mixed(turn))
        assert world.qm.in_doubt() == [XID]
        assert bodies(world.qm, "A") == ordered(left, 2)
    world.qm.resolve(XID, commit=outcome == "commit")
    if outcome == "commit":
        expected = ordered(left, 2)
        put = [body(n) for n in range(200, 220)]
        zeros = [one for one in expected if int(one) % 2 == 0]
        expected = [one for one in expected if int(one) % 2] + zeros + put
    else:
        expected = ordered(left | got, 2)
    world.qm.checkpoint()
    assert bodies(world.qm, "A") == expected
    world.crash(LOSE_ALL)
    assert drain(world.qm, "A") == expected


# -- by id ---------------------------------------------------------------------------------------------------------


def test_messages_are_found_by_their_ids_wherever_they_are(small_segments: Counted) -> None:
    """Also those put since, given back, locked and gone; the arrays of all segments do not fit their bound."""
    world = deep_world()
    fill(world, range(400), priorities=2, checkpoints=30)
    assert len(files(world.disk)) > 4
    left = set(range(400))
    rng = random.Random(2)
    for turn in range(120):
        n = rng.randrange(400 + turn)
        if n in left:
            assert world.qm.get("A", message_id=tag(n)).body == body(n)
            left.remove(n)
        else:
            with pytest.raises(qmgr.NoMessageAvailable):
                world.qm.get("A", message_id=tag(n))
        k = rng.randrange(7)
        mine = [one for one in ordered(left, 2) if int(one) % 7 == k]
        if turn % 10 == 0:
            assert [m.body for m in world.qm.browse("A", correlation_id=tag(k))] == mine
        if turn % 10 == 5:
            with pytest.raises(RuntimeError), world.qm.begin() as unit:
                assert [m.body for m in unit.get_many("A", 3, correlation_id=tag(k))] == mine[:3]
                raise RuntimeError
        assert world.qm.get("A", correlation_id=tag(k)).body == mine[0]
        left.remove(int(mine[0]))
        world.qm.put("A", body(400 + turn), message_id=tag(400 + turn), correlation_id=tag((400 + turn) % 7),
                     priority=turn % 2)  # fmt: skip
        left.add(400 + turn)
        if turn % 25 == 24:
            world.qm.checkpoint()
            assert deep(world) > 100
    assert small_segments.calls["_unpage"] > 20
    assert small_segments.calls["_take_paged"] > 100
    assert small_segments.calls["learn"] > 30
    assert world.qm._engine.state.arrays.bytes <= INDEX_BYTES + 12 * 100
    assert drain(world.qm, "A") == ordered(left, 2)


def test_threads_get_each_message_once_by_its_id_while_segments_are_rewritten(
    small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read without the lock may be rewritten, or gone, by then."""
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)
    world = World(ini={"DefaultPQBufferSize": "1", "CheckPointLogRecdMax": "60"}, start=False, log_primary_files=4)
    qm = qmgr.start(NAME, data_path=DATA, disk=world.disk, background=True)
    qm.define_queue("A")
    count = 600
    for n in range(count):
        qm.put("A", body(n), message_id=tag(n), correlation_id=tag(n % 50))
    got: list[list[bytes]] = [[], [], []]

    half_way = threading.Barrier(3)  # most of each segment is gone by then, and not all
    taken, changed = 0, threading.Condition()

    def await_checkpoint() -> None:
        """One that begins from now on."""
        with changed:
            enough = taken + 2
            assert changed.wait_for(lambda: taken >= enough, timeout=60)

    def by_id(mine: list[bytes], seed: int) -> None:
        numbers = [n for n in range(count) if n % 2]
        random.Random(seed).shuffle(numbers)
        for k, n in enumerate(numbers):
            if k == len(numbers) // 2:
                half_way.wait(60)
            if k % 50 == 0:
                await_checkpoint()
            with contextlib.suppress(qmgr.NoMessageAvailable):
                mine.append(qm.get("A", message_id=tag(n)).body)

    def by_group(mine: list[bytes]) -> None:
        for k in range(0, 50, 2):
            mine += [message.body for message in qm.get_many("A", 1000, correlation_id=tag(k))]
        half_way.wait(60)

    done = threading.Event()

    def checkpoints() -> None:
        nonlocal taken
        while not done.wait(0.002):
            qm.checkpoint()
            with changed:
                taken += 1
                changed.notify_all()

    rewriter = Call(checkpoints)
    calls = [Call(lambda: by_id(got[0], 1)), Call(lambda: by_id(got[1], 2)), Call(lambda: by_group(got[2]))]
    for call in calls:
        call.outcome()
    done.set()
    rewriter.outcome()
    assert sorted(one for mine in got for one in mine) == sorted(body(n) for n in range(count))
    assert qm.status().messages == 0
    assert small_segments.calls.get("_replace", 0) > 0
    qm.end()


def test_files_that_messages_were_found_in_are_closed_with_their_segments(
    small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a file that nobody can name any more takes of the disk is given back when nobody has it open."""
    monkeypatch.setattr(store, "MAX_INDEX_BYTES", 1 << 20)
    world = deep_world()
    fill(world, range(400))
    before = world.disk.open_files
    for n in range(0, 400, 10):
        assert world.qm.get("A", message_id=tag(n)).body == body(n)
    assert world.disk.open_files - before == len(world.qm._store.files) > 3
    reads = world.disk.counts["open"]
    for n in range(5, 400, 10):
        assert world.qm.get("A", message_id=tag(n)).body == body(n)
    assert world.disk.counts["open"] == reads
    for n in set(range(400)) - set(range(0, 400, 5)) - set(range(3, 400, 20)):
        world.qm.get("A", message_id=tag(n))
    world.qm.checkpoint()
    assert small_segments.calls.get("_replace", 0) > 0
    there = {path.split("/")[-1] for path in files(world.disk)}
    assert {f"{number:08d}.seg" for number in world.qm._store.files._files} <= there
    assert world.qm.get("A", message_id=tag(3)).body == body(3)
    world.qm.delete_queue("A", purge=True)
    assert world.disk.open_files == before
    world.qm.end()
    assert world.disk.open_files == 0


def test_files_that_are_only_left_open_make_way_for_a_checkpoint_and_for_the_log() -> None:
    """Where descriptors run out. They were refused, although some could be given back."""
    world = deep_world(log_secondary_files=1)
    qm, disk = world.qm, world.disk
    fill(world, range(300))

    def no_descriptor_left() -> None:
        disk.max_open = None
        for n in range(0, 300, 50):
            assert next(qm.browse("A", message_id=tag(n))).body == body(n)
        assert len(qm._store.files) > 1  # a segment and its directory are open at a time
        disk.max_open = disk.open_files

    no_descriptor_left()
    qm.put("A", b"new")
    qm.checkpoint()
    with pytest.raises(qmgr.ResourceProblem):
        for n in range(200):  # which stay in the log: no checkpoint can make room
            no_descriptor_left()
            unit = qm.begin(qmgr.Xid(1, b"%d" % n, b""))
            unit.put("B", bytes(10_000))
            unit.prepare()
    assert qm.status().log.files == 3


def test_damage_is_found_in_a_file_that_is_open() -> None:
    world = deep_world()
    fill(world, range(100))
    assert world.qm.get("A", message_id=tag(50)).body == body(50)
    for path in files(world.disk):
        live = world.disk._file(path).own_live()
        live[:] = live.replace(tag(51), tag(1 << 60))
    with pytest.raises(qmgr.Damaged, match="is damaged in cell"):
        world.qm.get("A", message_id=tag(51))


def test_what_a_segment_grows_by_is_found_by_its_id_too() -> None:
    """Although nobody was told of it but by the checkpoint that appended it."""
    world = deep_world()
    for begin in range(0, 90, 30):
        fill(world, range(begin, begin + 30))
        for n in (begin, begin + 15, begin + 29):
            assert world.qm.get("A", message_id=tag(n)).body == body(n)
    assert len(inside(world.qm, "A").segments) < 9
    world.qm.end()
    assert world.disk.open_files == 0


def test_the_arrays_of_a_queue_that_is_deleted_are_dropped() -> None:
    world = deep_world()
    fill(world, range(100))
    list(world.qm.browse("A", message_id=tag(3)))
    list(world.qm.browse("A", correlation_id=tag(3)))
    assert world.qm._engine.state.arrays.bytes
    world.qm.delete_queue("A", purge=True)
    assert world.qm._engine.state.arrays.bytes == 0


# -- browse --------------------------------------------------------------------------------------------------------


def test_a_browse_reads_what_is_paged_and_leaves_memory_alone() -> None:
    world = deep_world()
    fill(world, range(300), priorities=2)
    before = memory(world)
    assert bodies(world.qm, "A") == ordered(range(300), 2)
    assert next(iter(world.qm.browse("A", message_id=tag(200)))).body == body(200)
    assert memory(world) == before <= BUFFER


def test_a_browse_shows_what_is_there_when_its_turn_comes() -> None:
    """What is got, or locked, after the browse began is not shown; what is put after it is not either."""
    world = deep_world()
    fill(world, range(200))
    for take in ("get", "unit", "by id", "checkpoint between"):
        left = [int(one) for one in bodies(world.qm, "A")]
        browse = world.qm.browse("A")
        assert int(next(browse).body) == left[0]
        unit = world.qm.begin()
        if take == "by id":
            gone = left[5:30:3]
            for n in gone:
                world.qm.get("A", message_id=tag(n))
        else:
            gone = left[1:21]
            (unit if take == "unit" else world.qm).get_many("A", 1)
            (unit if take == "unit" else world.qm).get_many("A", 20)
            gone = left[:21]
        if take == "checkpoint between":
            world.qm.checkpoint()
        world.qm.put("A", body(1000 + left[0]))
        assert [int(message.body) for message in browse] == [n for n in left[1:] if n not in gone], take
        unit.backout()


def test_a_browse_goes_on_while_segments_are_rewritten(small_segments: Counted) -> None:
    """What it had looked up was gone from a segment that is no more."""
    world = deep_world()
    fill(world, range(400))
    left = set(range(400))
    for n in range(400):
        if n % 8 and n > 20:
            world.qm.get("A", message_id=tag(n))
            left.remove(n)
    browse = world.qm.browse("A")
    first = int(next(browse).body)
    gone = sorted(left)[3:9]
    for n in gone:
        world.qm.get("A", message_id=tag(n))
    world.qm.checkpoint()
    assert small_segments.calls["_replace"] >= 1
    assert [int(message.body) for message in browse] == [n for n in sorted(left) if n not in gone and n > first]


# -- expiry --------------------------------------------------------------------------------------------------------


def test_paged_messages_expire_and_are_swept() -> None:
    world = deep_world(ini={"ExpiryInterval": "10"})
    for n in range(200):
        world.qm.put("A", body(n), priority=n % 2, expiry={0: None, 1: 5.0, 2: 25.0}[n % 3])
    world.qm.checkpoint()
    assert deep(world) > 190
    for seconds, there in ((11, {0, 2}), (11, {0, 2}), (11, {0})):
        world.clock.advance(seconds)
        world.qm.put("B", b"")  # a call that does the housekeeping
        assert world.depths()["A"] == sum(n % 3 in there for n in range(200))
        world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert drain(world.qm, "A") == ordered(range(0, 200, 3), 2)


def test_expired_messages_are_passed_over_where_they_are_paged() -> None:
    """Without a sweep: gets, browses and gets by id find nothing whose time is over."""
    world = deep_world()
    for n in range(200):
        world.qm.put("A", body(n), expiry=5.0 if n % 4 else None, message_id=tag(n), correlation_id=tag(n % 7))
    world.qm.checkpoint()
    world.restart()
    world.clock.advance(6)
    assert bodies(world.qm, "A") == ordered(range(0, 200, 4))
    with pytest.raises(qmgr.NoMessageAvailable):
        world.qm.get("A", message_id=tag(101))
    assert world.qm.get("A", correlation_id=tag(0)).body == body(0)
    assert world.qm.get("A", correlation_id=tag(0)).body == body(28)
    assert drain(world.qm, "A") == ordered(set(range(0, 200, 4)) - {0, 28})
    assert world.depths()["A"] == 0


def test_a_sweep_reads_only_blocks_in_which_something_has_expired(small_segments: Counted) -> None:
    world = deep_world(ini={"ExpiryInterval": "10"})
    for n in range(300):
        world.qm.put("A", body(n), expiry=5.0 if n == 150 else 10_000)
    world.qm.checkpoint()
    reads = []
    for _ in range(3):
        world.clock.advance(11)
        before = world.disk.counts["read"]
        world.qm.put("B", b"")
        reads.append(world.disk.counts["read"] - before - 2)  # by whom the put is forced, of the control file
    assert small_segments.calls["sweep"] >= 3
    assert 1 <= sum(reads) <= 2
    assert world.depths()["A"] == 299


def test_what_a_sweep_has_found_may_be_paged_out_before_it_is_removed() -> None:
    """The sweep lets go of the lock between two hundreds; a checkpoint of another thread comes in between."""
    world = deep_world(ini={"ExpiryInterval": "10"})
    world.qm.alter_queue("A", buffer_size=1_000_000)
    for n in range(400):
        world.qm.put("A", body(n), expiry=5.0 if n < 300 else None)
    world.qm.checkpoint()
    world.qm.alter_queue("A", buffer_size=1)
    engine = world.qm._engine
    engine.lock = between = Between(engine.lock, 4, world.qm._checkpointer.take)  # type: ignore[assignment]
    world.clock.advance(11)
    world.qm._housekeeper._sweeper.sweep()
    assert between.done
    assert world.depths()["A"] == 100
    assert bodies(world.qm, "A") == [body(n) for n in range(300, 400)]
    assert memory(world) >= 0
    assert drain(world.qm, "A") == [body(n) for n in range(300, 400)]
    assert (world.depths()["A"], deep(world), memory(world)) == (0, 0, 0)


class Between:
    """A lock; after it was released for the n-th time somebody else does something."""

    def __init__(self, lock: Any, turns: int, call: Callable[[], object]) -> None:
        self.lock = lock
        self.turns = turns
        self.call = call
        self.done = False

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self.lock.release()
        self.turns -= 1
        if self.turns == 0:
            self.call()
            self.done = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lock, name)


# -- an end in order -----------------------------------------------------------------------------------------------


def test_non_persistent_messages_are_kept_over_an_end_in_order_beside_paged_ones() -> None:
    """NPMCLASS(HIGH); they stand between paged messages, and are in memory alone afterwards."""
    world = deep_world()
    world.qm.alter_queue("A", non_persistent_class="HIGH")
    for n in range(200):
        world.qm.put("A", body(n), priority=n % 2, persistent=n % 4 != 0, message_id=tag(n))
        if n % 50 == 49:
            world.qm.checkpoint()
    assert deep(world) > 190
    for turn in range(3):
        world.restart()
        assert bodies(world.qm, "A") == ordered(range(200), 2)
        assert world.depths()["A"] == 200
        if turn == 1:
            assert next(iter(world.qm.browse("A", message_id=tag(100)))).body == body(100)
            world.qm.checkpoint()
    with pytest.raises(RuntimeError), world.qm.begin() as unit:
        assert unit.get("A", message_id=tag(100)).body == body(100)
        raise RuntimeError
    assert drain(world.qm, "A") == ordered(range(200), 2)


@pytest.mark.parametrize("commit", [True, False])
def test_a_non_persistent_message_got_in_a_unit_that_is_in_doubt_does_not_come_back(commit: bool) -> None:
    """NPMCLASS(HIGH): the unit has it, whatever becomes of that after the restart; it is not got twice."""
    world = deep_world()
    world.qm.alter_queue("A", non_persistent_class="HIGH")
    for n in range(40):
        world.qm.put("A", body(n), persistent=n % 2 == 0)
    world.qm.checkpoint()
    unit = world.qm.begin(XID)
    assert len(unit.get_many("A", 10)) == 10
    unit.prepare()
    world.restart()
    assert bodies(world.qm, "A") == ordered(range(10, 40))
    world.qm.resolve(XID, commit=commit)
    assert drain(world.qm, "A")[-30:] == ordered(range(10, 40))


def test_a_crash_after_a_start_without_a_checkpoint_does_not_bring_back_what_was_got() -> None:
    """NPMCLASS(HIGH): the last checkpoint is still that of the end in order, but the log went on behind it."""
    world = deep_world()
    world.qm.alter_queue("A", non_persistent_class="HIGH")
    for n in range(40):
        world.qm.put("A", body(n), persistent=False)
    world.qm.end()
    world.disk.fail(("write", "create"), errno.ENOSPC, once=False, where=lambda path: "amqalchk" in path)
    world.start()
    assert drain(world.qm, "A") == ordered(range(40))
    world.qm.put("B", b"forces the log")
    world.disk.heal()
    world.crash(KEEP_ALL)
    assert bodies(world.qm, "B") == [b"forces the log"]
    assert bodies(world.qm, "A") == []


def test_row_33_a_crash_takes_non_persistent_messages_from_memory_and_from_segments() -> None:
    world = deep_world()
    world.qm.alter_queue("A", non_persistent_class="HIGH")
    for n in range(200):
        world.qm.put("A", body(n), persistent=n % 4 == 0)
        if n % 30 == 29:
            world.qm.checkpoint()
    assert deep(world) > 150
    assert bodies(world.qm, "A") == ordered(range(200))
    world.restart()
    world.qm.checkpoint()
    world.crash(KEEP_ALL)
    assert bodies(world.qm, "A") == ordered(range(0, 200, 4))
    assert world.depths()["A"] == 50
    known = {f"{number:08d}.seg" for number in inside(world.qm, "A").segments}
    world.qm.checkpoint()
    world.qm.checkpoint()
    assert {path.rsplit("/", 1)[1] for path in files(world.disk)} == known


def test_non_persistent_messages_leave_memory_when_they_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record of the log counts them: a checkpoint comes by itself."""
    monkeypatch.setattr(checkpoint, "ARRIVED_MAX_BYTES", 20_000)
    world = deep_world()
    before = world.qm.status().checkpoints
    most = 0
    for n in range(300):
        world.qm.put("A", body(n), persistent=False)
        most = max(most, memory(world))
    with world.qm.begin() as unit:
        for n in range(300, 400):
            unit.put("A", body(n), persistent=False)
    assert most <= 1.3 * 20_000 + BUFFER
    assert world.qm.status().checkpoints > before + 5
    assert drain(world.qm, "A") == ordered(range(400))


def test_messages_that_are_gone_again_call_for_a_checkpoint_only_when_much_of_the_log_lies_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is nothing to move out of memory; but a restart would have to read what they left in the log."""
    monkeypatch.setattr(checkpoint, "ARRIVED_MAX_BYTES", 20_000)
    for most, taken in ((1 << 30, 0), (40_000, 1)):
        monkeypatch.setattr(checkpoint, "REPLAYED_MAX_BYTES", most)
        world = deep_world()
        world.qm.put("A", b"stays")
        before = world.qm.status().checkpoints
        for n in range(300):
            world.qm.put("A", body(n), message_id=tag(n))
            assert world.qm.get("A", message_id=tag(n)).body == body(n)
        assert len(inside(world.qm, "A").fresh[1]) < 60
        assert world.qm.status().checkpoints == before + taken
        world.crash()
        assert drain(world.qm, "A") == [b"stays"]


def test_what_came_is_not_looked_through_again_until_a_checkpoint_can_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long under the lock, and is asked at each call where the disk is full and all of it stays."""
    monkeypatch.setattr(checkpoint, "ARRIVED_MAX_BYTES", 20_000)
    world = deep_world()
    looked, unwritten = [], world.qm._engine.state.unwritten
    monkeypatch.setattr(world.qm._engine.state, "unwritten", lambda: [looked.append(1), unwritten()][1])
    world.disk.fail(("write", "create"), errno.ENOSPC, once=False, where=lambda path: "/qmgrs/" in path)
    for n in range(300):
        world.qm.put("A", body(n), persistent=False)
    assert len(looked) == 1
    world.disk.heal()
    world.clock.advance(60)
    for n in range(300, 600):
        world.qm.put("A", body(n), persistent=False)
    assert 1 < len(looked) < 20
    assert drain(world.qm, "A") == ordered(range(600))


def test_a_non_persistent_message_between_paged_ones_is_got_by_its_id() -> None:
    world = deep_world()
    for n in range(60):
        world.qm.put("A", body(n), persistent=n % 6 != 3, message_id=tag(n))
    world.qm.checkpoint()
    unit = world.qm.begin()
    for n in (33, 3, 57):
        assert unit.get("A", message_id=tag(n)).body == body(n)
    unit.backout()
    assert drain(world.qm, "A") == ordered(range(60))


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_queue_deleted_with_purge_leaves_no_file_after_two_checkpoints() -> None:
    world = deep_world()
    fill(world, range(300))
    queue = f"{DATA}/qmgrs/{NAME}/queues/A"
    assert len(files(world.disk, queue)) > 3
    world.qm.delete_queue("A", purge=True)
    assert len(files(world.disk, queue)) > 3
    world.qm.checkpoint()
    world.qm.checkpoint()
    assert files(world.disk, queue) == []
    world.qm.define_queue("A")
    assert bodies(world.qm, "A") == []
    fill(world, range(100))
    world.crash(LOSE_ALL)
    assert drain(world.qm, "A") == ordered(range(100))


def test_a_drained_queue_leaves_no_file_after_two_checkpoints() -> None:
    world = deep_world()
    fill(world, range(300))
    assert drain(world.qm, "A") == ordered(range(300))
    for _ in range(3):
        world.qm.put("A", b"x")  # a change
        world.qm.get("A")
        world.qm.checkpoint()
    assert len(files(world.disk)) <= 2
    world.crash(LOSE_ALL)
    assert world.depths()["A"] == 0


WORTHWHILE_BYTES = 4000


def total(world: World) -> int:
    """Bytes of all segments."""
    return sum(len(world.disk.peek(path)) for path in files(world.disk))


def live(world: World) -> int:
    """Bytes that the messages of queue A take in segments, and a page for each segment."""
    sizes = [size_of_cell(len(message.head) + len(message.body)) for message in world.qm.browse("A")]
    return sum(sizes) + PAGE * (len(inside(world.qm, "A").segments) + 1)  # the last one begins and ends with one


def test_segments_of_which_most_is_gone_are_rewritten(small_segments: Counted) -> None:
    """The files stay below twice what is there, and a little more; the messages are all there, live and afterwards."""
    world = deep_world()
    fill(world, range(600), priorities=3)
    rng = random.Random(3)
    left = set(range(600))
    for turn in range(20):
        for n in rng.sample(sorted(left), 25):
            assert world.qm.get("A", message_id=tag(n)).body == body(n)
            left.remove(n)
        world.qm.put("A", body(1200 + turn), priority=turn % 3, message_id=tag(1200 + turn))
        left.add(1200 + turn)
        world.qm.checkpoint()
        world.qm.checkpoint()  # which deletes what the last one has replaced
        assert bodies(world.qm, "A") == ordered(left, 3)
        there = live(world)
        total = sum(len(world.disk.peek(path)) for path in files(world.disk))
        assert total <= 2 * there + SURPLUS_BYTES + SEGMENT_BYTES + 2 * PAGE, (turn, total, there)
        if turn % 5 == 4:
            world.crash(mixed(turn))
            assert bodies(world.qm, "A") == ordered(left, 3)
    assert small_segments.calls["_replace"] >= 5
    assert drain(world.qm, "A") == ordered(left, 3)


@pytest.mark.parametrize("persistent", [True, False])
def test_what_fills_up_pages_between_checkpoints_is_given_back(small_segments: Counted, persistent: bool) -> None:
    """A slow queue: each checkpoint has a message of it, and begins a page of its own."""
    world = deep_world()
    for n in range(300):
        world.qm.put("A", body(n), message_id=tag(n), persistent=persistent)
        world.qm.checkpoint()
        assert total(world) <= 2 * live(world) + SURPLUS_BYTES + 2 * SEGMENT_BYTES + 2 * PAGE, n
    for n in range(300):
        if n % 30:
            world.qm.get("A", message_id=tag(n))
    for _ in range(4):
        world.qm.checkpoint()
        world.qm.put("A", body(0))  # a change
        world.qm.get("A", message_id=world.qm.put("A", body(0)).message_id)
    assert total(world) <= 2 * live(world) + SURPLUS_BYTES + SEGMENT_BYTES + 2 * PAGE
    assert small_segments.calls["_replace"] >= 2


@pytest.mark.parametrize("persistent", [True, False])
def test_what_is_got_gives_its_room_back_though_few_records_say_so(
    monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    """Large messages take few records, so neither their count nor the time asks for a checkpoint: the room does."""
    world = deep_world()
    fill(world, range(300), persistent=persistent)
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    while world.qm.get_many("A", 5):
        there = live(world)
        assert total(world) <= 2 * there + SURPLUS_BYTES + SEGMENT_BYTES + 2 * WORTHWHILE_BYTES
    assert total(world) < SURPLUS_BYTES + 2 * WORTHWHILE_BYTES
    taken = world.qm.status().checkpoints
    for _ in range(20):
        world.qm.look_around()
    assert world.qm.status().checkpoints == taken  # what is left is no reason for another one
    world.crash(LOSE_ALL)
    assert world.depths()["A"] == 0


def test_a_deep_queue_that_is_deleted_gives_its_room_back_though_few_records_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = deep_world()
    fill(world, range(300))
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    world.qm.delete_queue("A", purge=True)
    for _ in range(2):
        world.qm.look_around()
    assert files(world.disk) == []
    world.crash(LOSE_ALL)
    assert "A" not in world.depths()


def test_a_queue_that_is_deleted_while_a_checkpoint_writes_it_gives_its_room_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = deep_world()
    for n in range(300):
        world.qm.put("A", body(n))
    real = snapshot.StateSnapshot._write_fresh

    def write(*given: Any) -> None:
        real(*given)
        if "A" in world.depths():
            world.qm.delete_queue("A", purge=True)

    monkeypatch.setattr(snapshot.StateSnapshot, "_write_fresh", write)
    world.qm.checkpoint()
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    for _ in range(3):
        world.qm.look_around()
    assert files(world.disk) == []


def test_the_small_files_of_many_queues_wait_for_the_room_of_a_checkpoint_that_comes_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = deep_world()
    for n in range(30):
        world.qm.define_queue(f"Q.{n}")
        world.qm.put(f"Q.{n}", body(n))
    world.qm.checkpoint()
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    monkeypatch.setattr(segments, "SMALL_SEGMENT_BYTES", 2000)
    assert total(world) > 3 * WORTHWHILE_BYTES
    taken = world.qm.status().checkpoints
    for n in range(30):
        world.qm.get(f"Q.{n}")
    assert world.qm.status().checkpoints == taken
    world.qm.checkpoint()  # the one that comes, after which the files are doomed
    world.qm.look_around()
    assert world.qm.status().checkpoints == taken + 1
    world.qm.checkpoint()
    assert files(world.disk) == []


def test_what_a_media_image_has_held_gives_its_room_back_when_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    world = deep_world(log_type="linear")
    fill(world, range(300))
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    real = media.Media._record

    def record(*given: Any) -> Any:
        if world.depths()["A"]:
            drain(world.qm, "A")
            looked_around(world)
            assert total(world) > 2 * WORTHWHILE_BYTES
        return real(*given)

    monkeypatch.setattr(media.Media, "_record", record)
    assert world.qm.record_image() == ["A", "B"]
    looked_around(world)
    assert files(world.disk) == []
    world.crash(LOSE_ALL)
    assert world.depths()["A"] == 0


@pytest.mark.parametrize("at_once", [64 << 20, 600])
def test_room_that_no_checkpoint_can_give_back_is_a_reason_for_one_only(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """A segment that should be rewritten can't be read: nobody tries again and again."""
    world = deep_world()
    fill(world, range(300))
    for n in range(300):
        if n % 10:
            world.qm.get("A", message_id=tag(n))

    def unreadable(*_: Any) -> Any:
        raise snapshot._Unreadable

    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    monkeypatch.setattr(snapshot.StateSnapshot, "_read", unreadable)
    monkeypatch.setattr(queue_snapshot, "REWRITE_BYTES", at_once)
    world.qm.look_around()
    taken = world.qm.status().checkpoints
    for n in range(20):
        world.qm.put("A", body(1000 + n))
    assert world.qm.status().checkpoints <= taken + 1
    assert total(world) > WORTHWHILE_BYTES
    assert bodies(world.qm, "A") == ordered([*range(0, 300, 10), *range(1000, 1020)])


def test_a_disk_that_stays_full_is_not_told_of_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that is to be given back asks for checkpoints until one is taken, also when nobody does anything."""
    world = deep_world()
    fill(world, range(300))
    keep_only(world, set(range(0, 300, 10)), 300)
    world.qm.put("A", body(300))
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)

    def told() -> int:
        for _ in range(130):
            world.clock.advance(1)
            world.qm.look_around()
        return world.errors().count("AMQ9002")

    world.disk.fail("write", errno.ENOSPC, once=False, where=lambda path: "/queues/" in path)
    assert told() == 3
    world.disk.heal()
    assert told() == 3
    assert total(world) <= 2 * WORTHWHILE_BYTES
    world.qm.put("A", body(301))
    world.disk.fail("write", errno.ENOSPC, where=lambda path: "/queues/" in path)
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", 0)
    assert told() == 4


def keep_only(world: World, kept: set[int], count: int) -> None:
    """Get all but these at once."""
    with world.qm.begin() as unit:
        for n in range(count):
            if n not in kept:
                unit.get("A", message_id=tag(n))


def looked_around(world: World) -> int:
    """Bytes that the files take beyond twice what is there, when housekeeping has done all that it wants to do."""
    for _ in range(20):
        world.qm.look_around()
    taken = world.qm.status().checkpoints
    world.qm.look_around()
    assert world.qm.status().checkpoints == taken
    return total(world) - 2 * sum(segment.live_bytes for segment in inside(world.qm, "A").segments.values())


@pytest.mark.parametrize("more", [0, 30])
def test_a_segment_that_nothing_is_appended_to_is_rewritten_though_it_is_the_last_one(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """What came between two checkpoints is one segment, however much it is."""
    world = deep_world()
    fill(world, range(300), priorities=3, checkpoints=1000)
    assert len(files(world.disk)) == 1 and total(world) > 2 * SEGMENT_BYTES
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    kept = set(range(0, 300, 30))
    keep_only(world, kept, 300)
    for n in range(300, 300 + more):
        world.qm.put("A", body(n), priority=n % 3, message_id=tag(n))
        kept.add(n)
    assert looked_around(world) <= SURPLUS_BYTES
    world.qm.put("A", b"400", priority=1, message_id=tag(400))
    world.qm.checkpoint()
    kept.add(400)
    assert bodies(world.qm, "A") == ordered(kept, 3)
    world.crash(LOSE_ALL)
    assert drain(world.qm, "A") == ordered(kept, 3)


def test_what_one_checkpoint_does_not_rewrite_the_next_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = deep_world()
    fill(world, range(600))
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    monkeypatch.setattr(queue_snapshot, "REWRITE_BYTES", 600)
    kept = set(range(0, 600, 10))
    keep_only(world, kept, 600)
    assert looked_around(world) <= SURPLUS_BYTES + 2 * WORTHWHILE_BYTES
    world.crash(LOSE_ALL)
    assert drain(world.qm, "A") == ordered(kept)


def test_what_a_checkpoint_after_a_failed_one_leaves_the_next_one_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    world = deep_world()
    fill(world, range(600))
    kept = set(range(0, 600, 10))
    keep_only(world, kept, 600)
    world.qm.put("A", body(0))
    world.disk.fail("write", errno.ENOSPC, where=lambda path: "/queues/" in path)
    with pytest.raises(qmgr.MQError):
        world.qm.checkpoint()
    monkeypatch.setattr(store, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
    assert looked_around(world) <= SURPLUS_BYTES + 2 * WORTHWHILE_BYTES


def test_messages_that_are_locked_and_in_doubt_move_with_their_segments(small_segments: Counted) -> None:
    """Their cells are others afterwards: what is gone is marked in the right one."""
    world = deep_world()
    fill(world, range(400))
    doubt, unit = world.qm.begin(XID), world.qm.begin()
    mine = {int(doubt.get("A", message_id=tag(n)).body) for n in range(5, 400, 40)}
    doubt.prepare()
    other = {int(unit.get("A", message_id=tag(n)).body) for n in range(9, 400, 40)}
    left = set(range(0, 400, 16)) - mine - other
    for n in sorted(set(range(400)) - left - mine - other):
        world.qm.get("A", message_id=tag(n))
    world.qm.checkpoint()
    assert small_segments.calls["_replace"] >= 1
    assert world.qm.get("A", message_id=tag(16)).body == body(16)
    unit.backout()
    left = (left | other) - {16}
    world.qm.checkpoint()
    assert bodies(world.qm, "A") == ordered(left)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == ordered(left)
    world.qm.resolve(XID, commit=True)
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert drain(world.qm, "A") == ordered(left)


# -- memory --------------------------------------------------------------------------------------------------------


def test_memory_is_bounded_by_the_buffer_after_each_checkpoint_and_by_a_block_more_between() -> None:
    world = deep_world()
    for n in range(1000):
        world.qm.put("A", body(n))
        if n % 50 == 49:
            world.qm.checkpoint()
            assert memory(world) <= BUFFER
    assert bodies(world.qm, "A") == ordered(range(1000))
    assert memory(world) <= BUFFER
    for n in range(1000):
        assert world.qm.get("A").body == body(n)
        assert memory(world) <= BUFFER + A_BLOCK
    world.qm.checkpoint()
    assert memory(world) == 0


@pytest.mark.parametrize("left", [0, 1])
def test_memory_is_bounded_when_a_drained_queue_fills_again(left: int) -> None:
    """Nobody gets anything meanwhile: what is put must leave memory all the same."""
    world = deep_world()
    fill(world, range(100))
    while world.depths()["A"] > left:
        world.qm.get("A")
    for turn in range(4):
        fill(world, range(100 * turn, 100 * turn + 100))
        assert memory(world) <= BUFFER
    assert drain(world.qm, "A")[left:] == ordered(range(400))


def test_memory_is_bounded_after_a_restart_too() -> None:
    world = deep_world()
    fill(world, range(1000))
    for again in (world.restart, world.crash):
        again()
        assert memory(world) <= BUFFER
        assert deep(world) >= 990
        assert world.depths()["A"] == 1000


def test_memory_is_bounded_over_many_queues() -> None:
    world = deep_world()
    for q in range(10):
        world.qm.define_queue(f"Q{q}")
        world.qm.put_many(f"Q{q}", [body(n) for n in range(100)])
    world.qm.checkpoint()
    assert all(memory(world, f"Q{q}") <= BUFFER for q in range(10))
    for q in range(10):
        assert drain(world.qm, f"Q{q}") == ordered(range(100))


def test_each_queue_may_have_a_buffer_of_its_own() -> None:
    world = deep_world()
    world.qm.define_queue("LARGE", buffer_size=50_000)
    world.qm.define_queue("SMALL", buffer_size=1)
    for queue in ("A", "LARGE", "SMALL"):
        world.qm.put_many(queue, [body(n) for n in range(90)])
    world.qm.checkpoint()
    assert (deep(world, "LARGE"), deep(world, "SMALL")) == (0, 90)
    assert 85 <= deep(world, "A") < 90
    world.restart()
    assert (deep(world, "LARGE"), deep(world, "SMALL")) == (0, 90)
    world.qm.alter_queue("LARGE", buffer_size=3000)
    world.qm.alter_queue("SMALL", buffer_size=None)
    for queue in ("LARGE", "SMALL"):
        world.qm.put(queue, body(90))
    world.qm.checkpoint()
    assert memory(world, "LARGE") <= 3000
    for queue, count in (("A", 90), ("LARGE", 91), ("SMALL", 91)):
        assert drain(world.qm, queue) == ordered(range(count))


# -- crashes and failing disks -------------------------------------------------------------------------------------


DEEP = Setup(buffer=BUFFER, secondary_files=3)


def deep_life(life: Life) -> None:
    """A queue of some segments, of which most is gone since the last checkpoint: the next one has all to do."""
    life.create()
    life.start()
    life.define("A", "deep")
    life.define("B")
    first = life.count + 1
    for turn in range(4):
        for n in range(45):
            life.put("A", size=30, priority=n % 2, correlation=n % 3)
        if turn:
            life.checkpoint()
    doubt, unit = life.begin(XID), life.begin()
    life.get("A", message_id=first + 33, unit=doubt)
    life.get("A", limit=3, unit=doubt)
    life.prepare(doubt)
    life.get("A", message_id=first + 34, unit=unit)
    rng = random.Random(5)
    there = [message.message_id for message in life.model.find("A", 1000)]
    for one in rng.sample(there, 150):
        life.get("A", message_id=int.from_bytes(one, "big"))
    life.put("A", size=30, number=20)
    life.put("B", size=5000)


def the_checkpoint(life: Life) -> None:
    life.checkpoint()


def test_the_checkpoint_appends_pages_out_rewrites_and_deletes(small_segments: Counted) -> None:
    """What the tests below rely on."""
    life = Life(DEEP)
    deep_life(life)
    before = dict(small_segments.calls)
    out = small_segments.paged_out
    life.checkpoint()
    assert small_segments.calls["_replace"] > before.get("_replace", 0)
    assert small_segments.paged_out > out
    life.checkpoint()
    assert any(kind == "unlink" and path.endswith(".seg") for kind, path in life.disk.trace)


@pytest.mark.parametrize("loss", ["kept", "lost", "mixed"])
def test_row_16_crash_at_every_change_of_a_checkpoint_of_a_deep_queue(loss: str) -> None:
    losses, offset = {"kept": (always(KEEP_ALL), 1), "lost": (always(LOSE_ALL), 0), "mixed": (mixes(3), 3)}[loss]

    def script(life: Life) -> None:
        life.checkpoint()
        life.get("A", limit=5)
        life.put("A", number=3)
        life.checkpoint()

    found = sweep(script, losses, setup=DEEP, prelude=deep_life, offset=offset, short=loss == "lost")
    assert found.states > {"kept": 4, "lost": 40, "mixed": 16}[loss]


def test_row_16_crash_inside_the_restart_of_a_deep_queue() -> None:
    life = Life(DEEP)
    deep_life(life)
    life.checkpoint()
    life.get("A", limit=9)
    life.put("A", number=9)
    for effects in range(1, 60):
        fork = life.fork(mixed(effects))
        fork.disk.crash_after(effects)
        try:
            fork.restart()
        except BaseException:
            if not fork.disk.dead:
                raise
        else:
            break
        fork.crash(mixed(effects))
        fork.restart()
        work_on(fork)
    else:
        raise AssertionError("a restart without end")
    assert effects > 5


KINDS = ("create", "write", "sync", "sync_dir", "rename", "unlink", "truncate", "open", "read", "exists")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_row_52_an_error_at_every_call_of_a_checkpoint_of_a_deep_queue(error: int) -> None:
    """For want of space it is told and nothing has changed; after another error the queue manager may stop."""
    base = Life(DEEP)
    deep_life(base)
    went = {"told": 0, "stopped": 0, "passed over": 0}
    for kind in KINDS:
        for nth in range(1, 100):
            life = base.fork(KEEP_ALL)
            life.restart()
            life.put("A", number=12)
            there = life.model.find("A", 1000)
            for message in there[::3]:
                life.get("A", message_id=int.from_bytes(message.message_id, "big")) if message.message_id else None
            fault = life.disk.fail(kind, error, nth=nth, where=lambda path: "/queues" in path or "amqalchk" in path)
            try:
                life.checkpoint()
                went["passed over"] += fault.fired
            except qmgr.MQError as exc:
                went["told" if exc.reason == qmgr.Reason.STORAGE_MEDIUM_FULL else "stopped"] += 1
                stopped = exc.reason != qmgr.Reason.STORAGE_MEDIUM_FULL
                assert not stopped or error == errno.EIO, f"{kind} {nth}: {exc!r}"
            else:
                stopped = False
            if not fault.fired:
                break
            if not stopped:
                life.check()
                life.disk.heal()
                life.checkpoint()
                life.check()
                work_on(life)
                life.checkpoint()
            for loss in (LOSE_ALL, KEEP_ALL):
                fork = life.fork(loss)
                fork.disk.heal()
                fork.restart()
                work_on(fork)
    if error == errno.ENOSPC:  # what can't be deleted is for a later one
        assert went["told"] >= 6 and went["passed over"] >= 4, went
    else:
        assert went["stopped"] >= 10, went


GETS: dict[str, Callable[[qmgr.QueueManager], object]] = {
    "get": lambda qm: qm.get("A").body,
    "get_many": lambda qm: [message.body for message in qm.get_many("A", 50)],
    "get by id": lambda qm: qm.get("A", message_id=tag(150)).body,
    "get by correlation id": lambda qm: [m.body for m in qm.get_many("A", 5, correlation_id=tag(3))],
    "browse": lambda qm: bodies(qm, "A"),
    "browse by id": lambda qm: [message.body for message in qm.browse("A", correlation_id=tag(3))],
}


@pytest.mark.parametrize("how", GETS)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_row_52_an_error_while_messages_are_read_back_is_told_and_harmless(how: str, error: int) -> None:
    base = deep_world()
    fill(base, range(200))
    disk = base.disk.snapshot(KEEP_ALL)
    told = 0
    base.crash(KEEP_ALL)
    expected = GETS[how](base.qm)
    for kind in ("open", "read"):
        first = 1 + ((error == errno.ENOSPC) is (kind == "open"))  # each error at calls of its own
        for nth in range(1, 100) if SOAK or how == "get" else range(first, 100, 3):  # a get of one reads little
            base.disk = disk
            world = base
            world.crash(KEEP_ALL)
            fault = world.disk.fail(kind, error, nth=nth, where=lambda path: path.endswith(".seg"))
            try:
                assert GETS[how](world.qm) == expected
            except qmgr.MQError as exc:
                assert reason_of(exc) == qmgr.Reason.FILE_SYSTEM_ERROR
                assert "queue 'A'" in str(exc)
                told += 1
                world.qm.put("B", b"others work")
                assert world.qm.get("B").body == b"others work"
                world.qm.put("A", body(200))
                assert GETS[how](world.qm)[: len(expected)] == expected  # type: ignore[arg-type, index]
                world.qm.checkpoint()
            if not fault.fired:
                break
        assert nth > 1
    assert told > 1


def test_row_52_an_error_in_a_sweep_stops_nobody() -> None:
    """Expired messages that can't be read now are swept another time."""
    world = deep_world(ini={"ExpiryInterval": "10"})
    fill(world, range(100), expiry=5.0)
    world.disk.fail("read", errno.EIO, where=lambda path: path.endswith(".seg"))
    world.clock.advance(11)
    world.qm.put("B", b"one")
    world.clock.advance(11)
    world.qm.put("B", b"two")
    assert world.depths()["A"] == 0


# -- damage --------------------------------------------------------------------------------------------------------


def harm(world: World, path: str, at: int) -> None:
    whole = world.disk.peek(path)
    world.disk.poke(path, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])


def put_more(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"more")


USES: dict[str, Callable[[qmgr.QueueManager], object]] = {
    "get": lambda qm: drain(qm, "A"),
    "get_many": lambda qm: qm.get_many("A", 500),
    "get in a unit": lambda qm: drain(qm.begin(), "A"),
    "get by id": lambda qm: qm.get("A", message_id=tag(299)),
    "browse": lambda qm: bodies(qm, "A"),
}


@pytest.mark.parametrize("how", USES)
def test_row_41_a_damaged_segment_costs_its_queue_and_no_other(how: str) -> None:
    """Faults 41: 2101, AMQ7472 in the error log, live and after a restart; other queues go on."""
    world = deep_world()
    world.qm.put("B", b"of another queue")
    fill(world, range(300))
    path = files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")[-1]
    harm(world, path, PAGE + 30)
    assert "AMQ7472" not in world.errors()
    with pytest.raises(qmgr.MQError) as caught:
        USES[how](world.qm)
    assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
    assert path.rsplit("/", 1)[1] in world.errors()
    assert world.errors().count("AMQ7472") == 1
    for again in (None, world.qm.checkpoint, world.restart, world.crash, lambda: world.crash(LOSE_ALL)):
        if again is not None:
            again()
        for use in [*USES.values(), put_more]:
            with pytest.raises(qmgr.MQError) as caught:
                use(world.qm)
            assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
        assert bodies(world.qm, "B") == [b"of another queue"]
        world.qm.put("B", b"more")
        assert [message.body for message in world.qm.get_many("B", 2)] == [b"of another queue", b"more"]
        world.qm.put("B", b"of another queue")
    world.qm.delete_queue("A", purge=True)
    world.qm.checkpoint()
    world.qm.checkpoint()
    assert f"{path}.damaged" in world.disk.files()
    world.restart()
    assert bodies(world.qm, "B") == [b"of another queue"]


def test_row_41_restarts_still_say_what_was_wrong_with_a_segment_that_was_set_aside() -> None:
    """Its file is missing from then on, which would tell an operator to look for it."""
    world = deep_world()
    fill(world, range(300))
    path = files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")[-1]
    harm(world, path, PAGE + 30)
    with pytest.raises(qmgr.Damaged):
        bodies(world.qm, "A")
    why = world.qm.queue("A").damaged
    assert path in why and "is damaged in the" in why
    world.qm.checkpoint()
    for again in (world.crash, world.restart, world.restart):
        again()
        assert world.qm.queue("A").damaged == why
    other = next(one for one in files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A") if one.endswith(".seg"))
    harm(world, other, 20)  # what is found later is said, and set aside as well
    world.restart()
    assert f"segment {other} is not segment" in world.qm.queue("A").damaged
    assert f"{other}.damaged" in world.disk.files()


def test_row_41_a_crash_before_the_reason_was_noted_leaves_where_a_segment_was_set_aside() -> None:
    """It was called missing, and an operator looked for it."""
    world = deep_world()
    fill(world, range(300))
    path = files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")[-1]
    world.disk.poke(f"{path}.damaged", b"of an earlier repair")
    harm(world, path, PAGE + 30)
    with pytest.raises(qmgr.Damaged, match="is damaged in the"):
        bodies(world.qm, "A")
    why = f"segment {path} is missing: it was set aside as {path}.damaged2; the error log of then says why (AMQ7472)"
    for again in (world.crash, world.restart, world.restart):
        again()
        assert world.qm.queue("A").damaged == why
    assert not any(name.endswith(".damaged3") for name in world.disk.files())


def test_row_41_what_lay_in_the_place_of_a_directory_explains_no_segment_of_the_one_that_was_made_since() -> None:
    world = deep_world(log_type="linear", log_primary_files=8)
    fill(world, range(300))
    world.qm.record_image()
    world.qm.end("immediate")
    directory = f"{DATA}/qmgrs/{NAME}/queues/A"

    def lose() -> None:
        for path in files(world.disk, directory):
            world.disk.unlink(path)

    lose()
    world.disk.rmdir(directory)
    world.disk.poke(directory, b"no directory")
    for loss in (lambda: None, lose):
        world.start()
        world.qm.recreate("A")
        fill(world, range(300, 500))
        world.qm.end("immediate")
        loss()
    world.start()
    assert f"{directory}.damaged" in world.disk.files()
    said = [line for line in world.errors().splitlines() if line.startswith("AMQ7472E")]
    assert len(said) == 2
    assert said[0].endswith(f"is missing: {directory} is no directory")
    assert said[1].endswith(".seg is missing")


def test_row_41_a_damaged_queue_is_not_deleted_while_a_unit_in_doubt_has_used_it() -> None:
    """A later restart reads again what the unit of work has done, and has to know the queue."""
    world = deep_world()
    fill(world, range(300))
    xid = qmgr.Xid(1, b"global", b"branch")
    unit = world.qm.begin(xid)
    unit.get("A")
    unit.put("B", b"of another queue")
    unit.prepare()
    harm(world, files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")[0], PAGE + 30)
    world.crash()
    with pytest.raises(qmgr.ObjectInUse, match=r"'A' is damaged, and unit of work \d+ that is in doubt has used it"):
        world.qm.delete_queue("A", purge=True)
    world.crash()
    world.qm.resolve(xid, commit=True)
    world.qm.delete_queue("A", purge=True)
    world.crash()
    assert bodies(world.qm, "B") == [b"of another queue"]


def test_row_41_damage_found_by_a_rewrite_costs_its_queue_and_no_other() -> None:
    world = deep_world()
    fill(world, range(400))
    world.qm.put("B", b"of another queue")
    for n in range(400):
        if n % 8:
            world.qm.get("A", message_id=tag(n))
    harm(world, files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")[0], PAGE + 30)
    world.qm.checkpoint()
    assert world.errors().count("AMQ7472") == 1
    for again in (None, world.restart, world.crash):
        if again is not None:
            again()
        with pytest.raises(qmgr.MQError) as caught:
            world.qm.get("A")
        assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
        assert bodies(world.qm, "B") == [b"of another queue"]
        world.qm.checkpoint()


def test_row_41_damage_found_in_replay_costs_its_queue_and_no_other() -> None:
    """A get that the log has, of a message in a segment that was damaged while the queue manager was down."""
    world = deep_world()
    fill(world, range(300))
    assert len(world.qm.get_many("A", 40)) == 40
    world.qm.put("B", b"of another queue")
    world.disk = world.disk.crash(KEEP_ALL)
    harm(world, files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")[0], PAGE + 30)
    world.start()
    assert world.errors().count("AMQ7472") == 1
    with pytest.raises(qmgr.MQError) as caught:
        world.qm.get("A")
    assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
    assert bodies(world.qm, "B") == [b"of another queue"]


def test_row_48_a_length_that_was_damaged_costs_its_queue_and_not_the_restart() -> None:
    """A replay that steps over cells to the one it looks for: what it steps over may lie about its length, or its
    sequence."""
    world = deep_world()
    fill(world, range(300))
    for n in (100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 250):  # not those that a replay reads block by block
        world.qm.get("A", message_id=tag(n))
    world.qm.put("B", b"of another queue")
    held = [(one, block) for one in inside(world.qm, "A").segments.values() for block in one.blocks[0]]
    base = world.disk.crash(KEEP_ALL)
    places = []
    for sequence in (101, 102, 105, 110, 251):
        (segment, block), *more = [(one, block) for one, block in held if block.first <= sequence <= block.last]
        assert not more
        path = f"{DATA}/qmgrs/{NAME}/queues/A/{segment.number:08d}.seg"
        lengths = block.at + 4 * (sequence - block.first)
        sequences = block.at + 4 * block.cells + 8 * (sequence - block.first)
        head = block.at + base.peek(path)[block.at : block.at + block.size].index(b"%d" % (sequence - 1))
        places += [(path, at) for at in (lengths, lengths + 3, sequences, sequences + 7, head - 80, head - 70, head)]
    for path, at in places:
        world.disk = base.snapshot(KEEP_ALL)
        harm(world, path, at)
        world.start()
        assert bodies(world.qm, "B") == [b"of another queue"]
        with pytest.raises(qmgr.MQError) as caught:
            drain(world.qm, "A")
        assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
    assert len(places) == 35


def test_row_42_a_segment_that_is_gone_or_cut_is_told_at_the_start() -> None:
    for harmed in ("gone", "cut"):
        world = deep_world()
        fill(world, range(300))
        world.qm.end()
        path = files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")[1]
        if harmed == "gone":
            world.disk.remove(path)
        else:
            world.disk.poke(path, world.disk.peek(path)[:-100])
        world.start()
        assert world.errors().count("AMQ7472") == 1
        with pytest.raises(qmgr.MQError) as caught:
            world.qm.get("A")
        assert caught.value.reason == qmgr.Reason.OBJECT_DAMAGED
        world.qm.put("B", b"works")


def test_who_puts_faster_than_checkpoints_can_write_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10: nothing else bounds how many non-persistent messages come."""
    monkeypatch.setattr(checkpoint, "ARRIVED_MAX_BYTES", 1 << 20)
    qmgr.create(NAME, data_path=tmp_path)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("A", buffer_size=10_000)
        most = 0
        for n in range(100):
            qm.put_many("A", [b"%d" % n * 500] * 100, persistent=False)
            most = max(most, qm.queue("A").memory)
        assert most <= 8 << 20
        assert qm.queue("A").depth == 10_000


def test_what_was_backed_out_leaves_memory_again() -> None:
    """Whatever was got by its id, and given back: all of it, or some of it with others paged around it."""
    for some in (range(100), range(30, 60)):
        world = deep_world()
        fill(world, range(100))
        for n in some:
            with pytest.raises(ZeroDivisionError), world.qm.begin() as unit:
                assert unit.get("A", message_id=tag(n)).body == body(n)
                raise ZeroDivisionError
        world.qm.checkpoint()
        assert memory(world) <= BUFFER + A_BLOCK
        fill(world, range(100, 110))
        assert [m.backout_count for m in world.qm.browse("A")] == [int(n in some) for n in range(110)]
        world.crash()
        assert [m.backout_count for m in world.qm.browse("A")] == [int(n in some) for n in range(110)]
        assert drain(world.qm, "A") == ordered(range(110))


@pytest.mark.interpreted
def test_what_can_not_be_kept_is_read_for_the_get_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by those before it which let others go on, for nothing."""
    monkeypatch.setattr(store, "MAX_INDEX_BYTES", 10)
    world = deep_world()
    fill(world, range(300))
    read: list[int] = []
    real = Finding.read_hashes

    def counted(queue: Any, segment: Any, *given: Any) -> Any:
        read.append(segment.number)
        return real(queue, segment, *given)

    monkeypatch.setattr(Finding, "read_hashes", counted)
    for n in (20, 250):
        read.clear()
        assert world.qm.get("A", message_id=tag(n)).body == body(n)
        assert len(set(read)) == len(inside(world.qm, "A").segments) > 3
        assert len(read) == len(set(read)) + 1


@pytest.mark.parametrize("how", ["at once", "beside a get", "before more", "again and again"])
def test_what_was_got_in_order_and_backed_out_leaves_memory_again(how: str) -> None:
    """All of it, with nothing paged any more; while another unit holds some of it; with others paged behind it."""
    world = deep_world()
    fill(world, range(100))
    other = world.qm.begin()
    if how == "beside a get":
        assert [m.body for m in other.get_many("A", 10)] == ordered(range(10))
        world.qm.checkpoint()
    for _ in range(3 if how == "again and again" else 1):
        with pytest.raises(ZeroDivisionError), world.qm.begin() as unit:
            assert len(unit.get_many("A", 200)) == (90 if how == "beside a get" else 100)
            raise ZeroDivisionError
        if how == "beside a get":
            other.get("A", message_id=tag(50))
        world.qm.checkpoint()
        held = 11 * ONE if how == "beside a get" else 0
        assert memory(world) <= BUFFER + held
    there = set(range(100))
    if how == "before more":
        fill(world, range(100, 200))
        there |= set(range(100, 200))
        assert memory(world) <= BUFFER
    if how == "beside a get":
        other.backout()
        world.qm.checkpoint()
        assert memory(world) <= BUFFER
    assert bodies(world.qm, "A") == ordered(there)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == ordered(there)
    assert drain(world.qm, "A") == ordered(there)


def test_what_comes_back_behind_all_that_is_paged_is_paged_with_it() -> None:
    """While it was locked nothing stood behind the others, so they were paged as if they were all."""
    world = deep_world()
    for n in range(100):
        world.qm.put("A", body(n), message_id=tag(n))
    with pytest.raises(ZeroDivisionError), world.qm.begin() as unit:
        for n in reversed(range(20, 100)):
            assert unit.get("A", message_id=tag(n)).body == body(n)
        world.qm.checkpoint()
        raise ZeroDivisionError
    world.qm.checkpoint()
    assert memory(world) <= BUFFER
    assert bodies(world.qm, "A") == ordered(range(100))
    assert drain(world.qm, "A") == ordered(range(100))


def test_batches_leave_memory_from_the_first_one_on_where_other_messages_fill_the_buffer() -> None:
    world = deep_world()
    for priority in (0, 9):
        world.qm.put_many("A", [body(n) for n in range(100)], priority=priority)
    world.qm.checkpoint()
    assert deep(world) >= 100
    assert bodies(world.qm, "A") == ordered(range(100)) * 2
    assert drain(world.qm, "A") == ordered(range(100)) * 2


def test_what_was_backed_out_makes_no_checkpoint_longer_than_other_messages() -> None:
    """Of each some bits are left: a dict of them took a hundred bytes, and a third of a second under the lock."""
    world = deep_world()
    fill(world, range(2000), checkpoints=500)
    world.qm.put("A", b"new")
    world.qm.checkpoint()
    before = len(world.qm._engine.state.queues["A"].catalogue_line)
    with world.qm.begin() as unit:
        unit.get_many("A", 2000)
        unit.backout()
    world.qm.checkpoint()
    assert len(world.qm._engine.state.queues["A"].catalogue_line) < before + 200
    world.crash(LOSE_ALL)
    assert [m.backout_count for m in world.qm.browse("A")] == [1] * 2000 + [0]


def test_persistent_and_other_messages_of_one_queue_share_what_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    world = deep_world()
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 4000)
    for persistent in (True, False):
        world.qm.put("A", b"first", persistent=persistent)
        world.qm.put_many("A", [bytes(3700)], persistent=persistent, priority=9)
        world.qm.checkpoint()
    assert total(world) > 8000
    assert len(world.qm.get_many("A", 2)) == 2
    world.qm.checkpoint()
    world.qm.checkpoint()
    assert world.depths()["A"] == 2
    assert total(world) < SURPLUS_BYTES


def test_a_browse_of_a_queue_that_is_deleted_says_so() -> None:
    world = deep_world()
    fill(world, range(300))
    for ids in ({}, {"correlation_id": bytes(24)}):
        looking = world.qm.browse("A", **ids)
        next(looking)
        world.qm.delete_queue("A", purge=True)
        world.qm.checkpoint()
        world.qm.checkpoint()
        with pytest.raises(qmgr.UnknownQueue, match="was deleted"):
            list(looking)
        assert "AMQ7472" not in world.errors()
        world.qm.define_queue("A")
        world.qm.put("A", b"new")


@pytest.mark.interpreted
def test_a_browse_holds_few_large_messages() -> None:
    world = deep_world()
    for n in range(30):
        world.qm.put("A", b"%d" % n * 30_000)
    world.qm.checkpoint()
    looked_up = []
    real = engine.first_chunk

    def counted(entries: Any) -> Any:
        found = real(entries)
        looked_up.append(len(found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "first_chunk", counted)
        assert len(bodies(world.qm, "A")) == 30
    assert max(looked_up) <= 3


def start_at_depth(depth: int) -> tuple[int, int]:
    """(bytes of memory at the most, calls of the disk) for a start with so many messages."""
    world = deep_world(log_primary_files=20)
    for _ in range(depth // 200):
        world.qm.put_many("A", [bytes(100)] * 200)
        world.qm.checkpoint()
    world.qm.end()
    before = world.disk.calls
    tracemalloc.start()
    try:
        world.start()
        memory = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    made = world.disk.calls - before
    assert (world.qm.queue("A").depth, world.qm.get("A").body) == (depth, bytes(100))
    return memory, made


def test_row_71_a_start_takes_little_more_for_a_deeper_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes for each message, of which blocks tell; and it reads no more."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 1 << 20)
    monkeypatch.setattr(segment_writer, "MAX_BLOCK_BYTES", 16 << 10)
    little, much = (start_at_depth(depth) for depth in (2_000, 10_000))
    assert much[0] - little[0] < 8_000 * 16
    assert much[1] - little[1] < 20


def test_what_a_unit_of_work_has_got_behind_all_that_is_paged_nobody_else_gets() -> None:
    """Of what is paged all was got by id and given back, and then more is paged."""
    world = World()
    qm = world.qm
    qm.define_queue("A", buffer_size=1)
    numbers = [b"%02d" % n for n in range(1, 31)]
    first = qm.put_many("A", numbers[:20])
    qm.checkpoint()
    unit, other = qm.begin(), qm.begin()
    for message in first:
        unit.get("A", message_id=message.message_id)
    qm.put_many("A", numbers[20:25])
    assert drain(other, "A") == numbers[20:25]
    unit.backout()
    qm.checkpoint()
    qm.put_many("A", numbers[25:])
    qm.checkpoint()
    assert drain(qm, "A") == numbers[:20] + numbers[25:]
    other.commit()
    world.crash(LOSE_ALL)
    assert world.depths() == {"A": 0}


def test_segments_of_an_earlier_format_refuse_the_start_and_are_left_alone() -> None:
    """The version that wrote them can still read them."""
    world = deep_world()
    fill(world, range(30))
    world.qm.end()
    (path, *_) = files(world.disk, f"{DATA}/qmgrs/{NAME}/queues/A")
    now = world.disk.peek(path)
    world.disk.poke(path, b"QMGRSEG1" + now[8:])
    before = {name: world.disk.peek(name) for name in world.disk.files("/") if "/errors/" not in name}
    with pytest.raises(qmgr.MQError, match=f"segment {path} is of format 1"):
        world.start()
    assert {name: world.disk.peek(name) for name in world.disk.files("/") if "/errors/" not in name} == before
    world.disk.poke(path, now)
    world.start()
    assert drain(world.qm, "A") == [body(n) for n in range(30)]
