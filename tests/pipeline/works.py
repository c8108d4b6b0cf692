"""Work on a queue manager with a linear log, of every shape, for the tests that read its log."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import qmgr
from logger.disk import Disk
from logger.errors import LogDamaged
from pipeline import dividing, finding, naming, opened, rows
from pipeline.dividing import Part
from pipeline.filters import EVERYTHING, Filters
from pipeline.log_files import LogFiles
from pipeline.schema import COLUMNS, MOMENT
from qmgr.errors import NoMessageAvailable
from recovery import extent_index
from tests.pipeline.reference import Row
from tests.qmgr.world import DATA, NAME, World

QUEUES = ("A", "B", "C.D")
ACTIVE = f"{DATA}/log/{NAME}/active"


class Works:
    """A queue manager whose log keeps all there ever was, at work as a seed has it."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        naming._known.clear()  # all logs on simulated disks have one identity
        opened._indexes.clear()
        self.world = World(log_type="linear", log_secondary_files=8, **options)
        self.random = random.Random(seed)
        self.units: list[qmgr.UnitOfWork] = []
        self.doubts: list[qmgr.Xid] = []
        for queue in QUEUES:
            self.qm.define_queue(queue)
        self.steps: dict[str, Callable[[], None]] = {
            "put": self.put, "put_many": self.put_many, "get": self.get, "one": self.one, "unit": self.unit,
            "begin": self.begin, "go_on": self.go_on, "end": self.end, "drop": self.drop, "prepare": self.prepare,
            "resolve": self.resolve, "expire": self.expire, "alias": self.alias, "queue": self.queue,
            "image": self.image, "checkpoint": self.checkpoint, "alter": self.alter, "long": self.long,
            "many": self.many, "fill": self.fill, "restart": self.restart, "crash": self.crash,
        }  # fmt: skip

    @property
    def qm(self) -> qmgr.QueueManager:
        return self.world.qm

    @property
    def disk(self) -> Disk:
        return self.world.disk

    def log(self) -> LogFiles:
        return finding.find(DATA, NAME, self.disk)

    def do(self, step: str) -> None:
        with contextlib.suppress(qmgr.MQError):  # it may refuse, and a unit of work may have been backed out
            self.steps[step]()

    def stop(self) -> None:
        """End in order, and leave the log as it is."""
        self.qm.end("immediate")

    # ---- steps

    def _queue(self) -> str:
        return self.random.choice(QUEUES)

    def _body(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 1, 7, 50, 256, 300)))

    def put(self) -> None:
        choices: list[dict[str, Any]] = [
            {},
            {"properties": {"n": 7, "t": "tä", "f": 0.5, "b": True, "x": b"\x00\xff"}, "format": "MQSTR"},
            {"reply_to": "A", "priority": 7, "correlation_id": b"c" * 24},
            {"expiry": 3600.0, "persistent": True},
            {"group_id": b"g", "properties": {"k": ""}},
            {"persistent": False},
        ]
        self.qm.put(self._queue(), self._body(), **self.random.choice(choices))

    def put_many(self) -> None:
        self.qm.put_many(self._queue(), [self._body() for _ in range(self.random.randint(1, 30))])

    def get(self) -> None:
        self.qm.get_many(self._queue(), self.random.choice((1, 1, 20)))

    def one(self) -> None:
        """The normal case: units of work of one message."""
        for _ in range(self.random.choice((1, 40))):
            with self.qm.begin() as unit:
                unit.put(self._queue(), self._body())
            with self.qm.begin() as unit:
                self._get(unit)

    def _get(self, unit: qmgr.UnitOfWork) -> None:
        try:
            unit.get(self._queue())
        except NoMessageAvailable:
            unit.put(self._queue(), b"", persistent=False)

    def _call(self, unit: qmgr.UnitOfWork) -> None:
        match self.random.randrange(4):
            case 0:
                unit.put_many(self._queue(), [self._body() for _ in range(self.random.choice((2, 40)))])
            case 1:
                unit.get_many(self._queue(), 5)
            case 2:
                self._get(unit)
            case _:
                unit.put(self._queue(), self._body(), priority=self.random.randrange(10))

    def unit(self) -> None:
        with self.qm.begin() as unit:
            for _ in range(self.random.randint(1, 30)):
                self._call(unit)

    def begin(self) -> None:
        self.units.append(self.qm.begin())
        self._call(self.units[-1])

    def go_on(self) -> None:
        if self.units:
            self._call(self.random.choice(self.units))

    def end(self) -> None:
        if self.units:
            self.units.pop(0).commit()

    def drop(self) -> None:
        if self.units:
            self.units.pop().backout()

    def prepare(self) -> None:
        xid = qmgr.Xid(self.random.randrange(-5, 5), self.random.randbytes(8), b"branch")
        unit = self.qm.begin(xid)
        for _ in range(self.random.choice((1, 1, 5))):
            self._call(unit)
        unit.prepare()
        self.doubts.append(xid)

    def resolve(self) -> None:
        if self.doubts:
            self.qm.resolve(self.doubts.pop(0), self.random.random() < 0.6)

    def expire(self) -> None:
        self.qm.put_many("A", [b"short"] * self.random.choice((1, 5)), expiry=1.0)
        self.world.clock.advance(5)
        self.qm.get_many("A", 2)
        self.qm.checkpoint()

    def alias(self) -> None:
        if "ALIAS" in {one.name for one in self.qm.aliases()}:
            self.qm.delete_alias("ALIAS")
        else:
            self.qm.define_alias("ALIAS", "A")
            self.qm.put("ALIAS", b"by another name")

    def queue(self) -> None:
        """A queue comes, and goes, and comes again with another number."""
        self.qm.define_queue("PASSING", max_depth=self.random.randint(5, 9))
        self.qm.put("PASSING", b"x")
        self.qm.delete_queue("PASSING", purge=True)

    def image(self) -> None:
        self.qm.record_image(self._queue())

    def checkpoint(self) -> None:
        self.qm.checkpoint()

    def alter(self) -> None:
        self.qm.alter(description=f"number {self.random.randrange(9)}")

    def long(self) -> None:
        """A message longer than a frame, at times than an extent."""
        self.qm.put("B", self.random.randbytes(self.random.choice((40_000, 70_000, 600_000))))

    def many(self) -> None:
        """A unit of work with many short runs, logged in several records."""
        with self.qm.begin() as unit:
            for number in range(400):
                unit.put(QUEUES[number % 3], b"%d" % number * 20)

    def fill(self) -> None:
        """Into the next extents, so that what prepared units of work have done is said again."""
        for _ in range(self.random.choice((20, 60))):
            self.qm.put("B", bytes(10_000))
            self.qm.get_many("B", 2)
            self.qm.checkpoint()

    def restart(self) -> None:
        self.units.clear()
        self.world.restart()

    def crash(self) -> None:
        self.units.clear()
        self.world.crash()


