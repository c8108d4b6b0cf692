"""Extent files: their names, headers and making."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import extent
from logger.disk import PAGE, Buffer
from logger.extent import DATA, ExtentHeader
from logger.progress import GiveWay, no_pause
from tests.sim.disk import SimDisk, SimFile
from tests.sim.loss import LOSE_ALL

HEADER = ExtentHeader(number=7, log_id=b"i" * 16, sequence=9, extent_bytes=64 * PAGE, epoch=3, time=5)


@given(st.integers(0, 9_999_999))
def test_names_and_numbers(number: int) -> None:
    assert extent.number_of(extent.file_name(number)) == number


@pytest.mark.parametrize("name", ["S1.LOG", "R0000001.LOG", "S0000001.LOG.new", "s0000001.log", ""])
def test_other_names_have_no_number(name: str) -> None:
    assert extent.number_of(name) is None


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**60), st.integers(0, 2**32 - 1), st.integers(0, 2**60), st.data())
def test_headers_come_back_whole_or_not_at_all(
    number: int, sequence: int, epoch: int, time: int, data: st.DataObject
) -> None:
    header = attrs.evolve(HEADER, number=number, sequence=sequence, epoch=epoch, time=time)
    page = bytearray(header.encode())
    assert len(page) == PAGE
    assert extent.decode_header(bytes(page)) == header
    page[data.draw(st.integers(0, extent.HEADER.size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert extent.decode_header(bytes(page)) is None


def test_a_made_extent_is_zeros_at_full_size_and_durable() -> None:
    disk = SimDisk()
    extent.create(disk, "", HEADER)
    found = disk.crash(LOSE_ALL).peek("/S0000007.LOG")
    assert len(found) == DATA + HEADER.extent_bytes
    assert extent.decode_header(found[:PAGE]) == HEADER
    assert found[PAGE:] == bytes(len(found) - PAGE)


@pytest.mark.parametrize("pause", [no_pause, lambda: None], ids=["at once", "while others write"])
def test_row_14_each_byte_of_a_new_extent_has_been_written_so_that_no_record_needs_room_later(
    pause: GiveWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults 14, 54: of a file that only has its length a full disk would find no room in the midst of a commit."""
    written = bytearray(DATA + HEADER.extent_bytes)
    write = SimFile.write

    def seen(self: SimFile, offset: int, data: Buffer) -> None:
        written[offset : offset + len(data)] = b"x" * len(data)
        write(self, offset, data)

    monkeypatch.setattr(SimFile, "write", seen)
    extent.create(SimDisk(), "", HEADER, pause=pause)
    assert written == b"x" * len(written)


def test_row_54_an_extent_that_finds_no_room_leaves_nothing() -> None:
    disk = SimDisk(capacity=20 * PAGE)
    with pytest.raises(OSError, match="No space"):
        extent.create(disk, "", HEADER)
    assert disk.files() == []


def test_row_14_what_an_interrupted_attempt_left_is_replaced() -> None:
    disk = SimDisk()
    disk.poke("/S0000007.LOG", b"half")
    made = extent.create(disk, "", HEADER)
    assert made.file.size() == DATA + HEADER.extent_bytes


def test_a_new_sequence_wipes_the_spare_pages_of_the_last_lap() -> None:
    disk = SimDisk()
    made = extent.create(disk, "", HEADER, direct=False)
    made.file.write(PAGE, b"s" * 2 * PAGE)
    made.take_sequence(30, epoch=4, time=6)
    assert (made.sequence, made.header_written) == (30, False)
    made.write_header()
    found = disk.crash(LOSE_ALL).peek("/S0000007.LOG")
    header = extent.decode_header(found[:PAGE])
    assert header is not None
    assert (header.sequence, header.epoch, header.number) == (30, 4, 7)
    assert found[PAGE:DATA] == bytes(2 * PAGE)
