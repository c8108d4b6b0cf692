"""What only asynchronous code can do: cancel calls, wait in many tasks at once, leave in the middle of anything."""

import asyncio
import gc
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import qmgr.aio
from qmgr import Reason, UowState, Xid, manager
from qmgr.aio.units import to_the_end
from qmgr.engine import Engine
from tests.conformance.calls import DEADLINE
from tests.conformance.nursery import Daemon, Nursery
from tests.qmgr.world import NAME, SMALL
from tests.test_arrows import MODULES, imports

Open = Callable[[], qmgr.aio.Opening[Any]]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[tuple[Path, Daemon]]:
    path = tmp_path_factory.mktemp("qm")
    qmgr.create(NAME, data_path=path, **SMALL)
    started = nursery.start(path)
    yield path, started
    started.kill()


@pytest.fixture(params=["in-process", "client"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Start a queue manager here, or connect to the one of the daemon."""
    if request.param == "client":
        path: Path = request.getfixturevalue("daemon")[0]
        return lambda: qmgr.aio.connect(NAME, data_path=path)
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    return lambda: qmgr.aio.start(NAME, data_path=tmp_path)


@asynccontextmanager
async def opened(opening: Open, *queues: str) -> AsyncIterator[qmgr.aio.Connection]:
    """A connection, and these queues, empty."""
    async with asyncio.timeout(DEADLINE), opening() as qm:
        for queue in queues:
            if queue in [info.name for info in await qm.queues()]:
                await qm.delete_queue(queue, purge=True)
            await qm.define_queue(queue)
        yield qm


async def settle(qm: qmgr.aio.Connection) -> None:
    """Give calls that were begun time to get where they wait; what is tested holds wherever they are."""
    for _ in range(5):
        await qm.status()


async def bodies(qm: qmgr.aio.Connection, queue: str) -> list[bytes]:
    return [message.body async for message in qm.browse(queue)]


def test_a_start_that_is_cancelled_leaves_no_queue_manager_that_nobody_can_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    start, begun, cancelled = manager.start, threading.Event(), threading.Event()

    def waits(*args: Any, **options: Any) -> qmgr.QueueManager:
        begun.set()
        assert cancelled.wait(DEADLINE)
        return start(*args, **options)

    async def used() -> None:
        async with qmgr.aio.start(NAME, data_path=tmp_path):
            await asyncio.Event().wait()

    async def main() -> None:
        monkeypatch.setattr(manager, "start", waits)
        starting = asyncio.ensure_future(used())
        await asyncio.to_thread(begun.wait)
        starting.cancel()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(main())
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        assert qm.queues() == []


def test_it_is_used_as_one_would_think(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A", "B") as qm:
            await qm.put("A", b"one", priority=4)
            async with qm.begin() as uow:
                order = await uow.get("A", wait=5.0)
                await uow.put("B", order.body, correlation_id=order.message_id)
            assert uow.state is UowState.COMMITTED
            assert await bodies(qm, "B") == [b"one"]
            with pytest.raises(qmgr.NoMessageAvailable):
                await qm.get("A")
        with pytest.raises(qmgr.Unavailable):
            await qm.put("A", b"")

    asyncio.run(main())


def test_a_connection_may_be_awaited(opening: Open) -> None:
    async def main() -> None:
        qm = await opening()
        assert qm.name == NAME
        async with qm:
            await qm.status()

    asyncio.run(main())


def test_nothing_there_to_connect_to_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(qmgr.Unavailable, match="strmqm QM1") as caught:
            await qmgr.aio.connect(NAME, data_path=tmp_path)
        assert caught.value.reason == Reason.Q_MGR_NOT_AVAILABLE

    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    asyncio.run(main())


@pytest.mark.parametrize("in_unit", [True, False], ids=["in a unit of work", "outside"])
def test_a_cancelled_get_takes_no_message(opening: Open, in_unit: bool) -> None:
    async def main() -> None:
        async with opened(opening, "A") as qm, qm.begin() as unit:
            getter = unit if in_unit else qm
            for steps in (0, 1, 2, 50):
                waiting = asyncio.create_task(getter.get("A", wait=None))
                for _ in range(steps):
                    await asyncio.sleep(0)
                if steps == 50:
                    await settle(qm)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await getter.get_many("A", 5, wait=None)
            await qm.put("A", b"x")
            assert (await qm.queue("A")).depth == 1
            assert (await getter.get("A")).body == b"x"

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("in_unit", [True, False], ids=["in units of work", "outside"])
def test_messages_are_got_once_whenever_gets_are_cancelled(opening: Open, seed: int, in_unit: bool) -> None:
    rng = random.Random(seed)
    got = []

    async def get(qm: qmgr.aio.Connection) -> None:
        if not in_unit:
            got.append((await qm.get("A", wait=None)).body)
            return
        unit = qm.begin()
        try:
            got.append((await unit.get("A", wait=None)).body)
        finally:
            await to_the_end(unit.commit())

    async def main() -> None:
        async with opened(opening, "A") as qm:
            tasks = [asyncio.create_task(get(qm)) for _ in range(12)]
            for n in range(8):
                await qm.put("A", b"%d" % n, persistent=n % 2 == 0)
                for _ in range(rng.randrange(40)):
                    await asyncio.sleep(0)
                rng.choice(tasks).cancel()
            for task in tasks[:6]:
                task.cancel()
            await settle(qm)
            for task in tasks[6:]:
                task.cancel()
            await asyncio.wait(tasks)
            assert [task.exception() for task in tasks if not task.cancelled() and task.exception()] == []
            assert sorted(got + await bodies(qm, "A")) == [b"%d" % n for n in range(8)]

    asyncio.run(main())


def test_a_unit_of_work_goes_on_behind_a_get_that_took_too_long(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A", "B") as qm:
            async with qm.begin() as unit:
                await unit.put("B", b"1")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await unit.get("A", wait=None)
                await qm.put("A", b"later")
                await unit.put("B", b"2")
            assert await bodies(qm, "A") == [b"later"]
            assert await bodies(qm, "B") == [b"1", b"2"]

    asyncio.run(main())


def test_a_cancelled_commit_leaves_an_outcome_that_can_be_asked_for(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A") as qm:
            for steps in range(4):
                unit = qm.begin()
                await unit.put("A", b"%d" % steps)
                committing = asyncio.create_task(unit.commit())
                for _ in range(steps):
                    await asyncio.sleep(0)
                committing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await committing
                if not steps:  # it had not begun to run
                    await unit.commit()
                while await qm.outcome(unit.id) is UowState.ACTIVE:
                    await settle(qm)
                assert await qm.outcome(unit.id) is UowState.COMMITTED
                while unit.state is not UowState.COMMITTED:  # so it knows itself, a moment later
                    await settle(qm)
            assert await bodies(qm, "A") == [b"0", b"1", b"2", b"3"]

    asyncio.run(main())


def test_a_block_that_is_cancelled_backs_out(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A", "B") as qm:
            await qm.put("A", b"x")
            got = asyncio.Event()

            async def work() -> None:
                async with qm.begin() as unit:
                    await unit.get("A")
                    await unit.put("B", b"y")
                    got.set()
                    await asyncio.sleep(DEADLINE)

            working = asyncio.create_task(work())
            await got.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert (await bodies(qm, "A"), await bodies(qm, "B")) == ([b"x"], [])
            assert await qm.transactions() == []

    asyncio.run(main())


@pytest.mark.parametrize("way", ["block", "in-process", "client"])
def test_who_ends_a_queue_manager_does_not_wait_for_a_unit_of_work_of_its_own(
    tmp_path: Path, nursery: Nursery, way: str
) -> None:
    """The end of the block, and before Python 3.12 wait_for, make the call in another task."""
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    units: list[qmgr.aio.UnitOfWork] = []

    async def work() -> None:
        open_it = qmgr.aio.connect if way == "client" else qmgr.aio.start
        async with open_it(NAME, data_path=tmp_path) as qm:
            await qm.define_queue("A")
            units.append(qm.begin())
            await units[0].put("A", b"not committed")
            if way != "block":
                await asyncio.wait_for(qm.end(), 4 * DEADLINE)

    async def main() -> None:
        working = asyncio.create_task(work())
        await asyncio.wait([working], timeout=DEADLINE)
        if waits := not working.done():
            await units[0].backout()
        await working
        assert not waits

    if way == "client":
        nursery.start(tmp_path)
    asyncio.run(main())
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        assert qm.queue("A").depth == 0


@pytest.mark.parametrize("way", ["in-process", "client"])
@pytest.mark.parametrize("by", ["run_until_complete", "run_coroutine_threadsafe"])
def test_an_end_may_be_made_where_no_event_loop_runs(tmp_path: Path, nursery: Nursery, way: str, by: str) -> None:
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    if way == "client":
        nursery.start(tmp_path)
    open_it: Any = qmgr.aio.connect if way == "client" else qmgr.aio.start
    loop = asyncio.new_event_loop()

    async def opened() -> Any:
        return await open_it(NAME, data_path=tmp_path)

    try:
        qm = loop.run_until_complete(opened())
        if by == "run_until_complete":
            loop.run_until_complete(qm.end())
        else:
            running = threading.Thread(target=loop.run_forever)
            running.start()
            asyncio.run_coroutine_threadsafe(qm.end(), loop).result(DEADLINE)
            loop.call_soon_threadsafe(loop.stop)
            running.join()
    finally:
        loop.close()
    with qmgr.start(NAME, data_path=tmp_path):
        pass  # it has ended


@pytest.mark.interpreted
@pytest.mark.parametrize("ids", [{}, {"correlation_id": b"c"}])
def test_who_is_woken_for_nothing_looks_and_wakes_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: dict[str, bytes]
) -> None:
    """They woke each other for ever, once a message had come for one of them."""
    stands = 0
    stand = Engine.add_waiter

    def counted(*args: Any) -> str:
        nonlocal stands
        stands += 1
        return stand(*args)

    monkeypatch.setattr(Engine, "add_waiter", counted)
    qmgr.create(NAME, data_path=tmp_path, **SMALL)

    async def main() -> int:
        async with opened(lambda: qmgr.aio.start(NAME, data_path=tmp_path), "A") as qm:
            waiting = [asyncio.create_task(qm.get("A", wait=None, **ids)) for _ in range(3)]
            while stands < 3:
                await asyncio.sleep(0.01)
            await qm.put("A", b"x", **ids)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for _ in range(20):
                await settle(qm)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            return stands

    assert asyncio.run(main()) <= 6, "each stands once more at most"


def test_what_a_cancelled_call_raises_is_nobodys_business(opening: Open) -> None:
    async def main() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        async with opened(opening) as qm:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
            for _ in range(20):
                put = asyncio.ensure_future(qm.put("NO.SUCH.QUEUE", b""))
                await asyncio.sleep(0)
                put.cancel()
                await asyncio.wait([put])
            await settle(qm)
        gc.collect()
        return told

    assert asyncio.run(main()) == []


def test_many_tasks_wait_at_once_without_a_thread_each(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A") as qm:
            before = threading.active_count()
            tasks = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(150)]
            await settle(qm)
            assert threading.active_count() - before < 40
            await qm.put_many("A", [b"%d" % n for n in range(150)])
            got = await asyncio.gather(*tasks)
            assert sorted(int(message.body) for message in got) == list(range(150))

    asyncio.run(main())


def test_tasks_share_a_unit_of_work(opening: Open) -> None:
    """Also its first calls, one of which begins it."""

    async def main() -> None:
        async with opened(opening, "A") as qm:
            async with qm.begin() as unit:
                await asyncio.gather(*[unit.put("A", b"%d" % n) for n in range(20)])
            assert len(await qm.get_many("A", 99)) == 20
            async with qm.begin(Xid(1, b"shared", b"")) as unit:
                await asyncio.gather(*[unit.put("A", b"%d" % n) for n in range(20)])
                await unit.prepare()
            assert await qm.in_doubt() == [Xid(1, b"shared", b"")]
            await qm.resolve(Xid(1, b"shared", b""), commit=False)
            assert await bodies(qm, "A") == []

    asyncio.run(main())


def test_a_second_unit_of_an_xid_is_refused_when_it_is_begun(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A") as qm:
            first = await qm.begin(Xid(1, b"g", b""))
            with pytest.raises(qmgr.Mistake) as caught:
                async with qm.begin(Xid(1, b"g", b"")):
                    raise AssertionError("not reached")
            assert caught.value.reason == Reason.UOW_IN_PROGRESS
            await first.backout()
            async with qm.begin(Xid(1, b"g", b"")) as again:
                await again.put("A", b"x")
            assert await bodies(qm, "A") == [b"x"]

    asyncio.run(main())


def test_browses_that_are_left_cost_nothing(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A") as qm:
            await qm.put_many("A", [b"x"] * 40, persistent=False)
            for n in range(300):  # more than one client may have at a time
                looking = qm.browse("A")
                assert (await anext(looking)).body == b"x"
                if n % 2:
                    del looking
                else:
                    await looking.aclose()  # type: ignore[attr-defined]
                    assert [message async for message in looking] == []

    asyncio.run(main())


def test_tasks_share_a_browse(opening: Open) -> None:
    async def read(looking: AsyncIterator[qmgr.Message]) -> list[int]:
        return [int(message.body) async for message in looking]

    async def main() -> None:
        async with opened(opening, "A") as qm:
            await qm.put_many("A", [b"%d" % n for n in range(400)], persistent=False)
            for _ in range(5):
                looking = qm.browse("A")
                found = await asyncio.gather(*[read(looking) for _ in range(4)])
                assert sorted(one for some in found for one in some) == list(range(400))

    asyncio.run(main())


def test_a_call_in_another_event_loop_is_refused(opening: Open) -> None:
    """It was made, and then its answer could not be waited for."""

    async def elsewhere(qm: qmgr.aio.Connection) -> None:
        with pytest.raises(qmgr.Unavailable, match="another event loop") as caught:
            await qm.put("A", b"x")
        assert caught.value.reason is Reason.HCONN_ERROR

    async def main() -> None:
        async with opened(opening, "A") as qm:
            await asyncio.to_thread(lambda: asyncio.run(elsewhere(qm)))
            assert await bodies(qm, "A") == []

    asyncio.run(main())


def test_what_waits_when_the_connection_is_closed_is_told(opening: Open) -> None:
    async def main() -> None:
        async with opened(opening, "A") as qm:
            waiting = asyncio.create_task(qm.get("A", wait=None))
            await settle(qm)
            await qm.close()
            with pytest.raises(qmgr.Unavailable):
                await waiting
            for call in (lambda: qm.get("A", wait=None), lambda: qm.put("A", b""), qm.status):
                with pytest.raises(qmgr.Unavailable):
                    await call()  # type: ignore[operator]
            await qm.close()

    asyncio.run(main())


def test_a_lost_connection_is_told_and_made_again(tmp_path: Path, nursery: Nursery) -> None:
    qmgr.create(NAME, data_path=tmp_path, **SMALL)

    async def main() -> None:
        daemon = await asyncio.to_thread(nursery.start, tmp_path)
        async with qmgr.aio.connect(NAME, data_path=tmp_path) as qm:
            await qm.define_queue("A")
            unit, prepared = qm.begin(), qm.begin(Xid(1, b"g", b""))
            await unit.put("A", b"lost")
            await prepared.put("A", b"kept")
            await prepared.prepare()
            waiting = [asyncio.create_task(qm.get("A", wait=None)) for _ in range(3)]
            await settle(qm)
            await asyncio.to_thread(daemon.kill)
            for task in waiting:
                with pytest.raises(qmgr.Unavailable) as caught:
                    await task
                assert caught.value.reason == Reason.CONNECTION_BROKEN
            with pytest.raises(qmgr.Unavailable, match="strmqm"):
                await qm.put("A", b"nobody there")
            daemon = await asyncio.to_thread(nursery.start, tmp_path)
            await qm.put("A", b"there again")
            with pytest.raises(qmgr.BackedOut):
                await unit.put("A", b"")
            with pytest.raises(qmgr.Unavailable, match="in doubt"):
                await prepared.commit()
            await unit.backout()
            await qm.resolve(Xid(1, b"g", b""), commit=True)
            assert sorted(await bodies(qm, "A")) == [b"kept", b"there again"]
            async with qm.begin() as unit:
                await unit.get_many("A", 5)
        await asyncio.to_thread(daemon.kill)

    asyncio.run(main())


def test_nothing_else_imports_it() -> None:
    """Who does not use it does not pay for it."""
    others = [path for name, path in MODULES.items() if not name.startswith("qmgr.aio")]
    assert [path for path in others if any(name.startswith("qmgr.aio") for name in imports(path))] == []


# ---- cancellations that come too late


async def cancelled_meanwhile(work: Callable[[asyncio.Event], Awaitable[Any]]) -> "asyncio.Task[Any]":
    """A task that was cancelled while what it waited for went on, and that ended then."""
    go = asyncio.Event()
    task: asyncio.Task[Any] = asyncio.ensure_future(work(go))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    await asyncio.wait([task])
    return task


async def after(go: asyncio.Event, result: Any) -> Any:
    await go.wait()
    if isinstance(result, Exception):
        raise result
    return result


@pytest.mark.parametrize("result", [None, [], ValueError()], ids=repr)
def test_a_cancellation_strikes_where_nothing_came_of_it(result: Any) -> None:
    async def main() -> None:
        assert (await cancelled_meanwhile(lambda go: to_the_end(after(go, result)))).cancelled()

    asyncio.run(main())


def test_a_cancellation_strikes_later_where_something_came() -> None:
    reached = []

    async def work(go: asyncio.Event) -> None:
        reached.append(await to_the_end(after(go, "something")))
        await asyncio.sleep(0)  # the loop comes round, and then it strikes
        await asyncio.sleep(DEADLINE)
        reached.append("too far")

    async def main() -> None:
        assert (await cancelled_meanwhile(work)).cancelled()
        assert reached == ["something"]

    asyncio.run(main())


def test_a_time_limit_that_was_overtaken_by_its_result_leaves_nothing_behind() -> None:
    async def main() -> None:
        go = asyncio.Event()
        asyncio.get_running_loop().call_later(0.02, go.set)
        async with asyncio.timeout(0.001):
            found = await to_the_end(after(go, "something"))
        assert found == "something"
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(main())
