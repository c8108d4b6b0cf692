"""Messages that were backed out too often go to the backout queue, or the dead-letter queue: wholly or not at all."""

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import deadletter
from qmgr.errors import BackedOut, MQError, NoMessageAvailable, Reason, ResourceProblem, SyncpointLimit, Unavailable
from qmgr.infos import Peer
from qmgr.session import AllRights
from qmgr.units import unlogged_calls
from recovery.uows import Uow
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, Call, World, bodies, drain
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed


def poison(qm: qmgr.QueueManager, body: bytes = b"poison", times: int = 2, queue: str = "A", **options: Any) -> bytes:
    """Put a message that nobody can work on; its id."""
    message = qm.put(queue, body, **options)
    for _ in range(times):
        with qm.begin() as unit:
            unit.get(queue, message_id=message.message_id)
            unit.backout()
    return message.message_id


@pytest.fixture
def qm(world: World) -> qmgr.QueueManager:
    world.qm.alter_queue("A", backout_threshold=2, backout_queue="B")
    return world.qm


def test_it_goes_to_the_backout_queue_in_the_unit_of_work_of_the_get(qm: qmgr.QueueManager) -> None:
    """Row 80."""
    poisoned = poison(qm, priority=5, correlation_id=b"c", properties={"a": 1})
    qm.put("A", b"good")
    with qm.begin() as unit:
        assert unit.get("A", backout_requeue=True).body == b"good"
        assert (qm.queue("A").depth, qm.queue("B").depth, bodies(qm, "B")) == (0, 1, [])
        unit.backout()
    assert bodies(qm, "A") == [b"poison", b"good"]
    assert [m.backout_count for m in qm.browse("A")] == [3, 1]
    with qm.begin() as unit:
        assert unit.get("A", backout_requeue=True).body == b"good"
    moved = qm.get("B")
    assert (moved.message_id, moved.body, moved.priority, moved.backout_count) == (poisoned, b"poison", 5, 0)
    assert (moved.properties, moved.correlation_id[:1]) == ({"a": 1}, b"c")


def test_without_being_asked_nothing_is_moved(qm: qmgr.QueueManager) -> None:
    poison(qm)
    with qm.begin() as unit:
        assert unit.get("A").backout_count == 2
    assert bodies(qm, "B") == []


def test_below_the_threshold_nothing_is_moved(qm: qmgr.QueueManager) -> None:
    poison(qm, times=1)
    assert qm.get("A", backout_requeue=True).backout_count == 1


def test_a_get_for_which_nothing_is_moved_leaves_no_unit_of_work(qm: qmgr.QueueManager) -> None:
    """An end in order would wait for it."""
    qm.put("A", b"good")
    assert qm.get("A", backout_requeue=True).body == b"good"
    with pytest.raises(NoMessageAvailable):
        qm.get("A", backout_requeue=True)
    assert qm.transactions() == [] and not qm.busy


def test_several_and_batches_and_selectors(qm: qmgr.QueueManager) -> None:
    ids = [poison(qm, b"poison %d" % n, correlation_id=b"%d" % (n % 2)) for n in range(4)]
    qm.put_many("A", [b"good", b"better"])
    with qm.begin() as unit:
        with pytest.raises(NoMessageAvailable):
            unit.get("A", message_id=ids[2], backout_requeue=True)
        with pytest.raises(NoMessageAvailable):
            unit.get("A", correlation_id=b"1", backout_requeue=True)
        assert [m.body for m in unit.get_many("A", 5, backout_requeue=True)] == [b"good", b"better"]
    assert sorted(bodies(qm, "B")) == [b"poison %d" % n for n in range(4)]


def test_outside_a_unit_of_work_it_is_moved_for_good_at_once(world: World, qm: qmgr.QueueManager) -> None:
    poison(qm)
    with pytest.raises(NoMessageAvailable):
        qm.get("A", backout_requeue=True)
    assert bodies(world.crash(), "B") == [b"poison"]
    assert world.qm.queue("A").depth == 0


