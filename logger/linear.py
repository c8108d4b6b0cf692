"""The line of a linear log: the next extent is a new one; older ones stay for media recovery.

The file of sequence s has the number s - 1, so names rise with the log. `Line` has the active extents and those made
ahead of need, whose names are the next ones and which hold nothing yet. What a restart needs no more leaves the line
and stays on the disk (`history.py`), until somebody archives or removes it, or it is kept as `Rnnnnnnn.LOG` to be
used again: a file that is there already is cheaper than one that has to be filled with zeros.
"""

import re
from typing import Any

from logger import control, extent
from logger.disk import File
from logger.errors import LogDamaged
from logger.extent import FILE_NUMBERS, Extent, ExtentHeader, file_name, linear_number
from logger.extents import Extents, Table
from logger.history import SUFFIXES, extent_number, index_name
from logger.progress import GiveWay, no_pause

REUSABLE = re.compile(r"R(\d{7})\.LOG")


def reusable_name(number: int) -> str:
    return f"R{number:07d}.LOG"


class Line(Extents):
    """The active extents of a linear log, and those made ahead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._last = 0  # the highest sequence that an extent holds
        self._created = self._reused = self._deleted = 0  # extents, since they were last drained

    def open(self, state: control.ControlState, *, read_only: bool = False) -> None:
        """Open what the control file names and what follows that: it may be an older copy.

        Raises LogDamaged when an extent that is needed is not there, and for a gap.
        """
        super().open(state, read_only=read_only)
        first = state.head // self._extent_bytes
        last = max(self._by_sequence, default=first - 1)
        for sequence in range(first, last):  # `_extents` has those too that, by an older copy, hold nothing yet
            number = linear_number(sequence)
            if number not in self._extents:
                raise self._missing(self.path_of(number), sequence)
        later = self._found_beyond(last)
        for sequence in sorted(later):
            if sequence != last + 1:
                raise self._missing(self.path_of(linear_number(last + 1)), last + 1)
            held = self._extents.get(later[sequence].number)
            if held is None:
                self._open(later[sequence], read_only=read_only)
            elif held.sequence != sequence:
                held.header = later[sequence]
                self.add(held)
            last = sequence
        self._last = last

    def _found_beyond(self, last: int) -> dict[int, ExtentHeader]:
        """The headers of extents in the directory that hold later parts of the stream, by sequence."""
        found = {}
        for number in self._numbers_on_disk():
            ahead = (number - linear_number(last + 1)) % FILE_NUMBERS
            if ahead < FILE_NUMBERS // 2:
                header = self._own_header(number)
                if header is not None and header.sequence > last:
                    found[header.sequence] = header
        return found

    def _fits(self, number: int, sequence: int) -> bool:
        return number == linear_number(sequence)

    def add(self, extent: Extent) -> None:
        if extent.sequence and linear_number(extent.sequence) != extent.number:
            raise LogDamaged(
                f"log extent {extent.path} holds the part of the log that belongs into "
                f"{file_name(linear_number(extent.sequence))}; put the right file back",
                path=extent.path,
                lsn=extent.sequence * self._extent_bytes,
            )
        super().add(extent)

    def reactivate(self, floor: int) -> None:
        """A restart began to read at this sequence. Extents from there on had become inactive: take them back."""
        first = min(self._by_sequence, default=floor)
        for sequence in range(floor, first):
            header = self._survey(linear_number(sequence), sequence, 0, sequence)
            if header is None:
                raise self._missing(self.path_of(linear_number(sequence)), sequence)
            self._open(header)

    def forget_beyond(self, sequence: int) -> None:
        super().forget_beyond(sequence)
        self._last = sequence
        kept = {held.number: held for held in self._by_sequence.values()}
        number = linear_number(sequence + 1)
        while number in self._extents:
            kept[number] = self._extents[number]
            number = (number + 1) % FILE_NUMBERS
        for held in self._extents.values():
            if held.number not in kept:  # those to come do not reach it without a gap
                held.file.close()
        self._extents = kept

    def _ahead(self, number: int) -> int:
        """How many sequences after the next one the file of this number belongs to; 0: it is for the next one."""
        return (number - linear_number(self._last + 1)) % FILE_NUMBERS

    def make(self, pause: GiveWay = no_pause) -> Extent:
        """Make the next extent ahead of need, of one that is kept for reuse if there is one."""
        number = linear_number(self._last + 1)
        while number in self._extents:
            number = (number + 1) % FILE_NUMBERS
        header = self._header(number, 0, 0)
        if self._is_in_the_way(number):
            raise LogDamaged(
                f"log extent {self.path_of(number)} is in the way of the next one: log extents are numbered from 0 to "
                f"{FILE_NUMBERS - 1} and then from 0 again; archive or remove the old ones",
                path=self.path_of(number),
            )
        self._check_free(number)
        for name in self.reusable():
            file = self._disk.open(f"{self.directory}/{name}", direct=self._direct)
            if file.size() == extent.DATA + self._extent_bytes:
                return self._made_of(file, name, header)
            file.close()  # it was cut, and one that has to grow can find the disk full
            self._disk.unlink(f"{self.directory}/{name}")
        created = extent.create(self._disk, self.directory, header, direct=self._direct, pause=pause)
        self._created += 1
        return created

    def _made_of(self, file: File, reusable: str, header: ExtentHeader) -> Extent:
        """The extent of that header, made of a file that is kept for reuse."""
        old, path = f"{self.directory}/{reusable}", self.path_of(header.number)
        try:
            made = Extent(self._disk, file, path, header)
            made.write_header()  # before it has a name that means something
            if self._disk.exists(path):
                self._disk.unlink(path)
            self._disk.rename(old, path)
            self._disk.sync_dir(self.directory)
        except OSError:
            file.close()
            raise
        self._reused += 1
        return made

    def _is_in_the_way(self, number: int) -> bool:
        """Does a file of this number hold an earlier part of the log? Numbers begin again after the last one."""
        if not self._disk.exists(self.path_of(number)):
            return False
        header = self._own_header(number)
        return header is not None and 0 < header.sequence <= self._last

    def take(self, sequence: int, floor: int, epoch: int, time: int) -> Extent:
        """Give this sequence to the extent that was made for it."""
        taken = self._extents.get(linear_number(sequence))
        assert taken is not None and not taken.sequence, "space is reserved only where an extent is there to give it"
        taken.take_sequence(sequence, epoch, time)
        self._by_sequence[sequence] = taken
        self._last = sequence
        return taken

    def table(self, said: Table = (), floor: int = 0) -> Table:
        held = super().table(said, floor)
        return tuple((number, sequence) for number, sequence in held if sequence >= floor or not sequence)

    def retire(self, floor: int) -> None:
        """What is before this sequence leaves the line: it is inactive."""
        for sequence in [s for s in self._by_sequence if s < floor]:
            held = self._by_sequence.pop(sequence)
            del self._extents[held.number]
            held.file.close()

    def drop_surplus(self, floor: int) -> Extent | None:
        """Let go of the last of the extents that were made ahead."""
        ahead = [number for number, held in self._extents.items() if not held.sequence]
        return self._extents.pop(max(ahead, key=self._ahead)) if ahead else None

    def open_read(self, sequence: int) -> File | None:
        """As that of `Extents`, and also of an inactive extent in the directory."""
        held = super().open_read(sequence)
        if held is not None or sequence > self._last:
            return held
        number = linear_number(sequence)
        if not self._disk.exists(self.path_of(number)):
            return None
        header = self._own_header(number)
        return self._disk.open_read(self.path_of(number)) if header and header.sequence == sequence else None

    def name(self, sequence: int) -> str:
        return self.path_of(linear_number(sequence))

    # ---- reuse

    def reusable(self) -> list[str]:
        return [name for name in self._disk.list(self.directory) if REUSABLE.fullmatch(name)]

    def inactive(self) -> list[int]:
        numbers = {number for name in self._disk.list(self.directory) if (number := extent_number(name)) is not None}
        behind = ((linear_number(self._last) - number) % FILE_NUMBERS for number in numbers)
        first = min(self._by_sequence, default=self._last + 1)
        return sorted(self._last - back for back in behind if back < FILE_NUMBERS // 2 and self._last - back < first)

    def recycle(self, sequence: int, keep: int) -> None:
        """One that is compressed is deleted: left there, it would lie before a gap."""
        plain = self.path_of(linear_number(sequence))
        index = f"{self.directory}/{index_name(linear_number(sequence))}"
        if self._disk.exists(index):
            self._disk.unlink(index)
        for path in [plain + suffix for suffix in SUFFIXES]:
            if not self._disk.exists(path):
                continue
            if path == plain and len(self.reusable()) < keep:
                self._disk.rename(path, f"{self.directory}/{reusable_name(linear_number(sequence))}")
            else:
                self._disk.unlink(path)
                self._deleted += 1
        self._disk.sync_dir(self.directory)

    def reduce(self, most: int, keep: int) -> int:
        kept = self.reusable()
        surplus = kept[max(keep, len(kept) - most) :]
        for name in surplus:
            self._disk.unlink(f"{self.directory}/{name}")
        if surplus:
            self._disk.sync_dir(self.directory)
        self._deleted += len(surplus)
        return len(surplus)

    def drain_extent_counts(self) -> tuple[int, int, int]:
        done = self._created, self._reused, self._deleted
        self._created = self._reused = self._deleted = 0
        return done

    def _left_over(self, number: int) -> bool:
        """Only a file with a number to come is left over: any other may still be wanted."""
        return self._ahead(number) < FILE_NUMBERS // 2 and super()._left_over(number)
