"""A log that was put back from an older copy, and an archive that was not: nobody reads the other past that it has."""

import contextlib
import errno

import pytest

import qmgr
from logger import claims, undone
from logger.archive import undone_in
from logger.compressed import Compression
from logger.compressed import compress as compressed
from logger.errors import LogError
from logger.whole_files import make_dirs
from qmgr import repairing
from qmgr.migration import migrate_log
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, World
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed

LOG = f"{DATA}/log/{NAME}"
ARCHIVE = f"{LOG}/archive"


def put(world: World, queue: str, tag: str, count: int) -> None:
    for number in range(count):
        world.qm.put(queue, f"{tag} {number} ".encode() + b"x" * 2000)


def settled(world: World) -> None:
    """What no restart needs lies before both checkpoints."""
    for _ in range(3):
        world.qm.checkpoint()


def archived(world: World, *, compress: bool) -> None:
    settled(world)
    world.qm._retention.indexing.index_extents()
    world.qm.archive_log()
    if compress:
        world.qm.compress_log()


def put_back(world: World, *, compress: bool = False) -> SimDisk:
    """A past of B that is undone by a backup of the moment before it, of all but the archive."""
    for queue in ("A", "B"):
        world.qm.define_queue(queue)
    put(world, "B", "common", 150)
    world.qm.end()
    before = world.disk.snapshot(KEEP_ALL)
    world.start()
    put(world, "B", "undone", 350)
    archived(world, compress=compress)
    world.qm.end()
    make_dirs(before, ARCHIVE)
    before.sync_dir(LOG)
    for path in world.disk.files(ARCHIVE):
        before.poke(path, world.disk.peek(path))
    before.sync_dir(ARCHIVE)
    return before


def hidden(world: World) -> list[str]:
    return sorted(undone.read(world.disk, LOG, world.qm._log.state.log_id).names)


def bodies(messages: object) -> list[str]:
    return [message.body.decode().rpartition(" ")[0] for message in messages]  # type: ignore[attr-defined]


@pytest.mark.parametrize("compress", [False, True])
def test_nothing_of_it_is_replayed_or_recreated_or_put_in_the_place_of_what_is_new(compress: bool) -> None:
    world = World(log_type="linear", log_secondary_files=2)
    world.disk = put_back(world, compress=compress)
    there = {path.rpartition("/")[2] for path in world.disk.files(ARCHIVE) if not path.endswith((".IDX", ".log-id"))}
    world.start()
    assert set(hidden(world)) == {name for name in there if "S0000000" not in name}  # that one both pasts have
    put(world, "A", "new", 200)
    archived(world, compress=compress)
    told = bodies(each.message for each in world.qm.replay("A", "oldest"))
    assert told == [f"new {number}" for number in range(200)]
    assert all("undone" not in one for one in bodies(each.message for each in world.qm.replay("B", "oldest")))
    for queue in ("A", "B"):
        before = bodies(world.qm.browse(queue))
        for path in world.disk.files(f"{DATA}/qmgrs/{NAME}/queues/{queue}"):
            world.disk.remove(path)
        world.qm.recreate(queue)
        assert bodies(world.qm.browse(queue)) == before
    archived(world, compress=not compress)
    assert 0 < len(hidden(world)) <= len(there) - 1
    assert "S0000001.LOG.gz" not in hidden(world), "each is replaced in its turn"
    assert all("undone" not in one for one in bodies(each.message for each in world.qm.replay("B", "oldest")))
    world.qm.end()
    qmgr.delete(NAME, data_path=DATA, disk=world.disk)
    assert world.disk.files(LOG) == []


@pytest.mark.parametrize("action", ["archive", "compress"])
def test_its_indexes_tell_nothing_of_what_comes_in_the_place_of_its_extents(action: str) -> None:
    """The extent in which the backup was made has the same header in both pasts, so that an index fits both."""
    world = World(log_type="linear", log_secondary_files=2)
    world.disk = put_back(world)
    world.start()
    world.qm.define_queue("C")
    put(world, "C", "new", 200)
    settled(world)
    assert f"{ARCHIVE}/S0000001.IDX" in world.disk.files(ARCHIVE)
    assert f"{LOG}/active/S0000001.IDX" not in world.disk.files(LOG)
    if action == "compress":
        world.qm.compress_log()
    assert "S0000001" in " ".join(step.target for step in world.qm.archive_log().done)
    before = bodies(world.qm.browse("C"))
    for path in world.disk.files(f"{DATA}/qmgrs/{NAME}/queues/C"):
        world.disk.remove(path)
    world.qm.recreate("C")
    assert bodies(world.qm.browse("C")) == before


