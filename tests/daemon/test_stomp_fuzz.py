"""Any bytes, and any frames, on a real connection: it ends with an ERROR or goes on; nobody else is hurt."""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import SOAK
from tests.daemon.stomp_world import Client, Server, queue_manager, serving

EXAMPLES = settings(
    max_examples=2000 if SOAK else 60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with queue_manager(tmp_path_factory.mktemp("qm"), "A", "B", "KEPT") as manager, serving(manager) as made:
        for number in range(3):
            manager.put("KEPT", b"%d" % number)
        yield made


def exchanged(client: Client, data: bytes) -> None:
    """Said, and all heard to the end of the connection."""
    client.socket.setblocking(True)
    client.socket.settimeout(30)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.raw(data)
        client.raw(b"\0" + Client.frame("DISCONNECT", receipt="last"))
        while client.socket.recv(1 << 16):
            pass


def unhurt(server: Server) -> None:
    server.all_gone()
    assert server.bodies("KEPT") == [b"0", b"1", b"2"]
    assert server.qm.transactions() == []
    assert not [amq for amq, inserts in server.service.said if "own" in str(inserts)]


@EXAMPLES
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes(shared: Server, data: bytes, connected: bool) -> None:
    """Row 72."""
    with shared.client() if connected else shared.stranger() as client:
        exchanged(client, data)
    unhurt(shared)


NAMES = st.sampled_from(
    [
        *("destination", "transaction", "receipt", "id", "ack", "message-id", "subscription", "content-length"),
        *("persistent", "priority", "expires", "expiration", "correlation-id", "reply-to", "content-type"),
        *("prefetch-count", "heart-beat", "accept-version", "x\\c", "", "login", "passcode"),
    ]
)
VALUES = st.sampled_from(
    [
        *("A", "/queue/A", "/queue/B", "/topic/A", "t", "1", "2", "s1", "auto", "client", "client-individual"),
        *("0", "10", "-1", "999999999999999999", "true", "false", "\\n", "\\t", "", "1.2", "é", "0,0", "x" * 300),
    ]
)
COMMANDS = st.sampled_from(
    ["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT", "CONNECT", "NONE"]
)
# what is right more often than not, so that something comes of it
LIKELY = st.sampled_from(
    [
        Client.frame("SEND", b"x", destination="A"),
        Client.frame("SEND", b"x", destination="B", transaction="t"),
        Client.frame("SUBSCRIBE", destination="A", id="s1", ack="client-individual"),
        Client.frame("SUBSCRIBE", destination="B", id="s2", ack="auto"),
        Client.frame("BEGIN", transaction="t"),
        Client.frame("ACK", id="1"),
        Client.frame("NACK", id="1", transaction="t"),
        Client.frame("COMMIT", transaction="t", receipt="1"),
        Client.frame("ABORT", transaction="t"),
        Client.frame("UNSUBSCRIBE", id="s1"),
    ]
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    command, body = draw(COMMANDS), draw(st.sampled_from([b"", b"", b"body"]))
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    head = "".join(f"{name}:{value}\n" for name, value in headers)
    return f"{command}\n{head}\n".encode() + body + b"\0"


@EXAMPLES
@given(st.lists(LIKELY | frames(), max_size=12))
def test_any_frames(shared: Server, said: list[bytes]) -> None:
    """Row 72."""
    with shared.client() as client:
        exchanged(client, b"".join(said))
    unhurt(shared)
