"""Consuming: the messages in a batch of a stream are got and processed in one unit of work with the batch's mark.

A stream of a queue takes nothing away, since Spark may read it again. Here the messages of a batch are got in one unit
of work, which also has what is put for them and the mark of the batch: all of that is durable, or nothing. Wherever
anything crashes, the batch is run again; either it is done, and nothing happens, or its messages are there.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Unpack

import attrs

from pipeline import marks
from pipeline.fingerprint import Fingerprint
from pipeline.marks import Key, Manager, Unit
from pipeline.paths import local
from qmgr import (
    BackedOut,
    Message,
    Mistake,
    MQError,
    NoMessageAvailable,
    Reason,
    ResourceProblem,
    SyncpointLimit,
    connect,
    targets,
)
from qmgr.errors import quoted
from qmgr.objects import check_flag, check_name
from qmgr.verbs import MAX_WAIT_S, GetOptions, PutOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"
# A batch that is planned keeps its rows.
REFUSED_ADVICE = (
    "a batch is one unit of work: give units of work more room (MAXUMSGS of ALTER QMGR for messages, LogPrimaryFiles "
    "and LogSecondaryFiles for the log), and start the query again; maxBytesPerTrigger makes later batches smaller"
)


@attrs.frozen
class Effects:
    """The unit of work of a batch, without its end: `consume` commits it, with the batch's mark."""

    _unit: Unit

    def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message, which others see when the batch is done; see `QueueManager.put`."""
        return self._unit.put(queue, body, **options)

    def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body, all with the same options; all of them are put, or none."""
        return self._unit.put_many(queue, bodies, **options)

    def get(self, queue: str, *, wait: float | None = 0.0, **options: Unpack[GetOptions]) -> Message:
        """Take another message, which is gone when the batch is done; see `QueueManager.get`."""
        return self._unit.get(queue, wait=wait, **options)


Work = Callable[["DataFrame", int, Effects], object]


def consume(
    work: Work,
    *,
    qmgr: Manager | str,
    queue: str,
    data_path: str | None = None,
    backout_requeue: bool = True,
    patience: float = marks.ATTEMPT_TIMEOUT_S,
) -> Callable[["DataFrame", int], None]:
    """What `foreachBatch` of a stream of the queue calls: it takes the messages of each batch, for `work` to process.

        def invoice(orders, batch_id, uow):
            for order in orders.collect():
                uow.put("INVOICES", invoice_of(order.body))

        stream.writeStream.foreachBatch(pipeline.consume(invoice, qmgr="QM1", queue="ORDERS")).start()

    `work(orders, batch_id, uow)` has the rows of the messages that were taken, without those that somebody else has got
    before. What it puts by `uow` is there when the messages are gone. `qmgr`: a queue manager of this process, a
    connection, or what `qmgr.connect` takes. With `backout_requeue` messages that were backed out too often are moved
    away instead. `patience`: seconds that a batch waits for another attempt at it to end. Raises Mistake for arguments
    that can't be right, before any batch comes.
    """
    if not callable(work):
        raise Mistake(f"work is a function of (rows, batch_id, uow), not {quoted(work)}", reason=Reason.OPTIONS_ERROR)
    whose: object = qmgr
    if not isinstance(whose, str | Manager):
        text = "qmgr is a queue manager, a connection, or the name of one"
        raise Mistake(f"{text}, not {quoted(whose)}", reason=Reason.OPTIONS_ERROR)
    check_name(queue, "queue")
    check_flag(backout_requeue, "backout_requeue")
    if not isinstance(patience, int | float) or isinstance(patience, bool) or not 0 <= patience <= MAX_WAIT_S:
        text = f"patience is seconds, from 0 to {MAX_WAIT_S:g}"
        raise Mistake(f"{text}, not {quoted(patience)}", reason=Reason.OPTIONS_ERROR)
    path = None if data_path is None else local(str(data_path))
    if isinstance(qmgr, str):
        targets.find(qmgr, path, targets.Identity())
    return Consuming(work, qmgr, queue, path, backout_requeue, patience)


