"""What finds no room in the log waits for it in a thread of its own: other clients go on, frames keep their order."""

import socket
import threading
from collections.abc import Callable, Iterator

import attrs
import pytest

from recovery.records import GET_COST
from tests.daemon.stomp_world import DEADLINE, Client, Server, eventually


@attrs.define
class Log:
    """One that has no room, until a call that waits for some is let go on."""

    server: Server
    made: list[str] = attrs.Factory(list)  # the threads in which room was made
    go_on: threading.Event = attrs.Factory(threading.Event)
    limit: int = 0

    def fill(self) -> None:
        space = self.server.qm._engine.log.space
        self.limit, space.limit = space.limit, 0

    def make_space(self, size: int, promise: int, spare: bool) -> str:
        self.made.append(threading.current_thread().name)
        assert self.go_on.wait(DEADLINE)
        self.server.qm._engine.log.space.limit = self.limit
        return ""

    def is_safe(self) -> bool:
        """Has all that was logged reached the disk?"""
        log = self.server.qm._engine.log
        return log.safe == log.buffer.tail

    def is_waited_for(self) -> None:
        """And not by the loop, which has all clients."""
        eventually(lambda: bool(self.made))
        assert "LISTENERS" not in self.made
        with self.server.client() as other:
            other.subscribe("NONE", ack="client")
            other.ask("UNSUBSCRIBE", id="s1")


@pytest.fixture
def log(server: Server) -> Iterator[Log]:
    engine = server.qm._engine
    server.qm.define_queue("NONE")
    made = Log(server)
    usual, engine._make_space = engine._make_space, made.make_space
    yield made
    made.go_on.set()
    engine._make_space = usual


def test_a_send_waits_for_room_elsewhere_and_what_follows_it_comes_after_it(
    server: Server, client: Client, log: Log
) -> None:
    log.fill()
    for number in range(3):  # those behind it find room, since they need none
        client.say("SEND", b"%d" % number, destination="A", receipt=f"{number}", persistent=str(not number).lower())
    log.is_waited_for()
    assert server.bodies("A") == []
    log.go_on.set()
    assert [client.read()["receipt-id"] for _ in range(3)] == ["0", "1", "2"]
    assert server.bodies("A") == [b"0", b"1", b"2"]


def test_a_send_without_a_receipt_is_done_too(server: Server, client: Client, log: Log) -> None:
    log.fill()
    client.say("SEND", b"x", destination="A")
    log.is_waited_for()
    log.go_on.set()
    eventually(lambda: server.bodies("A") == [b"x"])
    client.ask("SEND", b"y", destination="A")


@pytest.mark.parametrize("transaction", [None, "t"])
def test_an_acknowledgement_waits_for_room_elsewhere(
    server: Server, client: Client, log: Log, transaction: str | None
) -> None:
    server.qm.put("A", b"x")
    client.subscribe("A", prefetch_count="1")
    got = client.message()
    named = {} if transaction is None else {"transaction": transaction}
    if transaction is not None:
        client.say("BEGIN", transaction=transaction)
        client.ask("SEND", b"sent", destination="B", transaction=transaction, persistent="false")
    log.fill()
    client.say("ACK", id=got["ack"], **named)
    log.is_waited_for()
    log.go_on.set()
    if transaction is not None:
        client.ask("COMMIT", transaction=transaction)
        assert server.bodies("B") == [b"sent"]
    client.ask("DISCONNECT")
    assert server.bodies("A") == []


@pytest.mark.parametrize("end", [None, "COMMIT", "ABORT"])
def test_a_refusal_waits_for_room_elsewhere(server: Server, client: Client, log: Log, end: str | None) -> None:
    server.qm.put("A", b"x")
    client.subscribe("A", prefetch_count="1")
    got = client.message()
    if end is None:
        log.fill()
        client.say("NACK", id=got["ack"], receipt="r")
    else:
        client.say("BEGIN", transaction="t")
        client.ask("NACK", id=got["ack"], transaction="t")
        log.fill()
        client.say(end, transaction="t", receipt="r")
    log.is_waited_for()
    log.go_on.set()
    answers = {frame.command: frame for frame in (client.read(), client.read())}
    assert answers["RECEIPT"]["receipt-id"] == "r"
    assert answers["MESSAGE"]["backout-count"] == "1"


@pytest.mark.parametrize("comes", [True, False])
def test_what_is_refused_in_parts_is_refused_once(server: Server, client: Client, log: Log, comes: bool) -> None:
    """The first part is done at once, and for the second there is no room, or there is some later."""
    engine = server.qm._engine
    engine.max_uncommitted = part = 10  # MAXUMSGS
    for number in range(2 * part):
        server.qm.put("A", b"%d" % number)
    client.subscribe("A", ack="client", prefetch_count="1000")
    got = [client.message() for _ in range(2 * part)]
    log.fill()
    space, unit = engine.log.space, engine.new_unit("", None)
    space.limit = engine.log.buffer.tail + space.promised + engine.promise_of(unit, GET_COST * part)
    engine.discard_unit(unit)
    if not comes:
        engine._make_space = lambda size, promise, spare: "the log is full"
    client.say("NACK", id=got[-1]["ack"], receipt="r")
    if comes:
        log.is_waited_for()
        assert sum(server.counts("A").values()) < 2 * part
        log.go_on.set()
    answers = [client.read() for _ in range(2 * part + 1)]
    counts = [frame.headers.get("backout-count", "0") for frame in answers if frame.command == "MESSAGE"]
    assert sorted(counts) == ["0"] * (0 if comes else part) + ["1"] * (2 * part if comes else part)
    assert log.is_safe()


@pytest.mark.parametrize("end", [None, "ABORT"])
def test_what_was_refused_and_has_come_again_meanwhile_is_not_refused_with_the_rest(
    server: Server, client: Client, log: Log, monkeypatch: pytest.MonkeyPatch, end: str | None
) -> None:
    """The first part of what is refused may be with its client again before the thread comes to the second."""
    engine, hands = server.qm._engine, server.listener._state.hands
    do, later = hands.do, list[Callable[[], None]]()
    engine.max_uncommitted = part = 10  # MAXUMSGS
    server.qm.put_many("A", [b"%d" % number for number in range(part)])
    server.qm.put_many("A", [b"%d" % number for number in range(part, 2 * part)])
    client.subscribe("A", ack="client", prefetch_count="1000")
    got = [client.message() for _ in range(2 * part)]
    if end is not None:
        client.say("BEGIN", transaction="t")
        client.ask("NACK", id=got[-1]["ack"], transaction="t")
    log.fill()
    space, unit = engine.log.space, engine.new_unit("", None)
    space.limit = engine.log.buffer.tail + space.promised + engine.promise_of(unit, GET_COST * part)
    engine.discard_unit(unit)
    monkeypatch.setattr(hands, "do", later.append)
    if end is None:
        client.say("NACK", id=got[-1]["ack"])
    else:
        client.say(end, transaction="t")
    again = [client.message() for _ in range(part)]
    log.go_on.set()
    for work in later:
        do(work)
    monkeypatch.setattr(hands, "do", do)
    again += [client.message() for _ in range(part)]
    assert sorted(int(one.body) for one in again) == list(range(2 * part))
    assert {one["backout-count"] for one in again} == {"1"}
    client.ask("ACK", id=again[-1]["ack"])
    assert server.bodies("A") == []


def test_what_is_delivered_without_acknowledgements_waits_for_room_elsewhere(
    server: Server, client: Client, log: Log
) -> None:
    server.qm.put("A", b"x")
    log.fill()
    client.subscribe("A", ack="auto")
    log.is_waited_for()
    log.go_on.set()
    assert client.message().body == b"x"
    assert log.is_safe(), "that it was got is, before anybody has it"
    client.ask("DISCONNECT")
    assert server.bodies("A") == []


def test_what_comes_meanwhile_is_delivered_after_it(server: Server, client: Client, log: Log) -> None:
    server.qm.put("A", b"0")
    [connection] = server.listener._connections
    commands = connection._commands
    assert commands is not None
    log.fill()
    client.subscribe("A", ack="auto")
    log.is_waited_for()
    server.qm.put("A", b"1", persistent=False)  # for which no room is needed
    server.listener._state.loop.call_soon_threadsafe(commands.go_on)
    log.is_waited_for()
    log.go_on.set()
    assert [client.message().body for _ in range(2)] == [b"0", b"1"]


def test_who_goes_while_a_delivery_waits_for_room_has_not_seen_it(server: Server, client: Client, log: Log) -> None:
    server.qm.put("A", b"x")
    log.fill()
    client.subscribe("A", ack="auto")
    log.is_waited_for()
    next(iter(server.qm.sessions)).stop()
    eventually(lambda: not len(server.qm.sessions))
    assert "LISTENERS" not in log.made
    log.go_on.set()
    assert client.error()["reason-code"] == "2203"
    assert server.counts("A") == {b"x": 0}


def test_who_hears_that_there_is_no_room_hears_it_for_that_frame(server: Server, client: Client, log: Log) -> None:
    log.fill()
    server.qm._engine._make_space = lambda size, promise, spare: "the log is full"
    client.say("SEND", b"x", destination="A", receipt="r")
    error = client.error()
    assert (error["reason-code"], error["receipt-id"]) == ("2102", "r")
    server.qm._engine.log.space.limit = log.limit
    assert server.bodies("A") == []


@pytest.mark.parametrize("how", ["closed", "half"])
def test_who_goes_while_room_is_made(server: Server, log: Log, how: str) -> None:
    """The half that is closed hears the receipt; a message that was sent and not answered for may be there."""
    with server.client() as client:
        log.fill()
        client.say("SEND", b"x", destination="A", receipt="r")
        log.is_waited_for()
        if how == "half":
            client.socket.shutdown(socket.SHUT_WR)
        else:
            client.close()
        log.go_on.set()
        if how == "half":
            assert client.read()["receipt-id"] == "r"
            assert client.at_end()
    server.all_gone()
    eventually(lambda: server.bodies("A") == [b"x"])


