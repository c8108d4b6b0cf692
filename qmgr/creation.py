"""Creating and deleting a queue manager."""

import contextlib
import errno
import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from logger import at_rest
from logger.claims import owners
from logger.clock import Clock, SystemClock
from logger.config import LogConfig, LogSync, LogType, WriteIntegrity, chosen
from logger.disk import Disk
from logger.posix_disk import Path, PosixDisk
from logger.whole_files import NO_DIR_SYNC, drop_dir, make_and_keep_dirs, make_dirs, read_whole, replace_file
from qmgr import ini, locations, mqsini
from qmgr.errors import (
    AlreadyExists,
    IniError,
    InUse,
    Mistake,
    MQError,
    Reason,
    Unavailable,
    quoted,
)
from qmgr.ini import AutoConfig, Config, LogManagement, Tuning
from qmgr.locations import Location
from qmgr.missing import away, half, lacks_ini_only, unknown
from qmgr.objects import QmgrDefinition, check_flag, with_attributes
from qmgr.ownership import LOG_LOCK, Ownership, lock_log, own, refuse_inside_another, refuse_root
from qmgr.translated import translated
from recovery import checkpoint
from recovery.checkpoint import Checkpoint, decode_file, encode_file, put_in_place, write_new

OWN_ATTEMPTS = 100  # a deletion of the one before may end while a queue manager is created
# Fields of LogConfig: the keywords of `create` for them begin with log_.
FIELDS = re.compile(r"\b(primary_files|secondary_files|file_pages|buffer_pages|sync_interval)(_ms)?\b")


