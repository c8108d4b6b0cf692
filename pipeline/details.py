"""Details: records that are neither of messages nor of units of work, decoded one by one. They are rare."""

import json
from collections.abc import Iterator

from qmgr.message import decode_properties, value_text
from recovery import records
from recovery.records import Kind

ALIASES = (Kind.DEFINE_ALIAS, Kind.DELETE_ALIAS)


def details(kind: int, body: memoryview) -> str | None:
    """What such a record says, as JSON. LSNs are numbers, but in what was logged as JSON they are as they are there."""
    match records.decode(kind, 0, body):
        case records.Define(text) | records.AlterQmgr(text) | records.DefineAlias(text):
            return text.decode()
        case records.ImageStart(_, text) | records.CheckpointMark(_, text):
            return text.decode()
        case records.Catalog(flags, text):
            first, last = bool(flags & records.CATALOG_FIRST), bool(flags & records.CATALOG_LAST)
            return json.dumps({"first": first, "last": last} | json.loads(text))
        case records.ImagePart() as part:
            there = part.cells - int.from_bytes(part.gone, "little").bit_count()
            return json.dumps({"image_start": part.start, "segment": part.segment, "messages": there})
        case records.ImageEnd(_, start, checkpoint, media):
            return json.dumps({"image_start": start, "checkpoint": checkpoint, "media": media})
        case records.Delete() | records.DeleteAlias():
            return "{}"
    return None


def xid(kind: int, body: memoryview) -> str:
    """The global transaction of a PREPARE or a ROLL_FORWARD."""
    record = records.decode(kind, 0, body)
    assert isinstance(record, records.Prepare | records.RollForward)
    return f"{record.xid.format_id}:{record.xid.gtrid.hex()}:{record.xid.bqual.hex()}"


def alias(kind: int, body: memoryview) -> str:
    """The name of the alias that is defined or deleted."""
    return str(json.loads(bytes(body))["name"]) if kind == Kind.DEFINE_ALIAS else str(body, "ascii")


def definitions(kind: int, body: memoryview) -> Iterator[tuple[int, str]]:
    """(number, name) of the queues in a DEFINE or a CATALOG."""
    if kind == Kind.DEFINE:
        fields = json.loads(bytes(body))
        yield fields["id"], fields["name"]
    elif kind == Kind.CATALOG:
        for one in json.loads(bytes(body[1:]))["queues"]:
            yield one["definition"]["id"], one["definition"]["name"]


def texts(encoded: bytes) -> list[tuple[str, str]]:
    """Properties of a message, with their values as text."""
    return [(name, value_text(value)) for name, value in decode_properties(encoded).items()]
