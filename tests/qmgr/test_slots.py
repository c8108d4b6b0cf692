"""The objects that every call touches have all their attributes in slots: none was forgotten."""

import pytest

from tests.qmgr.world import World
from tests.sim.loss import LOSE_ALL


@pytest.mark.interpreted
def test_log_queue_and_state_have_none_but_those_in_slots() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.define_alias("OF.A", "A")
    for _ in range(2):
        put = world.qm.put_many("A", [b"body"] * 20)
        with world.qm.begin() as unit:
            unit.put("A", unit.get("A").body)
        assert world.qm.get("A", message_id=put[7].message_id).body == b"body"
        assert len(world.qm.get_many("A", 5)) == 5
        world.qm.checkpoint()
        world.qm.alter(max_uncommitted=100)
        world.crash(LOSE_ALL)
    engine = world.qm._engine
    for one in (engine.log, engine.state, engine.state.queues["A"]):
        assert vars(one) == {}
