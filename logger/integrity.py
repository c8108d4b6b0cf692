"""The partial last page: single and triple write, as a plan of writes. Touches no file.

A page goes home (to its place in the extent) once, when it is full. While it is partial, `TripleWrite` puts its
versions into the extent's two spare pages in turn, so the newest version that commits rely on is never overwritten;
`SingleWrite` overwrites the page at home. A version in a spare page says in the page's last 48 bytes, which no frame
reaches, what it is:

    offset  size  field    meaning
         0     4  magic    "HLSP"
         4     4  crc      CRC-32 of the page up to `tail`, then of bytes 8..48 of this trailer
         8     8  page     LSN of the page's first byte
        16     8  tail     LSN of the first byte that this version does not hold
        24     4  epoch
        28     4  -
        32    16  -
"""

import struct
from typing import NamedTuple

from logger.crc import crc32
from logger.disk import PAGE

TRAILER = struct.Struct("<4sIQQI20x")
TRAILER_FRONT, TRAILER_REST = struct.Struct("<4sI"), struct.Struct("<QQI20x")  # the same in two: see `frame.py`
assert TRAILER.size == TRAILER_FRONT.size + TRAILER_REST.size == 48
MAGIC = b"HLSP"
BODY = PAGE - TRAILER.size


class Spare(NamedTuple):
    """A version of a partial page, as found in a spare page."""

    page: int
    tail: int
    epoch: int
    image: bytes


def seal_spare(image: memoryview, page: int, tail: int, epoch: int, crc: int) -> None:
    """Write the trailer into `image`, the 4096 bytes of a partial page; `crc` is the seeded CRC of what it holds."""
    assert tail - page <= BODY, "a partial page has room for its trailer"
    rest = TRAILER_REST.pack(page, tail, epoch)
    image[BODY:] = TRAILER_FRONT.pack(MAGIC, crc32(rest, crc)) + rest


def open_spare(image: bytes, seed: int) -> Spare | None:
    """What the spare page holds, or None when it is not whole."""
    if len(image) != PAGE:
        return None
    magic, crc, page, tail, epoch = TRAILER.unpack_from(image, BODY)
    if magic != MAGIC or page % PAGE or not page < tail <= page + BODY:
        return None
    if crc32(image[BODY + 8 :], crc32(image[: tail - page], seed)) != crc:
        return None
    return Spare(page, tail, epoch, image)


def next_spare(images: list[bytes], spares: list[Spare | None], page: int) -> int:
    """Which spare page to write next when the log ends in `page`: the one that can best be spared.

    A torn one, else one that was never written, else one of another page, else the older one.
    """

    def worth(number: int) -> tuple[int, int, int]:
        spare = spares[number]
        if spare is None:
            return (0 if any(images[number]) else 1), 0, 0
        return (3 if spare.page == page else 2), spare.epoch, spare.tail

    return min(range(len(images)), key=worth)


def choose(home: bytes, spares: list[Spare]) -> Spare | None:
    """The version of a page to believe: None for the one at home, else the newest of `spares` (all of that page).

    Home holds all that the newest spare holds when it was written later and in order; where it does not, it was torn
    or never written, and nothing beyond the spare was durable.
    """
    newest = max(spares, key=lambda spare: (spare.epoch, spare.tail))
    held = newest.tail - newest.page
    return None if home[:held] == newest.image[:held] else newest
