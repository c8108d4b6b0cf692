"""The checkpoint file: written whole, two generations, read back or refused; and when a checkpoint is due."""

import errno
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from logger.crc import crc32
from logger.errors import LogClosed
from logger.space import Space
from recovery import checkpoint
from recovery.checkpoint import NAME, PREVIOUS, Checkpoint
from recovery.errors import CheckpointDamaged
from tests.qmgr.world import DATA, Call, World, bodies
from tests.qmgr.world import NAME as QM
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL, Loss

ID = b"i" * 16
lines = st.binary(max_size=60).map(lambda data: data.replace(b"\n", b""))


def one(lsn: int, **fields: Any) -> Checkpoint:
    plain = Checkpoint(
        log_id=ID.hex(), lsn=lsn, head=lsn, durable=lsn, epoch=1, time=5, clean=False,
        counters={"queue": 1, "segment": 1}, units={},
    )  # fmt: skip
    return attrs.evolve(plain, **fields)


@given(st.integers(0, 2**63), st.dictionaries(st.integers(1, 2**63), st.integers(1, 2**63)), st.lists(lines))
def test_what_is_encoded_is_decoded(lsn: int, units: dict[int, int], catalogue: list[bytes]) -> None:
    made = one(lsn, units=units, wall=lsn)
    assert checkpoint.decode_file(checkpoint.encode_file(made, catalogue)) == (made, catalogue)


def test_a_field_that_a_later_version_has_added_is_passed_over() -> None:
    header, first = checkpoint.HEADER.size, json.dumps(attrs.asdict(one(8)) | {"later": 1}).encode()
    rest = checkpoint.HEADER.pack(checkpoint.MAGIC, 0, header + len(first))[12:] + first
    data = checkpoint.MAGIC + crc32(rest).to_bytes(4, "little") + rest
    assert checkpoint.decode_file(data) == (one(8), [])


def test_a_file_can_be_read_by_who_does_not_know_of_the_wall_clock() -> None:
    """It makes of the first line what it knows, no more and no less; and what it has written lacks it."""
    data = checkpoint.encode_file(one(8, wall=7), [])
    fields = json.loads(data[checkpoint.HEADER.size :])
    assert set(fields) == {field.name for field in attrs.fields(Checkpoint)} - {"wall"}
    assert fields["counters"] == {"queue": 1, "segment": 1, "wall": 7}
    del fields["counters"]["wall"]
    line = json.dumps(fields).encode()
    rest = checkpoint.HEADER.pack(checkpoint.MAGIC, 0, checkpoint.HEADER.size + len(line))[12:] + line
    assert checkpoint.decode_file(checkpoint.MAGIC + crc32(rest).to_bytes(4, "little") + rest) == (one(8), [])


