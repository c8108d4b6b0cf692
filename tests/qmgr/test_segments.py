"""Segments: cells in, cells out, by blocks; a page with durable cells is never written again; damage is told."""

import errno
import itertools
import json
import tracemalloc
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.disk import PAGE
from logger.posix_disk import PosixDisk
from qmgr import segment_writer, segments
from qmgr.openfiles import OpenFiles
from qmgr.segment_format import (
    MAX_BLOCK_BYTES,
    SEQUENCE,
    SLOT,
    Block,
    Cell,
    Place,
    cells_of,
    crc_of_cell,
    size_of_cell,
    split_block,
)
from qmgr.segment_reader import SegmentReader
from qmgr.segment_writer import WRITE_BYTES, SegmentWriter
from qmgr.segments import Segment, from_description
from recovery.errors import QueueDamaged
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL

ID = b"i" * 16
PATH = "/q/00000005.seg"
Put = tuple[int, int, bytes]  # priority, when it expires, message
puts = st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 5, 900, 70]), st.binary(max_size=3000))
batches = st.lists(st.lists(puts, min_size=1, max_size=12), min_size=1, max_size=5)


def append(disk: SimDisk, segment: Segment, batch: list[Put], first: int = 1) -> list[tuple[int, int, int, bytes]]:
    """Append messages as a checkpoint does; (sequence, priority, expires, message) by their cells."""
    writer = SegmentWriter(disk, "/q", ID, 7, segment)
    order = sorted((priority, n, expires, message) for n, (priority, expires, message) in enumerate(batch, first))
    written: list[tuple[int, int, int, bytes]] = []
    for priority, n, expires, message in order:
        cell = writer.append(n, priority, expires, message[:5], message[5:])
        assert cell == segment.cells + len(written)
        written.append((n, priority, expires, message))
    writer.write_rest()
    writer.force()
    segment.extend(writer.blocks, writer.length)
    return written


def plain(*messages: bytes) -> list[Put]:
    return [(0, 0, message) for message in messages]


def reader(disk: SimDisk) -> SegmentReader:
    return SegmentReader(disk, "/q", ID, 7, OpenFiles(disk))


def blocks(segment: Segment) -> list[Block]:
    return sorted((block for line in segment.blocks.values() for block in line), key=lambda block: block.cell)


def read(disk: SimDisk, segment: Segment) -> list[Cell]:
    """All cells that are there, in the order of the file, read as a restart does."""
    reader(disk).check(segment)
    cells = [cell for block in blocks(segment) for cell in reader(disk).read(segment, block)]
    return [cell for cell in cells if not segment.is_gone(cell[0])]


def messages(disk: SimDisk, segment: Segment) -> list[bytes]:
    return [message for _, _, message in read(disk, segment)]


def described(segment: Segment) -> Segment:
    return from_description(json.loads(segment.describe()))


@given(batches, st.data())
def test_cells_come_back_over_crashes_but_for_those_that_are_gone(
    batches: list[list[Put]], data: st.DataObject
) -> None:
    disk, segment = SimDisk(), Segment(5)
    written: list[tuple[int, int, int, bytes]] = []
    for batch in batches:
        written += append(disk, segment, batch, len(written) + 1)
        disk = disk.crash(LOSE_ALL)
    gone = data.draw(st.sets(st.integers(0, len(written) - 1)))
    for cell in gone:
        segment.mark_gone(cell, len(written[cell][3]))
    there = [(n, sequence, message) for n, (sequence, _, _, message) in enumerate(written) if n not in gone]
    for one in (segment, described(segment), segment.copy(), described(described(segment.copy()))):
        assert read(disk, one) == there
        assert (len(one), one.cells, one.gone_count) == (len(there), len(written), len(gone))
        assert all(one.is_gone(n) == (n in gone) for n in range(len(written)))
        assert one.live_bytes == (PAGE + sum(size_of_cell(len(message)) for _, _, message in there) if there else 0)
        assert one.blocks == segment.blocks
        assert one.describe() == segment.describe()
    for block in blocks(segment):
        cells = range(block.cell, block.cell + block.cells)
        assert segment.live_in(block) == sum(cell not in gone for cell in cells)
        for place, cell in enumerate(cells):
            expected = (cell, written[cell][0], written[cell][3])
            at = places(disk, segment, block)[place]
            for known in (None, at, at._replace(end=0) if place == block.cells - 1 else at):
                assert reader(disk).read_one(segment, block, cell, known) == expected
            assert reader(disk).find(segment, block, written[cell][0]) == expected
        assert reader(disk).find(segment, block, len(written) + 1) is None


