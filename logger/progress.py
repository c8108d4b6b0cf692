"""Progress: what long work tells its caller on the way, and where it lets others go on."""

from collections.abc import Callable

Progress = Callable[[int, int], None]  # bytes done, and of how many
GiveWay = Callable[[], None]  # called after each small piece of the work


def no_progress(done: int, total: int) -> None:
    pass


def no_pause() -> None:
    pass
