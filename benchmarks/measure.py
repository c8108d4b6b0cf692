"""Measuring by turns: ours and the other side in short slices, so that a drift of the machine cancels out."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import attrs


@attrs.frozen
class Slice:
    """One side's turn."""

    rate: float  # steps a second
    p50: float  # microseconds that half of the steps stayed below
    p99: float  # microseconds that 99 of 100 steps stayed below
    steps: int


def repeat(step: Callable[[], object], *, seconds: float = math.inf, count: float = math.inf) -> Slice:
    """Call `step` for so many seconds, or times, whichever is over first."""
    clock = time.perf_counter
    ends = [clock()]
    last = ends[0] + seconds
    while ends[-1] < last and len(ends) <= count:
        step()
        ends.append(clock())
    return slice_of(ends)


def slice_of(ends: list[float]) -> Slice:
    """A turn by the moments at which it began and each of its steps ended, in seconds."""
    return slice_of_steps([after - before for before, after in pairwise(ends)])


def slice_of_steps(took: list[float]) -> Slice:
    """A turn by the seconds that each of its steps took."""
    in_order = sorted(took)
    p50, p99 = (in_order[len(took) * percent // 100] * 1e6 for percent in (50, 99))
    return Slice(rate=len(took) / sum(took), p50=p50, p99=p99, steps=len(took))


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


@attrs.frozen
class Wanted:
    """What a figure should reach: its ratio, or itself where it has none."""

    sign: str  # ">=" or "<="
    bound: float

    def met_by(self, value: float) -> bool:
        return value >= self.bound if self.sign == ">=" else value <= self.bound

    def verdict(self, value: float) -> str:
        return f"{self.sign} {self.bound:g} {'met' if self.met_by(value) else 'MISSED'}"


def at_least(bound: float) -> Wanted:
    return Wanted(">=", bound)


def at_most(bound: float) -> Wanted:
    return Wanted("<=", bound)


@attrs.frozen(kw_only=True)
class Figure:
    """One line of the report."""

    name: str
    ours: float
    other: float | None = None  # what it is compared with
    unit: str
    ratio: float | None = None
    spread: tuple[float, float] | None = None  # the quartiles of the ratio over the slices, or of ours
    wanted: Wanted | None = None
    before: Wanted | None = None  # what was wanted before queues could be deep

    @property
    def value(self) -> float:
        """What `wanted` and `before` are compared with."""
        return self.ours if self.ratio is None else self.ratio


def compare(
    name: str,
    ours: list[Slice],
    other: list[Slice],
    value: Callable[[Slice], float],
    *,
    unit: str,
    wanted: Wanted | None = None,
    before: Wanted | None = None,
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
        wanted=wanted,
        before=before,
    )
