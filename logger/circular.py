"""The ring of a circular log: the next extent is the oldest inactive one; secondaries come and go.

Which part of the stream a file holds is said by its header and by the control file's table. They are written in that
order, before the first record, so after a crash the header may be ahead of the table and never behind it: an extent
whose header is older than the table says is damage, and so is one that is missing.
"""

import attrs

from logger import control, extent, lsn
from logger.disk import PAGE, Disk
from logger.errors import LogDamaged
from logger.extent import Extent, ExtentHeader, decode_header, file_name


class Ring:
    """The extent files of one log, and which sequence each of them holds."""

    def __init__(self, disk: Disk, directory: str, log_id: bytes, extent_bytes: int, *, direct: bool) -> None:
        self._disk = disk
        self._direct = direct
        self.directory = directory
        self._log_id = log_id
        self._extent_bytes = extent_bytes
        self._extents: dict[int, Extent] = {}  # by file number
        self._by_sequence: dict[int, Extent] = {}

    def __len__(self) -> int:
        return len(self._extents)

    def table(self) -> tuple[tuple[int, int], ...]:
        """(file number, sequence) of every extent, as the control file keeps it."""
        return tuple((number, extent.sequence) for number, extent in sorted(self._extents.items()))

    def numbers_in_order(self, first_sequence: int) -> list[int]:
        """File numbers of the active extents, in the order of the log."""
        return [e.number for s, e in sorted(self._by_sequence.items()) if s >= first_sequence]

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

    def open(self, state: control.ControlState, *, read_only: bool = False) -> None:
        """Open every extent that the control file names. Raises LogDamaged when one that is needed is not there."""
        needed = state.head // self._extent_bytes
        for number, expected in state.extents:
            header, path = survey(self._disk, self.directory, number, state)
            if header is None and expected >= needed:
                raise LogDamaged(
                    f"log extent {path} is missing or was cut, and it holds the log from "
                    f"{lsn.text(expected * self._extent_bytes)}, which a restart needs; restore it from a backup",
                    path=path,
                    lsn=expected * self._extent_bytes,
                )
            if header is None:
                continue
            if header.sequence < expected and expected >= needed:
                raise LogDamaged(
                    f"log extent {path} holds the log from {lsn.text(header.sequence * self._extent_bytes)}, an older "
                    f"part than the control file says; it was replaced by a stale copy: restore it from a backup",
                    path=path,
                    lsn=expected * self._extent_bytes,
                )
            disk = self._disk
            file = disk.open_read(path) if read_only else disk.open(path, direct=self._direct)
            self.add(Extent(disk, file, path, header))

    def add(self, extent: Extent) -> None:
        """Take an open extent into the ring."""
        self._extents[extent.number] = extent
        rival = self._by_sequence.get(extent.sequence)
        if extent.sequence and (rival is None or rival.header.epoch < extent.header.epoch):
            self._by_sequence[extent.sequence] = extent

    def forget_beyond(self, sequence: int) -> None:
        """The log ends in this sequence: what claims to hold later parts was left behind by writes that were lost."""
        for later in [s for s in self._by_sequence if s > sequence]:
            del self._by_sequence[later]
        for held in self._extents.values():
            if self._by_sequence.get(held.sequence) is not held:
                held.header = attrs.evolve(held.header, sequence=0)

    def make(self) -> Extent:
        """Make one more extent file, for `add`. Raises OSError, and then nothing has changed."""
        number = next(n for n in range(len(self._extents) + 1) if n not in self._extents)
        header = ExtentHeader(
            number=number, log_id=self._log_id, sequence=0, extent_bytes=self._extent_bytes, epoch=0, time=0
        )
        return extent.create(self._disk, self.directory, header, direct=self._direct)

    def take(self, sequence: int, floor: int, epoch: int, time: int) -> Extent:
        """Give this sequence to the oldest extent that holds nothing from sequence `floor` on."""
        inactive = [e for e in self._extents.values() if e.sequence < floor]
        assert inactive, "space is reserved only where an extent is there to give it"
        chosen = min(inactive, key=lambda e: (e.sequence, e.number))
        self._by_sequence.pop(chosen.sequence, None)
        chosen.take_sequence(sequence, epoch, time)
        self._by_sequence[sequence] = chosen
        return chosen

    def drop_inactive(self, floor: int) -> Extent | None:
        """Take the inactive extent with the highest number out of the ring; its file is still there."""
        inactive = [e for e in self._extents.values() if e.sequence < floor]
        if not inactive:
            return None
        dropped = max(inactive, key=lambda e: e.number)
        del self._extents[dropped.number]
        self._by_sequence.pop(dropped.sequence, None)
        return dropped

    def remove_file(self, dropped: Extent) -> None:
        """Delete the file of an extent that the control file names no more."""
        dropped.file.close()
        self._disk.unlink(dropped.path)
        self._disk.sync_dir(self.directory)

    def sweep(self) -> None:
        """Delete the extent files that a crash left between their making and the control file's word of them."""
        for name in self._disk.list(self.directory):
            number = extent.number_of(name)
            if number is None or number in self._extents:
                continue
            path = f"{self.directory}/{name}"
            file = self._disk.open_read(path)
            try:
                header = decode_header(file.read(0, PAGE))
            finally:
                file.close()
            if header is None or (header.log_id == self._log_id and header.sequence == 0):
                self._disk.unlink(path)

    def close(self) -> None:
        for held in self._extents.values():
            held.file.close()


def survey(disk: Disk, directory: str, number: int, state: control.ControlState) -> tuple[ExtentHeader | None, str]:
    """(header, path) of extent file `number`; no header when the file is missing or too short to be an extent.

    Where the header itself was damaged the control file's word for it is taken: each record says where it belongs.
    Raises LogDamaged for another log's file.
    """
    path = f"{directory}/{file_name(number)}"
    try:
        file = disk.open_read(path)
    except FileNotFoundError:
        return None, path
    try:
        page, size = file.read(0, PAGE), file.size()
    finally:
        file.close()
    if size < extent.DATA + state.extent_bytes:
        return None, path
    header = decode_header(page)
    if header is None:
        sequence = dict(state.extents)[number]
        return (
            ExtentHeader(
                number=number,
                log_id=state.log_id,
                sequence=sequence,
                extent_bytes=state.extent_bytes,
                epoch=state.epoch,
                time=0,
            ),
            path,
        )
    if header.log_id != state.log_id or header.extent_bytes != state.extent_bytes or header.number != number:
        raise LogDamaged(
            f"log extent {path} belongs to another log or another place (it says it is {file_name(header.number)} of "
            f"log {header.log_id.hex()}); put this queue manager's own file back",
            path=path,
        )
    return header, path
