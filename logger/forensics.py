"""What the files of a log are, with no belief in any of them: for repair. Reads files, never writes.

A start believes the control file, and refuses where something contradicts it. Here everything is a witness: what each
extent file says of itself, which of its records are whole wherever they lie, how far the records follow each other.
"""

import contextlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping

import attrs

from logger import extent
from logger.compressed import open_plain
from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.errors import LaterFormat, LogDamaged
from logger.extent import DATA, ExtentHeader, decode_header, file_name, is_blank
from logger.frame import Frame
from logger.history import MAX_OPEN_FILES
from logger.reader import WINDOW_BYTES, ExtentView, LogReader, whole_frames

EpochFrom = tuple[int, int]  # an LSN, and the epoch: from there on only frames of that one or a later one count


@attrs.frozen(kw_only=True)
class Seen:
    """An extent file as it lies there."""

    path: str
    number: int  # in its name
    size: int
    header: ExtentHeader | None  # None: it is not whole

    def of(self, log_id: bytes, extent_bytes: int) -> bool:
        """Is it, or may it be, an extent of this log?"""
        header = self.header
        if header is None:
            return self.size >= DATA
        return header.log_id == log_id and header.extent_bytes == extent_bytes

    def whole(self, extent_bytes: int) -> bool:
        return self.size >= DATA + extent_bytes


def extent_files(disk: Disk, directory: str) -> list[Seen]:
    """The extent files in `directory`, by number. Raises LaterFormat."""
    found = []
    for name in disk.list(directory):
        number = extent.number_of(name)
        if number is not None:
            path = f"{directory}/{name}"
            file = disk.open_read(path)
            try:
                header, size = decode_header(file.read(0, PAGE), path), file.size()
                if header is None and is_blank(file):
                    size = 0  # as good as empty
            finally:
                file.close()
            found.append(Seen(path=path, number=number, size=size, header=header))
    return found


def most_common(votes: Counter[bytes]) -> bytes | None:
    """The value with the most votes; None where there are no votes, or another one has as many."""
    best = votes.most_common(2)
    if not best or (len(best) > 1 and best[0][1] == best[1][1]):
        return None
    return best[0][0]


class Evidence:
    """The extents of one log, by sequence, to be read without a control file."""

    def __init__(self, disk: Disk, log_id: bytes, extent_bytes: int, paths: Mapping[int, str]) -> None:
        self._disk = disk
        self._log_id = log_id
        self._seed = crc32(log_id)
        self._extent_bytes = extent_bytes
        self.paths = paths

    def follow(self, start: int, durable: int, epoch_from: EpochFrom, *, resync: bool = False) -> "Chain":
        """Read the records from LSN `start`, as a restart would, up to where they end or are damaged.

        With `resync` the rest of one may come first.
        """
        opened: dict[int, File] = {}

        def open_extent(sequence: int) -> File | None:
            file = opened.pop(sequence, None)
            if file is None:
                if sequence not in self.paths:
                    return None
                file = open_plain(self._disk, self.paths[sequence])
            opened[sequence] = file  # the one that is read now is the last
            if len(opened) > MAX_OPEN_FILES:
                opened.pop(next(iter(opened))).close()
            return file

        def close() -> None:
            for file in opened.values():
                file.close()

        reader = LogReader(
            open_extent,
            extent_bytes=self._extent_bytes,
            log_id=self._log_id,
            name=lambda sequence: self.paths.get(sequence, f"the extent of sequence {sequence}"),
            close=close,
            last_epoch=epoch_from,
        )
        damage, count, last = None, 0, 0
        try:
            for record in reader.records(start, durable=durable, resync=resync):
                count, last = count + 1, record.kind
        except LaterFormat:
            raise
        except LogDamaged as exc:
            damage = exc
        finally:
            reader.close()
        return Chain(
            start=start,
            end=reader.end,
            stopped=reader.stopped,
            epoch=reader.epoch,
            time=reader.time,
            records=count,
            last_kind=last,
            damage=damage,
        )

    def frames(self, start: int) -> Iterator[Frame]:
        """The whole frames from LSN `start` on, wherever they lie; a body is valid until the next is asked for."""
        for sequence in sorted(self.paths):
            if (sequence + 1) * self._extent_bytes > start:
                try:
                    yield from self._frames_of(sequence, start)
                except LaterFormat:
                    raise
                except LogDamaged:  # it is compressed: what follows in it tells nothing
                    continue

    def _frames_of(self, sequence: int, start: int) -> Iterator[Frame]:
        with contextlib.closing(open_plain(self._disk, self.paths[sequence])) as file:
            view = ExtentView(file, sequence * self._extent_bytes, self._extent_bytes, self._seed)
            yield from whole_frames(view, max(start, view.start), self._seed)

    def up_to(self, sequence: int, end: int) -> Generator[bytes, None, None]:
        """The bytes of an extent from its beginning to the LSN `end`, as a reader sees it; nothing of a missing one."""
        if sequence in self.paths:
            with contextlib.closing(open_plain(self._disk, self.paths[sequence])) as file:
                view = ExtentView(file, sequence * self._extent_bytes, self._extent_bytes, self._seed)
                for at in range(view.start, end, WINDOW_BYTES):
                    size = min(WINDOW_BYTES, end - at)
                    yield bytes(view.read(at, size)).ljust(size, b"\0")


@attrs.frozen(kw_only=True)
class Chain:
    """How far the records follow each other."""

    start: int
    end: int
    stopped: int  # behind `end` if that is in the middle of a record
    epoch: int  # the highest in it
    time: int  # of its last record
    records: int
    last_kind: int  # of its last record
    damage: LogDamaged | None  # None: it ends as a log may end


def name_of(directory: str, number: int) -> str:
    return f"{directory}/{file_name(number)}"
