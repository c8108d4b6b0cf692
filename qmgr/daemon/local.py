"""The listener of the client protocol: a Unix socket always, TCP where it is configured.

A client has a session with an anchor, which carries no calls: when that closes the session ends, its units of work are
backed out and its calls given up. Its other sockets carry one call at a time; one thread answers the quick ones of all
sockets (rounds.py), but with TLS each socket has a thread of its own.
"""

import contextlib
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from logger.posix_disk import PosixDisk
from qmgr import installed, sasl, sockets, values, wire
from qmgr.daemon.accepting import accept_all
from qmgr.daemon.beats import Beats
from qmgr.daemon.calls import Calls
from qmgr.daemon.client import Client
from qmgr.daemon.face import ServiceFace
from qmgr.daemon.hands import start_thread
from qmgr.daemon.rounds import Rounds
from qmgr.daemon.strangers import Stranger, Strangers
from qmgr.daemon.tls import certified, context_of, say_why
from qmgr.daemon.turns import Turns
from qmgr.daemon.watcher import Watcher
from qmgr.errors import MQError, NotAuthorized, Reason, Unavailable
from qmgr.infos import Peer
from qmgr.ini import ListenerConfig
from qmgr.session import AllRights, Rights
from qmgr.sockets import Gone, Socket
from qmgr.threads import go_on
from qmgr.verbs import MAX_WAIT_S
from qmgr.wire import ProtocolError

END_GRACE_NS = 2_000_000_000  # for calls that are under way at the end
ROOM_POLL_S = 0.1  # until it is asked again whether there is room for a stranger


@attrs.frozen(kw_only=True)
class Place:
    """Where a listener listens, and how it knows who comes."""

    name: str  # for errors and threads
    listener: str  # for operators
    bind: Callable[[], tuple[Socket, Callable[[], None]]]  # the socket, and what undoes it
    welcome: Callable[[Socket], Socket]  # makes a socket that was accepted ready for frames
    peer: Callable[[Socket, dict[str, Any]], tuple[Peer, Rights, bytes]]  # with a proof for it; raises NotAuthorized


