"""Consuming: the messages of a batch are taken and worked on once, whatever crashes, and wherever."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import functions

import qmgr
from pipeline import finding, marks
from pipeline.consuming import Consuming, Effects, consume
from pipeline.marks import Manager
from qmgr.errors import Mistake, MQError, Reason
from qmgr.life import Stage
from tests.daemon.daemons import Daemons
from tests.daemon.serving import LONG, SPAWN, until
from tests.pipeline import query_to_kill
from tests.pipeline.queues import LINEAR, said, serving
from tests.qmgr.world import NAME, Call, bodies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUERY = "query q"
STEPS = ["before it takes", "after it took", "after the work", "after the commit"]


@pytest.fixture(params=["here", "through its socket"])
def face(request: pytest.FixtureRequest, qm: qmgr.QueueManager) -> Iterator[Manager]:
    if request.param == "here":
        yield qm
    else:
        with qmgr.connect(NAME, data_path=qm._location.data_root) as connection:
            yield connection


def consuming(**options: Any) -> Consuming:
    made = consume(lambda *_: None, qmgr=NAME, queue="A", **options)
    assert isinstance(made, Consuming)
    return made


def table(ids: Sequence[bytes | None], **more: pa.Array) -> pa.Table:
    """A batch of a stream, as far as it matters."""
    columns = {"message_id": pa.array(ids, pa.binary()), "backout_count": pa.array([0] * len(ids), pa.int32())}
    return pa.table(columns | {"more": pa.array([f"row {number}" for number in range(len(ids))])} | more)


def put(qm: Manager, *texts: bytes) -> list[bytes | None]:
    return [qm.put("A", text).message_id for text in texts]


def copied(rows: pa.Table, uow: Effects) -> None:
    """Work: a message to B for each row."""
    uow.put_many("B", [text.encode() for text in rows.column("more").to_pylist()])


def test_messages_are_taken_worked_on_and_remembered_together(face: Manager, qm: qmgr.QueueManager) -> None:
    ids = put(qm, b"1", b"2")
    put(qm, b"not in the batch")

    def work(rows: pa.Table, uow: Effects) -> None:
        assert rows.column("more").to_pylist() == ["row 0", "row 1"]
        copied(rows, uow)
        assert uow.put("B", b"more", priority=9).priority == 9
        assert (bodies(qm, "A"), bodies(qm, "B")) == ([b"not in the batch"], [])  # nobody sees anything yet

    consuming().once(face, QUERY, 5, lambda: table(ids), work)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([b"not in the batch"], [b"more", b"row 0", b"row 1"])
    [mark] = marks.listed(qm)
    assert (mark.key, mark.batch, mark.messages) == (marks.Key(QUERY, "consume A"), 5, 2)


def test_while_spark_computes_the_batch_nothing_is_held(face: Manager, qm: qmgr.QueueManager) -> None:
    """A unit of work that waits for it holds the head of the log, and may be rolled back for that."""
    ids = put(qm, b"1")

    def computed() -> pa.Table:
        qm.begin(marks.Key(QUERY, "consume A").xid).backout()  # which there may be one of at a time
        return table(ids)

    for _ in range(2):
        consuming().once(face, QUERY, 5, computed, copied)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"row 0"])


def never(rows: pa.Table, uow: Effects) -> None:
    raise AssertionError


def test_a_batch_that_is_done_is_not_worked_on_again(face: Manager, qm: qmgr.QueueManager) -> None:
    ids = put(qm, b"1", b"2")
    consuming().once(face, QUERY, 0, lambda: table(ids), copied)
    for again in (ids, ids[::-1]):
        consuming().once(face, QUERY, 0, lambda: table(again), never)  # noqa: B023 - it is called here
    assert bodies(qm, "B") == [b"row 0", b"row 1"]


def test_a_batch_that_is_done_takes_no_message_of_its_ids_that_was_put_since(
    face: Manager, qm: qmgr.QueueManager
) -> None:
    ids = put(qm, b"1")
    consuming().once(face, QUERY, 0, lambda: table(ids), copied)
    qm.put("A", b"1", message_id=ids[0])
    consuming().once(face, QUERY, 0, lambda: table(ids), never)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([b"1"], [b"row 0"])


def test_a_batch_that_is_another_one_than_the_one_that_was_done_is_refused(
    face: Manager, qm: qmgr.QueueManager
) -> None:
    """As after the loss of a checkpoint's newest files, when batches are planned again, with what has come since."""
    ids = put(qm, b"1", b"2", b"3", b"4")
    consuming().once(face, QUERY, 0, lambda: table(ids[:2]), copied)
    with pytest.raises(Mistake, match=r"part consume A of query q was done with batch 0 before, with 2 messages, and"):
        consuming().once(face, QUERY, 0, lambda: table(ids[:3]), never)
    with pytest.raises(Mistake, match="and now it has 2 others"):
        consuming().once(face, QUERY, 0, lambda: table(ids[1:3]), never)
    consuming().once(face, QUERY, 1, lambda: table(ids[2:3]), copied)
    with pytest.raises(Mistake, match=r"done up to batch 1 before.*skip\(qm, 'query q', 0\)"):
        consuming().once(face, QUERY, 0, lambda: table(ids[:2]), never)
    marks.skip(qm, QUERY, 0)
    consuming().once(face, QUERY, 0, lambda: table(ids), never)
    assert bodies(qm, "A") == [b"4"]  # which nobody will take: that is what it costs
    consuming().once(face, QUERY, 1, lambda: table(put(qm, b"5")), copied)
    assert (bodies(qm, "A"), qm.queue("B").depth) == ([b"4"], 4)


