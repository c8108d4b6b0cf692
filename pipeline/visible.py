"""Visible: the messages that became visible on queues between two LSNs, from the files of a log, in their order.

`qmgr/replay.py` does the same for a running queue manager; here the files may be a copy, or be written to meanwhile:
only what lies before an LSN that is known to be durable is read. A unit of work may have begun before the first
of the two LSNs, so reading begins where the last checkpoint before that says that its units of work have begun.
"""

import contextlib
import struct
import threading
from collections.abc import Iterator, Mapping

import attrs

from logger import control, lsn
from logger.clock import SystemClock
from logger.disk import Disk
from logger.errors import LogDamaged, LogError
from logger.history import History, Place
from logger.posix_disk import PosixDisk
from logger.reader import Record
from pipeline.log_files import LogFiles
from recovery import extent_index, replay
from recovery.records import Kind, not_understood
from recovery.replay import Batch, PutTracker

MAX_LOOKS = 6  # at what others may be writing, before it is damage
MAX_CACHED_LOGS = 4
FIRST_PAUSE_S = 0.008  # doubled before each further look


@attrs.frozen(kw_only=True)
class Range:
    """What records that begin in [start, end) have made visible on these queues. Can be sent to other processes."""

    log: LogFiles
    queues: frozenset[int]
    start: int
    end: int
    leave_out: bool = False  # units of work of which not all is there, instead of refusing to go on

    def batches(self, disk: Disk | None = None) -> Iterator[tuple[int, Batch]]:
        """(queue, what a record has made visible there). Raises LogDamaged, LogError, OSError.

        Memory is bounded by what units of work in flight have put to the queues.
        """
        return _Reading(self, disk or PosixDisk(), _cached_history(self) if disk is None else None).batches()


# A process of Spark reads many batches of a log, and a look at each file of a long one takes longer than a small batch.
_histories: dict[tuple[bytes, tuple[str, ...], int], History] = {}


def _cached_history(range_: Range) -> History:
    """Where the extents of the log lie, as far as this process has looked; those that are new are looked for."""
    log = range_.log
    key = log.log_id, log.directories, log.extent_bytes
    history = _histories.pop(key, None) or log.history(PosixDisk())
    _histories[key] = history
    while len(_histories) > MAX_CACHED_LOGS:
        _histories.pop(next(iter(_histories)))
    newest = max(history.known, default=0)
    if range_.end // log.extent_bytes >= newest:
        history.refresh_from(newest)
    return history


