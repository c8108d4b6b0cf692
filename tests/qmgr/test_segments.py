"""Segments: cells in, cells out; a page with durable cells is never written again; damage is told from the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.disk import PAGE
from qmgr import segments
from qmgr.segments import LARGEST, Segment, SegmentWriter, from_description, read_cells
from recovery.errors import QueueDamaged
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL

ID = b"i" * 16
PATH = "/q/00000005.seg"
batches = st.lists(st.lists(st.binary(max_size=3000), min_size=1, max_size=6), min_size=1, max_size=5)


def append(disk: SimDisk, segment: Segment, messages: list[bytes], first: int = 1) -> None:
    writer = SegmentWriter(disk, "/q", ID, 7, segment)
    for n, message in enumerate(messages, first):
        writer.append(n, n % 3, message)
    writer.finish()
    segment.extend(writer.cells, writer.length)


def read(disk: SimDisk, segment: Segment) -> list[segments.Cell]:
    return list(read_cells(disk, "/q", ID, 7, segment))


@given(batches, st.data())
def test_cells_come_back_over_crashes_but_for_those_that_are_gone(
    written: list[list[bytes]], data: st.DataObject
) -> None:
    disk, segment = SimDisk(), Segment(5)
    all_: list[bytes] = []
    for batch in written:
        append(disk, segment, batch, len(all_) + 1)
        all_ += batch
        disk = disk.crash(LOSE_ALL)
    gone = data.draw(st.sets(st.integers(0, len(all_) - 1)))
    for cell in gone:
        segment.mark_gone(cell)
    segment = from_description(segment.describe())
    assert segment.gone_count == len(gone)
    found = read(disk, segment)
    assert [(c.number, c.sequence, c.backouts, c.message) for c in found] == [
        (n, n + 1, (n + 1) % 3, message) for n, message in enumerate(all_) if n not in gone
    ]
    assert all(segment.is_gone(n) == (n in gone) for n in range(len(all_)))


def test_row_05_a_batch_never_writes_into_a_page_that_holds_durable_cells() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, [b"one", b"two"])
    before = segment.length
    writer = SegmentWriter(disk, "/q", ID, 7, segment)
    writer.append(3, 0, b"three")
    writer._flush()
    assert disk.unsynced() == [PATH]
    for seed in range(40):
        assert [cell.message for cell in read(disk.snapshot(seed), segment)] == [b"one", b"two"]
    writer.finish()
    assert writer.length > before


def test_what_the_checkpoint_does_not_know_is_cut_off() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, [b"known"])
    known = from_description(segment.describe())
    append(disk, segment, [b"x" * 9000], 2)
    assert [cell.message for cell in read(disk, known)] == [b"known"]
    append(disk, known, [b"again"], 2)
    assert [cell.message for cell in read(disk, known)] == [b"known", b"again"]


def test_row_40_every_flip_in_what_counts_is_damage() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, [b"one", b"two" * 100])
    whole = disk.peek(PATH)
    places = [*range(64), *range(PAGE, segment.length)]
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 0x10
        disk.poke(PATH, bytes(broken))
        try:
            found = [cell.message for cell in read(disk, segment)]
        except QueueDamaged as exc:
            assert PATH in str(exc)
        else:
            assert found == [b"one", b"two" * 100], place  # a gap between cells
    disk.poke(PATH, whole)
    assert len(read(disk, segment)) == 2


def test_row_42_cut_missing_or_foreign_files_are_damage() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, [b"one", b"two"])
    whole = disk.peek(PATH)
    for content in (b"", whole[:-1], whole[:PAGE], bytes(len(whole))):
        disk.poke(PATH, content)
        with pytest.raises(QueueDamaged, match=r"segment /q/00000005\.seg"):
            read(disk, segment)
    disk.poke(PATH, whole)
    for log_id, queue in ((b"j" * 16, 7), (ID, 8)):
        with pytest.raises(QueueDamaged, match="is not segment 5 of this queue"):
            list(read_cells(disk, "/q", log_id, queue, segment))
    disk.remove(PATH)
    with pytest.raises(QueueDamaged, match="missing"):
        read(disk, segment)


def test_row_44_a_cell_of_another_place_is_damage() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, [b"one", b"two"])
    whole = bytearray(disk.peek(PATH))
    size = (segments.CELL.size + 3 + 7) // 8 * 8
    whole[PAGE : PAGE + size], whole[PAGE + size : PAGE + 2 * size] = (
        whole[PAGE + size : PAGE + 2 * size], whole[PAGE : PAGE + size],
    )  # fmt: skip
    disk.poke(PATH, bytes(whole))
    with pytest.raises(QueueDamaged, match="cell 0"):
        read(disk, segment)


def test_a_segment_fills_up() -> None:
    disk = SimDisk()
    writer = SegmentWriter(disk, "/q", ID, 7, Segment(5))
    seen = [writer.full]
    for n in range(LARGEST // (1 << 20) + 1):
        writer.append(n, 0, bytes(1 << 20))
    seen.append(writer.full)
    assert seen == [False, True]
    writer.abandon()
