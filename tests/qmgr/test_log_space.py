"""The log fills: what is rolled back or forward, who hears of it with which reason code, and that work goes on."""

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
from logger.lsn import text
from logger.whole_files import make_dirs
from qmgr import Reason, ResourceProblem, UowState, Xid
from qmgr.segment_writer import SegmentWriter
from tests.qmgr.world import NAME, World, bodies, ending
from tests.sim.loss import LOSE_ALL

XID = Xid(1, b"pins", b"the log")
BODY = bytes(1000)


def fill(world: World, until: Callable[[], bool]) -> int:
    """Put to and get from B until something happens; how many times."""
    for n in range(3000):
        if until():
            return n
        world.qm.put("B", BODY)
        world.qm.get("B")
    raise AssertionError("it never happens")


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    late = time.monotonic() + 60
    while not true():
        assert time.monotonic() < late
        time.sleep(0.001)


def calm_down(world: World) -> None:
    """Little work and some checkpoints: the demand for log space falls."""
    for _ in range(10):
        world.qm.put("B", b"")
        world.qm.get("B")
        world.qm.checkpoint()


def victim(world: World) -> qmgr.UnitOfWork:
    """A unit of work that held the log until the queue manager rolled it back."""
    world.qm.put("A", b"taken")
    unit = world.qm.begin()
    unit.get("A")
    unit.put("B", b"given")
    fill(world, lambda: unit.state is UowState.BACKED_OUT)
    return unit


def test_row_30_the_unit_that_holds_the_log_is_rolled_back(world: World) -> None:
    unit = victim(world)
    assert bodies(world.qm, "A") == [b"taken"]
    assert bodies(world.qm, "B") == []
    assert world.qm.status().units_of_work == 0
    assert next(world.qm.browse("A")).backout_count == 1
    for call in (lambda: unit.put("A", b""), lambda: unit.get("A"), lambda: unit.get_many("A", 1), unit.commit):
        with pytest.raises(qmgr.BackedOut, match="rolled back") as caught:
            call()
        assert caught.value.reason == Reason.BACKED_OUT
    unit.backout()  # which is what the application should do, succeeds
    with pytest.raises(qmgr.UnitOfWorkEnded):
        unit.put("A", b"")
    errors = world.errors()
    assert f"AMQ7469W: Transaction 0,{unit.id} was rolled back" in errors
    assert f"AMQ7486I: Transaction 0,{unit.id} was preventing" in errors


def test_row_30_nobody_is_rolled_back_before_four_fifths_of_the_log_are_used(world: World) -> None:
    used: list[int] = []
    unit = world.qm.begin()
    unit.put("A", b"holds the log")

    def over() -> bool:
        used.append(world.qm.status().log.used)
        return unit.state is UowState.BACKED_OUT

    fill(world, over)
    assert 0.78 < max(used) / world.qm.status().log.capacity < 0.82


def test_row_30_a_with_block_says_that_it_was_backed_out(world: World) -> None:
    with pytest.raises(qmgr.BackedOut), world.qm.begin() as unit:
        unit.put("A", b"x")
        fill(world, lambda: unit.state is UowState.BACKED_OUT)
    with pytest.raises(ValueError, match="mine"), world.qm.begin() as unit:
        unit.put("A", b"x")
        fill(world, lambda: unit.state is UowState.BACKED_OUT)
        raise ValueError("mine")
    assert bodies(world.qm, "A") == []


def test_row_30_younger_units_go_on(world: World) -> None:
    old = world.qm.begin()
    old.put("A", b"old")
    fill(world, lambda: world.qm.status().log.used > world.qm.status().log.capacity // 2)
    young = world.qm.begin()
    young.put("A", b"young")
    fill(world, lambda: old.state is UowState.BACKED_OUT)
    assert young.state is UowState.ACTIVE
    young.commit()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"young"]


def test_row_30_what_a_call_needs_is_not_given_back_meanwhile(world: World) -> None:
    """The checkpoint that makes room would let a secondary go that the call needs: younger units were rolled back for
    it, and the call refused, in a log that had room for all of them.
    """
    old = world.qm.begin()
    old.put("A", b"old" + bytes(100_000))
    fill(world, lambda: world.qm.status().log.used > 440_000)
    young = world.qm.begin()
    young.put("A", b"young")
    world.qm.put_many("B", [bytes(30_000)] * 12)
    assert (old.state, young.state) == (UowState.BACKED_OUT, UowState.ACTIVE)
    young.commit()
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "A"), len(bodies(world.qm, "B"))) == ([b"young"], 12)


def test_row_30_who_is_rolled_back_for_his_own_call_hears_of_that(world: World) -> None:
    """Not only that the log is full, which would be: nothing was done, and the same call may work later."""
    unit = world.qm.begin(XID)
    unit.put("A", b"mine" + bytes(150_000))
    world.qm.put("B", b"what logs it")
    with pytest.raises(qmgr.BackedOut):
        unit.put_many("A", [bytes(30_000)] * 9)
    assert unit.state is UowState.BACKED_OUT


