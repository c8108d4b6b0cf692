"""How fast a restart replays the log that a crash left behind."""

import os
import statistics
from pathlib import Path

import attrs

import qmgr
from benchmarks.children import alone, crash
from benchmarks.measure import Figure, at_most

PUTS = 100_000
BODY = os.urandom(256)


@attrs.frozen
class Replay:
    records: int
    seconds: float
    depth: int


def fill(path: Path, unit: int) -> None:
    """Put 100,000 messages, with no checkpoint on the way, and die."""
    qmgr.create("BENCH", data_path=path, log_primary_files=20)
    ini = path / "qmgrs" / "BENCH" / "qm.ini"
    ini.write_text(ini.read_text() + "\nTuningParameters:\n   CheckPointLogRecdMax=1000000\n")
    qm = qmgr.start("BENCH", data_path=path)
    qm.define_queue("Q", max_depth=PUTS)
    if unit == 1:
        for _ in range(PUTS):
            qm.put("Q", BODY)
    else:
        for _ in range(PUTS // unit):
            qm.put_many("Q", [BODY] * unit)
    os._exit(9)


def replay(path: Path) -> Replay:
    with qmgr.start("BENCH", data_path=path) as qm:
        report = qm.restart_report
        return Replay(report.records_replayed, report.seconds, qm.queue("Q").depth)


def restart(path: Path, turns: int = 15) -> list[Figure]:
    """Seconds and records a second of a restart after 100,000 puts; the median of three crashes."""
    figures = []
    for unit, text in (100, "in units of 100"), (1, "each by itself"):
        replays = []
        for number in range(3 if turns > 3 else 1):
            home = path / f"{unit}-{number}"
            home.mkdir()
            crash(fill, home, unit)
            replays.append(alone(replay, home))
        assert all(one.depth == PUTS for one in replays), replays
        seconds = statistics.median(one.seconds for one in replays)
        records = statistics.median(one.records / one.seconds for one in replays)
        figures += [
            Figure(name=f"restart after 100,000 puts {text}", ours=seconds, unit="s", before=at_most(1.5)),
            Figure(name=f"replay, puts {text}", ours=records, unit="records/s"),
            Figure(name=f"replay, puts {text}", ours=PUTS / seconds, unit="msg/s"),
        ]
    return figures
