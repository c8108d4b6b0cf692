"""Putting from Spark: each partition of a batch is one unit of work, with its mark; so it is safe to do it twice.

All is durable when a task has ended. So there is nothing left to do for the driver's commit, and its abort undoes
nothing: what was put is remembered, and a batch that is run again puts the rest.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from logger.clock import SystemClock
from logger.posix_disk import PosixDisk, absolute_path
from logger.whole_files import replace_file
from pipeline import marks
from pipeline.fingerprint import Fingerprint
from pipeline.marks import Key, Manager, Unit
from pipeline.paths import without_scheme
from pipeline.reach import Reach, lowered, reach, refuse_unknown, seconds, whole
from qmgr import BackedOut, Mistake, MQError, ResourceProblem, SyncpointLimit
from qmgr.objects import check_name

WHOLE = (ByteType, ShortType, IntegerType, LongType)
TYPES: dict[str, tuple[type[DataType], ...]] = {
    "body": (BinaryType, StringType),
    "queue": (StringType,),
    "priority": WHOLE,
    "persistent": (BooleanType,),
    "expiry": (*WHOLE, FloatType, DoubleType, DecimalType, TimestampType),
    "message_id": (BinaryType,),
    "correlation_id": (BinaryType,),
    "reply_to": (StringType,),
    "properties": (MapType,),
    "format": (StringType,),
}
TYPE_TEXTS = {
    "body": "binary or string",
    "priority": "a whole number",
    "persistent": "boolean",
    "expiry": "a number of seconds or a timestamp",
    "properties": "map<string,string>",
} | {name: types[0]().typeName() for name, types in TYPES.items() if len(types) == 1 and name != "properties"}
OPTIONS = tuple(name for name in TYPES if name not in ("body", "queue"))

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # properties of a task of a stream
DEFAULT_LIFE_S = 86400.0  # of the marks of a writing without a writeId: attempts may still be on their way
CALL_MESSAGES = 1000
CALL_BYTES = 256 << 10
UNTIL = "until"  # microseconds since 1970-01-01 UTC: an expiry that is a moment
NOTES_NAME = "qmgr-sink.json"  # in the checkpoint of a stream
MIN_EXPIRY_S = 0.001  # of a message whose time is over when it is put
# A batch that is planned keeps its rows; divided anew it would be put again, beside what is there of it.
REFUSED_ADVICE = (
    "each partition of a batch is one unit of work: give units of work more room (MAXUMSGS of ALTER QMGR for messages, "
    "LogPrimaryFiles and LogSecondaryFiles for the log), and have this batch put again, divided as it was; smaller "
    "batches or partitions are for later ones"
)


@attrs.frozen
class Put(WriterCommitMessage):
    """The result of a task, for the driver."""

    key: Key
    messages: int
    before: bool = False  # an attempt before this one has put them


# ---- the columns


def check_columns(schema: StructType, queue: str) -> None:
    """Can rows of these columns be put? Raises Mistake."""
    names = [field.name.lower() for field in schema.fields]
    for field, name in zip(schema.fields, names, strict=True):
        if name not in TYPES:
            raise Mistake(f"no message has a column {field.name!r} to be put; select what there is: {', '.join(TYPES)}")
        if names.count(name) > 1:
            raise Mistake(f"there is more than one column {name!r}; select one of them")
        if not isinstance(field.dataType, TYPES[name]) or not _is_texts(field.dataType):
            raise Mistake(
                f"column {field.name!r} is {field.dataType.simpleString()}; it has to be {TYPE_TEXTS[name]}: cast it"
            )
    if "body" not in names:
        raise Mistake("there is no column 'body', which is what a message carries: name one so, binary or string")
    if "queue" not in names and not queue:
        raise Mistake("it is not said where to put: name the queue by option queue, or in a column queue")


def _is_texts(type_: DataType) -> bool:
    """A map is one of strings."""
    return not isinstance(type_, MapType) or (
        isinstance(type_.keyType, StringType) and isinstance(type_.valueType, StringType)
    )


Run = tuple[str | None, dict[str, Any], list[bytes]]  # column queue, what is said in the others, bodies


def runs(rows: pa.RecordBatch) -> Iterator[Run]:
    """The rows in their order, as runs of neighbours that are put alike. Raises Mistake."""
    columns = {name.lower(): column for name, column in zip(rows.schema.names, rows.columns, strict=True)}
    bodies = columns.pop("body").cast(pa.binary()).to_pylist()
    if None in bodies:
        raise Mistake("a row has no body (null); a message has one, which may be empty: b''")
    queues = columns.pop("queue").to_pylist() if "queue" in columns else [None] * len(bodies)
    values = dict(_values(name, columns[name]) for name in OPTIONS if name in columns)
    for (name, *given), group in groupby(
        zip(zip(queues, *values.values(), strict=True), bodies, strict=True), itemgetter(0)
    ):
        said = {name: value for name, value in zip(values, given, strict=True) if value is not None}
        for some in _calls(body for _, body in group):
            yield name, said, some


def _values(name: str, column: pa.Array) -> tuple[str, list[Any]]:
    """(option, values that can be compared) of a column. An expiry that is a moment stays one, by the name UNTIL."""
    if name == "properties":
        return name, [value if value is None else _properties(value) for value in column.to_pylist()]
    if name != "expiry":
        return name, column.to_pylist()
    if pa.types.is_timestamp(column.type):
        return UNTIL, column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return name, [None if value is None else float(value) for value in column.to_pylist()]


def _properties(items: list[tuple[str, str | None]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, text) for key, text in items if text is not None))


def target_of(name: str | None, queue: str) -> str:
    """Where a row goes whose column queue has this name. Raises Mistake."""
    target = queue if name is None else name
    if name is None and not queue:
        raise Mistake("a row names no queue (null), and there is no option queue to say where such rows go")
    check_name(target, "queue")
    return target


def options_of(said: dict[str, Any], now_us: int) -> dict[str, Any]:
    """The options of the put."""
    options = {name: value for name, value in said.items() if name != UNTIL}
    if UNTIL in said:
        options["expiry"] = max(MIN_EXPIRY_S, (said[UNTIL] - now_us) / 1e6)
    if "properties" in said:
        options["properties"] = dict(said["properties"])
    return options


def _calls(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The bodies, in lists of as many as go with one call."""
    some: list[bytes] = []
    size = 0
    for body in bodies:
        if some and (len(some) == CALL_MESSAGES or size + len(body) > CALL_BYTES):
            yield some
            some, size = [], 0
        some.append(body)
        size += len(body)
    yield some


