"""Finding messages by message id or correlation id: indexes made when first asked for.

Those in memory are found by a dict. Of those in segments each segment has a sorted array of numbers, 32 bits of a
hash and 32 of the cell; the arrays of all queues share a bound, beyond which those that were used longest ago are
dropped and made again when somebody asks.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

from sortedcontainers import SortedDict

from qmgr.entry import Entry
from qmgr.message import ids_of
from qmgr.segments import Segment

MESSAGE_ID, CORRELATION_ID = 0, 1  # which of the ids
CELLS = (1 << 32) - 1
MANY_GONE = 16
hash_of = crc32  # of an id
Group = SortedDict[tuple[int, int], Entry]  # entries with the same id, by the order of delivery


class Resident:
    """Entries in memory by one of their ids."""

    def __init__(self, which: int, entries: Iterable[Entry], order: Callable[[Entry], tuple[int, int]]) -> None:
        self._which = which
        self._order = order
        self._found: dict[bytes, Entry | Group] = {}  # most ids have one
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return sum(1 if isinstance(found, Entry) else len(found) for found in self._found.values())

    def add(self, entry: Entry) -> None:
        """It may be there already."""
        key = ids_of(entry.head)[self._which]
        found = self._found.setdefault(key, entry)
        if found is entry:
            return
        if isinstance(found, Entry):
            found = self._found[key] = SortedDict({self._order(found): found})
        found[self._order(entry)] = entry

    def remove(self, entry: Entry) -> None:
        """It may be gone already."""
        key = ids_of(entry.head)[self._which]
        found = self._found.get(key)
        if found is entry:
            del self._found[key]
        elif isinstance(found, SortedDict):
            found.pop(self._order(entry), None)
            if not found:
                del self._found[key]

    def get(self, key: bytes) -> Iterable[Entry]:
        """Those with this id, in the order of delivery."""
        found = self._found.get(key)
        return () if found is None else (found,) if isinstance(found, Entry) else found.values()


class Arrays:
    """The sorted arrays of segments, within a bound of bytes."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.bytes = 0
        self._arrays: OrderedDict[tuple[int, int], array[int]] = OrderedDict()  # by segment and which id
        self._gone: dict[tuple[int, int, int], int] = {}  # with the hash: up to where all cells of that hash are gone

    def known(self, segment: Segment, which: int) -> int:
        """How many of the segment's cells its array has: the first ones."""
        return len(self._arrays.get((segment.number, which), ()))

    def learn(self, segment: Segment, which: int, known: int, hashes: list[int]) -> None:
        """Add those from cell `known` on, unless somebody has."""
        place = segment.number, which
        found = self._arrays.get(place, array("Q"))
        if len(found) != known or not hashes:
            return
        more = [hashed << 32 | cell for cell, hashed in enumerate(hashes, known)]
        self._arrays[place] = array("Q", sorted([*found, *more]))
        self._gone.clear()
        self.bytes += len(more) * found.itemsize
        while self.bytes > self.bound and len(self._arrays) > 1:
            _, oldest = self._arrays.popitem(last=False)
            self.bytes -= len(oldest) * oldest.itemsize

    def cells(self, segment: Segment, which: int, key: bytes) -> Iterator[int]:
        """The cells of a segment that may have this id and are not gone, ascending."""
        place, hashed = (segment.number, which), hash_of(key)
        found = self._arrays[place]
        self._arrays.move_to_end(place)
        start = at = self._gone.get((*place, hashed)) or bisect_left(found, hashed << 32)
        while at < len(found) and found[at] >> 32 == hashed and segment.is_gone(found[at] & CELLS):
            at += 1
        if at - start >= MANY_GONE:  # many messages have the same id, and are got one by one
            if len(self._gone) >= MANY_GONE:
                self._gone.clear()
            self._gone[*place, hashed] = at
        while at < len(found) and found[at] >> 32 == hashed:
            cell = found[at] & CELLS
            if not segment.is_gone(cell):
                yield cell
            at += 1

    def drop(self, segment: int) -> None:
        """The segment is no more."""
        self._gone.clear()
        for which in (MESSAGE_ID, CORRELATION_ID):
            found = self._arrays.pop((segment, which), None)
            if found is not None:
                self.bytes -= len(found) * found.itemsize
