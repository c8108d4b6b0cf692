"""Run the benchmarks of the daemon and its clients; a whole run is also written to benchmarks/results/.

The daemon, and each client where there are several, is a process of its own; what it is compared with runs in this one.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs

import qmgr
from benchmarks import machine, report
from benchmarks.children import Crowd, free_port, steps_from
from benchmarks.deep import quartiles
from benchmarks.measure import Figure, Slice, Wanted, at_least, at_most, by_turns, compare, repeat
from benchmarks.put_get import BODY, SECONDS, UNIT, drain, manager, rate, together
from benchmarks.stomp_client import StompClient
from qmgr.cli.command import SaysItsHelp

TURNS = 9
MANY = 8  # clients
WINDOW = 200  # receipts on their way
IDLE = 1000  # connections
CLIENTS = 100  # at the end
NAME = "BENCH"
USUAL = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # byte code is kept


# ---- the daemon


@attrs.frozen
class Daemon:
    """One that runs; `stomp` is the port of its listener."""

    path: Path
    stomp: int

    def connect(self) -> Any:
        return qmgr.connect(NAME, data_path=self.path)

    @property
    def process(self) -> int:
        """Its number."""
        for connection in self.connect().connections():
            if connection.number == 0:
                return int(connection.peer.application.split()[1])
        raise RuntimeError("the daemon does not say which process it is")

    def resident(self) -> int:
        """Bytes of it that are in memory."""
        pages = int(Path(f"/proc/{self.process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")


def command(path: Path, *words: str) -> float:
    """Run one of the commands; the seconds that it took."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "qmgr.cli.main", *words, "--data-path", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=USUAL,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return time.perf_counter() - begin


def make(path: Path, *queues: str) -> int:
    """A queue manager that listens for STOMP; the port."""
    port = free_port()
    with manager(path, *queues):
        pass
    ini = path / "qmgrs" / NAME / "qm.ini"
    stanzas: dict[str, dict[str, object]] = {
        "Listener": {"Name": "stomp", "Protocol": "STOMP", "Port": port, "Authentication": "NONE"},
        "Channels": {"MaxChannels": 10 * IDLE},
    }
    text = "".join(
        f"{stanza}:\n" + "".join(f"   {name}={value}\n" for name, value in said.items())
        for stanza, said in stanzas.items()
    )
    ini.write_text(ini.read_text() + text)
    return port


@contextlib.contextmanager
def daemon(path: Path, *queues: str) -> Iterator[Daemon]:
    """A daemon below `path`, which is ended when the block is left."""
    port = make(path, *queues)
    command(path, "strmqm", NAME)
    try:
        yield Daemon(path, port)
    finally:
        command(path, "endmqm", "-i", NAME)


# ---- clients in processes of their own

_here: dict[str, Any] = {}  # in the process of a client


def _client(path: Path, port: int) -> None:
    _here["qm"] = qmgr.connect(NAME, data_path=path)
    _here["stomp"] = StompClient(port) if port else None
    _here["body"] = os.urandom(BODY)


def _units(begin: float) -> int:
    """Units of work of one put, from a moment on; how many."""
    qm, body = _here["qm"], _here["body"]

    def unit() -> None:
        with qm.begin() as uow:
            uow.put("Q", body)

    return steps_from(begin, unit)


def _sends(begin: float) -> int:
    """Durable sends over STOMP, each with its receipt."""
    sends = _here["stomp"].sends("Q", _here["body"], WINDOW)
    done: int = sends.size * steps_from(begin, sends.step)
    sends.finish()
    return done


def emptied(qm: Any, take: Callable[[], Slice]) -> Callable[[], Slice]:
    """The slice, after which the queue is emptied, unmeasured."""

    def turn() -> Slice:
        taken = take()
        drain(qm, "Q")
        return taken

    return turn


# ---- groups


def client(path: Path, turns: int) -> list[Figure]:
    """The same units of work in this process and over the daemon's socket."""
    body = os.urandom(BODY)
    bodies = [body] * UNIT

    def one(qm: Any) -> None:
        with qm.begin() as uow:
            uow.put("Q", body)

    def hundred(qm: Any) -> None:
        with qm.begin() as uow:
            for each in bodies:
                uow.put("Q", each)

    def sent(qm: Any) -> None:
        with qm.begin() as uow:
            for each in bodies:
                uow.send("Q", each)

    with manager(path / "here", "Q") as here, daemon(path / "there", "Q") as served:
        there = served.connect()
        clients = Crowd(MANY, _client, served.path, 0)
        works: dict[str, Callable[[Any], Callable[[], object]]] = {
            "one": lambda qm: partial(one, qm),
            "hundred": lambda qm: partial(hundred, qm),
            "sent": lambda qm: partial(sent, qm),
            "in one call": lambda qm: partial(qm.put_many, "Q", bodies),
        }
        sides: dict[str, Callable[[], Slice]] = {}
        for text, work in works.items():
            for place, qm in (("here", here), ("there", there)):
                sides[f"{text} {place}"] = emptied(qm, partial(repeat, work(qm), seconds=SECONDS))
        sides["many here"] = emptied(here, partial(together, MANY, partial(one, here)))
        sides["many there"] = emptied(there, lambda: clients.together(_units))
        slices = by_turns(sides, turns)
        clients.close()
        there.close()
    return [
        compare(name, slices[f"{side} there"], slices[f"{side} here"], rate, unit="/s", wanted=wanted)
        for side, name, wanted in (
            ("one", "units of one put, a client ÷ in process", at_least(0.35)),
            ("many", f"units of one put, {MANY} client processes ÷ {MANY} threads in process", at_least(0.7)),
            ("hundred", "units of 100 puts, each answered, a client ÷ in process", None),
            ("sent", "units of 100 sends, a client ÷ in process", at_least(0.5)),
            ("in one call", "100 puts in one call, a client ÷ in process", at_least(0.5)),
        )
    ]


