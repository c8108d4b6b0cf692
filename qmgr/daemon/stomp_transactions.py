"""The transactions of one STOMP connection: each is a unit of work, with its sends and what it has acknowledged."""

from collections.abc import Callable

import attrs

from qmgr.delivery import Delivery
from qmgr.errors import Mistake, Reason, SyncpointLimit, UnitOfWorkEnded
from qmgr.logged import Outcome
from qmgr.manager import UnitOfWork
from qmgr.session import Session

MAX_TRANSACTIONS = 100  # that a connection may have open at a time
MAX_REFUSED = 5000  # NACKs of all of them
MAX_NAME_CHARS = 255


@attrs.define
class Transaction:
    unit: UnitOfWork
    refused: list[Delivery] = attrs.Factory(list)  # what it has NACKed: given back when it ends, either way
    kept: int = 0  # bytes of bodies that it has acknowledged or NACKed, which stay in memory


class Transactions:
    """The open transactions of one connection, by the names that the client gave them."""

    def __init__(self, session: Session, release_kept: Callable[[int], None]) -> None:
        """`release_kept(bytes)` is called at the end of a transaction, with the size of the bodies that it has kept."""
        self._session = session
        self._release_kept = release_kept
        self._open: dict[str, Transaction] = {}
        self._refused = 0  # messages that are held until their transactions end

    def begin(self, name: str) -> None:
        """Raises Mistake (2128: it is open already; 2017: too many), Unavailable (2161)."""
        if name in self._open:
            raise Mistake(f"transaction {name[:100]!r} is open already", reason=Reason.UOW_IN_PROGRESS)
        if len(self._open) >= MAX_TRANSACTIONS:
            text = f"a STOMP connection may have {MAX_TRANSACTIONS} transactions open at a time; end some of them"
            raise Mistake(text, reason=Reason.HANDLE_NOT_AVAILABLE)
        if not 1 <= len(name) <= MAX_NAME_CHARS:
            raise Mistake(f"the name of a transaction has 1 to {MAX_NAME_CHARS} characters, not {len(name)}")
        self._open[name] = Transaction(self._session.begin())

    def named(self, name: str) -> Transaction:
        """Raises UnitOfWorkEnded where there is none: late and repeated frames have no effect."""
        transaction = self._open.get(name)
        if transaction is None:
            raise UnitOfWorkEnded(f"no transaction {name[:100]!r} is open; BEGIN begins one")
        return transaction

    def refuse(self, transaction: Transaction, deliveries: list[Delivery]) -> None:
        """NACKs in a transaction; the messages stay held until that ends. Raises SyncpointLimit (2024) for too many."""
        transaction.refused += deliveries
        self._refused += len(deliveries)
        if self._refused > MAX_REFUSED:
            text = f"the transactions of a STOMP connection may have {MAX_REFUSED} NACKs together; end some of them"
            raise SyncpointLimit(text)

    def commit(self, name: str) -> Outcome:
        """Commit; the LSN to force before the client hears of it, or work for a thread. Raises BackedOut (2003)."""
        transaction = self._end(name)
        return self._give_back(transaction, self._session.commit_later(transaction.unit))

    def abort(self, name: str) -> Outcome:
        """Back out: messages that it has acknowledged return to their queues. Returns the same as `commit`."""
        transaction = self._end(name)
        return self._give_back(transaction, self._session.backout_later(transaction.unit))

    def _end(self, name: str) -> Transaction:
        transaction = self.named(name)
        del self._open[name]
        self._refused -= len(transaction.refused)
        self._release_kept(transaction.kept)
        return transaction

    def _give_back(self, transaction: Transaction, lsn: int) -> Outcome:
        """Give back what was NACKed; the unit of work has ended, at `lsn`, whatever becomes of that."""
        if not transaction.refused:
            return lsn
        back = self._session.reject_without_waiting(transaction.refused, late=True)
        return max(lsn, back) if isinstance(back, int) else back
