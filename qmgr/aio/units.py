"""Units of work for asynchronous code, as `async with`, and the Backend that carries out their calls.

A cancelled get takes no message, and a cancelled commit leaves an outcome that can be asked for.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack

from qmgr.errors import BackedOut, MQError, Reason, Unavailable
from qmgr.message import Message
from qmgr.replay import Replayed, Where
from qmgr.verbs import GetOptions, PutOptions, Wanted, check_limit, no_message
from recovery.records import Xid
from recovery.uows import ACTIVE, UowState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that this is called on. Raises Unavailable (2018): a forked child has not got its parent's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise Unavailable(
            "no event loop runs here: a forked child can't go on with that of its parent, and runs one of its own",
            reason=Reason.HCONN_ERROR,
        ) from None


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Is this the event loop that runs? Raises Unavailable (2018)."""
    if running_loop() is not loop:
        text = "this connection is of another event loop, in which it was made; connect in this one too"
        raise Unavailable(text, reason=Reason.HCONN_ERROR)


def calling_task() -> "asyncio.Task[Any] | None":
    """The task that calls; None where no event loop runs, and what is made here is for one to run later."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def in_thread(call: Callable[[], T]) -> T:
    """Make a call that may take long in a thread of its own.

    Not in one of the event loop's own: all of these may be taken by calls that wait for what this one does, as where an
    application gets messages in them.
    """
    thread = ThreadPoolExecutor(1, "qmgr")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown(wait=False)


def forget(work: "asyncio.Future[Any]") -> None:
    """Done callback: an exception that nobody waits for is marked as retrieved, so that asyncio logs none."""
    if not work.cancelled():
        work.exception()


async def to_the_end(work: Awaitable[T]) -> T:
    """Wait for `work` to its end, whatever happens to this task.

    Where the task was cancelled meanwhile: if `work` gave something, that is returned, so that it is not lost, and the
    cancellation strikes when the task waits the next time; if it gave nothing, or failed, it strikes now.
    """
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        if future.cancelled() or future.exception() is not None or not future.result():
            raise cancelled
        cancel_later()
    return future.result()


def cancel_later() -> None:
    """The cancellation of this task came too late for what it waited for: let it strike at the next wait."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(_cancel_again, task)


def _cancel_again(task: "asyncio.Task[Any]") -> None:
    if task.cancelling():  # else it was a time limit, such as asyncio.timeout(), and the task has left its block
        task.uncancel()
        task.cancel()


class Unit(Protocol):
    """What a backend knows of a unit of work."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> UowState: ...
    @property
    def xid(self) -> Xid | None: ...
    @property
    def evicted(self) -> bool: ...
    @property
    def _is_open(self) -> bool: ...


class ClosableIterator(Protocol[T_co]):
    """An iterator that may be left before its end."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> T_co: ...
    async def aclose(self) -> None: ...


class ReplayIterator(ClosableIterator[Replayed], Protocol):
    """A replay."""

    @property
    def bookmark(self) -> str: ...
    @property
    def left_out(self) -> int: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...


class Backend(Protocol):
    """What carries out the calls: a queue manager in this process, or a daemon.

    `unit` is None outside a unit of work.
    """

    name: str

    @property
    def forked(self) -> bool: ...
    def new_unit(self, xid: Xid | None) -> Any: ...
    async def begin(self, unit: Any) -> None:
        """Begin it where that may be refused, so that the error is raised here."""

    async def put(self, unit: Any, queue: str, body: bytes, options: PutOptions) -> Message: ...
    async def send(self, unit: Any, queue: str, body: bytes, options: PutOptions) -> None: ...
    async def settle(self, unit: Any) -> None:
        """Wait until all that was sent is put. Where it is cancelled the unit of work can only be backed out."""

    async def put_many(self, unit: Any, queue: str, bodies: Iterable[bytes], options: PutOptions) -> list[Message]: ...
    async def get(self, unit: Any, queue: str, limit: int, wait: float | None, options: GetOptions) -> list[Message]:
        """Take up to `limit`. When it is cancelled it has taken none, or it returns what it took; see `to_the_end`."""

    async def dead_letter(self, unit: Any, message: Message, reason: int) -> Message: ...
    async def prepare(self, unit: Any) -> None: ...
    async def commit(self, unit: Any) -> None:
        """Goes on when it is cancelled."""

    async def backout(self, unit: Any) -> None: ...
    async def leave(self, unit: Any) -> None:
        """Back it out, as nobody will use it again; if that can't be now, as soon as it can."""

    def browse(self, queue: str, selectors: Wanted) -> ClosableIterator[Message]: ...
    def replay(self, queue: str | int, start: Where, end: Where | None) -> ReplayIterator: ...
    async def call(self, method: str, *args: Any, **options: Any) -> T:
        """Any other verb of the queue manager, by its name."""

    def end(self, mode: str) -> Coroutine[Any, Any, None]:
        """Units of work of the task that calls this are backed out, whichever task it goes on in."""

    async def close(self) -> None: ...


