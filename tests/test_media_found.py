"""Faults of linear logging and media recovery that were found by reading the code, each with its scenario."""

import errno
import random
import sys
from typing import Any

import pytest

import qmgr
from logger.extent import file_name
from qmgr import rebuild, segment_writer, segments
from qmgr.daemon.process import start_lines
from qmgr.migration import migrate_log
from qmgr.pointintime import recover_to
from qmgr.repairing import repair
from qmgr.segment_reader import SegmentReader
from qmgr.session import AllRights, Peer
from recovery import checkpoint
from recovery.checkpoint import OnTaken
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, World, bodies
from tests.sim.disk import Fault
from tests.sim.loss import KEEP_ALL, LOSE_ALL


def linear(**options: object) -> World:
    return World(**{"log_type": "linear", "log_primary_files": 4, "log_secondary_files": 2} | options)


def automatic() -> World:
    world = linear()
    world.set_ini("LogManagement", "Automatic")
    world.restart()
    return world


def fill(world: World, count: int) -> None:
    """So many times ten thousand bytes of log, about, that nobody needs."""
    for _ in range(count):
        world.qm.put("OTHER", bytes(10_000))
        world.qm.get("OTHER")


def lose_segments(world: World, queue: str = "") -> None:
    for path in world.disk.files(f"{DATA}/qmgrs/{NAME}/queues/{queue}"):
        if path.endswith(".seg"):
            world.disk.remove(path)


def sequences(steps: tuple[object, ...]) -> list[int]:
    return [step.sequence for step in steps]  # type: ignore[attr-defined]


def rolled_forward() -> tuple[World, qmgr.UnitOfWork]:
    """A unit in doubt that has put to Q and got from it, rolled forward while another unit holds older log."""
    world = linear(log_primary_files=6, log_secondary_files=1)
    qm = world.qm
    qm.define_queue("Q")
    qm.define_queue("OTHER")
    qm.put("Q", b"first")
    unit = qm.begin(qmgr.Xid(1, b"U", b""))
    unit.put("Q", b"of the unit")
    unit.get("Q")
    qm.put("OTHER", b"x")  # by which the unit's calls are logged: it holds the head
    fill(world, 50)
    other = qm.begin()
    other.put("OTHER", b"of another")
    fill(world, 1)
    unit.prepare()
    held = next(one.first_lsn for one in qm.transactions() if one.xid)
    while next(one.first_lsn for one in qm.transactions() if one.xid) == held:
        fill(world, 1)
    assert "AMQ7485" in world.errors()
    qm.record_image()
    return world, unit


def test_what_was_committed_while_its_queue_was_damaged_lies_in_the_same_places_for_all_who_build_it() -> None:
    """The log gives no places then. Built alone and together with a queue that lies between the puts."""
    world = linear(log_primary_files=6)
    world.qm.define_queue("Q", default_persistence=True)
    world.qm.define_queue("OTHER", default_persistence=True)
    world.qm.put("Q", b"first")
    fill(world, 60)
    xid = qmgr.Xid(1, b"U", b"")
    unit = world.qm.begin(xid)
    for number in range(3):
        unit.put("Q", b"%d" % number)
        unit.put("OTHER", b"between")
    unit.prepare()
    world.qm.checkpoint()
    world.qm.checkpoint()
    world.disk = world.disk.crash(KEEP_ALL)
    lose_segments(world, "Q")
    oldest = f"{DATA}/log/{NAME}/active/S0000000.LOG"  # without which it can't be built at the start
    data = world.disk.peek(oldest)
    world.disk.remove(oldest)
    qm = world.start()
    assert qm.queue("Q").damaged
    qm.resolve(xid, commit=True)
    world.disk.poke(oldest, data)
    qm.recreate("Q")
    assert [message.body for message in qm.get_many("Q", 3)] == [b"first", b"0", b"1"]
    qm.put("Q", b"later")
    qm.end("immediate")
    recover_to(NAME, "/then", time_us=world.clock.wall_us() + 1, data_path=DATA, disk=world.disk, clock=world.clock)
    with qmgr.start(NAME, data_path="/then", disk=world.disk, clock=world.clock, background=False) as then:
        assert bodies(then, "Q") == [b"2", b"later"]


