"""Records from an LSN onward; tells the torn tail from damage inside. Reads files, never writes.

*Operation*: read frames in order, check each, join the frames of a record. *Goal*: stop exactly where the log ended at
the crash, and never where it was damaged later. *Plan*: every frame says up to where the log was durable when it was
written. When the frame at x does not check out, x is the end of the log, unless some later frame says that x was
durable, or the caller knows a later LSN that was (the end after an end in order, a checkpoint): then it is damage.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from logger import frame, lsn
from logger.crc import crc32
from logger.disk import PAGE, File
from logger.errors import LogDamaged, later_format
from logger.extent import DATA, SPARES
from logger.integrity import Spare, choose, open_spare

WINDOW_BYTES = 1 << 20  # read at a time
UNWRITTEN = bytes(WINDOW_BYTES)  # memory that the system gives when somebody writes there: never
NO_END = 1 << 64


class Record(NamedTuple):
    """One record as it lies in the log."""

    lsn: int
    end: int  # LSN behind its last frame
    kind: int
    uow: int
    epoch: int
    time: int  # microseconds since 1970-01-01 UTC
    body: memoryview  # valid until the next record is read


class ExtentView:
    """The pages of one extent as a reader should see them: spare pages in the place of pages torn or not yet home."""

    def __init__(self, file: File, start: int, extent_bytes: int, seed: int) -> None:
        self._file = file
        self.start = start  # LSN of its first byte
        self.end = start + extent_bytes
        self.spares: dict[int, list[Spare]] = {}
        self.chosen: dict[int, Spare] = {}  # by page LSN
        self.torn: list[memoryview] = []  # spare pages that hold something, and no whole version
        for at in range(PAGE, DATA, PAGE):
            image = file.read(at, PAGE)
            spare = open_spare(image, seed)
            if spare is None and image.count(0) != PAGE:
                self.torn.append(memoryview(image))
            if spare is not None and start <= spare.page < self.end:
                self.spares.setdefault(spare.page, []).append(spare)
        for page, spares in self.spares.items():
            best = choose(file.read(DATA + page - start, PAGE), spares)
            if best is not None:
                self.chosen[page] = best

    @property
    def bad_spares(self) -> int:
        return len(self.torn)

    def read(self, at: int, size: int) -> memoryview:
        """Up to `size` bytes of the stream from LSN `at` on, not beyond the extent."""
        size = min(size, self.end - at)
        data = self._file.read(DATA + at - self.start, size)
        for page, spare in self.chosen.items():
            if at < page + PAGE and page < at + size:
                patched = bytearray(data.ljust(size, b"\0"))
                low, high = max(at, page), min(at + size, page + PAGE)
                patched[low - at : high - at] = spare.image[low - page : high - page]
                data = bytes(patched)
        return memoryview(data)


def first_frame(file: File, extent_bytes: int, seed: int) -> frame.Frame | None:
    """The first frame of the part of the log that an extent file holds, by what lies there: its header is not whole.

    Of the page that is home and those in spare pages, which may be of an earlier use of the file, the latest counts.
    """
    spares = [open_spare(file.read(at, PAGE), seed) for at in range(PAGE, DATA, PAGE)]
    home = memoryview(file.read(DATA, frame.HEADER.size))
    begins = {spare.page for spare in spares if spare is not None} | {frame.lsn_at(home)}
    for at in sorted(begins, reverse=True):
        if at and at % extent_bytes == 0:
            view = ExtentView(file, at, extent_bytes, seed)
            length = frame.length_at(view.read(at, frame.HEADER.size), 0, at)
            this = frame.decode(view.read(at, length), 0, at, seed)
            if this is not None:
                return this
    return None


def latest_part(file: File, extent_bytes: int, seed: int) -> tuple[int, int]:
    """Which part of the log an extent file holds, by the latest record anywhere in it, and that one's epoch.

    (0, 0): it has no whole record.
    """
    spares = [open_spare(file.read(at, PAGE), seed) for at in range(PAGE, DATA, PAGE)]
    best = max(((spare.page // extent_bytes, spare.epoch) for spare in spares if spare is not None), default=(0, 0))
    for base in range(0, extent_bytes, WINDOW_BYTES):
        data = memoryview(file.read(DATA + base, min(2 * WINDOW_BYTES, extent_bytes - base)))
        for at in _magics(data, WINDOW_BYTES):
            own = frame.lsn_at(data[at:])
            if own % extent_bytes == base + at and own // extent_bytes >= best[0]:
                this = frame.decode(data, at, own, seed)
                if this is not None:
                    best = max(best, (own // extent_bytes, this.epoch))
    return best


def _magics(data: memoryview, end: int) -> Iterator[int]:
    """Where in `data`, before `end`, a frame may begin."""
    searched = bytes(data)
    if UNWRITTEN.startswith(searched):  # as most of a young log is; to search it takes 70 times as long
        return
    at = searched.find(frame.MAGIC)
    while 0 <= at < end:
        if at % 8 == 0:
            yield at
        at = searched.find(frame.MAGIC, at + 1)


def whole_frames(view: ExtentView, place: int, seed: int) -> Iterator[frame.Frame]:
    """The whole frames of an extent from the LSN `place` on, wherever they lie, each once and in their order.

    A body is valid until the next frame is asked for.
    """
    last = -1
    while place < view.end:
        chunk = view.read(place, WINDOW_BYTES)
        for at in _magics(chunk, len(chunk)):
            own = place + at
            length = frame.length_at(chunk, at, own)
            if length and own + length <= view.end:
                whole, begin = (chunk, at) if at + length <= len(chunk) else (view.read(own, length), 0)
                this = frame.decode(whole, begin, own, seed)
                if this is not None and this.lsn > last:
                    last = this.lsn
                    yield this
        place += max(8, len(chunk) - frame.HEADER.size & -8) if len(chunk) == WINDOW_BYTES else view.end - place


Guard = Callable[[int, Callable[[], ExtentView]], ExtentView]


def unguarded(sequence: int, look: Callable[[], ExtentView]) -> ExtentView:
    """The guard where nobody writes: there is nothing to wait for."""
    return look()


class LogReader:
    """Reads the records of one log. `end` and `epoch` are known once `records` is exhausted."""

    def __init__(
        self,
        open_extent: Callable[[int], File | None],
        *,
        extent_bytes: int,
        log_id: bytes,
        name: Callable[[int], str],
        close: Callable[[], None],
        last_epoch: tuple[int, int],
        guard: Guard = unguarded,
    ) -> None:
        """`open_extent(sequence)` gives an extent's file, or None where there is none; `name` its path, for errors.

        `last_epoch`: the LSN at which the latest epoch began, and its number. `guard(sequence, look)` calls `look`
        while nobody writes to that extent, and returns what it does.
        """
        self._guard = guard
        self._until = NO_END
        self._epoch_from, self._last_epoch = last_epoch
        self.close = close
        self._open = open_extent
        self._name = name
        self._extent_bytes = extent_bytes
        self._seed = crc32(log_id)
        self._view: ExtentView | None = None
        self._window = memoryview(b"")
        self._window_at = 0
        self.end = 0  # where the next record would start
        self.stopped = 0  # where no frame was that counts: behind `end` if that is in the middle of a record
        self.epoch = 0  # highest seen
        self.time = 0  # latest time of a record

    def records(self, start: int, *, durable: int = 0, resync: bool = False, until: int = NO_END) -> Iterator[Record]:
        """Yield the records from LSN `start`, where one begins; with `resync` the rest of one may come first.

        Raises LogDamaged where the log is damaged, and when it ends before the LSN `durable`. Nothing from the LSN
        `until` on is read, where a record begins or may come to begin.
        """
        self._until = until
        self.end = self.stopped = self.epoch = self.time = 0
        at = start
        parts: list[bytes] = []
        about = 0, 0, 0  # kind, unit of work and time of the record whose parts these are
        first = start
        while True:
            if at >= until:
                self.end = at
                return
            this = self._frame(at)
            if this is None or not self._is_live(this):
                break
            if this.kind == frame.PAD:
                at = (at // self._extent_bytes + 1) * self._extent_bytes
                continue
            if resync and not this.flags & frame.BEGIN and not parts and self.end == 0:
                at = this.end
                continue
            if bool(this.flags & frame.BEGIN) == bool(parts):
                break  # a record that was abandoned when its rest was lost
            if parts and (this.kind, this.uow, this.time) != about:
                break  # it is the rest of another one
            self.epoch = this.epoch
            at = this.end
            if this.flags == frame.WHOLE:
                self.end = at
                self.time = this.time
                yield Record(this.lsn, at, this.kind, this.uow, this.epoch, this.time, this.body)
                first = at
                continue
            if not parts:
                first, about = this.lsn, (this.kind, this.uow, this.time)
            parts.append(bytes(this.body))
            if this.flags & frame.END:
                body = memoryview(b"".join(parts))
                parts.clear()
                self.end = at
                self.time = this.time
                yield Record(first, at, this.kind, this.uow, this.epoch, this.time, body)
        self.end = first if parts else at
        self.stopped = at
        self._tail_or_damage(at, durable)

    def page_up_to(self, at: int) -> bytes:
        """What the log holds of the page of LSN `at`, up to there; empty where a page begins."""
        page = lsn.page_of(at)
        return bytes(self._window[: at - page]) if at > page and self._move(page, PAGE) else b""

    def _frame(self, at: int) -> frame.Frame | None:
        """The frame at LSN `at`, or None."""
        offset = at - self._window_at
        if 0 <= offset < len(self._window):  # most often all of it is there
            this = frame.decode(self._window, offset, at, self._seed)
            if this is not None:
                return this
        if not 0 <= offset <= len(self._window) - frame.HEADER.size and not self._move(at, WINDOW_BYTES):
            return None
        offset = at - self._window_at
        length = frame.length_at(self._window, offset, at)
        if offset + length > len(self._window):
            if at + length > (at // self._extent_bytes + 1) * self._extent_bytes:
                return None  # no frame crosses an extent: a lie about the length
            self._move(at, max(length, WINDOW_BYTES))
            offset = 0
        return frame.decode(self._window, offset, at, self._seed)

    def _is_live(self, this: frame.Frame) -> bool:
        """False for one that a lost write left behind: a restart has ended the log before it."""
        return this.epoch >= (self.epoch if this.lsn < self._epoch_from else max(self.epoch, self._last_epoch))

    def _move(self, at: int, size: int) -> bool:
        """Read the bytes from `at` into the window; False where no extent holds them."""
        view = self._view
        if view is None or not view.start <= at < view.end:
            found = self._open_view(at // self._extent_bytes)
            if found is None:
                return False
            view = self._view = found
        self._window = view.read(at, min(size, self._until - at))
        self._window_at = at
        return True

    def view(self, sequence: int) -> ExtentView:
        """The pages of an extent as they should be seen. Raises LogDamaged where it is not there, OSError."""
        found = self._open_view(sequence)
        if found is None:
            raise self._missing(sequence, sequence * self._extent_bytes)
        return found

    def _open_view(self, sequence: int) -> ExtentView | None:
        file = self._open(sequence)
        if file is None:
            return None
        start, extent_bytes, seed = sequence * self._extent_bytes, self._extent_bytes, self._seed
        return self._guard(sequence, lambda: ExtentView(file, start, extent_bytes, seed))

    def _missing(self, sequence: int, durable: int) -> LogDamaged:
        path, begins = self._name(sequence), sequence * self._extent_bytes
        return LogDamaged(
            f"{path} is missing: it holds the log from {lsn.text(begins)}, and the log was durable up to "
            f"{lsn.text(durable)}; put the file back, from where it was archived or from a backup",
            path=path,
            lsn=begins,
        )

    def _tail_or_damage(self, at: int, durable: int) -> None:
        """The frame at `at` does not check out: return when that is the torn end of the log, raise when damage.

        Raises LaterFormat where a later version wrote it: that is no end.
        """
        view = self._view
        if view is not None and view.start <= at < view.end:
            length = frame.later_length(view.read(at, frame.HEADER.size), at)
            if 0 < length <= view.end - at and frame.checks_out(view.read(at, length), self._seed):
                said = f"has a record of a later format at {lsn.text(at)}"
                raise later_format(self._name(at // self._extent_bytes), said)
        witness = durable if durable > self.end else self._durable_beyond(at)
        if witness <= self.end:
            self._check_spares()
            return
        sequence = at // self._extent_bytes
        if self._open(sequence) is None:
            raise self._missing(sequence, witness)
        path = self._name(sequence)
        raise LogDamaged(
            f"{path} is damaged at {lsn.text(at)}: the log was durable up to {lsn.text(witness)} and can't be "
            f"read there any more; restore the file from a backup, or start from an older copy of the queue manager",
            path=path,
            lsn=self.end,
            durable=witness,
        )

    def _check_spares(self) -> None:
        """A crash can tear the spare page that is being written; that both hold nothing whole is damage."""
        view = self._view
        if view is not None and view.bad_spares == SPARES and view.start < self.stopped < view.end:
            path = self._name(view.start // self._extent_bytes)
            raise LogDamaged(
                f"both spare pages of {path} are damaged, so the last records of the log may be missing from "
                f"{lsn.text(self.end)} on; restore the file from a backup",
                path=path,
                lsn=self.end,
            )

    def _durable_beyond(self, at: int) -> int:
        """The highest LSN that a frame beyond `at`, or in a torn spare page there, says was durable; 0 when none does.

        It is of this or a later epoch. A version that was torn while it was written may hold whole frames, too: what
        they say was durable lies elsewhere, or was lost.
        """
        best = 0
        place = at + 8
        while True:
            sequence = place // self._extent_bytes
            file = self._open(sequence)
            if file is None:
                return best
            view = ExtentView(file, sequence * self._extent_bytes, self._extent_bytes, self._seed)
            best = max([best, *(self._durable_in_spare(view, image) for image in view.torn)])
            for this in whole_frames(view, place, self._seed):
                if self._is_live(this):
                    best = max(best, this.durable)
            place = view.end

    def _durable_in_spare(self, view: ExtentView, image: memoryview) -> int:
        """The highest LSN that a frame in a torn spare page says was durable: it says itself where it belongs."""
        best = 0
        for found in _magics(image, PAGE):
            own = frame.lsn_at(image[found:])
            if own % PAGE == found and view.start <= own < view.end:
                this = frame.decode(image, found, own, self._seed)
                if this is not None and self._is_live(this):
                    best = max(best, this.durable)
        return best
