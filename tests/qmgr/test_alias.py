"""Aliases: other names of queues, with puts and gets of their own to enable; nothing that crashes loses one."""

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import qmgr
from qmgr import authority, repairing
from qmgr.errors import AliasOfAlias, AlreadyExists, Inhibited, Mistake, MQError, Reason, UnknownQueue
from qmgr.migration import migrate_log
from recovery import dump
from tests.qmgr.world import DATA, NAME, Call, World, bodies, drain
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL, Loss, mixed

LOG = "/data/log/QM1"
INTO = "/then"


def reason(call: Callable[[], Any]) -> Reason:
    with pytest.raises(MQError) as caught:
        call()
    assert caught.value.name
    return caught.value.reason


def test_every_verb_takes_an_alias(world: World, qm: qmgr.QueueManager) -> None:
    alias = qm.define_alias("ALSO", "A", description="another name")
    assert (alias.name, alias.target, alias.description) == ("ALSO", "A", "another name")
    assert qm.aliases() == [alias]
    one = qm.put("ALSO", b"one")
    assert one.queue == "A"
    qm.put_many("ALSO", [b"two", b"three"])
    assert bodies(qm, "ALSO") == bodies(qm, "A") == [b"one", b"two", b"three"]
    with qm.begin() as unit:
        assert unit.get("ALSO").body == b"one"
        unit.put("ALSO", b"four")
        unit.put_many("ALSO", [b"five"])
        assert unit.get_many("ALSO", 5)[-1].queue == "A"
    assert qm.get("ALSO", message_id=next(iter(qm.browse("A"))).message_id).body == b"four"
    assert [m.body for m in qm.get_many("ALSO", 9)] == [b"five"]
    assert qm.queue("ALSO").name == "A"
    world.crash()
    assert world.qm.aliases() == [alias]


def test_a_replay_by_an_alias() -> None:
    qm = World(log_type="linear").qm
    qm.define_queue("A")
    qm.define_alias("ALSO", "A")
    qm.put("ALSO", b"one")
    assert [one.message.body for one in qm.replay("ALSO", "oldest")] == [b"one"]


def test_puts_and_gets_of_the_alias_alone_are_disabled(qm: qmgr.QueueManager) -> None:
    qm.define_alias("ALSO", "A", put_enabled=False)
    for target in (qm, qm.begin()):
        assert reason(lambda target=target: target.put("ALSO", b"")) == Reason.PUT_INHIBITED  # type: ignore[misc]
    assert reason(lambda: qm.put_many("ALSO", [b""])) == Reason.PUT_INHIBITED
    qm.put("A", b"one")
    assert qm.get("ALSO").body == b"one"
    qm.alter_alias("ALSO", put_enabled=True, get_enabled=False)
    qm.put("ALSO", b"two")
    for call in (qm.get, qm.browse):
        assert reason(lambda call=call: call("ALSO")) == Reason.GET_INHIBITED  # type: ignore[misc]
    assert reason(lambda: qm.get_many("ALSO", 2)) == Reason.GET_INHIBITED
    assert drain(qm, "A") == [b"two"]


def test_what_is_disabled_on_the_queue_is_so_by_its_alias(qm: qmgr.QueueManager) -> None:
    qm.define_alias("ALSO", "A")
    qm.alter_queue("A", put_enabled=False, get_enabled=False)
    assert reason(lambda: qm.put("ALSO", b"")) == Reason.PUT_INHIBITED
    assert reason(lambda: qm.get("ALSO")) == Reason.GET_INHIBITED


def test_a_wait_by_an_alias_ends_when_gets_by_it_are_disabled(
    real: Callable[..., qmgr.QueueManager],
) -> None:
    qm = real()
    qm.define_queue("A")
    qm.define_alias("ALSO", "A")
    for change in (
        lambda: qm.alter_alias("ALSO", get_enabled=False),
        lambda: qm.alter_alias("ALSO", target="B"),
        lambda: qm.delete_alias("ALSO"),
    ):
        waiting = Call(lambda: qm.get("ALSO", wait=None))
        while not qm._engine.state.queues["A"].waiters.line:
            waiting.join(0.01)
        change()
        with pytest.raises((Inhibited, UnknownQueue)):
            waiting.outcome()
        if qm.aliases():
            qm.alter_alias("ALSO", get_enabled=True, target="A")
    qm.put("A", b"still there")
    assert qm.get("A").body == b"still there"


