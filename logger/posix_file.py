"""An open file of the machine's own disk: reads, writes, syncs, and durable writes the quickest way there is."""

import errno
import fcntl
import os
import posix
from typing import TYPE_CHECKING

from logger.disk import Buffer

if TYPE_CHECKING:
    from logger.polled import Poller

STDERR_FD = 2
NO_SUCH_FLAG = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM)  # EPERM: a filter of system calls (seccomp)
DSYNC_FILE_SYSTEMS = {b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs"}  # durable, O_DIRECT or not
NO_FULL_SYNC = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY)  # what file systems say that have none
FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, where fsync stops at the drive's own memory

PWRITEV = getattr(posix, "pwritev", None)
MOUNTS = "/proc/self/mountinfo"  # Linux: what is mounted, a line each
STATUS = "/proc/self/status"  # Linux: what there is to say of this process, a line each


def open_written(path: str, flags: int) -> int:
    """Open a file that is written, with a descriptor that is none of the three standard streams'.

    Where one of those is closed its number is the next to be given away, and what a library prints would go to the log.
    """
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if fd > STDERR_FD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STDERR_FD + 1)
    finally:
        os.close(fd)


def sync_all(fd: int) -> None:
    """Make a file, or the names in a directory, durable with all that belongs to it."""
    if FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, FULL_SYNC)
            return
        except OSError as exc:
            if exc.errno not in NO_FULL_SYNC:
                raise
    os.fsync(fd)  # a file system that has nothing better: a share of another machine's, say


def _honours_dsync(fd: int) -> bool:
    """Is a write with RWF_DSYNC surely durable when it returns? Otherwise a sync is needed.

    The file system has to see to it, and not all do: FUSE, SMB and others let direct writes pass to a server that
    would have to look at a flag. One that lies on another (overlay) is as sure as that, and nothing says which that is.
    """
    device = os.fstat(fd).st_dev
    number = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        with open(MOUNTS, "rb") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return False
    kinds = {words[words.index(b"-") + 1] for words in mounts if words[2] == number}
    return bool(kinds) and kinds <= DSYNC_FILE_SYSTEMS  # parts of btrfs have numbers that are not listed


_pollers: "list[Poller | None]" = []  # this process's, once there is a use for it


os.register_at_fork(after_in_child=_pollers.clear)  # what the system keeps for it a child does not inherit


def _poller() -> "Poller | None":
    """None where the usual call is to be made.

    That is also where `os.pwritev` was replaced, or the process is traced, to observe or block writes: the tool may not
    know the other call.
    """
    if not _pollers:
        try:
            from logger.polled import Poller  # with ctypes: a tenth of the time that all else takes to import

            _pollers.append(None if _is_traced() else Poller())
        except Exception:  # no such calls, no ctypes, or something forbids to use it
            _pollers.append(None)
    return _pollers[0] if os.pwritev is PWRITEV else None


def _is_traced() -> bool:
    """Does another process see each call of this one, as strace does?"""
    with open(STATUS, "rb") as file:
        said = dict(line.split(b":", 1) for line in file if b":" in line)
    return int(said.get(b"TracerPid", b"0")) != 0


def identity(fd: int) -> tuple[int, int] | None:
    """Which file has this descriptor: its device and its number there; None: no file, or it can't be told."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_of(fd: int, whose: tuple[int, int] | None) -> bool:
    """Does this descriptor belong to the file that is `whose`? Also where that can't be told."""
    if whose is None:
        return True
    try:
        found = os.fstat(fd)
    except OSError as exc:
        return exc.errno != errno.EBADF
    return (found.st_dev, found.st_ino) == whose


def close_own(fd: int, whose: tuple[int, int] | None) -> None:
    """Close the descriptor, if there is one, unless it is known to belong to another file than `whose` now."""
    if fd >= 0 and is_of(fd, whose):
        os.close(fd)


