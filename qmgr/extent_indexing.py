"""Indexes of extents: each extent of a linear log that is full gets one, so that nobody has to wait for it."""

import contextlib

from logger.config import LogType
from logger.errors import LogError
from logger.history import History, Place
from logger.log import Log
from logger.progress import GiveWay
from qmgr.engine import Engine
from qmgr.log_needs import LogNeeds
from qmgr.pace import Ending, pace_of
from recovery import extent_index

MAX_WORK_NS = 10_000_000_000  # at a time; the rest is left to the next one


class ExtentIndexing:
    """Builds the indexes of one queue manager's log."""

    def __init__(self, engine: Engine, needs: LogNeeds) -> None:
        self._engine = engine
        self._log: Log = engine.log
        self._disk = engine.state.disk
        self._clock = engine.clock
        self._needs = needs
        self._linear = engine.log.state.log_type is LogType.LINEAR
        self._indexed = 0  # the sequence before which no extent has to be looked at for an index

    def index_extents(self, give_way: GiveWay | None = None) -> None:
        """Build an index beside each extent that is full and has none, giving way; the rest is left to the next time.

        The last record of an extent may end in the next one, so that has to be full too. Nothing needs an index: what
        can't be read or written is passed over, and is built by whoever asks for it.
        """
        log, began = self._log, self._clock.elapsed_ns()
        full = log.durable // log.state.extent_bytes - 1
        if not self._linear or full <= self._indexed:
            return
        with contextlib.suppress(Ending, OSError):
            history = log.history()
            give_way = give_way or pace_of(self._engine)
            for sequence, place in history.places().items():
                if not self._indexed <= sequence < full:
                    continue
                give_way()
                with contextlib.suppress(LogError):
                    if not self.index(history, place, give_way):
                        return
                self._indexed = sequence + 1
                if self._clock.elapsed_ns() - began >= MAX_WORK_NS:
                    return
            self._indexed = full

    def index(self, history: History, place: Place, give_way: GiveWay) -> bool:
        """False when the extent has moved meanwhile."""
        log, disk = self._log, self._disk
        if extent_index.is_stored(disk, place):
            return True  # it may be of another extent, which whoever reads it finds out
        with contextlib.closing(log.live_reader(history)) as reader:
            index = extent_index.build(reader, place, log.state.log_id, log.state.extent_bytes, give_way)
        with self._needs.deciding:  # so that no index stays behind of an extent that goes
            there = disk.exists(place.path)
            if there:
                extent_index.store(disk, place, index)
        return there
