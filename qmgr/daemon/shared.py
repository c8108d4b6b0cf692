"""A queue manager that an application has started, served to other processes as a daemon serves its own.

By the same socket and the same calls, so `qmgr.connect(name)` reaches it. It is no daemon: nothing of qm.ini listens,
nobody but the application ends it, and daemon.json says nothing of it, since what ends a daemon would end the
application.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from logger.clock import Clock, SystemClock
from qmgr import sockets
from qmgr.daemon import local
from qmgr.daemon.admission import Admission
from qmgr.errors import InUse, Mistake, Reason, Unavailable, quoted
from qmgr.ini import ChannelsConfig
from qmgr.locations import Location
from qmgr.manager import QueueManager
from qmgr.session import Sessions


class Shared:
    """The `ServiceFace` of a queue manager that an application runs."""

    def __init__(self, manager: QueueManager) -> None:
        self.manager = manager
        self.clock: Clock = SystemClock()
        self.channels: ChannelsConfig = manager.config.channels
        self.location: Location = manager._location
        self.authority = Admission(manager, manager._disk, self.location, manager.say)

    @property
    def sessions(self) -> Sessions:
        return self.manager.sessions

    def say(self, amq: str, **inserts: Any) -> None:
        """Say it in the error log."""
        self.manager.say(amq, **inserts)

    def check_may_end(self) -> None:
        """Raises Mistake (2298): only the application itself ends its queue manager."""
        text = f"queue manager {self.manager.name!r} is an application's, which shares it; end it there"
        raise Mistake(text, reason=Reason.FUNCTION_NOT_SUPPORTED, name=self.manager.name)

    def ask_to_end(self, mode: str) -> None:
        """Raises as `check_may_end`."""
        self.check_may_end()


@contextlib.contextmanager
def shared(manager: QueueManager) -> Iterator[None]:
    """Serve it to processes of this user on this machine while the block lasts; what they have begun ends with it.

    Raises InUse where it is served already, by a daemon or by another such block; Unavailable; Mistake.
    """
    given: object = manager
    if not isinstance(given, QueueManager):
        text = "only a queue manager that this process has started (qmgr.start) is shared"
        raise Mistake(f"{text}, not {quoted(given)}", reason=Reason.OPTIONS_ERROR)
    manager._engine.check()
    service = Shared(manager)
    _refuse_twice(service.location)
    listener = local.make(service, None)
    try:
        try:
            listener.start()
        except OSError as exc:
            text = f"queue manager {manager.name!r} can't be shared: {exc}"
            raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=manager.name) from exc
        yield
    finally:
        listener.close()


def _refuse_twice(location: Location) -> None:
    """Raises InUse if somebody answers at its socket: as this process owns the queue manager, it is this process."""
    try:
        sock = sockets.connect_unix(location.socket)
    except OSError:  # there is none, or it is one of the dead
        return
    sockets.close(sock)
    raise InUse(
        f"queue manager {location.name!r} is served already, at {location.socket}; connect to it by its name",
        holder="this process",
        name=location.name,
    )
