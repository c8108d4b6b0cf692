"""Every kind of record: format tables, encode, decode. A record is the only thing that changes durable state.

The unit-of-work number, the time and the LSN stand in the frame (`logger/frame.py`). Bodies, little-endian:

    PUT            queue u32, sequence u64, then the encoded message
    PUT_MANY       queue u32, sequence u64 of the first message, count u32, the length u32 of each, then the messages
    GET            queue u32, then the sequence u64 of each message taken
    CALLS          runs: what a unit of work has put and got so far
    EXPIRE         queue u32, then the sequence u64 of each message removed because its time was over
    COMMIT         count u32; for so many queues with persistent puts: queue u32, sequence u64 of ordinal 0; then the
                   runs that were not logged before
    BACKOUT        the runs of gets that were not logged before
    PREPARE        format id i32, length of gtrid u8, gtrid, bqual
    ROLL_FORWARD   length u16, an xid as above; then runs: replaces what the unit of work logged before
    DEFINE         JSON: a queue's definition, also when it is altered
    DELETE         queue u32
    IMAGE_START    queue u32, then JSON: what a media image says of its queue beside the messages
    IMAGE_PART     queue u32, LSN u64 of the IMAGE_START, segment u32, number of the first cell u32, cells u32, priority
                   u8; a bit for each cell, set when its message is not there; then a block with them, as in a segment
    IMAGE_END      queue u32, then LSNs u64: of the IMAGE_START, of the checkpoint whose state the image holds, and
                   where media recovery begins to read
    QMGR           JSON: the attributes of the queue manager
    CATALOG        flags u8: 1 for the first piece of it, 2 for the last; JSON: the attributes of the queue manager, in
                   the first piece, and of some aliases, or of some queues with the places of their images
    DEFINE_ALIAS   JSON: an alias, also when it is altered
    DELETE_ALIAS   name of an alias
    FILL           zeros
    CHECKPOINT     JSON: what a checkpoint holds in numbers; written where it begins, and where it is complete

PUT, PUT_MANY and GET are those outside a unit of work. The calls of a unit are runs, first what it has put:

    puts           1 u8, queue u32, ordinal u64 of the first among the unit's puts, count u32, the length u32 of each
                   message, then the messages
    gets           2 u8, queue u32, count u32, the sequence u64 of each message
"""

import enum
import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import attrs

from logger import lsn as lsns
from logger.errors import LogDamaged, quoted
from logger.frame import Pieces

QUEUE_PLACE = struct.Struct("<IQ")
QUEUE = struct.Struct("<I")
XID = struct.Struct("<iB")
LENGTH16 = struct.Struct("<H")
PUTS = struct.Struct("<BIQI")
PUT_RUN = struct.Struct("<BIQII")
GETS = struct.Struct("<BII")
LENGTH32 = struct.Struct("<I")
GET_RUN = struct.Struct("<BIIQ")
ONE_BASE = struct.Struct("<IIQ")
PUT_COST = PUT_RUN.size  # the most bytes of a run that a put takes beside its message
GET_COST = GET_RUN.size  # and a get
MAX_XID_PART_BYTES = 64  # of gtrid and of bqual
IMAGE_PART = struct.Struct("<IQIIIB")
IMAGE_END = struct.Struct("<IQQQ")
CATALOG_FIRST, CATALOG_LAST = 1, 2  # flags
MIN_PIECE_BYTES = 4096  # smaller ones cost less joined, though that copies them once more
MAX_XID_BYTES = XID.size + 2 * MAX_XID_PART_BYTES


class Kind(enum.IntEnum):
    """Record types; numbers in the families of the queue manager's components: AQM 256, AOC 512, ATM 768, ALM 1024."""

    PUT = 257
    PUT_MANY = 258
    GET = 259
    CALLS = 260
    EXPIRE = 261
    DEFINE = 513
    DELETE = 514
    IMAGE_START = 515
    IMAGE_PART = 522
    IMAGE_END = 517
    QMGR = 518
    CATALOG = 519
    DEFINE_ALIAS = 520
    DELETE_ALIAS = 521
    PREPARE = 770
    COMMIT = 771
    BACKOUT = 772
    ROLL_FORWARD = 774
    START_CHECKPOINT = 1025
    END_CHECKPOINT = 1026
    FILL = 1027


def _is_format_id(xid: Any, field: Any, value: Any) -> None:
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise ValueError(f"an Xid's format_id is a 32-bit whole number, not {quoted(value)}")


def _is_part(xid: Any, field: Any, value: Any) -> None:
    least = 1 if field.name == "gtrid" else 0
    if not isinstance(value, bytes) or not least <= len(value) <= MAX_XID_PART_BYTES:
        raise ValueError(f"an Xid's {field.name} is {least} to {MAX_XID_PART_BYTES} bytes, not {quoted(value)}")


