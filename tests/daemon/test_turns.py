"""Calls that take long: one of a kind at a time, none that was given up before its turn, and quick ones beside them."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qmgr
import qmgr.aio
from logger.clock import SystemClock
from qmgr import UowState, sockets, wire
from qmgr.daemon import calls, turns
from qmgr.daemon.turns import MANY, GaveUp, Turns
from qmgr.errors import BackedOut
from tests.daemon.raw import Raw
from tests.daemon.serving import LONG, Served, nobody_is_there, serving, until
from tests.qmgr.world import NAME, Call


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as one:
        yield one


class Slow:
    """Stands for a method of a queue manager: counts its calls, each of which waits until it may go on."""

    def __init__(self) -> None:
        self.calls = self.at_once = self.most = 0
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **options: Any) -> Any:
        with self._lock:
            self.calls += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        assert self.go_on.wait(LONG)
        with self._lock:
            self.at_once -= 1
        return []


class Taking:
    """Knows who waits for a turn, or has one, from now on: how many have asked, and how many are at work."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.at_work = 0
        its = served.listener._clients.turns
        take = its.take

        @contextlib.contextmanager
        def counted(kind: str, sock: Any) -> Iterator[None]:
            self.count += 1
            self.at_work += 1
            try:
                with take(kind, sock):
                    yield
            finally:
                self.at_work -= 1

        monkeypatch.setattr(its, "take", counted)


