"""Units of work of qmgr.aio whose calls are cancelled: what is known of them is said; none stays open for nobody."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

import qmgr.aio
from qmgr import Reason, UowState, Xid, wire
from qmgr.aio.channel import Channel, Pool
from qmgr.aio.outside import Outside
from qmgr.errors import BackedOut, Unavailable, UnitOfWorkEnded
from qmgr.link import Link
from tests.daemon.certificates import Authority
from tests.daemon.serving import LONG, Served, serving
from tests.daemon.test_client import far
from tests.qmgr.world import NAME, bodies

XID = Xid(1, b"global", b"branch")


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[qmgr.aio.Connection]:
    async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as qm:
        await qm.status()
        yield qm


def pool_of(qm: qmgr.aio.Connection) -> Pool:
    return cast(Outside, qm._backend)._pool


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def lose(served: Served, qm: qmgr.aio.Connection) -> None:
    for session in list(served.manager.sessions):
        session.stop()
    while pool_of(qm).link.is_there():
        await asyncio.sleep(0)


@asynccontextmanager
async def no_socket(qm: qmgr.aio.Connection) -> AsyncIterator[None]:
    """In the block all of them are in use, and who wants one stands in line."""
    pool = pool_of(qm)
    for _ in range(pool.link.calls):
        await pool._slots.acquire()
    try:
        yield
    finally:
        for _ in range(pool.link.calls):
            pool._slots.release()


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
            await lose(served, qm)
            pool_of(qm).link.is_lost()  # so that the next call connects again
            unit = qm.begin()
            puts = asyncio.create_task(unit.put("A", b"x"))
            await asyncio.sleep(0)
            await unit.backout()
            with pytest.raises(UnitOfWorkEnded):
                await puts
            assert served.manager.transactions() == []

    asyncio.run(main())


def slow_links(monkeypatch: pytest.MonkeyPatch) -> list[Link]:
    """Connecting takes half a second, as it may on a network, or while a daemon that was killed restarts."""
    made = list[Link]()
    connect = Link.__init__

    def slowly(self: Link, *args: Any) -> None:
        time.sleep(0.5)
        connect(self, *args)
        made.append(self)

    monkeypatch.setattr(Link, "__init__", slowly)
    return made


def test_who_gives_up_each_call_sooner_than_one_can_connect_is_connected(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call began anew, and what it had come to was thrown away: nobody with a short time-out ever came back."""

    async def asked(qm: qmgr.aio.Connection) -> bool:
        try:
            async with asyncio.timeout(0.1):
                await qm.status()
        except TimeoutError:
            return False
        return True

    async def main() -> None:
        async with connected(served) as qm:
            await lose(served, qm)
            pool_of(qm).link.is_lost()
            made = slow_links(monkeypatch)
            while not all(await asyncio.gather(*(asked(qm) for _ in range(5)))):
                pass
            assert len(made) == 1
            await lose(served, qm)
            pool_of(qm).link.is_lost()
            assert not await asked(qm)
        async with asyncio.timeout(LONG):
            while len(made) < 2 or not made[1].broken:  # it was made for a connection that was closed meanwhile
                await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [True, False])
def test_connecting_that_ended_with_its_event_loop_is_begun_anew(
    served: Served, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """Every later call was cancelled, or told that it is of another loop, for as long as the program ran."""

    async def lost() -> qmgr.aio.Connection:
        qm = await qmgr.aio.connect(NAME, data_path=served.path)
        await qm.status()
        await lose(served, qm)
        pool_of(qm).link.is_lost()
        asking.append(asyncio.ensure_future(qm.status()))
        if not cancelled:  # else the loop ends before connecting has taken its first step
            await asyncio.sleep(0.01)
        return qm

    async def main(qm: qmgr.aio.Connection) -> None:
        async with asyncio.timeout(LONG), qm:
            await qm.status()

    asking = list[asyncio.Task[Any]]()
    if cancelled:
        qm = asyncio.run(lost())
    else:
        loop = asyncio.new_event_loop()
        slow_links(monkeypatch)
        qm = loop.run_until_complete(lost())
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
    asyncio.run(main(qm))


def test_a_cancelled_connect_leaves_no_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        made = slow_links(monkeypatch)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), qmgr.aio.connect(NAME, data_path=served.path):
                raise AssertionError("not reached")
        async with asyncio.timeout(LONG):
            while not made or not made[0].broken:
                await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.parametrize("end", ["commit", "prepare"])
