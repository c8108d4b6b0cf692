"""Carrying out a repair, so that it can be interrupted anywhere and is never half done without knowing it.

In `<data>/repair-<n>/` lie `log/` and `data/`, the originals of what is changed, and `new/`, what they become. When all
of that is durable, `plan` says what goes where: only then is anything changed, each file by a rename. `done` is written
last. A plan without `done` is completed by the next run, unless a file that it changes, or one that it was made of,
has changed meanwhile: an extent that was missing is back, say. One that loses something has to be confirmed again. It
names files relative to the directories of log, data and archive, so that in a copy of these it refers to the copy.
"""

import contextlib
import json
import posixpath
from collections.abc import Generator
from typing import Any

from logger.at_rest import active_path, control_path
from logger.compressed import open_plain
from logger.config import LogConfig
from logger.crc import crc32
from logger.disk import PAGE, Disk
from logger.disk_errors import NO_FILE, NOT_ALLOWED
from logger.errors import LogDamaged
from logger.extent import SPARES
from logger.history import extent_number, index_name
from logger.migrate import copy
from logger.whole_files import make_and_keep_dirs, make_dirs, read_whole, replace_file, size_of
from recovery.checkpoint import NAME, PREVIOUS
from recovery.diagnosis import Change, Examination, Remove, WriteBytes, WriteCopy, WriteCut, WriteMade

CHUNK_BYTES = 1 << 20
DIRECTORY = "repair-"
PLAN = "plan"
PARTS = {"steps", "rests_on", "found", "lost"}  # of a plan, beside the CRC of them all
DONE = "done"
ARCHIVE = "archive"
UNREADABLE = -1  # instead of the size of a file, or for the archive: this user may not look at it


def directories(disk: Disk, data_dir: str) -> list[str]:
    """The directories of repairs so far, oldest first."""
    numbers = [name.removeprefix(DIRECTORY) for name in disk.list(data_dir) if name.startswith(DIRECTORY)]
    return [f"{data_dir}/{DIRECTORY}{n}" for n in sorted(int(n) for n in numbers if n.isdigit())]


def unfinished(disk: Disk, data_dir: str) -> str | None:
    """The directory of a repair that was interrupted while it changed files."""
    for directory in directories(disk, data_dir):
        if disk.exists(f"{directory}/{PLAN}") and not disk.exists(f"{directory}/{DONE}"):
            return directory
    return None


def found(disk: Disk, directory: str) -> list[str]:
    """What was found when the plan in `directory` was made, and what is done about it."""
    said: list[str] = _plan(disk, directory).get("found", [])
    return said


def loses(disk: Disk, directory: str) -> list[str]:
    """What is lost by the plan in `directory`, which somebody had to accept."""
    lost: list[str] = _plan(disk, directory).get("lost", [])
    return lost


def prepare(disk: Disk, data_dir: str, log: LogConfig, examination: Examination) -> str:
    """Save the originals and write the plan; return the directory that has both. Changes nothing yet."""
    directory = _new_directory(disk, data_dir)
    for part in ("log", "log/active", "data", "new"):
        make_dirs(disk, f"{directory}/{part}")
    disk.sync_dir(data_dir)
    changed = [change.path for change in examination.changes]
    for path in dict.fromkeys([*changed, *examination.also_save]):
        if disk.exists(path):
            copy(disk, path, "/".join((directory, *_place(data_dir, log.path, path))))
    steps = []
    for number, change in enumerate(examination.changes):
        new = None if isinstance(change, Remove) else f"new/{number}"
        if new is not None:
            _write(disk, f"{directory}/{new}", change)
        part, path = _place(data_dir, log.path, change.path)
        steps.append(
            {
                "in": part,
                "path": path,
                "before": _crc(disk, change.path),
                "new": new,
                "after": None if new is None else _crc(disk, f"{directory}/{new}"),
            }
        )
    for part in ("log", "log/active", "data", "new"):
        disk.sync_dir(f"{directory}/{part}")
    plan = {
        "steps": steps,
        "rests_on": _rests_on(disk, data_dir, log, set(changed)),
        "found": examination.lines(),
        "lost": examination.lost.lines() if examination.lost else [],
    }
    replace_file(disk, f"{directory}/{PLAN}", json.dumps(plan | {"crc": _crc_of(plan)}, indent=1).encode())
    return directory


