"""A lock on a file of the machine's own disk: had by one process, which says there who it is and where."""

import contextlib
import errno
import fcntl
import json
import os
import re
import select

from logger.disk import Locks
from logger.disk_errors import NO_SPACE
from logger.errors import LogInUse
from logger.posix_file import close_own, identity, open_written

LOCK_ATTEMPTS = 2000  # a millisecond apart, while others only look
HOLDER_BYTES = 512  # of a line that a lock file may have of its last holder
PROCESS = re.compile(r"(pid \d+)( \(.*\))?")  # a holder: what `process` says, and maybe a command
PLACED = re.compile(PROCESS.pattern + r' at (\S+) on ("(?:[^"\\]|\\.)*")')  # the same, and where that number means it
MACHINE = "pid:[4026531836]"  # where process numbers mean something outside of all containers (Linux)


class PosixLock:
    """An flock: unlike a POSIX record lock it does not vanish when some other descriptor of the file is closed."""

    def __init__(self, fd: int, directory: str) -> None:
        self.fd = self._directory_fd = -1
        self.directory = directory
        self._file_identity: tuple[int, int] | None = None
        self._directory_identity: tuple[int, int] | None = None
        self.fd = fd  # last: until then it is for the caller to close

    def hold_directory(self) -> None:
        """Keep it open: so long no other one gets its number."""
        self._directory_fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self._directory_fd)
        self._file_identity, self._directory_identity = identity(self.fd), (found.st_dev, found.st_ino)

    def write(self, data: bytes) -> None:
        os.pwrite(self.fd, data, 0)

    def in_place(self) -> bool:
        try:
            found = os.stat(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # nothing can be opened there now; which directory that is nobody knows
            return True
        return (found.st_dev, found.st_ino) == self._directory_identity

    def release(self) -> None:
        directory_fd, self._directory_fd = self._directory_fd, -1
        close_own(directory_fd, self._directory_identity)
        fd, self.fd = self.fd, -1
        close_own(fd, self._file_identity)


def take(path: str, holder: str, held: Locks | None = None) -> PosixLock:
    """As `Disk.lock` says."""
    held = [] if held is None else held
    while True:
        lock = _attempt(path, holder, held)
        if _is_at(lock.fd, path):
            return lock
        held.remove(lock)  # its file was removed before the lock was had, so it keeps nobody out
        lock.release()


def _attempt(path: str, holder: str, held: Locks) -> PosixLock:
    fd = open_written(path, os.O_RDWR | os.O_CREAT)
    try:
        lock = PosixLock(fd, os.path.dirname(path))
    except BaseException:
        os.close(fd)
        raise
    held.append(lock)
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as exc:
            owner = _read_holder(fd)  # "": it is about to say so
            passing = exc.errno == errno.EWOULDBLOCK and (not owner or _has_no_owner(fd))
            if attempt + 1 < LOCK_ATTEMPTS and passing:
                _wait_one_ms()
                continue
            lock.release()
            if exc.errno != errno.EWOULDBLOCK:  # this file system has no locks, say
                raise OSError(exc.errno, exc.strerror, path) from exc
            raise LogInUse(f"{path} is held by {owner or 'another process'}", holder=owner) from None
    try:
        _write_holder(fd, _with_place(holder).encode() + b"\n")
        lock.hold_directory()
    except OSError as exc:
        lock.release()
        exc.filename = path
        raise
    return lock


def locked_by(path: str) -> str | None:
    """As `Disk.locked_by` says."""
    try:
        # For reading, as its file system may be mounted read-only; and not to wait for the writer of a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno != errno.EWOULDBLOCK:  # who could hold a lock where there are none?
            raise OSError(exc.errno, exc.strerror, path) from exc
        return _read_holder(fd) or "another process"
    finally:
        os.close(fd)
    return None


def _write_holder(fd: int, line: bytes) -> None:
    """Make the line all that a lock file holds. Raises OSError, but not where the disk is full: it is held even so."""
    try:
        # Over what the last holder left, and only then shorter: a full disk takes no more what it was given back.
        os.pwrite(fd, line.ljust(min(os.fstat(fd).st_size, HOLDER_BYTES)), 0)
        os.ftruncate(fd, len(line))
    except OSError as exc:
        if exc.errno not in NO_SPACE:
            raise
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)  # no holder is shown then, rather than the last one


def _read_holder(fd: int) -> str:
    """Who has said that he holds the lock file, as seen from here; "" where nobody has."""
    said = os.pread(fd, HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
    found = PLACED.fullmatch(said)
    if found is None:
        return said
    process, command, numbers, host = found.groups(default="")
    with contextlib.suppress(ValueError):  # a damaged line: it is shown as it is
        return f"{process}{elsewhere(json.loads(host), numbers)}{command}"
    return said


def _with_place(holder: str) -> str:
    """Add to the number of a process where it means something: it may be read in a container, or on another host."""
    if not PROCESS.fullmatch(holder):
        return holder
    return f"{holder} at {process_numbers() or '-'} on {json.dumps(os.uname().nodename)}"


def _has_no_owner(fd: int) -> bool:
    """Has nobody locked the file but `locked_by`, which does so only while it looks?"""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def _wait_one_ms() -> None:
    select.select([], [], [], 0.001)


def _is_at(fd: int, path: str) -> bool:
    """Is what is open here the file of that name?"""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def process_numbers() -> str:
    """The namespace in which process ids of this process are valid; "" where the system does not say."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def elsewhere(host: str, numbers: str) -> str:
    """Where a process is whose number means something there, and nothing here; "" for one whose number does."""
    if host != os.uname().nodename:
        return f" on {host!r}"
    here = process_numbers() or "-"
    if (numbers or "-") == here:
        return ""
    if numbers == MACHINE:
        return " outside of this container"
    return " in a container" if here == MACHINE else " in another container"
