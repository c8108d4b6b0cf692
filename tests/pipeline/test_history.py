"""The lake: the log's rows, all of them and once, whatever kills a run; what differs from the log never counts."""

import datetime
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import pipeline
import qmgr
from pipeline import finding, manifest
from pipeline.__main__ import parser_of
from pipeline.jobs import history, job, output
from pipeline.jobs.common import Failure, read_log
from pipeline.log_options import microseconds
from pipeline.manifest import Manifest, Run
from pipeline.schema import COLUMNS
from qmgr.errors import Mistake
from tests.conftest import SOAK
from tests.daemon.serving import until
from tests.pipeline import forging
from tests.pipeline.test_output import inodes_synced
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.loss import LOSE_ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "QM1"
Started = Callable[[], qmgr.QueueManager]


def started(data: Path) -> qmgr.QueueManager:
    return qmgr.start(NAME, data_path=str(data), background=False)


def made(data: Path) -> None:
    """A queue manager with a small log: units of work, and a queue whose name looks like a number."""
    qmgr.create(NAME, data_path=str(data), log_type="linear", log_file_pages=64)
    with started(data) as qm:
        qm.define_queue("A")
        qm.define_queue("0001")
        for number in range(30):
            qm.put("A", b"a%d" % number, properties={"n": number, "t": "é"}, priority=number % 3)
            with qm.begin() as unit:
                unit.put("0001", bytes(2000))
                unit.get("A")
        unit = qm.begin()
        unit.get("0001")
        unit.backout()


def run(spark: "SparkSession", data: Path, lake: Path, *words: str) -> int:
    args = parser_of(job("history")).parse_args([str(data), "--qmgr", NAME, "--out", str(lake), *words])
    return history.run(args, spark)


def rows(table: "DataFrame") -> list[tuple[Any, ...]]:
    """All columns of the log, in its order."""
    return sorted((tuple(row) for row in table.select(*COLUMNS).collect()), key=lambda row: (row[0], row[6]))


def in_log(spark: "SparkSession", data: Path) -> list[tuple[Any, ...]]:
    return rows(read_log(spark, str(data), NAME))


def run_of(start: int, end: int) -> Run:
    """A run without files."""
    return Run(folder=manifest.folder_of(start, end, "0123abcd"), start=start, end=end, rows=1)


A, B = run_of(8, 16).folder, run_of(16, 24).folder


def folders(lake: Path) -> list[str]:
    return sorted(path.name for path in lake.glob("run=*"))


@attrs.frozen
class Begun:
    """A lake whose first runs were cut off, each behind one of its steps, until one was not."""

    data: Path
    lake: Path
    left: dict[str, list[str]]  # the folders that were there after each


