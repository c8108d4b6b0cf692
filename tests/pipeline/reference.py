"""The rows of a log, told slowly: one record after the other, by the decoding that restart uses."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from logger.disk import Disk
from logger.extent import file_name, linear_number
from logger.reader import Record
from pipeline.filters import EVERYTHING, Filters
from pipeline.log_files import LogFiles
from pipeline.schema import COLUMNS
from qmgr.message import HEAD, IN_GROUP, Value, decode_properties, standing
from recovery import records
from recovery.records import Kind, Xid

Row = dict[str, Any]


def raw_records(log: LogFiles, disk: Disk) -> list[Record]:
    """All records of a log that nobody writes, each with a body of its own."""
    with contextlib.closing(log.extents(disk)) as extents:
        reader = extents.reader()
        return [one._replace(body=memoryview(bytes(one.body))) for one in reader.records(log.first(disk), resync=True)]


def rows(log: LogFiles, disk: Disk) -> list[Row]:
    """All rows of a log, with all columns."""
    names: dict[int, str] = {}
    found = raw_records(log, disk)
    for raw in found:
        names |= names_in(raw)
    return [{name: row.get(name) for name in COLUMNS} for raw in found for row in rows_of(raw, names, log.extent_bytes)]


def names_in(raw: Record) -> dict[int, str]:
    """The names of queues, by number, that a record tells."""
    if raw.kind == Kind.DEFINE:
        definitions = [json.loads(bytes(raw.body))]
    elif raw.kind == Kind.CATALOG:
        definitions = [one["definition"] for one in json.loads(bytes(raw.body[1:]))["queues"]]
    else:
        return {}
    return {one["id"]: one["name"] for one in definitions}


def passing(found: list[Row], filters: Filters) -> Iterator[Row]:
    """The rows that the filters let pass."""
    for row in found:
        if filters == EVERYTHING or (
            (filters.low_lsn is None or row["lsn"] >= filters.low_lsn)
            and (filters.high_lsn is None or row["lsn"] < filters.high_lsn)
            and (filters.low_time is None or row["time"] >= filters.low_time)
            and (filters.high_time is None or row["time"] < filters.high_time)
            and (filters.objects is None or row["object"] in filters.objects)
            and (filters.kinds is None or row["kind"] in filters.kinds)
        ):
            yield row


def rows_of(raw: Record, names: dict[int, str], extent_bytes: int) -> list[Row]:
    """The rows of one record."""
    record = records.decode(raw.kind, raw.uow, raw.body)
    common: Row = {
        "lsn": raw.lsn,
        "end_lsn": raw.end,
        "extent": file_name(linear_number(raw.lsn // extent_bytes)),
        "epoch": raw.epoch,
        "time": raw.time,
        "uow": raw.uow or None,
        "repeated": False,
    }
    found: list[Row] = []
    match record:
        case records.Put(number, sequence, message):
            found.append(put(number, message) | {"sequence": sequence})
        case records.PutMany(number, sequence, messages):
            found += [put(number, one) | {"sequence": sequence + at} for at, (one, _) in enumerate(messages)]
        case records.Get(number, sequences):
            found += taken("GET", number, sequences)
        case records.Expire(number, sequences):
            found += taken("EXPIRE", number, sequences)
        case records.Calls(_, runs):
            found += calls(runs, {})
        case records.Commit(_, bases, runs):
            found += calls(runs, bases)
            found.append({"kind": "COMMIT", "bases": list(bases.items())})
        case records.Backout(_, runs):
            found += calls(runs, {})
            found.append({"kind": "BACKOUT"})
        case records.Prepare(_, xid):
            found.append({"kind": "PREPARE", "xid": xid_text(xid)})
        case records.RollForward(_, xid, runs):
            found += [row | {"repeated": True} for row in calls(runs, {})]
            found.append({"kind": "ROLL_FORWARD", "xid": xid_text(xid)})
        case _:
            found.append({"kind": Kind(raw.kind).name} | of_object(record))
    for position, row in enumerate(found):
        row["position"] = position
        if "object" not in row and "object_number" in row:
            row["object"] = names.get(row["object_number"])
    return [common | row for row in found]


def xid_text(xid: Xid) -> str:
    return f"{xid.format_id}:{xid.gtrid.hex()}:{xid.bqual.hex()}"


def taken(kind: str, number: int, sequences: Any) -> list[Row]:
    return [{"kind": kind, "object_number": number, "sequence": one} for one in sequences]


def calls(runs: bytes, bases: dict[int, int]) -> list[Row]:
    found: list[Row] = []
    for number, first, messages, sequences in records.runs(runs):
        for ordinal, (message, _) in enumerate(messages, first):
            place = {"ordinal": ordinal, "sequence": bases[number] + ordinal if number in bases else None}
            found.append(put(number, message) | place)
        found += taken("GET", number, sequences)
    return found


def put(number: int, message: bytes) -> Row:
    flags, priority, form, reply_to, properties, expires = standing(message)
    at = HEAD.size
    named = at + form + reply_to
    end = named + properties
    told = message[named : end - 24 if flags & IN_GROUP else end]
    return {
        "kind": "PUT",
        "object_number": number,
        "message_id": message[32:56],
        "correlation_id": message[56:80],
        "priority": priority,
        "persistent": bool(flags & 1),
        "put_time": int.from_bytes(message[16:24], "little"),
        "expiry": expires or None,
        "backout_count": 0,
        "properties": [(key, text(value)) for key, value in decode_properties(told).items()],
        "format": message[at : at + form].decode(),
        "reply_to": message[at + form : named].decode(),
        "body_length": len(message) - end,
        "body": message[end:],
    }


def text(value: Value) -> str:
    """The value of a property as text."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case _:
            return str(value)


def of_object(record: records.Record) -> Row:
    """What a record says that is neither of messages nor of units of work."""
    match record:
        case records.Define(definition):
            fields = json.loads(definition)
            return {"object": fields["name"], "object_number": fields["id"], "details": definition.decode()}
        case records.Delete(number):
            return {"object_number": number, "details": "{}"}
        case records.ImageStart(number, notes):
            return {"object_number": number, "details": notes.decode()}
        case records.ImagePart():
            gone = int.from_bytes(record.gone, "little").bit_count()
            said = {"image_start": record.start, "segment": record.segment, "messages": record.cells - gone}
            return {"object_number": record.queue, "details": json.dumps(said)}
        case records.ImageEnd(number, start, mark, media):
            said = {"image_start": start, "checkpoint": mark, "media": media}
            return {"object_number": number, "details": json.dumps(said)}
        case records.AlterQmgr(attributes):
            return {"details": attributes.decode()}
        case records.Catalog(flags, content):
            said = {"first": bool(flags & records.CATALOG_FIRST), "last": bool(flags & records.CATALOG_LAST)}
            return {"details": json.dumps(said | json.loads(content))}
        case records.DefineAlias(definition):
            return {"object": json.loads(definition)["name"], "details": definition.decode()}
        case records.DeleteAlias(name):
            return {"object": name, "details": "{}"}
        case records.CheckpointMark(_, notes):
            return {"details": notes.decode()}
    return {}
