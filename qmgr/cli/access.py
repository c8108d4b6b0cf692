"""Where the commands meet the queue manager: finding one, asking who has it, starting it for the time of a command."""

import argparse
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import qmgr
from logger import claims, control
from logger.clock import SystemClock
from logger.config import LogConfig, LogType
from logger.errors import LogError
from logger.history import History
from logger.posix_disk import PosixDisk
from logger.whole_files import read_whole
from qmgr import ini, life, locations, mqsini, published, stopped
from qmgr.cli.command import ENDING, NAME_ERROR, NOT_AVAILABLE, UNEXPECTED, Failure, complain
from qmgr.errors import IniError, InUse, command_in
from qmgr.life import Stage
from qmgr.locations import Location
from qmgr.missing import remains
from qmgr.objects import NAME, is_mangled, unmangle
from recovery import checkpoint
from recovery.dump import ReaderOf
from recovery.errors import RecoveryError

DISK = PosixDisk()
CLOCK = SystemClock()
MAX_POLLS = 20  # for what a running queue manager publishes
POLL_S = 0.1
STALE_S = 10.0  # after which what was published is said to be old

WHERE_IT_RUNS = """\
If the queue manager runs as a daemon, the daemon does the work. If it is not running, the command starts it in this
process, with all that a restart does, and ends it in order. If an application has started it (qmgr.start), the command
says which one and exits with 40; that application can call {method} itself."""
SILENT = "the queue manager is not available: it does not say how it stands"
OWNED = "the queue manager is not available: another process has it"
NO_ANSWER = f"{OWNED}, or it does not answer"
NO_DATA_PATH = "the data path {} is not there; mount its file system, or name another one (QMGR_DATA_PATH)."
NOT_THERE = "the queue manager is not available: it is not running, does not answer, or another process has it"
ENDING_CODE = {ENDING: "the queue manager is ending"}  # the code of each command that a daemon does

if TYPE_CHECKING:
    Manager = qmgr.QueueManager | qmgr.Connection  # what a command works on: the same methods and errors
else:
    Manager = object  # a command that only looks loads neither: that takes longer than to look


def named(name: str | None, data_path: str | None) -> str:
    """`name`, or that of the default queue manager."""
    if name:
        return name
    default = registry(data_path).default
    if default is None:
        root = locations.data_root(data_path)
        if not DISK.exists(root):
            raise Failure(NAME_ERROR, "AMQ7048E", NO_DATA_PATH.format(root))
        way = f"name one (dspmq shows them), or make it the default one in {root}/mqs.ini"
        raise Failure(NAME_ERROR, "AMQ7048E", f"no queue manager is named, and there is no default one; {way}.")
    return default