def test_a_queue_is_built_again_with_what_a_rolled_forward_unit_has_done() -> None:
    world, unit = rolled_forward()
    world.qm.recreate("Q")
    assert world.qm.queue("Q").uncommitted == 2
    unit.commit()
    assert bodies(world.qm, "Q") == [b"of the unit"]
    world.qm.recreate("Q")
    assert bodies(world.qm, "Q") == [b"of the unit"]


def test_the_same_where_the_segments_are_lost_in_a_crash() -> None:
    world, unit = rolled_forward()
    unit.commit()
    world.disk = world.disk.crash(LOSE_ALL)
    lose_segments(world)
    world.start()
    assert "AMQ9004" in world.errors()
    assert bodies(world.qm, "Q") == [b"of the unit"]


def test_a_repair_puts_nothing_back_from_before_a_unit_was_rolled_forward() -> None:
    """What it had done by then is said again: of the archive a restart needs nothing, however much that is."""
    world, unit = rolled_forward()
    for _ in range(2):
        world.qm.checkpoint()
    world.qm.archive_log()
    active = f"{DATA}/log/{NAME}/active"
    kept = min(world.disk.list(active))
    assert kept > file_name(0), "the unit began there"
    world.disk = world.disk.crash(KEEP_ALL)
    for name in (checkpoint.NAME, checkpoint.PREVIOUS):
        world.disk.remove(f"{DATA}/qmgrs/{NAME}/{name}")
    done = repair(NAME, data_path=DATA, disk=world.disk, clock=world.clock)
    assert [one.row.name for one in done.examination.findings] == ["checkpoints_lost_images_there"]
    assert min(world.disk.list(active)) == kept
    world.start().resolve(unit.xid, commit=True)
    assert bodies(world.qm, "Q") == [b"of the unit"]


def test_the_image_is_known_after_a_recreation_that_wrote_to_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "WRITE_OUT_BYTES", 200_000)
    world = linear()
    world.qm.define_queue("Q")
    world.qm.define_queue("OTHER")
    world.qm.put("Q", b"precious")
    fill(world, 30)
    for _ in range(2):
        world.qm.recreate("Q")
        world.restart()
    world.disk = world.disk.crash(LOSE_ALL)
    lose_segments(world, "Q")
    world.start()
    assert bodies(world.qm, "Q") == [b"precious"]


@pytest.mark.parametrize("what", ["image", "delete", "alter"])
def test_no_extent_goes_because_of_what_a_crash_can_still_take_back(what: str) -> None:
    """Faults 24: the record is applied and not forced yet, and somebody decides what is needed."""
    world = automatic()
    qm = world.qm
    qm.define_queue("Q")
    qm.put("Q", b"precious")
    qm.define_queue("OTHER")
    qm.record_image()
    fill(world, 80)
    qm.record_image("OTHER")
    qm.record_definitions()
    qm.checkpoint()
    qm.checkpoint()
    queues, before, force = qm._engine.state.queues, qm._engine.state.queues["Q"].image, qm._log.force
    crashed = []

    def forced(target: int, **options: bool) -> None:
        known = queues.get("Q")
        if not crashed and (known is None or known.image != before):
            crashed.append(None)
            qm._retention.keep_house()
            crashed[0] = world.disk.snapshot(LOSE_ALL)
        force(target, **options)

    qm._log.force = forced  # type: ignore[method-assign]
    if what == "image":
        qm.record_image("Q")
    elif what == "delete":
        qm.delete_queue("Q", purge=True)
    else:
        qm.alter_queue("Q", image_recoverable="NO")
    assert crashed[0] is not None
    world.disk = crashed[0]
    lose_segments(world, "Q")
    world.start()
    there = [queue.name for queue in world.qm.queues()]
    if what == "image":
        assert bodies(world.qm, "Q") == [b"precious"]
    elif what == "delete":
        assert "Q" not in there
    else:
        assert world.qm._engine.state.queues["Q"].image is None


def test_many_definitions_are_recorded_in_pieces_that_a_small_log_holds() -> None:
    world = World()
    for number in range(300):
        world.qm.define_queue(f"APPLICATION.QUEUE.{number:06}", description="x" * 60)
    world.qm.end()
    migrate_log(NAME, data_path=DATA, log_type="linear", disk=world.disk)
    world.start()
    assert len(world.qm.queues()) == 300
    first = world.qm._engine.state.catalog
    world.qm.record_definitions()
    assert world.qm._engine.state.catalog > first > 0