def test_row_30_who_is_rolled_back_for_moves_that_his_get_makes_first_hears_of_that(world: World) -> None:
    """They are in a unit of work apart, for which the log is full all the same: he heard of that alone."""
    qm = world.qm
    qm.alter_queue("A", backout_threshold=1, backout_queue="B")
    qm.put("A", bytes(200_000))
    poisoned = qm.begin()
    poisoned.get("A")
    poisoned.backout()
    qm.checkpoint()
    doubtful = qm.begin(XID)
    doubtful.put("B", bytes(150_000))
    doubtful.prepare()
    unit = qm.begin()
    unit.put("B", b"mine" + bytes(220_000))
    qm.put("B", b"what logs it")
    with pytest.raises(qmgr.BackedOut):
        unit.get("A", backout_requeue=True)
    assert unit.state is UowState.BACKED_OUT
    doubtful.commit()
    assert bodies(qm, "B") == [b"what logs it", bytes(150_000)]


def test_row_30_the_call_for_which_its_own_unit_was_rolled_back_leaves_nothing_although_there_is_room_then(
    world: World,
) -> None:
    unit = world.qm.begin()
    with pytest.raises(qmgr.BackedOut):
        for _ in range(10):
            unit.put("A", bytes(180_000))  # too much for what is left before anybody sees that the log fills up
    queue = world.qm.queue("A")
    assert (queue.depth, queue.uncommitted, world.qm.status().log.promised) == (0, 0, 0)


@pytest.mark.parametrize("how", ["some match", "not persistent", "a unit of work"])
def test_a_get_of_many_takes_what_the_log_has_room_for_and_rolls_nobody_back(world: World, how: str) -> None:
    """It asked for the room of as many gets as its limit says, which there can't be, and others paid for that."""
    qm = world.qm
    qm.alter(max_uncommitted=999_999_999)
    for _ in range(40):
        qm.put_many("A", [b""] * 1000, persistent=False)
    qm.put_many("A", [b""] * 3, correlation_id=b"C")
    qm.checkpoint()
    other = qm.begin()
    other.put("B", b"of somebody else")
    qm.put("B", b"what logs it")
    if how == "some match":
        assert len(qm.get_many("A", 1_000_000, correlation_id=b"C")) == 3
    elif how == "not persistent":
        assert len(qm.get_many("A", 1_000_000)) > 10_000
    else:
        with qm.begin() as unit:
            assert len(unit.get_many("A", 1_000_000)) > 5_000
    other.commit()
    assert sorted(bodies(qm, "B")) == [b"of somebody else", b"what logs it"]


def test_what_a_unit_that_may_be_rolled_forward_can_never_have_room_for_is_refused_at_once(world: World) -> None:
    qm = world.qm
    other, unit = qm.begin(), qm.begin(XID)
    other.put("B", b"of somebody else")
    qm.put("B", b"what logs it")
    with pytest.raises(qmgr.MessageTooBig, match="a call may fill 294912 of them"):
        unit.put_many("A", [bytes(30_000)] * 10)
    unit.put_many("A", [bytes(30_000)] * 9)
    unit.commit()
    other.commit()


def test_row_30_a_rollback_is_durable_like_any_other(world: World) -> None:
    victim(world)
    world.qm.put("B", b"next")
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == ([b"taken"], [b"next"])


@pytest.mark.parametrize("commit", [True, False])
def test_row_30_a_prepared_unit_is_rolled_forward_and_kept(world: World, commit: bool) -> None:
    qm = world.qm
    qm.put("A", b"taken")
    unit = qm.begin(XID)
    unit.get("A")
    unit.put("B", b"given", priority=9)
    unit.prepare()
    first = qm.transactions()[0].first_lsn
    fill(world, lambda: world.qm.transactions()[0].first_lsn > first)
    assert f"AMQ7485W: Transaction 0,{unit.id} was rolled forward" in world.errors()
    assert qm.in_doubt() == [XID]
    for _ in range(3):  # again and again, over crashes
        moved = world.qm.transactions()[0].first_lsn
        fill(world, lambda: world.qm.transactions()[0].first_lsn > moved)  # noqa: B023
        world.crash(LOSE_ALL)
        assert world.qm.in_doubt() == [XID]
        assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == ([], [])
    world.qm.resolve(XID, commit=commit)
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == (([], [b"given"]) if commit else ([b"taken"], []))


