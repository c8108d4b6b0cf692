"""Messages as bytes: what is encoded is decoded; the head tells a queue what it needs to know."""

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmgr import Mistake, message
from qmgr.message import FACTS, Message

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ids = st.binary(min_size=24, max_size=24)
properties = st.dictionaries(
    text.filter(lambda name: 1 <= len(name.encode()) <= 255),
    st.one_of(
        text, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans(), st.binary(max_size=99)
    ),
    max_size=5,
)
names = st.from_regex(r"[A-Za-z0-9._/%]{1,48}", fullmatch=True)
made = st.builds(
    Message,
    body=st.binary(max_size=300),
    message_id=ids,
    correlation_id=ids,
    priority=st.integers(0, 9),
    persistent=st.booleans(),
    expiry=st.none(),
    backout_count=st.just(0),
    queue=st.just("Q"),
    put_time_us=st.integers(0, 2**55),
    reply_to=st.one_of(st.just(""), names),
    format=st.one_of(st.just(""), st.from_regex(r"[ -~]{1,8}", fullmatch=True)),
    properties=properties,
)


def fields(one: Message) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Message.__slots__ if not name.startswith("__")} | {
        "properties": dict(one.properties)
    }


@given(made, st.integers(0, 50))
def test_what_is_encoded_is_decoded(one: Message, backouts: int) -> None:
    head, body = message.split(message.encode_head(one, 0) + one.body)
    assert body == one.body
    found = message.decode(head, body, "Q", backouts, 0)
    one.backout_count = backouts
    assert fields(found) == fields(one)
    assert message.ids_of(head) == (one.message_id, one.correlation_id)


@given(made, st.integers(1, 2**62))
def test_the_facts_of_a_head(one: Message, expires: int) -> None:
    flags, priority, until = FACTS.unpack_from(message.encode_head(one, expires))
    assert (flags & message.PERSISTENT, priority, until) == (one.persistent, one.priority, expires)


@given(properties)
def test_properties_keep_their_types_and_order(given_properties: dict[str, Any]) -> None:
    found = message.decode_properties(message.encode_properties(given_properties))
    assert list(found.items()) == list(given_properties.items())
    assert [type(value) for value in found.values()] == [type(value) for value in given_properties.values()]


def test_the_seconds_left_and_never_less_than_none() -> None:
    one = Message(b"", bytes(24), bytes(24), 0, True, None, 0, "Q", 0)
    head = message.encode_head(one, 5_000_000)
    assert message.decode(head, b"", "Q", 0, 2_000_000).expiry == 3.0
    assert message.decode(head, b"", "Q", 0, 9_000_000).expiry == 0.0


def test_put_time_is_an_aware_datetime() -> None:
    one = Message(b"", bytes(24), bytes(24), 0, True, None, 0, "Q", 1_000_001)
    assert one.put_time == datetime.datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=datetime.UTC)


def test_what_callers_may_ask_for() -> None:
    assert message.check_id(b"x", "message_id") == b"x".ljust(24, b"\0")
    assert message.check_body(bytearray(b"x")) == b"x"
    assert message.check_reply_to("") == ""
    assert message.check_expiry(1) == 1
    for check, wrong in ((message.check_body, "x"), (message.check_priority, 1.0), (message.check_format, "123456789")):
        with pytest.raises(Mistake):
            check(wrong)