def places(disk: SimDisk, segment: Segment, block: Block) -> list[Place]:
    """Where the cells of a block lie, by a look at all of it."""
    found, at = [], SLOT * block.cells
    for _, sequence, message in reader(disk).read(segment, block):
        found.append(Place(at, at + len(message), crc_of_cell(SEQUENCE.pack(sequence), message)))
        at += len(message)
    assert at == block.size
    return found


@given(st.lists(puts, min_size=1, max_size=40), st.integers(1, 4000), st.integers(1, 9))
def test_several_messages_are_appended_as_one_by_one(batch: list[Put], largest: int, few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_writer, "MAX_BLOCK_BYTES", largest)
        disks, made = [SimDisk(), SimDisk()], [Segment(5), Segment(5)]
        append(disks[0], made[0], [(0, expires, message) for _, expires, message in batch])
        order = sorted((n, expires, message) for n, (_, expires, message) in enumerate(batch, 1))
        writer = SegmentWriter(disks[1], "/q", ID, 7, made[1])
        for at in range(0, len(order), few):
            sequences, expires, messages = zip(*order[at : at + few], strict=True)
            parts = [one[:5] for one in messages], [one[5:] for one in messages]
            assert writer.append_each(0, sequences, expires, *parts) == [len(one) for one in messages]
        writer.write_rest()
        writer.force()
        made[1].extend(writer.blocks, writer.length)
    assert read(disks[1], made[1]) == read(disks[0], made[0])
    assert [block.size <= largest or block.cells == 1 for block in blocks(made[1])].count(False) == 0
    for block in blocks(made[1]):
        there = order[block.cell : block.cell + block.cells]
        assert block.expires == min((expires for _, expires, _ in there if expires), default=0)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.integers(1, 2000))
def test_a_block_falls_into_pieces_that_are_blocks(messages: list[bytes], most: int) -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(*messages), 100)
    (block,) = blocks(segment)
    data = reader(disk).read_block(segment, block)
    found: list[Cell] = []
    for first, count, piece in split_block(data, 7, block.cells, most):
        assert first == 7 + len(found) and count
        assert len(piece) <= most + SLOT + 300
        found += cells_of(piece, first, count)
    assert found == [(7 + n, 100 + n, message) for n, message in enumerate(messages)]


