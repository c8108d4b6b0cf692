"""The subscriptions of one STOMP connection: what is taken from a queue for it, sent, and not acknowledged yet.

A message goes this way: taken (held for this connection, so nobody else gets it) → to be sent (the log is being
forced, or the client does not read) → sent → acknowledged, refused, or given back. With `ack:auto` it is got when it
is taken.
"""

import enum
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Protocol

from qmgr.daemon.stomp_frames import END, Dialect, encode_headers
from qmgr.daemon.stomp_messages import message_headers, queue_of
from qmgr.delivery import Delivery, Watch
from qmgr.errors import Mistake, MQError, Reason, SyncpointLimit
from qmgr.logged import without_waiting
from qmgr.session import Session

PREFETCH = 100  # messages sent and not acknowledged, unless SUBSCRIBE says otherwise
MAX_PREFETCH = 1000
MAX_SUBSCRIPTIONS = 100  # of a connection
MAX_HELD = 5000  # messages that one connection holds
MAX_HELD_BYTES = 64 << 20  # of the bodies of these, which stay in memory
BATCH = 32  # messages taken at a time
MAX_ID_CHARS = 255
NOT_KEPT = ("browser", "exclusive", "activemq.exclusive")


class Ack(enum.Enum):
    AUTO = "auto"
    CLIENT = "client"  # an ACK is for all that was sent before, too
    INDIVIDUAL = "client-individual"


Sent = tuple[Delivery, list[str]]  # and the ids by which an ACK may name it


class Channel(Protocol):
    """What a subscription needs of its connection."""

    dialect: Dialect

    @property
    def writable(self) -> bool:
        """The client reads what it is sent."""

    def after(self, lsn: int, action: Callable[[], None]) -> None:
        """Do it when the log is safe up to the LSN, and after all that was to be done before."""

    def do_at_length(self, work: Callable[[], int], done: Callable[[int], None], what: str) -> None:
        """Do the work in a thread that may wait, then call `done(lsn)`. An error ends the connection."""

    def send(self, data: bytes) -> None: ...

    def next_turn(self, action: Callable[[], None]) -> None:
        """Do it when the loop has seen to the others."""

    def next_turn_threadsafe(self, action: Callable[[], None]) -> None:
        """The same for any thread. Raises MemoryError."""

    def go_on_later(self) -> None:
        """Have all subscriptions go on, a little later. Any thread; needs no memory."""

    def fail(self, error: MQError) -> None: ...

    def wall_us(self) -> int: ...


