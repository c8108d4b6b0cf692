"""Following: the records of a log that its queue manager may be writing meanwhile, up to where they went at first.

A frame that fails its check may be being written just then, so it is read again, MAX_RETRIES times, before it counts as
damage. Reads files, never writes.
"""

from collections.abc import Callable, Iterator

from logger import lsn
from logger.config import LogType
from logger.control import ControlState
from logger.errors import LogDamaged, NotInLog
from logger.reader import LogReader, Record

MAX_RETRIES = 6  # at what does not check out
RETRY_PAUSE_SECONDS = 0.004  # before the first one; doubled before each further one
Opened = Callable[[], tuple[ControlState, LogReader]]


class Following:
    """Reads one log once. `end` is known when `records` is exhausted."""

    def __init__(self, opened: Opened, pause: Callable[[float], None]) -> None:
        """`opened` gives what the control file says now, and a reader; `pause(seconds)`. Raises as `opened` does."""
        self._opened = opened
        self._pause = pause
        self.state, self._reader = opened()
        self.end = 0

    def records(self, first: int) -> Iterator[Record]:
        """The records from LSN `first` on, of which one may begin before. Raises LogDamaged, NotInLog, OSError."""
        at, retries, enough = first, 0, 0
        while True:
            known = max(self.state.durable, self.state.clean_end)
            try:
                for record in self._reader.records(at, durable=known, resync=at == first):
                    yield record
                    at, retries = record.end, 0
                self.end = self._reader.end
                return
            except LogDamaged as exc:
                if enough and at >= enough:  # later records are for the next reading
                    self.end = at
                    return
                if retries == MAX_RETRIES:
                    raise
                enough = enough or exc.durable
            retries += 1
            self._pause(RETRY_PAUSE_SECONDS * 2 ** (retries - 1))
            self._reopen(at)

    def _reopen(self, at: int) -> None:
        self._reader.close()
        self.state, self._reader = self._opened()
        begins = self.state.head // self.state.extent_bytes * self.state.extent_bytes
        if self.state.log_type is LogType.CIRCULAR and at < begins:
            raise NotInLog(
                f"the log went round while it was read: what came at {lsn.text(at)} was written over, and it begins at "
                f"{lsn.text(begins)} by now; read it again, or end the queue manager first"
            )

    def close(self) -> None:
        self._reader.close()
