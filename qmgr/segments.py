"""Message segments: append-only files of cells, written by checkpoints only; what the checkpoint knows of one.

A segment means what the checkpoint says: which blocks of cells it has, and which of the cells are gone. What lies
beyond the last block was left behind by a checkpoint that was not completed, and is cut off before the next one
appends. What a checkpoint appends begins at a page of its own: a page that holds durable cells is never written again.

The blocks of one priority follow each other in the order of their sequences, in a segment and over the segments of a
queue.
"""

import base64
import json
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from logger.disk import PAGE
from qmgr.segment_format import FIRST_CELL, HEADER, LAST_SEQUENCE, Block, size_of_cell

BLOCK = struct.Struct("<QIIIIQQQI")  # as the catalogue has a `Block`
MAX_SEGMENT_BYTES = 16 << 20  # a segment of this size is not appended to
SMALL_SEGMENT_BYTES = 1 << 20  # many segments that are shorter are no reason for a checkpoint of their own


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
        copy = Segment.__new__(Segment)  # with many queues as many copies are made under the lock: word by word
        copy.number, copy.length, copy.cells, copy.filled = self.number, self.length, self.cells, self.filled
        copy.blocks, copy.starts, copy.gone = self.blocks, self.starts, self.gone.copy()
        copy.gone_count, copy.gone_bytes = self.gone_count, self.gone_bytes
        copy.volatile, copy.sealed, copy._text = self.volatile, self.sealed, self._text
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


def from_description(fields: dict[str, Any]) -> Segment:
    """The segment that `Segment.describe` has described, its JSON read."""
    segment = Segment(fields["number"], volatile=fields["volatile"])
    segment.extend([Block(*facts) for facts in BLOCK.iter_unpack(_unpacked(fields["blocks"]))], fields["length"])
    segment.gone[:] = _unpacked(fields["gone"])
    segment.gone_count = int.from_bytes(segment.gone, "little").bit_count()
    segment.gone_bytes = fields["gone_bytes"]
    segment._text = json.dumps(fields).encode()
    return segment


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 1)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


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
