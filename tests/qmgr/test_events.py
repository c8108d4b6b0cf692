"""Events: messages about queues, the queue manager and its log, on the queues that are made for them."""

import gc
import json
import weakref
from typing import Any

import pytest

import qmgr
from qmgr import events
from qmgr.daemon.admission import Admission
from qmgr.errors import Inhibited, MediaNotSupported, Mistake, MQError, NotAuthorized, QueueFull, ResourceProblem
from tests.qmgr.world import World, drain
from tests.sim.loss import LOSE_ALL

PERFORMANCE, QUEUE_MANAGER, LOGGER = events.PERFORMANCE, events.QUEUE_MANAGER, events.LOGGER


def told(qm: qmgr.QueueManager, queue: str = PERFORMANCE) -> list[dict[str, Any]]:
    """The events on the queue, which is empty then."""
    return [json.loads(body) for body in drain(qm, queue)]


def reasons(qm: qmgr.QueueManager, queue: str = PERFORMANCE) -> list[int]:
    return [event["eventReason"]["value"] for event in told(qm, queue)]


@pytest.fixture
def watched(world: World) -> qmgr.QueueManager:
    """A queue of ten with marks at two and eight."""
    world.qm.alter(performance_events=True)
    world.qm.define_queue("W", max_depth=10, depth_high_event=True, depth_low_event=True)
    return world.qm


def test_high_low_and_high_again_each_told_once(watched: qmgr.QueueManager, world: World) -> None:
    qm = watched
    qm.get_many("W", 3)
    drain(qm, "W")
    for _ in range(2):
        for n in range(9):
            qm.put("W", b"%d" % n)
            if n < 7:
                assert reasons(qm) == []
        world.clock.advance(5)
        assert reasons(qm) == [2224]
        for n in range(9):
            qm.get("W")
            assert reasons(qm) == ([2225] if n == 6 else [])


def test_an_event_says_what_amqsevt_prints(watched: qmgr.QueueManager, world: World) -> None:
    qm = watched
    qm.put_many("W", [b"x"] * 8)
    [message] = qm.browse(PERFORMANCE)
    assert (message.format, message.persistent) == ("MQSTR", False)
    [event] = told(qm)
    created = event.pop("eventCreation")
    assert created["epoch"] == world.clock.wall_us() // 1_000_000
    assert created["timeStamp"].endswith("Z")
    assert event == {
        "eventSource": {"objectName": PERFORMANCE, "objectType": "Queue", "queueMgr": "QM1"},
        "eventType": {"name": "Perfm Event", "value": 45},
        "eventReason": {"name": "Queue Depth High", "value": 2224},
        "eventData": {
            "queueMgrName": "QM1",
            "baseObjectName": "W",
            "timeSinceReset": 0,
            "highQueueDepth": 8,
            "msgEnqCount": 8,
            "msgDeqCount": 0,
        },
    }
    world.clock.advance(60)
    qm.put("W", b"y")
    qm.get_many("W", 7)
    [event] = told(qm)
    data = event["eventData"]
    assert (data["timeSinceReset"], data["highQueueDepth"]) == (60, 8)
    assert (data["msgEnqCount"], data["msgDeqCount"]) == (1, 7)


@pytest.mark.parametrize("many", [False, True])
def test_events_count_what_was_put_and_got_since_the_last_one(watched: qmgr.QueueManager, many: bool) -> None:
    qm = watched

    def counts() -> list[tuple[int, int]]:
        return [(event["eventData"]["msgEnqCount"], event["eventData"]["msgDeqCount"]) for event in told(qm)]

    def put(count: int) -> None:
        if many:
            qm.put_many("W", [b"x"] * count)
        for _ in range(0 if many else count):
            qm.put("W", b"x")

    def get(count: int) -> None:
        assert sum(len(qm.get_many("W", count if many else 1)) for _ in range(1 if many else count)) == count

    put(8)
    assert counts() == [(8, 0)]
    put(2)
    with pytest.raises(QueueFull):
        qm.put("W", b"one more")
    assert counts() == [(2, 0)]
    get(8)
    assert counts() == [(0, 8)]
    put(6)
    assert counts() == [(6, 0)]
    get(6)
    assert counts() == [(0, 6)]
    put(3)
    get(3)
    put(6)
    assert counts() == [(9, 3)]
    get(6)
    assert counts() == [(0, 6)]


