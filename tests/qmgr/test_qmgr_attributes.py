"""Attributes of the queue manager: MAXUMSGS, MAXMSGL and the others, over restarts."""

from typing import Any

import pytest

import qmgr
from qmgr.authority import Grant
from qmgr.errors import MessageTooBig, Mistake, Reason, SyncpointLimit
from tests.qmgr.world import World


def test_maxumsgs_bounds_units_of_work_and_goes_back_to_that_of_qm_ini() -> None:
    world = World(max_uncommitted=4)
    world.qm.define_queue("A")
    world.qm.alter(max_uncommitted=2)
    for now in (world.same, world.crash):
        qm = now()
        with qm.begin() as unit:
            unit.put_many("A", [b"1", b"2"])
            with pytest.raises(SyncpointLimit) as caught:
                unit.put("A", b"3")
            assert caught.value.reason == Reason.SYNCPOINT_LIMIT_REACHED
            unit.backout()
    world.qm.alter(max_uncommitted=None)
    with world.qm.begin() as unit:
        unit.put_many("A", [b"1", b"2", b"3", b"4"])
        with pytest.raises(SyncpointLimit):
            unit.get("A")


def test_maxmsgl_of_the_queue_manager_is_2031_and_that_of_the_queue_2030() -> None:
    world = World()
    world.qm.define_queue("A", max_message_length=50_000)
    world.qm.alter(max_message_length=40_000)
    world.qm.define_queue("B", max_message_length=50_000)
    for now in (world.same, world.crash):
        qm = now()
        for queue in ("A", "B"):
            for target in (qm, qm.begin()):
                with pytest.raises(MessageTooBig, match=r"40000.*queue manager takes") as caught:
                    target.put(queue, bytes(40_001))
                assert caught.value.reason == Reason.MSG_TOO_BIG_FOR_Q_MGR
                with pytest.raises(MessageTooBig) as caught:
                    target.put_many(queue, [b"", bytes(50_001)])
                assert caught.value.reason == Reason.MSG_TOO_BIG_FOR_Q
                target.put(queue, bytes(40_000))
    world.qm.alter(max_message_length=50_000)
    world.qm.put("A", bytes(45_000))


def test_the_queue_that_is_built_again_heeds_them_too() -> None:
    world = World(log_type="linear")
    world.qm.define_queue("A", max_message_length=50_000)
    world.qm.alter(max_message_length=40_000)
    world.qm.recreate("A")
    with pytest.raises(MessageTooBig):
        world.qm.put("A", bytes(40_001))


def test_all_attributes_outlive_a_crash_and_an_image() -> None:
    world = World(log_type="linear")
    said: dict[str, Any] = {
        "description": "the one",
        "dead_letter_queue": "DEAD",
        "max_uncommitted": 77,
        "max_handles": 5,
        "max_message_length": 99_999,
        "inhibit_events": True,
        "start_stop_events": False,
        "authority_events": True,
    }
    world.qm.alter(**said)
    world.qm.record_definitions()
    for now in (world.same, world.crash, world.restart):
        found = now().attributes
        assert {name: getattr(found, name) for name in said} == said


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("max_uncommitted", 0),
        ("max_uncommitted", True),
        ("max_handles", -1),
        ("max_message_length", 32_767),
        ("max_message_length", 104_857_601),
        ("dead_letter_queue", "no name"),
        ("performance_events", 1),
    ],
)
def test_what_can_not_be_is_refused(qm: qmgr.QueueManager, attribute: str, value: object) -> None:
    before = qm.attributes
    with pytest.raises(Mistake, match=r"allowed|can't be the name"):
        qm.alter(**{attribute: value})
    assert qm.attributes == before


def test_many_authorities_fit_into_the_image_of_all_definitions() -> None:
    world = World(log_type="linear", log_file_pages=128)
    rules = tuple(Grant(user=f"user{n}", profile=f"Q{n}.**", rights=("put", "get")) for n in range(1000))
    world.qm.alter(authorities=rules)
    for n in range(40):
        world.qm.define_queue(f"Q{n}", description="\N{GRINNING FACE}" * 64)
    world.qm.record_definitions()
    assert world.crash().attributes.authorities == rules
