"""A queue as a stream of Spark: what was put to it, read from the log; nothing is got from the queue.

Each message comes once, in the order in which messages became visible: at its own record, or at the commit of its unit
of work. Offsets are LSNs, as in `qmgr.log`, with the name of the queue: those of another one would fit and leave out
what was put to this one before.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pipeline import queue_rows
from pipeline.log_options import Asked
from pipeline.log_stream import LogStream, Offset, UnlimitedLogStream
from pipeline.mounted import seen
from pipeline.naming import named
from pipeline.queue_rows import Seen, seen_in_log
from pipeline.unusable import with_way_out
from pipeline.visible import Range
from qmgr import UnknownQueue


class QueuePartition(InputPartition):
    """A piece of the log, and what the queues in it were called."""

    def __init__(self, range_: Range, queue: str) -> None:
        super().__init__(range_)
        self.queue = queue

    def messages(self) -> Iterator[Seen]:
        """Raises LogDamaged, LogError, OSError."""
        for _, (lsn, time, messages, _) in self.value.batches():
            for position, encoded in enumerate(messages):
                yield seen_in_log(encoded, self.queue, lsn, position, time)


class QueueStream(LogStream):
    """What a stream of one queue has that is different from a stream of the whole log."""

    def __init__(self, options: Asked, target: pa.Schema, queue: str, leave_out: bool) -> None:
        """`leave_out`: units of work of which not all is there, instead of refusing to go on."""
        super().__init__(options, target)
        self.queue: str = queue
        self.leave_out = leave_out

    @with_way_out()
    def initialOffset(self) -> Offset:
        """Raises UnknownQueue, beside what a stream of the log raises."""
        log = self.log()
        self._numbers(named(log, log.end()).names)
        return super().initialOffset()

    @with_way_out()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Always one: a single task keeps the order of the queue.

        Raises LogDamaged where something is gone.
        """
        first, last = self.between(start, end)
        if first == last:
            return []
        log = named(self.log(), last)
        numbers = self._numbers(log.names)
        return [
            QueuePartition(Range(log=log, queues=numbers, start=first, end=last, leave_out=self.leave_out), self.queue)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises LogDamaged, LogError, OSError."""
        if isinstance(partition, QueuePartition):  # where there is nothing to read Spark makes up a partition
            with with_way_out(), seen(partition.value.log):
                yield from queue_rows.batches(partition.messages(), self.target)

    def _numbers(self, names: Mapping[int, str]) -> frozenset[int]:
        """The numbers of the queues that have, or had, the name: one that is defined again is another one."""
        found = frozenset(number for number, name in names.items() if name == self.queue)
        if not found:
            raise UnknownQueue(
                f"the log in {self.log().directories[0]} tells of no queue {self.queue!r}; define it first, and for "
                f"an alias name its queue",
                name=self.queue,
            )
        return found


class UnlimitedQueueStream(QueueStream, UnlimitedLogStream):
    """For Spark 4.1."""
