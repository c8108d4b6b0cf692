"""rebuild: what Spark makes of images and the log is what the model says and what recover-to builds.

The lives are those of `tests/test_point_in_time.py`: their disk, with its archived and compressed extents, is written
to real files, from which the job reads.
"""

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from pipeline import built
from pipeline.__main__ import parser_of
from pipeline.jobs import job, rebuild
from pipeline.report import TEXT
from qmgr.errors import Damaged
from recovery.errors import NotRecoverable
from tests.model import Model
from tests.sim.disk import SimDisk
from tests.sim.life import AUTOMATIC, DATA, LINEAR, LOG, NAME, random_life
from tests.sim.paging import Counted
from tests.test_point_in_time import XID, Mark, Marked, after, doubt, recover, stop

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

DOUBTFUL = f"{XID.format_id}:{XID.gtrid.hex()}:{XID.bqual.hex()}"


def written(disk: SimDisk, folder: Path) -> Path:
    """The files of the simulated disk below `folder`; the data path there."""
    for path in disk.files(DATA) + disk.files(LOG):
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        data = disk.peek(path)
        if file.name == "qm.ini":
            data = data.replace(LOG.encode(), f"{folder}{LOG}".encode())
        file.write_bytes(data)
    return folder / DATA.lstrip("/")


def told(data: Path, out: Path, *words: str) -> argparse.Namespace:
    return parser_of(job("rebuild")).parse_args([str(data), "--qmgr", NAME, "--out", str(out), *words])


def messages(spark: "SparkSession", out: Path) -> "dict[str, list[Row]]":
    """What was written, by queue, in the order of delivery."""
    found: dict[str, list[Row]] = {}
    rows = spark.read.schema(rebuild.ddl_of(rebuild.CONTENT)).parquet(f"{out}/{rebuild.MESSAGES}").collect()
    for row in sorted(rows, key=lambda row: (-row["priority"], row["sequence"] or 0)):
        found.setdefault(row["object"], []).append(row)
    return found


def agree(found: "dict[str, list[Row]]", model: Model) -> None:
    """Each message to its backout count, as far as the model knows it; those of units of work in doubt too."""
    assert found.keys() <= model.queues.keys()
    for queue in model.queues:
        rows = found.get(queue, [])
        ready = [row for row in rows if row["state"] == built.READY]
        expected = model.find(queue, 1 << 60)
        assert [(bytes(row["body"]), row["priority"]) for row in ready] == [(m.body, m.priority) for m in expected], (
            queue
        )
        for row, message in zip(ready, expected, strict=True):
            assert message.least <= row["backout_count"] <= message.backouts
            assert message.message_id in (b"", bytes(row["message_id"]))
            assert (bytes(row["correlation_id"]), row["body_length"]) == (message.correlation_id, len(message.body))
        units = [unit for unit in model.units.values() if unit.prepared]
        for state, calls in ((built.LOCKED, "gets"), (built.UNCOMMITTED, "puts")):
            bodies = sorted(m.body for unit in units for name, m in getattr(unit, calls) if name == queue)
            doubtful = [row for row in rows if row["state"] == state]
            assert sorted(bytes(row["body"]) for row in doubtful) == bodies
            assert {row["xid"] for row in doubtful} <= {DOUBTFUL}


@attrs.frozen
class Lived:
    life: Marked
    data: Path

    def chosen(self, rng: random.Random, number: int) -> list[Mark]:
        """Some marks, in their order, and before the last one of a moment at which something was in doubt."""
        doubtful = [mark for mark in self.life.marks if mark.model.in_doubt()]
        return [*sorted(rng.sample(self.life.marks, number), key=lambda mark: mark.lsn), rng.choice(doubtful)]


def lived(name: str, seed: int, folder: Path) -> Lived:
    setup = {"linear": LINEAR, "automatic": AUTOMATIC, "deep": attrs.evolve(LINEAR, buffer=2000, checkpoint_records=40)}
    life, rng = Marked(setup[name], seed=seed, archiving=True), random.Random(f"{name} {seed}")
    random_life(life, rng, 80, crashes=0.1)
    doubt(life, rng)
    stop(life, rng)
    return Lived(life, written(life.disk, folder))


def examine(spark: "SparkSession", one: Lived, mark: Mark, folder: Path) -> bool:
    """Rebuild as of the mark, in both ways; False where the log no longer reaches so far back, for either of them."""
    try:
        recover(one.life, f"/{folder.name}", lsn=mark.lsn)
    except Damaged:
        refused = told(one.data, folder / "out", "--at", str(mark.lsn))
        try:
            assert rebuild.run(refused, spark) == 10
            assert "Not built" in (folder / "out" / TEXT).read_text()
        except NotRecoverable as exc:
            assert "bring the older extents back" in str(exc)
        return False
    words = "--at", str(mark.lsn), "--into", str(folder / "into")
    assert rebuild.run(told(one.data, folder / "out", *words), spark) == 0
    agree(messages(spark, folder / "out"), after(mark))
    return True


@pytest.mark.parametrize(("name", "seed", "number"), [("deep", 1, 1), ("automatic", 4, 1)])
def test_it_is_what_the_model_says_and_what_recover_to_builds(
    name: str, seed: int, number: int, spark: "SparkSession", tmp_path: Path, small_segments: Counted
) -> None:
    """At LSNs of lives with crashes, from active, archived and compressed extents; or the log begins too late."""
    one = lived(name, seed, tmp_path)
    came_back = [
        examine(spark, one, mark, tmp_path / f"at{place}")
        for place, mark in enumerate(one.chosen(random.Random(seed), number))
    ]
    assert came_back == ([True, True] if name == "deep" else [False, True])
    forms = {Path(path).suffix for path in one.life.disk.files(LOG)}
    assert bool(forms & {".gz", ".zst"}) is (name == "deep")