@pytest.mark.parametrize("persistent", [True, False])
def test_where_the_backout_queue_does_not_take_it_it_is_a_dead_letter(
    world: World, qm: qmgr.QueueManager, persistent: bool
) -> None:
    qm.define_queue("DEAD")
    qm.alter(dead_letter_queue="DEAD")
    changes: list[tuple[str, dict[str, Any]]] = [
        ("B", {"put_enabled": False}),
        ("B", {"put_enabled": True, "max_depth": 0}),
        ("A", {"backout_queue": "NOT.THERE"}),
        ("A", {"backout_queue": "A"}),
        ("A", {"backout_queue": ""}),
    ]
    for n, (queue, change) in enumerate(changes, 1):
        qm.alter_queue(queue, **change)
        poison(qm, persistent=persistent, format="MQSTR")
        with qm.begin() as unit, pytest.raises(NoMessageAvailable):
            unit.get("A", backout_requeue=True)
        assert len(bodies(qm, "DEAD")) == n
    dead = qm.get("DEAD")
    header, body = deadletter.decode(dead.body)
    assert (header.reason, header.queue, header.format, body) == (2362, "A", "MQSTR", b"poison")
    assert dead.format == deadletter.FORMAT


def test_where_no_queue_takes_it_it_stays_and_that_is_said_once(world: World, qm: qmgr.QueueManager) -> None:
    qm.alter_queue("A", backout_queue="")
    poison(qm)
    for _ in range(3):
        with qm.begin() as unit:
            assert unit.get("A", backout_requeue=True).body == b"poison"
            unit.backout()
    assert world.errors().count("AMQ9030W") == 1
    assert "no backout queue (BOQNAME)" in world.errors()
    qm.alter_queue("A", backout_queue="NOT.THERE")
    with qm.begin() as unit:
        assert unit.get("A", backout_requeue=True).body == b"poison"
    assert world.errors().count("AMQ9030W") == 2
    assert "there is no queue 'NOT.THERE'" in world.errors()


def test_both_ways_through_aliases(qm: qmgr.QueueManager) -> None:
    qm.define_alias("FROM", "A")
    qm.define_alias("TO", "B")
    qm.alter_queue("A", backout_queue="TO")
    poison(qm)
    with pytest.raises(NoMessageAvailable):
        qm.get("FROM", backout_requeue=True)
    assert drain(qm, "B") == [b"poison"]


def test_a_unit_of_work_with_no_room_for_it_says_so_and_nothing_is_moved(world: World) -> None:
    world = World(max_uncommitted=2)
    world.qm.define_queue("B")
    world.qm.define_queue("A", backout_threshold=1, backout_queue="B")
    poison(world.qm, times=1)
    world.qm.put("A", b"good")
    with world.qm.begin() as unit:
        unit.put("B", b"first")
        with pytest.raises(SyncpointLimit):
            unit.get("A", backout_requeue=True)
    assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == ([b"poison", b"good"], [b"first"])


def test_in_a_prepared_unit_of_work_over_a_restart(world: World, qm: qmgr.QueueManager) -> None:
    poison(qm)
    qm.put("A", b"good")
    xid = qmgr.Xid(1, b"moved", b"")
    unit = qm.begin(xid)
    assert unit.get("A", backout_requeue=True).body == b"good"
    unit.prepare()
    qm = world.crash()
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [])
    qm.resolve(xid, commit=True)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"poison"])


def test_what_is_paged_is_moved_too(small_segments: object) -> None:
    world = World(ini={"DefaultPQBufferSize": "1000"})
    qm = world.qm
    qm.define_queue("B")
    qm.define_queue("A", backout_threshold=1, backout_queue="B")
    ids = [qm.put("A", b"%03d" % n).message_id for n in range(60)]
    qm.checkpoint()
    for one in ids[10:50:7]:
        with qm.begin() as unit:
            unit.get("A", message_id=one)
            unit.backout()
    qm.checkpoint()
    qm.checkpoint()
    with qm.begin() as unit:
        assert len(unit.get_many("A", 100, backout_requeue=True)) == 54
    assert [int(body) for body in bodies(qm, "B")] == list(range(10, 50, 7))


def test_what_was_moved_before_an_error_is_back_and_can_be_moved_again(small_segments: object) -> None:
    world = World(ini={"DefaultPQBufferSize": "1"})
    qm = world.qm
    qm.define_queue("B")
    qm.define_queue("A", backout_threshold=1, backout_queue="B")
    qm.put_many("A", [b"%02d" % n + bytes(500) for n in range(12)])
    with qm.begin() as unit:
        assert len(unit.get_many("A", 12)) == 12
        unit.backout()
    qm.checkpoint()
    world.disk.fail("read", errno.EIO, nth=2, once=False)
    with pytest.raises(Unavailable):
        qm.get_many("A", 1, backout_requeue=True)
    world.disk.heal()
    assert (qm.queue("A").depth, qm.queue("A").uncommitted, qm.queue("B").depth) == (12, 0, 0)
    assert qm.get_many("A", 1, backout_requeue=True) == []
    assert [body[:2] for body in bodies(qm, "B")] == [b"%02d" % n for n in range(12)]


