"""A client that is gone after any byte of what it wanted to say: what it said wholly was done, and nothing else."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from asyncio import selector_events
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import pytest

from qmgr.daemon import strangers
from qmgr.daemon.stomp_connection import FRAMES_PER_TURN, LOST
from qmgr.daemon.stomp_login import Credentials, Login
from qmgr.errors import NotAuthorized
from qmgr.session import Rights
from tests.conftest import SOAK
from tests.daemon.certificates import Authority
from tests.daemon.stomp_world import DEADLINE, QUICK, Client, Server, eventually, queue_manager, serving

STEP = 1 if SOAK else 3  # every byte of the ends of frames, and of the rest every so many


def reset(client: Client) -> None:
    """Close so that the server hears of a reset, maybe before it has read everything."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def cuts(*frames: bytes) -> list[int]:
    """Lengths of the stream after which to stop."""
    length = sum(map(len, frames))
    ends = {sum(map(len, frames[:count])) + off for count in range(len(frames) + 1) for off in (-2, -1, 0, 1, 2)}
    return [at for at in range(length + 1) if at % STEP == 0 or at in ends]


def empty(server: Server) -> None:
    for queue in ("A", "B"):
        server.qm.get_many(queue, 100)


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_a_send_happens_when_all_of_it_has_come(server: Server, resets: bool) -> None:
    """Row 74."""
    frame = Client.frame("SEND", b"body", destination="A", receipt="1")
    for at in cuts(frame):
        client = server.client()
        client.raw(frame[:at])
        if resets:
            reset(client)
        else:
            client.socket.shutdown(socket.SHUT_WR)
            receipts = client.received.count(b"RECEIPT") + sum(b"RECEIPT" in data for data in iter_rest(client))
            assert receipts <= (at == len(frame))
            client.close()
        server.all_gone()
        done = server.bodies("A")
        assert done == ([b"body"] if at == len(frame) and not resets else done[:1])
        assert not done or at == len(frame)
        empty(server)


@pytest.mark.parametrize("leaves", [False, True], ids=["silent", "DISCONNECT"])
def test_who_says_no_more_hears_what_it_is_owed(server: Server, leaves: bool) -> None:
    """As `nc -N` does, and what has closed its half for sending."""
    count = 300
    frames = [Client.frame("SEND", b"body", destination="A", receipt=str(number)) for number in range(count)]
    frames += [Client.frame("BEGIN", transaction="t"), Client.frame("SEND", b"half", destination="A", transaction="t")]
    frames += [Client.frame("DISCONNECT", receipt="last")] * leaves
    client = server.client()
    client.raw(b"".join(frames))
    client.socket.shutdown(socket.SHUT_WR)
    heard = b"".join(iter_rest(client))
    assert heard.count(b"RECEIPT\n") == count + leaves
    server.all_gone()
    client.close()
    assert server.bodies("A") == [b"body"] * count
    assert server.qm.transactions() == []


@pytest.mark.parametrize("leaves", [False, True], ids=["silent", "DISCONNECT"])
@pytest.mark.parametrize("tells", [False, True], ids=["cut", "close_notify"])
def test_what_was_sent_before_the_end_of_a_tls_connection_is_done(tmp_path: Path, leaves: bool, tells: bool) -> None:
    """TLS hands over the end with what was sent before it, without waiting for that to be taken."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    context = ssl.create_default_context(cafile=authority.path)
    count = 20 * FRAMES_PER_TURN
    frames = [Client.frame("SEND", b"body", destination="A")] * count
    frames += [Client.frame("SUBSCRIBE", id="1", destination="B", ack="auto")] * tells  # who is known to be gone then
    frames += [Client.frame("BEGIN", transaction="t"), Client.frame("SEND", b"half", destination="A", transaction="t")]
    frames += [Client.frame("DISCONNECT")] * leaves
    with (
        queue_manager(tmp_path, "A", "B") as manager,
        serving(manager, tls_certificate=certificate, tls_key=key) as server,
    ):
        manager.put("B", b"stays")
        client = server.stranger(context)
        client.connect()
        go_on = threading.Event()
        server.listener._state.loop.call_soon_threadsafe(go_on.wait, DEADLINE)
        client.raw(b"".join(frames))
        if tells:
            client.socket.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                client.socket.unwrap()  # type: ignore[attr-defined]
        client.close()
        go_on.set()
        server.all_gone()
        assert server.bodies("A") == [b"body"] * count
        assert server.bodies("B") == [b"stays"]
        assert manager.transactions() == []


@pytest.mark.parametrize("way", ["time", "crowd"])
def test_who_has_ended_a_tls_connection_and_is_not_known_yet_is_a_stranger_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What it had sent waits for its password to be checked: no longer than others', and of no more at a time."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    context = ssl.create_default_context(cafile=authority.path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # later ones say something that it would have to read first
    checked = threading.Event()

    def rights(self: Login, said: Credentials) -> Rights:
        checked.wait(DEADLINE)
        raise NotAuthorized("it is nobody")

    monkeypatch.setattr(Login, "rights", rights)
    timing = attrs.evolve(QUICK, connect=0.5 if way == "time" else DEADLINE)
    offers: dict[str, Any] = {"tls_certificate": certificate, "tls_key": key, "authentication": ("PLAIN",)}
    with queue_manager(tmp_path, "A") as manager, serving(manager, timing, **offers) as server:
        listener = server.listener
        listener._strangers._most = 2
        monkeypatch.setattr(strangers, "GRACE_NS", 0)
        for _ in range(3):
            client = server.stranger(context)
            eventually(lambda: any(not one._held_up for one in listener._connections))
            go_on = threading.Event()
            listener._state.loop.call_soon_threadsafe(go_on.wait, DEADLINE)
            client.say("CONNECT", accept_version="1.2", login="mia", passcode="?")
            client.say("SEND", bytes(1000), destination="A", content_length="1000")
            client.socket.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                client.socket.unwrap()  # type: ignore[attr-defined]
            client.close()
            go_on.set()
            eventually(lambda: all(one._transport is LOST and one._held_up for one in listener._connections))
            eventually(lambda: len(listener._connections) == len(listener._strangers) <= 2)
        if way == "crowd":
            assert len(listener._connections) == 2
        if way == "time":
            server.all_gone()
        checked.set()
        server.all_gone()
        assert len(listener._strangers) == 0


def test_who_says_no_more_in_the_moment_in_which_its_receipt_is_due_hears_it(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a force and that of what the client says come to the loop together."""
    around = server.listener._state
    loop, forcer = around.loop, around.forcer
    force, forced, may_force, at_rest, go_on = forcer._force, *(threading.Event() for _ in range(4))
    told = loop.call_soon_threadsafe

    def late(lsn: int) -> None:
        assert may_force.wait(DEADLINE)
        force(lsn)

    def noted(callback: Any, *args: Any) -> Any:
        handle = told(callback, *args)
        if callback == forcer._done:
            forced.set()
        return handle

    def rest() -> None:
        at_rest.set()
        assert go_on.wait(DEADLINE)

    client.ask("SEND", b"before", destination="A")
    monkeypatch.setattr(forcer, "_force", late)
    monkeypatch.setattr(loop, "call_soon_threadsafe", noted)
    client.say("SEND", b"body", destination="A", receipt="r")
    eventually(lambda: bool(forcer._served))
    told(rest)
    assert at_rest.wait(DEADLINE)
    client.socket.shutdown(socket.SHUT_WR)
    may_force.set()
    assert forced.wait(DEADLINE)
    go_on.set()
    assert client.read()["receipt-id"] == "r"
    assert client.at_end()


