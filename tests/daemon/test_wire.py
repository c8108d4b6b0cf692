"""Frames and values: what is encoded is decoded again, and nothing that comes does harm."""

import datetime
import enum
import struct
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr import errors, sockets, values, wire, wireoptions
from qmgr.errors import Mistake, MQError, Reason
from qmgr.message import Message, describe
from qmgr.objects import QmgrDefinition, QueueDefinition
from qmgr.wire import ProtocolError
from recovery.records import Xid

ids = st.binary(min_size=24, max_size=24)
names = st.text("ABC.%", min_size=1, max_size=48)
some_properties = st.dictionaries(
    st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable()),
    st.text(max_size=9)
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.binary(max_size=9)
    | st.floats(width=32),
    max_size=4,
)
options = st.fixed_dictionaries(
    {},
    optional={
        "persistent": st.booleans() | st.none(),
        "priority": st.integers(0, 9) | st.none(),
        "expiry": st.floats(0.1, 1e6),
        "message_id": ids,
        "correlation_id": ids,
        "reply_to": names,
        "format": st.text("ABC12", max_size=8),
        "properties": some_properties,
    },
)


@st.composite
def messages(draw: st.DrawFn, queue: str = "A") -> Message:
    head = describe(draw(st.integers(0, 9)), True, form=draw(st.text("AB", max_size=8))).head(draw(ids), 5)
    expiry = draw(st.none() | st.floats(0.0, 1e6))
    return Message(draw(st.binary(max_size=40)), head, queue, draw(st.integers(0, 9)), expiry)


def same(one: Message, other: Message) -> bool:
    return attrs.astuple(one) == attrs.astuple(other)


@given(names, st.binary(max_size=200), options, st.integers(0, 2**64 - 1))
def test_a_put_arrives_as_it_was_asked_for(queue: str, body: bytes, given_options: dict[str, Any], unit: int) -> None:
    frame = wire.put(wire.BEGIN, unit, queue, body, given_options)
    request = wire.decode_request(frame)
    told, at = wireoptions.decode_options(frame, request.at) if request.flags & wire.OPTIONS else ({}, request.at)
    assert (request.op, request.unit, request.name, frame[at:]) == (wire.PUT, unit, queue, body)
    wanted = {name: value for name, value in given_options.items() if value is not None}
    assert repr({name: dict(v) if name == "properties" else v for name, v in told.items()}) == repr(  # type: ignore[call-overload]
        {name: wanted[name] for name in told}
    )
    assert told.keys() == wanted.keys()


@given(st.lists(st.binary(max_size=30), max_size=9), options)
def test_many_bodies_arrive_in_their_order(bodies: list[bytes], given_options: dict[str, Any]) -> None:
    frame = wire.put_many(0, 7, "A", bodies, given_options)
    request = wire.decode_request(frame)
    at = wireoptions.decode_options(frame, request.at)[1] if request.flags & wire.OPTIONS else request.at
    assert wire.decode_bodies(frame, at) == bodies


@given(st.lists(st.tuples(st.sampled_from(["", "A", "B"]), st.sampled_from([0, 1, 20_000]), st.booleans()), min_size=1))
def test_runs_of_sends_are_all_of_them_in_their_order(sent: list[tuple[str, int, bool]]) -> None:
    puts = [
        wire.put(0, 7, "A", bytes([n % 256]) * size, {"priority": 3} if option else {})
        if queue == "A"
        else wire.request(wire.PUT, 0, 7, queue, bytes([n % 256]) * size)
        for n, (queue, size, option) in enumerate(sent)
    ]
    frame = wire.sends(wire.BEGIN, 7, puts)
    assert wire.decode_sends(frame, wire.decode_request(frame).at, 7) == puts
    at = 0
    while at < len(puts):
        queue, bodies = wire.run_of(puts, at)
        run = puts[at : at + len(bodies)]
        assert [wire.decode_request(one).name for one in run] == [queue.decode()] * len(run)
        assert all(one.endswith(body) for one, body in zip(run, bodies, strict=True))
        assert len(run) == 1 or (sum(map(len, run)) <= wire.RUN_BYTES and not any(one[5] & wire.OPTIONS for one in run))
        at += len(run)
    assert at == len(puts)


