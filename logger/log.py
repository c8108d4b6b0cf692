"""Log: append, force, read, move the head; joins the files above.

One lock, `Log.lock`, guards the buffer, the space and the ring. Whoever changes state by a record holds it over the
append and the change, so the order of records is the order of effects. Input and output happen outside of it, by one
thread at a time: the leader (`force.py`).

After a failed write or sync nobody knows what reached the disk: the log closes for good.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from zlib import crc32

import attrs

from logger import claims, control, extent, frame, integrity, lsn
from logger.buffer import FILLING, LogBuffer, Run
from logger.circular import Ring
from logger.clock import Clock
from logger.config import LogConfig, LogSync, LogType, WriteIntegrity
from logger.control import ControlFile, ControlState
from logger.disk import NO_SPACE, PAGE, Buffer, Disk, File, make_dirs
from logger.errors import LogClosed, LogDamaged, LogFailed
from logger.extent import DATA, SPARES, Extent, ExtentHeader
from logger.extents import Extents
from logger.force import EVERYTHING, GroupCommit
from logger.history import NOTICES, History, belongs
from logger.linear import REUSABLE, Line
from logger.reader import ExtentView, LogReader, Record, Settled, at_once
from logger.soon import Behind, Callback, Forcer
from logger.space import EXTENT_WASTE, Space
from logger.stats import LogStats, WriteStats

FRAME_COST = frame.HEADER.size + 7 + frame.HEADER.size  # header, filling to 8, and the gap that may follow it
PAUSE = 0.0003  # seconds between two writes of zeros
NOWHERE = -1  # no page begins there
LAST_EPOCH = (1 << 24) - 1  # numbers that are unique over all restarts have 24 bits for it


Imaged = tuple[int, int, int, Extent | None]  # which page, how much of it, the CRC of that, and where it goes


class _Output:
    """What a leader has to do, kept until it is wholly done."""

    __slots__ = ("guard", "new_extents", "run", "spare", "to_spare", "writes")

    def __init__(self, run: Run, spare: int) -> None:
        self.run = run
        self.new_extents: list[Extent] = []
        self.guard: tuple[Extent, memoryview] | None = None  # to the other spare page, and synced before all else
        self.writes: list[tuple[Extent, int, memoryview]] = []  # extent, file offset, pages
        self.spare = spare  # which of the spare pages the last of them goes to
        self.to_spare = False  # if it does


@attrs.frozen(kw_only=True)
class LogStatus:
    """The log at a moment. LSNs as ints; sizes in bytes."""

    config: LogConfig
    files: int
    file_numbers: tuple[int, ...]  # of the active extents, oldest first
    epoch: int
    head: int
    tail: int
    durable: int
    checkpoint: int
    used: int
    promised: int
    capacity: int
    writes: WriteStats


def control_path(directory: str) -> str:
    return f"{directory}/{control.NAME}"


def active_path(directory: str) -> str:
    return f"{directory}/active"


def create(disk: Disk, config: LogConfig, log_id: bytes, epoch: int = 0) -> int:
    """Make an empty log in `config.path`; return its first LSN. With the control file, made last, the log is there.

    `epoch`: the highest that has been used.
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
    path = control_path(config.path)
    if disk.exists(path):
        disk.unlink(path)
    control.create(disk, path, state)
    disk.sync_dir(config.path)
    return first


def read_page(disk: Disk, path: str, number: int) -> bytes:
    file = disk.open_read(path)
    try:
        return file.read(PAGE * number, PAGE)
    finally:
        file.close()


def in_use(disk: Disk, directory: str) -> bool:
    """Is there a log in `directory` that has been started? One that never was is what a creation left behind."""
    for name in disk.list(active_path(directory)):
        if extent.number_of(name) is not None:
            header = extent.decode_header(read_page(disk, f"{active_path(directory)}/{name}", 0))
            if header is not None and header.sequence:
                return True
    return False


