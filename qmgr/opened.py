"""Blocks of segments that gets of many have read: such a get mostly takes a part of one.

A queue has one at the most, the one that was read last, and a bounded number of queues has one. The queue manager's
lock guards them.
"""

import struct
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate, pairwise

import attrs

from qmgr.message import HEAD, STANDING, standing
from qmgr.segments import Block, Segment, table_of

MOST = 16  # blocks: about a megabyte
FORM, REPLY_TO, PROPERTIES = 3, 4, range(8, 12)  # where a head has the lengths of what follows its fixed part

Messages = tuple[Sequence[bytes], Sequence[bytes]]  # heads, bodies


@attrs.frozen(eq=False)
class Opened:
    """A block as it was read."""

    segment: Segment
    block: Block
    lengths: Sequence[int]  # bytes of each message
    sequences: Sequence[int]
    messages: memoryview
    head: int  # bytes of each head, where these are as long as each other, and bodies too; else 0

    def some(self, first: int, end: int) -> Messages:
        """The messages from one of them up to another."""
        if not self.head:
            return _apart(self.messages, sum(self.lengths[:first]), self.lengths[first:end])
        length = self.lengths[0]
        pairs = struct.iter_unpack(f"{self.head}s{length - self.head}s", self.messages[first * length : end * length])
        heads, bodies = zip(*pairs, strict=True)
        return heads, bodies


def open_block(data: bytes, segment: Segment, block: Block) -> Opened:
    """The block with these bytes."""
    lengths, sequences, at = table_of(data, block.cells)
    return Opened(segment, block, lengths, sequences, memoryview(data)[at:], _head(data, at, lengths))


def _apart(messages: memoryview, at: int, lengths: Sequence[int]) -> Messages:
    """The heads and bodies of messages of these lengths, the first of which is at byte `at`."""
    heads, bodies = [], []
    for begin, end in pairwise(accumulate(lengths, initial=at)):
        _, _, form, reply_to, properties, _ = STANDING.unpack_from(messages, begin)
        body = begin + HEAD.size + form + reply_to + properties
        heads.append(bytes(messages[begin:body]))
        bodies.append(bytes(messages[body:end]))
    return heads, bodies


def _head(data: bytes, at: int, lengths: Sequence[int]) -> int:
    """Bytes of each head of the messages of these lengths from byte `at` on; 0: some differ, or bodies do."""
    length, count = lengths[0], len(lengths)
    if lengths.count(length) < count:
        return 0
    for field in (FORM, REPLY_TO, *PROPERTIES):
        column = data[at + field :: length]
        if column.count(column[0]) < count:
            return 0
    told = standing(data[at : at + HEAD.size])
    return HEAD.size + told.form + told.reply_to + told.properties


class LastOpened:
    """The block of each queue that was opened last."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, Opened] = OrderedDict()  # by the queue's number, the last one used at the end

    def __len__(self) -> int:
        return len(self._blocks)

    def of(self, queue: int) -> Opened | None:
        return self._blocks.get(queue)

    def keep(self, queue: int, block: Opened) -> None:
        self._blocks[queue] = block
        self._blocks.move_to_end(queue)
        if len(self._blocks) > MOST:
            self._blocks.popitem(last=False)

    def drop(self, queue: int) -> None:
        self._blocks.pop(queue, None)
