"""Extents of a linear log for tests: made of noise, or by the log itself."""

import random
from typing import Any

from logger import at_rest
from logger.config import LogConfig
from logger.control import ControlState
from logger.disk import PAGE
from logger.extent import DATA, ExtentHeader, file_name, linear_number
from logger.log import Log
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk

ID = b"identity of 16 b"
ACTIVE, ARCHIVE = "/log/active", "/log/archive"
SMALL = PAGE  # bytes of records in an extent that is made of noise
HOUR = 3_600_000_000  # microseconds
START = 1_700_000_000_000_000  # when sequence 0 would have begun; each has an hour of its own
EXTENT = 64 * PAGE  # in an extent that the log has written


def content(sequence: int, *, log_id: bytes = ID, taken: int | None = None) -> bytes:
    """All bytes of an extent file that took its sequence `sequence` hours after the start."""
    header = ExtentHeader(
        number=linear_number(sequence),
        log_id=log_id,
        sequence=sequence,
        extent_bytes=SMALL,
        epoch=1,
        time=START + sequence * HOUR if taken is None else taken,
    )
    noise = random.Random(sequence).randbytes(DATA - PAGE + SMALL // 2)
    return header.encode() + noise + bytes(SMALL - SMALL // 2)


def name(sequence: int) -> str:
    return file_name(linear_number(sequence))


def with_extents(sequences: range, directory: str = ACTIVE) -> SimDisk:
    """A disk with these extents, durable."""
    disk = SimDisk()
    for path in ("/log", ACTIVE):
        disk.mkdir(path)
        disk.sync_dir(path.rpartition("/")[0] or "/")
    if not disk.exists(directory):
        disk.mkdir(directory)
        disk.sync_dir("/log")
    for sequence in sequences:
        disk.poke(f"{directory}/{name(sequence)}", content(sequence))
    return disk


def written_by_the_log(bodies: list[tuple[int, int, bytes]], **options: Any) -> tuple[SimDisk, ControlState]:
    """A disk with a log in /log that holds records of (kind, unit of work, body), ended in order.

    All on the first lap of a ring with room enough, which is what a linear log is too.
    """
    disk = SimDisk()
    config = LogConfig(path="/log", primary_files=16, secondary_files=1, file_pages=64, buffer_pages=256, **options)
    at_rest.create(disk, config, ID)
    clock = SimClock()
    log = Log(disk, clock, config)
    reader, records = log.read(log.state.head, 0)
    assert list(records) == []
    log.begin(reader.end, reader.epoch, reader.page_up_to(reader.end))
    reader.close()
    for kind, uow, body in bodies:
        with log.lock:
            assert log.reserve(log.cost(len(body)), 0)
            log.append(kind, uow, clock.wall_us(), body)
    log.close(clean=True)
    state, reader = at_rest.read_only(disk, "/log")
    reader.close()
    return disk, state