def add_name(parser: argparse.ArgumentParser) -> None:
    """Which queue manager: with -m or without, and read by `chosen_name`."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    one.add_argument("name", metavar="QMgrName", nargs="?", help="the queue manager, without -m")


def chosen_name(args: argparse.Namespace) -> str:
    return named(args.m or args.name, args.data_path)


def registry(data_path: str | None) -> mqsini.MqsIni:
    """What mqs.ini lists."""
    return mqsini.read(DISK, f"{locations.data_root(data_path)}/mqs.ini")


def exists(name: str, data_path: str | None) -> bool:
    return DISK.exists(locations.find(name, data_path).ini)


def known(name: str, data_path: str | None, *, code: int = NAME_ERROR, amq: str = "AMQ7048E") -> Location:
    """Where the queue manager is; ends the command with `code` when there is none of that name."""
    location = locations.find(name, data_path)
    if not DISK.exists(location.ini):
        text = f"queue manager {name!r} does not exist: there is no {location.ini}; dspmq shows those that do."
        if not DISK.exists(location.data_root):
            text = NO_DATA_PATH.format(location.data_root)
        what = remains(DISK, location)
        raise Failure(code, amq, f"{what}." if what else text)
    return location


def there(name: str, data_path: str | None, *, amq: str = "AMQ7048E") -> Location:
    """Where the queue manager is, as `known`.

    Also one that a daemon runs and whose qm.ini was removed meanwhile: it can still be worked with.
    """
    location = locations.find(name, data_path)
    said = life.path(location)
    return location if DISK.exists(said) and DISK.locked_by(said) is not None else known(name, data_path, amq=amq)


def add_offline(parser: argparse.ArgumentParser) -> None:
    """The option of commands that IBM MQ has for running queue managers only."""
    text = "if the queue manager is not running, run it in this process until the command ends"
    parser.add_argument("--offline", action="store_true", help=text)


@contextlib.contextmanager
def running(name: str, data_path: str | None, *, offline: bool, timeout: float = 0) -> Iterator[Manager]:
    """A connection to its daemon; with `offline`, where there is no daemon, the queue manager as `started` has it.

    `timeout`: seconds to wait for each answer of the daemon; 0: as long as any client. Ends the command where neither
    can be had.
    """
    location = there(name, data_path)
    if not offline and not _has_daemon(location):
        holder = locations.running(location, DISK)
        if holder is not None:
            raise _owned(name, holder)
        way = f"start it (strmqm {name}), or run it for the time of this command only (--offline)"
        raise Failure(NOT_AVAILABLE, "AMQ8146E", f"queue manager {name!r} is not running; {way}.")
    with started(name, data_path, timeout) as manager:
        yield manager


@contextlib.contextmanager
def started(name: str, data_path: str | None, timeout: float = 0) -> Iterator[Manager]:
    """A connection to its daemon, or, where there is none, the queue manager itself, run here while the block lasts."""
    if _has_daemon(there(name, data_path)):
        limit: dict[str, Any] = {"timeout": timeout} if timeout else {}
        with qmgr.connect(name, data_path=data_path, **limit) as connection:
            yield connection
        return
    try:
        manager = qmgr.start(name, data_path=data_path, background=False)
    except InUse as exc:
        raise _owned(name, exc.holder or "another process") from exc
    with manager:
        yield manager


def still_runs(name: str, exc: InUse) -> Failure:
    """How a command ends that needs the queue manager to have ended."""
    return Failure(NOT_AVAILABLE, "AMQ7005E", held(name, exc))


def held(name: str, exc: InUse) -> str:
    if command_in(exc.holder):
        return f"queue manager {name!r} is being worked on: {exc.holder} has it. Try again when that is done."
    return f"queue manager {name!r} is running: {exc.holder or 'another process'} has it. End it first."


def _owned(name: str, holder: str) -> Failure:
    text = f"queue manager {name!r} is not available to this command: {holder} has it."
    return Failure(NOT_AVAILABLE, "AMQ8146E", text)


def _has_daemon(location: Location) -> bool:
    _await_start(location)
    return DISK.locked_by(life.path(location)) is not None


def _await_start(location: Location) -> life.Note | None:
    """Wait a moment for a daemon that is starting: it lets nobody in yet. What it says then, if there is one."""
    for _ in range(MAX_POLLS):
        note = life.daemon(DISK, location)
        if note is None or note.stage is not Stage.STARTING:
            break
        pause(POLL_S)
    return note


def current_picture(name: str, data_path: str | None) -> published.Picture:
    """How the queue manager stands: what its owner publishes, or what its files say when nobody runs it."""
    location = there(name, data_path)
    note, holder = _await_start(location), None
    if note is not None and note.stage is Stage.STARTING:  # what was published may be of an earlier process
        text = f"queue manager {name!r} is starting; it says how it stands once it has started. Try again then."
        raise Failure(NOT_AVAILABLE, "AMQ8146E", text)
    for _ in range(MAX_POLLS):  # one that has just been started has not published anything yet
        holder = locations.running(location, DISK)
        if holder is None:
            return stopped.picture(DISK, CLOCK, location)
        found = published.read(DISK, CLOCK, location)
        if found is not None and found.alive:
            if found.age > STALE_S:
                complain(
                    f"AMQ9009W: this is how it stood {found.age:.0f} seconds ago; {holder} says nothing since then: "
                    f"its disk is full, or it is stopped or hangs; its error log, in {location.errors}, may say more."
                )
            return found.picture
        pause(POLL_S)
    raise Failure(
        NOT_AVAILABLE,
        "AMQ8146E",
        f"queue manager {name!r} is run by {holder}, which does not say how it stands: {location.published} is not "
        f"there, old or damaged; it is written every second, unless the disk is full or the queue manager was started "
        f"with background=False.",
    )


def last_published(name: str, data_path: str | None) -> published.Picture | None:
    """What the last owner of a queue manager that nobody runs has published, if it can be read."""
    found = published.read(DISK, CLOCK, known(name, data_path))
    return found.picture if found is not None else None


@contextlib.contextmanager
def damage_explained(name: str, data_path: str | None) -> Iterator[None]:
    """Where something is missing in what was published, as after an edit, end the command and name the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        path = known(name, data_path).published
        why = f"{path} is damaged ({exc!r}); delete it, its owner writes it anew every second."
        raise Failure(UNEXPECTED, "AMQ9010E", why) from exc


