"""Measure group after group, and say what was found: on the screen as it comes, and in benchmarks/results/."""

import datetime
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks import machine
from benchmarks.measure import Figure

Group = Callable[[], list[Figure]]  # measures when it is called


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def line(figure: Figure) -> str:
    """One figure as a line of the report."""
    spread = figure.spread
    return row(
        figure.name,
        number(figure.ours),
        "" if figure.other is None else number(figure.other),
        figure.unit,
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        "" if spread is None else f"{spread[0]:.2f}-{spread[1]:.2f}",
        "" if figure.wanted is None else figure.wanted.verdict(figure.value),
        "" if figure.before is None else figure.before.verdict(figure.value),
    )


def row(name: str, ours: str, other: str, unit: str, ratio: str, spread: str, wanted: str, before: str) -> str:
    return f"{name:<66} {ours:>9} {other:>9} {unit:<9} {ratio:>5} {spread:>11}  {wanted:<14} {before}".rstrip()


def report(path: Path, commit: str, method: list[str], groups: Iterable[Group]) -> Iterator[str]:
    """Measure, and yield the lines of the report as they come."""
    began = time.monotonic()
    yield from machine.describe(path, commit)
    yield from method
    yield ""
    yield row("", "ours", "other", "", "ratio", "quartiles", "wanted", "before")
    missed = before = 0
    for group in groups:
        figures = group()
        missed += sum(f.wanted is not None and not f.wanted.met_by(f.value) for f in figures)
        before += sum(f.before is not None and not f.before.met_by(f.value) for f in figures)
        yield from map(line, figures)
    yield ""
    yield f"{missed} missed; {before} of what was wanted before; {time.monotonic() - began:.0f} seconds"


def run(path: Path, method: list[str], groups: Iterable[Group], *, kept_as: str | None) -> None:
    """Print the report; `kept_as` follows date and commit in the name of the file that it is also written to."""
    commit = machine.commit()
    lines = []
    for text in report(path, commit, method, groups):
        print(text, flush=True)
        lines.append(text)
    if kept_as is not None:
        results = machine.ROOT / "benchmarks" / "results"
        results.mkdir(exist_ok=True)
        target = results / f"{datetime.date.today()}-{commit}{kept_as}.txt"
        target.write_text("\n".join(lines) + "\n")
        print(f"written to {target.relative_to(machine.ROOT)}")