def delete(disk: Disk, directory: str) -> None:
    """Delete the log in `directory`: the files that a log has, and nothing else; not an archive in another place."""
    for held in (active_path(directory), f"{directory}/archive"):
        if _is_of_another(disk, directory, held):
            continue
        for name in disk.list(held):
            if belongs(name) or REUSABLE.fullmatch(name) or claims.MARK.fullmatch(name):
                disk.unlink(f"{held}/{name}")
        if disk.exists(held) and not disk.list(held):
            disk.rmdir(held)
    for path in (control_path(directory), f"{directory}/{NOTICES}", f"{directory}/{claims.USED}"):
        if disk.exists(path):
            disk.unlink(path)


def _is_of_another(disk: Disk, directory: str, archive: str) -> bool:
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
        return extents.inactive() if isinstance(extents, Line) else []
    finally:
        extents.close()


def reusable(disk: Disk, directory: str) -> list[str]:
    """The files of a linear log that are kept to be used again."""
    return [name for name in disk.list(active_path(directory)) if REUSABLE.fullmatch(name)]


def reader_of(extents: Extents, state: ControlState, settled: Settled = at_once) -> LogReader:
    """A reader of these extents, with file descriptors of its own; `settled` as in `LogReader`."""
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
        settled=settled,
    )


def history_of(disk: Disk, config: LogConfig, state: ControlState) -> History:
    """All extents of a linear log that are there, archived ones too."""
    directories = active_path(config.path), config.archive_directory
    return History(disk, directories, state.log_id, state.extent_bytes)


def read_past(disk: Disk, config: LogConfig) -> tuple[ControlState, LogReader, int]:
    """What the control file says, a reader that owns nothing, and the first LSN from which on it can read all."""
    state, reader = read_only(disk, config.path)
    sequence = state.head // state.extent_bytes
    if state.log_type is LogType.LINEAR:
        reader.close()
        history = history_of(disk, config, state)
        history.places()
        sequence = history.reaches_back_to(sequence)
        reader = history.reader(state)
    return state, reader, sequence * state.extent_bytes


def read_only(disk: Disk, directory: str) -> tuple[ControlState, LogReader]:
    """What the control file says of the log in `directory`, and a reader of its extents that owns nothing."""
    _, state = control.read(disk, control_path(directory))
    extents = extents_of(disk, directory, state, direct=False)
    try:
        extents.open(state, read_only=True)
    except BaseException:
        extents.close()
        raise
    return state, reader_of(extents, state)


