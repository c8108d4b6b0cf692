"""One client of the queue manager, over whatever protocol: its units of work, what it holds, what it may do.

Listeners meet the queue manager only through here. What a session has begun ends with it: its units of work are backed
out, and what it had not acknowledged returns to its place.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from logger.force import TRIES
from qmgr.delivery import NO_LIMIT, Delivery, Holder, Watch
from qmgr.errors import Mistake, MQError, Reason, Unavailable, UnitOfWorkEnded
from qmgr.infos import LOCAL, Peer
from qmgr.logged import Outcome, WouldWait, without_waiting
from qmgr.message import Message
from qmgr.objects import check_name
from qmgr.verbs import GetOptions, PutOptions, check_limit, wanted
from recovery.records import Xid
from recovery.uows import ACTIVE, PREPARED

if TYPE_CHECKING:
    from qmgr.manager import QueueManager, UnitOfWork

CONNECT, PUT, GET, BROWSE, INQUIRE, ADMIN = "connect", "put", "get", "browse", "inquire", "admin"

# what `Session.call` may call, and the right that it takes: on the queue manager or, for CALLS_ON_OBJECTS, on objects
CALLS: dict[str, str] = {
    **dict.fromkeys(("queue", "queues", "aliases", "attributes", "status"), INQUIRE),
    **dict.fromkeys(("transactions", "connections", "in_doubt", "oldest_extents"), INQUIRE),
    **dict.fromkeys(("define_queue", "alter_queue", "delete_queue", "clear_queue"), ADMIN),
    **dict.fromkeys(("alter", "resolve", "checkpoint", "mqsc", "stop_connection"), ADMIN),
    **dict.fromkeys(("authorize", "unauthorize"), ADMIN),
    **dict.fromkeys(("define_alias", "alter_alias", "delete_alias"), ADMIN),
    **dict.fromkeys(("record_image", "record_definitions", "recreate", "note_archived"), ADMIN),
    **dict.fromkeys(("archive_log", "compress_log", "remove_log", "advance_log", "reduce_log"), ADMIN),
}
CALLS_ON_OBJECTS = {
    *("queue", "define_queue", "alter_queue", "delete_queue", "clear_queue"),
    *("define_alias", "alter_alias", "delete_alias"),
}


class Rights(Protocol):
    """What one user may do."""

    @property
    def user(self) -> str: ...

    def require(self, verb: str, name: str) -> None:
        """Raises NotAuthorized (2035). `name`: of a queue; "" for the queue manager."""

    def permits(self, verb: str, name: str) -> bool:
        """Would `require` let it pass? A refusal is no event here."""


@attrs.frozen
class AllRights:
    """All of them, for a user who could open the files of the queue manager anyway."""

    user: str = ""

    def require(self, verb: str, name: str) -> None:
        """Nothing is refused."""

    def permits(self, verb: str, name: str) -> bool:
        return True


def _named_by(method: str) -> str:
    """What the first argument of a call on objects is the name of."""
    return "alias" if method.endswith("alias") else "queue"


def _touched(method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Iterator[str]:
    """The objects that a call is about, on each of which its right is needed; "": the queue manager.

    What a queue or an alias refers to is one of them: else who may define one could reach any other by it.
    """
    if method not in CALLS_ON_OBJECTS:
        yield ""
        return
    if not args:
        raise Mistake(f"the first argument of {method!r} is the name of the queue", reason=Reason.OBJECT_NAME_ERROR)
    yield args[0] if isinstance(args[0], str) else check_name(args[0], _named_by(method))
    referred = [options.get("target"), options.get("backout_queue"), *args[1:2]]
    yield from (name for name in referred if isinstance(name, str) and name)


class Session:
    """One client. Thread-safe, as far as its units of work are."""

    def __init__(self, registry: "Sessions", number: int, peer: Peer, rights: Rights) -> None:
        self.number = number
        self.peer = peer
        self.rights = rights
        self.manager = registry.manager
        self.units: dict[int, UnitOfWork] = {}
        self._engine = registry.manager._engine
        self.began_us = self._engine.clock.wall_us()
        self._registry = registry
        self._holder: Holder | None = None
        self._lock = threading.Lock()
        self._owner = peer.owner
        self.on_stop: Callable[[], None] = self.close  # ends the connection too; any thread
        self.on_quiesce: Callable[[], None] = lambda: None  # in any thread: the client's waits are to end
        self.quiescing = False  # no unit of work or wait can begin any more
        self._closed = False
        self._ending = False  # somebody is at it, or has done it

    # ---- units of work

    def begin(self, xid: Xid | None = None) -> "UnitOfWork":
        """Begin a unit of work. Raises Mistake (2017) when the session has too many."""
        with self._lock:
            if self._closed:
                raise Unavailable("the connection is closed", reason=Reason.CONNECTION_BROKEN)
            if self.quiescing:
                raise self.quiescing_error()
            most = self.manager.attributes.max_handles
            if len(self.units) >= most and self._count_open(most) >= most:
                text = f"a connection may have {most} units of work at a time (MAXHANDS); end some of them"
                raise Mistake(text, reason=Reason.HANDLE_NOT_AVAILABLE)
            unit = self.manager.begin_for(self._owner, xid)
            try:
                self.units[unit.id] = unit
                return unit
            except BaseException:
                self.units.pop(unit.id, None)
                self._engine.discard_unit(unit._unit)
                raise

    def _count_open(self, most: int) -> int:
        """How many units of work have not ended. Of those whose end the client has not heard of, `most` are kept."""
        ended = [number for number, unit in list(self.units.items()) if unit.state not in (ACTIVE, PREPARED)]
        for number in ended[: max(0, len(ended) - most)]:
            self.units.pop(number, None)  # the thread that ends it may have done so
        return len(self.units) - len(ended[-most:])

    def unit(self, number: int) -> "UnitOfWork":
        """One of this session's. Raises UnitOfWorkEnded for any other: late or repeated requests have no effect."""
        unit = self.units.get(number)
        if unit is None:
            raise UnitOfWorkEnded(f"unit of work {number} is over, or another connection's")
        return unit

    def prepare(self, unit: "UnitOfWork") -> None:
        unit.prepare()

    def commit(self, unit: "UnitOfWork") -> None:
        try:
            unit.commit()
        finally:
            self._forget(unit)

    def backout(self, unit: "UnitOfWork") -> None:
        try:
            unit.backout()
        finally:
            self._forget(unit)

    def _forget(self, unit: "UnitOfWork") -> None:
        if unit.state is not ACTIVE and unit.state is not PREPARED:
            self.units.pop(unit.id, None)

    # ---- messages

    def put(self, unit: "UnitOfWork | None", queue: str, body: bytes, options: PutOptions) -> Message:
        self._require(PUT, queue)
        return (unit or self.manager).put(queue, body, **options)

    def put_many(
        self, unit: "UnitOfWork | None", queue: str, bodies: list[bytes], options: PutOptions
    ) -> list[Message]:
        self._require(PUT, queue)
        return (unit or self.manager).put_many(queue, bodies, **options)

    def get(self, unit: "UnitOfWork | None", queue: str, **options: Any) -> Message:
        """Get a message; the keywords are those of `QueueManager.get`."""
        self._require(GET, queue)
        return (unit or self.manager).get(queue, **options)

    def get_many(self, unit: "UnitOfWork | None", queue: str, limit: int, **options: Any) -> list[Message]:
        self._require(GET, queue)
        return (unit or self.manager).get_many(queue, limit, **options)

    def browse(self, queue: str, **options: Any) -> Iterator[Message]:
        self._require(BROWSE, queue)
        return self.manager.browse(queue, **options)

    def _require(self, verb: str, queue: str) -> None:
        """Check the client's right on the queue. Raises NameError_, first, for what can't be a name; NotAuthorized."""
        self._engine.events.caller.name = self._owner
        self.rights.require(verb, check_name(queue, "queue"))

    def require_browse(self, queue: str | int) -> None:
        """Raises NotAuthorized. A number is that of a queue that is there, or of a deleted one: for administrators."""
        state = self._engine.state
        there = state.by_id.get(queue) if isinstance(queue, int) else None
        if isinstance(queue, str):
            self._require(BROWSE, queue)
        else:
            self.rights.require(ADMIN if there is None else BROWSE, "" if there is None else there.name)

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Any other verb of the queue manager by its name. Raises Mistake for one that is not there."""
        right = CALLS.get(method)
        verb = getattr(self.manager, method, None) if right is not None else None
        if right is None or verb is None:
            raise Mistake(f"there is no call {method!r}")
        for name in _touched(method, args, options):
            self.rights.require(right, name and check_name(name, _named_by(method) if name is args[0] else "queue"))
        return verb(*args, **options) if callable(verb) else verb

    @property
    def tail(self) -> int:
        """The LSN behind all that has been logged: once the log is safe up to there, so is all that memory says."""
        return self._engine.log.buffer.tail

    # ---- for event loops: nothing waits for the disk; the LSN that is returned has to be forced before the reply

    def put_later(
        self, unit: "UnitOfWork | None", queue: str, body: bytes, options: PutOptions, *, soon: bool = False
    ) -> tuple[Message, int]:
        """Put a message; the LSN to force (`manager.force`), or 0. `soon`, here and below: it is forced next."""
        self._require(PUT, queue)
        of = None if unit is None else unit._unit
        plain = not options or (len(options) == 1 and options.get("persistent") is True)  # as all that `put_usual` puts
        usual = self._engine.put_usual(of, queue, body) if of is not None and plain else None
        done = (usual, 0) if usual is not None else self._engine.put_later(of, queue, body, options, soon=soon)
        self._look_around()
        return done

    def put_many_later(
        self, unit: "UnitOfWork | None", queue: str, bodies: list[bytes], options: PutOptions
    ) -> tuple[list[Message], int]:
        self._require(PUT, queue)
        done = self._engine.put_many_later(None if unit is None else unit._unit, queue, bodies, options)
        self._look_around()
        return done

    def get_now(
        self, unit: "UnitOfWork | None", queue: str, limit: int, options: GetOptions, *, soon: bool = False
    ) -> tuple[list[Message], int] | None:
        """Up to `limit` of the messages that are there; None where that may take waiting: see `get_many`."""
        self._require(GET, queue)
        of = None if unit is None else unit._unit
        found = self._engine.get_now(of, queue, check_limit(limit), wanted(options), soon=soon)
        self._look_around()
        return found

    def commit_later(self, unit: "UnitOfWork", *, puts: bool = True, soon: bool = False) -> int:
        """Commit; the LSN to force, or 0. Without `puts` others' puts are logged later: see `log_held`."""
        try:
            return self._engine.commit_later(unit._unit, puts=puts, soon=soon)
        finally:
            self._forget(unit)
            self._look_around()

    def backout_later(self, unit: "UnitOfWork") -> int:
        try:
            return self._engine.back_out_later(unit._unit)
        finally:
            self._forget(unit)
            self._look_around()

    def deliver(
        self, queue: str, limit: int, watch: Watch | None = None, most_bytes: int = NO_LIMIT
    ) -> tuple[list[Delivery], int]:
        """Hold up to `limit` messages for this client; return them, and the LSN to force before they are sent.

        Their bodies have `most_bytes`, or more by a part of the last one. Where there is no message, `watch` is woken,
        once, when there may be one: then ask again. Any thread wakes it, under the queue manager's lock, so it only
        passes the word on. Who does not want to wait any more calls `unwatch`. Raises WouldWait where the log has no
        room and this thread may not wait for it: call `requeue_next` in another one, then ask again.
        """
        try:
            self._require(GET, queue)
            with self._lock:
                if self._closed:
                    return [], 0
                if self._holder is None:
                    self._holder = Holder(self._engine, self.peer.owner)
            return self._holder.take(queue, limit, watch, most_bytes)
        except BaseException:
            self._engine.wake_next(queue)  # which brought the client here, perhaps
            raise

    def requeue_next(self, queue: str, limit: int) -> int:
        """Move away what was backed out too often, as `deliver` does first, and wait for room in the log if need be.

        Returns the LSN to force before the client hears of what lay behind.
        """
        if self._holder is not None:
            self._holder.requeue_next(queue, limit)
        return self.tail

    def unwatch(self, queue: str, watch: Watch) -> None:
        if self._holder is not None:
            self._holder.remove_watch(queue, watch)

    def accept(self, deliveries: list[Delivery], unit: "UnitOfWork | None" = None) -> int:
        """The client acknowledges them: they are got, in the unit of work or now. Returns the LSN to force, or 0."""
        assert self._holder is not None, "what is accepted was delivered"
        try:
            return self._holder.accept(deliveries, None if unit is None else unit._unit)
        finally:
            self._look_around()

    def reject(self, deliveries: list[Delivery], *, late: bool = False) -> int:
        """The client refuses them: they return to their places with a higher backout count.

        Returns the LSN to force, or 0. `late`: those that are not held any more are passed over; else Mistake (2209).
        """
        assert self._holder is not None, "what is rejected was delivered"
        try:
            return self._holder.reject(deliveries, late=late)
        finally:
            self._look_around()

    def reject_without_waiting(self, deliveries: list[Delivery], *, late: bool = False) -> Outcome:
        """As `reject`, for event loops: where the log has no room for all of them, the rest is for a thread that waits.

        What the rest is has to be looked up now: later a message refused here may be held for this client again.
        """
        done = without_waiting(lambda: self.reject(deliveries, late=late))
        if isinstance(done, int):
            return done
        assert self._holder is not None, "what is rejected was delivered"
        rest = self._holder.still(deliveries)
        return lambda: max(self.reject(rest, late=True), self.tail)

    def release(self, deliveries: list[Delivery]) -> None:
        """The client leaves in order, and never looked at them."""
        if self._holder is not None and deliveries:
            self._holder.release(deliveries)

    def _look_around(self) -> None:
        if self._engine.attention:
            with contextlib.suppress(WouldWait):  # the call has done its work, and is not to be made again for that
                self.manager.look_around(may_wait=False)

    # ---- the end

    def stop(self) -> None:
        """An operator ends it, and its connection with it."""
        self.on_stop()

    def quiesce(self) -> None:
        """An operator wants it to end: calls of its client from now on, and waits, raise that."""
        self.quiescing = True
        self.on_quiesce()

    def quiescing_error(self) -> Unavailable:
        return Unavailable(
            "an operator has asked this connection to end (STOP CONN); end what is begun, and close it",
            reason=Reason.CONNECTION_QUIESCING,
        )

    def close(self) -> None:
        """Back out what it has not ended, units of work in doubt excepted; a second time does nothing.

        Where memory fails it is tried again, since nobody else would. Raises MemoryError where that lasts: then it can
        be called again.
        """
        if self._begin_to_close():
            self._end_with_retries()

    def close_without_waiting(self) -> Outcome:
        """As `close`, for event loops: what the log has no room for now is for a thread that may wait."""
        return without_waiting(self._end_with_retries) if self._begin_to_close() else 0

    def _begin_to_close(self) -> bool:
        with self._lock:
            before, self._ending = self._ending, True
            self._closed = True
        return not before

    def _end_with_retries(self) -> int:
        left = TRIES
        while left:
            left -= 1
            try:
                self._end()
                break
            except MemoryError:
                if not left:
                    self._ending = False
                    raise
        return 0

    def _end(self) -> None:
        units = list(self.units.values())
        with contextlib.ExitStack() as ends:  # where one of them fails for want of memory the others come all the same
            ends.push(self._leave)
            if self._holder is not None:
                ends.callback(self._holder.close)
            for unit in units:
                if unit.state is ACTIVE:
                    ends.callback(self._back_out, unit)
        self.units.clear()

    def _leave(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not WouldWait:  # else it comes here again
            self._registry.forget(self)

    def _back_out(self, unit: "UnitOfWork") -> None:
        with contextlib.suppress(MQError):  # nobody is told
            self._engine.back_out_later(unit._unit)


class Sessions:
    """The clients that are there."""

    def __init__(self, manager: "QueueManager") -> None:
        self.manager = manager
        self.limit: int | None = None  # of those that come over a network
        self._remote_count = 0
        self._open: dict[int, Session] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._open.values()))

    @property
    def full(self) -> bool:
        """Are as many there over a network as may be?"""
        return self.limit is not None and self._remote_count >= self.limit

    def open(self, peer: Peer, rights: Rights) -> Session:
        """A new client. Raises NotAuthorized (2035), Unavailable (2025: too many; 2161: it is ending)."""
        rights.require(CONNECT, "")
        self.manager._engine.check()
        self.manager._engine.check_not_ending()
        with self._lock:
            if peer.channel != LOCAL and self.full:
                text = f"queue manager {self.manager.name!r} has {self.limit} connections already (MaxActiveChannels)"
                raise Unavailable(text, reason=Reason.MAX_CONNS_LIMIT_REACHED, name=self.manager.name)
            session = Session(self, next(self._numbers), peer, rights)
            self._open[session.number] = session
            self._remote_count += peer.channel != LOCAL
            return session

    @property
    def needs_checkpoint(self) -> bool:
        """Is the log nearly full, or do checkpoints not keep up? Then a call may come to wait for one."""
        engine = self.manager._engine
        return engine.urgent or engine.checkpointer.overdue()

    def log_held(self) -> None:
        """Log the calls that units of work have held back: before a force, where commits have left that over."""
        engine = self.manager._engine
        if engine.state.holding:
            with engine.translating(), engine.lock:
                engine.log_held()

    def overrun(self) -> bool:
        """Has so much come that checkpoints do not keep up? Event loops, which may not wait, keep senders back then."""
        return self.manager._engine.checkpointer.overdue()

    def forget(self, session: Session) -> None:
        with self._lock:
            if self._open.pop(session.number, None) is not None:
                self._remote_count -= session.peer.channel != LOCAL