def carry_out(disk: Disk, directory: str, log_dir: str) -> None:
    """Do what the plan in `directory` says; doing it twice is as good as once."""
    disk.sync_dir(directory)  # the plan's writer may have been killed before its name was durable
    make_and_keep_dirs(disk, active_path(log_dir))  # it may have gone with the extents in it
    for step in _steps(disk, directory, log_dir):
        path, new = step["path"], step["new"]
        parent = path.rpartition("/")[0]
        forget_index(disk, path)
        if _crc(disk, path) == step["after"]:  # also of a run that was interrupted; perhaps its name is not durable
            disk.sync_dir(parent)
        elif new is None:
            disk.unlink(path)
            disk.sync_dir(parent)
        else:
            copy(disk, new, f"{path}.new")
            disk.rename(f"{path}.new", path)
            disk.sync_dir(parent)
    finish(disk, directory)


def finish(disk: Disk, directory: str) -> None:
    """The repair is over; the originals stay, until somebody deletes them."""
    replace_file(disk, f"{directory}/{DONE}", b"")
    for name in disk.list(f"{directory}/new"):
        disk.unlink(f"{directory}/new/{name}")
    if disk.exists(f"{directory}/new"):
        disk.rmdir(f"{directory}/new")


def _new_directory(disk: Disk, data_dir: str) -> str:
    """A new directory, or one whose plan was not written yet."""
    before = directories(disk, data_dir)
    last = before[-1] if before else ""
    if last and not disk.exists(f"{last}/{PLAN}"):
        for part in ("log/active", "log", "data", "new"):
            for name in disk.list(f"{last}/{part}"):
                if name != "active":
                    disk.unlink(f"{last}/{part}/{name}")
        return last
    number = int(last.rpartition("-")[2]) + 1 if last else 1
    return f"{data_dir}/{DIRECTORY}{number}"


def _place(data_dir: str, log_dir: str, path: str) -> tuple[str, str]:
    """Of which directory a file is, "log" or "data", and its path in that."""
    if path.startswith(f"{log_dir}/"):
        return "log", path[len(log_dir) + 1 :]
    return "data", path.removeprefix(f"{data_dir}/")


def forget_index(disk: Disk, path: str) -> None:
    """Delete the index of an extent that is changed."""
    directory, _, name = path.rpartition("/")
    number = extent_number(name)
    if number is not None and disk.exists(index := f"{directory}/{index_name(number)}"):
        disk.unlink(index)


def _write(disk: Disk, path: str, change: Change) -> None:
    """Make the file that is to take the place of another."""
    if disk.exists(path):
        disk.unlink(path)
    with contextlib.closing(disk.open(path, create=True)) as file:
        at = 0
        with contextlib.closing(_pieces(disk, change)) as pieces:
            for piece in pieces:
                file.write(at, piece)
                at += len(piece)
        file.sync()


def _pieces(disk: Disk, change: Change) -> Generator[bytes, None, None]:
    """What that file is to hold."""
    match change:
        case WriteBytes():
            yield change.data
        case WriteMade():
            yield change.make()
        case WriteCopy():
            with contextlib.closing(open_plain(disk, change.source)) as original:
                for at in range(0, original.size(), CHUNK_BYTES):
                    yield original.read(at, CHUNK_BYTES)
        case WriteCut():
            header = change.header
            yield header.encode() + bytes(PAGE * SPARES)
            left = header.extent_bytes
            with contextlib.closing(change.evidence.up_to(header.sequence, change.end)) as pieces:
                for piece in pieces:
                    yield piece
                    left -= len(piece)
            for at in range(0, left, CHUNK_BYTES):
                yield bytes(min(CHUNK_BYTES, left - at))


