"""Connections to a daemon here: units of work, errors, waits and threads are as with the queue manager itself."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
import qmgr.aio
from logger.clock import SystemClock
from qmgr import wire
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
from tests.daemon.serving import LONG, Served, serving, waits
from tests.qmgr.world import NAME, Call, bodies

XID = Xid(1, b"global", b"branch")


# ---- units of work


def test_a_unit_of_work_commits_on_leaving_and_backs_out_on_an_exception(
    served: Served, connection: qmgr.Connection
) -> None:
    with connection.begin() as unit:
        put = unit.put("A", b"one", priority=3)
        assert connection.queue("A").uncommitted == 1
        assert unit.state is UowState.ACTIVE
    assert [unit.state] == [UowState.COMMITTED]
    assert connection.get("A").message_id == put.message_id
    with pytest.raises(ZeroDivisionError), connection.begin() as unit:
        unit.put("A", b"two")
        _ = 1 / 0
    assert unit.state is UowState.BACKED_OUT
    assert bodies(served.manager, "A") == []
    assert served.manager.transactions() == []


def test_beginning_takes_no_call_and_an_empty_unit_never_begins(served: Served, connection: qmgr.Connection) -> None:
    unit = connection.begin()
    assert served.manager.transactions() == []
    unit.commit()
    connection.begin().backout()
    other = connection.begin()
    assert [one.number for one in served.manager.transactions()] == [] and other.id > 0
    assert [one.number for one in served.manager.transactions()] == [other.id]
    other.put("A", b"x")
    assert len(served.manager.transactions()) == 1


def test_the_error_of_a_first_call_leaves_a_unit_that_goes_on(served: Served, connection: qmgr.Connection) -> None:
    with connection.begin() as unit:
        with pytest.raises(NoMessageAvailable):
            unit.get("A")
        with pytest.raises(qmgr.UnknownQueue):
            unit.put("NONE", b"")
        unit.put("A", b"x")
    assert bodies(served.manager, "A") == [b"x"]


def test_an_evicted_unit_raises_backed_out_and_is_backed_out(served: Served, connection: qmgr.Connection) -> None:
    with pytest.raises(BackedOut), connection.begin() as unit:
        unit.put("A", b"x")
        engine = served.manager._engine
        with engine.lock:
            [evicted] = engine.state.uows
            evicted.evicted = True
            engine.back_out_locked(evicted)
        assert unit.state is UowState.BACKED_OUT
    unit = connection.begin()
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


def test_an_ended_unit_says_what_it_is(connection: qmgr.Connection) -> None:
    unit = connection.begin()
    unit.put("A", b"x")
    unit.commit()
    for call in (unit.commit, unit.backout, unit.prepare, lambda: unit.put("A", b""), lambda: unit.get_many("A", 2)):
        with pytest.raises(UnitOfWorkEnded, match=f"unit of work {unit.id} is committed"):
            call()
    without_a_call = connection.begin()
    without_a_call.commit()
    message = connection.get("A")
    for call in (
        without_a_call.commit,
        lambda: without_a_call.send("A", b""),
        lambda: without_a_call.put("A", b""),
        lambda: without_a_call.put_many("A", [b""]),
        lambda: without_a_call.get("A"),
        lambda: without_a_call.get_many("A", 1),
        lambda: connection.dead_letter(without_a_call, message),
    ):
        with pytest.raises(UnitOfWorkEnded, match=r"^this unit of work is committed"):
            call()
    assert connection.transactions() == []


def test_errors_are_those_of_the_queue_manager_itself(served: Served, connection: qmgr.Connection) -> None:
    connection.define_queue("SMALL", max_depth=1, max_message_length=5)
    connection.put("SMALL", b"x")
    connection.alter_queue("B", put_enabled=False, get_enabled=False)
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
            call(connection)
        facts = [(type(one), one.reason, one.name, str(one)) for one in (ours.value, theirs.value)]
        assert facts[0] == facts[1], number


def test_what_is_asked_comes_as_the_same_classes(served: Served, connection: qmgr.Connection) -> None:
    unit = connection.begin(XID)
    unit.put("A", b"x")
    qm = served.manager
    assert connection.queues() == qm.queues()
    assert connection.attributes == qm.attributes
    assert connection.transactions() == qm.transactions()
    assert connection.connections() == qm.connections()
    assert connection.status().log.config == qm.status().log.config
    assert connection.status().restart == qm.restart_report
    unit.prepare()
    assert connection.in_doubt() == qm.in_doubt() == [XID]
    assert connection.mqsc("DISPLAY QLOCAL(A)") == qm.mqsc("DISPLAY QLOCAL(A)")
    unit.commit()
    assert connection.clear_queue("A") == 1
    connection.checkpoint()


def test_browse_takes_nothing_and_comes_in_order(served: Served, connection: qmgr.Connection) -> None:
    connection.put_many("A", [b"%d" % number for number in range(300)])
    assert [message.body for message in connection.browse("A")] == [b"%d" % number for number in range(300)]
    some = connection.browse("A")
    assert next(some).body == b"0"
    del some
    wanted = connection.put("A", b"wanted", correlation_id=b"this")
    found = list(connection.browse("A", correlation_id=b"this"))
    assert [one.message_id for one in found] == [wanted.message_id]
    assert served.listener._clients is not None
    [open_client] = served.listener._clients._clients.values()
    assert not open_client.cursors


def test_browses_that_are_not_read_to_the_end_are_bounded(connection: qmgr.Connection) -> None:
    """Row 77."""
    connection.put_many("A", [b"x"] * 10)
    for _ in range(300):
        connection.browse("A")  # of which nobody reads anything
    held = [connection.browse("A") for _ in range(256)]
    for one in held:
        next(one)
    with pytest.raises(Mistake) as caught:
        next(connection.browse("A"))
    assert caught.value.reason == Reason.HANDLE_NOT_AVAILABLE
    held.clear()
    assert len(list(connection.browse("A"))) == 10


def test_large_messages_and_many_at_once(connection: qmgr.Connection) -> None:
    connection.define_queue("BIG", max_message_length=4_000_000, default_persistence=False)
    large = bytes(range(256)) * 12_000
    connection.put("BIG", large)
    assert connection.get("BIG").body == large
    with connection.begin() as unit:
        unit.put_many("BIG", [large] * 3)
    assert [one.body == large for one in connection.get_many("BIG", 9)] == [True] * 3


def test_a_call_beyond_the_longest_frame_is_refused_and_nothing_else(tmp_path: Path) -> None:
    """Row 73."""
    with serving(tmp_path, channels={"max_frame_length": 65_536}) as served, served.connect() as client:
        with pytest.raises(qmgr.MessageTooBig) as caught:
            client.put("A", bytes(70_000))
        assert caught.value.reason == Reason.MSG_TOO_BIG_FOR_Q_MGR
        longest = 65_536 - wire.REQUEST.size - len("A")
        client.put("A", bytes(longest))
        with pytest.raises(qmgr.MessageTooBig):
            client.put("A", bytes(longest + 1))
        assert client.queue("A").depth == 1
        longest -= wire.REQUEST.size  # each of those that go together has a head of its own
        with client.begin() as unit:
            for body in (b"first", bytes(longest), b"last"):
                unit.send("A", body)
        with pytest.raises(qmgr.MessageTooBig), client.begin() as unit:
            unit.send("A", bytes(longest + 1))
        assert client.queue("A").depth == 4

        async def main() -> None:
            async with asyncio.timeout(LONG), qmgr.aio.connect(NAME, data_path=tmp_path) as awaited:
                unit = await awaited.begin()
                with pytest.raises(qmgr.MessageTooBig):
                    await unit.send("A", bytes(longest + 1))
                assert unit.state is UowState.BACKED_OUT

        asyncio.run(main())


def test_groups_dead_letters_and_messages_that_are_backed_out_too_often(
    served: Served, connection: qmgr.Connection
) -> None:
    connection.define_queue("DLQ")
    connection.alter(dead_letter_queue="DLQ")
    connection.alter_queue("A", backout_threshold=1, backout_queue="B")
    for sequence in (2, 1):
        connection.put("A", b"%d" % sequence, group_id=b"G", group_sequence=sequence, last_in_group=sequence == 2)
    with connection.begin() as unit:
        assert [unit.get("A", all_available=True).body for _ in range(2)] == [b"1", b"2"]
        unit.backout()
    for message, unit in connection.consume("A", wait=0.0):
        raise AssertionError((message, unit))
    assert [one.body for one in connection.get_many("B", 9)] == [b"2", b"1"]
    connection.put("A", b"poison")
    for message, unit in connection.consume("A", wait=0.0):
        with unit:
            assert connection.dead_letter(unit, message).queue == "DLQ"
    connection.dead_letter(None, connection.put("A", b"more"))
    assert [one.body[172:] for one in connection.browse("DLQ")] == [b"poison", b"more"]
    with pytest.raises(TypeError, match="a get has no option 'colour'"):
        connection.get("A", colour=1)  # type: ignore[call-arg]
    with pytest.raises(Mistake):
        connection.get("A", all_available=True)
    assert served.manager.transactions() == []


def test_a_dead_letter_in_a_unit_of_work_of_another_connection_is_refused(
    served: Served, connection: qmgr.Connection
) -> None:
    connection.define_queue("DLQ")
    connection.alter(dead_letter_queue="DLQ")
    message = connection.put("A", b"body")
    with served.connect() as other, other.begin() as unit:
        for wrong in (unit, "unit", 5):
            with pytest.raises(Mistake, match="begun with the same object") as caught:
                connection.dead_letter(wrong, message)  # type: ignore[arg-type]
            assert caught.value.reason == Reason.UOW_NOT_AVAILABLE
    assert connection.queue("DLQ").depth == 0


# ---- waits and threads


def test_two_threads_of_one_connection_one_of_which_waits(served: Served, connection: qmgr.Connection) -> None:
    waiting = Call(lambda: connection.get("A", wait=None))
    waits(served)
    assert connection.queue("A").depth == 0
    connection.put("A", b"here")
    assert waiting.outcome().body == b"here"
    with connection.begin() as unit:
        waiting = Call(lambda: unit.get_many("A", 5, wait=LONG))
        waits(served)
        served.manager.put("A", b"again")
        assert [one.body for one in waiting.outcome()] == [b"again"]


def test_each_message_wakes_one_of_many_that_wait(served: Served, connection: qmgr.Connection) -> None:
    several = [Call(lambda: connection.get("A", wait=LONG).body) for _ in range(6)]
    waits(served, count=6)
    served.manager.put_many("A", [b"%d" % number for number in range(3)])
    with connection.begin() as unit:
        for number in range(3, 6):
            unit.put("A", b"%d" % number)
    assert sorted(call.outcome() for call in several) == [b"%d" % number for number in range(6)]


def test_a_wait_ends_with_its_time_and_waits_for_what_it_names(served: Served, connection: qmgr.Connection) -> None:
    with pytest.raises(NoMessageAvailable):
        connection.get("A", wait=0.05)
    assert connection.get_many("A", 3, wait=0.01) == []
    waiting = Call(lambda: connection.get("A", wait=LONG, correlation_id=b"mine"))
    waits(served)
    connection.put("A", b"other")
    connection.put("A", b"this", correlation_id=b"mine")
    assert waiting.outcome().body == b"this"
    assert bodies(served.manager, "A") == [b"other"]


def test_who_waits_hears_that_gets_are_disabled_and_that_it_ends(served: Served, connection: qmgr.Connection) -> None:
    waiting = Call(lambda: connection.get("A", wait=LONG))
    waits(served)
    connection.alter_queue("A", get_enabled=False)
    with pytest.raises(qmgr.Inhibited):
        waiting.outcome()
    connection.alter_queue("A", get_enabled=True)
    waiting = Call(lambda: connection.get("A", wait=LONG))
    waits(served)
    served.manager.quiesce()
    with pytest.raises(Unavailable) as caught:
        waiting.outcome()
    assert caught.value.reason == Reason.Q_MGR_QUIESCING


def test_a_unit_of_work_is_used_by_several_threads(served: Served, connection: qmgr.Connection) -> None:
    with connection.begin() as unit:
        calls = [Call(lambda: [unit.put("A", b"x") for _ in range(20)]) for _ in range(4)]
        for call in calls:
            call.outcome()
    assert connection.queue("A").depth == 80
    assert served.manager.transactions() == []


def test_an_interrupt_leaves_the_connection_and_the_unit_usable(served: Served, connection: qmgr.Connection) -> None:
    connection.put("B", b"first")

    def strike() -> None:
        waits(served)
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    unit = connection.begin()
    try:
        unit.get("B")
        killer = Call(strike)
        with pytest.raises(KeyboardInterrupt):
            unit.get("A", wait=LONG)
        killer.outcome()
    finally:
        signal.signal(signal.SIGINT, before)
    waits(served, count=0)
    connection.put("A", b"later")  # and nobody takes it
    assert connection.queue("A").depth == 1
    assert unit.state is UowState.ACTIVE
    unit.backout()
    assert connection.get("B").backout_count == 1


class Jumping(SystemClock):
    """Somebody sets the clock at every moment."""

    def wall_us(self) -> int:
        self.wall = getattr(self, "wall", 0) + 86_400_000_000
        return self.wall


def test_row_68_a_wait_of_a_client_is_measured_by_elapsed_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.daemon.serving.SystemClock", Jumping)
    with serving(tmp_path) as served, served.connect() as connection:
        call = Call(lambda: connection.get("A", wait=LONG).body)
        waits(served)
        served.manager.put("A", b"x")
        assert call.outcome() == b"x"
