"""Threads that take turns: of a simulated process one runs at a time, and a seed says where it lets another one go on.

Goals: the same interleaving for the same seed; all of a queue manager's own threads included; who would wait for ever
is found. Plan: while it is installed, `threading` in the packages under test is `Turns.threading`: locks, events and
threads that hand over to each other at each acquire, release and wait, at each call of the disk, and in some lives
where a function of these packages begins, as Python may. Time passes while nobody can go on.

When the disk has died all of them end: whoever waits is thrown out with SimCrash, and locks are let through.
"""

import _thread
import functools
import importlib
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

from qmgr import threads
from tests.sim.clock import SimClock
from tests.sim.disk import SimCrash, SimDisk

PACKAGES = ("logger", "recovery", "qmgr")
MAX_STEPS = 2_000_000  # steps without an end
DEAD_WAITS = 1000  # waits of one that is dead


class Stuck(AssertionError):
    """Nobody can go on."""


class Task:
    """One thread: it runs while it has the turn."""

    def __init__(self, turns: "Turns", work: Callable[[], object], name: str, *, daemon: bool) -> None:
        self.turns = turns
        self.work = work
        self.name = name
        self.daemon = daemon  # nobody waits for its end
        self.ident: int | None = None
        self.over = False
        self.error: BaseException | None = None
        self.told = 0  # how often, that all is over
        self.ready: Callable[[], bool] = lambda: True
        self.until: int | None = None  # by the clock, nanoseconds
        self.turn = _thread.allocate_lock()
        self.turn.acquire()

    def can_go_on(self, now: int) -> bool:
        return (self.until is not None and now >= self.until) or self.ready()

    def _run(self) -> None:
        self.turn.acquire()
        self.ident = _thread.get_ident()
        if self.turns.preempt:
            sys.settrace(self.turns.tracer)
        try:
            if not self.turns.disk.dead:
                self.work()
        except BaseException as exc:
            if not (self.turns.disk.dead and isinstance(exc, SimCrash)):
                self.error = exc
        finally:
            sys.settrace(None)
            self.over = True
            self.turns.leave()


