"""Flow: lives, windows and queues are what a plain reading of the log comes to, with moves, backouts and expiry."""

import datetime
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark.sql
import pytest

import qmgr
from pipeline import finding, log_files
from pipeline.__main__ import parser_of
from pipeline.jobs import flow, job, lives, output
from pipeline.jobs.common import Failure
from pipeline.jobs.flow import UNITS, duration, width_for, width_of
from tests.pipeline import reference
from tests.pipeline.forging import table
from tests.pipeline.reference import Row
from tests.sim.clock import SimClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "QM1"
MINUTE = UNITS["m"]


def work(data: Path) -> list[Row]:
    """Some minutes of work on a log of its own; the rows of it."""
    clock = SimClock()
    qmgr.create(NAME, data_path=str(data), log_type="linear", log_file_pages=64, clock=clock)
    qm = qmgr.start(NAME, data_path=str(data), clock=clock, background=False)
    qm.define_queue("IN", default_persistence=True, backout_threshold=2, backout_queue="FAILED")
    for queue in ("OUT", "FAILED"):
        qm.define_queue(queue, default_persistence=True)
    for number in range(40):
        with qm.begin() as unit:
            unit.put("IN", b"order %d" % number, correlation_id=b"%d" % (number % 3 + 1))
            clock.advance(1.5)
        if number == 20:
            qm.put("OUT", b"soon over", expiry=3.0)
        if number % 2:
            unit = qm.begin()
            order = unit.get("IN", backout_requeue=True)
            clock.advance(0.5)
            if number % 8 in (3, 5):
                unit.backout()
            else:
                unit.put("OUT", b"invoice", correlation_id=order.message_id)
                unit.commit()
        clock.advance(10)
    for _ in range(5):
        qm.get("OUT")
    with qm.begin() as unit:
        passed = unit.get("IN")
        unit.put("OUT", b"passed", correlation_id=passed.correlation_id)
    qm.define_queue("PASSING", default_persistence=True)
    qm.put_many("PASSING", [b"soon gone"] * 3)
    qm.get("PASSING")
    clock.advance(70)
    qm.delete_queue("PASSING", purge=True)
    unit = qm.begin()
    unit.put("IN", b"never")
    unit.get("IN")
    qm.checkpoint()
    unit.backout()
    doubt = qm.begin(qmgr.Xid(1, b"x", b"y"))
    doubt.put("IN", b"doubt")
    doubt.get("IN")
    doubt.prepare()
    unit = qm.begin()
    unit.get("IN")
    unit.backout()  # what comes back is there
    qm.end("immediate")
    return reference.rows(finding.find(str(data), NAME), log_files.PosixDisk())


