"""A log that nobody works on, as files: made, looked at, read and deleted."""

import contextlib
from collections.abc import Callable

from logger import claims, control, extent, notices, undone
from logger.circular import Ring
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.disk import PAGE, Disk, File
from logger.errors import LaterFormat, LogDamaged
from logger.extent import ExtentHeader
from logger.extents import Extents
from logger.history import History, is_extent_or_index
from logger.linear import REUSABLE, Line
from logger.reader import Guard, LogReader, unguarded
from logger.whole_files import drop_dir, make_dirs


def control_path(directory: str) -> str:
    return f"{directory}/{control.NAME}"


def active_path(directory: str) -> str:
    return f"{directory}/active"


def create(disk: Disk, config: LogConfig, log_id: bytes, epoch: int = 0) -> int:
    """Make an empty log in `config.path`, where none is; return its first LSN.

    With the control file, made last, the log is there. `epoch`: the highest that has been used.
    """
    make_dirs(disk, active_path(config.path))
    for number in range(config.primary_files):
        header = ExtentHeader(
            number=number, log_id=log_id, sequence=0, extent_bytes=config.extent_bytes, epoch=0, time=0
        )
        extent.create(disk, active_path(config.path), header).file.close()
    first = config.extent_bytes
    state = ControlState(
        log_id=log_id,
        log_type=config.log_type,
        extent_bytes=config.extent_bytes,
        epoch=epoch,
        epoch_from=first,
        head=first,
        checkpoint=first,
        durable=first,
        clean_end=first,
        extents=tuple((number, 0) for number in range(config.primary_files)),
    )
    control.create(disk, control_path(config.path), state)
    disk.sync_dir(config.path)
    return first


def remove_control(disk: Disk, directory: str) -> None:
    """From now on there is no log in `directory`, whatever else of it is there."""
    path = control_path(directory)
    if disk.exists(path):
        disk.unlink(path)
        disk.sync_dir(directory)


def read_page(disk: Disk, path: str, number: int) -> bytes:
    file = disk.open_read(path)
    try:
        return file.read(PAGE * number, PAGE)
    finally:
        file.close()


def was_started(disk: Disk, directory: str) -> bool:
    """Is there a log in `directory` that has been started? Raises LaterFormat."""
    for name in disk.list(active_path(directory)):
        if extent.number_of(name) is not None:
            path = f"{active_path(directory)}/{name}"
            header = extent.decode_header(read_page(disk, path, 0), path)
            if header is not None and header.sequence:
                return True
    return False


def belongs_to(disk: Disk, directory: str, owners: set[bytes]) -> bool:
    """Is the log in `directory` one of these, or none at all? Without its control file, made last, it is none.

    Raises LaterFormat.
    """
    found = _log_id(disk, directory)
    return found is None or found in owners


def _log_id(disk: Disk, directory: str) -> bytes | None:
    """The id in the control file; None where that is lost or damaged. Raises LaterFormat."""
    try:
        return control.read(disk, control_path(directory))[1].log_id
    except LaterFormat:
        raise
    except LogDamaged:
        return None


def log_ids(disk: Disk, directory: str) -> set[bytes]:
    """The ids of the log in `directory`: that in the control file or, where it is lost, those in the extents.

    Raises LaterFormat.
    """
    found = _log_id(disk, directory)
    if found is not None:
        return {found}
    active = active_path(directory)
    try:
        paths = [f"{active}/{name}" for name in disk.list(active) if extent.number_of(name) is not None]
    except NotADirectoryError:  # something else has that name
        return set()
    headers = [extent.decode_header(read_page(disk, path, 0), path) for path in paths]
    return {header.log_id for header in headers if header is not None}


