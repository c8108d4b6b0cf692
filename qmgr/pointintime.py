"""A new queue manager as another one was at an earlier moment: built from its log and media images, offline.

The log of the new one begins anew. Units of work that were in doubt then are in doubt in it, those in flight are
backed out, as after a crash at that moment.
"""

import contextlib
from collections.abc import Iterator

import attrs

from logger import at_rest, claims, control
from logger import lsn as lsns
from logger.archive_plan import ArchivePolicy
from logger.clock import Clock, SystemClock
from logger.config import LogType
from logger.control import ControlState
from logger.disk import Disk
from logger.errors import LogDamaged, LogFailed
from logger.extent import file_name, linear_number
from logger.history import History
from logger.log import Log
from logger.posix_disk import Path, PosixDisk
from logger.progress import Progress, no_progress
from logger.reader import LogReader
from logger.whole_files import make_and_keep_dirs, make_dirs, read_whole, replace_file
from qmgr import ini, locations, mqsini
from qmgr.configuration import AutoConfig
from qmgr.creation import keep_removed, remove_tree, removing_empty_dirs
from qmgr.errors import AlreadyExists, Mistake, MQError
from qmgr.locations import Location
from qmgr.missing import away, unfinished, unknown
from qmgr.objects import check_progress
from qmgr.ownership import LOG_LOCK, lock_log, own, refuse_inside_another, refuse_log_path, refuse_root
from qmgr.resource import Resource
from qmgr.survey import Survey, past_damage, rebuilt, survey
from qmgr.translated import translated
from qmgr.units import rolled_forward
from recovery.checkpoint import Checkpoint, encode_file, put_in_place, read_files, write_new
from recovery.errors import CheckpointDamaged, NotRecoverable
from recovery.records import Backout
from recovery.uows import ACTIVE, Uow


@attrs.frozen(kw_only=True)
class Recovered:
    """What was built."""

    name: str
    data_path: str
    lsn: int  # the state is that before this LSN of the log that it was built from
    time: int  # of the last record before it, microseconds since 1970-01-01 UTC
    queues: int
    messages: int
    backed_out: int  # units of work that were in flight
    in_doubt: int


def recover_to(
    name: str,
    into: Path,
    *,
    lsn: int | None = None,
    time_us: int | None = None,
    data_path: Path | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
    progress: Progress = no_progress,
) -> Recovered:
    """Build, below the data path `into`, queue manager `name` as it was before an LSN or at a moment (`qm recover-to`).

    The original is not changed and must not be running. Its log has to reach back to the media images, or to its very
    beginning. Raises Mistake, AlreadyExists, InUse, Damaged (what is missing, by name), Unavailable.
    """
    if (lsn is None) == (time_us is None):
        raise Mistake("recover_to takes an LSN or a time, one of the two")
    if type(lsn if time_us is None else time_us) is not int:
        raise Mistake("lsn and time_us of recover_to are whole numbers: an LSN, microseconds since 1970-01-01 UTC")
    check_progress(progress)
    disk, clock = disk or PosixDisk(), clock or SystemClock()
    source = locations.find(name, data_path)
    target = locations.find(name, into, called="into")
    with translated(name, "recovered"), contextlib.ExitStack() as owned:
        if not disk.exists(source.ini):
            raise unknown(disk, source)
        refuse_target(disk, target)
        refuse_inside_another(disk, target.data_dir, target)
        refuse_root(disk, source.data_dir, name)
        refuse_root(disk, f"{target.data_root}/mqs.ini", name)
        held = own(disk, source, None, command="qm recover-to")
        owned.callback(held.release)
        config = ini.parse(read_whole(disk, source.ini), source.ini)
        refuse_log_path(disk, source, config.log.path)
        lock_log(disk, source, config.log.path, held, command="qm recover-to")
        mqsini.read(disk, f"{target.data_root}/mqs.ini")  # one that can't be changed is told before anything is made
        with removing_empty_dirs(disk, target):
            return _Recovery(disk, clock, source, target, config, progress).run(lsn, time_us)


