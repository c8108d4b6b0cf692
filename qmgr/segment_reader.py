"""Reads segments: whole blocks, or single cells of them. What is not as it was written is damage of the queue."""

from bisect import bisect_left

from logger.crc import crc32
from logger.disk import Disk
from logger.disk_errors import NO_FILE
from logger.errors import refuse_later
from qmgr.openfiles import OpenFiles
from qmgr.segment_files import no_segment, segment_path
from qmgr.segment_format import (
    HEADER,
    LENGTH,
    MAGIC,
    MAGIC_V1,
    SEQUENCE,
    Block,
    Cell,
    Place,
    cells_of,
    crc_of_cell,
    encode_header,
    table_of,
)
from qmgr.segments import Segment
from recovery.errors import NotRecoverable, QueueDamaged


class SegmentReader:
    """Reads the segments of one queue. What can't be read as it was written is QueueDamaged, which names the file."""

    def __init__(self, disk: Disk, directory: str, log_id: bytes, queue: int, files: OpenFiles) -> None:
        """`files`: for those that are read one message at a time, with the queue manager's lock held."""
        self._disk = disk
        self._directory = directory
        self._log_id = log_id
        self._queue = queue
        self._files = files

    def path(self, segment: Segment) -> str:
        return segment_path(self._directory, segment.number)

    def drop(self, segment: int) -> None:
        """The segment is no more."""
        self._files.close(segment)

    def _read(self, segment: Segment, at: int, size: int, *, leave_open: bool = False) -> bytes:
        """Bytes of the segment's file. Raises QueueDamaged where there is no such file, and else OSError: no damage."""
        try:
            if leave_open:
                return self._files.read(self._directory, segment.number, at, size)
            file = self._disk.open_read(self.path(segment))
            try:
                return file.read(at, size)
            finally:
                file.close()
        except OSError as exc:
            if exc.errno in NO_FILE:
                raise no_segment(self.path(segment), exc, self._disk) from None
            raise OSError(exc.errno, exc.strerror, self.path(segment)) from exc

    def check(self, segment: Segment) -> None:
        """Is the file there, the right one, and as long as it should be? Its cells are looked at when they are read.

        Raises NotRecoverable for one of an earlier format, LaterFormat: nothing is wrong with it.
        """
        path = self.path(segment)
        header = self._read(segment, 0, HEADER.size)
        expected = encode_header(self._log_id, self._queue, segment.number)
        if header[len(MAGIC) :] != expected[len(MAGIC) :]:
            refuse_later(header, MAGIC, path)
        if header == MAGIC_V1 + expected[len(MAGIC_V1) :]:
            raise NotRecoverable(
                f"segment {path} is of format 1, which this version does not read; start the queue manager with the "
                f"version that wrote it, and get its messages"
            )
        if header != expected:
            raise QueueDamaged(
                f"segment {path} is not segment {segment.number} of this queue, or its header is damaged", path
            )
        if segment.cells and len(self._read(segment, segment.length - 1, 1)) < 1:
            raise QueueDamaged(
                f"segment {path} is shorter than the {segment.length} bytes the checkpoint knows of", path
            )

    def read(self, segment: Segment, block: Block) -> list[Cell]:
        """All cells of a block, those that are gone too."""
        return cells_of(self.read_block(segment, block), block.cell, block.cells)

    def read_block(self, segment: Segment, block: Block, *, leave_open: bool = False) -> bytes:
        """The bytes of a block. Raises QueueDamaged where they are not what was written, OSError.

        `leave_open`: the queue manager's lock is held, and the file stays open for the blocks that follow.
        """
        data = self._read(segment, block.at, block.size, leave_open=leave_open)
        if len(data) < block.size or crc32(data) != block.crc:
            path = self.path(segment)
            raise QueueDamaged(f"segment {path} is damaged in the {block.size} bytes from {block.at} on", path)
        return data

    def read_one(self, segment: Segment, block: Block, number: int, place: Place | None) -> Cell:
        """One cell of a block; `place`, if it is known: from a look at the whole block.

        The queue manager's lock is held, and the file stays open for those that follow.
        """
        if place is None:
            return self.read(segment, block)[number - block.cell]
        ordinal = number - block.cell
        end = place.end if ordinal + 1 < block.cells else block.size
        message = self._read(segment, block.at + place.begin, end - place.begin, leave_open=True)
        if block.last - block.first == block.cells - 1:
            sequence = SEQUENCE.pack(block.first + ordinal)
        else:
            at = block.at + LENGTH.size * block.cells + SEQUENCE.size * ordinal
            sequence = self._read(segment, at, SEQUENCE.size, leave_open=True)
        if len(message) < end - place.begin or crc_of_cell(sequence, message) != place.crc:
            path = self.path(segment)
            raise QueueDamaged(f"segment {path} is damaged in cell {number}, at byte {block.at + place.begin}", path)
        return number, SEQUENCE.unpack(sequence)[0], message

    def find(self, segment: Segment, block: Block, sequence: int) -> Cell | None:
        """The cell of a block that has this sequence."""
        data = self.read_block(segment, block)
        lengths, sequences, begin = table_of(data, block.cells)
        ordinal = bisect_left(sequences, sequence)
        if ordinal == block.cells or sequences[ordinal] != sequence:
            return None
        begin += sum(lengths[:ordinal])
        return block.cell + ordinal, sequence, data[begin : begin + lengths[ordinal]]
