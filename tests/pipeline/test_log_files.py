"""Extents: finding a log, its beginning and its durable end, dividing it; what is damaged or missing is named."""

import contextlib
import copy
import errno
import gzip
import itertools
import pickle
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmgr
from logger import lsn as lsns
from logger.compressed import Compression, compress
from logger.disk import Disk, File, PosixDisk
from logger.errors import ExtentGone, LogDamaged, LogError
from logger.extent import DATA as FRONT
from logger.extent import file_name, linear_number
from pipeline import dividing, finding, naming, opened, windows
from pipeline.dividing import Part
from pipeline.filters import Filters
from pipeline.log_files import Last, LogFiles
from pipeline.rows import batches
from recovery import extent_index
from recovery.extent_index import BLOCK_BYTES
from tests.logger.extents import content
from tests.pipeline import reference
from tests.pipeline.reference import Row
from tests.pipeline.works import ACTIVE, Works, index, told, told_of
from tests.qmgr.test_undone import put, put_back
from tests.qmgr.world import DATA, NAME, World
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL

STEPS = ["put", "one", "unit", "many", "long", "begin", "prepare", "put_many", "fill", "image", "one", "get"]


def a_log(seed: int = 3, *, indexed: bool = True) -> Works:
    """Some extents, with indexes or without."""
    works = Works(seed)
    for turn in range(3):
        for step in STEPS:
            works.do(step)
        if turn == 1:
            works.qm.put("A", bytes(600_000))
    works.stop()
    for path in [path for path in works.world.disk.files() if path.endswith(".IDX")]:
        works.world.disk.remove(path)
    if indexed:
        index(works)
    return works


@pytest.fixture(scope="module")
def plain() -> tuple[Works, list[Row]]:
    works = a_log(indexed=False)
    return works, reference.rows(works.log(), works.disk)


@pytest.fixture(scope="module")
def indexed() -> tuple[Works, list[Row]]:
    works = a_log()
    assert sum(path.endswith(".IDX") for path in works.world.disk.files()) > 3
    return works, reference.rows(works.log(), works.disk)


# ---- the same rows, wherever they lie


def test_an_indexed_log_reads_as_one_without(plain: tuple[Works, list[Row]], indexed: tuple[Works, list[Row]]) -> None:
    for works, rows in (plain, indexed):
        assert told(works.log(), works.disk) == rows


