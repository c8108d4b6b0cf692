"""Units of work over every face: all or nothing, who sees what, how they end, late calls, and two-phase commit."""

from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import Reason, UowState, Xid
from tests.conformance.calls import bodies, drain, refused, until
from tests.conformance.faces import Face, numbers

Manager = qmgr.QueueManager
OPTIONS = {"max_uncommitted": 50}


def new_xid() -> Xid:
    return Xid(1, b"global %d" % next(numbers), b"branch")


def depths(qm: Manager, *queues: str) -> list[tuple[int, int]]:
    """(depth, uncommitted) of each."""
    infos = [qm.queue(queue) for queue in queues]
    return [(info.depth, info.uncommitted) for info in infos]


def test_a_with_block_commits(face: Face) -> None:
    qm, source, target = face.qm, face.queue(), face.queue()
    qm.put(source, b"in")
    with qm.begin() as unit:
        order = unit.get(source)
        unit.put(target, b"out of " + order.body)
        states = [unit.state]
        assert depths(qm, source, target) == [(0, 1), (1, 1)]
    states.append(unit.state)
    assert states == [UowState.ACTIVE, UowState.COMMITTED]
    assert depths(qm, source, target) == [(0, 0), (1, 0)]
    assert bodies(qm, target) == [b"out of in"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_in_the_block_backs_out_and_goes_on(face: Face, error: type[BaseException]) -> None:
    qm, source, target = face.qm, face.queue(), face.queue()
    qm.put(source, b"x")
    with pytest.raises(error, match="mine"), qm.begin() as unit:
        unit.get(source)
        unit.put(target, b"y")
        raise error("mine")
    assert unit.state is UowState.BACKED_OUT
    assert (bodies(qm, source), bodies(qm, target)) == ([b"x"], [])


def test_an_error_of_a_call_leaves_the_unit_as_it_was(face: Face) -> None:
    qm, queue, empty = face.qm, face.queue(), face.queue()
    with qm.begin() as unit:
        wrong: list[Callable[[], Any]] = [
            lambda: unit.put("NO", b""),
            lambda: unit.get(empty),
            lambda: unit.put(queue, b"", priority=10),
        ]
        for call in wrong:  # also as the first call of all
            with pytest.raises(qmgr.MQError):
                call()
        unit.put(queue, b"1")
        for call in wrong:
            with pytest.raises(qmgr.MQError):
                call()
        unit.put(queue, b"2")
        assert unit.state is UowState.ACTIVE
    assert bodies(qm, queue) == [b"1", b"2"]


def test_the_block_may_end_the_unit_itself(qm: Manager, queue: str) -> None:
    with qm.begin() as unit:
        unit.put(queue, b"1")
        unit.commit()
    with qm.begin() as unit:
        unit.put(queue, b"2")
        unit.backout()
    assert unit.state is UowState.BACKED_OUT
    assert bodies(qm, queue) == [b"1"]


def test_an_empty_unit_ends_without_a_trace(qm: Manager) -> None:
    before = qm.status()
    with qm.begin() as unit:
        pass
    assert unit.state is UowState.COMMITTED
    unit = qm.begin()
    unit.backout()
    assert unit.state is UowState.BACKED_OUT
    after = qm.status()
    assert (after.log.tail, after.units_of_work) == (before.log.tail, before.units_of_work)


def test_units_of_which_no_call_was_ever_right_cost_nothing(face: Face) -> None:
    """More than one client may have at a time."""
    qm = face.qm
    for _ in range(1050):
        unit = qm.begin()
        with pytest.raises(qmgr.Mistake):
            unit.put("no name", b"", priority=-1)
        unit.backout()
    assert qm.transactions() == []


def test_ids_are_numbers_and_never_the_same(qm: Manager, queue: str) -> None:
    seen = set()
    for _ in range(3):
        with qm.begin() as unit:
            unit.put(queue, b"")
            assert [info.number for info in qm.transactions()] == [unit.id]
            assert type(unit.id) is int
            assert unit.xid is None
            seen.add(unit.id)
    assert len(seen) == 3


def test_uncommitted_work_is_seen_by_nobody(qm: Manager, queue: str) -> None:
    qm.put(queue, b"there")
    with qm.begin() as unit, qm.begin() as other:
        unit.put(queue, b"new")
        assert unit.get(queue).body == b"there"
        for getter in (qm, unit, other):
            with pytest.raises(qmgr.NoMessageAvailable):
                getter.get(queue)  # not even the unit sees its own puts before they are committed
    assert drain(qm, queue) == [b"new"]


def test_backout_returns_messages_to_their_places_and_counts(qm: Manager, queue: str) -> None:
    for n in range(5):
        qm.put(queue, b"%d" % n, persistent=n % 2 == 0)
    unit, other = qm.begin(), qm.begin()
    assert [m.body for m in unit.get_many(queue, 3)] == [b"0", b"1", b"2"]
    assert other.get(queue).body == b"3"
    unit.backout()
    assert [(m.body, m.backout_count) for m in qm.browse(queue)] == [(b"0", 1), (b"1", 1), (b"2", 1), (b"4", 0)]
    other.backout()
    expected = [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1), (b"4", 0)]
    assert [(m.body, m.backout_count) for m in qm.browse(queue)] == expected
    assert [(m.body, m.backout_count) for m in qm.get_many(queue, 9)] == expected


