"""What a get of many takes from the front of a queue as it lies: entries of the line, blocks of segments, batches.

No message of a block or a batch becomes an entry by that. `Queue.front` tells what there is, `take_front` takes it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat

import attrs

from qmgr.batch import Batch
from qmgr.entry import Entry
from qmgr.message import Message
from qmgr.opened import Opened

SHARE = 4  # of a block at least a quarter must be wanted: for less it becomes entries, lest it be read again and again


@attrs.frozen
class Part:
    """Messages that lie together, without entries."""

    heads: Sequence[bytes]
    bodies: Sequence[bytes]
    sequences: Sequence[int]
    batch: Batch | None  # of which they are the first ones; None: they are paged
    block: Opened | None = None  # that has them, if they are paged
    cell: int = 0  # of the first one there
    size: int = 0  # bytes of them all


@attrs.frozen
class Front:
    """All that a get takes."""

    entries: list[Entry]  # those of the line
    parts: list[Part]

    @property
    def sequences(self) -> list[int]:
        return [*[entry.sequence for entry in self.entries], *[at for part in self.parts for at in part.sequences]]

    def messages(self, queue: str) -> list[Message]:
        made = [Message(entry.body, entry.head, queue, entry.backouts) for entry in self.entries]
        for part in self.parts:
            made += map(Message, part.bodies, part.heads, repeat(queue))
        return made


def part_of_batch(batch: Batch, count: int) -> Part | None:
    """Its first messages, `count` at most. None: they are entries by now."""
    packed = batch.packed
    if packed is None:
        return None
    count = min(count, batch.count)
    heads, bodies = packed.some(0, count)
    return Part(heads, bodies, range(batch.sequence, batch.sequence + count), batch)


def part_of_block(opened: Opened, low: int, count: int) -> Part | None:
    """The messages of a block from the sequence `low` on, `count` at most. None: some of them are gone."""
    segment, block, sequences = opened.segment, opened.block, opened.sequences
    first = bisect_left(sequences, low)
    end = min(first + count, block.cells)
    cell = block.cell + first
    if segment.has_gone(cell, end - first):
        return None
    heads, bodies = opened.packed.some(first, end)
    return Part(heads, bodies, sequences[first:end], None, opened, cell, sum(opened.packed.lengths[first:end]))
