"""How a queue manager stands that nobody runs: the same as it said itself, as far as its files know."""

import json
from typing import Any

import pytest

import qmgr
from logger.disk import PAGE
from logger.errors import LogDamaged
from logger.extent import DATA as DATA_AT
from qmgr import Xid, locations, qmstatus, stopped
from recovery import checkpoint
from tests.qmgr.world import DATA, NAME, World
from tests.sim.loss import KEEP_ALL

WHERE = locations.find(NAME, DATA)
SAME = ("head", "tail", "checkpoint", "used", "capacity", "files", "file_numbers", "epoch", "floor", "soft", "limit")


def look(world: World) -> dict[str, Any]:
    opened = world.disk.open_files
    found = stopped.picture(world.disk, world.clock, WHERE)
    assert world.disk.open_files == opened, "`qm space --watch` looks again and again"
    return found


def own(world: World) -> dict[str, Any]:
    """What it says itself, as it would publish it."""
    return world.qm.picture()


def crash(world: World) -> None:
    world.disk = world.disk.crash(KEEP_ALL)


def test_after_an_end_in_order_all_is_known(world: World) -> None:
    world.qm.put_many("A", [b"x"] * 5)
    world.qm.get_many("A", 2)
    world.qm.end()
    found = look(world)
    assert (found["state"], found["process"], found["messages"], found["records"]) == ("ended", "", 3, 0)
    assert {one["name"]: one["depth"] for one in found["objects"]} == {"A": 3, "B": 0}
    assert (found["transactions"], found["holder"]) == ([], None)
    assert qmstatus.fields(found)["STATUS"] == "ENDED NORMALLY"
    log = found["log"]
    assert log["checkpoint"] < log["tail"] == log["durable"]
    assert log["extents"][0]["time"] > 0
    assert world.start().status().messages == 3  # and nothing was changed


def test_with_an_older_checkpoint_it_is_not_known_how_many_messages_there_are(world: World) -> None:
    """The newest one is not whole, and the one before knows nothing of what came behind it: a start replays that."""
    world.qm.put_many("A", [b"x"] * 5)
    world.qm.checkpoint()
    world.qm.put_many("A", [b"x"] * 3)
    world.qm.end()
    path = f"{WHERE.data_dir}/{checkpoint.NAME}"
    world.disk.poke(path, world.disk.peek(path)[:-1] + b"?")
    found = look(world)
    assert (found["state"], found["messages"], {one["depth"] for one in found["objects"]}) == ("ended", None, {None})
    assert world.start().status().messages == 8


def test_after_a_crash_it_is_what_the_owner_would_have_said(world: World) -> None:
    for _ in range(3):
        world.qm.put_many("A", [bytes(2000)] * 40)
        world.qm.checkpoint()
    held = world.qm.begin(Xid(1, b"held", b""))
    held.put("A", b"first")
    held.prepare()
    flying = world.qm.begin()
    flying.put_many("A", [bytes(1000)] * 100)
    world.qm.put("B", b"")
    before = json.loads(json.dumps(own(world)))
    crash(world)
    found = json.loads(json.dumps(look(world)))
    assert found["state"] == "stopped"
    for name in SAME:
        assert found["log"][name] == before["log"][name], name
    assert found["log"]["extents"] == before["log"]["extents"]
    for name in ("name", "records", "units_of_work", "in_doubt", "queues", "data_dir"):
        assert found[name] == before[name], name
    for ours, theirs in zip(found["transactions"], before["transactions"], strict=True):
        for name in ("number", "state", "xid", "log_started", "first_lsn"):
            assert ours[name] == theirs[name]
    assert found["holder"]["number"] == held.id
    assert {one["depth"] for one in found["objects"]} == {None}
    shown, theirs = qmstatus.fields(found), qmstatus.fields(before)
    differ = {name for name in shown if shown[name] != theirs[name]}
    assert differ <= {"STATUS", "STARTDA", "STARTTI", "CHKPTCNT", "LOGUTIL"}


