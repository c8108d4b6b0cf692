"""Records as text and JSON, for dmpmqlog. Reads the log without owning it; changes nothing.

A record prints in two parts, as MQ people know them: the logger's header (HLRH) around the log manager's (ALRH). The
numbers of record types are those of `recovery.records.Kind`.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from logger import at_rest, control, lsn
from logger.clock import moment
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.disk import PAGE, Disk
from logger.errors import ExtentGone, LogDamaged, NotInLog
from logger.extent import FILE_NUMBERS, file_name, linear_number
from logger.reader import LogReader
from logger.reader import Record as RawRecord
from logger.space import Space
from recovery import records
from recovery.following import Following
from recovery.records import Kind, Xid

ReaderOf = Callable[[ControlState], LogReader]  # reads more of the log than what lies in its active directory

BODY_SHOWN = 32  # bytes of the body of a record that this version does not know
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
    Kind.DEFINE_ALIAS: "Create Alias",
    Kind.DELETE_ALIAS: "Delete Alias",
    Kind.START_CHECKPOINT: "Start Checkpoint",
    Kind.END_CHECKPOINT: "End Checkpoint",
    Kind.FILL: "Fill Page",
}
KNOWN: Mapping[int, str] = {int(kind): name for kind, name in NAMES.items()}


def component(kind: int) -> str:
    """The component of the queue manager that records of this kind belong to, by its MQ name."""
    return COMPONENTS.get(kind & ~255, "???")


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
        return f"{component(self.kind)} {KNOWN.get(self.kind, 'Unknown')} ({self.kind})"

    def text(self) -> str:
        """The record as dmpmqlog prints it."""
        lines = [
            f"LOG RECORD - LSN {lsn.text(self.lsn)}",
            "**********",
            "",
            f"HLG Header: lrecsize {self.end - self.lsn}, version 1, rmid 0, eyecatcher HLRH",
            f"Creation Time: {moment(self.time)} (UTC +0)",
            "",
            f"LogRecdType . : {self.type_name}",
            "Eyecatcher  . : ALRH        Version . . : 1",
            f"LogRecdLen  . : {self.length:<11} LogRecdOwnr : {self.kind & ~255} ({component(self.kind)})",
            f"XTranid . . . : {f'0,{self.uow}' if self.uow else 'TranType: NULL'}",
            f"Epoch . . . . : {self.epoch}",
            f"ThisLSN . . . : {lsn.text(self.lsn)}",
            f"NextLSN . . . : {lsn.text(self.end)}",
        ]
        lines += (f"{name + ' ':.<14}: {_shown(value)}" for name, value in self.details.items())
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """The record as one line of JSON, for `dmpmqlog --json`."""
        return json.dumps(
            {
                "lsn": lsn.text(self.lsn),
                "next_lsn": lsn.text(self.end),
                "type": self.kind,
                "type_name": self.type_name,
                "uow": self.uow or None,
                "epoch": self.epoch,
                "time": moment(self.time),
                "length": self.length,
                **self.details,
            }
        )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _xid(xid: Xid) -> dict[str, Any]:
    return {"formatID": xid.format_id, "gtrid": xid.gtrid.hex(), "bqual": xid.bqual.hex()}


def _queue(number: int, names: dict[int, str]) -> dict[str, Any]:
    return {"queue": names.get(number, f"#{number}"), "queue_id": number}


def _runs(body: bytes, names: dict[int, str]) -> dict[str, Any]:
    """The calls of a unit of work that a record has, in their order."""
    found: list[dict[str, Any]] = []
    for number, ordinal, messages, sequences in records.runs(body):
        if messages:
            size = sum(len(one) for one, _ in messages)
            what = {"ordinal": ordinal, "messages": len(messages), "message_bytes": size}
            found.append({"call": "put"} | _queue(number, names) | what)
        else:
            found.append({"call": "get"} | _queue(number, names) | {"sequences": list(sequences)})
    return {"calls": found} if found else {}


def _details(record: records.Record, names: dict[int, str]) -> dict[str, Any]:
    """The fields of a record's body, in their order; adds to `names` the queues that it defines."""
    match record:
        case records.Put(number, sequence, message):
            return _queue(number, names) | {"sequence": sequence, "message_bytes": len(message)}
        case records.PutMany(number, sequence, messages):
            total = sum(len(message) for message, _ in messages)
            return _queue(number, names) | {"sequence": sequence, "messages": len(messages), "message_bytes": total}
        case records.Get(number, sequences) | records.Expire(number, sequences):
            return _queue(number, names) | {"sequences": list(sequences)}
        case records.Calls(_, body) | records.Backout(_, body):
            return _runs(body, names)
        case records.Commit(_, bases, body):
            by_name = {names.get(number, f"#{number}"): base for number, base in bases.items()}
            return {"sequences": by_name} | _runs(body, names)
        case records.Prepare(_, xid):
            return _xid(xid)
        case records.RollForward(_, xid, body):
            return _xid(xid) | _runs(body, names)
        case records.Define(definition):
            fields: dict[str, Any] = json.loads(definition)
            names[fields["id"]] = fields["name"]
            return {"definition": fields}
        case records.Delete(number):
            return _queue(number, names)
        case records.ImageStart(number, notes):
            return _queue(number, names) | {"image": json.loads(notes)}
        case records.ImagePart():
            there = record.cells - int.from_bytes(record.gone, "little").bit_count()
            return _queue(record.queue, names) | {"image_start": lsn.text(record.start), "messages": there}
        case records.ImageEnd(number, start, checkpoint, media):
            places = {"image_start": start, "image_checkpoint": checkpoint, "media": media}
            return _queue(number, names) | {name: lsn.text(place) for name, place in places.items()}
        case records.AlterQmgr(attributes):
            return {"qmgr": json.loads(attributes)}
        case records.Catalog(flags, content):
            said: dict[str, Any] = json.loads(content)
            return {"first": bool(flags & records.CATALOG_FIRST), "last": bool(flags & records.CATALOG_LAST)} | said
        case records.DefineAlias(definition):
            return {"definition": json.loads(definition)}
        case records.DeleteAlias(name):
            return {"alias": name}
        case records.CheckpointMark(_, notes):
            return {"notes": json.loads(notes)}
        case records.Fill():
            return {}


