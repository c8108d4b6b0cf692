"""The ring of a circular log: the next extent is the oldest inactive one; secondaries come and go."""

from collections.abc import Callable

from logger import control, extent, frame, lsn
from logger.crc import crc32
from logger.disk import PAGE, File
from logger.errors import LogDamaged
from logger.extent import DATA, Extent, ExtentHeader, at_once, decode_header
from logger.extents import Extents
from logger.integrity import open_spare


class Ring(Extents):
    """The extents of a circular log. A file takes a new sequence on each lap."""

    def open(self, state: control.ControlState, *, read_only: bool = False) -> None:
        """Open those that the control file names. Raises LogDamaged also when the log went on in one that it does not
        name: then it is an older copy."""
        super().open(state, read_only=read_only)
        newest = max((sequence for _, sequence in state.extents), default=0)
        named = dict(state.extents)
        for name in () if read_only else self._disk.list(self.directory):
            number = extent.number_of(name)
            if number is None or number in named:
                continue
            path = f"{self.directory}/{name}"
            file = self._disk.open_read(path)
            try:
                header = decode_header(file.read(0, PAGE))
                went_on = header is not None and header.sequence > newest and self._has_records(file, header, state)
            finally:
                file.close()
            if header is not None and went_on:
                at = header.sequence * self._extent_bytes
                text = (
                    f"the log control file is an older copy: {path} holds the log from {lsn.text(at)}, of which it "
                    f"does not know; put the newest one back"
                )
                raise LogDamaged(text, path=path, lsn=at)

    def _has_records(self, file: File, header: ExtentHeader, state: control.ControlState) -> bool:
        """Was anything logged there in this epoch or a later one? That comes after the control file's word of it."""
        if header.log_id != self._log_id:
            return False
        at, seed = header.sequence * self._extent_bytes, crc32(self._log_id)
        length = frame.length_at(memoryview(file.read(DATA, PAGE)), 0, at)
        first = frame.decode(memoryview(file.read(DATA, min(length, self._extent_bytes))), 0, at, seed)
        if first is not None and first.epoch >= state.epoch:
            return True
        spares = (open_spare(file.read(PAGE * n, PAGE), seed) for n in range(1, DATA // PAGE))
        return any(
            one and one.page // self._extent_bytes == header.sequence and one.epoch >= state.epoch for one in spares
        )

    def make(self, pause: Callable[[], None] = at_once) -> Extent:
        number = next(n for n in range(len(self._extents) + 1) if n not in self._extents)
        return extent.create(self._disk, self.directory, self._header(number, 0, 0), direct=self._direct, pause=pause)

    def take(self, sequence: int, floor: int, epoch: int, time: int) -> Extent:
        """Give this sequence to the oldest extent that holds nothing from sequence `floor` on."""
        inactive = [e for e in self._extents.values() if e.sequence < floor]
        assert inactive, "space is reserved only where an extent is there to give it"
        chosen = min(inactive, key=lambda e: (e.sequence, e.number))
        self._by_sequence.pop(chosen.sequence, None)
        chosen.take_sequence(sequence, epoch, time)
        self._by_sequence[sequence] = chosen
        return chosen

    def drop_surplus(self, floor: int) -> Extent | None:
        """Take the inactive extent with the highest number out of the ring."""
        inactive = [e for e in self._extents.values() if e.sequence < floor]
        if not inactive:
            return None
        dropped = max(inactive, key=lambda e: e.number)
        del self._extents[dropped.number]
        self._by_sequence.pop(dropped.sequence, None)
        return dropped

    def sweep(self) -> None:
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