@pytest.mark.parametrize("method", turns.METHODS)
def test_a_call_that_was_given_up_before_its_turn_is_not_made(
    served: Served, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    slow = Slow()
    monkeypatch.setattr(type(served.manager), method, lambda self, *args, **options: slow())
    arguments = {"mqsc": ("DISPLAY QLOCAL(*)",), "outcome": (1,)}.get(method, ())

    async def main() -> None:
        async with qmgr.aio.connect(NAME, data_path=served.path) as qm:
            ask = getattr(qm, method)
            first = asyncio.create_task(ask(*arguments))
            await asyncio.to_thread(until, lambda: slow.calls == 1)
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await ask(*arguments)
            last = asyncio.create_task(ask(*arguments))
            await asyncio.to_thread(until, lambda: threading.active_count() < 25)  # who gave up waits no more
            slow.go_on.set()
            await asyncio.gather(first, last)
            await qm.put("A", b"still in step")

    asyncio.run(main())
    assert (slow.calls, slow.most) == (2, 1)


def test_others_get_their_answers_while_units_of_many_messages_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    entered, go_on = threading.Event(), threading.Event()
    take = served.listener._clients.turns.take

    def slow_take(kind: str, sock: Any) -> Any:
        entered.set()
        assert go_on.wait(LONG)
        return take(kind, sock)

    with served.connect() as one, served.connect() as other:
        one.put_many("A", [b"x"] * 3)
        for end in ("commit", "backout"):
            unit = one.begin()
            for _ in range(4):
                unit.put("B", b"y")
            entered.clear()
            go_on.clear()
            monkeypatch.setattr(served.listener._clients.turns, "take", slow_take)
            ending = threading.Thread(target=getattr(unit, end))
            ending.start()
            assert entered.wait(LONG)
            other.put("A", b"beside it")  # by the one thread that answers everybody
            go_on.set()
            ending.join(LONG)
            monkeypatch.setattr(served.listener._clients.turns, "take", take)
        assert [message.body for message in other.get_many("B", 10)] == [b"y"] * 4
        assert len(other.get_many("A", 10)) == 5


def test_many_messages_are_put_and_got_one_call_after_the_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    slow, engine = Slow(), served.manager._engine
    put_many = engine.put_many_later
    monkeypatch.setattr(
        engine, "put_many_later", lambda *args, **options: [slow(), put_many(*args, **options)][1], raising=True
    )
    with served.connect() as one:
        threads = [threading.Thread(target=one.put_many, args=("A", [b"x"] * 4)) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: slow.calls == 1)
        with served.connect() as other:
            other.put("B", b"beside them")
        slow.go_on.set()
        for thread in threads:
            thread.join(LONG)
        assert (slow.calls, slow.most) == (3, 1)
        unit = one.begin()
        assert len(unit.get_many("A", 5)) == 5
        unit.commit()
        assert len(one.get_many("A", 50)) == 7


def test_who_is_gone_has_no_turn() -> None:
    taken = Turns(SystemClock())
    ours, theirs = sockets.pair()
    with taken.take("queues", ours):
        pass
    with taken.take("queues", ours), taken.take("mqsc", ours):
        pass  # another kind
    theirs.close()
    with pytest.raises(GaveUp), taken.take("queues", ours):
        pass
    with taken.take("queues", None):
        pass  # the turn was given back
    ours.close()


def test_a_raw_client_that_gives_up_hears_no_answer_and_others_do(served: Served) -> None:
    one = Raw(served.path)
    with served.listener._clients.turns.take("queues", None):
        one.calls.send(wire.call("queues", [], {}))
        one.calls.sock.shutdown(1)
        assert one.calls.is_closed()
    again = one.join()
    _, head = again.ask(wire.call("queues", [], {}))
    assert head.op == wire.OK
    again.close()
    one.close()


@pytest.mark.parametrize("within", ["no unit", "unit"])
def test_many_messages_are_not_got_for_a_client_that_is_gone_before_its_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    served.manager.put_many("A", [b"x"] * 5)
    one = Raw(served.path)
    with served.listener._clients.turns.take(MANY, None):
        taking = Taking(served, monkeypatch)
        unit = 1 if within == "unit" else 0
        one.calls.send(wire.get_many(wire.BEGIN if unit else 0, unit, "A", 5, 0.0, {}))
        until(lambda: taking.count == 1)
        one.cut()
        until(lambda: nobody_is_there(served))
    until(lambda: not taking.at_work)
    assert served.manager.queue("A").depth == 5


def test_who_gives_many_messages_up_before_its_turn_hears_that_none_was_taken(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    served.manager.put_many("A", [b"x"] * 5)
    one = Raw(served.path)
    with served.listener._clients.turns.take(MANY, None):
        taking = Taking(served, monkeypatch)
        one.calls.send(wire.get_many(0, 0, "A", 5, 0.0, {}))
        until(lambda: taking.count == 1)
        one.calls.sock.shutdown(1)
        frame, head = one.calls.receive()
        assert isinstance(wire.error(frame, head), qmgr.NoMessageAvailable)
    assert served.manager.queue("A").depth == 5
    one.close()


def test_who_waits_for_a_turn_when_the_queue_manager_ends_hears_that(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    asked = [
        wire.get_many(0, 0, "A", 5, 0.0, {}),
        wire.get_many(0, 0, "A", 5, LONG, {}),
        wire.put_many(0, 0, "A", [b"x"] * 5, {}),
        wire.call("queues", [], {}),
    ]
    with contextlib.ExitStack() as turns_held:
        for kind in (MANY, "queues"):
            turns_held.enter_context(served.listener._clients.turns.take(kind, None))
        taking = Taking(served, monkeypatch)
        raws = [Raw(served.path) for _ in asked]
        for one, frame in zip(raws, asked, strict=True):
            one.calls.send(frame)
        until(lambda: taking.count == len(asked))
        closing = threading.Thread(target=served.listener.close)
        closing.start()
        for one in raws:
            frame, head = one.calls.receive()
            assert wire.error(frame, head).reason == qmgr.Reason.Q_MGR_STOPPING
        closing.join(LONG)
    for one in raws:
        one.close()


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    """Whoever gives up leaves the line."""
    taken, order, here, theirs = Turns(SystemClock()), list[int](), *sockets.pair()

    def ask(number: int) -> None:
        with contextlib.suppress(GaveUp), taken.take(MANY, here if number in (0, 3) else None):
            order.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    with taken.take(MANY, None):
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda number=number: len(taken._lines[MANY]) == number + 2)
        threading.Event().wait(2 * turns.LOOK_S)
        theirs.close()
        until(lambda: len(taken._lines[MANY]) == 5)
    for thread in threads:
        thread.join(LONG)
    here.close()
    assert order == [1, 2, 4, 5]
    assert not taken._lines[MANY]


def test_who_gives_up_just_as_its_turn_comes_leaves_it_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, held, here, theirs = Turns(SystemClock()), contextlib.ExitStack(), *sockets.pair()
    held.enter_context(taken.take(MANY, None))

    def next_one() -> None:
        with taken.take(MANY, None):
            pass

    def closed(sock: sockets.Socket) -> bool:
        """Looked at when it was not its turn yet."""
        waiting.append(Call(next_one))
        until(lambda: len(taken._lines[MANY]) == 3)
        held.close()
        return True

    waiting: list[Call] = []
    monkeypatch.setattr(sockets, "peer_has_closed", closed)
    with pytest.raises(GaveUp), taken.take(MANY, here):
        raise AssertionError("it has given up")
    waiting[0].outcome(LONG)
    assert not taken._lines[MANY]
    for sock in (here, theirs):
        sock.close()


BIG = {
    "put_many": lambda qm: qm.put_many("A", [b"x"] * 5),
    "large put_many": lambda qm: qm.put_many("A", [bytes(90)] * 3),
    "get_many": lambda qm: qm.get_many("A", 5, wait=LONG),
    "commit": lambda qm: _unit_of_many(qm).commit(),
    "refused send": lambda qm: _refused_send(qm),
}


def _unit_of_many(qm: Any) -> Any:
    unit = qm.begin()
    for _ in range(5):
        unit.put("B", b"x")
    return unit


def _refused_send(qm: Any) -> None:
    unit = _unit_of_many(qm)
    unit.send("A", bytes(200))
    with pytest.raises(qmgr.MessageTooBig):
        unit.commit()


@pytest.mark.parametrize(
    ("call", "depth"),
    [("put_many", 25), ("large put_many", 23), ("get_many", 15), ("commit", 20), ("refused send", 20)],
)
def test_who_waits_for_a_turn_hears_that_the_daemon_is_there(
    served: Served, monkeypatch: pytest.MonkeyPatch, call: str, depth: int
) -> None:
    """Else a client took the daemon for dead, and a commit for one whose outcome is not known."""
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    monkeypatch.setattr(calls, "MAX_QUICK_BYTES", 250)
    monkeypatch.setattr(
        sockets, "send_if_room", lambda sock, data: sock.sendall(2 * data) is None
    )  # the client was kept away
    served.manager.put_many("A", [b"x"] * 20)
    served.manager.alter_queue("A", max_message_length=100)
    with served.connect(timeout=1.0) as qm:
        with served.listener._clients.turns.take(MANY, None):
            taking = Taking(served, monkeypatch)
            waiting = Call(lambda: BIG[call](qm))
            until(lambda: taking.count == 1)
            threading.Event().wait(2.0)
        waiting.outcome()
        assert qm.queue("A").depth == depth, "the session goes on"


@pytest.mark.parametrize("call", ["put_many", "get_many", "commit"])
def test_who_has_the_turn_may_hang_and_a_client_that_waits_for_it_notices_that(
    served: Served, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A disk that hangs: small calls are given up then, and those of many messages waited for ever."""
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    monkeypatch.setattr(turns, "HANGS_NS", 500_000_000)
    with served.connect(timeout=1.0) as qm, served.listener._clients.turns.take(MANY, None):
        with pytest.raises(qmgr.Unavailable) as caught:
            Call(lambda: BIG[call](qm)).outcome(LONG)
        assert caught.value.reason == qmgr.Reason.CONNECTION_BROKEN


def test_who_waits_for_many_messages_hears_that_also_after_a_turn_in_which_there_was_none(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    with served.connect(timeout=1.0) as qm:
        assert qm.get_many("A", 5, wait=2.5) == []


@pytest.mark.parametrize("call", ["put_many", "get_many"])
def test_a_task_that_waits_for_a_turn_hears_that_the_daemon_is_there(
    served: Served, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    served.manager.put_many("A", [b"x"] * 20)

    async def main() -> None:
        async with qmgr.aio.connect(NAME, data_path=served.path, timeout=1.0) as qm:
            with served.listener._clients.turns.take(MANY, None):
                waiting = asyncio.create_task(BIG[call](qm))
                await asyncio.sleep(2.0)
            assert len(await waiting) == 5

    asyncio.run(main())


def test_the_backout_of_many_messages_that_were_rolled_back_is_no_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its turn another thread has it, which found the unit of work ended: programs heard 2255, and not 2003."""
    monkeypatch.setattr(calls, "MAX_QUICK", 3)
    engine = served.manager._engine

    def roll_back() -> None:
        with engine.lock:
            [unit] = engine.state.uows
            unit.evicted = True
            engine.back_out_locked(unit)

    with served.connect() as qm:
        unit = _unit_of_many(qm)
        roll_back()
        unit.backout()
        assert unit.state is UowState.BACKED_OUT
        with pytest.raises(BackedOut), qm.begin() as unit:
            unit.put_many("B", [b"x"] * 5)
            roll_back()
            unit.put("B", b"x")
        unit = _unit_of_many(qm)
        roll_back()
        unit.send("B", b"x")
        with pytest.raises(BackedOut):
            unit.commit()
    assert served.manager.queue("B").depth == 0
