"""Message segments: append-only files of cells, written by checkpoints only; a cell is an encoded message.

A segment means what the checkpoint says: which blocks of cells it has, and which of the cells are gone. What lies
beyond the last block was left behind by a checkpoint that was not completed, and is cut off before the next one
appends. What a checkpoint appends begins at a page of its own: a page that holds durable cells is never written again.

A block is what is read at once: cells of one priority, in the order of their sequences. The blocks of one priority
follow each other in that order, in a segment and over the segments of a queue.

    offset  size  field        meaning                        of the file's header, 64 bytes
         0     8  magic        "QMGRSEG1": the format's version is its last character
         8     4  crc          CRC-32 of bytes 12..64
        12     4  number       in the file's name
        16    16  log id       which queue manager's
        32     4  queue        the queue's number
        36    28  -

    offset  size  field        meaning                        of a cell, which begins at a multiple of 8
         0     4  crc          CRC-32 of bytes 4..length, seeded by log id and segment number
         4     4  length       of the cell, bytes
         8     8  sequence     the message's on its queue
        16     4  number       of the cell in its segment
        20     -  message      encoded
"""

import base64
import contextlib
import json
import re
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from logger.crc import crc32
from logger.disk import PAGE, Disk, File, make_dirs
from qmgr.objects import is_mangled
from qmgr.openfiles import OpenFiles, segment_path
from recovery.errors import QueueDamaged

HEADER = struct.Struct("<8sII16sI28x")
assert HEADER.size == 64
CELL = struct.Struct("<IIQI")
CRC = struct.Struct("<I")  # the first field of a cell, and the others
FACTS = struct.Struct("<IQI")
PLACE = struct.Struct("<4xIQ")  # of a cell, length and sequence
BLOCK = struct.Struct("<QIIIIQQQI")  # as the catalogue has a `Block`
GAPS = [bytes(-length % 8) for length in range(8)]  # that fill a cell up to a multiple of 8, by its length modulo 8
SEGMENT = re.compile(r"(\d{8,})\.seg")  # the name of a file
MAGIC = b"QMGRSEG1"
LARGEST = 16 << 20  # bytes: a segment of this size is not appended to
SMALL = 1 << 20  # bytes: many segments that are shorter are no reason for a checkpoint of their own
CHUNK = 1 << 20  # bytes of cells put together for one write
LARGEST_BLOCK = 64 << 10  # bytes, unless it is one cell


Cell = tuple[int, int, bytes]  # number, sequence, message


class Block(NamedTuple):
    """Cells that lie together."""

    at: int  # byte of the file where the first one begins
    size: int  # bytes
    cell: int  # number of the first one
    cells: int
    priority: int
    first: int  # sequence of the first one, and of the last one
    last: int
    expires: int  # before this moment none of them does; 0: none ever does
    crc: int  # of its bytes, so that a block which is read as a whole is checked as one


FIRST_CELL, LAST_SEQUENCE = attrgetter("cell"), attrgetter("last")  # of a block, to look for one by bisection


