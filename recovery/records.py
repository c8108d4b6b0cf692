"""Every kind of record: format tables, encode, decode. A record is the only thing that changes durable state.

The unit-of-work number, the time and the LSN stand in the frame (`logger/frame.py`). Bodies, little-endian:

    PUT            queue u32, place u64, then the encoded message: outside a unit of work (number 0) `place` is its
                   sequence on the queue; in one it is its ordinal among the unit's puts
    PUT_MANY       queue u32, place u64 of the first message, count u32, the length u32 of each, then the messages
    GET            queue u32, then the sequence u64 of each message taken
    EXPIRE         queue u32, then the sequence u64 of each message removed because its time was over
    COMMIT         per queue with persistent puts: queue u32, sequence u64 of ordinal 0
    BACKOUT        -
    PREPARE        format id i32, length of gtrid u8, gtrid, bqual
    ROLL_FORWARD   an xid as above with its whole length u16 before it; then per put 1, queue, ordinal, length u32 and
                   message, per get 2, queue, sequence: replaces what the unit of work logged before
    DEFINE         JSON: a queue's definition, also when it is altered
    DELETE         queue u32
    CHECKPOINT     JSON: what a checkpoint holds in numbers; written where it begins, and where it is complete
"""

import enum
import struct
from collections.abc import Callable
from typing import Any

import attrs

QUEUE_PLACE = struct.Struct("<IQ")
QUEUE = struct.Struct("<I")
XID = struct.Struct("<iB")
LENGTH16 = struct.Struct("<H")
PART = struct.Struct("<BIQ")
LENGTH32 = struct.Struct("<I")
MAX_XID_PART = 64  # bytes of gtrid and of bqual
LARGEST_XID = XID.size + 2 * MAX_XID_PART


class Kind(enum.IntEnum):
    """Record types; numbers in the families of the queue manager's components: AQM 256, AOC 512, ATM 768, ALM 1024."""

    PUT = 257
    PUT_MANY = 258
    GET = 259
    EXPIRE = 261
    DEFINE = 513
    DELETE = 514
    PREPARE = 770
    COMMIT = 771
    BACKOUT = 772
    ROLL_FORWARD = 774
    START_CHECKPOINT = 1025
    END_CHECKPOINT = 1026


@attrs.frozen(order=True)
class Xid:
    """The name of a global transaction: format id, global transaction id, branch qualifier (each at most 64 bytes)."""

    format_id: int
    gtrid: bytes
    bqual: bytes

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.format_id, int) or not -(2**31) <= self.format_id < 2**31:
            raise ValueError(f"an Xid's format_id is a 32-bit whole number, not {self.format_id!r}")
        for name, value, least in (("gtrid", self.gtrid, 1), ("bqual", self.bqual, 0)):
            if not isinstance(value, bytes) or not least <= len(value) <= MAX_XID_PART:
                raise ValueError(f"an Xid's {name} is {least} to {MAX_XID_PART} bytes, not {value!r}")

    def encode(self) -> bytes:
        return XID.pack(self.format_id, len(self.gtrid)) + self.gtrid + self.bqual


def decode_xid(body: bytes) -> Xid:
    format_id, gtrid_length = XID.unpack_from(body)
    return Xid(format_id, body[XID.size : XID.size + gtrid_length], body[XID.size + gtrid_length :])


@attrs.define
class Put:
    """A message goes to a queue: at once (uow 0), or invisible until its unit of work commits."""

    uow: int
    queue: int
    place: int  # sequence when uow is 0, else ordinal
    message: bytes  # encoded; without its body where that is given apart, to spare a copy
    body: bytes | None = None


@attrs.define
class PutMany:
    """Messages go to a queue in one call, in places that follow each other."""

    uow: int
    queue: int
    place: int
    messages: list[tuple[bytes, bytes | None]]  # as in Put


@attrs.define
class Get:
    """Messages are taken: for good (uow 0), or locked until the unit of work ends."""

    uow: int
    queue: int
    sequences: tuple[int, ...]
    found: list[Any] | None = None  # what has these sequences, where the caller holds it in hand


@attrs.define
class Expire:
    """Messages whose time is over are removed."""

    queue: int
    sequences: tuple[int, ...]
    found: list[Any] | None = None


@attrs.define
class Commit:
    uow: int
    bases: dict[int, int]  # queue -> sequence of ordinal 0


@attrs.define
class Backout:
    uow: int


@attrs.define
class Prepare:
    uow: int
    xid: Xid


@attrs.define
class RollForward:
    """What a prepared unit of work has done so far, again, so that the log before it can be given back."""

    uow: int
    xid: Xid
    puts: list[tuple[int, int, bytes]]  # queue, ordinal, message
    gets: list[tuple[int, int]]  # queue, sequence


@attrs.define
class Define:
    """A queue is defined or altered."""

    definition: bytes  # JSON, with the queue's number under "id"


@attrs.define
class Delete:
    queue: int


@attrs.define
class CheckpointMark:
    """Where a checkpoint begins (its LSN is that of this record), or that it is complete; changes nothing."""

    kind: Kind
    notes: bytes  # JSON


Record = Put | PutMany | Get | Expire | Commit | Backout | Prepare | RollForward | Define | Delete | CheckpointMark


def encode_sequences(queue: int, sequences: tuple[int, ...] | list[int]) -> bytes:
    if len(sequences) == 1:
        return QUEUE_PLACE.pack(queue, sequences[0])
    return struct.pack(f"<I{len(sequences)}Q", queue, *sequences)


