"""Housekeeping: checkpoints when due, the release of log space, LogSync=interval, expired messages, surplus extents.

With a thread of its own it works while calls go on; without one (in a simulation) calls do its work when they are
done with theirs, so that a whole life is one sequence of steps.

The release sequence runs when the log has passed 80 % of its capacity, or when a call finds no room: a checkpoint, if
that moves the head; else the unit of work that holds the head is rolled back, or rolled forward if it is prepared;
then again, until there is room.
"""

import contextlib
import datetime
import errno
import threading
from collections.abc import Callable, Iterator

from logger.condition import Event
from logger.config import LogType
from logger.disk import PAGE
from logger.disk_errors import NO_DESCRIPTORS, RETRYABLE, advice
from logger.errors import LogDamaged, LogError
from logger.space import NO_LIMIT
from qmgr.engine import Engine
from qmgr.entry import Entry
from qmgr.errorlog import ErrorLog
from qmgr.queue import Queue
from qmgr.retention import Retention
from qmgr.threads import ShieldedWorker, Worker
from qmgr.units import rolled_forward
from recovery.checkpoint import OnTaken
from recovery.errors import QueueDamaged
from recovery.uows import ACTIVE, Uow

RETRY_INTERVAL_NS = 1_000_000_000  # after a checkpoint failed for want of disk space
CHORES_INTERVAL_NS = 10_000_000_000  # between looks whether a media image or an archive is due
REPORT_INTERVAL_NS = 60_000_000_000  # between reports that a disk has no room: it may be tried for hours
NOT_FULL_AFTER_NS = 1_000_000_000  # with room, before a full log is said to be full no more: it comes and goes
TICK_S = 1.0  # between looks at the clock
DISK_MARGIN_BYTES = 65536  # that are not counted on: a checkpoint begins new pages
SWEEP_CHUNK = 100  # expired messages that are removed before others go on


def _hindrance(why: str, way: str) -> str:
    """Why the log gets no more room, and what to do: how a sentence goes on."""
    return f"can get no more room ({why})" + (f": {way} and try again" if way else "")


