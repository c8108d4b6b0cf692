"""Replay: the committed puts to one queue, from log records alone. Pure: records in, messages out.

A message put outside a unit of work becomes visible where its PUT or PUT_MANY lies; those of a unit of work where its
COMMIT does. So the order of these records is the order in which messages became visible. Until a unit of work ends
its messages to the queue are kept here; nothing else is, so memory is bounded by what is in flight.

Reading that begins in the middle of the log may have missed the first records of units of work. From the first
START_CHECKPOINT on whose `head` is not before that beginning, every unit that commits was seen from its first record.
Before it a unit counts as whole if the first put that was seen of it has ordinal 0, and else as incomplete.
"""

import json
import struct
from collections.abc import Callable
from typing import NamedTuple

import attrs

from logger import lsn as lsns
from logger.errors import quoted
from logger.reader import Record
from recovery.records import GETS, LENGTH16, LENGTH32, PUTS, QUEUE, QUEUE_PLACE, Kind

PUT, PUT_MANY, CALLS, COMMIT, BACKOUT, ROLL_FORWARD = map(
    int, (Kind.PUT, Kind.PUT_MANY, Kind.CALLS, Kind.COMMIT, Kind.BACKOUT, Kind.ROLL_FORWARD)
)
START_CHECKPOINT = int(Kind.START_CHECKPOINT)
NO_PUT = -1


@attrs.frozen(order=True)
class Bookmark:
    """A place among the messages of one queue: behind the first `count` that the record at `lsn` made visible."""

    lsn: int
    count: int = 0

    def __str__(self) -> str:
        """`<00000:00000:04615:42406>+0000000003`: sorts as the places do, and `parse` reads it again."""
        at = self.lsn
        groups = (at >> 48 & 0xFFFF, at >> 32 & 0xFFFF, at >> 16 & 0xFFFF, at & 0xFFFF)
        return "<{:05}:{:05}:{:05}:{:05}>+{:010}".format(*groups, self.count)


def parse(word: str) -> Bookmark:
    """The bookmark in its own text form, or in that of an LSN. Raises ValueError with a sentence."""
    place, plus, count = word.strip().partition("+")
    if plus and not (count.isascii() and count.isdigit() and len(count) < 20):
        raise ValueError(f"{quoted(word)} is not a bookmark; write an LSN, or one and a count as <0:0:4615:42406>+3")
    return Bookmark(lsns.parse(place), int(count or 0))


def known_from(record: Record) -> int | None:
    """From which LSN on the units of work have all their records that were in flight at this START_CHECKPOINT.

    None where the record does not say so. Raises ValueError.
    """
    notes = json.loads(bytes(record.body))
    if "head" not in notes:
        return None
    return record.lsn if notes["head"] is None else lsns.parse(notes["head"])


