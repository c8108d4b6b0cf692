"""Naming: the names of queues, by what the log tells before an LSN and no later past, and the indexes of a folder."""

import errno
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

import qmgr
from logger.disk import Disk
from pipeline import dividing, finding, naming, opened
from pipeline.dividing import Part
from tests.pipeline import reference
from tests.pipeline.many_extents import Counting, a_log, folder, put_large, two_pasts
from tests.pipeline.reference import Row
from tests.pipeline.works import ACTIVE, Works, told, told_of


def test_what_there_is_of_a_log_names_the_queues_by_the_first_image_of_all_definitions() -> None:
    works = a_log()
    qm = works.world.start()
    works.queue()
    works.fill()
    qm.record_image(["A"])
    works.put()
    works.stop()
    disk = works.world.disk
    catalogued = next(r["lsn"] for r in reference.rows(works.log(), disk) if r["kind"] == "CATALOG")
    for name in [n for n in disk.list(ACTIVE) if n.endswith(".LOG")][: catalogued // works.log().extent_bytes - 1]:
        disk.remove(f"{ACTIVE}/{name}")
    log = finding.find(ACTIVE, disk=disk)
    assert set(naming.named(log, log.end(disk=disk), disk).names.values()) >= {"A", "B", "C.D"}
    assert {row["object"] for row in told(log, disk) if row["kind"] == "PUT"} >= {"A", "B"}


def test_an_extent_that_can_not_be_read_just_now_is_not_without_names() -> None:
    """The process that had looked just then knew no better afterwards."""
    works = a_log()
    works.world.start()
    works.stop()
    log, disk = works.log(), works.world.disk
    end = log.end(disk=disk)
    naming._known.clear()
    names = naming.named(log, end, disk).names
    naming._known.clear()
    oldest = next(iter(log.history(disk).places().values())).path
    disk.fail("open", errno.EIO, where=lambda path: path == oldest)
    with pytest.raises(OSError, match=oldest):
        naming.named(log, end, disk)
    assert naming.named(log, end, disk).names == names


def test_a_queue_that_nothing_names_has_no_name(indexed: tuple[Works, list[Row]]) -> None:
    works, _ = indexed
    log = works.log()
    end = log.end(disk=works.disk)
    found = told_of(Part(attrs.evolve(log, names={1: "A"}), log.first(works.disk), end, 0), works.disk)
    assert {row["object"] for row in found if row["object_number"] == 1} == {"A"}
    assert {row["object"] for row in found if row["object_number"] == 2} == {None}


def test_names_that_are_known_or_not_wanted_are_not_looked_for_in_the_past(day: tuple[Works, list[Row]]) -> None:
    works, rows = day
    log, size = works.log(), works.log().extent_bytes
    end = rows[-1]["lsn"] // size * size - size  # all of that is indexed
    start = end - 2 * size
    expected = [row for row in rows if start <= row["lsn"] < end]
    for _ in range(2):
        disk = Counting(works.world.disk)
        parts = dividing.divided(log, start, end, disk)
        assert disk.bytes < size
        assert [row for part in parts for row in told_of(part, works.disk)] == expected
        naming._known.clear()
    unnamed = attrs.evolve(log, names={})
    disk = Counting(works.world.disk)
    parts = dividing.plan(unnamed, start, end, disk=disk, names=False)
    assert disk.bytes < size
    assert [row["lsn"] for part in parts for row in told_of(part, works.disk)] == [row["lsn"] for row in expected]
    parts = dividing.plan(unnamed, start, end, disk=works.disk)
    assert [row for part in parts for row in told_of(part, works.disk)] == expected


def test_a_folder_of_extents_is_given_the_indexes_that_it_lacks() -> None:
    works = a_log(indexed=False)
    disk = works.world.disk
    rows = reference.rows(folder(disk), disk)
    last = [row for row in rows if row["kind"] == "PUT"][-1]

    def planned(on: Disk = disk) -> None:
        opened._indexes.clear()
        naming._known.clear()
        dividing.plan(folder(disk), last["lsn"], last["end_lsn"], disk=on)

    def indexes() -> list[str]:
        return [path for path in disk.files() if path.endswith(".IDX")]

    planned()
    assert len(indexes()) == last["end_lsn"] // works.log().extent_bytes - 1
    counting = Counting(disk)
    planned(counting)
    assert counting.bytes < (last["lsn"] - rows[0]["lsn"]) / 2
    assert told(folder(disk), disk) == rows
    for path in indexes():
        disk.remove(path)
    disk.fail("write", errno.EROFS, where=lambda path: ".IDX" in path, once=False)
    planned()
    assert not indexes()
    assert told(folder(disk), disk) == rows
    disk.heal()
    opened._indexes.clear()
    naming._known.clear()
    assert told(works.log(), disk) == rows
    assert not indexes(), "a queue manager does that itself"


def test_rows_are_named_by_what_lies_before_their_end_whatever_this_process_has_read_behind_it() -> None:
    """Else what is read again, by another process, would be other rows."""
    works = Works()
    works.fill()
    works.qm.record_image()
    works.stop()
    disk = works.world.disk
    disk.remove(f"{ACTIVE}/S0000000.LOG")  # with the definitions; the images tell them again
    log = folder(disk)
    first, end = log.first(disk), log.end(disk=disk)
    told_later = max(row["lsn"] for row in reference.rows(log, disk) if row["kind"] == "CATALOG")
    naming._known.clear()
    unnamed = told_of(Part(naming.named(log, told_later, disk), first, told_later, 0), disk)
    assert None in {row["object"] for row in unnamed if row["kind"] == "PUT"}
    naming.named(log, end, disk)
    assert None not in {row["object"] for row in told(log, disk) if row["kind"] == "PUT"}
    assert told_of(Part(naming.named(log, told_later, disk), first, told_later, 0), disk) == unnamed


def test_names_of_a_past_that_was_undone_are_not_remembered(tmp_path: Path) -> None:
    """Both pasts have given the number that was next to a queue, and to one of another name."""

    def defining(name: str) -> Callable[[qmgr.QueueManager], None]:
        def go_on(qm: qmgr.QueueManager) -> None:
            qm.define_queue(name)
            put_large(qm)

        return go_on

    told = []
    for disk in two_pasts(defining("UNDONE"), defining("NEW")):
        (tmp_path / "active").mkdir(exist_ok=True)
        for path in disk.files(ACTIVE):
            (tmp_path / "active" / path.rpartition("/")[2]).write_bytes(disk.peek(path))
        log = finding.find(str(tmp_path))
        told.append(naming.named(log, log.end()).names)
    assert {*told[0].values()} - {*told[1].values()} == {"UNDONE"}
    assert {*told[1].values()} - {*told[0].values()} == {"NEW"}
    assert told[0].keys() == told[1].keys()
