"""Units of work: calls that are held back and logged together, room promised for their end, the ways to end.

What a unit puts and gets is volatile until it is logged: with its outcome; before that, when it comes to many bytes,
when the unit is prepared, or when anybody else appends a record. So the log has every call before all that came after.
"""

import itertools
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from logger.crowded import let_holder_go_on
from logger.errors import LogError
from logger.frame import Pieces
from qmgr import verbs
from qmgr.entry import OVERHEAD, Entry
from qmgr.errors import Mistake, Reason, ResourceProblem, Unavailable, quoted
from qmgr.logged import EngineContext, Logged
from qmgr.queue import Queue
from qmgr.state import FEW_CALLS, QUEUE, PutRun
from qmgr.threads import Alive
from recovery import records
from recovery.records import (
    GET_COST,
    GET_RUN,
    MIN_PIECE_BYTES,
    PUT_COST,
    PUT_RUN,
    PUTS,
    Backout,
    Calls,
    Commit,
    Prepare,
    RollForward,
    Xid,
    in_pieces,
    run_of_gets,
)
from recovery.uows import ACTIVE, BACKED_OUT, PREPARED, Uow

QUEUE_PLACE_BYTES = records.QUEUE_PLACE.size
COUNT_BYTES = records.LENGTH32.size
MESSAGES_PER_RECORD = 4  # so many, logged together, take a restart about as long as one record
MAX_HELD_BYTES = 512 << 10  # of calls of one unit of work that are not logged yet
MAX_AHEAD_BYTES = 16 << 10  # promised for calls of one unit of work that are still to come
MIN_CALL_BYTES = min(GET_COST, PUT_COST)
NUMBERS_PER_EPOCH = 1 << 40  # message ids and units of work are numbered from epoch * this on: none comes again


def encoded_calls(puts: Sequence[PutRun], gets: Sequence[tuple[Queue, Entry]], *, keep: bool = False) -> list[bytes]:
    """What of these is persistent as runs, which are parts of a record's body: first what was put; see `encoded`."""
    parts: list[bytes] = []
    for run in puts:
        heads, bodies = run.heads, run.bodies
        if not run.persistent:
            continue
        if len(heads) == 1:  # small units are many, so what they take calls no others
            head, body = heads[0], bodies[0]
            parts += PUT_RUN.pack(1, run.queue.id, run.ordinal, 1, len(head) + len(body)), head, body
        else:
            parts.append(PUTS.pack(1, run.queue.id, run.ordinal, len(heads)))
            parts += run.encoded(keep=keep)
    if len(gets) > FEW_CALLS:
        for queue, got in groupby(gets, QUEUE):
            sequences = [entry.sequence for _, entry in got if entry.persistent]
            if sequences:
                parts.append(run_of_gets(queue.id, sequences))
    else:
        for queue, entry in gets:
            if entry.persistent:
                parts.append(GET_RUN.pack(2, queue.id, 1, entry.sequence))
    return parts


def unlogged_calls(unit: Uow, *, last: bool = False) -> bytes | Pieces:
    """What the unit of work has held back, as runs; `last`: it commits."""
    if not unit.held_back:
        return b""
    puts, gets = unit.puts, unit.gets
    if unit.puts_logged:
        puts = puts[unit.puts_logged :]
    if unit.gets_logged:
        gets = gets[unit.gets_logged :]
    parts = encoded_calls(puts, gets, keep=last)
    return b"".join(parts) if unit.held_back < MIN_PIECE_BYTES else in_pieces(parts, unit.held_back)


def rolled_forward(unit: Uow) -> RollForward:
    """The record with all that a prepared unit of work has done."""
    assert unit.xid is not None, "only what was prepared with one is rolled forward"
    parts = encoded_calls(unit.puts, unit.gets)
    for lost in unit.lost.values():
        parts += lost
    return RollForward(unit.number, unit.xid, b"".join(parts))


