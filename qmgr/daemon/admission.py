"""Who is let in over a network, and with which rights."""

from collections import Counter
from collections.abc import Callable

from logger.disk import Disk
from qmgr import sasl
from qmgr.authority import UserRights
from qmgr.errors import IniError, NotAuthorized, Reason, Unavailable
from qmgr.infos import Peer
from qmgr.locations import Location
from qmgr.manager import QueueManager
from qmgr.session import Rights, Session
from qmgr.users import Users, Verifier

MAX_DENIALS = 10_000  # counts that are kept, mostly by (user, verb, name); when there are so many, all begin anew
MAX_DENIALS_OF_USER = 100  # of these for one user, whose further denials share one count


class Admission:
    """Authenticates clients, gives them sessions and rights, and reports refusals to the error log."""

    def __init__(self, manager: QueueManager, disk: Disk, location: Location, say: Callable[..., None]) -> None:
        self._manager = manager
        self.users = Users(disk, location)
        self._entropy = disk.entropy
        self._say = say
        self._full: set[str] = set()  # listeners at their limit of clients, as the error log has been told
        self._denials: Counter[tuple[str, ...]] = Counter()  # by (user, verb, name), or (user,) beyond the limit
        self._denials_of: Counter[str] = Counter()  # by user: how many (user, verb, name) are counted

    def open(self, listener: str, peer: Peer, rights: Rights) -> Session:
        """The session of a new client. Raises as `Sessions.open`.

        Where there are too many clients the error log says so, once until there is room again.
        """
        try:
            session = self._manager.sessions.open(peer, rights)
        except Unavailable as exc:
            if exc.reason == Reason.MAX_CONNS_LIMIT_REACHED and listener not in self._full:
                self._full.add(listener)
                self._say("AMQ9513", name=listener, count=self._manager.sessions.limit)
            raise
        self._full.discard(listener)
        return session

    def exchange(self, mechanism: str, certified: str | None = None) -> sasl.Server:
        """The server's side of an authentication. `certified`: who the client is by its certificate."""
        return sasl.server(mechanism, self._find, self._entropy, certified)

    def check_password(self, user: str, password: str) -> None:
        """Raises NotAuthorized."""
        sasl.check_password(self._find, self._entropy, user, password)

    def _find(self, user: str) -> Verifier | None:
        """The user's verifier; None: there is no such user. Raises NotAuthorized where users.json can't be read.

        The client does not hear its path, nor what is wrong with it: that is for the error log.
        """
        try:
            return self.users.find(user)
        except (IniError, OSError) as exc:
            raise NotAuthorized("the queue manager can't tell who you are; its error log says why", name=user) from exc

    def rights(self, user: str) -> UserRights:
        """What the user may do; what is refused is said in the error log."""
        return UserRights(self._manager, user, self._denied)

    def refused(self, user: str, exc: NotAuthorized, address: str) -> None:
        """Report to the error log who was not authenticated; where users.json is at fault, what is wrong with it."""
        why = exc.__cause__ if isinstance(exc.__cause__, IniError | OSError) else exc
        self._say("AMQ9557", user=user, text=str(why), address=address)

    def _denied(self, *, user: str, verb: str, name: str) -> None:
        """Count a denial. The error log gets the 1st, 2nd, 4th, 8th …, lest a client that tries for ever fill it."""
        if len(self._denials) >= MAX_DENIALS:
            self._denials.clear()
            self._denials_of.clear()
        what: tuple[str, ...] = user, verb, name
        if what not in self._denials:
            if self._denials_of[user] < MAX_DENIALS_OF_USER:
                self._denials_of[user] += 1
            else:
                what = (user,)
        self._denials[what] = count = self._denials[what] + 1
        if count & (count - 1) == 0:
            more = f" ({count} times by now)" if count > 1 else ""
            if len(what) == 1:
                more = f" (it is one of {count} others by now)"
            self._say("AMQ8077", user=user, verb=verb, name=name or self._manager.name, more=more)
        self._manager.not_authorized(user, verb, name)
