"""Indexes by id: those of entries in memory, and the sorted arrays of segments within their bound."""

from array import array
from collections.abc import Set
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmgr import ids, message
from qmgr.entry import Entry, read_entry
from qmgr.ids import (
    CORRELATION_ID,
    MESSAGE_ID,
    Arrays,
    IndexArray,
    IndexUpdate,
    MemoryIndex,
    Unindexed,
    extended_index,
    packed_place,
    with_bloom,
)
from qmgr.segments import Segment


def tag(n: int) -> bytes:
    return n.to_bytes(24, "big")


def entry(sequence: int, key: int, priority: int = 0) -> Entry:
    head = message.describe(priority, True, correlation_id=tag(key)).head(tag(sequence), 0)
    made = read_entry(head, b"x")
    made.sequence = sequence
    return made


def position(one: Entry) -> tuple[int, int]:
    return -one.priority, one.sequence


# -- in memory -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 20)), max_size=60))
def test_entries_with_an_id_are_found_in_the_order_of_delivery(steps: list[tuple[bool, int, int]]) -> None:
    """Added twice, or removed twice: it makes no difference."""
    every = [entry(n, n % 4, n % 3) for n in range(21)]
    index = MemoryIndex(CORRELATION_ID, every[:5], position)
    there = set(range(5))
    for add, _, n in steps:
        if add:
            index.add(every[n])
            there.add(n)
        else:
            index.remove(every[n])
            there.discard(n)
        assert len(index) == len(there)
        for key in range(4):
            expected = sorted((every[n] for n in there if n % 4 == key), key=position)
            assert list(index.get(tag(key))) == expected
    assert len(index._found) == len({n % 4 for n in there})


def test_of_many_with_one_id_those_behind_a_place_are_given_whatever_is_added_meanwhile() -> None:
    every = [entry(n, 5, n % 3) for n in range(1, 501)]
    index = MemoryIndex(CORRELATION_ID, every[:400], position)
    ordered = sorted(every[:400], key=position)
    for place in (0, 1, 63, 64, 65, 200, 398, 399):
        assert list(index.get(tag(5), position(ordered[place]))) == ordered[place + 1 :]
    given = index.get(tag(5))
    first = next(given)
    for one in every[400:]:
        index.add(one)
    for one in ordered[:3]:
        index.remove(one)
    left = list(given)
    assert first is ordered[0] and set(left) >= set(ordered[64:])
    assert sorted(left, key=position) == left


def test_an_index_is_of_one_of_the_ids() -> None:
    one = entry(5, 7)
    assert list(MemoryIndex(MESSAGE_ID, [one], position).get(tag(5))) == [one]
    assert list(MemoryIndex(MESSAGE_ID, [one], position).get(tag(7))) == []
    assert list(MemoryIndex(CORRELATION_ID, [one], position).get(tag(7))) == [one]


# -- in segments ---------------------------------------------------------------------------------------------------


Held = Set[tuple[int, int]]  # segments and cells


class Files:
    """Segments whose cells have these keys, and who reads them."""

    def __init__(self, *keys: list[int]) -> None:
        self.keys = dict(enumerate(keys, 1))
        self.segments = [Segment(number) for number in self.keys]
        self.grow()
        self.read: list[tuple[int, int, int]] = []  # segment, which id, from which cell on

    def grow(self, arrays: Arrays | None = None) -> None:
        if arrays is not None:
            arrays.invalidate()
        for segment in self.segments:
            segment.cells = len(self.keys[segment.number])
            segment.gone.extend(bytes(segment.cells - len(segment.gone)))

    def hashes(self, segment: Segment, which: int, known: IndexArray) -> IndexUpdate:
        first = len(known.numbers)
        self.read.append((segment.number, which, first))
        cells = list(enumerate(self.keys[segment.number]))[first:]
        return extended_index(
            known, [(crc32(tag(key + 100 * which)), packed_place(512 + 64 * n, key)) for n, key in cells]
        )

    def found(
        self, arrays: Arrays, key: int, which: int = MESSAGE_ID, first: int = 0, held: Held = frozenset()
    ) -> dict[int, list[int]]:
        """The cells that have the key, by their segments."""
        hits = arrays.hits(self, self.segments, which, tag(key + 100 * which), self.hashes)
        found = {s.number: list(arrays.cells(s, which, made, at, first, held)) for s, made, at in hits}
        return {number: cells for number, cells in found.items() if cells}


def bytes_of(arrays: Arrays) -> int:
    return sum(made.size for made in arrays._arrays.values())