def rewrite_reserve(total: int) -> int:
    """The bytes that puts leave on a disk of `total` bytes, to rewrite a segment of which half is gone."""
    return min(10 << 20, total // 16)  # segments have 16 MiB, and what one checkpoint appends beyond that


class Housekeeper:
    """Keeps one queue manager in order."""

    def __init__(
        self,
        engine: Engine,
        retention: Retention,
        errors: ErrorLog,
        *,
        expiry_seconds: int,
        sync_ms: int,
        chores: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._checkpointer = engine.checkpointer
        self._retention = retention
        self._errors = errors
        self._clock = clock = engine.clock
        self._sync_ns = sync_ms * 1_000_000  # LogSync=interval; 0: each force syncs, or the system decides
        self._expiry_ns = expiry_seconds * 1_000_000_000
        # When the log was last synced, expired messages were removed, and chores were done:
        self._synced_ns = self._swept_ns = self._looked_ns = clock.elapsed_ns()
        self._failed_ns = 0  # when a checkpoint failed last: it is tried again RETRY_INTERVAL_NS later; 0: at once
        self.failed_for = "", ""  # what the last checkpoint has failed for, and what to do
        self._checkpoint_report: tuple[int | None, int] = 0, 0  # errno of one that failed, and when that was said
        self._grow_report: tuple[int | None, int] = 0, 0  # the same of an extent that was to be made for a call
        self._scarce_ns = 0  # when checkpoints gave back no room on the disk
        self._refused_ns = 0  # when it was said last that puts are refused for that
        self._rewrite_reserve = 0  # bytes left of it for the checkpoint under way
        engine.state.spare_bytes, engine.state.take_room = self._spare_bytes, self._take_room
        self._chores = chores
        self._chores_thread: Worker | None = None
        self._checkpoint_thread: ShieldedWorker | None = None  # for the main thread, which may be interrupted meanwhile
        self._on_failure = on_failure
        self._needed = 0  # bytes of log that room is being made for: no extent is given back that they go to
        self._wake = Event()
        self._ending = False
        self._one_at_a_time = threading.RLock()
        self._was_full = False  # it was said that the log is full, and not yet that it is so no longer
        self._room_since_ns: int | None = None  # since when it has room again
        self._thread: Worker | None = None
        self._on_tick: Callable[[], None] = lambda: None

    def start_thread(self) -> None:
        """From now on work while calls go on."""
        self._thread = Worker(self._run, f"CHECKPOINT-{self._engine.name}")
        self._thread.start()

    def on_tick(self, call: Callable[[], None]) -> None:
        """Have the thread make this call now, and whenever it has looked at the clock; it must not fail."""
        self._on_tick = call
        self._wake.set()

    # ---- being called

    def notice(self, *, may_wait: bool = True) -> None:
        """A call has ended: is there something to do? An event loop may not wait for it."""
        if self._was_full:
            self._check_whether_full()
        self._engine.attention = self._engine.watchful or self._was_full
        if self._engine.urgent or self._checkpointer.limit_reached():
            if self._thread is None or (may_wait and self._checkpointer.overdue()):
                self.work()  # whoever puts faster than checkpoints can write waits for one
            elif not self._wake.is_set():
                self._wake.set()
        elif self._thread is None and self._timed():
            self.work()

    def stop(self) -> None:
        """No more work after this."""
        self._ending = True
        self._wake.set()
        for thread in (self._thread, self._chores_thread, self._checkpoint_thread):
            if thread is not None:
                thread.await_end()

    def _run(self) -> None:
        while not self._ending:
            try:
                self._look()
            except Exception as exc:  # what it has left half done has stopped the log; all else is tried again
                try:
                    self._say_failed(exc)
                except Exception:  # no memory even for that: nobody hears of it, and it is tried again all the same
                    continue

    def _look(self) -> None:
        """Wait for the next look, and do what is due then."""
        self._clock.wait(self._wake, min(TICK_S, self._sync_ns / 1e9) if self._sync_ns else TICK_S)
        self._wake.clear()
        if self._was_full:
            self._check_whether_full()
        self._look_at_disk()
        if not self._ending and self._engine.refusal is None and (self._engine.urgent or self._timed()):
            self.work()
        if not self._ending:
            self._on_tick()

    def _say_failed(self, exc: Exception) -> None:
        if self._engine.log.failure is not None:
            self._on_failure(exc)
        elif isinstance(exc, MemoryError):
            self._errors.say("AMQ6118", text="there was no memory for housekeeping, which is tried again")
        else:
            text = f"housekeeping failed, and is tried again ({type(exc).__name__}: {exc})"
            self._errors.say("AMQ6118", text=text)

    def _timed(self) -> bool:
        now = self._clock.elapsed_ns()
        return (
            self._checkpointer.due()
            or now - self._swept_ns >= self._expiry_ns
            or now - self._looked_ns >= CHORES_INTERVAL_NS
            or (self._sync_ns > 0 and now - self._synced_ns >= self._sync_ns)
        )

    def _do_chores(self) -> None:
        """Media images and the archive, in a thread of their own since they may take long."""
        if self._thread is None:
            self._chores()
        elif self._chores_thread is None or not self._chores_thread.is_alive():
            thread = Worker(self._chores, f"CHORES-{self._engine.name}")
            thread.start()  # where there are too many already it raises: nobody is to wait for this one
            self._chores_thread = thread

    def work(self) -> None:
        """Do what is due. What goes wrong with a checkpoint is said, and is no reason for a call to fail."""
        try:
            with self._one_at_a_time:
                if self._engine.urgent:
                    self._engine.urgent = False
                    self.release()
                if self._checkpointer.due():
                    self.checkpoint_if_possible()
                if self._sync_ns and self._clock.elapsed_ns() - self._synced_ns >= self._sync_ns:
                    self._synced_ns = self._clock.elapsed_ns()
                    self._engine.log.sync(self._engine.log.buffer.tail)
                if self._clock.elapsed_ns() - self._swept_ns >= self._expiry_ns:
                    self._swept_ns = self._clock.elapsed_ns()
                    self.sweep()
            if self._clock.elapsed_ns() - self._looked_ns >= CHORES_INTERVAL_NS:
                self._looked_ns = self._clock.elapsed_ns()
                self._do_chores()
        except LogError as exc:
            if self._engine.log.failure is not None:
                self._on_failure(exc)
        except OSError as exc:
            self._on_failure(exc)

    # ---- checkpoints

    def checkpoint_if_possible(
        self, *, clean: bool = False, on_taken: OnTaken = lambda checkpoint, catalogue: None
    ) -> bool:
        """Take a checkpoint; False when there is no room on the disk for it, or no descriptor."""
        if self._failed_ns and not clean and self._clock.elapsed_ns() - self._failed_ns < RETRY_INTERVAL_NS:
            return False
        try:
            self.checkpoint(clean=clean, on_taken=on_taken)
        except OSError as exc:
            if exc.errno not in RETRYABLE:
                raise
            self._failed_ns = self._clock.elapsed_ns()
            self._look_at_disk()
            self.failed_for = str(exc), advice(exc)
            why, since = self._checkpoint_report
            if exc.errno != why or self._failed_ns - since >= REPORT_INTERVAL_NS:
                self._checkpoint_report = exc.errno, self._failed_ns
                self._errors.say("AMQ9002", text=f"{exc}; {advice(exc)} soon: it is tried again")
            return False
        return True

    def checkpoint(self, *, clean: bool = False, on_taken: OnTaken = lambda checkpoint, catalogue: None) -> None:
        """Take a checkpoint now. Raises OSError, LogError.

        What units of work have held back is logged first, as it is before any record.
        """
        with self._engine.lock:
            self._engine.log_held()
            self._engine.count_promises()
        self._rewrite_reserve = rewrite_reserve(self._room()[1])
        try:
            try:
                self._take(clean, on_taken)
            except OSError as exc:
                if not self._gives_back_files(exc):
                    raise
                self._take(clean, on_taken)
        except (OSError, LogError):
            raise
        except BaseException:  # an interrupt may have stopped the log: then all who wait are to hear of that
            if self._engine.log.failure is not None:
                self._on_failure(self._engine.log.failure)
            raise
        self._failed_ns = 0
        self.failed_for = "", ""
        self._checkpoint_report = 0, 0
        self._fit_log(clean)
        self._look_at_disk()
        self._retention.keep_house()

    def _take(self, clean: bool, on_taken: OnTaken) -> None:
        """Take a checkpoint; the main thread lets another do it, as an interrupt would stop the queue manager."""
        if self._thread is not None and not clean and threading.current_thread() is threading.main_thread():
            self._checkpoint_thread = ShieldedWorker(
                lambda: self._take_and_report(on_taken), f"CHECKPOINT-{self._engine.name}"
            )
            with contextlib.suppress(RuntimeError):  # where there can be no more threads
                self._checkpoint_thread.start()
            if self._checkpoint_thread.started:
                self._checkpoint_thread.wait()
                return
        self._checkpointer.take(clean=clean, on_taken=on_taken)

    def _take_and_report(self, on_taken: OnTaken) -> None:
        """Take a checkpoint; tell of a failure here, since the call that waits for it may have been interrupted."""
        try:
            self._checkpointer.take(on_taken=on_taken)
        except BaseException as exc:
            if self._engine.log.failure is not None:
                self._on_failure(self._engine.log.failure)
            elif isinstance(exc, OSError) and exc.errno not in RETRYABLE:
                self._on_failure(exc)
            raise

    def _fit_log(self, clean: bool) -> None:
        """Remove a log extent beyond the primaries that nothing needs, or make extents ahead of need."""
        try:
            self._engine.log.release_secondary(self._needed)
            if not clean:
                self._engine.log.make_primaries(self._has_room_for_extent)
        except (OSError, LogDamaged) as exc:  # the log goes on with what it has
            self._errors.say("AMQ6708", text=str(exc))

    def _has_room_for_extent(self) -> bool:
        """Has the disk room for another one, beside messages that are in the log only?"""
        log, state = self._engine.log, self._engine.state
        with contextlib.suppress(OSError):
            if state.disk.same_file_system(state.directory, log.config.path) and not log.reusable_bytes():
                return self._spare_bytes() >= log.config.extent_bytes + rewrite_reserve(self._room()[1])
        return True

    def _gives_back_files(self, exc: OSError) -> bool:
        """If descriptors have run out, close the files that are open only to be read again; True if there were any."""
        if exc.errno not in NO_DESCRIPTORS:
            return False
        with self._engine.lock:
            files = self._engine.state.files
            there = len(files) > 0
            files.close_all()
        return there

    # ---- room in the log

    def _look_at_disk(self) -> None:
        """Let puts go no further than the disk has room for their messages, and for rewriting a segment.

        A checkpoint that can't be written gives nothing back of what was got, so one has to be possible always.
        """
        log, state = self._engine.log, self._engine.state
        room, total = self._room()
        room -= rewrite_reserve(total)
        with log.lock:
            put_limit, near = self._unwritten_from() + room, log.buffer.tail + log.space.capacity // 8
            if put_limit < near and not self._checkpointer.under_way():  # worth a look at each: many may be gone
                in_memory = state.unwritten() + sum(unit.put_bytes for unit in state.uows)
                put_limit = max(put_limit, log.buffer.tail + room - in_memory)
            if self._checkpointer.under_way():  # it has taken room from puts
                put_limit = min(put_limit, log.space.put_limit)
            state.scarce = put_limit < near
            log.space.set_put_limit(put_limit)

    def _room(self) -> tuple[int, int]:
        """(bytes free for messages, all bytes) of the file system of the queues; NO_LIMIT where that can't be told.

        What a checkpoint appends to a queue begins a page, so some pages of each queue are not counted as free.
        """
        state = self._engine.state
        with contextlib.suppress(OSError):
            free, total = state.disk.free_bytes(state.directory)
            if total:  # some that are no disks say nothing
                return free - DISK_MARGIN_BYTES - 2 * PAGE * len(state.by_id), total
        return NO_LIMIT, NO_LIMIT

    def _unwritten_from(self) -> int:
        """The LSN from which on messages may be in the log only, less the bytes of those that came before it."""
        return self._engine.log.state.checkpoint - self._checkpointer.in_flight

    def _spare_bytes(self) -> int:
        """The bytes that the disk has beside what messages need that are in the log only."""
        return self._room()[0] - (self._engine.log.buffer.tail - self._unwritten_from())

    def _take_room(self, size: int, rewrites: bool) -> bool:
        """Grant a checkpoint `size` bytes of the disk to move what may also stay where it is; False: there is no room.

        The put limit grants all free room to puts already, but for the rewrite reserve. So `rewrites` take from that
        first; the rest lowers the limit, and `_look_at_disk` does not raise it until the checkpoint is over.
        """
        log = self._engine.log
        with log.lock:
            space = log.space
            kept = min(size, self._rewrite_reserve) if rewrites else 0
            put_limit = space.put_limit - (size - kept)
            taken = put_limit < space.put_limit
            if size > self._spare_bytes() or (taken and log.buffer.tail + space.promised > put_limit):
                return False
            self._rewrite_reserve -= kept
            space.set_put_limit(put_limit)
            return True

    def _make_disk_room(self, size: int, own: int) -> str:
        """For a put that finds no room on the disk: a checkpoint may give some back, but is not tried for each put.

        Returns "" where the put fits, else why not, and what to do, as a sentence.
        """
        log, now = self._engine.log, self._clock.elapsed_ns()

        def fits() -> bool:
            self._look_at_disk()
            return self._fits(size, own + log.space.for_gets)

        if fits():
            return ""
        with self._awaiting(), self._one_at_a_time:  # one under way may give some back
            if fits():
                return ""
            if now - self._scarce_ns >= RETRY_INTERVAL_NS:
                for _ in range(2):  # the second one deletes what the first one lets go of
                    if self.checkpoint_if_possible() and fits():
                        return ""
                self._scarce_ns = now
        why = (
            f"the file system of {self._engine.state.directory} has no more room than messages need that are in the "
            f"log only; make room there, or get messages"
        )
        if now - self._refused_ns >= REPORT_INTERVAL_NS or not self._refused_ns:
            self._refused_ns = now
            self._errors.say("AMQ9017", text=why)
        return f"queue manager {self._engine.name!r} has no room for more messages: {why}, and try again"

    def _grow(self, spare: bool) -> bool:
        """Bring in a secondary; not for a put if the disk needs that room for messages that are in the log only."""
        log = self._engine.log
        if spare and log.space.can_grow() and not self._has_room_for_extent():
            why = "No space left on device, but for messages that are in the log"
            raise OSError(errno.ENOSPC, why, log.config.path)
        try:
            return log.grow()
        except OSError as exc:
            if not self._gives_back_files(exc):
                raise
            return self._engine.log.grow()

    def make_space(self, size: int, promise: int, spare: bool) -> str:
        """A call found no room in the log: take a checkpoint, else bring in a secondary, else release space.

        For a put that fits into the log it is the disk that has no room: then a checkpoint is all that may help.

        Returns "" where the call may try again, else why not, and what to do, as a sentence. `spare` the units of work
        if it is the disk that is full: the call is a put, whose `promise` includes what is kept for gets.
        """
        log = self._engine.log
        hindered = ""  # by the disk, or for want of descriptors
        if spare and promise >= log.space.for_gets:  # calls that add no messages ask for less
            own = promise - log.space.for_gets
            promise = own + log.space.usual_for_gets
            if self._fits(size, promise):
                return self._make_disk_room(size, own)
        with self._awaiting(), self._one_at_a_time:  # a checkpoint that was under way may have made room
            if self._fits(size, promise) or (self._move_head() and self._fits(size, promise)):
                return ""
        try:
            if self._grow(spare):
                while not self._fits(size, promise) and self._grow(spare):
                    pass  # a large message may need many
                self._grow_report = 0, 0
                return ""
        except (OSError, LogDamaged) as exc:  # nothing has changed
            hindered = _hindrance(str(exc), advice(exc) if isinstance(exc, OSError) else "")
            self._report_no_secondary(exc)
        with self._awaiting(), self._one_at_a_time:
            if not hindered and log.space.can_grow():  # a checkpoint that this one waited for has removed a secondary
                return ""
            with log.lock:
                space = log.space
                if space.fits(log.buffer.tail, size, promise):
                    return ""  # somebody else has made room meanwhile
                held = log.floor_of(self._checkpointer.head_if_taken_now()) == space.floor
            if not self._was_full and not hindered and not self._failed_ns:  # else it is the disk that is full
                self._errors.say("AMQ7465" if held else "AMQ7466")
            self._failed_ns = 0
            linear = log.state.log_type is LogType.LINEAR  # what is given back there makes no room without a new extent
            self.release(size + promise, spare=bool(hindered) and (spare or linear))
            if not self._fits(size, promise):
                if self.failed_for[0] and not hindered:
                    hindered = _hindrance(*self.failed_for)
                if not self._was_full:
                    self._errors.say("AMQ7463", text=hindered or "is full")
                self._was_full = self._engine.attention = True
                self._room_since_ns = None
                return self._no_room_text(hindered)
            return ""

    def _no_room_text(self, hindrance: str) -> str:
        """Why there is no room in the log for a call, and what to do. A log that can't grow need not be full."""
        name = self._engine.name
        with self._engine.lock:
            units = "commit or back out the units of work that are open" if len(self._engine.state.uows) else ""
        if hindrance:
            return f"the log of queue manager {name!r} {hindrance}" + (f", or {units}" if units else "")
        files = "give it more or larger files (LogPrimaryFiles, LogSecondaryFiles)"
        return f"the log of queue manager {name!r} is full; {units or 'try again'}, or {files}"

    def _report_no_secondary(self, exc: OSError | LogDamaged) -> None:
        now, why = self._clock.elapsed_ns(), getattr(exc, "errno", None)
        if why != self._grow_report[0] or now - self._grow_report[1] >= REPORT_INTERVAL_NS:
            self._grow_report = why, now
            self._errors.say("AMQ6708", text=str(exc))

    def _fits(self, size: int, promise: int) -> bool:
        log = self._engine.log
        with log.lock:
            return log.space.fits(log.buffer.tail, size, promise)

    @contextlib.contextmanager
    def _awaiting(self) -> Iterator[None]:
        """In the block a checkpoint does not pause for other calls: one waits for it."""
        awaited = self._engine.state.awaited
        awaited.append(None)
        try:
            yield
        finally:
            awaited.pop()

    def _check_whether_full(self) -> None:
        """Say that the log is no longer full, once puts could have found room in it for NOT_FULL_AFTER_NS."""
        log, now = self._engine.log, self._clock.elapsed_ns()
        with log.lock:
            if not log.space.fits(log.buffer.tail, log.space.usual_for_gets, 0):
                self._room_since_ns = None
            elif self._room_since_ns is None:
                self._room_since_ns = now
            over = self._was_full and self._room_since_ns is not None and now - self._room_since_ns >= NOT_FULL_AFTER_NS
            self._was_full = self._was_full and not over
        if over:
            self._errors.say("AMQ7464")

    def release(self, needed: int = 0, *, spare: bool = False) -> None:
        """The release sequence, until the log is below its threshold and `needed` bytes fit.

        `spare` the units of work once the log is below its threshold: it is the disk that is full, not the log.
        """
        log, engine = self._engine.log, self._engine
        rolled: list[Uow] = []
        self._needed = needed
        try:
            self._release(needed, rolled, spare)
        finally:
            self._needed = 0
            with log.lock:  # their old records are behind the head by now, if they could be released at all
                for unit in rolled:
                    engine.promise_again(unit)
                engine.look_at = log.space.next_check(log.buffer.tail)

    def _move_head(self) -> bool:
        """Take a checkpoint if that gives extents back; False when it would not, or when the disk has no room."""
        return self._would_move_head() and self.checkpoint_if_possible()

    def _would_move_head(self) -> bool:
        log = self._engine.log
        with log.lock:
            return log.floor_of(self._checkpointer.head_if_taken_now()) > log.space.floor

    def _release(self, needed: int, rolled: list[Uow], spare: bool) -> None:
        log, engine = self._engine.log, self._engine
        with log.lock:
            engine.log_held()  # only a unit of work with records holds the head
        while True:
            with log.lock:
                tail, space = log.buffer.tail, log.space
                if tail <= space.checkpoint_at and space.fits(tail, needed, 0):
                    return
                enough = tail <= space.soft and (spare or space.fits(tail, needed, 0))
                holder = next(iter(engine.state.uows.logged()), None)
            moves = self._would_move_head()
            if moves and self.checkpoint_if_possible():
                continue
            if enough or moves:  # a disk without room for a checkpoint: no unit of work stands in its way
                return
            if holder is None or holder in rolled:
                return
            if self._checkpointer.may_lack_room() and not self.checkpoint_if_possible():  # nor would it be afterwards
                return
            if not self._release_unit(holder):
                return
            rolled.append(holder)

    def _release_unit(self, unit: Uow) -> bool:
        """Roll the unit of work back, or forward if it is prepared; False where that was not possible."""
        log = self._engine.log
        with log.lock:
            self._engine.log_held(unit)
            self._engine.make_room_for_end(unit)
            if self._engine.refusal is not None:
                return False  # the queue manager has ended; a record behind its last checkpoint would undo that
            if self._engine.state.uows.get(unit.number) is not unit:
                return True  # the unit of work has ended by itself
            since = datetime.datetime.fromtimestamp(unit.logged / 1e6, datetime.UTC).isoformat(timespec="seconds")
            active = unit.state is ACTIVE
            if active:
                unit.evicted = True
                self._engine.back_out_locked(unit)
            elif not self._roll_forward(unit):
                return False
        self._errors.say("AMQ7486", number=f"0,{unit.number}", since=since)
        if unit.owner:  # which is not known of one that is in doubt since before the start
            self._errors.say("AMQ7487", number=f"0,{unit.number}", owner=unit.owner)
        self._errors.say("AMQ7469" if active else "AMQ7485", number=f"0,{unit.number}")
        return True

    def _roll_forward(self, unit: Uow) -> bool:
        """Log again what the prepared unit has done, at the tail; its old records can then be given back."""
        engine, log = self._engine, self._engine.log
        record = rolled_forward(unit)
        _, _, head, data = record.encode()
        size = log.cost(len(head) + len(data))
        if not log.space.fits_for_checkpoint(log.buffer.tail, size - unit.promise):
            return False
        log.make_room(size)
        if engine.state.uows.get(unit.number) is unit:  # it may have been resolved while the lock was let go
            engine.use_promise(unit)
            engine.log_locked(record)
        return True

    # ---- expired messages

    def sweep(self) -> None:
        """Remove the messages whose time is over, a hundred at a time; in between others go on."""
        engine = self._engine
        with engine.lock:
            queues = list(engine.state.queues.values())
        for queue in queues:
            now = engine.steady.now_us()
            more = queue.expiring > 0
            while more:
                with engine.lock:
                    expired = [] if self._is_away(queue) else self._expired(queue, now)
                more = bool(expired)
                for at in range(0, len(expired), SWEEP_CHUNK):
                    with engine.lock:
                        some = [] if self._is_away(queue) else expired[at : at + SWEEP_CHUNK]
                        more = bool(some) and engine.expire_locked(queue, some)
                    if not more:
                        break
                    self._clock.give_way()

    def _is_away(self, queue: Queue) -> bool:
        return queue.deleted or bool(queue.damaged) or self._engine.refusal is not None

    def _expired(self, queue: Queue, now: int) -> list[Entry]:
        try:
            return queue.sweep(now, SWEEP_CHUNK)
        except QueueDamaged as exc:
            self._engine.state.damage(queue, exc)
        except OSError:  # whoever gets from the queue is told; the next sweep tries again
            pass
        except BaseException as exc:
            if queue.half_changed:
                self._on_failure(exc)
            raise
        return []
