"""Before a lock that many threads want."""

import itertools
import sys
import threading
from collections.abc import Iterator

import pytest

from logger import crowded
from logger.crowded import let_holder_go_on

WAITED_FOR = 1_000_000  # looks: a second or more, in which a busy machine gives the holder a processor too


class Watched:
    """A lock that counts who looks whether it is held."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.looks = 0
        self.looked_at = threading.Event()  # three times

    def locked(self) -> bool:
        self.looks += 1
        if self.looks == 3:
            self.looked_at.set()
        return self.lock.locked()


@pytest.fixture
def no_switches() -> Iterator[None]:
    """A thread lets another one run only by letting go of Python's own lock, and never because its time is over."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(600)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("no_switches")
def test_the_holder_goes_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowded, "LOOKS", WAITED_FOR)
    monkeypatch.setattr(crowded, "MOST_NS", 600_000_000_000)
    watched, held = Watched(), threading.Event()

    def hold() -> None:
        with watched.lock:
            held.set()
            watched.looked_at.wait(60)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(60)
    let_holder_go_on(watched)  # type: ignore[arg-type]
    assert 3 <= watched.looks < WAITED_FOR
    holder.join(60)
    assert not holder.is_alive()


@pytest.mark.parametrize(("look_ns", "looks"), [(1000, crowded.LOOKS), (5_000_000, 3)])
def test_a_lock_that_nobody_gives_back_is_looked_at_so_often_or_so_long_and_no_more(
    monkeypatch: pytest.MonkeyPatch, look_ns: int, looks: int
) -> None:
    watched, times = Watched(), itertools.count(0, look_ns)
    monkeypatch.setattr(crowded, "perf_counter_ns", lambda: next(times))
    with watched.lock:
        let_holder_go_on(watched)  # type: ignore[arg-type]
    assert watched.looks == looks


def test_a_free_lock_is_not_taken() -> None:
    lock = threading.Lock()
    let_holder_go_on(lock)
    assert not lock.locked()
