"""Segment files are forced at the same time, and a checkpoint that counts on them comes after all of them."""

import errno
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
from logger import posix_disk
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile, identity
from qmgr import forcing, threads
from tests.qmgr.world import Call

NAME = "QM"
QUEUES = [f"Q{number}" for number in range(2 * forcing.MOST + 3)]
Hook = Callable[[str], None]


class HookedFile(PosixFile):
    hook: Hook
    closed: Hook

    def sync(self) -> None:
        self.hook(self.path)
        super().sync()

    def close(self) -> None:
        if self.fd >= 0:
            self.closed(self.path)
        super().close()


class Hooked(PosixDisk):
    """Calls `hook` with the path of each file or directory of the queues before it is synced."""

    def __init__(self) -> None:
        self.hook: Hook = lambda path: None
        self.events: list[str] = []

    def syncs_at_once(self) -> bool:
        return True

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> PosixFile:
        file = super().open(path, create=create, direct=direct)
        if not path.endswith(".seg"):
            return file
        hooked = HookedFile(os.dup(file.fd), path)
        hooked.hook, hooked.closed = self._sync, self._closed
        file.close()
        hooked.note_identity()
        return hooked

    def _sync(self, path: str) -> None:
        self.hook(path)
        self.events.append(path)

    def _closed(self, path: str) -> None:
        """A file of a queue is closed."""

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.events.append(path)

    def rename(self, old: str, new: str) -> None:
        self.events.append(new)
        super().rename(old, new)


class Scarce(Hooked):
    """Has so many descriptors for files of queues, and for syncs of their directories."""

    def __init__(self, room: int, *, slow: bool) -> None:
        super().__init__()
        self._room = room
        self._slow = slow
        self._lock = threading.Lock()

    def syncs_at_once(self) -> bool:
        return self._slow

    def _take(self, path: str) -> None:
        with self._lock:
            if not self._room:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            self._room -= 1

    def _closed(self, path: str) -> None:
        with self._lock:
            self._room += 1

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> PosixFile:
        if path.endswith(".seg"):
            self._take(path)
        return super().open(path, create=create, direct=direct)

    def sync_dir(self, path: str) -> None:
        self._take(path)
        try:
            super().sync_dir(path)
        finally:
            self._closed(path)


def started(path: Path, disk: Hooked) -> qmgr.QueueManager:
    """A queue manager with a message on each of the queues."""
    qmgr.create(NAME, data_path=path, log_primary_files=2, log_file_pages=64)
    qm = qmgr.start(NAME, data_path=path, disk=disk, background=False)
    for queue in QUEUES:
        qm.define_queue(queue)
        qm.put(queue, queue.encode())
    return qm


def before_the_checkpoint(events: list[str]) -> list[str]:
    """What was synced before the checkpoint's file had its name."""
    return events[: next(n for n, path in enumerate(events) if "amqalchk" in path)]


def descriptors() -> list[int]:
    return [fd for fd in range(100) if identity(fd)]


def assert_all_there(path: Path) -> None:
    with qmgr.start(NAME, data_path=path) as qm:
        assert [qm.get(queue).body.decode() for queue in QUEUES] == QUEUES


@pytest.mark.parametrize("took", [posix_disk.SLOW_SYNC_NS - 1, posix_disk.SLOW_SYNC_NS])
def test_files_are_forced_at_the_same_time_where_the_disk_takes_its_time(
    took: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix_disk, "perf_counter_ns", iter([1000, 1000 + took]).__next__)
    disk = PosixDisk()
    assert not disk.syncs_at_once(), "nothing is known of it"
    disk.sync_dir(str(tmp_path))
    assert disk.syncs_at_once() == (took >= posix_disk.SLOW_SYNC_NS)


def test_so_many_files_are_forced_at_the_same_time(tmp_path: Path) -> None:
    disk = Hooked()
    qm = started(tmp_path, disk)
    together = threading.Barrier(forcing.MOST)
    count = iter(range(forcing.MOST))

    def hook(path: str) -> None:
        if next(count, None) is not None:
            together.wait(60)  # raises where fewer come

    disk.hook = hook
    qm.checkpoint()
    qm.abandon()
    assert_all_there(tmp_path)


def test_a_process_that_may_have_few_descriptors_forces_fewer_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Hooked()
    monkeypatch.setattr(disk, "max_descriptors", lambda: 3 * forcing.SHARE)
    qm = started(tmp_path, disk)
    running, most, lock = [0], [0], threading.Lock()

    def hook(path: str) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02)
        with lock:
            running[0] -= 1

    disk.hook = hook
    qm.checkpoint()
    assert 1 <= most[0] <= 3
    qm.abandon()
    assert_all_there(tmp_path)


