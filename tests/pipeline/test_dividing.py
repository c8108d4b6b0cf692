"""Dividing: the parts of a log make up the whole, and less is read where filters leave out; damage is named."""

import itertools
import pickle
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmgr
from logger import lsn as lsns
from logger.compressed import Compression
from logger.errors import ExtentGone, LogDamaged
from logger.extent import DATA as FRONT
from logger.posix_disk import PosixDisk
from pipeline import dividing, finding, naming, opened, windows
from pipeline.dividing import Part
from pipeline.filters import Filters
from pipeline.rows import batches
from recovery.extent_index import BLOCK_BYTES
from tests.conftest import SOAK
from tests.pipeline import reference
from tests.pipeline.many_extents import Counting, a_log, folder, moved
from tests.pipeline.reference import Row
from tests.pipeline.works import ACTIVE, Works, index, told, told_of
from tests.sim.disk import SimDisk

# ---- the same rows, however it is divided


def test_an_indexed_log_reads_as_one_without(plain: tuple[Works, list[Row]], indexed: tuple[Works, list[Row]]) -> None:
    for works, rows in (plain, indexed):
        assert told(works.log(), works.disk) == rows


@pytest.mark.parametrize("which", ["plain", "indexed"])
@settings(max_examples=200 if SOAK else 4, deadline=None)
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


# ---- parts that stay the same


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


# ---- what is damaged or missing


def flip(disk: SimDisk, path: str, at: int) -> bytes:
    good = disk.peek(path)
    disk.poke(path, good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
    return good


def test_parts_of_a_stream_name_an_extent_that_is_missing() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    end = log.end(disk=disk)
    disk.remove(f"{ACTIVE}/S0000002.LOG")
    with pytest.raises(LogDamaged, match=r"S0000002\.LOG"):
        dividing.divided(log, log.extent_bytes, end, disk)


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


# ---- others write, move and read


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
