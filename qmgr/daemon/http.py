"""The HTTP listener: a thread for each connection, requests bounded in size and time, answers by `http_messaging`.

It is off unless qm.ini has a Listener stanza with Protocol=HTTP. /healthz, `OPTIONS *`, and /metrics where the stanza
says so, are answered for anybody who can connect; all else takes a user (Basic over TLS, a client certificate), or NONE
on loopback.
"""

import base64
import binascii
import contextlib
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Collection
from functools import partial
from http import HTTPStatus
from typing import Any

from qmgr import sockets
from qmgr.configuration import ListenerConfig
from qmgr.daemon import metrics
from qmgr.daemon.accepting import accept_all
from qmgr.daemon.face import ServiceFace
from qmgr.daemon.http_frames import END, MAX_HEAD_BYTES, BadRequest, Head, Response, bad, check_begin, parse
from qmgr.daemon.http_messaging import Messaging, failure
from qmgr.daemon.strangers import Stranger, Strangers
from qmgr.daemon.tls import certified, context_of, say_why
from qmgr.errors import IniError, MQError, NotAuthorized
from qmgr.infos import Peer
from qmgr.session import AllRights, Rights, Session
from qmgr.threads import Thread

METHODS = "GET, HEAD, POST, DELETE, OPTIONS"  # of all that a listener has
CHUNK_BYTES = 65_536
TLS_HANDSHAKE = b"\x16\x03"  # how its record begins
ROOM_POLL_S = 0.005  # until it is asked again whether there is room
LINGER_S = 2.0  # for a client to hear why it was refused
PORT = re.compile(":[0-9]*$")
IPV6 = re.compile("[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")  # without the brackets that it should have


class HttpListener:
    """Accepts connections; what they may do is found out with each request."""

    def __init__(self, service: ServiceFace, config: ListenerConfig) -> None:
        self.service = service
        self.config = config
        self.context = context_of(service, config)
        self.address: tuple[str, int] | None = None  # once it listens
        self.refusing = False
        self._socket: socket.socket | None = None
        self._open: set[Connection] = set()
        self._lock = threading.Lock()
        self.metrics = metrics.Answers(self._measure)
        self.strangers = Strangers(service.clock.elapsed_ns, partial(service.say, "AMQ9032", name=config.name))

    def start(self) -> None:
        listening = sockets.listen_tcp(self.config.address, self.config.port)
        self._socket = listening
        self.address = listening.getsockname()[:2]
        name = self.config.name
        accept = partial(accept_all, self.service, name, listening, lambda: self._socket is None, self._let_in)
        Thread(accept, f"LISTENER-{name}").start()

    def _let_in(self, accepted: socket.socket, address: tuple[Any, ...]) -> None:
        """Wait for room among the strangers; then a thread serves it. Raises OSError, RuntimeError, MemoryError."""
        connection = Connection(self, accepted, f"{address[0]}:{address[1]}")
        with self._lock:
            if self._socket is None:
                raise ConnectionAbortedError("the listener is closed")
            self._open.add(connection)  # `close` hangs it up from now on
        try:
            while (stranger := self.strangers.admit(connection.hang_up)) is None:
                if self._socket is None:
                    raise ConnectionAbortedError("the listener is closed")
                self.service.clock.wait(threading.Event(), ROOM_POLL_S)
            connection.stranger = stranger
            Thread(connection.run, f"HTTP-{address[1]}").start()
        except (OSError, RuntimeError, MemoryError):
            self.forget(connection)
            raise

    def _measure(self) -> bytes:
        return metrics.exposition(self.service.manager, len(self.service.sessions)).encode()

    def forget(self, connection: "Connection") -> None:
        with self._lock:
            self._open.discard(connection)
        connection.leave_strangers()

    def refuse(self) -> None:
        """Take no new connections. Those that are there get one more answer each, unless `close` is first."""
        self.refusing = True
        self._stop_listening()

    def close(self) -> None:
        self._stop_listening()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.hang_up()

    def _stop_listening(self) -> None:
        with self._lock:
            listening, self._socket = self._socket, None
        if listening is not None:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # which wakes the thread in accept
            listening.close()


