"""Pulse: tells the client of one socket that its call, which takes long, is at work, and how far it has come."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from logger.clock import Clock
from qmgr import sockets, wire
from qmgr.daemon.beats import NEVER, Beats
from qmgr.daemon.turns import GaveUp
from qmgr.sockets import Socket


def _always() -> bool:
    return True


class Pulse:
    """Of the calls of one socket, one after the other."""

    def __init__(self, sock: Socket, beat_ns: int, beats: Beats, clock: Clock) -> None:
        """`beat_ns`: how often the client has asked to hear of such a call; 0: never."""
        self._sock = sock
        self._beat_ns = beat_ns
        self._beats = beats
        self._clock = clock
        self._lock = threading.Lock()  # whole frames, where two threads may tell of a call
        self._on = False  # a call that takes long is at work
        self._goes_on: Callable[[], bool] = _always  # as far as can be seen
        self._told = False  # how far the call has come
        self.due = NEVER

    @contextlib.contextmanager
    def beating(self, goes_on: Callable[[], bool] = _always) -> Iterator[None]:
        """Send the client heartbeats while the block lasts and `goes_on()`, if it has asked for them."""
        if not self._beat_ns or self._on:
            yield
            return
        self._goes_on, self._told = goes_on, False
        self.due, self._on = self._clock.elapsed_ns() + self._beat_ns, True
        try:
            with self._beats.during(self):
                yield
        finally:
            with self._lock:
                self._on = False

    def on_due(self, now: int) -> None:
        """Send a heartbeat for the call that takes long."""
        self.due = now + self._beat_ns
        if self._lock.acquire(blocking=False):  # else it is hearing how far the call has come, or the call is over
            try:
                no_room = self._on and self._goes_on() and not sockets.send_if_room(self._sock, wire.HEARTBEAT)
                if no_room and not self._told:  # where it has been told, it may only be slow to hear of that
                    sockets.hang_up(self._sock)  # hundreds are unread: it would not read a message either
            finally:
                self._lock.release()

    def tell_progress(self, done: int, total: int) -> None:
        """Raises GaveUp where the client is gone."""
        try:
            with self._lock:
                self._told = True
                self._sock.sendall(wire.reply(wire.PROGRESS, wire.STEP.pack(done, total)))
        except OSError:
            raise GaveUp from None