def test_a_cancelled_end_whose_connection_is_lost_then_is_not_said_to_be_backed_out(
    served: Served, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The daemon had done it, and the answer was on its way."""

    async def main() -> None:
        async with connected(served) as qm:
            unit = qm.begin(XID)
            await unit.put("A", b"x")
            with monkeypatch.context() as patched:
                patched.setattr(Channel, "data_received", lambda self, data: None)
                ending = asyncio.create_task(getattr(unit, end)())
                done = UowState.COMMITTED if end == "commit" else UowState.PREPARED
                while served.manager.outcome(unit.id) is not done:
                    await asyncio.sleep(0.01)
                await cancelled(ending)
                await lose(served, qm)
                for call in (unit.backout, unit.commit, unit.backout):
                    with pytest.raises((UnitOfWorkEnded, Unavailable), match=r"outcome\(|in doubt"):
                        await call()
            assert unit.state is not UowState.BACKED_OUT
            assert await qm.outcome(unit.id) is done
            if end == "prepare":
                await qm.resolve(XID, commit=False)

    asyncio.run(main())


def test_a_lost_commit_names_its_unit_though_the_answer_to_the_first_call_was_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named unit of work 0, of which nobody knows the outcome."""
    really = Channel.ask

    async def main() -> None:
        async with connected(served) as qm:
            unit = qm.begin()

            def and_cancel(channel: Channel, frame: bytes) -> "asyncio.Future[list[bytes]]":
                putting.cancel()
                return really(channel, frame)

            with monkeypatch.context() as patched:
                patched.setattr(Channel, "ask", and_cancel)
                putting = asyncio.create_task(unit.put("A", b"x"))
                with pytest.raises(asyncio.CancelledError):
                    await putting
            while not served.manager.transactions():
                await asyncio.sleep(0.01)
            [info] = served.manager.transactions()

            def and_lose(channel: Channel, frame: bytes) -> "asyncio.Future[list[bytes]]":
                answer = really(channel, frame)
                if frame[4] == wire.COMMIT:
                    monkeypatch.setattr(channel, "data_received", lambda data: None, raising=False)
                return answer

            with monkeypatch.context() as patched:
                patched.setattr(Channel, "ask", and_lose)
                committing = asyncio.create_task(unit.commit())
                while served.manager.outcome(info.number) is not UowState.COMMITTED:
                    await asyncio.sleep(0.01)
                await lose(served, qm)
                with pytest.raises(Unavailable, match=rf"outcome\({info.number}\) tells"):
                    await committing
            assert await qm.outcome(info.number) is UowState.COMMITTED

    asyncio.run(main())


def test_a_prepare_that_is_cancelled_is_heard_of(served: Served) -> None:
    async def main() -> None:
        async with connected(served) as qm:
            unit, other = qm.begin(XID), qm.begin(Xid(1, b"other", b""))
            for one in (unit, other):
                await one.put("A", b"x")
            for one in (unit, other):
                preparing = asyncio.create_task(one.prepare())
                while not cast(Any, one)._unit.end_asked:
                    await asyncio.sleep(0)
                await cancelled(preparing)
                if one is other:
                    await other.backout()
            while unit.state is UowState.ACTIVE:
                await asyncio.sleep(0.01)
            assert unit.state is UowState.PREPARED
            assert other.state is UowState.BACKED_OUT
            assert await qm.in_doubt() == [XID]
            await unit.commit()

    asyncio.run(main())
    assert bodies(served.manager, "A") == [b"x"]


def test_a_prepare_that_is_cancelled_in_line_leaves_a_unit_that_goes_on(served: Served) -> None:
    """Nothing could be sent in it any more."""

    async def main() -> None:
        async with connected(served) as qm:
            unit = qm.begin(XID)
            await unit.put("A", b"x")
            async with no_socket(qm):
                preparing = asyncio.create_task(unit.prepare())
                await asyncio.sleep(0.01)
                await cancelled(preparing)
            await unit.send("A", b"y")
            await unit.prepare()
            await unit.commit()

    asyncio.run(main())
    assert bodies(served.manager, "A") == [b"x", b"y"]


@pytest.mark.parametrize("end", ["commit", "prepare"])
@pytest.mark.parametrize("where", ["in line", "on its way"])
def test_an_end_whose_sends_were_lost_says_that_the_unit_was_backed_out(
    served: Served, monkeypatch: pytest.MonkeyPatch, end: str, where: str
) -> None:
    """Nobody had asked for the end, and still it was 2009; one that had only sent had no number to ask for."""

    async def told(call: Awaitable[None]) -> None:
        with pytest.raises(BackedOut, match="was backed out when its connection was lost"):
            await call

    async def main() -> None:
        async with connected(served) as qm:
            unit = qm.begin(XID if end == "prepare" else None)
            await unit.send("A", b"x")
            if end == "prepare":
                await qm.status()
            async with no_socket(qm):
                ending = asyncio.create_task(told(getattr(unit, end)()))
                await asyncio.sleep(0.01)
                if where == "in line":
                    await lose(served, qm)
                    pool_of(qm).close()
                else:
                    monkeypatch.setattr(Channel, "data_received", lambda self, data: None)
            if where != "in line":
                await asyncio.sleep(0.05)
                await lose(served, qm)
            await ending
            await unit.backout()
            assert unit.state is UowState.BACKED_OUT

    asyncio.run(main())
    assert bodies(served.manager, "A") == []


def test_a_socket_of_a_session_that_is_lost_is_not_asked(served: Served) -> None:
    """It was in the pool still, and the outcome of the commit that took it counted as unknown."""

    async def main() -> None:
        async with connected(served) as qm:
            unit = qm.begin()
            await unit.put("A", b"x")
            async with no_socket(qm):
                committing = asyncio.create_task(unit.commit())
                await asyncio.sleep(0.01)
                pool_of(qm)._slots.release()
                pool_of(qm).close()
                await pool_of(qm)._slots.acquire()
            with pytest.raises(BackedOut):
                await committing

    asyncio.run(main())


def test_a_put_that_stood_in_line_for_a_socket_of_a_session_that_is_lost_says_that_nothing_was_done(
    served: Served,
) -> None:
    """It said that it may have been done, and who has to know looked for a message that was never sent."""

    async def main() -> None:
        async with connected(served) as qm:
            async with no_socket(qm):
                putting = asyncio.create_task(qm.put("A", b"x"))
                await asyncio.sleep(0)  # it stands in line
                pool_of(qm).close()
            with pytest.raises(Unavailable, match="nothing of this call was done") as caught:
                await putting
            assert caught.value.reason is Reason.CONNECTION_BROKEN

    asyncio.run(main())
    assert bodies(served.manager, "A") == []


# ---- nobody is there to end it


def test_a_consumer_that_is_cancelled_in_a_commit_that_takes_sends_along_keeps_no_message(served: Served) -> None:
    """Its unit of work was neither committed nor backed out, and the message locked until the connection ended."""

    lock, sent = served.manager._engine.lock, asyncio.Event()

    async def consume(qm: qmgr.aio.Connection) -> None:
        async for _, unit in qm.consume("A"):
            await unit.send("B", b"y")
            lock.acquire()  # the daemon can't put it
            sent.set()

    async def main() -> None:
        async with connected(served) as qm:
            await qm.put("A", b"x")
            consuming = asyncio.create_task(consume(qm))
            await sent.wait()
            await asyncio.sleep(0.05)
            consuming.cancel()
            await asyncio.sleep(0.05)
            lock.release()
            await asyncio.wait([consuming])
            assert consuming.cancelled()
            await nothing_is_open(served)
            assert (await qm.get("A")).backout_count == 1

    asyncio.run(main())
    assert bodies(served.manager, "B") == []


def refuses(monkeypatch: pytest.MonkeyPatch, go: asyncio.Event) -> asyncio.Event:
    """Who wants a socket from now on hears, once, that there is none, when it may go on; set when it is there."""
    take, there = Pool.take, asyncio.Event()

    async def refused(pool: Pool) -> Channel:
        there.set()
        await go.wait()
        monkeypatch.setattr(Pool, "take", take)
        raise Unavailable("no connection can be made")

    monkeypatch.setattr(Pool, "take", refused)
    return there


def test_a_commit_that_is_refused_when_nobody_waits_for_it_any_more_is_a_backout(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block was left, and its unit of work open as long as the connection."""
    go, begun, units = asyncio.Event(), asyncio.Event(), list[qmgr.aio.UnitOfWork]()

    async def block(qm: qmgr.aio.Connection) -> None:
        async with qm.begin() as unit:
            units.append(unit)
            await unit.put("A", b"x")
            begun.set()

    async def main() -> None:
        async with connected(served) as qm:
            committing = asyncio.create_task(block(qm))
            await begun.wait()
            await refuses(monkeypatch, go).wait()
            await cancelled(committing)
            go.set()
            await nothing_is_open(served)
            while units[0].state is UowState.ACTIVE:
                await asyncio.sleep(0)
            assert await qm.outcome(units[0].id) is units[0].state is UowState.BACKED_OUT

    asyncio.run(main())


def test_a_get_over_tls_whose_commit_is_refused_leaves_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was locked as long as the connection was open."""
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    usual, go = Outside.commit, asyncio.Event()
    go.set()

    async def commit(way: Outside, unit: Any) -> None:
        refuses(monkeypatch, go)
        await usual(way, unit)

    async def main(url: str) -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(url, ca=signer.path) as qm:
            await qm.put("A", b"x")
            with monkeypatch.context() as patched:
                patched.setattr(Outside, "commit", commit)
                with pytest.raises(Unavailable, match="no connection can be made"):
                    await qm.get("A", wait=1.0)
            assert (await qm.get("A")).backout_count == 1

    tls = {"tls_certificate": certificate, "tls_key": key}
    with serving(tmp_path) as served, far(served, authentication=("NONE",), **tls) as place:
        asyncio.run(main(f"qmgrs://{place}"))
