"""Versions of the partial last page: sealed, opened, chosen between."""

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from logger import integrity
from logger.disk import PAGE
from logger.integrity import BODY, Spare

SEED = 77


def sealed(content: bytes, page: int = 8192, epoch: int = 1) -> bytes:
    image = bytearray(content.ljust(PAGE, b"\0"))
    integrity.seal_spare(memoryview(image), page, page + len(content), epoch, crc32(content, SEED))
    return bytes(image)


@given(st.binary(min_size=1, max_size=BODY), st.integers(0, 2**40), st.integers(0, 2**32 - 1))
def test_a_sealed_page_opens(content: bytes, page: int, epoch: int) -> None:
    image = sealed(content, page * PAGE, epoch)
    spare = integrity.open_spare(image, SEED)
    assert spare == Spare(page * PAGE, page * PAGE + len(content), epoch, image)
    assert image[: len(content)] == content
    assert integrity.open_spare(image, SEED + 1) is None


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_flipped_bit_in_what_counts_is_noticed(content: bytes, data: st.DataObject) -> None:
    image = bytearray(sealed(content))
    place = data.draw(st.one_of(st.integers(0, len(content) - 1), st.integers(BODY, PAGE - 1)))
    image[place] ^= 1 << data.draw(st.integers(0, 7))
    assert integrity.open_spare(bytes(image), SEED) is None


def test_zeros_noise_and_short_pages_are_no_spare() -> None:
    for image in (bytes(PAGE), b"\xff" * PAGE, b"", sealed(b"x")[:-1]):
        assert integrity.open_spare(image, SEED) is None


def spare(content: bytes, epoch: int = 1) -> Spare:
    found = integrity.open_spare(sealed(content, epoch=epoch), SEED)
    assert found is not None
    return found


def test_the_newest_spare_is_chosen_by_epoch_then_length() -> None:
    short, long, later = spare(b"ab"), spare(b"abcd"), spare(b"abX", epoch=2)
    assert integrity.choose(bytes(PAGE), [short, long]) == long
    assert integrity.choose(bytes(PAGE), [long, short]) == long
    assert integrity.choose(bytes(PAGE), [long, later]) == later


@given(st.binary(min_size=1, max_size=100), st.binary(max_size=100), st.data())
def test_home_counts_when_it_holds_all_that_the_spare_does(content: bytes, more: bytes, data: st.DataObject) -> None:
    home = bytearray((content + more).ljust(PAGE, b"\0"))
    one = spare(content)
    assert integrity.choose(bytes(home), [one]) is None
    home[data.draw(st.integers(0, len(content) - 1))] ^= 1
    assert integrity.choose(bytes(home), [one]) == one
