"""Whether somebody has waited for the archive for long: its file system may hang, and no call that waits can say so."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from logger.clock import Clock
from logger.condition import Event
from qmgr.threads import LOOK_S, Worker

LONG_NS = 60_000_000_000  # from here on it is told

Say = Callable[[int], None]


class ArchiveWatch:
    """Who works at the archive notes each step here; who looks finds out that one is not over."""

    def __init__(self, clock: Clock, say: Say) -> None:
        """`say` hears how many seconds the step has taken so far, once for each."""
        self._clock = clock
        self._say = say
        self._begun: dict[int, int] = {}  # by number of the thread: when its step began, ns
        self._told = -1  # when the step began that was told of last

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """The calling thread may wait for the archive in the block."""
        self.step()
        try:
            yield
        finally:
            self._begun.pop(threading.get_ident(), None)

    def step(self) -> None:
        """The calling thread, which is at work, has come as far as this."""
        self._begun[threading.get_ident()] = self._clock.elapsed_ns()

    def look(self) -> None:
        """Say it if somebody has waited for long, and that was not said yet."""
        now = self._clock.elapsed_ns()
        begun = min(list(self._begun.values()), default=now)
        waited = now - begun
        if begun > self._told and waited >= LONG_NS:
            self._told = begun
            self._say(waited // 1_000_000_000)

    @contextlib.contextmanager
    def looked_at(self) -> Iterator[None]:
        """Let a thread look meanwhile: for a start, in which nobody else does yet."""
        over = Event()

        def look() -> None:
            while not over.wait(LOOK_S):
                self.look()

        worker = Worker(look, "ARCHIVE-WATCH")
        with contextlib.suppress(RuntimeError):  # there can be no more threads: then nobody looks
            worker.start()
        try:
            yield
        finally:
            over.set()
            worker.await_end()
