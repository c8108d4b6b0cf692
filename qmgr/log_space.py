"""Room in the log, for a call that finds none: a checkpoint, a secondary, or the release sequence.

The release sequence runs when the log has passed 80 % of its capacity, or when a call finds no room: a checkpoint, if
that moves the head; else the unit of work that holds the head is rolled back, or rolled forward if it is prepared;
then again, until there is room.
"""

import contextlib
import datetime
import errno
import threading
from collections.abc import Iterator

from logger.config import LogType
from logger.disk_errors import advice
from logger.errors import LogDamaged
from qmgr.checkpoints import REPORT_INTERVAL_NS, RETRY_INTERVAL_NS, Checkpoints
from qmgr.disk_space import DiskSpace
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog
from qmgr.units import rolled_forward
from recovery.uows import ACTIVE, Uow

NOT_FULL_AFTER_NS = 1_000_000_000  # with room, before a full log is said to be full no more: it comes and goes


def _hindrance(why: str, way: str) -> str:
    """Why the log gets no more room, and what to do: how a sentence goes on."""
    return f"can get no more room ({why})" + (f": {way} and try again" if way else "")


class LogSpace:
    """Makes room in the log of one queue manager."""

    def __init__(self, engine: Engine, disk_space: DiskSpace, checkpoints: Checkpoints, errors: ErrorLog) -> None:
        self._engine = engine
        self._checkpointer = engine.checkpointer
        self._disk_space = disk_space
        self._checkpoints = checkpoints
        self._errors = errors
        self._clock = engine.clock
        self.one_at_a_time = threading.RLock()  # who makes room, or does what is due
        self.was_full = False  # it was said that the log is full, and not yet that it is so no longer
        self._room_since_ns: int | None = None  # since when it has room again
        self._grow_report: tuple[int | None, int] = 0, 0  # errno of an extent not made for a call, when that was said
        self._scarce_ns = 0  # when checkpoints gave back no room on the disk
        self._refused_ns = 0  # when it was said last that puts are refused for that

    def make_space(self, size: int, promise: int, spare: bool) -> str:
        """A call found no room in the log: take a checkpoint, else bring in a secondary, else release space.

        For a put that fits into the log it is the disk that has no room: then a checkpoint is all that may help.

        Returns "" where the call may try again, else why not, and what to do, as a sentence. `spare` the units of work
        if it is the disk that is full: the call is a put, whose `promise` includes what is kept for gets.
        """
        log = self._engine.log
        if spare and promise >= log.space.for_gets:  # calls that add no messages ask for less
            own = promise - log.space.for_gets
            promise = own + log.space.usual_for_gets
            if self._fits(size, promise):
                return self._make_disk_room(size, own)
        with self._awaiting(), self.one_at_a_time:  # a checkpoint that was under way may have made room
            if self._fits(size, promise) or (self._move_head() and self._fits(size, promise)):
                return ""
        grown, hindered = self._grow_for(size, promise, spare)
        if grown:
            return ""
        with self._awaiting(), self.one_at_a_time:
            return self._release_for(size, promise, spare, hindered)

    def _grow_for(self, size: int, promise: int, spare: bool) -> tuple[bool, str]:
        """Bring in as many secondaries as it takes: (was there one, what has hindered that: see `_hindrance`)."""
        try:
            if not self._grow(spare):
                return False, ""
            while not self._fits(size, promise) and self._grow(spare):
                pass  # a large message may need many
        except (OSError, LogDamaged) as exc:  # nothing has changed
            self._report_no_secondary(exc)
            return False, _hindrance(str(exc), advice(exc) if isinstance(exc, OSError) else "")
        self._grow_report = 0, 0
        return True, ""

    def _release_for(self, size: int, promise: int, spare: bool, hindered: str) -> str:
        """The release sequence, as no secondary can be had. `hindered`: by what, if the log is not as large as may be.

        Returns what `make_space` does.
        """
        log = self._engine.log
        if not hindered and log.space.can_grow():  # a checkpoint that this one waited for has removed a secondary
            return ""
        with log.lock:
            space = log.space
            if space.fits(log.buffer.tail, size, promise):
                return ""  # somebody else has made room meanwhile
            held = log.floor_of(self._checkpointer.head_if_taken_now()) == space.floor
        if not self.was_full and not hindered and not self._checkpoints.failed_ns:  # else the disk is full
            self._errors.say("AMQ7465" if held else "AMQ7466")
        self._checkpoints.failed_ns = 0
        linear = log.state.log_type is LogType.LINEAR  # what is given back there makes no room without a new extent
        self.release(size + promise, spare=bool(hindered) and (spare or linear))
        if self._fits(size, promise):
            return ""
        if self._checkpoints.failed_for[0] and not hindered:
            hindered = _hindrance(*self._checkpoints.failed_for)
        if not self.was_full:
            self._errors.say("AMQ7463", text=hindered or "is full")
        self.was_full = self._engine.attention = True
        self._room_since_ns = None
        return self._no_room_text(hindered)

    def _make_disk_room(self, size: int, own: int) -> str:
        """For a put that finds no room on the disk: a checkpoint may give some back, but is not tried for each put.

        Returns "" where the put fits, else why not, and what to do, as a sentence.
        """
        log, now = self._engine.log, self._clock.elapsed_ns()

        def fits() -> bool:
            self._disk_space.limit_puts()
            return self._fits(size, own + log.space.for_gets)

        if fits():
            return ""
        with self._awaiting(), self.one_at_a_time:  # one under way may give some back
            if fits():
                return ""
            if now - self._scarce_ns >= RETRY_INTERVAL_NS:
                for _ in range(2):  # the second one deletes what the first one lets go of
                    if self._checkpoints.take_if_possible() and fits():
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
        if spare and log.space.can_grow() and not self._disk_space.has_room_for_extent():
            why = "No space left on device, but for messages that are in the log"
            raise OSError(errno.ENOSPC, why, log.config.path)
        try:
            return log.grow()
        except OSError as exc:
            if not self._checkpoints.gives_back_files(exc):
                raise
            return log.grow()

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

    def check_whether_full(self) -> None:
        """Say that the log is no longer full, once puts could have found room in it for NOT_FULL_AFTER_NS."""
        log, now = self._engine.log, self._clock.elapsed_ns()
        with log.lock:
            if not log.space.fits(log.buffer.tail, log.space.usual_for_gets, 0):
                self._room_since_ns = None
            elif self._room_since_ns is None:
                self._room_since_ns = now
            over = self.was_full and self._room_since_ns is not None and now - self._room_since_ns >= NOT_FULL_AFTER_NS
            self.was_full = self.was_full and not over
        if over:
            self._errors.say("AMQ7464")

    def release(self, needed: int = 0, *, spare: bool = False) -> None:
        """The release sequence, until the log is below its threshold and `needed` bytes fit.

        `spare` the units of work once the log is below its threshold: it is the disk that is full, not the log.
        """
        log, engine = self._engine.log, self._engine
        rolled: list[Uow] = []
        self._checkpoints.needed = needed
        try:
            self._release(needed, rolled, spare)
        finally:
            self._checkpoints.needed = 0
            with log.lock:  # their old records are behind the head by now, if they could be released at all
                for unit in rolled:
                    engine.promise_again(unit)
                engine.look_at = log.space.next_check(log.buffer.tail)

    def _move_head(self) -> bool:
        """Take a checkpoint if that gives extents back; False when it would not, or when the disk has no room."""
        return self._would_move_head() and self._checkpoints.take_if_possible()

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
            if moves and self._checkpoints.take_if_possible():
                continue
            if enough or moves:  # a disk without room for a checkpoint: no unit of work stands in its way
                return
            if holder is None or holder in rolled:
                return
            if self._checkpointer.may_lack_room() and not self._checkpoints.take_if_possible():  # nor would it be then
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
