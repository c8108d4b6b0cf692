"""The machine's own disk: files, names and locks by calls of the system. Nothing else opens or names a file."""

import contextlib
import errno
import mmap
import os
import pwd
import stat
import sys
from collections.abc import Callable
from time import perf_counter_ns

from logger import posix_lock
from logger.disk import Locks
from logger.posix_file import NO_SUCH_FLAG, PosixFile, open_written, opened, sync_all
from logger.posix_lock import PosixLock

HUGE_PAGE = 2 << 20
SLOW_SYNC_NS = 500_000  # to begin a thread, and to wait for its end, takes a third of that

Path = str | os.PathLike[str]  # as callers may give one


class PosixDisk:
    """The machine's file systems. Directories are made 0700, files 0600."""

    _sync_ns = 0  # that the last sync of a directory took; each checkpoint makes one

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> PosixFile:
        flags = os.O_RDWR
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        if direct and hasattr(os, "O_DIRECT"):
            try:
                return opened(open_written(path, flags | os.O_DIRECT), path, written=True, direct=True)
            except OSError as exc:
                if exc.errno != errno.EINVAL:  # EINVAL: this file system has no direct writes
                    raise
                flags &= ~os.O_EXCL  # some of them create the file before they refuse
        return opened(open_written(path, flags), path, written=True)

    def open_read(self, path: str) -> PosixFile:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not to wait for the writer of a pipe
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                raise OSError(errno.ESPIPE, "this is a pipe, and no file", path)
        except BaseException:
            os.close(fd)
            raise
        return opened(fd, path)

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
        begun = perf_counter_ns()
        try:
            sync_all(fd)
        except OSError as exc:
            exc.filename = path
            raise
        finally:
            os.close(fd)
        self._sync_ns = perf_counter_ns() - begun

    def lock(self, path: str, holder: str, held: Locks | None = None) -> PosixLock:
        return posix_lock.take(path, holder, held)

    def locked_by(self, path: str) -> str | None:
        return posix_lock.locked_by(path)

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

    def syncs_at_once(self) -> bool:
        return self._sync_ns >= SLOW_SYNC_NS

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


def absolute_path(path: Path) -> str:
    return os.path.abspath(os.fspath(path))


def home_path(path: Path) -> str:
    """The absolute path, with a leading `~` or `~user` expanded; left as it is where there is no such home."""
    return absolute_path(os.path.expanduser(path))
