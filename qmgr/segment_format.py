"""The bytes of a segment file: a header, then blocks of cells; a cell is an encoded message.

A block is what is read at once: cells of one priority, in the order of their sequences. The checkpoint has the CRC of
each, so that a cell needs none, and a block is put together without a look at each of its bytes for every message.

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

import struct
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from logger.crc import crc32

HEADER = struct.Struct("<8sII16sI28x")
assert HEADER.size == 64
LENGTH, SEQUENCE = struct.Struct("<I"), struct.Struct("<Q")  # of one cell, in a block
SLOT = LENGTH.size + SEQUENCE.size
MAGIC, MAGIC_V1 = b"QMGRSEG2", b"QMGRSEG1"
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


def encode_header(log_id: bytes, queue: int, number: int) -> bytes:
    rest = HEADER.pack(MAGIC, 0, number, log_id, queue)[12:]
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


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