def test_events_count_from_the_start_where_a_queue_was_not_empty(watched: qmgr.QueueManager, world: World) -> None:
    watched.put_many("W", [b"x"] * 7)
    qm = world.restart()
    for _ in range(5):
        qm.get("W")
    qm.put_many("W", [b"x"] * 6)
    found = [event["eventData"] for event in told(qm)]
    assert [(data["msgEnqCount"], data["msgDeqCount"]) for data in found] == [(0, 5), (6, 0)]


@pytest.mark.parametrize("unit", [False, True])
def test_full_is_told_when_a_put_is_refused_and_arms_low(watched: qmgr.QueueManager, unit: bool) -> None:
    qm = watched
    qm.alter_queue("W", depth_high_event=False, depth_low_event=False)
    qm.put_many("W", [b"x"] * 10)
    assert reasons(qm) == []
    for expected in ([2053], []):
        with pytest.raises(QueueFull):
            (qm.begin() if unit else qm).put("W", b"one more")
        assert reasons(qm) == expected
    with pytest.raises(QueueFull):
        qm.put_many("W", [b"", b""])
    qm.get_many("W", 8)
    assert reasons(qm) == [2225]


def test_units_of_work_and_deliveries_count(watched: qmgr.QueueManager) -> None:
    qm = watched
    with qm.begin() as unit:
        unit.put_many("W", [b"x"] * 8)
        assert reasons(qm) == [2224]
    with qm.begin() as unit:
        for _ in range(6):
            unit.get("W")
        assert reasons(qm) == [2225]
        unit.backout()
    qm.put("W", b"x")
    assert reasons(qm) == [2224]


def test_off_is_off(world: World) -> None:
    qm = world.qm
    qm.define_queue(PERFORMANCE)
    qm.define_queue("W", max_depth=2, depth_high_event=True, depth_low_event=True)
    qm.put_many("W", [b"", b""])
    with pytest.raises(QueueFull):
        qm.put("W", b"")
    drain(qm, "W")
    assert reasons(qm) == []
    assert qm._engine.state.queues["W"].armed == 0
    qm.alter(performance_events=True)
    qm.alter_queue("W", depth_high_event=False, depth_low_event=False, depth_max_event=False)
    qm.put_many("W", [b"", b""])
    with pytest.raises(QueueFull):
        qm.put("W", b"")
    assert reasons(qm) == []


def test_what_is_armed_outlives_changes_of_other_attributes(watched: qmgr.QueueManager) -> None:
    qm = watched
    qm.put_many("W", [b"x"] * 8)
    qm.alter_queue("W", description="another")
    qm.alter(description="another")
    qm.put("W", b"x")
    assert reasons(qm) == [2224]


def test_puts_and_gets_that_are_disabled(world: World, qm: qmgr.QueueManager) -> None:
    qm.alter(inhibit_events=True)
    qm.alter_queue("A", put_enabled=False, get_enabled=False)
    qm.define_alias("ALSO", "B", put_enabled=False, get_enabled=False)
    with pytest.raises(Inhibited):
        qm.put("A", b"")
    with pytest.raises(Inhibited):
        qm.begin().put_many("A", [b""])
    with pytest.raises(Inhibited):
        qm.get("A", wait=5.0)
    with pytest.raises(Inhibited):
        qm.put("ALSO", b"")
    with pytest.raises(Inhibited):
        qm.get("ALSO")
    found = told(qm, QUEUE_MANAGER)
    assert [one["eventReason"]["value"] for one in found] == [2051, 2051, 2016, 2051, 2016]
    assert [one["eventData"]["queueName"] for one in found] == ["A", "A", "A", "ALSO", "ALSO"]
    assert found[0]["eventType"] == {"name": "Queue Mgr Event", "value": 44}


def test_start_and_end_are_told_where_there_is_the_queue(world: World) -> None:
    world.restart()
    assert QUEUE_MANAGER not in {queue.name for queue in world.qm.queues()}
    world.qm.alter(start_stop_events=True)
    world.qm.end()
    found = told(world.start(), QUEUE_MANAGER)
    assert [one["eventReason"]["value"] for one in found] == [2223, 2222]
    assert found[0]["eventData"]["reasonQualifier"] == "Queue Mgr Quiescing"
    found = told(world.restart(), QUEUE_MANAGER)
    assert found[0]["eventData"]["reasonQualifier"] == "Queue Mgr Stopping"
    assert reasons(world.crash(LOSE_ALL), QUEUE_MANAGER) == [2222]
    world.qm.alter(start_stop_events=False)
    assert reasons(world.restart(), QUEUE_MANAGER) == []


