"""Finding messages by message id, correlation id or group id: indexes made when first asked for.

Those in memory are found by a dict. Of those in segments each segment has a sorted array of numbers, 32 bits of a
hash and 32 of the cell, and a sieve before it that stops most of what is not there; and an array that says where each
cell begins, with a CRC, so that one can be read by itself. The arrays of all queues share a bound, beyond which those
that were made longest ago are dropped, and made again when somebody asks.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from sortedcontainers import SortedDict

from logger.crc import crc32
from qmgr.entry import Entry
from qmgr.message import group_of
from qmgr.segments import Place, Segment

MESSAGE_ID, CORRELATION_ID, PLACES, GROUP_ID = 0, 1, 2, 3  # which of the ids, or where cells begin
CELLS = CRC = (1 << 32) - 1  # the lower half of a number
MANY_OVER = 16
A_FEW = 64
Position = tuple[int, int]  # in the order of delivery: (-priority, or 0 for FIFO; sequence)
BEFORE_ALL: Position = (-10, 0)
hash_of = crc32  # of an id
Group = SortedDict[tuple[int, int], Entry]  # entries with the same id, by the order of delivery


def id_of(message: bytes, which: int) -> bytes:
    """One of the ids of an encoded message; b"" when it has none, being in no group."""
    if which == GROUP_ID:
        return group_of(message)
    return message[32:56] if which == MESSAGE_ID else message[56:80]


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
        key = id_of(entry.head, self._which)
        if not key:
            return
        found = self._found.setdefault(key, entry)
        if found is entry:
            return
        if isinstance(found, Entry):
            found = self._found[key] = SortedDict({self._order(found): found})
        found[self._order(entry)] = entry

    def remove(self, entry: Entry) -> None:
        """It may be gone already."""
        key = id_of(entry.head, self._which)
        found = self._found.get(key)
        if found is entry:
            del self._found[key]
        elif isinstance(found, SortedDict):
            found.pop(self._order(entry), None)
            if not found:
                del self._found[key]

    def __contains__(self, key: bytes) -> bool:
        return key in self._found

    def get(self, key: bytes, behind: Position = BEFORE_ALL) -> Iterator[Entry]:
        """Those with this id, in the order of delivery; where there are many, only those behind this place in it.

        One that is added or removed meanwhile does no harm.
        """
        found = self._found.get(key)
        if isinstance(found, Entry):
            yield found
        while isinstance(found, SortedDict):
            few = list(islice(found.irange(behind, inclusive=(False, True)), A_FEW))
            for place in few:
                entry = found.get(place)
                if entry is not None:
                    yield entry
            if len(few) < A_FEW:
                return
            behind = few[-1]


class Kept(NamedTuple):
    """One array of a segment. To look into it costs as much as eight looks at a bit: it has left the caches."""

    numbers: "array[int]"  # sorted; of PLACES in the order of the cells
    shift: int = 0  # of a number: which bit it sets
    sieve: bytes = b""  # 8 to 16 bits for each number: most that are not there meet one that is not set

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.numbers) * self.numbers.itemsize + len(self.sieve)


UNKNOWN = Kept(array("Q"))


class Whole(NamedTuple):
    """The arrays of all segments of a queue; apart what each search looks at, since the rest has left the caches."""

    shifts: list[int]
    sieves: list[bytes]
    made: list[tuple[Segment, "array[int]"]]


Hit = tuple[Segment, "array[int]", int]  # a segment, its array, and where in that
Read = Callable[[Segment, int, int], list[tuple[int, int]]]  # segment, which id, from which cell on -> see `learn`


class Unindexed(Exception):
    """Segments have to be read before messages can be found by an id: better without the lock."""


class Arrays:
    """The sorted arrays of segments, and where their cells begin, within a bound of bytes."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.bytes = 0
        self._arrays: OrderedDict[tuple[int, int], Kept] = OrderedDict()  # by segment and which id, or PLACES
        # With the hash: from which cell on, and up to where, all cells of that hash are gone or held.
        self._over: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._whole: dict[tuple[object, int], Whole] = {}  # by queue and which id, until one of its segments changes

    def known(self, segment: Segment, which: int) -> int:
        """How many of the segment's cells its array has: the first ones."""
        return len(self._arrays.get((segment.number, which), UNKNOWN).numbers)

    def learn(self, segment: Segment, which: int, known: int, found: list[tuple[int, int]]) -> None:
        """Add (hash of the id, `kept_place`) of the cells from number `known` on, unless somebody has."""
        if self.known(segment, which) != known or not found:
            return
        more = [hashed << 32 | cell for cell, (hashed, _) in enumerate(found, known)]
        self._over.clear()
        old = self._arrays.get((segment.number, which), UNKNOWN).numbers
        self._keep(segment, which, with_sieve(array("Q", sorted([*old, *more]))))
        if self.known(segment, PLACES) == known:
            places = array("Q", [place for _, place in found])
            if known:
                places = self._arrays[segment.number, PLACES].numbers + places
            self._keep(segment, PLACES, Kept(places))
        while self.bytes > self.bound and len(self._arrays) > 2:
            self._drop(next(iter(self._arrays)))

    def _keep(self, segment: Segment, which: int, made: Kept) -> None:
        self._drop((segment.number, which))
        self._arrays[segment.number, which] = made
        self.bytes += made.size

    def _drop(self, place: tuple[int, int]) -> None:
        self._whole.clear()
        made = self._arrays.pop(place, None)
        if made is not None:
            self.bytes -= made.size

    def drop(self, segment: int) -> None:
        """The segment is no more."""
        self._over.clear()
        for which in (MESSAGE_ID, CORRELATION_ID, PLACES, GROUP_ID):
            self._drop((segment, which))

    def hits(self, queue: object, segments: Iterable[Segment], which: int, key: bytes, read: Read | None) -> list[Hit]:
        """The segments of a queue that may have messages with this id.

        What is not known of a segment is `read`. Without that it raises Unindexed.
        """
        whole = self._whole.get((queue, which)) or self._know(queue, segments, which, read)
        low = hash_of(key) << 32
        high = low | CELLS
        hits = []
        for place, (shift, sieve) in enumerate(zip(whole.shifts, whole.sieves, strict=True)):
            mark = low >> shift
            if sieve[mark >> 3] >> (mark & 7) & 1:
                segment, made = whole.made[place]
                at = bisect_left(made, low)
                if at < len(made) and made[at] <= high:
                    hits.append((segment, made, at))
        return hits

    def _know(self, queue: object, segments: Iterable[Segment], which: int, read: Read | None) -> Whole:
        """The arrays of these segments, made where they are not there."""
        there = []
        for segment in segments:
            known = self.known(segment, which)
            if known < segment.cells:
                if read is None:
                    raise Unindexed
                self.learn(segment, which, known, read(segment, which, known))
            if segment.cells:
                there.append((segment, self._arrays[segment.number, which]))
        whole = Whole(
            [kept.shift for _, kept in there],
            [kept.sieve for _, kept in there],
            [(segment, kept.numbers) for segment, kept in there],
        )
        if all(self._arrays.get((segment.number, which)) is kept for segment, kept in there):
            self._whole[queue, which] = whole
        return whole

    def look_again(self) -> None:
        """What was held is not held any more, or there is more in a segment."""
        self._over.clear()
        self._whole.clear()

    def cells(
        self,
        segment: Segment,
        which: int,
        made: "array[int]",
        at: int,
        first: int = 0,
        held: Container[tuple[int, int]] = (),
    ) -> Iterator[int]:
        """The cells of a hit from number `first` on that are neither gone nor `held` (segment and cell), ascending."""
        number, hashed = segment.number, made[at] >> 32
        if made[at] & CELLS < first:
            at = bisect_left(made, hashed << 32 | first, at)
        begun, reached = self._over.get((number, which, hashed), (first, at))
        if begun <= first and at <= reached:
            at = reached
        else:
            begun = first
        start = at
        while at < len(made) and made[at] >> 32 == hashed:
            cell = made[at] & CELLS
            if not segment.is_gone(cell) and (number, cell) not in held:
                break
            at += 1
        if at - start >= MANY_OVER:  # many messages have the same id, and are got one by one
            if len(self._over) >= 1000:
                self._over.clear()
            self._over[number, which, hashed] = begun, at
        while at < len(made) and made[at] >> 32 == hashed:
            cell = made[at] & CELLS
            if not segment.is_gone(cell) and (number, cell) not in held:
                yield cell
            at += 1

    def place(self, segment: Segment, cell: int) -> Place | None:
        """Where the cell lies in its block; None: it is not known."""
        made = self._arrays.get((segment.number, PLACES), UNKNOWN).numbers
        if cell >= len(made):
            return None
        end = made[cell + 1] >> 32 if cell + 1 < len(made) else 0
        return Place(made[cell] >> 32, end, made[cell] & CRC)


def kept_place(begin: int, crc: int) -> int:
    """A place as it is kept: a message begins at this byte of its block."""
    return begin << 32 | crc


def with_sieve(made: "array[int]") -> Kept:
    """What is kept of these numbers."""
    bits = (8 * len(made)).bit_length()
    sieve = bytearray(1 << bits - 3)
    for number in made:
        mark = number >> 64 - bits
        sieve[mark >> 3] |= 1 << (mark & 7)
    return Kept(made, 64 - bits, bytes(sieve))
