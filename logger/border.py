"""The border of an extent where reading has ended: is it the end of the log, or may a file have more of it?

No known extent goes on there. That is right, unless the control file is an older copy, or one of its two copies is not
whole, which may have been the newer one; and the file with the next part of the log does not identify itself: it was
cut, or its header is damaged. Where reading has ended inside of an extent the reader knows, but for one case: the front
of that extent, its header and spare pages, is nothing but zeros. Then the last page may have been in a spare page, and
is lost without a trace. Reads files, never writes.
"""

import enum

from logger import extent
from logger.config import LogType
from logger.control import ControlState
from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.extent import DATA, SPARES, ExtentHeader, decode_header, is_blank, linear_number, number_of
from logger.reader import ExtentView, first_frame, latest_part


class Flaw(enum.Enum):
    """What is wrong with a file that may have the next part of the log."""

    MISSING = "missing"
    SHORT = "short"
    STALE = "stale"
    UNREADABLE = "unreadable"


def suspect_files(
    disk: Disk, directory: str, state: ControlState, at: int, epoch: int, *, one_copy: bool
) -> dict[int, Flaw]:
    """The files, by number, that may have the log from the LSN `at` on, where reading has ended. Raises OSError.

    `epoch`: of the records before it. `one_copy`: the state is that of the only whole copy of the control file. That it
    is an older one is also known where there are records that it can't know of, be they beyond a gap.

    Before there is a record in a part of the log, the control file has said which file has that part. So of a crash
    alone no file has any that the control file does not know of.
    """
    read = range(state.head // state.extent_bytes, at // state.extent_bytes)
    older = epoch > state.epoch or not {sequence for _, sequence in state.extents}.issuperset(read)
    border = _Border(disk, state, at, max(epoch, state.epoch), one_copy or older)
    table = dict(state.extents)
    numbers = {number for name in disk.list(directory) if (number := number_of(name)) is not None} | set(table)
    if state.log_type is LogType.LINEAR:
        numbers &= {linear_number(border.sequence)}
    if at % state.extent_bytes:
        if state.clean_end == at:
            return {}
        return {n: Flaw.UNREADABLE for n in numbers if border.has_lost_front(f"{directory}/{extent.file_name(n)}")}
    border.may_be_stale |= any(
        border.knows_of_more(f"{directory}/{extent.file_name(n)}", n, known) for n, known in table.items()
    )
    found = {n: border.flaw(f"{directory}/{extent.file_name(n)}", n, table.get(n)) for n in sorted(numbers)}
    return {number: flaw for number, flaw in found.items() if flaw is not None}


class _Border:
    """The place where reading has ended, and what may have more of the log from there."""

    def __init__(self, disk: Disk, state: ControlState, at: int, epoch: int, may_be_stale: bool) -> None:
        self._disk = disk
        self._state = state
        self._at = at
        self._epoch = epoch  # what earlier lives left was declared lost
        self.may_be_stale = may_be_stale  # the control file may be an older copy, or is one
        self._is_ring = state.log_type is LogType.CIRCULAR
        self._seed = crc32(state.log_id)
        self.sequence = at // state.extent_bytes

    def flaw(self, path: str, number: int, known: int | None) -> Flaw | None:
        """What is wrong with a file; None: nothing is.

        `known`: the sequence that it holds as the control file says; None: that does not name it.
        """
        try:
            file = self._disk.open_read(path)
        except FileNotFoundError:
            return self._flaw_of_lost(known, Flaw.MISSING)
        try:
            header = decode_header(file.read(0, PAGE))
            if header is None and is_blank(file):
                return self._flaw_of_lost(known, Flaw.SHORT)
            if known == self.sequence:  # its spare pages were wiped before it got a record
                lost = self._view(file).bad_spares == SPARES or not any(file.read(0, DATA))
                return Flaw.UNREADABLE if lost else None
            if header is not None and header.sequence != self.sequence:
                return self._flaw_of_another_part(file, header, known)
            return self._flaw_of_next(file, number, header, known)
        finally:
            file.close()

    def knows_of_more(self, path: str, number: int, known: int) -> bool:
        """Has this file records of a part beyond the next one, though the control file, if it is the latest, says that
        it holds another? None has any before that says so.
        """
        if not self._disk.exists(path):
            return False
        file = self._disk.open_read(path)
        try:
            header = decode_header(file.read(0, PAGE))
            if header is None or (header.log_id, header.number) != (self._state.log_id, number):
                return False
            if header.sequence <= max(known, self.sequence) or header.epoch < self._epoch:
                return False
            part, epoch = latest_part(file, self._state.extent_bytes, self._seed)
            return part == header.sequence and epoch >= self._epoch  # else a restart has declared them lost
        finally:
            file.close()

    def has_lost_front(self, path: str) -> bool:
        """Is that the file that reading has ended in, and its front nothing but zeros?"""
        if not self._disk.exists(path):
            return False
        file = self._disk.open_read(path)
        try:
            if any(file.read(0, DATA)):
                return False
            return latest_part(file, self._state.extent_bytes, self._seed)[0] == self.sequence
        finally:
            file.close()

    def _flaw_of_lost(self, known: int | None, flaw: Flaw) -> Flaw | None:
        return flaw if self.may_be_stale and known is not None and known < self.sequence else None

    def _flaw_of_another_part(self, file: File, header: ExtentHeader, known: int | None) -> Flaw | None:
        """The flaw of a file whose header says that it holds another part."""
        if not self.may_be_stale or known is None or known >= self.sequence:
            return None
        if self._is_short(file):
            return Flaw.SHORT
        return Flaw.STALE if header.sequence < known else None

    def _flaw_of_next(self, file: File, number: int, header: ExtentHeader | None, known: int | None) -> Flaw | None:
        """The flaw of a file whose header says that it holds this part, or is not whole."""
        if header is not None and (
            (header.log_id, header.number) != (self._state.log_id, number) or header.epoch < self._epoch
        ):
            return None
        part, epoch = latest_part(file, self._state.extent_bytes, self._seed)
        has_records = part == self.sequence and epoch >= self._epoch
        blank = is_blank(file, PAGE)
        if self._is_short(file):
            says = header is not None or has_records
            return Flaw.SHORT if says or (self.may_be_stale and (known is not None or not blank)) else None
        if has_records:
            return Flaw.UNREADABLE  # it was not read: its first frame is bad, or its header does not count
        if blank:
            return None  # as it was made, and no more
        if header is not None and known is None and self._is_ring and not is_blank(file, DATA):
            return Flaw.UNREADABLE  # it was new when it took this part
        if self.may_be_stale and self._is_hidden(file, header):
            return Flaw.UNREADABLE
        return None

    def _is_hidden(self, file: File, header: ExtentHeader | None) -> bool:
        """May a record have been there that can't be seen? Not if the file is as the part before has left it."""
        if self._view(file).bad_spares:
            return True
        if header is not None:
            return False
        if not any(file.read(0, DATA)):
            return True  # its header and whatever was in a spare page
        first = first_frame(file, self._state.extent_bytes, self._seed)
        return first is None or (first.lsn == self._at and first.epoch >= self._epoch)

    def _is_short(self, file: File) -> bool:
        return file.size() < DATA + self._state.extent_bytes

    def _view(self, file: File) -> ExtentView:
        return ExtentView(file, self._at, self._state.extent_bytes, self._seed)