@pytest.mark.parametrize("end", ["commit", "backout"])
@pytest.mark.parametrize("empty", [True, False], ids=["nothing done", "a put"])
def test_calls_after_the_end_are_2255(qm: Manager, queue: str, end: str, empty: bool) -> None:
    qm.put(queue, b"")
    unit = qm.begin(new_xid())
    if not empty:
        unit.put(queue, b"")
    getattr(unit, end)()
    calls: list[Callable[[], Any]] = [
        lambda: unit.put(queue, b""),
        lambda: unit.put_many(queue, [b""]),
        lambda: unit.get(queue),
        lambda: unit.get(queue, wait=None),
        lambda: unit.get_many(queue, 1),
        unit.prepare,
        unit.commit,
        unit.backout,
    ]
    for call in calls:
        with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE, match=r"committed|backed out"):
            call()
    assert depths(qm, queue) == [(1 if empty or end == "backout" else 2, 0)]


def test_the_number_of_messages_in_a_unit_is_limited_2024(qm: Manager, queue: str) -> None:
    """Row 77."""
    qm.put_many(queue, [b"x"] * 60)  # outside a unit of work there is no limit
    with qm.begin() as unit:
        unit.put_many(queue, [b"1"] * 40, persistent=False)
        unit.get(queue)
        with refused(qmgr.SyncpointLimit, Reason.SYNCPOINT_LIMIT_REACHED):
            unit.put_many(queue, [b""] * 10)
        assert len(unit.get_many(queue, 20)) == 9  # as many as it may still have
        for call in (
            lambda: unit.put(queue, b""),
            lambda: unit.get(queue),
            lambda: unit.get_many(queue, 20),
            lambda: unit.put_many(queue, [b""]),
        ):
            with refused(qmgr.SyncpointLimit, Reason.SYNCPOINT_LIMIT_REACHED, match="at most 50"):
                call()
    assert depths(qm, queue) == [(90, 0)]


def test_one_unit_over_many_queues_is_one(face: Face) -> None:
    names = [face.queue() for _ in range(8)]
    for end in ("backout", "commit"):
        unit = face.qm.begin()
        for name in names:
            unit.put(name, name.encode())
        assert all(bodies(face.qm, name) == [] for name in names)
        getattr(unit, end)()
    assert all(bodies(face.qm, name) == [name.encode()] for name in names)