class LocalListener:
    """The clients of one place. `start`, `refuse` and `close` are as in `Listener`."""

    def __init__(self, service: ServiceFace, place: Place) -> None:
        self._service = service
        self._place = place
        self._clients = Clients(service, place.listener)
        self._listening: Socket | None = None
        self._unbind: Callable[[], None] = lambda: None
        self._strangers = Strangers(service.clock.elapsed_ns, partial(service.say, "AMQ9032", name=place.listener))
        self._by_socket: dict[Socket, tuple[Stranger, Socket]] = {}  # and a duplicate to hang up: TLS empties the first
        self._refusing = self._closed = False

    def start(self) -> None:
        """Bind and accept. Raises OSError."""
        self._clients.start()
        self._listening, self._unbind = self._place.bind()
        start_thread(partial(self._accept, self._listening), f"qmgr {self._place.name}")

    @property
    def address(self) -> Any:
        """What it is bound to."""
        return self._listening.getsockname() if self._listening is not None else None

    def refuse(self) -> None:
        """No new sessions; those that are there go on, and may open more sockets."""
        self._refusing = True

    def close(self) -> None:
        """Close all connections; their sessions end at once. Calls that are under way are answered, if that is soon."""
        self.refuse()
        self._closed = True
        listening, self._listening = self._listening, None
        if listening is not None:
            self._unbind()
            sockets.close(listening)
        for _, handle in list(self._by_socket.values()):
            sockets.hang_up(handle)
        self._clients.close()

    def _accept(self, listening: Socket) -> None:
        accept_all(
            self._service, self._place.listener, listening, lambda: self._closed, lambda sock, _: self._let_in(sock)
        )

    def _let_in(self, sock: Socket) -> None:
        """Wait for room among the strangers; then a thread serves it. Raises OSError, RuntimeError, MemoryError."""
        handle = sock.dup()
        while (stranger := self._strangers.admit(partial(sockets.hang_up, handle))) is None:
            self._service.clock.wait(threading.Event(), ROOM_POLL_S)
        self._by_socket[sock] = stranger, handle
        try:
            start_thread(lambda: self._serve(sock), f"qmgr {self._place.name} client")
        except (RuntimeError, MemoryError):
            self._leave_strangers(sock)
            raise

    def _leave_strangers(self, sock: Socket) -> None:
        """The socket counts no more among the strangers: it is known now, or closed."""
        known = self._by_socket.pop(sock, None)
        if known is not None:
            self._strangers.leave(known[0])
            known[1].close()

    def _serve(self, accepted: Socket) -> None:
        """One socket, from its first frame to its end, unless it is an anchor."""
        sock, kept = accepted, False
        try:
            sock = self._place.welcome(accepted)
            sockets.limit_send(sock, self._service.channels.connect_timeout)
            kept = self._handshake(accepted, sock)
        except Exception as exc:
            self._say_why(accepted, sock, exc)
        finally:
            self._leave_strangers(accepted)
            if not kept:
                sockets.close(sock)

    def _say_why(self, accepted: Socket, sock: Socket, exc: Exception) -> None:
        """Tell the client why its socket is closed, if it is still there; the error log too, of what is no MQError."""
        if isinstance(exc, Gone):
            return
        if isinstance(exc, MemoryError):  # which has no text, and is not the client's fault
            text = "the queue manager has no memory for what was sent"
            peer = sockets.name_of(accepted, self._place.name)
            self._service.say("AMQ9213", text=f"{text} by {peer}; give it more, or lower MAXMSGL")
            exc = Unavailable(f"the connection is closed: {text}", reason=Reason.CONNECTION_BROKEN)
        elif not isinstance(exc, MQError):
            self._service.say("AMQ9207", peer=sockets.name_of(accepted, self._place.name), text=str(exc))
            exc = Unavailable(f"the connection is closed: {exc}", reason=Reason.CONNECTION_BROKEN)
        sockets.send_if_room(sock, wire.error_reply(exc))

    def _handshake(self, accepted: Socket, sock: Socket) -> bool:
        """The first frame says what the socket is. True: an anchor, which nobody reads, or one that `Calls` closes."""
        service = self._service
        frame = _first_frame(service, sock)
        if not frame:
            return False
        op, version, rest = wire.decode_hello(frame)
        if version != wire.VERSION:
            raise Unavailable(
                f"queue manager {service.manager.name!r} (qmgr {installed.version()}) speaks version {wire.VERSION} of "
                f"the client protocol, and this client version {version}; install the same version of qmgr on both "
                f"sides",
                reason=Reason.FUNCTION_NOT_SUPPORTED,
                name=service.manager.name,
            )
        if op == wire.HELLO:
            self._open(accepted, sock, self._hello(rest))
        else:
            self._join(accepted, sock, self._clients.find(rest))
        return True

    def _open(self, accepted: Socket, sock: Socket, told: dict[str, Any]) -> None:
        """A new session, of which the socket is the anchor."""
        peer, rights, proof = self._place.peer(sock, told)
        client = self._clients.open(sock, peer, rights, told)
        self._leave_strangers(accepted)
        self._welcome(sock, client, proof)

    def _join(self, accepted: Socket, sock: Socket, client: Client) -> None:
        """One more socket for the calls of a client; with TLS this thread serves it until its end."""
        service, clients = self._service, self._clients

        def on_end(exc: Exception | None) -> None:
            client.leave(sock)
            with contextlib.suppress(Exception):  # there may be no memory for that
                if exc is not None:
                    self._say_why(accepted, sock, exc)
            sockets.close(sock)

        calls = Calls(service, client, sock, clients.watcher, clients.beats, clients.turns, on_end)
        client.join(sock, calls)
        lost: Exception | None = None
        try:
            self._leave_strangers(accepted)
            sockets.limit_receive(sock, 0.0)
            sockets.limit_send(sock, service.channels.idle_timeout)
            sock.sendall(wire.reply(wire.OK, b""))
            if not isinstance(sock, ssl.SSLSocket):
                clients.rounds.add(calls)
                return
            calls.serve()
        except Exception as exc:
            lost = exc
        calls.end(lost)

    def _hello(self, rest: bytes) -> dict[str, Any]:
        """What a client that wants a session says of itself, checked. Raises ProtocolError, Unavailable."""
        if self._refusing:
            name = self._service.manager.name
            raise Unavailable(f"queue manager {name!r} is ending", reason=Reason.Q_MGR_QUIESCING, name=name)
        try:
            told = values.loads(rest)
        except ValueError as exc:
            raise ProtocolError(f"the first frame of a client can't be understood: {exc}") from exc
        known = {"manager": str, "application": str, "process": int, "replaces": str, "mechanism": str, "first": bytes}
        told = {"patience": 0.0} | told if isinstance(told, dict) else told
        if not isinstance(told, dict) or not all(isinstance(told.get(name), kind) for name, kind in known.items()):
            raise ProtocolError("the first frame of a client says which queue manager it wants, and who it is")
        if not isinstance(told["patience"], float) or not 0 <= told["patience"] <= MAX_WAIT_S:
            raise ProtocolError("the patience of a client is a number of seconds")
        name = self._service.manager.name
        if told["manager"] != name:
            text = f"this is queue manager {name!r}, not {told['manager'][:48]!r}"
            raise Unavailable(text, reason=Reason.Q_MGR_NAME_ERROR, name=name)
        return told

    def _welcome(self, sock: Socket, client: Client, proof: bytes) -> None:
        facts = {
            "manager": self._service.manager.name,
            "product": installed.version(),
            "session": client.token.hex(),
            "number": client.session.number,
            "longest": self._service.channels.max_frame_length,
            "calls": client.max_calls,
            "proof": proof,
        }
        try:
            sock.sendall(wire.reply(wire.WELCOME, values.dumps(facts)))
            self._clients.watch(client)
        except BaseException:
            self._clients.end(client)
            raise


