"""Beats: heartbeats. One thread tells clients, as often as they have asked, that their long calls are still at work.

A client gives up a daemon that is silent for long. Waits, calls of operators, calls of many messages and looks at much
of the log may take longer than that. Calls that should be quick send no heartbeats: where one takes long something is
wrong, such as a disk that hangs, and the client is to notice.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol

from logger.clock import Clock
from logger.condition import Event
from qmgr.threads import Thread, go_on

NEVER = 1 << 63  # nanoseconds


class Busy(Protocol):
    """A call that takes long, or a turn of `rounds` whose force may."""

    due: int  # when `on_due` is to be called, by the clock's `elapsed_ns`

    def on_due(self, now: int) -> None:
        """Tell the client that the call is still at work, without waiting, and set `due` to the next time."""


class Beats:
    """Sends the heartbeats of one listener. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: dict[Busy, None] = {}
        self._next = NEVER  # when the thread wakes by itself
        self._wake = Event()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = Thread(self._run, "qmgr beats")

    def start(self) -> None:
        self._thread.start()

    @contextlib.contextmanager
    def during(self, call: Busy) -> Iterator[None]:
        """Send heartbeats for the call while the block lasts."""
        self.add(call)
        try:
            yield
        finally:
            self.remove(call)

    def add(self, call: Busy) -> None:
        with self._lock:
            self._busy[call] = None
            first = call.due < self._next
        if first:  # else the thread wakes in time by itself
            self._wake.set()

    def remove(self, call: Busy) -> None:
        with self._lock:
            self._busy.pop(call, None)

    def _run(self) -> None:
        go_on(self._tell_those_due)

    def _tell_those_due(self) -> bool:
        """Send the heartbeats that are due, and wait for the next; False: it ends."""
        if self._ended:
            return False
        now = self._clock.elapsed_ns()
        with self._lock:
            due = [call for call in self._busy if call.due <= now]
        for call in due:
            call.on_due(now)
        with self._lock:
            self._next = min((call.due for call in self._busy), default=NEVER)
            left = None if self._next == NEVER else max(0.0, (self._next - now) / 1e9)
        self._clock.wait(self._wake, left)
        self._wake.clear()
        return True

    def close(self) -> None:
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
