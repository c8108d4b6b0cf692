"""STOMP over a real socket: connecting, messages and their headers, subscriptions and acknowledgements."""

import select
import socket
import threading
import time
from pathlib import Path

import pytest

from qmgr.daemon.loop import LoopThread
from qmgr.errors import ResourceProblem
from qmgr.message import Value
from tests.daemon.stomp_world import DEADLINE, Client, Server, eventually, queue_manager, serving

# ---- connecting


@pytest.mark.parametrize(
    ("accepts", "version"),
    [("1.2", "1.2"), ("1.0,1.1,1.2", "1.2"), ("1.1", "1.1"), ("1.0, 1.1,2.0", "1.1"), ("1.0", "1.0"), (None, "1.0")],
)
def test_the_newest_version_that_both_speak(server: Server, accepts: str | None, version: str) -> None:
    with server.stranger() as client:
        headers = {} if accepts is None else {"accept_version": accepts}
        client.say("STOMP" if accepts == "1.2" else "CONNECT", **headers)
        got = client.read()
        assert (got.command, got["version"], got["server"]) == ("CONNECTED", version, "qmgr")


def test_a_version_that_is_not_spoken_is_refused(server: Server) -> None:
    """Row 79."""
    with server.stranger() as client:
        client.say("CONNECT", accept_version="2.0,3.1")
        error = client.error()
        assert "1.0, 1.1, 1.2" in error["message"]
        assert error["version"] == "1.0,1.1,1.2"


def test_before_connect_nothing_else_and_after_it_no_other(server: Server) -> None:
    """Row 79."""
    with server.stranger() as client:
        client.say("SEND", b"x", destination="A", receipt="7")
        error = client.error()
        assert (error["reason-code"], error["receipt-id"]) == ("2018", "7")
    with server.client() as client:
        client.say("CONNECT", accept_version="1.2")
        assert client.error()["reason-code"] == "2002"
    assert server.bodies("A") == []


def test_an_operator_sees_who_is_connected(server: Server) -> None:
    with server.client(client_id="till 7") as client:
        client.ask("BEGIN", transaction="t")
        client.ask("SEND", b"x", destination="A", transaction="t")
        (_, info) = server.qm.connections()
        assert (info.peer.channel, info.peer.application) == ("STOMP", "till 7")
        assert info.peer.address.startswith("127.0.0.1:")
        assert [unit.puts for unit in info.units] == [1]
        client.ask("DISCONNECT")
        assert client.at_end()
    server.all_gone()
    assert server.qm.transactions() == []


def test_a_receipt_of_disconnect_comes_once_though_the_disk_is_still_at_work(server: Server, client: Client) -> None:
    client.send("A", b"one")
    client.raw(client.frame("SEND", b"two", destination="A") + client.frame("DISCONNECT", receipt="last"))
    assert client.read()["receipt-id"] == "last"
    assert client.at_end()
    assert server.bodies("A") == [b"one", b"two"]


# ---- messages


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


