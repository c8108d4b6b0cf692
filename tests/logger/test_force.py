"""Group commit: whoever is interrupted, the others get a new leader or an error, never silence."""

import ctypes
import functools
import threading
from collections.abc import Callable

import pytest

from logger import force
from logger.errors import LogClosed, LogFailed
from logger.force import CONTENDED_FORCES, GroupCommit, Turn
from tests.alone import alone
from tests.qmgr.test_interrupts import Tracer, interrupted, short_of_memory


class Line(GroupCommit):
    """A log of numbers: `append` is one more of them, and a write takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = 0
        self.prepared = 0
        self.writes: list[int] = []
        self.writing = threading.Event()
        self.go = threading.Event()
        self.error: OSError | None = None

    def append(self) -> int:
        with self.lock:
            self.tail += 1
            return self.tail

    def _prepare(self) -> None:
        if not self._begun:
            self.prepared = self.tail

    def _begin_write(self) -> None:
        self._prepare()
        self._begun = True

    def _finish_pending(self) -> None:
        if self._begun:
            self.safe = self._write()

    def _write(self) -> int:
        self.writing.set()
        assert self.go.wait(120)
        if self.error is not None:
            raise self.error
        self.writes.append(self.prepared)
        self._begun = False
        return self.prepared

    def _fail(self, exc: BaseException) -> LogFailed:
        failure = LogFailed(str(exc))
        self._stop_locked(failure)
        return failure


class Caller(threading.Thread):
    """Forces one number; how that ended."""

    def __init__(self, line: Line, tracer: Tracer | None = None) -> None:
        super().__init__(daemon=True)
        self.line = line
        self.target = line.append()
        self.tracer = tracer
        self.raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            if self.tracer is None:
                self.line.force(self.target)
            elif not interrupted(self.tracer, lambda: self.line.force(self.target)):
                self.raised = KeyboardInterrupt()
        except BaseException as exc:
            self.raised = exc

    def ended(self) -> None:
        self.join(120)
        assert not self.is_alive(), "a follower waits in silence"


def until(true: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if true():
            return
        threading.Event().wait(0.0005)
    raise AssertionError("it never came to that")


def queued(line: Line, count: int) -> None:
    until(lambda: len(line._waiting) >= count)


def led(tracer: Tracer | None = None) -> tuple[Line, Caller]:
    """A line whose leader is writing."""
    line = Line()
    leader = Caller(line, tracer)
    until(lambda: line.writing.is_set() or not leader.is_alive())
    return line, leader


def test_one_write_serves_all_who_came_while_the_one_before_ran() -> None:
    line, leader = led()
    followers = [Caller(line) for _ in range(6)]
    queued(line, 6)
    line.go.set()
    for caller in (leader, *followers):
        caller.ended()
        assert caller.raised is None
    assert line.writes == [1, 7]
    assert line._contended == CONTENDED_FORCES
    for left in (CONTENDED_FORCES - 1, CONTENDED_FORCES - 2):
        line.force(line.append())
        assert line._contended == left


class Deferred:
    """The gate of one that waits: opened when the test says so."""

    def __init__(self, gate: threading.Lock) -> None:
        self.gate = gate
        self.told = threading.Event()
        self.release = self.told.set
        self.open = gate.release


@pytest.mark.parametrize("followers", [2, 3, 5, 9])
def test_the_next_write_begins_when_three_quarters_of_those_of_the_last_have_woken_each_other(followers: int) -> None:
    """The first of them has led for the others. Where it was for one other alone, nobody waits."""
    several = followers > 2
    hands_on = 1 + (followers - 1) * 3 // 4
    for held in range(1, followers):
        line, leader = led()
        callers = [leader]
        for count in range(1, followers + 1):
            callers.append(Caller(line))
            queued(line, count)
        line._waiting[held].gate = gate = Deferred(line._waiting[held].gate)  # type: ignore[assignment]
        line.go.set()
        until(gate.told.is_set)
        line.go.clear()
        callers += [Caller(line) for _ in range(2)]
        if several and held <= hands_on:
            queued(line, 2)
            assert line.writes == [1, 1 + followers]
        else:  # it may have been one of the two
            until(lambda line=line: line._writing)  # type: ignore[misc]
        line.go.set()
        gate.open()
        for caller in callers:
            caller.ended()
            assert caller.raised is None
        assert line.writes[:2] == [1, 1 + followers]
        assert line.writes[-1] == 3 + followers
        assert line._leader is None


class Witness:
    """A gate that says what there was when it was opened."""

    def __init__(self, line: Line, turn: Turn) -> None:
        self.line, self.turn = line, turn
        self.seen: list[tuple[object, bool]] = []

    def release(self) -> None:
        self.seen.append((self.line._leader, self.turn in self.line._waiting))


def witnesses(line: Line, count: int) -> list[Witness]:
    line._waiting = [Turn(number) for number in range(count)]
    line.safe = count
    gates = [Witness(line, turn) for turn in line._waiting]
    for turn, gate in zip(line._waiting, gates, strict=True):
        turn.gate = gate  # type: ignore[assignment]
    return gates


def test_who_hands_on_the_lead_has_it_before_anybody_is_woken() -> None:
    line = Line()
    first, *others = witnesses(line, 8)
    line._wake_safe_in_chain()
    assert first.seen == [(others[5].turn, True)]
    assert [gate.seen for gate in others] == [[]] * 7


def test_who_is_woken_by_itself_waits_until_it_is() -> None:
    """An interrupt between the two would leave it in silence."""
    line = Line()
    for gate in (gates := witnesses(line, 3)):
        assert gate.seen == []
    line._wake_all_safe()
    assert [gate.seen for gate in gates] == [[(None, True)]] * 3
    assert line._waiting == []


def test_the_lead_is_handed_on_under_the_lock() -> None:
    line, leader = led()
    followers = [Caller(line) for _ in range(4)]
    queued(line, 4)
    locked: list[bool] = []
    line._elect_leader = lambda: locked.append(line.lock.locked()) or GroupCommit._elect_leader(line)  # type: ignore[method-assign, func-returns-value]
    line.go.set()
    for caller in (leader, *followers):
        caller.ended()
    assert locked
    assert all(locked)


@pytest.mark.interpreted
def test_who_comes_while_the_log_is_stopped_hears_it_though_the_one_that_hands_on_the_lead_is_told_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`stop` comes without the lock, when the newcomer has looked whether the log has failed, and does not wait yet."""
    line, leader = led()
    followers = [Caller(line) for _ in range(5)]
    queued(line, 5)
    line._waiting[4].gate = gate = Deferred(line._waiting[4].gate)  # type: ignore[assignment]
    line.go.set()
    until(gate.told.is_set)

    class Late(Turn):
        def __init__(self, lsn: int) -> None:
            line.stop(LogFailed("stopped"))
            gate.open()
            followers[4].join(1 / 4)
            super().__init__(lsn)

    monkeypatch.setattr(force, "Turn", Late)
    newcomer = Caller(line)
    for caller in (leader, *followers, newcomer):
        caller.ended()
    assert [caller.raised for caller in (leader, *followers)] == [None] * 6
    assert isinstance(newcomer.raised, LogFailed)


