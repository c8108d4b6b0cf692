"""A linear log as its files have it: where it begins, how far it is whole and durable, which record is where.

`LogFiles` says where a log is and can be sent to other processes; what it holds is looked up anew on each call. It
needs no queue manager: the files may be a copy, or belong to one that is running.
"""

import contextlib
import errno
from collections.abc import Iterator
from itertools import pairwise

import attrs
import numpy as np

from logger import control, lsn
from logger.disk import Disk
from logger.errors import ExtentGone, LogDamaged, LogError
from logger.frame import BACK_MAX
from logger.history import History
from logger.posix_disk import PosixDisk
from pipeline.filters import EVERYTHING, Filters, Wanted, wanted
from pipeline.opened import Extents, Retries
from pipeline.operations import Batch, of_record, of_window
from pipeline.windows import Places, Window, begins, last_record, lsns_of, windows

MAX_READINGS = 100  # of a log that grows as fast as it is read; its end is where reading has come by then
NOT_SYNCED = (errno.EROFS, errno.EBADF, errno.EINVAL)  # what is only read need not be synced, or can't be
ALL = wanted(EVERYTHING, {})


@attrs.frozen(kw_only=True)
class LogFiles:
    """Where a linear log lies, and what identifies its files."""

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
        """The extents, to be read; the caller closes them."""
        return Extents(disk, self.history(disk), self.epoch_from, self.epoch)

    def now(self, disk: Disk) -> "LogFiles":
        """The same with the epoch in the control file now: the queue manager may have been restarted."""
        if not self.control:
            return self
        _, state = control.read(disk, self.control)
        return attrs.evolve(self, epoch_from=state.epoch_from, epoch=state.epoch)

    def first(self, disk: Disk | None = None) -> int:
        """The LSN from which on nothing is missing, where an extent begins.

        Raises LogDamaged where an extent is missing between others, or the one before all of them is there and is cut
        or damaged; OSError where one is there that can't be read. A reader that can do without what lies before such an
        extent names an LSN behind it to begin at.
        """
        history = self.history(disk or PosixDisk())
        sequences = self.sequences(history)
        history.refuse_unreadable(sequences[0] - 1)
        for before, sequence in pairwise(sequences):
            if sequence != before + 1:
                history.refuse_unreadable(before + 1)
                history.refuse_gap(before + 1)
        return sequences[0] * self.extent_bytes

    def unbroken(self, until: int, disk: Disk | None = None) -> int:
        """The LSN from which on nothing is missing up to `until`, where an extent begins; behind it if that is gone.

        What lies before a gap may be nobody's concern: extents that were archived before the log was circular for a
        while stay, and those between will never come back. Raises LogDamaged, OSError where one is there and can't be
        read.
        """
        history = self.history(disk or PosixDisk())
        sequences = self.sequences(history)
        last = min((one for one in sequences if until <= (one + 1) * self.extent_bytes), default=sequences[-1])
        first = history.reaches_back_to(last)
        history.refuse_unreadable(first - 1)
        return first * self.extent_bytes

    def stretch(self, us: int, end: int, disk: Disk | None = None) -> tuple[int, int]:
        """[start, end) of the newest unbroken run of extents that has a record of this moment or an earlier one.

        Of the oldest run where none has. `end`: that of the log. Raises LogDamaged, also where the extents that are
        missing behind the run may have such records, too; OSError.
        """
        disk = disk or PosixDisk()
        log = self.now(disk)
        history = log.history(disk)
        sequences = log.sequences(history)
        size, missing = log.extent_bytes, 0
        first = history.reaches_back_to(sequences[-1])
        while sequences[0] < first and not log._has(us, first * size, end, disk):
            last = max(one for one in sequences if one < first)
            first, end, missing = history.reaches_back_to(last), log._whole_to(last, disk), last + 1
        if missing and not log._has(us, first * size, end, disk, later=True):
            history.refuse_unreadable(missing)
            history.refuse_gap(missing)
        history.refuse_unreadable(first - 1)
        return first * log.extent_bytes, end

    def _whole_to(self, sequence: int, disk: Disk) -> int:
        """Where this extent ends, if the next one is missing; or where a record begins that goes on in that."""
        size = self.extent_bytes
        with contextlib.closing(self.extents(disk)) as extents:
            for begun in range(sequence, 0, -1):
                at = last_record(extents, begun * size) if extents.has(begun) else 0
                if at is None:
                    continue  # all of it is in the middle of a long record
                try:
                    for _ in batches(extents, at or (begun + 1) * size, (begun + 1) * size):
                        pass
                except LogDamaged:
                    return at
                break
        return (sequence + 1) * size

    def has_until(self, us: int, start: int, end: int, disk: Disk | None = None) -> bool:
        """Is a record that begins in [start, end) of this moment or an earlier one? Raises LogDamaged, OSError."""
        disk = disk or PosixDisk()
        return self.now(disk)._has(us, start, end, disk)

    def _has(self, us: int, start: int, end: int, disk: Disk, *, later: bool = False) -> bool:
        """Is a record that begins in [start, end) of this moment or an earlier one; or `later`, of a later one?"""
        chosen = wanted(Filters(low_time=us + 1) if later else Filters(high_time=us + 1), {})
        with contextlib.closing(self.extents(disk)) as extents:
            return any(((batch.headers["time"] > us) == later).any() for batch in batches(extents, start, end, chosen))

    def has(self, start: int, end: int, disk: Disk | None = None) -> bool:
        """Are the extents there in which [start, end) lies, and is that durable? Raises LogError, OSError."""
        disk = disk or PosixDisk()
        history, size = self.history(disk), self.extent_bytes
        places = history.places()
        for sequence in range(start // size, (end - 1) // size + 1):
            history.refuse_unread(sequence)
            if sequence not in places:
                return False
        return end <= self.end(disk=disk)

    def sequences(self, history: History) -> list[int]:
        """The sequences of all extents that exist now, rising. Raises LogError where there is none."""
        sequences = list(history.places())
        if not sequences:
            places = " or ".join(self.directories)
            raise LogError(f"there is no extent of this log in {places}; a queue manager that never ran has none")
        return sequences

    def end(self, since: int | None = None, disk: Disk | None = None) -> int:
        """Up to where the log can be read and is durable: behind its last whole record.

        That record, and many before it, may have been written and not been synced yet: so all is synced that is not
        known to be durable. `since`: an earlier result, where the search begins; the result is never less. Raises
        LogDamaged, also where it ends before what the control file says was durable, and where the newest extent is
        not there that it names; LogError, OSError.
        """
        disk = disk or PosixDisk()
        log = self.now(disk)
        if since is None and log.control:
            self._refuse_lost(disk)
        durable = log.durable(disk)  # before the look: a queue manager that runs goes on
        with contextlib.closing(log.extents(disk)) as extents:
            found = _end(log, extents, since, durable)
            if since is not None and found <= since:
                if self._lacks(extents, self._newest(disk), since):
                    self._refuse_lost(disk)
                return since
            proven = durable if since is None else since
            if not proven:
                proven = _logged_durable(extents, 0, found)
            if _synced(log, disk, min(proven, found), found):
                return found
            proven = max(proven, _logged_durable(extents, proven, found))
            return _last_end(extents, 0 if since is None else since, min(proven, found))

    def _refuse_lost(self, disk: Disk) -> None:
        """Raise LogDamaged where the newest extent is missing or was cut: the log would seem to end before it."""
        history, named = self.history(disk), -1
        while (newest := self._newest(disk)) != named:  # once more: a queue manager that runs has gone on, perhaps far
            if not newest or newest in history.places_from(newest):
                return
            history.refuse_unread(newest)
            named = newest
        first = min(newest, max(history.places(), default=newest) + 1)  # of those that are lacking at the end
        history.refuse_unreadable(first)
        path, begins = history.name(first), first * self.extent_bytes
        raise LogDamaged(
            f"log extent {path} is missing, or holds nothing, and the control file says that it has the log from "
            f"{lsn.text(begins)}; restore it from a backup",
            path=path,
            lsn=begins,
        )

    def refuse_undone(self, history: History, disk: Disk) -> None:
        """Raise LogDamaged where the archive goes on behind the newest extent: what it has there is of another past.

        `history` has looked; the control file is read behind that, as a queue manager that runs goes on.
        """
        newest = self._newest(disk)
        for sequence, place in history.known.items():
            if 0 < newest < sequence and place.path.rpartition("/")[0] != self.directories[0]:
                raise LogDamaged(
                    f"{place.path} has the log from {lsn.text(sequence * self.extent_bytes)} on, and the control file "
                    f"says that it ends in {history.name(newest)}: the queue manager was put back from an older copy "
                    f"and its archive was not; start it once, which tells what the archive has of the past that is "
                    f"undone, or put the archive of then back",
                    path=place.path,
                    lsn=sequence * self.extent_bytes,
                )

    def _lacks(self, extents: Extents, newest: int, since: int) -> bool:
        """Is the extent `newest` missing, and does it lie behind `since`, where a record ends?"""
        return newest > (since - 8) // self.extent_bytes and not extents.has(newest)

    def _newest(self, disk: Disk) -> int:
        """The last sequence that the control file names; 0 where there is none."""
        return self._control_state(disk)[1]

    def grown(self, since: int, disk: Disk | None = None) -> bool:
        """May `end` find more than its earlier result `since`, or that what came since is lost? Much cheaper."""
        disk = disk or PosixDisk()
        durable, newest = self._control_state(disk)
        if durable > since:
            return True
        with contextlib.closing(self.extents(disk)) as extents:
            try:
                return begins(extents, since) or self._lacks(extents, newest, since)
            except LogDamaged:
                return True  # `end` looks again, and says what it is

    def durable(self, disk: Disk) -> int:
        """An LSN that is durable, as the control file says; 0 where there is none."""
        return self._control_state(disk)[0]

    def _control_state(self, disk: Disk) -> tuple[int, int]:
        """What the control file says: an LSN that is durable, and the last sequence. Zeros where there is none."""
        if not self.control:
            return 0, 0
        _, state = control.read(disk, self.control)
        return state.durable, max((sequence for _, sequence in state.extents), default=0)

    def at_time(self, us: int, disk: Disk | None = None) -> int:
        """An LSN before which no record is of this moment or later: that of the first such record, or the end."""
        disk = disk or PosixDisk()
        log = self.now(disk)
        start, end = log.first(disk), log.end(disk=disk)
        chosen = wanted(Filters(low_time=us), {})
        with contextlib.closing(log.extents(disk)) as extents:
            for batch in batches(extents, start, end, chosen):
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
                for batch in batches(extents, max(start, sequence * size), min(end, (sequence + 1) * size)):
                    return int(batch.end_lsns[0]) if batch.end_lsns[0] <= end else start
        return start

    def last_before(self, at: int, disk: Disk | None = None, *, since: int | None = None) -> "Last | None":
        """The last record that begins before `at`; None where that is not there any more, or is damaged.

        `since`: where an earlier record ends; nothing before that is read. Where a record once ended at `at` this is
        that record, unless the log was put back from an older copy and has had other records since.
        """
        disk = disk or PosixDisk()
        log = self.now(disk)
        size = log.extent_bytes
        with contextlib.closing(log.extents(disk)) as extents, contextlib.suppress(LogDamaged):
            for sequence in range((at - 8) // size, 0, -1):
                last = None
                first = sequence * size if since is None or since >= at else max(since, sequence * size)
                for batch in batches(extents, first, min(at, (sequence + 1) * size)):
                    begin, epoch, time = (int(batch.headers[name][-1]) for name in ("lsn", "epoch", "time"))
                    last = Last(begin, epoch, time, int(batch.end_lsns[-1]))
                if last is not None:
                    return last
        return None


@attrs.frozen
class Last:
    """What identifies a record: one of another past differs in it."""

    lsn: int
    epoch: int
    time: int  # microseconds since 1970-01-01 UTC
    end: int


def _ends(extents: Extents, start: int, end: int) -> Places:
    """Where the records end that begin in [start, end), all in one extent."""
    index = extents.index(start // extents.history.extent_bytes)
    if index is None:
        found = [batch.end_lsns for batch in batches(extents, start, end)]
        return np.concatenate(found) if found else np.empty(0, np.int64)
    if not index.records:
        return np.empty(0, np.int64)
    lsns = lsns_of(index, extents.history.extent_bytes)
    return np.append(lsns[1:], index.end_lsn)[(lsns >= start) & (lsns < end)]


def batches(extents: Extents, start: int, end: int, chosen: Wanted = ALL) -> Iterator[Batch]:
    """The records that begin in [start, end); those left out hold nothing that is chosen."""
    for window in windows(extents, start, end, chosen):
        yield of_window(window) if isinstance(window, Window) else of_record(window)


def _end(log: LogFiles, extents: Extents, since: int | None, durable: int) -> int:
    """Where the last whole record ends. Raises LogDamaged where that is before the LSN `durable`."""
    size = log.extent_bytes
    sequences = log.sequences(extents.history) if since is None else []
    if sequences and log.control:
        log.refuse_undone(extents.history, extents.disk)
    elif sequences:  # a folder may lack the newest extents, but has none that was cut
        extents.history.refuse_unreadable(sequences[-1] + 1)
    at = since if since is not None else sequences[-1] * size
    resync = since is None
    retries = Retries()
    for _ in range(MAX_READINGS):
        found = 0
        try:
            begins = last_record(extents, at) if resync else None  # it is much faster to look for that first
            if begins is not None:
                at, resync = begins, False
            for record in extents.reader().records(at, durable=durable, resync=resync):
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
                retries.reset()
            else:
                retries.wait_or_raise(exc)
            extents.close()
    return at  # others write as fast as this reads


def _logged_durable(extents: Extents, start: int, end: int) -> int:
    """The highest LSN up to which the log was durable, as the records in [start, end) say; 0: none says so.

    The last records say the highest ones, so the extents are read from the end.
    """
    size = extents.history.extent_bytes
    for sequence in range((end - 1) // size, max(start // size, 1) - 1, -1):
        best = 0
        try:
            for batch in batches(extents, max(start, sequence * size), min(end, (sequence + 1) * size)):
                back = batch.headers["back"].astype(np.int64)
                best = max(best, int(np.where(back == BACK_MAX, 0, batch.headers["lsn"] - back * 8).max()))
        except ExtentGone:
            return 0
        if best:
            return best
    return 0


def _last_end(extents: Extents, since: int, durable: int) -> int:
    """The end of the last record that ends at or before `durable`.

    Where none ends between: `since`, or where the first extent begins if that is behind it.
    """
    size = extents.history.extent_bytes
    first = max(since, min(extents.history.places(), default=1) * size)
    for sequence in range((durable - 1) // size, first // size - 1, -1):
        ends = _ends(extents, max(first, sequence * size), min(durable, (sequence + 1) * size))
        near = int(np.searchsorted(ends, durable, "right"))
        if near:
            return int(ends[near - 1])
    return first


def _synced(log: LogFiles, disk: Disk, start: int, end: int) -> bool:
    """Sync the extents in [start, end), wherever they lie now; False where the file system refuses a sync.

    The oldest first. What is gone meanwhile was moved into the archive, and is durable there.
    """
    for sequence, place in log.history(disk).places_from(start // log.extent_bytes).items():
        if sequence > end // log.extent_bytes:
            break
        try:
            file = disk.open_read(place.path)
        except FileNotFoundError:
            continue
        try:
            file.sync()
        except OSError as exc:
            if exc.errno not in NOT_SYNCED:
                raise
            return False
        finally:
            file.close()
    return True
