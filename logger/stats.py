"""How large and how slow the writes of the log were: short, long, maximum, and by extent. No files."""

import threading
from collections import deque
from itertools import accumulate
from operator import sub

import attrs

from logger.clock import Clock

SHORT, LONG, EXTENTS = 64, 1024, 8
BATCH = 64  # writes that are looked at together


@attrs.frozen(kw_only=True)
class WriteStats:
    """A moment's figures. Sizes in bytes, times in microseconds, moments in microseconds since 1970-01-01 UTC."""

    writes: int
    bytes_written: int  # as handed to the disk, whole pages
    bytes_logged: int  # of records
    write_size_short: float  # mean of the last 64
    write_size_long: float  # mean of the last 1024
    write_size_max: int
    write_time_short: float
    write_time_long: float
    write_time_short_max: float
    write_time_long_max: float
    write_time_max: float
    write_time_max_at: int
    write_time_total: float
    write_time_max_extents: tuple[float, ...]  # longest write in each of the 8 most recent extents, newest first


class Window:
    """The sum of the last so many values, and the highest that it has been."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.sum = 0
        self.highest = 0

    def move(self, values: list[int], count: int) -> None:
        """The last `count` of the values are new."""
        new = values[-count:]
        left = values[-count - self.length : -self.length]
        sums = list(accumulate(map(sub, new, left), initial=self.sum))
        self.sum = sums[-1]
        self.highest = max(self.highest, *sums)


class LogStats:
    """Fed once for each write; `figures` is asked for rarely."""

    def __init__(self) -> None:
        self._new: list[tuple[int, int, int]] = []  # (size, ns, sequence) not looked at yet
        self._digesting = threading.Lock()
        self._writes = 0
        self.bytes_written = 0
        self.size_max = 0
        self.time_max = 0
        self.time_total = 0
        self.time_max_at = 0
        self._sizes = [0] * LONG  # of the last writes; before the first ones there were writes of nothing in no time
        self._times = [0] * LONG
        self._windows = self._short, self._long = Window(SHORT), Window(LONG)
        self._extents: deque[list[int]] = deque(maxlen=EXTENTS)  # [sequence, longest ns]

    @property
    def writes(self) -> int:
        return self._writes + len(self._new)

    def add(self, size: int, ns: int, clock: Clock, sequence: int) -> None:
        """One write of `size` bytes took `ns`, has just ended, and lay in the extent with this sequence."""
        new = self._new
        new.append((size, ns, sequence))
        if ns > self.time_max:
            self.time_max, self.time_max_at = ns, clock.wall_us()
        if len(new) >= BATCH:
            self._digest()

    def _digest(self) -> None:
        """Bring the windows and maxima up to date, while others may go on to add."""
        with self._digesting:
            batch = self._new[:BATCH]
            del self._new[: len(batch)]
            count = len(batch)
            if not count:
                return
            sizes, times, sequences = zip(*batch, strict=True)
            self._sizes += sizes
            self._times += times
            for window in self._windows:
                window.move(self._times, count)
            del self._sizes[:count], self._times[:count]
            self.time_total += sum(times)
            self.bytes_written += sum(sizes)
            self.size_max = max(self.size_max, *sizes)
            self._writes += count
            if sequences[0] == sequences[-1]:
                self._note(sequences[0], max(times))
            else:
                for ns, sequence in zip(times, sequences, strict=True):
                    self._note(sequence, ns)

    def _note(self, sequence: int, ns: int) -> None:
        """A write in this extent took so long. Extents come in the order of their sequences."""
        extents = self._extents
        if not extents or extents[0][0] != sequence:
            extents.appendleft([sequence, ns])
        elif ns > extents[0][1]:
            extents[0][1] = ns

    def figures(self, bytes_logged: int) -> WriteStats:
        """The figures now; until a window has filled once its maximum is that of what there is."""
        while self._new:
            self._digest()
        short, long = max(1, min(SHORT, self._writes)), max(1, min(LONG, self._writes))
        return WriteStats(
            writes=self._writes,
            bytes_written=self.bytes_written,
            bytes_logged=bytes_logged,
            write_size_short=sum(self._sizes[-SHORT:]) / short,
            write_size_long=sum(self._sizes) / long,
            write_size_max=self.size_max,
            write_time_short=self._short.sum / short / 1000,
            write_time_long=self._long.sum / long / 1000,
            write_time_short_max=self._short.highest / short / 1000,
            write_time_long_max=self._long.highest / long / 1000,
            write_time_max=self.time_max / 1000,
            write_time_max_at=self.time_max_at,
            write_time_total=self.time_total / 1000,
            write_time_max_extents=tuple(ns / 1000 for _, ns in self._extents),
        )
