"""What the files of a log say, without a control file."""

from collections import Counter

from logger import control
from logger.at_rest import control_path, read_only
from logger.crc import crc32
from logger.disk import PAGE
from logger.extent import DATA, ExtentHeader
from logger.forensics import Evidence, Seen, extent_files, most_common
from logger.reader import latest_part
from tests.logger.test_log import EXTENT, ID
from tests.logger.test_reader import Laid
from tests.sim.disk import SimDisk, SimFile
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
        one.header.sequence: one.path
        for one in extent_files(disk, f"{HOME}/active")
        if one.header and one.header.sequence
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
    for seen in extent_files(disk, f"{HOME}/active"):
        assert seen.header is not None
        file = disk.open_read(seen.path)
        assert latest_part(file, state.extent_bytes, crc32(state.log_id))[0] == seen.header.sequence
        assert latest_part(file, state.extent_bytes, crc32(bytes(16))) == (0, 0)
        file.close()


def test_a_majority_is_more_than_any_other() -> None:
    assert most_common(Counter()) is None
    assert most_common(Counter([b"a", b"b"])) is None
    assert most_common(Counter([b"a", b"b", b"b"])) == b"b"


def seen(header: ExtentHeader | None, size: int = DATA) -> Seen:
    return Seen(path="/it", number=1, size=size, header=header)


def test_an_extent_is_of_a_log_of_the_same_identity_and_size_of_extents_or_may_be_if_it_does_not_say() -> None:
    header = ExtentHeader(number=1, log_id=ID, sequence=1, extent_bytes=EXTENT, epoch=1, time=0)
    assert seen(header).of(ID, EXTENT)
    assert not seen(header).of(ID, 2 * EXTENT)
    assert not seen(header).of(bytes(16), EXTENT)
    assert seen(None).of(ID, EXTENT)
    assert not seen(None, DATA - 1).of(ID, EXTENT)


def test_a_file_of_nothing_but_zeros_is_as_good_as_an_empty_one() -> None:
    disk = SimDisk()
    disk.poke("/S0000001.LOG", bytes(DATA + EXTENT))
    disk.poke("/S0000002.LOG", b"\1" * (DATA + EXTENT))
    assert [(one.number, one.size, one.header) for one in extent_files(disk, "")] == [
        (1, 0, None),
        (2, DATA + EXTENT, None),
    ]


def test_no_frame_before_the_start_is_told_and_the_bytes_up_to_an_end_are_all_and_no_more() -> None:
    laid = Laid(1, 2, 3)
    starts = [EXTENT, EXTENT + PAGE, 2 * EXTENT, 3 * EXTENT]
    for at in starts:
        laid.frame(at, b"frame")
    del laid.files[3][DATA + PAGE :]  # it was cut
    disk, _ = laid.reader()
    told = Evidence(disk, ID, EXTENT, {sequence: f"/{sequence}" for sequence in laid.files})
    for number, at in enumerate(starts):
        assert [frame.lsn for frame in told.frames(at)] == starts[number:]
    assert b"".join(told.up_to(1, EXTENT + PAGE + 20)) == bytes(laid.files[1][DATA : DATA + PAGE + 20])
    assert b"".join(told.up_to(3, 3 * EXTENT + 2 * PAGE)) == bytes(laid.files[3][DATA:]) + bytes(PAGE)
    assert list(told.up_to(4, 5 * EXTENT)) == []


def test_nothing_stays_open_behind_what_was_read() -> None:
    disk, state = lived()
    opened: list[SimFile] = []
    open_read = disk.open_read

    def noted(path: str) -> SimFile:
        opened.append(open_read(path))
        return opened[-1]

    disk.open_read = noted  # type: ignore[method-assign]
    told = evidence(disk, state)
    told.follow(state.head, 0, (state.epoch_from, state.epoch))
    assert list(told.frames(state.head))
    assert list(told.up_to(max(told.paths), (max(told.paths) + 1) * state.extent_bytes))
    assert opened
    assert all(file.closed for file in opened)
