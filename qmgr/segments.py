"""Message segments: append-only files of cells, written by checkpoints only; a cell is an encoded message.

A segment means what the checkpoint says: which blocks of cells it has, and which of the cells are gone. What lies
beyond the last block was left behind by a checkpoint that was not completed, and is cut off before the next one
appends. What a checkpoint appends begins at a page of its own: a page that holds durable cells is never written again.

A block is what is read at once: cells of one priority, in the order of their sequences. The blocks of one priority
follow each other in that order, in a segment and over the segments of a queue. The checkpoint has the CRC of each, so
that a cell needs none, and a block is put together without a look at each of its bytes for every message.

    offset  size  field        meaning                        of the file's header, 64 bytes
         0     8  magic        "QMGRSEG2": the format's version is its last character
         8     4  crc          CRC-32 of bytes 12..64
        12     4  number       in the file's name
        16    16  log id       which queue manager's
        32     4  queue        the queue's number
        36    28  -

    offset  size  field        meaning                        of a block with n cells, at any byte
         0    4n  lengths      u32 each: of the messages
        4n    8n  sequences    u64 each: the messages' on their queue
       12n     -  messages     encoded, one after the other
"""

import base64
import contextlib
import errno
import json
import re
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import add, attrgetter
from typing import Any, NamedTuple

from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.disk_errors import NO_FILE
from logger.errors import refuse_later
from logger.whole_files import make_dirs
from qmgr.objects import is_mangled
from qmgr.openfiles import OpenFiles, segment_path
from recovery.errors import NotRecoverable, QueueDamaged

HEADER = struct.Struct("<8sII16sI28x")
assert HEADER.size == 64
LENGTH, SEQUENCE = struct.Struct("<I"), struct.Struct("<Q")  # of one cell, in a block
SLOT = LENGTH.size + SEQUENCE.size
BLOCK = struct.Struct("<QIIIIQQQI")  # as the catalogue has a `Block`
SEGMENT = re.compile(r"(\d{8,})\.seg")  # the name of a file
MAGIC, MAGIC_V1 = b"QMGRSEG2", b"QMGRSEG1"
MAX_SEGMENT_BYTES = 16 << 20  # a segment of this size is not appended to
SMALL_SEGMENT_BYTES = 1 << 20  # many segments that are shorter are no reason for a checkpoint of their own
WRITE_BYTES = 1 << 20  # of cells put together for one write
MAX_BLOCK_BYTES = 64 << 10  # unless it is one cell


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


