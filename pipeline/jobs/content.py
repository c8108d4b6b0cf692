"""What is on queues, from what was put and got: functions of tables, which know neither a log nor its images.

The tables have columns of the log's rows (`pipeline/schema.py`). A message is named by the number of its queue and its
sequence there; a put of a unit of work gets its sequence with the commit, which says that of ordinal 0.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipeline.built import LOCKED, READY, UNCOMMITTED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GONE, BACKED_OUT = "GONE", "BACKED OUT"  # what a get comes to; or LOCKED
PLACE = ["object_number", "sequence"]
SPREAD = 1 << 20


def outcomes_of(rows: "DataFrame") -> "DataFrame":
    """COMMIT, BACKOUT, PREPARE and ROLL_FORWARD rows -> a row for each unit of work that has any."""
    kind = F.col("kind")
    return rows.groupBy("uow").agg(
        F.bool_or(kind == "COMMIT").alias("committed"),
        F.bool_or(kind == "BACKOUT").alias("backed_out"),
        F.bool_or(kind.isin("PREPARE", "ROLL_FORWARD")).alias("prepared"),
        F.max("xid").alias("xid"),
        F.first("bases", ignorenulls=True).alias("bases"),
    )


def in_doubt() -> "Column":
    return F.col("prepared") & ~F.col("committed") & ~F.col("backed_out")


def placed_puts(puts: "DataFrame", outcomes: "DataFrame") -> "DataFrame":
    """PUT rows with the sequences that they have by now, and `doubtful` and `xid` of their units of work."""
    # A row that has its sequence asks for no outcome: it is spread over keys that no unit of work has.
    spread = -1 - F.pmod(F.xxhash64(*PLACE), F.lit(SPREAD))
    units = outcomes.select(F.col("uow").alias("unit"), "committed", in_doubt().alias("doubtful"), "xid", "bases")
    unit = F.when(F.col("sequence").isNull(), F.col("uow")).otherwise(spread)
    late = F.when(F.col("committed"), F.try_element_at("bases", F.col("object_number")) + F.col("ordinal"))
    joined = puts.withColumn("unit", unit).join(units, "unit", "left")
    return joined.withColumn("sequence", F.coalesce("sequence", late)).drop("unit", "committed", "bases")


def puts_without_place(puts: "DataFrame", outcomes: "DataFrame") -> "DataFrame":
    """PUT rows that were committed and of which the log does not say where they lie: their queue was damaged then.

    Only a unit of work that was in doubt over a restart can have put to a queue that the restart found damaged.
    """
    units = outcomes.where(F.col("prepared") & F.col("committed")).select("uow", "bases")
    joined = puts.where(F.col("sequence").isNull()).join(units, "uow")
    nowhere = joined.where(F.try_element_at("bases", F.col("object_number")).isNull())
    return nowhere.dropDuplicates(["uow", "object_number", "ordinal"])


def visible_puts(placed: "DataFrame") -> "DataFrame":
    """The messages that were put for good; what a ROLL_FORWARD said again comes once."""
    return placed.where(F.col("sequence").isNotNull()).dropDuplicates(PLACE)


def uncommitted_puts(placed: "DataFrame") -> "DataFrame":
    """The messages that units of work have put which are in doubt."""
    doubtful = placed.where(F.col("sequence").isNull() & F.col("doubtful"))
    once = doubtful.dropDuplicates(["uow", "object_number", "ordinal"])
    return once.withColumns({"state": F.lit(UNCOMMITTED), "backout_count": F.lit(0)})


def gets_of(rows: "DataFrame", outcomes: "DataFrame") -> "DataFrame":
    """GET and EXPIRE rows -> what each message that they name has come to by them, in `effect`.

    A unit of work without an outcome is backed out, unless it is prepared: then the message is locked.
    """
    taken = rows.select(*PLACE, "uow", "kind").distinct().join(outcomes.drop("bases"), "uow", "left")
    final = F.col("uow").isNull() | (F.col("kind") == "EXPIRE") | F.coalesce("committed", F.lit(False))
    effect = F.when(final, GONE).when(F.coalesce(in_doubt(), F.lit(False)), LOCKED).otherwise(BACKED_OUT)
    return taken.select(*PLACE, "uow", "xid", effect.alias("effect"))


def what_is_left(there: "DataFrame", gets: "DataFrame", backouts: "DataFrame") -> "DataFrame":
    """Of the messages that were there, those that are not gone, with state and backout count.

    `backouts`: what was counted before, with `object_number`, `sequence`, `backouts`.
    """
    now = gets.where(F.col("effect") == BACKED_OUT).groupBy(*PLACE).agg(F.count("*").alias("backouts"))
    counts = backouts.unionByName(now).groupBy(*PLACE).agg(F.sum("backouts").cast("INT").alias("backout_count"))
    locks = gets.where(F.col("effect") == LOCKED).select(*PLACE, "uow", "xid")
    left = there.drop("uow").join(gets.where(F.col("effect") == GONE), PLACE, "left_anti")
    return (
        left.join(counts, PLACE, "left")
        .join(locks, PLACE, "left")
        .withColumns(
            {
                "state": F.when(F.col("xid").isNull(), READY).otherwise(LOCKED),
                "backout_count": F.coalesce("backout_count", F.lit(0)),
            }
        )
    )