@attrs.frozen(order=True)
class Xid:
    """The name of a global transaction: format id, global transaction id, branch qualifier (each at most 64 bytes)."""

    format_id: int = attrs.field(validator=_is_format_id)
    gtrid: bytes = attrs.field(validator=_is_part)
    bqual: bytes = attrs.field(validator=_is_part)

    def encode(self) -> bytes:
        return XID.pack(self.format_id, len(self.gtrid)) + self.gtrid + self.bqual


def decode_xid(body: bytes) -> Xid:
    format_id, gtrid_length = XID.unpack_from(body)
    return Xid(format_id, body[XID.size : XID.size + gtrid_length], body[XID.size + gtrid_length :])


Encoded = tuple[int, int, bytes, bytes | Pieces]  # kind, unit of work, and the body in two parts, to spare a copy
Parts = tuple[bytes, bytes]  # an encoded message, for the same reason in two parts; the second may be empty


@attrs.define
class Put:
    """A message goes to a queue."""

    queue: int
    sequence: int
    head: bytes
    body: bytes = b""
    found: Any = None  # what stands for this message, where the caller has made it

    def encode(self) -> Encoded:
        return 257, 0, QUEUE_PLACE.pack(self.queue, self.sequence) + self.head, self.body


@attrs.define
class PutMany:
    """Messages go to a queue in one call, in places that follow each other."""

    queue: int
    sequence: int  # of the first
    messages: list[Parts]
    found: list[Any] | None = None  # what stands for these messages, where the caller has made it
    made: bytes | Pieces = b""  # the lengths, then the messages; where the caller has made it

    def encode(self) -> Encoded:
        head = QUEUE_PLACE.pack(self.queue, self.sequence) + LENGTH32.pack(len(self.messages))
        return 258, 0, head, self.made or b"".join(with_lengths(self.messages))


@attrs.define
class Get:
    """Messages are taken for good."""

    queue: int
    sequences: Sequence[int]
    found: Any = None  # what has these sequences, where the caller holds it in hand

    def encode(self) -> Encoded:
        return 259, 0, _encode_sequences(self.queue, self.sequences), b""


@attrs.define
class Expire:
    """Messages whose time is over are removed."""

    queue: int
    sequences: Sequence[int]
    found: list[Any] | None = None

    def encode(self) -> Encoded:
        return 261, 0, _encode_sequences(self.queue, self.sequences), b""


@attrs.define
class Calls:
    """What a unit of work has put and got: invisible, and locked, until it ends.

    `done`, here and below: memory has it already, since the calls were made before they were logged; `made` then has
    the runs.
    """

    uow: int
    runs: bytes = b""
    done: bool = False
    made: bytes | Pieces = b""

    def encode(self) -> Encoded:
        return 260, self.uow, b"", self.made or self.runs


@attrs.define
class Commit:
    uow: int
    bases: dict[int, int]  # queue -> sequence of ordinal 0
    runs: bytes = b""
    done: bool = False
    made: bytes | Pieces = b""

    def encode(self) -> Encoded:
        bases = self.bases
        if len(bases) == 1:
            [(queue, base)] = bases.items()
            return 771, self.uow, ONE_BASE.pack(1, queue, base), self.made or self.runs
        head = LENGTH32.pack(len(bases))
        for queue, base in bases.items():
            head += QUEUE_PLACE.pack(queue, base)
        return 771, self.uow, head, self.made or self.runs


@attrs.define
class Backout:
    uow: int
    runs: bytes = b""
    done: bool = False

    def encode(self) -> Encoded:
        return 772, self.uow, b"", self.runs


@attrs.define
class Prepare:
    uow: int
    xid: Xid

    def encode(self) -> Encoded:
        return 770, self.uow, self.xid.encode(), b""


@attrs.define
class RollForward:
    """What a prepared unit of work has done so far, again, so that the log before it can be given back."""

    uow: int
    xid: Xid
    runs: bytes

    def encode(self) -> Encoded:
        xid = self.xid.encode()
        return 774, self.uow, LENGTH16.pack(len(xid)) + xid, self.runs


@attrs.define
class Define:
    """A queue is defined or altered."""

    definition: bytes  # JSON, with the queue's number under "id"

    def encode(self) -> Encoded:
        return 513, 0, self.definition, b""


@attrs.define
class Delete:
    queue: int

    def encode(self) -> Encoded:
        return 514, 0, QUEUE.pack(self.queue), b""


@attrs.define
class ImageStart:
    """A media image of a queue begins."""

    queue: int
    notes: bytes  # JSON

    def encode(self) -> Encoded:
        return 515, 0, QUEUE.pack(self.queue), self.notes


