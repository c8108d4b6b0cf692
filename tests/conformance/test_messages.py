"""Messages over every face: what is put comes back, in order, by id, in time, many at once; wrong calls do nothing."""

import datetime
import queue as queues
from typing import Any

import pytest

import qmgr
from qmgr import Reason
from qmgr.errors import NameError_
from tests.conformance.calls import bodies, drain, facts, refused, until
from tests.conformance.faces import Face
from tests.qmgr.test_api_messages import WRONG_PUTS

Manager = qmgr.QueueManager
PROPERTIES: dict[str, Any] = {
    "text": "grün 𝄞 \x00",
    "empty": "",
    "least": -(2**63),
    "most": 2**63 - 1,
    "float": -1.5e300,
    "infinite": float("inf"),
    "yes": True,
    "no": False,
    "bytes": bytes(range(256)),
    "n" * 255: b"",
}


def test_a_message_comes_back_as_it_was_put(qm: Manager, queue: str) -> None:
    put = qm.put(
        queue,
        b"body",
        persistent=False,
        priority=7,
        expiry=60,
        message_id=b"m" * 24,
        correlation_id=b"c" * 24,
        reply_to="B",
        properties=PROPERTIES,
        format="MQSTR",
    )
    looked = next(iter(qm.browse(queue)))
    got = qm.get(queue)
    expected = {
        "body": b"body",
        "message_id": b"m" * 24,
        "correlation_id": b"c" * 24,
        "priority": 7,
        "persistent": False,
        "backout_count": 0,
        "queue": queue,
        "reply_to": "B",
        "format": "MQSTR",
        "properties": PROPERTIES,
        "put_time": put.put_time,
    }
    for message in (put, looked, got):
        assert facts(message) == expected
        assert {name: type(value) for name, value in message.properties.items()} == {
            name: type(value) for name, value in PROPERTIES.items()
        }
        assert message.expiry == pytest.approx(60, abs=30)
        assert message.put_time.tzinfo is datetime.UTC


def test_what_is_not_given_is_the_default_of_the_queue(face: Face) -> None:
    qm = face.qm
    message = qm.put(face.queue(), b"")
    assert (message.body, message.priority, message.persistent, message.expiry) == (b"", 0, True, None)
    assert (message.reply_to, message.format, dict(message.properties)) == ("", "", {})
    assert message.correlation_id == bytes(24)
    assert message.message_id.startswith(b"AMQ QM1         ")
    other = face.queue(default_priority=3, default_persistence=False, expiry_cap=500)
    message = qm.put(other, b"", priority=None, persistent=None, expiry=None, message_id=None, correlation_id=None)
    assert (message.priority, message.persistent, message.expiry) == (3, False, 500)
    message = qm.put(other, b"", priority=0, persistent=True, expiry=20, reply_to=None, properties=None, format=None)
    assert (message.priority, message.persistent) == (0, True)
    assert message.expiry == pytest.approx(20, abs=1)


