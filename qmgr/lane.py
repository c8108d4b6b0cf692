"""The messages of one priority on a queue, persistent ones or others, by sequence; most may be on disk alone.

    line ──▶ paged: sequences low..high, in segments only ──▶ tail

What is put comes behind the last; gets take from the front of the line; when that is empty, a block of what is paged
is read into it, and when nothing is paged the tail becomes the line. An entry that is taken or locked stays where it is
until it comes to the front; one that is given back is sorted in beside the line, and so finds its old place.
"""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from sortedcontainers import SortedDict

from qmgr.entry import LOCKED, NOWHERE, READY, Entry


class Lane:
    """The entries of one priority."""

    __slots__ = (
        "dead",
        "end",
        "given_back",
        "high",
        "line",
        "low",
        "low_at",
        "paged",
        "persistent",
        "priority",
        "tail",
    )

    def __init__(self, priority: int, *, persistent: bool = True) -> None:
        self.priority = priority
        self.persistent = persistent
        self.line: deque[Entry] = deque()
        self.tail: deque[Entry] = deque()
        self.end = self.line  # where what is put is appended
        self.given_back: SortedDict[int, Entry] = SortedDict()  # by sequence; some stand in the line as well
        self.dead = 0  # entries of line and tail that were taken from the middle
        self.paged = 0  # ready messages that are in segments only
        self.low = self.high = 0  # the sequences between which they lie
        self.low_at = NOWHERE, 0  # segment and cell of a message there or before, if one is known

    def first(self) -> Entry | None:
        """The entry that a get takes next, still in its place. None: there is none, or a block has to be read."""
        line = self.line
        while line and line[0].status != READY:
            line.popleft()
            self.dead -= 1
        back = self.given_back
        while back:
            entry: Entry = back.peekitem(0)[1]
            if entry.status != READY:
                back.popitem(0)
            elif line:
                return entry if entry.sequence <= line[0].sequence else line[0]
            elif self.paged:
                return entry if entry.sequence < self.low else None
            else:
                break
        if line:
            return line[0]
        if self.paged:
            return None
        if self.tail:
            self.line, self.tail = self.tail, deque()
            self.end = self.line
            return self.first()
        return back.peekitem(0)[1] if back else None

    def holds_paged(self, sequence: int) -> bool:
        """May the message be in a segment only?"""
        return self.paged > 0 and self.low <= sequence <= self.high

    def has(self, count: int) -> bool:
        """Are there so many ready entries before the first one that is not in memory?"""
        if len(self.line) - self.dead >= count:  # those that are dead stand in the line or in the tail
            return True
        return sum(1 for _ in islice(self.ready(), max(0, count))) >= count

    def ready(self) -> Iterator[Entry]:
        """The entries that are ready, in order, up to the first one that is not in memory."""
        line: Iterable[Entry] = self.line if self.paged or not self.tail else chain(self.line, self.tail)
        if not self.given_back:
            return _ready(line)
        keys = self.given_back.irange(None, self.low - 1) if self.paged else self.given_back
        return _ready(heapq.merge(line, map(self.given_back.__getitem__, keys)))

    def after(self, sequence: int) -> Iterator[Entry]:
        """The ready entries in memory behind this sequence; those before and behind what is paged alike."""
        back = map(self.given_back.__getitem__, self.given_back.irange(sequence + 1))
        return _ready(heapq.merge(chain(_behind(self.line, sequence), _behind(self.tail, sequence)), back))

    def find(self, sequence: int) -> Entry | None:
        """The entry in memory with this sequence, if it stands here."""
        found: Entry | None = self.given_back.get(sequence)
        for line in (self.line, self.tail):
            if found is None:
                following = next(_behind(line, sequence - 1), None)
                found = following if following is not None and following.sequence == sequence else None
        return found

    def took(self, entry: Entry, elsewhere: dict[int, Entry]) -> None:
        """The entry is not ready any more. In the middle of the line it stays for now, but the line must not fill up
        with what is not there."""
        line, sequence = self.line, entry.sequence
        if line:
            if line[0] is entry:
                line.popleft()
                return
            if sequence < line[0].sequence:
                return
        if self.paged and sequence <= self.high and (not line or sequence >= self.low):
            return
        self.dead += 1
        if self.dead > 64 and self.dead > (len(line) + len(self.tail)) // 2:
            for one in (line, self.tail):
                elsewhere.update((e.sequence, e) for e in one if e.status == LOCKED)
                kept = [e for e in one if e.status == READY]
                one.clear()
                one.extend(kept)
            self.dead = 0

    def all(self) -> Iterator[Entry]:
        """All entries in memory that stand here, some of them twice."""
        yield from self.line
        yield from self.given_back.values()
        yield from self.tail

    def open_up(self) -> bool:
        """Put everything behind the last entry that a segment has into the tail, so that others can be paged out.

        False when no segment has any.
        """
        if self.tail:
            self.line.extend(self.tail)
            self.tail.clear()
        line, tail = self.line, self.tail
        while line and not line[-1].segment:
            tail.appendleft(line.pop())
        if line:
            self.end = tail
            return True
        self.line, self.tail = tail, line
        self.end = self.line
        return False

    def back_out(self, most: int) -> list[Entry]:
        """Up to so many of those that were given back into what is paged and can be read again from there."""
        if not self.paged and self.line and self.line[-1].sequence > self.low:
            return []  # nothing was paged any more, and the tail has become the line
        back = map(self.given_back.__getitem__, self.given_back.irange(self.low, self.high))
        found = list(islice(filter(_may_leave, back), most))
        if found:
            self.end = self.tail
        return found

    def next_out(self, *, full: bool) -> Entry | None:
        """The next entry to be paged out, which is here no more: from the front of the tail, and, while the buffer is
        `full`, from the end of the line. None when there is none."""
        line, tail = self.line, self.tail
        if self.paged and tail and (tail[0].segment or tail[0].status != READY):
            self.high = tail[0].sequence
            return tail.popleft()
        if not full or (self.paged and not line):
            return None
        if not self.paged:
            if not self.open_up():
                return None
            line = self.line
            self.high = line[-1].sequence
        entry = line.pop()
        self.low = entry.sequence
        self.low_at = (entry.segment, entry.cell) if entry.segment else (NOWHERE, 0)
        return entry


def in_order(lanes: list[Lane]) -> Iterator[Entry]:
    """The ready entries of all these lanes by sequence, up to the first one that is not in memory."""
    waiting: list[tuple[Entry, int, Iterator[Entry]]] = []
    for number, lane in enumerate(lanes):
        entries = lane.ready()
        first = next(entries, None)
        if first is not None:
            waiting.append((first, number, entries))
        elif lane.paged:
            return
    heapq.heapify(waiting)
    while waiting:
        entry, number, entries = waiting[0]
        yield entry
        following = next(entries, None)
        if following is not None:
            heapq.heapreplace(waiting, (following, number, entries))
        elif lanes[number].paged:
            return
        else:
            heapq.heappop(waiting)


def _ready(entries: Iterable[Entry]) -> Iterator[Entry]:
    last = None
    for entry in entries:
        if entry.status == READY and entry is not last:
            last = entry
            yield entry


def _may_leave(entry: Entry) -> bool:
    return entry.status == READY and entry.segment != NOWHERE


def _behind(line: deque[Entry], sequence: int) -> Iterator[Entry]:
    for place in range(bisect_right(line, sequence, key=lambda entry: entry.sequence), len(line)):
        yield line[place]
