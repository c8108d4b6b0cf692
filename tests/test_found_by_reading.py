"""Faults that were found by reading the code, each with the scenario that showed it."""

import errno
import shutil
import threading
from pathlib import Path

import pytest

import qmgr
from logger.disk import PAGE
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile
from qmgr.resource import StateSnapshot

SMALL = {"log_primary_files": 2, "log_secondary_files": 1, "log_file_pages": 64}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    qmgr.create("QM1", data_path=path, **SMALL)
    return path


def started(data: Path, **options: object) -> qmgr.QueueManager:
    return qmgr.start("QM1", data_path=data, background=False, **options)  # type: ignore[arg-type]


def filled(data: Path) -> qmgr.QueueManager:
    qm = started(data)
    qm.define_queue("A")
    for n in range(10):
        qm.put("A", b"%d" % n)
    return qm


def bodies(qm: qmgr.QueueManager) -> list[bytes]:
    return [message.body for message in qm.browse("A")]


ALL = [b"%d" % n for n in range(10)]


def test_a_copy_of_the_data_can_neither_start_on_nor_delete_the_log_of_the_original(data: Path, tmp_path: Path) -> None:
    with filled(data) as qm:
        copy = tmp_path / "copy"
        shutil.copytree(data / "qmgrs", copy / "qmgrs")
        with pytest.raises(qmgr.InUse, match="log"):
            started(copy)
        with pytest.raises(qmgr.InUse, match="log"):
            qmgr.delete("QM1", data_path=copy)
        qm.put("A", b"still here")
    with started(data) as qm:
        assert bodies(qm) == [*ALL, b"still here"]


def test_an_interrupt_in_the_end_of_a_checkpoint_loses_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qm = filled(data)

    def interrupted(self: StateSnapshot, lock: threading.Lock) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StateSnapshot, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            qm.checkpoint()
    with pytest.raises(qmgr.Unavailable, match="start it again"):
        qm.put("A", b"after")
    qm.end()
    for _ in range(2):
        with started(data) as qm:
            qm.checkpoint()
            assert bodies(qm) == ALL


def test_a_non_persistent_message_waits_for_the_unit_of_work_that_it_came_in(data: Path) -> None:
    with filled(data) as qm:
        qm.define_queue("B")
        with qm.begin() as unit:
            unit.put("A", b"persistent")
            unit.put("B", b"not", persistent=False)
        entry = qm._engine.state.queues["B"].first()
        assert entry is not None
        assert entry.lsn == qm.status().log.durable


def test_both_spare_pages_damaged_after_a_crash_is_no_torn_tail(data: Path) -> None:
    qm = filled(data)
    for _ in range(10):  # beyond the page that the control file knows to be durable
        qm.put("A", bytes(3000))
    qm.abandon()
    for extent in (data / "log" / "QM1" / "active").iterdir():
        with extent.open("r+b") as file:
            file.seek(PAGE)
            file.write(b"\xa5" * 2 * PAGE)
    with pytest.raises(qmgr.Damaged, match="both spare pages"):
        started(data)


class FailingReads(PosixDisk):
    """Segments can't be read."""

    def open_read(self, path: str) -> PosixFile:
        file = super().open_read(path)
        if path.endswith(".seg"):
            file.close()
            raise OSError(errno.EIO, "Input/output error", path)
        return file


def test_a_read_error_at_restart_refuses_the_start_and_damages_nothing(data: Path) -> None:
    filled(data).end()
    with pytest.raises(qmgr.Unavailable, match="Input/output error"):
        started(data, disk=FailingReads())
    with started(data) as qm:
        assert bodies(qm) == ALL


def test_the_checkpoint_before_finds_its_segments_after_a_restart(data: Path) -> None:
    qm = filled(data)
    qm.checkpoint()
    qm.get_many("A", 10)
    qm.abandon()
    started(data).abandon()  # its checkpoint needs the segment no more
    newest = data / "qmgrs" / "QM1" / "amqalchk.fil"
    newest.write_bytes(newest.read_bytes()[:-1])
    with started(data) as qm:
        assert (qm.queue("A").depth, qm.queue("A").damaged) == (0, "")


def files(data: Path) -> tuple[Path, Path, Path]:
    """The control file and both checkpoint files."""
    home = data / "qmgrs" / "QM1"
    return data / "log" / "QM1" / "amqhlctl.lfh", home / "amqalchk.fil", home / "amqalchk.old"


@pytest.mark.parametrize("since", ["a message", "a checkpoint"])
@pytest.mark.parametrize("checkpoint", ["as it is", "gone", "older, too"])
def test_an_older_control_file_that_says_that_it_ended_in_order_brings_no_message_back(
    data: Path, checkpoint: str, since: str
) -> None:
    """Of non-persistent ones a log tells nothing, so what an end in order has kept counts only if that was the last."""
    with started(data) as qm:
        qm.define_queue("H", non_persistent_class="HIGH")
        qm.put("H", b"x", persistent=False)
    control, newest, previous = files(data)
    ended = control.read_bytes(), newest.read_bytes()
    qm = started(data)
    assert [message.body for message in qm.browse("H")] == [b"x"]
    qm.get("H")
    if since == "a message":
        qm.put("H", b"logged")
    else:
        qm.checkpoint()
    qm.abandon()  # as if it was killed
    control.write_bytes(ended[0])
    if checkpoint != "as it is":
        newest.unlink()
    if checkpoint == "older, too":
        newest.write_bytes(ended[1])
        previous.unlink(missing_ok=True)
    with started(data) as qm:
        assert [message.body for message in qm.browse("H")] == [b"logged"] * (since == "a message")
