"""Gets: taking messages from queues, with a wait or without; each checked, logged, applied and forced, as puts are.

A caller never sees a message whose commit is not safe yet: a get that finds one waits for that force too.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import attrs

from logger.condition import Event
from logger.crowded import let_holder_go_on
from logger.disk_errors import advice
from logger.errors import LogError
from qmgr import verbs
from qmgr.entry import Entry
from qmgr.errors import Inhibited, Mistake, Reason, ResourceProblem, Unavailable
from qmgr.front import Front
from qmgr.groups import in_logical_order
from qmgr.ids import BEFORE_ALL, Position, Unindexed
from qmgr.message import Message, decode
from qmgr.queue import Queue
from qmgr.requeue import EXPIRED_CHUNK
from qmgr.units import MESSAGES_PER_RECORD, QUEUE_PLACE_BYTES
from qmgr.verbs import ANY, Wanted
from qmgr.waiting import Waiting
from recovery.errors import QueueDamaged
from recovery.records import GET_COST, Expire, Get
from recovery.uows import ACTIVE, Uow

CHUNK_MESSAGES = 64  # that a browse, or a clear, handles at once, unless they are large


def select(queue: Queue, ids: Wanted, *, read: bool = True, behind: Position = BEFORE_ALL) -> Iterator[Entry]:
    """See `Queue.select`."""
    return queue.select(ids.message_id, ids.correlation_id, group_id=ids.group_id, read=read, behind=behind)


@attrs.define
class _Found:
    """What a get has taken."""

    entries: list[Entry]  # none where the messages were taken as they lie, as a `Front`
    messages: list[Message]
    force: int  # the LSN that must be safe before anybody hears of it


@attrs.define(eq=False)
class _GetCall:
    """One call that may wait, and how far it has come."""

    unit: Uow | None
    name: str  # of the queue, or an alias of it
    queue: Queue
    limit: int
    wanted: Wanted
    deadline: int | None  # of its wait, in nanoseconds of the clock
    waits: bool  # where there is nothing
    event: Event | None = None  # of the last wait: set when there may be something
    in_line: bool = False
    may_read: bool = False  # segments while the lock is held: once `_index` has read without it what it could
    requeues_first: bool = False  # before it looks: what was backed out too often, in units of work of their own
    has_looked: bool = False  # in its unit of work, whether it would take nothing else: then it requeues first, too


class Gets(Waiting):
    """Takes messages from queues, for callers that may wait."""

    def get_first(self, unit: Uow | None, name: Any, ids: Wanted = ANY) -> Message | None:
        """The usual get: take the message at the front, or the first with these ids, and nothing else of `ids` counts.

        None where there is more to it, as with a message that is non-persistent or expires, or with none: nothing was
        taken, use `get` then.
        """
        queue = self._known(name)
        try:
            if self.lock.locked():
                let_holder_go_on(self.lock)
            with self.lock:
                promise = (
                    self._room_for_gets(None, 1) if unit is None else self._room_for_calls(unit, 1, GET_COST, None, 0)
                )
                try:
                    entry = queue.first() if ids is ANY else next(select(queue, ids, read=False), None)
                except Unindexed:
                    return None
                except BaseException as exc:
                    raise self.unreadable(queue, exc) from exc.__cause__
                if entry is None or not entry.persistent or entry.expires or not queue.gets_unchecked:
                    return None
                body, backouts = entry.body, entry.backouts
                if unit is not None:
                    end = entry.lsn
                    try:
                        self.state.hold_get(unit, queue, entry)
                        self._hold_back(unit, GET_COST, promise)
                    except BaseException as exc:  # as for puts
                        self._on_failure(exc)
                        raise
                    if unit.held_back >= self._max_held_bytes:
                        self._log_calls(unit)
                else:
                    record = Get(queue.id, (entry.sequence,), [entry])
                    end = self._append_and_apply(record, self.clock.wall_us(), soon=True)
            if end > self.log.safe:
                self.log.force(end)
        except LogError as exc:
            raise self.translated(exc) from exc
        return Message(body, entry.head, queue.name, backouts)

    def get_usual(self, unit: Uow, name: Any) -> Message | None:
        """The usual get of a unit of work: the message at the front, without a wait.

        None where that is not all there is to it: nothing was done, use `get_first` then. It has what it needs of our
        own methods written out, as `put_usual` has: fewer calls take less time.
        """
        if self.refusal is not None or type(name) is not str:
            return None  # before the lock is taken: in a forked child nobody lets go of it
        log = self.log
        if self.lock.locked():
            let_holder_go_on(self.lock)
        with self.lock:
            queue = self.state.queues.get(name)
            if queue is None:
                return None
            try:  # as `State.hold_get` and `_hold_back`
                entry = queue.lock_next()
                if entry is None:
                    return None
                if unit.ahead < GET_COST and not self._promise_ahead(unit, GET_COST):
                    queue.unlock_next(entry)
                    return None
                unit.gets.append((queue, entry))
                if not unit.held_back:
                    self.state.holding[unit] = None
                unit.held_back += GET_COST
                unit.ahead -= GET_COST
            except BaseException as exc:
                self._on_failure(exc)
                raise
            body, backouts, end = entry.body, entry.backouts, entry.lsn
        if end > log.safe:
            self.force(end)
        return Message(body, entry.head, name, backouts)

    def _hold_gets(self, unit: Uow, queue: Queue, entries: list[Entry]) -> None:
        """Take messages in a unit of work. The lock is held."""
        self._cancel_ahead(unit)  # promised for no more calls than MAXUMSGS leaves: fewer after these
        persistent = 0
        try:
            for entry in entries:
                self.state.hold_get(unit, queue, entry)
                persistent += entry.persistent
            if persistent and not unit.for_client:
                cost = GET_COST * persistent
                self._hold_back(unit, cost, self.promise_of(unit, cost))
        except BaseException as exc:  # as for puts
            self._on_failure(exc)
            raise
        if unit.held_back >= self._max_held_bytes:
            self._log_calls(unit)

    def get(self, unit: Uow | None, name: Any, limit: int, wait: Any, wanted: Wanted = ANY) -> list[Message]:
        """Take up to `limit` messages, waiting up to `wait` seconds for the first; [] when there is none."""
        queue = self._known(name)
        if wanted.logical_order and unit is None:
            raise Mistake(
                "a group is got in logical order in a unit of work, so that it is taken whole; use begin()",
                reason=Reason.INCONSISTENT_UOW,
                name=name,
            )
        seconds = verbs.check_wait(wait)
        deadline = None if not seconds else self.clock.elapsed_ns() + int(seconds * 1e9)
        first = wanted.backout_requeue and unit is None
        call = _GetCall(unit, name, queue, limit, wanted, deadline, waits=seconds != 0.0, requeues_first=first)
        try:
            while True:
                messages = self._look(call)
                if messages is not None:
                    return messages
                if call.in_line:
                    self._wait_in_line(call)
        except BaseException:
            if call.event is not None:
                self._withdraw_waiter(queue, call.event, unit)
            raise

    def _look(self, call: _GetCall) -> list[Message] | None:
        """The messages that are there for this call; None: look again, after a wait where it is in line by now."""
        call.in_line = False
        queue, wanted = call.queue, call.wanted
        try:
            if call.requeues_first:
                self._requeue_outside(call)
            if self.lock.locked():
                let_holder_go_on(self.lock)
            with self.lock:
                found = self._look_locked(call)
            if found is not None and found.force > self.log.safe:
                self.log.force(found.force)
        except LogError as exc:
            raise self.translated(exc) from exc
        except Unindexed:
            if wanted.logical_order:
                self._index_groups(queue)
            self._index(queue, wanted.which)
            call.may_read = True
            return None
        return None if found is None else found.messages

    def _look_locked(self, call: _GetCall) -> _Found | None:
        """The same; what it has taken is not forced yet. The lock is held; it may be let go of for a while."""
        unit, queue = call.unit, call.queue
        if call.event is not None and unit is not None:  # the unit's end may have set it
            self._remove_waiter(queue, call.event, unit)
        if call.name != queue.name:
            try:
                verbs.check_alias(self.state, call.name, queue, put=False)
            except Inhibited as exc:
                self._inhibited(exc)
                raise
        if unit is not None and call.wanted.backout_requeue and self._requeue_inside(call, unit):
            return None  # others have had the lock
        found = self._get_locked(unit, queue, call.limit, call.wanted, call.may_read, soon=True)
        if found is None and not call.waits:
            return _Found([], [], 0)
        if found is None:
            self.check_not_ending()
            call.event = Event()
            call.in_line = True
            self._add_waiter(queue, call.event, unit, call.wanted)
            self.check()  # who stopped it may have woken everyone in line just before
        return found

    def _requeue_outside(self, call: _GetCall) -> None:
        """Move messages that were backed out too often away, in units of work of their own."""
        unit = call.unit
        who = (unit.owner, unit.thread) if unit is not None else ("", None)
        try:
            end = self.requeue_next(call.queue.name, call.limit, call.wanted, *who)
        except ResourceProblem:
            if unit is not None and unit.state is not ACTIVE:  # it was rolled back for room for them
                raise verbs.ended(unit) from None
            raise
        self.log.force(end)
        call.requeues_first = unit is None

    def _requeue_inside(self, call: _GetCall, unit: Uow) -> bool:
        """Move them away in the unit of work that gets. True: look again. The lock is held; see `_get_locked`."""
        queue, limit, wanted = call.queue, call.limit, call.wanted
        if not call.has_looked:
            call.requeues_first = self._takes_only_poison(unit, queue, limit, wanted, call.may_read)
            call.has_looked = True  # not before: it may have to look again when the queue is indexed
        return call.requeues_first or self._requeue_next(unit, queue, limit, wanted, may_read=call.may_read)

    def _wait_in_line(self, call: _GetCall) -> None:
        """Wait until there may be something, or the time is over."""
        deadline, event = call.deadline, call.event
        assert event is not None, "it is in line"
        left = None if deadline is None else max(0.0, (deadline - self.clock.elapsed_ns()) / 1e9)
        if not self.clock.wait(event, left):
            self._withdraw_waiter(call.queue, event, call.unit)
        call.has_looked = False
        if deadline is not None and self.clock.elapsed_ns() >= deadline:
            call.waits = False

    def get_now(
        self, unit: Uow | None, name: Any, limit: int, wanted: Wanted, *, soon: bool = False
    ) -> tuple[list[Message], int] | None:
        """Take up to `limit` of the messages that are there, without a wait and without a force.

        Returns them, and the LSN that must be safe before anybody hears of them, or 0. None where there is more to it
        (an alias, logical order, messages to move away, segments to read): use `get` then. `soon`: the caller forces
        next.
        """
        queue = self._known(name)
        if queue.name != name or wanted.logical_order or (wanted.backout_requeue and self.requeues(name)):
            return None
        try:
            if self.lock.locked():
                let_holder_go_on(self.lock)
            with self.lock:
                found = self._get_locked(unit, queue, limit, wanted, False, soon=soon)
        except Unindexed:
            return None
        except LogError as exc:
            raise self.translated(exc) from exc
        if found is None:
            return [], 0
        return found.messages, found.force if found.force > self.log.safe else 0

    # ---- learning where messages lie

    def _index(self, queue: Queue, which: int) -> None:
        """Read, without the lock so that others go on, what it takes to find messages by this id.

        What can't be read, or kept, or is rewritten meanwhile, is left to the call that looks for the message.
        """
        tried: set[int] = set()
        while True:
            with self.lock:
                place = queue.unindexed(which, tried)
            if place is None:
                return
            segment, known = place
            tried.add(segment.number)
            with contextlib.suppress(QueueDamaged, OSError):
                learnt = queue.read_hashes(segment, which, known)
                with self.lock:
                    if not queue.learn(segment, which, learnt):
                        return
            self.clock.give_way()

    def _index_groups(self, queue: Queue) -> None:
        """Learn of the groups of the queue, a few messages at a time; what can't be read is left as above."""
        with contextlib.suppress(QueueDamaged, OSError):
            while self._index_some_groups(queue):
                self.clock.give_way()

    def _index_some_groups(self, queue: Queue) -> bool:
        """True: there are more messages to look at."""
        with self.lock:
            try:
                return queue.index_groups(CHUNK_MESSAGES)
            except BaseException as exc:
                if queue.half_changed:
                    self._on_failure(exc)
                raise

    # ---- choosing and taking; the lock is held

    def _get_locked(
        self, unit: Uow | None, queue: Queue, limit: int, wanted: Wanted, may_read: bool, *, soon: bool = False
    ) -> _Found | None:
        """Choose messages, and log and apply that they are taken. The lock is held; it may be let go of for a while.

        `soon`: the caller forces that next.
        """
        if limit > 1:
            limit = self._most_at_once(unit, queue, limit)
        look_at = limit
        gone = 0  # expired messages that were removed since others had the lock
        full = True  # `limit` messages are wanted, as long as there is room for expiring those between them
        while True:
            self._room_for_gets(unit, limit)
            freely = queue.gets_unchecked  # each time, since the lock may have been let go of
            if not freely:
                self._check_get(queue)
            elif unit is None and limit > 1 and not wanted.selective:
                front = self._front(queue, limit)
                if front is not None:
                    return self._take_front(queue, front, soon)
            now = self.steady.now_us() if queue.expiring else 0
            chosen, expired = self._choose(unit, queue, limit, wanted, now, look_at, may_read)
            if chosen and (len(chosen) == limit or not (full and expired)):
                break
            if not expired:
                return None
            if self.expire_locked(queue, expired, kept=2 * self.log.cost(GET_COST * limit) if chosen else 0):
                look_at = max(look_at, 2 * limit)  # there may be as many live ones in front each time
                gone = self._give_way_after(gone + len(expired))
            elif chosen:  # the log has no room for that record
                full = False
            elif look_at > len(expired):
                return None
            else:
                look_at = 2 * len(expired) + limit  # look behind them
        found = self._take(unit, queue, chosen, now, soon)
        if not freely:
            self.events.falls(queue, self.clock.wall_us())
            self.attention = True
        if expired:
            self.expire_locked(queue, expired)  # last, since it may let go of the lock
        return found

    def _most_at_once(self, unit: Uow | None, queue: Queue, limit: int) -> int:
        """How many of `limit` messages one call may take at the most. The lock is held."""
        limit = min(limit, max(1, queue.depth))
        if unit is None:
            return min(limit, self._most_gets(2 * QUEUE_PLACE_BYTES))
        if unit.for_client:
            return limit
        left = self.max_uncommitted - unit.put_count - len(unit.gets)  # where that is 0, the one is refused
        return max(1, min(limit, self._most_gets(3 * GET_COST), left))

    def _most_gets(self, cost: int) -> int:
        """How many gets of this cost, in bytes, the log has room for as it is; a few at least, for which room is made.

        Nobody's unit of work is rolled back so that a call may take more at once.
        """
        log, space = self.log, self.log.space  # from `soft` on the release sequence runs
        return max(CHUNK_MESSAGES, (min(space.limit, space.soft) - log.buffer.tail - space.promised) // cost)

    def _take(self, unit: Uow | None, queue: Queue, chosen: list[Entry], now: int, soon: bool) -> _Found:
        """Take these messages, in the unit of work or for good; `now` is 0 where none expires. The lock is held."""
        name = queue.name
        if now:
            messages = [decode(entry.head, entry.body, name, entry.backouts, now) for entry in chosen]
        else:
            messages = [Message(entry.body, entry.head, name, entry.backouts) for entry in chosen]
        safe = max([entry.lsn for entry in chosen])
        if unit is not None:
            self._hold_gets(unit, queue, chosen)
        else:
            safe = max(safe, self._log_gets(queue, chosen, soon))
        return _Found(chosen, messages, safe)

    def _front(self, queue: Queue, limit: int) -> Front | None:
        try:
            return queue.front(limit)
        except BaseException as exc:
            raise self.unreadable(queue, exc) from exc.__cause__

    def _take_front(self, queue: Queue, front: Front, soon: bool) -> _Found:
        """Log and apply that they are taken for good. The lock is held and the room is reserved."""
        messages, sequences = front.messages(queue.name), front.sequences
        self.checkpointer.records += (len(sequences) - 1) // MESSAGES_PER_RECORD
        record = Get(queue.id, sequences, front)
        return _Found([], messages, self._append_and_apply(record, self.clock.wall_us(), soon=soon))

    def _log_gets(self, queue: Queue, chosen: list[Entry], soon: bool = False) -> int:
        """Log and apply that they are taken for good; the LSN to force. The lock is held and the room is reserved."""
        end = 0
        kinds = [chosen]
        if len(chosen) > 1:
            kinds = [[entry for entry in chosen if entry.persistent == persistent] for persistent in (0, 1)]
        for some in kinds:
            if some:
                record = Get(queue.id, [entry.sequence for entry in some], some)
                if some[0].persistent:
                    self.checkpointer.records += (len(some) - 1) // MESSAGES_PER_RECORD
                    end = self._append_and_apply(record, self.clock.wall_us(), soon=soon)
                else:
                    self._apply_only(record, self.clock.wall_us())
        return end

    def _check_get(self, queue: Queue) -> None:
        """May messages be got? The lock is held; it is let go of only to refuse that."""
        try:
            verbs.check_get(queue)
        except Inhibited as exc:
            self._inhibited(exc)
            raise

    def _room_for_gets(self, unit: Uow | None, count: int) -> int:
        """Check that so many messages may be got, and reserve room in the log. May let go of the lock for a while.

        Returns what `_hold_back` is to promise for the unit of work, in bytes; 0 without one.
        """
        if unit is not None:
            return self._room_for_calls(unit, count, 0 if unit.for_client else GET_COST * count, None, 0)
        if self.state.holding:
            self.log_held()
        self._reserve(self.log.cost(QUEUE_PLACE_BYTES * count), 0)
        if self.refusal is not None:  # by now: it may have been said while this waited for the lock, or for room
            self.check()
        return 0

    def _choose(
        self, unit: Uow | None, queue: Queue, limit: int, wanted: Wanted, now: int, look_at: int, may_read: bool
    ) -> tuple[list[Entry], list[Entry]]:
        """(the entries that a get takes, those it passes over because their time is over). The lock is held.

        It stops at EXPIRED_CHUNK expired messages, or `look_at` if that is more: live ones may be behind them.
        """
        try:
            if limit == 1 and not wanted.selective:
                first = queue.first()
                if first is None:
                    return [], []
                if not 0 < first.expires <= now:
                    return [first], []
            if wanted.logical_order and unit is not None:
                group, complete = wanted.group_id, wanted.all_available
                gets = unit.gets
                return in_logical_order(queue, gets, limit, group, now, complete=complete, read=may_read), []
            several = select(queue, wanted, read=may_read) if wanted.selective else queue.ready(look_at)
            chosen: list[Entry] = []
            expired: list[Entry] = []
            for entry in several:
                if 0 < entry.expires <= now:
                    expired.append(queue.resident_entry(entry))
                    if len(expired) >= max(look_at, EXPIRED_CHUNK):
                        break
                else:
                    chosen.append(entry)
                    if len(chosen) == limit:
                        break
        except BaseException as exc:
            raise self.unreadable(queue, exc) from exc.__cause__
        return chosen, expired

    def unreadable(self, queue: Queue, exc: BaseException) -> BaseException:
        """What to raise when looking for messages of the queue ended with `exc`. The lock is held."""
        if isinstance(exc, OSError):
            text = f"the messages of queue {queue.name!r} can't be read ({exc}); {advice(exc)} and try again"
            return Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=queue.name)
        if isinstance(exc, QueueDamaged):
            if not queue.damaged:
                self.state.damage(queue, exc)
            return verbs.damaged(queue)
        if queue.half_changed:
            self._on_failure(exc)
        return exc

    def _claim(self, queue: Queue, entry: Entry) -> Entry | None:
        """`Queue.claim`; None too where nothing is got from the queue any more, or a segment can't be read.

        The get of the message reports that.
        """
        if queue.damaged or queue.deleted:
            return None
        try:
            return queue.claim(entry)
        except (QueueDamaged, OSError):
            return None

    def expire_locked(self, queue: Queue, entries: list[Entry], kept: int = 0) -> bool:
        """Remove messages whose time is over; False where some may be left.

        That is where the log has no room, the queue was deleted or is damaged, or no call is taken any more.

        `kept`: bytes of log that are left over for others. May let go of the lock. Nothing is logged once no call is
        taken any more: what an end in order keeps of non-persistent messages is true only if that ends the log.
        """
        removed = True
        wall = self.clock.wall_us()
        for at in range(0, len(entries), 100):
            some = entries[at : at + 100]
            room = self.log.reserve(self.log.cost(QUEUE_PLACE_BYTES * len(some)), kept)
            if self.refusal is not None or queue.damaged or queue.deleted:  # since the lock may have been let go of
                return False
            claimed = [self._claim(queue, entry) for entry in some]
            there = [entry for entry in claimed if entry is not None]
            logged = [entry for entry in there if entry.persistent]
            if logged and room:
                self._append_and_apply(Expire(queue.id, tuple([e.sequence for e in logged]), logged), wall)
            removed = removed and room
            rest = [entry for entry in there if not entry.persistent]
            if rest:
                self._apply_only(Expire(queue.id, tuple([e.sequence for e in rest]), rest), wall)
        return removed
