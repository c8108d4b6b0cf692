"""Queues built again from their media images and the log, beside the real ones, by the same `apply`.

An image holds the state before one LSN. From there on every record of the queue is applied, and before that those of
the units of work that were in flight then: just as a restart does it from a checkpoint. What comes is written to
segments from time to time, so that memory is bounded by that and not by the queue.
"""

import contextlib
import json
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import attrs

from logger.progress import Progress, no_progress
from logger.reader import LogReader, Record
from qmgr.message import standing
from qmgr.objects import decode_definition
from qmgr.queue import Queue
from qmgr.segment_format import cells_of
from qmgr.segment_writer import SegmentWriter
from qmgr.segments import Segment
from qmgr.snapshot import StateSnapshot
from qmgr.store import Store, no_segment_number
from recovery import records
from recovery.backouts import Backouts
from recovery.errors import NotRecoverable
from recovery.image import Image, ImagePlace
from recovery.records import ImagePart, decode
from recovery.uows import Uow

NO_LOCK = contextlib.nullcontext()  # for a store that nobody else uses
Skip = Callable[[int], tuple[int, int]]  # LSN of a record -> (LSN of the next that matters, LSN where to ask again)
NEVER = 1 << 64
YIELD_EVERY = 64  # records or messages
WRITE_OUT_BYTES = 64 << 20  # of messages that come before they are written to segments


def skip_nothing(at: int) -> tuple[int, int]:
    """Passes over nothing."""
    return at, NEVER


@attrs.frozen
class _CountsFrom:
    """From where on records count for a queue."""

    lsn: int
    units: dict[int, int]  # number -> first LSN of the units of work whose calls count too


