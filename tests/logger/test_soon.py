"""Forcing without blocking: every callback is called once, in the order asked."""

import threading

import pytest

from logger.soon import Behind, Forcer


def test_all_are_answered_also_those_that_ask_while_a_force_runs() -> None:
    running, go = threading.Event(), threading.Event()
    forced: list[int] = []

    def force(target: int) -> None:
        running.set()
        assert go.wait(120)
        forced.append(target)

    forcer = Forcer(force)
    heard: list[tuple[int, Exception | None]] = []
    forcer.ask(8, lambda error: heard.append((8, error)))
    assert running.wait(120)
    for target in (16, 40, 24):
        forcer.ask(target, lambda error, target=target: heard.append((target, error)))  # type: ignore[misc]
    go.set()
    forcer.end()
    assert heard == [(8, None), (16, None), (40, None), (24, None)]
    assert forced == [8, 40]


def test_a_failure_is_told_to_everyone_who_asked() -> None:
    def force(target: int) -> None:
        raise ValueError("no disk")

    forcer = Forcer(force)
    heard: list[Exception | None] = []
    forcer.ask(8, heard.append)
    forcer.end()
    assert [str(error) for error in heard] == ["no disk"]


def test_ending_what_was_never_asked() -> None:
    before = threading.active_count()
    Forcer(lambda target: None).end()
    assert threading.active_count() == before


def cannot_start(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_without_a_thread_the_caller_forces_and_hears_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    heard: list[tuple[int, Exception | None]] = []
    forcer = Forcer(forced.append)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot_start)
        for target in (8, 16):
            forcer.ask(target, lambda error, target=target: heard.append((target, error)))  # type: ignore[misc]
            assert heard[-1] == (target, None)
    forcer.ask(24, lambda error: heard.append((24, error)))  # now there can be one
    forcer.end()
    assert (forced, [target for target, _ in heard]) == ([8, 16, 24], [8, 16, 24])


def test_a_failure_is_told_without_a_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def force(target: int) -> None:
        raise ValueError("no disk")

    heard: list[Exception | None] = []
    forcer = Forcer(force)
    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    forcer.ask(8, heard.append)
    forcer.end()
    assert [str(error) for error in heard] == ["no disk"]


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
