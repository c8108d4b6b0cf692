"""What the figures were measured on."""

import datetime
import os
import platform
import subprocess
from importlib.util import find_spec
from pathlib import Path

from qmgr.installed import is_compiled

ROOT = Path(__file__).resolve().parents[1]


def commit() -> str:
    """The commit that is measured, with `-changed` when files differ from it."""

    def git(*args: str) -> str:
        try:
            return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return ""

    changed = git("status", "--porcelain", "--", "logger", "recovery", "qmgr")
    return (git("rev-parse", "--short", "HEAD") or "none") + ("-changed" if changed else "")


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def disk(path: Path) -> str:
    """The device and file system that hold `path`."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best = ("", "unknown")
    for line in mounts.read_text().splitlines():
        device, point, kind, options, *_ = line.split()
        if path.is_relative_to(point) and len(point) > len(best[0]):
            best = (point, f"{device}, {kind} ({options})")
    return best[1]


def busy() -> tuple[float, float]:
    """Seconds that all processors have worked since the machine was started, and those for this process and its own.

    The difference of the two is what others took. A child counts once it has ended.
    """
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0, 0.0
    user, nice, system, _, _, *other = map(int, stat.read_text().split("\n", 1)[0].split()[1:9])
    times = os.times()
    ours = times.user + times.system + times.children_user + times.children_system
    return (user + nice + system + sum(other)) / os.sysconf("SC_CLK_TCK"), ours


def describe(path: Path, commit: str) -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    built = (", compiled" if is_compiled() else "") + (", with zlib-ng" if find_spec("zlib_ng") else "")
    return [
        f"date     {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        f"commit   {commit}",
        f"machine  {os.cpu_count()} × {processor()}, {memory:.0f} GiB",
        f"disk     {disk(path)}",
        f"system   {platform.platform()}",
        f"python   {platform.python_implementation()} {platform.python_version()}{built}",
    ]
