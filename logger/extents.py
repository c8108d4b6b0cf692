"""The extent files of a log that are open: which part of the stream each holds. What both ways of logging share.

Which part of the stream a file holds is said by its header and by the control file's table. They are written in that
order, before the first record, so after a crash the header may be ahead of the table and never behind it: an extent
whose header is older than the table says is damage, and so is one that is missing.
"""

from abc import ABC, abstractmethod

import attrs

from logger import control, extent, lsn
from logger.border import suspect_files
from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.errors import LogDamaged
from logger.extent import Extent, ExtentHeader, decode_header, file_name, is_blank, number_of
from logger.progress import GiveWay, no_pause
from logger.reader import latest_part
from logger.whole_files import make_and_keep_dirs

Table = tuple[tuple[int, int], ...]


class Extents(ABC):
    """The extent files of one log, and which sequence each of them holds."""

    def __init__(self, disk: Disk, directory: str, log_id: bytes, extent_bytes: int, *, direct: bool) -> None:
        self._disk = disk
        self._direct = direct
        self.directory = directory
        self._log_id = log_id
        self._extent_bytes = extent_bytes
        self._extents: dict[int, Extent] = {}  # by file number
        self._by_sequence: dict[int, Extent] = {}
        self._to_mend: set[int] = set()  # numbers of those whose header is not whole, or not true any more

    def __len__(self) -> int:
        return len(self._extents)

    def table(self, said: Table = (), floor: int = 0) -> Table:
        """(file number, sequence) of every extent, as the control file keeps it. Others may go on meanwhile.

        `said`: what it says so far. Of an extent whose header is still to be written it goes on to say that.
        `floor`: the sequence that holds the head. A linear log leaves out what is before it.
        """
        before = dict(said)
        held = ((number, one.sequence, one) for number, one in sorted(self._extents.items()))
        return tuple((number, holds if one.header_written else before.get(number, 0)) for number, holds, one in held)

    def headers(self) -> list[ExtentHeader]:
        """The header of each extent."""
        return [held.header for held in self._extents.values()]

    def in_order(self, first_sequence: int) -> list[Extent]:
        """The active extents, in the order of the log."""
        return [held for sequence, held in sorted(self._by_sequence.items()) if sequence >= first_sequence]

    def holds(self, sequence: int) -> bool:
        return sequence in self._by_sequence

    def at(self, sequence: int) -> Extent:
        """The extent that holds this sequence."""
        return self._by_sequence[sequence]

    def find(self, sequence: int) -> Extent | None:
        """The extent that holds this sequence, if there is one by now."""
        return self._by_sequence.get(sequence)

    def sequences(self) -> list[int]:
        return sorted(self._by_sequence)

    # ---- opening

    def open(self, state: control.ControlState, *, read_only: bool = False) -> None:
        """Open every extent that the control file names. Raises LogDamaged when one that is needed is not there."""
        needed = state.head // self._extent_bytes
        self._to_mend = set()
        for number, expected in state.extents:
            header = self._survey(number, expected, state.epoch, needed)
            if header is None and expected >= needed:
                raise self._missing(self.path_of(number), expected)
            if header is None:
                continue
            if header.sequence < expected and expected >= needed:
                path = self.path_of(number)
                raise LogDamaged(
                    f"log extent {path} holds the log from {lsn.text(header.sequence * self._extent_bytes)}, an older "
                    f"part than the control file says; it was replaced by a stale copy: restore it from a backup",
                    path=path,
                    lsn=expected * self._extent_bytes,
                )
            self._open(header, read_only=read_only)
        if not read_only and not self._by_sequence:
            self._check_directory()

    def _check_directory(self) -> None:
        """See that files, which hold nothing yet where they are missing, can be made anew. Raises LogDamaged."""
        if not self._disk.exists(self.directory):  # this may be a file system that is away
            raise LogDamaged(
                f"the directory of the log's extents {self.directory} is not there; mount its file system or bring it "
                f"back, or, if it is gone for good, make it: nothing was written to this log yet",
                path=self.directory,
            )
        make_and_keep_dirs(self._disk, self.directory)  # made by hand, perhaps, and not durable

    def _open(self, header: ExtentHeader, *, read_only: bool = False) -> None:
        path, disk = self.path_of(header.number), self._disk
        if not read_only:
            disk.forget(path)  # what follows is built on what is read here: a sync of it may have failed
        file = disk.open_read(path) if read_only else disk.open(path, direct=self._direct)
        try:
            self.add(Extent(disk, file, path, header))
        except BaseException:
            file.close()
            raise

    def _survey(self, number: int, expected: int, epoch: int, needed: int) -> ExtentHeader | None:
        """The header of extent file `number`; None when the file is missing, too short for an extent, or all zeros.

        Where the header itself was damaged the control file's word for it is taken, which is the sequence `expected`,
        unless a record says that it holds a later one. Raises LogDamaged for another log's file, and for one that is
        too short and says that it holds a sequence from `needed` on: the control file may be an older copy, that knows
        less.
        """
        path = self.path_of(number)
        try:
            file = self._disk.open_read(path)
        except FileNotFoundError:
            return None
        try:
            header, size = decode_header(file.read(0, PAGE), path), file.size()
            lost = header is None and is_blank(file)
            whole = size >= extent.DATA + self._extent_bytes
            by_records = self._part_by_records(file, number) if header is None and whole else (0, 0)
        finally:
            file.close()
        if lost:
            return None
        if not whole:
            if header is not None and header.log_id == self._log_id and header.sequence >= needed:
                raise self._missing(path, header.sequence)
            return None
        if header is None:
            self._to_mend.add(number)
            return self._header(number, *(by_records if by_records[0] > expected else (expected, epoch)))
        if header.log_id != self._log_id or header.extent_bytes != self._extent_bytes or header.number != number:
            raise LogDamaged(
                f"log extent {path} belongs to another log or another place (it says it is {file_name(header.number)} "
                f"of log {header.log_id.hex()}); put this queue manager's own file back",
                path=path,
            )
        return header

    def _numbers_on_disk(self) -> list[int]:
        numbers = (number_of(name) for name in self._disk.list(self.directory))
        return [number for number in numbers if number is not None]

    def _own_header(self, number: int) -> ExtentHeader | None:
        """The header of a file that is an extent of this log and has the right name; None for any other file.

        Where the header is not whole it is made of what the records say.
        """
        file = self._disk.open_read(self.path_of(number))
        try:
            header = decode_header(file.read(0, PAGE))
            if file.size() < extent.DATA + self._extent_bytes:
                return None
            if header is None:
                sequence, epoch = self._part_by_records(file, number)
                return self._header(number, sequence, epoch) if sequence else None
        finally:
            file.close()
        ours = header.log_id == self._log_id and header.extent_bytes == self._extent_bytes
        fits = header.sequence == 0 or self._fits(number, header.sequence)
        return header if ours and fits and header.number == number else None

    def _holds_nothing(self, number: int) -> bool:
        """Is that a file which a crash left before it had any part of the log?

        One of another log is not, nor a part of this one that was cut, or is not where it belongs: there may be no
        other copy of it.
        """
        header = self._header_at(self.path_of(number))
        if header is None:
            return self._own_header(number) is None
        return header.log_id == self._log_id and not header.sequence

    def _check_free(self, number: int) -> None:
        """Raise LogDamaged where a file of this number is another log's, which may have no other copy of it."""
        path = self.path_of(number)
        if not self._disk.exists(path):
            return
        header = self._header_at(path)
        if header is not None and header.log_id != self._log_id:
            raise LogDamaged(
                f"log extent {path} is one of log {header.log_id.hex()} and in the way of the next one of this log; "
                f"move it to where it belongs",
                path=path,
            )

    def _header_at(self, path: str) -> ExtentHeader | None:
        file = self._disk.open_read(path)
        try:
            return decode_header(file.read(0, PAGE))
        finally:
            file.close()

    def _part_by_records(self, file: File, number: int) -> tuple[int, int]:
        """(sequence, epoch) that an extent file has by its records; (0, 0) where they do not belong there."""
        found = latest_part(file, self._extent_bytes, crc32(self._log_id))
        return found if self._fits(number, found[0]) else (0, 0)

    @abstractmethod
    def _fits(self, number: int, sequence: int) -> bool:
        """Can a file of this number hold that sequence?"""

    def _header(self, number: int, sequence: int, epoch: int) -> ExtentHeader:
        return ExtentHeader(
            number=number,
            log_id=self._log_id,
            sequence=sequence,
            extent_bytes=self._extent_bytes,
            epoch=epoch,
            time=0,
        )

    def check_end(self, state: control.ControlState, at: int, epoch: int, *, one_copy: bool) -> None:
        """Called when reading has ended at the LSN `at`, with records of `epoch`: is that the end of the log?

        `one_copy`: the state is that of the only whole copy of the control file. Raises LogDamaged where a file may
        have more of the log.
        """
        for number in suspect_files(self._disk, self.directory, state, at, epoch, one_copy=one_copy):
            path, begins = self.path_of(number), lsn.text(at)
            raise LogDamaged(
                f"one copy of the log control file is not whole, and log extent {path} is missing, cut, an older copy "
                f"or damaged at its beginning: it may have the log from {begins}; restore one from a backup"
                if one_copy
                else f"log extent {path} has the log from {begins} and was cut or is damaged at its beginning, or the "
                f"log control file is an older copy, that does not know of it; put the right ones back",
                path=path,
                lsn=at,
            )

    def path_of(self, number: int) -> str:
        return f"{self.directory}/{file_name(number)}"

    def _missing(self, path: str, sequence: int) -> LogDamaged:
        at = sequence * self._extent_bytes
        return LogDamaged(
            f"log extent {path} is missing, was cut or holds nothing but zeros, and it has the log from "
            f"{lsn.text(at)}, which a restart needs; restore it from a backup",
            path=path,
            lsn=at,
        )

    def open_read(self, sequence: int) -> File | None:
        """The file that holds this sequence, opened once more for a reader; None where there is none."""
        held = self._by_sequence.get(sequence)
        return None if held is None else self._disk.open_read(held.path)

    def name(self, sequence: int) -> str:
        """The path of the extent that holds this sequence, for an error."""
        held = self._by_sequence.get(sequence)
        return f"the log in {self.directory}" if held is None else held.path

    # ---- changing

    def add(self, extent: Extent) -> None:
        """Take in an open extent."""
        self._extents[extent.number] = extent
        rival = self._by_sequence.get(extent.sequence)
        if extent.sequence and (rival is None or rival.header.epoch < extent.header.epoch):
            self._by_sequence[extent.sequence] = extent

    def forget_beyond(self, sequence: int) -> None:
        """The log ends in this sequence: extents that claim a later one are free again.

        Their headers are of an earlier start, whose records in them were never durable.
        """
        for later in [s for s in self._by_sequence if s > sequence]:
            del self._by_sequence[later]
        for held in self._extents.values():
            if held.sequence and self._by_sequence.get(held.sequence) is not held:
                held.header = attrs.evolve(held.header, sequence=0)
                self._to_mend.add(held.number)

    def mend(self, floor: int, table: tuple[tuple[int, int], ...]) -> None:
        """Write the headers that are not as they should be of extents that hold nothing from the sequence `floor` on.

        A crash has torn them where the extent was to take another sequence, or kept them and lost its records. What the
        log holds has been found out by now; where a later crash tears a copy of the control file, the other one alone
        could not tell this from a part of the log that is lost. Which start gave the extent what it holds is not known
        any more: 0 is none.

        `table`: what the control file says. No header may be behind it, so those are left for now of which it says that
        they hold something from there on. The last one goes first: where a crash tears it, none behind claims a part by
        which it would be missing.
        """
        said = dict(table)
        for number in sorted(self._to_mend, reverse=True):
            held = self._extents.get(number)
            if held is not None and max(held.sequence, said.get(number, 0)) < floor:
                held.header = attrs.evolve(held.header, sequence=max(held.sequence, said.get(number, 0)), epoch=0)
                held.write_header()
                self._to_mend.remove(number)

    @abstractmethod
    def make(self, pause: GiveWay = no_pause) -> Extent:
        """Make one more extent file, for `add`; `pause` as for `extent.create`. Raises OSError; nothing has changed."""

    @abstractmethod
    def take(self, sequence: int, floor: int, epoch: int, time: int) -> Extent:
        """Give this sequence to an extent that holds nothing from sequence `floor` on."""

    def retire(self, floor: int) -> None:  # noqa: B027
        """Called when a restart needs nothing before the sequence `floor` any more."""

    def reactivate(self, floor: int) -> None:  # noqa: B027
        """Called when a restart has begun to read at the sequence `floor`, which may be before the head."""

    @abstractmethod
    def drop_surplus(self, floor: int) -> Extent | None:
        """Let go of an extent that holds nothing from sequence `floor` on; its file is still there."""

    def remove_file(self, dropped: Extent) -> None:
        """Delete the file of an extent that the control file names no more."""
        dropped.file.close()
        self._disk.unlink(dropped.path)
        self._disk.sync_dir(self.directory)

    def sweep(self) -> None:
        """Delete the extent files that a crash left between their making and the control file's word of them."""
        swept = False
        for number in self._numbers_on_disk():
            if self._left_over(number):
                self._disk.unlink(self.path_of(number))
                swept = True
        if swept:
            self._disk.sync_dir(self.directory)

    def _left_over(self, number: int) -> bool:
        return number not in self._extents and self._holds_nothing(number)

    def close(self) -> None:
        for held in self._extents.values():
            held.file.close()

    # ---- extents that nothing needs and that stay as files: of a linear log alone, since a ring takes them again

    def inactive(self) -> list[int]:
        """The sequences of the extents in the directory that a restart needs no more, oldest first; compressed too."""
        return []

    def recycle(self, sequence: int, keep: int) -> None:  # noqa: B027
        """Keep the file of an extent that nothing needs any more, to be used again, if there are less than `keep`."""

    def reusable(self) -> list[str]:
        """The names of the files that are kept to be used again."""
        return []

    def reusable_bytes(self) -> int:
        """What these take on the disk."""
        return len(self.reusable()) * (extent.DATA + self._extent_bytes)

    def reduce(self, most: int, keep: int) -> int:
        """Delete up to `most` of them, and none of the first `keep`; return how many were deleted."""
        return 0

    def drain_extent_counts(self) -> tuple[int, int, int]:
        """How many extents were created, used again, and deleted since this was asked last."""
        return 0, 0, 0
