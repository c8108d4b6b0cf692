"""What the tests of a log in many extents share: logs of every form, two pasts of one, and a disk that counts."""

import copy
from collections.abc import Callable
from typing import Any

import qmgr
from logger.compressed import Compression, compress
from logger.disk import File
from logger.posix_disk import PosixDisk
from pipeline import dividing, finding, naming, opened
from pipeline.log_files import LogFiles
from tests.pipeline.reference import Row
from tests.pipeline.works import ACTIVE, Works, index, told_of
from tests.qmgr.world import DATA, NAME
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL

STEPS = ["put", "one", "unit", "many", "long", "begin", "prepare", "put_many", "fill", "image", "one", "get"]


def a_log(seed: int = 3, *, indexed: bool = True) -> Works:
    """Some extents, with indexes or without."""
    works = Works(seed)
    for turn in range(3):
        for step in STEPS:
            works.do(step)
        if turn == 1:
            works.qm.put("A", bytes(600_000))
    works.stop()
    for path in [path for path in works.world.disk.files() if path.endswith(".IDX")]:
        works.world.disk.remove(path)
    if indexed:
        index(works)
    return works


def moved(works: Works, compression: list[Compression | None]) -> None:
    """The extents by turns archived as they are or compressed, with their indexes, but for the last ones."""
    disk = works.world.disk
    disk.mkdir(f"{DATA}/log/{NAME}/archive")
    names = sorted(name for name in disk.list(ACTIVE) if name.endswith(".LOG"))
    for number, name in enumerate(names[:-4]):
        source, target = f"{ACTIVE}/{name}", f"{DATA}/log/{NAME}/archive/{name}"
        kind = compression[number % len(compression)]
        if kind is None:
            disk.rename(source, target)
        else:
            compress(disk, source, target + kind.suffix, kind)
            disk.unlink(source)
        index = name.replace(".LOG", ".IDX")
        if disk.exists(f"{ACTIVE}/{index}"):
            disk.rename(f"{ACTIVE}/{index}", f"{DATA}/log/{NAME}/archive/{index}")


class Counting(PosixDisk):
    """Counts the bytes that are read."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.bytes = 0

    def open_read(self, path: str) -> Any:
        return CountedFile(self, self._disk.open_read(path))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)


class CountedFile:
    def __init__(self, disk: Counting, file: File) -> None:
        self._disk = disk
        self._file = file
        self.size, self.sync, self.close = file.size, file.sync, file.close

    def read(self, offset: int, size: int) -> bytes:
        found = self._file.read(offset, size)
        self._disk.bytes += len(found)
        return found


def a_day() -> Works:
    """Fifty queues that are used all the time, one that is used at the end, over some hours; all indexed."""
    works = Works()
    qm, clock = works.qm, works.world.clock
    for number in range(50):
        qm.define_queue(f"Q{number}")
    qm.define_queue("LATE")
    for hour in range(12):
        for number in range(250):
            with qm.begin() as unit:
                unit.put(f"Q{number * 7 % 50}", bytes(300))
            qm.put(f"Q{number * 11 % 50}", bytes(300))
            qm.get_many(f"Q{number * 13 % 50}", 5)
        if hour == 10:
            qm.put("LATE", b"only this")
        qm.checkpoint()
        clock.advance(3600)
    works.fill()
    works.stop()
    index(works)
    return works


def folder(disk: SimDisk) -> LogFiles:
    """The same extents, without a control file that says what is durable."""
    return finding.find(ACTIVE, disk=disk)


def two_pasts(one: Callable[[qmgr.QueueManager], None], other: Callable[[qmgr.QueueManager], None]) -> list[SimDisk]:
    """A log and a copy of it, each of which has gone on in its own way at another time; both with indexes."""
    works = Works()
    works.stop()
    disks = []
    for go_on in one, other:
        works.world.clock.advance(60)
        world = copy.copy(works.world)
        world.disk = works.world.disk.snapshot(KEEP_ALL)
        world.start()
        go_on(world.qm)
        world.qm.end()
        assert {row["body_length"] for row in rows_of(folder(world.disk), world.disk)} >= {400_000}
        disks.append(world.disk)
    return disks


def put_large(qm: qmgr.QueueManager) -> None:
    for _ in range(5):
        qm.put("A", bytes(400_000))


def rows_of(log: LogFiles, disk: SimDisk) -> list[Row]:
    """Read anew, whatever this process knows of another past."""
    opened._indexes.clear()
    naming._known.clear()
    parts = dividing.plan(log, log.first(disk), log.end(disk=disk), disk=disk)
    return [row for part in parts for row in told_of(part, disk)]
