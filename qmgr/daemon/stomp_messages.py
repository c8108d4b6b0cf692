"""What the headers of SEND say of a message, and what the headers of MESSAGE say of one.

    STOMP                        message
    priority, persistent         the same
    expires                      expiry: milliseconds since 1970-01-01 UTC, as ActiveMQ has it; 0 = never
    expiration                   expiry: milliseconds from now, as RabbitMQ has it; on SEND only
    correlation-id               correlation_id: 48 hexadecimal digits, or text
    reply-to                     reply_to: /queue/NAME, or NAME
    content-type                 a property; that of a text is also format MQSTR
    JMSXGroupID                  group_id: 48 hexadecimal digits, or text of at most 24 bytes
    JMSXGroupSeq                 group_sequence
    JMS_IBM_Last_Msg_In_Group    last_in_group
    message-id, timestamp, redelivered, backout-count       on MESSAGE only
    any other                    a property

docs/stomp.md says more.
"""

import re
from collections.abc import Callable

from qmgr.errors import Mistake, Reason
from qmgr.message import MAX_EXPIRY, MAX_GROUP, NO_ID, Message, Value, value_text
from qmgr.verbs import PutOptions

PREFIX = "/queue/"
TEXT = "MQSTR"  # the format of messages that are text
TEXTS = ("text/", "application/json", "application/xml")
CORRELATION_ID = "correlation-id"  # also kept as a property where 24 bytes can't hold all of it
GROUP_ID, GROUP_SEQUENCE, LAST_IN_GROUP = "JMSXGroupID", "JMSXGroupSeq", "JMS_IBM_Last_Msg_In_Group"  # as JMS has them
HEX_ID = re.compile("(?:ID:)?([0-9A-Fa-f]{48})")
READABLE = re.compile(rb"[!-~](?:[ -~]*[!-~])?")

# headers that are about the frame, or that only the queue manager says
NO_PROPERTIES = frozenset({"destination", "content-length", "receipt", "transaction", "subscription", "ack", "id"}) | {
    *("message-id", "timestamp", "redelivered", "backout-count")
}


def queue_of(headers: dict[str, str]) -> str:
    """The queue that a frame names. Raises Mistake where it names none."""
    destination = headers.get("destination")
    if destination is None:
        raise Mistake("the frame has no destination header; it names a queue, as /queue/ORDERS")
    return queue_named(destination)


def queue_named(destination: str) -> str:
    if destination.startswith(PREFIX):
        return destination[len(PREFIX) :]
    if destination.startswith("/"):
        text = f"{destination[:100]!r} is no destination here; there are queues, as /queue/ORDERS or ORDERS"
        raise Mistake(text, reason=Reason.OBJECT_NAME_ERROR, name=destination[:100])
    return destination


def put_options(headers: dict[str, str], wall_us: Callable[[], int]) -> PutOptions:
    """What a SEND says of its message; `wall_us()` is now. Raises Mistake."""
    options: PutOptions = {}
    properties: dict[str, Value] = {}
    for name, value in headers.items():
        if name in NO_PROPERTIES:
            continue
        match name:
            case "priority":
                options["priority"] = _whole(name, value, "a whole number from 0 to 9", Reason.PRIORITY_ERROR)
            case "persistent":
                options["persistent"] = _flag(name, value)
            case "expires":
                options["expiry"] = _until(_milliseconds(name, value), wall_us())
            case "expiration":
                options.setdefault("expiry", min(max(_milliseconds(name, value), 1) / 1000, MAX_EXPIRY))
            case "correlation-id":
                options["correlation_id"] = correlation_id = _correlation_id(value)
                if id_text(correlation_id) != value:
                    properties[name] = value
            case "reply-to":
                options["reply_to"] = queue_named(value)
            case "content-type":
                properties[name] = value
                if value.startswith(TEXTS):
                    options["format"] = TEXT
            case "JMSXGroupID":
                options["group_id"] = group_id = _group_id(value)
                if id_text(group_id) != value:
                    properties[name] = value
            case "JMSXGroupSeq":
                allowed = f"a whole number from 1 to {MAX_GROUP}"
                options["group_sequence"] = _whole(name, value, allowed, Reason.MSG_SEQ_NUMBER_ERROR)
            case "JMS_IBM_Last_Msg_In_Group":
                options["last_in_group"] = _flag(name, value, Reason.MSG_FLAGS_ERROR)
            case _:
                properties[name] = value
    if properties:
        options["properties"] = properties
    return options


