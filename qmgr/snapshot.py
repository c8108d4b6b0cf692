"""What a checkpoint writes of the queues: new messages to segments, what is gone from old ones, and segments rewritten.

What must be as of one LSN is taken under the lock, in proportion to what changed; the files are written without it.
A message that is got in the meantime is written all the same: the log has its get behind the checkpoint's LSN.
"""

import contextlib
import errno
import json
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, compress
from operator import attrgetter
from typing import Any, NamedTuple

import attrs

from logger.disk_errors import NO_FILE, NO_SPACE, RETRYABLE
from qmgr import segments
from qmgr.batch import Batch, Items, still_there
from qmgr.entry import GONE, Entry
from qmgr.message import standing
from qmgr.packed import Packed
from qmgr.queue import Queue
from qmgr.segment_files import no_segment
from qmgr.segment_format import Block, Cell
from qmgr.segment_writer import SegmentWriter
from qmgr.segments import Segment
from qmgr.store import Store, no_segment_number
from recovery.backouts import Backouts
from recovery.errors import QueueDamaged

YIELD_EVERY_MESSAGES = 512  # about 0.5 ms of work; to let others go on costs all of them 0.1 ms each time
CHUNK_MESSAGES = 32  # messages that are written together
PRIORITY, TO_WRITE = attrgetter("priority"), attrgetter("body", "status", "head", "sequence", "expires")
MAX_SURPLUS_BYTES = 32 << 20  # of a queue; beyond that some of its segments are rewritten
NON_PERSISTENT, PERSISTENT = 0, 1
REWRITE_BYTES = 64 << 20  # of messages that one checkpoint rewrites for a queue, about
TRIES = 5  # for messages of one kind: the segment to append to may be missing, and names of new ones be taken


class _Unreadable(Exception):
    """A segment that was to be rewritten can't be read now."""


class _EntryChunk(NamedTuple):
    """New messages of one priority, to be written."""

    priority: int
    items: Sequence[Entry]
    bodies: Sequence[bytes]
    heads: Sequence[bytes]
    sequences: Sequence[int]
    expires: Sequence[int]

    def append_to(self, writer: SegmentWriter) -> Sequence[int]:
        """Append them; return their lengths."""
        return writer.append_each(self.priority, self.sequences, self.expires, self.heads, self.bodies)

    @property
    def work(self) -> int:
        """How much it is to append them, in messages."""
        return len(self.heads)


class _BatchChunk(NamedTuple):
    """A batch to be written."""

    priority: int
    items: Sequence[Batch]  # one
    packed: Packed
    first: int  # its sequence

    def append_to(self, writer: SegmentWriter) -> Sequence[int]:
        writer.append_packed(self.priority, self.first, self.packed.lengths, self.packed.data)
        return self.packed.lengths

    @property
    def work(self) -> int:
        return len(self.packed.lengths) // 4  # none of its messages is looked at


@attrs.define
class _Append:
    """Messages that were appended to a segment."""

    target: Segment
    cell: int  # the first new one
    blocks: list[Block]
    length: int  # of the segment then
    placed: Items  # in the order of their cells
    sizes: "array[int]"  # bytes of their messages


@attrs.define
class _Rewrite:
    """Segments that follow each other, and the one that takes their place."""

    sources: list[Segment]  # as they were
    target: Segment
    places: list["array[int]"]  # for each of them the new cell by the old one; -1: it was gone


