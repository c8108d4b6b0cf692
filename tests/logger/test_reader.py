"""Reading: spare pages in the place of torn ones, records of several frames, abandoned records, resync."""

import pytest

from logger import at_rest
from logger.disk import PAGE
from logger.errors import LogDamaged
from logger.frame import FILL
from logger.reader import ExtentView
from tests.logger.test_log import EXTENT, append, begun, made
from tests.sim.loss import KEEP_ALL


def test_a_view_shows_the_spare_page_where_home_is_not_written_yet() -> None:
    disk, log = made()
    log.force(append(log, b"partial"))
    path = "/log/active/S0000000.LOG"
    assert disk.peek(path)[3 * PAGE : 3 * PAGE + 8] == bytes(8)  # home is empty
    view = ExtentView(disk.open_read(path), EXTENT, EXTENT, log._seed)
    assert b"partial" in bytes(view.read(EXTENT, PAGE))
    assert list(view.chosen) == [EXTENT]
    assert len(view.read(EXTENT + EXTENT - 100, 5000)) == 100


def test_row_20_a_record_whose_rest_was_lost_is_abandoned_and_overwritten() -> None:
    disk, log = made()
    log.force(append(log, b"whole"))
    append(log, b"L" * 100_000)  # its first frames are written when the buffer is full, its last ones are not
    disk = disk.crash(KEEP_ALL)
    found, log = begun(disk)
    assert found == [b"whole"]
    log.force(append(log, b"next"))
    found, log = begun(disk.crash(KEEP_ALL))
    assert found == [b"whole", b"next"]


def test_reading_from_the_middle_of_a_record_can_find_the_next_one() -> None:
    disk, log = made()
    start = log.buffer.tail
    log.force(append(log, b"L" * 80_000))
    log.force(append(log, b"next"))
    state, reader = at_rest.read_only(disk, "/log")
    frames = [start]
    while True:
        frame = reader._frame(frames[-1])
        if frame is None or len(frames) > 3:
            break
        frames.append(frame.end)
    records = [r for r in reader.records(frames[1], resync=True) if r.kind != FILL]
    assert [bytes(r.body) for r in records] == [b"next"]
    reader.close()
    assert state.head <= start


def test_the_next_one_that_is_found_from_the_middle_may_have_several_frames_itself() -> None:
    disk, log = made()
    start = log.buffer.tail
    bodies = [b"L" * 80_000, b"M" * 80_000, b"next"]
    for body in bodies:
        log.force(append(log, body))
    _, reader = at_rest.read_only(disk, "/log")
    first = reader._frame(start)
    assert first is not None
    assert [bytes(r.body) for r in reader.records(first.end, resync=True) if r.kind != FILL] == bodies[1:]
    reader.close()


def test_damage_is_raised_when_more_is_known_to_have_been_durable() -> None:
    disk, log = made()
    end = append(log, b"x")
    log.force(end)
    state, reader = at_rest.read_only(disk, "/log")
    with pytest.raises(LogDamaged, match="was durable up to"):
        list(reader.records(state.head, durable=end + 8))
    reader.close()
