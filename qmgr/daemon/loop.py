"""An asyncio loop in a thread of its own, and the force of the log for it: the loop never waits for the disk.

It starts when the first listener asks for it, serves all listeners of one queue manager, and ends with the last.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from qmgr.daemon.hands import Hands
from qmgr.manager import QueueManager
from qmgr.threads import Thread

Callback = Callable[[Exception | None], None]
Result = TypeVar("Result")


class Forcer:
    """Forces the log for all that an event loop serves: one force for whatever has been asked for meanwhile.

    All fields belong to the loop's thread; the forcer's own thread only waits for the disk. Callbacks come in the order
    in which they were asked for.
    """

    def __init__(self, force: Callable[[int], None], loop: asyncio.AbstractEventLoop) -> None:
        self.safe = 0  # the LSN up to which our forces have made the log safe
        self._force = force
        self._loop = loop
        self._asked: list[Callback] = []  # they wait for the next force
        self._highest = 0  # the LSN that this one must reach
        self._served: list[Callback] = []  # they wait for the force that is under way
        self._busy = False  # with a force, or about to begin one
        self._work: SimpleQueue[int | None] = SimpleQueue()
        self._thread = Thread(self._run, "FORCER")
        self._thread.start()

    def ask(self, lsn: int, callback: Callback) -> None:
        """Call `callback(None)` in the loop once the log is safe up to the LSN, or `callback(error)`."""
        self._asked.append(callback)
        if lsn > self._highest:
            self._highest = lsn
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._begin)  # not now: what else has just been received goes with it

    def end(self) -> None:
        """For a loop that runs no more."""
        self._work.put(None)
        self._thread.join()

    def _begin(self) -> None:
        self._served, self._asked = self._asked, []
        self._work.put(self._highest)

    def _done(self, lsn: int, error: Exception | None) -> None:
        served, self._served = self._served, []
        if self._asked:
            self._begin()
        else:
            self._busy = False
        if error is None:
            self.safe = max(self.safe, lsn)
        for callback in served:
            try:
                callback(error)
            except Exception as exc:  # the other callbacks must be called all the same
                self._loop.call_exception_handler({"message": "a callback of the forcer failed", "exception": exc})

    def _run(self) -> None:
        """In the thread of the forcer."""
        while (lsn := self._work.get()) is not None:
            error: Exception | None = None
            try:
                self._force(lsn)
            except Exception as exc:
                error = exc
            self._loop.call_soon_threadsafe(self._done, lsn, error)


class LoopThread:
    """The loop, its thread and its forcer, and threads for what may wait."""

    def __init__(self, force: Callable[[int], None]) -> None:
        self.users = 0
        self.loop = asyncio.new_event_loop()
        self.forcer = Forcer(force, self.loop)
        self.hands = Hands("qmgr listener call")
        self._thread = Thread(self.loop.run_forever, "LISTENERS")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do it in the loop; wait for its result. For other threads than the loop's."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.forcer.end()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


_loops: "weakref.WeakKeyDictionary[QueueManager, LoopThread]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def borrow(manager: QueueManager) -> LoopThread:
    """The loop of this queue manager's listeners, running. Give it back."""
    with _lock:
        thread = _loops.get(manager)
        if thread is None:
            thread = _loops[manager] = LoopThread(manager.force)
        thread.users += 1
        return thread


def give_back(manager: QueueManager) -> None:
    """Give a borrowed loop back; when nobody has it any more it ends."""
    with _lock:
        thread = _loops[manager]
        thread.users -= 1
        if thread.users:
            return
        del _loops[manager]
    thread.end()