def refuse_target(disk: Disk, target: Location) -> None:
    """Raise AlreadyExists unless the place is empty, or has only what an interrupted recovery left there."""
    if what := away(disk, target):
        raise AlreadyExists(what, name=target.name)
    names = disk.list(target.data_dir) if disk.exists(target.data_dir) else []
    begun = {target.lock, f"{target.unfinished_ini}.new"}  # all that there is before `unfinished`
    there = {f"{target.data_dir}/{name}" for name in names} - begun
    if (there or disk.exists(target.log_dir)) and not unfinished(disk, target):
        raise AlreadyExists(f"{target.data_root} has a queue manager {target.name!r} already; give an empty directory")


@contextlib.contextmanager
def _removing_unfinished(disk: Disk, target: Location) -> Iterator[None]:
    """If the block fails before there is a queue manager, remove what it made. The directory is owned."""
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):  # the disk may be what has failed
            if not disk.exists(target.ini):
                remove_tree(disk, target.log_dir)
                keep_removed(disk, target.log_dir)  # before what says whose it is goes
                remove_tree(disk, target.data_dir, last=(target.unfinished_ini.rpartition("/")[2], LOG_LOCK))
        raise


def _readable_to(reader: LogReader, state: ControlState) -> tuple[int, LogDamaged | None]:
    """(the LSN up to which the log can be read, None); or, if it is damaged behind the head, that LSN and the error."""
    try:
        for _ in reader.records(state.head, durable=max(state.durable, state.clean_end)):
            pass
    except LogDamaged as exc:
        return max(reader.end, state.head), exc
    return reader.end, None