@pytest.mark.parametrize("with_threads", [True, False])
def test_a_checkpoint_is_put_in_its_place_after_all_files_and_their_names_are_durable(
    with_threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Hooked()
    qm = started(tmp_path, disk)
    disk.events.clear()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        if not with_threads:
            patch.setattr(threads.Thread, "start", start)
        qm.checkpoint()
    before = before_the_checkpoint(disk.events)
    assert sorted(path for path in before if path.endswith(".seg")) == sorted(
        str(path) for path in tmp_path.rglob("*.seg")
    )
    assert {str(path.parent) for path in tmp_path.rglob("*.seg")} < set(before)
    assert len({path for path in before if path.endswith(".seg")}) == len(QUEUES)
    assert before.count(str(tmp_path / "qmgrs" / NAME / "queues")) == 1  # for the directories that were made in it
    qm.abandon()
    assert_all_there(tmp_path)


@pytest.mark.parametrize("queue", [QUEUES[5], QUEUES[forcing.MOST + 1]])
@pytest.mark.parametrize(("number", "error"), [(errno.EIO, qmgr.Unavailable), (errno.ENOSPC, qmgr.StorageFull)])
def test_row_11_where_one_of_them_fails_the_checkpoint_does_and_the_next_one_has_all(
    number: int, error: type[qmgr.MQError], queue: str, tmp_path: Path
) -> None:
    """Without room the queue manager goes on; with a sync that failed for any other reason it ends."""
    disk = Hooked()
    qm = started(tmp_path, disk)

    def hook(path: str) -> None:
        if f"/{queue}/" in path:
            raise OSError(number, os.strerror(number), path)

    disk.hook = hook
    before = descriptors()
    with pytest.raises(error, match=os.strerror(number)):
        qm.checkpoint()
    assert descriptors() == before
    disk.hook = lambda path: None
    if number == errno.ENOSPC:
        for name in QUEUES:
            qm.put(name, name.encode())
            assert qm.get(name).body == name.encode()
        qm.checkpoint()
    qm.abandon()
    assert_all_there(tmp_path)


def test_row_11_what_was_appended_to_a_file_that_can_not_be_found_ends_the_queue_manager(tmp_path: Path) -> None:
    """The file holds more than that: to write only this anew would lose the rest."""
    disk = Hooked()
    qm = started(tmp_path, disk)
    qm.checkpoint()
    for queue in QUEUES:
        qm.put(queue, bytes(9000))

    def hook(path: str) -> None:
        if f"/{QUEUES[5]}/" in path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    disk.hook = hook
    with pytest.raises(qmgr.Unavailable, match=os.strerror(errno.ENOENT)):
        qm.checkpoint()
    qm.abandon()
    disk.hook = lambda path: None
    with qmgr.start(NAME, data_path=tmp_path, disk=disk) as again:
        assert all(len(list(again.browse(queue))) == 2 for queue in QUEUES)


def test_row_11_where_there_is_no_room_what_was_appended_is_taken_back(tmp_path: Path) -> None:
    disk = Hooked()
    qm = started(tmp_path, disk)
    qm.checkpoint()
    [file] = (tmp_path / "qmgrs" / NAME / "queues" / QUEUES[5]).iterdir()
    size = file.stat().st_size
    for queue in QUEUES:
        qm.put(queue, bytes(9000))
    sizes: list[int] = []

    def hook(path: str) -> None:
        if path == str(file):
            sizes.append(file.stat().st_size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    disk.hook = hook
    with pytest.raises(qmgr.StorageFull):
        qm.checkpoint()
    assert sizes[0] > size == file.stat().st_size
    qm.abandon()
    assert_all_there(tmp_path)


def test_row_65_an_interrupt_waits_for_the_files_that_are_being_forced(tmp_path: Path) -> None:
    disk = Hooked()
    qm = started(tmp_path, disk)
    events: list[str] = []

    def hook(path: str) -> None:
        if not events:
            events.append("struck")
            time.sleep(0.2)  # by then the main thread waits
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.2)
        events.append("forced")

    disk.hook = hook
    with pytest.raises(KeyboardInterrupt):
        qm.checkpoint()
    at_the_interrupt = len(events)
    time.sleep(0.5)
    assert at_the_interrupt == len(events) > 1
    disk.hook = lambda path: None
    qm.abandon()
    assert_all_there(tmp_path)


def test_row_57_a_checkpoint_does_not_wait_for_threads_that_find_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Hooked()
    qm = started(tmp_path, disk)

    def die(thread: threading.Thread) -> None:
        raise MemoryError

    with monkeypatch.context() as scarce:
        scarce.setattr(threads, "LOOK_S", 0.01)
        scarce.setattr(threading, "excepthook", lambda told: None)
        scarce.setattr(threading.Thread, "run", die)
        with pytest.raises(MemoryError):
            Call(qm.checkpoint).outcome()
    qm.abandon()
    assert_all_there(tmp_path)


@pytest.mark.parametrize("room", [1, 3, forcing.MOST])
@pytest.mark.parametrize("slow", [True, False])
def test_one_free_descriptor_is_enough(slow: bool, room: int, tmp_path: Path) -> None:
    """A checkpoint that needs more would fail again and again where clients have taken all others: the log fills."""
    disk = Scarce(room, slow=slow)
    qm = started(tmp_path, disk)
    qm.checkpoint()
    for queue in QUEUES:
        qm.put(queue, b"more")
    qm.checkpoint()
    qm.abandon()
    assert_all_there(tmp_path)


@pytest.mark.parametrize("queues", [QUEUES, QUEUES[:1]], ids=["with others", "alone"])
def test_where_the_directory_of_one_goes_it_is_written_anew(queues: list[str], tmp_path: Path) -> None:
    """The queue manager ended: mend the disk and start it again."""
    disk = Hooked()
    qm = started(tmp_path, disk)
    qm.checkpoint()
    for queue in queues:
        qm.delete_queue(queue, purge=True)
        qm.define_queue(queue)
    qm.checkpoint()
    for queue in queues:
        qm.put(queue, queue.encode())
    gone: list[str] = []

    def hook(path: str) -> None:
        if f"/{queues[0]}/" in path and not gone:
            gone.append(path)
            shutil.rmtree(os.path.dirname(path))

    disk.hook = hook
    disk.events.clear()
    before = descriptors()
    qm.checkpoint()
    assert len(gone) == 1
    assert descriptors() == before
    [written] = (tmp_path / "qmgrs" / NAME / "queues" / queues[0]).iterdir()
    synced = before_the_checkpoint(disk.events)
    assert {str(written), str(written.parent), str(written.parent.parent)} <= set(synced)
    for queue in queues:
        qm.put(queue, b"more")
    qm.checkpoint()  # what is lost is not among what this one says
    qm.abandon()
    assert_all_there(tmp_path)
