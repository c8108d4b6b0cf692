"""Daemons for tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Commands
from tests.daemon.daemons import Daemons


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
