"""What SimDisk keeps, may lose and never loses: the fault model itself, tested before anything is tested with it."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.errors import LogInUse
from logger.posix_disk import PosixDisk
from logger.whole_files import make_dirs, read_whole, replace_file, write_whole
from tests.sim.clock import SimClock
from tests.sim.disk import SECTOR, SimCrash, SimDisk
from tests.sim.loss import (
    ALL_WRITTEN,
    DATA_ONLY,
    KEEP_ALL,
    LOSE_ALL,
    NAMES_ONLY,
    NOISED,
    SIZES_ONLY,
    ZEROED,
    Loss,
    mixed,
)

OLD = b"o" * SECTOR
NEW = b"n" * SECTOR
OTHER = b"x" * SECTOR


def disk_with(data: bytes, **same: int) -> SimDisk:
    """A disk with one durable file, /f."""
    disk = SimDisk(**same)
    disk.poke("/f", data)
    return disk


# -- what a sync keeps ---------------------------------------------------------------------------------------------


def test_synced_bytes_survive_every_loss() -> None:
    disk = disk_with(OLD * 8)
    file = disk.open("/f")
    file.write(0, NEW * 8)
    file.sync()
    for seed in range(50):
        assert disk.crash(seed).peek("/f") == NEW * 8, seed


def test_close_is_not_a_sync() -> None:
    disk = disk_with(OLD)
    file = disk.open("/f")
    file.write(0, NEW)
    file.close()
    assert disk.crash(LOSE_ALL).peek("/f") == OLD


def test_sync_of_one_file_does_nothing_for_another() -> None:
    disk = disk_with(OLD)
    disk.poke("/g", OLD)
    f, g = disk.open("/f"), disk.open("/g")
    f.write(0, NEW)
    g.write(0, NEW)
    g.sync()
    after = disk.crash(LOSE_ALL)
    assert after.peek("/f") == OLD
    assert after.peek("/g") == NEW


def test_row_12_a_write_during_a_sync_is_not_covered_by_it() -> None:
    disk = disk_with(OLD * 2)
    file = disk.open("/f")
    file.write(0, NEW)
    disk.during_sync = lambda path: file.write(SECTOR, NEW)
    file.sync()
    assert file.read(0, 2 * SECTOR) == NEW * 2
    assert disk.snapshot(LOSE_ALL).peek("/f") == NEW + OLD
    disk.during_sync = None
    file.sync()
    assert disk.crash(LOSE_ALL).peek("/f") == NEW * 2


def test_a_durable_write_covers_itself_and_nothing_else() -> None:
    disk = disk_with(OLD * 3)
    file = disk.open("/f")
    file.write(0, NEW * 2)
    file.write_durably(SECTOR, OTHER)
    assert file.read(0, 3 * SECTOR) == NEW + OTHER + OLD
    assert disk.snapshot(LOSE_ALL).peek("/f") == OLD + OTHER + OLD
    file.sync()
    assert disk.crash(LOSE_ALL).peek("/f") == NEW + OTHER + OLD


def test_a_durable_write_that_fails_leaves_its_sectors_to_chance() -> None:
    disk = disk_with(OLD)
    file = disk.open("/f")
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.write_durably(0, NEW)
    assert {disk.snapshot(Loss(seed=seed, atomic=True)).peek("/f") for seed in range(50)} == {OLD, NEW}


def test_a_file_sync_does_not_make_its_name_durable() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.write(0, NEW)
    file.sync()
    assert disk.snapshot(LOSE_ALL).files() == []
    disk.sync_dir("/")
    assert disk.crash(LOSE_ALL).peek("/f") == NEW


def test_a_directory_sync_does_not_make_the_content_durable() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.write(0, NEW)
    disk.sync_dir("/")
    assert disk.snapshot(LOSE_ALL).peek("/f") == b""
    assert disk.snapshot(SIZES_ONLY).peek("/f") == bytes(SECTOR)
    assert disk.crash(KEEP_ALL).peek("/f") == NEW


# -- what a crash may lose -----------------------------------------------------------------------------------------


def found_sectors(loss_of: list[Loss], **same: int) -> set[bytes]:
    disk = disk_with(OLD, **same)
    disk.open("/f").write(0, NEW)
    return {disk.crash(loss).peek("/f") for loss in loss_of}


def test_an_unsynced_sector_is_new_old_zero_or_noise() -> None:
    found = found_sectors([mixed(seed) for seed in range(200)])
    assert {OLD, NEW, bytes(SECTOR)} < found
    assert len(found) > 4  # noise is different each time


def test_with_atomic_sectors_it_is_new_or_old() -> None:
    assert found_sectors([mixed(seed, atomic=True) for seed in range(200)]) == {OLD, NEW}


def test_an_unsynced_sector_may_hold_a_version_between() -> None:
    disk = disk_with(OLD)
    file = disk.open("/f")
    file.write(0, b"1" * SECTOR)
    file.write(0, b"2" * SECTOR)
    assert {disk.crash(mixed(seed, atomic=True)).peek("/f")[:1] for seed in range(99)} == {b"o", b"1", b"2"}


def test_sectors_are_lost_apart_from_each_other() -> None:
    disk = disk_with(OLD * 3)
    disk.open("/f").write(0, NEW * 3)
    found = {disk.crash(mixed(seed, atomic=True)).peek("/f")[::SECTOR] for seed in range(300)}
    assert found == {bytes((a, b, c)) for a in b"on" for b in b"on" for c in b"on"}


def test_a_page_can_be_torn_at_every_sector() -> None:
    disk = disk_with(OLD * 8)
    disk.open("/f").write(0, NEW * 8)
    for cut in range(9):
        loss = Loss(sectors="prefix", sizes="new", names="new", cut=cut)
        assert disk.crash(loss).peek("/f") == NEW * cut + OLD * (8 - cut)


def test_size_and_data_are_lost_apart() -> None:
    disk = disk_with(OLD)
    disk.open("/f").write(SECTOR, NEW)
    assert disk.crash(LOSE_ALL).peek("/f") == OLD
    assert disk.crash(SIZES_ONLY).peek("/f") == OLD + bytes(SECTOR)
    assert disk.crash(ZEROED).peek("/f") == OLD + bytes(SECTOR)
    assert disk.crash(NOISED).peek("/f") not in (OLD + bytes(SECTOR), OLD + NEW)
    assert disk.crash(Loss(sectors="new", sizes="old", names="new")).peek("/f") == OLD
    assert disk.crash(KEEP_ALL).peek("/f") == OLD + NEW


def test_a_truncate_may_be_lost_and_never_brings_noise() -> None:
    disk = disk_with(OLD * 3)
    file = disk.open("/f")
    file.truncate(SECTOR + 10)
    file.truncate(3 * SECTOR)
    cut = OLD + b"o" * 10 + bytes(2 * SECTOR - 10)
    assert file.read(0, 9999) == cut
    found = {disk.crash(seed).peek("/f") for seed in range(200)}
    assert {OLD * 3, cut, OLD + b"o" * 10} <= found
    assert all(set(data) <= {0, ord("o")} for data in found)


def test_a_lost_create_loses_the_file_and_a_lost_unlink_brings_it_back() -> None:
    disk = disk_with(OLD)
    file = disk.open("/g", create=True)
    file.write(0, NEW)
    file.sync()
    disk.unlink("/f")
    found = {tuple(disk.crash(seed).files()) for seed in range(100)}
    assert found == {(), ("/f",), ("/g",), ("/f", "/g")}
    assert disk.crash(DATA_ONLY).peek("/f") == OLD


def test_a_rename_is_atomic_and_lost_apart_from_the_create_before_it() -> None:
    disk = disk_with(OLD)
    file = disk.open("/f.new", create=True)
    file.write(0, NEW)
    file.sync()
    disk.rename("/f.new", "/f")
    found = {tuple((path, disk.crash(seed).peek(path)[:1]) for path in disk.crash(seed).files()) for seed in range(99)}
    assert found == {(("/f", b"o"),), (("/f", b"n"),), (("/f", b"o"), ("/f.new", b"n"))}
    disk = disk_with(OLD)
    disk.open("/f.new", create=True).write(0, NEW)
    disk.rename("/f.new", "/f")  # without a sync first: the name is durable, the content not
    assert disk.crash(NAMES_ONLY).peek("/f") == b""


def test_a_file_never_has_two_names_after_a_crash() -> None:
    disk = disk_with(OLD)
    disk.rename("/f", "/g")
    disk.rename("/g", "/h")
    assert {tuple(disk.crash(seed).files()) for seed in range(99)} == {("/f",), ("/g",), ("/h",)}


def test_a_lost_mkdir_loses_what_is_in_it() -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    disk.open("/d/f", create=True).sync()
    disk.sync_dir("/d")
    assert disk.snapshot(LOSE_ALL).files() == []
    disk.sync_dir("/")
    assert disk.crash(LOSE_ALL).files() == ["/d/f"]


def test_a_lost_rmdir_brings_the_directory_back() -> None:
    disk = SimDisk()
    make_dirs(disk, "/d/e")
    disk.rmdir("/d/e")
    assert disk.snapshot(LOSE_ALL).exists("/d/e")
    disk.sync_dir("/d")
    assert not disk.crash(LOSE_ALL).exists("/d/e")


def test_a_move_between_directories_is_durable_when_both_are_synced() -> None:
    disk = SimDisk()
    make_dirs(disk, "/a")
    make_dirs(disk, "/b")
    disk.poke("/a/f", OLD)
    disk.rename("/a/f", "/b/f")
    assert disk.list("/a") == []
    disk.sync_dir("/b")
    assert disk.snapshot(LOSE_ALL).files() == ["/a/f"]
    assert {tuple(disk.snapshot(seed).files()) for seed in range(50)} == {("/a/f",), ("/b/f",)}
    disk.sync_dir("/a")
    assert disk.crash(LOSE_ALL).files() == ["/b/f"]


def test_an_old_name_change_that_waits_holds_back_only_what_touches_it() -> None:
    disk = SimDisk()
    make_dirs(disk, "/a")
    make_dirs(disk, "/b")
    disk.poke("/a/f", OLD)
    disk.rename("/a/f", "/b/f")  # never synced in /a
    disk.poke("/b/x", OLD)
    disk.unlink("/b/x")
    disk.rename("/b/f", "/b/g")
    disk.sync_dir("/b")
    after = {tuple(disk.crash(seed).files()) for seed in range(50)}
    assert after == {("/b/g",)}  # the second rename is durable, and a file has one name


# -- crashes at a call ---------------------------------------------------------------------------------------------


def test_the_process_dies_before_the_nth_effect_and_stays_dead() -> None:
    disk = disk_with(OLD * 2)
    file = disk.open("/f")
    disk.crash_after(2)
    file.write(0, NEW)
    with pytest.raises(SimCrash):
        file.write(SECTOR, NEW)
    for call in (file.sync, file.size, lambda: disk.open("/f"), lambda: disk.list("/"), lambda: file.read(0, 1)):
        with pytest.raises(SimCrash):
            call()
    assert disk.crash(KEEP_ALL).peek("/f") == NEW + OLD


def test_the_process_dies_in_the_middle_of_a_write() -> None:
    disk = disk_with(OLD * 8)
    file = disk.open("/f")
    disk.crash_after(1, part=0.5)
    with pytest.raises(SimCrash):
        file.write(0, NEW * 8)
    assert disk.crash(KEEP_ALL).peek("/f") == NEW * 4 + OLD * 4
    assert disk.crash(LOSE_ALL).peek("/f") == OLD * 8


def test_what_a_dead_process_had_not_synced_is_there_and_can_still_be_lost() -> None:
    disk = disk_with(OLD)
    disk.open("/f").write(0, NEW)
    disk.open("/g", create=True)
    after = disk.crash(KEEP_ALL)
    assert (after.files(), after.peek("/f")) == (["/f", "/g"], NEW)
    assert after.snapshot(LOSE_ALL).files() == ["/f"]
    assert after.snapshot(LOSE_ALL).peek("/f") == OLD
    after.open("/f").sync()
    after.sync_dir("/")
    assert after.crash(LOSE_ALL).files() == ["/f", "/g"]
    assert after.crash(LOSE_ALL).peek("/f") == NEW
    assert disk.crash(LOSE_ALL).peek("/f") == OLD  # another life of the same disk
    assert disk.crash(ALL_WRITTEN).crash(LOSE_ALL).peek("/f") == NEW


def test_a_sync_keeps_what_readers_see_whatever_was_cut_and_written_durably_before() -> None:
    disk = disk_with(OLD * 2)
    file = disk.open("/f")
    file.truncate(0)
    file.write_durably(0, NEW)
    file.sync()
    assert disk.crash(LOSE_ALL).peek("/f") == NEW


def test_files_opened_before_a_crash_are_dead_after_it() -> None:
    disk = disk_with(OLD)
    file = disk.open("/f")
    after = disk.crash()
    with pytest.raises(SimCrash):
        file.write(0, NEW)
    assert after.peek("/f") == OLD
    assert after.open("/f").read(0, SECTOR) == OLD


def test_a_crash_frees_the_locks() -> None:
    disk = SimDisk()
    lock = disk.lock("/l", "sim one")
    assert disk.locked_by("/l") == "sim one"
    with pytest.raises(LogInUse) as caught:
        disk.lock("/l", "sim two")
    assert caught.value.holder == "sim one"
    lock.release()
    assert disk.locked_by("/l") is None
    disk.lock("/l", "sim three")
    after = disk.crash(KEEP_ALL)
    assert after.locked_by("/l") is None
    assert after.peek("/l") == b"sim three\n"
    after.lock("/l", "sim four")


@given(
    st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=1500)), max_size=8)
)
def test_the_same_seed_loses_the_same(seed: int, writes: list[tuple[int, bytes]]) -> None:
    def life() -> SimDisk:
        disk = disk_with(OLD * 4)
        file = disk.open("/f")
        for number, (offset, data) in enumerate(writes):
            file.write(offset, data)
            if number == 2:
                file.sync()
            disk.open(f"/{number}", create=True)
        return disk

    one, two = life(), life()
    assert one.entropy(8) == two.entropy(8)
    a, b = one.crash(seed), two.crash(seed)
    assert a.files() == b.files()
    assert [a.peek(path) for path in a.files()] == [b.peek(path) for path in b.files()]
    assert a.used == sum(len(a.peek(path)) for path in a.files())
    assert a.entropy(8) == b.entropy(8) != SimDisk().entropy(8)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.integers(0, 3000), st.integers(1, 1200)),
            st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(0)),
            st.tuples(st.just("sync"), st.just(0), st.just(0)),
        ),
        max_size=12,
    ),
    st.integers(0, 2**32),
)
def test_every_sector_found_is_one_that_was_there_since_the_sync(steps: list[tuple[str, int, int]], seed: int) -> None:
    disk = disk_with(OLD * 3)
    file = disk.open("/f")
    history = [file.read(0, 9999)]  # since the last sync
    for number, (kind, at, size) in enumerate(steps):
        if kind == "write":
            file.write(at, bytes([65 + number]) * size)
        elif kind == "truncate":
            file.truncate(at)
        else:
            file.sync()
            history.clear()
        history.append(file.read(0, 9999))
    assert disk.snapshot(LOSE_ALL).peek("/f") == history[0]
    assert disk.snapshot(KEEP_ALL).peek("/f") == history[-1]
    found = disk.crash(mixed(seed, atomic=True)).peek("/f")
    assert len(found) in {len(content) for content in history}
    for at in range(0, len(found), SECTOR):
        sector = found[at : at + SECTOR]
        # a sector beyond the end of an older version is zeros there
        assert any(content[at : at + SECTOR].ljust(SECTOR, b"\0")[: len(sector)] == sector for content in history)


# -- failing calls -------------------------------------------------------------------------------------------------


def test_the_nth_call_of_a_kind_fails_once_or_for_good() -> None:
    disk = disk_with(OLD)
    file = disk.open("/f")
    disk.fail("write", errno.EIO, nth=2)
    file.write(0, NEW)
    with pytest.raises(OSError, match="Input/output"):
        file.write(0, OLD)
    file.write(0, NEW)
    disk.heal()
    disk.fail(("write", "create"), errno.EROFS, once=False, where=lambda path: path != "/g")
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            file.write(0, OLD)
        assert caught.value.errno == errno.EROFS
    disk.open("/g", create=True)
    assert file.read(0, SECTOR) == NEW


def test_a_write_may_fail_in_the_middle() -> None:
    disk = disk_with(OLD * 4)
    file = disk.open("/f")
    disk.fail("write", errno.EIO, part=0.5)
    with pytest.raises(OSError, match="Input/output"):
        file.write(0, NEW * 4)
    assert file.read(0, 9999) == NEW * 2 + OLD * 2


def test_row_52_what_a_failed_sync_has_left_is_read_until_it_is_forgotten() -> None:
    disk = disk_with(OLD * 3)
    file = disk.open("/f")
    file.write(0, NEW * 2)
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.write(SECTOR, OTHER)
    assert file.read(0, 3 * SECTOR) == NEW + OTHER + OLD
    disk.forget("/f")
    assert file.read(0, 3 * SECTOR) == OLD + OTHER + OLD
    file.sync()
    assert disk.crash(LOSE_ALL).peek("/f") == OLD + OTHER + OLD


def test_row_52_a_sync_after_a_failed_sync_makes_nothing_durable_that_the_first_lost() -> None:
    disk = disk_with(OLD * 2)
    file = disk.open("/f")
    file.write(0, NEW)
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.write(SECTOR, NEW)
    file.sync()
    assert file.read(0, 2 * SECTOR) == NEW * 2  # readers can't tell
    assert disk.snapshot(LOSE_ALL).peek("/f") == OLD + NEW
    assert bytes(SECTOR) + NEW in {disk.snapshot(seed).peek("/f") for seed in range(100)}
    file.write(0, NEW)
    file.sync()
    assert disk.crash(LOSE_ALL).peek("/f") == NEW * 2


def test_capacity_is_freed_by_truncate_and_unlink() -> None:
    disk = SimDisk(capacity=4 * SECTOR)
    file = disk.open("/f", create=True)
    with pytest.raises(OSError) as caught:
        file.write(0, NEW * 5)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 4 * SECTOR  # what there was room for
    file.write(0, OLD * 4)  # in place
    assert disk.free_bytes("/") == (0, 4 * SECTOR)
    file.truncate(SECTOR)
    other = disk.open("/g", create=True)
    other.write(0, NEW * 3)
    with pytest.raises(OSError, match="No space"):
        other.truncate(4 * SECTOR)
    disk.unlink("/f")
    other.write(0, NEW * 4)
    disk.capacity = None
    other.write(0, NEW * 40)
    assert disk.used == 40 * SECTOR


def test_descriptors_run_out() -> None:
    disk = disk_with(OLD)
    disk.max_open = 1
    file = disk.open("/f")
    with pytest.raises(OSError) as caught:
        disk.open_read("/f")
    assert caught.value.errno == errno.EMFILE
    file.close()
    disk.open_read("/f")


def test_one_kind_of_sync_can_be_made_to_do_nothing() -> None:
    disk = disk_with(OLD)
    disk.ignore_sync = lambda kind, path: kind == "sync" and path.endswith("f")
    file = disk.open("/f")
    file.write(0, NEW)
    file.sync()
    write_whole(disk, "/g", NEW)
    disk.sync_dir("/")
    after = disk.crash(LOSE_ALL)
    assert (after.peek("/f"), after.peek("/g")) == (OLD, NEW)


def test_calls_are_counted_and_effects_traced() -> None:
    disk = disk_with(OLD)
    file = disk.open("/f")
    file.read(0, 1)
    file.write(0, NEW)
    file.sync()
    disk.sync_dir("/")
    assert disk.trace == [("write", "/f"), ("sync", "/f"), ("sync_dir", "/")]
    assert (disk.calls, disk.effects, disk.counts["read"]) == (5, 3, 1)
    assert not disk.could_lose()
    file.write(0, OLD * 2)
    assert disk.unsynced() == ["/f"]
    assert disk.unsynced_sectors("/f") == 2


# -- the same as a real disk ---------------------------------------------------------------------------------------


def errors_of(disk: SimDisk | PosixDisk, base: str) -> list[object]:
    """What the calls on this disk give, with the errors by number."""
    found: list[object] = []

    def note(call: Callable[..., object], *args: object, **named: object) -> None:
        try:
            result = call(*args, **named)
        except OSError as exc:
            result = errno.errorcode[exc.errno or 0]
        found.append(result if isinstance(result, (str, bytes, int, list, tuple, type(None))) else "file")

    make_dirs(disk, base + "/a/b")
    note(disk.open, base + "/no")
    note(disk.open, base + "/no/no", create=True)
    note(disk.open, base + "/a/f", create=True)
    note(disk.open, base + "/a/f", create=True)
    note(disk.list, base + "/a")
    note(disk.list, base + "/no")
    note(disk.mkdir, base + "/a")
    note(disk.rmdir, base + "/a")
    note(disk.rmdir, base + "/a/f")
    note(disk.rmdir, base + "/no")
    note(disk.unlink, base + "/no")
    note(disk.unlink, base + "/a/f/no")
    note(disk.rename, base + "/no", base + "/a/g")
    note(disk.rename, base + "/a/f", base + "/a/b")
    note(disk.rename, base + "/a/f", base + "/a/g")
    note(disk.exists, base + "/a/g/no")
    note(disk.sync_dir, base + "/no")
    file = disk.open(base + "/a/g")
    note(file.write, 5, memoryview(b"abc"))
    note(file.read, 0, 99)
    note(file.read, 99, 99)
    note(file.truncate, 6)
    note(file.truncate, 9)
    note(file.read, 0, 99)
    note(file.size)
    note(disk.open_read(base + "/a/g").write, 0, b"x")
    note(disk.open_read(base + "/a/g").truncate, 0)
    file.close()
    note(file.close)
    note(file.read, 0, 1)
    replace_file(disk, base + "/a/g", b"replaced")
    note(read_whole, disk, base + "/a/g")
    note(disk.unlink, base + "/a/b")
    note(disk.rename, base + "/a/b", base + "/c")
    note(disk.rename, base + "/c", base + "/a/g")
    note(disk.list, base)
    note(disk.locked_by, base + "/lock")
    lock = disk.lock(base + "/lock", "me")
    note(disk.locked_by, base + "/lock")
    lock.release()
    note(disk.locked_by, base + "/lock")
    return found


def test_simulated_and_real_disk_give_the_same_answers(tmp_path: Path) -> None:
    assert errors_of(SimDisk(), "/base") == errors_of(PosixDisk(), str(tmp_path))


def test_direct_writes_must_be_aligned() -> None:
    disk = disk_with(OLD * 16)
    file = disk.open("/f", direct=True)
    page = disk.buffer(4096)
    file.write(4096, page)
    for offset, data in ((512, page), (0, page[:512]), (0, bytes(4096))):
        with pytest.raises(OSError, match="aligned"):
            file.write(offset, data)


# -- the clock -----------------------------------------------------------------------------------------------------


def test_the_clock_moves_when_told_to() -> None:
    clock = SimClock()
    event = threading.Event()
    first, before = clock.wall_us(), clock.elapsed_ns()
    assert clock.wall_us() == first + 1
    assert not clock.wait(event, 2.5)
    assert clock.elapsed_ns() - before == 2_500_000_000
    with pytest.raises(AssertionError, match="wait for ever"):
        clock.wait(event, None)
    event.set()
    assert clock.wait(event, None)
    assert clock.elapsed_ns() - before == 2_500_000_000
    clock.jump_wall(-3600)
    assert clock.wall_us() < first
    assert clock.elapsed_ns() - before == 2_500_000_000