def test_a_move_has_room_in_the_log_for_its_put_and_its_get(qm: qmgr.QueueManager) -> None:
    for _ in range(3):
        poison(qm)
    qm.put("A", b"good")
    with qm.begin() as unit:
        assert unit.get("A", backout_requeue=True).body == b"good"
        assert len(unlogged_calls(unit._unit)) <= unit._unit.held_back


def test_the_time_of_what_is_moved_runs_out_there(world: World, qm: qmgr.QueueManager) -> None:
    poison(qm, expiry=10.0)
    assert qm.get_many("A", 1, backout_requeue=True) == []
    world.clock.advance(20)
    assert qm.get_many("B", 1) == []


def test_a_session_is_not_given_what_was_refused_too_often(world: World, qm: qmgr.QueueManager) -> None:
    session = qm.sessions.open(Peer(user="u"), AllRights())
    qm.put_many("A", [b"poison", b"good"])
    for _ in range(2):
        deliveries, end = session.deliver("A", 1)
        assert [one.message.body for one in deliveries] == [b"poison"]
        qm.force(session.reject(deliveries))
    deliveries, end = session.deliver("A", 1)
    qm.force(end)
    assert [one.message.body for one in deliveries] == [b"good"]
    qm.force(session.accept(deliveries))
    session.close()
    assert bodies(world.crash(), "B") == [b"poison"]
    assert not world.qm.transactions()


# ---- crashes


def test_any_crash_leaves_it_on_one_of_the_two_queues() -> None:
    """Row 80."""
    world = World()
    qm = world.qm
    qm.define_queue("B")
    qm.define_queue("DEAD")
    qm.define_queue("A", backout_threshold=1, backout_queue="B")
    qm.alter(dead_letter_queue="DEAD")
    wrong: list[str] = []
    moments = 0

    def look(kind: str, path: str) -> None:
        nonlocal moments
        moments += 1
        for loss in (KEEP_ALL, LOSE_ALL, mixed(moments)):
            disk = world.disk.snapshot(loss)
            found = qmgr.start(NAME, data_path=DATA, disk=disk, clock=world.clock, background=False)
            held = [body[-6:] for queue in ("A", "B", "DEAD") for body in bodies(found, queue)]
            if sorted(held) != sorted(b"msg %02d" % n for n in range(moved)):
                wrong.append(f"before {kind} {path}, {loss}: {held}")

    for moved in range(1, 7):
        poison(qm, b"msg %02d" % (moved - 1), times=1)
        if moved == 4:
            qm.alter_queue("B", put_enabled=False)
        world.disk.before_effect = look
        with qm.begin() as unit, pytest.raises(NoMessageAvailable):
            unit.get("A", backout_requeue=True)
        if moved % 2:
            qm.checkpoint()
        world.disk.before_effect = None
    assert not wrong, wrong[0]
    assert moments > 20
    assert (qm.queue("B").depth, qm.queue("DEAD").depth) == (3, 3)


# ---- consume


def test_consume_gives_each_message_in_a_unit_of_work(qm: qmgr.QueueManager) -> None:
    qm.put_many("A", [b"1", b"2", b"3"])
    seen = []
    for message, uow in qm.consume("A", wait=0.0):
        with uow:
            uow.put("B", message.body * 2)
            seen.append(message.body)
    assert seen == [b"1", b"2", b"3"]
    assert drain(qm, "B") == [b"11", b"22", b"33"]
    assert not qm.transactions()


def test_going_on_commits_and_leaving_with_an_error_backs_out(qm: qmgr.QueueManager) -> None:
    qm.put_many("A", [b"1", b"2", b"3"])
    with pytest.raises(ZeroDivisionError):
        for message, _ in qm.consume("A", wait=0.0):
            if message.body == b"2":
                raise ZeroDivisionError
    assert [(m.body, m.backout_count) for m in qm.browse("A")] == [(b"2", 1), (b"3", 0)]
    for message, uow in qm.consume("A"):
        uow.commit()
        if message.body == b"3":
            break
    assert not qm.transactions()


