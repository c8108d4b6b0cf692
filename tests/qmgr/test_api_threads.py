"""Many threads: nothing lost, nothing doubled, the order of each producer kept, with checkpoints beside them."""

import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
from logger.errors import LogDamaged, LogFailed
from tests.qmgr.world import Call, World, bodies

Real = Callable[..., qmgr.QueueManager]
PRODUCERS, EACH = 4, 150


def sent() -> list[bytes]:
    return [b"%d.%d" % (p, n) for p in range(PRODUCERS) for n in range(EACH)]


def in_order_of_each(found: list[bytes]) -> bool:
    """Do the messages of every producer come in the order in which it put them?"""
    last: dict[bytes, int] = {}
    for body in found:
        producer, n = body.split(b".")
        if int(n) <= last.get(producer, -1):
            return False
        last[producer] = int(n)
    return True


@pytest.mark.parametrize("sync", ["always", "os"])
def test_eight_threads_move_messages_and_lose_none(real: Real, sync: str) -> None:
    """Four put to A, two move A to B in units of work that they sometimes back out, one checkpoints, one looks."""
    qm = real(log_sync=sync)
    for name in ("A", "B"):
        qm.define_queue(name)
    total = PRODUCERS * EACH
    stop = threading.Event()
    moving = threading.Lock()  # the movers take turns, so that the order on B is that on A
    beside = threading.Barrier(4)  # the two that move begin when the other two are at work

    def produce(p: int) -> None:
        for n in range(EACH):
            if n % 3:
                qm.put("A", b"%d.%d" % (p, n), persistent=n % 5 != 0)
            else:
                with qm.begin() as unit:
                    unit.put("A", b"%d.%d" % (p, n))

    def move(seed: int) -> int:
        rng = random.Random(seed)
        turns = 0
        beside.wait()
        while not stop.is_set():
            turns += 1
            with moving, contextlib.suppress(ZeroDivisionError), qm.begin() as unit:
                for message in unit.get_many("A", rng.randint(1, 10), wait=0.005):
                    unit.put("B", message.body, correlation_id=message.message_id)
                if rng.random() < 0.2:
                    raise ZeroDivisionError
            if qm.queue("B").depth - qm.queue("B").uncommitted >= total:
                stop.set()
        return turns

    def look() -> int:
        looks = 0
        beside.wait()
        while not (looks and stop.is_set()):
            assert in_order_of_each(bodies(qm, "B"))
            assert len(bodies(qm, "A")) <= total
            qm.status()
            qm.queues()
            looks += 1
        return looks

    def checkpoint() -> int:
        count = 0
        beside.wait()
        while not (count and stop.is_set()):
            qm.checkpoint()
            count += 1
        return count

    calls = [Call(lambda p=p: produce(p)) for p in range(PRODUCERS)]  # type: ignore[misc]
    calls += [Call(lambda s=s: move(s)) for s in range(2)]  # type: ignore[misc]
    calls += [Call(look), Call(checkpoint)]
    results = [call.outcome() for call in calls]
    assert min(results[-4:]) > 0
    found = bodies(qm, "B")
    assert sorted(found) == sorted(sent())
    assert in_order_of_each(found)
    assert len({m.correlation_id for m in qm.browse("B")}) == total
    assert (qm.queue("A").depth, qm.queue("A").uncommitted, qm.status().units_of_work) == (0, 0, 0)
    persistent = [m.body for m in qm.browse("B") if m.persistent]
    qm.end()
    again = real()
    assert bodies(again, "B") == persistent


def test_competing_consumers_get_each_message_once(real: Real) -> None:
    qm = real()
    qm.define_queue("A")

    def consume(transactional: bool) -> list[bytes]:
        found: list[bytes] = []
        while True:
            if transactional:
                with qm.begin() as unit:
                    body = unit.get("A", wait=None).body
            else:
                body = qm.get("A", wait=None).body
            if body == b"stop":
                return found
            found.append(body)

    consumers = [Call(lambda n=n: consume(n % 2 == 0)) for n in range(6)]  # type: ignore[misc]
    for producer in [Call(lambda p=p: [qm.put("A", b"%d.%d" % (p, n)) for n in range(EACH)]) for p in range(2)]:  # type: ignore[misc]
        producer.outcome()
    qm.put_many("A", [b"stop"] * 6)
    found = [call.outcome() for call in consumers]
    assert sorted(body for some in found for body in some) == sorted(
        b"%d.%d" % (p, n) for p in range(2) for n in range(EACH)
    )
    assert all(in_order_of_each(some) for some in found)


def test_group_commit_shares_syncs(real: Real) -> None:
    """Commits of many threads that arrive during one sync go out with the next: fewer writes than commits."""
    qm = real()
    qm.define_queue("A")
    before = qm.status().log.writes.writes
    calls = [Call(lambda: [qm.put("A", b"x") for _ in range(100)]) for _ in range(8)]
    for call in calls:
        call.outcome()
    assert qm.queue("A").depth == 800
    assert 0 < qm.status().log.writes.writes - before < 800


