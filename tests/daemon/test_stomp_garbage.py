"""Of a STOMP connection that is over nothing takes memory until Python looks for cycles; with TLS that was a lot."""

import asyncio.sslproto
import contextlib
import gc
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qmgr.configuration import Protocol
from qmgr.daemon.stomp import StompListener
from qmgr.daemon.stomp_connection import Connection
from qmgr.daemon.stomp_times import Timing
from tests.daemon.certificates import Authority
from tests.daemon.faces import face, listening
from tests.daemon.serving import until

SOON = Timing(connect=0.5, linger=0.1, tick=0.02)
MANY = 5


class Secure:
    """A listener with TLS."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        certificate, key = authority.issue("localhost")
        self.face = face(directory)
        config = listening(Protocol.STOMP, tls_certificate=certificate, tls_key=key, authentication=("PLAIN",))
        self.listener = StompListener(self.face, config, SOON)
        self.listener.start()
        self.context = ssl.create_default_context(cafile=authority.path)

    def connect(self) -> socket.socket:
        return socket.create_connection(("localhost", self.listener.port), timeout=30)

    def connect_with_tls(self) -> ssl.SSLSocket:
        return self.context.wrap_socket(self.connect(), server_hostname="localhost")

    def over(self) -> bool:
        return not self.listener._connections and not self.listener._greeting and not len(self.listener._strangers)

    def close(self) -> None:
        self.listener.close()
        self.face.manager.end()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path)
    yield made
    made.close()


def leaves(secure: Secure) -> None:
    secure.connect_with_tls().close()


def speaks_nonsense(secure: Secure) -> None:
    with secure.connect_with_tls() as client, contextlib.suppress(OSError):
        client.sendall(b"NONSENSE\n\n\0")
        while client.recv(1000):
            pass


def looks_only(secure: Secure) -> None:
    secure.connect().close()


def speaks_no_tls(secure: Secure) -> None:
    with secure.connect() as client, contextlib.suppress(OSError):
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:QM1\n\n\0")
        client.recv(1000)


def says_nothing(secure: Secure) -> None:
    with secure.connect() as client, contextlib.suppress(OSError):
        client.recv(1000)  # until it is given up


def is_cut(secure: Secure) -> None:
    """Another stranger comes, and there are too many."""
    with secure.connect() as client, contextlib.suppress(OSError):
        until(lambda: bool(secure.listener._greeting))
        for stranger in list(secure.listener._strangers._there):
            secure.listener._state.loop.call_soon_threadsafe(stranger.cut)
        client.recv(1000)


@pytest.mark.parametrize("what", [leaves, speaks_nonsense, looks_only, speaks_no_tls, says_nothing, is_cut])
def test_nothing_is_left_of_connections_that_are_over(secure: Secure, what: Callable[[Secure], None]) -> None:
    def left() -> int:
        return sum(type(each) in (asyncio.sslproto.SSLProtocol, Connection) for each in gc.get_objects())

    what(secure)
    until(secure.over)
    gc.collect()
    gc.disable()
    try:
        before = left()
        for _ in range(MANY):
            what(secure)
        until(secure.over)
        until(lambda: left() <= before)
    finally:
        gc.enable()
