"""Messages that came together and are alike: two lists, until the first of them is asked for. Then each has an entry.

An entry takes ten times the memory of its place in a list, and a part of each collection of garbage. Most messages of a
deep queue need none: a checkpoint writes them to a segment, and they leave memory as they came.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from qmgr.entry import GONE, NOWHERE, OVERHEAD, PUT_TIME, Entry
from qmgr.message import HEAD, PERSISTENT, STANDING

FEWEST, MOST = 8, 512  # messages of a batch: for fewer it is not worth while, and all of them become entries together
SORT = itemgetter(0)


class Alike:
    """Messages of one priority and persistence, all of which expire or none; see `Queue.add_run`."""

    __slots__ = ("bodies", "expiring", "heads", "persistent", "priority")

    def __init__(self, heads: list[bytes], bodies: list[bytes], persistent: int, priority: int, expiring: bool) -> None:
        self.heads = heads
        self.bodies = bodies
        self.persistent = persistent
        self.priority = priority
        self.expiring = expiring

    def entries(self) -> list[Entry]:
        """One for each message; where they lie is for the caller to say."""
        persistent, priority = self.persistent, self.priority
        if self.expiring:
            return [self.entry(at) for at in range(len(self.heads))]
        messages = zip(self.heads, self.bodies, strict=True)
        return [Entry(head, body, persistent, priority, 0) for head, body in messages]

    def entry(self, at: int) -> Entry:
        """That of one message."""
        head = self.heads[at]
        expires = STANDING.unpack_from(head)[-1] if self.expiring else 0
        return Entry(head, self.bodies[at], self.persistent, self.priority, expires)

    def divided(self, most: int) -> Iterator["Alike"]:
        """The same in parts of at most so many messages."""
        if len(self.heads) <= most:
            yield self
            return
        for at in range(0, len(self.heads), most):
            heads, bodies = self.heads[at : at + most], self.bodies[at : at + most]
            yield Alike(heads, bodies, self.persistent, self.priority, self.expiring)


def alike(messages: Iterable[tuple[bytes, bytes]]) -> Iterator[Alike]:
    """Encoded messages, neighbours that are alike together. Where a body is empty, the head holds all of it."""
    for sort, some in groupby(map(_sorted, messages), SORT):
        parts = [(head, body) for _, head, body in some]
        yield Alike([head for head, _ in parts], [body for _, body in parts], *sort)


def _sorted(message: tuple[bytes, bytes]) -> tuple[tuple[int, int, bool], bytes, bytes]:
    head, body = message
    flags, priority, form, reply_to, properties, expires = STANDING.unpack_from(head)
    if not body:
        end = HEAD.size + form + reply_to + properties
        head, body = head[:end], head[end:]
    return (flags & PERSISTENT, priority, expires > 0), head, body


class Batch:
    """Messages in places that follow each other. Under the lock, but for `alike`."""

    __slots__ = ("alike", "cell", "count", "lsn", "made", "priority", "segment", "sequence", "weight")

    def __init__(self, alike: Alike, sequence: int, lsn: int) -> None:
        self.alike: Alike | None = alike  # None: they are entries by now
        self.made: list[Entry] | None = None
        self.count = len(alike.heads)
        self.weight = sum(map(len, alike.heads)) + sum(map(len, alike.bodies)) + OVERHEAD * self.count  # see `weight`
        self.priority = alike.priority
        self.sequence = sequence  # of the first
        self.lsn = lsn
        self.segment = NOWHERE
        self.cell = 0  # of the first

    def entries(self) -> list[Entry]:
        made, alike = self.made, self.alike
        if made is None:
            assert alike is not None, "they are one or the other"
            made = alike.entries()
            lsn, segment = self.lsn, self.segment
            for sequence, entry in enumerate(made, self.sequence):
                entry.sequence = sequence
                entry.lsn = lsn
            if segment:
                for cell, entry in enumerate(made, self.cell):
                    entry.segment = segment
                    entry.cell = cell
            self.made = made
            self.alike = None  # after that: a checkpoint looks at it without the lock
        return made

    def drop(self, count: int) -> int:
        """The first of them, so many, are gone, and none has become an entry; the weight of these.

        Not while a checkpoint writes the batch.
        """
        alike, weight = self.alike, self.weight
        assert alike is not None, "they are no entries"
        if count == self.count:
            self.made, self.alike = [], None
        else:
            weight = sum(map(len, alike.heads[:count])) + sum(map(len, alike.bodies[:count])) + OVERHEAD * count
            heads, bodies = alike.heads[count:], alike.bodies[count:]
            self.alike = Alike(heads, bodies, alike.persistent, alike.priority, alike.expiring)
        self.count -= count
        self.weight -= weight
        self.sequence += count
        self.cell += count
        return weight


Items = list[Entry | Batch]


def still_there(items: Items) -> Items:
    """Those that are not gone; of a batch that has become entries only these."""
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
    """The bytes of memory that they take, as they are counted."""
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
    assert isinstance(item, Batch) and item.alike is not None, "a batch is one or the other"
    return int.from_bytes(item.alike.heads[0][PUT_TIME : PUT_TIME + 8], "little")
