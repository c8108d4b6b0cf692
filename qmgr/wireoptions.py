"""What puts and gets are given beside the body, as a part of a request: pure encode and decode with bounds.

    put   a bit u16 for each option that is there; then those in the order of the bits: priority u8, expiry f64, ids of
          24 bytes, reply-to and format with their length u8, properties and others with their length u32
    get   the ids of 24 bytes that the request's flags name; then, with OPTIONS, JSON of what else is said

Little-endian. What the queue manager would refuse is refused here, with the same words, before anything is sent.
"""

import struct
from collections.abc import Mapping
from typing import Any, cast

from qmgr import message as m
from qmgr import values
from qmgr.verbs import PUT_OPTIONS, GetOptions, PutOptions, Wanted

SECONDS = struct.Struct("<d")
TABLE = struct.Struct("<I")
U16 = struct.Struct("<H")

# flags of requests
OPTIONS, MESSAGE_ID, CORRELATION_ID = 2, 4, 8

PERSISTENT_NO, PERSISTENT_YES, HAS_PRIORITY, HAS_EXPIRY, HAS_ID, HAS_CORRELATION, HAS_REPLY_TO, HAS_FORMAT = (
    1 << bit for bit in range(8)
)
HAS_PROPERTIES, HAS_OTHERS = 256, 512
OTHERS = ("group_id", "logical_order", "all_available", "backout_requeue")  # of gets


class ProtocolError(ValueError):
    """What came is not a frame of this protocol, or not one that fits here."""


# ---- puts


def encode_options(options: Mapping[str, Any]) -> bytes:
    """What a put is given beside the body. Raises what the put would raise."""
    bits, parts, others = 0, [b""], {}
    for name, value in options.items():
        if name not in PUT_OPTIONS:
            raise TypeError(f"a put has no option {name!r}; it has {', '.join(PUT_OPTIONS)}")
        if value is None:
            continue
        match name:
            case "persistent":
                bits |= PERSISTENT_YES if m.check_persistent(value) else PERSISTENT_NO
            case "group_id" | "group_sequence" | "last_in_group":
                others[name] = value
    given = options.get
    if (priority := given("priority")) is not None:
        bits |= HAS_PRIORITY
        parts.append(bytes([m.check_priority(priority)]))
    if (expiry := given("expiry")) is not None:
        bits |= HAS_EXPIRY
        parts.append(SECONDS.pack(m.check_expiry(expiry)))
    for name, bit in (("message_id", HAS_ID), ("correlation_id", HAS_CORRELATION)):
        if (one_id := given(name)) is not None:
            bits |= bit
            parts.append(m.check_id(one_id, name))
    for text, bit in ((given("reply_to"), HAS_REPLY_TO), (given("format"), HAS_FORMAT)):
        if text is not None:
            bits |= bit
            told = (m.check_reply_to(text) if bit == HAS_REPLY_TO else m.check_format(text)).encode()
            parts.append(bytes([len(told)]) + told)
    if (properties := given("properties")) is not None:
        bits |= HAS_PROPERTIES
        told = m.encode_properties(m.check_properties(properties))
        parts.append(TABLE.pack(len(told)) + told)
    if others:
        bits |= HAS_OTHERS
        m.check_group(given("group_id"), given("group_sequence"), given("last_in_group"))
        told = values.dumps(others)
        parts.append(TABLE.pack(len(told)) + told)
    parts[0] = U16.pack(bits)
    return b"".join(parts)


def decode_options(frame: bytes, at: int) -> tuple[PutOptions, int]:
    """(the options that begin at a place of a frame, where they end)."""
    options: dict[str, Any] = {}
    try:
        (bits,) = U16.unpack_from(frame, at)
        at += U16.size
        if bits & (PERSISTENT_YES | PERSISTENT_NO):
            options["persistent"] = bits & PERSISTENT_YES != 0
        if bits & HAS_PRIORITY:
            options["priority"] = frame[at]
            at += 1
        if bits & HAS_EXPIRY:
            (options["expiry"],) = SECONDS.unpack_from(frame, at)
            at += SECONDS.size
        for name, bit in (("message_id", HAS_ID), ("correlation_id", HAS_CORRELATION)):
            if bits & bit:
                options[name] = _slice(frame, at, 24)
                at += 24
        for name, bit in (("reply_to", HAS_REPLY_TO), ("format", HAS_FORMAT)):
            if bits & bit:
                options[name] = _slice(frame, at + 1, frame[at]).decode()
                at += 1 + frame[at]
        if bits & HAS_PROPERTIES:
            (size,) = TABLE.unpack_from(frame, at)
            options["properties"] = m.decode_properties(_slice(frame, at + TABLE.size, size))
            at += TABLE.size + size
        if bits & HAS_OTHERS:
            (size,) = TABLE.unpack_from(frame, at)
            options.update(_mapping(values.loads(_slice(frame, at + TABLE.size, size))))
            at += TABLE.size + size
    except (struct.error, IndexError, ValueError) as exc:
        raise ProtocolError(f"the options of a put can't be understood ({exc})") from None
    return cast(PutOptions, options), at


def _slice(frame: bytes, at: int, size: int) -> bytes:
    if at + size > len(frame):
        raise ValueError("they end too early")
    return frame[at : at + size]


def _mapping(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise ValueError("they are no mapping")
    return told


# ---- gets and browses


def encode_wanted(said: Wanted) -> tuple[int, bytes]:
    """(flags, bytes): ids of 24 bytes each, then JSON of what else is said."""
    flags, parts = 0, []
    if said.message_id is not None:
        flags, parts = MESSAGE_ID, [said.message_id]
    if said.correlation_id is not None:
        flags, parts = flags | CORRELATION_ID, [*parts, said.correlation_id]
    others = {name: getattr(said, name) for name in OTHERS if getattr(said, name)}
    if others:
        flags, parts = flags | OPTIONS, [*parts, values.dumps(others)]
    return flags, b"".join(parts)


def decode_wanted(flags: int, frame: bytes, at: int) -> GetOptions:
    """What a get or a browse is given, which ends the frame."""
    options: dict[str, Any] = {}
    for name, flag in (("message_id", MESSAGE_ID), ("correlation_id", CORRELATION_ID)):
        if flags & flag:
            options[name] = frame[at : at + 24]
            at += 24
    if flags & OPTIONS and at < len(frame):
        try:
            options.update(_mapping(values.loads(frame[at:])))
        except ValueError as exc:
            raise ProtocolError(f"the options of a get can't be understood ({exc})") from None
    elif at != len(frame):
        raise ProtocolError("the ids in a request have 24 bytes each, and nothing follows them")
    return cast(GetOptions, options)
