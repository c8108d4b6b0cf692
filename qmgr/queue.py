"""One queue: priority, then the order of commit; what can be got, what is locked, what is gone.

Ten lanes, one for each priority, hold the entries in the order of their sequence numbers. An entry that is taken or
locked stays where it is until it comes to the front of its lane; one that is given back is sorted in beside the line,
and so finds its old place. The caller's lock guards every method.
"""

import heapq
from collections import deque
from collections.abc import Iterator

from sortedcontainers import SortedDict

from qmgr.due import Waiters
from qmgr.message import PERSISTENT, STANDING, describe, ids_of, split
from qmgr.objects import QueueDefinition
from qmgr.segments import Segment

READY, LOCKED, GONE = 0, 1, 2
NOWHERE = 0  # no segment has the entry

Index = dict[bytes, dict[int, "Entry"]]  # by id, then by sequence


class Entry:
    """A message on a queue."""

    __slots__ = (
        "backouts",
        "body",
        "cell",
        "expires",
        "head",
        "lsn",
        "persistent",
        "priority",
        "segment",
        "sequence",
        "status",
    )

    def __init__(self, head: bytes, body: bytes, persistent: int, priority: int, expires: int) -> None:
        self.head = head
        self.body = body
        self.persistent = persistent
        self.priority = priority
        self.expires = expires
        self.status = READY
        self.backouts = 0
        self.segment = NOWHERE

    sequence: int
    lsn: int  # callers may see it once the log is safe up to here
    cell: int  # of its segment

    def __lt__(self, other: "Entry") -> bool:
        return self.sequence < other.sequence


def read_entry(head: bytes, body: bytes) -> Entry:
    """The entry of an encoded message. `head` may hold all of it, with `body` empty."""
    if not body:
        head, body = split(head)
    flags, priority, expires = STANDING.unpack_from(head)
    return Entry(head, body, flags & PERSISTENT, priority, expires)


class Lane:
    """The entries of one priority."""

    __slots__ = ("dead", "given_back", "line")

    def __init__(self) -> None:
        self.line: deque[Entry] = deque()
        self.given_back: SortedDict[int, Entry] = SortedDict()  # by sequence; some stand in the line as well
        self.dead = 0  # entries of the line that were taken from its middle

    def first(self) -> Entry | None:
        """The entry that a get takes next, still in its place."""
        line = self.line
        while line and line[0].status != READY:
            line.popleft()
            self.dead -= 1
        back = self.given_back
        while back:
            entry: Entry = back.peekitem(0)[1]
            if entry.status == READY:
                return entry if not line or entry.sequence <= line[0].sequence else line[0]
            back.popitem(0)
        return line[0] if line else None

    def entries(self) -> Iterator[Entry]:
        """All that are ready, in order."""
        last = None
        both = heapq.merge(self.line, self.given_back.values()) if self.given_back else iter(self.line)
        for entry in both:
            if entry.status == READY and entry is not last:
                last = entry
                yield entry

    def took(self, entry: Entry) -> None:
        """The entry is not ready any more. In the middle of the line it stays for now, but the line must not fill up
        with what is not there."""
        line = self.line
        if line and line[0] is entry:
            line.popleft()
            return
        self.dead += 1
        if self.dead > 64 and self.dead > len(line) // 2:
            self.line = deque([entry for entry in line if entry.status == READY])
            self.dead = 0


