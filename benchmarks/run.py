"""Run the benchmarks; a whole run is also written to benchmarks/results/."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import machine, report
from benchmarks.children import alone
from benchmarks.measure import Figure
from benchmarks.memory import memory
from benchmarks.put_get import BODY, SECONDS, TURNS, large, move, single, threads, units
from benchmarks.restart import restart
from qmgr.cli.command import SaysItsHelp
from qmgr.installed import is_compiled

GROUPS: dict[str, Callable[[Path, int], list[Figure]]] = {
    group.__name__: group for group in (single, threads, units, move, large, restart, memory)
}


def arguments() -> argparse.Namespace:
    parser = SaysItsHelp(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few slices each, to see that all works")
    parser.add_argument("--only", choices=list(GROUPS), action="append", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument("--path", type=Path, default=machine.ROOT / ".bench", help="where to measure (default: .bench)")
    return parser.parse_args()


def method(turns: int) -> list[str]:
    return [
        f"method   persistent messages, {BODY} bytes, default settings; sides in turn, {turns} slices of {SECONDS} s;",
        "         ours, other: medians over the slices; ratio: median and quartiles of the slices' ratios",
        "         raw: write 2 or 4 KiB (64 KiB messages: 1 MiB) into a file written with zeros before, then fdatasync",
        "         raw of eight threads: 2 KiB each; who waits for the lock shares the sync of the next one",
        "         sqlite3: WAL, synchronous=FULL, an index in the order of gets, executemany, DELETE ... RETURNING",
        "         before: what was wanted of the core, before queues could be deep",
    ]


def measure(name: str, path: Path, turns: int) -> list[Figure]:
    """One group, in a directory and a process of its own."""
    with tempfile.TemporaryDirectory(prefix=name + "-", dir=path) as home:
        return alone(GROUPS[name], Path(home), turns)


def main() -> int:
    args = arguments()
    path: Path = args.path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    turns = 3 if args.quick else TURNS
    groups = [partial(measure, name, path, turns) for name in args.only or GROUPS]
    kept_as = "-compiled" if is_compiled() else ""
    report.run(path, method(turns), groups, kept_as=None if args.quick or args.only else kept_as)
    return 0


if __name__ == "__main__":
    sys.exit(main())
