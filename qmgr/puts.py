"""Puts, each checked, logged, applied and forced; and the events that tell of what happens to queues."""

import contextlib
import itertools
from collections.abc import Iterable
from itertools import repeat
from typing import Any

from logger.crowded import let_holder_go_on
from logger.errors import LogError
from qmgr import verbs
from qmgr.batch import MessageRun
from qmgr.definitions import Definitions
from qmgr.entry import OVERHEAD, Entry
from qmgr.errors import Inhibited, MessageTooBig, MQError, QueueFull, Reason, Unavailable
from qmgr.events import Event, Events
from qmgr.logged import EngineContext
from qmgr.message import HEAD, Descriptor, Message, check_bodies, check_body
from qmgr.queue import Queue
from qmgr.state import PutRun
from qmgr.units import MESSAGES_PER_RECORD, NUMBERS_PER_EPOCH, QUEUE_PLACE_BYTES
from recovery import records
from recovery.records import PUT_COST, Put, PutMany, in_pieces
from recovery.uows import Uow


class Puts(Definitions):
    """Puts messages to queues, for callers and for the queue manager itself."""

    def __init__(self, given: EngineContext) -> None:
        super().__init__(given)
        self.steady = given.steady
        self.events = Events(self.state, given.process, given.clock.wall_us())
        self._id_prefix = b"AMQ " + given.name[:12].ljust(12).encode()
        self._message_numbers = itertools.count(given.log.epoch * NUMBERS_PER_EPOCH + 1)

    def _known(self, name: Any, put: bool = False) -> Queue:
        """The queue that a get, or a put, names by its name or by an alias."""
        if self.refusal is not None:
            self.check()
        queue = self.state.queues.get(name) if type(name) is str else None
        if queue is None or queue.damaged:
            queue = verbs.known_queue(self.state, name)
            if queue.name != name:
                try:
                    verbs.check_alias(self.state, name, queue, put=put)
                except Inhibited as exc:
                    with self.lock:
                        self._inhibited(exc)
                    raise
        return queue

    # ---- puts

    def _new_numbers(self, count: int) -> list[int]:
        """The next `count` message numbers, which make message ids unique. Raises Unavailable."""
        numbers = list(itertools.islice(self._message_numbers, count))
        if numbers[-1] > self._last_number:
            raise self._no_more_ids()
        return numbers

    def _no_more_ids(self) -> Unavailable:
        return Unavailable("this start has used up its message ids; end and start the queue manager")

    def put_later(
        self, unit: Uow | None, name: Any, body: Any, options: verbs.PutOptions, *, soon: bool = False
    ) -> tuple[Message, int]:
        """Put one message, and do not wait for the disk: return it, and the LSN to force before the reply, or 0.

        `soon`: the caller forces it next, so the disk may begin at once.
        """
        queue = self.state.queues.get(name) if type(name) is str and self.refusal is None else None
        if queue is None or queue.damaged:  # few calls of our own: each costs a hundredth of a put
            queue = self._known(name, put=True)
            options = verbs.with_defaults(self.state, name, options)
        descriptor, one_id = queue.default_descriptor, None
        given: Any = options  # not checked yet, and compiled code would refuse another type with a text of its own
        if descriptor is None or (given and (len(given) > 1 or given.get("persistent") is not descriptor.persistent)):
            descriptor, one_id = verbs.describe(queue, options, self._expires), verbs.given_id(options)
        if type(body) is not bytes:
            body = check_body(body)
        if one_id is None:
            number = next(self._message_numbers)
            if number > self._last_number:
                raise self._no_more_ids()
            one_id = self._id_prefix + number.to_bytes(8, "big")
        now = self.clock.wall_us()
        head = descriptor.head(one_id, now)
        size = len(head) + len(body)
        persistent, priority, expires = descriptor.persistent, descriptor.priority, descriptor.expires
        end = 0
        if unit is not None:
            run = PutRun(queue, [head], [body], persistent, priority, expires > 0, descriptor)
            self._put_in_unit(unit, run, size, len(body))
        else:
            entry = Entry(head, body, persistent, priority, expires)
            record = Put(queue.id, 0, head, body, entry)
            cost = self.log.cost(QUEUE_PLACE_BYTES + size) if persistent else 0
            end = self._put_now(record, queue, 1, len(body), size, cost, now, soon=soon)
        return Message(body, head, queue.name, 0, descriptor.expiry), end

    def put_usual(self, unit: Uow, name: Any, body: Any) -> Message | None:
        """The quick way of the usual put in a unit of work: no options, and the first put or one more like the last.

        Returns None where more has to be looked at: nothing was done, use `put_later`. It makes few calls of our own,
        as each takes a fiftieth of it.
        """
        if self.refusal is not None or type(name) is not str or type(body) is not bytes:
            return None  # before the lock is taken: in a forked child nobody lets go of it
        now = self.clock.wall_us()
        if self.lock.locked():
            let_holder_go_on(self.lock)
        with self.lock:
            puts = unit.puts
            run = puts[-1] if puts else None
            queue = self.state.queues.get(name) if run is None else run.queue
            if queue is None or queue.name != name:
                return None
            if queue.depth >= queue.unchecked_depth or len(body) > queue.max_length:
                return None
            like = queue.default_descriptor
            if like is None or not like.persistent or (run is not None and run.like is not like):
                return None
            number = next(self._message_numbers)
            if number > self._last_number:
                raise self._no_more_ids()
            head = like.head(self._id_prefix + number.to_bytes(8, "big"), now)
            size = len(head) + len(body)
            cost = size + PUT_COST
            if (run is None or unit.ahead < cost) and not self._promise_ahead(unit, cost, first_put=run is None):
                return None
            try:  # as `State.hold_puts` and `_hold_back`
                queue.depth += 1
                queue.uncommitted += 1
                if run is not None:
                    run.heads.append(head)
                    run.bodies.append(body)
                    unit.put_count += 1
                    unit.put_bytes += size
                else:
                    puts.append(PutRun(queue, [head], [body], True, like.priority, False, like))
                    unit.touched[queue.id] = queue
                    self.state.holding[unit] = None
                    unit.put_count, unit.put_bytes = 1, size
                unit.held_back += cost
                unit.ahead -= cost
            except BaseException as exc:
                self._on_failure(exc)
                raise
        return Message(body, head, name, 0, None)

    def put_many(self, unit: Uow | None, name: Any, bodies: Iterable[Any], options: verbs.PutOptions) -> list[Message]:
        """Put messages to one queue with one record: all of them or, where an error is raised, none."""
        messages, end = self.put_many_later(unit, name, bodies, options, soon=True)
        if end:
            self.force(end)
        return messages

    def put_many_later(
        self, unit: Uow | None, name: Any, bodies: Iterable[Any], options: verbs.PutOptions, *, soon: bool = False
    ) -> tuple[list[Message], int]:
        """Put messages as `put_many`, but do not wait for the disk: the LSN to force before the reply, or 0."""
        queue = self._known(name, put=True)
        if queue.name != name:
            options = verbs.with_defaults(self.state, name, options)
        descriptor = queue.default_descriptor
        if options or descriptor is None:
            descriptor = verbs.describe(queue, options, self._expires)
        given_id = verbs.given_id(options)
        checked = check_bodies(bodies)
        count = len(checked)
        if not count:  # what may not be done is refused, even if it comes to nothing
            if unit is not None:
                verbs.check_unit(unit, 0, self.max_uncommitted)
            return [], 0
        body_bytes = sum(map(len, checked))
        self._check_many(queue, descriptor, count, body_bytes)  # before much is made of it
        now = self.clock.wall_us()
        if given_id is None:
            heads = descriptor.heads(self._id_prefix, self._new_numbers(count), now)
        else:
            heads = descriptor.equal_heads(given_id, count, now)
        largest = max(map(len, checked))
        size = body_bytes + count * len(heads[0])
        persistent, priority, expires = descriptor.persistent, descriptor.priority, descriptor.expires
        end = 0
        if unit is not None:
            run = PutRun(queue, heads, checked, persistent, priority, expires > 0)
            self._put_in_unit(unit, run, size, largest)
        else:
            messages = list(zip(heads, checked, strict=True))
            together = MessageRun(heads, checked, persistent, priority, expires > 0)
            record = PutMany(queue.id, 0, messages, [together])
            cost = 0
            if persistent:
                record.made = in_pieces(together.encoded(keep=True), size)
                cost = self.log.cost(records.put_many_cost(size, count))
            end = self._put_now(record, queue, count, largest, size, cost, now, soon=soon)
        given = map(Message, checked, heads, repeat(queue.name), repeat(0), repeat(descriptor.expiry))
        return list(given), end

    def _check_many(self, queue: Queue, descriptor: Descriptor, count: int, body_bytes: int) -> None:
        """Could the queue and the log ever take so many messages? What is there already is looked at later."""
        room = queue.definition.max_depth
        if count > room:
            text = f"queue {queue.name!r} takes {room} messages (max_depth), not {count}; put fewer, or alter MAXDEPTH"
            raise QueueFull(text, name=queue.name)
        size = body_bytes + HEAD.size * count
        if descriptor.persistent and size > self.log.space.largest:
            raise self._too_much(size, queue, self.log.space.largest)

    def _expires(self, expiry: float) -> int:
        """When a message expires that is put now, in microseconds of the steady clock."""
        return self.steady.now_us() + max(1, int(expiry * 1_000_000))

    def _put_now(
        self,
        record: Put | PutMany,
        queue: Queue,
        count: int,
        largest: int,
        size: int,
        cost: int,
        now: int,
        *,
        soon: bool = False,
    ) -> int:
        """Put outside a unit of work, if that may be; return the LSN to force, or 0.

        `largest` is the longest body, `size` all bytes of the messages, `cost` the log that they take, 0 if none.
        """
        end = 0
        try:
            if self.lock.locked():
                let_holder_go_on(self.lock)
            with self.lock:
                self._admit(queue, count, largest, cost)
                record.sequence = queue.next_sequence
                if cost:
                    end = self._append_and_apply(record, now, soon=soon)
                    self.checkpointer.records += (count - 1) // MESSAGES_PER_RECORD
                else:
                    self._apply_only(record, now)
                self._count_put_bytes(size + OVERHEAD * count)
        except LogError as exc:
            raise self.translated(exc) from exc
        return end

    def _admit(self, queue: Queue, count: int, largest: int, cost: int) -> None:
        """May these messages be put outside a unit of work, and has the log room for `cost` bytes of record?

        The lock is held; it may be let go of while room is made, so all else is checked afterwards.
        """
        if cost:
            if cost > self.log.space.largest:
                raise self._too_much(cost, queue, self.log.space.largest)
            if self.state.holding:
                self.log_held()
            self._reserve(cost, 0, self.log.space.for_gets)
        if self.refusal is not None:
            self.check()
        if queue.depth + count > queue.unchecked_depth or largest > queue.max_length:
            self._check_put(queue, largest, count)

    def _check_put(self, queue: Queue, largest: int, count: int) -> None:
        """May these messages be put? Notes events. The lock is held; it is let go of only to refuse them."""
        try:
            verbs.check_put(queue, largest, count)
        except QueueFull:
            self.events.is_full(queue, self.clock.wall_us())
            self.put_events_locked()
            raise
        except Inhibited as exc:
            self._inhibited(exc)
            raise
        if queue.armed:
            self.events.rises(queue, count, self.clock.wall_us())
            self.attention = True

    def _inhibited(self, exc: Inhibited) -> None:
        """Note the event of a put or get that is refused. The lock is held; it may be let go of."""
        self.events.inhibited(exc.reason, exc.name)
        self.put_events_locked()

    # ---- events

    def put_events(self) -> None:
        """Put the events that have been noted."""
        if self.events.pending and self.refusal is None:
            with contextlib.suppress(LogError), self.lock:
                self.put_events_locked()

    def put_events_locked(self) -> None:
        """Put the events that have been noted; one that can't be put is dropped.

        The lock is held, and may be let go of meanwhile.
        """
        pending = self.events.pending
        while pending:
            event = pending.popleft()
            queue = self.state.queues.get(event.queue)
            if queue is not None:
                with contextlib.suppress(MQError):
                    self._put_event(queue, event)

    def _put_event(self, queue: Queue, event: Event) -> None:
        now = self.clock.wall_us()
        body = event.encode(self.name, now)
        descriptor = verbs.describe(queue, {"format": "MQSTR"}, self._expires)
        [head] = descriptor.heads(self._id_prefix, self._new_numbers(1), now)
        if descriptor.persistent:
            self.log_held()
            if not self.log.reserve(self.log.cost(QUEUE_PLACE_BYTES + len(head) + len(body)), self.log.space.for_gets):
                return
        self.check()
        verbs.check_put(queue, len(body))
        entry = Entry(head, body, descriptor.persistent, descriptor.priority, descriptor.expires)
        record = Put(queue.id, queue.next_sequence, head, body, entry)
        if descriptor.persistent:
            self._append_and_apply(record, now)
        else:
            self._apply_only(record, now)
        self._count_put_bytes(len(head) + len(body) + OVERHEAD)

    def _put_in_unit(self, unit: Uow, run: PutRun, size: int, largest: int) -> None:
        """Put messages in a unit of work, if that may be; `size`: their bytes, `largest`: the longest body."""
        queue, count = run.queue, len(run.heads)
        cost = size + PUT_COST * count if run.persistent else 0
        most = self.log.space.largest if unit.xid is None else self.log.space.largest_doubtful
        if cost > most:
            raise self._too_much(cost, queue, most)
        try:
            if self.lock.locked():
                let_holder_go_on(self.lock)
            with self.lock:  # which may be let go of while room is made
                promise = self._room_for_calls(unit, count, cost, queue, size)
                if queue.depth + count > queue.unchecked_depth or largest > queue.max_length:
                    self._check_put(queue, largest, count)
                try:
                    self.state.hold_puts(unit, run, size)
                    if cost:
                        self._hold_back(unit, cost, promise)
                except BaseException as exc:  # what interrupts this leaves counts that do not fit together
                    self._on_failure(exc)
                    raise
                if unit.held_back >= self._max_held_bytes:
                    self._log_calls(unit)
        except LogError as exc:
            raise self.translated(exc) from exc

    def _too_much(self, size: int, queue: Queue, most: int) -> MessageTooBig:
        return MessageTooBig(
            f"{size} bytes of messages for queue {queue.name!r} can't be logged at once: the log has "
            f"{self.log.space.capacity} bytes, and a call may fill {most} of them at the most; put less at once, or "
            f"give it more or larger files (LogPrimaryFiles, LogSecondaryFiles)",
            reason=Reason.MSG_TOO_BIG_FOR_Q_MGR,
            name=queue.name,
        )