def test_headers_become_what_the_message_says_and_come_back(server: Server, client: Client) -> None:
    client.send(
        *("A", b"b\0dy"),
        content_length="4",
        persistent="false",
        priority="7",
        correlation_id="order 17",
        reply_to="/queue/B",
        content_type="text/xml",
        colour="blue\\cgreen",
        message_id="mine",
    )
    (message,) = server.qm.browse("A")
    assert (message.body, message.persistent, message.priority) == (b"b\0dy", False, 7)
    assert (message.correlation_id.rstrip(b"\0"), message.reply_to, message.format) == (b"order 17", "B", "MQSTR")
    assert dict(message.properties) == {"content-type": "text/xml", "colour": "blue:green"}
    client.subscribe("A", ack="auto")
    got = client.message()
    assert got.body == b"b\0dy"
    assert got.headers == {
        "destination": "/queue/A",
        "subscription": "s1",
        "message-id": message.message_id.hex(),
        "content-length": "4",
        "persistent": "false",
        "priority": "7",
        "timestamp": str(message.put_time_us // 1000),
        "correlation-id": "order 17",
        "reply-to": "/queue/B",
        "content-type": "text/xml",
        "colour": "blue:green",
    }


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("short", b"short"),
        ("1b4e28ba-2fa1-11d2-883f-0016d3cca427", b"1b4e28ba-2fa1-11d2-883f-"),
        ("414d51" + "00" * 20 + "ff", bytes.fromhex("414d51" + "00" * 20 + "ff")),
        ("ID\\c414d51" + "00" * 20 + "ff", bytes.fromhex("414d51" + "00" * 20 + "ff")),
        ("Ø", "Ø".encode()),
        ("", b""),
    ],
)
def test_a_correlation_id_is_24_bytes_here_and_comes_back_as_it_was(
    server: Server, client: Client, said: str, kept: bytes
) -> None:
    client.send("A", b"", correlation_id=said)
    (message,) = server.qm.browse("A", correlation_id=kept)
    assert message.correlation_id == kept.ljust(24, b"\0")
    client.subscribe("A", ack="auto")
    assert client.message()["correlation-id"] == said.replace("\\c", ":")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("order 17", b"order 17"),
        ("ID\\c" + "00ff" * 12, b"\x00\xff" * 12),
        ("41" * 24, b"A" * 24),
        ("Bestellung für 3", "Bestellung für 3".encode()),
    ],
)
def test_groups_have_the_names_that_jms_has_for_them(server: Server, client: Client, said: str, kept: bytes) -> None:
    client.raw(f"SEND\ndestination:A\nJMSXGroupID:{said}\n\n1\0".encode())
    last = "JMSXGroupSeq:2\nJMS_IBM_Last_Msg_In_Group:true"
    client.raw(f"SEND\ndestination:A\nJMSXGroupID:{said}\n{last}\nreceipt:2\n\n2\0".encode())
    assert client.read().command == "RECEIPT"
    with server.qm.begin() as unit:
        got = unit.get_many("A", 9, group_id=kept, all_available=True)
        assert [(one.group_sequence, one.last_in_group) for one in got] == [(1, False), (2, True)]
        unit.backout()
    client.subscribe("A", ack="auto")
    for number, last in (("1", "false"), ("2", "true")):
        got_here = client.message()
        assert got_here["JMSXGroupID"] == said.replace("\\c", ":")
        assert (got_here["JMSXGroupSeq"], got_here["JMS_IBM_Last_Msg_In_Group"]) == (number, last)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"JMSXGroupID": ""}, "2258"),
        ({"JMSXGroupID": "0" * 48}, "2258"),
        ({"JMSXGroupID": "x" * 25}, "2258"),
        ({"JMSXGroupSeq": "1"}, "2258"),
        ({"JMSXGroupID": "g", "JMSXGroupSeq": "0"}, "2250"),
        ({"JMSXGroupID": "g", "JMSXGroupSeq": "-1"}, "2250"),
        ({"JMSXGroupID": "g", "JMSXGroupSeq": "1000000000"}, "2250"),
        ({"JMSXGroupID": "g", "JMS_IBM_Last_Msg_In_Group": "1"}, "2249"),
    ],
)
def test_what_no_group_can_be_called(server: Server, client: Client, headers: dict[str, str], reason: str) -> None:
    lines = "\n".join(f"{name}:{value}" for name, value in headers.items())
    client.raw(f"SEND\ndestination:A\n{lines}\n\n\0".encode())
    assert client.error()["reason-code"] == reason
    assert server.bodies("A") == []


def test_what_other_programs_put_has_headers_too(server: Server, client: Client) -> None:
    properties: dict[str, Value] = {
        "count": 3,
        "ratio": 0.5,
        "good": True,
        "raw": b"\xff",
        "destination": "elsewhere",
        "a:b": "c\nd",
    }
    server.qm.put("A", b"text", correlation_id=b"\x01\x02", format="MQSTR", properties=properties, expiry=1000.0)
    client.subscribe("A")
    got = client.message()
    assert got["destination"] == "/queue/A"
    assert (got["count"], got["ratio"], got["good"], got["raw"], got["a:b"]) == ("3", "0.5", "true", "ff", "c\nd")
    assert got["correlation-id"] == "0102" + "00" * 22
    assert got["content-type"] == "text/plain"
    assert abs(int(got["expires"]) / 1000 - time.time() - 1000) < DEADLINE


