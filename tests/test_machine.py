"""The real queue manager against the model: whatever is called in whatever order, whatever crashes, they agree.

`test_a_random_life...` lives long lives from seeds; the state machine lets Hypothesis look for the short program that
breaks a promise, and shrink it.
"""

import random
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

import qmgr
from qmgr import queue_snapshot, segments, store
from tests.conftest import SOAK
from tests.sim.life import AUTOMATIC, DATA, LINEAR, NAME, QUEUES, SINGLE, TRIPLE, Life, Setup, random_life
from tests.sim.loss import mixed
from tests.sim.paging import Counted
from tests.test_crash import laps_of

SETUPS = {
    "triple": TRIPLE,
    "single": SINGLE,
    "synced by the system": Setup(log_sync="os"),
    "two secondaries": Setup(secondary_files=2, checkpoint_records=7),
    "linear": LINEAR,
    "automatic": AUTOMATIC,
    "linear single": Setup(
        log_type="linear", log_management="Automatic", write_integrity="SingleWrite", primary_files=3
    ),
}
DEEP = {
    "deep triple": Setup(buffer=3000, checkpoint_records=40),
    "deep single": Setup(buffer=1, write_integrity="SingleWrite", secondary_files=2),
    "deep linear": Setup(buffer=3000, checkpoint_records=40, log_type="linear", log_management="Automatic"),
}


def drawn(seed: int) -> Setup:
    """Any way to make a queue manager that is small."""
    rng = random.Random(f"setup {seed}")
    return Setup(
        write_integrity=rng.choice(("SingleWrite", "TripleWrite")),
        primary_files=rng.randint(2, 4),
        secondary_files=rng.randint(1, 3),
        log_type=rng.choice(("circular", "circular", "linear")),
        log_management=rng.choice(("Manual", "Automatic")),
        buffer_pages=rng.choice((18, 18, 40, 200)),
        checkpoint_records=rng.choice((0, 0, 1, 3, 20)),
    )


@pytest.mark.parametrize("name", [*SETUPS, "drawn"])
def test_a_random_life_keeps_every_promise(name: str) -> None:
    """P1-P6; faults 1-18, 20-22, 27-29, 31, 34, 37 in any mixture."""
    failed: list[str] = []
    restarts = 0
    harmed = recreated = 0
    linear = name in SETUPS and SETUPS[name].linear
    for seed in range(3000 if SOAK else 8 if linear else 5):
        setup = drawn(seed) if name == "drawn" else SETUPS[name]
        life = Life(setup, seed=seed)
        try:
            random_life(life, random.Random(f"{name} {seed}"), 80)
        except Exception as exc:
            failed.append(f"seed {seed} of {name}: {exc!r}\n{life.tell()}")
            if len(failed) >= 3:
                break
        restarts += life.restarts
        harmed += life.harmed
        recreated += life.recreated
    assert not failed, "\n\n".join(failed)
    assert restarts > 24
    if linear:
        assert harmed > 6
        assert recreated > 6


@pytest.fixture
def tiny_segments(small_segments: Counted, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Segments of a few blocks, rewritten as soon as half of what they hold is gone, and arrays that do not fit."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 2000)
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)
    monkeypatch.setattr(store, "MAX_INDEX_BYTES", 800)
    return small_segments


@pytest.mark.parametrize("name", DEEP)
def test_a_random_life_of_deep_queues_keeps_every_promise(name: str, tiny_segments: Counted) -> None:
    """The same where most messages are in segments only, which are read, rewritten and searched while it lives."""
    failed: list[str] = []
    for seed in range(1500 if SOAK else 7):
        life = Life(DEEP[name], seed=seed)
        try:
            random_life(life, random.Random(f"{name} {seed}"), 120)
        except Exception as exc:
            failed.append(f"seed {seed} of {name}: {exc!r}\n{life.tell()}")
            if len(failed) >= 3:
                break
    assert not failed, "\n\n".join(failed)
    did = tiny_segments.calls | {"paged out": tiny_segments.paged_out, "evicted": tiny_segments.evicted}
    for what, least in {
        "paged out": 1400,
        "_page_in": 230,
        "_unpage": 70,
        "_take_paged": 280,
        "_replace": 4,
        "evicted": 600,
        "_unpack_next": 140,
    }.items():
        assert did[what] > least, did


