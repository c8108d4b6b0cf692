"""Several threads at once, in lives that are the same for the same seed: what is right for one is right for many.

`tests/sim/crowd.py` says what they do. A failure prints its seed: `live(17, monkeypatch)`, with segments that are as
small as here, is that life again.
"""

import gc
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from logger import force
from qmgr import queue_snapshot, segments, store
from tests.conftest import SOAK
from tests.sim.crowd import live
from tests.sim.paging import Counted, make_small

ROOT = Path(__file__).parents[1]
LIVES = 1000 if SOAK else 7  # in each part
# What the lives of a part do together, far less than they do: else they prove little.
LEAST = {"put": 120, "get": 100, "commit": 12, "backout": 8, "prepare": 2, "resolve": 2, "browse": 12}
LEAST |= {"checkpoint": 8, "crashes": 8}


def make_smaller(patch: pytest.MonkeyPatch) -> None:
    """Segments that are rewritten, and arrays that are dropped, all the time."""
    patch.setattr(segments, "MAX_SEGMENT_BYTES", 2000)
    patch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)
    patch.setattr(store, "MAX_INDEX_BYTES", 800)


@pytest.mark.interpreted
@pytest.mark.parametrize("part", range(3))
def test_many_threads_at_once_keep_every_promise(
    part: int, small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_smaller(monkeypatch)
    did: Counter[str] = Counter()
    for seed in range(part * LIVES, (part + 1) * LIVES):
        did.update(live(seed, monkeypatch).did)
    assert {what: did[what] for what, least in LEAST.items() if did[what] < least} == {}


@pytest.mark.interpreted
def test_threads_that_other_tests_have_left_take_no_turns(
    small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They make locks of their own meanwhile: a turn that one of them took would be lost."""
    over, made = threading.Event(), []

    def goes_on() -> None:
        while not over.is_set():
            turn = force.Turn(1)
            turn.wake()
            made.append(type(turn.gate))
            over.wait(0.001)

    other = threading.Thread(target=goes_on)
    other.start()
    try:
        for seed in range(4):
            live(seed, monkeypatch)
    finally:
        over.set()
        other.join()
    assert len(made) > 10 and set(made) == {type(threading.Lock())}


def tell(seed: int, threshold: int) -> None:
    """Live it in a process of its own, in which garbage is collected as often as that, and say how it went."""
    gc.set_threshold(threshold)
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        make_smaller(patch)
        life = live(seed, patch)
    assert life.turns.preempt  # it changes hands where functions begin, those too that the collector calls
    print(*life.story, sep="\n")


@pytest.mark.interpreted
def test_a_seed_is_the_same_life_in_any_process_whenever_garbage_is_collected() -> None:
    """In new ones: where other tests have run it depends on them."""
    told = []
    for threshold in (700, 50):
        script = f"from tests.test_crowds import tell; tell(5, {threshold})"
        environment = {**os.environ, "PYTHONHASHSEED": str(threshold)}
        words = [sys.executable, "-c", script]
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0].count("\n") > 100
    assert told[0] == told[1]
