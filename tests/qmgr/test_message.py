"""Messages as bytes: what is encoded is decoded; the head tells a queue what it needs to know."""

import copy
import datetime
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmgr import Mistake, message
from qmgr.entry import read_entry
from qmgr.message import Message

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
described = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 9),
        "persistent": st.booleans(),
        "correlation_id": ids,
        "reply_to": st.one_of(st.just(""), names),
        "form": st.one_of(st.just(""), st.from_regex(r"[ -~]{1,8}", fullmatch=True)),
        "properties": properties,
    }
)


@given(described, ids, st.binary(max_size=300), st.integers(0, 2**55), st.integers(0, 50))
def test_what_is_encoded_is_decoded(
    given_fields: dict[str, Any], message_id: bytes, body: bytes, put_time_us: int, backouts: int
) -> None:
    encoded = message.describe(**given_fields).head(message_id, put_time_us)
    entry = read_entry(encoded + body, b"")
    assert (entry.head, entry.body) == (encoded, body)
    found = message.decode(entry.head, body, "Q", backouts, 0)
    assert (found.body, found.message_id, found.put_time_us, found.backout_count, found.queue, found.expiry) == (
        body,
        message_id,
        put_time_us,
        backouts,
        "Q",
        None,
    )
    given_fields["format"] = given_fields.pop("form")
    assert {name: getattr(found, name) for name in given_fields} == given_fields
    assert message.ids_of(encoded) == (message_id, found.correlation_id)


@given(described, ids, st.integers(1, 2**62))
def test_what_a_queue_reads_of_a_head(given_fields: dict[str, Any], message_id: bytes, expires: int) -> None:
    one = message.describe(**given_fields, expires=expires)
    found = message.standing(one.head(message_id, 5))
    assert (found.flags & message.PERSISTENT, found.priority, found.expires) == (
        one.persistent,
        given_fields["priority"],
        expires,
    )


@given(properties)
def test_properties_keep_their_types_and_order(given_properties: dict[str, Any]) -> None:
    found = message.decode_properties(message.encode_properties(given_properties))
    assert list(found.items()) == list(given_properties.items())
    assert [type(value) for value in found.values()] == [type(value) for value in given_properties.values()]


def test_the_seconds_left_and_never_less_than_none() -> None:
    head = message.describe(0, True, expires=5_000_000).head(bytes(24), 0)
    assert message.decode(head, b"", "Q", 0, 2_000_000).expiry == 3.0
    assert message.decode(head, b"", "Q", 0, 9_000_000).expiry == 0.0


def test_put_time_is_an_aware_datetime() -> None:
    one = Message(b"", message.describe(0, True).head(bytes(24), 1_000_001), "Q")
    assert one.put_time == datetime.datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_it_can_be_copied_and_sent_to_another_process(copied: Callable[[Message], Message]) -> None:
    one = Message(b"body", message.describe(3, True).head(bytes(24), 1), "Q", 2, 0.5)
    assert attrs.astuple(copied(one)) == attrs.astuple(one)


def test_what_callers_may_ask_for() -> None:
    assert message.check_id(b"x", "message_id") == b"x".ljust(24, b"\0")
    assert message.check_body(bytearray(b"x")) == b"x"
    assert message.check_reply_to("") == ""
    assert message.check_expiry(1) == 1
    for check, wrong in ((message.check_body, "x"), (message.check_priority, 1.0), (message.check_format, "123456789")):
        with pytest.raises(Mistake):
            check(wrong)