def test_nothing_is_rolled_forward_behind_the_last_checkpoint_of_an_end_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put that made room while another thread ended the queue manager logged it after the end, and what that had
    kept of non-persistent messages was lost."""
    qm = world.qm
    qm.define_queue("H", non_persistent_class="HIGH")
    qm.put("H", b"kept", persistent=False)
    unit = qm.begin(XID)
    unit.put("A", b"given")
    unit.prepare()
    checkpointer = qm._housekeeper._checkpointer
    doubtful = checkpointer.may_lack_room
    go_on: list[Callable[[], None]] = []

    def ends() -> bool:
        found = doubtful()
        go_on.append(ending(world))
        return found

    monkeypatch.setattr(checkpointer, "may_lack_room", ends)
    with pytest.raises(qmgr.Unavailable):
        fill(world, lambda: False)
    assert len(go_on) == 1
    go_on[0]()
    assert "AMQ7485" not in world.errors()
    monkeypatch.undo()
    world.start()
    assert bodies(world.qm, "H") == [b"kept"]
    assert world.qm.in_doubt() == [XID]


def test_row_31_commit_and_backout_work_when_the_log_is_full(world: World) -> None:
    """Open units until a put finds no room; then every one that is still there can be ended."""
    units: list[qmgr.UnitOfWork] = []
    refused = 0
    for n in range(60):
        unit = world.qm.begin(Xid(1, b"%d" % n, b"")) if n % 2 else world.qm.begin()
        units.append(unit)
        try:
            unit.put("A", b"%d" % n + bytes(20_000))
            if n % 4 == 1:
                unit.prepare()
        except (qmgr.ResourceProblem, qmgr.BackedOut):
            refused += 1
    assert refused > 0
    committed = []
    for n, unit in enumerate(units):
        if n % 3 == 0:
            unit.backout()
            continue
        try:
            with_message = unit._unit.puts != []
            unit.commit()
        except qmgr.BackedOut:
            unit.backout()
        else:
            committed += [b"%d" % n] if with_message else []
    assert committed
    world.crash(LOSE_ALL)
    assert sorted(body.rstrip(b"\0") for body in bodies(world.qm, "A")) == sorted(committed)
    assert world.qm.in_doubt() == []
    world.qm.put("B", bytes(100_000))


def in_doubt_until_full(world: World) -> int:
    """Prepare units of work until the log takes no more; how many there are."""
    for n in range(200):
        unit = world.qm.begin(Xid(1, b"%d" % n, b""))
        try:
            unit.put("A", bytes(10_000))
            unit.prepare()
        except qmgr.ResourceProblem as exc:
            assert exc.reason == Reason.RESOURCE_PROBLEM
            unit.backout()
            return n
    raise AssertionError("the log never fills")


def test_row_31_a_log_full_of_units_in_doubt_refuses_puts_and_takes_gets(world: World) -> None:
    world.qm.put_many("B", [b"there"] * 20)
    count = in_doubt_until_full(world)
    assert count > 5
    with pytest.raises(qmgr.ResourceProblem) as caught:
        world.qm.put("B", bytes(20_000))
    assert isinstance(caught.value, qmgr.TryAgain)
    assert "AMQ7463E: The log for queue manager 'QM1' is full" in world.errors()
    assert len(world.qm.in_doubt()) == count
    world.qm.put("B", bytes(20_000), persistent=False)
    for _ in range(20):
        assert world.qm.get("B").body == b"there"
    for xid in world.qm.in_doubt():
        world.qm.resolve(xid, commit=True)
    world.qm.put("B", bytes(20_000))  # and service resumes, without a restart
    world.clock.advance(2)
    world.qm.get_many("B", 2)
    world.qm.put("B", b"in room that stays")
    assert "AMQ7464I" in world.errors()
    world.crash(LOSE_ALL)
    assert (world.depths(), world.qm.in_doubt()) == ({"A": count, "B": 1}, [])


def test_a_log_that_has_room_for_moments_is_full_once(world: World) -> None:
    in_doubt_until_full(world)
    for _ in range(5):
        with pytest.raises(qmgr.ResourceProblem):
            world.qm.put("B", bytes(20_000))
        world.qm.put("B", b"", persistent=False)
    said = world.errors()
    assert (said.count("AMQ7463E"), said.count("AMQ7464I")) == (1, 0)


def test_row_31_a_log_full_of_units_in_doubt_ends_in_order_and_starts_again(world: World) -> None:
    count = in_doubt_until_full(world)
    for again in (world.restart, world.crash, world.restart):
        again()
        assert len(world.qm.in_doubt()) == count
    for xid in world.qm.in_doubt():
        world.qm.resolve(xid, commit=False)
    assert world.depths() == {"A": 0, "B": 0}
    world.qm.put("B", bytes(20_000))


def test_the_error_log_says_why_there_is_no_room() -> None:
    """AMQ7465: a long-running transaction holds the log; AMQ7466: it is too small for the rate of data."""
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
    victim(world)
    assert "AMQ7463" not in world.errors()  # it was not full for any call
    in_doubt_until_full(world)
    assert "AMQ7463E" in world.errors()
    assert "AMQ7465E" in world.errors()


@pytest.mark.parametrize("in_doubt", [False, True])
def test_puts_that_a_full_disk_refuses_leave_gets_their_room(in_doubt: bool) -> None:
    """Each has a checkpoint tried, which fails. They used to log that it began, and a unit in doubt again and again."""
    world = World(log_secondary_files=1)
    world.qm.define_queue("A")
    if in_doubt:
        unit = world.qm.begin(XID)
        unit.put("A", BODY)
        unit.prepare()
    world.disk.fail(("write", "create"), errno.ENOSPC, once=False, where=lambda path: path.endswith((".seg", ".new")))
    world.disk.fail("create", errno.ENOSPC, once=False, where=lambda path: "/active/" in path)
    with pytest.raises(ResourceProblem):
        for _ in range(5000):
            world.qm.put("A", BODY)
    tail = world.qm.status().log.tail
    for _ in range(2000):
        with pytest.raises(ResourceProblem):
            world.qm.put("A", BODY)
    assert world.qm.status().log.tail - tail < 4096
    assert world.errors().count("AMQ6708") == 1  # for as long as a minute
    depth = world.qm.queue("A").depth
    for _ in range(100):
        world.qm.get("A")
    world.disk.heal()
    world.crash(LOSE_ALL)
    assert world.qm.queue("A").depth == depth - 100
    assert world.qm.in_doubt() == [XID] * in_doubt


def test_that_a_secondary_can_not_be_made_is_said_again_once_one_was_made() -> None:
    """Else whoever has freed the disk hears nothing for a minute where it is full again."""
    world = World(log_secondary_files=3)
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    for said in (1, 2):
        world.disk.fail("create", errno.ENOSPC, once=False, where=lambda path: "/active/" in path)
        with pytest.raises(ResourceProblem), world.qm.begin() as unit:
            unit.put("A", b"holds the head")
            fill(world, lambda: False)
        assert world.errors().count("AMQ6708") == said
        world.disk.heal()
        with world.qm.begin() as unit:
            unit.put("A", b"holds the head")
            fill(world, lambda: world.qm.status().log.files > 2)


def test_a_log_that_can_not_grow_is_not_called_full() -> None:
    """A linear one needs a further extent before that: what is so is said, and no unit of work blamed for it."""
    world = World(log_type="linear", log_primary_files=3, log_secondary_files=1)
    world.qm.define_queue("A")
    world.disk.fail(("create", "open"), errno.EACCES, once=False, where=lambda path: "/active/" in path)
    with pytest.raises(ResourceProblem) as caught:
        for _ in range(50):
            world.qm.put("A", bytes(20_000))
            world.qm.checkpoint()
    assert "full" not in str(caught.value)
    assert "AMQ7463E: The log for queue manager 'QM1' can get no more room ([Errno 13] " in world.errors()
    assert "full" not in world.errors()
    assert str(caught.value).endswith("let this one use it, and try again (2102 MQRC_RESOURCE_PROBLEM)")


@pytest.mark.parametrize(
    ("number", "way"),
    [(errno.ENOSPC, "free some space"), (errno.EMFILE, "close files, or"), (errno.ENOMEM, "the system has no memory")],
)
@pytest.mark.parametrize("where", ["/active/", ".seg"])
def test_a_log_that_can_not_grow_says_what_the_disk_or_the_process_lacks(number: int, way: str, where: str) -> None:
    """It used to be only "full", also where there was no descriptor for another extent, or for a checkpoint's file."""
    world = World(log_secondary_files=1)
    world.qm.define_queue("A")
    world.qm.put("A", BODY)
    world.disk.fail(("create", "open"), number, once=False, where=lambda path: where in path)
    more = " "
    if where == "/active/":  # where checkpoints move the head it needs no other extents
        in_doubt_until_full(world)
        more = ", or commit"
    with pytest.raises(ResourceProblem, match=rf"can get no more room \(.*{where}.*\): .*{way}.* try again{more}"):
        for _ in range(5000):
            world.qm.put("A", bytes(20_000))
    world.disk.heal()
    world.clock.advance(2)
    world.qm.put("A", BODY)