class Rebuild(Store):
    """The queues that are being built again: those whose images were added, and no others."""

    def __init__(self, like: Store, lock: AbstractContextManager[Any] = NO_LOCK) -> None:
        """Write to the directory of `like`, to segments with its next numbers. `lock` guards `like`."""
        super().__init__(like.disk, like.directory, like.log_id, like.give_way, like.buffers, imaged=like.imaged)
        self.arrays = like.arrays
        self.files = like.files
        self.opened = like.opened
        self._original = like
        self.fence = like.fence
        self.note_aside = like.note_aside
        self._original_lock = lock
        self._taken_numbers: list[int] = []  # numbers of segments
        self._counts_from: dict[int, _CountsFrom] = {}
        self._unwritten_bytes = 0
        self._is_repeat = False  # the record repeats what a unit of work has logged before
        self._lock = threading.Lock()  # a snapshot takes one; here nobody else does

    # ---- images

    def add_image(self, image: Image, place: ImagePlace) -> Queue:
        """Begin with what the image of a queue, at this place, holds. Raises LogDamaged, QueueDamaged, OSError."""
        queue = self.new_queue(decode_definition(image.definition))
        self.queues[queue.name] = queue
        self.by_id[queue.id] = queue
        self._counts_from[queue.id] = _CountsFrom(place.checkpoint, image.units)
        queue.next_sequence = image.next_sequence
        queue.image = place
        queue.backed_out = Backouts(), image.backouts
        queue.load(self._write(queue, image.parts))
        return queue

    def _write(self, queue: Queue, parts: Iterable[ImagePart]) -> list[Segment]:
        """Segments with the messages of an image: one for each that it was taken from."""
        made: list[Segment] = []
        writer: SegmentWriter | None = None
        source = 0
        try:
            for part in parts:
                if writer is None or part.segment != source:
                    if writer is not None:
                        _finish(writer)
                    source = part.segment
                    numbers = self.take_numbers(1)
                    if not numbers:
                        raise no_segment_number()
                    made.append(Segment(numbers[0]))
                    writer = self.writer(queue, made[-1])
                self._copy(part, writer)
            if writer is not None:
                _finish(writer)
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise
        return made

    def _copy(self, part: ImagePart, writer: SegmentWriter) -> None:
        gone = int.from_bytes(part.gone, "little")
        for place, (_, sequence, message) in enumerate(cells_of(bytes(part.data), part.cell, part.cells)):
            if not gone >> place & 1:
                writer.append(sequence, part.priority, standing(message).expires, message)
            if not place % YIELD_EVERY:
                self.give_way()

    def take_numbers(self, count: int) -> range:
        with self._original_lock:
            numbers = self._original.take_numbers(count)
        self._taken_numbers += numbers
        return numbers

    def give_back(self, numbers: list[int]) -> None:
        gone = set(numbers)
        self._taken_numbers = [number for number in self._taken_numbers if number not in gone]
        with self._original_lock:
            self._original.give_back(numbers)

    # ---- the log

    def replay(
        self, reader: LogReader, start: int, until: int, progress: Progress = no_progress, skip: Skip = skip_nothing
    ) -> int:
        """Apply the log from `start` to `until`, both LSNs; return how many records. Raises LogDamaged, OSError.

        `progress(done, total)` gets bytes. `skip` passes over what holds nothing of the queues, nor of units of work
        that are known here: what one does to a queue is in records that name the queue, all but its outcome.
        """
        count = 0
        skipped = records.Kind.IMAGE_START, records.Kind.IMAGE_PART
        for raw in _records(reader, start, until, skip):
            if raw.kind in skipped:
                continue
            try:
                self.apply(decode(raw.kind, raw.uow, raw.body), raw.lsn, raw.end, raw.time)
            except (KeyError, ValueError, struct.error) as exc:
                raise NotRecoverable(f"a log record does not fit the media image ({exc})") from exc
            count += 1
            self._unwritten_bytes += len(raw.body)
            if self._unwritten_bytes >= WRITE_OUT_BYTES:
                self.write_out()
            if not count % YIELD_EVERY:
                self.give_way()
                progress(raw.end - start, until - start)
        for queue in self.by_id.values():
            queue.forget_sequences()
        return count

    def write_out(self) -> list[bytes]:
        """Write what is in memory only to segments; the lines that a checkpoint's catalogue would have."""
        self._unwritten_bytes = 0
        snapshot = StateSnapshot(self)
        lines = list(snapshot.write())
        snapshot.finish(self._lock)
        snapshot.clean_up()
        return lines

    def give_up(self) -> None:
        """Delete what was written."""
        for queue in self.by_id.values():
            for number in self._taken_numbers:
                with contextlib.suppress(OSError):
                    self.fence()
                    path = self.path_of(queue.name, number)
                    if self.disk.exists(path):
                        self.disk.unlink(path)

    def _roll_forward(self, record: records.RollForward, lsn: int, end: int, time: int) -> None:
        """Make the calls that it repeats only on queues whose image has it as the unit's first record.

        On all others they were made already, by the records that it repeats.
        """
        unit = self._unit(record.uow, lsn, time)
        self._is_repeat = True
        try:
            self._join(unit, record, lsn)
        finally:
            self._is_repeat = False
        self._rolled_forward(unit, record, lsn, time)

    # ---- what counts

    def _counts(self, number: int, lsn: int, unit: int = 0) -> bool:
        since = self._counts_from.get(number)
        return since is not None and (lsn >= since.lsn or lsn >= since.units.get(unit, since.lsn))

    def joined(self, number: int, unit: Uow, lsn: int) -> Queue | None:
        counts = self._counts(number, lsn, unit.number)
        if self._is_repeat:
            counts = counts and self._counts_from[number].units.get(unit.number) == lsn
        return self.by_id[number] if counts else None

    def _put(self, record: records.Put, lsn: int, end: int, time: int) -> None:
        if self._counts(record.queue, lsn):
            super()._put(record, lsn, end, time)

    def _put_many(self, record: records.PutMany, lsn: int, end: int, time: int) -> None:
        if self._counts(record.queue, lsn):
            super()._put_many(record, lsn, end, time)

    def _get(self, record: records.Get | records.Expire, lsn: int, end: int, time: int) -> None:
        if self._counts(record.queue, lsn):
            super()._get(record, lsn, end, time)

    def _define(self, record: records.Define, lsn: int, end: int, time: int) -> None:
        number: int = json.loads(record.definition)["id"]
        if self._counts(number, lsn):
            super()._define(record, lsn, end, time)

    def _delete(self, record: records.Delete, lsn: int, end: int, time: int) -> None:
        if self._counts(record.queue, lsn):
            super()._delete(record, lsn, end, time)

    def _image_end(self, record: records.ImageEnd, lsn: int, end: int, time: int) -> None:
        if self._counts(record.queue, lsn):
            super()._image_end(record, lsn, end, time)


def _records(reader: LogReader, start: int, until: int, skip: Skip) -> Iterator[Record]:
    """The records from `start` to `until`, but for those that are passed over."""
    at = start
    while at < until:
        at, next_ask = skip(at)
        for raw in reader.records(at, durable=until, until=until):
            if raw.lsn >= next_ask:
                at = raw.lsn
                break
            yield raw
        else:
            return


def _finish(writer: SegmentWriter) -> None:
    writer.write_rest()
    writer.force()
    writer.segment.extend(writer.blocks, writer.length)