@pytest.mark.parametrize("size", [0, 1, 4000, 65_535, 65_536, 200_000])
def test_bodies_of_every_size(qm: Manager, queue: str, size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    assert qm.put(queue, body).body == body
    with qm.begin() as unit:
        assert unit.put(queue, body, persistent=False).body == body
    assert bodies(qm, queue) == [body] * 2
    assert qm.get(queue).body == body
    assert [m.body for m in qm.get_many(queue, 5)] == [body]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_buffers_are_copied(qm: Manager, queue: str, kind: Any) -> None:
    qm.put(queue, kind(b"xy"))
    qm.put_many(queue, [kind(b"z"), b"a"])
    with qm.begin() as unit:
        unit.put(queue, kind(b"b"))
    assert drain(qm, queue) == [b"xy", b"z", b"a", b"b"]


def test_a_short_id_is_filled_with_zeros(qm: Manager, queue: str) -> None:
    put = qm.put(queue, b"", message_id=b"one", correlation_id=b"two")
    assert put.message_id == b"one".ljust(24, b"\0")
    assert qm.get(queue, message_id=b"one").correlation_id == b"two".ljust(24, b"\0")


@pytest.mark.parametrize("nothing", [b"", bytes(24), bytes(3)])
@pytest.mark.parametrize("which", ["message_id", "correlation_id"])
def test_an_id_of_zeros_alone_asks_for_any_message(qm: Manager, queue: str, which: str, nothing: bytes) -> None:
    """As MQMI_NONE and MQCI_NONE do."""
    put = qm.put(queue, b"1", correlation_id=b"c")
    qm.put(queue, b"2")
    assert [m.body for m in qm.browse(queue, **{which: nothing})] == [b"1", b"2"]
    assert qm.get(queue, **{which: nothing}).message_id == put.message_id
    assert [m.body for m in qm.get_many(queue, 9, **{which: nothing}, logical_order=False)] == [b"2"]
    qm.put(queue, b"3")
    assert qm.get(queue, **{which: nothing}, backout_requeue=False, logical_order=False).body == b"3"


# ---- order


def test_priority_first_then_the_order_of_putting(face: Face) -> None:
    for sequence, expected in (("PRIORITY", [1, 3, 2, 5, 0, 4]), ("FIFO", [0, 1, 2, 3, 4, 5])):
        queue = face.queue(delivery_sequence=sequence)
        for number, priority in enumerate([0, 9, 4, 9, 0, 4]):
            face.qm.put(queue, b"%d" % number, priority=priority)
        assert bodies(face.qm, queue) == [b"%d" % n for n in expected]
        assert drain(face.qm, queue) == [b"%d" % n for n in expected]


def test_the_order_is_that_of_commit_and_not_of_put(qm: Manager, queue: str) -> None:
    first, second = qm.begin(), qm.begin()
    first.put(queue, b"put first")
    second.put(queue, b"put second")
    qm.put(queue, b"outside")
    second.commit()
    first.commit()
    assert bodies(qm, queue) == [b"outside", b"put second", b"put first"]


# ---- selection


def test_get_by_message_id_takes_that_one_from_the_middle(qm: Manager, queue: str) -> None:
    ids = [qm.put(queue, b"%d" % n).message_id for n in range(5)]
    assert len(set(ids)) == 5
    assert qm.get(queue, message_id=ids[3]).body == b"3"
    assert bodies(qm, queue, message_id=ids[2]) == [b"2"]
    with qm.begin() as unit:
        assert unit.get(queue, message_id=ids[0]).body == b"0"
    with refused(qmgr.NoMessageAvailable, Reason.NO_MSG_AVAILABLE, queue):
        qm.get(queue, message_id=ids[3])
    assert drain(qm, queue) == [b"1", b"2", b"4"]


def test_get_by_correlation_id_takes_them_in_order_of_delivery(qm: Manager, queue: str) -> None:
    for n in range(6):
        qm.put(queue, b"%d" % n, correlation_id=b"odd" if n % 2 else b"even", priority=9 if n == 5 else 0)
    assert bodies(qm, queue, correlation_id=b"odd") == [b"5", b"1", b"3"]
    with qm.begin() as unit:
        assert [m.body for m in unit.get_many(queue, 2, correlation_id=b"odd")] == [b"5", b"1"]
    assert [m.body for m in qm.get_many(queue, 10, correlation_id=b"odd")] == [b"3"]
    assert qm.get_many(queue, 10, correlation_id=b"odd") == []
    assert drain(qm, queue) == [b"0", b"2", b"4"]


def test_browse_by_group(qm: Manager, queue: str) -> None:
    for n in range(6):
        qm.put(queue, b"%d" % n, group_id=b"odd" if n % 2 else b"even", group_sequence=n + 1, correlation_id=b"%d" % n)
    qm.put(queue, b"alone")
    assert bodies(qm, queue, group_id=b"odd") == [b"1", b"3", b"5"]
    assert bodies(qm, queue, group_id=b"odd", correlation_id=b"3") == [b"3"]
    assert bodies(qm, queue, group_id=b"none") == []
    with refused(qmgr.Mistake, Reason.GROUP_ID_ERROR):
        bodies(qm, queue, group_id=b"")


def test_get_by_both_ids_needs_both(qm: Manager, queue: str) -> None:
    qm.put(queue, b"1", message_id=b"m", correlation_id=b"c")
    qm.put(queue, b"2", message_id=b"m", correlation_id=b"d")
    qm.put(queue, b"3", message_id=b"n", correlation_id=b"d")
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get(queue, message_id=b"n", correlation_id=b"c")
    assert bodies(qm, queue, message_id=b"m", correlation_id=b"d") == [b"2"]
    assert qm.get(queue, message_id=b"m", correlation_id=b"d").body == b"2"
    assert drain(qm, queue) == [b"1", b"3"]


# ---- expiry


def test_a_message_whose_time_is_over_is_not_delivered(qm: Manager, queue: str) -> None:
    qm.put(queue, b"short", expiry=0.01, correlation_id=b"c")
    qm.put(queue, b"long", expiry=1000)
    qm.put(queue, b"for ever")
    until(lambda: bodies(qm, queue) == [b"long", b"for ever"])
    assert qm.get_many(queue, 5, correlation_id=b"c") == []
    with qm.begin() as unit:
        message = unit.get(queue)
        assert message.body == b"long"
        assert message.expiry == pytest.approx(1000, abs=100)
    assert qm.get(queue).expiry is None


def test_expiry_cap_bounds_what_puts_ask_for(face: Face) -> None:
    queue = face.queue(expiry_cap=500)
    assert [face.qm.put(queue, b"", expiry=seconds).expiry for seconds in (None, 1000, 2)] == [500, 500, 2]


# ---- browse


def test_browse_takes_nothing_away_and_may_be_left(qm: Manager, queue: str) -> None:
    for n in range(40):
        qm.put(queue, b"%d" % n + bytes(5000))
    for _ in range(3):
        looking = qm.browse(queue)
        assert next(looking).body.startswith(b"0")
        del looking  # the rest is never asked for
    assert qm.queue(queue).depth == 40
    assert len(list(qm.browse(queue))) == 40
    assert len(qm.get_many(queue, 100)) == 40


def test_browse_shows_no_uncommitted_message_and_none_that_is_locked(qm: Manager, queue: str) -> None:
    qm.put_many(queue, [b"a", b"b"])
    unit = qm.begin()
    unit.put(queue, b"x")
    unit.get(queue)
    assert bodies(qm, queue) == [b"b"]
    unit.commit()
    assert bodies(qm, queue) == [b"b", b"x"]


def test_browse_while_others_put_and_get(qm: Manager, queue: str) -> None:
    """Each message that was there all the time is shown once and in its place; none that came later."""
    for n in range(200):
        qm.put(queue, b"%03d" % n, persistent=False)
    seen = []
    looking = qm.browse(queue)
    for n in range(20):
        seen.append(next(looking).body)
        qm.put(queue, b"new", persistent=False)
        if n % 2:
            seen.append(next(looking).body)
    assert [m.body for m in qm.get_many(queue, 10)] == [b"%03d" % n for n in range(10)]
    seen += [m.body for m in looking]
    assert seen == [b"%03d" % n for n in range(200)]
    last = qm.browse(queue)
    assert next(last).body == b"010"
    qm.get_many(queue, 1000)
    assert len(list(last)) < 210  # what was read ahead may still come
    assert bodies(qm, queue) == []


def test_browses_of_several_queues_in_turn(face: Face) -> None:
    names = [face.queue() for _ in range(3)]
    for name in names:
        face.qm.put_many(name, [b"%s %d" % (name.encode(), n) for n in range(30)], persistent=False)
    looking = [face.qm.browse(name) for name in names]
    for n in range(30):
        for name, look in zip(names, looking, strict=True):
            assert next(look).body == b"%s %d" % (name.encode(), n)
            face.qm.put(name, b"")
    assert [list(look) for look in looking] == [[], [], []]


# ---- many at a time


def test_put_many_and_get_many_keep_order_options_and_ids(qm: Manager, queue: str) -> None:
    put = qm.put_many(
        queue, [b"%d" % n for n in range(100)], priority=2, expiry=500, correlation_id=b"batch", properties={"n": 1},
        format="MQSTR", reply_to="B",
    )  # fmt: skip
    assert len({m.message_id for m in put}) == 100
    got = qm.get_many(queue, 60)
    with qm.begin() as unit:
        got += unit.get_many(queue, 60)
    assert [facts(m) for m in got] == [facts(m) for m in put]
    assert [m.body for m in got] == [b"%d" % n for n in range(100)]
    assert {(m.priority, m.format, m.reply_to, m.persistent) for m in got} == {(2, "MQSTR", "B", True)}
    assert all(dict(m.properties) == {"n": 1} and m.expiry is not None and m.expiry <= 500 for m in got)
    assert qm.get_many(queue, 5) == []


def test_put_many_takes_any_iterable_and_may_be_empty(qm: Manager, queue: str) -> None:
    assert [m.body for m in qm.put_many(queue, (b"%d" % n for n in range(3)))] == [b"0", b"1", b"2"]
    assert qm.put_many(queue, []) == []
    with qm.begin() as unit:
        assert unit.put_many(queue, []) == []
        assert [m.body for m in unit.put_many(queue, iter([b"3"]))] == [b"3"]
    assert drain(qm, queue) == [b"0", b"1", b"2", b"3"]


def test_put_many_of_nothing_is_refused_where_a_message_would_be(qm: Manager, queue: str) -> None:
    with refused(qmgr.Mistake, Reason.MD_ERROR):
        qm.put_many(queue, [], message_id=b"x" * 25)
    unit = qm.begin(qmgr.Xid(1, b"nothing", b""))
    unit.put(queue, b"")
    unit.prepare()
    with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE):
        unit.put_many(queue, [])
    unit.commit()
    with refused(qmgr.UnitOfWorkEnded, Reason.UOW_NOT_AVAILABLE):
        unit.put_many(queue, [])


