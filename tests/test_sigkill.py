"""Real processes on a real disk, killed with SIGKILL at random moments; the next process is the audit of the last.

Faults 1, with the operating system instead of the simulated disk: what SIGKILL can show is the order of calls, torn
appends and the lock, not what a power failure loses.
"""

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import qmgr
from tests.commands import Commands, Started
from tests.conftest import SOAK
from tests.kill_worker import NAME
from tests.model import Model, Msg


@pytest.fixture(scope="module")
def workers() -> Iterator[Commands]:
    """Worker after worker from a process that has imported what they need."""
    made = Commands("tests.kill_worker")
    yield made
    made.close()


class Book:
    """What the worker of one thread was told, and the one call that it was in when it died."""

    def __init__(self) -> None:
        self.model = Model()
        self.trying: dict[str, Any] | None = None

    @staticmethod
    def apply(model: Model, call: dict[str, Any]) -> Model:
        """The model after this call, which it changes."""
        if "resolve" in call:
            model.commit(call["resolve"])
            return model
        unit = call.get("prepare")
        if "get" in call:
            model.get(call["get"], model.find(call["get"]))
            return model
        if unit is not None:
            model.begin(unit)
        for queue, number in call.get("gets", ()):
            model.get(queue, [msg for msg in model.find(queue, 1 << 60) if msg.body == b"%d" % number], unit)
        for queue, number, priority in call.get("puts", ()):
            model.put(queue, [Msg(b"%d" % number, priority, True, b"")], unit)
        if unit is not None:
            model.units[unit].prepared = True
        return model

    def hear(self, line: dict[str, Any]) -> None:
        if line["do"] == "try":
            self.trying = line
        elif line["do"] == "done" and self.trying is not None:
            self.apply(self.model, self.trying)
            self.trying = None
        elif line["do"] == "none":
            assert self.trying is not None
            assert not self.model.find(self.trying["get"]), "a queue was said to be empty"
            self.trying = None

    def allowed(self) -> list[Model]:
        return [self.model] if self.trying is None else [self.model, self.apply(self.model.copy(), self.trying)]


def call_xid(book: Book) -> set[str]:
    """What may be in doubt because of the call that did not return."""
    trying = book.trying or {}
    return {trying[what] for what in ("prepare", "resolve") if what in trying}