def test_columns_may_be_named_in_capitals(face: Manager, qm: qmgr.QueueManager) -> None:
    """As a query has them that selects `MESSAGE_ID`; work has them by the names that the query gives."""
    ids = [qm.put("A", body, message_id=b"m").message_id for body in (b"1", b"other")]
    [row] = table(ids[:1], BODY_LENGTH=pa.array([1])).to_pylist()
    batch = pa.Table.from_pylist([{name.upper(): value for name, value in row.items()} | {"More": "spare"}])

    def work(rows: pa.Table, uow: Effects) -> None:
        assert rows.column_names == ["MESSAGE_ID", "BACKOUT_COUNT", "MORE", "BODY_LENGTH", "More"]
        uow.put("B", b"done")

    consuming().once(face, QUERY, 0, lambda: batch, work)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([b"other"], [b"done"])


def test_each_message_is_taken_once_and_all_rows_of_it_are_worked_on(face: Manager, qm: qmgr.QueueManager) -> None:
    """A query may make several rows of a message."""
    one, other, gone = put(qm, b"order of 3 lines", b"order of 1 line", b"gone")
    qm.get("A", message_id=gone)
    consuming().once(face, QUERY, 0, lambda: table([one, gone, other, one, gone, one]), copied)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"row 0", b"row 2", b"row 3", b"row 5"])


def streamed(*messages: qmgr.Message, **columns: pa.Array) -> pa.Table:
    """A batch that says when messages were put, and how long they are."""
    said = {
        "put_time": pa.array([message.put_time for message in messages], pa.timestamp("us", tz="UTC")),
        "body_length": pa.array([len(message.body) for message in messages], pa.int32()),
    }
    return table([message.message_id for message in messages], **(said | columns))


def worked_on(into: list[str]) -> Any:
    return lambda rows, uow: into.extend(rows.column("more").to_pylist())


def test_of_messages_with_one_id_the_one_that_is_meant_is_taken(face: Manager, qm: qmgr.QueueManager) -> None:
    first, second, third = (qm.put("A", text, message_id=b"X") for text in (b"first", b"second", b"third"))
    found: list[str] = []
    for batch, (message, more) in enumerate(((first, second), (second, third))):
        with pytest.raises(Mistake, match=r"another message with the id 58.* is on queue 'A' before the one that is"):
            consuming().once(face, QUERY, batch, lambda: streamed(more), never)  # noqa: B023
        assert qm.queue("A").depth == 3 - batch and not qm.transactions()
        assert {seen.backout_count for seen in qm.browse("A")} == {0}, "what is in the way was not got for it"
        consuming().once(face, QUERY, batch, lambda: streamed(message), worked_on(found))  # noqa: B023
    assert (found, bodies(qm, "A")) == (["row 0", "row 0"], [b"third"])
    consuming().once(face, QUERY, 2, lambda: streamed(first), never)  # somebody else has it; and the third stays
    assert bodies(qm, "A") == [b"third"]
    fourth = qm.put("A", b"fourth", message_id=b"X")
    consuming().once(face, QUERY, 3, lambda: streamed(fourth, third, third), worked_on(found))
    assert (found[2:], bodies(qm, "A")) == (["row 0", "row 1", "row 2"], [])


