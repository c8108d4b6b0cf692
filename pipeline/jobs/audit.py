"""Audit: proves from the log alone that messages were neither lost nor doubled and kept their order; lists violations.

What a violation is, and how it is found, is for `audit_rules.py`.
"""

import argparse
import re
from typing import TYPE_CHECKING

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from logger import lsn as lsns
from pipeline import naming
from pipeline.jobs import common, lives, output
from pipeline.jobs.audit_rules import COLUMNS, EVERY, RULES, Scope, findings, queues
from pipeline.report import TEXT, Report, named
from qmgr.objects import check_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "audit"
HELP = "prove from the log that no message was lost or got twice and that order held; exit status 10 if not"
FIRST_EXTENT = "S0000000.LOG"
MAX_SHOWN_VIOLATIONS = 20  # of a rule
MAX_REPORTED_QUEUES = 50
TABLES = ("findings", "queues")
WRITES = (*TABLES, TEXT)
NUMBERED = re.compile(r"#[0-9]+")  # a queue of which the log does not tell the name


def arguments(parser: argparse.ArgumentParser) -> None:
    common.arguments(parser)
    parser.add_argument(
        "--in-order",
        metavar="QUEUE",
        type=queue_in_order,
        action="append",
        default=[],
        help="nobody gets from this queue by id or by group, or holds messages without acknowledging them: whatever is "
        "overtaken there is a violation; once for each queue, or * for all",
    )


def queue_in_order(text: str) -> str:
    """A queue as the report names it, or EVERY. Raises NameError_."""
    return text if text == EVERY or NUMBERED.fullmatch(text) else check_name(text, "queue")


@attrs.frozen
class Extent:
    """What part of a log was read."""

    first_extent: str
    first_epoch: int
    first: int  # LSN
    end: int
    records: int
    epochs: int

    @property
    def from_the_beginning(self) -> bool:
        return self.first_extent == FIRST_EXTENT and self.first_epoch == 1


def extent_of(log: DataFrame) -> Extent | None:
    """What part of the log there is; None: nothing."""
    row = (
        log.filter("position = 0")
        .agg(
            F.min_by("extent", "lsn"),
            F.min_by("epoch", "lsn"),
            F.min("lsn"),
            F.max("end_lsn"),
            F.count("*"),
            F.count_distinct("epoch"),
        )
        .first()
    )
    return Extent(*row) if row is not None and row[0] is not None else None


def check(args: argparse.Namespace) -> None:
    common.check_some(args)
    refuse_unknown(args)
    output.check(args, NAME, WRITES)


def refuse_unknown(args: argparse.Namespace) -> None:
    """Raise Failure where `--in-order` names a queue that there never was, such as one that is written wrong."""
    log = common.find_log(args)
    wanted = {name for name in args.in_order if name != EVERY and not NUMBERED.fullmatch(name)}
    wanted -= {*log.names.values()}
    if wanted:  # it may be one that was deleted
        wanted -= {*naming.named(log, log.end()).names.values()}
    if wanted:
        raise common.Failure(f"--in-order names {', '.join(sorted(wanted))}, and the log tells of no such queue.")


