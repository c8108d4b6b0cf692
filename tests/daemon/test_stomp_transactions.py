"""Transactions of STOMP are units of work: sends and acknowledgements over several queues, wholly or not at all."""

from pathlib import Path

import pytest

import qmgr
from qmgr.daemon import stomp_transactions
from qmgr.daemon.stomp_transactions import MAX_TRANSACTIONS
from tests.daemon.stomp_world import Client, Server, queue_manager, serving
from tests.qmgr.world import World, bodies
from tests.sim.loss import LOSE_ALL


def test_a_commit_does_all_of_it_over_several_queues(server: Server, client: Client) -> None:
    server.qm.put("A", b"order")
    client.subscribe("A")
    order = client.message()
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"invoice", destination="B", transaction="t")
    client.say("SEND", b"reminder", destination="A", transaction="t")
    client.ask("ACK", id=order["ack"], transaction="t")
    assert (server.bodies("A"), server.bodies("B")) == ([], [])
    client.ask("COMMIT", transaction="t")
    assert client.message().body == b"reminder"
    assert server.bodies("B") == [b"invoice"]
    client.ask("DISCONNECT")
    assert server.counts("A") == {b"reminder": 0}


def test_an_abort_undoes_all_of_it_and_gives_back_what_was_acknowledged(server: Server, client: Client) -> None:
    server.qm.put("A", b"order")
    client.subscribe("A")
    order = client.message()
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"invoice", destination="B", transaction="t")
    client.say("ACK", id=order["ack"], transaction="t")
    client.ask("ABORT", transaction="t")
    assert server.bodies("B") == []
    again = client.message()
    assert (again.body, again["backout-count"]) == (b"order", "1")
    assert again["ack"] != order["ack"]


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_what_is_refused_in_a_transaction_returns_when_it_ends(server: Server, client: Client, end: str) -> None:
    server.qm.put("A", b"order")
    client.subscribe("A")
    client.say("BEGIN", transaction="t")
    client.ask("NACK", id=client.message()["ack"], transaction="t")
    assert server.bodies("A") == []
    client.ask(end, transaction="t")
    assert client.message()["backout-count"] == "1"


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_what_was_refused_and_is_not_held_any_more_is_no_failure_of_the_end(tmp_path: Path, end: str) -> None:
    """The sends of the transaction would be there, and the client told that they are not."""
    qmgr.create("QM1", data_path=tmp_path, log_type="linear", log_file_pages=256, log_primary_files=3)
    with qmgr.start("QM1", data_path=tmp_path) as manager:
        for queue in "AB":
            manager.define_queue(queue)
        manager.record_image("A")
        for body in (b"first", b"second"):
            manager.put("A", body)
        with serving(manager) as server, server.client() as client:
            client.subscribe("A")
            client.say("BEGIN", transaction="t")
            client.ask("SEND", b"sent", destination="B", transaction="t")
            for _ in range(2):
                client.ask("NACK", id=client.message()["ack"], transaction="t")
            client.ask("UNSUBSCRIBE", id="s1")
            manager.recreate("A")
            client.ask(end, transaction="t")
            assert server.bodies("B") == [b"sent"] * (end == "COMMIT")
            assert server.counts("A") == {b"first": 0, b"second": 0}


def test_cumulative_acknowledgements_in_a_transaction(server: Server, client: Client) -> None:
    for number in range(4):
        server.qm.put("A", b"%d" % number)
    client.subscribe("A", ack="client")
    acks = [client.message()["ack"] for _ in range(4)]
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=acks[1], transaction="t")
    client.say("ACK", id=acks[2])
    client.ask("ABORT", transaction="t")
    client.ask("DISCONNECT")
    assert server.counts("A") == {b"0": 1, b"1": 1, b"3": 0}


def test_transactions_of_one_connection_are_apart(server: Server, client: Client) -> None:
    for name in ("t1", "t2"):
        client.say("BEGIN", transaction=name)
        client.say("SEND", name.encode(), destination="A", transaction=name)
    client.ask("COMMIT", transaction="t2")
    assert server.bodies("A") == [b"t2"]
    client.ask("COMMIT", transaction="t1")
    assert server.bodies("A") == [b"t2", b"t1"]
    client.ask("BEGIN", transaction="t1")  # the name is free again


def test_a_disconnect_backs_out_what_was_not_committed(server: Server, client: Client) -> None:
    server.qm.put("A", b"order")
    client.subscribe("A")
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"half", destination="B", transaction="t")
    client.ask("ACK", id=client.message()["ack"], transaction="t")
    client.ask("DISCONNECT")
    assert (server.counts("A"), server.bodies("B")) == ({b"order": 1}, [])


