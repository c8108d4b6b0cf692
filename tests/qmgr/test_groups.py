"""Message groups: numbered messages that one consumer takes in their order, whole."""

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr import finding
from qmgr import message as m
from qmgr.errors import Mistake, MQError, NoMessageAvailable, Reason
from qmgr.message import Message
from tests.qmgr.world import Call, World, bodies
from tests.sim.loss import KEEP_ALL

G, H = b"G".ljust(24, b"\0"), b"H".ljust(24, b"\0")


def group(qm: Any, name: str, *numbers: int, last: bool = True, **options: Any) -> None:
    """Put messages of a group, in this order; the highest number is the last, if `last`."""
    for number in numbers:
        qm.put(
            "A",
            f"{name}{number}".encode(),
            group_id=name.encode(),
            group_sequence=number,
            last_in_group=last and number == max(numbers),
            **options,
        )


def take(unit: Any, **options: Any) -> list[str]:
    """What a unit of work gets in logical order, one by one."""
    found = []
    while True:
        try:
            found.append(unit.get("A", **{"logical_order": True, **options}).body.decode())
        except NoMessageAvailable:
            return found


# ---- the encoding


@given(
    group_id=st.binary(min_size=1, max_size=24).filter(lambda one: one.strip(b"\0") != b""),
    number=st.integers(1, m.MAX_GROUP),
    last=st.booleans(),
    properties=st.dictionaries(st.text("abc", min_size=1), st.integers(0, 9)),
    body=st.binary(max_size=40),
)
def test_a_message_says_its_group(
    group_id: bytes, number: int, last: bool, properties: dict[str, Any], body: bytes
) -> None:
    told = m.check_group(group_id, number, last)
    head = m.describe(3, True, form="MQSTR", reply_to="R", properties=properties, group=told).head(bytes(24), 0)
    for message in (Message(body, head, "Q"), Message(body, m.with_format(head, ""), "Q")):
        assert (message.group_id, message.group_sequence) == (group_id.ljust(24, b"\0"), number)
        assert (message.last_in_group, message.properties, message.reply_to) == (last, properties, "R")
    assert m.group_of(head + body) == group_id.ljust(24, b"\0")
    assert "group_sequence" in repr(message)


def test_messages_of_earlier_versions_are_in_no_group() -> None:
    head = m.describe(0, True, properties={"a": 1}).head(bytes(24), 0)
    assert head[12:16] == bytes(4)  # what was reserved
    message = Message(b"", head, "Q")
    assert (message.group_id, message.group_sequence, message.last_in_group) == (None, 0, False)
    assert m.group_of(head) == b""
    assert "group" not in repr(message)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group_id": b""}, Reason.GROUP_ID_ERROR),
        ({"group_id": bytes(24)}, Reason.GROUP_ID_ERROR),
        ({"group_id": b"x" * 25}, Reason.GROUP_ID_ERROR),
        ({"group_id": "G"}, Reason.GROUP_ID_ERROR),
        ({"group_sequence": 1}, Reason.GROUP_ID_ERROR),
        ({"last_in_group": True}, Reason.GROUP_ID_ERROR),
        ({"group_id": G, "group_sequence": 0}, Reason.MSG_SEQ_NUMBER_ERROR),
        ({"group_id": G, "group_sequence": 1_000_000_000}, Reason.MSG_SEQ_NUMBER_ERROR),
        ({"group_id": G, "group_sequence": True}, Reason.MSG_SEQ_NUMBER_ERROR),
        ({"group_id": G, "last_in_group": 1}, Reason.MSG_FLAGS_ERROR),
        ({"last_in_group": 0}, Reason.MSG_FLAGS_ERROR),
    ],
)
def test_what_a_put_can_not_say(qm: qmgr.QueueManager, options: dict[str, Any], reason: Reason) -> None:
    for put in (lambda: qm.put("A", b"", **options), lambda: qm.put_many("A", [b"", b""], **options)):
        with pytest.raises(MQError) as caught:
            put()
        assert caught.value.reason == reason
    assert qm.queue("A").depth == 0


