"""Restart: one scan. Skip what the checkpoint holds, apply the rest, back out what has no outcome.

From the head up to the checkpoint's LSN only the records of units of work that were in flight then are applied, since
their messages are in no queue file yet; from there on every record is. It is a pure function of checkpoint and log:
running it twice gives the same state, and when it is cut off nothing has changed but the log's epoch.
"""

import struct

import attrs

from logger import lsn
from logger.clock import Clock
from logger.errors import LogDamaged
from logger.log import FRAME_COST, Log
from recovery.checkpoint import Checkpoint
from recovery.errors import NotRecoverable
from recovery.records import Backout, Kind, decode
from recovery.resource import ResourceManager
from recovery.uows import ACTIVE, Uow

CHECKPOINT_KINDS = (Kind.START_CHECKPOINT, Kind.END_CHECKPOINT, Kind.FILL)


@attrs.frozen(kw_only=True)
class RestartReport:
    """What a restart did. LSNs as ints."""

    checkpoint_lsn: int
    head_lsn: int
    end_lsn: int
    epoch: int
    records_replayed: int
    records_recovered: int  # of units of work that had no outcome
    in_flight: int
    resolved: int  # of those in flight, backed out
    in_doubt: int
    seconds: float
    torn_tail: bool  # the log did not end with an end in order


def replay(log: Log, resource: ResourceManager, checkpoint: Checkpoint) -> tuple[int, int, bytes, int]:
    """Apply the log to what the checkpoint held: (end of the log, epoch, partial last page, records applied).

    Raises LogDamaged, NotRecoverable.
    """
    reader, records = log.read(checkpoint.head, checkpoint.durable)
    units = checkpoint.units
    replayed = 0
    try:
        for raw in records:
            if raw.lsn < checkpoint.lsn and raw.lsn < units.get(raw.uow, checkpoint.lsn):
                continue
            try:
                resource.apply(decode(raw.kind, raw.uow, raw.body), raw.lsn, raw.end, raw.time)
            except (KeyError, ValueError, struct.error) as exc:
                raise NotRecoverable(
                    f"the log record at {lsn.text(raw.lsn)} does not fit to the checkpoint at "
                    f"{lsn.text(checkpoint.lsn)} ({exc}); one of them was replaced: restore both from the same backup"
                ) from exc
            replayed += 1
        resource.replayed()
        return reader.end, reader.epoch, reader.page_up_to(reader.end), replayed
    finally:
        reader.close()


def restart(
    log: Log,
    clock: Clock,
    resource: ResourceManager,
    checkpoints: list[tuple[Checkpoint, list[bytes]]],
) -> tuple[Checkpoint, RestartReport]:
    """Bring the resource back from the newest checkpoint that can be used, and let the log go on.

    Raises LogDamaged, NotRecoverable, OSError; then nothing was changed.
    """
    began = clock.elapsed_ns()
    checkpoint, catalogue = checkpoints[0]
    if checkpoint.lsn < log.state.checkpoint and checkpoint.head < log.state.head:
        _refuse_unless_log_reaches(log, checkpoint)
    resource.load(catalogue, unlogged=_ended_with(log, checkpoint))
    resource.set_counters(checkpoint.counters)
    end, epoch, partial, replayed = replay(log, resource, checkpoint)
    was_clean = log.state.clean_end == end
    in_flight = [unit for unit in resource.uows if unit.state is ACTIVE]
    log.begin(end, max(epoch, checkpoint.epoch), partial, checkpoint.head, FRAME_COST * len(in_flight))
    recovered = sum(unit.put_count + len(unit.gets) for unit in in_flight)
    for unit in in_flight:
        back_out(log, clock, resource, unit)
    in_doubt = len(resource.uows.in_doubt())
    report = RestartReport(
        checkpoint_lsn=checkpoint.lsn,
        head_lsn=checkpoint.head,
        end_lsn=end,
        epoch=log.epoch,
        records_replayed=replayed,
        records_recovered=recovered,
        in_flight=len(in_flight) + in_doubt,
        resolved=len(in_flight),
        in_doubt=in_doubt,
        seconds=(clock.elapsed_ns() - began) / 1e9,
        torn_tail=not was_clean,
    )
    return checkpoint, report


def _ended_with(log: Log, checkpoint: Checkpoint) -> bool:
    """Has nothing been done since this checkpoint, so that what it has and the log never tells of is still true?

    The control file may be an older copy, of the end before a start that has done more.
    """
    if not checkpoint.clean or not log.state.clean_end:
        return False
    reader, records = log.read(checkpoint.lsn, checkpoint.durable)
    try:
        return all(raw.kind in CHECKPOINT_KINDS for raw in records) and reader.end == log.state.clean_end
    finally:
        reader.close()


def _refuse_unless_log_reaches(log: Log, checkpoint: Checkpoint) -> None:
    """An older checkpoint than the control file speaks of will do only while the log still holds all since its head."""
    reader, records = log.read(checkpoint.head, 0)
    try:
        first = next(records, None)
    except LogDamaged:
        first = None
    finally:
        reader.close()
    if first is None or first.lsn != checkpoint.head:
        raise NotRecoverable(
            f"the newest checkpoint that can be read is that of {lsn.text(checkpoint.lsn)}, but the control file "
            f"speaks of one at {lsn.text(log.state.checkpoint)} and the log no longer reaches back to "
            f"{lsn.text(checkpoint.head)}; restore amqalchk.fil from a backup taken with this log"
        )


def back_out(log: Log, clock: Clock, resource: ResourceManager, unit: Uow) -> None:
    """Log and apply the backout of a unit of work. The lock is held, or nobody else is there."""
    record = Backout(unit.number)
    now = clock.wall_us()
    at = end = 0
    if unit.first_lsn:
        code, number, head, data = record.encode()
        at = log.append(code, number, now, head, data)
        end = log.buffer.tail
    resource.apply(record, at, end, now)
