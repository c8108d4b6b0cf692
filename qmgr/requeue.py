"""Messages that nobody can work on: those that were backed out too often are moved away, dead letters are put.

A get that asks for it (`backout_requeue`) moves a message whose backout count has reached the queue's threshold
(BOTHRESH) to its backout queue (BOQNAME), or else as a dead letter to DEADQ, in the get's own unit of work; so it is on
one of the two queues, whatever crashes. Where neither takes it, it stays and is got as any other.

A get that would find nothing else moves it in a unit of work apart. For the get raises NoMessageAvailable, which mostly
leaves a `with` block, and so backs out the get's own unit: the message would be back, one backout older, each time.
"""

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from logger.errors import LogError
from qmgr import deadletter, verbs
from qmgr.entry import Entry
from qmgr.errors import BackedOut, MQError, Reason, ResourceProblem, UnknownQueue
from qmgr.logged import EngineContext, WouldWait
from qmgr.message import HEAD, Message, check_body, check_head, standing, with_format
from qmgr.puts import Puts
from qmgr.queue import Queue
from qmgr.state import PutRun
from qmgr.threads import Alive
from qmgr.units import QUEUE_PLACE_BYTES
from qmgr.verbs import Wanted
from recovery.records import GET_COST, PUT_COST, Put
from recovery.uows import ACTIVE, Uow

MESSAGES_PER_MOVE = 2  # one got and one put
UNIT_MESSAGES = 64  # that are moved in one unit of work, before others have the lock
EXPIRED_CHUNK = 1000  # expired messages that a get looks at before others have the lock
UNIT_BYTES = 64 << 10  # of messages that are moved in one unit of work: the log may have no room for more


