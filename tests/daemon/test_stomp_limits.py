"""What a slow, silent, greedy or hostile client meets: bounds, time-outs, and that others do not feel it."""

import errno
import gc
import socket
import ssl
import struct
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import attrs
import pytest

from qmgr.daemon import stomp_connection, stomp_subscriptions
from qmgr.daemon.stomp_connection import FRAMES_PER_TURN, MAX_HEADERS
from qmgr.daemon.stomp_subscriptions import MAX_SUBSCRIPTIONS
from tests.daemon.certificates import Authority
from tests.daemon.stomp_world import DEADLINE, QUICK, Client, Server, eventually, queue_manager, serving

HASTY = attrs.evolve(QUICK, frame=0.3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no command"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "no command"),
        (b"AMQP\0\1\0\0", "no command"),
        (b"CONNECT\n" + b"x" * 7000, "longer than the 6144 bytes"),
        (b"CONNECT\n" + b"a:b\n" * 51 + b"\n\0", "51 headers"),
        (b"CONNECT\ncontent-length:1000000000\n\n", "has no body"),
        (b"SEND\n\n" + b"x" * 10_000, "longer than"),
    ],
)
def test_a_stranger_has_a_few_kilobytes_and_hears_what_was_wrong(server: Server, data: bytes, words: str) -> None:
    """Rows 72 and 73."""
    with server.stranger() as client:
        client.raw(data)
        assert words in client.error()["message"]
    assert any(amq == "AMQ9209" for amq, _ in server.service.said)


def test_frames_are_bounded_also_later(tmp_path: Path) -> None:
    """Row 73."""
    with queue_manager(tmp_path, "A") as manager, serving(manager, limits={"max_frame_length": 70_000}) as server:
        with server.client() as client:
            client.say("SEND", b"", destination="A", content_length="70001")
            assert "70000 bytes (MaxFrameLength)" in client.error()["message"]
        with server.client() as client:
            client.raw(b"SEND\n" + b"".join(b"h%d:x\n" % number for number in range(MAX_HEADERS + 1)) + b"\n\0")
            assert f"at most {MAX_HEADERS}" in client.error()["message"]


def test_what_comes_is_acknowledged_at_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system of a client that writes a frame in pieces sends one when the one before is acknowledged."""
    option, asked, really = 12, [], socket.socket.setsockopt

    def heard(self: socket.socket, level: int, name: int, *value: Any) -> None:
        if (level, name) == (socket.IPPROTO_TCP, option):
            asked.append(value)
        else:
            really(self, level, name, *value)

    monkeypatch.setattr(stomp_connection, "QUICKACK", option)
    monkeypatch.setattr(socket.socket, "setsockopt", heard)
    for count, piece in enumerate((b"SEND\ndestination:A\nreceipt:1\n", b"\n", b"x\0"), 1):
        client.raw(piece)
        eventually(lambda: len(asked) >= count)  # noqa: B023
    assert client.read().command == "RECEIPT"
    assert set(asked) == {(1,)}


def test_subscriptions_are_bounded(client: Client) -> None:
    """Row 77."""
    for number in range(MAX_SUBSCRIPTIONS + 1):
        client.subscribe("A", id=str(number))
    assert client.error()["reason-code"] == "2017"


def test_what_a_connection_holds_is_bounded_over_all_its_subscriptions(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 77: others get the rest; what is acknowledged makes room."""
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD", 3)

    def left() -> list[int]:
        return [server.qm.queue(name).depth for name in "AB"]

    for name in "AB":
        server.qm.put_many(name, [b"x"] * 4)
    for name in "AB":
        client.ask("SUBSCRIBE", id=name, destination=name, ack="client-individual")
    assert left() == [1, 4]
    for rest in (4, 3, 2):  # the first from A, which has no more then
        client.ask("ACK", id=client.message()["ack"])
        eventually(lambda: sum(left()) == rest)  # noqa: B023
    assert left() == [0, 2]
    with server.client() as other:
        other.subscribe("B", ack="client-individual")
        assert other.message().body == b"x"


