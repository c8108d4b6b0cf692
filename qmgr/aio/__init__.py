"""qmgr.aio: the queue manager for asynchronous code, the verbs of `qmgr` with `await`.

import qmgr.aio

async with qmgr.aio.connect("QM1") as qm:
    await qm.put("ORDERS", b"one order")
    async with qm.begin() as uow:
        order = await uow.get("ORDERS", wait=5.0)
"""

from qmgr.aio.connection import Connection
from qmgr.aio.starting import Opening, connect, start
from qmgr.aio.units import UnitOfWork

__all__ = ["Connection", "Opening", "UnitOfWork", "connect", "start"]
