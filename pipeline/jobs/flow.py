"""Flow: what became of each message, how long messages lay on queues, how deep those were, what went through them.

A message's life begins with its put and is seen from the record that commits it. It ends with the commit of the get
that took it, or when it expires; gets that were backed out come between. Its *time on queue* is from the one to the
other. Who took it says where it went: a unit of work that gets a message and puts one with the same message id has
*moved* it, as is done with messages that were backed out too often and with dead letters; one that puts a message with
its message id as correlation id has *answered* it; one that puts a message with its correlation id has *passed it on*.

What lay on a queue that was deleted went with it.

Depths count persistent messages only, since the log has no others. Where it does not reach back to its beginning they
begin with the messages that somebody tries to get in it and were put before, so they are the least that can have been
there, and nobody knows for how long.
"""

import argparse
import datetime
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row

from pipeline.jobs import common, lives, output
from pipeline.jobs.common import MAX_NUMBER_CHARS, Failure
from pipeline.log_options import microseconds
from pipeline.report import TEXT, Report, new_chart, over_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

NAME = "flow"
HELP = "the life of each message: time on queue, depth over time, throughput, by queue and window"
OF_PUT = ("message_id", "correlation_id", "priority", "put_time", "expiry", "body_length")
COLUMNS = (*lives.NEEDED, *OF_PUT)
PERCENTILE_ACCURACY = "10000"  # they are off by a ten-thousandth of the ranks
UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
WIDTHS = [UNITS["s"] // 10] + [UNITS["s"] * seconds for seconds in (1, 10, 60, 300, 900, 3600, 21600, 86400)]
MAX_WINDOWS = 300  # that the span of a log is cut into unless it was said how long one is
MAX_CURVE_POINTS = 500
MAX_CURVES = 6  # queues in a chart
MAX_REPORTED_QUEUES = 50
MAX_WINDOW_DAYS = 366
TABLES = ("messages", "windows", "queues")
WRITES = (*TABLES, TEXT, "depth.png", "throughput.png", "time_on_queue.png")

# Where messages went that a unit of work got: the puts of that unit which have their ids, of several the best by rank.
MOVES = """
with puts as (
    select uow, {queue} as queue, ordinal, inline(array(
        struct('message' as what, message_id as id),
        struct('correlation' as what, correlation_id as id)
    ))
    from {calls} where kind = 'PUT' and uow is not null and outcome = 'COMMIT'
), targets as (
    select uow, what, id, min_by(queue, ordinal) as queue from puts where id <> unhex('{no_id}') group by uow, what, id
), gets as (
    select object_number, sequence, gone.uow, inline(array(
        struct(1 as rank, 'moved' as how, 'message' as what, message_id as id),
        struct(2 as rank, 'answered' as how, 'correlation' as what, message_id as id),
        struct(3 as rank, 'passed on' as how, 'correlation' as what, correlation_id as id)
    ))
    from (
        select *, get(filter(takes, take -> take.final and take.kind = 'GET'), 0) as gone from {told}
        where message_id is not null
    )
    where gone.uow is not null
)
select object_number, sequence, min_by(targets.queue, rank) as moved_to, min_by(how, rank) as moved_how
from gets join targets on gets.uow = targets.uow and gets.what = targets.what and gets.id = targets.id
group by object_number, sequence
"""

LIVES = """
with deleted as (
    select object_number, min(lsn) as deleted_lsn, min_by(time, lsn) as deleted_time
    from {log} where kind = 'DELETE' group by object_number
), ended as (
    select *, get(filter(takes, take -> take.final), 0) as gone from {told}
), looked_at as (
    select /*+ broadcast(deleted) */ *,
        size(filter(takes, take -> take.kind = 'GET')) as gets,
        size(filter(takes, take -> take.until < {forever})) as backouts,
        exists(takes, take -> not take.final and take.until = {forever}) as held,
        coalesce(gone.ended_time, deleted_time) as gone_time,
        unix_micros(coalesce(gone.ended_time, deleted_time)) - unix_micros(visible_time) as waited_us
    from ended left join deleted using (object_number)
)
select {queue} as queue, object_number, sequence, message_id, correlation_id, priority, body_length, put_time, expiry,
    put_lsn, put_uow, visible as visible_lsn, visible_time, gets, backouts,
    coalesce(gone.lsn, deleted_lsn) as gone_lsn, gone.uow as gone_uow, gone.time as got_time, gone_time,
    if(waited_us < 0, 0, waited_us) as time_on_queue_us,
    case
        when gone.kind = 'EXPIRE' then 'expired' when gone is not null then 'got'
        when deleted_lsn is not null then 'deleted' when held then 'held' else 'on queue'
    end as fate,
    moved_to, moved_how
from looked_at left join {moves} using (object_number, sequence)
union all
select {queue}, object_number, null, message_id, correlation_id, priority, body_length, put_time, expiry,
    lsn, uow, null, null, 0, 0, null, null, null, null, null,
    case outcome when 'COMMIT' then 'place unknown' when 'BACKOUT' then 'put backed out' else 'put in flight' end,
    null, null
from {calls} where kind = 'PUT' and (coalesce(outcome, '') <> 'COMMIT' or sequence is null)
"""

# Nothing goes before it came, also where the clock was set back meanwhile: else depths would fall below zero.
WINDOWS = """
with events as (
    select queue, object_number, time_on_queue_us, body_length, fate, inline(array(
        struct(visible_time as at, true as came),
        struct(if(gone_time < visible_time, visible_time, gone_time) as at, false as came)
    ))
    from {lives}
), placed as (
    select *, timestamp_micros(unix_micros(at) div {width} * {width}) as window from events where at is not null
), stepped as (
    select *, sum(if(came, 1, -1)) over (
            partition by object_number, window order by at range between unbounded preceding and current row
        ) as above
    from placed
), windows as (
    select queue, object_number, window,
        count_if(came) as put, sum(if(came, body_length, 0)) as bytes_put,
        count_if(not came and fate = 'got') as got, count_if(not came and fate = 'expired') as expired,
        count_if(not came and fate = 'deleted') as deleted, greatest(max(above), 0) as above,
        percentile_approx(if(not came and fate = 'got', time_on_queue_us, null), array(0.5, 0.95, 0.99), {near})
            as waited
    from stepped group by queue, object_number, window
), earlier as (
    select object_number, count_if(visible_lsn is null and sequence is not null) as there
    from {lives} group by object_number
), deep as (
    select *, there + sum(put - got - expired - deleted) over (
            partition by object_number order by window rows between unbounded preceding and current row
        ) as depth
    from windows join earlier using (object_number)
)
select queue, object_number, window, put, bytes_put, got, expired, deleted,
    waited[0] as p50_us, waited[1] as p95_us, waited[2] as p99_us, depth,
    depth - (put - got - expired - deleted) + above as deepest
from deep
"""

QUEUES = """
with counted as (
    select queue, object_number,
        count_if(visible_lsn is not null) as put, count_if(fate = 'got') as got, count_if(fate = 'expired') as expired,
        count_if(fate = 'deleted') as deleted, count_if(fate in ('on queue', 'held')) as left,
        sum(backouts) as backouts, count_if(moved_how = 'moved') as moved,
        count_if(moved_how = 'answered') as answered, count_if(moved_how = 'passed on') as passed_on,
        count_if(fate = 'put backed out') as put_backed_out,
        percentile_approx(if(fate = 'got', time_on_queue_us, null), array(0.5, 0.95, 0.99), {near}) as waited,
        max(if(fate = 'got', time_on_queue_us, null)) as longest_us,
        count_if(visible_lsn is null and sequence is not null) as there
    from {lives} group by queue, object_number
), deepest as (
    select object_number, max(deepest) as deepest from {windows} group by object_number
)
select queue, object_number, put, got, expired, deleted, left, backouts, moved, answered, passed_on,
    put_backed_out, waited[0] as p50_us, waited[1] as p95_us, waited[2] as p99_us, longest_us,
    coalesce(deepest, there) as deepest
from counted left join deepest using (object_number)
"""

CURVES_OF = """
select object_number, timestamp_micros(unix_micros(window) div {width} * {width}) as at, max_by(depth, window) as depth,
    sum(put) as put, sum(got) as got, max(p50_us) as p50_us, max(p95_us) as p95_us, max(p99_us) as p99_us
from {windows} where object_number in ({chosen}) group by object_number, at order by object_number, at
"""


def moves(calls: DataFrame, told: DataFrame) -> DataFrame:
    """`object_number`, `sequence`, `moved_to` and `moved_how` of the messages that units of work got and put again."""
    return lives.query(MOVES, {"no_id": "00" * 24}, calls=calls, told=told)


def messages(log: DataFrame, calls: DataFrame) -> DataFrame:
    """A row for each message; `calls` are `lives.operations`.

    Puts that are not committed have no sequence, nor have those that were committed while their queue was damaged: the
    log does not say where these lie, so what became of them is told as that of messages which were put before the log.
    """
    told = lives.messages(calls, OF_PUT)
    return lives.query(LIVES, log=log, calls=calls, told=told, moves=moves(calls, told))


def windows(told: DataFrame, width: int) -> DataFrame:
    """What went through each queue in each window of `width` microseconds, how deep it was at its end and at most."""
    return lives.query(WINDOWS, {"width": str(width), "near": PERCENTILE_ACCURACY}, lives=told)


def queues(told: DataFrame, by_window: DataFrame) -> DataFrame:
    """The same of each queue, over all of the time."""
    return lives.query(QUEUES, {"near": PERCENTILE_ACCURACY}, lives=told, windows=by_window)


# ---- windows of time


def width_of(text: str) -> int:
    """Microseconds: `90`, `90s`, `5m`, `1h`, `1d`. Raises Failure."""
    found = re.fullmatch(r"([0-9]{1,18})(s|ms|m|h|d)?", text.strip())
    width = int(found[1]) * UNITS[found[2] or "s"] if found else 0
    if width <= 0:
        raise Failure(f"{text[:MAX_NUMBER_CHARS]!r} is no length of a window; write 30s, 5m, 1h or 1d.")
    if width > MAX_WINDOW_DAYS * UNITS["d"]:
        raise Failure(f"a window of {text} is too long; {MAX_WINDOW_DAYS}d is the most.")
    return width


def width_for(span: int) -> int:
    """The length of a window for a log of `span`, both in microseconds: the shortest of WIDTHS for not too many."""
    return next((width for width in WIDTHS if span <= width * MAX_WINDOWS), WIDTHS[-1])


def duration(us: int | float | None) -> str:
    """Microseconds as people read them."""
    if us is None:
        return "-"
    for unit in ("d", "h", "m", "s", "ms"):
        if us >= UNITS[unit]:
            return f"{us / UNITS[unit]:.3g} {unit}"
    return f"{us:.0f} us"


# ---- the command


def arguments(parser: argparse.ArgumentParser) -> None:
    common.arguments(parser)
    parser.add_argument(
        "--window",
        metavar="TIME",
        type=width_of,
        help="length of a window, such as 30s, 5m, 1h; chosen by the span of the log",
    )


def check(args: argparse.Namespace) -> None:
    common.check_some(args)
    output.check(args, NAME, WRITES)


def run(args: argparse.Namespace, spark: "SparkSession") -> int:
    """Write `messages`, `windows`, `queues` and the report."""
    with output.workshop(common.out_folder(args), NAME, WRITES) as shop:
        with common.step(spark, "reading the log"):
            log = lives.kept(common.log_table(spark, args, lives.ddl(COLUMNS)), f"{shop.work}/log")
        first, last = spanned(log)
        with common.step(spark, "following messages"):
            told = lives.kept(messages(log, lives.operations(log)), f"{shop.work}/messages")
        width = args.window or width_for(last - first)
        with common.step(spark, "windows"):
            by_window = lives.kept(windows(told, width), f"{shop.work}/windows")
        with common.step(spark, "queues"):
            counted = lives.kept(queues(told, by_window), f"{shop.work}/queues")
        report = Report("Flow of messages")
        describe(report, first, last, width)
        busiest = counted.orderBy("put", "object_number", ascending=[False, True])
        rows = busiest.limit(MAX_REPORTED_QUEUES).collect()
        names = lives.names_of(rows, lives.several(counted, rows))
        list_queues(report, rows, names)
        draw(report, by_window, rows[:MAX_CURVES], names, width * max(1, (last - first) // width // MAX_CURVE_POINTS))
        shop.publish(report, *TABLES)
    return common.GOOD


def spanned(log: DataFrame) -> tuple[int, int]:
    """The first and the last moment of the log, microseconds since 1970-01-01 UTC. Raises Failure for an empty one."""
    row = log.selectExpr("min(unix_micros(time)) as first", "max(unix_micros(time)) as last").first()
    if row is None or row["first"] is None:
        raise Failure(common.NO_RECORDS)
    return row["first"], row["last"]


def describe(report: Report, first: int, last: int, width: int) -> None:
    begin, end = (datetime.datetime.fromtimestamp(us / 1e6, datetime.UTC) for us in (first, last))
    report.line(f"From {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC, in windows of {duration(width)}.")
    report.line("Persistent messages only: the log has no others.")


def list_queues(report: Report, rows: list[Row], names: dict[int, str]) -> None:
    report.heading("Queues")
    counts = [
        "put",
        "got",
        "expired",
        "deleted",
        "left",
        "deepest",
        "backouts",
        "put_backed_out",
        "moved",
        "answered",
        "passed_on",
    ]
    times = ["p50_us", "p95_us", "p99_us", "longest_us"]
    report.table(
        ["queue", *(name.replace("_", " ") for name in counts), *(name.removesuffix("_us") for name in times)],
        [
            [names[row["object_number"]], *(row[name] for name in counts), *(duration(row[name]) for name in times)]
            for row in rows
        ],
    )
    report.line()
    report.line("p50, p95, p99, longest: time on the queue, from the commit of the put to the commit of the get.")
    report.line("deleted: messages that lay on a queue when it was deleted. deepest: the most that were there at once.")
    report.line("backouts: gets that were backed out. put backed out: puts that were and that the log has, since what")
    report.line("a short unit of work puts is logged with its commit only.")
    report.line(
        "Where messages went, by the unit of work that got them and put another one: moved, with the same message"
    )
    report.line("id; answered, with that as its correlation id; passed on, with the same correlation id.")


def draw(report: Report, by_window: DataFrame, rows: list[Row], names: dict[int, str], width: int) -> None:
    """Depth, throughput and time on queue of the busiest queues."""
    chosen = ", ".join(str(row["object_number"]) for row in rows)
    if not chosen:
        return
    text = {"width": str(width), "chosen": chosen}
    curves: dict[str, list[Row]] = {}
    for point in lives.query(CURVES_OF, text, windows=by_window).collect():
        curves.setdefault(names[point["object_number"]], []).append(point)
    starts = [microseconds(point["at"].astimezone(datetime.UTC)) for points in curves.values() for point in points]
    slots = range(min(starts), max(starts) + 1, width)
    drawn = {queue: placed(points, slots) for queue, points in curves.items()}
    report.heading(f"Charts of the {len(curves)} busiest queues" if len(curves) > 1 else "Charts")
    report.chart("depth", _figure("messages on the queue", slots, drawn, ["depth"], 1.0))
    report.chart("throughput", _figure("messages a second", slots, drawn, ["put", "got"], 1e6 / width))
    report.chart("time_on_queue", _figure("time on queue, seconds", slots, drawn, ["p50_us", "p99_us"], 1e-6))


Curve = dict[str, list[float | None]]


def placed(points: list[Row], slots: range) -> Curve:
    """What is drawn of a queue, by slot: in one without a point nothing went through it, and its depth stayed."""
    there = {microseconds(point["at"].astimezone(datetime.UTC)): point for point in points}
    found: Curve = {name: [] for name in ("put", "got", "depth", "p50_us", "p99_us")}
    depth: float | None = None
    for slot in slots:
        point = there.get(slot)
        depth = point["depth"] if point is not None else depth
        found["depth"].append(depth)
        for name, nothing in (("put", 0), ("got", 0), ("p50_us", None), ("p99_us", None)):
            found[name].append(point[name] if point is not None else nothing)
    return found


def _figure(title: str, slots: range, curves: dict[str, Curve], names: list[str], factor: float) -> "Figure":
    """A step for each slot; the first of the names is drawn as a line, the second one dotted."""
    figure, axes = new_chart(title)
    edges: Any = [datetime.datetime.fromtimestamp(us / 1e6, datetime.UTC) for us in (*slots, slots[-1] + slots.step)]
    for number, (queue, curve) in enumerate(curves.items()):
        for name, style in zip(names, ("-", ":"), strict=False):
            values = [float("nan") if value is None else value * factor for value in curve[name]]
            if not any(value > 0 for value in values):
                continue
            label = queue if len(names) == 1 else f"{queue} {name.removesuffix('_us')}"
            axes.plot(edges, [*values, values[-1]], style, color=f"C{number}", label=label, drawstyle="steps-post")
    if "p50_us" in names:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    over_time(axes)
    if axes.lines:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
