"""RemoteUnit: a unit of work that a daemon carries out, with the methods and errors of `UnitOfWork`."""

import contextlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from qmgr import values, wire
from qmgr.errors import BackedOut, MQError, Reason, Unavailable, UnitOfWorkEnded
from qmgr.link import Broken, Link, NotSent, lost
from qmgr.message import Message, check_bodies, check_body
from qmgr.sends import Sends
from qmgr.threads import this_thread
from qmgr.verbs import GetOptions, PutOptions, check_limit, check_wait
from qmgr.wire import OK
from recovery.records import Xid
from recovery.uows import ACTIVE, BACKED_OUT, COMMITTED, PREPARED, UowState


class Owner(Protocol):
    """The connection of a unit of work."""

    name: str

    def note_unknown(self, unit_id: int, since: int) -> None:
        """The answer to a commit was lost."""


PARENTS_UNIT = "this unit of work is the parent's of this process; a forked child begins another one"


def wire_wait(wait: Any) -> float:
    """Seconds as a request has them. Raises Mistake."""
    if wait == 0.0 and type(wait) is float:
        return 0.0
    seconds = check_wait(wait)
    return wire.FOR_EVER if seconds is None else float(seconds)


def maybe_in_doubt(number: int, name: str) -> Unavailable:
    """The error of calls of a prepared unit of work whose connection is lost, and of a prepare in which it is lost."""
    return Unavailable(
        f"the connection of unit of work {number}, which is prepared or may be, was lost; if in_doubt() names its Xid, "
        f"it is in doubt: end it with resolve(xid, True) or resolve(xid, False); else outcome({number}) tells",
        reason=Reason.CONNECTION_BROKEN,
        name=name,
    )


def leaves_open(refusal: MQError) -> bool:
    """Does this answer to a commit or prepare say for sure that nothing came of it?"""
    return not isinstance(refusal, (Unavailable, UnitOfWorkEnded)) and type(refusal) is not MQError


