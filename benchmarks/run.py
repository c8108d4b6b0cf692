"""Run the benchmarks; a whole run is also written to benchmarks/results/."""

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import machine
from benchmarks.children import alone
from benchmarks.measure import Figure
from benchmarks.memory import memory
from benchmarks.put_get import BODY, SECONDS, TURNS, large, move, single, threads, units
from benchmarks.restart import restart

GROUPS: dict[str, Callable[[Path, int], list[Figure]]] = {
    group.__name__: group for group in (single, threads, units, move, large, restart, memory)
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few slices each, to see that all works")
    parser.add_argument("--only", choices=list(GROUPS), action="append", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument("--path", type=Path, default=machine.ROOT / ".bench", help="where to measure (default: .bench)")
    return parser.parse_args()


def line(figure: Figure) -> str:
    """One figure as a line of the report."""
    wanted = f">= {figure.at_least:g}" if figure.at_least else f"<= {figure.at_most:g}" if figure.at_most else ""
    other = "" if figure.other is None else f"{figure.other:,.0f}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    spread = "" if figure.spread is None else f"{figure.spread[0]:.2f}-{figure.spread[1]:.2f}"
    ours = f"{figure.ours:,.0f}" if figure.ours >= 100 else f"{figure.ours:.2f}"
    verdict = ("met" if figure.met else "MISSED") if wanted else ""
    return (
        f"{figure.name:<52} {ours:>10} {other:>10} {figure.unit:<9} {ratio:>6} {spread:>10}  {wanted:<7} {verdict}"
    ).rstrip()


def report(path: Path, names: list[str], turns: int, commit: str) -> Iterator[str]:
    """Measure, and yield the lines of the report as they come."""
    began = time.monotonic()
    yield from machine.describe(path, commit)
    yield f"method   persistent messages, {BODY} bytes, default settings; sides in turn, {turns} slices of {SECONDS} s;"
    yield "         ours, other: medians over the slices; ratio: median and quartiles of the slices' ratios"
    yield "         raw: write 4 KiB (64 KiB messages: 1 MiB) into a file written with zeros before, then fdatasync"
    yield "         sqlite3: WAL, synchronous=FULL, an index in the order of gets, executemany, DELETE ... RETURNING"
    yield ""
    yield f"{'':<52} {'ours':>10} {'other':>10} {'':<9} {'ratio':>6} {'quartiles':>10}  wanted"
    missed = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix=name + "-", dir=path) as home:
            figures = alone(GROUPS[name], Path(home), turns)
        missed += sum(not figure.met for figure in figures)
        yield from map(line, figures)
    yield ""
    yield f"{missed} missed; {time.monotonic() - began:.0f} seconds"


def main() -> int:
    args = arguments()
    path: Path = args.path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    commit = machine.commit()
    lines = []
    for text in report(path, args.only or list(GROUPS), 3 if args.quick else TURNS, commit):
        print(text, flush=True)
        lines.append(text)
    if not args.quick and not args.only:
        results = machine.ROOT / "benchmarks" / "results"
        results.mkdir(exist_ok=True)
        target = results / f"{datetime.date.today()}-{commit}.txt"
        target.write_text("\n".join(lines) + "\n")
        print(f"written to {target.relative_to(machine.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
