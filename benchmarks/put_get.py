"""Puts, gets and moves in units of work of all sizes: each function measures one group of figures, in a directory."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import qmgr
from benchmarks.measure import Figure, Slice, at_least, at_most, by_turns, compare, repeat, slice_of_steps
from benchmarks.raw import RawFile, SharedRawFile, SqliteQueue

BODY = 256  # bytes
UNIT = 100  # messages
PAGE = bytes(4096)
HALF = bytes(2048)
SECONDS = 0.4  # of one slice
TURNS = 15
RAW_BYTES = 64 << 20


def rate(one: Slice) -> float:
    return one.rate


def p99(one: Slice) -> float:
    return one.p99


def manager(path: Path, *queues: str, primaries: int = 3, file_pages: int = 4096, **log: Any) -> qmgr.QueueManager:
    """A new queue manager below `path`, started; `log` as in `qmgr.create`."""
    qmgr.create("BENCH", data_path=path, log_primary_files=primaries, log_file_pages=file_pages, **log)
    qm = qmgr.start("BENCH", data_path=path)
    for queue in queues:
        qm.define_queue(queue)
    return qm


def drain(qm: qmgr.QueueManager, queue: str) -> None:
    """Get what is there, unmeasured: between two slices somebody takes the messages away."""
    while qm.queue(queue).depth:
        qm.get_many(queue, 1000)


def there_and_back(put: Callable[[], object], get: Callable[[], object], puts: list[Slice], gets: list[Slice]) -> Slice:
    """A slice of puts, then one that gets them all."""
    puts.append(repeat(put, seconds=SECONDS))
    gets.append(repeat(get, count=puts[-1].steps))
    return gets[-1]


def single(path: Path, turns: int = TURNS) -> list[Figure]:
    """Units of work of one put, and of one get, one thread."""
    body = os.urandom(BODY)
    raw = RawFile(path / "raw", RAW_BYTES)
    with manager(path, "Q") as qm:

        def put_unit() -> None:
            with qm.begin() as uow:
                uow.put("Q", body)

        def get_unit() -> None:
            with qm.begin() as uow:
                uow.get("Q")

        def commits() -> Slice:
            took, clock = [], time.perf_counter
            last = clock() + SECONDS
            while clock() < last:
                uow = qm.begin()
                uow.put("Q", body)
                begin = clock()
                uow.commit()
                took.append(clock() - begin)
            drain(qm, "Q")
            return slice_of_steps(took)

        taken: dict[str, list[Slice]] = {side: [] for side in ("put", "get", "unit put", "unit get")}
        slices = by_turns(
            {
                "4 KiB": lambda: repeat(lambda: raw.force(PAGE), seconds=SECONDS),
                "outside": lambda: there_and_back(
                    lambda: qm.put("Q", body), lambda: qm.get("Q"), taken["put"], taken["get"]
                ),
                "2 KiB": lambda: repeat(lambda: raw.force(HALF), seconds=SECONDS),
                "unit": lambda: there_and_back(put_unit, get_unit, taken["unit put"], taken["unit get"]),
                "commit": commits,
            },
            turns,
        )
    raw_page = slices["4 KiB"]
    figures = []
    for what, text, least in (
        ("put", "put outside a unit of work", 0.85),
        ("unit put", "unit of work of one put", 0.85),
        ("get", "get outside a unit of work", 0.80),
        ("unit get", "unit of work of one get", 0.80),
    ):
        ours = taken[what][1:]  # the first turn warms up
        figures.append(compare(f"{text} ÷ raw 2 KiB", ours, slices["2 KiB"], rate, unit="/s", wanted=at_least(least)))
        if "put" in what:
            figures += [
                compare(f"{text} ÷ raw 4 KiB", ours, raw_page, rate, unit="/s", before=at_least(0.80)),
                compare(f"{text}, p99 ÷ p99 of raw 4 KiB", ours, raw_page, p99, unit="µs", before=at_most(2.0)),
            ]
    text = "commit of a unit of work of one put, p99 ÷ p99 of raw 4 KiB"
    return [*figures, compare(text, slices["commit"], raw_page, p99, unit="µs", before=at_most(2.0))]


def together(count: int, step: Callable[[], object]) -> Slice:
    """Many threads call `step` for one slice."""
    gate = threading.Barrier(count + 1)
    done = [0] * count
    last = 0.0

    def work(me: int) -> None:
        gate.wait()
        while time.perf_counter() < last:
            step()
            done[me] += 1

    workers = [threading.Thread(target=work, args=(me,)) for me in range(count)]
    for worker in workers:
        worker.start()
    begin = time.perf_counter()
    last = begin + SECONDS
    gate.wait()
    for worker in workers:
        worker.join()
    return Slice(rate=sum(done) / (time.perf_counter() - begin), p50=0.0, p99=0.0, steps=sum(done))


def threads(path: Path, turns: int = TURNS) -> list[Figure]:
    """Units of work of one put, many threads."""
    body = os.urandom(BODY)
    raw = SharedRawFile(path / "raw", RAW_BYTES)
    with manager(path, "Q") as qm:

        def unit() -> None:
            with qm.begin() as uow:
                uow.put("Q", body)

        def put() -> None:
            qm.put("Q", body)

        def long_unit() -> None:
            with qm.begin() as uow:
                for _ in range(UNIT):
                    uow.put("Q", body)

        def many(count: int, step: Callable[[], object]) -> Callable[[], Slice]:
            def turn() -> Slice:
                taken = together(count, step)
                drain(qm, "Q")
                return taken

            return turn

        slices = by_turns(
            {
                "raw": lambda: together(8, lambda: raw.force(HALF)),
                **{f"{count} unit": many(count, unit) for count in (1, 8, 32)},
                **{f"{count} put": many(count, put) for count in (1, 8, 32)},
                **{f"{count} long unit": many(count, long_unit) for count in (1, 8)},
            },
            turns,
        )
    figures = []
    for what, text in ("put", "put outside a unit of work"), ("unit", "unit of work of one put"):
        one, eight, all_of_them = (slices[f"{count} {what}"] for count in (1, 8, 32))
        figures += [
            compare(
                f"8 threads, {text} ÷ raw with 8 threads",
                eight,
                slices["raw"],
                rate,
                unit="/s",
                wanted=at_least(1.2),
            ),
            compare(f"32 threads ÷ one thread, {text}", all_of_them, one, rate, unit="/s", wanted=at_least(2.5)),
        ]
        if what == "unit":
            figures.append(compare(f"8 threads ÷ one thread, {text}", eight, one, rate, unit="/s", before=at_least(2)))
    text = "8 threads ÷ one thread, units of 100 puts, call by call"
    return [*figures, compare(text, slices["8 long unit"], slices["1 long unit"], rate, unit="/s")]


def units(path: Path, turns: int = TURNS) -> list[Figure]:
    """Units of 100 puts, and of 100 gets: call by call and in one call, against sqlite3."""
    bodies = [os.urandom(BODY) for _ in range(UNIT)]
    sqlite = SqliteQueue(path / "queue.db")
    with manager(path, "Q") as qm:

        def put_each() -> None:
            with qm.begin() as uow:
                for body in bodies:
                    uow.put("Q", body)

        def get_each() -> None:
            with qm.begin() as uow:
                for _ in range(UNIT):
                    uow.get("Q")

        puts: dict[str, list[Slice]] = {}
        gets: dict[str, list[Slice]] = {}

        def side(name: str, put: Callable[[], object], get: Callable[[], object]) -> Callable[[], Slice]:
            puts[name], gets[name] = [], []
            return lambda: there_and_back(put, get, puts[name], gets[name])

        by_turns(
            {
                "sqlite": side("sqlite", lambda: sqlite.put("Q", bodies), lambda: sqlite.get("Q", UNIT)),
                "call by call": side("call by call", put_each, get_each),
                "in one call": side("in one call", lambda: qm.put_many("Q", bodies), lambda: qm.get_many("Q", UNIT)),
            },
            turns,
        )
    return [
        compare(
            f"units of 100 {what}, {how} ÷ sqlite3",
            taken[how][1:],  # the first turn warms up
            taken["sqlite"][1:],
            lambda one: one.rate * UNIT,
            unit="msg/s",
            wanted=at_least(least),
            before=at_least(1.0),
        )
        for what, taken in (("puts", puts), ("gets", gets))
        for how, least in (("call by call", 1.3), ("in one call", 2.0))
    ]


def move(path: Path, turns: int = TURNS) -> list[Figure]:
    """Get from one queue and put to another, one message in each unit of work."""
    count = 10_000
    raw = RawFile(path / "raw", RAW_BYTES)
    with manager(path, "A", "B") as qm:
        for _ in range(count // UNIT):
            qm.put_many("A", [os.urandom(BODY) for _ in range(UNIT)])
        source, target, left = "A", "B", count

        def one() -> None:
            nonlocal source, target, left
            with qm.begin() as uow:
                uow.put(target, uow.get(source).body)
            left -= 1
            if not left:
                source, target, left = target, source, count

        slices = by_turns(
            {
                "4 KiB": lambda: repeat(lambda: raw.force(PAGE), seconds=SECONDS),
                "move": lambda: repeat(one, seconds=SECONDS),
                "2 KiB": lambda: repeat(lambda: raw.force(HALF), seconds=SECONDS),
            },
            turns,
        )
    text, moved = "move A → B, one message a unit ÷ raw", slices["move"]
    return [
        compare(f"{text} 2 KiB", moved, slices["2 KiB"], rate, unit="/s", wanted=at_least(0.75)),
        compare(f"{text} 4 KiB", moved, slices["4 KiB"], rate, unit="/s", before=at_least(0.70)),
    ]


def large(path: Path, turns: int = TURNS) -> list[Figure]:
    """Messages of 64 KiB in units of 16, with a log of 12 extents of 64 MiB."""
    bodies = [os.urandom(64 << 10) for _ in range(16)]
    joined = b"".join(bodies)
    raw = RawFile(path / "raw", 256 << 20)
    with manager(path, "Q", primaries=12, file_pages=16384) as qm:

        def ours() -> Slice:
            taken = repeat(put, count=48)
            while qm.queue("Q").depth:
                qm.get_many("Q", 16)
            return taken

        def put() -> None:
            with qm.begin() as uow:
                for body in bodies:
                    uow.put("Q", body)

        sides = {"raw": lambda: repeat(lambda: raw.force(joined), count=48), "ours": ours}
        slices = by_turns(sides, 3 * turns)  # short ones: each goes through 48 MiB
    return [
        compare(
            "64 KiB messages in units of 16 ÷ raw",
            slices["ours"],
            slices["raw"],
            lambda one: one.rate * len(joined) / 1e6,
            unit="MB/s",
            wanted=at_least(0.80),
            before=at_least(0.70),
        )
    ]
