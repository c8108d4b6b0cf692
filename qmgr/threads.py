"""Threads: which one has begun something, and whether it is still there; and calls that no interrupt strikes.

The number of a thread does not tell: the system gives it to the next one that is started.
"""

import threading
import weakref
from collections.abc import Callable

from logger.condition import Event

Alive = Callable[[], object]  # gives something as long as the thread is there, and None from then on


class Worker:
    """A thread that makes one call. `over` is set when that has returned.

    To `join` it would not do: up to Python 3.12 a thread counts as over once an interrupt has struck somebody's join.
    """

    def __init__(self, call: Callable[[], object], name: str) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
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
        return self.started and not self.over.is_set()

    def await_end(self) -> None:
        """Wait until it is over, if it was ever started, even if an interrupt has struck whoever did so."""
        if (self.started or self._thread.is_alive()) and self._thread != threading.current_thread():
            self.over.wait()


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
        """Until the call has returned; raises what it raised."""
        self.over.wait()
        if self._raised is not None:
            raise self._raised


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
