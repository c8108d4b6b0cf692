"""Audit: lives with crashes and all that units of work can do have no violations; what a forger changes is found."""

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import qmgr
from pipeline import finding, log_files
from pipeline.__main__ import parser_of
from pipeline.jobs import audit, audit_rules, job, lives
from pipeline.jobs.audit_rules import Scope
from pipeline.jobs.common import Failure
from qmgr.errors import Mistake
from recovery.records import ONE_BASE, PUT_RUN, QUEUE_PLACE, Kind
from tests.pipeline import reference
from tests.pipeline.forging import Forger, Row, apart, table
from tests.qmgr.world import DATA, World
from tests.sim.life import LOG, NAME, Life, Setup, random_life

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINEAR = {"log_type": "linear", "primary_files": 6, "secondary_files": 6}
SETUPS = [Setup(**LINEAR, checkpoint_records=40), Setup(**LINEAR), Setup(**LINEAR, buffer=2000)]  # type: ignore[arg-type]
STEPS = 100
SMALL = 4  # places in a bucket: much crosses from one to the next


class Lived:
    """Some random lives, and what their logs say as if it were one log."""

    def __init__(self) -> None:
        self.lives = []
        self.logs: list[list[Row]] = []
        for seed, setup in enumerate(SETUPS):
            life = Life(setup, seed=seed)
            random_life(life, random.Random(seed + 40), STEPS)
            life.qm.end("quiesce")
            self.lives.append(life)
            self.logs.append(reference.rows(finding.find(f"{LOG}/{NAME}", None, life.disk), life.disk))

    def rows(self) -> list[Row]:
        return [row for number, log in enumerate(self.logs) for row in apart(log, number)]

    def persistent(self) -> dict[str, int]:
        """How many persistent messages each queue has, got by a unit of work in doubt or not."""
        return {
            f"{number}.{queue}": sum(msg.persistent for msg in msgs)
            for number, life in enumerate(self.lives)
            for queue, msgs in life.model.queues.items()
        }


@pytest.fixture(scope="module")
def lived() -> Lived:
    return Lived()


def audited(spark: "SparkSession", rows: list[Row], scope: Scope) -> "tuple[DataFrame, DataFrame]":
    """What is found, and messages."""
    log = table(spark, rows, audit_rules.COLUMNS)
    calls = lives.operations(log)
    told = lives.messages(calls, bucket=SMALL).localCheckpoint()
    return audit_rules.findings(log, calls, told, scope).localCheckpoint(), told


def overtakings(rows: list[Row]) -> Counter[tuple[int, int]]:
    """Of each queue and place how often it was overtaken for sure, said in a plain way."""
    ended = {row["uow"]: row for row in reversed(rows) if row["kind"] in ("COMMIT", "BACKOUT")}
    first: dict[tuple[int, int], Row] = {}
    gone: dict[tuple[int, int], int] = {}
    puts: dict[tuple[int, int], Row] = {}
    for row in rows:
        outcome = ended.get(row["uow"]) if row["uow"] is not None else row
        committed = outcome is not None and outcome["kind"] != "BACKOUT"
        if row["kind"] == "PUT" and committed and not row["repeated"]:
            number, place = row["object_number"], row["sequence"]
            if place is None:
                place = dict(outcome["bases"])[number] + row["ordinal"]  # type: ignore[index]
            puts[number, place] = row
        elif row["kind"] in ("GET", "EXPIRE"):
            key = row["object_number"], row["sequence"]
            first.setdefault(key, row)
            if committed and row["kind"] == "GET":
                gone[key] = outcome["lsn"]  # type: ignore[index]
    found: Counter[tuple[int, int]] = Counter()
    for (number, place), late in gone.items():
        for (other, lower), put in puts.items():
            if other == number and lower < place and put["priority"] == puts[number, place]["priority"]:
                touched = first.get((number, lower))
                if (put["expiry"] is None) if touched is None else (touched["kind"] == "GET" and touched["lsn"] > late):
                    found[number, place] = 1
    return found


def test_random_lives_have_no_violations(spark: "SparkSession", lived: Lived) -> None:
    found, told = audited(spark, lived.rows(), Scope())
    assert found.filter("violation").collect() == []
    left = {row["queue"]: row["left"] for row in audit_rules.queues(told, found).collect()}
    model = lived.persistent()
    assert {queue: left.get(queue, 0) for queue in model} == model
    counted = Counter((row["object_number"], row["sequence"]) for row in found.filter("rule = 'overtaken'").collect())
    assert counted == overtakings(lived.rows())
    assert counted