class Subscription:
    """One SUBSCRIBE: at its queue, until it is ended."""

    def __init__(
        self, group: "Subscriptions", name: str, destination: str, queue: str, ack: Ack, prefetch: int, named: bool
    ) -> None:
        self.queue = queue
        self.ack = ack
        self.name = name if named else None
        self.sent: dict[int, Sent] = {}  # by the number of sending, in that order
        self._accepting: list[Delivery] = []  # with ack:auto: taken, and not logged as got for want of room
        self._to_send: deque[Delivery] = deque()
        self._unforced = 0  # so many of `_to_send`, the last ones, wait for a force
        self._group = group
        self._channel = group.channel
        self._session = group.session
        self._prefetch = prefetch
        self._watch: Watch | None = None  # in line at the queue
        self._pumping = False
        self._sifting = False  # a thread is at it
        self._ended = False
        head = {"destination": destination} | ({"subscription": name} if named else {})
        self._head = b"MESSAGE\n" + encode_headers(self._channel.dialect, head)

    def pump(self) -> None:
        """Take what there is, as far as the client may have it; stand in line where there is nothing."""
        self._pumping = False
        try:
            self.take_more()
        except MQError as exc:
            if exc.reason is not Reason.Q_MGR_QUIESCING:  # those who end their work in order shall be able to
                self._channel.fail(exc)

    def take_more(self) -> None:
        """As `pump`, but raises what `Session.deliver` does: UnknownQueue, NotAuthorized, Inhibited …"""
        room = self._room()
        if room <= 0:
            self._unwatch()
            return
        if self._watch is not None and not self._watch.is_set():
            return
        watch = Watch(self._wake)
        taken: list[Delivery] = []

        def deliver() -> int:
            found, lsn = self._session.deliver(self.queue, room, watch, max(1, MAX_HELD_BYTES - self._group.bytes))
            taken.extend(found)
            return lsn

        lsn = without_waiting(deliver)
        if not isinstance(lsn, int):
            self._unwatch()
            self._sift(room)
            return
        self._watch = None if taken else watch
        if not taken:
            return
        got = without_waiting(lambda: self._accept(taken)) if self.ack is Ack.AUTO else 0
        self._group.hold(taken)
        if isinstance(got, int):
            self._queue_for_client(taken, max(lsn, got))
        else:
            self._accepting = taken
            self._channel.do_at_length(got, lambda end: self._queue_for_client(taken, max(lsn, end)), "MESSAGE")

    def _sift(self, room: int) -> None:
        """In a thread, as the log has no room: move away what was backed out too often, and then look for others."""

        def over() -> None:
            self._sifting = False
            self.pump_soon()

        self._sifting = True
        work = partial(self._session.requeue_next, self.queue, room)
        self._channel.do_at_length(work, lambda lsn: self._channel.after(lsn, over), "MESSAGE")

    def _accept(self, taken: list[Delivery]) -> int:
        try:
            return self._session.accept(taken)
        except MQError:
            self._session.release(taken)  # the client can't have seen them
            raise

    def _queue_for_client(self, taken: list[Delivery], lsn: int) -> None:
        """Have deliveries sent to the client, once the log is safe up to the LSN."""
        self._accepting = []
        self._to_send += taken
        self._unforced += len(taken)
        self._channel.after(lsn, lambda: self._forced(len(taken)))

    def pump_soon(self) -> None:
        """Pump in the loop's next turn: once, however many acknowledgements came, and after other connections."""
        if not self._pumping:
            self._channel.next_turn(self.pump)
            self._pumping = True

    def go_on(self) -> None:
        """The client reads again."""
        self._send_ready()
        self.pump()

    def end(self) -> list[Delivery]:
        """Take nothing more; return what is to be given back to the queue."""
        self._ended = True
        self._unwatch()
        if self.ack is Ack.AUTO:  # what is to be sent was got for the client, so it is sent
            self._send_ready()
            return []
        back = [*self._acknowledged(list(self.sent)), *self._to_send]
        self._to_send.clear()
        return back

    def unsent(self) -> list[Delivery]:
        """What the client can't have seen; none of what it got with ack:auto is given back."""
        return self._accepting if self.ack is Ack.AUTO else list(self._to_send)

    def take(self, number: int) -> list[Delivery]:
        """The deliveries that an ACK or NACK of this number is for: they do not wait for one any more."""
        numbers = [number] if self.ack is Ack.INDIVIDUAL else [*takewhile(number.__ge__, self.sent)]
        done = self._acknowledged(numbers)
        self.pump_soon()
        self._group.freed(done)
        return done

    def _acknowledged(self, numbers: list[int]) -> list[Delivery]:
        """Take them out of those that wait for an acknowledgement."""
        done = [self.sent.pop(number) for number in numbers]
        for _, ids in done:
            for one in ids:
                del self._group.waiting[one]
        return [delivery for delivery, _ in done]

    # ---- from the queue to the client

    def _room(self) -> int:
        group = self._group
        if self._ended or group.stopped or group.full or not self._channel.writable:
            return 0
        if self._sifting or self._accepting or self._to_send:
            return 0
        return min(BATCH, MAX_HELD - group.held, self._prefetch - len(self.sent))

    def _wake(self) -> None:
        """Called by any thread, under the queue manager's lock: an error here would stop the queue manager."""
        try:
            self._channel.next_turn_threadsafe(self.pump)
        except MemoryError:
            self._channel.go_on_later()

    def _unwatch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            self._session.unwatch(self.queue, watch)

    def _forced(self, count: int) -> None:
        self._unforced -= count
        self._send_ready()
        self.pump_soon()

    def _send_ready(self) -> None:
        """Send what waits for no force any more, as far as the client reads."""
        to_send, channel = self._to_send, self._channel
        while len(to_send) > self._unforced and (channel.writable or self._ended):
            delivery = to_send.popleft()
            message = delivery.message
            headers = message_headers(message, channel.wall_us)
            if self.ack is Ack.AUTO:
                self._group.freed([delivery])
            else:
                self._await_ack(delivery, headers)
            head = self._head + encode_headers(channel.dialect, headers)
            channel.send(b"%b\n%b%b" % (head, message.body, END))

    def _await_ack(self, delivery: Delivery, headers: dict[str, str]) -> None:
        """Number the delivery, and note the ids by which an ACK may name it.

        In 1.2 that is `ack`, else `message-id`, which some clients of 1.2 use as well. So where a message has the id of
        another one that waits, its number is added to that header.
        """
        group = self._group
        group.sent += 1
        number, one = group.sent, headers["message-id"]
        if one in group.waiting:
            one = headers["message-id"] = f"{one}-{number}"
        ids = [one]
        if not group.by_message_id:
            headers["ack"] = str(number)
            ids.append(headers["ack"])
        self.sent[number] = delivery, ids
        for each in ids:
            group.waiting[each] = self, number