def test_it_is_known_also_where_the_archive_was_away_at_the_first_start_after_the_backup() -> None:
    world = World(log_type="linear", log_secondary_files=2)
    for queue in ("A", "B"):
        world.qm.define_queue(queue)
    put(world, "B", "common", 350)
    archived(world, compress=False)
    common = set(world.disk.files(ARCHIVE))
    world.qm.end()
    before = world.disk.snapshot(KEEP_ALL)
    world.start()
    put(world, "B", "undone", 350)
    archived(world, compress=False)
    world.qm.end()
    there = {path: world.disk.peek(path) for path in world.disk.files(ARCHIVE)}
    world.disk = before
    for path in common:
        before.remove(path)
    world.start()
    put(world, "A", "new", 350)
    settled(world)
    world.qm.end()
    for path, content in there.items():
        before.poke(path, content)
    world.start()
    undone_past = {path.rpartition("/")[2] for path in there.keys() - common if path.endswith(".LOG")}
    assert undone_past
    assert undone_past <= set(hidden(world))


def test_it_is_known_whatever_crashes_meanwhile() -> None:
    world = World(log_type="linear", log_secondary_files=2)
    made = put_back(world)
    for moment in range(1, 60):
        for loss in (LOSE_ALL, mixed(moment)):
            world.disk = made.snapshot(KEEP_ALL)
            world.disk.crash_after(moment)
            try:
                world.start()
            except (SimCrash, qmgr.MQError):
                world.crash(loss)
            else:
                world.disk.no_crash()
            assert hidden(world) == ["S0000001.LOG", "S0000002.LOG", "S0000003.LOG"]


@pytest.mark.parametrize("compress", [False, True])
def test_what_is_archived_under_such_a_name_counts_whatever_crashes_meanwhile(compress: bool) -> None:
    world = World(log_type="linear", log_secondary_files=2)
    world.disk = put_back(world, compress=compress)
    world.start()
    put(world, "A", "new", 200)
    settled(world)
    world.qm.end()
    made, expected = world.disk, [f"new {number}" for number in range(200)]
    for moment in range(1, 90, 2 if SOAK else 5):
        world.disk = made.snapshot(KEEP_ALL)
        world.start()
        world.disk.crash_after(moment)
        try:
            archived(world, compress=compress)
        except (SimCrash, qmgr.MQError, LogError):
            world.crash(mixed(moment))
        else:
            world.disk.no_crash()
        for _ in range(2):
            assert bodies(each.message for each in world.qm.replay("A", "oldest")) == expected
            told = bodies(each.message for each in world.qm.replay("B", "oldest"))
            assert told == [f"common {number}" for number in range(150)]
            archived(world, compress=compress)


def test_copies_that_somebody_made_by_hand_stay_while_they_are_true() -> None:
    world = World(log_type="linear", log_primary_files=8, log_management="Archive")
    world.qm.define_queue("A")
    put(world, "A", "here", 400)
    world.disk = world.disk.crash(KEEP_ALL)  # a restart needs all of it
    make_dirs(world.disk, ARCHIVE)
    active = [path for path in world.disk.files(f"{LOG}/active") if "/S" in path and path.endswith(".LOG")]
    copies = {path: path.replace("/active/", "/archive/") for path in active[:3]}
    for path, copy in copies.items():
        world.disk.poke(copy, world.disk.peek(path))
    data = bytearray(world.disk.peek(active[2]))
    data[50_000] ^= 1
    world.disk.poke(copies[active[2]], bytes(data))
    world.start()
    assert hidden(world) == [active[2].rpartition("/")[2]]
    assert len(list(world.qm.replay("A", "oldest"))) == 400


@pytest.mark.parametrize("compress", [False, True])
def test_an_archive_that_is_named_again_long_after_a_backup_from_before_it_was_put_back(compress: bool) -> None:
    """The start that sees it first begins far behind where the two pasts part, and the log has both."""
    world = World(log_type="linear", log_secondary_files=2)
    disk = put_back(world)
    archive = {path: disk.peek(path) for path in disk.files(ARCHIVE)}
    for path in archive:
        disk.remove(path)
    world.disk = disk
    if world.disk.exists(f"{LOG}/{claims.USED}"):
        world.disk.remove(f"{LOG}/{claims.USED}")
    world.start()
    put(world, "A", "new", 400)
    settled(world)
    if compress:
        assert world.qm.compress_log().done
    world.qm.end()
    for path, data in archive.items():
        world.disk.poke(path, data)
    world.start()
    there = {path.rpartition("/")[2] for path in archive if path.endswith(".LOG")}
    assert set(hidden(world)) == there - {"S0000000.LOG"}
    for _ in range(2):
        for queue, tags in (("A", {"new"}), ("B", {"common"})):
            told = bodies(each.message for each in world.qm.replay(queue, "oldest"))
            assert {one.partition(" ")[0] for one in told} == tags
        settled(world)
        world.qm.archive_log()
        world.qm.compress_log()


