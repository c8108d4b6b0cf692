"""Owning a queue manager: a lock beside its data and one beside its log; who has it, and who may not."""

import errno
import sys

from logger import at_rest, control
from logger.disk import Disk, Lock
from logger.errors import LogInUse
from qmgr.errors import Damaged, InUse, Mistake, Reason, Unavailable, command_in
from qmgr.locations import Location
from qmgr.missing import unknown

LOG_LOCK = "qm.lock"


def refuse_root(disk: Disk, path: str, name: str) -> None:
    """Refuse root where the files are another user's, who could not open what root makes. Raises Unavailable (2035)."""
    owner = disk.foreign_owner(path)
    if owner:
        why = f"this is user {owner!r}'s, who could not open what root leaves there; be that user"
        denied = PermissionError(errno.EPERM, why, path)
        raise Unavailable(f"{why}: {path}", reason=Reason.NOT_AUTHORIZED, name=name) from denied


def refuse_inside_another(disk: Disk, path: str, location: Location) -> None:
    """Refuse a place in another queue manager's data directory: it goes when that one is deleted. Raises Mistake."""
    own_dir, above = disk.real_path(location.data_dir), disk.real_path(path)
    while above := above.rpartition("/")[0]:
        if above != own_dir and is_data_dir(disk, above):
            text = f"{path} lies in the directory of another queue manager, {above}, and would be deleted with that"
            raise Mistake(f"{text}; give another path", name=location.name)


def is_data_dir(disk: Disk, path: str) -> bool:
    """Is it the data directory of a queue manager?"""
    return all(disk.exists(f"{path}/{name}") for name in ("qm.ini", LOG_LOCK))


def refuse_without_gil(name: str) -> None:
    """Refuse a Python whose threads run at once: nothing here has been proven on one. Raises Unavailable."""
    has_gil = getattr(sys, "_is_gil_enabled", None)  # CPython 3.13 and newer can say
    if has_gil is not None and not has_gil():
        text = "this Python runs without the GIL, and on such a one qmgr is not proven; start it with PYTHON_GIL=1"
        raise Unavailable(f"{text}: queue manager {name!r}", name=name)


class Ownership:
    """The locks that make a queue manager ours: one beside its data, one beside its log."""

    def __init__(self) -> None:
        self.locks: list[Lock] = []

    def astray(self) -> str:
        """A directory that is not at its path any more; "" as long as each of them is."""
        return next((lock.directory for lock in self.locks if not lock.in_place()), "")

    def release(self) -> None:
        for lock in self.locks:
            lock.release()


def own(
    disk: Disk, location: Location, log_dir: str | None, held: Ownership | None = None, *, command: str = ""
) -> Ownership:
    """Own the queue manager until the locks are released or the process ends. Raises InUse, saying who has it.

    The log, if there is one, has a lock of its own, since a copy of the data would lead to the same log. `command`: the
    command that works on the files, where that is not to run the queue manager. Raises Unavailable on a Python without
    the GIL.
    """
    held = held or Ownership()
    refuse_without_gil(location.name)
    try:
        _lock(disk, location, location.lock, "", held, command)
        if log_dir is not None:
            lock_log(disk, location, log_dir, held, command=command)
        return held
    except FileNotFoundError:
        held.release()
        if disk.exists(location.data_dir):
            raise
        raise unknown(disk, location) from None  # it has just been deleted
    except BaseException:
        held.release()
        raise


def refuse_log_path(disk: Disk, location: Location, path: str) -> None:
    """Refuse a LogPath that leads to no log: rather it is wrong than the log gone. Raises Unavailable, Damaged."""
    where, way = f"LogPath in {location.ini} is {path}, and", "correct it, or bring the log back"
    there = disk.exists(path)
    try:
        names = disk.list(path)
    except NotADirectoryError:
        names, there = [], False
    if not there:
        text = f"{where} there is no such directory; {way}"
        raise Unavailable(text, reason=Reason.FILE_SYSTEM_ERROR, name=location.name)
    if control.NAME not in names and not disk.exists(at_rest.active_path(path)):
        raise Damaged(f"{where} there is no log in it; {way}", name=location.name)


def lock_log(disk: Disk, location: Location, log_dir: str, held: Ownership, *, command: str = "") -> None:
    """Own the log in `log_dir` too. Raises InUse."""
    _lock(disk, location, f"{log_dir}/{LOG_LOCK}", f"the log in {log_dir} of ", held, command)


WHERE_IT_RUNS = "; end it in that process, or, where that is its daemon, use qmgr.connect or endmqm"


def _lock(disk: Disk, location: Location, path: str, what: str, held: Ownership, command: str) -> None:
    holder = f"{disk.process()} ({command})" if command else disk.process()
    try:
        disk.lock(path, holder, held.locks)
    except LogInUse as exc:
        at_work = command_in(exc.holder)
        state, way = ("is being worked on", "") if at_work else ("is running already", WHERE_IT_RUNS)
        raise InUse(
            f"{what}queue manager {location.name!r} {state}: {exc.holder or 'another process'} holds it{way}",
            holder=exc.holder,
            name=location.name,
        ) from None
