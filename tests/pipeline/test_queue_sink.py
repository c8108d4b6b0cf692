"""Putting from Spark: a partition is one unit of work, and is put once however often Spark tries."""

import contextlib
import datetime
import errno
import json
import os
import pickle
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    IntegerType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

import qmgr
from pipeline import finding, marks, queue_sink
from pipeline.marks import Key
from pipeline.queue_sink import Part, Put, QueueStreamWriter, QueueWriter, check_columns
from pipeline.reach import reach
from pipeline.sharing import shared
from qmgr.errors import Mistake, MQError, NotAuthorized, Reason
from qmgr.users import Users
from tests.daemon import serving as network
from tests.daemon.daemons import Daemons
from tests.daemon.test_client import far
from tests.pipeline.logs import EXTENT, NEVER
from tests.pipeline.queues import LINEAR, rows, said, serving
from tests.qmgr.world import NAME, Call, bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = Key("query q", "0")


def part(path: Path, key: Key = KEY, batch: int = 0, queue: str = "A", **more: Any) -> Part:
    return Part(reach=reach(said(path, queue)), key=key, batch=batch, **more)


TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "SMALLINT": ShortType(),
    "BOOLEAN": BooleanType(),
    "DECIMAL": DecimalType(10, 2),
    "TEXTS": MapType(StringType(), StringType()),
    "NUMBERS": MapType(StringType(), IntegerType()),
}


def typed(columns: str) -> StructType:
    """A schema as it would be written in SQL; Spark's own parser needs a Spark."""
    words = [column.split() for column in columns.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in words])


# ---- a partition