@pytest.mark.parametrize(("name", "seed"), [("synced by the system", 71)])
def test_a_life_that_once_broke_a_promise(name: str, seed: int) -> None:
    """71: a page began at home, its spare page was not synced, and then home was overwritten."""
    random_life(Life(SETUPS[name], seed=seed), random.Random(f"{name} {seed}"), 80)


@pytest.mark.parametrize("name", ["triple", "single", "two secondaries", "automatic"])
def test_a_long_life_goes_round_the_log_many_times(name: str) -> None:
    """P5, P6: the log wraps three times and more, with a crash now and then."""
    for seed in range(50 if SOAK else 1):
        life = Life(SETUPS[name], seed=seed)
        try:
            random_life(life, random.Random(-seed - 1), 1100 if SOAK else 800, crashes=0.03)
        except Exception as exc:
            raise AssertionError(f"seed {seed} of {name}: {exc!r}\n{life.tell()}") from exc
        assert laps_of(life) >= 3, f"seed {seed} of {name}"


SIZES = st.sampled_from([1, 50, 700, 4096, 13000])
PRIORITIES = st.sampled_from([0, 4, 9])


class Machine(RuleBasedStateMachine):
    """Calls on both sides; a crash may strike inside any of them."""

    units = Bundle("units")
    setup_name = "triple"

    def __init__(self) -> None:
        super().__init__()
        self.life = Life((SETUPS | DEEP)[self.setup_name])

    def do(self, call: Callable[[], object]) -> object:
        """Make a call; when the disk dies in it, restart from what is left."""
        try:
            return call()
        except BaseException:
            if not self.life.disk.dead:
                raise
            self.life.crash(mixed(self.loss, atomic=self.life.setup.atomic))
            self.recover([])
            return None

    def recover(self, depths: list[int]) -> None:
        """Restart, with a crash inside after so many changes of the disk, as often as there are numbers."""
        for number, depth in enumerate(depths):
            self.life.disk.crash_after(depth)
            try:
                self.life.restart()
            except BaseException:
                if not self.life.disk.dead:
                    raise
                self.life.crash(mixed(self.loss + number, atomic=self.life.setup.atomic))
            else:
                self.life.disk.no_crash()
                return
        self.life.restart()

    @initialize()
    def born(self) -> None:
        self.loss = 0
        self.life.create()
        self.life.start()
        for queue in QUEUES[:2]:
            self.life.define(queue)
        if self.life.setup.buffer:
            for number in range(30):
                self.life.put("A", priority=4 * (number % 2), persistent=number % 5 > 0, correlation=number % 3)
            self.life.checkpoint()

    @rule(effects=st.integers(1, 15), part=st.sampled_from([0.0, 0.3, 0.9]), loss=st.integers(0, 9999))
    def crash_soon(self, effects: int, part: float, loss: int) -> None:
        """The disk dies at one of the next changes, inside whatever is called then."""
        self.loss = loss
        self.life.disk.crash_after(effects, part)

    @rule(loss=st.integers(0, 9999), depths=st.lists(st.integers(1, 40), max_size=3))
    def crash_now(self, loss: int, depths: list[int]) -> None:
        self.loss = loss
        self.life.crash(mixed(loss, atomic=self.life.setup.atomic))
        self.recover(depths)

    @rule()
    def end_and_start(self) -> None:
        def call() -> None:
            self.life.end()
            self.life.start()
            self.life.check()

        self.do(call)

    @rule(
        queue=st.sampled_from(QUEUES),
        size=SIZES,
        number=st.sampled_from([1, 1, 3]),
        priority=PRIORITIES,
        persistent=st.booleans(),
        correlation=st.integers(0, 2),
    )
    def put(self, queue: str, size: int, number: int, priority: int, persistent: bool, correlation: int) -> None:
        if queue in self.life.model.queues:
            self.do(
                lambda: self.life.put(
                    queue,
                    size=size,
                    number=number,
                    priority=priority,
                    persistent=persistent,
                    correlation=correlation,
                )
            )

    @rule(unit=units, queue=st.sampled_from(QUEUES), size=SIZES, priority=PRIORITIES, number=st.sampled_from([1, 1, 3]))
    def put_in_unit(self, unit: object, queue: str, size: int, priority: int, number: int) -> None:
        if self.active(unit) and queue in self.life.model.queues:
            self.do(lambda: self.life.put(queue, size=size, number=number, priority=priority, unit=unit))

    @rule(queue=st.sampled_from(QUEUES), limit=st.sampled_from([1, 1, 4]), correlation=st.none() | st.integers(0, 2))
    def get(self, queue: str, limit: int, correlation: int | None) -> None:
        if queue in self.life.model.queues:
            self.do(lambda: self.life.get(queue, limit=limit, correlation=correlation))

    @rule(queue=st.sampled_from(QUEUES), data=st.data())
    def get_by_message_id(self, queue: str, data: st.DataObject) -> None:
        there = [msg.message_id for msg in self.life.model.queues.get(queue, ())]
        if there:
            number = int.from_bytes(data.draw(st.sampled_from(there)), "big")
            self.do(lambda: self.life.get(queue, message_id=number))

    @rule(unit=units, queue=st.sampled_from(QUEUES), limit=st.sampled_from([1, 1, 4]))
    def get_in_unit(self, unit: object, queue: str, limit: int) -> None:
        if self.active(unit) and queue in self.life.model.queues:
            self.do(lambda: self.life.get(queue, limit=limit, unit=unit))

    @precondition(lambda self: len(self.life.model.units) < 4)
    @rule(target=units, prepares=st.booleans())
    def begin(self, prepares: bool) -> object:
        self.life.count += 1
        key = self.do(lambda: self.life.begin(qmgr.Xid(1, b"%d" % self.life.count, b"") if prepares else None))
        return key if key is not None else multiple()

    def active(self, unit: object) -> bool:
        return unit in self.life.open and not self.life.model.units[unit].prepared

    @rule(unit=units)
    def commit(self, unit: object) -> None:
        if unit in self.life.open:
            self.do(lambda: self.life.commit(unit))

    @rule(unit=units)
    def backout(self, unit: object) -> None:
        if unit in self.life.open:
            self.do(lambda: self.life.backout(unit))

    @rule(unit=units)
    def prepare(self, unit: object) -> None:
        if self.active(unit) and isinstance(unit, qmgr.Xid):
            self.do(lambda: self.life.prepare(unit))

    @rule(unit=units, commit=st.booleans())
    def resolve(self, unit: object, commit: bool) -> None:
        if unit in self.life.model.in_doubt():
            self.do(lambda: self.life.resolve(unit, commit=commit))

    @rule()
    def checkpoint(self) -> None:
        self.do(self.life.checkpoint)

    @rule(queue=st.sampled_from(QUEUES))
    def define_alter_or_delete(self, queue: str) -> None:
        life = self.life
        if queue not in life.model.queues:
            self.do(lambda: life.define(queue, f"made at {life.count}"))
        elif life.model.queues[queue] or life.used_by_units(queue):
            self.do(lambda: life.alter(queue, f"altered at {life.count}"))
        else:
            self.do(lambda: life.delete(queue))

    @precondition(lambda self: self.life.setup.linear)
    @rule(queue=st.sampled_from([*QUEUES, None]))
    def record_image(self, queue: str | None) -> None:
        if queue is None or queue in self.life.model.queues:
            self.do(lambda: self.life.record_image(queue))

    @precondition(lambda self: self.life.setup.linear)
    @rule(queue=st.sampled_from(QUEUES), seed=st.none() | st.integers(0, 999), online=st.booleans())
    def recreate(self, queue: str, seed: int | None, online: bool) -> None:
        """For nothing, or because a file was harmed: then while it runs, or at the next start."""
        if queue not in self.life.model.queues:
            return
        if seed is not None and self.life.harm(queue, random.Random(seed)) and not online:
            self.crash_now(seed, [])
        else:
            self.do(lambda: self.life.recreate(queue))

    @invariant()
    def the_queue_manager_agrees_with_the_model(self) -> None:
        if self.life.qm is not None:
            self.life.check()

    def teardown(self) -> None:
        if self.life.qm is not None:
            self.life.disk.no_crash()
            self.life.settle()


