"""Messages one behind the other, as records of the log and blocks of segments have them, and how to take them apart."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import cast

from qmgr.message import HEAD, STANDING, standing

FORM, REPLY_TO, PROPERTIES = 3, 4, range(8, 12)  # where a head has the lengths of what follows its fixed part
NOT_KNOWN = -1

Messages = tuple[Sequence[bytes], Sequence[bytes]]  # heads, bodies


class Packed:
    """Encoded messages; never changed."""

    __slots__ = ("_head", "at", "data", "lengths")

    def __init__(self, lengths: Sequence[int], data: bytes, at: int = 0, head: int = NOT_KNOWN) -> None:
        self.lengths = lengths  # bytes of each message
        self.data = data
        self.at = at  # where in the data the first one begins; the last one ends where the data does
        self._head = head  # bytes of each head, where all heads have one length, and all bodies; else 0

    def some(self, first: int, end: int) -> Messages:
        """The messages from number `first` up to `end`, which is not among them."""
        heads, bodies = zip(*self.pairs(first, end), strict=True)
        return heads, bodies

    def pairs(self, first: int, end: int) -> Iterable[tuple[bytes, bytes]]:
        """(head, body) of each of these."""
        head, lengths = self._head, self.lengths
        if head == NOT_KNOWN:
            head = self._head = _head_bytes(self.data, self.at, lengths)
        if not head:
            return _apart(self.data, self.at + sum(lengths[:first]), lengths[first:end])
        length = lengths[0]
        data = memoryview(self.data)[self.at + first * length : self.at + end * length]
        return cast("Iterable[tuple[bytes, bytes]]", struct.iter_unpack(f"{head}s{length - head}s", data))

    def behind(self, count: int) -> "Packed":
        """Without the first `count`. The others are copied, so that their bytes alone stay in memory."""
        lengths = self.lengths
        return Packed(lengths[count:], self.data[self.at + sum(lengths[:count]) :], head=self._head)


def _apart(data: bytes, at: int, lengths: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
    """(head, body) of messages of these lengths, the first of which is at byte `at`."""
    for begin, end in pairwise(accumulate(lengths, initial=at)):
        _, _, form, reply_to, properties, _ = STANDING.unpack_from(data, begin)
        body = begin + HEAD.size + form + reply_to + properties
        yield data[begin:body], data[body:end]


def _head_bytes(data: bytes, at: int, lengths: Sequence[int]) -> int:
    """Bytes of each head of the messages of these lengths from byte `at` on; 0: heads differ in length, or bodies."""
    length, count = lengths[0], len(lengths)
    if lengths.count(length) < count:
        return 0
    for field in (FORM, REPLY_TO, *PROPERTIES):
        column = data[at + field :: length]
        if column.count(column[0]) < count:
            return 0
    told = standing(data[at : at + HEAD.size])
    return HEAD.size + told.form + told.reply_to + told.properties
