"""State with its segments: where the files of the queues lie, and which of them nothing refers to any more."""

import contextlib
import errno
from collections.abc import Callable, Iterable

from logger.disk import Disk
from logger.disk_errors import NO_FILE, NO_SPACE
from logger.space import NO_LIMIT
from logger.whole_files import drop_dir
from qmgr import segments
from qmgr.entry import GONE, LOCKED
from qmgr.ids import Arrays
from qmgr.objects import QueueDefinition, mangle
from qmgr.opened import LastOpened
from qmgr.openfiles import OpenFiles
from qmgr.queue import Queue
from qmgr.segment_files import asides, segment_path, segments_below
from qmgr.segment_reader import SegmentReader
from qmgr.segment_writer import SegmentWriter, no_fence
from qmgr.segments import Segment, surplus
from qmgr.state import State

MAX_SEGMENT_NUMBER = (1 << 32) - 1  # no number is used again, and files and log have 32 bits for it
MAX_INDEX_BYTES = 256 << 20  # of arrays that find messages in segments by their ids
WORTHWHILE_BYTES = 16 << 20  # of the disk that a checkpoint is taken for, of one queue or of files to delete


def no_segment_number() -> OSError:
    """There is no number for another segment: as if the disk were full, so that what is there can still be got."""
    return OSError(errno.ENOSPC, "all numbers of segments are used up; move the messages to a new queue manager")


def _is_no_directory(exc: OSError, directory: str) -> bool:
    """Is there a file, or a link to itself, in place of the directory? (A link to nothing may lack a mounted disk.)"""
    return exc.errno == errno.ENOTDIR or (exc.errno == errno.ELOOP and exc.filename == directory)