# ---- a partition


@attrs.frozen(kw_only=True)
class Part:
    """A partition of a batch, to be put once."""

    reach: Reach
    key: Key
    batch: int
    patience: float = marks.ATTEMPT_TIMEOUT_S  # seconds that another attempt at it is waited for
    life: float | None = None  # seconds that it is remembered; None: until the next batch

    def put(self, batches: Iterable[pa.RecordBatch]) -> Put:
        """Put the rows, in one unit of work, unless that was done. Raises MQError with the sentence for the user."""
        some = (rows for rows in batches if rows.num_rows)
        first = next(some, None)  # whatever has to be computed first is waited for here, while nothing is held
        with self.reach.connect(f"spark {self.key}") as qm:
            return self.nothing(qm) if first is None else self.put_by(qm, chain([first], some))

    def nothing(self, qm: Manager) -> Put:
        """An empty partition leaves no mark. Raises Mistake where there is one of an attempt that was not empty."""
        done = marks.done(qm, self.key, self.batch)
        if done is not None:
            marks.compare(qm, done, self.key, Fingerprint())
        return Put(self.key, 0, before=done is not None)

    def put_by(self, qm: Manager, batches: Iterable[pa.RecordBatch]) -> Put:
        """`put` of what is not empty, by this connection."""
        with marks.claim(qm, self.key, self.batch, patience=self.patience) as claimed:
            if claimed.done is not None:
                fingerprint = self._fingerprint(batches, None)
                marks.compare(qm, claimed.done, self.key, fingerprint)
                return Put(self.key, fingerprint.rows, before=True)
            try:
                fingerprint = self._fingerprint(batches, claimed.unit)
                claimed.commit(fingerprint, life=self.life)
            except (SyncpointLimit, ResourceProblem, BackedOut) as exc:
                text = f"{self.key} was not put: {exc.sentence}; {REFUSED_ADVICE}"
                raise MQError(text, reason=exc.reason, name=exc.name) from exc
            return Put(self.key, fingerprint.rows)

    def _fingerprint(self, batches: Iterable[pa.RecordBatch], unit: Unit | None) -> Fingerprint:
        """The fingerprint of the rows; with a unit of work, they are put by it as well."""
        clock, fingerprint = SystemClock(), Fingerprint()
        put_many: Callable[..., object] | None = None if unit is None else unit.put_many
        for name, said, bodies in chain.from_iterable(map(runs, batches)):
            fingerprint.add((name, sorted(said.items())), bodies)
            if put_many is not None:
                put_many(target_of(name, self.reach.queue), bodies, **options_of(said, clock.wall_us()))
        return fingerprint


