"""Replay: the messages that were put to a queue since a bookmark, read from the log while others go on to write.

No lock is held while a message is with the caller: each is read from the extents, wherever they lie, and what still
has to be read is pinned. What is read lies before the end of a record that is durable, so nobody waits for a reader.
An extent whose index shows neither the queue nor a unit of work that is followed is passed over.
"""

import contextlib
import datetime
import struct
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Self

import attrs

from logger import lsn
from logger.config import LogType
from logger.disk_errors import advice
from logger.errors import ArchiveFailed, LogDamaged, LogError
from logger.log import Log
from logger.reader import LogReader
from qmgr.engine import Engine
from qmgr.errors import (
    BookmarkTooOld,
    Damaged,
    MediaNotSupported,
    Mistake,
    MQError,
    Reason,
    Unavailable,
    UnknownQueue,
    quoted,
)
from qmgr.log_needs import LogNeeds
from qmgr.message import EPOCH, HEAD, STANDING, Message, decode
from qmgr.verbs import base_of
from recovery import extent_index, replay
from recovery.records import Kind, not_understood
from recovery.replay import Batch, Bookmark, PutTracker

OLDEST, NOW = "oldest", "now"
YIELD_EVERY_RECORDS = 64
NEVER = 1 << 64  # an LSN, or a moment, that does not come

Where = int | str | datetime.datetime


@attrs.define
class Replayed:
    """A message as it was put to a queue, with where and when it became visible there."""

    message: Message
    lsn: int  # of the record that made it visible: its PUT, or the COMMIT of its unit of work
    place: int  # among the queue's messages that this record made visible, from 1 on
    time_us: int  # of that record, microseconds since 1970-01-01 UTC

    @property
    def time(self) -> datetime.datetime:
        """When it became visible, by the queue manager's clock, UTC."""
        return EPOCH + datetime.timedelta(microseconds=self.time_us)

    @property
    def bookmark(self) -> str:
        """Where to go on behind this message. As text it sorts as the messages do."""
        return str(Bookmark(self.lsn, self.place))


class Replay:
    """The iterator that `QueueManager.replay` returns. At its end, or after an error, begin another one."""

    def __init__(self, engine: Engine, needs: LogNeeds, queue: str | int, start: Where, end: Where | None) -> None:
        """Find where to begin. Raises UnknownQueue, Mistake, BookmarkTooOld, MediaNotSupported, Damaged."""
        engine.check()
        self._engine = engine
        self._needs = needs
        self._over: BaseException | None = None  # why there is no next message
        self._turn = threading.RLock()  # of the threads that share this; a signal's handler may strike in its own turn
        self._elapsed_ns = engine.clock.elapsed_ns
        self._pin = needs.pin(0)  # until it is known what has to be read
        try:
            self._scan = _Scan(engine, self._pin.move, queue, start, end)
        except BaseException as exc:
            needs.unpin(self._pin)
            told = _as_mq_error(engine, exc)
            if told is exc:
                raise
            raise told from exc
        self._messages = self._scan.messages()
        self._pin.idle_since = self._elapsed_ns()

    @property
    def bookmark(self) -> str:
        """Where to go on later: behind the last message that it gave; at its end, behind all that it has read."""
        return str(Bookmark(*self._scan.reached))

    @property
    def left_out(self) -> int:
        """How many units of work were left out because the log has no longer all of them; only with "oldest"."""
        return self._scan.left_out

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Replayed:
        if self._over is None:
            self._engine.check()  # before its turn: in a forked child a thread of the parent may have that for ever
        with self._turn:
            if self._over is not None:
                raise self._over.with_traceback(None)
            try:
                self._engine.check()
                if not self._pin.resume(self._elapsed_ns):
                    self._restart()
                found = next(self._messages)
                self._pin.idle_since = self._elapsed_ns()
                return found
            except BaseException as exc:
                told = _as_mq_error(self._engine, exc)
                self._end(told if isinstance(told, (StopIteration, MQError)) else _interrupted(told))
                if told is exc:
                    raise
                raise told from exc

    def _restart(self) -> None:
        """Nobody has read for so long that what was still to be read may be gone: go on from the bookmark."""
        self._messages.close()
        self._needs.unpin(self._pin)
        self._pin = self._needs.pin(0)
        self._scan = self._scan.again(self._pin.move)
        self._messages = self._scan.messages()

    def close(self) -> None:
        """Let go of the log; also done at the end, and when nobody has this any more."""
        if self._turn.acquire(blocking=self._engine.refusal is None):  # as above; else whoever has it hears of that
            try:
                self._end(StopIteration())
            finally:
                self._turn.release()

    def _end(self, why: BaseException) -> None:
        if self._over is None:
            self._over = why
        self._messages.close()
        self._needs.unpin(self._pin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _interrupted(exc: BaseException) -> MQError:
    return Mistake(f"this replay was interrupted ({type(exc).__name__}); begin another one from its bookmark")


def _as_mq_error(engine: Engine, exc: BaseException) -> BaseException:
    """The error as callers know it. Where a part of the log is missing it says so if the archive is away."""
    if isinstance(exc, (LogDamaged, BookmarkTooOld)):
        try:
            engine.log.check_archive()
        except (ArchiveFailed, OSError) as absent:
            exc = absent
    if isinstance(exc, ArchiveFailed):
        return Unavailable(f"the log can't be read: {exc}", reason=Reason.FILE_SYSTEM_ERROR, name=engine.name)
    if isinstance(exc, LogDamaged):
        return Damaged(f"the log can't be replayed: {exc}", name=engine.name)
    if isinstance(exc, LogError):
        return engine.translated(exc)
    if isinstance(exc, OSError):
        way = f"nothing is lost by that: {advice(exc)} and replay from the last bookmark"
        text = f"the log can't be read ({exc}); {way}"
        return Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=engine.name)
    return exc


