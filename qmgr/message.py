"""Messages: what callers see, and their encoding, made once at the put and then the same in log, memory and segment.

    offset  size  field           meaning
         0     1  version         1
         1     1  flags           1: persistent; 2: in a group; 4: the last of it
         2     1  priority        0-9
         3     1  format length   of the format name, bytes
         4     1  reply-to length of the queue name, bytes
         5     3  -
         8     4  properties      length of them and of the group id, bytes
        12     4  group sequence  from 1 on; 0: in no group
        16     8  put time        microseconds since 1970-01-01 UTC
        24     8  expires         when, by the queue manager's steady clock, in the same unit; 0 = never
        32    24  message id
        56    24  correlation id
        80     -  format, reply-to, properties, group id (24 bytes, if it is in one), body

A property: length of its name u8, type u8 (1 str, 2 int, 3 float, 4 bool, 5 bytes), length of its value u32, name,
value.
"""

import datetime
import struct
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import attrs

from qmgr.errors import Mistake, Reason, quoted
from qmgr.objects import check_name

HEAD = struct.Struct("<16sQQ24s24s")
FACTS = struct.Struct("<BBBBB3xII")  # its first field
assert HEAD.size == 80 and FACTS.size == 16
NUMBER_OF_ID = 48  # offset of the part of a message id that makes it unique: 8 bytes, big-endian
VERSION = 1
PERSISTENT, IN_GROUP, LAST_IN_GROUP = 1, 2, 4
NUMBER = struct.Struct("<I")
NUMBER_AT = 12  # of the group sequence
MAX_GROUP = 999_999_999  # the highest sequence
NO_ID = bytes(24)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
STANDING = struct.Struct("<xBBBB3xI12xQ")  # what a queue needs to know of an encoded message: `Standing`
PROPERTY = struct.Struct("<BBI")
MAX_EXPIRY = 999_999_999 / 10  # seconds: MQ counts tenths in nine digits

Value = str | int | float | bool | bytes
NO_PROPERTIES: Mapping[str, Value] = MappingProxyType({})


@attrs.define(eq=False, repr=False)
class Message:
    """A message as put or got: a view of its encoding, from which each property is read when it is asked for."""

    body: bytes
    head: bytes  # all but the body, encoded
    queue: str
    backout_count: int = 0
    expiry: float | None = None  # seconds left when it was put, got or browsed; None: for ever

    def __repr__(self) -> str:
        facts = {name: getattr(self, name) for name in SHOWN}
        if len(self.body) > 100:
            facts["body"] = self.body[:50] + b"..." + self.body[-47:]
        if self.group_id is not None:
            facts |= {name: getattr(self, name) for name in ("group_id", "group_sequence", "last_in_group")}
        return f"Message({', '.join([f'{name}={value!r}' for name, value in facts.items()])})"

    @property
    def message_id(self) -> bytes:
        """24 bytes, unique."""
        return self.head[32:56]

    @property
    def correlation_id(self) -> bytes:
        """24 bytes, the application's."""
        return self.head[56:80]

    @property
    def priority(self) -> int:
        return self.head[2]

    @property
    def persistent(self) -> bool:
        return self.head[1] & PERSISTENT == PERSISTENT

    @property
    def put_time_us(self) -> int:
        """When it was put, by the queue manager's clock: microseconds since 1970-01-01 UTC."""
        return int.from_bytes(self.head[16:24], "little")

    @property
    def put_time(self) -> datetime.datetime:
        """When it was put, by the queue manager's clock, UTC."""
        return EPOCH + datetime.timedelta(microseconds=self.put_time_us)

    @property
    def format(self) -> str:
        return self.head[80 : 80 + self.head[3]].decode()

    @property
    def reply_to(self) -> str:
        at = 80 + self.head[3]
        return self.head[at : at + self.head[4]].decode()

    @property
    def properties(self) -> Mapping[str, Value]:
        end = -24 if self.head[1] & IN_GROUP else None
        return decode_properties(self.head[80 + self.head[3] + self.head[4] : end])

    @property
    def group_id(self) -> bytes | None:
        """24 bytes, the application's; None: it is in no group."""
        return group_of(self.head) or None

    @property
    def group_sequence(self) -> int:
        """Its number in the group, from 1 on; 0: it is in none."""
        return group_sequence_of(self.head)

    @property
    def last_in_group(self) -> bool:
        return is_last_in_group(self.head)


