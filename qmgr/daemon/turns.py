"""Turns: of calls that take the processor for long, one of a kind is made at a time, and none that nobody waits for.

Threads that all compute share Python's interpreter lock, and with it the time of everybody's quick calls; none of them
is done sooner than one after the other. A client that gives up, and asks again, has another such call made each time:
so one that was given up before its turn came is left out.
"""

import contextlib
import threading
from collections.abc import Iterator

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


class GaveUp(Exception):
    """Nobody waits for the answer any more."""


class Turns:
    """Thread-safe."""

    def __init__(self) -> None:
        self._locks = {kind: threading.Lock() for kind in (MANY, *METHODS)}

    @contextlib.contextmanager
    def take(self, kind: str, sock: Socket | None) -> Iterator[None]:
        """Wait until no other call of this kind is made, and keep others from it while the block lasts.

        Raises GaveUp where the other end of the socket has closed it, or its half of it, by then; None: it goes on.
        """
        lock = self._locks[kind]
        waits = True
        while waits:
            waits = not lock.acquire(timeout=LOOK_S)
            if sock is not None and sockets.peer_has_closed(sock):
                if not waits:
                    lock.release()
                raise GaveUp
        try:
            yield
        finally:
            lock.release()
