"""Waiting for a change to what a lock guards: as a condition variable, but safe from interrupts.

With `threading.Condition` a KeyboardInterrupt in `wait` can leave the caller without the lock, and the end of its
`with` block then releases a lock that another thread holds.
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
