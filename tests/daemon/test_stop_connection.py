"""STOP CONN: an operator ends a client's connection, whatever it speaks; what it had begun is backed out."""

import http.client
from pathlib import Path

import pytest

import qmgr
from qmgr.configuration import Protocol
from qmgr.daemon import http as listeners
from qmgr.errors import BackedOut, Mistake, Reason, Unavailable
from qmgr.infos import Peer
from tests.daemon.faces import NAME, face, listening
from tests.daemon.serving import Served, until
from tests.daemon.stomp_world import Client, Server
from tests.qmgr.world import Call, bodies


def stop(manager: qmgr.QueueManager, number: int, more: str = "") -> str:
    return manager.mqsc(f"stop conn({number:016X}) {more}").text


def test_a_client_of_this_machine(served: Served, connection: qmgr.Connection) -> None:
    [other] = [one for one in connection.connections() if one.number]
    unit = connection.begin()
    unit.put("A", b"x")
    waiting = Call(lambda: connection.get("B", wait=None))
    assert "AMQ8457I: Connection stopped." in stop(served.manager, other.number)
    with pytest.raises(Unavailable) as caught:
        waiting.outcome()
    assert caught.value.reason is Reason.CONNECTION_BROKEN
    until(lambda: len(served.manager.sessions) == 0)
    assert served.manager.transactions() == []
    with pytest.raises(BackedOut):
        unit.commit()
    connection.put("A", b"again")  # as another connection
    assert bodies(served.manager, "A") == [b"again"]
    assert "AMQ8461E" in stop(served.manager, other.number)


def test_a_client_stops_another(served: Served, connection: qmgr.Connection) -> None:
    with served.connect() as other:
        unit = other.begin()
        unit.put("A", b"x")
        mine, others = sorted(one.number for one in connection.connections() if one.number)
        connection.stop_connection(others)
        with pytest.raises(Unavailable):
            unit.put("A", b"y")
        assert [one.number for one in connection.connections() if one.number] == [mine]
        with pytest.raises(Mistake):
            connection.stop_connection(others)
    assert bodies(served.manager, "A") == []


def test_a_client_may_stop_itself(served: Served, connection: qmgr.Connection) -> None:
    [number] = [one.number for one in connection.connections() if one.number]
    try:
        assert "AMQ8457I" in connection.mqsc(f"stop conn({number:016X})").text
    except Unavailable as exc:
        assert exc.reason is Reason.CONNECTION_BROKEN
    until(lambda: all(one.number != number for one in served.manager.sessions))


def test_a_client_over_stomp(server: Server, client: Client) -> None:
    client.ask("BEGIN", transaction="t")
    client.send("A", b"x", transaction="t")
    [one] = server.qm.sessions
    assert "AMQ8457I" in stop(server.qm, one.number)
    assert client.error()["reason-code"] == "2203"
    server.all_gone()
    assert server.bodies("A") == []


def test_a_client_that_is_asked_to_end_can_end_what_it_has_begun(served: Served, connection: qmgr.Connection) -> None:
    [other] = [one for one in connection.connections() if one.number]
    unit = connection.begin()
    unit.put("A", b"x")
    waiting = Call(lambda: connection.get("B", wait=None))
    until(lambda: bool(served.manager._engine.state.queues["B"].waiters.line))
    assert "AMQ8457I: Connection stopped." in stop(served.manager, other.number, "mode(quiesce)")
    for call in (waiting.outcome, lambda: connection.get("B", wait=None), lambda: connection.begin().put("A", b"y")):
        with pytest.raises(Unavailable) as caught:
            call()
        assert caught.value.reason is Reason.CONNECTION_QUIESCING
    unit.put("A", b"z")
    unit.commit()
    assert bodies(served.manager, "A") == [b"x", b"z"]
    with served.connect() as another:
        another.put("A", b"not asked")


@pytest.mark.parametrize(
    ("begins", "headers"), [("BEGIN", {"transaction": "u"}), ("SUBSCRIBE", {"id": "2", "destination": "/queue/B"})]
)
def test_a_client_over_stomp_that_is_asked_to_end(
    server: Server, client: Client, begins: str, headers: dict[str, str]
) -> None:
    client.ask("SUBSCRIBE", id="1", destination="/queue/B")
    client.ask("BEGIN", transaction="t")
    client.send("A", b"x", transaction="t")
    [one] = server.qm.sessions
    server.qm.stop_connection(one.number, quiesce=True)
    until(lambda: not server.qm._engine.state.queues["B"].waiters.line)
    server.qm.put("B", b"stays")
    client.ask("COMMIT", transaction="t")
    client.say(begins, **headers)
    assert client.error()["reason-code"] == "2202"
    server.all_gone()
    assert (server.bodies("A"), server.bodies("B")) == ([b"x"], [b"stays"])


def test_a_client_over_http(tmp_path: Path) -> None:
    made = face(tmp_path, None)
    listener = listeners.HttpListener(made, listening(Protocol.HTTP))  # type: ignore[arg-type]
    listener.start()
    assert listener.address is not None
    try:
        client = http.client.HTTPConnection(*listener.address, timeout=30)
        path = f"/ibmmq/rest/v3/messaging/qmgr/{NAME}/queue/A/messagelist"
        client.request("GET", path, headers={"User-Agent": "agent" * 20})
        client.getresponse().read()
        [one] = made.manager.sessions
        host, port = client.sock.getsockname()
        assert one.peer == Peer(user="", application=("agent" * 20)[:64], channel="HTTP", address=f"{host}:{port}")
        assert "AMQ8457I" in stop(made.manager, one.number)
        assert client.sock.recv(1) == b""
        until(lambda: len(made.manager.sessions) == 0)
    finally:
        listener.close()
        made.manager.end("immediate")


def test_what_can_not_be_stopped(served: Served, connection: qmgr.Connection) -> None:
    [number] = [one.number for one in connection.connections() if one.number]
    assert "AMQ8461E" in stop(served.manager, number + 1)
    assert "AMQ8461E" in stop(served.manager, number, "extconn('00')")
    assert "AMQ8457I" not in stop(served.manager, 0)  # the queue manager itself
    assert connection.queue("A").depth == 0
