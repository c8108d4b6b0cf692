"""Consuming: messages that a stream has told of are taken, and worked on, together with the batch's mark.

A stream of a queue takes nothing away, since Spark may read it again. Here the messages of a batch are got in one unit
of work, which also has what is put for them and the mark of the batch: all of that is durable, or nothing. Wherever
anything crashes, the batch is run again; either it is done, and nothing happens, or its messages are there.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Unpack

import attrs

from pipeline import marks
from pipeline.marks import Key, Manager, Unit
from qmgr import (
    BackedOut,
    Message,
    Mistake,
    MQError,
    NoMessageAvailable,
    ResourceProblem,
    SyncpointLimit,
    connect,
)
from qmgr.objects import check_name
from qmgr.verbs import GetOptions, PutOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"
WAY_OUT = (
    "a batch is one unit of work: make batches smaller (maxBytesPerTrigger), or give units of work more room (MAXUMSGS "
    "of ALTER QMGR for messages, LogPrimaryFiles and LogSecondaryFiles for the log)"
)


@attrs.frozen
class Effects:
    """The unit of work of a batch, as far as who works on it needs it: it is ended here, with the batch's mark."""

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
    patience: float = marks.PATIENCE,
) -> Callable[["DataFrame", int], None]:
    """What `foreachBatch` of a stream of the queue calls: it takes the messages of each batch, and has them worked on.

        def invoice(orders, batch_id, uow):
            for order in orders.collect():
                uow.put("INVOICES", invoice_of(order.body))

        stream.writeStream.foreachBatch(pipeline.consume(invoice, qmgr="QM1", queue="ORDERS")).start()

    `work(orders, batch_id, uow)` has the rows of those messages that were taken; who else has taken one has it. What it
    puts by `uow` is there when the messages are gone. `qmgr`: a queue manager of this process, a connection, or what
    `qmgr.connect` takes. With `backout_requeue` messages that were backed out too often are moved away instead.
    """
    check_name(queue, "queue")
    return Consuming(work, qmgr, queue, data_path, backout_requeue, patience)


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
        query = session.sparkContext.getLocalProperty(QUERY_ID)
        if query is None:
            raise Mistake("pipeline.consume works in foreachBatch, where Spark says which query it is")
        if "message_id" not in batch.columns:
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
        """Take what the rows of the batch name, have it worked on, and remember that; nothing when that was done."""
        key = Key(query, f"consume {self.queue}")
        with marks.claim(qm, key, batch_id, patience=self.patience) as claimed:
            if claimed.done is not None:
                return
            try:
                rows = self._take(claimed.unit, batch())
                if rows.num_rows:
                    work(rows, Effects(claimed.unit))
                claimed.commit(rows.num_rows)
            except (SyncpointLimit, ResourceProblem, BackedOut) as exc:
                text = str(exc).removesuffix(f" ({exc.reason.value} MQRC_{exc.reason.name})")
                told = f"batch {batch_id} of queue {self.queue!r} was not consumed: {text}; {WAY_OUT}"
                raise MQError(told, reason=exc.reason, name=exc.name) from exc

    def _take(self, unit: Unit, rows: "pa.Table") -> "pa.Table":
        """Get the messages; the rows of those that were there, with the backout counts that they have."""
        import pyarrow as pa

        found = [self._got(unit, message_id) for message_id in rows.column("message_id").to_pylist()]
        left = rows.filter(pa.array([message is not None for message in found], pa.bool_()))
        if "backout_count" not in rows.column_names:
            return left
        place = rows.column_names.index("backout_count")
        counts = pa.array([message.backout_count for message in found if message is not None], pa.int32())
        return left.set_column(place, "backout_count", counts)

    def _got(self, unit: Unit, message_id: bytes | None) -> Message | None:
        if message_id is None:
            raise Mistake("a row of the batch has no message_id (null), which says what to take")
        try:
            return unit.get(self.queue, message_id=message_id, backout_requeue=self.backout_requeue)
        except NoMessageAvailable:
            return None

    def _manager(self) -> AbstractContextManager[Manager]:
        if isinstance(self.qmgr, str):
            return connect(self.qmgr, data_path=self.data_path, application="spark consume")
        return nullcontext(self.qmgr)