class _QueueSnapshot:
    """One changed queue as of the checkpoint's LSN."""

    def __init__(self, queue: Queue, *, ending: bool, rewrite: bool, spare: int | None) -> None:
        """`rewrite`: rewrite segments of which most is gone, where they take much of the disk.

        `spare`: the disk is short, and has so many bytes for rewriting; then they need not take much. None: it is not.
        """
        self.queue = queue
        self.definition = queue.definition
        self.next_sequence = queue.next_sequence
        self.damaged = "" if queue.blocked else queue.damaged
        self.image = queue.image
        self.keep_volatile = ending and queue.definition.non_persistent_class == "HIGH"
        self.backouts = [queue.backed_out[0].copy() if self.keep_volatile else Backouts(), queue.backed_out[1].copy()]
        spill = self.keep_volatile or queue.memory_bytes[0] > queue.buffers[0]
        unwritten = still_there(queue.fresh[0])
        self._fresh = unwritten if spill else [], queue.fresh[1]
        queue.fresh = [] if spill else unwritten, []
        self._removed = queue.begin_snapshot()
        self.segments = [s.copy() for s in queue.segments.values() if len(s) or queue.damaged]
        self.empty = [number for number, s in queue.segments.items() if not (len(s) or queue.damaged)]
        self.plan: list[list[Segment]] = []
        self.more_to_rewrite = False  # there is more to rewrite, which is for the next checkpoint
        self.no_room = False  # for some of it
        if not queue.damaged:
            self._plan_rewrites(rewrite, spare)
        self.rewrites: list[_Rewrite] = []
        self.appends: list[_Append] = []
        self.new_damage: QueueDamaged | None = None
        self.kept_in_memory = False  # there was no room for the non-persistent ones, which can stay in memory

    def _plan_rewrites(self, rewrite: bool, spare: int | None) -> None:
        if segments.surplus(self.segments) <= (MAX_SURPLUS_BYTES if spare is None else 0):
            return
        for kind in (NON_PERSISTENT, PERSISTENT):
            last = spare is not None and not self._fresh[kind]  # nothing is appended to it now, and room is scarce
            groups, more, no_room = _rewrite_groups(self.of_kind(kind), spare, last=last)
            self.more_to_rewrite = self.more_to_rewrite or more or bool(groups and not rewrite)
            self.no_room = self.no_room or no_room
            self.plan += groups if rewrite else []

    def new_segments(self) -> int:
        """How many segments it may make at most."""
        return TRIES * sum(1 for entries in self._fresh if entries) + len(self.plan)

    def of_kind(self, kind: int) -> list[Segment]:
        """The segments of non-persistent (0) or persistent messages (1)."""
        return [segment for segment in self.segments if segment.volatile is (kind == 0)]

    def fresh(self, kind: int) -> Iterator[_EntryChunk | _BatchChunk]:
        """The new messages of one kind, by priority and then in their order. Without the lock.

        A call that takes one meanwhile first puts its body into `removed`, then sets the status GONE, and only then
        empties the entry: so the body is in one of the two.
        """
        items = self._fresh[kind]
        for priority in sorted(set(map(PRIORITY, items))):
            entries: list[Entry] = []
            for item in items:
                if item.priority != priority:
                    continue
                if isinstance(item, Entry):
                    entries.append(item)
                    continue
                packed = item.packed  # read once: who makes entries of the batch takes it away
                if packed is None:
                    entries += item.entries()
                    continue
                yield from self._of_entries(priority, entries)
                entries = []
                yield _BatchChunk(priority, [item], packed, item.sequence)  # none of it is got as it lies meanwhile
            yield from self._of_entries(priority, entries)

    def _of_entries(self, priority: int, entries: Sequence[Entry]) -> Iterator[_EntryChunk]:
        for at in range(0, len(entries), CHUNK_MESSAGES):
            few = entries[at : at + CHUNK_MESSAGES]
            columns: list[Sequence[Any]] = [few, *zip(*map(TO_WRITE, few), strict=True)]
            statuses = columns.pop(2)
            if GONE in statuses:
                said = zip(few, columns[1], statuses, strict=True)
                columns[1] = [self._removed.get(entry) if gone == GONE else body for entry, body, gone in said]
                there = [body is not None for body in columns[1]]
                columns = [list(compress(column, there)) for column in columns]
            if columns[0]:
                yield _EntryChunk(priority, *columns)

    def _still_there(self, kind: int) -> Items:
        return still_there(self._fresh[kind])

    def settle(self, *, gives_back: bool) -> None:
        """All is written, and in its place. The lock is held.

        What had no room is tried again by the next checkpoint, which comes soon if this one or the next `gives_back`
        files.
        """
        queue = self.queue
        queue.end_snapshot()
        queue.kept_surplus = segments.surplus(self.segments)
        # If no rewrite worked, another try would not either.
        if self.more_to_rewrite and (self.rewrites or not self.plan):
            queue.kept_surplus = 0
            queue.changed = True
        elif self.no_room:
            queue.kept_surplus *= not gives_back
            queue.changed = True
        if self.kept_in_memory:
            queue.fresh = self._still_there(0) + queue.fresh[0], queue.fresh[1]
        for copy in self.segments:
            queue.segments[copy.number].described_by(copy)

    def line(self) -> bytes:
        """The line of the catalogue."""
        fields = {
            "definition": attrs.asdict(self.definition, recurse=False),
            "next": self.next_sequence,
            "backouts": [counts.text() for counts in self.backouts],
            "damaged": self.damaged,
            "image": self.image,
        }
        kept = [segment for segment in self.segments if self.keep_volatile or not segment.volatile]
        described = b", ".join([segment.describe() for segment in kept])
        return json.dumps(fields).encode()[:-1] + b', "segments": [' + described + b"]}"

    def give_up(self) -> None:
        """Nothing was written: all is as it was. The lock is held."""
        queue = self.queue
        queue.changed = True
        queue.end_snapshot()
        queue.fresh = self._still_there(0) + queue.fresh[0], self._still_there(1) + queue.fresh[1]
        for segment in queue.segments.values():
            segment.sealed = True  # a sync may have failed: nothing is ever appended to it again