def test_a_unit_that_was_rolled_forward_holds_the_log_from_there(world: World) -> None:
    unit = world.qm.begin(Xid(1, b"x", b""))
    unit.put("A", b"old")
    unit.prepare()
    first = world.qm.transactions()[0].first_lsn
    while world.qm.transactions()[0].first_lsn == first:
        world.qm.put("B", bytes(4000))
        world.qm.get("B")
    before = own(world)
    crash(world)
    found = look(world)
    assert found["holder"]["first_lsn"] == before["holder"]["first_lsn"] > first
    assert found["holder"]["xid"] == {"format_id": 1, "gtrid": "78", "bqual": ""}


def test_without_checkpoint_files_the_log_says_the_rest(world: World) -> None:
    world.qm.end()
    for name in ("amqalchk.fil", "amqalchk.old"):
        world.disk.remove(f"{WHERE.data_dir}/{name}")
    found = look(world)
    assert (found["objects"], found["state"]) == ([], "ended")


def test_a_segment_table_that_is_damaged_hides_nothing_else(world: World) -> None:
    world.qm.put("A", b"")
    world.qm.end()
    path = f"{WHERE.data_dir}/queues"
    for segment in [one for one in world.disk.files() if one.startswith(path)]:
        world.disk.remove(segment)
    assert look(world)["messages"] == 1  # only a start looks into them
    world.start()
    world.qm.end()
    damaged = {one["name"]: one["damaged"] for one in look(world)["objects"]}
    assert damaged["A"] != ""
    assert damaged["B"] == ""


def test_a_damaged_log_is_an_error_that_names_it(world: World) -> None:
    world.qm.checkpoint()
    head = world.qm.status().log.head
    for _ in range(4):
        world.qm.put("A", bytes(8000))
    crash(world)
    path = f"/data/log/{NAME}/active/S0000000.LOG"
    data = bytearray(world.disk.peek(path))
    data[DATA_AT + head % (64 * PAGE) + 2 * PAGE] ^= 1
    world.disk.poke(path, bytes(data))
    with pytest.raises(LogDamaged, match=r"S0000000\.LOG"):
        look(world)


def test_looking_changes_nothing(world: World) -> None:
    world.qm.put("A", b"")
    crash(world)
    effects = world.disk.effects
    look(world)
    assert world.disk.effects == effects
    assert isinstance(world.start(), qmgr.QueueManager)


def test_a_linear_log_is_shown_with_what_media_recovery_needs() -> None:
    world = World(log_type="linear")
    world.qm.define_queue("A")
    for _ in range(8):
        world.qm.put_many("A", [bytes(1000)] * 100)
        world.qm.get_many("A", 100)
        world.qm.checkpoint()
    world.qm.put("A", b"")  # which forces the end of the last checkpoint
    before = json.loads(json.dumps(own(world)))
    classes = [one["class"] for one in before["log"]["extents"]]
    assert classes == sorted(classes, key=["superfluous", "inactive", "active", "ready"].index)
    assert "inactive" in classes
    assert before["log"]["media"] == world.qm._engine.state.media_lsn() < before["log"]["head"]
    crash(world)
    found = json.loads(json.dumps(look(world)))
    assert (
        found["log"]["media_bytes"] >= before["log"]["media_bytes"]
    )  # which leaves out what the checkpoint before needs
    for name in ("media", "reuse_bytes", "head", "tail", "used", "capacity", "file_numbers"):
        assert found["log"][name] == before["log"][name], name
    for one in (found, before):  # the control file need not have heard of extents that were made ahead
        one["log"]["extents"] = [each for each in one["log"]["extents"] if each["class"] != "ready"]
    assert found["log"]["extents"] == before["log"]["extents"]
    shown = qmstatus.fields(found)
    assert (shown["MEDIALOG"], shown["LOGTYPE"], shown["REUSESZ"]) == ("S0000000.LOG", "LINEAR", "0")
    assert shown["RECLOG"] > shown["MEDIALOG"]