class UnitOfWork:
    """Puts and gets that happen wholly or not at all. An `async with` block commits, or backs out on an exception.

    `qm.begin()` gives it as it is; `await qm.begin(xid)` begins it there and then, so that an error is told at once.
    """

    _told = False  # a commit has said that it was rolled back, or can only be backed out

    def __init__(self, backend: Backend, xid: Xid | None) -> None:
        self._backend = backend
        self._unit: Unit = backend.new_unit(xid)
        self._committing = False  # a commit was asked for, so leaving the block must not back it out

    def __repr__(self) -> str:
        return f"<UnitOfWork {self.id} {self.state.value}>"

    @property
    def id(self) -> int:
        """The number of the unit of work, unique over all restarts; 0 before its first call has begun it."""
        return self._unit.number

    @property
    def state(self) -> UowState:
        return self._unit.state

    @property
    def xid(self) -> Xid | None:
        return self._unit.xid

    @property
    def _is_open(self) -> bool:
        """It has not ended, as far as is known here: the queue manager may have rolled it back."""
        return self._unit._is_open

    async def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message, which others see when the unit of work is committed; see `Connection.put`."""
        return await self._backend.put(self._unit, queue, body, options)

    async def send(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> None:
        """Put a message without waiting to hear of it: many go to a daemon together (an asynchronous put).

        What is wrong with one is raised here, or by a later call of the unit of work, its commit at the latest; the
        unit is backed out then.
        """
        await self._backend.send(self._unit, queue, body, options)

    async def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body, all with the same options; all of them are put, or none."""
        return await self._backend.put_many(self._unit, queue, bodies, options)

    async def get(self, queue: str, *, wait: float | None = 0.0, **options: Unpack[GetOptions]) -> Message:
        """Take a message, which is gone when the unit of work is committed; see `Connection.get`."""
        return one(await self._backend.get(self._unit, queue, 1, wait, options), queue)

    async def get_many(
        self, queue: str, limit: int, *, wait: float | None = 0.0, **options: Unpack[GetOptions]
    ) -> list[Message]:
        """Take up to `limit` messages, waiting for the first of them only; [] when there is none."""
        return await self._backend.get(self._unit, queue, check_limit(limit), wait, options)

    async def prepare(self) -> None:
        """First phase: when this returns the unit of work is in doubt, whatever crashes, until it is resolved."""
        await self._backend.prepare(self._unit)

    async def commit(self) -> None:
        """Return when all of it is durable. Raises BackedOut (2003) when the queue manager has rolled it back.

        A commit that is cancelled goes on; `qm.outcome(unit.id)` tells what became of it. Where it is cancelled before
        all that was sent is put, the unit of work can only be backed out.
        """
        try:
            await self._backend.settle(self._unit)  # and then it has a number to ask for
            self._committing = True
            await self._backend.commit(self._unit)
        except MQError as exc:
            self._committing = False
            self._told = isinstance(exc, BackedOut)
            raise

    async def backout(self) -> None:
        """Undo all of it; messages that were got return to their places with a higher backout count."""
        await self._backend.backout(self._unit)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._backend.begin(self._unit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            if kind is None and (self.state is ACTIVE or self._unit.evicted):
                await self.commit()
        finally:
            forked = self._backend.forked  # in a child this loop does not run, and the unit of work is the parent's
            if not forked and (self.state is ACTIVE or self._unit.evicted) and not self._committing:
                with contextlib.suppress(MQError):
                    await to_the_end(self._backend.leave(self._unit))


def one(found: list[Message], queue: str) -> Message:
    """What a get of one message has found. Raises NoMessageAvailable (2033)."""
    if found:
        return found[0]
    raise no_message(queue)
