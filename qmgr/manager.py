"""QueueManager and UnitOfWork: what an application holds; starting and ending a queue manager."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, Unpack

import attrs

from logger import log as logs
from logger.archive import Action, Outcome, Progress, no_progress, parse_age
from logger.clock import Clock, SystemClock
from logger.config import LogSync, LogType
from logger.disk import NO_MEANS, NO_SPACE, Disk, Path, PosixDisk, way_out
from logger.errors import LogClosed, LogError
from qmgr import authority, autoconfig, events, locations, mqsc
from qmgr.consume import Consumer
from qmgr.creation import Ownership, own, translated
from qmgr.due import SteadyClock
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog, open_error_log
from qmgr.errors import (
    AlreadyExists,
    MediaNotSupported,
    Mistake,
    MQError,
    NoMessageAvailable,
    Reason,
    StorageFull,
    Unavailable,
)
from qmgr.housekeeping import Housekeeper
from qmgr.infos import ConnectionInfo, Peer, QueueInfo, Status, TransactionInfo
from qmgr.locations import Location
from qmgr.logged import Surroundings
from qmgr.media import Media
from qmgr.message import Message
from qmgr.mqsc import MqscResult
from qmgr.objects import AliasDefinition, QmgrDefinition, with_attributes
from qmgr.outcome import outcome
from qmgr.published import Publisher, describe_extents, describe_inactive, describe_space, file_systems, plain
from qmgr.queue import Queue
from qmgr.replay import Replay, Where
from qmgr.resource import Resource
from qmgr.retention import MOST_EXTENTS, Retention, name_of
from qmgr.session import Sessions
from qmgr.verbs import ANY, GetOptions, PutOptions, Wanted, base_of, check_limit, check_wait, wanted
from recovery.checkpoint import Checkpointer, Hear, Triggers, read_files
from recovery.errors import RecoveryError
from recovery.records import Xid
from recovery.restart import RestartReport, restart
from recovery.uows import ACTIVE, Uow, UowState

REQUEUE = Wanted(backout_requeue=True)


def describe_queue(queue: Queue) -> dict[str, Any]:
    """How a queue stands, for those who look from other processes. The caller need not hold the lock."""
    return {
        "name": queue.name,
        "depth": queue.depth,
        "uncommitted": queue.uncommitted,
        "memory": sum(queue.held),
        "max_depth": queue.definition.max_depth,
        "damaged": queue.damaged,
    }


class UnitOfWork:
    """Puts and gets that happen wholly or not at all. As a `with` block it commits, or backs out on an exception."""

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

    def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message, which others see when the unit of work is committed; see `QueueManager.put`."""
        engine = self._engine
        message = engine.put(self._unit, queue, body, options)
        if engine.attention:
            self._manager.look_around()
        return message

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
        engine.commit(self._unit)
        if engine.attention:
            self._manager.look_around()

    def backout(self) -> None:
        """Undo all of it; messages that were got return to their places with a higher backout count."""
        self._engine.back_out(self._unit)
        self._manager.look_around()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None and (self._unit.state is ACTIVE or self._unit.evicted):
                self.commit()
        finally:
            if self._unit.state is ACTIVE:  # an exception brought us here, or an interrupt has struck in the commit
                with contextlib.suppress(MQError):
                    self.backout()


