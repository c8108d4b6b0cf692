"""Small segments and blocks, so that a queue of a few messages is deep; what paging did in a test, counted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import batch, ids, queue_snapshot, segment_writer, segments, snapshot, store
from qmgr.installed import is_compiled
from qmgr.queue import Queue
from qmgr.segment_format import SLOT
from tests.sim.disk import SimDisk

PAGE = 512  # bytes: what a checkpoint appends begins at a multiple of it; as safe on this disk, whose sectors are that
# As the constants of the modules below that are replaced by them:
SEGMENT_BYTES = 8000
SMALL_BYTES = 500
BLOCK_BYTES = 1500
SURPLUS_BYTES = 5000
CHUNK_MESSAGES = 3
MIN_MESSAGES, MAX_MESSAGES = 2, 5
INDEX_BYTES = 2500
UNSEEN = 1_000_000  # more calls than any test asks for


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Segments, blocks, slack and the bound of the arrays, as small as tests need them."""
    patch.setattr(segments, "PAGE", PAGE)
    patch.setattr(segment_writer, "PAGE", PAGE)
    patch.setattr(segments, "MAX_SEGMENT_BYTES", SEGMENT_BYTES)
    patch.setattr(segments, "SMALL_SEGMENT_BYTES", SMALL_BYTES)
    patch.setattr(segment_writer, "MAX_BLOCK_BYTES", BLOCK_BYTES)
    patch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", SURPLUS_BYTES)
    patch.setattr(queue_snapshot, "CHUNK_MESSAGES", CHUNK_MESSAGES)
    patch.setattr(snapshot, "YIELD_EVERY_MESSAGES", 2 * CHUNK_MESSAGES)
    patch.setattr(store, "MAX_INDEX_BYTES", INDEX_BYTES)
    patch.setattr(batch, "MIN_MESSAGES", MIN_MESSAGES)
    patch.setattr(batch, "MAX_MESSAGES", MAX_MESSAGES)
    patch.setattr(batch, "MAX_BYTES", BLOCK_BYTES - MAX_MESSAGES * SLOT)


class Counted:
    """How often paging did each of the things it can do."""

    WATCHED: tuple[tuple[Any, str], ...] = (
        (Queue, "_page_in"),
        (Queue, "page_out"),
        (Queue, "_unpack_next"),
        (Queue, "_page_out_batch"),
        (Queue, "_page_out_run"),
        (Queue, "_unpage"),
        (Queue, "_take_paged"),
        (Queue, "sweep"),
        (snapshot.StateSnapshot, "_rewrite"),
        (snapshot.StateSnapshot, "_replace"),
        (ids.Arrays, "learn"),
    )

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls = Counter[str]()
        self.paged_out = 0  # messages
        self.evicted = 0  # arrays that find messages by id, those included that found no room
        for owner, name in self.WATCHED:
            patch.setattr(owner, name, self._counting(name, getattr(owner, name)))
        if is_compiled():  # nobody sees what it calls of itself; interpreted, the same lives are counted
            inner = (
                "_page_in",
                "_unpack_next",
                "_page_out_batch",
                "_page_out_run",
                "_unpage",
                "_take_paged",
                "sweep",
                "learn",
            )
            self.calls.update(dict.fromkeys(inner, UNSEEN))
            self.evicted = UNSEEN

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(this: Any, *given: Any, **named: Any) -> Any:
            before = paged(this) if isinstance(this, Queue) else 0
            arrays = set(this._arrays) if isinstance(this, ids.Arrays) else set()
            try:
                return real(this, *given, **named)
            finally:
                self.calls[name] += 1
                if name == "page_out":
                    self.paged_out += paged(this) - before
                elif name == "learn":
                    self.evicted += len((arrays | {(given[0].number, given[1])}) - set(this._arrays))

        return call


def paged(queue: Queue) -> int:
    """Messages that are in segments only."""
    return sum(lane.paged for lane in queue._lanes.values())


def inside(manager: qmgr.QueueManager, name: str) -> Queue:
    return manager._engine.state.queues[name]


def files(disk: SimDisk, path: str = "/") -> list[str]:
    """The segments below a path."""
    return [name for name in disk.files(path) if name.endswith(".seg")]