def test_what_a_get_can_not_ask_for(qm: qmgr.QueueManager) -> None:
    with pytest.raises(Mistake) as caught:
        qm.get("A", logical_order=True)
    assert caught.value.reason == Reason.INCONSISTENT_UOW
    with qm.begin() as unit:
        for options in (
            {"logical_order": True, "message_id": b"x"},
            {"all_available": True, "correlation_id": b"x"},
            {"logical_order": True, "backout_requeue": True},
            {"logical_order": 1},
            {"group_id": b""},
        ):
            with pytest.raises(Mistake):
                unit.get("A", **options)
            with pytest.raises(Mistake):
                unit.get_many("A", 2, **options)


# ---- getting


def test_a_group_comes_in_its_order_whatever_the_order_of_its_puts(qm: qmgr.QueueManager) -> None:
    group(qm, "G", 3, 1, 4, 2)
    with qm.begin() as unit:
        assert take(unit) == ["G1", "G2", "G3", "G4"]


def test_a_group_in_one_call(world: World, qm: qmgr.QueueManager) -> None:
    put = qm.put_many("A", [b"G1", b"G2", b"G3"], group_id=b"G", last_in_group=True)
    assert [(one.group_sequence, one.last_in_group) for one in put] == [(1, False), (2, False), (3, True)]
    qm.put_many("A", [b"H5", b"H6"], group_id=b"H", group_sequence=5)
    qm = world.crash()
    seen = [(one.group_id, one.group_sequence, one.last_in_group) for one in qm.browse("A")]
    assert seen == [(G, 1, False), (G, 2, False), (G, 3, True), (H, 5, False), (H, 6, False)]


def test_groups_that_were_put_together_come_one_after_the_other(qm: qmgr.QueueManager) -> None:
    for number in (1, 2, 3):
        group(qm, "G", number, last=False)
        group(qm, "H", number, last=False)
        qm.put("A", b"single %d" % number)
    group(qm, "H", 4)
    group(qm, "G", 4)
    with qm.begin() as unit:
        assert take(unit) == [
            *("G1", "G2", "G3", "G4", "H1", "H2", "H3", "H4"),
            *("single 1", "single 2", "single 3"),
        ]


def test_two_consumers_never_share_a_group_and_a_backout_gives_it_back_whole(qm: qmgr.QueueManager) -> None:
    group(qm, "G", 1, 2, 3)
    group(qm, "H", 1, 2)
    one, two, three = qm.begin(), qm.begin(), qm.begin()
    assert one.get("A", logical_order=True).body == b"G1"
    assert two.get("A", logical_order=True).body == b"H1"
    assert take(three) == []
    assert one.get("A", logical_order=True).body == b"G2"
    one.backout()
    assert take(three) == ["G1", "G2", "G3"]
    assert take(two) == ["H2"]
    two.commit()
    three.commit()
    assert qm.queue("A").depth == 0


def test_a_group_waits_for_its_next_message(real: Callable[..., qmgr.QueueManager]) -> None:
    qm = real()
    qm.define_queue("A")
    group(qm, "G", 1, last=False)
    qm.put("A", b"another")
    with qm.begin() as unit:
        assert unit.get("A", logical_order=True).body == b"G1"
        with pytest.raises(NoMessageAvailable):
            unit.get("A", logical_order=True)
        waiting = Call(lambda: unit.get("A", logical_order=True, wait=20.0).body)
        while not qm._engine.state.queues["A"].waiters.line:
            waiting.join(0.01)
        qm.put("A", b"yet another")
        group(qm, "G", 2)
        assert waiting.outcome() == b"G2"
        assert unit.get("A", logical_order=True).body == b"another"


def test_batches_in_logical_order(qm: qmgr.QueueManager) -> None:
    group(qm, "G", 2, 1, 3)
    group(qm, "H", 2, 1)
    with qm.begin() as unit:
        assert [one.body for one in unit.get_many("A", 2, logical_order=True)] == [b"G1", b"G2"]
        assert [one.body for one in unit.get_many("A", 9, logical_order=True)] == [b"G3", b"H1", b"H2"]


