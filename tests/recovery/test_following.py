"""A log that is read while it is written: what does not check out is looked at again before it is damage."""

import threading
from itertools import pairwise
from pathlib import Path

import pytest

import qmgr
from logger import at_rest
from logger.config import LogConfig, LogType
from logger.control import ControlState
from logger.control import read as read_control
from logger.disk import PAGE
from logger.errors import LogDamaged, NotInLog
from logger.extent import DATA
from logger.frame import FILL
from logger.log import Log
from logger.posix_disk import PosixDisk
from logger.reader import LogReader
from recovery import dump
from recovery.following import MAX_RETRIES, RETRY_PAUSE_SECONDS, Following
from tests.logger.test_log import EXTENT, Full, append, made
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL

PATH = "/log/active/S0000000.LOG"


def written(count: int) -> tuple[SimDisk, Log, list[int]]:
    """A log with so many records, each forced, and where they end."""
    disk, log = made()
    ends = []
    for n in range(count):
        ends.append(append(log, bytes([65 + n]) * 3000))
        log.force(ends[-1])
    return disk, log, ends


def spoilt(disk: SimDisk, at: int) -> SimDisk:
    """The log as somebody finds it who reads the page of an LSN before it is written, and later ones behind."""
    copy = disk.snapshot(KEEP_ALL)
    place = DATA + at - EXTENT
    data = copy.peek(PATH)
    copy.poke(PATH, data[:place] + bytes(PAGE) + data[place + PAGE :])
    return copy


class Looks:
    """Each look finds the next of these."""

    def __init__(self, *disks: SimDisk) -> None:
        self.left = list(disks)
        self.pauses: list[float] = []

    def __call__(self) -> tuple[ControlState, LogReader]:
        disk = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return at_rest.read_only(disk, "/log")

    def bodies(self) -> tuple[list[bytes], Following]:
        following = Following(self, self.pauses.append)
        found = following.records(lambda state: state.head)
        return [bytes(record.body[:1]) for record in found if record.kind != FILL], following


def test_what_was_not_there_yet_is_read_when_it_is() -> None:
    disk, _, ends = written(12)
    looks = Looks(spoilt(disk, ends[2]), spoilt(disk, ends[2]), disk)
    bodies, following = looks.bodies()
    assert bodies == [bytes([65 + n]) for n in range(12)]
    assert following.end == ends[-1] and looks.pauses == [RETRY_PAUSE_SECONDS, 2 * RETRY_PAUSE_SECONDS]


def test_it_ends_where_the_log_went_when_that_was_met_first() -> None:
    """Else whoever reads more slowly than others write would never come to an end."""
    disk, log, ends = written(12)
    first = spoilt(disk, ends[2])
    for n in range(12, 24):
        ends.append(append(log, bytes([65 + n]) * 3000))
        log.force(ends[-1])
    looks = Looks(first, spoilt(disk, ends[20]))
    bodies, following = looks.bodies()
    assert bodies == [bytes([65 + n]) for n in range(21)]
    assert following.end == ends[20]


def test_what_stays_so_is_damage() -> None:
    disk, _, ends = written(12)
    looks = Looks(spoilt(disk, ends[2]))
    with pytest.raises(LogDamaged, match="is damaged at") as caught:
        looks.bodies()
    assert caught.value.lsn == ends[2] and caught.value.durable > ends[9]
    assert looks.pauses == [RETRY_PAUSE_SECONDS * 2**n for n in range(MAX_RETRIES)]


def test_a_log_that_went_round_meanwhile_says_so() -> None:
    disk, log, ends = written(12)
    first = spoilt(disk, ends[2])
    while log.buffer.tail < 3 * EXTENT:
        try:
            log.force(append(log, bytes(3000)))
        except Full:
            log.move_head(log.buffer.tail, log.buffer.tail)
    log.move_head(log.buffer.tail, log.buffer.tail)
    looks = Looks(first, disk)
    with pytest.raises(NotInLog, match="went round while it was read"):
        looks.bodies()


def test_the_header_of_a_log_that_is_being_written_is_that_of_a_whole_one() -> None:
    disk, _, ends = written(12)
    now = spoilt(disk, ends[2])
    assert "damaged" in dump.header(now, "/log")
    found = dump.header(now, "/log", pause=lambda seconds: now.poke(PATH, disk.peek(PATH)))
    assert found == dump.header(disk, "/log") and "damaged" not in found


