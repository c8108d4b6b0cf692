"""Divides a log into parts that are read independently, and leaves out what can hold nothing that is wanted."""

import contextlib
from collections.abc import Iterator

import attrs

from logger import lsn
from logger.disk import Disk
from logger.errors import LogDamaged
from logger.posix_disk import PosixDisk
from pipeline.filters import EVERYTHING, Filters, Wanted, wanted
from pipeline.log_files import LogFiles
from pipeline.naming import named_within
from pipeline.opened import Extents
from pipeline.windows import WINDOW_BYTES, Places, Stretch, continues, lsns_of, stretches
from recovery.extent_index import ExtentIndex

MAX_PART_BYTES = 64 << 20  # where an extent can be divided


@attrs.frozen
class Part:
    """A piece of a log: the records that begin in [start, end)."""

    log: LogFiles
    start: int
    end: int
    bytes: int  # about so many have to be read


def plan(
    log: LogFiles, start: int, end: int, filters: Filters = EVERYTHING, disk: Disk | None = None, *, names: bool = True
) -> list[Part]:
    """The parts to read for the records that begin in [start, end), without what can't hold anything that is wanted.

    `names`: the names of queues are needed, by a column or a filter. Raises LogDamaged, ExtentGone where an extent is
    missing, OSError.
    """
    disk = disk or PosixDisk()
    log = log.now(disk)
    if names:
        log = named_within(log, start, end, disk)
    chosen = wanted(filters, log.names)
    start = max(start, filters.low_lsn or 0)
    end = end if filters.high_lsn is None else min(end, filters.high_lsn)
    parts: list[Part] = []
    before: ExtentIndex | None = None
    with contextlib.closing(log.extents(disk)) as extents:
        first = start // log.extent_bytes
        while start < end:
            sequence = start // log.extent_bytes
            stop = min(end, (sequence + 1) * log.extent_bytes)
            index = extents.index(sequence)
            if sequence > first:
                _refuse_rest_of_another(extents, sequence, before, index)
            before = index
            if index is None:
                parts.append(Part(log, start, stop, stop - start))
            else:
                parts += _divided(log, index, start, stop, chosen)
            start = stop
    return parts


def divided(log: LogFiles, start: int, end: int, disk: Disk | None = None, *, names: bool = True) -> list[Part]:
    """The parts to read for the records that begin in [start, end): always the same ones.

    They follow from these two LSNs alone, and not from what has been indexed, moved or compressed: what is done
    with a part may be remembered by its number. What is not wanted is left out when a part is read. Raises as `plan`.
    """
    disk = disk or PosixDisk()
    log = log.now(disk)
    if names:
        log = named_within(log, start, end, disk)
    parts: list[Part] = []
    with contextlib.closing(log.extents(disk)) as extents:
        while start < end:
            extents.place(start // log.extent_bytes)
            begins = start // log.extent_bytes * log.extent_bytes
            stop = min(
                end, begins + log.extent_bytes, begins + ((start - begins) // MAX_PART_BYTES + 1) * MAX_PART_BYTES
            )
            parts.append(Part(log, start, stop, stop - start))
            start = stop
    return parts


def _refuse_rest_of_another(
    extents: Extents, sequence: int, before: ExtentIndex | None, index: ExtentIndex | None
) -> None:
    """Raise LogDamaged where an extent begins with the rest of a record that the one before it has no beginning of.

    `before` and `index`: the indexes of both. An index may be of another past than its extent, so the frames decide. If
    neither has an index this returns: only reading both would show it.
    """
    size = extents.history.extent_bytes
    at = sequence * size
    if before is None and index is None:
        return
    if (before is not None and not 0 < before.end_lsn <= at) or (index is not None and index.first_lsn == at):
        return
    reader = extents.reader()
    try:
        if not continues(extents, at) or any(record.end > at for record in reader.records(at - size, resync=True)):
            return
    except LogDamaged:
        if reader.stopped != at:
            raise
    path, other = extents.place(sequence).path, extents.place(sequence - 1).path
    raise LogDamaged(
        f"{path} begins at {lsn.text(at)} with the rest of a record, and {other} does not have its beginning: they are "
        f"of two pasts of the log, as after a backup was put back; put the right files there",
        path=path,
        lsn=at,
    )


def _divided(log: LogFiles, index: ExtentIndex, start: int, end: int, chosen: Wanted) -> Iterator[Part]:
    lsns = lsns_of(index, log.extent_bytes)
    group: list[Stretch] = []
    for stretch in stretches(index, lsns, start, end, chosen, WINDOW_BYTES):
        if sum(one.bytes for one in group) + stretch.bytes > MAX_PART_BYTES:
            yield _part(log, lsns, group, start, end)
            group = []
        group.append(stretch)
    if group:
        yield _part(log, lsns, group, start, end)


def _part(log: LogFiles, lsns: Places, group: list[Stretch], start: int, end: int) -> Part:
    """The part for these stretches: no more of [start, end) than they cover."""
    low, high = group[0].low, group[-1].high
    begin = start if not low or lsns[low - 1] < start else int(lsns[low])
    stop = end if high == len(lsns) else min(end, int(lsns[high]))
    return Part(log, begin, stop, sum(stretch.bytes for stretch in group))
