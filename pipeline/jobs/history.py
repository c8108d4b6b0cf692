"""history: the log as a lake of Parquet files, brought up to date run by run; each run is checked before it counts.

*Operation*: read what the log has beyond the LSN that the lake has reached, write it into a folder of this run's alone,
read that back, and let it count. *Goals*: whatever kills a run, readers see all of it or nothing, and no row is missing
or twice; nothing counts that differs from the log. *Plan*: the manifest (`pipeline/manifest.py`) is replaced by one
rename, after the files are durable and their rows have been found equal to the log's, unit of work by unit of work.

A unit of work may lie in several runs: its rows are in the lake record by record, and its outcome comes with the run
that reads its COMMIT or BACKOUT. Until then the manifest names it as open.
"""

import argparse
import re
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

from logger import lsn as lsns
from logger.posix_disk import PosixDisk
from pipeline import finding, manifest, session
from pipeline.jobs import common, lives, output, written
from pipeline.jobs.common import DIFFERENT, GOOD, MAX_NUMBER_CHARS, Failure, say, step
from pipeline.log_files import LogFiles
from pipeline.manifest import Manifest, Run
from pipeline.report import TEXT, Report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME = "history"
HELP = "the log as a lake of Parquet files by day and queue; only what is new is read"
FOLDER = re.compile(r"run=\d{20}-\d{20}-[0-9a-f]{8}")  # of a run of this job
AT_ONCE = 16 << 30  # bytes of log that one run reads
LISTED = 1000  # differences
DAY = "date_from_unix_date(cast(unix_micros(time) div 86400000000 as int))"  # in UTC, whatever the session's time zone
NOWHERE = "__HIVE_DEFAULT_PARTITION__"  # the folder of rows without a queue: one of that name lies there too
HASH_HALF = 0xFFFFFFFF
OUTCOMES = ("COMMIT", "BACKOUT")
UNFINISHED = "_temporary"  # in a folder that Spark is writing


def arguments(parser: argparse.ArgumentParser) -> None:
    common.arguments(parser)
    parser.add_argument(
        "--at-once",
        metavar="BYTES",
        type=at_once,
        default=AT_ONCE,
        help="log that one run reads and lets count, at most; the job goes on run by run (default: 16 GiB)",
    )


def at_once(text: str) -> int:
    """Bytes. Raises Failure."""
    if not (text.isascii() and text.isdigit() and len(text) < MAX_NUMBER_CHARS and int(text)):
        raise Failure(f"--at-once was given {text[:MAX_NUMBER_CHARS]!r}; it is a number of bytes above 0.")
    return int(text)


def check(args: argparse.Namespace) -> None:
    since, _ = common.check(args)
    folder = common.out_folder(args)
    known = lake_of(finding.find(args.path, args.qmgr), folder)
    if known is not None and known.runs and args.since is not None:
        refuse_gap(folder, known, since)
    output.check(args, NAME, writes(folder))


def run(args: argparse.Namespace, spark: "SparkSession") -> int:
    log = finding.find(args.path, args.qmgr)
    folder = common.out_folder(args)
    with output.owned(folder, NAME, writes(folder)):
        return _Lake(spark, args, log, folder).advance()


def writes(folder: str) -> tuple[str, ...]:
    """The names in the folder that have to be this job's; a manifest makes it one, also where the marker is lost."""
    return () if PosixDisk().exists(f"{folder}/{manifest.NAME}") else (manifest.NAME, TEXT)


@attrs.frozen
class Difference:
    """Rows that the lake and the log do not have alike."""

    uow: int | None
    extent: str | None  # of rows outside units of work
    in_log: int
    in_lake: int


@attrs.frozen
class Reconciled:
    """What came of comparing a run's files with the log."""

    groups: int  # units of work, and extents for the rows outside them
    in_log: int  # rows
    in_lake: int
    different: int  # groups
    listed: list[Difference]


