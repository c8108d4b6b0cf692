"""Daemons for tests, and what the tests of the listeners share."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmgr
from qmgr.daemon.process import ESCALATING, STEP_OF
from tests.commands import Commands
from tests.daemon import stomp_world
from tests.daemon.daemons import Daemons
from tests.daemon.serving import Served, serving
from tests.daemon.stomp_world import Client, Server, queue_manager


@pytest.fixture
def daemons(commands: Commands, tmp_path: Path) -> Iterator[Daemons]:
    made = Daemons(commands, tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A queue manager with queues A and B, and its listener for local clients."""
    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def connection(served: Served) -> Iterator[qmgr.Connection]:
    with served.connect() as made:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A queue manager with queues A and B, and its STOMP listener."""
    with queue_manager(tmp_path, "A", "B") as manager, stomp_world.serving(manager) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as made:
        yield made


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A daemon that has ended leaves its process deaf to them, and what that starts."""
    before = {number: signal.getsignal(number) for number in (*ESCALATING, *STEP_OF, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
