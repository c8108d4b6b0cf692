"""One queue: priority, then the order of commit; what can be got, what is locked, what is gone.

There are two lanes for each priority, one for persistent messages and one for the others. The caller's lock guards
every method.
"""

from collections.abc import Sequence

from qmgr.batch import Batch, Items, MessageRun, still_there, weight
from qmgr.due import Waiters
from qmgr.entry import COPY, GONE, LOCKED, NOWHERE, OVERHEAD, READY, Entry
from qmgr.finding import Finding
from qmgr.front import SHARE, Front, Part, part_of_batch, part_of_block
from qmgr.ids import Arrays
from qmgr.lane import Lane
from qmgr.message import describe
from qmgr.objects import QmgrDefinition, QueueDefinition, is_event_queue
from qmgr.opened import LastOpened, Opened, open_block
from qmgr.segment_reader import SegmentReader
from recovery.image import ImagePlace

HIGH, LOW, FULL = 1, 2, 4  # depth events that a queue waits for


class Queue(Finding):
    """A local queue and its messages."""

    __slots__ = (
        *("__dict__", "__weakref__", "_default_buffers", "_events", "_foremost", "_foremost_of", "_opened", "_qmgr"),
        *("armed", "bad_file", "blocked", "catalogue_line", "changed", "damaged", "default_descriptor", "definition"),
        *("deleted", "fresh", "gets_unchecked", "high_mark", "id", "image", "imaging", "kept_surplus", "last_event"),
        *("last_get", "last_put", "low_mark", "max_length", "removed", "stuck", "unchecked_depth", "waiters"),
    )

    def __init__(
        self,
        definition: QueueDefinition,
        reader: SegmentReader,
        arrays: Arrays,
        opened: LastOpened,
        buffers: tuple[int, int],
    ) -> None:
        """`buffers`: bytes of non-persistent and of persistent messages kept in memory, if the definition is silent."""
        super().__init__(definition.name, reader, arrays, buffers)
        self.id = definition.id
        self.last_put = self.last_get = 0  # when: microseconds since 1970-01-01 UTC; 0: not known
        self.damaged = ""  # why nothing can be done with it; empty when all is well
        self.blocked = False  # `damaged` only keeps callers away, while it is built again
        self.bad_file = ""  # the file that made it damaged
        self.deleted = False
        self.waiters = Waiters()
        self.fresh: tuple[Items, Items] = [], []  # in no segment yet: non-persistent, and persistent
        self.removed: dict[Entry, bytes] | None = None  # while a checkpoint writes: bodies of what is taken meanwhile
        self.kept_surplus = 0  # surplus of its segments that the last checkpoint did not give back
        self.image: ImagePlace | None = None  # the media image to recover from
        self.imaging = 0  # LSN of the beginning of the last image, complete or not
        self.changed = True  # since the last checkpoint
        self.catalogue_line = b""  # what the last checkpoint says of the queue
        self._default_buffers = buffers
        self._opened = opened
        self.armed = self._events = 0  # depth events: those that it waits for, those that are enabled
        self.last_event: tuple[int, int, int] | None = None  # depth event: when, the next sequence and depth then
        self.stuck: object = None  # the definition and the DEADQ when it was last said that messages stay here
        self._qmgr = QmgrDefinition()
        self._foremost: Lane | None = None
        self._take_definition(definition)

    def _take_definition(self, definition: QueueDefinition) -> None:
        """Take attributes, and work out what every put and get looks at."""
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
        descriptor = describe(definition.default_priority, definition.default_persistence)
        # What a put without options asks for, if it is the same for all.
        self.default_descriptor = descriptor if definition.expiry_cap is None else None
        size = definition.buffer_size
        self.buffers = self._default_buffers if size is None else (size, size)
        self._fifo = definition.delivery_sequence == "FIFO"
        self._foremost_of = -1  # which lanes had messages when `_foremost` was found

    def arm(self, events: int) -> None:
        """Wait for these depth events. Sets the limits within which puts and gets need no closer look."""
        self.armed = events
        shut = bool(self.damaged) or self.deleted
        self.unchecked_depth = self.definition.max_depth if self.definition.put_enabled and not shut else -1
        if events & HIGH:
            self.unchecked_depth = min(self.unchecked_depth, self.high_mark - 1)  # from there on a put looks closer
        self.gets_unchecked = self.definition.get_enabled and not shut and not events & LOW

    def take_qmgr_attributes(self, qmgr: QmgrDefinition) -> None:
        """Take what the attributes of the queue manager say of every queue."""
        self._qmgr = qmgr
        self._take_definition(self.definition)

    def redefine(self, definition: QueueDefinition) -> None:
        """Take new attributes."""
        self._take_definition(definition)
        self.changed = True
        self._by_id.clear()  # they are in the order of delivery, which may be another one now
        self._indexed = self._by_sequence is not None
        self._group_index = None

    def retire(self) -> None:
        """It is deleted; whoever still holds it finds that out."""
        self.deleted = True
        self.arm(0)
        self.waiters.wake_all()
        for number in self.segments:
            self.drop(number)

    def drop(self, segment: int) -> None:
        super().drop(segment)
        self._opened.drop(self.id)

    # ---- damage

    def damage(self, why: str) -> None:
        """A segment can't be believed: nothing more is put or got."""
        self.damaged = why
        self.changed = True
        self.arm(self.armed)
        self.waiters.wake_all()

    def block(self, why: str) -> None:
        """Nothing more is put or got, for now; checkpoints do not record it."""
        self.blocked = True  # first: an interrupt may strike
        self.damage(why)

    def unblock(self) -> None:
        """Undo `block`: it was not damaged after all."""
        self.damaged = ""
        self.blocked = False
        self.changed = True
        self._take_definition(self.definition)

    # ---- changing; only `State.apply` calls these

    def add(self, entry: Entry, sequence: int, lsn: int) -> None:
        """A message becomes visible; it was counted in `depth` when it was put."""
        entry.sequence = sequence
        entry.lsn = lsn
        if sequence >= self.next_sequence:
            self.next_sequence = sequence + 1
        kind = entry.persistent
        number = entry.priority << 1 | kind
        self._occupied |= 1 << number
        lane = self._lanes.get(number) or self._new_lane(number)
        if lane.behind:
            lane.add([entry])
        else:
            lane.end.append(entry)
        self.memory_bytes[kind] += len(entry.head) + len(entry.body) + OVERHEAD
        self.fresh[kind].append(entry)
        self.changed = True
        if entry.expires:
            self.expiring += 1
        if self._indexed:
            self._add_to_indexes(entry)
        if self._group_index is not None:
            self._can_be_got(entry)
        if self.waiters.line:
            self.waiters.wake_one(entry.head)

    def add_run(self, run: MessageRun, sequence: int, lsn: int) -> None:
        """The same for a run of messages, with sequences from `sequence` on."""
        if self._indexed or self._group_index is not None or self.waiters.line:
            for place, entry in enumerate(run.entries(), sequence):
                self.add(entry, place, lsn)
            return
        count, kind = len(run.heads), run.persistent
        self.next_sequence = max(self.next_sequence, sequence + count)
        lane = self._lane(run)
        for some in run.in_places(sequence, lsn):
            if isinstance(some, Batch):
                self.memory_bytes[kind] += some.weight
                lane.behind.append(some)
                self.fresh[kind].append(some)
            else:
                self.memory_bytes[kind] += weight(some)
                lane.add(some)
                self.fresh[kind].extend(some)
        if run.expiring:
            self.expiring += count
        self.changed = True

    def lock(self, entry: Entry) -> None:
        """A unit of work gets the message: nobody else sees it."""
        if entry.status == COPY:
            self._unpage(entry)
        entry.status = LOCKED
        if self._indexed:
            self._remove_from_indexes(entry)
        if self._group_index is not None:
            self._can_not_be_got(entry)
        self.depth -= 1
        self.uncommitted += 1
        self._lanes[entry.priority << 1 | entry.persistent].mark_taken(entry, self._resident)

    def lock_next(self) -> Entry | None:
        """The quick way to `lock` what `first` finds: a persistent message at the front of a line.

        Returns None where it is not such a one, or more has to be looked at: nothing was done.
        """
        lane = self._foremost if self._foremost_of == self._occupied else self._find_foremost()
        if lane is None:
            return None
        line = lane.line
        if not line or lane.given_back or self._indexed or self._group_index is not None or not self.gets_unchecked:
            return None
        entry = line[0]
        if entry.status != READY or entry.expires:
            return None
        line.popleft()
        entry.status = LOCKED
        self.depth -= 1
        self.uncommitted += 1
        return entry

    def unlock_next(self, entry: Entry) -> None:
        """Undo `lock_next`, whose message was not taken after all. The lock has been held since then."""
        entry.status = READY
        self._lanes[entry.priority << 1 | entry.persistent].line.appendleft(entry)
        self.depth += 1
        self.uncommitted -= 1

    def _find_foremost(self) -> Lane | None:
        """The lane that has the queue's next message, if that is persistent and no other lane competes; else None."""
        occupied = self._occupied
        number = occupied.bit_length() - 1
        others = 0
        if number > 0:
            others = occupied ^ 1 << number if self._fifo else occupied >> number - 1 & 1
        self._foremost_of = -1  # until both are so: an interrupt may strike in between
        self._foremost = self._lanes[number] if number & 1 and number > 0 and not others else None
        self._foremost_of = occupied
        return self._foremost

    def give_back(self, entry: Entry, *, count: bool) -> None:
        """The unit of work that had locked it was backed out; `count` it."""
        entry.status = READY
        self.depth += 1
        self.uncommitted -= 1
        self._lane(entry).given_back[entry.sequence] = entry
        if self._indexed:
            self._add_to_indexes(entry)
        if self._group_index is not None:
            self._can_be_got(entry)
        if count:
            entry.backouts += 1
            self.backed_out[entry.persistent].note(entry.sequence, entry.backouts)
            self.changed = True
        if self.waiters.line:
            self.waiters.wake_one(entry.head)

    def take(self, entry: Entry) -> None:
        """A ready message is got outside a unit of work, or its time is over."""
        if self.removed is not None and not entry.segment and entry.sequence < self.snapshot_before:
            self.removed[entry] = entry.body
        if entry.status == COPY:
            self._take_paged(entry)
            return
        entry.status = GONE
        if self._group_index is not None:
            self._can_not_be_got(entry)
        self.depth -= 1
        self._lanes[entry.priority << 1 | entry.persistent].mark_taken(entry, self._resident)
        self._forget(entry)

    def _take_paged(self, entry: Entry) -> None:
        """As `take`, for a message that is in a segment only."""
        entry.status = GONE
        if self._group_index is not None:
            self._can_not_be_got(entry)
        self.depth -= 1
        self._lanes[entry.priority << 1 | entry.persistent].paged -= 1
        self._forget_paged(entry)

    def front(self, count: int) -> Front | None:
        """The next `count` messages as they lie: in the line, in blocks, in batches. None: more has to be looked at.

        Raises QueueDamaged, OSError.
        """
        lane = self._foremost if self._foremost_of == self._occupied else self._find_foremost()
        if lane is None or lane.given_back or self._indexed or self._group_index is not None:
            return None
        line = lane.line
        if len(line) >= count or any(entry.status != READY or entry.expires for entry in line):
            return None
        paged = min(count - len(line), lane.paged)
        batches = self._batches(lane, count - len(line) - paged)
        if batches is None:
            return None
        blocks: list[Part] = []
        low = lane.low
        while paged:
            block = self._open(lane, low, count)
            part = part_of_block(block, low, paged) if block is not None else None
            if part is None or not self._is_plain(part.sequences):
                return None
            blocks.append(part)
            paged -= len(part.heads)
            low = part.sequences[-1] + 1
        return Front(list(line), blocks + batches)

    def _open(self, lane: Lane, low: int, count: int) -> Opened | None:
        """The block of the lane's next paged message, whose sequence is `low` or a later one.

        None: its messages can't be taken as they lie, or it is not worth reading for so few.
        """
        opened = self._opened.of(self.id)
        if opened is not None and self._is_next(opened, lane, low):
            return opened if opened.block.last <= lane.high else None
        place = self._block_with(lane, low)
        if place is None or place[1].last > lane.high or place[1].expires or count * SHARE < place[1].cells:
            return None
        segment, block = place
        return open_block(self.reader.read_block(segment, block, leave_open=True), segment, block)

    def _is_next(self, opened: Opened, lane: Lane, low: int) -> bool:
        """Does the lane's message with this sequence belong to that block, still?"""
        segment, block = opened.segment, opened.block
        if block.priority != lane.priority or self.segments.get(segment.number) is not segment:
            return False
        return block.first <= low <= block.last

    def _batches(self, lane: Lane, count: int) -> list[Part] | None:
        """The first `count` messages behind all that is in the line or paged, if batches have them."""
        if not count:
            return []
        parts: list[Part] = []
        for batch in () if lane.tail else lane.behind:
            part = part_of_batch(batch, count) if isinstance(batch, Batch) and not self._is_written(batch) else None
            if part is None:
                return None
            parts.append(part)
            count -= len(part.heads)
            if not count:
                return parts
        return None

    def _is_written(self, batch: Batch) -> bool:
        """Does a checkpoint write the batch just now?"""
        return self.removed is not None and not batch.segment and batch.sequence < self.snapshot_before

    def _is_plain(self, sequences: Sequence[int]) -> bool:
        """Is none of these paged messages in memory as well, and was none backed out?"""
        backed_out = self.backed_out[1]
        if backed_out and any(map(backed_out.get, sequences)):
            return False
        return self._resident.keys().isdisjoint(sequences) if self._resident else True

    def take_front(self, front: Front) -> None:
        """What `front` has found is got outside a unit of work."""
        if front.entries:
            self.take_each(front.entries)
        for part in front.parts:
            count, batch = len(part.heads), part.batch
            lane = self._foremost
            assert lane is not None, "`front` has found it"
            if batch is None:
                opened = part.block
                assert opened is not None, "they are paged"
                opened.segment.mark_gone_run(part.cell, count, part.size)
                lane.paged -= count
                lane.low = part.sequences[-1] + 1
                if lane.low <= opened.block.last:
                    self._opened.keep(self.id, opened)
                else:
                    self._opened.drop(self.id)
            else:
                cell = batch.cell
                size = batch.drop(count)
                if batch.segment:
                    self.segments[batch.segment].mark_gone_run(cell, count, size - OVERHEAD * count)
                    lane.placed -= size
                if not batch.count:
                    lane.behind.popleft()
                self.memory_bytes[1] -= size
            self.depth -= count
        self.changed = True

    def take_each(self, entries: list[Entry]) -> None:
        """As `take`, for several messages."""
        if self._group_index is not None or self.removed is not None:
            for entry in entries:
                self.take(entry)
            return
        lanes = self._lanes
        for entry in entries:
            if entry.status == COPY:
                self._unpage(entry)
            entry.status = GONE
            lane = lanes[entry.priority << 1 | entry.persistent]
            if lane.line and lane.line[0] is entry and not lane.given_back:
                lane.line.popleft()
            else:
                lane.mark_taken(entry, self._resident)
        self.depth -= len(entries)
        self._forget_each(entries)

    def remove(self, entry: Entry) -> None:
        """A locked message is gone for good."""
        if self.removed is not None and not entry.segment and entry.sequence < self.snapshot_before:
            self.removed[entry] = entry.body
        entry.status = GONE
        self.uncommitted -= 1
        self._forget(entry)

    def remove_each(self, entries: list[Entry]) -> None:
        """The same for several messages."""
        if self.removed is not None:
            for entry in entries:
                self.remove(entry)
            return
        for entry in entries:
            entry.status = GONE
        self.uncommitted -= len(entries)
        self._forget_each(entries)

    def begin_snapshot(self) -> dict[Entry, bytes]:
        """A checkpoint writes what is there now; return the mapping for the bodies of what is taken meanwhile."""
        self.snapshot_before = self.next_sequence
        for lane in self._lanes.values():
            lane.unpacked.clear()
        self.removed = {}
        return self.removed

    def end_snapshot(self) -> None:
        self.removed = None
        self.snapshot_before = 0

    def prune_fresh(self) -> int:
        """Forget what came since the last checkpoint and is gone; return the bytes of what is still there."""
        for items in self.fresh:
            items[:] = still_there(items)
        return sum(map(weight, self.fresh))

    def _forget(self, entry: Entry) -> None:
        self.memory_bytes[entry.persistent] -= len(entry.head) + len(entry.body) + OVERHEAD
        if self._indexed:
            self._remove_from_indexes(entry)
        if self._resident:
            self._resident.pop(entry.sequence, None)
            if entry.segment:
                self._resident_cells.discard((entry.segment, entry.cell))
        self._forget_paged(entry)

    def _forget_paged(self, entry: Entry) -> None:
        """What the message leaves behind outside of memory: in its segment, and in what the next checkpoint says."""
        self.changed = True
        if entry.expires:
            self.expiring -= 1
        if entry.backouts:
            self.backed_out[entry.persistent].note(entry.sequence, 0)
        if entry.segment:
            self.segments[entry.segment].mark_gone(entry.cell, len(entry.head) + len(entry.body))
        entry.body = b""

    def _forget_each(self, entries: list[Entry]) -> None:
        if self._indexed or self._resident:
            for entry in entries:
                self._forget(entry)
            return
        held, number = self.memory_bytes, NOWHERE
        cells: list[int] = []
        sizes: list[int] = []
        for entry in entries:
            size = len(entry.head) + len(entry.body)
            held[entry.persistent] -= size + OVERHEAD
            if entry.expires:
                self.expiring -= 1
            if entry.backouts:
                self.backed_out[entry.persistent].note(entry.sequence, 0)
            if entry.segment:
                if entry.segment != number:
                    self._mark_gone(number, cells, sizes)
                    number = entry.segment
                cells.append(entry.cell)
                sizes.append(size)
            entry.body = b""
        self._mark_gone(number, cells, sizes)
        self.changed = True

    def _mark_gone(self, segment: int, cells: list[int], sizes: list[int]) -> None:
        """Mark these cells of a segment as gone, and empty the lists."""
        if cells:
            self.segments[segment].mark_gone_each(cells, sum(sizes))
            cells.clear()
            sizes.clear()
