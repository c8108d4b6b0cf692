"""A thread for work that need not be done at once: the log has one that writes full pages while others append.

It is started when it is first needed, and knows nothing of files.
"""

import contextlib
import threading
from collections.abc import Callable


class Behind:
    """One thread that calls `work` soon after an `ask`; those that come while it works get one more call together."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._wake = threading.Lock()  # held until there is something to do; no step of a semaphore may be interrupted
        self._wake.acquire()
        self._thread: threading.Thread | None = None
        self._ended = False

    def ask(self) -> None:
        """Have `work` called soon; returns at once. The caller sees to it that no two threads are in here together."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="LOGGER-BEHIND", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # too many threads, or the interpreter is ending: whoever forces writes it all
            self._thread = thread
        self._call()

    def end(self) -> None:
        """Let the thread end, and wait until it has."""
        self._ended = True
        self._call()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wake.acquire() and not self._ended:
            try:
                self._work()
            except Exception:  # if the log has failed whoever forces next is told; else that one writes it all
                return
        self._call()  # wakes a second thread: there is one if the start of the first was interrupted

    def _call(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was called already
            self._wake.release()