SHOWN = (
    *("body", "message_id", "correlation_id", "priority", "persistent", "expiry", "backout_count", "queue"),
    *("reply_to", "format", "properties"),
)


@attrs.define
class Descriptor:
    """What one put says of its messages beside their bodies, as it is encoded."""

    facts: bytes  # the first 16 bytes of the header
    persistent: bool
    priority: int
    expires: int  # by the steady clock; 0 = never
    expiry: float | None  # seconds
    correlation_id: bytes
    rest: bytes  # format, reply-to, properties, group id

    def head(self, message_id: bytes, put_time_us: int) -> bytes:
        """All but the body of the message with this id."""
        return HEAD.pack(self.facts, put_time_us, self.expires, message_id, self.correlation_id) + self.rest

    def heads(self, id_prefix: bytes, numbers: Iterable[int], put_time_us: int) -> list[bytes]:
        """The heads of messages that are put in one call: the id of each is the prefix and a number."""
        like = self.head(id_prefix, put_time_us)
        before, behind = like[:NUMBER_OF_ID], like[NUMBER_OF_ID + 8 :]
        pack = struct.Struct(f">{len(before)}sQ{len(behind)}s").pack
        return self._numbered([pack(before, number, behind) for number in numbers])

    def equal_heads(self, message_id: bytes, count: int, put_time_us: int) -> list[bytes]:
        """The heads of `count` messages that are put in one call and all have this id."""
        return self._numbered([self.head(message_id, put_time_us)] * count)

    def _numbered(self, heads: list[bytes]) -> list[bytes]:
        return _numbered(heads) if self.facts[1] & IN_GROUP else heads


def _numbered(heads: list[bytes]) -> list[bytes]:
    """Messages of a group that are put in one call: their numbers follow each other, and the last alone may be last."""
    first = group_sequence_of(heads[0])
    if first + len(heads) - 1 > MAX_GROUP:
        raise Mistake(
            f"{len(heads)} messages from group_sequence {first} on would go beyond {MAX_GROUP}",
            reason=Reason.MSG_SEQ_NUMBER_ERROR,
        )
    made = []
    for number, head in enumerate(heads, first):
        flags = head[1] if number == first + len(heads) - 1 else head[1] & ~LAST_IN_GROUP
        made.append(b"".join([head[:1], bytes([flags]), head[2:NUMBER_AT], NUMBER.pack(number), head[NUMBER_AT + 4 :]]))
    return made


def describe(
    priority: int,
    persistent: bool,
    *,
    expires: int = 0,
    expiry: float | None = None,
    correlation_id: bytes = NO_ID,
    reply_to: str = "",
    form: str = "",
    properties: Mapping[str, Value] = NO_PROPERTIES,
    group: tuple[bytes, int, bool] | None = None,
) -> Descriptor:
    """Encode what a put says. `expires` is by the steady clock; `group` is (its id, sequence, is that the last?)."""
    rest = form.encode(), reply_to.encode(), encode_properties(properties)
    flags, number = PERSISTENT if persistent else 0, 0
    if group is not None:
        group_id, number, last = group
        rest = rest[0], rest[1], rest[2] + group_id
        flags |= IN_GROUP | (LAST_IN_GROUP if last else 0)
    facts = FACTS.pack(VERSION, flags, priority, len(rest[0]), len(rest[1]), len(rest[2]), number)
    return Descriptor(facts, persistent, priority, expires, expiry, correlation_id, b"".join(rest))


class Standing(NamedTuple):
    """What a queue needs to know of an encoded message."""

    flags: int
    priority: int
    form: int  # the lengths of format, reply-to and properties
    reply_to: int
    properties: int
    expires: int


def standing(encoded: bytes) -> Standing:
    return Standing._make(STANDING.unpack_from(encoded))


def decode(head: bytes, body: bytes, queue: str, backout_count: int, steady_us: int) -> Message:
    """The message; `steady_us` is now, for the seconds that it has left."""
    expires = int.from_bytes(head[24:32], "little")
    expiry = max(0, expires - steady_us) / 1e6 if expires else None
    return Message(body, head, queue, backout_count, expiry)