def _rewrite_groups(live: list[Segment], spare: int | None, *, last: bool) -> tuple[list[list[Segment]], bool, bool]:
    """(groups of segments to rewrite, whether there are more than one checkpoint should rewrite, or has room for).

    The segments, all of one kind, of which at least half is gone. Each group is of neighbours, and becomes one new
    segment. With `spare` only where that is room for the new one. `last`: also the one that is appended to.
    """
    if not segments.surplus(live):
        return [], False, False
    most = segments.MAX_SEGMENT_BYTES if spare is None else min(spare, segments.MAX_SEGMENT_BYTES)
    groups: list[list[Segment]] = []
    size = total = 0  # of the last group, and of all
    before = None
    no_room = False
    for segment in live if last or _is_full(live[-1]) else live[:-1]:
        more = segment.live_bytes
        gone = 2 * more <= segment.length
        if gone and spare is not None and more > spare:
            no_room = True
        elif gone:
            if total >= REWRITE_BYTES:
                return groups, True, no_room
            if not groups or groups[-1][-1] is not before or size + more > most:
                groups.append([])
                size = 0
            groups[-1].append(segment)
            size += more
            total += more
        before = segment
    return groups, False, no_room


def _is_full(segment: Segment) -> bool:
    """Nothing is appended to it any more."""
    return segment.sealed or segment.length >= segments.MAX_SEGMENT_BYTES


