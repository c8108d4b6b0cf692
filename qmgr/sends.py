"""Sends: puts of a client's unit of work that go to the daemon many at a time, which is at work on some meanwhile.

One request is on its way at most. Its answer is heard before the next one goes, so nothing that was called later is
done when something was refused.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

from qmgr import wire
from qmgr.errors import MQError
from qmgr.link import Link
from qmgr.sockets import Socket

TOGETHER = 16 << 10  # bytes of puts that make a request


def fits(put: bytes, others: int, longest: int) -> bool:
    """May it go with so many bytes of others in one request? Raises Mistake for a put that is too long by itself."""
    size = wire.REQUEST.size + len(put)
    if size > longest:
        raise wire.too_long(size, longest)
    return size + others <= longest


class Sends:
    """Thread-safe. Raises Broken, and what the daemon has refused, of which it has backed out the unit of work."""

    def __init__(self, link: Link, request: Callable[[list[bytes]], bytes], hear: Callable[[bytes], object]) -> None:
        """`request` makes one of several puts, `hear` is told the answer, and raises the error that it is."""
        self._link = link
        self._request = request
        self._hear = hear
        self._lock = threading.Lock()
        self._puts: list[bytes] = []
        self._size = 0
        self._asked: Socket | None = None  # where an answer is to come
        self.lost = False  # nobody knows what of them was put: a call was interrupted

    def add(self, put: bytes) -> None:
        """One more."""
        with self._lock:
            if not fits(put, self._size, self._link.longest):
                self._go()
            self._puts.append(put)
            self._size += len(put)
            if self._size >= TOGETHER:
                self._go()

    def finish(self) -> None:
        """Return when the daemon has done all of them."""
        with self._lock:
            self._go()
            self._await()

    def forget(self) -> None:
        """None of them is wanted any more: the unit of work is going to be backed out."""
        with self._lock:
            self._puts, self._size = [], 0
            with contextlib.suppress(MQError):
                self._await()
            self.lost = False

    def _go(self) -> None:
        self._await()
        if self._puts:
            with self._unless_lost():
                frame = self._request(self._puts)
                self._puts, self._size = [], 0
                self._asked = self._link.ask(frame)

    def _await(self) -> None:
        if self._asked is not None:
            with self._unless_lost():
                sock, self._asked = self._asked, None
                answer = self._link.answer(sock)
            self._hear(answer)

    @contextlib.contextmanager
    def _unless_lost(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.lost = True
            raise
