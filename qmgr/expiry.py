"""Expiry: messages whose time is over are removed from time to time, a few at a time, so that others go on."""

from collections.abc import Callable

from qmgr.engine import Engine
from qmgr.entry import Entry
from qmgr.queue import Queue
from recovery.errors import QueueDamaged

SWEEP_CHUNK = 100  # expired messages that are removed before others go on


class Sweeper:
    """Removes the expired messages of one queue manager."""

    def __init__(self, engine: Engine, on_failure: Callable[[BaseException], None]) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._on_failure = on_failure

    def sweep(self) -> None:
        """Remove the messages whose time is over, a hundred at a time; in between others go on."""
        engine = self._engine
        with engine.lock:
            queues = list(engine.state.queues.values())
        for queue in queues:
            now = engine.steady.now_us()
            more = queue.expiring > 0
            while more:
                with engine.lock:
                    expired = [] if self._is_away(queue) else self._expired(queue, now)
                more = bool(expired)
                for at in range(0, len(expired), SWEEP_CHUNK):
                    with engine.lock:
                        some = [] if self._is_away(queue) else expired[at : at + SWEEP_CHUNK]
                        more = bool(some) and engine.expire_locked(queue, some)
                    if not more:
                        break
                    self._clock.give_way()

    def _is_away(self, queue: Queue) -> bool:
        return queue.deleted or bool(queue.damaged) or self._engine.refusal is not None

    def _expired(self, queue: Queue, now: int) -> list[Entry]:
        try:
            return queue.sweep(now, SWEEP_CHUNK)
        except QueueDamaged as exc:
            self._engine.state.damage(queue, exc)
        except OSError:  # whoever gets from the queue is told; the next sweep tries again
            pass
        except BaseException as exc:
            if queue.half_changed:
                self._on_failure(exc)
            raise
        return []
