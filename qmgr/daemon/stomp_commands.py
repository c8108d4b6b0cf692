"""What the frames of a STOMP client mean: CONNECT, then puts, deliveries and units of work of one session."""

import asyncio
from collections.abc import Callable
from functools import partial

import attrs

from qmgr.daemon.stomp_connection import Connection
from qmgr.daemon.stomp_frames import DIALECTS, V10, Dialect, Frame, trimmed
from qmgr.daemon.stomp_login import Credentials, Login
from qmgr.daemon.stomp_messages import put_options, queue_of
from qmgr.daemon.stomp_subscriptions import Subscriptions
from qmgr.daemon.stomp_transactions import Transaction, Transactions
from qmgr.daemon.tls import common_name
from qmgr.delivery import Delivery
from qmgr.errors import Mistake, MQError, Reason, Unavailable
from qmgr.infos import Peer
from qmgr.logged import Outcome, without_waiting
from qmgr.session import Rights, Session, Sessions
from qmgr.threads import go_on
from qmgr.verbs import PutOptions

MAX_APPLICATION_CHARS = 28  # as MQ's APPLTAG has


@attrs.define
class Shared:
    """What the commands of all connections of a listener share."""

    sessions: Sessions
    login: Login
    loop: asyncio.AbstractEventLoop
    refusal: Callable[[], MQError | None]  # of one more client
    ending: bool = False  # no new work


