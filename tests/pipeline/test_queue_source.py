"""Queues as tables and streams: what a browse shows, and what the log tells, as it is told by a replay."""

import errno
import pickle
import random
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

import qmgr
from logger import control
from logger.errors import ExtentGone, LogDamaged, LogError
from logger.posix_disk import PosixDisk
from pipeline import finding, queue_rows, visible
from pipeline.limited_log_stream import LimitedLogStream
from pipeline.limited_queue_stream import LimitedQueueStream
from pipeline.queue_source import QueueSource, stream
from pipeline.queue_stream import QueuePartition, UnlimitedQueueStream
from pipeline.schema import ARROW as LOG
from qmgr.errors import Mistake, Unavailable, UnknownQueue
from recovery import extent_index
from tests.pipeline.queues import said, serving
from tests.pipeline.works import Works, index
from tests.qmgr.world import DATA, NAME, Call
from tests.sim.loss import KEEP_ALL

Row = dict[str, Any]


def browsed(path: Path, target: pa.Schema = queue_rows.ARROW, queue: str = "A") -> list[pa.RecordBatch]:
    table = QueueSource(said(path, queue)).reader(StructType([StructField("body", BinaryType())]))
    table = pickle.loads(pickle.dumps(table))
    table.target = target
    [partition] = table.partitions()
    return list(table.read(partition))


def opened(path: Path, queue: str = "A", **more: str) -> LimitedQueueStream:
    made = stream(said(path, queue, **more), queue_rows.ARROW)
    assert isinstance(made, LimitedQueueStream)
    return made


def between(one: LimitedQueueStream, start: int, end: int) -> list[Row]:
    """What a batch of the stream has, read as a worker does."""
    found: list[Row] = []
    for partition in one.partitions({"lsn": start}, {"lsn": end}):
        for batch in one.read(pickle.loads(pickle.dumps(partition))):
            assert batch.schema.equals(queue_rows.ARROW)
            found += batch.to_pylist()
    return found


def told(qm: qmgr.QueueManager, queue: str = "A", start: Any = "oldest") -> list[tuple[Any, ...]]:
    """What a replay tells, as rows of a stream would tell it."""
    return [
        (one.lsn, one.place - 1, one.time, one.message.message_id, one.message.body)
        for one in qm.replay(queue, start, "now")
    ]


def as_told(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["lsn"], row["position"], row["time"], row["message_id"], row["body"]) for row in rows]


# ---- the table