def test_put_many_is_all_or_nothing(face: Face) -> None:
    qm, queue = face.qm, face.queue(max_depth=3, max_message_length=5)
    wrong: list[tuple[list[Any], type[qmgr.MQError], Reason]] = [
        ([b"1", b"2", b"3", b"4"], qmgr.QueueFull, Reason.Q_FULL),
        ([b"1", b"123456"], qmgr.MessageTooBig, Reason.MSG_TOO_BIG_FOR_Q),
        ([b"1", "2"], qmgr.Mistake, Reason.MD_ERROR),
        ([b"1", None], qmgr.Mistake, Reason.MD_ERROR),
    ]
    for bodies_, kind, reason in wrong:
        with refused(kind, reason):
            qm.put_many(queue, bodies_)
        with qm.begin() as unit, refused(kind, reason):
            unit.put_many(queue, bodies_)
    with pytest.raises(qmgr.Mistake, match="several bodies"):
        qm.put_many(queue, b"abc")  # type: ignore[arg-type]
    with refused(qmgr.Mistake, Reason.MD_ERROR):
        qm.put_many(queue, 5)  # type: ignore[arg-type]
    assert (qm.queue(queue).depth, qm.queue(queue).uncommitted) == (0, 0)


def test_an_iterable_that_fails_puts_nothing(qm: Manager, queue: str) -> None:
    def failing() -> Any:
        yield b"1"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        qm.put_many(queue, failing())
    qm.put(queue, b"after")
    assert bodies(qm, queue) == [b"after"]