class Place(NamedTuple):
    """Where a message lies in its block."""

    begin: int  # byte of the block
    end: int  # the byte where the next one of the block begins; without meaning for the last one
    crc: int  # `crc_of_cell`


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

    def mark_gone_each(self, cells: list[int], size: int) -> None:
        """The same for several; `size`: bytes of their messages together."""
        first, count = cells[0], len(cells)
        if cells == list(range(first, first + count)):  # mostly they were got as they lie
            self.mark_gone_run(first, count, size)
            return
        gone = self.gone
        for cell in cells:
            gone[cell >> 3] |= 1 << (cell & 7)
        self._count_gone(count, size)

    def mark_gone_run(self, first: int, count: int, size: int) -> None:
        """The same for `count` cells from `first` on."""
        gone, start, end = self.gone, first >> 3, (first + count + 7) >> 3
        bits = int.from_bytes(gone[start:end], "little") | (1 << count) - 1 << (first & 7)
        gone[start:end] = bits.to_bytes(end - start, "little")
        self._count_gone(count, size)

    def _count_gone(self, count: int, size: int) -> None:
        self.gone_count += count
        self.gone_bytes += size + count * size_of_cell(0)
        self._text = b""

    def is_gone(self, cell: int) -> bool:
        return bool(self.gone[cell >> 3] >> (cell & 7) & 1)

    def _bits(self, first: int, count: int) -> int:
        """A bit for each of so many cells from `first` on, set when it is gone."""
        bits = int.from_bytes(self.gone[first >> 3 : (first + count + 7) >> 3], "little") >> (first & 7)
        return bits & (1 << count) - 1

    def has_gone(self, first: int, count: int) -> bool:
        """Is one of `count` cells from `first` on gone?"""
        return self.gone_count > 0 and self._bits(first, count) > 0

    def live_in(self, block: Block) -> int:
        """How many of the block's cells are there."""
        return block.cells - self._bits(block.cell, block.cells).bit_count() if self.gone_count else block.cells

    def live_blocks(self) -> Iterator[tuple[int, Block]]:
        """Priority and block of each block that has messages, the lowest priority first."""
        for priority, line in sorted(self.blocks.items()):
            for block in line:
                if self.live_in(block):
                    yield priority, block

    def gone_among(self, first: int, count: int) -> bytes:
        """Which of so many cells are gone, from `first` on: a bit for each."""
        return self._bits(first, count).to_bytes((count + 7) // 8, "little")

    def make_room(self, cells: int) -> None:
        """Make room for so many more cells, which may go before `extend` shows them."""
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

    def postpone_expiry(self, block: Block, expires: int) -> None:
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

    def mark_gone_since(self, old: "Segment", was: "Segment", places: "array[int]") -> None:
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
    return sum([segment.length for segment in held if segment.length >= SMALL_SEGMENT_BYTES])


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def from_description(fields: dict[str, Any]) -> Segment:
    """The segment that `Segment.describe` has described, its JSON read."""
    segment = Segment(fields["number"], volatile=fields["volatile"])
    segment.extend([Block(*facts) for facts in BLOCK.iter_unpack(_unpacked(fields["blocks"]))], fields["length"])
    segment.gone[:] = _unpacked(fields["gone"])
    segment.gone_count = int.from_bytes(segment.gone, "little").bit_count()
    segment.gone_bytes = fields["gone_bytes"]
    segment._text = json.dumps(fields).encode()
    return segment


def block_of_cells(lengths: Sequence[int], sequences: Sequence[int], messages: Iterable[bytes]) -> bytes:
    """The bytes of a block; each message may be in several parts."""
    count = len(lengths)
    return b"".join([struct.pack(f"<{count}I", *lengths), struct.pack(f"<{count}Q", *sequences), *messages])


def table_of(data: bytes, count: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(lengths, sequences, byte where the first message begins) of a block with so many cells. Raises struct.error."""
    lengths = struct.unpack_from(f"<{count}I", data)
    return lengths, struct.unpack_from(f"<{count}Q", data, LENGTH.size * count), SLOT * count


def cells_of(data: bytes, first: int, count: int) -> list[Cell]:
    """The cells in the bytes of a block; `first`: number of the first one. Raises struct.error."""
    lengths, sequences, at = table_of(data, count)
    cells = []
    for number, (length, sequence) in enumerate(zip(lengths, sequences, strict=True), first):
        cells.append((number, sequence, data[at : at + length]))
        at += length
    return cells


def split_block(data: bytes, first: int, count: int, most: int) -> Iterator[tuple[int, int, bytes]]:
    """A block as blocks of `most` bytes at most, about: (number of the first cell, cells, bytes)."""
    lengths, sequences, at = table_of(data, count)
    begin, end, cell = at, at, 0
    for number, length in enumerate(lengths, 1):
        end += length
        if end - begin + SLOT * (number - cell) >= most or number == count:
            piece = slice(cell, number)
            yield first + cell, number - cell, block_of_cells(lengths[piece], sequences[piece], [data[begin:end]])
            begin, cell = end, number


def crc_of_cell(sequence: bytes, message: bytes) -> int:
    """The CRC of one cell, to check it when it is read by itself; kept in memory only."""
    return crc32(message, crc32(sequence))


def size_of_cell(message: int) -> int:
    """Bytes that a message of so many takes in a segment."""
    return SLOT + message


def asides(disk: Disk, path: str) -> tuple[str, str]:
    """What can't be believed is set aside: the last file that was at this path, "" if none was, and the next name."""
    last, free, number = "", f"{path}.damaged", 1
    while disk.exists(free):
        number += 1
        last, free = free, f"{path}.damaged{number}"
    return last, free


def no_segment(path: str, exc: OSError, disk: Disk | None = None) -> QueueDamaged:
    """The damage where a call on a segment has found no file, for one of `NO_FILE`.

    With `disk` it is seen whether it was set aside before: a crash may have come before a checkpoint noted why.
    """
    directory = path.rpartition("/")[0]
    if exc.errno == errno.ENOENT:
        for place, lost in ((path, "it"), (directory, "what lay in the place of its directory")):
            if disk is None or (place is directory and disk.exists(directory)):  # made since: another one
                continue
            aside = asides(disk, place)[0]
            if aside:
                way = "the error log of then says why (AMQ7472)"
                return QueueDamaged(f"segment {path} is missing: {lost} was set aside as {aside}; {way}")
        return QueueDamaged(f"segment {path} is missing")
    if exc.errno == errno.ENOTDIR:
        return QueueDamaged(f"segment {path} is missing: {directory} is no directory", directory)
    what = "it is a pipe" if exc.errno == errno.ESPIPE else exc.strerror  # of a write: Illegal seek
    return QueueDamaged(f"segment {path} is no file ({what})", path)


def segments_below(disk: Disk, queues: str) -> dict[str, list[int]]:
    """The numbers of the segments in each queue's directory; what is somebody else's is passed over."""
    found = {}
    for name in filter(is_mangled, disk.list(queues)):
        try:
            names = disk.list(f"{queues}/{name}")
        except OSError as exc:
            if exc.errno not in NO_FILE:
                raise
        else:
            found[name] = [int(match[1]) for match in map(SEGMENT.fullmatch, names) if match is not None]
    return found


def encode_header(log_id: bytes, queue: int, number: int) -> bytes:
    rest = HEADER.pack(MAGIC, 0, number, log_id, queue)[12:]
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


Fence = Callable[[], None]  # raises an OSError where the files are another process's by now


def no_fence() -> None:
    """For files that no other process can have taken."""


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
        self.blocks: list[Block] = []
        self.length = (segment.length + PAGE - 1) // PAGE * PAGE
        self._cells = segment.cells
        self._new = segment.cells == 0
        self._priority = 0  # of the block that grows
        self._expires = 0
        self._size = 0
        self._lengths: list[int] = []
        self._sequences: list[int] = []
        self._parts: list[bytes] = []  # its messages
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
        """Add a message, whose body may be given apart; return its cell number.

        Messages have to come by priority, and within one by sequence.
        """
        number = self._cells
        self._add(priority, [sequence], [len(message) + len(body)], (message, body), expires)
        return number

    def append_each(
        self,
        priority: int,
        sequences: Sequence[int],
        expires: Sequence[int],
        heads: Sequence[bytes],
        bodies: Sequence[bytes],
    ) -> list[int]:
        """Add several messages; return their lengths."""
        lengths = list(map(add, map(len, heads), map(len, bodies)))
        if sum(lengths) + SLOT * len(lengths) > MAX_BLOCK_BYTES:
            for sequence, one_expires, head, body in zip(sequences, expires, heads, bodies, strict=True):
                self.append(sequence, priority, one_expires, head, body)
        else:
            soonest = min(filter(None, expires), default=0)
            self._add(priority, sequences, lengths, chain.from_iterable(zip(heads, bodies, strict=True)), soonest)
        return lengths

    def append_packed(self, priority: int, first: int, lengths: Sequence[int], messages: bytes) -> None:
        """Add messages that lie one behind the other, none of which expires; their sequences follow the `first`.

        They fit into one block.
        """
        self._add(priority, range(first, first + len(lengths)), lengths, (messages,), 0)

    def _add(
        self, priority: int, sequences: Sequence[int], lengths: Sequence[int], parts: Iterable[bytes], expires: int
    ) -> None:
        """Add messages to one block."""
        size = sum(lengths) + SLOT * len(lengths)
        if self._lengths and (priority != self._priority or self._size + size > MAX_BLOCK_BYTES):
            self._end_block()
        self._priority = priority
        self._size += size
        self._lengths += lengths
        self._sequences += sequences
        self._parts += parts
        self._cells += len(lengths)
        if expires and not 0 < self._expires < expires:
            self._expires = expires

    def _end_block(self) -> None:
        lengths, sequences = self._lengths, self._sequences
        if not lengths:
            return
        messages = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        table = block_of_cells(lengths, sequences, ())
        size = len(table) + len(messages)
        at, count = self.length + self._held, len(lengths)
        first, last = sequences[0], sequences[-1]
        where = at, size, self._cells - count, count
        crc = crc32(messages, crc32(table))
        self.blocks.append(Block(*where, self._priority, first, last, self._expires, crc))
        self._lengths, self._sequences, self._parts = [], [], []
        self._size = self._expires = 0
        self._ended += table, messages
        self._held += size
        if self._held >= WRITE_BYTES:
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
        """Bytes of the segment's file. Raises QueueDamaged where there is no such file, and else OSError: no damage."""
        try:
            if leave_open:
                return self._files.read(self._directory, segment.number, at, size)
            file = self._disk.open_read(self.path(segment))
            try:
                return file.read(at, size)
            finally:
                file.close()
        except OSError as exc:
            if exc.errno in NO_FILE:
                raise no_segment(self.path(segment), exc, self._disk) from None
            raise OSError(exc.errno, exc.strerror, self.path(segment)) from exc

    def check(self, segment: Segment) -> None:
        """Is the file there, the right one, and as long as it should be? Its cells are looked at when they are read.

        Raises NotRecoverable for one of an earlier format, LaterFormat: nothing is wrong with it.
        """
        path = self.path(segment)
        header = self._read(segment, 0, HEADER.size)
        expected = encode_header(self._log_id, self._queue, segment.number)
        if header[len(MAGIC) :] != expected[len(MAGIC) :]:
            refuse_later(header, MAGIC, path)
        if header == MAGIC_V1 + expected[len(MAGIC_V1) :]:
            raise NotRecoverable(
                f"segment {path} is of format 1, which this version does not read; start the queue manager with the "
                f"version that wrote it, and get its messages"
            )
        if header != expected:
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

    def read_block(self, segment: Segment, block: Block, *, leave_open: bool = False) -> bytes:
        """The bytes of a block. Raises QueueDamaged where they are not what was written, OSError.

        `leave_open`: the queue manager's lock is held, and the file stays open for the blocks that follow.
        """
        data = self._read(segment, block.at, block.size, leave_open=leave_open)
        if len(data) < block.size or crc32(data) != block.crc:
            path = self.path(segment)
            raise QueueDamaged(f"segment {path} is damaged in the {block.size} bytes from {block.at} on", path)
        return data

    def read_one(self, segment: Segment, block: Block, number: int, place: Place | None) -> Cell:
        """One cell of a block; `place`, if it is known: from a look at the whole block.

        The queue manager's lock is held, and the file stays open for those that follow.
        """
        if place is None:
            return self.read(segment, block)[number - block.cell]
        ordinal = number - block.cell
        end = place.end if ordinal + 1 < block.cells else block.size
        message = self._read(segment, block.at + place.begin, end - place.begin, leave_open=True)
        if block.last - block.first == block.cells - 1:
            sequence = SEQUENCE.pack(block.first + ordinal)
        else:
            at = block.at + LENGTH.size * block.cells + SEQUENCE.size * ordinal
            sequence = self._read(segment, at, SEQUENCE.size, leave_open=True)
        if len(message) < end - place.begin or crc_of_cell(sequence, message) != place.crc:
            path = self.path(segment)
            raise QueueDamaged(f"segment {path} is damaged in cell {number}, at byte {block.at + place.begin}", path)
        return number, SEQUENCE.unpack(sequence)[0], message

    def find(self, segment: Segment, block: Block, sequence: int) -> Cell | None:
        """The cell of a block that has this sequence."""
        data = self.read_block(segment, block)
        lengths, sequences, begin = table_of(data, block.cells)
        ordinal = bisect_left(sequences, sequence)
        if ordinal == block.cells or sequences[ordinal] != sequence:
            return None
        begin += sum(lengths[:ordinal])
        return block.cell + ordinal, sequence, data[begin : begin + lengths[ordinal]]
