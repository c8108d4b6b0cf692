"""Client: the daemon's side of one session of the client protocol: all that the sockets of one client share."""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs

from qmgr import sockets, wire
from qmgr.errors import Mistake, MQError, Reason, Unavailable, UnitOfWorkEnded
from qmgr.infos import LOCAL
from qmgr.manager import UnitOfWork
from qmgr.message import Message
from qmgr.replay import Replay, Replayed
from qmgr.session import Session
from qmgr.sockets import Socket
from qmgr.threads import go_on
from qmgr.wire import Begun
from recovery.records import Xid
from recovery.uows import UowState

MAX_SOCKETS = 1000  # of one client on this machine
MAX_REMOTE_SOCKETS = 32  # of one that comes over a network
MAX_CURSORS = 256  # browses and replays that a client has begun and not ended
MAX_UNBEGUN = 1000  # units of work that were backed out before they began
MAX_ENDED_UNITS = 100  # that are remembered, for requests that are repeated
BEATS_PER_TIMEOUT = 3  # heartbeats within the time after which a silent daemon is given up
MIN_BEAT_S = 0.05
PAGE_BYTES = 256 << 10  # of messages after which a page is sent

Begins = tuple[UnitOfWork, Begun]


class SocketServer(Protocol):
    """Who serves a socket."""

    over: threading.Event  # nobody serves it any more

    def hang_up(self) -> None:
        """Nobody is there any more: close it, and give up what waits."""

    def recheck_waits(self) -> None:
        """Wake the call that waits, if one does, to see whether it is to go on."""

    def dismiss(self) -> None:
        """Answer the call that is under way, and no other; give up what waits."""


@attrs.define(eq=False)
class Cursor:
    """A browse, or a replay, that goes on page by page."""

    number: int
    messages: Iterator[Message] | Replay
    check: Callable[[], None]  # before each page; raises NotAuthorized
    lock: threading.Lock = attrs.Factory(threading.Lock)
    pending: MQError | None = None  # what went wrong behind the messages of the last page

    def next_page(self, limit: int) -> tuple[list[Message | Replayed], bool]:
        """(up to `limit` of the next, whether there may be more). Raises what the iteration raises, and `check`."""
        self.check()
        found: list[Message | Replayed] = []
        size = 0
        with self.lock:
            if self.pending is not None:
                raise self.pending
            try:
                while len(found) < limit and size < PAGE_BYTES:
                    one = next(iter(self.messages))
                    found.append(one)
                    message = one.message if isinstance(one, Replayed) else one
                    size += len(message.head) + len(message.body)
            except StopIteration:
                return found, False
            except MQError as exc:
                if not found:
                    raise
                self.pending = exc
            return found, True

    def close(self) -> None:
        """Let go of what it reads; waits for a page that is being made."""
        with self.lock:
            close = getattr(self.messages, "close", None)
            if close is not None:
                close()


