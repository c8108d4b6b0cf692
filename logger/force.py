"""Group commit: one leader writes and syncs for everyone waiting. Does not know what is written, nor where to.

A caller that forces while there is no leader becomes the leader: it writes and syncs all that the buffer holds, and
wakes the waiters (followers) whose LSN is safe then. The first of the others leads next. There is no timer: what is
appended during one sync is written with the next. Followers that are safe wake each other in a chain. If there are
several, the lead is handed on only once three quarters are awake: they soon have more to write, and one write for all
is less work than two.

An interrupt (KeyboardInterrupt) may strike at any line. Followers then get a new leader or an error, never silence. So
each step here can be done twice, and a turn that is still in `_waiting` may not have been woken.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

from logger.condition import Condition
from logger.crowded import let_holder_go_on
from logger.errors import LogFailed

T = TypeVar("T")

TRIES = 250  # to step down in order where memory is short; CPython keeps the ints up to 256, so counting takes none
NO_MEMORY = "there was no memory to go on with the log; the queue manager stops: give it more and start it again"
CONTENDED_FORCES = 32  # after the last one that somebody else waited for
BEYOND_ALL = 1 << 64  # an LSN that no force reaches: a turn with it waits to lead, and for nothing else


class Turn:
    """One call that waits until its LSN is safe, or until it is its turn to lead."""

    __slots__ = ("gate", "lsn", "next_turn")

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.gate = threading.Lock()  # held until the LSN is safe, the log failed, or this call leads
        self.gate.acquire()
        self.next_turn: Turn | None = None  # the one to wake next

    def wake(self) -> None:
        """Calling it twice is harmless."""
        try:
            self.gate.release()
        except RuntimeError:  # it has been woken
            return


class GroupCommit(ABC):
    """Leader and followers: which thread writes, and which wait for it. Subclasses say what is written."""

    # A log has more attributes than CPython keeps together: without slots they are in a dict, all over the memory, and
    # between two syncs that sleep a unit of work takes a twelfth longer. So it is with a queue and the state of all.
    __slots__ = (
        *("_begun", "_contended", "_failure", "_appenders", "_leader", "_no_memory", "_waiting", "_writing"),
        *("changed", "lock", "safe"),
    )

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.safe = 0  # everything before this LSN is as safe as LogSync asks for
        self.changed = Condition(self.lock)  # the leader stepped down, or took a run
        self._leader: object | None = None
        self._waiting: list[Turn] = []  # in the order in which they came
        self._contended = 0  # forces until a leader counts as alone: so many after one that others waited for
        self._appenders: set[object] = set()  # that wait for room in the log buffer; nobody leads meanwhile
        self._writing = False  # the leader writes, without the lock
        self._begun = False  # what is written next is known, and the disk may be about it
        self._failure: Exception | None = None
        self._no_memory = LogFailed(NO_MEMORY)  # made while there is some

    @abstractmethod
    def _prepare(self) -> None:
        """Decide what the leader writes: all that the buffer holds. The lock is held."""

    @abstractmethod
    def _write(self) -> int:
        """Write what was prepared; return the LSN that is safe by that."""

    @abstractmethod
    def _begin_write(self) -> None:
        """Prepare the next write and start it, for `_write` to complete; or do nothing. The lock is held."""

    @abstractmethod
    def _finish_pending(self) -> None:
        """Write what was begun or left undone. Nobody else writes."""

    @abstractmethod
    def _fail(self, exc: BaseException) -> LogFailed:
        """Close the log for good; return the error for all callers. The lock is held."""

    def begin_force(self) -> None:
        """Start writing what the buffer holds, unless another thread leads or has waited lately; `force` completes it.

        For callers that `force` next: their work until then overlaps with the write. The lock is held. Raises
        LogFailed.
        """
        alone = self._leader is None and not self._contended and not self._appenders and not self._begun
        if alone and self._failure is None:
            self._begin_write()

    def force(self, target: int) -> None:
        """Wait until everything before LSN `target` is as safe as LogSync says. Raises LogFailed, LogClosed.

        At most two syncs: the one under way and the next.
        """
        if self.safe >= target:
            return
        me: object = object()
        turn: Turn | None = None
        try:
            if self.lock.locked():
                let_holder_go_on(self.lock)
            with self.lock:
                if self._failure is not None:
                    if self.safe >= target:
                        return  # a clean close has forced it
                    raise self._failure
                if self._leader is None and not self._appenders:
                    self._leader = me
                    self._writing = True
                    self._prepare()
                else:
                    me = turn = Turn(target)
                    self._waiting.append(turn)
            if turn is not None and not self._wait_to_lead(turn):
                return
            while True:
                safe = self._write()
                if self.lock.locked():
                    let_holder_go_on(self.lock)
                with self.lock:
                    self.safe = safe
                    if safe >= target:
                        self._step_down()
                        return
                    self._prepare()  # that was what an interrupted leader had left undone
        except BaseException as exc:
            error = self._give_up(me, exc)
            raise error from error.__cause__

    def _exclusively(self, work: Callable[[], T]) -> T:
        """What `work` gives, done while nobody else writes anything."""
        turn = Turn(BEYOND_ALL)
        try:
            with self.lock:
                if self._failure is not None:
                    raise self._failure
                self._waiting.append(turn)
                if self._leader is None:
                    self._elect_leader()
            leads = self._wait_to_lead(turn)
            assert leads, "it waits for nothing else"
            self._finish_pending()
            done = work()
            with self.lock:
                self._step_down()
            return done
        except BaseException as exc:
            error = self._give_up(turn, exc)
            raise error from error.__cause__

    def _wait_to_lead(self, turn: Turn) -> bool:
        """Wait; True when it is this caller's turn to lead, and what it is to write is prepared."""
        turn.gate.acquire()
        if turn.next_turn is not None:
            turn.next_turn.wake()
        if self._leader is not turn:
            if self._failure is not None and self.safe < turn.lsn:
                raise self._failure
            return False
        if self.lock.locked():
            let_holder_go_on(self.lock)
        with self.lock:
            if self.safe >= turn.lsn:  # it is to hand on the lead: what it waited for is done
                self._wake_all_safe()
                self._leader = None
                self._elect_leader()
                return False
            if self._failure is not None:
                raise self._failure
            self._waiting.remove(turn)
            self._writing = True
            if turn.lsn != BEYOND_ALL:
                self._prepare()
        return True

    # ---- handing over; the lock is held

    def _step_down(self) -> None:
        """Wake the followers whose LSN is safe; elect a leader, or leave that to one of them. The lock is held."""
        self._writing = False
        if self._waiting:
            self._contended = CONTENDED_FORCES
            if self._failure is not None:  # a turn that saw the failure may be gone and wake nobody
                self._wake_all_safe()
            if not self._wake_safe_in_chain():
                self._leader = None
                self._elect_leader()
        else:
            self._leader = None
            if self._contended:
                self._contended -= 1
        if self._appenders:
            self.changed.notify_all()

    def _wake_safe_in_chain(self) -> bool:
        """Wake the first follower whose LSN is safe; each wakes the next, so that they do not all contend for the GIL.

        True when one of them is to hand on the lead.
        """
        safe = self.safe
        done = [turn for turn in self._waiting if turn.lsn <= safe]
        for before, after in pairwise(done):
            before.next_turn = after
        several = len(done) > 1
        if several:
            self._leader = done[len(done) * 3 // 4]
        if done:
            done[0].wake()
            self._waiting = [turn for turn in self._waiting if turn.lsn > safe]
        return several

    def _wake_all_safe(self) -> None:
        """Wake all followers whose LSN is safe, without a chain; the leader stays the same."""
        safe = self.safe
        for turn in self._waiting:
            if turn.lsn <= safe:
                turn.wake()
        self._waiting = [turn for turn in self._waiting if turn.lsn > safe]

    def _elect_leader(self) -> None:
        """Make the first waiter the leader, unless there is none or an appender waits for room. Now there is none."""
        if self._failure is not None:
            self.stop(self._failure)  # also for turns that came after it
        elif self._waiting and not self._appenders:
            heir = self._waiting[0]  # where it stays until it runs
            self._leader = heir
            heir.wake()

    def _appender_done(self, appender: object) -> None:
        """An appender has its room, or goes without: somebody may lead. Calling it twice is harmless."""
        self._appenders.discard(appender)
        if self._leader is None or (self._waiting and self._leader is self._waiting[0]):
            self._elect_leader()  # perhaps one that was chosen and not woken

    # ---- failing

    def stop(self, failure: Exception) -> None:
        """Nothing is taken or acknowledged any more. The lock may be held by the caller, or by nobody it waits for."""
        if self._failure is None:
            self._failure = failure
        for turn in list(self._waiting):
            turn.wake()

    def _stop_locked(self, failure: Exception) -> None:
        """The same for a caller that holds the lock."""
        self.stop(failure)
        self._waiting = []
        self.changed.notify_all()

    def _give_up(self, me: object, exc: BaseException) -> BaseException:
        """This caller was interrupted, or its write failed: return what to raise.

        The others are notified twice, because an interrupt can strike once inside the first.
        """
        try:
            self._leave_with_retries(me, exc)
        finally:
            error = self._leave_with_retries(me, exc)
        return error

    def _leave_with_retries(self, me: object, exc: BaseException) -> BaseException:
        """The same where there is no memory for it at first: nobody else can do this, and others wait for it.

        So nothing here needs memory itself: a loop over a range or a list would, and a new exception.
        """
        left = TRIES
        while left:
            left -= 1
            try:
                return self._leave(me, exc)
            except MemoryError:
                continue
        self._failure = self._failure or self._no_memory
        while self._waiting:
            turn = self._waiting.pop()
            try:
                turn.gate.release()
            except (RuntimeError, MemoryError):  # it has been woken
                continue
        raise self._failure

    def _leave(self, me: object, exc: BaseException) -> BaseException:
        with self.lock:
            if isinstance(exc, OSError):
                failure = self._fail(exc)
                failure.__cause__ = exc
                exc = failure
            if isinstance(me, Turn):
                if me in self._waiting:
                    self._waiting.remove(me)
                if me.next_turn is not None:
                    me.next_turn.wake()
            self._wake_all_safe()  # one of them may lead, and none may have been woken
            if self._leader is me:
                self._step_down()
            elif self._leader is None or (self._waiting and self._leader is self._waiting[0]):
                self._elect_leader()  # one that was chosen and not woken
            if self._appenders:  # they too may not have been woken
                self.changed.notify_all()
        return exc