@given(messages(), st.none() | st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)), st.sampled_from(["A", "ALIAS"]))
def test_a_message_that_was_got_is_the_same(message: Message, begun: wire.Begun | None, asked: str) -> None:
    frame = wire.got_reply(message, begun, asked)
    head = wire.decode_reply(frame)
    assert head.begun == begun
    assert same(wire.got_message(frame, head, asked), message)
    frame = wire.put_reply(message, begun, asked)
    head = wire.decode_reply(frame)
    assert head.begun == begun
    assert same(wire.put_message(frame, head, asked, message.body), attrs.evolve(message, backout_count=0))


@given(st.lists(messages(), max_size=6))
def test_pages_have_all_messages(several: list[Message]) -> None:
    frames = list(wire.pages(several, (3, 4), cursor=5))
    found: list[Message] = []
    for frame in frames:
        told = wire.decode_reply(frame)
        page, cursor, _ = wire.page_messages(frame, told, "A")
        found += page
        assert cursor == 5
        assert bool(told.flags & wire.MORE) == (frame is not frames[-1])
    assert [attrs.astuple(one) for one in found] == [attrs.astuple(one) for one in several]


def test_long_pages_are_continued_in_another_frame() -> None:
    head = describe(0, True).head(bytes(24), 0)
    several = [Message(bytes(wire.PAGE_BYTES // 2), head, "A") for _ in range(5)]
    frames = list(wire.pages(several, None))
    assert [bool(frame[5] & wire.MORE) for frame in frames] == [True, True, False]
    told = [(frame, wire.decode_reply(frame)) for frame in frames]
    assert [one.body for one in wire.got_messages(told, "A")] == [one.body for one in several]


@given(st.binary(max_size=120), st.integers(0, 120))
def test_garbage_is_refused_as_such(garbage: bytes, at: int) -> None:
    """Row 72."""
    for decode in (
        lambda: wire.decode_request(garbage),
        lambda: wire.decode_hello(garbage),
        lambda: wireoptions.decode_options(garbage, at),
        lambda: wire.decode_bodies(garbage, at),
        lambda: wireoptions.decode_wanted(garbage[0] if garbage else 0, garbage, at),
        lambda: wire.unpack(wire.MANY, garbage, at),
    ):
        try:
            decode()
        except ProtocolError:
            continue
        except MQError as exc:  # a value of a class that refuses it
            assert isinstance(exc, Mistake)


def test_a_first_frame_without_the_word_of_this_protocol_is_no_clients() -> None:
    """Row 72: whatever else in it would do."""

    def frame(word: bytes, op: int = wire.HELLO) -> bytes:
        return wire.HELLO_HEAD.pack(wire.HELLO_HEAD.size - 4, op, 0, wire.VERSION, word)

    assert wire.decode_hello(frame(wire.MAGIC)) == (wire.HELLO, wire.VERSION, b"")
    for wrong in (frame(b"AMQP"), frame(b"qmgr"), frame(wire.MAGIC, wire.ANSWER), frame(wire.MAGIC)[:-1]):
        with pytest.raises(ProtocolError):
            wire.decode_hello(wrong)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=40))
def test_a_lying_count_of_bodies_reserves_nothing(count: int, rest: bytes) -> None:
    """Row 73."""
    with pytest.raises(ProtocolError):
        wire.decode_bodies(struct.pack("<I", count) + rest + b"?", 0)


def test_what_an_option_would_be_refused_for_is_said_before_anything_is_sent() -> None:
    for wrong, reason in (
        ({"priority": 11}, Reason.PRIORITY_EXCEEDS_MAXIMUM),
        ({"persistent": "yes"}, Reason.PERSISTENCE_ERROR),
        ({"expiry": 0}, Reason.EXPIRY_ERROR),
        ({"message_id": b"x" * 25}, Reason.MD_ERROR),
        ({"properties": {"a": object()}}, Reason.PROPERTY_TYPE_ERROR),
    ):
        with pytest.raises(Mistake) as caught:
            wire.put(0, 0, "A", b"", wrong)
        assert caught.value.reason == reason
    with pytest.raises(TypeError, match="a put has no option 'colour'"):
        wire.put(0, 0, "A", b"", {"colour": 1})
    for name in ("", 7, "\ud800", "x" * 256):
        with pytest.raises(errors.NameError_):
            wire.put(0, 0, name, b"", {})  # type: ignore[arg-type]


# ---- values

simple = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
    | st.binary(max_size=9)
    | st.datetimes(timezones=st.just(datetime.UTC))
    | st.sampled_from(list(qmgr.UowState))
    | st.builds(Xid, st.integers(-9, 9), st.binary(min_size=1, max_size=64), st.binary(max_size=64))
)
nested = st.recursive(
    simple,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(nested)
def test_values_come_back_as_they_were(value: Any) -> None:
    assert values.loads(values.dumps(value)) == value


def test_our_classes_come_back_as_they_were() -> None:
    for value in (QueueDefinition(name="A", max_depth=7), QmgrDefinition(), qmgr.QueueInfo(name="Q", depth=2)):
        assert values.loads(values.dumps([value, (value,)])) == [value, (value,)]


def test_what_no_call_takes_is_not_sent() -> None:
    class Depth(enum.IntEnum):
        SOME = 3

    itself: list[object] = []
    itself.append(itself)
    for value, text in (
        (object(), "a object can't be sent"),
        ([datetime.timedelta(1)], "a timedelta can't be sent"),
        (Depth.SOME, "a Depth can't be sent"),
        ({1: 2}, "keys"),
        (itself, "itself in it"),
    ):
        with pytest.raises(qmgr.Mistake, match=text):
            values.dumps(value)
    assert values.loads(values.dumps({1, "a"})) == {1, "a"}


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b'{"of": "Popen", "with": {}}',
        b'{"of": "UowState", "with": {}}',
        b'{"of": "UowState", "is": "GONE"}',
        b'{"of": ["x"], "is": 1}',
        b'{"hex": "x"}',
        b'{"what": 1}',
        b'{"hex": "00", "map": {}}',
        b'{"map": [1]}',
        b"[" * 40 + b"]" * 40,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"of": "Xid", "with": {"format_id": 1, "gtrid": "", "bqual": ""}}',
        b"\xff",
    ],
)
def test_other_json_is_refused(garbage: bytes) -> None:
    """Row 73."""
    with pytest.raises(ValueError):
        values.loads(garbage)


