"""Connection: the verbs of `qmgr.QueueManager` with `await`, whichever Backend carries them out."""

from collections.abc import AsyncIterator, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, Unpack

from logger.archive import Outcome
from qmgr.aio.consume import Consumer
from qmgr.aio.units import Backend, ReplayIterator, UnitOfWork, one, to_the_end
from qmgr.errors import Mistake, Reason, quoted
from qmgr.infos import ConnectionInfo, QueueInfo, Status, TransactionInfo
from qmgr.message import Message
from qmgr.mqsc import MqscResult
from qmgr.objects import (
    AliasAttributes,
    AliasDefinition,
    ChangedAlias,
    QmgrAttributes,
    QmgrDefinition,
    QueueAttributes,
    several,
)
from qmgr.replay import Where
from qmgr.verbs import GetOptions, PutOptions, check_limit, check_selectors, not_its_own
from recovery.records import Xid
from recovery.uows import UowState


class Connection:
    """A queue manager for asynchronous code: the verbs of `qmgr.QueueManager`. Of one event loop; any number of tasks.

    Leaving an `async with` block closes it.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name

    async def close(self) -> None:
        """Close the connection, which backs out open units of work; a queue manager in this process ends as by `end`.

        A second time does nothing.
        """
        await self._backend.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if not self._backend.forked:  # in a child this loop does not run, and the session is the parent's
            await to_the_end(self.close())

    # ---- messages

    async def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message outside a unit of work; a persistent one is durable when this returns.

        `None` takes the queue's default, and for `message_id` a new one. `expiry` in seconds. Raises QueueFull (2053),
        MessageTooBig (2030), Inhibited (2051), UnknownQueue (2085), ResourceProblem (2102: the log has no room).
        """
        return await self._backend.put(None, queue, body, options)

    async def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body in one unit of work of its own, all with the same options."""
        return await self._backend.put_many(None, queue, bodies, options)

    async def get(self, queue: str, *, wait: float | None = 0.0, **options: Unpack[GetOptions]) -> Message:
        """Take a message for good: highest priority first, then the order of commit.

        `wait` in seconds, None for ever. Raises NoMessageAvailable (2033, also a queue.Empty), Inhibited (2016). When
        it is cancelled it has taken no message.
        """
        return one(await self._backend.get(None, queue, 1, wait, options), queue)

    async def get_many(
        self, queue: str, limit: int, *, wait: float | None = 0.0, **options: Unpack[GetOptions]
    ) -> list[Message]:
        """Take up to `limit` messages for good, wholly or not at all; [] when there is none within `wait` seconds."""
        return await self._backend.get(None, queue, check_limit(limit), wait, options)

    def consume(self, queue: str, *, wait: float | None = None, backout_requeue: bool = True) -> Consumer:
        """Messages of the queue as they come, each with the unit of work that it was got in:

            async for order, uow in qm.consume("ORDERS"):
                async with uow:
                    await uow.put("INVOICES", invoice(order.body))

        Going on to the next commits, an exception in the `async with` block backs out. It ends when there is no message
        within `wait` seconds, None: never. A message that was backed out too often is moved to the backout queue.
        """
        return Consumer(self.begin, queue, wait, requeue=backout_requeue)

    async def dead_letter(
        self, unit: UnitOfWork | None, message: Message, reason: int = Reason.BACKOUT_THRESHOLD_REACHED
    ) -> Message:
        """Put a message that can't be worked on to the dead-letter queue (DEADQ), with a header that says why."""
        if unit is not None and (not isinstance(unit, UnitOfWork) or unit._backend is not self._backend):
            raise not_its_own(unit, self.name)
        return await self._backend.dead_letter(None if unit is None else unit._unit, message, reason)

    def browse(
        self,
        queue: str,
        *,
        message_id: bytes | None = None,
        correlation_id: bytes | None = None,
        group_id: bytes | None = None,
    ) -> AsyncIterator[Message]:
        """Look at the messages that could be got, in that order, taking nothing away: `async for`."""
        return self._backend.browse(queue, check_selectors(message_id, correlation_id, group_id))

    def replay(self, queue: str | int, start: Where, end: Where | None = None) -> ReplayIterator:
        """What was put to a queue since a bookmark: `async for`; see `qmgr.QueueManager.replay`."""
        return self._backend.replay(queue, start, end)

    # ---- units of work

    def begin(self, xid: Xid | None = None) -> UnitOfWork:
        """A unit of work, for `async with`; with an `xid` it can be prepared, for two-phase commit."""
        if xid is not None and not isinstance(xid, Xid):
            raise Mistake(f"xid is an Xid, not {quoted(xid)}")
        return UnitOfWork(self._backend, xid)

    async def outcome(self, unit_id: int, *, since: int = 0) -> UowState | None:
        """What became of a unit of work; None: its part of the log is not there any more.

        `since`: an LSN before which nothing of it was logged, if that is known: less is read then.
        """
        return await self._backend.call("outcome", unit_id, since=since)

    async def in_doubt(self) -> list[Xid]:
        """The prepared units of work that nobody has resolved yet."""
        return await self._backend.call("in_doubt")

    async def resolve(self, xid: Xid, commit: bool) -> None:
        """End a unit of work that is in doubt. Raises Mistake when none of that name is."""
        await self._backend.call("resolve", xid, commit)

    async def transactions(self) -> list[TransactionInfo]:
        """Every unit of work that has not ended, oldest first."""
        return await self._backend.call("transactions")

    async def connections(self) -> list[ConnectionInfo]:
        """The clients that are there."""
        return await self._backend.call("connections")

    async def stop_connection(self, number: int, *, quiesce: bool = False) -> None:
        """End a client's connection, as STOP CONN does; see `QueueManager.stop_connection`."""
        await self._backend.call("stop_connection", number, quiesce=quiesce)

    # ---- objects

    async def define_queue(self, name: str, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Define a local queue; the keywords are the MQSC attributes in words. Raises AlreadyExists (2100)."""
        return await self._backend.call("define_queue", name, **attributes)

    async def alter_queue(self, name: str, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Change attributes of a queue."""
        return await self._backend.call("alter_queue", name, **attributes)

    async def delete_queue(self, name: str, purge: bool = False) -> None:
        """Delete a queue; with its messages if `purge`. Raises ObjectInUse (2055; 2042 with uncommitted messages)."""
        await self._backend.call("delete_queue", name, purge)

    async def clear_queue(self, name: str) -> int:
        """Take away all messages of a queue; how many there were."""
        return await self._backend.call("clear_queue", name)

    async def define_alias(self, name: str, target: str, **attributes: Unpack[AliasAttributes]) -> AliasDefinition:
        """Define another name for a queue; see `qmgr.QueueManager.define_alias`."""
        return await self._backend.call("define_alias", name, target, **attributes)

    async def alter_alias(self, name: str, **attributes: Unpack[ChangedAlias]) -> AliasDefinition:
        """Change attributes of an alias, `target` among them."""
        return await self._backend.call("alter_alias", name, **attributes)

    async def delete_alias(self, name: str) -> None:
        """Delete an alias; the queue that it stands for stays."""
        await self._backend.call("delete_alias", name)

    async def aliases(self) -> list[AliasDefinition]:
        """All aliases, by name."""
        return await self._backend.call("aliases")

    async def queues(self) -> list[QueueInfo]:
        """All queues, by name."""
        return await self._backend.call("queues")

    async def queue(self, name: str) -> QueueInfo:
        """The definition of a queue, and its depth. Raises UnknownQueue (2085)."""
        return await self._backend.call("queue", name)

    async def alter(self, **attributes: Unpack[QmgrAttributes]) -> QmgrDefinition:
        """Change attributes of the queue manager: those of ALTER QMGR, in words."""
        return await self._backend.call("alter", **attributes)

    async def attributes(self) -> QmgrDefinition:
        """The attributes of the queue manager."""
        return await self._backend.call("attributes")

    async def authorize(
        self, user: str, profile: str = "", *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> QmgrDefinition:
        """Give a user rights on the queues that a profile fits, and take others away; "": on the queue manager."""
        return await self._backend.call("authorize", user, profile, add=several(add), remove=several(remove))

    async def unauthorize(self, user: str, profile: str = "") -> QmgrDefinition:
        """Remove the grant of this user and profile, and its rights with it. Raises Mistake where there is none."""
        return await self._backend.call("unauthorize", user, profile)

    # ---- operations

    async def status(self) -> Status:
        """How the queue manager and its log stand."""
        return await self._backend.call("status")

    async def mqsc(self, text: str) -> MqscResult:
        """Run MQSC commands; see `qmgr.QueueManager.mqsc`."""
        return await self._backend.call("mqsc", text)

    async def checkpoint(self) -> None:
        """Take a checkpoint now. Raises StorageFull (2192) when the disk has no room for it."""
        await self._backend.call("checkpoint")

    async def record_image(self, queue: str | Iterable[str] | None = None) -> list[str]:
        """Record media images of a queue, of some, or of all and the definitions (rcdmqimg); the names recorded."""
        return await self._backend.call("record_image", several(queue))

    async def record_definitions(self) -> None:
        """Record the media image of all definitions."""
        await self._backend.call("record_definitions")

    async def recreate(self, queue: str) -> QueueInfo:
        """Build a damaged queue again from its media image and the log (rcrmqobj)."""
        return await self._backend.call("recreate", queue)

    async def oldest_extents(self) -> tuple[str, str]:
        """The names of the oldest log extents that a restart and media recovery need."""
        return await self._backend.call("oldest_extents")

    async def archive_log(self, *, older_than: str | int = 0, dry_run: bool = False) -> Outcome:
        """Move the log extents that no restart needs to the archive; what was done, or would be."""
        return await self._backend.call("archive_log", older_than=older_than, dry_run=dry_run)

    async def compress_log(self, *, older_than: str | int = 0, dry_run: bool = False) -> Outcome:
        """Compress the log extents that no restart needs, wherever they lie."""
        return await self._backend.call("compress_log", older_than=older_than, dry_run=dry_run)

    async def remove_log(self, *, older_than: str | int, dry_run: bool = False) -> Outcome:
        """Delete the oldest log extents, up to the first that is still needed; `.held` says what needs that one."""
        return await self._backend.call("remove_log", older_than=older_than, dry_run=dry_run)

    async def advance_log(self) -> str:
        """Go on in a new log extent, whose name is returned. Linear logging only."""
        return await self._backend.call("advance_log")

    async def reduce_log(self, how: str | int = "AUTO") -> int:
        """Remove log extents that nothing needs; how many went."""
        return await self._backend.call("reduce_log", how)

    async def note_archived(self, extent: str, *, all_before: bool = False) -> None:
        """Note that others have archived this log extent, or all up to it."""
        await self._backend.call("note_archived", extent, all_before=all_before)

    def end(self, mode: str = "quiesce") -> Coroutine[Any, Any, None]:
        """End the queue manager. "quiesce" lets the units of work of others end first, "immediate" backs them out."""
        return self._backend.end(mode)

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Any other verb of `qmgr.QueueManager`, by its name."""
        return await self._backend.call(method, *args, **options)
