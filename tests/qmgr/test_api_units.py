"""Units of work: all or nothing, who sees what, how they end, and two-phase commit."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import Reason, UowState, Xid
from tests.qmgr.world import World, bodies, drain, reason_of
from tests.sim.loss import LOSE_ALL

XID = Xid(1, b"global", b"branch")


def test_a_with_block_commits(world: World) -> None:
    world.qm.put("A", b"in")
    with world.qm.begin() as unit:
        order = unit.get("A")
        unit.put("B", b"out of " + order.body)
        states = [unit.state]
    states.append(unit.state)
    assert states == [UowState.ACTIVE, UowState.COMMITTED]
    world.crash(LOSE_ALL)
    assert world.depths() == {"A": 0, "B": 1}
    assert bodies(world.qm, "B") == [b"out of in"]


RUNS: list[tuple[str, dict[str, Any]]] = [
    *[("A", {})] * 3,
    ("A", {"persistent": False}),
    ("A", {}),
    ("B", {}),
    ("A", {"priority": 3}),
    *[("A", {})] * 2,
    ("A", {"expiry": 1000.0}),
    ("B", {"persistent": False, "priority": 9}),
    *[("A", {"expiry": 1000.0})] * 2,
    ("A", {"priority": 3, "correlation_id": b"c"}),
]


@pytest.mark.parametrize("size", [10, 3000, 9000])
@pytest.mark.parametrize("end", ["commit", "prepare", "logged between"])
def test_puts_of_all_kinds_to_two_queues_have_the_same_places_after_a_crash(size: int, end: str) -> None:
    """Those that follow each other are one run of the record, and the others runs of their own."""
    world = World(log_file_pages=256, log_buffer_pages=64)
    for name in ("A", "B"):
        world.qm.define_queue(name)
        world.qm.put_many(name, [b"got", b"stays"])
    unit = world.qm.begin(XID if end == "prepare" else None)
    for number, (name, options) in enumerate(RUNS):
        unit.put(name, b"%03d" % number + bytes(size), **options)
        if number % 4 == 2:
            unit.put_many(name, [b"%03d%d" % (number, one) + bytes(size) for one in range(3)], **options)
        if number == 6:
            assert (unit.get("A").body, unit.get("B").body) == (b"got", b"got")
        if end == "logged between" and number in (1, 5):
            world.qm.put("B", b"of another, %d" % number)
    if end == "prepare":
        unit.prepare()
        if size == 10:
            world.crash(LOSE_ALL)
            world.qm.resolve(XID, True)
        else:
            unit.commit()
    else:
        unit.commit()

    def persistent() -> dict[str, list[Any]]:
        shown = {name: list(world.qm.browse(name)) for name in ("A", "B")}
        return {name: [(m.body, m.priority, m.correlation_id) for m in shown[name] if m.persistent] for name in shown}

    live = persistent()
    there_before, by_put_many = 1, 6
    put = [name for name, options in RUNS if name == "A" and "persistent" not in options]
    assert len(live["A"]) == there_before + len(put) + by_put_many
    world.crash(LOSE_ALL)
    assert persistent() == live


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_in_the_block_backs_out_and_goes_on(qm: qmgr.QueueManager, error: type[BaseException]) -> None:
    qm.put("A", b"x")
    with pytest.raises(error, match="mine"), qm.begin() as unit:
        unit.get("A")
        unit.put("B", b"y")
        raise error("mine")
    assert unit.state is UowState.BACKED_OUT
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([b"x"], [])


def test_an_error_of_a_call_leaves_the_unit_as_it_was(qm: qmgr.QueueManager) -> None:
    with qm.begin() as unit:
        unit.put("A", b"1")
        calls: list[Callable[[], Any]] = [
            lambda: unit.put("NO", b""),
            lambda: unit.get("B"),
            lambda: unit.put("A", b"", priority=10),
        ]
        for wrong in calls:
            with pytest.raises(qmgr.MQError):
                wrong()
        unit.put("A", b"2")
    assert bodies(qm, "A") == [b"1", b"2"]


def test_the_block_may_end_the_unit_itself(qm: qmgr.QueueManager) -> None:
    with qm.begin() as unit:
        unit.put("A", b"1")
        unit.commit()
    with qm.begin() as unit:
        unit.put("A", b"2")
        unit.backout()
    assert bodies(qm, "A") == [b"1"]


def test_an_empty_unit_ends_without_a_trace(world: World) -> None:
    tail = world.qm.status().log.tail
    with world.qm.begin():
        pass
    world.qm.begin().backout()
    assert world.qm.status().log.tail == tail
    assert world.qm.status().units_of_work == 0


def test_uncommitted_work_is_seen_by_nobody_and_counted(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"there")
    unit = qm.begin()
    unit.put("A", b"new")
    assert unit.get("A").body == b"there"
    for getter in (qm, unit, qm.begin()):
        with pytest.raises(qmgr.NoMessageAvailable):
            getter.get("A")  # not even the unit sees its own puts before they are committed
    info = qm.queue("A")
    assert (info.depth, info.uncommitted) == (1, 2)  # CURDEPTH counts the put, and the get no more
    unit.commit()
    info = qm.queue("A")
    assert (info.depth, info.uncommitted) == (1, 0)
    assert drain(qm, "A") == [b"new"]


def test_backout_returns_messages_to_their_places_and_counts(world: World) -> None:
    qm = world.qm
    for n in range(5):
        qm.put("A", b"%d" % n)
    unit = qm.begin()
    assert [m.body for m in unit.get_many("A", 3)] == [b"0", b"1", b"2"]
    other = qm.begin()
    assert other.get("A").body == b"3"
    unit.backout()
    assert [(m.body, m.backout_count) for m in qm.browse("A")] == [(b"0", 1), (b"1", 1), (b"2", 1), (b"4", 0)]
    other.backout()
    expected = [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 1), (b"4", 0)]
    assert [(m.body, m.backout_count) for m in qm.browse("A")] == expected
    world.restart()
    assert [(m.body, m.backout_count) for m in world.qm.browse("A")] == expected
    world.crash()
    assert [(m.body, m.backout_count) for m in world.qm.browse("A")] == expected


def test_each_backout_counts(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"poison")
    for expected in range(100):
        unit = qm.begin()
        assert unit.get("A").backout_count == expected
        unit.backout()
    assert qm.get("A").backout_count == 100


@pytest.mark.parametrize("end", ["commit", "backout"])
def test_use_after_the_end_is_2255(qm: qmgr.QueueManager, end: str) -> None:
    qm.put("A", b"")
    unit = qm.begin()
    unit.put("A", b"")
    getattr(unit, end)()
    calls: list[Callable[[], Any]] = [
        lambda: unit.put("A", b""),
        lambda: unit.put_many("A", [b""]),
        lambda: unit.get("A"),
        lambda: unit.get_many("A", 1),
        unit.commit,
        unit.backout,
    ]
    for call in calls:
        with pytest.raises(qmgr.UnitOfWorkEnded, match=r"committed|backed out") as caught:
            call()
        assert caught.value.reason == Reason.UOW_NOT_AVAILABLE
    assert qm.status().units_of_work == 0
    assert qm.queue("A").uncommitted == 0


def test_the_number_of_messages_in_a_unit_is_limited_2024() -> None:
    world = World(max_uncommitted=5)
    qm = world.qm
    qm.define_queue("A")
    qm.put_many("A", [b"x"] * 10)  # outside a unit of work there is no limit
    with qm.begin() as unit:
        unit.put("A", b"1", persistent=False)
        unit.get("A")
        with pytest.raises(qmgr.SyncpointLimit):
            unit.put_many("A", [b""] * 4)
        unit.put_many("A", [b""] * 3)
        calls: list[Callable[[], Any]] = [
            lambda: unit.put("A", b""),
            lambda: unit.get("A"),
            lambda: unit.put("A", b"", persistent=False),
        ]
        for call in calls:
            with pytest.raises(qmgr.SyncpointLimit) as caught:
                call()
            assert caught.value.reason == Reason.SYNCPOINT_LIMIT_REACHED
    assert qm.queue("A").depth == 13


def test_one_unit_over_many_queues_is_one(world: World) -> None:
    names = [f"Q{n}" for n in range(30)]
    for name in names:
        world.qm.define_queue(name)
    unit = world.qm.begin()
    for name in names:
        unit.put(name, name.encode())
    world.crash()
    assert set(world.depths().values()) == {0}
    with world.qm.begin() as unit:
        for name in names:
            unit.put(name, name.encode())
    world.crash(LOSE_ALL)
    assert all(bodies(world.qm, name) == [name.encode()] for name in names)


def test_units_that_are_open_at_the_end_are_backed_out(world: World) -> None:
    qm = world.qm
    qm.put("A", b"x")
    unit = qm.begin()
    unit.get("A")
    unit.put("B", b"y")
    qm.end()
    for call in (unit.commit, unit.backout, lambda: unit.put("A", b"")):
        with pytest.raises(qmgr.Unavailable) as caught:
            call()
        assert caught.value.reason == Reason.Q_MGR_STOPPING
    world.start()
    assert world.depths() == {"A": 1, "B": 0}
    assert world.qm.get("A").backout_count == 1


def test_a_unit_that_a_crash_ended_is_backed_out_and_counted(world: World) -> None:
    world.qm.put("A", b"x")
    unit = world.qm.begin()
    unit.get("A")
    unit.put("B", b"y")
    world.qm.put("B", b"forces the records of the unit too")
    world.crash(LOSE_ALL)
    assert world.qm.restart_report.in_flight == 1
    assert world.qm.restart_report.resolved == 1
    assert world.qm.get("A").backout_count == 1
    assert world.depths() == {"A": 0, "B": 1}


def test_numbers_of_units_are_never_used_again(world: World) -> None:
    seen = set()
    for again in (world.restart, world.crash, world.crash):
        for _ in range(3):
            unit = world.qm.begin()
            seen.add(unit.id)
            unit.put("A", b"")
            unit.commit()
        again()
    assert len(seen) == 9


def test_transactions_tell_what_is_going_on(world: World) -> None:
    unit = world.qm.begin()
    (info,) = world.qm.transactions()
    assert (info.number, info.state, info.first_lsn, info.log_started) == (unit.id, UowState.ACTIVE, 0, 0)
    world.qm.put("A", b"")
    unit.put("A", b"", persistent=False)
    assert world.qm.transactions()[0].first_lsn == 0  # nothing is logged yet
    unit.get("A")
    (info,) = world.qm.transactions()
    assert (info.puts, info.gets, info.first_lsn) == (1, 1, 0)  # logged with its end, or before somebody else's record
    world.qm.put("B", b"")
    (info,) = world.qm.transactions()
    assert info.first_lsn > 0
    assert info.log_started >= info.started > 0
    unit.commit()
    assert world.qm.transactions() == []


# ---- non-persistent messages


def test_row_33_non_persistent_messages_are_gone_after_a_restart_and_never_logged(world: World) -> None:
    tail = world.qm.status().log.tail
    world.qm.put("A", b"n", persistent=False)
    with world.qm.begin() as unit:
        unit.put("A", b"n", persistent=False)
        unit.get("A")
    assert world.qm.status().log.tail == tail
    world.qm.put("A", b"p")
    assert bodies(world.qm, "A") == [b"n", b"p"]
    world.restart()
    assert bodies(world.qm, "A") == [b"p"]


def test_row_33_npmclass_high_survives_an_end_in_order_and_no_crash(world: World) -> None:
    world.qm.define_queue("H", non_persistent_class="HIGH")
    for n in range(6):
        world.qm.put("H", b"%d" % n, persistent=n % 2 == 0, priority=n % 3)
    order = bodies(world.qm, "H")
    assert len(order) == 6
    for _ in range(3):
        world.restart()
        assert bodies(world.qm, "H") == order
        assert [m.persistent for m in world.qm.browse("H")].count(False) == 3
    world.qm.checkpoint()
    world.crash()
    assert bodies(world.qm, "H") == [body for body in order if int(body) % 2 == 0]
    world.restart()
    assert bodies(world.qm, "H") == [body for body in order if int(body) % 2 == 0]


def test_row_33_what_an_end_in_order_has_kept_is_durable(world: World) -> None:
    """The machine may go down right after it."""
    world.qm.define_queue("H", non_persistent_class="HIGH")
    for body in (b"in a new file", b"appended to it"):
        world.qm.put("H", body, persistent=False)
        world.qm.end()
        world.crash(LOSE_ALL)
    assert bodies(world.qm, "H") == [b"in a new file", b"appended to it"]


def test_row_33_what_an_end_kept_is_gone_after_a_crash_also_where_the_start_could_take_no_checkpoint(
    world: World,
) -> None:
    """The last one is still that of the end then: what was got since would come back, and the others by halves."""
    world.qm.define_queue("H", non_persistent_class="HIGH")
    for n in range(3):
        world.qm.put("H", b"%d" % n, persistent=False)
    world.qm.end()
    world.disk.fail("create", errno.ENOSPC, once=False, where=lambda path: "amqalchk" in path)
    world.start()
    assert world.qm.get("H").body == b"0"
    world.qm.put("H", b"p")
    world.disk.heal()
    world.crash()
    assert bodies(world.qm, "H") == [b"p"]


def test_row_33_npmclass_high_keeps_what_was_locked_at_the_end(world: World) -> None:
    world.qm.define_queue("H", non_persistent_class="HIGH")
    world.qm.put("H", b"x", persistent=False)
    world.qm.begin().get("H")
    world.restart()
    assert bodies(world.qm, "H") == [b"x"]


def test_row_33_npmclass_high_keeps_nothing_that_a_unit_in_doubt_has_put_or_got(world: World) -> None:
    """Nothing of it is logged; what the unit has got would be got twice, were it there again and the unit committed."""
    world.qm.define_queue("H", non_persistent_class="HIGH", default_persistence=False)
    world.qm.put_many("H", [b"got", b"stays"])
    unit = world.qm.begin(XID)
    assert unit.get("H").body == b"got"
    unit.put("H", b"put")
    unit.put("A", b"p")
    unit.prepare()
    world.restart()
    assert bodies(world.qm, "H") == [b"stays"]
    world.qm.resolve(XID, True)
    assert (bodies(world.qm, "H"), bodies(world.qm, "A")) == ([b"stays"], [b"p"])


def test_a_unit_of_mixed_messages_backs_out_as_one(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"p")
    qm.put("A", b"n", persistent=False)
    unit = qm.begin()
    assert len(unit.get_many("A", 5)) == 2
    unit.put("B", b"p")
    unit.put("B", b"n", persistent=False)
    unit.backout()
    assert [(m.body, m.backout_count) for m in qm.browse("A")] == [(b"p", 1), (b"n", 1)]
    assert qm.queue("B").depth == 0


# ---- two-phase commit


def prepared(world: World, xid: Xid = XID) -> qmgr.UnitOfWork:
    """A unit of work in doubt: one get from A, one put to B."""
    world.qm.put("A", b"taken")
    unit = world.qm.begin(xid)
    unit.get("A")
    unit.put("B", b"given")
    unit.prepare()
    return unit


@pytest.mark.parametrize("again", ["live", "restart", "crash"])
@pytest.mark.parametrize("commit", [True, False])
def test_what_is_in_doubt_is_held_until_it_is_resolved(world: World, again: str, commit: bool) -> None:
    unit = prepared(world)
    assert unit.state is UowState.PREPARED
    for _ in range(3):
        if again == "restart":
            world.restart()
        elif again == "crash":
            world.crash(LOSE_ALL)
        assert world.qm.in_doubt() == [XID]
        assert world.qm.status().in_doubt == 1
        for name in ("A", "B"):
            assert bodies(world.qm, name) == []
            with pytest.raises(qmgr.NoMessageAvailable):
                world.qm.get(name)
    world.qm.resolve(XID, commit=commit)
    for _ in range(2):
        assert world.qm.in_doubt() == []
        assert world.depths() == ({"A": 0, "B": 1} if commit else {"A": 1, "B": 0})
        if not commit:
            assert next(world.qm.browse("A")).backout_count == 1
        world.crash(LOSE_ALL)
    with pytest.raises(qmgr.Mistake) as caught:
        world.qm.resolve(XID, commit=commit)
    assert caught.value.reason == Reason.UOW_NOT_AVAILABLE


@pytest.mark.parametrize("end", ["commit", "backout"])
def test_the_unit_that_prepared_can_end_itself(world: World, end: str) -> None:
    unit = prepared(world)
    getattr(unit, end)()
    assert world.qm.in_doubt() == []
    assert world.depths() == ({"A": 0, "B": 1} if end == "commit" else {"A": 1, "B": 0})


def test_a_prepared_unit_takes_no_more_work(world: World) -> None:
    unit = prepared(world)
    world.qm.put("A", b"more")
    for call in (lambda: unit.put("A", b""), lambda: unit.get("A"), unit.prepare):
        with pytest.raises(qmgr.UnitOfWorkEnded, match="prepared"):
            call()
    assert world.qm.in_doubt() == [XID]


def test_a_with_block_leaves_a_prepared_unit_in_doubt(world: World) -> None:
    with world.qm.begin(XID) as unit:
        unit.put("A", b"1")
        unit.prepare()
    other = Xid(1, b"other", b"")
    with pytest.raises(ValueError, match="mine"), world.qm.begin(other) as unit:
        unit.put("A", b"2")
        unit.prepare()
        raise ValueError("mine")
    assert world.qm.in_doubt() == [XID, other]


def test_a_unit_without_an_xid_can_not_be_prepared(qm: qmgr.QueueManager) -> None:
    with qm.begin() as unit:
        unit.put("A", b"x")
        with pytest.raises(qmgr.Mistake, match="Xid") as caught:
            unit.prepare()
        assert caught.value.reason == Reason.SYNCPOINT_NOT_AVAILABLE
    assert bodies(qm, "A") == [b"x"]


def test_one_phase_commit_of_a_unit_with_an_xid(world: World) -> None:
    with world.qm.begin(XID) as unit:
        unit.put("A", b"x")
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "A"), world.qm.in_doubt()) == ([b"x"], [])
    world.qm.begin(XID).backout()  # the name is free again


@pytest.mark.parametrize("where", ["active", "prepared", "after a crash"])
def test_a_second_unit_of_the_same_xid_is_2128(world: World, where: str) -> None:
    unit = world.qm.begin(XID)
    unit.put("A", b"x")
    if where != "active":
        unit.prepare()
    if where == "after a crash":
        world.crash(LOSE_ALL)
    with pytest.raises(qmgr.Mistake) as caught:
        world.qm.begin(Xid(1, b"global", b"branch"))
    assert caught.value.reason == Reason.UOW_IN_PROGRESS
    world.qm.begin(Xid(2, b"global", b"branch")).backout()
    world.qm.begin(Xid(1, b"global", b"")).backout()


def test_an_active_unit_is_not_resolved_from_outside(world: World) -> None:
    unit = world.qm.begin(XID)
    unit.put("A", b"x")
    with pytest.raises(qmgr.Mistake, match="in doubt"):
        world.qm.resolve(XID, commit=True)
    unit.commit()
    assert bodies(world.qm, "A") == [b"x"]


@pytest.mark.parametrize("wrong", ["xid", 5, b"global", (1, b"a", b"b")])
def test_something_else_than_an_xid_is_refused(qm: qmgr.QueueManager, wrong: Any) -> None:
    for call in (lambda: qm.begin(wrong), lambda: qm.resolve(wrong, commit=True)):
        with pytest.raises(qmgr.Mistake, match=r"Xid|xid"):
            call()


@pytest.mark.parametrize(
    "parts",
    [(2**31, b"g", b""), ("1", b"g", b""), (1, b"", b""), (1, b"g" * 65, b""), (1, b"g", b"b" * 65), (1, "g", b"")],
)
def test_a_wrong_xid_is_refused_when_it_is_made(parts: Any) -> None:
    with pytest.raises(ValueError, match="Xid"):
        Xid(*parts)


def test_resolve_wants_a_plain_yes_or_no(world: World) -> None:
    prepared(world)
    for wrong in ("commit", 1, None):
        with pytest.raises(qmgr.Mistake):
            world.qm.resolve(XID, commit=wrong)  # type: ignore[arg-type]
    assert world.qm.in_doubt() == [XID]


def test_row_27_in_doubt_over_twenty_restarts_and_many_laps_of_the_log(world: World) -> None:
    prepared(world)
    for round_ in range(20):
        for _ in range(4):
            world.qm.put_many("A", [bytes(1000)] * 50)
            world.qm.get_many("A", 50)
        if round_ % 3 == 0:
            world.qm.checkpoint()
        world.crash(LOSE_ALL) if round_ % 2 else world.restart()
        assert world.qm.in_doubt() == [XID]
    assert world.qm.status().log.tail > 5 * world.qm.status().log.capacity
    assert world.qm.queue("B").uncommitted == 1
    world.qm.resolve(XID, commit=True)
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "B"), world.qm.in_doubt()) == ([b"given"], [])
    assert world.qm.queue("A").depth == 0


def test_a_prepared_unit_over_a_queue_that_is_altered(world: World) -> None:
    prepared(world)
    world.qm.alter_queue("B", max_depth=0, put_enabled=False, delivery_sequence="FIFO")
    world.crash()
    world.qm.resolve(XID, commit=True)
    assert bodies(world.qm, "B") == [b"given"]


def test_a_queue_with_messages_in_doubt_can_not_be_deleted(world: World) -> None:
    prepared(world)
    for _ in range(2):
        for name in ("A", "B"):
            with pytest.raises(qmgr.ObjectInUse) as caught:
                world.qm.delete_queue(name, purge=True)
            assert reason_of(caught.value) == Reason.OBJECT_IN_USE
        world.crash()
    world.qm.resolve(XID, commit=True)
    world.qm.delete_queue("A")
    world.qm.delete_queue("B", purge=True)
    assert world.qm.queues() == []


def test_in_doubt_at_a_normal_end_does_not_hold_it_up(world: World) -> None:
    prepared(world)
    world.qm.end()
    world.start()
    assert world.qm.in_doubt() == [XID]
    assert world.qm.restart_report.in_doubt == 1
    assert not world.qm.restart_report.torn_tail


@pytest.mark.parametrize("number", ["x" * 10_000, 10**5000, None], ids=["text", "thousands of digits", "None"])
def test_what_can_be_no_number_of_a_unit_is_refused_in_a_sentence(qm: qmgr.QueueManager, number: Any) -> None:
    with pytest.raises(qmgr.Mistake, match="no unit of work has had the number") as caught:
        qm.outcome(number)
    assert len(str(caught.value)) < 500


def test_since_is_an_lsn(qm: qmgr.QueueManager) -> None:
    with qm.begin() as unit:
        unit.put("A", b"x")
    with pytest.raises(qmgr.Mistake, match=r"since is an LSN .* not '0:0:1:2'"):
        qm.outcome(unit.id, since="0:0:1:2")  # type: ignore[arg-type]
