"""The store as recovery's ResourceManager: loaded from a checkpoint, and what the next one holds."""

import json
from collections.abc import Iterable
from typing import Any

from qmgr.objects import read_alias, read_definition, read_qmgr
from qmgr.segments import from_description
from qmgr.snapshot import StateSnapshot
from qmgr.store import Store
from recovery.errors import QueueDamaged
from recovery.image import Place


class Resource(Store):
    """The queues and units of work of one queue manager."""

    def counters(self) -> dict[str, int]:
        return {"queue": self.next_queue, "segment": self.next_segment}

    def set_counters(self, counters: dict[str, int]) -> None:
        self.next_queue = max(self.next_queue, counters["queue"])
        self.next_segment = max(self.next_segment, counters["segment"])

    def load(self, catalogue: Iterable[bytes], *, unlogged: bool) -> None:
        for line in catalogue:
            fields = json.loads(line)
            if "qmgr" in fields:
                self.be(read_qmgr(fields["qmgr"]))
                self.aliases = {one["name"]: read_alias(one) for one in fields.get("aliases", ())}
                self.catalog = fields["catalog"] if self.imaged else 0
            else:
                self._load_queue(fields, volatile=unlogged)

    def _load_queue(self, fields: dict[str, Any], *, volatile: bool) -> None:
        queue = self.new_queue(read_definition(fields["definition"]))
        self.queues[queue.name] = queue
        self.by_id[queue.id] = queue
        queue.next_sequence = fields["next"]
        queue.image = Place(*fields["image"]) if self.imaged and fields.get("image") else None
        for kind in (0, 1) if volatile else (1,):
            queue.backed_out[kind].update((int(at), count) for at, count in fields["backouts"][kind].items())
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
