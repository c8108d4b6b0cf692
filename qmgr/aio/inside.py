"""The asynchronous face of a queue manager in this process: its calls run in threads, its waits need none."""

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from qmgr.aio.connection import Connection
from qmgr.aio.units import calling_task, check_loop, forget, running_loop, to_the_end
from qmgr.delivery import Watch
from qmgr.manager import QueueManager as InProcess
from qmgr.manager import UnitOfWork
from qmgr.message import Message, check_bodies
from qmgr.replay import Replay, Replayed, Where
from qmgr.threads import this_thread
from qmgr.verbs import GetOptions, PutOptions, Wanted, check_wait, waiting_at, wanted
from recovery.records import Xid
from recovery.uows import Uow

MAX_THREADS = 32  # so many calls share a force of the log
READ_AHEAD_MESSAGES = 16

T = TypeVar("T")


class QueueManager(Connection):
    """A queue manager in this process, for asynchronous code. Leaving an `async with` block ends it in order."""

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if not self._backend.forked:
            await to_the_end(self.end("quiesce" if kind is None else "immediate"))


class InsideUnit(UnitOfWork):
    """A unit of work, with what `units.Unit` asks of one."""

    @property
    def number(self) -> int:
        return self.id

    @property
    def evicted(self) -> bool:
        return self._unit.evicted


