"""History: where each part of the stream is, active, archived or compressed, and reading it there. Changes nothing.

What an extent file says of itself decides, not a list that could be wrong: a file counts if its header is whole, of
this log, and fits to its name, and if none of it was cut off. Extents are moved while others read: a file that is gone
when it is opened is looked for anew, and one that is open stays readable.
"""

import contextlib
import enum
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs

from logger import extent, lsn, undone
from logger.compressed import NEW_SUFFIX, Compression, ReadOnly, compression_of, open_plain, read_table
from logger.crc import crc32
from logger.disk import Disk, File
from logger.disk_errors import NO_DESCRIPTORS
from logger.errors import ExtentGone, LogDamaged
from logger.extent import DATA, FILE_NUMBERS, ExtentHeader, decode_header, file_name, linear_number, number_of
from logger.reader import Guard, LogReader, first_frame, unguarded

SUFFIXES = ("", *(kind.suffix for kind in Compression))
INDEX_NAME = re.compile(r"S(\d{7})\.IDX")
MAX_RESCANS = 3  # before a file that others may be moving counts as missing
MAX_OPEN_FILES = 4  # of a reader


class Form(enum.Enum):
    """In which form an extent lies on disk."""

    ACTIVE = "active"  # in the active directory, whether a restart needs it or not
    ARCHIVED = "archived"
    COMPRESSED = "compressed"


@attrs.frozen(kw_only=True)
class Place:
    """One extent's file."""

    sequence: int
    path: str
    form: Form
    size: int  # bytes on disk
    taken: int = 0  # when the extent took this sequence, microseconds since 1970-01-01 UTC; 0: not known


def index_name(number: int) -> str:
    """The file beside an extent that says what is in it (`recovery/extent_index.py`): a cache, never needed."""
    return f"S{number:07d}.IDX"


