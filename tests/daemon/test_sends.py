"""Puts that go to the daemon together: how few requests they take, and nothing of them counts where one is not done."""

import asyncio
import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qmgr
import qmgr.aio
from qmgr import UowState, link, sockets, wire
from qmgr.aio.channel import Pool
from qmgr.daemon import calls
from qmgr.daemon.calls import Calls
from qmgr.daemon.client import Client
from qmgr.errors import QueueFull
from qmgr.logged import WouldWait
from qmgr.sends import BATCH_BYTES, Sends
from tests.conformance.nursery import halt
from tests.daemon.raw import Raw
from tests.daemon.serving import LONG, Served, daemon, until
from tests.daemon.test_ends_unheard import Strikes, lose
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
        assert len(asked) == sum(map(len, sent)) // BATCH_BYTES, "the rest goes with the commit"
    assert set(asked[:-1]) == {wire.SENDS} and asked[-1] == wire.COMMIT
    assert len(asked) <= 2 + sum(len(body) + 20 for body in sent) // BATCH_BYTES
    assert bodies(served.manager, "A") == sent


def test_an_answer_that_is_on_its_way_keeps_no_other_call_waiting(
    connection: qmgr.Connection, served: Served, asked: list[int]
) -> None:
    with connection.begin() as unit, served.manager._engine.lock:
        unit.send("A", bytes(BATCH_BYTES))
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
    check, threads = Calls._check_permitted, set()

    def picky(self: Calls, verb: str, name: str) -> None:
        if not self._may_wait and name == "B":
            raise WouldWait
        threads.add(threading.current_thread().name)
        check(self, verb, name)

    monkeypatch.setattr(Calls, "_check_permitted", picky)
    with connection.begin() as unit:
        for number in range(9):
            unit.send("B" if number % 3 == 1 else "A", b"%d" % number)
    assert bodies(served.manager, "A") == [b"0", b"2", b"3", b"5", b"6", b"8"]
    assert bodies(served.manager, "B") == [b"1", b"4", b"7"]
    assert len(threads) == 2


