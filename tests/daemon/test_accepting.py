"""What a listener can't do for want of descriptors is said, and not a hundred times; and it goes on."""

import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qmgr.configuration import Protocol
from qmgr.daemon import listeners
from qmgr.daemon.accepting import QUIET_NS, Hardship
from tests.daemon.faces import face, listening
from tests.daemon.serving import LONG, be_answered, until


def test_it_is_said_once_until_there_was_none_for_a_while() -> None:
    now, said = 0, []
    clock = SimpleNamespace(elapsed_ns=lambda: now)
    hardship = Hardship(cast(Any, SimpleNamespace(clock=clock, say=lambda amq, text: said.append((amq, text)))), "L1")
    for _ in range(100):
        hardship.met(RuntimeError("can't start new thread"))
        now += QUIET_NS - 1
    first = "AMQ9213", "listener 'L1' can't accept: can't start new thread"
    assert said == [first]
    now += 1
    hardship.met(MemoryError())
    assert said == [first, ("AMQ9213", "listener 'L1' can't accept: MemoryError")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as asked:
        port: int = asked.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("exc", "why"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "raise the limit (ulimit -n)"),
        (MemoryError(), "listener 'test' can't accept: MemoryError"),
    ],
)
@pytest.mark.parametrize("protocol", Protocol)
def test_row_76_a_listener_that_lacks_something_says_so_once_and_accepts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Protocol, exc: Exception, why: str
) -> None:
    def none_left(self: socket.socket) -> Any:
        refused.append(self)
        raise exc

    refused: list[socket.socket] = []
    around, place = face(tmp_path), ("127.0.0.1", free_port())
    listener = listeners.MAKERS[protocol](around, listening(protocol, port=place[1]))
    listener.start()
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", none_left)
        waiting = [socket.create_connection(place, timeout=LONG) for _ in range(3)]
        until(lambda: len(refused) >= 5)
    [(amq, told)] = around.said
    assert (amq, why in told["text"]) == ("AMQ9213", True)
    for one in waiting:
        be_answered(one)
        one.close()
    listener.close()
    around.manager.end("immediate")
