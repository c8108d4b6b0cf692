"""Forces several segment files to the disk at the same time: disks, and journals of file systems, do many as one."""

import contextlib

from logger.disk import Disk
from qmgr.segment_writer import SegmentWriter
from qmgr.threads import ShieldedWorker, await_all

MOST = 8  # with more of them little is gained
SHARE = 32  # one in so many of the file descriptors that the process may have


class Forcing:
    """Files of segments that are written, and left to be forced together."""

    def __init__(self, disk: Disk) -> None:
        self._at_once = disk.syncs_at_once()
        self._most = max(1, min(MOST, disk.max_descriptors() // SHARE))
        self._writers: list[SegmentWriter] = []

    def add(self, writer: SegmentWriter) -> None:
        """Force this file soon, with others, at the latest when `force` is called. Raises OSError for any of them."""
        self._writers.append(writer)
        if len(self._writers) >= self._most:
            self.force()

    def force(self) -> None:
        """When it has returned, all files are durable and closed. Raises the OSError of one that is not."""
        if not self._at_once or len(self._writers) < 2:
            while self._writers:
                self._writers[0].force()
                del self._writers[0]
            return
        workers = [ShieldedWorker(writer.force, "qmgr force") for writer in self._writers]
        try:
            for worker, writer in zip(workers, self._writers, strict=True):
                with contextlib.suppress(RuntimeError, MemoryError):  # where there can be no more threads
                    worker.start()
                if not worker.started:
                    writer.force()
        finally:
            await_all(workers)  # whoever is told of a failure closes the files
        for worker in workers:
            if worker.started:
                worker.wait()
        self._writers.clear()

    def abandon(self) -> None:
        """The checkpoint has failed: give back what the disk has taken for those that were not forced."""
        while self._writers:
            with contextlib.suppress(OSError):
                self._writers.pop().abandon()
