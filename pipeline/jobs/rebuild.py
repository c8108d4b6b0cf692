"""rebuild: the content of every queue as of an LSN or a moment, from its media image and the log, as Parquet.

An image holds the state before one LSN, the *checkpoint* that was taken for it. What is there later is

    what the image has  +  puts committed since  −  gets committed since  −  what expired since

where "since" is from that LSN on, and before it what those units of work did that were in flight then. A get in a unit
of work that had no outcome counts as backed out, as after a crash at that moment; one of a prepared unit locks its
message, and its puts are shown as not committed. Non-persistent messages are in no log.

`--into` lets `qmgr.recover_to` build a queue manager as of the same LSN, and compares: two ways to the same content.
"""

import argparse
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F

from logger import lsn as lsns
from logger.config import LogConfig
from logger.errors import LogError
from logger.extent import file_name, linear_number
from logger.posix_disk import PosixDisk, absolute_path
from logger.whole_files import make_dirs
from pipeline import built, finding, session
from pipeline.built import LOCKED, READY, UNCOMMITTED, Content, Contents
from pipeline.image_source import image_table
from pipeline.images import Extent, records_of
from pipeline.jobs import common, output, written
from pipeline.jobs.common import DIFFERENT, GOOD, Failure, say, step
from pipeline.jobs.content import (
    gets_of,
    in_doubt,
    outcomes_of,
    placed_puts,
    puts_without_place,
    uncommitted_puts,
    visible_puts,
    what_is_left,
)
from pipeline.jobs.output import Output
from pipeline.log_files import LogFiles
from pipeline.log_options import microseconds
from pipeline.report import TEXT, Report
from pipeline.schema import SQL, arrow_of
from qmgr import ini, locations
from qmgr.cli.command import ANOTHER_PATH, with_way_out
from qmgr.errors import AlreadyExists, MQError
from qmgr.ownership import refuse_inside_another
from qmgr.pointintime import recover_to, refuse_target
from qmgr.survey import DEFINITION_KINDS, Survey
from recovery import backouts, records
from recovery.errors import NotRecoverable, RecoveryError
from recovery.image import ImagePlace
from recovery.records import Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

NAME = "rebuild"
HELP = "the content of every queue as of an LSN or a moment, from media images and the log"
MESSAGES = "messages"  # the folder of Parquet files
WRITES = (MESSAGES, TEXT)
MESSAGE = (
    *("message_id", "correlation_id", "priority", "persistent", "put_time", "expiry"),
    *("properties", "format", "reply_to", "body_length", "body"),
)
CONTENT = ("object", "object_number", "sequence", "state", "uow", "xid", "backout_count", *MESSAGE)
MESSAGE_KEY_COLUMNS = ("lsn", "end_lsn", "kind", "uow", "object_number", "sequence")
DEFINITION_COLUMNS = ("lsn", "end_lsn", "kind", "object_number", "object", "details")
ENDS = ("COMMIT", "BACKOUT", "PREPARE", "ROLL_FORWARD")
DEFINITIONS = tuple(sorted(Kind(kind).name for kind in {*DEFINITION_KINDS, Kind.IMAGE_START}))


def arguments(parser: argparse.ArgumentParser) -> None:
    common.log_arguments(parser)
    parser.add_argument(
        "--at",
        metavar="WHERE",
        type=common.place,
        help="as it was before this LSN, such as 0:0:4615:42406 or as a number, or at this time, such as "
        "2026-11-21T14:30:00; default: the end of the log",
    )
    parser.add_argument(
        "--into",
        metavar="DIR",
        type=into_path,
        help="with --qmgr: build a queue manager below this data path too, as qm recover-to does, and compare; the "
        "original must not be running",
    )


def into_path(text: str) -> str:
    """What `--into` was given. Raises Failure for what is on no disk of this machine."""
    return common.path_given("--into", text, "a path that this machine has mounted")


def check(args: argparse.Namespace) -> None:
    refuse_folder(args)
    log = common.find_log(args)
    start, end = edges(log, args.at)
    if isinstance(args.at, int):
        refuse_elsewhere(log, args.at, start, end)
    elif args.at is not None and not log.has_until(microseconds(args.at), start, end):
        raise before_all(start)
    if args.into is not None:
        refuse_into(args.qmgr, args.path, args.into)
    output.check(args, NAME, WRITES)


def refuse_folder(args: argparse.Namespace) -> None:
    """Raise Failure where `--into` is to build a queue manager, and no queue manager is named as its original."""
    if args.into is not None and args.qmgr is None:
        raise Failure("--into builds a queue manager, so it takes the data path of the original and --qmgr.")


def edges(log: LogFiles, at: common.Place | None) -> tuple[int, int]:
    """From where to where nothing of the log is missing that may be wanted: up to its end, or to a gap behind `at`."""
    end = log.end()
    if isinstance(at, datetime.datetime):
        return log.stretch(microseconds(at), end)
    return log.unbroken(at if isinstance(at, int) and at < end else end), end


def refuse_elsewhere(log: LogFiles, at: int, start: int, end: int) -> None:
    """Raise Failure where this LSN lies behind the log, NotRecoverable where it lies before it."""
    if at > end:
        raise Failure(f"the log ends at {lsns.text(end)}, so {lsns.text(at)} is not in it.")
    if at < start and start <= log.extent_bytes:
        raise Failure(f"the log begins at {lsns.text(start)}, and {lsns.text(at)} lies before that.")
    if at < start:
        needed = file_name(linear_number(max(1, at // log.extent_bytes)))
        raise NotRecoverable(
            f"the log that is there begins at {lsns.text(start)}, behind {lsns.text(at)}; bring {needed} and the older "
            f"extents back, or take a later moment"
        )


def before_all(start: int) -> Failure:
    """What is raised for a moment before the first record that is there."""
    return Failure(f"the log begins at {lsns.text(start)}, and what is asked for was before that.")


def refuse_into(qmgr: str, path: str, into: str) -> None:
    """Raise what `recover_to` would raise at the end of the job: for one that runs, for a place that can't be had."""
    disk = PosixDisk()
    source, target = (locations.find(qmgr, root) for root in (path, into))
    holder = disk.locked_by(source.lock)
    if holder is not None:
        raise Failure(f"--into takes the log of a queue manager that does not run; {qmgr!r} is run by {holder}.")
    refuse_inside_another(disk, target.data_dir, target)
    ini.render(ini.Config(log=LogConfig(path=target.log_dir)))  # raises IniError for a path that it can't hold
    try:
        refuse_target(disk, target)
    except AlreadyExists as exc:
        raise Failure(f"--into was given {into!r}: {exc}.") from None
    try:
        make_dirs(disk, target.data_root)
        disk.list(target.data_root)
    except OSError as exc:
        raise Failure(f"--into was given {into!r}, which can't be made: {with_way_out(exc, ANOTHER_PATH)}") from None


def run(args: argparse.Namespace, spark: "SparkSession") -> int:
    refuse_folder(args)
    log = finding.find(args.path, args.qmgr)
    with output.workshop(common.out_folder(args), NAME, WRITES) as shop:
        return _Rebuild(spark, args, log, shop).run()


@attrs.frozen
class Known:
    """A queue that there was, and where its content begins."""

    number: int
    name: str
    place: ImagePlace
    image: Extent | None = None  # None: it began empty, when it was defined
    units: dict[int, int] = attrs.field(factory=dict)  # those in flight at its checkpoint -> their first LSN
    backouts: dict[int, int] = attrs.field(factory=dict)  # by sequence


@attrs.define
class Found:
    """What the log says of definitions and images up to the LSN."""

    survey: Survey
    begun: dict[int, str] = attrs.field(factory=dict)  # what each IMAGE_START says, by its LSN
    ended: dict[int, int] = attrs.field(factory=dict)  # LSN of each IMAGE_START -> that of its IMAGE_END


class _Rebuild:
    """One call of the job."""

    def __init__(self, spark: "SparkSession", args: argparse.Namespace, log: LogFiles, shop: Output) -> None:
        self._spark = spark
        self._args = args
        self._log = log
        self._shop = shop
        self._persisted: list[DataFrame] = []
        self._lacking: list[str] = []  # sentences: of queues that are built, but for some messages

    def run(self) -> int:
        with step(self._spark, "rebuild: what there was"):
            start, end = edges(self._log, self._args.at)
            until = self._until(start, end)
            session.fit(self._spark, until - start)
            found = self._found(start, until)
        known, missing = known_queues(found, self._log)
        for sentence in missing:
            say(f"rebuild: {sentence}")
        path = f"{self._shop.work}/{MESSAGES}"
        queues = "one queue" if len(known) == 1 else f"{len(known)} queues"
        with step(self._spark, f"rebuild: {queues} before {lsns.text(until)}"):
            rows = self._content(known, until).withColumn("queue", F.col("object")).hint("rebalance", "queue")
            ordered = rows.sortWithinPartitions("queue", "priority", "sequence")
            written.parquet(ordered, path, "queue")
            for kept in self._persisted:
                kept.unpersist()
            counted = contents_of(self._spark.read.schema(ddl_of(CONTENT)).parquet(path))
        report = Report(f"Queues of the log in {self._args.path} as of {lsns.text(until)}")
        tell(report, [one.name for one in known], counted, [*missing, *self._lacking])
        try:
            different = may_build(self._args.into, missing, report) and self._compared(report, counted, until)
        except (MQError, LogError, RecoveryError, OSError) as exc:  # the Parquet files count all the same
            report.heading("The queue manager that was to be built")
            report.line(f"It was not built, or can't be read: {exc}")
            self._shop.publish(report, MESSAGES)
            raise
        self._shop.publish(report, MESSAGES)
        return DIFFERENT if missing or self._lacking or different else GOOD

    def _read(self, *columns: str, since: int, until: int) -> "DataFrame":
        """These columns of the records that begin at the LSN `since` or later, and end at `until` or before."""
        ddl = ddl_of(columns)
        rows = common.read_log(self._spark, self._args.path, self._args.qmgr, since, until, ddl)
        return rows.where(F.col("end_lsn") <= until)

    # ---- what there was

    def _until(self, start: int, end: int) -> int:
        """The LSN behind the last record that counts: the rules of `recover_to`. Raises Failure."""
        at = self._args.at
        if at is None:
            return end
        if isinstance(at, int):
            refuse_elsewhere(self._log, at, start, end)
            return at
        moments = self._read("end_lsn", "time", since=start, until=end).where(F.unix_micros("time") <= microseconds(at))
        row = moments.agg(F.max("end_lsn").alias("last")).first()
        if row is None or row["last"] is None:
            raise before_all(start)
        return int(row["last"])

    def _found(self, start: int, until: int) -> Found:
        """Definitions and places of images as of the LSN. Raises NotRecoverable."""
        rows = self._read(*DEFINITION_COLUMNS, since=start, until=until)
        found = Found(Survey(start, until, complete=self._begins_with_nothing(start)))
        chosen = rows.where(F.col("kind").isin(*DEFINITIONS)).collect()
        for row in sorted(chosen, key=lambda row: int(row["lsn"])):
            if row["kind"] == Kind.IMAGE_START.name:
                found.begun[row["lsn"]] = row["details"]
                continue
            record = record_of(row)
            if isinstance(record, records.ImageEnd):
                found.ended[record.start] = row["end_lsn"]
            found.survey.take(record, row["lsn"], 0)
        if not found.survey.complete:
            raise NotRecoverable(
                f"the log that is there begins at {lsns.text(start)} and has no image of the definitions from before "
                f"what is wanted; bring the older extents back, or take a later moment"
            )
        return found

    def _begins_with_nothing(self, start: int) -> bool:
        """Is the first record there, and that of the first start of its queue manager, when there was nothing?"""
        if start != self._log.extent_bytes:
            return False
        first = next(records_of(self._log, start, 2 * start), None)
        return first is not None and (first.lsn, first.epoch) == (start, 1)

    # ---- what the queues held

    def _content(self, known: Sequence[Known], until: int) -> "DataFrame":
        """A row for each message, with the columns CONTENT."""
        since = min((one.place.media for one in known), default=until)
        queues, units, counted = tables_of(self._spark, known)

        def counting(rows: "DataFrame") -> "DataFrame":
            """What counts for its queue: from its checkpoint on, or of a unit of work that was in flight then."""
            placed = rows.join(F.broadcast(queues.drop("object")), "object_number")
            placed = placed.join(F.broadcast(units), ["object_number", "uow"], "left")
            return placed.where((F.col("lsn") >= F.col("checkpoint")) | (F.col("lsn") >= F.col("first")))

        units_of = self._read("lsn", "end_lsn", "kind", "uow", "xid", "bases", since=since, until=until)
        outcomes = self._kept(outcomes_of(units_of.where(F.col("kind").isin(*ENDS))))
        puts = counting(
            self._read(*MESSAGE_KEY_COLUMNS, "ordinal", *MESSAGE, since=since, until=until).where(
                F.col("kind") == "PUT"
            )
        )
        puts = puts.select("object_number", "sequence", "uow", "ordinal", *MESSAGE)
        if not outcomes.where("prepared and committed").isEmpty():
            self._look_for_lacking(known, puts, outcomes)
        calls = counting(
            self._read(*MESSAGE_KEY_COLUMNS, since=since, until=until).where(F.col("kind").isin("GET", "EXPIRE"))
        )
        begun = [one.image for one in known if one.image is not None]
        held = image_table(self._spark, absolute_path(self._args.path), self._args.qmgr, begun)
        placed = placed_puts(puts, outcomes)
        there = held.unionByName(visible_puts(placed).select(*held.columns))
        content = what_is_left(there, self._kept(gets_of(calls, outcomes)), counted)
        if not outcomes.where(in_doubt()).isEmpty():
            content = content.unionByName(uncommitted_puts(placed).select(*content.columns))
        return content.join(F.broadcast(queues.drop("checkpoint")), "object_number").select(*CONTENT)

    def _look_for_lacking(self, known: Sequence[Known], puts: "DataFrame", outcomes: "DataFrame") -> None:
        names = {one.number: one.name for one in known}
        for number, count in puts_without_place(puts, outcomes).groupBy("object_number").count().collect():
            self._lacking.append(
                f"queue {names[number]!r} lacks {count} messages, which were committed while it was damaged: the log "
                f"does not say where they lie, and so not which of them are still there; recover-to finds them"
            )
            say(f"rebuild: {self._lacking[-1]}")

    def _kept(self, table: "DataFrame") -> "DataFrame":
        """The table, made once: it is asked for several times, and is small beside the messages."""
        kept = table.persist(StorageLevel.MEMORY_AND_DISK)
        self._persisted.append(kept)
        return kept

    # ---- the other way

    def _compared(self, report: Report, counted: Contents, until: int) -> bool:
        """Build the queue manager, and say where its queues are not as the Parquet files have them."""
        say(f"rebuild: queue manager {self._args.qmgr} as of {lsns.text(until)} in {self._args.into} …")
        recover_to(self._args.qmgr, self._args.into, lsn=until, data_path=self._args.path)
        other = built.contents(self._args.qmgr, absolute_path(self._args.into))
        unlike = [key for key in sorted({*counted, *other}) if counted.get(key) != other.get(key)]
        report.heading("The queue manager that was built")
        report.line(f"{self._args.qmgr}, below the data path {absolute_path(self._args.into)}.")
        if not unlike:
            report.line("Its queues are as the Parquet files have them: the same counts and checksums.")
            return False
        report.line("Its queues are not as the Parquet files have them:")
        nothing = Content()
        pairs = [(key, counted.get(key, nothing), other.get(key, nothing)) for key in unlike]
        lines = [(*key, a.messages, b.messages, a.checksum, b.checksum) for key, a, b in pairs]
        headers = ("queue", "state", "Parquet", "built", "checksum", "checksum built")
        report.table(headers, lines)
        say(f"rebuild: {len(unlike)} queues differ from those that recover-to has built; see the report")
        return True


def may_build(into: str | None, missing: Sequence[str], report: Report) -> bool:
    """Is a queue manager to be built, and can it be? Reports if it can't."""
    if missing and into is not None:
        report.heading("The queue manager that was to be built")
        report.line("It was not built: that takes all of its queues.")
        say("rebuild: no queue manager was built, since that takes all of its queues")
    return into is not None and not missing


def known_queues(found: Found, log: LogFiles) -> tuple[list[Known], list[str]]:
    """The queues that can be built, and a sentence for each that can't: what it needs."""
    known, missing = [], []
    for definition, place in found.survey.queues.values():
        name = definition.name
        if place is None:
            missing.append(f"queue {name!r} has no media image in the log: record one (rcdmqimg), take a later moment")
        elif place.media < found.survey.start:
            needed = file_name(linear_number(place.media // log.extent_bytes))
            missing.append(
                f"queue {name!r} needs the log from {lsns.text(place.media)} on: bring {needed} and later ones back"
            )
        elif place.start in found.begun:
            known.append(_from_image(definition.id, name, place, found))
        else:
            known.append(Known(definition.id, name, place))
    return known, missing


def _from_image(number: int, name: str, place: ImagePlace, found: Found) -> Known:
    notes = json.loads(found.begun[place.start])
    return Known(
        number,
        name,
        place,
        Extent(place.start, found.ended[place.start]),
        {int(unit): first for unit, first in notes["units"].items()},
        dict(backouts.read(notes["backouts"]).items()),
    )


def record_of(row: "Row") -> records.Record:
    """The record of definitions or images that a row was made of."""
    details, number = row["details"], row["object_number"]
    match row["kind"]:
        case "DEFINE":
            return records.Define(details.encode())
        case "DELETE":
            return records.Delete(number)
        case "IMAGE_END":
            said: Mapping[str, int] = json.loads(details)
            return records.ImageEnd(number, said["image_start"], said["checkpoint"], said["media"])
        case "QMGR":
            return records.AlterQmgr(details.encode())
        case "DEFINE_ALIAS":
            return records.DefineAlias(details.encode())
        case "DELETE_ALIAS":
            return records.DeleteAlias(row["object"])
        case _:
            piece = json.loads(details)
            flags = (records.CATALOG_FIRST if piece["first"] else 0) | (records.CATALOG_LAST if piece["last"] else 0)
            return records.Catalog(flags, details.encode())


def tables_of(spark: "SparkSession", known: Sequence[Known]) -> tuple["DataFrame", "DataFrame", "DataFrame"]:
    """The queues with their checkpoints, the units of work in flight at these, and the backouts counted by then."""
    queues = table(
        spark,
        {"object_number": pa.int32(), "object": pa.string(), "checkpoint": pa.int64()},
        [(one.number, one.name, one.place.checkpoint) for one in known],
    )
    units = table(
        spark,
        {"object_number": pa.int32(), "uow": pa.int64(), "first": pa.int64()},
        [(one.number, unit, first) for one in known for unit, first in one.units.items()],
    )
    counted = table(
        spark,
        {"object_number": pa.int32(), "sequence": pa.int64(), "backouts": pa.int64()},
        [(one.number, sequence, count) for one in known for sequence, count in one.backouts.items()],
    )
    return queues, units, counted


def table(spark: "SparkSession", columns: Mapping[str, pa.DataType], rows: Sequence[tuple[object, ...]]) -> "DataFrame":
    """A small table that Spark has by itself: no task of Python makes it."""
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(columns.values())]
    ddl = ", ".join(f"{name} {SQL[kind]}" for name, kind in columns.items())  # Spark Connect takes no rows without it
    return spark.createDataFrame(pa.table(arrays, names=list(columns)), ddl)


def ddl_of(columns: Sequence[str]) -> str:
    """These columns as DDL, for Spark."""
    known = {field.name: SQL[field.type] for field in arrow_of([name for name in columns if name != "state"])}
    return ", ".join(f"{name} {known.get(name, 'STRING')}" for name in columns)


def contents_of(rows: "DataFrame") -> Contents:
    """Messages, bytes and checksums by queue and state."""
    hashed = rows.select("object", "state", "body_length", built.fingerprint().alias("crc"))
    found = hashed.groupBy("object", "state").agg(F.count("*"), F.sum("body_length"), F.sum("crc"))
    return {(name, state): Content(*numbers) for name, state, *numbers in map(tuple, found.collect())}


def tell(report: Report, names: Sequence[str], counted: Contents, missing: Sequence[str]) -> None:
    nothing = Content()
    rows = []
    for name in sorted(names):
        states = [counted.get((name, state), nothing) for state in (READY, LOCKED, UNCOMMITTED)]
        rows.append((name, *(one.messages for one in states), sum(one.bytes for one in states)))
    report.line("Messages that can be got, that a unit of work in doubt has got, and that one in doubt has put:")
    report.table(("queue", "ready", "locked", "not committed", "bytes"), rows)
    if missing:
        report.heading("Not built")
        for sentence in missing:
            report.line(sentence)
