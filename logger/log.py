"""Log: append, force, read, move the head; joins the files above.

One lock, `Log.lock`, guards the buffer, the space and the ring. Whoever changes state by a record holds it over the
append and the change, so the order of records is the order of effects. Input and output happen outside of it, by one
thread at a time: the leader (`force.py`).

After a failed write or sync nobody knows what reached the disk: the log closes for good.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import attrs

from logger import claims, frame
from logger.at_rest import control_path, extents_of, history_of, reader_of
from logger.buffer import LogBuffer
from logger.clock import Clock
from logger.config import LogConfig, LogSync, LogType
from logger.control import ControlFile, ControlState
from logger.disk import PAGE, Buffer, Disk
from logger.disk_errors import NO_SPACE
from logger.errors import LogClosed, LogFailed, NotAsConfigured
from logger.extent import Extent
from logger.extents import Extents
from logger.force import BEYOND_ALL
from logger.history import History
from logger.progress import GiveWay, no_pause
from logger.reader import ExtentView, LogReader, Record
from logger.space import CHECKPOINT_BYTES, EXTENT_WASTE_BYTES, Space
from logger.stats import WriteStats
from logger.writer import Writer

FRAME_COST = frame.HEADER.size + 7 + frame.HEADER.size  # header, filling to 8, and the gap that may follow it
ZERO_PAUSE_SECONDS = 0.0003  # between two writes of zeros, while others force
LAST_EPOCH = (1 << 24) - 1  # numbers that are unique over all restarts have 24 bits for it
CLOSE_WAIT_MS = 5000  # for a write that is under way


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


def check_config(config: LogConfig, state: ControlState) -> None:
    """Is the log as qm.ini says? Raises NotAsConfigured."""
    if state.extent_bytes != config.extent_bytes:
        raise NotAsConfigured(
            f"LogFilePages is {config.file_pages} in qm.ini, but the log in {config.path} was created with "
            f"{state.extent_bytes // PAGE}; it can't be changed: set LogFilePages={state.extent_bytes // PAGE}",
            "LogFilePages",
            path=config.path,
        )
    if state.log_type is not config.log_type:
        there = state.log_type.value
        raise NotAsConfigured(
            f"LogType is {config.log_type.value} in qm.ini, but the log in {config.path} is {there}; set "
            f"LogType={there}, or change the log with migmqlog (if that was interrupted, run it again)",
            "LogType",
            path=config.path,
        )


class Log(Writer):
    """One recovery log, owned by this process: first read, then, after `begin`, written."""

    __slots__ = ("__dict__", "__weakref__", "_growing", "_max_whole_body", "_safe_at_yield", "_started_at")

    def __init__(self, disk: Disk, clock: Clock, config: LogConfig) -> None:
        """Open the control file and every extent. Raises LogDamaged, OSError."""
        control = ControlFile(disk, control_path(config.path))
        extents: Extents | None = None
        try:
            direct = config.sync is LogSync.ALWAYS  # else the system's memory is meant to take the writes
            extents = extents_of(disk, config.path, control.state, direct=direct)
            check_config(config, control.state)
            extents.open(control.state)
            super().__init__(disk, clock, config, control, extents)
            self._growing = threading.Lock()
            self._safe_at_yield = 0
        except BaseException:  # the caller has no log to close
            if extents is not None:
                extents.close()
            control.close()
            raise

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
        durable = max(durable, self._state.durable, self._state.clean_end)
        return reader, self._to_the_end(reader, reader.records(start, durable=durable))

    def _to_the_end(self, reader: LogReader, records: Iterator[Record]) -> Iterator[Record]:
        try:
            yield from records
        finally:
            if reader.stopped:
                self._extents.check_end(self._state, reader.stopped, reader.epoch, one_copy=self._control.one_copy)

    def live_reader(self, history: History | None = None) -> LogReader:
        """A reader of what is durable by now, while others go on to write: it reads no further (`records(until=...)`).

        In the extent that is written now a page may be in a spare page only, which is written over in turn; so where
        its pages lie is looked up while nobody writes.
        """
        newest = self.durable // self._extent_bytes

        def guard(sequence: int, look: Callable[[], ExtentView]) -> ExtentView:
            if sequence < newest:
                return look()

            def looking() -> ExtentView | OSError:
                try:
                    return look()
                except OSError as exc:  # a read: the log itself has not failed
                    return exc

            view = self._exclusively(looking)
            if isinstance(view, OSError):
                raise view
            return view

        if self._state.log_type is LogType.LINEAR:
            return (history or self.history()).reader(self._state, guard)
        return reader_of(self._extents, self._state, guard)

    def history(self) -> History:
        """All extents of a linear log that are there."""
        return history_of(self._disk, self._config, self._state, lambda: self.buffer.tail // self._extent_bytes)

    def check_archive(self) -> None:
        """Raise ArchiveFailed where the archive was used and is not there, as of a file system that is not mounted."""
        config = self._config
        claims.check_there(self._disk, config.archive_directory, self._state.log_id, config.path)

    def archive_away(self) -> str:
        """An operator message if the archive was used and is missing; "" if it is there or that is not known."""
        config = self._config
        with contextlib.suppress(OSError):
            return claims.away(self._disk, config.archive_directory, self._state.log_id, config.path)
        return ""

    def reaches_back_to(self, *, surely: bool = False) -> int:
        """The LSN from which on all of it is still there, whether a restart needs it or not. Raises OSError.

        `surely`: also where the extent before is there and can't be read just now.
        """
        sequence = self._state.head // self._extent_bytes
        if self._state.log_type is LogType.LINEAR:
            history = self.history()
            history.places()
            sequence = history.reaches_back_to(sequence)
            if surely:
                history.refuse_unread(sequence - 1)
        else:
            while self._extents.holds(sequence - 1):  # a part of the ring that was not used again yet
                sequence -= 1
        return sequence * self._extent_bytes

    # ---- beginning and ending

    def begin(self, tail: int, epoch: int, partial: bytes, head: int = BEYOND_ALL, room: int = 0) -> None:
        """The log ends at `tail`, whose page so far is `partial`: start a new epoch there and accept records.

        `head` is where the restart began to read: nothing from there on is overwritten before a checkpoint says so.
        `room` is what has to be logged before anything else: bytes that were promised in the life before.

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
        self._extents.reactivate(floor // config.extent_bytes)
        self._extents.sweep()
        if self._control.one_copy:  # both again, before what is torn next is a header
            self._write_control(self._state)
        self._extents.mend(floor // config.extent_bytes, self._state.extents)
        self.space = Space(config.extent_bytes, config.max_files, len(self._extents), floor)
        self._make_extents(tail, room)
        for sequence in self._extents.sequences():
            self._extents.at(sequence).file.sync()
        half = config.buffer_bytes
        self.buffer = LogBuffer(
            (self._disk.buffer(half), self._disk.buffer(half)),
            extent_bytes=config.extent_bytes,
            seed=self._seed,
            epoch=self.epoch,
            tail=tail,
            partial=partial,
            make_room=self._write_full_pages,
        )
        self._max_whole_body = self.buffer.max_frame - frame.HEADER.size
        self.durable = self.safe = tail
        self._started_at = tail
        table = self._extents.table()  # an extent beyond the end is not to be asked for: its header may be lost yet
        begun = attrs.evolve(self._state, extents=table, epoch=self.epoch, epoch_from=tail, durable=tail, clean_end=0)
        self._write_control(begun)
        self._extents.mend(floor // config.extent_bytes, table)
        self._keep_partial(tail, partial)

    def _make_extents(self, tail: int, room: int) -> None:
        """Have all primaries, and `room` bytes behind `tail`.

        Before the end that room may have been in a secondary without records, which is in no control file: it is made
        again. After a repair all extents that are allowed may be full: then there is one more, since a start logs a
        checkpoint.

        If the disk has no room for another extent, a start goes on if the log has room for that checkpoint, also in
        its reserve; the extents are made later.
        """
        extents, space = self._extents, self.space
        try:
            while space.files < self._config.primary_files or (
                not space.fits(tail, room, 0)
                and (space.can_grow() or not space.fits_for_checkpoint(tail, room + CHECKPOINT_BYTES // 2))
            ):
                extents.add(extents.make())
                space.set_files(len(extents))
        except OSError as exc:
            if exc.errno not in NO_SPACE or not space.fits_for_checkpoint(tail, room):
                raise

    def close(self, *, clean: bool) -> None:
        """Close the files; `clean`: everything is forced, and the control file names the exact end of the log."""
        try:
            if clean:
                self.sync(self.buffer.tail)
                self._exclusively(self._record_clean_end)
        finally:
            with self.lock:
                self._stop_locked(LogClosed("the log is closed: the queue manager has ended"))
            self._await_writer()
            with self._control_lock:
                self._control.close()
            self._extents.close()

    def _await_writer(self) -> None:
        """Until nobody writes, since descriptors that are closed may soon be those of other files.

        At most CLOSE_WAIT_MS, for a disk that does not answer: the thread in the system call has the file itself.
        """
        pause = threading.Event()
        for _ in range(CLOSE_WAIT_MS):
            if not self._writing:
                return
            self._clock.wait(pause, 0.001)

    def _record_clean_end(self) -> None:
        """At what was synced, not at the buffer's tail: a call that comes late may still append."""
        self._update_control(clean_end=self.durable)

    # ---- appending; the caller holds the lock

    def cost(self, body_bytes: int) -> int:
        """The most bytes of log that a record with this body takes."""
        if body_bytes <= self._max_whole_body:
            return body_bytes + FRAME_COST
        return body_bytes + FRAME_COST + body_bytes // self._max_whole_body * 2 * frame.HEADER.size

    def reserve(self, size: int, promise: int) -> bool:
        """Make sure that `size` bytes of records can be appended now, and `promise` bytes are left for later.

        False when the log has no room for them. May let go of the lock while it waits for room in the buffer, so call
        it first and look at the state after. Raises LogFailed, LogClosed.
        """
        buffer, space = self.buffer, self.space
        if self._failure is not None or size + EXTENT_WASTE_BYTES > buffer.base + buffer.capacity - buffer.tail:
            self.make_room(size)
        return buffer.tail + size + space.promised + promise <= space.limit

    def has_room(self, size: int) -> bool:
        """Does the buffer have room for so many bytes of records? Their room in the log was promised before."""
        buffer = self.buffer
        return self._failure is None and size + EXTENT_WASTE_BYTES <= buffer.base + buffer.capacity - buffer.tail

    def make_room(self, size: int) -> bool:
        """As `reserve`, for records whose room in the log was promised before: they only need room in the buffer.

        True when it has let go of the lock meanwhile: look at the state again. Raises LogFailed, LogClosed.
        """
        if self._failure is not None:
            raise self._failure
        buffer = self.buffer
        size += EXTENT_WASTE_BYTES  # the record may begin in the next extent
        return size > buffer.base + buffer.capacity - buffer.tail and self._wait_for_room(size)

    def append(self, kind: int, uow: int, time: int, head: Buffer, data: Buffer | frame.Pieces = b"") -> int:
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
        try:
            buffer.skip_extent(time, self.durable)
        except LogFailed:
            raise
        except BaseException as exc:  # half of it would hide from a restart what is appended next
            error = self._failed(exc)
            raise error from error.__cause__
        return True

    def _wait_for_room(self, size: int) -> bool:
        """Wait for the pages being written, or write full pages out, until `size` bytes fit, or all the buffer has.

        True when it has let go of the lock. A record larger than the buffer is then written in pieces while it is
        appended, under the lock.
        """
        me = object()
        try:
            try:
                self._appenders.add(me)
                waited = self._until_it_fits(size)
            finally:
                self._appender_done(me)
        except BaseException:  # an interrupt may have struck in that
            self._appender_done(me)
            raise
        return waited

    def _until_it_fits(self, size: int) -> bool:
        """`_wait_for_room`, while this thread counts as an appender."""
        buffer, waited = self.buffer, False
        while size > buffer.room:
            if self._writing:
                waited = True
                self.changed.wait()
                if self._failure is not None:
                    raise self._failure
            elif buffer.room >= buffer.capacity - PAGE:
                break
            else:
                self._write_full_pages()
        return waited

    # ---- forcing

    def sync(self, target: int) -> None:
        """Wait until everything before LSN `target` is durable, whatever LogSync says. Raises as `force`."""
        if self._always:
            self.force(target)
        else:
            self._exclusively(self._write_and_sync)

    def check_owned_as_leader(self) -> None:
        """`check_owned` while nobody writes to the log: before a file beside it is replaced. Raises LogFailed."""
        self._exclusively(self.check_owned)

    def fence(self) -> None:
        """As `check_owned`; a log that was closed or has failed is an OSError too.

        For work on files that may go on after the queue manager has stopped, such as a checkpoint or a rebuild.
        """
        if self._failure is not None:
            raise OSError(f"nothing is written any more: {self._failure}")
        self.check_owned()

    # ---- room and the head

    def floor_of(self, head: int) -> int:
        """The first LSN of the extent that holds `head`."""
        return head // self._config.extent_bytes * self._config.extent_bytes

    def grow(self, pause: GiveWay = no_pause) -> bool:
        """Bring in one more extent, without the lock. False when there are as many as may be.

        The control file names it once the extent takes a part of the stream. Raises OSError: nothing has changed, also
        where another process has taken the log over, whose records a file of that name may hold.
        """
        with self._growing:
            if not self.space.can_grow():
                return False
            self.fence()
            made = self._extents.make(pause)
            with self.lock:
                self._extents.add(made)
                self.space.set_files(len(self._extents))
            return True

    def move_head(self, head: int, checkpoint: int) -> None:
        """A checkpoint at LSN `checkpoint` is complete, and a restart needs nothing before `head`.

        Others may force the log meanwhile; only the first write to an extent waits for the control file.
        """
        assert head <= checkpoint <= self.durable

        if self._failure is not None:
            raise self._failure
        floor = self.floor_of(head)
        sequence = floor // self._extent_bytes
        try:
            self._update_control(sequence, head=head, checkpoint=checkpoint)
        except OSError as exc:
            with self.lock:
                failure = self._fail(exc)
            raise failure from exc
        with self.lock:
            self._extents.retire(sequence)
            self.space.set_floor(floor, len(self._extents))

    def make_primaries(self, has_room: Callable[[], bool] = lambda: True) -> int:
        """Have as many extents as there are primaries, while there is room; how many were made. Raises OSError."""
        made = 0
        while len(self._extents) < self._config.primary_files and has_room() and self.grow(self._yield_disk):
            made += 1
        return made

    def _yield_disk(self) -> None:
        """Pause while others force the log: making an extent ahead of need has the lower priority."""
        if self.safe != self._safe_at_yield:
            self._safe_at_yield = self.safe
            self._clock.wait(threading.Event(), ZERO_PAUSE_SECONDS)

    def inactive(self) -> list[int]:
        """The sequences of the extents of a linear log that a restart needs no more, oldest first."""
        return self._extents.inactive()

    def recycle(self, sequence: int) -> None:
        """Nothing needs this inactive extent: keep it for reuse, or delete it. Raises OSError."""
        self._extents.recycle(sequence, self._config.primary_files)

    def reusable_bytes(self) -> int:
        """What the extents that are kept for reuse take on the disk."""
        return self._extents.reusable_bytes()

    def reduce(self, most: int, keep: int = 0) -> int:
        """Remove up to so many extents that nothing needs: secondaries, then those kept for reuse beyond `keep`.

        Returns how many. Raises OSError.
        """
        done = 0
        while done < most and self.release_secondary():
            done += 1
        with self._growing:  # `grow` takes one of those that are kept
            return done + self._extents.reduce(most - done, keep)

    def drain_extent_counts(self) -> tuple[int, int, int]:
        """How many extents of a linear log were created, used again, and deleted since this was asked last."""
        return self._extents.drain_extent_counts()

    def release_secondary(self, needed: int = 0) -> bool:
        """Remove one inactive extent beyond the primaries; False where there is none that can go.

        The active log is to leave room enough: for another extent, and for the bytes that are `needed`. Raises OSError
        where the file of one that is left out can't be removed.
        """

        def release() -> Extent | None:
            with self.lock:
                config, space = self._config, self.space
                keep = config.primary_files
                room = max(config.extent_bytes, needed)
                if len(self._extents) <= keep or not space.would_fit(self.buffer.tail + room, keep):
                    return None
                held = self._extents.drop_surplus(space.floor // config.extent_bytes)
                if held is None:
                    return None
                space.set_files(len(self._extents))
            self._update_control()
            return held

        with self._growing:  # nobody makes a file of the same name before this one is gone
            dropped = self._exclusively(release)
            if dropped is not None:
                self._extents.remove_file(dropped)
        return dropped is not None

    # ---- what is known

    def abandon(self) -> None:
        """In a forked child: close the parent's files, and have a new lock: a thread of the parent may hold the old."""
        self.lock = threading.Lock()
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
