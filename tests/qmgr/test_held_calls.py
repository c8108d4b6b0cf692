"""Calls of a unit of work are logged together: with its outcome, or before anything else that is logged."""

from collections.abc import Callable

import pytest

from qmgr import UnitOfWork, Xid
from recovery import dump
from tests.qmgr.world import DATA, NAME, World, bodies
from tests.sim.loss import LOSE_ALL

LOG = f"{DATA}/log/{NAME}"


def logged(world: World) -> list[str]:
    """The types of the records since the queues were defined, as they are on disk now."""
    kinds = [record.type_name for record in dump.dump(world.disk, LOG)]
    last = max(n for n, kind in enumerate(kinds) if "Create Object" in kind)
    return [kind.rsplit(" ", 1)[0].split(" ", 1)[1] for kind in kinds[last + 1 :]]


def test_a_unit_that_nobody_interrupts_is_one_record(world: World) -> None:
    world.qm.put("A", b"there")
    with world.qm.begin() as unit:
        unit.put("B", b"1")
        unit.get("A")
        unit.put_many("B", [b"2", b"3"])
        assert world.qm.status().log.promised > 0
    assert logged(world) == ["Put Message", "Commit Transaction"]
    assert world.qm.status().log.promised == 0
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == ([], [b"1", b"2", b"3"])


def test_whatever_else_is_logged_comes_after_the_calls_before_it(world: World) -> None:
    first, second = world.qm.begin(), world.qm.begin()
    first.put("A", b"1")
    second.put("A", b"2")
    world.qm.put("B", b"")
    first.put("A", b"3")
    second.commit()
    first.commit()
    calls = "Unit of Work Calls"
    assert logged(world) == [calls, calls, "Put Message", calls, "Commit Transaction", "Commit Transaction"]
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == [b"2", b"1", b"3"]


def test_many_bytes_are_logged_before_the_end(world: World) -> None:
    unit = world.qm.begin()
    for n in range(30):
        unit.put("A", b"%d" % n + bytes(2000))
    assert world.qm.transactions()[0].first_lsn > 0
    unit.commit()
    assert set(logged(world)) - {"Fill Page"} == {"Unit of Work Calls", "Commit Transaction"}
    world.crash(LOSE_ALL)
    assert [int(body.rstrip(b"\0")) for body in bodies(world.qm, "A")] == list(range(30))


def test_a_backout_of_puts_alone_is_not_logged_and_one_of_gets_counts_after_a_crash(world: World) -> None:
    """Row 80."""
    world.qm.put("A", b"poison")
    unit = world.qm.begin()
    unit.put("B", b"never")
    unit.backout()
    assert logged(world) == ["Put Message"]
    for _ in range(2):
        unit = world.qm.begin()
        unit.put("B", b"never")
        assert unit.get("A").body == b"poison"
        unit.backout()
    assert logged(world) == ["Put Message", "Rollback Transaction", "Rollback Transaction"]
    world.crash(LOSE_ALL)
    assert world.qm.get("A").backout_count == 2
    assert world.depths() == {"A": 0, "B": 0}


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_unit_comes_back_with_its_calls_and_counts_once(world: World, commit: bool) -> None:
    xid = Xid(1, b"x", b"")
    world.qm.put("A", b"taken")
    unit = world.qm.begin(xid)
    unit.get("A")
    unit.put("B", b"given")
    unit.prepare()
    for _ in range(2):
        world.crash(LOSE_ALL)
        assert world.qm.in_doubt() == [xid]
    world.qm.resolve(xid, commit=commit)
    world.crash(LOSE_ALL)
    if commit:
        assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == ([], [b"given"])
    else:
        assert world.qm.get("A").backout_count == 1
        assert bodies(world.qm, "B") == []


@pytest.mark.parametrize("how", ["resolve", "backout"])
def test_a_prepared_unit_that_took_nothing_is_backed_out_for_good(world: World, how: str) -> None:
    """Rows 15, 28: a coordinator forgets a transaction when it hears that it was backed out."""
    xid = Xid(1, b"x", b"")
    unit = world.qm.begin(xid)
    unit.put("B", b"never")
    unit.prepare()
    if how == "resolve":
        world.qm.resolve(xid, commit=False)
    else:
        unit.backout()
    world.crash(LOSE_ALL)
    assert world.qm.in_doubt() == []
    assert bodies(world.qm, "B") == []


def test_a_checkpoint_between_the_calls_and_the_end(world: World) -> None:
    world.qm.put_many("A", [b"1", b"2"])
    unit = world.qm.begin()
    unit.get("A")
    unit.put("B", b"x")
    world.qm.checkpoint()
    unit.get("A")
    unit.put("B", b"y")
    world.qm.checkpoint()
    unit.commit()
    world.crash(LOSE_ALL)
    assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == ([], [b"x", b"y"])


RECORDS: dict[str, Callable[[World, UnitOfWork], object]] = {
    "put": lambda world, unit: world.qm.put("A", b""),
    "get": lambda world, unit: world.qm.get("A"),
    "define": lambda world, unit: world.qm.define_queue("C"),
    "prepare": lambda world, unit: unit.prepare(),
    "commit": lambda world, unit: unit.commit(),
    "backout": lambda world, unit: unit.backout(),
    "checkpoint": lambda world, unit: world.qm.checkpoint(),
}


@pytest.mark.parametrize("how", RECORDS)
def test_who_lasts_holds_the_head_from_the_next_record_of_anybody_on(world: World, how: str) -> None:
    world.qm.put_many("A", [b"1", b"2", b"3"])
    lasts, other = world.qm.begin(), world.qm.begin(Xid(1, b"x", b""))
    lasts.get("A")
    other.get("A")
    RECORDS[how](world, other)
    assert next(one for one in world.qm.transactions() if one.number == lasts.id).first_lsn