def test_row_54_a_linear_log_starts_on_a_full_disk_with_the_extents_that_are_there() -> None:
    world = linear(log_primary_files=3)
    world.qm.define_queue("Q")
    world.qm.define_queue("OTHER")
    world.qm.put("Q", b"precious")
    world.disk.capacity = world.disk.used + 300_000
    with pytest.raises(qmgr.ResourceProblem):
        fill(world, 150)
    for said in ("AMQ6708", "AMQ7463"):
        assert said in world.errors()
    for wrong in ("AMQ7465", "AMQ7466"):
        assert wrong not in world.errors(), "the disk is full, and no unit of work or small log is to blame"
    world.crash(KEEP_ALL)
    assert world.qm.get("Q").body == b"precious"


def test_an_extent_with_a_damaged_header_is_archived_and_compressed_as_the_others() -> None:
    world = linear(log_primary_files=3)
    world.qm.define_queue("OTHER")
    fill(world, 120)
    world.qm.checkpoint()
    world.qm.checkpoint()
    path = next(path for path in world.disk.files(DATA) if path.endswith("S0000001.LOG"))
    data = bytearray(world.disk.peek(path))
    data[20] ^= 1
    world.disk.poke(path, bytes(data))
    archived = sequences(world.qm.archive_log().done)
    assert archived[:3] == [1, 2, 3]
    assert sequences(world.qm.compress_log().done) == archived
    assert sequences(tuple(world.qm._log.history().places()[s] for s in archived)) == archived


def test_archiving_and_reusing_at_once_would_leave_gaps() -> None:
    world = automatic()
    with pytest.raises(qmgr.Mistake, match="have gaps; set LogManagement=Manual or Archive"):
        world.qm.archive_log()


def test_what_the_older_checkpoint_needs_stays_where_it_is_while_that_is_the_only_one() -> None:
    """Started from amqalchk.old, and no room for another checkpoint: nothing that it needs is archived."""
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"precious")
    world.qm.define_queue("OTHER")
    fill(world, 30)
    world.qm.checkpoint()
    fill(world, 60)
    world.qm.checkpoint()
    world.disk = world.disk.crash(KEEP_ALL)
    path = f"{DATA}/qmgrs/{NAME}/amqalchk.fil"
    data = bytearray(world.disk.peek(path))
    data[30] ^= 1
    world.disk.poke(path, bytes(data))
    world.disk.remove(f"{DATA}/qmgrs/{NAME}/amqalchk.rsv")
    world.disk.faults.append(Fault(("write",), errno.ENOSPC, once=False, where=lambda path: "amqalchk" in path))
    world.start()
    assert "AMQ9002" in world.errors()
    world.qm.archive_log()
    world.crash(KEEP_ALL)
    assert bodies(world.qm, "Q") == [b"precious"]


def test_row_43_what_the_older_checkpoint_needs_is_not_archived_while_the_newer_one_may_be_damaged() -> None:
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"precious")
    world.qm.define_queue("OTHER")
    for _ in range(2):
        fill(world, 60)
        world.qm.checkpoint()
    world.qm.record_image()
    fill(world, 60)
    world.qm.checkpoint()
    assert world.qm.archive_log().done
    world.disk = world.disk.crash(KEEP_ALL)
    world.disk.poke(f"{DATA}/qmgrs/{NAME}/amqalchk.fil", b"damaged")
    world.start()
    assert bodies(world.qm, "Q") == [b"precious"]


def test_row_25_of_the_log_before_an_image_only_units_of_work_count_that_were_in_flight() -> None:
    """All else is in the image, and comes once; so do backout counts."""
    world = linear()
    world.qm.define_queue("Q")
    unit = world.qm.begin()
    unit.put("Q", b"of the unit")
    world.qm.put("Q", b"got")
    world.qm.put_many("Q", [b"1", b"2"])
    world.qm.get("Q")
    with world.qm.begin() as other:
        other.get("Q")
        other.backout()
    world.qm.record_image()
    unit.commit()
    world.qm.recreate("Q")
    assert bodies(world.qm, "Q") == [b"1", b"2", b"of the unit"]
    assert [one.backout_count for one in world.qm.browse("Q")] == [1, 0, 0]