def delete(disk: Disk, directory: str) -> None:
    """Delete the log in `directory`: the files that a log has, and nothing else; not an archive in another place.

    Nor one that another log has claimed, or somebody where nothing says any more which log this was: a deletion that
    was interrupted has been there by then.
    """
    mine = log_ids(disk, directory)
    for held in (f"{directory}/archive", active_path(directory)):  # the latter may say whose the former is
        owners = claims.owners(disk, held)
        if owners and owners.isdisjoint(mine):
            continue
        for name in disk.list(held):
            if is_extent_or_index(name) or REUSABLE.fullmatch(name) or claims.MARK.fullmatch(name):
                disk.unlink(f"{held}/{name}")
        if disk.exists(held):
            drop_dir(disk, held)
    for path in (
        control_path(directory),
        f"{directory}/{notices.NAME}",
        f"{directory}/{undone.NAME}",
        f"{directory}/{claims.USED}",
    ):
        if disk.exists(path):
            disk.unlink(path)
    for kept in (active_path(directory), f"{directory}/archive", directory):
        if disk.exists(kept):
            disk.sync_dir(kept)


def claimed_by_another(disk: Disk, directory: str, archive: str) -> bool:
    """Has another log than the one in `directory` claimed the archive?"""
    owners = claims.owners(disk, archive)
    with contextlib.suppress(LogDamaged):
        return bool(owners) and control.read(disk, control_path(directory))[1].log_id not in owners
    return False


def extents_of(disk: Disk, directory: str, state: ControlState, *, direct: bool) -> Extents:
    """The extents of the log in `directory`, to be opened."""
    kind = Line if state.log_type is LogType.LINEAR else Ring
    return kind(disk, active_path(directory), state.log_id, state.extent_bytes, direct=direct)


def inactive(disk: Disk, directory: str, state: ControlState) -> list[int]:
    """The sequences of the extents that a restart of the log in `directory` does not need, oldest first."""
    extents = extents_of(disk, directory, state, direct=False)
    try:
        extents.open(state, read_only=True)
        return extents.inactive()
    finally:
        extents.close()


def reusable(disk: Disk, directory: str) -> list[str]:
    """The files of a linear log that are kept to be used again."""
    return [name for name in disk.list(active_path(directory)) if REUSABLE.fullmatch(name)]


def reader_of(extents: Extents, state: ControlState, guard: Guard = unguarded) -> LogReader:
    """A reader of these extents, with file descriptors of its own; `guard` as in `LogReader`."""
    opened: dict[int, File] = {}

    def open_extent(sequence: int) -> File | None:
        if sequence not in opened:
            file = extents.open_read(sequence)
            if file is None:
                return None
            opened[sequence] = file
        return opened[sequence]

    def close() -> None:
        for file in opened.values():
            file.close()

    return LogReader(
        open_extent,
        extent_bytes=state.extent_bytes,
        log_id=state.log_id,
        name=extents.name,
        close=close,
        last_epoch=(state.epoch_from, state.epoch),
        guard=guard,
    )


def history_of(disk: Disk, config: LogConfig, state: ControlState, newest: Callable[[], int] | None = None) -> History:
    """All extents of a linear log that are there, archived ones too. `newest` as in `History`."""
    directories = active_path(config.path), config.archive_directory
    return History(disk, directories, state.log_id, state.extent_bytes, newest)


def read_with_history(disk: Disk, config: LogConfig) -> tuple[ControlState, LogReader, int, History | None]:
    """What the control file says, a reader that owns nothing, and the first LSN from which on it can read all.

    And, of a linear log, the look by which that was found: an extent before it may be there, and was not readable then.
    """
    state, reader = read_only(disk, config.path)
    if state.log_type is not LogType.LINEAR:
        return state, reader, state.head // state.extent_bytes * state.extent_bytes, None
    reader.close()
    return state, *read_history(disk, config, state)


def read_history(disk: Disk, config: LogConfig, state: ControlState) -> tuple[LogReader, int, History]:
    """As `read_with_history` of a linear log of which `state` is known, perhaps from no control file."""
    seen = history_of(disk, config, state)
    seen.places()
    sequence = seen.reaches_back_to(state.head // state.extent_bytes)
    reader = history_of(disk, config, state).reader(state)  # which looks again, and may find more by then
    return reader, sequence * state.extent_bytes, seen


def read_only(disk: Disk, directory: str) -> tuple[ControlState, LogReader]:
    """What the control file says of the log in `directory`, and a reader of its extents that owns nothing."""
    _, state = control.read(disk, control_path(directory))
    extents = extents_of(disk, directory, state, direct=False)
    try:
        extents.open(state, read_only=True)
    finally:
        extents.close()  # the reader opens them anew
    return state, reader_of(extents, state)
