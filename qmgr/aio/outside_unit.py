"""OutsideUnit: what an asynchronous client knows of a unit of work that the daemon carries out."""

import asyncio
import contextlib
from collections.abc import Iterator

from qmgr import wire
from qmgr.aio.channel import Pool
from qmgr.aio.pages import Answers
from qmgr.errors import BackedOut, MQError, Reason, Unavailable, UnitOfWorkEnded
from qmgr.remote import PARENTS_UNIT, maybe_in_doubt
from recovery.records import Xid
from recovery.uows import ACTIVE, BACKED_OUT, COMMITTED, PREPARED, UowState


class OutsideUnit:
    """A unit of work that the daemon carries out, as far as we know it. It begins with its first call."""

    def __init__(self, xid: Xid | None) -> None:
        self.xid = xid
        self.task = asyncio.current_task()  # that has begun it
        self.pool: Pool | None = None  # the session that it is one of
        self.session_number = 0  # the number by which the daemon and we call it in this session
        self.begin_flag = wire.BEGIN  # of every request until the first answer
        self.asked = False  # a request has been made: the daemon may know it
        self.number = 0
        self.since_lsn = 0  # it has logged nothing before
        self.known_state = ACTIVE  # its state, as far as we have made it
        self.evicted = False  # rolled back by the queue manager, and not backed out by its application yet
        self.outcome_unknown = False  # the answer to its commit was lost, or that the queue manager has stopped in it
        self.sends: list[bytes] = []  # puts that have not gone yet
        self.sends_bytes = 0
        self.sending = asyncio.Lock()
        self.sends_lost = False  # nobody knows what of those that have gone was put, or not all is wanted any more
        self.ending = False  # a commit or prepare is on its way: nothing more can be sent
        self.end_asked = 0  # COMMIT or PREPARE: the daemon may have done it, and nobody has heard whether
        self.get_lost = False  # backed out, since nobody knows what a get in it that was cancelled has taken

    @property
    def state(self) -> UowState:
        return BACKED_OUT if self.evicted else self.known_state

    @property
    def _is_open(self) -> bool:
        return self.known_state is ACTIVE and not self.outcome_unknown

    @property
    def named(self) -> str:
        """What error texts call it; it has no number before its first call."""
        return f"unit of work {self.number}" if self.number else "this unit of work"

    def ask_for_outcome(self) -> str:
        """What errors say where the answer to its commit was lost."""
        return (
            f"the connection was lost, or the queue manager has stopped, in the commit of unit of work {self.number}; "
            f"outcome({self.number}) tells whether it was committed"
        )

    def check_ours(self) -> None:
        """Raises Unavailable (2018) in a forked child: its parent has it."""
        if self.pool is not None and self.pool.link.forked:
            raise Unavailable(PARENTS_UNIT, reason=Reason.HCONN_ERROR)

    def check(self) -> None:
        """May it go on? Raises UnitOfWorkEnded, BackedOut, Unavailable (2018, 2009)."""
        self.check_ours()
        broken = self.pool is not None and self.pool.link.broken
        unheard = self.end_asked if broken and self.known_state is ACTIVE else 0
        if self.outcome_unknown or unheard == wire.COMMIT:
            raise UnitOfWorkEnded(self.ask_for_outcome())
        if self.get_lost and self.known_state is ACTIVE:
            raise BackedOut(
                f"unit of work {self.number} was backed out when a get in it was cancelled and its answer was lost, as "
                f"it always is over TLS; back it out and start it again"
            )
        if self.known_state in (COMMITTED, BACKED_OUT):
            raise UnitOfWorkEnded(f"{self.named} is {self.known_state.value}; begin another one")
        if self.pool is not None and broken:
            if self.known_state is PREPARED or unheard:
                raise maybe_in_doubt(self.number, self.pool.name)
            raise BackedOut(f"{self.named} was backed out when its connection was lost; back it out and start it again")

    def check_whole(self) -> None:
        """As `check`, for a call that counts on all that was sent."""
        self.check()
        if self.sends_lost:
            raise BackedOut(
                f"a call of {self.named} was cancelled or failed, and whether what was sent before was put is not "
                f"known; back it out and start it again"
            )

    def backout_request(self) -> bytes:
        """The request that backs it out.

        Where no commit or prepare was asked for, the daemon also refuses a first request that is still on its way then.
        """
        never = self.known_state is ACTIVE and not self.end_asked
        return wire.request(wire.BACKOUT, wire.BEGIN if never else self.begin_flag, self.session_number)

    def add_put(self, put: bytes) -> None:
        """One more put that is to go."""
        self.check_whole()
        if self.ending:
            raise UnitOfWorkEnded(f"{self.named} is being committed or prepared; begin another one")
        self.sends.append(put)
        self.sends_bytes += len(put)

    @contextlib.contextmanager
    def no_more_sends(self) -> Iterator[None]:
        """In the block it is committed or prepared with what was sent before; who sends now hears that it is late.

        Where it is left before that was asked for, or it is refused, the unit of work goes on.
        """
        self.ending = True
        try:
            yield
        except BaseException as exc:
            self.ending = bool(self.end_asked) and not isinstance(exc, MQError)
            raise

    def decode(self, answers: list[bytes]) -> Answers:
        """The frames of an answer with their heads. Raises the error that it is."""
        found = []
        for answer in answers:
            head = wire.decode_reply(answer)
            if head.begun is not None and not self.number:
                self.number, self.since_lsn = head.begun
                self.begin_flag = 0
            if head.op == wire.ERROR:
                error = wire.error(answer, head)
                self.evicted = self.evicted or isinstance(error, BackedOut)
                raise error
            found.append((answer, head))
        return found