class Rounds:
    """Worker after worker on one queue manager."""

    def __init__(self, workers: Commands, base: Path, threads: int, **options: Any) -> None:
        self.workers = workers
        self.data, self.log, self.threads = str(base / "data"), str(base / "log"), threads
        self.books = [Book() for _ in range(threads)]
        for n, book in enumerate(self.books):
            book.model.define(f"T{n}.A")
            book.model.define(f"T{n}.B")
        self.acknowledged = 0
        small = {"log_primary_files": 2, "log_secondary_files": 2, "log_file_pages": 64}
        qmgr.create(NAME, data_path=self.data, log_path=self.log, **(small | options))

    def round(self, seed: int, seconds: float) -> None:
        """Start a worker, compare what it found with the books, let it work for so long, kill it."""
        said, says = os.pipe()
        with open(said, "rb") as stdout, tempfile.TemporaryFile() as stderr:
            try:
                words = [self.data, self.log, str(seed), str(self.threads)]
                worker = self.workers.start(words, os.environ, says, stderr.fileno())
            finally:
                os.close(says)
            try:
                self._follow(worker, stdout, stderr, seed, seconds)
            finally:
                worker.kill()
                worker.wait(120)

    def _follow(self, worker: Started, stdout: BinaryIO, stderr: BinaryIO, seed: int, seconds: float) -> None:
        def errors() -> str:
            stderr.seek(0)
            return stderr.read().decode()

        found: dict[str, dict[str, list[int]]] = {"found": {}, "resolved": {}}
        in_doubt: set[str] = set()
        for raw in stdout:
            line = json.loads(raw)
            if line["do"] == "begin":
                break
            if line["do"] == "in doubt":
                in_doubt = set(line["xids"])
            else:
                found[line["do"]][line["queue"]] = line["bodies"]
        else:
            raise AssertionError(f"seed {seed}: the worker did not start: {errors()}")
        told = [self.compare(seed, book, found, in_doubt) for book in self.books]
        assert in_doubt == set().union(*told), f"seed {seed}"
        if seed < 0:
            assert worker.wait(120) == 0
            return
        time.sleep(seconds)
        worker.kill()
        rest = stdout.read()
        assert worker.wait(120) == -signal.SIGKILL, f"seed {seed}: it died of itself: {errors()}"
        assert not errors(), f"seed {seed}: {errors()}"
        for raw in rest.splitlines(keepends=True):
            if raw.endswith(b"\n"):
                line = json.loads(raw)
                self.books[line["thread"]].hear(line)
                self.acknowledged += line["do"] == "done"

    def compare(self, seed: int, book: Book, found: dict[str, dict[str, list[int]]], in_doubt: set[str]) -> set[str]:
        """What was found is the state after the last call that returned, or after the one that did not.

        Returns what was rightly in doubt.
        """
        report = []
        for model in book.allowed():
            mine = {str(xid) for xid in model.in_doubt()}
            expected = {queue: [int(msg.body) for msg in model.find(queue, 1 << 60)] for queue in model.queues}
            wrong = {q: (bodies, found["found"][q]) for q, bodies in expected.items() if found["found"][q] != bodies}
            if wrong or not mine <= in_doubt or (call_xid(book) - mine) & in_doubt:
                report.append(f"{wrong} in doubt: expected {mine}, found {in_doubt}")
                continue
            for xid in mine:
                model.commit(xid)
            for queue in model.queues:
                assert [int(msg.body) for msg in model.find(queue, 1 << 60)] == found["resolved"][queue], f"seed {seed}"
            book.model = model
            book.trying = None
            return mine
        raise AssertionError(f"seed {seed}: (expected, found) is {' or '.join(report)}")


@pytest.mark.parametrize(("threads", "rounds"), [(1, 16), (4, 12)], ids=["one thread", "four threads"])
def test_row_01_killed_at_random_moments(workers: Commands, tmp_path: Path, threads: int, rounds: int) -> None:
    """Faults 1; a slow machine, on which little is done in a round, has more of them."""
    rng = random.Random(threads)
    life = Rounds(workers, tmp_path, threads)
    n = 0
    while n < rounds * (50 if SOAK else 1) or (life.acknowledged <= rounds * 5 and n < rounds * 80):
        n += 1
        life.round(n, rng.choice((0.01, 0.1, 0.25, 0.4)) * rng.random())
    life.round(-1, 0)
    assert life.acknowledged > rounds * 5


@pytest.mark.parametrize(("threads", "rounds"), [(1, 12), (4, 10)], ids=["one thread", "four threads"])
def test_row_01_killed_at_random_moments_with_a_linear_log(
    workers: Commands, tmp_path: Path, threads: int, rounds: int
) -> None:
    """Faults 1, 24-26: images and queues built again; now and then every segment is gone at the next start."""
    rng = random.Random(100 + threads)
    life = Rounds(workers, tmp_path, threads, log_type="linear", log_management="Automatic")
    n = removed = 0
    while n < rounds * (50 if SOAK else 1) or ((life.acknowledged <= rounds * 5 or removed <= 5) and n < rounds * 80):
        n += 1
        life.round(n, rng.choice((0.01, 0.1, 0.25, 0.4)) * rng.random())
        if rng.random() < 0.4:
            for path in (tmp_path / "data").rglob("*.seg"):
                path.unlink()
                removed += 1
    life.round(-1, 0)
    assert life.acknowledged > rounds * 5
    assert removed > 5
