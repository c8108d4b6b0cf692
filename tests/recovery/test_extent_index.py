"""Extent indexes: they say what a reader would find, at the borders too; whatever is wrong with one, it is rebuilt."""

import errno
import itertools
import random
import struct
import zlib
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.compressed import Compression, compress
from logger.control import ControlState
from logger.errors import LogDamaged
from logger.frame import HEADER
from logger.history import History
from recovery import extent_index, records
from recovery.extent_index import (
    BLOCK_BYTES,
    MAX_NAMED_QUEUES,
    Block,
    ExtentIndex,
    decode,
    encode,
    is_stored,
    load,
    load_or_build,
    queue_of_one_call,
    queues_of,
    ranges,
)
from recovery.records import Kind, Xid
from tests.logger.extents import ACTIVE, EXTENT, ID, name, written_by_the_log
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL

MESSAGES = st.lists(st.binary(max_size=20).map(lambda body: (b"head", body)), min_size=1, max_size=4)
QUEUES = st.integers(1, 1 << 32 - 1)
SEQUENCES = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=4)
XIDS = st.builds(Xid, st.integers(-5, 5), st.binary(min_size=1, max_size=64), st.binary(max_size=64))
RUN = st.one_of(
    st.builds(records.run_of_puts, QUEUES, st.integers(0, 99), MESSAGES).map(b"".join),
    st.builds(records.run_of_gets, QUEUES, SEQUENCES),
)
RUN_OF_FEW = st.one_of(
    st.builds(records.run_of_puts, st.integers(1, 3), st.integers(0, 99), MESSAGES).map(b"".join),
    st.builds(records.run_of_gets, st.integers(1, 3), SEQUENCES),
)
RUNS = st.lists(RUN, max_size=4).map(b"".join)
NUMBERS = st.lists(st.integers(1, 99), max_size=4).map(tuple)
BLOCKS = st.builds(
    Block,
    st.integers(0, 1 << 32),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    NUMBERS,
    NUMBERS | st.none(),
)
RECORD = st.one_of(
    st.builds(records.Put, QUEUES, st.integers(0, 99), st.binary(), st.binary()),
    st.builds(records.PutMany, QUEUES, st.integers(0, 99), MESSAGES),
    st.builds(records.Get, QUEUES, SEQUENCES),
    st.builds(records.Expire, QUEUES, SEQUENCES),
    st.builds(records.Calls, st.integers(1, 99), RUNS),
    st.builds(records.Commit, st.integers(1, 99), st.dictionaries(QUEUES, st.integers(0, 99), max_size=3), RUNS),
    st.builds(records.Backout, st.integers(1, 99), RUNS),
    st.builds(records.Prepare, st.integers(1, 99), XIDS),
    st.builds(records.RollForward, st.integers(1, 99), XIDS, RUNS),
    st.builds(records.Define, QUEUES.map(lambda n: b'{"name": "Q", "id": %d}' % n)),
    st.builds(records.Delete, QUEUES),
    st.builds(records.CheckpointMark, st.just(Kind.START_CHECKPOINT), st.just(b"{}")),
)


def slowly(record: records.Record) -> set[int]:
    """The queues of a record, by decoding all of it."""
    match record:
        case records.Put() | records.PutMany() | records.Get() | records.Expire() | records.Delete():
            return {record.queue}
        case records.Commit():
            return {*record.bases, *(run[0] for run in records.runs(record.runs))}
        case records.Calls() | records.Backout() | records.RollForward():
            return {run[0] for run in records.runs(record.runs)}
        case records.Define():
            return {int(record.definition.split(b": ")[-1][:-1])}
        case _:
            return set()


@given(RECORD)
def test_the_queues_of_a_record_are_those_that_decoding_it_gives(record: records.Record) -> None:
    kind, uow, head, data = record.encode()
    body = memoryview(head + data)
    found: set[int] = set()
    queues_of(kind, body, found)
    assert found == slowly(records.decode(kind, uow, body))


@given(
    st.dictionaries(st.integers(1, 3), st.integers(0, 99), max_size=2),
    st.lists(RUN_OF_FEW, max_size=2).map(b"".join),
)
def test_the_queue_of_one_call_is_the_only_one(bases: dict[int, int], runs: bytes) -> None:
    record = records.Commit(7, bases, runs)
    found = queue_of_one_call(memoryview(b"".join(record.encode()[2:])))
    assert found == 0 or slowly(record) == {found}
    calls = [max(len(put), len(got)) for _, _, put, got in records.runs(runs)]
    if (
        calls == [1]
        and slowly(record) == {*bases} | {one[0] for one in records.runs(runs)}
        and len(slowly(record)) == 1
    ):
        assert bool(found) == (bool(bases) == (runs[0] == 1))


