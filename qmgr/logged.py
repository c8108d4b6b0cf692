"""The way of every call: its record is appended, its change made, and the log forced. Knows no kind of record.

Room is reserved in the log; under the log's lock the record is appended and applied; without the lock the log is forced
as far as the reply promises.
"""

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator

import attrs

from logger.clock import Clock
from logger.errors import LogError
from logger.log import Log
from qmgr.due import SteadyClock
from qmgr.errors import MQError, ResourceProblem, Unavailable
from qmgr.resource import Resource
from recovery.checkpoint import Checkpointer
from recovery.records import Record

MAX_TRIES = 32  # so often a call has room made in the log that others take before it can


@attrs.frozen(kw_only=True)
class EngineContext:
    """What an engine works with: log, clock, state, who makes room, and who hears of what goes wrong."""

    name: str
    process: str  # that runs the queue manager
    log: Log
    clock: Clock
    steady: SteadyClock  # that messages expire by
    state: Resource
    checkpointer: Checkpointer
    max_uncommitted: int
    make_space: Callable[[int, int, bool], str]  # (size, promise, spare units of work?), without the lock: make room in
    # the log; else why there is none, and what to do
    on_failure: Callable[[BaseException], None]
    say: Callable[..., None]  # (AMQ number, inserts): to the error log


class WouldWait(Exception):
    """Nothing was done: the call would have to wait, and whoever made it may not."""


_thread = threading.local()


def never_wait_for_room() -> None:
    """In this thread, from now on, a call that finds no room in the log raises WouldWait instead of making some."""
    _thread.may_not_wait = True


Outcome = int | Callable[[], int]  # an LSN to force; or the work that has to wait for room in the log, and returns it


def without_waiting(work: Callable[[], int]) -> Outcome:
    """For event loops: the LSN that `work` returns; or `work` itself where it has found no room in the log.

    Then it has done nothing, and is for a thread that may wait.
    """
    _thread.may_not_wait = True
    try:
        return work()
    except WouldWait:
        return work
    finally:
        _thread.may_not_wait = False