class RemoteUnit:
    """Puts and gets that happen wholly or not at all. As a `with` block it commits, or backs out on an exception.

    It begins with its first call, which brings its number.
    """

    _told = False  # a commit has said that it was rolled back, or can only be backed out
    _daemon_state = ACTIVE  # when it was asked last

    def __init__(self, connection: Owner, link: Link, xid: Xid | None) -> None:
        self._connection = connection
        self._link = link
        self._xid = xid
        self.thread = this_thread()  # that began it
        self._number = next(link.units)  # by which the daemon and we call it in this session
        self._begin_flag = wire.BEGIN  # of every request until the first answer
        self._asked = False
        self._id = 0
        self._since_lsn = 0  # it has logged nothing before
        self._state = ACTIVE
        self._outcome_unknown = False  # the answer to a commit was lost, or that the queue manager has stopped in it
        self._ending = False  # a commit or prepare is on its way, or was interrupted: nothing more can be sent
        self._end_asked = 0  # COMMIT or PREPARE: the daemon may have done it, and nobody has heard whether
        self._sends: Sends | None = None  # from the first one on

    def __repr__(self) -> str:
        return f"<RemoteUnit {self._id or 'not begun'} {self._state.value}>"

    @property
    def id(self) -> int:
        """The number of the unit of work: unique over all restarts. Asks the daemon for it before the first call.

        0 where the connection was lost before the daemon has told it, or the unit has ended without any call.
        """
        if not self._id and not self._link.broken and self._state is ACTIVE:
            self._check()
            self._ask(wire.request(wire.BEGIN_UNIT, wire.BEGIN, self._number, "", b""))
        return self._id

    @property
    def state(self) -> UowState:
        """What the daemon says, or said last before the connection was lost: then `commit` and `backout` say more.

        Active as long as sent puts are not answered, which may have been refused; prepared where the answer to a
        prepare was lost.
        """
        if self._state in (ACTIVE, PREPARED) and self._link.broken:
            return self._state if self._daemon_state is ACTIVE else self._daemon_state
        if self._state not in (ACTIVE, PREPARED) or self._begin_flag:
            return self._state
        if self._sends is not None and self._sends.has_unanswered:
            return self._state
        answer, head = self._ask(wire.request(wire.STATE, 0, self._number))
        state: UowState = values.loads(answer[head.at :])
        self._daemon_state = state
        if state is COMMITTED:  # by a call that was interrupted
            self._end_as(COMMITTED)
        return state

    @property
    def xid(self) -> Xid | None:
        return self._xid

    @property
    def _is_open(self) -> bool:
        """It was neither ended nor prepared, as far as is known here: it may have been rolled back. Asks nobody.

        Raises Unavailable (2009) where the connection turns out to be lost.
        """
        if self._state is not ACTIVE or self._outcome_unknown:
            return False
        if not self._end_asked:  # else its commit says what is known of it then
            self._link.check(self._connection.name)
        return True

    # ---- asking

    def begin(self, xid: Xid) -> None:
        """Begin it now, with an xid."""
        self._ask(wire.request(wire.BEGIN_UNIT, wire.BEGIN, self._number, "", values.dumps(xid)))

    @property
    def _named(self) -> str:
        """What error texts call it; it has no number before its first call."""
        return f"unit of work {self._id}" if self._id else "this unit of work"

    def _check(self) -> None:
        """May it go on? Raises UnitOfWorkEnded, BackedOut, Unavailable (2018: a forked child's parent has it; 2009)."""
        if self._link.forked:
            raise Unavailable(PARENTS_UNIT, reason=Reason.HCONN_ERROR)
        if self._end_asked and self._link.broken:
            self._note_lost_end()
        if self._outcome_unknown:
            raise UnitOfWorkEnded(self._ask_for_outcome())
        if self._state is COMMITTED or self._state is BACKED_OUT:
            raise UnitOfWorkEnded(f"{self._named} is {self._state.value}; begin another one")
        if self._link.broken:
            if self._state is PREPARED:
                raise maybe_in_doubt(self._id, self._connection.name)
            raise BackedOut(
                f"{self._named} was backed out when its connection was lost; back it out and start it again"
            )

    def _settle(self) -> None:
        """Check that it can go on, and have all put that was sent before. Raises what was refused of that."""
        self._check()
        if self._sends is not None:
            try:
                self._sends.finish()
            except Broken as exc:
                raise lost(self._connection.name, exc) from exc
            self._check()  # again, since another thread may have heard meanwhile that it is over

    def _settle_and_end(self, end: Callable[[], None]) -> None:
        """Have all put that was sent before, then `end` it by a commit or prepare. From now on `send` is refused.

        It stays refused after an interrupt, as the daemon may have done it or not.
        """
        self._ending = True  # before it is looked whether anything was sent
        self._link.is_lost()  # then nothing of this is done, and it is known that the unit was backed out
        try:
            try:
                self._settle()
            except Unavailable:
                self._check_if_lost()
                raise
            end()
        except MQError:
            self._ending = False
            raise

    def _check_if_lost(self) -> None:
        """No end was asked for: so if the connection is lost by now, raise what became of the unit."""
        if self._link.is_lost():
            self._check()

    def _ask_to_end(self, op: int) -> bytes:
        """Ask for its end, and return the answer. Raises Broken, or MQError where nothing was asked for."""
        asked, self._end_asked = self._end_asked, self._end_asked or op  # before: an interrupt may strike
        self._asked = True
        try:
            return self._link.exchange(wire.request(op, self._begin_flag, self._number))
        except (NotSent, MQError) as exc:
            self._end_asked = asked
            self._check_if_lost()
            if isinstance(exc, NotSent):
                raise lost(self._connection.name, exc) from exc
            raise

    def _note_lost_end(self) -> None:
        """The connection is lost, and with it the answer to a commit or prepare."""
        if self._state is ACTIVE and self._end_asked == wire.PREPARE:
            self._state = PREPARED  # or not: to say that it was backed out would be a guess
        elif self._state is ACTIVE:
            self._outcome_unknown = True
            self._connection.note_unknown(self._id, self._since_lsn)

    def _ask_for_outcome(self) -> str:
        return (
            f"the connection was lost, or the queue manager has stopped, in the commit of unit of work {self._id}, and "
            f"whether it was committed is not known here; outcome({self._id}) tells"
        )

    def _ask(self, frame: bytes, *, waits: bool = False) -> tuple[bytes, wire.Reply]:
        self._asked = True
        try:
            answer = self._link.exchange(frame, waits=waits)
        except Broken as exc:
            raise lost(self._connection.name, exc) from exc
        return answer, self._decode(answer)

    def _ask_many(self, frame: bytes, *, waits: bool = False) -> list[tuple[bytes, wire.Reply]]:
        self._asked = True
        try:
            answers = self._link.stream(frame, waits=waits)
        except Broken as exc:
            raise lost(self._connection.name, exc) from exc
        return [(answer, self._decode(answer)) for answer in answers]

    def _decode(self, answer: bytes) -> wire.Reply:
        head = wire.decode_reply(answer)
        if head.begun is not None and not self._id:
            self._id, self._since_lsn = head.begun
            self._begin_flag = 0
            self._link.open_units[self._number] = self
        if head.op == wire.ERROR:
            raise wire.error(answer, head)
        return head

    def _begin_sends(self) -> Sends:
        with self._link.lock:  # of several threads the first one makes it
            if self._sends is None:
                self._sends = Sends(self._link, self._check_sending, self._send_together, self._decode_sends)
            return self._sends

    def _check_sending(self) -> None:
        if self._state is not ACTIVE or self._link.broken or self._outcome_unknown or self._ending:
            self._check()
            raise UnitOfWorkEnded(f"{self._named} is being committed or prepared; begin another one")

    def _send_together(self, puts: list[bytes]) -> bytes:
        self._asked = True
        self._link.open_units[self._number] = self  # begun by the time of the answer, which may be heard late
        return wire.sends(self._begin_flag, self._number, puts)

    def _decode_sends(self, answer: bytes) -> None:
        """Where one of several puts was refused, the daemon has backed out the unit of work."""
        try:
            self._decode(answer)
        except UnitOfWorkEnded:
            raise
        except MQError:
            self._end_as(BACKED_OUT)
            raise

    def _discard_sends(self, sends: Sends) -> bool:
        """Forget what was sent, once nothing of it is on its way; is the unit backed out by now?"""
        try:
            sends.forget()
        except Broken:
            self._end_as(BACKED_OUT)
        return self._state is BACKED_OUT

    def _end_as(self, state: UowState) -> None:
        self._link.open_units.pop(self._number, None)
        self._state = state

    # ---- calls

    def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message, which others see when the unit of work is committed; see `QueueManager.put`."""
        if self._state is not ACTIVE or self._link.broken or self._outcome_unknown or self._sends is not None:
            self._settle()
        if type(body) is not bytes:
            body = check_body(body)
        frame = wire.put(self._begin_flag, self._number, queue, body, options)
        self._asked = True
        try:
            answer = self._link.exchange(frame)
        except Broken as exc:
            raise lost(self._connection.name, exc) from exc
        if answer[4:8] == wire.OK_ALONE:
            return Message(body, answer[8:], queue)
        return wire.put_message(answer, self._decode(answer), queue, body)

    def send(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> None:
        """Put a message without waiting to hear of it: many go to the daemon together (an asynchronous put).

        What is wrong with one is raised here, or by a later call of the unit of work, its commit at the latest; the
        unit is backed out then.
        """
        if self._state is PREPARED:
            self.put(queue, body, **options)  # which is refused
        sends = self._sends
        if sends is None or self._link.broken:
            self._check()
            sends = self._begin_sends()
        try:
            checked = body if type(body) is bytes else check_body(body)
            sends.add(wire.put(0, self._number, queue, checked, options))
        except Broken as exc:
            raise lost(self._connection.name, exc) from exc
        except (UnitOfWorkEnded, BackedOut):  # which may mean that it is prepared, and that is not ours to undo
            raise
        except Exception:
            if self._state is ACTIVE:
                with contextlib.suppress(MQError):
                    self.backout()
            raise

    def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body, all with the same options; all of them are put, or none."""
        self._settle()
        checked = check_bodies(bodies)
        answers = self._ask_many(wire.put_many(self._begin_flag, self._number, queue, checked, options))
        return wire.put_messages(answers, queue, checked)

    def get(self, queue: str, *, wait: float | None = 0.0, **options: Unpack[GetOptions]) -> Message:
        """Take a message, which is gone when the unit of work is committed; see `QueueManager.get`."""
        if self._state is not ACTIVE or self._link.broken or self._outcome_unknown or self._sends is not None:
            self._settle()
        seconds = wire_wait(wait)
        frame = wire.get(self._begin_flag, self._number, queue, seconds, options)
        answer, head = self._ask(frame, waits=seconds != 0.0)
        return wire.got_message(answer, head, queue)

    def get_many(
        self, queue: str, limit: int, *, wait: float | None = 0.0, **options: Unpack[GetOptions]
    ) -> list[Message]:
        """Take up to `limit` messages, waiting for the first of them only; [] when there is none."""
        self._settle()
        seconds = wire_wait(wait)
        frame = wire.get_many(self._begin_flag, self._number, queue, check_limit(limit), seconds, options)
        return wire.got_messages(self._ask_many(frame, waits=seconds != 0.0), queue)

    def dead_letter(self, message: Message, reason: int) -> Message:
        """As `Connection.dead_letter`."""
        self._settle()
        told = wire.call("dead_letter", [message, reason], {}, flags=self._begin_flag, unit=self._number)
        answer, head = self._ask(told, waits=True)
        put: Message = values.loads(answer[head.at :])
        return put

    # ---- its end

    def prepare(self) -> None:
        """First phase: when this returns the unit of work is in doubt, whatever crashes, until it is resolved.

        Unavailable (2009) when the connection was lost: then it may be in doubt, or is backed out.
        """
        self._settle_and_end(self._prepare)

    def _prepare(self) -> None:
        try:
            answer = self._ask_to_end(wire.PREPARE)
        except Broken as exc:
            self._note_lost_end()
            raise maybe_in_doubt(self._id, self._connection.name) from exc
        self._decode_end(answer)
        self._state, self._end_asked = PREPARED, 0

    def _decode_end(self, answer: bytes) -> None:
        """Raise the error that the answer to a commit or prepare tells, and note what is known of the end then."""
        try:
            self._decode(answer)
        except MQError as exc:
            if self._begin_flag or leaves_open(exc):
                self._end_asked = 0
            elif isinstance(exc, Unavailable):  # it has stopped, and nobody knows what reached the disk
                self._note_lost_end()
            raise

    def commit(self) -> None:
        """Return when all of it is durable. Raises BackedOut (2003) when the queue manager has rolled it back.

        Unavailable (2009) when the connection was lost before the answer came: `Connection.outcome` tells what it was;
        when it was prepared, it may be in doubt.
        """
        try:
            self._settle_and_end(self._commit)
        except BackedOut:
            self._told = True
            raise

    def _commit(self) -> None:
        if not self._asked:  # nothing was done in it
            self._state = COMMITTED
            return
        try:
            answer = self._ask_to_end(wire.COMMIT)
        except Broken as exc:
            self._note_lost_end()
            if self._state is PREPARED:
                raise maybe_in_doubt(self._id, self._connection.name) from exc
            text = self._ask_for_outcome()
            raise Unavailable(text, reason=Reason.CONNECTION_BROKEN, name=self._connection.name) from exc
        if answer[4] != OK or self._begin_flag:
            self._decode_end(answer)
        self._end_as(COMMITTED)

    def backout(self) -> None:
        """Undo all of it; messages that were got return to their places with a higher backout count."""
        known = self._state is ACTIVE and not self._outcome_unknown and not self._end_asked
        if known and not self._link.forked and self._link.broken:
            self._end_as(BACKED_OUT)  # the daemon did so when the connection was lost
            if self._sends is not None:
                self._sends.drop()
            return
        self._check()
        if self._sends is not None and self._state is ACTIVE and self._discard_sends(self._sends):
            return
        if self._asked:
            try:
                self._ask(self._backout_request())
            except Unavailable as exc:
                if exc.reason != Reason.CONNECTION_BROKEN:
                    if known and exc.reason == Reason.Q_MGR_STOPPING:
                        self._end_as(BACKED_OUT)  # by the queue manager, as it ended at once
                    raise
                if self._state is PREPARED or self._end_asked:
                    self._check_if_lost()
                    raise
        self._end_as(BACKED_OUT)

    def _backout_request(self) -> bytes:
        """Its first request, which may be on its way, is refused then; not where it may be committed or prepared."""
        never = self._state is ACTIVE and not self._end_asked
        return wire.request(wire.BACKOUT, wire.BEGIN if never else self._begin_flag, self._number)

    def _leave(self) -> None:
        """Back it out, as nobody will use it again: at once or, if no socket is free, as soon as one is."""
        try:
            self.backout()
        except UnitOfWorkEnded:
            pass
        except MQError:
            self._leave_to_link()
        except BaseException:  # an interrupt: the daemon may have heard of it or not
            self._leave_to_link()
            raise

    def _leave_to_link(self) -> None:
        if self._state is ACTIVE and not self._outcome_unknown and not self._link.broken:
            self._link.back_out_later(self._backout_request())
            if not self._end_asked:
                self._end_as(BACKED_OUT)

    def give_up(self) -> None:
        """Back it out, unless it is in doubt, before this thread ends its queue manager, which would wait for it."""
        if self._state is ACTIVE:
            self._ask(self._backout_request())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None and self._state is ACTIVE:
                self.commit()
        finally:
            if self._state is ACTIVE:  # an exception came, or struck in the commit
                self._leave()
