"""Message segments: append-only files of cells, written by checkpoints only; a cell is an encoded message.

A segment means what the checkpoint says: its length, and which of its cells are gone. What lies beyond the length was
left behind by a checkpoint that was not completed, and is cut off before the next one appends. What a checkpoint
appends begins at a page of its own: a page that holds durable cells is never written again.

    offset  size  field        meaning                        of the file's header, 64 bytes
         0     8  magic        "QMGRSEG1": the format's version is its last character
         8     4  crc          CRC-32 of bytes 12..64
        12     4  number       in the file's name
        16    16  log id       which queue manager's
        32     4  queue        the queue's number
        36    28  -

    offset  size  field        meaning                        of a cell
         0     4  crc          CRC-32 of bytes 4..length, seeded by log id, segment number and cell number
         4     4  length       of the cell, bytes
         8     8  sequence     the message's on its queue
        16     4  backouts     when the cell was written
        20     -  message      encoded

A cell begins at a multiple of 8; where its length would stand there is 0 where the next one begins in the next page.
"""

import base64
import contextlib
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

from logger.disk import PAGE, Disk, File, make_dirs
from recovery.errors import QueueDamaged

HEADER = struct.Struct("<8sII16sI28x")
assert HEADER.size == 64
CELL = struct.Struct("<IIQI")
CRC = struct.Struct("<I")  # the first field of a cell, and the others
FACTS = struct.Struct("<IQI")
GAPS = [bytes(-length % 8) for length in range(8)]  # that fill a cell up to a multiple of 8, by its length modulo 8
MAGIC = b"QMGRSEG1"
LARGEST = 16 << 20  # bytes: a segment of this size is not appended to
CHUNK = 1 << 20  # bytes of cells put together for one write


class Cell(NamedTuple):
    """One message as a segment has it."""

    number: int
    sequence: int
    backouts: int
    message: bytes