class Log(GroupCommit):
    """One recovery log, owned by this process: first read, then, after `begin`, written."""

    def __init__(self, disk: Disk, clock: Clock, config: LogConfig) -> None:
        """Open the control file and every extent. Raises LogDamaged, OSError."""
        super().__init__()
        self._disk = disk
        self._clock = clock
        self._config = config
        self._control = ControlFile(disk, control_path(config.path))
        self._state = state = self._control.state
        self._seed = crc32(state.log_id)
        direct = config.sync is LogSync.ALWAYS  # else the system's memory is meant to take the writes
        self._extents = extents_of(disk, config.path, state, direct=direct)
        try:
            self._check_config(config, state)
            self._extents.open(state)
        except BaseException:  # nobody has this log yet who could close it
            self._extents.close()
            self._control.close()
            raise
        self._stats = LogStats()
        self._always = config.sync is LogSync.ALWAYS
        self._triple = config.write_integrity is not WriteIntegrity.SINGLE
        self.epoch = state.epoch
        self._growing = threading.Lock()
        self._output: _Output | None = None
        self._forcer = Forcer(self.force)
        self._behind = Behind(self._write_behind)
        self.write_behind = False  # may a thread write full pages while others append?
        self._unsynced: set[Extent] = set()
        self._spare = 0  # which of the spare pages is written next: not the one that holds the newest durable version
        self._unsynced_spare = NOWHERE  # which was written since the last sync
        self._extent_bytes = config.extent_bytes
        self._elapsed_ns = clock.elapsed_ns
        self._only_home = NOWHERE  # the partial page of which what is safe is at home, and in no spare page
        self._small = False  # what was prepared is one page, in `_image`; else it is in `_output`
        self._image = disk.buffer(PAGE)
        self._imaged: Imaged = 0, 0, 0, None
        self._paused_at = 0
        self.durable = 0  # everything before this LSN is on stable storage

    @staticmethod
    def _check_config(config: LogConfig, state: ControlState) -> None:
        """Is the log as qm.ini says? Raises LogDamaged."""
        if state.extent_bytes != config.extent_bytes:
            raise LogDamaged(
                f"LogFilePages is {config.file_pages} in qm.ini, but the log in {config.path} was created with "
                f"{state.extent_bytes // PAGE}; it can't be changed: set LogFilePages={state.extent_bytes // PAGE}",
                path=config.path,
            )
        if state.log_type is not config.log_type:
            there = state.log_type.value
            raise LogDamaged(
                f"LogType is {config.log_type.value} in qm.ini, but the log in {config.path} is {there}; set "
                f"LogType={there}, or change the log with migmqlog (if that was interrupted, run it again)",
                path=config.path,
            )

    # ---- reading

    @property
    def state(self) -> ControlState:
        return self._state

    @property
    def config(self) -> LogConfig:
        return self._config

    def read(self, start: int, durable: int) -> tuple[LogReader, Iterator[Record]]:
        """The records from `start` to the end of the log; see `LogReader.records`."""
        reader = reader_of(self._extents, self._state)
        return reader, reader.records(start, durable=max(durable, self._state.durable, self._state.clean_end))

    def live_reader(self, history: History | None = None) -> LogReader:
        """A reader of what is durable by now (`until`), while others go on to write.

        In the extent that is written now a page may be in a spare page only, which is written over in turn; so where
        its pages lie is looked up while nobody writes.
        """
        newest = self.durable // self._extent_bytes

        def settled(sequence: int, look: Callable[[], ExtentView]) -> ExtentView:
            if sequence < newest:
                return look()
            views: list[ExtentView | OSError] = []

            def looking() -> None:
                try:
                    views.append(look())
                except OSError as exc:  # a read: the log itself has not failed
                    views.append(exc)

            self._exclusively(looking)
            if isinstance(views[0], OSError):
                raise views[0]
            return views[0]

        if self._state.log_type is LogType.LINEAR:
            return (history or self.history()).reader(self._state, settled)
        return reader_of(self._extents, self._state, settled)

    def history(self) -> History:
        """All extents of a linear log that are there."""
        return history_of(self._disk, self._config, self._state)

    def reaches_back_to(self) -> int:
        """The LSN from which on all of it is still there, whether a restart needs it or not. Raises OSError."""
        sequence = self._state.head // self._extent_bytes
        if self._state.log_type is LogType.LINEAR:
            history = self.history()
            history.places()
            sequence = history.reaches_back_to(sequence)
        else:
            while self._extents.holds(sequence - 1):  # a part of the ring that was not used again yet
                sequence -= 1
        return sequence * self._extent_bytes

    # ---- beginning and ending

    def begin(self, tail: int, epoch: int, partial: bytes, head: int = EVERYTHING) -> None:
        """The log ends at `tail`, whose page so far is `partial`: start a new epoch there and accept records.

        `head` is where the restart began to read: nothing from there on is overwritten before a checkpoint says so.

        What was read may be in the system's memory only, so it is synced before anything is built on it.
        """
        config = self._config
        self._extents.forget_beyond((tail - 1) // config.extent_bytes)
        self.epoch = max(epoch, self._state.epoch) + 1
        if self.epoch > LAST_EPOCH:
            raise LogClosed(
                f"the log in {config.path} has been started {LAST_EPOCH} times and can't be started again; move the "
                f"messages to a new queue manager"
            )
        floor = self.floor_of(min(self._state.head, head))
        self._extents.retire(floor // config.extent_bytes)
        self._extents.reach(floor // config.extent_bytes)
        self._have_primaries(tail - floor)
        for sequence in self._extents.sequences():
            self._extents.at(sequence).file.sync()
        self.space = Space(config.extent_bytes, config.max_files, len(self._extents), floor)
        half = config.buffer_bytes
        self.buffer = LogBuffer(
            (self._disk.buffer(half), self._disk.buffer(half)),
            extent_bytes=config.extent_bytes,
            seed=self._seed,
            epoch=self.epoch,
            tail=tail,
            partial=partial,
            make_room=self._write_full_pages,
            filling=self._filling,
        )
        self._one_frame = self.buffer.max_frame - frame.HEADER.size
        self.durable = self.safe = tail
        self._started_at = tail
        self._write_control(attrs.evolve(self._state, epoch=self.epoch, epoch_from=tail, durable=tail, clean_end=0))
        self._keep_partial(tail, partial)
        self._extents.sweep()

    def _have_primaries(self, used: int) -> None:
        """Have as many extents as there are primaries. Where the disk has no room for more than what is there, a start
        is no reason to insist, if the log, of which so many bytes are in use, has room: others are made later."""
        try:
            while len(self._extents) < self._config.primary_files:
                self._extents.add(self._extents.make())
        except OSError as exc:
            if exc.errno not in NO_SPACE or len(self._extents) * self._extent_bytes <= used:
                raise

    def _keep_partial(self, tail: int, partial: bytes) -> None:
        """Put the page that the log ended in into a spare page: it may be whole only at home, where it is rewritten.

        Then wipe the other spare page if it speaks of this or a later page: a write that was lost left it behind.
        """
        sequence, page = tail // self._config.extent_bytes, lsn.page_of(tail)
        if not self._extents.holds(sequence):
            return  # the tail is where the next extent begins, and that one's spare pages are wiped when it is taken
        held = self._extents.at(sequence)
        images = [read_page(self._disk, held.path, n) for n in range(1, 1 + SPARES)]
        spares = [integrity.open_spare(image, self._seed) for image in images]
        self._spare = integrity.next_spare(images, spares, page)
        kept = -1
        if partial:
            kept = self._spare if self._triple else -1
            with self.lock:
                output = self._plan(self.buffer.take(partial=True))
            self._perform(output, sync=True)
        zeros = self._disk.buffer(PAGE)
        for n, spare in enumerate(spares):
            if spare is not None and spare.page >= page and n != kept:
                held.file.write(PAGE * (1 + n), zeros)
        held.file.sync()

    def close(self, *, clean: bool) -> None:
        """Close the files; `clean`: everything is forced, and the control file names the exact end of the log."""
        self._forcer.end()
        self._behind.end()
        try:
            if clean:
                self.force(self.buffer.tail, sync=True)
                ended = attrs.evolve(self._now(), durable=self.buffer.tail, clean_end=self.buffer.tail)
                self._exclusively(lambda: self._write_control(ended))
        finally:
            with self.lock:
                self._stop(LogClosed("the log is closed: the queue manager has ended"))
            self._control.close()
            self._extents.close()

    # ---- appending; the caller holds the lock

    def cost(self, body_bytes: int) -> int:
        """The most bytes of log that a record with this body takes."""
        if body_bytes <= self._one_frame:
            return body_bytes + FRAME_COST
        return body_bytes + FRAME_COST + body_bytes // self._one_frame * 2 * frame.HEADER.size

    def reserve(self, size: int, promise: int) -> bool:
        """Make sure that `size` bytes of records can be appended now, and `promise` bytes are left for later.

        False when the log has no room for them. May let go of the lock while it waits for room in the buffer, so call
        it first and look at the state after. Raises LogFailed, LogClosed.
        """
        buffer, space = self.buffer, self.space
        if self._failure is not None or size + EXTENT_WASTE > buffer.base + buffer.capacity - buffer.tail:
            self.make_room(size)
        return buffer.tail + size + space.promised + promise <= space.limit

    def make_room(self, size: int) -> None:
        """The same for records whose room in the log was promised before."""
        if self._failure is not None:
            raise self._failure
        size += EXTENT_WASTE  # the record may begin in the next extent
        if size > self.buffer.room:
            self._wait_for_room(size)

    def append(self, kind: int, uow: int, time: int, head: Buffer, data: Buffer = b"") -> int:
        """Append one record with the body `head + data`; return its LSN. The room was reserved."""
        return self.buffer.append(kind, uow, time, self.durable, head, data)

    def advance(self, time: int, kept: int) -> bool:
        """Go over to the next extent. False when the log has no room for the rest of this one and `kept` bytes more.

        May let go of the lock first, while it waits for what is being written.
        """
        buffer, space = self.buffer, self.space
        if self._failure is not None:
            raise self._failure
        self._wait_for_room(buffer.capacity + 1)  # nobody writes when this returns, and one page is left at the most
        rest = buffer.extent_room() % self._extent_bytes  # none where the next one begins right here
        if not space.fits(buffer.tail, rest, kept):
            return False
        buffer.skip_extent(time, self.durable)
        return True

    def _wait_for_room(self, size: int) -> None:
        """Wait for the pages being written, or write full pages out, until `size` bytes fit, or all the buffer has.

        A record larger than the buffer is then written in pieces while it is appended, under the lock.
        """
        buffer = self.buffer
        self._large += 1
        try:
            while size > buffer.room:
                if self._writing:
                    self._changed.wait()
                    if self._failure is not None:
                        raise self._failure
                elif buffer.room >= buffer.capacity - PAGE:
                    return
                else:
                    self._write_full_pages()
        finally:
            self._large -= 1
            if self._leader is None:
                self._pass_on()

    def _write_full_pages(self) -> None:
        """Write the full pages of the buffer, without a sync. The lock is held and nobody writes."""
        assert not self._writing, "room was made before the record was appended"
        try:
            if self._output is not None:
                self.safe = self._finish(self._output, sync=self._always)
            self._perform(self._plan(self.buffer.take(partial=False)), sync=False)
        except BaseException as exc:
            raise self._fail(exc) from exc

    def _filling(self) -> None:
        """Much waits in the buffer: if nobody writes, let a thread begin, while the appender goes on. The lock is held.

        The CRC of a large record, its copy and the write of the one before take about the same time, without the GIL.
        """
        if self.write_behind and self._leader is None:
            self._behind.ask()

    def _write_behind(self) -> None:
        """Write the full pages without a sync, if nobody else leads. Fails as a force does: for good."""

        def begin() -> bool:
            buffer = self.buffer
            if self._output is not None or buffer.tail - buffer.base < buffer.capacity // FILLING:
                return False
            self._take(partial=False)
            return True

        def work() -> None:
            if self._output is not None:
                self._perform(self._output, sync=False)
                self._output = None

        self._if_nobody_leads(begin, work)

    # ---- forcing

    def force(self, target: int, *, sync: bool = False) -> None:
        """Wait until everything before LSN `target` is durable (as far as LogSync says, or wholly with `sync`).

        At most two syncs: the one under way and the next. Raises LogFailed, LogClosed.
        """
        if sync and not self._always:
            self._exclusively(self._write_and_sync)
        elif self.safe < target:
            self._force(target)

    def force_soon(self, target: int, callback: Callback) -> None:
        """Return at once; a thread calls `callback(None)` when `target` is safe, or `callback(error)`."""
        self._forcer.ask(target, callback)

    def _prepare(self) -> None:
        """Settle what the leader writes: what an interrupted one left undone, else all that the buffer holds.

        Usually that is one partial page, which goes to a spare page. It stays in the buffer, so there is nothing to
        remember while its image is written.
        """
        buffer = self.buffer
        base, tail = buffer.base, buffer.tail
        size = tail - base
        self._small = False
        if self._output is None and 0 < size <= integrity.BODY and self._triple:
            page, held, crc, extent = self._imaged
            if page != base:
                held, crc, extent = 0, self._seed, self._extents.find(base // self._extent_bytes)
            if extent is not None:
                crc = buffer.copy_page(self._image, held, size, crc)
                self._imaged = base, size, crc, extent
                integrity.seal_spare(self._image, base, tail, self.epoch, crc)
                self._small = True
                return
        self._take()

    def _write(self) -> int:
        """Write what was prepared, and sync it unless LogSync says no; return the LSN that is safe by that."""
        if not self._small:
            assert self._output is not None, "it was prepared"
            return self._finish(self._output, sync=self._always)
        base, size, _, extent = self._imaged
        assert extent is not None, "it was prepared"
        file, unsynced = extent.file, self._unsynced
        began = self._elapsed_ns()
        if self._always and not unsynced:
            file.write_durably(PAGE + PAGE * self._spare, self._image)
            self._spare = 1 - self._spare
            self.durable = base + size
        else:
            file.write(PAGE + PAGE * self._spare, self._image)
            self._unsynced_spare = self._spare
            unsynced.add(extent)
            if self._always:
                self._sync()
                self.durable = base + size
        self._only_home = NOWHERE
        self._stats.add(PAGE, self._elapsed_ns() - began, self._clock, base // self._extent_bytes)
        return base + size

    def _write_and_sync(self) -> None:
        """Write all that the buffer holds and sync it, whatever LogSync says; as the leader."""
        undone = True
        while undone:
            undone = self._output is not None
            with self.lock:
                self._take()
            assert self._output is not None
            self.safe = self._finish(self._output, sync=True)

    def _sync(self) -> None:
        """Sync what was written since the last sync; from then on the other spare page may be overwritten."""
        unsynced = self._unsynced
        for held in unsynced:
            held.file.sync()
        unsynced.clear()
        if self._unsynced_spare != NOWHERE:
            self._spare = 1 - self._unsynced_spare
            self._unsynced_spare = NOWHERE

    def _take(self, *, partial: bool = True) -> None:
        """Take all that waits to be written, with a plan where it goes, unless there is something undone."""
        if self._output is None:
            try:
                self._output = self._plan(self.buffer.take(partial=partial))
            except BaseException as exc:  # pages that were taken and not planned are lost
                raise self._fail(exc) from exc
            if self._large:
                self._changed.notify_all()

    def _finish(self, output: _Output, *, sync: bool) -> int:
        self._perform(output, sync=sync)
        tail = max(output.run.tail, self.safe)  # without its partial page a run ends before what is safe of that
        if sync:
            self.durable = max(output.run.tail, self.durable)
        last = lsn.page_of(output.run.tail)
        self._only_home = last if last < output.run.tail and not output.to_spare else NOWHERE
        self._output = None
        return tail

    # ---- writing, as the leader

    def _plan(self, run: Run) -> _Output:
        """Which pages go where. Takes extents from the ring for the parts of the stream that have none yet.

        A page never overwrites the only copy of what is safe of it. So a partial last page goes to a spare page. Only
        where the run is the rest of one page and the beginning of the next does that go home too, in the same write,
        since nothing of it is safe yet; should home be overwritten before a spare page has it, a copy is made first.
        Not so where forces do not sync: there a spare page has it for sure only much later.
        """
        extent_bytes = self._extent_bytes
        output = _Output(run, self._spare)
        base, pages = run.base, run.pages
        last = lsn.page_of(run.tail)
        home = len(pages)
        if self._triple:
            short = self._always and last - base == PAGE and last % extent_bytes != 0
            short = short and self._only_home != base and last >= self.safe
            output.to_spare = last < run.tail and not short
            home = last - base if output.to_spare else len(pages)
            if self._only_home == base and home > 0:
                output.guard = self._extent_at(base, output), self._sealed(pages, base, self.safe)
                output.spare = 1 - output.spare
        at = 0
        while at < home:
            held = self._extent_at(base + at, output)
            offset = (base + at) % extent_bytes
            size = min(home - at, extent_bytes - offset)
            output.writes.append((held, DATA + offset, pages[at : at + size]))
            at += size
        if output.to_spare:
            held = self._extent_at(base + home, output)
            image = pages[home:]
            crc = crc32(image[: run.tail - base - home], self._seed)
            integrity.seal_spare(image, base + home, run.tail, self.epoch, crc)
            output.writes.append((held, PAGE * (1 + output.spare), image))
        return output

    def _sealed(self, pages: memoryview, page: int, tail: int) -> memoryview:
        """A version for a spare page of the first of `pages`, up to the LSN `tail`."""
        image = self._disk.buffer(PAGE)
        image[: tail - page] = pages[: tail - page]
        integrity.seal_spare(image, page, tail, self.epoch, crc32(image[: tail - page], self._seed))
        return image

    def _extent_at(self, at: int, output: _Output) -> Extent:
        sequence = at // self._extent_bytes
        try:
            return self._extents.at(sequence)
        except KeyError:
            taken = self._extents.take(
                sequence, self.space.floor // self._extent_bytes, self.epoch, self._clock.wall_us()
            )
            output.new_extents.append(taken)
            return taken

    def _perform(self, output: _Output, *, sync: bool) -> None:
        """Do the writes and, if asked to, the syncs. Doing it twice is as good as once."""
        elapsed_ns = self._clock.elapsed_ns
        began = elapsed_ns()
        if output.new_extents:
            for held in output.new_extents:
                held.write_header()
            self._write_control(self._now())
        unsynced = self._unsynced
        if output.guard is not None:
            held, image = output.guard
            held.file.write(PAGE * (2 - output.spare), image)
            self._unsynced_spare = 1 - output.spare
            unsynced.add(held)
            self._sync()
            output.guard = None  # done: it is not overwritten while home is
        size = 0
        alone = sync and not unsynced and len(output.writes) == 1
        for held, offset, pages in output.writes:
            if alone:
                held.file.write_durably(offset, pages)
            else:
                held.file.write(offset, pages)
                unsynced.add(held)
            size += len(pages)
        if output.to_spare:
            self._unsynced_spare = output.spare
        if sync:
            self._sync()
        if size:
            self._stats.add(size, elapsed_ns() - began, self._clock, output.run.base // self._config.extent_bytes)

    def _now(self) -> ControlState:
        return attrs.evolve(self._state, extents=self._extents.table(), durable=max(self.durable, self._state.durable))

    def _write_control(self, state: ControlState) -> None:
        self._control.write(state)
        self._state = state

    # ---- room and the head

    def floor_of(self, head: int) -> int:
        """The first LSN of the extent that holds `head`."""
        return head // self._config.extent_bytes * self._config.extent_bytes

    def grow(self, pause: Callable[[], None] = extent.at_once) -> bool:
        """Bring in one more extent, without the lock. False when there are as many as may be.

        The control file hears of it when the extent takes a part of the stream. Raises OSError: nothing has changed.
        """
        with self._growing:
            if not self.space.can_grow():
                return False
            made = self._extents.make(pause)
            with self.lock:
                self._extents.add(made)
                self.space.set_files(len(self._extents))
            return True

    def move_head(self, head: int, checkpoint: int) -> None:
        """A checkpoint at LSN `checkpoint` is complete, and a restart needs nothing before `head`."""
        assert head <= checkpoint <= self.durable

        floor = self.floor_of(head)
        sequence = floor // self._extent_bytes

        def move() -> None:
            table = self._extents.table(sequence)
            self._write_control(attrs.evolve(self._now(), head=head, checkpoint=checkpoint, extents=table))
            with self.lock:
                self._extents.retire(sequence)
                self.space.set_floor(floor, len(self._extents))

        self._exclusively(move)

    def provide(self) -> int:
        """Have as many extents as there are primaries; return how many were made. Raises OSError."""
        made = 0
        while len(self._extents) < self._config.primary_files and self.grow(self._pause):
            made += 1
        return made

    def _pause(self) -> None:
        """An extent is made ahead of need: while others force the log, the disk is theirs first."""
        if self.safe != self._paused_at:
            self._paused_at = self.safe
            self._clock.wait(threading.Event(), PAUSE)

    def inactive(self) -> list[int]:
        """The sequences of the extents of a linear log that a restart needs no more, oldest first."""
        return self._extents.inactive() if isinstance(self._extents, Line) else []

    def recycle(self, sequence: int) -> None:
        """Nothing needs this inactive extent: keep it for reuse, or delete it. Raises OSError."""
        if isinstance(self._extents, Line):
            self._extents.recycle(sequence, self._config.primary_files)

    def reusable_bytes(self) -> int:
        """What the extents that are kept for reuse take on the disk."""
        return self._extents.reusable_bytes() if isinstance(self._extents, Line) else 0

    def reduce(self, most: int, keep: int = 0) -> int:
        """Remove up to so many extents that nothing needs: secondaries, then those kept for reuse beyond `keep`.

        Returns how many. Raises OSError.
        """
        done = 0
        while done < most and self.release_secondaries():
            done += 1
        if isinstance(self._extents, Line):
            with self._growing:  # which takes one of those that are kept
                done += self._extents.reduce(max(keep, len(self._extents.reusable()) - (most - done)))
        return done

    def housekept(self) -> tuple[int, int, int]:
        """How many extents of a linear log were created, used again, and deleted since this was asked last."""
        return self._extents.done() if isinstance(self._extents, Line) else (0, 0, 0)

    def release_secondaries(self) -> int:
        """Remove one inactive extent beyond the primaries when the active log leaves room enough; return how many."""
        dropped: list[Extent] = []

        def release() -> None:
            with self.lock:
                config, space = self._config, self.space
                keep = config.primary_files
                if len(self._extents) <= keep or not space.would_fit(self.buffer.tail + config.extent_bytes, keep):
                    return
                held = self._extents.drop_surplus(space.floor // config.extent_bytes)
                if held is None:
                    return
                space.set_files(len(self._extents))
                dropped.append(held)
            self._write_control(self._now())
            self._extents.remove_file(dropped[0])

        with self._growing:  # nobody makes a file of the same name before this one is gone
            self._exclusively(release)
        return len(dropped)

    # ---- failing, and what is known

    def _fail(self, exc: BaseException) -> LogFailed:
        """After this nothing is written any more. The lock is held."""
        failure = LogFailed(
            f"a write or sync of the log in {self._config.path} failed ({exc or type(exc).__name__}); the queue "
            f"manager stops, because nobody knows what reached the disk: mend the disk and start it again"
        )
        self._stop(failure)
        return failure

    def abandon(self) -> None:
        """In a forked child: let go of the files, which are the parent's."""
        self._failure = LogClosed("the log belongs to the parent of this process")
        self._control.close()
        self._extents.close()

    @property
    def failure(self) -> Exception | None:
        return self._failure

    def extents(self) -> list[tuple[int, int, int]]:
        """(file number, sequence, when it took that) of every extent in use or ready. The caller holds the lock."""
        headers = self._extents.headers()
        return [(header.number, header.sequence, header.time if header.sequence else 0) for header in headers]

    def status(self) -> LogStatus:
        """The log now. The caller holds the lock."""
        space = self.space
        return LogStatus(
            config=self._config,
            files=len(self._extents),
            file_numbers=tuple(e.number for e in self._extents.in_order(space.floor // self._config.extent_bytes)),
            epoch=self.epoch,
            head=self._state.head,
            tail=self.buffer.tail,
            durable=self.durable,
            checkpoint=self._state.checkpoint,
            used=space.used(self.buffer.tail),
            promised=space.promised,
            capacity=space.capacity,
            writes=self._stats.figures(self.buffer.tail - self._started_at),
        )
