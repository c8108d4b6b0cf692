"""Lives with everything in them: what is right alone is right in any mixture, whatever crashes.

`tests/sim/full_life.py` says what there is in them. A failure prints its seed: `live(17, STEPS)`, with segments that
are as small as here, is that life again.
"""

from collections import Counter

import pytest

from qmgr import queue_snapshot, segments, store
from tests.conftest import SOAK
from tests.sim.full_life import live
from tests.sim.paging import Counted

STEPS = 120
LIVES = 2000 if SOAK else 30  # in each part
# What the lives of a part do together, far less than they do: else they prove little.
LEAST = {"crashes": 80, "ends": 25, "migrate": 1, "image": 3, "recreate": 1}
LEAST |= {"put": 300, "get": 200, "prepare": 3, "resolve": 3, "commit": 10, "backout": 80}
LEAST |= {"define": 40, "alter": 60, "alias": 8, "delete": 10, "deliver": 20, "clear": 5, "browse": 30, "moved": 1}
LEAST |= {"no room": 3, "harm": 1, "accept": 1, "replayed": 1}
NO_ROOM = ("2102", "rolled back for room", "rolled forward for room")


@pytest.mark.parametrize("part", range(3 if SOAK else 1))
def test_a_life_with_everything_in_it_keeps_every_promise(
    part: int, small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1-P6, P8; faults 1-4, 6-9, 14-18, 20-29, 31, 33, 34, 37, 38, 68, 80 in any mixture."""
    monkeypatch.setattr(
        segments, "MAX_SEGMENT_BYTES", 2000
    )  # segments of a few blocks, rewritten when half of them is gone
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)
    monkeypatch.setattr(store, "MAX_INDEX_BYTES", 800)
    did: Counter[str] = Counter()
    failed: list[str] = []
    for seed in range(part * LIVES, (part + 1) * LIVES):
        try:
            did.update(live(seed, STEPS).did)
        except AssertionError as exc:
            failed.append(str(exc))
            if len(failed) >= 3:
                break
    assert not failed, "\n\n".join(failed)
    did["no room"] = sum(did[what] for what in NO_ROOM)
    assert {what: did[what] for what, least in LEAST.items() if did[what] < least} == {}
