"""An asyncio loop in a thread of its own, and the force of the log for it: the loop never waits for the disk.

It starts when the first listener asks for it, serves all listeners of one queue manager, and ends with the last.
"""

import asyncio
import concurrent.futures
import selectors
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from qmgr.daemon.hands import Hands
from qmgr.manager import QueueManager
from qmgr.threads import LOOK_S, RETRY_S, Thread, go_on

Callback = Callable[[Exception | None], None]
Work = Callable[[], Coroutine[Any, Any, None]]
Result = TypeVar("Result")


class Forcer:
    """Forces the log for all that an event loop serves: one force for whatever has been asked for meanwhile.

    Most fields belong to the loop's thread; the forcer's own thread only waits for the disk. Callbacks come in the
    order in which they were asked for. From one force to the next nothing needs memory but to wake the loop, and that
    is tried until there is some: who waits for a force would wait for ever.
    """

    def __init__(self, force: Callable[[int], None], loop: asyncio.AbstractEventLoop) -> None:
        self.safe = 0  # the LSN up to which our forces have made the log safe
        self._force = force
        self._loop = loop
        self._asked: list[Callback] = []  # they wait for the next force
        self._highest = 0  # the LSN that this one must reach
        self._served: list[Callback] = []  # they wait for the force that is under way
        self._telling: list[Callback] = []  # of the last force, the last of them first: what it came to is `_told`
        self._told: Exception | None = None
        self._busy = False  # with a force, or about to begin one
        self._under_way = False  # the force
        self._gate = threading.Lock()  # let go of when the thread is to force up to `_target`, or to end
        self._gate.acquire()
        self._target = 0
        self._ended = False
        self._forced = False  # the force is over, and the loop has not seen to that yet
        self._to_tell = False  # of that, the loop
        self._error: Exception | None = None  # that it has met
        self._thread = Thread(self._run, "FORCER")
        self._thread.start()

    def ask(self, lsn: int, callback: Callback) -> None:
        """Call `callback(None)` in the loop once the log is safe up to the LSN, or `callback(error)`."""
        if not self._busy:
            self._loop.call_soon(self._begin)  # not now: what else has just been received goes with it
            self._busy = True
        self._asked.append(callback)
        if lsn > self._highest:
            self._highest = lsn

    def end(self) -> None:
        """For a loop that runs no more."""
        self._ended = True
        if self._gate.locked():  # else a force was about to begin, of which nobody would hear
            self._gate.release()
        self._thread.join()

    def recover(self) -> None:
        """Do what callbacks of the loop may have lost. In its thread."""
        self._done()
        if self._busy:
            self._begin()

    def _begin(self) -> None:
        """Begin the next force, unless one is under way: at its end this is called again."""
        if self._under_way:
            return
        self._busy = self._under_way = bool(self._asked)
        if self._busy:
            self._served, self._asked = self._asked, self._served
            self._target = self._highest
            self._gate.release()

    def _done(self) -> None:
        """A force is over, unless that has been seen to: who wakes the loop may do so twice."""
        self._tell()  # those of the force before whom a want of memory has left
        if not self._forced:
            return
        error, lsn, served = self._error, self._target, self._served
        served.reverse()
        self._served, self._telling = self._telling, served
        self._error, self._told = None, error
        if error is None and lsn > self.safe:
            self.safe = lsn
        self._forced = self._under_way = False
        self._begin()
        self._tell()

    def _tell(self) -> None:
        """Call those that have waited. Raises MemoryError: then `recover` tells the others."""
        telling, error = self._telling, self._told
        while telling:
            callback = telling.pop()
            try:
                callback(error)
            except MemoryError:
                raise
            except Exception as exc:  # the other callbacks must be called all the same
                self._loop.call_exception_handler({"message": "a callback of the forcer failed", "exception": exc})

    def _run(self) -> None:
        """In the thread of the forcer."""
        go_on(self._force_and_tell)

    def _force_and_tell(self) -> bool:
        """Wait for what to force, force it, and tell the loop; False: there will be no more."""
        if not self._to_tell:
            self._gate.acquire()
            if self._ended:
                return False
            try:
                self._force(self._target)
            except Exception as exc:
                self._error = exc
            self._forced = self._to_tell = True
        self._loop.call_soon_threadsafe(self._done)
        self._to_tell = False
        return True


class Lasting:
    """A task that never ends by itself, and is begun anew where its loop has met a want of memory: see `LoopThread`.

    `lose` is called before that where the loop may have lost callbacks, of anybody whom it serves.
    """

    def __init__(self, work: Work, thread: "LoopThread", lose: Callable[[], None] | None = None) -> None:
        self._work = work
        self._thread = thread
        self.lose = lose
        self._task: asyncio.Task[None] | None = None
        self.begin()
        thread.lasting.append(self)

    def begin(self) -> None:
        """Begin it; again, where it may wait for what has been lost."""
        before, self._task = self._task, self._thread.loop.create_task(self._work())
        self._task.add_done_callback(self._over)
        if before is not None:
            before.cancel()

    async def end(self) -> None:
        """Wait until it is over."""
        task, self._task = self._task, None
        if task is not None:
            self._thread.lasting.remove(self)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _over(self, task: "asyncio.Task[None]") -> None:
        if task is self._task and not task.cancelled():
            try:
                self._thread.loop.call_later(RETRY_S, self._begin_anew, task)  # at once it may end at once, again
            except MemoryError:
                self._thread.begin_anew()

    def _begin_anew(self, over: "asyncio.Task[None]") -> None:
        if over is self._task:
            self._thread.begin_anew()


class LoopThread:
    """The loop, its thread and its forcer, and threads for what may wait.

    Where the loop finds no memory to make a callback, what it was about is lost: to wake a task, which would wait for
    ever; to tell a client that it is done, or to take what has been read from it. So what lasts as long as a listener
    is begun anew then, the forcer goes on, and all connections are cut, since nobody knows whose it was. Of what goes
    wrong inside of a callback the connection hears itself, and asyncio knows whose socket could not be read.
    """

    def __init__(self, force: Callable[[int], None]) -> None:
        self.users = 0
        self.loop = asyncio.SelectorEventLoop(_Patient())
        self.loop.set_exception_handler(self._on_error)
        self.forcer = Forcer(force, self.loop)
        self.hands = Hands("qmgr listener call")
        self.lasting: list[Lasting] = []  # the tasks that never end by themselves
        self._ended = False
        self._failed = False  # a callback, since the loop was begun
        self._lost = False  # something may be, and that has not been seen to
        self._losses = object()  # another one after each of them
        self._thread = Thread(lambda: go_on(self._run), "LISTENERS")
        self._thread.start()

    def _run(self) -> bool:
        """Run the loop until it is stopped; False: for good."""
        if self._ended:
            return False
        asyncio._set_running_loop(None)  # a loop that stopped for want of memory may have had none to say so
        if self._lost:
            self._losses = object()
            for one in self.lasting:
                if one.lose is not None:
                    one.lose()
        self._failed, self._lost = False, True  # unless it stops in order
        self.forcer.recover()
        for one in self.lasting:
            one.begin()
        self.loop.run_forever()
        self._lost = self._failed
        return True

    def _wake_to_stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)

    def begin_anew(self) -> None:
        """Begin all that lasts anew, soon. In the loop's thread; needs no memory."""
        self.loop.stop()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), MemoryError) and not _is_cut(context.get("transport")):
            self._failed = True
            self.begin_anew()
        loop.default_exception_handler(context)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do it in the loop; wait for its result. For other threads than the loop's.

        Raises MemoryError where the loop has lost something meanwhile: it may have been this. RuntimeError where a
        mistake of ours has ended the loop.
        """
        losses = self._losses
        asked = asyncio.run_coroutine_threadsafe(work, self.loop)
        while not concurrent.futures.wait([asked], LOOK_S).done:
            if self._losses is not losses:
                asked.cancel()
                raise MemoryError
            if self._thread.is_gone():
                raise RuntimeError("the event loop of the listeners is over")
        return asked.result()

    def end(self) -> None:
        self._ended = True
        go_on(self._wake_to_stop)
        self._thread.join()
        self.forcer.end()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class _Patient(selectors.DefaultSelector):
    """Where there is no memory to say who is ready nothing is lost: they will be so still."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        try:
            return super().select(timeout)
        except MemoryError:
            return []


def _is_cut(transport: asyncio.Transport | None) -> bool:
    """Cut this one, if it is known whose callback has failed; False: it is not, or there was no memory for that."""
    if transport is None:
        return False
    try:
        transport.abort()
    except MemoryError:
        return False
    return True


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
