"""The log as a stream: nothing is lost or comes twice, whoever ends and begins again, wherever the log lies."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

import qmgr
from logger import control, lsn
from logger.errors import ExtentGone, LogDamaged
from logger.extent import file_name, linear_number
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile
from pipeline import opened
from pipeline.limited_log_stream import LimitedLogStream
from pipeline.log_options import asked, microseconds, target_of
from pipeline.log_source import LogSource
from pipeline.log_stream import LogStream, Offset, UnlimitedLogStream
from pipeline.log_table import rows_in
from pipeline.schema import ARROW, COLUMNS, arrow_of
from qmgr.errors import Mistake
from recovery import extent_index
from tests.pipeline import logs
from tests.pipeline.logs import EXTENT, options, read, table
from tests.qmgr.world import NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = "lsn BIGINT, position INT, kind STRING, uow BIGINT, object STRING, message_id BINARY"
MANY = 60  # messages in each life of the queue manager


class Putter:
    """A queue manager in a process of its own that is put to until the process is killed, where the `with` ends."""

    def __init__(self, path: Path, first: int) -> None:
        command = [sys.executable, "-m", "tests.pipeline.putter", str(path), str(first)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def wait(self, messages: int) -> int:
        """Until so many more are safe; the number of the next one."""
        assert self.process.stdout is not None
        line = ""
        for _ in range(messages):
            line = self.process.stdout.readline()
            assert line, "the queue manager ended by itself"
        return int(line) + 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


class Copying:
    """The streaming query of these tests: rows of the log to Parquet files. Each start is a restart."""

    def __init__(self, spark: "SparkSession", path: Path, to: Path) -> None:
        self.spark, self.path, self.to = spark, path, to

    def start(self, **more: str) -> "StreamingQuery":
        source = self.spark.readStream.schema(SCHEMA).format("qmgr.log").options(qmgr=NAME, **more).load(str(self.path))
        writer = source.writeStream.format("parquet").option("checkpointLocation", f"{self.to}/checkpoint")
        if "maxBytesPerTrigger" in more:
            writer = writer.trigger(availableNow=True)
        return writer.start(f"{self.to}/rows")

    def catch_up(self) -> int:
        """With all that is there; the number of batches."""
        query = self.start(maxBytesPerTrigger="200k")
        query.awaitTermination()
        return len([progress for progress in query.recentProgress if progress["numInputRows"]])

    def rows(self) -> list[logs.Row]:
        found = self.spark.read.parquet(f"{self.to}/rows").collect()
        return sorted((row.asDict() for row in found), key=lambda row: (row["lsn"], row["position"]))


def made_visible(rows: list[logs.Row], queue: str) -> list[tuple[int, bytes]]:
    """(where it became visible, its id) of each message that was put to the queue and committed, in that order."""
    commits = {row["uow"]: row["lsn"] for row in rows if row["kind"] == "COMMIT"}
    puts = [row for row in rows if row["kind"] == "PUT" and row["object"] == queue]
    found = [(row["lsn"] if row["uow"] is None else commits.get(row["uow"]), row["message_id"]) for row in puts]
    return sorted(((lsn, one) for lsn, one in found if lsn is not None), key=lambda pair: pair[0])


def test_neither_kills_nor_restarts_nor_archiving_lose_or_repeat_a_message(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = tmp_path / "data"
    qmgr.create(NAME, data_path=path, **logs.LINEAR)
    with qmgr.start(NAME, data_path=path) as qm:
        qm.define_queue("A")
        qm.define_queue("B")
    copying = Copying(spark, path, tmp_path)

    with Putter(path, 0) as putter:
        number = putter.wait(MANY)
        assert copying.catch_up() > 1  # while it is put to
    query = copying.start()
    with Putter(path, number) as putter:
        number = putter.wait(MANY)
    query.processAllAvailable()
    with qmgr.start(NAME, data_path=path) as qm:  # while the query runs
        qm.record_image()
        qm.checkpoint()
        qm.checkpoint()
        assert qm.archive_log().done
        assert qm.compress_log().done
        qm.put("A", b"after archiving")
        query.processAllAvailable()
    told = query.lastProgress["sources"][0]
    assert told["endOffset"] == told["latestOffset"]
    query.stop()

    with Putter(path, number) as putter:
        putter.wait(MANY)
    with qmgr.start(NAME, data_path=path) as qm:
        copying.catch_up()
        rows = copying.rows()
        assert [(row["lsn"], row["position"]) for row in rows] == [
            (row["lsn"], row["position"]) for row in read(table(options(path), columns=("lsn", "position")))
        ]
        for queue in ("A", "B"):
            replayed = [(one.lsn, one.message.message_id) for one in qm.replay(queue, "oldest")]
            assert [(lsn, bytes(one)) for lsn, one in made_visible(rows, queue)] == replayed
            assert len(replayed) > MANY


def test_what_a_stream_refuses_stops_the_query_with_the_sentence(spark: "SparkSession", tmp_path: Path) -> None:
    logs.make(tmp_path / "data")
    log = logs.copy(tmp_path / "data", tmp_path / "log")
    logs.files(log)[0].unlink()
    source = spark.readStream.format("qmgr.log").option("startingLsn", str(EXTENT)).load(str(log))
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match=r"NotInLog: .*<0:0:4:0>, in S0000000\.LOG, can't be read"):
        query.awaitTermination(60)


# As Spark asks


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("past")
    logs.make(made)
    return made


def stream(path: Path, **more: str) -> LimitedLogStream:
    return LimitedLogStream(options(path, **more), ARROW)


def batch(reader: LogStream, start: Offset, end: Offset) -> list[logs.Row]:
    return [
        row
        for partition in reader.partitions(start, end)
        for made in rows_in(partition, reader.target)
        for row in made.to_pylist()
    ]


def batches(reader: LimitedLogStream, start: Offset | None = None) -> Iterator[tuple[Offset, Offset, list[logs.Row]]]:
    """What a query does that ends when there is nothing more: (from, to, rows) of each batch."""
    at = reader.initialOffset() if start is None else start
    while True:
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        if end == at:
            return
        yield at, end, batch(reader, at, end)
        at = end


def test_batches_have_no_more_bytes_than_allowed_and_all_rows_once(past: Path) -> None:
    limit = 100_000
    found = list(batches(stream(past, maxBytesPerTrigger=str(limit))))
    assert len(found) > 10
    assert all(end["lsn"] - start["lsn"] <= limit for start, end, _ in found)
    assert [row for _, _, rows in found for row in rows] == read(table(options(past)))


def test_a_record_that_is_longer_than_the_limit_is_a_batch_of_its_own(past: Path) -> None:
    found = list(batches(stream(past, maxBytesPerTrigger="1k", startingLsn=str(8 * EXTENT))))
    assert max(end["lsn"] - start["lsn"] for start, end, _ in found) > 7000
    assert [row for _, _, rows in found for row in rows] == read(table(options(past, startingLsn=str(8 * EXTENT))))


def test_without_a_limit_all_that_is_there_is_one_batch(past: Path) -> None:
    reader = stream(past)
    assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    [(_, end, rows)] = batches(reader)
    assert rows == read(table(options(past)))
    assert reader.reportLatestOffset() == end


def test_a_limit_of_sparks_own_goes_before_the_option(past: Path) -> None:
    reader = stream(past, maxBytesPerTrigger="1k")
    first = reader.initialOffset()
    assert reader.latestOffset(first, ReadAllAvailable())["lsn"] > first["lsn"] + EXTENT
    assert reader.latestOffset(first, ReadMaxBytes(50_000))["lsn"] > first["lsn"] + 40_000


def test_it_begins_where_it_is_told_to(past: Path) -> None:
    rows = read(table(options(past)))
    middle = rows[len(rows) // 2]
    since = [row for row in rows if row["lsn"] >= middle["lsn"]]
    for place in ({"startingLsn": str(middle["lsn"])}, {"startingTime": middle["time"].isoformat()}):
        [(_, _, found)] = batches(stream(past, **place))
        assert found == since
    [(_, noted, found)] = batches(stream(past, startingLsn="latest"))
    assert (found, noted["time"]) == ([], microseconds(rows[-1]["time"])), "a batch that notes the place"
    assert stream(past, startingLsn="oldest").initialOffset() == stream(past).initialOffset()


class AsSpark:
    """How Spark asks, over a queue manager that is put to before each answer; it keeps the ends of batches, no more."""

    def __init__(self, qm: qmgr.QueueManager, path: Path, **options: str) -> None:
        self.qm, self.path, self.options = qm, path, options
        self.ends: list[Offset] = []
        self.rows: list[logs.Row] = []

    def put(self) -> None:
        self.qm.put("A", b"while it asks")

    def plan(self, reader: LimitedLogStream) -> None:
        """A batch."""
        start = self.ends[-1] if self.ends else reader.initialOffset()
        self.put()
        self.ends.append(reader.latestOffset(start, reader.getDefaultReadLimit()))

    def run(self, reader: LimitedLogStream) -> None:
        """The batch that was planned last."""
        self.put()
        start = self.ends[-2] if len(self.ends) > 1 else reader.initialOffset()
        self.put()
        self.rows += batch(reader, start, self.ends[-1])

    def start(self, *, to_its_end: bool) -> LimitedLogStream:
        reader = stream(self.path, **self.options)
        if to_its_end:
            reader.prepareForTriggerAvailableNow()
        self.put()
        return reader


@pytest.mark.parametrize("to_its_end", [False, True])
@pytest.mark.parametrize("place", [{"startingLsn": "latest"}, {"startingTime": "2999-01-01"}])
def test_a_query_that_begins_with_what_comes_begins_so_over_a_log_that_goes_on(
    tmp_path: Path, place: dict[str, str], to_its_end: bool
) -> None:
    """Also when its first batch is run again, which Spark asks for a beginning once more."""
    qmgr.create(NAME, data_path=tmp_path, **logs.LINEAR)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("A")
        query = AsSpark(qm, tmp_path, **place)
        reader = query.start(to_its_end=to_its_end)
        query.plan(reader)
        began = query.ends[0]["lsn"]
        query.run(reader)  # and then it is killed
        reader = query.start(to_its_end=to_its_end)
        query.rows.clear()
        for _ in range(3):
            query.run(reader)
            query.plan(reader)
        query.run(reader)
        last = query.ends[-1]["lsn"]
        assert query.rows == [row for row in read(table(options(tmp_path))) if began <= row["lsn"] < last] != []


def test_spark_4_1_begins_with_what_comes_too(tmp_path: Path) -> None:
    """It asks how far the log reaches before it asks where to begin."""
    qmgr.create(NAME, data_path=tmp_path, **logs.LINEAR)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("A")
        for _ in range(2):  # the first batch, and the same batch again
            reader = UnlimitedLogStream(options(tmp_path, startingLsn="latest"), ARROW)
            end = reader.latestOffset()
            qm.put("A", b"while it asks")
            assert batch(reader, reader.initialOffset(), end) == []
        again = UnlimitedLogStream(options(tmp_path, startingLsn="latest"), ARROW)
        assert batch(again, again.initialOffset(), end) == []


def test_rows_of_a_stream_can_be_chosen(past: Path) -> None:
    found = [row for _, _, rows in batches(stream(past, objects="Q1", kinds="GET")) for row in rows]
    assert found == read(table(options(past, objects="Q1", kinds="GET"))) != []


def test_it_ends_with_what_was_there_when_it_is_to_end(tmp_path: Path) -> None:
    """What is put while it runs is for the next run."""
    qmgr.create(NAME, data_path=tmp_path, **logs.LINEAR)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        for number in range(3):
            qm.define_queue(f"Q{number}")
        logs.work(qm, 0)
        reader = stream(tmp_path, maxBytesPerTrigger="50k")
        reader.prepareForTriggerAvailableNow()
        there = read(table(options(tmp_path)))
        found = []
        for _, last, rows in batches(reader):  # noqa: B007
            found += rows
            qm.put("Q1", b"while it runs")
        assert found == there
        again = stream(tmp_path)
        again.prepareForTriggerAvailableNow()
        assert there + [row for _, _, rows in batches(again, last) for row in rows] == read(table(options(tmp_path)))


def test_an_offset_outlives_crashes_of_the_queue_manager(tmp_path: Path) -> None:
    """Each batch ends somewhere in the newest page, which the next life goes on with."""
    qmgr.create(NAME, data_path=tmp_path, **logs.LINEAR)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("A")
        qm.define_queue("B")
    found: list[logs.Row] = []
    at, number = stream(tmp_path).initialOffset(), 0
    for _ in range(4):
        reader = stream(tmp_path)
        with Putter(tmp_path, number) as putter:
            number = putter.wait(5)
            for _ in range(3):
                end = reader.latestOffset(at, ReadAllAvailable())
                found += batch(reader, at, end)
                at = end
    for _, _, rows in batches(stream(tmp_path), at):
        found += rows
    assert found == read(table(options(tmp_path)))


def test_an_extent_that_is_gone_is_named_with_what_to_do(past: Path, tmp_path: Path) -> None:
    log = logs.copy(past, tmp_path / "log")
    reader = LimitedLogStream(asked({"path": str(log)}), ARROW)
    start = reader.initialOffset()
    for file in logs.files(log)[:2]:
        file.unlink()
    said = r"S0000000\.LOG is missing.*restore it from a backup.*or begin a query with a new checkpoint"
    with pytest.raises(ExtentGone, match=said):
        reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(ExtentGone, match=said):
        reader.partitions(start, reader.offset(4 * EXTENT))


def test_an_offset_at_the_end_of_an_extent_is_there_before_the_next_one_is(past: Path, tmp_path: Path) -> None:
    log = logs.copy(past, tmp_path / "log")

    def stream_now() -> LimitedLogStream:
        return LimitedLogStream(asked({"path": str(log)}), ARROW)

    *_, before, last = stream_now().log().history(PosixDisk()).places().values()
    Path(last.path).unlink()
    end = last.sequence * EXTENT
    assert [stream_now().is_there(at) for at in (end, end + 8)] == [True, False]
    Path(before.path).unlink()
    assert not stream_now().is_there(end)


def test_a_first_batch_that_is_run_again_when_all_of_it_is_gone_says_so(past: Path, tmp_path: Path) -> None:
    log = logs.copy(past, tmp_path / "log")
    reader = LimitedLogStream(asked({"path": str(log)}), ARROW)
    end = reader.offset(2 * EXTENT)
    for file in logs.files(log)[:3]:
        file.unlink()
    with pytest.raises(ExtentGone, match=r"is missing.*or begin a query with a new checkpoint"):
        reader.partitions(reader.initialOffset(), end)


@pytest.mark.parametrize("place", ["startingTime", "startingLsn", "oldest"])
@pytest.mark.parametrize("kind", [LimitedLogStream, UnlimitedLogStream])
def test_a_first_batch_that_is_run_again_when_its_beginning_is_gone_says_so(
    past: Path, tmp_path: Path, place: str, kind: type[LogStream]
) -> None:
    """Spark keeps its end alone, and asks once more where to begin: that was another place by then."""
    log = logs.copy(past, tmp_path / "log")
    row = next(row for row in read(table(options(past))) if row["lsn"] > 2 * EXTENT)
    given = {"startingTime": {"startingTime": row["time"].isoformat()}, "startingLsn": {"startingLsn": str(row["lsn"])}}

    def reader() -> LogStream:
        return kind(asked({"path": str(log)} | given.get(place, {})), ARROW)

    first = reader()
    if isinstance(first, LimitedLogStream):
        end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    else:
        assert isinstance(first, UnlimitedLogStream)
        end = first.latestOffset()
    rows = batch(first, first.initialOffset(), end)
    again = reader()
    assert batch(again, again.initialOffset(), end) == rows
    for file in logs.files(log)[:4]:
        file.unlink()
    with pytest.raises(LogDamaged, match=r"S000000\d\.LOG"):
        again = reader()
        again.partitions(again.initialOffset(), end)


def test_an_extent_that_is_missing_on_the_way_is_not_jumped(past: Path, tmp_path: Path) -> None:
    log = logs.copy(past, tmp_path / "log")
    missing = logs.files(log)[3]
    missing.unlink()
    reader = LimitedLogStream(
        asked({"path": str(log), "startingLsn": str(EXTENT), "maxBytesPerTrigger": "100k"}), ARROW
    )
    start: Offset = {"lsn": EXTENT}
    found = []
    with pytest.raises(LogDamaged, match=f"{missing.name.removesuffix('.gz')} is missing"):
        for _, _, rows in batches(reader, start):
            found += rows
    everything = [row["lsn"] for row in read(table(options(past)))]
    assert [row["lsn"] for row in found] == everything[: len(found)]
    assert 3 * EXTENT < found[-1]["lsn"] < 4 * EXTENT


def test_the_offset_of_another_log_is_refused(past: Path, tmp_path: Path) -> None:
    qmgr.create(NAME, data_path=tmp_path, **logs.LINEAR)
    with pytest.raises(Mistake, match="the query's checkpoint is of another log"):
        stream(tmp_path).latestOffset(stream(past).initialOffset(), ReadAllAvailable())


@pytest.mark.parametrize("offset", [{"lsn": "abc"}, {"lsn": None}, {}, [], {"lsn": -8}, {"lsn": 1.5}])
def test_what_is_no_offset_is_refused(past: Path, offset: Any) -> None:
    with pytest.raises(Mistake, match=r"the query's checkpoint has .* which is none"):
        stream(past).latestOffset(offset, ReadAllAvailable())


def test_an_older_copy_of_the_log_is_refused(past: Path, tmp_path: Path) -> None:
    reader = stream(past)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    ahead = reader.offset(int(end["lsn"]) + 80)
    with pytest.raises(LogDamaged, match="it is an older copy; put back the one that was read"):
        stream(past).latestOffset(ahead, ReadAllAvailable())


def test_a_past_that_is_another_one_is_refused(past: Path, tmp_path: Path) -> None:
    """A queue manager that was put back from an older copy, and has logged more since than the query has read."""
    data = tmp_path / "data"
    qmgr.create(NAME, data_path=data, **logs.LINEAR)
    life(data, 10, 100)
    old = tmp_path / "old"
    shutil.copytree(data, old)
    middle = int(stream(data).initialOffset()["lsn"]), log_end(data)
    life(data, 10, 200)
    reader = stream(data)
    read_up_to = reader.offset(log_end(data))
    shutil.rmtree(data)
    old.rename(data)
    life(data, 30, 304)
    end = stream(data).latestOffset(read_up_to, ReadAllAvailable())
    for start, last in ((read_up_to, end), (reader.offset(middle[1]), read_up_to)):
        for kind in (LimitedLogStream, UnlimitedLogStream):
            with pytest.raises(LogDamaged, match=f"up to {lsn.text(int(read_up_to['lsn']))}, and no record ends there"):
                kind(options(data), ARROW).partitions(start, last)
    again = stream(data)
    assert batch(again, reader.offset(middle[1]), end), "up to the copy the past is the same"


@pytest.mark.parametrize("kind", [LimitedLogStream, UnlimitedLogStream])
def test_a_past_that_is_another_one_is_refused_where_its_records_end_in_the_same_places(
    kind: type[LimitedLogStream | UnlimitedLogStream], tmp_path: Path
) -> None:
    """Messages of one length make logs that differ in nothing but when they were made."""
    data, old = tmp_path / "data", tmp_path / "old"
    qmgr.create(NAME, data_path=data, **logs.LINEAR)
    life(data, 10, 100)
    shutil.copytree(data, old)
    middle = looked(kind(options(data), ARROW))
    life(data, 10, 100)
    read_up_to = looked(kind(options(data), ARROW))
    shutil.rmtree(data)
    old.rename(data)
    life(data, 10, 100)
    assert log_end(data) == int(read_up_to["lsn"])
    life(data, 10, 100)
    end = looked(kind(options(data), ARROW))
    said = f"up to {lsn.text(int(read_up_to['lsn']))}, and another record ends there now"
    for start, last in ((read_up_to, end), (middle, read_up_to)):
        with pytest.raises(LogDamaged, match=said):
            kind(options(data), ARROW).partitions(start, last)
    assert kind(options(data), ARROW).partitions(middle, end), "up to the copy the past is the same"
    before = {name: value for name, value in read_up_to.items() if name in ("lsn", "log")}
    assert kind(options(data), ARROW).partitions(before, end), "an offset of an older version does not tell"


def looked(stream: LimitedLogStream | UnlimitedLogStream) -> Offset:
    """The offset of the log's end, as Spark keeps it."""
    if isinstance(stream, UnlimitedLogStream):
        found = stream.latestOffset()
    else:
        found = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        assert stream.latestOffset(found, ReadAllAvailable()) == found
    return dict(json.loads(json.dumps(found)))