# ---- what Spark calls


def refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise Mistake("what is on a queue can't be overwritten; put to it: mode('append'), outputMode('append')")


class QueueWriter(DataSourceArrowWriter):
    """Of a batch: `frame.write.format("qmgr.queue")`."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        refuse_unknown(options, "writeId", "batchId", "attemptTimeout")
        self.reach = reach(options, needs_queue=False)
        check_columns(schema, self.reach.queue)
        self.patience = seconds(options, "attemptTimeout", marks.ATTEMPT_TIMEOUT_S)
        self.batch = whole(options, "batchId", 0)
        named = lowered(options).get("writeid")
        if named == "":  # of a variable that nobody has set, perhaps: the job would be put again when it is repeated
            raise Mistake("option writeId is empty, and a job is known by it: give it a name, or leave it out")
        if "batchid" in lowered(options) and not named:
            raise Mistake("option batchId numbers the batches of a writing, and option writeId says of which")
        # The same rows for another queue are another writing.
        name = named or PosixDisk().entropy(16).hex()
        self.query = f"write to {self.reach.queue or marks.ALL}: {name}"
        self.life = None if named else DEFAULT_LIFE_S

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Put:
        """In a task."""
        key = Key(self.query, str(_task().partitionId()))
        part = Part(reach=self.reach, key=key, batch=self.batch, patience=self.patience, life=self.life)
        return part.put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All is durable already. With a writeId: raises Mistake where the batch was divided otherwise before."""
        if self.life is None:
            _refuse_left_over(self.reach, messages, self.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was put stays; with a writeId the next attempt puts the rest."""


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """Of a stream: `frame.writeStream.format("qmgr.queue")`."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        refuse_overwrite(overwrite)
        refuse_unknown(options, "attemptTimeout")
        self.reach = reach(options, needs_queue=False)
        check_columns(schema, self.reach.queue)
        self.patience = seconds(options, "attemptTimeout", marks.ATTEMPT_TIMEOUT_S)
        self.notes = Notes(self.reach, _folder(lowered(options).get("checkpointlocation")))
        self.notes.refuse_older_marks()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Put:
        """In a task. The id of a query stays over restarts, as its checkpoint does."""
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise Mistake("this version of Spark does not tell its tasks to which query and batch they belong")
        key = Key(f"query {query}", str(task.partitionId()))
        return Part(reach=self.reach, key=key, batch=int(batch), patience=self.patience).put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All is durable already. Raises Mistake where the batch was divided otherwise before."""
        _refuse_left_over(self.reach, messages, batchId)
        keys = [put.key for put in messages if isinstance(put, Put) and put.messages]
        if keys:
            self.notes.note(keys[0].query, batchId, [key.part for key in keys])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was put stays; Spark runs the batch again, which puts the rest."""


@attrs.frozen
class Notes:
    """A file in a query's checkpoint, if that is a folder of this machine: the last batch that was put, and its parts.

    A queue manager that is put back from an older copy, or recovered to an earlier moment, has lost batches or parts of
    one, and their marks with them: Spark goes on behind these all the same; only these notes show it. They show as well
    that the files of the checkpoint that say which query it is were removed: Spark takes it for a new one, which would
    put all again.
    """

    reach: Reach
    folder: str | None

    def note(self, query: str, batch: int, parts: list[str]) -> None:
        if self.folder is not None:
            with self.reach.connect("spark commit") as qm:
                text = json.dumps({"to": qm.name, "query": query, "batch": batch, "parts": parts})
            replace_file(PosixDisk(), f"{self.folder}/{NOTES_NAME}", text.encode())

    def refuse_older_marks(self) -> None:
        """Raise Mistake where the queue manager does not remember any more what was put last."""
        if self.folder is None or not PosixDisk().exists(f"{self.folder}/{NOTES_NAME}"):
            return
        try:
            noted, said = (json.loads(Path(self.folder, name).read_bytes()) for name in (NOTES_NAME, "metadata"))
            query, batch, to = f"query {said['id']}", int(noted["batch"]), noted["to"]
            before = str(noted.get("query", query))  # an older version has not noted it
            to, parts = to if isinstance(to, str) else str(to[0]), [str(part) for part in noted.get("parts", ())]
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as exc:
            raise Mistake(
                f"{self.folder}/{NOTES_NAME} can't be read ({exc!r}), which says what this query has put: put it back, "
                f"or remove it and compare pipeline.marks.listed with the commits of the checkpoint"
            ) from exc
        with self.reach.connect("spark plan") as qm:
            if to not in (qm.name, self.reach.name_or_url):
                return  # the query puts to another one now
            if before != query:
                raise Mistake(
                    f"the checkpoint {self.folder} is of {before}, which has put up to batch {batch}, and has lost its "
                    f"metadata: Spark takes it for a new one, {query}, which would put all of that again. Put the "
                    f"files of the checkpoint back; or begin a query with a new checkpoint, behind what was put"
                )
            done = {mark.key.part: mark.batch for mark in marks.listed(qm, query)}
        last = max(done.values(), default=None)
        lost = [part for part in parts if done.get(part, -1) < batch]
        if done.get(marks.ALL, -1) < batch and (lost or last is None or last < batch):
            reached = "nothing" if last is None else f"batches up to {last}"
            if last is not None and last >= batch:
                reached = f"only {len(parts) - len(lost)} of its {len(parts)} parts"
            raise Mistake(
                f"batch {batch} of {query} was put before, and queue manager {self.reach.name_or_url!r} "
                f"remembers {reached}: it was put back from an older copy or made anew, or the marks were deleted. "
                f"Put the checkpoint back to a batch that it remembers; or remove {self.folder}/{NOTES_NAME} to go on "
                f"without what it has lost"
            )


def _folder(checkpoint: str | None) -> str | None:
    """The folder of the checkpoint, if it is one of this machine."""
    with contextlib.suppress(Mistake):
        return None if checkpoint is None else absolute_path(without_scheme(checkpoint))
    return None


def _refuse_left_over(place: Reach, messages: list[WriterCommitMessage | None], batch: int) -> None:
    """No task has looked for parts behind the last one that there is now; the driver does."""
    keys = [put.key for put in messages if isinstance(put, Put)]
    if keys:
        with place.connect("spark commit") as qm:
            marks.refuse_left_over(qm, keys[0].query, batch, frozenset(key.part for key in keys))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark writes in tasks"
    return task