def test_cells_are_found_by_the_hash_of_their_id() -> None:
    files, arrays = Files([1, 2, 1, 3], [3, 4]), Arrays(1 << 20)
    assert files.found(arrays, 1) == {1: [0, 2]}
    assert files.found(arrays, 3) == {1: [3], 2: [0]}
    assert files.found(arrays, 9) == {}
    assert files.found(arrays, 4, CORRELATION_ID) == {2: [1]}
    assert files.read == [(1, 0, 0), (2, 0, 0), (1, 1, 0), (2, 1, 0)]
    assert arrays.bytes == bytes_of(arrays) == 6 * (8 + 8 + 8) + 2 * (8 + 4)


def test_a_search_that_needs_more_than_the_bound_keeps_what_it_can_and_reads_the_rest() -> None:
    """Each time: where the oldest had to go for the next one, none was left when the search came round to it."""
    one = 4 * (8 + 8) + 8  # bytes of a segment's arrays
    files, arrays = Files(*([n, n + 1, n + 2, 7] for n in range(0, 100, 10))), Arrays(6 * one)
    elsewhere = Files([900, 901, 902, 903])
    elsewhere.segments = [Segment(77)]
    elsewhere.keys = {77: elsewhere.keys[1]}
    elsewhere.grow()
    assert elsewhere.found(arrays, 900) == {77: [0]}
    for _ in range(3):
        files.read.clear()
        assert files.found(arrays, 7) == {number: [3] for number in range(1, 11)}
        assert files.found(arrays, 31) == {4: [1]}
        assert files.found(arrays, 91) == {10: [1]}
        assert files.found(arrays, 500) == {}
        assert bytes_of(arrays) == arrays.bytes <= arrays.bound
    assert {number for number, *_ in files.read} == {7, 8, 9, 10}
    assert elsewhere.found(arrays, 901) == {77: [1]}
    assert [number for number, *_ in elsewhere.read] == [77, 77], "those of others go first"


def test_more_than_the_bound_that_an_interrupt_has_left_holds_nobody_up() -> None:
    """All of it may be what the next search needs; what is learnt then is not kept."""
    files, arrays = Files([1, 2], [3, 4]), Arrays(1 << 20)
    assert files.found(arrays, 1) == {1: [0]}
    arrays.bound = arrays.bytes - 1
    files.keys[3] = [1, 5]
    files.segments.append(Segment(3))
    files.grow(arrays)
    for _ in range(2):
        assert files.found(arrays, 1) == {1: [0], 3: [0]}
        assert bytes_of(arrays) == arrays.bytes


def test_only_what_a_segment_has_grown_by_is_read() -> None:
    files, arrays = Files([1, 2]), Arrays(1 << 20)
    assert files.found(arrays, 1) == {1: [0]}
    files.keys[1] += [1, 5]
    files.grow(arrays)
    assert files.found(arrays, 1) == {1: [0, 2]}
    assert files.found(arrays, 5) == {1: [3]}
    assert files.read == [(1, 0, 0), (1, 0, 2)]
    assert arrays.bytes == bytes_of(arrays)


def test_where_cells_begin_is_known_of_those_that_were_read() -> None:
    files, arrays = Files([1, 2, 3]), Arrays(1 << 20)
    (segment,) = files.segments
    assert arrays.place(segment, 1) is None
    files.found(arrays, 1)
    assert [arrays.place(segment, n) for n in range(4)] == [(512, 576, 1), (576, 640, 2), (640, 0, 3), None]


def test_nothing_is_read_where_that_is_not_wanted() -> None:
    files, arrays = Files([1, 2]), Arrays(1 << 20)
    with pytest.raises(Unindexed):
        arrays.hits(files, files.segments, MESSAGE_ID, tag(1), None)
    learnt = files.hashes(files.segments[0], MESSAGE_ID, arrays.known(files.segments[0], MESSAGE_ID))
    arrays.learn(files.segments[0], MESSAGE_ID, learnt, {})
    assert len(arrays.hits(files, files.segments, MESSAGE_ID, tag(1), None)) == 1
    again = learnt._replace(now=extended_index(learnt.now, [(7, 7)]).now)
    arrays.learn(files.segments[0], MESSAGE_ID, again, {})  # somebody else has learnt it meanwhile
    assert arrays.known(files.segments[0], MESSAGE_ID) is learnt.now
    assert files.found(arrays, 1) == {1: [0]}
    with pytest.raises(Unindexed):
        arrays.hits(files, files.segments, CORRELATION_ID, tag(1), None)


