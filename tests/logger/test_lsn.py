"""LSNs as text and as pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import lsn
from logger.disk import PAGE


@given(st.integers(0, 2**64 - 1))
def test_text_and_back(value: int) -> None:
    assert lsn.parse(lsn.text(value)) == value
    assert lsn.parse(lsn.text(value)[1:-1]) == value


@given(st.integers(0, 2**64 - 2))
def test_text_of_a_later_lsn_has_later_groups(value: int) -> None:
    groups = [[int(g) for g in lsn.text(v)[1:-1].split(":")] for v in (value, value + 1)]
    assert groups[0] < groups[1]


def test_the_form_that_mq_people_know() -> None:
    assert lsn.text((4615 << 16) + 42406) == "<0:0:4615:42406>"


@pytest.mark.parametrize(
    "word", ["", "1", "0:0:1", "0:0:0:65536", "a:b:c:d", "0:0:0:-1", "<0:0:0:1:2>", "0:0::1", "²:0:0:0"]
)
def test_what_is_no_lsn_is_refused_with_a_sentence(word: str) -> None:
    with pytest.raises(ValueError, match="is not an LSN"):
        lsn.parse(word)


def test_what_is_far_too_long_for_an_lsn_is_refused_in_as_short_a_sentence() -> None:
    """Python itself reads no number of more than 4300 digits."""
    with pytest.raises(ValueError, match=r"^'0:0:0:9{94}'\.\.\. is not an LSN"):
        lsn.parse("0:0:0:" + "9" * 5000)


@given(st.integers(0, 2**64 - 1))
def test_a_page_begins_at_or_before_its_bytes(value: int) -> None:
    page = lsn.page_of(value)
    assert page % PAGE == 0
    assert page <= value < page + PAGE