class Connection:
    """A client's connection: requests one after the other, each within its time.

    Only its own thread closes the socket; other threads call `hang_up`.
    """

    def __init__(self, listener: HttpListener, accepted: socket.socket, address: str) -> None:
        self._listener = listener
        self._service = listener.service
        self._socket = accepted
        self._address = address
        self._hung_up = False
        self._read = b""  # what has come and is not used yet
        self._session: Session | None = None
        self._credentials: str | None = None  # that the session was opened with
        self.stranger: Stranger | None = None  # until it has one

    # ---- its life

    def run(self) -> None:
        try:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                self._shake_hands()
                while self._serve():
                    pass
                self._say_end()
        finally:
            self.close()
            if self._session is not None:
                self._session.close()
            self._listener.forget(self)

    def _shake_hands(self) -> None:
        if self._listener.context is not None:
            self._socket.settimeout(self._service.channels.connect_timeout)
            wrap = self._listener.context.wrap_socket
            try:
                self._socket = wrap(self._socket, server_side=True, do_handshake_on_connect=False)
                if self._hung_up:  # perhaps just before that
                    raise ConnectionAbortedError
                self._socket.do_handshake()
            except (ssl.SSLError, TimeoutError) as exc:
                say_why(self._service, self._listener.config, exc)
                raise

    def hang_up(self) -> None:
        """Let its thread find the socket closed. For any thread: to close it would free its number for another one."""
        self._hung_up = True
        sockets.hang_up(self._socket)

    def close(self) -> None:
        """For its own thread, or while it has none."""
        sockets.close(self._socket)

    def leave_strangers(self) -> None:
        stranger, self.stranger = self.stranger, None
        if stranger is not None:
            self._listener.strangers.leave(stranger)

    # ---- one request

    def _serve(self) -> bool:
        """Answer one request; False when it was the last. Raises OSError when the client is gone, or too slow."""
        head, is_last = None, False
        try:
            head = self._head()
            if head is None:
                return False
            response = self._answer(head)
        except BadRequest as exc:
            response, is_last = _response_to(exc), True  # where its body ends is not known, or it was not read
        except MQError as exc:
            response = failure(exc)
            is_last = self._session is None  # it was not let in and its body not read, so no next request can be found
        keep_alive = head is not None and head.keep_alive and not is_last and not self._listener.refusing
        without_body = head is not None and head.method == "HEAD"
        now = self._service.clock.wall_us()
        self._send(response.encode(wall_us=now, keep_alive=keep_alive, without_body=without_body))
        if is_last:
            self._linger()
        return keep_alive

    def _linger(self) -> None:
        """Read on for a moment, since a client that still sends would be cut off before it has heard why."""
        within = self._now_s() + LINGER_S
        self._say_end()
        self._socket.shutdown(socket.SHUT_WR)
        while self._receive(within, CHUNK_BYTES):
            self._read = b""

    def _say_end(self) -> None:
        """Over TLS, say that nothing more comes, so that the client knows it from a cut. Own thread; does not wait."""
        if isinstance(self._socket, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):  # the client does not read, or is gone; or it is said
                self._socket.setblocking(False)
                self._socket.unwrap()

    def _head(self) -> Head | None:
        """The head of the next request; None when the client sends no more. Raises BadRequest, OSError."""
        known = self._session is not None
        channels = self._service.channels
        within = self._now_s() + (channels.idle_timeout if known else channels.connect_timeout)
        while (length := self._head_bytes()) < 0 or length > MAX_HEAD_BYTES:
            if length > 0 or len(self._read) > MAX_HEAD_BYTES:
                text = f"the head is over {MAX_HEAD_BYTES} bytes long"
                raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
            try:
                if not self._receive(within, MAX_HEAD_BYTES):
                    return None
            except TimeoutError:
                if not self._read:
                    raise
                raise _timed_out("the head of the request was") from None
            if self._read.startswith(TLS_HANDSHAKE):  # its client would wait until the time is up
                raise bad("this listener speaks HTTP without TLS, and the client begins with TLS")
            check_begin(self._read)
        data, _, self._read = self._read.partition(END)
        return parse(data, channels.max_frame_length)

    def _head_bytes(self) -> int:
        """Bytes of the head, -1 until all of it has come. Empty lines before it do not count (RFC 9112, 2.2)."""
        self._read = self._read.lstrip(b"\r\n")
        return self._read.find(END)

    def _body(self, head: Head) -> bytes:
        """The body of a request; sends `100 Continue` where the client waits for it. Raises BadRequest, OSError."""
        if head.expects:
            self._send(b"HTTP/1.1 100 Continue" + END)
        body = bytearray(self._read[: head.length])  # no list of pieces: many small ones take many times the memory
        missing = head.length - len(body)
        self._read = self._read[head.length :]
        within = self._now_s() + self._service.channels.idle_timeout
        while missing > 0:
            try:
                if not self._receive(within, min(missing, CHUNK_BYTES)):
                    raise ConnectionError("the client is gone")
            except TimeoutError:
                raise _timed_out("the body of the request was") from None
            body += self._read
            missing -= len(self._read)
            self._read = b""
        return bytes(body)

    def _now_s(self) -> float:
        return self._service.clock.elapsed_ns() / 1e9

    def _receive(self, within: float, most: int) -> bool:
        self._socket.settimeout(max(0.001, within - self._now_s()))
        data = self._socket.recv(most)
        self._read += data
        if data and self.stranger is not None:
            self.stranger.spoken = True
        return bool(data)

    def _send(self, data: bytes) -> None:
        sockets.send_all(self._socket, data, self._service.channels.idle_timeout)

    def gone(self) -> bool:
        """Has the client closed the connection, as far as can be seen? Asked while a call waits and when it is done."""
        if sockets.peer_has_closed(self._socket):  # sees it even behind bytes that are not read yet
            return True
        self._socket.setblocking(False)
        try:
            if isinstance(self._socket, ssl.SSLSocket):  # which can't be looked into without reading
                if len(self._read) > MAX_HEAD_BYTES:
                    return False
                data = self._socket.recv(MAX_HEAD_BYTES)
                self._read += data
                return not data
            return not self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            return True

    def _answer(self, head: Head) -> Response:
        manager = self._service.manager
        if not head.path:
            if head.length:
                raise bad("OPTIONS * has no body")
            return Response(status=HTTPStatus.NO_CONTENT, headers={"Allow": METHODS})
        if head.path == ("healthz",):
            _check_read_only(head)
            return Response(body=b"ok\n", content_type="text/plain") if manager.healthy else _not_running()
        if head.path == ("metrics",) and self._listener.config.metrics:
            _check_read_only(head)
            return Response(body=self._listener.metrics.get(), content_type=metrics.CONTENT_TYPE)
        session = self._session_for(head)
        return Messaging(session, self._now_s, self.gone).answer(head, self._body(head))

    def _session_for(self, head: Head) -> Session:
        """The session of the user this request is from: a new one where its credentials are not those of the last."""
        credentials = head.headers.get("authorization", "")
        nobody_is_asked = self._listener.config.authentication == ("NONE",)
        if nobody_is_asked:
            _check_host(head.headers.get("host", ""), self._listener.config.address)
        if self._session is not None and credentials == self._credentials:
            return self._session
        if self._session is not None:
            self._session.close()
            self._session = None
        user = "" if nobody_is_asked else self._user(credentials)
        rights: Rights = AllRights() if nobody_is_asked else self._service.authority.rights(user)
        peer = Peer(
            user=user, application=head.headers.get("user-agent", "")[:64], channel="HTTP", address=self._address
        )
        self._session = self._service.authority.open(self._listener.config.name, peer, rights)
        self._session.on_stop = self.hang_up
        self.leave_strangers()
        self._credentials = credentials
        return self._session

    def _user(self, credentials: str) -> str:
        """Who a request is from, by the client's certificate or by credentials. Raises BadRequest (401, 400, 503)."""
        mechanisms, user = self._listener.config.authentication, ""
        try:
            if "EXTERNAL" in mechanisms and not credentials and isinstance(self._socket, ssl.SSLSocket):
                return self._service.authority.exchange("EXTERNAL", certified(self._socket)).step(b"").user or ""
            user, password = _decode_basic(credentials) if "PLAIN" in mechanisms else ("", "")
            self._service.authority.check_password(user, password)
            return user
        except NotAuthorized as exc:
            self._service.authority.refused(user, exc, self._address)
            if isinstance(exc.__cause__, IniError | OSError):  # users.json can't be read: another password is no help
                raise BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, exc.sentence) from exc
            raise BadRequest(HTTPStatus.UNAUTHORIZED, _who(user, mechanisms)) from exc


