"""What the tests of `qmgr.log` share: a log with a past of some hours in files of all forms, and readings of it."""

import datetime
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter

import qmgr
from logger.claims import USED
from logger.disk import File
from logger.posix_disk import PosixDisk
from pipeline.log_options import Asked, asked
from pipeline.log_table import LogPartition, LogTable, PushedLogTable, rows_in
from pipeline.schema import COLUMNS, arrow_of
from tests.qmgr.world import NAME
from tests.sim.clock import SimClock

LINEAR: dict[str, Any] = {"log_type": "linear", "log_primary_files": 4, "log_file_pages": 64, "log_buffer_pages": 18}
EXTENT = 64 * 4096
BEGAN = datetime.datetime.fromtimestamp(SimClock().wall // 1_000_000, datetime.UTC)
HOURS = 9
NEVER = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)
A_TIME = 30  # messages in an hour

Row = dict[str, Any]


def queue_of(hour: int) -> str:
    return f"Q{hour % 3}"


def work(qm: qmgr.QueueManager, hour: int) -> None:
    """An hour: messages to one queue, in and outside units of work, and gets; about an extent of log."""
    queue = queue_of(hour)
    for number in range(A_TIME):
        body = f"{hour}.{number} ".encode().ljust(7000, b".")
        if number % 3:
            qm.put(queue, body, priority=number % 10, properties={"hour": hour}, reply_to="Q0")
            continue
        with qm.begin() as uow:
            uow.put(queue, body, correlation_id=b"c%d" % number)
            if number % 6 == 0 and qm.queue(queue).depth > 1:
                uow.get(queue)


def make(path: Path) -> SimClock:
    """A queue manager that has ended: extents that are archived, compressed and active, an hour or so each."""
    clock = SimClock()
    qmgr.create(NAME, data_path=path, clock=clock, **LINEAR)
    with qmgr.start(NAME, data_path=path, clock=clock, background=False) as qm:
        for number in range(3):
            qm.define_queue(f"Q{number}")
        for hour in range(HOURS):
            work(qm, hour)
            clock.advance(3600)
        qm.record_image()
        qm.checkpoint()
        qm.checkpoint()
        assert list(qm.replay("Q0", NEVER)) == []  # who looks for a moment has extents indexed
        qm.archive_log(older_than="3h")
        qm.compress_log(older_than="6h")
    return clock


def files(path: Path) -> list[Path]:
    """Extents in all forms, the oldest first."""
    return sorted(path.rglob("S*.LOG*"), key=lambda file: file.name)


def copy(path: Path, to: Path) -> Path:
    """The log directory in another place, with nothing that leads to the old one."""
    shutil.copytree(path / "log" / NAME, to)
    (to / USED).unlink()
    return to


def options(path: Path, **more: str) -> Asked:
    return asked({"path": str(path), "qmgr": NAME, **more})


class CountingDisk(PosixDisk):
    """The disk, and how many bytes of which extents were read."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}

    def open_read(self, path: str) -> File:
        return Counting(super().open_read(path), Path(path).name, self.read)

    @property
    def of_extents(self) -> int:
        return sum(size for name, size in self.read.items() if ".LOG" in name)


class Counting:
    """A file that counts what is read of it."""

    def __init__(self, file: File, name: str, counts: dict[str, int]) -> None:
        self._file, self._name, self._counts = file, name, counts

    def read(self, offset: int, size: int) -> bytes:
        data = self._file.read(offset, size)
        self._counts[self._name] = self._counts.get(self._name, 0) + len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def table(said: Asked, *filters: Filter, columns: tuple[str, ...] = COLUMNS) -> LogTable:
    """What Spark's planner makes of these options, told these filters."""
    made = PushedLogTable(said, arrow_of(columns))
    given = list(filters)
    assert list(made.pushFilters(given)) == given, "Spark is to apply all filters again"
    return made


def parts(made: LogTable, disk: CountingDisk | None = None) -> list[LogPartition]:
    found = made.planned(disk)
    assert all(isinstance(one, LogPartition) for one in found)
    return found  # type: ignore[return-value]


def read(made: LogTable, disk: CountingDisk | None = None) -> list[Row]:
    """All rows, as a worker gives them."""
    return [
        row for part in parts(made, disk) for batch in rows_in(part, made.target, disk) for row in batch.to_pylist()
    ]
