"""Waiting for a change behind a lock that the caller holds."""

import importlib
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from logger.condition import Condition, Event
from tests.alone import alone


def for_a_change(condition: Condition, apart: threading.Event) -> None:
    apart.set()
    condition.wait()


def until_another_has_it(condition: Condition, apart: threading.Event) -> None:
    def work() -> None:
        apart.set()
        time.sleep(0.02)

    condition.unlocked(work)


@pytest.mark.parametrize("wait", [for_a_change, until_another_has_it])
def test_an_interrupt_while_a_lock_is_waited_for_again_lets_go_of_no_lock_of_another_thread(
    wait: Callable[[Condition, threading.Event], None],
) -> None:
    lock = threading.Lock()
    condition, apart = Condition(lock), threading.Event()
    kept: list[bool] = []

    def other() -> None:
        apart.wait(20)
        with lock:
            condition.notify_all()
            time.sleep(0.05)  # until the other one waits for the lock
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            time.sleep(0.05)
            kept.append(lock.locked())

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    thread = threading.Thread(target=other)
    thread.start()
    try:
        with lock:
            with pytest.raises(KeyboardInterrupt):
                wait(condition, apart)
            assert lock.locked()
    finally:
        signal.signal(signal.SIGALRM, before)
        thread.join(20)
    assert kept == [True]
    assert not lock.locked()


def test_everyone_who_waits_is_woken_though_an_interrupt_strikes_in_that() -> None:
    lock = threading.Lock()
    condition = Condition(lock)

    class Struck:
        def __init__(self, gate: threading.Lock) -> None:
            self.gate, self.left = gate, [KeyboardInterrupt()]

        def release(self) -> None:
            if self.left:
                raise self.left.pop()
            self.gate.release()

    def wait() -> None:
        with lock:
            condition.wait()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(condition._gates) < len(threads):
        time.sleep(0.001)
    with lock:
        condition._gates = [Struck(gate) for gate in condition._gates]  # type: ignore[misc]
        for _ in threads:
            with pytest.raises(KeyboardInterrupt):
                condition.notify_all()
        condition.notify_all()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_an_event_wakes_all_who_wait_for_it_and_can_be_used_again() -> None:
    event, woken = Event(), list[bool]()
    for _ in range(2):
        woken.clear()
        threads = [threading.Thread(target=lambda: woken.append(event.wait()), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(event._gates) < len(threads):
            time.sleep(0.001)
        assert not event.is_set() and not woken
        event.set()
        event.set()
        for thread in threads:
            thread.join(20)
        assert woken == [True] * 3 and event.is_set() and event.wait() and event.wait(0)
        assert not event._gates
        event.clear()
    assert not event.is_set()
    assert [event.wait(seconds) for seconds in (-1, 0, 0.001)] == [False] * 3
    assert not event._gates


def test_an_event_whose_setting_is_interrupted_wakes_everyone_when_it_is_set_again() -> None:
    event = Event()
    thread = threading.Thread(target=event.wait, daemon=True)
    thread.start()
    while not event._gates:
        time.sleep(0.001)

    class Struck(list[threading.Lock]):
        def __getitem__(self, at: Any) -> Any:
            raise KeyboardInterrupt

    gates, event._gates = event._gates, Struck(event._gates)
    with pytest.raises(KeyboardInterrupt):
        event.set()
    event._gates = gates
    event.set()
    thread.join(20)
    assert not thread.is_alive()


@alone
def test_an_event_is_set_without_memory() -> None:
    """Whoever waits for the end of a call that had none would wait for ever."""
    testcapi = importlib.import_module("_testcapi")

    def held(event: Event) -> list[threading.Lock]:
        event._gates = [threading.Lock() for _ in range(3)]
        return [gate for gate in event._gates if gate.acquire()]

    def set_without(event: Event, deny: Callable[[int, int], None], allow: Callable[[], None]) -> None:
        deny(0, 0)
        try:
            event.set()
        finally:
            allow()

    set_without(Event(), lambda start, stop: None, lambda: None)  # the first call of a function takes memory
    event = Event()
    gates = held(event)
    set_without(event, testcapi.set_nomemory, testcapi.remove_mem_hooks)
    assert event.is_set() and not any(gate.locked() for gate in gates)


def test_an_interrupt_in_a_wait_for_an_event_keeps_nobody_from_setting_it() -> None:
    event = Event()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            event.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not event._gates
    event.set()
    assert event.wait()
