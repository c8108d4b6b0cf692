"""A queue manager of this process, where Spark's workers can reach it: they are processes of their own."""

from contextlib import AbstractContextManager

from qmgr import Connection, Mistake, QueueManager
from qmgr.daemon import shared as sharing


def shared(qm: QueueManager | Connection) -> AbstractContextManager[None]:
    """Let the workers on this machine use it while the block lasts, by its name and data path, as they use a daemon:

        with qmgr.start("QM1") as qm, pipeline.shared(qm):
            frame.write.format("qmgr.queue").option("qmgr", "QM1").option("queue", "ORDERS").mode("append").save()

    Only processes of this user can. Raises InUse where it is served already; Unavailable; Mistake for a connection.
    """
    if isinstance(qm, Connection):
        raise Mistake(
            f"queue manager {qm.name!r} is a daemon's, which workers reach by its name: nothing is to be shared"
        )
    return sharing.shared(qm)
