"""Waiting for messages: who is woken, in which order, by what; and what ends a wait."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qmgr
from qmgr import Reason
from qmgr.due import Waiters
from qmgr.verbs import ANY, Wanted
from tests.qmgr.world import Call, World, reason_of

Real = Callable[..., qmgr.QueueManager]


@pytest.fixture
def qm(real: Real) -> qmgr.QueueManager:
    manager = real()
    manager.define_queue("A")
    manager.define_queue("B")
    return manager


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to do."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.001)


def waiting(qm: qmgr.QueueManager, queue: str) -> int:
    with qm._engine.lock:
        return len(qm._engine.state.queues[queue].waiters.line)


def waiter(qm: qmgr.QueueManager, call: Callable[[], Any], queue: str = "A") -> Call:
    """Make a call that waits at the queue, and return when it stands in line."""
    before = waiting(qm, queue)
    made = Call(call)
    until(lambda: waiting(qm, queue) > before or not made.is_alive())
    return made


def test_a_wait_ends_with_2033_after_its_time_and_not_before(world: World) -> None:
    with pytest.raises(qmgr.NoMessageAvailable):
        world.qm.get("A", wait=2.5)
    assert world.clock.waited == [2.5]
    assert world.qm.get_many("A", 5, wait=1) == []
    with world.qm.begin() as unit, pytest.raises(qmgr.NoMessageAvailable):
        unit.get("A", wait=4)
    assert world.clock.waited == [2.5, 1.0, 4.0]


def test_no_wait_is_the_default(world: World) -> None:
    with pytest.raises(qmgr.NoMessageAvailable):
        world.qm.get("A")
    assert world.clock.waited == []


def test_a_message_that_is_there_is_taken_at_once(world: World) -> None:
    world.qm.put("A", b"x")
    assert world.qm.get("A", wait=None).body == b"x"
    assert world.clock.waited == []


@pytest.mark.parametrize("wait", [None, 30.0])
def test_a_put_wakes(qm: qmgr.QueueManager, wait: float | None) -> None:
    call = waiter(qm, lambda: qm.get("A", wait=wait).body)
    qm.put("A", b"x")
    assert call.outcome() == b"x"


def test_a_non_persistent_put_wakes(qm: qmgr.QueueManager) -> None:
    call = waiter(qm, lambda: qm.get("A", wait=None).body)
    qm.put("A", b"x", persistent=False)
    assert call.outcome() == b"x"


def test_a_commit_wakes_and_not_the_put_before_it(qm: qmgr.QueueManager) -> None:
    call = waiter(qm, lambda: qm.get("A", wait=None).body)
    unit = qm.begin()
    unit.put("A", b"x")
    assert waiting(qm, "A") == 1
    unit.commit()
    assert call.outcome() == b"x"


def test_a_backout_wakes(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"x")
    unit = qm.begin()
    unit.get("A")
    call = waiter(qm, lambda: qm.get("A", wait=None))
    unit.backout()
    got = call.outcome()
    assert (got.body, got.backout_count) == (b"x", 1)


def test_a_resolution_wakes(qm: qmgr.QueueManager) -> None:
    xid = qmgr.Xid(1, b"g", b"b")
    unit = qm.begin(xid)
    unit.put("A", b"x")
    unit.prepare()
    call = waiter(qm, lambda: qm.get("A", wait=None).body)
    qm.resolve(xid, commit=True)
    assert call.outcome() == b"x"


def test_put_many_wakes_as_many_as_it_brings(qm: qmgr.QueueManager) -> None:
    calls = [waiter(qm, lambda: qm.get("A", wait=None).body) for _ in range(4)]
    qm.put_many("A", [b"0", b"1", b"2"])
    until(lambda: sum(call.is_alive() for call in calls) == 1)
    qm.put("A", b"3")
    assert sorted(call.outcome() for call in calls) == [b"0", b"1", b"2", b"3"]


def test_who_came_first_is_served_first(qm: qmgr.QueueManager) -> None:
    calls = [waiter(qm, lambda: qm.get("A", wait=None).body) for _ in range(5)]
    for n, call in enumerate(calls):
        qm.put("A", b"%d" % n)
        assert call.outcome() == b"%d" % n


def test_waiters_in_units_of_work(qm: qmgr.QueueManager) -> None:
    def move() -> bytes:
        with qm.begin() as unit:
            message = unit.get("A", wait=None)
            unit.put("B", message.body)
            return message.body

    calls = [waiter(qm, move) for _ in range(3)]
    for n, call in enumerate(calls):
        qm.put("A", b"%d" % n)
        assert call.outcome() == b"%d" % n
    assert [m.body for m in qm.get_many("B", 9)] == [b"0", b"1", b"2"]


def test_a_waiter_for_an_id_takes_only_that(qm: qmgr.QueueManager) -> None:
    wanted = waiter(qm, lambda: qm.get("A", wait=None, correlation_id=b"mine").body)
    any_ = waiter(qm, lambda: qm.get("A", wait=None).body)
    qm.put("A", b"other", correlation_id=b"other")
    assert any_.outcome() == b"other"
    until(lambda: waiting(qm, "A") == 1)
    assert wanted.is_alive()
    qm.put("A", b"mine", correlation_id=b"mine")
    assert wanted.outcome() == b"mine"


def test_waiters_at_other_queues_sleep_on(qm: qmgr.QueueManager) -> None:
    call = waiter(qm, lambda: qm.get("A", wait=None).body)
    qm.put("B", b"x")
    qm.put("B", b"y")
    assert waiting(qm, "A") == 1
    qm.put("A", b"z")
    assert call.outcome() == b"z"


def test_get_many_waits_for_the_first_only(qm: qmgr.QueueManager) -> None:
    call = waiter(qm, lambda: qm.get_many("A", 10, wait=None))
    qm.put("A", b"x")
    assert [m.body for m in call.outcome()] == [b"x"]


def test_a_waiter_that_gives_up_leaves_no_place(qm: qmgr.QueueManager) -> None:
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A", wait=0.01)
    assert waiting(qm, "A") == 0
    call = waiter(qm, lambda: qm.get("A", wait=None).body)
    qm.put("A", b"x")
    assert call.outcome() == b"x"


def test_inhibiting_gets_ends_waits_with_2016(qm: qmgr.QueueManager) -> None:
    calls = [waiter(qm, lambda: qm.get("A", wait=None)) for _ in range(3)]
    qm.alter_queue("A", description="this does not matter")
    until(lambda: waiting(qm, "A") == 3)
    qm.alter_queue("A", get_enabled=False)
    for call in calls:
        with pytest.raises(qmgr.Inhibited) as caught:
            call.outcome()
        assert caught.value.reason == Reason.GET_INHIBITED


def test_deleting_the_queue_ends_waits_with_2052(qm: qmgr.QueueManager) -> None:
    calls = [waiter(qm, lambda: qm.get("A", wait=None)), waiter(qm, lambda: qm.begin().get("A", wait=60))]
    qm.delete_queue("A")
    for call in calls:
        with pytest.raises(qmgr.UnknownQueue) as caught:
            call.outcome()
        assert caught.value.reason == Reason.Q_DELETED


@pytest.mark.parametrize("mode", ["quiesce", "immediate"])
def test_the_end_ends_waits_with_2161_or_2162(qm: qmgr.QueueManager, mode: str) -> None:
    calls = [
        waiter(qm, lambda: qm.get("A", wait=None)),
        waiter(qm, lambda: qm.get("A", wait=600)),
        waiter(qm, lambda: qm.begin().get("A", wait=None)),
        waiter(qm, lambda: qm.get_many("A", 5, wait=None, message_id=b"x")),
    ]
    ending = Call(lambda: qm.end(mode))
    for call in calls:
        with pytest.raises(qmgr.Unavailable) as caught:
            call.outcome()
        allowed = (Reason.Q_MGR_STOPPING,) if mode == "immediate" else (Reason.Q_MGR_QUIESCING, Reason.Q_MGR_STOPPING)
        assert caught.value.reason in allowed
    ending.outcome()


def test_quiesce_waits_for_units_of_other_threads(qm: qmgr.QueueManager) -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        with qm.begin() as unit:
            unit.put("A", b"1")
            begun.set()
            go.wait()
            unit.put("A", b"2")

    worker = Call(work)
    begun.wait()
    ending = Call(lambda: qm.end("quiesce"))
    until(lambda: qm._engine.quiescing)
    with pytest.raises(qmgr.Unavailable) as caught:
        qm.begin()
    assert caught.value.reason == Reason.Q_MGR_QUIESCING
    assert ending.is_alive()
    go.set()
    worker.outcome()
    ending.outcome()


def test_quiesce_does_not_wait_for_units_that_nobody_will_end(qm: qmgr.QueueManager) -> None:
    Call(lambda: qm.begin().put("A", b"x")).outcome()  # its thread is gone
    qm.begin().put("A", b"y")  # this thread is the one that ends
    qm.end("quiesce")
    with pytest.raises(qmgr.Unavailable):
        qm.put("A", b"")


@pytest.mark.parametrize("who", ["the one with the unit", "another one"])
@pytest.mark.parametrize("mode", ["quiesce", "immediate"])
def test_a_second_end_while_a_quiesce_waits(qm: qmgr.QueueManager, who: str, mode: str) -> None:
    """At once, also where this thread has the unit of work that the other one waits for; or it waits too."""
    unit = qm.begin()
    unit.put("A", b"x")
    first = Call(qm.end)
    until(lambda: qm._engine.quiescing)
    if who == "another one":
        second = Call(lambda: qm.end(mode))
        if mode == "quiesce":
            time.sleep(0.05)
            assert first.is_alive() and second.is_alive()
            unit.commit()
        second.outcome()
    else:
        qm.end(mode)
    first.outcome()
    with pytest.raises(qmgr.MQError) as caught:
        unit.put("A", b"y")
    assert reason_of(caught.value) in (Reason.Q_MGR_STOPPING, Reason.BACKED_OUT)


@pytest.mark.interpreted
def test_a_quiesce_that_is_overruled_while_it_says_so(qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread ends it at once just where the first one has looked that nobody did."""
    unit = qm.begin()
    unit.put("A", b"x")
    engine, first = qm._engine, threading.Event()
    said: list[Reason | None] = []
    others: list[Call] = []

    class Engine(type(engine)):  # type: ignore[misc]
        @property
        def ending(self) -> Reason | None:
            return said[-1] if said else None

        @ending.setter
        def ending(self, reason: Reason) -> None:
            if not first.is_set():
                first.set()
                others.append(Call(lambda: qm.end("immediate")))
                until(lambda: Reason.Q_MGR_STOPPING in said)
            said.append(reason)

    del engine.ending
    engine.__class__ = Engine
    Call(qm.end).outcome()
    others[0].outcome()
    assert said[0] is Reason.Q_MGR_STOPPING