class _Scan:
    """Reads the log for one replay."""

    def __init__(
        self, engine: Engine, pin: Callable[[int], None], queue: str | int, start: Where, end: Where | None
    ) -> None:
        """`pin(lsn)`: only what is from there on is still needed."""
        self._engine = engine
        self._log: Log = engine.log
        self._pin = pin
        self._name, self._number = _find(engine, queue)
        state = self._log.state
        if state.log_type is not LogType.LINEAR:
            raise MediaNotSupported(
                f"queue manager {engine.name!r} has circular logging, which keeps no history to replay; migmqlog "
                f"changes it to linear logging",
                name=engine.name,
            )
        self._extent_bytes = state.extent_bytes
        self._durable = self._force()
        self._history = self._log.history()
        self._places = self._history.places()
        head = state.head // self._extent_bytes
        if head not in self._places and head * self._extent_bytes < self._durable:  # else nothing of it is written yet
            path = self._history.name(head)
            raise LogDamaged(f"log extent {path} can't be read; mend the disk, and try again", path=path)
        self._first = self._history.reaches_back_to(head) * self._extent_bytes  # from there on all is there
        self.left_out = 0
        self._may_leave_out = start == OLDEST
        self._passed_start = False  # has something come that is not before what is wanted?
        self._since, self._since_us = self._start(start)
        self.reached = self._since.lsn, self._since.count  # behind the message that came last
        self._until, self._until_us = self._end(end)
        self._at, whole = self._begin(self._since.lsn)
        if not whole:  # what the disk could not read just now is not missing
            self._history.refuse_unread(self._first // self._extent_bytes - 1)
        self._resync = True  # the rest of a record may come first
        self._puts = PutTracker(self._number, self._at, whole=whole)
        self._over = False
        pin(self._at)

    def again(self, pin: Callable[[int], None]) -> "_Scan":
        """A new scan that goes on behind the last message of this one, to the same end. Raises BookmarkTooOld."""
        scan = _Scan(self._engine, pin, self._number, str(Bookmark(*self.reached)), None)
        scan._until, scan._until_us, scan._over = self._until, self._until_us, self._over
        scan._may_leave_out, scan.left_out = self._may_leave_out, self.left_out
        if not self._passed_start:  # nothing as late as the moment where it is to begin has come yet
            scan._since_us = self._since_us
        return scan

    def _force(self) -> int:
        """Make durable what is in the log by now; its end, where a record ends. Raises LogError."""
        log = self._log
        with log.lock:
            tail = log.buffer.tail
        if log.durable < tail:
            log.sync(tail)
        return tail

    # ---- where to begin and to end

    def _start(self, start: Where) -> tuple[Bookmark, int]:
        """Behind what, and from which moment on, the messages are wanted. Raises Mistake, BookmarkTooOld."""
        if isinstance(start, datetime.datetime):
            since_us = _moment(start, "start")
            place = self._places.get(self._first // self._extent_bytes)
            if place is not None and since_us < place.taken and not self._is_complete():
                raise self._too_old(f"the moment {start.isoformat()}")
            return Bookmark(self._first_since(since_us)), since_us
        if start == OLDEST:
            self._refuse_unreadable()
            return Bookmark(self._first), 0
        if start == NOW:
            return Bookmark(self._durable), 0
        mark = _bookmark(start, "start")
        if mark.lsn < self._first and not self._is_complete():
            raise self._too_old(f"the bookmark {lsn.text(mark.lsn)}")
        if mark.lsn > self._durable:
            raise Mistake(
                f"the bookmark {lsn.text(mark.lsn)} is beyond the end of the log of queue manager "
                f"{self._engine.name!r}, {lsn.text(self._durable)}: it is another one's, or of a later time"
            )
        return mark, 0

    def _end(self, end: Where | None) -> tuple[Bookmark, int]:
        """Up to where, and before which moment, the messages are wanted."""
        if isinstance(end, datetime.datetime):
            return Bookmark(NEVER), _moment(end, "end")
        if end is None:
            return Bookmark(NEVER), NEVER
        return Bookmark(self._durable) if end == NOW else _bookmark(end, "end"), NEVER

    def _is_complete(self) -> bool:
        """Does the log still begin where it once began?"""
        return self._first == self._extent_bytes

    def _refuse_unreadable(self) -> None:
        """Raise LogDamaged, ArchiveFailed or OSError where what can be read begins behind what is still there."""
        if not self._is_complete():
            self._log.check_archive()
            self._history.refuse_unreadable(self._first // self._extent_bytes - 1)

    def _too_old(self, what: str) -> BookmarkTooOld:
        self._refuse_unreadable()
        return BookmarkTooOld(
            f"{what} is before what there is of the log of queue manager {self._engine.name!r}, which reaches back to "
            f"{lsn.text(self._first)}; replay from there, or put back the extents that are missing"
        )

    def _first_since(self, moment_us: int) -> int:
        """An LSN before which no record is of this moment or later. Reads extents that have no index yet."""
        newest = self._durable // self._extent_bytes
        sequence = self._first // self._extent_bytes
        while sequence < newest - 1:  # the last of these may have a record that ends in the one that is written now
            place = self._places.get(sequence)
            if place is None:
                self._history.refuse_gap(sequence)
                break
            index = extent_index.load_or_build(self._engine.state.disk, self._history, self._log.state, place)
            if index.high_time >= moment_us:
                break
            sequence += 1
        return sequence * self._extent_bytes

    def _begin(self, at: int) -> tuple[int, bool]:
        """Where reading has to begin, so that units of work that commit from `at` on are seen from their first record.

        The second is False where the log does not reach back to that, or does not say.
        """
        state = self._log.state
        if at >= state.checkpoint:
            return state.head, True
        head = replay.last_head(at, self._first, self._extent_bytes, self._last_head)
        return (self._first, self._is_complete()) if head is None else (head, True)

    def _last_head(self, sequence: int, at: int) -> int | None:
        """What the last checkpoint that began in this extent, and before `at`, says of its units of work."""
        index = self._index(sequence)
        if index is not None and Kind.START_CHECKPOINT not in index.kinds:
            return None
        found = None
        start, end = sequence * self._extent_bytes, (sequence + 1) * self._extent_bytes
        with contextlib.closing(self._log.live_reader(self._history)) as reader:
            for raw in reader.records(start, durable=self._durable, resync=True, until=self._durable):
                if raw.lsn > at or raw.lsn >= end:
                    break
                if raw.kind == Kind.START_CHECKPOINT:
                    found = replay.known_from(raw) or found
        return found

    def _index(self, sequence: int) -> extent_index.ExtentIndex | None:
        """The index of an extent that is full, if there is one."""
        place = self._places.get(sequence)
        if place is None or (sequence + 1) * self._extent_bytes > self._durable:
            return None
        return extent_index.load(self._engine.state.disk, place, self._log.state.log_id)

    # ---- reading

    def messages(self) -> Generator[Replayed, None, None]:
        """The messages, up to the end that was given, or to where the log ends when it has been read up to there."""
        while not self._over:
            if self._at >= self._durable:
                if self._log.durable <= self._at:
                    break
                self._durable = self._force()
            with contextlib.closing(self._log.live_reader(self._history)) as reader:
                while self._at < self._durable and not self._over:
                    yield from self._extent(reader)
        if not self._over:
            self.reached = max(self.reached, (self._at, 0))

    def _extent(self, reader: LogReader) -> Iterator[Replayed]:
        """What the records make visible that begin in the next extent that has to be read."""
        at = self._skip()
        self._pin(at)
        border = (at // self._extent_bytes + 1) * self._extent_bytes
        stop = min(border, self._until.lsn + 1)
        take, decoded, give_way = self._puts.take, self._decoded, self._engine.clock.give_way
        durable = self._durable
        records = reader.records(at, durable=durable, until=durable, resync=self._resync)
        for count, raw in enumerate(records, 1):
            self._resync = False
            if raw.lsn >= stop:
                self._over = raw.lsn > self._until.lsn
                self._at = raw.lsn
                return
            try:
                batch = take(raw)
            except (ValueError, KeyError, struct.error) as exc:
                raise not_understood(self._history.name(raw.lsn // self._extent_bytes), raw.lsn, exc) from exc
            at = raw.end
            if not count % YIELD_EVERY_RECORDS:
                give_way()
            if batch is None:
                continue
            first, messages = self._wanted(batch)
            for place in range(first, len(messages)):
                self.reached = batch.lsn, place + 1
                yield Replayed(decoded(messages[place]), batch.lsn, place + 1, batch.time)
            if self._over:
                return
        self._at = max(at, reader.end)

    def _skip(self) -> int:
        """Where the next record is that may matter. Passes over whole extents, as far as their indexes can tell."""
        at, puts = self._at, self._puts
        while puts.whole:
            sequence = at // self._extent_bytes
            index = self._index(sequence)
            if index is None or index.has_queue(puts.queue) or any(map(index.has_unit, puts.units)):
                break
            at = max(index.end_lsn, (sequence + 1) * self._extent_bytes)
            self._resync = False
        return at

    def _wanted(self, batch: Batch) -> tuple[int, list[bytes]]:
        """(how many messages of the batch are before the start, those of them up to the end that was asked for)."""
        at, time, messages, whole = batch
        since, until = self._since, self._until
        if not self._passed_start:
            if at < since.lsn or time < self._since_us:
                if self._since_us:
                    self.reached = at, len(messages)
                return 0, []
            self._passed_start = True
        if time >= self._until_us:
            self._over = True
            return 0, []
        first = since.count if at == since.lsn else 0
        if at == until.lsn:
            self._over = True
            messages = messages[: until.count]
            whole = whole or not until.count
        if not whole:
            self._leave_out(at)
            return 0, []
        return first, messages

    def _decoded(self, encoded: bytes) -> Message:
        _, _, form, reply_to, properties, expires = STANDING.unpack_from(encoded)
        end = HEAD.size + form + reply_to + properties
        if not expires:
            return Message(encoded[end:], encoded[:end], self._name)
        return decode(encoded[:end], encoded[end:], self._name, 0, self._engine.steady.now_us())

    def _leave_out(self, at: int) -> None:
        """Count in `left_out` a committed unit of work whose first records are gone: none of its messages is returned.

        Raises BookmarkTooOld where the caller wants no gaps.
        """
        if not self._may_leave_out:
            raise BookmarkTooOld(
                f"the unit of work that was committed at {lsn.text(at)} can't be told whole: what it has put first is "
                f"before what there is of the log, which reaches back to {lsn.text(self._first)}; put back the "
                f"extents that are missing, or replay from 'oldest', which leaves such units of work out"
            )
        self.left_out += 1


def _find(engine: Engine, queue: object) -> tuple[str, int]:
    """(name, number) of the queue; a number may be that of a deleted one, whose name is ""."""
    with engine.lock:
        state = engine.state
        if type(queue) is int:
            if not 0 < queue < state.next_queue:
                raise UnknownQueue(f"no queue has ever had the number {quoted(queue)}", name=quoted(queue))
            there = state.by_id.get(queue)
            return "" if there is None else there.name, queue
        found = state.queues.get(queue) if isinstance(queue, str) else None
        if found is None:
            found = base_of(state, queue)
        return found.name, found.id


def _moment(when: datetime.datetime, what: str) -> int:
    """In microseconds since 1970-01-01 UTC."""
    if when.tzinfo is None:
        raise Mistake(f"{what} is {quoted(when)}, which does not say its time zone; give it one, such as tzinfo=UTC")
    return (when - EPOCH) // datetime.timedelta(microseconds=1)


def _bookmark(where: object, what: str) -> Bookmark:
    """The LSN, or the bookmark, that was given. Raises Mistake."""
    if type(where) is int and 0 <= where < NEVER:
        return Bookmark(where)
    if isinstance(where, str):
        with contextlib.suppress(ValueError):
            return replay.parse(where)
    raise Mistake(
        f"{what} is {quoted(where)}; it is the bookmark of a replayed message, an LSN such as <0:0:4615:42406>, a "
        f"moment with its time zone, or {'oldest or now' if what == 'start' else 'now'}"
    )