class _Lake:
    """One call of the job."""

    def __init__(self, spark: "SparkSession", args: argparse.Namespace, log: LogFiles, folder: str) -> None:
        self._spark = spark
        self._args = args
        self._log = log
        self._folder = folder
        self._report = Report(f"History of the log in {args.path}")

    def advance(self) -> int:
        """Bring in what is new, a run at a time. 10 where a run's files differ from the log: then it does not count."""
        since, until = common.bounds(self._log, self._args)
        known = self._known(since)
        sweep(self._folder, known)
        end = self._end(known.end, until)
        brought: list[Run] = []
        while known.end < end:
            before, stop = known, self._log.boundary(known.end, end, self._args.at_once)
            made, reconciled = self._bring_in(known.end, stop)
            if reconciled.different:
                self._tell_differences(made, reconciled)
                self._report.write(self._folder)
                return DIFFERENT
            last = self._log.last_before(stop)
            known = attrs.evolve(
                known,
                runs=(*known.runs, made),
                open=self._open(known, made),
                last=None if last is None else attrs.asdict(last),
            )
            output.make_durable(Path(self._folder, made.folder))
            self._refuse_another(before)
            manifest.save(self._folder, known)
            brought.append(made)
            say(f"history: the lake has the log up to {lsns.text(known.end)}")
        self._tell(known, brought)
        self._report.write(self._folder)
        return GOOD

    def _known(self, since: int | None) -> Manifest:
        """The lake's manifest; where there is none, or one without runs, a new one without runs is written."""
        known = lake_of(self._log, self._folder)
        if known is None or not known.runs:
            known = Manifest(log_id=self._log.log_id.hex(), start=self._first(since))
            manifest.save(self._folder, known)  # before there is a folder of a run
        elif since is not None:
            refuse_gap(self._folder, known, since)
        return known

    def _refuse_another(self, before: Manifest) -> None:
        """Raise Failure where another job has changed the lake since `before`: its lock does not hold there."""
        if manifest.load(self._folder) != before:
            raise Failure(
                f"another job has changed the lake in {self._folder} meanwhile: locks do not hold on that file system "
                f"between machines; run one job at a time, and this one again"
            )

    def _first(self, since: int | None) -> int:
        """Where the lake begins: where a record ends, if not with the log."""
        first = self._log.first()
        return first if since is None or since <= first else self._log.boundary(first, since, since - first)

    def _end(self, reached: int, until: int) -> int:
        """Up to where the log is read now: where a record ends."""
        return self._log.boundary(reached, until, until - reached) if until > reached else reached

    def _bring_in(self, start: int, end: int) -> tuple[Run, Reconciled]:
        """Write the rows of the records in [start, end) into a folder of their own, and compare."""
        what = f"history: {lsns.text(start)} to {lsns.text(end)}"
        folder = manifest.folder_of(start, end, secrets.token_hex(4))
        rows = common.read_log(self._spark, self._args.path, self._args.qmgr, start, end)
        session.fit(self._spark, end - start)
        with step(self._spark, f"{what}, written"):
            write(rows, f"{self._folder}/{folder}")
        written = manifest.read_runs(self._spark, self._folder, [folder])
        with step(self._spark, f"{what}, compared"):
            reconciled = reconcile(rows, written)
        files, size = manifest.measure(f"{self._folder}/{folder}")
        return Run(folder=folder, start=start, end=end, rows=reconciled.in_lake, files=files, size=size), reconciled

    def _open(self, known: Manifest, made: Run) -> dict[int, int]:
        """Units of work that have rows in the lake and no outcome there."""
        rows = manifest.read_runs(self._spark, self._folder, [made.folder]).where(F.col("uow").isNotNull())
        ended = F.max(F.col("kind").isin(*OUTCOMES)).alias("ended")
        units = rows.groupBy("uow").agg(F.min("lsn").alias("first"), ended)
        still = {row["uow"]: row["first"] for row in units.where("not ended").collect()}
        over: set[int] = set()
        if known.open:
            before = self._spark.createDataFrame([(unit,) for unit in known.open], "uow BIGINT")
            over = {row["uow"] for row in units.where("ended").join(before, "uow", "left_semi").collect()}
        return still | {unit: first for unit, first in known.open.items() if unit not in over}

    def _tell(self, known: Manifest, brought: list[Run]) -> None:
        report = self._report
        report.line(f"The lake in {self._folder} has the log from {lsns.text(known.start)} to {lsns.text(known.end)}:")
        runs = "one run" if len(known.runs) == 1 else f"{len(known.runs):,} runs"
        report.line(f"{sum(one.rows for one in known.runs):,} rows, brought in by {runs}.")
        report.line(f"Units of work without an outcome in it: {len(known.open):,}.")
        report.heading("Brought in now")
        if not brought:
            report.line("Nothing: the lake had all of the log.")
            return
        report.line("Rows and their checksums, by unit of work, are those of the log.")
        headers = ("from", "to", "rows", "folder")
        report.table(headers, [(lsns.text(one.start), lsns.text(one.end), one.rows, one.folder) for one in brought])
        report.heading("By queue, of what was brought in now")
        report.line("Puts and gets as they were logged, also those of units of work that were backed out: see flow.")
        report.line()
        now = manifest.read_runs(self._spark, self._folder, [one.folder for one in brought])
        report.table(("queue", "days", "put", "got", "expired", "bytes put"), by_queue(now))

    def _tell_differences(self, made: Run, found: Reconciled) -> None:
        report = self._report
        report.line(f"The rows that were written into {made.folder} differ from those of the log, so they are not in")
        report.line(
            f"the lake: {found.in_log:,} rows in the log, {found.in_lake:,} in the files, and {found.different:,} of"
        )
        report.line(f"{found.groups:,} units of work (or extents, for rows outside of any) are not alike.")
        report.heading("Not alike")
        rows = [(str(one.uow or "-"), one.extent, one.in_log, one.in_lake) for one in found.listed]
        report.table(("unit of work", "extent", "rows in the log", "rows in the files"), rows)
        say(f"history: {found.different} units of work differ from the log; see the report")


