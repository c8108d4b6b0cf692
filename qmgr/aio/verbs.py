"""The asynchronous face: the verbs of `qmgr.QueueManager` with `await`, units of work with `async with`.

A cancelled get takes no message, and a cancelled commit leaves an outcome that can be asked for. How a call reaches
the queue manager is the business of a Way: threads in this process, or sockets.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, Unpack

from logger.archive import Outcome
from qmgr.errors import Mistake, MQError, NoMessageAvailable
from qmgr.infos import ConnectionInfo, QueueInfo, Status, TransactionInfo
from qmgr.message import Message
from qmgr.objects import QmgrDefinition
from qmgr.replay import Replayed, Where
from qmgr.verbs import PutOptions, check_limit
from recovery.records import Xid
from recovery.uows import ACTIVE, UowState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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
        strike_later()
    return future.result()


def strike_later() -> None:
    """The cancellation of this task came too late for what it waited for: let it strike at the next wait."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(_cancel_again, task)


def _cancel_again(task: "asyncio.Task[Any]") -> None:
    if task.cancelling():  # else it was a time limit, such as asyncio.timeout(), and the task has left its block
        task.uncancel()
        task.cancel()


class Unit(Protocol):
    """What a way knows of a unit of work."""

    @property
    def number(self) -> int: ...
    @property
    def state(self) -> UowState: ...
    @property
    def xid(self) -> Xid | None: ...
    @property
    def evicted(self) -> bool: ...


class Looking(Protocol[T_co]):
    """An iterator that may be left before its end."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> T_co: ...
    async def aclose(self) -> None: ...


class LookingBack(Looking[Replayed], Protocol):
    """A replay."""

    @property
    def bookmark(self) -> str: ...
    @property
    def left_out(self) -> int: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...


class Way(Protocol):
    """How calls reach the queue manager. `unit` is None outside a unit of work."""

    name: str

    def new_unit(self, xid: Xid | None) -> Any: ...
    async def begin(self, unit: Any) -> None:
        """If there is an error to be told of the begin, tell it."""

    async def put(self, unit: Any, queue: str, body: bytes, options: PutOptions) -> Message: ...
    async def put_many(self, unit: Any, queue: str, bodies: Iterable[bytes], options: PutOptions) -> list[Message]: ...
    async def get(
        self, unit: Any, queue: str, limit: int, wait: float | None, message_id: bytes | None, correlation_id: Any
    ) -> list[Message]:
        """Take up to `limit`. When it is cancelled it has taken none, or it returns what it took; see `to_the_end`."""

    async def prepare(self, unit: Any) -> None: ...
    async def commit(self, unit: Any) -> None:
        """Goes on when it is cancelled."""

    async def backout(self, unit: Any) -> None: ...
    def browse(self, queue: str, message_id: bytes | None, correlation_id: bytes | None) -> Looking[Message]: ...
    def replay(self, queue: str | int, start: Where, end: Where | None) -> LookingBack: ...
    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Any other verb of the queue manager, by its name."""

    async def end(self, mode: str) -> None: ...
    async def close(self) -> None: ...


