"""State as recovery's ResourceManager: what a checkpoint holds of it, and how it is loaded again.

A checkpoint appends to each changed queue's segments the persistent messages that came since the last one and are
still there, and says which older ones are gone. What must be as of one LSN is copied under the lock, in proportion to
what changed; the files are written without it.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from logger.disk import Disk
from qmgr.objects import decode_definition, mangle
from qmgr.queue import GONE, Entry, Queue, read_entry
from qmgr.segments import HEADER, LARGEST, Segment, SegmentWriter, from_description, read_cells, segment_path
from qmgr.state import State
from recovery.errors import QueueDamaged


class Resource(State):
    """The queues and units of work of one queue manager, with their segments below `directory`."""

    def __init__(self, disk: Disk, directory: str, log_id: bytes, give_way: Callable[[], None]) -> None:
        """`give_way()` lets others go on, in the middle of long work."""
        super().__init__()
        self.give_way = give_way
        self.disk = disk
        self.directory = directory
        self.log_id = log_id
        self.damage: list[str] = []  # what loading found, a sentence for each queue
        self._doomed: list[tuple[str, int]] = []  # segments that only the checkpoint before the last one refers to

    def queue_directory(self, name: str) -> str:
        return f"{self.directory}/{mangle(name)}"

    # ---- ResourceManager

    def counters(self) -> dict[str, int]:
        return {"queue": self.next_queue, "segment": self.next_segment}

    def set_counters(self, counters: dict[str, int]) -> None:
        self.next_queue = max(self.next_queue, counters["queue"])
        self.next_segment = max(self.next_segment, counters["segment"])

    def load(self, catalogue: Iterable[bytes]) -> None:
        for line in catalogue:
            self._load_queue(json.loads(line))

    def _load_queue(self, fields: dict[str, Any]) -> None:
        queue = Queue(decode_definition(json.dumps(fields["definition"]).encode()))
        self.queues[queue.name] = queue
        self.by_id[queue.id] = queue
        queue.next_sequence = fields["next"]
        queue.segments = {f["number"]: from_description(f) for f in fields["segments"]}
        if fields["damaged"]:
            queue.damaged = fields["damaged"]
            return
        backouts = {int(sequence): count for sequence, count in fields["backouts"].items()}
        entries: list[Entry] = []
        try:
            for segment in queue.segments.values():
                entries += self._load_segment(queue, segment, backouts)
        except QueueDamaged as exc:
            queue.damaged = str(exc)
            self.damage.append(f"queue {queue.name} is damaged: {exc}")
            return
        entries.sort()
        queue.load(entries)

    def _load_segment(self, queue: Queue, segment: Segment, backouts: dict[int, int]) -> Iterator[Entry]:
        """The entries of one segment. A non-persistent one is kept in memory alone: its cell counts as gone now."""
        for cell in read_cells(self.disk, self.queue_directory(queue.name), self.log_id, queue.id, segment):
            entry = read_entry(cell.message, b"")
            entry.sequence, entry.lsn = cell.sequence, 0
            entry.backouts = backouts.get(cell.sequence, cell.backouts)
            if entry.persistent:
                entry.segment, entry.cell = segment.number, cell.number
            else:
                segment.mark_gone(cell.number)
            yield entry

    def replayed(self) -> None:
        for queue in self.by_id.values():
            queue.forget_sequences()

    def snapshot(self) -> "StateSnapshot":
        return StateSnapshot(self)

    def keep_non_persistent(self) -> None:
        """Ending in order: what lies on queues with NPMCLASS(HIGH) goes into the last checkpoint too."""
        for queue in self.by_id.values():
            if queue.definition.non_persistent_class == "HIGH" and not queue.damaged:
                queue.fresh += (entry for entry in queue.ready() if not entry.persistent)
                queue.changed = True

    # ---- segments that nothing refers to

    def doom(self, segments: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """A checkpoint without these is complete: give those that the one before was without already."""
        ready, self._doomed = self._doomed, segments
        return ready

    def sweep(self) -> None:
        """After the checkpoint of a restart: delete the segments that neither it nor the one before refers to."""
        doomed = set(self._doomed)
        for directory in self.disk.list(self.directory):
            path = f"{self.directory}/{directory}"
            queue = next((q for q in self.by_id.values() if mangle(q.name) == directory), None)
            for name in self.disk.list(path):
                number = name.removesuffix(".seg")
                if not name.endswith(".seg") or not number.isdigit():
                    continue
                kept = queue is not None and int(number) in queue.segments
                if not kept and not any(mangle(q) == directory and n == int(number) for q, n in doomed):
                    self.disk.unlink(f"{path}/{name}")
            if queue is None and not self.disk.list(path):
                self.disk.rmdir(path)


A_MOMENT = 64  # messages: about 0.1 ms of work


class _QueueSnapshot:
    """One changed queue as of the checkpoint's LSN."""

    __slots__ = ("added", "backouts", "batch", "definition", "next_sequence", "queue", "segments", "was_damaged")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.definition = queue.definition
        self.next_sequence = queue.next_sequence
        self.was_damaged = queue.damaged
        self.batch = [(e, e.head, e.body, e.backouts) for e in queue.fresh if e.status != GONE]
        queue.fresh = []
        self.segments = [Segment(s.number, s.length, s.cells, bytes(s.gone)) for s in queue.segments.values()]
        self.backouts = {sequence: entry.backouts for sequence, entry in queue.backed_out.items()}
        self.added: list[tuple[Segment, list[tuple[Entry, int]], int]] = []  # segment, entries with their cells, length


class StateSnapshot:
    """The state as of one LSN, to be written while work goes on."""

    def __init__(self, state: Resource) -> None:
        self._state = state
        self._changed: dict[int, _QueueSnapshot] = {}
        self._lines: dict[int, bytes] = {}
        self._order = list(state.by_id.values())
        for queue in self._order:
            if queue.changed:
                queue.changed = False
                self._changed[queue.id] = _QueueSnapshot(queue)
            else:
                self._lines[queue.id] = queue.line
        self._retired, state.retired = state.retired, []
        self._next_segment = state.next_segment
        state.next_segment += len(self._changed)  # a new segment for each at the least
        self._spare_numbers = iter(range(self._next_segment, state.next_segment))

    def write(self) -> Iterator[bytes]:
        for queue in self._order:
            snapshot = self._changed.get(queue.id)
            if snapshot is not None:
                self._lines[queue.id] = self._write_queue(snapshot)
            yield self._lines[queue.id]

    def _write_queue(self, snapshot: _QueueSnapshot) -> bytes:
        """Write the new messages to the queue's segments; the line of the catalogue that says so."""
        queue = snapshot.queue
        live = [s for s in snapshot.segments if s.gone_count < s.cells or snapshot.was_damaged]
        if snapshot.batch:
            last = queue.segments.get(live[-1].number) if live else None
            if last is None or last.sealed or last.length >= LARGEST:
                target = Segment(next(self._spare_numbers))
                live.append(target)
            else:
                target = live[-1]
            self._append(snapshot, target)
        line = {
            "definition": json.loads(snapshot.definition.encode()),
            "next": snapshot.next_sequence,
            "segments": [s.describe() for s in live],
            "backouts": snapshot.backouts,
            "damaged": snapshot.was_damaged,
        }
        self._retired += ((queue.name, s.number) for s in snapshot.segments if s not in live)
        return json.dumps(line).encode()

    def _append(self, snapshot: _QueueSnapshot, target: Segment) -> None:
        state, queue = self._state, snapshot.queue
        writer = SegmentWriter(state.disk, state.queue_directory(queue.name), state.log_id, queue.id, target)
        placed: list[tuple[Entry, int]] = []
        try:
            for entry, head, body, backouts in snapshot.batch:
                placed.append((entry, writer.append(entry.sequence, backouts, head, body)))
                if not len(placed) % A_MOMENT:
                    state.give_way()
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        target.extend(writer.cells, writer.length)
        snapshot.added.append((target, placed, writer.length))

    def finish(self, lock: threading.Lock) -> None:
        written: list[tuple[Queue, Segment, list[tuple[Entry, int]]]] = []
        with lock:
            for snapshot in self._changed.values():
                queue = snapshot.queue
                queue.line = self._lines[queue.id]
                for added, placed, length in snapshot.added:
                    segment = queue.segments.get(added.number)
                    if segment is None:
                        segment = queue.segments[added.number] = Segment(added.number, HEADER.size)
                    segment.extend(len(placed), length)
                    written.append((queue, segment, placed))
        for queue, segment, placed in written:
            for at in range(0, len(placed), 8 * A_MOMENT):
                with lock:
                    for entry, cell in placed[at : at + 8 * A_MOMENT]:
                        self._place(queue, segment, entry, cell)
                self._state.give_way()
        retired = set(self._retired)
        with lock:
            for snapshot in self._changed.values():
                queue = snapshot.queue
                for number in [n for n in queue.segments if (queue.name, n) in retired]:
                    del queue.segments[number]
                if queue.deleted:
                    self._state.retired += ((queue.name, n) for n in queue.segments if (queue.name, n) not in retired)

    def _place(self, queue: Queue, segment: Segment, entry: Entry, cell: int) -> None:
        """The entry has this cell of the segment now, unless it has gone meanwhile."""
        if not entry.persistent:
            segment.mark_gone(cell)
        elif entry.status == GONE:
            segment.mark_gone(cell)
            queue.changed = True
        else:
            entry.segment, entry.cell = segment.number, cell

    def give_up(self) -> None:
        for snapshot in self._changed.values():
            queue = snapshot.queue
            queue.changed = True
            queue.fresh = [entry for entry, *_ in snapshot.batch if entry.status != GONE] + queue.fresh
            for segment in queue.segments.values():
                segment.sealed = True  # a sync may have failed: nothing is ever appended to it again
        self._state.retired = [r for r in self._retired if r not in self._state.retired] + self._state.retired

    def clean_up(self) -> None:
        state = self._state
        for name, number in state.doom(self._retired):
            path = segment_path(state.queue_directory(name), number)
            if state.disk.exists(path):
                state.disk.unlink(path)