@pytest.mark.interpreted
def test_who_has_heard_that_the_log_is_stopped_and_left_is_not_to_wake_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`stop` comes without the lock: it tells one, and not the other, who holds the lock and does not wait yet."""
    line, leader = led()
    told = Caller(line)
    queued(line, 1)
    line._waiting[0].gate = gate = Deferred(line._waiting[0].gate)  # type: ignore[assignment]

    class Late(Turn):
        def __init__(self, lsn: int) -> None:
            line.stop(LogFailed("stopped"))
            super().__init__(lsn)

    monkeypatch.setattr(force, "Turn", Late)
    late = Caller(line)
    queued(line, 2)
    step_down = line._step_down

    def when_one_has_left() -> None:
        gate.open()
        told.ended()
        step_down()

    line._step_down = when_one_has_left  # type: ignore[method-assign]
    line.prepared = 3
    line.go.set()
    for caller in (leader, told, late):
        caller.ended()
        assert caller.raised is None, "all of it is safe"


def test_one_that_hands_on_the_lead_leaves_it_where_nobody_wants_it_and_to_one_who_needs_no_write() -> None:
    """Somebody may come whose LSN is safe by the time it has the lock."""
    line, leader = led()
    followers = [Caller(line) for _ in range(4)]
    queued(line, 4)
    line._waiting[2].gate = gate = Deferred(line._waiting[2].gate)  # type: ignore[assignment]
    line.go.set()
    until(gate.told.is_set)
    late = Turn(line.tail)
    with line.lock:
        line._waiting.append(late)
    gate.open()
    for caller in (leader, *followers):
        caller.ended()
    assert late.gate.acquire(timeout=120)
    assert line.writes == [1, 5]
    assert line._leader is None
    assert line._waiting == []


def test_the_chain_goes_on_when_one_that_was_woken_is_interrupted() -> None:
    """The interrupt waits for the thread, and strikes when it has been woken and before it wakes the next."""
    line, leader = led()
    followers = [Caller(line) for _ in range(5)]
    queued(line, 5)
    for victim in (followers[1], followers[3]):
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(victim.ident or 0), ctypes.py_object(KeyboardInterrupt)
        )
    line.go.set()
    for caller in (leader, *followers):
        caller.ended()
    assert [type(caller.raised) for caller in followers if caller.raised is not None] == [KeyboardInterrupt] * 2


def test_a_failed_write_is_told_to_everyone() -> None:
    line, leader = led()
    followers = [Caller(line) for _ in range(4)]
    queued(line, 4)
    line.error = OSError(5, "EIO")
    line.go.set()
    for caller in (leader, *followers):
        caller.ended()
        assert isinstance(caller.raised, LogFailed)
        assert caller.raised.__cause__ is line.error, "what the disk said is lost"
    with pytest.raises(LogFailed):
        line.force(line.append())


def test_stop_reaches_those_who_wait_and_those_who_came_while_it_was_said() -> None:
    line, leader = led()
    early = Caller(line)
    queued(line, 1)
    line.stop(LogFailed("stopped"))
    early.ended()
    assert isinstance(early.raised, LogFailed)
    line._failure = None
    late = Caller(line)  # has looked before it was said
    queued(line, 1)
    line._failure = LogFailed("stopped")
    line.go.set()
    leader.ended()
    late.ended()
    assert isinstance(late.raised, LogFailed)


def test_work_that_wants_to_be_alone_takes_its_turn() -> None:
    line, leader = led()
    seen: list[int] = []
    alone = threading.Thread(target=line._exclusively, args=(lambda: seen.append(line.tail),), daemon=True)
    alone.start()
    queued(line, 1)
    after = Caller(line)
    queued(line, 2)
    line.go.set()
    for thread in (leader, alone, after):
        thread.join(120)
        assert not thread.is_alive()
    assert seen == [2]


def as_leader(line_of: Callable[[Tracer | None], tuple[Line, Caller]], tracer: Tracer) -> tuple[Line, list[Caller]]:
    line, leader = line_of(tracer)
    return line, [leader, *(Caller(line) for _ in range(3))]


def as_follower(line_of: Callable[[Tracer | None], tuple[Line, Caller]], tracer: Tracer) -> tuple[Line, list[Caller]]:
    line, leader = line_of(None)
    first = Caller(line, tracer)
    until(lambda: len(line._waiting) == 1 or not first.is_alive())
    return line, [leader, first, *(Caller(line) for _ in range(3))]


def as_one_that_hands_on(
    line_of: Callable[[Tracer | None], tuple[Line, Caller]], tracer: Tracer
) -> tuple[Line, list[Caller]]:
    line, leader = line_of(None)
    callers = [leader, *(Caller(line) for _ in range(3))]
    queued(line, 3)
    last = Caller(line, tracer)
    until(lambda: len(line._waiting) == 4 or not last.is_alive())
    line.go.set()
    return line, [*callers, last, *(Caller(line) for _ in range(2))]


@pytest.mark.interpreted
@pytest.mark.parametrize("role", [as_leader, as_follower, as_one_that_hands_on])
def test_an_interrupt_at_any_line_leaves_nobody_in_silence(
    role: Callable[[Callable[[Tracer | None], tuple[Line, Caller]], Tracer], tuple[Line, list[Caller]]],
) -> None:
    """The follower that is interrupted first waits, then leads for the others."""
    n = 0
    while True:
        n += 1
        tracer = Tracer(n)
        line, callers = role(led, tracer)
        line.go.set()
        for caller in callers:
            caller.ended()
        if not tracer.where:
            break
        assert [caller.raised for caller in callers if caller.tracer is None] == [None] * (len(callers) - 1)
        assert line._leader is None, tracer.where
        assert line._waiting == []
        line.force(line.append())
        assert line.safe == line.tail
    assert n > 15, "it has lines"


@pytest.mark.parametrize("step", ["_wake_safe_in_chain", "_elect_leader"])
@pytest.mark.parametrize(
    "kind, times", [*((MemoryError, times) for times in (1, 2, 3, 50)), (KeyboardInterrupt, 1), (KeyboardInterrupt, 2)]
)
def test_rows_57_and_67_a_leader_that_is_struck_as_it_gives_up_leaves_nobody_in_silence(
    step: str, kind: type[BaseException], times: int
) -> None:
    line, leader = led()
    followers = [Caller(line) for _ in range(3)]
    queued(line, 3)
    left, done = [kind()] * times, getattr(line, step)

    def struck() -> object:
        if left and threading.current_thread() is leader:
            raise left.pop()
        return done()

    setattr(line, step, struck)
    line.go.set()
    for caller in (leader, *followers):
        caller.ended()
    assert [caller.raised for caller in followers] == [None] * 3
    assert isinstance(leader.raised, kind)
    assert line._leader is None
    line.force(line.append())


def test_row_57_without_any_memory_the_others_hear_that_it_is_over() -> None:
    line, leader = led()
    followers = [Caller(line) for _ in range(3)]
    queued(line, 3)

    def no_memory() -> bool:
        raise MemoryError

    line._wake_safe_in_chain = no_memory  # type: ignore[method-assign]
    line.go.set()
    for caller in (leader, *followers):
        caller.ended()
        assert isinstance(caller.raised, LogFailed)


class Quick(Line):
    """Its writes take no time, and nothing that needs memory."""

    def _write(self) -> int:
        return self.prepared


@pytest.mark.interpreted
@pytest.mark.parametrize("failures", [1, 20])
@alone
def test_row_57_where_each_allocation_fails_for_a_while_nobody_is_left_in_silence(failures: int) -> None:
    """Giving the lead up must not need memory before it comes to what is tried again."""
    for first in range(60):
        line = Quick()
        target = line.append()
        raised = short_of_memory(first, failures, functools.partial(line.force, target))
        assert raised is None or isinstance(raised, (MemoryError, LogFailed))
        assert line._leader is None or line._failure is not None, f"allocation {first}"
        follower = Caller(line)
        follower.ended()
        assert follower.raised is line._failure


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt])
def test_an_appender_that_waits_for_room_is_told_although_its_leader_is_struck_in_saying_so(
    kind: type[BaseException],
) -> None:
    line, leader = led()

    def append() -> None:
        with line.lock:
            line._appenders.add(append)
            while line._writing:
                line.changed.wait()
            line._appenders.remove(append)

    appender = threading.Thread(target=append, daemon=True)
    appender.start()
    until(lambda: bool(line._appenders))
    told, strikes = line.changed.notify_all, [kind()]

    def struck() -> None:
        if strikes:
            raise strikes.pop()
        told()

    line.changed.notify_all = struck  # type: ignore[method-assign]
    line.go.set()
    leader.ended()
    appender.join(120)
    assert not appender.is_alive(), "it waits in silence"
    assert isinstance(leader.raised, kind)


def test_one_that_is_to_lead_hears_that_the_log_has_failed_meanwhile() -> None:
    line = Line()
    leader = Caller(line)
    until(line.writing.is_set)
    heir = Caller(line)
    queued(line, 1)
    lock = line.lock

    class Late:
        """The heir comes to the lock after somebody else has found that the log fails."""

        locked = lock.locked

        def __enter__(self) -> None:
            lock.acquire()
            if threading.current_thread() is heir and line._failure is None:
                line._fail(OSError("an appender's write failed"))

        def __exit__(self, *exc: object) -> None:
            lock.release()

    line.lock = Late()  # type: ignore[assignment]
    line.go.set()
    leader.ended()
    heir.ended()
    assert leader.raised is None
    assert isinstance(heir.raised, LogFailed)


def test_what_is_safe_is_told_so_by_a_log_that_was_closed_meanwhile() -> None:
    """A commit that was durable before the end of the queue manager is no failed one."""
    line = Line()
    line.go.set()
    target = line.append()
    line.force(target)
    with line.lock:
        line._stop_locked(LogClosed("ended"))
    line.force(target)
    with pytest.raises(LogClosed):
        line.force(line.append())