class _Reading:
    """Reads a range once."""

    def __init__(self, range_: Range, disk: Disk, history: History | None = None) -> None:
        """`history`: what is known of where the extents lie, though some may have been moved or removed since."""
        self._range = range_
        self._disk = disk
        self._log = range_.log.now(disk)
        self._size = self._log.extent_bytes
        self._history = self._log.history(disk) if history is None else history
        self._at, whole = self._start(anew=history is None)
        self._puts = [PutTracker(queue, self._at, whole=whole) for queue in sorted(range_.queues)]
        self._resync = True  # the rest of a record may come first

    # ---- where to begin

    def _start(self, *, anew: bool) -> tuple[int, bool]:
        """As `_begin`, by what is there. `anew`: look at the directories, whatever is known of them."""
        if anew:
            self._history.places()
        self._places: Mapping[int, Place] = self._history.known
        sequence = self._range.start // self._size
        if sequence not in self._places:
            if not anew:
                return self._start(anew=True)
            self._history.refuse_gap(sequence)
        self._first = self._history.reaches_back_to(sequence) * self._size  # from there on all is there
        at, whole = self._begin(self._range.start)
        place = self._places.get(at // self._size)
        gone = place is None or not self._disk.exists(place.path)  # the oldest goes first
        if not anew and (gone or not whole):
            return self._start(anew=True)
        if not whole:  # what the disk could not read just now is not missing
            self._history.refuse_unread(self._first // self._size - 1)
        return at, whole

    def _begin(self, at: int) -> tuple[int, bool]:
        """Where reading has to begin, and whether all units of work that commit from `at` on are whole then."""
        if self._log.control:
            _, state = control.read(self._disk, self._log.control)
            if at >= state.checkpoint and state.head >= self._first:
                return state.head, True
        head = replay.last_head(at, self._first, self._size, self._last_head)
        return (self._first, self._first == self._size) if head is None else (head, True)

    def _last_head(self, sequence: int, at: int) -> int | None:
        """The head that the last checkpoint names which began in this extent, before `at`; None: there is none."""
        index = self._index(sequence)
        if index is not None and Kind.START_CHECKPOINT not in index.kinds:
            return None
        found = None
        for record in self._records(sequence * self._size, min((sequence + 1) * self._size, at), at):
            if record.kind == Kind.START_CHECKPOINT:
                found = replay.known_from(record) or found
        return found

    def _index(self, sequence: int) -> extent_index.ExtentIndex | None:
        place = self._places.get(sequence)
        return None if place is None else extent_index.load(self._disk, place, self._log.log_id)

    # ---- reading

    def _records(self, start: int, end: int, durable: int, *, resync: bool = True) -> Iterator[Record]:
        """The records that begin in [start, end); one ends at `durable`, and nothing behind that is looked at.

        What can't be read is looked at again, since others may be writing it.
        """
        clock, never, at = SystemClock(), threading.Event(), start
        for look in range(1, MAX_LOOKS + 1):
            try:
                for record in self._look(at, end, durable, resync=resync):
                    yield record
                    at, resync = record.end, False
                return
            except LogDamaged:
                if look == MAX_LOOKS:
                    raise
            clock.wait(never, FIRST_PAUSE_S * 2 ** (look - 1))

    def _look(self, start: int, end: int, durable: int, *, resync: bool) -> Iterator[Record]:
        """`_records`, read once. Raises LogDamaged, LogError, OSError."""
        with contextlib.closing(self._history.reader(self._log)) as reader:
            for record in reader.records(start, durable=durable, resync=resync, until=durable):
                if record.lsn >= end:
                    return
                yield record

    def batches(self) -> Iterator[tuple[int, Batch]]:
        end = self._range.end
        while self._at < end:
            self._at = self._skip()
            stop = min(end, (self._at // self._size + 1) * self._size)
            after = self._at
            for record in self._records(self._at, stop, end, resync=self._resync):
                after, self._resync = record.end, False
                yield from self._visible(record)
            self._at = max(after, stop)

    def _skip(self) -> int:
        """Where the next record is that may matter. Skips extents whose indexes exclude such a record."""
        at = self._at
        while at < self._range.end and all(puts.whole for puts in self._puts):
            sequence = at // self._size
            index = self._index(sequence)
            if index is None or any(self._matters(index, puts) for puts in self._puts):
                break
            at = max(index.end_lsn, (sequence + 1) * self._size)
            self._resync = False
        return at

    def _matters(self, index: extent_index.ExtentIndex, puts: PutTracker) -> bool:
        return index.has_queue(puts.queue) or any(map(index.has_unit, puts.units))

    def _visible(self, record: Record) -> Iterator[tuple[int, Batch]]:
        for puts in self._puts:
            try:
                batch = puts.take(record)
            except (ValueError, KeyError, struct.error) as exc:
                path = self._history.name(record.lsn // self._size)
                raise not_understood(path, record.lsn, exc) from exc
            if batch is None or record.lsn < self._range.start:
                continue
            if batch.whole:
                yield puts.queue, batch
            elif not self._range.leave_out:
                raise self._half(record.lsn)

    def _half(self, at: int) -> LogError:
        return LogError(
            f"the unit of work that was committed at {lsn.text(at)} can't be told whole: what it has put first is "
            f"before what there is of the log, which reaches back to {lsn.text(self._first)}; put back the extents "
            f"that are missing, begin behind it, or say leaveOutIncomplete=true to go on without such units of work"
        )
