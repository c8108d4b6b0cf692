"""STOMP over a real socket: sends, subscriptions, acknowledgements, transactions, and what a client hears of errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.stomp_world import Client, Server, queue_manager, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with queue_manager(tmp_path, "A", "B") as manager, serving(manager) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as made:
        yield made


def test_what_was_sent_is_received_and_gone_when_it_is_acknowledged(server: Server, client: Client) -> None:
    client.send("A", b"one")
    client.ask("SEND", b"two", destination="A")
    assert server.bodies("A") == [b"one", b"two"]
    client.subscribe("A")
    first, second = client.message(), client.message()
    assert (first.body, second.body) == (b"one", b"two")
    assert first["subscription"] == "s1"
    assert first["destination"] == "/queue/A"
    client.ask("ACK", id=second["ack"])
    client.ask("DISCONNECT")
    assert client.at_end()
    assert server.counts("A") == {b"one": 0}