def with_bodies(*messages: qmgr.Message) -> pa.Table:
    """A batch that has the bodies, as the stream has them."""
    return streamed(*messages, body=pa.array([message.body for message in messages], pa.binary()))


def twins(face: Manager) -> list[qmgr.Message]:
    """Of one id, one moment and one length."""
    face.put_many("A", [b"line 1", b"line 2"], message_id=b"X")
    found = list(face.browse("A"))
    assert found[0].put_time == found[1].put_time
    return found


def test_of_messages_that_were_put_together_the_body_says_which_is_meant(face: Manager, qm: qmgr.QueueManager) -> None:
    first, second = twins(face)
    found: list[str] = []
    with pytest.raises(Mistake, match=r"another message with the id 58.* is on queue 'A' before the one that is"):
        consuming().once(face, QUERY, 0, lambda: with_bodies(second), never)
    assert qm.get("A").body == b"line 1"
    with pytest.raises(Mistake, match=r"message with the id 58.* on queue 'A' has another body than the batch says"):
        consuming().once(face, QUERY, 0, lambda: with_bodies(first), never)
    consuming().once(face, QUERY, 0, lambda: with_bodies(first, second), worked_on(found))
    assert (found, bodies(qm, "A")) == (["row 1"], [])
    third, fourth = twins(face)
    consuming().once(face, QUERY, 1, lambda: with_bodies(third, fourth, third), worked_on(found))
    assert (found[1:], bodies(qm, "A")) == (["row 0", "row 1", "row 2"], [])


def test_a_body_that_the_query_has_made_is_no_reason_to_leave_a_message(face: Manager, qm: qmgr.QueueManager) -> None:
    one = qm.put("A", b"text")
    for number, made in enumerate((pa.array(["text"]), pa.array([b"longer text"], pa.binary()))):
        one = one if number == 0 else qm.put("A", b"text")
        consuming().once(face, QUERY, number, lambda: streamed(one, body=made), lambda rows, uow: None)  # noqa: B023
        assert bodies(qm, "A") == []
    one = qm.put("A", b"text")
    with pytest.raises(Mistake, match="if the query changes the body, give that column another name"):
        consuming().once(face, QUERY, 2, lambda: streamed(one, body=pa.array([b"TEXT"], pa.binary())), never)


class Busy:
    """A queue manager to which others put just when a browse has shown something of queue A."""

    def __init__(self, face: Manager, others: Callable[[], object]) -> None:
        self._face = face
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._face, name)

    def browse(self, queue: str, **options: Any) -> Iterator[qmgr.Message]:
        for seen in self._face.browse(queue, **options):
            if queue == "A":
                self._others()
            yield seen


def test_one_with_this_id_that_comes_before_it_meanwhile_is_not_taken_in_its_place(
    face: Manager, qm: qmgr.QueueManager
) -> None:
    meant = qm.put("A", b"meant", message_id=b"X")
    busy: Any = Busy(face, lambda: qm.put("A", b"another", message_id=b"X", priority=9))
    with pytest.raises(Mistake, match=r"another message with the id 58.* is on queue 'A' before the one that is"):
        consuming().once(busy, QUERY, 0, lambda: streamed(meant), never)
    assert bodies(qm, "A") == [b"another", b"meant"] and not marks.listed(qm)


def test_messages_that_are_alike_are_told_apart_by_their_place_in_the_log(face: Manager, qm: qmgr.QueueManager) -> None:
    alike = [qm.put("A", b"x", message_id=b"X") for _ in range(3)]
    batch = table([message.message_id for message in alike[:2]])
    with pytest.raises(Mistake, match="nothing says which of them are meant; select put_time and body_length too"):
        consuming().once(face, QUERY, 0, lambda: batch, never)
    assert qm.queue("A").depth == 3 and not qm.transactions()
    qm.get("A")
    places = {"lsn": pa.array([7, 7, 7], pa.int64()), "position": pa.array([0, 1, 0], pa.int32())}
    ids = [message.message_id for message in (*alike[:2], alike[0])]
    found: list[str] = []
    consuming().once(face, QUERY, 0, lambda: table(ids, **places), worked_on(found))
    assert (sorted(found), bodies(qm, "A")) == (["row 0", "row 1", "row 2"], [])


