"""Finding messages by message id, correlation id or group id: indexes made when first asked for.

Messages in memory are found by a dict. Each segment has a sorted array of numbers, 32 bits of an id's hash and 32 of
the cell, with a Bloom filter before it; and an array that says where each cell begins, with its CRC, so that one can be
read by itself. The arrays of all queues share a bound of bytes. Beyond it those of other queues are dropped, the oldest
first, and made again when somebody asks; and what one search needs beyond it is made for that search alone.
"""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import groupby, islice
from typing import NamedTuple

from sortedcontainers import SortedDict

from logger.crc import crc32
from qmgr.entry import Entry
from qmgr.message import group_of
from qmgr.segment_format import Place
from qmgr.segments import Segment

MESSAGE_ID, CORRELATION_ID, PLACES, GROUP_ID = 0, 1, 2, 3  # which of the ids, or where cells begin
CELL_MASK = CRC_MASK = (1 << 32) - 1  # the lower half of a number
MIN_GONE_RUN = 16  # cells of one hash that are gone: so many are skipped the next time
CHUNK_ENTRIES = 64  # that are looked at before others go on
Position = tuple[int, int]  # in the order of delivery: (-priority, or 0 for FIFO; sequence)
BEFORE_ALL: Position = (-10, 0)
hash_of = crc32  # of an id
Group = SortedDict[tuple[int, int], Entry]  # entries with the same id, by the order of delivery


def id_of(message: bytes, which: int) -> bytes:
    """One of the ids of an encoded message; b"" when it has none, being in no group."""
    if which == GROUP_ID:
        return group_of(message)
    return message[32:56] if which == MESSAGE_ID else message[56:80]


class MemoryIndex:
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
        """Add an entry, unless it has no such id; it may be there already."""
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
        """Remove an entry, which may be gone already."""
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
            few = list(islice(found.irange(behind, inclusive=(False, True)), CHUNK_ENTRIES))
            for place in few:
                entry = found.get(place)
                if entry is not None:
                    yield entry
            if len(few) < CHUNK_ENTRIES:
                return
            behind = few[-1]


class IndexArray(NamedTuple):
    """One array of a segment. A look into it costs eight looks at the filter: the processor's caches don't hold it."""

    numbers: "array[int]"  # sorted; of PLACES in the order of the cells
    shift: int = 0  # `number >> shift` is one of its two bits in the filter, as many low bits of its hash the other
    bloom: bytes = b""  # Bloom filter of 8 to 16 bits for each number

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.numbers) * self.numbers.itemsize + len(self.bloom)


EMPTY_INDEX = IndexArray(array("Q"))


class FilterGroup(NamedTuple):
    """The arrays of segments that follow each other and have filters of one size: the same bits tell of each of them.

    Filters lie together, since each search looks at all of them, and at few of the arrays.
    """

    shift: int
    blooms: list[bytes]
    made: list[tuple[Segment, "array[int]"]]


class IndexUpdate(NamedTuple):
    """What was read of a segment: made without the lock, and quickly taken over with it (`Arrays.learn`)."""

    before: IndexArray  # its array, without the cells that were read
    now: IndexArray  # with them
    places: "array[int]"  # where they begin


Hit = tuple[Segment, "array[int]", int]  # a segment, its array, and where in that
Read = Callable[[Segment, int, IndexArray], IndexUpdate]  # (segment, which id, what is known of it)


class Unindexed(Exception):
    """Segments have to be read before messages can be found by an id: better without the lock."""