def test_expires_is_a_moment_and_expiration_a_while(server: Server, client: Client) -> None:
    moment = int((time.time() + 1000) * 1000)
    client.send("A", b"moment", expires=str(moment), expiration="1")
    client.send("A", b"while", expiration="1000000")
    client.send("A", b"never", expires="0")
    left = {message.body: message.expiry for message in server.qm.browse("A")}
    assert left[b"never"] is None
    for body in (b"moment", b"while"):
        expiry = left[body]
        assert expiry is not None
        assert 1000 - DEADLINE < expiry <= 1000
    client.send("B", b"too late", expires="1")
    eventually(lambda: not server.bodies("B"))


def test_what_is_too_late_when_it_is_sent_is_not_delivered_to_who_waits_for_it_either(
    server: Server, client: Client
) -> None:
    client.subscribe("A", ack="auto")
    for _ in range(10):
        client.send("A", b"too late", expires="1")
    client.send("A", b"in time")
    assert client.message().body == b"in time"


def test_without_a_word_the_queue_decides(server: Server, client: Client) -> None:
    server.qm.alter_queue("A", default_persistence=False, default_priority=3)
    client.send("A", b"x")
    (message,) = server.qm.browse("A")
    assert (message.persistent, message.priority) == (False, 3)


@pytest.mark.parametrize(
    ("headers", "code", "words"),
    [
        ({}, "2046", "no destination"),
        ({"destination": "/topic/A"}, "2152", "no destination here"),
        ({"destination": "/queue/NONE"}, "2085", "there is no queue 'NONE'"),
        ({"destination": "/queue/"}, "2152", "can't be the name"),
        ({"destination": "A", "priority": "10"}, "2049", "at most 9"),
        ({"destination": "A", "priority": "high"}, "2050", "0 to 9"),
        ({"destination": "A", "persistent": "yes"}, "2047", "true or false"),
        ({"destination": "A", "expires": "soon"}, "2013", "milliseconds"),
        ({"destination": "A", "expiration": "-1"}, "2013", "milliseconds"),
        ({"destination": "A", "reply_to": "/temp-queue/x"}, "2152", "no destination here"),
        ({"destination": "A", "transaction": "t"}, "2255", "no transaction 't'"),
        ({"destination": "A", "x" * 300: "1"}, "2442", f"property name is text of 1 to 255 bytes, not '{'x' * 100}'"),
        ({"destination": "/queue/" + "x" * 300}, "2152", f"'{'x' * 100}'... can't be the name"),
    ],
)
def test_a_send_that_can_not_be_is_answered_with_one_sentence_and_the_end(
    server: Server, client: Client, headers: dict[str, str], code: str, words: str
) -> None:
    client.say("SEND", b"x", **headers, receipt="r:1".replace(":", "\\c"))
    error = client.error()
    assert (error["reason-code"], error["receipt-id"]) == (code, "r:1")
    assert words in error["message"]
    assert error.body.decode().strip() == error["message"]
    assert server.bodies("A") == []


def test_a_body_longer_than_the_queue_takes_is_refused(server: Server, client: Client) -> None:
    server.qm.alter_queue("A", max_message_length=1000)
    client.send("A", b"x" * 1000)
    client.say("SEND", b"x" * 1001, destination="A")
    assert client.error()["reason-code"] == "2030"


def test_a_large_body_comes_through_in_pieces(server: Server, client: Client) -> None:
    body = bytes(range(256)) * 4000
    client.send("A", body, content_length=str(len(body)))
    client.subscribe("A")
    assert client.message().body == body


def test_no_receipt_before_the_log_is_safe_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, gate = threading.Event(), threading.Event()
    with queue_manager(tmp_path, "A") as manager:
        force = manager.force

        def gated(lsn: int) -> None:
            asked.set()
            assert gate.wait(DEADLINE)
            force(lsn)

        monkeypatch.setattr(manager, "force", gated)
        with serving(manager) as server, server.client() as client, server.client() as other:
            client.say("SEND", b"durable", destination="A", receipt="1")
            assert asked.wait(DEADLINE)
            other.ask("SEND", b"volatile", destination="A", persistent="false")
            other.subscribe("A")  # what is not safe yet is delivered to nobody
            other.say("UNSUBSCRIBE", id="none")
            assert other.received == b""
            gate.set()
            assert client.read()["receipt-id"] == "1"


