"""Run the benchmarks of linear logging; a whole run is also written to benchmarks/results/.

Each group has a directory of its own below `path`. Whatever shares a machine with these benchmarks hits both sides of
a figure, since they take turns; how much of the processors others took meanwhile is said for each group.
"""

import argparse
import contextlib
import itertools
import json
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
from pathlib import Path
from typing import Any

import attrs

import qmgr
from benchmarks import machine, report
from benchmarks.children import alone, host
from benchmarks.deep import BATCH, MB, ini, quartiles
from benchmarks.measure import Figure, Slice, Wanted, at_least, at_most, by_turns, compare, repeat, slice_of
from benchmarks.memory import highest, resident
from benchmarks.put_get import BODY, PAGE, UNIT, drain, manager, p99, rate
from benchmarks.raw import RawFile
from logger import at_rest
from logger.archive import Archive
from logger.archive_plan import Action, Plan
from logger.clock import SystemClock
from logger.compressed import Compression
from logger.history import Form, History
from logger.posix_disk import PosixDisk
from qmgr.cli.command import SaysItsHelp
from qmgr.ini import parse
from qmgr.pace import Pace
from recovery.records import decode

MESSAGES = 1_000_000
TURNS = 3
COMMITS = 12_000  # of a slice: they fill an extent and a half
FILE_PAGES = 1024  # of an extent there, 4 MiB
RECORDS = 200_000  # that are read
PART = bytes(64 << 10)  # about what one record of an image has
STOCK = 4  # extents that are archived again and again
LONGEST = 5.0  # seconds of a slice, if the disk is slow


# ---- images