def test_a_consumer_as_a_with_block_commits_what_a_break_leaves_open(qm: qmgr.QueueManager) -> None:
    qm.put_many("A", [b"1", b"2", b"3"])
    with qm.consume("A") as messages:
        for message, _ in messages:
            if message.body == b"2":
                break
    assert bodies(qm, "A") == [b"3"]
    with pytest.raises(ZeroDivisionError), qm.consume("A") as messages:
        next(messages)
        raise ZeroDivisionError
    assert [m.backout_count for m in qm.browse("A")] == [1]


def test_a_poisoned_message_leaves_the_loop_alone(qm: qmgr.QueueManager) -> None:
    """Row 80."""
    qm.put_many("A", [b"good", b"poison", b"better"])
    tried: list[bytes] = []
    for message, uow in qm.consume("A", wait=0.0):
        tried.append(message.body)
        try:
            with uow:
                if message.body == b"poison":
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    assert tried == [b"good", b"poison", b"poison", b"better"]
    assert drain(qm, "B") == [b"poison"]
    assert not qm.transactions()


def test_consume_without_requeue_goes_on_trying(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"poison")
    counts = []
    for message, uow in qm.consume("A", wait=0.0, backout_requeue=False):
        counts.append(message.backout_count)
        if message.backout_count < 4:
            uow.backout()
    assert counts == [0, 1, 2, 3, 4]


def test_what_was_rolled_back_meanwhile_is_told(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"one")
    consumer = qm.consume("A", wait=0.0)
    _, uow = next(consumer)
    engine = qm._engine
    with engine.lock:
        uow._unit.evicted = True
        engine.back_out_locked(uow._unit)
    with pytest.raises(BackedOut):
        uow.commit()
    assert next(consumer)[0].backout_count == 1