class Turns:
    """Who runs next, and the time."""

    def __init__(self, seed: int, disk: SimDisk, clock: SimClock) -> None:
        self.rng = random.Random(f"turns {seed}")
        self.disk = disk
        self.clock = clock
        self.often = self.rng.choice((0.02, 0.1, 0.3))
        self.preempt = self.rng.random() < 0.3  # where functions begin, too
        self.tracer = self.trace  # kept, since whoever is being called must not go
        self.steps = self.handed = 0
        self.choosing = False  # who goes on is being found out: what is asked for that lets nobody go on
        self.stuck: Stuck | None = None
        self.main = self.now = Task(self, lambda: None, "main", daemon=False)
        self.main.ident = _thread.get_ident()
        self.tasks = [self.main]
        self.threading: Any = types.SimpleNamespace(
            Lock=lambda: Lock(self) if self.is_ours() else threading.Lock(),
            RLock=lambda: RLock(self) if self.is_ours() else threading.RLock(),
            Event=lambda: Event(self) if self.is_ours() else threading.Event(),
            Thread=self.make_thread,
            local=threading.local,
            get_ident=_thread.get_ident,
            current_thread=lambda: self.now if self.is_ours() else threading.current_thread(),
            main_thread=lambda: self.main if self.is_ours() else threading.main_thread(),
            enumerate=lambda: [task for task in self.tasks if not task.over],
        )

    def is_ours(self) -> bool:
        """Does the task that has the turn ask? Other tests have threads in this process too, which take no turns."""
        return _thread.get_ident() == self.now.ident

    def make_thread(self, target: Callable[[], object], name: str = "", daemon: bool = False) -> Any:
        if self.is_ours():
            return Thread(self, target, name)
        return threading.Thread(target=target, name=name or None, daemon=daemon)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """From now on the packages under test have these threads."""
        for name in ("qmgr.manager", "qmgr.creation"):  # what they import later would have real ones
            importlib.import_module(name)
        thread = threads.Thread
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in PACKAGES and getattr(module, "threading", None) is not None:
                patch.setattr(module, "threading", self.threading)
            if name.split(".")[0] in PACKAGES and getattr(module, "Thread", None) is thread:
                patch.setattr(module, "Thread", functools.partial(self.make_thread, daemon=True))
            if name.split(".")[0] in PACKAGES:  # what an earlier life has left would be one function less to begin
                for one in vars(module).values():
                    getattr(one, "cache_clear", lambda: None)()
        real = SimDisk._step

        def step(disk: SimDisk, kind: str, path: str, size: int = 0) -> Any:
            if disk is self.disk and not disk.dead:
                self.step()
            return real(disk, kind, path, size)

        patch.setattr(SimDisk, "_step", step)
        patch.setattr("logger.crowded.perf_counter_ns", lambda: self.clock.elapsed)

    def trace(self, frame: Any, event: str, arg: Any) -> None:
        """A function begins."""
        where = frame.f_globals.get("__name__", "")
        if not self.choosing and where.partition(".")[0] in PACKAGES and self.rng.random() < 0.2:
            self.step()

    # -- who runs

    def add(self, work: Callable[[], object], name: str, *, daemon: bool = False) -> Task:
        task = Task(self, work, name, daemon=daemon)
        self.tasks.append(task)
        _thread.start_new_thread(task._run, ())
        return task

    def step(self) -> None:
        """Another one may go on from here."""
        self.steps += 1
        self.clock.advance(1e-6)
        if not self.disk.dead and self.rng.random() < self.often:
            if self.steps > MAX_STEPS:
                raise Stuck("it goes on for ever")
            self._hand_over(self._someone())

    def wait(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Go on when that is so, or the time is over; whether it is so."""
        me = self.now
        me.ready = ready
        me.until = None if seconds is None else self.clock.elapsed + int(seconds * 1e9)
        try:
            if self.disk.dead:
                self._refuse(me)
                return True
            self._hand_over(self._someone())
        finally:
            me.ready, me.until = lambda: True, None
        return ready()

    def _refuse(self, me: Task) -> None:
        """Its process is dead. It is told once; whatever it waits for on its way out, it gets.

        Told while a generator is thrown away, Python lets nobody hear of it: who then goes on and on is told again.
        """
        me.told += 1
        if me.told % DEAD_WAITS == 1:
            raise SimCrash("this process is dead")

    def _someone(self) -> Task:
        """Who can go on; time passes where nobody can."""
        while True:
            now = self.clock.elapsed
            self.choosing = True
            able = [task for task in self.tasks if not task.over and task.can_go_on(now)]
            self.choosing = False
            if able:
                return self.rng.choice(able)
            times = [task.until for task in self.tasks if not task.over and task.until is not None]
            if not times:
                raise Stuck("nobody can go on: " + ", ".join(task.name for task in self.tasks if not task.over))
            self.clock.advance((min(times) - now) / 1e9 + 1e-6)

    def _hand_over(self, other: Task) -> None:
        me = self.now
        if other is me:
            return
        self.handed += 1
        self.now = other
        other.turn.release()
        me.turn.acquire()
        if me is self.main:
            if self.stuck is not None:
                raise self.stuck
        elif self.disk.dead:
            self._refuse(me)

    def leave(self) -> None:
        """The running task is over."""
        try:
            self.now = self.main if self.disk.dead else self._someone()
        except Stuck as exc:
            self.now, self.stuck = self.main, exc
        self.now.turn.release()

    def kill(self) -> None:
        """The process is dead: every task leaves."""
        for task in self.tasks:
            while not task.over and task is not self.main:
                self.now = task
                task.turn.release()
                self.main.turn.acquire()
        self.now = self.main


class Thread:
    """As threading.Thread."""

    def __init__(self, turns: Turns, target: Callable[[], object], name: str) -> None:
        self._turns = turns
        self._target = target
        self._name = name
        self._task: Task | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or other is self._task

    def __hash__(self) -> int:
        return id(self)

    def start(self) -> None:
        self._task = self._turns.add(self._target, self._name, daemon=True)
        self._turns.step()

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.over

    def join(self) -> None:
        task = self._task
        assert task is not None
        self._turns.wait(lambda: task.over)


class Lock:
    """As threading.Lock."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        turns = self._turns
        turns.step()
        if self._held:
            if not blocking:
                return False
            turns.wait(lambda: not self._held, None if timeout < 0 else timeout)
            if self._held and not turns.disk.dead:
                return False
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        self._turns.step()

    def locked(self) -> bool:
        self._turns.step()
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        if self._held or not self._turns.disk.dead:
            self.release()


class RLock(Lock):
    """As threading.RLock."""

    def __init__(self, turns: Turns) -> None:
        super().__init__(turns)
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._owner is not self._turns.now:
            if not super().acquire(blocking, timeout):
                return False
            self._owner = self._turns.now
        self._count += 1
        return True

    def release(self) -> None:
        self._count -= 1
        if self._count <= 0:
            self._owner, self._count = None, 0
            super().release()


class Event:
    """As threading.Event."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        self._turns.step()
        return self._set or self._turns.wait(self.is_set, timeout)


class TurnsClock(SimClock):
    """A clock whose waits let others go on."""

    turns: Turns

    def wait(self, event: Any, seconds: float | None) -> bool:
        self.turns.step()
        return event.is_set() or self.turns.wait(event.is_set, seconds)

    def give_way(self) -> None:
        self.turns.step()
