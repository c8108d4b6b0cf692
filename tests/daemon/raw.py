"""A client of the client protocol that sends whatever a test wants, byte by byte."""

import socket
from pathlib import Path
from typing import Any

from qmgr import sockets, values, wire
from tests.daemon.serving import LONG, location
from tests.qmgr.world import NAME

MOST = 1 << 30


class RawSocket:
    """One socket."""

    def __init__(self, path: Path) -> None:
        self.sock = sockets.connect_unix(location(path).socket)
        self.sock.settimeout(LONG)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def receive(self) -> tuple[bytes, wire.Reply]:
        """The next answer. Raises EOFError where the other end has closed the socket."""
        frame = sockets.receive(self.sock, MOST)
        if not frame:
            raise EOFError
        return frame, wire.decode_reply(frame)

    def ask(self, data: bytes) -> tuple[bytes, wire.Reply]:
        self.send(data)
        return self.receive()

    def refused(self, data: bytes = b"") -> Exception:
        """The error that the answer is."""
        frame, head = self.ask(data)
        assert head.op == wire.ERROR, head
        return wire.error(frame, head)

    def is_closed(self) -> bool:
        """Wait until the other end closes it; whether it has sent nothing more."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()


def hello(**other: Any) -> bytes:
    told = {"manager": NAME, "product": "0", "application": "raw", "process": 1, "mechanism": "NONE", "first": b""}
    return wire.hello(wire.HELLO, values.dumps(told | {"replaces": ""} | other))


class Raw:
    """A session with one socket for calls."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.anchor = RawSocket(path)
        frame, head = self.anchor.ask(hello())
        assert head.op == wire.WELCOME, head
        self.facts = values.loads(frame[head.at :])
        self.token = bytes.fromhex(self.facts["session"])
        self.calls = self.join()

    def join(self) -> RawSocket:
        sock = RawSocket(self._path)
        _, head = sock.ask(wire.hello(wire.JOIN, self.token))
        assert head.op == wire.OK, head
        return sock

    def close(self) -> None:
        self.calls.close()
        self.anchor.close()

    def cut(self) -> None:
        """As the kernel closes what a killed process had open."""
        for one in (self.calls, self.anchor):
            one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.sock.close()
