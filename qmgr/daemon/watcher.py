"""Watcher: one thread that notices which of many sockets were closed by the other end, while nobody reads them.

Nothing is expected on a socket that is watched, so one that becomes readable means that its client is gone.
"""

import contextlib
import selectors
import threading
from collections.abc import Callable, Iterator

from qmgr import sockets
from qmgr.sockets import Socket
from qmgr.threads import Thread, go_on


class Watch:
    """One socket that is watched."""

    __slots__ = ("_call", "gone")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.gone = False

    def note(self) -> None:
        """Calling it twice is harmless."""
        self.gone = True
        self._call()


class Watcher:
    """Thread-safe. What is called must not take long."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._wake, self._woken = sockets.pair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._ended = False
        self._thread = Thread(self._run, "qmgr client watcher")

    def start(self) -> None:
        self._thread.start()

    def add(self, sock: Socket, call: Callable[[], object]) -> Watch:
        """Call `call` in the watcher's thread when the socket is closed by the other end: once, unless it raises."""
        watch = Watch(call)
        with self._lock:
            if not self._ended:
                stale = self._selector.get_map().get(sock.fileno())
                if stale is not None:  # of a socket that was closed here and had the same number
                    self._selector.unregister(stale.fd)
                self._selector.register(sock, selectors.EVENT_READ, watch)
        return watch

    def remove(self, sock: Socket, watch: Watch) -> None:
        """Stop watching a socket, before it is closed here or read."""
        with self._lock:
            if not self._ended:
                self._forget(sock, watch)

    def _forget(self, sock: object, watch: object) -> bool:
        """Stop watching it; False: it was not watched any more, and its number may be another socket's by now."""
        try:
            key = self._selector.get_key(sock)  # type: ignore[arg-type]
        except (KeyError, ValueError):
            return False
        if key.data is watch:
            self._selector.unregister(key.fileobj)
            return True
        return False

    @contextlib.contextmanager
    def watching(self, sock: Socket, call: Callable[[], object]) -> Iterator[Watch]:
        """Watch a socket while the block lasts, in which a call waits whose answer it will carry."""
        watch = self.add(sock, call)
        try:
            yield watch
        finally:
            self.remove(sock, watch)

    def _run(self) -> None:
        go_on(self._note_those_gone)

    def _note_those_gone(self) -> bool:
        """Wait for some, and note them; False: it ends."""
        for key, _ in self._selector.select():
            if key.data is None:
                return False
            note = key.data.note  # now, as that takes memory
            with self._lock:
                there = self._forget(key.fileobj, key.data)
            if there:
                go_on(note)  # it is watched no more, so nobody would come back to it
        return True

    def close(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self._woken.send(b"x")
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._selector.close()
        self._wake.close()
        self._woken.close()
