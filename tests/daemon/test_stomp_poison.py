"""Messages that nobody can work on: refused so often as BOTHRESH says, they go to the backout or dead-letter queue."""

import pytest

from tests.daemon.stomp_world import Client, Server


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("transacted", [False, True])
def test_what_is_refused_too_often_goes_to_the_backout_queue(
    server: Server, client: Client, ack: str, transacted: bool
) -> None:
    """Row 80."""
    server.qm.alter_queue("A", backout_threshold=2, backout_queue="B")
    server.qm.put("A", b"poison", correlation_id=b"c", properties={"colour": "green"})
    with server.client() as other:
        other.subscribe("A", prefetch_count="1")
        for count in range(2):
            got = other.message()
            assert (got.body, got.headers.get("backout-count", "0")) == (b"poison", str(count))
            if transacted:
                other.say("BEGIN", transaction="t")
                other.say("ACK", id=got["ack"], transaction="t")
                other.ask("ABORT", transaction="t")
            else:
                other.ask("NACK", id=got["ack"])
        server.qm.put("A", b"good")
        assert other.message().body == b"good"
        other.ask("UNSUBSCRIBE", id="s1")
    client.subscribe("A", ack=ack)
    assert client.message().body == b"good"
    (moved,) = server.qm.browse("B")
    assert (moved.body, moved.correlation_id.rstrip(b"\0")) == (b"poison", b"c")
    assert dict(moved.properties) == {"colour": "green"}


def test_without_a_backout_queue_it_is_a_dead_letter(server: Server, client: Client) -> None:
    """Row 80."""
    server.qm.alter(dead_letter_queue="B")
    server.qm.alter_queue("A", backout_threshold=1)
    server.qm.put("A", b"poison")
    client.subscribe("A")
    client.ask("NACK", id=client.message()["ack"])
    client.send("A", b"good")
    assert client.message().body == b"good"
    (letter,) = server.qm.browse("B")
    assert letter.format == "MQDEAD"
    assert letter.body.endswith(b"poison")


def test_where_nothing_takes_it_it_comes_again(server: Server, client: Client) -> None:
    """Row 80."""
    server.qm.alter_queue("A", backout_threshold=1)
    server.qm.put("A", b"poison")
    client.subscribe("A")
    client.ask("NACK", id=client.message()["ack"])
    assert client.message()["backout-count"] == "1"