def create(
    name: str,
    *,
    data_path: Path | None = None,
    log_path: Path | None = None,
    log_type: str = "circular",
    log_primary_files: int = 3,
    log_secondary_files: int = 2,
    log_file_pages: int = 4096,
    log_buffer_pages: int = 0,
    log_write_integrity: str = "TripleWrite",
    log_management: str = "Manual",
    log_sync: str = "always",
    log_sync_interval: int = 1000,
    max_uncommitted: int = 10_000,
    mqsc_config: str | None = None,
    ini_config: str | None = None,
    attributes: Mapping[str, Any] = MappingProxyType({}),
    default: bool = False,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> None:
    """Create a queue manager (crtmqm). The keywords are the Log stanza of its qm.ini; `log_sync_interval` in ms.
    `mqsc_config` and `ini_config` are of its AutoConfig stanza: absolute paths. `attributes` are those of the queue
    manager, as `QueueManager.alter` takes them.

    It exists once its qm.ini does, which is made last: what an interrupted attempt left behind is made anew. Raises
    AlreadyExists (2100), Mistake, Unavailable when the disk is full or can't be written.
    """
    disk = disk or PosixDisk()
    check_flag(default, "default")
    location = locations.find(name, data_path, log_path=log_path)
    try:
        config = Config(
            log=LogConfig(
                path=location.log_dir,
                log_type=chosen("log_type", LogType, log_type),
                primary_files=log_primary_files,
                secondary_files=log_secondary_files,
                file_pages=log_file_pages,
                buffer_pages=log_buffer_pages,
                write_integrity=chosen("log_write_integrity", WriteIntegrity, log_write_integrity),
                sync=chosen("log_sync", LogSync, log_sync),
                sync_interval_ms=log_sync_interval,
            ),
            log_management=chosen("log_management", LogManagement, log_management),
            tuning=Tuning(max_uncommitted_messages=max_uncommitted),
            auto_config=AutoConfig(mqsc_config=mqsc_config, ini_config=ini_config),
        )
        text = ini.render(config)
        if not isinstance(attributes, Mapping):
            raise ValueError(f"attributes is {quoted(attributes)}; allowed: a mapping of names to values")
        qmgr = with_attributes(QmgrDefinition(), dict(attributes))
    except MQError:
        raise
    except (ValueError, TypeError, AttributeError) as exc:
        said = FIELDS.sub(r"log_\1", str(exc)).replace("max_uncommitted_messages", "max_uncommitted")
        raise Mistake(f"queue manager {name!r} can't be created: {said}") from exc
    _create(disk, clock or SystemClock(), location, config.log, text, qmgr, default)


def _create(
    disk: Disk, clock: Clock, location: Location, log: LogConfig, text: str, qmgr: QmgrDefinition, default: bool
) -> None:
    """Refuse what can't be created there, or create it and list it in mqs.ini; `text` is that of its qm.ini."""
    name = location.name
    with translated(name, "created"):
        _refuse_what_exists(disk, location)
        if f"{disk.real_path(location.data_dir)}/".startswith(f"{disk.real_path(location.log_dir)}/"):
            what = f"the log of queue manager {name!r} can't lie where its data is, nor in a directory above that"
            raise Mistake(f"{what}; give another log path")
        for path in (location.data_dir, location.log_dir):
            refuse_inside_another(disk, path, location)
        refuse_root(disk, f"{location.data_root}/mqs.ini", name)
        mqsini.read(disk, f"{location.data_root}/mqs.ini")  # raises before anything is made where it can't be edited
        directory = location.data_dir.rsplit("/", 1)[1]
        entry = mqsini.Entry(name=name, prefix=location.data_root, directory=directory)

        def make() -> None:
            _make(disk, location, log, text, qmgr, clock.wall_us())
            try:
                mqsini.add(disk, f"{location.data_root}/mqs.ini", entry, default=default)
            except OSError:  # perhaps of the last sync, so that it is listed; without a directory it would seem away
                with contextlib.suppress(OSError, MQError):
                    mqsini.remove(disk, f"{location.data_root}/mqs.ini", name)
                raise

        _make_and_own(disk, location, make)


def _make_and_own(disk: Disk, location: Location, make: Callable[[], None]) -> None:
    """Make the directories of a new queue manager, own them and `make` what is in them; or leave nothing behind.

    Raises InUse, and AlreadyExists where something lies there that somebody may still want.
    """
    with removing_empty_dirs(disk, location) as made:
        lock = _own_new(disk, location)
        try:
            try:
                lock_log(disk, location, location.log_dir, lock, command="crtmqm")
            except InUse:  # whose log it is knows nothing of this queue manager
                _remove_locks(disk, made, location.data_dir)
                remove_empty(disk, made)
                raise
            try:
                _refuse_what_is_there(disk, location)
            except MQError:
                _remove_locks(disk, made, location.data_dir, location.log_dir)
                raise
            try:
                make()
            except (OSError, MQError):  # the room may be wanted for something else; and it can be tried again
                _remove_made(disk, location, made)
                raise
        finally:
            lock.release()


def _own_new(disk: Disk, location: Location) -> Ownership:
    """Make the directories, and own what is in them."""
    for left in reversed(range(OWN_ATTEMPTS)):
        make_and_keep_dirs(disk, location.data_dir)
        make_and_keep_dirs(disk, location.log_dir)
        try:
            return own(disk, location, None, command="crtmqm")
        except InUse:
            raise
        except Unavailable:  # the end of a deletion has taken the directory away again
            if not left:
                raise
    raise AssertionError("the last one returns or raises")


@contextlib.contextmanager
def removing_empty_dirs(disk: Disk, location: Location) -> Iterator[list[str]]:
    """If the block fails, remove those directories that were missing before and are empty; yields the missing ones."""
    made = missing_dirs(disk, location.data_dir, location.log_dir)
    try:
        yield made
    except InUse:
        raise  # another process is creating it
    except Exception:
        remove_empty(disk, made)
        raise


def missing_dirs(disk: Disk, *paths: str) -> list[str]:
    """Those of the directories, and of those above them, that are not there; the deepest first."""
    found = set()
    for path in paths:
        while path and not disk.exists(path):
            found.add(path)
            path = path.rpartition("/")[0]
    return sorted(found, key=len, reverse=True)


def remove_empty(disk: Disk, paths: list[str]) -> None:
    """Remove those of the directories that are there and empty, as far as the disk lets it."""
    with contextlib.suppress(OSError):  # which may be what has failed
        for path in paths:
            if disk.exists(path) and not disk.list(path):
                disk.rmdir(path)


def _remove_locks(disk: Disk, made: list[str], *directories: str) -> None:
    """Remove what `own` has put into directories that hold nothing else. The locks are held."""
    for path in directories:
        with contextlib.suppress(OSError):
            if path in made and disk.list(path) == [LOG_LOCK]:
                disk.unlink(f"{path}/{LOG_LOCK}")


def _refuse_what_exists(disk: Disk, location: Location) -> None:
    if disk.exists(location.ini):
        text = f"queue manager {location.name!r} exists in {location.data_root}; start it, or delete it first"
        raise AlreadyExists(text, name=location.name)
    # Where a directory is left, its file system may be unmounted: a new queue manager at the mount point would pass for
    # the other, until the mount hides it. Where none is left, somebody has removed it, and mqs.ini lists it still.
    left = disk.exists(location.data_dir) or disk.exists(location.log_dir)
    if left and (what := away(disk, location)):
        raise AlreadyExists(what, name=location.name)


def _refuse_what_is_there(disk: Disk, location: Location) -> None:
    """Refuse to write over what somebody may still want. The locks are held. Raises AlreadyExists."""
    _refuse_what_exists(disk, location)
    if what := half(disk, location):
        raise AlreadyExists(what, name=location.name)
    if lacks_ini_only(disk, location):
        raise AlreadyExists(
            f"{location.data_dir} holds a queue manager whose qm.ini is missing; put it back, have it made anew "
            f"(qm repair -m {location.name}), or move the directory away",
            name=location.name,
        )
    mine = _log_ids(disk, location)  # the log that an interrupted creation has left has one of these
    if at_rest.was_started(disk, location.log_dir) or not at_rest.belongs_to(disk, location.log_dir, mine):
        what = f"{location.log_dir} holds the log of another queue manager"
        text = f"{what}; give another log path, or move it away if that queue manager is gone for good"
        raise AlreadyExists(text, name=location.name)


def _log_ids(disk: Disk, location: Location) -> set[bytes]:
    """The ids of the logs that the checkpoints of a queue manager belong to."""
    names = (f"{location.data_dir}/{name}" for name in (checkpoint.NAME, checkpoint.PREVIOUS))
    found = [decode_file(read_whole(disk, name)) for name in names if disk.exists(name)]
    return {bytes.fromhex(one[0].log_id) for one in found if one is not None}


def _remove_made(disk: Disk, location: Location, made: list[str]) -> None:
    """Remove what `_make` has made, as far as the disk lets it; the log only once there is no qm.ini for sure.

    And the directories, if they were `made` for it. The locks are held.
    """
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(location.ini)  # it is there if all that failed was to sync its name
            disk.sync_dir(location.data_dir)
        at_rest.delete(disk, location.log_dir)
        for path in (location.log_dir, location.data_dir):
            if path in made:
                remove_tree(disk, path, last=(LOG_LOCK,))


def _make(disk: Disk, location: Location, log: LogConfig, text: str, qmgr: QmgrDefinition, now_us: int) -> None:
    """Make the files of a new queue manager; `text` is that of its qm.ini."""
    at_rest.remove_control(disk, log.path)  # of a creation that was interrupted
    log_id = disk.entropy(16)
    start = Checkpoint(
        log_id=log_id.hex(),
        lsn=log.extent_bytes,
        head=log.extent_bytes,
        durable=log.extent_bytes,
        epoch=0,
        time=now_us,
        clean=True,
        counters={"queue": 1, "segment": 1},
        units={},
    )
    make_dirs(disk, location.queues)
    make_dirs(disk, location.errors)
    write_new(
        disk, location.data_dir, encode_file(start, [json.dumps({"qmgr": attrs.asdict(qmgr), "catalog": 0}).encode()])
    )
    put_in_place(disk, location.data_dir, log_id)
    at_rest.create(disk, log, log_id)  # after the checkpoint, which says whose log it is
    replace_file(disk, location.ini, text.encode())


def delete(name: str, *, data_path: Path | None = None, disk: Disk | None = None) -> None:
    """Delete a queue manager with its log and all its messages (dltmqm). It must not be running.

    It can be repeated if it was interrupted: the file that says where the log lies goes last. Of qm.ini only LogPath
    need be right. Raises Unavailable where the log that lies there is another queue manager's too.
    """
    disk = disk or PosixDisk()
    location = locations.find(name, data_path)
    with translated(name, "deleted"):
        if not disk.exists(location.ini) and not disk.exists(location.deleted_ini):
            keep_deleted(disk, location)
            raise unknown(disk, location)
        refuse_root(disk, f"{location.data_root}/mqs.ini", name)
        mqsini.read(disk, f"{location.data_root}/mqs.ini")  # raises before anything is deleted where it can't be edited
        lock = own(disk, location, None, command="dltmqm")
        try:
            goes_on = not disk.exists(location.ini)
            if goes_on and not disk.exists(location.deleted_ini):  # another deletion has just ended
                _remove_locks(disk, [location.data_dir], location.data_dir)
                remove_empty(disk, [location.data_dir])
                raise unknown(disk, location)
            path = location.deleted_ini if goes_on else location.ini
            log_dir = ini.log_path(read_whole(disk, path), path)
            if disk.exists(log_dir):  # it may be lost
                lock_log(disk, location, log_dir, lock, command="dltmqm")
            _refuse_log_of_another(disk, location, path, log_dir)
            _refuse_to_take_along(disk, location, log_dir, goes_on)
            if not goes_on:
                disk.rename(location.ini, location.deleted_ini)  # from here on it does not exist
            disk.sync_dir(location.data_dir)
            at_rest.delete(disk, log_dir)
            for path in (f"{log_dir}/{LOG_LOCK}", log_dir):
                _remove_if_empty(disk, path)
            keep_removed(disk, log_dir)
            mqsini.remove(disk, f"{location.data_root}/mqs.ini", name)  # before its directory goes, lest it seem away
            remove_tree(disk, location.data_dir, last=(location.deleted_ini.rpartition("/")[2], LOG_LOCK))
            keep_removed(disk, location.data_dir)
        finally:
            lock.release()


def _refuse_to_take_along(disk: Disk, location: Location, log_dir: str, goes_on: bool) -> None:
    """Raise Unavailable where another queue manager's log, or archive of one, lies in the directory that is to go."""
    mine = _log_ids(disk, location) | at_rest.log_ids(disk, log_dir)
    if goes_on and not mine:  # what said whose an archive is has gone already
        return
    for directory in _directories(disk, disk.real_path(location.data_dir)):
        if directory != disk.real_path(log_dir) and (at_rest.log_ids(disk, directory) | owners(disk, directory)) - mine:
            raise Unavailable(
                f"queue manager {location.name!r} is not deleted: in {directory} is the log, or an archive of one, of "
                f"another queue manager, and would be deleted with it; move it away, and correct LogPath or "
                f"ArchivePath of that one",
                reason=Reason.OBJECT_IN_USE,
                name=location.name,
            )


def _directories(disk: Disk, path: str) -> Iterator[str]:
    """The directory with this real path and those below; not what links lead to, as `remove_tree`."""
    try:
        names = disk.list(path)
    except (NotADirectoryError, PermissionError):  # it can't be removed then either
        return
    if disk.real_path(path) == path:
        yield path
        for name in names:
            yield from _directories(disk, f"{path}/{name}")


def _refuse_log_of_another(disk: Disk, location: Location, path: str, log_dir: str) -> None:
    """Raise Unavailable where LogPath is wrong, or the data is a copy, so that the log is another queue manager's."""
    if not disk.exists(log_dir):
        return
    whose = ""
    for other in disk.list(f"{location.data_root}/qmgrs"):
        directory = f"{location.data_root}/qmgrs/{other}"
        if disk.real_path(directory) != disk.real_path(location.data_dir) and disk.exists(f"{directory}/qm.ini"):
            with contextlib.suppress(IniError, PermissionError):  # it is perhaps another user's
                its_log = ini.log_path(read_whole(disk, f"{directory}/qm.ini"), f"{directory}/qm.ini")
                if disk.real_path(its_log) == disk.real_path(log_dir):
                    whose = f"that of {directory}/qm.ini too"
    mine = _log_ids(disk, location)
    there = at_rest.log_ids(disk, log_dir)
    if not whose and mine and there and mine.isdisjoint(there):
        whose = "another queue manager's log"
    if whose:
        raise Unavailable(
            f"queue manager {location.name!r} is not deleted: LogPath in {path} is {log_dir}, and that is {whose}; "
            f"correct it, or name a directory that is not there if this one has no log",
            reason=Reason.OBJECT_IN_USE,
            name=location.name,
        )


def _remove_if_empty(disk: Disk, path: str) -> None:
    """Remove a file, or a directory that nobody else has put anything into."""
    try:
        disk.unlink(path)
    except (IsADirectoryError, PermissionError) as denied:
        if not _names_in(disk, path, denied):
            drop_dir(disk, path)
    except FileNotFoundError:
        pass


def keep_deleted(disk: Disk, location: Location) -> None:
    """Make a deletion durable before anybody hears of it: the process that made it may have been killed too early.

    Or have failed where all that it had left was the lock, which nobody needs, or the directory that it was in.
    """
    with contextlib.suppress(OSError, MQError):  # somebody else has it
        there = disk.exists(location.data_dir) and {LOG_LOCK}.issuperset(disk.list(location.data_dir))
        if there and not _is_listed(disk, location):
            lock = own(disk, location, None, command="dltmqm")
            try:
                _remove_locks(disk, [location.data_dir], location.data_dir)
                remove_empty(disk, [location.data_dir])
            finally:
                lock.release()
    for path in (location.deleted_ini, location.data_dir):
        keep_removed(disk, path)


def _is_listed(disk: Disk, location: Location) -> bool:
    """Does mqs.ini list it still? Then the directory may be where its file system will be mounted."""
    return mqsini.read(disk, f"{location.data_root}/mqs.ini").find(location.name) is not None


def keep_removed(disk: Disk, path: str) -> None:
    """Make it durable that `path` is gone, if it is: what a crash brings back would be in the way of a new one."""
    parent = path.rpartition("/")[0] or "/"
    try:
        disk.sync_dir(parent)
    except OSError as exc:
        if exc.errno not in (*NO_DIR_SYNC, errno.ENOENT, errno.ENOTDIR):
            raise


def _names_in(disk: Disk, path: str, denied: OSError) -> list[str]:
    """The names in a directory that `unlink` refused, on some systems with EPERM. Raises `denied` for a file."""
    try:
        return disk.list(path)
    except NotADirectoryError:
        raise denied from None


def remove_tree(disk: Disk, path: str, *, last: tuple[str, ...] = ()) -> None:
    """Remove the tree at `path`; entries named `last` go last, in that order, each once what went before is durable.

    Name a lock file as the very last: without it the directory may be another process's, and what that makes stays.
    """
    if disk.exists(path):
        for name in sorted(disk.list(path), key=lambda name: last.index(name) if name in last else -1):
            if name in last:
                disk.sync_dir(path)
            try:
                disk.unlink(f"{path}/{name}")
            except (IsADirectoryError, PermissionError) as denied:
                _names_in(disk, f"{path}/{name}", denied)
                remove_tree(disk, f"{path}/{name}")
        drop_dir(disk, path)