@pytest.mark.parametrize("which", ["plain", "indexed"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_parts_of_any_division_make_up_the_whole(
    which: str, data: st.DataObject, request: pytest.FixtureRequest
) -> None:
    works, rows = request.getfixturevalue(which)
    log, disk = works.log(), works.disk
    first, end = log.first(disk), log.end(disk=disk)
    cuts = data.draw(st.lists(st.integers(first // 8, end // 8).map(lambda place: place * 8), max_size=6))
    places = sorted({first, end, *cuts})
    log = naming.named(log, end, disk)
    found = [row for low, high in itertools.pairwise(places) for row in told_of(Part(log, low, high, 0), disk)]
    assert found == rows


@pytest.mark.parametrize("which", ["plain", "indexed"])
def test_an_extent_is_read_in_windows(
    which: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    works, rows = request.getfixturevalue(which)
    log = works.log()
    assert max(row["end_lsn"] - row["lsn"] for row in rows) > log.extent_bytes
    for size in (BLOCK_BYTES, 20_000):
        monkeypatch.setattr(windows, "WINDOW_BYTES", size)
        monkeypatch.setattr(dividing, "WINDOW_BYTES", size)
        monkeypatch.setattr(dividing, "MAX_PART_BYTES", BLOCK_BYTES)
        assert told(log, works.disk) == rows
        disk = Counting(works.world.disk)
        assert told(log, disk, columns=("lsn",)) == [{"lsn": row["lsn"]} for row in rows]
        parts = dividing.plan(log, log.first(works.disk), log.end(disk=works.disk), disk=works.disk)
        if which == "indexed":
            assert len(parts) > len({part.start // log.extent_bytes for part in parts})


def test_batches_have_the_rows_that_were_asked_for(indexed: tuple[Works, list[Row]]) -> None:
    works, rows = indexed
    log = naming.named(works.log(), works.log().end(disk=works.disk), works.disk)
    part = Part(log, log.first(works.disk), log.end(disk=works.disk), 0)
    assert told_of(part, works.disk, columns=("lsn", "position"), count=7) == [
        {"lsn": row["lsn"], "position": row["position"]} for row in rows
    ]


def moved(works: Works, compression: list[Compression | None]) -> None:
    """The extents by turns archived as they are or compressed, with their indexes, but for the last ones."""
    disk = works.world.disk
    disk.mkdir(f"{DATA}/log/{NAME}/archive")
    names = sorted(name for name in disk.list(ACTIVE) if name.endswith(".LOG"))
    for number, name in enumerate(names[:-4]):
        source, target = f"{ACTIVE}/{name}", f"{DATA}/log/{NAME}/archive/{name}"
        kind = compression[number % len(compression)]
        if kind is None:
            disk.rename(source, target)
        else:
            compress(disk, source, target + kind.suffix, kind)
            disk.unlink(source)
        index = name.replace(".LOG", ".IDX")
        if disk.exists(f"{ACTIVE}/{index}"):
            disk.rename(f"{ACTIVE}/{index}", f"{DATA}/log/{NAME}/archive/{index}")


@pytest.mark.parametrize("with_index", [False, True])
def test_archived_compressed_and_active_extents_are_one_log(with_index: bool) -> None:
    works = a_log(indexed=with_index)
    rows = reference.rows(works.log(), works.disk)
    moved(works, [None, Compression.GZIP, Compression.ZSTD])
    kinds = {path.rpartition(".")[2] for path in works.world.disk.files() if "/archive/" in path}
    assert kinds >= {"LOG", "gz", "zst"}
    assert told(works.log(), works.disk) == rows
    for folder in (f"{DATA}/log/{NAME}", f"{DATA}/log/{NAME}/"):
        log = finding.find(folder, disk=works.disk)
        assert told(log, works.disk) == rows


def test_a_folder_of_extents_is_a_log(indexed: tuple[Works, list[Row]]) -> None:
    works, rows = indexed
    log = finding.find(ACTIVE, disk=works.disk)
    assert log.control == ""
    assert told(log, works.disk) == rows


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


def test_a_queue_that_nothing_names_has_no_name(indexed: tuple[Works, list[Row]]) -> None:
    works, _ = indexed
    log = works.log()
    end = log.end(disk=works.disk)
    found = told_of(Part(attrs.evolve(log, names={1: "A"}), log.first(works.disk), end, 0), works.disk)
    assert {row["object"] for row in found if row["object_number"] == 1} == {"A"}
    assert {row["object"] for row in found if row["object_number"] == 2} == {None}


# ---- filters


@st.composite
def filters(draw: st.DrawFn) -> Filters:
    low, high = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    size = 64 * 4096
    begin = 1_700_000_000_000_000
    return Filters(
        low_lsn=draw(st.sampled_from([None, low * size // 4])),
        high_lsn=draw(st.sampled_from([None, high * size // 4])),
        low_time=draw(st.sampled_from([None, begin])),
        objects=draw(st.none() | st.frozensets(st.sampled_from(["A", "B", "C.D", "ALIAS", "PASSING", "NONE"]))),
        kinds=draw(st.none() | st.frozensets(st.sampled_from(["PUT", "GET", "COMMIT", "DEFINE", "DELETE_ALIAS", "?"]))),
    )


@pytest.mark.parametrize("which", ["plain", "indexed"])
@settings(max_examples=12, deadline=None)
@given(chosen=filters())
def test_filters_let_pass_what_they_should(which: str, chosen: Filters, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    assert told(works.log(), works.disk, chosen) == list(reference.passing(rows, chosen))


@pytest.mark.parametrize("which", ["plain", "indexed"])
def test_a_time_filter_lets_pass_what_it_should(which: str, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    times = sorted({row["time"] for row in rows})
    for low, high in (
        (times[0], times[0] + 1),
        (times[len(times) // 2], times[-1]),
        (times[-1], None),
        (None, times[9]),
    ):
        chosen = Filters(low_time=low, high_time=high)
        assert told(works.log(), works.disk, chosen) == list(reference.passing(rows, chosen))


class Counting(PosixDisk):
    """Counts the bytes that are read."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.bytes = 0

    def open_read(self, path: str) -> Any:
        return CountedFile(self, self._disk.open_read(path))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)


class CountedFile:
    def __init__(self, disk: Counting, file: File) -> None:
        self._disk = disk
        self._file = file
        self.size, self.sync, self.close = file.size, file.sync, file.close

    def read(self, offset: int, size: int) -> bytes:
        found = self._file.read(offset, size)
        self._disk.bytes += len(found)
        return found


def a_day() -> Works:
    """Fifty queues that are used all the time, one that is used at the end, over some hours; all indexed."""
    works = Works()
    qm, clock = works.qm, works.world.clock
    for number in range(50):
        qm.define_queue(f"Q{number}")
    qm.define_queue("LATE")
    for hour in range(12):
        for number in range(250):
            with qm.begin() as unit:
                unit.put(f"Q{number * 7 % 50}", bytes(300))
            qm.put(f"Q{number * 11 % 50}", bytes(300))
            qm.get_many(f"Q{number * 13 % 50}", 5)
        if hour == 10:
            qm.put("LATE", b"only this")
        qm.checkpoint()
        clock.advance(3600)
    works.fill()
    works.stop()
    index(works)
    return works


@pytest.fixture(scope="module", params=["day"])
def day() -> tuple[Works, list[Row]]:
    works = a_day()
    return works, reference.rows(works.log(), works.disk)


def narrow(rows: list[Row]) -> dict[str, Filters]:
    first = rows[0]["time"]
    hour = 3_600_000_000
    return {
        "one queue of fifty": Filters(objects=frozenset({"Q7"})),
        "a queue that was used once": Filters(objects=frozenset({"LATE"})),
        "one hour": Filters(low_time=first + 5 * hour, high_time=first + 6 * hour),
        "definitions": Filters(kinds=frozenset({"DELETE"})),
        "LSNs": Filters(low_lsn=rows[500]["lsn"], high_lsn=rows[520]["lsn"]),
    }


@pytest.mark.parametrize(
    "what", ["one queue of fifty", "a queue that was used once", "one hour", "definitions", "LSNs"]
)
def test_a_narrow_filter_reads_less_than_a_fifth(day: tuple[Works, list[Row]], what: str) -> None:
    works, rows = day
    chosen = narrow(rows)[what]
    log, first = works.log(), works.log().first(works.disk)
    end = rows[-1]["lsn"] // log.extent_bytes * log.extent_bytes - log.extent_bytes  # all of that is indexed
    naming.named(log, end, works.disk)
    disk = Counting(works.world.disk)
    parts = dividing.plan(log, first, end, chosen, disk)
    found = [row for part in parts for row in told_of(part, disk, chosen)]
    assert found == [row for row in reference.passing(rows, chosen) if row["lsn"] < end]
    assert bool(found) == (what != "definitions")
    assert disk.bytes < 0.2 * (end - first)


def test_parts_say_how_much_they_read(day: tuple[Works, list[Row]]) -> None:
    works, rows = day
    log = works.log()
    first, end = log.first(works.disk), log.end(disk=works.disk)
    assert sum(part.bytes for part in dividing.plan(log, first, end, disk=works.disk)) >= (end - first) * 0.9
    few = dividing.plan(log, first, end, narrow(rows)["one hour"], works.disk)
    assert sum(part.bytes for part in few) < 0.5 * (end - first)


# ---- parts that stay the same, and names


def pieces(parts: list[Part]) -> list[tuple[int, int]]:
    return [(part.start, part.end) for part in parts]


@pytest.mark.parametrize(
    "chosen", [Filters(), Filters(objects=frozenset({"A"}), kinds=frozenset({"PUT"})), Filters(objects=frozenset("?"))]
)
def test_parts_of_a_stream_are_the_same_before_and_after_extents_are_indexed_and_moved(
    chosen: Filters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dividing, "MAX_PART_BYTES", 96 << 10)  # fixed borders in extents of 256 KiB too
    works = a_log(indexed=False)
    disk = works.world.disk
    rows = reference.rows(works.log(), disk)
    start, end = rows[len(rows) // 5]["end_lsn"], rows[-1]["end_lsn"]

    def seen() -> tuple[list[tuple[int, int]], list[list[Row]]]:
        opened._indexes.clear()
        naming._known.clear()
        parts = dividing.divided(works.log(), start, end, disk)
        return pieces(parts), [told_of(part, disk, chosen) for part in parts]

    before = seen()
    wanted = [row for row in reference.passing(rows, chosen) if row["lsn"] >= start]
    assert [row for part in before[1] for row in part] == wanted
    assert [low for low, _ in before[0]] == [start, *(high for _, high in before[0][:-1])]
    assert len(before[0]) > 2 * (end - start) // works.log().extent_bytes
    assert len(index(works)) > 3
    assert seen() == before
    moved(works, [Compression.GZIP])
    assert seen() == before


def test_parts_of_a_stream_name_an_extent_that_is_missing() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    end = log.end(disk=disk)
    disk.remove(f"{ACTIVE}/S0000002.LOG")
    with pytest.raises(LogDamaged, match=r"S0000002\.LOG"):
        dividing.divided(log, log.extent_bytes, end, disk)


def test_an_extent_that_may_not_be_read_is_not_taken_for_a_missing_one() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    end = log.end(disk=disk)
    disk.fail("open", errno.EACCES, where=lambda path: path.endswith("S0000002.LOG"), once=False)
    for ask in (log.first, lambda disk: log.unbroken(end, disk)):
        with pytest.raises(PermissionError, match="Permission denied"):
            ask(disk)
    disk.heal()
    disk.remove(f"{ACTIVE}/S0000002.LOG")
    assert log.unbroken(end, disk) == 4 * log.extent_bytes


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


# ---- the beginning, the end, and places between


def test_the_end_is_behind_the_last_record(plain: tuple[Works, list[Row]]) -> None:
    works, rows = plain
    log = works.log()
    end = rows[-1]["end_lsn"]
    assert log.end(disk=works.disk) == end
    for row in rows[::40]:
        assert log.end(row["end_lsn"], works.disk) == end
    assert log.end(end, works.disk) == end
    assert log.first(works.disk) == log.extent_bytes


def test_the_end_is_made_durable() -> None:
    for read in (False, True):
        works = Works(log_sync="os")
        works.put()
        before = works.log().end(disk=works.world.disk.snapshot(LOSE_ALL))
        end = works.log().end(disk=works.disk) if read else before
        assert (end > before) == read
        assert works.log().end(disk=works.world.disk.crash(LOSE_ALL)) == end


def unforced(**options: Any) -> tuple[World, int]:
    """A unit of work that goes over extents which nobody has forced; an LSN that was durable before."""
    world = World(log_type="linear", log_primary_files=12, **options)
    world.qm.define_queue("Q")
    durable = finding.find(DATA, NAME, world.disk).end(disk=world.disk.snapshot(LOSE_ALL))
    unit = world.qm.begin()
    for _ in range(80):
        unit.put("Q", b"y" * 7000)
    return world, durable


def folder(disk: SimDisk) -> LogFiles:
    """The same extents, without a control file that says what is durable."""
    return finding.find(ACTIVE, disk=disk)


@pytest.mark.parametrize("find", [folder, lambda disk: finding.find(DATA, NAME, disk)])
@pytest.mark.parametrize("from_before", [False, True])
def test_the_end_is_made_durable_over_several_extents(find: Callable[[SimDisk], LogFiles], from_before: bool) -> None:
    world, durable = unforced()
    log, disk = find(world.disk), world.disk
    assert find(disk).end(disk=disk.snapshot(LOSE_ALL)) < disk_end(disk) - log.extent_bytes
    end = log.end(durable if from_before else None, disk)
    assert end > durable + log.extent_bytes
    after = disk.crash(LOSE_ALL)
    assert log.end(durable, after) == end, "read from what had been durable before"
    world.disk = after
    world.start()
    world.qm.put("Q", b"later")
    found = [row for part in dividing.divided(log, end, log.end(disk=after), after) for row in told_of(part, after)]
    assert b"later" in [row["body"] for row in found]


def disk_end(disk: SimDisk) -> int:
    """Where the log ends, without anything made durable."""
    return finding.find(DATA, NAME, disk).end(disk=disk.snapshot())


def test_no_other_extents_are_synced_than_those_that_may_need_it() -> None:
    for find in (folder, lambda disk: finding.find(DATA, NAME, disk)):
        works = a_log()
        log, disk = find(works.world.disk), works.world.disk
        newest = log.end(disk=disk) // log.extent_bytes
        older = f"{ACTIVE}/{file_name(linear_number(newest - 1))}"
        disk.fail("sync", errno.EIO, where=older.__gt__, once=False)
        assert log.end(disk=disk) // log.extent_bytes == newest
        disk.fail("sync", errno.EIO, where=older.__lt__)
        with pytest.raises(OSError, match=r"EIO|Input/output"):
            log.end(disk=disk)
        disk.heal()
        assert newest > 5


@pytest.mark.parametrize("find", [folder, lambda disk: finding.find(DATA, NAME, disk)])
def test_a_disk_that_can_not_sync_tells_no_end_that_a_crash_takes_back(
    find: Callable[[SimDisk], LogFiles],
) -> None:
    world, durable = unforced()
    disk = world.disk
    disk.fail("sync", errno.EROFS, where=lambda path: path.endswith(".LOG"), once=False)
    found = find(disk).end(disk=disk)
    disk.heal()
    after = disk.crash(LOSE_ALL)
    assert find(after).first(after) < found <= find(after).end(disk=after)
    ends = {row["end_lsn"] for row in reference.rows(find(after), after)}
    assert found in ends and found <= durable + 4096


def test_a_disk_that_can_not_sync_is_read_up_to_what_the_log_says_was_durable() -> None:
    works = Works()
    for _ in range(5):
        works.one()
    disk = works.world.disk
    end = works.log().end(disk=disk)
    disk.fail("sync", errno.EROFS, where=lambda path: path.endswith(".LOG"), once=False)
    found = works.log().end(disk=disk)
    rows = reference.rows(works.log(), disk)
    assert works.log().durable(disk) < found < end, "by what records say, which is later than the control file does"
    assert found in {row["end_lsn"] for row in rows}
    disk.heal()


def test_a_disk_that_can_only_be_read_is_read_up_to_the_last_record_after_an_end_in_order() -> None:
    works = Works()
    for _ in range(5):
        works.one()
    works.stop()
    disk = works.world.disk
    disk.fail("sync", errno.EROFS, where=lambda path: path.endswith(".LOG"), once=False)
    found = works.log().end(disk=disk)
    disk.heal()
    assert found == max(row["end_lsn"] for row in reference.rows(works.log(), disk))


def test_the_first_record_of_a_moment_is_found(
    plain: tuple[Works, list[Row]], indexed: tuple[Works, list[Row]]
) -> None:
    for works, rows in (plain, indexed):
        log = works.log()
        for row in rows[::150]:
            wanted = next(other["lsn"] for other in rows if other["time"] >= row["time"])
            assert log.at_time(row["time"], works.disk) == wanted
        assert log.at_time(0, works.disk) == rows[0]["lsn"]
        assert log.at_time(rows[-1]["time"] + 1, works.disk) == log.end(disk=works.disk)


@pytest.mark.parametrize("which", ["plain", "indexed"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_boundary_is_where_a_record_ends(which: str, data: st.DataObject, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    log = works.log()
    ends = sorted({row["end_lsn"] for row in rows})
    start = data.draw(st.sampled_from([log.first(works.disk), *ends]))
    end = data.draw(st.sampled_from([ends[-1], ends[-1], start, start + 80_000]))
    most = data.draw(st.sampled_from([1, 100, 5000, 300_000, 1 << 40]))
    found = log.boundary(start, min(end, ends[-1]), most, works.disk)
    later = [one for one in ends if start < one <= min(end, ends[-1])]
    near = [one for one in later if one <= start + most]
    assert found == (near[-1] if near else later[0] if later else start)


@pytest.mark.parametrize("which", ["plain", "indexed"])
def test_the_last_record_before_an_lsn_is_told(which: str, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    log = works.log()
    told_of = {row["end_lsn"]: Last(row["lsn"], row["epoch"], row["time"], row["end_lsn"]) for row in rows}
    ends = sorted(told_of)
    for end in (*ends[:3], *ends[3::97], ends[-1]):
        assert log.last_before(end, works.disk) == told_of[end]
    begun = next(row for row in rows if row["end_lsn"] - row["lsn"] > log.extent_bytes)
    for inside in (begun["lsn"] + 8, begun["lsn"] + log.extent_bytes, begun["end_lsn"] - 8):
        assert log.last_before(inside, works.disk) == told_of[begun["end_lsn"]]
    assert log.last_before(log.extent_bytes, works.disk) is None


def test_a_boundary_is_found_around_a_record_longer_than_an_extent(indexed: tuple[Works, list[Row]]) -> None:
    works, rows = indexed
    log = works.log()
    history = log.history(works.disk)
    found = [extent_index.load(works.disk, place, log.log_id) for place in history.places().values()]
    assert any(index is not None and not index.records for index in found)
    first, ends = log.first(works.disk), sorted({row["end_lsn"] for row in rows})
    for most in range(50_000, ends[-1] - first, 100_000):
        assert log.boundary(first, ends[-1], most, works.disk) == max(one for one in ends if one <= first + most)
    begins = next(row["lsn"] for row in rows if row["end_lsn"] - row["lsn"] > log.extent_bytes)
    assert log.boundary(begins, ends[-1], 100, works.disk) == next(one for one in ends if one > begins)
    assert log.boundary(begins, begins + 8, 100, works.disk) == begins, "what ends behind the end is not in there"


# ---- what is damaged, missing, or of something else


def flip(disk: SimDisk, path: str, at: int) -> bytes:
    good = disk.peek(path)
    disk.poke(path, good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
    return good


@pytest.mark.parametrize("with_index", [False, True])
def test_a_damaged_block_stops_the_reading_with_file_and_lsn(with_index: bool) -> None:
    works = a_log(indexed=with_index)
    disk, log = works.world.disk, works.log()
    rows = reference.rows(log, disk)
    victim = next(row for row in rows[len(rows) // 2 :] if row["kind"] == "PUT" and row["body_length"] > 200)
    path = f"{ACTIVE}/{victim['extent']}"
    good = flip(disk, path, FRONT + victim["lsn"] % log.extent_bytes + 250)
    found: list[Row] = []
    parts = dividing.plan(log, log.first(disk), rows[-1]["end_lsn"], disk=disk)
    with pytest.raises(LogDamaged, match=path) as caught:
        for part in parts:
            for batch in batches(part, ("lsn",), disk=disk):
                found += batch.to_pylist()
    assert lsns.text(victim["lsn"]) in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert found == [{"lsn": row["lsn"]} for row in rows][: len(found)]
    disk.poke(path, good)
    assert told(works.log(), disk) == rows


def test_a_damaged_compressed_extent_is_named_with_its_lsn() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    moved(works, [Compression.GZIP])
    path = next(path for path in disk.files() if path.endswith("S0000001.LOG.gz"))
    flip(disk, path, 300)
    with pytest.raises(LogDamaged, match=path) as caught:
        told(log, disk)
    assert caught.value.lsn == 2 * log.extent_bytes
    assert lsns.text(2 * log.extent_bytes) in str(caught.value)


@pytest.mark.parametrize("how", ["by another tool", "cut", "damaged"])
def test_first_extents_that_are_there_and_can_not_be_read_are_not_passed_over(how: str) -> None:
    """As those of a folder that somebody has compressed with `gzip`: a log that began behind them would be shorter."""
    disk = a_log().world.disk
    for number in (0, 1):
        path = f"{ACTIVE}/S000000{number}.LOG"
        content = disk.peek(path)
        disk.remove(path)
        if how == "by another tool":
            path, content = f"{path}.gz", gzip.compress(content)
        elif how == "cut":
            content = content[:-8192]
        else:
            content = bytes(FRONT + 64) + content[FRONT + 64 :]
        disk.poke(path, content)
    log = finding.find(ACTIVE, disk=disk)
    with pytest.raises(LogDamaged, match=f"{re.escape(path)} .* move it away to do without it"):
        log.first(disk)
    disk.remove(path)
    assert log.first(disk) == 3 * log.extent_bytes


def test_no_one_is_told_to_do_without_an_extent_between_others() -> None:
    disk = a_log().world.disk
    path = f"{ACTIVE}/S0000002.LOG"
    disk.poke(path, disk.peek(path)[:-8192])
    with pytest.raises(LogDamaged, match=rf"{path} was cut, .*; restore it from a backup$"):
        folder(disk).first(disk)


def test_a_missing_extent_is_named() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    rows = reference.rows(log, disk)
    parts = dividing.plan(log, log.first(disk), rows[-1]["end_lsn"], disk=disk)
    good = disk.peek(f"{ACTIVE}/S0000002.LOG")
    disk.remove(f"{ACTIVE}/S0000002.LOG")
    for fails in (
        lambda: log.first(disk),
        lambda: dividing.plan(log, log.extent_bytes, rows[-1]["end_lsn"], disk=disk),
        lambda: [told_of(part, disk) for part in parts],
    ):
        with pytest.raises(LogDamaged, match=r"S0000002\.LOG") as caught:
            fails()
        assert caught.value.lsn == 3 * log.extent_bytes
    for name in ("S0000000.LOG", "S0000001.LOG"):
        disk.remove(f"{ACTIVE}/{name}")
    assert log.first(disk) == 4 * log.extent_bytes
    with pytest.raises(ExtentGone, match=r"S0000000\.LOG"):
        told_of(parts[0], disk)
    disk.poke(f"{ACTIVE}/S0000002.LOG", good)
    assert log.first(disk) == 3 * log.extent_bytes


def test_a_log_that_ends_before_what_was_durable_is_refused() -> None:
    """Its newest extents are missing, or were cut; a folder of extents alone can't know."""
    works = a_log()
    disk, log = works.world.disk, works.log()
    end, earlier = log.end(disk=disk), log.last_before(3 * log.extent_bytes, disk)
    assert earlier is not None
    newest = (end - 1) // log.extent_bytes
    path = f"{ACTIVE}/{file_name(newest - 1)}"
    good = disk.peek(path)
    disk.poke(path, good[:FRONT] + bytes(len(good) - FRONT))
    for since in (None, earlier.end):
        with pytest.raises(LogDamaged, match=rf"{path} is damaged at .* durable up to {re.escape(lsns.text(end))}"):
            log.end(since, disk)
    for gone in (newest, newest - 1):
        for later in range(gone, newest + 9):
            if disk.exists(f"{ACTIVE}/{file_name(later - 1)}"):
                disk.remove(f"{ACTIVE}/{file_name(later - 1)}")
        for since in (None, earlier.end):
            with pytest.raises(LogDamaged, match=rf"{file_name(gone - 1)} is missing") as caught:
                log.end(since, disk)
            assert caught.value.lsn == gone * log.extent_bytes
    assert folder(disk).end(disk=disk) <= (newest - 1) * log.extent_bytes


def test_a_queue_manager_that_has_gone_on_far_meanwhile_has_lost_no_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the control file named may be removed by the time that it is looked for."""
    works = a_log()
    disk, log = works.world.disk, works.log()
    end = log.end(disk=disk)
    disk.remove(f"{ACTIVE}/S0000000.LOG")
    told, newest = [1], LogFiles._newest
    monkeypatch.setattr(LogFiles, "_newest", lambda self, disk: told.pop() if told else newest(self, disk))
    assert log.end(disk=disk) == end
    assert not told


def two_pasts(one: Callable[[qmgr.QueueManager], None], other: Callable[[qmgr.QueueManager], None]) -> list[SimDisk]:
    """A log and a copy of it, each of which has gone on in its own way at another time; both with indexes."""
    works = Works()
    works.stop()
    disks = []
    for go_on in one, other:
        works.world.clock.advance(60)
        world = copy.copy(works.world)
        world.disk = works.world.disk.snapshot(KEEP_ALL)
        world.start()
        go_on(world.qm)
        world.qm.end()
        assert {row["body_length"] for row in rows_of(folder(world.disk), world.disk)} >= {400_000}
        disks.append(world.disk)
    return disks


def mix(disk: SimDisk, other: SimDisk, indexes: str) -> None:
    """The first extent stays; all others, and what is there of their indexes, are those of another past."""
    for path in other.files(ACTIVE):
        if not path.startswith(f"{ACTIVE}/S0000000"):
            disk.poke(path, other.peek(path))
    for path in disk.files(ACTIVE):
        if path.endswith(".IDX") and path[-5] not in indexes:
            disk.remove(path)


def put_large(qm: qmgr.QueueManager) -> None:
    for _ in range(5):
        qm.put("A", bytes(400_000))


def rows_of(log: LogFiles, disk: SimDisk) -> list[Row]:
    """Read anew, whatever this process knows of another past."""
    opened._indexes.clear()
    naming._known.clear()
    parts = dividing.plan(log, log.first(disk), log.end(disk=disk), disk=disk)
    return [row for part in parts for row in told_of(part, disk)]


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


def test_a_missing_extent_of_a_folder_is_to_be_put_into_directories_that_are_there() -> None:
    works = a_log()
    disk, log = works.world.disk, folder(works.world.disk)
    parts = dividing.plan(log, log.first(disk), log.end(disk=disk), disk=disk)
    disk.remove(f"{ACTIVE}/S0000002.LOG")
    for fails in (lambda: log.first(disk), lambda: [told_of(part, disk) for part in parts]):
        with pytest.raises(LogDamaged, match=f"restore it from a backup, into {ACTIVE}$"):
            fails()
    disk.mkdir(f"{ACTIVE}/archive")
    with pytest.raises(LogDamaged, match=f"restore it from a backup, into {ACTIVE} or {ACTIVE}/archive$"):
        folder(disk).first(disk)


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


# ---- others write


def test_a_reader_keeps_up_with_a_writer(tmp_path: Path) -> None:
    qmgr.create("LIVE", data_path=tmp_path, log_type="linear", log_file_pages=64, log_primary_files=3)
    put: list[bytes] = []
    with qmgr.start("LIVE", data_path=tmp_path) as qm:
        qm.define_queue("Q")
        log = finding.find(str(tmp_path), "LIVE")
        done = threading.Event()

        def write() -> None:
            rng = random.Random(1)
            for number in range(500):
                body = b"%d " % number + rng.randbytes(rng.choice((10, 300, 9000)))
                put.append(body)
                if number % 3:
                    qm.put("Q", body)
                else:
                    with qm.begin() as unit:
                        unit.put("Q", body)
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen: list[bytes] = []
            at = log.first()
            over = False
            while not over:
                over = done.is_set()
                end = log.end(at)
                assert end >= at
                for part in dividing.plan(log, at, end):
                    rows = told_of(part, PosixDisk())
                    seen += [row["body"] for row in rows if row["kind"] == "PUT"]
                    assert all(row["object"] == "Q" for row in rows if row["kind"] == "PUT")
                    assert all(at <= row["lsn"] < end for row in rows)
                at = end
        finally:
            writer.join()
    assert seen == put
    assert at > 3 * log.extent_bytes


# ---- finding a log


def test_what_is_no_log_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no log in"):
        finding.find(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogError, match="there is no log in"):
        finding.find(str(tmp_path / "file"))
    with pytest.raises(LogError, match="queue manager 'QM9' does not exist"):
        finding.find(str(tmp_path), "QM9")
    qmgr.create("C", data_path=tmp_path)
    for path, name in ((tmp_path, "C"), (tmp_path / "log" / "C", None)):
        with pytest.raises(LogError, match=r"is circular.*migmqlog"):
            finding.find(str(path), name)


def test_what_is_no_file_beside_extents_is_left_alone(tmp_path: Path) -> None:
    """A name that was listed may be of a file that is compressed, or moved, by the time that it is opened."""
    disk = a_log().world.disk
    for path in disk.files(ACTIVE):
        (tmp_path / path.rpartition("/")[2]).write_bytes(disk.peek(path))
    log = finding.find(str(tmp_path))
    end, rows = log.end(), told(log, PosixDisk())
    (tmp_path / "S0000900.LOG").symlink_to(tmp_path / "gone")
    (tmp_path / "S0000901.LOG.gz").mkdir()
    log = finding.find(str(tmp_path))
    assert log.end() == end
    assert told(log, PosixDisk()) == rows


def test_extents_of_two_logs_are_not_read_as_one() -> None:
    one, other = Works(), Works()
    one.stop()
    other.stop()
    disk = one.world.disk
    disk.poke(f"{ACTIVE}/S0000007.LOG", other.world.disk.peek(f"{ACTIVE}/S0000000.LOG"))
    if one.log().log_id == other.log().log_id:
        disk.poke(f"{ACTIVE}/S0000007.LOG", content(8))
    with pytest.raises(LogError, match="different logs"):
        finding.find(ACTIVE, disk=disk)


def test_log_files_and_parts_can_be_sent_to_others(indexed: tuple[Works, list[Row]]) -> None:
    works, _ = indexed
    log = works.log()
    parts = dividing.plan(log, log.first(works.disk), log.end(disk=works.disk), disk=works.disk)
    assert pickle.loads(pickle.dumps(parts)) == parts
    assert pickle.loads(pickle.dumps(log)) == log


def test_an_extent_that_goes_to_a_folder_made_later_is_read_there() -> None:
    """What was planned is read by who looks at the directories again: they may come to be meanwhile."""
    disk = a_log().world.disk
    log = folder(disk)
    parts = dividing.plan(log, log.first(disk), log.end(disk=disk), disk=disk)
    before = [told_of(part, disk) for part in parts]
    disk.mkdir(f"{ACTIVE}/archive")
    moved = sorted(path for path in disk.files() if path.startswith(f"{ACTIVE}/S"))[1]
    disk.rename(moved, f"{ACTIVE}/archive/{moved.rpartition('/')[2]}")
    assert [told_of(part, disk) for part in parts] == before


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "zeros"])
@pytest.mark.parametrize("find", [folder, lambda disk: finding.find(DATA, NAME, disk)])
def test_a_log_without_its_newest_extent_is_no_shorter_log(find: Callable[[SimDisk], LogFiles], how: str) -> None:
    """After a crash the control file does not say that anything in it was durable, but that it has a part of it."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    for _ in range(40):
        world.qm.put("A", bytes(7000))
    disk = world.disk.crash(KEEP_ALL)
    log = find(disk)
    end = log.end(disk=disk)
    path = f"{ACTIVE}/{file_name(linear_number(end // log.extent_bytes))}"
    content = disk.peek(path)
    disk.remove(path)
    if how != "gone":
        disk.poke(path, {"empty": b"", "cut": content[:-8192], "zeros": bytes(len(content))}[how])
    if log.control or how != "gone":
        with pytest.raises(LogDamaged, match=path):
            find(disk).end(disk=disk)
    else:
        assert find(disk).end(disk=disk) < end, "a folder may lack the newest ones"
    if log.control:
        with pytest.raises(qmgr.Damaged, match=path):
            qmgr.start(NAME, data_path=DATA, disk=disk, clock=world.clock, background=False)


def test_who_has_read_up_to_the_newest_extent_hears_that_it_is_missing() -> None:
    """A stream, before anything else says that there is more than it has read."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    log = finding.find(DATA, NAME, world.disk)
    while log._newest(world.disk) < 3:
        world.qm.put("A", bytes(7000))
    last = log.last_before(3 * log.extent_bytes, world.disk)
    assert last is not None
    assert log.end(last.end, world.disk) > last.end >= log.durable(world.disk)
    path = f"{ACTIVE}/{file_name(linear_number(3))}"
    world.disk.remove(path)
    assert log.grown(last.end, world.disk)
    with pytest.raises(LogDamaged, match=f"{path} is missing"):
        log.end(last.end, world.disk)