def test_the_queue_need_not_be_there(qm: qmgr.QueueManager) -> None:
    qm.define_alias("ALSO", "LATER")
    calls: list[Callable[[], Any]] = [
        lambda: qm.put("ALSO", b""),
        lambda: qm.get("ALSO"),
        lambda: qm.browse("ALSO"),
        lambda: qm.queue("ALSO"),
    ]
    assert {reason(call) for call in calls} == {Reason.UNKNOWN_ALIAS_BASE_Q}
    qm.define_queue("LATER")
    qm.put("ALSO", b"now")
    qm.delete_queue("LATER", purge=True)
    assert [alias.name for alias in qm.aliases()] == ["ALSO"]
    assert {reason(call) for call in calls} == {Reason.UNKNOWN_ALIAS_BASE_Q}
    qm.define_queue("LATER")
    assert qm.queue("ALSO").depth == 0


def test_an_alias_of_an_alias_is_2001(qm: qmgr.QueueManager) -> None:
    """As with IBM MQ, when it is used: it can be defined, in any order."""
    qm.define_alias("ONE", "A")
    qm.define_alias("TWO", "ONE")
    qm.define_alias("SELF", "SELF")
    for name in ("TWO", "SELF"):
        for use in (lambda name: qm.put(name, b""), qm.get, qm.browse, qm.queue):
            with pytest.raises(AliasOfAlias, match="is an alias itself"):
                use(name)
    qm.alter_alias("TWO", target="C")
    qm.define_alias("C", "A")
    assert reason(lambda: qm.put("TWO", b"")) == Reason.ALIAS_BASE_Q_TYPE_ERROR
    assert qm.queue("A").depth == 0
    qm.alter_alias("TWO", target="A")
    qm.put("TWO", b"")
    assert qm.queue("A").depth == 1


def test_names_belong_to_queues_and_aliases_together(qm: qmgr.QueueManager) -> None:
    qm.define_alias("ALSO", "A")
    for call in (
        lambda: qm.define_alias("A", "B"),
        lambda: qm.define_alias("ALSO", "B"),
        lambda: qm.define_queue("ALSO"),
    ):
        with pytest.raises(AlreadyExists):
            call()
    for wrong in (
        lambda: qm.alter_queue("ALSO", description="x"),
        lambda: qm.delete_queue("ALSO"),
        lambda: qm.alter_alias("A", description="x"),
        lambda: qm.delete_alias("A"),
    ):
        assert reason(wrong) == Reason.Q_TYPE_ERROR
    assert reason(lambda: qm.delete_alias("NONE")) == Reason.UNKNOWN_OBJECT_NAME
    qm.delete_alias("ALSO")
    qm.define_queue("ALSO")
    assert qm.aliases() == []


@pytest.mark.parametrize(
    "attributes", [{"target": "no name"}, {"target": 7}, {"description": "x" * 65}, {"put_enabled": 1}, {"depth": 3}]
)
def test_attributes_are_checked(qm: qmgr.QueueManager, attributes: dict[str, Any]) -> None:
    qm.define_alias("ALSO", "A")
    with pytest.raises(Mistake):
        qm.alter_alias("ALSO", **attributes)
    with pytest.raises(Mistake, match="'bad name' can't be the name of an alias: use 1 to 48"):
        qm.define_alias("bad name", "A")
    assert qm.aliases()[0].target == "A"


# ---- crashes


@attrs.define
class Step:
    call: Callable[[qmgr.QueueManager], Any]
    aliases: set[tuple[str, str]]  # when it has returned


