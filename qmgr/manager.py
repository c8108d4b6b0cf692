"""QueueManager and UnitOfWork: what an application holds; starting one in this process."""

import contextlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

import attrs

from logger.clock import Clock, SystemClock
from logger.disk import Disk
from logger.posix_disk import Path, PosixDisk
from logger.progress import Progress, no_progress
from qmgr import locations, mqsc
from qmgr.consume import Consumer
from qmgr.errors import BackedOut, Mistake, MQError, Reason, quoted
from qmgr.infos import ConnectionInfo, Peer, QueueInfo
from qmgr.locations import Location
from qmgr.message import Message
from qmgr.mqsc import MqscResult
from qmgr.objects import AliasAttributes, AliasDefinition, ChangedAlias, QueueAttributes, check_flag, check_progress
from qmgr.operations import Operations
from qmgr.outcome import outcome
from qmgr.replay import Replay, Where
from qmgr.session import Sessions
from qmgr.threads import this_thread
from qmgr.translated import translated
from qmgr.verbs import (
    ANY,
    GetOptions,
    PutOptions,
    Wanted,
    base_of,
    check_limit,
    check_resolution,
    check_selectors,
    check_wait,
    no_message,
    not_its_own,
    wanted,
)
from recovery.records import Xid
from recovery.uows import ACTIVE, Uow, UowState

REQUEUE = Wanted(backout_requeue=True)


class UnitOfWork:
    """Puts and gets that happen wholly or not at all. As a `with` block it commits, or backs out on an exception."""

    _told = False  # a commit has said that it was rolled back

    def __init__(self, manager: "QueueManager", unit: Uow) -> None:
        self._manager = manager
        self._engine = manager._engine
        self._unit = unit

    def __repr__(self) -> str:
        return f"<UnitOfWork {self.id} {self.state.value}>"

    @property
    def id(self) -> int:
        """The number of the unit of work: unique over all restarts."""
        return self._unit.number

    @property
    def state(self) -> UowState:
        return self._unit.state

    @property
    def xid(self) -> Xid | None:
        return self._unit.xid

    @property
    def _is_open(self) -> bool:
        """The application has neither ended nor prepared it, though the queue manager may have rolled it back."""
        return self._unit.state is ACTIVE or self._unit.evicted

    def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message, which others see when the unit of work is committed; see `QueueManager.put`."""
        engine, unit = self._engine, self._unit
        message = engine.put_usual(unit, queue, body) if not options else None
        if message is None:
            message, _ = engine.put_later(unit, queue, body, options)
        if engine.attention:
            self._manager.look_around()
        return message

    def send(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> None:
        """Put a message without waiting to hear of it: through a daemon many go together (an asynchronous put).

        What is wrong with one is raised here, or by a later call of the unit of work, its commit at the latest; the
        unit is backed out then.
        """
        try:
            self.put(queue, body, **options)
        except Exception:
            if self._is_open:
                self.backout()
            raise

    def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body, all with the same options; all of them are put, or none."""
        return self._manager._put_many(self._unit, queue, bodies, options)

    def get(
        self,
        queue: str,
        *,
        wait: float | None = 0.0,
        **options: Unpack[GetOptions],
    ) -> Message:
        """Take a message, which is gone when the unit of work is committed; see `QueueManager.get`."""
        engine, unit = self._engine, self._unit
        if not options and wait == 0.0 and wait is not False:
            message = engine.get_usual(unit, queue)
            if message is not None:
                if engine.attention:
                    self._manager.look_around()
                return message
        return self._manager._get_one(self._unit, queue, wait, options)

    def get_many(
        self,
        queue: str,
        limit: int,
        *,
        wait: float | None = 0.0,
        **options: Unpack[GetOptions],
    ) -> list[Message]:
        """Take up to `limit` messages, waiting for the first of them only; [] when there is none."""
        return self._manager._get(self._unit, queue, check_limit(limit), wait, wanted(options))

    def prepare(self) -> None:
        """First phase: when this returns the unit of work is in doubt, whatever crashes, until it is resolved."""
        self._engine.prepare(self._unit)
        self._manager.look_around()

    def commit(self) -> None:
        """Return when all of it is durable. Raises BackedOut (2003) when the queue manager has rolled it back."""
        engine = self._engine
        try:
            engine.commit(self._unit)
        except BackedOut:
            self._told = True
            raise
        if engine.attention:
            self._manager.look_around()

    def backout(self) -> None:
        """Undo all of it; messages that were got return to their places with a higher backout count."""
        self._engine.back_out(self._unit)
        self._manager.look_around()

    _leave = backout  # for nobody comes back to it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None and self._is_open:
                self.commit()
        finally:
            if self._unit.state is ACTIVE:  # an exception brought us here, or an interrupt has struck in the commit
                with contextlib.suppress(MQError):
                    self.backout()


