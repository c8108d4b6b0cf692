"""Threads that can't be started, or die before their first step: nobody waits for them."""

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import threads
from qmgr.threads import ShieldedWorker, Thread
from tests.qmgr.world import Call

START = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
SCARCE = """
import resource, threading, time
from qmgr.threads import Thread
begun, died = [], 0
Thread(lambda: begun.append(1), "the first").start()
resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
until = time.monotonic() + 30
while not died and time.monotonic() < until:
    time.sleep(0.001)  # the stack of the first is there for others once it has ended
    try:
        Thread(lambda: begun.append(1), "one for which there is no memory").start()
    except RuntimeError as exc:
        died += "no memory" in str(exc)  # else there was none for its stack
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
last = Thread(lambda: begun.append(1), "the last")
last.start()
last.join()
print(died, len(begun), threading.active_count())
"""
DIES = """
import sys, threading
from qmgr.threads import Thread

class Dies(Thread):
    def _bootstrap_inner(self):
        raise MemoryError

sys.unraisablehook = lambda told: None
try:
    Dies(lambda: None, "dies").start()
except RuntimeError as exc:
    print(exc, threading.active_count())
"""


def test_a_thread_that_dies_before_its_first_step_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    thread = Thread(lambda: called.append(1), "dies")
    with monkeypatch.context() as scarce:
        scarce.setattr(threading, START, lambda first, *rest, **how: None)
        with pytest.raises(RuntimeError, match="can't start new thread, since there is no memory for it"):
            thread.start()
    assert thread not in threading.enumerate() and not thread.is_alive() and not called


def test_the_death_of_a_thread_of_the_system_is_told_to_the_one_that_waits() -> None:
    """Also by a build of Python that can do without the GIL: there the one that waits must look."""
    ended = subprocess.run([sys.executable, "-c", DIES], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "can't start new thread, since there is no memory for it 1\n", ended


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_thread_that_the_system_refuses_is_no_thread(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*given: Any, **how: Any) -> None:
        raise error

    thread = Thread(lambda: None, "refused")
    with monkeypatch.context() as scarce:
        scarce.setattr(threading, START, refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            thread.start()
    assert thread not in threading.enumerate() and not thread.is_alive()


def test_a_queue_manager_whose_thread_dies_before_its_first_step_is_not_started(
    real: Callable[..., qmgr.QueueManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    real().end()
    with monkeypatch.context() as scarce:
        scarce.setattr(threading, START, lambda first, *rest, **how: None)
        with pytest.raises(qmgr.Unavailable, match=r"no thread for it .*no memory for it\); raise the limit") as caught:
            real()
    assert caught.value.reason == qmgr.Reason.STORAGE_NOT_AVAILABLE
    real().end()


def test_row_57_who_waits_for_a_thread_that_dies_behind_its_first_step_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory it can neither make its call nor say so."""

    def die(thread: threading.Thread) -> None:
        raise MemoryError

    worker = ShieldedWorker(lambda: None, "dies")
    monkeypatch.setattr(threads, "LOOK_S", 0.01)
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "run", die)
        worker.start()
        with pytest.raises(MemoryError):
            Call(worker.wait).outcome()
    Call(worker.await_end).outcome()
    assert not worker.is_alive()


def test_what_a_thread_is_to_do_has_begun_when_its_start_returns() -> None:
    called, go_on = threading.Event(), threading.Event()

    def call() -> None:
        called.set()
        go_on.wait(20)

    thread = Thread(call, "lives")
    thread.start()
    assert called.wait(20) and thread.is_alive() and thread in threading.enumerate()
    go_on.set()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="its limit of the address space")
def test_where_the_address_space_is_used_up_threads_fail_and_start_again_when_there_is_room() -> None:
    """The real thing: the stack of a thread that has ended is there for the next one, and nothing else is."""
    ended = subprocess.run([sys.executable, "-c", SCARCE], capture_output=True, text=True, timeout=60)
    died, begun, there = map(int, ended.stdout.split())
    assert died > 0, ended
    assert begun >= 2 and there == 1
