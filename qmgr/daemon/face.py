"""What a listener knows of the queue manager and its owner: a daemon, or an application that shares it."""

from typing import Any, Protocol

from logger.clock import Clock
from qmgr.configuration import ChannelsConfig
from qmgr.daemon.admission import Admission
from qmgr.locations import Location
from qmgr.manager import QueueManager
from qmgr.session import Sessions


class ServiceFace(Protocol):
    """Implemented by `Service` and `Shared`."""

    manager: QueueManager
    clock: Clock
    channels: ChannelsConfig
    authority: Admission
    location: Location

    @property
    def sessions(self) -> Sessions: ...

    def say(self, amq: str, **inserts: Any) -> None:
        """Say it in the error log."""

    def check_may_end(self) -> None:
        """Raises Mistake where no client can end the queue manager, since it is an application's."""

    def ask_to_end(self, mode: str) -> None:
        """A client asks for the end: "quiesce", "immediate" or "preemptive". Returns at once. Raises Mistake."""
