"""The outcome of a unit of work, found in the log: for a client that lost the answer to a commit.

The outcome of a unit is one record. A unit without one was backed out: by its application, or by a restart before
anything of it was logged. That holds only if all of the log is there from where the unit began; else the outcome is
not known. Units with non-persistent messages only log nothing: the last ones that were committed are remembered, in
memory and, over an end in order, in the checkpoint; of those forgotten the outcome is not known. A crash takes their
messages, and with them that they were committed. A unit that has done nothing counts as backed out.

To search the log takes long. So of the units that ended last, also of those that a restart replays, the outcome is
remembered: whoever asks again and again has no search begun each time.
"""

import contextlib
from collections.abc import Iterator

from logger.config import LogType
from logger.disk_errors import advice
from logger.errors import LogDamaged, LogError
from qmgr.engine import Engine
from qmgr.errors import Mistake, Reason, Unavailable, quoted
from qmgr.log_needs import LogNeeds
from qmgr.units import NUMBERS_PER_EPOCH
from recovery.records import Kind
from recovery.replay import next_unit
from recovery.uows import ACTIVE, BACKED_OUT, COMMITTED, PREPARED, UowState

OUTCOMES = {int(Kind.COMMIT): COMMITTED, int(Kind.BACKOUT): BACKED_OUT}
MAX_SEARCHES = 20  # of a log that others write over meanwhile
YIELD_EVERY_RECORDS = 256


def outcome(engine: Engine, needs: LogNeeds, number: int, since: int = 0) -> UowState | None:
    """What became of unit of work `number`; None where the log does not reach back to it.

    `since`: an LSN before which it has logged nothing; 0: not known, and then the checkpoints tell. Raises Mistake
    for what can't be the number of a unit, Unavailable where the log, or an archive that may tell, can't be read.
    """
    engine.check()
    if type(number) is not int or not NUMBERS_PER_EPOCH < number < engine.next_number():
        raise Mistake(f"no unit of work has had the number {quoted(number)}", reason=Reason.UOW_NOT_AVAILABLE)
    if type(since) is not int:
        raise Mistake(f"since is an LSN as a whole number, not {quoted(since)}", reason=Reason.OPTIONS_ERROR)
    with engine.lock:
        unit = engine.state.uows.get(number)
        known = None if unit is None else unit.state
        if known is ACTIVE:
            return ACTIVE
        if number in engine.state.unlogged:
            return COMMITTED
        remembered = engine.state.ended.get(number) or engine.state.ended_before.get(number)
        tail = engine.log.buffer.tail
    pin = needs.pin(0)  # nothing is removed meanwhile
    try:
        if engine.log.durable < tail:
            engine.log.sync(tail)  # what a crash could take back is not told
        found = PREPARED if known is PREPARED else remembered or _search_repeatedly(engine, number, since, tail)
        linear = engine.log.state.log_type is LogType.LINEAR
        away = engine.log.archive_away() if found is None and linear else ""
    except LogError as exc:
        raise engine.translated(exc) from exc
    except OSError as exc:
        text = f"the log can't be read ({exc}); {advice(exc)} and ask again"
        raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=engine.name) from exc
    finally:
        needs.unpin(pin)
    if away:
        text = f"what became of unit of work {number} may be in a part of the log that is away: {away}"
        raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=engine.name)
    return found


def _search_repeatedly(engine: Engine, number: int, since: int, tail: int) -> UowState | None:
    """What `_search` finds, searching again where a circular log has written over what was being read.

    Also where a look at the directories has left out what the disk could not read just then. Raises OSError.
    """
    for _ in range(MAX_SEARCHES):
        first = engine.log.reaches_back_to()
        try:
            found = _search(engine, number, since, tail, first)
        except LogDamaged:
            if engine.log.reaches_back_to(surely=True) == first:  # a part is missing
                break
        else:
            if found is not None or engine.log.reaches_back_to(surely=True) >= first:
                return found
    return None


def _search(engine: Engine, number: int, since: int, tail: int, first: int) -> UowState | None:
    """What the log says from `first` on; None where that may not reach back to where the unit began.

    Raises LogDamaged, OSError.
    """
    log = engine.log
    epoch, size = number // NUMBERS_PER_EPOCH, log.state.extent_bytes
    lowest = max(since, first)
    whole = first <= since <= tail  # is all that the unit has logged among what is read?
    with contextlib.closing(log.live_reader()) as reader:
        for start, end in _parts(log.state.checkpoint, lowest, tail, size):
            began_behind = False  # did the unit begin behind something in this part?
            for count, raw in enumerate(reader.records(start, durable=tail, resync=True, until=tail)):
                if raw.lsn >= end:
                    break
                if raw.uow == number and raw.kind in OUTCOMES:
                    return OUTCOMES[raw.kind]
                if raw.kind == Kind.START_CHECKPOINT:
                    next_number = next_unit(raw)
                    began_behind = began_behind or (next_number is not None and next_number <= number)
                if not count:  # an earlier epoch's, or the very first of the log: all of the unit's epoch is there
                    began_behind = raw.epoch < epoch or (raw.epoch == epoch and raw.lsn == size) or began_behind
                if not count % YIELD_EVERY_RECORDS:
                    engine.clock.give_way()
            if began_behind:
                whole = True
                break
    if not whole or log.reaches_back_to(surely=True) > start or number <= engine.state.forgotten:
        return None  # it may have been committed
    return BACKED_OUT


def _parts(checkpoint: int, lowest: int, tail: int, extent_bytes: int) -> Iterator[tuple[int, int]]:
    """Parts of the log from `lowest` to `tail`, each from one LSN to another, the newest first.

    A unit of work that is asked for has mostly just ended, and the log may have years. Each part begins where reading
    can begin: at the last checkpoint, or with an extent.
    """
    end = tail
    start = max(min(checkpoint, tail), lowest)
    while True:
        yield start, end
        if start <= lowest:
            return
        end, start = start, max((start - 1) // extent_bytes * extent_bytes, lowest)
