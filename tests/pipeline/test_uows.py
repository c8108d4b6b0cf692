"""Units of work: records, bytes, spans and heads are as a plain reading has them; sizes follow from rates."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

import qmgr
from logger import lsn as lsns
from pipeline import finding, log_files
from pipeline.__main__ import parser_of
from pipeline.jobs import job, sizing, uows
from pipeline.jobs.sizing import Seen, advise
from pipeline.report import Report
from tests.pipeline import reference
from tests.pipeline.forging import table
from tests.pipeline.reference import Row
from tests.sim.clock import SimClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "QM1"
QUIET = Seen(
    seconds=100.0,
    bytes=1_000_000,
    peak_bytes=20_000,
    peak_extent_bytes=150_000,
    peak_force_bytes=4_000,
    largest_record=1_000,
    needed=300_000,
    longest_unit=2.0,
)


def work(data: Path) -> list[Row]:
    """One unit of work that lasts over checkpoints, one that is backed out, one in doubt, and others; the rows."""
    clock = SimClock()
    qmgr.create(NAME, data_path=str(data), log_type="linear", log_file_pages=64, clock=clock)
    qm = qmgr.start(NAME, data_path=str(data), clock=clock, background=False)
    for queue in ("A", "B"):
        qm.define_queue(queue, default_persistence=True)
    for number in range(30):
        if number == 5:
            long = qm.begin()
            long.put("B", b"long")
        if number == 22:
            long.commit()
        with qm.begin() as unit:
            for _ in range(number % 4):
                unit.put("A", bytes(100 * number))
        if number % 4 == 0:
            qm.checkpoint()
        clock.advance(0.7)
    unit = qm.begin()
    unit.get("A")
    unit.backout()
    doubt = qm.begin(qmgr.Xid(1, b"x", b"y"))
    doubt.put("A", b"doubt")
    doubt.prepare()
    qm.end("immediate")
    return reference.rows(finding.find(str(data), NAME), log_files.PosixDisk())


def test_units_checkpoints_and_needs_are_as_a_plain_reading_has_them(spark: "SparkSession", tmp_path: Path) -> None:
    rows = work(tmp_path / "data")
    out = tmp_path / "out"
    words = [str(tmp_path / "data"), "--qmgr", NAME, "--out", str(out)]
    assert uows.run(parser_of(job("uows")).parse_args(words), spark) == 0
    end = rows[-1]["end_lsn"]
    by_unit = {row["uow"]: row for row in spark.read.parquet(str(out / "units")).collect()}
    assert by_unit.keys() == {row["uow"] for row in rows if row["uow"]}
    for uow, told in by_unit.items():
        mine = [row for row in rows if row["uow"] == uow]
        heads = [row for row in mine if row["position"] == 0]
        over = next((row for row in mine if row["kind"] in ("COMMIT", "BACKOUT")), None)
        assert told["records"] == len(heads)
        assert told["bytes"] == sum(row["end_lsn"] - row["lsn"] for row in heads)
        assert (told["puts"], told["gets"]) == tuple(
            sum(row["kind"] == kind for row in mine) for kind in ("PUT", "GET")
        )
        assert told["outcome"] == (over["kind"] if over is not None else "IN DOUBT")
        assert told["span"] == (over["end_lsn"] if over is not None else end) - mine[0]["lsn"]
        if over is not None:
            assert told["duration_us"] == over["time"] - mine[0]["time"]
    [doubt] = [row for row in by_unit.values() if row["outcome_lsn"] is None]
    assert doubt["xid"] == "1:78:79"

    begun = {row["lsn"]: json.loads(row["details"]) for row in rows if row["kind"] == "START_CHECKPOINT"}
    done = {
        lsns.parse(json.loads(row["details"])["lsn"]): row["end_lsn"] for row in rows if row["kind"] == "END_CHECKPOINT"
    }
    marks = sorted(begun.keys() & done.keys())
    heads_at = [lsns.parse(begun[at]["head"]) if begun[at]["head"] else at for at in marks]
    before = [rows[0]["lsn"]] * 2 + heads_at
    needed = {at: done[at] - before[place] for place, at in enumerate(marks)}
    table = {row["lsn"]: row for row in spark.read.parquet(str(out / "checkpoints")).collect()}
    assert {at: row["needed"] for at, row in table.items()} == needed
    assert [table[at]["head"] for at in marks] == heads_at

    held = {row["uow"]: row["checkpoints"] for row in spark.read.parquet(str(out / "holders")).collect()}
    firsts = {row["first_lsn"]: uow for uow, row in by_unit.items()}
    assert held == {firsts[head]: heads_at.count(head) for head in set(heads_at) if head in firsts}
    assert max(held.values()) == 4

    text = (out / "report.txt").read_text()
    longest = max(by_unit.values(), key=lambda row: row["span"])
    assert f"\n{longest['uow']} " in text, "as it can be put into a filter"
    assert f"{max(max(needed.values()), end - heads_at[-1]):,} bytes had to be kept active" in text
    assert "LogPrimaryFiles=3\nLogFilePages=4096" in text
    assert (out / "needed.png").stat().st_size > 1000


def test_a_unit_of_work_that_was_rolled_forward_holds_the_log_in_pieces(spark: "SparkSession") -> None:
    """And what it says again counts once; but once, also where the log begins behind what it has said first."""
    records = [
        (100, 180, [("PUT", False)]),
        (1000, 1100, [("PUT", True), ("GET", True), ("ROLL_FORWARD", False)]),
        (1500, 1540, [("GET", False), ("COMMIT", False)]),
    ]
    rows: list[Row] = [
        {"lsn": lsn, "end_lsn": end, "time": lsn, "kind": kind, "position": position, "uow": 5, "repeated": again}
        | ({"object": "A", "object_number": 1} if kind in ("PUT", "GET") else {})
        for lsn, end, said in records
        for position, (kind, again) in enumerate(said)
    ]
    cut = [row | {"uow": 6} for row in rows if row["lsn"] >= 1000]
    [cut_unit, unit] = uows.units(table(spark, rows + cut, uows.COLUMNS)).orderBy("uow", ascending=False).collect()
    assert (cut_unit["puts"], cut_unit["gets"], cut_unit["records"]) == (1, 1, 2)
    assert (unit["puts"], unit["gets"], unit["records"], unit["bytes"]) == (1, 1, 3, 80 + 100 + 40)
    assert (unit["span"], unit["whole_span"], unit["held_from"]) == (900, 1440, [100, 1000])
    assert (unit["outcome"], unit["queues"]) == ("COMMIT", ["A"])
    report = Report("Units")
    uows.list_longest(report, table(spark, rows, uows.COLUMNS).transform(uows.units))
    text = report.text()
    assert "of one that was rolled forward the longest piece" in text and " 900      1,220 " in text


def test_what_a_roll_forward_says_again_is_counted_as_that(spark: "SparkSession") -> None:
    """During another unit of work: its bytes, and as no put."""
    said = [
        (100, 140, 5, [("PUT", False)]),
        (200, 260, 6, [("PUT", False)]),
        (300, 400, 6, [("PUT", True), ("PUT", True), ("ROLL_FORWARD", False)]),
        (400, 430, 5, [("COMMIT", False)]),
    ]
    log = table(
        spark,
        [
            {"lsn": lsn, "end_lsn": end, "time": lsn, "kind": kind, "position": at, "uow": uow, "repeated": again}
            | ({"object": "A", "object_number": 1} if kind == "PUT" else {})
            for lsn, end, uow, rows in said
            for at, (kind, again) in enumerate(rows)
        ],
        uows.COLUMNS,
    )
    report = Report("Units")
    uows.list_between(report, log, log.transform(uows.units).filter("uow = 5").collect())
    lines = [line.split() for line in report.text().splitlines() if line.startswith("5 ")]
    assert lines == [["5", "ROLL_FORWARD", "3", "100"], ["5", "its", "own", "2", "70"], ["5", "PUT", "1", "60"]]


def test_a_quiet_log_needs_no_more_than_the_least() -> None:
    advice = advise(QUIET)
    assert (advice.primary_files, advice.file_pages, advice.buffer_pages) == (3, 4096, 512)
    assert "300,000 / 0.8 = 375,000 bytes" in "\n".join(advice.steps)


def test_extents_grow_with_the_rate_and_their_number_with_what_is_kept() -> None:
    busy = attrs.evolve(QUIET, peak_extent_bytes=10_000 * 4096, needed=100_000 * 4096, peak_force_bytes=800 * 4096)
    advice = advise(busy)
    assert advice.file_pages == 10_000
    assert advice.primary_files == 14  # 125,000 pages in extents of 10,000, and one
    assert advice.buffer_pages == 1600


def test_what_needs_too_many_extents_gets_larger_ones_and_what_no_log_holds_is_said() -> None:
    large = advise(attrs.evolve(QUIET, needed=5_000_000 * 4096))
    assert large.file_pages > 4096
    assert large.primary_files * large.file_pages * 4096 * 0.8 >= 5_000_000 * 4096
    assert large.primary_files <= sizing.FILES[1]
    too_large = advise(attrs.evolve(QUIET, needed=10**15, largest_record=1 << 30))
    assert (too_large.primary_files, too_large.file_pages, too_large.buffer_pages) == (509, 65535, 4096)
    assert any("no log is as large as that" in step for step in too_large.steps)