class Clients:
    """The clients of one listener, by the token that each of them has been given."""

    def __init__(self, service: ServiceFace, listener: str) -> None:
        self._service = service
        self._listener = listener
        self.watcher = Watcher()
        self.beats = Beats(service.clock)
        self.turns = Turns(service.clock)
        self.rounds = Rounds(service, self.beats)
        self._clients: dict[bytes, Client] = {}

    def start(self) -> None:
        self.watcher.start()
        self.beats.start()
        self.rounds.start()

    def open(self, anchor: Socket, peer: Peer, rights: Rights, told: dict[str, Any]) -> Client:
        """A new session. What it replaces is ended first."""
        old = self._clients.get(bytes.fromhex(told["replaces"])) if told["replaces"] else None
        if old is not None and old.session.peer.user == peer.user:
            self.end(old)
        session = self._service.authority.open(self._listener, peer, rights)
        token = PosixDisk().entropy(wire.TOKEN_BYTES)
        client = self._clients[token] = Client(session, anchor, token, told["patience"])
        session.on_stop = lambda: self._end_soon(client)
        session.on_quiesce = client.recheck_waits
        return client

    def watch(self, client: Client) -> None:
        """From now on the session ends when its anchor is closed."""
        self.watcher.add(client.anchor, lambda: self._end_soon(client))

    def _end_soon(self, client: Client) -> None:
        """In a thread of its own, since the log may have to be waited for; other clients go at the same time."""
        try:
            start_thread(lambda: go_on(partial(self.end, client)), "qmgr client end")
        except (RuntimeError, MemoryError):  # the system has no more threads
            self.end(client)

    def find(self, token: bytes) -> Client:
        client = self._clients.get(token)
        if client is None:
            raise Unavailable("this session is over; connect again", reason=Reason.CONNECTION_BROKEN)
        return client

    def end(self, client: Client) -> None:
        self._clients.pop(client.token, None)
        client.close()

    def close(self) -> None:
        clients = list(self._clients.values())
        busy = [over for client in clients for over in client.close(kindly=True)]
        clock = self._service.clock
        deadline = clock.elapsed_ns() + END_GRACE_NS
        for over in busy:
            clock.wait(over, max(0.0, (deadline - clock.elapsed_ns()) / 1e9))
        for client in clients:
            sockets.close(client.anchor)
        self._clients.clear()
        self.rounds.close()
        self.watcher.close()
        self.beats.close()


def make(service: ServiceFace, config: ListenerConfig | None) -> LocalListener:
    """The listener for clients of this machine, or one over TCP. Raises IniError for files of TLS that are not good."""
    return LocalListener(service, _unix(service) if config is None else _tcp(service, config))