def test_row_25_a_unit_of_work_goes_on_with_a_queue_that_was_recreated_meanwhile() -> None:
    """What it commits lies behind what has come since; what it backs out is counted, also over a crash."""
    world = linear()
    world.qm.define_queue("Q")
    world.qm.define_queue("OTHER")
    world.qm.put("Q", b"fleeting", persistent=False)
    for name in ("Q", "OTHER"):
        world.qm.put(name, b"there")
    puts, gets = world.qm.begin(), world.qm.begin()
    puts.put("Q", b"of the unit")
    gets.get_many("Q", 2)
    world.qm.recreate("Q")
    meanwhile = world.qm.put("Q", b"meanwhile")
    puts.commit()
    gets.get("OTHER")
    gets.backout()
    for _ in range(2):
        assert bodies(world.qm, "Q") == [b"there", b"meanwhile", b"of the unit"]
        world.crash(LOSE_ALL)
        assert [next(world.qm.browse(name)).backout_count for name in ("Q", "OTHER")] == [1, 1]
    world.qm.get("Q", message_id=meanwhile.message_id)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "Q") == [b"there", b"of the unit"]


def test_row_25_for_a_unit_in_doubt_that_has_put_to_a_recreated_queue_room_is_promised_to_end_it() -> None:
    """Its commit names the queue again, which it did not while that was damaged."""
    world = linear()
    world.qm.define_queue("Q")
    unit = world.qm.begin(qmgr.Xid(1, b"U", b""))
    unit.put("Q", b"of the unit")
    world.qm.put("Q", b"there")
    unit.prepare()
    world.qm.checkpoint()
    lose_segments(world, "Q")
    world.crash(LOSE_ALL)
    engine = world.qm._engine
    assert "AMQ9004" in world.errors()
    assert world.qm.recreated.keys() == {"Q"}
    said = "AMQ9004I: Object Q, type qlocal recreated: 2 persistent messages, and no others; it was damaged: segment "
    assert [line[: len(said)] for line in start_lines(world.qm) if line.startswith("AMQ")] == [said]
    assert [one.promise for one in engine.state.uows] == [engine.promise_of(one) for one in engine.state.uows]
    assert engine.log.space.promised == sum(one.promise for one in engine.state.uows) > 0


def test_row_25_a_recreated_queue_counts_what_a_unit_has_put_to_it_that_is_not_persistent() -> None:
    world = linear()
    world.qm.define_queue("Q")
    unit = world.qm.begin()
    unit.put("Q", b"fleeting", persistent=False)
    unit.put("Q", b"of the unit")
    world.qm.put("Q", b"there")
    world.qm.recreate("Q")
    info = world.qm.queue("Q")
    assert (info.depth, info.uncommitted) == (3, 2)
    unit.commit()
    info = world.qm.queue("Q")
    assert (info.depth, info.uncommitted) == (3, 0)


def test_row_25_a_queue_that_was_recreated_is_whole_after_a_crash() -> None:
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"x")
    world.qm.checkpoint()
    lose_segments(world, "Q")
    world.qm.recreate("Q")
    world.crash(LOSE_ALL)
    assert "AMQ7472" not in world.errors()
    assert bodies(world.qm, "Q") == [b"x"]


def test_row_25_a_queue_is_recreated_although_the_disk_has_no_room_for_the_checkpoint_after_it() -> None:
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"x")
    world.qm.checkpoint()
    lose_segments(world, "Q")
    world.qm.put("Q", b"y")
    world.disk.capacity = world.disk.used + 1000  # for the error log
    assert world.qm.recreate("Q").depth == 2
    assert "AMQ9002" in world.errors()
    world.qm.put("Q", b"z")
    world.crash(LOSE_ALL)  # its disk has no room now either
    assert "AMQ7042" not in world.errors()  # nor is this said of one that is there
    assert bodies(world.qm, "Q") == [b"x", b"y", b"z"]


@pytest.mark.parametrize("why", ["its progress", "the log"])
def test_a_recreation_that_fails_leaves_no_file_behind(why: str) -> None:
    """Each try would cost the disk a queue."""
    world = linear(log_primary_files=8)
    world.qm.define_queue("Q")
    world.qm.define_queue("OTHER")
    world.qm.put_many("Q", [bytes(1000)] * 200)
    world.qm.record_image()
    fill(world, 20)
    world.qm.put_many("Q", [b"x"] * 100)
    world.qm.checkpoint()
    before = world.disk.files(f"{DATA}/qmgrs")
    made: list[str] = []

    def progress(done: int, total: int) -> None:
        if why == "its progress":
            raise KeyError("mine")

    def look(kind: str, path: str) -> None:
        made.extend(set(world.disk.files(f"{DATA}/qmgrs")) - set(before))

    world.disk.before_effect = look
    if why == "the log":  # behind the image
        world.disk.fail("read", errno.EIO, nth=40, once=False, where=lambda path: path.endswith(".LOG"))
    with pytest.raises(KeyError if why == "its progress" else qmgr.MQError):
        world.qm.recreate("Q", progress=progress)
    world.disk.heal()
    world.disk.before_effect = None
    assert made
    assert world.disk.files(f"{DATA}/qmgrs") == before
    assert world.qm.queue("Q").depth == 300


