"""The log's own threads, each started when first asked: one forces for event loops, one writes while others append.

They know no files: what is forced or written they are told.
"""

import threading
from collections.abc import Callable

Callback = Callable[[Exception | None], None]


def _started(run: Callable[[], None], name: str) -> threading.Thread | None:
    """A thread that runs; None where there can be none now: too many, or the interpreter is ending."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class Forcer:
    """One thread, started when first asked for, that forces for all who can't block."""

    def __init__(self, force: Callable[[int], None]) -> None:
        self._force = force
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._asked: list[tuple[int, Callback]] = []
        self._thread: threading.Thread | None = None
        self._ended = False

    def ask(self, target: int, callback: Callback) -> None:
        """Call `callback(None)` once everything before `target` is safe, or `callback(error)`; from another thread.

        Where no thread can be started it is this one that forces and calls.
        """
        with self._lock:
            if self._thread is None:
                self._thread = _started(self._run, "LOGGER-IO")
            threaded = self._thread is not None
            if threaded:
                self._asked.append((target, callback))
        if threaded:
            self._wake.set()
        else:
            self._answer([(target, callback)])

    def end(self) -> None:
        """Answer what is still asked, then stop."""
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                asked, self._asked = self._asked, []
            if asked:
                self._answer(asked)
            elif self._ended:
                return

    def _answer(self, asked: list[tuple[int, Callback]]) -> None:
        """One force serves everyone who has asked by now."""
        error: Exception | None = None
        try:
            self._force(max(target for target, _ in asked))
        except Exception as exc:
            error = exc
        for _, callback in asked:
            callback(error)
        if self._ended:
            self._wake.set()


class Behind:
    """One thread that does `work` some time after it was asked to; asked again meanwhile, it does so once more."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._wake = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._ended = False

    def ask(self) -> None:
        """Returns at once. One caller at a time."""
        if self._thread is None:
            self._thread = _started(self._run, "LOGGER-BEHIND")
            if self._thread is None:
                return  # whoever forces writes it all
        self._wake.release()

    def end(self) -> None:
        """Wait until nothing is being done any more."""
        self._ended = True
        self._wake.release()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wake.acquire() and not self._ended:
            try:
                self._work()
            except Exception:  # the log has failed, and says so to the next who forces or appends
                return
