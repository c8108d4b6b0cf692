"""Where a log lies: of a queue manager, in a log directory, or in a folder of extents."""

import contextlib
import json

import attrs

from logger import control
from logger.claims import used_archives
from logger.config import LogType
from logger.disk import Disk
from logger.errors import LogDamaged, LogError
from logger.history import extent_number, read_header
from logger.posix_disk import PosixDisk, absolute_path
from logger.whole_files import read_whole
from pipeline.log_files import LogFiles
from qmgr import ini, locations
from recovery import checkpoint
from recovery.errors import RecoveryError

LINEAR_ONLY = (
    "{} is circular: it writes over its past, so there is no history to read; migmqlog changes it to linear logging"
)


def find(path: str, name: str | None = None, disk: Disk | None = None) -> LogFiles:
    """The log of a queue manager (`path` is its data path), in a log directory, or in a folder of extents.

    Raises LogError with a sentence, MQError, OSError.
    """
    disk = disk or PosixDisk()
    path = absolute_path(path)
    if name is not None:
        return _of_queue_manager(path, name, disk)
    if disk.exists(f"{path}/{control.NAME}"):
        return _of_log_directory(path, [f"{path}/archive", *used_archives(disk, path)], disk)
    return _of_folder(path, disk)


def _of_queue_manager(path: str, name: str, disk: Disk) -> LogFiles:
    location = locations.find(name, path)
    if not disk.exists(location.ini):
        raise LogError(f"queue manager {name!r} does not exist in {path}: there is no {location.ini}")
    config = ini.parse(read_whole(disk, location.ini), location.ini).log
    log = _of_log_directory(config.path, [config.archive_directory, *used_archives(disk, config.path)], disk)
    names: dict[int, str] = {}
    with contextlib.suppress(RecoveryError):
        _, catalogue = checkpoint.read_files(disk, location.data_dir, log.log_id)[0]
        found = [json.loads(line).get("definition") for line in catalogue]
        names |= {one["id"]: one["name"] for one in found if one}
    return attrs.evolve(log, names=names)


def _of_log_directory(directory: str, archives: list[str], disk: Disk) -> LogFiles:
    path = f"{directory}/{control.NAME}"
    _, state = control.read(disk, path)
    if state.log_type is not LogType.LINEAR:
        raise LogError(LINEAR_ONLY.format(f"the log in {directory}"))
    return LogFiles(
        directories=tuple(dict.fromkeys((f"{directory}/active", *archives))),
        log_id=state.log_id,
        extent_bytes=state.extent_bytes,
        control=path,
        epoch_from=state.epoch_from,
        epoch=state.epoch,
    )


def _of_folder(path: str, disk: Disk) -> LogFiles:
    """The log of a folder that has extents and no control file: their headers say which log it is."""
    directories = (path, f"{path}/active", f"{path}/archive")
    found: dict[bytes, tuple[int, str]] = {}
    named_so = []
    for directory in directories:
        for file in _listed(directory, disk):
            if extent_number(file) is None:
                continue
            named_so.append(f"{directory}/{file}")
            with contextlib.suppress(LogDamaged, FileNotFoundError, IsADirectoryError):  # others may be moving it
                header, _, _ = read_header(disk, f"{directory}/{file}")
                if header is not None:
                    found.setdefault(header.log_id, (header.extent_bytes, f"{directory}/{file}"))
    if named_so and not found:
        raise LogError(f"{named_so[0]} has no header of an extent that can be read, and no other one in {path} has")
    if not found:
        raise LogError(
            f"there is no log in {path}: no {control.NAME} and no extents such as S0000000.LOG; name the queue "
            f"manager, or give the directory of its log or of its extents"
        )
    if len(found) > 1:
        one, other, *_ = [where for _, where in found.values()]
        raise LogError(f"{path} has extents of different logs, {one} and {other}; put each log into its own folder")
    [(log_id, (extent_bytes, _))] = found.items()
    return LogFiles(directories=directories, log_id=log_id, extent_bytes=extent_bytes)


def _listed(directory: str, disk: Disk) -> list[str]:
    try:
        return disk.list(directory)
    except NotADirectoryError:
        return []
