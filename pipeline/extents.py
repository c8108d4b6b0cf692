"""The extents of a log as a source of parts to read: where they lie, up to where they are durable, how to divide them.

`LogFiles` says where a log is and can be sent to other processes; what it holds is looked up anew on each call. It
changes nothing, and needs no queue manager: the files may be a copy, or belong to one that is running.
"""

import contextlib
import errno
import json
from collections.abc import Iterator
from itertools import pairwise

import attrs
import numpy as np

from logger import control
from logger.claims import USED
from logger.config import LogType
from logger.control import ControlState
from logger.disk import Disk, PosixDisk, absolute_path, read_whole
from logger.errors import ExtentGone, LogDamaged, LogError
from logger.frame import FAR
from logger.history import History, extent_of, read_header
from logger.reader import LogReader
from pipeline.details import definitions
from pipeline.filters import EVERYTHING, Filters, Wanted, wanted
from pipeline.operations import Batch, of_record, of_window
from pipeline.windows import (
    WINDOW,
    Extents,
    Patience,
    Places,
    Stretch,
    Window,
    last_record,
    lsns_of,
    stretches,
    windows,
)
from qmgr import ini, locations
from recovery import checkpoint
from recovery.errors import RecoveryError
from recovery.extent_index import ExtentIndex
from recovery.records import LAST, Kind

__all__ = ["EVERYTHING", "Filters", "LogFiles", "Part", "find", "named", "plan"]

