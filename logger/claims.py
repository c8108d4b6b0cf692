"""Claims: which log owns an archive directory, and which directories a log has used. Moves no extent.

Two logs in one directory would sweep, compare and drop files of the same names, so each needs its own. The file
`<log identity>.log-id` claims a directory by its name alone: there is nothing in it that could be torn. Two that claim
at the same time both see the other's, and both let go. A directory that holds another log's extents can't be claimed.
"""

import contextlib
import re

from logger.disk import Disk
from logger.errors import ArchiveFailed, LogDamaged
from logger.history import extent_number, read_header
from logger.whole_files import read_whole, replace_file, write_whole

MARK = re.compile(r"([0-9a-f]{32})\.log-id")
USED = "amqharch.dir"  # beside the control file: the archives that a log has used, one path a line


def owners(disk: Disk, directory: str) -> set[bytes]:
    """The identities of the logs that have claimed the directory."""
    marks = (MARK.fullmatch(name) for name in disk.list(directory))
    return {bytes.fromhex(mark[1]) for mark in marks if mark is not None}


def claim(disk: Disk, directory: str, log_id: bytes, whose: str) -> None:
    """Make the directory the archive of this log; `whose` is for people. Raises ArchiveFailed, OSError."""
    mine = mark_name(log_id)
    found = owners(disk, directory)
    if found == {log_id}:
        disk.sync_dir(directory)  # the mark's writer may have been killed before it was durable
        return
    if not found:
        _refuse_foreign(disk, directory, log_id)
        write_whole(disk, f"{directory}/{mine}", f"{whose}\n".encode())
        disk.sync_dir(directory)
        found = owners(disk, directory)
        if found != {log_id}:
            disk.unlink(f"{directory}/{mine}")
    others = sorted(mark_name(other) for other in found - {log_id})
    if others:
        raise ArchiveFailed(
            f"nothing was done: {directory} is the archive of another queue manager's log, as {', '.join(others)} "
            f"there says; give each queue manager an ArchivePath of its own, or delete that file if its log is no more"
        )


def check_there(disk: Disk, directory: str, log_id: bytes, log_directory: str) -> None:
    """Refuse to work where the archive is away.

    What came there would be hidden later; what is removed elsewhere would leave a gap. Raises ArchiveFailed, OSError.
    """
    if text := away(disk, directory, log_id, log_directory):
        raise ArchiveFailed(f"nothing was done: {text}")


def away(disk: Disk, directory: str, log_id: bytes, log_directory: str) -> str:
    """What to tell the operator where the log's archive is not there; "" where it is. Raises OSError.

    A directory without this log's mark is another one: the mount point of a file system which is not mounted.
    """
    if directory not in used_archives(disk, log_directory) or log_id in owners(disk, directory):
        return ""
    return (
        f"{directory} is this log's archive, and its {mark_name(log_id)} is not there; mount its file system or bring "
        f"it back, or, if it is gone for good, take its line out of {log_directory}/{USED}"
    )


def mark_name(log_id: bytes) -> str:
    return f"{log_id.hex()}.log-id"


def _refuse_foreign(disk: Disk, directory: str, log_id: bytes) -> None:
    """Raise ArchiveFailed when an extent of another log lies there."""
    for name in disk.list(directory):
        if extent_number(name) is None:
            continue
        header = None
        with contextlib.suppress(LogDamaged, FileNotFoundError):  # of no use to anybody, or gone meanwhile
            header, _, _ = read_header(disk, f"{directory}/{name}")
        if header is not None and header.log_id != log_id:
            raise ArchiveFailed(
                f"nothing was done: {directory}/{name} belongs to another queue manager's log; move that log's files "
                f"away, and give each queue manager an ArchivePath of its own"
            )


def note_used(disk: Disk, log_directory: str, archive: str) -> None:
    """Note durably that the log archives to this directory. Raises OSError."""
    used = used_archives(disk, log_directory)
    if archive in used:
        disk.sync_dir(log_directory)  # as in `claim`
    else:
        text = "".join(f"{path}\n" for path in [*used, archive])
        replace_file(disk, f"{log_directory}/{USED}", text.encode())


def used_archives(disk: Disk, log_directory: str) -> list[str]:
    """The directories that the log has archived to, as far as it is known. Raises OSError."""
    path = f"{log_directory}/{USED}"
    lines = read_whole(disk, path).decode("utf-8", "replace").splitlines() if disk.exists(path) else []
    return [line for line in lines if line.startswith("/") and line.isprintable()]  # nothing else was written there
