"""Changing how and where a stopped queue manager logs (migmqlog): the log's own change, then qm.ini's word for it."""

import json
from collections.abc import Callable

from logger import control, lsn, migrate
from logger.at_rest import control_path
from logger.config import LogType, chosen
from logger.disk import Disk
from logger.errors import LogDamaged
from logger.posix_disk import Path, PosixDisk, home_path
from logger.whole_files import drop_dir, make_dirs, read_whole, replace_file
from qmgr import ini, locations
from qmgr.errors import Mistake
from qmgr.ini import Config, LogManagement
from qmgr.locations import Location
from qmgr.missing import unknown
from qmgr.objects import mangle
from qmgr.ownership import LOG_LOCK, Ownership, lock_log, own, refuse_inside_another, refuse_log_path, refuse_root
from qmgr.reword import reworded
from qmgr.translated import translated
from recovery import checkpoint
from recovery.checkpoint import Checkpoint

Say = Callable[[str], None]


def migrate_log(
    name: str,
    *,
    data_path: Path | None = None,
    log_type: str | None = None,
    log_management: str | None = None,
    log_path: Path | None = None,
    disk: Disk | None = None,
    say: Say = lambda text: None,
) -> None:
    """Make the log of a queue manager that ended in order linear or circular, or move it; `say` hears what is done.

    `log_path` is the directory of logs: the log moves to a directory of its name in it. What was interrupted goes on
    when it is asked for again, also without a `log_type`. Raises Unavailable when the queue manager did not end in
    order, InUse, Damaged; then either the old log or the new one is whole.
    """
    disk = disk or PosixDisk()
    location = locations.find(name, data_path)
    try:
        wanted = None if log_type is None else chosen("log_type", LogType, log_type)
        management = None if log_management is None else chosen("log_management", LogManagement, log_management)
    except ValueError as exc:
        raise Mistake(f"the log of queue manager {name!r} can't be migrated: {exc}", name=name) from exc
    if not disk.exists(location.ini):
        raise unknown(disk, location)
    refuse_root(disk, location.data_dir, name)
    with translated(name, "migrated"):
        held = own(disk, location, None, command="migmqlog")
        try:
            directory = _config(disk, location).log.path
            refuse_log_path(disk, location, directory)
            lock_log(disk, location, directory, held, command="migmqlog")
            _Migration(disk, location, held, say).run(wanted, management, log_path)
        finally:
            held.release()


def _config(disk: Disk, location: Location) -> Config:
    return ini.parse(read_whole(disk, location.ini), location.ini)


