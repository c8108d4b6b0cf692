"""Pace: long work with files lets others go on after each piece of it, and ends when the queue manager ends."""

import threading
from collections.abc import Callable

from logger.clock import Clock
from logger.progress import GiveWay
from qmgr.engine import Engine

PAUSE_FACTOR = 6  # times as long as a piece of work took, others go on before the next one
MAX_PAUSE_S = 0.25


class Ending(Exception):
    """The queue manager ends."""


class Pace:
    """Pauses in long work with files while others write to the log: disk and processor are theirs first.

    The work gets a seventh of the time then, and all of it where nobody writes.
    """

    def __init__(self, clock: Clock, tail: Callable[[], int]) -> None:
        """`tail()` says how far the log has been written."""
        self._clock = clock
        self._tail = tail
        self._seen = tail()
        self._since_ns = clock.elapsed_ns()

    def give_way(self) -> None:
        """A piece of the work is done."""
        clock, tail = self._clock, self._tail()
        if tail == self._seen:
            clock.give_way()
        else:
            seconds = (clock.elapsed_ns() - self._since_ns) / 1e9
            clock.wait(threading.Event(), min(PAUSE_FACTOR * seconds, MAX_PAUSE_S))
        self._seen, self._since_ns = self._tail(), clock.elapsed_ns()


def pace_of(engine: Engine) -> GiveWay:
    """What work of this queue manager calls after each piece. It raises Ending when that ends, or has failed."""
    pace = Pace(engine.clock, lambda: engine.log.buffer.tail)

    def give_way() -> None:
        if engine.quiescing or engine.refusal is not None:
            raise Ending
        pace.give_way()

    return give_way
