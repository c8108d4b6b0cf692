"""Which thread has begun something, and whether that thread is still there.

The number of a thread does not tell: the system gives it to the next one that is started.
"""

import threading
import weakref
from collections.abc import Callable

Alive = Callable[[], object]  # gives something as long as the thread is there, and None from then on


class _Mark:
    """What goes with its thread."""

    __slots__ = ("__weakref__",)


_here = threading.local()


def this_thread() -> Alive:
    """The one that calls; of the same thread it is the same object."""
    try:
        return _here.alive  # type: ignore[no-any-return]
    except AttributeError:
        _here.mark = mark = _Mark()
        _here.alive = alive = weakref.ref(mark)
        return alive