class Inside:
    """Backend: a queue manager in this process."""

    def __init__(self, manager: InProcess) -> None:
        self.name = manager.name
        self._manager = manager
        self._engine = manager._engine
        self._loop = asyncio.get_running_loop()
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="qmgr")
        self._began: dict[int, asyncio.Task[Any] | None] = {}  # units of work that are open, and who has begun them

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call in a thread. It goes on when this task is cancelled."""
        if self._threads is None or self.forked:
            return call()  # it raises: the queue manager has ended, or is the parent's
        check_loop(self._loop)
        made = self._loop.run_in_executor(self._threads, call)
        made.add_done_callback(forget)
        return await asyncio.shield(made)

    @property
    def forked(self) -> bool:
        """Is this a fork of the process that has the queue manager? All calls are refused there."""
        return self._manager._state == "forked"

    # ---- units of work

    def new_unit(self, xid: Xid | None) -> InsideUnit:
        begun = self._engine.begin(xid, self._manager._process, this_thread())
        try:
            unit = InsideUnit(self._manager, begun)
            self._began[begun.number] = asyncio.current_task()
            return unit
        except BaseException:
            self._began.pop(begun.number, None)
            self._engine.discard_unit(begun)
            raise

    async def begin(self, unit: InsideUnit) -> None:
        """`new_unit` has begun it."""

    async def prepare(self, unit: InsideUnit) -> None:
        await self.run(unit.prepare)
        self._began.pop(unit.id, None)  # nobody is waited for with it any more, and anybody may resolve it

    async def commit(self, unit: InsideUnit) -> None:
        await self._over(unit, unit.commit)

    async def backout(self, unit: InsideUnit) -> None:
        await self._over(unit, unit.backout)

    async def leave(self, unit: InsideUnit) -> None:
        await self._over(unit, unit.backout)

    async def _over(self, unit: InsideUnit, end: Callable[[], None]) -> None:
        self._began.pop(unit.id, None)
        await self.run(end)

    # ---- messages

    async def put(self, unit: InsideUnit | None, queue: str, body: bytes, options: PutOptions) -> Message:
        return await self.run(lambda: (unit or self._manager).put(queue, body, **options))

    async def send(self, unit: InsideUnit, queue: str, body: bytes, options: PutOptions) -> None:
        await self.run(lambda: unit.send(queue, body, **options))

    async def settle(self, unit: InsideUnit) -> None:
        """`send` has put it."""

    async def put_many(
        self, unit: InsideUnit | None, queue: str, bodies: Iterable[bytes], options: PutOptions
    ) -> list[Message]:
        checked = check_bodies(bodies)
        return await self.run(lambda: (unit or self._manager).put_many(queue, checked, **options))

    async def get(
        self, unit: InsideUnit | None, queue: str, limit: int, wait: Any, options: GetOptions
    ) -> list[Message]:
        def call() -> list[Message]:
            return (unit or self._manager).get_many(queue, limit, **options)

        seconds = check_wait(wait)
        if self.forked:
            return call()
        found = await to_the_end(self.run(call))
        if found or seconds == 0.0:
            return found
        deadline = None if seconds is None else self._loop.time() + seconds
        which = wanted(options)
        while not found and (deadline is None or self._loop.time() < deadline):
            try:
                with waiting_at(queue):
                    async with asyncio.timeout_at(deadline):
                        found = await self._in_line(unit, queue, call, which)
            except TimeoutError:
                break
        return found or await to_the_end(self.run(call))

    async def _in_line(
        self, unit: InsideUnit | None, queue: str, call: Callable[[], list[Message]], which: Wanted
    ) -> list[Message]:
        """Stand in line at the queue until there may be something, unless there is something by now."""
        come = asyncio.Event()

        def wake() -> None:  # by any thread
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(come.set)

        watch = Watch(wake)
        looked = False  # since it was woken; if it has not, the next in line has to look
        its = unit._unit if unit is not None else None
        queue = self._engine.add_waiter(queue, watch, its, which)
        try:
            found = await to_the_end(self.run(call))
            if not found:
                await come.wait()
                found = await to_the_end(self.run(call))
                looked = True
            return found
        finally:
            self._engine.remove_waiter(queue, watch, its, looked=looked)

    async def dead_letter(self, unit: InsideUnit | None, message: Message, reason: int) -> Message:
        return await self.run(lambda: self._manager.dead_letter(unit, message, reason))

    def browse(self, queue: str, selectors: Wanted) -> "ReadAhead[Message]":
        return ReadAhead(self, lambda: self._engine.browse(queue, selectors))

    def replay(self, queue: str | int, start: Where, end: Where | None) -> "ReplayAhead":
        return ReplayAhead(self, lambda: self._manager.replay(queue, start, end))

    # ---- all else

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        verb = getattr(self._manager, method)
        if isinstance(getattr(InProcess, method), property):
            return verb
        return await self.run(lambda: verb(*args, **options))

    def end(self, mode: str) -> Coroutine[Any, Any, None]:
        return self._end(mode, calling_task())

    async def _end(self, mode: str, caller: "asyncio.Task[Any] | None") -> None:
        if self.forked:
            return
        caller = caller or asyncio.current_task()
        # As with threads, a unit of work is not waited for if its task is over, or is the one that asks for the end.
        for number, task in self._began.items():
            unit = self._engine.state.uows.get(number)
            if unit is not None and (task is None or task is caller or task.done()):
                unit.thread = None
            elif unit is not None and task is not None:
                task.add_done_callback(functools.partial(_leave, unit))
        await self.run(lambda: self._manager.end(mode))
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def close(self) -> None:
        await self.end("quiesce")


def _leave(unit: Uow, task: "asyncio.Task[Any]") -> None:
    """The task that has begun the unit of work is over."""
    unit.thread = None


class ReadAhead(Generic[T]):
    """An iterator of the queue manager whose messages are fetched a few at a time.

    The iterator is made when the first message is asked for.
    """

    def __init__(self, inside: Inside, begin: Callable[[], Iterator[T]]) -> None:
        self._inside = inside
        self._begin = begin
        self._source: Iterator[T] | None = None
        self._ready: deque[T] = deque()
        self._end: BaseException | None = None
        self._turn = asyncio.Lock()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready and self._end is None:
            running_loop()
            async with self._turn:
                if not self._ready and self._end is None:  # another task was not quicker
                    await to_the_end(self._inside.run(self._fetch))
        if self._ready:
            return self._ready.popleft()
        assert self._end is not None
        raise self._end.with_traceback(None)

    def _fetch(self) -> bool:
        try:
            if self._source is None:
                self._source = self._begin()
            while len(self._ready) < READ_AHEAD_MESSAGES:
                self._ready.append(next(self._source))
        except StopIteration:
            self._end = StopAsyncIteration()
        except BaseException as exc:
            self._end = exc
        return bool(self._ready)

    async def aclose(self) -> None:
        """The rest is not wanted."""
        self._ready.clear()
        self._end = StopAsyncIteration()
        self._source = None


class ReplayAhead(ReadAhead[Replayed]):
    """A replay of a queue manager in this process."""

    _given: Replayed | None = None

    @property
    def _replay(self) -> Replay | None:
        assert self._source is None or isinstance(self._source, Replay)
        return self._source

    @property
    def bookmark(self) -> str:
        """Where to go on later: behind the last message that it gave; at its end, behind all that it has read."""
        if self._given is not None and (self._ready or self._end is None):
            return self._given.bookmark
        return "" if self._replay is None else self._replay.bookmark

    @property
    def left_out(self) -> int:
        """How many units of work were left out because the log has no longer all of them; only with "oldest"."""
        return 0 if self._replay is None else self._replay.left_out

    async def __anext__(self) -> Replayed:
        self._given = await super().__anext__()
        return self._given

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._replay is not None:
            self._replay.close()
        await super().aclose()
