"""Windows: pieces of the log in memory with the places of the records in them, each byte checked. Reads, never writes.

An extent that has an index is read in runs of blocks, those that may hold what is wanted; a block is checked by one
CRC, and the index says where its records begin. Where most of its records are of queues that are not wanted, only the
others are read, each checked by the CRC of its frame. Any other extent, such as the one that is being written, is
walked from frame to frame, and each frame's CRC is checked. An index that does not fit what is read is passed over:
then it is the frames that decide whether anything is damaged.

A queue manager may write meanwhile. A page that it was about to write over, or has moved to its place, can look torn:
what does not check out is looked at again before it counts as damage.
"""

import contextlib
import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from logger import frame, lsn
from logger.compressed import CompressedFile, ReadOnly, compression_of
from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.errors import LogDamaged
from logger.extent import DATA, HEADER, decode_header, file_name, linear_number
from logger.history import SUFFIXES, Form, History, Place
from logger.reader import ExtentView, LogReader, Record
from pipeline.filters import Wanted
from recovery import extent_index
from recovery.extent_index import BLOCK, SEVERAL, ExtentIndex

WINDOW = 4 << 20  # bytes read at a time
LOOKS = 6  # at what does not check out, before it is damage
PAUSE = 0.002  # seconds before the second look; twice as much before each other one
PADDING = bytes(192)  # so that a header can be taken whole wherever a record begins
KIND_IN_HEADER = 8  # which of its fields
LSN_AT, FLAGS_AT = 2, 46  # in a frame's header: the LSN is the third number of 8 bytes
FEW = 4  # so many times as many bytes are read where few of them may be wanted
NEAR = 2048  # bytes between two records that are read at once all the same
LONG = 16 << 10  # bytes of a record that are read at once where few are wanted
OPEN = 3  # files at a time
INDEXES = 32  # that this process keeps

Places = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_indexes: dict[tuple[bytes, int, int], ExtentIndex] = {}


class Window(NamedTuple):
    """Some bytes of the log, and the records of one frame each that begin and end in them."""

    data: bytes  # with some padding at the end
    lsns: Places  # of the records, rising
    offsets: Places  # where they begin in the data


class Stretch(NamedTuple):
    """Blocks of an extent that follow each other, and which of its records begin in them."""

    first: int  # block
    last: int  # the one behind
    low: int  # record
    high: int

    @property
    def bytes(self) -> int:
        return (self.last - self.first) * BLOCK


class _Unfit(Exception):
    """The index says something else than the extent."""


def lsns_of(index: ExtentIndex, extent_bytes: int) -> Places:
    """Where the records begin of which an index tells."""
    return index.sequence * extent_bytes + np.cumsum(_numbers(index.places)) * 8


def _numbers(halves: bytes) -> Places:
    low, high = np.split(np.frombuffer(halves, "<u2").astype(np.int64), 2)
    return low + (high << 16)


def stretches(index: ExtentIndex, lsns: Places, start: int, end: int, wanted: Wanted, most: int) -> list[Stretch]:
    """What has to be read for the records that begin in [start, end), in runs of at most so many bytes."""
    first, last = (int(place) for place in np.searchsorted(lsns, (start, end)))
    found: list[Stretch] = []
    ends = accumulate(block.records for block in index.blocks)
    for number, (block, end_record) in enumerate(zip(index.blocks, ends, strict=True)):
        low, high = max(first, end_record - block.records), min(last, end_record)
        if low >= high or not wanted.may_have(block.low_time, block.high_time, block.kinds, block.queues):
            continue
        if found and found[-1].last == number and found[-1].bytes + BLOCK <= most:
            found[-1] = Stretch(found[-1].first, number + 1, found[-1].low, high)
        else:
            found.append(Stretch(number, number + 1, low, high))
    return found