def with_format(head: bytes, form: str) -> bytes:
    """An encoded message that says of its body that it has another format."""
    end = HEAD.size + head[3]
    return head[:3] + bytes([len(form)]) + head[4 : HEAD.size] + form.encode() + head[end:]


def ids_of(head: bytes) -> tuple[bytes, bytes]:
    """(message id, correlation id) of an encoded message."""
    return head[32:56], head[56:80]


def group_of(message: bytes) -> bytes:
    """The group id of an encoded message, with its body or without; b"" when it is in no group."""
    if not message[1] & IN_GROUP:
        return b""
    end = HEAD.size + message[3] + message[4] + NUMBER.unpack_from(message, 8)[0]
    return message[end - 24 : end]


def group_sequence_of(message: bytes) -> int:
    number: int = NUMBER.unpack_from(message, NUMBER_AT)[0]
    return number


def is_last_in_group(message: bytes) -> bool:
    return message[1] & LAST_IN_GROUP == LAST_IN_GROUP


def encode_properties(properties: Mapping[str, Value]) -> bytes:
    parts: list[bytes] = []
    for name, value in properties.items():
        match value:
            case bool():
                kind, data = 4, bytes([value])
            case str():
                kind, data = 1, value.encode()
            case int():
                kind, data = 2, value.to_bytes(8, "little", signed=True)
            case float():
                kind, data = 3, struct.pack("<d", value)
            case _:
                kind, data = 5, bytes(value)
        encoded = name.encode()
        parts += (PROPERTY.pack(len(encoded), kind, len(data)), encoded, data)
    return b"".join(parts)


def value_text(value: Value) -> str:
    """The value of a property as text: true or false, the hexadecimal digits of bytes, else what `str` makes of it."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case _:
            return str(value)


def decode_properties(data: bytes) -> Mapping[str, Value]:
    if not data:
        return NO_PROPERTIES
    properties: dict[str, Value] = {}
    at = 0
    while at < len(data):
        name_length, kind, length = PROPERTY.unpack_from(data, at)
        at += PROPERTY.size
        name = data[at : at + name_length].decode()
        value = data[at + name_length : at + name_length + length]
        at += name_length + length
        match kind:
            case 1:
                properties[name] = value.decode()
            case 2:
                properties[name] = int.from_bytes(value, "little", signed=True)
            case 3:
                (properties[name],) = struct.unpack("<d", value)
            case 4:
                properties[name] = value == b"\1"
            case _:
                properties[name] = value
    return MappingProxyType(properties)


# ---- what callers may ask for: each check raises Mistake; all but the first return the value as a put takes it


def check_head(head: object) -> None:
    """Raises Mistake where `head` can't be the encoding, all but the body, of a message that was put."""
    try:
        if not isinstance(head, bytes) or len(head) < HEAD.size or head[0] != VERSION:
            raise ValueError("version or length")
        flags, rest = head[1], standing(head)
        grouped, number = flags & IN_GROUP, group_sequence_of(head)
        if flags > PERSISTENT | IN_GROUP | LAST_IN_GROUP or rest.priority > 9 or rest.form > 8 or rest.reply_to > 48:
            raise ValueError("flags, priority or names")
        if HEAD.size + rest.form + rest.reply_to + rest.properties != len(head) or (grouped and rest.properties < 24):
            raise ValueError("lengths")
        if bool(grouped) != (1 <= number <= MAX_GROUP) or (flags & LAST_IN_GROUP and not grouped):
            raise ValueError("group")
        message = Message(b"", head, "")
        check_format(message.format)
        check_reply_to(message.reply_to)
        check_properties(message.properties)
    except (ValueError, struct.error, IndexError) as exc:
        raise Mistake(f"this is not the head of a message ({exc})", reason=Reason.MD_ERROR) from exc


def check_body(body: object) -> bytes:
    if type(body) is bytes:
        return body
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    way = "encode text first" if isinstance(body, str) else "make bytes of it first"
    raise Mistake(f"a message body is bytes, not {_type_name(body)}; {way}", reason=Reason.MD_ERROR)


def check_bodies(bodies: object) -> list[bytes]:
    """Those of a `put_many`."""
    if isinstance(bodies, (bytes, bytearray, memoryview, str)) or not isinstance(bodies, Iterable):
        raise Mistake(f"put_many takes several bodies, not one {type(bodies).__name__}", reason=Reason.MD_ERROR)
    return [body if type(body) is bytes else check_body(body) for body in bodies]


