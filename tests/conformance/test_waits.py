"""Waits and threads over every face: who is woken, by what; what ends a wait; many threads on one connection."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import Reason
from tests.conformance.calls import DEADLINE, bodies, drain, refused, until
from tests.conformance.faces import Face
from tests.conformance.test_units import new_xid
from tests.qmgr.world import Call

Manager = qmgr.QueueManager


class Waiters:
    """Calls that wait at one queue, each in a thread of its own."""

    def __init__(self, face: Face, queue: str) -> None:
        self._face = face
        self._queue = queue
        self.calls: list[Call] = []

    def add(self, call: Callable[[], Any]) -> Call:
        """Make a call; return when it waits, as far as that can be seen."""
        self.calls.append(Call(call))
        self._face.stand_in_line(self._queue, len(self.calls))
        return self.calls[-1]


def waiter(face: Face, queue: str, call: Callable[[], Any]) -> Call:
    return Waiters(face, queue).add(call)


def test_a_wait_ends_with_2033_when_its_time_is_over(qm: Manager, queue: str) -> None:
    with refused(qmgr.NoMessageAvailable, Reason.NO_MSG_AVAILABLE, queue):
        qm.get(queue, wait=0.02)
    assert qm.get_many(queue, 5, wait=0.02) == []
    with qm.begin() as unit:
        with refused(qmgr.NoMessageAvailable, Reason.NO_MSG_AVAILABLE, queue):
            unit.get(queue, wait=0.02, correlation_id=b"none")
        assert unit.get_many(queue, 5, wait=0.02) == []


@pytest.mark.parametrize("how", ["commit", "backout"])
def test_a_wait_in_a_unit_ends_with_it(face: Face, how: str) -> None:
    queue = face.queue()
    unit = face.qm.begin()
    unit.put(face.queue(), b"")
    call = waiter(face, queue, lambda: unit.get(queue, wait=None))
    getattr(unit, how)()
    with pytest.raises(qmgr.MQError) as caught:
        call.outcome()
    assert caught.value.reason == Reason.UOW_NOT_AVAILABLE


@pytest.mark.parametrize("wait", [0, 0.0, None, 1e300, 5], ids=repr)
def test_a_message_that_is_there_is_taken_at_once(qm: Manager, queue: str, wait: float | None) -> None:
    qm.put_many(queue, [b"x", b"y"])
    assert qm.get(queue, wait=wait).body == b"x"
    assert [m.body for m in qm.get_many(queue, 5, wait=wait)] == [b"y"]


@pytest.mark.parametrize("wait", [None, 600.0, 1e12], ids=repr)
def test_a_put_wakes(face: Face, wait: float | None) -> None:
    queue = face.queue()
    for persistent in (True, False):
        call = waiter(face, queue, lambda: face.qm.get(queue, wait=wait).body)
        face.qm.put(queue, b"x", persistent=persistent)
        assert call.outcome() == b"x"


def test_a_commit_wakes_and_not_the_put_before_it(face: Face) -> None:
    queue = face.queue()
    call = waiter(face, queue, lambda: face.qm.get(queue, wait=None).body)
    with face.qm.begin() as unit:
        unit.put(queue, b"x")
        face.qm.status()
        assert call.is_alive()
    assert call.outcome() == b"x"


def test_a_backout_wakes(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    qm.put(queue, b"x")
    unit = qm.begin()
    unit.get(queue)
    call = waiter(face, queue, lambda: qm.get(queue, wait=None))
    unit.backout()
    got = call.outcome()
    assert (got.body, got.backout_count) == (b"x", 1)


def test_a_resolution_wakes(face: Face) -> None:
    qm, queue, xid = face.qm, face.queue(), new_xid()
    unit = qm.begin(xid)
    unit.put(queue, b"x")
    unit.prepare()
    call = waiter(face, queue, lambda: qm.get_many(queue, 3, wait=None))
    qm.resolve(xid, commit=True)
    assert [m.body for m in call.outcome()] == [b"x"]


def test_put_many_wakes_as_many_as_it_brings(face: Face) -> None:
    queue = face.queue()
    waiters = Waiters(face, queue)
    for _ in range(4):
        waiters.add(lambda: face.qm.get(queue, wait=None).body)
    face.qm.put_many(queue, [b"0", b"1", b"2"])
    until(lambda: sum(call.is_alive() for call in waiters.calls) == 1)
    face.qm.put(queue, b"3")
    assert sorted(call.outcome() for call in waiters.calls) == [b"0", b"1", b"2", b"3"]


IDS: list[dict[str, Any]] = [
    {"message_id": b"m"},
    {"correlation_id": b"c"},
    {"group_id": b"g"},
    {"message_id": b"m2", "correlation_id": b"c2"},
]


@pytest.mark.parametrize("how", ["put", "put_many", "commit"])
def test_each_message_wakes_who_waits_for_it(face: Face, how: str) -> None:
    """And nobody else for good: those who wait for others are still there when theirs comes."""
    qm, queue = face.qm, face.queue()
    waiters = Waiters(face, queue)
    for ids in IDS:
        waiters.add(lambda ids=ids: qm.get(queue, wait=None, **ids).body)
    for n in reversed(range(len(IDS))):
        body, ids = b"%d" % n, IDS[n]
        if how == "put":
            qm.put(queue, body, **ids)
        elif how == "put_many":
            qm.put_many(queue, [body], **ids)
        else:
            with qm.begin() as unit:
                unit.put(queue, body, **ids)
                unit.put(queue, b"for nobody")
        assert waiters.calls[n].outcome() == body
        assert sum(call.is_alive() for call in waiters.calls) == n


def test_waiters_in_units_of_work(face: Face) -> None:
    qm, source, target = face.qm, face.queue(), face.queue()

    def move() -> bytes:
        with qm.begin() as unit:
            message = unit.get(source, wait=None)
            unit.put(target, message.body)
            return message.body

    waiters = Waiters(face, source)
    for _ in range(3):
        waiters.add(move)
    for n in range(3):
        qm.put(source, b"%d" % n)
    assert sorted(call.outcome() for call in waiters.calls) == [b"0", b"1", b"2"]
    assert sorted(drain(qm, target)) == [b"0", b"1", b"2"]


def test_a_waiter_for_an_id_takes_only_that(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    wanted = waiter(face, queue, lambda: qm.get(queue, wait=None, correlation_id=b"mine").body)
    qm.put(queue, b"other", correlation_id=b"other")
    assert qm.get(queue, wait=None).body == b"other"
    assert wanted.is_alive()
    qm.put(queue, b"mine", correlation_id=b"mine")
    assert wanted.outcome() == b"mine"


def test_a_wait_holds_up_nobody_else(face: Face) -> None:
    """One thread waits; all others go on over the same connection, whatever they call."""
    qm, queue, other = face.qm, face.queue(), face.queue()
    unit = qm.begin()
    unit.put(other, b"0")
    waiters = Waiters(face, queue)
    for call in (lambda: qm.get(queue, wait=None), lambda: unit.get(queue, wait=None)):
        waiters.add(call)
    qm.put_many(other, [b"%d" % n for n in range(1, 50)])
    assert len(bodies(qm, other)) == 49
    with qm.begin() as mine:
        assert mine.get(other).body == b"1"
    qm.checkpoint()
    assert all(call.is_alive() for call in waiters.calls)
    qm.put_many(queue, [b"x", b"y"])
    assert sorted(call.outcome().body for call in waiters.calls) == [b"x", b"y"]
    unit.commit()
    assert len(drain(qm, other)) == 49


def test_twenty_waits_at_once_on_one_connection(face: Face) -> None:
    qm = face.qm
    queues = [face.queue() for _ in range(20)]
    calls = [Call(lambda queue=queue: qm.get(queue, wait=None).body) for queue in queues]  # type: ignore[misc]
    for queue in queues:
        qm.put(queue, queue.encode())
    assert [call.outcome() for call in calls] == [queue.encode() for queue in queues]


# ---- what ends a wait


def test_disabling_gets_ends_waits_2016(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    waiters = Waiters(face, queue)
    for call in (lambda: qm.get(queue, wait=None), lambda: qm.begin().get(queue, wait=600)):
        waiters.add(call)
    qm.alter_queue(queue, description="this does not matter")
    assert all(call.is_alive() for call in waiters.calls)
    qm.alter_queue(queue, get_enabled=False)
    for made in waiters.calls:
        with refused(qmgr.Inhibited, Reason.GET_INHIBITED, queue):
            made.outcome()


def test_deleting_the_queue_ends_waits_2052(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    waiters = Waiters(face, queue)
    for call in (lambda: qm.get(queue, wait=None), lambda: qm.get_many(queue, 3, wait=600)):
        waiters.add(call)
    if any(not call.is_alive() for call in waiters.calls):
        raise AssertionError("it does not wait")
    qm.delete_queue(queue)
    for made in waiters.calls:
        with pytest.raises(qmgr.UnknownQueue) as caught:
            made.outcome()
        assert caught.value.reason is Reason.Q_DELETED
        assert caught.value.name == queue


def test_ending_the_unit_of_work_ends_its_wait_2255(face: Face) -> None:
    qm, queue, other = face.qm, face.queue(), face.queue()
    unit = qm.begin()
    unit.put(other, b"")
    call = waiter(face, queue, lambda: unit.get(queue, wait=None))
    unit.backout()
    qm.put(queue, b"x")
    with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE):
        call.outcome()
    assert qm.get(queue).body == b"x"


@pytest.mark.parametrize("mode", ["quiesce", "immediate"])
def test_the_end_ends_waits_2161_or_2162(face: Face, mode: str) -> None:
    queue = face.queue()
    waiters = Waiters(face, queue)
    for call in (
        lambda: face.qm.get(queue, wait=None),
        lambda: face.qm.get(queue, wait=600),
        lambda: face.qm.get_many(queue, 5, wait=None, message_id=b"x"),
    ):
        waiters.add(call)
    face.qm.end(mode)
    for made in waiters.calls:
        with pytest.raises(qmgr.Unavailable) as caught:
            made.outcome(DEADLINE)
        assert caught.value.reason in (Reason.Q_MGR_QUIESCING, Reason.Q_MGR_STOPPING)
    face.ended()
    face.open()
    face.qm.put(queue, b"again")
    assert drain(face.qm, queue) == [b"again"]


# ---- many threads


def test_threads_share_a_connection_and_lose_nothing(face: Face) -> None:
    """Three put, two move in units of work of which some are backed out, one looks."""
    qm, source, target = face.qm, face.queue(), face.queue()
    each, producers = 25, 3
    total = each * producers
    moved = threading.Event()
    count = threading.Semaphore(0)

    def produce(p: int) -> None:
        for n in range(each):
            if n % 3:
                qm.put(source, b"%d.%d" % (p, n), persistent=n % 5 != 0)
            else:
                with qm.begin() as unit:
                    unit.put(source, b"%d.%d" % (p, n))

    def move(mover: int) -> None:
        turn = 0
        while not moved.is_set():
            turn += 1
            unit = qm.begin()
            found = unit.get_many(source, 4, wait=0.02)
            for message in found:
                unit.put(target, message.body)
            if turn % 4 == mover:
                unit.backout()
                continue
            unit.commit()
            if found:
                count.release(len(found))

    def look() -> None:
        while not moved.is_set():
            found = bodies(qm, target)
            assert len(set(found)) == len(found)
            qm.queues()

    calls = [Call(lambda p=p: produce(p)) for p in range(producers)]  # type: ignore[misc]
    calls += [Call(lambda m=m: move(m)) for m in range(2)]  # type: ignore[misc]
    calls.append(Call(look))
    for _ in range(total):
        assert count.acquire(timeout=DEADLINE)
    moved.set()
    for call in calls:
        call.outcome(DEADLINE)
    assert sorted(drain(qm, target)) == sorted(b"%d.%d" % (p, n) for p in range(producers) for n in range(each))
    assert drain(qm, source) == []


def test_one_queue_name_goes_to_one_definer_and_one_xid_to_one_unit(face: Face) -> None:
    qm, xid, name = face.qm, new_xid(), face.queue()
    qm.delete_queue(name)

    def won(call: Callable[[], Any], kind: type[qmgr.MQError]) -> bool:
        try:
            call()
        except kind:
            return False
        return True

    defining = [Call(lambda: won(lambda: qm.define_queue(name), qmgr.AlreadyExists)) for _ in range(5)]
    beginning = [Call(lambda: won(lambda: qm.begin(xid), qmgr.Mistake)) for _ in range(5)]
    assert sorted(call.outcome() for call in defining) == [False] * 4 + [True]
    assert sorted(call.outcome() for call in beginning) == [False] * 4 + [True]
