"""Pasts: what a copy has logged in its own way is not mixed with the log, nor are indexes that tell of another."""

import contextlib
from pathlib import Path

import attrs
import pytest

import qmgr
from logger.errors import LogDamaged
from logger.extent import file_name, linear_number
from logger.posix_disk import PosixDisk
from pipeline import finding, opened
from pipeline.filters import Filters
from recovery import extent_index
from tests.pipeline import reference
from tests.pipeline.many_extents import a_log, folder, put_large, rows_of, two_pasts
from tests.pipeline.works import ACTIVE, told
from tests.qmgr.test_undone import put, put_back
from tests.qmgr.world import DATA, NAME, World
from tests.sim.disk import SimDisk


def mix(disk: SimDisk, other: SimDisk, indexes: str) -> None:
    """The first extent stays; all others, and what is there of their indexes, are those of another past."""
    for path in other.files(ACTIVE):
        if not path.startswith(f"{ACTIVE}/S0000000"):
            disk.poke(path, other.peek(path))
    for path in disk.files(ACTIVE):
        if path.endswith(".IDX") and path[-5] not in indexes:
            disk.remove(path)


@pytest.mark.parametrize("indexes", ["01", "0", "1"])
def test_the_rest_of_a_record_of_another_past_is_not_passed_over(indexes: str) -> None:
    """The extent before it ends with a whole record, so that each of the two by itself is as it should be."""

    def advance_first(qm: qmgr.QueueManager) -> None:
        qm.advance_log()
        put_large(qm)

    disk, other = two_pasts(advance_first, put_large)
    mix(disk, other, indexes)
    with pytest.raises(LogDamaged, match=r"S0000001\.LOG begins at .* with the rest of a record, and .*S0000000\.LOG"):
        rows_of(folder(disk), disk)


def test_what_one_copy_of_a_log_has_is_not_told_of_another(tmp_path: Path) -> None:
    """Both have an extent that was taken at the same moment, before they went apart."""
    opened._indexes.clear()
    told = []
    for name, disk in zip("ab", two_pasts(put_large, put_large), strict=True):
        (tmp_path / name).mkdir()
        for path in disk.files(ACTIVE):
            (tmp_path / name / path.rpartition("/")[2]).write_bytes(disk.peek(path))
        log = finding.find(str(tmp_path / name))
        found = log.extents(PosixDisk())
        last = max(found.history.places())
        for sequence in range(1, last):
            index = found.index(sequence)
            assert index == extent_index.load(PosixDisk(), found.place(sequence), log.log_id)
            told.append((sequence, index))
        found.close()
    assert len({repr(one) for one in told}) > len({sequence for sequence, _ in told}), "they differ"


@pytest.mark.parametrize("indexed", [True, False])
def test_no_message_is_put_together_of_two_pasts(indexed: bool) -> None:
    disk, other = two_pasts(put_large, put_large)
    mix(disk, other, indexes="0123456789" if indexed else "")
    with pytest.raises(LogDamaged, match=r"S0000001\.LOG (is damaged|begins) at"):
        rows_of(folder(disk), disk)


@pytest.mark.parametrize("compress", [False, True])
def test_what_an_archive_has_of_a_past_that_was_undone_is_neither_read_nor_taken_for_damage(compress: bool) -> None:
    """The log ends before it, as it goes on in the middle of an extent, and where it has just begun one."""
    world = World(log_type="linear", log_secondary_files=2)
    world.disk = put_back(world, compress=compress)
    world.start()
    for advance in (False, True, False):
        put(world, "A", "new", 20)
        if advance:
            world.qm.advance_log()
        log = finding.find(DATA, NAME, world.disk)
        rows = told(log, world.disk)
        assert log.extent_bytes * 4 > rows[-1]["end_lsn"] == log.end(disk=world.disk) > 0
        tags = {(row["object"], row["body"].partition(b" ")[0]) for row in rows if row["kind"] == "PUT"}
        assert tags == {("B", b"common"), ("A", b"new")}


def test_an_archive_that_goes_on_behind_a_log_that_was_put_back_is_no_part_of_it() -> None:
    """Before the start that says which of its extents are of the past that is undone."""
    world = World(log_type="linear", log_secondary_files=2)
    disk = put_back(world)
    log = finding.find(DATA, NAME, disk)
    beyond = file_name(linear_number(log._newest(disk) + 1))
    with pytest.raises(LogDamaged, match=rf"archive/{beyond} has the log from .*put back from an older copy.*start it"):
        log.end(disk=disk)
    world.disk = disk
    world.start()
    assert log.end(disk=disk) > 0


def test_an_index_of_a_past_that_was_undone_is_not_remembered(tmp_path: Path) -> None:
    """An extent that was not full when it was copied has the same header in both pasts."""

    def put_small_first(qm: qmgr.QueueManager) -> None:
        qm.put_many("A", [bytes(900)] * 40)
        put_large(qm)

    told = []
    for disk in two_pasts(put_small_first, put_large):  # at the same path, one after the other, in one process
        (tmp_path / "active").mkdir(exist_ok=True)
        for path in disk.files(ACTIVE):
            (tmp_path / "active" / path.rpartition("/")[2]).write_bytes(disk.peek(path))
        log = finding.find(str(tmp_path))
        with contextlib.closing(log.extents(PosixDisk())) as found:
            index = found.index(1)
            assert index is not None
            assert index == extent_index.load(PosixDisk(), found.place(1), log.log_id)
        told.append(index)
    assert told[0] != told[1] and told[0].taken == told[1].taken, "only what is in it tells them apart"


def test_an_index_that_is_stale_foreign_or_garbled_costs_time_only() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    rows = reference.rows(log, disk)
    history = log.history(disk)
    places = history.places()
    paths = sorted(path for path in disk.files() if path.endswith(".IDX"))
    right = {path: disk.peek(path) for path in paths}
    loaded = {path: extent_index.decode(data) for path, data in right.items()}
    one, other = loaded[paths[1]], loaded[paths[2]]
    assert one is not None and other is not None
    shifted = attrs.evolve(one, places=other.places, subjects=other.subjects, blocks=other.blocks)
    lying = attrs.evolve(one, places=one.places[:1] + b"\x05" + one.places[2:])
    shorter = attrs.evolve(one, blocks=tuple(attrs.evolve(block, crc=block.crc ^ 1) for block in one.blocks))
    assert places[one.sequence].path.endswith("S0000001.LOG")
    for data in (
        *map(extent_index.encode, (shifted, lying, shorter)),
        right[paths[2]],
        b"",
        b"QMGRIDX2" + bytes(500),
        right[paths[1]][:-3],
    ):
        opened._indexes.clear()
        disk.poke(paths[1], data)
        assert told(works.log(), disk) == rows
        chosen = Filters(objects=frozenset({"C.D"}))
        if data != extent_index.encode(lying):
            assert told(works.log(), disk, chosen) == list(reference.passing(rows, chosen))