def test_only_groups_that_are_there_whole(qm: qmgr.QueueManager) -> None:
    group(qm, "G", 1, 3)
    group(qm, "H", 2, 1, last=False)
    with qm.begin() as putter:
        group(putter, "I", 1, 2)
        with qm.begin() as unit:
            assert take(unit, all_available=True) == []
        group(qm, "H", 3)
        with qm.begin() as unit:
            assert unit.get("A", all_available=True).body == b"H1"
            assert take(unit, all_available=True) == ["H2", "H3"]
    with qm.begin() as unit:
        assert [one.body for one in unit.get_many("A", 9, all_available=True)] == [b"I1", b"I2"]
        group(qm, "G", 2, last=False)
        assert take(unit, all_available=True) == ["G1", "G2", "G3"]


def test_a_group_whose_end_has_a_high_number_takes_no_more_memory_than_another(qm: qmgr.QueueManager) -> None:
    """Two messages said that a billion are missing, and as many numbers were made to see it."""
    qm.put("A", b"first", group_id=b"G")
    qm.put("A", b"last", group_id=b"G", group_sequence=100_000, last_in_group=True)
    tracemalloc.start()
    try:
        with qm.begin() as unit, pytest.raises(NoMessageAvailable):
            unit.get("A", group_id=b"G", all_available=True)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_messages_of_one_group(qm: qmgr.QueueManager) -> None:
    group(qm, "G", 2, 1)
    group(qm, "H", 2, 1)
    assert qm.get("A", group_id=b"H").body == b"H2"
    with qm.begin() as unit:
        assert take(unit, group_id=b"G") == ["G1", "G2"]
        assert take(unit, group_id=b"NONE") == []
    assert [one.body for one in qm.get_many("A", 9, group_id=b"H")] == [b"H1"]


def test_by_group_and_another_id(qm: qmgr.QueueManager) -> None:
    for number in (1, 2):
        qm.put("A", b"%d" % number, group_id=b"G", group_sequence=number, correlation_id=b"%d" % number)
    qm.put("A", b"other", correlation_id=b"2")
    assert qm.get("A", group_id=b"G", correlation_id=b"2").body == b"2"
    [other] = [one.message_id for one in qm.browse("A") if one.body == b"other"]
    with pytest.raises(NoMessageAvailable):
        qm.get("A", group_id=b"G", message_id=other)


def test_priority_decides_between_groups_and_not_within(qm: qmgr.QueueManager) -> None:
    group(qm, "G", 1, last=False, priority=1)
    group(qm, "H", 1, last=False, priority=5)
    group(qm, "G", 2, priority=9)
    group(qm, "H", 2, priority=0)
    with qm.begin() as unit:
        assert take(unit) == ["H1", "H2", "G1", "G2"]


def test_a_message_whose_time_is_over_is_missing(world: World, qm: qmgr.QueueManager) -> None:
    group(qm, "G", 1, last=False)
    group(qm, "G", 2, expiry=10.0)
    world.clock.advance(20)
    with qm.begin() as unit:
        assert take(unit, all_available=True) == []
    with qm.begin() as unit:
        assert take(unit) == ["G1"]


def test_over_a_crash_and_in_doubt(world: World, qm: qmgr.QueueManager) -> None:
    group(qm, "G", 1, 2, 3)
    xid = qmgr.Xid(1, b"x", b"")
    unit = qm.begin(xid)
    assert [one.body for one in unit.get_many("A", 2, logical_order=True)] == [b"G1", b"G2"]
    unit.prepare()
    qm = world.crash(KEEP_ALL)
    with qm.begin() as other:
        assert take(other) == []
    qm.resolve(xid, commit=False)
    with qm.begin() as other:
        assert take(other) == ["G1", "G2", "G3"]


