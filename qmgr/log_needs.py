"""What needs the log: a restart, media recovery, and who reads it; so from which extent on it has to stay."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator

from logger.extent import file_name, linear_number
from logger.log import Log
from qmgr.engine import Engine

MAX_IDLE_NS = 15 * 60 * 1_000_000_000  # so long a reader that reads nothing keeps what it still has to read


def name_of(sequence: int) -> str:
    return file_name(linear_number(sequence))


class Reading:
    """Somebody reads the log, and still has to read what begins at `lsn`.

    One that says since when it is idle no longer counts after MAX_IDLE_NS, and has to pin anew before it reads on.
    """

    __slots__ = ("__weakref__", "idle_since", "lsn")

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.idle_since: int | None = None  # by the clock's `elapsed_ns`; None: it is at work

    def counts(self, now: int) -> bool:
        """Does it keep extents at the moment `now`? A reader that was idle for too long finds out by `resume`."""
        since = self.idle_since
        return since is None or now - since < MAX_IDLE_NS

    def resume(self, ticks: Callable[[], int]) -> bool:
        """It is at work again. False: it has not counted for a while, so what it needs may be gone."""
        since, self.idle_since = self.idle_since, None
        return since is None or ticks() - since < MAX_IDLE_NS

    def move(self, lsn: int) -> None:
        self.lsn = lsn


class LogNeeds:
    """What needs the log of one queue manager."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._log: Log = engine.log
        self._clock = engine.clock
        self._checkpointer = engine.checkpointer
        self._lock = threading.Lock()
        self._readers: weakref.WeakSet[Reading] = weakref.WeakSet()  # one that is forgotten needs nothing
        self.deciding = threading.Lock()  # held from the decision that an extent can go until it is gone

    def needed_from(self) -> dict[str, int]:
        """For each that needs the log, by name, the sequence of the first extent needed, even after a crash.

        Raises LogError.
        """
        extent_bytes = self._log.state.extent_bytes
        with self._engine.lock:
            lsns = {"restart": min(self._checkpointer.heads)}  # with the older one a restart must do
            media = self._engine.state.media_lsn()
            tail = self._log.buffer.tail
        self._log.sync(tail)  # else the end of an image counts here, and is lost with what came before it
        if media:
            lsns["media recovery"] = media
        with self._lock:
            now = self._clock.elapsed_ns()
            read = [reading.lsn for reading in self._readers if reading.counts(now)]
        if read:
            lsns["a reader"] = min(read)
        return {who: at // extent_bytes for who, at in lsns.items()}

    def oldest(self) -> tuple[str, str]:
        """The names of the oldest extents that restart and media recovery need."""
        extent_bytes = self._log.state.extent_bytes
        restart = self._log.state.head
        with self._engine.lock:
            media = self._engine.state.media_lsn() or restart
        return name_of(restart // extent_bytes), name_of(min(media, restart) // extent_bytes)

    @contextlib.contextmanager
    def reading_from(self, lsn: int) -> Iterator[Reading]:
        """In the block nothing from this LSN on goes; the reader may move it forward."""
        reading = self.pin(lsn)
        try:
            yield reading
        finally:
            self.unpin(reading)

    def pin(self, lsn: int) -> Reading:
        """Nothing from this LSN on goes before the reading is moved forward, unpinned or forgotten.

        What a restart needs is none of what goes: who wants no more does not wait for a removal, which may hang.
        """
        reading = Reading(lsn)
        with self._lock:
            self._readers.add(reading)
        if lsn < min(self._checkpointer.heads):
            with self.deciding:  # what was decided before that is carried out now
                pass
        return reading

    def unpin(self, reading: Reading) -> None:
        with self._lock:
            self._readers.discard(reading)
