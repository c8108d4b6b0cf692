"""A disk that keeps every write and flush in order, and between them what others say: a file system of two files.

    python -m tests.power.recorder <mount point> <size of the disk> <record>

`disk` stands below a loop device; what is written to `said` is no part of it. The record is a list of events, each a
head (kind u8, offset u64, length u32) and its bytes.
"""

import ctypes.util
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

HEAD = struct.Struct("<BQI")
WRITE, FLUSH, SAID = 1, 2, 3


class Event(NamedTuple):
    kind: int
    offset: int
    data: bytes


def events(record: bytes) -> Iterator[Event]:
    """Those of a record, in their order."""
    at = 0
    while at < len(record):
        kind, offset, length = HEAD.unpack_from(record, at)
        at += HEAD.size
        yield Event(kind, offset, record[at : at + length])
        at += length


def serve(mount_point: str, size: int, record: str) -> None:
    """Until it is unmounted."""
    os.environ.setdefault("FUSE_LIBRARY_PATH", ctypes.util.find_library("fuse3") or "libfuse3.so.3")
    import mfusepy

    content = bytearray(size)

    class Disk(mfusepy.Operations):
        use_ns = True  # times are whole numbers

        def __init__(self) -> None:
            self.record = open(record, "wb", buffering=0)  # noqa: SIM115  until the process ends

        def note(self, kind: int, offset: int = 0, data: bytes = b"") -> None:
            self.record.write(HEAD.pack(kind, offset, len(data)) + data)

        def getattr(self, path: str, fh: object = None) -> dict[str, int]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
            if path not in ("/disk", "/said"):
                raise mfusepy.FuseOSError(errno.ENOENT)
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": size if path == "/disk" else 0}

        def open(self, path: str, info: object) -> int:
            info.direct_io = 1  # type: ignore[attr-defined]  # nothing is kept in the system's memory
            return 0

        def read(self, path: str, length: int, offset: int, info: object) -> bytes:
            return bytes(content[offset : offset + length]) if path == "/disk" else b""

        def write(self, path: str, data: bytes, offset: int, info: object) -> int:
            if path == "/said":
                self.note(SAID, 0, data)
            else:
                content[offset : offset + len(data)] = data
                self.note(WRITE, offset, data)
            return len(data)

        def fsync(self, path: str, datasync: int, info: object) -> int:
            if path == "/disk":
                self.note(FLUSH)
            return 0

        def truncate(self, path: str, length: int, info: object = None) -> int:
            return 0

    mfusepy.FUSE(Disk(), mount_point, foreground=True, nothreads=True, raw_fi=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
