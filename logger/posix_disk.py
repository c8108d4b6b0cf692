"""The machine's own disk: files, names and locks by calls of the system. Nothing else opens or names a file."""

import contextlib
import errno
import fcntl
import json
import mmap
import os
import posix
import pwd
import re
import select
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from logger.disk import Buffer, Locks
from logger.disk_errors import NO_SPACE
from logger.errors import LogInUse

if TYPE_CHECKING:
    from logger.polled import Poller

STDERR_FD = 2
LOCK_ATTEMPTS = 2000  # a millisecond apart, while others only look
HOLDER_BYTES = 512  # of a line that a lock file may have of its last holder
PROCESS = re.compile(r"(pid \d+)( \(.*\))?")  # a holder: what `process` says, and maybe a command
PLACED = re.compile(PROCESS.pattern + r' at (\S+) on ("(?:[^"\\]|\\.)*")')  # the same, and where that number means it
MACHINE = "pid:[4026531836]"  # where process numbers mean something outside of all containers (Linux)
HUGE_PAGE = 2 << 20
NO_SUCH_FLAG = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM)  # EPERM: a filter of system calls (seccomp)
DSYNC_FILE_SYSTEMS = {b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs"}  # durable, O_DIRECT or not
NO_FULL_SYNC = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY)  # what file systems say that have none
FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, where fsync stops at the drive's own memory

PWRITEV = getattr(posix, "pwritev", None)
MOUNTS = "/proc/self/mountinfo"  # Linux: what is mounted, a line each
STATUS = "/proc/self/status"  # Linux: what there is to say of this process, a line each

Path = str | os.PathLike[str]  # as callers may give one


def _sync_all(fd: int) -> None:
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


def _identity(fd: int) -> tuple[int, int] | None:
    """Which file has this descriptor: its device and its number there; None: no file has it."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _close(fd: int, whose: tuple[int, int] | None) -> None:
    """Close the descriptor, if there is one, unless it is known to belong to another file than `whose` now."""
    if fd >= 0 and (whose is None or _identity(fd) == whose):
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
                _sync_all(self.fd)
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
        self._identity = _identity(self.fd)

    def still_open(self) -> bool:
        return self.fd < 0 or self._identity is None or _identity(self.fd) == self._identity

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        try:
            if self.begun and _pollers and _pollers[0] is not None:
                _pollers[0].settle(fd)
        finally:
            _close(fd, self._identity)


def _file(fd: int, path: str, *, written: bool = False, direct: bool = False) -> PosixFile:
    """The open file of a descriptor, which is closed where there is no memory for that."""
    try:
        file = PosixFile(fd, path, direct=direct)
        if written:
            file.note_identity()
        return file
    except BaseException:
        os.close(fd)
        raise


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
        self._file_identity, self._directory_identity = _identity(self.fd), (found.st_dev, found.st_ino)

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
        _close(directory_fd, self._directory_identity)
        fd, self.fd = self.fd, -1
        _close(fd, self._file_identity)


def _open(path: str, flags: int) -> int:
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


def _is_at(fd: int, path: str) -> bool:
    """Is what is open here the file of that name?"""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


class PosixDisk:
    """The machine's file systems. Directories are made 0700, files 0600."""

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> PosixFile:
        flags = os.O_RDWR
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        if direct and hasattr(os, "O_DIRECT"):
            try:
                return _file(_open(path, flags | os.O_DIRECT), path, written=True, direct=True)
            except OSError as exc:
                if exc.errno != errno.EINVAL:  # EINVAL: this file system has no direct writes
                    raise
                flags &= ~os.O_EXCL  # some of them create the file before they refuse
        return _file(_open(path, flags), path, written=True)

    def open_read(self, path: str) -> PosixFile:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not to wait for the writer of a pipe
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                raise OSError(errno.ESPIPE, "this is a pipe, and no file", path)
        except BaseException:
            os.close(fd)
            raise
        return _file(fd, path)

    def forget(self, path: str) -> None:
        if not hasattr(os, "posix_fadvise"):
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as exc:  # an advice only: where the system takes none it is as on one that has no such call
            if exc.errno not in NO_SUCH_FLAG:
                raise
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:  # maybe a file, or a link that leads nowhere
            if not os.path.isdir(path):
                raise

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync_all(fd)
        except OSError as exc:
            exc.filename = path
            raise
        finally:
            os.close(fd)

    def lock(self, path: str, holder: str, held: Locks | None = None) -> PosixLock:
        held = [] if held is None else held
        while True:
            lock = self._lock(path, holder, held)
            if _is_at(lock.fd, path):
                return lock
            held.remove(lock)  # its file was removed before the lock was had, so it keeps nobody out
            lock.release()

    def _lock(self, path: str, holder: str, held: Locks) -> PosixLock:
        fd = _open(path, os.O_RDWR | os.O_CREAT)
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

    def locked_by(self, path: str) -> str | None:
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

    def free_bytes(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)  # what is kept for root is neither free nor in use
        used = stat.f_blocks - stat.f_bfree
        return stat.f_bavail * stat.f_frsize, (used + stat.f_bavail) * stat.f_frsize

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def same_file_system(self, one: str, other: str) -> bool:
        return os.stat(one).st_dev == os.stat(other).st_dev

    def buffer(self, size: int) -> memoryview:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # this system has none
                memory.madvise(mmap.MADV_HUGEPAGE)  # a direct write of 1 MiB pins 256 small pages, or one of these
        return memoryview(memory)

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    def max_descriptors(self) -> int:
        most = os.sysconf("SC_OPEN_MAX")
        return most if most >= 0 else sys.maxsize

    def process(self) -> str:
        return f"pid {os.getpid()}"

    def foreign_owner(self, path: str) -> str:
        try:
            owner = os.stat(path).st_uid
        except OSError:
            return ""
        if os.geteuid() != 0 or owner == 0:
            return ""
        if _owner_of_new(path if os.path.isdir(path) else os.path.dirname(path)) in (owner, None):
            return ""
        try:
            return pwd.getpwuid(owner).pw_name
        except KeyError:
            return str(owner)

    def on_fork(self, callback: Callable[[], None]) -> None:
        os.register_at_fork(after_in_child=callback)


def _owner_of_new(directory: str) -> int | None:
    """The user that owns a file which this process makes there; on a network share that may be another one.

    None where none can be made; the call that wants to will say why.
    """
    name = f"{directory}/.owner-{os.getpid()}"
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):  # another thread has asked the same
            os.unlink(name)


def user_data_path(variable: str, application: str) -> str:
    """Where this user's data lives: what the environment variable says, else the platform's directory for it.

    "" where there is none: in a container a user may have no home.
    """
    named = os.environ.get(variable)
    if named:
        return home_path(named)
    home = os.path.expanduser("~")
    shared = os.environ.get("XDG_DATA_HOME", "")
    if sys.platform == "darwin":
        shared = f"{home}/Library/Application Support"
    elif not os.path.isabs(shared):
        shared = f"{home}/.local/share"
    return os.path.join(shared, application) if os.path.isabs(shared) else ""


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


def absolute_path(path: Path) -> str:
    return os.path.abspath(os.fspath(path))


def home_path(path: Path) -> str:
    """The absolute path, with a leading `~` or `~user` expanded; left as it is where there is no such home."""
    return absolute_path(os.path.expanduser(path))
