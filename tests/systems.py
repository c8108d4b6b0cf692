"""Other systems than Linux of 64 bits, as far as they can be had on it: taken before the queue manager is imported.

Names that only Linux has are taken away, and calls that others refuse are refused, with their errors.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import pathlib
import resource
import select
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

import asyncio  # isort: skip  # and what it imports for this system, before the system seems to be another one

FULL_SYNC = 51  # F_FULLFSYNC
OPEN_MAX = 10240
LONGEST = 103  # bytes of a Unix socket's path

ONLY_LINUX: list[tuple[ModuleType | type, list[str]]] = [
    (os, ["RWF_DSYNC", "RWF_SYNC", "O_DIRECT", "pwritev", "preadv", "fdatasync", "posix_fallocate", "posix_fadvise"]),
    (os, ["pipe2", "pidfd_open", "sched_yield", "eventfd", "memfd_create"]),
    (os, ["copy_file_range", "sendfile", "splice", "getrandom", "O_TMPFILE", "O_DSYNC", "O_SYNC", "O_PATH"]),
    (signal, ["pidfd_send_signal", "sigtimedwait", "sigwaitinfo"]),
    (socket, ["SO_PEERCRED", "TCP_QUICKACK", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "SO_REUSEPORT"]),
    (socket, ["TCP_USER_TIMEOUT", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "MSG_NOSIGNAL"]),
    (mmap, ["MADV_HUGEPAGE", "MADV_DONTNEED"]),
    (select, ["epoll"]),
]
full_syncs = 0


def bare() -> None:
    """One that has what POSIX has, and neither /proc nor /dev/fd."""
    for module, names in ONLY_LINUX:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    look, iterate = os.path.isdir, pathlib.Path.iterdir

    def isdir(path: Any) -> bool:
        return not str(path).startswith(("/proc", "/dev/fd")) and look(path)

    def iterdir(path: pathlib.Path) -> Iterator[pathlib.Path]:
        if str(path).startswith(("/proc", "/dev/fd")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return iterate(path)

    os.path.isdir, pathlib.Path.iterdir = isdir, iterdir  # type: ignore[assignment,method-assign]


def macos() -> None:
    """A sync that stops at the drive counts for nothing here: whoever makes one is refused."""
    bare()
    fsync, fchmod, limit = os.fsync, os.fchmod, resource.setrlimit

    def control(fd: int, command: int, *args: Any) -> Any:
        global full_syncs
        assert command == FULL_SYNC
        full_syncs += 1
        return fsync(fd)

    def too_little(fd: int) -> NoReturn:
        raise AssertionError("a sync that is none")

    def change(fd: int, mode: int) -> None:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fchmod(fd, mode)

    def restrict(what: int, limits: tuple[int, int]) -> None:
        if what == resource.RLIMIT_NOFILE and limits[0] > OPEN_MAX:
            raise ValueError("invalid argument")
        limit(what, limits)

    class Socket(socket.socket):
        def bind(self, address: Any, /) -> None:
            super().bind(_short(address))

        def connect(self, address: Any, /) -> None:
            super().connect(_short(address))

    sys.platform = "darwin"
    fcntl.F_FULLFSYNC = FULL_SYNC  # type: ignore[attr-defined]
    fcntl.fcntl, os.fsync, os.fchmod, resource.setrlimit = control, too_little, change, restrict  # type: ignore[assignment]
    socket.socket = Socket  # type: ignore[misc]


def share() -> None:
    """macOS, on a file system that knows no full sync."""
    fsync = os.fsync
    macos()

    def control(fd: int, command: int, *args: Any) -> NoReturn:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    fcntl.fcntl, os.fsync = control, fsync  # type: ignore[assignment]


def narrow() -> None:
    """Linux of 32 bits whose times have 64, as Debian's armhf: a number of C's `long` has four bytes."""
    wide = struct.Struct
    struct.Struct = lambda form: wide({"@ll": "=ii"}.get(form, form))  # type: ignore[assignment,misc]
    socket.SO_RCVTIMEO, socket.SO_SNDTIMEO = 66, 67  # type: ignore[misc]


def _short(address: Any) -> Any:
    if isinstance(address, str) and len(address) > LONGEST:
        raise OSError("AF_UNIX path too long")
    return address


# ---- what is done there


def life(data: str) -> None:
    """Put, crash, restart and get, in this process."""
    import qmgr

    qmgr.create("QM1", data_path=data)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            manager = qmgr.start("QM1", data_path=data)
            manager.define_queue("Q")
            manager.put_many("Q", [b"x" * 5000] * 300)
            manager.checkpoint()
            with manager.begin() as unit:
                unit.put("Q", b"the last")
            manager.begin().put("Q", b"never committed")
            os._exit(9)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with qmgr.start("QM1", data_path=data) as manager:
        found = [message.body for message in manager.get_many("Q", 999)]
        assert found == [b"x" * 5000] * 300 + [b"the last"]


def daemon(data: str) -> None:
    """A daemon, from its start to its end, and clients of it."""
    import qmgr
    import qmgr.aio
    from qmgr.cli import main

    def say(*words: str) -> None:
        assert main.qm(words) == 0, words

    os.environ["QMGR_DATA_PATH"] = data
    say("crtmqm", "QM1")
    say("strmqm", "QM1")
    try:
        with qmgr.connect("QM1", data_path=data) as connection:
            connection.define_queue("Q")
            with connection.begin() as unit:
                unit.put("Q", b"there")

        async def there_and_back() -> bytes:
            async with qmgr.aio.connect("QM1", data_path=data) as connection:
                return (await connection.get("Q")).body

        assert asyncio.run(there_and_back()) == b"there"
        say("dspmq", "-m", "QM1")
    finally:
        say("endmqm", "-p", "QM1")
    say("strmqm", "QM1")
    say("endmqm", "-w", "QM1")
    say("dltmqm", "QM1")
    assert not os.path.exists(f"{data}/qmgrs/QM1")
