"""The ring: which extent is taken next, which may go, which must be there."""

import attrs
import pytest

from logger import extent
from logger.circular import Ring
from logger.config import LogType
from logger.control import ControlState
from logger.disk import PAGE
from logger.errors import LogDamaged
from tests.sim.disk import SimDisk

EXTENT = 64 * PAGE
ID = b"i" * 16


def ring(disk: SimDisk, sequences: list[int]) -> Ring:
    made = Ring(disk, "", ID, EXTENT, direct=False)
    for number, sequence in enumerate(sequences):
        header = extent.ExtentHeader(number=number, log_id=ID, sequence=sequence, extent_bytes=EXTENT, epoch=1, time=0)
        made.add(extent.create(disk, "", header))
    return made


def state(table: list[tuple[int, int]], head: int) -> ControlState:
    return ControlState(
        log_id=ID, log_type=LogType.CIRCULAR, extent_bytes=EXTENT, epoch=1, epoch_from=0, head=head * EXTENT,
        checkpoint=0, durable=0, clean_end=0, extents=tuple(table),
    )  # fmt: skip


def test_the_oldest_inactive_extent_is_taken() -> None:
    made = ring(SimDisk(), [5, 3, 4])
    taken = made.take(6, 5, 2, 0)
    assert (taken.number, taken.sequence) == (1, 6)
    assert made.take(7, 5, 2, 0).number == 2
    assert [made.holds(s) for s in (3, 4, 5, 6, 7)] == [False, False, True, True, True]
    assert [e.number for e in made.in_order(5)] == [0, 1, 2]
    before = ((0, 5), (1, 3), (2, 4))
    assert made.table(before) == before, "their headers are not written yet"
    for each in made.in_order(5):
        each.write_header()
    assert made.table(before) == ((0, 5), (1, 6), (2, 7))


def test_no_active_extent_is_ever_taken() -> None:
    made = ring(SimDisk(), [5, 3, 4])
    with pytest.raises(AssertionError):
        made.take(6, 3, 2, 0)


def test_a_secondary_is_spliced_in_at_the_write_point() -> None:
    disk = SimDisk()
    made = ring(disk, [3, 4])
    new = made.make()
    assert (new.number, new.sequence) == (2, 0)
    made.add(new)
    assert made.take(5, 3, 2, 0).number == 2
    assert [e.number for e in made.in_order(3)] == [0, 1, 2]
    assert disk.files() == ["/S0000000.LOG", "/S0000001.LOG", "/S0000002.LOG"]


def test_the_inactive_extent_with_the_highest_number_is_dropped() -> None:
    disk = SimDisk()
    made = ring(disk, [3, 6, 4, 5])
    dropped = made.drop_surplus(5)
    assert dropped is not None
    assert dropped.number == 2
    made.remove_file(dropped)
    assert (len(made), disk.exists("/S0000002.LOG"), made.holds(4)) == (3, False, False)
    assert made.drop_surplus(3) is None
    assert made.make().number == 2  # the gap in the numbers is filled first


def test_row_42_an_extent_that_is_needed_and_not_there_is_named() -> None:
    disk = SimDisk()
    ring(disk, [3, 4])
    disk.remove("/S0000001.LOG")
    again = Ring(disk, "", ID, EXTENT, direct=False)
    with pytest.raises(LogDamaged, match=r"S0000001.LOG is missing") as caught:
        again.open(state([(0, 3), (1, 4)], head=3))
    assert caught.value.lsn == 4 * EXTENT
    other = Ring(disk, "", ID, EXTENT, direct=False)
    other.open(state([(0, 3), (1, 2)], head=3))  # nobody needs what it held
    assert len(other) == 1


def test_row_43_a_stale_copy_of_an_extent_is_refused() -> None:
    disk = SimDisk()
    ring(disk, [3, 4])
    with pytest.raises(LogDamaged, match="stale copy"):
        Ring(disk, "", ID, EXTENT, direct=False).open(state([(0, 3), (1, 9)], head=3))


def test_rows_42_and_43_so_is_the_one_that_holds_the_head() -> None:
    disk = SimDisk()
    ring(disk, [3, 4])
    with pytest.raises(LogDamaged, match="stale copy"):
        Ring(disk, "", ID, EXTENT, direct=False).open(state([(0, 3), (1, 9)], head=9))
    disk.remove("/S0000001.LOG")
    with pytest.raises(LogDamaged, match=r"S0000001.LOG is missing"):
        Ring(disk, "", ID, EXTENT, direct=False).open(state([(0, 3), (1, 4)], head=4))


@pytest.mark.parametrize(("epoch", "sequences"), [(1, [3, 4, 5]), (0, [3, 4])])
def test_a_secondary_that_the_control_file_does_not_know_of_is_one_of_this_epoch(
    epoch: int, sequences: list[int]
) -> None:
    """One of an earlier epoch was let go of, or what it held was declared lost."""
    disk = SimDisk()
    ring(disk, [3, 4])
    unknown = extent.ExtentHeader(number=2, log_id=ID, sequence=5, extent_bytes=EXTENT, epoch=epoch, time=0)
    extent.create(disk, "", unknown)
    again = Ring(disk, "", ID, EXTENT, direct=False)
    again.open(state([(0, 3), (1, 4)], head=3))
    assert again.sequences() == sequences


def test_row_39_another_logs_extent_is_refused() -> None:
    disk = SimDisk()
    ring(disk, [3, 4])
    with pytest.raises(LogDamaged, match="another log"):
        Ring(disk, "", b"j" * 16, EXTENT, direct=False).open(attrs.evolve(state([(0, 3)], head=3), log_id=b"j" * 16))


def test_what_lies_beyond_the_end_is_forgotten() -> None:
    made = ring(SimDisk(), [3, 4, 5])
    made.forget_beyond(4)
    assert made.sequences() == [3, 4]
    assert made.table() == ((0, 3), (1, 4), (2, 0))
    assert made.take(5, 3, 9, 0).number == 2


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_row_07_of_two_extents_that_claim_a_part_the_one_that_took_it_last_counts(order: tuple[int, int]) -> None:
    """The other one was left behind when its records were lost."""
    disk = SimDisk()
    made = Ring(disk, "", ID, EXTENT, direct=False)
    for number, epoch in enumerate(order):
        header = extent.ExtentHeader(number=number, log_id=ID, sequence=3, extent_bytes=EXTENT, epoch=epoch, time=0)
        made.add(extent.create(disk, "", header))
    assert made.at(3).header.epoch == 2