@given(st.sets(st.integers(0, 40)))
def test_ranges_are_the_numbers(numbers: set[int]) -> None:
    found = ranges(numbers)
    assert {n for first, last in found for n in range(first, last + 1)} == numbers
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(found))


# Building


def some_records(count: int, seed: int = 0) -> list[tuple[int, int, bytes]]:
    """Records of several kinds; some are longer than a frame may be, and two longer than an extent."""
    rng = random.Random(seed)
    made: list[records.Record] = []
    for number in range(count):
        message = rng.randbytes(rng.choice((10, 200, 3000, 60_000)))
        if number in (30, 60):
            message = rng.randbytes(int(2.4 * EXTENT))
        unit = (1 << 40) + number
        made.append(
            rng.choice(
                [
                    records.Put(number % 5, number, message),
                    records.Get(5 + number % 3, [number]),
                    records.Calls(unit, b"".join(records.run_of_puts(11, 0, [(message, b"")]))),
                    records.Commit(unit - 1, {12: 4}, records.run_of_gets(13, [1, 2])),
                    records.CheckpointMark(Kind.START_CHECKPOINT, b"{}"),
                ]
            )
            if number not in (30, 60)
            else records.Put(77, number, message)
        )
    return [(kind, uow, head + data) for kind, uow, head, data in (one.encode() for one in made)]


def logged(count: int = 90, seed: int = 0) -> tuple[SimDisk, ControlState, History]:
    disk, state = written_by_the_log(some_records(count, seed))
    return disk, state, History(disk, [ACTIVE, "/log/archive"], ID, EXTENT)


def expected(history: History, state: ControlState, sequence: int) -> ExtentIndex:
    """What the index should be, from every record of the log, decoded."""
    reader = history.reader(state)
    found = [
        (raw.lsn, raw.end, raw.kind, raw.uow, raw.time, slowly(records.decode(raw.kind, raw.uow, raw.body)))
        for raw in reader.records(state.head)
        if sequence * EXTENT <= raw.lsn < (sequence + 1) * EXTENT
    ]
    start = sequence * EXTENT
    view = reader.view(sequence)
    crcs = [crc32(view.read(at, BLOCK_BYTES)) for at in range(start, start + EXTENT, BLOCK_BYTES)]
    reader.close()
    kinds = sorted(one[2] for one in found)
    times = [one[4] for one in found] or [0]
    return ExtentIndex(
        log_id=ID.hex(),
        sequence=sequence,
        taken=history.places()[sequence].taken,
        first_lsn=found[0][0] if found else 0,
        end_lsn=found[-1][1] if found else 0,
        low_time=min(times),
        high_time=max(times),
        kinds={kind: kinds.count(kind) for kind in kinds},
        queues=tuple(sorted(set().union(*(one[5] for one in found)))),
        units=ranges({one[3] for one in found if one[3]}),
        blocks=tuple(
            block([one for one in found if at <= one[0] < at + BLOCK_BYTES], crc)
            for at, crc in zip(range(start, start + EXTENT, BLOCK_BYTES), crcs, strict=True)
        ),
        places=places_of([one[0] for one in found], start),
        subjects=halves([max(one[5]) if len(one[5]) == 1 else 0 for one in found]),
    )


def block(found: list[tuple[int, int, int, int, int, set[int]]], crc: int) -> Block:
    times = [one[4] for one in found] or [0]
    kinds = tuple(sorted({one[2] for one in found}))
    queues = tuple(sorted(set().union(*(one[5] for one in found))))
    return Block(crc, len(found), min(times), max(times), kinds, queues)