class QueueManager(Operations):
    """A queue manager in this process. Thread-safe. Leaving a `with` block ends it in order.

    What it does by itself is in its error log, `errors/AMQERR01.LOG` in its data directory, not in `logging`.
    """

    def __init__(self, location: Location, disk: Disk, clock: Clock, *, background: bool) -> None:
        self.sessions = Sessions(self)
        super().__init__(location, disk, clock, background=background)

    def __repr__(self) -> str:
        return f"<QueueManager {self.name!r}, {'running' if self.healthy else 'ended'}>"

    def __reduce__(self) -> NoReturn:
        text = "can't be copied, or sent to another process: have that connect (qmgr.connect) to a daemon (strmqm)"
        raise TypeError(f"{self!r} {text}")

    # ---- messages

    def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message outside a unit of work; a persistent one is durable when this returns.

        `None` takes the queue's default, and for `message_id` a new one. `expiry` in seconds. Raises QueueFull (2053),
        MessageTooBig (2030), Inhibited (2051), UnknownQueue (2085), ResourceProblem (2102: the log has no room).
        """
        engine = self._engine
        message, end = engine.put_later(None, queue, body, options, soon=True)
        if end:
            engine.force(end)
        if engine.attention:
            self.look_around()
        return message

    def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body in one unit of work of its own, all with the same options."""
        return self._put_many(None, queue, bodies, options)

    def get(
        self,
        queue: str,
        *,
        wait: float | None = 0.0,
        **options: Unpack[GetOptions],
    ) -> Message:
        """Take a message for good: highest priority first, then the order of commit.

        `wait` in seconds, None for ever. Raises NoMessageAvailable (2033, also a queue.Empty), Inhibited (2016). With
        `backout_requeue` messages that were backed out too often are moved away first; see docs/queues.md.
        """
        return self._get_one(None, queue, wait, options)

    def get_many(
        self,
        queue: str,
        limit: int,
        *,
        wait: float | None = 0.0,
        **options: Unpack[GetOptions],
    ) -> list[Message]:
        """Take up to `limit` messages for good, wholly or not at all; [] when there is none within `wait` seconds."""
        return self._get(None, queue, check_limit(limit), wait, wanted(options))

    def consume(self, queue: str, *, wait: float | None = None, backout_requeue: bool = True) -> "Consumer[UnitOfWork]":
        """Messages of the queue as they come, each with the unit of work that it was got in:

            for order, uow in qm.consume("ORDERS"):
                with uow:
                    uow.put("INVOICES", invoice(order.body))

        Going on to the next commits, an exception in the `with` block backs out. It ends when there is no message
        within `wait` seconds, None: never. A message that was backed out too often is moved to the backout queue.
        """
        return Consumer(self.begin, queue, wait, requeue=backout_requeue)

    def dead_letter(
        self, unit: UnitOfWork | None, message: Message, reason: int = Reason.BACKOUT_THRESHOLD_REACHED
    ) -> Message:
        """Put a message that can't be worked on to the dead-letter queue (DEADQ), with a header that says why.

        In the unit of work in which it was got it is on one of the two queues, whatever crashes. See `qmgr.deadletter`.
        """
        if not isinstance(message, Message):
            raise Mistake(f"a dead letter is a Message, not {quoted(message)}", reason=Reason.MD_ERROR)
        if not isinstance(reason, int) or not 0 <= reason < 2**31:
            raise Mistake(
                f"the reason of a dead letter is a reason code, not {quoted(reason)}", reason=Reason.DLH_ERROR
            )
        if unit is not None and (not isinstance(unit, UnitOfWork) or unit._engine is not self._engine):
            raise not_its_own(unit, self.name)  # the log of one would have the put, and that of the other the commit
        put, end = self._engine.dead_letter_later(None if unit is None else unit._unit, message, reason)
        if end:
            self._engine.force(end)
        self.look_around()
        return put

    def browse(
        self,
        queue: str,
        *,
        message_id: bytes | None = None,
        correlation_id: bytes | None = None,
        group_id: bytes | None = None,
    ) -> Iterator[Message]:
        """Look at the messages that are there now, in the order in which they can be got, taking nothing away.

        One that a unit of work has got is passed over, unless that gives it back before its turn.
        """
        return self._engine.browse(queue, check_selectors(message_id, correlation_id, group_id))

    def replay(self, queue: str | int, start: Where, end: Where | None = None) -> Replay:
        """What was put to a queue since a bookmark, committed persistent messages only, in the order of commit.

        `start`: the `.bookmark` of a replayed message (behind it), an LSN, a moment, "oldest" or "now"; `end`: the
        same, before it, or None for what is durable when the iteration gets there. `queue`: a name, or the number of
        one that was deleted. Linear logging only. Raises BookmarkTooOld, MediaNotSupported, Damaged (2101).
        """
        return Replay(self._engine, self._retention.needs, queue, start, end)

    def _put_many(self, unit: Uow | None, queue: str, bodies: Iterable[Any], options: PutOptions) -> list[Message]:
        messages = self._engine.put_many(unit, queue, bodies, options)
        if self._engine.attention:
            self.look_around()
        return messages

    def _get(self, unit: Uow | None, queue: str, limit: int, wait: Any, wanted: Wanted) -> list[Message]:
        found = self._engine.get(unit, queue, limit, wait, wanted)
        if self._engine.attention:
            self.look_around()
        return found

    def _get_one(self, unit: Uow | None, queue: str, wait: Any, options: GetOptions) -> Message:
        engine, said = self._engine, wanted(options) if options else ANY
        ids = ANY if said.backout_requeue and said == REQUEUE and not engine.requeues(queue) else said
        if not ids.backout_requeue and not ids.logical_order:
            if wait != 0.0 or wait is False:
                check_wait(wait)
            message = engine.get_first(unit, queue, ids)
            if message is not None:
                if engine.attention:
                    self.look_around()
                return message
        found = self._get(unit, queue, 1, wait, said)
        if found:
            return found[0]
        raise no_message(queue)

    # ---- units of work

    def begin(self, xid: Xid | None = None) -> UnitOfWork:
        """Begin a unit of work; with an `xid` it can be prepared, for two-phase commit."""
        return self.begin_for(self._process, xid)

    def begin_for(self, owner: str, xid: Xid | None) -> UnitOfWork:
        """Begin a unit of work for a client, whom `owner` describes to operators."""
        begun = self._engine.begin(xid, owner, this_thread())
        try:
            return UnitOfWork(self, begun)
        except BaseException:
            self._engine.discard_unit(begun)
            raise

    def in_doubt(self) -> list[Xid]:
        """The prepared units of work that nobody has resolved yet."""
        self._engine.check()
        engine = self._engine
        with engine.lock:
            found = [unit.xid for unit in engine.state.uows.in_doubt() if unit.xid is not None]
            tail = engine.log.buffer.tail
        engine.force(tail)  # nobody is told of a prepare, or of the end of one, that a crash could take back
        return found

    def resolve(self, xid: Xid, commit: bool) -> None:
        """End a unit of work that is in doubt. Raises Mistake when none of that name is."""
        check_resolution(xid, commit)
        self._engine.resolve(xid, commit=commit)
        self._housekeeper.notice()

    def outcome(self, unit_id: int, *, since: int = 0) -> UowState | None:
        """What became of the unit of work with this id, over any number of restarts; None: the log has it no more.

        For an application that has lost the answer to a commit. `since`: an LSN before which the unit logged nothing,
        if that is known: less is read then. A unit that has not ended is ACTIVE or PREPARED.
        """
        return outcome(self._engine, self._retention.needs, unit_id, since)

    def connections(self) -> list[ConnectionInfo]:
        """The clients of the queue manager, and this process, each with its units of work."""
        units = {unit.number: unit for unit in self.transactions()}
        clients = []
        for one in self.sessions:
            own = tuple([units.pop(number) for number in list(one.units) if number in units])
            clients.append(ConnectionInfo(number=one.number, peer=one.peer, began=one.began_us, units=own))
        here = Peer(user="", application=self._process, channel="")
        return [ConnectionInfo(number=0, peer=here, began=self._started, units=tuple(units.values())), *clients]

    def stop_connection(self, number: int, *, quiesce: bool = False) -> None:
        """End a client's connection, as STOP CONN does: what it has begun is backed out. Raises Mistake.

        `quiesce`: ask it to end. It can end what it has begun; its waits, and what it would begin, raise 2202.
        """
        self._engine.check()
        check_flag(quiesce, "quiesce")
        session = next((one for one in self.sessions if one.number == number), None)
        if session is None or type(number) is not int:  # True == 1
            raise Mistake(f"no client has the connection {quoted(number)}", name=self.name)
        if quiesce:
            session.quiesce()
            return
        self.say("AMQ9033", number=number, owner=session.peer.owner)
        session.stop()

    # ---- objects

    def define_queue(self, name: str, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Define a local queue; the keywords are the MQSC attributes in words. Raises AlreadyExists (2100)."""
        self._engine.define(name, attributes)
        return self.queue(name)

    def alter_queue(self, name: str, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Change attributes of a queue."""
        self._engine.alter(name, attributes)
        return self.queue(name)

    def delete_queue(self, name: str, purge: bool = False) -> None:
        """Delete a queue; with its messages if `purge`. Raises ObjectInUse (2055; 2042 with uncommitted messages)."""
        self._engine.delete(name, purge=purge)
        self._housekeeper.notice()

    def clear_queue(self, name: str) -> int:
        """Remove all messages of a queue, also where gets are disabled; return how many. A crash may leave some.

        Raises ObjectInUse (2042) when there are messages that units of work or clients hold.
        """
        removed = self._engine.clear(name)
        self._housekeeper.notice()
        return removed

    def queues(self) -> list[QueueInfo]:
        """All queues, by name."""
        self._engine.check()
        with self._engine.lock:
            names = sorted(self._engine.state.queues)
        return [self.queue(name) for name in names]

    def queue(self, name: str) -> QueueInfo:
        """The definition of a queue, or of that which an alias stands for, and its depth. Raises UnknownQueue."""
        self._engine.check()
        with self._engine.lock:
            queue = self._engine.state.queues.get(name) if isinstance(name, str) else None
            if queue is None:
                queue = base_of(self._engine.state, name)
            return QueueInfo(
                **attrs.asdict(queue.definition, recurse=False),
                depth=queue.depth,
                uncommitted=queue.uncommitted,
                last_put=queue.last_put,
                last_get=queue.last_get,
                memory=sum(queue.memory_bytes),
                damaged=queue.damaged,
            )

    def define_alias(self, name: str, target: str, **attributes: Unpack[AliasAttributes]) -> AliasDefinition:
        """Define another name for a queue, with puts and gets of its own to enable (QALIAS). Raises AlreadyExists.

        The queue need not be there yet: calls that name the alias then raise UnknownQueue (2082).
        """
        return self._engine.define_alias(name, target, attributes)

    def alter_alias(self, name: str, **attributes: Unpack[ChangedAlias]) -> AliasDefinition:
        """Change attributes of an alias, `target` among them."""
        return self._engine.alter_alias(name, attributes)

    def delete_alias(self, name: str) -> None:
        """Delete an alias; the queue that it stands for stays."""
        self._engine.delete_alias(name)

    def aliases(self) -> list[AliasDefinition]:
        """All aliases, by name."""
        self._engine.check()
        with self._engine.lock:
            return sorted(self._engine.state.aliases.values(), key=lambda alias: alias.name)

    def recreate(self, queue: str, *, progress: Progress = no_progress) -> QueueInfo:
        """Build a damaged queue again from its media image and the log, as it is at this moment (rcrmqobj).

        The other queues work on. Non-persistent messages are not recovered. Linear logging only. Raises
        MediaNotSupported, NotImageRecoverable, MediaImageMissing (2101, with the file that is missing).
        """
        check_progress(progress)
        depth = self._media.recreate(queue, progress)
        self.say("AMQ9004", name=queue, depth=depth)
        return self.queue(queue)

    def mqsc(self, text: str) -> MqscResult:
        """Run MQSC commands, see `qmgr/mqsc/`; what goes wrong with one of them is in the result."""
        if not isinstance(text, str):
            raise Mistake(f"mqsc takes text, not {type(text).__name__}")
        return mqsc.run(self, text)


# ---- starting


def start(
    name: str,
    *,
    data_path: Path | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
    background: bool = True,
) -> QueueManager:
    """Start a queue manager in this process (strmqm), restarting from its log.

    `background=False` gives it no thread of its own: calls do its housekeeping. Raises InUse when it is running,
    IniError, Damaged when its files can't be believed, Unavailable when there is none of that name.
    """
    disk = disk or PosixDisk()
    check_flag(background, "background")
    location = locations.find(name, data_path)
    manager = None
    try:
        with translated(name, "started"):
            manager = QueueManager(location, disk, clock or SystemClock(), background=background)
            return manager  # noqa: RET504  an interrupt may strike between the two
    except BaseException:
        if manager is not None:  # interrupted at the last moment
            manager.abandon()
        raise
