"""The extent files of a log that are open: which part of the stream each holds. What both ways of logging share.

Which part of the stream a file holds is said by its header and by the control file's table. They are written in that
order, before the first record, so after a crash the header may be ahead of the table and never behind it: an extent
whose header is older than the table says is damage, and so is one that is missing.
"""

from abc import ABC, abstractmethod

import attrs

from logger import control, extent, frame, lsn
from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.errors import LogDamaged
from logger.extent import Extent, ExtentHeader, decode_header, file_name, is_blank
from logger.progress import GiveWay, no_pause
from logger.reader import ExtentView, holds_another


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
        self._believed: list[int] = []  # numbers of those whose header is not whole
        self._alone = False  # is there but one whole copy of the control file, which may be the older one?
        self._doubtful: list[str] = []  # files that are not what the control file says, and no restart seems to need

    def __len__(self) -> int:
        return len(self._extents)

    def table(self, floor: int = 0) -> tuple[tuple[int, int], ...]:
        """(file number, sequence) of every extent, as the control file keeps it.

        `floor`: the sequence that holds the head. A linear log leaves out what is before it.
        """
        return tuple((number, extent.sequence) for number, extent in sorted(self._extents.items()))

    def headers(self) -> list[ExtentHeader]:
        """What each extent is."""
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

    def open(self, state: control.ControlState, *, read_only: bool = False, alone: bool = False) -> None:
        """Open every extent that the control file names. Raises LogDamaged when one that is needed is not there.

        `alone`: the state is that of the only whole copy.
        """
        needed = state.head // self._extent_bytes
        self._alone = alone
        self._doubtful, self._believed = [], []
        for number, expected in state.extents:
            header = self._survey(number, expected, state.epoch, needed)
            if header is None and expected >= needed:
                raise self._missing(self.path_of(number), expected)
            if header is None:
                self._doubtful.append(self.path_of(number))
                continue
            if header.sequence < expected:
                self._doubtful.append(self.path_of(number))
            if header.sequence < expected and expected >= needed:
                path = self.path_of(number)
                raise LogDamaged(
                    f"log extent {path} holds the log from {lsn.text(header.sequence * self._extent_bytes)}, an older "
                    f"part than the control file says; it was replaced by a stale copy: restore it from a backup",
                    path=path,
                    lsn=expected * self._extent_bytes,
                )
            self._open(header, read_only=read_only)

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

        Where the header itself was damaged the control file's word for it is taken, which is the sequence `expected`:
        each record says where it belongs. Raises LogDamaged for another log's file, and for one that is too short and
        says that it holds a sequence from `needed` on: the control file may be an older copy, that knows less.
        """
        path = self.path_of(number)
        try:
            file = self._disk.open_read(path)
        except FileNotFoundError:
            return None
        try:
            header, size = decode_header(file.read(0, PAGE)), file.size()
            lost = header is None and is_blank(file)
        finally:
            file.close()
        if lost:
            return None
        if size < extent.DATA + self._extent_bytes:
            if header is not None and header.log_id == self._log_id and header.sequence >= needed:
                raise self._missing(path, header.sequence)
            return None
        if header is None:
            self._believed.append(number)
            return self._header(number, expected, epoch)
        if header.log_id != self._log_id or header.extent_bytes != self._extent_bytes or header.number != number:
            raise LogDamaged(
                f"log extent {path} belongs to another log or another place (it says it is {file_name(header.number)} "
                f"of log {header.log_id.hex()}); put this queue manager's own file back",
                path=path,
            )
        return header

    def _first(self, file: File, at: int) -> frame.Frame | None:
        """The first frame of an extent, as a reader sees it."""
        seed = crc32(self._log_id)
        view = ExtentView(file, at, self._extent_bytes, seed)
        length = frame.length_at(view.read(at, PAGE), 0, at)
        return frame.decode(view.read(at, length), 0, at, seed)

    def _header(self, number: int, sequence: int, epoch: int) -> ExtentHeader:
        return ExtentHeader(
            number=number,
            log_id=self._log_id,
            sequence=sequence,
            extent_bytes=self._extent_bytes,
            epoch=epoch,
            time=0,
        )

    def check_end(self, at: int, epoch: int) -> None:
        """Called when reading has ended at the LSN `at`, with records of `epoch`: is that the end of the log?

        Raises LogDamaged where the control file, of which a copy is lost or which is an older one, may not know of the
        extent that the log goes on in, and that can't say so itself.
        """
        if self._alone and not at % self._extent_bytes and not self.holds(at // self._extent_bytes):
            bad = self._may_hold(at)
            if bad:
                raise LogDamaged(
                    f"one copy of the log control file is not whole, and log extent {bad[0]} is missing, cut, an older "
                    f"copy or without a whole header: it may have the log from {lsn.text(at)}; restore one from a "
                    f"backup",
                    path=bad[0],
                    lsn=at,
                )

    @abstractmethod
    def _may_hold(self, at: int) -> list[str]:
        """The files that may have the log from the LSN `at` on, for all that can be seen of them."""

    def _holds_another(self, number: int, at: int) -> bool:
        file = self._disk.open_read(self.path_of(number))
        try:
            return holds_another(file, at, self._extent_bytes, crc32(self._log_id))
        finally:
            file.close()

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

        Their headers were written by a life whose records in them were never safe.
        """
        for later in [s for s in self._by_sequence if s > sequence]:
            del self._by_sequence[later]
        for held in self._extents.values():
            if self._by_sequence.get(held.sequence) is not held:
                held.header = attrs.evolve(held.header, sequence=0)

    def mend(self, floor: int, table: tuple[tuple[int, int], ...]) -> None:
        """Write the headers that are not whole of extents that hold nothing from the sequence `floor` on.

        A crash has torn them where the extent was to take another sequence. What the log holds has been found out by
        now; where a later crash tears a copy of the control file, the other one alone could not tell this from a part
        of the log that is lost. Which start gave the extent what it holds is not known any more: 0 is none.

        `table`: what the control file says. Those of which it says something else are left for now: no header may be
        behind it.
        """
        for number, said in table:
            held = self._extents.get(number)
            if number in self._believed and held is not None and held.sequence == said < floor:
                held.header = attrs.evolve(held.header, epoch=0)
                held.front[:PAGE] = held.header.encode()
                held.file.write(0, held.front[:PAGE])
                held.file.sync()
                self._believed.remove(number)

    @abstractmethod
    def make(self, pause: GiveWay = no_pause) -> Extent:
        """Make one more extent file, for `add`; `pause` as for `extent.create`. Raises OSError; nothing has changed."""

    @abstractmethod
    def take(self, sequence: int, floor: int, epoch: int, time: int) -> Extent:
        """Give this sequence to an extent that holds nothing from sequence `floor` on."""

    def retire(self, floor: int) -> None:  # noqa: B027
        """Called when a restart needs nothing before the sequence `floor` any more."""

    def reach(self, floor: int) -> None:  # noqa: B027
        """Called when a restart has begun to read at the sequence `floor`, which may be before the head."""

    @abstractmethod
    def drop_surplus(self, floor: int) -> Extent | None:
        """Let go of an extent that holds nothing from sequence `floor` on; its file is still there."""

    def remove_file(self, dropped: Extent) -> None:
        """Delete the file of an extent that the control file names no more."""
        dropped.file.close()
        self._disk.unlink(dropped.path)
        self._disk.sync_dir(self.directory)

    @abstractmethod
    def sweep(self) -> None:
        """Delete the extent files that a crash left between their making and the control file's word of them."""

    def close(self) -> None:
        for held in self._extents.values():
            held.file.close()