PART = 64 << 20  # bytes of a part, at most, where an extent can be divided
ROUNDS = 100  # readings of a log that others write, before its end is what was read by then
NOT_SYNCED = (errno.EROFS, errno.EBADF, errno.EINVAL)  # what is only read need not be synced, or can't be
ALL = wanted(EVERYTHING, {})
LINEAR_ONLY = (
    "{} is circular: it writes over its past, so there is no history to read; migmqlog changes it to linear logging"
)


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

    def extents(self, disk: Disk) -> Extents:
        """To be closed."""
        return Extents(disk, self.history(disk), self.epoch_from, self.epoch)

    def reader(self, history: History) -> LogReader:
        """A reader of records, one after the other."""
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

    def now(self, disk: Disk) -> "LogFiles":
        """The same with what the control file says by now: the queue manager may have been started again."""
        if not self.control:
            return self
        _, state = control.read(disk, self.control)
        return attrs.evolve(self, epoch_from=state.epoch_from, epoch=state.epoch)

    def with_names(self, names: dict[int, str]) -> "LogFiles":
        return attrs.evolve(self, names=names)

    def first(self, disk: Disk | None = None) -> int:
        """The LSN from which on nothing is missing, where an extent begins.

        Raises LogDamaged where an extent is missing between others: who may do without what is before it begins behind
        it, and says so.
        """
        history = self.history(disk or PosixDisk())
        sequences = self.sequences(history)
        for before, sequence in pairwise(sequences):
            if sequence != before + 1:
                history.refuse_gap(before + 1)
        return sequences[0] * self.extent_bytes

    def sequences(self, history: History) -> list[int]:
        """Of all extents that are there by now, rising. Raises LogError where there is none."""
        sequences = list(history.places())
        if not sequences:
            raise LogError(f"there is no extent of this log in {' or '.join(self.directories)}")
        return sequences

    def end(self, since: int | None = None, disk: Disk | None = None) -> int:
        """Up to where the log can be read and is durable: behind its last whole record.

        That record may have been written and not been synced yet: so it is synced. `since`: an LSN where a record
        ended, from which on to look; never is the end before that. Raises LogDamaged, LogError, OSError.
        """
        disk = disk or PosixDisk()
        log = self.now(disk)
        with contextlib.closing(log.extents(disk)) as extents:
            found = _end(log, extents, since)
            if since is not None and found <= since:
                return since
            if _synced(log, disk, found if since is None else since, found):
                return found
            told = _told_durable(extents, found // log.extent_bytes * log.extent_bytes, found)
            return told if since is None else max(since, told)

    def at_time(self, us: int, disk: Disk | None = None) -> int:
        """An LSN before which no record is of this moment or later: that of the first such record, or the end."""
        disk = disk or PosixDisk()
        log = self.now(disk)
        start, end = log.first(disk), log.end(disk=disk)
        chosen = wanted(Filters(low_time=us), {})
        with contextlib.closing(log.extents(disk)) as extents:
            for batch in _batches(extents, start, end, chosen):
                late = np.flatnonzero(batch.headers["time"] >= us)
                if len(late):
                    return int(batch.headers["lsn"][late[0]])
        return end

    def boundary(self, start: int, end: int, max_bytes: int, disk: Disk | None = None) -> int:
        """The last LSN up to `end` where a record ends, at most `max_bytes` behind `start`; but one record at least.

        `start` where no record ends behind it.
        """
        disk = disk or PosixDisk()
        log, limit = self.now(disk), min(end, start + max_bytes)
        size = log.extent_bytes
        with contextlib.closing(log.extents(disk)) as extents:
            for sequence in range((limit - 1) // size, start // size - 1, -1):
                ends = _ends(extents, max(start, sequence * size), min(limit, (sequence + 1) * size))
                near = int(np.searchsorted(ends, limit, "right"))
                if near:
                    return int(ends[near - 1])
            for sequence in range(start // size, (end - 1) // size + 1):
                for batch in _batches(extents, max(start, sequence * size), min(end, (sequence + 1) * size)):
                    return int(batch.end_lsns[0]) if batch.end_lsns[0] <= end else start
        return start


def _ends(extents: Extents, start: int, end: int) -> Places:
    """Where the records end that begin in [start, end), all in one extent."""
    index = extents.index(start // extents.history.extent_bytes)
    if index is None:
        found = [batch.end_lsns for batch in _batches(extents, start, end)]
        return np.concatenate(found) if found else np.empty(0, np.int64)
    if not index.records:
        return np.empty(0, np.int64)
    lsns = lsns_of(index, extents.history.extent_bytes)
    return np.append(lsns[1:], index.end_lsn)[(lsns >= start) & (lsns < end)]


def _batches(extents: Extents, start: int, end: int, chosen: Wanted = ALL) -> Iterator[Batch]:
    for window in windows(extents, start, end, chosen):
        yield of_window(window) if isinstance(window, Window) else of_record(window)


def _end(log: LogFiles, extents: Extents, since: int | None) -> int:
    """Where the last whole record ends."""
    size = log.extent_bytes
    sequences = log.sequences(extents.history)
    at = since if since is not None else sequences[-1] * size
    resync = since is None
    patience = Patience()
    for _ in range(ROUNDS):
        found = 0
        try:
            begins = last_record(extents, at) if resync else None  # it is much faster to look for that first
            if begins is not None:
                at, resync = begins, False
            for record in extents.reader().records(at, resync=resync):
                found = record.end
            if found or not resync or at // size - 1 not in sequences:
                return found or at
            at -= size  # the last record has begun in the extent before
            continue
        except ExtentGone:
            raise
        except LogDamaged as exc:  # or pages that were being written
            if found > at:
                at, resync = found, False
                patience.reset()
            else:
                patience.again(exc)
            extents.close()
    return at  # others write as fast as this reads


def _told_durable(extents: Extents, start: int, end: int) -> int:
    """Where the last record ends of which a later one says that it was durable."""
    told, ends = 0, [start]
    for batch in _batches(extents, start, end):
        back = batch.headers["back"].astype(np.int64)
        durable = np.where(back == FAR, 0, batch.headers["lsn"] - back * 8)
        told = max(told, int(durable.max()))
        ends += batch.end_lsns.tolist()
    return max((one for one in ends if one <= told), default=start)


def _synced(log: LogFiles, disk: Disk, start: int, end: int) -> bool:
    """Make durable what has been read, wherever it lies by now; False where the disk does not do that."""
    places = log.history(disk).places()
    for sequence in range(start // log.extent_bytes, end // log.extent_bytes + 1):
        place = places.get(sequence)
        if place is None:
            continue  # nothing of it has been read, or it has gone into the archive, and is durable
        file = disk.open_read(place.path)
        try:
            file.sync()
        except OSError as exc:
            if exc.errno not in NOT_SYNCED:
                raise
            return False
        finally:
            file.close()
    return True


@attrs.frozen
class Part:
    """A piece of a log: the records that begin in [start, end)."""

    log: LogFiles
    start: int
    end: int
    bytes: int  # about so many have to be read


# Finding a log


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
    log = _of_log_directory(config.path, [config.archive_directory, *_used(config.path, disk)], disk)
    names: dict[int, str] = {}
    with contextlib.suppress(RecoveryError):
        _, catalogue = checkpoint.read_files(disk, location.data_dir, log.log_id)[0]
        found = [json.loads(line).get("definition") for line in catalogue]
        names |= {one["id"]: one["name"] for one in found if one}
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
    return LogFiles(
        directories=tuple(dict.fromkeys((f"{directory}/active", *archives))),
        log_id=state.log_id,
        extent_bytes=state.extent_bytes,
        control=path,
        epoch_from=state.epoch_from,
        epoch=state.epoch,
    )


def _of_folder(path: str, disk: Disk) -> LogFiles:
    directories = (path, f"{path}/active", f"{path}/archive")
    found: dict[bytes, tuple[int, str]] = {}
    for directory in directories:
        for file in _listed(directory, disk):
            if extent_of(file) is None:
                continue
            with contextlib.suppress(LogDamaged):
                header, _, _ = read_header(disk, f"{directory}/{file}")
                if header is not None:
                    found.setdefault(header.log_id, (header.extent_bytes, f"{directory}/{file}"))
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


# Names


@attrs.define
class _Known:
    """The names that a log has told this process, up to an LSN."""

    upto: int
    names: dict[int, str]
    catalogued: bool  # all names from before have been told


_known: dict[tuple[bytes, tuple[str, ...]], _Known] = {}


def named(log: LogFiles, end: int, disk: Disk | None = None) -> LogFiles:
    """The log with the names of queues that it tells before `end`.

    They are in the records that define queues; those from before the log's beginning are in the first image of all
    definitions. A queue that is named by neither has no name.
    """
    disk = disk or PosixDisk()
    history = log.history(disk)
    first = min(history.places(), default=0)
    known = _known.setdefault(
        (log.log_id, log.directories), _Known(first * log.extent_bytes, {}, catalogued=first == 1)
    )
    at, whole = known.upto, True
    with contextlib.closing(log.extents(disk)) as extents:
        while at < end:
            stop = min(end, (at // log.extent_bytes + 1) * log.extent_bytes)
            try:
                _learn(extents, known, at, stop)
            except LogDamaged:
                whole = False  # who reads that extent is told; it may be mended
            at = stop
            if whole:
                known.upto = at
    return attrs.evolve(log, names=log.names | known.names)


def _learn(extents: Extents, known: _Known, start: int, stop: int) -> None:
    """Take the names in [start, stop)."""
    kinds = {"DEFINE"} if known.catalogued else {"DEFINE", "CATALOG"}
    for batch in _batches(extents, start, stop, wanted(Filters(kinds=frozenset(kinds)), {})):
        tells = np.isin(batch.headers["kind"], (Kind.DEFINE, Kind.CATALOG))
        for record in np.flatnonzero(tells).tolist():
            kind = int(batch.headers["kind"][record])
            body = memoryview(batch.data)[int(batch.bodies[record]) : int(batch.ends[record])]
            if kind == Kind.DEFINE or not known.catalogued:
                known.names |= dict(definitions(kind, body))
            if kind == Kind.CATALOG and body[0] & LAST:
                known.catalogued = True


# Dividing it


def plan(log: LogFiles, start: int, end: int, filters: Filters = EVERYTHING, disk: Disk | None = None) -> list[Part]:
    """The parts to read for the records that begin in [start, end), without what can't hold anything that is wanted.

    Raises LogDamaged, ExtentGone where an extent is missing, OSError.
    """
    disk = disk or PosixDisk()
    log = named(log.now(disk), end, disk)
    chosen = wanted(filters, log.names)
    start = max(start, filters.low_lsn or 0)
    end = end if filters.high_lsn is None else min(end, filters.high_lsn)
    parts: list[Part] = []
    with contextlib.closing(log.extents(disk)) as extents:
        while start < end:
            stop = min(end, (start // log.extent_bytes + 1) * log.extent_bytes)
            index = extents.index(start // log.extent_bytes)
            if index is None:
                parts.append(Part(log, start, stop, stop - start))
            else:
                parts += _divided(log, index, start, stop, chosen)
            start = stop
    return parts


def _divided(log: LogFiles, index: ExtentIndex, start: int, end: int, chosen: Wanted) -> Iterator[Part]:
    lsns = lsns_of(index, log.extent_bytes)
    group: list[Stretch] = []
    for stretch in stretches(index, lsns, start, end, chosen, WINDOW):
        if sum(one.bytes for one in group) + stretch.bytes > PART:
            yield _part(log, lsns, group, start, end)
            group = []
        group.append(stretch)
    if group:
        yield _part(log, lsns, group, start, end)


def _part(log: LogFiles, lsns: Places, group: list[Stretch], start: int, end: int) -> Part:
    """No more of [start, end) than these stretches."""
    low, high = group[0].low, group[-1].high
    begin = start if not low or lsns[low - 1] < start else int(lsns[low])
    stop = end if high == len(lsns) else min(end, int(lsns[high]))
    return Part(log, begin, stop, sum(stretch.bytes for stretch in group))
