"""Hardship: the error log hears once that connections can't be taken, until they could be taken for a while."""

from collections.abc import Callable

QUIET_NS = 60_000_000_000  # in which no connection was refused: then the next one is news


class Hardship:
    """That of one listener, whose thread or loop uses it."""

    def __init__(self, ticks: Callable[[], int], say: Callable[[str], None]) -> None:
        """`ticks()` in nanoseconds."""
        self._ticks = ticks
        self._say = say
        self._last: int | None = None

    def met(self, text: str) -> None:
        now, last = self._ticks(), self._last
        self._last = now
        if last is None or now - last >= QUIET_NS:
            self._say(text)