class Client:
    """What one client has begun. Thread-safe."""

    def __init__(self, session: Session, anchor: Socket, token: bytes, patience: float) -> None:
        """`patience`: seconds of silence after which the client gives the daemon up; 0: never."""
        self.session = session
        self.beat_ns = int(max(patience / BEATS_PER_TIMEOUT, MIN_BEAT_S) * 1e9) if patience else 0
        self.token = token
        self.anchor = anchor
        self.units: dict[int, Begins] = {}  # by the client's own numbers
        self.cursors: dict[int, Cursor] = {}
        self._numbers = itertools.count(1)
        self._ended: OrderedDict[int, tuple[int, UowState]] = OrderedDict()
        self._unbegun: set[int] = set()
        self._sockets: dict[Socket, SocketServer] = {}
        self._lock = threading.Lock()
        self.closed = False

    # ---- sockets

    @property
    def max_calls(self) -> int:
        """Calls at a time, each of which has a socket."""
        return MAX_SOCKETS if self.session.peer.channel == LOCAL else MAX_REMOTE_SOCKETS

    def join(self, sock: Socket, calls: "SocketServer") -> None:
        """One more socket for calls. Raises Unavailable."""
        with self._lock:
            if self.closed:
                raise Unavailable("the connection is closed", reason=Reason.CONNECTION_BROKEN)
            if len(self._sockets) >= self.max_calls:
                text = f"a client makes {self.max_calls} calls at a time at most"
                raise Unavailable(text, reason=Reason.MAX_CONNS_LIMIT_REACHED)
            self._sockets[sock] = calls

    def leave(self, sock: Socket) -> None:
        with self._lock:
            self._sockets.pop(sock, None)

    def recheck_waits(self) -> None:
        """Wake its calls that wait, to see whether they are to go on."""
        with self._lock:
            there = list(self._sockets.values())
        for calls in there:
            calls.recheck_waits()

    def close(self, *, kindly: bool = False) -> list[threading.Event]:
        """End the session: its units of work are backed out at once, and its sockets closed.

        `kindly`: the client is still there, and the queue manager is ending. Then calls that are under way are still
        answered; the caller waits for the events that this returns, one a socket, and closes the anchor.
        """
        with self._lock:
            if self.closed:
                return []
            left, cursors = list(self._sockets.values()), list(self.cursors.values())
            over = [calls.over for calls in left]

            def let_go() -> None:
                if not kindly:
                    sockets.close(self.anchor)
                while left:
                    if kindly:
                        left[-1].dismiss()
                    else:
                        left[-1].hang_up()
                    left.pop()
                while cursors:
                    cursors[-1].close()
                    cursors.pop()

            close = self.session.close
            self._sockets, self.cursors = {}, {}
            self.closed = True  # last: from here on nobody else comes to do the rest, which may find no memory at first
        try:
            go_on(close)
        finally:
            self.units.clear()
            go_on(let_go)
        return over

    # ---- units of work

    def unit(self, number: int, flags: int) -> Begins:
        """The unit of work that a request names; begins it if it is not there and `flags` have BEGIN.

        Raises UnitOfWorkEnded, and as `begin`.
        """
        known = self.units.get(number)
        if known is not None:
            return known
        if not flags & wire.BEGIN:
            raise self._over(number)
        return self.begin(number, None)

    def begin(self, number: int, xid: Xid | None) -> Begins:
        """Begin a unit of work, unless it has begun; `number` is the client's own.

        Raises UnitOfWorkEnded, and as `Session.begin`.
        """
        with self._lock:
            known = self.units.get(number)
            if known is not None:
                return known
            if self.closed or number in self._unbegun or number in self._ended:
                raise self._over(number)
            since = self.session.manager._engine.log.durable
            unit = self.session.begin(xid)
            begun = self.units[number] = unit, (unit.id, since)
            if len(self.units) > 2 * len(self.session.units) + MAX_ENDED_UNITS:
                self._forget_unheard()
            return begun

    def _forget_unheard(self) -> None:
        """Drop units of work that the queue manager has rolled back and of which the client never asked again."""
        open_units = self.session.units
        for number in [number for number, (unit, _) in list(self.units.items()) if unit.id not in open_units]:
            self.units.pop(number, None)

    def _over(self, number: int) -> UnitOfWorkEnded:
        told = self._ended.get(number)
        if told is None:
            return UnitOfWorkEnded("this unit of work is over, or another connection's; begin another one")
        return UnitOfWorkEnded(f"unit of work {told[0]} is {told[1].value}; begin another one")

    def ended(self, number: int, unit: UnitOfWork) -> None:
        """Note that a unit of work was committed or backed out: a request that names it from now on hears so."""
        ended = self._ended
        ended[number] = unit.id, unit.state  # first, so that another thread always finds it in one of the two
        self.units.pop(number, None)
        if len(ended) > MAX_ENDED_UNITS:
            ended.popitem(last=False)

    def to_back_out(self, number: int, flags: int) -> UnitOfWork | None:
        """The unit of work to back out; None: it has not begun, and its first request, if still on its way, is refused.

        Raises UnitOfWorkEnded where it is over, and where it is unknown to a request without BEGIN: it had begun then,
        and its end is forgotten. Raises Unavailable (2009) where too many were backed out before they began.
        """
        with self._lock:  # it may begin just now, by another socket
            known = self.units.get(number)
            if known is not None:
                return known[0]
            if number in self._ended or not flags & wire.BEGIN:
                raise self._over(number)
            if len(self._unbegun) >= MAX_UNBEGUN:
                raise Unavailable("too many calls were interrupted; connect again", reason=Reason.CONNECTION_BROKEN)
            self._unbegun.add(number)
            return None

    def state(self, number: int) -> UowState:
        """What has become of a unit of work. Raises UnitOfWorkEnded where that is not remembered any more."""
        known = self.units.get(number)
        if known is not None:
            return known[0].state
        told = self._ended.get(number)
        if told is None:
            raise self._over(number)
        return told[1]

    # ---- browses and replays

    def cursor(self, messages: Iterator[Message] | Replay, check: Callable[[], None]) -> Cursor:
        """A new cursor; `check` is called before each page.

        Raises Mistake (2017) when there are too many, Unavailable (2009) when the client is gone.
        """
        with self._lock:
            if self.closed:
                raise Unavailable("the connection is closed", reason=Reason.CONNECTION_BROKEN)
            if len(self.cursors) >= MAX_CURSORS:
                raise Mistake(
                    f"a connection may browse and replay {MAX_CURSORS} times at once; end some",
                    reason=Reason.HANDLE_NOT_AVAILABLE,
                )
            cursor = Cursor(next(self._numbers), messages, check)
            self.cursors[cursor.number] = cursor
            return cursor

    def known_cursor(self, number: int) -> Cursor:
        cursor = self.cursors.get(number)
        if cursor is None:
            raise Mistake("this browse or replay is over; begin another one")
        return cursor

    def drop(self, number: int) -> None:
        with self._lock:
            cursor = self.cursors.pop(number, None)
        if cursor is not None:
            cursor.close()
