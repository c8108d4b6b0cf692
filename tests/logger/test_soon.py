"""Writing behind: a thread that can't be started now is started later."""

import threading

import pytest

from logger.soon import Behind


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
