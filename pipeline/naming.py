"""The names of queues in a log, by their numbers.

Names that were read are cached by the process. A folder of extents, which no queue manager indexes, gets the indexes
that it lacks, since names are found by them; nothing else is changed.
"""

import contextlib
import struct

import attrs
import numpy as np

from logger.disk import Disk
from logger.errors import LogDamaged
from logger.frame import HEADER
from logger.posix_disk import PosixDisk
from pipeline.columns import Columns, Names
from pipeline.details import definitions
from pipeline.filters import Filters, wanted
from pipeline.log_files import LogFiles, batches
from pipeline.opened import Extents
from pipeline.operations import NONE, operations
from recovery import extent_index
from recovery.extent_index import ExtentIndex
from recovery.records import CATALOG_LAST, Kind


@attrs.define
class _Known:
    """The names that this process has read from a log, up to an LSN."""

    upto: int
    names: dict[int, str]
    catalogued: bool  # all names from before have been read
    keeps_indexes: bool = True  # beside the extents, as long as they can be written
    first_at: dict[int, int] = attrs.field(factory=dict)  # LSN of the first record read that has a name
    last: tuple[int, bytes] | None = None  # LSN and header of the record before that: another one is of another past

    def add(self, at: int, names: dict[int, str]) -> None:
        self.names |= names
        self.first_at |= {number: min(at, self.first_at.get(number, at)) for number in names}

    def before(self, end: int) -> dict[int, str]:
        """The names in records before `end`, whatever this process has read behind it."""
        return {number: name for number, name in self.names.items() if self.first_at[number] < end}


_known: dict[tuple[bytes, tuple[str, ...]], _Known] = {}


def named(log: LogFiles, end: int, disk: Disk | None = None) -> LogFiles:
    """The log with the names of queues that its records before `end` have.

    They are in the records that define queues; those from before the log's beginning are in the first image of all
    definitions. A queue that is named by neither has no name.
    """
    disk = disk or PosixDisk()
    known = _known_of(log, disk)
    at = before = known.upto
    whole = True
    with contextlib.closing(log.extents(disk)) as extents:
        while at < end:
            stop = min(end, (at // log.extent_bytes + 1) * log.extent_bytes)
            try:
                _indexed(log, extents, known, at // log.extent_bytes, end)
                _read_names(extents, known, at, stop)
            except LogDamaged:
                whole = False  # reading that extent raises; it may be repaired
            at = stop
            if whole:
                known.upto = at
    if known.upto > before:
        last = log.last_before(known.upto, disk, since=known.last and known.last[0])
        known.last = None if last is None else (last.lsn, _header_at(log, last.lsn, disk))
    return attrs.evolve(log, names=log.names | known.before(end))


def named_within(log: LogFiles, start: int, end: int, disk: Disk) -> LogFiles:
    """The log with the names of the queues of the records in [start, end), as far as it has them.

    Mostly these are known, or lie in there too, and what is before need not be read.
    """
    known = _known_of(log, disk)
    here = attrs.evolve(known, catalogued=False)  # an image in there says nothing of queues deleted before it
    numbers: set[int] = set()
    with contextlib.closing(log.extents(disk)) as extents:
        while start < end and start > known.upto:
            stop = min(end, (start // log.extent_bytes + 1) * log.extent_bytes)
            with contextlib.suppress(LogDamaged):  # reading that extent raises
                index = _indexed(log, extents, known, start // log.extent_bytes, end)
                numbers |= _queues_in(extents, start, stop) if index is None else {*index.queues}
                if numbers - log.names.keys() - known.names.keys():
                    _read_names(extents, here, start, stop)
            start = stop
    names = log.names | known.before(end)
    if start >= end and numbers <= names.keys():
        return attrs.evolve(log, names=names)
    return named(log, end, disk)


def _known_of(log: LogFiles, disk: Disk) -> _Known:
    key = log.log_id, log.directories
    known = _known.get(key)
    if known is None or (known.last is not None and _header_at(log, known.last[0], disk) != known.last[1]):
        history = log.history(disk)
        first = min(history.places(), default=0)
        history.refuse_unread(first - 1)  # what the disk could not read just now may have names that nothing else has
        _known[key] = _Known(first * log.extent_bytes, {}, catalogued=first == 1)
    return _known[key]


def _header_at(log: LogFiles, at: int, disk: Disk) -> bytes:
    """The header of the frame that begins there, CRC and all; b"" where the extent is not there, or damaged."""
    with contextlib.closing(log.extents(disk)) as extents, contextlib.suppress(LogDamaged):
        return bytes(extents.view(at // log.extent_bytes).read(at, HEADER.size))
    return b""


def _indexed(log: LogFiles, extents: Extents, known: _Known, sequence: int, end: int) -> ExtentIndex | None:
    """The index of an extent. It is made where nobody else will, all of the extent is durable, and it can be kept."""
    index = extents.index(sequence)
    if index is not None or log.control or not known.keeps_indexes or (sequence + 1) * log.extent_bytes > end:
        return index
    place = extents.place(sequence)
    index = extent_index.build(extents.reader(), place, log.log_id, log.extent_bytes)
    try:
        extent_index.store(extents.disk, place, index)
    except OSError:
        known.keeps_indexes = False
    return index


def _queues_in(extents: Extents, start: int, stop: int) -> set[int]:
    """The numbers of the queues of the records in [start, stop) that can be decoded."""
    numbers: set[int] = set()
    for batch in batches(extents, start, stop):
        with contextlib.suppress(ValueError, IndexError, KeyError, TypeError, struct.error):  # reading it raises
            found = Columns(batch, operations(batch), Names({}), extents.history.extent_bytes)
            numbers.update(np.unique(found.numbers).tolist())
    numbers.discard(NONE)
    return numbers


def _read_names(extents: Extents, known: _Known, start: int, stop: int) -> None:
    """Add the names that records in [start, stop) have to `known`."""
    kinds = {"DEFINE"} if known.catalogued else {"DEFINE", "CATALOG"}
    for batch in batches(extents, start, stop, wanted(Filters(kinds=frozenset(kinds)), {})):
        naming = np.isin(batch.headers["kind"], (Kind.DEFINE, Kind.CATALOG))
        for record in np.flatnonzero(naming).tolist():
            kind = int(batch.headers["kind"][record])
            body = memoryview(batch.data)[int(batch.bodies[record]) : int(batch.ends[record])]
            if kind == Kind.DEFINE or not known.catalogued:
                known.add(int(batch.headers["lsn"][record]), dict(definitions(kind, body)))
            if kind == Kind.CATALOG and body[0] & CATALOG_LAST:
                known.catalogued = True
