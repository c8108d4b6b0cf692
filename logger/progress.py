"""Callbacks of long work: progress reports, and points at which other threads may run."""

from collections.abc import Callable

Progress = Callable[[int, int], None]  # (bytes done, bytes in total)
GiveWay = Callable[[], None]  # called after each small piece of the work


def no_progress(done: int, total: int) -> None:
    pass


def no_pause() -> None:
    pass