class _Migration:
    """One run of migmqlog, by the process that owns the queue manager."""

    def __init__(self, disk: Disk, location: Location, held: Ownership, say: Say) -> None:
        self._disk = disk
        self._location = location
        self._held = held
        self._say = say

    def run(self, wanted: LogType | None, management: LogManagement | None, log_path: Path | None) -> None:
        disk, directory = self._disk, _config(self._disk, self._location).log.path
        disk.sync_dir(self._location.data_dir)  # a run that was killed may have left qm.ini's new name in memory only
        left = migrate.moved_from(disk, directory)
        if left is not None:
            self._clear_old(left, directory)
        state = migrate.check_ended(disk, directory)
        newest, _ = self._checkpoints(directory)[0]
        if newest.durable > state.clean_end:
            raise LogDamaged(
                f"the log in {directory} ended at {lsn.text(state.clean_end)}, and the newest checkpoint knew it up to "
                f"{lsn.text(newest.durable)}: it is an older copy, or LogPath in qm.ini is wrong"
            )
        if (wanted or state.log_type) is LogType.LINEAR:
            self._to_linear(directory, management)
        else:
            self._to_circular(directory)
        if log_path is not None:
            self._move(directory, f"{home_path(log_path)}/{mangle(self._location.name)}")

    def _to_linear(self, directory: str, management: LogManagement | None) -> None:
        values = {"LogType": LogType.LINEAR.value}
        if management is not None:
            values["LogManagement"] = management.value
        self._check_ini_writable(values)
        if control.read(self._disk, control_path(directory))[1].log_type is LogType.CIRCULAR:
            self._forget_images(directory)  # a change to circular may have been killed before it did
        if management is not None:  # first: should this be interrupted, a run without options finds it there
            self._write_ini({"LogManagement": management.value})
        migrate.to_linear(self._disk, directory)
        self._write_ini(values)

    def _to_circular(self, directory: str) -> None:
        disk, config = self._disk, _config(self._disk, self._location)
        self._check_ini_writable({"LogType": LogType.CIRCULAR.value})
        if control.read(disk, control_path(directory))[1].log_type is LogType.LINEAR:
            extents, size = migrate.surplus(disk, directory)
            self._say(
                f"Media recovery ends here: the history in {directory}/active is deleted (log extents: {extents}, "
                f"bytes: {size}). Archived extents stay where they are."
            )
        migrate.to_circular(disk, directory, config.log.max_files)
        self._forget_images(directory)
        self._write_ini({"LogType": LogType.CIRCULAR.value})
        migrate.delete_surplus(disk, directory)

    def _checkpoints(self, directory: str) -> list[tuple[Checkpoint, list[bytes]]]:
        """The whole checkpoint files, newest first, for the log in `directory`. Raises CheckpointDamaged."""
        log_id = control.read(self._disk, control_path(directory))[1].log_id
        return checkpoint.read_files(self._disk, self._location.data_dir, log_id)

    def _forget_images(self, log_directory: str) -> None:
        """The images lie in the history that is deleted: a log that becomes linear again must not rely on them."""
        disk, directory = self._disk, self._location.data_dir
        found = self._checkpoints(log_directory)
        if not any(_names_images(catalogue) for _, catalogue in found):
            return
        newest, catalogue = found[0]
        lines = [json.loads(line) for line in catalogue]
        for fields in lines:
            fields |= {name: none for name, none in (("image", None), ("catalog", 0)) if name in fields}
        data = checkpoint.encode_file(newest, [json.dumps(fields).encode() for fields in lines])
        for _ in range(2):  # the file before must not name them either
            checkpoint.write_new(disk, directory, data)
            checkpoint.put_in_place(disk, directory, bytes.fromhex(newest.log_id))

    def _reworded(self, values: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        """The text of qm.ini with these values, and those of them that it did not have. Raises IniError."""
        path = self._location.ini
        before = read_whole(self._disk, path)
        config = ini.parse(before, path)
        said = {
            "LogType": config.log.log_type.value,
            "LogManagement": config.log_management.value,
            "LogPath": config.log.path,
        }
        changed = {name: value for name, value in values.items() if said[name] != value}
        return reworded(before, path, changed), changed

    def _check_ini_writable(self, values: dict[str, str]) -> None:
        """Raise, before the log is changed, where qm.ini can't have these values or can't be replaced.

        It is replaced by its own text to find out: nothing else tells that it is a mount of its own, say a config map.
        """
        if self._reworded(values)[1]:
            replace_file(self._disk, self._location.ini, read_whole(self._disk, self._location.ini))

    def _write_ini(self, values: dict[str, str]) -> None:
        """Let qm.ini say so too, unless it does."""
        text, changed = self._reworded(values)
        if changed:
            replace_file(self._disk, self._location.ini, text)
            for name, value in changed.items():
                self._say(f"{self._location.ini} says {name}={value} now.")

    def _move(self, old: str, new: str) -> None:
        """Copy the log, name the new place, then delete what is in the old one."""
        if new == old:
            return
        if new.startswith(f"{old}/") or old.startswith(f"{new}/"):
            raise Mistake(f"the log can't move from {old} to {new}: one of them lies in the other")
        data = self._disk.real_path(self._location.data_dir)
        if f"{data}/".startswith(f"{self._disk.real_path(new)}/"):  # whose lock is taken: that would name this command
            raise Mistake("the log can't lie where the data is, nor in a directory above that; give another path")
        refuse_inside_another(self._disk, new, self._location)
        self._check_ini_writable({"LogPath": new})
        disk, archive = self._disk, _config(self._disk, self._location).log.archive_path
        if archive is not None and f"{archive}/".startswith(f"{old}/"):
            raise Mistake(
                f"ArchivePath in qm.ini is {archive}, which lies in the log's directory and would move with it; set "
                f"ArchivePath=default, or another place to which you have moved what is there"
            )
        make_dirs(disk, new)
        lock_log(disk, self._location, new, self._held)
        migrate.copy_log(disk, old, new)
        self._write_ini({"LogPath": new})
        self._clear_old(old, new)

    def _clear_old(self, old: str, new: str) -> None:
        """The log is in `new`: delete what it left in `old`, and the note of that."""
        disk = self._disk
        migrate.drop_old(disk, old, new)
        names = disk.list(old)
        if names in ([LOG_LOCK], []):
            migrate.remove(disk, old, names)
            if disk.exists(old):
                drop_dir(disk, old)
        elif names:
            self._say(f"{old} is not empty and stays: {', '.join(names)}.")
        migrate.remove(disk, new, [migrate.MOVED_FROM])
        self._say(f"The log is in {new} now.")


def _names_images(catalogue: list[bytes]) -> bool:
    """Does a line of a checkpoint's catalogue say where in the log an image is, or the definitions?"""
    return any(fields.get("image") or fields.get("catalog") for fields in map(json.loads, catalogue))
