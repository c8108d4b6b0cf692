"""The dead-letter header, and messages that are put with it."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr import deadletter
from qmgr.deadletter import DeadLetterHeader
from qmgr.errors import Mistake, Reason, UnknownQueue
from qmgr.message import Message
from tests.qmgr.world import World, bodies, drain

words = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8)
numbers = st.integers(-(2**31), 2**31 - 1)


@given(
    st.builds(
        DeadLetterHeader,
        reason=numbers,
        queue=words,
        manager=words,
        format=words,
        encoding=numbers,
        character_set=numbers,
        application_type=numbers,
        application=words,
        date=words,
        time=words,
    ),
    st.binary(max_size=50),
)
def test_a_header_comes_back(header: DeadLetterHeader, body: bytes) -> None:
    encoded = header.encode()
    assert len(encoded) == 172
    assert deadletter.decode(encoded + body) == (header, body)


def test_the_layout_is_that_of_mqdlh() -> None:
    header = deadletter.header_of(2362, "ORDERS", "QM1", "MQSTR", 1_700_000_000_120_000)
    data = header.encode()
    assert data[:4] == b"DLH "
    assert struct.unpack_from("<ii", data, 4) == (1, 2362)
    assert data[12:60] == b"ORDERS".ljust(48) and data[60:108] == b"QM1".ljust(48)
    assert struct.unpack_from("<ii", data, 108) == (546, 1208)
    assert data[116:124] == b"MQSTR   "
    assert data[156:172] == b"2023111422132012"


@pytest.mark.parametrize(
    "body", [b"", b"DLH ", bytes(172), b"DLH " + bytes(168), b"XLH " + bytes([1]) + bytes(200), b"DLH \2" + bytes(200)]
)
def test_what_is_no_header_is_2141(body: bytes) -> None:
    with pytest.raises(Mistake) as caught:
        deadletter.decode(body)
    assert caught.value.reason == Reason.DLH_ERROR


@given(st.binary(max_size=300))
def test_any_bytes_are_a_header_or_refused(body: bytes) -> None:
    try:
        deadletter.decode(b"DLH \1\0\0\0" + body)
    except Mistake:
        assert len(body) < 164


OPTIONS: dict[str, Any] = {
    "priority": 7,
    "correlation_id": b"c".ljust(24),
    "reply_to": "B",
    "properties": {"one": 1, "two": "zwei"},
    "format": "MQSTR",
    "expiry": 100.0,
}


def same_but_format(one: Message, two: Message) -> bool:
    names = ("message_id", "correlation_id", "priority", "persistent", "put_time_us", "reply_to", "properties")
    return all(getattr(one, name) == getattr(two, name) for name in names)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_message_becomes_a_dead_letter_in_the_unit_of_work_that_got_it(world: World, persistent: bool) -> None:
    qm = world.qm
    qm.define_queue("DEAD")
    qm.alter(dead_letter_queue="DEAD")
    qm.put("A", b"body", persistent=persistent, **OPTIONS)
    for outcome in ("backout", "commit"):
        with qm.begin() as unit:
            message = unit.get("A")
            qm.dead_letter(unit, message, 2030)
            getattr(unit, outcome)()
        assert (bodies(qm, "A"), len(bodies(qm, "DEAD"))) == (([b"body"], 0) if outcome == "backout" else ([], 1))
    if persistent:
        qm = world.crash()
    dead = qm.get("DEAD")
    header, body = deadletter.decode(dead.body)
    assert (header.reason, header.queue, header.manager, header.format, body) == (2030, "A", "QM1", "MQSTR", b"body")
    assert dead.format == "MQDEAD"
    assert same_but_format(dead, message)
    assert dead.expiry is not None


def test_outside_a_unit_of_work_and_by_an_alias(world: World, qm: qmgr.QueueManager) -> None:
    qm.define_queue("DEAD")
    qm.define_alias("DLQ", "DEAD")
    qm.alter(dead_letter_queue="DLQ")
    put = qm.dead_letter(None, qm.put("A", b"body"))
    assert put.queue == "DEAD"
    header, body = deadletter.decode(world.crash().get("DEAD").body)
    assert (header.reason, header.format, body) == (2362, "", b"body")


def test_without_a_dead_letter_queue_it_is_2085(qm: qmgr.QueueManager) -> None:
    message = qm.put("A", b"body")
    with pytest.raises(UnknownQueue, match="dead_letter_queue"):
        qm.dead_letter(None, message)
    qm.alter(dead_letter_queue="NOT.THERE")
    with pytest.raises(UnknownQueue, match=r"NOT\.THERE"):
        qm.dead_letter(None, message)
    assert drain(qm, "A") == [b"body"]


def test_in_a_unit_of_work_of_another_queue_manager_it_is_refused(qm: qmgr.QueueManager) -> None:
    """The log of the one would have the put, and that of the other its commit."""
    other = World().qm
    other.define_queue("A")
    for each in (qm, other):
        each.define_queue("DEAD")
        each.alter(dead_letter_queue="DEAD")
        each.put("A", b"body")
    with other.begin() as unit:
        message = unit.get("A")
        for wrong in (unit, "unit", 5):
            with pytest.raises(Mistake, match="begun with the same object") as caught:
                qm.dead_letter(wrong, message)  # type: ignore[arg-type]
            assert caught.value.reason == Reason.UOW_NOT_AVAILABLE
        other.dead_letter(unit, message)
    assert (qm.queue("DEAD").depth, other.queue("DEAD").depth) == (0, 1)