class Segment:
    """What the checkpoint knows of one segment file."""

    __slots__ = (
        "_text",
        "blocks",
        "cells",
        "filled",
        "gone",
        "gone_bytes",
        "gone_count",
        "length",
        "number",
        "sealed",
        "starts",
        "volatile",
    )

    def __init__(self, number: int, *, volatile: bool = False) -> None:
        self.number = number
        self.length = HEADER.size
        self.cells = 0
        self.filled = 0  # bytes of the blocks; what lies between them fills up pages
        self.blocks: dict[int, list[Block]] = {}  # by priority; never changed, but replaced, since copies share it
        self.starts: dict[int, array[int]] = {}  # the first cells of those, to look for one without touching all
        self.gone = bytearray()  # a bit for each cell
        self.gone_count = 0
        self.gone_bytes = 0
        self.volatile = volatile  # holds non-persistent messages over an end in order
        self.sealed = False  # nothing is appended: an attempt to write it failed
        self._text = b""  # its description, until something changes

    def __len__(self) -> int:
        """How many of its cells are there."""
        return self.cells - self.gone_count

    def mark_gone(self, cell: int, size: int) -> None:
        """`size`: bytes of the message."""
        self.gone[cell >> 3] |= 1 << (cell & 7)
        self.gone_count += 1
        self.gone_bytes += size_of_cell(size)
        self._text = b""

    def is_gone(self, cell: int) -> bool:
        return bool(self.gone[cell >> 3] >> (cell & 7) & 1)

    def live_in(self, block: Block) -> int:
        """How many of the block's cells are there."""
        if not self.gone_count:
            return block.cells
        first, end = block.cell, block.cell + block.cells
        bits = int.from_bytes(self.gone[first >> 3 : (end + 7) >> 3], "little") >> (first & 7)
        return block.cells - (bits & (1 << block.cells) - 1).bit_count()

    def gone_among(self, first: int, count: int) -> bytes:
        """A bit for each of so many cells from `first` on, set when it is gone."""
        bits = int.from_bytes(self.gone[first >> 3 : (first + count + 7) >> 3], "little") >> (first & 7)
        return (bits & (1 << count) - 1).to_bytes((count + 7) // 8, "little")

    def make_room(self, cells: int) -> None:
        """So many more will be there, and may go before `extend` shows them."""
        self.gone.extend(bytes(max(0, (self.cells + cells + 7) // 8 - len(self.gone))))

    def extend(self, blocks: list[Block], length: int) -> None:
        """The checkpoint that appended these blocks is complete."""
        self.blocks = {priority: line.copy() for priority, line in self.blocks.items()}
        for block in blocks:
            self.blocks.setdefault(block.priority, []).append(block)
            self.cells += block.cells
            self.filled += block.size
        self.starts = {priority: array("I", map(FIRST_CELL, line)) for priority, line in self.blocks.items()}
        self.length = length
        self.make_room(0)
        self._text = b""

    def put_off(self, block: Block, expires: int) -> None:
        """None of the block's cells that are there expires before this moment."""
        line = self.blocks[block.priority].copy()
        line[line.index(block)] = block._replace(expires=expires)
        self.blocks = self.blocks | {block.priority: line}
        self._text = b""

    def block_with(self, priority: int, sequence: int) -> Block | None:
        """The first block of this priority that ends at the sequence or behind it and is not wholly gone."""
        line = self.blocks.get(priority)
        if not line or line[-1].last < sequence:
            return None
        at = bisect_left(line, sequence, key=LAST_SEQUENCE)
        return next((block for block in islice(line, at, None) if self.live_in(block)), None)

    def block_of(self, priority: int, cell: int) -> Block | None:
        """The block of this priority that has the cell."""
        place = bisect_right(self.starts.get(priority, ()), cell) - 1
        block = self.blocks[priority][place] if place >= 0 else None
        return block if block is not None and cell < block.cell + block.cells else None

    @property
    def live_bytes(self) -> int:
        """Bytes of its cells that are there, and of the page before the first one.

        Cells may be gone before a checkpoint shows them; whoever looks at that moment, without the lock, finds less.
        """
        return max(0, PAGE + self.filled - self.gone_bytes) if self.gone_count < self.cells else 0

    def copy(self) -> "Segment":
        """A segment that says what this one says now; later changes of either leave the other alone."""
        copy = Segment(self.number, volatile=self.volatile)
        copy.gone = self.gone.copy()
        for name in ("length", "cells", "filled", "blocks", "starts", "gone_count", "gone_bytes", "sealed", "_text"):
            setattr(copy, name, getattr(self, name))
        return copy

    def described_by(self, copy: "Segment") -> None:
        """The catalogue has the copy's description, which is this one's too if nothing has gone since."""
        if (self.cells, self.gone_count) == (copy.cells, copy.gone_count):
            self._text = copy._text

    def forget_since(self, old: "Segment", was: "Segment", places: "array[int]") -> None:
        """Mark as gone what went from `old` since it `was` copied; `places`: the new cells by the old ones."""
        for at, (now, then) in enumerate(zip(old.gone, was.gone, strict=True)):
            if now != then:
                for bit in range(8):
                    if (now ^ then) >> bit & 1:
                        cell = places[8 * at + bit]
                        self.gone[cell >> 3] |= 1 << (cell & 7)
                        self.gone_count += 1
        self.gone_bytes += old.gone_bytes - was.gone_bytes
        self._text = b""

    def describe(self) -> bytes:
        """As a piece of the catalogue: JSON."""
        if not self._text:
            blocks = b"".join([BLOCK.pack(*block) for line in self.blocks.values() for block in line])
            fields = {
                "number": self.number,
                "length": self.length,
                "gone": _packed(bytes(self.gone)),
                "gone_bytes": self.gone_bytes,
                "blocks": _packed(blocks),
                "volatile": self.volatile,
            }
            self._text = json.dumps(fields).encode()
        return self._text


def surplus(held: Iterable[Segment]) -> int:
    """Bytes that segments take beyond twice what is there."""
    taken = there = 0
    for segment in held:
        taken += segment.length
        there += segment.live_bytes
    return max(0, taken - 2 * there)


def large_bytes(held: Iterable[Segment]) -> int:
    """Bytes of those files that are not small."""
    return sum([segment.length for segment in held if segment.length >= SMALL])


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def from_description(fields: dict[str, Any]) -> Segment:
    segment = Segment(fields["number"], volatile=fields["volatile"])
    segment.extend([Block(*facts) for facts in BLOCK.iter_unpack(_unpacked(fields["blocks"]))], fields["length"])
    segment.gone[:] = _unpacked(fields["gone"])
    segment.gone_count = int.from_bytes(segment.gone, "little").bit_count()
    segment.gone_bytes = fields["gone_bytes"]
    segment._text = json.dumps(fields).encode()
    return segment


def cells_of(data: bytes, first: int, count: int) -> list[Cell]:
    """The cells in the bytes of a block; `first`: number of the first one."""
    cells = []
    at = 0
    for number in range(first, first + count):
        length, sequence = PLACE.unpack_from(data, at)
        cells.append((number, sequence, data[at + CELL.size : at + length]))
        at += length + 7 & -8
    return cells


def pieces(data: bytes, first: int, count: int, most: int) -> Iterator[tuple[int, int, bytes]]:
    """The bytes of a block in pieces of about `most` at the most: (number of the first cell, cells, bytes)."""
    at = begin = 0
    cell = first
    for number in range(first, first + count):
        at += PLACE.unpack_from(data, at)[0] + 7 & -8
        if at - begin >= most or number == first + count - 1:
            yield cell, number + 1 - cell, data[begin:at]
            begin, cell = at, number + 1


def size_of_cell(message: int) -> int:
    """Bytes that a message of so many takes in a segment, up to where the next cell may begin."""
    return CELL.size + message + 7 & -8


def segments_below(disk: Disk, queues: str) -> dict[str, list[int]]:
    """The numbers of the segments in each queue's directory; what is somebody else's is passed over."""
    found = {}
    for name in filter(is_mangled, disk.list(queues)):
        with contextlib.suppress(NotADirectoryError):
            names = disk.list(f"{queues}/{name}")
            found[name] = [int(match[1]) for match in map(SEGMENT.fullmatch, names) if match is not None]
    return found


def seed_of(log_id: bytes, number: int) -> int:
    return crc32(number.to_bytes(4, "little"), crc32(log_id))


def encode_header(log_id: bytes, queue: int, number: int) -> bytes:
    rest = HEADER.pack(MAGIC, 0, number, log_id, queue)[12:]
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


Fence = Callable[[], None]  # raises an OSError where the files are another process's by now


def no_fence() -> None:
    """They are nobody else's."""


class SegmentWriter:
    """Appends cells to one segment of a queue; durable when `finish` has returned."""

    def __init__(
        self, disk: Disk, directory: str, log_id: bytes, queue: int, segment: Segment, fence: Fence = no_fence
    ) -> None:
        """Open the segment, cutting off what the last checkpoint does not know, or make it. Raises OSError."""
        fence()
        path = segment_path(directory, segment.number)
        self._fence = fence
        self._disk = disk
        self._directory = directory
        self._path = path
        self.segment = segment
        self._seed = seed_of(log_id, segment.number)
        self.blocks: list[Block] = []
        self.length = (segment.length + PAGE - 1) // PAGE * PAGE
        self._cells = segment.cells
        self._new = segment.cells == 0
        self._block: list[int] = []  # the fields of the block that grows, but for its CRC
        self._parts: list[bytes] = []  # its bytes
        self._ended: list[bytes] = []  # the blocks before it, and their bytes
        self._held = 0
        if self._new:
            make_dirs(disk, directory)
            if disk.exists(path):
                disk.unlink(path)
        self._file: File = disk.open(path, create=self._new)
        try:
            if self._new:
                self._file.write(0, encode_header(log_id, queue, segment.number))
            elif self._file.size() > self.length:
                self._file.truncate(self.length)
        except BaseException:  # a full disk is tried again and again, and each time would cost a descriptor and a file
            self.abandon()
            raise

    def append(self, sequence: int, priority: int, expires: int, message: bytes, body: bytes = b"") -> int:
        """Add a message, whose body may be given apart; return its cell number. By priority, then by sequence."""
        number = self._cells
        length = CELL.size + len(message) + len(body)
        size = length + 7 & -8
        block = self._block
        if not block or block[4] != priority or block[1] + size > LARGEST_BLOCK:
            self._end_block()
            block = self._block = [self.length + self._held, 0, number, 0, priority, sequence, 0, 0]
        facts = FACTS.pack(length, sequence, number)
        crc = crc32(body, crc32(message, crc32(facts, self._seed)))
        self._parts += (CRC.pack(crc), facts, message, body, GAPS[length & 7])
        block[1] += size
        block[3] += 1
        block[6] = sequence
        if expires and not 0 < block[7] < expires:
            block[7] = expires
        self._cells += 1
        return number

    def _end_block(self) -> None:
        if self._block:
            data = b"".join(self._parts)
            self._parts.clear()
            self.blocks.append(Block._make([*self._block, crc32(data)]))
            self._block = []
            self._ended.append(data)
            self._held += len(data)
            if self._held >= CHUNK:
                self._flush()

    def _flush(self) -> None:
        self._fence()
        self._file.write(self.length, b"".join(self._ended))
        self.length += self._held
        self._ended.clear()
        self._held = 0

    def finish(self) -> None:
        """Write the rest and sync; the file's name too when it is new. Raises OSError."""
        self._end_block()
        if self._held:
            self._flush()
        self._file.sync()
        if self._new:
            self._disk.sync_dir(self._directory)
        self._file.close()

    def abandon(self) -> None:
        """Give back what the disk has taken, if it can be: nothing knows of it."""
        with contextlib.suppress(OSError):
            self._fence()
            if self._new:
                self._disk.unlink(self._path)
            else:
                self._file.truncate(self.segment.length)
        self._file.close()


class SegmentReader:
    """Reads the segments of one queue. What can't be read as it was written is QueueDamaged, which names the file."""

    def __init__(self, disk: Disk, directory: str, log_id: bytes, queue: int, files: OpenFiles) -> None:
        """`files`: for those that are read one message at a time, with the queue manager's lock held."""
        self._disk = disk
        self._directory = directory
        self._log_id = log_id
        self._queue = queue
        self._files = files

    def path(self, segment: Segment) -> str:
        return segment_path(self._directory, segment.number)

    def drop(self, segment: int) -> None:
        """The segment is no more."""
        self._files.close(segment)

    def _read(self, segment: Segment, at: int, size: int, *, leave_open: bool = False) -> bytes:
        """An OSError is no damage: nothing is known then."""
        try:
            if leave_open:
                return self._files.read(self._directory, segment.number, at, size)
            file = self._disk.open_read(self.path(segment))
            try:
                return file.read(at, size)
            finally:
                file.close()
        except FileNotFoundError:
            raise QueueDamaged(f"segment {self.path(segment)} is missing") from None
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, self.path(segment)) from exc

    def check(self, segment: Segment) -> None:
        """Is the file there, the right one, and as long as it should be? Its cells are looked at when they are read."""
        path = self.path(segment)
        header = self._read(segment, 0, HEADER.size)
        if header != encode_header(self._log_id, self._queue, segment.number):
            raise QueueDamaged(
                f"segment {path} is not segment {segment.number} of this queue, or its header is damaged", path
            )
        if segment.cells and len(self._read(segment, segment.length - 1, 1)) < 1:
            raise QueueDamaged(
                f"segment {path} is shorter than the {segment.length} bytes the checkpoint knows of", path
            )

    def read(self, segment: Segment, block: Block) -> list[Cell]:
        """All cells of a block, those that are gone too."""
        return cells_of(self.read_block(segment, block), block.cell, block.cells)

    def read_block(self, segment: Segment, block: Block) -> bytes:
        data = self._read(segment, block.at, block.size)
        if len(data) < block.size or crc32(data) != block.crc:
            path = self.path(segment)
            raise QueueDamaged(f"segment {path} is damaged in the {block.size} bytes from {block.at} on", path)
        return data

    def read_one(self, segment: Segment, block: Block, number: int, place: tuple[int, int] | None) -> Cell:
        """One cell of a block. `place`: the bytes where it and the next one (0: none) begin, if they are known.

        The queue manager's lock is held, and the file stays open for those that follow.
        """
        if place is None:
            return self.read(segment, block)[number - block.cell]
        begin, end = place
        end = end if block.at < end < block.at + block.size else block.at + block.size
        data = self._read(segment, begin, end - begin, leave_open=True)
        if len(data) >= CELL.size:
            crc, length, sequence, found = CELL.unpack_from(data)
            whole = found == number and CELL.size <= length <= len(data)
            if whole and crc32(memoryview(data)[4:length], seed_of(self._log_id, segment.number)) == crc:
                return number, sequence, data[CELL.size : length]
        path = self.path(segment)
        raise QueueDamaged(f"segment {path} is damaged in cell {number}, at byte {begin}", path)

    def find(self, segment: Segment, block: Block, sequence: int) -> Cell | None:
        """The cell of a block that has this sequence."""
        data = self.read_block(segment, block)
        at = 0
        for number in range(block.cell, block.cell + block.cells):
            length, found = PLACE.unpack_from(data, at)
            if found == sequence:
                return number, sequence, data[at + CELL.size : at + length]
            at += length + 7 & -8
        return None
