"""Writing behind: a thread that can't be started now is started later."""

import threading
from types import FrameType
from typing import Any

import pytest

from logger.soon import Behind
from tests.qmgr.test_interrupts import Tracer, interrupted


class EveryFile(Tracer):
    """Strikes in the standard library too, on which nothing may rely here."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and self.left > 0 and "threading" in frame.f_code.co_filename:
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise self.kind
            return self
        return super().__call__(frame, event, arg) or self


def cannot_start(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_writing_behind_is_left_out_where_no_thread_can_start_and_begins_once_one_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked = threading.Event()
    behind = Behind(worked.set)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot_start)
        behind.ask()
        behind.end()
    assert not worked.is_set()
    behind = Behind(worked.set)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot_start)
        behind.ask()
    behind.ask()
    assert worked.wait(120)
    behind.end()


def test_a_thread_whose_start_was_interrupted_ends_with_the_one_that_was_started_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind = Behind(lambda: None)
    real_start = threading.Thread.start
    started: list[threading.Thread] = []

    def start(self: threading.Thread) -> None:
        real_start(self)
        started.append(self)
        if len(started) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            behind.ask()
        behind.ask()
    ending = threading.Thread(target=behind.end, daemon=True)
    ending.start()
    ending.join(20)
    assert not ending.is_alive()
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.interpreted
@pytest.mark.parametrize("n", range(1, 40, 2))
def test_row_65_who_is_interrupted_while_asking_leaves_one_who_can_be_asked_and_ended(n: int) -> None:
    worked = threading.Semaphore(0)
    behind = Behind(worked.release)
    behind.ask()
    assert worked.acquire(timeout=20)
    tracer = EveryFile(n)
    interrupted(tracer, behind.ask)
    behind.ask()
    assert worked.acquire(timeout=20)
    ending = threading.Thread(target=behind.end, daemon=True)
    ending.start()
    ending.join(20)
    assert not ending.is_alive()
