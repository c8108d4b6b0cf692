"""Placing: which extent file holds which part of a log that a start refuses, and which parts lack. Changes nothing.

What a file says of itself goes before its name, and its name before the control file, which may be an older copy.
"""

from collections.abc import Callable

from logger import lsn
from logger.at_rest import active_path
from logger.border import Flaw, suspect_files
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.crc import crc32
from logger.disk import Disk
from logger.extent import DATA, linear_number
from logger.forensics import Evidence, Seen, name_of
from logger.history import History, is_before, read_header
from logger.reader import latest_part

ROW_OF_FLAW = {
    Flaw.MISSING: "extent_missing",
    Flaw.SHORT: "extent_short",
    Flaw.STALE: "extent_stale",
    Flaw.UNREADABLE: "extent_damaged_at_the_tail",
}
Note = Callable[[str, str, str], None]  # row of the table in `diagnosis.py`, file, more about it


class Placed:
    """The extent files of one log, by the part of it that each holds; what is wrong with them is noted."""

    def __init__(
        self,
        disk: Disk,
        config: LogConfig,
        log_id: bytes,
        extent_bytes: int,
        files: list[Seen],
        state: ControlState | None,
        note: Note,
    ) -> None:
        """`files` lie in the active directory; `state`: what the control file says. Raises OSError."""
        self._disk = disk
        self._note = note
        self._primary_files = config.primary_files
        self.log_id = log_id
        self.extent_bytes = extent_bytes
        self.circular = config.log_type is LogType.CIRCULAR
        self.active = active_path(config.path)
        expected = dict(state.extents) if state is not None else {}
        mine = {seen.number: seen for seen in files if seen.of(log_id, extent_bytes)}
        self.bad = [seen for seen in files if seen.number not in mine]  # no extents of this log, or not at home
        self.right = {n: seen for n, seen in mine.items() if seen.header is None or seen.header.number == n}
        for seen in [seen for seen in mine.values() if seen.number not in self.right]:
            self._place_astray(seen, expected)
        places: dict[int, tuple[int, Seen]] = {}
        for number, seen in self.right.items():
            sequence, epoch = self._sequence(number, seen, expected)
            if sequence and (self.circular or number == linear_number(sequence)):
                rival = places.get(sequence)
                if rival is None or self._sequence(rival[0], rival[1], expected)[1] < epoch:
                    places[sequence] = number, seen
        self._somewhere = History(disk, (self.active, config.archive_directory), log_id, extent_bytes)
        self.archived = {} if self.circular else self._archived(places)
        self.here = self.archived | places  # (file number, file) by sequence

    def _place_astray(self, seen: Seen, expected: dict[int, int]) -> None:
        """A file that says it has another number than its name: it goes there, unless there is a better one."""
        assert seen.header is not None
        number = seen.header.number
        there = self.right.get(number)
        if there is None or self._worth(number, there, expected) < self._worth(number, seen, expected):
            self.right[number] = seen
            self._note("extents_swapped", seen.path, f"it is {name_of('', number)[1:]}")
        else:
            self.bad.append(seen)

    def _archived(self, places: dict[int, tuple[int, Seen]]) -> dict[int, tuple[int, Seen]]:
        """Extents of a linear log that are not in the active directory as they should be, but somewhere.

        Where the active directory has an extent that was made ahead and has taken nothing yet, it was put back from an
        older copy: what the archive has from there on is of another past.
        """
        found = {}
        last = max(places, default=0)
        ready = {n for n, seen in self.right.items() if seen.header is not None and seen.header.sequence == 0}
        for sequence, place in sorted(self._somewhere.places().items()):
            if sequence > last and linear_number(sequence) in ready:
                break
            if sequence not in places or not places[sequence][1].whole(self.extent_bytes):
                places.pop(sequence, None)
                number = linear_number(sequence)
                header, size, _ = read_header(self._disk, place.path)
                found[sequence] = number, Seen(path=place.path, number=number, size=size, header=header)
        return found

    def _sequence(self, number: int, seen: Seen, expected: dict[int, int]) -> tuple[int, int]:
        """(what the file holds, the epoch in which it took that)."""
        if seen.header is not None:
            return seen.header.sequence, seen.header.epoch
        file = self._disk.open_read(seen.path)
        try:
            latest, _ = latest_part(file, self.extent_bytes, crc32(self.log_id))
        finally:
            file.close()
        return max(expected.get(number, 0), latest), 0

    def _worth(self, number: int, seen: Seen, expected: dict[int, int]) -> tuple[bool, int, int, int]:
        """The key to compare files that say they have the same number by: the higher one has more of the log."""
        sequence, epoch = self._sequence(number, seen, expected)
        frames = Evidence(self._disk, self.log_id, self.extent_bytes, {sequence: seen.path}).frames(0)
        return seen.whole(self.extent_bytes), sequence, epoch, max((each.end for each in frames), default=0)

    def path_of(self, number: int) -> str:
        return name_of(self.active, number)

    def evidence(self, last: int | None = None) -> Evidence:
        """Of all extents, or of those up to the sequence `last`."""
        paths = {s: seen.path for s, (_, seen) in self.here.items() if last is None or s <= last}
        return Evidence(self._disk, self.log_id, self.extent_bytes, paths)

    def own_evidence(self, state: ControlState, at: int) -> Evidence | None:
        """The evidence without what only the archive has, where reading stops at the LSN `at`; None: all of it counts.

        A log that was put back from an older copy may find an archive that went on: of another past are extents there
        behind the last one that the control file names and the active directory has.
        """
        there = {sequence for sequence in self.here if sequence not in self.archived}
        last = max([*there, *(known for _, known in state.extents)], default=0)
        if last not in there or at // self.extent_bytes != last or last >= max(self.here):
            return None
        return self.evidence(last)

    # ---- what lacks

    def note_bad(self, state: ControlState | None, needed: int, read: int) -> set[int]:
        """Say which extents are bad; the sequences of those from `needed` on that a restart needs and are not there.

        `read`: the LSN up to which records were read.
        """
        if state is None:
            return self._gaps(needed)
        gone: set[int] = set()
        floor = state.head // self.extent_bytes  # what a start takes for the first that it needs
        foreign = {seen.number for seen in self.bad if seen.size >= DATA}
        for number, known in sorted(state.extents):
            row = self._row_of(number, known, foreign)
            sequence = known
            if row == "extent_short":  # the copy that says so may be the older one
                sequence = max(known, self._header_sequence(number))
            path = self.path_of(number)
            if row and sequence >= max(1, needed) and sequence in self.archived:
                self._note("extent_in_the_archive", path, self.archived[sequence][1].path)
            elif row and sequence >= max(1, needed):
                gone.add(self._lacks(row, sequence, path, f"it has the log from {self._begin(sequence)}"))
            elif row == "extent_foreign" or (row and sequence >= floor):
                self._note("extent_not_needed", path, "")  # a start refuses it all the same
        named = {known for _, known in state.extents}
        for sequence in range(max(1, needed), floor):  # inactive, as the control file says, so maybe in no table
            if sequence in self.archived:
                path = self.path_of(linear_number(sequence))
                self._note("extent_in_the_archive", path, self.archived[sequence][1].path)
            elif self.circular and sequence in self.here and sequence not in named:
                # a checkpoint that is lost by now let go of it, and a crash kept it
                self._note("extent_not_named", self.where(sequence), f"it has the log from {self._begin(sequence)}")
        newest = max((known for _, known in state.extents), default=0)
        for sequence, (_, seen) in sorted(self.here.items()):  # of which an older control file does not know
            if sequence > newest and sequence * self.extent_bytes < read and not seen.whole(self.extent_bytes):
                gone.add(
                    self._lacks("extent_short", sequence, seen.path, f"it has the log from {self._begin(sequence)}")
                )
        if state.log_type is LogType.LINEAR:
            gone |= self._gaps_in(state, needed, read)
        return gone

    def _gaps_in(self, state: ControlState, needed: int, read: int) -> set[int]:
        """Note extents of a linear log that the table does not name and that are missing; those that a restart needs.

        A start wants all from the head that the control file names, which may be an older one, to the last one there,
        and what was read: of the last ones the table of an older copy may say that they are empty.
        """
        named = {sequence for _, sequence in state.extents}
        there = [sequence for sequence in self.here if sequence not in self.archived]
        gone = set()
        behind = max([*there, (read - 1) // self.extent_bytes + 1])
        for sequence in range(max(1, state.head // self.extent_bytes), behind):
            if sequence in named or sequence in there:
                continue
            path = self.path_of(linear_number(sequence))
            if sequence < needed:
                self._note("extent_not_needed", path, "")
            elif sequence in self.archived:
                self._note("extent_in_the_archive", path, self.archived[sequence][1].path)
            else:
                gone.add(self._lacks("extent_missing", sequence, path))
        return gone

    def _lacks(self, row: str, sequence: int, path: str, text: str = "") -> int:
        """Note an extent that a restart needs and that is not there; return its sequence.

        Raises OSError where a file of the archive that may be it can't be read: an error that passes loses nothing.
        """
        self._somewhere.refuse_unread(sequence)
        self._note(row, path, text)
        return sequence

    def _begin(self, sequence: int) -> str:
        return lsn.text(sequence * self.extent_bytes)

    def note_suspect_files(self, state: ControlState, at: int, epoch: int, *, one_copy: bool) -> set[int]:
        """Say which files may have the log from the LSN `at` on, though nobody knows of it, as a start asks it.

        That sequence, where there is such a one. `epoch`, `one_copy`: see `suspect_files`.
        """
        found = suspect_files(self._disk, self.active, state, at, epoch, one_copy=one_copy)
        for number, flaw in found.items():
            self._note(ROW_OF_FLAW[flaw], self.path_of(number), f"it may have the log from {lsn.text(at)}")
        return {at // self.extent_bytes} if found else set()

    def note_foreign_files(self, at: int) -> set[int]:
        """Say which files of another log may lie where the log goes on from the LSN `at`; that sequence, where it does.

        For where no control file says what there was: an extent that is full, as that before `at` is, has a successor.
        """
        sequence, within = divmod(at, self.extent_bytes)
        if within:
            return set()
        strangers = [seen for seen in self.bad if seen.header is not None and seen.header.log_id != self.log_id]
        there = [seen for seen in strangers if self.circular or seen.number == linear_number(sequence)]
        return {
            self._lacks("extent_foreign", sequence, seen.path, f"it may be in the place of one from {lsn.text(at)} on")
            for seen in there
        }

    def note_lost_file(self, at: int, *, torn: bool) -> set[int]:
        """Say whether a file lacks which may have had the log from the LSN `at` on; that sequence, where one does.

        As `note_foreign_files`. The successor is made ahead: in a linear log it has the next name, a ring has no less
        files than primaries. `torn`: a part of a record follows, which may have gone on in the next extent.
        """
        sequence, within = divmod(at, self.extent_bytes)
        if within and not torn:
            return set()
        sequence += within > 0
        text = f"it may have the log from {lsn.text(at)}"
        if self.circular:
            whole = [seen for seen in self.right.values() if seen.whole(self.extent_bytes)]
            if len(whole) >= self._primary_files:
                return set()
            return {self._lacks("extent_missing", sequence, f"{self.active}: one of the primaries", text)}
        number = linear_number(sequence)
        seen = self.right.get(number)
        if seen is not None and seen.size:
            return set()
        if within and not any(is_before(number, other + 1) for other in self.right if other != number):
            return set()  # it was the next to be made: none is ahead where all primaries are active
        path = self.path_of(number)
        return {self._lacks("extent_short" if self._disk.exists(path) else "extent_missing", sequence, path, text)}

    def _row_of(self, number: int, sequence: int, foreign: set[int]) -> str:
        """The row for an extent that the control file says holds `sequence`; "" when it does, or a later one."""
        seen = self.right.get(number)
        if seen is None:
            cut = self._disk.exists(self.path_of(number))
            return "extent_foreign" if number in foreign else "extent_short" if cut else "extent_missing"
        if not seen.whole(self.extent_bytes):
            return "extent_short"
        return "extent_stale" if seen.header is not None and seen.header.sequence < sequence else ""

    def _header_sequence(self, number: int) -> int:
        """The sequence that the extent file says it holds; 0 where it says nothing."""
        seen = self.right.get(number)
        return seen.header.sequence if seen is not None and seen.header is not None else 0

    def note_history(self, first: int, end: int) -> None:
        """Say what lacks of the extents from one sequence up to another, which only media recovery needs."""
        for sequence in range(first, end):
            if sequence not in self.here or not self.here[sequence][1].whole(self.extent_bytes):
                self._note("extent_of_history_bad", self.where(sequence), "")

    def ends(self, sequence: int) -> int:
        """The LSN up to which the extent's file goes."""
        size = self.here[sequence][1].size if sequence in self.here else 0
        return sequence * self.extent_bytes + max(0, size - DATA)

    def _gaps(self, needed: int) -> set[int]:
        """As `note_bad` where no control file says what there should be: what lacks in between, and what is short."""
        there = [sequence for sequence in self.here if sequence >= needed]
        gone = set()
        for sequence in range(needed, max(there, default=needed - 1) + 1):
            if sequence not in self.here:
                gone.add(self._lacks("extent_missing", sequence, self.where(sequence)))
            elif sequence in self.archived:
                self._note("extent_in_the_archive", self.where(sequence), "")
            elif not self.here[sequence][1].whole(self.extent_bytes):
                gone.add(self._lacks("extent_short", sequence, self.where(sequence)))
        return gone

    def where(self, sequence: int) -> str:
        """The file that holds a part of the log; in words where there is none."""
        return self.here[sequence][1].path if sequence in self.here else f"{self.active}: sequence {sequence}"

    def note_damaged_headers(self, needed: int) -> None:
        for sequence, (_, seen) in sorted(self.here.items()):
            if seen.header is None and sequence >= needed:
                self._note("extent_header_damaged", seen.path, "")