class Subscriptions:
    """All subscriptions of a connection, and who waits for which acknowledgement."""

    def __init__(self, channel: Channel, session: Session) -> None:
        self.channel = channel
        self.session = session
        self.waiting: dict[str, tuple[Subscription, int]] = {}  # by id: what an ACK of it is for
        self.by_message_id = channel.dialect.version != "1.2"
        self.held = self.bytes = 0  # messages to be sent, or sent and not acknowledged; of their bodies
        self.kept = 0  # bytes of bodies that transactions have acknowledged, which `bytes` counts too
        self.sent = 0  # messages so far that wait for an ACK
        self.stopped = False  # no more deliveries
        self._by_name: dict[str, Subscription] = {}

    def subscribe(self, headers: dict[str, str]) -> None:
        """Raises Mistake, UnknownQueue (2085), NotAuthorized (2035), Inhibited (2016), Unavailable (2161) …"""
        queue = queue_of(headers)
        name = headers.get("id")
        if name is None and self.channel.dialect.version != "1.0":
            raise Mistake("SUBSCRIBE has no id header; STOMP has it since 1.1")
        named = name is not None
        name = headers["destination"] if name is None else name
        if not 1 <= len(name) <= MAX_ID_CHARS:
            raise Mistake(f"the id of a subscription has 1 to {MAX_ID_CHARS} characters, not {len(name)}")
        if name in self._by_name:
            raise Mistake(f"subscription {name!r} is there already; UNSUBSCRIBE ends it", reason=Reason.OBJECT_IN_USE)
        if len(self._by_name) >= MAX_SUBSCRIPTIONS:
            text = f"a STOMP connection may have {MAX_SUBSCRIPTIONS} subscriptions at a time; end some of them"
            raise Mistake(text, reason=Reason.HANDLE_NOT_AVAILABLE)
        _check_kept(headers)
        new = Subscription(self, name, headers["destination"], queue, _ack(headers), _prefetch(headers), named)
        self._by_name[name] = new
        new.take_more()

    def unsubscribe(self, headers: dict[str, str]) -> None:
        """End a subscription: what the client has not acknowledged returns to its place, uncounted. Raises Mistake."""
        name = headers.get("id", headers.get("destination", ""))
        subscription = self._by_name.pop(name, None)
        if subscription is None:
            raise Mistake(f"there is no subscription {name[:100]!r} to end")
        back = subscription.end()
        self.session.release(back)
        self.freed(back)

    def take(self, headers: dict[str, str]) -> list[Delivery]:
        """What an ACK or NACK is for. Raises Mistake (2209) where nothing waits for it."""
        usual, other = ("message-id", "id") if self.by_message_id else ("id", "message-id")
        name = headers.get(usual, headers.get(other))
        if name is None:
            raise Mistake(
                f"an ACK or NACK of STOMP {self.channel.dialect.version} has a header {usual}, "
                f"as the MESSAGE has it in its header {'message-id' if self.by_message_id else 'ack'}"
            )
        subscription, number = self.waiting.get(name, (None, 0))
        if subscription is None or headers.get("subscription", subscription.name) != subscription.name:
            raise Mistake(
                f"no message waits for an acknowledgement with id {name[:100]!r}: it has had one, or was given back",
                reason=Reason.NO_MSG_LOCKED,
            )
        return subscription.take(number)

    @property
    def full(self) -> bool:
        """The connection holds all that it may: one message always, whatever its transactions keep."""
        return self.held >= MAX_HELD or (self.bytes >= MAX_HELD_BYTES and self.held > 0)

    def hold(self, deliveries: list[Delivery]) -> None:
        self.held += len(deliveries)
        self.bytes += _body_bytes(deliveries)

    def forget(self, deliveries: list[Delivery]) -> None:
        self.held -= len(deliveries)
        self.bytes -= _body_bytes(deliveries)

    def keep(self, deliveries: list[Delivery]) -> int:
        """Count the bodies that a transaction has acknowledged: they are in memory until it ends. Returns their bytes.

        Raises SyncpointLimit (2024) where transactions keep all that they may.
        """
        if self.kept >= MAX_HELD_BYTES:
            raise SyncpointLimit(
                f"the transactions of a STOMP connection keep at most {MAX_HELD_BYTES} bytes of messages that they "
                f"have acknowledged; end some of them"
            )
        size = _body_bytes(deliveries)
        self.kept += size
        self.bytes += size
        return size

    def release_kept(self, size: int) -> None:
        """A transaction has ended: `size` bytes of bodies that it has kept are free."""
        full = self.full
        self.kept -= size
        self.bytes -= size
        if full:
            self._pump_all()

    def _pump_all(self) -> None:
        for one in list(self._by_name.values()):
            one.pump_soon()

    def freed(self, deliveries: list[Delivery]) -> None:
        """The connection holds these no more; where it had all that it may, each subscription may take some."""
        full = self.full
        self.forget(deliveries)
        if full:
            self._pump_all()

    def go_on(self) -> None:
        """The client reads again. Each is the first in its turn: there may not be room for all."""
        names = list(self._by_name)
        for name in names[:1]:
            self._by_name[name] = self._by_name.pop(name)
        for name in names:
            if name in self._by_name:
                self._by_name[name].go_on()

    def stop(self) -> None:
        """Nothing more is taken from any queue."""
        self.stopped = True
        for subscription in list(self._by_name.values()):
            subscription.pump_soon()

    def end(self, *, in_order: bool) -> None:
        """Gives back, uncounted, what the client can't have seen, and if it leaves in order all that it has."""
        while self._by_name:  # each stays there till it has ended: after a MemoryError this is called again
            name, subscription = next(iter(self._by_name.items()))
            unsent = subscription.unsent()
            back = subscription.end()
            self._by_name.pop(name)
            self.forget(back)
            self.session.release(back if in_order else unsent)


