"""State as recovery's ResourceManager: its queues in their segments, and how they are loaded again."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from logger.disk import Disk
from qmgr.entry import READY
from qmgr.ids import Arrays
from qmgr.objects import QueueDefinition, decode_definition, mangle
from qmgr.queue import Queue
from qmgr.segments import SegmentReader, from_description
from qmgr.snapshot import StateSnapshot
from qmgr.state import State
from recovery.errors import QueueDamaged

INDEXES = 64 << 20  # bytes of arrays that find messages in segments by their ids


class Resource(State):
    """The queues and units of work of one queue manager, with their segments below `directory`."""

    def __init__(
        self, disk: Disk, directory: str, log_id: bytes, give_way: Callable[[], None], *, buffer: int = 256 << 10
    ) -> None:
        """`give_way()` lets others go on, in the middle of long work. `buffer`: bytes a queue keeps in memory."""
        super().__init__()
        self.give_way = give_way
        self.disk = disk
        self.directory = directory
        self.log_id = log_id
        self.buffer = buffer
        self.arrays = Arrays(INDEXES)
        self._doomed: list[tuple[str, int]] = []  # segments that only the checkpoint before the last one refers to

    def new_queue(self, definition: QueueDefinition) -> Queue:
        reader = SegmentReader(self.disk, self.queue_directory(definition.name), self.log_id, definition.id)
        return Queue(definition, reader, self.arrays, self.buffer)

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
        queue = self.new_queue(decode_definition(json.dumps(fields["definition"]).encode()))
        self.queues[queue.name] = queue
        self.by_id[queue.id] = queue
        queue.next_sequence = fields["next"]
        queue.backed_out = {int(sequence): count for sequence, count in fields["backouts"].items()}
        described = [from_description(one) for one in fields["segments"]]
        volatile = [segment for segment in described if segment.volatile]
        self.retired += ((queue.name, segment.number) for segment in volatile)
        try:
            queue.load([segment for segment in described if not segment.volatile])
            for segment in volatile:
                queue.load_volatile(segment)
            if fields["damaged"]:
                queue.damage(fields["damaged"])
        except QueueDamaged as exc:
            self.damage(queue, exc)

    def replayed(self) -> None:
        for queue in self.by_id.values():
            queue.forget_sequences()

    def snapshot(self) -> StateSnapshot:
        return StateSnapshot(self)

    def keep_non_persistent(self) -> None:
        """Ending in order: what lies on queues with NPMCLASS(HIGH) goes into the last checkpoint too."""
        for queue in self.by_id.values():
            if queue.definition.non_persistent_class == "HIGH" and not queue.damaged:
                there = {e.sequence: e for e in queue.in_memory() if not e.persistent and e.status == READY}
                queue.volatile = list(there.values())
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
