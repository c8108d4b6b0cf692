"""The command: python -m examples.flights.pipeline [--rows N|all] [--kills N] [--seed N] [--into DIR].

The flights with linear logging, whose log has all that happened, crashes and all; then what Spark makes of that log:
history, flow, uows and audit, in one session.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from examples.flights import data
from examples.flights.__main__ import kills_wanted, rows_wanted, run
from examples.flights.supervise import WorkerFailed
from examples.flights.worker import NAME

try:
    from pipeline.__main__ import main as job
    from pipeline.jobs import job as job_of
    from pipeline.report import TEXT
    from pipeline.session import check_packages
except ModuleNotFoundError as exc:
    sys.exit(f"the demo can't start: {exc}; get it with: pip install 'qmgr[pipeline]'")

from rich.console import Console

import qmgr
from qmgr.cli.command import SaysItsHelp

ROWS = 50_000
JOBS = ("history", "flow", "uows", "audit")


def arguments() -> argparse.Namespace:
    parser = SaysItsHelp(
        prog="python -m examples.flights.pipeline",
        description="Pass flights through a queue manager with linear logging that is killed on the way, and have "
        "Spark tell from its log what went on.",
        epilog="Exit codes: 0 all is as it should be; 1 it is not, or the demo could not go on; 2 wrong arguments.",
    )
    parser.add_argument(
        "--rows", type=rows_wanted, default=ROWS, metavar="N|all", help=f"rows of the file (default: {ROWS})"
    )
    parser.add_argument("--kills", type=kills_wanted, default=3, metavar="N", help="times to kill (default: 3)")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="for the moments of the kills (default: another each time)"
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="a new directory for the queue manager and the reports (default: a temporary one, which stays)",
    )
    return parser.parse_args()


def analysed(data_path: str, reports: Path, console: Console) -> bool:
    """Run each job on the log; return whether all of them found what they should."""
    good = True
    for name in JOBS:
        console.print(f"\n{name}: {job_of(name).HELP}", style="bold", soft_wrap=True)
        began = time.monotonic()
        status = job([name, data_path, "--qmgr", NAME, "--out", str(reports / name)])
        good = good and status == 0
        console.print(
            f"{name}: {'done' if status == 0 else f'ended with {status}'} in {time.monotonic() - began:.0f} s"
        )
    return good


def main() -> int:
    args = arguments()
    args.linear = True
    console = Console(highlight=False)
    try:
        check_packages()
        source = data.find()
    except (ModuleNotFoundError, qmgr.MQError, data.NoData) as exc:
        print(f"the demo can't start: {exc}", file=sys.stderr)
        return 1
    folder = args.into.absolute() if args.into else Path(tempfile.mkdtemp(prefix="flights-"))
    data_path, reports = str(folder / "data"), folder / "reports"
    try:
        good = run(args, source, data_path, console)
        good = analysed(data_path, reports, console) and good
    except (data.NoData, WorkerFailed, qmgr.MQError, OSError) as exc:
        print(f"the demo can't go on: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    console.print("\nWhat Spark made of the log; charts lie beside:", style="bold")
    for name in JOBS:
        console.print(f"  {reports / name / TEXT}", soft_wrap=True)
    console.print(f"\nThe queue manager and all of that lie in {folder}, which you may remove.", soft_wrap=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
