"""What recovery asks of the queues: apply a record, say what a checkpoint must hold, load it again."""

import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

from recovery.records import Record
from recovery.uows import UowTable


class Snapshot(Protocol):
    """The resources as of one LSN, to be written while work goes on."""

    def write(self) -> Iterator[bytes]:
        """Make durable what the checkpoint refers to and yield the catalogue, a line per object. Raises OSError."""
        ...

    def finish(self, lock: threading.Lock) -> None:
        """The checkpoint is complete. Takes the log's lock several times, each for a moment."""
        ...

    def clean_up(self) -> None:
        """Delete what no checkpoint refers to any more; without the lock."""
        ...

    def give_up(self, *, named: bool) -> None:
        """The checkpoint failed: what was to be written is still to be written. The caller holds the log's lock.

        `named`: its file may count all the same.
        """
        ...


class ResourceManager(Protocol):
    """What has the durable state that the log protects."""

    uows: UowTable

    def apply(self, record: Record, lsn: int, end: int, time: int) -> None:
        """Make the change that the record stands for; the same code for a live call and in replay.

        `lsn` and `end` are where it lies in the log (0: it is not logged), `time` when. Raises KeyError, ValueError
        where it does not fit to what is there.
        """
        ...

    def load(self, catalogue: Iterable[bytes], *, unlogged: bool) -> None:
        """Become what the checkpoint holds; with what it holds beyond what is logged, if the log ends with it."""
        ...

    def replayed(self) -> None:
        """The replay is over."""
        ...

    def snapshot(self) -> Snapshot:
        """What a checkpoint at this moment holds. The caller holds the log's lock."""
        ...

    def unwritten(self) -> int:
        """Bytes in memory that a checkpoint would write; what is gone is let go of. The caller holds the log's lock."""
        ...

    def beyond_buffers(self) -> int:
        """Bytes in memory beyond what is to stay there after a checkpoint. The caller holds the log's lock."""
        ...

    def wasteful(self) -> bool:
        """Would a checkpoint give back so much of the disk that it is worth one?"""
        ...

    def counters(self) -> dict[str, int]:
        """Numbers that a restart must not hand out again; given back to `set_counters`."""
        ...

    def set_counters(self, counters: dict[str, int]) -> None: ...
