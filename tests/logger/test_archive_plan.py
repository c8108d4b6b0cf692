"""Archive plans: ages read as they are written; what is old enough goes, and nothing that is needed."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import archive_plan
from logger.archive_plan import Held, Plan, age_text, last_written, parse_age
from logger.history import Form, Place
from tests.logger.extents import ACTIVE, ARCHIVE, HOUR, START, name

NOW = START + 6 * HOUR


@pytest.mark.parametrize(
    "text, seconds", [("90s", 90), ("15m", 900), ("36h", 129_600), ("7d", 604_800), ("4W", 2_419_200), ("0s", 0)]
)
def test_ages_are_read(text: str, seconds: int) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5d", "1y", "1 d", "٣d"])
def test_other_ages_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="36h"):
        parse_age(text)


@pytest.mark.parametrize("text", ["999999d", "11575d", "1000000000s", "9" * 5000 + "d"])
def test_an_age_that_is_too_long_is_told_the_longest(text: str) -> None:
    assert parse_age("11574d") == 11574 * 86400
    with pytest.raises(ValueError, match=f"'{text[:40]}' is too long; an age is at most 11574d"):
        parse_age(text)


@given(st.integers(0, 999_999_999))
def test_an_age_reads_as_it_is_written(seconds: int) -> None:
    assert parse_age(age_text(seconds)) == seconds


def test_ages_are_written_short() -> None:
    assert [age_text(n) for n in (0, 59, 60, 5400, 7200, 86400, 604800, 604801)] == [
        "0s", "59s", "1m", "90m", "2h", "1d", "1w", "604801s",
    ]  # fmt: skip


def extents(*sequences: int, taken: Callable[[int], int] = lambda s: START + s * HOUR) -> dict[int, list[Place]]:
    return {
        s: [Place(sequence=s, path=f"{ACTIVE}/{name(s)}", form=Form.ACTIVE, size=10, taken=taken(s))] for s in sequences
    }


def test_an_extent_was_last_written_when_the_next_one_took_its_place() -> None:
    assert last_written(extents(1, 2, 3)) == {1: START + 2 * HOUR, 2: START + 3 * HOUR}


def test_where_the_next_one_does_not_say_when_the_one_after_it_does() -> None:
    assert last_written(extents(1, 2, 3, taken=lambda s: 0 if s == 2 else s)) == {1: 3, 2: 3}
    assert last_written(extents(1, 2, taken=lambda s: 0)) == {}


def test_only_what_is_old_enough_and_needed_by_no_restart_is_archived() -> None:
    def archived(after: int, active_from: int) -> list[int]:
        chosen = archive_plan.plan_archive(
            extents(1, 2, 3, 4, 5, 6), ARCHIVE, after=after, now_us=NOW, active_from=active_from
        )
        return [step.sequence for step in chosen.steps]

    assert archived(0, 5) == [1, 2, 3, 4]
    assert archived(0, 99) == [1, 2, 3, 4, 5]  # never the newest
    assert archived(2 * 3600, 5) == [1, 2, 3]
    assert archived(2 * 3600 + 1, 5) == [1, 2]
    assert archived(0, 1) == []
    assert archived(999_999_999, 5) == []


def removal(gates: dict[str, int], active_from: int = 5, after: int = 0, now: int = NOW) -> Plan:
    found = extents(1, 2, 3, 4, 5, 6)
    return archive_plan.plan_remove(found, gates, after=after, now_us=now, active_from=active_from)


def test_removal_stops_at_the_first_extent_that_a_gate_holds_and_says_which() -> None:
    stopped = removal({"media recovery": 3, "reader": 4})
    assert [step.sequence for step in stopped.steps] == [1, 2]
    assert stopped.held == Held(sequence=3, path=f"{ACTIVE}/{name(3)}", gates=("media recovery",))
    assert (
        stopped.held.text()
        == f"{ACTIVE}/{name(3)} and what came after it is kept: it is still needed for media recovery"
    )
    both = removal({"reader": 2, "undelivered message": 2}).held
    assert both is not None
    assert "reader and undelivered message" in both.text()


def test_what_a_restart_needs_is_a_gate_whatever_the_caller_says() -> None:
    for gates in ({}, {"restart": 99}, {"reader": 50}):
        stopped = removal(gates)
        assert [step.sequence for step in stopped.steps] == [1, 2, 3, 4]
        assert stopped.held is not None
        assert stopped.held.gates == ("restart",)
    assert removal({"restart": 2}).held == Held(sequence=2, path=f"{ACTIVE}/{name(2)}", gates=("restart",))


def test_an_extent_that_is_too_young_ends_removal_without_a_word() -> None:
    assert [step.sequence for step in removal({"reader": 4}, after=3 * 3600).steps] == [1, 2]
    assert removal({"reader": 4}, after=3 * 3600).held is None
    assert removal({}, after=3600, now=START) == Plan(steps=())  # the clock was set back


def test_it_ends_removal_though_one_behind_it_seems_older() -> None:
    """Its successor came before the clock was set back: what is removed from behind it leaves a gap."""
    hours = {1: 0, 2: 1, 3: 5, 4: 2, 5: 3}
    found = extents(*hours, taken=lambda s: START + hours[s] * HOUR)
    chosen = archive_plan.plan_remove(found, {}, after=2 * 3600, now_us=NOW, active_from=5)
    assert [step.sequence for step in chosen.steps] == [1]


@given(
    st.sets(st.integers(1, 30)),
    st.dictionaries(st.sampled_from(["a", "b", "restart"]), st.integers(0, 32)),
    st.integers(0, 40 * 3600),
    st.integers(1, 32),
    st.lists(st.integers(0, 50 * HOUR), min_size=31, max_size=31),
)
def test_removal_never_leaves_a_gap_and_never_passes_a_gate(
    sequences: set[int], gates: dict[str, int], after: int, active_from: int, times: list[int]
) -> None:
    found = extents(*sequences, taken=lambda s: times[s])
    chosen = archive_plan.plan_remove(found, gates, after=after, now_us=40 * HOUR, active_from=active_from)
    removed = [step.sequence for step in chosen.steps]
    assert removed == sorted(sequences)[: len(removed)]
    assert all(sequence < min([active_from, *gates.values()]) for sequence in removed)
    assert len(removed) < max(1, len(sequences))  # the newest stays