def test_what_somebody_else_took_is_not_given_to_the_work(face: Manager, qm: qmgr.QueueManager) -> None:
    ids = put(qm, b"1", b"2", b"3", b"4")
    qm.get("A", message_id=ids[0])
    unit = qm.begin()
    unit.get("A", message_id=ids[2])
    consuming().once(face, QUERY, 0, lambda: table([*ids, b"never put".ljust(24)]), copied)
    assert bodies(qm, "B") == [b"row 1", b"row 3"]
    unit.backout()
    assert bodies(qm, "A") == [b"3"]


def test_a_batch_without_messages_writes_nothing_into_the_log_that_the_stream_reads(
    face: Manager, qm: qmgr.QueueManager
) -> None:
    """Else that would be another batch, and a query would never be done."""
    [wanted] = put(qm, b"1")
    log = finding.find(qm._location.data_root, NAME)
    for first in (True, False):
        end = log.end()
        consuming().once(face, QUERY, 1, lambda: table([]), never)
        assert log.end() == end
        if first:
            consuming().once(face, QUERY, 0, lambda: table([wanted]), copied)
    with pytest.raises(Mistake):
        consuming().once(face, QUERY, 0, lambda: table([]), never)


def test_where_nothing_is_left_to_take_there_is_no_work_and_the_batch_is_done(
    face: Manager, qm: qmgr.QueueManager
) -> None:
    ids = put(qm, b"1")
    qm.get("A")

    def never(rows: pa.Table, uow: Effects) -> None:
        raise AssertionError

    consuming().once(face, QUERY, 0, lambda: table(ids), never)
    assert [mark.batch for mark in marks.listed(qm)] == [0]


def test_a_batch_of_another_queue_is_refused_and_not_taken_for_one_that_is_done(
    face: Manager, qm: qmgr.QueueManager
) -> None:
    """Else Spark goes on behind messages that nobody has worked on."""
    ids = put(qm, b"1", b"2")
    of_a = table(ids, queue=pa.array(["A", "A"]))
    other = consume(never, qmgr=NAME, queue="B")
    assert isinstance(other, Consuming)
    with pytest.raises(Mistake, match=r"the batch is of queue 'A'.* on queue 'B'"):
        other.once(face, QUERY, 0, lambda: of_a, never)
    assert (marks.listed(qm), bodies(qm, "A")) == ([], [b"1", b"2"])
    consuming().once(face, QUERY, 0, lambda: of_a, copied)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"row 0", b"row 1"])


@pytest.mark.parametrize("name", ["B", "NOT.DEFINED", "no name", None])
def test_a_queue_that_the_query_has_named_is_no_reason_to_refuse_a_batch(
    face: Manager, qm: qmgr.QueueManager, name: str | None
) -> None:
    ids = put(qm, b"1", b"2")
    named = table(ids, queue=pa.array([name, name], pa.string()))
    consuming().once(face, QUERY, 0, lambda: named, copied)
    assert bodies(qm, "B") == [b"row 0", b"row 1"]
    consuming().once(face, QUERY, 1, lambda: named, never)  # they are gone
    assert [mark.batch for mark in marks.listed(qm)] == [1]


def test_rows_have_the_backout_counts_that_messages_have_now(face: Manager, qm: qmgr.QueueManager) -> None:
    ids = put(qm, b"1", b"2")
    seen: list[list[int]] = []

    def work(rows: pa.Table, uow: Effects) -> None:
        seen.append(rows.column("backout_count").to_pylist())
        if len(seen) < 3:
            raise ConnectionError("what the work needs is not there")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            consuming().once(face, QUERY, 0, lambda: table(ids), work)
        assert qm.queue("A").depth == 2 and not qm.transactions()
    consuming().once(face, QUERY, 0, lambda: table(ids).select(["more", "backout_count", "message_id"]), work)
    assert seen == [[0, 0], [1, 1], [2, 2]]
    consuming().once(face, QUERY, 1, lambda: table(put(qm, b"3")).drop_columns("backout_count"), copied)
    assert bodies(qm, "B") == [b"row 0"]


