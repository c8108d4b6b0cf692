"""Forces several segment files at the same time where the disk takes its time: it, and journals, do many as one."""

import contextlib
from collections.abc import Callable
from functools import partial

from logger.disk import Disk
from logger.disk_errors import NO_DESCRIPTORS, NO_FILE
from qmgr.segment_writer import SegmentWriter
from qmgr.segments import Segment
from qmgr.threads import ShieldedWorker, await_all

MOST = 8  # each takes a thread and a file descriptor meanwhile
SHARE = 32  # one in so many of the file descriptors that the process may have


class Forcing:
    """Files of segments that are written, and left to be forced together."""

    def __init__(self, disk: Disk) -> None:
        self._most = max(1, min(MOST, disk.max_descriptors() // SHARE)) if disk.syncs_at_once() else 1
        self._writers: list[SegmentWriter] = []
        self.lost: list[Segment] = []  # new ones whose directory is gone: to be written anew

    def opened(self, open_one: Callable[[], SegmentWriter]) -> SegmentWriter:
        """What that gives; where descriptors have run out, once the files that wait are closed. Raises OSError."""
        try:
            return open_one()
        except OSError as exc:
            if exc.errno not in NO_DESCRIPTORS or not self._writers:
                raise
        self.force()
        return open_one()

    def add(self, writer: SegmentWriter) -> None:
        """Force this file soon, with others, at the latest when `force` is called. Raises OSError for any of them."""
        self._writers.append(writer)
        if len(self._writers) >= self._most:
            self.force()

    def force(self) -> None:
        """When it has returned all are closed, and durable but for `lost`. Raises the OSError of one that is not."""
        if len(self._writers) < 2:
            for writer in self._writers:
                self._force_one(writer)
            self._writers.clear()
            return
        workers = [ShieldedWorker(partial(self._force_one, writer), "qmgr force") for writer in self._writers]
        try:
            for worker, writer in zip(workers, self._writers, strict=True):
                with contextlib.suppress(RuntimeError, MemoryError):  # where there can be no more threads
                    worker.start()
                if not worker.started:
                    self._force_one(writer)
        finally:
            await_all(workers)  # whoever is told of a failure closes the files
        for worker in workers:
            if worker.started:
                worker.wait()
        self._writers.clear()

    def _force_one(self, writer: SegmentWriter) -> None:
        try:
            writer.force()
        except OSError as exc:
            if not writer.new or exc.errno not in NO_FILE:
                raise
            writer.abandon()
            self.lost.append(writer.segment)

    def abandon(self) -> None:
        """The checkpoint has failed: give back what the disk has taken for those that were not forced."""
        while self._writers:
            with contextlib.suppress(OSError):
                self._writers.pop().abandon()
