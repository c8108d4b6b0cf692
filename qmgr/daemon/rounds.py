"""Rounds: one thread answers the quick calls of many sockets, round by round, and forces the log once for many calls.

With a thread for each socket, Python's interpreter lock would change hands with every frame, which takes longer than
the call. So the sockets wait here together. What takes no waiting is answered here: puts, gets of what is there, the
ends of units of work. For anything else a thread has the socket until that is answered. Where a force takes long,
another thread takes over the sockets that do not wait for it.
"""

import contextlib
import selectors
import threading
from collections.abc import Callable, Iterator
from functools import partial

import attrs

from qmgr import sockets
from qmgr.daemon.beats import NEVER, Beats
from qmgr.daemon.calls import Answer, Calls, parts_of
from qmgr.daemon.face import ServiceFace
from qmgr.daemon.hands import Hands, start_thread
from qmgr.logged import never_wait_for_room
from qmgr.sockets import Gone
from qmgr.threads import Thread, go_on

ROUNDS_PER_FORCE = 8  # at most
SPIN_NS = 100_000  # within which a client often sends its next call; to sleep and be woken takes as long
CONTENDED_FORCES = 32  # after one that several calls waited for, until a call may count as alone
SLOW_FORCE_NS = 250_000_000  # after which another thread serves those that do not wait for it
LAST_FORCE_TIMEOUT_S = 5.0
Waiting = dict[Calls, Answer]  # those that wait for a force, and what to answer after it


@attrs.define(eq=False)
class _Turn:
    """The turn of a thread that serves the sockets. If a force takes long it is over: another thread has the next."""

    relieve: Callable[["_Turn", int], None]
    waiting: Waiting = attrs.Factory(dict)
    asking: Calls | None = None  # whose request was read, or whose answer is at work: nobody else knows of it
    forcing: bool = False
    began: int = 0  # the last force: nanoseconds
    over: bool = False
    watched: bool = False  # by the beats, which look now and then whether a force takes long
    due: int = NEVER  # when they look; see `beats.Busy`

    def on_due(self, now: int) -> None:
        self.relieve(self, now)


