"""The extents of a log as a source of parts to read: where they lie, up to where they are durable, how to divide them.

`LogFiles` says where a log is and can be sent to other processes; what it holds is looked up anew on each call. It
changes nothing, and needs no queue manager: the files may be a copy, or belong to one that is running.
"""

import contextlib
import errno
import json
from collections.abc import Iterator

import attrs

from logger import control, lsn
from logger.claims import USED
from logger.config import LogType
from logger.control import ControlState
from logger.disk import Disk, PosixDisk, absolute_path, read_whole
from logger.errors import LogDamaged, LogError
from logger.history import History, extent_of, read_header
from logger.reader import LogReader, Record
from qmgr import ini, locations
from recovery import checkpoint
from recovery.errors import RecoveryError
from recovery.records import Kind

LOOKS = 5  # at a log that others write, before what can't be read counts as damage
READ_ONLY = (errno.EROFS, errno.EBADF, errno.EINVAL)
LINEAR_ONLY = (
    "{} is circular: it writes over its past, so there is no history to read; migmqlog changes it to linear logging"
)


@attrs.frozen
class Filters:
    """Which rows are wanted. Ranges are half-open; None: no bound. Times in microseconds since 1970-01-01 UTC."""

    low_lsn: int | None = None
    high_lsn: int | None = None
    low_time: int | None = None
    high_time: int | None = None
    objects: frozenset[str] | None = None
    kinds: frozenset[str] | None = None

    def wants_record(self, at: int, time: int) -> bool:
        return (
            (self.low_lsn is None or at >= self.low_lsn)
            and (self.high_lsn is None or at < self.high_lsn)
            and (self.low_time is None or time >= self.low_time)
            and (self.high_time is None or time < self.high_time)
        )


EVERYTHING = Filters()