def test_get_many_takes_up_to_the_limit_of_whatever_kind(qm: Manager, queue: str) -> None:
    for n in range(6):
        qm.put(queue, b"%d" % n, persistent=n % 2 == 0)
    assert [m.body for m in qm.get_many(queue, 4)] == [b"0", b"1", b"2", b"3"]
    assert [m.body for m in qm.get_many(queue, 10**9)] == [b"4", b"5"]


# ---- refusals


@pytest.mark.parametrize(("options", "reason"), WRONG_PUTS, ids=lambda value: str(value)[:50])
def test_a_wrong_put_is_a_mistake_and_changes_nothing(
    qm: Manager, shared: str, options: dict[str, Any], reason: Reason
) -> None:
    body = options.get("body", b"")
    options = {name: value for name, value in options.items() if name != "body"}
    kind = NameError_ if reason == Reason.OBJECT_NAME_ERROR else qmgr.Mistake
    with refused(kind, reason):
        qm.put(shared, body, **options)
    with qm.begin() as unit:
        with refused(kind, reason):
            unit.put(shared, body, **options)
        with refused(kind, reason):
            unit.put_many(shared, [body], **options)
    assert (qm.queue(shared).depth, qm.queue(shared).uncommitted) == (0, 0)


def test_an_unknown_option_is_a_type_error_that_names_it(qm: Manager, queue: str) -> None:
    unit: Any
    with qm.begin() as unit:
        manager: Any = qm
        for call in (
            lambda: manager.put(queue, b"", colour="red"),
            lambda: manager.put_many(queue, [b""], colour="red"),
            lambda: unit.put(queue, b"", colour="red"),
            lambda: manager.get(queue, colour="red"),
            lambda: unit.get(queue, colour="red"),
            lambda: manager.browse(queue, colour="red"),
        ):
            with pytest.raises(TypeError, match="colour"):
                call()
    assert qm.queue(queue).depth == 0