def _unix(service: ServiceFace) -> Place:
    """The Unix socket: its file's permissions say who may connect, and the kernel says who it is."""
    path = service.location.socket

    def peer(sock: Socket, told: dict[str, Any]) -> tuple[Peer, Rights, bytes]:
        process, user = sockets.peer_of(sock)
        peer = Peer(user=user, application=told["application"][:60], process=process or told["process"])
        return peer, AllRights(user), b""

    def bind() -> tuple[Socket, Callable[[], None]]:
        sock, number = sockets.listen_unix(path)
        return sock, lambda: sockets.remove_unix(path, number)

    return Place(name=path, listener=path, bind=bind, welcome=lambda sock: sock, peer=peer)


def _tcp(service: ServiceFace, config: ListenerConfig) -> Place:
    context = context_of(service, config)

    def welcome(sock: Socket) -> Socket:
        sockets.tune(sock)
        if context is None:
            return sock
        try:
            return sockets.with_tls(sock, context, service.channels.connect_timeout)
        except OSError as exc:  # an SSLError is one
            say_why(service, config, exc)
            raise

    def peer(sock: Socket, told: dict[str, Any]) -> tuple[Peer, Rights, bytes]:
        address = _address(sock)
        user, proof = authenticate(service, config, sock, told)
        rights = service.authority.rights(user) if user else AllRights()
        peer = Peer(
            user=user, application=told["application"][:60], process=told["process"], channel="TCP", address=address
        )
        return peer, rights, proof

    return Place(
        name=f"{config.address}:{config.port}",
        listener=config.name,
        bind=lambda: (sockets.listen_tcp(config.address, config.port), lambda: None),
        welcome=welcome,
        peer=peer,
    )


def _address(sock: Socket) -> str:
    return "{}:{}".format(*sock.getpeername()[:2])


MECHANISM_NEEDS = {  # what a client gives `connect`, which never sends a password as PLAIN does
    sasl.SCRAM: "user and password",
    sasl.EXTERNAL: "certificate and key, and no user",
    "NONE": "neither user nor certificate",
}


def authenticate(service: ServiceFace, config: ListenerConfig, sock: Socket, told: dict[str, Any]) -> tuple[str, bytes]:
    """(the user, "" where nobody is asked; the last data of the mechanism for the client).

    Raises NotAuthorized, which the error log hears of.
    """
    try:
        return _authenticated(service, config, sock, told)
    except NotAuthorized as exc:
        service.authority.refused(exc.name, exc, _address(sock))
        raise


def _authenticated(
    service: ServiceFace, config: ListenerConfig, sock: Socket, told: dict[str, Any]
) -> tuple[str, bytes]:
    """The client has named a mechanism and sent its first part; challenges and answers follow until it is known."""
    mechanism = told["mechanism"]
    if mechanism not in config.authentication:
        ways = ", ".join(config.authentication)
        text = f"listener {config.name!r} takes {ways} for who comes, and not {mechanism[:40]!r}"
        given = " or ".join(MECHANISM_NEEDS[way] for way in config.authentication if way in MECHANISM_NEEDS)
        raise NotAuthorized(f"{text}; give {given}" if given else text)
    if mechanism == "NONE":
        return "", b""
    shown = certified(sock) if isinstance(sock, ssl.SSLSocket) else None
    exchange = service.authority.exchange(mechanism, shown)
    data = told["first"]
    while True:
        answer = exchange.step(data)
        if answer.user is not None:
            return answer.user, answer.data
        sock.sendall(wire.reply(wire.CHALLENGE, answer.data))
        frame = _first_frame(service, sock)
        if not frame:
            raise EOFError("the client has closed the connection before it was known")
        request = wire.decode_request(frame)
        if request.op != wire.ANSWER:
            raise ProtocolError("a challenge is answered before anything else")
        data = frame[request.at :]


def _first_frame(service: ServiceFace, sock: Socket) -> bytes:
    """A frame of a client that is not authenticated yet, within bounds of size and time; b"" where it has left."""
    seconds = service.channels.connect_timeout
    sockets.limit_receive(sock, seconds)
    return sockets.receive(sock, wire.MAX_FIRST_FRAME_BYTES, seconds, service.clock.elapsed_ns)