class Segment:
    """What the checkpoint knows of one segment file."""

    __slots__ = ("cells", "gone", "gone_count", "length", "number", "sealed")

    def __init__(self, number: int, length: int = HEADER.size, cells: int = 0, gone: bytes = b"") -> None:
        self.number = number
        self.length = length
        self.cells = cells
        self.gone = bytearray(gone).ljust((cells + 7) // 8, b"\0")  # a bit for each cell
        self.gone_count = self.gone.count(0xFF) * 8 + sum(b.bit_count() for b in self.gone if b != 0xFF)
        self.sealed = False  # nothing is appended: an attempt to write it failed, or it is large

    def mark_gone(self, cell: int) -> None:
        self.gone[cell >> 3] |= 1 << (cell & 7)
        self.gone_count += 1

    def is_gone(self, cell: int) -> bool:
        return bool(self.gone[cell >> 3] >> (cell & 7) & 1)

    def extend(self, cells: int, length: int) -> None:
        """The checkpoint that appended this many cells is complete."""
        self.cells += cells
        self.length = length
        self.gone.extend(bytes((self.cells + 7) // 8 - len(self.gone)))

    def describe(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "length": self.length,
            "cells": self.cells,
            "gone": base64.b85encode(zlib.compress(bytes(self.gone), 1)).decode(),
        }


def from_description(fields: dict[str, Any]) -> Segment:
    gone = zlib.decompress(base64.b85decode(fields["gone"]))
    return Segment(fields["number"], fields["length"], fields["cells"], gone)


def segment_path(directory: str, number: int) -> str:
    return f"{directory}/{number:08d}.seg"


def seed_of(log_id: bytes, number: int) -> int:
    return crc32(number.to_bytes(4, "little"), crc32(log_id))


def encode_header(log_id: bytes, queue: int, number: int) -> bytes:
    rest = HEADER.pack(MAGIC, 0, number, log_id, queue)[12:]
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


def _page_after(at: int) -> int:
    """The first byte of the page that begins at `at` or behind it."""
    return (at + PAGE - 1) // PAGE * PAGE


class SegmentWriter:
    """Appends cells to one segment of a queue; durable when `finish` has returned."""

    def __init__(self, disk: Disk, directory: str, log_id: bytes, queue: int, segment: Segment) -> None:
        """Open the segment, cutting off what the last checkpoint does not know, or make it. Raises OSError."""
        path = segment_path(directory, segment.number)
        self._disk = disk
        self._directory = directory
        self._path = path
        self.segment = segment
        self._seed = seed_of(log_id, segment.number)
        self.cells = 0
        self.length = _page_after(segment.length)
        self._new = segment.cells == 0
        self._parts: list[bytes] = []
        self._held = 0
        self._file: File
        if self._new:
            make_dirs(disk, directory)
            if disk.exists(path):
                disk.unlink(path)
            self._file = disk.open(path, create=True)
            self._file.write(0, encode_header(log_id, queue, segment.number))
        else:
            self._file = disk.open(path)
            if self._file.size() > self.length:
                self._file.truncate(self.length)

    @property
    def full(self) -> bool:
        return self.length + self._held >= LARGEST

    def append(self, sequence: int, backouts: int, message: bytes, body: bytes = b"") -> int:
        """Add a message, whose body may be given apart; return its cell number."""
        index = self.segment.cells + self.cells
        length = CELL.size + len(message) + len(body)
        facts = FACTS.pack(length, sequence, backouts)
        crc = crc32(body, crc32(message, crc32(facts, self._seed ^ index & 0xFFFFFFFF)))
        self._parts += (CRC.pack(crc), facts, message, body, GAPS[length & 7])
        self._held += length + 7 & -8
        self.cells += 1
        if self._held >= CHUNK:
            self._flush()
        return index

    def _flush(self) -> None:
        self._file.write(self.length, b"".join(self._parts))
        self.length += self._held
        self._parts.clear()
        self._held = 0

    def finish(self) -> None:
        """Write the rest and sync; the file's name too when it is new. Raises OSError."""
        if self._parts:
            self._flush()
        self._file.sync()
        if self._new:
            self._disk.sync_dir(self._directory)
        self._file.close()

    def abandon(self) -> None:
        """Give back what the disk has taken, if it can be: nothing knows of it."""
        with contextlib.suppress(OSError):
            if self._new:
                self._disk.unlink(self._path)
            else:
                self._file.truncate(self.segment.length)
        self._file.close()


def read_cells(disk: Disk, directory: str, log_id: bytes, queue: int, segment: Segment) -> Iterator[Cell]:
    """The cells that are not gone. Raises QueueDamaged, naming the file, when they can't all be read."""
    path = segment_path(directory, segment.number)
    try:
        file = disk.open_read(path)
    except FileNotFoundError:
        raise QueueDamaged(f"segment {path} is missing") from None
    try:
        data = file.read(0, segment.length)  # an OSError is no damage: the restart stops, and changes nothing
    finally:
        file.close()
    if len(data) < segment.length:
        raise QueueDamaged(f"segment {path} has {len(data)} bytes; the checkpoint knows of {segment.length}")
    if data[: HEADER.size] != encode_header(log_id, queue, segment.number):
        raise QueueDamaged(f"segment {path} is not segment {segment.number} of this queue, or its header is damaged")
    view = memoryview(data)
    seed = seed_of(log_id, segment.number)
    at = PAGE
    for index in range(segment.cells):
        if at + 8 <= segment.length and view[at + 4 : at + 8] == bytes(4):
            at = _page_after(at)
        if at + CELL.size > segment.length:
            raise QueueDamaged(f"segment {path} ends in the middle of cell {index}")
        crc, length, sequence, backouts = CELL.unpack_from(view, at)
        end = at + length
        whole = CELL.size <= length <= segment.length - at
        if not whole or crc32(view[at + 4 : end], seed ^ index & 0xFFFFFFFF) != crc:
            raise QueueDamaged(f"segment {path} is damaged in cell {index}, at byte {at}")
        if not segment.is_gone(index):
            yield Cell(index, sequence, backouts, bytes(view[at + CELL.size : end]))
        at = end + 7 & -8
    if segment.cells and at != segment.length:
        raise QueueDamaged(f"segment {path} has other cells than the checkpoint knows of")
