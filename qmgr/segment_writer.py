"""Appends messages to a segment file: new ones at a checkpoint, or those of a queue that is built again.

What is appended begins at a page of its own, behind all that the last checkpoint knows.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import add

from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.whole_files import make_dirs
from qmgr.segment_files import segment_path
from qmgr.segment_format import MAX_BLOCK_BYTES, SLOT, Block, block_of_cells, encode_header
from qmgr.segments import Segment

WRITE_BYTES = 1 << 20  # of cells put together for one write

Fence = Callable[[], None]  # raises an OSError where the files are another process's by now


def no_fence() -> None:
    """For files that no other process can have taken."""


class SegmentWriter:
    """Appends cells to one segment of a queue; durable when `write_rest` and then `force` have returned."""

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
        self._before = segment.length  # `segment` may be told of what was appended before that is forced
        self.blocks: list[Block] = []
        self.length = (segment.length + PAGE - 1) // PAGE * PAGE
        self._cells = segment.cells
        self.new = segment.cells == 0
        self._priority = 0  # of the block that grows
        self._expires = 0
        self._size = 0
        self._lengths: list[int] = []
        self._sequences: list[int] = []
        self._parts: list[bytes] = []  # its messages
        self._ended: list[bytes] = []  # the blocks before it, and their bytes
        self._held = 0
        if self.new:
            make_dirs(disk, directory)
            if disk.exists(path):
                disk.unlink(path)
        self._file: File = disk.open(path, create=self.new)
        try:
            if self.new:
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
        table, messages = block_of_cells(lengths, sequences, ()), self._parts
        size = len(table) + sum(lengths)
        if len(messages) > 1 and self._size <= MAX_BLOCK_BYTES:  # a large message would need its size in memory again
            messages = [b"".join(messages)]
        at, count = self.length + self._held, len(lengths)
        first, last = sequences[0], sequences[-1]
        where = at, size, self._cells - count, count
        crc = crc32(table)
        for part in messages:
            crc = crc32(part, crc)
        self.blocks.append(Block(*where, self._priority, first, last, self._expires, crc))
        self._lengths, self._sequences, self._parts = [], [], []
        self._size = self._expires = 0
        self._ended += table, *messages
        self._held += size
        if self._held >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._fence()
        at = self.length
        for data in _writes(self._ended):
            self._file.write(at, data)
            at += len(data)
        self.length = at
        self._ended.clear()
        self._held = 0

    def write_rest(self) -> None:
        """Nothing more is appended. Raises OSError."""
        self._end_block()
        if self._held:
            self._flush()

    def force(self) -> None:
        """Make the file durable, its name too when it is new, and close it. Raises OSError."""
        self._file.sync()
        self._file.close()  # now, as a sync of the directory takes a descriptor
        if self.new:
            self._disk.sync_dir(self._directory)

    def abandon(self) -> None:
        """Give back what the disk has taken, if it can be: nothing knows of it."""
        with contextlib.suppress(OSError):
            self._fence()
            if self.new:
                self._disk.unlink(self._path)
            else:
                self._file.truncate(self._before)
        self._file.close()


def _writes(parts: Iterable[bytes]) -> Iterator[bytes]:
    """What to write one behind the other: large parts as they are, the small ones between them as one."""
    small: list[bytes] = []
    for part in parts:
        if len(part) < WRITE_BYTES:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield part
    if small:
        yield b"".join(small)