def test_a_signal_handler_overrules_the_quiesce_that_it_interrupts(qm: qmgr.QueueManager) -> None:
    """It is the same thread that ends it twice; the event says how it ended."""
    unit = qm.begin()
    unit.put("A", b"x")
    real_wait = qm._clock.wait

    def wait(event: threading.Event, seconds: float | None) -> bool:
        if threading.current_thread() is first:
            qm.end("immediate")
        return real_wait(event, seconds)

    told: list[str] = []
    qm._clock.wait = wait  # type: ignore[method-assign]
    qm._engine.events.not_active = told.append  # type: ignore[method-assign]
    ready = threading.Event()

    def ends() -> None:
        ready.wait()
        qm.end()

    first = Call(ends)
    ready.set()
    first.outcome()
    assert told == ["immediate"]


def test_quiesce_does_not_take_another_thread_for_one_that_is_gone(qm: qmgr.QueueManager) -> None:
    """The system gives the number of a thread to the next one, which here lasts, as threads of the log do."""
    gone = Call(lambda: qm.begin().put("A", b"x"))
    gone.outcome()
    go = threading.Event()
    others = []
    while len(others) < 100 and gone.ident not in [other.ident for other in others]:
        others.append(Call(go.wait))
    try:
        Call(lambda: qm.end("quiesce")).outcome(20)
    finally:
        go.set()


