"""Which objects a command's `-t type name` means, and what became of them.

Types by their MQ names, a trailing `*` in the name.
"""

from collections.abc import Mapping

from qmgr.cli.access import Manager
from qmgr.cli.command import BAD_ARGUMENTS, Failure, complain, explain
from qmgr.errors import MQError

NO_OBJECTS = 128
ALL = "*", "all"
OF_EITHER_TYPE = "queue", "q"
QUEUES = *OF_EITHER_TYPE, "qlocal", "ql"
ALIASES = "qalias", "qa"
DEFINITIONS = "qmgr", "catalog", "ctlg", "syncfile"
ON_ANY_LOG = "syncfile"  # which IBM MQ makes again from what it knows, not from its log
_OF_IBM_MQ = """
    authinfo channel chl clntconn clcn clchltab listener lstr namelist nl process prcs qmodel qm qremote qr
    service srvc topic top
"""
ABSENT = tuple(_OF_IBM_MQ.split())  # types of IBM MQ that there are no objects of here
TYPES = f"{', '.join(QUEUES + ALIASES + DEFINITIONS)}, or all (or '*')"


def check_type(text: str) -> str:
    kind = text.lower()
    if kind not in ALL + QUEUES + ALIASES + DEFINITIONS + ABSENT:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"-t was given {text!r}; allowed: {TYPES}.")
    return kind


def queues(manager: Manager, kind: str, generic: str) -> list[str]:
    """The names of the queues that are meant."""
    if kind not in ALL + QUEUES:
        return []
    return _meant([queue.name for queue in manager.queues()], generic)


def aliases(manager: Manager, kind: str, generic: str) -> list[str]:
    """The names of the aliases that are meant: their definitions are with those of the queue manager."""
    meant = kind in ALIASES + OF_EITHER_TYPE
    return _meant([alias.name for alias in manager.aliases()], generic) if meant else []


def _meant(names: list[str], generic: str) -> list[str]:
    if generic.endswith("*"):
        return [name for name in names if name.startswith(generic[:-1])]
    return [name for name in names if name == generic]


def name_of(kind: str) -> str:
    """The type under which a command reports the definitions."""
    return {"ctlg": "catalog", "*": "qmgr", "all": "qmgr"}.get(kind, kind)


def definitions(kind: str, name: str | None, manager: str) -> bool:
    """Are the definitions meant (too)? Of all types if `name` is None, ends in `*` or is that of the queue manager."""
    return kind in DEFINITIONS or (kind in ALL and (name is None or name.endswith("*") or name == manager))


class Tally:
    """What became of the objects, a line for each, and the exit code that the command ends with."""

    def __init__(self, codes: Mapping[type[MQError], tuple[int, str]], *, quiet: bool) -> None:
        """`codes`: what may be wrong with one object -> the exit code of it, and the message id."""
        self._codes = codes
        self._quiet = quiet
        self.code = NO_OBJECTS

    @property
    def errors(self) -> tuple[type[MQError], ...]:
        return tuple(self._codes)

    def done(self, text: str) -> None:
        print(text)
        self.code = 0 if self.code == NO_OBJECTS else self.code

    def refused(self, exc: MQError) -> int:
        """Report that an object met one of `errors`; return its exit code."""
        self.code, amq = next(self._codes[kind] for kind in type(exc).__mro__ if kind in self._codes)
        if not self._quiet:
            complain(explain(exc)[1].replace("AMQ8101S", amq))
        return self.code

    def end(self, manager: str, kind: str, generic: str) -> int:
        """The exit code; says so when there was no such object."""
        if self.code == NO_OBJECTS and not self._quiet:
            complain(f"AMQ7085E: queue manager {manager!r} has no object {generic!r} of type {kind}.")
        return self.code
