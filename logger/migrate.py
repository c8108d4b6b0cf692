"""Changing a stopped log: circular to linear, linear to circular, or to another directory. Whoever calls owns the log.

*Operation*: small steps, each of which leaves a log that is whole and can be started. *Goal*: whatever the moment of a
crash, running it again gets to the end. *Plan*: the control file is the word for what the log is. A circular log may
have its extents under any numbers, so they are brought under those of a linear log while it is still circular, one
copy and one write of the control file at a time; then one more write makes it linear. A linear log with its active
extents alone is a circular log already, so one write is all. A log that moves is copied, its control file last, and
`moved.from` in the new place names the old one, and the epoch that the log had, until what was left there is gone.
"""

import contextlib

import attrs

from logger import control, extent, lsn, notices, undone
from logger.at_rest import active_path, claimed_by_another, control_path, read_only, read_page
from logger.claims import USED, claim, mark_name
from logger.config import LogType
from logger.control import ControlFile, ControlState
from logger.disk import Disk
from logger.errors import LogClosed, LogDamaged
from logger.extent import FILE_NUMBERS, ExtentHeader, decode_header, file_name, linear_number
from logger.history import extent_number, is_extent_or_index, read_header
from logger.linear import REUSABLE
from logger.whole_files import drop_dir, make_and_keep_dirs, make_dirs, read_whole, size_of, write_whole

CHUNK_BYTES = 1 << 20
MOVED_FROM = "moved.from"
SIDE_FILES = (notices.NAME, undone.NAME, USED)  # what lies beside the control file, of a linear log
DIRECTORIES = ("active", "archive")  # what lies in a log directory besides the control file


def check_ended(disk: Disk, directory: str) -> ControlState:
    """The state of a log that ended in order and can be read from its head to its end. Raises LogClosed, LogDamaged."""
    _, state = control.read(disk, control_path(directory))
    if not state.clean_end:
        raise LogClosed(
            f"the log in {directory} did not end in order; start the queue manager and end it, then run migmqlog again"
        )
    state, reader = read_only(disk, directory)
    try:
        for _ in reader.records(state.head, durable=state.clean_end):
            pass
        if reader.end != state.clean_end:
            raise LogDamaged(
                f"the log in {directory} ended at {lsn.text(state.clean_end)}, but there are records up to "
                f"{lsn.text(reader.end)}; the control file is an older copy: restore data and log from one backup"
            )
    finally:
        reader.close()
    return state


def active_extents(state: ControlState) -> dict[int, int]:
    """The numbers of the files that a restart needs, by sequence."""
    first, last = state.head // state.extent_bytes, (state.clean_end - 1) // state.extent_bytes
    return {sequence: number for number, sequence in state.extents if first <= sequence <= last}


# Circular to linear


def to_linear(disk: Disk, directory: str) -> None:
    """Make a log that ended in order linear. Raises OSError, LogDamaged; then it is circular still, and whole."""
    file = ControlFile(disk, control_path(directory))
    try:
        if file.state.log_type is LogType.CIRCULAR:
            _shrink(disk, directory, file)
            _renumber(disk, directory, file)
            file.write(attrs.evolve(file.state, log_type=LogType.LINEAR))
    finally:
        file.close()


def _shrink(disk: Disk, directory: str, file: ControlFile) -> None:
    """Reduce a circular log to its active extents; the next start fills the ring up again."""
    table = active_extents(file.state)
    _write_table(file, table)
    named = {file_name(number) for number in table.values()}
    active = active_path(directory)
    remove(
        disk, active, [name for name in disk.list(active) if extent.number_of(name) is not None and name not in named]
    )


def _renumber(disk: Disk, directory: str, file: ControlFile) -> None:
    """Bring each extent under the number that a linear log gives it: copy, control file, then the old one goes."""
    table = active_extents(file.state)
    active = active_path(directory)
    while astray := [s for s, number in table.items() if number != linear_number(s)]:
        taken = set(table.values())
        sequence = next((s for s in astray if linear_number(s) not in taken), None)
        if sequence is None:  # they stand in each other's way: one steps aside
            sequence = astray[0]
            number = next(n for n in range(FILE_NUMBERS - 1, -1, -1) if n not in taken)
        else:
            number = linear_number(sequence)
        old = table[sequence]
        _copy_extent(disk, active, old, number, sequence, file.state)
        table[sequence] = number
        _write_table(file, table)
        remove(disk, active, [file_name(old)])