def test_queues_that_are_deep(small_segments: object) -> None:
    """Groups mixed with each other and with single messages; most is in segments only."""
    rng = random.Random(5)
    world = World(ini={"DefaultPQBufferSize": "2000", "DefaultQBufferSize": "2000"})
    qm = world.qm
    qm.define_queue("A")
    names = [f"G{n:02}." for n in range(25)]
    puts = [(name, number) for name in names for number in range(1, 6)]
    rng.shuffle(puts)
    for name, number in puts:
        options = {"last_in_group": number == 5, "persistent": rng.random() < 0.7, "priority": rng.choice((0, 4))}
        qm.put("A", f"{name}{number}".encode(), group_id=name.encode(), group_sequence=number, **options)  # type: ignore[arg-type]
        if rng.random() < 0.1:
            qm.put("A", b"single")
        if rng.random() < 0.1:
            qm.checkpoint()
    qm.checkpoint()
    qm.checkpoint()
    single = bodies(qm, "A").count(b"single")
    found: list[str] = []
    while qm.queue("A").depth:
        with qm.begin() as unit:
            first = unit.get("A", all_available=True)
            rest = [] if first.group_id is None else unit.get_many("A", 4, logical_order=True)
            if rng.random() < 0.2:
                unit.backout()
                continue
        assert [one.group_sequence for one in [first, *rest]] in ([0], [1, 2, 3, 4, 5])
        assert len({one.group_id for one in [first, *rest]}) == 1
        found += [one.body.decode() for one in [first, *rest]]
        if rng.random() < 0.2:
            qm.checkpoint()
    assert found.count("single") == single
    assert sorted(one for one in found if one != "single") == sorted(f"{name}{number}" for name, number in puts)


def test_a_recreated_queue_has_its_groups() -> None:
    world = World(log_type="linear")
    world.qm.define_queue("A")
    group(world.qm, "G", 2, 1)
    unit = world.qm.begin()
    assert unit.get("A", logical_order=True).body == b"G1"
    world.qm.recreate("A")
    assert unit.get("A", logical_order=True).body == b"G2"
    unit.commit()


def test_groups_that_are_known_keep_up_with_what_comes_and_goes_in_one_go(qm: qmgr.QueueManager) -> None:
    group(qm, "G", 1, 2, 3)
    unit = qm.begin()
    assert take(unit) == ["G1", "G2", "G3"]  # from here on the groups are known
    unit.backout()
    with qm.begin() as unit:
        group(unit, "H", 1, 2, 3)
    assert [one.body for one in qm.get_many("A", 2)] == [b"G1", b"G2"]
    with qm.begin() as unit:
        assert take(unit) == ["H1", "H2", "H3"]
    assert bodies(qm, "A") == [b"G3"]


def test_messages_in_no_group_that_come_in_one_go_are_found_in_logical_order(qm: qmgr.QueueManager) -> None:
    """No index by group id was made for these."""
    qm.put("A", b"1")
    with qm.begin() as unit:
        assert take(unit) == ["1"]
    with qm.begin() as unit:
        for body in (b"2", b"3", b"4"):
            unit.put("A", body)
    with qm.begin() as unit:
        assert take(unit) == ["2", "3", "4"]


@pytest.mark.interpreted
def test_a_whole_group_behind_one_that_is_not_is_found_in_a_queue_that_is_looked_through(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To see whether the first one is whole an index is made, and with that entries of all batches that lie behind."""
    monkeypatch.setattr(finding, "MAX_INDEXED", 50)
    world.qm.define_queue("Q")
    world.qm.put("Q", b"incomplete", group_id=b"G0", group_sequence=1)
    world.qm.put_many("Q", [b"whole"] * 12, group_id=b"G1", last_in_group=True)
    world.qm.put_many("Q", [b"other"] * 100, group_id=b"G2")
    with world.qm.begin() as unit:
        assert [unit.get("Q", all_available=True).body for _ in range(12)] == [b"whole"] * 12
        with pytest.raises(qmgr.NoMessageAvailable):
            unit.get("Q", all_available=True)
