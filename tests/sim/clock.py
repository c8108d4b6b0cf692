"""SimClock: time moves when told to, and a microsecond at every look, so that no two moments are the same."""

import threading


class SimClock:
    """A Clock whose waits end at once, with the time gone by."""

    def __init__(self, wall_us: int = 1_700_000_000_000_000) -> None:
        self.wall = wall_us
        self.elapsed = 0
        self.waited: list[float] = []  # every wait that took its time, in seconds

    def wall_us(self) -> int:
        self.wall += 1
        return self.wall

    def elapsed_ns(self) -> int:
        return self.elapsed

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        if event.is_set():
            return True
        if seconds is None:
            raise AssertionError("would wait for ever")
        self.waited.append(seconds)
        self.advance(seconds)
        return event.is_set()

    def give_way(self) -> None:
        """There is nobody else."""

    def advance(self, seconds: float) -> None:
        """Let time pass: both clocks move."""
        self.elapsed += int(seconds * 1_000_000_000)
        self.wall += int(seconds * 1_000_000)

    def jump_wall(self, seconds: float) -> None:
        """Somebody sets the clock: the wall time jumps, either way, and nothing has passed."""
        self.wall += int(seconds * 1_000_000)
