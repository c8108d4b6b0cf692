"""Blocks of segments that gets of many have read: such a get mostly takes a part of one.

A queue has at most one, the one that was read last, and only so many queues have one. The queue manager's lock
guards them.
"""

from collections import OrderedDict
from collections.abc import Sequence

import attrs

from qmgr.packed import Packed
from qmgr.segments import Block, Segment, table_of

MAX_BLOCKS = 16  # about a megabyte


@attrs.frozen(eq=False)
class Opened:
    """A block as it was read."""

    segment: Segment
    block: Block
    sequences: Sequence[int]
    packed: Packed  # its messages


def open_block(data: bytes, segment: Segment, block: Block) -> Opened:
    """The block with these bytes."""
    lengths, sequences, at = table_of(data, block.cells)
    return Opened(segment, block, sequences, Packed(lengths, data, at))


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
        if len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)

    def drop(self, queue: int) -> None:
        self._blocks.pop(queue, None)