STEPS = [
    Step(lambda qm: qm.define_alias("ONE", "A"), {("ONE", "A")}),
    Step(lambda qm: qm.define_alias("TWO", "B", description="x" * 64), {("ONE", "A"), ("TWO", "B")}),
    Step(lambda qm: qm.checkpoint(), {("ONE", "A"), ("TWO", "B")}),
    Step(lambda qm: qm.alter_alias("ONE", target="B"), {("ONE", "B"), ("TWO", "B")}),
    Step(lambda qm: qm.put("ONE", b"by one"), {("ONE", "B"), ("TWO", "B")}),
    Step(lambda qm: qm.delete_alias("TWO"), {("ONE", "B")}),
    Step(lambda qm: qm.checkpoint(), {("ONE", "B")}),
    Step(lambda qm: qm.delete_queue("A"), {("ONE", "B")}),
    Step(lambda qm: qm.end(), {("ONE", "B")}),
]


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_any_crash_leaves_what_was_before_a_call_or_after_it(log_type: str) -> None:
    world = World(log_type=log_type)
    world.qm.define_queue("A")
    world.qm.define_queue("B")
    allowed: list[set[tuple[str, str]]] = [set()]
    wrong: list[str] = []
    moments = 0

    def look(kind: str, path: str) -> None:
        nonlocal moments
        moments += 1
        losses: list[Loss] = [KEEP_ALL, LOSE_ALL, mixed(moments)]
        for loss in losses:
            found = aliases_on(world.disk.snapshot(loss), world)
            if found not in allowed:
                wrong.append(f"before {kind} {path}, {loss}: {found}, allowed {allowed}")

    world.disk.before_effect = look
    for step in STEPS:
        allowed.append(step.aliases)
        step.call(world.qm)
        del allowed[:-1]
    world.disk.before_effect = None
    assert not wrong, wrong[0]
    assert moments > 15


def aliases_on(disk: SimDisk, world: World) -> set[tuple[str, str]]:
    manager = qmgr.start(NAME, data_path=DATA, disk=disk, clock=world.clock, background=False)
    return {(alias.name, alias.target) for alias in manager.aliases()}


# ---- what recovery knows of them


def test_the_image_of_all_definitions_has_them_and_an_earlier_moment_too() -> None:
    world = World(log_type="linear", log_management="Automatic")
    qm = world.qm
    qm.define_queue("A")
    for n in range(70):  # more than one piece of the image
        qm.define_alias(f"ALSO.{n}", "A", description=f"number {n}")
    qm.record_image()
    qm.delete_alias("ALSO.3")
    qm.alter_alias("ALSO.4", target="B")
    then = qm.aliases()
    tail = qm.status().log.tail
    qm.define_alias("LATER", "A")
    qm.delete_alias("ALSO.5")
    qm.end()
    made = qmgr.recover_to(NAME, INTO, lsn=tail, data_path=DATA, disk=world.disk, clock=world.clock)
    assert made.queues == 1
    with qmgr.start(NAME, data_path=INTO, disk=world.disk, clock=world.clock, background=False) as earlier:
        assert earlier.aliases() == then
        assert len(then) == 69
        earlier.put("ALSO.0", b"works")
    with world.start() as now:
        assert {alias.name for alias in now.aliases()} ^ {alias.name for alias in then} == {"LATER", "ALSO.5"}


def test_a_repair_that_makes_the_checkpoint_anew_has_them() -> None:
    world = World(log_type="linear")
    qm = world.qm
    qm.define_queue("A")
    qm.define_alias("ALSO", "A")
    qm.record_image()
    qm.define_alias("MORE", "A")
    qm.alter(description="kept too", dead_letter_queue="A")
    qm.put("MORE", b"here")
    world.disk = world.disk.crash(KEEP_ALL)
    for name in ("amqalchk.fil", "amqalchk.old"):
        path = f"{DATA}/qmgrs/{NAME}/{name}"
        data = world.disk.peek(path)
        world.disk.poke(path, data[:60] + b"????" + data[64:])
    done = repairing.repair(NAME, data_path=DATA, disk=world.disk, clock=world.clock)
    assert done.saved
    with world.start() as again:
        assert [alias.name for alias in again.aliases()] == ["ALSO", "MORE"]
        assert (again.attributes.description, again.attributes.dead_letter_queue) == ("kept too", "A")
        assert bodies(again, "ALSO") == [b"here"]


def test_migrations_keep_them() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.define_alias("ALSO", "A")
    world.qm.put("ALSO", b"here")
    for log_type in ("linear", "circular"):
        world.qm.end()
        migrate_log(NAME, data_path=DATA, log_type=log_type, disk=world.disk)
        assert bodies(world.start(), "ALSO") == [b"here"]


def test_a_queue_is_built_again_under_its_alias() -> None:
    world = World(log_type="linear")
    qm = world.qm
    qm.define_queue("A")
    qm.define_alias("ALSO", "A")
    qm.put("ALSO", b"here")
    qm.recreate("A")
    assert qm.get("ALSO").body == b"here"
    assert reason(lambda: qm.recreate("ALSO")) == Reason.Q_TYPE_ERROR
    assert reason(lambda: qm.record_image("ALSO")) == Reason.Q_TYPE_ERROR