class Arrays:
    """The sorted arrays of segments, and where their cells begin, within a bound of bytes."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.bytes = 0
        self._arrays: OrderedDict[tuple[int, int], IndexArray] = OrderedDict()  # by segment and which id, or PLACES
        # By segment, which id, and hash: from which cell on, up to which index, all cells of the hash are gone or held.
        self._gone_runs: dict[tuple[int, int, int], tuple[int, int]] = {}
        # By queue and which id, until a segment changes.
        self._filter_groups: dict[tuple[object, int], list[FilterGroup]] = {}

    def known(self, segment: Segment, which: int) -> IndexArray:
        """What is known of the segment: its first cells, or all."""
        return self._arrays.get((segment.number, which), EMPTY_INDEX)

    def learn(self, segment: Segment, which: int, learnt: IndexUpdate, beside: Container[int]) -> None:
        """Keep what was read, unless the array was extended or dropped meanwhile.

        Beyond the bound others are dropped, but not those of segments `beside` it, which the same search needs; if
        that is not enough, this one is.
        """
        before, now, places = learnt
        if self.known(segment, which) is not before or not places:
            return
        self._gone_runs.clear()
        self._keep(segment, which, now)
        there = self.known(segment, PLACES).numbers
        if len(there) == len(before.numbers):
            self._keep(segment, PLACES, IndexArray(there + places))
        if self.bytes > self.bound:
            others = [one for one in self._arrays if one[0] not in beside or one[1] not in (which, PLACES)]
            for one in (*others, (segment.number, which), (segment.number, PLACES)):
                self._drop(one)
                if self.bytes <= self.bound:
                    break

    def _keep(self, segment: Segment, which: int, made: IndexArray) -> None:
        self._drop((segment.number, which))
        self._arrays[segment.number, which] = made
        self.bytes += made.size

    def _drop(self, place: tuple[int, int]) -> None:
        self._filter_groups.clear()
        made = self._arrays.pop(place, None)
        if made is not None:
            self.bytes -= made.size

    def drop(self, segment: int) -> None:
        """The segment is no more."""
        self._gone_runs.clear()
        for which in (MESSAGE_ID, CORRELATION_ID, PLACES, GROUP_ID):
            self._drop((segment, which))

    def hits(self, queue: object, segments: Iterable[Segment], which: int, key: bytes, read: Read | None) -> list[Hit]:
        """The segments of a queue that may have messages with this id.

        What is not known of a segment is `read`. Without that it raises Unindexed.
        """
        low = hash_of(key) << 32
        high = low | CELL_MASK
        whole = self._filter_groups.get((queue, which)) or self._filter_groups_of(queue, segments, which, low, read)
        hits = []
        for shift, blooms, there in whole:
            one, other = low >> shift, low >> 32 & (1 << 64 - shift) - 1
            byte, bit, other_byte, other_bit = one >> 3, 1 << (one & 7), other >> 3, 1 << (other & 7)
            passed = [n for n, bloom in enumerate(blooms) if bloom[byte] & bit and bloom[other_byte] & other_bit]
            for segment, made in map(there.__getitem__, passed):
                at = bisect_left(made, low)
                if at < len(made) and made[at] <= high:
                    hits.append((segment, made, at))
        return hits

    def _filter_groups_of(
        self, queue: object, segments: Iterable[Segment], which: int, low: int, read: Read | None
    ) -> list[FilterGroup]:
        """The arrays of these segments, made where they are missing.

        Of those that can't be kept, only the ones that have the hash of `low`, the number that is searched for.
        """
        there, all_kept = [], True
        beside = {segment.number for segment in segments}
        for segment in segments:
            kept = self.known(segment, which)
            if len(kept.numbers) < segment.cells:
                if read is None:
                    raise Unindexed
                learnt = read(segment, which, kept)
                self.learn(segment, which, learnt, beside)
                kept = learnt.now
                if self.known(segment, which) is not kept:
                    all_kept = False
                    at = bisect_left(kept.numbers, low)
                    if at == len(kept.numbers) or kept.numbers[at] > low | CELL_MASK:
                        continue
            if segment.cells:
                there.append((segment, kept))
        whole = []
        for shift, some in groupby(there, key=lambda one: one[1].shift):
            pairs = list(some)
            made = [(segment, kept.numbers) for segment, kept in pairs]
            whole.append(FilterGroup(shift, [kept.bloom for _, kept in pairs], made))
        if all_kept:
            self._filter_groups[queue, which] = whole
        return whole

    def invalidate(self) -> None:
        """Forget what holds no longer: a message that was held is back, or a segment has more messages."""
        self._gone_runs.clear()
        self._filter_groups.clear()

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
        if made[at] & CELL_MASK < first:
            at = bisect_left(made, hashed << 32 | first, at)
        begun, reached = self._gone_runs.get((number, which, hashed), (first, at))
        if begun <= first and at <= reached:
            at = reached
        else:
            begun = first
        start = at
        while at < len(made) and made[at] >> 32 == hashed:
            cell = made[at] & CELL_MASK
            if not segment.is_gone(cell) and (number, cell) not in held:
                break
            at += 1
        if at - start >= MIN_GONE_RUN:  # many messages have the same id, and are got one by one
            if len(self._gone_runs) >= 1000:
                self._gone_runs.clear()
            self._gone_runs[number, which, hashed] = begun, at
        while at < len(made) and made[at] >> 32 == hashed:
            cell = made[at] & CELL_MASK
            if not segment.is_gone(cell) and (number, cell) not in held:
                yield cell
            at += 1

    def place(self, segment: Segment, cell: int) -> Place | None:
        """Where the cell lies in its block; None: it is not known."""
        made = self.known(segment, PLACES).numbers
        if cell >= len(made):
            return None
        end = made[cell + 1] >> 32 if cell + 1 < len(made) else 0
        return Place(made[cell] >> 32, end, made[cell] & CRC_MASK)


def packed_place(begin: int, crc: int) -> int:
    """A place as it is kept: a message begins at this byte of its block."""
    return begin << 32 | crc


def extended_index(before: IndexArray, found: list[tuple[int, int]]) -> IndexUpdate:
    """Add to what is known of a segment the (hash of the id, `packed_place`) of the cells that follow."""
    known = before.numbers
    more = [hashed << 32 | cell for cell, (hashed, _) in enumerate(found, len(known))]
    return IndexUpdate(
        before, with_bloom(array("Q", sorted([*known, *more]))), array("Q", [place for _, place in found])
    )


def with_bloom(made: "array[int]") -> IndexArray:
    """The sorted numbers, with a Bloom filter of them."""
    bits = (8 * len(made)).bit_length()
    bloom = bytearray(1 << bits - 3)
    shift, last = 64 - bits, (1 << bits) - 1
    for marks in [number >> shift for number in made], [number >> 32 & last for number in made]:
        for mark in marks:
            bloom[mark >> 3] |= 1 << (mark & 7)
    return IndexArray(made, shift, bytes(bloom))
