"""The log as a table: its columns, what is read for which question, logs in all forms, and what it says of damage."""

import datetime
import gc
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from pyspark.cloudpickle import dumps
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import qmgr
from benchmarks.pipeline import summed
from logger.errors import LogDamaged, LogError, NotInLog
from logger.extent import DATA
from pipeline.filters import Filters
from pipeline.limited_log_stream import LimitedLogStream
from pipeline.log_options import asked, lsn_of, microseconds, target_of
from pipeline.log_source import LogSource
from pipeline.log_table import LogTable, narrowed
from pipeline.schema import ARROW, COLUMNS, DDL, arrow_of
from pipeline.unusable import FileUnusable
from qmgr.cli.command import explain
from qmgr.errors import Mistake
from tests.pipeline import logs
from tests.pipeline.logs import BEGAN, EXTENT, HOURS, NEVER, CountingDisk, options, parts, read, table
from tests.qmgr.world import NAME
from tests.sim.clock import SimClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data path of a queue manager with a past."""
    made = tmp_path_factory.mktemp("past")
    logs.make(made)
    return made


@pytest.fixture(scope="module")
def rows(path: Path) -> list[logs.Row]:
    """All that its log says."""
    return read(table(options(path)))


Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: "SparkSession", path: Path) -> Load:
    """A table of that log."""

    def loaded(schema: str | None = None, **more: str) -> "DataFrame":
        reader = spark.read.format("qmgr.log").options(qmgr=NAME, **more)
        return (reader if schema is None else reader.schema(schema)).load(str(path))

    return loaded


def test_the_past_lies_in_extents_of_all_forms(path: Path) -> None:
    log = path / "log" / NAME
    compressed = [file.name for file in log.rglob("S*.LOG.gz")]
    archived = [file.name for file in (log / "archive").glob("S*.LOG")]
    active = [file.name for file in (log / "active").glob("S*.LOG")]
    assert len(compressed) > 1 and len(archived) > 1 and len(active) > 1


# Through Spark


def test_spark_finds_the_format_and_its_columns_by_itself(load: Load) -> None:
    from pyspark.sql.types import _parse_datatype_string

    found = load()
    assert found.columns == list(COLUMNS)
    assert found.schema == _parse_datatype_string(DDL)


def test_spark_reads_every_row_of_archived_compressed_and_active_extents(load: Load, rows: list[logs.Row]) -> None:
    collected = sorted((row.asDict() for row in load().collect()), key=lambda row: (row["lsn"], row["position"]))
    maps, moments = ("bases", "properties"), ("time", "put_time", "expiry")
    expected = [{**row, **{name: dict(row[name]) for name in maps if row[name] is not None}} for row in rows]
    for row in expected:  # Spark gives moments as those of this machine's zone, without saying so
        row.update({name: row[name].astimezone().replace(tzinfo=None) for name in moments if row[name] is not None})
    assert collected == expected


def test_a_schema_of_the_users_prunes_columns_in_any_order(load: Load, rows: list[logs.Row]) -> None:
    found = load("kind STRING, LSN BIGINT NOT NULL, properties MAP<STRING, STRING>, time TIMESTAMP")
    assert found.columns == ["kind", "LSN", "properties", "time"]
    assert sorted((row["kind"], row["LSN"]) for row in found.collect()) == sorted(
        (row["kind"], row["lsn"]) for row in rows
    )


def test_columns_are_pruned_by_an_option_too(load: Load, rows: list[logs.Row]) -> None:
    found = load(columns="body_length, object")
    assert found.columns == ["body_length", "object"]
    assert found.filter("object = 'Q1'").agg({"body_length": "sum"}).collect()[0][0] == sum(
        row["body_length"] or 0 for row in rows if row["object"] == "Q1"
    )


def test_filters_of_sparks_own_find_the_same_rows_pushed_or_not(
    spark: "SparkSession", load: Load, rows: list[logs.Row]
) -> None:
    middle = rows[len(rows) // 2]
    moment = middle["time"].isoformat()
    for pushed in ("true", "false"):
        found = load("lsn BIGINT, time TIMESTAMP, object STRING, kind STRING", pushdown=pushed).filter(
            f"lsn >= {middle['lsn']} AND time > '{moment}' AND object IN ('Q0', 'Q2') AND kind = 'PUT'"
        )
        assert sorted(row["lsn"] for row in found.collect()) == [
            row["lsn"]
            for row in rows
            if row["time"] > middle["time"] and row["object"] in ("Q0", "Q2") and row["kind"] == "PUT"
        ]


def test_a_table_that_was_filtered_is_whole_again_in_the_next_query_and_in_the_same(
    load: Load, rows: list[logs.Row]
) -> None:
    """With filters pushed, Spark 4.1 to 4.3 goes on with what it has planned for the first one."""
    whole = load("lsn BIGINT, object STRING")
    one = whole.filter("object = 'Q1'")
    assert one.count() == sum(row["object"] == "Q1" for row in rows)
    assert whole.count() == len(rows)
    assert one.union(whole.filter("object = 'Q2'")).count() == sum(row["object"] in ("Q1", "Q2") for row in rows)


def test_where_the_session_forbids_to_push_filters_nothing_fails(
    spark: "SparkSession", load: Load, rows: list[logs.Row]
) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")
    try:
        found = load("object STRING", pushdown="true").filter("object = 'Q1'").count()
    finally:
        spark.conf.set(name, "true")
    assert found == sum(row["object"] == "Q1" for row in rows)


def test_moments_are_moments_in_a_session_whose_timestamps_have_no_time_zone(
    spark: "SparkSession", load: Load, rows: list[logs.Row]
) -> None:
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        found = load(columns="lsn, time").selectExpr("lsn", "unix_micros(time) as us").collect()
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert {(row["lsn"], row["us"]) for row in found} == {(row["lsn"], microseconds(row["time"])) for row in rows}


def test_a_log_with_nothing_that_is_asked_for_is_an_empty_table(load: Load) -> None:
    assert load(objects="NOBODY").count() == 0


@pytest.mark.parametrize(
    ("schema", "more", "said"),
    [
        ("nothing STRING", {}, "qmgr.log has no column 'nothing'; it has lsn, end_lsn, extent"),
        ("lsn INT", {}, "column 'lsn' is BIGINT, not INT; read it as that and cast it"),
    ],
)
def test_spark_shows_the_sentence_of_what_is_wrong(load: Load, schema: str, more: dict[str, str], said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        load(schema, **more).count()
    assert said in str(caught.value)


def test_damage_stops_a_query_with_the_file_and_the_place(
    spark: "SparkSession", path: Path, tmp_path: Path, rows: list[logs.Row]
) -> None:
    from pyspark.errors import PySparkException

    log = logs.copy(path, tmp_path / "log")
    damaged = sorted((log / "archive").glob("S*.LOG"))[1]
    [victim] = [row for row in rows if row["extent"] == damaged.name and row["kind"] == "PUT"][3:4]
    with damaged.open("r+b") as file:
        file.seek(DATA + victim["lsn"] % EXTENT + 200)
        file.write(b"damage")
    with pytest.raises(PySparkException) as caught:
        spark.read.format("qmgr.log").load(str(log)).count()
    assert "LogDamaged" in str(caught.value) and f"{damaged} is damaged at <0:0:" in str(caught.value)


# As Spark's planner and workers see it


def test_a_row_says_what_was_put(rows: list[logs.Row]) -> None:
    puts = [row for row in rows if row["kind"] == "PUT"]
    assert [row["body"].split()[0].decode() for row in puts] == [
        f"{hour}.{number}" for hour in range(HOURS) for number in range(logs.A_TIME)
    ]
    assert {(row["object"], row["priority"]) for row in puts if row["uow"] is None} >= {("Q0", 4), ("Q2", 8)}
    assert all(
        row["properties"] == [("hour", str(number // logs.A_TIME))] for number, row in enumerate(puts) if number % 3
    )


@pytest.mark.parametrize("where", ["", "active", "archive", "log"])
def test_a_log_is_found_by_its_directory_and_by_a_folder_of_extents(
    path: Path, tmp_path: Path, rows: list[logs.Row], where: str
) -> None:
    """A folder of extents alone, some of the past missing at either end, has what the log has there."""
    log = logs.copy(path, tmp_path / "log")
    if where == "log":
        found = read(table(asked({"path": str(log)})))
        assert found == rows
        return
    folder = tmp_path / "folder"
    (folder / where).mkdir(parents=True)
    for file in logs.files(log):
        if "archive" in str(file):
            shutil.copy(file, folder / where)
    found = read(table(asked({"path": str(folder)})))
    extents = {row["extent"] for row in found}
    assert len(extents) > 3
    assert found == [row for row in rows if row["extent"] in extents][: len(found)]


def test_a_missing_extent_is_named_and_never_jumped(path: Path, tmp_path: Path) -> None:
    log = logs.copy(path, tmp_path / "log")
    missing = logs.files(log)[2]
    missing.unlink()
    with pytest.raises(LogDamaged, match=rf"{missing.name.removesuffix('.gz')} is missing.*restore it from a backup"):
        read(table(asked({"path": str(log)})))


def test_a_place_where_reading_ends_need_not_be_there(path: Path, tmp_path: Path, rows: list[logs.Row]) -> None:
    directory = logs.copy(path, tmp_path / "log")
    logs.files(directory)[2].unlink()
    log = asked({"path": str(directory)}).log()
    assert lsn_of(3 * EXTENT, log, ends=True) == 3 * EXTENT
    for at, ends in ((3 * EXTENT, False), (3 * EXTENT + 8, True), (4 * EXTENT, True)):
        with pytest.raises(LogDamaged, match=r"S0000002\.LOG is missing"):
            lsn_of(at, log, ends=ends)
    crossing = max(row["lsn"] for row in rows if row["lsn"] < 3 * EXTENT)
    end = rows[-1]["end_lsn"]
    assert log.stretch(0, end) == (EXTENT, crossing), "up to where records are whole"
    assert log.stretch(microseconds(NEVER), end) == (4 * EXTENT, end)


def test_a_machine_that_sees_nothing_of_the_log_says_so(path: Path, tmp_path: Path) -> None:
    log = logs.copy(path, tmp_path / "log")
    made = table(asked({"path": str(log)}))
    [part, *_] = parts(made)
    log.rename(tmp_path / "elsewhere")
    said = rf"the machine \S+ sees no extent of the log in {log}/active or .*all machines .*under the same path"
    with pytest.raises(LogError, match=said):
        list(made.read(part))
    (log / "active").mkdir(parents=True)  # where a disk would be mounted
    with pytest.raises(LogError, match=said):
        list(made.read(part))


def test_a_directory_in_an_extents_place_is_said_with_what_to_do(path: Path, tmp_path: Path) -> None:
    log = logs.copy(path, tmp_path / "log")
    made = table(asked({"path": str(log)}))
    planned = parts(made)
    stream = LimitedLogStream(made.asked, ARROW)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    extent = next(file for file in logs.files(log) if file.suffix == ".LOG" and file.parent.name == "archive")
    extent.unlink()
    extent.mkdir()
    said = (
        f"a file can't be used: Is a directory: {extent}; a directory lies where a file is wanted: move it away, and "
        "put the file there"
    )
    for read_it in (
        made.partitions,
        lambda: [list(made.read(part)) for part in planned],
        LimitedLogStream(made.asked, ARROW).initialOffset,
        lambda: stream.partitions(start, end),
    ):
        with pytest.raises(FileUnusable) as caught:
            read_it()
        assert str(caught.value) == said
    assert explain(caught.value) == (71, f"AMQ7002S: {said}")


def test_a_directory_beside_an_extent_hides_nothing(path: Path, tmp_path: Path, rows: list[logs.Row]) -> None:
    log = logs.copy(path, tmp_path / "log")
    for file in logs.files(log):
        if file.parent.name == "archive":
            (log / "active" / file.name.removesuffix(".gz")).mkdir()
    made = table(asked({"path": str(log)}))
    assert read(made) == rows
    stream = LimitedLogStream(made.asked, ARROW)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    found = sum(batch.num_rows for part in stream.partitions(start, end) for batch in stream.read(part))
    assert found == len(rows)


def test_places_cut_the_table(path: Path, rows: list[logs.Row]) -> None:
    one, other = rows[len(rows) // 4], rows[3 * len(rows) // 4]
    between = [row for row in rows if one["lsn"] <= row["lsn"] < other["lsn"]]
    named = f"0:0:{one['lsn'] >> 16}:{one['lsn'] & 0xFFFF}"
    assert read(table(options(path, startingLsn=named, endingLsn=str(other["lsn"])))) == between
    moments = {"startingTime": one["time"].isoformat(), "endingTime": other["time"].isoformat()}
    assert read(table(options(path, **moments))) == between
    assert read(table(options(path, startingTime="2999-01-01"))) == []
    assert read(table(options(path, startingLsn="oldest", endingLsn="latest"))) == rows
    with pytest.raises(Mistake, match=r"reading is to begin at <0:0:\d+:\d+> and to end before that, at <0:0:\d+:\d+>"):
        read(table(options(path, startingLsn=str(other["lsn"]), endingLsn=named)))


def test_a_table_ends_where_the_log_is_durable_and_begins_before_that(path: Path, rows: list[logs.Row]) -> None:
    end = rows[-1]["end_lsn"]
    for beyond in (end, end + 8, end + 4096, end + 5 * EXTENT):
        assert read(table(options(path, endingLsn=str(beyond)))) == rows
    assert read(table(options(path, startingLsn=str(end)))) == []
    for beyond in (end + 8, end + 5 * EXTENT):
        with pytest.raises(Mistake, match=r"the log in .*active ends at <0:0:\d+:\d+>, before <"):
            read(table(options(path, startingLsn=str(beyond))))


def test_a_table_of_a_time_that_comes_after_it_was_loaded_stays_empty(tmp_path: Path) -> None:
    clock = SimClock()
    qmgr.create(NAME, data_path=tmp_path, clock=clock, **logs.LINEAR)
    with qmgr.start(NAME, data_path=tmp_path, clock=clock, background=False) as qm:
        qm.define_queue("A")
        said = options(tmp_path, startingTime="2200-01-01", endingTime="2200-01-02")
        log = table(attrs.evolve(said, loaded=said.log().end()))
        assert read(log) == []
        for moment in (datetime.datetime(2199, 12, 31, 12), datetime.datetime(2200, 1, 1, 12)):
            clock.advance(microseconds(moment.replace(tzinfo=datetime.UTC)) // 1_000_000 - clock.wall // 1_000_000)
            qm.put("A", b"x")
        assert len([row for row in read(table(said)) if row["kind"] == "PUT"]) == 1
        assert read(log) == []


def test_rows_that_need_no_names_have_no_past_read(path: Path, tmp_path: Path, rows: list[logs.Row]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for file in logs.files(path):
        shutil.copy(file, folder)
    columns = ("lsn", "kind", "object_number")
    disk = logs.CountingDisk()
    since = rows[-1]["lsn"] // EXTENT * EXTENT
    last = table(asked({"path": str(folder), "startingLsn": str(since)}), columns=columns)
    found = read(last, disk)
    assert found == [{name: row[name] for name in columns} for row in rows if row["lsn"] >= since]
    assert disk.of_extents < 6 * EXTENT  # of nine
    assert not list(folder.glob("*.IDX"))


def test_objects_and_kinds_are_options(path: Path, rows: list[logs.Row]) -> None:
    found = read(table(options(path, objects="Q0, Q2", kinds="GET,EXPIRE")))
    assert found == [row for row in rows if row["object"] in ("Q0", "Q2") and row["kind"] in ("GET", "EXPIRE")]
    assert found


HOUR = datetime.timedelta(hours=1)
QUESTIONS: dict[str, tuple[list[Filter], float]] = {
    "an hour of the day": (
        [GreaterThanOrEqual(("time",), BEGAN + 4 * HOUR), LessThan(("time",), BEGAN + 5 * HOUR)],
        0.15,
    ),
    "one queue of three": ([EqualTo(("object",), "Q1")], 0.6),
    "a queue that is not there": ([In(("object",), ("NOBODY",))], 0.0),
    "a range of the log": ([GreaterThan(("lsn",), 3 * EXTENT), LessThanOrEqual(("lsn",), 4 * EXTENT)], 0.05),
    "definitions": ([EqualTo(("kind",), "DEFINE")], 0.01),
}
WHATEVER = QUESTIONS["a queue that is not there"][0]


@pytest.mark.parametrize("question", QUESTIONS)
def test_filters_spare_extents(path: Path, rows: list[logs.Row], question: str) -> None:
    """What is read is what is asked for, and no more than that share of the bytes of a full reading.

    The newest extents have no index, and are read whatever is asked for: less than a quarter of all here.
    """
    filters, share = QUESTIONS[question]
    full, least, disk = CountingDisk(), CountingDisk(), CountingDisk()
    read(table(options(path)), full)
    read(table(options(path), *WHATEVER), least)
    assert least.of_extents < full.of_extents / 4
    found = read(table(options(path), *filters), disk)
    assert found == [row for row in rows if all(passes(row, one) for one in filters)]
    assert disk.of_extents - least.of_extents <= share * full.of_extents


def passes(row: logs.Row, one: Filter) -> bool:
    match one:
        case EqualTo((name,), value):
            return bool(row[name] == value)
        case In((name,), values):
            return row[name] in values
        case GreaterThan((name,), value):
            return bool(row[name] > value)
        case GreaterThanOrEqual((name,), value):
            return bool(row[name] >= value)
        case LessThan((name,), value):
            return bool(row[name] < value)
        case LessThanOrEqual((name,), value):
            return bool(row[name] <= value)
    raise AssertionError(one)


NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
NOON_US = 1_795_262_400_000_000


@pytest.mark.parametrize(
    ("filters", "narrow"),
    [
        ([EqualTo(("lsn",), 8)], Filters(low_lsn=8, high_lsn=9)),
        ([GreaterThan(("lsn",), 8), GreaterThanOrEqual(("lsn",), 8)], Filters(low_lsn=9)),
        ([LessThan(("lsn",), 8), LessThanOrEqual(("lsn",), 8)], Filters(high_lsn=8)),
        ([In(("lsn",), (32, 8, 16))], Filters(low_lsn=8, high_lsn=33)),
        ([EqualTo(("time",), NOON)], Filters(low_time=NOON_US, high_time=NOON_US + 1)),
        ([GreaterThan(("time",), NOON.replace(tzinfo=None))], Filters(low_time=NOON_US + 1)),
        ([EqualTo(("object",), "A")], Filters(objects=frozenset("A"))),
        ([In(("object",), ("A", "B")), In(("object",), ("B", "C"))], Filters(objects=frozenset("B"))),
        ([In(("kind",), ("PUT", None))], Filters(kinds=frozenset({"PUT"}))),
        ([GreaterThan(("object",), "A"), LessThan(("kind",), "PUT")], Filters()),
        ([Not(EqualTo(("object",), "A")), IsNotNull(("lsn",)), StringStartsWith(("object",), "A")], Filters()),
        ([EqualTo(("body_length",), 3), EqualTo(("properties", "lsn"), 3), EqualTo(("lsn",), None)], Filters()),
    ],
)
def test_filters_of_spark_as_ranges_and_sets(filters: list[Filter], narrow: Filters) -> None:
    found = Filters()
    for one in filters:
        found = narrowed(found, one)
    assert found == narrow


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs a path"),
        ({"startLsn": "1"}, "has no option 'startLsn'; it has path, qmgr, columns"),
        ({"startingLsn": "1:2:3"}, "startingLsn is an LSN as a number or as 0:0:4615:42406, 'oldest' or 'latest', not"),
        ({"startingLsn": str(1 << 64)}, "startingLsn is an LSN as a number or as 0:0:4615:42406"),
        ({"endingLsn": "9" * 5000}, "endingLsn is an LSN as a number or as 0:0:4615:42406"),
        ({"startingLsn": "1", "startingTime": "2026-01-01"}, "startingLsn or startingTime, not both"),
        ({"endingTime": "noon"}, "endingTime is a moment such as 2026-11-21T14:30:00"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger is a number of bytes"),
        ({"maxBytesPerTrigger": "9" * 5000}, "maxBytesPerTrigger is a number of bytes"),
        ({"maxBytesPerTrigger": "many"}, "such as 67108864 or 64m, not 'many'"),
        ({"pushdown": "yes"}, "pushdown is true or false, not 'yes'"),
        ({"columns": "lsn,nothing"}, "no column 'nothing'"),
        ({"columns": "lsn, LSN"}, "column 'lsn' was asked for twice"),
        ({"columns": " , "}, "no column was asked for"),
        ({"kinds": "PUT,PUSH"}, "no rows of kind 'PUSH'; there are PUT, GET, EXPIRE"),
        ({"kinds": "PUT_MANY"}, "no rows of kind 'PUT_MANY'"),
        ({"kinds": ""}, "objects or kinds names none"),
        ({"objects": " , "}, "objects or kinds names none"),
    ],
)
def test_wrong_options_are_refused_with_what_is_right(given: dict[str, str], said: str) -> None:
    with pytest.raises(Mistake, match=said.replace("(", r"\(")):
        asked(given if said == "needs a path" else {"path": "/data", **given})


@pytest.mark.parametrize("most", [(1 << 63) - 1, 1 << 64])
def test_a_batch_may_have_as_many_bytes_as_java_can_count_which_is_no_limit(most: int) -> None:
    assert asked({"path": "/x", "maxBytesPerTrigger": str(most)}).max_bytes == most


def test_options_have_any_case_and_the_units_of_spark() -> None:
    found = asked({"PATH": "/data", "MaxBytesPerTrigger": "64m", "STARTINGLSN": " 0:0:1:2 ", "pushdown": "TRUE"})
    assert (found.max_bytes, found.start, found.pushdown) == (64 << 20, 65538, True)
    assert asked({"path": "/data", "startingTime": "2026-11-21T13:00:00+01:00"}).start == NOON


def test_a_beginning_that_is_gone_is_refused(path: Path, tmp_path: Path) -> None:
    log = logs.copy(path, tmp_path / "log")
    logs.files(log)[0].unlink()
    place = EXTENT + 4096
    with pytest.raises(NotInLog, match=r"S0000000\.LOG, can't be read: put that extent.*or begin with 'oldest'"):
        read(table(asked({"path": str(log), "startingLsn": str(place)})))


def test_a_path_may_be_relative_or_of_a_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("HOME", str(path.parent))
    first = [part.value.start for part in parts(table(options(path)))]
    for text in (path.name, f"./{path.name}/", f"~/{path.name}"):
        assert [part.value.start for part in parts(table(options(Path(text))))] == first


def test_what_workers_get_is_small_and_names_its_module(path: Path) -> None:
    made = table(options(path), EqualTo(("object",), "Q1"))
    sent = dumps((made, LogSource))
    assert b"pipeline.log_table" in sent and b"pipeline.log_source" in sent
    assert len(sent) < 5000
    again, _ = pickle.loads(sent)
    [part, *_] = pickle.loads(pickle.dumps(parts(made)))
    assert [row["object"] for batch in again.read(part) for row in batch.to_pylist()] == [
        row["object"] for row in read(made) if part.value.start <= row["lsn"] < part.value.end
    ]


def test_arrow_types_are_those_that_spark_expects() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    schema = from_arrow_schema(ARROW)
    assert to_arrow_schema(schema, timezone="UTC").equals(ARROW)
    assert target_of(schema).equals(ARROW)
    named = StructType([StructField("Lsn", LongType(), nullable=False), StructField("kind", StringType())])
    assert target_of(named).equals(to_arrow_schema(named, timezone="UTC"))
    with pytest.raises(Mistake, match="column 'kind' is STRING, not INT"):
        target_of(StructType([StructField("kind", IntegerType())]))


def test_a_null_is_refused_where_the_schema_has_none(path: Path) -> None:
    schema = StructType([StructField("kind", StringType()), StructField("UOW", LongType(), nullable=False)])
    made = LogTable(options(path), target_of(schema))
    with pytest.raises(Mistake, match="column 'UOW' has rows where it is null; leave out NOT NULL in its schema"):
        read(made)
    made.filters = Filters(kinds=frozenset(["COMMIT"]))
    assert [row["kind"] for row in read(made)][:2] == ["COMMIT", "COMMIT"]


def test_a_part_is_of_one_type_whatever_it_holds(path: Path) -> None:
    made = LogTable(options(path), arrow_of(("properties", "bases", "time")))
    found = {batch.schema for part in parts(made) for batch in made.read(part)}
    assert found == {made.target}


def test_what_a_worker_has_loaded_is_not_looked_through_after_each_task(path: Path) -> None:
    made = table(options(path), columns=("lsn",))
    gc.unfreeze()
    try:
        assert [batch for part in parts(made) for batch in made.read(part)]
        kept = gc.get_freeze_count()
        assert kept > 10 * len(gc.get_objects())
        assert [batch for part in parts(made) for batch in made.read(part)]
        assert gc.get_freeze_count() <= kept, "only what the first task has left is kept"
    finally:
        gc.unfreeze()


def test_a_table_is_read_while_the_queue_manager_works(tmp_path: Path) -> None:
    """Every message that was acknowledged is there, at every moment; nothing that is there goes away again."""
    qmgr.create(NAME, data_path=tmp_path, **logs.LINEAR)
    columns = ("lsn", "position", "kind", "body")
    seen: list[Any] = []
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        for number in range(3):
            qm.define_queue(f"Q{number}")
        for hour in range(4):
            logs.work(qm, hour)
            now = read(table(options(tmp_path), columns=columns))
            assert now[: len(seen)] == seen
            seen = now
            puts = [row["body"].split()[0] for row in now if row["kind"] == "PUT"]
            assert len(puts) == (hour + 1) * logs.A_TIME
            qm.archive_log()
            qm.compress_log()


@pytest.mark.parametrize("end", [{}, {"endingLsn": "999999999"}, {"endingTime": "2999-01-01"}])
def test_each_use_of_a_table_shows_what_there_was_when_it_was_loaded(
    spark: "SparkSession", tmp_path: Path, end: dict[str, str]
) -> None:
    qmgr.create(NAME, data_path=tmp_path, **logs.LINEAR)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("A")
        qm.put("A", b"1")

        def load() -> "DataFrame":
            return spark.read.format("qmgr.log").options(qmgr=NAME, **end).load(str(tmp_path))

        def counts(log: "DataFrame") -> tuple[int, ...]:
            puts = log.where("kind = 'PUT'")
            return log.count(), puts.count(), log.select("lsn").count(), log.where("kind = 'DEFINE'").count()

        log = load()
        qm.put_many("A", [b"2"] * 10)
        before = counts(log)
        assert before[1] == 1
        qm.put_many("A", [b"3"] * 10)
        assert counts(log) == before
        assert log.count() == before[0]
        assert counts(load())[1] == 21


def test_what_the_benchmark_sums_up_is_a_whole_number_of_each_column(spark: "SparkSession") -> None:
    """Else Spark's sums, and those of one plain process, are not the same."""
    nothing = spark.createDataFrame([], DDL).selectExpr(*map(summed, COLUMNS))
    assert {field.dataType.simpleString() for field in nothing.schema} == {"bigint"}
