"""Records as text and JSON, for dmpmqlog. Reads the log without owning it; changes nothing.

A record prints in two parts, as MQ people know them: the logger's header (HLRH) around the log manager's (ALRH). The
numbers of record types are those of `recovery.records.Kind`.
"""

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from logger import log as logs
from logger import lsn
from logger.disk import PAGE, Disk
from logger.errors import LogDamaged
from recovery import records
from recovery.records import Kind, Xid

COMPONENTS = {256: "AQM", 512: "AOC", 768: "ATM", 1024: "ALM"}
NAMES = {
    Kind.PUT: "Put Message",
    Kind.PUT_MANY: "Put Messages",
    Kind.GET: "Get Message",
    Kind.CALLS: "Unit of Work Calls",
    Kind.EXPIRE: "Expire Message",
    Kind.DEFINE: "Create Object",
    Kind.DELETE: "Delete Object",
    Kind.PREPARE: "Transaction Prepared",
    Kind.COMMIT: "Commit Transaction",
    Kind.BACKOUT: "Rollback Transaction",
    Kind.ROLL_FORWARD: "Transaction Rolled Forward",
    Kind.IMAGE_START: "Media Image Start",
    Kind.IMAGE_PART: "Media Image Part",
    Kind.IMAGE_END: "Media Image End",
    Kind.QMGR: "Queue Manager Attributes",
    Kind.CATALOG: "Object Catalog",
    Kind.START_CHECKPOINT: "Start Checkpoint",
    Kind.END_CHECKPOINT: "End Checkpoint",
}


@attrs.frozen(kw_only=True)
class DumpRecord:
    """One record, ready to be printed."""

    lsn: int
    end: int
    kind: int
    uow: int
    epoch: int
    time: int  # microseconds since 1970-01-01 UTC
    length: int  # of the body, bytes
    details: dict[str, Any]  # by record type; what the body says

    @property
    def type_name(self) -> str:
        owner = self.kind & ~255
        return f"{COMPONENTS.get(owner, '???')} {NAMES.get(Kind(self.kind), 'Unknown')} ({self.kind})"

    def text(self) -> str:
        """The record as dmpmqlog prints it."""
        owner = self.kind & ~255
        lines = [
            f"LOG RECORD - LSN {lsn.text(self.lsn)}",
            "**********",
            "",
            f"HLG Header: lrecsize {self.end - self.lsn}, version 1, rmid 0, eyecatcher HLRH",
            f"Creation Time: {_moment(self.time)} (UTC +0)",
            "",
            f"LogRecdType . : {self.type_name}",
            "Eyecatcher  . : ALRH        Version . . : 1",
            f"LogRecdLen  . : {self.length:<11} LogRecdOwnr : {owner} ({COMPONENTS.get(owner, '???')})",
            f"XTranid . . . : {f'0,{self.uow}' if self.uow else 'TranType: NULL'}",
            f"Epoch . . . . : {self.epoch}",
            f"ThisLSN . . . : {lsn.text(self.lsn)}",
            f"NextLSN . . . : {lsn.text(self.end)}",
        ]
        lines += (f"{name + ' ':.<14}: {_shown(value)}" for name, value in self.details.items())
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(
            {
                "lsn": lsn.text(self.lsn),
                "next_lsn": lsn.text(self.end),
                "type": self.kind,
                "type_name": self.type_name,
                "uow": self.uow or None,
                "epoch": self.epoch,
                "time": _moment(self.time),
                "length": self.length,
                **self.details,
            }
        )


def _moment(us: int) -> str:
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=us)).isoformat(" ", "milliseconds")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _xid(xid: Xid) -> dict[str, Any]:
    return {"formatID": xid.format_id, "gtrid": xid.gtrid.hex(), "bqual": xid.bqual.hex()}