def test_immediate_backs_out_units_of_other_threads(real: Real) -> None:
    qm = real()
    qm.define_queue("A")
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        with qm.begin() as unit:
            unit.put("A", b"1")
            begun.set()
            go.wait()

    worker = Call(work)
    begun.wait()
    qm.end("immediate")
    go.set()
    with pytest.raises(qmgr.MQError) as caught:
        worker.outcome()
    assert reason_of(caught.value) in (Reason.Q_MGR_STOPPING, Reason.BACKED_OUT)
    assert real().queue("A").depth == 0


@pytest.mark.parametrize("how", ["backout", "commit", "prepare"])
@pytest.mark.parametrize("wanted", [{}, {"correlation_id": b"none"}], ids=["any", "selective"])
def test_a_wait_in_a_unit_that_another_thread_ends(qm: qmgr.QueueManager, how: str, wanted: dict[str, Any]) -> None:
    """It ends too, and takes no wake-up from the next in line."""
    unit = qm.begin(qmgr.Xid(1, b"g", b"b"))
    unit.put("B", b"")
    first = waiter(qm, lambda: unit.get("A", wait=None, **wanted))
    second = waiter(qm, lambda: qm.get("A", wait=None).body)
    getattr(unit, how)()
    with pytest.raises(qmgr.MQError) as caught:
        first.outcome()
    assert reason_of(caught.value) == Reason.UOW_NOT_AVAILABLE
    until(lambda: waiting(qm, "A") == 1)
    qm.put("A", b"x")
    assert second.outcome() == b"x"


