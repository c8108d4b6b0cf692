"""The table that a log is: a row per operation, its columns, their types in Arrow and in Spark.

Moments are UTC; LSNs, lengths and sequences are whole numbers. A column is null where it does not apply: see
docs/spark.md.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from qmgr.errors import Mistake

MOMENT = pa.timestamp("us", tz="UTC")
TEXTS = pa.map_(pa.string(), pa.string())
BASES = pa.map_(pa.int32(), pa.int64())

ARROW = pa.schema(
    [
        ("lsn", pa.int64()),  # where the record begins
        ("end_lsn", pa.int64()),  # behind it
        ("extent", pa.string()),  # name of the extent in which it begins
        ("epoch", pa.int32()),
        ("time", MOMENT),  # of the record
        ("kind", pa.string()),
        ("position", pa.int32()),  # of the row in its record
        ("uow", pa.int64()),
        ("xid", pa.string()),
        ("object", pa.string()),
        ("object_number", pa.int32()),
        ("sequence", pa.int64()),
        ("ordinal", pa.int64()),
        ("repeated", pa.bool_()),
        ("bases", BASES),
        ("message_id", pa.binary()),
        ("correlation_id", pa.binary()),
        ("priority", pa.int32()),
        ("persistent", pa.bool_()),
        ("put_time", MOMENT),
        ("expiry", MOMENT),
        ("backout_count", pa.int32()),
        ("properties", TEXTS),
        ("format", pa.string()),
        ("reply_to", pa.string()),
        ("body_length", pa.int32()),
        ("body", pa.binary()),
        ("details", pa.string()),
    ]
)
COLUMNS: tuple[str, ...] = tuple(ARROW.names)

SQL = {
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    MOMENT: "TIMESTAMP_LTZ",  # which TIMESTAMP is unless a session has it otherwise
    TEXTS: "MAP<STRING, STRING>",
    BASES: "MAP<INT, BIGINT>",
}
# As `DataType.simpleString` writes them.
SIMPLE = {kind: name.replace(" ", "").lower() for kind, name in SQL.items()} | {MOMENT: "timestamp"}
DDL = ", ".join(f"{field.name} {SQL[field.type]}" for field in ARROW)


def arrow_of(columns: Iterable[str]) -> pa.Schema:
    """The Arrow schema of some of the columns, in their order."""
    return pa.schema([ARROW.field(name) for name in columns])


def column(name: str, kind: pa.DataType, asked: str, *, nullable: bool) -> pa.Field:
    """A column as Spark expects it, whose `simpleString` is `asked`. Raises Mistake where that is another type."""
    if asked != SIMPLE[kind]:
        raise Mistake(f"column {name!r} is {SQL[kind]}, not {asked.upper()}; read it as that and cast it")
    return pa.field(name, kind, nullable=nullable)


def batch_of(columns: Sequence[pa.Array], target: pa.Schema) -> pa.RecordBatch:
    """The columns as Spark expects them. Raises Mistake for a null in one that the user's schema has as NOT NULL.

    Spark believes such a schema: it would fail with Java's words, or read whatever lies in the null's place.
    """
    for field, values in zip(target, columns, strict=True):
        if not field.nullable and values.null_count:
            raise Mistake(f"column {field.name!r} has rows where it is null; leave out NOT NULL in its schema")
    return pa.RecordBatch.from_arrays(columns, schema=target)