def _details(record: records.Record, names: dict[int, str]) -> dict[str, Any]:
    """What the body says, in the order of its fields; learns the names of queues from their definitions."""

    def queue(number: int) -> dict[str, Any]:
        return {"queue": names.get(number, f"#{number}"), "queue_id": number}

    def runs(body: bytes) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        for number, ordinal, messages, sequences in records.runs(body):
            if messages:
                size = sum(len(one) for one, _ in messages)
                found.append(queue(number) | {"ordinal": ordinal, "messages": len(messages), "message_bytes": size})
            else:
                found.append(queue(number) | {"sequences": list(sequences)})
        return {"calls": found} if found else {}

    match record:
        case records.Put(number, sequence, message):
            return queue(number) | {"sequence": sequence, "message_bytes": len(message)}
        case records.PutMany(number, sequence, messages):
            total = sum(len(message) for message, _ in messages)
            return queue(number) | {"sequence": sequence, "messages": len(messages), "message_bytes": total}
        case records.Get(number, sequences) | records.Expire(number, sequences):
            return queue(number) | {"sequences": list(sequences)}
        case records.Calls(_, body):
            return runs(body)
        case records.Commit(_, bases, body):
            return {"sequences": {names.get(number, f"#{number}"): base for number, base in bases.items()}} | runs(body)
        case records.Backout(_, body):
            return runs(body)
        case records.Prepare(_, xid):
            return _xid(xid)
        case records.RollForward(_, xid, body):
            return _xid(xid) | runs(body)
        case records.Define(definition):
            fields: dict[str, Any] = json.loads(definition)
            names[fields["id"]] = fields["name"]
            return {"definition": fields}
        case records.Delete(number):
            return queue(number)
        case records.ImageStart(number, notes):
            return queue(number) | {"image": json.loads(notes)}
        case records.ImagePart():
            there = record.cells - int.from_bytes(record.gone, "little").bit_count()
            return queue(record.queue) | {"image_start": lsn.text(record.start), "messages": there}
        case records.ImageEnd(number, start, checkpoint, media):
            places = {"image_start": start, "image_checkpoint": checkpoint, "media": media}
            return queue(number) | {name: lsn.text(place) for name, place in places.items()}
        case records.AlterQmgr(attributes):
            return {"qmgr": json.loads(attributes)}
        case records.Catalog(content):
            return {"catalog": json.loads(content)}
        case records.CheckpointMark(_, notes):
            return {"notes": json.loads(notes)}


def header(disk: Disk, log_dir: str) -> dict[str, Any]:
    """The log's header fields by their MQ names. Raises LogDamaged, OSError."""
    state, reader = logs.read_only(disk, log_dir)
    try:
        for _ in reader.records(state.head, durable=max(state.durable, state.clean_end)):
            pass
        end = reader.end
    finally:
        reader.close()
    return {
        "FormatVersion": 1,
        "logtype": state.log_type.value,
        "hflag1": "CIRCULAR" if state.log_type.value == "CIRCULAR" else "LOG RETAIN",
        "LogId": state.log_id.hex(),
        "FileCount": len(state.extents),
        "logsize": state.extent_bytes // PAGE,
        "epoch": state.epoch,
        "baselsn": lsn.text(state.head // state.extent_bytes * state.extent_bytes),
        "headlsn": lsn.text(state.head),
        "checkpointlsn": lsn.text(state.checkpoint),
        "nextlsn": lsn.text(end),
        "taillsn": lsn.text(end),
        "clean": state.clean_end == end,
        "extents": {f"S{number:07d}.LOG": sequence for number, sequence in state.extents},
    }


def header_lines(fields: Mapping[str, Any]) -> list[str]:
    """The header as dmpmqlog prints it."""
    lines = ["LOG FILE HEADER", "***************", ""]
    lines += (f"{name + ' ':.<16}: {_shown(value)}" for name, value in fields.items() if name != "extents")
    lines += (f"  {name} sequence {sequence}" for name, sequence in fields["extents"].items())
    return [*lines, ""]


def dump(
    disk: Disk,
    log_dir: str,
    *,
    start_lsn: int | None = None,
    end_lsn: int | None = None,
    base: bool = False,
    names: Mapping[int, str] | None = None,
) -> Iterator[DumpRecord]:
    """The records from the head, from `start_lsn`, or with `base` from the first record of the head's extent.

    `end_lsn`: the last record to show. `names`: of queues, by number. Raises LogDamaged where no record begins at
    `start_lsn`, and after the last good record when the log is damaged there.
    """
    state, reader = logs.read_only(disk, log_dir)
    known = dict(names or {})
    base_lsn = state.head // state.extent_bytes * state.extent_bytes
    first = base_lsn if base or (start_lsn is not None and start_lsn < state.head) else state.head
    try:
        if start_lsn is not None and start_lsn < base_lsn:
            raise LogDamaged(f"the log begins at {lsn.text(base_lsn)}; {lsn.text(start_lsn)} is not there any more")
        begun = start_lsn is None
        for raw in reader.records(first, durable=max(state.durable, state.clean_end), resync=True):
            if end_lsn is not None and raw.lsn > end_lsn:
                return
            record = records.decode(raw.kind, raw.uow, raw.body)
            details = _details(record, known)
            if not begun and raw.lsn == start_lsn:
                begun = True
            elif not begun and start_lsn is not None and raw.lsn > start_lsn:
                raise LogDamaged(f"no record begins at {lsn.text(start_lsn)}; the next one is at {lsn.text(raw.lsn)}")
            if begun:
                yield DumpRecord(
                    lsn=raw.lsn,
                    end=raw.end,
                    kind=raw.kind,
                    uow=raw.uow,
                    epoch=raw.epoch,
                    time=raw.time,
                    length=len(raw.body),
                    details=details,
                )
    finally:
        reader.close()