def test_a_wait_in_a_unit_that_is_rolled_back_for_the_log(qm: qmgr.QueueManager) -> None:
    unit = qm.begin()
    unit.put("B", b"")
    first = waiter(qm, lambda: unit.get("A", wait=None))
    while not first.raised:
        assert qm.put("B", bytes(2000)) and qm.get("B")
    with pytest.raises(qmgr.BackedOut):
        first.outcome()
    assert waiting(qm, "A") == 0


def test_a_unit_keeps_nothing_of_a_wait_at_a_queue_that_was_deleted(qm: qmgr.QueueManager) -> None:
    unit, event = qm.begin(), threading.Event()
    name = qm._engine.add_waiter("A", event, unit._unit, ANY)
    assert unit._unit.waiting == (event,)
    qm.delete_queue("A")
    qm._engine.remove_waiter(name, event, unit._unit)
    assert unit._unit.waiting == ()


def test_a_unit_that_waits_again_and_again_keeps_nothing_of_that(qm: qmgr.QueueManager) -> None:
    with qm.begin() as unit:
        for _ in range(3):
            with pytest.raises(qmgr.NoMessageAvailable):
                unit.get("A", wait=0.001)
            call = waiter(qm, lambda: unit.get("A", wait=None))
            qm.put("A", b"x")
            assert call.outcome().body == b"x"
        assert unit._unit.waiting == ()


def test_a_wait_that_is_interrupted_passes_its_turn_on(qm: qmgr.QueueManager) -> None:
    """Row 65: KeyboardInterrupt during a wait leaves nothing behind."""

    class Interrupted(Exception):
        pass

    real_wait = qm._clock.wait

    def wait(event: threading.Event, seconds: float | None) -> bool:
        if threading.current_thread() is threading.main_thread():
            until(event.is_set)  # the message has come: interrupted just then
            raise Interrupted
        return real_wait(event, seconds)

    qm._engine.clock.wait = wait  # type: ignore[method-assign]

    def get_behind() -> bytes:
        until(lambda: waiting(qm, "A") == 1)
        return qm.get("A", wait=None).body

    def put_after_both() -> None:
        until(lambda: waiting(qm, "A") == 2)
        qm.put("A", b"x")

    behind, putter = Call(get_behind), Call(put_after_both)
    with pytest.raises(Interrupted):
        qm.get("A", wait=None)
    putter.outcome()
    assert behind.outcome() == b"x"


