"""Batches: messages that were put together, kept as the bytes of their log record until they are needed one by one.

Then each becomes an entry, which takes some 200 bytes of memory beside its message, and makes each garbage collection
longer. Most messages of a deep queue never need one: a checkpoint copies the bytes of the batch to a segment, and they
leave memory as they came.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from operator import add, itemgetter

from qmgr.entry import GONE, NOWHERE, OVERHEAD, PUT_TIME_OFFSET, Entry
from qmgr.message import HEAD, PERSISTENT, STANDING
from qmgr.packed import Packed
from qmgr.segment_format import MAX_BLOCK_BYTES, SLOT
from recovery.records import with_lengths

MIN_MESSAGES, MAX_MESSAGES = 8, 512  # of a batch; fewer get entries at once, as a batch of them is not worth while
MAX_BYTES = MAX_BLOCK_BYTES - MAX_MESSAGES * SLOT  # a batch fits into one block
RUN_KEY = itemgetter(0)


class MessageRun:
    """Messages of one priority and persistence, all of which expire or none; see `Queue.add_run`."""

    __slots__ = ("_count", "_packed", "bodies", "expiring", "heads", "persistent", "priority")

    def __init__(self, heads: list[bytes], bodies: list[bytes], persistent: int, priority: int, expiring: bool) -> None:
        self.heads = heads
        self.bodies = bodies
        self.persistent = persistent
        self.priority = priority
        self.expiring = expiring
        self._packed: list[Packed] = []
        self._count = 0  # of the messages that are packed

    def entries(self) -> list[Entry]:
        """An entry for each message; the caller sets their sequences and LSN."""
        persistent, priority = self.persistent, self.priority
        if self.expiring:
            return [self.entry(at) for at in range(len(self.heads))]
        messages = zip(self.heads, self.bodies, strict=True)
        return [Entry(head, body, persistent, priority, 0) for head, body in messages]

    def entry(self, at: int) -> Entry:
        """The entry of one message."""
        head = self.heads[at]
        expires = STANDING.unpack_from(head)[-1] if self.expiring else 0
        return Entry(head, self.bodies[at], self.persistent, self.priority, expires)

    def packed(self) -> list[Packed]:
        """The messages as bytes, in parts that each fit into a batch; [] where entries are to be made at once, which
        takes less time than to copy messages that are large on average.

        They are kept, as the log takes these parts first, and the queue after it; but only until messages are added:
        where an interrupt has come before the log took them, the unit of work goes on.
        """
        count = len(self.heads)
        if self._count != count:
            self._packed = self._pack(count)
            self._count = count
        return self._packed

    def _pack(self, count: int) -> list[Packed]:
        if count < MIN_MESSAGES or not self.persistent or self.expiring:
            return []
        lengths = list(map(add, map(len, self.heads), map(len, self.bodies)))
        size = sum(lengths)
        if count <= MAX_MESSAGES and size <= MAX_BYTES:
            return [_packed(self.heads, self.bodies, lengths)]
        return list(self._parts(lengths, size)) if size * MIN_MESSAGES <= count * MAX_BYTES else []

    def _parts(self, lengths: list[int], size: int) -> Iterator[Packed]:
        """Parts of equal counts, as large as the average length lets them be; what exceeds MAX_BYTES is split further.

        A message too large to share a part has one of its own.
        """
        count, ends = len(lengths), list(accumulate(lengths))
        parts = -(-count // max(1, min(MAX_MESSAGES, MAX_BYTES * count // size)))
        first = before = 0
        for part in range(1, parts + 1):
            while first < part * count // parts:
                end = min(part * count // parts, max(first + 1, bisect_right(ends, before + MAX_BYTES)))
                yield _packed(self.heads[first:end], self.bodies[first:end], lengths[first:end])
                first, before = end, ends[end - 1]

    def in_places(self, sequence: int, lsn: int) -> Iterator["Batch | list[Entry]"]:
        """All messages in order, from this sequence on: batches, and lists of entries where a part has too few."""
        packed, at = self.packed(), 0
        for part in packed:
            count = len(part.lengths)
            if count >= MIN_MESSAGES:
                yield Batch(part, self.priority, sequence + at, lsn)
            else:
                messages = zip(self.heads[at : at + count], self.bodies[at : at + count], strict=True)
                yield _placed(
                    [Entry(*message, PERSISTENT, self.priority, 0) for message in messages], sequence + at, lsn
                )
            at += count
        if not packed:
            yield _placed(self.entries(), sequence, lsn)

    def encoded(self, *, keep: bool) -> list[bytes]:
        """As parts of a record's body; see `with_lengths`. `keep` the bytes: the queue takes them with this record."""
        packed = self.packed()
        if not keep:
            self._packed, self._count = [], 0
        if packed:
            lengths = [struct.pack(f"<{len(one.lengths)}I", *one.lengths) for one in packed]
            return [*lengths, *[one.data for one in packed]]
        return with_lengths(list(zip(self.heads, self.bodies, strict=True)))


