"""Where segment files lie, which there are, what was set aside of them, and what it means that one is missing."""

import errno
import re

from logger.disk import Disk
from logger.disk_errors import NO_FILE
from qmgr.objects import is_mangled
from recovery.errors import QueueDamaged

SEGMENT = re.compile(r"(\d{8,})\.seg")  # the name of a file


def segment_path(directory: str, number: int) -> str:
    return f"{directory}/{number:08d}.seg"


def segments_below(disk: Disk, queues: str) -> dict[str, list[int]]:
    """The numbers of the segments in each queue's directory; what is somebody else's is passed over."""
    found = {}
    for name in filter(is_mangled, disk.list(queues)):
        try:
            names = disk.list(f"{queues}/{name}")
        except OSError as exc:
            if exc.errno not in NO_FILE:
                raise
        else:
            found[name] = [int(match[1]) for match in map(SEGMENT.fullmatch, names) if match is not None]
    return found


def asides(disk: Disk, path: str) -> tuple[str, str]:
    """What can't be believed is set aside: the last file that was at this path, "" if none was, and the next name."""
    last, free, number = "", f"{path}.damaged", 1
    while disk.exists(free):
        number += 1
        last, free = free, f"{path}.damaged{number}"
    return last, free


def no_segment(path: str, exc: OSError, disk: Disk | None = None) -> QueueDamaged:
    """The damage where a call on a segment has found no file, for one of `NO_FILE`.

    With `disk` it is seen whether it was set aside before: a crash may have come before a checkpoint noted why.
    """
    directory = path.rpartition("/")[0]
    if exc.errno == errno.ENOENT:
        for place, lost in ((path, "it"), (directory, "what lay in the place of its directory")):
            if disk is None or (place is directory and disk.exists(directory)):  # made since: another one
                continue
            aside = asides(disk, place)[0]
            if aside:
                way = "the error log of then says why (AMQ7472)"
                return QueueDamaged(f"segment {path} is missing: {lost} was set aside as {aside}; {way}")
        return QueueDamaged(f"segment {path} is missing")
    if exc.errno == errno.ENOTDIR:
        return QueueDamaged(f"segment {path} is missing: {directory} is no directory", directory)
    what = "it is a pipe" if exc.errno == errno.ESPIPE else exc.strerror  # of a write: Illegal seek
    return QueueDamaged(f"segment {path} is no file ({what})", path)