def encode_bases(bases: dict[int, int]) -> bytes:
    if len(bases) == 1:
        return QUEUE_PLACE.pack(*next(iter(bases.items())))
    return b"".join([QUEUE_PLACE.pack(queue, base) for queue, base in bases.items()])


def encode_roll_forward(record: RollForward) -> bytes:
    xid = record.xid.encode()
    parts = [LENGTH16.pack(len(xid)), xid]
    for queue, ordinal, message in record.puts:
        parts += (PART.pack(1, queue, ordinal), LENGTH32.pack(len(message)), message)
    parts += (PART.pack(2, queue, sequence) for queue, sequence in record.gets)
    return b"".join(parts)


def roll_forward_cost(puts_bytes: int, puts: int, gets: int) -> int:
    """The most bytes that the body of a ROLL_FORWARD record takes."""
    return LENGTH16.size + LARGEST_XID + puts_bytes + puts * (PART.size + 4) + gets * PART.size


def put_many_cost(messages_bytes: int, count: int) -> int:
    """Bytes of the body of a PUT_MANY record."""
    return QUEUE_PLACE.size + 4 + 4 * count + messages_bytes


def _encode_put_many(record: PutMany) -> tuple[int, int, bytes, bytes]:
    messages = record.messages
    count = len(messages)
    lengths = [len(message) + len(body or b"") for message, body in messages]
    head = QUEUE_PLACE.pack(record.queue, record.place) + struct.pack(f"<I{count}I", count, *lengths)
    return 258, record.uow, head, b"".join([part for message in messages for part in message if part is not None])


ENCODERS: dict[type[Any], Callable[[Any], tuple[int, int, bytes, bytes]]] = {
    Put: lambda r: (257, r.uow, QUEUE_PLACE.pack(r.queue, r.place) + r.message, r.body or b""),
    PutMany: _encode_put_many,
    Get: lambda r: (259, r.uow, encode_sequences(r.queue, r.sequences), b""),
    Expire: lambda r: (261, 0, encode_sequences(r.queue, r.sequences), b""),
    Commit: lambda r: (771, r.uow, encode_bases(r.bases), b""),
    Backout: lambda r: (772, r.uow, b"", b""),
    Prepare: lambda r: (770, r.uow, r.xid.encode(), b""),
    RollForward: lambda r: (774, r.uow, encode_roll_forward(r), b""),
    Define: lambda r: (513, 0, r.definition, b""),
    Delete: lambda r: (514, 0, QUEUE.pack(r.queue), b""),
    CheckpointMark: lambda r: (int(r.kind), 0, r.notes, b""),
}


def encode(record: Record) -> tuple[int, int, bytes, bytes]:
    """(kind, unit-of-work number, head, data): the record's body is `head + data`, left apart to spare a copy."""
    return ENCODERS[type(record)](record)


def _sequences(body: memoryview) -> tuple[int, tuple[int, ...]]:
    queue, *sequences = struct.unpack(f"<I{(len(body) - 4) // 8}Q", body)
    return queue, tuple(sequences)


def _put_many(uow: int, body: memoryview) -> PutMany:
    queue, place = QUEUE_PLACE.unpack_from(body)
    (count,) = LENGTH32.unpack_from(body, QUEUE_PLACE.size)
    at = QUEUE_PLACE.size + 4 + 4 * count
    messages: list[tuple[bytes, bytes | None]] = []
    for length in struct.unpack_from(f"<{count}I", body, QUEUE_PLACE.size + 4):
        messages.append((bytes(body[at : at + length]), None))
        at += length
    return PutMany(uow, queue, place, messages)


def _roll_forward(uow: int, body: memoryview) -> RollForward:
    (length,) = LENGTH16.unpack_from(body)
    at = LENGTH16.size + length
    record = RollForward(uow, decode_xid(bytes(body[LENGTH16.size : at])), [], [])
    while at < len(body):
        what, queue, place = PART.unpack_from(body, at)
        at += PART.size
        if what == 1:
            (length,) = LENGTH32.unpack_from(body, at)
            at += LENGTH32.size
            record.puts.append((queue, place, bytes(body[at : at + length])))
            at += length
        else:
            record.gets.append((queue, place))
    return record


def decode(kind: int, uow: int, body: memoryview) -> Record:
    """The record that a frame of this kind holds. Raises ValueError for a kind that this version does not know."""
    if kind == 257:
        queue, place = QUEUE_PLACE.unpack_from(body)
        return Put(uow, queue, place, bytes(body[QUEUE_PLACE.size :]))
    if kind == 259:
        return Get(uow, *_sequences(body))
    if kind == 771:
        return Commit(uow, dict(QUEUE_PLACE.iter_unpack(body)))
    match kind:
        case Kind.PUT_MANY:
            return _put_many(uow, body)
        case Kind.EXPIRE:
            return Expire(*_sequences(body))
        case Kind.BACKOUT:
            return Backout(uow)
        case Kind.PREPARE:
            return Prepare(uow, decode_xid(bytes(body)))
        case Kind.ROLL_FORWARD:
            return _roll_forward(uow, body)
        case Kind.DEFINE:
            return Define(bytes(body))
        case Kind.DELETE:
            return Delete(*QUEUE.unpack(body))
        case Kind.START_CHECKPOINT | Kind.END_CHECKPOINT:
            return CheckpointMark(Kind(kind), bytes(body))
    raise ValueError(f"record kind {kind} is not known to this version")
