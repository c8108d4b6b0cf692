"""Measuring by turns: ours and the other side in short slices, so that a drift of the machine cancels out."""

import statistics
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import attrs


@attrs.frozen
class Slice:
    """One side's turn."""

    rate: float  # steps a second
    p99: float  # microseconds that 99 of 100 steps stayed below


def repeat(step: Callable[[], object], *, seconds: float = 0.0, count: int | None = None) -> Slice:
    """Call `step` for so many seconds, or times."""
    clock = time.perf_counter
    ends = [clock()]
    last = ends[0] + seconds
    while ends[-1] < last if count is None else len(ends) <= count:
        step()
        ends.append(clock())
    took = sorted(after - before for before, after in pairwise(ends))
    return Slice(rate=len(took) / (ends[-1] - ends[0]), p99=took[len(took) * 99 // 100] * 1e6)


def by_turns(sides: Mapping[str, Callable[[], Slice]], turns: int) -> dict[str, list[Slice]]:
    """Give each side `turns` turns, after one that warms it up; who goes first changes."""
    slices: dict[str, list[Slice]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(turns + 1):
        for name in names:
            taken = sides[name]()
            if turn:
                slices[name].append(taken)
        names.append(names.pop(0))
    return slices


@attrs.frozen(kw_only=True)
class Figure:
    """One line of the report."""

    name: str
    ours: float
    other: float | None = None  # what it is compared with
    unit: str
    ratio: float | None = None
    spread: tuple[float, float] | None = None  # the quartiles of the ratio over the slices
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        value = self.ours if self.ratio is None else self.ratio
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


def compare(
    name: str,
    ours: list[Slice],
    other: list[Slice],
    value: Callable[[Slice], float],
    *,
    unit: str,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    """Compare two sides slice by slice; the medians are what counts."""
    ratios = [value(a) / value(b) for a, b in zip(ours, other, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    return Figure(
        name=name,
        ours=statistics.median(map(value, ours)),
        other=statistics.median(map(value, other)),
        unit=unit,
        ratio=median,
        spread=(low, high),
        at_least=at_least,
        at_most=at_most,
    )