class Logged:
    """A state and the log that protects it.

    CPython keeps an object with fewer than thirty attributes, those of the classes below included, in a quicker form:
    with more every call takes a tenth longer.
    """

    def __init__(self, given: EngineContext) -> None:
        self.name = given.name
        self.log = log = given.log
        self.lock = log.lock
        self.clock = given.clock
        self.state = given.state
        self.refusal: MQError | None = None  # why no call is taken any more
        self.checkpointer = given.checkpointer
        self._records_max = given.checkpointer.records_max
        self.look_at = log.space.checkpoint_at  # beyond this LSN somebody has to look after the room in the log
        self.urgent = False  # the log has passed `look_at`
        self.attention = False  # there is housekeeping to do
        self.watchful = False  # there is no housekeeping thread, so `attention` stays set: every call looks
        self._make_space = given.make_space
        self._on_failure = given.on_failure

    def _append_and_apply(self, record: Record, now: int, *, soon: bool = False) -> int:
        """Log the record and make its change; the LSN to force. The lock is held and the room is reserved.

        `soon`: the caller goes on to force it, and the disk may begin while the change is made.

        What interrupts this leaves log and memory apart, so the queue manager then stops; a restart puts it right.
        """
        kind, uow, head, data = record.encode()
        log = self.log
        buffer = log.buffer
        try:
            at = buffer.append(kind, uow, now, log.durable, head, data)
            end = buffer.tail
            if soon:
                log.begin_force()
            self.state.apply(record, at, end, now)
        except BaseException as exc:
            self._on_failure(exc)
            raise
        checkpointer = self.checkpointer
        checkpointer.records += 1
        if end > self.look_at:
            self.urgent = self.attention = True
        elif checkpointer.records >= self._records_max:
            self.attention = True
        return end

    def log_locked(self, record: Record) -> int:
        """Append and apply a record that no application asked for. The lock is held, and the caller has made room."""
        return self._append_and_apply(record, self.clock.wall_us())

    def log_own(self, make: Callable[[], Record]) -> int:
        """Take the lock, make room, then append and apply the record that `make` gives; the LSN to force.

        For records that no application asked for. `make` may be called more than once. Raises ResourceProblem.
        """
        self.check()
        with self.translating(), self.lock:
            record = self._with_room(make, self.log.space.usual_for_gets)
            return self._append_and_apply(record, self.clock.wall_us())

    def _with_room(self, make: Callable[[], Record], kept: int = 0) -> Record:
        """The record that `make` gives, after room was made in the log for it and for `kept` bytes more.

        The lock is held; it may be released to make room, and then `make` is called again, since the state may have
        changed. Raises ResourceProblem.
        """
        self.check()
        size, record = 0, make()
        while (needed := sum(map(len, record.encode()[2:]))) > size:
            size = needed
            self._reserve(self.log.cost(size), 0, kept)
            self.check()
            record = make()
        return record

    def _apply_only(self, record: Record, now: int) -> None:
        """Make the change of a record that is not logged: non-persistent messages only."""
        try:
            self.state.apply(record, 0, 0, now)
        except BaseException as exc:
            self._on_failure(exc)
            raise

    def fail(self, exc: BaseException) -> None:
        """What interrupted a change has left memory unlike the log: the queue manager stops, and a restart mends it."""
        self._on_failure(exc)

    def _reserve(self, size: int, promise: int, kept: int = 0) -> None:
        """Room for `size` bytes of records now and `promise` later, `kept` left over. The lock is held.

        May let go of the lock: look at the state afterwards. Raises ResourceProblem.
        """
        if not self.log.reserve(size, promise + kept):
            self._find_room(size, promise + kept, spare=kept > 0)

    def _find_room(self, size: int, kept: int, *, spare: bool) -> None:
        """Have room made, and reserve it; see `_reserve`, and for `spare` `LogSpace.make_space`.

        The lock is held, and let go of meanwhile. Raises WouldWait, ResourceProblem.
        """
        if getattr(_thread, "may_not_wait", False):
            raise WouldWait
        space, why = self.log.space, ""
        for_gets = space.for_gets

        def make() -> None:
            nonlocal why
            why = ""
            try:
                why = self._make_space(size, kept, spare)
            except OSError as exc:  # of a checkpoint; for want of space it would not have been raised
                self._on_failure(exc)

        for _ in range(MAX_TRIES):
            self.log.changed.unlocked(make)
            self.check()
            if spare and kept >= for_gets:  # a put: what is kept for gets may have changed
                kept, for_gets = kept + space.for_gets - for_gets, space.for_gets
            if self.log.reserve(size, kept):
                return
            if why:
                break
        taken = (
            f"the log of queue manager {self.name!r} has no room left for this call: others took what was made for it, "
            f"{MAX_TRIES} times; try again, or give it more or larger files (LogPrimaryFiles, LogSecondaryFiles)"
        )
        raise ResourceProblem(why or taken, name=self.name)

    def check(self) -> None:
        """Raise the refusal, if there is one: a copy, since an exception keeps the frames of each time it is raised."""
        if self.refusal is not None:
            raise copy.copy(self.refusal) from self.refusal.__cause__

    def translated(self, exc: LogError) -> MQError:
        """What the log says, as callers know it; a log that failed ends the queue manager."""
        if self.log.failure is not None and self.refusal is None:
            self._on_failure(self.log.failure)
        return copy.copy(self.refusal) or Unavailable(str(exc), name=self.name)

    @contextlib.contextmanager
    def translating(self) -> Iterator[None]:
        """In the block what the log raises is raised as callers know it."""
        try:
            yield
        except LogError as exc:
            raise self.translated(exc) from exc

    def force(self, end: int) -> None:
        """Wait until the log is safe up to `end`."""
        try:
            self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc
