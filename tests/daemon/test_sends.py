"""Puts that go to the daemon together: how few requests they take, and nothing of them counts where one is not done."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
import qmgr.aio
from qmgr import UowState, link, sockets, wire
from qmgr.daemon.calls import Calls
from qmgr.logged import TakesWaiting
from qmgr.sends import TOGETHER
from tests.daemon.raw import Raw
from tests.daemon.serving import LONG, Served, until
from tests.qmgr.world import NAME, Call, bodies

BODY = b"x" * 256


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What clients here ask for, by the numbers of the requests."""
    ops: list[int] = []
    ask = link.Link.ask

    def counted(self: link.Link, frame: bytes) -> sockets.Socket:
        ops.append(frame[4])
        return ask(self, frame)

    monkeypatch.setattr(link.Link, "ask", counted)
    return ops


def test_many_go_together(connection: qmgr.Connection, served: Served, asked: list[int]) -> None:
    sent = [b"%d" % number * 80 for number in range(200)]
    with connection.begin() as unit:
        for body in sent:
            unit.send("A", body)
        assert len(asked) == sum(map(len, sent)) // TOGETHER, "the rest goes with the commit"
    assert set(asked[:-1]) == {wire.SENDS} and asked[-1] == wire.COMMIT
    assert len(asked) <= 2 + sum(len(body) + 20 for body in sent) // TOGETHER
    assert bodies(served.manager, "A") == sent


def test_an_answer_that_is_on_its_way_keeps_no_other_call_waiting(
    connection: qmgr.Connection, served: Served, asked: list[int]
) -> None:
    with connection.begin() as unit, served.manager._engine.lock:
        unit.send("A", bytes(TOGETHER))
        assert asked == [wire.SENDS], "and nobody has waited for the daemon, which can't go on"
    assert connection.queue("A").depth == 1


def test_threads_send_to_one_unit(connection: qmgr.Connection, served: Served) -> None:
    with connection.begin() as unit:
        calls = [Call(lambda: [unit.send("A", BODY) for _ in range(100)]) for _ in range(4)]
        for call in calls:
            call.outcome()
    assert len(bodies(served.manager, "A")) == 400