def extent_number(name: str) -> int | None:
    """The number in the name of an extent's file, compressed or not; None when it is not one."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            number = number_of(name.removesuffix(suffix))
            if number is not None:
                return number
    return None


def is_extent_or_index(name: str) -> bool:
    """Is this the name of an extent in any form, of an index, or of one of them that is being made?"""
    whole = name.removesuffix(NEW_SUFFIX)
    return extent_number(whole) is not None or INDEX_NAME.fullmatch(whole) is not None


def read_header(disk: Disk, path: str) -> tuple[ExtentHeader | None, int, int]:
    """(header, size of the extent, size of its file). Raises LogDamaged for a compressed one, OSError."""
    file = disk.open_read(path)
    try:
        if compression_of(path) is None:
            size = file.size()
            return decode_header(file.read(0, extent.HEADER.size)), size, size
        table = read_table(file, path)
        return decode_header(table.head), table.size, file.size()
    finally:
        file.close()


class Epochs(Protocol):
    """What says which records count: from the LSN `epoch_from` on only those of `epoch`."""

    @property
    def epoch_from(self) -> int: ...

    @property
    def epoch(self) -> int: ...


class History:
    """All extents of a linear log that are there, wherever they are."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        log_id: bytes,
        extent_bytes: int,
        newest: Callable[[], int] | None = None,
        skip_undone: bool = True,
    ) -> None:
        """`directories`: the active one first. `skip_undone`: leave out what the log knows to be of another past.

        `newest` gives the sequence that is being written by now. An archived file of a later one is of another past,
        and left out: the log was put back from an older copy.
        """
        self._disk = disk
        self.directories = tuple(dict.fromkeys(directories))
        self.log_id = log_id
        self.extent_bytes = extent_bytes
        self._newest = newest
        self._known: dict[int, Place] = {}
        self._log_directory = self.directories[0].rpartition("/")[0]
        self._skip_undone = skip_undone
        self._hidden = undone.NOTHING
        self.hidden_lock = threading.Lock()  # for changes of `amqharch.und`: by archiving, and by reports of it
        self.damaged: list[str] = []  # files of extents that were cut or damaged, as of the last look
        self._unread: dict[int, OSError] = {}  # by the number in the name: what the disk could not read then

    def copies(self, *, all_or_nothing: bool = True, since: int = 0) -> dict[int, list[Place]]:
        """Every file that counts, by rising sequence, the one to read first. Raises OSError.

        Files whose names are of sequences before `since` are not opened. A sequence has two files while one is archived
        or compressed, and after a crash during that. A file that moved between listing and opening is looked for again.

        `all_or_nothing`: raise for a file that can't be read, as removal of the oldest needs. Otherwise it counts as
        missing: readers report the gap. That no descriptor is left is always raised.
        """
        found: dict[int, list[tuple[bool, Place]]] = {}
        self._hidden = (
            undone.read(self._disk, self._log_directory, self.log_id) if self._skip_undone else undone.NOTHING
        )
        self.damaged = []
        self._unread = {}
        gone = self._scan(found, lambda number: not is_before(number, since), all_or_nothing)
        for _ in range(MAX_RESCANS):
            if not gone:
                break
            gone = self._scan(found, gone.__contains__, all_or_nothing)
        self.damaged = list(dict.fromkeys(self.damaged))
        return {
            sequence: [place for _, place in sorted(found[sequence], key=lambda one: one[0])]
            for sequence in sorted(found)
        }

    def _scan(
        self, found: dict[int, list[tuple[bool, Place]]], wanted: Callable[[int], bool], all_or_nothing: bool
    ) -> set[int]:
        """Add the files of the wanted numbers to `found`; return the numbers that were listed and then gone."""
        listed: set[int] = set()
        there: set[int] = set()
        for directory in self.directories:
            for name in self._disk.list(directory):
                number = extent_number(name)
                if number is None or not wanted(number):
                    continue
                place = None
                listed.add(number)
                try:
                    place = self._place(directory, name)
                    there.add(number)
                except FileNotFoundError:
                    continue  # moved meanwhile, or removed
                except OSError as exc:
                    error = OSError(exc.errno, exc.strerror or str(exc), f"{directory}/{name}")
                    if all_or_nothing or exc.errno in NO_DESCRIPTORS:
                        raise error from exc
                    self._unread[number] = error
                    there.add(number)
                if place is not None:
                    found.setdefault(place.sequence, []).append((place.form is Form.COMPRESSED, place))
        return listed - there

    def hidden(self) -> frozenset[str]:
        """The names in the archive that are of another past. Raises OSError, LogDamaged."""
        return undone.read(self._disk, self._log_directory, self.log_id).names

    def hides(self, directory: str, name: str, sequence: int) -> bool:
        """Is the file of this name there of another past, as the log knows by now? Raises OSError, LogDamaged."""
        if directory == self.directories[0] or not self._skip_undone:
            return False
        return undone.read(self._disk, self._log_directory, self.log_id).hides(name, sequence)

    def show(self, name: str) -> None:
        """The file of this name in the archive is of this past from now on. Raises OSError, LogDamaged."""
        with self.hidden_lock:
            known = undone.read(self._disk, self._log_directory, self.log_id)
            if name in known.names:
                known = attrs.evolve(known, names=known.names - {name})
                undone.write(self._disk, self._log_directory, self.log_id, known)

    def places(self) -> dict[int, Place]:
        """Where to read each sequence, rising; looks at the directories anew. Raises OSError."""
        self._known = {sequence: places[0] for sequence, places in self.copies(all_or_nothing=False).items()}
        return dict(self._known)

    def refresh_from(self, sequence: int) -> None:
        """Look for this sequence and those behind it again; what was known of those before it is kept."""
        kept = {one: place for one, place in self._known.items() if one < sequence}
        self._known = kept | self.places_from(sequence)

    @property
    def known(self) -> Mapping[int, Place]:
        """What the last looks at the directories have found: `places`, `refresh_from`."""
        return self._known

    def places_from(self, sequence: int) -> dict[int, Place]:
        """As `places`, from this sequence on; only those files are opened, and nothing is remembered."""
        found = self.copies(all_or_nothing=False, since=sequence)
        return {one: places[0] for one, places in found.items() if one >= sequence}

    def open(self, sequence: int) -> File | None:
        """The extent, plain or decompressed as it is read; None when it is not there. Raises LogDamaged, OSError."""
        for look in range(MAX_RESCANS + 1):
            if look:
                self.places()
            place = self._known.get(sequence)
            file = self._open(place) if place is not None else None
            if file is not None:
                return file
            if look and sequence > max(self._known, default=0):
                break  # the log ends before it: there is nothing that anybody could be moving
        self._refuse_damaged(sequence)
        self.refuse_unread(sequence)
        return None

    def reader(self, epochs: Epochs, guard: Guard = unguarded) -> LogReader:
        """A reader of all of it, with at most a few files open at a time. A gap is never jumped: LogDamaged.

        `guard` as in `LogReader`.
        """
        held = _OpenFiles(self)
        return LogReader(
            held.extent,
            extent_bytes=self.extent_bytes,
            log_id=self.log_id,
            name=self.name,
            close=held.close,
            last_epoch=(epochs.epoch_from, epochs.epoch),
            guard=guard,
        )

    def reaches_back_to(self, sequence: int) -> int:
        """The oldest sequence from which on all is there up to this one, by the last look at the directories."""
        places = self._known
        while sequence - 1 in places:
            sequence -= 1
        return sequence

    def name(self, sequence: int) -> str:
        """The path of this sequence's file, or the one where it should be."""
        place = self._known.get(sequence)
        return place.path if place is not None else f"{self.directories[0]}/{file_name(linear_number(sequence))}"

    @property
    def where(self) -> str:
        """The directories that exist, for messages that ask for an extent to be restored."""
        return " or ".join([one for one in self.directories if self._disk.exists(one)] or self.directories[:1])

    def refuse_gap(self, sequence: int) -> None:
        """Raise LogDamaged when this sequence is missing between others, or before all of them; no error at the end.

        Raises OSError where a file of it is there that can't be read.
        """
        self.refuse_unread(sequence)
        later = [other for other in self._known if other > sequence]
        if not later:
            return
        path = self.name(sequence)
        text = (
            f"log extent {path} is missing, or cut, or its header is damaged, and it holds the log from "
            f"{lsn.text(sequence * self.extent_bytes)}; restore it from a backup, into {self.where}"
        )
        if any(other < sequence for other in self._known):
            raise LogDamaged(text, path=path, lsn=sequence * self.extent_bytes)
        text += f" (the oldest extent that is there is {self.name(later[0])})"
        raise ExtentGone(text, path=path, lsn=sequence * self.extent_bytes)

    def refuse_unreadable(self, sequence: int) -> None:
        """Raise LogDamaged or OSError when a file of this sequence is there that was cut or can't be read."""
        self.refuse_unread(sequence)
        for path in self.damaged:
            if extent_number(path.rpartition("/")[2]) == linear_number(sequence):
                begins = sequence * self.extent_bytes
                way = "" if any(one < sequence for one in self._known) else ", or move it away to do without it"
                way += "" if compression_of(path) is None else "; or decompress it, if qm has not compressed it"
                raise LogDamaged(
                    f"log extent {path} was cut, or is damaged, and it holds the log from {lsn.text(begins)}; restore "
                    f"it from a backup{way}",
                    path=path,
                    lsn=begins,
                )

    def refuse_unread(self, sequence: int) -> None:
        """Raise OSError when a file that may be of this sequence is there that the disk could not read."""
        error = self._unread.get(linear_number(sequence))
        if error is not None and sequence not in self._known:
            raise error

    def _place(self, directory: str, name: str) -> Place | None:
        """What the file of this name holds, if it counts. Raises FileNotFoundError when it is not there any more."""
        path = f"{directory}/{name}"
        try:
            header, size, on_disk = read_header(self._disk, path)
            header = header or self.header_from_first_frame(path)
        except LogDamaged:
            header = None  # its sequence is missing
        if header is None:
            self.damaged.append(path)
            return None
        if header.log_id != self.log_id or header.extent_bytes != self.extent_bytes:
            return None
        fits = header.number == extent_number(name) == linear_number(header.sequence)
        if not fits or header.sequence < 1:
            return None
        if directory != self.directories[0]:
            if self._newest is not None and header.sequence > self._newest():
                return None
            if self._hidden.hides(name, header.sequence):
                return None
        if size < DATA + self.extent_bytes:
            self.damaged.append(path)
            return None
        form = Form.ACTIVE if directory == self.directories[0] else Form.ARCHIVED
        if compression_of(name) is not None:
            form = Form.COMPRESSED
        return Place(sequence=header.sequence, path=path, form=form, size=on_disk, taken=header.time)

    def header_from_first_frame(self, path: str) -> ExtentHeader | None:
        """What an extent whose header is damaged must be, by the frame that it begins with. Raises OSError."""
        file = open_plain(self._disk, path)
        try:
            first = first_frame(file, self.extent_bytes, crc32(self.log_id))
        finally:
            file.close()
        if first is None:
            return None
        return ExtentHeader(
            number=linear_number(first.lsn // self.extent_bytes),
            log_id=self.log_id,
            sequence=first.lsn // self.extent_bytes,
            extent_bytes=self.extent_bytes,
            epoch=first.epoch,
            time=0,
        )

    def _open(self, place: Place) -> File | None:
        """The file at this place, if it still is what was found there."""
        try:
            file = open_plain(self._disk, place.path)
        except FileNotFoundError:
            return None
        try:
            header = decode_header(file.read(0, extent.HEADER.size)) or self.header_from_first_frame(place.path)
        except BaseException:
            file.close()
            raise
        if header is not None and (header.log_id, header.sequence) == (self.log_id, place.sequence):
            return file
        file.close()
        return None

    def _refuse_damaged(self, sequence: int) -> None:
        """Raise LogDamaged when the sequence is there, compressed, and can't be read."""
        for directory in self.directories:
            for kind in Compression:
                name = f"{file_name(linear_number(sequence))}{kind.suffix}"
                path = f"{directory}/{name}"
                if directory != self.directories[0] and self._hidden.hides(name, sequence):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    read_header(self._disk, path)


def is_before(number: int, sequence: int) -> bool:
    """Does a file of this number come before the sequence? Numbers wrap around at FILE_NUMBERS."""
    return sequence > 0 and (number - linear_number(sequence)) % FILE_NUMBERS >= FILE_NUMBERS // 2


class _OpenFiles:
    """The files that a reader holds open: opened when they are read, a few at a time."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.name = history.name
        self._files: dict[int, File] = {}  # by sequence, the one that was read last at the end

    def extent(self, sequence: int) -> File | None:
        return _Reopened(self, sequence) if self.file(sequence) is not None else None

    def file(self, sequence: int) -> File | None:
        file = self._files.pop(sequence, None)
        if file is None:
            file = self._history.open(sequence)
            if file is None:
                self._history.refuse_gap(sequence)
                return None
        self._files[sequence] = file
        if len(self._files) > MAX_OPEN_FILES:
            self._files.pop(next(iter(self._files))).close()
        return file

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class _Reopened(ReadOnly):
    """An extent whose file is opened again when it had to make room for others."""

    def __init__(self, held: _OpenFiles, sequence: int) -> None:
        self._held = held
        self._sequence = sequence

    def _file(self) -> File:
        file = self._held.file(self._sequence)
        if file is None:
            path = self._held.name(self._sequence)
            raise LogDamaged(f"log extent {path} was removed while it was read; read the log anew", path=path)
        return file

    def read(self, offset: int, size: int) -> bytes:
        return self._file().read(offset, size)

    def size(self) -> int:
        return self._file().size()

    def close(self) -> None:
        """The reader closes them all together."""