def test_a_record_that_is_missing_and_an_epoch_that_falls_are_found(spark: "SparkSession", lived: Lived) -> None:
    log = lived.logs[0]
    gone = [row for row in log if row["kind"] == "END_CHECKPOINT"][2]
    after = next(row for row in log if row["lsn"] == gone["end_lsn"])
    rows = [row | {"epoch": 0} if row["lsn"] == log[-1]["lsn"] else row for row in log if row is not gone]
    found = lives.query(audit_rules.OF_RECORDS, log=table(spark, rows, audit_rules.COLUMNS)).collect()
    assert {(row["rule"], row["lsn"], row["other_lsn"]) for row in found} == {
        ("lsn", after["lsn"], gone["lsn"]),
        ("epoch", log[-1]["lsn"], log[0]["lsn"]),
    }


def test_a_log_that_was_cut_proves_what_it_can(spark: "SparkSession", lived: Lived) -> None:
    """What was put before is not provable; a put that is missing behind one that is there is a violation."""
    log = lived.logs[2]
    cut = [row for row in log if row["lsn"] >= log[len(log) // 3]["lsn"]]
    ends = {row["uow"]: row["kind"] for row in reversed(cut) if row["kind"] in ("COMMIT", "BACKOUT")}
    taken = {
        (row["object_number"], row["sequence"])
        for row in cut
        if row["kind"] == "GET" and (row["uow"] is None or ends.get(row["uow"]) == "COMMIT")
    }
    alone = [row for row in cut if row["kind"] == "PUT" and row["uow"] is None]
    lowest = {row["object_number"]: row["sequence"] for row in reversed(alone)}
    victim = next(
        row
        for row in alone
        if (row["object_number"], row["sequence"]) in taken and row["sequence"] > lowest[row["object_number"]]
    )
    rows = [row | {"kind": "QMGR", "uow": None} if row is victim else row for row in cut]
    found, _ = audited(spark, rows, Scope(whole=False))
    wrong = {(row["rule"], row["object_number"], row["sequence"]) for row in found.filter("violation").collect()}
    number = victim["object_number"]
    assert wrong - {("depth", number, None)} == {("missing", number, victim["sequence"])}
    assert {row["rule"] for row in found.filter("not violation").collect()} == {"unprovable", "overtaken"}


def test_no_rule_finds_anything_wrong_in_a_log_that_was_cut(spark: "SparkSession", lived: Lived) -> None:
    log = lived.logs[0]
    cut = [row for row in log if row["lsn"] >= log[len(log) // 2]["lsn"]]
    found, _ = audited(spark, cut, Scope(whole=False))
    assert found.filter("violation").collect() == []
    assert not found.filter("rule = 'unprovable'").isEmpty()


def test_what_was_rolled_forward_is_in_order_where_the_log_begins_in_the_midst_of_it(spark: "SparkSession") -> None:
    """The ROLL_FORWARD alone tells the first puts, behind the others."""
    world, xid = World(log_type="linear"), qmgr.Xid(1, b"g", b"")
    for queue in ("A", "B"):
        world.qm.define_queue(queue)
    unit = world.qm.begin(xid)
    for _ in range(6):
        unit.put("A", bytes(12_000))
    unit.prepare()
    for _ in range(40):
        world.qm.put("B", bytes(12_000))
        world.qm.get("B")
        world.qm.checkpoint()
    world.qm.resolve(xid, True)
    world.qm.end()
    rows = reference.rows(finding.find(DATA, world.qm.name, world.disk), world.disk)
    puts = [row for row in rows if row["kind"] == "PUT" and row["uow"] is not None]
    assert [row["repeated"] for row in puts] == [False] * 6 + [True] * 6
    cut = [row for row in rows if row["lsn"] >= puts[3]["lsn"]]
    found, _ = audited(spark, cut, Scope(whole=False))
    assert found.filter("violation").collect() == []
    wrong = [row | {"ordinal": 1 - row["ordinal"]} if row["ordinal"] in (0, 1) else row for row in cut]
    log = table(spark, wrong, audit_rules.COLUMNS)
    found = lives.query(audit_rules.OF_UNITS, log=log, calls=lives.operations(log))
    again = next(row for row in cut if row["repeated"])
    assert {(row["rule"], row["lsn"]) for row in found.collect()} == {("ordinal", again["lsn"])}
    assert without_with(lives.operations(log))


def test_calls_and_messages_which_jobs_look_at_many_times_have_no_with(spark: "SparkSession", lived: Lived) -> None:
    """Spark 4.1 confuses those of a table that is in one query more than once: `flow` and `audit` of many logs failed.

    What it takes for what depends on all of the plan, so that a job by itself may pass.
    """
    log = table(spark, lived.logs[0][:50], audit_rules.COLUMNS)
    calls = lives.operations(log)
    assert without_with(calls)
    told = lives.messages(calls)
    assert without_with(told)
    assert without_with(audit_rules.unprovable(log, calls, told, Scope(whole=False)))


def without_with(found: "DataFrame") -> bool:
    return "CTE" not in found._jdf.queryExecution().analyzed().toString()


class Forged:
    """A log in which one thing of each kind is wrong, and where."""

    def __init__(self, data: Path) -> None:
        qmgr.create(NAME, data_path=str(data), log_type="linear", log_file_pages=64, log_write_integrity="SingleWrite")
        with qmgr.start(NAME, data_path=str(data), background=False) as qm:
            self.work(qm)
        log = finding.find(str(data), NAME)
        self.rows = reference.rows(log, log_files.PosixDisk())
        self.forger = Forger(data, NAME)
        self.planted: set[tuple[str, str, Any, int]] = set()
        self.forge()

    def work(self, qm: qmgr.QueueManager) -> None:
        for queue in ("A", "B", "D", "E", "F"):
            qm.define_queue(queue, default_persistence=True)
        for number in range(10):
            qm.put("A", b"%d" % number)
        for _ in range(8):
            qm.get("A")
        qm.put("A", b"late")
        with qm.begin() as unit:
            unit.put("B", b"one")
            unit.put("B", b"two", priority=0)  # in a run of its own
        unit = qm.begin()
        unit.get("A")
        unit.backout()
        qm.get("A")
        for queue in ("D", "E", "F"):
            sent = [qm.put(queue, b"%d" % number) for number in range(3)]
            qm.get(queue, message_id=sent[1].message_id)
        unit = qm.begin()
        unit.get("F")
        qm.get("F")
        unit.backout()
        qm.record_image("D")
        for _ in range(2):
            qm.define_queue("G", default_persistence=True)
            qm.put("G", b"")
            qm.get("G")
            qm.delete_queue("G")

    def of(self, kind: str, queue: str, sequence: int) -> Row:
        """The last such row."""
        return next(
            row
            for row in reversed(self.rows)
            if (row["kind"], row["object"], row["sequence"]) == (kind, queue, sequence)
        )

    def plant(self, rule: str, queue: str, sequence: int | None, row: Row) -> None:
        self.planted.add((rule, queue, sequence, row["lsn"]))

    def forge(self) -> None:
        rewrite, queue = self.forger.rewrite, self.of("PUT", "A", 1)["object_number"]
        place = lambda sequence: QUEUE_PLACE.pack(queue, sequence)  # noqa: E731
        message = lambda row: self.body_of(row)[QUEUE_PLACE.size :]  # noqa: E731
        # a get is doubled: what was got there instead is left
        rewrite(self.of("GET", "A", 3)["lsn"], body=place(1))
        self.plant("twice", "A", 1, self.of("GET", "A", 3))
        # a put is gone
        rewrite(self.of("PUT", "A", 4)["lsn"], kind=Kind.END_CHECKPOINT, body=b"{}")
        self.plant("missing", "A", 4, self.of("GET", "A", 4))
        # two puts have changed places
        one, other = self.of("PUT", "A", 6), self.of("PUT", "A", 7)
        bodies = message(one), message(other)
        rewrite(one["lsn"], body=place(7) + bodies[0])
        rewrite(other["lsn"], body=place(6) + bodies[1])
        self.plant("arrival", "A", 7, one)
        # a get of what comes later
        rewrite(self.of("GET", "A", 5)["lsn"], body=place(11))
        self.plant("early", "A", 11, self.of("GET", "A", 5))
        # a place is given twice
        last = self.of("PUT", "A", 10)
        rewrite(last["lsn"], body=place(2) + message(last))
        self.plant("sequence", "A", 2, last)
        # what has no expiry expires
        rewrite(self.of("GET", "A", 8)["lsn"], kind=Kind.EXPIRE)
        self.plant("expired", "A", 8, self.of("GET", "A", 8))
        # a unit of work is backed out after its commit, and the one that was backed out is not
        back = next(row for row in self.rows if row["kind"] == "BACKOUT")
        commit = next(row for row in self.rows if row["kind"] == "COMMIT")
        rewrite(back["lsn"], uow=commit["uow"])
        self.plant("outcome", "-", None, back)
        self.plant("outcome", "A", 9, back)
        self.plant("twice", "A", 9, self.of("GET", "A", 9))
        # two puts of a unit of work have one ordinal
        body = bytearray(self.body_of(commit))
        second = body.index(b"\x01", ONE_BASE.size + PUT_RUN.size + 80 + 3)
        fields = list(PUT_RUN.unpack_from(body, second))
        fields[2] = 0
        PUT_RUN.pack_into(body, second, *fields)
        rewrite(commit["lsn"], body=bytes(body))
        self.plant("ordinal", "B", 1, commit)
        self.plant("sequence", "B", 1, commit)
        # a get that the image of the queue knows of is gone
        rewrite(self.of("GET", "D", 2)["lsn"], kind=Kind.END_CHECKPOINT, body=b"{}")
        self.plant("depth", "D", None, next(row for row in self.rows if row["kind"] == "IMAGE_END"))
        self.plant("overtaken", "E", 2, self.of("GET", "E", 2))
        # what a unit of work has is got by another
        rewrite(self.of("GET", "F", 3)["lsn"], body=QUEUE_PLACE.pack(self.of("PUT", "F", 1)["object_number"], 1))
        self.plant("held", "F", 1, self.of("GET", "F", 3))

    def body_of(self, row: Row) -> bytes:
        log = self.forger.log
        raws = reference.raw_records(log, log_files.PosixDisk())
        return bytes(next(raw.body for raw in raws if raw.lsn == row["lsn"]))


def test_what_a_forger_changes_in_a_log_is_found(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = Forged(tmp_path / "data")
    out = tmp_path / "out"
    words = [str(tmp_path / "data"), "--qmgr", NAME, "--out", str(out), "--in-order", "E", "--in-order", "NOWHERE"]
    assert audit.run(parser_of(job("audit")).parse_args(words), spark) == 10
    rows = spark.read.parquet(str(out / "findings")).collect()
    found = {(row["rule"], row["queue"] or "-", row["sequence"], row["lsn"]) for row in rows if row["violation"]}
    assert found == forged.planted
    text = (out / "report.txt").read_text()
    assert f"{len(found)} violations." in text and "null" not in text
    assert "\nG (6) " in text and "\nG (7) " in text and "\nA " in text
    assert all(audit_rules.RULES[rule] in text for rule, _, _, _ in found)
    said = capsys.readouterr()
    assert str(out / "report.txt") in said.out
    for told in (text, said.err):
        assert "--in-order names NOWHERE, and the log tells of no message there" in told


def test_order_is_proved_over_all_buckets_of_places(spark: "SparkSession", lived: Lived) -> None:
    """Two messages that came first and last change their places: all between are behind one that came later."""
    puts = [row for row in lived.rows() if row["kind"] == "PUT" and row["uow"] is None and not row["repeated"]]
    [(busiest, _)] = Counter(row["object_number"] for row in puts).most_common(1)
    some = [row for row in puts if row["object_number"] == busiest]
    assert len(some) > 3 * SMALL
    places = [row["sequence"] for row in some]
    mixed = [row | {"sequence": place} for row, place in zip(some, [places[-1], *places[1:-1], places[0]], strict=True)]
    told = lives.messages(lives.operations(table(spark, mixed, audit_rules.COLUMNS)), bucket=SMALL)
    found = lives.query(audit_rules.OF_ORDER, told=told).filter("rule = 'arrival'").collect()
    wrong = {(row["rule"], row["sequence"], row["other_lsn"]) for row in found}
    last = some[-1]["lsn"]
    assert wrong == {("arrival", row["sequence"], last) for row in mixed if row["lsn"] < last}


def test_in_order_names_a_queue_that_can_be_one() -> None:
    assert [audit.queue_in_order(text) for text in ("*", "A.b/%_1", "#7")] == ["*", "A.b/%_1", "#7"]
    for wrong in ("it's", "", "#", "*A"):
        with pytest.raises(Mistake, match="can't be the name of a queue"):
            parser_of(job("audit")).parse_args(["/data", "--out", "/out", "--in-order", wrong])


def test_in_order_names_a_queue_that_there_is_or_was(tmp_path: Path) -> None:
    """Before Spark is started, also where the log alone tells of it."""
    data = str(tmp_path / "data")
    qmgr.create(NAME, data_path=data, log_type="linear", log_file_pages=64)
    with qmgr.start(NAME, data_path=data, background=False) as qm:
        for queue in ("HERE", "GONE"):
            qm.define_queue(queue)
        qm.delete_queue("GONE")
    for where in ([data, "--qmgr", NAME], [f"{data}/log/{NAME}/active"]):
        words = [*where, "--out", str(tmp_path / "out"), "--in-order"]
        for queue in ("HERE", "GONE", "#7", "*"):
            audit.check(parser_of(job("audit")).parse_args([*words, queue]))
        with pytest.raises(Failure, match="--in-order names NOWHERE, and the log tells of no such queue"):
            audit.check(parser_of(job("audit")).parse_args([*words, "HERE", "--in-order", "NOWHERE"]))