class _Recovery:
    """One recovery to a point in time."""

    def __init__(
        self, disk: Disk, clock: Clock, source: Location, target: Location, config: ini.Config, progress: Progress
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._source = source
        self._target = target
        self._config = config
        self._progress = progress

    def run(self, until: int | None, moment: int | None) -> Recovered:
        """Recover to before the LSN `until`, or to the `moment`, in microseconds since 1970-01-01 UTC."""
        state, reader, start, history = self._opened()
        with contextlib.closing(reader):
            end, damage = _readable_to(reader, state)
            gap = 0  # where the extents that have what is wanted end, if not with the log
            if history is not None:
                start, gap = self._stretch(history, reader, start, end, until, moment)

            def look(start: int) -> tuple[Survey, bool, int]:
                if until is None:
                    last, found_later = self._last_before(reader, start, gap or end, moment)
                else:
                    last, found_later = until, until <= end
                return survey(reader, start, min(last, end), first_lsn=state.extent_bytes), found_later, last

            size, head = state.extent_bytes, state.head if state.log_type is LogType.LINEAR else 0
            (found, found_later, last), start, old = past_damage(look, start, reader, extent_bytes=size, head=head)
            if not found_later:  # what is damaged, or missing, may lie before what is wanted
                if gap:
                    assert history is not None
                    history.refuse_gap(gap // size)
                if damage is not None:
                    raise damage
            if last > end:
                raise Mistake(f"the log ends at {lsns.text(end)}, so {lsns.text(last)} is not in it")
            beginning = start == state.extent_bytes
            if end == state.extent_bytes:
                why = "its first start was cut off" if state.epoch else "the queue manager was never started"
                raise Mistake(f"its log holds nothing yet: {why}")
            if beginning and not found.time:
                raise Mistake(f"the log begins at {lsns.text(start)}, and what is asked for was before that")
            make_and_keep_dirs(self._disk, self._target.data_dir)
            held = own(self._disk, self._target, None, command="qm recover-to")
            try:
                refuse_target(self._disk, self._target)  # another recovery may have built it meanwhile
                with _removing_unfinished(self._disk, self._target):
                    return self._build(found, reader, state)
            except NotRecoverable as exc:
                if old is not None:
                    raise old from exc
                if beginning:
                    raise
                raise NotRecoverable(f"{exc} ({self._what_is_missing(state, history, start)})") from exc
            finally:
                held.release()

    def _what_is_missing(self, state: ControlState, history: History | None, start: int) -> str:
        """Why there is no log before the LSN `start`. Raises LogDamaged, OSError if there is, and it can't be read."""
        if history is None:
            return "circular logging has overwritten them"
        before = start // state.extent_bytes - 1
        history.refuse_unreadable(before)
        older = "is" if min(history.known, default=before) < before else "and older ones are"
        missing = f"{file_name(linear_number(before))} {older} missing"
        log = self._config.log
        archive_away = claims.away(self._disk, log.archive_directory, state.log_id, log.path)
        return f"{missing}: {archive_away}" if archive_away else missing

    def _opened(self) -> tuple[ControlState, LogReader, int, History | None]:
        """(control state, reader, the first LSN from which all can be read, what there is of a linear log).

        Extents of a linear log are opened as they are read: one that is missing behind what is wanted does not matter.
        Raises LogDamaged.
        """
        disk, config = self._disk, self._config.log
        _, state = control.read(disk, at_rest.control_path(config.path))
        if state.log_type is not LogType.LINEAR:
            return at_rest.read_with_history(disk, config)
        history = at_rest.history_of(disk, config, state)
        history.places()
        first = history.reaches_back_to(state.head // state.extent_bytes)
        reader = at_rest.history_of(disk, config, state).reader(state)  # which looks again, and may find more by then
        return state, reader, first * state.extent_bytes, history

    def _stretch(
        self, history: History, reader: LogReader, start: int, end: int, until: int | None, moment: int | None
    ) -> tuple[int, int]:
        """(start, gap) of the extents without a gap between them that have what is wanted.

        These begin at the LSN `start`, and end at `gap`, where an extent is missing; 0: they are the newest ones.
        """
        size, gap = history.extent_bytes, 0
        while older := [sequence for sequence in history.known if sequence < start // size]:
            wanted_here = until is not None and until > start
            first = history.known.get(start // size)
            if moment is not None and first is not None and first.taken <= moment:
                wanted_here = self._last_before(reader, start, gap or end, moment)[0] > start
            if wanted_here:
                break
            gap = (older[-1] + 1) * size
            start = history.reaches_back_to(older[-1]) * size
        return start, gap

    def _last_before(self, reader: LogReader, start: int, end: int, moment: int | None) -> tuple[int, bool]:
        """(the end of the last record that is not later than the moment, whether there is a later one).

        All are read, since the clock may have been set back in between. If there is a later one, nothing is wanted of
        what lies behind the LSN `end`, or behind damage.
        """
        last, later, now = start, False, 0
        try:
            for raw in reader.records(start, durable=end, resync=True, until=end):
                now = raw.time
                if moment is not None and now <= moment:
                    last = raw.end
                else:
                    later = True
        except LogDamaged:
            if moment is None or now <= moment:
                raise
        return last, later

    def _build(self, found: Survey, reader: LogReader, state: ControlState) -> Recovered:
        disk, target = self._disk, self._target
        log_id = disk.entropy(16)
        config = self._config_of_target()
        self._make_directories(config)
        tuning = config.tuning
        buffers = tuning.default_q_buffer_size, tuning.default_pq_buffer_size
        like = Resource(disk, target.queues, log_id, self._clock.give_way, buffers, imaged=True)
        rebuild = rebuilt(found, like, reader, self._progress)
        in_flight = [unit for unit in rebuild.uows if unit.state is ACTIVE]
        for unit in in_flight:
            rebuild.apply(Backout(unit.number, done=True), 0, 0, found.time)
        in_doubt = rebuild.uows.in_doubt()
        for queue in rebuild.by_id.values():
            queue.image = None  # it lies in the log of the original
        messages = sum(queue.depth for queue in rebuild.by_id.values()) - sum(unit.put_count for unit in in_doubt)
        rebuild.catalog = 0  # so does the one of the definitions
        lines = rebuild.write_out()
        epoch = max(state.epoch, found.epoch)
        first = at_rest.create(disk, config.log, log_id, epoch)
        now = max(found.time, self._clock.wall_us())
        start = Checkpoint(
            log_id=log_id.hex(),
            lsn=first,
            head=first,
            durable=first,
            epoch=epoch,
            time=now - self._clock_lag_us(state),
            wall=now,
            clean=True,
            counters={"queue": rebuild.next_queue, "segment": like.next_segment},
            units={},
        )
        write_new(disk, target.data_dir, encode_file(start, lines))
        put_in_place(disk, target.data_dir, log_id)
        if in_doubt:
            self._log_doubtful(config, first, epoch, in_doubt)
        self._put_ini_in_place()
        return Recovered(
            name=target.name,
            data_path=target.data_root,
            lsn=found.until,
            time=found.time,
            queues=len(rebuild.by_id),
            messages=messages,
            backed_out=len(in_flight),
            in_doubt=len(in_doubt),
        )

    def _make_directories(self, config: ini.Config) -> None:
        """Make empty directories, after the unfinished qm.ini that says whose they are."""
        disk, target = self._disk, self._target
        for path in (target.log_dir, target.queues, target.errors):
            remove_tree(disk, path)  # of an interrupted recovery
        replace_file(disk, target.unfinished_ini, ini.render(config).encode())
        make_and_keep_dirs(disk, target.queues)
        make_dirs(disk, target.errors)
        make_and_keep_dirs(disk, target.log_dir)

    def _config_of_target(self) -> ini.Config:
        """What its qm.ini says: as the original's, but for where it is and who finds it.

        The ports stay the original's, which may run beside it, also those of listeners that AutoConfig would bring with
        the next start; and what that would define or alter was not there then.
        """
        log = attrs.evolve(self._config.log, path=self._target.log_dir, archive_path=None)
        return attrs.evolve(self._config, log=log, log_archive=ArchivePolicy(), listeners=(), auto_config=AutoConfig())

    def _put_ini_in_place(self) -> None:
        """From here on the queue manager exists, unless it can't be listed: then it is unfinished again."""
        disk, target, listing = self._disk, self._target, f"{self._target.data_root}/mqs.ini"
        entry = mqsini.Entry(name=target.name, prefix=target.data_root, directory=target.data_dir.rsplit("/", 1)[1])
        disk.rename(target.unfinished_ini, target.ini)
        try:
            disk.sync_dir(target.data_dir)
            mqsini.add(disk, listing, entry, default=False)
        except (OSError, MQError):  # perhaps of the last sync, so that it is listed
            with contextlib.suppress(OSError, MQError):
                mqsini.remove(disk, listing, target.name)
            with contextlib.suppress(OSError, MQError):
                if mqsini.read(disk, listing).find(target.name) is None:  # else it would seem away without a directory
                    disk.rename(target.ini, target.unfinished_ini)
            raise

    def _clock_lag_us(self, state: ControlState) -> int:
        """How far the clock that the original's messages expire by is behind the system's, in microseconds."""
        try:
            newest = read_files(self._disk, self._source.data_dir, state.log_id)[0][0]
        except CheckpointDamaged:
            return 0
        return max(0, newest.wall - newest.time)

    def _log_doubtful(self, config: ini.Config, first: int, epoch: int, units: list[Uow]) -> None:
        """The new log begins with what units of work that are in doubt have done."""
        log = Log(self._disk, self._clock, config.log)
        try:
            log.begin(first, epoch, b"")
            for unit in units:
                self._append(log, unit)
            log.close(clean=True)
        except BaseException as exc:
            log.close(clean=False)
            failed = exc.__cause__ or exc.__context__
            if isinstance(exc, LogFailed) and isinstance(failed, OSError):
                raise failed from None  # there is no queue manager yet that would have to stop
            raise

    def _append(self, log: Log, unit: Uow) -> None:
        """Append what the unit has done, growing the log as needed. Raises Mistake, LogFailed, OSError."""
        kind, uow, head, data = rolled_forward(unit).encode()
        size = log.cost(len(head) + len(data))
        while True:
            with log.lock:
                if log.reserve(size, 0):
                    log.append(kind, uow, self._clock.wall_us(), head, data)
                    return
            if not log.grow():
                raise Mistake("what is in doubt does not fit into the log")