class UnitOfWork:
    """Puts and gets that happen wholly or not at all. An `async with` block commits, or backs out on an exception.

    `qm.begin()` gives it as it is; `await qm.begin(xid)` begins it there and then, so that an error is told at once.
    """

    def __init__(self, way: Way, xid: Xid | None) -> None:
        self._way = way
        self._unit: Unit = way.new_unit(xid)
        self._committing = False  # the outcome is no more the business of the block

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

    async def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message, which others see when the unit of work is committed; see `Connection.put`."""
        return await self._way.put(self._unit, queue, body, options)

    async def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body, all with the same options; all of them are put, or none."""
        return await self._way.put_many(self._unit, queue, bodies, options)

    async def get(
        self,
        queue: str,
        *,
        wait: float | None = 0.0,
        message_id: bytes | None = None,
        correlation_id: bytes | None = None,
    ) -> Message:
        """Take a message, which is gone when the unit of work is committed; see `Connection.get`."""
        return one(await self._way.get(self._unit, queue, 1, wait, message_id, correlation_id), queue)

    async def get_many(
        self,
        queue: str,
        limit: int,
        *,
        wait: float | None = 0.0,
        message_id: bytes | None = None,
        correlation_id: bytes | None = None,
    ) -> list[Message]:
        """Take up to `limit` messages, waiting for the first of them only; [] when there is none."""
        return await self._way.get(self._unit, queue, check_limit(limit), wait, message_id, correlation_id)

    async def prepare(self) -> None:
        """First phase: when this returns the unit of work is in doubt, whatever crashes, until it is resolved."""
        await self._way.prepare(self._unit)

    async def commit(self) -> None:
        """Return when all of it is durable. Raises BackedOut (2003) when the queue manager has rolled it back.

        A commit that is cancelled goes on; `qm.outcome(unit.id)` tells what became of it.
        """
        self._committing = True
        try:
            await self._way.commit(self._unit)
        except MQError:
            self._committing = False
            raise

    async def backout(self) -> None:
        """Undo all of it; messages that were got return to their places with a higher backout count."""
        await self._way.backout(self._unit)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._way.begin(self._unit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            if kind is None and (self.state is ACTIVE or self._unit.evicted):
                await self.commit()
        finally:
            if (self.state is ACTIVE or self._unit.evicted) and not self._committing:
                with contextlib.suppress(MQError):
                    await to_the_end(self.backout())


class Connection:
    """A queue manager for asynchronous code: the verbs of `qmgr.QueueManager`. Of one event loop; any number of tasks.

    Leaving an `async with` block closes it.
    """

    def __init__(self, way: Way) -> None:
        self._way = way
        self.name = way.name

    async def close(self) -> None:
        """Units of work that are open are backed out. A second time does nothing."""
        await self._way.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await to_the_end(self.close())

    # ---- messages

    async def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message outside a unit of work; a persistent one is durable when this returns.

        `None` takes the queue's default, and for `message_id` a new one. `expiry` in seconds. Raises QueueFull (2053),
        MessageTooBig (2030), Inhibited (2051), UnknownQueue (2085), ResourceProblem (2102: the log has no room).
        """
        return await self._way.put(None, queue, body, options)

    async def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body in one unit of work of its own, all with the same options."""
        return await self._way.put_many(None, queue, bodies, options)

    async def get(
        self,
        queue: str,
        *,
        wait: float | None = 0.0,
        message_id: bytes | None = None,
        correlation_id: bytes | None = None,
    ) -> Message:
        """Take a message for good: highest priority first, then the order of commit.

        `wait` in seconds, None for ever. Raises NoMessageAvailable (2033, also a queue.Empty), Inhibited (2016). When
        it is cancelled it has taken no message.
        """
        return one(await self._way.get(None, queue, 1, wait, message_id, correlation_id), queue)

    async def get_many(
        self,
        queue: str,
        limit: int,
        *,
        wait: float | None = 0.0,
        message_id: bytes | None = None,
        correlation_id: bytes | None = None,
    ) -> list[Message]:
        """Take up to `limit` messages for good, wholly or not at all; [] when there is none within `wait` seconds."""
        return await self._way.get(None, queue, check_limit(limit), wait, message_id, correlation_id)

    def browse(
        self, queue: str, *, message_id: bytes | None = None, correlation_id: bytes | None = None
    ) -> AsyncIterator[Message]:
        """Look at the messages that could be got, in that order, taking nothing away: `async for`."""
        return self._way.browse(queue, message_id, correlation_id)

    def replay(self, queue: str | int, start: Where, end: Where | None = None) -> LookingBack:
        """What was put to a queue since a bookmark: `async for`; see `qmgr.QueueManager.replay`."""
        return self._way.replay(queue, start, end)

    # ---- units of work

    def begin(self, xid: Xid | None = None) -> UnitOfWork:
        """A unit of work, for `async with`; with an `xid` it can be prepared, for two-phase commit."""
        if xid is not None and not isinstance(xid, Xid):
            raise Mistake(f"xid is an Xid, not {xid!r}")
        return UnitOfWork(self._way, xid)

    async def outcome(self, unit_id: int) -> UowState | None:
        """What became of a unit of work; None: its part of the log is not there any more."""
        found: UowState | None = await self._way.call("outcome", unit_id)
        return found

    async def in_doubt(self) -> list[Xid]:
        """The prepared units of work that nobody has resolved yet."""
        found: list[Xid] = await self._way.call("in_doubt")
        return found

    async def resolve(self, xid: Xid, commit: bool) -> None:
        """End a unit of work that is in doubt. Raises Mistake when none of that name is."""
        await self._way.call("resolve", xid, commit)

    async def transactions(self) -> list[TransactionInfo]:
        """Every unit of work that has not ended, oldest first."""
        found: list[TransactionInfo] = await self._way.call("transactions")
        return found

    async def connections(self) -> list[ConnectionInfo]:
        """The clients that are there."""
        found: list[ConnectionInfo] = await self._way.call("connections")
        return found

    # ---- objects

    async def define_queue(self, name: str, **attributes: Any) -> QueueInfo:
        """Define a local queue; the keywords are the MQSC attributes in words. Raises AlreadyExists (2100)."""
        return await self._info("define_queue", name, **attributes)

    async def alter_queue(self, name: str, **attributes: Any) -> QueueInfo:
        """Change attributes of a queue."""
        return await self._info("alter_queue", name, **attributes)

    async def delete_queue(self, name: str, purge: bool = False) -> None:
        """Delete a queue; with its messages if `purge`. Raises ObjectInUse (2055; 2042 with uncommitted messages)."""
        await self._way.call("delete_queue", name, purge)

    async def queues(self) -> list[QueueInfo]:
        """All queues, by name."""
        found: list[QueueInfo] = await self._way.call("queues")
        return found

    async def queue(self, name: str) -> QueueInfo:
        """The definition of a queue, and its depth. Raises UnknownQueue (2085)."""
        return await self._info("queue", name)

    async def alter(self, **attributes: Any) -> QmgrDefinition:
        """Change attributes of the queue manager: those of ALTER QMGR, in words."""
        changed: QmgrDefinition = await self._way.call("alter", **attributes)
        return changed

    async def attributes(self) -> QmgrDefinition:
        """The attributes of the queue manager."""
        found: QmgrDefinition = await self._way.call("attributes")
        return found

    async def _info(self, method: str, *args: Any, **options: Any) -> QueueInfo:
        info: QueueInfo = await self._way.call(method, *args, **options)
        return info

    # ---- operations

    async def status(self) -> Status:
        """How the queue manager and its log stand."""
        status: Status = await self._way.call("status")
        return status

    async def checkpoint(self) -> None:
        """Take a checkpoint now. Raises StorageFull (2192) when the disk has no room for it."""
        await self._way.call("checkpoint")

    async def record_image(self, queue: str | Iterable[str] | None = None) -> list[str]:
        """Record media images of a queue, of some, or of all and the definitions (rcdmqimg); the names recorded."""
        names = queue if queue is None or isinstance(queue, str) else list(queue)
        recorded: list[str] = await self._way.call("record_image", names)
        return recorded

    async def record_definitions(self) -> None:
        """Record the media image of all definitions."""
        await self._way.call("record_definitions")

    async def recreate(self, queue: str) -> QueueInfo:
        """Build a damaged queue again from its media image and the log (rcrmqobj)."""
        return await self._info("recreate", queue)

    async def oldest_extents(self) -> tuple[str, str]:
        """The names of the oldest log extents that a restart and media recovery need."""
        restart, media = await self._way.call("oldest_extents")
        return restart, media

    async def archive_log(self, *, older_than: str | int = 0, dry_run: bool = False) -> Outcome:
        """Move the log extents that no restart needs to the archive; what was done, or would be."""
        return await self._keep_extents("archive_log", older_than, dry_run)

    async def compress_log(self, *, older_than: str | int = 0, dry_run: bool = False) -> Outcome:
        """Compress the log extents that no restart needs, wherever they lie."""
        return await self._keep_extents("compress_log", older_than, dry_run)

    async def remove_log(self, *, older_than: str | int, dry_run: bool = False) -> Outcome:
        """Delete the oldest log extents, up to the first that is still needed; `.held` says what needs that one."""
        return await self._keep_extents("remove_log", older_than, dry_run)

    async def note_archived(self, extent: str, *, all_before: bool = False) -> None:
        """Somebody else has archived this log extent, or all up to it."""
        await self._way.call("note_archived", extent, all_before=all_before)

    async def _keep_extents(self, method: str, older_than: str | int, dry_run: bool) -> Outcome:
        outcome: Outcome = await self._way.call(method, older_than=older_than, dry_run=dry_run)
        return outcome

    async def end(self, mode: str = "quiesce") -> None:
        """End the queue manager. "quiesce" lets the units of work of others end first, "immediate" backs them out."""
        await self._way.end(mode)

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Any other verb of `qmgr.QueueManager`, by its name."""
        return await self._way.call(method, *args, **options)


def one(found: list[Message], queue: str) -> Message:
    if found:
        return found[0]
    raise NoMessageAvailable(f"queue {queue!r} has no message for this get", name=queue)
