"""Link: one session with a daemon, as its client sees it: an anchor that carries no calls, and a socket for each call.

The session lives as long as the anchor is open. A call takes a socket that nobody uses, or opens one; a call that is
interrupted closes its own, since nobody knows how much of the answer has come, and the session goes on. A link that is
broken stays so: whoever wants to go on makes another one.
"""

import _thread
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from qmgr import sasl, sockets, values, wire
from qmgr.errors import Mistake, MQError, Reason, Unavailable, quoted
from qmgr.installed import version
from qmgr.sockets import Socket
from qmgr.verbs import MAX_WAIT_S

HANDSHAKE_TIMEOUT_S = 30.0
DEFAULT_TIMEOUT_S = 60.0  # for an answer: twice what a sick disk may hang, and as long as a daemon waits for us
LEAVE_TIMEOUT_S = 2.0
KILL_GRACE_S = 0.1  # in which a killed daemon has closed all its sockets, one after the other
DEFAULT_CALLS = 32  # at a time, with a daemon that does not say how many it takes
MAX_APPLICATION_CHARS = 60  # of its name: a first frame has no room for more
MAX_REPLY_BYTES = 0xFFFFFFFF + 4


def _receive(sock: Socket, most: int) -> bytes:
    """The next frame of an answer; that the call is at work is passed over. Raises as `sockets.receive`."""
    return sockets.receive_answer(sock, most, wire.HEARTBEAT)


def check_timeout(timeout: Any) -> float | None:
    """Raises Mistake."""
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not 0 < timeout <= MAX_WAIT_S:
        text = f"timeout is seconds, more than 0 and at most {MAX_WAIT_S:g}, or None for ever, not {quoted(timeout)}"
        raise Mistake(text, reason=Reason.OPTIONS_ERROR)
    return float(timeout)


class Broken(Exception):
    """The connection is lost; what was asked for last may have been done or not."""


class NotSent(Broken):
    """The connection was lost before any of the request had gone: nothing of it is done."""


def lost(name: str, exc: Broken) -> Unavailable:
    """The error of a call whose connection is lost."""
    asked = not isinstance(exc, NotSent)
    done = "what was called last may have been done or not" if asked else "nothing of this call was done"
    return Unavailable(
        f"the connection to queue manager {name!r} was lost ({exc}); {done}, units of work that had not ended are "
        f"backed out",
        reason=Reason.CONNECTION_BROKEN,
        name=name,
    )


def closed(name: str) -> Unavailable:
    """The error of each call after `close`."""
    return Unavailable(f"the connection to queue manager {name!r} is closed", reason=Reason.HCONN_ERROR)


def too_many_wait(most: int, name: str) -> Unavailable:
    """The error of a get that would wait with the last socket: that is left to calls which do not wait."""
    text = f"a client waits for messages in {most} calls at a time at most"
    return Unavailable(text, reason=Reason.MAX_CONNS_LIMIT_REACHED, name=name)


class Target(Protocol):
    """Where the daemon is."""

    @property
    def name(self) -> str:
        """Of the queue manager."""

    @property
    def hint(self) -> str:
        """What may be the matter where it closes the connection without a word; "" if nothing is likely."""

    @property
    def if_silent(self) -> str:
        """What to do where it takes the connection and says nothing."""

    def open(self, seconds: float) -> Socket:
        """A new socket; to connect may take so long, and the handshake of TLS too.

        Raises MQError with the sentence for the user.
        """

    def await_end(self) -> None:
        """Wait until nobody runs the queue manager, if that can be seen from here."""

    def proof(self) -> tuple[str, sasl.Client | None]:
        """How we say who we are: a mechanism, and its exchange; none where the socket says it, or nobody asks."""