def test_what_nobody_can_work_on_is_moved_away(face: Manager, qm: qmgr.QueueManager) -> None:
    qm.alter_queue("A", backout_threshold=1, backout_queue="B")
    ids = put(qm, b"poison", b"good")
    unit = qm.begin()
    unit.get("A", message_id=ids[0])
    unit.backout()
    seen: list[Any] = []
    consuming().once(face, QUERY, 0, lambda: table(ids), lambda rows, uow: seen.append(rows.column("more").to_pylist()))
    assert (seen, bodies(qm, "A"), bodies(qm, "B")) == ([["row 1"]], [], [b"poison"])
    alike = [qm.put("A", body, message_id=b"X") for body in (b"bad", b"good", b"better")]
    unit = qm.begin()
    unit.get("A")
    unit.backout()
    consuming().once(face, QUERY, 5, lambda: streamed(*alike), lambda rows, uow: seen.append(rows["more"].to_pylist()))
    assert (seen.pop(), bodies(qm, "A"), bodies(qm, "B")) == (["row 1", "row 2"], [], [b"poison", b"bad"])
    [poison] = put(qm, b"poison")
    unit = qm.begin()
    unit.get("A")
    unit.backout()
    consuming(backout_requeue=False).once(face, QUERY, 6, lambda: table([poison]), lambda rows, uow: seen.append(rows))
    assert len(seen) == 2


def test_the_work_may_get_more_from_the_queue_manager(face: Manager, qm: qmgr.QueueManager) -> None:
    ids = put(qm, b"1")
    qm.put("B", b"its other half")

    def work(rows: pa.Table, uow: Effects) -> None:
        assert uow.get("B").body == b"its other half"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        consuming().once(face, QUERY, 0, lambda: table(ids), work)
    assert bodies(qm, "B") == [b"its other half"]


def test_two_drivers_at_once_consume_once(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    ids = put(qm, *[b"%d" % number for number in range(20)])

    def drive() -> None:
        with qmgr.connect(NAME, data_path=tmp_path) as connection:
            consuming().once(connection, QUERY, 0, lambda: table(ids), copied)

    for call in [Call(drive) for _ in range(3)]:
        call.outcome()
    assert (qm.queue("A").depth, qm.queue("B").depth) == (0, 20)


def test_a_batch_that_is_too_large_is_refused_whole_with_a_way_out(face: Manager, qm: qmgr.QueueManager) -> None:
    qm.alter(max_uncommitted=5)
    ids = put(qm, *[b"x"] * 6)
    with pytest.raises(MQError, match=r"batch 0 of queue 'A' was not consumed: .*maxBytesPerTrigger") as refused:
        consuming().once(face, QUERY, 0, lambda: table(ids), copied)
    assert refused.value.reason == Reason.SYNCPOINT_LIMIT_REACHED
    assert (qm.queue("A").depth, marks.listed(qm)) == (6, [])
    consuming().once(face, QUERY, 0, lambda: table(ids[:2]), copied)
    assert qm.queue("B").depth == 2


def test_rows_without_a_message_id_are_refused(qm: qmgr.QueueManager) -> None:
    with pytest.raises(Mistake, match="no message_id"):
        consuming().once(qm, QUERY, 0, lambda: table([None]), copied)
    with pytest.raises(Mistake, match="can't be the name of a queue"):
        consume(lambda *_: None, qmgr=NAME, queue="no name")


class Connected:
    """A session of Spark Connect, as far as it has no part of the driver in it."""

    @property
    def sparkContext(self) -> None:
        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "-"})


def test_a_batch_of_no_query_that_is_known_is_refused(spark: "SparkSession") -> None:
    taken = consume(lambda *_: None, qmgr=NAME, queue="A")
    with pytest.raises(Mistake, match="works in foreachBatch, where Spark says which query it is"):
        taken(spark.createDataFrame([(b"m",)], "message_id BINARY"), 0)
    with pytest.raises(Mistake, match=r"Spark Connect does not tell which query .*by a driver of the usual kind"):
        taken(SimpleNamespace(sparkSession=Connected()), 0)  # type: ignore[arg-type]


# ---- crashes


