"""STOMP over TLS where the end of a handshake, or of TLS itself, meets something else: nobody else is held up."""

import asyncio
import asyncio.sslproto
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from qmgr.daemon import stomp
from qmgr.daemon.stomp import StompListener
from qmgr.daemon.stomp_connection import HIGH_WATER_BYTES, Connection
from tests.daemon.certificates import Authority
from tests.daemon.stomp_world import DEADLINE, QUICK, Client, Server, eventually, queue_manager, serving

HASTY = attrs.evolve(QUICK, connect=0.5, frame=1.0, linger=0.2)


@contextlib.contextmanager
def secure(path: Path) -> Iterator[tuple[Server, ssl.SSLContext]]:
    authority = Authority(path)
    certificate, key = authority.issue("localhost")
    with (
        queue_manager(path / "data", "A") as manager,
        serving(manager, HASTY, tls_certificate=certificate, tls_key=key) as server,
    ):
        yield server, ssl.create_default_context(cafile=authority.path)


def beats_come(server: Server, context: ssl.SSLContext) -> None:
    """The times of connections are still looked at."""
    with server.stranger(context) as client:
        client.connect(heart_beat="0,200")
        client.await_beats(2)


def test_row_75_who_has_ended_tls_and_reads_nothing_is_cut_off_and_holds_up_nobody(tmp_path: Path) -> None:
    with secure(tmp_path) as (server, context):
        server.qm.put("A", bytes(HIGH_WATER_BYTES - 10_000))  # less than what its reading is watched for
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(DEADLINE)
        plain.connect(("127.0.0.1", server.port))
        with Client(context.wrap_socket(plain, server_hostname="localhost")) as client:
            client.connect(heart_beat="1000,0")
            [connection] = server.listener._connections
            connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            client.subscribe("A")
            eventually(connection._waits)
            client.socket.setblocking(False)
            with contextlib.suppress(ssl.SSLError):  # the message comes, and not the server's end of TLS
                client.socket.unwrap()  # type: ignore[attr-defined]
            server.all_gone()
        beats_come(server, context)


def its_time_is_over(listener: StompListener) -> None:
    """It is seen before what the client has said by then."""
    [client] = listener._handshakes
    listener._handshakes[client] = 0.0
    listener._tick_all(listener._state.loop.time(), 0.0)


def listening_ends(listener: StompListener) -> None:
    """It is seen just behind what the client has said."""
    usual = Connection.connection_made

    def made(self: Connection, transport: asyncio.BaseTransport) -> None:
        Connection.connection_made = usual  # type: ignore[method-assign]
        usual(self, transport)
        [task] = listener._greeting
        listener._state.loop.call_soon(task.cancel)

    Connection.connection_made = made  # type: ignore[method-assign]


@pytest.mark.parametrize("end", [its_time_is_over, listening_ends])
def test_a_handshake_that_is_given_up_in_the_moment_of_its_end_leaves_nothing(
    tmp_path: Path, end: Callable[[StompListener], None]
) -> None:
    """Its socket was closed under the connection that was made by then, and a later one could have that number."""
    with secure(tmp_path) as (server, context):
        loop = server.listener._state.loop
        numbers = loop._selector.get_map  # type: ignore[attr-defined]
        before = len(numbers())
        come, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls, done = context.wrap_bio(come, said, server_hostname="localhost"), threading.Event()
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as plain:
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
            while (hello := said.read()) or not tls.version():
                plain.sendall(hello)
                come.write(plain.recv(1 << 16))
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                    break
            last = said.read()

            def both() -> None:
                plain.sendall(last)
                threading.Event().wait(0.05)
                end(server.listener)
                done.set()

            loop.call_soon_threadsafe(both)
            assert done.wait(DEADLINE)
            server.all_gone()
            eventually(lambda: not len(server.listener._strangers))
            assert len(numbers()) == before
        beats_come(server, context)


def test_a_loop_that_is_late_each_time_gives_up_who_never_ends_a_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp, "LATE_S", -1.0)
    with secure(tmp_path) as (server, _), socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as one:
        assert one.recv(1) == b""


@pytest.mark.parametrize("what", ["the task", "TLS"])
def test_a_connection_that_there_is_no_memory_for_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def scarce(*args: Any, **options: Any) -> Any:
        if what == "the task":
            args[0].close()
        monkeypatch.undo()
        raise MemoryError

    with secure(tmp_path) as (server, context):
        if what == "the task":
            monkeypatch.setattr(server.listener._state.loop, "create_task", scarce)
        else:
            monkeypatch.setattr(asyncio.sslproto.SSLProtocol, "__init__", scarce)
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as one:
            assert one.recv(1) == b""
        eventually(lambda: not len(server.listener._strangers))
        told = {"text": "listener 'stomp' can't accept: MemoryError"}
        eventually(lambda: server.service.said == [("AMQ9213", told)])
        beats_come(server, context)