def life(data: Path, messages: int, size: int) -> None:
    with qmgr.start(NAME, data_path=data, background=False) as qm:
        if not qm.queues():
            qm.define_queue("A")
        for _ in range(messages):
            qm.put("A", bytes(size))


def log_end(data: Path) -> int:
    return options(data).log().end()


def test_spark_4_1_gets_all_that_is_there(past: Path) -> None:
    """Its `latestOffset` has no parameters."""
    reader = UnlimitedLogStream(options(past, maxBytesPerTrigger="100k"), ARROW)
    first = reader.initialOffset()
    end = reader.latestOffset()
    assert batch(reader, first, end) == read(table(options(past)))
    assert reader.latestOffset() == end and batch(reader, end, end) == []
    with pytest.raises(LogDamaged, match="it is an older copy"):
        reader.partitions(reader.offset(int(end["lsn"]) + 80), end)


def test_an_older_copy_is_refused_by_a_query_that_is_to_end_and_where_a_batch_is_run_again(past: Path) -> None:
    reader = stream(past)
    reader.prepareForTriggerAvailableNow()
    first = reader.initialOffset()
    end = reader.latestOffset(first, ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    for ahead in (8, 5 * EXTENT):
        with pytest.raises(LogDamaged, match="it is an older copy; put back the one that was read"):
            reader.latestOffset(reader.offset(int(end["lsn"]) + ahead), ReadAllAvailable())
        for again in (reader, stream(past)):
            with pytest.raises(LogDamaged, match="it is an older copy"):
                again.partitions(first, reader.offset(int(end["lsn"]) + ahead))


def test_extents_that_are_gone_are_refused_by_a_query_that_is_to_end(past: Path, tmp_path: Path) -> None:
    log = logs.copy(past, tmp_path / "log")
    control = log / "amqhlctl.lfh"
    told = control.read_bytes()
    control.unlink()  # which says what was durable
    reader = LimitedLogStream(asked({"path": str(log)}), ARROW)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for file in logs.files(log)[1:]:
        file.unlink()
    again = LimitedLogStream(asked({"path": str(log)}), ARROW)
    again.prepareForTriggerAvailableNow()
    with pytest.raises(LogDamaged, match="it is an older copy"):
        again.latestOffset(end, ReadAllAvailable())
    with pytest.raises(LogDamaged, match="it is an older copy"):
        stream_of(log, reader).latestOffset(end, ReadAllAvailable())
    control.write_bytes(told)
    with pytest.raises(LogDamaged, match=r"S0000001\.LOG is missing"):
        LimitedLogStream(asked({"path": str(log)}), ARROW).prepareForTriggerAvailableNow()


def stream_of(log: Path, seen: LimitedLogStream) -> LimitedLogStream:
    """A query that has looked before."""
    made = LimitedLogStream(asked({"path": str(log)}), ARROW)
    made.known_end = seen.known_end
    return made


def test_a_beginning_behind_the_end_is_refused(past: Path) -> None:
    end = stream(past).latestOffset(stream(past).initialOffset(), ReadAllAvailable())["lsn"]
    assert stream(past, startingLsn=str(end)).initialOffset()["lsn"] == end
    with pytest.raises(Mistake, match=r"the log in .* ends at <0:0:\d+:\d+>, before <"):
        stream(past, startingLsn=str(int(end) + 8)).initialOffset()


def test_partitions_are_the_same_before_and_after_extents_are_indexed(past: Path, tmp_path: Path) -> None:
    log = logs.copy(past, tmp_path / "log")
    for file in log.rglob("*.IDX"):
        file.unlink()
    one = LimitedLogStream(asked({"path": str(log), "objects": "Q1", "kinds": "PUT"}), ARROW)
    first = one.initialOffset()
    end = one.latestOffset(first, ReadAllAvailable())

    def found() -> list[list[logs.Row]]:
        opened._indexes.clear()
        parts = one.partitions(first, end)
        return [[row for made in rows_in(part, one.target) for row in made.to_pylist()] for part in parts]

    before = found()
    assert [row for rows in before for row in rows] == read(table(one.asked)) != []
    assert [] in before, "a partition without rows keeps its number"
    files, disk = one.log(), PosixDisk()
    *sealed, _ = files.history(disk).places().values()
    _, state = control.read(disk, files.control)
    for place in sealed:
        extent_index.load_or_build(disk, files.history(disk), state, place)
    assert len(list(log.rglob("*.IDX"))) == len(sealed)
    assert found() == before


@pytest.mark.parametrize("where", ["", "folder"])
def test_an_idle_look_opens_few_files_and_lists_directories_once(
    past: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    log = logs.copy(past, tmp_path / "log")
    if where:
        (log / control.NAME).unlink()
    reader = LimitedLogStream(asked({"path": str(log)}), ARROW)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    opened: list[str] = []
    listed: list[str] = []
    opening, listing = PosixDisk.open_read, PosixDisk.list

    def open_read(self: PosixDisk, path: str) -> Any:
        if ".LOG" in path and Path(path).exists():
            opened.append(Path(path).name)
        return opening(self, path)

    def names(self: PosixDisk, path: str) -> Any:
        listed.append(path)
        return listing(self, path)

    monkeypatch.setattr(PosixDisk, "open_read", open_read)
    monkeypatch.setattr(PosixDisk, "list", names)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert min(opened) == file_name(linear_number(int(end["lsn"]) // EXTENT)), "none of the past"
    ahead = set(opened) - {min(opened)}  # files that are there for what comes
    assert len(opened) <= 4 + 2 * len(ahead)
    assert len(listed) == len(set(listed))


def test_an_idle_look_reads_little_and_the_next_record_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the log in the middle of an extent, and where the next extent is to be begun."""
    qmgr.create(NAME, data_path=str(tmp_path), log_type="linear", log_file_pages=256)
    with qmgr.start(NAME, data_path=str(tmp_path), background=False) as qm:
        qm.define_queue("A")
        reader = LimitedLogStream(asked({"path": str(tmp_path), "qmgr": NAME}), ARROW)
        size, lengths, places = 256 * 4096, list[int](), set[bool]()
        real, end = PosixFile.read, reader.initialOffset()

        def read(self: PosixFile, offset: int, size: int) -> bytes:
            data = real(self, offset, size)
            lengths.append(len(data))
            return data

        def look() -> Offset:
            return reader.latestOffset(end, ReadAllAvailable())

        monkeypatch.setattr(PosixFile, "read", read)
        for body in (b"", b"", bytes(900_000), *[bytes(9000)] * 20, b"", b""):
            qm.put("A", body)
            before, end = end, look()
            assert int(end["lsn"]) > int(before["lsn"])
            lengths.clear()
            assert look() == end
            assert sum(lengths) < 65536
            places.add(int(end["lsn"]) // size > int(before["lsn"]) // size)
        assert places == {True, False}


@pytest.mark.parametrize("option", ["endingLsn", "endingTime"])
def test_a_stream_has_no_end(past: Path, option: str) -> None:
    source = LogSource({"path": str(past), "qmgr": NAME, option: "2026-01-01" if option == "endingTime" else "8"})
    with pytest.raises(Mistake, match="a stream has no end"):
        source.streamReader(schema_of(COLUMNS))


def test_an_option_of_the_other_way_of_reading_is_refused(past: Path) -> None:
    path = {"path": str(past), "qmgr": NAME}
    with pytest.raises(Mistake, match=r"pushdown is for spark\.read"):
        LogSource(path | {"pushdown": "true"}).streamReader(schema_of(COLUMNS))
    with pytest.raises(Mistake, match=r"maxBytesPerTrigger is for spark\.readStream"):
        LogSource(path | {"maxBytesPerTrigger": "64m"}).reader(schema_of(COLUMNS))


def schema_of(columns: tuple[str, ...]) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(arrow_of(columns))
    assert target_of(schema) == arrow_of(columns)
    return schema