def test_a_circular_log_leaves_nothing_in_an_archive() -> None:
    """What it has from the time when the log was circular is of another past, though that is long before its head."""
    world = World(log_type="linear", log_secondary_files=2)
    world.qm.define_queue("A")
    put(world, "A", "common", 150)
    archived(world, compress=False)
    world.qm.end()
    common = [path for path in world.disk.files(ARCHIVE) if path.endswith(".LOG")]
    migrate_log(NAME, data_path=DATA, log_type="circular", disk=world.disk)
    backup = world.disk.snapshot(KEEP_ALL)
    migrate_log(NAME, data_path=DATA, log_type="linear", disk=world.disk)
    world.start()
    put(world, "A", "undone", 400)
    archived(world, compress=False)
    world.qm.end()
    for path in world.disk.files(ARCHIVE):
        backup.poke(path, world.disk.peek(path))
    world.disk = backup
    world.start()
    put(world, "A", "circular", 700)
    settled(world)
    world.qm.end()
    migrate_log(NAME, data_path=DATA, log_type="linear", disk=world.disk)
    world.start()
    there = {path.rpartition("/")[2] for path in world.disk.files(ARCHIVE) if path.endswith(".LOG")}
    assert len(there) > len(common) + 2
    assert set(hidden(world)) == there - {path.rpartition("/")[2] for path in common}
    with contextlib.suppress(qmgr.MQError):  # there is a gap
        assert all("undone" not in one for one in bodies(each.message for each in world.qm.replay("A", "oldest")))


@pytest.mark.parametrize("all_before", [False, True])
def test_a_copy_that_was_made_too_early_counts_when_it_was_made_again_and_reported(all_before: bool) -> None:
    """Somebody copies all extents each day, also the one that is being written."""
    world = World(log_type="linear", log_primary_files=4, log_management="Archive")
    world.qm.define_queue("A")
    make_dirs(world.disk, ARCHIVE)
    said = 0
    for day in range(3):
        put(world, "A", f"day {day}", 150)
        world.qm.record_image()
        active = [path for path in world.disk.files(f"{LOG}/active") if "/S" in path and path.endswith(".LOG")]
        current = world.qm._retention.current()
        for path in active:
            name = path.rpartition("/")[2]
            world.disk.poke(f"{ARCHIVE}/{name}", world.disk.peek(path))
            if name < current and not all_before:
                world.qm.note_archived(name)
        if all_before:
            world.qm.note_archived(f"S{int(current[1:8]) - 1:07d}.LOG", all_before=True)
        settled(world)
        world.qm.end()
        world.start()
        said += len(hidden(world))
        assert all(name >= current for name in hidden(world))
    assert said, "the one that is being written is not believed"
    assert "S0000000.LOG" not in [path.rpartition("/")[2] for path in world.disk.files(f"{LOG}/active")]
    told = bodies(each.message for each in world.qm.replay("A", "oldest"))
    assert told == [f"day {day} {number}" for day in range(3) for number in range(150)]


def test_a_compressed_extent_takes_the_place_of_no_other_version_of_it() -> None:
    """One of the two has been damaged, or it is of another past and nothing tells which."""
    world = World(log_type="linear", log_secondary_files=2)
    world.qm.define_queue("A")
    put(world, "A", "here", 400)
    archived(world, compress=False)
    first = f"{ARCHIVE}/S0000000.LOG"
    data = bytearray(world.disk.peek(first))
    data[50_000] ^= 1
    world.disk.poke(first, bytes(data))
    compressed(world.disk, first, f"{first}.gz", Compression.GZIP)
    data[50_000] ^= 1
    world.disk.poke(first, bytes(data))
    other = world.disk.peek(f"{first}.gz")
    with pytest.raises(qmgr.Unavailable, match="holds the same part of the log otherwise; compare the two"):
        world.qm.compress_log()
    assert world.disk.peek(f"{first}.gz") == other
    world.disk.remove(f"{first}.gz")
    assert world.qm.compress_log().done
    assert not world.disk.exists(first)