class Queue:
    """A local queue and its messages."""

    def __init__(self, definition: QueueDefinition) -> None:
        self.id = definition.id
        self.next_sequence = 1
        self.depth = 0  # what is ready, and puts that are not committed yet
        self.uncommitted = 0  # puts and gets of units of work that have not ended
        self.expiring = 0  # messages that have been added with a time to expire
        self.damaged = ""  # why nothing can be done with it; empty when all is well
        self.deleted = False
        self.waiters = Waiters()
        self.fresh: list[Entry] = []  # persistent, and in no segment yet
        self.backed_out: dict[int, Entry] = {}  # persistent entries with a backout count, by sequence
        self.segments: dict[int, Segment] = {}
        self.changed = True  # since the last checkpoint
        self.line = b""  # what the last checkpoint says of the queue
        self._lanes = [Lane() for _ in range(10)]
        self._occupied = 0  # a bit for each lane that may have entries
        self._by_message_id: Index | None = None
        self._by_correlation_id: Index | None = None
        self._by_sequence: dict[int, Entry] | None = None
        self._indexed = False  # there is one of the three
        self._settle(definition)

    def _settle(self, definition: QueueDefinition) -> None:
        """Take attributes, and what every put and get looks at of them."""
        self.definition = definition
        self.name = definition.name
        self.room_to = definition.max_depth if definition.put_enabled else -1  # the depth that puts may reach
        self.max_length = definition.max_message_length
        self.get_enabled = definition.get_enabled
        self.plain = describe(definition.default_priority, definition.default_persistence)  # of a put without options
        self._fifo = definition.delivery_sequence == "FIFO"

    def redefine(self, definition: QueueDefinition) -> None:
        """Take new attributes; a new order of delivery puts what is there into other lanes."""
        reorder = definition.delivery_sequence != self.definition.delivery_sequence
        entries = sorted(self.ready()) if reorder else []
        self._settle(definition)
        self.changed = True
        if reorder:
            self._lanes = [Lane() for _ in range(10)]
            for entry in entries:
                self._lane(entry).line.append(entry)

    def retire(self) -> None:
        """It is deleted; who still holds it finds that out."""
        self.deleted = True
        self.room_to = -1
        self.get_enabled = False
        self.waiters.wake_all()

    def _lane(self, entry: Entry) -> Lane:
        """Where the entry belongs; it counts as occupied from now on."""
        priority = 0 if self._fifo else entry.priority
        self._occupied |= 1 << priority
        return self._lanes[priority]

    # ---- looking

    def first(self) -> Entry | None:
        """The entry that a get takes next: highest priority, then lowest sequence."""
        while self._occupied:
            priority = self._occupied.bit_length() - 1
            entry = self._lanes[priority].first()
            if entry is not None:
                return entry
            self._occupied ^= 1 << priority
        return None

    def ready(self) -> Iterator[Entry]:
        """All entries that can be got, in the order in which they would be."""
        for lane in reversed(self._lanes):
            yield from lane.entries()

    def select(self, message_id: bytes | None, correlation_id: bytes | None) -> Iterator[Entry]:
        """The ready entries with these ids, in the order of delivery, from an index made when first asked for."""
        if message_id is not None:
            if self._by_message_id is None:
                self._by_message_id = self._index(0)
            index, key, other = self._by_message_id, message_id, correlation_id
        else:
            assert correlation_id is not None
            if self._by_correlation_id is None:
                self._by_correlation_id = self._index(1)
            index, key, other = self._by_correlation_id, correlation_id, None
        found = index.get(key, {}).values()
        ready = [e for e in found if e.status == READY and (other is None or ids_of(e.head)[1] == other)]
        yield from sorted(ready, key=lambda e: (0 if self._fifo else -e.priority, e.sequence))

    def _index(self, which: int) -> Index:
        self._indexed = True
        index: Index = {}
        for lane in self._lanes:
            for entry in (*lane.line, *lane.given_back.values()):
                if entry.status != GONE:
                    index.setdefault(ids_of(entry.head)[which], {})[entry.sequence] = entry
        return index

    def find(self, sequence: int) -> Entry:
        """The entry with this sequence; for replay, where it is nearly always the next one. Raises KeyError."""
        if self._by_sequence is None:
            for lane in self._lanes:
                entry = lane.first()
                if entry is not None and entry.sequence == sequence:
                    return entry
            self._indexed = True
            self._by_sequence = {e.sequence: e for lane in self._lanes for e in (*lane.line, *lane.given_back.values())}
        entry = self._by_sequence[sequence]
        if entry.status != READY:
            raise KeyError(f"message {sequence} of queue {self.name} is taken twice")
        return entry

    def forget_sequences(self) -> None:
        """The replay is over."""
        self._by_sequence = None
        self._indexed = self._by_message_id is not None or self._by_correlation_id is not None

    # ---- changing; only `State.apply` calls these

    def add(self, entry: Entry, sequence: int, lsn: int) -> None:
        """A message becomes visible; it was counted in `depth` when it was put."""
        entry.sequence = sequence
        entry.lsn = lsn
        if sequence >= self.next_sequence:
            self.next_sequence = sequence + 1
        self._lane(entry).line.append(entry)
        if entry.persistent:
            self.fresh.append(entry)
            self.changed = True
        if entry.expires:
            self.expiring += 1
        if self._indexed:
            self._add_to_indexes(entry)
        if self.waiters.line:
            self.waiters.wake_one()

    def _add_to_indexes(self, entry: Entry) -> None:
        if self._by_sequence is not None:
            self._by_sequence[entry.sequence] = entry
        for index, key in zip((self._by_message_id, self._by_correlation_id), ids_of(entry.head), strict=True):
            if index is not None:
                index.setdefault(key, {})[entry.sequence] = entry

    def _remove_from_indexes(self, entry: Entry) -> None:
        for index, key in zip((self._by_message_id, self._by_correlation_id), ids_of(entry.head), strict=True):
            entries = index.get(key) if index is not None else None
            if entries is not None and index is not None:
                entries.pop(entry.sequence, None)
                if not entries:
                    del index[key]

    def lock(self, entry: Entry) -> None:
        """A unit of work gets the message: nobody else sees it."""
        entry.status = LOCKED
        self.depth -= 1
        self.uncommitted += 1
        self._lane(entry).took(entry)

    def give_back(self, entry: Entry, *, count: bool) -> None:
        """The unit of work that had locked it was backed out; `count` it."""
        entry.status = READY
        self.depth += 1
        self.uncommitted -= 1
        self._lane(entry).given_back[entry.sequence] = entry
        if self._indexed:
            self._add_to_indexes(entry)  # which may have been made while it was locked
        if count:
            entry.backouts += 1
            if entry.persistent:
                self.backed_out[entry.sequence] = entry
                self.changed = True
        if self.waiters.line:
            self.waiters.wake_one()

    def take(self, entry: Entry) -> None:
        """A ready message is got outside a unit of work, or its time is over."""
        entry.status = GONE
        self.depth -= 1
        self._lane(entry).took(entry)
        self._forget(entry)

    def remove(self, entry: Entry) -> None:
        """A locked message is gone for good."""
        entry.status = GONE
        self.uncommitted -= 1
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        if entry.expires:
            self.expiring -= 1
        if self._indexed:
            self._remove_from_indexes(entry)
        entry.body = b""
        if entry.persistent:
            self.changed = True
            if entry.backouts:
                self.backed_out.pop(entry.sequence, None)
            if entry.segment:
                self.segments[entry.segment].mark_gone(entry.cell)

    def load(self, entries: list[Entry]) -> None:
        """Become what a checkpoint held; in the order of their sequences."""
        for entry in entries:
            self._lane(entry).line.append(entry)
        self.depth = len(entries)
        self.expiring = sum(1 for entry in entries if entry.expires)
        self.backed_out = {e.sequence: e for e in entries if e.backouts and e.persistent}