def test_replies_keep_the_order_of_their_frames(client: Client) -> None:
    frames = []
    for number in range(300):
        persistent = "true" if number % 3 else "false"
        frames.append(client.frame("SEND", b"x", destination="A", persistent=persistent, receipt=str(number)))
    client.raw(b"".join(frames))
    assert [client.read()["receipt-id"] for _ in range(300)] == [str(number) for number in range(300)]


def test_a_reply_waits_for_the_one_before_though_all_of_it_is_safe_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before was asked for while a force was under way, so it waits for the next one."""
    begun, may_go_on = threading.Semaphore(0), threading.Semaphore(0)
    with queue_manager(tmp_path, "A") as manager:
        force = manager.force

        def gated(lsn: int) -> None:
            begun.release()
            assert may_go_on.acquire(timeout=DEADLINE)
            force(lsn)

        monkeypatch.setattr(manager, "force", gated)
        with serving(manager) as server, server.client() as client:
            [connection] = server.listener._connections
            transactions = connection._commands._transactions  # type: ignore[union-attr]
            may_go_on.release()
            client.send("A", b"so that the loop knows how far the log is safe")
            assert begun.acquire(timeout=DEADLINE)
            client.say("SEND", b"durable", destination="A")
            assert begun.acquire(timeout=DEADLINE)
            client.say("BEGIN", transaction="1", receipt="1")
            eventually(lambda: len(transactions._open) == 1)
            may_go_on.release()
            assert begun.acquire(timeout=DEADLINE)
            client.say("BEGIN", transaction="2", receipt="2")
            eventually(lambda: len(transactions._open) == 2)
            may_go_on.release(100)
            assert [client.read()["receipt-id"] for _ in range(2)] == ["1", "2"]


def test_sends_that_begin_alike_are_each_what_they_say(server: Server, client: Client) -> None:
    """Their headers are read once."""
    alike = {"destination": "A", "priority": "7", "JMSType": "till"}
    ends = str(int(time.time() * 1000) + 600_000)
    for number in range(4):
        client.say("SEND", b"%d" % number, **alike)
    for _ in range(3):
        client.say("SEND", b"", destination="B", expires=ends)
        time.sleep(0.3)
    client.ask("BEGIN", transaction="t")
    assert server.bodies("A") == [b"0", b"1", b"2", b"3"]
    for message in server.qm.browse("A"):
        assert (message.priority, dict(message.properties), message.persistent) == (7, {"JMSType": "till"}, True)
    moments = [time.time() + (message.expiry or 0) for message in server.qm.browse("B")]
    assert len(moments) == 3 and max(moments) - min(moments) < 0.25


# ---- subscriptions


def test_a_subscriber_gets_what_comes_later(server: Server, client: Client) -> None:
    client.subscribe("A")
    with server.client() as other:
        for number in range(5):
            other.send("A", b"%d" % number)
            got = client.message()
            assert got.body == b"%d" % number
            client.ask("ACK", id=got["ack"])
    assert server.bodies("A") == []


def test_with_ack_auto_a_message_is_got_when_it_is_delivered(server: Server, client: Client) -> None:
    for number in range(100):
        server.qm.put("A", b"%d" % number)
    client.subscribe("A", ack="auto")
    assert [client.message().body for _ in range(100)] == [b"%d" % number for number in range(100)]
    client.close()
    server.all_gone()
    assert server.bodies("A") == []


def test_with_ack_client_one_acknowledges_all_before_it(server: Server, client: Client) -> None:
    for number in range(4):
        server.qm.put("A", b"%d" % number)
    client.subscribe("A", ack="client")
    acks = [client.message()["ack"] for _ in range(4)]
    client.ask("ACK", id=acks[2])
    client.ask("DISCONNECT")
    assert server.counts("A") == {b"3": 0}


def test_what_is_acknowledged_outside_of_transactions_is_no_unit_of_work_that_maxumsgs_bounds(
    server: Server, client: Client
) -> None:
    server.qm.alter(max_uncommitted=3)
    for number in range(20):
        server.qm.put("A", b"%d" % number)
        server.qm.put("B", b"%d" % number)
    client.subscribe("A", ack="auto")
    assert [client.message().body for _ in range(20)] == [b"%d" % number for number in range(20)]
    client.ask("UNSUBSCRIBE", id="s1")
    client.subscribe("B", ack="client")
    acks = [client.message()["ack"] for _ in range(20)]
    client.ask("ACK", id=acks[9])
    client.ask("BEGIN", transaction="t")
    client.say("ACK", id=acks[13], transaction="t")
    assert client.error()["reason-code"] == "2024"
    server.all_gone()
    assert (server.bodies("A"), len(server.bodies("B"))) == ([], 10)


def test_with_ack_auto_what_could_not_be_got_returns_uncounted(server: Server, client: Client) -> None:
    def full(*_: object) -> int:
        raise ResourceProblem("the log is full")

    client.ask("BEGIN", transaction="t")  # it has a session by now
    [session] = server.qm.sessions
    session.accept = full  # type: ignore[method-assign]
    server.qm.put("A", b"")
    client.subscribe("A", ack="auto")
    assert client.error()["reason-code"] == "2102"
    server.all_gone()
    assert server.counts("A") == {b"": 0}


@pytest.mark.parametrize("header", ["id", "message-id"])  # as stomp-php (NACK), as Net::Stomp (both)
def test_in_1_2_a_message_can_be_acknowledged_by_its_own_id_too(server: Server, client: Client, header: str) -> None:
    for number in range(3):
        server.qm.put("A", b"%d" % number)
    client.subscribe("A")
    first, second, _ = client.message(), client.message(), client.message()
    client.ask("NACK", **{header: second["message-id"]})
    again = client.message()
    assert (again["message-id"], again["redelivered"]) == (second["message-id"], "true")
    assert again["ack"] != second["ack"]
    client.ask("ACK", **{header: again["message-id"]})
    client.ask("ACK", **{header: first["message-id"]})
    client.say("ACK", **{header: first["message-id"]})
    assert client.error()["reason-code"] == "2209"
    server.all_gone()
    assert server.counts("A") == {b"2": 1}


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_one_id_that_several_messages_have_acknowledges_the_one_that_is_meant(server: Server, version: str) -> None:
    for queue in "AAB":
        server.qm.put(queue, b"", message_id=b"same")
    with server.client(accept_version=version) as client:
        client.subscribe("A")
        first, second = client.message(), client.message()
        client.subscribe("B", id="s2")
        third = client.message()
        client.say("ACK", message_id=third["message-id"], subscription="s1")
        assert client.error()["reason-code"] == "2209"
    server.all_gone()
    with server.client(accept_version=version) as client:
        client.subscribe("B", id="s2")
        third = client.message()
        client.subscribe("A")
        first, second = client.message(), client.message()
        assert len({each["message-id"] for each in (first, second, third)}) == 3
        client.ask("ACK", message_id=second["message-id"], subscription="s1")
        client.ask("ACK", message_id=third["message-id"], subscription="s2")
        client.say("ACK", message_id=third["message-id"], subscription="s2")
        assert client.error()["reason-code"] == "2209"
    server.all_gone()
    assert (len(server.bodies("A")), server.bodies("B")) == (1, [])


def test_an_acknowledgement_of_what_was_given_back_does_not_count_for_its_next_delivery(
    server: Server, client: Client
) -> None:
    server.qm.put("A", b"")
    client.subscribe("A")
    first = client.message()
    client.ask("UNSUBSCRIBE", id="s1")
    client.subscribe("A", id="s2")
    assert client.message()["message-id"] == first["message-id"]
    client.say("ACK", message_id=first["message-id"], subscription="s1")
    assert client.error()["reason-code"] == "2209"
    server.all_gone()
    assert server.bodies("A") == [b""]


def test_an_acknowledgement_of_nothing_is_told_what_it_lacks(client: Client) -> None:
    client.say("ACK", subscription="s1")
    assert "a header id, as the MESSAGE has it in its header ack" in client.error()["message"]


def test_prefetch_bounds_what_is_not_acknowledged(server: Server, client: Client) -> None:
    for number in range(5):
        server.qm.put("A", b"%d" % number)
    client.subscribe("A", prefetch_count="2")
    first, second = client.message(), client.message()
    assert server.bodies("A") == [b"2", b"3", b"4"]
    client.ask("ACK", id=second["ack"])
    third = client.message()
    assert third.body == b"2"
    client.ask("ACK", id=first["ack"])
    client.ask("ACK", id=third["ack"])
    assert {client.message().body, client.message().body} == {b"3", b"4"}


def test_prefetch_as_activemq_has_it(server: Server, client: Client) -> None:
    for number in range(3):
        server.qm.put("A", b"%d" % number)
    client.say("SUBSCRIBE", **{"id": "1", "destination": "A", "ack": "client", "activemq.prefetchSize": "1"})
    assert client.message().body == b"0"
    assert server.bodies("A") == [b"1", b"2"]


def test_nack_returns_a_message_with_a_higher_count(server: Server, client: Client) -> None:
    server.qm.put("A", b"x")
    client.subscribe("A")
    for count in range(3):
        got = client.message()
        assert got.headers.get("redelivered", "false") == ("true" if count else "false")
        assert got.headers.get("backout-count", "0") == str(count)
        client.ask("NACK", id=got["ack"])
    assert client.message()["backout-count"] == "3"


def test_two_subscribers_share_a_queue(server: Server, client: Client) -> None:
    with server.client() as other:
        client.subscribe("A", prefetch_count="1")
        other.subscribe("A", prefetch_count="1")
        server.qm.put("A", b"1")
        server.qm.put("A", b"2")
        assert {client.message().body, other.message().body} == {b"1", b"2"}


def test_who_can_take_no_more_passes_the_word_on(server: Server, client: Client) -> None:
    client.subscribe("A", prefetch_count="1")
    server.qm.put("A", b"1")
    held = client.message()
    with server.client() as other:
        other.subscribe("A", prefetch_count="1")
        server.qm.put("A", b"2")
        assert other.message().body == b"2"
    server.qm.put("A", b"3")
    client.ask("ACK", id=held["ack"])
    assert client.message().body in (b"2", b"3")


def test_who_has_left_the_line_takes_no_word_from_those_behind_it(server: Server, client: Client) -> None:
    """It has acknowledged what it had since it stood in line first."""
    client.subscribe("A")
    server.qm.put("A", b"1")
    server.qm.put("A", b"2")
    held = [client.message() for _ in range(2)]
    for one in held:
        client.ask("ACK", id=one["ack"])
    with server.client() as other:
        other.subscribe("A")
        other.ask("BEGIN", transaction="t")
        client.ask("UNSUBSCRIBE", id="s1")
        server.qm.put("A", b"3")
        assert other.message().body == b"3"


def test_prefetch_bounds_what_waits_for_the_disk_before_it_is_sent_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    gate.set()
    with queue_manager(tmp_path, "A") as manager:
        force = manager.force
        monkeypatch.setattr(manager, "force", lambda lsn: (gate.wait(DEADLINE), force(lsn)))
        with serving(manager) as server, server.client() as client:
            client.subscribe("A", prefetch_count="2")
            manager.put_many("A", [b"1", b"2"])
            held = [client.message() for _ in range(2)]
            [connection] = server.listener._connections
            [subscription] = connection._commands._subscriptions._by_name.values()  # type: ignore[union-attr]
            gate.clear()
            manager._engine.put_many_later(None, "A", [b"3", b"4", b"5"], {})
            client.say("ACK", id=held[0]["ack"])
            eventually(lambda: server.bodies("A") == [b"4", b"5"])
            client.say("ACK", id=held[1]["ack"])
            eventually(lambda: not subscription.sent)
            gate.set()
            assert [client.message().body for _ in range(2)] == [b"3", b"4"]
            client.ask("BEGIN", transaction="t")
            assert not client.waiting


def test_what_was_got_for_a_client_comes_when_that_is_safe_though_its_subscription_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    with queue_manager(tmp_path, "A") as manager:
        manager.put("A", b"x")
        force = manager.force
        monkeypatch.setattr(manager, "force", lambda lsn: (gate.wait(DEADLINE), force(lsn)))
        with serving(manager) as server, server.client() as client:
            [connection] = server.listener._connections
            subscriptions = connection._commands._subscriptions  # type: ignore[union-attr]
            client.subscribe("A", ack="auto")
            eventually(lambda: server.bodies("A") == [])
            client.say("UNSUBSCRIBE", id="s1")
            eventually(lambda: not subscriptions._by_name)
            with server.client():  # what was to be sent before has gone by now
                assert select.select([client.socket], [], [], 0)[0] == []
            gate.set()
            assert client.message().body == b"x"


def test_unsubscribe_gives_back_uncounted_what_is_not_acknowledged(server: Server, client: Client) -> None:
    server.qm.put("A", b"1")
    server.qm.put("A", b"2")
    client.subscribe("A")
    client.ask("ACK", id=client.message()["ack"])
    late = client.message()
    client.ask("UNSUBSCRIBE", id="s1")
    assert server.counts("A") == {b"2": 0}
    server.qm.put("A", b"3")
    client.say("ACK", id=late["ack"])
    assert client.error()["reason-code"] == "2209"
    assert server.counts("A") == {b"2": 0, b"3": 0}


def test_an_abrupt_end_counts_what_was_seen(server: Server, client: Client) -> None:
    server.qm.put("A", b"1")
    client.subscribe("A")
    client.message()
    client.close()
    server.all_gone()
    assert server.counts("A") == {b"1": 1}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"destination": "A"}, "2046"),
        ({"id": "1"}, "2046"),
        ({"id": "1", "destination": "NONE"}, "2085"),
        ({"id": "1", "destination": "A", "ack": "sometimes"}, "2046"),
        ({"id": "1", "destination": "A", "prefetch_count": "0"}, "2046"),
        ({"id": "1", "destination": "A", "prefetch_count": "1001"}, "2046"),
        ({"id": "1", "destination": "A", "selector": "a = 1"}, "2067"),
        ({"id": "1", "destination": "A", "browser": "true"}, "2046"),  # ActiveMQ's: look, and take nothing
        ({"id": "1", "destination": "A", "activemq.exclusive": "true"}, "2046"),
        ({"id": "1", "destination": "A", "exclusive": "true"}, "2046"),
        ({"id": "s1", "destination": "B"}, "2042"),
    ],
)
def test_subscriptions_that_can_not_be(client: Client, headers: dict[str, str], code: str) -> None:
    client.subscribe("A")
    client.say("SUBSCRIBE", **headers, receipt="9")
    error = client.error()
    assert (error["reason-code"], error["receipt-id"]) == (code, "9")


def test_a_subscription_is_not_refused_for_what_it_does_not_want(server: Server, client: Client) -> None:
    server.qm.put("A", b"1")
    client.subscribe("A", browser="false", exclusive="false", durable="true")
    assert client.message().body == b"1"


def test_a_nack_that_would_not_have_the_message_back_is_refused(server: Server, client: Client) -> None:
    """RabbitMQ's requeue:false; the message would come again and again."""
    server.qm.put("A", b"1")
    client.subscribe("A")
    client.say("NACK", id=client.message()["ack"], requeue="false")
    assert "has requeue:false" in client.error()["message"]
    server.all_gone()
    assert server.counts("A") == {b"1": 1}


