"""The log buffer: frames in, runs of pages out; together the runs are the stream."""

import tracemalloc
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import frame, lsn
from logger.buffer import LogBuffer, _taken
from logger.disk import PAGE, Buffer
from logger.errors import LogClosed

EXTENT = 64 * PAGE
SEED = crc32(b"log")


class Stream:
    """A buffer, and all that it has handed over."""

    def __init__(self, pages: int = 9, tail: int = EXTENT) -> None:
        self.held = bytearray()
        self.start = tail
        size = pages * PAGE
        self.buffer = LogBuffer(
            (memoryview(bytearray(size)), memoryview(bytearray(size))),
            extent_bytes=EXTENT, seed=SEED, epoch=3, tail=tail, partial=b"",
            make_room=self.make_room,
        )  # fmt: skip

    def make_room(self) -> None:
        self.take(partial=False)

    def take(self, *, partial: bool) -> None:
        run = self.buffer.take(partial=partial)
        assert run.base % PAGE == 0
        assert len(run.pages) % PAGE == 0
        at = run.base - self.start
        self.held[at : at + len(run.pages)] = run.pages

    def frames(self) -> list[frame.Frame]:
        found, at = [], self.start
        while at < self.buffer.tail:
            one = frame.decode(memoryview(self.held), at - self.start, at, SEED)
            assert one is not None, lsn.text(at)
            found.append(one)
            at = (at // EXTENT + 1) * EXTENT if one.kind == frame.PAD else one.end
        return found


@pytest.mark.parametrize("sizes", [(5000, 3, 5000), (9000, 9000), (40_000, 1, 40_000, 30_000)])
def test_bytes_in_several_places_are_logged_as_if_they_were_in_one(sizes: tuple[int, ...]) -> None:
    """In one frame, or in several: the largest are more than the buffer has."""
    parts = [bytes([n]) * size for n, size in enumerate(sizes, 1)]
    apart, joined = Stream(), Stream()
    for stream, data in (apart, frame.Pieces(parts)), (joined, b"".join(parts)):
        stream.buffer.append(300, 1, 2, EXTENT, b"head", data)
        stream.buffer.append(301, 1, 2, EXTENT, b"next")
        stream.take(partial=True)
    assert apart.frames() == joined.frames()
    *of_it, following = apart.frames()
    assert b"".join([bytes(one.body) for one in of_it if one.kind == 300]) == b"head" + b"".join(parts)
    assert following.kind == 301


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_large_record_is_logged_without_a_copy_of_it(pieces: int) -> None:
    """There may be no memory for one, and what fails between log and effect stops the queue manager."""
    stream = Stream()
    stream.buffer._make_room = lambda: stream.buffer.take(partial=False) and None
    part = bytes(4_000_000)
    data = part if pieces == 1 else frame.Pieces([part] * pieces)
    tracemalloc.start()
    try:
        stream.buffer.append(300, 1, 2, EXTENT, b"head", data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("left", [48, 56, 104, PAGE - 8, 0])
def test_a_filled_page_ends_with_a_frame_that_says_nothing(left: int) -> None:
    stream = Stream()
    rest = PAGE - left - frame.HEADER.size
    if left:
        stream.buffer.append(300, 1, 2, EXTENT, bytes(max(0, rest)))
    stream.buffer.fill_page(2, EXTENT)
    assert stream.buffer.tail % PAGE == 0
    stream.buffer.append(301, 1, 2, EXTENT, b"next")
    stream.take(partial=True)
    kinds = [one.kind for one in stream.frames()]
    assert kinds == ([300, frame.FILL, 301] if left else [301])


sizes = st.lists(st.one_of(st.integers(0, 200), st.integers(3000, 9000), st.integers(30_000, 90_000)), max_size=25)


@given(sizes, st.integers(1, 5))
def test_every_record_comes_back_from_the_runs(lengths: list[int], every: int) -> None:
    stream = Stream()
    lsns = []
    for n, length in enumerate(lengths):
        if stream.buffer.room < length + 200:
            stream.make_room()
        lsns.append(stream.buffer.append(n + 1, n, n, stream.start, b"head", bytes([n % 256]) * length))
        if n % every == 0:
            stream.take(partial=True)
    stream.take(partial=True)
    parts: dict[int, list[frame.Frame]] = {}
    for one in stream.frames():
        if one.kind != frame.PAD:
            parts.setdefault(one.kind, []).append(one)
        assert one.lsn % 8 == 0
        assert one.lsn // EXTENT == (one.lsn + frame.HEADER.size + len(one.body) - 1) // EXTENT, (
            "never across an extent"
        )
    for n, length in enumerate(lengths):
        mine = parts[n + 1]
        assert b"".join(bytes(one.body) for one in mine) == b"head" + bytes([n % 256]) * length
        assert mine[0].lsn == lsns[n]
        assert [one.flags & frame.BEGIN for one in mine] == [frame.BEGIN] + [0] * (len(mine) - 1)
        assert [one.flags & frame.END for one in mine] == [0] * (len(mine) - 1) + [frame.END]


def test_a_frame_says_how_far_the_log_was_durable() -> None:
    stream = Stream()
    at = stream.buffer.append(5, 0, 0, EXTENT, b"x")
    late = stream.buffer.append(5, 0, 0, EXTENT + 16, b"y" * 5000)
    stream.take(partial=True)
    assert [(one.lsn, one.durable) for one in stream.frames()] == [(at, EXTENT), (late, EXTENT + 16)]


def test_a_run_stays_as_it_is_while_the_next_one_fills() -> None:
    stream = Stream()
    stream.buffer.append(5, 0, 0, EXTENT, b"first")
    run = stream.buffer.take(partial=True)
    before = bytes(run.pages)
    stream.buffer.append(6, 0, 0, EXTENT, b"second")
    assert bytes(run.pages) == before


def test_going_on_in_a_page_that_a_restart_found_partly_filled() -> None:
    first = Stream()
    first.buffer.append(5, 0, 0, EXTENT, b"before")
    tail = first.buffer.tail
    first.take(partial=True)
    partial = bytes(first.held[: tail - EXTENT])
    size = 9 * PAGE
    again = LogBuffer(
        (memoryview(bytearray(size)), memoryview(bytearray(size))),
        extent_bytes=EXTENT, seed=SEED, epoch=4, tail=tail, partial=partial,
        make_room=lambda: None,
    )  # fmt: skip
    again.append(6, 0, 0, EXTENT, b"after")
    run = again.take(partial=True)
    assert (run.base, bytes(run.pages[: len(partial)])) == (EXTENT, partial)


def test_row_70_the_stream_stops_loudly_before_its_64_bits_run_out() -> None:
    stream = Stream(tail=lsn.LAST // EXTENT * EXTENT)
    with pytest.raises(LogClosed, match="64-bit"):
        for _ in range(10_000):
            if stream.buffer.room < 5000:
                stream.make_room()
            stream.buffer.append(5, 0, 0, 0, b"x" * 4000)
            stream.held.clear()
    assert lsn.LAST <= stream.buffer.tail < 2**64 - EXTENT


@pytest.mark.parametrize("size", range(10))
def test_of_what_lies_in_pieces_as_many_bytes_are_taken_as_a_frame_has(size: int) -> None:
    parts: list[Buffer] = [b"ghij", b"ef", b"abcd"]  # the first of them last
    taken = _taken(parts, size)
    assert b"".join(taken) == b"abcdefghij"[:size]
    assert b"".join(reversed(parts)) == b"abcdefghij"[size:]