def run(args: argparse.Namespace, spark: "SparkSession") -> int:
    """Audit the log; 10 if there are violations."""
    with output.workshop(common.out_folder(args), NAME, WRITES) as shop:
        with common.step(spark, "reading the log"):
            log = lives.kept(common.log_table(spark, args, lives.ddl(COLUMNS)), f"{shop.work}/log")
        seen = extent_of(log)
        if seen is None:
            raise common.Failure(common.NO_RECORDS)
        scope = Scope(whole=args.since is None and seen.from_the_beginning, in_order=frozenset(args.in_order))
        with common.step(spark, "following messages"):
            calls = lives.operations(log)
            told = lives.kept(lives.messages(calls), f"{shop.work}/messages")
        with common.step(spark, "looking for violations"):
            found = lives.kept(findings(log, calls, told, scope), f"{shop.work}/findings")
        with common.step(spark, "counting"):
            counted = lives.kept(queues(told, found), f"{shop.work}/queues")
            counts = {row["rule"]: row["count"] for row in found.filter("violation").groupBy("rule").count().collect()}
        report = Report("Audit of the log")
        unknown = not_told_of(scope, counted)
        describe(report, scope, seen, counts)
        if unknown:
            text = f"--in-order names {', '.join(unknown)}, and the log tells of no message there: nothing was proved."
            report.line(text)
            common.say(text)
        list_queues(report, counted)
        list_violations(report, found, counted, counts)
        shop.publish(report, *TABLES)
    return common.DIFFERENT if counts else common.GOOD


def not_told_of(scope: Scope, counted: DataFrame) -> list[str]:
    """What `--in-order` names and no message was on."""
    names = sorted(scope.in_order - {EVERY})
    there = {row["queue"] for row in counted.filter(F.col("queue").isin(names)).select("queue").collect()}
    return [name for name in names if name not in there]


def describe(report: Report, scope: Scope, seen: Extent, counts: dict[str, int]) -> None:
    """What was looked at, and what came of it."""
    reach = "from its beginning on" if scope.whole else "which does not reach back to its beginning"
    report.line(
        f"The log from {lsns.text(seen.first)} to {lsns.text(seen.end)}, {reach}: {seen.records:,} records of "
        f"{seen.epochs:,} starts of the queue manager."
    )
    total = sum(counts.values())
    report.line(f"{total:,} violations." if total else "No violations of any rule.")
    report.heading("Rules")
    report.line("What each was looked for, and how often it was found:")
    report.line()
    shown = [rule for rule in RULES if rule != "overtaken" or scope.in_order]
    report.table(
        ["rule", "violations", "what a violation is"], [[rule, counts.get(rule, 0), RULES[rule]] for rule in shown]
    )


def list_queues(report: Report, counted: DataFrame) -> None:
    """The queues with most messages, and what is legal and worth knowing of them."""
    report.heading("Queues")
    names = ["queue", "put", "got", "expired", "left", "given_back", "overtakings", "unprovable"]
    rows = counted.orderBy(F.desc("put"), "object_number").limit(MAX_REPORTED_QUEUES).collect()
    called = lives.names_of(rows, lives.several(counted, rows))
    table = [[called[row["object_number"]], *(row[name] for name in names[1:])] for row in rows]
    report.table([name.replace("_", " ") for name in names], table)
    report.line()
    report.line("left: committed and neither got nor expired. given back: gets of units of work that were backed out.")
    report.line(
        "overtakings: gets that took a message while one of its priority lay there longer. That is no violation: a"
    )
    report.line("get by id or group may do that, or one that passes over what a client holds; --in-order makes it one.")
    report.line("unprovable: gets of messages whose put lies before this log.")


def list_violations(report: Report, found: DataFrame, counted: DataFrame, counts: dict[str, int]) -> None:
    """The first violations of each rule."""
    for rule in [rule for rule in RULES if rule in counts]:
        report.heading(f"Violations of {rule}: {RULES[rule]}")
        wrong = found.filter(F.col("violation") & (F.col("rule") == rule))
        rows = wrong.orderBy("lsn", "sequence").limit(MAX_SHOWN_VIOLATIONS).collect()
        called = lives.names_of(rows, lives.several(counted, rows))
        report.table(
            ["LSN", "against", "queue", "place", "unit of work"],
            [
                [row["at"], row["other_at"], called[row["object_number"]], named(row["sequence"]), named(row["uow"])]
                for row in rows
            ],
        )
        if counts[rule] > MAX_SHOWN_VIOLATIONS:
            report.line(f"… and {counts[rule] - MAX_SHOWN_VIOLATIONS:,} more in findings/")
