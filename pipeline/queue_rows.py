"""The table that a queue is: a row per message, its columns, and how messages become Arrow batches.

queue STRING             the queue, also where an alias was asked for
lsn BIGINT               of the record that made the message visible                          (stream; else null)
position INT             among the queue's messages that this record made visible, from 0     (stream; else null)
time TIMESTAMP           of this record                                                       (stream; else null)
message_id BINARY, correlation_id BINARY, priority INT, persistent BOOLEAN, put_time TIMESTAMP
expiry TIMESTAMP         when its time is over; null: never
backout_count INT        0 in a stream, which has messages as they were put
properties MAP<STRING, STRING>       values as text, bytes as hexadecimal digits
format STRING, reply_to STRING, body_length INT, body BINARY
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.schema import ARROW as LOG
from pipeline.schema import SQL, batch_of, column
from qmgr import Message, Mistake
from qmgr.message import HEAD, STANDING, value_text

BATCH_ROWS = 4096
BATCH_BYTES = 4 << 20  # of bodies

NAMES = (
    *("lsn", "position", "time", "message_id", "correlation_id", "priority", "persistent", "put_time", "expiry"),
    *("backout_count", "properties", "format", "reply_to", "body_length", "body"),
)
ARROW = pa.schema([pa.field("queue", pa.string()), *(LOG.field(name) for name in NAMES)])
DDL = ", ".join(f"{field.name} {SQL[field.type]}" for field in ARROW)


class Seen(NamedTuple):
    """A message, and where it was seen."""

    message: Message
    lsn: int | None = None
    position: int | None = None
    time: int | None = None  # microseconds since 1970-01-01 UTC


def seen_in_log(encoded: bytes, queue: str, lsn: int, position: int, time: int) -> Seen:
    """The message as the log has it."""
    _, _, form, reply_to, properties, _ = STANDING.unpack_from(encoded)
    end = HEAD.size + form + reply_to + properties
    return Seen(Message(encoded[end:], encoded[:end], queue), lsn, position, time)


def _expiry(seen: Seen) -> int | None:
    return int.from_bytes(seen.message.head[24:32], "little") or None


def _properties(seen: Seen) -> list[tuple[str, str]]:
    return [(name, value_text(value)) for name, value in seen.message.properties.items()]


VALUES: dict[str, Callable[[Seen], Any]] = {
    "queue": lambda seen: seen.message.queue,
    "lsn": lambda seen: seen.lsn,
    "position": lambda seen: seen.position,
    "time": lambda seen: seen.time,
    "message_id": lambda seen: seen.message.message_id,
    "correlation_id": lambda seen: seen.message.correlation_id,
    "priority": lambda seen: seen.message.priority,
    "persistent": lambda seen: seen.message.persistent,
    "put_time": lambda seen: seen.message.put_time_us,
    "expiry": _expiry,
    "backout_count": lambda seen: seen.message.backout_count,
    "properties": _properties,
    "format": lambda seen: seen.message.format,
    "reply_to": lambda seen: seen.message.reply_to,
    "body_length": lambda seen: len(seen.message.body),
    "body": lambda seen: seen.message.body,
}
assert list(VALUES) == ARROW.names


def batches(messages: Iterable[Seen], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages with the columns of `target`. No more than one batch of them is held."""
    held: list[Seen] = []
    size = 0
    for seen in messages:
        held.append(seen)
        size += len(seen.message.body)
        if len(held) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch(held, target)
            held, size = [], 0
    if held:
        yield batch(held, target)


def batch(messages: list[Seen], target: pa.Schema) -> pa.RecordBatch:
    """Raises Mistake as `batch_of`."""
    columns = [pa.array(map(VALUES[field.name.lower()], messages), field.type, size=len(messages)) for field in target]
    return batch_of(columns, target)


def target_of(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for `schema`, its or the user's. Raises Mistake for what no message has."""
    fields: list[pa.Field] = []
    for field in schema.fields:
        name = field.name.lower()  # to Spark case is nothing
        if name not in VALUES:
            raise Mistake(f"qmgr.queue has no column {field.name!r}; it has {', '.join(VALUES)}")
        if any(made.name.lower() == name for made in fields):
            raise Mistake(f"column {name!r} was asked for twice")
        kind = ARROW.field(name).type
        fields.append(column(field.name, kind, field.dataType.simpleString(), nullable=field.nullable))
    if not fields:
        raise Mistake("no column was asked for: name at least one")
    return pa.schema(fields)