def test_a_put_tries_again_where_others_take_the_room_that_was_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With large messages and many threads it gave up after eight times, and told who had none to end units of work."""
    world = World(log_secondary_files=1)
    world.qm.define_queue("A")
    large = bytes(world.qm.status().log.capacity * 45 // 100)
    engine, left = world.qm._engine, [12]
    make_space, space = engine._make_space, engine.log.space

    def pass_through() -> None:
        world.qm.put("A", large)
        world.qm.get("A")

    def too_late(size: int, promise: int, spare: bool) -> str:
        own = promise - space.for_gets
        why = make_space(size, promise, spare)

        def fits() -> bool:
            return space.fits(engine.log.buffer.tail, size, own + space.for_gets)

        if left[0] and fits():
            left[0] -= 1
            engine._make_space = make_space
            while fits():
                pass_through()
            engine._make_space = too_late
        return why

    monkeypatch.setattr(engine, "_make_space", too_late)
    while left[0] == 12:
        pass_through()
    assert left == [0]
    left[0] = 1000
    with pytest.raises(
        ResourceProblem, match="others took what was made for it, 32 times; try again, or give"
    ) as caught:
        for _ in range(4):
            pass_through()
    assert "units of work" not in str(caught.value)
    left[0] = 0
    pass_through()


def test_a_put_has_as_many_extents_brought_in_as_it_needs() -> None:
    """They came one for each try: it was told that others had taken them, and there was nobody else."""
    world = World(log_secondary_files=120)
    world.qm.alter(max_message_length=12 << 20)
    world.qm.define_queue("A", max_message_length=12 << 20)
    world.qm.put("A", bytes(12 << 20))
    assert len(world.qm.get("A").body) == 12 << 20


@pytest.mark.parametrize("units", [0, 1])
def test_a_full_log_blames_units_of_work_only_where_there_are_any(monkeypatch: pytest.MonkeyPatch, units: int) -> None:
    """Others may have taken, by the time that it looks, all that was given back."""
    world = World(log_secondary_files=1)
    world.qm.define_queue("A")
    monkeypatch.setattr(world.qm._housekeeper.log_space, "_would_move_head", lambda: False)
    held = [world.qm.begin(XID) for _ in range(units)]
    way = "commit or back out the units of work that are open" if units else "try again"
    with pytest.raises(ResourceProblem, match=f"is full; {way}, or give it more or larger files"):
        for _ in range(5000):
            world.qm.put("A", bytes(20_000))
    for unit in held:
        unit.backout()


def test_an_image_that_a_full_disk_refuses_says_that_room_helps() -> None:
    world = World(log_type="linear")
    world.qm.define_queue("A")
    for _ in range(8):
        world.qm.put("A", BODY)
    world.disk.fail(("write", "create"), errno.ENOSPC, once=False, where=lambda path: "/active/" not in path)
    with pytest.raises(qmgr.StorageFull, match="nothing is lost by that: free some space and try again"):
        world.qm.record_image("A")


def test_row_22_secondaries_come_when_they_are_needed_and_go_again() -> None:
    world = World(log_secondary_files=3)
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    assert world.qm.status().log.files == 2
    unit = world.qm.begin()
    unit.put("A", b"holds the head")
    fill(world, lambda: world.qm.status().log.files == 5 or unit.state is not UowState.ACTIVE)
    most = world.qm.status().log.files
    assert most > 2
    names = {path for path in world.disk.files() if "/active/" in path}
    assert len(names) == most
    world.crash(LOSE_ALL)
    assert 2 <= world.qm.status().log.files <= most
    calm_down(world)
    assert world.qm.status().log.files == 2
    assert len([path for path in world.disk.files() if "/active/" in path]) == 2
    world.crash(LOSE_ALL)
    world.qm.put("A", b"x")
    assert bodies(world.qm, "A") == [b"x"]


def test_row_22_a_put_brings_a_secondary_in_again_that_the_checkpoint_it_waited_for_has_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another call had brought it in meanwhile, so this one first found that there may be no more."""
    world = World(log_secondary_files=1)
    qm = world.qm
    qm.define_queue("A")
    qm.put("A", bytes(150_000))
    qm.checkpoint()  # the head can't move on, and the primaries have no room for what follows
    assert qm.status().log.files == 2
    log_space, log = qm._housekeeper.log_space, qm._engine.log
    grow = log_space._grow
    found: list[bool] = []

    def too_late(spare: bool) -> bool:
        if found:
            return grow(spare)
        assert log.grow()
        found.append(grow(spare))
        assert log.release_secondary() == 1
        return found[0]

    monkeypatch.setattr(log_space, "_grow", too_late)
    qm.put("A", bytes(340_000))
    assert found == [False]
    assert qm.status().log.files == 3


