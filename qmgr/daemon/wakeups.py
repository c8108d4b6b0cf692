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
        self._before = {number: signal.signal(number, nothing) for number in signals}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def say(self, word: Any) -> None:
        """Wake the main thread with this word. Any thread, also one that holds a lock."""
        self._words.append(word)
        with contextlib.suppress(OSError):  # a full pipe wakes too, and a closed one has nobody to be woken
            os.write(self._write, WORD)

    def wait(self, seconds: float | None) -> list[Any]:
        """The signals (ints) and the words that came, in about their order; [] when the time is over."""
        self._poll.poll(None if seconds is None else seconds * 1000)
        try:
            came = os.read(self._read, 4096)
        except BlockingIOError:
            came = b""
        found: list[Any] = [number for number in came if number]
        while self._words:
            found.append(self._words.popleft())
        return found

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
