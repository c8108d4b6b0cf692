"""Units of work: how long each lasted, what it logged, how long it held the head of the log, and what log that takes.

The *span* of a unit of work is the log from its first record to behind its outcome: all of that has to be kept while it
lasts. A unit that was rolled forward holds the log from that record on only, so the span is then the longest piece. It
*holds the head* at a checkpoint whose head is one of its records.

What has to be kept *active* at the end of a checkpoint reaches back to the head of the one before last, since a restart
may need that one: where a unit of work is in flight its first record, else where the checkpoint began.
"""

import argparse
import datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Row

from logger import lsn as lsns
from pipeline.jobs import common, lives, output, sizing
from pipeline.jobs.common import Failure
from pipeline.jobs.flow import duration
from pipeline.jobs.sizing import Seen
from pipeline.report import TEXT, Report, named, new_chart, over_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "uows"
HELP = "units of work: duration, bytes and log span, which held the log; what LogPrimaryFiles and others should be"
COLUMNS = (*lives.NEEDED, "end_lsn", "xid", "details")
MAX_NAMED_QUEUES = 10  # in the row of a unit of work
MAX_REPORTED_UNITS = 20
MAX_EXAMINED_UNITS = 5  # of which it says what else was logged meanwhile
MAX_CURVE_POINTS = 1000
TABLES = ("units", "checkpoints", "holders")
WRITES = (*TABLES, TEXT, "needed.png")

# Each ROLL_FORWARD says all that its unit has done: the log may begin behind the records that it stands for.
UNITS = """
with edge as (
    select max(end_lsn) as log_end, max(time) as last from {log}
), units as (
    select uow, min(lsn) as first_lsn, min_by(time, lsn) as first_time, max(xid) as xid,
        min(if(kind in ('COMMIT', 'BACKOUT'), struct(lsn, kind, end_lsn, time), null)) as ended,
        count_if(position = 0) as records, sum(if(position = 0, end_lsn - lsn, 0)) as bytes,
        count_if(kind = 'PUT' and not repeated) as first_puts, count_if(kind = 'PUT' and repeated) as said_puts,
        count_if(kind = 'GET' and not repeated) as first_gets, count_if(kind = 'GET' and repeated) as said_gets,
        slice(sort_array(collect_set(if(object_number is null, null, {queue}))), 1, {named}) as queues,
        sort_array(collect_set(if(kind = 'ROLL_FORWARD', lsn, null))) as rolled_forward
    from {log} where uow is not null group by uow
), spanned as (
    select *, array_distinct(concat(array(first_lsn), rolled_forward)) as held_from,
        coalesce(ended.end_lsn, log_end) as until, unix_micros(coalesce(ended.time, last)) as until_us
    from units cross join edge
)
select uow, xid, coalesce(ended.kind, if(xid is null, 'IN FLIGHT', 'IN DOUBT')) as outcome, first_lsn, first_time,
    ended.lsn as outcome_lsn, ended.time as outcome_time,
    greatest(until_us - unix_micros(first_time), 0) as duration_us,
    records, bytes, greatest(first_puts, said_puts div nullif(size(rolled_forward), 0)) as puts,
    greatest(first_gets, said_gets div nullif(size(rolled_forward), 0)) as gets, queues, held_from,
    until - first_lsn as whole_span,
    array_max(transform(
        held_from, (begin, at) -> coalesce(get(held_from, at + 1), until) - begin
    )) as span
from spanned
"""

CHECKPOINTS = """
with begun as (
    select lsn, time, coalesce({head}, lsn) as head, cast(get_json_object(details, '$.units') as int) as units
    from {log} where kind = 'START_CHECKPOINT'
), done as (
    select {done} as lsn, end_lsn, time as end_time from {log} where kind = 'END_CHECKPOINT'
), completed as (
    select begun.*, end_lsn, end_time from begun join done using (lsn)
), first as (
    select min(lsn) as first from {log}
)
select lsn, time, end_lsn, end_time, head, units, lsn - lag(lsn) over (order by lsn) as bytes_since_last,
    unix_micros(time) - lag(unix_micros(time)) over (order by lsn) as us_since_last,
    end_lsn - greatest(lag(head, 2, first) over (order by lsn), first) as needed
from completed cross join first
"""

HOLDERS = """
with heads as (
    select uow, explode(held_from) as head from {units}
)
select uow, count(*) as checkpoints, min(checkpoints.lsn) as first_checkpoint, max(checkpoints.lsn) as last_checkpoint
from heads join {checkpoints} as checkpoints using (head) group by uow
"""