@given(batches)
def test_a_block_has_one_priority_ascending_sequences_and_a_size(batches: list[list[Put]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_writer, "MAX_BLOCK_BYTES", 2000)
        disk, segment = SimDisk(), Segment(5)
        written: list[tuple[int, int, int, bytes]] = []
        for batch in batches:
            starts = len(blocks(segment))
            written += append(disk, segment, batch, len(written) + 1)
            assert blocks(segment)[starts].at % PAGE == 0
    at = cell = 0
    for block in blocks(segment):
        assert block.at >= at
        assert block.cell == cell
        at, cell = block.at + block.size, block.cell + block.cells
        mine = written[block.cell : cell]
        assert {priority for _, priority, _, _ in mine} == {block.priority}
        sequences = [sequence for sequence, _, _, _ in mine]
        assert sequences == sorted(sequences)
        assert (block.first, block.last) == (sequences[0], sequences[-1])
        assert block.size <= 2000 or block.cells == 1
        assert block.expires == min((expires for _, _, expires, _ in mine if expires), default=0)
        assert [found for _, _, found in reader(disk).read(segment, block)] == [message for _, _, _, message in mine]
    assert cell == len(written)
    for line in segment.blocks.values():
        ends = [sequence for block in line for sequence in (block.first, block.last)]
        assert ends == sorted(ends)
        for one, two in itertools.pairwise(line):
            assert one.last < two.first
    for priority in range(5):
        line = segment.blocks.get(priority, [])
        for sequence in range(len(written) + 2):
            first = next((block for block in line if block.last >= sequence), None)
            assert segment.block_with(priority, sequence) == first
        for number, (_, its_priority, _, _) in enumerate(written):
            found = segment.block_of(priority, number)
            assert (found is not None) == (priority == its_priority)
            if found is not None:
                assert found.cell <= number < found.cell + found.cells


def test_blocks_are_filled_before_the_next_one_begins() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(*[bytes(1000)] * 300))
    assert len(segment.blocks[0]) == -(-300 // (MAX_BLOCK_BYTES // (SLOT + 1000)))
    append(disk, segment, plain(bytes(MAX_BLOCK_BYTES), b"small", b"one"), 301)
    assert [block.cells for block in segment.blocks[0][-2:]] == [1, 2]
    assert messages(disk, segment)[-2:] == [b"small", b"one"]


def test_more_than_a_chunk_is_written_in_several_pieces() -> None:
    disk, segment = SimDisk(), Segment(5)
    written = [bytes([n]) * (WRITE_BYTES // 3) for n in range(8)]
    append(disk, segment, plain(*written))
    assert disk.trace.count(("write", PATH)) > 2
    assert messages(disk.crash(LOSE_ALL), segment) == written


def test_what_a_copy_says_does_not_change_with_the_segment() -> None:
    """A checkpoint writes what was, while messages go; it appends to its copy, which the segment learns of later."""
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, [(n % 2, 0, b"%d" % n) for n in range(20)])
    segment.mark_gone(3, 1)
    copy = segment.copy()
    before, blocks_before = copy.describe(), blocks(copy)
    segment.mark_gone(4, 1)
    segment.postpone_expiry(segment.blocks[1][0], 77)
    segment.extend([Block(9000, 40, 20, 1, 1, 21, 21, 0, 0)], 9040)
    assert copy.describe() == before
    assert described(copy).describe() == before
    assert (blocks(copy), copy.gone_count, copy.is_gone(4)) == (blocks_before, 1, False)
    assert (segment.cells, segment.gone_count, segment.blocks[1][0].expires) == (21, 2, 77)
    copy.mark_gone(5, 1)
    copy.extend([Block(9000, 40, 20, 1, 7, 21, 21, 0, 0)], 9040)
    assert not segment.is_gone(5)
    assert 7 not in segment.blocks


def test_a_segment_takes_the_description_of_its_copy_only_while_it_is_the_same() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(b"one", b"two"))
    copy = segment.copy()
    copy.describe()
    segment.described_by(copy)
    assert segment.describe() is copy.describe()
    segment.mark_gone(1, 3)
    segment.described_by(copy)
    assert described(segment).is_gone(1)


def test_volatile_and_expiry_are_part_of_the_description() -> None:
    disk, segment = SimDisk(), Segment(5, volatile=True)
    append(disk, segment, [(0, 50, b"one"), (1, 0, b"two")])
    segment.postpone_expiry(segment.blocks[0][0], 60)
    again = described(segment)
    assert again.volatile
    assert [block.expires for block in blocks(again)] == [60, 0]
    assert not again.sealed


@given(st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)))
def test_what_went_while_a_segment_was_rewritten_is_gone_from_the_new_one(
    before: set[int], meanwhile: set[int], cut: set[int]
) -> None:
    disk = SimDisk()
    halves = [Segment(1), Segment(2)]
    sizes = {}
    for half, segment in enumerate(halves):
        for sequence, _, _, message in append(disk, segment, plain(*[b"x" * (n % 9) for n in range(15)]), 15 * half):
            sizes[sequence] = len(message)
    for sequence in before:
        halves[sequence // 15].mark_gone(sequence % 15, sizes[sequence])
    copies = [segment.copy() for segment in halves]
    new = Segment(5)
    kept: list[Put] = []
    places = []
    for half in range(2):
        moved = array("i", [-1]) * 15
        for sequence in range(15 * half, 15 * half + 15):
            if sequence not in before:
                moved[sequence % 15] = len(kept)
                kept.append((0, 0, b"x" * sizes[sequence]))
        places.append(moved)
    if not kept:
        return
    append(disk, new, kept)
    for sequence in meanwhile - before:
        halves[sequence // 15].mark_gone(sequence % 15, sizes[sequence])
    for half in range(2):
        new.mark_gone_since(halves[half], copies[half], places[half])
    there = [sequence for sequence in range(30) if sequence not in before]
    assert [new.is_gone(n) for n in range(new.cells)] == [sequence in meanwhile for sequence in there]
    assert new.gone_count == len(meanwhile - before)
    by_hand = described(new)
    assert by_hand.gone_bytes == sum(SLOT + sizes[s] for s in meanwhile - before)


def test_row_05_a_batch_never_writes_into_a_page_that_holds_durable_cells() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(b"one", b"two"))
    before = segment.length
    writer = SegmentWriter(disk, "/q", ID, 7, segment)
    writer.append(3, 0, 0, b"three")
    writer._end_block()
    writer._flush()
    assert disk.unsynced() == [PATH]
    for seed in range(40):
        assert messages(disk.snapshot(seed), segment) == [b"one", b"two"]
    writer.write_rest()
    writer.force()
    assert writer.length > before


def test_what_the_checkpoint_does_not_know_is_cut_off() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(b"known"))
    known = described(segment)
    append(disk, segment, plain(b"x" * 9000), 2)
    assert messages(disk, known) == [b"known"]
    append(disk, known, plain(b"again"), 2)
    assert messages(disk, known) == [b"known", b"again"]
    assert len(disk.peek(PATH)) == known.length


