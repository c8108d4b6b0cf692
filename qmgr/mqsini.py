"""mqs.ini: the queue managers on a data path, and which is the default; edits leave foreign lines and comments alone.

A queue manager exists when its own qm.ini does; this file only lists, so a missing one is an empty one. The functions
on text are pure; `add` and `remove` change the file at `path` under a lock, old or new after any crash.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from logger.clock import Clock, SystemClock
from logger.disk import Disk
from logger.errors import LogInUse
from logger.whole_files import make_dirs, read_whole, replace_file
from qmgr import ini
from qmgr.errors import IniError, InUse
from qmgr.ini import INDENT, complaint, lines

MANAGER = "QUEUEMANAGER"
LOG_DEFAULTS, LOG_DEFAULT_PATH = "LOGDEFAULTS", "LOGDEFAULTPATH"
DEFAULT = "DEFAULTQUEUEMANAGER"
LOG_STANZA = re.compile(r"stanza Log\b")
LOCK_TRIES = 200
LOCK_PAUSE_S = 0.02


@attrs.frozen(kw_only=True)
class Entry:
    """One QueueManager stanza: the queue manager's directory is `<prefix>/qmgrs/<directory>`."""

    name: str
    prefix: str
    directory: str


@attrs.frozen(kw_only=True)
class MqsIni:
    """What the file says."""

    entries: tuple[Entry, ...] = ()
    default: str | None = None

    def find(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.name == name), None)


@attrs.define
class _Stanza:
    """Where a stanza stands in the text, from its first line to its last attribute, and what it says."""

    name: str
    first: int
    last: int
    attributes: dict[str, str] = attrs.field(factory=dict)  # by upper-case name

    def get(self, name: str) -> str | None:
        return self.attributes.get(name.upper())


# Text


def parse(text: str | bytes, path: str) -> MqsIni:
    """What the text of an mqs.ini says; raises IniError. Unknown stanzas and attributes are passed over."""
    entries: dict[str, Entry] = {}
    default = None
    for stanza in _stanzas(text, path):
        if stanza.name == MANAGER:
            entry = Entry(
                name=_required(stanza, "Name", path),
                prefix=_required(stanza, "Prefix", path),
                directory=_required(stanza, "Directory", path),
            )
            if entry.name in entries:
                raise complaint("AMQ7076", path, stanza.first, f"queue manager {entry.name!r} is listed twice.")
            entries[entry.name] = entry
        elif stanza.name == DEFAULT:
            default = _required(stanza, "Name", path)
    return MqsIni(entries=tuple(entries.values()), default=default)


def log_defaults(text: str | bytes, path: str) -> dict[str, Any]:
    """What LogDefaults says of the logs of new queue managers, as `qmgr.create` takes it. Raises IniError.

    It has the attributes of the stanza Log of a qm.ini, but for LogPath: LogDefaultPath is the directory above that.
    """
    said, directory = _as_qm_ini(text, path)
    if not said:
        return {}
    for exc in complaints(text, path):
        raise exc
    log = ini.parse(said, path)
    return {
        "log_type": log.log.log_type.value,
        "log_primary_files": log.log.primary_files,
        "log_secondary_files": log.log.secondary_files,
        "log_file_pages": log.log.file_pages,
        "log_buffer_pages": log.log.buffer_pages,
        "log_write_integrity": log.log.write_integrity.value,
        "log_management": log.log_management.value,
        "log_sync": log.log.sync.value,
        "log_sync_interval": log.log.sync_interval_ms,
    } | ({"log_path": directory} if directory else {})


def complaints(text: str | bytes, path: str) -> list[IniError]:
    """All that is wrong with LogDefaults, or what is wrong first with the text as a whole."""
    try:
        said, _ = _as_qm_ini(text, path)
    except IniError as exc:
        return [exc]
    wrong = ini.complaints(said, path) if said else []
    return [
        IniError(LOG_STANZA.sub("stanza LogDefaults", exc.sentence).replace(" LogPath,", " LogDefaultPath,"))
        for exc in wrong
    ]


def _as_qm_ini(text: str | bytes, path: str) -> tuple[str, str]:
    """A qm.ini that says of its log what LogDefaults does, in the same lines; and LogDefaultPath. "": it says nothing.

    Raises IniError.
    """
    stanzas = [stanza for stanza in _stanzas(text, path) if stanza.name == LOG_DEFAULTS and stanza.attributes]
    if not stanzas:
        return "", ""
    first, last = stanzas[0].first, stanzas[-1].last
    said, directory, inside = ["" for _ in range(last)], "", False  # each in its line, for what may be wrong with it
    for line in lines(text, path):
        if line.value is None:
            inside = line.name.upper() == LOG_DEFAULTS
        elif inside and line.name.upper() == LOG_DEFAULT_PATH:
            directory = line.value
        elif inside and line.name.upper() == "LOGPATH":
            text = "LogPath is of one queue manager; LogDefaultPath is the directory above those of all."
            raise complaint("AMQ7075", path, line.number, text)
        elif inside:
            said[line.number - 1] += f"{line.name}={line.value} "
    said[first - 1] = f"Log: {said[first - 1]}"
    return "\n".join([*said, f"LogPath={directory or '/'}"]), directory