def iter_rest(client: Client) -> list[bytes]:
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while data := client.socket.recv(1 << 16):
            parts.append(data)
    return parts


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_a_transaction_happens_wholly_when_all_of_its_commit_has_come(server: Server, resets: bool) -> None:
    """Row 74."""
    for at in cuts(*transaction(b"1")):
        server.qm.put("A", b"order")
        client = server.client()
        client.subscribe("A")
        stream = b"".join(transaction(client.message()["ack"].encode()))
        client.raw(stream[:at])
        if resets:
            reset(client)
        else:
            client.close()
        server.all_gone()
        outcome = server.counts("A"), server.bodies("B")
        done: tuple[dict[bytes, int], list[bytes]] = ({}, [b"invoice"])
        undone: tuple[dict[bytes, int], list[bytes]] = ({b"order": 1}, [])
        if at < len(stream):
            assert outcome == undone, f"after {at} bytes"
        elif resets:
            assert outcome in (done, undone)
        else:
            assert outcome == done
        assert server.qm.transactions() == []
        empty(server)


def transaction(ack: bytes) -> list[bytes]:
    return [
        Client.frame("BEGIN", transaction="t"),
        Client.frame("SEND", b"invoice", destination="B", transaction="t"),
        Client.frame("ACK", id=ack.decode(), transaction="t"),
        Client.frame("COMMIT", transaction="t", receipt="1"),
    ]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_acknowledgement_counts_when_all_of_it_has_come(server: Server, command: str) -> None:
    """Row 74."""
    for at in cuts(Client.frame(command, id="1")):
        server.qm.put("A", b"order")
        client = server.client()
        client.subscribe("A")
        frame = Client.frame(command, id=client.message()["ack"])
        client.raw(frame[:at])
        client.close()
        server.all_gone()
        if at < len(frame) or command == "NACK":
            (count,) = server.counts("A").values()
            assert count in ((1, 2) if at == len(frame) else (1,))  # refused, it may have come a second time
        else:
            assert server.bodies("A") == []
        empty(server)


def test_a_connect_that_is_cut_leaves_nothing(server: Server) -> None:
    """Row 74."""
    frame = Client.frame("CONNECT", accept_version="1.2", host="x")
    for at in cuts(frame):
        client = server.stranger()
        client.raw(frame[:at])
        client.close()
    server.all_gone()


def test_a_reset_in_the_middle_of_a_farewell_is_an_end_as_any(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client goes between what is written to it and the end of that."""
    client = server.client()
    write_eof = selector_events._SelectorSocketTransport.write_eof

    def after_reset(transport: asyncio.WriteTransport) -> None:
        reset(client)
        write_eof(transport)

    monkeypatch.setattr(selector_events._SelectorSocketTransport, "write_eof", after_reset)
    client.raw(Client.frame("SEND", b"body", destination="A") * FRAMES_PER_TURN + Client.frame("NONSENSE", b""))
    server.all_gone()
    assert caplog.text == ""
    assert server.bodies("A") == [b"body"] * FRAMES_PER_TURN


def test_who_comes_as_the_listener_stops_listening_is_refused_and_no_error(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    loop = server.listener._state.loop
    came: Future[socket.socket] = Future()

    def come_and_refuse() -> None:
        came.set_result(socket.create_connection(("127.0.0.1", server.port)))  # before the loop looks who is there
        loop.create_task(server.listener._refuse())

    loop.call_soon_threadsafe(come_and_refuse)
    with came.result() as client:
        client.settimeout(DEADLINE)
        assert Client(client).at_end()
    server.listener.refuse()
    assert caplog.text == ""
