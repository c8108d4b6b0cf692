"""Changes: waiting for one behind a lock that the caller holds, so that no interrupt can leave him without it."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any


class Changes:
    """What those wait for who hold a lock, and let go of it meanwhile: that something behind it changes.

    Who comes back has the lock again, whatever strikes meanwhile (KeyboardInterrupt); else the end of his `with` would
    let go of a lock that another thread holds. An interrupt strikes while a call waits, behind a call, or where one of
    our functions begins or a loop goes on; but not between the enter of a `with` and its block.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._again: Any = type("Again", (), {"__enter__": lock.acquire, "__exit__": lambda self, *said: None})()
        self._gates: list[threading.Lock] = []  # of those who wait, each held until it is notified

    def without(self, work: Callable[[], object]) -> None:
        """Let go of the lock while `work` is done."""
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
        """Let go of the lock until somebody who has it notifies of a change."""
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        self.without(gate.acquire)

    def notify_all(self) -> None:
        """Wake those who wait. Done twice it is as good as once, if the first time was interrupted."""
        while self._gates:
            with contextlib.suppress(RuntimeError):  # it has been woken
                self._gates[-1].release()
            self._gates.pop()
