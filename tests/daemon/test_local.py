"""The listener for clients of this machine: what they have begun ends with them, and nobody harms anybody else."""

import contextlib
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qmgr
from qmgr import sockets, values, wire
from qmgr.errors import (
    BackedOut,
    Mistake,
    NoMessageAvailable,
    Reason,
    Unavailable,
    UnitOfWorkEnded,
)
from recovery.records import Xid
from recovery.uows import UowState
from tests.conftest import SOAK
from tests.daemon.raw import Raw, RawSocket, hello
from tests.daemon.serving import LONG, SPAWN, Served, daemon, location, serving
from tests.qmgr.world import NAME, Call, bodies

XID = Xid(1, b"global", b"branch")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as one:
        yield one


@pytest.fixture
def client(served: Served) -> Iterator[qmgr.Connection]:
    with served.connect() as one:
        yield one


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread or process is about to do."""
    never = threading.Event()
    for _ in range(int(LONG / 0.005)):
        if true():
            return
        never.wait(0.005)
    raise AssertionError("it does not happen")


def nobody_is_there(served: Served) -> bool:
    return len(served.manager.sessions) == 0


def waits(served: Served, queue: str = "A", count: int = 1) -> None:
    until(lambda: len(served.manager._engine.state.queues[queue].waiters.line) == count)


# ---- units of work


def test_a_unit_of_work_commits_on_leaving_and_backs_out_on_an_exception(
    served: Served, client: qmgr.Connection
) -> None:
    with client.begin() as unit:
        put = unit.put("A", b"one", priority=3)
        assert client.queue("A").uncommitted == 1
        assert unit.state is UowState.ACTIVE
    assert [unit.state] == [UowState.COMMITTED]
    assert client.get("A").message_id == put.message_id
    with pytest.raises(ZeroDivisionError), client.begin() as unit:
        unit.put("A", b"two")
        _ = 1 / 0
    assert unit.state is UowState.BACKED_OUT
    assert bodies(served.manager, "A") == []
    assert served.manager.transactions() == []


def test_beginning_takes_no_call_and_an_empty_unit_never_begins(served: Served, client: qmgr.Connection) -> None:
    unit = client.begin()
    assert served.manager.transactions() == []
    unit.commit()
    client.begin().backout()
    other = client.begin()
    assert [one.number for one in served.manager.transactions()] == [] and other.id > 0
    assert [one.number for one in served.manager.transactions()] == [other.id]
    other.put("A", b"x")
    assert len(served.manager.transactions()) == 1


def test_the_error_of_a_first_call_leaves_a_unit_that_goes_on(served: Served, client: qmgr.Connection) -> None:
    with client.begin() as unit:
        with pytest.raises(NoMessageAvailable):
            unit.get("A")
        with pytest.raises(qmgr.UnknownQueue):
            unit.put("NONE", b"")
        unit.put("A", b"x")
    assert bodies(served.manager, "A") == [b"x"]


def test_an_evicted_unit_raises_backed_out_and_is_backed_out(served: Served, client: qmgr.Connection) -> None:
    with pytest.raises(BackedOut), client.begin() as unit:
        unit.put("A", b"x")
        engine = served.manager._engine
        with engine.lock:
            [evicted] = engine.state.uows
            evicted.evicted = True
            engine.back_out_locked(evicted)
        assert unit.state is UowState.BACKED_OUT
    unit = client.begin()
    unit.put("A", b"y")
    with engine.lock:
        [evicted] = engine.state.uows
        evicted.evicted = True
        engine.back_out_locked(evicted)
    with pytest.raises(BackedOut, match="rolled back by the queue manager"):
        unit.put("A", b"z")
    unit.backout()
    with pytest.raises(UnitOfWorkEnded):
        unit.commit()
    assert bodies(served.manager, "A") == []


def test_an_ended_unit_says_what_it_is(client: qmgr.Connection) -> None:
    unit = client.begin()
    unit.put("A", b"x")
    unit.commit()
    for call in (unit.commit, unit.backout, unit.prepare, lambda: unit.put("A", b""), lambda: unit.get_many("A", 2)):
        with pytest.raises(UnitOfWorkEnded, match=f"unit of work {unit.id} is committed"):
            call()


def test_errors_are_those_of_the_queue_manager_itself(served: Served, client: qmgr.Connection) -> None:
    client.define_queue("SMALL", max_depth=1, max_message_length=5)
    client.put("SMALL", b"x")
    client.alter_queue("B", put_enabled=False, get_enabled=False)
    calls: list[Callable[[qmgr.QueueManager | qmgr.Connection], object]] = [
        lambda qm: qm.put("NONE", b""),
        lambda qm: qm.put("no name", b""),
        lambda qm: qm.put("SMALL", b""),
        lambda qm: qm.put("A", b"", priority=10),
        lambda qm: qm.put("A", "text"),  # type: ignore[arg-type]
        lambda qm: qm.put("B", b""),
        lambda qm: qm.get("B"),
        lambda qm: qm.get("A"),
        lambda qm: qm.get("A", wait=-1),
        lambda qm: qm.get("A", message_id=b"x" * 25),
        lambda qm: qm.get_many("A", 0),
        lambda qm: qm.put_many("A", b"one"),  # type: ignore[arg-type]
        lambda qm: qm.browse("NONE"),
        lambda qm: qm.define_queue("A"),
        lambda qm: qm.define_queue("C", colour=1),
        lambda qm: qm.delete_queue("SMALL"),
        lambda qm: qm.replay("A", "oldest"),
        lambda qm: qm.resolve(XID, True),
        lambda qm: qm.outcome(5),
        lambda qm: qm.record_image(),
        lambda qm: qm.begin(5),  # type: ignore[arg-type]
        lambda qm: qm.end("now"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(qmgr.MQError) as ours:
            call(served.manager)
        with pytest.raises(qmgr.MQError) as theirs:
            call(client)
        facts = [(type(one), one.reason, one.name, str(one)) for one in (ours.value, theirs.value)]
        assert facts[0] == facts[1], number


def test_what_is_asked_comes_as_the_same_classes(served: Served, client: qmgr.Connection) -> None:
    unit = client.begin(XID)
    unit.put("A", b"x")
    qm = served.manager
    assert client.queues() == qm.queues()
    assert client.attributes == qm.attributes
    assert client.transactions() == qm.transactions()
    assert client.connections() == qm.connections()
    assert client.status().log.config == qm.status().log.config
    assert client.status().restart == qm.restart_report
    unit.prepare()
    assert client.in_doubt() == qm.in_doubt() == [XID]
    assert client.mqsc("DISPLAY QLOCAL(A)") == qm.mqsc("DISPLAY QLOCAL(A)")
    unit.commit()
    assert client.clear_queue("A") == 1
    client.checkpoint()


def test_browse_takes_nothing_and_comes_in_order(served: Served, client: qmgr.Connection) -> None:
    client.put_many("A", [b"%d" % number for number in range(300)])
    assert [message.body for message in client.browse("A")] == [b"%d" % number for number in range(300)]
    some = client.browse("A")
    assert next(some).body == b"0"
    del some
    wanted = client.put("A", b"wanted", correlation_id=b"this")
    found = list(client.browse("A", correlation_id=b"this"))
    assert [one.message_id for one in found] == [wanted.message_id]
    assert served.listener._clients is not None
    [open_client] = served.listener._clients._clients.values()
    assert not open_client.cursors


def test_browses_that_are_not_read_to_the_end_are_bounded(client: qmgr.Connection) -> None:
    client.put_many("A", [b"x"] * 10)
    held = [client.browse("A") for _ in range(256)]
    for one in held:
        next(one)
    with pytest.raises(Mistake) as caught:
        next(client.browse("A"))
    assert caught.value.reason == Reason.HANDLE_NOT_AVAILABLE
    held.clear()
    assert len(list(client.browse("A"))) == 10


def test_large_messages_and_many_at_once(client: qmgr.Connection) -> None:
    client.define_queue("BIG", max_message_length=4_000_000, default_persistence=False)
    large = bytes(range(256)) * 12_000
    client.put("BIG", large)
    assert client.get("BIG").body == large
    with client.begin() as unit:
        unit.put_many("BIG", [large] * 3)
    assert [one.body == large for one in client.get_many("BIG", 9)] == [True] * 3


def test_a_call_beyond_the_longest_frame_is_refused_and_nothing_else(tmp_path: Path) -> None:
    with serving(tmp_path, channels={"max_frame_length": 65_536}) as served, served.connect() as client:
        with pytest.raises(Mistake) as caught:
            client.put("A", bytes(70_000))
        assert caught.value.reason == Reason.MSG_TOO_BIG_FOR_Q_MGR
        client.put("A", bytes(65_000))
        assert client.queue("A").depth == 1


def test_groups_dead_letters_and_messages_that_are_backed_out_too_often(
    served: Served, client: qmgr.Connection
) -> None:
    client.define_queue("DLQ")
    client.alter(dead_letter_queue="DLQ")
    client.alter_queue("A", backout_threshold=1, backout_queue="B")
    for sequence in (2, 1):
        client.put("A", b"%d" % sequence, group_id=b"G", group_sequence=sequence, last_in_group=sequence == 2)
    with client.begin() as unit:
        assert [unit.get("A", all_available=True).body for _ in range(2)] == [b"1", b"2"]
        unit.backout()
    for message, unit in client.consume("A", wait=0.0):
        raise AssertionError((message, unit))
    assert [one.body for one in client.get_many("B", 9)] == [b"2", b"1"]
    client.put("A", b"poison")
    for message, unit in client.consume("A", wait=0.0):
        with unit:
            assert client.dead_letter(unit, message).queue == "DLQ"
    client.dead_letter(None, client.put("A", b"more"))
    assert [one.body[172:] for one in client.browse("DLQ")] == [b"poison", b"more"]
    with pytest.raises(TypeError, match="a get has no option 'colour'"):
        client.get("A", colour=1)  # type: ignore[call-arg]
    with pytest.raises(Mistake):
        client.get("A", all_available=True)
    assert served.manager.transactions() == []


# ---- waits and threads


def test_two_threads_of_one_connection_one_of_which_waits(served: Served, client: qmgr.Connection) -> None:
    waiting = Call(lambda: client.get("A", wait=None))
    waits(served)
    assert client.queue("A").depth == 0
    client.put("A", b"here")
    assert waiting.outcome().body == b"here"
    with client.begin() as unit:
        waiting = Call(lambda: unit.get_many("A", 5, wait=LONG))
        waits(served)
        served.manager.put("A", b"again")
        assert [one.body for one in waiting.outcome()] == [b"again"]


def test_each_message_wakes_one_of_many_that_wait(served: Served, client: qmgr.Connection) -> None:
    several = [Call(lambda: client.get("A", wait=LONG).body) for _ in range(6)]
    waits(served, count=6)
    served.manager.put_many("A", [b"%d" % number for number in range(3)])
    with client.begin() as unit:
        for number in range(3, 6):
            unit.put("A", b"%d" % number)
    assert sorted(call.outcome() for call in several) == [b"%d" % number for number in range(6)]


def test_a_wait_ends_with_its_time_and_waits_for_what_it_names(served: Served, client: qmgr.Connection) -> None:
    with pytest.raises(NoMessageAvailable):
        client.get("A", wait=0.05)
    assert client.get_many("A", 3, wait=0.01) == []
    waiting = Call(lambda: client.get("A", wait=LONG, correlation_id=b"mine"))
    waits(served)
    client.put("A", b"other")
    client.put("A", b"this", correlation_id=b"mine")
    assert waiting.outcome().body == b"this"
    assert bodies(served.manager, "A") == [b"other"]


def test_who_waits_hears_that_gets_are_disabled_and_that_it_ends(served: Served, client: qmgr.Connection) -> None:
    waiting = Call(lambda: client.get("A", wait=LONG))
    waits(served)
    client.alter_queue("A", get_enabled=False)
    with pytest.raises(qmgr.Inhibited):
        waiting.outcome()
    client.alter_queue("A", get_enabled=True)
    waiting = Call(lambda: client.get("A", wait=LONG))
    waits(served)
    served.manager.quiesce()
    with pytest.raises(Unavailable) as caught:
        waiting.outcome()
    assert caught.value.reason == Reason.Q_MGR_QUIESCING


def test_a_unit_of_work_is_used_by_several_threads(served: Served, client: qmgr.Connection) -> None:
    with client.begin() as unit:
        calls = [Call(lambda: [unit.put("A", b"x") for _ in range(20)]) for _ in range(4)]
        for call in calls:
            call.outcome()
    assert client.queue("A").depth == 80
    assert served.manager.transactions() == []


def test_an_interrupt_leaves_the_connection_and_the_unit_usable(served: Served, client: qmgr.Connection) -> None:
    client.put("B", b"first")

    def strike() -> None:
        waits(served)
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    unit = client.begin()
    try:
        unit.get("B")
        killer = Call(strike)
        with pytest.raises(KeyboardInterrupt):
            unit.get("A", wait=LONG)
        killer.outcome()
    finally:
        signal.signal(signal.SIGINT, before)
    waits(served, count=0)
    client.put("A", b"later")  # and nobody takes it
    assert client.queue("A").depth == 1
    assert unit.state is UowState.ACTIVE
    unit.backout()
    assert client.get("B").backout_count == 1


# ---- clients that go


def test_cut_off_at_every_byte_a_unit_is_there_wholly_or_not_at_all(served: Served) -> None:
    body = b"a body"
    put = wire.put(wire.BEGIN, 1, "A", body, {"priority": 4, "correlation_id": b"c"})
    commit = wire.request(wire.COMMIT, 0, 1)
    whole = len(put) + len(commit)
    for cut in range(whole + 1):
        raw = Raw(served.path)
        raw.calls.send(put[:cut])
        if cut >= len(put):
            raw.calls.receive()
            raw.calls.send(commit[: cut - len(put)])
        raw.cut() if cut % 2 else raw.close()
        until(lambda: nobody_is_there(served))
        assert served.manager.transactions() == []
        found = [message.body for message in served.manager.get_many("A", 10)]
        assert found in ([[]] if cut < whole else [[], [body]]), cut


def test_cut_off_while_it_says_hello(served: Served) -> None:
    frame = hello()
    for cut in range(0, len(frame), 7):
        sock = RawSocket(served.path)
        sock.send(frame[:cut])
        sock.close()
    with served.connect() as client:
        client.put("A", b"x")
    until(lambda: nobody_is_there(served))


def child(path: Path, what: str, told: Pipe) -> None:
    """A client that is going to be killed."""
    client = qmgr.connect(NAME, data_path=path, application="child")
    unit = client.begin(XID if what == "prepared" else None)
    if what == "wait":
        told.send("waits")
        client.get("B", wait=None)
    if what == "unit wait":
        unit.put("A", b"never seen")
        told.send("waits")
        unit.get("B", wait=None)
    unit.get("A")
    unit.put("B", b"never seen")
    if what == "prepared":
        unit.prepare()
    told.send("done")
    threading.Event().wait()


@contextlib.contextmanager
def killed(served: Served, what: str) -> Iterator[None]:
    """A client process that is killed when the block is left."""
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=child, args=(served.path, what, theirs))
    process.start()
    try:
        assert ours.poll(LONG), "the client does nothing"
        ours.recv()
        yield
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(LONG)


def test_a_client_that_is_killed_in_a_unit_is_backed_out_at_once(served: Served, client: qmgr.Connection) -> None:
    client.put("A", b"held")
    with killed(served, "unit"):
        assert [one.peer.application for one in client.connections() if one.units] == ["child"]
        waiting = Call(lambda: client.get("A", wait=LONG))
        waits(served)
    found = waiting.outcome()
    assert (found.body, found.backout_count) == (b"held", 1)
    assert bodies(served.manager, "B") == []


@pytest.mark.parametrize("what", ["wait", "unit wait"])
def test_a_client_that_is_killed_while_it_waits_takes_nothing(
    served: Served, client: qmgr.Connection, what: str
) -> None:
    with killed(served, what):
        waits(served, "B")
    waits(served, "B", count=0)
    until(lambda: len(served.manager.sessions) == 1)
    client.put("B", b"for others")
    assert client.get("B").body == b"for others"
    assert served.manager.transactions() == []
    assert bodies(served.manager, "A") == []


def test_what_was_prepared_outlives_its_client(served: Served, client: qmgr.Connection) -> None:
    client.put("A", b"held")
    with killed(served, "prepared"):
        pass
    until(lambda: len(served.manager.sessions) == 1)
    assert client.in_doubt() == [XID]
    client.resolve(XID, True)
    assert bodies(served.manager, "B") == [b"never seen"]


def test_the_session_goes_on_when_a_socket_of_a_call_is_lost(served: Served) -> None:
    raw = Raw(served.path)
    raw.calls.ask(wire.put(wire.BEGIN, 1, "A", b"x", {}))
    raw.calls.send(wire.get(0, 1, "B", wire.FOR_EVER, {}))
    waits(served, "B")
    raw.calls.close()
    waits(served, "B", count=0)
    assert len(served.manager.transactions()) == 1
    _, head = raw.join().ask(wire.request(wire.COMMIT, 0, 1))
    assert head.op == wire.OK
    assert bodies(served.manager, "A") == [b"x"]
    raw.close()


def test_a_session_that_was_lost_ends_when_its_client_comes_again(served: Served, client: qmgr.Connection) -> None:
    client.put("A", b"held")
    unit = client.begin()
    unit.get("A")
    client._link.broken = True  # as for a client that heard of a lost network before the daemon has
    with pytest.raises(BackedOut):
        unit.put("A", b"x")
    assert client.get("A").body == b"held"
    unit.backout()
    assert unit.state is UowState.BACKED_OUT
    assert len(served.manager.sessions) == 1


# ---- fencing


def test_requests_of_ended_and_of_others_units_are_fenced(served: Served) -> None:
    raw, other = Raw(served.path), Raw(served.path)
    _, head = raw.calls.ask(wire.put(wire.BEGIN, 1, "A", b"x", {}))
    assert head.begun is not None
    for stranger in (wire.put(0, 1, "A", b"y", {}), wire.request(wire.COMMIT, 0, 1)):
        assert isinstance(other.calls.refused(stranger), UnitOfWorkEnded)
    assert raw.calls.ask(wire.request(wire.COMMIT, 0, 1))[1].op == wire.OK
    for late in (
        wire.request(wire.COMMIT, 0, 1),
        wire.request(wire.BACKOUT, 0, 1),
        wire.put(0, 1, "A", b"z", {}),
        wire.put(wire.BEGIN, 1, "A", b"z", {}),
        wire.request(wire.PREPARE, 0, 1),
    ):
        error = raw.calls.refused(late)
        assert isinstance(error, UnitOfWorkEnded)
        assert f"unit of work {head.begun[0]} is committed" in str(error)
    assert bodies(served.manager, "A") == [b"x"]
    assert served.manager.transactions() == []
    raw.close()
    other.close()


def test_a_first_call_that_comes_after_the_backout_has_no_effect(served: Served) -> None:
    raw = Raw(served.path)
    assert raw.calls.ask(wire.request(wire.BACKOUT, 0, 1))[1].op == wire.OK
    assert isinstance(raw.join().refused(wire.put(wire.BEGIN, 1, "A", b"late", {})), UnitOfWorkEnded)
    assert served.manager.transactions() == []
    raw.close()


# ---- outcomes


def test_the_outcome_of_a_unit_is_found_in_the_log(served: Served, client: qmgr.Connection) -> None:
    units = [client.begin() for _ in range(4)]
    for unit in units:
        unit.put("A", b"x" * 1000)
    units[0].commit()
    units[1].backout()
    volatile = client.begin()
    volatile.put("A", b"y", persistent=False)
    volatile.commit()
    prepared = client.begin(XID)
    prepared.put("A", b"z")
    prepared.prepare()
    known = {unit.id: client.outcome(unit.id) for unit in (*units, volatile, prepared)}
    assert list(known.values()) == [
        *(UowState.COMMITTED, UowState.BACKED_OUT, UowState.ACTIVE, UowState.ACTIVE),
        *(UowState.COMMITTED, UowState.PREPARED),
    ]
    units[2].commit()
    prepared.commit()
    assert client.outcome(units[2].id, since=units[2]._since) is UowState.COMMITTED
    assert client.outcome(prepared.id) is UowState.COMMITTED
    for number in (0, 7, units[0].id << 30):
        with pytest.raises(Mistake):
            client.outcome(number)


def test_a_log_that_reaches_back_no_more_does_not_tell(served: Served, client: qmgr.Connection) -> None:
    with client.begin() as unit:
        unit.put("A", b"x")
    since = unit._since
    gone = client.begin()
    gone.put("A", b"y")
    gone.backout()
    for _ in range(60):
        with client.begin() as filler:
            filler.put("A", bytes(20_000))
            filler.get("A")
        client.checkpoint()
    assert served.manager._log.reaches_back_to() > since
    assert client.outcome(unit.id) is client.outcome(unit.id, since=since) is client.outcome(gone.id) is None
    assert client.outcome(filler.id) is UowState.COMMITTED


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_killed_daemons_and_lost_answers_leave_no_doubt(tmp_path: Path, log_type: str) -> None:
    """Each unit is committed, or not, or its outcome can be asked for; the queue has just those that are committed."""
    wanted: list[bytes] = []
    with daemon(tmp_path, log_type=log_type) as one, one.connect() as client:
        for turn in range(12 if SOAK else 3):
            killer = threading.Timer(0.05 + 0.01 * turn, one.kill)
            killer.start()
            for number in range(100_000):
                unit = client.begin()
                body = b"%d %d" % (turn, number)
                try:
                    unit.put("A", body)
                    unit.commit()
                except Unavailable as exc:
                    assert exc.reason == Reason.CONNECTION_BROKEN
                    break
                wanted.append(body)
            killer.join()
            with pytest.raises(Unavailable, match="is not running; start it with strmqm QM1"):
                client.queues()
            one.start()
            told = client.outcome(unit._id) if unit._id else UowState.BACKED_OUT
            assert told in (UowState.COMMITTED, UowState.BACKED_OUT)
            if told is UowState.COMMITTED:
                wanted.append(body)
            with pytest.raises((UnitOfWorkEnded, BackedOut)):
                unit.commit()
            assert [message.body for message in client.browse("A")] == wanted


# ---- connecting


def test_without_a_daemon_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no queue manager 'QM1'") as caught:
        qmgr.connect(NAME, data_path=tmp_path)
    assert caught.value.reason == Reason.Q_MGR_NAME_ERROR
    qmgr.create(NAME, data_path=tmp_path)
    with pytest.raises(Unavailable, match="is not running; start it with strmqm QM1") as caught:
        qmgr.connect(NAME, data_path=tmp_path)
    assert caught.value.reason == Reason.Q_MGR_NOT_AVAILABLE
    with (
        qmgr.start(NAME, data_path=tmp_path),
        pytest.raises(Unavailable, match=f"is run by pid {os.getpid()}, which serves no clients"),
    ):
        qmgr.connect(NAME, data_path=tmp_path)
    with pytest.raises(Mistake, match="qmgr://host:port/QM1"):
        qmgr.connect("http://localhost:1/QM1")


def test_the_socket_is_this_users_and_a_dead_ones_is_replaced(tmp_path: Path) -> None:
    path = location(tmp_path).socket
    with daemon(tmp_path) as one:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        one.kill()
        assert os.path.exists(path)
        one.start()
        with one.connect() as client:
            client.put("A", b"x")
    os.unlink(path)
    Path(path).write_text("not a socket")
    qm = qmgr.start(NAME, data_path=tmp_path)
    qm.end()
    with pytest.raises(OSError, match="not a socket"), serving(tmp_path):
        pass


def test_a_socket_that_took_the_place_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "qm.sock")
    first, number = sockets.listen_unix(path)
    second, _ = sockets.listen_unix(path)
    sockets.remove_unix(path, number)
    sockets.connect_unix(path).close()
    first.close()
    second.close()


def test_paths_may_be_longer_than_the_system_takes(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with serving(deep) as served, served.connect() as client:
        client.put("A", b"x")
        [me] = [one for one in client.connections() if one.number]
        assert me.peer.process == os.getpid()


def test_another_version_and_another_queue_manager_are_refused_clearly(served: Served) -> None:
    sock = RawSocket(served.path)
    error = sock.refused(wire.hello(wire.HELLO, b"{}", version=7))
    assert "speaks version 1 of the client protocol, and this client version 7; install the same version" in str(error)
    assert sock.is_closed()
    sock = RawSocket(served.path)
    assert "this is queue manager 'QM1', not 'QM2'" in str(sock.refused(hello(manager="QM2")))
    sock = RawSocket(served.path)
    error = sock.refused(wire.hello(wire.JOIN, bytes(16)))
    assert isinstance(error, Unavailable) and error.reason == Reason.CONNECTION_BROKEN


def test_refusing_lets_those_that_are_there_go_on(served: Served, client: qmgr.Connection) -> None:
    unit = client.begin()
    unit.put("A", b"x")
    served.listener.refuse()
    with pytest.raises(Unavailable) as caught:
        served.connect()
    assert caught.value.reason == Reason.Q_MGR_QUIESCING
    waiting = Call(lambda: client.get("B", wait=LONG))
    waits(served, "B")
    client.put("B", b"y")  # by a socket that has to be opened
    waiting.outcome()
    unit.commit()
    served.listener.close()
    with pytest.raises(Unavailable) as caught:
        client.queues()
    assert caught.value.reason == Reason.CONNECTION_BROKEN
    assert not os.path.exists(location(served.path).socket)
    assert nobody_is_there(served)


def test_closing_ends_units_and_waits_at_once(served: Served, client: qmgr.Connection) -> None:
    unit = client.begin()
    unit.put("A", b"x")
    waiting = Call(lambda: client.get("B", wait=None))
    waits(served, "B")
    served.listener.close()
    with pytest.raises(Unavailable):
        waiting.outcome()
    with pytest.raises((Unavailable, BackedOut)):
        unit.commit()
    assert served.manager.transactions() == []


@pytest.mark.parametrize("mode", ["quiesce", "immediate"])
def test_a_client_ends_the_queue_manager(tmp_path: Path, mode: str) -> None:
    with daemon(tmp_path) as one:
        client = one.connect()
        client.put("A", b"x")
        open_unit = client.begin()
        open_unit.put("A", b"y")
        client.end(mode)
        with pytest.raises(Unavailable, match="not running"):
            client.put("A", b"z")
        one.process.join(LONG)
        assert one.process.exitcode == 0
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        assert bodies(qm, "A") == [b"x"]
        assert (qm.restart_report.in_flight, qm.restart_report.torn_tail) == (0, False)


def test_a_closed_connection_says_so(client: qmgr.Connection) -> None:
    unit = client.begin()
    unit.put("A", b"x")
    client.close()
    for call in (client.queues, client.begin, lambda: client.put("A", b"")):
        with pytest.raises(Unavailable, match="is closed") as caught:
            call()
        assert caught.value.reason == Reason.HCONN_ERROR
    with pytest.raises(BackedOut):
        unit.commit()


def in_forked_child(client: qmgr.Connection, unit: object, path: str) -> None:
    """Runs in the child; what goes wrong there is its exit code."""
    assert isinstance(unit, type(client.begin()))
    try:
        unit.put("A", b"of the child")
        os._exit(2)
    except Unavailable as exc:
        if exc.reason != Reason.HCONN_ERROR:
            os._exit(3)
    unit.__exit__(KeyError, KeyError(), None)
    with client.begin() as own:
        own.put("B", b"from the child")
    os._exit(0)


def test_a_forked_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    with daemon(tmp_path) as one, one.connect() as client:
        with client.begin() as unit:
            unit.put("A", b"from the parent")
            pid = os.fork()
            if not pid:
                try:
                    in_forked_child(client, unit, str(tmp_path))
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            unit.put("A", b"and again")
        assert [message.body for message in client.browse("A")] == [b"from the parent", b"and again"]
        assert [message.body for message in client.browse("B")] == [b"from the child"]


# ---- what is no client, and clients that do harm


@settings(max_examples=400 if SOAK else 40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(min_size=1, max_size=60), begins=st.booleans())
def test_garbage_closes_the_connection_and_harms_nobody(served: Served, garbage: bytes, begins: bool) -> None:
    raw = Raw(served.path) if begins else None
    sock = RawSocket(served.path) if raw is None else raw.calls
    sock.send(garbage)
    sock.sock.shutdown(socket.SHUT_WR)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            frame, head = sock.receive()
            assert head.op == wire.ERROR or frame
    sock.close()
    if raw is not None:
        raw.close()
    served.manager.put("B", b"x")
    assert served.manager.get("B").body == b"x"


def test_other_protocols_hellos_are_refused(served: Served) -> None:
    tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    for other in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", tls, b"CONNECT\n\n\0"):
        sock = RawSocket(served.path)
        error = sock.refused(other)
        assert isinstance(error, Unavailable) and error.reason == Reason.CONNECTION_BROKEN
        assert sock.is_closed()
    assert any("AMQ9207" in line for line in served.service.said)


@pytest.mark.parametrize("length", [0, 3, 4097, 2**31, 2**32 - 1])
def test_lengths_are_bounded_before_anybody_is_known(served: Served, length: int) -> None:
    sock = RawSocket(served.path)
    error = sock.refused(wire.LENGTH.pack(length) + b"xxxxxxxx")
    assert isinstance(error, Unavailable)
    assert sock.is_closed()


def test_a_long_frame_that_never_comes_reserves_nothing(served: Served) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    raw = Raw(served.path)
    before = resident()
    held = [raw.join() for _ in range(10)]
    for sock in held:
        sock.send(wire.LENGTH.pack(100_000_000) + bytes(100))
    raw.calls.ask(wire.request(wire.CLOSE, 0, 1))
    assert resident() - before < 50_000_000
    for sock in held:
        sock.close()
    raw.close()


def test_requests_that_lie_get_one_answer(served: Served) -> None:
    for lie in (
        wire.request(99, 0, 0),
        wire.request(wire.PUT, wire.OPTIONS, 0, "A", b"\xff\xff"),
        wire.request(wire.PUT_MANY, 0, 0, "A", b"\xff\xff\xff\xff"),
        wire.request(wire.GET, 0, 0, "A", b"short"),
        wire.request(wire.GET, wire.MESSAGE_ID, 0, "A", bytes(20)),
        wire.request(wire.NEXT, 0, 1),
        wire.REQUEST.pack(12, wire.GET, 0, 500, 0),
        wire.LENGTH.pack(8) + bytes(8),
    ):
        raw = Raw(served.path)
        assert isinstance(raw.calls.refused(lie), Unavailable)
        assert raw.calls.is_closed()
        raw.close()
    raw = Raw(served.path)
    for odd in (
        wire.request(wire.CALL, 0, 0, "close", values.dumps({"args": [], "options": {}})),
        wire.request(wire.CALL, 0, 0, "_fail", values.dumps({"args": [1], "options": {}})),
        wire.request(wire.CALL, 0, 0, "queue", values.dumps({"args": [1, 2, 3], "options": {"a": 1}})),
        wire.request(wire.CALL, 0, 0, "queue", b"{"),
        wire.request(wire.CALL, 0, 0, "queue", b"{}"),
        wire.request(wire.CALL, 0, 0, "mqsc", values.dumps({"args": [["a"]], "options": {}})),
        wire.request(wire.REPLAY, 0, 0, "", values.dumps(7)),
        wire.request(wire.NEXT, 0, 77, "", wire.TABLE.pack(1)),
        wire.get(0, 0, "A", -3.0, {}),
    ):
        error = raw.calls.refused(odd)
        assert isinstance(error, Mistake), error
    raw.calls.ask(wire.put(0, 0, "A", b"fine", {}))
    raw.close()
    assert not any("AMQ6118" in line for line in served.service.said), served.service.said


def test_a_request_before_the_answer_is_refused(served: Served) -> None:
    raw = Raw(served.path)
    error = raw.calls.refused(wire.put(0, 0, "A", b"x", {}) * 2)
    assert "before the one before it was answered" in str(error)
    raw.close()


def test_a_frame_that_was_begun_has_its_time(tmp_path: Path) -> None:
    with serving(tmp_path, channels={"idle_timeout": 1, "connect_timeout": 1}) as served:
        raw, stranger, silent = Raw(tmp_path), RawSocket(tmp_path), RawSocket(tmp_path)
        raw.calls.send(wire.put(0, 0, "A", b"x", {})[:-1])
        stranger.send(hello()[:9])
        for sock in (raw.calls, stranger, silent):
            assert sock.is_closed()
        _, head = raw.join().ask(wire.put(0, 0, "A", b"x", {}))  # the session goes on
        assert head.op == wire.OK
        raw.close()
        with served.connect() as client:
            assert client.get("A").body == b"x"


def test_who_never_reads_is_left_and_blocks_nobody(tmp_path: Path) -> None:
    with serving(tmp_path, channels={"idle_timeout": 1}) as served, served.connect() as client:
        client.define_queue("BIG", default_persistence=False)
        client.put_many("BIG", [bytes(1_000_000)] * 5)
        raw = Raw(tmp_path)
        [theirs] = [one for one in served.listener._clients._clients.values() if one.token == raw.token]
        raw.calls.send(wire.request(wire.BROWSE, 0, 0, "BIG", wire.TABLE.pack(100)))
        client.put("A", b"x")
        assert client.get("A").body == b"x"
        until(lambda: not theirs._sockets)
        raw.close()


def test_sockets_of_one_session_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmgr.daemon.client.MOST_SOCKETS", 3)
    raw = Raw(served.path)
    held = [raw.join() for _ in range(2)]
    sock = RawSocket(served.path)
    error = sock.refused(wire.hello(wire.JOIN, raw.token))
    assert isinstance(error, Unavailable) and error.reason == Reason.MAX_CONNS_LIMIT_REACHED
    held[0].close()
    until(lambda: _joins(raw))
    raw.close()


def _joins(raw: Raw) -> bool:
    sock = RawSocket(raw._path)
    return sock.ask(wire.hello(wire.JOIN, raw.token))[1].op == wire.OK


def test_idle_connections_cost_little_and_come_back(tmp_path: Path) -> None:
    count = 1000 if SOAK else 100

    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096

    with daemon(tmp_path) as one, one.connect() as client:
        client.put("A", b"x")
        pid = one.process.pid
        assert pid is not None
        before = resident(pid)
        many = [one.connect() for _ in range(count)]
        for each in many:
            each.queue("A")
        assert resident(pid) - before < count * 60_000
        assert len(client.connections()) == count + 2
        for each in many:
            each.close()
        until(lambda: len(client.connections()) == 2)
        until(lambda: len(os.listdir(f"/proc/{pid}/fd")) < 40)
        assert client.get("A").body == b"x"