@pytest.mark.parametrize("receipt", [{}, {"receipt": "r"}])
def test_who_is_stopped_while_room_is_made_hears_what_became_of_its_frame(
    server: Server, log: Log, receipt: dict[str, str]
) -> None:
    with server.client() as client:
        log.fill()
        client.say("SEND", b"x", destination="A", **receipt)
        log.is_waited_for()
        session = next(iter(server.qm.sessions))
        session.stop()
        eventually(lambda: not len(server.qm.sessions))
        log.go_on.set()
        if receipt:
            assert client.read()["receipt-id"] == "r"
        assert client.error()["reason-code"] == "2203"


def test_where_there_is_no_thread_for_it_it_is_done_all_the_same(
    server: Server, client: Client, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(work: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(server.listener._state.hands, "do", none_left)
    log.go_on.set()
    log.fill()
    client.ask("SEND", b"x", destination="A")
    assert log.made == ["LISTENERS"]


@pytest.mark.parametrize("how", ["gone", "stopped", "unbelievable"])
def test_what_a_client_had_whose_connection_is_over_returns_elsewhere(server: Server, log: Log, how: str) -> None:
    server.qm.put("A", b"x")
    with server.client() as client:
        client.subscribe("A")
        [session] = server.qm.sessions
        assert client.message().body == b"x"
        log.fill()
        if how == "gone":
            client.close()
        elif how == "stopped":
            session.stop()
        else:
            client.raw(b"NONSENSE\n\n\0")
        log.is_waited_for()
        assert session in list(server.qm.sessions)  # an operator sees who has it
        log.go_on.set()
        if how != "gone":
            client.error()
    server.all_gone()
    assert server.counts("A") == {b"x": 1}


def test_what_such_a_client_had_returns_in_parts_each_counted_once(server: Server, log: Log) -> None:
    """The first part is done at once, and for the second there is no room."""
    engine = server.qm._engine
    engine.max_uncommitted = part = 10  # MAXUMSGS
    bodies = [b"%d" % number for number in range(2 * part)]
    for body in bodies:
        server.qm.put("A", body)
    with server.client() as client:
        client.subscribe("A", prefetch_count="1000")
        assert [client.message().body for _ in bodies] == bodies
        log.fill()
        space, unit = engine.log.space, engine.new_unit("", None)
        space.limit = engine.log.buffer.tail + space.promised + engine.promise_of(unit, GET_COST * part)
        engine.discard_unit(unit)
    log.is_waited_for()
    log.go_on.set()
    server.all_gone()
    assert server.counts("A") == dict.fromkeys(bodies, 1)


def poison(server: Server, count: int) -> list[bytes]:
    """Messages that were backed out once, which is too often."""
    server.qm.alter_queue("A", backout_threshold=1, backout_queue="B")
    bodies = [b"poison %d" % number for number in range(count)]
    for body in bodies:
        server.qm.put("A", body)
    unit = server.qm.begin()
    unit.get_many("A", count)
    unit.backout()
    return bodies


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_what_was_backed_out_too_often_is_moved_elsewhere(server: Server, client: Client, log: Log, ack: str) -> None:
    bodies = poison(server, 3)
    server.qm.put("A", b"good", persistent=False)
    log.fill()
    client.subscribe("A", ack=ack)
    log.is_waited_for()
    log.go_on.set()
    assert client.message().body == b"good"
    assert log.is_safe(), "what lay behind is told when that these have moved is"
    assert server.bodies("B") == bodies
    client.ask("DISCONNECT")
    assert server.bodies("A") == ([] if ack == "auto" else [b"good"])


def test_what_was_backed_out_too_often_is_moved_in_parts_and_counts_no_more_for_it(
    server: Server, client: Client, log: Log
) -> None:
    """There is room for some of it."""
    bodies = poison(server, 20)
    server.qm.put("A", b"good", persistent=False)
    log.fill()
    engine_log = server.qm._engine.log
    engine_log.space.limit = engine_log.buffer.tail + engine_log.space.for_gets + 1500
    client.subscribe("A")
    log.is_waited_for()
    some = len(server.bodies("B"))
    assert 0 < some < len(bodies)
    log.go_on.set()
    assert client.message().body == b"good"
    assert server.bodies("B") == bodies
    assert set(server.counts("B").values()) == {0}


def test_who_goes_while_what_was_backed_out_too_often_is_moved(server: Server, log: Log) -> None:
    bodies = poison(server, 1)
    server.qm.put("A", b"good")
    with server.client() as client:
        log.fill()
        client.subscribe("A")
        [session] = server.qm.sessions
        log.is_waited_for()
        session.stop()
        eventually(lambda: session not in list(server.qm.sessions))
        log.go_on.set()
        assert client.error()["reason-code"] == "2203"
    eventually(lambda: server.bodies("B") == bodies)
    assert server.counts("A") == {b"good": 0}


def test_where_what_was_backed_out_too_often_can_not_be_moved_the_subscriber_hears_it(
    server: Server, client: Client, log: Log
) -> None:
    poison(server, 1)
    log.fill()
    server.qm._engine._make_space = lambda size, promise, spare: "the log is full"
    client.subscribe("A")
    assert client.error()["reason-code"] == "2102"