class Units(Logged):
    """The units of work of one queue manager."""

    def __init__(self, given: EngineContext) -> None:
        super().__init__(given)
        self._usual_uncommitted = given.max_uncommitted
        self.take_qmgr_attributes()
        self.ending: Reason | None = None  # why no unit of work, and no wait, may begin any more
        self._max_held_bytes = min(MAX_HELD_BYTES, given.log.buffer.max_frame // 2)
        self._frame_bytes = given.log.cost(0)
        self._outcome_bytes = COUNT_BYTES + 2 * self._frame_bytes  # of a unit of work, beside its calls and queues
        self._last_number = (given.log.epoch + 1) * NUMBERS_PER_EPOCH - 1
        self._spare_units: list[Uow] = []  # the next one, made while the disk was at work for another
        self._unit_numbers = itertools.count(given.log.epoch * NUMBERS_PER_EPOCH + 1)
        given.checkpointer.next_unit = self.next_number

    def take_qmgr_attributes(self) -> None:
        """Take what the attributes of the queue manager say of units of work."""
        said = self.state.qmgr.max_uncommitted
        self.max_uncommitted = self._usual_uncommitted if said is None else said
        with self.lock:
            self._cancel_all_ahead()

    def begin(self, xid: Any, owner: str, thread: Alive | None) -> Uow:
        """A unit of work for a caller. Raises Unavailable (2161, 2162), Mistake for what is no Xid or is in use."""
        if self.refusal is not None:
            self.check()
        if self.ending is not None:
            self.check_not_ending()
        if xid is None:
            return self.new_unit(owner, thread)
        if not isinstance(xid, Xid):
            raise Mistake(f"xid is an Xid, not {quoted(xid)}")
        with self.lock:
            if self.state.uows.by_xid(xid) is not None:
                raise Mistake(f"{xid} names a unit of work in flight or in doubt", reason=Reason.UOW_IN_PROGRESS)
            return self.new_unit(owner, thread, xid)

    def new_unit(self, owner: str, thread: Alive | None, xid: Xid | None = None) -> Uow:
        """A unit of work, also while the queue manager is ending."""
        number = next(self._unit_numbers)
        if number > self._last_number:
            raise Unavailable("this start has used up its units of work; end and start the queue manager")
        try:
            unit = self._spare_units.pop()
        except IndexError:
            unit = Uow()
        unit.number, unit.began, unit.owner, unit.thread = number, self.clock.wall_us(), owner, thread
        if xid is not None:
            unit.xid = xid
        try:
            self.state.uows.add(unit)
            return unit
        except BaseException:
            self.discard_unit(unit)
            raise

    def _make_spare_unit(self) -> None:
        """Make the next unit of work, if there is memory for it: the call that does so is about another one."""
        try:
            self._spare_units.append(Uow())
        except MemoryError:
            return

    def next_number(self) -> int:
        """The number that the next unit of work will get, without taking it: a count shows it only in its repr."""
        return int(repr(self._unit_numbers).strip("count()"))

    def discard_unit(self, unit: Uow) -> None:
        """Forget a unit of work that has done nothing and was never handed to a caller: nobody could end it."""
        self.state.uows.forget(unit.number, None)

    def check_not_ending(self) -> None:
        """Raises Unavailable (2161, or 2162 when it is ended at once) for what may not begin any more."""
        if self.ending is not None:
            text = f"queue manager {self.name!r} is ending; no unit of work or wait can begin"
            raise Unavailable(text, reason=self.ending, name=self.name)

    @property
    def quiescing(self) -> bool:
        return self.ending is not None

    def promise_of(self, unit: Uow, cost: int = 0, queues: int = 0, put_bytes: int = 0, messages: int = 0) -> int:
        """Log bytes that the unit's calls and its end may take, when it has these more."""
        held = unit.held_back + cost
        outcome = COUNT_BYTES + QUEUE_PLACE_BYTES * (len(unit.touched) + queues)
        if unit.xid is None and held <= self._max_held_bytes and outcome <= self._max_held_bytes:
            return outcome + self._frame_bytes + (held + self._frame_bytes if held else 0)  # two frames, or one
        log = self.log
        promise = log.cost(outcome) + (log.cost(held) if held else 0)
        if unit.xid is not None:
            size = unit.put_bytes + put_bytes
            promise += log.cost(records.roll_forward_cost(size, unit.persistent + messages))
            if unit.state is ACTIVE:
                promise += log.cost(records.MAX_XID_BYTES)
        return promise

    def _cost_of_end(self, unit: Uow) -> int:
        """The most bytes of log that the record of the unit's outcome takes, with the calls that are held back."""
        return self.log.cost(COUNT_BYTES + QUEUE_PLACE_BYTES * len(unit.touched) + unit.held_back)

    def use_promise(self, unit: Uow) -> None:
        """The room for rolling the unit forward is used now; that for its end stays."""
        self._promise(unit, self._cost_of_end(unit))

    def promise_again(self, unit: Uow) -> None:
        """What the unit's end may take, after it was rolled forward."""
        if self.state.uows.get(unit.number) is unit:
            self._promise(unit, self.promise_of(unit))

    def count_promises(self) -> None:
        """Count anew what is promised: an interrupt between two lines may have left it wrong. The lock is held."""
        self.log.space.promised = sum(unit.promise for unit in self.state.uows)

    def _promise(self, unit: Uow, promise: int) -> None:
        """From now on so many bytes are kept for the unit's end."""
        unit.ahead = 0
        self.log.space.promised += promise - unit.promise
        unit.promise = promise

    def _cancel_ahead(self, unit: Uow) -> None:
        """Nothing is promised any more for calls of the unit that are still to come."""
        if unit.ahead:
            self._promise(unit, unit.promise - unit.ahead)

    def _cancel_all_ahead(self) -> None:
        for unit in self.state.uows:
            self._cancel_ahead(unit)

    def _find_room(self, size: int, kept: int, *, spare: bool) -> None:
        self._cancel_all_ahead()
        if not self.log.reserve(size, kept):
            super()._find_room(size, kept, spare=spare)

    def _promise_ahead(self, unit: Uow, cost: int, *, first_put: bool = False) -> bool:
        """The quick way of `_room_for_calls` and `_hold_back`: promise room for a call of `cost` bytes.

        Where the log has much room, also for calls to come, as many bytes as the unit holds back: for those it is
        enough to look at `unit.ahead`. False where more has to be looked at; nothing is promised then. The lock is
        held. `first_put`: no queue has been put to before.
        """
        log, held, promised, ahead = self.log, unit.held_back, unit.promise, cost
        space = log.space
        used = log.buffer.tail + space.promised
        calls = self.max_uncommitted - unit.put_count - len(unit.gets)
        if held:
            promise = promised - unit.ahead
            if used <= space.checkpoint_at and not first_put:
                ahead = max(cost, min(held, MAX_AHEAD_BYTES, calls * MIN_CALL_BYTES))
        elif promised:  # its calls so far are logged
            promise = self.promise_of(unit) + self._frame_bytes
        else:
            promise = self._outcome_bytes
        promise += ahead + QUEUE_PLACE_BYTES if first_put else ahead
        if (
            unit.state is not ACTIVE
            or self.refusal is not None
            or unit.xid is not None
            or calls < 1
            or held + ahead >= self._max_held_bytes
            or used + promise - promised + space.for_gets > space.limit
        ):
            return False
        space.promised += promise - promised
        unit.promise = promise
        unit.ahead = ahead
        return True

    def _room_for_calls(self, unit: Uow, count: int, cost: int, queue: Queue | None, put_bytes: int) -> int:
        """May the unit of work go on with `count` messages, and has the log room for `cost` more bytes of calls?

        Returns what `_hold_back` is to promise. The lock is held; it may be let go of while room is made. `queue`: that
        of a put.
        """
        if self.refusal is not None:
            self.check()
        if unit.state is not ACTIVE:
            raise verbs.ended(unit)
        self._cancel_ahead(unit)
        promise = unit.promise
        if cost:
            new = queue is not None and queue.id not in unit.touched
            if unit.held_back and not new and unit.xid is None and unit.held_back + cost <= self._max_held_bytes:
                promise += cost  # as below, in the usual case
            else:
                promise = self.promise_of(unit, cost, new, put_bytes, count)
            more = promise - unit.promise
            log = self.log
            space = log.space
            kept = 0 if queue is None else space.for_gets
            if log.buffer.tail + space.promised + more + kept > space.limit:
                try:
                    self._reserve(0, more, kept)
                except ResourceProblem:
                    if unit.state is not ACTIVE:  # it was rolled back for room itself
                        raise verbs.ended(unit) from None
                    raise
                self.check()
                if unit.state is not ACTIVE:
                    raise verbs.ended(unit)
                promise = self.promise_of(unit, cost, new, put_bytes, count)  # another thread may have gone on with it
        if unit.put_count + len(unit.gets) + count > self.max_uncommitted and not unit.for_client:
            verbs.check_unit(unit, count, self.max_uncommitted)
        return promise

    def _count_put_bytes(self, size: int) -> None:
        """Count bytes that were put: a checkpoint has to move them out of memory."""
        checkpointer = self.checkpointer
        checkpointer.arrived_bytes += size
        if checkpointer.arrived_bytes >= checkpointer.arrived_max_bytes:
            self.attention = True

    def _hold_back(self, unit: Uow, cost: int, promise: int) -> None:
        """What the unit of work has put or got is to be logged, and takes `cost` bytes at most.

        Room is promised for that and for its end.
        """
        unit.held_back += cost
        self.state.holding[unit] = None
        self._promise(unit, promise)

    def log_held(self, but: Uow | None = None, *, puts: bool = True) -> None:
        """Log the calls that units of work have held back. The lock is held; it may be let go of while room is made.

        Whoever appends a record does this first, `but` for the unit whose outcome it is: so calls are in the log
        before all that came after them, and a unit that lasts holds the head. Without `puts`, units that have only put
        are left out: their messages take their places on the queues with the outcome, not before. The caller then logs
        them before it forces.
        """
        for unit in list(self.state.holding):
            if unit is not but and (puts or unit.gets):
                self._log_calls(unit)

    def _log_calls(self, unit: Uow) -> None:
        while self.log.make_room(self.log.cost(unit.held_back)):
            pass  # another thread may have added to it
        if unit.held_back:
            self._append_and_apply(Calls(unit.number, b"", True, unlogged_calls(unit)), self.clock.wall_us())
            self._promise(unit, self.promise_of(unit))

    def make_room_for_end(self, unit: Uow) -> None:
        """Room in the log buffer for the unit's end; that in the log was promised. May let go of the lock."""
        while self.log.make_room(self._cost_of_end(unit)):
            pass  # another thread may have added to it

    def commit(self, unit: Uow) -> None:
        """Return when the unit of work is durable. Raises BackedOut, UnitOfWorkEnded."""
        end = self.commit_later(unit, soon=True)
        try:
            self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc

    def commit_later(self, unit: Uow, *, puts: bool = True, soon: bool = False) -> int:
        """Commit without the force: return the LSN to force before the reply, or 0.

        What other units of work have held back is logged first; without `puts` those are left out that have only put.
        `soon`: the caller forces it next.
        """
        end = 0
        try:
            if self.lock.locked():
                let_holder_go_on(self.lock)
            with self.lock:
                holding = self.state.holding
                if len(holding) > 1 or (holding and unit not in holding):
                    self.log_held(unit, puts=puts)
                if not self.log.has_room(unit.promise):  # which is what its end may take, and more
                    self.make_room_for_end(unit)
                if self.refusal is not None:
                    self.check()
                if unit.state is not ACTIVE and unit.state is not PREPARED:
                    raise verbs.ended(unit)
                bases = {}
                for number, queue in unit.touched.items():
                    bases[number] = queue.next_sequence
                record = Commit(unit.number, bases, b"", True, unlogged_calls(unit, last=True))
                if unit.held_back or unit.first_lsn:
                    self.checkpointer.records += (unit.put_count + len(unit.gets)) // MESSAGES_PER_RECORD
                    end = self._append_and_apply(record, self.clock.wall_us(), soon=soon)
                else:
                    self._apply_only(record, self.clock.wall_us())
                self.log.space.promised -= unit.promise  # as `_promise`
                unit.promise = 0
                if unit.put_count:  # until now no checkpoint could have moved them
                    self._count_put_bytes(unit.put_bytes + unit.unlogged_bytes + OVERHEAD * unit.put_count)
                if not self._spare_units:
                    self._make_spare_unit()
        except LogError as exc:
            raise self.translated(exc) from exc
        return end

    def back_out(self, unit: Uow) -> None:
        """Undo the unit of work; succeeds too when the queue manager has done so already."""
        end = self.back_out_later(unit)
        if end:
            self.force(end)

    def back_out_later(self, unit: Uow) -> int:
        """Back out without the force: the LSN to force before the reply.

        0: it need not be forced, as no backout count of a persistent message rises and the unit has no xid.
        """
        try:
            with self.lock:
                self.log_held(unit)
                self.make_room_for_end(unit)
                self.check()
                if unit.state is BACKED_OUT and unit.evicted:
                    unit.evicted = False
                    return self.log.buffer.tail  # the record of that, which raises counts, may not be on disk yet
                if unit.state is not ACTIVE and unit.state is not PREPARED:
                    raise verbs.ended(unit)
                counts = self.back_out_locked(unit)
                return self.log.buffer.tail if counts or unit.xid is not None else 0
        except LogError as exc:
            raise self.translated(exc) from exc

    def back_out_locked(self, unit: Uow) -> bool:
        """Log and apply the backout. The lock is held, and `make_room_for_end` was called.

        True if the backout count of a persistent message was raised.
        """
        counts = any(entry.persistent for _, entry in unit.gets)
        returned = sum(len(entry.head) + len(entry.body) + OVERHEAD for _, entry in unit.gets if entry.segment)
        if unit.first_lsn or counts:  # a higher backout count is a promise too
            runs = b"".join(encoded_calls((), unit.gets[unit.gets_logged :]))
            self._append_and_apply(Backout(unit.number, runs, done=True), self.clock.wall_us())
        else:
            self._apply_only(Backout(unit.number, done=True), 0)
        self._promise(unit, 0)
        self.checkpointer.returned_bytes += returned
        if self.checkpointer.returned_bytes >= self.checkpointer.arrived_max_bytes:
            self.attention = True  # a checkpoint has to move them out of memory again
        return counts

    def prepare(self, unit: Uow) -> None:
        """Return when the unit of work is durably in doubt: from now on it survives everything until it is resolved."""
        if unit.state is not ACTIVE and unit.state is not PREPARED:
            raise verbs.ended(unit)
        if unit.xid is None:
            raise Mistake(
                f"unit of work {unit.number} was begun without an Xid, so nobody could resolve it; use begin(xid)",
                reason=Reason.SYNCPOINT_NOT_AVAILABLE,
            )
        self.check()
        record = Prepare(unit.number, unit.xid)
        size = self.log.cost(len(unit.xid.encode()))
        with self.translating():
            with self.lock:
                self.check()
                if unit.state is ACTIVE and not unit.promise:
                    self._reserve(self.promise_of(unit), 0, self.log.space.usual_for_gets)
                    if unit.state is ACTIVE:
                        self._promise(unit, self.promise_of(unit))
                self.log_held()
                self.log.make_room(size)  # its room in the log was promised
                while unit.held_back and unit.state is ACTIVE:  # another thread's calls, while the lock was let go of
                    self._log_calls(unit)
                    self.log.make_room(size)
                if unit.state is not ACTIVE:
                    raise verbs.ended(unit)
                end = self._append_and_apply(record, self.clock.wall_us())
                self._promise(unit, self.promise_of(unit))
            self.log.force(end)

    def resolve(self, xid: Xid, *, commit: bool) -> None:
        """Commit or back out the unit of work that is in doubt under this xid. Raises Mistake where there is none."""
        self.check()
        with self.lock:
            unit = self.state.uows.by_xid(xid)
            if unit is None or unit.state is not PREPARED:
                raise Mistake(f"no unit of work with {xid} is in doubt", reason=Reason.UOW_NOT_AVAILABLE)
        if commit:
            self.commit(unit)
        else:
            self.back_out(unit)
