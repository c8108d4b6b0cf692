"""Which extents of a linear log are still needed and what becomes of the others.

    active        a restart needs it
    inactive      media recovery needs it, or a reader that is at work
    superfluous   nothing needs it

With LogManagement=Manual superfluous extents stay until somebody removes them; with Automatic they are kept for reuse
or deleted; with Archive the same, once they are archived. Always the oldest first, so that there is never a gap.
"""

import contextlib
import threading
import weakref
from collections.abc import Iterator

from logger.config import LogType
from logger.extent import file_name, linear_number
from logger.log import Log
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog
from qmgr.ini import LogManagement


class Retention:
    """Keeps the extents of one linear log; on a circular one it has nothing to do."""

    def __init__(self, engine: Engine, errors: ErrorLog, management: LogManagement) -> None:
        self._engine = engine
        self._log: Log = engine.log
        self._errors = errors
        self._management = management
        self._linear = engine.log.state.log_type is LogType.LINEAR
        self._said = "", ""
        self._lock = threading.Lock()
        self._deciding = threading.Lock()  # held while what nobody needs goes
        self._readers: weakref.WeakSet[Reading] = weakref.WeakSet()  # a reader that is forgotten needs nothing

    # ---- what is needed

    def needed_from(self) -> dict[str, int]:
        """The first sequence that each of those who need the log needs."""
        extent_bytes = self._log.state.extent_bytes
        with self._engine.lock:
            lsns = {"restart": self._log.state.head}
            media = self._engine.state.media_lsn()
        if media:
            lsns["media recovery"] = media
        with self._lock:
            read = [reading.lsn for reading in self._readers]
        if read:
            lsns["a reader"] = min(read)
        return {who: at // extent_bytes for who, at in lsns.items()}

    def oldest(self) -> tuple[str, str]:
        """The names of the oldest extents that restart and media recovery need."""
        needed = self.needed_from()
        media = needed.get("media recovery", needed["restart"])
        return self.name(needed["restart"]), self.name(min(media, needed["restart"]))

    def name(self, sequence: int) -> str:
        return file_name(linear_number(sequence))

    @contextlib.contextmanager
    def reading_from(self, lsn: int) -> Iterator["Reading"]:
        """In the block nothing from this LSN on goes; the reader may move it forward."""
        reading = self.pin(lsn)
        try:
            yield reading
        finally:
            self.unpin(reading)

    def pin(self, lsn: int) -> "Reading":
        """Nothing from this LSN on goes before the reading is moved forward, unpinned or forgotten."""
        with self._deciding:
            reading = Reading(lsn)
            with self._lock:
                self._readers.add(reading)
            return reading

    def unpin(self, reading: "Reading") -> None:
        with self._lock:
            self._readers.discard(reading)

    # ---- what becomes of the others

    def after_checkpoint(self) -> None:
        """Say what is needed if that has changed, and let go of what is not.

        A disk that refuses costs nothing but the room: the next checkpoint tries again. Raises LogError.
        """
        if self._linear:
            try:
                self._keep_house()
            except OSError as exc:
                self._errors.say("AMQ6708", text=str(exc))

    def _keep_house(self) -> None:
        oldest = self.oldest()
        if oldest != self._said:
            self._said = oldest
            self._errors.say("AMQ7467", name=oldest[0])
            self._errors.say("AMQ7468", name=oldest[1])
        if self._management is LogManagement.AUTOMATIC:
            with self._deciding:
                self._reuse(min(self.needed_from().values()))
        done = self._log.housekept()
        if any(done):
            created, reused, deleted = done
            self._errors.say("AMQ7490", created=created, reused=reused, deleted=deleted)

    def _reuse(self, first_needed: int) -> None:
        """Keep as many superfluous extents for reuse as there are primaries; delete the others."""
        for sequence in self._log.inactive():
            if sequence >= first_needed:
                return
            self._log.recycle(sequence)


class Reading:
    """Somebody reads the log, and still has to read what begins at `lsn`."""

    __slots__ = ("__weakref__", "lsn")

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn

    def move(self, lsn: int) -> None:
        self.lsn = lsn
