"""Counts of backouts by sequence, against a dict; and what is said of them in catalogues and media images."""

import json

from hypothesis import given
from hypothesis import strategies as st

from recovery.backouts import Backouts, read

SEQUENCES = st.one_of(st.integers(1, 600), st.integers(1, 1 << 63))
COUNTS = st.one_of(st.integers(0, 3), st.integers(250, 260), st.integers(0, (1 << 32) - 1))


@given(st.lists(st.tuples(SEQUENCES, COUNTS), max_size=50))
def test_they_are_a_dict(noted: list[tuple[int, int]]) -> None:
    counts, model, copies = Backouts(), dict[int, int](), []
    for sequence, count in noted:
        copies.append((counts.copy(), dict(model)))
        counts.note(sequence, count)
        model[sequence] = count
        if not count:
            del model[sequence]
        assert counts.get(sequence) == count
        assert bool(counts) == bool(model)
        assert list(counts.items()) == sorted(model.items())
        assert dict(read(json.loads(json.dumps(counts.text()))).items()) == model
    for copy, then in copies:
        assert dict(copy.items()) == then, "copies share what is never changed"
    for sequence, _ in noted:
        counts.note(sequence, 0)
    assert counts.text() == ""
    assert (counts._stretches, counts._large) == ({}, {})


def test_neighbours_take_a_byte_each_and_in_the_catalogue_next_to_nothing() -> None:
    counts = Backouts()
    for sequence in range(1, 100_001):
        counts.note(sequence, 1)
    assert sum(map(len, counts._stretches.values())) <= 100_000 + 256
    assert len(counts.text()) < 5000


def test_more_than_can_be_told_is_the_most_that_can() -> None:
    counts = Backouts()
    counts.note(7, 1 << 40)
    assert dict(read(counts.text()).items()) == {7: (1 << 32) - 1}


def test_what_an_earlier_version_has_said_is_read() -> None:
    assert dict(read({"3": 2, "700": 300}).items()) == {3: 2, 700: 300}
    assert not read({})