def test_what_a_recreated_queue_had_before_goes_with_the_second_checkpoint() -> None:
    """And not with the next start only, while the queue is built again now and then."""
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put_many("Q", [bytes(1000)] * 20)
    world.qm.record_image()

    def turn() -> int:
        world.qm.put("Q", b"x")
        world.qm.recreate("Q")
        world.qm.checkpoint()
        return len(world.disk.files(f"{DATA}/qmgrs/{NAME}/queues/Q"))

    files = [turn() for _ in range(8)]
    assert files[-1] <= max(files[:4])
    assert world.qm.queue("Q").depth == 28


def test_row_25_what_is_only_held_for_a_client_is_there_again_for_anybody() -> None:
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put_many("Q", [b"1", b"2"])
    session = world.qm.sessions.open(Peer(user="mia", application="till", process=7), AllRights())
    held, _ = session.deliver("Q", 1)
    assert len(held) == 1
    world.qm.recreate("Q")
    assert bodies(world.qm, "Q") == [b"1", b"2"]
    session.close()
    assert bodies(world.qm, "Q") == [b"1", b"2"]


@pytest.mark.parametrize("in_unit", [False, True])
def test_row_25_what_is_acknowledged_while_the_queue_is_built_again_is_not_held_any_more(in_unit: bool) -> None:
    """It would be got from the queue that goes, and be there again on the one that comes."""
    world = linear()
    world.qm.define_queue("Q")
    for n in range(100):
        world.qm.put("Q", b"%d" % n)
    session = world.qm.sessions.open(Peer(user="mia", application="till", process=7), AllRights())
    held, _ = session.deliver("Q", 2)
    unit = session.begin() if in_unit else None
    refused = []

    def meanwhile(done: int, total: int) -> None:
        with pytest.raises(qmgr.Mistake) as caught:
            session.accept([held[0]], unit)
        refused.append(caught.value.reason)

    world.qm.recreate("Q", progress=meanwhile)
    assert set(refused) == {qmgr.Reason.NO_MSG_LOCKED}
    session.close()
    for _ in range(2):
        assert (world.qm.queue("Q").uncommitted, len(bodies(world.qm, "Q"))) == (0, 100)
        world.crash(LOSE_ALL)


def test_a_call_on_a_queue_that_is_being_recreated_says_to_try_again() -> None:
    """It said to recreate the queue."""
    world = linear()
    world.qm.define_queue("Q")
    for _ in range(100):
        world.qm.put("Q", b"one")
    refused = []

    def meanwhile(done: int, total: int) -> None:
        for call in (lambda: world.qm.get("Q"), lambda: world.qm.put("Q", b"two")):
            with pytest.raises(qmgr.Damaged) as caught:
                call()
            refused.append(caught.value.sentence)

    world.qm.recreate("Q", progress=meanwhile)
    assert set(refused) == {"queue 'Q' can't be used now: it is being recreated; try again later"}
    assert bodies(world.qm, "Q") == [b"one"] * 100


