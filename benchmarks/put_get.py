"""Puts, gets and moves in units of work of all sizes: each function measures one group of figures, in a directory."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import qmgr
from benchmarks.measure import Figure, Slice, by_turns, compare, repeat
from benchmarks.raw import RawFile, SqliteQueue

BODY = 256  # bytes
UNIT = 100  # messages
PAGE = bytes(4096)
SECONDS = 0.4  # of one slice
TURNS = 15
RAW_BYTES = 64 << 20


def rate(one: Slice) -> float:
    return one.rate


def p99(one: Slice) -> float:
    return one.p99


def manager(path: Path, *queues: str, primaries: int = 3, file_pages: int = 4096) -> qmgr.QueueManager:
    """A new queue manager below `path`, started."""
    qmgr.create("BENCH", data_path=path, log_primary_files=primaries, log_file_pages=file_pages)
    qm = qmgr.start("BENCH", data_path=path)
    for queue in queues:
        qm.define_queue(queue)
    return qm


def drain(qm: qmgr.QueueManager, queue: str) -> None:
    """Get what is there, unmeasured: between two slices somebody takes the messages away."""
    while qm.queue(queue).depth:
        qm.get_many(queue, 1000)


def single(path: Path, turns: int = TURNS) -> list[Figure]:
    """Units of work of one put, one thread."""
    body = os.urandom(BODY)
    raw = RawFile(path / "raw", RAW_BYTES)
    with manager(path, "Q") as qm:

        def unit() -> None:
            with qm.begin() as uow:
                uow.put("Q", body)

        def ours(step: Callable[[], object]) -> Slice:
            taken = repeat(step, seconds=SECONDS)
            drain(qm, "Q")
            return taken

        slices = by_turns(
            {
                "raw": lambda: repeat(lambda: raw.force(PAGE), seconds=SECONDS),
                "put": lambda: ours(lambda: qm.put("Q", body)),
                "unit": lambda: ours(unit),
            },
            turns,
        )
    figures = []
    for side, text in ("put", "put outside a unit of work"), ("unit", "unit of work of one put"):
        figures += [
            compare(f"{text} ÷ raw", slices[side], slices["raw"], rate, unit="/s", at_least=0.80),
            compare(f"{text}, p99 ÷ p99 of raw", slices[side], slices["raw"], p99, unit="µs", at_most=2.0),
        ]
    return figures


def threads(path: Path, turns: int = TURNS) -> list[Figure]:
    """Units of work of one put, eight threads."""
    body = os.urandom(BODY)
    with manager(path, "Q") as qm:

        def many(count: int) -> Slice:
            gate = threading.Barrier(count + 1)
            done = [0] * count

            def work(me: int) -> None:
                gate.wait()
                while time.perf_counter() < last:
                    with qm.begin() as uow:
                        uow.put("Q", body)
                    done[me] += 1

            workers = [threading.Thread(target=work, args=(me,)) for me in range(count)]
            for worker in workers:
                worker.start()
            begin = time.perf_counter()
            last = begin + SECONDS
            gate.wait()
            for worker in workers:
                worker.join()
            taken = Slice(rate=sum(done) / (time.perf_counter() - begin), p99=0.0)
            drain(qm, "Q")
            return taken

        slices = by_turns({"one": lambda: many(1), "eight": lambda: many(8)}, turns)
    return [compare("eight threads ÷ one thread", slices["eight"], slices["one"], rate, unit="/s", at_least=2.0)]


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
            """A slice of puts, then a slice that gets them all."""
            puts[name], gets[name] = [], []

            def turn() -> Slice:
                count = 0

                def counted() -> None:
                    nonlocal count
                    put()
                    count += 1

                puts[name].append(repeat(counted, seconds=SECONDS))
                gets[name].append(repeat(get, count=count))
                return gets[name][-1]

            return turn

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
            at_least=1.0,
        )
        for what, taken in (("puts", puts), ("gets", gets))
        for how in ("call by call", "in one call")
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
                "raw": lambda: repeat(lambda: raw.force(PAGE), seconds=SECONDS),
                "move": lambda: repeat(one, seconds=SECONDS),
            },
            turns,
        )
    return [
        compare("move A → B, one message a unit ÷ raw", slices["move"], slices["raw"], rate, unit="/s", at_least=0.70)
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

        slices = by_turns({"raw": lambda: repeat(lambda: raw.force(joined), count=48), "ours": ours}, turns)
    return [
        compare(
            "64 KiB messages in units of 16 ÷ raw",
            slices["ours"],
            slices["raw"],
            lambda one: one.rate * len(joined) / 1e6,
            unit="MB/s",
            at_least=0.70,
        )
    ]
