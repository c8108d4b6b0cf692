"""Strangers: connections that are not authenticated yet. Their number has a limit: then the oldest goes for a new one.

So somebody who opens connections and says nothing takes no room from known clients. Of the strangers silent ones go
first, and none goes before it has had a moment to speak: many clients that come at once are no attack.
"""

import threading
from collections.abc import Callable

from logger.posix_disk import PosixDisk

MAX_STRANGERS = 200  # of one listener
DESCRIPTORS_PER_STRANGER = 32  # of the process, for each stranger of a listener: there may be several listeners
MIN_STRANGERS = 8
GRACE_NS = 1_000_000_000  # that each has to say something, however many others come


class Stranger:
    """A connection that is not authenticated yet."""

    def __init__(self, came: int, cut: Callable[[], object]) -> None:
        self.came = came
        self.cut = cut  # closes its connection, at once
        self.spoken = False  # it has sent something


class Strangers:
    """Those of one listener. Thread-safe; `cut` is called by whoever brings a new one."""

    def __init__(self, ticks: Callable[[], int], crowded: Callable[..., None], most: int = 0) -> None:
        """`ticks()` in nanoseconds; `crowded(count=…)` is called when one has to go, once until there is room.

        `most`: of them at a time; 0: as many as there are descriptors for, and MAX_STRANGERS at the most.
        """
        self._ticks = ticks
        self._crowded = crowded
        self._most = most or max(
            MIN_STRANGERS, min(MAX_STRANGERS, PosixDisk().max_descriptors() // DESCRIPTORS_PER_STRANGER)
        )
        self._full = False
        self._there: dict[Stranger, None] = {}  # in the order in which they came
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._there)

    def admit(self, cut: Callable[[], object]) -> Stranger | None:
        """One more; None: there is no room now, try again in a moment."""
        with self._lock:
            now = self._ticks()
            goes = None
            if len(self._there) >= self._most:
                goes = self._evictable(now)
                if goes is None:
                    return None
                del self._there[goes]
            told, self._full = self._full, goes is not None
            new = Stranger(now, cut)
            self._there[new] = None
        if goes is not None:
            goes.cut()
            if not told:
                self._crowded(count=len(self))
        return new

    def _evictable(self, now: int) -> Stranger | None:
        """The oldest silent one that has had its moment, else the oldest that has; None: no one may go yet."""
        patient = [one for one in self._there if now - one.came >= GRACE_NS]
        return next((one for one in patient if not one.spoken), patient[0] if patient else None)

    def cut_all(self) -> None:
        """Where nobody knows any more how far each of them has got."""
        while self._there:
            one = next(iter(self._there))
            one.cut()
            self.leave(one)

    def leave(self, one: Stranger) -> None:
        """It is known now, or gone."""
        with self._lock:
            self._there.pop(one, None)
