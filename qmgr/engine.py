"""The engine: a verb chooses, its record is appended, applied and forced, and the caller gets the reply.

Every call goes the same way: room is reserved in the log; under the log's lock the verb is checked, its record appended
and applied; without the lock the log is forced as far as the reply promises. A caller never sees a message whose
commit is not safe yet: a get or browse that finds one waits for that force too.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from logger.clock import Clock
from logger.errors import LogError
from logger.log import Log
from qmgr import verbs
from qmgr.due import SteadyClock
from qmgr.errors import (
    AlreadyExists,
    MessageTooBig,
    Mistake,
    MQError,
    ObjectInUse,
    Reason,
    ResourceProblem,
    Unavailable,
    UnknownQueue,
)
from qmgr.message import Descriptor, Message, check_body, check_id, decode
from qmgr.objects import QueueDefinition, check_name, with_attributes
from qmgr.queue import READY, Entry, Queue
from qmgr.resource import Resource
from recovery import records
from recovery.checkpoint import Checkpointer
from recovery.records import (
    GET_COST,
    PUT_COST,
    Backout,
    Calls,
    Commit,
    Define,
    Delete,
    Expire,
    Get,
    Prepare,
    Put,
    PutMany,
    Record,
    Xid,
    run_of_get,
    run_of_put,
    run_of_puts,
)
from recovery.uows import ACTIVE, BACKED_OUT, PREPARED, Uow

QUEUE_AND_SEQUENCE = records.QUEUE_PLACE.size
COUNT = records.LENGTH32.size
HOLD = 64 << 10  # bytes: a unit of work's calls are logged together when they come to so much, or when it ends
FENCE = 1 << 40  # numbers handed out in one epoch: message ids and units of work are unique over all restarts


@attrs.define
class _Found:
    """What a get has taken."""

    messages: list[tuple[bytes, bytes, int]]  # head, body, backout count
    force: int  # the LSN that must be safe before anybody hears of it
    now: int  # by the steady clock; 0 where no message of the queue expires


class Engine:
    """The queue manager at work, from the end of restart to its end."""

    def __init__(
        self,
        name: str,
        log: Log,
        clock: Clock,
        steady: SteadyClock,
        state: Resource,
        checkpointer: Checkpointer,
        *,
        max_uncommitted: int,
        make_space: Callable[[int, int], bool],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`make_space(size, promise)`, called without the lock, tries to make room in the log and says if it could."""
        self.name = name
        self.log = log
        self.lock = log.lock
        self.clock = clock
        self.state = state
        self.steady = steady
        self.max_uncommitted = max_uncommitted
        self.refusal: MQError | None = None  # why no call is taken any more
        self.quiescing = False  # no new unit of work
        self.checkpointer = checkpointer
        self._records_max = checkpointer.records_max
        self.look_at = log.space.checkpoint_at  # beyond this LSN somebody has to look after the room in the log
        self.urgent = False  # the log has passed it
        self.attention = False  # there is housekeeping to do
        self.watchful = False  # nobody but the callers does it: each of them looks
        self._hold = min(HOLD, log.buffer.max_frame // 2)
        self._frame = log.cost(0)
        self._make_space = make_space
        self._on_failure = on_failure
        self._id_prefix = b"AMQ " + name[:12].ljust(12).encode()
        self._last = (log.epoch + 1) * FENCE - 1
        self._message_numbers = itertools.count(log.epoch * FENCE + 1)
        self._unit_numbers = itertools.count(log.epoch * FENCE + 1)

    # ---- the way of every call

    def _append_and_apply(self, record: Record, now: int) -> int:
        """Log the record and make its change; the LSN to force. The lock is held and the room is reserved.

        What interrupts this leaves log and memory apart, so the queue manager then stops; a restart puts it right.
        """
        kind, uow, head, data = record.encode()
        log = self.log
        buffer = log.buffer
        try:
            at = buffer.append(kind, uow, now, log.durable, head, data)
            end = buffer.tail
            self.state.apply(record, at, end, now)
        except BaseException as exc:
            self._on_failure(exc)
            raise
        self.checkpointer.records += 1
        if end > self.look_at:
            self.urgent = self.attention = True
        elif self.checkpointer.records >= self._records_max:
            self.attention = True
        return end

    def log_locked(self, record: Record) -> int:
        """Append and apply a record of the queue manager's own; the caller has made room."""
        return self._append_and_apply(record, self.clock.wall_us())

    def _apply_only(self, record: Record, now: int) -> None:
        """Make the change of a record that is not logged: non-persistent messages only."""
        try:
            self.state.apply(record, 0, 0, now)
        except BaseException as exc:
            self._on_failure(exc)
            raise

    def _reserve(self, size: int, promise: int, kept: int = 0) -> None:
        """Room for `size` bytes of records now and `promise` later, `kept` left over. The lock is held.

        May let go of the lock: look at the state afterwards. Raises ResourceProblem.
        """
        if not self.log.reserve(size, promise + kept):
            self._find_room(size, promise + kept)

    def _find_room(self, size: int, kept: int) -> None:
        for _ in range(8):
            self.lock.release()
            try:
                more = self._make_space(size, kept)
            finally:
                self.lock.acquire()
            self.check()
            if self.log.reserve(size, kept):
                return
            if not more:
                break
        raise ResourceProblem(
            f"the log of queue manager {self.name!r} is full; commit or back out, or give it more or larger files "
            f"(LogPrimaryFiles, LogSecondaryFiles)",
            name=self.name,
        )

    def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def translated(self, exc: LogError) -> MQError:
        """What the log says, as callers know it; a log that failed ends the queue manager."""
        if self.log.failure is not None and self.refusal is None:
            self._on_failure(self.log.failure)
        return self.refusal or Unavailable(str(exc), name=self.name)

    def force(self, end: int) -> None:
        """Wait until the log is safe up to `end`."""
        try:
            self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc

    # ---- units of work

    def begin(self, xid: Xid | None, owner: str, thread: int) -> Uow:
        if self.refusal is not None:
            raise self.refusal
        if self.quiescing:
            raise Unavailable(
                f"queue manager {self.name!r} is ending; no unit of work can begin", reason=Reason.Q_MGR_QUIESCING
            )
        number = next(self._unit_numbers)
        if number > self._last:
            raise Unavailable("this start has used up its units of work; end and start the queue manager")
        unit = Uow(number, xid, self.clock.wall_us(), owner, thread)
        if xid is None:
            self.state.uows.add(unit)
            return unit
        with self.lock:
            if self.state.uows.by_xid(xid) is not None:
                raise Mistake(f"{xid} names a unit of work in flight or in doubt", reason=Reason.UOW_IN_PROGRESS)
            self.state.uows.add(unit)
        return unit

    def promise_of(self, unit: Uow, cost: int = 0, queues: int = 0, put_bytes: int = 0, messages: int = 0) -> int:
        """Log bytes that the unit's calls and its end may take, when it has these more."""
        held = unit.held + cost
        outcome = COUNT + QUEUE_AND_SEQUENCE * (len(unit.touched) + queues)
        if unit.xid is None and held <= self._hold and outcome <= self._hold:  # the usual case: two frames, or one
            return outcome + self._frame + (held + self._frame if held else 0)
        log = self.log
        promise = log.cost(outcome) + (log.cost(held) if held else 0)
        if unit.xid is not None:
            count = len(unit.puts) + len(unit.gets) + messages
            promise += log.cost(records.roll_forward_cost(unit.put_bytes + put_bytes, count, 0))
            if unit.state is ACTIVE:
                promise += log.cost(records.LARGEST_XID)
        return promise

    def _cost_of_end(self, unit: Uow) -> int:
        """The most bytes of log that the record of the unit's outcome takes, with the calls that are held back."""
        return self.log.cost(COUNT + QUEUE_AND_SEQUENCE * len(unit.touched) + unit.held)

    def use_promise(self, unit: Uow) -> None:
        """The room for rolling the unit forward is used now; that for its end stays."""
        self._promise(unit, self._cost_of_end(unit))

    def promise_again(self, unit: Uow) -> None:
        """What the unit's end may take, after it was rolled forward."""
        if self.state.uows.get(unit.number) is unit:
            self._promise(unit, self.promise_of(unit))

    def _promise(self, unit: Uow, promise: int) -> None:
        """From now on so many bytes are kept for the unit's end."""
        self.log.space.promised += promise - unit.promise
        unit.promise = promise

    def _room_in(self, unit: Uow, count: int, cost: int, queue: Queue | None, put_bytes: int) -> None:
        """May the unit of work go on with `count` messages, and has the log room for `cost` more bytes of calls?

        The lock is held; it may be let go of while room is made. `queue`: that of a put.
        """
        if self.refusal is not None:
            raise self.refusal
        if unit.state is not ACTIVE:
            raise verbs.ended(unit)
        if cost:
            new = queue is not None and queue.id not in unit.touched
            more = self.promise_of(unit, cost, new, put_bytes, count) - unit.promise
            log = self.log
            kept = 0 if queue is None else log.space.for_gets
            if log.buffer.tail + log.space.promised + more + kept > log.space.limit:
                self._reserve(0, more, kept)
                if unit.state is not ACTIVE:
                    raise verbs.ended(unit)
        if len(unit.puts) + len(unit.gets) + count > self.max_uncommitted:
            verbs.check_unit(unit, count, self.max_uncommitted)

    def _hold_back(self, unit: Uow, parts: list[bytes], cost: int) -> None:
        """The unit of work has made calls, which are logged later; room is promised for them and for its end."""
        self.state.hold_back(unit, parts, cost)
        self._promise(unit, self.promise_of(unit))

    def log_held(self, but: Uow | None = None) -> None:
        """Log the calls that units of work have held back. The lock is held; it may be let go of while room is made.

        Whoever appends a record does this first, `but` for the unit whose outcome it is: so calls are in the log
        before all that came after them, and a unit that lasts holds the head.
        """
        for unit in list(self.state.holding):
            if unit is not but:
                self._log_calls(unit)

    def _log_calls(self, unit: Uow) -> None:
        held = -1
        while unit.held != held:  # another thread may add to it while the lock is let go of
            held = unit.held
            self.log.make_room(self.log.cost(held))
        if held:
            *parts, last = unit.runs
            record = Calls(unit.number, b"".join(parts), True, last)
            self._append_and_apply(record, self.clock.wall_us())
            self._promise(unit, self.promise_of(unit))

    def make_room_for_end(self, unit: Uow) -> None:
        """Room in the log buffer for the unit's end; that in the log was promised. May let go of the lock."""
        size = 0
        while size < self._cost_of_end(unit):  # another thread may add to it while the lock is let go of
            size = self._cost_of_end(unit)
            self.log.make_room(size)

    def commit(self, unit: Uow) -> None:
        """Return when the unit of work is durable. Raises BackedOut, UnitOfWorkEnded."""
        end = 0
        try:
            with self.lock:
                holding = self.state.holding
                if len(holding) > 1 or (holding and unit not in holding):
                    self.log_held(unit)
                self.make_room_for_end(unit)
                if self.refusal is not None:
                    raise self.refusal
                if unit.state is not ACTIVE and unit.state is not PREPARED:
                    raise verbs.ended(unit)
                bases = {number: queue.next_sequence for number, queue in unit.touched.items()}
                record = Commit(unit.number, bases, b"".join(unit.runs), True)
                if unit.held or unit.first_lsn:
                    end = self._append_and_apply(record, self.clock.wall_us())
                else:
                    self._apply_only(record, 0)
                self._promise(unit, 0)
            if end:
                self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc

    def back_out(self, unit: Uow) -> None:
        """Undo the unit of work; succeeds too when the queue manager has done so already."""
        try:
            with self.lock:
                self.log_held(unit)
                self.make_room_for_end(unit)
                self.check()
                if unit.state is BACKED_OUT and unit.evicted:
                    unit.evicted = False
                    return
                if unit.state is not ACTIVE and unit.state is not PREPARED:
                    raise verbs.ended(unit)
                counts = self.back_out_locked(unit)
                end = self.log.buffer.tail
            if counts or unit.xid is not None:
                self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc

    def back_out_locked(self, unit: Uow) -> bool:
        """The same for a caller that holds the lock and has made room; True if it raised a backout count for good."""
        counts = any(entry.persistent for _, entry in unit.gets)
        if unit.first_lsn or counts:  # a higher backout count is a promise too
            held = unit.gets[unit.gets_logged :]
            runs = b"".join([run_of_get(queue.id, entry.sequence) for queue, entry in held if entry.persistent])
            self._append_and_apply(Backout(unit.number, runs, done=True), self.clock.wall_us())
        else:
            self._apply_only(Backout(unit.number, done=True), 0)
        self._promise(unit, 0)
        return counts

    def prepare(self, unit: Uow) -> None:
        """Return when the unit of work is durably in doubt: from now on it survives everything until it is resolved."""
        if unit.xid is None:
            raise Mistake(
                f"unit of work {unit.number} was begun without an Xid, so nobody could resolve it; use begin(xid)",
                reason=Reason.SYNCPOINT_NOT_AVAILABLE,
            )
        self.check()
        record = Prepare(unit.number, unit.xid)
        size = self.log.cost(len(unit.xid.encode()))
        try:
            with self.lock:
                self.check()
                if unit.state is ACTIVE and not unit.promise:
                    self._reserve(self.promise_of(unit), 0, self.log.space.for_gets)
                    if unit.state is ACTIVE:
                        self._promise(unit, self.promise_of(unit))
                self.log_held()
                self.log.make_room(size)  # its room in the log was promised
                while unit.held and unit.state is ACTIVE:  # another thread's calls, while the lock was let go of
                    self._log_calls(unit)
                    self.log.make_room(size)
                if unit.state is not ACTIVE:
                    raise verbs.ended(unit)
                end = self._append_and_apply(record, self.clock.wall_us())
                self._promise(unit, self.promise_of(unit))
            self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc

    def resolve(self, xid: Xid, *, commit: bool) -> None:
        self.check()
        with self.lock:
            unit = self.state.uows.by_xid(xid)
            known = unit is not None and unit.state is PREPARED
        if unit is None or not known:
            raise Mistake(f"no unit of work with {xid} is in doubt", reason=Reason.UOW_NOT_AVAILABLE)
        if commit:
            self.commit(unit)
        else:
            self.back_out(unit)

    # ---- puts

    def new_message_id(self) -> bytes:
        number = next(self._message_numbers)
        if number > self._last:
            raise self._no_more_ids()
        return self._id_prefix + number.to_bytes(8, "big")

    def _new_message_ids(self, count: int) -> list[bytes]:
        prefix = self._id_prefix
        numbers = list(itertools.islice(self._message_numbers, count))
        if numbers[-1] > self._last:
            raise self._no_more_ids()
        return [prefix + number.to_bytes(8, "big") for number in numbers]

    def _no_more_ids(self) -> Unavailable:
        return Unavailable("this start has used up its message ids; end and start the queue manager")

    def _described(self, name: str, options: verbs.PutOptions) -> tuple[Queue, Descriptor]:
        """The queue that a put names, and what it says of its messages."""
        if self.refusal is not None:
            raise self.refusal
        queue = self.state.queues.get(name) if type(name) is str else None
        if queue is None or queue.damaged:
            queue = verbs.known_queue(self.state, name)
        if options or queue.definition.expiry_cap is not None:
            return queue, verbs.describe(queue, options, self._expires)
        return queue, queue.plain

    def put(self, unit: Uow | None, name: str, body: Any, options: verbs.PutOptions) -> Message:
        """Put one message; outside a unit of work a persistent one is durable when this returns."""
        queue, descriptor = self._described(name, options)
        if type(body) is not bytes:
            body = check_body(body)
        given_id = options.get("message_id") if options else None
        one_id = self.new_message_id() if given_id is None else check_id(given_id, "message_id")
        now = self.clock.wall_us()
        head = descriptor.head(one_id, now)
        size = len(head) + len(body)
        entry = Entry(head, body, descriptor.persistent, descriptor.priority, descriptor.expires)
        try:
            if unit is not None:
                with self.lock:
                    self._put_in_unit(unit, queue, [entry], size, len(body))
            else:
                end = 0
                with self.lock:
                    if descriptor.persistent:
                        self._admit(queue, 1, len(body), self.log.cost(QUEUE_AND_SEQUENCE + size))
                        end = self._append_and_apply(Put(queue.id, queue.next_sequence, head, body, entry), now)
                    else:
                        self._admit(queue, 1, len(body), 0)
                        self._apply_only(Put(queue.id, queue.next_sequence, head, body, entry), now)
                if end:
                    self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc
        return Message(body, head, queue.name, 0, descriptor.expiry)

    def put_many(self, unit: Uow | None, name: str, bodies: Iterable[Any], options: verbs.PutOptions) -> list[Message]:
        """Put messages to one queue with one record: all of them or, where an error is raised, none."""
        queue, descriptor = self._described(name, options)
        bodies = [body if type(body) is bytes else check_body(body) for body in bodies]
        if not bodies:
            return []
        now = self.clock.wall_us()
        given_id = options.get("message_id")
        if given_id is None:
            ids = self._new_message_ids(len(bodies))
        else:
            ids = [check_id(given_id, "message_id")] * len(bodies)
        heads = descriptor.heads(ids, now)
        largest = max(map(len, bodies))
        size = sum(map(len, bodies)) + len(bodies) * len(heads[0])
        persistent, priority, expires = descriptor.persistent, descriptor.priority, descriptor.expires
        entries = [Entry(head, body, persistent, priority, expires) for head, body in zip(heads, bodies, strict=True)]
        try:
            if unit is not None:
                with self.lock:
                    self._put_in_unit(unit, queue, entries, size, largest)
            else:
                end, count = 0, len(entries)
                messages = list(zip(heads, bodies, strict=True))
                with self.lock:
                    if persistent:
                        self._admit(queue, count, largest, self.log.cost(records.put_many_cost(size, count)))
                        end = self._append_and_apply(PutMany(queue.id, queue.next_sequence, messages, entries), now)
                    else:
                        self._admit(queue, count, largest, 0)
                        self._apply_only(PutMany(queue.id, queue.next_sequence, messages, entries), now)
                if end:
                    self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc
        name, expiry = queue.name, descriptor.expiry
        return [Message(body, head, name, 0, expiry) for head, body in zip(heads, bodies, strict=True)]

    def _expires(self, expiry: float) -> int:
        """When a message expires that is put now, in microseconds of the steady clock."""
        return self.steady.now_us() + max(1, int(expiry * 1_000_000))

    def _admit(self, queue: Queue, count: int, largest: int, cost: int) -> None:
        """May these messages be put outside a unit of work, and has the log room for `cost` bytes of record?

        The lock is held; it may be let go of while room is made, so all else is checked afterwards.
        """
        if self.refusal is not None:
            raise self.refusal
        if cost:
            if cost > self.log.space.largest:
                raise self._too_much(cost, queue)
            if self.state.holding:
                self.log_held()
            self._reserve(cost, 0, self.log.space.for_gets)
        if queue.depth + count > queue.room_to or largest > queue.max_length:
            verbs.check_put(queue, largest, count)

    def _put_in_unit(self, unit: Uow, queue: Queue, entries: list[Entry], size: int, largest: int) -> None:
        """Put messages in a unit of work, if that may be. The lock is held; it may be let go of while room is made."""
        count = len(entries)
        cost = size + PUT_COST * count if entries[0].persistent else 0
        if cost > self.log.space.largest:
            raise self._too_much(cost, queue)
        self._room_in(unit, count, cost, queue, size)
        if queue.depth + count > queue.room_to or largest > queue.max_length:
            verbs.check_put(queue, largest, count)
        ordinal = len(unit.puts)
        try:
            for place, entry in enumerate(entries, ordinal):
                self.state.hold_put(unit, queue, place, entry)
            if count == 1 and cost:
                self._hold_back(unit, [run_of_put(queue.id, ordinal, size), entry.head, entry.body], cost)
            elif cost:
                messages = [(entry.head, entry.body) for entry in entries]
                self._hold_back(unit, run_of_puts(queue.id, ordinal, messages), cost)
        except BaseException as exc:  # what interrupts this leaves counts that do not fit together
            self._on_failure(exc)
            raise
        if unit.held >= self._hold:
            self._log_calls(unit)

    def _too_much(self, size: int, queue: Queue) -> MessageTooBig:
        return MessageTooBig(
            f"{size} bytes of messages for queue {queue.name!r} can't be logged at once: the log has "
            f"{self.log.space.capacity} bytes, and a call may fill {self.log.space.largest} of them at the most",
            reason=Reason.MSG_TOO_BIG_FOR_Q_MGR,
            name=queue.name,
        )

    # ---- gets

    def _known(self, name: str) -> Queue:
        """The queue that a get names."""
        if self.refusal is not None:
            raise self.refusal
        queue = self.state.queues.get(name) if type(name) is str else None
        if queue is None or queue.damaged:
            queue = verbs.known_queue(self.state, name)
        return queue

    def get_first(self, unit: Uow | None, name: str) -> Message | None:
        """The usual get: take the message at the front. None where that is not all there is to it: use `get` then."""
        queue = self._known(name)
        try:
            with self.lock:
                if unit is not None:
                    self._room_in(unit, 1, GET_COST, None, 0)
                else:
                    if self.state.holding:
                        self.log_held()
                    self._reserve(self.log.cost(QUEUE_AND_SEQUENCE), 0)
                entry = queue.first()
                if entry is None or not entry.persistent or entry.expires or not queue.get_enabled:
                    return None
                body = entry.body
                if unit is not None:
                    self._hold_gets(unit, queue, [entry])
                    end = entry.lsn
                else:
                    record = Get(queue.id, (entry.sequence,), [entry])
                    end = self._append_and_apply(record, self.clock.wall_us())
            if end > self.log.safe:
                self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc
        return Message(body, entry.head, queue.name, entry.backouts)

    def _hold_gets(self, unit: Uow, queue: Queue, entries: list[Entry]) -> None:
        """Take messages in a unit of work. The lock is held."""
        try:
            parts = []
            for entry in entries:
                self.state.hold_get(unit, queue, entry)
                if entry.persistent:
                    parts.append(run_of_get(queue.id, entry.sequence))
            if parts:
                self._hold_back(unit, parts, GET_COST * len(parts))
        except BaseException as exc:  # as for puts
            self._on_failure(exc)
            raise
        if unit.held >= self._hold:
            self._log_calls(unit)

    def get(
        self, unit: Uow | None, name: str, limit: int, wait: Any, message_id: Any, correlation_id: Any
    ) -> list[Message]:
        """Take up to `limit` messages, waiting up to `wait` seconds for the first; [] when there is none."""
        queue = self._known(name)
        if message_id is not None or correlation_id is not None:
            message_id, correlation_id = verbs.check_selectors(message_id, correlation_id)
        seconds = 0.0 if wait == 0.0 else verbs.check_wait(wait)
        deadline = None if not seconds else self.clock.elapsed_ns() + int(seconds * 1e9)
        event = None
        while True:
            try:
                with self.lock:
                    woken, event = event is not None, None
                    try:
                        found = self._get_locked(unit, queue, limit, message_id, correlation_id)
                    except BaseException:
                        if woken:  # by a message that it does not take: another one may
                            queue.waiters.wake_one()
                        raise
                    if found is None and seconds != 0.0:
                        if self.quiescing:
                            raise Unavailable(f"queue manager {self.name!r} is ending", reason=Reason.Q_MGR_QUIESCING)
                        event = queue.waiters.join(selective=message_id is not None or correlation_id is not None)
                if found is not None:
                    if found.force > self.log.safe:
                        self.log.force(found.force)
                    name, now = queue.name, found.now
                    return [decode(head, body, name, backouts, now) for head, body, backouts in found.messages]
            except LogError as exc:
                raise self.translated(exc) from exc
            if event is None:
                return []
            self._wait(queue, event, deadline)
            if deadline is not None and self.clock.elapsed_ns() >= deadline:
                seconds = 0.0

    def _wait(self, queue: Queue, event: Any, deadline: int | None) -> None:
        """Wait for `event` until the deadline; whatever ends it, the place in the line is given up or passed on."""
        woken = False
        try:
            left = None if deadline is None else max(0.0, (deadline - self.clock.elapsed_ns()) / 1e9)
            woken = self.clock.wait(event, left)
        finally:
            if not woken:
                with self.lock:
                    if event.is_set():  # woken at the last moment, by a message that another may have to take
                        queue.waiters.wake_one()
                    else:
                        queue.waiters.leave(event)

    def _get_locked(
        self, unit: Uow | None, queue: Queue, limit: int, message_id: bytes | None, correlation_id: bytes | None
    ) -> "_Found | None":
        """Choose messages, and log and apply that they are taken. The lock is held; it may be let go of for a while."""
        if self.refusal is not None:
            raise self.refusal
        if limit > 1:
            limit = min(limit, max(1, queue.depth))
        if unit is not None:
            self._room_in(unit, limit, GET_COST * limit, None, 0)
        else:
            self.log_held()
            self._reserve(self.log.cost(QUEUE_AND_SEQUENCE * limit), 0)
        if not queue.get_enabled:
            verbs.check_get(queue)
        now = self.steady.now_us() if queue.expiring else 0
        chosen, expired = self._choose(queue, limit, message_id, correlation_id, now)
        while not chosen:
            if not expired or not self.expire_locked(queue, expired):
                return None
            if unit is not None and unit.state is not ACTIVE:
                raise verbs.ended(unit)
            chosen, expired = self._choose(queue, limit, message_id, correlation_id, now)
        messages = [(entry.head, entry.body, entry.backouts) for entry in chosen]
        safe = max([entry.lsn for entry in chosen])
        if unit is not None:
            self._hold_gets(unit, queue, chosen)
        else:
            for persistent in (0, 1):
                some = [entry for entry in chosen if entry.persistent == persistent]
                if some:
                    record = Get(queue.id, [entry.sequence for entry in some], some)
                    if persistent:
                        safe = self._append_and_apply(record, self.clock.wall_us())
                    else:
                        self._apply_only(record, 0)
        if expired:
            self.expire_locked(queue, expired)  # last, since it may let go of the lock
        return _Found(messages, safe, now)

    def _choose(
        self, queue: Queue, limit: int, message_id: bytes | None, correlation_id: bytes | None, now: int
    ) -> tuple[list[Entry], list[Entry]]:
        if limit == 1:
            entry = queue.first()
            if message_id is None and correlation_id is None and (entry is None or not entry.expires):
                return ([] if entry is None else [entry]), []
            entry, expired = verbs.choose(queue, message_id, correlation_id, now)
            return ([] if entry is None else [entry]), expired
        several: Iterator[Entry] = (
            queue.ready() if message_id is None and correlation_id is None else queue.select(message_id, correlation_id)
        )
        chosen: list[Entry] = []
        expired = []
        for entry in several:
            if 0 < entry.expires <= now:
                expired.append(entry)
            else:
                chosen.append(entry)
                if len(chosen) == limit:
                    break
        return chosen, expired

    def expire_locked(self, queue: Queue, entries: list[Entry]) -> bool:
        """Remove messages whose time is over; False where the log has no room for saying so of all of them.

        May let go of the lock.
        """
        removed = True
        wall = self.clock.wall_us()
        for at in range(0, len(entries), 100):
            some = entries[at : at + 100]
            if self.log.reserve(self.log.cost(QUEUE_AND_SEQUENCE * len(some)), 0):
                logged = [e for e in some if e.persistent and e.status == READY]
                if logged:
                    self._append_and_apply(Expire(queue.id, tuple([e.sequence for e in logged]), logged), wall)
            else:
                removed = False
            rest = [e for e in some if not e.persistent and e.status == READY]
            if rest:
                self._apply_only(Expire(queue.id, tuple([e.sequence for e in rest]), rest), wall)
        return removed

    def browse(self, name: str, message_id: Any, correlation_id: Any) -> Iterator[Message]:
        """The messages that could be got now, in that order; each is looked at when its turn comes."""
        self.check()
        queue = verbs.known_queue(self.state, name)
        message_id, correlation_id = verbs.check_selectors(message_id, correlation_id)
        with self.lock:
            verbs.check_get(queue)
            if message_id is None and correlation_id is None:
                entries = list(queue.ready())
            else:
                entries = list(queue.select(message_id, correlation_id))
        return self._look_at(queue, entries)

    def _look_at(self, queue: Queue, entries: list[Entry]) -> Iterator[Message]:
        for entry in entries:
            self.check()
            body, status = entry.body, entry.status
            now = self.steady.now_us()
            if status != READY or 0 < entry.expires <= now:
                continue
            if entry.lsn > self.log.safe:
                self.force(entry.lsn)
            yield decode(entry.head, body, queue.name, entry.backouts, now)

    # ---- definitions

    def define(self, name: Any, attributes: dict[str, Any]) -> QueueDefinition:
        check_name(name, "queue")
        plain = with_attributes(QueueDefinition(name=name), attributes)

        def record() -> Record:
            if name in self.state.queues:
                raise AlreadyExists(f"queue {name!r} exists; use alter_queue to change it", name=name)
            return Define(attrs.evolve(plain, id=self.state.next_queue).encode())

        self._change(record, len(plain.encode()) + 20)
        return plain

    def alter(self, name: Any, attributes: dict[str, Any]) -> QueueDefinition:
        changed = with_attributes(verbs.known_queue(self.state, name).definition, attributes)

        def record() -> Record:
            nonlocal changed
            queue = verbs.known_queue(self.state, name)
            changed = with_attributes(queue.definition, attributes)
            return Define(changed.encode())

        self._change(record, len(changed.encode()) + 1024)
        with self.lock:  # a get that waits hears that gets are disabled now
            if name in self.state.queues:
                self.state.queues[name].waiters.wake_all()
        return changed

    def delete(self, name: Any, *, purge: bool) -> None:
        def record() -> Record:
            queue = self.state.queues.get(name)
            if queue is None:
                raise UnknownQueue(f"there is no queue {name!r}", name=name)
            if queue.uncommitted:
                raise ObjectInUse(
                    f"queue {name!r} has {queue.uncommitted} messages of units of work that have not ended", name=name
                )
            if queue.depth and not purge:
                raise ObjectInUse(
                    f"queue {name!r} holds {queue.depth} messages; get them, or delete it with purge=True",
                    reason=Reason.Q_NOT_EMPTY,
                    name=name,
                )
            return Delete(queue.id)

        check_name(name, "queue")
        self._change(record, records.QUEUE.size)

    def _change(self, make: Callable[[], Record], size: int) -> None:
        """Log, apply and force a change of a definition."""
        self.check()
        try:
            with self.lock:
                self.check()
                self.log_held()
                self._reserve(self.log.cost(size), 0)
                self.check()
                end = self._append_and_apply(make(), self.clock.wall_us())
            self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc
