"""Calls with the outcome of their unit of work, and messages with their put and all that tried to take them, each once.

Tables of the row model in, tables out; nothing is collected. Where a message lies is its queue's number and its
sequence. One queue may have all messages of a log, so whatever has to be put in order is cut into buckets of sequences,
and what crosses from one bucket to the next is one row of a small table.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.jobs import written
from pipeline.schema import ARROW, SQL

FOREVER = (1 << 63) - 1  # an LSN behind all others
BUCKET = 1 << 16  # sequences of a queue that are put in order together
NEEDED = (
    "lsn",
    "time",
    "kind",
    "position",
    "uow",
    "object",
    "object_number",
    "sequence",
    "ordinal",
    "repeated",
    "bases",
)

# No query here has a `with`: Spark 4.1 confuses those of a table that is in one query more than once, as these are.

# Calls that a ROLL_FORWARD says again, for units of work whose own records may lie before the log.
UNTOLD = """
select again.* except (call, nth)
from (
    select *, row_number() over (partition by uow, kind, object_number, call order by lsn, position) as nth
    from (select *, {call} as call from {units} where repeated)
) as again left anti join (select *, {call} as call from {units} where not repeated) as told
    on told.uow = again.uow and told.kind = again.kind and told.object_number = again.object_number
        and told.call = again.call
where nth = 1
"""

OPERATIONS = """
select * except (sequence, bases), sequence, 'COMMIT' as outcome, lsn as outcome_lsn, time as outcome_time
from {log} where uow is null and kind in ('PUT', 'GET', 'EXPIRE')
union all
select units.* except (sequence, bases),
    if(kind = 'PUT', coalesce(sequence, ended.bases[object_number] + ordinal), sequence) as sequence,
    outcome, outcome_lsn, outcome_time
from {units} as units left join (
    select uow, min_by(kind, lsn) as outcome, min(lsn) as outcome_lsn, min_by(time, lsn) as outcome_time,
        min_by(bases, lsn) as bases
    from {log} where kind in ('COMMIT', 'BACKOUT') group by uow
) as ended on units.uow = ended.uow
"""

MESSAGES = """
select object_number, bucket, sequence,
    max(object) as object,
    count_if(put) as puts,
    min(if(put, outcome_lsn, null)) as visible,
    max(if(put, outcome_lsn, null)) as visible_last,
    min(if(put, outcome_time, null)) as visible_time,
    min(if(put, lsn, null)) as put_lsn,
    min(if(put, uow, null)) as put_uow,
    array_sort(collect_list(if(put, null, struct(
        lsn, position, if(outcome = 'BACKOUT', outcome_lsn, {forever}) as until, final, kind, uow, time,
        outcome_lsn as ended, outcome_time as ended_time
    )))) as takes
    {described}
from (
    select /*+ repartition(object_number, bucket) */ *, sequence div {bucket} as bucket, kind = 'PUT' as put,
        kind <> 'PUT' and coalesce(outcome = 'COMMIT', false) as final
    from {calls}
    where kind in ('GET', 'EXPIRE') or (kind = 'PUT' and outcome = 'COMMIT' and sequence is not null)
) group by object_number, bucket, sequence
"""


def ddl(columns: Iterable[str]) -> str:
    """These columns of the row model as a schema for Spark, so that no other is read."""
    wanted = set(columns)
    return ", ".join(f"{field.name} {SQL[field.type]}" for field in ARROW if field.name in wanted)


def lsn_text(column: str) -> str:
    """SQL for an LSN as operators write it, such as `<0:0:4615:42406>`; null for null."""
    groups = ", ".join(f"shiftright({column}, {bits}) & 65535" for bits in (48, 32, 16, 0))
    return f"if({column} is null, null, format_string('<%d:%d:%d:%d>', {groups}))"


def lsn_of(text: str) -> str:
    """SQL for the number of an LSN in that form; null for null."""
    group = f"split(translate({text}, '<>', ''), ':')"
    parts = [f"shiftleft(cast({group}[{place}] as bigint), {bits})" for place, bits in enumerate((48, 32, 16, 0))]
    return f"({' + '.join(parts)})"


QUEUE = "coalesce(object, concat('#', object_number))"  # SQL: the queue's number where the log does not tell its name
CALL = "if(kind = 'PUT', ordinal, sequence)"  # SQL: which call of its unit of work and queue, of one kind
WORDS = {"forever": f"{FOREVER}L", "queue": QUEUE, "call": CALL}


def query(text: str, words: dict[str, str] | None = None, **tables: DataFrame) -> DataFrame:
    """What the SQL gives; `{name}` in it is one of WORDS or of `words` as it stands, or the table of that name."""
    for name, word in (WORDS | (words or {})).items():
        text = text.replace(f"{{{name}}}", word)
    return next(iter(tables.values())).sparkSession.sql(text, None, **tables)


def kept(table: DataFrame, path: str) -> DataFrame:
    """The table, written to Parquet and read from there: what is used many times is made once.

    Spark's own cache will not do, since SQL that names a table of a Python source does not find it there. Raises
    Failure where not all that was written can be read here.
    """
    written.parquet(table, path)
    return table.sparkSession.read.parquet(path)


def operations(log: DataFrame) -> DataFrame:
    """Every PUT, GET and EXPIRE once, with `outcome` COMMIT, BACKOUT or null (none yet), its LSN and its time.

    What is done outside a unit of work is committed by its own record. A put of a unit has its `sequence` where it is
    committed. A unit ends with its first outcome, should the log have more than one. PREPARE and ROLL_FORWARD rows come
    along. Of a call that the log has in a ROLL_FORWARD alone, `repeated` is true, and its LSN is that record's.
    """
    units = log.filter("uow is not null and kind not in ('COMMIT', 'BACKOUT')")
    if not units.filter("repeated").isEmpty():
        units = units.filter("not repeated").unionByName(query(UNTOLD, units=units))
    return query(OPERATIONS, log=log, units=units)


def messages(calls: DataFrame, described: Iterable[str] = ("priority", "expiry"), bucket: int = BUCKET) -> DataFrame:
    """A row for each place on a queue of a committed put or of any get; `calls` are `operations`.

    `puts` is how many committed puts there are of it: one, where all is well, or none that the log tells. `visible` and
    `visible_last` are the LSNs at which the first and the last of them made it visible. `takes`, in their order, are
    all that got it or removed it, `ended` by the outcome at that LSN: `until` is the LSN up to which nobody else could;
    FOREVER once it is gone, and while its unit of work has no outcome. `final`: it is gone for good. `described` are
    columns of the put.
    """
    columns = "".join(f", max(if(put, {name}, null)) as {name}" for name in described)
    return query(MESSAGES, {"described": columns, "bucket": str(bucket)}, calls=calls)


def several(counted: DataFrame, rows: list[Row]) -> set[str]:
    """The names of these rows that are of more than one queue, whether the others are among the rows or not."""
    of_rows = counted.filter(F.col("queue").isin([row["queue"] for row in rows]))
    return {row["queue"] for row in of_rows.groupBy("queue").count().filter("count > 1").collect()}


def names_of(rows: list[Row], often: set[str]) -> dict[int, str]:
    """What reports and charts call each queue, by its number, which is told of those whose names are there `often`."""
    return {
        row["object_number"]: f"{row['queue']} ({row['object_number']})" if row["queue"] in often else row["queue"]
        for row in rows
    }