def test_a_secondary_that_can_not_be_removed_stays_and_nothing_else_happens() -> None:
    world = World(log_secondary_files=3)
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    for _ in range(2):
        with world.qm.begin() as unit:
            unit.put("A", b"holds the head")
            fill(world, lambda: world.qm.status().log.files >= 4)
        world.disk.fail("unlink", errno.EIO, once=False, where=lambda path: "/active/" in path)
        world.qm.checkpoint()
        assert "AMQ6708" in world.errors()
        with pytest.raises(qmgr.Unavailable, match="try again"):
            world.qm.reduce_log()
        assert world.qm.status().log.files == 2
        assert len([path for path in world.disk.files() if "/active/" in path]) > 2
        world.disk.heal()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"holds the head"] * 2


def test_row_21_the_log_wraps_many_times_over_restarts(world: World) -> None:
    for n in range(8):
        world.qm.put("A", b"%d" % n)
        for _ in range(150):
            world.qm.put("B", bytes(4000))
            world.qm.get("B")
        world.crash(LOSE_ALL) if n % 2 else world.restart()
    assert bodies(world.qm, "A") == [b"%d" % n for n in range(8)]
    log = world.qm.status().log
    assert log.tail > 5 * log.capacity
    assert log.files <= 3


def test_promised_room_is_given_back(world: World) -> None:
    before = world.qm.status().log.promised
    for n in range(10):
        unit = world.qm.begin(Xid(1, b"%d" % n, b"")) if n % 2 else world.qm.begin()
        unit.put("A", BODY)
        unit.put("B", BODY)
        assert world.qm.status().log.promised > before
        if n % 3 == 0:
            unit.commit()
        elif n % 3 == 1:
            unit.backout()
        else:
            unit.put_many("A", [BODY] * 3)
            unit.commit()
    assert world.qm.status().log.promised == before
    unit = world.qm.begin(XID)
    unit.put("A", BODY)
    unit.prepare()
    world.crash()
    assert world.qm.status().log.promised > 0
    world.qm.resolve(XID, commit=True)
    assert world.qm.status().log.promised == 0


# ---- checkpoints


def test_checkpoints_by_count() -> None:
    world = World(ini={"CheckPointLogRecdMax": "50"})
    world.qm.define_queue("A")
    start = world.qm.status().checkpoints
    for _ in range(500):
        world.qm.put("A", b"")
    assert 9 <= world.qm.status().checkpoints - start <= 10
    assert world.qm.status().log.head > world.qm.restart_report.end_lsn


def test_one_large_message_among_many_small_ones_counts_once() -> None:
    """Bytes that came make a checkpoint due, and three times as many make callers wait for it."""
    world = World(log_primary_files=4, log_file_pages=1024)
    world.qm.define_queue("A")
    start = world.qm.status().checkpoints
    world.qm.put_many("A", [bytes(1 << 20), *[b""] * 1000])
    assert world.qm.status().checkpoints == start
    assert 1 << 20 < world.qm._checkpointer.arrived_bytes < 2 << 20