class Link:
    """Thread-safe. Raises Broken where the connection is lost."""

    def __init__(
        self, target: Target, application: str, timeout: float | None = DEFAULT_TIMEOUT_S, replaces: str = ""
    ) -> None:
        """Open a session. `replaces`: the token of one that was lost, whose work is to end now.

        It is lost where the daemon sends nothing about a call for `timeout` seconds; None: no limit.
        """
        self.timeout = timeout
        self._target = target
        self._idle: list[Socket] = []
        self.lock = threading.Lock()  # for what threads that share a unit of work must make only once
        self.units = itertools.count(1)
        self.open_units: dict[int, Any] = {}  # those that have begun and not ended, by number
        self.unclosed_cursors: list[int] = []  # cursors that nobody reads any more
        self.pending_backouts: list[bytes] = []  # backouts for which there was no socket
        self.broken = False
        self.forked = False
        self._anchor = target.open(self.connect_timeout)
        try:
            facts = self._greet(target, application, replaces)
        except BaseException:
            sockets.close(self._anchor)
            raise
        self.token: str = facts["session"]
        self.longest: int = facts["longest"]
        self.calls: int = facts.get("calls", DEFAULT_CALLS)
        self._wait_slots = [None] * (self.calls - 1)  # for gets that wait: one socket is left to the other calls
        self.number: int = facts["number"]

    def _greet(self, target: Target, application: str, replaces: str) -> dict[str, Any]:
        mechanism, proof = target.proof()
        told = {
            "manager": target.name,
            "product": version(),
            "application": application[:MAX_APPLICATION_CHARS],
            "process": sockets.process(),
            "mechanism": mechanism,
            "first": b"" if proof is None else proof.first(),
            "replaces": replaces,
            "patience": float(self.timeout or 0.0),
        }
        frame = wire.hello(wire.HELLO, values.dumps(told))
        while True:
            answer, head = self._handshake(self._anchor, frame)
            if head.op == wire.WELCOME:
                facts: dict[str, Any] = values.loads(answer[head.at :])
                if proof is not None:
                    proof.finish(facts["proof"])
                return facts
            if proof is None:
                raise self._unanswered("it asks for a proof of who this is, and none was agreed on")
            frame = wire.request(wire.ANSWER, 0, 0, "", proof.answer(answer[head.at :]))

    @property
    def connect_timeout(self) -> float:
        """Seconds for each step until a new socket can carry calls."""
        return HANDSHAKE_TIMEOUT_S if self.timeout is None else min(HANDSHAKE_TIMEOUT_S, self.timeout)

    def _handshake(self, sock: Socket, frame: bytes) -> tuple[bytes, wire.Reply]:
        """The answer to a first frame. Raises what it says, or Unavailable."""
        seconds = self.connect_timeout
        sockets.limit_receive(sock, seconds)
        try:
            sock.sendall(frame)
            answer = sockets.receive(sock, MAX_REPLY_BYTES)
        except sockets.Gone as exc:
            if sockets.is_timeout(exc):
                self.broken = True  # as where nothing is heard of a call
                raise self._unanswered(f"it has said nothing for {seconds:g} seconds", self._target.if_silent) from exc
            raise self._closed(sock, str(exc)) from exc
        if not answer:
            raise self._closed(sock, "the connection was closed")
        return answer, wire.decode_or_raise(answer)

    def _closed(self, sock: Socket, why: str) -> Unavailable:
        hint = self._target.hint if sock is self._anchor else ""  # another socket joins a daemon that was there
        return self._unanswered(f"{why}; {hint}" if hint else why)

    def _unanswered(self, why: str, way: str = "") -> Unavailable:
        name = self._target.name
        return Unavailable(f"queue manager {name!r} does not answer ({why}){way and f'; {way}'}", name=name)

    # ---- calls

    def exchange(self, frame: bytes, *, waits: bool = False) -> bytes:
        """Ask, and return the answer. Raises Broken; after an MQError, or NotSent, nothing was asked.

        `waits`: it may take long, and we are told meanwhile that it is at work.
        """
        return self.stream(frame, waits=True)[0] if waits else self.answer(self.ask(frame))

    def ask(self, frame: bytes) -> Socket:
        """Ask; the socket by which the answer is to come, for `answer`. Raises as `exchange`."""
        if len(frame) > self.longest:
            raise wire.too_long(len(frame), self.longest)
        try:
            sock = self._idle.pop()
        except IndexError:
            sock = self._new_socket()
        try:
            sock.sendall(frame)
        except sockets.Gone as exc:
            raise self._lost(sock, exc) from exc
        except BaseException:
            sockets.close(sock)
            raise
        return sock

    def answer(self, sock: Socket) -> bytes:
        """The answer to what was asked by this socket. Raises Broken."""
        try:
            answer = _receive(sock, MAX_REPLY_BYTES)
            if not answer:
                raise EOFError
        except sockets.Gone as exc:
            raise self._lost(sock, exc) from exc
        except BaseException:  # an interrupt, or an error of who hears of progress: the session goes on
            sockets.close(sock)
            raise
        self._release(sock)
        return answer

    def stream(
        self, frame: bytes, hear: Callable[[int, int], None] | None = None, *, waits: bool = False
    ) -> list[bytes]:
        """Ask, and return the frames of an answer that may have several. Raises as `exchange`.

        `hear` is told how far the call has come. `waits`: it may take long, and small frames that come before the
        answer say that it is at work.
        """
        if not waits or frame[4] not in (wire.GET, wire.GET_MANY):
            return self._stream(frame, hear, waits=waits)
        try:
            place = self._wait_slots.pop()
        except IndexError:
            raise too_many_wait(self.calls - 1, self._target.name) from None
        try:
            return self._stream(frame, hear, waits=True)
        finally:
            self._wait_slots.append(place)

    def _stream(self, frame: bytes, hear: Callable[[int, int], None] | None, *, waits: bool) -> list[bytes]:
        answers: list[bytes] = []
        receive = sockets.receive_one if waits else _receive
        sock = self.ask(frame)
        try:
            while not answers or wire.is_continued(answers[-1]):
                answer = receive(sock, MAX_REPLY_BYTES)
                if not answer:
                    raise EOFError
                if answer[4] not in (wire.PROGRESS, wire.ALIVE):
                    answers.append(answer)
                elif hear is not None and answer[4] == wire.PROGRESS:
                    hear(*wire.STEP.unpack_from(answer, wire.REPLY.size))
        except sockets.Gone as exc:
            raise self._lost(sock, exc) from exc
        except BaseException:  # an interrupt, or an error of who hears of progress: the session goes on
            sockets.close(sock)
            raise
        self._release(sock)
        return answers

    def _release(self, sock: Socket) -> None:
        """Keep the socket for the next call, and make a backout that waits for one."""
        self._idle.append(sock)
        if self.pending_backouts:
            self._back_out_one()

    def back_out_later(self, request: bytes) -> None:
        """Back out a unit of work to which nobody comes back, as soon as there is a socket for that."""
        self.pending_backouts.append(request)
        if self._idle:  # since it was looked for
            self._back_out_one()

    def _back_out_one(self) -> None:
        """Back one out in a thread of its own, lest a caller whose call was answered wait for it, or interrupt it."""
        with contextlib.suppress(RuntimeError):  # the system has no more threads
            _thread.start_new_thread(self._back_out, ())

    def _back_out(self) -> None:
        try:
            request = self.pending_backouts.pop()  # here, where no interrupt can strike
        except IndexError:
            return  # another thread has taken it
        try:
            self.exchange(request)  # and its socket is free for the next one
        except Broken:
            pass  # it is backed out with the session
        except MQError:  # another call has taken the socket
            self.back_out_later(request)

    def _lost(self, sock: Socket, exc: Exception) -> Broken:
        """Close the session, since the other end is gone; returns what to raise."""
        sockets.close(sock)
        self.close()
        if self.timeout is not None and sockets.is_timeout(exc):
            return Broken(f"it has said nothing for {self.timeout:g} seconds")
        told = exc.strerror if isinstance(exc, OSError) else str(exc)
        return Broken(told or "the queue manager has closed it")

    def close_cursor(self, cursor: int) -> None:
        """Close the cursor of a browse or replay that nobody reads any more.

        Raises Broken, MQError; then the next browse tries again.
        """
        try:
            self.exchange(wire.request(wire.CLOSE, 0, cursor))
        except Broken:
            raise
        except BaseException:  # there is no socket for it; or an interrupt, and the daemon may not have heard of it
            self.unclosed_cursors.append(cursor)
            raise

    def _new_socket(self) -> Socket:
        """A new socket of the session. Raises NotSent where the session is lost, else MQError."""
        if self.forked:
            raise NotSent("it is the parent's")
        if self.broken:
            raise NotSent("it was lost before")
        try:
            sock = self._target.open(self.connect_timeout)
        except MQError as exc:
            if self.is_there():
                raise
            raise NotSent(str(exc)) from exc
        try:
            self._handshake(sock, wire.hello(wire.JOIN, bytes.fromhex(self.token)))
        except MQError as exc:
            sockets.close(sock)
            if exc.reason == Reason.Q_MGR_NOT_AVAILABLE and not self.broken:
                sockets.await_end(self._anchor, KILL_GRACE_S)
            if exc.reason == Reason.CONNECTION_BROKEN or not self.is_there():
                self.close()
                raise NotSent(str(exc)) from exc
            raise  # the session goes on: for this socket the daemon has no descriptor left, say
        except BaseException:
            sockets.close(sock)
            raise
        sockets.limit_receive(sock, self.timeout or 0.0)
        sockets.limit_send(sock, self.timeout or 0.0)
        return sock

    def check(self, name: str) -> None:
        """Raises Unavailable (2009) where the session turns out to be lost before anything of a call was sent."""
        if not self.broken and self.is_lost():
            raise Unavailable(
                f"the connection to queue manager {name!r} was lost (the other end has closed it) before this call, of "
                f"which nothing was done; the next one connects again; units of work that had not ended are backed out",
                reason=Reason.CONNECTION_BROKEN,
                name=name,
            )

    def is_lost(self) -> bool:
        """Is the session broken, as it turns out now, or before?"""
        if not self.broken and not self.is_there():
            self.close()
        return self.broken

    def is_there(self) -> bool:
        """Has the other end still the session, as far as we know?"""
        return not self.broken and sockets.is_open(self._anchor)

    # ---- the end

    def await_end(self) -> None:
        """Wait until the other end closes the session."""
        sockets.await_end(self._anchor)

    def leave(self) -> None:
        """End the session, and wait until what it had begun is backed out, unless that takes long."""
        if not self.broken:
            self.broken = True
            sockets.shutdown_send(self._anchor)
            sockets.await_end(self._anchor, LEAVE_TIMEOUT_S)
        self.close()

    def close(self) -> None:
        """End the session."""
        self.broken = True
        sockets.close(self._anchor)
        while self._idle:
            with contextlib.suppress(IndexError):
                sockets.close(self._idle.pop())

    def abandon(self) -> None:
        """In a forked child: the sockets are the parent's too, whose session goes on."""
        self.broken = self.forked = True
        for sock in [self._anchor, *self._idle]:
            with contextlib.suppress(OSError):
                sock.close()
        self._idle.clear()


def decode_all(answers: list[bytes]) -> Iterator[tuple[bytes, wire.Reply]]:
    """The frames of an answer with their heads. Raises the error that one of them is."""
    for answer in answers:
        yield answer, wire.decode_or_raise(answer)