def test_a_number_of_thousands_of_digits_is_refused_in_words_of_ours() -> None:
    """Python's own would tell a client to change a setting of Python."""
    with pytest.raises(ValueError, match="longer than any that a call takes"):
        values.loads(b'{"map": {"priority": %s}}' % (b"9" * 5000))


@pytest.mark.parametrize("kind", sorted(values.ERRORS))
def test_errors_keep_class_reason_name_and_text(kind: str) -> None:
    made = values.ERRORS[kind]("it went wrong", name="A")
    frame = wire.error_reply(made, (1, 2))
    head = wire.decode_reply(frame)
    assert head.begun == (1, 2)
    again = wire.error(frame, head)
    assert type(again) is type(made)
    assert isinstance(again, MQError)
    assert (again.reason, again.name, str(again)) == (made.reason, made.name, str(made))


def test_what_an_error_has_to_say_beside_that_is_kept() -> None:
    again = values.load_error(values.dump_error(qmgr.InUse("it is running", holder="pid 7", name="QM1")))
    assert isinstance(again, qmgr.InUse)
    assert again.holder == "pid 7"
    unknown = values.load_error(b'{"class": "FromTheFuture", "reason": 99999, "name": "", "text": "so"}')
    assert (type(unknown), unknown.reason, str(unknown)) == (MQError, Reason.UNEXPECTED_ERROR, "so")


class Pieces:
    """Stands for a socket by which these bytes come piece by piece."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def recv(self, size: int) -> bytes:
        if not self._pieces:
            return b""
        piece, self._pieces[0] = self._pieces[0][:size], self._pieces[0][size:]
        if not self._pieces[0]:
            del self._pieces[0]
        return piece


@pytest.mark.parametrize("words", range(4))
def test_an_answer_is_found_behind_heartbeats_however_they_come(words: int) -> None:
    alive, answer = wire.HEARTBEAT, wire.reply(wire.OK, b"told")
    told = alive * words + answer
    for first in range(len(told)):
        for second in range(first + 1, len(told) + 1):
            pieces = [piece for piece in (told[:first], told[first:second], told[second:]) if piece]
            sock: Any = Pieces(*pieces)
            assert sockets.receive_answer(sock, 1000, alive) == answer
            assert sockets.receive_answer(sock, 1000, alive) == b""
    for cut in range(len(told)):
        sock = Pieces(*(piece for piece in (told[:cut],) if piece))
        if cut % len(alive) == 0 and cut <= len(alive) * words:
            assert sockets.receive_answer(sock, 1000, alive) == b""
        else:
            with pytest.raises(EOFError):
                sockets.receive_answer(sock, 1000, alive)
