"""Where the commands meet the queue manager: finding one, asking who has it, starting it for the time of a command."""

import contextlib
import json
from collections.abc import Iterator

import qmgr
from logger import control
from logger.disk import PosixDisk, read_whole
from logger.errors import LogError
from qmgr import ini, locations, mqsini
from qmgr.cli.command import NAME_ERROR, NOT_AVAILABLE, Failure
from qmgr.errors import IniError, InUse
from qmgr.locations import Location
from qmgr.objects import NAME, mangle, unmangle
from recovery import checkpoint
from recovery.errors import RecoveryError

DISK = PosixDisk()

NO_DAEMON = """\
This version has no daemon: the command starts the queue manager in this process, with all that a restart does,
and ends it in order. While another process has it, the command says which, and ends with 40; that process can
use qm.transactions() and qm.resolve()."""
OWNED = "the queue manager is not available: another process has it"


def named(name: str | None, data_path: str | None) -> str:
    """`name`, or that of the default queue manager."""
    if name:
        return name
    default = registry(data_path).default
    if default is None:
        raise Failure(NAME_ERROR, "AMQ7048E", "no queue manager is named, and there is no default one.")
    return default


def registry(data_path: str | None) -> mqsini.MqsIni:
    """What mqs.ini lists."""
    return mqsini.read(DISK, f"{locations.data_root(data_path)}/mqs.ini")


def exists(name: str, data_path: str | None) -> bool:
    return DISK.exists(locations.find(name, data_path).ini)


def known(name: str, data_path: str | None, *, code: int = NAME_ERROR, amq: str = "AMQ7048E") -> Location:
    """Where the queue manager is; ends the command with `code` when there is none of that name."""
    location = locations.find(name, data_path)
    if not DISK.exists(location.ini):
        raise Failure(code, amq, f"queue manager {name!r} does not exist: there is no {location.ini}.")
    return location


@contextlib.contextmanager
def started(name: str, data_path: str | None) -> Iterator[qmgr.QueueManager]:
    """The queue manager, started in this process for as long as the block lasts and ended in order."""
    known(name, data_path)
    try:
        manager = qmgr.start(name, data_path=data_path, background=False)
    except InUse as exc:
        text = f"queue manager {name!r} is not available to this command: {exc.holder or 'another process'} has it."
        raise Failure(NOT_AVAILABLE, "AMQ8146E", text) from exc
    with manager:
        yield manager


def names(data_path: str | None) -> list[str]:
    """The queue managers that exist, in order."""
    directory = f"{locations.data_root(data_path)}/qmgrs"
    found = {unmangle(each): each for each in DISK.list(directory) if DISK.exists(f"{directory}/{each}/qm.ini")}
    return sorted(name for name, each in found.items() if NAME.fullmatch(name) and mangle(name) == each)


def log_dir(location: Location) -> str:
    """The log directory that qm.ini names; raises IniError."""
    return ini.parse(read_whole(DISK, location.ini), location.ini).log.path


def queue_names(location: Location) -> dict[int, str]:
    """The names of queues by number as of the last checkpoint, as far as it can be read."""
    try:
        _, state = control.read(DISK, f"{log_dir(location)}/{control.NAME}")
        _, catalogue = checkpoint.read_files(DISK, location.data_dir, state.log_id)[0]
    except (LogError, RecoveryError):
        return {}
    definitions = [json.loads(line).get("definition") for line in catalogue]
    return {each["id"]: each["name"] for each in definitions if each}


def status(location: Location) -> str:
    """What it is doing, in the words of dspmq."""
    if locations.running(location, DISK):
        return "Running"
    try:
        _, state = control.read(DISK, f"{log_dir(location)}/{control.NAME}")
    except (IniError, LogError, OSError):
        return "Status not available"
    return "Ended normally" if state.clean_end else "Ended unexpectedly"


def number_text(number: int) -> str:
    """A unit of work's number as dspmqtrn shows it and rsvmqtrn takes it."""
    return f"0,{number}"