def test_extents_of_a_linear_log() -> None:
    world = World(log_type="linear", log_management="Automatic")
    qm = world.qm
    qm.define_queue("A")
    qm.alter(logger_events=True)
    [first] = told(qm, LOGGER)
    assert first["eventReason"] == {"name": "Logger Status", "value": 2411}
    assert first["eventData"] == {
        "queueMgrName": "QM1",
        "currentLogExtentName": "S0000000.LOG",
        "restartLogExtentName": "S0000000.LOG",
        "mediaLogExtentName": "S0000000.LOG",
        "logPath": "/data/log/QM1/active/",
    }
    for _ in range(14):
        qm.put("A", bytes(30_000))
    assert "S0000001.LOG" in currents(qm)
    drain(qm, "A")
    qm.record_image()
    qm.put("A", b"")
    last = told(qm, LOGGER)[-1]["eventData"]
    assert last["mediaLogExtentName"] > "S0000000.LOG" and last["restartLogExtentName"] > "S0000000.LOG"


def test_with_archiving_the_oldest_extent_that_waits_for_it_is_told() -> None:
    qm = World(log_type="linear", log_management="Archive", log_primary_files=10).qm
    qm.define_queue("A")
    qm.alter(logger_events=True)
    qm.put("A", bytes(900_000))
    assert {one["eventData"]["archiveLogExtentName"] for one in told(qm, LOGGER)} == {""}  # a restart needs all
    drain(qm, "A")
    qm.checkpoint()
    qm.put("A", bytes(300_000))
    assert told(qm, LOGGER)[-1]["eventData"]["archiveLogExtentName"] == "S0000000.LOG"
    qm.note_archived("S0000001.LOG", all_before=True)
    qm.put("A", bytes(300_000))
    assert told(qm, LOGGER)[-1]["eventData"]["archiveLogExtentName"] == "S0000002.LOG"


def currents(qm: qmgr.QueueManager) -> list[str]:
    return [one["eventData"]["currentLogExtentName"] for one in told(qm, LOGGER)]


def test_each_extent_is_told_where_a_call_fills_several() -> None:
    qm = World(log_type="linear", log_management="Automatic", log_primary_files=10).qm
    qm.define_queue("A")
    qm.alter(logger_events=True)
    assert currents(qm) == ["S0000000.LOG"]
    qm.put("A", bytes(900_000))
    assert currents(qm) == ["S0000001.LOG", "S0000002.LOG", "S0000003.LOG"]
    qm.alter(logger_events=False)
    qm.put("A", bytes(600_000))
    qm.alter(logger_events=True)
    assert len(currents(qm)) == 1  # those that were filled while nobody wanted to hear of them are not told later


def test_an_extent_is_current_once_those_before_it_are_whole() -> None:
    """Whoever hears of it copies those: the end of what a unit of work has filled may wait in the log buffer."""
    qm = World(log_type="linear", log_management="Archive", log_buffer_pages=512).qm
    qm.define_queue("A")
    qm.alter(logger_events=True)
    assert currents(qm) == ["S0000000.LOG"]
    unit = qm.begin()
    while qm._log.buffer.tail <= 2 * qm._log.state.extent_bytes:
        unit.put("A", bytes(9000))
    assert currents(qm) == []
    unit.commit()
    assert currents(qm) == ["S0000001.LOG"]


def test_logger_events_need_a_linear_log(qm: qmgr.QueueManager) -> None:
    with pytest.raises(MediaNotSupported, match="AMQ8518E"):
        qm.alter(logger_events=True)
    assert LOGGER not in {queue.name for queue in qm.queues()}


def test_what_is_refused_defines_no_queue(qm: qmgr.QueueManager) -> None:
    with pytest.raises(Mistake):
        qm.alter(performance_events=True, max_handles=-1)
    assert PERFORMANCE not in {queue.name for queue in qm.queues()}