def test_transactions_tell_what_is_going_on(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    qm.put(queue, b"")
    xid = new_xid()
    with qm.begin(xid) as unit:
        unit.put(queue, b"", persistent=False)
        unit.get(queue)
        qm.put(queue, b"a record of somebody else")
        (info,) = qm.transactions()
        assert type(info) is qmgr.TransactionInfo
        assert type(info.state) is UowState
        assert (info.number, info.state, info.xid, info.puts, info.gets) == (unit.id, UowState.ACTIVE, xid, 1, 1)
        assert info.first_lsn > 0
        assert info.log_started >= info.started > 0
        assert isinstance(info.owner, str)
    assert qm.transactions() == []


def fill(qm: Manager, queue: str, done: Callable[[], bool]) -> None:
    """Log so much that the log needs its head to move."""
    for _ in range(300):
        if done():
            return
        qm.put(queue, bytes(20_000))
        qm.get(queue)
    raise AssertionError("it does not happen")


def test_a_consumer_that_goes_on_hears_that_its_unit_was_rolled_back_2003(face: Face) -> None:
    qm, queue, other = face.qm, face.queue(), face.queue()
    qm.put(queue, b"taken")
    taken = []
    with refused(qmgr.BackedOut, Reason.BACKED_OUT, match="rolled back"):
        for message, unit in qm.consume(queue, wait=0.0):
            assert not taken, "it went on as if that had been committed"
            taken.append(message.backout_count)
            unit.put(other, b"given")
            fill(qm, other, lambda: not qm.transactions())
    assert (taken, [m.backout_count for m in qm.browse(queue)]) == ([0], [1])
    assert b"given" not in bodies(qm, other)
    with refused(qmgr.BackedOut, Reason.BACKED_OUT, match="rolled back"), qm.consume(queue) as messages:
        next(messages)
        fill(qm, other, lambda: not qm.transactions())
    assert [m.backout_count for m in qm.browse(queue)] == [2]


def test_a_consumer_goes_on_when_its_application_has_heard_that(face: Face) -> None:
    qm, queue, other = face.qm, face.queue(), face.queue()
    qm.put(queue, b"taken")
    counts = []
    for message, unit in qm.consume(queue, wait=0.0):
        counts.append(message.backout_count)
        if len(counts) == 1:
            fill(qm, other, lambda: not qm.transactions())
            with refused(qmgr.BackedOut, Reason.BACKED_OUT, match="rolled back"):
                unit.commit()
    assert counts == [0, 1]
    assert bodies(qm, queue) == []


def test_a_unit_that_holds_the_log_is_rolled_back_2003(face: Face) -> None:
    qm, queue, other = face.qm, face.queue(), face.queue()
    qm.put(queue, b"taken")
    unit = qm.begin()
    unit.get(queue)
    unit.put(other, b"given")
    fill(qm, other, lambda: not qm.transactions())
    for call in (lambda: unit.put(queue, b""), lambda: unit.get(queue), lambda: unit.get_many(queue, 1), unit.commit):
        with refused(qmgr.BackedOut, Reason.BACKED_OUT, match="rolled back"):
            call()
    assert unit.state is UowState.BACKED_OUT
    unit.backout()  # which is what the application should do, succeeds
    with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE):
        unit.put(queue, b"")
    assert [(m.body, m.backout_count) for m in qm.browse(queue)] == [(b"taken", 1)]
    assert bodies(qm, other) == []


