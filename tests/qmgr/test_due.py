"""The steady clock and the line of those who wait."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmgr.due import SteadyClock, Waiters
from tests.sim.clock import SimClock


@given(
    st.lists(st.one_of(st.floats(0, 1e6).map(lambda s: ("pass", s)), st.floats(-1e8, 1e8).map(lambda s: ("jump", s))))
)
def test_row_68_steady_time_is_elapsed_time(steps: list[tuple[str, float]]) -> None:
    clock = SimClock()
    steady = SteadyClock(clock, 0)
    start, expected = steady.now_us(), 0.0
    for what, seconds in steps:
        if what == "pass":
            clock.advance(seconds)
            expected += seconds
        else:
            clock.jump_wall(seconds)
        assert abs(steady.now_us() - start - expected * 1e6) <= len(steps) + expected * 1e-3


def test_row_68_it_never_starts_before_what_the_log_has_seen() -> None:
    clock = SimClock(wall_us=1_000_000)
    assert SteadyClock(clock, 5_000_000).now_us() == 5_000_000
    assert 1_000_000 <= SteadyClock(clock, 0).now_us() < 1_000_100


def test_row_68_it_goes_on_by_what_the_wall_clock_has_gone_on_since() -> None:
    clock = SimClock(wall_us=9_000_000)
    assert 5_000_000 <= SteadyClock(clock, 4_000_000, 8_000_000).now_us() < 5_000_100  # it lagged, and lags on
    assert SteadyClock(clock, 4_000_000, 9_500_000).now_us() - 4_000_000 < 100  # the wall clock was set back since
    assert 9_000_000 <= SteadyClock(clock, 8_000_000, 1_000_000).now_us() < 9_000_100  # and here set right: never ahead


def joined(line: Waiters, only: bytes = b"") -> threading.Event:
    event = threading.Event()
    line.add(event, (lambda head: head == only) if only else None)
    return event


def test_first_come_first_woken() -> None:
    line = Waiters()
    events = [joined(line) for _ in range(3)]
    assert line
    for n in range(3):
        line.wake_one()
        assert [event.is_set() for event in events] == [k <= n for k in range(3)]
    assert not line.line
    line.wake_one()


@pytest.mark.parametrize(
    ("head", "woken"),
    [
        (b"1", [True, True, False, False, True]),
        (b"2", [False, True, False, True, False]),
        (b"3", [False, True, False, False, False]),
        (b"", [True, True, False, True, True]),
    ],
)
def test_those_who_look_for_certain_messages_are_woken_by_such_and_by_what_may_be_any(
    head: bytes, woken: list[bool]
) -> None:
    line = Waiters()
    events = [joined(line, only) for only in (b"1", b"", b"", b"2", b"1")]
    line.wake_one(head)
    assert [event.is_set() for event in events] == woken
    line.wake_all()
    assert all(event.is_set() for event in events)


def test_leaving_and_waking_all() -> None:
    line = Waiters()
    events = [joined(line) for _ in range(4)]
    line.discard(events[1])
    line.discard(events[1])
    line.discard(threading.Event())
    line.wake_all()
    assert [event.is_set() for event in events] == [True, False, True, True]
    assert not line.line


def test_who_is_not_woken_yet_where_an_interrupt_strikes_is_woken_when_all_are_woken_again() -> None:
    class Struck(threading.Event):
        def set(self) -> None:
            if struck:
                raise struck.pop()
            super().set()

    struck = [KeyboardInterrupt()]
    line = Waiters()
    first, second, third = joined(line), Struck(), threading.Event()
    line.add(second)
    line.add(third)
    with pytest.raises(KeyboardInterrupt):
        line.wake_all()
    line.wake_all()
    assert first.is_set() and second.is_set() and third.is_set()
    assert not line.line


class Stops(threading.Event):
    """At the moment when it is woken another thread stops the queue manager, without the lock."""

    def __init__(self, line: Waiters) -> None:
        super().__init__()
        self.waiters = line

    def set(self) -> None:
        if not self.is_set():
            super().set()
            self.waiters.wake_all()


def test_a_queue_manager_may_stop_while_others_are_woken() -> None:
    line = Waiters()
    stops, other = Stops(line), threading.Event()
    line.add(stops, bool)
    line.add(other, bool)
    last = joined(line)
    line.wake_one()
    assert stops.is_set() and other.is_set() and last.is_set()


class StopsAsItIsLookedThrough(deque[Any]):
    """At that moment another thread stops the queue manager, without the lock, and somebody else joins."""

    waiters: Waiters

    def __iter__(self) -> Iterator[Any]:
        found = super().__iter__()
        self.waiters.wake_all()
        joined(self.waiters)
        return found


def test_a_queue_manager_may_stop_while_one_leaves_the_line() -> None:
    line = Waiters()
    line.line = StopsAsItIsLookedThrough()
    line.line.waiters = line
    first, second = joined(line), joined(line)
    line.discard(second)
    assert [waiter is first or waiter is second for waiter, _ in line.line] == [False], "who has joined since stays"
