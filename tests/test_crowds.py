"""Several threads at once, in lives that are the same for the same seed: what is right for one is right for many.

`tests/sim/crowd.py` says what they do. A failure prints its seed: `live(17, monkeypatch)`, with segments that are as
small as here, is that life again.
"""

from collections import Counter

import pytest

from qmgr import segments, snapshot, store
from tests.conftest import SOAK
from tests.sim.crowd import live
from tests.sim.paging import Counted

LIVES = 1000 if SOAK else 12  # in each part
# What the lives of a part do together, far less than they do: else they prove little.
LEAST = {"put": 180, "get": 150, "commit": 18, "backout": 12, "prepare": 3, "resolve": 3, "browse": 18}
LEAST |= {"checkpoint": 12, "crashes": 12}


@pytest.mark.interpreted
@pytest.mark.parametrize("part", range(3))
def test_many_threads_at_once_keep_every_promise(
    part: int, small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "LARGEST", 2000)
    monkeypatch.setattr(snapshot, "SLACK", 0)
    monkeypatch.setattr(store, "INDEXES", 800)
    did: Counter[str] = Counter()
    for seed in range(part * LIVES, (part + 1) * LIVES):
        did.update(live(seed, monkeypatch).did)
    assert {what: did[what] for what, least in LEAST.items() if did[what] < least} == {}