def test_a_nack_may_say_that_the_message_goes_back(server: Server, client: Client) -> None:
    server.qm.put("A", b"1")
    client.subscribe("A")
    client.ask("NACK", id=client.message()["ack"], requeue="true")
    assert client.message()["redelivered"] == "true"


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_what_was_acknowledged_can_not_be_again(server: Server, client: Client, command: str) -> None:
    server.qm.put("A", b"1")
    client.subscribe("A")
    ack = client.message()["ack"]
    client.ask("ACK", id=ack)
    client.say(command, id=ack)
    assert client.error()["reason-code"] == "2209"
    assert server.bodies("A") == []


def test_gets_that_are_disabled_later_end_the_connection(server: Server, client: Client) -> None:
    client.subscribe("A")
    client.send("B", b"")
    server.qm.alter_queue("A", get_enabled=False)
    assert client.error()["reason-code"] == "2016"


def test_a_queue_that_is_deleted_ends_the_connection(server: Server, client: Client) -> None:
    client.subscribe("A", ack="auto")
    client.send("A", b"1")
    assert client.message().body == b"1"
    server.qm.delete_queue("A")
    client.say("SEND", b"2", destination="A")
    assert client.error()["reason-code"] in ("2085", "2052")


# ---- older versions


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_older_versions_acknowledge_by_message_id(server: Server, version: str) -> None:
    for number in range(2):
        server.qm.put("A", b"%d" % number, message_id=b"the same")
    with server.client(accept_version=version) as client:
        client.subscribe("A", ack="client-individual")
        first, second = client.message(), client.message()
        assert "ack" not in first.headers
        assert first["message-id"] == b"the same".ljust(24, b"\0").hex()
        assert second["message-id"] != first["message-id"]
        client.ask("ACK", message_id=second["message-id"], subscription="s1")
        client.ask("DISCONNECT")
    assert server.bodies("A") == [b"0"]