def _write_table(file: ControlFile, table: dict[int, int]) -> None:
    extents = tuple(sorted((number, sequence) for sequence, number in table.items()))
    if extents != file.state.extents:
        file.write(attrs.evolve(file.state, extents=extents))


def _copy_extent(disk: Disk, active: str, old: int, new: int, sequence: int, state: ControlState) -> None:
    """Copy an extent under another number, which its header says too; durable on return."""
    source, target = f"{active}/{file_name(old)}", f"{active}/{file_name(new)}"
    header = decode_header(read_page(disk, source, 0))
    if header is None:  # damaged: the control file's word is taken, as at a start
        header = ExtentHeader(
            number=new,
            log_id=state.log_id,
            sequence=sequence,
            extent_bytes=state.extent_bytes,
            epoch=state.epoch,
            time=0,
        )
    copy(disk, source, target, attrs.evolve(header, number=new).encode())
    disk.sync_dir(active)


def copy(disk: Disk, source: str, target: str, first: bytes = b"") -> None:
    """Make `target` of what is in `source`, with `first` in the place of its beginning, and sync it.

    What was there is replaced. The name is durable when the caller syncs the directory. Raises OSError; then nothing
    is left.
    """
    if disk.exists(target):
        disk.unlink(target)
    original = disk.open_read(source)
    try:
        file = disk.open(target, create=True)
        try:
            file.write(0, first)
            size = original.size()
            for at in range(len(first), size, CHUNK_BYTES):
                file.write(at, original.read(at, min(CHUNK_BYTES, size - at)))
            file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                file.close()
            disk.unlink(target)
            raise
        file.close()
    finally:
        original.close()


def remove(disk: Disk, directory: str, names: list[str]) -> None:
    """Delete files of a directory, durably."""
    for name in names:
        disk.unlink(f"{directory}/{name}")
    if names:
        disk.sync_dir(directory)


# Linear to circular


def to_circular(disk: Disk, directory: str, most: int) -> None:
    """Make a log that ended in order circular, with at most `most` files. Raises OSError: it is linear still."""
    file = ControlFile(disk, control_path(directory))
    try:
        state = file.state
        if state.log_type is LogType.LINEAR:
            active = {number: sequence for sequence, number in active_extents(state).items()}
            ahead = [number for number, sequence in state.extents if not sequence]
            known, head = undone.read(disk, directory, state.log_id), state.head // state.extent_bytes
            since = min(known.since, head) if known.since else head  # from here on an archive is not this past's
            undone.write(disk, directory, state.log_id, attrs.evolve(known, since=since))
            table = active | dict.fromkeys(ahead[: max(0, most - len(active))], 0)
            file.write(attrs.evolve(state, log_type=LogType.CIRCULAR, extents=tuple(sorted(table.items()))))
    finally:
        file.close()


def surplus(disk: Disk, directory: str) -> tuple[int, int]:
    """How many extents a linear log has that a circular one has no use for, and their bytes; not of the archive."""
    _, state = control.read(disk, control_path(directory))
    active = active_path(directory)
    needed = {file_name(number) for number in active_extents(state).values()}
    ready = {file_name(number) for number, sequence in state.extents if not sequence}
    found = [name for name in disk.list(active) if extent_number(name) is not None and name not in needed | ready]
    return len(found), sum(size_of(disk, f"{active}/{name}") for name in found)


def delete_surplus(disk: Disk, directory: str) -> None:
    """Delete what a circular log has no use for. The control file says that it is circular, and names what it needs."""
    _, state = control.read(disk, control_path(directory))
    assert state.log_type is LogType.CIRCULAR
    named = {file_name(number) for number, _ in state.extents}
    active = active_path(directory)
    remove(disk, active, [name for name in disk.list(active) if _is_log_file(name) and name not in named])


def _is_log_file(name: str) -> bool:
    return is_extent_or_index(name) or REUSABLE.fullmatch(name) is not None


# To another directory