@pytest.mark.interpreted
def test_a_commit_that_is_refused_leaves_no_message_locked(
    qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm.put("A", b"one")
    consumer = qm.consume("A", wait=0.0)
    next(consumer)

    def refuses(unit: Uow) -> None:
        raise ResourceProblem("no room")

    with monkeypatch.context() as patch, pytest.raises(ResourceProblem):
        patch.setattr(qm._engine, "commit", refuses)
        next(consumer)
    assert not qm.transactions()
    assert next(consumer)[0].backout_count == 1


def test_consume_waits_and_ends_with_the_queue_manager(real: Callable[..., qmgr.QueueManager]) -> None:
    qm = real()
    qm.define_queue("A")
    consumer = qm.consume("A")
    call = Call(lambda: next(consumer)[0].body)
    qm.put("A", b"late")
    assert call.outcome() == b"late"
    consumer.close()
    qm.get("A")
    waiting = Call(lambda: next(consumer))
    while not qm._engine.state.queues["A"].waiters.line:
        waiting.join(0.01)
    qm.end()
    with pytest.raises(Unavailable) as caught:
        waiting.outcome()
    assert caught.value.reason in (Reason.Q_MGR_QUIESCING, Reason.Q_MGR_STOPPING)


def test_an_unknown_queue_is_told_and_leaves_no_unit_of_work(qm: qmgr.QueueManager) -> None:
    with pytest.raises(MQError):
        next(qm.consume("NOT.THERE"))
    with pytest.raises(TypeError, match="has no option 'requeue'"):
        qm.get("A", requeue=True)  # type: ignore[call-arg]
    assert not qm.transactions()


class Lived:
    """Messages go in by an alias, are got with backout_requeue, and everything crashes: where is each of them?"""

    def __init__(self, seed: int, log_type: str) -> None:
        self.rng = random.Random(f"{log_type} {seed}")
        self.world = World(log_type=log_type, ini={"DefaultPQBufferSize": "3000"})
        qm = self.world.qm
        for queue in ("B", "DEAD"):
            qm.define_queue(queue, max_depth=self.rng.choice((5, 1000)))
        qm.define_queue("A", backout_threshold=2, backout_queue="TO")
        qm.define_alias("FROM", "A")
        qm.define_alias("TO", "B")
        qm.alter(dead_letter_queue="DEAD")
        self.there: set[bytes] = set()
        self.count = 0
        self.crashes = 0

    def new(self) -> bytes:
        self.count += 1
        return b"#%06d" % self.count

    def step(self) -> None:
        """One unit of work, or a checkpoint; `there` is what must be there when it is over, or `after` in doubt."""
        qm, rng = self.world.qm, self.rng
        after = set(self.there)
        try:
            if rng.random() < 0.5:
                self.world.disk.crash_after(rng.randint(1, 4), rng.choice((0.0, rng.random())))
            kind = rng.random()
            if kind < 0.15:
                qm.checkpoint()
            elif kind < 0.25:
                for queue in ("B", "DEAD"):
                    got = qm.get_many(queue, 1)
                    self.there -= {message.body[-7:] for message in got}
                after = self.there
            else:
                self.work(qm, after)
            self.world.disk.no_crash()
            self.there = after
        except BaseException:
            if not self.world.disk.dead:
                raise
            self.crashes += 1
            self.world.crash(mixed(rng.randrange(1 << 30)))
            found = self.found()
            assert found in (self.there, after) or kind < 0.25, (found ^ self.there, found ^ after)
            self.there = found

    def work(self, qm: qmgr.QueueManager, after: set[bytes]) -> None:
        rng = self.rng
        prepared = rng.random() < 0.2
        unit = qm.begin(qmgr.Xid(1, b"%d" % self.count, b"x") if prepared else None)
        ends = rng.random() < 0.55
        new = [self.new() for _ in range(rng.choice((0, 1, 3)))]
        unit.put_many("FROM", new)
        got = unit.get_many(rng.choice(("A", "FROM")), rng.choice((1, 4)), backout_requeue=True)
        if ends:
            after |= set(new)
            after -= {message.body for message in got}
        if prepared:
            unit.prepare()
            qm.resolve(unit.xid, commit=ends)  # type: ignore[arg-type]
        elif ends:
            unit.commit()
        else:
            unit.backout()

    def found(self) -> set[bytes]:
        qm = self.world.qm
        for xid in qm.in_doubt():
            qm.resolve(xid, commit=False)
        held = [body[-7:] for queue in ("A", "B", "DEAD") for body in bodies(qm, queue)]
        assert len(held) == len(set(held)), "a message is there twice"
        assert sum(info.depth for info in qm.queues()) == len(held)
        return set(held)


@pytest.mark.parametrize("log_type", ["circular", "linear"])
@pytest.mark.parametrize("seed", range(40 if SOAK else 4))
def test_random_lives_lose_nothing_and_double_nothing(seed: int, log_type: str, small_segments: object) -> None:
    life = Lived(seed, log_type)
    for _ in range(60):
        life.step()
    assert life.found() == life.there
    assert life.crashes > 1
    assert {info.name for info in life.world.qm.queues()} == {"A", "B", "DEAD"}
    assert len(life.world.qm.aliases()) == 2


# ---- very many of them


def many(limit: int, number: int) -> qmgr.QueueManager:
    """A queue manager whose queue A begins with so many messages that nobody can work on."""
    world = World(max_uncommitted=number)
    qm = world.qm
    qm.define_queue("B")
    qm.define_queue("A", backout_threshold=1, backout_queue="B")
    qm.put_many("A", [b"%d" % n for n in range(number)])
    with qm.begin() as unit:
        unit.get_many("A", number)
        unit.backout()
    qm.put("A", b"good")
    qm.alter(max_uncommitted=limit)
    return qm


@pytest.mark.parametrize("limit", [2, 3, 40, 1000])
def test_thousands_that_were_backed_out_do_not_stop_anybody(limit: int) -> None:
    qm = many(limit, 300)
    assert [message.body for message, _ in qm.consume("A", wait=0.0)] == [b"good"]
    assert qm.queue("B").depth == 300
    qm = many(limit, 300)
    assert qm.get("A", backout_requeue=True).body == b"good"
    qm = many(limit, 300)
    assert [one.body for one in qm.get_many("A", 100, backout_requeue=True)] == [b"good"]
    qm = many(limit, 300)
    session = qm.sessions.open(Peer(user="u"), AllRights())
    deliveries, _ = session.deliver("A", 10)
    assert [one.message.body for one in deliveries] == [b"good"]
    assert (qm.queue("B").depth, bodies(qm, "B")) == (300, [b"%d" % n for n in range(300)])


@pytest.mark.parametrize("how", ["get", "get_many", "deliver"])
def test_more_than_the_log_has_room_for_is_moved_in_several_units_of_work(world: World, how: str) -> None:
    """In one it held the log until it was rolled back for room, in each further call again: nobody got anything."""
    qm = world.qm
    qm.alter_queue("A", backout_threshold=1, backout_queue="B")
    for _ in range(20):
        qm.put("A", bytes(60_000))
    unit = qm.begin()
    unit.get_many("A", 20)
    unit.backout()
    qm.put("A", b"good", priority=0)
    if how == "get":
        assert qm.get("A", backout_requeue=True).body == b"good"
    elif how == "get_many":
        assert [one.body for one in qm.get_many("A", 100, backout_requeue=True)] == [b"good"]
    else:
        deliveries, _ = qm.sessions.open(Peer(user="u"), AllRights()).deliver("A", 100)
        assert [one.message.body for one in deliveries] == [b"good"]
    assert (qm.queue("A").depth, qm.queue("B").depth) == (0, 20)


@pytest.mark.interpreted
def test_outside_a_unit_of_work_nobody_hears_of_one_that_was_rolled_back() -> None:
    """Nor of 2003, which says that something of his is gone: the log had no room, and he may try again."""
    world = World()
    world.qm.define_queue("A", backout_threshold=1, backout_queue="B")
    world.qm.define_queue("B")
    poison(world.qm, times=1)
    engine = world.qm._engine
    room = engine._room_for_calls

    def rolled_back_meanwhile(unit: Uow, *given: Any) -> int:
        engine._room_for_calls = room  # type: ignore[method-assign]
        engine.log.changed.unlocked(lambda: world.qm._housekeeper.log_space._release_unit(unit))
        return room(unit, *given)

    engine._room_for_calls = rolled_back_meanwhile  # type: ignore[method-assign]
    with pytest.raises(ResourceProblem):
        world.qm.get("A", backout_requeue=True)
    assert (bodies(world.qm, "A"), bodies(world.qm, "B"), world.qm.status().units_of_work) == ([b"poison"], [], 0)
    assert world.qm.get_many("A", 1, backout_requeue=True) == []
    assert bodies(world.qm, "B") == [b"poison"]


@pytest.mark.interpreted
def test_what_others_do_while_the_log_makes_room_for_a_move_counts(qm: qmgr.QueueManager) -> None:
    """The message was got by somebody, or the queue that was to take it takes nothing more."""
    engine = qm._engine
    room = engine._room_for_calls

    def meanwhile(work: Callable[[], object]) -> None:
        def lets_go(*given: Any) -> int:
            engine._room_for_calls = room  # type: ignore[method-assign]
            engine.log.changed.unlocked(work)
            return room(*given)

        engine._room_for_calls = lets_go  # type: ignore[method-assign]

    poison(qm)
    taken: list[bytes] = []
    meanwhile(lambda: taken.append(qm.get("A").body))
    assert qm.get_many("A", 1, backout_requeue=True) == []
    assert (taken, bodies(qm, "A"), bodies(qm, "B")) == ([b"poison"], [], [])
    poison(qm)
    meanwhile(lambda: qm.alter_queue("B", put_enabled=False))
    assert qm.get("A", backout_requeue=True).body == b"poison"
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [])


