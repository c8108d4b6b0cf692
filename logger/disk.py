"""The disk as all else sees it: what files, names and locks can do. `posix_disk.py` is the machine's own.

What holds, here and in the simulated disk of the tests: a write is durable once a `sync` of that file that began
after it has returned; a created, renamed or removed name is durable once `sync_dir` of its directory has returned.
"""

from collections.abc import Callable
from typing import Protocol

PAGE = 4096  # bytes; the unit of alignment for direct writes
Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Every method raises OSError."""

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, fewer only where the file ends."""
        ...

    def write(self, offset: int, data: Buffer) -> None:
        """Write all of `data` at `offset`, going on after a short write."""
        ...

    def write_durably(self, offset: int, data: Buffer, *, may_poll: bool = False) -> None:
        """Write all of `data` at `offset` and make just that durable: not what was written before.

        `may_poll`: it is memory of `buffer`, and nobody else waits; the processor may be kept for a moment.
        """
        ...

    def begin_durably(self, offset: int, data: Buffer) -> bool:
        """Begin `write_durably(offset, data, may_poll=True)`, which follows; until then `data` stays as it is.

        False: nothing was begun, and that call does it all.
        """
        ...

    def sync(self) -> None:
        """Make durable what was written before this call began."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def still_open(self) -> bool:
        """Is its descriptor still that of this file? For one that is open for writing; once closed it has none.

        A program may close descriptors that are not its own, and the system gives their numbers to other files.
        """
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """Ownership of a lock file, held until released or until the process ends."""

    directory: str  # that it lies in

    def write(self, data: bytes) -> None:
        """Overwrite the content that others read; in this file, even if another one has its name now."""
        ...

    def in_place(self) -> bool:
        """Does the path of its directory still lead to the one that it was taken in?

        Not where that was moved away, or its file system unmounted or mounted over: files that are open stay what they
        are, and those that are opened by their names from now on are others.
        """
        ...

    def release(self) -> None: ...


Locks = list[Lock]


class Disk(Protocol):
    """A tree of names. Paths are absolute, with `/` between the parts. Every method raises OSError."""

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> File:
        """Open for reading and writing. `create`: must not exist yet. `direct`: whole aligned pages are written."""
        ...

    def open_read(self, path: str) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; [] when there is no such directory."""
        ...

    def forget(self, path: str) -> None:
        """Drop what the system's memory holds of a file and takes for written, so that the next read is from the disk.

        After a sync that failed the two may differ, and no later sync makes them the same.
        """
        ...

    def rename(self, old: str, new: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None:
        """Make one directory; no error when it is there."""
        ...

    def rmdir(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def lock(self, path: str, holder: str, held: Locks | None = None) -> Lock:
        """Own the lock file at `path`, leaving `holder` in it to tell others; raises LogInUse with its holder.

        The lock is put into `held` before it is taken, so that an interrupted caller can still release it.
        """
        ...

    def locked_by(self, path: str) -> str | None:
        """Who owns the lock file at `path` now, or None."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(free, total) bytes of the file system that holds `path`; the rest of the total is in use."""
        ...

    def same_file_system(self, one: str, other: str) -> bool: ...

    def real_path(self, path: str) -> str:
        """The path without links and detours; of a file that need not be there."""
        ...

    def buffer(self, size: int) -> memoryview:
        """Zeroed, writable memory, aligned as direct writes want it."""
        ...

    def entropy(self, size: int) -> bytes: ...

    def syncs_at_once(self) -> bool:
        """Does a sync take so long just now that those of several files had better run at the same time?

        Each in a thread of its own, which has its cost too.
        """
        ...

    def max_descriptors(self) -> int:
        """How many descriptors this process may have."""
        ...

    def process(self) -> str:
        """This process in words, for lock files and messages: `pid 4711`."""
        ...

    def foreign_owner(self, path: str) -> str:
        """Who owns the file, where this is root and what root makes beside it is not that user's too; else ""."""
        ...

    def on_fork(self, callback: Callable[[], None]) -> None:
        """Call `callback` in every child that this process forks."""
        ...
