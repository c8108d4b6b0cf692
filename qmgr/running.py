"""A queue manager from its start to its end: owning it, restarting it from its log, failing, ending in order."""

import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from logger import log as logs
from logger import lsn
from logger.clock import Clock
from logger.config import LogSync, LogType
from logger.disk import Disk
from logger.disk_errors import NO_SPACE, RETRYABLE, advice
from logger.errors import LogClosed, LogError, NotAsConfigured
from logger.force import TRIES
from logger.whole_files import read_whole
from qmgr import autoconfig, ini
from qmgr.archive_watch import ArchiveWatch
from qmgr.checkpoints import Checkpoints
from qmgr.disk_space import DiskSpace
from qmgr.due import SteadyClock
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog, open_error_log
from qmgr.errors import MQError, Reason, StorageFull, Unavailable
from qmgr.extent_indexing import ExtentIndexing
from qmgr.housekeeping import Housekeeper
from qmgr.ini_text import complaint
from qmgr.locations import Location
from qmgr.log_needs import LogNeeds, name_of
from qmgr.log_space import LogSpace
from qmgr.logged import EngineContext
from qmgr.media import Media
from qmgr.missing import unknown
from qmgr.objects import QmgrDefinition
from qmgr.ownership import Ownership, lock_log, own, refuse_log_path, refuse_root
from qmgr.published import Publisher
from qmgr.queue import Queue
from qmgr.resource import Resource
from qmgr.retention import Retention
from qmgr.threads import Alive, this_thread
from qmgr.verbs import check_end_mode
from recovery.checkpoint import Checkpoint, Checkpointer, OnTaken, Triggers, read_files, tell_nobody
from recovery.errors import RecoveryError
from recovery.restart import RestartReport, restart
from recovery.uows import ACTIVE