def test_a_failed_log_ends_waits(qm: qmgr.QueueManager) -> None:
    call = waiter(qm, lambda: qm.get("A", wait=None))
    qm._fail(OSError(5, "the disk is gone"))
    with pytest.raises(qmgr.Unavailable, match="the disk is gone"):
        call.outcome()


def test_a_queue_manager_that_is_let_go_of_ends_waits(qm: qmgr.QueueManager) -> None:
    calls = [waiter(qm, lambda: qm.get("A", wait=None)), waiter(qm, lambda: qm.begin().get("A", wait=None))]
    qm.abandon()
    for call in calls:
        with pytest.raises(qmgr.Unavailable):
            call.outcome(20)


@pytest.mark.interpreted
def test_a_log_that_fails_while_a_get_is_about_to_wait_ends_that_too(qm: qmgr.QueueManager) -> None:
    """Who fails need not have the lock: he wakes those who stand in line, and nobody wakes who comes behind that."""
    look = qm._engine.check_not_ending

    def fails_just_then() -> None:
        look()
        Call(lambda: qm._fail(OSError(5, "the disk is gone"))).outcome()

    qm._engine.check_not_ending = fails_just_then  # type: ignore[method-assign]
    with pytest.raises(qmgr.Unavailable, match="the disk is gone"):
        Call(lambda: qm.get("A", wait=None)).outcome(20)


@pytest.mark.parametrize("background", [True, False])
def test_who_waits_hears_of_a_stop_that_had_no_memory_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """Without a thread of its own there is no tick in which it would be tried again: the end tells them."""
    qmgr.create("QM1", data_path=tmp_path, log_file_pages=64)
    qm = qmgr.start("QM1", data_path=tmp_path, background=background)
    qm.define_queue("A")
    call = waiter(qm, lambda: qm.get("A", wait=None))

    def no_memory(waiters: Waiters) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Waiters, "wake_all", no_memory)
        qm._fail(MemoryError())
    if not background:
        assert call.is_alive()
        qm.end()
    with pytest.raises(qmgr.Unavailable, match="has stopped"):
        call.outcome(20)
    qm.end()


def test_who_comes_while_all_are_woken_is_woken_too() -> None:
    waiters = Waiters()

    class First(threading.Event):
        def set(self) -> None:
            waiters.add(second)
            super().set()

    first, second = First(), threading.Event()
    waiters.add(first)
    waiters.wake_all()
    assert first.is_set()
    assert second.is_set()


# ---- the clock jumps


@pytest.mark.parametrize("jump", [-1e9, -3600, 3600, 1e9])
def test_row_68_a_wait_is_measured_by_elapsed_time(world: World, jump: float) -> None:
    real_wait = world.clock.wait

    def wait(event: threading.Event, seconds: float | None) -> bool:
        world.clock.jump_wall(jump)
        return real_wait(event, seconds)

    world.clock.wait = wait  # type: ignore[method-assign]
    with pytest.raises(qmgr.NoMessageAvailable):
        world.qm.get("A", wait=5)
    assert world.clock.waited == [5.0]


@pytest.mark.parametrize("jump", [-1e8, -3600, 3600, 1e8])
def test_row_68_expiry_ignores_jumps_while_running(world: World, jump: float) -> None:
    world.qm.put("A", b"x", expiry=100)
    world.clock.jump_wall(jump)
    assert [m.body for m in world.qm.browse("A")] == [b"x"]
    world.qm.put("A", b"y", expiry=100)
    world.clock.advance(90)
    assert [m.body for m in world.qm.browse("A")] == [b"x", b"y"]
    assert world.qm.get("A").expiry == pytest.approx(10, abs=1)
    world.clock.advance(11)
    assert list(world.qm.browse("A")) == []


@pytest.mark.parametrize("crash", [True, False])
def test_row_68_a_clock_set_back_over_a_restart_lengthens_nothing_for_ever(world: World, crash: bool) -> None:
    world.qm.put("A", b"x", expiry=100)
    world.clock.advance(50)
    world.qm.checkpoint()
    world.clock.jump_wall(-1e6)
    world.crash() if crash else world.restart()
    message = next(world.qm.browse("A"))
    assert message.expiry is not None
    assert message.expiry <= 100
    world.clock.advance(101)
    assert list(world.qm.browse("A")) == []