def test_a_with_block_says_that_it_was_rolled_back_2003(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    with refused(qmgr.BackedOut, Reason.BACKED_OUT), qm.begin() as unit:
        unit.put(queue, b"x")
        fill(qm, queue, lambda: not qm.transactions())
    with pytest.raises(ValueError, match="mine"), qm.begin() as unit:
        unit.put(queue, b"x")
        fill(qm, queue, lambda: not qm.transactions())
        raise ValueError("mine")
    with refused(qmgr.BackedOut, Reason.BACKED_OUT), qm.begin() as unit:
        unit.put(queue, b"x")
        fill(qm, queue, lambda: not qm.transactions())
        unit.put(queue, b"y")
    assert bodies(qm, queue) == []
    with qm.begin() as unit:
        unit.put(queue, b"as if nothing had been")
    assert bodies(qm, queue) == [b"as if nothing had been"]


# ---- two-phase commit


def prepared(face: Face, xid: Xid) -> tuple[qmgr.UnitOfWork, str, str]:
    """A unit of work in doubt, and its queues: one get from the first, one put to the second."""
    source, target = face.queue(), face.queue()
    face.qm.put(source, b"taken")
    unit = face.qm.begin(xid)
    unit.get(source)
    unit.put(target, b"given")
    unit.prepare()
    return unit, source, target


@pytest.mark.parametrize("again", ["live", "restart", "crash"])
def test_what_is_in_doubt_is_held_until_it_is_resolved(face: Face, again: str) -> None:
    kept, dropped = new_xid(), new_xid()
    unit, *kept_queues = prepared(face, kept)
    assert (unit.state, unit.xid) == (UowState.PREPARED, kept)
    with pytest.raises(qmgr.UnitOfWorkEnded, match="is prepared; commit it or back it out"):
        unit.put(kept_queues[1], b"late")
    _, *dropped_queues = prepared(face, dropped)
    if again == "restart":
        face.restart()
    elif again == "crash":
        face.crash()
    qm = face.qm
    assert qm.in_doubt() == [kept, dropped]
    assert all(type(xid) is Xid for xid in qm.in_doubt())
    assert qm.status().in_doubt == 2
    assert [info.state for info in qm.transactions()] == [UowState.PREPARED] * 2
    for name in (*kept_queues, *dropped_queues):
        assert bodies(qm, name) == []
        with pytest.raises(qmgr.NoMessageAvailable):
            qm.get(name)
        with refused(qmgr.ObjectInUse, Reason.OBJECT_IN_USE, name):
            qm.delete_queue(name, purge=True)
    qm.resolve(kept, commit=True)
    qm.resolve(dropped, False)
    for _ in range(2):
        assert qm.in_doubt() == []
        assert [bodies(qm, name) for name in kept_queues] == [[], [b"given"]]
        assert [bodies(qm, name) for name in dropped_queues] == [[b"taken"], []]
        assert next(iter(qm.browse(dropped_queues[0]))).backout_count == 1
        for xid in (kept, dropped):
            with refused(qmgr.Mistake, Reason.UOW_NOT_AVAILABLE):
                qm.resolve(xid, commit=True)
        if again == "crash":
            face.crash()
            qm = face.qm


@pytest.mark.parametrize("end", ["commit", "backout"])
def test_the_unit_that_prepared_can_end_itself(face: Face, end: str) -> None:
    unit, source, target = prepared(face, new_xid())
    with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE, match="prepared"):
        unit.put(target, b"more")
    with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE, match="prepared"):
        unit.prepare()
    getattr(unit, end)()
    assert face.qm.in_doubt() == []
    assert depths(face.qm, source, target) == ([(0, 0), (1, 0)] if end == "commit" else [(1, 0), (0, 0)])


def test_a_with_block_leaves_a_prepared_unit_in_doubt(qm: Manager, queue: str) -> None:
    xid, other = new_xid(), new_xid()
    with qm.begin(xid) as unit:
        unit.put(queue, b"1")
        unit.prepare()
    with pytest.raises(ValueError, match="mine"), qm.begin(other) as unit:
        unit.put(queue, b"2")
        unit.prepare()
        raise ValueError("mine")
    assert qm.in_doubt() == [xid, other]
    for one in (xid, other):
        qm.resolve(one, commit=True)
    assert bodies(qm, queue) == [b"1", b"2"]