@attrs.define
class ImagePart:
    """A block of a segment, as part of a media image; changes nothing."""

    queue: int
    start: int  # LSN of the image's first record
    segment: int
    cell: int  # number of the first one
    cells: int
    priority: int
    gone: bytes  # a bit for each cell
    data: bytes | memoryview  # a block with the cells

    def encode(self) -> Encoded:
        head = IMAGE_PART.pack(self.queue, self.start, self.segment, self.cell, self.cells, self.priority)
        return 522, 0, head + self.gone, bytes(self.data)


@attrs.define
class ImageEnd:
    """A media image of a queue is complete: from now on it is the one to recover from."""

    queue: int
    start: int
    checkpoint: int
    media: int

    def encode(self) -> Encoded:
        return 517, 0, IMAGE_END.pack(self.queue, self.start, self.checkpoint, self.media), b""


@attrs.define
class AlterQmgr:
    """Attributes of the queue manager change."""

    attributes: bytes  # JSON, all of them

    def encode(self) -> Encoded:
        return 518, 0, self.attributes, b""


@attrs.define
class Catalog:
    """A piece of the media image of all definitions."""

    flags: int
    content: bytes  # JSON

    def encode(self) -> Encoded:
        return 519, 0, bytes([self.flags]), self.content


@attrs.define
class DefineAlias:
    """An alias is defined or altered."""

    definition: bytes  # JSON

    def encode(self) -> Encoded:
        return 520, 0, self.definition, b""


@attrs.define
class DeleteAlias:
    name: str

    def encode(self) -> Encoded:
        return 521, 0, self.name.encode(), b""


@attrs.define
class Fill:
    """Fills up a page of the log, which writes it by itself; changes nothing."""

    size: int  # bytes

    def encode(self) -> Encoded:
        return 1027, 0, bytes(self.size), b""


@attrs.define
class CheckpointMark:
    """Where a checkpoint begins (its LSN is that of this record), or that it is complete; changes nothing."""

    kind: Kind
    notes: bytes  # JSON

    def encode(self) -> Encoded:
        return int(self.kind), 0, self.notes, b""


UnitRecord = Calls | Commit | Backout | Prepare | RollForward
ImageRecord = ImageStart | ImagePart | ImageEnd
DefinitionRecord = Define | Delete | AlterQmgr | Catalog | DefineAlias | DeleteAlias
Record = Put | PutMany | Get | Expire | UnitRecord | DefinitionRecord | ImageRecord | CheckpointMark | Fill


def with_lengths(messages: Sequence[Parts]) -> list[bytes]:
    """Messages, and their lengths before them, as parts of a record's body."""
    lengths = [len(head) + len(body) for head, body in messages]
    return [struct.pack(f"<{len(lengths)}I", *lengths), *chain.from_iterable(messages)]


def _encode_sequences(queue: int, sequences: Sequence[int]) -> bytes:
    if len(sequences) == 1:
        return QUEUE_PLACE.pack(queue, sequences[0])
    return struct.pack(f"<I{len(sequences)}Q", queue, *sequences)


def roll_forward_cost(puts_bytes: int, calls: int) -> int:
    """The most bytes that the body of a ROLL_FORWARD record takes with so many puts and gets."""
    return LENGTH16.size + MAX_XID_BYTES + puts_bytes + calls * max(PUT_COST, GET_COST)


def put_many_cost(messages_bytes: int, count: int) -> int:
    """Bytes of the body of a PUT_MANY record."""
    return QUEUE_PLACE.size + 4 + 4 * count + messages_bytes


def _messages(body: memoryview, at: int, count: int) -> tuple[list[Parts], int]:
    """The messages whose lengths begin at `at`, and where they end."""
    messages: list[Parts] = []
    lengths = struct.unpack_from(f"<{count}I", body, at)
    at += 4 * count
    for length in lengths:
        if at + length > len(body):
            raise ValueError("a message is longer than its record")
        messages.append((bytes(body[at : at + length]), b""))
        at += length
    return messages, at


def run_of_puts(queue: int, ordinal: int, messages: list[Parts]) -> list[bytes]:
    """A run as parts of a record's body."""
    if len(messages) == 1:  # most often
        head, body = messages[0]
        return [PUT_RUN.pack(1, queue, ordinal, 1, len(head) + len(body)), head, body]
    return [PUTS.pack(1, queue, ordinal, len(messages)), *with_lengths(messages)]


def in_pieces(parts: list[bytes], most: int) -> bytes | Pieces:
    """The parts of a body, `most` bytes at most, as they are best copied: few and large ones as they lie."""
    return Pieces(parts) if most >= len(parts) * MIN_PIECE_BYTES else b"".join(parts)


