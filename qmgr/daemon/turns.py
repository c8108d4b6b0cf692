"""Turns: of calls that take the processor for long, one of a kind is made at a time, and none that nobody waits for.

Threads that all compute share Python's interpreter lock, and with it the time of everybody's quick calls; none of them
is done sooner than one after the other. A client that gives up, and asks again, has another such call made each time:
so one that was given up before its turn came is left out.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

from logger.clock import Clock
from qmgr import sockets
from qmgr.sockets import Socket

MANY = "many messages"
METHODS = (  # what takes long where there are many objects, or much to write, and is asked for again
    "mqsc",
    "queues",
    "aliases",
    "transactions",
    "connections",
    "status",
    "outcome",
    "checkpoint",
    "record_image",
)
LOOK_S = 0.25  # how often one that waits for its turn looks whether it was given up
HANGS_NS = 30_000_000_000  # who has had the turn for so long is taken to hang, as a disk may


class GaveUp(Exception):
    """Nobody waits for the answer any more."""


class Turns:
    """Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = dict.fromkeys((MANY, *METHODS), 0)  # when the turn under way has begun, by `elapsed_ns`
        # Of each kind who has the turn, and then who waits for it: locks, each let go of when its turn comes. One lock
        # for all, which each tries with a time-out, kept some waiting while others had dozens of turns.
        self._lines: dict[str, deque[threading.Lock]] = {kind: deque() for kind in (MANY, *METHODS)}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def take(self, kind: str, sock: Socket | None) -> Iterator[None]:
        """Wait until no other call of this kind is made, and keep others from it while the block lasts.

        Raises GaveUp where the other end of the socket has closed it, or its half of it, by then; None: it goes on.
        """
        line, mine, waits = self._lines[kind], threading.Lock(), True
        with self._lock:
            if line:
                mine.acquire()
            line.append(mine)
        try:
            while waits:
                waits = not mine.acquire(timeout=LOOK_S)
                if sock is not None and sockets.peer_has_closed(sock):
                    raise GaveUp
            self._begun[kind] = self._clock.elapsed_ns()
            yield
        finally:
            with self._lock:
                had_turn = line[0] is mine
                line.remove(mine)
                if had_turn and line:
                    line[0].release()

    def goes_on(self, kind: str) -> bool:
        """For one who has the turn or waits for it: will it come to its end, as far as can be seen?"""
        return self._clock.elapsed_ns() - self._begun[kind] < HANGS_NS