@attrs.frozen
class Consuming:
    """`consume` for one queue."""

    work: Work
    qmgr: Manager | str
    queue: str
    data_path: str | None
    backout_requeue: bool
    patience: float

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        session = batch.sparkSession
        query = _query_of(session)
        if "message_id" not in _in_lower_case(batch.columns):
            raise Mistake("the batch has no column 'message_id', which says what to take; select it too")

        def work(rows: "pa.Table", uow: Effects) -> None:
            self.work(session.createDataFrame(rows, batch.schema), batch_id, uow)

        with self._manager() as qm:
            self.once(qm, f"query {query}", batch_id, batch.toArrow, work)

    def once(
        self,
        qm: Manager,
        query: str,
        batch_id: int,
        batch: "Callable[[], pa.Table]",
        work: "Callable[[pa.Table, Effects], object]",
    ) -> None:
        """Take the messages that the batch names, have `work` process them, and leave a mark, in one unit of work.

        Does nothing where there is a mark of this batch already. Raises Mistake where that is of other messages, and
        where none of the messages is on the queue, but on the one that their rows name.
        """
        key = Key(query, f"consume {self.queue}")
        given = batch()  # Spark computes it here, while nothing is held
        table = given.rename_columns(_in_lower_case(given.column_names))
        wanted = wanted_of(table)
        fingerprint = Fingerprint()
        for one in wanted:
            fingerprint.add(one.named)
        if not wanted:  # not remembered: a mark lies in the log that the stream reads, so each would make another batch
            done = marks.done(qm, key, batch_id)
            if done is not None:
                marks.compare(qm, done, key, fingerprint)
            return
        with marks.claim(qm, key, batch_id, patience=self.patience) as claimed:
            if claimed.done is not None:
                marks.compare(qm, claimed.done, key, fingerprint)
                return
            try:
                rows = self._take(qm, claimed.unit, table, wanted)
                if rows.num_rows:
                    work(rows.rename_columns(given.column_names), Effects(claimed.unit))
                elif (name := self._elsewhere(qm, table, wanted)) is not None:
                    raise Mistake(
                        f"the batch is of queue {name!r}, where its messages are, and none of them is on queue "
                        f"{self.queue!r}, from which pipeline.consume is to take them: name the queue of the stream"
                    )
                claimed.commit(fingerprint)
            except (SyncpointLimit, ResourceProblem, BackedOut) as exc:
                text = f"batch {batch_id} of queue {self.queue!r} was not consumed: {exc.sentence}; {REFUSED_ADVICE}"
                raise MQError(text, reason=exc.reason, name=exc.name) from exc

    def _take(self, qm: Manager, unit: Unit, rows: "pa.Table", wanted: "list[Wanted]") -> "pa.Table":
        """Get the messages; the rows of those that were there, with the backout counts that they have."""
        import pyarrow as pa

        counts: list[int | None] = [None] * rows.num_rows
        alike: dict[bytes, list[Wanted]] = {}
        for one in wanted:
            alike.setdefault(one.message_id, []).append(one)
        for some in alike.values():
            for one, message in self._got(qm, unit, some):
                for row in one.rows:
                    counts[row] = message.backout_count
        left = rows.filter(pa.array([count is not None for count in counts], pa.bool_()))
        if "backout_count" not in rows.column_names:
            return left
        place = rows.column_names.index("backout_count")
        now = pa.array([count for count in counts if count is not None], pa.int32())
        return left.set_column(place, "backout_count", now)

    def _got(self, qm: Manager, unit: Unit, wanted: "list[Wanted]") -> "Iterator[tuple[Wanted, Message]]":
        """Get the wanted messages, all of one id. A get takes the first with that id, so a browse looks at it before.

        Raises Mistake where another one is before one that is wanted, and where they can't be distinguished.
        """
        left, message_id = list(wanted), wanted[0].message_id
        while left and (one := self._first(qm, left)) is not None:
            try:
                got = unit.get(self.queue, message_id=message_id, backout_requeue=self.backout_requeue)
            except NoMessageAvailable:
                break  # somebody else was faster, or it was backed out too often
            if not one.is_it(got):  # that was backed out too often, and is moved away: this is the next one
                left.remove(one)
                found = next((other for other in left if other.is_it(got)), None)
                if found is None:
                    raise self._behind(one)
                one = found
            left.remove(one)
            yield one, got
        if not wanted[0].can_be_told and next(iter(qm.browse(self.queue, message_id=message_id)), None) is not None:
            raise Mistake(
                f"there are more messages with the id {message_id.hex()} on queue {self.queue!r} than the batch has, "
                f"and nothing says which of them are meant; select put_time and body_length too"
            )

    def _first(self, qm: Manager, wanted: "list[Wanted]") -> "Wanted | None":
        """Which of these is the first message with the id on the queue; None: none of these is there.

        Raises Mistake where another one lies before it, and where one fits in all but its body.
        """
        other, otherwise = False, False
        for seen in qm.browse(self.queue, message_id=wanted[0].message_id):
            one = next((one for one in wanted if one.is_it(seen)), None)
            if one is not None:
                if other:
                    raise self._behind(one)
                return one
            other, otherwise = True, otherwise or any(one.fits(seen) for one in wanted)
        if otherwise:
            raise Mistake(
                f"the message with the id {wanted[0].message_id.hex()} on queue {self.queue!r} has another body than "
                f"the batch says: if the query changes the body, give that column another name; else it is another "
                f"message that was put in the same moment: get that one first, or move it to another queue"
            )
        return None

    def _elsewhere(self, qm: Manager, rows: "pa.Table", wanted: "list[Wanted]") -> str | None:
        """The queue that the rows name and where a message of the batch is; None: there is none such."""
        names = _texts(rows, "queue")
        for one in wanted:
            name = names[one.rows[0]]
            if name is None or name == self.queue:
                continue
            with suppress(Mistake):  # the query may have changed the column: then it names any queue, or none
                if any(one.is_it(seen) for seen in qm.browse(name, message_id=one.message_id)):
                    return name
        return None

    def _behind(self, one: "Wanted") -> Mistake:
        return Mistake(
            f"another message with the id {one.message_id.hex()}, which is not in the batch, is on queue "
            f"{self.queue!r} before the one that is, and would be got in its place; get that one first, or move it to "
            f"another queue, and start the query again"
        )

    def _manager(self) -> AbstractContextManager[Manager]:
        if isinstance(self.qmgr, str):
            return connect(self.qmgr, data_path=self.data_path, application="spark consume")
        return nullcontext(self.qmgr)