def test_somebody_who_may_not(qm: qmgr.QueueManager) -> None:
    qm.not_authorized("eve", "put", "A")
    qm.alter(authority_events=True)
    qm.not_authorized("eve", "put", "A")
    [event] = told(qm, QUEUE_MANAGER)
    assert event["eventReason"]["value"] == 2035
    assert event["eventData"] | {"queueMgrName": ""} == {
        "queueMgrName": "",
        "userIdentifier": "eve",
        "verb": "put",
        "objectName": "A",
    }


@pytest.mark.parametrize(
    "attributes",
    [{"max_depth": 0}, {"put_enabled": False}, {"max_message_length": 5}],
    ids=["full", "disabled", "short"],
)
def test_an_event_that_can_not_be_put_costs_nobody_anything(
    watched: qmgr.QueueManager, attributes: dict[str, Any]
) -> None:
    """Nor are there events of that: not about the queues that events go to."""
    qm = watched
    qm.alter(inhibit_events=True)
    for queue in (PERFORMANCE, QUEUE_MANAGER):
        qm.alter_queue(queue, depth_high_event=True, depth_low_event=True, **attributes)
    qm.put_many("W", [b"x"] * 8)
    qm.put_many("W", [b"x"] * 2)
    with pytest.raises(QueueFull):
        qm.put("W", b"")
    qm.alter_queue("W", put_enabled=False)
    with pytest.raises(Inhibited):
        qm.put("W", b"")
    assert len(drain(qm, "W")) == 10
    with pytest.raises(MQError):
        qm.put(PERFORMANCE, bytes(10))
    assert qm.queue(PERFORMANCE).depth == qm.queue(QUEUE_MANAGER).depth == 0


def test_the_queue_of_the_events_may_be_gone(watched: qmgr.QueueManager) -> None:
    watched.delete_queue(PERFORMANCE)
    watched.put_many("W", [b"x"] * 8)
    watched.define_queue(PERFORMANCE)
    drain(watched, "W")
    assert reasons(watched) == [2225]


def test_persistent_events_are_logged_and_outlive_a_crash(world: World, watched: qmgr.QueueManager) -> None:
    watched.alter_queue(PERFORMANCE, default_persistence=True)
    watched.put_many("W", [b"x"] * 10)
    with pytest.raises(QueueFull):
        watched.put("W", b"")
    watched.put("A", b"forces all before it")
    assert reasons(world.crash(LOSE_ALL)) == [2224, 2053]


def test_a_log_without_room_drops_persistent_events_and_the_call_goes_on(
    world: World, watched: qmgr.QueueManager
) -> None:
    watched.alter_queue(PERFORMANCE, default_persistence=True)
    with pytest.raises(ResourceProblem):
        for n in range(100):
            unit = watched.begin(qmgr.Xid(1, b"%d" % n, b""))
            unit.put("A", bytes(30_000))
            unit.prepare()
    watched.put_many("W", [b"x"] * 8, persistent=False)
    with pytest.raises(QueueFull):
        watched.put_many("W", [b"x"] * 8, persistent=False)
    assert watched.queue("W").depth == 8


def test_what_the_rights_of_a_user_refuse_is_told(world: World, qm: qmgr.QueueManager) -> None:
    qm.alter(authority_events=True)
    rights = Admission(qm, world.disk, qm._location, qm.say).rights("eve")
    with pytest.raises(NotAuthorized):
        rights.require("get", "A")
    [event] = told(qm, QUEUE_MANAGER)
    assert (event["eventData"]["userIdentifier"], event["eventData"]["verb"]) == ("eve", "get")
    assert "AMQ8077W" in world.errors()


@pytest.mark.interpreted
def test_nothing_is_remembered_of_queues_that_were_deleted(world: World) -> None:
    """An application may define and delete one for each answer that it waits for, for years."""
    world.qm.alter(performance_events=True)
    engine = world.qm._engine
    for _ in range(5):
        world.qm.define_queue("W", max_depth=2, depth_high_event=True, backout_threshold=1)
        world.qm.put_many("W", [b"", b""])
        unit = world.qm.begin()
        unit.get("W")
        unit.backout()
        world.qm.get("W", backout_requeue=True)
        queue = engine.state.queues["W"]
        assert queue.last_event is not None
        assert queue.stuck is not None
        is_there = weakref.ref(queue)
        del queue
        world.qm.delete_queue("W", purge=True)
        world.qm.checkpoint()
        gc.collect()
        assert is_there() is None
