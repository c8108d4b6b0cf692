"""What runmqsc prints, to the letter: each file in golden/ has commands, a line, and the output.

The queue manager lives in a simulation, where clock and sizes are always the same. QMGR_GOLDEN=1 writes the outputs
anew; look at the difference before you keep it.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
from qmgr.mqsc.console import Console
from qmgr.session import AllRights, Peer
from tests.qmgr.world import World

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))
LINE = "-" * 80 + "\n"


def nothing(world: World) -> None:
    pass


def with_messages(world: World) -> None:
    world.qm.define_queue("ORDERS", description="what came in")
    world.qm.define_queue("INVOICES", max_depth=100)
    world.qm.put_many("ORDERS", [b"%d" % n for n in range(7)])


def with_clients(world: World) -> None:
    """Two clients, one of them with two units of work, and this process with one in doubt."""
    with_messages(world)
    manager = world.qm
    peer = Peer(user="anna", application="till.py", process=4711, channel="TCP", address="127.0.0.1")
    till = manager.sessions.open(peer, AllRights())
    till.put(till.begin(), "INVOICES", b"1", {"persistent": True})
    unit = till.begin()
    till.get(unit, "ORDERS")
    till.put(unit, "INVOICES", b"2", {})
    manager.sessions.open(Peer(user="bert", application="look", channel="STOMP"), AllRights())
    doubtful = manager.begin(qmgr.Xid(5067085, b"\x01\xab", b"b"))
    doubtful.put("ORDERS", b"3")
    doubtful.prepare()
    manager.checkpoint()  # which logs what was held back


def damaged(world: World) -> None:
    with_messages(world)
    world.qm.checkpoint()
    for path in world.disk.files("/data/qmgrs/QM1/queues/ORDERS/"):
        world.disk.poke(path, b"")
    world.crash()


SCENES: dict[str, tuple[Callable[[World], None], dict[str, str]]] = {
    "connections": (with_clients, {"log_type": "linear"}),
    "damage": (damaged, {}),
    "delete": (with_clients, {}),
    "display": (with_messages, {}),
    "log_circular": (nothing, {}),
    "log_linear": (with_messages, {"log_type": "linear"}),
    "conn_handle": (with_clients, {}),
    "where": (with_messages, {}),
    "log_archive": (with_messages, {"log_type": "linear", "log_management": "Archive"}),
}


def masked(text: str) -> str:
    """Without what depends on every record that was logged before."""
    return re.sub(r"\b(DISKLSN|CHKPTOPS)\([^)]+\)", lambda found: f"{found[1]}(.)".ljust(len(found[0])), text)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    commands, _, expected = path.read_text().partition(LINE)
    scene, options = SCENES.get(path.stem, (nothing, {}))
    world = World(**options)
    for queue in world.qm.queues():  # those that every queue manager has
        world.qm.delete_queue(queue.name, purge=True)
    scene(world)
    console = Console(world.qm.mqsc)
    said: list[str] = []
    for line in commands.splitlines():
        if not console.ended:
            said += console.add(line)
    said += console.end()
    output = masked("".join(f"{line}\n" for line in [*said, f"return code {console.code}"]))
    if os.environ.get("QMGR_GOLDEN"):
        path.write_text(commands + LINE + output)
        return
    assert output == expected


@pytest.mark.parametrize("kind", ["queue", "alias"])
def test_replace_of_what_somebody_deletes_at_that_moment(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    what = "qlocal(A)" if kind == "queue" else "qalias(A) target(B)"
    define = f"define {what} descr('x') replace"
    delete = getattr(qmgr.QueueManager, f"delete_{kind}")
    alter = getattr(qmgr.QueueManager, f"alter_{kind}")
    deleted = []

    def late(manager: qmgr.QueueManager, name: str, **attributes: object) -> object:
        if not deleted:
            deleted.append(delete(manager, name))
        return alter(manager, name, **attributes)

    world.qm.mqsc(define)
    monkeypatch.setattr(qmgr.QueueManager, f"alter_{kind}", late)
    assert world.qm.mqsc(define).text.startswith("AMQ8006I")
    assert deleted
    assert "DESCR(x)" in world.qm.mqsc("display queue(A) descr").text


@pytest.mark.parametrize("ignore", ["", "ignstate(yes)"])
def test_a_queue_that_somebody_defines_anew_is_deleted_all_the_same(
    ignore: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    delete = qmgr.QueueManager.delete_queue

    def early(manager: qmgr.QueueManager, name: str, **how: bool) -> None:
        delete(manager, name, **how)
        manager.define_queue(name)
        if ignore:  # it was gone when it was to be deleted
            raise qmgr.UnknownQueue("it is gone", name=name)

    world.qm.mqsc("define qlocal(A)\nset authrec profile(A) objtype(queue) principal('mia') authadd(put)")
    monkeypatch.setattr(qmgr.QueueManager, "delete_queue", early)
    assert world.qm.mqsc(f"delete qlocal(A) {ignore}").text == "AMQ8007I: Queue deleted.\n"
    assert "AUTHLIST(PUT)" in world.qm.mqsc("display authrec profile(A) authlist").text  # they are on the new one


def test_where_compares_text_as_text_also_where_it_is_digits() -> None:
    world = World()
    for name, text in (("A", "007"), ("B", "7"), ("C", "10")):
        world.qm.define_queue(name, description=text, max_depth=int(text))

    def found(condition: str) -> list[str]:
        return re.findall(r"QUEUE\((\w)\)", world.qm.mqsc(f"display qlocal(*) where({condition})").text)

    assert found("descr eq '7'") == ["B"]
    assert found("descr ne '7'") == ["A", "C"]
    assert found("descr lt '7'") == ["A", "C"]
    assert found("maxdepth eq 07") == ["A", "B"]
    assert found("maxdepth gt 7") == ["C"]


def test_so_it_does_of_what_is_text_and_can_not_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.qm, "_process", "007")

    def found(condition: str) -> bool:
        return "APPLTAG(007)" in world.qm.mqsc(f"display conn(*) where({condition}) appltag").text

    assert found("appltag eq '007'")
    assert not found("appltag eq '7'")
    assert found("appltag lt '7'")


def test_every_scene_is_shown() -> None:
    assert {path.stem for path in GOLDEN} >= set(SCENES)