def run_of_gets(queue: int, sequences: Sequence[int]) -> bytes:
    if len(sequences) == 1:
        return GET_RUN.pack(2, queue, 1, sequences[0])
    return GETS.pack(2, queue, len(sequences)) + struct.pack(f"<{len(sequences)}Q", *sequences)


def runs(body: bytes) -> Iterator[tuple[int, int, list[Parts], Sequence[int]]]:
    """(queue, ordinal of the first, messages put, sequences got) of each run. Raises ValueError, struct.error."""
    at = 0
    while at < len(body):
        if body[at] == 1:
            _, queue, ordinal, count = PUTS.unpack_from(body, at)
            messages, at = _messages(memoryview(body), at + PUTS.size, count)
            yield queue, ordinal, messages, ()
        elif body[at] == 2:
            _, queue, count = GETS.unpack_from(body, at)
            at += GETS.size
            yield queue, 0, [], struct.unpack_from(f"<{count}Q", body, at)
            at += 8 * count
        else:
            raise ValueError(f"a run of kind {body[at]} is not known to this version")


def _sequences(body: memoryview) -> tuple[int, tuple[int, ...]]:
    queue, *sequences = struct.unpack(f"<I{(len(body) - 4) // 8}Q", body)
    return queue, tuple(sequences)


def decode(kind: int, uow: int, body: memoryview) -> Record:
    """The record that a frame of this kind holds. Raises ValueError for a kind that this version does not know."""
    match kind:
        case Kind.PUT:
            queue, sequence = QUEUE_PLACE.unpack_from(body)
            return Put(queue, sequence, bytes(body[QUEUE_PLACE.size :]))
        case Kind.GET:
            return Get(*_sequences(body))
        case Kind.COMMIT:
            at = LENGTH32.size + LENGTH32.unpack_from(body)[0] * QUEUE_PLACE.size
            return Commit(uow, dict(QUEUE_PLACE.iter_unpack(body[LENGTH32.size : at])), bytes(body[at:]))
        case Kind.PUT_MANY:
            queue, sequence = QUEUE_PLACE.unpack_from(body)
            (count,) = LENGTH32.unpack_from(body, QUEUE_PLACE.size)
            return PutMany(queue, sequence, _messages(body, QUEUE_PLACE.size + LENGTH32.size, count)[0])
        case Kind.CALLS:
            return Calls(uow, bytes(body))
        case Kind.EXPIRE:
            return Expire(*_sequences(body))
        case Kind.BACKOUT:
            return Backout(uow, bytes(body))
        case Kind.PREPARE:
            return Prepare(uow, decode_xid(bytes(body)))
        case Kind.ROLL_FORWARD:
            at = LENGTH16.size + LENGTH16.unpack_from(body)[0]
            return RollForward(uow, decode_xid(bytes(body[LENGTH16.size : at])), bytes(body[at:]))
        case Kind.DEFINE:
            return Define(bytes(body))
        case Kind.DELETE:
            return Delete(*QUEUE.unpack(body))
        case Kind.IMAGE_START:
            return ImageStart(QUEUE.unpack_from(body)[0], bytes(body[QUEUE.size :]))
        case Kind.IMAGE_PART:
            queue, start, segment, cell, cells, priority = IMAGE_PART.unpack_from(body)
            at = IMAGE_PART.size + (cells + 7) // 8
            return ImagePart(queue, start, segment, cell, cells, priority, bytes(body[IMAGE_PART.size : at]), body[at:])
        case Kind.IMAGE_END:
            return ImageEnd(*IMAGE_END.unpack(body))
        case Kind.QMGR:
            return AlterQmgr(bytes(body))
        case Kind.CATALOG:
            return Catalog(body[0], bytes(body[1:]))
        case Kind.DEFINE_ALIAS:
            return DefineAlias(bytes(body))
        case Kind.DELETE_ALIAS:
            return DeleteAlias(str(body, "ascii"))
        case Kind.START_CHECKPOINT | Kind.END_CHECKPOINT:
            return CheckpointMark(Kind(kind), bytes(body))
        case Kind.FILL:
            return Fill(len(body))
    raise ValueError(f"record kind {kind} is not known to this version")


def not_understood(path: str, at: int, exc: BaseException, *, or_later: bool = False) -> LogDamaged:
    """What to raise for a record at the LSN `at`, or one behind it, that is whole and that nobody here can decode."""
    which = ", or one behind it," if or_later else ""
    return LogDamaged(
        f"the log record at {lsns.text(at)} in {path}{which} can't be understood ({exc}); it was written by a later "
        f"version, or the file is not this log's: read it with that version, or restore the file from a backup",
        path=path,
        lsn=at,
    )
