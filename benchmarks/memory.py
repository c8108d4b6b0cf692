"""What a queued message costs in memory beyond its body, by the size of the whole process."""

import gc
import os
import resource
from pathlib import Path

from benchmarks.measure import Figure, at_most
from benchmarks.put_get import BODY, UNIT, manager

MESSAGES = 100_000


def resident() -> int:
    """Bytes of this process that are in memory now (at most, where the system does not tell)."""
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: in bytes


def highest() -> int:
    """The most bytes of this process that ever were in memory, without those of its parent, which ru_maxrss has too."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return resident()


def memory(path: Path, turns: int = 15) -> list[Figure]:
    """Fill a queue with 100,000 messages of 256 bytes, all of them in memory, and see how the process grows."""
    with manager(path, "Q") as qm:
        qm.alter_queue("Q", buffer_size=100 << 20)
        qm.put_many("Q", [os.urandom(BODY) for _ in range(UNIT)])
        qm.get_many("Q", UNIT)
        before = resident()
        for _ in range(MESSAGES // UNIT):
            qm.put_many("Q", [os.urandom(BODY) for _ in range(UNIT)])
        grown = resident() - before
    return [
        Figure(
            name="memory of a queued message beyond its body",
            ours=grown / MESSAGES - BODY,
            unit="bytes",
            before=at_most(600),
        )
    ]
