"""Faces: the ways to one queue manager, each of which looks to a test like a `qmgr.QueueManager`.

A test gets a face and uses `face.qm`. Whether that is the queue manager itself, a connection to a daemon, or something
that awaits, the test can't tell.
"""

import itertools
from pathlib import Path
from typing import Any, cast

import qmgr.aio
from tests.conformance.awaited import Awaited, Loop
from tests.conformance.calls import until
from tests.conformance.nursery import Daemon, Nursery
from tests.qmgr.world import NAME, SMALL

numbers = itertools.count(1)


class Face:
    """One way to the queue manager of a data path. It starts and ends with a test module; `qm` is new for each test."""

    def __init__(self, data_path: Path, options: dict[str, Any], nursery: Nursery) -> None:
        self.data_path = data_path
        self.nursery = nursery
        self.qm: qmgr.QueueManager = cast(qmgr.QueueManager, None)
        if not (data_path / "qmgrs" / NAME).exists():
            qmgr.create(NAME, data_path=data_path, **(SMALL | options))

    def queue(self, **attributes: Any) -> str:
        """The name of a new queue."""
        name = f"Q{next(numbers)}"
        self.qm.define_queue(name, **attributes)
        return name

    def open(self) -> None:
        """Start what is not running, and reach it."""
        raise NotImplementedError

    def close(self) -> None:
        """A test is over: give up what it held."""
        raise NotImplementedError

    def stop(self) -> None:
        """The module is over: nothing runs any more."""
        raise NotImplementedError

    def crash(self) -> None:
        """The queue manager is gone as after kill -9; start it again."""
        raise NotImplementedError

    def restart(self) -> None:
        """End it in order, start it again."""
        self.qm.end("immediate")
        self.ended()
        self.open()

    def ended(self) -> None:
        """Wait until the queue manager that was ended is gone."""
        raise NotImplementedError

    def left(self) -> None:
        """A `with` block over `qm` was left, with an exception: wait until nothing runs that it has ended."""
        self.ended()

    def stand_in_line(self, queue: str, count: int) -> None:
        """Return when so many calls wait at the queue, as far as that can be seen from here."""
        for _ in range(40):  # no face shows it: give the others time, and hold for whatever comes first
            self.qm.status()


class InProcess(Face):
    """The queue manager in the process of the test."""

    _running: qmgr.QueueManager | None = None

    def open(self) -> None:
        if self._running is None:
            self._running = qmgr.start(NAME, data_path=self.data_path)
        self.qm = self._running

    def close(self) -> None:
        manager = self._running
        if manager is None or manager._state != "running":
            self._running = None

    def stop(self) -> None:
        if self._running is not None:
            self._running.end("immediate")
            self._running = None

    def crash(self) -> None:
        assert self._running is not None
        self._running.abandon()
        self.ended()
        self.open()

    def ended(self) -> None:
        self._running = None

    def stand_in_line(self, queue: str, count: int) -> None:
        assert self._running is not None
        found = self._running._engine.state.queues[queue]
        until(lambda: len(found.waiters.line) >= count)


class AwaitedInProcess(InProcess):
    """The same, awaited."""

    _loop: Loop | None = None
    _awaited: qmgr.aio.Connection

    def open(self) -> None:
        if self._loop is None:
            self._loop = Loop()
        if self._running is None:
            opened: Any = qmgr.aio.start(NAME, data_path=self.data_path)
            self._awaited = self._loop.run(lambda: opened)
            self._running = self._awaited._backend._manager
        self.qm = cast(qmgr.QueueManager, Awaited(self._awaited, self._loop))

    def stop(self) -> None:
        super().stop()
        if self._loop is not None:
            self._loop.close()


class Client(Face):
    """A daemon in a process of its own, and a connection to it for each test."""

    _daemon: Daemon | None = None
    _connection: qmgr.Connection | None = None

    def open(self) -> None:
        if self._daemon is None:
            self._daemon = self.nursery.start(self.data_path)
        self._connection = qmgr.connect(NAME, data_path=self.data_path)
        self.qm = cast(qmgr.QueueManager, self._connection)

    def close(self) -> None:
        if self._connection is None:
            return
        try:
            self._connection.status()
        except qmgr.MQError:  # a test that has failed left it so
            self.stop()
        self._connection.close()

    def stop(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon = None

    def crash(self) -> None:
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon = None
        self.open()

    def ended(self) -> None:
        assert self._daemon is not None
        assert self._daemon.wait() == 0
        self._daemon = None

    def left(self) -> None:
        """The connection was closed, and the queue manager goes on."""


class AwaitedClient(Client):
    """The same, awaited."""

    _loop: Loop | None = None

    def open(self) -> None:
        if self._loop is None:
            self._loop = Loop()
        if self._daemon is None:
            self._daemon = self.nursery.start(self.data_path)
        opened: Any = qmgr.aio.connect(NAME, data_path=self.data_path)
        awaited = Awaited(self._loop.run(lambda: opened), self._loop)
        self._connection = cast(qmgr.Connection, awaited)
        self.qm = cast(qmgr.QueueManager, awaited)

    def stop(self) -> None:
        super().stop()
        if self._loop is not None:
            self._loop.close()
            self._loop = None


FACES: dict[str, type[Face]] = {
    "in-process": InProcess,
    "awaited in-process": AwaitedInProcess,
    "client": Client,
    "awaited client": AwaitedClient,
}
