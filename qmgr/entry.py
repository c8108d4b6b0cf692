"""A message on a queue, in memory: ready, locked by a unit of work, or gone."""

from qmgr.message import HEAD, PERSISTENT, STANDING

READY, LOCKED, GONE = 0, 1, 2
COPY = 3  # of a ready message that is in a segment only: made to be looked at, and no part of the queue
PUT_TIME_OFFSET = 16  # in the head
NOWHERE = 0  # no segment has the entry
OVERHEAD = 400  # bytes that an entry takes in memory beyond its head and body, about


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

    @property
    def put_time(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return int.from_bytes(self.head[PUT_TIME_OFFSET : PUT_TIME_OFFSET + 8], "little")

    def __lt__(self, other: "Entry") -> bool:
        return self.sequence < other.sequence


def read_entry(head: bytes, body: bytes) -> Entry:
    """The entry of an encoded message. `head` may hold all of it, with `body` empty."""
    flags, priority, form, reply_to, properties, expires = STANDING.unpack_from(head)
    if not body:
        end = HEAD.size + form + reply_to + properties
        head, body = head[:end], head[end:]
    return Entry(head, body, flags & PERSISTENT, priority, expires)


def read_copy(message: bytes, segment: int, cell: int, sequence: int) -> Entry:
    """A copy of the message that a segment has."""
    flags, priority, form, reply_to, properties, expires = STANDING.unpack_from(message)
    end = HEAD.size + form + reply_to + properties
    entry = Entry(message[:end], message[end:], flags & PERSISTENT, priority, expires)
    entry.status = COPY
    entry.segment = segment
    entry.cell = cell
    entry.sequence = sequence
    entry.lsn = 0  # it was safe before a checkpoint wrote it
    return entry