def test_checkpoints_by_time_when_there_is_enough_to_do() -> None:
    world = World(ini={"CheckPointWaitLen": "5", "CheckPointLogRecdMin": "10"})
    world.qm.define_queue("A")
    start = world.qm.status().checkpoints
    world.clock.advance(301)
    world.qm.put("A", b"")
    assert world.qm.status().checkpoints == start  # too few records
    for _ in range(10):
        world.qm.put("A", b"")
    assert world.qm.status().checkpoints == start + 1
    for _ in range(20):
        world.qm.put("A", b"")
    assert world.qm.status().checkpoints == start + 1  # too early
    world.clock.advance(301)
    world.qm.put("A", b"")
    assert world.qm.status().checkpoints == start + 2


def test_checkpoints_at_start_at_end_and_on_demand(world: World) -> None:
    assert world.qm.status().checkpoints == 1
    world.qm.put("A", b"x")
    head = world.qm.status().log.head
    world.qm.checkpoint()
    assert world.qm.status().checkpoints == 2
    assert world.qm.status().log.head > head
    world.qm.put("A", b"y")
    world.restart()
    assert world.qm.restart_report.records_replayed <= 2  # the checkpoint's own
    assert world.qm.restart_report.torn_tail is False
    world.qm.put("A", b"z")
    report = world.crash().restart_report
    assert report.records_replayed >= 1
    assert report.torn_tail is True
    assert bodies(world.qm, "A") == [b"x", b"y", b"z"]


def test_the_restart_report_and_the_error_log_agree(world: World) -> None:
    world.qm.put("A", b"x")
    unit = world.qm.begin()
    unit.get("A")
    other = world.qm.begin(XID)
    other.put("B", b"y")
    other.prepare()
    world.crash()
    report = world.qm.restart_report
    assert (report.in_flight, report.resolved, report.in_doubt) == (2, 1, 1)
    assert report.head_lsn <= report.checkpoint_lsn <= report.end_lsn
    errors = world.errors()
    assert f"AMQ9034W: Queue manager 'QM1' had not ended in order: its log goes up to {text(report.end_lsn)}." in errors
    assert errors.count("AMQ9034W") == 1  # that of the first start had nothing to say
    assert f"AMQ7229I: {report.records_replayed} log records" in errors
    assert f"AMQ7231I: {report.records_recovered} log records" in errors
    assert "AMQ7233I: 1 out of 2 in-flight transactions resolved" in errors
    for amq in ("AMQ7230I", "AMQ7232I", "AMQ8003I", "AMQ6287I"):
        assert amq in errors


@pytest.mark.parametrize(("buffer", "taken"), [(1000, 1), (1_000_000, 0)])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_checkpoint_is_due_when_backouts_have_given_back_much_beyond_the_buffer(
    persistent: bool, buffer: int, taken: int
) -> None:
    """Nothing else would move it out of memory again."""
    world = World(log_primary_files=4, log_file_pages=1024)
    world.qm.define_queue("A", default_persistence=persistent, buffer_size=buffer)
    world.qm.define_queue("B")  # the room in its buffers is of no use
    world.qm.put_many("A", [b"%02d" % n + bytes(1000) for n in range(30)])
    world.qm.checkpoint()
    checkpointer = world.qm._checkpointer
    checkpointer.arrived_max_bytes, before = 20_000, checkpointer.count
    unit = world.qm.begin()
    assert len(unit.get_many("A", 30)) == 30
    unit.backout()
    assert checkpointer.count == before + taken
    assert not checkpointer.limit_reached()
    assert (world.qm.queue("A").memory < 3000) == (taken == 1)
    assert [body[:2] for body in bodies(world.qm, "A")] == [b"%02d" % n for n in range(30)]


def test_what_backouts_give_back_is_counted_on_while_other_messages_come_and_go() -> None:
    """Else one unit of work after the other would leave what it had in memory, without end."""
    world = World(log_primary_files=4, log_file_pages=1024)
    for name in ("A", "B"):
        world.qm.define_queue(name, default_persistence=False, buffer_size=1000)
    world.qm.put_many("A", [bytes(1000)] * 60)
    world.qm.checkpoint()
    world.qm._checkpointer.arrived_max_bytes = 20_000
    units = [world.qm.begin() for _ in range(6)]
    for unit in units:
        assert len(unit.get_many("A", 10)) == 10
    for unit in units:
        unit.backout()
        for _ in range(20):
            world.qm.put("B", bytes(1000))
            world.qm.get("B")
    assert world.qm.queue("A").memory < 20_000


# ---- settings