@pytest.mark.parametrize("wait", [-1, -0.001, float("nan"), "1", True, False, b"", [1]])
def test_a_wrong_wait_is_2090(qm: Manager, shared: str, wait: Any) -> None:
    with qm.begin() as unit:
        for get in (qm.get, lambda name, wait: qm.get_many(name, 1, wait=wait), unit.get):
            with refused(qmgr.Mistake, Reason.WAIT_INTERVAL_ERROR):
                get(shared, wait=wait)


@pytest.mark.parametrize("limit", [0, -1, 1.0, "1", None, True])
def test_a_wrong_limit_is_2046(qm: Manager, shared: str, limit: Any) -> None:
    with qm.begin() as unit:
        for get_many in (qm.get_many, unit.get_many):
            with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match="limit"):
                get_many(shared, limit)


@pytest.mark.parametrize("selector", [{"message_id": b"x" * 25}, {"correlation_id": "c"}, {"message_id": 1}])
def test_a_wrong_selector_is_2026(qm: Manager, shared: str, selector: dict[str, Any]) -> None:
    with qm.begin() as unit:
        for call in (qm.get, lambda queue, **ids: list(qm.browse(queue, **ids)), unit.get):
            with refused(qmgr.Mistake, Reason.MD_ERROR):
                call(shared, **selector)


@pytest.mark.parametrize("name", ["", "x" * 49, "a b", "a\n", "ü", "a*", "\ud800", 5, None, b"A", ["A"], {}], ids=repr)
def test_a_name_that_can_be_none_is_2152(qm: Manager, name: Any) -> None:
    with qm.begin() as unit:
        for call in (
            lambda: qm.put(name, b""),
            lambda: qm.get(name),
            lambda: qm.put_many(name, [b""]),
            lambda: qm.get_many(name, 1),
            lambda: list(qm.browse(name)),
            lambda: qm.queue(name),
            lambda: qm.define_queue(name),
            lambda: qm.alter_queue(name),
            lambda: qm.delete_queue(name),
            lambda: unit.put(name, b""),
            lambda: unit.put_many(name, [b""]),
            lambda: unit.get(name),
            lambda: unit.get_many(name, 1),
        ):
            with refused(NameError_, Reason.OBJECT_NAME_ERROR, str(name)[:48]):
                call()


