"""Forcing without blocking: every callback is called once, in the order asked."""

import threading

from logger.soon import Forcer


def test_all_are_answered_also_those_that_ask_while_a_force_runs() -> None:
    running, go = threading.Event(), threading.Event()
    forced: list[int] = []

    def force(target: int) -> None:
        running.set()
        assert go.wait(20)
        forced.append(target)

    forcer = Forcer(force)
    heard: list[tuple[int, Exception | None]] = []
    forcer.ask(8, lambda error: heard.append((8, error)))
    assert running.wait(20)
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
