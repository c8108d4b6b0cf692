"""Units of work of qmgr.aio whose calls are cancelled: what is known of them is said, and none stays open for nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

import qmgr.aio
from qmgr import Xid
from qmgr.aio.channel import Pool
from qmgr.aio.outside import Outside
from qmgr.errors import UnitOfWorkEnded
from tests.daemon.serving import LONG, Served
from tests.qmgr.world import NAME

XID = Xid(1, b"global", b"branch")


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[qmgr.aio.Connection]:
    async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as qm:
        await qm.status()
        yield qm


def pool_of(qm: qmgr.aio.Connection) -> Pool:
    return cast(Outside, qm._way)._pool


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def nothing_is_open(served: Served) -> None:
    while served.manager.transactions():
        await asyncio.sleep(0.01)


def test_a_cancelled_begin_leaves_no_unit_that_nobody_has(served: Served) -> None:
    """Its Xid was in use as long as the connection was open."""

    async def block(qm: qmgr.aio.Connection) -> None:
        async with qm.begin(XID):
            raise AssertionError("not reached")

    async def main() -> None:
        async with connected(served) as qm:
            with served.manager._engine.lock:
                begins = asyncio.create_task(block(qm))
                await asyncio.sleep(0.1)  # the daemon has it, and can't go on
                begins.cancel()
                await asyncio.sleep(0.05)
            await asyncio.wait([begins])
            assert begins.cancelled()
            assert served.manager.transactions() == []
            await (await qm.begin(XID)).backout()

    asyncio.run(main())


def test_a_first_call_that_waits_for_its_connection_begins_nothing_behind_a_backout(served: Served) -> None:
    """The unit was open in the daemon as long as the connection, and counted as backed out here."""

    async def main() -> None:
        async with connected(served) as qm:
            for session in list(served.manager.sessions):
                session.stop()
            while pool_of(qm).link.is_there():
                await asyncio.sleep(0)
            pool_of(qm).link.is_lost()  # so that the next call connects again
            unit = qm.begin()
            puts = asyncio.create_task(unit.put("A", b"x"))
            await asyncio.sleep(0)
            await unit.backout()
            with pytest.raises(UnitOfWorkEnded):
                await puts
            assert served.manager.transactions() == []

    asyncio.run(main())
