"""rebuild: what Spark makes of images and the log is what the model says and what recover-to builds.

The lives are those of `tests/test_point_in_time.py`: their disk, with its archived and compressed extents, is written
to real files, from which the job reads.
"""

import argparse
import datetime
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pytest
from pyspark.errors import PySparkValueError
from pyspark.sql.datasource import InputPartition

from logger.errors import LogDamaged
from pipeline import built, finding
from pipeline.__main__ import parser_of
from pipeline.dividing import Part
from pipeline.image_source import ImageReader
from pipeline.images import Extent, batches, parts_of, records_of
from pipeline.jobs import content, job, rebuild
from pipeline.jobs.common import Failure
from pipeline.jobs.rebuild import Found
from pipeline.log_files import LogFiles
from pipeline.report import TEXT, Report
from qmgr.errors import AlreadyExists, Damaged
from qmgr.objects import QueueDefinition
from qmgr.survey import Survey
from recovery.errors import NotRecoverable
from recovery.image import ImagePlace
from recovery.records import Kind
from tests.conftest import SOAK
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
        refused = told(one.data, folder / "out", "--at", str(mark.lsn), "--into", str(folder / "into"))
        try:
            assert rebuild.run(refused, spark) == 10
            assert "Not built" in (folder / "out" / TEXT).read_text()
        except NotRecoverable as exc:
            assert "older extents back, or take a later moment" in str(exc)
        return False
    words = "--at", str(mark.lsn), "--into", str(folder / "into")
    assert rebuild.run(told(one.data, folder / "out", *words), spark) == 0
    agree(messages(spark, folder / "out"), after(mark))
    return True


@pytest.mark.parametrize(("name", "seed", "number"), [("deep", 1, 1 if SOAK else 0), ("automatic", 4, 1)])
def test_it_is_what_the_model_says_and_what_recover_to_builds(
    name: str, seed: int, number: int, spark: "SparkSession", tmp_path: Path, small_segments: Counted
) -> None:
    """At LSNs of lives with crashes, from active, archived and compressed extents; or the log begins too late."""
    one = lived(name, seed, tmp_path)
    came_back = [
        examine(spark, one, mark, tmp_path / f"at{place}")
        for place, mark in enumerate(one.chosen(random.Random(seed), number))
    ]
    assert came_back == ([True] * (number + 1) if name == "deep" else [False, True])
    forms = {Path(path).suffix for path in one.life.disk.files(LOG)}
    assert bool(forms & {".gz", ".zst"}) is (name == "deep")


def test_what_lies_before_a_gap_in_the_log_is_nobodys_concern(spark: "SparkSession", tmp_path: Path) -> None:
    """As where extents were archived before the log was circular for a while: those between will never come back."""
    life = Marked(LINEAR)
    life.create()
    life.start()
    life.define("A")
    for _ in range(70):
        life.put("A", size=12000)
        life.get("A")
    life.put("A", number=3)
    life.checkpoint()
    life.record_image()
    life.put("A")
    life.end()
    data = written(life.disk, tmp_path)
    log = finding.find(str(data), NAME)
    size, end = log.extent_bytes, log.end()
    assert end > 3 * size
    Path(log.directories[0], "S0000001.LOG").unlink()
    with pytest.raises(LogDamaged, match=r"S0000001\.LOG is missing"):
        log.first()
    assert [log.unbroken(at) for at in (end, 3 * size, 2 * size + 8, 2 * size, 0)] == [3 * size] * 3 + [size] * 2
    args = told(data, tmp_path / "out")
    rebuild.check(args)
    assert rebuild.run(args, spark) == 0
    agree(messages(spark, tmp_path / "out"), life.model)
    with pytest.raises(NotRecoverable, match=r"begins at <0:0:12:0>, .*; bring S0000001\.LOG"):
        rebuild.check(told(data, tmp_path / "out", "--at", str(2 * size + 8)))


