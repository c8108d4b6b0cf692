"""What recovery asks of a resource manager: the queues' Resource keeps to it, and a snapshot is of one moment."""

from qmgr.resource import Resource, StateSnapshot
from recovery.resource import ResourceManager, Snapshot
from tests.qmgr.world import World, bodies


def test_the_queues_are_a_resource_manager() -> None:
    world = World()
    state = world.qm._engine.state
    manager: ResourceManager = state
    for name in ("apply", "load", "replayed", "snapshot", "counters", "set_counters"):
        assert callable(getattr(manager, name))
    assert isinstance(state, Resource)
    with world.qm._engine.lock:
        snapshot: Snapshot = state.snapshot()
    assert isinstance(snapshot, StateSnapshot)
    with world.qm._engine.lock:
        snapshot.give_up(named=False)


def test_counters_never_go_down() -> None:
    world = World()
    state = world.qm._engine.state
    before = state.counters()
    state.set_counters(dict.fromkeys(before, 0))
    assert state.counters() == before
    state.set_counters({name: value + 5 for name, value in before.items()})
    assert state.counters() == {name: value + 5 for name, value in before.items()}


def test_a_snapshot_holds_the_moment_at_which_it_was_taken() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", b"before")
    real = world.qm._engine.state.snapshot

    def snapshot() -> StateSnapshot:
        taken = real()
        write = taken.write

        def while_work_goes_on():  # type: ignore[no-untyped-def]
            world.qm.put("A", b"during")
            world.qm.get("A")
            return write()

        taken.write = while_work_goes_on  # type: ignore[method-assign]
        return taken

    world.qm._engine.state.snapshot = snapshot  # type: ignore[method-assign]
    world.qm.checkpoint()
    assert bodies(world.qm, "A") == [b"during"]
    assert bodies(world.crash(), "A") == [b"during"]
