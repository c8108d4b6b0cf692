"""Accepting: what a new connection needs may run out; then it is told, who comes waits, and the listener goes on."""

import threading
from collections.abc import Callable
from typing import Any

from logger.disk_errors import retry_advice
from qmgr import sockets
from qmgr.daemon.face import ServiceFace
from qmgr.sockets import Socket
from qmgr.threads import go_on

RETRY_S = 0.1  # some of it will have come back
QUIET_NS = 60_000_000_000  # without trouble, after which the next is news


class Hardship:
    """The troubles of one listener: told once, and again only after a quiet minute. For its own thread or loop."""

    def __init__(self, service: ServiceFace, listener: str) -> None:
        self._service = service
        self._listener = listener
        self._last: int | None = None

    def met(self, exc: Exception) -> None:
        """A connection could not be accepted."""
        now, last = self._service.clock.elapsed_ns(), self._last
        if last is None or now - last >= QUIET_NS:
            advice = retry_advice(exc) if isinstance(exc, OSError) else ""
            why = f"{str(exc) or type(exc).__name__}{advice}"
            self._service.say("AMQ9213", text=f"listener {self._listener!r} can't accept: {why}")
        self._last = now  # now that it is said, for which there may be no memory


def accept_all(
    service: ServiceFace,
    listener: str,
    listening: Socket,
    closed: Callable[[], bool],
    let_in: Callable[[Socket, Any], None],
) -> None:
    """Call `let_in(socket, address)` for each connection until the listener is closed; one for which it raises goes."""
    hardship = Hardship(service, listener)

    def accept_one() -> bool:
        if closed():
            return False
        accepted = None
        try:
            accepted, address = listening.accept()
            let_in(accepted, address)
        except (OSError, RuntimeError, MemoryError) as exc:  # a RuntimeError: the system has no more threads
            if accepted is not None:
                sockets.close(accepted)
            if not closed():
                hardship.met(exc)
                service.clock.wait(threading.Event(), RETRY_S)
        return True

    go_on(accept_one)
