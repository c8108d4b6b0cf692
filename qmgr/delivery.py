"""Messages that were delivered to a client which has neither acknowledged nor refused them yet.

They are locked for it in memory, and nothing of that is logged: after a crash they are there again. An acknowledgement
makes a get of them, in a unit of work of the client's or at once; a refusal puts them back with a higher backout count.
"""

from collections.abc import Callable, Iterable

import attrs

from qmgr.engine import Engine
from qmgr.entry import Entry
from qmgr.message import Message
from qmgr.queue import Queue
from qmgr.threads import this_thread
from qmgr.verbs import ANY
from recovery.uows import Uow

NO_LIMIT = 1 << 62  # bytes


@attrs.frozen(eq=False)
class Delivery:
    """A message that is held for a client."""

    message: Message
    queue: Queue
    entry: Entry


class Watch:
    """Stands in line at a queue; `wake` is called once, by any thread, when there may be a message.

    That is under the queue manager's lock, so `wake` only passes the word on.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._woken = False

    def set(self) -> None:
        self._woken = True
        self._wake()

    def is_set(self) -> bool:
        return self._woken


class Holder:
    """What is held for one client. Thread-safe."""

    def __init__(self, engine: Engine, owner: str) -> None:
        self._engine = engine
        self._unit = engine.new_holder(owner, this_thread())

    def take(
        self, queue: str, limit: int, watch: Watch | None = None, most_bytes: int = NO_LIMIT
    ) -> tuple[list[Delivery], int]:
        """Up to `limit` messages, and the LSN that must be safe before they are sent.

        Their bodies come to `most_bytes` at most, but for the last, which may exceed that. Where there is no message,
        `watch` stands in line. Raises Inhibited, UnknownQueue, Unavailable (2161) …, WouldWait: `requeue_next` first.
        """
        found_on, held, force = self._engine.hold(self._unit, queue, limit, watch, most_bytes)
        return [Delivery(message, found_on, entry) for entry, message in held], force

    def requeue_next(self, queue: str, limit: int) -> None:
        """Move away what `take` would move first, since it was backed out too often; may wait for room in the log.

        Raises UnknownQueue, ResourceProblem …
        """
        self._engine.requeue_next(queue, limit, ANY, self._unit.owner, self._unit.thread)

    def remove_watch(self, queue: str, watch: Watch) -> None:
        """The watch stands in line no more; if it was woken, the message is for the next."""
        self._engine.remove_waiter(queue, watch)

    def accept(self, deliveries: Iterable[Delivery], unit: Uow | None) -> int:
        """Acknowledge them: they are got, in the unit of work or, without one, at once.

        Returns the LSN to force before the reply; 0: nothing to force. Raises Mistake (2209) when one is not held any
        more, ResourceProblem: then they are still held.
        """
        return self._engine.accept_later(self._unit, _pairs(deliveries), unit)

    def reject(self, deliveries: Iterable[Delivery], *, late: bool = False) -> int:
        """Refuse them: they return to their places with a higher backout count.

        Returns the LSN to force before the reply, or 0. Raises Mistake (2209) when one is not held any more, unless
        they are refused `late`: then it is passed over.
        """
        return self._engine.reject_later(self._unit, _pairs(deliveries), late=late)

    def still(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Those of them that are still held."""
        gets = self._unit.gets
        return [one for one in deliveries if (one.queue, one.entry) in gets]

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """They return to their places as if nobody had had them."""
        self._engine.release(self._unit, _pairs(deliveries))

    def close(self) -> None:
        """The client is gone: what it had may be what ended it, so it returns with a higher backout count.

        Raises WouldWait: then close it again where room in the log may be waited for.
        """
        self._engine.give_up(self._unit)


def _pairs(deliveries: Iterable[Delivery]) -> list[tuple[Queue, Entry]]:
    return [(delivery.queue, delivery.entry) for delivery in deliveries]
