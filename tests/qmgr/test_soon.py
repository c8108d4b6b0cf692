"""Which calls have the disk begin before the force: those that force next, and no others."""

from collections.abc import Callable

import pytest

from logger.force import GroupCommit
from qmgr.store import Store
from qmgr.verbs import ANY
from tests.qmgr.world import World


def unit_of_one_put(world: World) -> None:
    with world.qm.begin() as unit:
        unit.put("A", b"x")


def unit_of_one_get(world: World) -> None:
    with world.qm.begin() as unit:
        unit.get("A")


def prepared(world: World) -> None:
    unit = world.qm._engine.begin(None, "", None)
    world.qm._engine.put_later(unit, "A", b"x", {})
    world.qm._engine.commit_later(unit)


SOON: dict[str, Callable[[World], object]] = {
    "put": lambda world: world.qm.put("A", b"x"),
    "put with an option": lambda world: world.qm.put("A", b"x", priority=3),
    "put_many": lambda world: world.qm.put_many("A", [b"x"] * 9),
    "get": lambda world: world.qm.get("A"),
    "get with a wait": lambda world: world.qm.get("A", wait=1.0),
    "get by id": lambda world: world.qm.get("A", message_id=next(world.qm.browse("A")).message_id),
    "get_many": lambda world: world.qm.get_many("A", 5),
    "a few of many": lambda world: world.qm.get_many("A", 2),
    "unit of one put": unit_of_one_put,
    "unit of one get": unit_of_one_get,
}
LATER: dict[str, Callable[[World], object]] = {
    "put": lambda world: world.qm._engine.put_later(None, "A", b"x", {}),
    "put_many": lambda world: world.qm._engine.put_many_later(None, "A", [b"x"] * 9, {}),
    "get": lambda world: world.qm._engine.get_now(None, "A", 1, ANY),
    "get_many": lambda world: world.qm._engine.get_now(None, "A", 5, ANY),
    "commit": prepared,
    "not persistent": lambda world: world.qm.put("A", b"x", persistent=False),
}


def begun_by(call: Callable[[World], object], patch: pytest.MonkeyPatch) -> list[bool]:
    """Of each write that was begun early, whether its effect was still to come."""
    world = World()
    world.qm.define_queue("A")
    world.qm.put_many("A", [b"%d" % number for number in range(20)])
    begin, apply = GroupCommit.begin_force, Store.apply
    seen: list[bool] = []
    applied = 0

    def beginning(log: GroupCommit) -> None:
        begin(log)
        if log._begun:
            seen.append(applied == 0)

    def applying(store: Store, *given: object) -> None:
        nonlocal applied
        apply(store, *given)  # type: ignore[arg-type]
        applied += 1

    patch.setattr(GroupCommit, "begin_force", beginning)
    patch.setattr(Store, "apply", applying)
    call(world)
    assert applied == 1
    return seen


@pytest.mark.interpreted
@pytest.mark.parametrize("call", SOON)
def test_the_disk_begins_before_the_change_is_made(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun_by(SOON[call], monkeypatch) == [True]


@pytest.mark.interpreted
@pytest.mark.parametrize("call", LATER)
def test_where_others_may_come_with_it_nothing_is_begun(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon forces once for all that has come."""
    assert begun_by(LATER[call], monkeypatch) == []
