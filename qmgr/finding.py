"""Looking for messages of a queue: the next one, those behind a position, by id, by group, by sequence.

Those that are in segments only come as copies, good for being looked at; `claim` makes sure of one that is to be taken.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from qmgr.batch import put_time
from qmgr.entry import COPY, READY, Entry
from qmgr.group_index import END_PLACE, MAX_INDEXED, GroupIndex, place_of, position_of
from qmgr.ids import (
    BEFORE_ALL,
    CORRELATION_ID,
    GROUP_ID,
    MESSAGE_ID,
    Arrays,
    Hit,
    IndexArray,
    IndexUpdate,
    MemoryIndex,
    Position,
    extended_index,
    hash_of,
    id_of,
    packed_place,
)
from qmgr.lane import Lane, in_order
from qmgr.message import group_of, ids_of
from qmgr.paging import Paging
from qmgr.segment_format import LAST_SEQUENCE, SEQUENCE, SLOT, crc_of_cell
from qmgr.segment_reader import SegmentReader
from qmgr.segments import Segment


class Finding(Paging):
    """What of a queue can be got, and in which order."""

    __slots__ = ("_fifo", "_group_index", "_known_levels", "_levels_of", "name", "next_sequence")

    def __init__(self, name: str, reader: SegmentReader, arrays: Arrays, buffers: tuple[int, int]) -> None:
        super().__init__(reader, arrays, buffers)
        self.name = name
        self.next_sequence = 1
        self._fifo = False  # not by priority, but in the order of commit alone
        self._levels_of = 0, False  # (_occupied, _fifo) that _known_levels was made for
        self._known_levels: list[list[Lane]] = []
        self._group_index: GroupIndex | None = None  # its message groups, once somebody has asked for them

    def position(self, entry: Entry) -> Position:
        return (0 if self._fifo else -entry.priority), entry.sequence

    def first(self) -> Entry | None:
        """The entry that a get takes next: highest priority, then lowest sequence. Raises QueueDamaged, OSError."""
        found: Entry | None = None
        occupied = self._occupied
        while occupied:
            number = occupied.bit_length() - 1
            lane = self._lanes[number]
            if found is not None and not self._fifo and lane.priority < found.priority:
                break
            occupied ^= 1 << number
            entry = lane.first()
            while entry is None and lane.more:
                self.make_entries(lane)
                entry = lane.first()
            if entry is None:
                self._occupied ^= 1 << number
            elif found is None or entry.sequence < found.sequence:
                found = entry
        return found

    def ready(self, count: int) -> Iterator[Entry]:
        """The entries that can be got, in the order in which they would be: `count`, or more. Raises as `first`."""
        for lanes in self._levels():
            for lane in lanes:
                self.make_entries_up_to(lane, count)
            for entry in lanes[0].ready() if len(lanes) == 1 else in_order(lanes):
                yield entry
                count -= 1
            if any(lane.more for lane in lanes):
                return

    def _levels(self) -> list[list[Lane]]:
        """The lanes that may have entries, in the order of delivery; those of one list are merged by sequence.

        A list has the lanes of one priority or, with FIFO, all.
        """
        now = self._occupied, self._fifo
        if self._levels_of != now:
            lanes = [lane for number, lane in self._lanes.items() if self._occupied >> number & 1]
            if self._fifo:
                self._known_levels = [lanes] if lanes else []
            else:
                by_priority = groupby(reversed(lanes), key=lambda lane: lane.priority)
                self._known_levels = [list(level) for _, level in by_priority]
            self._levels_of = now
        return self._known_levels

    def after(self, position: Position, before: int) -> Iterator[Entry]:
        """The ready entries behind a position, put before the sequence `before`. Raises QueueDamaged, OSError.

        Those that are in segments only come as copies, good for being looked at.
        """
        level, sequence = position
        for lanes in self._levels():
            here = 0 if self._fifo else -lanes[0].priority
            if here >= level:
                start = sequence if here == level else 0
                entries = heapq.merge(*[self._behind(lane, start) for lane in lanes])
                for entry in entries:  # by sequence: what came since is not walked through
                    if entry.sequence >= before:
                        break
                    yield entry

    def _behind(self, lane: Lane, sequence: int) -> Iterator[Entry]:
        """The lane's ready entries behind a sequence, in memory and paged; batches become entries in their turn."""
        entries = lane.after(sequence)
        if lane.paged and sequence < lane.high:
            entries = heapq.merge(entries, self._paged(lane, sequence + 1))
        return self._brought(lane, sequence, entries) if lane.behind else entries

    def _brought(self, lane: Lane, sequence: int, entries: Iterator[Entry]) -> Iterator[Entry]:
        """These entries, and then those of the batches behind them, one batch after the other.

        An index that is made meanwhile makes entries of all batches; so each time the lane is looked at before.
        """
        for entry in entries:
            sequence = entry.sequence
            yield entry
        while True:
            for entry in lane.after(sequence):
                sequence = entry.sequence
                yield entry
            if not lane.behind:
                return
            self._unpack_next(lane)

    def claim(self, entry: Entry) -> Entry | None:
        """The entry to take for one that was looked up before the lock was let go of; None: it can't be got any more.

        Meanwhile the message may have left memory, or come into it. Raises QueueDamaged, OSError.
        """
        if entry.status != COPY:
            return entry if entry.status == READY else None
        lane, sequence = self._lanes[entry.priority << 1 | entry.persistent], entry.sequence
        held = self._resident.get(sequence)
        if held is None and not lane.holds_paged(sequence):
            held = lane.find(sequence)
            return held if held is not None and held.status == READY else None
        if held is not None:
            return held if held.status == READY else None
        segment = self.segments.get(entry.segment)
        if segment is not None:
            return None if segment.is_gone(entry.cell) else entry
        place = self._block_with(lane, sequence)  # its segment was rewritten
        return None if place is None else next(iter(self._entries(*place, sequence, sequence)), None)

    def put_times(self) -> list[int]:
        """When the first persistent message of each priority that can be got was put. Raises QueueDamaged, OSError."""
        found = []
        for lane in self._lanes.values():
            if lane.persistent:
                entry = lane.first()
                if entry is None and lane.paged:
                    entry = next(self._paged(lane, lane.low), None)
                if entry is not None:
                    found.append(entry.put_time)
                elif lane.behind:
                    found.append(put_time(lane.behind[0]))
        return found

    # ---- by id

    def select(
        self,
        message_id: bytes | None,
        correlation_id: bytes | None,
        *,
        group_id: bytes | None = None,
        read: bool = True,
        behind: Position = BEFORE_ALL,
    ) -> Iterator[Entry]:
        """The ready entries with these ids, in the order of delivery; those that are in segments only as copies.

        Most of those that are not `behind` this position are left out, but not all.
        Where segments have to be read first, it raises Unindexed unless it may `read` them. Raises QueueDamaged,
        OSError.
        """
        which, key = MESSAGE_ID, message_id
        if key is None:
            which, key = (CORRELATION_ID, correlation_id) if group_id is None else (GROUP_ID, group_id)
        assert key is not None
        if which not in self._by_id:
            self._indexed = True
            ready = [entry for entry in self.in_memory() if entry.status == READY]
            self._by_id[which] = MemoryIndex(which, ready, self.position)
        resident = self._by_id[which]
        found: Iterable[Entry] = resident.get(key, behind) if key in resident else ()
        paged = [lane for lane in self._lanes.values() if lane.paged]
        if paged:
            hits = self._arrays.hits(
                self.reader, self.segments.values(), which, key, self.read_hashes if read else None
            )
            copies = [self._copies(lane, which, key, hits, behind) for lane in paged] if hits else []
            if len(copies) == 1 and not found:
                found = copies[0]
            elif copies:
                found = heapq.merge(found, *copies, key=self.position)
        if which == CORRELATION_ID:
            correlation_id = None  # it was the key: all that are found have it
        for entry in found:
            wanted = entry.status in (READY, COPY)
            wanted = wanted and (correlation_id is None or ids_of(entry.head)[1] == correlation_id)
            if wanted and (group_id is None or group_of(entry.head) == group_id):
                yield entry

    def _copies(self, lane: Lane, which: int, key: bytes, hits: list[Hit], behind: Position) -> Iterator[Entry]:
        """Copies of the lane's paged messages that have this id; no blocks are read that end before the position."""
        level, low = behind
        here = 0 if self._fifo else -lane.priority
        if here < level:
            return
        low = max(lane.low, low + 1) if here == level else lane.low
        for segment, made, at in hits:
            if segment.volatile is lane.persistent or lane.priority not in segment.blocks:
                continue
            line = segment.blocks[lane.priority]
            place = 0 if line[0].last >= low else bisect_left(line, low, key=LAST_SEQUENCE)
            if place == len(line):
                continue
            first = line[place].cell
            if lane.low_at[0] == segment.number:
                first = max(first, lane.low_at[1])
            for number in self._arrays.cells(segment, which, made, at, first, self._resident_cells):
                block = segment.block_of(lane.priority, number)
                if block is not None and block.first > lane.high:
                    return
                if block is not None:
                    cell = self.reader.read_one(segment, block, number, self._arrays.place(segment, number))
                    _, sequence, message = cell
                    paged = lane.holds_paged(sequence) and sequence not in self._resident
                    if paged and id_of(message, which) == key:
                        yield self._entry(segment, block, cell)

    def unindexed(self, which: int, but: set[int]) -> tuple[Segment, IndexArray] | None:
        """A copy of a segment, none of `but`, whose array for this id lacks cells, and the array; or None."""
        for segment in self.segments.values():
            known = self._arrays.known(segment, which)
            if len(known.numbers) < segment.cells and segment.number not in but:
                return segment.copy(), known
        return None

    def read_hashes(self, segment: Segment, which: int, known: IndexArray) -> IndexUpdate:
        """Read those of a segment's cells that are not known. Raises QueueDamaged, OSError."""
        first = len(known.numbers)
        blocks = [block for line in segment.blocks.values() for block in line if block.cell >= first]
        found: list[tuple[int, int]] = []
        for block in sorted(blocks, key=lambda one: one.cell):
            at = SLOT * block.cells
            for _, sequence, message in self.reader.read(segment, block):
                place = packed_place(at, crc_of_cell(SEQUENCE.pack(sequence), message))
                found.append((hash_of(id_of(message, which)), place))
                at += len(message)
        return extended_index(known, found)

    def learn(self, segment: Segment, which: int, learnt: IndexUpdate) -> bool:
        """Keep what was read of a copy of the segment, unless that is gone by now. False: there is no room for it."""
        if segment.number not in self.segments:
            return True
        self._arrays.learn(segment, which, learnt, self.segments)
        return len(self._arrays.known(segment, which).numbers) >= len(learnt.now.numbers)

    # ---- groups

    @property
    def group_index(self) -> GroupIndex | None:
        """Its message groups; None while nobody knows them all, or where there are too many messages."""
        return self._group_index if self._group_index is not None and self._group_index.complete else None

    @property
    def can_index_groups(self) -> bool:
        """Are there few enough messages to know all groups?"""
        # Half the bound: an index that was dropped as too large is not made anew at once.
        return self._group_index is not None or 2 * self.depth <= MAX_INDEXED

    def index_groups(self, most: int) -> bool:
        """Learn the groups of up to `most` further messages; True: there may be more. Raises QueueDamaged, OSError."""
        if self._group_index is None:
            if not self.can_index_groups:
                return False
            self._group_index = GroupIndex()
        made = self._group_index
        try:
            for entry in islice(self.after(position_of(made.reached), self.next_sequence), most):
                most -= 1
                position = self.position(entry)
                made.reached = place_of(position)
                made.add(position, entry.head)
        except BaseException:
            self._group_index = None
            raise
        if most:
            made.reached = END_PLACE
        return not made.complete

    def at(self, position: Position) -> Entry:
        """The entry that can be got there, maybe a copy. Raises QueueDamaged, OSError."""
        level, sequence = position
        entry = next(self.after((level, sequence - 1), sequence + 1), None)
        assert entry is not None and self.position(entry) == position, "groups are kept up"
        return entry

    def _can_be_got(self, entry: Entry) -> None:
        """Keep the index of groups up: from now on a get can take the entry."""
        made = self._group_index
        if made is not None:
            made.add(self.position(entry), entry.head)
            if not made.worthwhile:
                self._group_index = None

    def _can_not_be_got(self, entry: Entry) -> None:
        """The same for an entry that a get can't take any more."""
        if self._group_index is not None:
            self._group_index.remove(self.position(entry), entry.head)

    # ---- by sequence, for replay

    def find(self, sequence: int) -> Entry:
        """The entry with this sequence; for replay, where it is nearly always the next one of a lane.

        Raises KeyError, QueueDamaged, OSError.
        """
        for lanes in self._levels():
            for lane in lanes:
                entry = lane.first()
                if entry is None and lane.behind and not lane.paged:
                    self._unpack_next(lane)
                    entry = lane.first()
                if entry is not None and entry.sequence == sequence:
                    return entry
                if lane.holds_paged(sequence) and sequence not in self._resident:
                    paged = self._find_paged(lane, sequence)
                    if paged is not None:
                        return paged
        if self._by_sequence is None:
            self._indexed = True
            self._by_sequence = {entry.sequence: entry for entry in self.in_memory()}
        entry = self._by_sequence[sequence]
        if entry.status != READY:
            raise KeyError(f"message {sequence} of queue {self.name} is taken twice")
        return entry

    def _find_paged(self, lane: Lane, sequence: int) -> Entry | None:
        place = self._block_with(lane, sequence)
        if place is None or place[1].first > sequence:
            return None
        segment, block = place
        if place == self._block_with(lane, lane.low):  # the next one, from which others will be asked for
            self._page_in(lane)
            return next((entry for entry in reversed(lane.line) if entry.sequence == sequence), None)
        cell = self.reader.find(segment, block, sequence)
        return None if cell is None or segment.is_gone(cell[0]) else self._entry(segment, block, cell)

    def forget_sequences(self) -> None:
        """The replay is over."""
        self._by_sequence = None
        self._indexed = bool(self._by_id)