def test_row_24_segments_stay_until_the_image_is_recorded_that_is_made_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that they hold has been got by then, and the checkpoints know of them no more."""
    monkeypatch.setattr(segment_writer, "MAX_BLOCK_BYTES", 100)
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put_many("Q", [bytes(200)] * 3)
    world.qm.checkpoint()
    read_block = SegmentReader.read_block

    def noted(*place: Any) -> bytes:
        data = read_block(*place)
        world.qm.get_many("Q", 3)
        world.qm.checkpoint()
        return data

    monkeypatch.setattr(SegmentReader, "read_block", noted)
    [path] = [path for path in world.disk.files(DATA) if path.endswith(".seg")]
    assert world.qm.record_image("Q") == ["Q"]
    assert world.disk.exists(path)
    assert world.qm.damaged() == {}
    world.qm.checkpoint()
    world.qm.put("Q", b"x")
    world.qm.checkpoint()
    assert not world.disk.exists(path)


def test_row_24_the_image_of_the_definitions_is_kept_as_those_of_queues_are() -> None:
    world = automatic()
    world.qm.define_queue("Q")
    world.qm.define_queue("OTHER")
    world.qm.record_image()
    for _ in range(2):
        fill(world, 80)
        world.qm.record_image(["Q", "OTHER"])
        world.qm.checkpoint()
    assert 0 < world.qm._log.reaches_back_to() <= world.qm._engine.state.catalog


def test_row_49_a_recreation_that_fails_for_any_reason_stops_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents are compressed with zstd, and the package is not there any more."""
    world = linear(log_primary_files=3)
    world.qm.end()
    path = f"{DATA}/qmgrs/{NAME}/qm.ini"
    world.disk.poke(path, world.disk.peek(path) + b"LogArchive:\n   Compression=zstd\n")
    world.start()
    for queue in ("Q", "OTHER", "GOOD"):
        world.qm.define_queue(queue)
        world.qm.put(queue, b"of " + queue.encode())
    fill(world, 100)
    world.qm.checkpoint()
    world.qm.checkpoint()
    assert world.qm.compress_log().done
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(qmgr.MediaImageMissing, match="zstandard"):
        world.qm.recreate("Q")
    world.disk = world.disk.crash(KEEP_ALL)
    lose_segments(world, "Q")
    world.start()
    assert "AMQ7042" in world.errors()
    assert world.qm.queue("Q").damaged
    assert bodies(world.qm, "GOOD") == [b"of GOOD"]


def test_an_index_does_not_outlive_a_repair_of_its_extent() -> None:
    world = linear(log_primary_files=8)
    for queue in ("OTHER", "B"):
        world.qm.define_queue(queue)
    world.qm.put("B", b"first")
    began = world.qm.status().log.tail
    fill(world, 100)
    replayed = list(world.qm.replay("B", "oldest"))
    list(world.qm.replay("OTHER", replayed[0].time))  # which makes indexes
    assert any(path.endswith(".IDX") for path in world.disk.files(DATA))
    world.disk = world.disk.crash(KEEP_ALL)
    path = next(path for path in world.disk.files(DATA) if path.endswith("S0000003.LOG"))
    data = bytearray(world.disk.peek(path))
    data[60_000:60_200] = b"x" * 200
    world.disk.poke(path, bytes(data))
    done = repair(NAME, data_path=DATA, accept_loss=True, disk=world.disk, clock=world.clock)
    assert done.saved
    world.start()
    for number in range(3):
        world.qm.put("B", b"after the repair %d" % number)
    fill(world, 60)
    told = [one.message.body for one in world.qm.replay("B", began)]
    assert told == [b"after the repair 0", b"after the repair 1", b"after the repair 2"]


def test_segment_numbers_that_a_recreation_did_not_use_are_used_later() -> None:
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"precious")
    for _ in range(5):
        world.qm.recreate("Q")
    assert world.qm._engine.state.next_segment < 100


def test_a_damaged_queue_is_not_deleted_as_an_empty_one_is() -> None:
    world = linear()
    world.qm.define_queue("Q", buffer_size=1)
    world.qm.put_many("Q", [bytes(2000)] * 50)
    world.qm.checkpoint()
    lose_segments(world, "Q")
    with pytest.raises(qmgr.Damaged):
        bodies(world.qm, "Q")
    with pytest.raises(qmgr.ObjectInUse, match="its messages may come back"):
        world.qm.delete_queue("Q")
    assert world.qm.recreate("Q").depth == 50


@pytest.mark.parametrize("path", ["active", "active/../active", "active/inside", ""])
def test_an_archive_in_the_place_of_the_log_is_refused(path: str) -> None:
    world = linear()
    world.qm.end()
    ini = f"{DATA}/qmgrs/{NAME}/qm.ini"
    line = f"LogArchive:\n   ArchivePath={DATA}/log/{NAME}/{path}\n"
    world.disk.poke(ini, world.disk.peek(ini) + line.encode())
    with pytest.raises(qmgr.Mistake, match="where the log itself lies"):
        world.start()


