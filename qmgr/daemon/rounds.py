"""Rounds: one thread that answers the quick calls of many sockets, round by round, with one force of the log for each.

Where each socket has a thread, these hand Python's lock from one to the other with every frame, and that takes longer
than what they do. So the sockets wait here together. What takes no waiting is answered here: puts, gets of what is
there, the ends of units of work. For anything else a thread has the socket until that is answered.
"""

import selectors
import threading
from collections.abc import Callable, Iterator
from functools import partial

from qmgr import sockets
from qmgr.daemon.calls import Answer, Calls
from qmgr.daemon.hands import Hands
from qmgr.session import ServiceFace

ROUNDS = 4  # before a force, if there is enough to do
LAST_FORCE = 5.0  # seconds that it may take at the end
Waiting = dict[Calls, Answer]  # for a force, to be told this then


class Rounds:
    """Thread-safe."""

    def __init__(self, service: ServiceFace) -> None:
        self._manager = service.manager
        self._sessions = service.sessions
        self._hands = Hands("qmgr client call")
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # of what the selector knows
        self._wake, self._woken = sockets.pair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="qmgr client rounds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, calls: Calls) -> None:
        """Answer what comes by this socket from now on; `calls.end` is called at its end."""
        with self._lock:
            ended = self._ended
            if not ended:
                self._selector.register(calls.sock, selectors.EVENT_READ, calls)
        if ended:
            calls.end(None)

    def close(self) -> None:
        """End all that are there."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self._woken.send(b"x")
        if self._thread.is_alive():
            self._thread.join(LAST_FORCE)
            if self._thread.is_alive():  # the disk hangs, and nothing more can be said to anybody
                return
        left = [key.data for key in self._selector.get_map().values() if key.data is not None]
        self._selector.close()
        self._wake.close()
        self._woken.close()
        for calls in left:
            calls.end(None)

    def _run(self) -> None:
        while not self._ended:
            waiting: Waiting = {}
            highest, patience = 0, None
            for _ in range(ROUNDS):
                there: list[Calls] = [key.data for key, _ in self._selector.select(patience) if key.data is not None]
                if not there:
                    break
                highest = max(highest, self._round(there, waiting))
                patience = 0.0  # what has come meanwhile goes with the same force
            if waiting:
                self._force(waiting, highest)

    def _round(self, there: list[Calls], waiting: Waiting) -> int:
        """Answer each of them once, those excepted that have to wait for a force; the LSN that this must reach."""
        highest = 0
        pressed = self._sessions.pressed  # a call may have to wait for a checkpoint, and no other for that call
        for calls in there:
            if calls in waiting:  # what it says before it has its answer can wait
                continue
            try:
                data = calls.receive_now()
                done = calls.answer(data, may_wait=False) if calls.is_request(data) and not pressed else None
            except Exception as exc:
                self._end(calls, exc)
                continue
            if not data:
                self._end(calls, None)
            elif done is None:
                self._hand_over(calls, partial(calls.attend, data))
            elif done[1]:
                waiting[calls] = done[0]
                highest = max(highest, done[1])
            else:
                self._tell(calls, done[0])
        return highest

    def _force(self, waiting: Waiting, lsn: int) -> None:
        refused: Exception | None = None
        try:
            self._manager.force(lsn)
        except Exception as exc:
            refused = exc
        for calls, told in waiting.items():
            self._tell(calls, calls.settled(told, refused))

    def _tell(self, calls: Calls, told: Answer) -> None:
        """Send an answer; whoever does not read it is waited for elsewhere."""
        try:
            rest = calls.send_now(told)
        except Exception as exc:
            self._end(calls, exc)
            return
        if rest is not None:
            self._hand_over(calls, partial(_send_rest, calls, rest))

    def _hand_over(self, calls: Calls, work: Callable[[], bool]) -> None:
        """A thread has the socket until it has done this."""
        self._forget(calls)
        try:
            self._hands.do(partial(self._attend, calls, work))
        except (RuntimeError, MemoryError) as exc:  # the system has no more threads
            calls.end(exc)

    def _attend(self, calls: Calls, work: Callable[[], bool]) -> None:
        """In a thread of its own: does it, and brings the socket back unless that was its end."""
        try:
            goes_on = work()
        except Exception as exc:
            calls.end(exc)
            return
        if goes_on:
            self.add(calls)
        else:
            calls.end(None)

    def _end(self, calls: Calls, exc: Exception | None) -> None:
        self._forget(calls)
        calls.end(exc)

    def _forget(self, calls: Calls) -> None:
        with self._lock:
            self._selector.unregister(calls.sock)


def _send_rest(calls: Calls, rest: Iterator[bytes]) -> bool:
    for part in rest:
        calls.sock.sendall(part)
    return True
