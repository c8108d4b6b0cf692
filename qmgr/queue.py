"""One queue: priority, then the order of commit; what can be got, what is locked, what is gone, what is on disk only.

There are two lanes for each priority, one for persistent messages and one for the others. Beyond the queue's buffer
messages leave memory once a checkpoint has put them into a segment, the last ones first; they are read again a block
at a time. The caller's lock guards every method.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from qmgr.due import Waiters
from qmgr.entry import COPY, GONE, LOCKED, OVERHEAD, READY, Entry, read_copy
from qmgr.gathered import EVERYTHING, MOST, Gathered, Position, place_of, position_of
from qmgr.ids import CORRELATION_ID, GROUP_ID, MESSAGE_ID, Arrays, Hit, Resident, hash_of, id_of
from qmgr.lane import Lane, in_order
from qmgr.message import describe, group_of, ids_of, standing
from qmgr.objects import QmgrDefinition, QueueDefinition, is_event_queue
from qmgr.segments import Block, Cell, Segment, SegmentReader, size_of_cell
from recovery.errors import QueueDamaged
from recovery.image import Place

BEFORE_ALL: Position = (-10, 0)
HIGH, LOW, FULL = 1, 2, 4  # events of the depth that a queue waits for


class Queue:
    """A local queue and its messages."""

    def __init__(
        self, definition: QueueDefinition, reader: SegmentReader, arrays: Arrays, buffers: tuple[int, int]
    ) -> None:
        """`buffers`: bytes of non-persistent and of persistent messages kept in memory, if the definition is silent."""
        self.id = definition.id
        self.next_sequence = 1
        self.depth = 0  # what is ready, and puts that are not committed yet
        self.last_put = self.last_get = 0  # when: microseconds since 1970-01-01 UTC; 0: not known
        self.uncommitted = 0  # puts and gets of units of work that have not ended
        self.expiring = 0  # messages that have been added with a time to expire, at least
        self.held = [0, 0]  # bytes of memory that non-persistent and persistent entries take, about
        self.damaged = ""  # why nothing can be done with it; empty when all is well
        self.blocked = False  # it only seems so, while it is built again
        self.bad_file = ""  # that made it damaged
        self.torn = False  # while what is in memory changes: an interrupt that leaves it so ends the queue manager
        self.deleted = False
        self.waiters = Waiters()
        self.fresh: tuple[list[Entry], list[Entry]] = [], []  # in no segment yet: non-persistent, and persistent
        self.removed: dict[Entry, bytes] | None = None  # while a checkpoint writes: bodies of what is taken meanwhile,
        self.snapshot_before = 0  # of the messages before this sequence
        self.backed_out: tuple[dict[int, int], dict[int, int]] = {}, {}  # backout counts by sequence, likewise
        self.segments: dict[int, Segment] = {}  # in the order of their sequences
        self.left_over = 0  # their surplus that the last checkpoint did not give back
        self.image: Place | None = None  # the media image to recover from
        self.imaging = 0  # LSN where the one began that was begun last
        self.changed = True  # since the last checkpoint
        self.line = b""  # what the last checkpoint says of the queue
        self.reader = reader
        self._arrays = arrays
        self._default_buffers = buffers
        self._lanes: dict[int, Lane] = {}  # by twice the priority, and 1 more for persistent messages
        self._occupied = 0  # a bit for each lane that may have entries
        self._levels_of = 0, False  # what the levels below were made of
        self._known_levels: list[list[Lane]] = []
        self._elsewhere: dict[int, Entry] = {}  # by sequence: in memory, though a block may be read that has it too
        self._by_id: dict[int, Resident] = {}  # MESSAGE_ID, CORRELATION_ID, GROUP_ID: entries in memory
        self._by_sequence: dict[int, Entry] | None = None
        self._indexed = False  # there is one of the three
        self._gathered: Gathered | None = None  # its message groups, once somebody has asked for them
        self.armed = self._events = 0  # events of the depth: those that it waits for, those that are wanted of it
        self._qmgr = QmgrDefinition()
        self._settle(definition)

    def _settle(self, definition: QueueDefinition) -> None:
        """Take attributes, and what every put and get looks at of them."""
        self.definition = definition
        self.name = definition.name
        self.max_length = min(definition.max_message_length, self._qmgr.max_message_length)
        self.high_mark = definition.max_depth * definition.depth_high // 100
        self.low_mark = definition.max_depth * definition.depth_low // 100
        events = 0
        if self._qmgr.performance_events and not is_event_queue(self.name):
            events = HIGH * definition.depth_high_event | LOW * definition.depth_low_event
            events |= FULL * definition.depth_max_event
        if events != self._events:
            self.armed = self._events = events
        self.arm(self.armed)
        self.plain = describe(definition.default_priority, definition.default_persistence)  # of a put without options
        size = definition.buffer_size
        self.buffers = self._default_buffers if size is None else (size, size)
        self._fifo = definition.delivery_sequence == "FIFO"

    def arm(self, events: int) -> None:
        """Wait for these events of the depth. Puts and gets for which there is none have nothing more to look at."""
        self.armed = events
        shut = bool(self.damaged) or self.deleted
        self.room_to = self.definition.max_depth if self.definition.put_enabled and not shut else -1
        if events & HIGH:
            self.room_to = min(self.room_to, self.high_mark - 1)  # from there on a put looks closer
        self.gets_freely = self.definition.get_enabled and not shut and not events & LOW

    def heed(self, qmgr: QmgrDefinition) -> None:
        """Take what the attributes of the queue manager say of every queue."""
        self._qmgr = qmgr
        self._settle(self.definition)

    def redefine(self, definition: QueueDefinition) -> None:
        """Take new attributes."""
        self._settle(definition)
        self.changed = True
        self._by_id.clear()  # they are in the order of delivery, which may be another one now
        self._indexed = self._by_sequence is not None
        self._gathered = None

    def retire(self) -> None:
        """It is deleted; who still holds it finds that out."""
        self.deleted = True
        self.arm(0)
        self.waiters.wake_all()
        for number in self.segments:
            self._arrays.drop(number)

    def _lane(self, entry: Entry) -> Lane:
        """Where the entry belongs; it counts as occupied from now on."""
        number = entry.priority << 1 | entry.persistent
        self._occupied |= 1 << number
        return self._lanes.get(number) or self._new_lane(number)

    def _new_lane(self, number: int) -> Lane:
        lane = self._lanes[number] = Lane(number >> 1, persistent=number & 1 == 1)
        self._lanes = dict(sorted(self._lanes.items()))
        return lane

    def position(self, entry: Entry) -> Position:
        return (0 if self._fifo else -entry.priority), entry.sequence

    # ---- looking

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
            while entry is None and lane.paged:
                self._page_in(lane)
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
                while lane.paged and not lane.has(count):
                    self._page_in(lane)
            for entry in lanes[0].ready() if len(lanes) == 1 else in_order(lanes):
                yield entry
                count -= 1
            if any(lane.paged for lane in lanes):
                return

    def _levels(self) -> list[list[Lane]]:
        """The lanes that may have entries: those whose entries come by sequence together, in the order of delivery."""
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

    def in_memory(self) -> Iterator[Entry]:
        """All entries that are not gone and in memory, some twice."""
        for lane in self._lanes.values():
            yield from lane.all()
        yield from self._elsewhere.values()

    def after(self, position: Position, before: int) -> Iterator[Entry]:
        """The ready entries behind a position, put before the sequence `before`. Raises QueueDamaged, OSError.

        Those that are in segments only come as copies, good for being looked at.
        """
        level, sequence = position
        for lanes in self._levels():
            here = 0 if self._fifo else -lanes[0].priority
            if here >= level:
                start = sequence if here == level else 0
                for entry in heapq.merge(*[self._behind(lane, start) for lane in lanes]):
                    if entry.sequence < before:
                        yield entry

    def _behind(self, lane: Lane, sequence: int) -> Iterator[Entry]:
        """The lane's ready entries behind a sequence, in memory and paged."""
        if not lane.paged or sequence >= lane.high:
            return lane.after(sequence)
        return heapq.merge(lane.after(sequence), self._paged(lane, sequence + 1))

    def _paged(self, lane: Lane, sequence: int) -> Iterator[Entry]:
        """Copies of the lane's paged messages from a sequence on."""
        at = max(sequence, lane.low)
        while (place := self._block_with(lane, at)) is not None:
            segment, block = place
            yield from self._entries(segment, block, at, lane.high)
            at = block.last + 1

    def claim(self, entry: Entry) -> Entry | None:
        """The entry to take for one that was looked up before the lock was let go of; None: it can't be got any more.

        Meanwhile the message may have left memory, or come into it. Raises QueueDamaged, OSError.
        """
        if entry.status != COPY:
            return entry if entry.status == READY else None
        lane, sequence = self._lanes[entry.priority << 1 | entry.persistent], entry.sequence
        held = self._elsewhere.get(sequence)
        if held is None and not lane.holds_paged(sequence):
            held = lane.find(sequence)
            return held if held is not None and held.status == READY else None
        if held is not None:
            return held if held.status == READY else None
        segment = self.segments.get(entry.segment)
        if segment is not None:
            return None if segment.is_gone(entry.cell) else entry
        place = self._block_with(lane, sequence)  # its segment was rewritten
        return None if place is None else next(self._entries(*place, sequence, sequence), None)

    # ---- by id

    def select(
        self,
        message_id: bytes | None,
        correlation_id: bytes | None,
        *,
        group_id: bytes | None = None,
        read: bool = True,
    ) -> Iterator[Entry]:
        """The ready entries with these ids, in the order of delivery; those that are in segments only as copies.

        Where segments have to be read first, it raises Unindexed unless it may `read` them. Raises QueueDamaged,
        OSError.
        """
        which, key = MESSAGE_ID, message_id
        if key is None:
            which, key = (CORRELATION_ID, correlation_id) if group_id is None else (GROUP_ID, group_id)
        assert key is not None
        if which not in self._by_id:
            self._indexed = True
            self._by_id[which] = Resident(which, self.in_memory(), self.position)
        found: Iterable[Entry] = list(self._by_id[which].get(key))
        paged = [lane for lane in self._lanes.values() if lane.paged]
        if paged:
            hits = self._arrays.hits(self.segments.values(), which, key, self.read_hashes if read else None)
            copies = [self._copies(lane, which, key, hits) for lane in paged] if hits else []
            found = copies[0] if len(copies) == 1 and not found else heapq.merge(found, *copies, key=self.position)
        for entry in found:
            wanted = entry.status in (READY, COPY)
            wanted = wanted and (correlation_id is None or ids_of(entry.head)[1] == correlation_id)
            if wanted and (group_id is None or group_of(entry.head) == group_id):
                yield entry

    def _copies(self, lane: Lane, which: int, key: bytes, hits: list[Hit]) -> Iterator[Entry]:
        """Copies of the lane's paged messages that have this id."""
        for segment, made, at in hits:
            if segment.volatile is lane.persistent or lane.priority not in segment.blocks:
                continue
            for number in self._arrays.cells(segment, which, made, at):
                block = segment.block_of(lane.priority, number)
                if block is not None:
                    cell = self.reader.read_one(segment, block, number, self._arrays.place(segment, number))
                    _, sequence, message = cell
                    paged = lane.holds_paged(sequence) and sequence not in self._elsewhere
                    if paged and id_of(message, which) == key:
                        yield self._entry(segment, block, cell)

    def unindexed(self, which: int, but: set[int]) -> tuple[Segment, int] | None:
        """A copy of a segment that has messages which finding one by an id has to know, and from which cell on."""
        for segment in self.segments.values():
            known = self._arrays.known(segment, which)
            if known < segment.cells and segment.number not in but:
                return segment.copy(), known
        return None

    def read_hashes(self, segment: Segment, which: int, known: int) -> list[tuple[int, int]]:
        """(hash of an id, byte where it begins) of a segment's cells from this one on. Raises QueueDamaged, OSError."""
        blocks = [block for line in segment.blocks.values() for block in line if block.cell >= known]
        found: list[tuple[int, int]] = []
        for block in sorted(blocks, key=lambda one: one.cell):
            at = block.at
            for _, _, message in self.reader.read(segment, block):
                found.append((hash_of(id_of(message, which)), at))
                at += size_of_cell(len(message))
        return found

    def learn(self, segment: Segment, which: int, known: int, found: list[tuple[int, int]]) -> None:
        """What was read of a copy of the segment, unless it is no more."""
        if segment.number in self.segments:
            self._arrays.learn(segment, which, known, found)

    # ---- groups

    @property
    def gathered(self) -> Gathered | None:
        """Its message groups; None while nobody knows them all, or where there are too many messages."""
        return self._gathered if self._gathered is not None and self._gathered.complete else None

    @property
    def gatherable(self) -> bool:
        """Are there few enough messages to know all groups?"""
        return self._gathered is not None or 2 * self.depth <= MOST  # so one that was dropped is not made anew at once

    def gather(self, most: int) -> bool:
        """Learn the groups of up to `most` further messages; True: there may be more. Raises QueueDamaged, OSError."""
        if self._gathered is None:
            if not self.gatherable:
                return False
            self._gathered = Gathered()
        made = self._gathered
        try:
            for entry in islice(self.after(position_of(made.reached), self.next_sequence), most):
                most -= 1
                position = self.position(entry)
                made.reached = place_of(position)
                made.add(position, entry.head)
        except BaseException:
            self._gathered = None
            raise
        if most:
            made.reached = EVERYTHING
        return not made.complete

    def at(self, position: Position) -> Entry:
        """The entry that can be got there, maybe a copy. Raises QueueDamaged, OSError."""
        level, sequence = position
        entry = next(self.after((level, sequence - 1), sequence + 1), None)
        assert entry is not None and self.position(entry) == position, "groups are kept up"
        return entry

    def _can_be_got(self, entry: Entry) -> None:
        made = self._gathered
        if made is not None:
            made.add(self.position(entry), entry.head)
            if not made.worthwhile:
                self._gathered = None

    def _can_not_be_got(self, entry: Entry) -> None:
        if self._gathered is not None:
            self._gathered.remove(self.position(entry), entry.head)

    # ---- by sequence, for replay

    def find(self, sequence: int) -> Entry:
        """The entry with this sequence; for replay, where it is nearly always the next one of a lane.

        Raises KeyError, QueueDamaged, OSError.
        """
        for lanes in self._levels():
            for lane in lanes:
                entry = lane.first()
                if entry is not None and entry.sequence == sequence:
                    return entry
                if lane.holds_paged(sequence) and sequence not in self._elsewhere:
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

    def _add_to_indexes(self, entry: Entry) -> None:
        if self._by_sequence is not None:
            self._by_sequence[entry.sequence] = entry
        for resident in self._by_id.values():
            resident.add(entry)

    def _remove_from_indexes(self, entry: Entry) -> None:
        for resident in self._by_id.values():
            resident.remove(entry)

    # ---- changing; only `State.apply` calls these

    def add(self, entry: Entry, sequence: int, lsn: int) -> None:
        """A message becomes visible; it was counted in `depth` when it was put."""
        entry.sequence = sequence
        entry.lsn = lsn
        if sequence >= self.next_sequence:
            self.next_sequence = sequence + 1
        kind = entry.persistent
        self._lane(entry).end.append(entry)
        self.held[kind] += len(entry.head) + len(entry.body) + OVERHEAD
        self.fresh[kind].append(entry)
        self.changed = True
        if entry.expires:
            self.expiring += 1
        if self._indexed:
            self._add_to_indexes(entry)
        if self._gathered is not None:
            self._can_be_got(entry)
        if self.waiters.line:
            self.waiters.wake_one()

    def add_run(self, entries: list[Entry], sequence: int, lsn: int) -> None:
        """The same for the messages of one call, which have all but bodies and ids in common, in places that follow."""
        if self._indexed or self._gathered is not None or self.waiters.line:
            for place, entry in enumerate(entries, sequence):
                self.add(entry, place, lsn)
            return
        for place, entry in enumerate(entries, sequence):
            entry.sequence = place
            entry.lsn = lsn
        first, count = entries[0], len(entries)
        self.next_sequence = max(self.next_sequence, sequence + count)
        kind = first.persistent
        self._lane(first).end.extend(entries)
        self.held[kind] += sum([len(entry.head) + len(entry.body) for entry in entries]) + OVERHEAD * count
        self.fresh[kind].extend(entries)
        self.changed = True
        if first.expires:
            self.expiring += count

    def lock(self, entry: Entry) -> None:
        """A unit of work gets the message: nobody else sees it."""
        if entry.status == COPY:
            self._pluck(entry)
        entry.status = LOCKED
        if self._gathered is not None:
            self._can_not_be_got(entry)
        self.depth -= 1
        self.uncommitted += 1
        self._lane(entry).took(entry, self._elsewhere)

    def give_back(self, entry: Entry, *, count: bool) -> None:
        """The unit of work that had locked it was backed out; `count` it."""
        entry.status = READY
        self.depth += 1
        self.uncommitted -= 1
        self._lane(entry).given_back[entry.sequence] = entry
        if self._indexed:
            self._add_to_indexes(entry)  # which may have been made while it was locked
        if self._gathered is not None:
            self._can_be_got(entry)
        if count:
            entry.backouts += 1
            self.backed_out[entry.persistent][entry.sequence] = entry.backouts
            self.changed = True
        if self.waiters.line:
            self.waiters.wake_one()

    def take(self, entry: Entry) -> None:
        """A ready message is got outside a unit of work, or its time is over."""
        if self.removed is not None and not entry.segment and entry.sequence < self.snapshot_before:
            self.removed[entry] = entry.body
        if entry.status == COPY:
            self._pluck(entry)
        entry.status = GONE
        if self._gathered is not None:
            self._can_not_be_got(entry)
        self.depth -= 1
        self._lane(entry).took(entry, self._elsewhere)
        self._forget(entry)

    def remove(self, entry: Entry) -> None:
        """A locked message is gone for good."""
        if self.removed is not None and not entry.segment and entry.sequence < self.snapshot_before:
            self.removed[entry] = entry.body
        entry.status = GONE
        self.uncommitted -= 1
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        size = len(entry.head) + len(entry.body)
        self.held[entry.persistent] -= size + OVERHEAD
        self.changed = True
        if entry.expires:
            self.expiring -= 1
        if self._indexed:
            self._remove_from_indexes(entry)
        if entry.backouts:
            self.backed_out[entry.persistent].pop(entry.sequence, None)
        if entry.segment:
            self.segments[entry.segment].mark_gone(entry.cell, size)
        if self._elsewhere:
            self._elsewhere.pop(entry.sequence, None)
        entry.body = b""

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
        return found

    # ---- between memory and segments

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

    def damage(self, why: str) -> None:
        """A segment can't be believed: nothing more is put or got."""
        self.damaged = why
        self.changed = True
        self.arm(self.armed)
        self.waiters.wake_all()

    def block(self, why: str) -> None:
        """Nothing more is put or got, for now; no checkpoint says so."""
        self.damage(why)
        self.blocked = True

    def trust(self) -> None:
        """It was not damaged after all."""
        self.damaged = ""
        self.blocked = False
        self.changed = True
        self._settle(self.definition)

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
            entry.backouts = counts.get(sequence, 0)
        return entry

    def _entries(self, segment: Segment, block: Block, low: int, high: int) -> Iterator[Entry]:
        """Those of a block with sequences in these bounds that are neither gone nor in memory."""
        gone, any_gone, elsewhere = segment.gone, segment.gone_count > 0, self._elsewhere
        counts = self.backed_out[not segment.volatile]
        for number, sequence, message in self.reader.read(segment, block):
            there = low <= sequence <= high and not (any_gone and gone[number >> 3] >> (number & 7) & 1)
            if there and sequence not in elsewhere:
                entry = read_copy(message, segment.number, number, sequence)
                if counts:
                    entry.backouts = counts.get(sequence, 0)
                yield entry

    def _page_in(self, lane: Lane) -> None:
        """Read the next block of what is paged. Raises QueueDamaged, OSError; then nothing has changed."""
        place = self._block_with(lane, lane.low)
        if place is None or place[1].first > lane.high:
            raise QueueDamaged(f"the segments lack {lane.paged} messages of priority {lane.priority}")
        segment, block = place
        entries = list(self._entries(segment, block, lane.low, lane.high))
        self.torn = True
        lane.line.extend(entries)
        lane.paged -= len(entries)
        lane.low = block.last + 1
        size = OVERHEAD * len(entries)
        for entry in entries:
            entry.status = READY
            size += len(entry.head) + len(entry.body)
            if self._indexed:
                self._add_to_indexes(entry)
        self.held[lane.persistent] += size
        self.torn = False

    def _pluck(self, entry: Entry) -> None:
        """The message that this is a copy of is in memory from now on, beside what is paged."""
        lane = self._lanes[entry.priority << 1 | entry.persistent]
        lane.paged -= 1
        self._elsewhere[entry.sequence] = entry
        self.held[lane.persistent] += len(entry.head) + len(entry.body) + OVERHEAD

    def keep(self, entry: Entry) -> Entry:
        """Have a message in memory that is ready and may be a copy."""
        if entry.status == COPY:
            self.torn = True
            self._pluck(entry)
            entry.status = READY
            self._lane(entry).given_back[entry.sequence] = entry
            if self._indexed:
                self._add_to_indexes(entry)
            self.torn = False
        return entry

    def page_out(self, most: int) -> bool:
        """Let go of up to `most` entries that segments have, beyond the buffer, the last ones first; True: of so many.

        What is locked or in no segment stays in memory, beside what is paged, and so does what was given back and comes
        before that.
        """
        for lane in self._lanes.values():
            while self.held[lane.persistent] > self.buffers[lane.persistent]:
                entry = lane.next_out(full=True)
                if entry is None:
                    break
                self._let_go(lane, entry)
                most -= 1
                if not most:
                    return True
            if self.held[lane.persistent] > self.buffers[lane.persistent]:
                for entry in lane.back_out(most):
                    del lane.given_back[entry.sequence]
                    self._elsewhere.pop(entry.sequence, None)
                    self._let_go(lane, entry)
                    most -= 1
                if most <= 0:
                    return True
        return False

    def _let_go(self, lane: Lane, entry: Entry) -> None:
        if entry.status == GONE:
            lane.dead -= 1
        elif entry.status == LOCKED:
            lane.dead -= 1
            self._elsewhere[entry.sequence] = entry
        elif entry.sequence in lane.given_back:
            self._elsewhere[entry.sequence] = entry
        elif not entry.segment:
            lane.given_back[entry.sequence] = self._elsewhere[entry.sequence] = entry
        else:
            lane.paged += 1
            entry.status = COPY  # for whoever still holds it
            self.held[lane.persistent] -= len(entry.head) + len(entry.body) + OVERHEAD
            if self._indexed:
                self._remove_from_indexes(entry)

    def _over(self, now: int) -> Iterator[Entry]:
        """Ready entries in memory whose time is over."""
        for entry in self.in_memory():
            if 0 < entry.expires <= now and entry.status == READY:
                yield entry

    def sweep(self, now: int, most: int) -> list[Entry]:
        """Ready entries whose time is over, those read from segments included: `most`, or what a block has more.

        Raises QueueDamaged, OSError.
        """
        found = {e.sequence: e for e in islice(self._over(now), most)}
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
                        there = [cell for cell in self.reader.read(segment, block) if not segment.is_gone(cell[0])]
                        expires = [standing(message).expires for _, _, message in there]
                        segment.put_off(block, min((one for one in expires if one), default=0))
                        for cell, one in zip(there, expires, strict=True):
                            sequence = cell[1]
                            paged = lane.holds_paged(sequence) and sequence not in self._elsewhere
                            if paged and 0 < one <= now:
                                found[sequence] = self.keep(self._entry(segment, block, cell))
        return list(found.values())