class Rounds:
    """The sockets of the clients of one listener, but those with TLS. Thread-safe."""

    def __init__(self, service: ServiceFace, beats: Beats) -> None:
        self._service = service
        self._beats = beats
        self._hands = Hands("qmgr client call")
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # guards the selector, `_ended` and the turns
        self._wake, self._woken = sockets.pair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._contended = 0  # forces until a call counts as alone, for which the disk begins at once
        self._ended = False
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = self._begin()

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
        thread = self._thread
        if thread is not None:
            thread.join(LAST_FORCE_TIMEOUT_S)
            if thread.is_alive():  # the disk hangs, and nothing more can be said to anybody
                return
        left = [key.data for key in self._selector.get_map().values() if key.data is not None]
        self._selector.close()
        self._wake.close()
        self._woken.close()
        for calls in left:
            calls.end(None)

    def _begin(self) -> Thread:
        """A thread with a turn. Raises RuntimeError, MemoryError where the system has no more."""
        turn = _Turn(self.relieve)
        return start_thread(lambda: self._run(turn), "qmgr client rounds")

    def relieve(self, turn: "_Turn", now: int) -> None:
        """For the beats: where the turn's force takes long, another thread gets the sockets that do not wait for it."""
        with self._lock:
            turn.due = turn.began + SLOW_FORCE_NS
            if turn.forcing and now < turn.due:
                return
            turn.watched, turn.due = False, NEVER
            if turn.forcing and not self._ended:
                self._take_over(turn)
        self._beats.remove(turn)

    def _take_over(self, turn: "_Turn") -> None:
        """Give another thread a turn, with the sockets that do not wait for this one's force."""
        for calls in turn.waiting:
            self._selector.unregister(calls.sock)
        try:
            self._thread = self._begin()
            turn.over = True
        except (RuntimeError, MemoryError):  # the system has no more threads
            for calls in turn.waiting:
                try:
                    self._selector.register(calls.sock, selectors.EVENT_READ, calls)
                except MemoryError:  # nobody would read what it asks next; it ends when its answer can't be sent
                    sockets.hang_up(calls.sock)

    def _run(self, turn: "_Turn") -> None:
        never_wait_for_room()
        go_on(lambda: self._serve(turn))

    def _serve(self, turn: "_Turn") -> bool:
        """Serve those of whom something comes; False: the turn is over."""
        self._lose_waiting(turn)
        if turn.over or self._ended:
            return False
        try:
            self._rounds_and_force(turn)
        except Exception as exc:  # for want of memory, say
            self._lose_waiting(turn)
            text = f"answers to clients are lost ({type(exc).__name__}: {exc})"
            self._do_elsewhere(partial(self._service.say, "AMQ6118", text=text), _nothing)
        return True

    def _lose_waiting(self, turn: "_Turn") -> None:
        """Who has waited for an answer that can't be given must not wait for ever."""
        if turn.asking is not None:
            sockets.hang_up(turn.asking.sock)  # whoever serves it finds it closed
            turn.asking = None
        while turn.waiting:
            calls = next(iter(turn.waiting))
            self._end(calls, EOFError())
            del turn.waiting[calls]

    def _rounds_and_force(self, turn: "_Turn") -> None:
        """Answer what comes, in up to ROUNDS_PER_FORCE rounds, with one force for all of it."""
        highest = 0
        for done in range(ROUNDS_PER_FORCE):
            there = self._ready(0.0) if done else self._spin() or self._ready(None)
            if not there:
                break
            highest = max(highest, self._round(there, turn))
        if turn.waiting:
            self._force(turn, highest)

    def _spin(self) -> list[Calls]:
        """The sockets by which something comes within SPIN_NS, looked for without sleeping."""
        ticks = self._service.clock.elapsed_ns
        end = ticks() + SPIN_NS
        while not (there := self._ready(0.0)) and ticks() < end:
            pass
        return there

    def _ready(self, patience: float | None) -> list[Calls]:
        return [key.data for key, _ in self._selector.select(patience) if key.data is not None]

    def _round(self, there: list[Calls], turn: "_Turn") -> int:
        """Do one request of each; answers that need a force go into `waiting`. Returns the LSN to force, 0: none."""
        highest, waiting = 0, turn.waiting
        needs_checkpoint = self._service.sessions.needs_checkpoint  # then each call has a thread that may wait for one
        alone = not self._contended and len(there) == 1
        for calls in there:
            if calls in waiting:  # what it says before it has its answer can wait
                continue
            turn.asking = calls
            try:
                data = calls.receive_now()
                done = None
                if calls.is_quick_request(data) and not needs_checkpoint:
                    done = calls.answer(data, may_wait=False, soon=alone)
            except BlockingIOError:  # there was nothing after all
                continue
            except Exception as exc:
                self._end(calls, exc)
                continue
            if not data:
                self._end(calls, None)
            elif done is None:
                self._hand_over(calls, partial(calls.serve_request, data))
            elif done[1]:
                waiting[calls] = done[0]
                highest = max(highest, done[1])
            else:
                self._send(calls, done[0])
        turn.asking = None
        return highest

    def _force(self, turn: "_Turn", lsn: int) -> None:
        """Force the log up to the LSN, and send the answers that wait for it."""
        refused: Exception | None = None
        turn.began = self._service.clock.elapsed_ns()
        with self._lock:
            watched, turn.watched, turn.forcing = turn.watched, True, True
        if not watched:
            turn.due = turn.began + SLOW_FORCE_NS
            self._beats.add(turn)
        try:
            self._service.sessions.log_held()
            self._service.manager.force(lsn)
        except Exception as exc:
            refused = exc
        with self._lock:
            turn.forcing = False
        self._contended = CONTENDED_FORCES if len(turn.waiting) > 1 else max(0, self._contended - 1)
        for calls in list(turn.waiting):
            turn.asking = calls
            told = turn.waiting.pop(calls)
            try:
                told = calls.after_force(told, refused)
            except Exception as exc:
                self._end(calls, exc)
                continue
            if turn.over:
                self._hand_over(calls, partial(_send_rest, calls, parts_of(told)))
            else:
                self._send(calls, told)
        turn.asking = None

    def _send(self, calls: Calls, told: Answer) -> None:
        """Send an answer; where the client is slow to read it, another thread sends the rest."""
        try:
            rest = calls.send_now(told)
        except Exception:  # no other word can follow on a part of an answer
            self._end(calls, EOFError())
            return
        if rest is not None:
            self._hand_over(calls, partial(_send_rest, calls, rest))

    # ---- with other threads

    def _do_elsewhere(self, work: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Do `work` in another thread; where the system has no more threads, do `otherwise` in this one."""
        try:
            self._hands.do(work)
        except (RuntimeError, MemoryError):
            otherwise()

    def _hand_over(self, calls: Calls, work: Callable[[], None]) -> None:
        """Give the socket to another thread, which does the work and brings the socket back."""
        work, otherwise = partial(self._do_and_take_back, calls, work), partial(calls.end, None)
        self._forget(calls)
        self._do_elsewhere(work, otherwise)

    def _do_and_take_back(self, calls: Calls, work: Callable[[], None]) -> None:
        """In that thread; the socket does not come back where the work ends in an error."""
        try:
            work()
            self.add(calls)
        except Exception as exc:
            calls.end(exc)

    def _end(self, calls: Calls, exc: Exception | None) -> None:
        self._forget(calls)
        if exc is None or isinstance(exc, Gone):
            calls.end(exc)
        else:  # the error log hears of it, which may take waiting
            self._do_elsewhere(partial(calls.end, exc), partial(calls.end, None))

    def _forget(self, calls: Calls) -> None:
        with self._lock, contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(calls.sock)


def _send_rest(calls: Calls, rest: Iterator[bytes | memoryview]) -> None:
    try:
        for part in rest:
            calls.sock.sendall(part)
    except Exception as exc:
        raise EOFError("an answer broke off") from exc


def _nothing() -> None:
    """Nobody is there to hear it."""