@pytest.fixture(scope="module")
def first(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Begun:
    begun = Begun(tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("lake"), {})
    made(begun.data)
    for owner, step in ((history, "write"), (output, "make_durable")):
        with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(owner, step, cut_off_behind(getattr(owner, step) if step == "write" else None))
            run(spark, begun.data, begun.lake)
        begun.left[step] = folders(begun.lake)
        known = manifest.load(str(begun.lake))
        assert known is not None and known.runs == ()
    assert run(spark, begun.data, begun.lake) == 0
    begun.left["end"] = folders(begun.lake)
    return begun


def cut_off_behind(step: Callable[..., None] | None) -> Callable[..., None]:
    def cut_off(*given: Any) -> None:
        if step is not None:
            step(*given)
        raise KeyboardInterrupt

    return cut_off


def test_what_a_killed_run_left_behind_is_in_no_lake_and_swept(first: Begun) -> None:
    """Each begins anew in a folder of its own, with the same records."""
    assert [len(left) for left in first.left.values()] == [1, 1, 1]
    names = {name for left in first.left.values() for name in left}
    assert len(names) == 3
    assert len({name.rpartition("-")[0] for name in names}) == 1


def test_runs_follow_each_other_and_the_lake_is_the_log(spark: "SparkSession", first: Begun) -> None:
    """A unit of work over the border of two runs; the third run finds nothing new."""
    data, lake = first.data, first.lake
    known = manifest.load(str(lake))
    assert known is not None
    assert (len(known.runs), known.open) == (1, {})
    last = finding.find(str(data), NAME).last_before(known.end)
    assert last is not None
    assert known.last == attrs.asdict(last)
    assert (last.lsn, last.end) == rows(pipeline.lake(spark, str(lake)))[-1][:2]
    with started(data) as qm:
        unit = qm.begin()
        unit.put("A", bytes(70_000))  # so much that it is logged before the outcome
        qm.put("0001", b"x")
        assert run(spark, data, lake) == 0
        between = manifest.load(str(lake))
        assert between is not None
        assert (list(between.open), between.runs[0]) == ([unit.id], known.runs[0])
        assert between.runs[1].start == known.end
        unit.commit()
    assert run(spark, data, lake, "--at-once", "100") == 0
    after = manifest.load(str(lake))
    assert after is not None
    assert after.open == {}
    assert len(after.runs) > 3, "it goes on run by run"
    assert all(one.end == other.start for one, other in zip(after.runs, after.runs[1:], strict=False))
    table = pipeline.lake(spark, str(lake))
    expected = in_log(spark, data)
    assert rows(table) == expected
    assert sum(one.rows for one in after.runs) == len(expected)
    got = {(row["queue"], row["object"]) for row in table.select("queue", "object").distinct().collect()}
    assert got == {("A", "A"), ("0001", "0001"), (None, None)}
    [days] = table.selectExpr("count(distinct day) = 1 and min(day) = date(min(time))").collect()
    assert days[0] is True
    before = (lake / manifest.NAME).read_bytes()
    assert run(spark, data, lake) == 0
    assert (lake / manifest.NAME).read_bytes() == before
    assert "Nothing: the lake had all of the log." in (lake / "report.txt").read_text()


def test_rows_that_differ_from_the_log_are_listed_and_do_not_count(
    spark: "SparkSession", first: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is lost, one that is there twice, and one that says something else, each in a unit of its own."""
    data = first.data
    real = history.write
    [lost, twice, other] = sorted({row[7] for row in in_log(spark, data) if row[7] is not None})[3:6]

    def wrong(table: "DataFrame", folder: str) -> None:
        kept = table.where(f"not (uow <=> {lost} and kind = 'GET')")
        again = table.where(f"uow = {twice} and kind = 'COMMIT'")
        changed = {"sequence": f"if(uow = {other} and kind = 'PUT', null, sequence)"}  # null, as if it did not apply
        swapped = kept.selectExpr(*(f"{changed[name]} as {name}" if name in changed else name for name in COLUMNS))
        real(swapped.unionByName(again), folder)

    monkeypatch.setattr(history, "write", wrong)
    assert run(spark, data, tmp_path) == 10
    known = manifest.load(str(tmp_path))
    assert known is not None and known.runs == ()
    told = (tmp_path / "report.txt").read_text()
    listed = [line.split() for line in told.splitlines() if line.startswith((str(lost), str(twice), str(other)))]
    assert listed == [[str(lost), "-", "3", "2"], [str(twice), "-", "3", "4"], [str(other), "-", "3", "3"]]


def test_days_are_those_of_utc_whatever_time_zone_the_session_has(spark: "SparkSession", tmp_path: Path) -> None:
    moments = [datetime.datetime(2026, 11, 21, hour, 30, tzinfo=datetime.UTC) for hour in (0, 23)]
    rows = forging.table(
        spark,
        [{"lsn": at, "position": 0, "time": moment, "object": "A"} for at, moment in enumerate(moments)],
        ("lsn", "position", "time", "object"),
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    for other in ("America/St_Johns", "Pacific/Kiritimati"):
        spark.conf.set("spark.sql.session.timeZone", other)
        try:
            history.write(rows, str(tmp_path / other))
        finally:
            spark.conf.set("spark.sql.session.timeZone", str(zone))
        assert [path.name for path in (tmp_path / other).glob("day=*")] == ["day=2026-11-21"]


def test_a_queue_may_have_the_name_that_spark_gives_the_folder_of_rows_without_one(
    spark: "SparkSession", tmp_path: Path
) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    qmgr.create(NAME, data_path=str(data), log_type="linear", log_file_pages=64)
    with started(data) as qm:
        qm.define_queue(history.NOWHERE)
        with qm.begin() as unit:
            unit.put(history.NOWHERE, b"x")
    assert run(spark, data, lake) == 0
    assert rows(pipeline.lake(spark, str(lake))) == in_log(spark, data)
    told = [line.split() for line in (lake / "report.txt").read_text().splitlines()]
    assert [history.NOWHERE, "1", "1", "0", "0", "1"] in told  # days, put, got, expired, bytes


def test_the_report_counts_queues_of_which_the_log_does_not_tell_the_name(spark: "SparkSession") -> None:
    puts = [{"kind": "PUT", "object_number": number, "repeated": False, "body_length": 7} for number in (3, 3, 4)]
    columns = ("kind", "object", "object_number", "repeated", "body_length")
    table = forging.table(spark, puts, columns).selectExpr("*", "null as queue", "date'2026-11-21' as day")
    assert history.by_queue(table) == [("#3", 1, 2, 0, 0, 14), ("#4", 1, 1, 0, 0, 7)]


def test_a_run_ends_where_a_record_ends(spark: "SparkSession", first: Begun, tmp_path: Path) -> None:
    """--from and --to lie anywhere; what lies before --from is not in the lake."""
    data = first.data
    log = finding.find(str(data), NAME)
    placed = sorted({(row[0], row[1]) for row in in_log(spark, data)})
    low, high = placed[20][1] - 8, placed[40][0] + 8
    assert run(spark, data, tmp_path, "--from", str(low), "--to", str(high)) == 0
    known = manifest.load(str(tmp_path))
    assert known is not None
    assert (known.start, known.end) == (placed[20][0], placed[40][0])
    seen = {row["lsn"] for row in pipeline.lake(spark, str(tmp_path)).select("lsn").collect()}
    assert seen == {lsn for lsn, _ in placed[20:40]}
    with pytest.raises(Failure, match="before --from: there would be a gap"):
        run(spark, data, tmp_path, "--from", str(log.end()))
    with pytest.raises(Failure, match="the log ends at "):
        run(spark, data, tmp_path, "--from", str(log.end() + 8))


def test_a_lake_over_jobs_that_are_killed_has_each_row_of_the_log_once(spark: "SparkSession", tmp_path: Path) -> None:
    """The processes of the job and of its Java die wherever they are; the next job goes on with what counts."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    made(data)
    words = [sys.executable, "-m", "tests.pipeline.history_to_kill", str(data), str(lake), "4000"]
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for more in (0, 1) * 4 if SOAK else (1,):
        assert killed(words, lake, chance.uniform(0, 2), more) == -signal.SIGKILL, seed
    counts = manifest.load(str(lake))
    assert counts is not None and counts.runs, "what the last one goes on behind"
    assert run(spark, data, lake) == 0, seed
    known = manifest.load(str(lake))
    assert known is not None
    assert folders(lake) == sorted(one.folder for one in known.runs), seed
    expected = in_log(spark, data)
    assert rows(pipeline.lake(spark, str(lake))) == expected, seed
    assert sum(one.rows for one in known.runs) == len(expected), seed


def runs(lake: Path) -> int:
    """How many runs count in the lake."""
    known = manifest.load(str(lake))
    return 0 if known is None else len(known.runs)


def killed(words: list[str], lake: Path, seconds: float, more: int) -> int:
    """Run the job until so long after it has begun to write, and `more` runs of it count; how it ended."""
    before, wanted = folders(lake), runs(lake) + more
    doomed = subprocess.Popen(words, start_new_session=True)
    try:
        until(lambda: doomed.poll() is not None or (folders(lake) != before and runs(lake) >= wanted), 300)
        time.sleep(seconds)
    finally:
        os.killpg(doomed.pid, signal.SIGKILL)
        doomed.wait()
    return doomed.returncode


# Without Spark


def test_a_folder_without_a_manifest_is_no_lake(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(Mistake, match=r"there is no lake in .*: it has no manifest\.json"):
        pipeline.lake(nothing, str(tmp_path))


def test_a_lake_without_a_name_is_not_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a variable that nobody has set."""
    nothing: Any = None
    manifest.save(str(tmp_path), Manifest(log_id="ab", start=8))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Mistake, match="lake needs the folder of a lake"):
        pipeline.lake(nothing, "")


def test_a_lake_that_spark_would_take_for_a_pattern_is_refused(tmp_path: Path) -> None:
    """Spark looks for folders that fit the pattern, and what it says then is of a wrong base path."""
    nothing: Any = None
    (tmp_path / "lake[1]").mkdir()
    manifest.save(f"{tmp_path}/lake[1]", Manifest(log_id="ab", start=8))
    with pytest.raises(Mistake, match=r"Spark takes '.*/lake\[1\]' for a pattern"):
        pipeline.lake(nothing, f"{tmp_path}/lake[1]")


def test_a_crash_leaves_the_manifest_before_or_the_new_one() -> None:
    before = Manifest(log_id="ab", start=8)
    after = attrs.evolve(before, runs=(run_of(8, 16),))
    for step in count(1):
        disk = SimDisk(step)
        disk.mkdir("/lake")
        disk.sync_dir("/")
        manifest.save("/lake", before, disk)
        disk.crash_after(step)
        try:
            manifest.save("/lake", after, disk)
        except SimCrash:
            for seed in range(6):
                assert manifest.load("/lake", disk.crash(seed)) in (before, after)
        else:
            assert manifest.load("/lake", disk.crash(LOSE_ALL)) == after
            break
    assert step > 3


@pytest.mark.parametrize("how", ["a file gone", "a file cut", "a folder gone", "a file more"])
def test_a_lake_that_has_lost_files_is_refused(tmp_path: Path, how: str) -> None:
    """What is left would be taken for all of it, and the log let go of."""
    known = run_of(8, 16)
    folder = tmp_path / known.folder / "day=2026-11-28" / "queue=A"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"part-{number}.parquet").write_bytes(bytes(100 + number))
    (folder / "_SUCCESS").write_bytes(b"")
    files, size = manifest.measure(f"{tmp_path}/{known.folder}")
    assert (files, size) == (3, 303)
    of_a_version_before = run_of(0, 8)
    lake = Manifest(log_id="ab", start=0, runs=(of_a_version_before, attrs.evolve(known, files=3, size=303)))
    manifest.save(str(tmp_path), lake)
    manifest.refuse_lost(str(tmp_path), lake)
    match how:
        case "a file gone":
            (folder / "part-1.parquet").unlink()
        case "a file cut":
            (folder / "part-1.parquet").write_bytes(bytes(50))
        case "a folder gone":
            shutil.rmtree(folder.parent)
        case _:
            (folder / "part-9.parquet").write_bytes(b"x")
    nothing: Any = None
    with pytest.raises(
        Mistake, match=rf"is not what it was: {tmp_path}/{known.folder} has \d Parquet files .* and had 3 of 303"
    ):
        pipeline.lake(nothing, str(tmp_path))


def listing_fails(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The disk can't list this folder just now: once."""
    scandir = os.scandir

    def fails(path: Any = ".") -> Any:
        if Path(path) == folder:
            monkeypatch.setattr(os, "scandir", scandir)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fails)


def test_what_can_not_be_listed_just_now_is_neither_gone_nor_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run would be noted with less than it has, and the lake be refused from then on."""
    folder = tmp_path / "run" / "day=2026-11-28" / "queue=A"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(bytes(100))
    for one in (folder, folder.parent, tmp_path / "run"):
        for look in (lambda: manifest.measure(f"{tmp_path}/run"), lambda: output.make_durable(tmp_path / "run")):
            listing_fails(monkeypatch, one)
            with pytest.raises(PermissionError, match=str(one)):
                look()
    assert manifest.measure(f"{tmp_path}/run") == (1, 100)
    assert manifest.measure(f"{tmp_path}/gone") == (0, 0)


def test_a_folder_is_no_file_of_a_lake_whatever_its_queue_is_called(tmp_path: Path) -> None:
    """Its size is another one on another file system, where the lake may be copied to."""
    folder = tmp_path / "day=2026-11-28" / "queue=A.parquet"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(bytes(100))
    assert manifest.measure(str(tmp_path)) == (1, 100)


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    known = Manifest(log_id="ab", start=8, runs=(run_of(8, 16),), open={7: 8})
    manifest.save(str(tmp_path), known)
    assert manifest.load(str(tmp_path)) == known
    assert known.end == 16
    assert attrs.evolve(known, runs=()).end == 8


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2, "log_id": "ab"}', '{"version": 1, "log_id": "ab"}', "[]"])
def test_a_manifest_that_can_not_be_understood_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / manifest.NAME).write_text(text)
    with pytest.raises(Mistake, match=r"manifest\.json can't be read as the manifest of a lake"):
        manifest.load(str(tmp_path))


def cut_at(place: tuple[str | int, ...], value: object) -> bytes:
    """A manifest of two runs with something else in one place."""
    runs = (run_of(8, 16), run_of(16, 24))
    last = {"lsn": 16, "epoch": 1, "time": 5, "end": 24}
    said = json.loads(Manifest(log_id="ab", start=8, runs=runs, open={7: 8}, last=last).encode())
    assert manifest.decode(json.dumps(said).encode()).runs == runs
    within: Any = said
    for name in place[:-1]:
        within = within[name]
    within[place[-1]] = value
    return json.dumps(said).encode()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (cut_at(("start",), "x"), "'x' is no number of"),
        (cut_at(("start",), 0), f"what {A} has does not follow"),
        (cut_at(("runs", 0, "end"), 8), f"what {A} has does not follow"),
        (cut_at(("runs", 1, "start"), 15), f"what {B} has does not follow"),
        (cut_at(("runs",), [attrs.asdict(run_of(16, 24))]), f"{B} has does not follow"),
        (cut_at(("runs", 1, "end"), True), "True is no number of"),
        (cut_at(("runs", 1, "rows"), -1), "-1 is no number of"),
        (cut_at(("runs", 1, "folder"), "../run=b"), r"a run from 16 to 24 is '\.\./run=b'"),
        (cut_at(("runs", 1, "folder"), ".."), r"a run from 16 to 24 is '\.\.'"),
        (cut_at(("runs", 1, "folder"), None), "a run from 16 to 24 is None"),
        (cut_at(("runs", 1, "folder"), "run=*"), r"a run from 16 to 24 is 'run=\*'"),
        (cut_at(("runs", 1, "folder"), B[:-1] + "?"), rf"a run from 16 to 24 is '{B[:-1]}\?'"),
        (cut_at(("runs", 1, "folder"), A), f"a run from 16 to 24 is '{A}'"),
        (cut_at(("runs", 1, "end"), 23), f"a run from 16 to 23 is '{B}'"),
        (cut_at(("runs", 1, "end"), 25), f"a run from 16 to 25 is '{B}'"),
        (cut_at(("runs", 1, "end"), 1 << 63), "9223372036854775808 is no number of"),
        (cut_at(("open",), {"-7": 8}), "-7 is no number of"),
        (cut_at(("open",), 7), "'int' object is not iterable"),
        (cut_at(("open", "7"), [8]), r"\[8\] is no number of"),
        (cut_at(("open",), [[float("inf"), 8]]), "cannot convert float infinity"),
        (cut_at(("last",), {"lsn": 16}), "its last record is"),
        (cut_at(("last", "time"), None), "None is no number of"),
        (cut_at(("log_id",), 7), "its log is 7"),
        (b"[" * 100_000, "it is nested too deep"),
    ],
)
def test_a_manifest_that_no_run_has_written_is_told(data: bytes, told: str, tmp_path: Path) -> None:
    """One that lacks a run would be a lake that lacks its rows, and say nothing."""
    (tmp_path / manifest.NAME).write_bytes(data)
    with pytest.raises(Mistake, match=rf"manifest\.json can't be read as the manifest of a lake: .*{told}"):
        manifest.load(str(tmp_path))


def test_a_run_that_an_older_manifest_does_not_name_stays_when_the_log_has_it_no_more(tmp_path: Path) -> None:
    """A manifest from a backup, as a sentence of the job may have asked for: what is not in it was swept."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    made(data)
    more(data, 3000)
    log = finding.find(str(data), NAME)
    first, end = log.first(), log.end()
    assert end // log.extent_bytes > first // log.extent_bytes
    names = [f"run={start:020d}-{stop:020d}-0123abcd" for start, stop in ((first, end), (first, end + 8))]
    for name in names:
        (lake / name).mkdir(parents=True)
        (lake / name / "part-0.parquet").write_bytes(b"rows")
    args = parser_of(job("history")).parse_args([str(data), "--qmgr", NAME, "--out", str(lake)])
    nothing: Any = None  # it is refused before Spark is asked
    manifest.save(str(lake), Manifest(log_id=log.log_id.hex(), start=first))
    with pytest.raises(Failure, match=rf"{names[1]}, which manifest\.json does not name, and the log does not have"):
        history.run(args, nothing)
    (lake / names[1] / "_temporary").mkdir()
    history.check(args)  # a run that was killed: the log has it, or it was never all written
    next(data.rglob("S0000000.LOG")).unlink()
    with pytest.raises(Failure, match=rf"{names[0]}, which manifest\.json does not name, and the log does not have"):
        history.run(args, nothing)
    assert folders(lake) == names


def test_runs_without_a_manifest_are_somebody_s_and_stay(tmp_path: Path) -> None:
    """A lake that lost it may have rows that no log has any more; others name folders so too."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    made(data)
    args = parser_of(job("history")).parse_args([str(data), "--qmgr", NAME, "--out", str(lake)])
    nothing: Any = None  # it is refused before Spark is asked
    for name in (f"run={8:020d}-{16:020d}-0123abcd", "run=2024-05"):
        (lake / name / "day=2026-11-21").mkdir(parents=True)
        with pytest.raises(Failure, match=rf"{name} and no manifest\.json: if it is a lake restore that file"):
            history.run(args, nothing)
        assert folders(lake) == [name]
        (lake / name).rename(tmp_path / name)
    manifest.save(str(lake), Manifest(log_id="ab", start=8))
    for path in tmp_path.glob("run=*"):
        path.rename(lake / path.name)
    history.sweep(str(lake), Manifest(log_id="ab", start=8))
    assert folders(lake) == ["run=2024-05"], "only what a run of this job has left"


def test_a_lake_is_of_one_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    made(data)
    lake = tmp_path / "lake"
    lake.mkdir()
    manifest.save(str(lake), Manifest(log_id="00" * 16, start=8))
    args = parser_of(job("history")).parse_args([str(data), "--qmgr", NAME, "--out", str(lake)])
    nothing: Any = None  # it is refused before Spark is asked
    with pytest.raises(Failure, match="is of another log"):
        history.run(args, nothing)
    with pytest.raises(Failure, match="it is a number of bytes above 0"):
        history.run(parser_of(job("history")).parse_args(["x", "--out", str(lake), "--at-once", "0"]), nothing)


def test_a_log_that_ends_before_the_lake_does_is_refused(tmp_path: Path) -> None:
    """What is logged after a queue manager was put back from an older copy has LSNs that the lake has already."""
    made(tmp_path / "data")
    log = finding.find(str(tmp_path / "data"), NAME)
    lake = tmp_path / "lake"
    lake.mkdir()
    words = [str(tmp_path / "data"), "--qmgr", NAME, "--out", str(lake)]
    for end, refused in ((log.end(), False), (log.end() + 8, True)):
        brought = run_of(log.first(), end)
        manifest.save(str(lake), Manifest(log_id=log.log_id.hex(), start=log.first(), runs=(brought,)))
        if not refused:
            history.check(parser_of(job("history")).parse_args(words))
            continue
        with pytest.raises(Failure, match="it is an older copy, or its queue manager was put back from one"):
            history.check(parser_of(job("history")).parse_args(words))


def test_a_log_with_another_past_than_the_lake_is_refused(tmp_path: Path) -> None:
    """A queue manager that was put back from an older copy, and has logged more since than the lake has."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    made(data)
    shutil.copytree(data, tmp_path / "old")
    args = parser_of(job("history")).parse_args([str(data), "--qmgr", NAME, "--out", str(lake)])
    lake.mkdir()
    log = finding.find(str(data), NAME)
    for end in (log.end(), more(data, 5)):
        last = log.last_before(end)
        assert last is not None
        brought = run_of(log.first(), end)
        known = Manifest(
            log_id=log.log_id.hex(), start=log.first(), runs=(brought,), last={**attrs.asdict(last), "end": end}
        )
        for field in ("epoch", "time"):  # of records of one length the LSNs are the same
            manifest.save(str(lake), attrs.evolve(known, last=attrs.asdict(last) | {field: getattr(last, field) + 8}))
            with pytest.raises(Failure, match="has another record at"):
                history.check(args)
        manifest.save(str(lake), known)
        history.check(args)
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "old", data)
    assert more(data, 20) > end
    with pytest.raises(Failure, match=r"has another record at .* than the log: the queue manager was put back from an"):
        history.check(args)


def test_a_run_does_not_count_where_another_job_has_changed_the_lake_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, and a file system that does not carry the lock to it."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    made(data)
    args = parser_of(job("history")).parse_args([str(data), "--qmgr", NAME, "--out", str(lake)])
    log, nothing = finding.find(str(data), NAME), Any
    same = history.Reconciled(1, 1, 1, 0, [])

    def brought(_: object, start: int, end: int) -> tuple[Run, history.Reconciled]:
        mine = run_of(start, end)
        (lake / mine.folder).mkdir()
        if start == log.first():
            manifest.save(str(lake), theirs)
        return mine, same

    theirs = Manifest(
        log_id=log.log_id.hex(),
        start=log.first(),
        runs=(run_of(log.first(), log.end() - 8),),
    )
    monkeypatch.setattr(history._Lake, "_bring_in", brought)
    monkeypatch.setattr(history._Lake, "_open", lambda *_: {})
    with pytest.raises(Failure, match=r"another job has changed the lake in .* meanwhile: locks do not hold on that"):
        history.run(args, nothing)
    assert manifest.load(str(lake)) == theirs


def test_the_files_of_a_run_are_durable_before_the_manifest_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    made(data)
    args = parser_of(job("history")).parse_args([str(data), "--qmgr", NAME, "--out", str(lake)])
    synced = inodes_synced(monkeypatch)
    begun = finding.find(str(data), NAME)
    run = run_of(begun.first(), begun.end())
    made_by_it = lake / run.folder

    def brought(_: object, start: int, end: int) -> tuple[Run, history.Reconciled]:
        (made_by_it / "day=2026-11-21").mkdir(parents=True)
        (made_by_it / "day=2026-11-21" / "part").write_bytes(b"rows")
        synced.clear()
        assert run == run_of(start, end)
        return run, history.Reconciled(1, 1, 1, 0, [])

    save, saved = manifest.save, []

    def check(folder: str, known: Manifest) -> None:
        if known.runs:
            saved.append({path.stat().st_ino for path in (lake, made_by_it, *made_by_it.rglob("*"))} <= synced)
        save(folder, known)

    monkeypatch.setattr(history._Lake, "_bring_in", brought)
    monkeypatch.setattr(history._Lake, "_open", lambda *_: {})
    monkeypatch.setattr(history._Lake, "_tell", lambda *_: None)
    monkeypatch.setattr(manifest, "save", check)
    nothing: Any = None  # no rows are asked for
    history.run(args, nothing)
    assert saved == [True]


def more(data: Path, messages: int) -> int:
    """Where the log ends when so many more were put."""
    with started(data) as qm:
        for _ in range(messages):
            qm.put("A", b"more")
    return finding.find(str(data), NAME).end()


def test_a_moment_stands_for_the_first_record_of_then() -> None:
    assert microseconds(datetime.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=datetime.UTC)) == 1_000_005