def run(qm: Manager, step: str, ids: list[bytes | None], crash: Callable[[], object]) -> None:
    """Run batch 0, and crash at a step of it."""

    def batch() -> pa.Table:
        if step == STEPS[0]:
            crash()
        return table(ids)

    def work(rows: pa.Table, uow: Effects) -> None:
        if step == STEPS[1]:
            crash()
        copied(rows, uow)
        if step == STEPS[2]:
            crash()

    consuming().once(qm, QUERY, 0, batch, work)
    if step == STEPS[3]:
        crash()


def run_and_die(path: Path, step: str, ids: list[bytes | None]) -> None:
    """The driver of a query."""
    run(qmgr.connect(NAME, data_path=path), step, ids, lambda: os._exit(7))


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_loses_and_repeats_nothing(qm: qmgr.QueueManager, tmp_path: Path, step: str) -> None:
    ids = put(qm, b"1", b"2")
    driver = SPAWN.Process(target=run_and_die, args=(tmp_path, step, ids))
    driver.start()
    driver.join(LONG)
    assert driver.exitcode == 7
    run(qm, "", ids, lambda: None)  # Spark runs the batch again
    until(lambda: not qm.transactions())
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"row 0", b"row 1"])


@pytest.mark.parametrize("step", STEPS)
def test_a_queue_manager_that_dies_loses_and_repeats_nothing(tmp_path: Path, step: str) -> None:
    class Crash(Exception):
        pass

    with serving(tmp_path, "A", "B") as qm, qmgr.connect(NAME, data_path=tmp_path) as connection:
        ids = put(qm, b"1", b"2")

        def crash() -> None:
            qm.abandon()
            raise Crash

        with pytest.raises(Crash):
            run(connection, step, ids, crash)
    with serving(tmp_path) as qm:
        run(qm, "", ids, lambda: None)
        assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"row 0", b"row 1"])
        assert [mark.batch for mark in marks.listed(qm)] == [0]


# ---- in Spark


def test_a_query_that_is_killed_and_one_whose_work_fails_consume_once(
    spark: "SparkSession", qm: qmgr.QueueManager, tmp_path: Path
) -> None:
    """The process of a query is killed between batches, or in one; another process goes on where it was."""
    checkpoint = str(tmp_path / "checkpoint")
    put(qm, *[b"%d" % number for number in range(60)])
    words = [sys.executable, "-m", "tests.pipeline.query_to_kill", str(tmp_path), checkpoint]
    doomed = subprocess.Popen(words, start_new_session=True)
    try:
        until(lambda: doomed.poll() is not None or qm.queue("B").depth > 10, 300)
    finally:
        os.killpg(doomed.pid, signal.SIGKILL)
        doomed.wait()
    assert doomed.returncode == -signal.SIGKILL
    until(lambda: not qm.transactions())
    assert qm.queue("A").depth + qm.queue("B").depth == 60
    put(qm, *[b"%d" % number for number in range(60, 65)])
    qm.alter_queue("B", put_enabled=False)
    with pytest.raises(PySparkException, match="puts to queue 'B' are disabled"):
        query_to_kill.run(spark, str(tmp_path), checkpoint, availableNow=True)
    assert qm.queue("A").depth + qm.queue("B").depth == 65
    qm.alter_queue("B", put_enabled=True)
    query_to_kill.run(spark, str(tmp_path), checkpoint, availableNow=True)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"%d" % number for number in range(65)])


@pytest.mark.parametrize(
    "wrong",
    [{"work": None}, {"work": "x"}, {"qmgr": 5}, {"qmgr": None}, {"queue": 5}, {"backout_requeue": None},
     {"qmgr": "qmgr 1"}, {"qmgr": "qmgr://host"}, {"data_path": ""},
     {"patience": -1}, {"patience": "1"}, {"patience": True}, {"patience": float("nan")}, {"patience": None}],
    ids=str,
)  # fmt: skip
def test_what_can_not_be_is_refused_before_any_batch_comes(wrong: dict[str, Any]) -> None:
    said: dict[str, Any] = {"work": lambda rows, batch_id, uow: None, "qmgr": NAME, "queue": "ORDERS", **wrong}
    with pytest.raises(Mistake, match=next(iter(wrong))):
        consume(said.pop("work"), **said)