def test_a_unit_of_work_of_ones_own_is_told_when_it_has_moved_too_many() -> None:
    qm = many(40, 50)
    with qm.begin() as unit:
        with pytest.raises(SyncpointLimit):
            unit.get("A", backout_requeue=True)
        unit.commit()
    assert (qm.queue("A").depth, qm.queue("B").depth) == (31, 20)


def test_a_consumer_goes_on_in_another_unit_of_work_when_one_has_moved_too_many() -> None:
    qm = many(40, 50)
    assert [message.body for message, _ in qm.consume("A", wait=0.0)] == [b"good"]
    assert (qm.queue("A").depth, qm.queue("B").depth) == (0, 50)


def test_where_nothing_else_is_there_it_is_moved_for_good_though_the_unit_of_work_is_backed_out(
    world: World, qm: qmgr.QueueManager
) -> None:
    """As it is by who leaves a `with` block by 2033. It was back each time, and one backout older."""
    poison(qm)
    with pytest.raises(NoMessageAvailable), qm.begin() as unit:
        unit.put("A", b"mine")
        unit.get("A", backout_requeue=True)
    assert (bodies(qm, "A"), bodies(qm, "B")) == ([], [b"poison"])
    poison(qm, b"again", correlation_id=b"c")
    qm.put("A", b"good")
    with pytest.raises(NoMessageAvailable), qm.begin() as unit:
        unit.get("A", correlation_id=b"c", backout_requeue=True)
    assert bodies(world.crash(), "B") == [b"poison", b"again"]
    with pytest.raises(NoMessageAvailable), world.qm.begin() as unit:
        assert unit.get("A", backout_requeue=True).body == b"good"
        unit.get("A", backout_requeue=True)
    assert bodies(world.qm, "A") == [b"good"]


