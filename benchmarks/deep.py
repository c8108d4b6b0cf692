"""Run the benchmarks of deep queues and of many queues; a whole run is also written to benchmarks/results/.

The groups that need a deep queue share one below `path`, loaded by the first of them; each leaves it about as deep.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

import attrs

import qmgr
from benchmarks import machine, report
from benchmarks.children import Host, alone, host, kill
from benchmarks.measure import Figure, Slice, Wanted, at_least, at_most, by_turns, compare, repeat
from benchmarks.memory import highest, resident
from benchmarks.put_get import BODY, HALF, RAW_BYTES, UNIT, drain, manager, rate
from benchmarks.raw import RawFile
from qmgr.cli.command import SaysItsHelp

DEPTHS = (1_000_000, 10_000_000)
QUEUES = 10_000
TURNS = 5
BATCH = 1000  # messages of a unit of work that loads
CHANGES = 50_000  # before a checkpoint; and what makes one due
LONGEST = 12.0  # seconds of a slice, if the disk is slow
BYTES = 450  # of disk that a queued message takes, at most
MB = 1e6


def ini(path: Path) -> Path:
    return path / "qmgrs" / "BENCH" / "qm.ini"


# ---- a deep queue


@attrs.frozen
class Loaded:
    """How a queue became deep, in a process of its own."""

    seconds: float
    before: int  # bytes resident
    after: int
    highest: int


def load(path: Path, messages: int) -> Loaded:
    """Make the queue manager and put the messages in units of 1000."""
    path.mkdir()
    with manager(path, "Q") as qm:
        before = resident()
        begin = time.perf_counter()
        for _ in range(messages // BATCH):
            qm.put_many("Q", [os.urandom(BODY) for _ in range(BATCH)])
        seconds = time.perf_counter() - begin
        assert qm.queue("Q").depth == messages
        return Loaded(seconds, before, resident(), highest())


def deep(path: Path, messages: int) -> Path:
    """The data path of the queue manager with the deep queue, which is loaded if it is not there."""
    home = path / "deep"
    if not home.exists():
        alone(load, home, messages)
    return home


def empty(path: Path) -> Path:
    """The data path of the one that all is compared with: the same with an empty queue."""
    home = path / "empty"
    if not home.exists():
        alone(load, home, 0)
    return home


def by_depth(messages: int, million: float, more: float) -> float:
    """What is wanted with a million messages, and with more."""
    return million if messages <= DEPTHS[0] else more


def put_away(qm: qmgr.QueueManager, depth: int) -> None:
    """Bring the queue to a depth, and take a checkpoint."""
    while (over := qm.queue("Q").depth - depth) > 0:
        qm.get_many("Q", min(over, BATCH))
    if over < 0:
        qm.put_many("Q", [os.urandom(BODY) for _ in range(-over)])
    qm.checkpoint()


def memory(path: Path, messages: int, turns: int) -> list[Figure]:
    """Load a deep queue, and see how large the process is."""
    if (path / "deep").exists():
        shutil.rmtree(path / "deep")
    loaded = alone(load, path / "deep", messages)
    with host(path / "deep") as again:
        restarted = again.call(resident_of)
    wanted = at_most(by_depth(messages, 150, 700))
    text = f"{messages:,} × {BODY} bytes queued"
    return [
        Figure(name=f"loading {messages:,} in units of {BATCH}", ours=messages / loaded.seconds, unit="msg/s"),
        Figure(
            name=f"resident, {text}; before",
            ours=loaded.after / MB,
            other=loaded.before / MB,
            unit="MB",
            wanted=wanted,
        ),
        Figure(name="most resident while they were put", ours=loaded.highest / MB, unit="MB"),
        Figure(name=f"resident, {text}, after a restart", ours=restarted / MB, unit="MB", wanted=wanted),
    ]


def resident_of(qm: qmgr.QueueManager) -> int:
    return resident()


# ---- through it


def pairs(qm: qmgr.QueueManager, unit: int, count: int) -> Slice:
    """Put and get so many messages, in units of work of `unit`; then a checkpoint, which is not measured."""
    bodies = [os.urandom(BODY) for _ in range(unit)]

    def one() -> None:
        qm.put("Q", bodies[0])
        qm.get("Q")

    def many() -> None:
        qm.put_many("Q", bodies)
        qm.get_many("Q", unit)

    taken = repeat(one if unit == 1 else many, count=count // unit, seconds=LONGEST)
    qm.checkpoint()
    return taken


def through(path: Path, messages: int, turns: int) -> list[Figure]:
    """Put and get with a deep queue and with an empty one, each in a process of its own.

    Slices are counted, not timed: 30,000 messages put and got, so that one checkpoint becomes due in each.
    """
    count = min(CHANGES * 3 // 5, messages // 10 // UNIT * UNIT)
    figures = []
    with host(deep(path, messages)) as full, host(empty(path)) as bare:
        for unit, text in (1, "one by one"), (UNIT, f"put_many, get_many of {UNIT}"):
            sides = {"full": _side(full, unit, count), "bare": _side(bare, unit, count)}
            slices = by_turns(sides, turns)
            figures.append(
                compare(
                    f"through {messages:,} ÷ through none, {text}",
                    slices["full"],
                    slices["bare"],
                    lambda one, unit=unit: one.rate * unit,  # type: ignore[misc]
                    unit="msg/s",
                    wanted=at_least(by_depth(messages, 0.8, 0.7)),
                )
            )
    return figures


def _side(one: Host, unit: int, count: int) -> Callable[[], Slice]:
    return lambda: one.call(pairs, unit, count)


# ---- starting


@attrs.frozen
class Started:
    seconds: float
    replayed: int  # records
    depth: int
    end: float  # seconds that the end took


def started(path: Path) -> Started:
    begin = time.perf_counter()
    qm = qmgr.start("BENCH", data_path=path)
    seconds = time.perf_counter() - begin
    depth = qm.status().messages
    begin = time.perf_counter()
    qm.end()
    return Started(seconds, qm.restart_report.records_replayed, depth, time.perf_counter() - begin)


def flow(begun: Event, path: Path, queue: str) -> None:
    """Put and get for ever: one thread a message at a time, one in units of 100."""
    qm = qmgr.start("BENCH", data_path=path)
    threading.Thread(target=_flow, args=(qm, queue, 1), daemon=True).start()
    begun.set()
    _flow(qm, queue, UNIT)


def _flow(qm: qmgr.QueueManager, queue: str, unit: int) -> None:
    bodies = [os.urandom(BODY) for _ in range(unit)]
    while True:
        if unit == 1:
            qm.put(queue, bodies[0])
            qm.get(queue)
        else:
            qm.put_many(queue, bodies)
            qm.get_many(queue, unit)


Starts = list[tuple[Started, Started]]  # of what is measured, and of what it is compared with


def starts(home: Path, other: Path, queue: str, turns: int) -> tuple[Starts, Starts]:
    """Starts after an end in order, and after kill -9 at several moments between two checkpoints."""
    moments = [0.5 + 0.7 * turn for turn in range(turns)] if turns > 2 else [0.1]
    clean = [(alone(started, home), alone(started, other)) for _ in moments]
    killed = []
    for moment in moments:
        kill(flow, moment, home, queue)
        kill(flow, moment, other, queue)
        killed.append((alone(started, home), alone(started, other)))
    return clean, killed


def start(path: Path, messages: int, turns: int) -> list[Figure]:
    """Start with a deep queue and with an empty one."""
    clean, killed = starts(deep(path, messages), empty(path), "Q", turns)
    for full, _ in clean + killed:
        assert 0 <= full.depth - messages <= (UNIT + 1) * len(killed), full
    replayed = [full.replayed for full, _ in killed]
    return [
        longest(f"start after an end in order, {messages:,} queued; none", clean, lambda s: s.seconds, 2.0),
        longest(f"start after kill -9 in full flow, {messages:,} queued; none", killed, lambda s: s.seconds, 5.0),
        Figure(name="records replayed after kill -9, at most", ours=max(replayed), unit="records"),
        longest(f"end in order, {messages:,} queued; none", clean, lambda s: s.end),
    ]


def longest(
    name: str,
    taken: Starts,
    value: Callable[[Started], float],
    bound: float | None = None,
) -> Figure:
    """The longest of all times, ours and the other side's; the quartiles are of ours."""
    ours, other = [value(one) for one, _ in taken], [value(one) for _, one in taken]
    wanted: Wanted | None = None if bound is None else at_most(bound)
    return Figure(name=name, ours=max(ours), other=max(other), unit="s", spread=quartiles(ours), wanted=wanted)


