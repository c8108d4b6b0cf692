"""Checkpoints of a running queue manager: what goes before and after each, and where the disk has no room for one."""

import contextlib
import threading
from collections.abc import Callable

from logger.disk_errors import NO_DESCRIPTORS, RETRYABLE, advice
from logger.errors import LogDamaged, LogError
from qmgr.disk_space import DiskSpace
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog
from qmgr.retention import Retention
from qmgr.threads import ShieldedWorker
from recovery.checkpoint import OnTaken, tell_nobody

RETRY_INTERVAL_NS = 1_000_000_000  # after a checkpoint failed for want of disk space
REPORT_INTERVAL_NS = 60_000_000_000  # between reports that a disk has no room: it may be tried for hours


class Checkpoints:
    """Takes the checkpoints of one queue manager."""

    def __init__(
        self,
        engine: Engine,
        retention: Retention,
        disk_space: DiskSpace,
        errors: ErrorLog,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._checkpointer = engine.checkpointer
        self._retention = retention
        self._disk_space = disk_space
        self._errors = errors
        self._clock = engine.clock
        self._on_failure = on_failure
        self.background = False  # does the housekeeping have a thread of its own?
        self.thread: ShieldedWorker | None = None  # for the main thread, which may be interrupted meanwhile
        self.failed_ns = 0  # when a checkpoint failed last: it is tried again RETRY_INTERVAL_NS later; 0: at once
        self.failed_for = "", ""  # what the last checkpoint has failed for, and what to do
        self._report: tuple[int | None, int] = 0, 0  # errno of one that failed, and when that was said
        self.needed = 0  # bytes of log that room is being made for: no extent is given back that they go to

    def take_if_possible(self, *, clean: bool = False) -> bool:
        """Take a checkpoint; False when there is no room on the disk for it, or no descriptor."""
        if self.failed_ns and not clean and self._clock.elapsed_ns() - self.failed_ns < RETRY_INTERVAL_NS:
            return False
        try:
            self.take(clean=clean)
        except OSError as exc:
            if exc.errno not in RETRYABLE:
                raise
            self.failed_ns = self._clock.elapsed_ns()
            self._disk_space.limit_puts()
            self.failed_for = str(exc), advice(exc)
            why, since = self._report
            if exc.errno != why or self.failed_ns - since >= REPORT_INTERVAL_NS:
                self._report = exc.errno, self.failed_ns
                self._errors.say("AMQ9002", text=f"{exc}; {advice(exc)} soon: it is tried again")
            return False
        return True

    def take(self, *, clean: bool = False, on_taken: OnTaken = tell_nobody) -> None:
        """Take a checkpoint now. Raises OSError, LogError.

        What units of work have held back is logged first, as it is before any record.
        """
        with self._engine.lock:
            self._engine.log_held()
            self._engine.count_promises()
        self._disk_space.begin_checkpoint()
        try:
            try:
                self._take(clean, on_taken)
            except OSError as exc:
                if not self.gives_back_files(exc):
                    raise
                self._take(clean, on_taken)
        except (OSError, LogError):
            raise
        except BaseException:  # an interrupt may have stopped the log: then all who wait are to hear of that
            if self._engine.log.failure is not None:
                self._on_failure(self._engine.log.failure)
            raise
        self.failed_ns = 0
        self.failed_for = "", ""
        self._report = 0, 0
        self._fit_log(clean)
        self._disk_space.limit_puts()
        self._retention.keep_house()

    def _take(self, clean: bool, on_taken: OnTaken) -> None:
        """Take a checkpoint; the main thread lets another do it, as an interrupt would stop the queue manager."""
        if self.background and not clean and threading.current_thread() is threading.main_thread():
            self.thread = ShieldedWorker(lambda: self._take_and_report(on_taken), f"CHECKPOINT-{self._engine.name}")
            with contextlib.suppress(RuntimeError, MemoryError):  # where there can be no more threads
                self.thread.start()
            if self.thread.started:
                self.thread.wait()
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
            self._engine.log.release_secondary(self.needed)
            if not clean:
                self._engine.log.make_primaries(self._disk_space.has_room_for_extent)
        except (OSError, LogDamaged) as exc:  # the log goes on with what it has
            self._errors.say("AMQ6708", text=str(exc))

    def gives_back_files(self, exc: OSError) -> bool:
        """If descriptors have run out, close the files that are open only to be read again; True if there were any."""
        if exc.errno not in NO_DESCRIPTORS:
            return False
        with self._engine.lock:
            files = self._engine.state.files
            there = len(files) > 0
            files.close_all()
        return there