def test_a_subscription_of_1_0_needs_no_id(server: Server) -> None:
    server.qm.put("A", b"x\0y", properties={"a": "1\n2"})
    with server.client(accept_version="1.0") as client:
        client.say("SUBSCRIBE", destination=" /queue/A", ack=" client")
        got = client.message()
        assert (got.body, got["a"], "subscription" in got.headers) == (b"x\0y", "1 2", False)
        client.ask("UNSUBSCRIBE", destination="/queue/A")
    assert server.counts("A") == {b"x\0y": 0}


# ---- the queue manager ends


def test_while_it_ends_what_has_begun_goes_on_and_nothing_new_begins(server: Server, client: Client) -> None:
    server.qm.put("A", b"1")
    client.subscribe("A")
    got = client.message()
    client.ask("BEGIN", transaction="t")
    with server.client() as other, server.client() as third:
        server.listener.refuse()
        server.qm.put("A", b"2")
        client.ask("SEND", b"reply", destination="B", transaction="t")
        client.ask("ACK", id=got["ack"], transaction="t")
        client.ask("COMMIT", transaction="t")
        assert (server.bodies("A"), server.bodies("B")) == ([b"2"], [b"reply"])
        other.say("SEND", b"new", destination="A", receipt="1")
        assert other.error()["reason-code"] == "2161"
        third.say("BEGIN", transaction="new")
        assert third.error()["reason-code"] == "2161"
        client.say("SUBSCRIBE", id="2", destination="A")
        assert client.error()["reason-code"] == "2161"
    with pytest.raises(ConnectionRefusedError):
        server.stranger()


