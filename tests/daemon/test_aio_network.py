"""qmgr.aio over TCP and over TLS: the same calls, and what a cancellation can do there."""

import asyncio
from pathlib import Path

import pytest

import qmgr.aio
from qmgr import UowState
from qmgr.errors import BackedOut, NotAuthorized, UnitOfWorkEnded
from tests.daemon.certificates import Authority
from tests.daemon.serving import serving
from tests.daemon.test_client import far
from tests.qmgr.world import bodies


async def settle(qm: qmgr.aio.Connection) -> None:
    for _ in range(5):
        await qm.status()


async def work(qm: qmgr.aio.Connection) -> None:
    large = bytes(range(256)) * 300
    async with qm.begin() as unit:
        await unit.put("A", large)
        assert await unit.put_many("A", [b"1", large]) != []
    assert [message.body async for message in qm.browse("A")] == [large, b"1", large]
    assert (await qm.get("A")).body == large
    waiting = [asyncio.create_task(qm.get("B", wait=None)) for _ in range(10)]
    await settle(qm)
    cancelled = asyncio.create_task(qm.get("B", wait=None))
    await settle(qm)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await settle(qm)
    await qm.put_many("B", [b"%d" % n for n in range(11)])
    assert len({message.body for message in await asyncio.gather(*waiting)}) == 10
    assert len(await qm.get_many("B", 99)) == 1
    assert len(await qm.get_many("A", 99)) == 2


def test_over_tcp(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with asyncio.timeout(30), qmgr.aio.connect(url, application="till") as qm:
            await work(qm)
            unit = qm.begin()
            await unit.commit()
            with pytest.raises(UnitOfWorkEnded, match=r"^this unit of work is committed"):  # it never had a number
                await unit.commit()

    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        asyncio.run(main(f"qmgr://{place}"))


def test_over_tls(tmp_path: Path) -> None:
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    mine, my_key = signer.issue("mia")

    async def main(url: str) -> None:
        async with (
            asyncio.timeout(30),
            qmgr.aio.connect(url, ca=signer.path, certificate=mine, key=my_key) as qm,
        ):
            await work(qm)
            unit = qm.begin()
            await unit.put("A", b"x")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await unit.get("B", wait=None)
            with pytest.raises(BackedOut, match="was cancelled"):
                await unit.commit()
            await unit.backout()
            assert unit.state is UowState.BACKED_OUT
            with pytest.raises(UnitOfWorkEnded):
                await unit.put("A", b"y")
            with pytest.raises(NotAuthorized):
                await qm.define_queue("C")

    tls = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": signer.path}
    with serving(tmp_path) as served, far(served, authentication=("EXTERNAL",), **tls) as place:
        served.manager.authorize("mia", add=["connect", "inquire"])
        for queue in ("A", "B"):
            served.manager.authorize("mia", queue, add=["put", "get", "browse"])
        asyncio.run(main(f"qmgrs://{place}"))
        assert bodies(served.manager, "A") == []
