"""Rows: what the records of a part of a log say, as Arrow batches, a row per operation."""

import contextlib
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logger.disk import Disk
from logger.errors import LogDamaged
from logger.extent import file_name, linear_number
from logger.posix_disk import PosixDisk
from pipeline import log_files
from pipeline.columns import Columns, Names
from pipeline.dividing import Part
from pipeline.filters import EVERYTHING, Filters, Wanted, wanted
from pipeline.log_files import LogFiles
from pipeline.operations import KINDS, Batch, Operations, operations
from pipeline.schema import arrow_of
from recovery.records import not_understood

BATCH_ROWS = 16384
BATCH_BYTES = 16 << 20  # of messages, but for a single one
DECODING_ERRORS = (ValueError, IndexError, KeyError, TypeError, struct.error)


def batches(
    part: Part,
    columns: tuple[str, ...],
    filters: Filters = EVERYTHING,
    disk: Disk | None = None,
    rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The rows of the part that are wanted, with these columns. Raises LogDamaged, OSError."""
    log = part.log
    names = Names(log.names)
    chosen = wanted(filters, log.names)
    schema = arrow_of(columns)
    with contextlib.closing(log.extents(disk or PosixDisk())) as extents:
        for batch in log_files.batches(extents, part.start, part.end, chosen):
            for piece in _pieces(_understood(batch, chosen, names, log), rows):
                yield _made(Columns(batch, piece, names, log.extent_bytes), schema, log)


def _understood(batch: Batch, chosen: Wanted, names: Names, log: LogFiles) -> Operations:
    """The rows of the batch. Raises LogDamaged that names the first record which can't be decoded."""
    try:
        return _rows(batch, chosen, names, log.extent_bytes)
    except DECODING_ERRORS as exc:
        for number in range(len(batch.headers)):  # which one is it?
            try:
                _rows(batch.only([number]), chosen, names, log.extent_bytes)
            except DECODING_ERRORS as why:
                raise _not_understood(int(batch.headers["lsn"][number]), log, why) from exc
        raise


def _made(columns: Columns, schema: pa.Schema, log: LogFiles) -> pa.RecordBatch:
    try:
        return pa.RecordBatch.from_arrays([columns.named(name) for name in schema.names], schema=schema)
    except DECODING_ERRORS as exc:
        raise _not_understood(columns.first_lsn, log, exc) from exc


def _not_understood(at: int, log: LogFiles, exc: BaseException) -> LogDamaged:
    return not_understood(file_name(linear_number(at // log.extent_bytes)), at, exc, or_later=True)


def _rows(batch: Batch, chosen: Wanted, names: Names, extent_bytes: int) -> Operations:
    """The rows of the records that are wanted."""
    filters = chosen.filters
    keep = _records(batch, chosen)
    if not keep.all():
        batch.keep(keep)
    found = operations(batch)
    if filters.kinds is not None:
        found = found.only(np.isin(found.kind, [code for code, kind in enumerate(KINDS) if kind.name in filters.kinds]))
    if filters.objects is not None and chosen.numbers is not None:
        columns = Columns(batch, found, names, extent_bytes)
        named = np.isin(columns.numbers, list(chosen.numbers))
        for row, name in columns.aliases.items():
            named[row] = name in filters.objects
        found = found.only(named)
    return found


def _records(batch: Batch, chosen: Wanted) -> npt.NDArray[np.bool_]:
    """Which of the records may have rows that are wanted."""
    filters, headers = chosen.filters, batch.headers
    keep = np.ones(len(headers), np.bool_)
    for name, low, high in (("lsn", filters.low_lsn, filters.high_lsn), ("time", filters.low_time, filters.high_time)):
        if low is not None:
            keep &= headers[name] >= low
        if high is not None:
            keep &= headers[name] < high
    if chosen.kinds is not None:
        keep &= np.isin(headers["kind"], [int(kind) for kind in chosen.kinds])
    return keep


def _pieces(found: Operations, rows: int) -> Iterator[Operations]:
    """The rows, so many at a time, or fewer where messages are large."""
    total = np.cumsum(np.maximum(found.end - found.message, 0))
    at, before = 0, 0
    while at < len(found):
        stop = min(at + rows, max(at + 1, int(np.searchsorted(total, before + BATCH_BYTES, "right"))))
        yield found if stop - at == len(found) else found.only(slice(at, stop))
        at, before = stop, int(total[stop - 1])
