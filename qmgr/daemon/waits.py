"""Waits: the get of one socket that waits for a message, and that nobody may wait for any more."""

from collections.abc import Callable
from typing import Any

from logger.clock import Clock
from logger.condition import Event
from qmgr import delivery, sockets, wire
from qmgr.daemon.client import Client
from qmgr.daemon.pulse import Pulse
from qmgr.daemon.turns import GaveUp
from qmgr.daemon.watcher import Watch, Watcher
from qmgr.errors import MQError, NoMessageAvailable
from qmgr.manager import UnitOfWork
from qmgr.sockets import Socket
from qmgr.verbs import Wanted, check_wait, waiting_at


class Waits:
    """Of the calls of one socket, one after the other."""

    def __init__(self, client: Client, sock: Socket, watcher: Watcher, clock: Clock, pulse: Pulse) -> None:
        self._client = client
        self._session = client.session
        self._sock = sock
        self._watcher = watcher
        self._clock = clock
        self._pulse = pulse
        self.watch: Watch | None = None  # of the call that waits, or that waited last
        self.dismissed = False  # the queue manager is ending, and the client is still there

    def recheck(self) -> None:
        """Wake the call that waits, if one does, to see whether it is to go on."""
        watch = self.watch
        if watch is not None:
            watch.note()

    def wait(self, get: Callable[[], Any], name: str, wait: float, unit: UnitOfWork | None, which: Wanted) -> Any:
        """Get again when there may be a message, until there is one or the time is over; then None.

        The socket is watched meanwhile: a message is not taken for a client that is gone. Raises GaveUp.
        """
        engine, clock = self._session.manager._engine, self._clock
        its = unit._unit if unit is not None else None
        seconds = check_wait(None if wait == wire.FOR_EVER else wait)
        deadline = None if seconds is None else clock.elapsed_ns() + int(seconds * 1e9)
        word = Event()  # whoever puts sets it, and has no memory to lose for that

        def is_given_up() -> bool:
            # After a pause of this process whoever puts may be here before the watcher's thread is.
            return watch.gone or (unit is None and sockets.peer_has_closed(self._sock))

        with waiting_at(name), self._watcher.watching(self._sock, word.set) as watch, self._pulse.beating():
            self.watch = watch
            while not (is_given_up() or self._client.closed or self._session.quiescing):
                waiter = delivery.Watch(word.set)
                queue = engine.add_waiter(name, waiter, its, which)
                looked = False  # since it was woken
                try:
                    found = get()
                    if found:
                        return found
                    left = None if deadline is None else (deadline - clock.elapsed_ns()) / 1e9
                    if left is not None and left <= 0:
                        return None
                    clock.wait(word, left)
                    word.clear()
                    if waiter.is_set() and not is_given_up():
                        found = get()
                        looked = True
                        if found:
                            return found
                except MQError:
                    if self._client.closed:  # its unit of work was backed out with it, and that woke this one
                        raise GaveUp from None
                    raise
                finally:
                    engine.remove_waiter(queue, waiter, its, looked=looked)
        if self._session.quiescing and not self._client.closed:
            raise self._session.quiescing_error()
        raise self.not_got(name)

    def not_got(self, name: str) -> Exception:
        """The error of a get that nobody waits for any more.

        A client that has closed its half of the socket, and not all of it, still reads: it learns that nothing was got.
        """
        if self._client.closed:
            return GaveUp()
        return NoMessageAvailable(f"nobody waits for a message of queue {name!r} any more", name=name)