def test_an_unknown_queue_is_2085_and_named(qm: Manager, queue: str) -> None:
    with qm.begin() as unit:
        for call in (
            lambda: qm.put("NO", b""),
            lambda: qm.get("NO"),
            lambda: qm.get_many("NO", 1, wait=None),
            lambda: qm.put_many("NO", [b""]),
            lambda: qm.put_many("NO", []),
            lambda: list(qm.browse("NO")),
            lambda: qm.queue("NO"),
            lambda: qm.alter_queue("NO", put_enabled=False),
            lambda: qm.delete_queue("NO"),
            lambda: unit.put("NO", b""),
            lambda: unit.put_many("NO", [b""]),
            lambda: unit.get("NO"),
            lambda: unit.get_many("NO", 1),
        ):
            with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, "NO", "'NO'"):
                call()
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME):
        qm.put(queue.lower(), b"")  # names have upper and lower case


def test_nothing_there_is_2033_and_a_queue_empty(qm: Manager, queue: str) -> None:
    with refused(qmgr.NoMessageAvailable, Reason.NO_MSG_AVAILABLE, queue):
        qm.get(queue)
    with qm.begin() as unit, pytest.raises(queues.Empty):
        unit.get(queue)
    assert qm.get_many(queue, 5) == []


def test_puts_can_be_disabled_2051(qm: Manager, queue: str) -> None:
    qm.put(queue, b"x")
    qm.alter_queue(queue, put_enabled=False)
    with qm.begin() as unit:
        for call in (qm.put, unit.put):
            with refused(qmgr.Inhibited, Reason.PUT_INHIBITED, queue):
                call(queue, b"")
        with refused(qmgr.Inhibited, Reason.PUT_INHIBITED, queue):
            qm.put_many(queue, [b""])
    assert qm.get(queue).body == b"x"
    qm.alter_queue(queue, put_enabled=True)
    qm.put(queue, b"y")
    assert qm.get(queue).body == b"y"


def test_gets_can_be_disabled_2016(qm: Manager, queue: str) -> None:
    qm.alter_queue(queue, get_enabled=False)
    qm.put(queue, b"x")
    with qm.begin() as unit:
        for call in (qm.get, unit.get, lambda name: list(qm.browse(name)), lambda name: qm.get_many(name, 1)):
            with refused(qmgr.Inhibited, Reason.GET_INHIBITED, queue):
                call(queue)
    qm.alter_queue(queue, get_enabled=True)
    assert qm.get(queue).body == b"x"


def test_max_depth_is_2053_and_counts_uncommitted_puts(face: Face) -> None:
    qm, queue = face.qm, face.queue(max_depth=2)
    qm.put(queue, b"1")
    unit = qm.begin()
    unit.put(queue, b"2")
    for call in (qm.put, unit.put):
        with pytest.raises(queues.Full):
            call(queue, b"3")
        with refused(qmgr.QueueFull, Reason.Q_FULL, queue):
            call(queue, b"3")
    unit.backout()
    qm.put(queue, b"3")
    with refused(qmgr.QueueFull, Reason.Q_FULL, queue):
        qm.put_many(queue, [b"4"])
    assert qm.get(queue).body == b"1"
    qm.put(queue, b"4")
    assert drain(qm, queue) == [b"3", b"4"]


def test_max_message_length_is_2030(face: Face) -> None:
    qm, queue = face.qm, face.queue(max_message_length=10)
    qm.put(queue, b"x" * 10, properties={"does": "not count"})
    with qm.begin() as unit:
        for call in (qm.put, unit.put):
            with refused(qmgr.MessageTooBig, Reason.MSG_TOO_BIG_FOR_Q, queue, "11 bytes"):
                call(queue, b"x" * 11)


def test_what_the_log_can_never_hold_is_2031(qm: Manager, queue: str) -> None:
    big = bytes(500_000)  # of a log of 768 KiB
    with qm.begin() as unit:
        for call in (qm.put, unit.put, lambda name, body: qm.put_many(name, [body])):
            with refused(qmgr.MessageTooBig, Reason.MSG_TOO_BIG_FOR_Q_MGR):
                call(queue, big)
    qm.put(queue, big, persistent=False)
    assert qm.get(queue).body == big