def last_head(at: int, first: int, extent_bytes: int, head_in: Callable[[int, int], int | None]) -> int | None:
    """The LSN from which on units of work that commit from `at` on may have begun, by the last checkpoint before it.

    None where the log, which reaches back to `first`, has no such checkpoint, or does not reach back to what it names.
    `head_in(sequence, at)`: the head in the last checkpoint that began in this extent before `at`; None: there is none.
    """
    for sequence in range(at // extent_bytes, first // extent_bytes - 1, -1):
        head = head_in(sequence, at)
        if head is not None:
            return head if head >= first else None
    return None


def next_unit(record: Record) -> int | None:
    """A number above those of all units of work that had begun at this START_CHECKPOINT, and below all others'.

    None where the record does not say so. Raises ValueError.
    """
    number = json.loads(bytes(record.body)).get("next")
    return number or None


class Batch(NamedTuple):
    """What one record has made visible on the queue."""

    lsn: int
    time: int  # of the record, microseconds since 1970-01-01 UTC
    messages: list[bytes]  # encoded
    whole: bool  # False: there are messages, but maybe not all of them are known


class PutTracker:
    """Follows the records of a log, and says what each makes visible on one queue."""

    def __init__(self, queue: int, start: int, *, whole: bool) -> None:
        """The records from the LSN `start` on come; `whole`: no unit of work that matters has any before that."""
        self.queue = queue
        self.whole = whole
        self.units: dict[int, list[bytes]] = {}  # what those in flight have put to the queue, by number
        self._start = start
        self._first: dict[int, int] = {}  # while not whole: the ordinal of the first put that was seen of each

    def take(self, record: Record) -> Batch | None:
        """The next record; what it makes visible. Raises ValueError, struct.error for what can't be understood."""
        kind = record.kind
        if kind == PUT:
            if QUEUE.unpack_from(record.body)[0] != self.queue:
                return None
            return Batch(record.lsn, record.time, [bytes(record.body[QUEUE_PLACE.size :])], True)
        if kind == COMMIT:
            return self._commit(record)
        if kind == CALLS:
            self._join(record.uow, record.body, 0)
        elif kind == PUT_MANY:
            return self._put_many(record)
        elif kind == BACKOUT:
            self._forget(record.uow)
        elif kind == ROLL_FORWARD:
            self._roll_forward(record)
        elif kind == START_CHECKPOINT and not self.whole:
            head = known_from(record)
            if head is not None and head >= self._start:
                self.whole = True
                self._first.clear()
        return None

    def _put_many(self, record: Record) -> Batch | None:
        body = record.body
        if QUEUE.unpack_from(body)[0] != self.queue:
            return None
        messages: list[bytes] = []
        (count,) = LENGTH32.unpack_from(body, QUEUE_PLACE.size)
        _messages(body, QUEUE_PLACE.size + LENGTH32.size, count, messages)
        return Batch(record.lsn, record.time, messages, True)

    def _join(self, uow: int, body: memoryview, at: int) -> None:
        """Keep what the runs from `at` on have put to the queue."""
        found: list[bytes] = []
        first = puts_in_runs(body, at, self.queue, found)
        if found:
            self.units.setdefault(uow, []).extend(found)
        if not self.whole and first != NO_PUT:
            self._first.setdefault(uow, first)

    def _roll_forward(self, record: Record) -> None:
        """It has all that the unit of work has done, except for a queue that was damaged when it was written."""
        before = self.units.pop(record.uow, [])
        self._join(record.uow, record.body, LENGTH16.size + LENGTH16.unpack_from(record.body)[0])
        if len(before) > len(self.units.get(record.uow, ())):
            self.units[record.uow] = before  # from where on that was seen is as it was
        elif not self.whole:
            self._first[record.uow] = 0

    def _forget(self, uow: int) -> None:
        self.units.pop(uow, None)
        self._first.pop(uow, None)

    def _commit(self, record: Record) -> Batch | None:
        body = record.body
        (bases,) = LENGTH32.unpack_from(body)
        messages = self.units.pop(record.uow, None)
        at = LENGTH32.size + bases * QUEUE_PLACE.size
        places = range(LENGTH32.size, at, QUEUE_PLACE.size)
        named = any(QUEUE.unpack_from(body, place)[0] == self.queue for place in places)
        if messages is None:
            if not named:
                self._first.pop(record.uow, None)
                return None
            messages = []
        first = puts_in_runs(body, at, self.queue, messages)
        whole = self.whole or self._first.pop(record.uow, first) == 0
        return Batch(record.lsn, record.time, messages, whole) if messages or not whole else None


def puts_in_runs(body: memoryview, at: int, queue: int, found: list[bytes]) -> int:
    """Add the messages that the runs from `at` on put to the queue; the ordinal of the first put to any, or NO_PUT.

    Runs as in `recovery/records.py`; those of other queues are passed over by their lengths.
    """
    first = NO_PUT
    end = len(body)
    while at < end:
        if body[at] == 1:
            _, number, ordinal, count = PUTS.unpack_from(body, at)
            at = _messages(body, at + PUTS.size, count, found if number == queue else None)
            if first == NO_PUT:
                first = ordinal
        elif body[at] == 2:
            at += GETS.size + 8 * GETS.unpack_from(body, at)[2]
        else:
            raise ValueError(f"a run of kind {body[at]} is not known to this version")
    return first


def _messages(body: memoryview, at: int, count: int, found: list[bytes] | None) -> int:
    """Add the messages whose lengths begin at `at`; where they end."""
    lengths = struct.unpack_from(f"<{count}I", body, at)
    at += LENGTH32.size * count
    if at + sum(lengths) > len(body):
        raise ValueError("a message is longer than its record")
    for length in lengths:
        if found is not None:
            found.append(bytes(body[at : at + length]))
        at += length
    return at