def test_large_messages_that_nobody_acknowledges_are_bounded_by_their_bytes(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 77: what is held is in memory. There is always room for one, however long it is."""
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD_BYTES", 250_000)

    server.qm.put_many("A", [b"x" * 100_000] * 6)
    client.ask("SUBSCRIBE", id="a", destination="A", ack="client-individual")
    marks = [client.message()["ack"] for _ in range(3)]
    assert server.qm.queue("A").depth == 3
    for left in (2, 1):
        client.ask("ACK", id=marks.pop(0))
        marks.append(client.message()["ack"])
        assert server.qm.queue("A").depth == left
    client.ask("UNSUBSCRIBE", id="a")
    assert server.qm.queue("A").depth == 4
    server.qm.put("B", b"y" * 600_000)
    client.ask("SUBSCRIBE", id="b", destination="B", ack="client-individual")
    assert len(client.message().body) == 600_000


def acknowledge_all_that_may_be_kept(server: Server, client: Client, verb: str) -> None:
    """In transaction t, of eight messages on A, where 250,000 bytes may be."""
    server.qm.put_many("A", [b"x" * 100_000] * 8)
    client.ask("SUBSCRIBE", id="a", destination="A", ack="client-individual")
    client.ask("BEGIN", transaction="t")
    for mark in [client.message()["ack"] for _ in range(3)]:
        client.ask(verb, id=mark, transaction="t")


@pytest.mark.parametrize("verb", ["ACK", "NACK"])
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_large_messages_that_a_transaction_has_acknowledged_count_until_it_ends(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, verb: str, end: str
) -> None:
    """Their bodies are in memory as long: a client had a queue larger than memory put there. One comes all the same."""
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD_BYTES", 250_000)
    acknowledge_all_that_may_be_kept(server, client, verb)
    client.ask("SEND", b"another turn", destination="B")
    assert len(client.message().body) == 100_000
    client.ask("SEND", b"another turn", destination="B")
    assert server.qm.queue("A").depth == 4, "no more are taken"
    client.ask(end, transaction="t")
    assert len(client.message().body) == 100_000
    gone = verb == "ACK" and end == "COMMIT"
    eventually(lambda: server.qm.queue("A").depth == (2 if gone else 5))


def test_what_transactions_have_acknowledged_that_are_over_counts_no_more(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD_BYTES", 250_000)
    server.qm.put_many("A", [b"x" * 100_000] * 8)
    client.ask("SUBSCRIBE", id="a", destination="A", ack="client-individual")
    for turn in range(8):
        client.ask("BEGIN", transaction=f"{turn}")
        client.ask("ACK", id=client.message()["ack"], transaction=f"{turn}")
        client.ask("COMMIT", transaction=f"{turn}")
    assert server.qm.queue("A").depth == 0


@pytest.mark.parametrize("verb", ["ACK", "NACK"])
def test_who_acknowledges_on_and_on_in_a_transaction_is_told_that_it_has_to_end(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It waited for messages, and the server for its COMMIT."""
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD_BYTES", 250_000)
    acknowledge_all_that_may_be_kept(server, client, verb)
    client.say(verb, id=client.message()["ack"], transaction="t")
    assert client.error()["reason-code"] == "2024"
    eventually(lambda: server.qm.queue("A").depth == 8)


def test_large_messages_behind_small_ones_are_bounded_by_their_bytes_too(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes next may be as large as the queue takes, whatever came before."""
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD_BYTES", 250_000)
    server.qm.put_many("A", [b"s"] * 3 + [b"x" * 100_000] * 10)
    server.qm.alter_queue("A", max_message_length=100_000)
    client.ask("SUBSCRIBE", id="a", destination="A", ack="client-individual")
    assert [len(client.message().body) for _ in range(6)] == [1, 1, 1, 100_000, 100_000, 100_000]
    assert server.qm.queue("A").depth == 7


def test_a_peer_that_is_gone_unheard_is_found_out_without_heart_beats(server: Server, client: Client) -> None:
    """Row 76."""
    client.ask("SEND", b"x", destination="A")
    [connection] = server.listener._connections
    assert connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    for option, value in stomp_connection.KEEPALIVE:
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, option) == value


def test_too_many_connections_are_told_so_and_make_room_when_they_leave(tmp_path: Path) -> None:
    """Row 76."""
    with queue_manager(tmp_path, "A") as manager, serving(manager, limits={"max_channels": 2}) as server:
        first, second = server.client(), server.client()
        for _ in range(2):
            with server.stranger() as refused:
                assert refused.error()["reason-code"] == "2025"
        assert [amq for amq, _ in server.service.said] == ["AMQ9513"]
        first.ask("SEND", b"x", destination="A")
        second.close()
        server.all_gone_but(1)
        with server.client() as third:
            third.ask("DISCONNECT")
        first.close()


def test_far_too_many_are_told_so_and_those_who_are_there_go_on(tmp_path: Path) -> None:
    """Row 76."""
    with (
        queue_manager(tmp_path, "A") as manager,
        serving(manager, limits={"max_channels": 1}) as server,
        server.client() as client,
    ):
        others = [server.stranger() for _ in range(30)]
        for other in others:
            with other:
                assert other.error()["reason-code"] == "2025"
        client.ask("SEND", b"x", destination="A")


def test_row_76_while_there_are_no_descriptors_those_who_are_there_are_served(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = server.listener._state.loop
    accept, failures = loop.sock_accept, [OSError(errno.EMFILE, "Too many open files")] * 2

    async def scarce(listening: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", scarce)
    with server.client(), server.client() as later:  # the first was awaited before
        later.ask("SEND", b"let in", destination="A")
    client.ask("SEND", b"served", destination="A")
    assert not failures
    assert [amq for amq, _ in server.service.said] == ["AMQ9213"]


@pytest.mark.parametrize("said", [b"", b"CONNECT\naccept-version:1.2\n"])
def test_who_does_not_connect_in_time_is_cut_off(tmp_path: Path, said: bytes) -> None:
    """Row 75."""
    hasty = attrs.evolve(QUICK, connect=0.3)
    with queue_manager(tmp_path) as manager, serving(manager, hasty) as server, server.stranger() as client:
        client.raw(said)
        error = client.error()
        assert (error["reason-code"], "no CONNECT" in error["message"]) == ("2009", True)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (b"content-length:x\n\n", "content-length is"),
        (b"content-length:999999999999\n\n", "MaxFrameLength"),
        (b"content-length:1\n\nab", "comes no NUL"),
        (b"\nand so", "not complete within"),
    ],
)
def test_the_error_for_a_body_that_can_not_be_names_the_receipt_of_its_frame(
    tmp_path: Path, rest: bytes, words: str
) -> None:
    with queue_manager(tmp_path, "A") as manager, serving(manager, HASTY) as server, server.client() as client:
        client.raw(b"SEND\ndestination:A\nreceipt:r\\c1\n" + rest)
        error = client.error()
        assert (error["receipt-id"], words in error["message"]) == ("r:1", True)


@pytest.mark.parametrize("head", [b"SEND\ndestination:A\nreceipt:1\nno header\n\n", b"receipt:1\n\n"])
def test_the_error_for_a_head_that_can_not_be_read_names_no_receipt(tmp_path: Path, head: bytes) -> None:
    with queue_manager(tmp_path, "A") as manager, serving(manager) as server, server.client() as client:
        client.ask("SEND", b"x", destination="A")
        client.raw(head)
        assert "receipt-id" not in client.error().headers


def test_a_frame_that_was_begun_must_come_to_its_end(tmp_path: Path) -> None:
    """Row 75."""
    with queue_manager(tmp_path, "A") as manager, serving(manager, HASTY) as server, server.client() as client:
        client.ask("BEGIN", transaction="t")
        client.raw(b"SEND\ndestination:A\ntransaction:t\n\nand so")
        with server.client() as other:  # who is only silent is not cut off
            assert "not complete within" in client.error()["message"]
            other.ask("SEND", b"x", destination="A")
        assert manager.transactions() == []


def test_a_frame_that_was_begun_behind_many_others_must_come_to_its_end(tmp_path: Path) -> None:
    """Row 75: nothing was read while those were done, and after that its time runs too."""
    with queue_manager(tmp_path, "A") as manager, serving(manager, HASTY) as server, server.client() as client:
        many = client.frame("SEND", b"x", destination="A", persistent="false") * (FRAMES_PER_TURN + 1)
        client.raw(many + b"SEND\ndestination:A\n\nand so")
        assert "not complete within" in client.error()["message"]
        assert manager.queue("A").depth == FRAMES_PER_TURN + 1


def test_what_came_of_a_frame_is_given_back_when_its_client_goes(server: Server) -> None:
    """Also where Python does not look for cycles for long."""
    size, count = 1 << 20, 8
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(count):
            with server.client() as client:
                client.raw(b"SEND\ndestination:A\ncontent-length:%d\n\n" % size + bytes(size - 1))
                [connection] = server.listener._connections
                eventually(lambda parser=connection._parser: len(parser._buffer) >= size - 1)
                del connection
            server.all_gone()
        assert tracemalloc.get_traced_memory()[0] < 2 * size
    finally:
        tracemalloc.stop()
        gc.enable()


def test_a_byte_at_a_time_does_not_help_nor_disturb_others(tmp_path: Path) -> None:
    """Row 75."""
    with queue_manager(tmp_path, "A") as manager, serving(manager, HASTY) as server, server.client() as other:
        with server.client() as client:
            client.socket.settimeout(0.01)
            client.raw(b"SEND\ndestination:A\n\n")
            while True:
                try:
                    if client.socket.recv(1 << 16):
                        break
                except TimeoutError:
                    client.raw(b"x")
                    other.send("A", b"prompt")
        assert set(server.bodies("A")) == {b"prompt"}


def test_the_time_of_a_frame_counts_from_its_first_byte(server: Server, client: Client) -> None:
    """Row 75: not from the last that came, however slow this machine and its clients are."""
    [connection] = server.listener._connections
    client.raw(b"SEND\ndestination:A\n\n")
    eventually(lambda: connection.times.frame_began > 0)
    began = connection.times.frame_began
    for size in (1, 2):
        client.raw(b"x")
        eventually(lambda: connection._parser._buffer.endswith(b"x" * size))  # noqa: B023
    assert connection.times.frame_began == began < connection.times.received_at


def test_heart_beats_go_both_ways_and_silence_ends_it(server: Server) -> None:
    """Row 76."""
    with server.client(heart_beat="200,200") as client:
        server.qm.put("A", b"1")
        client.subscribe("A")
        client.message()
        client.await_beats(3, answers=True)
        error = client.error()
        assert (error["reason-code"], "no heart-beat" in error["message"]) == ("2009", True)
    server.all_gone()
    assert server.counts("A") == {b"1": 1}


def test_nobody_beats_who_was_not_asked_to(server: Server) -> None:
    with server.client() as silent, server.client(heart_beat="0,200") as hears, server.client(heart_beat="0,0") as none:
        hears.await_beats(3)
        for one in (silent, hears, none):
            one.ask("SEND", b"x", destination="A")
        assert silent.beats == none.beats == 0


@pytest.mark.parametrize("said", ["1", "1,2,3", "a,b", "-1,0", "²,0", "0,²", "0,9999999999"])
def test_a_heart_beat_that_is_none(server: Server, said: str) -> None:
    with server.stranger() as client:
        client.say("CONNECT", accept_version="1.2", heart_beat=said)
        assert "two numbers of milliseconds" in client.error()["message"]


def test_whose_turn_it_is_and_who_may_have_no_more_lets_the_next_one_have_the_message(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD", 1)
    with server.client() as full, server.client() as other:
        full.ask("SUBSCRIBE", id="a", destination="A", ack="client")
        full.ask("SUBSCRIBE", id="b", destination="B", ack="client")
        other.ask("SUBSCRIBE", id="a", destination="A", ack="client")
        server.qm.put("B", b"fills it")
        assert full.message().body == b"fills it"
        server.qm.put("A", b"x")
        assert other.message().body == b"x"


def test_a_client_is_held_to_no_more_heart_beats_than_it_has_offered(server: Server) -> None:
    """It was to be heard every three hours, whatever it had said."""
    with server.client(heart_beat="900000000,800000000"):
        [connection] = server.listener._connections
        assert (connection.times.wanted_beat, connection.times.beat) == (900_000.0, 800_000.0)


@pytest.mark.parametrize(
    ("limit", "most", "count"), [("MAX_PENDING", 10, 10), ("MAX_UNFORCED_BYTES", 50_000, 5)], ids=["replies", "bytes"]
)
def test_who_sends_faster_than_the_disk_takes_it_is_not_read_until_that_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, count: int
) -> None:
    gate = threading.Event()
    gate.set()
    with queue_manager(tmp_path, "A") as manager:
        force = manager.force
        monkeypatch.setattr(manager, "force", lambda lsn: (gate.wait(DEADLINE), force(lsn)))
        monkeypatch.setattr(stomp_connection, limit, most)
        with serving(manager) as server, server.client() as client:
            client.send("A", b"so that the loop knows how far the log is safe")
            [connection] = server.listener._connections
            gate.clear()
            body = b"x" * (10 if limit == "MAX_PENDING" else 10_000)
            frames = [client.frame("SEND", body, destination="A", receipt=f"{one}") for one in range(3 * count)]
            client.raw(b"".join(frames))
            eventually(lambda: manager.queue("A").depth > count and not connection._reading)
            assert manager.queue("A").depth == 1 + count
            gate.set()
            assert [client.read()["receipt-id"] for _ in frames] == [str(one) for one in range(3 * count)]


@pytest.mark.parametrize(
    ("command", "header"),
    [("SEND", "priority"), ("SEND", "content_length"), ("SUBSCRIBE", "prefetch_count")],
)
def test_digits_of_other_scripts_are_no_number(server: Server, client: Client, command: str, header: str) -> None:
    client.say(command, destination="A", id="1", **{header: "²"})
    error = client.error()
    assert "not '²'" in error["message"] and error["reason"] != "MQRC_UNEXPECTED_ERROR"


@pytest.mark.parametrize("last", ["DISCONNECT", "SEND"])
def test_what_comes_behind_the_last_frame_of_a_connection_is_not_done(server: Server, last: str) -> None:
    """It would open another session, of a client that hears nothing of it."""
    with server.client() as client, server.client() as other:
        again = client.frame("CONNECT", accept_version="1.2", host="qm")
        client.raw(client.frame(last, destination="none") + again)
        if last == "SEND":
            assert client.error()["reason-code"] == "2085"
        assert client.at_end()
        other.send("A", b"x")
        assert len(server.qm.sessions) == 1


def narrow(client: Client) -> None:
    """As little as can be is kept for it in the system."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


def test_deliveries_to_who_does_not_read_stop_and_go_on_when_it_reads(server: Server) -> None:
    body = bytes(100_000)
    for _ in range(100):  # more than the system takes for who does not read
        server.qm.put("A", body, persistent=False)
    with server.client() as client, server.client() as other:
        client.subscribe("A", ack="client", prefetch_count="1000")
        eventually(lambda: server.qm.queue("A").uncommitted > 0)
        other.subscribe("A", prefetch_count="1")  # the first who does not read has left something
        assert other.message().body == body
        acks = [client.message()["ack"] for _ in range(99)]
        client.ask("ACK", id=acks[-1])
        assert server.qm.queue("A").depth == 0


def test_who_never_reads_is_cut_off_and_all_is_given_back(tmp_path: Path) -> None:
    """Row 75."""
    with queue_manager(tmp_path, "A", "B") as manager, serving(manager, HASTY) as server:
        for _ in range(100):
            manager.put("A", bytes(50_000), persistent=False)
        with server.client() as client:
            narrow(client)
            client.say("BEGIN", transaction="t")
            client.say("SEND", b"half", destination="B", transaction="t")
            client.subscribe("A", ack="client", prefetch_count="1000")
            eventually(lambda: any("has read nothing" in str(inserts) for _, inserts in server.service.said))
            server.all_gone()
        assert len(server.bodies("A")) == 100
        assert sum(server.counts("A").values()) == 0 or max(server.counts("A").values()) == 1
        assert manager.queue("B").depth == 0


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_who_reads_slowly_gets_all_of_it_however_long_that_takes(tmp_path: Path, tls: bool) -> None:
    """Row 75. What TLS has encrypted waits where nobody counts it."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    given = {"tls_certificate": certificate, "tls_key": key} if tls else {}
    timing = attrs.evolve(QUICK, frame=1.5)
    with queue_manager(tmp_path, "A") as manager, serving(manager, timing, **given) as server:
        manager.alter(max_message_length=20_000_000)
        manager.alter_queue("A", max_message_length=20_000_000)
        body, count = bytes(16_000_000), 2
        for _ in range(count):
            manager.put("A", body, persistent=False)
        context = ssl.create_default_context(cafile=authority.path)
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)  # before it is connected: the window is small then
        plain.settimeout(30)
        plain.connect(("127.0.0.1", server.port))
        with Client(context.wrap_socket(plain, server_hostname="localhost") if tls else plain) as client:
            client.connect()
            client.subscribe("A", ack="client")
            said, step = bytearray(), threading.Event()
            while len(said) < count * len(body):
                before = len(said)
                while len(said) < min(before + 500_000, count * len(body)):
                    part = client.socket.recv(65536)
                    assert part, "it was cut off"
                    said += part
                step.wait(0.1)
            while said.count(b"\0\n") < count:
                said += client.socket.recv(65536)
        assert not [amq for amq, _ in server.service.said if amq == "AMQ9209"]


def test_who_sends_and_never_reads_the_receipts_is_stopped(tmp_path: Path) -> None:
    """Row 75."""
    with queue_manager(tmp_path, "A") as manager, serving(manager, HASTY) as server, server.client() as client:
        narrow(client)
        client.socket.setblocking(False)
        frame = client.frame("SEND", b"", destination="A", persistent="false", receipt="r" * 5000) * 10
        data = memoryview(frame)

        def stopped() -> bool:
            nonlocal data
            try:
                for _ in range(10):
                    data = data[client.socket.send(data) :] or memoryview(frame)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        eventually(stopped)
        depth = manager.queue("A").depth
        assert depth * 5000 < 16 << 20  # what waited for it was bounded


def test_a_connection_that_is_reset_gives_back_what_it_had(server: Server, client: Client) -> None:
    server.qm.put("A", b"1")
    client.subscribe("A")
    client.message()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    server.all_gone()
    assert server.counts("A") == {b"1": 1}


def test_a_client_of_many_frames_at_a_time_leaves_others_their_turn(server: Server, client: Client) -> None:
    with server.client() as busy:
        busy.socket.setblocking(False)
        frames = busy.frame("SEND", b"x", destination="A", persistent="false") * 20_000
        sent = 0
        while sent < len(frames):
            try:
                sent += busy.socket.send(frames[sent : sent + 200_000])
            except BlockingIOError:
                client.send("B", b"y")
        busy.socket.setblocking(True)
        busy.socket.settimeout(30)
        busy.ask("DISCONNECT")
    assert server.qm.queue("A").depth == 20_000


def test_a_slow_reader_gets_from_all_its_queues(server: Server, client: Client) -> None:
    for queue in ("A", "B"):
        for _ in range(60):
            server.qm.put(queue, bytes(100_000), persistent=False)
        client.subscribe(queue, id=queue, ack="client", prefetch_count="1000")
    seen = [client.message()["subscription"] for _ in range(120)]
    assert seen.count("A") == seen.count("B") == 60
    assert "B" in seen[:100]


def test_who_had_no_room_is_asked_again_when_a_subscription_ends(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD", 3)
    server.qm.put_many("A", [b"held"] * 3)
    client.subscribe("A", id="a")
    for _ in range(3):
        client.message()
    server.qm.put("B", b"starved")
    client.subscribe("B", id="b")
    client.ask("UNSUBSCRIBE", id="a")
    assert client.message().body == b"starved"


def test_who_had_no_room_is_asked_again_when_what_was_in_the_way_is_sent(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on its way with ack:auto counts until it is sent; no ACK says so then."""
    monkeypatch.setattr(stomp_subscriptions, "MAX_HELD_BYTES", 3000)
    server.qm.put("A", bytes(3000))
    server.qm.put("B", b"starved")
    both = [client.frame("SUBSCRIBE", destination=f"/queue/{name}", id=name, ack="auto") for name in ("A", "B")]
    client.raw(b"".join(both))
    assert {client.message()["subscription"] for _ in range(2)} == {"A", "B"}


def test_nobody_brings_more_while_checkpoints_do_not_keep_up(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has sent before waits, whoever else there is goes on."""
    overrun = True
    monkeypatch.setattr(server.qm._engine.checkpointer, "overdue", lambda: overrun)
    client.ask("SEND", b"first", destination="A")
    client.say("SEND", b"second", destination="A")
    with server.client() as other:
        other.subscribe("A")
        assert other.message().body == b"first"
        assert server.bodies("A") == []
        overrun = False
        assert other.message().body == b"second"


def test_who_was_held_back_for_a_moment_goes_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads say when checkpoints do not keep up: that may begin and be over between any two looks at it."""
    left: list[bool] = []
    monkeypatch.setattr(server.qm._engine.checkpointer, "overdue", lambda: bool(left) and left.pop())
    for before in range(8):
        for looks in (1, 2):
            with server.client() as client:
                client.send("A", b"it sends")
                left[:] = [True] * looks + [False] * before
                client.raw(b"".join(client.frame("SEND", b"x", destination="A", receipt=f"{n}") for n in range(3)))
                assert [client.read()["receipt-id"] for _ in range(3)] == ["0", "1", "2"]