def quartiles(values: list[float]) -> tuple[float, float] | None:
    """None where one value is all there is."""
    if len(values) < 2:
        return None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


# ---- checkpoints


@attrs.frozen
class Stall:
    """One checkpoint, and a while as long without one."""

    checkpoint: float  # seconds
    stalled: float  # the longest put in it, seconds
    quiet: float  # the longest put with no checkpoint, seconds
    puts: int  # in the checkpoint


class Putter:
    """A thread that puts one message after the other in a `with` block, and measures each put."""

    def __init__(self, qm: qmgr.QueueManager) -> None:
        self._qm = qm
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self.ends: list[float] = []

    def _run(self) -> None:
        body, clock = os.urandom(BODY), time.perf_counter
        self.ends.append(clock())
        while not self._over:
            self._qm.put("Q", body)
            self.ends.append(clock())

    def __enter__(self) -> "Putter":
        self._thread.start()
        time.sleep(0.05)
        return self

    def __exit__(self, *args: object) -> None:
        self._over = True
        self._thread.join()

    def longest(self, begin: float, end: float) -> tuple[float, int]:
        """The longest of the puts that overlap with this time, and how many those are."""
        took = [
            after - before
            for before, after in zip(self.ends, self.ends[1:], strict=False)
            if after > begin and before < end
        ]
        return max(took), len(took)


def stalls(path: Path, messages: int, turns: int) -> list[Stall]:
    """Change the queue 50,000 times, take a checkpoint, and put beside it; by turns with no checkpoint."""
    kept = ini(path).read_text()
    ini(path).write_text(kept + "\nTuningParameters:\n   CheckPointLogRecdMax=10000000\n")
    found = []
    with qmgr.start("BENCH", data_path=path) as qm:
        seconds = 0.5 if turns > 2 else 0.1
        for _ in range(turns):
            put_away(qm, messages)
            with Putter(qm) as putter:
                begin = time.perf_counter()
                time.sleep(seconds)
                quiet = begin, time.perf_counter()
            put_away(qm, messages)
            for _ in range(min(CHANGES, messages) // (2 * UNIT)):
                qm.put_many("Q", [os.urandom(BODY) for _ in range(UNIT)])
                qm.get_many("Q", UNIT)
            without, _ = putter.longest(*quiet)
            with Putter(qm) as putter:
                begin = time.perf_counter()
                qm.checkpoint()
                end = time.perf_counter()
            stalled, puts = putter.longest(begin, end)
            found.append(Stall(end - begin, stalled, without, puts))
            seconds = max(seconds, end - begin)
        put_away(qm, messages)
    ini(path).write_text(kept)
    return found


def checkpoint(path: Path, messages: int, turns: int) -> list[Figure]:
    """How long a put waits at most while a checkpoint is taken."""
    figures = []
    for home, depth in (deep(path, messages), messages), (empty(path), 0):
        found = alone(stalls, home, depth, turns)
        waits = [one.stalled * 1e3 for one in found]
        text = f"checkpoint of {CHANGES:,} changes, {depth:,} queued"
        figures += [
            Figure(
                name=f"{text}: longest put; with none",
                ours=max(waits),
                other=max(one.quiet for one in found) * 1e3,
                unit="ms",
                spread=quartiles(waits),
                wanted=at_most(20) if depth else None,
            ),
            Figure(
                name=f"{text}: the same, median of all",
                ours=statistics.median(waits),
                other=statistics.median(one.quiet for one in found) * 1e3,
                unit="ms",
            ),
            Figure(
                name=text,
                ours=statistics.median(one.checkpoint for one in found),
                unit="s",
            ),
            Figure(
                name=f"{text}: puts beside it",
                ours=statistics.median(one.puts / one.checkpoint for one in found),
                unit="/s",
            ),
        ]
    return figures


# ---- by id


def select(path: Path, messages: int, turns: int) -> list[Figure]:
    """Get by correlation id from anywhere in the queue, plainly from its front, and raw syncs, by turns."""
    messages = min(messages, DEPTHS[0])
    count = min(4000, messages // (4 * (turns + 1)))
    plain = count * (turns + 1)  # messages that are got from the front
    numbers = list(range(plain, messages))
    random.Random(1).shuffle(numbers)
    body = os.urandom(BODY)
    raw = RawFile(path / "raw", RAW_BYTES)

    def by_id() -> None:
        qm.get("Q", correlation_id=numbers.pop().to_bytes(24, "big"))

    with manager(path, "Q") as qm:
        for first in range(0, messages, BATCH):
            with qm.begin() as uow:
                for number in range(first, first + BATCH):
                    uow.put("Q", body, correlation_id=number.to_bytes(24, "big"))
        qm.checkpoint()
        begin = time.perf_counter()
        by_id()
        made = time.perf_counter() - begin
        slices = by_turns(
            {
                "raw": lambda: repeat(lambda: raw.force(HALF), count=count),
                "plain": lambda: repeat(lambda: qm.get("Q"), count=count),
                "by id": lambda: repeat(by_id, count=count),
            },
            turns,
        )

    def beyond(what: str, side: str) -> Figure:
        found = [a.p50 - b.p50 for a, b in zip(slices["by id"], slices[side], strict=True)]
        return Figure(
            name=f"get by correlation id among {messages:,}, beyond {what}",
            ours=statistics.median(found),
            other=statistics.median(one.p50 for one in slices[side]),
            unit="µs",
            spread=quartiles(found),
            wanted=at_most(50),
        )

    return [
        Figure(name=f"first get by correlation id: makes the index of {messages:,}", ours=made, unit="s"),
        beyond("a raw sync of 2 KiB", "raw"),
        beyond("a plain get", "plain"),
    ]


# ---- many queues


@attrs.frozen
class Defined:
    """Seconds of a queue manager's first day."""

    define: float
    checkpoint: float  # with all queues new
    put: float  # one message to each
    checkpoint_put: float  # with all queues changed
    checkpoint_one: float  # with one changed
    resident: int


def define(path: Path, count: int) -> Defined:
    """Define that many queues beside HOT."""
    path.mkdir()
    body = os.urandom(BODY)

    def timed(step: Callable[[], object]) -> float:
        begin = time.perf_counter()
        step()
        return time.perf_counter() - begin

    def define_all() -> None:
        for number in range(count):
            qm.define_queue(f"Q{number}")

    def put_all() -> None:
        for number in range(count):
            qm.put(f"Q{number}", body)

    with manager(path, "HOT") as qm:
        defined, new, put, changed = (timed(step) for step in (define_all, qm.checkpoint, put_all, qm.checkpoint))
        qm.put("HOT", body)
        one = timed(qm.checkpoint)
        qm.get("HOT")
        return Defined(defined, new, put, changed, one, resident())


def hot(qm: qmgr.QueueManager, count: int) -> Slice:
    """Put so many messages; get them and take a checkpoint unmeasured."""
    body = os.urandom(BODY)
    taken = repeat(lambda: qm.put("HOT", body), count=count, seconds=LONGEST)
    drain(qm, "HOT")
    qm.checkpoint()
    return taken


def queues(path: Path, count: int, turns: int) -> list[Figure]:
    """Define many queues; checkpoints and starts with them; a queue with many puts among them."""
    many, few = path / "many", path / "one"
    times, other = alone(define, many, count), alone(define, few, 1)
    clean, killed = starts(many, few, "HOT", turns)
    puts = min(CHANGES * 6 // 5, 6 * count)
    with host(many) as crowded, host(few) as lonely:
        slices = by_turns(
            {"many": lambda: crowded.call(hot, puts), "one": lambda: lonely.call(hot, puts)},
            turns,
        )
    text = f"{count:,} queues"
    return [
        Figure(name=f"defining {text}; one", ours=times.define, other=other.define, unit="s"),
        Figure(name=f"checkpoint, {text}, all new; one", ours=times.checkpoint, other=other.checkpoint, unit="s"),
        Figure(
            name=f"checkpoint, {text}, a message put to each; one",
            ours=times.checkpoint_put,
            other=other.checkpoint_put,
            unit="s",
        ),
        Figure(
            name=f"checkpoint, {text}, one of them changed; one",
            ours=times.checkpoint_one,
            other=other.checkpoint_one,
            unit="s",
        ),
        Figure(name=f"resident memory, {text}; one", ours=times.resident / MB, other=other.resident / MB, unit="MB"),
        longest(f"start after an end in order, {text}; one", clean, lambda s: s.seconds),
        longest(f"start after kill -9 while one is used, {text}; one", killed, lambda s: s.seconds),
        longest(f"end in order, {text}; one", clean, lambda s: s.end),
        compare(f"puts to one of {text} ÷ to one queue", slices["many"], slices["one"], rate, unit="/s"),
    ]


# ---- all of it

AT_A_DEPTH: dict[str, Callable[[Path, int, int], list[Figure]]] = {
    group.__name__: group for group in (memory, start, through, checkpoint)
}
ONCE: dict[str, Callable[[Path, int, int], list[Figure]]] = {group.__name__: group for group in (select, queues)}
GROUPS = [*AT_A_DEPTH, *ONCE]


def arguments() -> argparse.Namespace:
    parser = SaysItsHelp(prog="python -m benchmarks.deep", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few slices each, to see that all works")
    parser.add_argument("--only", choices=GROUPS, action="append", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument(
        "--messages", type=int, default=DEPTHS[-1], metavar="N", help=f"how deep at most (default: {DEPTHS[-1]:,})"
    )
    parser.add_argument("--queues", type=int, default=QUEUES, metavar="N", help=f"how many (default: {QUEUES:,})")
    parser.add_argument("--path", type=Path, default=machine.ROOT / ".bench", help="where to measure (default: .bench)")
    args = parser.parse_args()
    if args.messages < BATCH or args.messages % BATCH:
        parser.error(f"--messages {args.messages}: a multiple of {BATCH} is needed")
    if args.queues < 1:
        parser.error(f"--queues {args.queues}: one queue at least is needed")
    args.path = args.path.absolute()
    args.path.mkdir(parents=True, exist_ok=True)
    needed, free = args.messages * BYTES + (1 << 30), shutil.disk_usage(args.path).free
    if free < needed:
        parser.error(f"{args.path} has {free / 1e9:.1f} GB left, and {needed / 1e9:.1f} GB are needed")
    return args


def method(turns: int) -> list[str]:
    return [
        f"method   persistent messages, {BODY} bytes, default settings and log; sides in turn, {turns} slices;",
        "         a side is a process; what is compared with has the same settings, and nothing queued",
        "         through: slices of 30,000 messages put and got, with the checkpoint that becomes due in each",
        "         ours, other: medians over the slices, of starts the longest; the page cache is warm",
    ]


def groups(args: argparse.Namespace, turns: int) -> Iterator[report.Group]:
    names = args.only or GROUPS
    depths = [depth for depth in DEPTHS if depth < args.messages] + [args.messages]
    for depth in depths if set(names) & set(AT_A_DEPTH) else []:
        with tempfile.TemporaryDirectory(prefix=f"deep-{depth}-", dir=args.path) as home:
            yield from (partial(AT_A_DEPTH[name], Path(home), depth, turns) for name in names if name in AT_A_DEPTH)
    for name in names:
        if name in ONCE:
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=args.path) as home:
                yield partial(ONCE[name], Path(home), args.queues if name == "queues" else args.messages, turns)


def main() -> int:
    args = arguments()
    turns = 2 if args.quick else TURNS
    kept_as = None if args.quick or args.only else "-deep"
    report.run(args.path, method(turns), groups(args, turns), kept_as=kept_as)
    return 0


if __name__ == "__main__":
    sys.exit(main())