def test_a_partition_is_put_in_its_order_as_one_unit_of_work(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    def watched() -> Iterator[pa.RecordBatch]:
        yield rows(["1", "2"])
        yield rows([])
        [unit] = qm.transactions()
        assert (unit.puts, unit.xid) == (2, KEY.xid)
        assert bodies(qm, "A") == []
        yield rows(["3"])

    assert part(tmp_path).put(watched()) == Put(KEY, 3)
    assert bodies(qm, "A") == [b"1", b"2", b"3"]
    assert [(mark.key, mark.batch, mark.messages) for mark in marks.listed(qm)] == [(KEY, 0, 3)]


def test_a_partition_that_is_put_again_has_no_second_effect(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    one = part(tmp_path)
    assert one.put([rows(["1", "2"])]) == Put(KEY, 2)
    assert one.put([rows(["1"]), rows(["2"])]) == Put(KEY, 2, before=True)
    part(tmp_path, batch=1).put([rows(["3"])])
    with pytest.raises(Mistake, match="done up to batch 1 before"):
        one.put([rows(["1", "2"])])  # very late
    assert bodies(qm, "A") == [b"1", b"2", b"3"]


def test_two_attempts_at_once_put_once(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    calls = [Call(lambda: part(tmp_path).put([rows(["1", "2"])])) for _ in range(4)]
    puts: list[Put] = [call.outcome() for call in calls]
    assert sorted(put.before for put in puts) == [False, True, True, True]
    assert bodies(qm, "A") == [b"1", b"2"]


def test_an_attempt_that_fails_puts_nothing_and_the_next_one_all(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(["1"])
        raise OSError("the shuffle is gone")

    with pytest.raises(OSError, match="shuffle"):
        part(tmp_path).put(failing())
    assert (bodies(qm, "A"), marks.listed(qm), qm.transactions()) == ([], [], [])
    part(tmp_path).put([rows(["1", "2"])])
    assert bodies(qm, "A") == [b"1", b"2"]


def test_while_the_first_rows_are_computed_nothing_is_held(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        assert len(qm.sessions) == 0
        yield rows(["1"])

    part(tmp_path).put(slow())
    assert bodies(qm, "A") == [b"1"]


def test_an_empty_partition_leaves_nothing(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    assert part(tmp_path, queue="NONE").put([rows([])]) == Put(KEY, 0)
    assert [info.name for info in qm.queues()] == ["A", "B"]  # not even the queue of the marks


def test_an_empty_partition_that_was_not_empty_is_refused(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    part(tmp_path).put([rows(["1", "2"])])
    with pytest.raises(Mistake, match=r"done with batch 0 before, with 2 messages, and now it has 0; "):
        part(tmp_path).put([rows([])])
    assert part(tmp_path, batch=1).put([]) == Put(KEY, 0)
    part(tmp_path, batch=2).put([rows(["3"])])
    with pytest.raises(Mistake, match="up to batch 2"):
        part(tmp_path, batch=1).put([])


@pytest.mark.parametrize("others", [["1"], ["1", "3"], ["1", "2", "3"], ["1", "1", "2"], ["12", ""]])
def test_other_rows_than_the_first_time_are_refused(qm: qmgr.QueueManager, tmp_path: Path, others: list[str]) -> None:
    part(tmp_path).put([rows(["1", "2"])])
    with pytest.raises(Mistake, match=r"done with batch 0 before, with 2 messages, and now it has .*forget.*skip"):
        part(tmp_path).put([rows(others)])
    assert bodies(qm, "A") == [b"1", b"2"] and qm.transactions() == []
    assert marks.forget(qm, KEY.query) == 1
    part(tmp_path).put([rows(others)])
    assert bodies(qm, "A") == [b"1", b"2", *[one.encode() for one in others]]


def test_a_batch_that_an_operator_skips_is_left_out_and_the_next_one_put(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    for batch in range(3):
        part(tmp_path, batch=batch).put([rows([f"{batch}"])])
    planned = [rows(["1", "2", "new"])]  # the checkpoint has only batch 0 now
    with pytest.raises(Mistake, match="skip"):
        part(tmp_path, batch=1).put(planned)
    marks.skip(qm, KEY.query, 1)
    assert part(tmp_path, batch=1).put(planned).before
    assert part(tmp_path, Key(KEY.query, "1"), batch=1).put(planned).before  # a part that there was never
    assert part(tmp_path, Key(KEY.query, "2"), batch=1).put([]).before
    part(tmp_path, batch=2).put([rows(["later"])])
    assert bodies(qm, "A") == [b"0", b"1", b"2", b"later"]


def test_all_that_a_row_says_counts_and_the_order_does_not(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    texts = pa.map_(pa.string(), pa.string())

    def columns(order: list[int], **other: Any) -> pa.RecordBatch:
        values: dict[str, tuple[list[Any], Any]] = {
            "queue": (["A", None, "B"], pa.string()),
            "priority": ([1, None, 3], pa.int32()),
            "expiry": ([later, None, later], pa.timestamp("us", tz="UTC")),
            "correlation_id": ([b"c", b"d", None], pa.binary()),
            "properties": ([[("a", "1"), ("b", "2")], None, []], texts),
            "persistent": ([True, False, None], pa.bool_()),
        }
        made = {
            name: pa.array([(other[name] if name in other and at == 0 else some[at]) for at in order], kind)
            for name, (some, kind) in values.items()
        }
        return rows([["x", "y", "z"][at] for at in order], **made)

    assert part(tmp_path).put([columns([0, 1, 2])]) == Put(KEY, 3)
    assert part(tmp_path).put([columns([2, 1]), columns([0])]) == Put(KEY, 3, before=True)
    assert part(tmp_path).put([columns([0, 1, 2], properties=[("b", "2"), ("a", "1")])]).before
    for other in (
        {"queue": "B"},
        {"priority": 2},
        {"expiry": later + datetime.timedelta(microseconds=1)},
        {"correlation_id": None},
        {"properties": [("a", "1")]},
        {"persistent": False},
    ):
        with pytest.raises(Mistake, match="and now it has 3 others"):
            part(tmp_path).put([columns([0, 1, 2], **other)])
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([b"x", b"y"], [b"z"])


def test_a_repetition_puts_nothing_and_holds_no_rows(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    part(tmp_path).put([rows(["1"]), rows(["2"])])

    def watched() -> Iterator[pa.RecordBatch]:
        yield rows(["1"])
        assert qm.transactions() == []
        yield rows(["2"])

    assert part(tmp_path).put(watched()).before


def test_a_batch_of_fewer_partitions_than_were_put_is_refused_by_the_driver(
    qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    """The first time its second partition was put, and the first was not; now all of it is one."""
    part(tmp_path, Key("query q", "1")).put([rows(["2"])])
    put = part(tmp_path).put([rows(["1", "2"])])
    writer = QueueStreamWriter(said(tmp_path), typed("body STRING"), False)
    with pytest.raises(Mistake, match=r"batch 0 of query q has 1 parts now, and before part 1 of query q was done"):
        writer.commit([put], 0)
    writer.commit([put, Put(Key("query q", "1"), 1)], 0)
    named = QueueWriter(said(tmp_path, writeId="w"), typed("body STRING"), False)
    written = [part(tmp_path, Key("write to A: w", number)).put([rows(["x"])]) for number in "01"]
    named.commit([*written])
    with pytest.raises(Mistake, match="batch 0 of write to A: w has 1 parts"):
        named.commit([written[0]])


def test_an_older_batch_of_fewer_partitions_than_were_put_since_is_refused_by_the_driver(
    qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    """The checkpoint was put back; what was put by the second partition now comes with the first, which had nothing."""
    part(tmp_path, Key("query q", "1"), batch=3).put([rows(["2"])])
    put = part(tmp_path, batch=1).put([rows(["2"])])
    writer = QueueStreamWriter(said(tmp_path), typed("body STRING"), False)
    with pytest.raises(Mistake, match=r"part 1 of query q was done up to batch 3 before, .* now it comes with batch 1"):
        writer.commit([put], 1)
    writer.commit([part(tmp_path, batch=4).put([rows(["3"])])], 4)


def test_a_queue_manager_that_has_lost_batches_is_refused(tmp_path: Path) -> None:
    """It was put back from an older copy; Spark goes on behind what it has put."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q"}')

    def writer(**more: str) -> QueueStreamWriter:
        made = {"checkpointLocation": f"file:{checkpoint}"} | more
        return QueueStreamWriter(said(tmp_path, **made), typed("body STRING"), False)

    def put(batch: int, *texts: str) -> None:
        writer().commit([part(tmp_path, batch=batch).put([rows([*texts])] if texts else [])], batch)

    with serving(tmp_path, "A"):
        put(0, "0")
        put(1)
    shutil.copytree(tmp_path / "qmgrs", tmp_path / "old" / "qmgrs")
    shutil.copytree(tmp_path / "log", tmp_path / "old" / "log")
    with serving(tmp_path, "A"):
        put(2, "2")
        put(3)
        put(4)
    for name in ("qmgrs", "log"):
        shutil.rmtree(tmp_path / name)
        (tmp_path / "old" / name).rename(tmp_path / name)
    with serving(tmp_path, "A") as qm:
        with pytest.raises(
            Mistake, match=r"batch 2 of query q was put before, and .* remembers batches up to 0: it was"
        ):
            writer()
        marks.forget(qm, "query q")
        with pytest.raises(Mistake, match="remembers nothing: it was put back"):
            writer()
        assert QueueStreamWriter(said(tmp_path), typed("body STRING"), False).notes.folder is None
        assert writer(checkpointLocation="hdfs://one/checkpoint").notes.folder is None
        marks.skip(qm, "query q", 4)
        writer()
        (checkpoint / queue_sink.NOTES_NAME).unlink()
        marks.forget(qm, "query q")
        put(5, "5")
        assert bodies(qm, "A") == [b"0", b"5"]


def test_a_queue_manager_that_has_lost_a_part_of_a_batch_is_refused(tmp_path: Path) -> None:
    """The copy was made while a task had failed, and others of its batch had not."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"q"}')

    def writer(where: Path) -> QueueStreamWriter:
        made = {"checkpointLocation": str(checkpoint)}
        return QueueStreamWriter(said(where, **made), typed("body STRING"), False)

    parts = [Key("query q", number) for number in ("0", "1", "2")]
    with serving(tmp_path, "A"):
        first = part(tmp_path, parts[0], batch=0).put([rows(["0"])])
    for name in ("qmgrs", "log"):
        shutil.copytree(tmp_path / name, tmp_path / "old" / name)
    ini = tmp_path / "old" / "qmgrs" / NAME / "qm.ini"
    ini.write_text(ini.read_text().replace(str(tmp_path / "log"), str(tmp_path / "old" / "log")))
    with serving(tmp_path, "A") as qm:
        puts = [first, part(tmp_path, parts[1], batch=0).put([rows(["1"])])]
        puts.append(part(tmp_path, parts[2], batch=0).put([]))
        writer(tmp_path).commit(puts, 0)
        writer(tmp_path)
        assert bodies(qm, "A") == [b"0", b"1"]
    with serving(tmp_path / "old", "A") as qm:  # it may lie elsewhere, as what qm recover-to has built does
        with pytest.raises(Mistake, match=r"batch 0 of query q was put before, .* remembers only 1 of its 2 parts: it"):
            writer(tmp_path / "old")
        part(tmp_path / "old", parts[1], batch=0).put([rows(["1"])])
        writer(tmp_path / "old")
        for to in ([NAME, None], [NAME, str(tmp_path)], NAME):  # as it was noted before this version, and as it is now
            (checkpoint / queue_sink.NOTES_NAME).write_text(json.dumps({"to": to, "batch": 5}))
            with pytest.raises(Mistake, match="batch 5 of query q was put before"):
                writer(tmp_path / "old")
        (checkpoint / queue_sink.NOTES_NAME).write_text(json.dumps({"to": NAME, "batch": 0, "parts": [[]]}))
        with pytest.raises(Mistake, match=r"batch 0 of query q was put before, .* remembers only 0 of its 1 parts: it"):
            writer(tmp_path / "old")
        infinite = '{"to": "x", "batch": Infinity}'
        for junk in ("", "[]", '{"to": [], "batch": 5}', '{"to": "x", "batch": "y"}', infinite, "[" * 200_000):
            (checkpoint / queue_sink.NOTES_NAME).write_text(junk)
            with pytest.raises(Mistake, match=rf"{queue_sink.NOTES_NAME} can't be read"):
                writer(tmp_path / "old")
        (checkpoint / queue_sink.NOTES_NAME).unlink()
        assert bodies(qm, "A") == [b"0", b"1"]


def test_a_partition_with_too_many_messages_is_refused_whole_with_a_way_out(
    qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    qm.alter(max_uncommitted=10)
    part(tmp_path).put([rows(["x"] * 9)])  # and the mark
    with pytest.raises(
        MQError, match=r"part 0 of query q was not put: .*at most 10 messages.*divided as it was"
    ) as refused:
        part(tmp_path, batch=1).put([rows(["x"] * 9)])  # and the mark that goes
    assert refused.value.reason == Reason.SYNCPOINT_LIMIT_REACHED
    assert str(refused.value).count("MQRC") == 1
    assert (qm.queue("A").depth, [mark.batch for mark in marks.listed(qm)]) == (9, [0])
    qm.alter(max_uncommitted=11)
    part(tmp_path, batch=1).put([rows(["x"] * 9)])
    assert (qm.queue("A").depth, [mark.batch for mark in marks.listed(qm)]) == (18, [1])


def test_a_partition_that_the_log_has_no_room_for_is_refused_with_a_way_out(
    qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    with pytest.raises(MQError, match=r"was not put: .*LogPrimaryFiles.*divided as it was"):
        part(tmp_path).put([rows(["x" * 100_000] * 50)])
    assert (qm.queue("A").depth, qm.transactions()) == (0, [])
    part(tmp_path).put([rows(["x" * 1000] * 10)])
    assert qm.queue("A").depth == 10


def test_long_runs_of_rows_go_in_calls_of_some_size(
    qm: qmgr.QueueManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_sink, "CALL_MESSAGES", 3)
    monkeypatch.setattr(queue_sink, "CALL_BYTES", 10)
    texts = ["1", "2", "3", "4", "a long one indeed", "", "123456", "12345", "6"]
    found = list(queue_sink.runs(rows(texts)))
    assert [len(some) for _, _, some in found] == [3, 1, 1, 2, 2]
    part(tmp_path).put([rows(texts)])
    assert bodies(qm, "A") == [text.encode() for text in texts]


class Lost(Exception):
    """An attempt, or the machine that it ran on."""


FAILURES = [
    "",
    "",
    "in the middle",
    "after the commit",
    "queue manager in the middle",
    "queue manager after the commit",
]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails_and_comes_late_each_row_is_put_once(tmp_path: Path, seed: int) -> None:
    """A stream of batches of three partitions, tried until each was put; attempts of the dead come back at any time."""
    chance = random.Random(seed)
    tries = 0

    def attempt(qm: qmgr.QueueManager, number: int, batch: int, failure: str) -> None:
        def given() -> Iterator[pa.RecordBatch]:
            yield rows([f"{batch}.{number}.0"])
            if failure == "queue manager in the middle":
                qm.abandon()
            if failure == "in the middle":
                raise Lost
            yield rows([f"{batch}.{number}.{row}" for row in (1, 2)])

        part(tmp_path, Key("query q", str(number)), batch).put(given())
        if failure == "queue manager after the commit":
            qm.abandon()
        if failure:
            raise Lost

    left = [(batch, number) for batch in range(5) for number in range(3)]
    while left:
        with serving(tmp_path, "A") as qm:
            while left and qm._engine.refusal is None:
                batch, number = left[0]
                tries += 1
                if chance.random() < 0.2 and batch:
                    late = chance.randrange(batch)  # it was done, and mostly another one since
                    done = {mark.key.part: mark.batch for mark in marks.listed(qm)}[str(number)]
                    with contextlib.nullcontext() if late == done else pytest.raises(Mistake, match="done up to batch"):
                        attempt(qm, number, late, "")
                try:
                    attempt(qm, number, batch, chance.choice(FAILURES))
                    left.pop(0)
                except (Lost, qmgr.Unavailable, qmgr.BackedOut):
                    continue
    assert tries > 15
    with serving(tmp_path) as qm:
        wanted = [f"{batch}.{number}.{row}".encode() for batch in range(5) for number in range(3) for row in range(3)]
        assert bodies(qm, "A") == wanted
        assert [(mark.batch, mark.messages) for mark in marks.listed(qm)] == [(4, 3)] * 3


# ---- the columns


def test_every_column_is_a_part_of_the_message(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    moments = pa.timestamp("us", tz="UTC")
    first = rows(
        ["1", "2"],
        queue=pa.array(["B", None]),
        priority=pa.array([7, None], pa.int64()),
        persistent=pa.array([False, None]),
        expiry=pa.array([now + datetime.timedelta(hours=1), None], moments),
        message_id=pa.array([b"id", None]),
        correlation_id=pa.array([b"correl", None]),
        reply_to=pa.array(["ANSWERS", None]),
        properties=pa.array([[("colour", "red"), ("none", None)], None], pa.map_(pa.string(), pa.string())),
        format=pa.array(["MQSTR", None]),
    )
    part(tmp_path).put([first])
    [one], [other] = qm.browse("B"), qm.browse("A")
    assert (one.body, one.priority, one.persistent, one.reply_to, one.format) == (b"1", 7, False, "ANSWERS", "MQSTR")
    assert (one.message_id, one.correlation_id) == (b"id".ljust(24, b"\0"), b"correl".ljust(24, b"\0"))
    assert one.properties == {"colour": "red"} and one.expiry == pytest.approx(3600, abs=60)
    assert (other.body, other.priority, other.persistent, other.expiry, other.reply_to) == (b"2", 0, True, None, "")
    assert other.properties == {} and other.message_id.startswith(b"AMQ QM1")


def test_expiry_is_seconds_or_a_moment_and_what_is_over_is_over_soon(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    part(tmp_path).put([rows(["s"], expiry=pa.array([90.5]))])
    [one] = qm.browse("A")
    assert one.expiry == pytest.approx(90.5, abs=60)
    past = pa.array([datetime.datetime(2001, 1, 1)], pa.timestamp("us"))
    [(_, said, _)] = queue_sink.runs(rows(["past"], expiry=past))
    assert queue_sink.options_of(said, 1_700_000_000_000_000) == {"expiry": queue_sink.MIN_EXPIRY_S}


def test_rows_that_are_put_alike_go_with_one_call(qm: qmgr.QueueManager) -> None:
    given = rows(["1", "2", "3", "4"], priority=pa.array([1, 1, 2, 1]), queue=pa.array(["A", "A", "A", None]))
    assert [(queue, said["priority"], some) for queue, said, some in queue_sink.runs(given)] == [
        ("A", 1, [b"1", b"2"]),
        ("A", 2, [b"3"]),
        (None, 1, [b"4"]),
    ]
    several = rows(["1", "2", "3"])
    assert list(queue_sink.runs(several)) == [(None, {}, [b"1", b"2", b"3"])]


def test_rows_without_a_body_or_a_queue_are_refused(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="a row has no body"):
        list(queue_sink.runs(pa.RecordBatch.from_pydict({"body": pa.array(["x", None])})))
    nowhere = Part(reach=reach(said(tmp_path, ""), needs_queue=False), key=KEY, batch=0)
    with pytest.raises(Mistake, match="a row names no queue"):
        nowhere.put([rows(["x"], queue=pa.array([None], pa.string()))])
    for empty in (part(tmp_path), nowhere):  # which is not the same as none
        with pytest.raises(Mistake, match="can't be the name of a queue"):
            empty.put([rows(["x"], queue=pa.array([""]))])
    assert (bodies(qm, "A"), marks.listed(qm)) == ([], [])


@pytest.mark.parametrize(
    ("ddl", "sentence"),
    [
        ("value BINARY", "no message has a column 'value' to be put; select what there is: body, queue, priority"),
        ("priority INT", "there is no column 'body'"),
        ("body INT", "column 'body' is int; it has to be binary or string: cast it"),
        ("body STRING, Priority STRING", "column 'Priority' is string; it has to be a whole number"),
        ("body STRING, persistent INT", "column 'persistent' is int; it has to be boolean"),
        ("body STRING, expiry STRING", "has to be a number of seconds or a timestamp"),
        ("body STRING, message_id STRING", "column 'message_id' is string; it has to be binary"),
        ("body STRING, queue BINARY", "column 'queue' is binary; it has to be string"),
        ("body STRING, properties NUMBERS", r"is map<string,int>; it has to be map<string,string>"),
        ("body STRING, BODY STRING", "there is more than one column 'body'"),
    ],
)
def test_wrong_columns_are_refused_with_one_sentence(ddl: str, sentence: str) -> None:
    with pytest.raises(Mistake, match=sentence):
        check_columns(typed(ddl), "A")


def test_all_the_right_columns_are_accepted() -> None:
    check_columns(
        typed(
            "Body BINARY, queue STRING, priority SMALLINT, persistent BOOLEAN, expiry DECIMAL, "
            "message_id BINARY, correlation_id BINARY, reply_to STRING, properties TEXTS, format STRING"
        ),
        "",
    )


# ---- the writers that Spark makes


def test_writers_are_made_of_options_and_sent_to_workers(tmp_path: Path) -> None:
    schema = typed("body STRING")
    options = said(tmp_path, attemptTimeout="30", writeid="w", batchId="7")
    writer = pickle.loads(pickle.dumps(QueueWriter(options, schema, False)))
    assert (writer.query, writer.batch, writer.patience, writer.life) == ("write to A: w", 7, 30.0, None)
    assert writer.reach == reach(options)
    fresh = [QueueWriter(said(tmp_path), schema, False) for _ in range(2)]
    assert fresh[0].query != fresh[1].query and fresh[0].life == queue_sink.DEFAULT_LIFE_S
    assert QueueStreamWriter(said(tmp_path), schema, False).patience == marks.ATTEMPT_TIMEOUT_S


def test_wrong_options_are_refused_with_one_sentence(tmp_path: Path) -> None:
    schema, options = typed("body STRING"), said(tmp_path)
    for wrong, sentence in (
        ({"qmgr": ""}, "option qmgr names a queue manager of this machine, or option url one anywhere; neither"),
        ({"url": "qmgr://here:1/QM1"}, "both are given"),
        ({"qmgr": "", "url": "here"}, "write qmgr://host:port/QM1"),
        ({"queue": ""}, "name the queue by option queue, or in a column queue"),
        ({"queue": "no queue"}, "can't be the name of a queue"),
        ({"qmgr": "no/../name here"}, "can't be the name of a queue manager"),
        ({"dataPath": ""}, "data_path is the path of a directory, not ''"),
        ({"attemptTimeout": "soon"}, "option attemptTimeout is 'soon'; it is a number of seconds"),
        ({"attemptTimeout": "-1"}, "it is a number of seconds"),
        ({"batchId": "x", "writeId": "w"}, "option batchId is 'x'; it is a whole number"),
        ({"batchId": "9" * 5000, "writeId": "w"}, "option batchId is '9{40}'; it is a whole number"),
        ({"batchId": "3"}, "option writeId says of which"),
        ({"batchId": "0"}, "option writeId says of which"),
        ({"writeId": ""}, "option writeId is empty, and a job is known by it: give it a name"),
        ({"write_id": "w"}, "qmgr.queue has no option 'write_id' here; it has qmgr, .* writeId, batchId, "),
        ({"startingLsn": "1"}, "has no option 'startingLsn' here"),
    ):
        with pytest.raises(Mistake, match=sentence):
            QueueWriter(options | wrong, schema, False)
    with pytest.raises(Mistake, match="has no option 'writeId' here"):  # a stream is known by its checkpoint
        QueueStreamWriter(options | {"checkpointLocation": "/c", "writeId": "w"}, schema, False)
    for made in (QueueWriter, QueueStreamWriter):
        with pytest.raises(Mistake, match="can't be overwritten"):
            made(options, schema, True)


def test_a_url_is_reached_with_its_identity_and_never_shows_the_password() -> None:
    options = {"url": "qmgrs://host:1414/QM1", "user": "ann", "password": "secret", "ca": "/ca.pem"}
    found = reach(options, needs_queue=False)
    assert (found.name_or_url, found.data_path, found.user, found.ca) == (options["url"], None, "ann", "/ca.pem")
    assert "secret" not in repr(found) and found.password == "secret"


def test_over_a_network_it_needs_rights_on_the_queue_of_the_marks_too(tmp_path: Path) -> None:
    with network.serving(tmp_path) as served, far(served, authentication=("SCRAM-SHA-256",)) as place:
        Users(served.manager._disk, served.service.location).set("mia", "secret")
        served.manager.authorize("mia", add=["connect"])
        served.manager.authorize("mia", "A", add=["put"])
        options = {"url": f"qmgr://{place}", "queue": "A", "user": "mia", "password": "secret"}
        one = Part(reach=reach(options), key=KEY, batch=0)
        with pytest.raises(NotAuthorized, match=marks.QUEUE):
            one.put([rows(["1"])])
        served.manager.authorize("mia", marks.QUEUE, add=["put", "get", "browse"])
        with pytest.raises(NotAuthorized, match=marks.QUEUE):
            one.put([rows(["1"])])  # it would have to define it
        marks.define(served.manager)
        assert [one.put([rows(["1"])]).before, one.put([rows(["1"])]).before] == [False, True]
        assert bodies(served.manager, "A") == [b"1"]


# ---- in Spark


def emptied(path: Path) -> None:
    """Let Spark forget that its last batch is done, as when it dies after the sink has put it."""
    last = max(int(one.name) for one in path.iterdir() if one.name.isdigit())
    (path / str(last)).unlink()
    (path / f".{last}.crc").unlink(missing_ok=True)


def test_a_job_of_spark_that_is_repeated_puts_once(
    spark: "SparkSession", qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    frame = spark.range(0, 30, 1, 3).selectExpr(
        "cast(id as string) body", "id % 2 priority", "map('n', 'x') properties"
    )
    writer = frame.write.format("qmgr.queue").options(**said(tmp_path, writeId="job 1")).mode("append")
    writer.save()
    writer.save()
    texts = {b"%d" % number for number in range(30)}
    found = list(qm.browse("A"))
    assert {one.body for one in found} == texts and len(found) == 30
    assert {(one.priority, dict(one.properties)["n"]) for one in found} == {(0, "x"), (1, "x")}
    told = [(mark.key.query, mark.key.part, mark.messages) for mark in marks.listed(qm)]
    assert told == [("write to A: job 1", part, 10) for part in "012"]
    qm.define_queue("OTHER")
    writer.options(queue="OTHER").save()  # which is another writing, as in a foreachBatch that puts rows to two queues
    assert sorted(one.body for one in qm.browse("OTHER")) == sorted(texts) and qm.queue("A").depth == 30
    with pytest.raises(PySparkException, match="no message has a column 'id' to be put; select what there is"):
        spark.range(1).write.format("qmgr.queue").options(**said(tmp_path)).mode("append").save()
    back = spark.read.format("qmgr.queue").options(**said(tmp_path)).schema("body BINARY, priority INT").load()
    assert {bytes(row.body) for row in back.where("priority = 1").collect()} == {b"%d" % n for n in range(1, 30, 2)}


def test_a_stream_of_spark_puts_each_batch_once_whatever_is_killed_and_forgotten(
    spark: "SparkSession", daemons: Daemons
) -> None:
    """From a queue to another one, as a daemon has them."""
    daemons.make(**LINEAR)
    process = daemons.start()
    with daemons.connect() as qm:
        qm.define_queue("A")
        qm.define_queue("B")
        qm.put_many("A", [b"%d" % number for number in range(40)])
    checkpoint = daemons.data / "checkpoint"
    stream = spark.readStream.format("qmgr.queue").options(**said(daemons.data, maxBytesPerTrigger="2k")).load()
    rows = stream.selectExpr("body", "priority", "message_id AS correlation_id").repartition(2)

    def run() -> None:
        writing = rows.writeStream.format("qmgr.queue").options(**said(daemons.data, "B"))
        query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    emptied(checkpoint / "commits")
    os.kill(process, signal.SIGKILL)
    daemons.ended()
    with pytest.raises(PySparkException, match="queue manager 'QM1' is not running; start it with strmqm QM1"):
        run()  # the batch that it has forgotten
    daemons.start()
    with daemons.connect() as qm:
        qm.put_many("A", [b"%d" % number for number in range(40, 50)])
    run()
    with daemons.connect() as qm:
        assert sorted(int(one.body) for one in qm.browse("B")) == list(range(50))
        assert qm.queue("A").depth == 50
        assert {mark.key.part for mark in marks.listed(qm)} == {"0", "1"}


def test_a_stream_whose_checkpoint_lost_its_newest_files_is_refused_until_somebody_says_what_to_do(
    spark: "SparkSession", qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    """Spark plans the batch anew then, with the messages that have come since."""
    checkpoint = tmp_path / "checkpoint"
    stream = spark.readStream.format("qmgr.queue").options(**said(tmp_path)).load().select("body")

    def run() -> None:
        writing = stream.writeStream.format("qmgr.queue").options(**said(tmp_path, "B"))
        query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    for batch in range(2):
        qm.put("A", b"%d" % batch)
        run()
    for folder in ("offsets", "commits"):
        emptied(checkpoint / folder)
    qm.put("A", b"since")
    with pytest.raises(PySparkException, match="was done with batch 1 before, with 1 messages, and now it has 2; done"):
        run()
    assert bodies(qm, "B") == [b"0", b"1"]
    [query] = {mark.key.query for mark in marks.listed(qm)}
    marks.skip(qm, query, 1)
    run()
    qm.put("A", b"later")
    run()
    assert bodies(qm, "B") == [b"0", b"1", b"later"]


def test_what_the_log_tells_of_a_queue_is_put_once_also_when_extents_were_indexed_meanwhile(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """A batch of several extents fails at its second part that has rows, as the queue is full, and is done again."""
    qmgr.create(NAME, data_path=tmp_path, **(LINEAR | {"log_primary_files": 8}))
    with qmgr.start(NAME, data_path=tmp_path, background=False) as qm, shared(qm):
        for queue in ("A", "OTHERS"):
            qm.define_queue(queue)
        qm.define_queue("B", max_depth=3)
        log = finding.find(str(tmp_path), NAME)

        def filled(to: int) -> None:
            while log.end() < to * EXTENT:
                qm.put("OTHERS", b"x" * 7000)

        filled(2)
        start = log.end()
        filled(3)  # an extent without anything that is wanted
        qm.put_many("A", [b"first %d" % number for number in range(3)])
        filled(4)
        qm.put_many("A", [b"second %d" % number for number in range(2)])
        options = {"qmgr": NAME, "objects": "A", "kinds": "PUT", "startingLsn": str(start)}
        stream = spark.readStream.format("qmgr.log").options(**options).load(str(tmp_path)).select("body")

        def run() -> None:
            writing = stream.writeStream.format("qmgr.queue").options(**said(tmp_path, "B")).queryName("a name")
            query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            query.start().awaitTermination()

        with pytest.raises(PySparkException, match="queue 'B'"):
            run()
        assert qm.queue("B").depth in (2, 3)
        qm.alter_queue("B", max_depth=100)
        list(qm.replay("A", NEVER))  # extents get their indexes, as by the housekeeping at any time
        run()
        assert sorted(bodies(qm, "B")) == [*(b"first %d" % n for n in range(3)), *(b"second %d" % n for n in range(2))]


def test_a_checkpoint_that_was_emptied_but_for_its_notes_is_refused_as_what_it_is(tmp_path: Path) -> None:
    """To remove the notes as well, as for a queue manager that was put back, would put all again."""
    options = said(tmp_path, checkpointLocation=str(tmp_path / "checkpoint"))
    metadata = tmp_path / "checkpoint" / "metadata"
    metadata.parent.mkdir()
    metadata.write_text('{"id":"old"}')
    with serving(tmp_path, "A", "B"):
        put = part(tmp_path, Key("query old", "0"), batch=3).put([rows(["0"])])
        QueueStreamWriter(options, typed("body STRING"), False).commit([put], 3)
        metadata.write_text('{"id":"new"}')  # as Spark does where it finds nothing
        with pytest.raises(Mistake, match=r"is of query old, which has put up to batch 3, and has lost its metadata: "):
            QueueStreamWriter(options, typed("body STRING"), False)
        metadata.write_text('{"id":"old"}')
        QueueStreamWriter(options, typed("body STRING"), False)


def test_notes_that_can_not_be_looked_for_just_now_are_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.14 on pathlib takes an error of the disk for no file."""
    notes = tmp_path / queue_sink.NOTES_NAME
    notes.write_text("{}")
    stat = os.stat

    def fails(path: Any, **more: Any) -> os.stat_result:
        if str(path) == str(notes):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", fails)
    monkeypatch.setattr(Path, "exists", os.path.exists)
    with pytest.raises(OSError, match=queue_sink.NOTES_NAME):
        queue_sink.Notes(reach({"qmgr": NAME, "queue": "A"}), str(tmp_path)).refuse_older_marks()
