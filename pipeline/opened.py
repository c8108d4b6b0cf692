"""Opened: the extents of one log as files that are opened when they are read, wherever others move them meanwhile.

A queue manager may write meanwhile. A page that it was about to write over, or has moved to its place, can look torn:
what does not check out is looked at again before it counts as damage.
"""

import contextlib
import threading
from collections.abc import Iterator

import attrs

from logger import lsn
from logger.compressed import ReadOnly, open_plain
from logger.crc import crc32
from logger.disk import Disk, File
from logger.errors import LogDamaged
from logger.extent import DATA, HEADER, decode_header, file_name, linear_number
from logger.history import SUFFIXES, Form, History, Place
from logger.reader import ExtentView, LogReader, Record
from recovery import extent_index
from recovery.extent_index import ExtentIndex

MAX_LOOKS = 6  # at what does not check out, before it is damage
FIRST_PAUSE_S = 0.004  # doubled before each further look
MAX_OPEN_FILES = 3
MAX_INDEXES = 32  # that this process keeps

# By path, and by what the file begins with, which has its checksum: two copies of a log may have two pasts, and so may
# one log, which was put back from an older copy.
_indexes: dict[tuple[bytes, str, int, bytes], ExtentIndex] = {}


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
        return self._file(sequence)[0]

    def has(self, sequence: int) -> bool:
        """Is the extent there, whole and under its name?"""
        with contextlib.suppress(LogDamaged):
            found = self._files.get(sequence) or self._by_name(sequence)
            if found is not None:
                self._files[sequence] = found
                return True
        return False

    def index(self, sequence: int) -> ExtentIndex | None:
        """The index beside the extent; None where there is no valid one."""
        place = self.place(sequence)
        begins = extent_index.header_of(self.disk, place)
        if begins is None:
            return None
        key = self.history.log_id, place.path, place.taken, begins
        found = _indexes.pop(key, None)
        if found is None:
            found = extent_index.load(self.disk, place, self.history.log_id)
            if found is None:
                return None
        _indexes[key] = found
        while len(_indexes) > MAX_INDEXES:
            _indexes.pop(next(iter(_indexes)))
        return found

    def view(self, sequence: int) -> ExtentView:
        """The pages of the extent, as they lie now."""
        size = self.history.extent_bytes
        return ExtentView(_Reopened(self, sequence), sequence * size, size, self.seed)

    def read(self, sequence: int, offset: int, size: int) -> bytes:
        """Bytes of the extent's file, plain or decompressed."""
        with _with_lsn(max(offset - DATA, 0) + sequence * self.history.extent_bytes):
            return self._file(sequence)[1].read(offset, size)

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
            self._file_or_none,
            extent_bytes=self.history.extent_bytes,
            log_id=self.history.log_id,
            name=self.history.name,
            close=self.close,
            last_epoch=(self.epoch_from, self.epoch),
        )

    def long_record(self, at: int) -> Record:
        """The record of several frames that begins at `at`. Raises LogDamaged."""
        retries = Retries()
        while True:
            try:
                for record in self.reader().records(at, durable=at + 8):
                    if record.lsn == at:
                        return record
                    break
                retries.wait_or_raise(damaged(self.place(at // self.history.extent_bytes).path, at))
            except LogDamaged as exc:
                retries.wait_or_raise(exc)
            self.close()

    def _file_or_none(self, sequence: int) -> File | None:
        """The extent; None: the log ends before it. Raises LogDamaged where there are extents from there on."""
        try:
            self._file(sequence)
            return _Reopened(self, sequence)
        except LogDamaged as exc:
            if self._places_from(sequence):
                raise exc
            return None

    def _places_from(self, sequence: int) -> dict[int, Place]:
        """What is there of this extent and those behind it."""
        if self._none_from is not None and sequence >= self._none_from:
            return {}
        found = self.history.places_from(sequence)
        if not found:
            self._none_from = sequence
        return found

    def _file(self, sequence: int) -> tuple[Place, File]:
        with _with_lsn(sequence * self.history.extent_bytes):
            found = self._files.pop(sequence, None) or self._open_anywhere(sequence)
        self._files[sequence] = found
        while len(self._files) > MAX_OPEN_FILES:
            self._files.pop(next(iter(self._files)))[1].close()
        return found

    def _open_anywhere(self, sequence: int) -> tuple[Place, File]:
        """Open the extent wherever it lies now; others may be moving it."""
        places: dict[int, Place] = {}
        for _ in range(MAX_LOOKS):
            found = self._by_name(sequence)
            if found is not None:
                return found
            places = self._places_from(sequence)
            if not places:
                break  # the log ends before it: there is nothing that anybody could be moving
            if sequence in places:  # it has moved, or its header is damaged
                file = self.history.open(sequence)
                if file is not None:
                    return places[sequence], file
        if places:
            self.history.places()  # so that the error can say what is there
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
                with contextlib.suppress(IsADirectoryError):  # the extent may lie beside it, or elsewhere
                    found = self._open(directory, f"{file_name(linear_number(sequence))}{suffix}", sequence)
                    if found is not None:
                        return found
        return None

    def _open(self, directory: str, name: str, sequence: int) -> tuple[Place, File] | None:
        path = f"{directory}/{name}"
        try:
            file = open_plain(self.disk, path)
        except FileNotFoundError:
            return None
        try:
            header = decode_header(file.read(0, HEADER.size))
            size = file.size()
            undone = self.history.hides(directory, name, sequence)
        except BaseException:
            file.close()
            raise
        if (
            undone
            or header is None
            or (header.log_id, header.sequence, header.extent_bytes)
            != (self.history.log_id, sequence, self.history.extent_bytes)
            or size < DATA + header.extent_bytes
        ):
            file.close()
            return None
        return Place(sequence=sequence, path=path, form=Form.ACTIVE, size=size, taken=header.time), file


@contextlib.contextmanager
def _with_lsn(at: int) -> Iterator[None]:
    """Add the LSN to a LogDamaged that has none, as of a compressed file."""
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
        """Does nothing: the extents are closed together."""


class Retries:
    """Looks again for a while at what others may be writing."""

    def __init__(self) -> None:
        self._failures = 0

    def wait_or_raise(self, exc: LogDamaged) -> None:
        """Wait a moment; raise what was found when that has been done often enough."""
        self._failures += 1
        if self._failures == MAX_LOOKS:
            raise exc
        threading.Event().wait(FIRST_PAUSE_S * 2 ** (self._failures - 1))

    def reset(self) -> None:
        self._failures = 0


def damaged(path: str, at: int) -> LogDamaged:
    return LogDamaged(
        f"{path} is damaged at {lsn.text(at)}: the log was durable beyond that and can't be read there any more; "
        f"restore the file from a backup",
        path=path,
        lsn=at,
    )
