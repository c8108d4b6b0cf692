"""A file system that takes ORDERS and Orders for one name, as macOS has it where nobody chose another."""

import pytest

import qmgr
from tests.qmgr.world import DATA, NAME, SMALL, bodies
from tests.sim.clock import SimClock
from tests.sim.disk import DirNode, Node, SimDisk


class Folding(SimDisk):
    """Names keep the letters with which they were made, and are found by others too."""

    def _find(self, path: str) -> Node | None:
        return super()._find(self._as_made(path))

    def _parent(self, path: str) -> tuple[DirNode, str]:
        return super()._parent(self._as_made(path))

    def _as_made(self, path: str) -> str:
        node: Node | None = self.root
        found = []
        for name in path.strip("/").split("/"):
            names = node.live if isinstance(node, DirNode) else {}
            made = next((each for each in names if each.casefold() == name.casefold()), name)
            node = names.get(made)
            found.append(made)
        return "/" + "/".join(found)


def test_the_disk_of_these_tests_takes_both_for_one() -> None:
    disk = Folding()
    disk.mkdir("/Here")
    disk.open("/here/FILE", create=True).close()
    assert disk.list("/HERE") == ["FILE"] and disk.files() == ["/Here/FILE"]
    with pytest.raises(FileExistsError):
        disk.open("/Here/file", create=True)


def test_queues_that_differ_in_case_keep_their_messages() -> None:
    disk, clock = Folding(), SimClock()
    qmgr.create(NAME, data_path=DATA, disk=disk, clock=clock, **SMALL)

    def start() -> qmgr.QueueManager:
        return qmgr.start(NAME, data_path=DATA, disk=disk, clock=clock, background=False)

    names = ("ORDERS", "Orders", "orders")
    with start() as qm:
        for name in names:
            qm.define_queue(name)
            qm.put_many(name, [f"{name} {number}".encode() for number in range(3)])
        qm.checkpoint()
    for _ in range(3):
        with start() as qm:
            assert {name: bodies(qm, name) for name in names} == {
                name: [f"{name} {number}".encode() for number in range(3)] for name in names
            }
    with start() as qm:
        for name in names[1:]:
            qm.delete_queue(name, purge=True)
    with start() as qm:
        assert bodies(qm, "ORDERS") == [b"ORDERS 0", b"ORDERS 1", b"ORDERS 2"]
    with start():
        assert len([path for path in disk.files() if path.endswith(".seg")]) == 1


def test_queue_managers_that_differ_in_case_are_refused() -> None:
    disk, clock = Folding(), SimClock()
    qmgr.create("QM1", data_path=DATA, disk=disk, clock=clock, **SMALL)
    with pytest.raises(qmgr.MQError, match="qm1"):
        qmgr.create("qm1", data_path=DATA, disk=disk, clock=clock, **SMALL)