def _milliseconds(name: str, value: str) -> int:
    return _whole(name, value, "a whole number, of milliseconds", Reason.EXPIRY_ERROR)


def _whole(name: str, value: str, allowed: str, reason: Reason) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise Mistake(f"header {name} is {allowed}, not {value[:100]!r}", reason=reason)
    return int(value)


def _flag(name: str, value: str, reason: Reason = Reason.PERSISTENCE_ERROR) -> bool:
    if value not in ("true", "false"):
        raise Mistake(f"header {name} is true or false, not {value[:100]!r}", reason=reason)
    return value == "true"


def _until(milliseconds: int, wall_us: int) -> float | None:
    """Seconds from now; None for 0. A moment that has passed becomes a time that is over before anybody can get it."""
    return min(max(milliseconds / 1000 - wall_us / 1e6, 1e-6), MAX_EXPIRY) if milliseconds else None


def _correlation_id(text: str) -> bytes:
    """24 bytes of it: what 48 hexadecimal digits say, or the first of the text."""
    digits = HEX_ID.fullmatch(text)
    return bytes.fromhex(digits[1]) if digits is not None else text.encode()[:24].ljust(24, b"\0")


def _group_id(text: str) -> bytes:
    """24 bytes. Two groups whose names begin alike must not become one, so nothing is cut off."""
    digits = HEX_ID.fullmatch(text)
    said = bytes.fromhex(digits[1]) if digits is not None else text.encode()
    if len(said) > 24 or not said.strip(b"\0"):
        words = f"header {GROUP_ID} is text of 1 to 24 bytes, or 48 hexadecimal digits not all 0, not {text[:100]!r}"
        raise Mistake(words, reason=Reason.GROUP_ID_ERROR)
    return said.ljust(24, b"\0")


def id_text(one_id: bytes) -> str:
    """As text, where it is printable ASCII; else 48 hexadecimal digits."""
    text = one_id.rstrip(b"\0")
    return text.decode() if READABLE.fullmatch(text) else one_id.hex()


def message_headers(message: Message, wall_us: Callable[[], int]) -> dict[str, str]:
    """The headers of a MESSAGE frame that come from the message; `wall_us()` is now."""
    headers = {
        "message-id": message.message_id.hex(),
        "content-length": str(len(message.body)),
        "priority": str(message.priority),
        "persistent": "true" if message.persistent else "false",
        "timestamp": str(message.put_time_us // 1000),
    }
    if message.expiry is not None:
        headers["expires"] = str(wall_us() // 1000 + int(message.expiry * 1000))
    if message.backout_count:
        headers["redelivered"] = "true"
        headers["backout-count"] = str(message.backout_count)
    if message.reply_to:
        headers["reply-to"] = PREFIX + message.reply_to
    if message.group_sequence:
        headers[GROUP_SEQUENCE] = str(message.group_sequence)
        headers[LAST_IN_GROUP] = "true" if message.last_in_group else "false"
    for name, value in message.properties.items():
        if name not in NO_PROPERTIES:
            headers.setdefault(name, value_text(value))
    if message.correlation_id != NO_ID:
        headers.setdefault(CORRELATION_ID, id_text(message.correlation_id))
    if message.group_id is not None:
        headers.setdefault(GROUP_ID, id_text(message.group_id))
    if message.format.rstrip() == TEXT:
        headers.setdefault("content-type", "text/plain")
    return headers
