"""The messages of one priority on a queue, persistent ones or others, by sequence; most may be on disk alone.

    line ──▶ paged: sequences low..high, in segments only ──▶ tail ──▶ behind: batches

What is put comes behind the last; gets take from the front of the line; when that is empty, a block of what is paged
is read into it, and when nothing is paged the tail becomes the line. What is put together waits behind as a batch until
nothing is left before it, and becomes entries then. An entry that is taken or locked stays where it is until it comes
to the front; one that is given back is sorted in beside the line, and so finds its old place.
"""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from sortedcontainers import SortedDict

from qmgr.batch import Batch
from qmgr.entry import GONE, LOCKED, NOWHERE, READY, Entry


class Lane:
    """The entries of one priority."""

    __slots__ = (
        "behind",
        "dead",
        "end",
        "given_back",
        "high",
        "line",
        "low",
        "low_at",
        "paged",
        "persistent",
        "placed",
        "priority",
        "tail",
        "unpacked",
    )

    def __init__(self, priority: int, *, persistent: bool = True) -> None:
        self.priority = priority
        self.persistent = persistent
        self.line: deque[Entry] = deque()
        self.tail: deque[Entry] = deque()
        self.end = self.line  # where what is put is appended, as long as nothing is behind
        self.behind: deque[Batch | list[Entry]] = deque()  # what came between batches is entries
        self.placed = 0  # bytes of memory of those batches behind that a segment has
        self.unpacked: deque[Batch] = deque()  # that are entries now, and that the next checkpoint is to write
        self.given_back: SortedDict[int, Entry] = SortedDict()  # by sequence; some stand in the line as well
        self.dead = 0  # entries of line and tail that were taken from the middle
        self.paged = 0  # ready messages that are in segments only
        self.low = self.high = 0  # the sequences between which they lie
        self.low_at = NOWHERE, 0  # segment and cell of a message there or before, if one is known

    def first(self) -> Entry | None:
        """The entry that a get takes next, still in its place. None: there is none, or there is `more`."""
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
        return back.peekitem(0)[1] if back else None  # it is from before all that is behind

    @property
    def more(self) -> bool:
        """Are there messages that have no entries, so that `Paging.make_entries` has to make some?"""
        return self.paged > 0 or bool(self.behind)

    def add(self, entries: list[Entry]) -> None:
        """Put entries behind the last one."""
        if self.behind:
            self.behind.append(entries)
        else:
            self.end.extend(entries)

    def holds_paged(self, sequence: int) -> bool:
        """May the message be in a segment only?"""
        return self.paged > 0 and self.low <= sequence <= self.high

    def lacks(self, count: int) -> int:
        """How many of `count` ready entries are lacking before the first message that has no entry?"""
        if len(self.line) - self.dead >= count:  # those that are dead stand in the line or in the tail
            return 0
        return max(0, count) - sum(1 for _ in islice(self.ready(), max(0, count)))

    def ready(self) -> Iterator[Entry]:
        """The entries that are ready, in order, up to the first message that has none."""
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

    def mark_taken(self, entry: Entry, resident: dict[int, Entry]) -> None:
        """Note that the entry is not ready any more.

        One in the middle of the line stays there, as dead; when more than half are dead they are all taken out.
        """
        line, sequence = self.line, entry.sequence
        if self.given_back:
            self.given_back.pop(sequence, None)
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
                resident.update((e.sequence, e) for e in one if e.status == LOCKED)
                kept = [e for e in one if e.status == READY]
                one.clear()
                one.extend(kept)
            self.dead = 0

    def all(self) -> Iterator[Entry]:
        """All entries that stand here, some of them twice, and none of those behind."""
        yield from self.line
        yield from self.given_back.values()
        yield from self.tail

    def split_tail(self) -> bool:
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

    def returned_to_page_out(self, most: int, before: int) -> list[Entry]:
        """Up to `most` entries that were given back and can leave memory, the last ones first.

        A segment has them, and before them stands nothing in memory but others that were given back. Only those below
        the sequence `before`, unless it is 0. To be called when no entry of the line can leave.
        """
        behind = self.tail if self.paged else self.line
        if behind:
            before = min(before or behind[0].sequence, behind[0].sequence)
        keys = self.given_back.irange(None, before or None, (True, False), reverse=True)
        return list(islice(filter(_may_leave, map(self.given_back.__getitem__, keys)), most))

    def extend_paged_to(self, entry: Entry) -> None:
        """Let an entry that was given back leave memory: what is paged reaches to its sequence from now on."""
        del self.given_back[entry.sequence]
        if not self.paged:
            self.line, self.tail = self.tail, self.line
            self.end = self.tail
            self.low = self.high = entry.sequence
        self.high = max(self.high, entry.sequence)
        if entry.sequence <= self.low:
            self.low, self.low_at = entry.sequence, (entry.segment, entry.cell)

    def drop_gone_batches(self) -> None:
        """Let go of the entries of batches of which all are gone: the next checkpoint has nothing to write of them."""
        unpacked = self.unpacked
        while unpacked:
            made = unpacked[0].made or []
            if made and (made[-1].status != GONE or any(entry.status != GONE for entry in made)):
                break
            unpacked.popleft().made = []

    def batch_out(self) -> Batch:
        """Take out the first batch, which a segment has: it is paged from now on.

        Not to be called where something is paged and the tail is not empty: what stands there comes before the batch.
        """
        batch = self.behind.popleft()
        assert isinstance(batch, Batch), "a segment has it"
        if not self.paged:
            self.line.extend(self.tail)
            self.tail.clear()
            self.end = self.tail
            self.low, self.low_at = batch.sequence, (batch.segment, batch.cell)
        self.high = batch.sequence + batch.count - 1
        self.paged += batch.count
        self.placed -= batch.weight
        return batch

    def next_out(self, *, full: bool) -> Entry | None:
        """Take out the next entry to be paged out; None when there is none.

        It comes from the front of the tail, or, while the buffer is `full`, from the end of the line.
        """
        line, tail = self.line, self.tail
        if self.paged and tail and (tail[0].segment or tail[0].status != READY):
            self.high = tail[0].sequence
            return tail.popleft()
        if not full or (self.paged and not line):
            return None
        if not self.paged:
            if not self.split_tail():
                return None
            line = self.line
            self.high = line[-1].sequence
        entry = line.pop()
        self.low = entry.sequence
        self.low_at = (entry.segment, entry.cell) if entry.segment else (NOWHERE, 0)
        return entry


def in_order(lanes: list[Lane]) -> Iterator[Entry]:
    """The ready entries of all these lanes by sequence, up to the first message that has none."""
    waiting: list[tuple[Entry, int, Iterator[Entry]]] = []
    for number, lane in enumerate(lanes):
        entries = lane.ready()
        first = next(entries, None)
        if first is not None:
            waiting.append((first, number, entries))
        elif lane.more:
            return
    heapq.heapify(waiting)
    while waiting:
        entry, number, entries = waiting[0]
        yield entry
        following = next(entries, None)
        if following is not None:
            heapq.heapreplace(waiting, (following, number, entries))
        elif lanes[number].more:
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