def copy_log(disk: Disk, old: str, new: str) -> None:
    """Copy the log in `old`, which ended in order, to `new`. With its control file, made last, it is there.

    What an earlier attempt left in `new` is replaced, and nothing else touched. Raises LogDamaged when another log, or
    an archived extent of one, lies there, or this one as it went on since, ArchiveFailed when another one's archive is
    there, OSError.
    """
    _, state = control.read(disk, control_path(old))
    _refuse_another_log(disk, new, state)
    make_and_keep_dirs(disk, new)
    if disk.exists(control_path(new)):  # from here on it is no log until it is whole
        remove(disk, new, [control.NAME])
    for part in _own_parts(disk, old):
        there = disk.list(f"{old}/{part}")
        names, marked = [name for name in there if is_extent_or_index(name)], mark_name(state.log_id) in there
        if not names and not marked and part != "active":
            continue
        make_dirs(disk, f"{new}/{part}")
        if marked:
            claim(disk, f"{new}/{part}", state.log_id, f"the log of {active_path(new)}")
        if part == "active":  # an archive may have more than we bring: it stays
            left = [name for name in disk.list(f"{new}/{part}") if _is_log_file(name) and name not in names]
            remove(disk, f"{new}/{part}", left)
        for name in names:
            copy(disk, f"{old}/{part}/{name}", f"{new}/{part}/{name}")
        disk.sync_dir(f"{new}/{part}")
    for beside in SIDE_FILES:
        if disk.exists(f"{old}/{beside}"):
            copy(disk, f"{old}/{beside}", f"{new}/{beside}")
    write_whole(disk, f"{new}/{MOVED_FROM}", f"{old}\n{state.epoch}".encode())
    disk.sync_dir(new)
    copy(disk, control_path(old), control_path(new))
    disk.sync_dir(new)


def _own_parts(disk: Disk, directory: str) -> list[str]:
    """The directories below that are the log's: another queue manager may have its archive there."""
    return [part for part in DIRECTORIES if not claimed_by_another(disk, directory, f"{directory}/{part}")]


def _refuse_another_log(disk: Disk, directory: str, state: ControlState) -> None:
    """Raise LogDamaged where another log lies in `directory`, or this one as it went on there."""
    seen: list[ControlState | ExtentHeader] = []
    with contextlib.suppress(LogDamaged):  # missing, or not whole yet
        seen.append(control.read(disk, control_path(directory))[1])
    for part in DIRECTORIES:
        for name in disk.list(f"{directory}/{part}"):
            if extent_number(name) is not None:
                with contextlib.suppress(LogDamaged):  # half a compressed one
                    header, _, _ = read_header(disk, f"{directory}/{part}/{name}")
                    seen += [header] if header is not None else []
    if any(one.log_id != state.log_id for one in seen):
        raise LogDamaged(f"{directory} holds another log; give another directory", path=directory)
    if any(one.epoch > state.epoch for one in seen):
        raise LogDamaged(
            f"{directory} holds this log as it went on: it was started there since. If that is the one that counts, "
            f"say LogPath={directory} in qm.ini; else move it away, or give another directory",
            path=directory,
        )


def moved_from(disk: Disk, directory: str) -> str | None:
    """Where the log in `directory` was before, if what it left there may still have to be deleted."""
    return _read_note(disk, directory)[0] if disk.exists(f"{directory}/{MOVED_FROM}") else None


def _read_note(disk: Disk, directory: str) -> tuple[str, int]:
    """What the note in the new place says: the old place, and the epoch that the log had; 0: a note without one.

    Raises LogDamaged.
    """
    path = f"{directory}/{MOVED_FROM}"
    with contextlib.suppress(ValueError):
        old, _, epoch = read_whole(disk, path).decode().partition("\n")
        if old.startswith("/") and old.isprintable():
            return old, int(epoch or 0)
    raise LogDamaged(
        f"{path} can't be read, which said where the log was before it moved: delete what is left there by hand, and "
        f"then this file",
        path=path,
    )


def drop_old(disk: Disk, old: str, new: str) -> None:
    """Delete what the log that is now in `new` has left in `old`. Nothing else that may lie there is touched.

    Nor the log itself where it is there again, and was started since: `new` is a backup then, of the time of the move.
    """
    _, state = control.read(disk, control_path(new))
    _, epoch = _read_note(disk, new)
    left = control.read(disk, control_path(old))[1] if disk.exists(control_path(old)) else None
    if left is not None and left.log_id == state.log_id and left.epoch == (epoch or state.epoch):
        for part in _own_parts(disk, old):
            path, mark = f"{old}/{part}", mark_name(state.log_id)
            remove(disk, path, [name for name in disk.list(path) if _is_log_file(name)])
            if disk.exists(f"{path}/{mark}"):  # after all that it says whose it is; the new place has its own
                remove(disk, path, [mark])
            if disk.exists(path):
                drop_dir(disk, path)
        remove(disk, old, [name for name in SIDE_FILES if disk.exists(f"{old}/{name}")])
        remove(disk, old, [control.NAME])  # last: it says whose the others are