@pytest.mark.parametrize("integrity", ["SingleWrite", "DoubleWrite", "TripleWrite"])
@pytest.mark.parametrize("sync", ["always", "interval", "os"])
def test_every_log_write_integrity_and_log_sync(integrity: str, sync: str) -> None:
    world = World(log_write_integrity=integrity, log_sync=sync)
    world.qm.define_queue("A")
    for n in range(100):
        world.qm.put("A", b"%d" % n)
        if n % 10 == 9:
            assert world.qm.get("A").body == b"%d" % (n // 10)
    assert world.qm.status().log_sync == sync
    shown = world.qm.mqsc("DISPLAY QMSTATUS LOG").text
    assert (f"LOGSYNC({sync.upper()})" in shown) == (sync != "always")  # every status says what is given up
    assert ("AMQ9001W" in world.errors()) == (sync != "always")
    expected = [b"%d" % n for n in range(10, 100)]
    if sync == "always":
        world.crash(LOSE_ALL)
    else:
        world.crash()  # the process dies, and the system's memory lives
    assert bodies(world.qm, "A") == expected
    world.restart()
    assert bodies(world.qm, "A") == expected


def test_log_sync_os_loses_only_the_last_moments_of_a_power_loss() -> None:
    world = World(log_sync="os")
    world.qm.define_queue("A")
    world.qm.put("A", b"old")
    world.qm.checkpoint()
    for n in range(50):
        world.qm.put("A", b"%d" % n)
    tail = world.qm.status().log.tail
    world.qm.force(tail)  # as far as LogSync promises, which is no sync; a checkpoint is one
    assert world.qm.status().log.durable < tail
    world.crash(LOSE_ALL)
    found = bodies(world.qm, "A")
    assert found == [b"old", *(b"%d" % n for n in range(50))][: len(found)]
    assert found[0] == b"old"


def test_log_sync_interval_bounds_what_a_power_loss_takes() -> None:
    world = World(log_sync="interval", log_sync_interval=500)
    world.qm.define_queue("A")
    world.qm.put("A", b"old")
    world.clock.advance(1)
    world.qm.put("A", b"new")  # any call after the interval, since this simulation has no thread of its own
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A")[:1] == [b"old"]


CHANGES = [
    {"LogPrimaryFiles": "2", "LogSecondaryFiles": "1"},
    {"LogPrimaryFiles": "6"},
    {"LogSecondaryFiles": "8"},
    {"LogBufferPages": "0"},
    {"LogBufferPages": "4096"},
    {"LogBufferPages": "1"},
    {"LogWriteIntegrity": "SingleWrite"},
    {"LogSync": "os"},
    {"LogPrimaryFiles": "3", "LogSecondaryFiles": "1", "LogBufferPages": "32", "LogWriteIntegrity": "DoubleWrite"},
]


@pytest.mark.parametrize("how", ["end", "crash"])
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_row_38_a_restart_with_other_settings_loses_nothing(change: dict[str, str], how: str) -> None:
    """From four primaries and three secondaries, all of them in use for a unit in doubt and one in flight."""
    world = World(log_primary_files=4, log_secondary_files=3)
    for name in ("A", "B"):
        world.qm.define_queue(name)
    world.qm.put("A", b"taken")
    unit = world.qm.begin(XID)
    unit.get("A")
    unit.put("A", b"in doubt")
    unit.prepare()
    fill(world, lambda: world.qm.status().log.files >= 5)
    for n in range(20):
        world.qm.put("A", b"%d" % n + bytes(3000))
    expected = bodies(world.qm, "A")
    if how == "end":
        world.qm.end("immediate")
    else:
        world.disk = world.disk.crash(LOSE_ALL)
    for attribute, value in change.items():
        world.set_ini(attribute, value)
    world.start()
    for _ in range(2):
        assert (bodies(world.qm, "A"), world.qm.in_doubt()) == (expected, [XID])
        for _ in range(300):
            world.qm.put("B", bytes(2000))
            world.qm.get("B")
        world.crash(LOSE_ALL if change.get("LogSync") != "os" else 0) if how == "crash" else world.restart()
    world.qm.resolve(XID, commit=True)
    assert sorted(bodies(world.qm, "A")) == sorted([*expected, b"in doubt"])
    primaries = int(change.get("LogPrimaryFiles", "4"))
    assert world.qm.status().log.config.primary_files == primaries
    calm_down(world)
    assert world.qm.status().log.files == primaries
    assert sorted(bodies(world.qm, "A")) == sorted([*expected, b"in doubt"])


def test_row_38_the_size_of_the_extents_can_not_change(world: World) -> None:
    world.qm.put("A", b"x")
    world.qm.end()
    world.set_ini("LogFilePages", "128")
    with pytest.raises(qmgr.IniError, match=r"qm\.ini, line 5: LogFilePages is 128 .* set LogFilePages=64\."):
        world.start()
    world.set_ini("LogFilePages", "64")
    world.start()
    assert bodies(world.qm, "A") == [b"x"]


def test_row_38_the_kind_of_log_does_not_change_with_a_line(world: World) -> None:
    world.qm.put("A", b"x")
    world.qm.end()
    world.set_ini("LogType", "LINEAR")
    with pytest.raises(qmgr.IniError, match=r"qm\.ini, line 5: LogType is LINEAR .* set LogType=CIRCULAR"):
        world.start()
    world.set_ini("LogType", "CIRCULAR")
    world.start()
    assert bodies(world.qm, "A") == [b"x"]


def test_row_38_the_log_may_move_with_its_path(world: World) -> None:
    world.qm.put("A", b"x")
    world.qm.end()
    world.set_ini("LogPath", "/elsewhere/QM1/")
    with pytest.raises(qmgr.MQError, match="/elsewhere/QM1"):
        world.start()
    make_dirs(world.disk, "/elsewhere/QM1/active")
    for path in world.disk.files("/data/log"):
        world.disk.poke(path.replace("/data/log", "/elsewhere"), world.disk.peek(path))
    world.start()
    assert bodies(world.qm, "A") == [b"x"]
    world.restart()
    assert bodies(world.qm, "A") == [b"x"]


def test_row_38_a_lower_limit_of_messages_in_a_unit_counts_from_the_next_start() -> None:
    world = World(max_uncommitted=100)
    world.qm.define_queue("A")
    unit = world.qm.begin(XID)
    unit.put_many("A", [b"x"] * 50)
    unit.prepare()
    world.qm.end()
    world.set_ini("MaxUncommittedMsgs", "10")
    world.start()
    world.qm.resolve(XID, commit=True)
    assert world.qm.queue("A").depth == 50
    with world.qm.begin() as small, pytest.raises(qmgr.SyncpointLimit):
        small.put_many("A", [b""] * 11)


def test_row_30_a_restart_has_room_to_back_out_many_units_where_a_secondary_had_given_it() -> None:
    """It held nothing yet, so nobody knows of it after the crash; what each backout takes was promised with it."""
    world = World()
    qm = world.qm
    qm.define_queue("A")
    units = [qm.begin() for _ in range(600)]
    for unit in units:
        unit.put("A", b"never")
    log = qm._log
    end = log.space.floor + 2 * log.state.extent_bytes
    while log.buffer.tail < end - 26_000:
        qm.put("A", bytes(2000))  # which logs what the units hold back, too
    assert log.space.files == 3
    assert len(log.state.extents) == 2
    assert sum(unit.state is UowState.ACTIVE for unit in units) == 600
    world.crash(LOSE_ALL)
    assert world.qm.restart_report.resolved == 600
    assert set(bodies(world.qm, "A")) == {bytes(2000)}


@pytest.mark.parametrize("prepared", [False, True], ids=["in flight", "in doubt"])
def test_a_unit_that_has_ended_between_its_choice_and_its_turn_is_neither_rolled_back_nor_forward(
    prepared: bool,
) -> None:
    world = World()
    world.qm.define_queue("Q")
    unit = world.qm.begin(XID)
    unit.put("Q", b"once")
    world.qm.put("Q", b"other")  # by which the unit's call is logged: it may hold the head
    chosen = next(one for one in world.qm._engine.state.uows.logged())
    if prepared:
        unit.prepare()
        world.qm.resolve(XID, commit=True)
    else:
        unit.commit()
    tail = world.qm.status().log.tail
    log_space = world.qm._housekeeper.log_space
    assert log_space._release_unit(chosen)
    assert log_space._roll_forward(chosen)  # as where it is resolved while that waits for room
    assert world.qm.status().log.tail == tail
    assert "AMQ7486" not in world.errors()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "Q") == [b"other", b"once"]
    assert world.qm.in_doubt() == []


