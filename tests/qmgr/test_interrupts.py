"""Row 65: KeyboardInterrupt at the n-th line of a call, for every n.

The unit of work is done or undone, no lock is left: the next call works, or the queue manager says that it has
stopped; and a restart has everything that was acknowledged.
"""

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

import qmgr
from tests.qmgr.world import NAME, World, bodies, soon
from tests.sim.loss import LOSE_ALL

OURS = ("/logger/", "/recovery/", "/qmgr/")


@functools.cache
def exits(code: CodeType) -> frozenset[int]:
    """The offsets at which a `with` block that has ended calls __exit__(None, None, None).

    Tracing stops there too, but the interpreter looks for signals only after that call: no interrupt strikes between.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "NOP")]
    found = set()
    for first, *rest in zip(steps, steps[1:], steps[2:], strict=False):
        if all(step.opname == "LOAD_CONST" and step.argval is None for step in (first, *rest)):
            found.add(first.offset)
    return frozenset(found)


class Tracer:
    """Raises KeyboardInterrupt at the `n`-th line that is executed in our own modules."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if "/tests/" in name or not any(part in name for part in OURS):
            return None
        if event == "line" and self.left > 0 and frame.f_lasti not in exits(frame.f_code):
            self.left -= 1
            if self.left == 0:
                self.where = f"{name.rsplit('/', 2)[-2:]}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def interrupted(n: int, call: Callable[[], Any]) -> tuple[bool, str]:
    """(did the call return, where was it interrupted)."""
    tracer = Tracer(n)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    except KeyboardInterrupt:
        return False, tracer.where
    finally:
        sys.settrace(before)
    return True, tracer.where


def put(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put("A", b"new")


def put_many(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.put_many("A", [b"new", b"new too"])


def get(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.get("A")


def unit_put(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.put("A", b"new")


def unit_get(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.get("A")


def commit(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.commit()


def backout(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.backout()


def prepare(world: World, unit: qmgr.UnitOfWork) -> None:
    unit.prepare()


def with_block(world: World, unit: qmgr.UnitOfWork) -> None:
    with world.qm.begin() as own:
        own.get("A")
        own.put("B", b"moved")


def checkpoint(world: World, unit: qmgr.UnitOfWork) -> None:
    world.qm.checkpoint()


OLD = [b"old 1", b"old 2"]
Contents = tuple[list[bytes], list[bytes]]

# call -> (A and B before it, as others see them; after it)
CALLS: dict[Callable[[World, qmgr.UnitOfWork], None], tuple[Contents, Contents]] = {
    put: ((OLD, []), ([*OLD, b"new"], [])),
    put_many: ((OLD, []), ([*OLD, b"new", b"new too"], [])),
    get: ((OLD, []), (OLD[1:], [])),
    unit_put: ((OLD, []), (OLD, [])),
    unit_get: ((OLD, []), (OLD, [])),
    commit: ((OLD, []), (OLD, [b"mine"])),
    backout: ((OLD, []), (OLD, [])),
    prepare: ((OLD, []), (OLD, [])),
    with_block: ((OLD, []), (OLD[1:], [b"moved"])),
    checkpoint: ((OLD, []), (OLD, [])),
}


def made() -> World:
    world = World()
    for name in ("A", "B"):
        world.qm.define_queue(name)
    for body in OLD:
        world.qm.put("A", body)
    world.qm.end()
    return world


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_row_65_an_interrupt_at_every_line_leaves_no_lock_and_no_half(call: Callable[[World, qmgr.UnitOfWork], None]) -> None:
    base = made()
    before, after = CALLS[call]
    n = stopped = 0
    while True:
        n += 1
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        world.start()
        unit = world.qm.begin(qmgr.Xid(1, b"x", b""))
        unit.put("B", b"mine")
        returned, where = interrupted(n, lambda: call(world, unit))  # noqa: B023
        if returned and not where:
            break  # every line of the call has had its turn
        what = f"{call.__name__} interrupted at line {n}: {where}"
        expected = [after] if returned else [before, after]
        live: Contents | None
        try:
            live = soon(lambda: (bodies(world.qm, "A"), bodies(world.qm, "B")))  # noqa: B023
            soon(lambda: world.qm.put("B", b"next"))  # noqa: B023
        except qmgr.Unavailable as exc:
            assert "start it again" in str(exc), what
            live = None
            stopped += 1
        acknowledged_next = live is not None
        if live is not None:
            assert live in expected, what
        world.crash(LOSE_ALL)
        found = bodies(world.qm, "A"), bodies(world.qm, "B")
        if acknowledged_next:
            assert found[1].count(b"next") == 1, what
            found[1].remove(b"next")
        assert found in expected, what
        if live is not None:
            assert found == live, what
        world.qm.put("A", b"goes on")
    assert n > 20, "the call has lines"


def test_row_65_an_interrupt_while_starting_lets_the_next_start_in() -> None:
    base = made()
    n = 0
    while True:
        n += 7  # a start has thousands of lines
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        returned, where = interrupted(n, world.start)
        if returned and not where:
            break
        if not returned:
            soon(world.start)
        assert bodies(world.qm, "A") == OLD, f"start of {NAME} interrupted at line {n}: {where}"
        soon(world.qm.end)
        soon(world.start)
        assert bodies(world.qm, "A") == OLD
    assert n > 300


def test_row_65_an_interrupt_while_ending_loses_nothing() -> None:
    base = made()
    n = 0
    while True:
        n += 3
        world = World.__new__(World)
        world.disk, world.clock = base.disk.snapshot(), base.clock
        world.start()
        world.qm.put("B", b"mine")
        returned, where = interrupted(n, world.qm.end)
        if returned and not where:
            break
        soon(world.qm.end)
        soon(world.start)
        assert (bodies(world.qm, "A"), bodies(world.qm, "B")) == (OLD, [b"mine"]), f"line {n}: {where}"
    assert n > 100
