"""The ring of a circular log: the next extent is the oldest inactive one; secondaries come and go."""

from logger import control, extent
from logger.extent import Extent
from logger.extents import Extents
from logger.progress import GiveWay, no_pause


class Ring(Extents):
    """The extents of a circular log. A file takes a new sequence on each lap."""

    def open(self, state: control.ControlState, *, read_only: bool = False) -> None:
        """Open those that the control file names, and secondaries that it does not know of: it may be an older copy.

        One that an earlier life let go of, or lost, has an earlier epoch.
        """
        super().open(state, read_only=read_only)
        named = dict(state.extents)
        newest = max(named.values(), default=0)
        for number in self._numbers_on_disk():
            header = None if number in named else self._own_header(number)
            if header is not None and header.sequence > newest and header.epoch >= state.epoch:
                self._open(header, read_only=read_only)

    def _fits(self, number: int, sequence: int) -> bool:
        return True

    def make(self, pause: GiveWay = no_pause) -> Extent:
        number = next(n for n in range(len(self._extents) + 1) if n not in self._extents)
        self._check_free(number)
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
