"""Room on the disk: how far puts may go, so that a checkpoint is possible always, and what it may take beside that."""

import contextlib

from logger.disk import PAGE
from logger.space import NO_LIMIT
from qmgr.engine import Engine

DISK_MARGIN_BYTES = 65536  # that are not counted on: a checkpoint begins new pages


def rewrite_reserve(total: int) -> int:
    """The bytes that puts leave on a disk of `total` bytes, to rewrite a segment of which half is gone."""
    return min(10 << 20, total // 16)  # segments have 16 MiB, and what one checkpoint appends beyond that


class DiskSpace:
    """Shares out what is free on the file system of one queue manager's queues."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._checkpointer = engine.checkpointer
        self._rewrite_reserve = 0  # bytes left of it for the checkpoint under way
        engine.state.spare_bytes, engine.state.take_room = self.spare_bytes, self.take_room

    def limit_puts(self) -> None:
        """Let puts go no further than the disk has room for their messages, and for rewriting a segment.

        A checkpoint that can't be written gives nothing back of what was got, so one has to be possible always.
        """
        log, state = self._engine.log, self._engine.state
        room, total = self._room()
        room -= rewrite_reserve(total)
        with log.lock:
            put_limit, near = self._unwritten_from() + room, log.buffer.tail + log.space.capacity // 8
            if put_limit < near and not self._checkpointer.under_way():  # worth a look at each: many may be gone
                in_memory = state.unwritten() + sum(unit.put_bytes for unit in state.uows)
                put_limit = max(put_limit, log.buffer.tail + room - in_memory)
            if self._checkpointer.under_way():  # it has taken room from puts
                put_limit = min(put_limit, log.space.put_limit)
            state.scarce = put_limit < near
            log.space.set_put_limit(put_limit)

    def begin_checkpoint(self) -> None:
        """The checkpoint that begins now has the whole rewrite reserve."""
        self._rewrite_reserve = rewrite_reserve(self._room()[1])

    def take_room(self, size: int, rewrites: bool) -> bool:
        """Grant a checkpoint `size` bytes of the disk to move what may also stay where it is; False: there is no room.

        The put limit grants all free room to puts already, but for the rewrite reserve. So `rewrites` take from that
        first; the rest lowers the limit, and `limit_puts` does not raise it until the checkpoint is over.
        """
        log = self._engine.log
        with log.lock:
            space = log.space
            kept = min(size, self._rewrite_reserve) if rewrites else 0
            put_limit = space.put_limit - (size - kept)
            taken = put_limit < space.put_limit
            if size > self.spare_bytes() or (taken and log.buffer.tail + space.promised > put_limit):
                return False
            self._rewrite_reserve -= kept
            space.set_put_limit(put_limit)
            return True

    def has_room_for_extent(self) -> bool:
        """Has the disk room for another log extent, beside messages that are in the log only?"""
        log, state = self._engine.log, self._engine.state
        with contextlib.suppress(OSError):
            if state.disk.same_file_system(state.directory, log.config.path) and not log.reusable_bytes():
                return self.spare_bytes() >= log.config.extent_bytes + rewrite_reserve(self._room()[1])
        return True

    def spare_bytes(self) -> int:
        """The bytes that the disk has beside what messages need that are in the log only."""
        return self._room()[0] - (self._engine.log.buffer.tail - self._unwritten_from())

    def _unwritten_from(self) -> int:
        """The LSN from which on messages may be in the log only, less the bytes of those that came before it."""
        return self._engine.log.state.checkpoint - self._checkpointer.in_flight

    def _room(self) -> tuple[int, int]:
        """(bytes free for messages, all bytes) of the file system of the queues; NO_LIMIT where that can't be told.

        What a checkpoint appends to a queue begins a page, so some pages of each queue are not counted as free.
        """
        state = self._engine.state
        with contextlib.suppress(OSError):
            free, total = state.disk.free_bytes(state.directory)
            if total:  # some that are no disks say nothing
                return free - DISK_MARGIN_BYTES - 2 * PAGE * len(state.by_id), total
        return NO_LIMIT, NO_LIMIT