class StompCommands:
    """One client: before CONNECT it has no session, and after its end neither."""

    def __init__(self, shared: Shared, connection: Connection) -> None:
        self._shared = shared
        self._connection = connection
        self._session: Session | None = None
        self._repeated: tuple[dict[str, str], str, PutOptions] | None = None  # headers of SENDs, and what they say
        self._subscriptions: Subscriptions
        self._transactions: Transactions

    def do(self, frame: Frame) -> Outcome:
        """Do what the frame asks for; the LSN to force before the client hears of it, 0: none. Raises MQError.

        Where the log has no room the work itself is returned, for a thread that may wait.
        """
        session = self._session
        if session is None:
            self._connect(frame)
            return 0
        match frame.command:
            case "SEND":
                return self._send(session, frame)
            case "ACK":
                return self._acknowledge(session, frame.headers)
            case "NACK":
                return self._refuse(session, frame.headers)
            case "BEGIN":
                self._check_not_ending()
                self._transactions.begin(_transaction(frame))
            case "COMMIT":
                return self._transactions.commit(_transaction(frame))
            case "ABORT":
                return self._transactions.abort(_transaction(frame))
            case "SUBSCRIBE":
                self._check_not_ending()
                self._subscriptions.subscribe(frame.headers)
            case "UNSUBSCRIBE":
                self._subscriptions.unsubscribe(frame.headers)
            case "DISCONNECT":
                self._disconnect(frame)
            case _:
                raise Mistake("the client is connected already", reason=Reason.ALREADY_CONNECTED)
        return 0

    def go_on(self) -> None:
        """The client reads again."""
        if self._session is not None:
            self._subscriptions.go_on()

    def stop_deliveries(self) -> None:
        """The queue manager is ending: what is held may be acknowledged, and nothing new comes."""
        if self._session is not None:
            self._subscriptions.stop()

    def end(self, *, in_order: bool) -> None:
        """The client has left in order, or is gone: what it has begun is backed out."""
        session = self._session
        if session is not None:
            try:
                self._subscriptions.end(in_order=in_order)
            finally:
                self._close(session)
            self._session = None  # now, since this is called again where memory fails

    def _close(self, session: Session) -> None:
        try:
            closed = session.close_without_waiting()
        except MemoryError:  # nobody else would do it: a thread tries until there is some
            closed = partial(_close_some_time, session)
        if not isinstance(closed, int):
            self._connection.do_at_length(closed, lambda lsn: None, "DISCONNECT")

    # ---- CONNECT

    def _connect(self, frame: Frame) -> None:
        """Agree on version and heart-beats, find out who the client is, and open its session. Raises MQError."""
        if frame.command not in ("CONNECT", "STOMP"):
            raise Mistake(f"the first frame is CONNECT, not {frame.command}", reason=Reason.HCONN_ERROR)
        refusal = self._shared.refusal()
        if refusal is not None:
            raise refusal
        headers = frame.headers
        dialect = _dialect(headers)
        if dialect.trims:  # the frame was read before its dialect was known
            headers = trimmed(headers)
        offered, wanted = _heart_beat(headers)
        certified = common_name(self._connection.certificate)
        said = Credentials(headers.get("login", ""), headers.get("passcode"), certified, self._connection.address)
        application = "".join(filter(str.isprintable, headers.get("client-id", "")))[:MAX_APPLICATION_CHARS]

        def admit(rights: Rights) -> None:
            connection = self._connection
            peer = Peer(user=rights.user, application=application, channel="STOMP", address=connection.address)
            session = self._shared.sessions.open(peer, rights)
            connection.dialect = dialect
            connection.times.agree(offered=offered, wanted=wanted)
            self._session = session
            session.on_stop = lambda: connection.next_turn_threadsafe(lambda: connection.fail(_stopped()))
            session.on_quiesce = lambda: connection.next_turn_threadsafe(connection.stop_deliveries)
            self._subscriptions = Subscriptions(connection, session)
            self._transactions = Transactions(session, self._subscriptions.release_kept)
            timing = connection.times.timing
            offers = f"{timing.beat * 1000:.0f},{timing.wanted_beat * 1000:.0f}"
            told = {"version": dialect.version, "heart-beat": offers, "server": "qmgr", "session": str(session.number)}
            connection.send_frame("CONNECTED", told)
            connection.accepted()

        if self._shared.login.open:
            admit(self._shared.login.rights(said))
            return
        self._connection.hold_up()  # checking a password takes a while, so it is done in another thread
        checked = self._shared.loop.run_in_executor(None, self._shared.login.rights, said)
        checked.add_done_callback(lambda rights: self._checked(rights, admit))

    def _checked(self, rights: "asyncio.Future[Rights]", admit: Callable[[Rights], None]) -> None:
        if self._connection.closed:
            rights.exception()  # it has been told
            return
        try:
            admit(rights.result())
        except MQError as exc:
            self._connection.fail(exc)

    # ---- messages

    def _send(self, session: Session, frame: Frame) -> Outcome:
        headers = frame.headers
        what = self._repeated
        if what is None or what[0] is not headers:
            what = headers, queue_of(headers), put_options(headers, self._connection.wall_us)
            self._repeated = what if frame.repeats and "expires" not in headers else None
        _, queue, options = what
        name = headers.get("transaction")
        unit = None
        if name is not None:
            unit = self._transactions.named(name).unit
        elif self._shared.ending:
            self._check_not_ending()
        return without_waiting(lambda: session.put_later(unit, queue, frame.body, options)[1])

    def _acknowledge(self, session: Session, headers: dict[str, str]) -> Outcome:
        name = headers.get("transaction")
        if name is None:
            done = self._subscriptions.take(headers)
            return without_waiting(lambda: session.accept(done, None))
        transaction, taken = self._take_for(name, headers)
        return without_waiting(lambda: session.accept(taken, transaction.unit))

    def _refuse(self, session: Session, headers: dict[str, str]) -> Outcome:
        if headers.get("requeue") == "false":
            text = "NACK has requeue:false; what is refused goes back, or where BOTHRESH and BOQNAME of its queue say"
            raise Mistake(f"{text}; ACK it to be rid of it")
        name = headers.get("transaction")
        if name is None:
            return session.reject_without_waiting(self._subscriptions.take(headers))
        transaction, taken = self._take_for(name, headers)
        self._transactions.refuse(transaction, taken)
        return 0

    def _take_for(self, name: str, headers: dict[str, str]) -> tuple[Transaction, list[Delivery]]:
        """The transaction of that name, and what an ACK or NACK in it is for, whose bodies it keeps. Raises MQError."""
        transaction = self._transactions.named(name)  # first, as it may raise: then no message is taken
        taken = self._subscriptions.take(headers)
        transaction.kept += self._subscriptions.keep(taken)
        return transaction, taken

    def _disconnect(self, frame: Frame) -> None:
        receipt = frame.headers.pop("receipt", None)
        if receipt is not None:
            self._connection.acknowledge(receipt)
        self._connection.finish()

    def _check_not_ending(self) -> None:
        if self._session is not None and self._session.quiescing:
            raise self._session.quiescing_error()
        if self._shared.ending:
            raise Unavailable("the queue manager is ending; nothing new can begin", reason=Reason.Q_MGR_QUIESCING)


def _close_some_time(session: Session) -> int:
    go_on(session.close)
    return 0


def _stopped() -> MQError:
    return Unavailable("an operator has stopped this connection", reason=Reason.CONNECTION_STOPPING)


def _transaction(frame: Frame) -> str:
    name = frame.headers.get("transaction")
    if name is None:
        raise Mistake(f"{frame.command} has no transaction header")
    return name


def _dialect(headers: dict[str, str]) -> Dialect:
    """The newest version that both speak. Raises Mistake where there is none."""
    said = headers.get("accept-version")
    if said is None:
        return V10
    versions = {version.strip() for version in said.split(",")}
    both = [dialect for version, dialect in DIALECTS.items() if version in versions]
    if not both:
        raise Mistake(f"STOMP {', '.join(DIALECTS)} are spoken here, and the client accepts {said[:100]!r}")
    return both[-1]


def _heart_beat(headers: dict[str, str]) -> tuple[float, float]:
    """(what the client offers, what it wants), seconds between two; 0: none."""
    said = headers.get("heart-beat", "0,0")
    parts = [part.strip() for part in said.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise Mistake(f"header heart-beat is two numbers of milliseconds, as 10000,10000, not {said[:100]!r}")
    offered, wanted = (int(part) / 1000 for part in parts)
    return offered, wanted