class Running(ABC):
    """What every queue manager has before its verbs: its start, what it does by itself, its failure and its end."""

    @abstractmethod
    def picture(self) -> dict[str, Any]:
        """How it stands, for those who look from other processes."""

    def __init__(self, location: Location, disk: Disk, clock: Clock, *, background: bool) -> None:
        """Start it: own it, restart from its log, take a checkpoint. Use `qmgr.start`."""
        self.name = location.name
        self._location = location
        self._disk = disk
        self._clock = clock
        self._ended: threading.Lock = threading.Lock()
        self._enders: list[Alive] = []  # threads that end it: their own units of work are not waited for
        self._at_once = False  # no unit of work is waited for at the end; once set, it stays so
        self._authorizing = threading.Lock()
        self._state = "starting"
        self.recreated: dict[str, str] = {}  # queues that the start builds again: what they have then, and why
        self._wake_pending = False  # it has stopped, and not all who wait have heard of it
        why = "no memory, or no stack, was left to say why"  # these are made while there is some
        self._no_words = Unavailable(f"queue manager {self.name!r} has stopped: {why}; start it again", name=self.name)
        self._no_words_for_log = LogClosed(f"the queue manager has stopped: {why}")
        self._process = disk.process()
        if not disk.exists(location.ini):
            raise unknown(disk, location)
        refuse_root(disk, location.data_dir, location.name)
        self.on_failure: Callable[[], None] = lambda: None  # by any thread; it only passes the word on
        self._errors: ErrorLog | None = None
        self._lock = Ownership()
        self._publisher = Publisher(disk, clock, location.published, self.picture) if background else None
        self._started, self._started_ns = clock.wall_us(), clock.elapsed_ns()
        try:
            own(disk, location, None, self._lock)
            if not disk.exists(location.ini):  # it was deleted in this moment
                raise unknown(disk, location)
            self.config = autoconfig.configuration(disk, location.ini)
            refuse_log_path(disk, location, self.config.log.path)
            lock_log(disk, location, self.config.log.path, self._lock)
            disk.sync_dir(location.data_dir)  # the name of qm.ini: its maker may have been killed before it was synced
            self._errors = open_error_log(disk, clock, location.errors, self.config.error_log, self.name)
            self._restart(self._errors, background)
        except BaseException:
            self._release_ownership()
            raise
        try:
            self._begin_to_serve(background)
        except BaseException:  # an interrupt, or there are no more threads; and nobody has the queue manager yet
            self._close()
            raise

    def _begin_to_serve(self, background: bool) -> None:
        """The restart is done: from now on calls are taken. Raises RuntimeError where there can be no more threads."""
        me = weakref.ref(self)
        self._disk.on_fork(lambda: _in_child(me()))
        if background:
            self._housekeeper.start_thread()
        else:
            self._engine.watchful = self._engine.attention = True
        self.say("AMQ8003")
        self._state = "running"
        if self._publisher is not None:
            self._housekeeper.on_tick(self._tick)
        with self._engine.lock:
            self._engine.events.active()
        self._put_events()

    def _release_ownership(self) -> None:
        """Somebody else may start the queue manager now."""
        try:
            if self._errors is not None:
                self._errors.close()
        finally:
            self._lock.release()

    def _restart(self, errors: ErrorLog, background: bool) -> None:
        self._tell_settings(errors)
        log = self._open_log()
        try:
            linear = log.state.log_type is LogType.LINEAR
            checkpoint = self._replay(log, errors, linear)
            self._assemble(log, checkpoint, errors, background)
            if not checkpoint.epoch and self._store.qmgr != QmgrDefinition():  # its first start
                self._engine.alter_qmgr({})  # who replays the log from its first record has them from there alone
            if self._housekeeper.checkpoints.take_if_possible():
                self._store.sweep()
            if linear:
                self._recreate_damaged()
                if not self._store.catalog:
                    self._record_first_catalog()
        except BaseException:
            log.close(clean=False)
            raise

    def _open_log(self) -> logs.Log:
        """The log as it lies there. Raises LogError, and IniError where it is not as qm.ini says."""
        try:
            astray = self._lock.astray  # made before there is a log that could be left open
            log = logs.Log(self._disk, self._clock, self.config.log)
            log.moved_directory = astray
            return log
        except NotAsConfigured as exc:
            path = self._location.ini
            line = ini.line_of(read_whole(self._disk, path), path, "Log", exc.attribute)
            raise complaint("AMQ7076", path, line, f"{exc}.") from exc

    def _tell_settings(self, errors: ErrorLog) -> None:
        config = self.config
        errors.say("AMQ6287", process=self._disk.process())
        for note in config.ignored:
            errors.say("AMQ7075", text=f"{note} is known to IBM MQ and has no effect here")
        for text in config.idle:
            errors.say("AMQ7075", text=text)
        for text in config.complaints:
            errors.say("AMQ9022", text=text)
        if config.log.sync is not LogSync.ALWAYS:
            errors.say("AMQ9001", sync=config.log.sync.value)

    def _replay(self, log: logs.Log, errors: ErrorLog, linear: bool) -> Checkpoint:
        """Bring the state back from the last checkpoint and the log; return that checkpoint."""
        disk, tuning, log_id = self._disk, self.config.tuning, log.state.log_id
        checkpoints = read_files(disk, self._location.data_dir, log_id)
        buffers = tuning.default_q_buffer_size, tuning.default_pq_buffer_size
        state = Resource(disk, self._location.queues, log_id, self._clock.give_way, buffers, imaged=linear)
        checkpoint, report = restart(log, self._clock, state, checkpoints)
        state.committed = state.backed_out = 0  # in earlier lives, and by the restart
        state.fence = log.fence
        self._store = state
        self._report(errors, report, state)
        state.on_damage = self._damaged
        state.note_aside = lambda path: self.say("AMQ9005", path=path)
        self.restart_report = report
        return checkpoint

    def _assemble(self, log: logs.Log, checkpoint: Checkpoint, errors: ErrorLog, background: bool) -> None:
        """Make what works on log and state."""
        clock, config, state = self._clock, self.config, self._store
        tuning = config.tuning
        steady = SteadyClock(clock, checkpoint.time, checkpoint.wall)
        self._log = log
        self._checkpointer = checkpointer = self._make_checkpointer(log, checkpoint, steady)
        self._engine = Engine(
            EngineContext(
                name=self.name,
                process=self._process,
                log=log,
                clock=clock,
                steady=steady,
                state=state,
                checkpointer=checkpointer,
                max_uncommitted=tuning.max_uncommitted_messages,
                make_space=lambda size, promise, spare: self._housekeeper.log_space.make_space(size, promise, spare),
                on_failure=self._fail,
                say=self.say,
            )
        )
        for unit in state.uows:
            unit.promise = self._engine.promise_of(unit)
        self._engine.count_promises()
        needs = LogNeeds(self._engine)
        indexing = ExtentIndexing(self._engine, needs)
        archive = config.log.archive_directory
        self._archive_watch = watch = ArchiveWatch(clock, lambda s: self.say("AMQ9019", path=archive, count=s))
        with watch.looked_at() if background and self._linear else contextlib.nullcontext():
            self._retention = Retention(
                self._engine, needs, indexing, errors, config.log_management, config.log_archive, watch
            )
        disk_space = DiskSpace(self._engine)
        checkpoints = Checkpoints(self._engine, self._retention, disk_space, errors, self._fail)
        log_space = LogSpace(self._engine, disk_space, checkpoints, errors)
        self._housekeeper = Housekeeper(
            self._engine,
            disk_space,
            checkpoints,
            log_space,
            errors,
            expiry_seconds=tuning.expiry_interval,
            sync_ms=config.log.sync_interval_ms if config.log.sync is LogSync.INTERVAL else 0,
            chores={"CHORES": self._chores, "ARCHIVE": lambda: self._keep_extents_of_age(background)},
            on_failure=self._fail,
        )
        self._media = Media(self._engine, self._checkpoint, needs)

    def _make_checkpointer(self, log: logs.Log, checkpoint: Checkpoint, steady: SteadyClock) -> Checkpointer:
        """What goes on taking checkpoints after the one that the restart has begun with."""
        state, tuning = self._store, self.config.tuning
        triggers = Triggers(
            records_max=tuning.checkpoint_log_records_max,
            records_min=tuning.checkpoint_log_records_min,
            wait_us=tuning.checkpoint_wait_minutes * 60_000_000,
        )
        made = Checkpointer(self._disk, self._clock, self._location.data_dir, log, state, triggers, steady.now_us)
        made.heads = (checkpoint.head,) * 2
        waiting = state.unwritten() + sum(unit.put_bytes for unit in state.uows)
        made.in_flight = max(0, waiting - (log.buffer.tail - log.state.checkpoint))
        return made

    def _report(self, errors: ErrorLog, report: RestartReport, state: Resource) -> None:
        say = errors.say
        if report.torn_tail:
            say("AMQ9034", text=lsn.text(report.end_lsn))
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
        self.say("AMQ7472", name=queue.name, text=queue.damaged)
        try:
            aside = self._store.set_aside(queue.bad_file)
        except OSError as exc:
            self.say("AMQ6708", text=f"{queue.bad_file} could not be set aside ({exc})")
        else:
            if aside:
                self.say("AMQ9005", path=aside)

    def _chores(self) -> None:
        """What may take long: record the media images that are due."""
        self._retention.keep_house_if_due()
        try:
            for name in self._media.record_due():
                self.say("AMQ9003", name=name)
        except MQError as exc:
            self.say("AMQ9006", text=str(exc))

    def _keep_extents_of_age(self, background: bool) -> None:
        """What may wait for the archive: archive what is old enough, index extents, look at what the archive has.

        Indexes only where no call waits for them.
        """
        self._retention.keep_policy()
        if background:
            self._retention.index_extents()
        self._retention.look_at_archive()

    def _record_first_catalog(self) -> None:
        try:
            self._media.record_catalog()
        except MQError as exc:  # the next round of images tries again
            self.say("AMQ9006", text=str(exc))

    def _recreate_damaged(self) -> None:
        """What was found damaged at the start is built again from the log, where that is possible."""
        for queue in [queue for queue in self._engine.state.by_id.values() if queue.damaged]:
            try:
                why = queue.damaged
                depth = self._media.recreate(queue.name)
                self.say("AMQ9004", name=queue.name, depth=depth)
                self.recreated[queue.name] = f"{depth} persistent messages, and no others; it was damaged: {why}"
            except (MQError, LogError, RecoveryError, OSError) as exc:  # one damaged queue stops no start
                self._engine.check()
                self.say("AMQ7042", name=queue.name, text=str(exc))

    def damaged(self) -> dict[str, str]:
        """The queues that nothing can be done with, and why."""
        with self._engine.lock:
            return {queue.name: queue.damaged for queue in self._engine.state.by_id.values() if queue.damaged}

    @property
    def archive_away(self) -> str:
        """That the log's archive was not there at the start, and what to do; "" where it was."""
        return self._retention.away

    def say(self, amq: str, **inserts: Any) -> None:
        """Say it in the error log."""
        if self._errors is not None:
            self._errors.say(amq, **inserts)

    # ---- failing

    def _fail(self, exc: BaseException) -> None:
        """Something went wrong that leaves memory or disk unknown: nothing is taken or acknowledged any more.

        That holds too where there is no memory to say what it was: `finally` needs none.
        """
        refusal, failure = self._no_words, self._no_words_for_log
        first = self._engine.refusal is None
        try:
            text = str(exc) or type(exc).__name__
            failure = LogClosed(f"the queue manager has stopped: {text}")
            if first:
                way = "" if text.endswith("start it again") else "; start it again"
                if way and isinstance(exc, OSError) and exc.errno is not None:  # else it says itself what to do
                    way = f"; {advice(exc)} and start it again"
                refusal = Unavailable(f"queue manager {self.name!r} has stopped: {text}{way}", name=self.name)
                refusal.__cause__ = exc
        finally:
            if first:
                self._engine.refusal = refusal
                self._state = "failed"
            self._wake_pending = True
            try:
                self._log.stop(failure)
            finally:
                self._wake_everyone()
        if first:
            self.say("AMQ6709", text=text)

    def _wake_everyone(self) -> None:
        """Everybody who waits hears that it has stopped: without memory for that, at one of the next ticks."""
        left = TRIES
        while self._wake_pending and left:
            left -= 1
            try:
                for queue in list(self._engine.state.queues.values()):
                    queue.waiters.wake_all()
                self.on_failure()
                self._wake_pending = False
            except MemoryError:
                continue

    # ---- while it runs

    def _tick(self) -> None:
        """About once a second; it must not fail."""
        if self._log.failure is not None and self._engine.refusal is None:
            self._fail(self._log.failure)  # the call in which it failed was interrupted, and has raised only that
        if self._wake_pending:
            self._wake_everyone()
        self._archive_watch.look()
        if self._publisher is not None and self._still_ours():
            self._publisher.tick()
        self._put_events()

    def _still_ours(self) -> bool:
        """Is the queue manager still this process's? While nobody puts or gets, nothing else finds out."""
        try:
            self._log.check_owned()
        except OSError as exc:
            self._fail(exc)
            return False
        return True

    def _put_events(self) -> None:
        """Put the events that have been noted, and those of the log's extents if they are enabled (LOGGEREV)."""
        if not self._engine.state.qmgr.logger_events:
            self._engine.events.skip_extents()
        elif self._linear and self._engine.refusal is None:
            (restart, media), archive = self._retention.needs.oldest(), self._retention.awaits_archiving()
            with self._engine.lock:
                current = (self._log.safe - 1) // self._log.state.extent_bytes  # operators copy those before it
                self._engine.events.extents(
                    current, restart, media, archive, f"{self.config.log.path}/active/", name_of
                )
        self._engine.put_events()

    @property
    def _linear(self) -> bool:
        return self._log.state.log_type is LogType.LINEAR

    def not_authorized(self, user: str, verb: str, name: str) -> None:
        """Put an event for a user who was refused this, if it is enabled (AUTHOREV). `name`: of a queue, or ""."""
        with self._engine.lock:
            self._engine.events.not_authorized(user, verb, name)
        self._put_events()

    def look_around(self, *, may_wait: bool = True) -> None:
        """Do, or ask for, the housekeeping that a call has made necessary; called when that has done its work."""
        self._housekeeper.notice(may_wait=may_wait)
        if self._engine.events.pending or self._engine.state.qmgr.logger_events:
            self._put_events()

    def _checkpoint(self, on_taken: OnTaken = tell_nobody) -> None:
        self._engine.check()
        try:
            self._housekeeper.checkpoints.take(on_taken=on_taken)
        except OSError as exc:
            if exc.errno in NO_SPACE:
                text = f"there is no disk space for a checkpoint ({exc}); nothing is lost by that: {advice(exc)} and"
                raise StorageFull(f"{text} try again", name=self.name) from exc
            if exc.errno in RETRYABLE:
                text = f"a checkpoint can't be written ({exc}); nothing is lost by that: {advice(exc)} and try again"
                raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=self.name) from exc
            self._fail(exc)
            self._engine.check()
        except LogError as exc:
            raise self._engine.translated(exc) from exc

    # ---- ending

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
        self._engine.lock = self._log.lock
        self._store.files.end()
        self._release_ownership()

    def end(self, mode: str = "quiesce") -> None:
        """End it in order: "quiesce" lets the units of work of other threads end first, "immediate" backs them out.

        "immediate" also overrules a "quiesce" that is waiting: that of another thread or, in a signal handler, that of
        the thread which the signal has interrupted; that one ends it when the handler has returned.
        """
        check_end_mode(mode)
        if self._state in ("ended", "forked"):
            return
        if mode == "immediate":
            self._at_once = True
            self._engine.ending = Reason.Q_MGR_STOPPING
        me = this_thread()
        if me in self._enders:
            return
        try:
            self._enders.append(me)
            self._end()
        finally:
            if me in self._enders:
                self._enders.remove(me)

    def _end(self) -> None:
        with self._ended:
            outcome = "failed"
            try:
                if self._state in ("running", "quiescing"):
                    self._state = "ending"
                    self._end_in_order()
                    outcome = "ended"
            except (OSError, LogError) as exc:
                way = "the next start recovers it"  # what the log says has more in it
                if isinstance(exc, OSError):
                    way = f"{advice(exc)} and start it again, which recovers it"
                text = f"queue manager {self.name!r} could not be ended in order ({exc}); {way}"
                raise Unavailable(text, name=self.name) from exc
            finally:  # also where it has failed, or was interrupted when it was ended before
                try:
                    if self._publisher is not None and self._still_ours():
                        self._publisher.end(outcome)
                finally:
                    self._close()

    def quiesce(self) -> None:
        """Refuse new units of work and waits (2161); those that are there may end. `end` is still to come."""
        engine = self._engine
        if self._state == "running":
            self._state = "quiescing"
        if not self._at_once:
            engine.ending = Reason.Q_MGR_QUIESCING
        if self._at_once:  # asked again: another thread may have said so in between
            engine.ending = Reason.Q_MGR_STOPPING
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
            return any(unit.state is ACTIVE and not unit.for_client for unit in self._engine.state.uows)

    def _end_in_order(self) -> None:
        engine, log = self._engine, self._log
        self.quiesce()
        self._await_units()
        self._housekeeper.stop(self._archive_watch.look)
        with engine.lock:
            for unit in engine.state.uows:
                if unit.for_client:
                    engine.drop_locked(unit)
                    continue
                engine.make_room_for_end(unit)
                if unit.state is ACTIVE:
                    unit.evicted = True
                    engine.back_out_locked(unit)
            engine.events.not_active("immediate" if self._at_once else "quiesce")
            engine.put_events_locked()
            engine.refusal = Unavailable(
                f"queue manager {self.name!r} has ended", reason=Reason.Q_MGR_STOPPING, name=self.name
            )
            self._media.record_at_end()
            engine.state.keep_non_persistent()
        if not self._housekeeper.checkpoints.take_if_possible(clean=True) and (lost := self._store.lost_unless_kept()):
            why, way = self._housekeeper.checkpoints.failed_for
            raise StorageFull(
                f"queue manager {self.name!r} has ended, and its last checkpoint could not be written ({why}): the "
                f"non-persistent messages of the queues with NPMCLASS(HIGH) are lost ({', '.join(lost)}), persistent "
                f"ones are not; {way} and start it again",
                name=self.name,
            )
        log.close(clean=True)
        self.say("AMQ8004")

    def _await_units(self) -> None:
        """Wait for the units of work of living threads, but for those that end it; not if it is to end at once."""
        engine, never = self._engine, threading.Event()
        while not self._at_once and engine.refusal is None:
            with engine.lock:
                begun = [u.thread for u in engine.state.uows if u.state is ACTIVE and not u.for_client]
            if not any(who is not None and who() is not None for who in begun if who not in self._enders):
                return
            self._clock.wait(never, 0.01)

    def _close(self) -> None:
        if self._engine.refusal is None:  # first, so that long work of the housekeeping ends soon
            self._engine.refusal = Unavailable(f"queue manager {self.name!r} has ended", name=self.name)
        self._housekeeper.stop(self._archive_watch.look)
        if self._wake_pending:  # without housekeeping there was no tick to tell them
            self._wake_everyone()
        with contextlib.suppress(OSError, LogError):
            self._log.close(clean=False)
        with self._engine.lock:
            self._store.files.end()
        self._release_ownership()
        self._state = "ended"
        for queue in list(self._engine.state.queues.values()):
            queue.waiters.wake_all()  # gets still wait where `abandon` has closed it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.end("quiesce" if kind is None else "immediate")

    def abandon(self) -> None:
        """Let go of it as a crash would: nothing is ended, the next start recovers."""
        with self._ended:
            if self._state not in ("ended", "forked"):
                self._close()


def _in_child(manager: Running | None) -> None:
    if manager is not None:
        manager._forked()