@attrs.define
class Extents:
    """The extents of one log, opened as they are read."""

    disk: Disk
    history: History
    epoch_from: int
    epoch: int
    _files: dict[int, tuple[Place, File]] = attrs.field(factory=dict)
    _none_from: int | None = None  # the sequence from which on nothing was there, at the last look at directories

    def place(self, sequence: int) -> Place:
        """Where the extent is. Raises LogDamaged, ExtentGone where it is not."""
        return self._opened(sequence)[0]

    def has(self, sequence: int) -> bool:
        """Is the extent there, whole and under its name?"""
        with contextlib.suppress(LogDamaged):
            found = self._files.get(sequence) or self._by_name(sequence)
            if found is not None:
                self._files[sequence] = found
                return True
        return False

    def index(self, sequence: int) -> ExtentIndex | None:
        """What is in the extent, if that is told beside it."""
        place = self.place(sequence)
        key = self.history.log_id, sequence, place.taken
        found = _indexes.pop(key, None)
        if found is None:
            found = extent_index.load(self.disk, place, self.history.log_id)
            if found is None:
                return None
        _indexes[key] = found
        while len(_indexes) > INDEXES:
            _indexes.pop(next(iter(_indexes)))
        return found

    def view(self, sequence: int) -> ExtentView:
        """The pages of the extent, as they lie now."""
        size = self.history.extent_bytes
        return ExtentView(_Reopened(self, sequence), sequence * size, size, self.seed)

    def read(self, sequence: int, offset: int, size: int) -> bytes:
        """Bytes of the extent's file, plain or decompressed."""
        with _told(max(offset - DATA, 0) + sequence * self.history.extent_bytes):
            return self._opened(sequence)[1].read(offset, size)

    @property
    def seed(self) -> int:
        return crc32(self.history.log_id)

    def close(self) -> None:
        for _, file in self._files.values():
            file.close()
        self._files.clear()
        self._none_from = None

    def reader(self) -> LogReader:
        """A reader of the same files; it is closed with them."""
        return LogReader(
            self._if_there,
            extent_bytes=self.history.extent_bytes,
            log_id=self.history.log_id,
            name=self.history.name,
            close=self.close,
            last_epoch=(self.epoch_from, self.epoch),
        )

    def long_record(self, at: int) -> Record:
        """The record of several frames that begins at `at`. Raises LogDamaged."""
        look = Patience()
        while True:
            try:
                for record in self.reader().records(at, durable=at + 8):
                    if record.lsn == at:
                        return record
                    break
                look.again(damaged(self.place(at // self.history.extent_bytes).path, at))
            except LogDamaged as exc:
                look.again(exc)
            self.close()

    def _if_there(self, sequence: int) -> File | None:
        """For a reader that looks on behind the end of the log."""
        try:
            self._opened(sequence)
            return _Reopened(self, sequence)
        except LogDamaged as exc:
            if self._from(sequence):
                raise exc
            return None

    def _from(self, sequence: int) -> dict[int, Place]:
        """What is there of this extent and those behind it."""
        if self._none_from is not None and sequence >= self._none_from:
            return {}
        found = self.history.places_from(sequence)
        if not found:
            self._none_from = sequence
        return found

    def _opened(self, sequence: int) -> tuple[Place, File]:
        with _told(sequence * self.history.extent_bytes):
            found = self._files.pop(sequence, None) or self._found(sequence)
        self._files[sequence] = found
        while len(self._files) > OPEN:
            self._files.pop(next(iter(self._files)))[1].close()
        return found

    def _found(self, sequence: int) -> tuple[Place, File]:
        """Open the extent where it lies by now; others may be moving it."""
        places: dict[int, Place] = {}
        for _ in range(LOOKS):
            found = self._by_name(sequence)
            if found is not None:
                return found
            places = self._from(sequence)
            if not places:
                break  # the log ends before it: there is nothing that anybody could be moving
            if sequence in places:  # it has moved, or its header is damaged
                file = self.history.open(sequence)
                if file is not None:
                    return places[sequence], file
        if places:
            self.history.places()  # of which it says what is there
            self.history.refuse_gap(sequence)
        path, at = self.history.name(sequence), sequence * self.history.extent_bytes
        raise LogDamaged(
            f"log extent {path} is missing, or cut, or its header is damaged, and it should hold the log from "
            f"{lsn.text(at)}; restore it from a backup, into {self.history.where}",
            path=path,
            lsn=at,
        )

    def _by_name(self, sequence: int) -> tuple[Place, File] | None:
        if self._none_from is not None and sequence >= self._none_from:
            return None
        for directory in self.history.directories:
            for suffix in SUFFIXES:
                found = self._open(f"{directory}/{file_name(linear_number(sequence))}{suffix}", sequence)
                if found is not None:
                    return found
        return None

    def _open(self, path: str, sequence: int) -> tuple[Place, File] | None:
        try:
            file: File = self.disk.open_read(path)
        except FileNotFoundError:
            return None
        if compression_of(path) is not None:
            file = CompressedFile(file, path)
        try:
            header = decode_header(file.read(0, HEADER.size))
            size = file.size()
        except BaseException:
            file.close()
            raise
        if (
            header is None
            or (header.log_id, header.sequence, header.extent_bytes)
            != (self.history.log_id, sequence, self.history.extent_bytes)
            or size < DATA + header.extent_bytes
        ):
            file.close()
            return None
        return Place(sequence=sequence, path=path, form=Form.ACTIVE, size=size, taken=header.time), file


@contextlib.contextmanager
def _told(at: int) -> Iterator[None]:
    """What can't be decompressed is said with its LSN."""
    try:
        yield
    except LogDamaged as exc:
        if exc.lsn is not None:
            raise
        raise LogDamaged(f"{exc}; it holds the log at {lsn.text(at)}", path=exc.path, lsn=at) from exc


class _Reopened(ReadOnly):
    """An extent whose file is opened again when it had to make room for others."""

    def __init__(self, extents: Extents, sequence: int) -> None:
        self._extents = extents
        self._sequence = sequence

    def read(self, offset: int, size: int) -> bytes:
        return self._extents.read(self._sequence, offset, size)

    def size(self) -> int:
        return self._extents.place(self._sequence).size

    def close(self) -> None:
        """They are closed together."""


class Patience:
    """Looks again for a while at what others may be writing."""

    def __init__(self) -> None:
        self._looks = 0

    def again(self, exc: LogDamaged) -> None:
        """Wait a moment; raise what was found when that has been done often enough."""
        self._looks += 1
        if self._looks == LOOKS:
            raise exc
        threading.Event().wait(PAUSE * 2**self._looks)

    def reset(self) -> None:
        self._looks = 0


def damaged(path: str, at: int) -> LogDamaged:
    return LogDamaged(
        f"{path} is damaged at {lsn.text(at)}: the log was durable beyond that and can't be read there any more; "
        f"restore the file from a backup",
        path=path,
        lsn=at,
    )


def windows(extents: Extents, start: int, end: int, wanted: Wanted) -> Iterator[Window | Record]:
    """The records that begin in [start, end) and may be wanted; a record of several frames comes by itself.

    All before `end` has to be there. Raises LogDamaged where it is not, ExtentGone, OSError.
    """
    size = extents.history.extent_bytes
    while start < end:
        stop = min(end, (start // size + 1) * size)
        for window in _of_extent(extents, start, stop, wanted):
            yield from _apart(extents, window)
        start = stop


def _of_extent(extents: Extents, start: int, end: int, wanted: Wanted) -> Iterator[Window]:
    index = extents.index(start // extents.history.extent_bytes)
    if index is not None:
        lsns = lsns_of(index, extents.history.extent_bytes)
        chosen = _chosen(index, wanted)
        view = extents.view(index.sequence)
        for stretch in stretches(index, lsns, start, end, wanted, WINDOW):
            try:
                window = _stretch(view, index, lsns, stretch, chosen, extents.seed)
            except _Unfit:
                break
            if window is not None:
                yield window
                start = int(window.lsns[-1]) + 8
        else:
            return
    yield from _walk(extents, start, end)


def _chosen(index: ExtentIndex, wanted: Wanted) -> Bools | None:
    """Which records may be wanted by their queues; None: all."""
    if wanted.numbers is None or len(index.subjects) != len(index.places):
        return None
    subjects = _numbers(index.subjects)
    return np.isin(subjects, [SEVERAL, *wanted.numbers])


def _stretch(
    view: ExtentView, index: ExtentIndex, lsns: Places, stretch: Stretch, chosen: Bools | None, seed: int
) -> Window | None:
    """Blocks as they were when they were indexed, with the rest of the last record's frame. Raises _Unfit.

    Of those records that may be wanted, if these are few.
    """
    places = lsns[stretch.low : stretch.high]
    if chosen is not None:
        which = chosen[stretch.low : stretch.high]
        places = places[which]
        if not len(places):
            return None
        begins, ends = _ranges(places, np.append(lsns[1:], view.end)[stretch.low : stretch.high][which])
        if (ends - begins).sum() < stretch.bytes // FEW:
            return _sparse(view, places, begins, ends, seed)
    start = view.start + stretch.first * BLOCK
    data = _blocks(view, index, stretch.first, stretch.last)
    last = int(places[-1])
    length = frame.length_at(data, last - start, last)
    over = last + length - (start + len(data))
    parts: list[memoryview | bytes] = [data]
    if not length or last + length > view.end:
        raise _Unfit
    if over > 0:
        parts.append(_blocks(view, index, stretch.last, stretch.last + -(-over // BLOCK)))
    whole = b"".join((*parts, PADDING))
    if (np.frombuffer(whole, "<i8")[(places - start >> 3) + LSN_AT] != places).any():
        raise _Unfit
    return Window(whole, places, places - start)


def _ranges(begins: Places, ends: Places) -> tuple[Places, Places]:
    """What to read for these records, each up to where the next one begins; those near to each other at once.

    Of a long one only the first frame is needed, and that is told by its header.
    """
    ends = np.minimum(ends, begins + LONG)
    apart = begins[1:] - ends[:-1] > NEAR
    return begins[np.append(True, apart)], ends[np.append(apart, True)]


def _sparse(view: ExtentView, places: Places, begins: Places, ends: Places, seed: int) -> Window:
    """These records alone. Raises _Unfit."""
    pieces: list[memoryview] = []
    shifts = []  # where each range lies in the data
    size = 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        piece = view.read(begin, end - begin)
        pieces.append(piece)
        shifts.append(size - begin)
        size += len(piece)
    pieces.append(memoryview(PADDING))
    data = b"".join(pieces)
    offsets = places + np.array(shifts)[np.searchsorted(begins, places, "right") - 1]
    seen = memoryview(data)[:size]
    rest: list[bytes] = []
    size += len(PADDING)
    for number, (at, offset) in enumerate(zip(places.tolist(), offsets.tolist(), strict=True)):
        length = frame.length_at(seen, offset, at)
        if not length or at + length > view.end:
            raise _Unfit
        if length <= LONG:
            this = frame.decode(seen, offset, at, seed)
        else:  # it has been read in part
            whole = bytes(view.read(at, length))
            this = frame.decode(memoryview(whole), 0, at, seed)
            offsets[number] = size
            rest.append(whole)
            size += len(whole)
        if this is None:
            raise _Unfit
    if rest:
        data = b"".join((data, *rest, PADDING))
    return Window(data, places, offsets)


def _blocks(view: ExtentView, index: ExtentIndex, first: int, last: int) -> memoryview:
    data = view.read(view.start + first * BLOCK, (last - first) * BLOCK)
    crcs = [crc32(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
    if crcs != [block.crc for block in index.blocks[first:last]]:
        raise _Unfit
    return data


def _apart(extents: Extents, window: Window) -> Iterator[Window | Record]:
    """The window cut where records of several frames begin, with these between."""
    data, lsns, offsets = window
    flags = np.frombuffer(data, np.uint8)[offsets + FLAGS_AT]
    done = 0
    for number in np.flatnonzero(flags != frame.WHOLE).tolist():
        if number > done:
            yield Window(data, lsns[done:number], offsets[done:number])
        yield extents.long_record(int(lsns[number]))
        done = number + 1
    if done < len(lsns):
        yield Window(data, lsns[done:], offsets[done:])


def _walk(extents: Extents, start: int, end: int) -> Iterator[Window]:
    """Go from frame to frame; all of this lies in one extent."""
    size = extents.history.extent_bytes
    sequence = start // size
    view = extents.view(sequence)
    at = start if _is_frame(view, start, extents.seed) else sequence * size
    patience = Patience()
    least = epoch = 0
    while at < end:
        data = view.read(at, max(least, min(WINDOW, max(end - at, PAGE))))
        steps = _Steps(extents, at, epoch)
        reached = steps.take(data, end)
        epoch = steps.epoch
        lsns = np.array(steps.lsns, np.int64)
        lsns = lsns[lsns >= start]
        if len(lsns):
            yield Window(b"".join((data, PADDING)), lsns, lsns - at)
        if steps.padded:
            return
        if reached > at:
            patience.reset()
            at, least = reached, 0
            continue
        length = frame.length_at(data, 0, at)
        if len(data) < length <= view.end - at:
            least = length
            continue
        patience.again(damaged(extents.place(sequence).path, at))
        extents.close()
        view = extents.view(sequence)


def last_record(extents: Extents, at: int) -> int | None:
    """Where the last record begins in the extent of `at`, from there on, as far as all frames are whole."""
    view = extents.view(at // extents.history.extent_bytes)
    found, epoch = None, 0
    while True:
        steps = _Steps(extents, at, epoch)
        reached = steps.take(view.read(at, WINDOW), view.end)
        found = steps.lsns[-1] if steps.lsns else found
        if reached == at or steps.padded:
            return found
        at, epoch = reached, steps.epoch


def begins(extents: Extents, at: int) -> bool:
    """Does a record seem to begin at `at`, or behind the padding there? A few pages are read, nothing is checked."""
    size = extents.history.extent_bytes
    for _ in range(2):
        sequence = at // size
        if not extents.has(sequence):
            return False
        view = extents.view(sequence)
        header = view.read(at, frame.HEADER.size)
        if frame.lsn_at(header) != at:
            return False
        if frame.HEADER.unpack_from(header)[KIND_IN_HEADER] != frame.PAD:
            break
        at = (sequence + 1) * size
    return True


def _is_frame(view: ExtentView, at: int, seed: int) -> bool:
    """Does a frame begin at this LSN?"""
    length = frame.length_at(view.read(at, frame.HEADER.size), 0, at)
    return bool(length) and at + length <= view.end and frame.decode(view.read(at, length), 0, at, seed) is not None


class _Steps:
    """Goes from frame to frame in some bytes of an extent."""

    def __init__(self, extents: Extents, start: int, epoch: int) -> None:
        """`epoch`: of the frame before, as far as that is known."""
        self._seed = extents.seed
        self._epochs = extents.epoch_from, extents.epoch
        self._start = start
        self.epoch = epoch
        self.lsns: list[int] = []  # where records begin
        self.padded = False  # the rest of the extent is empty

    def take(self, data: memoryview, end: int) -> int:
        """Go on up to `end`, or as far as whole frames reach; where that is."""
        start, seed, size = self._start, self._seed, len(data)
        epoch_from, last_epoch = self._epochs
        unpack, header, begin = frame.HEADER.unpack_from, frame.HEADER.size, frame.BEGIN
        found, after, crc = self.lsns.append, frame.after, crc32
        at, last = start, self.epoch
        while at < end and (offset := at - start) + header <= size:
            magic, sum_, length, epoch, own, _, _, _, kind, flags, version = unpack(data, offset)
            stop = offset + length
            if (
                own != at
                or magic != frame.MAGIC
                or version != frame.VERSION
                or not header <= length <= size - offset
                or crc(data[offset + 8 : stop], seed) != sum_
                or epoch < last  # a write that was lost has left it behind
                or (epoch < last_epoch and at >= epoch_from)
            ):
                return at
            self.epoch = last = epoch
            if kind == frame.PAD:
                self.padded = True
                return at
            if flags & begin:
                found(at)
            at = after(at + length)
        return at