class Requeue(Puts):
    """Moves messages from queue to queue."""

    def __init__(self, given: EngineContext) -> None:
        super().__init__(given)
        self.say = given.say

    # ---- what the engine has

    @abstractmethod
    def _choose(
        self, unit: Uow | None, queue: Queue, limit: int, wanted: Wanted, now: int, look_at: int, may_read: bool
    ) -> tuple[list[Entry], list[Entry]]: ...

    @abstractmethod
    def expire_locked(self, queue: Queue, entries: list[Entry], kept: int = 0) -> bool: ...

    @abstractmethod
    def _claim(self, queue: Queue, entry: Entry) -> Entry | None: ...

    # ---- messages that were backed out too often

    def requeues(self, name: Any) -> bool:
        """May there be messages on the queue that were backed out too often?"""
        queue = self.state.queues.get(name) if isinstance(name, str) else None
        return queue is None or queue.definition.backout_threshold > 0

    def requeue_next(self, name: str, limit: int, wanted: Wanted, owner: str, thread: Alive | None) -> int:
        """Move those of the next `limit` messages that were backed out too often, in units of work of their own.

        Returns the LSN to force before anybody hears of it, or 0. Raises WouldWait in a thread that may not
        wait for room: what was moved by then stays moved, at an LSN that is not told.
        """
        end, more = 0, True
        while more:
            unit = self.new_unit(owner, thread)
            try:
                queue = verbs.known_queue(self.state, name)
                with self.lock:
                    more = self._requeue_next(unit, queue, limit, wanted, may_read=True)
                if unit.puts:
                    end = max(end, self.commit_later(unit))
            except LogError as exc:
                raise self.translated(exc) from exc
            except BackedOut as exc:  # of a unit that the caller does not know: what was moved is back
                text = f"the log of queue manager {self.name!r} has no room for moving messages from queue {name!r}"
                raise ResourceProblem(text, name=name) from exc
            except WouldWait:
                if unit.puts:
                    with contextlib.suppress(BackedOut):  # then they are back
                        self.commit_later(unit)
                raise
            except BaseException:
                if unit.puts and unit.state is ACTIVE and self.refusal is None:
                    self.back_out_later(unit)
                raise
            finally:
                if not unit.puts:  # it has moved nothing: no trace of it stays
                    self.state.uows.forget(unit.number, None)
        return end

    def _give_way_after(self, gone: int) -> int:
        """Let others have the lock if so many expired messages were removed since they had; how many since then."""
        if gone < EXPIRED_CHUNK:
            return gone
        self.log.changed.unlocked(self.clock.give_way)
        return 0

    def _takes_only_poison(self, unit: Uow, queue: Queue, limit: int, wanted: Wanted, may_read: bool) -> bool:
        """Was all that the get would take backed out too often, and a few behind that? The lock is held."""
        threshold = queue.definition.backout_threshold
        if not threshold or unit.state is not ACTIVE or not queue.definition.get_enabled:
            return False
        if queue.damaged or queue.deleted:
            return False
        now = self.steady.now_us() if queue.expiring else 0
        for many in (limit, limit + UNIT_MESSAGES):  # mostly the first is enough
            chosen, _ = self._choose(unit, queue, many, wanted, now, many, may_read)
            if not chosen or any(one.backouts < threshold for one in chosen):
                return False
        return True

    def _requeue_next(self, unit: Uow, queue: Queue, limit: int, wanted: Wanted, *, may_read: bool) -> bool:
        """Move what a get of `limit` messages would take and was backed out too often, until it would take others.

        True: there may be more, which come when others have had the lock. It is held; it may be let go of while room is
        made.
        """
        moved, stays = 0, set[int]()
        look_at, full, gone = limit, True, 0  # as in `_get_locked`
        most = max(1, min(UNIT_MESSAGES, self.max_uncommitted // 4))
        while threshold := queue.definition.backout_threshold:
            if not queue.definition.get_enabled or queue.damaged or queue.deleted:
                return False
            now = self.steady.now_us() if queue.expiring else 0
            chosen, expired = self._choose(unit, queue, limit, wanted, now, look_at, may_read)
            if expired and len(chosen) < limit and (full or not chosen):  # the get removes them, and looks behind them
                if self.expire_locked(queue, expired, kept=2 * self.log.cost(GET_COST * limit) if chosen else 0):
                    look_at = max(look_at, 2 * limit)
                    gone = self._give_way_after(gone + len(expired))
                elif chosen:
                    full = False
                elif look_at > len(expired):
                    return False
                else:
                    look_at = 2 * len(expired) + limit
                continue
            too_often = [one for one in chosen if one.backouts >= threshold and one.sequence not in stays]
            if not too_often:
                return False
            for entry in too_often[: most - moved]:
                if self._requeue(unit, queue, entry):
                    moved += 1
                    if unit.put_bytes >= UNIT_BYTES:
                        return True
                else:
                    stays.add(entry.sequence)
            if moved >= most:
                return True
        return False

    def _requeue(self, unit: Uow, queue: Queue, entry: Entry) -> bool:
        """Move one message away, if any queue takes it, and if it is still there."""
        refused = []
        if self.max_uncommitted < MESSAGES_PER_MOVE:
            refused.append(f"a unit of work may have {self.max_uncommitted} messages (MAXUMSGS), and a move is two")
        for name, dead in self._requeue_targets(queue) if not refused else ():
            try:
                target = self._known_target(name, queue)
                head, body = entry.head, entry.body
                if dead:
                    head, body = self._as_dead_letter(head, body, queue.name, Reason.BACKOUT_THRESHOLD_REACHED)
                size = len(head) + len(body)
                cost = size + PUT_COST + GET_COST if entry.persistent else 0
                if cost > self.log.space.largest:
                    refused.append(f"{name}: the log has no room for it")
                    continue
                self._check_put(target, len(body), 1)
            except MQError as exc:
                refused.append(f"{name}: {exc}")
                continue
            self._room_for_calls(unit, MESSAGES_PER_MOVE, cost, target, size)
            there = self._claim(queue, entry)
            if there is None:
                return True
            try:
                self._check_put(target, len(body), 1)  # again, since the lock may have been let go of
            except MQError as exc:
                refused.append(f"{name}: {exc}")
                continue
            copy = PutRun(target, [head], [body], entry.persistent, entry.priority, entry.expires > 0)
            self._move(unit, queue, there, copy, size)
            return True
        self._say_stuck(queue, entry, refused)
        return False

    def _requeue_targets(self, queue: Queue) -> Iterator[tuple[str, bool]]:
        """The queues that may take the message, and whether it is a dead letter there."""
        if queue.definition.backout_queue:
            yield queue.definition.backout_queue, False
        if self.state.qmgr.dead_letter_queue:
            yield self.state.qmgr.dead_letter_queue, True

    def _known_target(self, name: str, queue: Queue) -> Queue:
        target = verbs.known_queue(self.state, name)
        if target.name != name:
            verbs.check_alias(self.state, name, target, put=True)
        if target is queue:
            raise UnknownQueue("it is on that queue already", name=name)
        return target

    def _move(self, unit: Uow, queue: Queue, entry: Entry, copy: PutRun, size: int) -> None:
        """Get the one and put the other, of `size` bytes; there is room for it. The lock is held."""
        try:
            self.state.hold_puts(unit, copy, size)
            self.state.hold_get(unit, queue, entry)
            if entry.persistent:
                cost = size + PUT_COST + GET_COST
                self._hold_back(unit, cost, self.promise_of(unit, cost))
        except BaseException as exc:  # what interrupts this leaves counts that do not fit together
            self._on_failure(exc)
            raise
        if unit.held_back >= self._max_held_bytes:
            self._log_calls(unit)

    def _say_stuck(self, queue: Queue, entry: Entry, refused: list[str]) -> None:
        """Say once why no message that was backed out too often leaves the queue."""
        now = queue.definition, self.state.qmgr.dead_letter_queue
        if queue.stuck != now:
            queue.stuck = now
            text = "; ".join(refused) or "it has no backout queue (BOQNAME), and there is no dead-letter queue (DEADQ)"
            self.say("AMQ9030", name=queue.name, count=entry.backouts, text=text)

    # ---- dead letters

    def _as_dead_letter(self, head: bytes, body: bytes, queue: str, reason: int) -> tuple[bytes, bytes]:
        form = head[HEAD.size : HEAD.size + standing(head).form].decode()
        header = deadletter.header_of(reason, queue, self.name, form, self.clock.wall_us())
        return with_format(head, deadletter.FORMAT), header.encode() + body

    def dead_letter_later(self, unit: Uow | None, message: Message, reason: int) -> tuple[Message, int]:
        """Put the message to the dead-letter queue; the LSN as for a put. Raises UnknownQueue where there is none."""
        self.check()
        check_head(message.head)
        check_body(message.body)
        name = self.state.qmgr.dead_letter_queue
        if not name:
            raise UnknownQueue(
                f"queue manager {self.name!r} has no dead-letter queue; name one: qm.alter(dead_letter_queue=...)",
                name=self.name,
            )
        queue = verbs.known_queue(self.state, name)
        if queue.name != name:
            verbs.check_alias(self.state, name, queue, put=True)
        head, body = self._as_dead_letter(message.head, message.body, message.queue, reason)
        size = len(head) + len(body)
        expires = standing(head).expires
        end = 0
        if unit is not None:
            run = PutRun(queue, [head], [body], int(message.persistent), message.priority, expires > 0)
            self._put_in_unit(unit, run, size, len(body))
        else:
            entry = Entry(head, body, int(message.persistent), message.priority, expires)
            cost = self.log.cost(QUEUE_PLACE_BYTES + size) if message.persistent else 0
            now = self.clock.wall_us()
            end = self._put_now(Put(queue.id, 0, head, body, entry), queue, 1, len(body), size, cost, now)
        return Message(body, head, queue.name, 0, message.expiry), end
