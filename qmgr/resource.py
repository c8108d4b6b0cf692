"""State as recovery's ResourceManager: its queues in their segments, and how they are loaded again."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from logger.disk import Disk
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
        self, disk: Disk, directory: str, log_id: bytes, give_way: Callable[[], None], buffers: tuple[int, int]
    ) -> None:
        """`give_way()` lets others go on, in the middle of long work.

        `buffers`: bytes of non-persistent and of persistent messages that a queue keeps in memory.
        """
        super().__init__()
        self.give_way = give_way
        self.disk = disk
        self.directory = directory
        self.log_id = log_id
        self.buffers = buffers
        self.ending = False  # the next checkpoint is the last one
        self.arrays = Arrays(INDEXES)
        self._doomed: list[tuple[str, int]] = []  # segments that only the checkpoint before the last one refers to

    def new_queue(self, definition: QueueDefinition) -> Queue:
        reader = SegmentReader(self.disk, self.queue_directory(definition.name), self.log_id, definition.id)
        return Queue(definition, reader, self.arrays, self.buffers)

    def queue_directory(self, name: str) -> str:
        return f"{self.directory}/{mangle(name)}"

    # ---- ResourceManager

    def counters(self) -> dict[str, int]:
        return {"queue": self.next_queue, "segment": self.next_segment}

    def set_counters(self, counters: dict[str, int]) -> None:
        self.next_queue = max(self.next_queue, counters["queue"])
        self.next_segment = max(self.next_segment, counters["segment"])

    def load(self, catalogue: Iterable[bytes], *, unlogged: bool) -> None:
        for line in catalogue:
            self._load_queue(json.loads(line), volatile=unlogged)

    def _load_queue(self, fields: dict[str, Any], *, volatile: bool) -> None:
        queue = self.new_queue(decode_definition(json.dumps(fields["definition"]).encode()))
        self.queues[queue.name] = queue
        self.by_id[queue.id] = queue
        queue.next_sequence = fields["next"]
        for known, counts in zip(queue.backed_out, fields["backouts"], strict=True):
            known.update((int(sequence), count) for sequence, count in counts.items())
        described = [from_description(one) for one in fields["segments"]]
        try:
            queue.load([segment for segment in described if volatile or not segment.volatile])
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
        self.ending = True
        for queue in self.by_id.values():
            if queue.definition.non_persistent_class == "HIGH":
                queue.changed = True

    # ---- segments that nothing refers to

    def doom(self, segments: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """A checkpoint without these is complete: give those that the one before was without already."""
        ready, self._doomed = self._doomed, segments
        return ready

    def sweep(self) -> None:
        """After the checkpoint of a restart: delete the segments that neither it nor the one before refers to."""
        queues = {mangle(queue.name): queue for queue in self.by_id.values()}
        doomed = {(mangle(name), number) for name, number in self._doomed}
        for directory in self.disk.list(self.directory):
            path = f"{self.directory}/{directory}"
            queue = queues.get(directory)
            for name in self.disk.list(path):
                number = name.removesuffix(".seg")
                if not name.endswith(".seg") or not number.isdigit():
                    continue
                kept = queue is not None and int(number) in queue.segments
                if not kept and (directory, int(number)) not in doomed:
                    self.disk.unlink(f"{path}/{name}")
            if queue is None and not self.disk.list(path):
                self.disk.rmdir(path)
