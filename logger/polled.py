"""Durable writes whose completion is polled: Linux's asynchronous I/O (io_submit), by system call.

A thread that sleeps until the disk has answered is woken late and finds the processor's caches cold: the Python code up
to the next write then takes twice as long. So this polls for at most POLL_MAX_NS, and yields the GIL and the processor
between two polls. If the disk takes longer, or another process gets the processor, polling costs more than it saves:
the next writes use the usual call, and the number of those doubles each time (backoff).
"""

import contextlib
import ctypes
import errno
import os
import platform
import threading
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

SYSCALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}  # io_setup, io_destroy, io_submit, io_getevents
LIBC_WRITES = ("pwritev64v2", "pwritev2", "fdatasync")  # of the C library's, what Python calls; musl has no first one
PWRITE = 1
RING_MAGIC = 0xA10A10A1
SIZE, HEAD, TAIL, RING_MAGIC_AT, LENGTH, EVENTS = 4, 8, 12, 16, 28, 32  # bytes of the ring that shows what is done
WORDS, RESULT = 4, 2  # of an event there: how many it has, and which of them says what came of the write
IN_ORDER_MACHINE = "x86_64"  # it reads in the order of the program: when the tail has moved, the event is there
POLL_MAX_NS = 300_000
PREEMPTED_NS = 200_000  # between two looks when somebody else has had the processor
STARVED_NS = 5_000_000  # the same where others are many, or this process may use no more of it for now (a quota)
MIN_BACKOFF, MAX_BACKOFF = 16, 4096  # writes that are left to the usual call after that
BACKOFF_HALVED_AFTER = 256  # writes in time, one after the other
DESTROY_TRIES = 250  # of the context, which waits for its write
ABANDONED_AFTER = 16  # writes of other logs, after which one that was begun and that nobody asks for is closed
MS_ASYNC = 1
RTLD_NOLOAD, RTLD_DI_LINKMAP = 4, 2


class _Request(ctypes.Structure):
    """The system's struct iocb."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("operation", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("more_flags", ctypes.c_uint32),
        ("event_fd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """The system's struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result_2", ctypes.c_int64),
    )


class _DlInfo(ctypes.Structure):
    """The system's Dl_info: where a function of a library lies."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _LinkMap(ctypes.Structure):
    """The system's struct link_map: what is loaded, the program first, in the order in which functions are found."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("file", ctypes.c_char_p),
        ("dynamic", ctypes.c_void_p),
        ("next", ctypes.c_void_p),
        ("previous", ctypes.c_void_p),
    )


def _loaded(libc: ctypes.CDLL) -> Iterator[_LinkMap]:
    """The program and its libraries. Raises OSError: they are not known."""
    program = ctypes.c_void_p()
    if libc.dlinfo(ctypes.c_void_p(libc._handle), RTLD_DI_LINKMAP, ctypes.byref(program)) != 0:
        raise OSError(errno.ENOTSUP, "the system does not say what this process has loaded")
    at = program.value
    while at:
        one = _LinkMap.from_address(at)
        yield one
        at = one.next


def _base_of(libc: ctypes.CDLL, function: object) -> int | None:
    """Where the library begins, or the program, in which this function lies."""
    place = _DlInfo()
    libc.dladdr(function, ctypes.byref(place))
    base: int | None = place.base
    return base


def _library_base(libc: ctypes.CDLL, name: str) -> int | None:
    """Where the library begins that has this function for the whole process. Raises AttributeError: none has it.

    A program that is linked for a fixed address, as the Python of Debian is, seems to have each function whose address
    it takes: a stub, which leads to the first library that has the function.
    """
    found = _base_of(libc, getattr(libc, name))
    program, *libraries = _loaded(libc)
    for library in [] if program.base else libraries:
        with contextlib.suppress(OSError, AttributeError):  # the vdso is no file; not every library has the function
            there = ctypes.CDLL(os.fsdecode(library.file), mode=RTLD_NOLOAD)
            behind = _base_of(libc, getattr(there, name))
            if behind == library.base:  # its own, and not that of a library that it needs
                return behind
    return found


def _is_interposed(libc: ctypes.CDLL) -> bool:
    """Does another library write, or sync, in the place of the C library (LD_PRELOAD)? It is to see what is written."""
    there = [name for name in LIBC_WRITES if hasattr(libc, name)]
    return {_library_base(libc, name) for name in there} != {_library_base(libc, "syscall")}