def test_an_error_backs_out_what_was_not_committed(server: Server, client: Client) -> None:
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"half", destination="B", transaction="t")
    client.say("SEND", b"half", destination="NONE", transaction="t")
    client.say("COMMIT", transaction="t")
    assert client.error()["reason-code"] == "2085"
    assert server.bodies("B") == []


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (["BEGIN"], "2046"),
        (["BEGIN t", "BEGIN t"], "2128"),
        (["COMMIT t"], "2255"),
        (["ABORT t"], "2255"),
        (["BEGIN t", "COMMIT t", "COMMIT t"], "2255"),
        (["BEGIN t", "ABORT t", "COMMIT t"], "2255"),
        (["BEGIN "], "2046"),
        ([f"BEGIN {number}" for number in range(MAX_TRANSACTIONS + 1)], "2017"),
    ],
)
def test_transactions_that_can_not_be(client: Client, frames: list[str], code: str) -> None:
    """Row 77."""
    for frame in frames:
        command, named, name = frame.partition(" ")
        client.say(command, **({"transaction": name} if named else {}))
    assert client.error()["reason-code"] == code


def test_a_unit_of_work_is_bounded(tmp_path: Path) -> None:
    """Row 77."""
    with queue_manager(tmp_path, "A") as manager, serving(manager) as server, server.client() as client:
        manager._engine.max_uncommitted = 5
        client.say("BEGIN", transaction="t")
        for _ in range(6):
            client.say("SEND", b"x", destination="A", transaction="t")
        assert client.error()["reason-code"] == "2024"


def test_what_had_its_receipt_outlives_a_crash_and_the_rest_is_not_there() -> None:
    world = World(log_type="linear")
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    with serving(world.qm) as server, server.client() as client:
        for number in range(10):
            client.send("A", b"%d" % number)
        client.subscribe("A", prefetch_count="4")
        acks = [client.message()["ack"] for _ in range(4)]
        client.ask("ACK", id=acks[0])
        client.say("BEGIN", transaction="t")
        client.say("ACK", id=acks[1], transaction="t")
        client.say("SEND", b"done", destination="B", transaction="t")
        client.ask("COMMIT", transaction="t")
        client.say("BEGIN", transaction="open")
        client.say("ACK", id=acks[2], transaction="open")
        client.ask("SEND", b"half", destination="B", transaction="open")
        disk = world.disk
        world.disk = disk.crash(LOSE_ALL)  # the machine is gone in this moment; the process goes on in the void
        after = world.start()
        assert [message.body for message in after.browse("A")] == [b"%d" % number for number in range(2, 10)]
        assert [message.body for message in after.browse("B")] == [b"done"]
        after.end("immediate")


def test_row_02_what_comes_to_a_client_that_acknowledges_nothing_is_gone_before() -> None:
    """Whatever crashes, it does not come a second time."""
    world = World()
    world.qm.define_queue("A")
    with serving(world.qm) as server, server.client() as client:
        world.qm.put("A", b"once")
        client.subscribe("A", ack="auto")
        assert client.message().body == b"once"
        world.disk = world.disk.crash(LOSE_ALL)
        after = world.start()
        assert not list(after.browse("A"))
        after.end("immediate")


def test_row_02_who_acknowledges_nothing_sees_nothing_before_what_it_came_with_is_safe() -> None:
    """The get of a message that is not logged has no record that would be waited for."""
    world = World()
    for queue in ("A", "B"):
        world.qm.define_queue(queue)
    with serving(world.qm) as server, server.client() as client:
        unit = world.qm.begin()
        unit.put("A", b"volatile", persistent=False)
        unit.put("B", b"durable")
        world.qm._engine.commit_later(unit._unit)
        client.subscribe("A", ack="auto")
        assert client.message().body == b"volatile"
        world.disk = world.disk.crash(LOSE_ALL)
        after = world.start()
        assert bodies(after, "B") == [b"durable"]
        after.end("immediate")


def test_row_02_a_commit_is_told_when_it_is_safe_though_what_it_refuses_is_not_logged() -> None:
    world = World()
    for queue in ("A", "B"):
        world.qm.define_queue(queue)
    world.qm.put("A", b"volatile", persistent=False)
    with serving(world.qm) as server, server.client() as client:
        client.subscribe("A")
        client.say("BEGIN", transaction="t")
        client.say("SEND", b"durable", destination="B", transaction="t")
        client.say("NACK", id=client.message()["ack"], transaction="t")
        client.ask("COMMIT", transaction="t")
        world.disk = world.disk.crash(LOSE_ALL)
        after = world.start()
        assert bodies(after, "B") == [b"durable"]
        after.end("immediate")


def test_refusals_of_all_transactions_are_bounded(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 77: they stay held until their transactions end, so they count, of one or of several."""
    monkeypatch.setattr(stomp_transactions, "MAX_REFUSED", 3)
    server.qm.put_many("A", [b"%d" % number for number in range(4)])
    client.subscribe("A", ack="client-individual")
    for name in ("s", "t", "u"):
        client.ask("BEGIN", transaction=name)
    for name in ("s", "s"):
        client.ask("NACK", id=client.message()["ack"], transaction=name)
    client.ask("ABORT", transaction="s")  # and they are sent anew
    for name in ("t", "u", "t"):  # those of the one that has ended count no more
        client.ask("NACK", id=client.message()["ack"], transaction=name)
    client.say("NACK", id=client.message()["ack"], transaction="u")
    assert client.error()["reason-code"] == "2024"