class Store(State):
    """The queues and units of work of one queue manager, with their segments below `directory`."""

    __slots__ = (
        *("_give_way", "_names_synced", "arrays", "awaited", "buffers", "directory", "disk", "doomed", "doomed_bytes"),
        *("ending", "fence", "files", "gave_up", "log_id", "note_aside", "opened", "pinned", "scarce"),
        *("spare_bytes", "take_room"),
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log_id: bytes,
        give_way: Callable[[], None],
        buffers: tuple[int, int],
        *,
        imaged: bool = False,
    ) -> None:
        """`give_way()` lets others go on, in the middle of long work.

        `buffers`: bytes of non-persistent and of persistent messages that a queue keeps in memory.
        """
        super().__init__(imaged=imaged)
        self._give_way = give_way
        self.awaited: list[None] = []  # one for each caller that waits for a checkpoint
        self.fence = no_fence  # called before each write to a segment: see `Fence`
        self.scarce = False  # the disk has little room: every segment of which most is gone is worth rewriting
        self.spare_bytes: Callable[[], int] = lambda: NO_LIMIT  # bytes of the disk beside what messages in memory need
        self.take_room: Callable[[int, bool], bool] = lambda size, rewrites: True  # (bytes, to rewrite?): reserve them
        self.note_aside: Callable[[str], None] = lambda path: None  # what a checkpoint has set aside
        self.disk = disk
        self.directory = directory
        self.log_id = log_id
        self.buffers = buffers
        self.ending = False  # the next checkpoint is the last one
        self.gave_up = False  # the last one failed: the next one does no more than it has to
        self._names_synced = False  # the directories that are there are there for good
        self.arrays = Arrays(MAX_INDEX_BYTES)
        self.files = OpenFiles(disk)
        self.opened = LastOpened()
        self.doomed: list[tuple[str, int]] = []  # segments that only the checkpoint before the last one refers to
        self.doomed_bytes = 0  # of their files that are not small, but for those that somebody reads
        self.pinned: set[tuple[str, int]] = set()  # segments that somebody reads, whatever becomes of them

    def give_way(self) -> None:
        """Let others go on, unless they wait for this."""
        if not self.awaited:
            self._give_way()

    def new_queue(self, definition: QueueDefinition) -> Queue:
        directory = self.queue_directory(definition.name)
        reader = SegmentReader(self.disk, directory, self.log_id, definition.id, self.files)
        queue = Queue(definition, reader, self.arrays, self.opened, self.buffers)
        queue.take_qmgr_attributes(self.qmgr)
        return queue

    def queue_directory(self, name: str) -> str:
        return f"{self.directory}/{mangle(name)}"

    def path_of(self, name: str, segment: int) -> str:
        """Where a segment of the queue of that name lies."""
        return segment_path(self.queue_directory(name), segment)

    def writer(self, queue: Queue, segment: Segment) -> SegmentWriter:
        """Open a segment, or make it, to append to it. A file where the directory of a new one should be is set aside.

        Raises OSError.
        """
        directory = self.queue_directory(queue.name)
        try:
            return SegmentWriter(self.disk, directory, self.log_id, queue.id, segment, self.fence)
        except OSError as exc:
            aside = "" if segment.cells or not _is_no_directory(exc, directory) else self.set_aside(directory)
            if not aside:
                raise
            self.note_aside(aside)
        return SegmentWriter(self.disk, directory, self.log_id, queue.id, segment, self.fence)

    def make_directories(self, queues: Iterable[Queue]) -> None:
        """Make the directories of these queues that are missing; with one sync all directories are there for good.

        An earlier process may have been killed before its sync. Raises OSError.
        """
        if not self.disk.exists(self.directory):
            return
        for queue in queues:
            path = self.queue_directory(queue.name)
            with contextlib.suppress(OSError):  # whoever writes to it finds out why
                if not self.disk.exists(path):
                    self._names_synced = False
                    self.fence()
                    self.disk.mkdir(path)
        if not self._names_synced:
            self.disk.sync_dir(self.directory)
            self._names_synced = True

    def keep_non_persistent(self) -> None:
        """Ending in order: what lies on queues with NPMCLASS(HIGH) goes into the last checkpoint too."""
        self.ending = True
        for unit in self.uows:  # in doubt: nothing in the log says what it has got of these
            for queue, entry in unit.gets:
                if not entry.persistent and entry.status == LOCKED:
                    entry.status = GONE
                    if entry.segment:
                        queue.segments[entry.segment].mark_gone(entry.cell, len(entry.head) + len(entry.body))
        for queue in self.by_id.values():
            if queue.definition.non_persistent_class == "HIGH":
                queue.changed = True

    def lost_unless_kept(self) -> list[str]:
        """The queues with NPMCLASS(HIGH) that have messages which only the last checkpoint keeps."""
        return [
            queue.name
            for queue in self.by_id.values()
            if queue.definition.non_persistent_class == "HIGH"
            and (queue.memory_bytes[0] or any(len(segment) for segment in queue.segments.values() if segment.volatile))
        ]

    def set_aside(self, path: str) -> str:
        """Give a file a name under which nobody uses or deletes it; return that, or "" if there is no file.

        Raises OSError.
        """
        if not path:
            return ""
        _, aside = asides(self.disk, path)
        try:
            self.disk.rename(path, aside)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        self.disk.sync_dir(path.rsplit("/", 1)[0])
        return aside

    def take_numbers(self, count: int) -> range:
        """`count` numbers for new segments, or as many as there are left. The lock is held."""
        first = self.next_segment
        self.next_segment = max(first, min(first + count, MAX_SEGMENT_NUMBER + 1))
        return range(first, self.next_segment)

    def give_back(self, numbers: list[int]) -> None:
        """Hand out these numbers again: `take_numbers` gave them, and no segment was made. The lock is held."""
        if numbers and self.next_segment == numbers[-1] + 1:
            self.next_segment = numbers[0]

    # ---- segments that nothing refers to

    def unwritten(self) -> int:
        return sum([queue.prune_fresh() for queue in self.by_id.values()])

    def beyond_buffers(self) -> int:
        return sum(
            max(0, held - buffer)
            for queue in self.by_id.values()
            for held, buffer in zip(queue.memory_bytes, queue.buffers, strict=True)
        )

    def wasteful(self) -> bool:
        """Would a checkpoint give back so much of the disk that it is worth one?

        Space that the last checkpoint could not give back does not count: the next one could not either. Called without
        the lock by whoever takes checkpoints.
        """
        if self.retired_bytes + self.doomed_bytes >= WORTHWHILE_BYTES:
            return True
        changed = [queue for queue in list(self.by_id.values()) if queue.changed and queue.segments]
        return any(
            surplus(list(queue.segments.values())) - queue.kept_surplus >= WORTHWHILE_BYTES
            for queue in changed
            if not queue.damaged
        )

    def doom(self, retired: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """The segments whose files can be deleted, now that a checkpoint is complete that does not refer to `retired`.

        The checkpoint before it still may, and counts should this one's file be damaged. So `retired` wait for the next
        call, and what waited since the last one is returned, but for segments that somebody reads.
        """
        ready = [one for one in self.doomed if one not in self.pinned]
        self.doomed = retired + [one for one in self.doomed if one in self.pinned]
        return ready

    def unpin(self, pins: dict[tuple[str, int], int]) -> None:
        """Nobody reads these segments any more; `pins`: bytes of each. A checkpoint deletes those that are doomed."""
        self.pinned -= pins.keys()
        self.doomed_bytes += sum([pins[one] for one in self.doomed if pins.get(one, 0) >= segments.SMALL_SEGMENT_BYTES])

    def remove(self, path: str) -> None:
        """Delete the file of a segment. What lies there and is no file is somebody else's. Raises OSError."""
        try:
            self.disk.unlink(path)
        except OSError as exc:
            if exc.errno not in NO_FILE:
                raise

    def sweep(self) -> None:
        """After the checkpoint of a restart: delete the segments that neither it nor the one before refers to.

        Where the file system ignores case, the queues ORDERS and Orders share a directory; no two of their segments
        have the same number. What a full disk has no room to delete, as its file system copies what it changes, is left
        to the next start.
        """
        directories = {_folded(queue.name) for queue in self.by_id.values()}
        kept = {(_folded(queue.name), number) for queue in self.by_id.values() for number in queue.segments}
        kept |= {(_folded(name), number) for name, number in self.doomed}
        for directory, numbers in segments_below(self.disk, self.directory).items():
            path = f"{self.directory}/{directory}"
            try:
                for number in numbers:
                    if (directory.casefold(), number) not in kept:
                        self.remove(segment_path(path, number))
                if directory.casefold() not in directories:
                    drop_dir(self.disk, path)
            except OSError as exc:
                if exc.errno not in NO_SPACE:
                    raise


def _folded(name: str) -> str:
    """The name of a queue's directory, as compared where case makes no difference."""
    return mangle(name).casefold()