def test_a_queue_without_an_image_gets_one_by_itself() -> None:
    world = World()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"precious")
    world.qm.end()
    migrate_log(NAME, data_path=DATA, log_type="linear", disk=world.disk)
    world.start()
    assert world.qm._engine.state.queues["Q"].image is None
    world.clock.advance(60)
    world.qm.put("Q", b"more")
    assert world.qm._engine.state.queues["Q"].image is not None
    world.disk = world.disk.crash(LOSE_ALL)
    lose_segments(world, "Q")
    world.start()
    assert bodies(world.qm, "Q") == [b"precious", b"more"]


def going_on(unit: qmgr.UnitOfWork) -> bool:
    """Was it not rolled back to release log space?"""
    return not unit._unit.evicted


@pytest.mark.parametrize("seed", range(100 if SOAK else 6))
def test_extents_that_hold_nothing_of_a_queue_are_passed_over_when_it_is_built_again(seed: int) -> None:
    """Units of work whose calls and outcome lie in different extents, backed out, in doubt and rolled forward too."""
    rng = random.Random(seed)
    world = linear(log_primary_files=12, log_secondary_files=2)
    qm = world.qm
    for queue in ("Q", "R", "OTHER"):
        qm.define_queue(queue)
    qm.put_many("Q", [b"%d" % n for n in range(30)])
    if seed % 3 == 0:
        qm.record_image()
    units: list[qmgr.UnitOfWork] = []
    for n in range(60):
        fill(world, rng.choice([0, 0, 3, 30]))
        what = rng.random()
        if what < 0.2:
            units.append(qm.begin(qmgr.Xid(1, b"%d" % n, b"")))
        elif what < 0.5 and units:
            unit = rng.choice(units)
            if going_on(unit):
                unit.put(rng.choice("QR"), b"of unit %d" % n)
                if rng.random() < 0.5:
                    unit.get("Q")
        elif what < 0.7 and units:
            unit = units.pop(rng.randrange(len(units)))
            if going_on(unit) and rng.random() < 0.5:
                unit.prepare()
                fill(world, rng.choice([0, 30]))
            unit.commit() if going_on(unit) and rng.random() < 0.6 else unit.backout()
        elif what < 0.75:
            qm.put("Q", b"alone %d" % n)
        if rng.random() < 0.1:
            qm.checkpoint()
    fill(world, 60)
    for unit in [unit for unit in units if not going_on(unit)]:
        units.remove(unit)
        unit.backout()
    for unit in units[::2]:
        unit.prepare()
    qm._retention.indexing.index_extents()
    before = bodies(qm, "Q"), bodies(qm, "R"), qm.queue("Q").depth, qm.queue("Q").uncommitted
    for queue in "QR":
        qm.recreate(queue)
    assert (bodies(qm, "Q"), bodies(qm, "R"), qm.queue("Q").depth, qm.queue("Q").uncommitted) == before
    for unit in units:
        unit.commit()
    after = bodies(qm, "Q")
    for path in world.disk.files(f"{DATA}/log"):
        if path.endswith(".IDX"):
            world.disk.remove(path)
    qm.recreate("Q")
    assert bodies(qm, "Q") == after
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "Q") == after


def test_a_long_log_of_others_is_not_read_to_build_a_queue_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = linear()
    for queue in ("Q", "OTHER"):
        world.qm.define_queue(queue)
    world.qm.put("Q", b"precious")
    fill(world, 260)
    applied: list[object] = []
    original = rebuild.Rebuild.apply
    monkeypatch.setattr(rebuild.Rebuild, "apply", lambda *said: (applied.append(said[1]), original(*said)))
    assert world.qm.recreate("Q").depth == 1
    before = len(applied)
    world.qm._retention.indexing.index_extents()
    assert world.qm.recreate("Q").depth == 1
    assert (len(applied) - before) * 4 < before


def test_images_that_went_with_the_history_are_forgotten_also_without_a_start_in_between() -> None:
    world = linear()
    for queue in ("Q", "OTHER"):
        world.qm.define_queue(queue)
    world.qm.put("Q", b"precious")
    fill(world, 60)
    world.qm.record_image()
    fill(world, 60)
    world.qm.end()
    for kind in ("circular", "linear"):
        migrate_log(NAME, data_path=DATA, log_type=kind, disk=world.disk)
    path = f"{DATA}/qmgrs/{NAME}/amqalchk.fil"
    again = world.disk.snapshot(KEEP_ALL)
    world.start()
    assert world.qm._engine.state.queues["Q"].image is None
    world.disk = again
    data = bytearray(world.disk.peek(path))
    data[30] ^= 1
    world.disk.poke(path, bytes(data))
    world.start()
    assert world.qm._engine.state.queues["Q"].image is None
    world.clock.advance(60)
    world.qm.put("Q", b"more")
    assert world.qm.recreate("Q").depth == 2


