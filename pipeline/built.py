"""What is on the queues of a queue manager that does not run, read from its files; counted, with a checksum for each.

Nothing is started for it, so nothing expires and nothing is changed. It is the content as of the checkpoint, and what
the log says of units of work that are in doubt: nothing else is in the log of one that `recover_to` has just built. The
checksum is the sum of a CRC-32 of each message, which Spark can make of rows just as well (`fingerprint`).
"""

import json
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import attrs

from logger.crc import crc32
from logger.disk import Disk
from logger.posix_disk import PosixDisk
from pipeline import finding
from pipeline.images import columns_of, records_of
from pipeline.log_files import LogFiles
from qmgr import locations
from qmgr.objects import mangle
from qmgr.openfiles import OpenFiles
from qmgr.segment_reader import SegmentReader
from qmgr.segments import from_description
from recovery import backouts, checkpoint
from recovery.records import Kind, RollForward, decode, runs

if TYPE_CHECKING:
    from pyspark.sql import Column

READY, LOCKED, UNCOMMITTED = "READY", "LOCKED", "UNCOMMITTED"
BETWEEN, APART = "\x1f", "\x1e"  # fields, and properties


@attrs.define
class Content:
    """Messages of one queue in one state."""

    messages: int = 0
    bytes: int = 0  # of their bodies
    checksum: int = 0


Contents = dict[tuple[str, str], Content]  # by queue and state


def contents(name: str, data_path: str, disk: Disk | None = None) -> Contents:
    """Counts and checksums of the persistent messages. Raises LogError, RecoveryError, OSError."""
    disk = disk or PosixDisk()
    found: Contents = {}
    for queue, state, sequence, count, message in _messages(name, data_path, disk):
        content = found.setdefault((queue, state), Content())
        fields = columns_of(message)
        content.messages += 1
        content.bytes += fields["body_length"]
        said = [str(fields[field] or "") for field in ("put_time", "expiry", "format", "reply_to")]
        properties = APART.join(sorted(f"{key}={value}" for key, value in fields["properties"]))
        head = ["" if sequence is None else str(sequence), str(fields["priority"]), str(count), *said, properties]
        data = BETWEEN.join(head).encode() + fields["message_id"] + fields["correlation_id"] + fields["body"]
        content.checksum += crc32(data)
    return found


def fingerprint() -> "Column":
    """The CRC of a message, as an expression of Spark's over a row that has its columns."""
    from pyspark.sql import functions as F

    def string(name: str) -> "Column":
        return F.coalesce(F.col(name).cast("STRING"), F.lit(""))

    def moment(name: str) -> "Column":
        return F.coalesce(F.unix_micros(name).cast("STRING"), F.lit(""))

    entries = F.transform(F.map_entries("properties"), lambda one: F.concat_ws("=", one["key"], one["value"]))
    properties = F.coalesce(F.array_join(F.array_sort(entries), APART), F.lit(""))
    head = [string("sequence"), string("priority"), string("backout_count"), moment("put_time"), moment("expiry")]
    text = F.concat_ws(BETWEEN, *head, string("format"), string("reply_to"), properties)
    return F.crc32(F.concat(F.encode(text, "UTF-8"), "message_id", "correlation_id", "body"))


def _messages(name: str, data_path: str, disk: Disk) -> Iterator[tuple[str, str, int | None, int, bytes]]:
    """(queue, state, sequence, backout count, encoded message) of each persistent message."""
    location = locations.find(name, data_path)
    log = finding.find(data_path, name, disk)
    _, catalogue = checkpoint.read_files(disk, location.data_dir, log.log_id)[0]
    queues = {one["definition"]["id"]: one for line in catalogue if "definition" in (one := json.loads(line))}
    locked: set[tuple[int, int]] = set()
    for record in _rolled_forward(log, disk):
        for number, _, puts, gets in runs(record.runs):
            locked.update((number, sequence) for sequence in gets)
            for message, _ in puts:
                yield queues[number]["definition"]["name"], UNCOMMITTED, None, 0, message
    for number, fields in queues.items():
        queue = fields["definition"]["name"]
        counts = backouts.read(fields["backouts"][1])
        reader = SegmentReader(disk, f"{location.queues}/{mangle(queue)}", log.log_id, number, OpenFiles(disk))
        for sequence, message in _stored(reader, fields["segments"]):
            state = LOCKED if (number, sequence) in locked else READY
            yield queue, state, sequence, counts.get(sequence), message


def _stored(reader: SegmentReader, segments: list[Any]) -> Iterator[tuple[int, bytes]]:
    """(sequence, encoded message) of each persistent message that was not got, from a queue's segment files."""
    for segment in map(from_description, segments):
        if segment.volatile:
            continue
        for block in chain.from_iterable(segment.blocks.values()):
            for cell, sequence, message in reader.read(segment, block):
                if not segment.is_gone(cell):
                    yield sequence, message


def _rolled_forward(log: LogFiles, disk: Disk) -> Iterator[RollForward]:
    """What the log has of units of work that are in doubt. Before its first record a log has no extent either."""
    if log.history(disk).places():
        for raw in records_of(log, log.first(disk), log.end(disk=disk), disk):
            if raw.kind == Kind.ROLL_FORWARD:
                record = decode(raw.kind, raw.uow, raw.body)
                assert isinstance(record, RollForward)
                yield record
