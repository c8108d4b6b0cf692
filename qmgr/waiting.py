"""Waiting in line: who waits for a message of a queue, and who is woken in the place of one that does not take it."""

from typing import Any

from logger.condition import Event
from qmgr.due import Waiter
from qmgr.holding import Holding
from qmgr.queue import Queue
from qmgr.verbs import Wanted
from recovery.uows import Uow


class Waiting(Holding):
    """Puts waiters in line, and takes them out of it."""

    def _add_waiter(self, queue: Queue, waiter: Waiter, unit: Uow | None, wanted: Wanted) -> None:
        """Put the waiter in line. It is set, too, when the unit of work that it waits in is over. The lock is held."""
        queue.waiters.add(waiter, wanted.fits if wanted.selective else None)
        if unit is not None:
            unit.waiting += (waiter,)

    def _remove_waiter(self, queue: Queue | None, waiter: Waiter, unit: Uow | None) -> None:
        """Take the waiter out of the line, if there is one, and from its unit of work. The lock is held."""
        if queue is not None:
            queue.waiters.discard(waiter)
        if unit is not None:
            unit.waiting = tuple(each for each in unit.waiting if each is not waiter)

    def _withdraw_waiter(self, queue: Queue, event: Event, unit: Uow | None) -> None:
        """Leave the line, and let another one have what the event was set for. May be called twice."""
        with self.lock:
            self._remove_waiter(queue, event, unit)
            if event.is_set():
                queue.waiters.wake_one()

    def add_waiter(self, name: Any, waiter: Waiter, unit: Uow | None, wanted: Wanted) -> str:
        """Put the waiter in line: it is set when there may be a message that is wanted, or the unit of work is over.

        Returns the queue's name, for `remove_waiter`. For callers that do not wait inside `get`. Raises Unavailable
        (2161) when the queue manager is ending.
        """
        queue = self._known(name)
        with self.lock:
            self.check_not_ending()
            self._add_waiter(queue, waiter, unit, wanted)
        return queue.name

    def remove_waiter(self, name: str, waiter: Waiter, unit: Uow | None = None, *, looked: bool = False) -> None:
        """Take the waiter out of the line; if it was woken, and has not looked, the next is woken in its place."""
        with self.lock:
            queue = self._behind_alias(name)
            self._remove_waiter(queue, waiter, unit)
            if queue is not None and waiter.is_set() and not looked:
                queue.waiters.wake_one()

    def wake_next(self, name: str) -> None:
        """Wake the next in line: a waiter that may have been woken will not take the message."""
        with self.lock:
            queue = self._behind_alias(name)
            if queue is not None:
                queue.waiters.wake_one()

    def _behind_alias(self, name: str) -> Queue | None:
        alias = self.state.aliases.get(name)
        return self.state.queues.get(name if alias is None else alias.target)