def test_a_daemon_that_is_killed_amid_batches_of_a_sink_and_of_a_consumer_has_all_of_them_once(
    spark: "SparkSession", daemons: Daemons
) -> None:
    """One query consumes A, with a message to B for each; another one puts what A had to C.

    It is killed when both are amid their second batch of three: what they have put is in no commit yet.
    """
    daemons.make(**LINEAR)
    process, amid, started = daemons.data / "process", daemons.data / "amid", 0
    texts = [b"%d" % number for number in range(30)]
    amid.mkdir()
    process.write_text(str(daemons.start()))

    def kill(name: str) -> None:
        """The sink does it, once, and the work waits for that."""
        (amid / name).touch()
        until(lambda: not process.exists() or (name == "sink" and (amid / "work").exists()), 300)
        if process.exists():
            os.kill(int(process.read_text()), signal.SIGKILL)
            process.unlink()

    def passed(body: bytes) -> bytes:
        if bytes(body).strip() == b"13":
            kill("sink")
        return bytes(body).strip()

    def worked(batch: "DataFrame", _: int, uow: Effects) -> None:
        for row in batch.collect():
            text = bytes(row.body).strip()
            uow.put("B", text)
            if text == b"15":
                kill("work")

    def queries() -> "Iterator[StreamingQuery]":
        stream = spark.readStream.format("qmgr.queue").options(**said(daemons.data, maxBytesPerTrigger="128k")).load()
        put_on = stream.select(functions.udf(passed, "binary", useArrow=False)("body").alias("body"))
        taken = consume(worked, qmgr=NAME, queue="A", data_path=daemons.data)
        for writing, name in (
            (put_on.writeStream.format("qmgr.queue").options(**said(daemons.data, "C")), "sink"),
            (stream.writeStream.foreachBatch(taken), "work"),
        ):
            checkpoint = str(daemons.data / f"checkpoint of {name}")
            yield writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    with daemons.connect() as qm:
        for queue in "ABC":
            qm.define_queue(queue)
        for first in range(0, len(texts), 10):  # so long that what the queries log is hardly a batch more
            qm.put_many("A", [text.ljust(12_000) for text in texts[first : first + 10]])
    failed = True
    while failed:
        failed = False
        for query in [*queries()]:
            try:
                query.awaitTermination()
            except PySparkException:
                failed = True
        if daemons.there(Stage.RUNNING):
            assert started < 20, "something else goes wrong"
        else:
            daemons.ended()
            daemons.start()
        started += 1
    assert not process.exists()
    assert {path.name for path in amid.iterdir()} == {"sink", "work"}
    with daemons.connect() as qm:
        until(lambda: not qm.transactions())
        assert [bodies(qm, queue) for queue in "ABC"] == [[], texts, texts]


def test_a_daemon_that_is_killed_before_spark_notes_a_batch_has_it_consumed_once(
    spark: "SparkSession", daemons: Daemons
) -> None:
    """What is put meanwhile has the id and the body of what was consumed: it is of the next batch alone."""
    daemons.make(**LINEAR)
    process = daemons.start()
    commits = daemons.data / "checkpoint" / "commits"

    def worked(batch: "DataFrame", number: int, uow: Effects) -> None:
        uow.put_many("B", [b"%d: %s" % (number, bytes(row.body)) for row in batch.collect()])

    def run() -> None:
        stream = spark.readStream.format("qmgr.queue").options(**said(daemons.data)).load()
        taken = consume(worked, qmgr=NAME, queue="A", data_path=daemons.data)
        writing = stream.select("message_id", "body").writeStream.foreachBatch(taken)
        writing.option("checkpointLocation", str(commits.parent)).trigger(availableNow=True).start().awaitTermination()

    with daemons.connect() as qm:
        qm.define_queue("A")
        qm.define_queue("B")
        message_id = qm.put("A", b"one").message_id
    run()
    for path in (commits / "0", commits / ".0.crc"):
        path.unlink()
    os.kill(process, signal.SIGKILL)
    daemons.ended()
    daemons.start()
    with daemons.connect() as qm:
        qm.put("A", b"one", message_id=message_id)
    run()
    with daemons.connect() as qm:
        assert [bodies(qm, queue) for queue in "AB"] == [[], [b"0: one", b"1: one"]]
