"""Undelivered messages: an extent that has one is not removed for its age, though no restart needs it."""

import contextlib
import itertools

from logger.archive_plan import last_written
from logger.errors import LogError
from logger.history import History, Place
from logger.log import Log
from qmgr.engine import Engine
from qmgr.extent_indexing import ExtentIndexing
from qmgr.log_needs import LogNeeds
from qmgr.pace import Ending, pace_of
from recovery import extent_index
from recovery.errors import QueueDamaged

LONG_AGO = 1  # microseconds since 1970-01-01: when a message was put that can be read nowhere but in the log


class Undelivered:
    """Finds the oldest extent that may have a message nobody has got yet."""

    def __init__(self, engine: Engine, history: History, needs: LogNeeds, indexing: ExtentIndexing) -> None:
        self._engine = engine
        self._log: Log = engine.log
        self._disk = engine.state.disk
        self._history = history
        self._needs = needs
        self._indexing = indexing
        self._latest: dict[int, tuple[int, int]] = {}  # by sequence: when it was taken, and its latest record's time

    def needed_to_remove(self, older_than: int, now_us: int) -> dict[str, int]:
        """From which sequence on extents may not be removed, by reason: those of `needed_from`, and the oldest message.

        An extent is not removed by age alone while it has a message that nobody has got yet. Those are looked at that
        were last written `older_than` seconds before `now_us`, or more: no others would be removed.
        """
        needed = self._needs.needed_from()
        oldest_us, what = self._oldest_message()
        if oldest_us:
            copies = self._history.copies()
            written = last_written(copies)
            for gone in set(self._latest) - copies.keys():
                self._latest.pop(gone, None)
            first = min(copies, default=None)
            if oldest_us <= now_us:  # else the clock was set back since, and that may have been in any of them
                asked = (s for s in sorted(written) if s <= needed["restart"])  # whatever comes later is kept anyway
                old = itertools.takewhile(lambda s: now_us - written[s] >= older_than * 1_000_000, asked)
                has_it = (s for s in old if self._may_have(copies[s][0], written[s], oldest_us))
                first = next(has_it, None)
            if first is not None:
                needed[what] = first
        return needed

    def _may_have(self, place: Place, written_us: int, oldest_us: int) -> bool:
        """May the extent, last written then, have a message that was put at that moment or later?

        When its successor took its place tells, but where the clock was set back meanwhile: then it seems older than
        its own beginning, or than its last records, which its index says. Where nobody knows it may.
        """
        if written_us >= oldest_us:
            return True
        latest_us = self._latest_record(place, make=written_us < place.taken)
        return written_us < place.taken if latest_us is None else latest_us >= oldest_us

    def _latest_record(self, place: Place, *, make: bool) -> int | None:
        """The latest time of a record that begins in the extent; None where that is not known.

        By its index, which is made if need be where that is worth it (`make`).
        """
        disk, log_id, sequence = self._disk, self._log.state.log_id, place.sequence
        known = self._latest.get(sequence)
        if known is None or known[0] != place.taken:
            with contextlib.suppress(Ending, LogError, OSError):
                index = extent_index.load(disk, place, log_id)
                give_way = pace_of(self._engine)
                if index is None and make and self._indexing.index(self._log.history(), place, give_way):
                    index = extent_index.load(disk, place, log_id)
                if index is not None:
                    known = self._latest[sequence] = place.taken, index.high_time
        return None if known is None or known[0] != place.taken else known[1]

    def _oldest_message(self) -> tuple[int, str]:
        """When the oldest persistent message that is still there was put, about, and what to call it; 0: there is none.

        What can't be read just then may be any.
        """
        found, what = [], "an undelivered message"
        with self._engine.lock:
            queues = list(self._engine.state.by_id.values())
        for queue in queues:
            try:
                with self._engine.lock:
                    found += [LONG_AGO] if queue.damaged else queue.put_times()
            except (QueueDamaged, OSError) as exc:
                found.append(LONG_AGO)
                what = f"the messages of queue {queue.name!r}, which can't be read ({exc})"
        with self._engine.lock:
            found += [entry.put_time for unit in self._engine.state.uows for _, entry in unit.gets]
        return min(found, default=0), what
