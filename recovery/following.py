"""Following: the records of a log that its queue manager may be writing meanwhile, up to where they went at first.

A frame that fails its check may be being written just then, so it is read again, MAX_RETRIES times, before it counts as
damage. Reads files, never writes.
"""

from collections.abc import Callable, Iterator

from logger import lsn
from logger.config import LogType
from logger.control import ControlState
from logger.errors import ExtentGone, LogDamaged, NotInLog
from logger.reader import LogReader, Record

MAX_RETRIES = 6  # at what does not check out
RETRY_PAUSE_SECONDS = 0.004  # before the first one; doubled before each further one
Opened = Callable[[], tuple[ControlState, LogReader]]


class Following:
    """Reads one log. `end` is known when `records` is exhausted, or has raised."""

    def __init__(self, opened: Opened, pause: Callable[[float], None]) -> None:
        """`opened` gives what the control file says now, and a reader; `pause(seconds)`. Raises as `opened` does."""
        self._opened = opened
        self._pause = pause
        self.state, self._reader = opened()
        self.end = 0

    def read_through(self) -> None:
        """Read from the head to the end, beginning again where the head moves on too fast. Raises as `records` does."""
        for more in reversed(range(MAX_RETRIES)):
            try:
                for _ in self.records(lambda state: state.head):
                    pass
                return
            except NotInLog:
                if not more:
                    raise

    def records(self, first: Callable[[ControlState], int]) -> Iterator[Record]:
        """The records from an LSN on, of which one may begin before. Raises LogDamaged, NotInLog, OSError.

        `first` gives the LSN, by what the control file says: once more where what is there goes before it is read.
        """
        start = at = first(self.state)
        retries = enough = 0
        active = False  # a restart needed what comes next when it was looked at: if it is gone now, it was removed
        while True:
            known = max(self.state.durable, self.state.clean_end)
            try:
                for record in self._reader.records(at, durable=known, resync=at == start):
                    yield record
                    at, retries = record.end, 0
                self.end = self._reader.end
                return
            except LogDamaged as exc:
                if enough and at >= enough:  # later records are for the next reading
                    self.end = at
                    return
                enough = enough or exc.durable
                active = active or at >= self._begins
                removed = active and isinstance(exc, ExtentGone)
                damage, self.end = exc, self._reader.end
            is_last = retries == MAX_RETRIES
            if not is_last:
                self._pause(RETRY_PAUSE_SECONDS * 2**retries)
            retries += 1
            self._reader.close()
            self.state, self._reader = self._opened()
            goes_on = at < self._begins and (removed or self.state.log_type is LogType.CIRCULAR)
            if is_last and not goes_on:
                raise damage
            if goes_on:
                anew = first(self.state)
                if at > start or anew == start or is_last:
                    raise NotInLog(
                        f"the log went {'on' if removed else 'round'} while it was read: what came at {lsn.text(at)} "
                        f"was {'removed' if removed else 'written over'}, and it begins at {lsn.text(self._begins)} by "
                        f"now; read it again, or end the queue manager first"
                    )
                start = at = anew

    @property
    def _begins(self) -> int:
        """Where the extent with the head begins: what lies before may be written over, or removed."""
        return self.state.head // self.state.extent_bytes * self.state.extent_bytes

    def close(self) -> None:
        self._reader.close()