def index(works: Works) -> list[str]:
    """Build the indexes of all extents but the last two; their paths."""
    disk, log = works.world.disk, works.log()
    history = log.history(disk)
    built = []
    for place in list(history.places().values())[:-1]:
        with contextlib.closing(history.reader(log)) as reader, contextlib.suppress(LogDamaged):
            extent_index.store(disk, place, extent_index.build(reader, place, log.log_id, log.extent_bytes))
            built.append(extent_index.path_of(place))
    return built


def told(log: LogFiles, disk: Disk, filters: Filters = EVERYTHING, columns: tuple[str, ...] = COLUMNS) -> list[Row]:
    """The rows of the log as it is planned and read, moments as microseconds."""
    parts = dividing.plan(log, log.first(disk), log.end(disk=disk), filters, disk)
    return [row for part in parts for row in told_of(part, disk, filters, columns)]


def told_of(
    part: Part, disk: Disk, filters: Filters = EVERYTHING, columns: tuple[str, ...] = COLUMNS, count: int = 16384
) -> list[Row]:
    return [row for batch in rows.batches(part, columns, filters, disk, count) for row in as_rows(batch)]


def as_rows(batch: pa.RecordBatch) -> list[Row]:
    batch.validate(full=True)
    columns = [column.cast(pa.int64()) if column.type == MOMENT else column for column in batch.columns]
    found: list[Row] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return found