def _body_bytes(deliveries: list[Delivery]) -> int:
    return sum(len(one.message.body) for one in deliveries)


def _check_kept(headers: dict[str, str]) -> None:
    """Refuse what other servers offer and this one does not, where to ignore it would send messages the wrong way."""
    if "selector" in headers:
        raise Mistake("SUBSCRIBE has a selector; there are none here", reason=Reason.SELECTOR_ERROR)
    for name in NOT_KEPT:
        if headers.get(name) == "true":
            raise Mistake(f"SUBSCRIBE has {name}:true; here all subscribers of a queue take messages, and share them")


def _ack(headers: dict[str, str]) -> Ack:
    said = headers.get("ack", "auto")
    try:
        return Ack(said)
    except ValueError:
        raise Mistake(f"header ack is auto, client or client-individual, not {said[:100]!r}") from None


def _prefetch(headers: dict[str, str]) -> int:
    said = headers.get("prefetch-count", headers.get("activemq.prefetchSize", str(PREFETCH)))
    if not said.isascii() or not said.isdigit() or len(said) > 4 or not 1 <= int(said) <= MAX_PREFETCH:
        raise Mistake(f"header prefetch-count is a number of messages from 1 to {MAX_PREFETCH}, not {said[:100]!r}")
    return int(said)