def _placed(entries: list[Entry], sequence: int, lsn: int) -> list[Entry]:
    for place, entry in enumerate(entries, sequence):
        entry.sequence = place
        entry.lsn = lsn
    return entries


def _packed(heads: list[bytes], bodies: list[bytes], lengths: list[int]) -> Packed:
    parts = [b""] * (2 * len(heads))
    parts[::2] = heads  # a third of the time that it takes to chain pairs
    parts[1::2] = bodies
    sizes = list(map(len, heads))
    alike = sizes.count(sizes[0]) == lengths.count(lengths[0]) == len(heads)
    return Packed(array("I", lengths), b"".join(parts), head=sizes[0] if alike else 0)


def message_runs(messages: Iterable[tuple[bytes, bytes]]) -> Iterator[MessageRun]:
    """Encoded messages, neighbours that are alike together. Where a body is empty, the head holds all of it."""
    for sort, some in groupby(map(_sorted, messages), RUN_KEY):
        parts = [(head, body) for _, head, body in some]
        yield MessageRun([head for head, _ in parts], [body for _, body in parts], *sort)


def _sorted(message: tuple[bytes, bytes]) -> tuple[tuple[int, int, bool], bytes, bytes]:
    head, body = message
    flags, priority, form, reply_to, properties, expires = STANDING.unpack_from(head)
    if not body:
        end = HEAD.size + form + reply_to + properties
        head, body = head[:end], head[end:]
    return (flags & PERSISTENT, priority, expires > 0), head, body


class Batch:
    """Persistent messages of one priority whose sequences follow each other. The lock guards all but `packed`."""

    __slots__ = ("cell", "count", "lsn", "made", "packed", "priority", "segment", "sequence", "weight")

    def __init__(self, packed: Packed, priority: int, sequence: int, lsn: int) -> None:
        assert not packed.at, "its bytes are those of its messages alone"
        self.packed: Packed | None = packed  # None: they are entries by now
        self.made: list[Entry] | None = None
        self.count = len(packed.lengths)
        self.weight = len(packed.data) + OVERHEAD * self.count  # see `weight`
        self.priority = priority
        self.sequence = sequence  # of the first
        self.lsn = lsn
        self.segment = NOWHERE
        self.cell = 0  # of the first

    def entries(self) -> list[Entry]:
        """An entry for each message, made when first asked for: from then on it is no batch any more."""
        made, packed, priority = self.made, self.packed, self.priority
        if made is None:
            assert packed is not None, "they are one or the other"
            made = [Entry(head, body, PERSISTENT, priority, 0) for head, body in packed.pairs(0, self.count)]
            lsn, segment = self.lsn, self.segment
            for sequence, entry in enumerate(made, self.sequence):
                entry.sequence = sequence
                entry.lsn = lsn
            if segment:
                for cell, entry in enumerate(made, self.cell):
                    entry.segment = segment
                    entry.cell = cell
            self.made = made
            self.packed = None  # last: a checkpoint, which looks at it without the lock, then finds `made`
        return made

    def drop(self, count: int) -> int:
        """Drop the first `count` messages, which are gone; returns their weight.

        Not to be called once the batch has entries, nor while a checkpoint writes it.
        """
        packed, weight = self.packed, self.weight
        assert packed is not None, "they are no entries"
        if count == self.count:
            self.made, self.packed = [], None
        else:
            weight = sum(packed.lengths[:count]) + OVERHEAD * count
            self.packed = packed.behind(count)
        self.count -= count
        self.weight -= weight
        self.sequence += count
        self.cell += count
        return weight


Items = list[Entry | Batch]


def still_there(items: Items) -> Items:
    """The items that are not gone; in place of a batch that has entries, those of them that are not gone."""
    kept: Items = []
    for item in items:
        if isinstance(item, Entry):
            if item.status != GONE:
                kept.append(item)
        elif item.made is None:
            kept.append(item)
        else:
            kept += [entry for entry in item.made if entry.status != GONE]
    return kept


def weight(items: Iterable[Entry | Batch]) -> int:
    """The bytes of memory that the items take, about: those of the messages, and OVERHEAD for each."""
    size = 0
    for item in items:
        if isinstance(item, Entry):
            size += len(item.head) + len(item.body) + OVERHEAD
        else:
            size += item.weight
    return size


def put_time(item: Batch | list[Entry]) -> int:
    """When the first of them was put, microseconds since 1970-01-01 UTC."""
    entries = item if isinstance(item, list) else item.made
    if entries:
        return entries[0].put_time
    assert isinstance(item, Batch) and item.packed is not None, "a batch is one or the other"
    return int.from_bytes(item.packed.data[PUT_TIME_OFFSET : PUT_TIME_OFFSET + 8], "little")
