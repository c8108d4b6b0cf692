"""What becomes of messages that are held for a client: they are got, or refused, or given back; see `delivery.py`.

A holder is a unit of work that is never logged and has no room in the log promised. So to accept or refuse messages,
another unit of work, which is logged as any, takes them over, and the room is promised for that one.
"""

import contextlib
from collections.abc import Callable

from qmgr.entry import Entry
from qmgr.errors import Mistake, MQError, Reason, ResourceProblem
from qmgr.logged import WouldWait
from qmgr.queue import Queue
from qmgr.requeue import Requeue
from qmgr.threads import Alive
from recovery.records import GET_COST
from recovery.uows import ACTIVE, BACKED_OUT, Uow

Pair = tuple[Queue, Entry]
REJECTS_PER_UNIT = 500


class Locks(dict[Pair, None]):
    """What a holder has, in the order in which it came. It is found at once, however much that is."""

    def append(self, pair: Pair) -> None:
        self[pair] = None

    def remove(self, pair: Pair) -> None:
        del self[pair]


class Holding(Requeue):
    """Acknowledgements and refusals."""

    def new_holder(self, owner: str, thread: Alive | None) -> Uow:
        """Begin what holds messages for one client. `give_up` ends it."""
        holder = self.new_unit(owner, thread)
        try:
            holder.for_client = True
            holder.gets = Locks()
            return holder
        except BaseException:
            self.discard_unit(holder)
            raise

    def accept_later(self, holder: Uow, held: list[Pair], unit: Uow | None) -> int:
        """Held messages are got: in the unit of work, or now; the LSN to force before the reply, or 0.

        Raises Mistake when one is not held any more, ResourceProblem; in the client's own unit of work SyncpointLimit,
        too: then all are still held. After any other error they are there for anybody.
        """
        if unit is not None:
            self._take_over(holder, held, unit, len(held))
            return 0
        return self._take_over_and(self.commit_later, holder, held)

    def reject_later(self, holder: Uow, held: list[Pair], *, late: bool = False) -> int:
        """Held messages return to their places with a higher backout count; the LSN to force, or 0.

        Where the log has no room for that they return uncounted. Raises Mistake when one is not held any more; `late`:
        it is passed over, since it is there for anybody already.
        """
        if late:
            held = self._still(holder, held)
        end, lot = 0, min(REJECTS_PER_UNIT, self.max_uncommitted)
        for at in range(0, len(held), lot):
            some = held[at : at + lot]
            try:
                end = max(end, self._take_over_and(self.back_out_later, holder, some))
            except ResourceProblem:
                self.release(holder, some)
            except Mistake:  # one of them is not held any more
                if not late:
                    raise
                self.release(holder, some)
        return end

    def release(self, holder: Uow, held: list[Pair]) -> None:
        """Held messages return to their places as if nobody had had them."""
        with self.lock:
            self.release_locked(holder, held)

    def release_locked(self, holder: Uow, held: list[Pair]) -> None:
        """`release` with the lock held. What is not held any more is passed over."""
        still = self._still(holder, held)
        try:
            for pair in still:
                holder.gets.remove(pair)
                pair[0].give_back(pair[1], count=False)
        except BaseException as exc:  # as below
            self._on_failure(exc)
            raise

    def give_up(self, holder: Uow) -> None:
        """The holder's client is gone: what it has may be what ended it, so it returns with a higher backout count.

        Raises WouldWait in a thread that may not wait for room: what it has then is for a later call.
        """
        if self.refusal is None and holder.state is ACTIVE:
            later = False
            try:
                with contextlib.suppress(MQError):  # nobody is there to be told; what is left belongs to all again
                    self.reject_later(holder, list(holder.gets))
            except WouldWait:
                later = True
                raise
            finally:
                if not later:
                    with self.lock:
                        self.drop_locked(holder)

    def drop_locked(self, holder: Uow) -> None:
        """What it still has returns as if nobody had had it; nothing was ever logged of it, so that is its end."""
        self.release_locked(holder, list(holder.gets))
        holder.state = BACKED_OUT
        self.state.uows.forget(holder.number, None)

    def _take_over_and(self, end: Callable[[Uow], int], holder: Uow, held: list[Pair]) -> int:
        """Have a new unit of work take over held messages, and `end` it; the LSN to force, or 0."""
        unit = self.new_unit(holder.owner, holder.thread)
        try:
            self._take_over(holder, held, unit, 0)
            return end(unit)
        except BaseException:
            if not unit.gets:
                self.state.uows.forget(unit.number, None)
            elif unit.state is ACTIVE and self.refusal is None:  # nobody else knows of it, and could let go of them
                self.back_out_later(unit)
            raise

    def _take_over(self, holder: Uow, held: list[Pair], unit: Uow, counted: int) -> None:
        """Make held messages gets of the unit of work, and promise room in the log for these. Raises Mistake (2209).

        `counted`: how many of them count towards MAXUMSGS: all in a client's own unit of work, else none.
        """
        with self.translating(), self.lock:
            self._room_for_calls(unit, counted, GET_COST * len(held), None, 0)
            if len(self._still(holder, held)) != len(held):
                raise Mistake(
                    "a message that is acknowledged is not held for this client any more; it will be delivered again",
                    reason=Reason.NO_MSG_LOCKED,
                )
            try:
                for pair in held:
                    holder.gets.remove(pair)
                    unit.gets.append(pair)
                    unit.persistent += pair[1].persistent
                cost = GET_COST * sum(pair[1].persistent for pair in held)
                if cost:
                    self._hold_back(unit, cost, self.promise_of(unit, cost))
            except BaseException as exc:  # what interrupts this leaves counts that do not fit together
                self._on_failure(exc)
                raise

    def _still(self, holder: Uow, held: list[Pair]) -> list[Pair]:
        """Those that the holder has: its queue may have been built anew meanwhile, or its client may be gone."""
        return [pair for pair in held if pair in holder.gets]
