"""The ring of a circular log: the next extent is the oldest inactive one; secondaries come and go."""

from logger import control, extent, lsn
from logger.disk import PAGE
from logger.errors import LogDamaged
from logger.extent import Extent, decode_header
from logger.extents import Extents
from logger.progress import GiveWay, no_pause


class Ring(Extents):
    """The extents of a circular log. A file takes a new sequence on each lap."""

    def open(self, state: control.ControlState, *, read_only: bool = False, alone: bool = False) -> None:
        """Open those that the control file names. Of the others it is remembered which may have later records."""
        super().open(state, read_only=read_only, alone=alone)
        newest = max((sequence for _, sequence in state.extents), default=0)
        named = dict(state.extents)
        self._unnamed: dict[int, tuple[str, int]] = {}  # path and epoch of the first record, by sequence
        for name in () if read_only else self._disk.list(self.directory):
            number = extent.number_of(name)
            if number is None or number in named:
                continue
            path = f"{self.directory}/{name}"
            file = self._disk.open_read(path)
            try:
                header = decode_header(file.read(0, PAGE))
                if header is not None and header.log_id == self._log_id and header.sequence > newest:
                    first = self._first(file, header.sequence * self._extent_bytes)
                    if first is not None and first.epoch >= state.epoch:
                        self._unnamed[header.sequence] = path, first.epoch
            finally:
                file.close()

    def check_end(self, at: int, epoch: int) -> None:
        super().check_end(at, epoch)
        path, later = self._unnamed.get(at // self._extent_bytes, ("", 0))
        if later and later >= epoch:
            raise LogDamaged(
                f"the log control file is an older copy: {path} holds the log from {lsn.text(at)}, of which it does "
                f"not know; put the newest one back",
                path=path,
                lsn=at,
            )

    def _may_hold(self, at: int) -> list[str]:
        there = (extent.number_of(name) for name in self._disk.list(self.directory))
        unnamed = [n for n in there if n is not None and n not in self._extents]
        unknown = [n for n in unnamed if extent.is_more_than_begun(self._disk, self.path_of(n))]
        lost = [self.path_of(n) for n in self._believed + unknown if not self._holds_another(n, at)]
        return list(dict.fromkeys(self._doubtful + lost))

    def make(self, pause: GiveWay = no_pause) -> Extent:
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