class PosixFile:
    """An open file descriptor."""

    __slots__ = ("_identity", "begun", "direct", "fd", "honours_dsync", "path")

    def __init__(self, fd: int, path: str, *, direct: bool = False) -> None:
        self.fd = -1
        self.path = path
        self.direct = direct  # is it written past the system's memory?
        self.honours_dsync: bool | None = None  # None: it was not asked yet
        self.begun = False  # has `begin_durably` been called?
        self._identity: tuple[int, int] | None = None  # which file it is, where it is open for writing
        self.fd = fd  # last: until then it is for the caller to close

    def read(self, offset: int, size: int) -> bytes:
        try:
            data = os.pread(self.fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(self.fd, size - got, offset + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as exc:  # the system does not say which file
            raise OSError(exc.errno, exc.strerror, self.path) from exc

    def write(self, offset: int, data: Buffer) -> None:
        try:
            done = os.pwrite(self.fd, data, offset)
            if done == len(data):
                return
            view = memoryview(data)
            while done < len(view):
                more = os.pwrite(self.fd, view[done:], offset + done)
                if more == 0:
                    raise OSError(errno.EIO, "the disk takes no more bytes")
                done += more
        except OSError as exc:
            if exc.errno == errno.EINVAL and self._leave_direct_mode():
                self.write(offset, data)
                return
            exc.filename = self.path
            raise

    def _leave_direct_mode(self) -> bool:
        """Write through the system's memory from now on, where a sync makes durable as well; False: it did before.

        A disk whose sectors are larger than our pages takes no direct write of a page.
        """
        was, self.direct = self.direct, False
        if was:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, fcntl.fcntl(self.fd, fcntl.F_GETFL) & ~os.O_DIRECT)
        return was

    if hasattr(os, "RWF_DSYNC"):

        def write_durably(self, offset: int, data: Buffer, *, may_poll: bool = False) -> None:
            if self.honours_dsync is None:
                self.honours_dsync = _honours_dsync(self.fd)
            done = -1
            try:  # one call into the system, and with a drive that can do so one command, where a sync takes two
                if self.honours_dsync:
                    poller = _poller() if may_poll else None
                    if poller is not None:
                        done = poller.write(self.fd, data, offset)
                    if done < 0:
                        done = os.pwritev(self.fd, [data], offset, os.RWF_DSYNC)
            except OSError as exc:
                if exc.errno not in NO_SUCH_FLAG:
                    raise
                self.honours_dsync, done = False, 0
            if done != len(data):
                self.write(offset, data)
                self.sync()

        def begin_durably(self, offset: int, data: Buffer) -> bool:
            poller = _poller() if self.honours_dsync and self.direct else None  # else all of it is done here and now
            if poller is None:
                return False
            self.begun = True
            return poller.begin(self.fd, data, offset)
    else:

        def write_durably(self, offset: int, data: Buffer, *, may_poll: bool = False) -> None:
            self.write(offset, data)
            self.sync()

        def begin_durably(self, offset: int, data: Buffer) -> bool:
            return False

    if FULL_SYNC is None and hasattr(os, "fdatasync"):

        def sync(self) -> None:
            try:
                os.fdatasync(self.fd)
            except OSError as exc:
                exc.filename = self.path
                raise
    else:

        def sync(self) -> None:
            try:
                sync_all(self.fd)
            except OSError as exc:
                exc.filename = self.path
                raise

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self.fd, size)
        except OSError as exc:
            exc.filename = self.path
            raise

    def size(self) -> int:
        try:
            return os.fstat(self.fd).st_size
        except OSError as exc:
            exc.filename = self.path
            raise

    def note_identity(self) -> None:
        self._identity = identity(self.fd)

    def still_open(self) -> bool:
        return self.fd < 0 or is_of(self.fd, self._identity)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        try:
            if self.begun and _pollers and _pollers[0] is not None:
                _pollers[0].settle(fd)
        finally:
            close_own(fd, self._identity)


def opened(fd: int, path: str, *, written: bool = False, direct: bool = False) -> PosixFile:
    """The open file of a descriptor, which is closed where there is no memory for that."""
    try:
        file = PosixFile(fd, path, direct=direct)
        if written:
            file.note_identity()
        return file
    except BaseException:
        os.close(fd)
        raise
