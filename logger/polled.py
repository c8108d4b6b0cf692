"""Durable writes whose end is looked for instead of slept for: Linux's asynchronous writes, by system call.

Who sleeps until the disk has answered is woken late and finds the processor's caches cold: the Python code up to the
next write then takes twice as long. So for a moment this looks again and again, and between two looks lets go of the
GIL and of the processor. Where the disk takes longer, or somebody else wants the processor, looking has cost more than
it saved: the next writes are left to the usual call, and the more of them the more often that happens.
"""

import ctypes
import errno
import os
import platform
import threading
from time import perf_counter_ns
from typing import Any

CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}  # io_setup, io_destroy, io_submit, io_getevents
PWRITE = 1
MAGIC = 0xA10A10A1
TAIL, MAGIC_AT = 12, 16  # bytes of the ring in which the system shows what is done
LONGEST = 500_000  # nanoseconds to look for
TAKEN = 200_000  # nanoseconds between two looks when somebody else has had the processor
LEAST, MOST = 16, 4096  # writes that are left to the usual call after that


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


class _Done(ctypes.Structure):
    """The system's struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result_2", ctypes.c_int64),
    )


class Poller:
    """Makes such writes, one at a time."""

    def __init__(self) -> None:
        """Raises OSError where the system has no such calls, or does not let this process make them."""
        if platform.machine() not in CALLS or ctypes.sizeof(ctypes.c_void_p) != 8:  # 32 bits have other numbers
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._setup, self._destroy, self._submit, self._get_events = CALLS[platform.machine()]
        libc = ctypes.CDLL(None, use_errno=True)
        self._call, self._give_way = libc.syscall, libc.sched_yield  # each lets go of the GIL
        self._context = ctypes.c_ulong()
        if self._call(self._setup, 1, ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._open = True
        if ctypes.c_uint32.from_address(self._context.value + MAGIC_AT).value != MAGIC:
            self.close()
            raise OSError(errno.ENOSYS, "the system does not show what is done")
        self._tail = ctypes.c_uint32.from_address(self._context.value + TAIL)  # rises when a write is done
        self._request = _Request(operation=PWRITE, flags=os.RWF_DSYNC)
        self._requests = ctypes.pointer(ctypes.pointer(self._request))
        self._done = _Done()
        self._to_done = ctypes.byref(self._done)
        self._memory: ctypes.c_char | None = None  # what is written, kept while it is
        self._one_at_a_time = threading.Lock()
        self._pause = LEAST
        self._left_out = 0  # writes still to be left to the usual call

    def write(self, fd: int, data: Any, offset: int) -> int:
        """Write as `os.pwritev` with RWF_DSYNC does, and return the same; -1: it is not for this, and nothing is done.

        `data` is a writable buffer, since ctypes tells no other one's address.
        """
        if self._left_out:
            self._left_out -= 1
            return -1
        if not self._one_at_a_time.acquire(blocking=False):
            return -1
        try:
            if not self._open:
                return -1
            request = self._request
            self._memory = ctypes.c_char.from_buffer(data)
            request.fd, request.offset = fd, offset
            request.address, request.size = ctypes.addressof(self._memory), len(data)
            tail = self._tail
            before = tail.value
            try:
                if self._call(self._submit, self._context, 1, self._requests) != 1:
                    return -1
                self._look(tail, before)
                while self._call(self._get_events, self._context, 1, 1, self._to_done, None) != 1:
                    pass  # a signal
            except BaseException:  # whoever hears of it may use the memory again, so it must not be under way any more
                try:
                    self.close()
                finally:
                    self.close()
                raise
            done: int = self._done.result
            if done < 0:
                raise OSError(-done, os.strerror(-done))
            return done
        finally:
            self._one_at_a_time.release()

    def _look(self, tail: ctypes.c_uint32, before: int) -> None:
        """Look until the write is done, or it takes too long."""
        give_way, clock = self._give_way, perf_counter_ns
        began = now = clock()
        while tail.value == before:
            last = now
            give_way()
            now = clock()
            if now - last > TAKEN or now - began > LONGEST:
                self._left_out = self._pause
                self._pause = min(2 * self._pause, MOST)
                return
        if self._pause > LEAST:
            self._pause //= 2

    def close(self) -> None:
        """Wait for what is under way; nothing is written any more. Said twice, it is the same."""
        if self._open:
            self._call(self._destroy, self._context)
            self._open = False
