"""A queue manager with the listener for local clients: in this process, or in one of its own that can be killed."""

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import attrs

import qmgr
from logger.clock import Clock, SystemClock
from qmgr import ini, locations
from qmgr.daemon import local
from qmgr.daemon.admission import Admission
from qmgr.daemon.local import LocalListener
from qmgr.session import Sessions
from tests.qmgr.world import NAME, SMALL

SPAWN = multiprocessing.get_context("forkserver")  # a process that has imported all this forks the others
SPAWN.set_forkserver_preload(["tests.daemon.serving"])
LONG = 30.0  # seconds that anything may take before it counts as hanging


class Service:
    """What a listener needs of a daemon, around a queue manager that somebody else starts and ends."""

    def __init__(self, manager: qmgr.QueueManager, **channels: Any) -> None:
        self.manager = manager
        self.clock: Clock = SystemClock()
        self.location = manager._location
        self.channels = ini.ChannelsConfig(**channels)
        self.authority = Admission(manager, manager._disk, self.location, self.say)
        self.said: list[str] = []
        self.ended = threading.Event()
        self.mode = ""

    @property
    def sessions(self) -> Sessions:
        return self.manager.sessions

    def say(self, amq: str, **inserts: Any) -> None:
        self.said.append(f"{amq} {inserts}")
        self.manager.say(amq, **inserts)

    def check_may_end(self) -> None:
        """It may."""

    def ask_to_end(self, mode: str) -> None:
        self.mode = mode
        self.ended.set()


@attrs.frozen
class Served:
    """A queue manager in this process, its listener, and what to connect to."""

    manager: qmgr.QueueManager
    service: Service
    listener: LocalListener
    path: Path

    def connect(self, **options: Any) -> qmgr.Connection:
        return qmgr.connect(NAME, data_path=self.path, **options)


def create(path: Path, **options: Any) -> None:
    if not (path / "qmgrs" / NAME).exists():
        qmgr.create(NAME, data_path=path, **(SMALL | options))


@contextlib.contextmanager
def serving(path: Path, *, channels: dict[str, Any] | None = None, **options: Any) -> Iterator[Served]:
    """A queue manager with its listener, here; queue A is there."""
    create(path, **options)
    with qmgr.start(NAME, data_path=path) as manager:
        if not manager.queues():
            manager.define_queue("A")
            manager.define_queue("B")
        service = Service(manager, **(channels or {}))
        listener = local.make(service, None)
        listener.start()
        try:
            yield Served(manager, service, listener, path)
        finally:
            listener.close()
            manager.end("immediate")


def _serve(path: Path, ready: Pipe, channels: dict[str, Any], options: dict[str, Any]) -> None:
    """The process of a daemon: serves until a client asks for the end."""
    with serving(path, channels=channels, **options) as served:
        ready.send("ready")
        served.service.ended.wait()
        served.listener.refuse()
        if served.service.mode == "quiesce":
            served.manager.end()


class Daemon:
    """The same in a process of its own."""

    def __init__(self, path: Path, *, channels: dict[str, Any] | None = None, **options: Any) -> None:
        self.path = path
        self._channels = channels or {}
        self._options = options
        self.start()

    def start(self) -> None:
        ready, theirs = SPAWN.Pipe(duplex=False)
        self.process = SPAWN.Process(target=_serve, args=(self.path, theirs, self._channels, self._options))
        self.process.start()
        theirs.close()
        assert ready.poll(LONG), "the daemon does not start"
        assert ready.recv() == "ready"

    def connect(self, **options: Any) -> qmgr.Connection:
        return qmgr.connect(NAME, data_path=self.path, **options)

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(LONG)

    def close(self) -> None:
        if self.process.is_alive():
            self.kill()


@contextlib.contextmanager
def daemon(path: Path, **options: Any) -> Iterator[Daemon]:
    """A daemon, which is killed at the end if it is there still."""
    one = Daemon(path, **options)
    try:
        yield one
    finally:
        one.close()


def location(path: Path) -> locations.Location:
    return locations.find(NAME, path)


def be_answered(stranger: socket.socket) -> None:
    """Say what no protocol knows, and wait for the end of the connection, which comes from who has accepted it."""
    stranger.sendall(b"what nobody speaks\r\n\r\n\0")
    while stranger.recv(1000):
        pass


def until(true: Callable[[], bool], seconds: float = LONG) -> None:
    """Wait for what another thread or process is about to do."""
    never = threading.Event()
    for _ in range(int(seconds / 0.005)):
        if true():
            return
        never.wait(0.005)
    raise AssertionError("it does not happen")


def nobody_is_there(served: Served) -> bool:
    return len(served.manager.sessions) == 0


def waits(served: Served, queue: str = "A", count: int = 1) -> None:
    until(lambda: len(served.manager._engine.state.queues[queue].waiters.line) == count)