RATES = """
with slots as (
    select unix_micros(time) div 100000 as slot, sum(end_lsn - lsn) as bytes, max(end_lsn - lsn) as largest
    from {log} where position = 0 group by 1
), seconds as (
    select slot div 10 as second, sum(bytes) as bytes, max(bytes) as in_slot, max(largest) as largest
    from slots group by 1
), tens as (
    select second div 10 as ten, sum(bytes) as bytes, max(bytes) as in_second, max(in_slot) as in_slot,
        max(largest) as largest
    from seconds group by 1
)
select sum(bytes) as bytes, max(bytes) as in_ten, max(in_second) as in_second, max(in_slot) as in_slot,
    max(largest) as largest
from tens
"""

# The calls that a ROLL_FORWARD says again are its own rows: else its bytes would be those of new puts.
BETWEEN = """
select unit, if(log.uow = unit, 'its own', if(repeated, 'ROLL_FORWARD', log.kind)) as what, count(*) as rows,
    sum(if(position = 0, log.end_lsn - log.lsn, 0)) as bytes
from {log} as log join {chosen} as chosen on log.lsn >= chosen.first_lsn and log.lsn < chosen.until
group by 1, 2 order by unit, bytes desc
"""


CURVE = """
with numbered as (
    select *, ntile({points}) over (order by lsn) as point from {marks}
)
select max(end_time) as at, max(needed) as needed from numbered group by point order by at
"""


def units(log: DataFrame) -> DataFrame:
    """A row for each unit of work that the log knows."""
    return lives.query(UNITS, {"named": str(MAX_NAMED_QUEUES)}, log=log)


def checkpoints(log: DataFrame) -> DataFrame:
    """A row for each complete checkpoint, with its head, and the bytes of log that had to be there at its end."""
    head, done = (lives.lsn_of(f"get_json_object(details, '$.{name}')") for name in ("head", "lsn"))
    return lives.query(CHECKPOINTS, {"head": head, "done": done}, log=log)


def holders(by_unit: DataFrame, marks: DataFrame) -> DataFrame:
    """The units of work that held the head, and at how many checkpoints, from which to which."""
    return lives.query(HOLDERS, units=by_unit, checkpoints=marks)


def seen(log: DataFrame, by_unit: DataFrame, marks: DataFrame) -> Seen:
    """The rates and the needs of the log. Raises Failure for an empty one."""
    rates = lives.query(RATES, log=log).first()
    edges = log.selectExpr(
        "min(lsn) as first", "max(end_lsn) as end", "min(unix_micros(time)) as begun", "max(unix_micros(time)) as over"
    ).first()
    if rates is None or edges is None or edges["first"] is None:
        raise Failure(common.NO_RECORDS)
    longest = by_unit.selectExpr("max(duration_us)").first()
    most = marks.selectExpr("max(needed)", "max_by(head, lsn)").first()
    needed, last_head = (most[0], most[1]) if most is not None else (None, None)
    since_last = edges["end"] - max(edges["first"], last_head or edges["first"])
    return Seen(
        seconds=(edges["over"] - edges["begun"]) / 1e6,
        bytes=rates["bytes"],
        peak_bytes=rates["in_second"],
        peak_extent_bytes=rates["in_ten"],
        peak_force_bytes=rates["in_slot"],
        largest_record=rates["largest"],
        needed=max(needed or 0, since_last),
        longest_unit=((longest[0] if longest is not None else None) or 0) / 1e6,
    )


# ---- the command


def arguments(parser: argparse.ArgumentParser) -> None:
    common.arguments(parser)


def check(args: argparse.Namespace) -> None:
    common.check_some(args)
    output.check(args, NAME, WRITES)


def run(args: argparse.Namespace, spark: "SparkSession") -> int:
    """Write `units`, `checkpoints`, `holders` and the report."""
    report = Report("Units of work and the log")
    with output.workshop(common.out_folder(args), NAME, WRITES) as shop:
        with common.step(spark, "reading the log"):
            log = lives.kept(common.log_table(spark, args, lives.ddl(COLUMNS)), f"{shop.work}/log")
        with common.step(spark, "following units of work"):
            by_unit = lives.kept(units(log), f"{shop.work}/units")
            marks = lives.kept(checkpoints(log), f"{shop.work}/checkpoints")
            held = lives.kept(holders(by_unit, marks), f"{shop.work}/holders")
        with common.step(spark, "rates"):
            found = seen(log, by_unit, marks)
        describe(report, found)
        recommend(report, found)
        list_between(report, log, list_longest(report, by_unit))
        list_holders(report, by_unit, held)
        list_unfinished(report, by_unit)
        draw(report, marks)
        shop.publish(report, *TABLES)
    return common.GOOD


