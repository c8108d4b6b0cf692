"""The clock: wall time, elapsed time and waiting. Nothing else imports `time`."""

import datetime
import functools
import time
from typing import Protocol


def moment(us: int) -> str:
    """A moment of wall time for people, UTC: `2026-11-21 14:30:00.000`."""
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=us)).isoformat(" ", "milliseconds")


class Awaited(Protocol):
    """What is waited for: a `threading.Event`, or one that is safe from interrupts (`condition.py`)."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None, /) -> bool: ...


class Clock(Protocol):
    """What the queue manager knows of time. Tests give one that moves when told to."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; may jump either way."""
        ...

    def elapsed_ns(self) -> int:
        """Nanoseconds since some fixed moment; never goes back."""
        ...

    def wait(self, event: Awaited, seconds: float | None) -> bool:
        """Wait until `event` is set, or for `seconds` (None: for ever); return whether it is set."""
        ...

    def give_way(self) -> None:
        """Let other threads go on that wait for Python's lock; for long work without any input or output."""
        ...


class SystemClock:
    """The machine's own clock."""

    def wall_us(self) -> int:
        now = time.time_ns() // 1000
        return now if now > 0 else 1  # no format has a moment before 1970, and 0 is one that is not known

    # Called twice for each force: without a function of ours in between. While a machine is suspended Linux's monotonic
    # clock stands still; but messages expire then, and another machine may start the queue manager on a shared disk.
    elapsed_ns = staticmethod(
        functools.partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
        if hasattr(time, "CLOCK_BOOTTIME")
        else time.monotonic_ns
    )

    def wait(self, event: Awaited, seconds: float | None) -> bool:
        return event.wait(seconds)

    def give_way(self) -> None:
        time.sleep(0)
