"""A checkpoint's snapshot of all queues: written while work goes on, and put in its place once the checkpoint counts.

What must be as of one LSN is taken under the lock (`queue_snapshot.py`); the files are written without it.
A message that is got in the meantime is written all the same: the log has its get behind the checkpoint's LSN.
"""

import contextlib
import errno
import json
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import attrs

from logger.disk_errors import NO_FILE, NO_SPACE, RETRYABLE
from qmgr import segments
from qmgr.batch import Batch, Items
from qmgr.entry import GONE, Entry
from qmgr.forcing import Forcing
from qmgr.message import standing
from qmgr.queue import Queue
from qmgr.queue_snapshot import (
    NON_PERSISTENT,
    PERSISTENT,
    TRIES,
    Append,
    BatchChunk,
    EntryChunk,
    QueueSnapshot,
    Rewrite,
    is_full,
)
from qmgr.segment_files import no_segment
from qmgr.segment_format import Block, Cell
from qmgr.segment_writer import SegmentWriter
from qmgr.segments import Segment
from qmgr.store import Store, no_segment_number
from recovery.errors import QueueDamaged

YIELD_EVERY_MESSAGES = 512  # about 0.5 ms of work; to let others go on costs all of them 0.1 ms each time


class _Unreadable(Exception):
    """A segment that was to be rewritten can't be read now."""


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
        self._changed: dict[int, QueueSnapshot] = {}
        self._lines: dict[int, bytes] = {}
        self._order = list(state.by_id.values())
        room = state.spare_bytes()
        spare = room if state.scarce or room < segments.MAX_SEGMENT_BYTES else None
        for queue in self._order:
            if queue.changed or (spare is not None and segments.surplus(queue.segments.values())):
                queue.changed = False
                self._changed[queue.id] = QueueSnapshot(
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
            self._state.make_directories(one.queue for one in self._changed.values() if one.writes(PERSISTENT))
        self._write_all_fresh()
        for queue in self._order:  # what could be left out comes last, so that it takes no room from what can't
            changed = self._changed.get(queue.id)
            if changed is not None:
                for group in changed.plan:
                    self._rewrite(changed, group)
                self._lines[queue.id] = changed.line()
            yield self._lines[queue.id]

    def _write_all_fresh(self) -> None:
        """Write the new messages of all queues, durably."""
        forcing = Forcing(self._state.disk)
        try:
            for kind in (PERSISTENT, NON_PERSISTENT):  # what can stay in memory takes no room from what can't
                for snapshot in self._changed.values():
                    self._write_fresh(snapshot, kind, forcing)
                forcing.force()
                while forcing.lost:
                    self._write_anew(forcing.lost.pop(), forcing)
        except BaseException:
            forcing.abandon()
            raise

    def _write_anew(self, segment: Segment, forcing: Forcing) -> None:
        """The directory of a new segment is gone: what was in it goes to another one, in a directory made anew."""
        for snapshot in self._changed.values():
            if segment in snapshot.segments:
                snapshot.segments.remove(segment)
                snapshot.appends = [append for append in snapshot.appends if append.target is not segment]
                self._write_fresh(snapshot, PERSISTENT, forcing)
        forcing.force()

    def _write_fresh(self, snapshot: QueueSnapshot, kind: int, forcing: Forcing) -> None:
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
        new: Iterator[EntryChunk | BatchChunk] = chain([first], fresh)
        for more in reversed(range(TRIES)):
            try:
                writer = self._append(snapshot, target, new, forcing)
                break
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
        if kind == PERSISTENT:
            forcing.add(writer)

    def _target(self, snapshot: QueueSnapshot, kind: int) -> Segment:
        """The segment that new messages are appended to."""
        there = snapshot.of_kind(kind)
        if not there or is_full(there[-1]) or snapshot.damaged:
            return self._new(kind)
        return there[-1]

    def _new(self, kind: int) -> Segment:
        number = next(self._numbers, None)
        if number is None:
            raise no_segment_number()
        return Segment(number, volatile=kind == NON_PERSISTENT)

    def _append(
        self, snapshot: QueueSnapshot, target: Segment, new: Iterable[EntryChunk | BatchChunk], forcing: Forcing
    ) -> SegmentWriter:
        """Write new messages to a segment; persistent ones are for the caller to force."""
        writer = forcing.opened(partial(self._state.writer, snapshot.queue, target))
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
            writer.write_rest()
            if target.volatile:  # they may stay in memory where that fails
                writer.force()
        except BaseException:
            writer.abandon()
            raise
        if target not in snapshot.segments:
            snapshot.segments.append(target)
        snapshot.appends.append(Append(target, target.cells, writer.blocks, writer.length, placed, sizes))
        target.extend(writer.blocks, writer.length)
        return writer

    def _rewrite(self, snapshot: QueueSnapshot, group: list[Segment]) -> None:
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
            writer.write_rest()
            writer.force()
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
            snapshot.rewrites.append(Rewrite(group, target, places))
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

    def _replace(self, queue: Queue, rewrite: Rewrite) -> None:
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

    def _place(self, queue: Queue, append: Append, lock: threading.Lock) -> None:
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
        self, queue: Queue, append: Append, items: Iterator[Entry | Batch], segment: Segment, number: int
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
