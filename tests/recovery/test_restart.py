"""Restart: a pure function of checkpoint and log; what does not fit together is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr import Xid
from tests.qmgr.world import DATA, NAME, World, bodies
from tests.sim.loss import KEEP_ALL, LOSE_ALL

STEP = st.sampled_from(["put", "many", "get", "unit", "prepare", "backout", "checkpoint", "np", "expire"])


def do(world: World, step: str, n: int) -> None:
    qm, body = world.qm, b"%d" % n
    if step == "put":
        qm.put("A", body, priority=n % 10)
    elif step == "many":
        qm.put_many("A", [body] * 3)
    elif step == "get":
        qm.get_many("A", 1 + n % 3)
    elif step == "checkpoint":
        qm.checkpoint()
    elif step == "np":
        qm.put("A", body, persistent=False)
    elif step == "expire":
        qm.put("A", body, expiry=1)
        world.clock.advance(2)
    else:
        unit = qm.begin(Xid(1, body, b""))
        unit.get_many("A", 1)
        unit.put("B", body)
        if step == "prepare":
            unit.prepare()
        elif step == "backout":
            unit.backout()
        elif n % 2:
            unit.commit()


def contents(qm: qmgr.QueueManager) -> object:
    return (
        [(m.body, m.priority, m.backout_count, m.message_id) for m in qm.browse("A")],
        [(m.body, m.priority, m.backout_count, m.message_id) for m in qm.browse("B")],
        qm.in_doubt(),
        [(q.name, q.depth, q.uncommitted) for q in qm.queues()],
    )


@given(st.lists(STEP, max_size=15))
def test_replaying_the_same_log_twice_gives_the_same(steps: list[str]) -> None:
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
    for n, step in enumerate(steps):
        do(world, step, n)
    found = []
    for _ in range(2):
        again = World.__new__(World)
        again.disk, again.clock = world.disk.snapshot(KEEP_ALL), world.clock
        again.start()
        found.append(contents(again.qm))
        again.crash(LOSE_ALL)
        found.append(contents(again.qm))
    assert found[0] == found[1] == found[2] == found[3]


@given(st.lists(STEP, max_size=15))
def test_row_34_everything_of_a_message_survives_an_end_in_order(steps: list[str]) -> None:
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
    for n, step in enumerate(steps):
        do(world, step, n)
    for unit in world.qm.transactions():
        if unit.xid is not None and unit.xid in world.qm.in_doubt():
            world.qm.resolve(unit.xid, commit=True)
    before = [(m.body, m.priority, m.message_id) for name in ("A", "B") for m in world.qm.browse(name) if m.persistent]
    open_units = len(world.qm.transactions())
    world.restart()
    after = [(m.body, m.priority, m.message_id) for name in ("A", "B") for m in world.qm.browse(name)]
    if open_units == 0:
        assert after == before
    else:
        assert set(before) <= set(after)


def test_row_43_a_log_and_a_checkpoint_of_different_moments_are_refused_or_replayed() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", b"old")
    world.qm.end()
    old = {path: world.disk.peek(path) for path in world.disk.files() if "/log/" not in path}
    world.start()
    for _ in range(600):
        world.qm.put("A", bytes(3000))
        world.qm.get("A")
    world.qm.put("A", b"new")
    world.qm.end()
    for path, content in old.items():
        world.disk.poke(path, content)
    with pytest.raises(qmgr.Damaged, match="restore"):
        world.start()


def test_row_36_an_error_while_reading_stops_the_restart_and_changes_nothing() -> None:
    world = World()
    world.qm.define_queue("A")
    for n in range(20):
        world.qm.put("A", b"%d" % n)
        if n == 10:
            world.qm.checkpoint()
    base = world.disk.crash()
    nth = 0
    while True:
        nth += 1
        trial = World.__new__(World)
        trial.disk, trial.clock = base.snapshot(), world.clock
        trial.disk.fail("read", 5, nth=nth)
        try:
            trial.start()
        except qmgr.MQError as exc:
            assert f"queue manager {NAME!r} can't be started" in str(exc)
            assert trial.disk.locked_by(f"{DATA}/qmgrs/{NAME}/qm.lock") is None
            trial.disk.heal()
            trial.start()
        else:
            if trial.disk.counts["read"] < nth:
                break
        assert bodies(trial.qm, "A") == [b"%d" % n for n in range(20)], nth
    assert nth > 5
