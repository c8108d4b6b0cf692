"""A checkpoint holds the state as of one moment, and is written while work goes on: neither takes from the other.

Before each change of a queue's files, of the checkpoint file or of the control file, a call is made, as another thread
may make it there; then the machine is lost, and once more when the checkpoint is complete.
"""

import random
from collections.abc import Callable

import pytest

from qmgr import queue_snapshot, segments
from tests.conftest import SOAK
from tests.sim.life import Life, Setup
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed
from tests.sim.paging import Counted

ROOMY = {"primary_files": 4, "file_pages": 256}  # so that no call needs a checkpoint to make room in the log
SETUPS = {
    "in memory": Setup(**ROOMY),
    "paged": Setup(buffer=2000, **ROOMY),
    "linear": Setup(buffer=2000, log_type="linear", **ROOMY),
}


def checkpoint_while(life: Life, work: Callable[[], None]) -> None:
    """A checkpoint, with a call to `work` before each change of the files that it writes."""
    working = False

    def look(kind: str, path: str) -> None:
        nonlocal working
        if not working and (path.endswith(".seg") or "amqalchk" in path or "amqhlctl" in path):
            working = True
            work()
            working = False

    life.disk.before_effect = look
    life.qm.checkpoint()
    life.disk.before_effect = None


def a_call(life: Life, rng: random.Random, *, by_id: bool) -> None:
    """One that changes what a checkpoint writes. Without gets `by_id` there are no indexes to be kept up."""
    queue = rng.choice(("A", "B"))
    units = [unit for unit in life.open if not life.model.units[unit].prepared]
    there = [msg.message_id for msg in life.model.find(queue, 1000) if msg.message_id]
    kind = rng.random()
    if kind < 0.2:
        life.put(queue, size=rng.choice((5, 300)), number=rng.randint(1, 4), priority=rng.choice((0, 4)))
    elif kind < 0.6 and there and by_id:
        unit = rng.choice([None, *units])
        life.get(queue, message_id=int.from_bytes(rng.choice(there), "big"), unit=unit)
    elif kind < 0.75:
        life.get(queue, limit=rng.randint(1, 5), unit=rng.choice([None, *units]))
    elif units and kind < 0.95:
        rng.choice((life.commit, life.backout))(rng.choice(units))
    else:
        life.begin()


@pytest.mark.parametrize("name", SETUPS)
def test_what_is_done_while_a_checkpoint_writes_is_neither_lost_nor_done_twice(
    name: str, small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults 2, 17, 18, 34."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 2000)
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)  # so that segments are rewritten
    calls = 0
    for seed in range(200 if SOAK else 3):
        rng = random.Random(f"{name} {seed}")
        life = Life(SETUPS[name], seed=seed)
        life.create()
        life.start()
        for queue in ("A", "B"):
            life.define(queue)

        def work(life: Life = life, rng: random.Random = rng, seed: int = seed) -> None:
            nonlocal calls
            calls += 1
            a_call(life, rng, by_id=seed % 2 == 0)
            if rng.random() < 0.3:
                fork = life.fork(rng.choice((KEEP_ALL, LOSE_ALL, mixed(calls))))
                fork.restart()
                fork.check()

        for _ in range(6):
            for queue in ("A", "B"):
                life.put(queue, number=rng.randint(3, 12), size=rng.choice((5, 100)), priority=rng.choice((0, 4)))
                for _ in range(4):
                    life.put(queue, persistent=rng.random() < 0.8)
            for _ in range(3):
                a_call(life, rng, by_id=seed % 2 == 0)
            life.story.append("checkpoint")
            checkpoint_while(life, work)
            fork = life.fork(LOSE_ALL)
            fork.restart()
            fork.checkpoint()
            fork.crash(LOSE_ALL)
            fork.restart()
        life.check()
    assert calls > 100
    assert small_segments.calls["_replace"] >= 3
    assert small_segments.calls["_unpack_next"] >= 3
    assert small_segments.calls.get("_page_out_run", 0) >= (3 if SETUPS[name].buffer else 0)