def places_of(lsns: list[int], start: int) -> bytes:
    distances = [(after - before) // 8 for before, after in itertools.pairwise([start, *lsns])]
    return halves(distances)


def halves(numbers: list[int]) -> bytes:
    both = [each & 0xFFFF for each in numbers], [each >> 16 for each in numbers]
    return b"".join(struct.pack(f"<{len(half)}H", *half) for half in both)


@pytest.mark.parametrize("seed", range(3))
def test_an_index_says_what_a_reader_of_the_whole_log_finds(seed: int) -> None:
    disk, state, history = logged(seed=seed)
    places = history.places()
    sealed = list(places.values())[:-1]
    before = disk.open_files
    built = {place.sequence: load_or_build(disk, history, state, place) for place in sealed}
    assert built == {place.sequence: expected(history, state, place.sequence) for place in sealed}
    assert any(index.records == 0 for index in built.values())  # in the middle of a long one
    assert any(index.end_lsn > (sequence + 1) * EXTENT for sequence, index in built.items())
    assert disk.open_files == before
    for place in sealed:
        assert load(disk, place, ID) == built[place.sequence]
        assert disk.exists(f"{ACTIVE}/S{place.sequence - 1:07d}.IDX")


def test_an_index_answers() -> None:
    disk, state, history = logged()
    index = load_or_build(disk, history, state, history.places()[1])
    assert index.records == sum(index.kinds.values()) > 0
    assert index.has_queue(13)
    assert not index.has_queue(14)
    low = index.units[0][0]
    assert index.has_unit(low)
    assert not index.has_unit(low - 1)


@pytest.mark.parametrize("kind", list(Compression))
def test_the_index_of_a_compressed_extent_is_the_same(kind: Compression) -> None:
    disk, state, history = logged()
    place = history.places()[2]
    plain = load_or_build(disk, history, state, place)
    compress(disk, place.path, place.path + kind.suffix, kind)
    disk.remove(place.path)
    moved = history.places()[2]
    assert moved.path.endswith(kind.suffix)
    assert load(disk, moved, ID) == plain
    disk.remove(f"{ACTIVE}/S0000001.IDX")
    assert load_or_build(disk, history, state, moved) == plain


def test_row_46_a_damaged_extent_gets_no_index() -> None:
    disk, state, history = logged()
    place = history.places()[2]
    good = disk.peek(place.path)
    disk.poke(place.path, good[:100_000] + b"damage" + good[100_006:])
    with pytest.raises(LogDamaged, match=place.path):
        load_or_build(disk, history, state, place)
    assert not disk.exists(f"{ACTIVE}/S0000001.IDX")


def test_row_42_without_the_extent_in_which_its_last_record_ends_there_is_no_index() -> None:
    disk, state, history = logged()
    places = history.places()
    crossing = next(s for s in places if expected(history, state, s).end_lsn > (s + 1) * EXTENT)
    disk.remove(f"{ACTIVE}/{name(crossing + 1)}")
    with pytest.raises(LogDamaged, match=name(crossing + 1)):
        load_or_build(disk, history, state, places[crossing])


def test_a_record_of_a_later_version_is_named() -> None:
    disk, state = written_by_the_log([(int(Kind.CALLS), 7, b"\x09strange"), (300, 0, bytes(2 * EXTENT))])
    history = History(disk, [ACTIVE], ID, EXTENT)
    with pytest.raises(LogDamaged, match=r"<0:0:4:0> .*a run of kind 9 is not known.*later version"):
        load_or_build(disk, history, state, history.places()[1])


# The file


@given(
    st.dictionaries(st.integers(1, 2000), st.integers(1, 10**6), max_size=5),
    st.sets(st.integers(1, (1 << 32) - 1), max_size=20),
    st.sets(st.integers(1, 1 << 63), max_size=20),
    st.lists(BLOCKS, max_size=5),
    st.lists(st.integers(0, (1 << 32) - 1).map(lambda number: number * 8), max_size=20),
)
def test_an_index_reads_as_it_is_written(
    kinds: dict[int, int], queues: set[int], units: set[int], blocks: list[Block], lsns: list[int]
) -> None:
    index = ExtentIndex(
        log_id=ID.hex(), sequence=7, taken=5, first_lsn=8, end_lsn=16, low_time=1, high_time=2,
        kinds=dict(sorted(kinds.items())), queues=tuple(sorted(queues)), units=ranges(units),
        blocks=tuple(blocks), places=places_of(sorted(lsns), 0), subjects=halves([number % 77 for number in lsns]),
    )  # fmt: skip
    assert decode(encode(index)) == index


def test_row_40_a_damaged_index_is_built_again() -> None:
    disk, state, history = logged()
    place = history.places()[1]
    right = load_or_build(disk, history, state, place)
    path = extent_index.path_of(place)
    good = disk.peek(path)
    bad = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(0, len(good), 7)]
    for data in (*bad, b"", good[:10], good[:-1], good + b"x", bytes(100)):
        disk.poke(path, data)
        assert load(disk, place, ID) is None
    assert load_or_build(disk, history, state, place) == right
    assert disk.peek(path) == good