def test_where_it_is_found_only_once_the_queue_is_indexed_it_is_moved_for_good_too(small_segments: object) -> None:
    """Seed 4217 of the lives with everything in them: it was moved in the unit of work that gets, and back with it."""
    world = World(ini={"DefaultPQBufferSize": "1000"})
    world.qm.define_queue("B")
    world.qm.define_queue("A", backout_threshold=2, backout_queue="B")
    world.qm.put_many("A", [b"good"] * 60)
    poison(world.qm, correlation_id=b"c")
    qm = world.restart()
    with pytest.raises(NoMessageAvailable), qm.begin() as unit:
        unit.get("A", correlation_id=b"c", backout_requeue=True)
    assert bodies(qm, "B") == [b"poison"]


def test_who_waits_in_a_unit_of_work_keeps_nothing_that_is_moved_meanwhile(
    real: Callable[..., qmgr.QueueManager],
) -> None:
    qm = real()
    qm.define_queue("B")
    qm.define_queue("A", backout_threshold=1, backout_queue="B")
    message = qm.put("A", b"poison")
    holder, waits = qm.begin(), qm.begin()
    holder.get("A", message_id=message.message_id)
    call = Call(lambda: waits.get("A", wait=30, backout_requeue=True).body)
    while not qm._engine.state.queues["A"].waiters.line:
        call.join(0.01)
    holder.backout()
    assert qm.get("B", wait=30).body == b"poison"
    qm.put("A", b"late")
    assert call.outcome() == b"late"
    waits.backout()
    assert bodies(qm, "A") == [b"late"]


def test_where_units_of_work_are_too_small_for_a_move_it_stays() -> None:
    qm = many(1, 3)
    assert [message.body for message, _ in qm.consume("A", wait=0.0)] == [b"0", b"1", b"2", b"good"]


@pytest.mark.parametrize("in_unit", [False, True])
def test_what_was_backed_out_too_often_is_found_behind_messages_whose_time_is_over(world: World, in_unit: bool) -> None:
    """They come into memory before it does: who looks at so many messages as are got sees only those."""
    qm = world.qm
    qm.alter_queue("A", backout_threshold=1, backout_queue="B", buffer_size=1)
    qm.put_many("A", [b"short" * 8000] * 2, expiry=10)
    qm.put_many("A", [b"poison" * 8000] * 2)
    unit = qm.begin()
    assert len(unit.get_many("A", 9)) == 4
    unit.backout()
    qm = world.restart()
    world.clock.advance(20)
    unit = qm.begin()
    assert (unit if in_unit else qm).get_many("A", 1, backout_requeue=True) == []
    unit.commit()
    assert bodies(qm, "A") == []
    assert bodies(qm, "B") == [b"poison" * 8000] * 2


def test_a_prepared_unit_of_work_moves_nothing_before_it_is_refused(qm: qmgr.QueueManager) -> None:
    poison(qm)
    unit = qm.begin(qmgr.Xid(1, b"g", b"b"))
    unit.put("B", b"mine")
    unit.prepare()
    with pytest.raises(qmgr.MQError) as caught:
        unit.get("A", backout_requeue=True)
    assert caught.value.reason == qmgr.Reason.UOW_NOT_AVAILABLE
    assert (bodies(qm, "A"), qm.queue("B").depth) == ([b"poison"], 1)


@pytest.mark.interpreted
def test_a_move_of_its_own_is_seen_as_its_callers(qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(qm)
    seen: list[str] = []
    unit = qm.begin()
    unit._unit.owner = "somebody"
    commit_later = qm._engine.commit_later

    def watching(unit: Uow) -> int:
        seen.append(unit.owner)
        return commit_later(unit)

    monkeypatch.setattr(qm._engine, "commit_later", watching)
    with pytest.raises(NoMessageAvailable):
        unit.get("A", backout_requeue=True)
    assert seen == ["somebody"]