def lake_of(log: LogFiles, folder: str) -> Manifest | None:
    """What the lake in this folder has; None where there is none yet. Raises Failure for what is not of this log."""
    known = manifest.load(folder)
    if known is None:
        refuse_runs(folder)
    elif known.log_id != log.log_id.hex():
        raise Failure(f"the lake in {folder} is of another log; name another --out for this one.")
    elif known.runs and (end := log.end()) < known.end:
        raise Failure(
            f"the lake in {folder} has the log up to {lsns.text(known.end)}, and this one ends at {lsns.text(end)}: it "
            f"is an older copy, or its queue manager was put back from one, and what comes next in it may not be what "
            f"the lake has there; name another --out."
        )
    elif known.runs and known.last is not None:
        refuse_another_past(log, folder, known.last)
    if known is not None:
        manifest.refuse_lost(folder, known)
        refuse_older(log, folder, known)
    return known


def refuse_another_past(log: LogFiles, folder: str, last: dict[str, int]) -> None:
    """Raise Failure where the log has another record in the place of the last one that is in the lake."""
    found = log.last_before(last["end"])
    if found is not None and attrs.asdict(found) != last:
        raise Failure(
            f"the lake in {folder} has another record at {lsns.text(last['lsn'])} than the log: the queue manager was "
            f"put back from an older copy, and has logged others since; name another --out."
        )


def refuse_gap(folder: str, known: Manifest, since: int) -> None:
    """Raise Failure where a run that begins there would leave something out."""
    if since > known.end:
        raise Failure(
            f"the lake in {folder} ends at {lsns.text(known.end)}, before --from: there would be a gap; leave --from "
            f"away, or name another --out."
        )


def refuse_runs(folder: str) -> None:
    """Raise Failure where a folder without a manifest has runs: a lake that lost it, or something else's."""
    found = sorted(path.name for path in Path(folder).iterdir() if path.name.startswith("run="))
    if found:
        raise Failure(
            f"{folder} has {found[0]} and no {manifest.NAME}: if it is a lake restore that file from a backup, since "
            f"the log may not have these rows any more; else name another --out."
        )


def refuse_older(log: LogFiles, folder: str, known: Manifest) -> None:
    """Raise Failure where a run that the manifest does not name may be all that there is of its part of the log.

    If that run was killed its folder is swept away, and its part is read anew. But a newer manifest, now lost, may have
    named it: so what is swept has to be in the log still.
    """
    for path in left_behind(folder, known):
        if (path / UNFINISHED).exists() or not manifest.measure(str(path))[0]:
            continue  # never all written
        start, end = (int(number) for number in path.name.removeprefix("run=").split("-")[:2])
        if not log.has(start, end):
            raise Failure(
                f"{folder} has {path.name}, which {manifest.NAME} does not name, and the log does not have all of "
                f"that any more: if the manifest is an older one restore the newest; if that run was killed before it "
                f"counted remove its folder."
            )


