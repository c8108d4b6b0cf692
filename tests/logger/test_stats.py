"""The windows and maxima of write statistics, against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.stats import EXTENTS, LONG, SHORT, LogStats
from tests.sim.clock import SimClock


def mean(values: list[int]) -> float:
    return sum(values) / len(values)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**9), st.integers(1, 30)), min_size=1, max_size=200))
def test_figures_equal_those_of_a_list(writes: list[tuple[int, int, int]]) -> None:
    stats, clock = LogStats(), SimClock()
    for size, ns, sequence in writes:
        stats.add(size, ns, clock, sequence)
    sizes, times = [w[0] for w in writes], [w[1] / 1000 for w in writes]
    figures = stats.figures(12345)
    assert (figures.writes, figures.bytes_written, figures.bytes_logged) == (len(writes), sum(sizes), 12345)
    assert figures.write_size_short == pytest.approx(mean(sizes[-SHORT:]))
    assert figures.write_size_long == pytest.approx(mean(sizes))
    assert figures.write_size_max == max(sizes)
    assert figures.write_time_short == pytest.approx(sum(times[-SHORT:]) / len(times[-SHORT:]))
    assert figures.write_time_long == pytest.approx(sum(times) / len(times))
    assert figures.write_time_max == pytest.approx(max(times))
    assert figures.write_time_total == pytest.approx(sum(times))
    windows = [sum(times[n : n + SHORT]) / SHORT for n in range(len(times) - SHORT + 1)] or [sum(times) / len(times)]
    assert figures.write_time_short_max == pytest.approx(max(windows))


def test_the_long_window_is_1024_writes() -> None:
    stats, clock = LogStats(), SimClock()
    for _ in range(LONG):
        stats.add(100, 5000, clock, 1)
    for _ in range(LONG // 2):
        stats.add(300, 1000, clock, 1)
    figures = stats.figures(0)
    assert figures.write_size_long == 200
    assert figures.write_time_long == 3
    assert figures.write_time_long_max == 5
    assert (figures.write_size_short, figures.write_time_short, figures.write_time_short_max) == (300, 1, 5)


def test_the_maximum_has_its_moment() -> None:
    stats, clock = LogStats(), SimClock(wall_us=1000)
    stats.add(1, 10, clock, 1)
    clock.wall = 5000
    stats.add(1, 99, clock, 1)
    clock.wall = 9000
    stats.add(1, 50, clock, 1)
    assert stats.figures(0).write_time_max_at == 5001


def test_the_longest_write_of_each_of_the_last_eight_extents_newest_first() -> None:
    stats, clock = LogStats(), SimClock()
    for sequence in range(1, 12):
        for ns in (sequence * 1000, 500):
            stats.add(1, ns, clock, sequence)
    assert stats.figures(0).write_time_max_extents == tuple(float(s) for s in range(11, 11 - EXTENTS, -1))


def test_before_the_first_write_all_is_zero() -> None:
    figures = LogStats().figures(0)
    assert (figures.writes, figures.write_size_short, figures.write_time_long_max) == (0, 0, 0)
    assert figures.write_time_max_extents == ()
