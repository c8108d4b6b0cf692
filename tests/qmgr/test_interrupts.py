"""Rows 65 and 57: KeyboardInterrupt, or MemoryError, at the n-th line of a call, for every n.

The unit of work is done or undone, no lock is left: the next call works, or the queue manager says that it has
stopped; and a restart has everything that was acknowledged.
"""

import contextlib
import dis
import errno
import functools
import importlib
import inspect
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import qmgr
from logger.condition import Condition
from logger.log import Log
from qmgr.errorlog import ErrorLogFile
from qmgr.housekeeping import CHORES_INTERVAL_NS
from qmgr.infos import Peer
from qmgr.session import AllRights
from qmgr.units import Units
from recovery import checkpoint as checkpoint_file
from recovery.uows import UowState
from tests.alone import alone
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, Call, World, bodies, soon
from tests.sim.clock import SimClock
from tests.sim.loss import LOSE_ALL

HANGS = 120.0  # seconds
OURS = ("/logger/", "/recovery/", "/qmgr/")
NONE_LOADS = ("LOAD_CONST", "LOAD_COMMON_CONSTANT")  # Python 3.15 has the second


@functools.cache
def safe_places(code: CodeType) -> frozenset[int]:
    """Offsets at which tracing stops and no signal is ever handled, since the interpreter looks for one after calls.

    They are the NOP of a `try:`, and the place behind a `with` block where __exit__(None, None, None) is to be called.
    With Python 3.12 and 3.13 also the jump back in a loop of one line: what a tracer raises there, and nothing else,
    leaves the function past all its handlers.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    found = {step.offset for step in steps if step.opname == "NOP"}
    if (3, 12) <= sys.version_info < (3, 14):
        jumps = [step for step in steps if step.opname == "JUMP_BACKWARD"]
        found |= {step.argval if sys.version_info < (3, 13) else step.offset for step in jumps}
    for at in range(1, len(steps) - 2):
        if all(step.opname in NONE_LOADS and step.argval is None for step in steps[at : at + 3]):
            first = at
            while steps[first - 1].opname == "SWAP":  # of what a `return` in the block gives
                first -= 1
            found |= {step.offset for step in steps[first : at + 1]}
    return frozenset(found)


class Tracer:
    """Raises `kind` at the `n`-th line that is executed in our own modules."""

    def __init__(self, n: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self.left = n
        self.kind = kind
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if "/tests/" in name or not any(part in name for part in OURS):
            return None
        if event == "line" and self.left > 0 and frame.f_lasti not in safe_places(frame.f_code):
            self.left -= 1
            if self.left == 0:
                self.where = f"{name.rsplit('/', 2)[-2:]}:{frame.f_lineno}"
                raise self.kind
        return self


def interrupted(tracer: Tracer, call: Callable[[], Any]) -> bool:
    """Make the call; whether it returned."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    except tracer.kind:
        return False
    finally:
        sys.settrace(before)
    return True


