"""Media images as rows: the messages that the IMAGE_PART records of a log hold.

An image holds a queue as it was at one LSN (`recovery/image.py`); its parts are blocks of cells as a segment has them,
and a bit for each cell that says whether its message was gone. Rows have the columns of messages that a PUT row of the
log has (`pipeline/schema.py`).
"""

import contextlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pyarrow as pa

from logger import lsn as lsns
from logger.disk import Disk
from logger.errors import LogDamaged
from logger.posix_disk import PosixDisk
from logger.reader import Record
from pipeline.details import texts
from pipeline.dividing import Part, plan
from pipeline.filters import Filters
from pipeline.log_files import LogFiles
from pipeline.schema import arrow_of
from qmgr.message import HEAD, IN_GROUP, standing
from qmgr.segment_format import cells_of
from recovery.records import ImagePart, Kind, decode

MESSAGE = (
    *("object_number", "sequence", "message_id", "correlation_id", "priority", "persistent", "put_time", "expiry"),
    *("properties", "format", "reply_to", "body_length", "body"),
)
BATCH_ROWS = 8192
BATCH_BYTES = 16 << 20  # of bodies, about
IMAGE_PART = int(Kind.IMAGE_PART)


@attrs.frozen(order=True)
class Extent:
    """Where the records of one image lie: from its IMAGE_START to its IMAGE_END, LSNs of where they begin."""

    start: int
    end: int


def parts_of(log: LogFiles, images: Iterable[Extent]) -> list[Part]:
    """The parts of the log that have records of these images."""
    wanted = Filters(kinds=frozenset({Kind.IMAGE_PART.name}))
    return [part for start, end in joined(images) for part in plan(log, start, end, wanted)]


def joined(images: Iterable[Extent]) -> list[tuple[int, int]]:
    """The ranges of LSNs that the images take, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for image in sorted(images):
        if found and image.start < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], image.end)
        else:
            found.append((image.start, image.end))
    return found


def records_of(log: LogFiles, start: int, end: int, disk: Disk | None = None) -> Iterator[Record]:
    """The records that begin in [start, end), one by one. Raises LogDamaged, OSError."""
    disk = disk or PosixDisk()
    log = log.now(disk)
    history = log.history(disk)
    history.places()
    with contextlib.closing(history.reader(log)) as reader:
        # A record is found from the front of its extent on.
        for record in reader.records(start // log.extent_bytes * log.extent_bytes, durable=end, resync=True):
            if record.lsn >= end:
                return
            if record.lsn >= start:
                yield record


def batches(part: Part, wanted: frozenset[int]) -> Iterator[pa.RecordBatch]:
    """The messages of the images that begin at these LSNs, as far as their parts begin in this part of the log."""
    schema = arrow_of(MESSAGE)
    held: list[dict[str, Any]] = []
    size = 0
    for raw in records_of(part.log, part.start, part.end):
        if raw.kind == IMAGE_PART:
            for number, sequence, message in cells(raw, wanted):
                held.append({"object_number": number, "sequence": sequence} | columns_of(message))
                size += len(message)
            if len(held) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(held, schema)
                held, size = [], 0
    if held:
        yield pa.RecordBatch.from_pylist(held, schema)


def cells(raw: Record, wanted: frozenset[int]) -> Iterator[tuple[int, int, bytes]]:
    """(number of the queue, sequence, encoded message) of what is there in an IMAGE_PART. Raises LogDamaged."""
    try:
        part = decode(raw.kind, raw.uow, raw.body)
        assert isinstance(part, ImagePart)
        if part.start not in wanted:
            return
        gone = int.from_bytes(part.gone, "little")
        for place, (_, sequence, message) in enumerate(cells_of(bytes(part.data), part.cell, part.cells)):
            if not gone >> place & 1:
                yield part.queue, sequence, message
    except (ValueError, struct.error) as exc:
        text = f"the media image in the log record at {lsns.text(raw.lsn)} can't be understood ({exc})"
        raise LogDamaged(text, lsn=raw.lsn) from exc


def columns_of(message: bytes) -> dict[str, Any]:
    """What an encoded message says, by the names of the columns."""
    flags, priority, form, reply_to, properties, expires = standing(message)
    format_end = HEAD.size + form
    reply_to_end = format_end + reply_to
    end = reply_to_end + properties
    return {
        "message_id": message[32:56],
        "correlation_id": message[56:80],
        "priority": priority,
        "persistent": bool(flags & 1),
        "put_time": int.from_bytes(message[16:24], "little"),
        "expiry": expires or None,
        "properties": texts(message[reply_to_end : end - 24 if flags & IN_GROUP else end]),
        "format": message[HEAD.size : format_end].decode(),
        "reply_to": message[format_end:reply_to_end].decode(),
        "body_length": len(message) - end,
        "body": message[end:],
    }
