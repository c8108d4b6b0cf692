"""Hardship: a listener that can't accept connections says so once, and again only after a quiet minute."""

from collections.abc import Callable

QUIET_NS = 60_000_000_000  # without trouble, after which the next is news


class Hardship:
    """The troubles of one listener. Not thread-safe: for the listener's own thread or loop."""

    def __init__(self, ticks: Callable[[], int], say: Callable[[str], None]) -> None:
        """`ticks()` in nanoseconds."""
        self._ticks = ticks
        self._say = say
        self._last: int | None = None

    def met(self, text: str) -> None:
        """A connection could not be accepted; `text` says why."""
        now, last = self._ticks(), self._last
        self._last = now
        if last is None or now - last >= QUIET_NS:
            self._say(text)