def _is_mapped(libc: ctypes.CDLL, address: int) -> bool:
    """Has this process memory there? This writes nothing, and is refused where there is none."""
    return bool(libc.msync(ctypes.c_void_p(address), 1, MS_ASYNC) == 0)


class Poller:
    """Makes such writes, one at a time; `begin` starts one, and the next `write` waits for it."""

    def __init__(self) -> None:
        """Raises OSError where the system has no such calls, or does not let this process make them."""
        if platform.machine() not in SYSCALLS or ctypes.sizeof(ctypes.c_void_p) != 8:  # 32 bits have other numbers
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._setup, self._destroy, self._submit, self._get_events = SYSCALLS[platform.machine()]
        self._libc = libc = ctypes.CDLL(None, use_errno=True)
        if _is_interposed(libc):
            raise OSError(errno.ENOTSUP, "a library that came before the C library writes for this process")
        self._call, self._give_way = libc.syscall, libc.sched_yield  # each lets go of the GIL
        self._request = _Request(operation=PWRITE, flags=os.RWF_DSYNC)
        self._requests = ctypes.pointer(ctypes.pointer(self._request))
        self._io_event = _Event()
        self._io_event_ref = ctypes.byref(self._io_event)
        self._data: Any = None  # what was written last, kept at least while it is
        self._memory: ctypes.c_char | None = None  # the same
        self._lock = threading.Lock()  # taken by `with` only: no interrupt strikes between that and what gives it back
        self._waiter: object = None  # the caller that waits for the end of a write, without the lock
        self._begun: tuple[int, int] | None = None  # descriptor and offset of a write that was started by `begin`
        self._tail_before = 0  # what the ring showed then
        self._writes_since = 0  # writes that were left to the usual call since then
        self._backoff = MIN_BACKOFF
        self._skips_left = 0  # writes still to be left to the usual call
        self._in_time = 0  # writes since the last one that was not
        self._unknown = OSError(errno.EIO, "it is not known whether a write that was interrupted is over")
        try:
            self._begin()
        except OSError as exc:
            if exc.errno != errno.EAGAIN:
                raise
            self._skips_left = MAX_BACKOFF  # others have all that the system gives (fs.aio-max-nr); maybe not for long

    def _begin(self) -> None:
        """Have a context of the system's. Raises OSError."""
        self._context = ctypes.c_ulong()
        self._idle = False
        if self._call(self._setup, 1, ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        shown = _is_mapped(self._libc, self._context.value) and (
            ctypes.c_uint32.from_address(self._context.value + RING_MAGIC_AT).value == RING_MAGIC
        )
        if not shown or self._call(self._get_events, self._context, 0, 1, self._io_event_ref, None) != 0:
            self.close()
            raise OSError(errno.ENOSYS, "the system does not show what is done")
        ring, number = self._context.value, ctypes.c_uint32.from_address
        self._tail = number(ring + TAIL)  # which event is the next: moves when a write is done
        self._head = number(ring + HEAD)  # up to where they were taken note of
        self._events = (ctypes.c_int64 * (WORDS * number(ring + SIZE).value)).from_address(ring + EVENTS)
        self._reads_ring = platform.machine() == IN_ORDER_MACHINE and number(ring + LENGTH).value == EVENTS
        self._idle = True  # nothing is under way, and nobody has closed it

    def begin(self, fd: int, data: Any, offset: int) -> bool:
        """Begin to write; the `write` with the same that follows waits for the end. Until then `data` stays as it is.

        False: nothing is done.
        """
        if self._skips_left > 0:
            return False
        with self._lock:
            if self._waiter is not None or self._begun is not None or not (self._idle or self._renew()):
                return False
            try:
                os.lseek(fd, 0, os.SEEK_CUR)  # as below
            except OSError:
                return False  # the write will meet it too
            return self._start(fd, data, offset)

    def write(self, fd: int, data: Any, offset: int) -> int:
        """Write as `os.pwritev` with RWF_DSYNC does, and return the same; -1: it is not for this, and nothing is done.

        `data` is a writable buffer, since ctypes tells no other one's address.
        """
        if self._skips_left > 0 and self._begun is None and (self._idle or not self._context.value):
            self._skips_left -= 1  # otherwise one that was struck may be under way
            return -1
        me: list[None] = []  # made without a call, after which an interrupt may strike
        try:
            with self._lock:
                if self._waiter is not None:
                    return -1
                self._waiter = me
                if self._begun is not None:
                    if not self._is_begun(fd, data, offset):
                        return -1
                else:
                    if not (self._idle or self._renew()):
                        return -1
                    os.lseek(fd, 0, os.SEEK_CUR)  # by this way a pipe is written, too, that has got the descriptor
                    if not self._start(fd, data, offset):
                        return -1
                self._begun = None
            done = self._finish()
        except BaseException:
            if self._waiter is me:  # the caller may reuse the memory, and write to the same place
                try:
                    self.close()
                finally:
                    self.close()
            raise
        finally:
            if self._waiter is me:
                self._waiter = None
        if done == -errno.EINTR:  # the usual call would begin again
            return -1
        if done < 0:
            raise OSError(-done, os.strerror(-done))
        return done

    def settle(self, fd: int) -> None:
        """What was begun with this descriptor is over when this returns. Raises OSError where that can't be done."""
        with self._lock:
            if self._begun is not None and self._begun[0] == fd:
                self.close()

    def _is_begun(self, fd: int, data: Any, offset: int) -> bool:
        """Is it this write that was begun?

        Else it stays under way; after ABANDONED_AFTER such calls it is waited for and closed, as its owner seems gone.
        """
        if self._begun == (fd, offset) and data is self._data:
            return True
        self._writes_since += 1
        if self._writes_since >= ABANDONED_AFTER:
            self.close()
        return False

    def _start(self, fd: int, data: Any, offset: int) -> bool:
        """Have the system write; False: it does not. Nothing is under way, and the lock is held."""
        request = self._request
        if data is not self._data:  # a log writes the same page again and again
            self._data = None  # whatever strikes, this is not the address of something else
            self._memory = ctypes.c_char.from_buffer(data)
            request.address, request.size = ctypes.addressof(self._memory), len(data)
            self._data = data
        request.fd, request.offset = fd, offset
        self._tail_before = self._tail.value
        self._writes_since = 0
        try:
            self._idle, self._begun = False, (fd, offset)
            if self._call(self._submit, self._context, 1, self._requests) == 1:
                return True
        except BaseException:
            try:
                self.close()
            finally:
                self.close()
            raise
        self._idle, self._begun = True, None
        return False

    def _finish(self) -> int:
        """What the system says of the write that is under way: bytes written, or an error's number below 0."""
        before = self._tail_before
        self._poll(before)
        after = self._tail.value
        if self._reads_ring and after != before:  # as the system's call, which takes a microsecond more
            done: int = self._events[WORDS * before + RESULT]
            self._head.value = after
            self._idle = True
            return done
        while self._call(self._get_events, self._context, 1, 1, self._io_event_ref, None) != 1:
            if ctypes.get_errno() != errno.EINTR:
                raise self._unknown
        done = self._io_event.result
        self._idle = True
        return done

    def _poll(self, before: int) -> None:
        """Look until the write is done, or it takes too long."""
        tail, give_way, clock = self._tail, self._give_way, perf_counter_ns
        began = now = clock()
        while tail.value == before:
            last = now
            give_way()
            now = clock()
            if now - last > PREEMPTED_NS or now - began > POLL_MAX_NS:
                self._skips_left = MAX_BACKOFF if now - last > STARVED_NS else self._backoff
                self._backoff = min(2 * self._backoff, MAX_BACKOFF)
                self._in_time = 0
                return
        self._in_time += 1
        if self._in_time % BACKOFF_HALVED_AFTER == 0:
            self._backoff = max(MIN_BACKOFF, self._backoff // 2)

    def close(self) -> None:
        """Wait for what is under way; what strikes meanwhile is raised afterwards. Calling it twice is harmless.

        Raises OSError where that can't be done.
        """
        self._idle, self._begun = False, None
        left, struck = DESTROY_TRIES, None
        while left:
            left -= 1
            try:
                if self._call(self._destroy, self._context) == 0 or ctypes.get_errno() == errno.EINVAL:
                    self._context.value = 0  # the system may give its number to somebody else
                    break
            except BaseException as exc:  # an interrupt, or no memory, which there may be soon
                struck = exc
        else:
            raise self._unknown
        if struck is not None:
            raise struck

    def _renew(self) -> bool:
        """Replace the context, which is closed, by a new one; False where the system gives none."""
        self.close()
        try:
            self._begin()
        except OSError:
            self._skips_left = MAX_BACKOFF
        return self._idle