def stomp(path: Path, turns: int) -> list[Figure]:
    """Durable sends with receipts, and transactions."""
    body = os.urandom(BODY)
    with daemon(path, "Q") as served:
        qm = served.connect()
        one = StompClient(served.stomp)
        several = Crowd(MANY, _client, served.path, served.stomp)

        def sending(window: int) -> Slice:
            sends = one.sends("Q", body, window)
            taken = repeat(sends.step, seconds=SECONDS)
            sends.finish()
            return attrs.evolve(taken, rate=taken.rate * sends.size)

        slices = by_turns(
            {
                "one at a time": emptied(qm, partial(sending, 1)),
                "one client": emptied(qm, partial(sending, WINDOW)),
                "many": emptied(qm, lambda: several.together(_sends)),
                "tens": emptied(qm, lambda: repeat(lambda: one.transaction("Q", body, 10), seconds=SECONDS)),
            },
            turns,
        )
        several.close()
        one.close()
        qm.close()
    return [
        of_rates("STOMP, sends from one client that waits for each receipt", slices["one at a time"]),
        of_rates(f"STOMP, sends from one client, {WINDOW} receipts on their way", slices["one client"], at_least(2000)),
        of_rates(f"STOMP, sends from {MANY} clients, {WINDOW} each", slices["many"], at_least(8000)),
        of_rates("STOMP, transactions of 10 sends, one client", slices["tens"], at_least(1000)),
    ]


def of_rates(name: str, slices: list[Slice], wanted: Wanted | None = None) -> Figure:
    values = [one.rate for one in slices]
    return Figure(name=name, ours=statistics.median(values), unit="/s", spread=quartiles(values), wanted=wanted)


def idle(path: Path, turns: int) -> list[Figure]:
    """What a thousand clients that do nothing cost: half of them over STOMP, half Python's."""
    body = os.urandom(BODY)
    with daemon(path, "Q") as served:
        qm = served.connect()
        work = emptied(qm, partial(repeat, lambda: qm.put("Q", body), seconds=SECONDS))
        work()
        before = served.resident()
        stomps: list[StompClient] = []
        others: list[Any] = []
        taken: dict[str, list[Slice]] = {"without": [], "with": []}
        alone = len(qm.connections())
        for _ in range(turns):
            taken["without"].append(work())
            stomps = [StompClient(served.stomp) for _ in range(IDLE // 2)]
            others = [served.connect() for _ in range(IDLE // 2)]
            for each in others:
                each.queue("Q")
            more = served.resident() - before
            taken["with"] += [work(), work()]
            for each in [*stomps, *others]:
                each.close()
            while len(qm.connections()) > alone:
                time.sleep(0.01)
            taken["without"].append(work())  # first and last, so that a machine that grows slower is on neither side
        qm.close()
    return [
        Figure(name=f"{IDLE:,} idle connections", ours=more / (1 << 20), unit="MB", wanted=at_most(60)),
        compare("puts beside them ÷ without", taken["with"], taken["without"], rate, unit="/s", wanted=at_least(0.95)),
    ]


def life(path: Path, turns: int) -> list[Figure]:
    """Start and end."""
    starts: list[float] = []
    ends: list[float] = []
    bare = []
    make(path, "Q")
    for _ in range(turns):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import qmgr"], check=True, env=USUAL)
        bare.append(time.perf_counter() - begin)
        starts.append(command(path, "strmqm", NAME))
        clients = [qmgr.connect(NAME, data_path=path) for _ in range(CLIENTS)]
        for each in clients:
            each.begin().put("Q", b"x")
        ends.append(command(path, "endmqm", "-i", NAME))
        for each in clients:
            each.close()
    return [
        Figure(
            name="strmqm on an empty queue manager; python -c 'import qmgr'",
            ours=statistics.median(starts),
            other=statistics.median(bare),
            unit="s",
            spread=quartiles(starts),
            wanted=at_most(0.5),
        ),
        Figure(
            name=f"endmqm -i with {CLIENTS} clients in units of work",
            ours=statistics.median(ends),
            unit="s",
            spread=quartiles(ends),
            wanted=at_most(2.0),
        ),
    ]


# ---- all of it

GROUPS: dict[str, Callable[[Path, int], list[Figure]]] = {
    group.__name__: group for group in (client, stomp, idle, life)
}


def measure(name: str, path: Path, turns: int) -> list[Figure]:
    """One group in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=path) as home:
        return GROUPS[name](Path(home), turns)


def method(turns: int) -> list[str]:
    return [
        f"load     {os.getloadavg()[0]:.2f}, average of the minute before",
        f"method   persistent messages, {BODY} bytes, default settings; sides in turn, {turns} slices of {SECONDS} s;",
        "         ours, other: medians over the slices; ratio: median and quartiles of the slices' ratios",
        "         the daemon and each of several clients are processes of their own, on the same processors",
    ]


def main() -> int:
    parser = SaysItsHelp(prog="python -m benchmarks.daemon", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few slices each, to see that all works")
    parser.add_argument("--only", choices=list(GROUPS), action="append", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument("--path", type=Path, default=machine.ROOT / ".bench", help="where to measure (default: .bench)")
    args = parser.parse_args()
    path = args.path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    turns = 2 if args.quick else TURNS
    groups = [partial(measure, name, path, turns) for name in args.only or GROUPS]
    report.run(path, method(turns), groups, kept_as=None if args.quick or args.only else "-daemon")
    return 0


if __name__ == "__main__":
    sys.exit(main())
