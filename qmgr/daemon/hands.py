"""Hands: a pool of threads without a limit, for calls that may take long; an idle thread ends after a moment."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from qmgr.threads import Thread

STACK_BYTES = 512 << 10  # of a thread; only what it uses is taken
IDLE_TIMEOUT_S = 2.0  # of a thread that waits for more to do

Work = Callable[[], None]

_starting = threading.Lock()


def start_thread(work: Work, name: str) -> Thread:
    """A thread with a small stack, of which there may be thousands. Raises RuntimeError."""
    thread = Thread(work, name)
    with _starting:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    return thread


class Hands:
    """The pool of one listener, or of the loop that several share. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[Work] = SimpleQueue()
        self._free = 0  # idle threads, without those for which there is work in the queue
        self._lock = threading.Lock()

    def do(self, work: Work) -> None:
        """Have a thread do the work, which must not raise. Raises RuntimeError, MemoryError for want of threads."""
        with self._lock:
            if self._free:
                self._work.put(work)
                self._free -= 1
                return
        start_thread(lambda: self._run(work), self._name)

    def _run(self, work: Work) -> None:
        while True:
            work()
            with self._lock:
                self._free += 1
            try:
                work = self._work.get(timeout=IDLE_TIMEOUT_S)
            except (Empty, MemoryError):  # who has no memory to wait is no idle thread that `do` may count on
                with self._lock:
                    if self._free:
                        self._free -= 1
                        return
                work = self._work.get()  # at the last moment `do` has counted on this thread: its work is there
