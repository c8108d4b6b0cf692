"""Run the same durable work on sqlite3, PostgreSQL, Redis and RabbitMQ; a whole run is kept in benchmarks/results/.

Servers, and each client where there are several, are processes of their own on this machine. We are measured in
process, as sqlite3 is, and by clients of the daemon.
"""

import contextlib
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs

from benchmarks import machine, report, rivals
from benchmarks.children import Crowd, steps_from
from benchmarks.daemon import NAME, daemon
from benchmarks.measure import Figure, Slice, at_least, compare, repeat
from benchmarks.put_get import BODY, SECONDS, UNIT, manager, rate, together
from benchmarks.rivals import Ours, Queue, Rival
from qmgr.cli.command import SaysItsHelp

TURNS = 7
MANY = 8  # clients
DEEP = 1000  # messages that are there while one is moved
HERE, CLIENT = "in process", "by the daemon"
WORKS = {
    "put": "one put",
    "get": "one get",
    "move": "a unit of one get and one put",
    "put_many": f"{UNIT} puts in one call",
    "get_many": f"{UNIT} gets in one call",
    "many": f"one put, {MANY} clients",
}


@attrs.frozen
class Side:
    """One of those that are compared."""

    name: str
    queue: Queue
    many: Callable[[], Slice]  # several clients put, each for itself
    slices: dict[str, list[Slice]] = attrs.Factory(lambda: defaultdict(list))  # by work

    def turn(self) -> None:
        """A slice of each work."""
        queue, body = self.queue, os.urandom(BODY)
        bodies = [body] * UNIT
        self._keep("put", repeat(lambda: queue.put(body), seconds=SECONDS))
        self._keep("get", repeat(queue.get, count=self.slices["put"][-1].steps))
        self._keep("put_many", repeat(lambda: queue.put_many(bodies), seconds=SECONDS))
        self._keep("get_many", repeat(lambda: queue.get_many(UNIT), count=self.slices["put_many"][-1].steps))
        queue.clear()
        for _ in range(DEEP // UNIT):
            queue.put_many(bodies)
        self._keep("move", repeat(queue.move, seconds=SECONDS))
        self._keep("many", self.many())
        queue.clear()

    def _keep(self, work: str, taken: Slice) -> None:
        self.slices[work].append(taken)


_here: list[Callable[[], object]] = []  # in the process of a client: a put


def _join(connect: Callable[[], Queue]) -> None:
    _here.append(partial(connect().put, os.urandom(BODY)))


def _puts(begin: float) -> int:
    return steps_from(begin, _here[0])


def measure(names: list[str], path: Path, turns: int) -> list[Figure]:
    """All of them by turns."""
    with contextlib.ExitStack() as stack:

        def by_processes(rival: Rival) -> Side:
            crowd = Crowd(MANY, _join, rival.connect)
            stack.callback(crowd.close)
            queue = rival.connect()
            stack.callback(queue.close)
            return Side(rival.name, queue, partial(crowd.together, _puts))

        here = stack.enter_context(manager(path / "here", "Q"))
        served = stack.enter_context(daemon(path / "there", "Q"))
        body = os.urandom(BODY)
        ours = [
            Side(HERE, Ours(here), partial(together, MANY, lambda: here.put("Q", body))),
            by_processes(Rival(CLIENT, partial(rivals.by_daemon, NAME, served.path))),
        ]
        others = []
        for name in names:
            try:
                others.append(by_processes(stack.enter_context(rivals.ALL[name](path))))
            except (FileNotFoundError, ImportError) as exc:
                print(f"left out: {exc}", flush=True)
        sides = [*ours, *others]
        for _ in range(turns + 1):
            for side in sides:
                side.turn()
            sides.append(sides.pop(0))
    return [
        compare(
            f"{text}: {one.name} ÷ {other.name}",
            one.slices[work][1:],  # the first turn warms it up
            other.slices[work][1:],
            rate,
            unit="calls/s",
            wanted=None if one.name == CLIENT and other.name.startswith("sqlite3") else at_least(1),
        )
        for work, text in WORKS.items()
        for one in ours
        for other in others
    ]


def main() -> int:
    parser = SaysItsHelp(prog="python -m benchmarks.others", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few slices each, to see that all works")
    parser.add_argument("--only", choices=list(rivals.ALL), action="append", metavar="NAME", help=", ".join(rivals.ALL))
    parser.add_argument("--path", type=Path, default=machine.ROOT / ".bench", help="where to measure (default: .bench)")
    args = parser.parse_args()
    path = args.path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    turns = 2 if args.quick else TURNS
    method = [
        f"method   persistent messages, {BODY} bytes; sides in turn, {turns} slices of {SECONDS} s for each work;",
        "         ours, other: medians over the slices; ratio: median and quartiles of the slices' ratios",
        "         a call is durable when it returns: sqlite3 with WAL and synchronous=FULL, PostgreSQL with fsync,",
        "         Redis with appendfsync=always, RabbitMQ with confirms and transactions, but not its gets of one",
        f"         {MANY} clients: threads in process, else processes",
    ]
    with tempfile.TemporaryDirectory(prefix="others-", dir=path) as home:
        Path(home).chmod(0o755)  # PostgreSQL is run by a user who is not root
        group = partial(measure, args.only or list(rivals.ALL), Path(home), turns)
        report.run(path, method, [group], kept_as=None if args.quick or args.only else "-others")
    return 0


if __name__ == "__main__":
    sys.exit(main())