def sweep(folder: str, known: Manifest) -> None:
    """Remove what runs of this job have left behind that were killed; whatever has another form stays."""
    for path in left_behind(folder, known):
        shutil.rmtree(path, ignore_errors=True)


def left_behind(folder: str, known: Manifest) -> list[Path]:
    """The folders of runs that the manifest does not name."""
    there = {one.folder for one in known.runs}
    found = [path for path in Path(folder).iterdir() if FOLDER.fullmatch(path.name) and path.name not in there]
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def write(rows: "DataFrame", folder: str) -> None:
    """As Parquet, by day and queue, each file in the order of the log. Raises Failure unless all of it is there."""
    placed = rows.withColumn("day", F.expr(DAY)).withColumn("queue", F.nullif("object", F.lit(NOWHERE)))
    ordered = placed.hint("rebalance", "day", "queue").sortWithinPartitions("day", "queue", "lsn", "position")
    written.parquet(ordered, folder, "day", "queue")


# Comparing


def reconcile(in_log: "DataFrame", in_lake: "DataFrame") -> Reconciled:
    """Compare rows by unit of work (by extent, where they are of none): how many, and sums of a hash of all columns."""
    both = _sums(in_log, 1).unionByName(_sums(in_lake.select(in_log.columns), -1))
    groups = both.groupBy("uow", "extent").agg(
        F.count_if(F.col("side") > 0).alias("in_log"),
        F.count_if(F.col("side") < 0).alias("in_lake"),
        *(F.sum(F.col("side") * F.col(half)).alias(half) for half in ("low", "high")),
    )
    unlike = (F.col("in_log") != F.col("in_lake")) | (F.col("low") != 0) | (F.col("high") != 0)
    compared = groups.select("*", unlike.alias("unlike"))
    total = compared.agg(
        F.count("*").alias("groups"),
        F.coalesce(F.sum("in_log"), F.lit(0)).alias("in_log"),
        F.coalesce(F.sum("in_lake"), F.lit(0)).alias("in_lake"),
        F.count_if("unlike").alias("different"),
    ).first()
    assert total is not None  # an aggregate without groups has one row
    listed = []
    if total["different"]:
        rows = compared.where("unlike").orderBy("uow", "extent").limit(LISTED).collect()
        listed = [Difference(row["uow"], row["extent"], row["in_log"], row["in_lake"]) for row in rows]
    return Reconciled(total["groups"], total["in_log"], total["in_lake"], total["different"], listed)


def _sums(rows: "DataFrame", side: int) -> "DataFrame":
    """Each row's group and the halves of its hash: their sums over any number of rows are exact."""
    columns = [_comparable(rows, name) for name in rows.columns]
    # The hash passes over nulls, so which columns are null is hashed too.
    digest = F.xxhash64(*columns, *(F.isnull(name) for name in rows.columns))
    hashed = rows.select(
        "uow",
        F.when(F.col("uow").isNull(), F.col("extent")).alias("extent"),
        F.lit(side).alias("side"),
        digest.alias("h"),
    )
    low = F.col("h").bitwiseAND(F.lit(HASH_HALF)).alias("low")
    high = F.shiftrightunsigned("h", 32).alias("high")
    return hashed.select("uow", "extent", "side", low, high)


def _comparable(rows: "DataFrame", name: str) -> "Column":
    """The column as it can be hashed: the entries of a map in one order."""
    if isinstance(rows.schema[name].dataType, MapType):
        return F.array_sort(F.map_entries(name))
    return F.col(name)


def by_queue(rows: "DataFrame") -> list[tuple[object, ...]]:
    """Days and rows of each queue, for the report."""
    kinds = {"PUT": "put", "GET": "got", "EXPIRE": "expired"}
    of_queues = rows.where(F.col("kind").isin(*kinds) & ~F.col("repeated"))
    found = of_queues.groupBy(F.expr(lives.QUEUE).alias("name")).agg(
        F.countDistinct("day").alias("days"),
        *(F.count_if(F.col("kind") == kind).alias(name) for kind, name in kinds.items()),
        F.coalesce(F.sum("body_length"), F.lit(0)).alias("bytes"),
    )
    return [tuple(row) for row in found.orderBy("name").collect()]
