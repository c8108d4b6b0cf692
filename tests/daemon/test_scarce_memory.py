"""Memory runs out for a while, and comes back: the threads and tasks on which many depend are still there.

Row 57. Who is struck himself hears of it, and nobody waits for ever.
"""

import asyncio
import importlib
import selectors
import socket
import threading
from asyncio import selector_events
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger.clock import SystemClock
from qmgr import sockets, threads, wire
from qmgr.configuration import Protocol
from qmgr.daemon import hands, listeners, rounds, stomp_connection
from qmgr.daemon.beats import NEVER, Beats
from qmgr.daemon.calls import Calls
from qmgr.daemon.hands import Hands
from qmgr.daemon.loop import Forcer, Lasting, LoopThread
from qmgr.daemon.stomp_commands import StompCommands
from qmgr.daemon.stomp_connection import Connection
from qmgr.daemon.stomp_subscriptions import Subscription
from qmgr.daemon.watcher import Watcher
from qmgr.errorlog import ErrorLog
from qmgr.session import Session
from qmgr.threads import go_on
from tests.alone import alone
from tests.daemon.faces import face, listening
from tests.daemon.raw import Raw
from tests.daemon.serving import LONG, Served, be_answered, nobody_is_there, until, waits
from tests.daemon.stomp_world import Server, eventually
from tests.daemon.test_rounds import all_there, get, put, slow_force


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RETRY_S", 0.001)


NO_THREAD = RuntimeError("can't start new thread")  # as Python says it


def scarce(really: Callable[..., Any], times: int, error: Exception | type = MemoryError) -> Callable[..., Any]:
    """The same call; the first so many times it has no memory, and does nothing."""
    left = [error] * times

    def call(*given: Any, **options: Any) -> Any:
        if left:
            raise left.pop()
        return really(*given, **options)

    return call


def fails(*given: object) -> None:
    raise MemoryError


def test_a_step_for_which_there_is_no_memory_is_made_again() -> None:
    made: list[int] = []

    def step() -> bool:
        made.append(1)
        return len(made) < 3

    go_on(scarce(scarce(step, 2), 2, NO_THREAD))
    assert len(made) == 3


@pytest.mark.parametrize("mistake", [KeyError("of ours"), RuntimeError("release unlocked lock"), RecursionError()])
def test_a_step_that_fails_for_a_mistake_is_not_made_again(mistake: Exception) -> None:
    """It would fail again and again, and nobody would hear of that."""
    step = scarce(lambda: False, 1, mistake)
    with pytest.raises(type(mistake)):
        go_on(step)
    assert not step()


# ---- threads that serve many


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    made = Watcher()
    yield made
    made.close()


def test_the_watcher_notes_who_has_gone_while_there_was_no_memory(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher._selector, "select", scarce(watcher._selector.select, 3))
    watcher.start()
    noted = threading.Semaphore(0)
    for _ in range(2):
        ours, theirs = sockets.pair()
        watcher.add(ours, scarce(noted.release, 3))
        theirs.close()
        assert noted.acquire(timeout=LONG)
        ours.close()
    assert not noted.acquire(blocking=False)


class Slow:
    """A call that is due at once, and whose client can be told only when there is memory."""

    def __init__(self, failures: int) -> None:
        self.due = 0
        self.told = threading.Event()
        self._tell = scarce(self.told.set, failures)

    def on_due(self, now: int) -> None:
        self.due = NEVER if self.told.is_set() else now
        self._tell()


def test_beats_come_to_everybody_once_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    beats = Beats(clock)
    monkeypatch.setattr(clock, "wait", scarce(clock.wait, 3, NO_THREAD), raising=False)
    beats.start()
    try:
        with beats.during(first := Slow(3)), beats.during(second := Slow(0)):
            assert first.told.wait(LONG) and second.told.wait(LONG)
        with beats.during(third := Slow(1)):
            assert third.told.wait(LONG)
    finally:
        beats.close()


def test_what_is_given_to_hands_is_done_where_one_had_no_memory_to_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, done = Hands("hands of this test"), threading.Semaphore(0)

    class Queue:
        put = scarce(pool._work.put, 1)
        get = scarce(pool._work.get, 1)

    monkeypatch.setattr(pool, "_work", Queue)
    pool.do(lambda: None)
    until(lambda: not any(one.name == "hands of this test" for one in threading.enumerate()))
    assert pool._free == 0
    pool.do(done.release)
    assert done.acquire(timeout=LONG)
    until(lambda: pool._free == 1)
    with pytest.raises(MemoryError):
        pool.do(done.release)
    assert pool._free == 1
    pool.do(done.release)
    assert done.acquire(timeout=LONG)
    assert hands.IDLE_TIMEOUT_S > 1, "one thread has done both"