class QueueManager:
    """A queue manager in this process. Thread-safe. Leaving a `with` block ends it in order."""

    def __init__(self, location: Location, disk: Disk, clock: Clock, *, background: bool) -> None:
        """Start it: own it, restart from its log, take a checkpoint. Use `qmgr.start`."""
        self.name = location.name
        self._location = location
        self._disk = disk
        self._clock = clock
        self._ended: threading.Lock = threading.Lock()
        self._authorizing = threading.Lock()
        self._state = "starting"
        self._process = disk.process()
        if not disk.exists(location.ini):
            raise Unavailable(
                f"there is no queue manager {location.name!r} in {location.data_root}; create it first (crtmqm)",
                reason=Reason.Q_MGR_NAME_ERROR,
                name=location.name,
            )
        self.config = autoconfig.configuration(disk, location.ini)
        if not disk.exists(self.config.log.path):
            raise Unavailable(
                f"LogPath in {location.ini} is {self.config.log.path}, and there is no such directory; correct it, or "
                f"bring the log back",
                name=location.name,
            )
        self.on_failure: Callable[[], None] = lambda: None  # by any thread; it only passes the word on
        self._errors: ErrorLog | None = None
        self._lock = Ownership()
        self._publisher = Publisher(disk, clock, location.published, self.picture) if background else None
        self._started = clock.wall_us()
        try:
            own(disk, location, self.config.log.path, self._lock)
            self._errors = open_error_log(disk, clock, location.errors, self.config.error_log, self.name)
            self._restart(self._errors, background)
        except BaseException:
            self._let_go()
            raise
        try:
            me = weakref.ref(self)
            disk.on_fork(lambda: _in_child(me()))
            self.sessions = Sessions(self)
            self._state = "running"
            if self._publisher is not None:
                self._housekeeper.on_tick(self._tick)
            with self._engine.lock:
                self._engine.events.active()
            self._tell()
        except BaseException:  # an interrupt, and nobody has the queue manager yet
            self._close()
            raise

    def _let_go(self) -> None:
        """Somebody else may start the queue manager now."""
        if self._errors is not None:
            self._errors.close()
        self._lock.release()

    def _restart(self, errors: ErrorLog, background: bool) -> None:
        disk, clock, config = self._disk, self._clock, self.config
        tuning = config.tuning
        errors.say("AMQ6287", process=disk.process())
        for note in config.ignored:
            errors.say("AMQ7075", text=f"{note} is known to IBM MQ and has no effect here")
        for text in config.complaints:
            errors.say("AMQ9022", text=text)
        if config.log.sync is not LogSync.ALWAYS:
            errors.say("AMQ9001", sync=config.log.sync.value)
        log = logs.Log(disk, clock, config.log)
        try:
            checkpoints = read_files(disk, self._location.data_dir, log.state.log_id)
            buffers = tuning.default_q_buffer_size, tuning.default_pq_buffer_size
            linear = log.state.log_type is LogType.LINEAR
            state = Resource(disk, self._location.queues, log.state.log_id, clock.give_way, buffers, imaged=linear)
            checkpoint, report = restart(log, clock, state, checkpoints)
            self._store = state
            self._report(errors, report, state)
            state.on_damage = self._damaged
            triggers = Triggers(
                records_max=tuning.checkpoint_log_records_max,
                records_min=tuning.checkpoint_log_records_min,
                wait_us=tuning.checkpoint_wait_minutes * 60_000_000,
            )
            steady = SteadyClock(clock, checkpoint.time)
            checkpointer = Checkpointer(disk, clock, self._location.data_dir, log, state, triggers, steady.now_us)
            checkpointer.heads = (checkpoint.head,) * 2
            self.restart_report = report
            self._log = log
            self._checkpointer = checkpointer
            self._engine = Engine(
                Surroundings(
                    name=self.name,
                    log=log,
                    clock=clock,
                    steady=steady,
                    state=state,
                    checkpointer=checkpointer,
                    max_uncommitted=tuning.max_uncommitted_messages,
                    make_space=lambda size, promise: self._housekeeper.make_space(size, promise),
                    on_failure=self._fail,
                )
            )
            for unit in state.uows:
                unit.promise = self._engine.promise_of(unit)
            self._engine.count_promises()
            self._engine.say = self._say
            self._engine.process = self._process
            self._retention = Retention(self._engine, disk, errors, config.log_management, config.log_archive)
            self._housekeeper = Housekeeper(
                self._engine,
                checkpointer,
                self._retention,
                errors,
                clock,
                expiry_seconds=tuning.expiry_interval,
                sync_ms=config.log.sync_interval_ms if config.log.sync is LogSync.INTERVAL else 0,
                chores=lambda: self._chores(background),
                on_failure=self._fail,
            )
            self._media = Media(self._engine, self._checkpoint, log.live_reader, self._retention)
            if self._housekeeper.checkpoint_if_possible():
                state.sweep()
            if linear:
                self._recreate_damaged()
                if not state.catalog:
                    self._record_first_catalog()
        except BaseException:
            log.close(clean=False)
            raise
        if background:
            log.write_behind = True
            self._housekeeper.start_thread()
        else:
            self._engine.watchful = self._engine.attention = True
        errors.say("AMQ8003")

    def _report(self, errors: ErrorLog, report: RestartReport, state: Resource) -> None:
        say = errors.say
        say("AMQ7229", count=report.records_replayed)
        say("AMQ7230")
        say("AMQ7231", count=report.records_recovered)
        say("AMQ7232")
        say("AMQ7233", resolved=report.resolved, in_flight=report.in_flight)
        for queue in state.by_id.values():
            if queue.damaged:
                self._damaged(queue)

    def _damaged(self, queue: Queue) -> None:
        """Say it, and put the file that can't be believed aside, so that nothing ever deletes it."""
        self._say("AMQ7472", name=queue.name, text=queue.damaged)
        try:
            aside = self._store.set_aside(queue.bad_file)
        except OSError as exc:
            self._say("AMQ6708", text=f"{queue.bad_file} could not be set aside ({exc})")
        else:
            if aside:
                self._say("AMQ9005", path=aside)

    def _chores(self, background: bool) -> None:
        """What may take long: archive what is old enough, record the media images that are due, index extents.

        Indexes only where no call waits for them.
        """
        self._retention.keep_policy()
        try:
            for name in self._media.record_due():
                self._say("AMQ9003", name=name)
        except MQError as exc:
            self._say("AMQ9006", text=str(exc))
        if background:
            self._retention.index_extents()

    def _record_first_catalog(self) -> None:
        try:
            self._media.record_catalog()
        except MQError as exc:  # the next round of images tries again
            self._say("AMQ9006", text=str(exc))

    def _recreate_damaged(self) -> None:
        """What was found damaged at the start is built again from the log, where that is possible."""
        for queue in [queue for queue in self._engine.state.by_id.values() if queue.damaged]:
            try:
                depth = self._media.recreate(queue.name)
                self._say("AMQ9004", name=queue.name, depth=depth)
            except (MQError, LogError, RecoveryError, OSError) as exc:  # one damaged queue stops no start
                self._engine.check()
                self._say("AMQ7042", name=queue.name, text=str(exc))

    def say(self, amq: str, **inserts: Any) -> None:
        """Say it in the error log."""
        self._say(amq, **inserts)

    def _say(self, amq: str, **inserts: Any) -> None:
        if self._errors is not None:
            self._errors.say(amq, **inserts)

    # ---- ending

    def _fail(self, exc: BaseException) -> None:
        """Something went wrong that leaves memory or disk unknown: nothing is taken or acknowledged any more."""
        if self._engine.refusal is None:
            text = str(exc) or type(exc).__name__
            refusal = Unavailable(f"queue manager {self.name!r} has stopped: {text}; start it again", name=self.name)
            refusal.__cause__ = exc
            self._engine.refusal = refusal
            self._state = "failed"
            self._say("AMQ6709", text=text)
        self._log.stop(LogClosed(f"the queue manager has stopped: {exc}"))
        for queue in list(self._engine.state.queues.values()):
            queue.waiters.wake_all()
        self.on_failure()

    def _tick(self) -> None:
        """About once a second; it must not fail."""
        if self._publisher is not None:
            self._publisher.tick()
        self._tell()

    def _tell(self) -> None:
        """Put the events that there are to be told."""
        if self._engine.state.qmgr.logger_events and self._linear and self._engine.refusal is None:
            restart, media = self._retention.oldest()
            with self._engine.lock:
                current = name_of((self._log.buffer.tail - 1) // self._log.state.extent_bytes)
                self._engine.events.extents(current, restart, media, self.config.log.path)
        self._engine.tell()

    @property
    def _linear(self) -> bool:
        return self._log.state.log_type is LogType.LINEAR

    def not_authorized(self, user: str, verb: str, name: str) -> None:
        """Somebody was refused this: an event, if those are wanted (AUTHOREV). `name` of a queue, or ""."""
        with self._engine.lock:
            self._engine.events.not_authorized(user, verb, name)
        self._tell()

    def _forked(self) -> None:
        """This is a child process: the queue manager belongs to its parent."""
        self._engine.refusal = Unavailable(
            f"queue manager {self.name!r} was started by the parent of this process; a forked child can't use it: "
            f"start the child before the queue manager, or with another start method than fork",
            reason=Reason.HCONN_ERROR,
            name=self.name,
        )
        self._state = "forked"
        self._log.abandon()
        self._let_go()

    def end(self, mode: str = "quiesce") -> None:
        """End it in order. "quiesce" lets the units of work of other threads end first, "immediate" backs them out."""
        if mode not in ("quiesce", "immediate"):
            raise Mistake(f"mode is 'quiesce' or 'immediate', not {mode!r}")
        if self._state in ("ended", "forked"):
            return
        with self._ended:
            outcome = "failed"
            try:
                if self._state in ("running", "quiescing"):
                    self._state = "ending"
                    self._end_in_order(mode)
                    outcome = "ended"
            except (OSError, LogError) as exc:
                raise Unavailable(
                    f"queue manager {self.name!r} could not be ended in order ({exc}); the next start recovers it",
                    name=self.name,
                ) from exc
            finally:  # also where it has failed, or was interrupted when it was ended before
                try:
                    if self._publisher is not None:
                        self._publisher.end(outcome)
                finally:
                    self._close()

    def quiesce(self) -> None:
        """Refuse new units of work and waits (2161); those that are there may end. `end` is still to come."""
        engine = self._engine
        if self._state == "running":
            self._state = "quiescing"
        engine.quiescing = True
        for queue in list(engine.state.queues.values()):
            with engine.lock:
                queue.waiters.wake_all()

    @property
    def refusal(self) -> MQError | None:
        """Why no call is taken any more, if so."""
        return self._engine.refusal

    @property
    def busy(self) -> bool:
        """Whether units of work are in flight; those in doubt are not."""
        with self._engine.lock:
            return any(unit.state is ACTIVE and not unit.holds for unit in self._engine.state.uows)

    def _end_in_order(self, mode: str) -> None:
        engine, log = self._engine, self._log
        engine.stopping = mode == "immediate"
        self.quiesce()
        if mode == "quiesce":
            self._await_units()
        self._housekeeper.stop()
        with engine.lock:
            for unit in engine.state.uows:
                if unit.holds:
                    engine.release_locked(unit, list(unit.gets))
                engine.make_room_for_end(unit)
                if unit.state is ACTIVE:
                    unit.evicted = True
                    engine.back_out_locked(unit)
            engine.events.not_active(mode)
            engine.tell_locked()
            engine.refusal = Unavailable(
                f"queue manager {self.name!r} has ended", reason=Reason.Q_MGR_STOPPING, name=self.name
            )
            self._media.record_at_end()
            engine.state.keep_non_persistent()
        self._housekeeper.checkpoint_if_possible(clean=True)
        log.close(clean=True)
        self._say("AMQ8004")

    def _await_units(self) -> None:
        """Wait until the units of work that living threads other than this one have begun are over."""
        me = threading.get_ident()
        never = threading.Event()
        while True:
            alive = {t.ident for t in threading.enumerate()} - {me}
            with self._engine.lock:
                units = [u for u in self._engine.state.uows if u.state is ACTIVE and not u.holds]
            busy = [u for u in units if u.thread in alive]
            if not busy or self._engine.refusal is not None:
                return
            self._clock.wait(never, 0.01)

    def _close(self) -> None:
        if self._engine.refusal is None:  # first, so that long work of the housekeeping ends soon
            self._engine.refusal = Unavailable(f"queue manager {self.name!r} has ended", name=self.name)
        self._housekeeper.stop()
        with contextlib.suppress(OSError, LogError):
            self._log.close(clean=False)
        self._let_go()
        self._state = "ended"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.end("quiesce" if kind is None else "immediate")

    def abandon(self) -> None:
        """Let go of it as a crash would: nothing is ended, the next start recovers."""
        with self._ended:
            if self._state not in ("ended", "forked"):
                self._close()

    # ---- messages

    def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message outside a unit of work; a persistent one is durable when this returns.

        `None` takes the queue's default, and for `message_id` a new one. `expiry` in seconds. Raises QueueFull (2053),
        MessageTooBig (2030), Inhibited (2051), UnknownQueue (2085), ResourceProblem (2102: the log has no room).
        """
        engine = self._engine
        message = engine.put(None, queue, body, options)
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
        put, end = self._engine.dead_letter_later(None if unit is None else unit._unit, message, reason)
        if end:
            self._engine.force(end)
        self.look_around()
        return put

    def browse(
        self, queue: str, *, message_id: bytes | None = None, correlation_id: bytes | None = None
    ) -> Iterator[Message]:
        """Look at the messages that could be got, in that order, taking nothing away."""
        return self._engine.browse(queue, message_id, correlation_id)

    def replay(self, queue: str | int, start: Where, end: Where | None = None) -> Replay:
        """What was put to a queue since a bookmark, committed persistent messages only, in the order of commit.

        `start`: the `.bookmark` of a replayed message (behind it), an LSN, a moment, "oldest" or "now"; `end`: the
        same, before it, or None for what is durable when the iteration gets there. `queue`: a name, or the number of
        one that was deleted. Linear logging only. Raises BookmarkTooOld, MediaNotSupported, Damaged (2101).
        """
        return Replay(self._engine, self._retention, queue, start, end)

    def _put_many(self, unit: Uow | None, queue: str, bodies: Iterable[Any], options: PutOptions) -> list[Message]:
        messages = self._engine.put_many(unit, queue, bodies, options)
        if self._engine.attention:
            self.look_around()
        return messages

    def look_around(self) -> None:
        """There may be housekeeping to do; called where a call has done its work."""
        self._housekeeper.notice()
        if self._engine.events.pending or self._engine.state.qmgr.logger_events:
            self._tell()

    def _get(self, unit: Uow | None, queue: str, limit: int, wait: Any, wanted: Wanted) -> list[Message]:
        found = self._engine.get(unit, queue, limit, wait, wanted)
        if self._engine.attention:
            self.look_around()
        return found

    def _get_one(self, unit: Uow | None, queue: str, wait: Any, options: GetOptions) -> Message:
        said = wanted(options) if options else ANY
        if said is ANY or (said == REQUEUE and not self._engine.requeues(queue)):
            if wait != 0.0:
                check_wait(wait)
            engine = self._engine
            message = engine.get_first(unit, queue)
            if message is not None:
                if engine.attention:
                    self.look_around()
                return message
        found = self._get(unit, queue, 1, wait, said)
        if found:
            return found[0]
        raise NoMessageAvailable(f"queue {queue!r} has no message for this get", name=queue)

    # ---- units of work

    def begin(self, xid: Xid | None = None) -> UnitOfWork:
        """Begin a unit of work; with an `xid` it can be prepared, for two-phase commit."""
        return self.begin_for(self._process, xid)

    def begin_for(self, owner: str, xid: Xid | None) -> UnitOfWork:
        """The same for a client, which `owner` describes for operators."""
        if xid is not None and not isinstance(xid, Xid):
            raise Mistake(f"xid is an Xid, not {xid!r}")
        return UnitOfWork(self, self._engine.begin(xid, owner, threading.get_ident()))

    def in_doubt(self) -> list[Xid]:
        """The prepared units of work that nobody has resolved yet."""
        self._engine.check()
        with self._engine.lock:
            return [unit.xid for unit in self._engine.state.uows.in_doubt() if unit.xid is not None]

    def resolve(self, xid: Xid, commit: bool) -> None:
        """End a unit of work that is in doubt. Raises Mistake when none of that name is."""
        if not isinstance(xid, Xid) or not isinstance(commit, bool):
            raise Mistake(f"resolve takes an Xid and True or False, not {xid!r} and {commit!r}")
        self._engine.resolve(xid, commit=commit)
        self._housekeeper.notice()

    def outcome(self, unit_id: int, *, since: int = 0) -> UowState | None:
        """What became of the unit of work with this id, over any number of restarts; None: the log has it no more.

        For who has lost the answer to a commit. `since`: an LSN before which nothing of it was logged, if that is
        known; else all of the log is read. A unit that has not ended is ACTIVE or PREPARED.
        """
        return outcome(self._engine, self._retention, unit_id, since)

    def transactions(self) -> list[TransactionInfo]:
        """Every unit of work that has not ended, oldest first."""
        self._engine.check()
        with self._engine.lock:
            return self._transactions()

    def _transactions(self) -> list[TransactionInfo]:
        return [
            TransactionInfo(
                number=u.number,
                state=u.state,
                xid=u.xid,
                started=u.began,
                log_started=u.logged,
                first_lsn=u.first_lsn,
                puts=len(u.puts),
                gets=len(u.gets),
                owner=u.owner,
            )
            for u in sorted(self._engine.state.uows, key=lambda u: u.number)
            if not u.holds
        ]

    def connections(self) -> list[ConnectionInfo]:
        """The clients of the queue manager, and this process, each with its units of work."""
        units = {unit.number: unit for unit in self.transactions()}
        clients = []
        for one in self.sessions:
            own = tuple([units.pop(number) for number in list(one.units) if number in units])
            clients.append(ConnectionInfo(number=one.number, peer=one.peer, began=one.began_us, units=own))
        here = Peer(user="", application=self._process, channel="")
        return [ConnectionInfo(number=0, peer=here, began=self._started, units=tuple(units.values())), *clients]

    def force(self, lsn: int) -> None:
        """Wait until the log is on disk up to the LSN, with all who wait for it."""
        self._engine.force(lsn)

    # ---- objects

    def define_queue(self, name: str, **attributes: Any) -> QueueInfo:
        """Define a local queue; the keywords are the MQSC attributes in words. Raises AlreadyExists (2100)."""
        self._engine.define(name, attributes)
        return self.queue(name)

    def alter_queue(self, name: str, **attributes: Any) -> QueueInfo:
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
                **attrs.asdict(queue.definition),
                depth=queue.depth,
                uncommitted=queue.uncommitted,
                memory=sum(queue.held),
                damaged=queue.damaged,
            )

    def define_alias(self, name: str, target: str, **attributes: Any) -> AliasDefinition:
        """Define another name for a queue, with puts and gets of its own to enable (QALIAS). Raises AlreadyExists.

        The queue need not be there yet: calls that name the alias then raise UnknownQueue (2082).
        """
        return self._engine.define_alias(name, target, attributes)

    def alter_alias(self, name: str, **attributes: Any) -> AliasDefinition:
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

    # ---- operations

    def checkpoint(self) -> None:
        """Take a checkpoint now. Raises StorageFull (2192) when the disk has no room for it."""
        self._checkpoint()

    def _checkpoint(self, hear: Hear = lambda checkpoint, catalogue: None) -> None:
        self._engine.check()
        try:
            self._housekeeper.checkpoint(hear=hear)
        except OSError as exc:
            if exc.errno in NO_SPACE:
                raise StorageFull(f"there is no disk space for a checkpoint ({exc})", name=self.name) from exc
            if exc.errno in NO_MEANS:
                text = (
                    f"there is no file descriptor for a checkpoint ({exc}); close some, or raise the limit (ulimit -n)"
                )
                raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=self.name) from exc
            self._fail(exc)
            self._engine.check()
        except LogError as exc:
            raise self._engine.translated(exc) from exc

    def record_image(self, queue: str | Iterable[str] | None = None) -> list[str]:
        """Record media images of a queue, of some, or of all and the definitions (rcdmqimg); the names recorded.

        Work goes on meanwhile. Linear logging only. Raises MediaNotSupported, NotImageRecoverable, Damaged (2101).
        """
        names = [queue] if isinstance(queue, str) else queue
        recorded = self._media.record(None if names is None else list(names), catalog=names is None)
        for name in recorded:
            self._say("AMQ9003", name=name)
        return recorded

    def record_definitions(self) -> None:
        """Record the media image of all definitions: those of the queues and of the queue manager."""
        self._media.record_catalog()

    def oldest_extents(self) -> tuple[str, str]:
        """The names of the oldest log extents that a restart and media recovery need; the error log says them too."""
        self._engine.check()
        restart, media = self._retention.oldest()
        self._say("AMQ7467", name=restart)
        self._say("AMQ7468", name=media)
        return restart, media

    def recreate(self, queue: str, *, progress: Progress = no_progress) -> QueueInfo:
        """Build a damaged queue again from its media image and the log, as it is at this moment (rcrmqobj).

        The other queues work on. Non-persistent messages are not recovered. Linear logging only. Raises
        MediaNotSupported, NotImageRecoverable, MediaImageMissing (2101, with the file that is missing).
        """
        depth = self._media.recreate(queue, progress)
        self._say("AMQ9004", name=queue, depth=depth)
        return self.queue(queue)

    def archive_log(
        self, *, older_than: str | int = 0, dry_run: bool = False, progress: Progress = no_progress
    ) -> Outcome:
        """Move the log extents that no restart needs to the archive; what was done, or would be.

        `older_than`: seconds since an extent was last written, or an age such as "36h". Each is copied, read back and
        compared before the original goes. `progress(done, total)` hears of bytes. Linear logging only.
        """
        return self._keep_extents(Action.ARCHIVE, older_than, dry_run, progress)

    def compress_log(
        self, *, older_than: str | int = 0, dry_run: bool = False, progress: Progress = no_progress
    ) -> Outcome:
        """Compress the log extents that no restart needs, wherever they lie; see `archive_log`. They stay readable."""
        return self._keep_extents(Action.COMPRESS, older_than, dry_run, progress)

    def remove_log(self, *, older_than: str | int, dry_run: bool = False, progress: Progress = no_progress) -> Outcome:
        """Delete the oldest log extents, archived or not, up to the first that is still needed; see `archive_log`.

        `.held` of what is returned says what needs that one: a restart, media recovery, a reader, a message that
        nobody has got yet.
        """
        return self._keep_extents(Action.REMOVE, older_than, dry_run, progress)

    def _keep_extents(self, action: Action, older_than: str | int, dry_run: bool, progress: Progress) -> Outcome:
        try:
            age = parse_age(older_than) if isinstance(older_than, str) else int(older_than)
        except ValueError as exc:
            raise Mistake(f"older_than: {exc}") from exc
        try:
            return self._retention.do(action, age, progress, dry_run=dry_run)
        except (LogError, OSError) as exc:
            self._engine.check()
            way = f"; nothing is lost by that: {way_out(exc)} and try again" if isinstance(exc, OSError) else ""
            raise Unavailable(f"{exc}{way}", reason=Reason.FILE_SYSTEM_ERROR, name=self.name) from exc

    def advance_log(self) -> str:
        """Go on in a new log extent, whose name is returned: the one so far can be archived then. Linear logging only.

        A checkpoint is the first that is written there, so that a restart needs the old one no longer than it must.
        Raises ResourceProblem (2102), StorageFull (2192) when the disk has no room for the checkpoint.
        """
        self._retention.advance()
        self.checkpoint()
        return self._retention.current()

    def reduce_log(self, how: str | int = "AUTO") -> int:
        """Remove log extents that nothing needs: secondaries, and those kept for reuse; return how many went.

        `how`: "ONE", "MAX", so many at the most, or "AUTO": all but half as many for reuse as there are primaries.
        """
        most = {"AUTO": MOST_EXTENTS, "MAX": MOST_EXTENTS, "ONE": 1}.get(how) if isinstance(how, str) else how
        if type(most) is not int or not 1 <= most <= MOST_EXTENTS:
            raise Mistake(f"how is AUTO, ONE, MAX or a number of log extents from 1 on, not {how!r}")
        self._engine.check()
        keep = self.config.log.primary_files // 2 if how == "AUTO" else 0
        try:
            return self._log.reduce(most, keep)
        except LogError as exc:
            raise self._engine.translated(exc) from exc
        except OSError as exc:
            raise Unavailable(
                f"a log extent could not be removed ({exc}); mend the disk and try again",
                reason=Reason.FILE_SYSTEM_ERROR,
                name=self.name,
            ) from exc

    def note_archived(self, extent: str, *, all_before: bool = False) -> None:
        """Somebody else has archived this log extent, or all up to it (SET LOG ARCHIVED, LogManagement=Archive)."""
        try:
            self._retention.note_archived(extent, all_before=all_before)
        except OSError as exc:
            text = (
                f"that {extent} is archived could not be noted ({exc}); give the disk room, or mend it, and try again"
            )
            if exc.errno in NO_SPACE:
                raise StorageFull(text, name=self.name) from exc
            raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=self.name) from exc

    def mqsc(self, text: str) -> MqscResult:
        """Run MQSC commands, see `qmgr/mqsc/`; what goes wrong with one of them is in the result."""
        if not isinstance(text, str):
            raise Mistake(f"mqsc takes text, not {type(text).__name__}")
        return mqsc.run(self, text)

    def alter(self, **attributes: Any) -> QmgrDefinition:
        """Change attributes of the queue manager: those of ALTER QMGR, in words.

        The queue of events that are switched on is defined if it is not there.
        """
        with_attributes(self._engine.state.qmgr, attributes)  # what is refused defines nothing
        if attributes.get("logger_events") and not self._linear:
            raise MediaNotSupported(
                f"AMQ8518E: logger events need linear logging, and queue manager {self.name!r} has circular logging; "
                f"migmqlog changes it",
                name=self.name,
            )
        for name in {events.QUEUES[said] for said in attributes.keys() & events.QUEUES.keys() if attributes[said]}:
            with contextlib.suppress(AlreadyExists):
                self._engine.define(name, events.ATTRIBUTES)
        changed = self._engine.alter_qmgr(attributes)
        self._tell()
        return changed

    @property
    def attributes(self) -> QmgrDefinition:
        """The attributes of the queue manager."""
        self._engine.check()
        return self._engine.state.qmgr

    def authorize(
        self, user: str, profile: str = "", *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> QmgrDefinition:
        """Give a user rights on the queues that a profile fits, and take others away; "": on the queue manager.

        Rights: connect, inquire, put, get, browse, admin; see `authority.py`. They count for clients over a network.
        """
        kind = authority.QUEUE if profile else authority.QMGR
        with self._authorizing:
            return self.alter(
                authorities=authority.changed(self.attributes.authorities, user, kind, profile, add, remove)
            )

    def unauthorize(self, user: str, profile: str = "") -> QmgrDefinition:
        """Forget what was said of this user and profile. Raises Mistake where nothing was."""
        kind = authority.QUEUE if profile else authority.QMGR
        with self._authorizing:
            return self.alter(authorities=authority.without(self.attributes.authorities, user, kind, profile))

    def status(self) -> Status:
        """How the queue manager and its log stand."""
        self._engine.check()
        with self._engine.lock:
            return self._status()

    def _status(self) -> Status:
        state = self._engine.state
        return Status(
            name=self.name,
            state=self._state,
            log=self._log.status(),
            log_sync=self.config.log.sync.value,
            checkpoints=self._checkpointer.count,
            checkpoint_seconds=self._checkpointer.last_seconds,
            units_of_work=len(state.uows),
            in_doubt=len(state.uows.in_doubt()),
            queues=len(state.queues),
            messages=sum(queue.depth for queue in state.queues.values()),
            restart=self.restart_report,
        )

    @property
    def healthy(self) -> bool:
        """Does it take calls?"""
        return self._state == "running" and self._engine.refusal is None

    def picture(self) -> dict[str, Any]:
        """How it stands for those who look from other processes, in any state; see `published.py`."""
        log, engine = self._log, self._engine
        with engine.lock:  # what changes with every call; the rest is read as it goes
            status, units = self._status(), self._transactions()
            extents, space = log.extents(), describe_space(log.space)
            queues = list(engine.state.queues.values())
            records = self._checkpointer.records
            media = engine.state.media_lsn()
        extents += describe_inactive(self._disk, status.log.config.path, log.inactive())
        extent_bytes = status.log.config.extent_bytes
        transactions = [plain(unit) for unit in units]
        logged = [unit for unit in transactions if unit["first_lsn"]]
        picture: dict[str, Any] = plain(status)
        picture["log"] |= space | {
            "extent_bytes": extent_bytes,
            "extents": describe_extents(extents, status.log.head // extent_bytes, media // extent_bytes or None),
        }
        picture["log"] |= self._retention.facts()
        return picture | {
            "process": self._process,
            "started": self._started,
            "now": self._clock.wall_us(),
            "data_dir": self._location.data_dir,
            "file_systems": file_systems(self._disk, self._location.data_dir, self.config.log.path),
            "transactions": transactions,
            "holder": min(logged, key=lambda unit: unit["first_lsn"], default=None),
            "objects": [describe_queue(queue) for queue in queues],
            "records": records,
        }


def _in_child(manager: QueueManager | None) -> None:
    if manager is not None:
        manager._forked()


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
    location = locations.find(name, data_path, disk)
    manager = None
    try:
        with translated(name, "started"):
            manager = QueueManager(location, disk, clock or SystemClock(), background=background)
            return manager  # noqa: RET504  an interrupt may strike between the two
    except BaseException:
        if manager is not None:  # interrupted at the last moment
            manager.abandon()
        raise
