"""qmgr: a transactional queue manager in this process, that loses nothing whatever crashes.

import qmgr

qmgr.create("QM1")
with qmgr.start("QM1") as qm:
    qm.define_queue("ORDERS")
    qm.put("ORDERS", b"one order")
    with qm.begin() as uow:
        order = uow.get("ORDERS", wait=5.0)
"""

import importlib
from typing import TYPE_CHECKING

from qmgr import shadows

shadows.check()

if TYPE_CHECKING:
    from qmgr import deadletter as deadletter
    from qmgr.public import *  # noqa: F403
if not TYPE_CHECKING:
    # Whoever imports one module of this package, as Spark's processes do for each query, loads that one alone.
    def __getattr__(name: str) -> object:
        if name in __all__:
            from qmgr import public

            return getattr(public, name)
        if name == "deadletter":
            return importlib.import_module("qmgr.deadletter")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "deadletter"})


__all__ = [  # noqa: F405
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
