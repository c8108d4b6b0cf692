"""The store as recovery's ResourceManager: loaded from a checkpoint, and what the next one holds."""

import json
from collections.abc import Iterable
from typing import Any

from qmgr.errors import Reason, Unavailable
from qmgr.objects import read_alias, read_definition, read_qmgr
from qmgr.segments import from_description
from qmgr.snapshot import StateSnapshot
from qmgr.store import Store
from recovery import backouts
from recovery.backouts import Backouts
from recovery.errors import QueueDamaged
from recovery.image import ImagePlace


class Resource(Store):
    """The queues and units of work of one queue manager."""

    __slots__ = ("__dict__", "__weakref__")

    def counters(self) -> dict[str, int]:
        return {"queue": self.next_queue, "segment": self.next_segment}

    def set_counters(self, counters: dict[str, int]) -> None:
        self.next_queue = max(self.next_queue, counters["queue"])
        self.next_segment = max(self.next_segment, counters["segment"])

    def load(self, catalogue: Iterable[bytes], *, unlogged: bool) -> None:
        for line in catalogue:
            fields = json.loads(line)
            if "qmgr" in fields:
                self.take_attributes(read_qmgr(fields["qmgr"]))
                self.aliases = {one["name"]: read_alias(one) for one in fields.get("aliases", ())}
                self.catalog = fields["catalog"] if self.imaged else 0
                if unlogged and "unlogged" in fields:
                    self.forgotten, *last = fields["unlogged"]
                    self.unlogged.extend(last)
            else:
                self._load_queue(fields, volatile=unlogged)

    def _load_queue(self, fields: dict[str, Any], *, volatile: bool) -> None:
        queue = self.new_queue(read_definition(fields["definition"]))
        self.queues[queue.name] = queue
        self.by_id[queue.id] = queue
        queue.next_sequence = fields["next"]
        queue.image = ImagePlace(*fields["image"]) if self.imaged and fields.get("image") else None
        others, persistent = map(backouts.read, fields["backouts"])
        queue.backed_out = others if volatile else Backouts(), persistent
        described = [from_description(one) for one in fields["segments"]]
        try:
            queue.load([segment for segment in described if volatile or not segment.volatile])
            if fields["damaged"]:
                queue.damage(fields["damaged"])
        except QueueDamaged as exc:
            if not fields["damaged"] and queue.image is None:
                self._refuse_if_away(queue.name)
            if fields["damaged"] and not exc.path:  # missing, as it was set aside: that says less than why
                queue.damage(fields["damaged"])
            else:
                self.damage(queue, exc)

    def _refuse_if_away(self, queue: str) -> None:
        """Raise Unavailable where all files of queues are missing: it is rather their file system that is away.

        A start would mark the queues as damaged, which they would stay when it is back.
        """
        there = self.disk.exists(self.directory)
        if there and self.disk.list(self.directory):
            return
        text = (
            f"the queues' directory {self.directory} is {'empty' if there else 'not there'}; mount its file system or "
            f"bring it back, or, if it is gone for good, make {self.queue_directory(queue)}: then the queue manager "
            f"starts, with damaged queues"
        )
        raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR)

    def replayed(self) -> None:
        for queue in self.by_id.values():
            queue.forget_sequences()

    def snapshot(self) -> StateSnapshot:
        return StateSnapshot(self)
