"""What a get of many takes from the front of a queue as it lies: entries of the line, blocks of segments, batches.

No message of a block or a batch becomes an entry by that. `Queue.front` tells what there is, `take_front` takes it.
"""

from bisect import bisect_left
from collections.abc import Sequence

import attrs

from qmgr.batch import Batch
from qmgr.entry import Entry
from qmgr.message import HEAD, STANDING, Message
from qmgr.segments import Block, Segment, table_of

SHARE = 4  # a block is read for at least a quarter of its messages: for fewer it is read once, and they become entries


@attrs.frozen
class Part:
    """Messages that lie together, without entries."""

    heads: Sequence[bytes]
    bodies: Sequence[bytes]
    sequences: Sequence[int]
    batch: Batch | None  # of which they are the first ones; None: they are paged
    segment: Segment | None = None  # that has them, if they are paged, and from which cell on
    cell: int = 0


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
            made += [Message(body, head, queue, 0) for head, body in zip(part.heads, part.bodies, strict=True)]
        return made


def part_of_batch(batch: Batch, count: int) -> Part | None:
    """Its first messages, `count` at most. None: they are entries by now."""
    alike = batch.alike
    if alike is None:
        return None
    count = min(count, batch.count)
    whole = count == batch.count
    heads, bodies = (alike.heads, alike.bodies) if whole else (alike.heads[:count], alike.bodies[:count])
    return Part(heads, bodies, range(batch.sequence, batch.sequence + count), batch)


def part_of_block(data: bytes, segment: Segment, block: Block, low: int, count: int) -> Part | None:
    """The messages in the bytes of a block from the sequence `low` on, `count` at most. None: some of them are gone."""
    lengths, sequences, at = table_of(data, block.cells)
    first = bisect_left(sequences, low)
    end = min(first + count, block.cells)
    if segment.has_gone(block.cell + first, end - first):
        return None
    at += sum(lengths[:first])
    facts_of = STANDING.unpack_from
    heads, bodies = [], []
    for length in lengths[first:end]:
        _, _, form, reply_to, properties, _ = facts_of(data, at)
        body = at + HEAD.size + form + reply_to + properties
        heads.append(data[at:body])
        at += length
        bodies.append(data[body:at])
    return Part(heads, bodies, sequences[first:end], None, segment, block.cell + first)
