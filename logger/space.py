"""Reservation: log bytes used, promised and free; when the log is full. Pure arithmetic: no files, no threads.

`used` is what lies between the first byte of the extent that holds the head and the tail, since extents are given back
whole. `promised` is what the units of work in flight will need to end: their commit or backout record and, for a unit
that may be prepared, the rolled-forward copy of its records. Work is accepted only while used + promised fits into the
extents that exist, so commit and backout never find the log full.
"""

RESERVE_PERCENT = 20  # of the active log: kept free for ending work and for checkpoints
EXTENT_WASTE_BYTES = 2048  # what the end of an extent may lose to padding
CHECKPOINT_PERCENT = 67  # of the extents that exist, so that puts have room while one is taken
FOR_GETS_PERCENT = 10  # of the active log, where no put goes: with the disk full, messages can still be taken
NO_LIMIT = 1 << 64  # beyond every LSN
CHECKPOINT_BYTES = 16384  # what the records of a checkpoint and of the release sequence may need


class Space:
    """The log's room. All values in bytes of the log stream."""

    def __init__(self, extent_bytes: int, max_files: int, files: int, floor: int) -> None:
        self._extent = extent_bytes
        self._max_files = max_files
        self.floor = floor  # first LSN of the extent that holds the head
        self.promised = 0
        self.limit = 0  # no record may end beyond limit - promised
        self.largest = self.capacity // 2  # bytes that one call may log
        self.largest_doubtful = self.capacity * 3 // 8  # in a unit of work that may be rolled forward: logged twice
        self.for_gets = 0  # bytes below the limit that puts leave alone
        self.put_limit = NO_LIMIT  # no put goes beyond this LSN: the disk may have no room for its message later
        self.checkpoint_at = 0  # beyond this LSN a checkpoint is taken that moves the head
        self.soft = 0  # beyond this LSN the release sequence runs
        self.set_files(files)

    def set_files(self, files: int) -> None:
        """`files` extents exist now."""
        self.files = files
        self._set_limits()

    def set_floor(self, floor: int, files: int) -> None:
        """The head moved into the extent that begins at `floor`, and so many extents exist."""
        assert floor >= self.floor
        self.floor = floor
        self.set_files(files)

    def set_put_limit(self, put_limit: int) -> None:
        """How far puts may go, for the disk that their messages will move to."""
        self.put_limit = put_limit
        self._set_limits()

    def _set_limits(self) -> None:
        self.limit = self._limit(self.files)
        self.for_gets = max(self.usual_for_gets, self.limit - self.put_limit)
        self.checkpoint_at = self.floor + self.files * self._extent * CHECKPOINT_PERCENT // 100
        self.soft = self.floor + self.capacity * (100 - RESERVE_PERCENT) // 100

    def _limit(self, files: int) -> int:
        return self.floor + files * (self._extent - EXTENT_WASTE_BYTES) - CHECKPOINT_BYTES

    @property
    def capacity(self) -> int:
        """All that the configured primaries and secondaries can hold."""
        return self._max_files * self._extent

    @property
    def usual_for_gets(self) -> int:
        """The bytes below the limit that puts leave alone where the disk has room."""
        return self.files * self._extent * FOR_GETS_PERCENT // 100

    def used(self, tail: int) -> int:
        return tail - self.floor

    def fits(self, tail: int, size: int, promise: int) -> bool:
        """Is there room for `size` bytes now and `promise` bytes later?"""
        return tail + size + self.promised + promise <= self.limit

    def fits_for_checkpoint(self, tail: int, size: int) -> bool:
        """The same, with the room that is kept for checkpoints."""
        return tail + size + self.promised <= self.limit + CHECKPOINT_BYTES

    def would_fit(self, tail: int, files: int) -> bool:
        """Would a tail there, and what is promised, fit into `files` extents?"""
        return tail + self.promised <= self._limit(files)

    def next_check(self, tail: int) -> int:
        """The LSN at which the room in the log has to be checked again."""
        return max(self.checkpoint_at, tail + self._extent // 16)

    def can_grow(self) -> bool:
        return self.files < self._max_files