def test_an_extent_that_can_not_be_opened_for_want_of_descriptors_does_not_count_as_missing() -> None:
    world = linear()
    for queue in ("Q", "OTHER"):
        world.qm.define_queue(queue)
    world.qm.put("Q", b"precious")
    fill(world, 60)
    world.qm.checkpoint()
    in_log = f"{DATA}/log/{NAME}/active/"
    for nth in range(1, 12):
        for call in (
            lambda: world.qm.recreate("Q"),
            lambda: list(world.qm.replay("Q", "oldest")),
            lambda: world.qm.remove_log(older_than=0),
        ):
            world.disk.fail("open", errno.EMFILE, nth=nth, once=False, where=lambda path: path.startswith(in_log))
            with pytest.raises(qmgr.Unavailable, match=r"Too many open files.*nothing is lost.*descriptors have run"):
                call()
            world.disk.heal()
    assert world.qm.recreate("Q").depth == 1
    assert len(list(world.qm.replay("Q", "oldest"))) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_row_63_who_was_stopped_in_a_recreation_while_another_took_over_leaves_his_segments(
    monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """They have the same numbers. So it is where a thread is in a recreation that another thread does not wait for."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 1000)  # so that the queue has two of them
    world = linear()
    world.qm.define_queue("Q")
    for body in (b"x", b"y"):
        world.qm.put("Q", body * 2000)
        world.qm.checkpoint()
    world.qm.record_image()
    world.qm.checkpoint()  # which needs no number, so it names the next one
    old, disk = world.qm, world.disk
    files = dict[str, bytes]()

    def stopped(kind: str, path: str) -> None:
        if kind == "sync" and path.endswith(".seg"):
            disk.before_effect = None
            if ended:
                old.end("immediate")
            disk.locks.clear()
            world.start()
            world.qm.get("Q")
            world.qm.record_image()
            world.qm.recreate("Q")
            files.update({path: disk.peek(path) for path in disk.files(DATA) if path.endswith(".seg")})

    disk.before_effect = stopped
    with pytest.raises(qmgr.Unavailable, match="has ended" if ended else "another process has started this"):
        old.recreate("Q")
    old.abandon()
    assert files
    assert {path: disk.peek(path) for path in disk.files(DATA) if path.endswith(".seg")} == files


@pytest.mark.interpreted
def test_a_recording_that_was_struck_pins_no_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint goes on without who has asked for it, and tells what it holds when nobody listens any more."""
    world = World(log_type="linear")
    world.qm.define_queue("A", buffer_size=1)
    world.qm.put_many("A", [bytes(100)] * 10)
    usual = world.qm._media._checkpoint
    late: list[tuple[OnTaken, Any, Any]] = []

    def struck(hear: OnTaken) -> None:
        usual(lambda checkpoint, catalogue: late.append((hear, checkpoint, catalogue)))
        raise KeyboardInterrupt

    monkeypatch.setattr(world.qm._media, "_checkpoint", struck)
    with pytest.raises(KeyboardInterrupt):
        world.qm.record_image("A")
    [(hear, checkpoint, catalogue)] = late
    hear(checkpoint, catalogue)
    assert not world.qm._store.pinned
    assert any(b'"segments": [{' in line for line in catalogue)


def test_what_was_built_as_it_was_earlier_records_its_definitions_itself() -> None:
    """Where those of the original had been recorded last: that lies in another log."""
    world = linear()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"kept")
    world.qm.record_image("Q")
    world.qm.record_definitions()
    world.qm.end()
    moment = world.clock.wall_us()
    recover_to(NAME, "/then", time_us=moment, data_path=DATA, disk=world.disk, clock=world.clock)
    with qmgr.start(NAME, data_path="/then", disk=world.disk, clock=world.clock, background=False) as then:
        then.record_image("Q")
        moment = world.clock.wall_us()
    recover_to(NAME, "/again", time_us=moment, data_path="/then", disk=world.disk, clock=world.clock)
    with qmgr.start(NAME, data_path="/again", disk=world.disk, clock=world.clock, background=False) as again:
        assert bodies(again, "Q") == [b"kept"]