def test_a_put_that_finds_no_room_waits_for_the_checkpoint_under_way_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which gives way to nobody while somebody waits for it."""
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)
    force = SegmentWriter.force

    def held(writer: SegmentWriter) -> None:
        begun.release()
        assert may_end.acquire(timeout=60)
        force(writer)

    qmgr.create(NAME, data_path=tmp_path, log_file_pages=64, log_primary_files=6)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("Q")
        state = qm._engine.state
        ways: list[None] = []
        monkeypatch.setattr(state, "_give_way", lambda: ways.append(None))
        monkeypatch.setattr(SegmentWriter, "force", held)
        done: list[int] = []
        stop = False

        def put() -> None:
            while not stop:
                qm.put("Q", bytes(2000))
                done.append(0)

        thread = threading.Thread(target=put)
        thread.start()
        assert begun.acquire(timeout=60)
        until(lambda: bool(state.awaited))
        count, before, given = qm._checkpointer.count, len(done), len(ways)
        state.give_way()
        assert len(ways) == given
        may_end.release()
        assert begun.acquire(timeout=60)
        assert qm._checkpointer.count == count + 1
        until(lambda: len(done) > before)
        stop = True
        for _ in range(1000):
            may_end.release()
        thread.join(60)
        assert not thread.is_alive()
        given = len(ways)
        state.give_way()
        assert len(ways) > given and not state.awaited


@pytest.mark.parametrize("filled", range(720_000, 800_000, 16_000))
@pytest.mark.parametrize("in_unit", [False, True])
def test_a_get_of_very_many_takes_what_the_log_has_room_for_without_a_rollback(filled: int, in_unit: bool) -> None:
    world = World(log_primary_files=3, log_secondary_files=2, log_file_pages=64)
    for name in "AB":
        world.qm.define_queue(name, max_depth=100_000)
    for _ in range(20):
        world.qm.put_many("A", [b"1"] * 1000)
    world.qm.checkpoint()
    other = world.qm.begin()
    for _ in range(filled // 16_000):
        other.put("B", bytes(16_000))
    assert other.state is qmgr.UowState.ACTIVE, "it is the get that would be too much"
    if in_unit:
        with world.qm.begin() as unit:
            assert unit.get_many("A", 100_000)
    else:
        assert world.qm.get_many("A", 100_000)
    assert other.state is qmgr.UowState.ACTIVE
    other.commit()


def test_nobody_is_rolled_back_so_that_a_call_gets_more_at_once(world: World) -> None:
    """A unit of work that asks for all of a deep queue gets what the log has room for as it is."""
    qm = world.qm
    for _ in range(20):
        qm.put_many("A", [b""] * 500)
        qm.checkpoint()
    older = qm.begin()
    older.put_many("B", [BODY] * 300)
    qm.put("B", b"by which that is logged")
    taker = qm.begin()
    some = taker.get_many("A", 10_000)
    assert 64 < len(some) < 10_000
    older.commit()
    taker.commit()
    assert "AMQ7469" not in world.errors()
    assert qm.queue("A").depth == 10_000 - len(some)