@pytest.mark.parametrize("name", ["triple", "single", "automatic"])
def test_no_program_breaks_a_promise(name: str) -> None:
    """P1-P6, by Hypothesis: the smallest program that does is printed."""

    class Named(Machine):
        setup_name = name

    run_state_machine_as_test(Named, settings=settings(max_examples=1500 if SOAK else 9, stateful_step_count=40))


def test_no_program_breaks_a_promise_of_deep_queues(tiny_segments: Counted) -> None:
    """The same with nothing in memory that a checkpoint has written."""

    class Deep(Machine):
        setup_name = "deep single"

    run_state_machine_as_test(Deep, settings=settings(max_examples=1500 if SOAK else 18, stateful_step_count=40))
    assert tiny_segments.paged_out > 160
    assert tiny_segments.calls["_page_in"] > 0  # usually 15 to 150
    assert tiny_segments.calls["_unpage"] + tiny_segments.calls["_take_paged"] > 0


# -- what was found by these tests once: the smallest program for each ------------------------------------------------


def born() -> Life:
    life = Life()
    life.create()
    life.start()
    life.define("A")
    return life


def test_a_message_given_back_is_found_by_its_id() -> None:
    """The index was made while the message was locked."""
    life = born()
    life.put("A")  # taken by the unit of work, and passed over
    one = life.count
    life.put("A")
    unit = life.begin()
    life.get("A", unit=unit)
    life.get("A", limit=1)
    life.get("A", message_id=12345)
    life.get("A", correlation=77)
    life.backout(unit)
    assert life.get("A", message_id=one) == 1