@attrs.frozen(kw_only=True)
class LogFiles:
    """Where a linear log lies, and how its files are told from others."""

    directories: tuple[str, ...]  # the active one first
    log_id: bytes
    extent_bytes: int
    control: str = ""  # path of the control file; "": there is none
    epoch_from: int = 0  # LSN from which on only frames of `epoch` count
    epoch: int = 0
    names: dict[int, str] = attrs.field(factory=dict, hash=False)  # of queues, by number

    def history(self, disk: Disk) -> History:
        return History(disk, self.directories, self.log_id, self.extent_bytes)

    def now(self, disk: Disk) -> "LogFiles":
        """The same with what the control file says by now: the queue manager may have been started again."""
        if not self.control:
            return self
        _, state = control.read(disk, self.control)
        return attrs.evolve(self, epoch_from=state.epoch_from, epoch=state.epoch)

    def reader(self, history: History) -> LogReader:
        state = ControlState(
            log_id=self.log_id,
            log_type=LogType.LINEAR,
            extent_bytes=self.extent_bytes,
            epoch=self.epoch,
            epoch_from=self.epoch_from,
            head=0,
            checkpoint=0,
            durable=0,
            clean_end=0,
            extents=(),
        )
        return history.reader(state)

    def records(self, start: int, disk: Disk, *, durable: int = 0) -> Iterator[Record]:
        """The records from the LSN `start` on, which may lie in the middle of one."""
        history = self.history(disk)
        history.places()
        with contextlib.closing(self.reader(history)) as reader:
            at = start // self.extent_bytes * self.extent_bytes
            for record in reader.records(at, durable=durable, resync=True):
                if record.lsn >= start:
                    yield record

    def first(self, disk: Disk | None = None) -> int:
        """The LSN from which on nothing is missing. Raises LogDamaged where an extent is missing between others."""
        history = self.history(disk or PosixDisk())
        places = history.places()
        if not places:
            raise LogDamaged(f"there is no extent of this log in {' or '.join(self.directories)}")
        oldest = next(iter(places))
        for sequence in range(oldest, max(places)):
            if sequence not in places:
                history.refuse_gap(sequence)
        return oldest * self.extent_bytes

    def end(self, since: int | None = None, disk: Disk | None = None) -> int:
        """Up to where the log is durable: behind its last whole record, which is made durable by that."""
        disk = disk or PosixDisk()
        log = self.now(disk)
        history = log.history(disk)
        newest = max(history.places(), default=0) * log.extent_bytes
        at = max(since or 0, newest if since is None else 0)
        for look in range(LOOKS):
            try:
                with contextlib.closing(log.reader(history)) as reader:
                    found = at
                    for record in reader.records(at, resync=since is None):
                        found = record.end
                break
            except LogDamaged:
                if look == LOOKS - 1:
                    raise
                history.places()
        for sequence in {at // log.extent_bytes, found // log.extent_bytes}:
            place = history.places().get(sequence)
            if place is not None:
                file = disk.open_read(place.path)
                try:
                    file.sync()
                except OSError as exc:
                    if exc.errno not in READ_ONLY:
                        raise
                finally:
                    file.close()
        return found

    def at_time(self, us: int, disk: Disk | None = None) -> int:
        """An LSN before which no record is of this moment or later."""
        disk = disk or PosixDisk()
        at = self.first(disk)
        for record in self.records(at, disk):
            if record.time >= us:
                return record.lsn
            at = record.end
        return at

    def boundary(self, start: int, end: int, max_bytes: int, disk: Disk | None = None) -> int:
        """An LSN where a record ends, at most `max_bytes` behind `start` unless a single record is longer."""
        at = start
        for record in self.records(start, disk or PosixDisk(), durable=end):
            if record.end > end or (at > start and record.end > start + max_bytes):
                break
            at = record.end
        return at


@attrs.frozen
class Part:
    """A piece of a log: the records that begin in [start, end)."""

    log: LogFiles
    start: int
    end: int
    bytes: int


def find(path: str, name: str | None = None, disk: Disk | None = None) -> LogFiles:
    """The log of a queue manager (`path` is its data path), in a log directory, or in a folder of extents.

    Raises LogError with a sentence, MQError, OSError.
    """
    disk = disk or PosixDisk()
    path = absolute_path(path)
    if name is not None:
        return _of_queue_manager(path, name, disk)
    if disk.exists(f"{path}/{control.NAME}"):
        return _of_log_directory(path, [f"{path}/archive", *_used(path, disk)], disk)
    return _of_folder(path, disk)


def _of_queue_manager(path: str, name: str, disk: Disk) -> LogFiles:
    location = locations.find(name, path)
    if not disk.exists(location.ini):
        raise LogError(f"queue manager {name!r} does not exist in {path}: there is no {location.ini}")
    config = ini.parse(read_whole(disk, location.ini), location.ini).log
    archives = [config.archive_directory, *_used(config.path, disk)]
    log = _of_log_directory(config.path, archives, disk)
    names = dict(log.names)
    with contextlib.suppress(RecoveryError):
        _, catalogue = checkpoint.read_files(disk, location.data_dir, log.log_id)[0]
        definitions = [json.loads(line).get("definition") for line in catalogue]
        names |= {one["id"]: one["name"] for one in definitions if one}
    return attrs.evolve(log, names=names)


def _used(directory: str, disk: Disk) -> list[str]:
    """The archives that the log in `directory` has ever used."""
    path = f"{directory}/{USED}"
    return read_whole(disk, path).decode().splitlines() if disk.exists(path) else []


def _of_log_directory(directory: str, archives: list[str], disk: Disk) -> LogFiles:
    path = f"{directory}/{control.NAME}"
    _, state = control.read(disk, path)
    if state.log_type is not LogType.LINEAR:
        raise LogError(LINEAR_ONLY.format(f"the log in {directory}"))
    log = LogFiles(
        directories=tuple(dict.fromkeys((f"{directory}/active", *archives))),
        log_id=state.log_id,
        extent_bytes=state.extent_bytes,
        control=path,
        epoch_from=state.epoch_from,
        epoch=state.epoch,
    )
    return _with_names(log, disk)


def _of_folder(path: str, disk: Disk) -> LogFiles:
    directories = [path, f"{path}/active", f"{path}/archive"]
    found: dict[bytes, tuple[int, str]] = {}
    for directory in directories:
        for each in disk.list(directory):
            if extent_of(each) is None:
                continue
            with contextlib.suppress(LogDamaged):
                header, _, _ = read_header(disk, f"{directory}/{each}")
                if header is not None:
                    found.setdefault(header.log_id, (header.extent_bytes, f"{directory}/{each}"))
    if not found:
        raise LogError(
            f"there is no log in {path}: no {control.NAME} and no extents such as S0000000.LOG; name the queue "
            f"manager, or give the directory of its log or of its extents"
        )
    if len(found) > 1:
        one, other = [where for _, where in found.values()][:2]
        raise LogError(f"{path} has extents of different logs, {one} and {other}; put each log into its own folder")
    [(log_id, (extent_bytes, _))] = found.items()
    log = LogFiles(directories=tuple(directories), log_id=log_id, extent_bytes=extent_bytes)
    return _with_names(log, disk)


def _with_names(log: LogFiles, disk: Disk) -> LogFiles:
    """The log with the names of queues that it tells."""
    names = dict(log.names)
    try:
        for record in log.records(log.first(disk), disk):
            names |= names_in(record)
    except LogDamaged:
        pass  # whoever reads it is told
    return attrs.evolve(log, names=names)


def names_in(record: Record) -> dict[int, str]:
    """The names of queues, by number, that a record tells."""
    if record.kind == Kind.DEFINE:
        definitions = [json.loads(bytes(record.body))]
    elif record.kind == Kind.CATALOG:
        definitions = [one["definition"] for one in json.loads(bytes(record.body[1:]))["queues"]]
    else:
        return {}
    return {one["id"]: one["name"] for one in definitions}


def plan(log: LogFiles, start: int, end: int, filters: Filters = EVERYTHING, disk: Disk | None = None) -> list[Part]:
    """The parts to read for the records that begin in [start, end), without those that hold nothing that is wanted."""
    disk = disk or PosixDisk()
    log = _with_names(log.now(disk), disk)
    start = max(start, filters.low_lsn or 0)
    if filters.high_lsn is not None:
        end = min(end, filters.high_lsn)
    size = log.extent_bytes
    parts = []
    while start < end:
        stop = min(end, (start // size + 1) * size)
        parts.append(Part(log, start, stop, stop - start))
        start = stop
    return parts


def no_record(path: str, at: int) -> LogDamaged:
    return LogDamaged(f"{path} is damaged at {lsn.text(at)}; restore the file from a backup", path=path, lsn=at)