def pause(seconds: float) -> None:
    CLOCK.wait(threading.Event(), seconds)


def names(data_path: str | None) -> list[str]:
    """The queue managers that exist, or that run though their qm.ini was removed, in order."""
    return [name for name in _directories(data_path) if _may_exist(locations.find(name, data_path))]


def _may_exist(location: Location) -> bool:
    try:
        return DISK.exists(location.ini) or runs(location)
    except OSError:  # its disk does not answer, say: it must not hide the others
        return True


def without_ini(data_path: str | None) -> Iterator[str]:
    """A sentence for each queue manager without a qm.ini, its data being away or in part left over: what to do."""
    listed = {entry.name for entry in registry(data_path).entries if NAME.fullmatch(entry.name)}
    for name in sorted(listed.union(_directories(data_path))):
        with contextlib.suppress(OSError):  # one that can't be read hides none of the others
            if not exists(name, data_path) and (what := remains(DISK, locations.find(name, data_path))):
                yield what


def _directories(data_path: str | None) -> list[str]:
    """The names that directories for queue managers stand for, in order."""
    return sorted(map(unmangle, filter(is_mangled, DISK.list(f"{locations.data_root(data_path)}/qmgrs"))))


def log_dir(location: Location) -> str:
    """The log directory that qm.ini names; raises IniError."""
    return log_config(location).path


def log_config(location: Location) -> LogConfig:
    """The Log stanza of qm.ini; raises IniError."""
    return ini.parse(read_whole(DISK, location.ini), location.ini).log


def history_reader(log_dir: str, config: LogConfig | None) -> ReaderOf:
    """What reads all of a linear log, archived and compressed extents too; `config` may name the archive."""
    directories = [f"{log_dir}/active", config.archive_directory if config is not None else f"{log_dir}/archive"]
    return lambda state: History(DISK, directories, state.log_id, state.extent_bytes).reader(state)


def archive_away(log_dir: str, config: LogConfig | None) -> str:
    """What to do where the log in `log_dir` has used its archive and that is not there, as a sentence; else ""."""
    archive = config.archive_directory if config is not None else f"{log_dir}/archive"
    return claims.away(DISK, archive, control.read(DISK, f"{log_dir}/{control.NAME}")[1].log_id, log_dir)


def log_type(log_dir: str) -> LogType:
    """What the control file says; raises LogDamaged."""
    return control.read(DISK, f"{log_dir}/{control.NAME}")[1].log_type


def queue_names(location: Location) -> dict[int, str]:
    """The names of queues by number as of the last checkpoint, as far as it can be read."""
    try:
        _, state = control.read(DISK, f"{log_dir(location)}/{control.NAME}")
        _, catalogue = checkpoint.read_files(DISK, location.data_dir, state.log_id)[0]
    except (LogError, RecoveryError, OSError):  # it is not the log, which can be read without
        return {}
    definitions = [json.loads(line).get("definition") for line in catalogue]
    return {each["id"]: each["name"] for each in definitions if each}


def runs(location: Location) -> bool:
    """Whether anybody has the queue manager, a daemon or an application."""
    return DISK.locked_by(life.path(location)) is not None or locations.running(location, DISK) is not None


def status(location: Location) -> str:
    """What it is doing, in the words of dspmq."""
    note = life.last(DISK, location)
    if DISK.locked_by(life.path(location)) is not None:
        if note is not None:
            return note.stage
        # One that has the queue manager has said what it does: that is damaged, or the disk had no room for it.
        return Stage.RUNNING if locations.running(location, DISK) is not None else Stage.STARTING
    if (holder := locations.running(location, DISK)) is not None:  # an application has it, or a command its files
        return "Status not available" if command_in(holder) else Stage.RUNNING
    try:
        _, state = control.read(DISK, f"{log_dir(location)}/{control.NAME}")
    except (IniError, LogError, OSError):
        return "Status not available"
    said = note.stage if note is not None and note.epoch in (state.epoch, 0) else None  # 0: it was still starting
    if state.clean_end:
        return said if said is Stage.ENDED_AT_ONCE else Stage.ENDED
    return "Ended pre-emptively" if said is Stage.KILLING else Stage.FAILED


def number_text(number: int) -> str:
    """A unit of work's number as dspmqtrn shows it and rsvmqtrn takes it."""
    return f"0,{number}"