def test_a_message_given_back_is_found_in_replay() -> None:
    """The index by sequence was made, in the replay, while the message was locked."""
    life = born()
    for n in range(6):
        life.put("A", correlation=n)
    unit = life.begin(qmgr.Xid(1, b"x", b""))
    life.get("A", unit=unit)
    life.prepare(unit)
    life.checkpoint()
    life.get("A")
    life.get("A", correlation=4)  # from the middle: the replay needs the index for it
    life.resolve(unit, commit=False)
    life.get("A")
    life.crash()
    life.restart()


# -- threads ---------------------------------------------------------------------------------------------------------


class Worker(threading.Thread):
    """Puts numbers in order to its first queue and moves them, in order, to its second; a few in each unit of work."""

    def __init__(self, qm: qmgr.QueueManager, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.qm = qm
        self.queues = (f"{name}.A", f"{name}.B")
        self.rng = random.Random(f"{name} {seed}")
        self.put = 0  # numbers below this were put, and that was acknowledged
        self.moved = 0
        self.trying = (0, 0)  # the same if the call under way succeeds
        self.stop = False
        self.goes_on = threading.Event()  # cleared while it has to rest
        self.goes_on.set()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop:
                self.goes_on.wait()
                self.step()
        except BaseException as exc:
            self.error = exc

    def step(self) -> None:
        a, b = self.queues
        put, moved = self.put, self.moved
        unit = self.qm.begin()
        try:
            for _ in range(self.rng.randint(0, 3)):
                unit.put(a, b"%d" % put + b"." * self.rng.choice((1, 300, 5000)))
                put += 1
            for message in unit.get_many(a, self.rng.randint(1, 5)):
                assert int(message.body.split(b".")[0]) == moved
                unit.put(b, message.body)
                moved += 1
            if self.rng.random() < 0.1:
                unit.backout()
                return
            self.trying = (put, moved)
            unit.commit()
        except (qmgr.ResourceProblem, qmgr.BackedOut):
            self.trying = (self.put, self.moved)
            unit.backout()
            return
        self.put, self.moved = put, moved
        if moved > 100 and self.rng.random() < 0.05:
            self.qm.alter_queue(a, description=f"moved {moved}")


def numbers(life: Life, queue: str) -> list[int]:
    return [int(message.body.split(b".")[0]) for message in life.qm.browse(queue)]


@pytest.mark.parametrize(
    ("integrity", "buffer"),
    [("TripleWrite", 0), ("SingleWrite", 0), ("TripleWrite", 1000)],
    ids=["triple", "single", "deep"],
)
def test_threads_lose_nothing_in_a_crash_at_any_moment(integrity: str, buffer: int, tiny_segments: Counted) -> None:
    """Faults 12, 21, 22: group commit, checkpoints, secondaries and wraps at once; the disk is looked at in between."""
    setup = Setup(write_integrity=integrity, secondary_files=3, checkpoint_records=60, buffer=buffer)
    life = Life(setup)
    life.create()
    qm = qmgr.start(NAME, data_path=DATA, disk=life.disk, background=True)
    workers = [Worker(qm, f"W{n}", 1) for n in range(4)]
    for worker in workers:
        for queue in worker.queues:
            qm.define_queue(queue)
        worker.start()
    looked = 0

    def enough() -> bool:
        """Whether there was all of what is counted below; a slow machine looks on until then."""
        made = [path for kind, path in list(life.disk.trace) if kind == "create" and path.endswith(".LOG")]
        paged_in = not buffer or tiny_segments.calls["_page_in"] > 20
        return looked > 10 and sum(w.moved for w in workers) > 200 and len(made) > setup.primary_files and paged_in

    until = time.monotonic() + (300 if SOAK else 0.5)
    while time.monotonic() < until or (looked < 2000 and not enough()):
        time.sleep(0.005)
        before = [(worker.put, worker.moved) for worker in workers]
        disk = life.disk.snapshot(mixed(looked, atomic=setup.atomic))
        after = [worker.trying for worker in workers]
        other = Life(setup, disk)
        other.start()
        looked += 1
        for worker, least, most in zip(workers, before, after, strict=True):
            a, b = (numbers(other, queue) for queue in worker.queues)
            moved = len(b)
            assert b == list(range(moved)), f"{worker.queues}: {b[:5]}..."
            assert a == list(range(moved, moved + len(a))), f"{worker.queues}: {a[:5]}..."
            found = (moved + len(a), moved)
            assert least[0] <= found[0] <= max(most[0], least[0]), (looked, least, found, most)
            assert least[1] <= found[1] <= max(most[1], least[1]), (looked, least, found, most)
        assert not any(worker.error for worker in workers), [worker.error for worker in workers]
    for worker in workers:
        worker.stop = True
    for worker in workers:
        worker.join(120)
        assert worker.error is None
    qm.end()
    assert looked > 10
    assert sum(worker.moved for worker in workers) > 200
    files = [path for kind, path in life.disk.trace if kind == "create" and path.endswith(".LOG")]
    assert len(files) > setup.primary_files, "no secondary was ever made"
    if buffer:
        assert tiny_segments.calls["_page_in"] > 20
