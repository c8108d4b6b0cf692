"""The command: python -m examples.flights; `--help` has its words."""

import argparse
import random
import shutil
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
except ImportError:
    sys.exit("the demo shows its progress with rich, which is not installed; get it with: pip install rich")

import qmgr
from examples.flights import data
from examples.flights.audit import audit
from examples.flights.summary import summary
from examples.flights.supervise import Killer, Life, WorkerFailed, supervise
from examples.flights.worker import FROM, MARK, NAME, TO
from qmgr.cli.command import SaysItsHelp


def rows_wanted(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of rows above 0 nor 'all'")
    return int(text)


def kills_wanted(text: str) -> int:
    if not text.isdecimal() or int(text) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 100")
    return int(text)


def arguments() -> argparse.Namespace:
    parser = SaysItsHelp(
        prog="python -m examples.flights",
        description="Pass the flights that left New York in 2013 through a queue manager that is killed on the way, "
        "and check that every flight is on its carrier's queue, once, in order.",
        epilog="Exit codes: 0 every flight is where it should be; 1 it is not, or the demo could not go on; "
        "2 wrong arguments.",
    )
    parser.add_argument(
        "--rows", type=rows_wanted, default=None, metavar="N|all", help="rows of the file (default: all)"
    )
    parser.add_argument("--kills", type=kills_wanted, default=6, metavar="N", help="times to kill (default: 6)")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="for the moments of the kills (default: another each time)"
    )
    parser.add_argument(
        "--data-path", type=Path, metavar="DIR", help="where the queue manager lives, and stays afterwards"
    )
    parser.add_argument(
        "--linear", action="store_true", help="linear logging: all of the log stays, for python -m pipeline to read"
    )
    parser.add_argument("--keep", action="store_true", help="do not remove the temporary directory at the end")
    return parser.parse_args()


def prepare(data_path: str, source: Path, rows: int | None, *, linear: bool = False) -> int:
    """Create the queue manager and the queues that the rows need; return how many rows there are."""
    names, count = {MARK}, 0
    for flight in islice(data.flights(source), rows):
        names |= {FROM + flight.origin, TO + flight.carrier}
        count += 1
    qmgr.create(NAME, data_path=data_path, log_type="linear" if linear else "circular")
    with qmgr.start(NAME, data_path=data_path) as qm:
        for name in sorted(names):
            qm.define_queue(name)
        qm.put(MARK, b"0")
    return count


def run(args: argparse.Namespace, source: Path, data_path: str, console: Console) -> bool:
    """Return whether every flight is where it should be, after a progress bar and with a table."""
    began = time.monotonic()
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    rows = prepare(data_path, source, args.rows, linear=args.linear)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        put, moved = progress.add_task("put", total=rows), progress.add_task("moved", total=rows)

        def heard(life: Life) -> None:
            if life.log_writes:
                progress.update(put, completed=life.put)
                progress.update(moved, completed=life.moved)
            else:
                console.print(f"started: {life.replayed:,} log records replayed in {life.seconds:.2f} s")

        lives = supervise(data_path, source, rows, Killer(args.kills, random.Random(seed)), heard)
    with qmgr.start(NAME, data_path=data_path) as qm:
        wrong = audit(qm, source, rows)
        carriers = sum(queue.name.startswith(TO) for queue in qm.queues())
    console.print(summary(lives, rows, carriers, time.monotonic() - began))
    for sentence in wrong[:10]:
        console.print(f"WRONG: {sentence}", style="bold red")
    if wrong:
        console.print(f"{len(wrong)} things are wrong; the seed was {seed}")
    else:
        console.print("Every flight is on its carrier's queue, once, in order.", style="bold green")
    return not wrong


def main() -> int:
    args = arguments()
    console = Console(highlight=False)
    try:
        source = data.find()
    except data.NoData as exc:
        print(f"the demo can't start: {exc}", file=sys.stderr)
        return 1
    data_path = str(args.data_path.absolute() if args.data_path else tempfile.mkdtemp(prefix="flights-"))
    keep, code = args.keep or args.data_path is not None, 0
    try:
        if not run(args, source, data_path, console):
            keep, code = True, 1
    except (data.NoData, WorkerFailed, qmgr.MQError, OSError) as exc:
        print(f"the demo can't go on: {exc}", file=sys.stderr)
        keep, code = True, 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    if keep:
        console.print(f"The queue manager is still there: QMGR_DATA_PATH={data_path} qm dspmq", soft_wrap=True)
    else:
        shutil.rmtree(data_path)
    return code


if __name__ == "__main__":
    sys.exit(main())