def test_when_it_has_ended_every_client_is_told_and_backed_out(server: Server, client: Client) -> None:
    server.qm.put("A", b"1")
    client.ask("BEGIN", transaction="t")
    client.ask("SEND", b"half", destination="B", transaction="t")
    with server.client() as other:
        other.subscribe("A")
        other.message()
        server.listener.close()
        for one in (client, other):
            assert one.error()["reason-code"] == "2162"
    assert len(server.qm.sessions) == 0
    assert (server.counts("A"), server.bodies("B")) == ({b"1": 1}, [])


def test_a_log_that_fails_acknowledges_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(lsn: int) -> None:
        raise OSError("the disk is gone")

    thread: LoopThread | None = server.listener._thread
    assert thread is not None
    with server.client() as client:
        monkeypatch.setattr(thread.forcer, "_force", broken)
        for number in range(3):
            client.say("SEND", b"x", destination="A", receipt=str(number))
        assert "the disk is gone" in client.error()["message"]


def test_a_queue_manager_that_ended_under_its_listener_ends_the_connections(server: Server) -> None:
    server.qm.put("A", b"1")
    with server.client() as client, server.client() as idle:
        client.subscribe("A")
        ack = client.message()["ack"]
        client.ask("BEGIN", transaction="t")
        client.ask("SEND", b"half", destination="B", transaction="t")
        server.qm.end("immediate")
        client.say("ACK", id=ack, transaction="t", receipt="1")
        assert client.error()["reason-code"] in ("2162", "2003")
        server.listener.close()
        assert idle.error()["reason-code"] == "2162"


def test_what_a_client_holds_is_no_unit_of_work(server: Server, client: Client) -> None:
    server.qm._engine.max_uncommitted = 3
    for number in range(10):
        server.qm.put("A", b"%d" % number)
    client.subscribe("A", ack="client")
    acks = [client.message()["ack"] for _ in range(10)]
    client.ask("ACK", id=acks[2])
    client.ask("ACK", id=acks[9])  # seven at once are none of the client's either


def test_replies_wait_for_no_acknowledgement_of_the_one_before(server: Server, client: Client) -> None:
    (connection,) = server.listener._connections
    assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
