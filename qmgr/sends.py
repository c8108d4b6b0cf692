"""Sends: puts of a client's unit of work that go to the daemon many at a time, while it works on those before.

One request is on its way at most. Its answer is heard before the next one goes, so nothing that was called later is
done when something was refused.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

from qmgr import sockets, wire
from qmgr.errors import BackedOut, MQError
from qmgr.link import Link
from qmgr.sockets import Socket

BATCH_BYTES = 16 << 10  # of puts that make a request


def fits(put: bytes, others: int, longest: int) -> bool:
    """Does it fit into one request with `others` bytes of puts? Raises Mistake for a put that is too long by itself."""
    size = wire.REQUEST.size + len(put)
    if size > longest:
        raise wire.too_long(size, longest)
    return size + others <= longest


class Sends:
    """The puts of one unit of work that were sent, and wait to go or to be answered. Thread-safe.

    Its methods raise Broken, and what the daemon has refused, which has then backed out the unit of work. Once anything
    went wrong with one of them all that is left is a backout: a commit would lack it.
    """

    def __init__(
        self,
        link: Link,
        check: Callable[[], None],
        request: Callable[[list[bytes]], bytes],
        hear: Callable[[bytes], object],
    ) -> None:
        """`check` raises what speaks against one more, while no other thread sends or finishes.

        `request` makes one of several puts, `hear` is told the answer, and raises the error that it is.
        """
        self._link = link
        self._check = check
        self._request = request
        self._hear = hear
        self._lock = threading.Lock()
        self._puts: list[bytes] = []
        self._size = 0
        self._asked: Socket | None = None  # where an answer is to come
        self._lost = False  # nobody knows what of them was put, or not all of them is wanted any more

    @property
    def has_unanswered(self) -> bool:
        """Is there any that may be refused, as far as the application has been told?"""
        return bool(self._puts) or self._asked is not None or self._lost or self._lock.locked()

    def add(self, put: bytes) -> None:
        """One more."""
        with self._lock:
            self._check()
            self._check_lost()
            if not fits(put, self._size, self._link.longest):
                self._flush()
            self._puts.append(put)
            self._size += len(put)
            if self._size >= BATCH_BYTES:
                self._flush()

    def finish(self) -> None:
        """Return when the daemon has done all of them."""
        with self._lock:
            self._check_lost()
            self._flush()
            self._await_answer()

    def forget(self) -> None:
        """None of them is wanted any more: the unit of work is going to be backed out, and nothing else, if that fails.

        Returns when none is on its way.
        """
        with self._lock:
            self._lost = True
            with contextlib.suppress(MQError):
                self._await_answer()

    def drop(self) -> None:
        """The connection is lost: nobody waits for an answer, unless a thread does just now."""
        if self._lock.acquire(blocking=False):
            try:
                sock, self._asked = self._asked, None
                if sock is not None:
                    sockets.close(sock)
            finally:
                self._lock.release()

    def _check_lost(self) -> None:
        if self._lost:
            raise BackedOut(
                "a call of this unit of work was interrupted or failed, and whether what was sent before was put is "
                "not known; back it out and start it again"
            )

    def _flush(self) -> None:
        self._await_answer()
        if self._puts:
            with self._lost_on_error():
                frame = self._request(self._puts)
                self._puts, self._size = [], 0
                self._asked = self._link.ask(frame)

    def _await_answer(self) -> None:
        if self._asked is not None:
            with self._lost_on_error():
                sock, self._asked = self._asked, None
                self._hear(self._link.answer(sock))

    @contextlib.contextmanager
    def _lost_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._lost = True
            raise