def test_an_index_of_the_format_before_is_built_again() -> None:
    disk, state, history = logged()
    place = history.places()[1]
    right = load_or_build(disk, history, state, place)
    assert is_stored(disk, place)
    path = extent_index.path_of(place)
    content = b'{"log_id": "00"}'
    rest = len(content).to_bytes(4, "little") + zlib.compress(content)
    disk.poke(path, b"QMGRIDX1" + crc32(rest).to_bytes(4, "little") + rest)
    assert not is_stored(disk, place)
    assert load(disk, place, ID) is None
    assert load_or_build(disk, history, state, place) == right
    assert is_stored(disk, place)


@pytest.mark.parametrize("count", [MAX_NAMED_QUEUES, MAX_NAMED_QUEUES + 1])
def test_the_queues_of_a_block_are_named_unless_there_are_too_many(count: int) -> None:
    bodies = [(int(Kind.GET), 0, records.Get(number, [1]).encode()[2]) for number in range(count)]
    disk, state = written_by_the_log([*bodies, *[(int(Kind.GET), 0, bytes(12))] * 6000])
    history = History(disk, [ACTIVE], ID, EXTENT)
    index = load_or_build(disk, history, state, history.places()[1])
    assert [one.queues for one in index.blocks] == [None if count > MAX_NAMED_QUEUES else tuple(range(count)), (0,)]
    assert index.queues == tuple(range(count))


def test_a_record_at_the_border_of_two_blocks_counts_in_the_one_that_it_begins() -> None:
    """Else who looks for its queue would pass over the block that has it."""
    bodies = [records.Put(queue, 0, b"", b"").encode()[2] for queue in (1, 2)]
    size = 1024 - HEADER.size
    first, second = ((int(Kind.PUT), 0, body.ljust(size, b"x")) for body in bodies)
    disk, state = written_by_the_log([first] * (BLOCK_BYTES // 1024) + [second] * (EXTENT // 1024))
    history = History(disk, [ACTIVE], ID, EXTENT)
    index = load_or_build(disk, history, state, history.places()[1])
    assert [one.queues for one in index.blocks[:2]] == [(1,), (2,)]
    assert index.blocks[0].records == BLOCK_BYTES // 1024


def test_an_index_that_says_that_it_is_larger_than_any_is_none() -> None:
    disk, state, history = logged()
    data = encode(load_or_build(disk, history, state, history.places()[1]))
    assert decode(data) is not None
    for at in (16, 20):
        rest = bytearray(data[12:])
        struct.pack_into("<I", rest, at - 12, extent_index.MAX_PART_BYTES + 1)
        assert decode(data[:8] + struct.pack("<I", crc32(rest)) + rest) is None


def test_row_43_the_index_of_another_extent_is_built_again() -> None:
    disk, state, history = logged()
    places = history.places()
    first, second = (load_or_build(disk, history, state, places[s]) for s in (1, 2))
    disk.poke(f"{ACTIVE}/S0000000.IDX", disk.peek(f"{ACTIVE}/S0000001.IDX"))
    assert load(disk, places[1], ID) is None
    assert load_or_build(disk, history, state, places[1]) == first
    for changed in ({"log_id": "00" * 16}, {"taken": second.taken + 1}):
        fields = {field: getattr(second, field) for field in second.__slots__ if not field.startswith("__")} | changed
        disk.poke(f"{ACTIVE}/S0000001.IDX", encode(ExtentIndex(**fields)))
        assert load(disk, places[2], ID) is None


def test_where_an_index_can_not_be_kept_it_is_told_all_the_same() -> None:
    disk, state, history = logged()
    place = history.places()[1]
    for kind in ("create", "write", "sync", "rename", "sync_dir"):
        disk.fail(kind, errno.ENOSPC, once=False)
        assert load_or_build(disk, history, state, place).records > 0
        disk.heal()
        path = extent_index.path_of(place)
        if disk.exists(path):
            disk.remove(path)
    disk.fail("open", errno.EIO, where=lambda path: path.endswith(".IDX"))
    assert load(disk, place, ID) is None


def test_an_index_that_a_crash_cut_off_is_whole_or_not_there() -> None:
    disk, state, history = logged()
    place = history.places()[1]
    right = load_or_build(disk, history, state, place)
    for loss in (LOSE_ALL, *range(8)):
        assert load(disk.snapshot(loss), place, ID) in (None, right)