def put(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put("A", b"new")


def put_fleeting(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put("A", b"new", persistent=False)


def put_many(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put_many("A", [b"new", b"new too"])


def get(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.get("A")


def unit_put(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.put("A", b"new")


def unit_get(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.get("A")


def commit(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.commit()


def backout(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.backout()


def prepare(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.prepare()


def with_block(world: World, unit: qmgr.UnitOfWork) -> None:
    with world.qm.begin() as own:
        own.get("A")
        own.put("B", b"moved")


def checkpoint(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.checkpoint()


OLD = [b"old 1", b"old 2"]
Contents = tuple[list[bytes], list[bytes]]
UNCHANGED: Contents = (OLD, [])

# call -> what A and B hold after it, as others see them: at once, and after a crash
CALLS: dict[Callable[[World, qmgr.UnitOfWork], None], tuple[Contents, Contents]] = {
    put: (([*OLD, b"new"], []), ([*OLD, b"new"], [])),
    put_fleeting: (([*OLD, b"new"], []), UNCHANGED),
    put_many: (([*OLD, b"new", b"new too"], []), ([*OLD, b"new", b"new too"], [])),
    get: ((OLD[1:], []), (OLD[1:], [])),
    unit_put: (UNCHANGED, UNCHANGED),
    unit_get: ((OLD[1:], []), UNCHANGED),
    commit: ((OLD, [b"mine"]), (OLD, [b"mine"])),
    backout: (UNCHANGED, UNCHANGED),
    prepare: (UNCHANGED, UNCHANGED),
    with_block: ((OLD[1:], [b"moved"]), (OLD[1:], [b"moved"])),
    checkpoint: (UNCHANGED, UNCHANGED),
}

OFTEN = (put, put_fleeting, get, commit)  # struck at more lines than the others


def made() -> World:
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
    for body in OLD:
        world.qm.put("A", body)
    world.qm.end()
    return world


def test_a_signal_in_a_loop_of_one_line_meets_its_handlers() -> None:
    """Which a tracer can't show."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    caught = False
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        {number % 2 for number in itertools.repeat(1)}
    except KeyboardInterrupt:
        caught = True
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_row_65_an_interrupt_at_every_line_leaves_no_lock_and_no_half(
    call: Callable[[World, qmgr.UnitOfWork], None],
) -> None:
    often = call in OFTEN
    step = (1 if often else 3) if SOAK else 19 if often else 41
    struck_at_every_line(call, KeyboardInterrupt, 0 if SOAK else -([*CALLS].index(call) % 5), step)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_row_57_no_memory_at_a_line_of_a_call_leaves_no_lock_and_no_half(
    call: Callable[[World, qmgr.UnitOfWork], None],
) -> None:
    """What catches errors, and not interrupts, must not take it for something else."""
    struck_at_every_line(call, MemoryError, 0, 1 if SOAK else 16 if call in OFTEN else 34)


def struck_at_every_line(
    call: Callable[[World, qmgr.UnitOfWork], None], kind: type[BaseException], n: int, step: int
) -> None:
    base = made()
    done, durable = CALLS[call]
    while True:
        n += step
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        world.start()
        unit = world.qm.begin(qmgr.Xid(1, b"x", b""))
        unit.put("B", b"mine")
        tracer = Tracer(n, kind)
        returned = soon(lambda: interrupted(tracer, lambda: call(world, unit)))  # noqa: B023
        if not tracer.where:
            break  # every line of the call has had its turn
        what = f"{call.__name__}, {kind.__name__} at line {n}: {tracer.where}"
        live: Contents | None = None
        try:
            live = soon(lambda: (bodies(world.qm, "A"), bodies(world.qm, "B")))  # noqa: B023
            soon(lambda: world.qm.put("B", b"next"))  # noqa: B023
        except qmgr.Unavailable as exc:
            assert "start it again" in str(exc), what
            live = None
        else:
            assert live in ([done] if returned else [UNCHANGED, done]), what
            if call in (unit_put, unit_get):
                unit.backout()
            if call is not with_block:  # which may have left something uncommitted, that counts in the depth
                info = world.qm.queue("A")
                assert (info.depth, info.uncommitted) == (len(bodies(world.qm, "A")), 0), what
        world.crash(LOSE_ALL)
        found = bodies(world.qm, "A"), bodies(world.qm, "B")
        if live is not None:
            assert found[1].pop() == b"next", what
        if live is None and not returned:
            assert found in (UNCHANGED, durable), what
        else:
            assert found == (durable if live is None or live == done else UNCHANGED), what
        world.qm.put("A", b"goes on")
    assert n > 20, "the call has lines"


class InMedia(Tracer):
    """Counts the lines of media.py alone: what it calls is struck by the other tests."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return super().__call__(frame, event, arg) if frame.f_code.co_filename.endswith("/qmgr/media.py") else self


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_row_65_an_interrupt_at_every_line_of_a_recreation_leaves_one_queue_whole_and_units_on_it(
    kind: type[BaseException],
) -> None:
    """A unit of work that holds messages of the queue is linked anew; half linked it lost what it had put."""
    base = World(log_type="linear", log_secondary_files=2)
    base.qm.define_queue("A")
    base.qm.put_many("A", [b"0", b"1", b"2"])
    base.qm.record_image()
    base.qm.end()
    stopped = went_on = 0
    for n in itertools.count(1 + (kind is MemoryError), 1 if SOAK else 4):  # each kind at lines of its own
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        world.start()
        unit = world.qm.begin()
        unit.get("A")
        unit.put("A", b"new")
        tracer = InMedia(n, kind)
        interrupted(tracer, lambda: world.qm.recreate("A"))  # noqa: B023
        if not tracer.where:
            break
        committed = False
        try:
            unit.commit()
            committed = True
            assert bodies(world.qm, "A") == [b"1", b"2", b"new"], tracer.where
            world.qm.checkpoint()
            went_on += 1
        except qmgr.Unavailable as exc:
            assert "start it again" in str(exc), tracer.where
            stopped += 1
        world.crash(LOSE_ALL)
        assert bodies(world.qm, "A") == ([b"1", b"2", b"new"] if committed else [b"0", b"1", b"2"]), tracer.where
        assert world.qm.recreate("A").depth == 3
    assert stopped > 3 and went_on > 20, "the call has lines"


@pytest.mark.interpreted
def test_row_65_an_interrupted_commit_of_what_is_not_logged_is_told_of_as_it_is() -> None:
    """Nothing in the log says that such a unit was committed: memory has to agree with itself."""
    backed_out = stopped = 0
    for n in itertools.count(1):
        world = World()
        world.qm.define_queue("A")
        unit = world.qm.begin()
        unit.put("A", b"x", persistent=False)
        tracer = Tracer(n)
        returned = interrupted(tracer, unit.commit)
        if not tracer.where:
            break
        try:
            if not returned and unit.state is UowState.ACTIVE:
                unit.backout()
                backed_out += 1
            assert world.qm.outcome(unit.id) is unit.state, tracer.where
            assert world.qm.queue("A").depth == (unit.state is UowState.COMMITTED), tracer.where
        except qmgr.Unavailable as exc:
            assert "start it again" in str(exc), tracer.where
            stopped += 1
    assert backed_out > 10 and stopped > 5, "the call has lines"


class Strike(Tracer):
    """Raises KeyboardInterrupt at one line of one function: the first of which `when` is true."""

    def __init__(self, function: CodeType, when: Callable[[FrameType], bool]) -> None:
        super().__init__(1)
        self.function = function
        self.when = when

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is self.function and event == "line" and not self.where and self.when(frame):
            self.where = f"line {frame.f_lineno}"
            raise self.kind
        return self


@pytest.mark.interpreted
@pytest.mark.parametrize("call", [commit, backout, prepare], ids=lambda call: call.__name__)
def test_row_65_what_an_interrupt_between_two_lines_leaves_promised_is_counted_again_by_a_checkpoint(
    call: Callable[[World, qmgr.UnitOfWork], None],
) -> None:
    world = made()
    world.start()
    unit = world.qm.begin(qmgr.Xid(1, b"x", b""))
    unit.put("B", b"mine")
    engine, before = world.qm._engine, -1

    def between(frame: FrameType) -> bool:
        nonlocal before
        if before < 0:
            before = engine.log.space.promised
        return engine.log.space.promised != before

    promises = Units.commit_later if call is commit else Units._promise
    strike = Strike(promises.__code__, between)
    assert not interrupted(strike, lambda: call(world, unit))
    assert strike.where
    world.qm.checkpoint()
    with engine.lock:
        assert engine.log.space.promised == sum(unit.promise for unit in engine.state.uows)


@pytest.mark.interpreted
def test_row_65_an_interrupt_between_the_counts_of_a_put_in_a_unit_stops_it() -> None:
    world = made()
    world.start()
    unit, queue = world.qm.begin(), world.qm._engine.state.queues["A"]
    strike = Strike(type(world.qm._engine.state)._hold_puts.__code__, lambda frame: queue.depth > len(OLD))
    assert not interrupted(strike, lambda: unit.put("A", b"new", priority=0))
    assert strike.where
    with pytest.raises(qmgr.Unavailable, match="start it again"):
        world.qm.put("A", b"next")
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == OLD
    assert world.qm.queue("A").depth == len(OLD)


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("xid", [None, qmgr.Xid(1, b"x", b"")])
@pytest.mark.parametrize("client", [False, True])
def test_rows_65_and_57_a_unit_of_work_whose_begin_is_interrupted_is_none(
    client: bool, xid: qmgr.Xid | None, kind: type[BaseException]
) -> None:
    """It would have stayed for ever, with its name, and an end in order would have waited for it."""
    world = World()
    qm = world.qm
    one = qm.sessions.open(Peer(user="u"), AllRights())
    for n in itertools.count(1):
        begun: list[qmgr.UnitOfWork] = []
        tracer = Tracer(n, kind)
        interrupted(tracer, lambda: begun.append((one if client else qm).begin(xid)))  # noqa: B023
        if client and one.units and not begun:  # it is the client's, and ends with it
            one.close()
            one = qm.sessions.open(Peer(user="u"), AllRights())
        for unit in begun:
            unit.backout()
        assert qm.transactions() == [], f"line {n}: {tracer.where}"
        if not tracer.where:
            break  # every line has had its turn
    assert n > 10, "a begin has lines"


def wait_for(true: Callable[[], object]) -> None:
    while not true():
        threading.Event().wait(0.001)


class InRoom(Tracer):
    """Strikes at the n-th line of an appender that waits for room in the log buffer, or lets others go on."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        below: FrameType | None = frame
        while below is not None and below.f_code.co_name != "_wait_for_room":
            below = below.f_back
        if frame.f_code is Condition.unlocked.__code__:  # where a tracer strikes between two lines and no signal does
            return None
        if event == "call" or below is not None:
            return super().__call__(frame, event, arg)
        return self


@pytest.mark.interpreted
def test_row_65_an_appender_that_is_struck_while_it_waits_for_room_leaves_nobody_waiting() -> None:
    """At each line: one that was to lead next is told, and whoever comes later is not left behind one that was not."""
    for n in itertools.count(1):
        world = World()
        world.qm.define_queue("A")
        log, writes, go = world.qm._log, threading.Event(), threading.Event()

        def before(kind: str, path: str, writes: threading.Event = writes, go: threading.Event = go) -> None:
            if not writes.is_set():
                writes.set()
                assert go.wait(HANGS)

        world.disk.before_effect = before
        put, tracer = world.qm.put, InRoom(n)
        calls = [Call(partial(put, "A", b"leads"))]
        assert writes.wait(HANGS)
        calls.append(Call(partial(put, "A", bytes(40_000))))
        wait_for(lambda: log._waiting)  # noqa: B023
        calls.append(Call(partial(interrupted, tracer, partial(put, "A", bytes(50_000)))))
        wait_for(lambda: log._appenders or not calls[-1].is_alive())  # noqa: B023
        go.set()
        for call in calls:
            call.join(HANGS)
            assert not call.is_alive(), f"struck at {tracer.where}"
        with contextlib.suppress(qmgr.Unavailable):  # it has stopped, where a write was struck
            soon(partial(put, "A", b"later"))
        if not tracer.where:
            break
    assert n > 20, "it is struck in many places"


def wait(self: SimClock, event: threading.Event, seconds: float | None) -> bool:
    return event.wait(seconds)


@pytest.mark.interpreted
def test_row_65_a_get_that_is_struck_while_it_waits_keeps_no_message_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each line, before and after it is woken: it has taken the message, or another one gets it."""
    monkeypatch.setattr(SimClock, "wait", wait)
    struck: dict[bool, int] = {False: 0, True: 0}
    for n in itertools.count(1, 1 if SOAK else 3):
        world = World()
        world.qm.define_queue("A")
        line = world.qm._engine.state.queues["A"].waiters
        tracer = Tracer(n)
        waiting = partial(world.qm.get, "A", wait=None)
        first = Call(partial(interrupted, tracer, waiting))
        wait_for(lambda: line.line or not first.is_alive())  # noqa: B023
        if first.is_alive():
            first.join(0.002)  # a moment to be struck before it sleeps
        second = Call(waiting)
        wait_for(lambda: (len(line.line) == 1 + first.is_alive()) or not first.is_alive())  # noqa: B023
        early = not first.is_alive()
        world.qm.put("A", b"the message")
        first.join(HANGS)
        second.join(0.01)
        stopped = world.qm._engine.refusal is not None  # it was struck between the record and its effect
        if second.is_alive() and not stopped and not world.qm.queue("A").depth:  # the first has it
            world.qm.put("A", b"another one")
        second.join(HANGS)
        assert not second.is_alive(), f"struck at {tracer.where}"
        assert (second.raised is not None) == stopped
        if not tracer.where:
            break
        struck[early] += 1
    assert struck[False] > 30 and struck[True] > 20, struck


@pytest.mark.interpreted
def test_what_waits_for_the_log_hears_why_it_has_stopped() -> None:
    """An interrupt has no text of its own."""
    world = made()
    world.start()
    unit, queue = world.qm.begin(), world.qm._engine.state.queues["A"]
    strike = Strike(type(world.qm._engine.state)._hold_puts.__code__, lambda frame: queue.depth > len(OLD))
    assert not interrupted(strike, lambda: unit.put("A", b"new", priority=0))
    assert str(world.qm._log.failure) == "the queue manager has stopped: KeyboardInterrupt"


def test_row_65_an_interrupt_at_the_last_moment_of_a_start_leaves_no_lock() -> None:
    world = made()
    strike = Strike(qmgr.start.__code__, lambda frame: frame.f_locals.get("manager") is not None)
    assert not interrupted(strike, world.start)
    assert strike.where
    soon(world.start)
    assert bodies(world.qm, "A") == OLD


@pytest.mark.interpreted
def test_row_65_an_interrupt_while_a_start_is_given_up_leaves_no_lock() -> None:
    world = made()
    path = f"{DATA}/log/{NAME}/amqhlctl.lfh"
    whole = world.disk.peek(path)
    world.disk.poke(path, b"")
    strike = Strike(ErrorLogFile.close.__code__, lambda frame: True)
    assert not interrupted(strike, world.start)
    assert strike.where
    world.disk.poke(path, whole)
    soon(world.start)
    assert bodies(world.qm, "A") == OLD


@pytest.mark.interpreted
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not say what is open")
@alone
def test_row_57_a_start_that_memory_fails_leaves_no_file_of_the_log_open(
    real: Callable[..., qmgr.QueueManager], tmp_path: Path
) -> None:
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"kept")
    qm.end()

    def open_files() -> set[str]:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        there = {os.readlink(link) for link in links if os.path.exists(link)}
        return {path for path in there if "/log/" in path and path.startswith(str(tmp_path))}

    started: list[qmgr.QueueManager | None] = [None]

    def start() -> None:
        started[0] = qmgr.start(NAME, data_path=tmp_path, background=False)  # to keep it takes no memory

    for first in range(800, 1500, 7):  # the log is opened there, about
        short_of_memory(first, 1, start)
        if started[0] is not None:
            started[0].abandon()
            started[0] = None
        assert open_files() == set(), f"allocation {first}"
    assert bodies(real(), "A") == [b"kept"]


@pytest.mark.parametrize(("kind", "first"), [(KeyboardInterrupt, 0), (MemoryError, 7)])
def test_rows_65_and_57_an_interrupt_while_starting_lets_the_next_start_in(
    kind: type[BaseException], first: int
) -> None:
    base = made()
    n = first
    while True:
        n += 11 if SOAK else 97 if kind is KeyboardInterrupt else 191  # a start has thousands of lines
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        tracer = Tracer(n, kind)
        returned = interrupted(tracer, world.start)
        if not tracer.where:
            break
        if not returned:
            soon(world.start)
        assert bodies(world.qm, "A") == OLD, f"start of {NAME} interrupted at line {n}: {tracer.where}"
        soon(world.qm.end)
        soon(world.start)
        assert bodies(world.qm, "A") == OLD
    assert n > 300


@pytest.mark.parametrize(("kind", "first"), [(KeyboardInterrupt, 0), (MemoryError, 3)])
def test_rows_65_and_57_an_interrupt_while_ending_loses_nothing(kind: type[BaseException], first: int) -> None:
    base = made()
    n = first
    while True:
        n += 5 if SOAK else 25 if kind is KeyboardInterrupt else 49
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        world.start()
        world.qm.put("B", b"mine")
        tracer = Tracer(n, kind)
        interrupted(tracer, world.qm.end)
        if not tracer.where:
            break
        soon(world.qm.end)
        soon(world.start)
        assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == (OLD, [b"mine"]), f"line {n}: {tracer.where}"
    assert n > 100


def short_of_memory(first: int, failures: int, call: Callable[[], Any]) -> BaseException | None:
    """Make the call while so many allocations fail, behind the first ones; what it raised.

    To leave a `with` block takes a tuple of three, of which Python keeps those at hand that were used before. And a
    thread of its own has the same stack whatever has run before: on that of the main thread Python 3.11 gave up the
    whole process at times ("Cannot recover from stack overflow"). Whoever called this sits in a lock before allocations
    fail, and till they no longer do, so it meets none that fails. For tests that are `alone`.
    """
    testcapi = importlib.import_module("_testcapi")
    begin, ended = threading.Lock(), threading.Lock()
    begin.acquire()
    ended.acquire()
    raised: list[BaseException | None] = [None]
    interval = sys.getswitchinterval()

    def calls() -> None:
        begin.acquire()
        sys.setswitchinterval(interval)
        used = [(n, n, n) for n in range(1000)]
        del used
        testcapi.set_nomemory(first, first + failures)
        try:
            call()
        except BaseException as exc:
            raised[0] = exc
        finally:
            testcapi.remove_mem_hooks()
            ended.release()

    threading.Thread(target=calls, daemon=True).start()
    sys.setswitchinterval(HANGS)  # nothing comes between the next two
    begin.release()
    assert ended.acquire(timeout=HANGS), "the call hangs"
    return raised[0]


def looks_until(qm: qmgr.QueueManager, true: Callable[[], bool]) -> None:
    """Let the housekeeping thread look again and again."""
    keeper, never = qm._housekeeper, threading.Event()
    for _ in range(12_000):
        if true():
            return
        keeper._wake.set()
        never.wait(0.005)
    raise AssertionError("it does not happen")


def test_row_57_housekeeping_without_memory_is_tried_again(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    qm = real()
    keeper, failures, done = qm._housekeeper, [MemoryError(), MemoryError()], threading.Event()
    work = keeper.work

    def scarce() -> None:
        if failures:
            raise failures.pop()
        work()
        done.set()

    monkeypatch.setattr(keeper, "work", scarce)
    qm._engine.urgent = True
    looks_until(qm, done.is_set)
    assert not failures
    qm.define_queue("A")
    qm.put("A", b"x")
    assert qm.refusal is None


def test_row_57_housekeeping_goes_on_although_there_was_no_memory_to_say_that_it_failed(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    qm = real()
    keeper, failures, done = qm._housekeeper, [MemoryError(), MemoryError()], threading.Event()
    say, work = keeper._errors.say, keeper.work

    def scarce(*said: Any, **inserts: Any) -> None:
        if failures:
            raise failures.pop()
        say(*said, **inserts)

    def working() -> None:
        if failures:
            raise MemoryError
        work()
        done.set()

    monkeypatch.setattr(keeper._errors, "say", scarce)
    monkeypatch.setattr(keeper, "work", working)
    qm._engine.urgent = True
    looks_until(qm, done.is_set)


def test_without_another_thread_for_its_chores_a_queue_manager_goes_on_and_ends_in_order(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    qm = real()
    qm.define_queue("A")
    start, failed = threading.Thread.start, threading.Event()

    def no_more(thread: threading.Thread) -> None:
        if thread.name.startswith("CHORES"):
            failed.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_more)
    qm._housekeeper._looked_ns -= CHORES_INTERVAL_NS
    looks_until(qm, failed.is_set)
    qm.put("A", b"kept")
    qm.end()
    assert bodies(real(), "A") == [b"kept"]


def test_a_start_that_the_system_has_no_thread_for_leaves_nothing_open(
    real: Callable[..., qmgr.QueueManager], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"kept")
    qm.end()

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    closed: list[str] = []
    close = Log.close

    def closing(log: Log, *, clean: bool) -> None:
        close(log, clean=clean)
        closed.append(log.config.path)

    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", no_more)
        scarce.setattr(Log, "close", closing)
        with pytest.raises(qmgr.Unavailable, match=r"has no thread for it .* raise the limit of processes") as caught:
            real()
        assert caught.value.reason == qmgr.Reason.STORAGE_NOT_AVAILABLE
    assert len(closed) == 1
    assert bodies(real(), "A") == [b"kept"]


@pytest.mark.interpreted
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of generators that end without memory
@pytest.mark.parametrize("failures", [1, 12])
@pytest.mark.parametrize("call", [put, put_many, get, unit_put, commit, backout], ids=lambda call: call.__name__)
@alone
def test_row_57_where_each_allocation_fails_for_a_while_log_and_memory_are_never_apart(
    call: Callable[[World, qmgr.UnitOfWork], None], failures: int
) -> None:
    """Either it goes on, and a restart finds what was there; or it says that it has stopped."""
    base = made()
    first, returned = -1, 0
    while returned < 3:  # some of the allocations may do without
        first += 1 if SOAK else 9
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        world.start()
        unit = world.qm.begin()
        unit.put("B", b"mine")
        raised = short_of_memory(first, failures, functools.partial(call, world, unit))
        assert raised is None or isinstance(raised, (MemoryError, qmgr.MQError)), f"allocation {first}"
        returned += raised is None
        there = None
        with contextlib.suppress(qmgr.Unavailable):
            if unit.state is UowState.ACTIVE:
                unit.backout()
            world.qm.put("B", b"and on")
            there = [(bodies(world.qm, name), world.qm.queue(name).depth) for name in ("A", "B")]
        world.crash(LOSE_ALL)
        if there is not None:
            assert there == [(bodies(world.qm, name), world.qm.queue(name).depth) for name in ("A", "B")], first
        world.qm.abandon()


def at_depth(depth: int, call: Callable[[], object]) -> object:
    return at_depth(depth - 1, call) if depth else call()


@pytest.mark.interpreted  # what is compiled counts no calls
@pytest.mark.parametrize("verb", ["put", "put_many", "alter_queue", "checkpoint"])
def test_a_call_without_stack_is_done_or_undone_and_nobody_hears_that_memory_was_short(verb: str) -> None:
    world = World()
    world.qm.define_queue("A")
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "put": (1, lambda: world.qm.put("A", b"1")),
        "put_many": (2, lambda: world.qm.put_many("A", [b"1", b"2"])),
        "alter_queue": (0, lambda: world.qm.alter_queue("A", description="x")),
        "checkpoint": (0, lambda: world.qm.checkpoint()),
    }
    puts, call = calls[verb]
    refused = 0
    limit = sys.getrecursionlimit()
    for depth in range(limit - len(inspect.stack(0)) - 120, limit):
        before = len(bodies(world.qm, "A"))
        try:
            at_depth(depth, call)
        except RecursionError:
            refused += 1
        else:
            assert len(bodies(world.qm, "A")) == before + puts
        if not world.qm.healthy:
            with pytest.raises(qmgr.Unavailable, match=r"recursion depth|RecursionError|no stack"):
                world.qm.queues()
            world.crash(LOSE_ALL)
        assert len(bodies(world.qm, "A")) in (before, before + puts)
    assert refused > 0


@pytest.mark.interpreted
@pytest.mark.parametrize("failures", [12, 40, 5000])
@alone
def test_row_57_who_waits_for_a_message_hears_of_a_stop_without_memory(tmp_path: Path, failures: int) -> None:
    qmgr.create(NAME, data_path=tmp_path, log_file_pages=64)
    qm = qmgr.start(NAME, data_path=tmp_path)
    for name in ("A", "B"):
        qm.define_queue(name)
    heard = threading.Event()
    qm.on_failure = heard.set
    waiting = Call(lambda: qm.get("B", wait=None))
    looks_until(qm, lambda: len(qm._engine.state.queues["B"].waiters.line) > 0)
    testcapi, apply = importlib.import_module("_testcapi"), qm._engine.state.apply

    def scarce(*record: Any) -> None:
        apply(*record)
        testcapi.set_nomemory(0, failures)
        raise MemoryError

    qm._engine.state.apply = scarce  # type: ignore[method-assign]
    assert short_of_memory(1 << 30, 0, lambda: qm.put("A", b"not acknowledged")) is not None
    with pytest.raises(qmgr.Unavailable, match="start it again"):
        waiting.outcome()
    assert heard.wait(120)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_a_checkpoint_that_is_struck_in_a_call_is_told_to_who_waits(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"kept")
    qm.define_queue("B")
    waiting = Call(lambda: qm.get("B", wait=None))
    looks_until(qm, lambda: len(qm._engine.state.queues["B"].waiters.line) > 0)

    def struck() -> None:
        raise kind

    monkeypatch.setattr(qm._store, "snapshot", struck)
    with pytest.raises((kind, qmgr.Unavailable)):
        qm.checkpoint()
    with pytest.raises(qmgr.Unavailable, match="start it again"):
        waiting.outcome()
    qm.end("immediate")
    assert bodies(real(), "A") == [b"kept"]


@pytest.mark.interpreted
def test_a_checkpoint_goes_on_when_the_main_thread_is_struck_that_waits_for_it(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 65: a handler of a signal strikes that thread only."""
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"kept")
    before = qm.status().checkpoints
    go = struck_in_a_checkpoint(qm, monkeypatch)
    go.set()
    assert qm.put("A", b"too").body == b"too"
    looks_until(qm, lambda: qm.status().checkpoints == before + 1)
    qm.end()
    assert bodies(real(), "A") == [b"kept", b"too"]


def struck_in_a_checkpoint(
    qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch, fails: type[BaseException] | None = None
) -> threading.Event:
    """The checkpoint goes on, or fails, once the event is set that is returned."""
    there, go, usual = threading.Event(), threading.Event(), checkpoint_file.write_new

    def slow(*given: Any) -> None:
        if not go.is_set():
            there.set()
            go.wait(HANGS)
            if fails is not None:
                raise fails(errno.EIO, "it fails")
        usual(*given)

    def strike() -> None:
        there.wait(HANGS)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(checkpoint_file, "write_new", slow)
    striker = Call(strike)
    with pytest.raises(KeyboardInterrupt):
        qm.checkpoint()
    striker.outcome()
    return go


@pytest.mark.interpreted
@pytest.mark.parametrize("how", ["end", "abandon"])
def test_nobody_lets_go_of_a_queue_manager_whose_checkpoint_goes_on(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It would rename its files under the eyes of the next owner."""
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"kept")
    go = struck_in_a_checkpoint(qm, monkeypatch)
    ending = Call(getattr(qm, how))
    ending.join(0.2)
    assert ending.is_alive()
    with pytest.raises(qmgr.InUse):
        real()
    go.set()
    ending.outcome()
    assert bodies(real(), "A") == [b"kept"]


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", [OSError, MemoryError])
def test_what_such_a_checkpoint_fails_for_is_told_to_all_who_wait(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    qm = real()
    qm.define_queue("A")
    waiting = Call(lambda: qm.get("A", wait=None))
    looks_until(qm, lambda: len(qm._engine.state.queues["A"].waiters.line) > 0)
    struck_in_a_checkpoint(qm, monkeypatch, kind).set()
    with pytest.raises(qmgr.Unavailable, match="start it again"):
        waiting.outcome()


def test_row_57_a_checkpoint_that_memory_fails_in_the_background_is_told_to_who_waits(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"kept")
    qm.define_queue("B")
    waiting = Call(lambda: qm.get("B", wait=None))

    def scarce() -> None:
        raise MemoryError

    monkeypatch.setattr(qm._store, "snapshot", scarce)
    qm._checkpointer.records = 1 << 40
    looks_until(qm, lambda: qm.refusal is not None)
    with pytest.raises(qmgr.Unavailable, match="start it again"):
        waiting.outcome()
    with pytest.raises(qmgr.Unavailable):
        qm.put("A", b"not acknowledged")
    qm.end("immediate")
    assert bodies(real(), "A") == [b"kept"]


@pytest.mark.interpreted
@pytest.mark.parametrize("call", [Units.commit_later, Units.back_out_later], ids=["commit", "backout"])
def test_row_65_an_interrupt_as_a_consumer_ends_its_unit_of_work_leaves_no_unit_behind(call: Any) -> None:
    world = made()
    world.start()
    consumer = world.qm.consume("A", wait=0.0)
    next(consumer)
    strike = Strike(call.__code__, lambda frame: True)
    assert not interrupted(strike, consumer.__next__ if call is Units.commit_later else consumer.close)
    assert strike.where
    consumer.close()
    assert world.qm.transactions() == []
    assert sorted(bodies(world.qm, "A")) == sorted(OLD)


def test_row_65_an_interrupt_in_what_the_library_itself_locks_leaves_nobody_waiting(tmp_path: Path) -> None:
    """What `threading` locks in Python code it leaves locked, where the interrupt comes just behind that."""
    qmgr.create(NAME, data_path=tmp_path)
    qm = qmgr.start(NAME, data_path=tmp_path)
    qm.define_queue("A")

    def strike(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == threading.__file__ and frame.f_code.co_name == "__enter__":
            if event == "return":
                raise KeyboardInterrupt
            return strike
        return None

    def put() -> None:
        sys.settrace(strike)
        try:
            qm.put("A", b"new")
        finally:
            sys.settrace(None)

    waiting = Call(lambda: qm.get("A", wait=None))
    looks_until(qm, lambda: len(qm._engine.state.queues["A"].waiters.line) > 0)
    putting = Call(put)
    with contextlib.suppress(KeyboardInterrupt):
        putting.outcome(30)
    with contextlib.suppress(qmgr.Unavailable):
        assert waiting.outcome(30).body == b"new"
    qm.end("immediate")