def remove_extents(qm: qmgr.QueueManager) -> None:
    """Have the log go on until nothing is left of the extents that it has now."""
    for _ in range(12):
        qm.put_many("A", [bytes(30_000)] * 6)
        qm.get_many("A", 6)
        qm.record_image("A")
        qm.record_definitions()
        qm.checkpoint()
    qm.reduce_log("MAX")


def test_a_linear_log_whose_extents_are_removed_before_they_are_read_is_read_from_its_new_head(tmp_path: Path) -> None:
    disk, reader, control = linear(tmp_path)
    with qmgr.start("QM1", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        before = control.read_bytes()
        remove_extents(qm)
    after = control.read_bytes()

    def pause(seconds: float) -> None:
        control.write_bytes(after)

    control.write_bytes(before)  # as somebody has read it who opens the extents only now
    found = list(dump.dump(disk, str(control.parent), reader=reader, pause=pause))
    assert found and found == list(dump.dump(disk, str(control.parent), reader=reader))
    control.write_bytes(before)
    header = dump.header(disk, str(control.parent), reader=reader, pause=pause)
    assert header == dump.header(disk, str(control.parent), reader=reader) and "damaged" not in header


def test_a_linear_log_whose_extent_is_used_again_while_it_is_read_is_read_from_its_new_head(tmp_path: Path) -> None:
    disk, reader, control = linear(tmp_path)
    with qmgr.start("QM1", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        before = control.read_bytes()
        first = control.parent / "active" / "S0000000.LOG"
        used_again = first.read_bytes()[:PAGE].ljust(first.stat().st_size, b"\1")
        remove_extents(qm)
    after = control.read_bytes()

    def pause(seconds: float) -> None:
        control.write_bytes(after)
        first.unlink(missing_ok=True)

    control.write_bytes(before)
    first.write_bytes(used_again)  # as somebody finds it who has opened it before
    found = list(dump.dump(disk, str(control.parent), reader=reader, pause=pause))
    assert found and found == list(dump.dump(disk, str(control.parent), reader=reader))


def test_a_linear_log_that_goes_on_faster_than_it_is_read_lacks_no_extent(tmp_path: Path) -> None:
    disk, reader, control = linear(tmp_path)
    looks = []
    with qmgr.start("QM1", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        for _ in range(MAX_RETRIES + 1):
            looks.append(control.read_bytes())
            remove_extents(qm)
    now = control.read_bytes()

    def opened() -> tuple[ControlState, LogReader]:
        control.write_bytes(looks.pop(0) if looks else now)  # read too late for its extents, each time
        state = read_control(disk, str(control))[1]
        return state, reader(state)

    following = Following(opened, lambda seconds: None)
    with pytest.raises(NotInLog, match="the log went on while it was read"):
        list(following.records(lambda state: state.head))
    assert not looks


def test_a_linear_log_whose_extents_are_removed_while_they_are_read_says_so(tmp_path: Path) -> None:
    disk, reader, control = linear(tmp_path)
    with qmgr.start("QM1", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        found = dump.dump(disk, str(control.parent), reader=reader)
        next(found)
        remove_extents(qm)
        with pytest.raises(NotInLog, match=r"the log went on while it was read: .* was removed, and it begins at"):
            list(found)


def linear(tmp_path: Path) -> tuple[PosixDisk, dump.ReaderOf, Path]:
    """A disk, what reads a small linear log on it, and the log's control file."""
    qmgr.create(
        "QM1",
        data_path=tmp_path,
        log_type="linear",
        log_management="Automatic",
        log_primary_files=2,
        log_file_pages=64,
    )
    disk, log = PosixDisk(), tmp_path / "log/QM1"
    config = LogConfig(log_type=LogType.LINEAR, file_pages=64, path=str(log))
    return (
        disk,
        lambda state: at_rest.history_of(disk, config, state).reader(state),
        Path(at_rest.control_path(str(log))),
    )


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_records_of_a_queue_manager_at_work_are_told_one_after_the_other(tmp_path: Path, log_type: str) -> None:
    qmgr.create("QM1", data_path=tmp_path, log_type=log_type)
    over = threading.Event()

    def pause(seconds: float) -> None:
        over.wait(seconds)

    def work() -> None:
        while not over.is_set():
            qm.put("A", bytes(200))
            qm.get("A")

    with qmgr.start("QM1", data_path=tmp_path) as qm:
        qm.define_queue("A")
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2):
                found = list(dump.dump(PosixDisk(), f"{tmp_path}/log/QM1", pause=pause))
                assert found and all(one.end <= other.lsn for one, other in pairwise(found))
        finally:
            over.set()
            for thread in threads:
                thread.join()