def test_row_68_a_clock_set_forth_while_running_lets_nothing_expire_early_after_a_crash(world: World) -> None:
    world.qm.put("A", b"x", expiry=3600)
    world.qm.checkpoint()
    world.clock.advance(600)
    world.clock.jump_wall(86400)
    world.qm.put("A", b"y", expiry=3600)
    world.clock.advance(600)
    left = [message.expiry for message in world.crash().browse("A")]
    assert left == [pytest.approx(2400, abs=1), pytest.approx(3000, abs=1)]


@pytest.mark.parametrize("crash", [True, False])
def test_row_68_a_jump_forward_that_is_mended_before_the_restart_expires_nothing(world: World, crash: bool) -> None:
    world.qm.put("A", b"x", expiry=3600)
    world.clock.jump_wall(1e7)
    world.qm.checkpoint()
    world.clock.jump_wall(-1e7)
    world.crash() if crash else world.restart()
    assert [m.body for m in world.qm.browse("A")] == [b"x"]


@pytest.mark.parametrize("crash", [True, False])
def test_row_68_what_was_put_after_a_jump_forward_lives_on_over_a_restart(world: World, crash: bool) -> None:
    """As after a machine was suspended, or got the right time late."""
    world.clock.jump_wall(1e7)
    world.qm.put("A", b"x", expiry=3600)
    world.qm.checkpoint()
    world.clock.advance(1000)
    world.crash() if crash else world.restart()
    assert next(world.qm.browse("A")).expiry == pytest.approx(2600, abs=1)
    world.clock.advance(2601)
    assert list(world.qm.browse("A")) == []


def test_row_68_ids_are_unique_and_order_is_kept_when_the_clock_runs_backwards(world: World) -> None:
    seen = set()
    for n in range(6):
        seen.add(world.qm.put("A", b"%d" % n).message_id)
        world.clock.jump_wall(-86400)
        world.restart()
    assert len(seen) == 6
    assert [m.body for m in world.qm.browse("A")] == [b"%d" % n for n in range(6)]


def test_row_68_checkpoints_and_sweeps_go_by_elapsed_time(world: World) -> None:
    for _ in range(200):
        world.qm.put("A", b"", expiry=10)
    before = world.qm.status().checkpoints
    world.clock.jump_wall(1e7)
    for _ in range(3):
        world.qm.put("B", b"")
    assert world.qm.status().checkpoints == before + 1  # where the clock was set, for the next start to know
    assert world.qm.queue("A").depth == 200
    world.clock.jump_wall(-2e7)
    world.clock.advance(1801)
    world.qm.put("B", b"")
    assert world.qm.status().checkpoints == before + 2
    assert world.qm.queue("A").depth == 0


def test_a_unit_of_work_wakes_as_many_as_it_has_put_messages(qm: qmgr.QueueManager) -> None:
    calls = [waiter(qm, lambda: qm.get("A", wait=120).body) for _ in range(3)]
    with qm.begin() as unit:
        for body in (b"1", b"2", b"3"):
            unit.put("A", body)
    assert sorted(call.outcome() for call in calls) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Wanted(message_id=b"1".ljust(24, b"\0")), {"message_id": b"1"}),
        (Wanted(correlation_id=b"1".ljust(24, b"\0")), {"correlation_id": b"1"}),
        (Wanted(group_id=b"1".ljust(24, b"\0")), {"group_id": b"1"}),
    ],
)
def test_who_waits_for_a_certain_message_is_woken_by_no_other(
    qm: qmgr.QueueManager, wanted: Wanted, ids: dict[str, Any]
) -> None:
    event = threading.Event()
    qm._engine.add_waiter("A", event, None, wanted)
    qm.put("A", b"")
    qm.put("A", b"", **dict.fromkeys(ids, b"2"))
    assert not event.is_set()
    qm.put("A", b"", **ids)
    assert event.is_set()
