"""A queue's messages between memory and segments: what is in memory, letting it go, and reading it again.

Beyond the queue's buffer messages leave memory once a checkpoint has put them into a segment, the last ones first; they
are read again a block at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from qmgr.batch import Batch, MessageRun
from qmgr.entry import COPY, GONE, LOCKED, NOWHERE, OVERHEAD, READY, Entry, read_copy
from qmgr.ids import Arrays, MemoryIndex
from qmgr.lane import Lane
from qmgr.message import HEAD, PERSISTENT, STANDING, standing
from qmgr.segment_format import Block, Cell, table_of
from qmgr.segment_reader import SegmentReader
from qmgr.segments import Segment
from recovery.backouts import Backouts
from recovery.errors import QueueDamaged

SCAN_MESSAGES = 10_000  # expired ones that one look through all that is in memory takes, at most


class Paging:
    """What a queue has in memory, and where the rest of it is."""

    __slots__ = (
        *("_arrays", "_by_id", "_by_sequence", "_indexed", "_lanes", "_occupied", "_resident", "_resident_cells"),
        *("backed_out", "buffers", "depth", "expiring", "half_changed", "memory_bytes", "reader", "segments"),
        *("snapshot_before", "uncommitted"),
    )

    def __init__(self, reader: SegmentReader, arrays: Arrays, buffers: tuple[int, int]) -> None:
        """`buffers`: bytes of non-persistent and of persistent messages that are kept in memory."""
        self.reader = reader
        self.buffers = buffers
        self.depth = 0  # what is ready, and puts that are not committed yet
        self.uncommitted = 0  # puts and gets of units of work that have not ended
        self.expiring = 0  # messages that expire, or more: a restart counts all of a block in which one does
        self.memory_bytes = [0, 0]  # bytes of memory that non-persistent and persistent entries take, about
        self.snapshot_before = 0  # while a checkpoint writes: it is of messages before this sequence
        self.half_changed = False  # a change in memory is under way; if an interrupt leaves it set, all stops
        self.backed_out = Backouts(), Backouts()  # of non-persistent and of persistent messages
        self.segments: dict[int, Segment] = {}  # in the order of their sequences
        self._lanes: dict[int, Lane] = {}  # by twice the priority, and 1 more for persistent messages
        self._occupied = 0  # a bit for each lane that may have entries
        self._resident: dict[int, Entry] = {}  # by sequence: what is in memory between paged neighbours
        self._resident_cells: set[tuple[int, int]] = set()  # (segment, cell) of those: a search by id leaves them out
        self._arrays = arrays
        self._by_id: dict[int, MemoryIndex] = {}  # MESSAGE_ID, CORRELATION_ID, GROUP_ID: entries in memory, ready ones
        self._by_sequence: dict[int, Entry] | None = None
        self._indexed = False  # there is one of the four: by sequence, or by one of the three ids

    def load(self, segments: Iterable[Segment]) -> None:
        """Become what a checkpoint held: all of it is paged. Raises QueueDamaged, OSError."""
        self.segments = {segment.number: segment for segment in segments}
        for segment in self.segments.values():
            self.reader.check(segment)
        for segment in self.segments.values():
            for priority, line in segment.blocks.items():
                number = priority << 1 | (not segment.volatile)
                live = sum(map(segment.live_in, line))
                if not live:
                    continue
                lane = self._lanes.get(number) or self._new_lane(number)
                if not lane.paged:
                    lane.low = line[0].first
                lane.high = line[-1].last
                lane.paged += live
                lane.end = lane.tail
                self._occupied |= 1 << number
                self.depth += live
                self.expiring += sum(segment.live_in(block) for block in line if block.expires)
        if sum(segment.live_bytes for segment in self.segments.values()) <= min(self.buffers):
            for lane in self._lanes.values():  # what is wrong with a small queue is found at once
                while lane.paged:
                    self._page_in(lane)

    def _lane(self, of: Entry | MessageRun) -> Lane:
        """The lane of an entry or a run, which counts as occupied from now on."""
        number = of.priority << 1 | of.persistent
        self._occupied |= 1 << number
        return self._lanes.get(number) or self._new_lane(number)

    def _new_lane(self, number: int) -> Lane:
        lane = self._lanes[number] = Lane(number >> 1, persistent=number & 1 == 1)
        self._lanes = dict(sorted(self._lanes.items()))
        return lane

    def make_entries(self, lane: Lane) -> int:
        """Make entries of the next messages that have none; return how many.

        Raises QueueDamaged, OSError; then nothing has changed.
        """
        return self._page_in(lane) if lane.paged else len(self._unpack_next(lane))

    def make_entries_up_to(self, lane: Lane, count: int) -> None:
        """Make entries until `count` are ready, or all are. Raises as `make_entries`."""
        while lane.more and (lacking := lane.lacks(count)):
            from_segments = lane.paged > 0  # when nothing is paged any more, those in the tail count too
            while lacking > 0 and lane.more and (lane.paged > 0) is from_segments:
                lacking -= self.make_entries(lane)

    def _unpack_next(self, lane: Lane) -> list[Entry]:
        """Make entries of the first batch, or of what came between batches."""
        first = lane.behind[0]
        if isinstance(first, Batch):
            entries = first.entries()
            lane.drop_gone_batches()
            if not first.segment and first.sequence >= self.snapshot_before:
                lane.unpacked.append(first)
        else:
            entries = first
        self.half_changed = True
        lane.end.extend(entries)
        lane.behind.popleft()
        if isinstance(first, Batch) and first.segment:
            lane.placed -= first.weight
        self.half_changed = False
        return entries

    def unpack_all(self) -> None:
        """Make entries of all batches."""
        for lane in self._lanes.values():
            while lane.behind:
                self._unpack_next(lane)

    def in_memory(self) -> Iterator[Entry]:
        """All entries in memory, some of them twice and some of them gone; batches become entries first."""
        self.unpack_all()
        for lane in self._lanes.values():
            yield from lane.all()
        yield from self._resident.values()

    # ---- reading

    def _block_with(self, lane: Lane, sequence: int) -> tuple[Segment, Block] | None:
        """Where the lane's message with this sequence is, or else the next one."""
        for segment in self.segments.values():
            if segment.volatile is not lane.persistent:
                block = segment.block_with(lane.priority, sequence)
                if block is not None:
                    return segment, block
        return None

    def _entry(self, segment: Segment, block: Block, cell: Cell) -> Entry:
        """The copy of a message that was read."""
        number, sequence, message = cell
        entry = read_copy(message, segment.number, number, sequence)
        if entry.priority != block.priority or entry.persistent == segment.volatile:
            path = self.reader.path(segment)
            raise QueueDamaged(f"segment {path} has another message in cell {number}", path)
        counts = self.backed_out[entry.persistent]
        if counts:
            entry.backouts = counts.get(sequence)
        return entry

    def _entries(self, segment: Segment, block: Block, low: int, high: int) -> list[Entry]:
        """Copies of those of a block with sequences in these bounds that are neither gone nor in memory."""
        entries = copies_of(self.reader.read_block(segment, block), segment.number, block)
        resident, counts = self._resident, self.backed_out[not segment.volatile]
        if low > block.first or high < block.last or resident:
            entries = [e for e in entries if low <= e.sequence <= high and e.sequence not in resident]
        if segment.live_in(block) < block.cells:
            gone = segment.gone
            entries = [e for e in entries if not gone[e.cell >> 3] >> (e.cell & 7) & 1]
        if counts:
            for entry in entries:
                entry.backouts = counts.get(entry.sequence)
        return entries

    def _paged(self, lane: Lane, sequence: int) -> Iterator[Entry]:
        """Copies of the lane's paged messages from a sequence on."""
        at = max(sequence, lane.low)
        while (place := self._block_with(lane, at)) is not None:
            segment, block = place
            yield from self._entries(segment, block, at, lane.high)
            at = block.last + 1

    def _page_in(self, lane: Lane) -> int:
        """Read the next block of what is paged; return how many entries that makes. Raises as `make_entries`."""
        place = self._block_with(lane, lane.low)
        if place is None or place[1].first > lane.high:
            raise QueueDamaged(f"the segments lack {lane.paged} messages of priority {lane.priority}")
        segment, block = place
        entries = self._entries(segment, block, lane.low, lane.high)
        self.half_changed = True
        lane.line.extend(entries)
        lane.paged -= len(entries)
        lane.low = block.last + 1
        for entry in entries:
            entry.status = READY
            if self._indexed:
                self._add_to_indexes(entry)
        size = sum([len(e.head) + len(e.body) for e in entries])
        self.memory_bytes[lane.persistent] += size + OVERHEAD * len(entries)
        self.half_changed = False
        return len(entries)

    def _unpage(self, entry: Entry) -> None:
        """Take the message of this copy out of what is paged: the copy is its entry in memory from now on."""
        lane = self._lanes[entry.priority << 1 | entry.persistent]
        lane.paged -= 1
        self._resident[entry.sequence] = entry
        self._resident_cells.add((entry.segment, entry.cell))
        self.memory_bytes[lane.persistent] += len(entry.head) + len(entry.body) + OVERHEAD

    def resident_entry(self, entry: Entry) -> Entry:
        """The entry in memory of a message that is ready: a copy of a paged one becomes its entry."""
        if entry.status == COPY:
            self.half_changed = True
            self._unpage(entry)
            entry.status = READY
            self._lane(entry).given_back[entry.sequence] = entry
            if self._indexed:
                self._add_to_indexes(entry)
            self.half_changed = False
        return entry

    def moved(self) -> None:
        """Messages in memory have got other cells: their segments were rewritten."""
        self._resident_cells = {(entry.segment, entry.cell) for entry in self._resident.values() if entry.segment}

    def extend(self, segment: Segment, blocks: list[Block], length: int) -> None:
        """The checkpoint that appended these blocks to a segment is complete."""
        segment.extend(blocks, length)
        self._arrays.invalidate()

    def drop(self, segment: int) -> None:
        """The segment is no more: nothing is kept that helps to read it."""
        self._arrays.drop(segment)
        self.reader.drop(segment)

    # ---- letting go

    def page_out(self, most: int, locked: Callable[[], Iterable[Entry]]) -> bool:
        """Let up to `most` entries leave memory where lanes hold more than the buffer; True if it was so many.

        The last ones go first, then those that were given back, and only those that a segment has. What is `locked`, or
        in no segment yet, stays in memory although its neighbours are paged.
        """
        for lane in self._lanes.values():
            while self.memory_bytes[lane.persistent] > self.buffers[lane.persistent]:
                if lane.behind and (done := self._page_out_batch(lane)):
                    most -= done
                    if most <= 0:
                        return True
                    continue
                entry = lane.next_out(full=True)
                if entry is None:
                    break
                self._page_out_one(lane, entry)
                most -= 1
                if lane.paged and not (lane.given_back or self._indexed):
                    most -= self._page_out_run(lane, most)
                if not most:
                    return True
            if lane.given_back and self.memory_bytes[lane.persistent] > self.buffers[lane.persistent]:
                most -= self._page_out_returned(lane, most, locked)
                if most <= 0:
                    return True
        return False

    def _page_out_returned(self, lane: Lane, most: int, locked: Callable[[], Iterable[Entry]]) -> int:
        """Page out up to `most` entries that were given back, when no others can leave memory; return how many.

        `lane.low` to `lane.high` then span messages that are gone, locked or given back; those of them that are still
        in memory are noted in `_resident`. Those that came while the checkpoint wrote are not looked at.
        """
        found = lane.returned_to_page_out(most, self.snapshot_before)
        if not found:
            return 0
        self._arrays.invalidate()
        kind, last = lane.persistent, found[-1].sequence
        back = lane.given_back.irange(last, max(lane.low, found[0].sequence) if lane.paged else None)
        stay = [lane.given_back[sequence] for sequence in back]
        if self.uncommitted:
            stay += [e for e in locked() if e.sequence >= last and e.priority == lane.priority and e.persistent == kind]
        self._resident.update((entry.sequence, entry) for entry in stay if entry.status in (READY, LOCKED))
        count = 0
        for entry in found:
            if self.memory_bytes[kind] <= self.buffers[kind]:
                break
            lane.extend_paged_to(entry)
            self._resident.pop(entry.sequence, None)
            self._resident_cells.discard((entry.segment, entry.cell))
            self._page_out_one(lane, entry)
            count += 1
        return count

    def _page_out_batch(self, lane: Lane) -> int:
        """Let the next batch leave memory whole; where nothing is paged, and not all batches have to leave, unpack it.

        Returns how much work that was, in messages, about; 0: there is no such batch, or entries have to leave first.
        """
        while lane.behind and isinstance(lane.behind[0], list):
            self._unpack_next(lane)
        first = lane.behind[0] if lane.behind else None
        if not isinstance(first, Batch) or not first.segment or (lane.paged and lane.tail):
            return 0
        kind = lane.persistent
        if not lane.paged and lane.placed > self.memory_bytes[kind] - self.buffers[kind]:
            return len(self._unpack_next(lane))
        lane.batch_out()
        self.memory_bytes[kind] -= first.weight
        return 1

    def place(self, batch: Batch, segment: int, cell: int) -> None:
        """A segment has a batch that is no entries yet, from this cell on."""
        batch.segment, batch.cell = segment, cell
        self._lanes[batch.priority << 1 | 1].placed += batch.weight

    def _page_out_run(self, lane: Lane, most: int) -> int:
        """Page out the next entries, up to `most`, as long as they are ready and in a segment; return how many.

        Some are paged already, nothing was given back, and there are no indexes: so there is little to do for each.
        """
        kind, tail = lane.persistent, lane.tail
        held, buffer = self.memory_bytes[kind], self.buffers[kind]
        from_tail = bool(tail) and tail[0].segment != NOWHERE
        entries = tail if from_tail else lane.line
        pop, end = (tail.popleft, 0) if from_tail else (lane.line.pop, -1)
        count = 0
        while count < most and held > buffer and entries:
            entry = entries[end]
            if entry.status != READY or not entry.segment:
                break
            pop()
            entry.status = COPY
            held -= len(entry.head) + len(entry.body) + OVERHEAD
            count += 1
            if from_tail:
                lane.high = entry.sequence
            else:
                lane.low = entry.sequence
                lane.low_at = entry.segment, entry.cell
        lane.paged += count
        self.memory_bytes[kind] = held
        return count

    def _page_out_one(self, lane: Lane, entry: Entry) -> None:
        if entry.status == GONE:
            lane.dead -= 1
        elif entry.status == LOCKED:
            lane.dead -= 1
            self._resident[entry.sequence] = entry
        elif entry.sequence in lane.given_back:
            self._resident[entry.sequence] = entry
        elif not entry.segment:
            lane.given_back[entry.sequence] = self._resident[entry.sequence] = entry
        else:
            lane.paged += 1
            entry.status = COPY  # for whoever still holds it
            self.memory_bytes[lane.persistent] -= len(entry.head) + len(entry.body) + OVERHEAD
            if self._indexed:
                self._remove_from_indexes(entry)

    # ---- what is over

    def _expired(self, now: int) -> Iterator[Entry]:
        """Ready entries in memory whose time is over."""
        for entry in self.in_memory():
            if 0 < entry.expires <= now and entry.status == READY:
                yield entry

    def sweep(self, now: int, most: int) -> list[Entry]:
        """Ready entries whose time is over: first those in memory, then those read from segments, block by block.

        Returns up to `most`, or more by what the last block has; of those in memory up to SCAN_MESSAGES, since all that
        is in memory is looked at each time. Raises QueueDamaged, OSError.
        """
        if not self.depth and not self.uncommitted:
            self.expiring = 0  # a restart may have counted too many
        found = {e.sequence: e for e in islice(self._expired(now), max(most, SCAN_MESSAGES))}
        for lane in self._lanes.values():
            if not lane.paged:
                continue
            for segment in self.segments.values():
                if segment.volatile is lane.persistent:
                    continue
                for block in segment.blocks.get(lane.priority, ()):
                    if len(found) >= most:
                        return list(found.values())
                    if 0 < block.expires <= now and block.last >= lane.low and block.first <= lane.high:
                        found.update((e.sequence, e) for e in self._expired_in(lane, segment, block, now))
        return list(found.values())

    def _expired_in(self, lane: Lane, segment: Segment, block: Block, now: int) -> Iterator[Entry]:
        """Ready entries of a block whose time is over, brought into memory; notes when the next of them expires."""
        there = [cell for cell in self.reader.read(segment, block) if not segment.is_gone(cell[0])]
        expires = [standing(message).expires for _, _, message in there]
        segment.postpone_expiry(block, min((one for one in expires if one), default=0))
        for cell, one in zip(there, expires, strict=True):
            sequence = cell[1]
            if 0 < one <= now and lane.holds_paged(sequence) and sequence not in self._resident:
                yield self.resident_entry(self._entry(segment, block, cell))

    # ---- indexes of what is in memory

    def _add_to_indexes(self, entry: Entry) -> None:
        if self._by_sequence is not None:
            self._by_sequence[entry.sequence] = entry
        for resident in self._by_id.values():
            resident.add(entry)

    def _remove_from_indexes(self, entry: Entry) -> None:
        for resident in self._by_id.values():
            resident.remove(entry)


def copies_of(data: bytes, segment: int, block: Block) -> list[Entry]:
    """Copies of all messages of a block, gone or not, from its bytes."""
    lengths, sequences, at = table_of(data, block.cells)
    facts_of = STANDING.unpack_from
    entries = []
    for cell, (length, sequence) in enumerate(zip(lengths, sequences, strict=True), block.cell):
        flags, priority, form, reply_to, properties, expires = facts_of(data, at)
        body = at + HEAD.size + form + reply_to + properties
        end = at + length
        entry = Entry(data[at:body], data[body:end], flags & PERSISTENT, priority, expires)
        entry.status = COPY
        entry.segment = segment
        entry.cell = cell
        entry.sequence = sequence
        entry.lsn = 0  # it was safe before a checkpoint wrote it
        entries.append(entry)
        at = end
    return entries