def test_a_unit_without_an_xid_can_not_be_prepared_2072(qm: Manager, queue: str) -> None:
    with qm.begin() as unit:
        unit.put(queue, b"x")
        with refused(qmgr.Mistake, Reason.SYNCPOINT_NOT_AVAILABLE, match="Xid"):
            unit.prepare()
        assert unit.state is UowState.ACTIVE
    with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE):
        unit.prepare()
    assert bodies(qm, queue) == [b"x"]


def test_a_second_unit_of_the_same_xid_is_2128(face: Face) -> None:
    qm, xid = face.qm, new_xid()
    same = Xid(xid.format_id, xid.gtrid, xid.bqual)
    unit = qm.begin(xid)
    with refused(qmgr.Mistake, Reason.UOW_IN_PROGRESS):
        qm.begin(same)
    qm.begin(Xid(2, xid.gtrid, xid.bqual)).backout()
    unit.put(face.queue(), b"")
    unit.prepare()
    with refused(qmgr.Mistake, Reason.UOW_IN_PROGRESS):
        qm.begin(same)
    unit.commit()
    qm.begin(same).backout()  # the name is free again


def test_an_active_unit_is_not_resolved_from_outside_2255(qm: Manager, queue: str) -> None:
    xid = new_xid()
    with qm.begin(xid) as unit:
        unit.put(queue, b"x")
        with refused(qmgr.Mistake, Reason.UOW_NOT_AVAILABLE, match="in doubt"):
            qm.resolve(xid, commit=True)
    assert bodies(qm, queue) == [b"x"]


@pytest.mark.parametrize("wrong", ["xid", 5, b"global", (1, b"a", b"b")], ids=repr)
def test_something_else_than_an_xid_is_2046(qm: Manager, wrong: Any) -> None:
    for call in (lambda: qm.begin(wrong), lambda: qm.resolve(wrong, commit=True)):
        with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match=r"Xid|xid"):
            call()


@pytest.mark.parametrize("wrong", ["commit", 1, None], ids=repr)
def test_resolve_wants_a_plain_yes_or_no(qm: Manager, wrong: Any) -> None:
    with refused(qmgr.Mistake, Reason.OPTIONS_ERROR):
        qm.resolve(new_xid(), commit=wrong)


def test_an_open_unit_goes_with_a_crash(face: Face) -> None:
    queue = face.queue()
    face.qm.put(queue, b"x")
    unit = face.qm.begin()
    unit.get(queue)
    unit.put(queue, b"y")
    face.qm.put(queue, b"forces the records of the unit too")
    face.crash()
    found = [(m.body, m.backout_count) for m in face.qm.browse(queue)]
    assert found == [(b"x", 1), (b"forces the records of the unit too", 0)]
    with pytest.raises(qmgr.MQError):
        unit.commit()
    until(lambda: face.qm.transactions() == [])


# ---- puts that nobody waits for


def test_what_is_sent_is_put_in_order_with_all_else(face: Face) -> None:
    qm, queue, other = face.qm, face.queue(), face.queue()
    with qm.begin() as unit:
        for number in range(30):
            unit.send(queue, b"%d" % number)
        unit.put(queue, b"put")
        unit.send(other, b"elsewhere", priority=7, correlation_id=b"c" * 24)
        unit.send(queue, b"sent")
        unit.put_many(queue, [b"many", b"more"])
        unit.send(queue, b"last")
        assert bodies(qm, queue) == []
    assert unit.state is UowState.COMMITTED
    assert bodies(qm, queue) == [*(b"%d" % number for number in range(30)), b"put", b"sent", b"many", b"more", b"last"]
    message = qm.get(other)
    assert (message.body, message.priority, message.correlation_id) == (b"elsewhere", 7, b"c" * 24)


def test_what_is_sent_is_backed_out_with_the_unit(qm: Manager, queue: str) -> None:
    unit = qm.begin()
    for number in range(40):
        unit.send(queue, bytes(1000 + number))
    unit.backout()
    assert unit.state is UowState.BACKED_OUT
    with pytest.raises(ValueError, match="mine"), qm.begin() as unit:
        unit.send(queue, b"x")
        raise ValueError("mine")
    assert unit.state is UowState.BACKED_OUT
    assert depths(qm, queue) == [(0, 0)]


