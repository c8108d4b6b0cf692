"""Things with a time: the steady clock that expiry counts by, and callers that wait for a message."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from logger.clock import Clock


class SteadyClock:
    """Wall time that never jumps: set once, at the start, then driven by elapsed time.

    Messages keep the moment at which they expire across restarts, so it goes on from where it stood at the last
    checkpoint (`then_us`), by what the wall clock has gone on since (from `wall_us`). It may lag behind the wall clock,
    where that has jumped; it never starts ahead of it, unless that was set back.
    """

    def __init__(self, clock: Clock, then_us: int, wall_us: int = 0) -> None:
        self._clock = clock
        wall = clock.wall_us()
        start = min(then_us + max(0, wall - wall_us), max(wall, then_us))
        self._offset_us = start - clock.elapsed_ns() // 1000

    def now_us(self) -> int:
        return self._offset_us + self._clock.elapsed_ns() // 1000


class Waiter(Protocol):
    """Who stands in line; `set` is called under the queue manager's lock, so it only passes the word on."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


Fits = Callable[[bytes], bool]  # is the message with this head one that a waiter takes?


class Waiters:
    """Callers that wait at a queue, first come first served. The queue manager's lock guards it."""

    __slots__ = ("line",)

    def __init__(self) -> None:
        self.line: deque[tuple[Waiter, Fits | None]] = deque()

    def add(self, waiter: Waiter, fits: Fits | None = None) -> None:
        """Stand in line; the waiter is set when there may be something. `fits`: only for certain messages."""
        self.line.append((waiter, fits))

    def discard(self, waiter: Waiter) -> None:
        line = self.line  # once: `wake_all`, which may run without the lock, replaces it
        for place, (event, _) in enumerate(line):
            if event is waiter:
                del line[place]
                return

    def wake_one(self, head: bytes = b"") -> None:
        """A message has come: wake the first in line who takes any message, and all who wait for ones like it.

        `head` is the message's; b"": it is not known, and all who wait for certain ones are woken. To ask whether it
        fits each of them costs less than to wake a crowd in vain.
        """
        left: deque[tuple[Waiter, Fits | None]] = deque()
        woken = False
        for event, fits in self.line:
            if woken if fits is None else head and not fits(head):
                left.append((event, fits))
            else:
                event.set()
                woken = woken or fits is None
        self.line = left

    def wake_all(self) -> None:
        """Wake everyone in line, also those who join meanwhile.

        The caller may not hold the lock: a queue manager is stopped without it. So the line is replaced instead of
        changed, since another thread may be going through it. An interrupt leaves those in line who may not be awake.
        """
        while self.line:
            line = self.line
            try:
                self.line = deque()
                for event, _ in tuple(line):
                    event.set()
            except BaseException:
                if self.line is not line:
                    line.extend(self.line)
                    self.line = line
                raise