def test_cells_that_are_gone_are_passed_over_once() -> None:
    """Many messages with one id, got one by one."""
    files, arrays = Files([7] * 200 + [8]), Arrays(1 << 20)
    (segment,) = files.segments
    for cell in range(200):
        assert files.found(arrays, 7) == {1: list(range(cell, 200))}
        segment.mark_gone(cell, 0)
    assert files.found(arrays, 7) == {}
    assert max(reached for _, reached in arrays._gone_runs.values()) > 150
    assert files.found(arrays, 8) == {1: [200]}
    files.keys[1] += [7, 6]
    files.grow(arrays)
    assert files.found(arrays, 7) == {1: [201]}
    segment.mark_gone(201, 0)
    assert files.found(arrays, 7) == {}


def test_cells_that_are_held_are_passed_over_until_they_are_looked_at_again() -> None:
    files, arrays = Files([7] * 60), Arrays(1 << 20)
    held = {(1, cell) for cell in range(30, 60)}
    assert files.found(arrays, 7, first=30, held=held) == {}
    assert files.found(arrays, 7, first=10, held=held) == {1: list(range(10, 30))}
    assert files.found(arrays, 7, first=40) == {}
    arrays.invalidate()
    assert files.found(arrays, 7, first=40) == {1: list(range(40, 60))}


def test_beyond_the_bound_arrays_are_dropped_and_made_again() -> None:
    files, arrays = Files(*[[n, n + 50] for n in range(10)]), Arrays(5 * 24)
    for turn in range(3):
        for n in range(10):
            assert files.found(arrays, n) == {n + 1: [0]}
            assert arrays.bytes == bytes_of(arrays) <= 5 * 24
        assert len(files.read) >= 10 * (turn + 1)
    before = len(files.read)
    arrays.bound = 1 << 20
    files.found(arrays, 1)
    files.found(arrays, 2)
    assert len(files.read) <= before + 10


def test_a_bound_that_is_too_small_for_one_segment_does_no_harm() -> None:
    files, arrays = Files([1, 2, 3], [3, 4]), Arrays(0)
    for _ in range(3):
        assert files.found(arrays, 3) == {1: [2], 2: [0]}
        assert len(arrays._arrays) <= 2
    arrays.drop(2)
    arrays.drop(1)
    assert arrays.bytes == bytes_of(arrays) == 0


def test_the_arrays_of_a_segment_that_is_no_more_are_dropped() -> None:
    files, arrays = Files([1, 2], [3]), Arrays(1 << 20)
    files.found(arrays, 1)
    files.found(arrays, 1, CORRELATION_ID)
    arrays.drop(1)
    assert arrays.bytes == bytes_of(arrays) == 1 * (8 + 8 + 8) + 2 * 2
    arrays.drop(1)
    arrays.drop(2)
    assert arrays.bytes == 0


@given(st.sets(st.integers(0, (1 << 64) - 1), min_size=1))
def test_a_bloom_filter_lets_each_number_through_and_stops_most_others(numbers: set[int]) -> None:
    made, shift, bloom = with_bloom(array("Q", sorted(numbers)))
    marks = [mark for number in numbers for mark in (number >> shift, (number >> 32) % (8 * len(bloom)))]
    assert all(bloom[mark >> 3] >> (mark & 7) & 1 for mark in marks)
    assert sum(byte.bit_count() for byte in bloom) <= len(set(marks))
    assert len(made) <= len(bloom) <= 2 * len(made)
    assert len(bloom) * 8 << shift == 1 << 64


STEP = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 5), st.integers(0, 9))


@given(st.lists(STEP, max_size=60), st.integers(0, 200))
def test_any_history_finds_the_same_cells(steps: list[tuple[int, int, int, int]], bound: int) -> None:
    """Segments grow, cells go or are held for a while, arrays are dropped: what is found is what is there."""
    files, arrays = Files([0, 1] * 5, [1, 1, 2] * 3), Arrays(bound)
    held: set[tuple[int, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "MIN_GONE_RUN", 1)
        for number, key, what, first in steps:
            segment = files.segments[number]
            cell = segment.number, first % segment.cells
            if what == 0:
                files.keys[number + 1] += [key, key + 1]
                files.grow(arrays)
            elif what == 1 and not segment.is_gone(cell[1]):
                segment.mark_gone(cell[1], 0)
            elif what == 2:
                held.add(cell)
            elif what == 3 and cell in held:
                held.remove(cell)
                arrays.invalidate()
            expected = {
                one.number: [
                    n
                    for n, k in enumerate(files.keys[one.number])
                    if k == key and n >= first and not one.is_gone(n) and (one.number, n) not in held
                ]
                for one in files.segments
            }
            found = files.found(arrays, key, what % 2, first, held)
            assert found == {number: cells for number, cells in expected.items() if cells}
            assert arrays.bytes == bytes_of(arrays)
