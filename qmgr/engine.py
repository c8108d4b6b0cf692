"""The engine: the queue manager at work, with what clients hold, browses and clears on top of puts and gets.

A browse, as a get, shows no message whose commit is not safe yet: where it meets one it waits for that force too.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import attrs

from logger.errors import LogError
from qmgr import verbs
from qmgr.due import Waiter
from qmgr.entry import COPY, READY, Entry
from qmgr.errors import MQError, ObjectInUse, UnknownQueue
from qmgr.gets import CHUNK_MESSAGES, Gets, select
from qmgr.ids import BEFORE_ALL, Position
from qmgr.message import Message, decode
from qmgr.queue import Queue
from qmgr.verbs import ANY, Wanted
from recovery.uows import ACTIVE, Uow

Held = tuple[Entry, Message]

CHUNK_BYTES = 64 << 10


def first_chunk(entries: Iterable[Entry]) -> list[Entry]:
    """The first of them: as many as are handled at once."""
    few: list[Entry] = []
    size = 0
    for entry in entries:
        few.append(entry)
        size += len(entry.body)
        if len(few) == CHUNK_MESSAGES or size >= CHUNK_BYTES:
            break
    return few


def _within(queue: Queue, entries: Iterable[Entry], position: Position, before: int) -> Iterator[Entry]:
    """Of these entries those behind a position that were put before the sequence `before`."""
    for entry in entries:
        if queue.position(entry) > position and entry.sequence < before:
            yield entry


def _position(entry: Entry, order: str) -> Position:
    return (0 if order == "FIFO" else -entry.priority), entry.sequence


def _not_yet_seen(entries: Iterable[Entry], behind: list[tuple[str, Position]]) -> Iterator[Entry]:
    for entry in entries:
        looked_at = [_position(entry, order) <= position for order, position in behind]
        if not any(looked_at):
            yield entry


@attrs.define
class _Clearing:
    """How far a clear has come: up to `position` in `order`, of the messages that were put before `before`."""

    queue: Queue
    before: int  # a sequence
    order: str
    position: Position = BEFORE_ALL


class Engine(Gets):
    """The queue manager at work, from the end of restart to its end."""

    def advance_log(self) -> None:
        """Go on in the next extent of the log. Raises ResourceProblem when it has no room for that."""
        self.check()
        with self.translating(), self.lock:
            while not self.log.advance(self.clock.wall_us(), self.log.space.usual_for_gets):
                self._find_room(self.log.buffer.extent_room(), self.log.space.usual_for_gets, spare=True)

    # ---- messages that a client holds before it acknowledges them; see delivery.py

    def hold(
        self, holder: Uow, name: Any, limit: int, waiter: Waiter | None, most_bytes: int
    ) -> tuple[Queue, list[Held], int]:
        """Lock up to `limit` messages for the holder; returns (queue, messages, the LSN to force before they are sent).

        Their bodies come to `most_bytes` at most, but for the last, which may exceed that. Where there is no message,
        `waiter` stands in line: it is set, once, when there may be one.
        """
        queue = self._known(name)
        moved = 0
        if queue.definition.backout_threshold:
            moved = self.requeue_next(name, limit, ANY, holder.owner, holder.thread)
        try:
            with self.lock:
                self.check_not_ending()
                if holder.state is not ACTIVE:  # its client is gone
                    return queue, [], moved
                held, force = self._hold_some(holder, queue, limit, most_bytes)
                if held:
                    if queue.waiters.line:  # it may have been woken for more than it takes
                        queue.waiters.wake_one()
                elif waiter is not None:
                    queue.waiters.add(waiter)
                    self.check()  # who stopped it may have woken everyone in line just before
        except LogError as exc:
            raise self.translated(exc) from exc
        return queue, held, max(moved, force)

    def _hold_some(self, holder: Uow, queue: Queue, limit: int, most_bytes: int) -> tuple[list[Held], int]:
        """Lock the messages, at a time as many as surely fit: what is looked at comes into memory. The lock is held."""
        held: list[Held] = []
        force = 0
        while limit > 0 and most_bytes > 0:
            few = min(limit, max(1, most_bytes // max(1, queue.max_length)))
            try:
                found = self._get_locked(holder, queue, few, ANY, False)
            except (MQError, LogError):
                if held:
                    break  # the next call says so
                raise
            if found is None:
                break
            held += zip(found.entries, found.messages, strict=True)
            force = max(force, found.force)
            limit -= few
            most_bytes -= sum(len(message.body) for message in found.messages)
            if len(found.entries) < few:
                break
        return held, force

    # ---- clear and browse

    def clear(self, name: Any) -> int:
        """Remove all messages that are there, those too that could not be got now; return how many.

        What comes meanwhile stays, and what others are faster to get is theirs. Raises UnknownQueue, Damaged,
        ObjectInUse when a unit of work holds some.
        """
        self.check()
        with self.lock:
            queue = verbs.local_queue(self.state, name)
            if queue.uncommitted:
                text = f"queue {name!r} is used by open units of work (messages: {queue.uncommitted})"
                raise ObjectInUse(text, name=name)
            clearing = _Clearing(queue, queue.next_sequence, queue.definition.delivery_sequence)
        removed = end = 0
        with self.translating():
            try:
                while True:
                    with self.lock:
                        entries = self._next_to_clear(clearing)
                        end = max(end, self._log_gets(clearing.queue, entries))
                    if not entries:
                        return removed
                    removed += len(entries)
            finally:
                self.log.force(end)  # what has gone has gone for good, whatever came then

    def _next_to_clear(self, clearing: _Clearing) -> list[Entry]:
        """The next messages to remove, for which room in the log is made; none: all are gone. The lock is held."""
        self._room_for_gets(None, CHUNK_MESSAGES)
        queue = clearing.queue
        if queue.deleted:
            there = self.state.by_id.get(queue.id)  # it may have been recreated
            if there is None:
                raise UnknownQueue(f"queue {queue.name!r} was deleted while it was being cleared", name=queue.name)
            queue = clearing.queue = there
            clearing.position = BEFORE_ALL
        if queue.damaged:
            raise verbs.damaged(queue)
        if queue.definition.delivery_sequence != clearing.order:
            clearing.position, clearing.order = BEFORE_ALL, queue.definition.delivery_sequence
        try:
            found = islice(queue.ready(CHUNK_MESSAGES), CHUNK_MESSAGES)
            entries = [entry for entry in found if entry.sequence < clearing.before]
            if not entries:  # there are others in front
                entries = first_chunk(queue.after(clearing.position, clearing.before))
                if entries:
                    clearing.position = _position(entries[-1], clearing.order)
        except BaseException as exc:
            raise self.unreadable(queue, exc) from exc.__cause__
        return entries

    def browse(self, name: Any, wanted: Wanted) -> Iterator[Message]:
        """The messages that can be got and were there when this was called, in the order of delivery.

        Each is looked at when its turn comes. `wanted` says ids, if anything.
        """
        queue = self._known(name)
        with self.lock:
            verbs.check_get(queue)
            before = queue.next_sequence
        return self._browse(queue, before, wanted)

    def _browse(self, queue: Queue, before: int, wanted: Wanted) -> Iterator[Message]:
        position, order = BEFORE_ALL, queue.definition.delivery_sequence
        behind: list[tuple[str, Position]] = []  # how far it had come in each order, where that was altered meanwhile
        while True:
            with self.lock:
                verbs.check_get(queue)
                if queue.definition.delivery_sequence != order:
                    behind.append((order, position))
                    position, order = BEFORE_ALL, queue.definition.delivery_sequence
                try:
                    if not wanted.selective:
                        found = queue.after(position, before)
                    else:
                        found = select(queue, wanted, behind=position)
                        found = _within(queue, found, position, before)
                    entries = first_chunk(found if not behind else _not_yet_seen(found, behind))
                except BaseException as exc:
                    raise self.unreadable(queue, exc) from exc.__cause__
            if not entries:
                return
            now = self.steady.now_us()
            expired = [entry for entry in entries if 0 < entry.expires <= now]
            if expired:  # as by a get: what nobody sees should not fill the queue
                with self.translating(), self.lock:
                    self.expire_locked(queue, expired)
            for entry in entries:
                self.check()
                body, there = entry.body, entry.status == READY
                if entry.status == COPY:
                    with self.lock:
                        there = self._claim(queue, entry) is not None
                now = self.steady.now_us()
                if not there or 0 < entry.expires <= now:
                    continue
                if entry.lsn > self.log.safe:
                    self.force(entry.lsn)
                yield decode(entry.head, body, queue.name, entry.backouts, now)
            position = _position(entries[-1], order)
