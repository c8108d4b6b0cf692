"""Threads: how each is started; which one has begun something, and is it still there; calls that no interrupt strikes.

Of those on which many depend none ends because memory has run out for a while: see `go_on`.

The number of a thread does not tell: the system gives it to the next one that is started.
"""

import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from logger.condition import Event

LOOK_S = 1.0  # how often one that waits for a thread looks whether that is still there
RETRY_S = 0.1  # within which there may be memory again
NO_THREAD = "can't start new thread"  # what Python says where the system has no more, or no memory for its stack
SCARCE = NO_THREAD, "can't allocate"  # a lock

_never = threading.Lock()  # to wait for it needs no memory, as a new lock would
_never.acquire()

Alive = Callable[[], object]  # gives something as long as the thread is there, and None from then on


def go_on(step: Callable[[], object]) -> None:
    """Call `step` again as long as it gives something true, and a moment later where there was no memory for it.

    For what many wait for, and nobody else would do. So a step leaves what it has not done to the next one, or may be
    done twice.
    """
    goes_on: object = True
    while goes_on:
        try:
            goes_on = step()
        except (MemoryError, RuntimeError) as exc:
            try:
                if not is_scarcity(exc):
                    raise
            except MemoryError:
                pass
            pause()


def pause() -> None:
    """Wait a moment, within which there may be memory again."""
    try:
        _never.acquire(True, RETRY_S)
    except MemoryError:
        return


def is_scarcity(exc: Exception) -> bool:
    """Is it for want of memory, of threads or of locks? Any other RuntimeError would come again, and hide a mistake."""
    return isinstance(exc, MemoryError) or str(exc).startswith(SCARCE)


class _Birth:
    """Whether a thread has made its first step: in place of the Event for which `threading.Thread.start` waits."""

    def __init__(self) -> None:
        self._set = False
        self._told = threading.Lock()
        self._told.acquire()
        self._death: object = None

    def watch(self, first: object) -> None:
        """The thread will call this, and let go of it when it is over: that is told without a frame of Python's."""
        self._death = weakref.ref(first, partial(self._told.__exit__, None, None))

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def say_begun(self) -> None:
        self._death = None
        self._told.release()

    def wait(self) -> None:
        while not self._told.acquire(timeout=1):
            pass  # a build of Python that can do without the GIL tells of the death only to a thread that runs
        if self._death is not None:
            raise MemoryError

    def _at_fork_reinit(self) -> None:
        """`threading` calls this in the child of a fork, where nobody waits."""


class Thread(threading.Thread):
    """A daemon thread, whose call begins if `start` returns.

    A new thread that finds no memory dies before its first step, and `threading.Thread.start` waits for that for ever:
    a listener would accept nobody any more, even when there is memory again.
    """

    def __init__(self, call: Callable[[], object], name: str) -> None:
        super().__init__(target=call, name=name, daemon=True)
        self._started = _Birth()
        self._life: Alive = lambda: True  # until it begins

    @property
    def _bootstrap(self) -> Any:
        """What the system's thread calls; `threading.Thread.start` asks for it once, and keeps no hold of it."""
        first = super()._bootstrap  # type: ignore[misc]
        self._started.watch(first)
        self._life = weakref.ref(first)
        return first

    def is_gone(self) -> bool:
        """Has it begun, and is it over, whatever it came to? That takes no step of its own, for which it needs memory.

        Up to Python 3.12 `is_alive` does not tell: see `Worker`.
        """
        return self._life() is None

    def start(self) -> None:
        """Raises RuntimeError where there can be no more threads."""
        try:
            super().start()
        except MemoryError as exc:
            threading._limbo.pop(self, None)  # type: ignore[attr-defined]  # else it would be kept there for ever
            raise RuntimeError("can't start new thread, since there is no memory for it") from exc

    def run(self) -> None:
        self._started.say_begun()
        super().run()


class Worker:
    """A thread that makes one call. `over` is set when that has returned, unless there was no memory to do so.

    To `join` it would not do: up to Python 3.12 a thread counts as over once an interrupt has struck somebody's join.
    """

    def __init__(self, call: Callable[[], object], name: str) -> None:
        self._call = call
        self._thread = Thread(self._run, name)
        self.started = False
        self.over = Event()

    def _run(self) -> None:
        try:
            self._call()
        finally:
            self.over.set()

    def start(self) -> None:
        """Raises RuntimeError where there can be no more threads."""
        self._thread.start()
        self.started = True

    def is_alive(self) -> bool:
        return self.started and not self.over.is_set() and not self._thread.is_gone()

    def await_end(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until it is over, if it was ever started, even if an interrupt has struck whoever did so.

        `meanwhile` is called about once a second.
        """
        if (self.started or self._thread.is_alive()) and self._thread != threading.current_thread():
            self._await_over(meanwhile)

    def _await_over(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        while not self.over.wait(LOOK_S) and not self._thread.is_gone():
            meanwhile()


class ShieldedWorker(Worker):
    """A thread whose call is waited for, and is made to its end whatever happens to the thread that waits.

    An interrupt (KeyboardInterrupt, by a handler of a signal) strikes the main thread only: it ends the waiting there,
    and leaves nothing half done here.
    """

    _raised: BaseException | None = None

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as exc:
            self._raised = exc
        finally:
            self.over.set()

    def wait(self) -> None:
        """Until the call has returned; raises what it raised. MemoryError where the thread has died without that."""
        self._await_over()
        if self._raised is not None:
            raise self._raised
        if not self.over.is_set():
            raise MemoryError


def await_all(workers: Iterable[Worker]) -> None:
    """Wait until all of them that were started are over; what interrupts that is raised only then."""
    struck: BaseException | None = None
    for worker in workers:
        over = False
        while not over:
            try:
                worker.await_end()
                over = True
            except BaseException as exc:
                struck = exc
    if struck is not None:
        raise struck


class _Mark:
    """An object that lives as long as its thread."""

    __slots__ = ("__weakref__",)


_here = threading.local()


def this_thread() -> Alive:
    """Is the calling thread alive? The same object for each call in one thread: gives None once that is over."""
    try:
        return _here.alive  # type: ignore[no-any-return]
    except AttributeError:
        _here.mark = mark = _Mark()
        _here.alive = alive = weakref.ref(mark)
        return alive