@pytest.mark.parametrize("partition", [None, InputPartition(None)])  # of Spark 4.1, and of newer ones
def test_a_log_without_images_is_read_as_one_that_has_no_messages_in_them(partition: InputPartition | None) -> None:
    """Spark makes up a partition where there is nothing to read."""
    assert list(ImageReader({"path": "/no/such/log", "images": "[]"}).read(partition)) == []


def test_a_moment_before_a_gap_in_the_log_is_found_as_recover_to_finds_it(
    spark: "SparkSession", tmp_path: Path
) -> None:
    life = Marked(LINEAR)
    life.create()
    life.start()
    life.define("A")
    for _ in range(3):
        life.put("A")
    then, model = life.clock.wall, life.model.copy()
    life.clock.advance(60)
    for _ in range(90):
        life.put("A", size=12000)
        life.get("A")
    life.end()
    data = written(life.disk, tmp_path)
    log = finding.find(str(data), NAME)
    size, end = log.extent_bytes, log.end()
    assert end > 3 * size
    assert log.stretch(then, end) == (size, end), "nothing is missing"
    Path(log.directories[0], "S0000001.LOG").unlink()
    assert log.stretch(then, end) == (size, 2 * size)
    assert log.stretch(0, end) == (size, 2 * size), "the oldest ones, where nothing is so old"
    assert log.stretch(life.clock.wall, end) == (3 * size, end)
    at = datetime.datetime.fromtimestamp(then / 1e6, datetime.UTC).isoformat()
    args = told(data, tmp_path / "out", "--at", at, "--into", str(tmp_path / "into"))
    rebuild.check(args)
    assert rebuild.run(args, spark) == 0
    agree(messages(spark, tmp_path / "out"), model)
    border = told(data, tmp_path / "border", "--at", str(2 * size))
    rebuild.check(border)
    assert rebuild.run(border, spark) == 0