def test_the_number_of_a_unit_comes_though_another_thread_goes_on_with_what_was_sent_first(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it nobody could ask for the outcome of a commit whose answer is lost."""
    check = Calls._check_permitted

    def picky(self: Calls, verb: str, name: str) -> None:
        if not self._may_wait and name == "B":
            raise WouldWait
        check(self, verb, name)

    monkeypatch.setattr(Calls, "_check_permitted", picky)
    unit = connection.begin()
    for queue in ("A", "B"):
        unit.send(queue, BODY)
    Strikes(monkeypatch, 2, lambda: lose(served, connection))
    with pytest.raises(KeyboardInterrupt):
        unit.commit()
    with pytest.raises(qmgr.UnitOfWorkEnded, match=rf"outcome\({unit._id}\) tells"):
        unit.backout()
    assert connection.outcome(unit.id) is UowState.COMMITTED


def test_a_unit_that_was_forgotten_in_the_middle_is_not_begun_again_with_the_rest(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Calls._check_permitted

    def picky(self: Calls, verb: str, name: str) -> None:
        if not self._may_wait and name == "B":
            unit, _ = self._client.units.pop(1)
            unit.backout()
            raise WouldWait
        check(self, verb, name)

    monkeypatch.setattr(Calls, "_check_permitted", picky)
    raw = Raw(served.path)
    puts = [wire.put(0, 1, name, b"x", {}) for name in ("A", "B")]
    assert isinstance(raw.calls.refused(together(1, *puts)), qmgr.UnitOfWorkEnded)
    assert isinstance(raw.calls.refused(wire.request(wire.COMMIT, 0, 1)), qmgr.UnitOfWorkEnded)
    raw.close()
    assert bodies(served.manager, "A") == bodies(served.manager, "B") == []


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
            patched.setattr(sockets, "receive_answer", strike)
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
        unit.send("A", bytes(BATCH_BYTES))
        unit.send("A", BODY)
        served.manager.stop_connection(unit._link.number)
        with pytest.raises(qmgr.MQError) as caught:
            unit.commit()
        assert caught.value.reason in (qmgr.Reason.CONNECTION_BROKEN, qmgr.Reason.BACKED_OUT)
        unit.backout()
    assert bodies(served.manager, "A") == []


def together(unit: int, *puts: bytes) -> bytes:
    return wire.sends(wire.BEGIN, unit, puts)


ODD = int.from_bytes(wire.put(0, 0, "A", BODY, {})[:8], "little")  # a number that is the beginning of a put
PUT_TO_ODD = wire.put(0, ODD, "A", BODY, {})
NOT_PUTS: dict[str, Callable[[], bytes]] = {
    "to no unit": lambda: wire.sends(0, 0, [wire.put(0, 0, "A", BODY, {})]),
    "to another unit": lambda: together(1, wire.put(0, 1, "A", BODY, {}), wire.put(0, 2, "A", BODY, {})),
    "a put that begins one": lambda: together(1, wire.put(wire.BEGIN, 1, "A", BODY, {})),
    "a commit": lambda: together(1, wire.put(0, 1, "A", BODY, {}), wire.request(wire.COMMIT, 0, 1)),
    "a put cut short": lambda: together(1, wire.put(0, 1, "A", BODY, {}), wire.put(0, 1, "A", BODY, {})[:-1]),
    "a length of nothing": lambda: together(1, bytes(20)),
    "a put shorter than its head": lambda: together(ODD, wire.REQUEST.pack(4, wire.PUT, 0, 0, 0)[:8], PUT_TO_ODD),
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


@pytest.mark.parametrize("waits", [False, True])
def test_what_a_refused_send_gives_back_has_its_count_when_that_is_told(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """A higher backout count is as safe then as where the client backs out itself."""
    served.manager.alter_queue("B", max_depth=1)
    for queue in ("A", "B"):
        served.manager.put(queue, b"x")
    if waits:  # it goes on in a thread that may wait
        put_later, tries = served.manager._engine.put_later, [True]

        def hasty(*given: Any, **how: Any) -> Any:
            if tries:
                tries.clear()
                raise WouldWait
            return put_later(*given, **how)

        monkeypatch.setattr(served.manager._engine, "put_later", hasty)
    unit = connection.begin()
    unit.get("A")
    with pytest.raises(QueueFull):
        unit.send("B", bytes(BATCH_BYTES))
        unit.commit()
    log = served.manager._engine.log
    assert log.safe == log.buffer.tail
    assert [message.backout_count for message in served.manager.browse("A")] == [1]


def test_what_was_put_before_a_refusal_is_there_once_where_another_thread_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backout of many messages is left to that thread, and by then there may be room for what was refused."""
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    served.manager.alter_queue("B", max_depth=1)
    served.manager.put("B", b"in the way")
    hands = served.listener._clients.rounds._hands
    do = hands.do

    def make_room_and_do(work: Callable[[], None]) -> None:
        served.manager.clear_queue("B")
        monkeypatch.setattr(hands, "do", do)
        do(work)

    raw = Raw(served.path)
    raw.calls.ask(together(1, *(wire.put(0, 1, "A", b"%d" % number, {}) for number in range(4))))
    monkeypatch.setattr(hands, "do", make_room_and_do)
    _, head = raw.calls.ask(together(1, wire.put(0, 1, "A", b"4", {}), wire.put(0, 1, "B", b"5", {})))
    assert head.op == wire.OK
    _, head = raw.calls.ask(wire.request(wire.COMMIT, 0, 1))
    assert head.op == wire.OK
    raw.close()
    assert bodies(served.manager, "A") == [b"0", b"1", b"2", b"3", b"4"]
    assert bodies(served.manager, "B") == [b"5"]


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
                known: Any = unit._unit
                while not known.asked:  # what was cancelled before that has lost nothing
                    await asyncio.sleep(0.001)
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
                await asyncio.gather(*(unit.send("A", bytes(BATCH_BYTES // 3)) for _ in range(10)))
                sending = asyncio.create_task(unit.send("A", bytes(BATCH_BYTES)))
                await asyncio.sleep(0)
                await asyncio.gather(sending, unit.commit())
                assert (await awaited.queue("A")).depth == 11
                await awaited.get_many("A", 11)

    asyncio.run(main())


# ---- what is taken is in the unit of work, or the unit is never committed


@pytest.mark.parametrize("end", [wire.COMMIT, wire.PREPARE])
@pytest.mark.parametrize("before", [True, False])
def test_a_send_while_the_unit_ends_is_refused_and_not_lost(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch, end: int, before: bool
) -> None:
    exchange, refused = link.Link.exchange, []

    def meanwhile(self: link.Link, frame: bytes, **options: Any) -> bytes:
        if frame[4] == end:
            with pytest.raises(qmgr.UnitOfWorkEnded) as caught:
                Call(lambda: unit.send("A", b"late")).outcome()
            refused.append(caught.value)
        return exchange(self, frame, **options)

    unit = connection.begin(qmgr.Xid(1, b"global", b"branch"))
    unit.put("A", b"put")
    if before:
        unit.send("A", b"sent")
    monkeypatch.setattr(link.Link, "exchange", meanwhile)
    if end == wire.PREPARE:
        unit.prepare()
    unit.commit()
    assert len(refused) == 1
    assert bodies(served.manager, "A") == [b"put", b"sent"][: 1 + before]


def test_threads_that_send_while_another_one_commits_know_what_was_taken(
    connection: qmgr.Connection, served: Served
) -> None:
    for _ in range(10):
        unit, taken, begun = connection.begin(), [], threading.Event()

        def send(unit: Any = unit, taken: list[int] = taken, begun: threading.Event = begun) -> None:
            with contextlib.suppress(qmgr.UnitOfWorkEnded):
                while True:
                    unit.send("A", b"")
                    taken.append(1)
                    begun.set()

        sending = Call(send)
        begun.wait(LONG)
        unit.commit()
        sending.outcome()
        assert len(connection.get_many("A", 100_000)) == len(taken)


def test_the_first_sends_of_threads_are_all_there(connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    made, both = Sends.__init__, threading.Barrier(2)

    def slow(self: Sends, *args: Any) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # for another thread that makes one at the same time
        made(self, *args)

    monkeypatch.setattr(Sends, "__init__", slow)
    with connection.begin() as unit:
        for call in [Call(lambda: unit.send("A", BODY)) for _ in range(2)]:
            call.outcome()
    assert connection.queue("A").depth == 2


def no_socket(*_: object) -> Any:
    raise qmgr.Unavailable("too many open files", reason=qmgr.Reason.RESOURCE_PROBLEM)


def test_where_neither_the_send_nor_its_backout_finds_a_socket_there_is_no_commit(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = connection.begin()
    unit.put("A", BODY)
    with monkeypatch.context() as patched:
        patched.setattr(link.Link, "ask", no_socket)
        with pytest.raises(qmgr.Unavailable, match="too many"):
            unit.send("A", bytes(BATCH_BYTES))
    for call in (unit.commit, unit.prepare, lambda: unit.put("A", BODY)):
        with pytest.raises(qmgr.BackedOut):
            call()
    unit.backout()
    assert unit.state is UowState.BACKED_OUT
    assert served.manager.transactions() == [] and bodies(served.manager, "A") == []


def test_an_interrupted_backout_has_forgotten_what_was_sent_and_can_only_be_repeated(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    unit = connection.begin()
    unit.put("A", BODY)
    unit.send("A", BODY)
    with monkeypatch.context() as patched:
        patched.setattr(link.Link, "exchange", strike)
        with pytest.raises(KeyboardInterrupt):
            unit.backout()
    with pytest.raises(qmgr.BackedOut):
        unit.commit()
    unit.backout()
    assert served.manager.transactions() == [] and bodies(served.manager, "A") == []


def test_a_thread_that_waits_to_commit_hears_of_an_interrupt_in_another_one(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, strike, answer = threading.Event(), threading.Event(), link.Link.answer

    def interrupted(self: link.Link, sock: sockets.Socket) -> bytes:
        if threading.current_thread() is threading.main_thread():
            return answer(self, sock)
        waiting.set()
        strike.wait(LONG)
        sockets.close(sock)
        raise KeyboardInterrupt

    unit = connection.begin()
    unit.put("A", BODY)
    with served.manager._engine.lock:
        unit.send("A", bytes(BATCH_BYTES))  # on its way
        monkeypatch.setattr(link.Link, "answer", interrupted)
        sending = Call(lambda: unit.send("A", bytes(BATCH_BYTES)))
        assert waiting.wait(LONG)
        committing = Call(unit.commit)
        committing.join(0.1)
        strike.set()
        with pytest.raises(KeyboardInterrupt):
            sending.outcome()
        with pytest.raises(qmgr.BackedOut):
            committing.outcome()
    unit.backout()
    until(lambda: served.manager.transactions() == [])
    assert bodies(served.manager, "A") == []


@pytest.mark.parametrize("served_here", [True, False])
def test_a_send_with_an_option_that_there_is_not_backs_out(
    connection: qmgr.Connection, served: Served, served_here: bool
) -> None:
    unit = served.manager.begin() if served_here else connection.begin()
    unit.put("A", BODY)
    with pytest.raises(TypeError):
        unit.send("A", BODY, nonsense=1)  # type: ignore[call-arg]
    assert unit.state is UowState.BACKED_OUT
    assert bodies(served.manager, "A") == []


def test_a_get_hears_what_was_refused_of_what_was_sent_before(served: Served, connection: qmgr.Connection) -> None:
    served.manager.put("B", b"x")
    unit = connection.begin()
    unit.send("NOWHERE", BODY)
    with pytest.raises(qmgr.UnknownQueue):
        unit.get("B")
    assert unit.state is UowState.BACKED_OUT
    assert connection.get("B").body == b"x"


def test_a_refused_send_leaves_a_unit_alone_that_was_prepared(
    connection: qmgr.Connection, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(answer: bytes) -> Any:
        raise KeyboardInterrupt

    xid = qmgr.Xid(1, b"global", b"branch")
    unit = connection.begin(xid)
    unit.put("A", BODY)
    with monkeypatch.context() as patched:
        patched.setattr(unit, "_decode", strike)
        with pytest.raises(KeyboardInterrupt):
            unit.prepare()  # which the daemon has done
    with pytest.raises(qmgr.UnitOfWorkEnded):
        unit.send("A", bytes(BATCH_BYTES))
    assert connection.in_doubt() == [xid]
    connection.resolve(xid, True)
    assert bodies(served.manager, "A") == [BODY]


def test_units_that_never_went_to_the_daemon_are_backed_out_without_it(
    connection: qmgr.Connection, asked: list[int]
) -> None:
    connection.put("A", BODY)
    asked.clear()
    unit = connection.begin()
    unit.send("A", BODY)
    unit.backout()
    unit = connection.begin()
    with pytest.raises(qmgr.Mistake):
        unit.send("A", "text")  # type: ignore[arg-type]
    assert asked == [] and unit.state is UowState.BACKED_OUT
    (client,) = [one for one in gc.get_objects() if type(one) is Client and not one.closed]
    assert client._unbegun == set()


def test_a_unit_is_active_until_somebody_has_heard_what_was_refused(
    connection: qmgr.Connection, served: Served
) -> None:
    unit = connection.begin()
    unit.send("A", bytes(BATCH_BYTES))
    sock = unit._sends._asked
    unit.backout()
    assert sock in unit._link._idle, "its answer was heard, and the next call uses it"
    unit = connection.begin()
    unit.send("NOT.THERE", bytes(BATCH_BYTES))
    unit.backout()  # which hears what was refused, and has nothing to say of it
    assert unit.state is UowState.BACKED_OUT
    unit = connection.begin()
    unit.put("A", BODY)
    unit.send("NOT.THERE", bytes(BATCH_BYTES))
    until(lambda: served.manager.transactions() == [])
    assert unit.state is UowState.ACTIVE
    with pytest.raises(qmgr.UnknownQueue):
        unit.commit()
    assert unit.state is UowState.BACKED_OUT


@pytest.mark.parametrize("raised", [None, KeyError])
def test_who_consumes_hears_what_was_refused_and_keeps_his_own_error(
    connection: qmgr.Connection, served: Served, raised: type[Exception] | None
) -> None:
    connection.put("A", b"consumed")
    with pytest.raises(raised or qmgr.UnknownQueue), connection.consume("A", wait=0.0) as consumer:
        for _, unit in consumer:
            unit.send("NOT.THERE", bytes(BATCH_BYTES))
            until(lambda: served.manager.transactions() == [])
            if raised:
                raise raised
    assert bodies(served.manager, "A") == [b"consumed"]


# ---- its connection


def test_the_queue_manager_is_ended_by_who_has_sends_on_their_way(tmp_path: Path) -> None:
    with daemon(tmp_path) as one, one.connect() as client:
        ended: list[None] = []

        def send_and_end() -> None:
            unit = client.begin()
            unit.send("A", bytes(BATCH_BYTES))
            ended.append(client.end())

        call = Call(send_and_end)
        call.join(LONG)
        assert ended == [None], "it waits for a unit of work that nobody will end"


@pytest.mark.parametrize("way", ["backout", "with"])
def test_a_forked_child_hears_no_answer_of_its_parent(tmp_path: Path, way: str) -> None:
    with daemon(tmp_path) as one, one.connect(timeout=LONG / 3) as client:
        unit = client.begin()
        unit.put("A", b"put")
        assert one.process.pid is not None
        halt(one.process.pid)
        unit.send("A", bytes(BATCH_BYTES))
        child = os.fork()
        if not child:
            try:
                if way == "backout":
                    with contextlib.suppress(qmgr.Unavailable):
                        unit.backout()
                else:
                    unit.__exit__(KeyError, KeyError(), None)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "it waits for no answer"
        os.kill(one.process.pid, signal.SIGCONT)
        unit.commit()
        assert client.queue("A").depth == 2


def test_a_lost_connection_leaves_no_socket_of_what_was_sent(served: Served) -> None:
    with served.connect() as client:
        unit = client.begin()
        unit.send("A", bytes(BATCH_BYTES))
        sock = unit._sends._asked
        assert sock is not None
        served.manager.stop_connection(unit._link.number)
        with pytest.raises(qmgr.Unavailable):
            client.begin().put("A", BODY)
        unit.backout()
        assert sock.fileno() == -1


# ---- the same of tasks


def test_a_task_that_sends_while_another_one_commits_knows_what_was_taken(served: Served) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as awaited:
            unit = await awaited.begin()
            await unit.send("A", BODY)
            taken, committing = 1, asyncio.create_task(unit.commit())
            with pytest.raises(qmgr.UnitOfWorkEnded):
                while True:
                    await unit.send("A", b"")
                    taken += 1
                    await asyncio.sleep(0)
            await committing
            assert (await awaited.queue("A")).depth == taken

    asyncio.run(main())


def test_a_task_whose_send_and_backout_find_no_socket_can_not_commit(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(self: Pool) -> Any:
        return no_socket()

    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as awaited:
            unit = await awaited.begin()
            await unit.put("A", BODY)
            with monkeypatch.context() as patched:
                patched.setattr(Pool, "take", none)
                with pytest.raises(qmgr.Unavailable, match="too many"):
                    await unit.send("A", bytes(BATCH_BYTES))
            with pytest.raises(qmgr.BackedOut):
                await unit.commit()
            await unit.backout()
            unit = await awaited.begin()
            await unit.put("A", BODY)
            with monkeypatch.context() as patched:
                patched.setattr(Pool, "take", none)
                with pytest.raises(qmgr.Mistake):
                    await unit.send("A", "text")  # type: ignore[arg-type]
            with pytest.raises(qmgr.BackedOut):
                await unit.commit()
            await unit.backout()
            other = await awaited.begin()
            await other.put("A", BODY)
            await other.send("A", BODY)
            with monkeypatch.context() as patched:
                patched.setattr(Pool, "take", none)
                with pytest.raises(qmgr.Unavailable):
                    await other.backout()
            with pytest.raises(qmgr.BackedOut):
                await other.commit()
            await other.backout()

    asyncio.run(main())
    assert served.manager.transactions() == [] and bodies(served.manager, "A") == []


def test_a_task_that_waits_to_prepare_hears_that_a_flush_was_cancelled(served: Served) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as awaited:
            unit = await awaited.begin(qmgr.Xid(1, b"global", b"branch"))
            await unit.send("A", BODY)
            with served.manager._engine.lock:
                putting = asyncio.create_task(unit.put("A", BODY))
                await asyncio.sleep(0.05)
                preparing = asyncio.create_task(unit.prepare())
                await asyncio.sleep(0.05)
                putting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await putting
                with pytest.raises(qmgr.BackedOut):
                    await preparing
            await unit.backout()

    asyncio.run(main())
    assert served.manager.in_doubt() == [] and bodies(served.manager, "A") == []


def test_a_commit_that_is_cancelled_before_all_that_was_sent_is_put_is_backed_out(served: Served) -> None:
    async def main() -> None:
        async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=served.path) as awaited:
            units = [awaited.begin(), awaited.begin()]

            async def by_a_block() -> None:
                async with units[0]:
                    await units[0].send("A", BODY)

            async def by_itself() -> None:
                await units[1].send("A", BODY)
                await units[1].commit()

            with served.manager._engine.lock:
                tasks = [asyncio.create_task(one()) for one in (by_a_block, by_itself)]
                while not all(unit._unit.asked for unit in units):  # what was sent is on its way
                    await asyncio.sleep(0.01)
                for task in tasks:
                    task.cancel()
                await asyncio.sleep(0.05)
                assert tasks[1].cancelled(), "which waits for nobody"
            await asyncio.wait(tasks)
            assert tasks[0].cancelled() and units[0].state is UowState.BACKED_OUT
            with pytest.raises(qmgr.BackedOut, match="cancelled"):
                await units[1].commit()
            await units[1].backout()
            assert await awaited.transactions() == []

    asyncio.run(main())
    assert bodies(served.manager, "A") == []
