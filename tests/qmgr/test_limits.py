"""Rows 70 and 71: LSN, message id, unit number and epoch near their ends, the largest messages, very many queues.

It stops or refuses loudly, and loses nothing.
"""

import errno
import itertools
import sys

import attrs
import pytest

import qmgr
from logger import control, lsn
from qmgr.store import MAX_SEGMENT_NUMBER
from recovery import checkpoint
from tests.qmgr.world import DATA, NAME, World, bodies
from tests.sim.loss import LOSE_ALL

CONTROL = f"{DATA}/log/{NAME}/amqhlctl.lfh"
EXTENT = 64 * 4096
LARGEST = 104_857_600  # bytes of a message; MAXMSGL takes no more


def moved(*, at: int = 0, epoch: int = 0) -> World:
    """A new queue manager whose log begins at this LSN, in this epoch."""
    world = World(start=False)
    _, state = control.read(world.disk, CONTROL)
    at = at or state.head
    state = attrs.evolve(state, epoch=epoch, epoch_from=at, head=at, checkpoint=at, durable=at, clean_end=at)
    world.disk.poke(
        CONTROL, state.encode(1).ljust(control.COPY_BYTES, b"\0") + state.encode(2).ljust(control.COPY_BYTES, b"\0")
    )
    path = f"{DATA}/qmgrs/{NAME}/{checkpoint.NAME}"
    decoded = checkpoint.decode_file(world.disk.peek(path))
    assert decoded is not None
    made = attrs.evolve(decoded[0], lsn=at, head=at, durable=at, epoch=epoch)
    world.disk.poke(path, checkpoint.encode_file(made, decoded[1]))
    return world


