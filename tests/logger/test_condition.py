"""Waiting for a change behind a lock that the caller holds."""

import signal
import threading
import time
from collections.abc import Callable

import pytest

from logger.condition import Condition


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
