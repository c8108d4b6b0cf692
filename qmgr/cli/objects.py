"""Which objects a command's `-t type name` means: types by their MQ names, a trailing `*` in the name."""

from qmgr import QueueManager
from qmgr.cli.command import BAD_ARGUMENTS, Failure

ALL = "*", "all"
QUEUES = "queue", "q", "qlocal", "ql"
DEFINITIONS = "qmgr", "catalog", "ctlg"
_OF_IBM_MQ = """
    authinfo channel chl clntconn clcn clchltab listener lstr namelist nl process prcs qalias qa qmodel qm qremote qr
    service srvc syncfile topic top
"""
ABSENT = tuple(_OF_IBM_MQ.split())  # types of IBM MQ that there are no objects of here
TYPES = f"{', '.join(QUEUES + DEFINITIONS)}, or all (or '*')"


def check_type(text: str) -> str:
    kind = text.lower()
    if kind not in ALL + QUEUES + DEFINITIONS + ABSENT:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"-t was given {text!r}; allowed: {TYPES}.")
    return kind


def queues(manager: QueueManager, kind: str, generic: str) -> list[str]:
    """The names of the queues that are meant."""
    if kind not in ALL + QUEUES:
        return []
    names = [queue.name for queue in manager.queues()]
    if generic.endswith("*"):
        return [name for name in names if name.startswith(generic[:-1])]
    return [name for name in names if name == generic]


def definitions(kind: str) -> bool:
    """Are the definitions meant, too or only?"""
    return kind in ALL + DEFINITIONS