@pytest.mark.parametrize("power", [31, 32, 33, 40, 48, 63])
def test_row_70_lsns_beyond_every_word_size_work(power: int) -> None:
    world = moved(at=2**power // EXTENT * EXTENT)
    world.start()
    world.qm.define_queue("A")
    for n in range(30):
        world.qm.put("A", b"%d" % n + bytes(20_000))
        world.qm.get("A") if n < 20 else None
    world.crash()
    assert [body.rstrip(b"\0") for body in bodies(world.qm, "A")] == [b"%d" % n for n in range(20, 30)]
    assert world.qm.status().log.tail > 2**power


def test_row_70_the_log_stops_loudly_before_its_lsns_run_out() -> None:
    world = moved(at=lsn.LAST // EXTENT * EXTENT - EXTENT)
    world.start()
    world.qm.define_queue("A")
    acknowledged = 0
    with pytest.raises(qmgr.Unavailable, match="LSN"):
        for n in range(2000):
            world.qm.put("A", b"%d" % n + bytes(3000))
            acknowledged = n + 1
            world.qm.get("A")
    assert acknowledged > 10
    with pytest.raises(qmgr.Unavailable):
        world.qm.put("A", b"")
    assert world.qm._log.buffer.tail < 2**64 - EXTENT


def test_row_70_the_ids_of_one_start_run_out_loudly_and_a_restart_has_more() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", b"before")
    engine = world.qm._engine
    engine._message_numbers = itertools.count(engine._last_number - 1)
    engine._unit_numbers = itertools.count(engine._last_number)
    seen = {world.qm.put("A", b"last but one").message_id, world.qm.put("A", b"last").message_id}
    with world.qm.begin() as unit:
        unit.put("A", b"with an id", message_id=b"own")
    for call in (lambda: world.qm.put("A", b"x"), lambda: world.qm.put_many("A", [b"x"]), world.qm.begin):
        with pytest.raises(qmgr.Unavailable, match="start"):
            call()
    assert bodies(world.qm, "A") == [b"before", b"last but one", b"last", b"with an id"]
    world.restart()
    seen.add(world.qm.put("A", b"x").message_id)
    assert len(seen) == 3


@pytest.mark.parametrize("epoch", [2**24 - 3, 2**32 - 3])
def test_row_70_an_epoch_near_its_end_works_or_stops_loudly(epoch: int) -> None:
    """Numbers of messages and units count from the epoch times 2**40, in 64 bits; frames carry it in 32."""
    world = moved(epoch=epoch)
    acknowledged = 0
    seen = set()
    for n in range(6):
        try:
            world.start()
            if n == 0:
                world.qm.define_queue("A")
            with world.qm.begin() as unit:
                seen.add(unit.put("A", b"%d" % n).message_id)
            acknowledged += 1
            world.qm.end()
        except qmgr.MQError as exc:
            assert "start" in str(exc) or "epoch" in str(exc)
            break
    assert len(seen) == acknowledged


def test_row_70_checkpoints_that_a_full_disk_fails_take_the_number_that_they_tried_and_no_more() -> None:
    """They are tried once a second, for as long as the disk is full."""
    world = World()
    for name in ("A", "B", "C"):
        world.qm.define_queue(name)
        world.qm.put(name, b"x")
    world.disk.fail("create", errno.ENOSPC, once=False, where=lambda path: path.endswith(".seg"))
    before = world.qm._store.next_segment
    for _ in range(10):
        with pytest.raises(qmgr.StorageFull):
            world.qm.checkpoint()
    assert world.qm._store.next_segment == before + 10


def test_row_70_the_numbers_of_segments_run_out_loudly_and_what_is_there_can_be_got() -> None:
    """They have 32 bits in files and log: no traceback, no stop, and no number twice."""
    world = World()
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    world.qm._store.next_segment = MAX_SEGMENT_NUMBER - 2
    world.qm.put("A", b"last")
    world.qm.checkpoint()
    world.qm._store.next_segment = MAX_SEGMENT_NUMBER + 1
    world.qm.checkpoint()
    world.qm.put("B", b"kept in the log")
    with pytest.raises(qmgr.StorageFull, match="all numbers of segments are used up"):
        world.qm.checkpoint()
    for _ in range(2):
        world.crash(LOSE_ALL)
        assert "AMQ9002E: A checkpoint could not be taken" in world.errors()
        assert bodies(world.qm, "A") == [b"last"]
        assert bodies(world.qm, "B") == [b"kept in the log"]
        assert world.qm._store.next_segment == MAX_SEGMENT_NUMBER + 1
    with pytest.raises(qmgr.ResourceProblem):
        for _ in range(200):
            world.qm.put("B", bytes(9000))
    assert world.qm.get("A").body == b"last"
    while world.qm.queue("B").depth:
        world.qm.get_many("B", 10)
    world.qm.checkpoint()
    world.restart()
    assert world.depths() == {"A": 0, "B": 0}


def test_numbers_of_segments_that_a_checkpoint_did_not_need_are_used_later() -> None:
    world = World()
    for queue in "ABCD":
        world.qm.define_queue(queue)
    before = world.qm._store.next_segment
    for _ in range(20):
        for queue in "ABCD":
            world.qm.put(queue, b"x")
            world.qm.get(queue)
        world.qm.checkpoint()
    assert world.qm._store.next_segment <= before + 4


@pytest.mark.interpreted
def test_the_engine_keeps_the_form_that_is_quick(qm: qmgr.QueueManager) -> None:
    """With thirty attributes or more CPython looks each of them up more slowly."""
    assert len(vars(qm._engine)) < 30


# -- row 71: very large messages, very many queues; that of deep queues is in tests/test_deep_queues.py ----------------


def largest(world: World, queue: str) -> int:
    """Bytes of the longest message that is taken; it is put, and got again, on the way."""
    least, most = 0, EXTENT * 3
    while least < most:
        middle = (least + most + 1) // 2
        try:
            world.qm.put(queue, bytes(middle))
        except qmgr.MessageTooBig:
            most = middle - 1
        else:
            world.qm.get(queue)
            least = middle
    return least


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_row_71_the_largest_message_that_the_log_takes_outlives_crashes_and_one_byte_more_harms_nothing(
    log_type: str,
) -> None:
    """It goes over the borders of extents, whatever stands before it, and a checkpoint takes it along."""
    world = World(log_type=log_type)
    world.qm.alter(max_message_length=LARGEST)
    world.qm.define_queue("A", max_message_length=LARGEST)
    world.qm.define_queue("B")
    size = largest(world, "A")
    assert size > EXTENT
    with pytest.raises(qmgr.MessageTooBig, match="logged at once"):
        world.qm.put("A", bytes(size + 1))
    for n in range(5):
        world.qm.put("B", b"%d" % n)
        body = (b"%d" % n) * size
        world.qm.put("A", body[:size])
        if n % 2:
            world.qm.checkpoint()
        world.crash(LOSE_ALL)
        with pytest.raises(qmgr.MessageTooBig):
            world.qm.put("A", bytes(size + 1))
        with pytest.raises(qmgr.NoMessageAvailable), world.qm.begin() as unit:
            assert unit.get("A").body == body[:size]
            unit.get("A")  # which backs out
        world.crash(LOSE_ALL)
        message = world.qm.get("A")
        assert (message.body, message.backout_count) == (body[:size], 1)
    assert bodies(world.qm, "B") == [b"0", b"1", b"2", b"3", b"4"]


class Counter:
    """Counts the functions of Python that are called: work, on any machine the same."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: object, event: str, arg: object) -> None:
        self.calls += event == "call"


def start_of(queues: int) -> tuple[int, int, int]:
    """(calls of Python, calls of the disk, descriptors) for a start with so many queues, each with a message."""
    world = World(log_secondary_files=20)
    for n in range(queues):
        world.qm.define_queue(f"Q.{n}")
        world.qm.put(f"Q.{n}", b"%d" % n)
    world.qm.end()
    world.disk.max_open = 40
    before, counter = world.disk.calls, Counter()
    sys.setprofile(counter)
    try:
        world.start()
    finally:
        sys.setprofile(None)
    made = counter.calls, world.disk.calls - before, world.disk.open_files
    assert world.depths() == {f"Q.{n}": 1 for n in range(queues)}
    assert [world.qm.get(f"Q.{n}").body for n in range(queues)] == [b"%d" % n for n in range(queues)]
    return made


@pytest.mark.interpreted
def test_row_71_each_queue_more_costs_a_start_the_same_and_no_descriptor() -> None:
    """So a hundred thousand take a hundred thousand times what one does."""
    few, more, most = start_of(50), start_of(150), start_of(350)
    assert few[2] == more[2] == most[2]
    for what in (0, 1):
        assert most[what] - more[what] <= 2.2 * (more[what] - few[what]), what
