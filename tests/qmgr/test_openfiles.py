"""Files that are left open between two reads: few, never one of a segment that is no more, and none at the end."""

import errno
import functools
import itertools

import pytest

from qmgr.openfiles import MAX_FILES, SHARE, OpenFiles
from qmgr.segment_files import segment_path
from tests.qmgr.test_interrupts import Tracer, interrupted
from tests.qmgr.world import World
from tests.sim.disk import SimDisk


def disk_with(count: int) -> SimDisk:
    disk = SimDisk()
    disk.mkdir("/q")
    for number in range(count):
        disk.poke(segment_path("/q", number), b"%04d" % number)
    return disk


def read(files: OpenFiles, number: int) -> int:
    return int(files.read("/q", number, 0, 4))


def test_those_that_were_read_last_stay_open() -> None:
    disk = disk_with(10)
    disk.max_open = 3 * SHARE
    files = OpenFiles(disk)
    opened = []
    for number in (0, 1, 2, 0, 3, 0, 2, 1, 0):
        before = disk.counts.get("open", 0)
        assert read(files, number) == number
        opened.append(disk.counts["open"] - before)
        assert disk.open_files == len(files) <= 3
    assert opened == [1, 1, 1, 0, 1, 0, 0, 1, 0]
    files.close(0)
    files.close(0)
    assert disk.open_files == len(files) == 2
    files.end()
    assert disk.open_files == 0
    assert read(files, 5) == 5  # by one who comes late
    assert disk.open_files == 0


@pytest.mark.parametrize(("limit", "most"), [(1, 0), (SHARE - 1, 0), (SHARE, 1), (SHARE * MAX_FILES * 2, MAX_FILES)])
def test_they_are_few_where_the_process_may_have_few(limit: int, most: int) -> None:
    disk = disk_with(MAX_FILES + 2)
    disk.max_open = limit
    files = OpenFiles(disk)
    for number in range(MAX_FILES + 2):
        assert read(files, number) == number
        assert disk.open_files == len(files) <= most
    assert len(files) == most


def test_where_descriptors_run_out_those_are_given_back_first() -> None:
    disk = disk_with(9)
    files = OpenFiles(disk)
    for number in range(4):
        read(files, number)
    disk.max_open = 4
    assert read(files, 7) == 7
    assert disk.open_files == len(files) == 1
    disk.max_open = 1
    files.end()
    held = disk.open_read(segment_path("/q", 8))
    with pytest.raises(OSError, match="open files"):
        read(files, 7)
    held.close()
    assert read(files, 7) == 7


def test_one_that_could_not_be_read_is_opened_anew() -> None:
    disk = disk_with(2)
    files = OpenFiles(disk)
    read(files, 1)
    disk.fail("read", errno.ESTALE)
    with pytest.raises(OSError, match="tale"):
        read(files, 1)
    assert disk.open_files == len(files) == 0
    assert read(files, 1) == 1


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_rows_65_and_57_none_stays_open_unknown_where_a_read_is_interrupted(kind: type[BaseException]) -> None:
    """It would have kept its descriptor, and its segment's room on the disk, until the process ended."""
    disk = disk_with(4)
    disk.max_open = 2 * SHARE
    files = OpenFiles(disk)
    for n in itertools.count(1):
        where = ""
        for number in (n % 4, (n + 1) % 4, n % 4):  # opened, in the place of another one, and open
            tracer = Tracer(n, kind)
            interrupted(tracer, functools.partial(read, files, number))
            assert disk.open_files == len(files), f"line {n}: {tracer.where}"
            assert read(files, number) == number
            assert disk.open_files == len(files) <= 2
            where = where or tracer.where
        if not where:
            break  # every line has had its turn
    assert n > 10, "a read has lines"


def test_one_that_complains_as_it_is_closed_is_closed_all_the_same() -> None:
    """Of a file that was only read nothing is lost by that, which a file system of users' own may say."""
    world = World()
    world.qm.define_queue("A", buffer_size=1)
    several = world.qm.put_many("A", [b"%d" % n for n in range(4)])
    world.qm.checkpoint()
    before = world.disk.open_files
    assert world.qm.get("A", message_id=several[1].message_id).body == b"1"
    assert world.disk.open_files == before + 1
    world.disk.fail("close", errno.EIO, where=lambda path: path.endswith(".seg"), once=False)
    world.qm.delete_queue("A", purge=True)
    assert (world.disk.open_files, world.qm.refusal) == (before, None)