def load(path: Path, messages: int) -> float:
    """Make a queue manager with linear logging and a deep queue; how many messages a second were put."""
    with manager(path, "Q", "HOT", log_type="linear") as qm:
        begin = time.perf_counter()
        for _ in range(messages // BATCH):
            qm.put_many("Q", [os.urandom(BODY) for _ in range(BATCH)])
        return messages / (time.perf_counter() - begin)


def beside(step: Callable[[], object], work: Callable[[], object]) -> tuple[Slice, float]:
    """Repeat `step` while another thread does `work`; how long that took."""
    clock = time.perf_counter
    over: list[float] = []

    def run() -> None:
        work()
        over.append(clock())

    worker = threading.Thread(target=run)
    ends = [clock()]
    worker.start()
    while not over and worker.is_alive():
        step()
        ends.append(clock())
    worker.join()
    return slice_of(ends), over[0] - ends[0]


@attrs.frozen
class Imaged:
    """Images of the deep queue, taken one after the other."""

    raw: list[Slice]  # 64 KiB, forced
    quiet: list[Slice]  # puts
    busy: list[Slice]  # puts beside an image
    took: list[float]  # seconds of such an image
    alone: list[float]  # seconds of an image with nothing beside it
    size: int  # bytes of log that an image takes
    before: int  # bytes resident
    highest: int


def image(path: Path, turns: int) -> Imaged:
    """Put to another queue beside an image of the deep one, and beside nothing, by turns."""
    raw = RawFile(path / "raw", 64 << 20)
    body = os.urandom(BODY)
    with qmgr.start("BENCH", data_path=path) as qm:

        def put() -> None:
            qm.put("HOT", body)

        def tail() -> int:
            return qm.status().log.tail

        def record() -> None:
            assert qm.record_image("Q") == ["Q"]

        def pause() -> None:
            drain(qm, "HOT")
            qm.checkpoint()

        put()
        pause()
        before, from_here = resident(), tail()
        begin = time.perf_counter()
        record()
        found = Imaged([], [], [], [], [time.perf_counter() - begin], tail() - from_here, before, highest())
        for turn in range(turns):
            sides = ["busy", "quiet"] if turn % 2 else ["quiet", "busy"]
            for side in sides:
                if side == "quiet":
                    found.quiet.append(repeat(put, seconds=found.alone[-1]))
                else:
                    taken, seconds = beside(put, record)
                    found.busy.append(taken)
                    found.took.append(seconds)
                pause()
            found.raw.append(repeat(lambda: raw.force(PART), seconds=0.5))
            begin = time.perf_counter()
            record()
            found.alone.append(time.perf_counter() - begin)
        return attrs.evolve(found, alone=found.alone[1:] or found.alone, highest=highest())


@attrs.frozen
class Recreated:
    seconds: float
    worked: float  # seconds of processor time
    before: int
    highest: int


def recreate(path: Path, messages: int) -> Recreated:
    """Delete the files of the deep queue, and have it made again."""
    with qmgr.start("BENCH", data_path=path) as qm:
        before = resident()
        files = list((path / "qmgrs" / "BENCH" / "queues").rglob("Q/*.seg"))
        assert files
        for file in files:
            file.unlink()
        begin, worked = time.perf_counter(), time.process_time()
        info = qm.recreate("Q")
        seconds, worked = time.perf_counter() - begin, time.process_time() - worked
        assert info.depth == messages
        return Recreated(seconds, worked, before, highest())


def media(path: Path, messages: int, turns: int) -> list[Figure]:
    """Record images of a deep queue beside puts, and make the queue again from the log and from an image."""
    home = path / "media"
    loaded = alone(load, home, messages)
    from_log = [alone(recreate, home, messages) for _ in range(max(1, turns // 3))]
    found = alone(image, home, turns)
    from_image = [alone(recreate, home, messages) for _ in range(turns)]
    parts = [one.rate * len(PART) / MB for one in found.raw]
    text = f"{messages:,} × {BODY} bytes"
    return [
        compare(
            f"p99 of a put beside an image of {text} ÷ beside none",
            found.busy,
            found.quiet,
            p99,
            unit="µs",
            wanted=at_most(3),
        ),
        compare("the same, median of a put", found.busy, found.quiet, lambda one: one.p50, unit="µs"),
        compare("puts beside the image ÷ beside none", found.busy, found.quiet, rate, unit="/s"),
        in_all(f"image of {text}, with puts beside it; with none", found.took, found.alone, "s"),
        in_all(
            "the same; raw, 64 KiB at a time",
            [found.size / MB / seconds for seconds in found.alone],
            parts,
            "MB/s",
        ),
        memory_of("an image of it", found.before, found.highest),
        *remade("image", from_image, messages, loaded),
        memory_of("making it from its image", from_image[0].before, max(one.highest for one in from_image)),
        *remade("log alone", from_log, messages, loaded),
        memory_of("making it from the log alone", from_log[0].before, max(one.highest for one in from_log)),
    ]


def remade(what: str, times: list[Recreated], messages: int, loaded: float) -> list[Figure]:
    rates = [messages / one.seconds for one in times]
    by_processor = [messages / one.worked for one in times]
    return [
        in_all(f"recreate it from its {what}; loading it", rates, [loaded], "msg/s", at_least(100_000)),
        Figure(name="the same, by processor time", ours=statistics.median(by_processor), unit="msg/s"),
    ]


def memory_of(what: str, before: int, most: int) -> Figure:
    return Figure(name=f"most resident in {what}; before", ours=most / MB, other=before / MB, unit="MB")


def in_all(name: str, ours: list[float], other: list[float], unit: str, wanted: Wanted | None = None) -> Figure:
    """Medians side by side; what counts is ours."""
    return Figure(
        name=name,
        ours=statistics.median(ours),
        other=statistics.median(other),
        unit=unit,
        spread=quartiles(ours),
        wanted=wanted,
    )


# ---- reading


def flights() -> Iterator[bytes]:
    """Bodies as they may be in earnest: text, which can be compressed about as well as a log can."""
    chance = random.Random(1)
    while True:
        said = {
            "flight": f"{chance.choice(['UA', 'AA', 'B6', 'DL', 'EV'])}{chance.randrange(10_000)}",
            "origin": chance.choice(["EWR", "JFK", "LGA"]),
            "departed": f"2013-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:00",
            "delay": chance.randrange(-20, 400),
            "tail": f"N{chance.randrange(100_000)}",
            "distance": chance.randrange(5000),
            "key": chance.randbytes(24).hex(),
        }
        yield json.dumps(said).encode().ljust(BODY)


def write_log(path: Path, records: int) -> None:
    """A log of puts of one message each, as a thread that puts one by one leaves it."""
    body = flights()
    with manager(path, "Q", log_type="linear", log_sync="os") as qm:
        for _ in range(records):
            qm.put("Q", next(body))


def keep(path: Path, original: Path, compression: Compression | None) -> None:
    """Copy a queue manager that has ended, and archive the extents of the copy, compressed or not."""
    shutil.copytree(original, path)
    for file in path.rglob("*.ini"):
        file.write_text(file.read_text().replace(str(original), str(path)))
    if compression is not None:
        ini(path).write_text(ini(path).read_text() + f"\nLogArchive:\n   Compression={compression.value}\n")
    with qmgr.start("BENCH", data_path=path) as qm:
        qm.checkpoint()
        qm.checkpoint()  # a restart must do with the one before too
        qm.archive_log()
        if compression is not None:
            qm.compress_log()


class Kept:
    """The extents of a queue manager that has ended, as far as they are archived."""

    def __init__(self, path: Path) -> None:
        disk = PosixDisk()
        config = parse(ini(path).read_bytes(), str(ini(path))).log
        self._state, self._reader, _, _ = at_rest.read_with_history(disk, config)
        self._history = at_rest.history_of(disk, config, self._state)
        places = {at: one for at, one in self._history.places().items() if one.form is not Form.ACTIVE}
        self.forms = {place.form for place in places.values()}
        self.size = sum(place.size for place in places.values())
        extent_bytes = self._state.extent_bytes
        self.plain = len(places) * extent_bytes
        self._range = min(places) * extent_bytes, (max(places) + 1) * extent_bytes

        self.records = 0  # in them, known once they were read

    def read(self, *, decoded: bool) -> Slice:
        """Read and check every record once, and decode each if wanted."""
        start, until = self._range
        begin = time.perf_counter()
        count = 0
        with contextlib.closing(self._history.reader(self._state)) as reader:
            for raw in reader.records(start, until=until, resync=True):
                if decoded:
                    decode(raw.kind, raw.uow, raw.body)
                count += 1
        self.records = count
        return Slice(rate=count / (time.perf_counter() - begin), p50=0.0, p99=0.0, steps=count)


def replayed(qm: qmgr.QueueManager, most: int) -> Slice:
    """Replay the first messages that the log has."""
    begin = time.perf_counter()
    with contextlib.closing(qm.replay("Q", "oldest")) as messages:
        count = sum(1 for _ in itertools.islice(messages, most))
    return Slice(rate=count / (time.perf_counter() - begin), p50=0.0, p99=0.0, steps=count)


KINDS: dict[str, Compression | None] = {"plain": None, "zstd": Compression.ZSTD, "gzip": Compression.GZIP}


def reading(path: Path, messages: int, turns: int) -> list[Figure]:
    """Read archived extents, plain and compressed, record by record."""
    original = path / "original"
    alone(write_log, original, min(RECORDS, messages))
    for name, kind in KINDS.items():
        alone(keep, path / name, original, kind)
    kept = {name: Kept(path / name) for name in KINDS}
    assert kept["zstd"].forms == kept["gzip"].forms == {Form.COMPRESSED}
    figures = []
    for text, decoded in (("read and decoded", True), ("read only", False)):
        sides = {name: partial(one.read, decoded=decoded) for name, one in kept.items()}
        slices = by_turns(sides, turns)
        for name in ("zstd", "gzip"):
            wanted = at_least(0.5) if decoded else None
            figures.append(
                compare(f"{name} ÷ plain, {text}", slices[name], slices["plain"], rate, unit="rec/s", wanted=wanted)
            )
    with contextlib.ExitStack() as hosts:
        most = min(one.records for one in kept.values())
        side = {name: partial(hosts.enter_context(host(path / name)).call, replayed, most) for name in KINDS}
        slices = by_turns(side, turns)
    figures += [
        compare(
            f"{name} ÷ plain, messages replayed",
            slices[name],
            slices["plain"],
            rate,
            unit="msg/s",
            wanted=at_least(0.5),
        )
        for name in ("zstd", "gzip")
    ]
    return [
        *figures,
        *(
            Figure(
                name=f"size of the extents, {name}; plain",
                ours=kept[name].size / MB,
                other=kept["plain"].size / MB,
                unit="MB",
            )
            for name in ("zstd", "gzip")
        ),
    ]


# ---- archiving while commits go on


class Archiving:
    """Archives and compresses copies of the same extents for ever, as the queue manager does with its own."""

    def __init__(self, path: Path, qm: qmgr.QueueManager, compression: Compression | None) -> None:
        self._path = path
        self._compression = compression
        log = qm.status().log
        self._disk = PosixDisk()
        active = Path(log.config.path) / "active"
        state, reader = at_rest.read_only(self._disk, log.config.path)
        reader.close()
        self._stock = sorted(active.glob("S*.LOG"))[:STOCK]
        self._history = History(self._disk, [f"{path}/active", f"{path}/archive"], state.log_id, state.extent_bytes)
        self._archive = Archive(self._disk, self._history, f"{path}/archive")
        self._pace = Pace(SystemClock(), lambda: qm.status().log.tail)
        self._over = False
        self._seen = 0  # bytes of the extent that is in work
        self.bytes = 0
        self.seconds = 0.0

    def _once(self) -> None:
        """Archive or compress one extent after the other."""
        shutil.rmtree(self._path, ignore_errors=True)
        (self._path / "active").mkdir(parents=True)
        for file in self._stock:
            os.link(file, self._path / "active" / file.name)
        action = Action.ARCHIVE if self._compression is None else Action.COMPRESS
        kind = self._compression or Compression.GZIP
        plan = self._archive.plan(action, after=0, now_us=1 << 60, active_from=1 << 60, compression=kind)
        for step in plan.steps:
            if self._over:
                return
            self._archive.run(Plan(steps=(step,)), progress=self._progress, give_way=self._pace.give_way)

    def _progress(self, done: int, total: int) -> None:
        """What is done after the slice is over has the disk for itself and does not count."""
        if not self._over:
            self.bytes += done - self._seen if done > self._seen else 0
        self._seen = done % total

    def beside(self, work: Callable[[], Slice]) -> Slice:
        """Do `work` while this goes on in another thread."""

        def run() -> None:
            while not self._over:
                self._once()

        self._over = False
        worker = threading.Thread(target=run)
        begin = time.perf_counter()
        worker.start()
        try:
            return work()
        finally:
            self._over = True
            self.seconds += time.perf_counter() - begin
            worker.join()


def commits(qm: qmgr.QueueManager, count: int, body: bytes) -> Slice:
    """Units of work of one put and one get."""

    def unit() -> None:
        with qm.begin() as uow:
            uow.put("Q", body)
            uow.get("Q")

    qm.put("Q", body)
    taken = repeat(unit, count=count, seconds=LONGEST)
    drain(qm, "Q")
    return taken


def commits_of(turns: int) -> int:
    """How many make a slice; only a few where it is to be seen that all works."""
    return COMMITS if turns > 2 else COMMITS // 20


def archiving(path: Path, messages: int, turns: int) -> list[Figure]:
    """Commit while extents are archived and compressed without a pause, and while none are, by turns."""
    return alone(_archiving, path, commits_of(turns) // 2, turns)


def _archiving(path: Path, count: int, turns: int) -> list[Figure]:
    body = next(flights())
    bodies = flights()
    with manager(path / "commits", "Q", log_type="linear") as qm:
        while qm.status().log.tail < (STOCK + 2) * qm.status().log.config.extent_bytes:
            qm.put_many("Q", [next(bodies) for _ in range(UNIT)])
            qm.get_many("Q", UNIT)
        qm.checkpoint()
        work = partial(commits, qm, count, body)
        each = {
            text: Archiving(path / f"scratch-{number}", qm, kind)
            for number, (text, kind) in enumerate(
                (
                    ("archived", None),
                    ("compressed with zstd", Compression.ZSTD),
                    ("compressed with gzip", Compression.GZIP),
                )
            )
        }
        slices = by_turns({"none": work} | {text: partial(one.beside, work) for text, one in each.items()}, turns)
    figures = []
    for text, one in each.items():
        figures += [
            compare(
                f"commits while extents are {text} ÷ while none are",
                slices[text],
                slices["none"],
                rate,
                unit="/s",
                wanted=at_least(0.8),
            ),
            compare(
                "the same, p99 of a commit",
                slices[text],
                slices["none"],
                p99,
                unit="µs",
            ),
            Figure(name=f"extents {text} meanwhile", ours=one.bytes / MB / one.seconds, unit="MB/s"),
        ]
    return figures


# ---- linear and circular


def settle(qm: qmgr.QueueManager) -> None:
    """An image, so that nothing before it is needed; a restart needs what came since the last checkpoint but one."""
    qm.record_image()
    qm.checkpoint()
    qm.checkpoint()


def filled(qm: qmgr.QueueManager, count: int, linear: bool) -> Slice:
    taken = commits(qm, count, os.urandom(BODY))
    if linear:
        settle(qm)
    return taken


def logtype(path: Path, messages: int, turns: int) -> list[Figure]:
    """The same commits with a circular log and with linear ones, whose next extents are made meanwhile."""
    kinds = {
        "circular": {"log_type": "circular"},
        "linear, Manual": {"log_type": "linear"},
        "linear, Automatic, extents used again": {"log_type": "linear", "log_management": "Automatic"},
    }
    homes = {text: path / str(number) for number, text in enumerate(kinds)}
    for text, log in kinds.items():
        alone(make, homes[text], **log)
    count = commits_of(turns)
    with contextlib.ExitStack() as hosts:
        sides = {}
        for text, home in homes.items():
            side = hosts.enter_context(host(home))
            sides[text] = partial(side.call, filled, count, "linear" in text)
        slices = by_turns(sides, turns)
    figures = []
    for text in list(kinds)[1:]:
        figures += [
            compare(f"commits, {text} ÷ circular", slices[text], slices["circular"], rate, unit="/s"),
            compare("the same, p99 of a commit", slices[text], slices["circular"], p99, unit="µs"),
        ]
    return figures


def make(path: Path, **log: Any) -> None:
    with manager(path, "Q", file_pages=FILE_PAGES, **log):
        pass


# ---- all of it

GROUPS: dict[str, Callable[[Path, int, int], list[Figure]]] = {
    group.__name__: group for group in (media, reading, archiving, logtype)
}


def measure(name: str, path: Path, messages: int, turns: int) -> list[Figure]:
    """One group in a directory of its own, and how much of the processors others took meanwhile."""
    answers = [answer(path)]
    begin, (all_before, ours_before) = time.perf_counter(), machine.busy()
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=path) as home:
        figures = GROUPS[name](Path(home), messages, turns)
    all_after, ours_after = machine.busy()
    seconds = (time.perf_counter() - begin) * (os.cpu_count() or 1)
    others = max(0.0, all_after - all_before - (ours_after - ours_before)) / seconds
    answers.append(answer(path))
    text = f"of the processors, taken by others during {name}; load average"
    return [
        *figures,
        Figure(name=text, ours=others * 100, other=os.getloadavg()[0], unit="%"),
        Figure(name="median of a raw force of 4 KiB before that; after", ours=answers[0], other=answers[1], unit="µs"),
    ]


def answer(path: Path) -> float:
    """Microseconds to write one page durably; on a busy machine most of that is waiting for a processor."""
    with tempfile.TemporaryDirectory(prefix="raw-", dir=path) as home:
        raw = RawFile(Path(home) / "raw", 1 << 20)
        return repeat(lambda: raw.force(PAGE), count=200, seconds=1.0).p50


def arguments() -> argparse.Namespace:
    parser = SaysItsHelp(prog="python -m benchmarks.linear", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few slices each, to see that all works")
    parser.add_argument("--only", choices=list(GROUPS), action="append", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument(
        "--messages", type=int, default=MESSAGES, metavar="N", help=f"how deep the queue is (default: {MESSAGES:,})"
    )
    parser.add_argument("--path", type=Path, default=machine.ROOT / ".bench", help="where to measure (default: .bench)")
    args = parser.parse_args()
    if args.messages < 50 * BATCH or args.messages % BATCH:
        parser.error(f"--messages {args.messages}: a multiple of {BATCH} is needed, {50 * BATCH} at least")
    args.path = args.path.absolute()
    args.path.mkdir(parents=True, exist_ok=True)
    turns = 2 if args.quick else TURNS
    needed = args.messages * BODY * 2 * (2 * turns + 4) + (2 << 30)
    free = shutil.disk_usage(args.path).free
    if free < needed:
        parser.error(f"{args.path} has {free / 1e9:.1f} GB left, and {needed / 1e9:.1f} GB are needed")
    return args


def method(turns: int) -> list[str]:
    return [
        f"load     {os.getloadavg()[0]:.2f}, average of the minute before",
        f"method   persistent messages, {BODY} bytes, default settings; sides in turn, {turns} slices;",
        "         ours, other: medians over the slices; ratio: median and quartiles of the slices' ratios",
        "         media: one thread puts to another queue, for as long as the image takes; the image has a thread",
        "         raw: write 64 KiB into a file written with zeros before, then fdatasync",
        "         reading: extents of 16 MiB with puts of one message each, text; the page cache is warm",
        "         archiving: copied or compressed, synced, read back and compared, of the same four extents again",
        f"         linear ÷ circular: {COMMITS:,} commits a slice, which fill extents of 4 MiB; more are made",
    ]


def main() -> int:
    args = arguments()
    turns = 2 if args.quick else TURNS
    groups = [partial(measure, name, args.path, args.messages, turns) for name in args.only or GROUPS]
    report.run(args.path, method(turns), groups, kept_as=None if args.quick or args.only else "-linear")
    return 0


if __name__ == "__main__":
    sys.exit(main())
