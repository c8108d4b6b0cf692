"""The transaction table: units of work in flight and in doubt, and the first LSN of each.

    ACTIVE ──prepare──▶ PREPARED ──▶ COMMITTED | BACKED_OUT
    ACTIVE ──▶ COMMITTED | BACKED_OUT

What a unit of work has put and got are lists that the resource manager fills; here nobody looks inside.
"""

import enum
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from recovery.records import Xid


class UowState(enum.Enum):
    """How a unit of work stands. PREPARED: it is in doubt, until it is committed or backed out."""

    ACTIVE = "active"
    PREPARED = "prepared"
    COMMITTED = "committed"
    BACKED_OUT = "backed out"


ACTIVE, PREPARED, COMMITTED, BACKED_OUT = UowState


@attrs.define(eq=False)
class Uow:
    """One unit of work. Moments in microseconds since 1970-01-01 UTC."""

    number: int = 0
    xid: Xid | None = None
    began: int = 0
    owner: str = ""
    thread: Callable[[], object] | None = None  # that began it: gives None once it is over; see qmgr/threads.py
    state: UowState = ACTIVE
    first_lsn: int = 0  # of its first record; 0: nothing is logged
    logged: int = 0  # when its first record was logged
    puts: list[Any] = attrs.Factory(list)  # runs of messages
    put_count: int = 0  # messages in them
    puts_logged: int = 0  # of these runs
    gets: Any = attrs.Factory(list)  # a list; of one `for_client`, what has a list's `append` and `remove`
    touched: dict[int, Any] = attrs.Factory(dict)  # queues that it has put persistent messages to, by number
    lost: dict[int, list[bytes]] = attrs.Factory(dict)  # calls left out as a queue is damaged: by number, the runs
    persistent: int = 0  # messages that it has put and got; counted where it has an xid, and may be rolled forward
    put_bytes: int = 0  # of the persistent ones that it has put, encoded
    unlogged_bytes: int = 0  # of the others
    held_back: int = 0  # the most bytes of log record that its calls take which are not logged yet
    gets_logged: int = 0  # of its gets
    promise: int = 0  # log bytes reserved for its end
    ahead: int = 0  # of them, for calls that are still to come
    for_client: bool = False  # it locks messages that a client has not acknowledged: nothing of it is ever logged
    evicted: bool = False  # rolled back by the queue manager, which its application does not know yet
    waiting: tuple[Any, ...] = ()  # events to `set` when it has ended or is prepared


class UowTable:
    """Units of work by number."""

    def __init__(self) -> None:
        self._units: dict[int, Uow] = {}
        self.get = self._units.get  # the unit of work with a number, or None
        self.forget = self._units.pop  # (number, None): it has ended

    def __len__(self) -> int:
        return len(self._units)

    def __iter__(self) -> Iterator[Uow]:
        return iter(list(self._units.values()))

    def add(self, unit: Uow) -> None:
        self._units[unit.number] = unit

    def logged(self) -> list[Uow]:
        """Those whose records the log must keep, oldest first record first."""
        return sorted((u for u in self if u.first_lsn), key=lambda u: u.first_lsn)

    def in_doubt(self) -> list[Uow]:
        return sorted((u for u in self if u.state is PREPARED), key=lambda u: u.number)

    def by_xid(self, xid: Xid) -> Uow | None:
        return next((u for u in self if u.xid == xid), None)
