"""What the files of a log say, without a control file."""

from collections import Counter

from logger import control
from logger.at_rest import control_path, read_only
from logger.crc import crc32
from logger.forensics import Evidence, look, most_common
from logger.reader import latest_part
from tests.sim.disk import SimDisk
from tests.sim.life import LOG, NAME, Life, Setup
from tests.sim.loss import KEEP_ALL
from tests.test_crash import born, laps

HOME = f"{LOG}/{NAME}"


def lived() -> tuple[SimDisk, control.ControlState]:
    life = Life(Setup(primary_files=3, secondary_files=2))
    born(life)
    laps(life, 1.4)
    life.put("A", size=30000)  # several frames
    disk = life.disk.crash(KEEP_ALL)
    return disk, control.read(disk, control_path(HOME))[1]


def evidence(disk: SimDisk, state: control.ControlState) -> Evidence:
    paths = {
        one.header.sequence: one.path for one in look(disk, f"{HOME}/active") if one.header and one.header.sequence
    }
    return Evidence(disk, state.log_id, state.extent_bytes, paths)


def test_a_chain_ends_where_a_restart_ends() -> None:
    disk, state = lived()
    _, reader = read_only(disk, HOME)
    count = sum(1 for _ in reader.records(state.head))
    reader.close()
    chain = evidence(disk, state).follow(state.head, 0, (state.epoch_from, state.epoch))
    assert (chain.end, chain.records, chain.damage) == (reader.end, count, None)


def test_every_whole_frame_is_found_once() -> None:
    disk, state = lived()
    found = [frame.lsn for frame in evidence(disk, state).frames(state.head)]
    assert found == sorted(set(found))
    _, reader = read_only(disk, HOME)
    starts = {record.lsn for record in reader.records(state.head)}
    reader.close()
    assert starts <= set(found)


def test_an_extent_without_a_header_is_known_by_its_records() -> None:
    disk, state = lived()
    for seen in look(disk, f"{HOME}/active"):
        assert seen.header is not None
        file = disk.open_read(seen.path)
        assert latest_part(file, state.extent_bytes, crc32(state.log_id))[0] == seen.header.sequence
        assert latest_part(file, state.extent_bytes, crc32(bytes(16))) == (0, 0)
        file.close()


def test_a_majority_is_more_than_any_other() -> None:
    assert most_common(Counter()) is None
    assert most_common(Counter([b"a", b"b"])) is None
    assert most_common(Counter([b"a", b"b", b"b"])) == b"b"