def test_the_dump_tells_of_them(world: World, qm: qmgr.QueueManager) -> None:
    qm.define_alias("ALSO", "A")
    qm.delete_alias("ALSO")
    found = {record.type_name: record for record in dump.dump(world.disk, LOG)}
    assert found["AOC Create Alias (520)"].details["definition"]["target"] == "A"
    assert json.loads(found["AOC Delete Alias (521)"].json())["alias"] == "ALSO"


def test_checkpoints_of_earlier_versions_are_read(world: World, qm: qmgr.QueueManager) -> None:
    """Their definitions lack attributes, and what was possible stays so."""
    old = {"image_schedule": "MANUAL", "image_interval": 60, "image_recover_queues": True}
    assert qmgr.objects.read_qmgr(old).max_message_length == qmgr.objects.MAX_MESSAGE_LENGTH
    fields = json.loads(qmgr.objects.QueueDefinition(name="A", id=1).encode())
    for name in ("depth_max_event", "depth_high_event", "depth_low_event"):
        del fields[name]
    assert qmgr.objects.decode_definition(json.dumps(fields).encode()) == qmgr.objects.QueueDefinition(name="A", id=1)


def test_a_put_by_an_alias_takes_its_defaults_and_else_those_of_the_queue(world: World, qm: qmgr.QueueManager) -> None:
    """As IBM MQ: the default of the first name on the way to the queue counts."""
    qm.alter_queue("A", default_persistence=False, default_priority=3)
    qm.define_alias("KEEPS", "A", default_persistence=True, default_priority=7)
    qm.define_alias("ALSO", "A")
    with qm.begin() as unit:
        put = [qm.put("KEEPS", b"1"), unit.put("KEEPS", b"2"), *qm.put_many("KEEPS", [b"3"])]
        put += [*unit.put_many("KEEPS", [b"4"]), qm.put("KEEPS", b"5", priority=None, persistent=None)]
        unit.send("KEEPS", b"6")
    assert [(one.persistent, one.priority) for one in put] == [(True, 7)] * 5
    assert [(one.persistent, one.priority) for one in qm.browse("A")] == [(True, 7)] * 6
    said = qm.put("KEEPS", b"said", persistent=False), qm.put("KEEPS", b"said", priority=1)
    assert [(one.persistent, one.priority) for one in said] == [(False, 7), (True, 1)]
    others = qm.put("ALSO", b"else"), qm.put("A", b"else")
    assert [(one.persistent, one.priority) for one in others] == [(False, 3)] * 2
    qm.alter_alias("KEEPS", default_persistence=None)
    assert qm.put("KEEPS", b"7").persistent is False
    world.crash()
    assert sorted(bodies(world.qm, "A")) == [b"1", b"2", b"3", b"4", b"5", b"6", b"said"]
    [also, keeps] = world.qm.aliases()
    assert (also.default_persistence, also.default_priority) == (None, None)
    assert (keeps.default_persistence, keeps.default_priority) == (None, 7)
    for wrong in ({"default_priority": 10}, {"default_persistence": "YES"}):
        with pytest.raises(Mistake, match=r"default_p.* is .*; allowed: "):
            world.qm.alter_alias("KEEPS", **wrong)


def test_an_alias_that_stands_for_nothing_yet(qm: qmgr.QueueManager) -> None:
    qm.define_alias("LATER", "")
    assert reason(lambda: qm.put("LATER", b"x")) is Reason.UNKNOWN_ALIAS_BASE_Q
    qm.alter_alias("LATER", target="A")
    assert qm.put("LATER", b"x").queue == "A"


def test_rights_on_an_alias_of_an_alias_can_be_given(qm: qmgr.QueueManager) -> None:
    """It is there, though nobody can use it yet."""
    qm.define_alias("ONE", "A")
    qm.define_alias("TWO", "ONE")
    assert authority.is_there(qm, "TWO")
    result = qm.mqsc("SET AUTHREC PROFILE(TWO) PRINCIPAL('mia') OBJTYPE(QUEUE) AUTHADD(PUT)")
    assert result.code == 0, result.text
