"""Segment files that are left open, since to open a file takes five times as long as to read one message of it.

They are those that were read last, a bounded number. The queue manager's lock guards them.
"""

import contextlib
from collections import OrderedDict

from logger.disk import Disk, File
from logger.disk_errors import NO_DESCRIPTORS
from qmgr.segment_files import segment_path

MAX_FILES = 256
SHARE = 16  # one in so many of the file descriptors that the process may have


class OpenFiles:
    """The open segment files of one queue manager."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: OrderedDict[int, File] = OrderedDict()  # by segment number, the one read last at the end
        self._most = min(MAX_FILES, disk.max_descriptors() // SHARE)

    def __len__(self) -> int:
        return len(self._files)

    def read(self, directory: str, segment: int, at: int, size: int) -> bytes:
        """Bytes of the segment's file, fewer only where it ends. Raises OSError; then it is opened anew next time."""
        file = self._files.get(segment)
        if file is None:
            file = self._files[segment] = self._open(segment_path(directory, segment))
        try:
            data = file.read(at, size)
        except BaseException:
            self.close(segment)
            raise
        self._files.move_to_end(segment)
        while len(self._files) > self._most:
            self.close(next(iter(self._files)))
        return data

    def _open(self, path: str) -> File:
        try:
            return self._disk.open_read(path)
        except OSError as exc:
            if exc.errno not in NO_DESCRIPTORS or not self._files:
                raise
            self.close_all()
            return self._disk.open_read(path)

    def close(self, segment: int) -> None:
        """Close the file, if it is open: one that was deleted takes room on the disk until then."""
        with contextlib.suppress(KeyError, OSError):  # it was only read, so nothing is lost if this fails
            self._files.pop(segment).close()

    def close_all(self) -> None:
        for segment in list(self._files):
            self.close(segment)

    def end(self) -> None:
        """Close all of them, and leave none open from now on."""
        self._most = 0
        self.close_all()
