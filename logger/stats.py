"""How large and how slow the writes of the log were: short, long, maximum, and by extent. No files."""

import threading
from collections import deque

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


class LogStats:
    """Fed once for each write; `figures` is asked for rarely."""

    def __init__(self) -> None:
        self._new: deque[tuple[int, int, int]] = deque()  # (size, ns, sequence) not looked at yet
        self._digesting = threading.Lock()
        self._writes = 0
        self.bytes_written = 0
        self.size_max = 0
        self.time_max = 0
        self.time_total = 0
        self.time_max_at = 0
        self._sizes: deque[int] = deque(maxlen=LONG)
        self._times: deque[int] = deque(maxlen=LONG)
        self._short_sum = 0
        self._long_sum = 0
        self._short_max = 0
        self._long_max = 0
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
            new, times, sizes, extents = self._new, self._times, self._sizes, self._extents
            short_sum, long_sum = self._short_sum, self._long_sum
            while new:
                size, ns, sequence = new.popleft()
                if len(times) == LONG:
                    long_sum -= times[0]
                if len(times) >= SHORT:
                    short_sum -= times[-SHORT]
                times.append(ns)
                sizes.append(size)
                long_sum += ns
                short_sum += ns
                self.time_total += ns
                self.bytes_written += size
                self._writes += 1
                if size > self.size_max:
                    self.size_max = size
                if short_sum > self._short_max and len(times) >= SHORT:
                    self._short_max = short_sum
                if long_sum > self._long_max and len(times) == LONG:
                    self._long_max = long_sum
                if not extents or extents[0][0] != sequence:
                    extents.appendleft([sequence, ns])
                elif ns > extents[0][1]:
                    extents[0][1] = ns
            self._short_sum, self._long_sum = short_sum, long_sum

    def figures(self, bytes_logged: int) -> WriteStats:
        """The figures now; until a window has filled once its maximum is that of what there is."""
        self._digest()
        sizes, times = list(self._sizes), list(self._times)
        short, long = max(1, min(SHORT, len(times))), max(1, len(times))
        return WriteStats(
            writes=self._writes,
            bytes_written=self.bytes_written,
            bytes_logged=bytes_logged,
            write_size_short=sum(sizes[-SHORT:]) / short,
            write_size_long=sum(sizes) / long,
            write_size_max=self.size_max,
            write_time_short=self._short_sum / short / 1000,
            write_time_long=self._long_sum / long / 1000,
            write_time_short_max=max(self._short_max, self._short_sum) / short / 1000,
            write_time_long_max=max(self._long_max, self._long_sum) / long / 1000,
            write_time_max=self.time_max / 1000,
            write_time_max_at=self.time_max_at,
            write_time_total=self.time_total / 1000,
            write_time_max_extents=tuple(ns / 1000 for _, ns in self._extents),
        )