def describe(report: Report, found: Seen) -> None:
    report.line(f"{found.bytes:,} bytes of log in {found.seconds:,.1f} s: {found.rate:,.0f} bytes a second.")
    report.line(
        f"In the busiest second {found.peak_bytes:,} bytes, in the busiest {sizing.SLOW_FORCE} s "
        f"{found.peak_force_bytes:,}."
    )
    report.line(f"The most that had to be kept active at once: {found.needed:,} bytes.")


def recommend(report: Report, found: Seen) -> None:
    """What qm.ini should say, and why."""
    advice = sizing.advise(found)
    report.heading("Recommendation for the Log stanza")
    report.line(f"LogPrimaryFiles={advice.primary_files}")
    report.line(f"LogFilePages={advice.file_pages}    (only when a queue manager is created)")
    report.line(f"LogBufferPages={advice.buffer_pages}")
    report.line()
    for step in advice.steps:
        report.line(f"- {step}")


UNIT_HEADERS = [
    "unit of work",
    "outcome",
    "first record",
    "began",
    "lasted",
    "records",
    "puts",
    "gets",
    "bytes",
    "span",
]


def _unit_row(row: Row) -> list[object]:
    began = f"{row['first_time'].astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S}"
    facts = [row[name] for name in ("records", "puts", "gets", "bytes", "span")]
    return [named(row["uow"]), row["outcome"], lsns.text(row["first_lsn"]), began, duration(row["duration_us"]), *facts]


def list_longest(report: Report, by_unit: DataFrame) -> list[Row]:
    report.heading("Units of work with the longest span of log")
    report.line(
        "span: the log from the first record to behind the outcome; of one that was rolled forward the longest piece."
    )
    report.line("by others: what others logged from the first record to behind the outcome. Times: UTC.")
    report.line()
    rows = by_unit.orderBy("span", "uow", ascending=[False, True]).limit(MAX_REPORTED_UNITS).collect()
    headers = [*UNIT_HEADERS, "by others", "queues"]
    report.table(headers, [[*_unit_row(r), r["whole_span"] - r["bytes"], " ".join(r["queues"])] for r in rows])
    return rows[:MAX_EXAMINED_UNITS]


def list_between(report: Report, log: DataFrame, rows: list[Row]) -> None:
    """What was logged between the beginning and the end of these units of work."""
    report.heading("What was logged during the longest of them")
    if not rows:
        report.line("There is no unit of work.")
        return
    ranges = [(row["uow"], row["first_lsn"], row["first_lsn"] + row["whole_span"]) for row in rows]
    chosen = log.sparkSession.createDataFrame(ranges, "unit BIGINT, first_lsn BIGINT, until BIGINT")
    between = lives.query(BETWEEN, log=log, chosen=chosen).collect()
    report.table(["unit of work", "records", "rows", "bytes"], [[named(row[0]), *row[1:]] for row in between])


def list_holders(report: Report, by_unit: DataFrame, held: DataFrame) -> None:
    report.heading("Units of work that held the head of the log")
    report.line("Their first record was what a checkpoint had to keep the log from.")
    joined = (
        by_unit.join(held, "uow").orderBy("checkpoints", "span", ascending=False).limit(MAX_REPORTED_UNITS).collect()
    )
    headers = [*UNIT_HEADERS, "checkpoints", "from", "to"]
    places = [(lsns.text(row["first_checkpoint"]), lsns.text(row["last_checkpoint"])) for row in joined]
    report.table_or_none(
        headers, [[*_unit_row(r), r["checkpoints"], *at] for r, at in zip(joined, places, strict=True)]
    )


def list_unfinished(report: Report, by_unit: DataFrame) -> None:
    """Units of work without an outcome: in flight or in doubt where the log ends."""
    report.heading("Without an outcome at the end of this log")
    rows = by_unit.filter("outcome_lsn is null").orderBy("first_lsn").limit(MAX_REPORTED_UNITS).collect()
    report.table_or_none([*UNIT_HEADERS, "xid"], [[*_unit_row(row), row["xid"]] for row in rows])


def draw(report: Report, marks: DataFrame) -> None:
    """What had to be kept, over time."""
    points = lives.query(CURVE, {"points": str(MAX_CURVE_POINTS)}, marks=marks).collect()
    if not points:
        return
    figure, axes = new_chart("log that had to be kept active at the end of each checkpoint, MB")
    axes.plot(
        [point["at"].astimezone(datetime.UTC) for point in points],
        [point["needed"] / 1e6 for point in points],
        drawstyle="steps-pre",
        marker=".",
    )
    over_time(axes)
    axes.set_ylim(bottom=0)
    report.heading("Chart")
    report.chart("needed", figure)
