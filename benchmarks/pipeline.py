"""Run the benchmarks of the pipeline: the log decoded to rows, by itself and through Spark; see docs/spark.md.

The log is made for this: extents with indexes, of puts outside units of work (each row has a message), or of units of
work of one put and of one get, as applications have them. Spark's rates stand beside those of one plain Python process
that makes the same Arrow batches and comes to the same count and sums of all columns.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from zlib import crc32

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import machine, report
from benchmarks.children import alone, worked_below
from benchmarks.deep import MB, quartiles
from benchmarks.measure import Figure, Wanted, at_least, at_most
from benchmarks.memory import highest, resident
from logger import frame
from logger.disk import PAGE
from logger.extent import DATA, ExtentHeader, file_name, linear_number
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile
from pipeline import dividing, finding, naming, rows, session
from pipeline.dividing import Part
from pipeline.filters import EVERYTHING, Filters
from pipeline.schema import ARROW, COLUMNS, SQL
from qmgr.cli.command import SaysItsHelp
from qmgr.message import describe
from recovery import extent_index
from recovery.records import Commit, Define, Encoded, Put, run_of_gets, run_of_puts

RECORDS = 5_000_000
TURNS = 3
FILE_PAGES = 4096  # LogFilePages as it is unless somebody sets it
BODY = 256
QUEUES = 50
LOG_ID = b"benchmark of log"
WITHOUT_BODY = tuple(name for name in COLUMNS if name != "body")
KINDS = {"without bodies": WITHOUT_BODY, f"with {BODY}-byte bodies": COLUMNS}
FEWEST = 100_000
EACH = 700  # bytes on disk, more than a record takes
SHAPES = ("puts", "units")


# ---- the log


def puts(count: int) -> Iterator[Encoded]:
    """Messages that are put outside units of work, and none is got."""
    head, body = _message()
    for number in range(count):
        yield Put(1 + number % QUEUES, number // QUEUES, head, body).encode()


def units(count: int) -> Iterator[Encoded]:
    """Units of work of one put, and of one get."""
    head, body = _message()
    for number in range(count // 2):
        queue, sequence = 1 + number % QUEUES, number // QUEUES
        yield Commit(2 * number + 1, {queue: sequence}, b"".join(run_of_puts(queue, 0, [(head, body)]))).encode()
        yield Commit(2 * number + 2, {}, run_of_gets(queue, [sequence])).encode()


def _message() -> tuple[bytes, bytes]:
    return describe(4, True, form="MQSTR").head(os.urandom(24), time.time_ns() // 1000), os.urandom(BODY)


def write_log(path: Path, shape: str, count: int, extent: int) -> None:
    """A folder of extents of so many bytes with so many records, and an index beside each but the last."""
    path.mkdir(parents=True)
    page, at, begun = memoryview(bytearray(extent)), extent, time.time_ns() // 1000
    last = at
    definitions = (Define(json.dumps({"name": f"Q{n}", "id": n}).encode()).encode() for n in range(1, QUEUES + 1))
    seed = crc32(LOG_ID)
    for records in (definitions, puts(count) if shape == "puts" else units(count)):
        for number, (kind, uow, head, data) in enumerate(records):
            length = frame.HEADER.size + len(head) + len(data)
            if at % extent + length + frame.HEADER.size > extent - PAGE:
                now = begun + number
                frame.encode_into(page, at % extent, seed, 1, at, 0, now, 1, frame.PAD, frame.WHOLE, b"", b"")
                _keep(path, at // extent, page)
                page, at = memoryview(bytearray(extent)), (at // extent + 1) * extent
            back = (at - last) // 8
            last = at
            frame.encode_into(page, at % extent, seed, 1, at, uow, begun + number, back, kind, frame.WHOLE, head, data)
            at = frame.next_start(at + length)
    _keep(path, at // extent, page)
    log, disk = finding.find(str(path)), PosixDisk()
    history = log.history(disk)
    for place in list(history.places().values())[:-1]:
        reader = history.reader(log)
        extent_index.store(disk, place, extent_index.build(reader, place, log.log_id, extent))
        reader.close()


def _keep(path: Path, sequence: int, content: memoryview) -> None:
    number = linear_number(sequence)
    header = ExtentHeader(
        number=number, log_id=LOG_ID, sequence=sequence, extent_bytes=len(content), epoch=1, time=sequence
    )
    with (path / file_name(number)).open("wb") as file:
        file.write(header.encode().ljust(DATA, b"\0"))
        file.write(content)


# ---- decoding it


@attrs.frozen
class Read:
    """One reading of the log."""

    rows: int
    seconds: float
    worked: float  # seconds of processor time
    before: int  # bytes resident
    highest: int

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def decode(path: Path, columns: tuple[str, ...], filters: Filters = EVERYTHING) -> Read:
    log = finding.find(str(path))
    before, begin, worked = resident(), time.perf_counter(), time.process_time()
    parts = dividing.plan(log, log.first(), log.end(), filters)
    count = sum(batch.num_rows for part in parts for batch in rows.batches(part, columns, filters))
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    return Read(count, seconds, worked, before, highest())


def plain(path: Path, turns: int) -> list[Figure]:
    """One plain Python process."""
    found: list[Figure] = []
    for shape in SHAPES:
        for what, columns in KINDS.items():
            reads = [alone(decode, path / shape, columns) for _ in range(turns)]
            found += [
                rate(f"decoding a log of {shape} {what}, one process", [one.rate for one in reads]),
                rate("the same, by processor time", [one.rows / one.worked for one in reads]),
            ]
        found.append(memory_of(f"decoding a log of {shape}", reads))
    return found


class Counting(PosixDisk):
    """Counts the bytes that are read of files."""

    def __init__(self) -> None:
        self.bytes = 0

    def open_read(self, path: str) -> PosixFile:
        return Counted(self, os.dup(super().open_read(path).fd), path)


class Counted(PosixFile):
    def __init__(self, disk: Counting, fd: int, path: str) -> None:
        super().__init__(fd, path)
        self._disk = disk

    def read(self, offset: int, size: int) -> bytes:
        data = super().read(offset, size)
        self._disk.bytes += len(data)
        return data


def filtered(path: Path, records: int) -> list[Figure]:
    """A filter on one queue of many, and on a part of the time."""
    home = path / "units"
    log = finding.find(str(home))
    first, end = log.first(), log.end()
    [begun] = next(iter(rows.batches(Part(log, first, first + 8, 0), ("time",))))["time"].cast("int64").to_pylist()
    naming.named(log, end)  # names are cached then, as in any process that has read the log before
    found = []
    for what, filters in {
        f"one queue of {QUEUES}, used all the time": Filters(objects=frozenset({"Q7"})),
        "a twentieth of the time": Filters(
            low_time=begun + records // 4, high_time=begun + records // 4 + records // 20
        ),
    }.items():
        disk, begin = Counting(), time.perf_counter()
        count = 0
        for part in dividing.plan(log, first, end, filters, disk):
            count += sum(batch.num_rows for batch in rows.batches(part, COLUMNS, filters, disk))
        seconds = time.perf_counter() - begin
        share = disk.bytes / (end - first) * 100
        found += [
            Figure(name=f"bytes read for {what}", ours=share, unit="%", wanted=at_most(20)),
            Figure(name="the same: rows", ours=count / seconds, unit="rows/s"),
        ]
    return found


# ---- through Spark


Sums = tuple[int, ...]  # the number of rows, and one of each column


def total(column: pa.Array) -> int:
    """What Spark comes to by `summed`."""
    kind = column.type
    if pa.types.is_map(kind):
        return int(column.offsets[-1].as_py() - column.offsets[0].as_py())
    if pa.types.is_string(kind):
        column = pc.utf8_length(column)
    elif pa.types.is_binary(kind):
        column = pc.binary_length(column)
    elif pa.types.is_timestamp(kind):
        column = pc.divide(column.cast(pa.int64()), 1_000_000)
    return pc.sum(column).as_py() or 0


def added_up(path: Path, columns: tuple[str, ...]) -> tuple[Read, Sums]:
    """Count and sums of all columns, by this process."""
    log = finding.find(str(path))
    before, begin, worked = resident(), time.perf_counter(), time.process_time()
    sums = [0] * (1 + len(columns))
    for part in dividing.plan(log, log.first(), log.end()):
        for batch in rows.batches(part, columns):
            sums = [a + b for a, b in zip(sums, (batch.num_rows, *map(total, batch.columns)), strict=True)]
    seconds, worked = time.perf_counter() - begin, time.process_time() - worked
    return Read(sums[0], seconds, worked, before, highest()), tuple(sums)


def summed(name: str) -> str:
    """What makes Spark look at all of a column."""
    kind = SQL[ARROW.field(name).type]
    if kind.startswith("MAP"):
        return f"sum(size({name}))"
    if kind in ("STRING", "BINARY"):
        return f"sum(length({name}))"
    return f"sum(cast({name} as bigint))" if kind in ("BOOLEAN", "TIMESTAMP_LTZ") else f"sum({name})"


def through_spark(path: Path, cores: int, turns: int) -> dict[str, list[tuple[Read, Sums]]]:
    """Each reading, by what is read. In a process of its own, which has the Java machine and its Pythons below it."""
    spark = session.spark("benchmark", **{"spark.master": f"local[{cores}]", "spark.sql.shuffle.partitions": "2"})
    found: dict[str, list[tuple[Read, Sums]]] = {}
    try:
        for turn, shape, (what, columns) in product(range(turns + 1), SHAPES, KINDS.items()):
            table = spark.read.format("qmgr.log").option("columns", ",".join(columns)).load(str(path / shape))
            begin, worked = time.perf_counter(), worked_below()
            [row] = table.selectExpr("count(*)", *map(summed, columns)).collect()
            seconds, worked = time.perf_counter() - begin, worked_below() - worked
            if turn:  # the first one warms up
                read = Read(row[0], seconds, worked, 0, 0)
                found.setdefault(f"{shape} {what}", []).append((read, tuple(one or 0 for one in row)))
    finally:
        spark.stop()
    return found


def spark(path: Path, turns: int) -> list[Figure]:
    """Count and sums of all columns by Spark, and by one plain process. Raises ValueError where they differ."""
    one, two = (alone(through_spark, path, cores, turns) for cores in (1, 2))
    found = []
    for shape in SHAPES:
        for what, columns in KINDS.items():
            name = f"{shape} {what}"
            plainly = [alone(added_up, path / shape, columns) for _ in range(turns)]
            if len({sums for _, sums in (*one[name], *two[name], *plainly)}) != 1:
                raise ValueError(f"Spark and plain Python do not come to the same sums of {name}")
            by_one, by_two, by_itself = ([read for read, _ in reads] for reads in (one[name], two[name], plainly))
            plain_rate = statistics.median(read.rate for read in by_itself)
            wanted = at_least(300_000 if columns == WITHOUT_BODY else 150_000) if shape == "puts" else None
            rates = [read.rate for read in by_one]
            both = [read.rate for read in by_two]
            found += [
                rate(f"Spark, local[1], a log of {name}; one plain process", rates, plain_rate, wanted),
                rate(
                    "the same, by processor time",
                    [read.rows / read.worked for read in by_one],
                    statistics.median(read.rows / read.worked for read in by_itself),
                ),
                rate(f"Spark, local[2], a log of {name}; local[1]", both, statistics.median(rates)),
                Figure(
                    name="the same ÷ one plain process",
                    ours=statistics.median(both) / plain_rate,
                    unit="",
                    wanted=at_least(1.3),
                ),
            ]
    return found


# ---- figures


def rate(name: str, ours: list[float], other: float | None = None, wanted: Wanted | None = None) -> Figure:
    return Figure(
        name=name, ours=statistics.median(ours), other=other, unit="rows/s", spread=quartiles(ours), wanted=wanted
    )


def memory_of(what: str, reads: list[Read]) -> Figure:
    most = max(one.highest for one in reads)
    return Figure(name=f"most resident in {what}; before", ours=most / MB, other=reads[0].before / MB, unit="MB")


GROUPS: dict[str, Callable[[Path, int, int], list[Figure]]] = {
    "plain": lambda path, records, turns: plain(path, turns),
    "filters": lambda path, records, turns: filtered(path, records),
    "spark": lambda path, records, turns: spark(path, turns),
}


def measure(name: str, home: Path, records: int, turns: int) -> list[Figure]:
    return GROUPS[name](home, records, turns)


def arguments() -> argparse.Namespace:
    parser = SaysItsHelp(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one reading each, to see that all works")
    parser.add_argument("--only", choices=list(GROUPS), action="append", metavar="NAME", help=", ".join(GROUPS))
    parser.add_argument(
        "--records", type=int, default=RECORDS, metavar="N", help=f"that each log has (default: {RECORDS:,})"
    )
    parser.add_argument(
        "--file-pages",
        type=int,
        default=FILE_PAGES,
        metavar="N",
        help=f"of 4 KiB that an extent has, as LogFilePages says (default: {FILE_PAGES})",
    )
    parser.add_argument("--path", type=Path, default=machine.ROOT / ".bench", help="where to measure (default: .bench)")
    args = parser.parse_args()
    if args.records < FEWEST:
        parser.error(f"--records {args.records}: {FEWEST} at least are needed")
    if not 64 <= args.file_pages <= 65535:
        parser.error(f"--file-pages {args.file_pages}: 64 to 65535")
    args.path = args.path.absolute()
    args.path.mkdir(parents=True, exist_ok=True)
    needed, free = 2 * args.records * EACH, shutil.disk_usage(args.path).free
    if free < needed:
        parser.error(f"{args.path} has {free / 1e9:.1f} GB left, and {needed / 1e9:.1f} GB are needed")
    return args


def method(records: int, turns: int, extent: int) -> list[str]:
    return [
        f"load     {os.getloadavg()[0]:.2f}, average of the minute before",
        f"method   {records:,} records, {QUEUES} queues, bodies of {BODY} bytes, extents of {extent >> 20} MiB with",
        "         indexes; puts: all are puts outside units of work, a row each; units: units of work of one put, and",
        f"         of one get, two rows each; all columns, made whole; medians of {turns} readings, the page cache",
        "         is warm",
        "         Spark: count and sums over all columns; one reading before, to warm it up; one plain process there:",
        "         the same columns as Arrow batches, and the same count and sums by pyarrow; processor time: of all",
        "         processes together, Java and Python",
    ]


def main() -> int:
    args = arguments()
    turns = 1 if args.quick else TURNS
    with tempfile.TemporaryDirectory(prefix="pipeline-", dir=args.path) as directory:
        home = Path(directory)
        extent = args.file_pages * PAGE
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda shape: alone(write_log, home / shape, shape, args.records, extent), SHAPES))
        groups = [partial(measure, name, home, args.records, turns) for name in args.only or GROUPS]
        kept_as = None if args.quick or args.only else "-pipeline"
        report.run(args.path, method(args.records, turns, extent), groups, kept_as=kept_as)
    return 0


if __name__ == "__main__":
    sys.exit(main())
