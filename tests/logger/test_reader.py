"""Reading: spare pages in the place of torn ones, records of several frames, abandoned records, resync."""

from collections.abc import Sequence

import pytest

from logger import at_rest
from logger.crc import crc32
from logger.disk import PAGE
from logger.errors import LogDamaged
from logger.extent import DATA
from logger.frame import BEGIN, END, FILL, HEADER, WHOLE, encode_into, next_start
from logger.integrity import open_spare, seal_spare
from logger.reader import WINDOW_BYTES, ExtentView, LogReader, first_frame, latest_part, whole_frames
from tests.logger.test_log import EXTENT, ID, append, begun, made
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL


class Laid:
    """Extents whose frames are laid by hand: as crashes, earlier starts and repair can leave them."""

    def __init__(self, *sequences: int) -> None:
        self.files = {sequence: bytearray(DATA + EXTENT) for sequence in sequences}

    def frame(
        self, at: int, body: bytes = b"", *, flags: int = WHOLE, epoch: int = 1, time: int = 0, durable: int = 0
    ) -> int:
        """Lay one at LSN `at`; return where the next one starts."""
        page = memoryview(self.files[at // EXTENT])
        begin, back = DATA + at % EXTENT, (at - durable) // 8
        encode_into(page, begin, crc32(ID), epoch, at, 0, time, back, 300, flags, b"", body)
        return next_start(at + HEADER.size + len(body))

    def reader(self, last_epoch: tuple[int, int] = (0, 0)) -> tuple[SimDisk, LogReader]:
        disk = SimDisk()
        for sequence, content in self.files.items():
            disk.poke(f"/{sequence}", bytes(content))
        return disk, LogReader(
            lambda sequence: disk.open_read(f"/{sequence}") if sequence in self.files else None,
            extent_bytes=EXTENT,
            log_id=ID,
            name=str,
            close=lambda: None,
            last_epoch=last_epoch,
        )

    def read(self, start: int, last_epoch: tuple[int, int] = (0, 0)) -> tuple[Sequence[bytes], LogReader]:
        _, reader = self.reader(last_epoch)
        return [bytes(record.body) for record in reader.records(start)], reader


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


@pytest.mark.parametrize("abandoned", [[BEGIN, WHOLE], [BEGIN, BEGIN, END], [END], [0, END]], ids=str)
def test_row_20_a_record_that_was_abandoned_is_not_joined_with_what_lies_behind_it(abandoned: list[int]) -> None:
    laid = Laid(1)
    at = end = laid.frame(EXTENT, b"whole")
    for flags in abandoned:
        at = laid.frame(at, b"part", flags=flags)
    found, reader = laid.read(EXTENT)
    assert (found, reader.end) == ([b"whole"], end)


def test_row_20_a_record_is_not_joined_with_the_rest_of_another_one() -> None:
    laid = Laid(1)
    end = laid.frame(EXTENT, b"whole")
    laid.frame(laid.frame(end, b"part", flags=BEGIN, time=1), b"rest of another", flags=END, time=2)
    found, reader = laid.read(EXTENT)
    assert (found, reader.end) == ([b"whole"], end)


def test_row_07_what_an_earlier_start_said_was_durable_is_no_damage_where_a_later_one_began_before_it() -> None:
    laid = Laid(1)
    end = laid.frame(EXTENT, b"of the later one", epoch=2)
    laid.frame(EXTENT + PAGE, epoch=1, durable=EXTENT + PAGE)
    found, reader = laid.read(EXTENT, last_epoch=(EXTENT, 2))
    assert (found, reader.end) == ([b"of the later one"], end)
    laid.frame(EXTENT + PAGE, epoch=2, durable=EXTENT + PAGE)
    with pytest.raises(LogDamaged, match="was durable up to"):
        laid.read(EXTENT, last_epoch=(EXTENT, 2))


@pytest.mark.parametrize("next_one", [False, True])
def test_row_46_damaged_spare_pages_hide_nothing_where_the_log_ends_with_its_extent(next_one: bool) -> None:
    """All pages of the extent are home; those of the next one, if it is there, are of an earlier use of the file."""
    laid = Laid(1, 2) if next_one else Laid(1)
    at = EXTENT
    while at < 2 * EXTENT:
        at = laid.frame(at, bytes(PAGE - HEADER.size))
    laid.files[2 if next_one else 1][PAGE:DATA] = b"\1" * (DATA - PAGE)
    found, reader = laid.read(EXTENT)
    assert (len(found), reader.end) == (EXTENT // PAGE, 2 * EXTENT)


@pytest.mark.parametrize("page", [EXTENT - PAGE, EXTENT * 2])
def test_a_spare_page_of_another_use_of_the_file_is_not_looked_for_at_home(page: int) -> None:
    disk, image = SimDisk(), bytearray(PAGE)
    seal_spare(memoryview(image), page, page + 64, 1, crc32(bytes(64), crc32(ID)))
    assert open_spare(bytes(image), crc32(ID)) is not None
    disk.poke("/it", bytes(PAGE) + bytes(image) + bytes(PAGE + EXTENT))
    view = ExtentView(disk.open_read("/it"), EXTENT, EXTENT, crc32(ID))
    assert (view.spares, view.chosen, view.bad_spares) == ({}, {}, 0)


@pytest.mark.parametrize(
    ("place", "at", "size"),
    [
        (0, WINDOW_BYTES - HEADER.size, 0),
        (16, WINDOW_BYTES, 0),
        (0, WINDOW_BYTES - PAGE, 2 * PAGE),
        (8, WINDOW_BYTES - 64, 64),
    ],
    ids=["ends with the first bytes read", "header across their end", "body across their end", "behind an odd place"],
)
def test_a_frame_is_found_once_wherever_the_bytes_that_are_read_at_a_time_end(place: int, at: int, size: int) -> None:
    disk, content, start = SimDisk(), bytearray(DATA + 2 * WINDOW_BYTES), 2 * WINDOW_BYTES
    encode_into(memoryview(content), DATA + at, crc32(ID), 1, start + at, 0, 0, 0, 300, WHOLE, b"", bytes(size))
    disk.poke("/it", bytes(content))
    view = ExtentView(disk.open_read("/it"), start, 2 * WINDOW_BYTES, crc32(ID))
    found = [(this.lsn, len(this.body)) for this in whole_frames(view, start + place, crc32(ID))]
    assert found == [(start + at, size)]


def test_what_is_read_is_no_longer_than_was_asked_for_where_a_spare_page_takes_the_place_of_home() -> None:
    disk, log = made()
    log.force(append(log, b"partial"))
    view = ExtentView(disk.open_read("/log/active/S0000000.LOG"), EXTENT, EXTENT, log._seed)
    page = bytes(view.read(EXTENT, PAGE))
    assert list(view.chosen) == [EXTENT]
    for begin, size in [(0, 100), (40, 100), (PAGE - 8, 8)]:
        assert bytes(view.read(EXTENT + begin, size)) == page[begin : begin + size]


def test_a_spare_page_lies_where_it_belongs_though_the_file_ends_before_that() -> None:
    disk, image = SimDisk(), bytearray(b"s" * PAGE)
    seal_spare(memoryview(image), EXTENT + PAGE, EXTENT + PAGE + 64, 1, crc32(image[:64], crc32(ID)))
    disk.poke("/it", bytes(PAGE) + bytes(image) + bytes(PAGE))
    view = ExtentView(disk.open_read("/it"), EXTENT, EXTENT, crc32(ID))
    assert bytes(view.read(EXTENT, 2 * PAGE)) == bytes(PAGE) + bytes(image)


def test_nothing_behind_the_end_that_is_asked_for_is_read_or_judged() -> None:
    laid = Laid(1)
    end = laid.frame(EXTENT, b"whole")
    laid.frame(EXTENT + PAGE, durable=EXTENT + PAGE)
    disk, reader = laid.reader()
    assert [bytes(record.body) for record in reader.records(EXTENT, durable=end, until=end)] == [b"whole"]
    assert reader.end == end
    beyond = laid.frame(end, b"written meanwhile")  # and no part of it was kept
    disk.open("/1").write(0, bytes(laid.files[1]))
    assert [bytes(record.body) for record in reader.records(end, until=beyond)] == [b"written meanwhile"]


def test_only_the_rest_of_a_record_may_come_before_the_first_one() -> None:
    laid = Laid(1)
    end = laid.frame(laid.frame(EXTENT, flags=END), b"first")
    laid.frame(laid.frame(end, flags=END), b"behind a stray one")
    _, reader = laid.reader()
    assert [bytes(record.body) for record in reader.records(EXTENT, resync=True)] == [b"first"]
    assert reader.end == end


def test_damage_in_a_record_is_told_from_where_that_begins() -> None:
    laid = Laid(1)
    end = laid.frame(EXTENT, b"whole")
    laid.frame(end, b"part", flags=BEGIN)
    laid.frame(EXTENT + PAGE, durable=EXTENT + PAGE)
    with pytest.raises(LogDamaged) as caught:
        laid.read(EXTENT)
    assert (caught.value.lsn, caught.value.durable) == (end, EXTENT + PAGE)


@pytest.mark.parametrize("epochs", [(1, 2), (2, 1)])
def test_the_latest_epoch_of_a_part_is_told_in_whatever_order_its_frames_lie(epochs: tuple[int, int]) -> None:
    laid = Laid(1)
    for page, epoch in enumerate(epochs):
        laid.frame(EXTENT + page * PAGE, epoch=epoch)
    disk, _ = laid.reader()
    assert latest_part(disk.open_read("/1"), EXTENT, crc32(ID)) == (1, 2)


def test_a_part_is_known_by_a_record_across_the_end_of_what_is_read_at_a_time() -> None:
    disk, content, start = SimDisk(), bytearray(DATA + 2 * WINDOW_BYTES), 2 * WINDOW_BYTES
    at = WINDOW_BYTES - 64
    encode_into(memoryview(content), DATA + at, crc32(ID), 7, start + at, 0, 0, 0, 300, WHOLE, b"", bytes(200))
    disk.poke("/it", bytes(content))
    assert latest_part(disk.open_read("/it"), 2 * WINDOW_BYTES, crc32(ID)) == (1, 7)


def test_of_an_extent_without_a_header_the_latest_use_of_its_file_tells_what_it_is() -> None:
    laid, image = Laid(1), bytearray(PAGE)
    laid.frame(EXTENT, b"of an earlier use")
    encode_into(memoryview(image), 0, crc32(ID), 4, 3 * EXTENT, 0, 9, 0, 300, WHOLE, b"", b"")
    seal_spare(memoryview(image), 3 * EXTENT, 3 * EXTENT + 48, 4, crc32(image[:48], crc32(ID)))
    laid.files[1][2 * PAGE : 3 * PAGE] = image
    disk, _ = laid.reader()
    first = first_frame(disk.open_read("/1"), EXTENT, crc32(ID))
    assert first is not None
    assert (first.lsn, first.epoch, first.time) == (3 * EXTENT, 4, 9)
