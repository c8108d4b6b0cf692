"""The parent: starts the worker, kills it at random moments, starts it again, and adds up what it says."""

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]


class WorkerFailed(Exception):
    """The worker ended by itself, and not because it was done."""


@attrs.define
class Life:
    """What one worker said of itself. Its last moments before the kill, up to 50 ms, are missing from it."""

    put: int = 0
    moved: int = 0
    units: int = 0
    log_writes: int = 0
    log_bytes: int = 0
    write_us: float = 0.0  # mean of the last 1024 writes
    checkpoints: int = 0
    write_seconds: float = 0.0
    replayed: int | None = None  # None: killed before its restart was over
    seconds: float = 0.0
    killed: bool = False

    def hear(self, line: str) -> None:
        writes = self.log_writes
        for name, value in json.loads(line).items():
            setattr(self, name, value)
        self.write_seconds += (self.log_writes - writes) * self.write_us / 1e6


class Killer:
    """Chooses the moments: most by how far the work is, every third soon after a start, when a restart is under way."""

    def __init__(self, kills: int, rng: random.Random) -> None:
        self.rng = rng
        self.points = sorted(rng.uniform(0.02, 0.95) for _ in range(kills))  # shares of the work done
        self.armed = False  # at most one kill for each life

    def started(self, life: int, kill: Callable[[], None]) -> None:
        self.armed = False
        if life % 3 == 2:
            self._arm(1.0, 0.6, kill)

    def progressed(self, share: float, kill: Callable[[], None]) -> None:
        self._arm(share, 0.05, kill)

    def _arm(self, share: float, most_seconds: float, kill: Callable[[], None]) -> None:
        if self.armed or not self.points or share < self.points[0]:
            return
        self.points.pop(0)
        self.armed = True
        timer = threading.Timer(self.rng.uniform(0, most_seconds), kill)
        timer.daemon = True
        timer.start()


def supervise(data_path: str, source: Path, rows: int, killer: Killer, heard: Callable[[Life], None]) -> list[Life]:
    """Run workers until one is done and return their lives; `heard` is called when one has said something."""
    command = [sys.executable, "-m", "examples.flights.worker", data_path, str(source), str(rows)]
    lives: list[Life] = []
    while not lives or lives[-1].killed:
        life = Life()
        lives.append(life)
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            try:
                killer.started(len(lives), worker.kill)
                for line in worker.stdout:
                    if line.endswith("\n"):  # else the kill cut it short
                        life.hear(line)
                        heard(life)
                        killer.progressed((life.put + life.moved) / (2 * rows), worker.kill)
            except BaseException:
                worker.kill()
                raise
        life.killed = worker.returncode == -signal.SIGKILL
        if worker.returncode != 0 and not life.killed:
            raise WorkerFailed(f"the worker ended with exit code {worker.returncode}")
    return lives
