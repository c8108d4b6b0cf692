"""Consuming a queue: one message after the other, each in a unit of work of its own."""

import _thread
import contextlib
import gc
import sys
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from qmgr.errors import MQError, NoMessageAvailable, SyncpointLimit
from qmgr.message import Message


class Unit(Protocol):
    """What a consumer needs of a unit of work, be it here or at the other end of a connection."""

    _told: bool  # its commit has raised BackedOut

    @property
    def _is_open(self) -> bool: ...

    def get(self, queue: str, *, wait: float | None = 0.0, backout_requeue: bool = False) -> Message: ...

    def commit(self) -> None: ...

    def _leave(self) -> None:
        """Back it out, for nobody comes back to it."""


U = TypeVar("U", bound=Unit, covariant=True)
_collector = 0  # id of the thread that collects garbage just now; 0: none


def _note_collector(phase: str, info: dict[str, int]) -> None:
    global _collector
    _collector = _thread.get_ident() if phase == "start" else 0


gc.callbacks.append(_note_collector)


class Begin(Protocol[U]):
    """Begins a unit of work."""

    def __call__(self) -> U: ...


class Consumer(Generic[U]):
    """An iterator of (message, unit of work); see `QueueManager.consume`.

    A unit of work that is still open when the next message is asked for is committed. One that is open when the loop is
    left is backed out, unless this was used as a `with` block that ended without an exception.
    """

    _open: U | None = None  # also where an interrupt strikes as it is made

    def __init__(self, begin: Begin[U], queue: str, wait: float | None, *, requeue: bool) -> None:
        self._begin = begin
        self._queue = queue
        self._wait = wait
        self._requeue = requeue

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Message, U]:
        self._commit()
        found = self._get(0.0)
        if found is None and self._wait != 0.0:
            found = self._get(self._wait)  # in another unit: what the first one has moved away does not wait
        if found is None:
            raise StopIteration
        return found

    def _get(self, wait: float | None) -> tuple[Message, U] | None:
        while True:
            self._open = unit = self._begin()
            try:
                return unit.get(self._queue, wait=wait, backout_requeue=self._requeue), unit
            except SyncpointLimit:
                self._commit()  # so many were moved to the backout queue: on with the others
            except NoMessageAvailable:
                self._commit()  # some may have been moved to the backout queue
                return None
            except BaseException:
                self.close()
                raise

    def _commit(self) -> None:
        unit = self._open
        if unit is not None and unit._told:
            self.close()  # and no error: the application's own commit has raised it
            return
        try:
            if unit is not None and unit._is_open:
                unit.commit()  # where this is interrupted, `close` still has it to back out
        except MQError:
            self.close()
            raise
        self._open = None

    def close(self) -> None:
        """Back out the unit of work that is open, if there is one."""
        unit = self._open
        with contextlib.suppress(MQError):
            if unit is not None and unit._is_open:
                unit._leave()
        self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._commit()
        else:
            self.close()

    def __del__(self) -> None:
        """Back out what is open, as nobody reads on.

        Garbage may be collected in the middle of any call, whose locks this thread then holds; so a backout that may
        need them is left to another thread.
        """
        if self._open is None or sys.is_finalizing():  # the end of the process backs it out
            return
        if _collector == _thread.get_ident():
            _thread.start_new_thread(self.close, ())
        else:
            self.close()