class StateSnapshot:
    """The state as of one LSN, to be written while work goes on."""

    def __init__(self, state: Store) -> None:
        self._state = state
        first: dict[str, Any] = {"qmgr": attrs.asdict(state.qmgr), "catalog": state.catalog}
        if state.aliases:
            first["aliases"] = [attrs.asdict(alias) for alias in state.aliases.values()]
        if state.ending:  # their outcomes are known as long as messages of theirs are kept
            first["unlogged"] = [state.forgotten, *state.unlogged]
        self._first_line = json.dumps(first).encode()
        self._changed: dict[int, _QueueSnapshot] = {}
        self._lines: dict[int, bytes] = {}
        self._order = list(state.by_id.values())
        room = state.spare_bytes()
        spare = room if state.scarce or room < segments.MAX_SEGMENT_BYTES else None
        for queue in self._order:
            if queue.changed or (spare is not None and segments.surplus(queue.segments.values())):
                queue.changed = False
                self._changed[queue.id] = _QueueSnapshot(
                    queue, ending=state.ending, rewrite=not state.gave_up, spare=spare
                )
            else:
                self._lines[queue.id] = queue.catalogue_line
        self._retired, state.retired = state.retired, []
        self._freed, state.retired_bytes = state.retired_bytes, 0  # of the files that are retired and not small
        self._numbers = iter(state.take_numbers(sum(one.new_segments() for one in self._changed.values())))

    # ---- writing, without the lock

    def write(self) -> Iterator[bytes]:
        yield self._first_line
        if self._changed:
            self._state.sync_names()
        for kind in (PERSISTENT, NON_PERSISTENT):  # what can stay in memory takes no room from what can't
            for snapshot in self._changed.values():
                self._write_fresh(snapshot, kind)
        for queue in self._order:  # what could be left out comes last, so that it takes no room from what can't
            snapshot_or_none = self._changed.get(queue.id)
            if snapshot_or_none is not None:
                for group in snapshot_or_none.plan:
                    self._rewrite(snapshot_or_none, group)
                self._lines[queue.id] = snapshot_or_none.line()
            yield self._lines[queue.id]

    def _write_fresh(self, snapshot: _QueueSnapshot, kind: int) -> None:
        """Write the queue's new messages of one kind to a segment."""
        fresh = snapshot.fresh(kind)
        first = next(fresh, None)
        if first is None:
            return
        may_stay = kind == NON_PERSISTENT and not snapshot.keep_volatile
        if may_stay and not self._state.take_room(snapshot.queue.memory_bytes[0], False):
            snapshot.kept_in_memory = True
            return
        target = self._target(snapshot, kind)
        new: Iterator[_EntryChunk | _BatchChunk] = chain([first], fresh)
        for more in reversed(range(TRIES)):
            try:
                self._append(snapshot, target, new)
                return
            except OSError as exc:
                if may_stay and exc.errno in NO_SPACE:
                    snapshot.kept_in_memory = True
                    return
                if exc.errno not in NO_FILE or not more:
                    raise
                if target.cells:  # else the segment is new, and what has its name is not the queue's: no damage
                    snapshot.new_damage = no_segment(exc.filename, exc)
                    if exc.errno == errno.ENOTDIR:  # who writes the new one sets aside what lies there
                        snapshot.new_damage.path = ""
            target, new = self._new(kind), snapshot.fresh(kind)

    def _target(self, snapshot: _QueueSnapshot, kind: int) -> Segment:
        """The segment that new messages are appended to."""
        there = snapshot.of_kind(kind)
        if not there or _is_full(there[-1]) or snapshot.damaged:
            return self._new(kind)
        return there[-1]

    def _new(self, kind: int) -> Segment:
        number = next(self._numbers, None)
        if number is None:
            raise no_segment_number()
        return Segment(number, volatile=kind == NON_PERSISTENT)

    def _append(self, snapshot: _QueueSnapshot, target: Segment, new: Iterable[_EntryChunk | _BatchChunk]) -> None:
        writer = self._state.writer(snapshot.queue, target)
        placed: Items = []
        sizes = array("I")
        work = 0
        try:
            for some in new:
                sizes.extend(some.append_to(writer))
                placed += some.items
                work += some.work
                if work >= YIELD_EVERY_MESSAGES:
                    work = 0
                    self._state.give_way()
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        if target not in snapshot.segments:
            snapshot.segments.append(target)
        snapshot.appends.append(_Append(target, target.cells, writer.blocks, writer.length, placed, sizes))
        target.extend(writer.blocks, writer.length)

    def _rewrite(self, snapshot: _QueueSnapshot, group: list[Segment]) -> None:
        """Write what is there of these segments to a new one. Where that is not possible they stay."""
        if not self._state.take_room(sum(segment.live_bytes for segment in group), True):
            snapshot.no_room = True
            return
        number = next(self._numbers, None)
        if number is None:
            return
        target = Segment(number, volatile=group[0].volatile)
        try:
            writer = self._state.writer(snapshot.queue, target)
        except OSError as exc:
            if exc.errno not in NO_FILE:
                raise
            return
        try:
            places = [self._copy(snapshot.queue, source, writer) for source in group]
            writer.finish()
        except _Unreadable:
            writer.abandon()
        except QueueDamaged as exc:
            writer.abandon()
            snapshot.new_damage = exc
        except OSError as exc:
            writer.abandon()
            if exc.errno not in NO_SPACE:
                raise
        except BaseException:
            writer.abandon()
            raise
        else:
            target.extend(writer.blocks, writer.length)
            snapshot.rewrites.append(_Rewrite(group, target, places))
            snapshot.segments[snapshot.segments.index(group[0])] = target
            snapshot.segments = [segment for segment in snapshot.segments if segment not in group]

    def _copy(self, queue: Queue, source: Segment, writer: SegmentWriter) -> "array[int]":
        """Append what is there of a segment; the new cells by the old ones."""
        places = array("i", [-1]) * source.cells
        done = 0
        for priority, block in source.live_blocks():
            for number, sequence, message in self._read(queue, source, block):
                if not source.is_gone(number):
                    places[number] = writer.append(sequence, priority, standing(message).expires, message)
                    done += 1
                    if not done % YIELD_EVERY_MESSAGES:
                        self._state.give_way()
        return places

    def _read(self, queue: Queue, source: Segment, block: Block) -> list[Cell]:
        """The cells of a block. What can't be read now is no reason for a checkpoint to fail."""
        try:
            return queue.reader.read(source, block)
        except OSError as exc:
            raise _Unreadable from exc

    # ---- the checkpoint is complete, or failed

    def finish(self, lock: threading.Lock) -> None:
        self._state.gave_up = False
        rewritten = any(snapshot.rewrites for snapshot in self._changed.values())
        gives_back = rewritten or self._freed > 0 or self._state.doomed_bytes > 0
        for snapshot in self._changed.values():
            queue = snapshot.queue
            with lock:
                queue.catalogue_line = self._lines[queue.id]
                for rewrite in snapshot.rewrites:
                    self._replace(queue, rewrite)
                for number in snapshot.empty:
                    self._drop(queue, number)
            for append in snapshot.appends:
                self._place(queue, append, lock)
            more = True
            while more:
                with lock:
                    more = queue.page_out(2 * YIELD_EVERY_MESSAGES, partial(self._locked, queue))
                if more:
                    self._state.give_way()
            with lock:
                snapshot.settle(gives_back=gives_back)
                if snapshot.new_damage is not None and not queue.damaged:
                    self._state.damage(queue, snapshot.new_damage)
                if queue.deleted:
                    self._state.retired += ((queue.name, number) for number in queue.segments)
                    self._state.retired_bytes += segments.large_bytes(queue.segments.values())
        with lock:
            self._state.give_back(list(self._numbers))

    def _replace(self, queue: Queue, rewrite: _Rewrite) -> None:
        """Let the new segment take the place of the old ones. The lock is held."""
        new = rewrite.target.copy()
        moved = {source.number: places for source, places in zip(rewrite.sources, rewrite.places, strict=True)}
        for source in rewrite.sources:
            new.mark_gone_since(queue.segments[source.number], source, moved[source.number])
        for entry in (*queue.in_memory(), *self._locked(queue)):
            if entry.segment in moved and entry.status != GONE:
                entry.cell = moved[entry.segment][entry.cell]
                entry.segment = new.number
        queue.moved()
        first = rewrite.sources[0].number
        queue.segments = {
            (new.number if n == first else n): (new if n == first else s) for n, s in queue.segments.items()
        }
        queue.drop(first)
        self._retired.append((queue.name, first))
        self._freed += segments.large_bytes(rewrite.sources[:1])
        for source in rewrite.sources[1:]:
            self._drop(queue, source.number)

    def _locked(self, queue: Queue) -> Iterator[Entry]:
        """What units of work have got from the queue. The lock is held."""
        return (entry for unit in self._state.uows for other, entry in unit.gets if other is queue)

    def _drop(self, queue: Queue, number: int) -> None:
        """The checkpoint does not refer to the segment any more."""
        self._freed += segments.large_bytes([queue.segments.pop(number)])
        queue.drop(number)
        self._retired.append((queue.name, number))

    def _place(self, queue: Queue, append: _Append, lock: threading.Lock) -> None:
        """Give the messages that were appended their cells, a few at a time; then the blocks can be read."""
        target, number, items = append.target, append.cell, iter(append.placed)
        with lock:
            new = Segment(target.number, volatile=target.volatile)
            segment = queue.segments.setdefault(target.number, new)
            segment.make_room(len(append.sizes))
        while number < append.cell + len(append.sizes):
            with lock:
                number = self._place_some(queue, append, items, segment, number)
            self._state.give_way()
        with lock:
            queue.extend(segment, append.blocks, append.length)

    def _place_some(
        self, queue: Queue, append: _Append, items: Iterator[Entry | Batch], segment: Segment, number: int
    ) -> int:
        """Give the next of them their cells, from `number` on; return the cell that follows. The lock is held."""
        work = 0
        while work < 2 * YIELD_EVERY_MESSAGES and (item := next(items, None)) is not None:
            if isinstance(item, Entry):
                entries: Sequence[Entry] = (item,)
            elif item.made is not None:
                entries = item.made
            else:
                queue.place(item, segment.number, number)
                number += item.count
                work += 1
                continue
            for entry in entries:
                if entry.status == GONE:
                    segment.mark_gone(number, append.sizes[number - append.cell])
                else:
                    entry.segment, entry.cell = segment.number, number
                number += 1
            work += len(entries)
        return number

    def give_up(self, *, named: bool) -> None:
        state = self._state
        state.gave_up = True
        state.give_back(list(self._numbers))
        state.retired = [r for r in self._retired if r not in state.retired] + state.retired
        state.retired_bytes += self._freed
        for snapshot in self._changed.values():
            snapshot.give_up()
            queue = snapshot.queue
            targets = [append.target for append in snapshot.appends] + [one.target for one in snapshot.rewrites]
            for number in [target.number for target in targets if target.number not in queue.segments]:
                if named:
                    state.retired.append((queue.name, number))
                else:
                    with contextlib.suppress(OSError):  # nothing knows of it, and the disk may be full
                        state.fence()
                        state.disk.unlink(state.path_of(queue.name, number))

    def clean_up(self) -> None:
        state = self._state
        state.doomed_bytes = self._freed
        for name, number in state.doom(self._retired):
            path = state.path_of(name, number)
            try:
                state.remove(path)
            except OSError as exc:  # the checkpoint is complete, and the file can go with a later one
                if exc.errno not in RETRYABLE:
                    raise
                state.doomed.append((name, number))
