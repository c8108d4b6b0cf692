"""Writer: which pages of the buffer go where, and their way to the disk. One thread at a time: the leader (`force.py`).

After a failed write or sync nobody knows what reached the disk: the log closes for good.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import attrs

from logger import integrity, lsn
from logger.at_rest import read_page
from logger.buffer import LogBuffer, Run
from logger.clock import Clock
from logger.config import LogConfig, LogSync, WriteIntegrity
from logger.control import ControlFile, ControlState, TakenOver
from logger.crc import crc32
from logger.disk import PAGE, Disk
from logger.disk_errors import advice
from logger.errors import LogFailed
from logger.extent import DATA, SPARES, Extent
from logger.extents import Extents
from logger.force import GroupCommit
from logger.space import Space
from logger.stats import LogStats

MAX_DSYNC_BYTES = 256 << 10  # of more the system makes several writes, each with a sync
NO_PAGE = -1
OWNED_NS = 50_000_000  # so long the log is surely still ours: nobody can start a queue manager in less


ImageState = tuple[int, int, int, Extent | None]  # which page, how much of it, the CRC of that, and where it goes


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


class Writer(GroupCommit):
    """The writing side of a log. `Log` fills the buffer and minds the space, which it makes in `begin`."""

    __slots__ = (
        *("_always", "_begun_at_ns", "_clock", "_config", "_control", "_control_lock", "_disk", "_elapsed_ns"),
        *("_extent_bytes", "_extents", "_guard", "_image", "_image_only", "_image_state", "_only_home", "_output"),
        *("_owned_until", "_seed", "_spare", "_state", "_stats", "_triple", "_unsynced", "_unsynced_spare"),
        *("buffer", "durable", "epoch", "moved_directory", "space"),
    )

    buffer: LogBuffer
    space: Space

    def __init__(self, disk: Disk, clock: Clock, config: LogConfig, control: ControlFile, extents: Extents) -> None:
        super().__init__()
        self._disk = disk
        self._clock = clock
        self._config = config
        self._control = control
        self._state = control.state
        self._control_lock = threading.Lock()  # held while the control file, or the header of an extent, is written
        self._extents = extents
        self._stats = LogStats()
        self._seed = crc32(control.state.log_id)
        self._always = config.sync is LogSync.ALWAYS
        self._triple = config.write_integrity is not WriteIntegrity.SINGLE
        self.epoch = control.state.epoch
        self.durable = 0  # everything before this LSN is on stable storage
        self._output: _Output | None = None
        self._unsynced: dict[Extent, None] = {}  # in the order of their writes, so that a simulated life repeats itself
        self._spare = 0  # which of the spare pages is written next: not the one that holds the newest durable version
        self._unsynced_spare = NO_PAGE  # which was written since the last sync
        self._extent_bytes = config.extent_bytes
        self._elapsed_ns = clock.elapsed_ns
        self._owned_until = 0  # by the clock; later `check_owned` comes first, as this process may have been stopped
        self._only_home = NO_PAGE  # the partial page whose durable bytes are at home only, and in no spare page
        self._image_only = False  # what was prepared is one page, in `_image`; else it is in `_output`
        self._image = disk.buffer(PAGE)
        self._guard = disk.buffer(PAGE)  # of the output's guard: where memory has run out, the log can still be written
        self._image_state: ImageState = 0, 0, 0, None
        self._begun_at_ns = 0
        self.moved_directory: Callable[[], str] = str  # a directory of the queue manager that has left its path, or ""

    def _prepare(self) -> None:
        """Settle what the leader writes: what was begun or left undone, else all that the buffer holds.

        Usually that is one partial page, which goes to a spare page. It stays in the buffer, so there is nothing to
        remember while its image is written.
        """
        if self._begun:
            return
        self._image_only = self._make_image() is not None
        if not self._image_only:
            self._take()

    def _begin_write(self) -> None:
        """Only the image of a partial page: of more than that the disk has so much to do that nothing is gained."""
        began = self._elapsed_ns()
        if self._unsynced or not self._always or began > self._owned_until or (held := self._make_image()) is None:
            return
        self._begun_at_ns, self._image_only = began, True
        self._begun = True  # first: an interrupt may strike as soon as it is so
        try:
            self._begun = held.file.begin_durably(PAGE + PAGE * self._spare, self._image)
        except OSError as exc:
            error = self._failed(exc)
            raise error from error.__cause__

    def _finish_pending(self) -> None:
        if self._begun:
            self.safe = self._write()
        elif self._output is not None:
            self.safe = self._finish(self._output, sync=self._always)

    def _make_image(self) -> Extent | None:
        """Bring the image of the partial page up to date; the extent that it is for. None: there is more to write."""
        buffer = self.buffer
        base, tail = buffer.base, buffer.tail
        size = tail - base
        if self._output is None and 0 < size <= integrity.BODY and self._triple:
            page, held, crc, extent = self._image_state
            if page != base:
                held, crc, extent = 0, self._seed, self._extents.find(base // self._extent_bytes)
            if extent is not None:
                crc = buffer.copy_page(self._image, held, size, crc)
                self._image_state = base, size, crc, extent
                integrity.seal_spare(self._image, base, tail, self.epoch, crc)
                return extent
        return None

    def _write(self) -> int:
        """Write what was prepared, and sync it unless LogSync says no; return the LSN that is safe by that."""
        if not self._image_only:
            assert self._output is not None, "it was prepared"
            return self._finish(self._output, sync=self._always)
        base, size, _, extent = self._image_state
        assert extent is not None, "it was prepared"
        file, unsynced, begun = extent.file, self._unsynced, self._begun
        began = self._elapsed_ns()
        if began > self._owned_until:
            self.check_owned()
        elif begun:
            began = self._begun_at_ns
        if self._always and not unsynced:
            file.write_durably(PAGE + PAGE * self._spare, self._image, may_poll=begun or not self._contended)
            self._spare = 1 - self._spare
            self.durable = base + size
            self._begun = False
        else:
            file.write(PAGE + PAGE * self._spare, self._image)
            self._unsynced_spare = self._spare
            unsynced[extent] = None
            if self._always:
                self._sync()
                self.durable = base + size
        self._only_home = NO_PAGE
        ended = self._elapsed_ns()
        if ended > began + OWNED_NS:
            self.check_owned()
        self._owned_until = ended + OWNED_NS
        self._stats.add(PAGE, ended - began, self._clock, base // self._extent_bytes)
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
        if self._unsynced_spare != NO_PAGE:
            self._spare = 1 - self._unsynced_spare
            self._unsynced_spare = NO_PAGE

    def _take(self) -> None:
        """Take all that waits to be written, with a plan where it goes, unless there is something undone."""
        if self._output is None:
            try:
                if self._should_fill_page():
                    self.buffer.fill_page(self._clock.wall_us(), self.durable)
                self._output = self._plan(self.buffer.take(partial=True))
            except BaseException as exc:  # pages that were taken and not planned are lost
                error = self._failed(exc)
                raise error from error.__cause__
            if self._appenders:
                self.changed.notify_all()

    def _should_fill_page(self) -> bool:
        """Is what is left of the last page little beside what is to be written, and is there room enough for that?

        Then all goes home in one write, which takes two thirds of the time of two and a sync.
        """
        buffer, space = self.buffer, self.space
        base, tail = buffer.base, buffer.tail
        last = lsn.page_of(tail)
        little = base < last < tail and 2 * (last + PAGE - tail) <= tail - self.safe
        little = little and self._triple and self._always and not self._begins_a_page(base, tail)
        return little and tail <= space.checkpoint_at and space.fits(tail, PAGE, space.for_gets)

    def _begins_a_page(self, base: int, tail: int) -> bool:
        """Does a run that is the rest of one page and the beginning of the next go home, all in one write?

        Of the next page nothing is safe yet. Should home be overwritten before a spare page has it, a copy is made
        first; so not where the next run, if it is as long, would do that. Nor where forces do not sync: there a spare
        page has it for sure only much later.
        """
        last = lsn.page_of(tail)
        short = self._always and last - base == PAGE and last % self._extent_bytes != 0
        short = short and self._only_home != base and last >= self.safe
        return short and 2 * tail - self.safe <= last + integrity.BODY

    def _finish(self, output: _Output, *, sync: bool) -> int:
        self._perform(output, sync=sync)
        tail = output.run.tail
        if sync:
            self.durable = tail
        last = lsn.page_of(tail)
        self._only_home = last if last < tail and not output.to_spare else NO_PAGE
        self._output = None
        return tail

    def _plan(self, run: Run) -> _Output:
        """Which pages go where. Takes extents from the ring for the parts of the stream that have none yet.

        A page never overwrites the only copy of what is safe of it. So a partial last page goes to a spare page, but
        where `_begins_a_page`. Where home has the only copy, one is made before it is overwritten.
        """
        extent_bytes = self._extent_bytes
        output = _Output(run, self._spare)
        base, pages = run.base, run.pages
        last = lsn.page_of(run.tail)
        home = len(pages)
        if self._triple:
            output.to_spare = last < run.tail and not self._begins_a_page(base, run.tail)
            home = last - base if output.to_spare else len(pages)
            if self._only_home == base and home > 0:
                output.guard = self._extent_at(base, output), self._sealed(pages, base, self.durable)
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
        image = self._guard
        image[: tail - page] = pages[: tail - page]
        image[tail - page :] = bytes(PAGE - (tail - page))
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
        if began > self._owned_until:
            self.check_owned()
        if output.new_extents:
            with self._control_lock:  # a crash that tears a copy of the control file tears no header: `border.py`
                for held in output.new_extents:
                    if not held.header_written:  # else an interrupted attempt has written it
                        held.write_header()
                self._update_control_locked()
        unsynced = self._unsynced
        if output.guard is not None:
            held, image = output.guard
            held.file.write(PAGE * (2 - output.spare), image)
            self._unsynced_spare = 1 - output.spare
            unsynced[held] = None
            self._sync()
            output.guard = None  # done: it is not overwritten while home is
        size = 0
        alone = sync and not unsynced and len(output.writes) == 1 and len(output.writes[0][2]) <= MAX_DSYNC_BYTES
        for held, offset, pages in output.writes:
            if alone:
                held.file.write_durably(offset, pages)
            else:
                held.file.write(offset, pages)
                unsynced[held] = None
            size += len(pages)
        if output.to_spare:
            self._unsynced_spare = output.spare
        if sync:
            self._sync()
        ended = elapsed_ns()
        if ended > began + OWNED_NS:
            self.check_owned()
        self._owned_until = ended + OWNED_NS
        if size:
            self._stats.add(size, ended - began, self._clock, output.run.base // self._config.extent_bytes)

    def check_owned(self) -> None:
        """Raises TakenOver unless the log is still this process's.

        It may not be: another process took it over while this one was stopped; other code in this process closed the
        log's descriptors, whose numbers may be those of other files now; or a directory was moved or mounted over, so
        that a restart would not find what is written. The leader calls it before it writes and, if that took long,
        before it acknowledges; so do functions that create files which may exist.
        """
        held = self._extents.find(self.durable // self._extent_bytes)
        if not self._control.still_open() or not (held is None or held.file.still_open()):
            raise TakenOver(
                f"files of the log in {self._config.path} were closed by something else in this process, and their "
                f"descriptors may be those of other files by now; it writes no more: start it again"
            )
        epoch = 0
        with contextlib.suppress(OSError):  # that a read fails tells nothing of it
            epoch = self._control.taken_over()
        directory = self.moved_directory()
        if directory:
            raise TakenOver(
                f"{directory} is another directory now than when this queue manager was started, or none: it was "
                f"moved, or its file system unmounted or mounted over, and this process writes no more: put it back"
            )
        if epoch:
            raise TakenOver(
                f"another process has started this queue manager (epoch {epoch} of the log in {self._config.path}; "
                f"this process has {self.epoch}) while this one was stopped or had lost its lock; it writes no more"
            )

    def _update_control_locked(self, floor: int = 0, **changes: Any) -> None:
        """Write to the control file what is so by now, and `changes`; `floor`: see `Extents.table`.

        `_control_lock` is held. This may not wait for `lock`: who holds that may wait for this one. Raises OSError.
        """
        said = self._state
        table = self._extents.table(said.extents, floor)
        self._write_control(attrs.evolve(said, extents=table, durable=max(self.durable, said.durable), **changes))

    def _update_control(self, floor: int = 0, **changes: Any) -> None:
        """The same for anybody, while others write to the log."""
        with self._control_lock:
            self._update_control_locked(floor, **changes)

    def _write_control(self, state: ControlState) -> None:
        self.check_owned()
        self._control.write(state)
        self._state = state

    # ---- ahead of a force, and at the begin

    def _write_full_pages(self) -> None:
        """Write the full pages of the buffer, without a sync. The lock is held and nobody writes."""
        assert not self._writing, "room was made before the record was appended"
        try:
            self._finish_pending()
            self._perform(self._plan(self.buffer.take(partial=False)), sync=False)
        except BaseException as exc:
            error = self._failed(exc)
            raise error from error.__cause__

    def _keep_partial(self, tail: int, partial: bytes) -> None:
        """Put the page that the log ended in into a spare page: it may be whole only at home, where it is rewritten.

        Then wipe the other spare page if it is of this or a later page: a write that was lost left it behind. Where
        none is kept, one that is torn goes first, and each by itself: a reader takes two that are torn for damage.
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
        torn = [n for n, spare in enumerate(spares) if spare is None and any(images[n]) and kept < 0]
        late = [n for n, spare in enumerate(spares) if spare is not None and spare.page >= page and n != kept]
        for n in torn + late:
            held.file.write(PAGE * (1 + n), zeros)
            held.file.sync()

    # ---- failing

    def _failed(self, exc: BaseException) -> BaseException:
        """As `_fail`; return the exception for the caller to raise: an interrupt as it is, else the failure."""
        failure = self._fail(exc)
        if not isinstance(exc, Exception):
            return exc
        failure.__cause__ = exc
        return failure

    def _fail(self, exc: BaseException) -> LogFailed:
        """After this nothing is written any more, also where there is no memory to say why. The lock is held."""
        failure = self._no_memory
        try:
            way = "give it more memory" if isinstance(exc, MemoryError) else "mend the disk"
            way = advice(exc) if isinstance(exc, OSError) else way
            failure = LogFailed(
                str(exc)
                if isinstance(exc, TakenOver)
                else f"a write or sync of the log in {self._config.path} failed ({str(exc) or type(exc).__name__}); "
                f"nobody knows what reached the disk: {way} and start it again"
            )
        finally:
            self._stop_locked(failure)
        return failure