def test_a_browse_shows_what_could_be_got_in_that_order(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    qm.put("A", b"low", priority=1)
    put = qm.put(
        "A",
        b"high",
        priority=9,
        persistent=False,
        expiry=3600.0,
        correlation_id=b"correl",
        reply_to="B",
        format="MQSTR",
        properties={"text": "x", "number": 7, "yes": True, "bytes": b"\x01\xff", "real": 1.5},
    )
    unit = qm.begin()
    unit.put("A", b"not committed")
    [batch] = browsed(tmp_path)
    assert batch.schema.equals(queue_rows.ARROW)
    high, low = batch.to_pylist()
    assert high == {
        "queue": "A",
        "lsn": None,
        "position": None,
        "time": None,
        "message_id": put.message_id,
        "correlation_id": b"correl".ljust(24, b"\0"),
        "priority": 9,
        "persistent": False,
        "put_time": put.put_time,
        "expiry": high["expiry"],
        "backout_count": 0,
        "properties": [("text", "x"), ("number", "7"), ("yes", "true"), ("bytes", "01ff"), ("real", "1.5")],
        "format": "MQSTR",
        "reply_to": "B",
        "body_length": 4,
        "body": b"high",
    }
    assert 3599 <= (high["expiry"] - put.put_time).total_seconds() <= 3601
    assert (low["body"], low["priority"], low["persistent"], low["expiry"], low["properties"]) == (
        *(b"low", 1, True, None),
        [],
    )
    assert qm.queue("A").depth == 3  # nothing was taken


def test_a_browse_counts_backouts_and_follows_an_alias(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    qm.put("A", b"x")
    unit = qm.begin()
    unit.get("A")
    unit.backout()
    qm.define_alias("ALIAS", "A")
    [batch] = browsed(tmp_path, queue="ALIAS")
    assert batch.select(["queue", "backout_count"]).to_pylist() == [{"queue": "A", "backout_count": 1}]


def test_only_the_columns_that_are_asked_for_are_made_and_batches_are_bounded(
    qm: qmgr.QueueManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_rows, "BATCH_ROWS", 3)
    monkeypatch.setattr(queue_rows, "BATCH_BYTES", 100)
    for body in [b"1", b"2", b"3", b"4", b"5" * 100, b"6"]:
        qm.put("A", body)
    target = pa.schema([queue_rows.ARROW.field("body_length")])
    assert [batch.to_pydict() for batch in browsed(tmp_path, target)] == [
        {"body_length": lengths} for lengths in ([1, 1, 1], [1, 100], [1])
    ]
    assert list(queue_rows.batches([], target)) == []


def test_columns_may_be_asked_for_in_capitals(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    """To Spark case is nothing, unless it is told otherwise."""
    fields = [StructField("BODY_LENGTH", IntegerType()), StructField("Body", BinaryType())]
    target = queue_rows.target_of(StructType(fields))
    qm.put("A", b"abc")
    [batch] = browsed(tmp_path, target)
    assert batch.to_pylist() == [{"BODY_LENGTH": 3, "Body": b"abc"}]


def test_a_null_is_refused_where_the_schema_has_none(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    target = queue_rows.target_of(StructType([StructField("expiry", TimestampType(), nullable=False)]))
    qm.put("A", b"", expiry=60.0)
    assert [batch.num_rows for batch in browsed(tmp_path, target)] == [1]
    qm.put("A", b"")
    with pytest.raises(Mistake, match="column 'expiry' has rows where it is null; leave out NOT NULL in its schema"):
        browsed(tmp_path, target)


def test_wrong_queues_columns_and_queue_managers_are_told_before_there_are_tasks(
    qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    with pytest.raises(UnknownQueue, match="there is no queue 'NONE'"):
        browsed(tmp_path, queue="NONE")
    source = QueueSource(said(tmp_path))
    for name, kind, sentence in (
        ("colour", StringType(), "qmgr.queue has no column 'colour'; it has queue, lsn"),
        ("body", StringType(), "column 'body' is BINARY, not STRING; read it as that and cast it"),
    ):
        with pytest.raises(Mistake, match=sentence):
            source.reader(StructType([StructField(name, kind)]))
    with pytest.raises(Mistake, match="column 'body' was asked for twice"):
        source.reader(StructType([StructField("body", BinaryType()), StructField("BODY", BinaryType())]))
    with pytest.raises(Mistake, match="name at least one"):
        source.streamReader(StructType([]))
    with pytest.raises(Mistake, match="no option 'datapth' here; it has qmgr, dataPath, url, queue"):
        QueueSource(said(tmp_path) | {"datapth": "x"}).reader(StructType([StructField("lsn", LongType())]))
    with pytest.raises(Mistake, match="option queue is missing"):
        QueueSource({"qmgr": NAME}).reader(StructType([StructField("lsn", LongType())]))
    qmgr.create("QM2", data_path=tmp_path)
    with pytest.raises(Unavailable, match="queue manager 'QM2' is not running; start it with strmqm QM2"):
        QueueSource(said(tmp_path, qmgr="QM2")).reader(StructType([StructField("lsn", LongType())])).partitions()


# ---- the stream


def keep(qm: qmgr.QueueManager, what: str) -> None:
    """What an operator does with the log."""
    getattr(qm, what)()


def work(qm: qmgr.QueueManager, seed: int) -> list[int]:
    """Puts in all the ways that there are, with units of work that last; LSNs at which the log was durable."""
    chance = random.Random(seed)
    files = finding.find(qm._location.data_root, NAME)
    units: list[qmgr.UnitOfWork] = []
    places = []

    def body() -> bytes:
        return chance.randbytes(chance.choice([0, 5, 300, 9000]))

    for number in range(120):
        queue = chance.choice("AAB")
        match chance.randrange(10):
            case 0 | 1:
                qm.put(queue, body(), priority=chance.randrange(10), persistent=chance.random() < 0.9)
            case 2:
                qm.put_many(queue, [body() for _ in range(chance.randrange(1, 5))])
            case 3:
                xid = qmgr.Xid(1, b"%d" % number, b"") if chance.random() < 0.3 else None
                units.append(qm.begin(xid))
            case 4 | 5 | 6 if units:
                unit = chance.choice(units)
                if unit.state is qmgr.UowState.ACTIVE:
                    unit.put_many(queue, [body() for _ in range(chance.randrange(1, 4))])
            case 7 if units:
                unit = units.pop(chance.randrange(len(units)))
                if unit.xid is not None and unit.state is qmgr.UowState.ACTIVE:
                    unit.prepare()
                unit.backout() if chance.random() < 0.3 else unit.commit()
            case 8:
                qm.get_many(queue, 2)
            case 9:
                keep(qm, chance.choice(["checkpoint", "advance_log", "archive_log", "compress_log"]))
        if chance.random() < 0.2:
            places.append(files.end())
    for unit in units[::2]:
        unit.commit()
    qm.put("A", b"the last")
    return [*places, files.end()]


@pytest.mark.parametrize("seed", range(6))
def test_batches_tell_together_what_a_replay_tells_wherever_they_are_cut(tmp_path: Path, seed: int) -> None:
    with serving(tmp_path, "A", "B") as qm:
        places = work(qm, seed)
        one = opened(tmp_path)
        cuts = [one.lsn(one.initialOffset()), *places]
        rows = [row for start, end in pairwise(cuts) for row in between(one, start, end)]
        expected = told(qm)
        assert len(expected) > 20
        assert as_told(rows) == expected
        for start in random.Random(seed).sample(cuts, 4):  # a later start has exactly what is behind it
            assert as_told(between(one, start, places[-1])) == [row for row in expected if row[0] >= start]
    copied = opened(tmp_path)  # and nobody runs the queue manager
    assert as_told(between(copied, cuts[0], places[-1])) == expected


def test_extents_alone_tell_the_same(tmp_path: Path) -> None:
    """A copy without the control file, which says where the last checkpoint is."""
    with serving(tmp_path, "A", "B") as qm:
        places = work(qm, 7)
        expected = told(qm)
        names = {one.id for one in qm.queues() if one.name == "A"}
    ignored = shutil.ignore_patterns(control.NAME)
    shutil.copytree(tmp_path / "log" / NAME, tmp_path / "copy", ignore=ignored)
    log = finding.find(str(tmp_path / "copy"))
    assert not log.control
    for start in (log.first(), *places[::4]):
        range_ = visible.Range(log=log, queues=frozenset(names), start=start, end=places[-1])
        rows = queue_rows.batches(QueuePartition(range_, "A").messages(), queue_rows.ARROW)
        assert as_told([row for batch in rows for row in batch.to_pylist()]) == [
            row for row in expected if row[0] >= start
        ]


def test_a_stream_follows_a_queue_manager_that_writes(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    def write() -> None:
        for number in range(150):
            with qm.begin() as unit:
                unit.put_many("A", [b"%d" % number, bytes(number * 7 % 3000)])
            qm.put("B", b"x")

    one = opened(tmp_path)
    start = one.initialOffset()
    writer = Call(write)
    rows: list[Row] = []
    writing = True
    while writing:
        writing = writer.is_alive()  # once more when it has ended
        end = one.latestOffset(start, ReadAllAvailable())
        rows += between(one, one.lsn(start), one.lsn(end))
        start = end
    writer.outcome()
    assert as_told(rows) == told(qm)


def test_rows_of_a_stream_are_as_the_messages_were_put(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    put = qm.put("A", b"body", priority=3, properties={"n": 1}, reply_to="B", format="F", expiry=60.0)
    qm.put("A", b"never in the log", persistent=False)
    qm.get("A")  # takes nothing away from the stream
    one = opened(tmp_path)
    [row] = between(one, one.lsn(one.initialOffset()), one.log().end())
    assert (row["queue"], row["position"], row["body"], row["body_length"], row["backout_count"]) == (
        *("A", 0, b"body"),
        *(4, 0),
    )
    assert (row["message_id"], row["priority"], row["persistent"]) == (put.message_id, 3, True)
    assert (row["properties"], row["reply_to"], row["format"]) == ([("n", "1")], "B", "F")
    assert row["put_time"] == put.put_time and row["time"] >= put.put_time
    assert 59 <= (row["expiry"] - row["put_time"]).total_seconds() <= 61


def test_a_unit_of_work_that_began_before_the_batch_comes_whole_at_its_commit(
    qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    one = opened(tmp_path)
    unit = qm.begin()
    unit.put("A", b"early" * 1000)
    qm.put("A", b"between")  # so the unit's calls are in the log
    for _ in range(3):
        qm.advance_log()
    middle = one.log().end()
    unit.put("A", b"late")
    unit.commit()
    qm.checkpoint()
    qm.checkpoint()
    qm.archive_log()
    rows = between(one, middle, one.log().end())
    assert [(row["body"], row["position"]) for row in rows] == [(b"early" * 1000, 0), (b"late", 1)]


def test_offsets_are_lsns_and_batches_have_a_size(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    for number in range(10):
        qm.put("A", b"%d" % number + bytes(1000))
    one = opened(tmp_path, maxBytesPerTrigger="3000")
    start = one.initialOffset()
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxBytes(3000)
    found: list[Row] = []
    batches = 0
    while (end := one.latestOffset(start, limit)) != start:
        found += between(one, one.lsn(start), one.lsn(end))
        start, batches = end, batches + 1
    assert batches >= 4
    assert as_told(found) == told(qm)
    assert one.partitions(start, start) == []
    assert set(start) == {"lsn", "log", "queue", "time"}
    assert opened(tmp_path).latestOffset(one.initialOffset(), ReadAllAvailable()) == start


def test_the_checkpoint_of_another_queue_is_refused(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    """Else what was put to that queue before the offset would never come."""
    qm.put("B", b"before the offset")
    one = opened(tmp_path)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    for other, whose in ((opened(tmp_path, "B"), "queue 'B'"), (LimitedLogStream(one.asked, LOG), "the whole log")):
        sentence = f"the query's checkpoint is of a stream of queue 'A', and this is one of {whose}"
        with pytest.raises(Mistake, match=sentence):
            other.latestOffset(end, ReadAllAvailable())
        with pytest.raises(Mistake, match=sentence):
            other.partitions(start, end)
    earlier = {"lsn": start["lsn"], "log": start["log"]}  # as they were when offsets did not name the queue
    assert len(opened(tmp_path, "B").partitions(earlier, end | {"queue": "B"})) == 1


def test_the_checkpoint_of_a_stream_of_the_log_is_refused(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    qm.put("A", b"before the offset")
    one = opened(tmp_path)
    log = LimitedLogStream(one.asked, LOG)
    start = log.initialOffset()
    end = log.latestOffset(start, ReadAllAvailable())
    sentence = "the query's checkpoint is of a stream of the whole log, and this is one of queue 'A', of which"
    with pytest.raises(Mistake, match=sentence):
        one.latestOffset(end, ReadAllAvailable())
    with pytest.raises(Mistake, match=sentence):
        one.partitions(start, end)
    earlier = {name: end[name] for name in ("lsn", "log", "time")}  # as they were when they did not say so
    assert log.latestOffset(earlier, ReadAllAvailable()) == earlier
    assert len(log.partitions({"lsn": start["lsn"], "log": start["log"]}, earlier)) >= 1


def test_a_stream_begins_where_it_is_told_to(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    qm.put("A", b"1")
    end = opened(tmp_path).log().end()
    second = qm.put("A", b"2")
    for options in ({"startingLsn": str(end)}, {"startingTime": second.put_time.isoformat()}):
        one = opened(tmp_path, **options)
        assert [row["body"] for row in between(one, one.lsn(one.initialOffset()), one.log().end())] == [b"2"]
    one = opened(tmp_path, startingLsn="latest")
    at = one.lsn(one.initialOffset())
    qm.put("A", b"3")
    assert [row["body"] for row in between(one, at, one.log().end())] == [b"3"]


def test_a_queue_that_is_deleted_and_defined_again_goes_on_under_its_name(
    qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    one = opened(tmp_path)
    start = one.lsn(one.initialOffset())
    qm.put("A", b"of the first")
    qm.delete_queue("A", purge=True)
    qm.define_queue("A")
    qm.put("A", b"of the second")
    assert [row["body"] for row in between(one, start, one.log().end())] == [b"of the first", b"of the second"]


def test_a_batch_without_anything_for_the_queue_reads_nothing(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    one = opened(tmp_path, "B")
    start = one.lsn(one.initialOffset())
    qm.put("A", b"for another")
    assert between(one, start, one.log().end()) == []
    assert list(one.read(None)) == []  # type: ignore[arg-type]  # which Spark makes up for an empty list


def test_extents_that_say_nothing_of_the_queue_are_passed_over(
    qm: qmgr.QueueManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.put("A", b"first")
    for _ in range(6):
        qm.put_many("B", [bytes(3000)] * 20)
        qm.advance_log()
    qm.put("A", b"last")
    qm.archive_log()
    one = opened(tmp_path)
    files, disk = one.log(), PosixDisk()
    history = files.history(disk)
    *sealed, _ = history.places().values()
    _, state = control.read(disk, files.control)
    for place in sealed:
        extent_index.load_or_build(disk, history, state, place)  # as the queue manager does, sooner or later
    read: list[int] = []
    records = visible._Reading._records

    def counted(self: Any, start: int, *args: Any, **options: Any) -> Iterator[Any]:
        read.append(start // files.extent_bytes)
        return records(self, start, *args, **options)

    monkeypatch.setattr(visible._Reading, "_records", counted)
    rows = between(one, one.lsn(one.initialOffset()), files.end())
    assert [row["body"] for row in rows] == [b"first", b"last"]
    assert len(set(read)) <= 3 < len(sealed)


def test_a_unit_of_work_whose_beginning_is_gone_is_refused_or_left_out(tmp_path: Path) -> None:
    with serving(tmp_path, "A", "B") as qm:
        unit = qm.begin()
        unit.put("A", bytes(1000))
        qm.put("B", b"x")
        qm.advance_log()
        qm.checkpoint()  # whose head lies in the extent that will be gone
        behind = finding.find(str(tmp_path), NAME).end()
        unit.put("A", b"its second")
        unit.commit()
        qm.put("A", b"whole")
    files = finding.find(str(tmp_path), NAME)
    history = files.history(PosixDisk())
    first, *_ = history.places().values()
    Path(first.path).unlink()
    one = opened(tmp_path)
    start, end = one.lsn(one.initialOffset()), one.log().end()
    brave = opened(tmp_path, leaveOutIncomplete="true")
    for begin in (start, behind):
        with pytest.raises(LogError, match=r"can't be told whole: .* reaches back to .*leaveOutIncomplete=true"):
            between(one, begin, end)
        assert [row["body"] for row in between(brave, begin, end)] == [b"whole"]


def test_a_unit_of_work_is_not_left_out_for_an_extent_that_can_not_be_read_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, "A", "B") as qm:
        unit = qm.begin()
        unit.put("A", b"its first")
        qm.put("B", b"x")
        qm.advance_log()
        qm.checkpoint()  # whose head lies in the extent that can't be read
        behind = finding.find(str(tmp_path), NAME).end()
        unit.put("A", b"its second")
        unit.commit()
        qm.put("A", b"whole")
    files = finding.find(str(tmp_path), NAME)
    first, *_ = files.history(PosixDisk()).places().values()
    one = opened(tmp_path, leaveOutIncomplete="true")
    [partition] = one.partitions({"lsn": behind}, {"lsn": one.log().end()})
    visible._histories.clear()  # a worker's, which has read nothing yet
    open_read = PosixDisk.open_read

    def failing(disk: PosixDisk, path: str) -> Any:
        if path == first.path:
            raise OSError(errno.EIO, "Input/output error", path)
        return open_read(disk, path)

    with monkeypatch.context() as patched:
        patched.setattr(PosixDisk, "open_read", failing)
        for _ in range(2):  # the second by what the first has found
            with pytest.raises(LogError, match=rf"Input/output error: {first.path}"):
                list(one.read(partition))
    rows = [row for batch in one.read(partition) for row in batch.to_pylist()]
    assert [row["body"] for row in rows] == [b"its first", b"its second", b"whole"]


def test_a_commit_in_an_extent_that_does_not_name_the_queue_is_told() -> None:
    """The queue was damaged then, so the record says nothing of it: only the unit of work does."""
    works = Works()
    world, xid = works.world, qmgr.Xid(1, b"U", b"")
    world.qm.define_queue("Q", default_persistence=True, image_recoverable="NO")
    number = world.qm.queue("Q").id
    world.qm.put("Q", b"first")
    unit = world.qm.begin(xid)
    unit.put("Q", b"of the unit")
    unit.prepare()
    world.qm.checkpoint()
    world.disk = disk = world.disk.crash(KEEP_ALL)
    [segment] = disk.files(f"{DATA}/qmgrs/{NAME}/queues/Q/")
    disk.remove(segment)
    world.start()
    assert world.qm.queue("Q").damaged
    works.fill()
    world.qm.resolve(xid, commit=True)
    works.fill()
    works.stop()
    log = works.log()
    paths = index(works)
    assert len(paths) > 3
    part = visible.Range(log=log, start=log.first(disk), end=log.end(disk=disk), queues=frozenset({number}))
    assert [len(batch.messages) for _, batch in part.batches(disk)] == [1, 1]


def test_a_missing_extent_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, "A", "B") as qm:
        for number in range(4):
            qm.put("A", b"%d" % number)
            qm.advance_log()
    one = opened(tmp_path)
    start, end = one.lsn(one.initialOffset()), one.log().end()
    [partition] = one.partitions({"lsn": start}, {"lsn": end})
    history = one.log().history(PosixDisk())
    places = list(history.places().values())
    Path(places[2].path).unlink()
    with pytest.raises(LogDamaged, match=Path(places[2].path).name):
        list(one.read(partition))
    Path(places[0].path).unlink()
    with pytest.raises(ExtentGone, match="begin a query with a new checkpoint"):
        one.partitions({"lsn": start}, {"lsn": end})
    (tmp_path / "log").rename(tmp_path / "elsewhere")  # as a machine has it where the log is not mounted
    with pytest.raises(LogError, match=r"the machine \S+ sees no extent of the log in .*/active or "):
        list(one.read(partition))


def test_wrong_options_of_a_stream_are_refused_with_one_sentence(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    for wrong, sentence in (
        ({"startingLsn": "here"}, "startingLsn is an LSN"),
        ({"startingLsn": "1", "startingTime": "2026-01-01"}, "not both"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger is a number of bytes"),
        ({"leaveOutIncomplete": "perhaps"}, "leaveOutIncomplete is true or false, not 'perhaps'"),
        ({"url": "qmgr://host:1/QM1", "qmgr": ""}, "a url does not say where they lie"),
        ({"startLsn": "1"}, "qmgr.queue has no option 'startLsn' here; it has qmgr, .* startingLsn, "),
    ):
        with pytest.raises(Mistake, match=sentence):
            stream(said(tmp_path) | wrong, queue_rows.ARROW)
    with pytest.raises(
        UnknownQueue, match="tells of no queue 'NONE'; define it first, and for an alias name its queue"
    ):
        opened(tmp_path, "NONE").initialOffset()


def test_spark_4_1_has_a_stream_too(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    qm.put("A", b"x")
    wanted = opened(tmp_path).asked
    old = UnlimitedQueueStream(wanted, queue_rows.ARROW, "A", False)
    start = old.initialOffset()
    end = old.latestOffset()
    [partition] = old.partitions(start, end)
    assert isinstance(partition, QueuePartition)
    assert [seen.message.body for seen in partition.messages()] == [b"x"]
