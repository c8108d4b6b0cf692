"""Frames: how one record becomes bytes in an extent. Never crosses an extent; little-endian; starts at multiples of 8.

    offset  size  field    meaning
         0     4  magic    "HLRH": a scan for frames beyond a bad one looks for it
         4     4  crc      CRC-32 of bytes 8..length, seeded by the log's identity: another log's frame fails here
         8     4  length   header + body, bytes
        12     4  epoch    which start of the queue manager wrote it; never goes down along the log
        16     8  lsn      the frame's own LSN: what an earlier lap left behind fails here
        24     8  uow      unit-of-work number; 0 = none
        32     8  time     microseconds since 1970-01-01 UTC
        40     4  back     how far behind `lsn` the log was durable when this was appended, in units of 8 bytes
        44     2  kind     0 = PAD, the rest of the extent is empty; else recovery.records.Kind, of which 1027 = FILL is
                           the log's own: it says nothing, and ends where its page does
        46     1  flags    BEGIN 1, END 2: a record is one frame, or several from BEGIN to END
        47     1  version  1
        48     -  body     opaque

A header never straddles two pages: where fewer than 48 bytes are left in a page the next frame starts in the next one.
So a partial page always has room for a trailer behind its last frame (`integrity.py`).
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from logger.crc import crc32
from logger.disk import PAGE, Buffer

HEADER = struct.Struct("<4sIIIQQQIHBB")
FRONT, REST = struct.Struct("<4sI"), struct.Struct("<IIQQQIHBB")  # the same in two: the CRC covers the second
assert FRONT.size + REST.size == HEADER.size == 48
CRC = struct.Struct("<I")
MAGIC = b"HLRH"
VERSION = 1
PAD, FILL = 0, 1027
BEGIN, END = 1, 2
WHOLE = BEGIN | END
BACK_MAX = 0xFFFFFFFF  # `back` does not reach so far: it says nothing
LAST_START = PAGE - HEADER.size  # in a page: a frame that would start beyond it starts in the next one


class Pieces:
    """Bytes that lie in several places and are copied but once, into the log buffer."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts
        self.size = sum(map(len, parts))

    def __len__(self) -> int:
        return self.size


class Frame(NamedTuple):
    """One frame as read; `body` is a view, valid while what it was read from is."""

    lsn: int
    end: int  # where the next frame starts
    epoch: int
    uow: int
    time: int
    durable: int  # the log was durable up to here when the frame was appended; 0 where that is not known
    kind: int
    flags: int
    body: memoryview


def next_start(end: int) -> int:
    """Where the next frame starts when one ends at `end`."""
    place = end + 7 & -8
    return place if place & PAGE - 1 <= LAST_START else (place | PAGE - 1) + 1


def encode_into(
    page: memoryview,
    at: int,
    seed: int,
    epoch: int,
    lsn: int,
    uow: int,
    time: int,
    back: int,
    kind: int,
    flags: int,
    head: Buffer,
    data: Buffer | Pieces,
) -> int:
    """Write one frame with the body `head + data` into `page` at `at`; return the offset of its end."""
    middle = at + HEADER.size + len(head)
    end = middle + len(data)
    HEADER.pack_into(page, at, MAGIC, 0, end - at, epoch, lsn, uow, time, back, kind, flags, VERSION)
    page[at + HEADER.size : middle] = head
    if isinstance(data, Pieces):
        place = middle
        for part in data.parts:
            page[place : place + len(part)] = part
            place += len(part)
    elif data:
        page[middle:end] = data
    CRC.pack_into(page, at + 4, crc32(page[at + 8 : end], seed))
    return end


def decode(page: memoryview, at: int, lsn: int, seed: int) -> Frame | None:
    """The frame with LSN `lsn` at `at` of `page`, or None when there is no whole one."""
    if at + HEADER.size > len(page):
        return None
    magic, crc, length, epoch, own, uow, time, back, kind, flags, version = HEADER.unpack_from(page, at)
    end = at + length
    if (
        own != lsn
        or magic != MAGIC
        or version != VERSION
        or not HEADER.size <= length <= len(page) - at
        or crc32(page[at + 8 : end], seed) != crc
    ):
        return None
    durable = lsn - back * 8 if back != BACK_MAX else 0
    return Frame(lsn, next_start(lsn + length), epoch, uow, time, durable, kind, flags, page[at + HEADER.size : end])


def later_length(page: memoryview, lsn: int) -> int:
    """The length that a frame of a later version with LSN `lsn` claims where `page` begins; 0: there is none."""
    if len(page) < HEADER.size:
        return 0
    magic, _, length, _, own, _, _, _, _, _, version = HEADER.unpack_from(page)
    return length if own == lsn and magic == MAGIC and version > VERSION and length >= HEADER.size else 0


def checks_out(whole: memoryview, seed: int) -> bool:
    """Is that the frame whose CRC it begins with?"""
    return bool(crc32(whole[FRONT.size :], seed) == CRC.unpack_from(whole, 4)[0])


def lsn_at(page: memoryview) -> int:
    """The LSN that a frame at the beginning of `page` claims; 0 where there is no header."""
    return int(HEADER.unpack_from(page)[4]) if len(page) >= HEADER.size else 0


def length_at(page: memoryview, at: int, lsn: int) -> int:
    """The length that the frame with LSN `lsn` at `at` claims; 0 when it does not look like that frame at all."""
    if at + HEADER.size > len(page):
        return 0
    magic, _, length, _, own, _, _, _, _, _, version = HEADER.unpack_from(page, at)
    return length if own == lsn and magic == MAGIC and version == VERSION else 0
