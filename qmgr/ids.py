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

MESSAGE_ID, CORRELATION_ID = 0, 1  # which of the ids
CELLS = (1 << 32) - 1
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

    def cells(self, segment: int, which: int, key: bytes, heads: Callable[[int], Iterable[bytes]]) -> Iterator[int]:
        """The cells of a segment that may have this id, ascending.

        `heads(n)` gives the messages of its cells from number n on, for those that the array does not have yet.
        """
        found = self._arrays.setdefault((segment, which), array("Q"))
        self._arrays.move_to_end((segment, which))
        known = len(found)
        more = [crc32(ids_of(head)[which]) << 32 | cell for cell, head in enumerate(heads(known), known)]
        if more:
            found = self._arrays[segment, which] = array("Q", sorted([*found, *more]))
            self.bytes += len(more) * found.itemsize
            while self.bytes > self.bound and len(self._arrays) > 1:
                _, oldest = self._arrays.popitem(last=False)
                self.bytes -= len(oldest) * oldest.itemsize
        return _run(found, crc32(key))

    def drop(self, segment: int) -> None:
        """The segment is no more."""
        for which in (MESSAGE_ID, CORRELATION_ID):
            found = self._arrays.pop((segment, which), None)
            if found is not None:
                self.bytes -= len(found) * found.itemsize


def _run(found: "array[int]", hashed: int) -> Iterator[int]:
    at = bisect_left(found, hashed << 32)
    while at < len(found) and found[at] >> 32 == hashed:
        yield found[at] & CELLS
        at += 1
