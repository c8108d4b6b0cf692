"""The recovery log as a stream of Spark: offsets are LSNs, and reading takes nothing away.

Spark asks, in one process that lasts as long as the query: where to begin (only a new query), how far the log reaches,
and which parts lie between two offsets. An offset is the end of a record that is durable, so neither a crash of the
queue manager nor one of the query can make it mean something else. It names the log too, since it would fit into
another one and mean something different there; and the queue, or none for the whole log, since what the one stream has
read the other has not. And it says when that record was made, since a queue manager that is put back from an older copy
may have another record end there.
"""

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from time import monotonic, sleep

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from logger import lsn
from logger.errors import ExtentGone, LogDamaged
from logger.posix_disk import PosixDisk
from pipeline import worker
from pipeline.dividing import divided
from pipeline.log_files import LogFiles
from pipeline.log_options import LATEST, Asked, lsn_of
from pipeline.log_table import LogPartition, needs_names, rows_in
from pipeline.unusable import with_way_out
from qmgr.errors import Mistake

POLL_S = 0.1  # Spark would look a hundred times a second at a log to which nothing is added

Offset = dict[str, int | str | None]


class LogStream(DataSourceStreamReader):
    """What does not depend on the version of Spark."""

    queue: str | None = None  # of which it is a stream; None: of the whole log

    def __init__(self, options: Asked, target: pa.Schema) -> None:
        self.asked = options
        self.target = target
        self._log: LogFiles | None = None  # where it lies, once somebody has asked
        self._idle_since = -POLL_S  # when there was nothing new
        self.known_end: int | None = None  # how far the log reached at the last look
        self.first_lsn: int | None = None  # where the query begins, once Spark has asked
        self.first_is_empty = False  # the batch that comes next
        self._checked = False  # the log has the records that ended at the offsets of the first batch
        self._reported: Offset | None = None  # to Spark, as how far there is something to read

    @with_way_out()
    def initialOffset(self) -> Offset:
        """Where a new query begins: the same however often Spark asks, while the log goes on.

        Spark notes the ends of batches, and not where the first one begins: when that is run again, Spark asks anew. So
        the end of the first batch says where it begins (`from`), and a query that begins at the end of the log begins
        with an empty batch.

        Raises NotInLog when the log does not reach back so far.
        """
        if self.first_lsn is None:
            log, start = self.log(), self.asked.start
            end = log.end() if self.known_end is None or isinstance(start, int) else self.known_end
            at = lsn_of(start, log, last=end)
            self.first_lsn = min(at, end)
            self.first_is_empty = at >= end
        return self.offset(self.first_lsn)

    @with_way_out()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The same ones for these offsets whenever Spark asks. Raises LogDamaged where something is gone."""
        first, last = self.between(start, end)
        if first == last:
            return []
        filters = self.asked.filters
        parts = divided(self.log(), first, last, names=needs_names(self.target, filters))
        return [LogPartition(part, filters) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises LogDamaged, OSError."""
        yield from rows_in(partition, self.target)
        worker.freeze_loaded()

    def log(self) -> LogFiles:
        if self._log is None:
            self._log = self.asked.log()
        return self._log

    def offset(self, at: int) -> Offset:
        return {"lsn": at, "log": self.log().log_id.hex(), "queue": self.queue}

    def offset_with_time(self, at: int, since: int | None = None, *, first: bool) -> Offset:
        """The offset of the end of a record, with the record's time. `since`: the end of an earlier one, to look from.

        `first`: it may be the end of the first batch; then it says where that begins, too.
        """
        if self._reported is None or self._reported["lsn"] != at:
            last = self.log().last_before(at, since=since)
            self._reported = self.offset(at) | ({"time": last.time} if last is not None and last.end == at else {})
            if first and self.first_lsn is not None:
                self._reported["from"] = self.first_lsn
        return self._reported

    def lsn(self, offset: Offset) -> int:
        """The LSN of an offset. Raises Mistake for one of another log or stream, and for what is none."""
        at = offset.get("lsn") if isinstance(offset, dict) else None
        if not isinstance(at, int) or at < 0:
            raise Mistake(
                f"the query's checkpoint has {offset!r} for an offset in the log, which is none: its files are "
                f"damaged; put them back, or begin a query with a new checkpoint"
            )
        log_id = self.log().log_id.hex()
        if offset.get("log", log_id) != log_id:
            raise Mistake(
                f"the query's checkpoint is of another log than the one in {self.log().directories[0]}: the queue "
                f"manager was made anew, or recovered to a point in time; begin a query with a new checkpoint"
            )
        if offset.get("queue", self.queue) != self.queue:
            raise Mistake(
                f"the query's checkpoint is of a stream of {_whose(offset['queue'])}, and this is one of "
                f"{_whose(self.queue)}, of which all before {lsn.text(at)} would be left out; begin a query with a new "
                f"checkpoint"
            )
        return at

    def between(self, start: Offset, end: Offset) -> tuple[int, int]:
        """The LSNs of two offsets that Spark has kept. Raises Mistake, LogDamaged."""
        first, last = self.lsn(start), self.lsn(end)
        if first == self.first_lsn and isinstance(began := end.get("from"), int):  # else it is as it would begin now
            first = min(began, last)
        moves = self.asked.start == LATEST or isinstance(self.asked.start, datetime.datetime)
        if last < first == self.first_lsn:  # the first batch, run again: an empty one, or what it read is gone
            self.refuse_gone(last)
            if moves:
                return last, last
        if first != last:
            self.check(first, last)
            if not self._checked:
                for offset in (start, end):
                    self.refuse_another_past(offset)
                self._checked = True
        return first, last

    def next_end(self, start: int, max_bytes: int | None, last: int | None = None) -> int:
        """Where a batch that begins at `start` is to end: where the durable log ends, or after `max_bytes` at most.

        A first record that is longer comes whole. `last`, where a record ends, is a further bound. Raises LogDamaged
        where the log is not the one any more that it was.
        """
        sleep(max(0.0, self._idle_since + POLL_S - monotonic()))
        log = self.log()
        self.refuse_gone(start)
        seen = self.known_end
        if seen is not None and (seen < start or not self.is_there(seen)):
            seen = None
        end = seen if seen is not None and not log.grown(seen) else log.end(seen)
        self.refuse_older(start, end)
        self.known_end = end
        if end == start:
            self._idle_since = monotonic()
        if last is not None:
            end = min(end, last)
        if max_bytes is None or end - start <= max_bytes:
            return end
        return log.boundary(start, end, max_bytes)

    def refuse_older(self, start: int, end: int) -> None:
        """Raise LogDamaged when the log ends before `start`."""
        if end < start:
            active = self.log().directories[0]
            raise LogDamaged(
                f"the log in {active} ends at {lsn.text(end)}, and the query has read it up to {lsn.text(start)}: it "
                f"is an older copy; put back the one that was read",
                path=active,
                lsn=end,
            )

    def check(self, first: int, last: int) -> None:
        """Raise LogDamaged when the log is not the one any more whose offsets these are."""
        self.refuse_gone(first)
        self.refuse_older(first, last)
        if self.known_end is None or self.known_end < last:  # run again by a query that was started again
            self.refuse_older(last, self.log().end())

    def refuse_another_past(self, offset: Offset) -> None:
        """Raise LogDamaged when no record ends at an offset that was the end of one, or another one."""
        at = self.lsn(offset)
        found = None if at == self.first_lsn else self.log().last_before(at)
        if found is not None and (found.end != at or offset.get("time", found.time) != found.time):
            active = self.log().directories[0]
            now = "another record ends there now" if found.end == at else "no record ends there any more"
            raise LogDamaged(
                f"the query has read the log in {active} up to {lsn.text(at)}, and {now}: the queue manager was put "
                f"back from an older copy, and has logged other records since; begin a query with a new checkpoint",
                path=active,
                lsn=at,
            )

    def refuse_gone(self, start: int) -> None:
        """Raise LogDamaged when the extent that `start` lies in is there no more."""
        if self.is_there(start):
            return
        log = self.log()
        history = log.history(PosixDisk())
        sequence = start // log.extent_bytes
        if sequence in history.places():
            return
        try:
            history.refuse_gap(sequence)
        except ExtentGone as exc:
            raise ExtentGone(
                f"{exc}; or begin a query with a new checkpoint, which reads what is there", path=exc.path, lsn=start
            ) from exc

    def is_there(self, at: int) -> bool:
        """Is the extent there in which this LSN lies, or at least the one that ends with it? No other is looked at."""
        log = self.log()
        with contextlib.closing(log.extents(PosixDisk())) as extents:
            return extents.has(at // log.extent_bytes) or extents.has((at - 8) // log.extent_bytes)


def _whose(queue: int | str | None) -> str:
    """Of which queue an offset is; None: of the whole log."""
    return "the whole log" if queue is None else f"queue {queue!r}"


class UnlimitedLogStream(LogStream):
    """For Spark 4.1, which says neither from where on it is going to read nor how much: all that is there."""

    @with_way_out()
    def latestOffset(self) -> Offset:  # type: ignore[override]
        if self.known_end is None:
            self.known_end = self.log().end()
            with contextlib.suppress(LogDamaged, Mistake):  # a query that was started again may begin nowhere any more
                self.initialOffset()
        before = self.known_end
        return self.offset_with_time(self.next_end(before, None), before, first=True)