def test_what_is_archived_takes_the_place_of_a_copy_that_was_made_too_early() -> None:
    world = World(log_type="linear", log_secondary_files=2)
    world.qm.define_queue("A")
    put(world, "A", "here", 10)
    make_dirs(world.disk, ARCHIVE)
    world.disk.poke(f"{ARCHIVE}/S0000000.LOG", world.disk.peek(f"{LOG}/active/S0000000.LOG"))
    put(world, "A", "there", 400)
    archived(world, compress=False)
    assert not world.disk.exists(f"{LOG}/active/S0000000.LOG")
    assert len(list(world.qm.replay("A", "oldest"))) == 410


def moved_archive(world: World) -> str:
    """Somebody has moved the archive, and says so in qm.ini, as AMQ9012 tells him to."""
    world.qm.define_queue("A")
    put(world, "A", "here", 20)
    world.qm.record_image()
    put(world, "A", "here", 380)
    archived(world, compress=False)
    world.qm.end()
    moved = f"{DATA}/moved/{NAME}"
    make_dirs(world.disk, moved)
    for path in world.disk.files(ARCHIVE):
        world.disk.poke(path.replace(ARCHIVE, moved), world.disk.peek(path))
        world.disk.remove(path)
    ini = f"{DATA}/qmgrs/{NAME}/qm.ini"
    world.disk.poke(ini, world.disk.peek(ini) + f"\nLogArchive:\n   ArchivePath={moved}\n".encode())
    return moved


@pytest.mark.parametrize("fails", [False, True])
def test_an_archive_that_was_moved_counts_also_after_a_start_that_could_not_look_at_it(fails: bool) -> None:
    world = World(log_type="linear", log_secondary_files=2)
    moved = moved_archive(world)
    if fails:
        world.disk.fail(
            ("read", "open"), errno.EIO, once=False, where=lambda path: path.startswith(f"{moved}/S0000000")
        )
    world.start()
    if fails:
        assert undone.read(world.disk, LOG, world.qm._log.state.log_id).unseen
        assert len(list(world.qm.replay("A", "oldest"))) < 400, "what the archive has is not read for now"
        world.disk.heal()
    for _ in range(2):
        world.qm.end()
        world.start()
        assert hidden(world) == []
        assert len(list(world.qm.replay("A", "oldest"))) == 400
    assert world.qm.recreate("A").depth == 400


def test_the_policy_archives_nothing_while_the_archive_can_not_be_looked_at() -> None:
    world = World(log_type="linear", log_secondary_files=2)
    world.disk = put_back(world)
    ini = f"{DATA}/qmgrs/{NAME}/qm.ini"
    world.disk.poke(ini, world.disk.peek(ini) + b"\nLogArchive:\n   ArchiveAfter=1h\n")
    last = max(world.disk.files(ARCHIVE))
    world.disk.fail(("read", "open"), errno.EIO, once=False, where=lambda path: path.startswith(last))
    world.start()
    put(world, "A", "new", 200)
    settled(world)
    world.clock.jump_wall(7200)
    there = world.disk.files(f"{LOG}/active")
    world.qm._retention.keep_policy()
    assert world.disk.files(f"{LOG}/active") == there
    world.disk.heal()
    world.qm._retention._next_look_ns = 0
    world.qm._retention.keep_policy()
    assert len(world.disk.files(f"{LOG}/active")) < len(there)
    assert not world.qm._retention._archive_unseen
    told = bodies(each.message for each in world.qm.replay("B", "oldest"))
    assert told == [f"common {n}" for n in range(150)]


def test_nothing_is_reported_as_archived_while_the_archive_can_not_be_looked_at() -> None:
    """What is let go of then could not be told from another past by the start that can look again."""
    world = World(log_type="linear", log_primary_files=4, log_management="Archive")
    world.qm.define_queue("A")
    put(world, "A", "here", 300)
    world.qm.record_image()
    settled(world)
    world.qm.end()
    make_dirs(world.disk, ARCHIVE)
    names = [path.rpartition("/")[2] for path in world.disk.files(f"{LOG}/active") if "/S" in path]
    world.disk.poke(f"{ARCHIVE}/{names[0]}", world.disk.peek(f"{LOG}/active/{names[0]}"))
    world.disk.fail(("read", "open"), errno.EIO, once=False, where=lambda path: path.startswith(ARCHIVE))
    world.start()
    with pytest.raises((qmgr.MQError, OSError), match="archive"):
        world.qm.note_archived(names[0])
    world.disk.heal()
    world.qm.note_archived(names[0])
    settled(world)
    assert not world.disk.exists(f"{LOG}/active/{names[0]}")
    world.qm.end()
    world.start()
    assert hidden(world) == []
    assert len(list(world.qm.replay("A", "oldest"))) == 300