ENDS: dict[str, Callable[[Any, str], Any]] = {
    "commit": lambda unit, queue: unit.commit(),
    "put": lambda unit, queue: unit.put(queue, b"late"),
    "put_many": lambda unit, queue: unit.put_many(queue, [b"late"]),
    "get": lambda unit, queue: unit.get(queue),
    "get_many": lambda unit, queue: unit.get_many(queue, 1),
}


@pytest.mark.parametrize("size", [1, 9000])
@pytest.mark.parametrize("end", ENDS)
def test_a_send_that_is_refused_backs_out_the_unit(face: Face, end: str, size: int) -> None:
    """It is told at once or by the next call that waits for an answer; nothing of the unit is there afterwards."""
    qm, source, target = face.qm, face.queue(), face.queue(max_depth=2)
    qm.put(source, b"in")
    unit = qm.begin()
    assert unit.get(source).body == b"in"
    with refused(qmgr.QueueFull, Reason.Q_FULL, name=target):
        for _ in range(4):
            unit.send(target, bytes(size))
        ENDS[end](unit, target)
    assert unit.state is UowState.BACKED_OUT
    for call in (unit.commit, unit.backout, lambda: unit.send(target, b"y"), lambda: unit.put(target, b"y")):
        with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE):
            call()
    assert depths(qm, source, target) == [(1, 0), (0, 0)]


def test_a_block_does_not_commit_what_was_not_put(face: Face) -> None:
    qm, queue = face.qm, face.queue(max_depth=2)
    with pytest.raises(qmgr.QueueFull), qm.begin() as unit:
        for _ in range(3):
            unit.send(queue, b"x")
    assert unit.state is UowState.BACKED_OUT
    assert depths(qm, queue) == [(0, 0)]


@pytest.mark.parametrize("wrong", [("NO QUEUE", b""), ("NO.QUEUE", b""), ("", "text"), ("", b"x" * 65)])
def test_whatever_is_wrong_with_a_send_backs_out(face: Face, wrong: tuple[str, Any]) -> None:
    qm, queue = face.qm, face.queue(max_message_length=64)
    name, body = wrong
    unit = qm.begin()
    unit.put(queue, b"good")
    with pytest.raises(qmgr.MQError):
        unit.send(name or queue, body)
        unit.commit()
    assert unit.state is UowState.BACKED_OUT
    assert depths(qm, queue) == [(0, 0)]


def test_a_unit_that_grows_too_large_by_sends_is_told(qm: Manager, queue: str) -> None:
    with pytest.raises(qmgr.MQError) as caught, qm.begin() as unit:
        for _ in range(OPTIONS["max_uncommitted"] + 1):
            unit.send(queue, b"x")
    assert caught.value.reason == Reason.SYNCPOINT_LIMIT_REACHED
    assert (unit.state, depths(qm, queue)) == (UowState.BACKED_OUT, [(0, 0)])


def test_a_prepared_unit_takes_no_sends_and_keeps_what_it_has(qm: Manager, queue: str) -> None:
    with qm.begin(new_xid()) as unit:
        unit.send(queue, b"1")
        unit.send(queue, b"2")
        unit.prepare()
        assert unit.state is UowState.PREPARED
        with pytest.raises(qmgr.UnitOfWorkEnded):
            unit.send(queue, b"3")
        unit.commit()
    assert bodies(qm, queue) == [b"1", b"2"]


def test_large_messages_are_sent_too(qm: Manager, queue: str) -> None:
    sent = [bytes([number]) * (number * 3000) for number in range(12)]
    with qm.begin() as unit:
        for body in sent:
            unit.send(queue, body)
    assert bodies(qm, queue) == sent
