"""Waiting for a change to what a lock guards, or for an event: as in `threading`, but safe from interrupts.

With `threading.Condition` a KeyboardInterrupt in `wait` can leave the caller without the lock, and the end of its
`with` block then releases a lock that another thread holds. A `threading.Event` has such a condition inside, which is
written in Python: an interrupt that strikes where its lock was just taken leaves that held for ever, and whoever sets
the event next waits for it as long.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any


class Condition:
    """Lets a caller that holds the lock release it until another thread says that something has changed.

    `wait` and `unlocked` return, or raise, with the lock held again, whatever strikes meanwhile (KeyboardInterrupt).
    CPython raises an interrupt while a call waits, after a call, at the start of a function and where a loop goes on,
    but never between the enter of a `with` and its block: so the lock is taken again by a `with`.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._again: Any = type("Again", (), {"__enter__": lock.acquire, "__exit__": lambda self, *said: None})()
        self._gates: list[threading.Lock] = []  # one for each waiting caller, locked until it is notified

    def unlocked(self, work: Callable[[], object]) -> None:
        """Release the lock, call `work`, and take the lock again; what `work` raises is raised then."""
        struck: BaseException | None = None
        held = True
        try:
            held = False
            self._lock.release()
            work()
        except BaseException as exc:
            struck = exc
        while not held:
            try:
                with self._again:
                    held = True
            except BaseException as exc:
                struck = exc
        if struck is not None:
            raise struck

    def wait(self) -> None:
        """Release the lock until another thread, holding it, calls `notify_all`."""
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        self.unlocked(gate.acquire)

    def notify_all(self) -> None:
        """Wake everyone who waits. If it is interrupted it can simply be called again."""
        while self._gates:
            with contextlib.suppress(RuntimeError):  # it has been woken
                self._gates[-1].release()
            self._gates.pop()


class Event:
    """As `threading.Event`. Where `set` is interrupted it can simply be called again."""

    __slots__ = ("_gates", "_set")

    def __init__(self) -> None:
        self._set = False
        self._gates: list[threading.Lock] = []  # one for each waiting caller, locked until the event is set

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Needs no memory: who waits for the end of a call that had none would wait for ever."""
        self._set = True  # first: whoever comes to wait from now on sees it
        gates, at = self._gates, len(self._gates)
        while at:  # from the end, as those who leave meanwhile move only what lies behind them
            at -= 1
            try:
                gate = gates[at]
                if gate.locked():
                    gate.release()
            except (IndexError, RuntimeError):  # it has left, or has been woken
                continue

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None, /) -> bool:
        """Wait until it is set, for `timeout` seconds at most; whether it is set."""
        if self._set or (timeout is not None and timeout <= 0):
            return self._set
        gate = threading.Lock()
        gate.acquire()
        try:
            self._gates.append(gate)
            if not self._set:
                gate.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            with contextlib.suppress(ValueError):  # an interrupt came first
                self._gates.remove(gate)
        return self._set
