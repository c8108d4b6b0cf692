"""Calls: takes the requests of one socket, one after the other, makes each a call of the session, and answers it."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from qmgr import session as sessions
from qmgr import sockets, values, wire, wireoptions
from qmgr.daemon.beats import Beats
from qmgr.daemon.client import Client, Cursor
from qmgr.daemon.face import ServiceFace
from qmgr.daemon.pulse import Pulse
from qmgr.daemon.turns import MANY, METHODS, GaveUp, Turns
from qmgr.daemon.waits import Waits
from qmgr.daemon.watcher import Watcher
from qmgr.errors import Mistake, MQError, NoMessageAvailable, Reason, Unavailable, UnitOfWorkEnded
from qmgr.logged import WouldWait
from qmgr.manager import UnitOfWork
from qmgr.message import Message
from qmgr.replay import Replay, Replayed
from qmgr.session import ADMIN
from qmgr.sockets import Gone, Socket
from qmgr.verbs import GetOptions, PutOptions, check_end_mode, no_message, wanted
from qmgr.wire import OK, Begun, ProtocolError, Request
from recovery.records import Xid
from recovery.uows import ACTIVE, PREPARED

NO_OPTIONS: PutOptions = {}
HEAD_BYTES = wire.REQUEST.size
unpack_head = wire.REQUEST.unpack_from
PUT, COMMIT, BEGIN = wire.PUT, wire.COMMIT, wire.BEGIN
DONE = wire.reply(OK, b"")
MAX_QUICK = 1000  # messages; a call for more is not quick, and others would wait for it
MAX_QUICK_BYTES = 1 << 20  # of the bodies of a call that is
NO_TURN = contextlib.nullcontext()
QUICK = frozenset(
    (PUT, COMMIT, wire.PUT_MANY, wire.GET, wire.GET_MANY, wire.BACKOUT, wire.BEGIN_UNIT, wire.STATE, wire.SENDS)
)
Answer = bytes | Iterable[bytes]


def parts_of(told: Answer) -> Iterator[bytes]:
    """What is sent of an answer, one after the other: an answer of many messages comes in pages."""
    return iter((told,) if isinstance(told, bytes) else told)


class Calls:
    """One socket of a client; one thread at a time serves it."""

    def __init__(
        self,
        service: ServiceFace,
        client: Client,
        sock: Socket,
        watcher: Watcher,
        beats: Beats,
        turns: Turns,
        on_end: Callable[[Exception | None], None],
    ) -> None:
        """`on_end` is called when nobody serves the socket any more; see `end` for its argument."""
        self._service = service
        self._on_end = on_end
        self._clock = service.clock
        self._client = client
        self._session = client.session
        self._units = client.units
        self.sock = sock
        self._turns = turns
        self._pulse = Pulse(sock, client.beat_ns, beats, self._clock)
        self._waits = Waits(client, sock, watcher, self._clock, self._pulse)
        self._begun: Begun | None = None  # the unit of work that this request has begun, for the answer
        self._op = 0  # of the request that is being answered
        self._lsn = 0  # to force before the answer is sent; 0: none
        self._committed: tuple[int, UnitOfWork] | None = None  # by this request: over for the client after the force
        self._may_wait = True
        self._force_soon = True  # the log is forced right after the call
        self._puts_done = 0  # of a SENDS that is handed to a thread that may wait: puts that are done by then
        self.over = threading.Event()
        self._longest = service.channels.max_frame_length
        self._idle = service.channels.idle_timeout
        self._handlers: dict[int, Callable[[Request, bytes], Answer]] = {
            wire.PUT_MANY: self._put_many,
            wire.SENDS: self._sends,
            wire.GET: self._get,
            wire.GET_MANY: self._get_many,
            wire.BACKOUT: self._backout,
            wire.PREPARE: self._prepare,
            wire.BEGIN_UNIT: self._begin,
            wire.STATE: self._state,
            wire.BROWSE: self._with_beats(self._browse),
            wire.REPLAY: self._with_beats(self._replay),
            wire.NEXT: self._with_beats(self._next),
            wire.CLOSE: self._close,
            wire.CALL: self._with_beats(self._call),
        }

    def hang_up(self) -> None:
        """The client is gone: give up what waits, and find the socket closed."""
        sockets.hang_up(self.sock)
        self._waits.recheck()

    def dismiss(self) -> None:
        """The queue manager is ending: answer the call that is under way, and no other; one that waits hears why."""
        self._waits.dismissed = True
        sockets.shutdown_receive(self.sock)
        self._waits.recheck()

    def recheck_waits(self) -> None:
        """Wake the call that waits, if one does, to see whether it is to go on."""
        self._waits.recheck()

    # ---- from the socket and back

    def serve(self) -> None:
        """Answer until the client closes the socket, in a thread that may wait. Raises as `serve_request`."""
        sock, longest, idle, ticks = self.sock, self._longest, self._idle, self._clock.elapsed_ns
        while frame := sockets.receive(sock, longest, idle, ticks):
            self._serve_one(frame)
            frame = b""  # frees its memory while the next is waited for

    def serve_request(self, data: bytes) -> None:
        """Answer the request that begins with `data`, in a thread that may wait.

        Raises ProtocolError; Gone where the connection is lost.
        """
        self._serve_one(sockets.receive_rest(self.sock, data, self._longest, self._idle, self._clock.elapsed_ns))

    def _serve_one(self, frame: bytes) -> None:
        """Answer one request, and send the answer after the force that it needs."""
        if self._service.sessions.needs_checkpoint:
            self._session.manager.look_around()
        done = self.answer(frame)
        assert done is not None, "this thread may wait"
        told, lsn = done
        if lsn:
            refused: Exception | None = None
            try:
                self._session.manager.force(lsn)
            except Exception as exc:
                refused = exc
            told = self.after_force(told, refused)
        for part in parts_of(told):
            self.sock.sendall(part)

    def receive_now(self) -> bytes:
        """What has come, without waiting; b"" when the client has closed the socket. Raises OSError."""
        return sockets.receive_now(self.sock)

    def is_quick_request(self, data: bytes) -> bool:
        """Is this exactly one request, of a kind that may be answered without waiting?"""
        return len(data) >= HEAD_BYTES and data[4] in QUICK and sockets.is_frame(data, self._longest)

    def send_now(self, told: Answer) -> Iterator[bytes | memoryview] | None:
        """Send as much of an answer as takes no waiting; return the rest, or None. Raises OSError."""
        parts = parts_of(told)
        for part in parts:
            left = sockets.send_now(self.sock, part)
            if left:
                return itertools.chain((left,), parts)
        return None

    def end(self, exc: Exception | None) -> None:
        """Nobody serves the socket any more. `exc`: the error that ended it; None: there is nothing to report."""
        self.over.set()
        self._on_end(exc)

    def answer(self, frame: bytes, *, may_wait: bool = True, soon: bool = True) -> tuple[Answer, int] | None:
        """(the answer, the LSN to force before it is sent, 0: none); None where it takes waiting without `may_wait`.

        `soon`: no other call seems to share that force, so the disk may begin at once. After a force, send what
        `after_force` makes of the answer. Raises ProtocolError for what is no request; Gone.
        """
        if self._client.closed:  # the request came before the end, but nobody hears its answer: do nothing
            raise EOFError("the client is gone")
        self._op, self._begun, self._lsn, self._may_wait, self._force_soon = frame[4], None, 0, may_wait, soon
        try:
            return self._dispatch(frame), self._lsn
        except WouldWait:
            return None
        except (ProtocolError, *Gone):
            raise
        except UnitOfWorkEnded as exc:  # "is committed" must not be told before that is safe
            return self._refusal(exc, self._op), self._session.tail
        except GaveUp:
            if self._waits.dismissed:  # the client is still there
                return self._refusal(self._ending(), self._op), self._lsn
            raise EOFError("the client is gone") from None
        except Exception as exc:  # with it a unit of work may have been backed out
            return self._refusal(exc, self._op), self._lsn

    def after_force(self, told: Answer, refused: Exception | None) -> Answer:
        """What to answer now that the log is safe, or could not be forced."""
        committed, self._committed = self._committed, None
        if refused is not None:
            return self._refusal(refused, self._op)
        if committed is not None:
            self._client.ended(*committed)
        return told

    def _dispatch(self, frame: bytes) -> Answer:
        if frame[4] == PUT and len(frame) >= HEAD_BYTES:  # most often it is one of these
            return self._put(frame)
        if frame[4] == COMMIT and len(frame) >= HEAD_BYTES:
            return self._commit(frame[5], int.from_bytes(frame[8:HEAD_BYTES], "little"))
        request = wire.decode_request(frame)
        handler = self._handlers.get(request.op)
        if handler is None:
            raise ProtocolError(f"there is no request {request.op}")
        return handler(request, frame)

    def _refusal(self, exc: Exception, op: int) -> bytes:
        """The answer to a call that has failed. The error log hears of what is no fault of the client's."""
        if isinstance(exc, MQError):
            return wire.error_reply(exc, self._begun)
        if isinstance(exc, (TypeError, ValueError)):  # what a call was given does not fit to it
            return wire.error_reply(Mistake(str(exc) or type(exc).__name__), self._begun)
        text = f"a client's request {op} failed ({type(exc).__name__}: {exc})"
        self._service.say("AMQ6118", text=text)
        return wire.error_reply(MQError(f"the queue manager has an internal error: {text}"), self._begun)

    # ---- calls that may take long

    def _with_beats(self, handler: Callable[[Request, bytes], Answer]) -> Callable[[Request, bytes], Answer]:
        def answer(request: Request, frame: bytes) -> Answer:
            with self._pulse.beating():
                return handler(request, frame)

        return answer

    def _unit(self, request: Request) -> UnitOfWork | None:
        """The unit of work of a request."""
        if not request.unit:
            return None
        unit, begun = self._client.unit(request.unit, request.flags)
        if request.flags & wire.BEGIN:
            self._begun = begun
        return unit

    # ---- messages

    def _put(self, frame: bytes) -> bytes:
        _, _, flags, size, number = unpack_head(frame)
        at = HEAD_BYTES + size
        if at > len(frame):
            raise ProtocolError(f"a request of {len(frame)} bytes can't have a name of {size}")
        name, unit = frame[HEAD_BYTES:at].decode(), None
        if number:
            unit, begun = self._units.get(number) or self._client.unit(number, flags)
            if flags & BEGIN:
                self._begun = begun
        options = NO_OPTIONS
        if flags & wire.OPTIONS:
            options, at = wireoptions.decode_options(frame, at)
        self._check_permitted(sessions.PUT, name)
        message, self._lsn = self._session.put_later(unit, name, frame[at:], options, soon=self._force_soon)
        return wire.put_reply(message, self._begun, name)

    def _put_many(self, request: Request, frame: bytes) -> Answer:
        unit = self._unit(request)
        options, at = NO_OPTIONS, request.at
        if request.flags & wire.OPTIONS:
            options, at = wireoptions.decode_options(frame, at)
        bodies = wire.decode_bodies(frame, at)
        self._check_permitted(sessions.PUT, request.name)
        with self._turn(len(bodies) > MAX_QUICK or len(frame) > MAX_QUICK_BYTES, self.sock):
            messages, self._lsn = self._session.put_many_later(unit, request.name, bodies, options)
        return wire.put_pages(messages, self._begun)

    def _sends(self, request: Request, frame: bytes) -> bytes:
        """Puts that the client has collected, with one answer: where one is refused, the unit of work is backed out."""
        sent, self._puts_done = self._puts_done, 0
        if not request.unit:
            raise ProtocolError("what is sent together is put to a unit of work")
        may_begin = 0 if sent else request.flags & BEGIN  # what another thread goes on with has begun by then
        unit, begun = self._client.unit(request.unit, may_begin)
        if request.flags & BEGIN:
            self._begun = begun
        try:
            puts = wire.decode_sends(frame, request.at, request.unit)
            while sent < len(puts):
                queue, bodies = wire.run_of(puts, sent)
                if len(bodies) > 1:
                    name = queue.decode()
                    self._check_permitted(sessions.PUT, name)
                    self._session.put_many_later(unit, name, bodies, NO_OPTIONS)
                else:
                    self._put(puts[sent])
                sent += len(bodies)
        except WouldWait:
            self._puts_done = sent
            raise
        except Exception:
            if unit.state is ACTIVE or unit._unit.evicted:
                try:
                    self._backout(request, frame)
                except WouldWait:  # the thread that makes it begins with what was refused: all before is put
                    self._puts_done = sent
                    raise
            raise
        return wire.reply(OK, b"", begun=self._begun)

    def _get(self, request: Request, frame: bytes) -> bytes:
        (wait,) = wire.unpack(wire.SECONDS, frame, request.at)
        options = wireoptions.decode_wanted(request.flags, frame, request.at + wire.SECONDS.size)
        unit, session, name = self._unit(request), self._session, request.name
        found = self._get_at_once(unit, name, 1, wait, options)
        if found:
            return wire.got_reply(found[0], self._begun, name)
        if found is not None and not wait:
            raise no_message(name)

        def get() -> Message | None:
            try:
                return session.get(unit, name, **options)
            except NoMessageAvailable:
                if not wait:
                    raise
                return None

        message = get()
        if message is None:
            message = self._waits.wait(get, name, wait, unit, wanted(options))
            if message is None:
                raise no_message(name)
        return wire.got_reply(message, self._begun, name)

    def _get_many(self, request: Request, frame: bytes) -> Answer:
        wait, limit = wire.unpack(wire.MANY, frame, request.at)
        options = wireoptions.decode_wanted(request.flags, frame, request.at + wire.MANY.size)
        unit, session, name = self._unit(request), self._session, request.name
        found = self._get_at_once(unit, name, limit, wait, options)
        if found or (found is not None and not wait):
            return wire.pages(found, self._begun)

        def get() -> list[Message]:
            try:
                with self._turn(limit > MAX_QUICK, self.sock):
                    return session.get_many(unit, name, limit, **options)
            except GaveUp:
                raise self._waits.not_got(name) from None

        messages = get()
        if not messages and wait:
            messages = self._waits.wait(get, name, wait, unit, wanted(options)) or []
        return wire.pages(messages, self._begun)

    def _turn(self, many: bool, sock: Socket | None = None) -> contextlib.AbstractContextManager[None]:
        """For a call with many messages: its turn; see `Turns.take`. WouldWait in a thread that may not wait for it."""
        if not many:
            return NO_TURN
        if not self._may_wait:
            raise WouldWait
        return self._turn_with_beats(sock)

    @contextlib.contextmanager
    def _turn_with_beats(self, sock: Socket | None) -> Iterator[None]:
        with self._pulse.beating(partial(self._turns.goes_on, MANY)), self._turns.take(MANY, sock):
            yield

    def _of_many(self, unit: UnitOfWork) -> bool:
        """Does it take long to end the unit of work?"""
        of = unit._unit
        return of.put_count + len(of.gets) > MAX_QUICK

    def _check_permitted(self, verb: str, name: str) -> None:
        """Raises WouldWait where a thread that may not wait would have to tell the error log of a refusal."""
        if not self._may_wait and not self._session.rights.permits(verb, name):
            raise WouldWait

    def _get_at_once(
        self, unit: UnitOfWork | None, name: str, limit: int, wait: float, options: GetOptions
    ) -> list[Message] | None:
        """What can be got at once; None: the caller has to find out, or wait.

        In a thread that may not wait it raises WouldWait instead of that. Raises as `Waits.not_got` where nobody waits
        for the answer any more, as after a pause of this process: what it took would be lost with the answer.
        """
        self._check_permitted(sessions.GET, name)
        if unit is None and sockets.peer_has_closed(self.sock):  # a unit of work ends with its client
            raise self._waits.not_got(name)
        now = self._session.get_now(unit, name, limit, options, soon=self._force_soon) if limit <= MAX_QUICK else None
        if now is not None:
            found, self._lsn = now
            if found or not wait:
                return found
        if not self._may_wait:
            raise WouldWait
        return None

    def _ending(self) -> Unavailable:
        name = self._session.manager.name
        return Unavailable(f"queue manager {name!r} is ending", reason=Reason.Q_MGR_STOPPING, name=name)

    def _browse(self, request: Request, frame: bytes) -> Answer:
        (most,) = wire.unpack(wire.TABLE, frame, request.at)
        options = wireoptions.decode_wanted(request.flags, frame, request.at + wire.TABLE.size)
        messages = self._session.browse(request.name, **options)
        check = partial(self._session.require_browse, request.name)
        return self._page(self._client.cursor(messages, check), most)

    def _replay(self, request: Request, frame: bytes) -> Answer:
        asked = _asked(frame, request.at, "queue", "most", "start", "end")
        queue, most = asked["queue"], asked["most"]
        check = partial(self._session.require_browse, queue)
        check()
        replay = self._session.manager.replay(queue, asked["start"], asked["end"])
        try:
            cursor = self._client.cursor(replay, check)
        except BaseException:
            replay.close()
            raise
        return self._page(cursor, most)

    def _next(self, request: Request, frame: bytes) -> Answer:
        (most,) = wire.unpack(wire.TABLE, frame, request.at)
        return self._page(self._client.known_cursor(request.unit), most)

    def _page(self, cursor: Cursor, most: int) -> Answer:
        """The next page of a browse or replay, of up to `most` messages; with the last one, or an error, it is over."""
        first = cursor.messages.bookmark if isinstance(cursor.messages, Replay) else ""
        try:
            found, more = cursor.next_page(max(1, most))
        except BaseException:
            self._client.drop(cursor.number)
            raise
        number = cursor.number if more else 0
        if isinstance(cursor.messages, Replay):
            places = [(one.message, one.lsn, one.place, one.time_us) for one in found if isinstance(one, Replayed)]
            replay = cursor.messages
            told: Answer = wire.replay_page(wire.ReplayPage(places, number, first, replay.bookmark, replay.left_out))
        else:
            told = wire.pages([one for one in found if isinstance(one, Message)], None, cursor=number)
        if not more:
            self._client.drop(cursor.number)
        return told

    def _close(self, request: Request, frame: bytes) -> bytes:
        self._client.drop(request.unit)
        return DONE

    # ---- units of work

    def _begin(self, request: Request, frame: bytes) -> bytes:
        told = frame[request.at :]
        xid = values.loads(told) if told else None
        if xid is not None and not isinstance(xid, Xid):
            raise ProtocolError("a unit of work begins with an Xid, or nothing")
        _, self._begun = self._client.begin(request.unit, xid)
        return wire.reply(OK, b"", begun=self._begun)

    def _state(self, request: Request, frame: bytes) -> bytes:
        state = self._client.state(request.unit)
        if state is not ACTIVE:
            self._lsn = self._session.tail  # any other state is told when it is durable
        return wire.reply(OK, values.dumps(state))

    def _commit(self, flags: int, number: int) -> bytes:
        unit, begun = self._units.get(number) or self._client.unit(number, flags)
        # Without `puts` the rounds log them once for all.
        with self._turn(self._of_many(unit)):
            self._lsn = self._session.commit_later(unit, puts=self._may_wait, soon=self._force_soon)
        if self._lsn:
            self._committed = number, unit
        else:
            self._client.ended(number, unit)
        return wire.reply(OK, b"", begun=begun) if flags & BEGIN else DONE

    def _backout(self, request: Request, frame: bytes) -> bytes:
        unit = self._client.to_back_out(request.unit, request.flags)
        if unit is not None:
            turn = self._turn(self._of_many(unit))  # where that has to be waited for, the unit of work is still known
            with turn:
                try:
                    self._lsn = self._session.backout_later(unit)
                finally:
                    if unit.state is not ACTIVE and unit.state is not PREPARED:
                        self._client.ended(request.unit, unit)
        return DONE

    def _prepare(self, request: Request, frame: bytes) -> bytes:
        unit = self._unit(request)
        if unit is None:
            raise ProtocolError("a unit of work is prepared")
        self._session.prepare(unit)
        return wire.reply(OK, b"", begun=self._begun)

    # ---- the other calls

    def _call(self, request: Request, frame: bytes) -> Answer:
        asked = _asked(frame, request.at, "args", "options")
        method, args, options = request.name, asked["args"], asked["options"]
        if not isinstance(args, list) or not isinstance(options, dict):
            raise ProtocolError("a call has a list of arguments and a mapping of options")
        if method == "end":
            return self._end(*args, **options)
        if method == "dead_letter":
            return self._dead_letter(self._unit(request), *args, **options)
        if asked.get("progress"):
            options["progress"] = self._pulse.tell_progress
        if method in METHODS:
            with self._turns.take(method, self.sock):
                return self._made(method, args, options)
        return self._made(method, args, options)

    def _made(self, method: str, args: list[Any], options: dict[str, Any]) -> bytes:
        if method == "outcome":  # of a unit of work whose number it knows: who may begin one may ask
            return wire.reply(OK, values.dumps(self._session.manager.outcome(*args, **options)))
        return wire.reply(OK, values.dumps(self._session.call(method, *args, **options)))

    def _end(self, mode: str = "quiesce") -> Answer:
        """Ask for the end of the queue manager, but only when the answer is sent: the end closes the socket."""
        self._session.rights.require(ADMIN, "")
        check_end_mode(mode)
        self._service.check_may_end()

        def answer_and_end() -> Iterator[bytes]:
            yield wire.reply(OK, values.dumps(None))
            self._service.ask_to_end(mode)

        return answer_and_end()

    def _dead_letter(self, unit: UnitOfWork | None, message: Message, reason: int) -> bytes:
        manager = self._session.manager
        self._session.rights.require(sessions.PUT, manager.attributes.dead_letter_queue)
        return wire.reply(OK, values.dumps(manager.dead_letter(unit, message, reason)), begun=self._begun)


def _asked(frame: bytes, at: int, *names: str) -> dict[str, Any]:
    """The mapping that a request without a format of its own carries, with at least these `names`.

    Raises ProtocolError, ValueError.
    """
    asked = values.loads(frame[at:])
    if not isinstance(asked, dict) or not set(names) <= set(asked):
        raise ProtocolError(f"a request of this kind says {', '.join(names)}")
    return asked