def test_where_it_takes_waiting_another_thread_goes_on_from_there(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, threads = Calls._check_turn, set()

    def picky(self: Calls, verb: str, name: str) -> None:
        if not self._may_wait and name == "B":
            raise TakesWaiting
        threads.add(threading.current_thread().name)
        check(self, verb, name)

    monkeypatch.setattr(Calls, "_check_turn", picky)
    with connection.begin() as unit:
        for number in range(9):
            unit.send("B" if number % 3 == 1 else "A", b"%d" % number)
    assert bodies(served.manager, "A") == [b"0", b"2", b"3", b"5", b"6", b"8"]
    assert bodies(served.manager, "B") == [b"1", b"4", b"7"]
    assert len(threads) == 2


@pytest.mark.parametrize("where", ["receive", "sendall"])
def test_after_an_interrupt_the_unit_can_only_be_backed_out(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def strike(*args: Any) -> Any:
        raise KeyboardInterrupt

    unit = connection.begin()
    unit.put("A", BODY)
    unit.send("A", BODY)
    with monkeypatch.context() as patched:
        if where == "receive":
            patched.setattr(sockets, "receive", strike)
        else:
            patched.setattr(link.Link, "ask", strike)
        with pytest.raises(KeyboardInterrupt):
            unit.commit()
    for call in (unit.commit, lambda: unit.put("A", BODY), lambda: unit.send("A", BODY), unit.prepare):
        with pytest.raises(qmgr.BackedOut, match="interrupted"):
            call()
    states = [unit.state]
    unit.backout()
    assert [*states, unit.state] == [UowState.ACTIVE, UowState.BACKED_OUT]
    with connection.begin() as unit:
        unit.send("A", b"next")
    until(lambda: served.manager.transactions() == [])
    assert bodies(served.manager, "A") == [b"next"]


def test_a_lost_connection_backs_out_what_was_sent(served: Served) -> None:
    with served.connect() as connection:
        unit = connection.begin()
        unit.send("A", bytes(TOGETHER))
        unit.send("A", BODY)
        served.manager.stop_connection(unit._link.number)
        with pytest.raises(qmgr.MQError) as caught:
            unit.commit()
        assert caught.value.reason in (qmgr.Reason.CONNECTION_BROKEN, qmgr.Reason.BACKED_OUT)
        unit.backout()
    assert bodies(served.manager, "A") == []


def together(unit: int, *puts: bytes) -> bytes:
    return wire.sends(wire.BEGIN, unit, puts)


NOT_PUTS: dict[str, Callable[[], bytes]] = {
    "to no unit": lambda: wire.sends(0, 0, [wire.put(0, 0, "A", BODY, {})]),
    "to another unit": lambda: together(1, wire.put(0, 1, "A", BODY, {}), wire.put(0, 2, "A", BODY, {})),
    "a put that begins one": lambda: together(1, wire.put(wire.BEGIN, 1, "A", BODY, {})),
    "a commit": lambda: together(1, wire.put(0, 1, "A", BODY, {}), wire.request(wire.COMMIT, 0, 1)),
    "a put cut short": lambda: together(1, wire.put(0, 1, "A", BODY, {}), wire.put(0, 1, "A", BODY, {})[:-1]),
    "a length of nothing": lambda: together(1, bytes(20)),
    "a few bytes": lambda: together(1, wire.put(0, 1, "A", BODY, {}), b"abc"),
}


@pytest.mark.parametrize("what", NOT_PUTS)
def test_what_are_no_puts_is_refused_as_a_whole(served: Served, what: str) -> None:
    raw = Raw(served.path)
    assert isinstance(raw.calls.refused(NOT_PUTS[what]()), qmgr.Unavailable)
    assert raw.calls.is_closed()
    raw.close()
    until(lambda: served.manager.transactions() == [])
    assert bodies(served.manager, "A") == []


def test_what_is_refused_backs_out_the_unit_whoever_has_sent_it(served: Served) -> None:
    raw = Raw(served.path)
    refused = raw.calls.refused(together(1, wire.put(0, 1, "A", BODY, {}), wire.put(0, 1, "NOT.THERE", BODY, {})))
    assert isinstance(refused, qmgr.UnknownQueue)
    assert isinstance(raw.calls.refused(wire.request(wire.COMMIT, 0, 1)), qmgr.UnitOfWorkEnded)
    assert isinstance(raw.calls.refused(together(1, wire.put(0, 1, "A", BODY, {}))), qmgr.UnitOfWorkEnded)
    raw.close()
    assert bodies(served.manager, "A") == []


def test_cut_off_in_a_send_nothing_is_there(served: Served) -> None:
    frame = together(1, wire.put(0, 1, "A", b"one", {}), wire.put(0, 1, "A", b"two", {"priority": 3}))
    for cut in range(len(frame) + 1):
        raw = Raw(served.path)
        raw.calls.send(frame[:cut])
        raw.cut()
    until(lambda: not served.manager.sessions and served.manager.transactions() == [])
    assert bodies(served.manager, "A") == []


def test_a_cancelled_flush_leaves_a_unit_that_can_only_be_backed_out(served: Served) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as awaited:
            unit = await awaited.begin()
            await unit.send("A", BODY)
            with served.manager._engine.lock:
                task = asyncio.create_task(unit.put("A", BODY))
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(qmgr.BackedOut, match="cancelled"):
                await unit.commit()
            await unit.backout()
            assert unit.state is UowState.BACKED_OUT

    asyncio.run(main())
    assert bodies(served.manager, "A") == []


def test_tasks_that_send_and_commit_at_once_lose_nothing(served: Served) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as awaited:
            for _ in range(20):
                unit = await awaited.begin()
                await asyncio.gather(*(unit.send("A", bytes(TOGETHER // 3)) for _ in range(10)))
                sending = asyncio.create_task(unit.send("A", bytes(TOGETHER)))
                await asyncio.sleep(0)
                await asyncio.gather(sending, unit.commit())
                assert (await awaited.queue("A")).depth == 11
                await awaited.get_many("A", 11)

    asyncio.run(main())
