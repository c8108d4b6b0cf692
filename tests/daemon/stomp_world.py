"""A queue manager with a STOMP listener in this process, and a client that speaks bare frames over a real socket."""

import contextlib
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import attrs

import qmgr
from logger.clock import Clock, SystemClock
from qmgr.configuration import ChannelsConfig, ListenerConfig, Protocol
from qmgr.daemon.stomp import StompListener
from qmgr.daemon.stomp_times import Timing
from qmgr.locations import Location
from qmgr.session import Sessions

DEADLINE = 30.0  # seconds; never reached but by a fault
QUICK = Timing(connect=DEADLINE, frame=DEADLINE, beat=0.2, wanted_beat=0.5, tick=0.05, linger=1.0)


@attrs.define
class Service:
    """What the daemon is for a listener."""

    manager: qmgr.QueueManager
    channels: ChannelsConfig
    authority: Any = None
    clock: Clock = attrs.Factory(SystemClock)
    said: list[tuple[str, dict[str, Any]]] = attrs.Factory(list)
    location: Location = attrs.Factory(lambda self: self.manager._location, takes_self=True)

    @property
    def sessions(self) -> Sessions:
        return self.manager.sessions

    def say(self, amq: str, **inserts: Any) -> None:
        self.said.append((amq, inserts))
        self.manager.say(amq, **inserts)

    def check_may_end(self) -> None:
        raise NotImplementedError("no STOMP client can ask for it")

    def ask_to_end(self, mode: str) -> None:
        raise NotImplementedError("no STOMP client can ask for it")


def config_of(**options: Any) -> ListenerConfig:
    given: dict[str, Any] = {"name": "stomp", "protocol": Protocol.STOMP, "port": 0, "authentication": ("NONE",)}
    return ListenerConfig(**(given | options))


@contextlib.contextmanager
def serving(
    manager: qmgr.QueueManager, timing: Timing = QUICK, authority: Any = None, limits: Any = None, **options: Any
) -> Iterator["Server"]:
    service = Service(manager, ChannelsConfig(**(limits or {})), authority)
    manager.sessions.limit = service.channels.limit
    listener = StompListener(service, config_of(**options), timing)
    listener.start()
    try:
        yield Server(manager, service, listener)
    finally:
        listener.close()


@contextlib.contextmanager
def queue_manager(path: Path, *queues: str) -> Iterator[qmgr.QueueManager]:
    """One on the real disk, with threads of its own."""
    qmgr.create("QM1", data_path=path, log_file_pages=256, log_primary_files=2, log_secondary_files=1)
    with qmgr.start("QM1", data_path=path) as manager:
        for queue in queues:
            manager.define_queue(queue)
        yield manager


@attrs.define
class Server:
    qm: qmgr.QueueManager
    service: Service
    listener: StompListener

    @property
    def port(self) -> int:
        return self.listener.port

    def client(self, **headers: str) -> "Client":
        """Connected, 1.2 unless told otherwise."""
        client = self.stranger()
        client.connect(**headers)
        return client

    def stranger(self, context: ssl.SSLContext | None = None) -> "Client":
        """Nothing said yet."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Client(plain if context is None else context.wrap_socket(plain, server_hostname="localhost"))

    def bodies(self, queue: str) -> list[bytes]:
        return [message.body for message in self.qm.browse(queue)]

    def counts(self, queue: str) -> dict[bytes, int]:
        return {message.body: message.backout_count for message in self.qm.browse(queue)}

    def all_gone(self) -> None:
        """Wait until the sessions of all clients are over."""
        self.all_gone_but(0)

    def all_gone_but(self, count: int) -> None:
        eventually(lambda: len(self.qm.sessions) == count and len(self.listener._connections) == count)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.005)


@attrs.define
class Got:
    """A frame from the server."""

    command: str
    headers: dict[str, str]
    body: bytes

    def __getitem__(self, name: str) -> str:
        return self.headers[name]


SAID = {"\\n": "\n", "\\c": ":", "\\\\": "\\", "\\r": "\r"}


def said(text: str) -> str:
    parts, at = [], 0
    while at < len(text):
        width = 2 if text[at] == "\\" else 1
        piece = text[at : at + width]
        parts.append(SAID.get(piece, piece))
        at += width
    return "".join(parts)


class Client:
    """Frames over a socket, and nothing of the code that is tested."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.received = b""
        self.beats = 0
        self.receipts = 0
        self.waiting: deque[Got] = deque()  # messages that came while a receipt was waited for

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    @staticmethod
    def frame(command: str, body: bytes = b"", /, **headers: str) -> bytes:
        """Names with `_` for `-`."""
        lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items())]
        return "\n".join(lines).encode() + b"\n\n" + body + b"\0"

    def say(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        self.raw(self.frame(command, body, **headers))

    def ask(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Say it, and wait until it was done and is safe."""
        self.receipts += 1
        self.say(command, body, **headers, receipt=f"r{self.receipts}")
        while (got := self.read()).command == "MESSAGE":
            self.waiting.append(got)
        assert (got.command, got.headers.get("receipt-id")) == ("RECEIPT", f"r{self.receipts}"), got

    def connect(self, **headers: str) -> Got:
        self.say("CONNECT", **({"accept_version": "1.2", "host": "qm"} | headers))
        got = self.read()
        assert got.command == "CONNECTED", got
        return got

    def send(self, queue: str, body: bytes, **headers: str) -> None:
        self.ask("SEND", body, destination=f"/queue/{queue}", **headers)

    def subscribe(self, queue: str, ack: str = "client-individual", **headers: str) -> None:
        self.say("SUBSCRIBE", destination=f"/queue/{queue}", ack=ack, **({"id": "s1"} | headers))

    def message(self) -> Got:
        got = self.waiting.popleft() if self.waiting else self.read()
        assert got.command == "MESSAGE", got
        return got

    def error(self) -> Got:
        """The ERROR that comes next; after it nothing does."""
        got = self.read()
        assert got.command == "ERROR", got
        assert self.at_end()
        return got

    def read(self) -> Got:
        while True:
            self.received = self._without_beats(self.received)
            head, end, rest = self.received.partition(b"\n\n")
            if end:
                command, *lines = head.decode().split("\n")
                headers: dict[str, str] = {}
                for line in lines:
                    name, _, value = line.partition(":")
                    headers.setdefault(said(name), said(value))
                length = headers.get("content-length")
                at = int(length) if length is not None else rest.find(b"\0")
                if 0 <= at < len(rest) - 1:
                    assert rest[at : at + 2] == b"\0\n"
                    self.received = rest[at + 2 :]
                    return Got(command, headers, rest[:at])
            data = self.socket.recv(1 << 16)
            assert data, f"the connection was closed; unread: {self.received!r}"
            self.received += data

    def await_beats(self, count: int, answers: bool = False) -> None:
        """Until so many have come; each is answered, or none."""
        while self.beats < count:
            data = self.socket.recv(1 << 16)
            assert data, "the connection was closed"
            self.received = self._without_beats(self.received + data)
            if answers:
                self.raw(b"\n")

    def _without_beats(self, data: bytes) -> bytes:
        left = data.lstrip(b"\n")
        self.beats += len(data) - len(left)
        return left

    def at_end(self) -> bool:
        """The server has closed the connection; waits for something to come."""
        try:
            data = self._without_beats(self.received or self.socket.recv(1 << 16))
        except ConnectionResetError:
            return True
        self.received = data
        return not data
