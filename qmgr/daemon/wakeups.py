"""What wakes the main thread of a daemon: signals, and words from other threads. Nothing is done in a handler."""

import collections
import contextlib
import os
import select
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Any

WORD = b"\0"  # no signal has this number


def nothing(_number: int, _frame: FrameType | None) -> None:
    """A handler there must be: without one a signal does what the system has for it."""


class Wakeups:
    """A pipe that signals and threads write to. Made and waited for in the main thread."""

    def __init__(self, signals: Iterable[int]) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _pipe()
        self._poll = select.poll()  # select takes no number from 1024 on
        self._poll.register(self._read, select.POLLIN)
        self._words: collections.deque[Any] = collections.deque()
        self._buffers = [bytearray(256)]  # CPython keeps the ints up to 256, so to count in it takes no memory
        self._at = self._end = 0  # what was read, and is not among the words yet
        self._before = {number: signal.signal(number, nothing) for number in signals}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def say(self, word: Any) -> None:
        """Wake the main thread with this word. Any thread, also one that holds a lock."""
        self._words.append(word)
        with contextlib.suppress(OSError):  # a full pipe wakes too, and a closed one has nobody to be woken
            os.write(self._write, WORD)

    def wait(self, seconds: float | None) -> collections.deque[Any]:
        """The signals (ints) and the words that came, in about their order; none when the time is over.

        They stay there until they are taken out from the left, and a MemoryError loses none of them.
        """
        if not self._words and self._at == self._end:
            self._poll.poll(None if seconds is None else seconds * 1000)
        if self._at == self._end:
            self._at = self._end = 0
            try:
                self._end = os.readv(self._read, self._buffers)
            except BlockingIOError:
                return self._words
        came = self._buffers[0]
        while self._at < self._end:
            if came[self._at]:
                self._words.append(came[self._at])
            self._at += 1
        return self._words

    def close(self, *, deaf: bool = False) -> None:
        """Set the handlers that were there before; `deaf`: ignore the signals from now on instead."""
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if deaf else handler)
        for fd in (self._read, self._write):
            os.close(fd)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends
