"""Deletions, creations and starts of one queue manager that meet: each sees all of the other one or nothing."""

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger import posix_lock
from logger.posix_disk import PosixDisk
from qmgr import Reason, locations

NAME = "QM1"
PATIENCE = 60


class Pausing(PosixDisk):
    """Waits once, before or behind the call that `at` tells of."""

    def __init__(self, at: Callable[[str, str], bool], *, behind: bool = False) -> None:
        super().__init__()
        self.there, self.goes_on = threading.Event(), threading.Event()
        self._at, self._behind = at, behind

    def _pause(self, call: str, path: str) -> None:
        if not self.there.is_set() and self._at(call, path):
            self.there.set()
            assert self.goes_on.wait(PATIENCE)

    def unlink(self, path: str) -> None:
        if not self._behind:
            self._pause("unlink", path)
        super().unlink(path)
        if self._behind:
            self._pause("unlink", path)

    def rmdir(self, path: str) -> None:
        self._pause("rmdir", path)
        super().rmdir(path)


def create(path: Path) -> None:
    qmgr.create(NAME, data_path=path, log_file_pages=64)


def create_archived(path: Path, name: str, archive: Path) -> None:
    """A queue manager with an extent in an archive of its own."""
    qmgr.create(name, data_path=path, log_type="linear", log_file_pages=64)
    ini = Path(locations.find(name, path).ini)
    ini.write_text(f"{ini.read_text()}\nLogArchive:\n   ArchivePath={archive}\n   ArchiveAfter=0s\n")
    with qmgr.start(name, data_path=path) as qm:
        qm.advance_log()
        qm.checkpoint()
        assert qm.archive_log()


@contextmanager
def deleting(path: Path, disk: Pausing) -> Iterator[list[BaseException]]:
    """A deletion that pauses, and goes on when the block ends; what it raised."""
    raised: list[BaseException] = []

    def delete() -> None:
        try:
            qmgr.delete(NAME, data_path=path, disk=disk)
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        assert disk.there.wait(PATIENCE)
        yield raised
    finally:
        disk.goes_on.set()
        thread.join()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    create(tmp_path)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("A")
        qm.put("A", b"old")
        qm.checkpoint()
    return tmp_path


def every_unlink(path: Path) -> list[str]:
    """What a deletion unlinks, in this order."""
    told: list[str] = []
    disk = Pausing(lambda call, what: told.append(what) or False)  # type: ignore[func-returns-value]
    qmgr.delete(NAME, data_path=path, disk=disk)
    return told


def test_nobody_else_gets_in_as_long_as_anything_is_left_to_be_deleted(made: Path) -> None:
    location = locations.find(NAME, made)
    order = every_unlink(made)
    within = [path for path in order if path.startswith(f"{location.data_dir}/")]
    assert within[-2:] == [location.deleted_ini, location.lock] and order[-1] == location.data_dir
    assert len(within) > 8
    for number in range(len(within)):
        create(made)
        with qmgr.start(NAME, data_path=made) as qm:
            qm.define_queue("A")
            qm.put("A", b"old")
            qm.checkpoint()
        seen: list[str] = []

        def at(call: str, path: str, seen: list[str] = seen, number: int = number) -> bool:
            seen.append(path)
            return sum(one.startswith(f"{location.data_dir}/") for one in seen) == number + 1

        with deleting(made, Pausing(at)) as raised:
            with pytest.raises(qmgr.InUse, match="dltmqm"):
                create(made)
            with pytest.raises(qmgr.Unavailable) as refused:
                qmgr.delete(NAME, data_path=made)
            is_left = os.path.exists(location.deleted_ini)
            assert isinstance(refused.value, qmgr.InUse) if is_left else refused.value.reason == Reason.Q_MGR_NAME_ERROR
            with pytest.raises(qmgr.Unavailable):
                qmgr.start(NAME, data_path=made)
        assert not raised and not os.path.exists(location.data_dir)


@pytest.mark.parametrize("behind", [True, False], ids=["its directory is made anew", "its directory is still there"])
def test_a_queue_manager_that_is_created_as_the_last_one_goes_stays_whole(made: Path, behind: bool) -> None:
    location = locations.find(NAME, made)
    last = ("unlink", location.lock) if behind else ("rmdir", location.data_dir)
    with deleting(made, Pausing(lambda *call: call == last, behind=behind)) as raised:
        with pytest.raises(qmgr.Unavailable) as refused:  # another deletion finds nothing to delete
            qmgr.delete(NAME, data_path=made)
        assert refused.value.reason == Reason.Q_MGR_NAME_ERROR
        create(made)
        qm = qmgr.start(NAME, data_path=made)
        qm.define_queue("NEW")
        qm.put_many("NEW", [b"precious"] * 100)
        qm.checkpoint()
    assert not raised
    qm.end()
    with qmgr.start(NAME, data_path=made) as qm:
        assert [message.body for message in qm.get_many("NEW", 200)] == [b"precious"] * 100


@pytest.mark.parametrize("anew", [True, False])
def test_a_lock_whose_file_was_removed_before_it_was_had_keeps_nobody_out(
    made: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """So it is none: who starts a queue manager that is deleted at that moment owns the next one, or there is none."""
    usual, who = fcntl.flock, threading.current_thread()
    about_to, goes_on = threading.Event(), threading.Event()
    outcome: list[Any] = []

    class Paused:
        LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_SH, fcntl.LOCK_UN

        def __getattr__(self, name: str) -> Any:
            return getattr(fcntl, name)

        def flock(self, fd: int, operation: int) -> None:
            if threading.current_thread() is not who and not about_to.is_set():
                about_to.set()
                assert goes_on.wait(PATIENCE)
            usual(fd, operation)

    def start() -> None:
        try:
            outcome.append(qmgr.start(NAME, data_path=made))
        except qmgr.MQError as exc:
            outcome.append(exc)

    monkeypatch.setattr(posix_lock, "fcntl", Paused())
    starter = threading.Thread(target=start)
    starter.start()
    assert about_to.wait(PATIENCE)
    qmgr.delete(NAME, data_path=made)
    if anew:
        create(made)
    goes_on.set()
    starter.join()
    location, found = locations.find(NAME, made), outcome[0]
    if not anew:
        assert isinstance(found, qmgr.Unavailable) and found.reason == Reason.Q_MGR_NAME_ERROR
        assert not os.path.exists(location.data_dir)
        return
    assert isinstance(found, qmgr.QueueManager), found
    with found:
        assert locations.running(location, PosixDisk()) == f"pid {os.getpid()}"
        with pytest.raises(qmgr.InUse):
            qmgr.start(NAME, data_path=made)


def test_the_end_of_a_deletion_is_waited_for_by_a_creation(tmp_path: Path) -> None:
    """The directory that it has found goes away before it can own it."""
    location = locations.find(NAME, tmp_path)

    class Going(PosixDisk):
        left = 3

        def lock(self, path: str, holder: str, held: Any = None) -> Any:
            if path == location.lock and self.left:
                self.left -= 1
                self.rmdir(location.data_dir)
            return super().lock(path, holder, held)

    disk = Going()
    qmgr.create(NAME, data_path=tmp_path, log_file_pages=64, disk=disk)
    assert not disk.left
    with qmgr.start(NAME, data_path=tmp_path):
        pass


def test_what_an_interrupted_deletion_leaves_is_named_though_it_ends_meanwhile(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = locations.find(NAME, made)
    os.rename(location.ini, location.deleted_ini)

    class Ending(PosixDisk):
        def exists(self, path: str) -> bool:
            found = super().exists(path)
            if found and path == location.deleted_ini:
                os.unlink(path)
            return found

    with pytest.raises(qmgr.AlreadyExists, match=r"the deletion of .* was interrupted; repeat it"):
        qmgr.create(NAME, data_path=made, disk=Ending())


@pytest.mark.parametrize("deep", ["", "/errors/deep/er"])
def test_the_log_of_another_queue_manager_does_not_go_along(tmp_path: Path, deep: str) -> None:
    """As where one was moved there by hand: it has lost all its messages otherwise."""
    create(tmp_path)
    qmgr.create("QM2", data_path=tmp_path, log_file_pages=64)
    with qmgr.start("QM2", data_path=tmp_path) as other:
        other.define_queue("Q")
        other.put("Q", b"kept")
    at = Path(locations.find(NAME, tmp_path).data_dir + deep, "log2")
    at.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "log/QM2").rename(at)
    ini = Path(locations.find("QM2", tmp_path).ini)
    ini.write_text(ini.read_text().replace(f"LogPath={tmp_path}/log/QM2", f"LogPath={at}"))
    with pytest.raises(qmgr.Unavailable, match=f"not deleted: in {at} is the log.*of another queue manager"):
        qmgr.delete(NAME, data_path=tmp_path)
    with qmgr.start("QM2", data_path=tmp_path) as other:
        assert other.get("Q").body == b"kept"
    at.rename(tmp_path / "log/QM2")
    qmgr.delete(NAME, data_path=tmp_path)
    assert not Path(locations.find(NAME, tmp_path).data_dir).exists()


def test_nor_does_an_archive_but_ones_own_does(tmp_path: Path) -> None:
    data = Path(locations.find(NAME, tmp_path).data_dir)
    for name, archive in ((NAME, data / "mine"), ("QM2", data / "other")):
        create_archived(tmp_path, name, archive)
    (data / "linked").symlink_to(tmp_path)  # what it leads to does not go
    (data / "errors/active").write_bytes(b"a name as of a log's directory")
    with pytest.raises(qmgr.Unavailable, match=f"in {data}/other is the log, or an archive of one"):
        qmgr.delete(NAME, data_path=tmp_path)
    shutil.move(data / "other", tmp_path / "other")
    qmgr.delete(NAME, data_path=tmp_path)
    assert not data.exists()


def test_a_deletion_with_an_archive_in_its_directory_goes_on_wherever_it_was_cut_off(tmp_path: Path) -> None:
    """It does not know whose the archive is once its log and checkpoints are gone."""
    data = Path(locations.find(NAME, tmp_path).data_dir)
    create_archived(tmp_path, NAME, data / "mine")

    class CutOff(PosixDisk):
        """Unlinks one file, and no other."""

        unlinked = 0

        def unlink(self, path: str) -> None:
            if os.path.isfile(path) and not path.endswith(".lock"):
                if self.unlinked:
                    raise KeyboardInterrupt
                self.unlinked += 1
            super().unlink(path)

    tries = 0
    while data.exists() and tries < 100:
        tries += 1
        with suppress(KeyboardInterrupt):
            qmgr.delete(NAME, data_path=tmp_path, disk=CutOff())
    assert 5 < tries < 100