def _query_of(session: "SparkSession") -> str:
    """The id of the query of the current batch. Raises Mistake where Spark does not give it."""
    from pyspark.errors import PySparkAttributeError

    try:
        query: str | None = session.sparkContext.getLocalProperty(QUERY_ID)
    except PySparkAttributeError as exc:
        raise Mistake(
            "Spark Connect does not tell which query a batch is of, and pipeline.consume has to know; start the query "
            "by a driver of the usual kind, such as spark-submit makes"
        ) from exc
    if query is None:
        raise Mistake("pipeline.consume works in foreachBatch, where Spark says which query it is")
    return query


# ---- what a batch names


def _in_lower_case(names: Sequence[str]) -> list[str]:
    """The names of columns as the stream has them; a query may say `MESSAGE_ID`. What is there twice stays as it is."""
    lower = [name.lower() for name in names]
    return [small if lower.count(small) == 1 else name for small, name in zip(lower, names, strict=True)]


@attrs.frozen
class Wanted:
    """A message, and the rows of the batch that are of it: a query may have made several of one."""

    message_id: bytes
    lsn: int | None
    position: int | None
    put_time: int | None  # microseconds since 1970-01-01 UTC
    body_length: int | None
    body: bytes | None  # its digest; None: the batch does not have it as it was
    rows: list[int] = attrs.field(factory=list, eq=False)

    @property
    def named(self) -> tuple[bytes, int | None, int | None]:
        return self.message_id, self.lsn, self.position

    @property
    def can_be_told(self) -> bool:
        """Do its rows distinguish it from others with this id?"""
        return self.put_time is not None or self.body_length is not None

    def fits(self, message: Message) -> bool:
        """Is it this one, as far as its rows say but for the body?"""
        return self.put_time in (None, message.put_time_us) and self.body_length in (None, len(message.body))

    def is_it(self, message: Message) -> bool:
        """Is it this one, as far as its rows say? Two may have been put with one id in the same moment."""
        return self.fits(message) and self.body in (None, _digest(message.body))


def wanted_of(batch: "pa.Table") -> list[Wanted]:
    """The messages that the rows of a batch are of, by `lsn` and `position`, else in the order of the rows.

    These two identify a message. Without them rows with the same id are of one message, unless they differ in
    `put_time`, `body_length` or `body`. Raises Mistake where a row has no id.
    """
    ids = batch.column("message_id").to_pylist()
    if None in ids:
        raise Mistake("a row of the batch has no message_id (null), which says what to take")
    others = [_numbers(batch, name) for name in ("lsn", "position", "put_time", "body_length")]
    found: dict[Wanted, Wanted] = {}
    for row, said in enumerate(zip(ids, *others, _bodies(batch, others[-1]), strict=True)):
        one = Wanted(*said)
        found.setdefault(one, one).rows.append(row)
    return sorted(found.values(), key=lambda one: (one.lsn or 0, one.position or 0))


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _bodies(batch: "pa.Table", lengths: "list[int | None]") -> "list[bytes | None]":
    """The digests of the column, as far as it is there and still what the stream has under this name."""
    import pyarrow as pa

    if "body" in batch.column_names and pa.types.is_binary(batch.schema.field("body").type):
        said = [
            (None, 0) if one is None else (_digest(one), len(one))
            for part in batch["body"].chunks
            for one in part.to_pylist()
        ]
        if [length for _, length in said] == lengths:
            return [digest for digest, _ in said]
    return [None] * batch.num_rows


def _numbers(batch: "pa.Table", name: str) -> "list[int | None]":
    """A column, as far as it is there and still what the stream has under this name."""
    import pyarrow as pa

    if name in batch.column_names:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        if pa.types.is_integer(column.type):
            numbers: list[int | None] = column.to_pylist()
            return numbers
    return [None] * batch.num_rows


def _texts(batch: "pa.Table", name: str) -> "list[str | None]":
    """A column of texts, as far as it is there."""
    import pyarrow as pa

    if name in batch.column_names and pa.types.is_string(batch.schema.field(name).type):
        texts: list[str | None] = batch.column(name).to_pylist()
        return texts
    return [None] * batch.num_rows
