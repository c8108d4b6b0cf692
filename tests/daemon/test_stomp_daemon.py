"""The STOMP listener of a daemon in a process of its own, which is killed, or ended in order."""

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import qmgr
from tests.conformance.nursery import halt
from tests.daemon.certificates import Authority
from tests.daemon.stomp_world import DEADLINE, Client, eventually

STANZA = """
Listener:
   Name=stomp
   Protocol=STOMP
   Port={port}
   Authentication=NONE
"""
HASTY = """
Channels:
   IdleTimeout=1
   ConnectTimeout=1
"""


class Daemon:
    """`python -m qmgr.daemon` with queues A and B."""

    def __init__(self, path: Path, stanzas: str = "") -> None:
        self.path = path
        qmgr.create("QM1", data_path=path, log_file_pages=256)
        with qmgr.start("QM1", data_path=path) as manager:
            for queue in ("A", "B"):
                manager.define_queue(queue)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        with (path / "qmgrs" / "QM1" / "qm.ini").open("a") as ini:
            ini.write(STANZA.format(port=self.port) + stanzas)
        self.process = subprocess.Popen([sys.executable, "-m", "qmgr.daemon", "QM1", str(path)])
        eventually(self._listens)

    def _listens(self) -> bool:
        assert self.process.poll() is None, "it has ended at once"
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False

    def stranger(self) -> Client:
        return Client(socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE))

    def client(self) -> Client:
        client = self.stranger()
        client.connect()
        return client

    def bodies(self) -> tuple[list[bytes], list[bytes]]:
        """What is on A and B, after the daemon has gone."""
        with qmgr.start("QM1", data_path=self.path) as manager:
            assert manager.transactions() == []
            return [m.body for m in manager.browse("A")], [m.body for m in manager.browse("B")]


@contextlib.contextmanager
def running(path: Path, stanzas: str = "") -> Iterator[Daemon]:
    made = Daemon(path, stanzas)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait(DEADLINE)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path) as made:
        yield made


def test_what_had_a_receipt_outlives_a_kill_and_a_transaction_is_whole(daemon: Daemon) -> None:
    safe: list[bytes] = []

    def work(name: int) -> None:
        client = daemon.client()
        with contextlib.suppress(OSError, AssertionError):  # killed
            for number in range(10**6):
                body = b"%d-%d" % (name, number)
                client.say("BEGIN", transaction="t")
                for queue in ("A", "B"):
                    client.say("SEND", body, destination=queue, transaction="t")
                client.ask("COMMIT", transaction="t")
                safe.append(body)
        client.close()

    workers = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for worker in workers:
        worker.start()
    eventually(lambda: len(safe) > 60)
    daemon.process.kill()
    for worker in workers:
        worker.join(DEADLINE)
    daemon.process.wait(DEADLINE)
    on_a, on_b = daemon.bodies()
    assert on_a == on_b
    assert len(set(on_a)) == len(on_a)
    assert set(safe) <= set(on_a)


def test_a_client_that_is_killed_leaves_nothing_half_done(daemon: Daemon) -> None:
    program = f"""
import socket, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.daemon.stomp_world import Client
client = Client(socket.create_connection(("127.0.0.1", {daemon.port})))
client.connect()
client.subscribe("A")
message = client.message()
client.say("BEGIN", transaction="t")
client.say("ACK", id=message["ack"], transaction="t")
client.ask("SEND", b"half", destination="B", transaction="t")
print("ready", flush=True)
sys.stdin.read()
"""
    with daemon.client() as other:
        other.send("A", b"order")
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGKILL)
        other.subscribe("A")
        again = other.message()
        assert (again.body, again["backout-count"]) == (b"order", "1")
        other.ask("DISCONNECT")
    daemon.process.kill()
    daemon.process.wait(DEADLINE)
    assert daemon.bodies() == ([b"order"], [])


def test_a_transaction_that_is_open_ends_before_the_daemon_does(daemon: Daemon) -> None:
    with daemon.client() as client, daemon.client() as idle:
        client.ask("BEGIN", transaction="t")
        client.ask("SEND", b"last", destination="A", transaction="t")
        daemon.process.send_signal(signal.SIGTERM)
        client.ask("COMMIT", transaction="t")
        assert idle.error()["reason-code"] == "2162"
        assert daemon.process.wait(DEADLINE) == 0
    assert daemon.bodies()[0] == [b"last"]


def test_nobody_is_late_by_the_time_that_the_daemon_was_stopped(tmp_path: Path) -> None:
    """What its clients said meanwhile lay in its sockets when it looked at the clock: it cut all of them off."""
    with running(tmp_path, HASTY) as daemon:
        half, stranger = daemon.client(), daemon.stranger()
        half.raw(b"SEND\ndestination:A\nreceipt:r\n")
        threading.Event().wait(0.2)  # by then it has seen the two, and waits
        halt(daemon.process.pid)
        threading.Event().wait(1.5)
        half.raw(b"\nx\0")
        stranger.say("CONNECT", accept_version="1.2", host="qm")
        daemon.process.send_signal(signal.SIGCONT)
        assert half.read().command == "RECEIPT"
        assert stranger.read().command == "CONNECTED"
        half.raw(b"SEND\ndestination:A\n")  # and who is late is late
        assert "not complete within 1 seconds" in half.error()["message"]


def test_nor_is_who_was_in_a_handshake_of_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    context = ssl.create_default_context(cafile=authority.path)
    tls = f"   TLSCertificate={certificate}\n   TLSKey={key}\n"
    with running(tmp_path / "data", tls + HASTY) as daemon, ThreadPoolExecutor() as threads:
        accepted = socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE)
        threading.Event().wait(0.2)  # by then it waits for the first word of the handshake
        halt(daemon.process.pid)
        shaking = threads.submit(context.wrap_socket, accepted, server_hostname="localhost")
        threading.Event().wait(2.5)
        daemon.process.send_signal(signal.SIGCONT)
        client = Client(shaking.result(DEADLINE))
        client.connect()
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE) as silent:
            assert silent.recv(1) == b"", "and who is late is late"