def _plan(disk: Disk, directory: str) -> dict[str, Any]:
    """What was planned. Raises LogDamaged: files may be half changed, of which only this says how they were."""
    path = f"{directory}/{PLAN}"
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
        plan: dict[str, Any] = json.loads(read_whole(disk, path))
        crc = plan.pop("crc", None)  # a plan of an older version has none
        if plan and plan.keys() <= PARTS and crc in (None, _crc_of(plan)):
            return plan
    raise LogDamaged(
        f"{path} is damaged, which says what a repair that was interrupted has still to change; put what lies in "
        f"{directory}/log and {directory}/data, the originals, back into the directories of log and data, move "
        f"{directory} away, and repair again",
        path=path,
    )


def _crc_of(plan: dict[str, Any]) -> int:
    return crc32(json.dumps(plan).encode())


def _steps(disk: Disk, directory: str, log_dir: str) -> list[dict[str, Any]]:
    """What the plan says, with whole paths: in the data directory that `directory` is in, and in `log_dir`."""
    steps: list[dict[str, Any]] = _plan(disk, directory)["steps"]
    places = {"data": directory.rpartition("/")[0], "log": log_dir}
    for step in steps:  # a plan of an older version has whole paths
        step["path"] = posixpath.join(places[step.get("in", "data")], step["path"])
        step["new"] = step["new"] and posixpath.join(directory, step["new"])
    return steps


def fits(disk: Disk, directory: str, log: LogConfig) -> bool:
    """Can the plan be completed? Each file is what it was, or is to become, and all else that it rests on the same.

    Raises OSError where that can't be told: a plan that is half done and not completed may leave the log without an
    extent, whose only copy is among the originals then.
    """
    steps = _steps(disk, directory, log.path)
    if any(_crc(disk, step["path"]) not in (step["before"], step["after"]) for step in steps):
        return False
    seen = _rests_on(disk, directory.rpartition("/")[0], log, {step["path"] for step in steps})
    rests_on: dict[str, int] = _plan(disk, directory).get("rests_on", seen)  # a plan of an older version does not say
    return _comparable(seen, rests_on) == _comparable(rests_on, seen)


def _comparable(mine: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Without what the user who made the plan, or who is to complete it, may not look at: that is no other for it."""
    hidden = {place for place, value in (*mine.items(), *other.items()) if value == UNREADABLE}
    return {
        place: value
        for place, value in mine.items()
        if place not in hidden and not (ARCHIVE in hidden and place.startswith(f"{ARCHIVE}/"))
    }


def _rests_on(disk: Disk, data_dir: str, log: LogConfig, changed: set[str]) -> dict[str, int]:
    """What a plan was made of, but for the files that it changes: by place the CRC, of what is in the archive the size.

    A file that is not there is not among them, so that it is seen when it comes. Raises OSError.
    """
    active, archive = active_path(log.path), log.archive_directory
    paths = [control_path(log.path), f"{data_dir}/{NAME}", f"{data_dir}/{PREVIOUS}", *_extents(disk, active)]
    seen = {"/".join(_place(data_dir, log.path, path)): _crc(disk, path) for path in paths if path not in changed}
    try:
        for path in _extents(disk, archive):
            seen[f"{ARCHIVE}/{path.rpartition('/')[2]}"] = _size(disk, path)
    except OSError as exc:
        if exc.errno not in NOT_ALLOWED:
            raise
        seen[ARCHIVE] = UNREADABLE
    return {place: value for place, value in seen.items() if value is not None}


def _size(disk: Disk, path: str) -> int:
    try:
        return size_of(disk, path)
    except OSError as exc:
        if exc.errno not in (*NOT_ALLOWED, *NO_FILE):
            raise
        return UNREADABLE  # a file that this user may not read is no reason not to mend another one


def _extents(disk: Disk, directory: str) -> list[str]:
    names = disk.list(directory) if disk.exists(directory) else []
    return [f"{directory}/{name}" for name in names if extent_number(name) is not None]


def _crc(disk: Disk, path: str) -> int | None:
    """The CRC-32 of a file; None where there is none."""
    try:
        file = disk.open_read(path)
    except FileNotFoundError:
        return None
    try:
        crc = 0
        for at in range(0, file.size(), CHUNK_BYTES):
            crc = crc32(file.read(at, CHUNK_BYTES), crc)
        return crc
    finally:
        file.close()
