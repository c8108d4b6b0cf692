"""Real processes on a real disk, killed with SIGKILL at random moments; the next process is the audit of the last.

Faults 1, with the operating system instead of the simulated disk: what SIGKILL can show is the order of calls, torn
appends and the lock, not what a power failure loses.
"""

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
from tests.books import Books
from tests.commands import Commands, Started
from tests.conftest import SOAK
from tests.kill_worker import NAME


@pytest.fixture(scope="module")
def workers() -> Iterator[Commands]:
    """Worker after worker from a process that has imported what they need."""
    made = Commands("tests.kill_worker")
    yield made
    made.close()


class Rounds:
    """Worker after worker on one queue manager."""

    def __init__(self, workers: Commands, base: Path, threads: int, **options: Any) -> None:
        self.workers = workers
        self.data, self.log, self.threads = str(base / "data"), str(base / "log"), threads
        self.books = Books(threads)
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

        try:
            for raw in stdout:
                if self.books.hear(raw) == "begin":
                    break
            else:
                raise AssertionError(f"the worker did not start: {errors()}")
        except AssertionError as exc:
            exc.add_note(f"seed {seed}")
            raise
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
                self.books.hear(raw)


@pytest.mark.parametrize(("threads", "rounds"), [(1, 16), (4, 12)], ids=["one thread", "four threads"])
def test_row_01_killed_at_random_moments(workers: Commands, tmp_path: Path, threads: int, rounds: int) -> None:
    """Faults 1; a slow machine, on which little is done in a round, has more of them."""
    rng = random.Random(threads)
    life = Rounds(workers, tmp_path, threads)
    n = 0
    while n < rounds * (50 if SOAK else 1) or (life.books.acknowledged <= rounds * 5 and n < rounds * 80):
        n += 1
        life.round(n, rng.choice((0.01, 0.1, 0.25, 0.4)) * rng.random())
    life.round(-1, 0)
    assert life.books.acknowledged > rounds * 5


@pytest.mark.parametrize(("threads", "rounds"), [(1, 12), (4, 10)], ids=["one thread", "four threads"])
def test_row_01_killed_at_random_moments_with_a_linear_log(
    workers: Commands, tmp_path: Path, threads: int, rounds: int
) -> None:
    """Faults 1, 24-26: images and queues built again; now and then every segment is gone at the next start."""
    rng = random.Random(100 + threads)
    life = Rounds(workers, tmp_path, threads, log_type="linear", log_management="Automatic")
    n = removed = 0
    while n < rounds * (50 if SOAK else 1) or (
        (life.books.acknowledged <= rounds * 5 or removed <= 5) and n < rounds * 80
    ):
        n += 1
        life.round(n, rng.choice((0.01, 0.1, 0.25, 0.4)) * rng.random())
        if rng.random() < 0.4:
            for path in (tmp_path / "data").rglob("*.seg"):
                path.unlink()
                removed += 1
    life.round(-1, 0)
    assert life.books.acknowledged > rounds * 5
    assert removed > 5
