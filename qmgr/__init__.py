"""qmgr: a transactional queue manager in this process, that loses nothing whatever crashes.

    import qmgr

    qmgr.create("QM1")
    with qmgr.start("QM1") as qm:
        qm.define_queue("ORDERS")
        qm.put("ORDERS", b"one order")
        with qm.begin() as uow:
            order = uow.get("ORDERS", wait=5.0)
"""

from qmgr.errors import (
    AlreadyExists,
    BackedOut,
    Damaged,
    Inhibited,
    IniError,
    InUse,
    MessageTooBig,
    Mistake,
    MQError,
    NoMessageAvailable,
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
from qmgr.manager import QueueInfo, QueueManager, Status, TransactionInfo, UnitOfWork, create, delete, start
from qmgr.message import Message
from recovery.records import Xid
from recovery.restart import RestartReport
from recovery.uows import UowState

__all__ = [
    "AlreadyExists",
    "BackedOut",
    "Damaged",
    "InUse",
    "Inhibited",
    "IniError",
    "MQError",
    "Message",
    "MessageTooBig",
    "Mistake",
    "NoMessageAvailable",
    "ObjectInUse",
    "QueueFull",
    "QueueInfo",
    "QueueManager",
    "Reason",
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
    "create",
    "delete",
    "start",
]
