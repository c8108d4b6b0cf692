"""Frames: one record as bytes, and what is no whole frame."""

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from logger import frame
from logger.disk import PAGE

SEED = 0x1234
bodies = st.binary(max_size=300)


def encoded(at: int, lsn: int, body: bytes, **fields: int) -> memoryview:
    page = memoryview(bytearray(PAGE))
    values = {"epoch": 1, "uow": 0, "time": 0, "back": 0, "kind": 257, "flags": frame.WHOLE} | fields
    frame.encode_into(
        page, at, SEED, values["epoch"], lsn, values["uow"], values["time"], values["back"], values["kind"],
        values["flags"], body[: len(body) // 2], body[len(body) // 2 :],
    )  # fmt: skip
    return page


@given(
    st.integers(0, 400),
    st.integers(1, 2**60),
    bodies,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.sampled_from([0, 1, 2, 3]),
)
def test_what_is_encoded_is_decoded(
    at: int, lsn: int, body: bytes, epoch: int, uow: int, time: int, back: int, kind: int, flags: int
) -> None:
    page = encoded(at * 8, lsn * 8, body, epoch=epoch, uow=uow, time=time, back=back, kind=kind, flags=flags)
    found = frame.decode(page, at * 8, lsn * 8, SEED)
    assert found is not None
    assert (found.lsn, found.epoch, found.uow, found.time) == (lsn * 8, epoch, uow, time)
    assert (found.kind, found.flags, bytes(found.body)) == (kind, flags, body)
    assert found.durable == (0 if back == frame.BACK_MAX else lsn * 8 - back * 8)
    assert found.end == frame.next_start(lsn * 8 + frame.HEADER.size + len(body))
    assert frame.length_at(page, at * 8, lsn * 8) == frame.HEADER.size + len(body)


@given(bodies, st.data())
def test_any_flipped_bit_is_noticed(body: bytes, data: st.DataObject) -> None:
    page = encoded(0, 4096, body)
    place = data.draw(st.integers(0, frame.HEADER.size + len(body) - 1))
    page[place] ^= 1 << data.draw(st.integers(0, 7))
    assert frame.decode(page, 0, 4096, SEED) is None


@given(bodies)
def test_row_07_what_an_earlier_lap_or_another_log_left_is_no_frame(body: bytes) -> None:
    page = encoded(0, 4096, body)
    assert frame.decode(page, 0, 4096 + 262144, SEED) is None
    assert frame.decode(page, 0, 4096, SEED + 1) is None
    assert frame.length_at(page, 0, 8192) == 0


def test_formatted_space_and_short_pages_hold_no_frame() -> None:
    assert frame.decode(memoryview(bytes(PAGE)), 0, 4096, SEED) is None
    assert frame.decode(encoded(0, 4096, b"x"), PAGE - 8, 4096, SEED) is None
    assert frame.decode(encoded(0, 4096, b"x" * 100)[:100], 0, 4096, SEED) is None


def test_row_48_a_length_that_lies_is_no_frame() -> None:
    for length in (0, 47, 2**31, 2**32 - 1, PAGE + 1):
        page = encoded(0, 4096, b"body")
        page[8:12] = length.to_bytes(4, "little")
        assert frame.decode(page, 0, 4096, SEED) is None


def test_rows_39_and_48_what_lies_is_no_frame_though_its_crc_is_right() -> None:
    """A length less than that of its own header, or beyond what there is; another version; another magic."""

    def lies(at: int, data: bytes) -> memoryview:
        page = encoded(0, 4096, b"body")
        page[at : at + len(data)] = data
        length = int.from_bytes(page[8:12], "little")
        page[4:8] = crc32(page[8:length], SEED).to_bytes(4, "little")
        return page

    whole = lies(8, (frame.HEADER.size + 4).to_bytes(4, "little"))
    assert frame.decode(whole, 0, 4096, SEED) is not None
    for length in (0, 8, frame.HEADER.size - 1, PAGE + 1, 2**31, 2**32 - 1):
        assert frame.decode(lies(8, length.to_bytes(4, "little")), 0, 4096, SEED) is None
    assert frame.decode(lies(47, b"\2"), 0, 4096, SEED) is None
    assert frame.decode(lies(0, b"HLRX"), 0, 4096, SEED) is None


@given(st.integers(0, 2**40))
def test_the_next_frame_is_aligned_and_its_header_in_one_page(end: int) -> None:
    place = frame.next_start(end)
    assert end <= place < end + 8 + frame.HEADER.size
    assert place % 8 == 0
    assert place % PAGE + frame.HEADER.size <= PAGE


def test_a_later_version_is_told_from_a_damaged_one_by_its_crc() -> None:
    page = encoded(0, 800, b"body")
    whole = page[: frame.HEADER.size + 4]
    assert frame.later_length(page, 800) == 0 and frame.checks_out(whole, SEED)
    page[47] = frame.VERSION + 1
    assert frame.decode(page, 0, 800, SEED) is None
    assert frame.later_length(page, 800) == len(whole) and not frame.checks_out(whole, SEED)
    assert frame.later_length(page, 808) == 0
    frame.CRC.pack_into(page, 4, crc32(whole[8:], SEED))
    assert frame.checks_out(whole, SEED)
