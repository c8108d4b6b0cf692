"""When what happened on a STOMP connection, and what is overdue there. Pure arithmetic: no socket, no clock."""

import attrs


@attrs.frozen(kw_only=True)
class Timing:
    """Seconds."""

    connect: float = 10.0  # until CONNECT is accepted
    frame: float = 60.0  # for a frame that was begun to be complete; for a slow client to read anything
    beat: float = 1.0  # the shortest time between two heart-beats of ours
    wanted_beat: float = 10.0  # the shortest time between two of the client's that we ask for
    tolerance: float = 2.0  # times the agreed time without a word from a client, and it is gone
    linger: float = 2.0  # for a client to read the ERROR that ends its connection
    tick: float = 0.25  # how often each connection's times are looked at


@attrs.define
class Times:
    """Moments of one connection, in seconds by the loop's clock; 0: there is none."""

    timing: Timing
    received_at: float
    sent_at: float
    deadline: float  # to be connected by then; while closing, to be closed
    frame_began: float = 0.0  # of one that is incomplete
    stalled_since: float = 0.0  # when the client last read some of what waits for it, if that is much
    beat: float = 0.0  # seconds between two heart-beats of ours; 0: none
    wanted_beat: float = 0.0  # the same of the client's
    _progress: tuple[int, int] = 0, 0

    def agree(self, *, offered: float, wanted: float) -> None:
        """On heart-beats: those that the client can send, and those that it wants."""
        self.beat = max(wanted, self.timing.beat) if wanted else 0.0
        self.wanted_beat = max(offered, self.timing.wanted_beat) if offered else 0.0

    def excuse(self, seconds: float, now: float) -> None:
        """The loop stood still for so long: what the client has said or read meanwhile is not seen yet."""
        self.received_at = min(now, self.received_at + seconds)
        self.deadline = self.deadline and self.deadline + seconds
        self.frame_began = self.frame_began and min(now, self.frame_began + seconds)
        self.stalled_since = self.stalled_since and min(now, self.stalled_since + seconds)

    def hear_again(self, now: float) -> None:
        """The client was not heard for a while: what it said meanwhile comes now."""
        self.received_at = now
        self.frame_began = self.frame_began and now

    def await_end(self, now: float, progress: tuple[int, int], *, waits: bool) -> None:
        """The client has been told the last; `waits`: it has not read all of it. `progress` as for `has_read`."""
        self._progress = progress
        self.deadline = now + (self.timing.frame if waits else self.timing.linger)

    def has_read(self, progress: tuple[int, int]) -> bool:
        """Has the client read something since this was called last? `progress` changes whenever it does."""
        before, self._progress = self._progress, progress
        return progress != before

    def is_over(self, now: float) -> bool:
        """Is the deadline past?"""
        return 0 < self.deadline <= now

    def is_frame_late(self, now: float) -> bool:
        return 0 < self.frame_began <= now - self.timing.frame

    def is_silent(self, now: float) -> bool:
        return self.wanted_beat > 0 and now >= self.received_at + self.wanted_beat * self.timing.tolerance

    def is_beat_due(self, now: float) -> bool:
        return self.beat > 0 and now >= self.sent_at + self.beat - 2 * self.timing.tick