# The log as a whole


def opened(disk: Disk, log_dir: str, reader: ReaderOf | None) -> tuple[ControlState, LogReader]:
    """What the control file says, and a reader of the log. Raises LogDamaged, OSError."""
    if reader is None:
        return at_rest.read_only(disk, log_dir)
    _, state = control.read(disk, at_rest.control_path(log_dir))
    return state, reader(state)


def _from_head(state: ControlState, reader: LogReader) -> Iterator[RawRecord]:
    return reader.records(state.head, durable=max(state.durable, state.clean_end))


def no_pause(seconds: float) -> None:
    """For a log that nobody writes."""


def header(
    disk: Disk,
    log_dir: str,
    *,
    config: LogConfig | None = None,
    reader: ReaderOf | None = None,
    pause: Callable[[float], None] = no_pause,
) -> dict[str, Any]:
    """The log's header fields by their MQ names; with `config` also those that qm.ini knows. `pause` as in `dump`.

    A log that is damaged ends there, and `damaged` says so. Raises LogDamaged when nothing can be read, OSError.
    """
    found = Following(lambda: opened(disk, log_dir, reader), pause)
    damaged: dict[str, str] = {}
    try:
        found.read_through()
    except LogDamaged as exc:
        damaged = {"damaged": str(exc)}
    finally:
        found.close()
    state = found.state
    end = found.end or state.head
    linear = state.log_type is LogType.LINEAR
    fields: dict[str, Any] = {
        "FormatVersion": 1,
        "logtype": state.log_type.value,
        "hflag1": "LOG RETAIN" if linear else "CIRCULAR",
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
    }
    if config is not None:
        fields |= {
            "logactive": config.primary_files,
            "loginactive": config.secondary_files,
            "softmax": soft_limit(config),
        }
    if linear:
        fields |= {
            "HeadExtentID": linear_number(state.head // state.extent_bytes),
            "LastEID": linear_number(last_sequence(end, state.extent_bytes)),
            "RecHeadFile": file_name(linear_number(state.head // state.extent_bytes)),
        }
    return fields | damaged | {"extents": {file_name(number): sequence for number, sequence in state.extents}}


def soft_limit(config: LogConfig) -> int:
    """Bytes of log beyond which the release sequence runs."""
    return Space(config.extent_bytes, config.max_files, config.primary_files, 0).soft


def last_sequence(end: int, extent_bytes: int) -> int:
    """The sequence of the extent with the last record of a log that ends at the LSN `end`."""
    return max(1, (end - 1) // extent_bytes)


def header_lines(fields: Mapping[str, Any]) -> list[str]:
    """The header as dmpmqlog prints it."""
    lines = ["LOG FILE HEADER", "***************", ""]
    lines += (f"{name + ' ':.<16}: {_shown(value)}" for name, value in fields.items() if name != "extents")
    lines += (f"  {name} sequence {sequence}" for name, sequence in fields["extents"].items())
    return [*lines, ""]


@attrs.frozen(kw_only=True)
class OpenUnit:
    """A unit of work that has records in the log and no outcome. Moment in microseconds since 1970-01-01 UTC."""

    number: int
    first_lsn: int
    logged: int  # when that was logged
    xid: Xid | None = None  # of one that is in doubt; the others a restart backs out


def open_units(disk: Disk, log_dir: str) -> tuple[ControlState, int, list[OpenUnit], int]:
    """(control file, end of the log, units of work without an outcome by first LSN, records since the checkpoint).

    What a restart would find, by reading the log from the head. Raises LogDamaged, OSError.
    """
    state, found = at_rest.read_only(disk, log_dir)
    units: dict[int, OpenUnit] = {}
    since = 0
    with contextlib.closing(found):
        for raw in _from_head(state, found):
            since += raw.lsn >= state.checkpoint and component(raw.kind) != "ALM"
            if raw.kind in (Kind.COMMIT, Kind.BACKOUT):
                units.pop(raw.uow, None)
            elif raw.uow:
                new = OpenUnit(number=raw.uow, first_lsn=raw.lsn, logged=raw.time)
                if raw.kind in (Kind.PREPARE, Kind.ROLL_FORWARD):
                    record = records.decode(raw.kind, raw.uow, raw.body)
                    assert isinstance(record, records.Prepare | records.RollForward)
                    new = attrs.evolve(new, xid=record.xid)
                old = units.get(raw.uow)
                if old is not None and raw.kind != Kind.ROLL_FORWARD:  # which replaces what was logged before
                    new = attrs.evolve(old, xid=new.xid or old.xid)
                units[raw.uow] = new
        return state, found.end, sorted(units.values(), key=lambda unit: unit.first_lsn), since


# The records


def dump(
    disk: Disk,
    log_dir: str,
    *,
    start_lsn: int | None = None,
    end_lsn: int | None = None,
    base: bool = False,
    extent: int | None = None,
    names: Mapping[int, str] | None = None,
    reader: ReaderOf | None = None,
    pause: Callable[[float], None] = no_pause,
) -> Iterator[DumpRecord]:
    """The records from the head, from `start_lsn`, or from the first one of an extent: of the head's with `base`.

    `extent` is the number of one; `end_lsn`: the last record to show; `names`: of queues, by number; `reader`: one
    that also reads extents which the active directory does not have; `pause(seconds)` waits for a queue manager that
    writes meanwhile. Raises LogDamaged where no record begins at `start_lsn`, and after the last good record when the
    log is damaged there.
    """
    found = Following(lambda: opened(disk, log_dir, reader), pause)
    try:
        if extent is not None and reader is None:
            _refuse_missing(disk, log_dir, extent)
        known = dict(names or {})
        begun = start_lsn is None
        shown = False
        for raw in found.records(lambda state: _first(state, start_lsn, extent, base=base)):
            if end_lsn is not None and raw.lsn > end_lsn:
                return
            details = _details_of(raw, known)
            if not begun and start_lsn is not None and raw.lsn > start_lsn:
                raise NotInLog(f"no record begins at {lsn.text(start_lsn)}; the next one is at {lsn.text(raw.lsn)}")
            begun = begun or raw.lsn == start_lsn
            if begun:
                shown = True
                yield _shown_record(raw, details)
        if start_lsn is not None and not shown:
            raise NotInLog(f"no record begins at {lsn.text(start_lsn)}; the log ends at {lsn.text(found.end)}")
    except ExtentGone as exc:
        if extent is None or disk.exists(exc.path):  # it is there, and was cut or is damaged
            raise
        raise NotInLog(
            f"log extent {file_name(extent)} is not there: it was used again or removed when nothing needed it any "
            f"more, and nothing is wrong then; if it should be there: {exc}"
        ) from exc
    finally:
        found.close()


def _refuse_missing(disk: Disk, log_dir: str, extent: int) -> None:
    active = at_rest.active_path(log_dir)
    if not disk.exists(f"{active}/{file_name(extent)}"):
        raise NotInLog(f"log extent {file_name(extent)} is not in {active}; put it back there")


def _shown_record(raw: RawRecord, details: dict[str, Any]) -> DumpRecord:
    return DumpRecord(
        lsn=raw.lsn,
        end=raw.end,
        kind=raw.kind,
        uow=raw.uow,
        epoch=raw.epoch,
        time=raw.time,
        length=len(raw.body),
        details=details,
    )


def _first(state: ControlState, start_lsn: int | None, extent: int | None, *, base: bool) -> int:
    """Where to begin to read. Raises LogDamaged for what is certainly not there."""
    size, linear = state.extent_bytes, state.log_type is LogType.LINEAR
    base_lsn = state.head // size * size
    if extent is not None:
        return sequence_of(state, extent) * size
    if start_lsn is None:
        return base_lsn if base else state.head
    if start_lsn >= state.head:
        return state.head
    if start_lsn < (size if linear else base_lsn):
        begins = size if linear else base_lsn
        raise NotInLog(f"the log begins at {lsn.text(begins)}; {lsn.text(start_lsn)} is not there any more")
    return start_lsn // size * size


def sequence_of(state: ControlState, number: int) -> int:
    """The latest part of a linear log that the file of this number may hold. Raises NotInLog when there is none."""
    last = max((sequence for _, sequence in state.extents), default=0)
    if not last:
        text = "nothing was written to it, because its queue manager was never started"
        raise NotInLog(f"the log has no extent {file_name(number)} yet: {text}")
    sequence = last - (linear_number(last) - number) % FILE_NUMBERS
    if sequence < 1:
        raise NotInLog(f"the log has no extent {file_name(number)} yet: it goes to {file_name(linear_number(last))}")
    return sequence


def _details_of(raw: RawRecord, names: dict[int, str]) -> dict[str, Any]:
    if raw.kind not in KNOWN:
        return {"body": bytes(raw.body[:BODY_SHOWN]).hex()}
    return _details(records.decode(raw.kind, raw.uow, raw.body), names)
