"""The log's own thread, started when first asked: it writes while others append. It knows no files."""

import contextlib
import threading
from collections.abc import Callable


class Behind:
    """One thread that does `work` some time after it was asked to; asked again meanwhile, it does so once more."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._wake = threading.Lock()  # held until there is something to do; no step of a semaphore may be interrupted
        self._wake.acquire()
        self._thread: threading.Thread | None = None
        self._ended = False

    def ask(self) -> None:
        """Returns at once. One caller at a time."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="LOGGER-BEHIND", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # too many threads, or the interpreter is ending: whoever forces writes it all
            self._thread = thread
        self._call()

    def end(self) -> None:
        """Wait until nothing is being done any more."""
        self._ended = True
        self._call()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wake.acquire() and not self._ended:
            try:
                self._work()
            except Exception:  # the log has failed, and says so to the next who forces or appends
                return
        self._call()  # another one, where the start of the first was interrupted

    def _call(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was called already
            self._wake.release()