def _check_read_only(head: Head) -> None:
    """Raises BadRequest (405)."""
    if head.method not in ("GET", "HEAD") or head.length:
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "use GET", Allow="GET, HEAD")


def _who(user: str, mechanisms: Collection[str]) -> str:
    """Why nobody knows who asks, and what to do: only what this listener takes."""
    if user:
        return "the user is not known, or the password is wrong; give those that `qm setuser` has set"
    ways = {
        "PLAIN": "give a user and a password (Authorization: Basic)",
        "EXTERNAL": "show a certificate that an authority of TLSClientCA has signed, and no Authorization",
    }
    return "nobody knows who asks; " + ", or ".join(way for each, way in ways.items() if each in mechanisms)


def _check_host(host: str, address: str) -> None:
    """Refuse a request for a host name other than localhost and the listener's own. Raises BadRequest (403).

    It may come from a web page whose own host name was made to resolve to this machine (DNS rebinding), so that a
    browser here lets it ask.
    """
    name = (host if IPV6.fullmatch(host) else PORT.sub("", host)).removesuffix(".").lower()
    if name not in ("", "localhost", address.lower()):
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            text = f"a listener that asks nobody who they are is asked by its address, or as localhost, not as {name!r}"
            raise BadRequest(HTTPStatus.FORBIDDEN, text) from None


def _decode_basic(credentials: str) -> tuple[str, str]:
    scheme, _, encoded = credentials.partition(" ")
    if scheme.lower() != "basic":
        raise NotAuthorized("no user was named")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise bad("Authorization is not that of Basic") from None
    if not colon:
        raise NotAuthorized("no user was named")
    return user, password


def _timed_out(what: str) -> BadRequest:
    return BadRequest(HTTPStatus.REQUEST_TIMEOUT, f"{what} not complete in time (IdleTimeout, ConnectTimeout)")


def _response_to(exc: BadRequest) -> Response:
    response = failure(exc)
    if exc.status is HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Basic realm="qmgr", charset="UTF-8"'
    return response


def _not_running() -> Response:
    return Response(
        status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"the queue manager is not running\n", content_type="text/plain"
    )