def test_threads_defining_and_deleting(real: Real) -> None:
    qm = real()

    def churn(t: int) -> None:
        for n in range(15):
            name = f"Q{t}.{n}"
            qm.define_queue(name)
            qm.put(name, b"x")
            if n % 2:
                qm.delete_queue(name, purge=True)
            else:
                qm.alter_queue(name, max_depth=n)

    for call in [Call(lambda t=t: churn(t)) for t in range(4)]:  # type: ignore[misc]
        call.outcome()
    expected = sorted(f"Q{t}.{n}" for t in range(4) for n in range(0, 15, 2))
    assert sorted(q.name for q in qm.queues()) == expected
    assert len({q.id for q in qm.queues()}) == len(expected)
    qm.end()
    again = real()
    assert sorted(q.name for q in again.queues()) == expected
    assert all(bodies(again, name) == [b"x"] for name in expected)


def test_one_queue_name_goes_to_one_definer(real: Real) -> None:
    qm = real()

    def define() -> bool:
        try:
            qm.define_queue("Q")
        except qmgr.AlreadyExists:
            return False
        return True

    calls = [Call(define) for _ in range(6)]
    assert sorted(call.outcome() for call in calls) == [False] * 5 + [True]


def test_one_xid_goes_to_one_unit(real: Real) -> None:
    qm = real()
    xid = qmgr.Xid(1, b"g", b"")

    def begin() -> bool:
        try:
            qm.begin(xid)
        except qmgr.Mistake:
            return False
        return True

    calls = [Call(begin) for _ in range(6)]
    assert sorted(call.outcome() for call in calls) == [False] * 5 + [True]


def test_large_messages_of_several_threads(real: Real) -> None:
    """Records larger than the log buffer, between small ones."""
    qm = real()
    qm.define_queue("A")

    def work(t: int) -> None:
        for n in range(12):
            body = b"%d.%d" % (t, n) + bytes(50_000 if n % 3 == 0 else 10)
            with qm.begin() as unit:
                unit.put("A", body)
            found = qm.get_many("A", 1)
            assert len(found) <= 1
            for message in found:
                assert message.body.rstrip(b"\0").count(b".") == 1

    for call in [Call(lambda t=t: work(t)) for t in range(4)]:  # type: ignore[misc]
        call.outcome()
    assert qm.status().units_of_work == 0
    assert len(qm.get_many("A", 100)) + qm.queue("A").depth <= 48
    assert qm.queue("A").depth == 0


def test_ending_while_threads_work(real: Real) -> None:
    """end() from one thread: the others hear of it, what they were told is there, and two may end at once."""
    qm = real()
    qm.define_queue("A")
    done: list[list[bytes]] = [[] for _ in range(4)]
    started = threading.Barrier(5)

    def work(t: int) -> None:
        n = 0
        started.wait()
        while True:
            try:
                with qm.begin() as unit:
                    unit.put("A", b"%d.%d" % (t, n))
            except qmgr.Unavailable:
                return
            done[t].append(b"%d.%d" % (t, n))
            n += 1

    calls = [Call(lambda t=t: work(t)) for t in range(4)]  # type: ignore[misc]
    started.wait()
    while not all(done):
        time.sleep(0.001)
    ends = [Call(qm.end) for _ in range(2)]
    for call in (*ends, *calls):
        call.outcome()
    found = bodies(real(), "A")
    assert sorted(found) == sorted(body for some in done for body in some)


def test_housekeeping_that_fails_says_so_and_goes_on(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    qm = real()
    due, again = qm._checkpointer.due, threading.Event()
    failures = iter([ValueError("an odd one")])

    def fails() -> bool:
        for failure in failures:
            raise failure
        again.set()
        return due()

    monkeypatch.setattr(qm._checkpointer, "due", fails)
    assert again.wait(60)
    log = tmp_path / "qmgrs" / qm.name / "errors" / "AMQERR01.LOG"
    assert "housekeeping failed, and is tried again (ValueError: an odd one)" in log.read_text()


def test_housekeeping_that_fails_with_the_log_stops_the_queue_manager(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    qm = real()
    told = threading.Event()
    qm.on_failure = told.set

    def fails() -> bool:
        qm._log.stop(LogFailed("pages were taken and are nowhere"))
        raise MemoryError

    monkeypatch.setattr(qm._checkpointer, "due", fails)
    assert told.wait(60)
    assert not qm.healthy
    assert repr(qm) == f"<QueueManager {qm.name!r}, ended>"


@pytest.mark.interpreted
def test_who_waits_hears_of_a_log_that_failed_in_a_call_that_was_interrupted(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That call raises the interrupt alone."""
    qm = real()
    qm.define_queue("A")
    qm.define_queue("B")
    waits = Call(lambda: qm.get("B", wait=None))
    told = threading.Event()
    qm.on_failure = told.set

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(qm._log, "_plan", interrupted)
    with pytest.raises(KeyboardInterrupt):
        qm.put("A", bytes(20_000))
    with pytest.raises(qmgr.Unavailable):
        waits.outcome()
    assert told.wait(60)
    assert not qm.healthy


@pytest.mark.interpreted
def test_a_checkpoint_is_taken_where_no_extent_can_be_made_ahead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_the_way(has_room: Callable[[], bool]) -> int:
        raise LogDamaged("log extent S0000007.LOG is in the way of the next one")

    monkeypatch.setattr(world.qm._log, "make_primaries", in_the_way)
    before = world.qm.status().checkpoints
    world.qm.checkpoint()
    assert world.qm.status().checkpoints == before + 1
    assert "S0000007.LOG is in the way" in world.errors()