@pytest.mark.parametrize("protocol", Protocol)
def test_a_listener_accepts_again_that_could_not_even_say_why_it_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Protocol
) -> None:
    around = face(tmp_path)
    listener = listeners.MAKERS[protocol](around, listening(protocol, port=0))
    listener.start()
    place = ("127.0.0.1", getattr(listener, "port", 0) or listener.address[1])  # type: ignore[attr-defined]
    refused: list[object] = []

    def none(*given: object, **inserts: object) -> None:
        refused.append(given)
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", none)
        patched.setattr(type(around), "say", none)
        early = socket.create_connection(place, timeout=LONG)
        until(lambda: len(refused) >= 6)
    with socket.create_connection(place, timeout=LONG) as late:
        for one in (early, late):
            be_answered(one)
    early.close()
    listener.close()
    around.manager.end("immediate")


# ---- rounds


def test_rounds_go_on_where_not_even_those_who_wait_could_be_told_that_their_answers_are_lost(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = served.listener._clients.rounds
    raw = Raw(served.path)
    all_there(served, 1)
    with monkeypatch.context() as patched:
        patched.setattr(here._beats, "add", scarce(here._beats.add, 1))
        patched.setattr(here, "_end", scarce(here._end, 3))
        raw.calls.send(put())
        assert raw.calls.is_closed()
    connection.put("B", b"x")
    assert connection.get("B").body == b"x"
    raw.close()


@pytest.mark.parametrize("step", ["answer", "after_force"])
def test_who_has_asked_while_not_even_his_end_found_memory_loses_his_connection(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """His request had been read, and nobody knew of it any more: he waited for the answer for ever."""
    here = served.listener._clients.rounds
    raw = Raw(served.path)
    all_there(served, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Calls, step, scarce(getattr(Calls, step), 1))
        patched.setattr(here, "_end", scarce(here._end, 1))
        raw.calls.send(put())
        assert raw.calls.is_closed()
    connection.put("B", b"x")
    raw.close()
    until(lambda: len(served.manager.sessions) == 1)


def test_whose_socket_could_not_be_taken_back_from_a_slow_force_loses_his_connection(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, at_work, go = slow_force(served)
    here = served.listener._clients.rounds
    tried = threading.Event()

    def none(*given: object) -> None:
        tried.set()
        raise MemoryError

    raw = Raw(served.path)
    all_there(served, 1)
    monkeypatch.setattr(rounds, "SLOW_FORCE_NS", 1_000_000)
    with monkeypatch.context() as patched:
        patched.setattr(served.manager, "force", slow)
        patched.setattr(rounds, "start_thread", none)
        patched.setattr(here._selector, "register", scarce(here._selector.register, 1))
        raw.calls.send(put())
        assert at_work.wait(LONG) and tried.wait(LONG)
        assert raw.calls.is_closed()
        go.set()
    connection.put("B", b"x")
    raw.close()
    until(lambda: len(served.manager.sessions) == 1)


def test_a_client_that_went_while_there_was_no_memory_is_ended_when_there_is(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else could give back what it has."""
    raw = Raw(served.path)
    raw.calls.ask(wire.put(wire.BEGIN, 1, "A", b"x", {}))
    monkeypatch.setattr(Session, "_end", scarce(Session._end, 600))  # more than it tries at once
    hang_up = scarce(lambda calls: sockets.hang_up(calls.sock), 2)
    monkeypatch.setattr(Calls, "hang_up", property(scarce(lambda calls: partial(hang_up, calls), 2)))
    raw.anchor.close()
    assert raw.calls.is_closed()
    until(lambda: nobody_is_there(served))
    assert served.manager.transactions() == []


# ---- the loop


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread(lambda lsn: None)
    yield made
    made.end()


def test_the_loop_goes_on_that_had_no_memory_to_hear_of_sockets(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector: selectors.BaseSelector = thread.loop._selector  # type: ignore[attr-defined]
    monkeypatch.setattr(selector, "select", scarce(selector.select, 3))
    for _ in range(3):
        thread.run(asyncio.sleep(0.001))


def test_the_loop_goes_on_that_had_no_memory_even_to_stop(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted as running from then on, so it could not run again."""
    really, failing = asyncio.events._set_running_loop, [MemoryError]

    def say_which_runs(loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is None and failing:
            raise failing.pop()
        really(loop)

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.events, "_set_running_loop", say_which_runs)
        thread.loop.call_soon_threadsafe(thread.begin_anew)
        thread.run(asyncio.sleep(0.001))
        until(lambda: not failing)
    thread.run(asyncio.sleep(0.001))


def asks(thread: LoopThread, lsn: int) -> Exception | None:
    """What somebody hears who asks for a force."""

    async def ask() -> Exception | None:
        heard: asyncio.Future[Exception | None] = thread.loop.create_future()
        thread.forcer.ask(lsn, heard.set_result)
        return await asyncio.wait_for(heard, LONG)

    return thread.run(ask())


def test_a_force_is_told_of_when_there_is_memory(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:  # with nothing of asyncio's own that another thread would have to tell of
        heard: asyncio.Future[Exception | None] = thread.loop.create_future()
        thread.forcer.ask(8, heard.set_result)
        monkeypatch.setattr(thread.loop, "call_soon_threadsafe", scarce(thread.loop.call_soon_threadsafe, 5))
        assert await asyncio.wait_for(heard, LONG) is None

    thread.run(ask())
    assert asks(thread, 16) is None
    assert thread.forcer.safe == 16


def test_who_is_told_twice_of_a_force_takes_it_for_no_other(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, forces = threading.Event(), list[int]()

    def force(lsn: int) -> None:
        forces.append(lsn)
        assert lsn < 16 or gate.wait(LONG)

    def twice(call: Callable[..., object], *given: object, **options: Any) -> None:
        really(call, *given, **options)
        if call == thread.forcer._done and failing:
            raise failing.pop()  # although it has done its work

    failing, really, heard = [MemoryError], thread.loop.call_soon_threadsafe, list[Exception | None]()
    monkeypatch.setattr(thread.forcer, "_force", force)
    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", twice)
    assert asks(thread, 8) is None
    other = threading.Thread(target=lambda: heard.append(asks(thread, 16)))
    other.start()
    until(lambda: forces == [8, 16] and not failing)
    thread.run(asyncio.sleep(0.02))
    assert (heard, thread.forcer.safe) == ([], 8)
    gate.set()
    other.join(LONG)
    assert (heard, thread.forcer.safe) == ([None], 16)


@pytest.mark.parametrize("lost", ["_begin", "_done"])
def test_a_force_of_which_the_loop_has_lost_a_callback_is_told_of_all_the_same(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    scheduling = "call_soon" if lost == "_begin" else "call_soon_threadsafe"
    really, losing = getattr(thread.loop, scheduling), [1]

    def lose(call: Callable[..., object], *given: object, **options: Any) -> object:
        if call == getattr(thread.forcer, lost) and losing:
            losing.clear()
            return really(fails)
        return really(call, *given, **options)

    monkeypatch.setattr(thread.loop, scheduling, lose)
    for lsn in (8, 16, 24):
        assert asks(thread, lsn) is None
    assert (losing, thread.forcer.safe) == ([], 24)


def test_a_force_after_one_that_found_no_memory_is_told_of_as_what_it_is(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread.forcer, "_force", scarce(thread.forcer._force, 1))
    assert isinstance(asks(thread, 8), MemoryError)
    assert thread.forcer.safe == 0
    assert asks(thread, 8) is None
    assert thread.forcer.safe == 8


def test_who_has_no_memory_to_ask_for_a_force_keeps_nobody_from_it(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        with monkeypatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr(thread.loop, "call_soon", scarce(thread.loop.call_soon, 1))
            thread.forcer.ask(8, lambda error: None)

    thread.run(ask())
    assert asks(thread, 8) is None


def test_a_callback_of_the_forcer_that_finds_no_memory_keeps_nobody_waiting(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        heard = thread.loop.create_future()
        thread.forcer.ask(8, fails)
        thread.forcer.ask(8, heard.set_result)
        await asyncio.wait_for(heard, LONG)

    with monkeypatch.context() as patched:
        patched.setattr(thread.loop, "call_exception_handler", fails)
        thread.run(ask())
    assert asks(thread, 8) is None


@pytest.mark.parametrize("first", range(8))
@alone
def test_whichever_allocation_fails_all_who_wait_for_a_force_hear_of_it(first: int) -> None:
    """Those who did not have waited for ever."""
    testcapi, loop = importlib.import_module("_testcapi"), asyncio.new_event_loop()
    forcer, told = Forcer(lambda lsn: None, loop), [0, 0, 0]

    def hears(one: int, error: Exception | None) -> None:
        told[one] += error is None

    for one in range(3):
        forcer.ask(8, partial(hears, one))
    forcer._begin()
    until(lambda: forcer._forced and not forcer._to_tell)
    testcapi.set_nomemory(first, first + 1)
    try:
        forcer._done()
    except MemoryError:
        testcapi.remove_mem_hooks()
        forcer.recover()
    finally:
        testcapi.remove_mem_hooks()
    assert (told, forcer.safe) == ([1, 1, 1], 8)
    forcer.end()
    loop.close()


def test_a_loop_ends_that_had_no_memory_to_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = LoopThread(lambda lsn: None)
    really = thread.loop.call_soon_threadsafe
    monkeypatch.setattr(thread.loop, "call_soon_threadsafe", lambda call: really(fails))
    thread.end()
    assert thread.loop.is_closed()


def lose_the_first(monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop) -> None:
    """The next callback that another thread gives the loop is lost."""
    really, losing = loop.call_soon_threadsafe, [1]

    def lose(call: Callable[..., object], *given: object, **options: Any) -> object:
        return really(fails) if losing and losing.pop() else really(call, *given, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", lose)


@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited")
def test_who_waits_for_what_the_loop_has_lost_hears_of_that(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_first(monkeypatch, thread.loop)
    with pytest.raises(MemoryError):
        thread.run(asyncio.sleep(0.001))
    thread.run(asyncio.sleep(0.001))


@pytest.mark.parametrize("how", ["it ends", "its wake-up is lost"])
def test_a_task_that_lasts_is_begun_anew(thread: LoopThread, how: str) -> None:
    begun, failing = list[int](), [1]

    async def work() -> None:
        begun.append(1)
        if how == "it ends" and failing:
            failing.clear()
            raise MemoryError
        await asyncio.sleep(LONG)

    async def begin() -> Lasting:
        return Lasting(work, thread)

    one = thread.run(begin())
    until(lambda: len(begun) >= 1)
    if how != "it ends":
        thread.loop.call_soon_threadsafe(fails)
    until(lambda: len(begun) == 2)
    thread.run(one.end())
    assert not thread.lasting


def test_a_task_that_ends_whenever_it_is_begun_leaves_the_loop_to_others(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun anew in each turn of the loop, which had nothing else to wait for."""
    begun, now = list[int](), thread.loop.time()
    monkeypatch.setattr(thread.loop, "time", lambda: now)

    async def work() -> None:
        begun.append(1)
        raise KeyError("of ours")

    async def begin() -> Lasting:
        return Lasting(work, thread)

    one = thread.run(begin())
    for _ in range(10):
        thread.run(asyncio.sleep(0))
    assert len(begun) == 1
    now += 10.0
    thread.run(asyncio.sleep(0))
    until(lambda: len(begun) == 2)
    thread.run(one.end())


# ---- STOMP


def test_a_stomp_client_whose_answer_finds_no_memory_loses_its_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client() as one, server.client() as other:
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "_flush", scarce(Connection._flush, 1))
            one.say("SEND", b"x", destination="A", receipt="r1")
            assert one.at_end()
        other.send("A", b"y")
    assert [amq for amq, inserts in server.service.said if "MemoryError" in inserts["text"]] == ["AMQ9209"]
    server.all_gone()
    with server.client() as again:
        again.send("A", b"z")


@pytest.mark.parametrize("method", ["_do_frames", "_on_force", "_resume"])
def test_wherever_memory_fails_a_stomp_client_has_its_answer_or_no_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with server.client() as one, server.client() as other:
        with monkeypatch.context() as patched:
            patched.setattr(Connection, method, scarce(getattr(Connection, method), 1))
            one.raw(one.frame("SEND", b"x", destination="A", receipt="r1") * 100)
            while one.received.count(b"RECEIPT\n") != 100:
                data = one.socket.recv(1 << 16)
                if not data:
                    break
                one.received += data
        other.send("A", b"y")


@pytest.mark.parametrize("heard", [True, False])
def test_where_the_loop_had_no_memory_for_a_callback_nobody_waits_for_what_it_was_about(
    server: Server, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """It may have been to do a frame, to send a RECEIPT, or to take what had been read: nobody knows whose."""
    with server.client() as one, server.client() as other, server.stranger() as stranger:
        one.ask("BEGIN", transaction="t")
        one.send("B", b"x", transaction="t")
        eventually(lambda: len(server.listener._connections) == 3)
        loop = server.listener._state.loop
        if not heard:  # nor for the error handler, so the loop itself ends
            monkeypatch.setattr(loop, "call_exception_handler", scarce(loop.call_exception_handler, 1))
        loop.call_soon_threadsafe(fails)
        assert one.at_end() and other.at_end() and stranger.at_end()
    server.all_gone()
    assert not server.listener._strangers
    assert server.qm.transactions() == []
    with server.client() as again:
        again.send("A", b"y")


def test_a_stomp_client_that_can_not_be_lost_for_a_mistake_takes_no_other_with_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop ended, and the listener was deaf from then on."""
    really, failing = StompCommands.end, [KeyError("of ours")]

    def end(self: StompCommands, *, in_order: bool) -> None:
        if failing:
            raise failing.pop()
        really(self, in_order=in_order)

    monkeypatch.setattr(StompCommands, "end", end)
    with server.client() as one, server.client() as other:
        server.listener._state.loop.call_soon_threadsafe(fails)
        assert one.at_end() and other.at_end()
    server.all_gone()
    with server.client() as again:
        again.send("A", b"y")
    [(amq, inserts)] = server.service.said
    assert (amq, "KeyError: 'of ours'" in inserts["text"]) == ("AMQ9209", True)


@pytest.mark.filterwarnings("ignore:coroutine 'StompListener._(refuse|close)' was never awaited")
def test_a_listener_ends_whose_loop_has_lost_that_it_was_to_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the queue manager waited for it for ever."""
    loop = server.listener._state.loop
    with server.client() as one:
        lose_the_first(monkeypatch, loop)
        server.listener.refuse()
        assert one.at_end()
        lose_the_first(monkeypatch, loop)
        server.listener.close()
    with pytest.raises(ConnectionRefusedError):
        server.stranger()


def test_whose_greeting_the_loop_has_lost_is_no_stranger_for_ever(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, never = server.listener._state.loop, asyncio.Event()
    with monkeypatch.context() as patched:
        patched.setattr(loop, "connect_accepted_socket", lambda *given, **options: never.wait())
        stranger = server.stranger()
        eventually(lambda: len(server.listener._handshakes) == 1)
    loop.call_soon_threadsafe(fails)
    assert stranger.at_end()
    eventually(lambda: not server.listener._strangers and not server.listener._greeting)
    stranger.close()


class Lost(asyncio.Future[None]):
    """A task of which a step was lost: it is never over, nor can it be cancelled."""

    def cancel(self, msg: Any = None) -> bool:
        return True


def test_a_listener_ends_though_the_loop_has_lost_a_step_of_a_greeting(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = server.listener._state.loop
    really = loop.create_task

    def lose(work: Any, **options: Any) -> Any:
        if not work.__qualname__.endswith("._greet"):
            return really(work, **options)
        work.close()
        return Lost(loop=loop)

    monkeypatch.setattr(loop, "create_task", lose)
    with server.stranger():
        eventually(lambda: len(server.listener._greeting) == 1)
        loop.call_soon_threadsafe(fails)
        eventually(lambda: not server.listener._greeting)
        server.listener.refuse()


def test_where_asyncio_knows_whose_memory_has_failed_the_others_stay(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a read is the most likely to fail, since it is the largest."""
    with server.client() as one, server.client() as other:
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "data_received", scarce(Connection.data_received, 1))
            one.say("SEND", b"x", destination="A")
            assert one.at_end()
        other.send("A", b"y")
    server.all_gone()


def test_whose_connection_asyncio_had_no_memory_to_close_does_not_wait_for_ever(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asyncio does not try that again."""
    transport = selector_events._SelectorTransport
    monkeypatch.setattr(transport, "_call_connection_lost", scarce(transport._call_connection_lost, 1))
    with server.client() as one:
        [connection] = server.listener._connections
        server.listener._state.loop.call_soon_threadsafe(connection.cut)
        assert one.at_end()
    server.all_gone()


@pytest.mark.parametrize("error", [MemoryError, RuntimeError("can't allocate lock")])
def test_a_stomp_client_loses_its_connection_where_not_even_the_error_log_hears_why(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception | type
) -> None:
    """Nobody else does."""
    with server.client() as one:
        [connection] = server.listener._connections
        with server.client() as other:
            monkeypatch.setattr(ErrorLog, "say", scarce(ErrorLog.say, 1, error))
            server.listener._state.loop.call_soon_threadsafe(connection.safely, fails)
            assert one.at_end()
            other.send("A", b"y")
    server.all_gone()


def test_where_there_was_no_memory_to_say_who_is_ready_all_clients_stay(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client() as one:
        monkeypatch.setattr(selectors.DefaultSelector, "select", scarce(selectors.DefaultSelector.select, 3))
        one.send("A", b"x")


@pytest.mark.parametrize("of, name", [(stomp_connection, "Parser"), (Subscription, "end"), (Session, "release")])
def test_a_stomp_session_ends_whatever_of_its_end_finds_no_memory_at_first(
    server: Server, monkeypatch: pytest.MonkeyPatch, of: Any, name: str
) -> None:
    """What was left undone stayed: messages out of reach, and a place in the line for those that come."""
    server.qm.put("B", b"x")
    with server.client() as one:
        one.subscribe("A")
        one.subscribe("B", id="s2")
        assert one.message().body == b"x"
        [connection] = server.listener._connections
        monkeypatch.setattr(of, name, scarce(getattr(of, name), 1))
        server.listener._state.loop.call_soon_threadsafe(connection.safely, fails)
        assert one.at_end()
    server.all_gone()
    assert server.bodies("B") == [b"x"]
    assert not server.qm._engine.state.queues["A"].waiters.line


def test_heart_beats_come_though_one_connection_could_not_be_looked_at(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client(heart_beat="0,200") as one:
        monkeypatch.setattr(server.listener, "_tick_all", scarce(server.listener._tick_all, 2))
        one.await_beats(3)
        monkeypatch.setattr(Connection, "tick", scarce(Connection.tick, 1))
        assert one.at_end()
    with server.client(heart_beat="0,200") as again:
        again.await_beats(3)


def test_what_a_thread_has_done_for_a_stomp_client_is_told_when_there_is_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.client() as one:
        [connection] = server.listener._connections
        really = server.listener._state.loop.call_soon_threadsafe
        done = threading.Event()
        monkeypatch.setattr(server.listener._state.loop, "call_soon_threadsafe", scarce(really, 3))
        really(connection.do_at_length, lambda: 0, lambda lsn: done.set(), "SEND")
        assert done.wait(LONG)
        one.send("A", b"x")


def test_a_stomp_client_that_went_while_there_was_no_memory_gives_back_what_it_had(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "_end", scarce(Session._end, 600))  # more than it tries at once
    with server.client() as one:
        one.send("A", b"x")
        one.subscribe("A")
        assert one.message().body == b"x"
        one.ask("BEGIN", transaction="t")
        one.send("A", b"y", transaction="t")
    eventually(lambda: not server.qm.sessions)
    assert server.counts("A") == {b"x": 1}
    assert server.qm.transactions() == []


def test_who_puts_to_the_queue_of_a_stomp_client_that_can_not_be_woken_is_not_concerned(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stopped the queue manager: the put had changed the queue by then. The client gets the message all the same."""
    with server.client() as one:
        one.subscribe("A")
        one.send("B", b"x")  # the subscription is in line by then
        loop = server.listener._state.loop
        monkeypatch.setattr(loop, "call_soon_threadsafe", scarce(loop.call_soon_threadsafe, 1))
        server.qm.put("A", b"y")
        assert one.message().body == b"y"
    assert server.qm.refusal is None


def test_to_wake_a_get_that_waits_takes_no_memory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it can't stop the queue manager, whose put has changed the queue by then."""
    raw = Raw(served.path)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "set", scarce(threading.Event.set, 1000))
        raw.calls.send(get(wait=LONG))
        waits(served)
        served.manager.put("A", b"x")
    frame, head = raw.calls.receive()
    assert wire.got_message(frame, head, "A").body == b"x"
    assert served.manager.refusal is None
    raw.close()
