"""What the queue manager tells of itself: its queues, units of work and clients, and how it stands."""

import attrs

from logger import log as logs
from qmgr.objects import QueueDefinition
from recovery.records import Xid
from recovery.restart import RestartReport
from recovery.uows import UowState

LOCAL = "LOCAL"  # channel of clients on this machine, who open the queue manager's own socket


@attrs.frozen(kw_only=True)
class QueueInfo(QueueDefinition):
    """A queue's definition with how it stands now."""

    depth: int = 0  # messages that can be got, and puts that are not committed yet
    uncommitted: int = 0
    memory: int = 0  # bytes that its messages take in memory, about; the others are in segments only
    last_put: int = 0  # when a message became visible last, microseconds since 1970-01-01 UTC; 0: not known
    last_get: int = 0  # when one was got for good
    damaged: str = ""  # why nothing can be done with it


@attrs.frozen(kw_only=True)
class TransactionInfo:
    """A unit of work as an operator sees it. Moments in microseconds since 1970-01-01 UTC."""

    number: int
    state: UowState
    xid: Xid | None
    started: int
    log_started: int  # when its first record was logged; 0: nothing is logged
    first_lsn: int
    puts: int
    gets: int
    owner: str


@attrs.frozen(kw_only=True)
class Status:
    """The queue manager now."""

    name: str
    state: str
    log: logs.LogStatus
    log_sync: str
    checkpoints: int  # since the start
    checkpoint_seconds: float  # that the last one took
    units_of_work: int
    in_doubt: int
    queues: int
    messages: int
    restart: RestartReport


def _shown(text: str) -> str:
    """What a client says of itself, as it can stand in a line."""
    return "".join(char if char.isprintable() else "?" for char in text)


@attrs.frozen(kw_only=True)
class Peer:
    """The client at the other end of a connection."""

    user: str
    application: str = attrs.field(default="", converter=_shown)  # as it says itself
    process: int = 0  # 0: not known
    channel: str = LOCAL  # or TCP, STOMP, HTTP
    address: str = ""

    @property
    def owner(self) -> str:
        """How a unit of work names its client to operators: application and process, or address."""
        where = f"pid {self.process}" if self.process else self.address
        return " ".join(filter(None, [self.application or self.channel, where]))


@attrs.frozen(kw_only=True)
class ConnectionInfo:
    """A client as an operator sees it; number 0 is the process that runs the queue manager."""

    number: int
    peer: Peer
    began: int  # microseconds since 1970-01-01 UTC
    units: tuple[TransactionInfo, ...]
