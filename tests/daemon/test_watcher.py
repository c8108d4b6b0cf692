"""The watcher: which of many sockets the other end has closed, and never one of another socket with the same number."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from qmgr import sockets
from qmgr.daemon.watcher import Watcher
from tests.daemon.serving import LONG, until


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    made = Watcher()
    made.start()
    yield made
    made.close()
    made.close()


def test_who_has_gone_is_noted_once_and_may_be_removed_after_its_socket_is_closed(watcher: Watcher) -> None:
    ours, theirs = sockets.pair()
    noted = threading.Semaphore(0)
    with watcher.watching(ours, noted.release) as watch:
        assert not watch.gone
        theirs.close()
        assert noted.acquire(timeout=LONG) and watch.gone
        ours.close()  # by another thread, say
    assert not noted.acquire(blocking=False)


def test_a_call_that_fails_is_watched_no_more(watcher: Watcher) -> None:
    (ours, theirs), (other, its) = sockets.pair(), sockets.pair()
    noted, gone = [], threading.Event()
    with pytest.raises(KeyError), watcher.watching(ours, lambda: noted.append(1)):
        raise KeyError
    watcher.add(other, gone.set)
    for each in (theirs, its):
        each.close()
    assert gone.wait(LONG) and not noted
    for each in (ours, other):
        each.close()


def test_a_socket_that_was_closed_unremoved_is_not_taken_for_the_next_with_its_number(watcher: Watcher) -> None:
    (ours, theirs), (other, its) = sockets.pair(), sockets.pair()
    gone = threading.Event()
    first = watcher.add(ours, lambda: None)
    number = ours.detach()
    os.dup2(other.fileno(), number)
    other.close()
    with socket.socket(fileno=number) as same:
        second = watcher.add(same, gone.set)
        watcher.remove(same, first)  # late: it is another one's by now
        its.close()
        assert gone.wait(LONG)
    assert (first.gone, second.gone) == (False, True)
    theirs.close()


def test_what_comes_after_the_end_is_watched_by_nobody(watcher: Watcher) -> None:
    """Sessions end, and their calls with them, in any order."""
    ours, theirs = sockets.pair()
    before = watcher.add(ours, lambda: None)
    other, its = sockets.pair()
    called, over = threading.Event(), threading.Event()

    def takes_its_time() -> None:
        called.set()
        until(lambda: watcher._ended)
        over.wait(0.1)  # nobody sets it before
        over.set()

    watcher.add(other, takes_its_time)
    its.close()
    assert called.wait(LONG)
    watcher.close()
    assert over.is_set() and not watcher._thread.is_alive()
    watcher.remove(ours, before)
    with watcher.watching(theirs, lambda: None) as watch:
        assert not watch.gone
    for each in (ours, theirs, other):
        each.close()