def _type_name(value: object) -> str:
    """With its module where it is not one of Python's own: numpy has a `bool` that is none."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def check_id(value: object, what: str) -> bytes:
    """An id of 24 bytes; a shorter one is filled up with zero bytes, as MQ does."""
    if not isinstance(value, bytes) or len(value) > 24:
        raise Mistake(f"{what} is bytes, at most 24, not {quoted(value)}", reason=Reason.MD_ERROR)
    return value.ljust(24, b"\0")


def check_priority(value: object) -> int:
    if type(value) is not int or value < 0:
        raise Mistake(f"priority is a whole number from 0 to 9, not {quoted(value)}", reason=Reason.PRIORITY_ERROR)
    if value > 9:
        raise Mistake(f"priority is at most 9, not {quoted(value)}", reason=Reason.PRIORITY_EXCEEDS_MAXIMUM)
    return value


def check_persistent(value: object) -> bool:
    if not isinstance(value, bool):
        raise Mistake(f"persistent is True, False or None, not {quoted(value)}", reason=Reason.PERSISTENCE_ERROR)
    return value


def check_expiry(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= MAX_EXPIRY:
        raise Mistake(
            f"expiry is seconds, more than 0 and at most {MAX_EXPIRY}, not {quoted(value)}", reason=Reason.EXPIRY_ERROR
        )
    return value


def check_group(group_id: object, sequence: object, last: object) -> tuple[bytes, int, bool] | None:
    """What a put says of the group; None: the message is in none."""
    if last is not None and not isinstance(last, bool):
        raise Mistake(f"last_in_group is True or False, not {quoted(last)}", reason=Reason.MSG_FLAGS_ERROR)
    if group_id is None:
        if sequence is not None or last:
            raise Mistake("a message that is numbered, or last, needs a group_id", reason=Reason.GROUP_ID_ERROR)
        return None
    checked = check_group_id(group_id)
    if sequence is None:
        sequence = 1
    if type(sequence) is not int or not 1 <= sequence <= MAX_GROUP:
        raise Mistake(
            f"group_sequence is a whole number from 1 to {MAX_GROUP}, not {quoted(sequence)}",
            reason=Reason.MSG_SEQ_NUMBER_ERROR,
        )
    return checked, sequence, bool(last)


def check_group_id(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) > 24 or not value.strip(b"\0"):
        raise Mistake(
            f"group_id is bytes, at most 24 and not all zero, not {quoted(value)}", reason=Reason.GROUP_ID_ERROR
        )
    return value.ljust(24, b"\0")


def check_format(value: object) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or len(value) > 8:
        raise Mistake(f"format is at most 8 printable ASCII characters, not {quoted(value)}", reason=Reason.MD_ERROR)
    return value


def check_reply_to(value: object) -> str:
    return "" if value == "" else check_name(value, "reply-to queue")


def check_properties(properties: object) -> Mapping[str, Value]:
    """Names are 1 to 255 bytes of text; values str, int of 64 bits, float, bool or bytes."""
    if not isinstance(properties, Mapping):
        raise Mistake(f"properties is a mapping, not {type(properties).__name__}", reason=Reason.PROPERTY_NAME_ERROR)
    for name, value in properties.items():
        if not isinstance(name, str) or not 1 <= len(name.encode("utf-8", "replace")) <= 255:
            raise Mistake(
                f"a property name is text of 1 to 255 bytes, not {quoted(name)}", reason=Reason.PROPERTY_NAME_ERROR
            )
        if not isinstance(value, (str, int, float, bytes)):
            raise Mistake(
                f"property {quoted(name)} is a {_type_name(value)}; allowed: str, int, float, bool, bytes",
                reason=Reason.PROPERTY_TYPE_ERROR,
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise Mistake(
                f"property {quoted(name)} is a whole number that does not fit into 64 bits; give it as text",
                reason=Reason.PROPERTY_TYPE_ERROR,
            )
        try:
            (name + value if isinstance(value, str) else name).encode()
        except UnicodeEncodeError:
            raise Mistake(
                f"property {quoted(name)} has text that UTF-8 can't hold", reason=Reason.PROPERTY_NAME_ERROR
            ) from None
    return dict(properties)
