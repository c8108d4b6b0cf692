"""Queue managers for tests: one on the simulated disk and clock, one on the real ones."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qmgr
from tests.qmgr.world import NAME, SMALL, World


@pytest.fixture
def world() -> World:
    """A queue manager in a simulation, with the queues A and B."""
    made = World()
    made.qm.define_queue("A")
    made.qm.define_queue("B")
    return made


@pytest.fixture
def qm(world: World) -> qmgr.QueueManager:
    return world.qm


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Callable[..., qmgr.QueueManager]]:
    """Make and start a queue manager on the real disk, with a thread of its own; it is ended after the test."""
    made: list[qmgr.QueueManager] = []

    def make(**options: Any) -> qmgr.QueueManager:
        if not (tmp_path / "qmgrs" / NAME).exists():
            qmgr.create(NAME, data_path=tmp_path, **(SMALL | options))
        manager = qmgr.start(NAME, data_path=tmp_path)
        made.append(manager)
        return manager

    yield make
    for manager in made:
        manager.end("immediate")
