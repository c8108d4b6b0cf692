"""Who a STOMP client is: by login and passcode, by its certificate or, on a loopback address only, whoever comes.

CONNECT and CONNECTED are one question and one answer, so there is no place for SCRAM.
"""

import contextlib
import getpass

import attrs

from qmgr.configuration import ListenerConfig
from qmgr.daemon.admission import Admission
from qmgr.errors import NotAuthorized
from qmgr.sasl import EXTERNAL, PLAIN
from qmgr.session import AllRights, Rights

NONE = "NONE"


@attrs.frozen
class Credentials:
    """What a client says of itself, and what its certificate says."""

    login: str
    passcode: str | None
    certified: str | None
    address: str


class Login:
    """The ways that one listener offers."""

    def __init__(self, config: ListenerConfig, admission: Admission) -> None:
        self._ways = config.authentication
        self._admission = admission

    @property
    def open(self) -> bool:
        """Is everybody let in, with nothing to check?"""
        return NONE in self._ways

    def rights(self, said: Credentials) -> Rights:
        """What the client may do. It takes some time. Raises NotAuthorized, which the error log hears of."""
        if self.open:
            return AllRights(_own_user())
        try:
            return self._admission.rights(self._user(said))
        except NotAuthorized as exc:
            self._admission.refused(said.login, exc, said.address)
            raise

    def _user(self, said: Credentials) -> str:
        if said.login and said.passcode is not None and PLAIN in self._ways:  # some write both headers, empty
            self._admission.check_password(said.login, said.passcode)
            return said.login
        if EXTERNAL in self._ways:
            reply = self._admission.exchange(EXTERNAL, said.certified).step(said.login.encode())
            if reply.user is not None:
                return reply.user
        raise NotAuthorized("CONNECT has no login and passcode, and this listener asks for them", name=said.login)


def _own_user() -> str:
    """Whose process this is; "" where the system has no name for it."""
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return ""