def with_entry(text: str, entry: Entry, path: str) -> str:
    """`text` with a stanza for `entry`, in place of the one it had."""
    _check(entry)
    if parse(text, path).find(entry.name) == entry:
        return text
    said = {"Name": entry.name, "Prefix": entry.prefix, "Directory": entry.directory}
    stanza = ["QueueManager:", *(f"{INDENT}{name}={value}" for name, value in said.items())]
    return _appended(without_entry(text, entry.name, path, keep_default=True), stanza)


def without_entry(text: str, name: str, path: str, *, keep_default: bool = False) -> str:
    """`text` without the stanza of `name`, nor the default stanza if that names it."""
    kinds = {MANAGER} if keep_default else {MANAGER, DEFAULT}
    return _without(text, [s for s in _stanzas(text, path) if s.name in kinds and s.get("Name") == name])


def with_default(text: str, name: str, path: str) -> str:
    """`text` with `name` as the default queue manager."""
    if parse(text, path).default == name:
        return text
    kept = _without(text, [s for s in _stanzas(text, path) if s.name == DEFAULT])
    return _appended(kept, ["DefaultQueueManager:", f"{INDENT}Name={name}"])


def _stanzas(text: str | bytes, path: str) -> list[_Stanza]:
    found: list[_Stanza] = []
    for line in lines(text, path):
        if line.value is None:
            found.append(_Stanza(line.name.upper(), line.number, line.number))
        elif not found:
            raise complaint("AMQ6162", path, line.number, f"attribute {line.name!r} stands before the first stanza.")
        elif found[-1].name in (MANAGER, DEFAULT) and found[-1].get(line.name) is not None:
            raise complaint("AMQ7076", path, line.number, f"attribute {line.name} was given in this stanza already.")
        else:
            found[-1].attributes[line.name.upper()] = line.value
            found[-1].last = line.number
    return found


def _required(stanza: _Stanza, name: str, path: str) -> str:
    value = stanza.get(name)
    if not value:
        raise complaint("AMQ7006", path, stanza.first, f"the stanza that begins here has no {name}; it is required.")
    return value


def _check(entry: Entry) -> None:
    for name, value in attrs.asdict(entry).items():
        if not value or not value.isprintable() or value != value.strip() or set("#;") & set(value):
            raise IniError(f"AMQ7076E: mqs.ini can't hold the {name} {value!r}: use printable characters, no # or ;.")


def _without(text: str, stanzas: list[_Stanza]) -> str:
    dropped = {number for stanza in stanzas for number in range(stanza.first, stanza.last + 1)}
    return "\n".join(line for number, line in enumerate(text.split("\n"), 1) if number not in dropped)


def _appended(text: str, stanza: list[str]) -> str:
    gap = "" if not text or text.endswith("\n") else "\n"
    return text + gap + "\n".join(stanza) + "\n"


# The file


def read(disk: Disk, path: str) -> MqsIni:
    """What the file at `path` says; nothing, if there is none. Raises IniError and OSError."""
    return parse(read_whole(disk, path), path) if disk.exists(path) else MqsIni()


def defaults(disk: Disk, path: str) -> dict[str, Any]:
    """`log_defaults` of the file at `path`; nothing, if there is none. Raises IniError and OSError."""
    return log_defaults(read_whole(disk, path), path) if disk.exists(path) else {}


def add(disk: Disk, path: str, entry: Entry, *, default: bool = False, clock: Clock | None = None) -> None:
    """List `entry`, and make it the default if `default`."""

    def change(text: str) -> str:
        listed = with_entry(text, entry, path)
        return with_default(listed, entry.name, path) if default else listed

    _edit(disk, path, change, clock)


def remove(disk: Disk, path: str, name: str, *, clock: Clock | None = None) -> None:
    """List `name` no more."""
    _edit(disk, path, lambda text: without_entry(text, name, path), clock)


def _edit(disk: Disk, path: str, change: Callable[[str], str], clock: Clock | None) -> None:
    make_dirs(disk, path.rsplit("/", 1)[0])
    with locked(disk, path + ".lock", clock or SystemClock()):
        before = read_whole(disk, path) if disk.exists(path) else b""
        parse(before, path)  # refuses what it can't read: an edit must not lose it
        after = change(before.decode("utf-8")).encode("utf-8")
        if after != before:
            replace_file(disk, path, after)
        else:  # the process that made this change may have been killed before it was durable
            disk.sync_dir(disk.real_path(path).rsplit("/", 1)[0])


@contextlib.contextmanager
def locked(disk: Disk, path: str, clock: Clock) -> Iterator[None]:
    """Own the lock file `path`, named as the file that is changed, waiting a few seconds for another command."""
    pause = threading.Event()
    for attempt in range(LOCK_TRIES):
        try:
            lock = disk.lock(path, disk.process())
            break
        except LogInUse as exc:
            if attempt == LOCK_TRIES - 1:
                name = path.rpartition("/")[2].removesuffix(".lock")
                raise InUse(f"{name} is being changed: {exc}. Try again later.", holder=exc.holder) from exc
            clock.wait(pause, LOCK_PAUSE_S)
    try:
        yield
    finally:
        lock.release()