def test_a_file_that_no_checkpoint_knows_of_is_made_anew() -> None:
    disk = SimDisk()
    append(disk, Segment(5), plain(b"x" * 9000))
    segment = Segment(5)
    append(disk, segment, plain(b"one"))
    assert messages(disk.crash(LOSE_ALL), segment) == [b"one"]
    assert len(disk.peek(PATH)) == segment.length


@pytest.mark.parametrize("new", [True, False], ids=["new", "known"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_row_63_whose_files_are_anothers_by_now_writes_and_removes_nothing(new: bool, steps: int) -> None:
    """From whichever step on: opened, written, given up."""
    disk, segment, asked = SimDisk(), Segment(5), 0
    append(disk, segment, plain(b"one"))

    def fence() -> None:
        nonlocal asked
        asked += 1
        if asked > steps:
            raise OSError("another process has started this queue manager")

    done: list[int] = []
    with pytest.raises(OSError, match="another process"):
        writer = SegmentWriter(disk, "/q", ID, 7, Segment(5) if new else segment, fence)
        done.append(disk.effects)
        writer.append(2, 0, 0, bytes(9000))
        writer._end_block()
        writer._flush()
        done.append(disk.effects)
        fence()
    if done:
        writer.abandon()
        assert disk.effects == done[-1]
        assert disk.open_files == 0
    else:
        assert messages(disk, segment) == [b"one"]


def test_large_messages_are_written_without_a_copy_of_them(tmp_path: Path) -> None:
    """There may be no memory for one, and a checkpoint that finds none stops the queue manager."""
    writer = SegmentWriter(PosixDisk(), str(tmp_path), ID, 7, Segment(5))
    head, body = bytes(2 * WRITE_BYTES), bytes(8 * WRITE_BYTES)
    tracemalloc.start()
    try:
        writer.append(1, 0, 0, head, body)
        writer.append(2, 0, 0, head[:100], body)
        writer.write_rest()
        assert tracemalloc.get_traced_memory()[1] < WRITE_BYTES // 2
    finally:
        tracemalloc.stop()
    writer.force()


def test_large_and_small_messages_lie_in_their_order() -> None:
    disk, segment = SimDisk(), Segment(5)
    writer = SegmentWriter(disk, "/q", ID, 7, segment)
    sizes = [(3, 0), (5, WRITE_BYTES), (WRITE_BYTES, WRITE_BYTES + 1), (WRITE_BYTES, 2), (9, 70_000), (4, 4), (1, 1)]
    wanted = [(bytes([n]) * head, bytes([n + 100]) * body) for n, (head, body) in enumerate(sizes)]
    for n, (head, body) in enumerate(wanted):
        writer.append(n, 0, 0, head, body)
    writer.write_rest()
    writer.force()
    segment.extend(writer.blocks, writer.length)
    assert messages(disk, segment) == [head + body for head, body in wanted]


def test_what_is_given_up_takes_no_room() -> None:
    disk, segment = SimDisk(), Segment(5)
    writer = SegmentWriter(disk, "/q", ID, 7, Segment(5))
    writer.append(1, 0, 0, b"x")
    writer._end_block()
    writer._flush()
    writer.abandon()
    assert disk.files() == []
    append(disk, segment, plain(b"one"))
    writer = SegmentWriter(disk, "/q", ID, 7, segment)
    writer.append(2, 0, 0, bytes(9000))
    writer._end_block()
    writer._flush()
    writer.abandon()
    assert len(disk.peek(PATH)) == segment.length
    assert messages(disk, segment) == [b"one"]


@pytest.mark.parametrize("kind", ["write", "truncate"])
def test_a_segment_that_can_not_be_begun_leaves_no_file_and_no_descriptor(kind: str) -> None:
    disk, segment = SimDisk(), Segment(5)
    if kind == "truncate":
        append(disk, segment, plain(b"one"))
        SegmentWriter(disk, "/q", ID, 7, segment)._file.write(2 * PAGE, b"of a checkpoint that was not completed")
    before, opened = disk.files(), disk.open_files
    disk.fail(kind, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        SegmentWriter(disk, "/q", ID, 7, segment)
    assert (disk.files(), disk.open_files) == (before, opened)


def test_row_40_every_flip_in_what_counts_is_damage() -> None:
    disk, segment = SimDisk(), Segment(5)
    batch: list[Put] = [(0, 0, b"one"), (0, 0, b"two" * 100), (3, 0, b"three")]
    append(disk, segment, batch)
    whole = disk.peek(PATH)
    places = [*range(64), *range(PAGE, segment.length)]
    told = 0
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 0x10
        disk.poke(PATH, bytes(broken))
        try:
            found = messages(disk, segment)
        except QueueDamaged as exc:
            assert PATH in str(exc)
            told += 1
        else:
            raise AssertionError(f"{place}: {found}")
    assert told == len(places)
    disk.poke(PATH, whole)
    assert len(read(disk, segment)) == 3


@pytest.mark.parametrize("gaps", [False, True], ids=["sequences that follow each other", "others between them"])
@pytest.mark.parametrize("known", [False, True], ids=["with the others", "where it is known to lie"])
def test_row_40_every_flip_is_damage_to_who_reads_one_cell(known: bool, gaps: bool) -> None:
    disk, segment = SimDisk(), Segment(5)
    batch = plain(b"one", b"two" * 100, b"three")
    append(disk, segment, [one for put in batch for one in (put, (1, 0, b"between"))] if gaps else batch)
    block = blocks(segment)[0]
    place_of = places(disk, segment, block) if known else [None] * 3
    whole = disk.peek(PATH)
    told = 0
    for place in range(block.at, block.at + block.size):
        broken = bytearray(whole)
        broken[place] ^= 0x10
        disk.poke(PATH, bytes(broken))
        for cell, message in enumerate((b"one", b"two" * 100, b"three")):
            try:
                found = reader(disk).read_one(segment, block, cell, place_of[cell])
                assert found == (cell, 2 * cell + 1 if gaps else cell + 1, message), place
            except QueueDamaged as exc:
                assert PATH in str(exc)
                told += 1
    messages_and_sequences = 308 + (24 if gaps else 0)
    assert told == (messages_and_sequences if known else 3 * block.size)


def test_row_42_cut_missing_or_foreign_files_are_damage() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(b"one", b"two" * 2000))
    (block,) = blocks(segment)
    whole = disk.peek(PATH)
    for content in (b"", whole[:-1], whole[:-8], whole[:PAGE], bytes(len(whole))):
        disk.poke(PATH, content)
        with pytest.raises(QueueDamaged, match=r"segment /q/00000005\.seg"):
            reader(disk).check(segment)
        with pytest.raises(QueueDamaged, match=r"segment /q/00000005\.seg"):
            list(reader(disk).read(segment, block))
        with pytest.raises(QueueDamaged, match=r"segment /q/00000005\.seg"):
            reader(disk).read_one(segment, block, 1, None)
    disk.poke(PATH, whole)
    for log_id, queue in ((b"j" * 16, 7), (ID, 8)):
        with pytest.raises(QueueDamaged, match="is not segment 5 of this queue"):
            SegmentReader(disk, "/q", log_id, queue, OpenFiles(disk)).check(segment)
    disk.remove(PATH)
    for call in (lambda: reader(disk).check(segment), lambda: list(reader(disk).read(segment, block))):
        with pytest.raises(QueueDamaged, match="missing"):
            call()


def test_an_error_while_reading_is_no_damage() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(b"one"))
    for kind in ("open", "read"):
        disk.fail(kind, 5)
        with pytest.raises(OSError, match="Input/output"):
            reader(disk).check(segment)
        with pytest.raises(OSError, match="Input/output"):
            disk.fail(kind, 5)
            list(reader(disk).read(segment, blocks(segment)[0]))
        disk.heal()
    assert messages(disk, segment) == [b"one"]
    assert disk.open_files == 0


def test_row_44_a_cell_of_another_place_is_damage() -> None:
    disk, segment = SimDisk(), Segment(5)
    append(disk, segment, plain(b"one", b"two"))
    (block,) = blocks(segment)
    whole = disk.peek(PATH)
    one, two = places(disk, segment, block)
    disk.poke(PATH, whole.replace(b"onetwo", b"twoone"))
    with pytest.raises(QueueDamaged, match="is damaged in the 30 bytes from 4096 on"):
        read(disk, segment)
    with pytest.raises(QueueDamaged, match="damaged in cell 0, at byte 4120"):
        reader(disk).read_one(segment, block, 0, one)
    with pytest.raises(QueueDamaged, match="damaged in cell 1, at byte 4123"):
        reader(disk).read_one(segment, block, 1, two)
    with pytest.raises(QueueDamaged, match="damaged in the 30 bytes"):
        reader(disk).find(segment, block, 1)


def test_row_44_a_cell_of_another_segment_is_damage() -> None:
    disk, segment, other = SimDisk(), Segment(5), Segment(6)
    append(disk, segment, plain(b"one"))
    append(disk, other, plain(b"two"))
    (place,) = places(disk, segment, blocks(segment)[0])
    disk.poke(PATH, disk.peek(PATH)[:PAGE] + disk.peek("/q/00000006.seg")[PAGE:])
    with pytest.raises(QueueDamaged, match="damaged in the 15 bytes from 4096 on"):
        read(disk, segment)
    with pytest.raises(QueueDamaged, match="damaged in cell 0, at byte 4108"):
        reader(disk).read_one(segment, blocks(segment)[0], 0, place)


def test_cells_that_are_gone_before_they_are_shown_are_no_bytes_that_are_there() -> None:
    segment = Segment(1)
    segment.make_room(2)
    segment.mark_gone(0, 1000)
    segment.mark_gone(1, 1000)
    assert segment.live_bytes == 0
    assert segments.surplus([segment]) == segment.length, "its header"


@pytest.mark.parametrize("cells", [*range(1, 35), 64, 65])
def test_cells_that_are_gone_together_are_as_cells_that_are_gone_one_by_one(cells: int) -> None:
    for first in range(cells):
        for count in range(1, cells - first + 1):
            together, each = Segment(1), Segment(1)
            for one in (together, each):
                one.make_room(cells)
            run = list(range(first, first + count))
            together.mark_gone_each(run, 7 * count)
            for cell in run:
                each.mark_gone(cell, 7)
            assert (together.gone, together.gone_count, together.gone_bytes) == (each.gone, count, each.gone_bytes)


def test_cells_that_are_gone_in_any_order_are_too() -> None:
    together, each = Segment(1), Segment(1)
    for one in (together, each):
        one.make_room(40)
    for cells in ([5, 3, 9], [30], [12, 11], [39, 1]):
        together.mark_gone_each(cells, 7 * len(cells))
        for cell in cells:
            each.mark_gone(cell, 7)
        assert (together.gone, together.gone_count, together.gone_bytes) == (
            *(each.gone, each.gone_count),
            each.gone_bytes,
        )
