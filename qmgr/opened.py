"""A cache of segment blocks: a get of many messages mostly takes a part of the last one that it reads.

It holds one block of a queue, the one read last, for MAX_BLOCKS queues at most. The queue manager's lock guards it.
"""

from collections import OrderedDict
from collections.abc import Sequence

import attrs

from qmgr.packed import Packed
from qmgr.segment_format import Block, table_of
from qmgr.segments import Segment

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
    """The block that was opened last, of each queue."""

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
