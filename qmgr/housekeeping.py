"""Housekeeping: what is due is done: checkpoints, the release of log space, LogSync=interval, expiry, chores.

With a thread of its own it works while calls go on; without one (in a simulation) calls do its work when they are
done with theirs, so that a whole life is one sequence of steps.
"""

from collections.abc import Callable, Mapping

from logger.condition import Event
from logger.errors import LogError
from qmgr.checkpoints import Checkpoints
from qmgr.disk_space import DiskSpace
from qmgr.engine import Engine
from qmgr.errorlog import ErrorLog
from qmgr.expiry import Sweeper
from qmgr.log_space import LogSpace
from qmgr.threads import Worker

CHORES_INTERVAL_NS = 10_000_000_000  # between looks whether a media image or an archive is due
TICK_S = 1.0  # between looks at the clock


class Housekeeper:
    """Keeps one queue manager in order."""

    def __init__(
        self,
        engine: Engine,
        disk_space: DiskSpace,
        checkpoints: Checkpoints,
        log_space: LogSpace,
        errors: ErrorLog,
        *,
        expiry_seconds: int,
        sync_ms: int,
        chores: Mapping[str, Callable[[], None]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`chores`: what may take long, each by the name of its thread."""
        self._engine = engine
        self._checkpointer = engine.checkpointer
        self._disk_space = disk_space
        self.checkpoints = checkpoints
        self.log_space = log_space
        self._sweeper = Sweeper(engine, on_failure)
        self._errors = errors
        self._clock = clock = engine.clock
        self._sync_ns = sync_ms * 1_000_000  # LogSync=interval; 0: each force syncs, or the system decides
        self._expiry_ns = expiry_seconds * 1_000_000_000
        # When the log was last synced, expired messages were removed, and chores were done:
        self._synced_ns = self._swept_ns = self._looked_ns = clock.elapsed_ns()
        self._chores = chores
        self._chore_threads: dict[str, Worker] = {}
        self._on_failure = on_failure
        self._wake = Event()
        self._ending = False
        self._thread: Worker | None = None
        self._on_tick: Callable[[], None] = lambda: None

    def start_thread(self) -> None:
        """From now on work while calls go on."""
        self._thread = Worker(self._run, f"CHECKPOINT-{self._engine.name}")
        self.checkpoints.background = True
        self._thread.start()

    def on_tick(self, call: Callable[[], None]) -> None:
        """Have the thread make this call now, and whenever it has looked at the clock; it must not fail."""
        self._on_tick = call
        self._wake.set()

    def notice(self, *, may_wait: bool = True) -> None:
        """A call has ended: is there something to do? An event loop may not wait for it."""
        if self.log_space.was_full:
            self.log_space.check_whether_full()
        self._engine.attention = self._engine.watchful or self.log_space.was_full
        if self._engine.urgent or self._checkpointer.limit_reached():
            if self._thread is None or (may_wait and self._checkpointer.overdue()):
                self.work()  # whoever puts faster than checkpoints can write waits for one
            elif not self._wake.is_set():
                self._wake.set()
        elif self._thread is None and self._timed():
            self.work()

    def stop(self, meanwhile: Callable[[], None]) -> None:
        """No more work after this. `meanwhile` is called about once a second until there is none."""
        self._ending = True
        self._wake.set()
        if self._thread is not None:  # first: until it ends it may start others
            self._thread.await_end(meanwhile)
        for thread in (*self._chore_threads.values(), self.checkpoints.thread):
            if thread is not None:
                thread.await_end(meanwhile)

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
        if self.log_space.was_full:
            self.log_space.check_whether_full()
        self._disk_space.limit_puts()
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
        """Media images and the archive, in threads of their own since they may take long, and one of them may hang."""
        for name, call in self._chores.items():
            if self._thread is None:
                call()
            elif name not in self._chore_threads or not self._chore_threads[name].is_alive():
                thread = Worker(call, f"{name}-{self._engine.name}")
                thread.start()  # where there are too many already it raises: nobody is to wait for this one
                self._chore_threads[name] = thread

    def work(self) -> None:
        """Do what is due. What goes wrong with a checkpoint is said, and is no reason for a call to fail."""
        try:
            with self.log_space.one_at_a_time:
                if self._engine.urgent:
                    self._engine.urgent = False
                    self.log_space.release()
                if self._checkpointer.due():
                    self.checkpoints.take_if_possible()
                if self._sync_ns and self._clock.elapsed_ns() - self._synced_ns >= self._sync_ns:
                    self._synced_ns = self._clock.elapsed_ns()
                    self._engine.log.sync(self._engine.log.buffer.tail)
                if self._clock.elapsed_ns() - self._swept_ns >= self._expiry_ns:
                    self._swept_ns = self._clock.elapsed_ns()
                    self._sweeper.sweep()
            if self._clock.elapsed_ns() - self._looked_ns >= CHORES_INTERVAL_NS:
                self._looked_ns = self._clock.elapsed_ns()
                self._do_chores()
        except LogError as exc:
            if self._engine.log.failure is not None:
                self._on_failure(exc)
        except OSError as exc:
            self._on_failure(exc)
