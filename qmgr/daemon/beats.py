"""Beats: heartbeats. One thread tells clients whose calls take long that these are at work, as often as they want it.

A client gives a daemon up that says nothing for long. Waits and the calls of operators may take longer than that; so
may a look at much of the log. Nothing is told of what takes long for a reason of its own, such as a disk that hangs.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol

from logger.clock import Clock

NEVER = 1 << 63  # nanoseconds


class Busy(Protocol):
    """A call that takes long."""

    due: int  # when the client is to be told, by the clock's `elapsed_ns`

    def on_due(self, now: int) -> None:
        """Tell the client, if it is still at work, without waiting; `due` is later then."""


class Beats:
    """Sends the heartbeats of one daemon. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: dict[Busy, None] = {}
        self._next = NEVER  # when the thread wakes by itself
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="qmgr beats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @contextlib.contextmanager
    def during(self, call: Busy) -> Iterator[None]:
        """In the block the call is at work."""
        self.add(call)
        try:
            yield
        finally:
            self.remove(call)

    def add(self, call: Busy) -> None:
        with self._lock:
            self._busy[call] = None
            first = call.due < self._next
        if first:  # most often it is awake before then anyway
            self._wake.set()

    def remove(self, call: Busy) -> None:
        with self._lock:
            self._busy.pop(call, None)

    def _run(self) -> None:
        while not self._ended:
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

    def close(self) -> None:
        self._ended = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