class Told:
    """The lives of messages, told in a plain way."""

    def __init__(self, rows: list[Row]) -> None:
        ended = {row["uow"]: row for row in reversed(rows) if row["kind"] in ("COMMIT", "BACKOUT")}
        self.visible: dict[tuple[str, int], int] = {}
        self.gone: dict[tuple[str, int], tuple[str, int]] = {}
        self.backouts: Counter[tuple[str, int]] = Counter()
        self.deepest: Counter[str] = Counter()
        depths: Counter[str] = Counter()
        for row in rows:
            outcome = row if row["uow"] is None else ended.get(row["uow"], {"kind": ""})
            key, committed = (row["object"], row["sequence"]), outcome["kind"] not in ("BACKOUT", "")
            if row["kind"] == "PUT" and committed:
                self.visible[key] = outcome["time"]
            elif row["kind"] in ("GET", "EXPIRE") and committed:
                self.gone[key] = row["kind"], outcome["time"]
            elif row["kind"] == "GET" and outcome["kind"] == "BACKOUT":
                self.backouts[key] += 1
            elif row["kind"] == "DELETE":
                for lost in [one for one in self.visible.keys() - self.gone.keys() if one[0] == "PASSING"]:
                    self.gone[lost] = "DELETE", row["time"]
        came = [(time, 1, key[0]) for key, time in self.visible.items()]
        for _, step, queue in sorted([*came, *((time, -1, key[0]) for key, (_, time) in self.gone.items())]):
            depths[queue] += step
            self.deepest[queue] = max(self.deepest[queue], depths[queue])

    def waited(self, queue: str) -> list[int]:
        return sorted(
            time - self.visible[key]
            for key, (kind, time) in self.gone.items()
            if key[0] == queue and kind == "GET" and key in self.visible
        )

    def by_window(self) -> dict[tuple[str, int], list[int]]:
        """Put, got, expired, deleted, and the depth at the end, of each queue and window."""
        found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for (queue, _), time in self.visible.items():
            found[queue, time // MINUTE][0] += 1
        for (queue, _), (kind, time) in self.gone.items():
            found[queue, time // MINUTE][["GET", "EXPIRE", "DELETE"].index(kind) + 1] += 1
        depth: Counter[str] = Counter()
        for key in sorted(found):
            put, got, expired, deleted = found[key]
            depth[key[0]] += put - got - expired - deleted
            found[key].append(depth[key[0]])
        return dict(found)


def micros(at: datetime.datetime) -> int:
    return round(at.timestamp() * 1_000_000)


def test_lives_windows_and_queues_are_as_a_plain_reading_has_them(spark: "SparkSession", tmp_path: Path) -> None:
    rows = work(tmp_path / "data")
    told = Told(rows)
    out = tmp_path / "out"
    words = [str(tmp_path / "data"), "--qmgr", NAME, "--out", str(out), "--window", "1m"]
    assert flow.run(parser_of(job("flow")).parse_args(words), spark) == 0
    table: dict[str, list[Any]] = {
        name: spark.read.parquet(str(out / name)).collect() for name in ("messages", "windows", "queues")
    }
    placed = {(row["queue"], row["sequence"]): row for row in table["messages"] if row["sequence"] is not None}
    assert placed.keys() == told.visible.keys()
    assert {key: row["backouts"] for key, row in placed.items() if row["backouts"]} == dict(told.backouts)
    fates = {"GET": "got", "EXPIRE": "expired", "DELETE": "deleted"}
    gone = {key: row["fate"] for key, row in placed.items() if row["fate"] not in ("on queue", "held")}
    assert gone == {key: fates[kind] for key, (kind, _) in told.gone.items()}
    assert Counter(row["fate"] for row in table["messages"])["held"] == 1
    unplaced = Counter(row["fate"] for row in table["messages"] if row["sequence"] is None)
    assert unplaced == {
        "put in flight": 1,
        "put backed out": sum(row["kind"] == "PUT" for row in rows) - len(placed) - 1,
    }
    moved = Counter((row["moved_how"], row["moved_to"]) for row in placed.values() if row["moved_how"])
    assert moved[("moved", "FAILED")] == sum(queue == "FAILED" for queue, _ in told.visible) > 0
    assert moved[("answered", "OUT")] > 5
    assert moved[("passed on", "OUT")] == 1
    counts = ("put", "got", "expired", "deleted", "depth")
    windows = {
        (row["queue"], micros(row["window"]) // MINUTE): [row[name] for name in counts] for row in table["windows"]
    }
    assert windows == told.by_window()
    for row in table["queues"]:
        waited = told.waited(row["queue"])
        assert row["longest_us"] == (waited[-1] if waited else None)
        assert row["deepest"] == told.deepest[row["queue"]], "also where it was not as deep at the end of a window"
        if waited:
            for share, name in ((0.5, "p50_us"), (0.95, "p95_us"), (0.99, "p99_us")):
                assert row[name] == waited[math.ceil(share * len(waited)) - 1]
    text = (out / "report.txt").read_text()
    assert "in windows of 1 m." in text
    assert all((out / f"{name}.png").stat().st_size > 1000 for name in ("depth", "throughput", "time_on_queue"))
    there = {path.name for path in out.iterdir() if not path.name.startswith(output.RUN)}
    assert there == {*flow.WRITES, output.LOCK, output.MARKER, output.CURRENT}


def test_what_was_put_before_the_log_has_no_time_on_queue_and_counts_in_depths(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """A log without its beginning, or one that is read from somewhere on."""
    rows = work(tmp_path / "data")
    places = [row["lsn"] for row in rows if row["object"] == "OUT" and row["kind"] == "PUT"]
    rows = [row for row in rows if row["lsn"] > places[2] or row["kind"] == "DEFINE"]
    told = Told(rows)
    log = table(spark, rows, flow.COLUMNS)
    found = flow.messages(log, lives.operations(log)).filter("sequence is not null").cache()
    lived = {(row["queue"], row["sequence"]): row for row in found.collect()}
    before = {key for key in lived.keys() - told.visible.keys() if key[0] == "OUT"}
    assert len(before) == 3
    for key, row in lived.items():
        there = key in told.visible and key in told.gone
        assert row["time_on_queue_us"] == (told.gone[key][1] - told.visible[key] if there else None)
    windows = flow.windows(found, MINUTE).cache()
    for row in flow.queues(found, windows).collect():
        waited = told.waited(row["queue"])
        assert row["p50_us"] == (waited[math.ceil(len(waited) / 2) - 1] if waited else None)
    depths = {row["queue"]: row["depth"] for row in windows.orderBy("window").collect()}
    for queue, depth in depths.items():
        assert depth == sum(key[0] == queue and key not in told.gone for key in lived)


def two_windows(spark: "SparkSession", *lived: tuple[int, int, int, int]) -> list[tuple[int, ...]]:
    """Of messages that were got: (sequence, LSN, and the seconds in which it came and went)."""
    at = lambda second: datetime.datetime.fromtimestamp(second, datetime.UTC)  # noqa: E731
    columns = (
        "queue STRING, object_number INT, sequence BIGINT, visible_lsn BIGINT, body_length INT, fate STRING, "
        "time_on_queue_us BIGINT, visible_time TIMESTAMP, gone_time TIMESTAMP"
    )
    rows = [("A", 1, sequence, lsn, 7, "got", 0, at(came), at(went)) for sequence, lsn, came, went in lived]
    told = spark.createDataFrame(rows, columns).coalesce(1)
    found = flow.windows(told, MINUTE).orderBy("window").select("put", "got", "depth", "deepest").collect()
    return [tuple(row) for row in found]


def test_a_queue_is_as_deep_as_at_any_moment_of_a_window_and_at_its_beginning(spark: "SparkSession") -> None:
    """No deeper for what comes when something goes, whichever is looked at first."""
    assert two_windows(spark, (2, 9, 2, 70), (1, 8, 1, 2)) == [(2, 1, 1, 1), (0, 1, 0, 1)]


def test_a_queue_through_which_nothing_went_is_as_deep_as_what_was_tried_to_get(spark: "SparkSession") -> None:
    """What was put before the log, and was got and given back in it, is there; so the queue has no window."""
    lying = (1, 7, None, "on queue", 1)
    columns = "object_number INT, sequence BIGINT, visible_lsn BIGINT, fate STRING, backouts INT"
    told = spark.createDataFrame([lying, (2, None, None, "put backed out", 0)], columns).selectExpr(
        "*", "'A' as queue", "cast(null as string) as moved_how", "cast(null as bigint) as time_on_queue_us"
    )
    nothing = spark.createDataFrame([], "object_number INT, deepest BIGINT")
    found = flow.queues(told, nothing).collect()
    assert {(row["object_number"], row["left"], row["deepest"]) for row in found} == {(1, 1, 1), (2, 0, 0)}


def test_no_queue_is_less_than_empty_where_the_clock_was_set_back(spark: "SparkSession") -> None:
    """What went by an earlier clock than it came goes when it came."""
    assert two_windows(spark, (1, 9, 70, 1), (2, 9, 70, 130)) == [(2, 1, 1, 1), (0, 1, 0, 1)]


def test_what_was_committed_while_its_queue_was_damaged_is_told_though_nobody_knows_where_it_lies(
    spark: "SparkSession",
) -> None:
    rows: list[Row] = [
        {"lsn": 8, "kind": "PUT", "object_number": 1, "ordinal": 0},
        {"lsn": 8, "kind": "PUT", "object_number": 2, "ordinal": 1, "position": 1},
        {"lsn": 16, "kind": "PREPARE"},
        {"lsn": 24, "kind": "COMMIT", "bases": [(2, 60)]},
    ]
    told = [{"uow": 5, "time": row["lsn"], "position": 0, "repeated": False} | row for row in rows]
    log = table(spark, told, flow.COLUMNS)
    found = flow.messages(log, lives.operations(log)).select("object_number", "sequence", "fate").collect()
    assert {tuple(row) for row in found} == {(1, None, "place unknown"), (2, 61, "on queue")}


def test_a_window_is_said_in_words_or_chosen_by_the_span() -> None:
    assert [width_of(text) for text in ("90", "30s", "5m", "1h", "1d")] == [
        90_000_000, 30_000_000, 300_000_000, 3_600_000_000, 86_400_000_000,
    ]  # fmt: skip
    for wrong in ("", "0", "soon", "-5m", "1.5h", "9" * 5000):  # more digits than int takes
        with pytest.raises(Failure, match="is no length of a window"):
            width_of(wrong)
    for wrong in ("367d", "99999999999999999d"):
        with pytest.raises(Failure, match=f"a window of {wrong} is too long; 366d is the most"):
            width_of(wrong)
    assert width_for(20 * UNITS["s"]) == 100 * UNITS["ms"]
    assert width_for(4 * UNITS["m"]) == UNITS["s"]
    assert width_for(4 * UNITS["h"]) == UNITS["m"]
    assert width_for(10**6 * UNITS["d"]) == UNITS["d"]
    assert [duration(us) for us in (None, 0, 1500, 2_500_000, 5_400_000_000)] == [
        "-",
        "0 us",
        "1.5 ms",
        "2.5 s",
        "1.5 h",
    ]


def test_a_queue_that_was_defined_again_is_drawn_and_listed_for_each_time_by_its_number(spark: "SparkSession") -> None:
    """The depth of the one that is gone stood for both, where they were within one point of a chart."""
    counted = spark.createDataFrame(
        [("A", 3), ("B", 4), ("C", 5), ("A", 7), ("C", 8)], "queue STRING, object_number INT"
    )
    shown = counted.filter("object_number in (3, 4)").collect()
    names = lives.names_of(shown, lives.several(counted, shown))
    assert names == {3: "A (3)", 4: "B"}, "also where the other A is not among those that are shown"
    at = datetime.datetime.fromtimestamp(60, datetime.UTC)
    rows = [(number, at, depth, depth, 0, None, None, None) for number, depth in ((7, 0), (3, 5))]
    columns = "object_number INT, window TIMESTAMP, depth INT, put INT, got INT, p50_us INT, p95_us INT, p99_us INT"
    windows = spark.createDataFrame(rows, columns)
    text = {"width": str(60_000_000), "chosen": "3, 7"}
    points = flow.lives.query(flow.CURVES_OF, text, windows=windows).collect()
    assert [(point["object_number"], point["depth"], point["put"]) for point in points] == [(3, 5, 5), (7, 0, 0)]


def test_curves_are_zero_where_nothing_went_through_and_depths_stay() -> None:
    """A slot for each width of time, whether there is a window or not."""
    at = lambda second: datetime.datetime.fromtimestamp(second, datetime.UTC)  # noqa: E731
    kind = pyspark.sql.Row("at", "depth", "put", "got", "p50_us", "p99_us")
    points = [kind(at(1), 3, 3, 0, None, None), kind(at(3), 1, 0, 2, 10, 20)]
    assert flow.placed(points, range(0, 5_000_000, 1_000_000)) == {
        "put": [0, 3, 0, 0, 0],
        "got": [0, 0, 0, 2, 0],
        "depth": [None, 3, 3, 1, 1],
        "p50_us": [None, None, None, 10, None],
        "p99_us": [None, None, None, 20, None],
    }
