"""The faces, each open for a module, with a queue of its own for each test."""

from collections.abc import Iterator

import pytest

import qmgr
from tests.conformance.faces import FACES, Face
from tests.conformance.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.fixture(scope="module", params=FACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Face]:
    """A face on a queue manager of this module, created with the module's OPTIONS."""
    made: Face = FACES[request.param](tmp_path_factory.mktemp("qm"), getattr(request.module, "OPTIONS", {}), nursery)
    yield made
    made.stop()


@pytest.fixture
def face(place: Face) -> Iterator[Face]:
    place.open()
    yield place
    place.close()


@pytest.fixture
def qm(face: Face) -> qmgr.QueueManager:
    """What the face gives; the tests use it as if it was a queue manager in their process."""
    return face.qm


@pytest.fixture
def queue(face: Face) -> str:
    return face.queue()


@pytest.fixture(scope="module")
def shared_by_face() -> dict[Face, str]:
    return {}


@pytest.fixture
def shared(face: Face, shared_by_face: dict[Face, str]) -> str:
    """A queue for tests that leave nothing in it."""
    if face not in shared_by_face:
        shared_by_face[face] = face.queue()
    return shared_by_face[face]
