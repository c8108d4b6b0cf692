"""qmgr: a transactional queue manager in this process, that loses nothing whatever crashes.

import qmgr

qmgr.create("QM1")
with qmgr.start("QM1") as qm:
    qm.define_queue("ORDERS")
    qm.put("ORDERS", b"one order")
    with qm.begin() as uow:
        order = uow.get("ORDERS", wait=5.0)
"""

from qmgr import shadows

shadows.check()

from qmgr.client import Connection, connect  # noqa: E402
from qmgr.creation import create, delete  # noqa: E402
from qmgr.errors import (  # noqa: E402
    AliasOfAlias,
    AlreadyExists,
    BackedOut,
    BookmarkTooOld,
    Damaged,
    Inhibited,
    IniError,
    InUse,
    MediaImageMissing,
    MediaNotSupported,
    MessageTooBig,
    Mistake,
    MQError,
    NoMessageAvailable,
    NotAuthorized,
    NotImageRecoverable,
    ObjectInUse,
    QueueFull,
    Reason,
    ResourceProblem,
    StorageFull,
    SyncpointLimit,
    TryAgain,
    Unavailable,
    UnitOfWorkEnded,
    UnknownQueue,
)
from qmgr.infos import ConnectionInfo, Peer, QueueInfo, Status, TransactionInfo  # noqa: E402  # noqa: E402
from qmgr.manager import QueueManager, UnitOfWork, start  # noqa: E402
from qmgr.message import Message  # noqa: E402
from qmgr.objects import AliasDefinition, QmgrDefinition  # noqa: E402
from qmgr.pointintime import Recovered, recover_to  # noqa: E402
from qmgr.replay import Replay, Replayed  # noqa: E402
from recovery.records import Xid  # noqa: E402
from recovery.restart import RestartReport  # noqa: E402
from recovery.uows import UowState  # noqa: E402

__all__ = [
    "AliasDefinition",
    "AliasOfAlias",
    "AlreadyExists",
    "BackedOut",
    "BookmarkTooOld",
    "Connection",
    "ConnectionInfo",
    "Damaged",
    "InUse",
    "Inhibited",
    "IniError",
    "MQError",
    "MediaImageMissing",
    "MediaNotSupported",
    "Message",
    "MessageTooBig",
    "Mistake",
    "NoMessageAvailable",
    "NotAuthorized",
    "NotImageRecoverable",
    "ObjectInUse",
    "Peer",
    "QmgrDefinition",
    "QueueFull",
    "QueueInfo",
    "QueueManager",
    "Reason",
    "Recovered",
    "Replay",
    "Replayed",
    "ResourceProblem",
    "RestartReport",
    "Status",
    "StorageFull",
    "SyncpointLimit",
    "TransactionInfo",
    "TryAgain",
    "Unavailable",
    "UnitOfWork",
    "UnitOfWorkEnded",
    "UnknownQueue",
    "UowState",
    "Xid",
    "connect",
    "create",
    "delete",
    "recover_to",
    "start",
]
