"""Daemons for tests, and what the tests of the STOMP listener share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Commands
from tests.daemon.daemons import Daemons
from tests.daemon.stomp_world import Client, Server, queue_manager, serving


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    made = Commands()
    yield made
    made.close()


@pytest.fixture
def daemons(commands: Commands, tmp_path: Path) -> Iterator[Daemons]:
    made = Daemons(commands, tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A queue manager with queues A and B, and its STOMP listener."""
    with queue_manager(tmp_path, "A", "B") as manager, serving(manager) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as made:
        yield made