@given(st.lists(lines, max_size=3), st.data())
def test_row_40_any_flip_or_cut_is_noticed(catalogue: list[bytes], data: st.DataObject) -> None:
    whole = checkpoint.encode_file(one(8), catalogue)
    broken = bytearray(whole)
    broken[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert checkpoint.decode_file(bytes(broken)) is None
    assert checkpoint.decode_file(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert checkpoint.decode_file(whole + b"x") is None


def write(disk: SimDisk, lsn: int) -> None:
    checkpoint.write_new(disk, "", checkpoint.encode_file(one(lsn), [b"line"]))
    checkpoint.put_in_place(disk, "", ID)


def test_the_newest_comes_first_and_the_one_before_is_kept() -> None:
    disk = SimDisk()
    for lsn in (8, 16, 24):
        write(disk, lsn)
    assert [found.lsn for found, _ in checkpoint.read_files(disk, "", ID)] == [24, 16]
    disk.poke(f"/{NAME}", b"damaged")
    assert [found.lsn for found, _ in checkpoint.read_files(disk, "", ID)] == [16]
    disk.remove(f"/{NAME}")
    assert [found.lsn for found, _ in checkpoint.read_files(disk, "", ID)] == [16]
    disk.poke(f"/{PREVIOUS}", b"")
    with pytest.raises(CheckpointDamaged, match="restore both from a backup"):
        checkpoint.read_files(disk, "", ID)


def test_one_that_becomes_the_previous_one_while_it_is_looked_for_is_read_as_that() -> None:
    """Whoever looks at a queue manager that runs was told now and then that there is no such file."""
    disk = SimDisk()
    write(disk, 8)
    write(disk, 16)
    there = disk.open_read

    def open_read(path: str) -> Any:
        if path.endswith(NAME) and disk.exists(path):
            disk.rename(path, f"/{PREVIOUS}")
        return there(path)

    disk.open_read = open_read  # type: ignore[method-assign]
    assert [found.lsn for found, _ in checkpoint.read_files(disk, "", ID)] == [16]


def test_row_39_another_queue_managers_checkpoint_is_refused() -> None:
    disk = SimDisk()
    write(disk, 8)
    with pytest.raises(CheckpointDamaged, match="belongs to another queue manager"):
        checkpoint.read_files(disk, "", b"j" * 16)


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_row_18_a_whole_checkpoint_is_there_whatever_crashes(part: float) -> None:
    n = 0
    crashed = True
    while crashed:
        n += 1
        for seed in range(6):
            disk = SimDisk()
            write(disk, 8)
            write(disk, 16)
            disk.crash_after(n, part=part)
            try:
                write(disk, 24)
                crashed = False
            except SimCrash:
                crashed = True
            found = [made.lsn for made, _ in checkpoint.read_files(disk.crash(seed), "", ID)]
            assert found[0] in ((16, 24) if crashed else (24,)), (n, seed, found)
    assert n > 5


@pytest.mark.parametrize("newest", [b"damaged", checkpoint.encode_file(one(32, log_id=(b"j" * 16).hex()), [])])
def test_where_only_the_one_before_is_whole_it_is_kept_until_there_is_a_new_one(newest: bytes) -> None:
    """It was the first to go: where that was all that happened neither was left."""
    n = 0
    crashed = True
    while crashed:
        n += 1
        for loss in (KEEP_ALL, LOSE_ALL, *range(6)):
            disk = SimDisk()
            write(disk, 8)
            write(disk, 16)
            disk.poke(f"/{NAME}", newest)
            disk.crash_after(n)
            try:
                write(disk, 24)
                crashed = False
            except SimCrash:
                crashed = True
            found = [made.lsn for made, _ in checkpoint.read_files(disk.crash(loss), "", ID)]
            assert found[0] in ((8, 24) if crashed else (24,)), (n, loss, found)
    assert found == [24, 8]


@pytest.mark.parametrize(("error", "kept"), [(errno.EMFILE, True), (errno.EIO, False)])
def test_one_that_can_not_be_read_now_is_not_taken_for_damaged(error: int, kept: bool) -> None:
    disk = SimDisk()
    write(disk, 8)
    write(disk, 16)
    checkpoint.write_new(disk, "", checkpoint.encode_file(one(24), []))
    disk.fail("open", error, where=lambda path: path.endswith(NAME))
    if kept:
        with pytest.raises(OSError, match="Too many open files"):
            checkpoint.put_in_place(disk, "", ID)
        checkpoint.put_in_place(disk, "", ID)
    else:
        checkpoint.put_in_place(disk, "", ID)
    assert [found.lsn for found, _ in checkpoint.read_files(disk, "", ID)] == [24, 16 if kept else 8]


def test_a_checkpoint_that_finds_no_disk_space_leaves_the_one_before(world: World) -> None:
    """Row 54: it is refused with 2192, work goes on, and when there is space again so does the next checkpoint."""
    world.qm.put("A", b"1")
    world.qm.checkpoint()
    world.qm.put("A", b"2")
    world.disk.fail(("create", "write"), 28, once=False, where=lambda path: "/qmgrs/" in path)
    with pytest.raises(qmgr.StorageFull) as caught:
        world.qm.checkpoint()
    assert caught.value.reason == qmgr.Reason.STORAGE_MEDIUM_FULL
    world.qm.put("A", b"3")
    assert world.qm.get("A").body == b"1"
    world.disk.heal()
    world.qm.checkpoint()
    world.crash()
    assert bodies(world.qm, "A") == [b"2", b"3"]


def test_what_a_failed_checkpoint_was_to_write_the_next_one_writes(world: World) -> None:
    world.qm.put_many("A", [b"%d" % n for n in range(10)])
    for nth in range(1, 8):
        world.disk.fail(("create", "write"), 28, nth=nth, where=lambda path: "/qmgrs/" in path)
        try:
            world.qm.checkpoint()
        except qmgr.StorageFull:
            world.qm.put("A", b"after %d" % nth)
        world.disk.heal()
    expected = bodies(world.qm, "A")
    assert len(expected) > 10
    world.qm.checkpoint()
    assert bodies(world.crash(), "A") == expected
    world.restart()
    assert bodies(world.qm, "A") == expected


def test_row_43_the_checkpoint_before_will_do_while_the_log_reaches_back(world: World) -> None:
    for n in range(5):
        world.qm.put("A", b"%d" % n)
        world.qm.checkpoint()
    world.qm.put("A", b"5")
    world.disk = world.disk.crash()
    world.disk.poke(f"{DATA}/qmgrs/{QM}/{NAME}", b"damaged")
    world.start()
    assert bodies(world.qm, "A") == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_row_43_what_it_needs_is_kept_until_there_is_a_new_one_though_the_head_is_further_on(log_type: str) -> None:
    world = World(log_type=log_type, log_primary_files=3)
    if log_type == "linear":
        world.set_ini("LogManagement", "Automatic")
        world.restart()
    world.qm.define_queue("A")
    world.qm.put("A", b"before")
    world.qm.checkpoint()
    world.qm.put("A", b"since")
    for _ in range(40):
        world.qm.put("A", bytes(10_000))
    kept = bodies(world.qm, "A")
    world.qm.checkpoint()
    world.disk = world.disk.crash()
    world.disk.poke(f"{DATA}/qmgrs/{QM}/{NAME}", b"damaged")
    world.disk.fail("create", errno.ENOSPC, once=False, where=lambda path: "amqalchk" in path)
    world.start()
    assert not world.qm.status().checkpoints
    with pytest.raises(qmgr.ResourceProblem):
        for _ in range(200):
            world.qm.put("A", bytes(10_000))
            kept.append(bytes(10_000))
    world.disk.heal()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == kept


def test_a_start_has_a_later_epoch_than_its_checkpoint(world: World) -> None:
    """The control file may be an older copy, and the log have no record of the start that wrote the checkpoint."""
    world.qm.put("A", b"x")
    world.disk = world.disk.crash()
    path = f"{DATA}/qmgrs/{QM}/{NAME}"
    decoded = checkpoint.decode_file(world.disk.peek(path))
    assert decoded is not None
    world.disk.poke(path, checkpoint.encode_file(attrs.evolve(decoded[0], epoch=50), decoded[1]))
    assert world.start().restart_report.epoch == 51
    assert bodies(world.qm, "A") == [b"x"]


def test_row_32_a_checkpoint_for_whose_own_record_there_is_no_room_holds_nothing_that_comes_after(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its LSN is then that of the next record of anybody, which a restart has to replay."""
    world.qm.put("A", b"before")
    with monkeypatch.context() as full:
        full.setattr(Space, "fits_for_checkpoint", lambda *given: False)
        world.qm.checkpoint()
    after = world.qm._log.buffer.tail
    assert world.qm.status().log.checkpoint == after
    world.qm.put("A", b"after")
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"before", b"after"]


def test_row_43_the_segments_of_the_checkpoint_before_are_there_as_long_as_it_may_be_needed(world: World) -> None:
    """What the newest one refers to no more goes only when there is a newer one still."""
    world.qm.put_many("A", [b"got later"] * 3)
    world.qm.checkpoint()
    segments = [path for path in world.disk.files(f"{DATA}/qmgrs/{QM}/queues") if path.endswith(".seg")]
    assert segments
    world.qm.get_many("A", 3)
    world.qm.put("A", b"stays")
    world.qm.checkpoint()
    before = world.disk.snapshot()
    before.poke(f"{DATA}/qmgrs/{QM}/{NAME}", b"damaged")
    assert all(before.exists(path) for path in segments)
    qm = qmgr.start(QM, data_path=DATA, disk=before, clock=world.clock, background=False)
    assert bodies(qm, "A") == [b"stays"]
    world.qm.put("A", b"more")
    world.qm.checkpoint()
    assert not any(world.disk.exists(path) for path in segments)


def test_row_52_a_segment_whose_sync_has_failed_is_never_appended_to_again(world: World) -> None:
    world.qm.put("A", b"1")
    world.qm.checkpoint()
    [first] = [path for path in world.disk.files(f"{DATA}/qmgrs/{QM}/queues") if path.endswith(".seg")]
    world.qm.put("A", b"2")
    world.disk.fail(("sync",), errno.ENOSPC, once=True, where=lambda path: path == first)
    with pytest.raises(qmgr.StorageFull):
        world.qm.checkpoint()
    before = world.disk.peek(first)
    world.qm.checkpoint()
    assert world.disk.peek(first) == before
    assert bodies(world.crash(), "A") == [b"1", b"2"]


def test_row_63_who_was_stopped_in_a_checkpoint_while_another_took_over_leaves_his_checkpoints(world: World) -> None:
    """It goes on when it has written its segments; what the other one has written counts."""
    world.qm.put("A", b"x")
    old, disk, files = world.qm, world.disk, {}

    def stopped(kind: str, path: str) -> None:
        if kind == "sync" and path.endswith(".seg"):
            disk.before_effect = None
            disk.locks.clear()
            world.start()
            files.update({path: disk.peek(path) for path in disk.files(f"{DATA}/qmgrs/{QM}") if "amqalchk" in path})

    disk.before_effect = stopped
    with pytest.raises(qmgr.Unavailable, match="another process has started this queue manager"):
        old.checkpoint()
    assert files
    assert {path: disk.peek(path) for path in files} == files
    assert not disk.exists(f"{DATA}/qmgrs/{QM}/{NAME}.new")


def test_row_63_who_was_stopped_between_two_segments_while_another_took_over_leaves_his_segments(world: World) -> None:
    """They have the same numbers. What the other one has put since is in no log any more: it must stay."""
    world.qm.define_queue("B")
    world.qm.put("A", b"x")
    world.qm.put("B", b"x")
    old, disk = world.qm, world.disk

    def stopped(kind: str, path: str) -> None:
        if kind == "sync" and path.endswith(".seg"):
            disk.before_effect = None
            disk.locks.clear()
            world.start()
            for queue in ("A", "B"):
                world.qm.put(queue, b"y" * 5000)
            world.qm.checkpoint()

    disk.before_effect = stopped
    with pytest.raises(qmgr.Unavailable, match="another process has started this queue manager"):
        old.checkpoint()
    old.abandon()
    world.crash()
    for queue in ("A", "B"):
        assert bodies(world.qm, queue) == [b"x", b"y" * 5000]


def test_segments_that_no_checkpoint_knows_go_with_the_first_one_of_a_start(world: World) -> None:
    """A crash has left them behind; what is not a segment is nobody's."""
    world.qm.put("A", b"x")
    world.qm.checkpoint()
    directory = f"{DATA}/qmgrs/{QM}/queues/A"
    [kept] = world.disk.files(directory)
    world.disk = world.disk.crash()
    for name in ("00000099.seg", "99.seg.damaged"):
        world.disk.poke(f"{directory}/{name}", b"left behind")
    world.start()
    assert set(world.disk.files(directory)) == {kept, f"{directory}/99.seg.damaged"}
    assert bodies(world.qm, "A") == [b"x"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_start_goes_on_where_a_full_disk_has_no_room_to_delete_them(world: World, error: int) -> None:
    """As a file system that copies what it changes has none; the next start deletes them."""
    world.qm.put("A", b"x")
    world.qm.checkpoint()
    left = f"{DATA}/qmgrs/{QM}/queues/A/00000099.seg"
    world.disk = world.disk.crash()
    world.disk.poke(left, b"left behind")
    world.disk.fail("unlink", error, once=False, where=lambda path: path.endswith(".seg"))
    world.start()
    assert bodies(world.qm, "A") == [b"x"]
    assert world.disk.exists(left)
    world.disk.heal()
    world.restart()
    assert not world.disk.exists(left)


@pytest.mark.parametrize("loss", [KEEP_ALL, LOSE_ALL])
def test_a_checkpoint_that_failed_when_it_had_its_name_may_count_after_a_crash(world: World, loss: Loss) -> None:
    """So the segments that it has made stay until there are two newer ones."""
    world.qm.put("A", b"x")
    world.disk.fail("sync_dir", errno.ENOSPC, where=lambda path: path == f"{DATA}/qmgrs/{QM}")
    with pytest.raises(qmgr.StorageFull):
        world.qm.checkpoint()
    world.qm.put("A", b"y")
    wanted = bodies(world.qm, "A")
    world.disk = world.disk.snapshot(loss)
    world.start()
    assert bodies(world.qm, "A") == wanted


def test_after_a_checkpoint_that_failed_as_much_has_come_as_before_it(world: World) -> None:
    """So the next one is due as soon as it can be tried again, and not when as much has come once more."""
    checkpointer = world.qm._housekeeper._checkpointer
    world.qm.put("A", bytes(1000))
    world.qm.checkpoint()
    unit = world.qm.begin()
    unit.get("A")
    unit.backout()
    for _ in range(20):
        world.qm.put("A", bytes(1000))
    came = checkpointer.records, checkpointer.arrived_bytes
    returned = checkpointer.returned_bytes
    assert min(*came, returned) > 0
    world.disk.fail("create", errno.ENOSPC, once=False)
    with pytest.raises(qmgr.StorageFull):
        world.qm.checkpoint()
    world.qm.put("A", b"")
    assert checkpointer.records > came[0]
    assert checkpointer.arrived_bytes > came[1]
    assert checkpointer.returned_bytes == returned
    world.disk.heal()
    world.qm.checkpoint()
    assert checkpointer.records <= 1 and not checkpointer.arrived_bytes and not checkpointer.returned_bytes


def test_row_43_what_was_kept_over_an_end_is_not_there_again_after_a_start_that_an_older_control_file_forgets(
    world: World,
) -> None:
    """A get of it is in no log; that there was a start since tells the end of the log, behind checkpoints alone."""
    world.qm.alter_queue("A", non_persistent_class="HIGH")
    world.qm.put("A", b"kept", persistent=False)
    world.qm.end()
    control = f"{DATA}/log/{QM}/amqhlctl.lfh"
    older = world.disk.peek(control)
    world.start()
    assert world.qm.get("A").body == b"kept"
    world.disk = world.disk.crash(KEEP_ALL)
    world.disk.poke(control, older)
    world.disk.poke(f"{DATA}/qmgrs/{QM}/{NAME}", b"damaged")
    world.start()
    assert bodies(world.qm, "A") == []


def test_no_checkpoint_comes_behind_that_of_an_end_in_order(world: World) -> None:
    """One that waits for it would say that the queue manager has not ended in order, and what that keeps would go."""
    world.qm.alter_queue("A", non_persistent_class="HIGH")
    world.qm.put("A", b"kept", persistent=False)
    checkpointer, rename, late = world.qm._housekeeper._checkpointer, world.disk.rename, list[Call]()

    def renamed(source: str, target: str) -> None:
        rename(source, target)
        if target.endswith(NAME):
            late.append(Call(checkpointer.take))

    world.disk.rename = renamed  # type: ignore[method-assign]
    world.qm.end("immediate")
    world.disk.rename = rename  # type: ignore[method-assign]
    with pytest.raises(LogClosed, match="the queue manager ends"):
        late[0].outcome()
    assert bodies(world.start(), "A") == [b"kept"]


def test_the_segments_of_a_deleted_queue_go_though_a_checkpoint_failed_meanwhile(world: World) -> None:
    world.qm.put("A", b"x")
    world.qm.checkpoint()
    [segment] = [path for path in world.disk.files(f"{DATA}/qmgrs/{QM}/queues") if path.endswith(".seg")]
    world.qm.delete_queue("A", purge=True)
    world.disk.fail("create", errno.ENOSPC, once=False)
    with pytest.raises(qmgr.StorageFull):
        world.qm.checkpoint()
    world.disk.heal()
    world.qm.checkpoint()
    assert world.disk.exists(segment)
    world.qm.checkpoint()
    assert not world.disk.exists(segment)


def test_row_50_what_is_set_aside_takes_the_place_of_nothing_that_was(world: World) -> None:
    path, names = f"{DATA}/qmgrs/{QM}/queues/A/00000001.seg", []
    world.qm.put("A", b"x")
    world.qm.checkpoint()
    for number in range(3):
        world.disk.poke(path, b"damaged %d" % number)
        names.append(world.qm._store.set_aside(path))
    for disk in (world.disk, world.disk.snapshot(LOSE_ALL)):
        assert [disk.peek(name) for name in names] == [b"damaged 0", b"damaged 1", b"damaged 2"]
        assert not disk.exists(path)


def test_numbers_of_segments_are_given_back_unless_others_were_taken_since(world: World) -> None:
    store = world.qm._store
    first, second = list(store.take_numbers(3)), list(store.take_numbers(2))
    store.give_back(first)
    store.give_back([])
    assert store.next_segment == second[-1] + 1
    store.give_back(second[1:])
    assert list(store.take_numbers(1)) == second[1:]


@pytest.fixture
def world() -> World:
    made = World()
    made.qm.define_queue("A")
    return made
