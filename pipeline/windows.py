"""Windows: pieces of the log in memory with the places of the records in them, each byte checked. Reads, never writes.

An extent that has an index is read in runs of blocks, those that may hold what is wanted; a block is checked by one
CRC, and the index says where its records begin. Where most of its records are of queues that are not wanted, only the
others are read, each checked by the CRC of its frame. Any other extent, such as the one that is being written, is
walked from frame to frame, and each frame's CRC is checked. An index that does not fit what is read is passed over:
then it is the frames that decide whether anything is damaged.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from logger import frame
from logger.crc import crc32
from logger.disk import PAGE
from logger.reader import ExtentView, Record
from pipeline.filters import Wanted
from pipeline.opened import Extents, Retries, damaged
from recovery.extent_index import BLOCK_BYTES, SEVERAL_QUEUES, ExtentIndex

WINDOW_BYTES = 4 << 20  # read at a time
PADDING = bytes(192)  # so that a header can be taken whole wherever a record begins
KIND_IN_HEADER = 8  # which of its fields
LSN_AT, FLAGS_AT = 2, 46  # in a frame's header: the LSN is the third number of 8 bytes
SPARSE_FACTOR = 4  # a stretch is read in parts where less than a fourth of it may be wanted
MAX_GAP_BYTES = 2048  # between two records that are read at once all the same
MAX_SPARSE_RECORD_BYTES = 16 << 10  # of one record that are read at once, where few are wanted

Places = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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
        return (self.last - self.first) * BLOCK_BYTES


class _Unfit(Exception):
    """The index says something else than the extent."""


def lsns_of(index: ExtentIndex, extent_bytes: int) -> Places:
    """The LSNs of the records in an index."""
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
        if found and found[-1].last == number and found[-1].bytes + BLOCK_BYTES <= most:
            found[-1] = Stretch(found[-1].first, number + 1, found[-1].low, high)
        else:
            found.append(Stretch(number, number + 1, low, high))
    return found


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
    """Those of one extent, read by its index; without one, or from where it does not fit, from frame to frame."""
    index = extents.index(start // extents.history.extent_bytes)
    if index is not None:
        lsns = lsns_of(index, extents.history.extent_bytes)
        chosen = _chosen(index, wanted)
        view = extents.view(index.sequence)
        for stretch in stretches(index, lsns, start, end, wanted, WINDOW_BYTES):
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
    return np.isin(subjects, [SEVERAL_QUEUES, *wanted.numbers])


def _stretch(
    view: ExtentView, index: ExtentIndex, lsns: Places, stretch: Stretch, chosen: Bools | None, seed: int
) -> Window | None:
    """The stretch's blocks, checked by the index, with the rest of the last record's frame. Raises _Unfit.

    Where only few of its records may be wanted, these alone; None: none may be.
    """
    places = lsns[stretch.low : stretch.high]
    if chosen is not None:
        which = chosen[stretch.low : stretch.high]
        places = places[which]
        if not len(places):
            return None
        begins, ends = _ranges(places, np.append(lsns[1:], view.end)[stretch.low : stretch.high][which])
        if (ends - begins).sum() < stretch.bytes // SPARSE_FACTOR:
            return _sparse(view, places, begins, ends, seed)
    start = view.start + stretch.first * BLOCK_BYTES
    data = _blocks(view, index, stretch.first, stretch.last)
    last = int(places[-1])
    length = frame.length_at(data, last - start, last)
    over = last + length - (start + len(data))
    parts: list[memoryview | bytes] = [data]
    if not length or last + length > view.end:
        raise _Unfit
    if over > 0:
        parts.append(_blocks(view, index, stretch.last, stretch.last + -(-over // BLOCK_BYTES)))
    whole = b"".join((*parts, PADDING))
    if (np.frombuffer(whole, "<i8")[(places - start >> 3) + LSN_AT] != places).any():
        raise _Unfit
    return Window(whole, places, places - start)


def _ranges(begins: Places, ends: Places) -> tuple[Places, Places]:
    """What to read for these records, each up to where the next one begins; those near to each other at once.

    Of a long one only the first frame is needed, whose length is in its header.
    """
    ends = np.minimum(ends, begins + MAX_SPARSE_RECORD_BYTES)
    apart = begins[1:] - ends[:-1] > MAX_GAP_BYTES
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
        if length <= MAX_SPARSE_RECORD_BYTES:
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
    data = view.read(view.start + first * BLOCK_BYTES, (last - first) * BLOCK_BYTES)
    crcs = [crc32(data[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
    if crcs != [block.crc for block in index.blocks[first:last]]:
        raise _Unfit
    return data


def _apart(extents: Extents, window: Window) -> Iterator[Window | Record]:
    """The window, cut around its records of several frames, each of which comes by itself."""
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
    retries = Retries()
    least = epoch = 0
    while at < end:
        data = view.read(at, max(least, min(WINDOW_BYTES, max(end - at, PAGE))))
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
            retries.reset()
            at, least = reached, 0
            continue
        length = frame.length_at(data, 0, at)
        if len(data) < length <= view.end - at:
            least = length
            continue
        retries.wait_or_raise(damaged(extents.place(sequence).path, at))
        extents.close()
        view = extents.view(sequence)


def last_record(extents: Extents, at: int) -> int | None:
    """Where the last record begins in the extent of `at`, from there on, as far as all frames are whole."""
    view = extents.view(at // extents.history.extent_bytes)
    found, epoch = None, 0
    while True:
        steps = _Steps(extents, at, epoch)
        reached = steps.take(view.read(at, WINDOW_BYTES), view.end)
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


def continues(extents: Extents, at: int) -> bool:
    """Does a frame seem to begin at `at` that does not begin a record? Nothing is checked."""
    header = extents.view(at // extents.history.extent_bytes).read(at, frame.HEADER.size)
    return frame.lsn_at(header) == at and not header[FLAGS_AT] & frame.BEGIN


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
        found, after, crc = self.lsns.append, frame.next_start, crc32
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