def test_the_tables_are_there_also_where_the_queue_manager_can_not_be_built(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """As on a disk that is full: they were removed, after all their work."""
    life = Marked(LINEAR)
    life.create()
    life.start()
    life.define("A")
    life.put("A", number=3)
    life.end()
    data = written(life.disk, tmp_path)
    (tmp_path / "into" / "qmgrs" / NAME / "queues").mkdir(parents=True)  # made since the job looked
    with pytest.raises(AlreadyExists):
        rebuild.run(told(data, tmp_path / "out", "--into", str(tmp_path / "into")), spark)
    assert [row["sequence"] for row in messages(spark, tmp_path / "out")["A"]] == [1, 2, 3]
    said = (tmp_path / "out" / TEXT).read_text()
    assert "It was not built, or can't be read: " in said
    assert f"has a queue manager {NAME!r} already" in said


# Without Spark


def test_a_moment_in_a_gap_of_the_log_is_refused_as_recover_to_refuses_it(tmp_path: Path) -> None:
    """What is missing may be from before it: without that the queues would be told as they were when it began."""
    life = Marked(LINEAR)
    life.create()
    life.start()
    life.define("A")
    for _ in range(90):
        life.clock.advance(1)
        life.put("A", size=12000)
        life.get("A")
    life.end()
    data = written(life.disk, tmp_path)
    log = finding.find(str(data), NAME)
    size, end = log.extent_bytes, log.end()
    times = [log.last_before(number * size) for number in (2, 3)]
    before, within = (one.time for one in times if one is not None)
    gap = Path(log.directories[0], "S0000001.LOG")
    gap.unlink()
    life.disk.remove(f"{LOG}/{NAME}/active/{gap.name}")
    assert log.stretch(before - 1, end) == (size, 2 * size)
    for moment in (before + 1_000_000, within):
        with pytest.raises(Damaged, match=r"S0000001\.LOG is missing"):
            recover(life, "/into", time_us=moment)
        at = datetime.datetime.fromtimestamp(moment / 1e6, datetime.UTC).isoformat()
        with pytest.raises(LogDamaged, match=r"S0000001\.LOG is missing"):
            rebuild.check(told(data, tmp_path / "out", "--at", at))


def test_where_a_queue_can_not_be_built_no_queue_manager_is(capsys: pytest.CaptureFixture[str]) -> None:
    for into, missing, built_then in (("/d", ["Q lacks its image"], False), ("/d", [], True), (None, ["Q"], False)):
        report = Report("Queues")
        assert rebuild.may_build(into, missing, report) is built_then
        told = into is not None and bool(missing)
        assert ("It was not built: that takes all of its queues." in report.text()) is told
        assert ("no queue manager was built" in capsys.readouterr().err) is told


def test_an_image_is_read_as_rows_also_when_another_one_lies_between_its_parts(
    tmp_path: Path, small_segments: Counted
) -> None:
    """What was gone when it was recorded is not in it; nor is what another image, before or after it, has."""
    life = Marked(LINEAR)
    life.create()
    life.start()
    for queue in ("A", "B"):
        life.define(queue)
        life.put(queue, number=20, size=300)
    life.record_image()
    life.get("A", limit=5)
    life.put("A", number=3, priority=7)
    life.record_image("A")
    life.put("A")
    life.end()
    log = finding.find(str(written(life.disk, tmp_path)), NAME)
    start, end = log.first(), log.end()
    begun = [raw.lsn for raw in records_of(log, start, end) if raw.kind == Kind.IMAGE_START]
    ended = [raw.end for raw in records_of(log, start, end) if raw.kind == Kind.IMAGE_END]
    images = [Extent(*place) for place in zip(sorted(begun), sorted(ended), strict=True)]
    found = [
        sorted((row["sequence"], row["priority"]) for part in parts_of(log, [one]) for row in rows_in(part, one.start))
        for one in images
    ]
    assert sorted(map(len, found[:3])) == [18, 20, 20]
    [latest] = [each for each in found if len(each) == 18]
    assert [priority for _, priority in latest[-3:]] == [7, 7, 7]
    assert len({sequence for sequence, _ in latest}) == 18


def rows_in(part: Part, image: int) -> "list[dict[str, Any]]":
    return [row for batch in batches(part, frozenset([image])) for row in batch.to_pylist()]


def test_a_queue_that_can_not_be_built_is_named_with_what_it_needs(tmp_path: Path) -> None:
    log = LogFiles(directories=("/log",), log_id=bytes(16), extent_bytes=1 << 18)
    survey = Survey(5 << 18, 9 << 18, complete=True)
    survey.queues = {
        1: (QueueDefinition(name="GONE", id=1), ImagePlace(3 << 18, 3 << 18, (3 << 18) + 800, 0)),
        2: (QueueDefinition(name="NEVER", id=2), None),
        3: (QueueDefinition(name="NEW", id=3), ImagePlace(6 << 18, 6 << 18, 6 << 18, 0)),
        4: (QueueDefinition(name="IMAGED", id=4), ImagePlace(7 << 18, (7 << 18) - 8, 6 << 18, 0)),
    }
    notes = '{"units": {"12": 9000}, "backouts": {"3": 2}}'
    known, missing = rebuild.known_queues(Found(survey, {7 << 18: notes}, {7 << 18: 8 << 18}), log)
    assert missing == [
        "queue 'GONE' needs the log from <0:0:12:800> on: bring S0000002.LOG and later ones back",
        "queue 'NEVER' has no media image in the log: record one (rcdmqimg), take a later moment",
    ]
    assert [(one.name, one.image, one.units, one.backouts) for one in known] == [
        ("NEW", None, {}, {}),
        ("IMAGED", Extent(7 << 18, 8 << 18), {12: 9000}, {3: 2}),
    ]


def test_a_queue_manager_is_built_beside_one_not_from_a_folder_of_extents() -> None:
    nothing: Any = None  # it is refused before Spark is asked
    args = parser_of(job("rebuild")).parse_args(["/x", "--out", "/y", "--into", "/z"])
    with pytest.raises(Failure, match="takes the data path of the original and --qmgr"):
        rebuild.run(args, nothing)


class Connected:
    """What a session of Spark Connect makes of a table: without rows it does not know the columns by itself."""

    def createDataFrame(self, rows: pa.Table, schema: str | None = None) -> tuple[pa.Table, str]:
        if schema is None and not rows.num_rows:
            raise PySparkValueError(errorClass="CANNOT_INFER_EMPTY_SCHEMA", messageParameters={})
        return rows, str(schema)


def test_tables_without_rows_say_their_columns(spark: "SparkSession") -> None:
    columns = {"object_number": pa.int32(), "object": pa.string()}
    _, said = rebuild.table(Connected(), columns, [])  # type: ignore[arg-type, misc]
    assert said == "object_number INT, object STRING"
    for rows in [], [(7, "A")]:
        made = rebuild.table(spark, columns, rows)
        assert made.schema.simpleString() == "struct<object_number:int,object:string>"
        assert [tuple(row) for row in made.collect()] == rows


def test_what_a_unit_of_work_that_was_rolled_forward_says_again_counts_once(spark: "SparkSession") -> None:
    """Unit 5 is committed, 6 in doubt, 7 backed out; each has put a message and got one."""
    xid = "1:0a:0b"
    rows: list[tuple[object, ...]] = []
    for unit in (5, 6, 7):
        said = [("PUT", unit, None, 1, None, 0, None), ("GET", unit, None, 1, unit + 2, None, None)]
        rows += [*said, ("ROLL_FORWARD", unit, xid, None, None, None, None), *said]
    rows += [("COMMIT", 5, None, None, None, None, {1: 10}), ("BACKOUT", 7, None, None, None, None, None)]
    columns = "kind STRING, uow BIGINT, xid STRING, object_number INT, sequence BIGINT, ordinal BIGINT"
    log = spark.createDataFrame(rows, f"{columns}, bases MAP<INT, BIGINT>").cache()
    outcomes = content.outcomes_of(log)
    placed = content.placed_puts(log.where("kind = 'PUT'").drop("kind", "xid", "bases"), outcomes)
    assert [row["sequence"] for row in content.visible_puts(placed).collect()] == [10]
    assert [row["uow"] for row in content.uncommitted_puts(placed).collect()] == [6]
    places = "object_number INT, sequence BIGINT"
    there = spark.createDataFrame([(1, sequence, 0) for sequence in (7, 8, 9)], f"{places}, uow BIGINT")
    before = spark.createDataFrame([(1, 9, 2)], f"{places}, backouts BIGINT")
    left = content.what_is_left(there, content.gets_of(log.where("kind = 'GET'"), outcomes), before)
    found = {row["sequence"]: (row["state"], row["backout_count"]) for row in left.collect()}
    assert found == {8: (built.LOCKED, 0), 9: (built.READY, 3)}
    assert left.count() == 2


def test_what_was_committed_while_its_queue_was_damaged_is_missed_in_the_report(spark: "SparkSession") -> None:
    """Of unit 5, which was in doubt, queue 1 was damaged when it was committed; the log gives no places there."""
    rows: list[tuple[object, ...]] = [
        ("PUT", 5, None, 1, 0, None), ("PUT", 5, None, 2, 1, None), ("PUT", 5, None, 1, 2, None),
        ("ROLL_FORWARD", 5, "1:0a:0b", None, None, None),
        ("PUT", 5, None, 1, 0, None), ("PUT", 5, None, 2, 1, None), ("PUT", 5, None, 1, 2, None),
        ("COMMIT", 5, None, None, None, {2: 60}),
    ]  # fmt: skip
    columns = "kind STRING, uow BIGINT, xid STRING, object_number INT, ordinal BIGINT, bases MAP<INT, BIGINT>"
    log = spark.createDataFrame(rows, columns)
    puts = log.where("kind = 'PUT'").selectExpr("*", "cast(null as bigint) as sequence").drop("bases")
    found = content.puts_without_place(puts, content.outcomes_of(log))
    assert sorted((row["object_number"], row["ordinal"]) for row in found.collect()) == [(1, 0), (1, 2)]
