"""The loop of the listeners: one force serves whoever asked while the last one ran, and replies come in order."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from qmgr.daemon.loop import LoopThread, borrow, give_back
from tests.qmgr.world import World

DEADLINE = 30  # seconds; never reached but by a fault


class Disk:
    """Forces are counted, and wait while the gate is shut."""

    def __init__(self) -> None:
        self.forced: list[int] = []
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None

    def force(self, lsn: int) -> None:
        self.begun.set()
        assert self.gate.wait(DEADLINE)
        if self.failure is not None:
            raise self.failure
        self.forced.append(lsn)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def thread(disk: Disk) -> Iterator[LoopThread]:
    made = LoopThread(disk.force)
    yield made
    made.end()


def test_one_force_serves_all_that_asked_meanwhile_in_their_order(disk: Disk, thread: LoopThread) -> None:
    heard: list[tuple[int, Exception | None]] = []
    done = threading.Event()

    def hear(lsn: int, error: Exception | None) -> None:
        heard.append((lsn, error))
        if len(heard) == 4:
            done.set()

    async def ask(*lsns: int) -> None:
        for lsn in lsns:
            thread.forcer.ask(lsn, lambda error, lsn=lsn: hear(lsn, error))  # type: ignore[misc]

    disk.gate.clear()
    thread.run(ask(8))
    assert disk.begun.wait(DEADLINE)
    thread.run(ask(16, 40, 24))
    assert heard == []  # the loop answers while the disk does not
    disk.gate.set()
    assert done.wait(DEADLINE)
    assert heard == [(8, None), (16, None), (40, None), (24, None)]
    assert disk.forced == [8, 40]
    assert thread.forcer.safe == 40


@pytest.mark.parametrize("anew", [False, True])
def test_a_force_makes_nothing_safe_that_was_asked_for_while_it_was_under_way(
    disk: Disk, thread: LoopThread, anew: bool
) -> None:
    """Who acts upon it would have an answer before the disk has it. Nor where the loop is begun anew meanwhile."""
    safe: list[int] = []

    async def ask(lsn: int) -> None:
        thread.forcer.ask(lsn, lambda error: safe.append(thread.forcer.safe))

    disk.gate.clear()
    thread.run(ask(8))
    assert disk.begun.wait(DEADLINE)
    thread.run(ask(16))
    if anew:
        thread.loop.call_soon_threadsafe(thread.begin_anew)
        thread.run(asyncio.sleep(0.001))
    disk.gate.set()
    while len(safe) < 2:
        thread.run(asyncio.sleep(0.001))
    assert (safe, disk.forced) == ([8, 16], [8, 16])


def test_what_is_asked_in_one_turn_of_the_loop_is_one_force(disk: Disk, thread: LoopThread) -> None:
    async def ask() -> None:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(5)]
        for lsn, future in enumerate(futures):
            thread.forcer.ask(lsn, future.set_result)
        await asyncio.gather(*futures)

    thread.run(ask())
    thread.run(ask())
    assert disk.forced == [4, 4]


def test_a_failure_is_told_to_everyone_who_asked(disk: Disk, thread: LoopThread) -> None:
    disk.failure = ValueError("no disk")

    async def ask() -> list[object]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        for future in futures:
            thread.forcer.ask(8, future.set_result)
        return list(await asyncio.gather(*futures))

    assert thread.run(ask()) == [disk.failure] * 3
    assert thread.forcer.safe == 0


def test_listeners_of_a_queue_manager_share_a_loop_that_ends_with_the_last() -> None:
    world = World()
    world.qm.define_queue("A")
    others = set(threading.enumerate())  # of other tests; they may end meanwhile
    first, second = borrow(world.qm), borrow(world.qm)
    assert first is second
    give_back(world.qm)
    assert first.loop.is_running()
    assert set(threading.enumerate()) - others
    give_back(world.qm)
    assert first.loop.is_closed()
    assert not set(threading.enumerate()) - others
    again = borrow(world.qm)
    assert again is not first
    give_back(world.qm)


def test_a_callback_that_fails_keeps_nobody_waiting(disk: Disk, thread: LoopThread) -> None:
    heard: list[object] = []

    def fails(error: Exception | None) -> None:
        raise ValueError("a bug")

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
        future = loop.create_future()
        thread.forcer.ask(8, fails)
        thread.forcer.ask(8, future.set_result)
        await future

    thread.run(ask())
    assert [str(exc) for exc in heard] == ["a bug"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_asks_a_loop_that_a_mistake_has_ended_hears_of_that(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the queue manager waited for it for ever."""
    thread = LoopThread(disk.force)

    def fails() -> None:
        raise KeyError("of ours")

    monkeypatch.setattr(thread.forcer, "recover", fails)
    thread.loop.call_soon_threadsafe(thread.begin_anew)
    with pytest.raises(RuntimeError, match="is over"):
        thread.run(asyncio.sleep(0.001))
    thread.forcer.end()
    thread.loop.run_until_complete(asyncio.sleep(0.002))  # what it had begun
    thread.loop.close()