@pytest.mark.parametrize("junk", [bytes(100), b"\xff\xfe\x00\n/archive\x00\n", b"neither\n\n"], ids=[0, 1, 2])
def test_a_list_of_archives_that_can_not_be_read_keeps_nobody_from_a_start(junk: bytes) -> None:
    """It says no more than which directories have been the archive."""
    world = World(log_type="linear", log_secondary_files=2)
    world.qm.define_queue("A")
    put(world, "A", "new", 200)
    settled(world)
    world.qm.archive_log()
    world.qm.end()
    world.disk.poke(f"{LOG}/{claims.USED}", junk)
    world.start()
    put(world, "A", "newer", 200)
    settled(world)
    assert world.qm.archive_log().done
    assert claims.used_archives(world.disk, LOG) == [ARCHIVE]


@pytest.mark.parametrize("kind", ["list", "read"])
def test_an_archive_that_can_not_be_looked_at_counts_for_nothing_until_it_can(kind: str) -> None:
    """The start goes on without it, nothing is archived, and nothing of the other past is told, then or later."""
    world = World(log_type="linear", log_secondary_files=2)
    world.disk = put_back(world)
    if kind == "list":
        kept = {path: world.disk.peek(path) for path in world.disk.files(ARCHIVE)}
        for path in kept:
            world.disk.remove(path)
        world.disk.rmdir(ARCHIVE)  # it is not mounted
        world.disk.poke(f"{LOG}/{claims.USED}", f"{ARCHIVE}\n".encode())
    else:
        world.disk.fail("read", errno.EIO, once=False, where=lambda path: path.startswith(ARCHIVE))
    world.start()
    put(world, "A", "new", 200)
    settled(world)
    with pytest.raises((qmgr.MQError, LogError)):
        world.qm.archive_log()
    if kind == "list":
        make_dirs(world.disk, ARCHIVE)
        for path, data in kept.items():
            world.disk.poke(path, data)
    world.disk.heal()
    for _ in range(2):
        told = bodies(each.message for each in world.qm.replay("B", "oldest"))
        assert [one for one in told if "undone" in one] == []
        archived(world, compress=False)
    assert bodies(each.message for each in world.qm.replay("A", "oldest")) == [f"new {n}" for n in range(200)]


def test_a_repair_after_that_takes_nothing_of_it() -> None:
    world = World(log_type="linear", log_secondary_files=2)
    world.disk = put_back(world)
    world.start()
    unit = world.qm.begin()
    unit.put("A", b"holds the head")
    put(world, "B", "new", 100)
    needed = world.qm._retention.needs.oldest()[0]
    assert needed in hidden(world)
    world.disk = world.disk.crash(KEEP_ALL)
    world.disk.remove(f"{LOG}/active/{needed}")
    world.disk.sync_dir(f"{LOG}/active")
    found = repairing.check(NAME, data_path=DATA, disk=world.disk)
    assert found.examination.lost is not None, "it is not in the archive"


def test_extents_that_are_written_anew_after_a_cut_are_not_reported_as_archived() -> None:
    world = World(log_type="linear", log_primary_files=8, log_management="Archive")
    world.qm.define_queue("A")
    put(world, "A", "here", 700)
    current = int(world.qm._retention.current()[1:8])
    assert current > 3
    world.qm.note_archived(f"S{current - 1:07d}.LOG", all_before=True)
    notices = world.qm._retention._notices
    assert notices.covers(current)  # sequences begin with 1, numbers with 0
    notices.add(current + 1, current + 9)  # as of a log that was cut off before them
    world.crash(LOSE_ALL)
    notices = world.qm._retention._notices
    assert [notices.covers(sequence) for sequence in (1, current, current + 1, current + 9)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_copy_of_what_the_log_writes_next_is_of_another_past_also_where_the_active_log_has_it_too() -> None:
    """As after all files but the control file and the checkpoints of an older copy were left where they were."""
    world = World(log_type="linear", log_primary_files=8)
    world.qm.define_queue("A")
    put(world, "A", "here", 700)
    history = world.qm._log.history()
    active, names = history.directories[0], sorted(history.copies())
    assert len(names) > 4
    first, *_, ahead, _ = names
    make_dirs(world.disk, ARCHIVE)
    for sequence in (first, ahead):
        path = history.copies()[sequence][0].path
        world.disk.poke(path.replace(active, ARCHIVE), world.disk.peek(path))
    found = undone_in(world.disk, history, since=first, current=ahead)
    assert found == {history.copies()[ahead][0].path.rpartition("/")[2]}
