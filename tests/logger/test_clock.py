"""The machine's clock."""

import datetime
import subprocess
import sys
import threading
import time

import pytest

from logger.clock import SystemClock


def test_wall_time_is_utc_in_microseconds() -> None:
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert abs(SystemClock().wall_us() / 1e6 - now) < 60


def test_a_clock_before_1970_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No format on disk has a sign for it; it was a struct.error of the first call that logs anything."""
    monkeypatch.setattr(time, "time_ns", lambda: -3_600_000_000_000)
    assert SystemClock().wall_us() == 1


def test_elapsed_time_never_goes_back_and_a_wait_lasts_as_long_as_asked() -> None:
    clock = SystemClock()
    before = clock.elapsed_ns()
    assert not clock.wait(threading.Event(), 0.01)
    assert clock.elapsed_ns() - before >= 10_000_000
    event = threading.Event()
    event.set()
    assert clock.wait(event, None)


def test_elapsed_time_goes_on_while_the_machine_is_suspended() -> None:
    """As messages expire meanwhile, and somebody else may start the queue manager; the monotonic clock stands still."""
    program = """
import time
time.clock_gettime_ns = {time.CLOCK_BOOTTIME: 7}.get
from logger.clock import SystemClock
print(SystemClock().elapsed_ns())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "7\n", done
