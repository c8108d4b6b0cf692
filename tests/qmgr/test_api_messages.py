"""Putting, getting and browsing as an application meets it: the defaults, the order, and what is refused."""

import datetime
import errno
import http
import queue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr import Reason
from qmgr.batch import weight
from tests.qmgr.world import World, bodies, drain, soon


def test_a_message_comes_back_as_it_was_put(qm: qmgr.QueueManager) -> None:
    put = qm.put(
        "A",
        b"body",
        persistent=False,
        priority=7,
        expiry=60,
        message_id=b"m" * 24,
        correlation_id=b"c" * 24,
        reply_to="B",
        properties={"colour": "green"},
        format="MQSTR",
    )
    got = qm.get("A")
    for message in (put, got):
        assert message.body == b"body"
        assert message.message_id == b"m" * 24
        assert message.correlation_id == b"c" * 24
        assert (message.priority, message.persistent, message.backout_count) == (7, False, 0)
        assert message.expiry == pytest.approx(60, abs=1)
        assert (message.reply_to, message.format, message.queue) == ("B", "MQSTR", "A")
        assert dict(message.properties) == {"colour": "green"}
        assert message.put_time.tzinfo is datetime.UTC
    assert got.put_time == put.put_time


def test_what_is_not_given_is_the_default(qm: qmgr.QueueManager) -> None:
    message = qm.put("A", b"")
    assert (message.priority, message.persistent, message.expiry) == (0, True, None)
    assert (message.reply_to, message.format, dict(message.properties)) == ("", "", {})
    assert message.correlation_id == bytes(24)
    assert message.message_id.startswith(b"AMQ QM1         ")
    assert len(message.message_id) == 24


def test_what_is_not_given_is_the_default_of_the_queue(qm: qmgr.QueueManager) -> None:
    qm.define_queue("D", default_priority=3, default_persistence=False)
    message = qm.put("D", b"")
    assert (message.priority, message.persistent) == (3, False)
    given = qm.put("D", b"", priority=0, persistent=True)
    assert (given.priority, given.persistent) == (0, True)


def test_put_time_is_that_of_the_clock(world: World) -> None:
    world.clock.wall = 1_600_000_000_000_000
    message = world.qm.put("A", b"")
    assert message.put_time.replace(microsecond=0) == datetime.datetime(2020, 9, 13, 12, 26, 40, tzinfo=datetime.UTC)


def test_an_empty_body_is_a_message(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"")
    assert qm.get("A").body == b""


@pytest.mark.parametrize("body", [bytearray(b"xy"), memoryview(b"xy")])
def test_other_buffers_are_copied(qm: qmgr.QueueManager, body: Any) -> None:
    qm.put("A", body)
    got = qm.get("A").body
    assert got == b"xy"
    assert type(got) is bytes


def test_ids_are_unique_over_restarts(world: World) -> None:
    seen = set()
    for _ in range(3):
        seen |= {world.qm.put("A", b"").message_id for _ in range(10)}
        world.restart()
        seen |= {world.qm.put("A", b"").message_id for _ in range(10)}
        world.crash()
    assert len(seen) == 60


def test_a_short_id_is_filled_with_zeros(qm: qmgr.QueueManager) -> None:
    assert qm.put("A", b"", message_id=b"one", correlation_id=b"two").message_id == b"one".ljust(24, b"\0")
    assert qm.get("A", message_id=b"one").correlation_id == b"two".ljust(24, b"\0")


@pytest.mark.parametrize("nothing", [b"", bytes(24)])
def test_an_id_of_zeros_alone_asks_for_a_new_one(qm: qmgr.QueueManager, nothing: bytes) -> None:
    one = qm.put("A", b"", message_id=nothing)
    many = qm.put_many("A", [b"", b""], message_id=nothing)
    with qm.begin() as unit:
        unit.put("A", b"", message_id=nothing)
    ids = {message.message_id for message in qm.browse("A")}
    assert len(ids) == 4
    assert ids > {one.message_id, *(message.message_id for message in many)}
    assert bytes(24) not in ids


# ---- order


def test_priority_first_then_the_order_of_putting(qm: qmgr.QueueManager) -> None:
    for number, priority in enumerate([0, 9, 4, 9, 0, 4]):
        qm.put("A", b"%d.%d" % (priority, number), priority=priority)
    expected = [b"9.1", b"9.3", b"4.2", b"4.5", b"0.0", b"0.4"]
    assert bodies(qm, "A") == expected
    assert drain(qm, "A") == expected


def test_fifo_disregards_priority(qm: qmgr.QueueManager) -> None:
    qm.define_queue("F", delivery_sequence="FIFO")
    for number, priority in enumerate([0, 9, 4]):
        qm.put("F", b"%d" % number, priority=priority)
    assert bodies(qm, "F") == [b"0", b"1", b"2"]
    assert drain(qm, "F") == [b"0", b"1", b"2"]


def test_the_order_is_that_of_commit_and_not_of_put(world: World) -> None:
    qm = world.qm
    first, second = qm.begin(), qm.begin()
    first.put("A", b"put first")
    second.put("A", b"put second")
    qm.put("A", b"outside")
    second.commit()
    first.commit()
    expected = [b"outside", b"put second", b"put first"]
    assert bodies(qm, "A") == expected
    assert bodies(world.crash(), "A") == expected
    assert drain(world.qm, "A") == expected


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 9)),
            st.tuples(st.just("get"), st.just(0)),
            st.tuples(st.just("begin"), st.just(0)),
            st.tuples(st.just("uput"), st.integers(0, 9)),
            st.tuples(st.just("uget"), st.just(0)),
            st.tuples(st.just("commit"), st.just(0)),
            st.tuples(st.just("backout"), st.just(0)),
            st.tuples(st.just("restart"), st.just(0)),
            st.tuples(st.just("alter"), st.just(0)),
        ),
        max_size=30,
    )
)
def test_delivery_equals_that_of_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.qm.define_queue("Q")
    fifo = False
    there: list[tuple[int, int, bytes]] = []  # priority, moment of commit, body
    moment = 0
    unit: Any = None
    puts: list[tuple[int, bytes]] = []
    gets: list[tuple[int, int, bytes]] = []

    def order() -> list[tuple[int, int, bytes]]:
        return sorted(there, key=lambda m: (0 if fifo else -m[0], m[1]))

    for step, priority in steps:
        moment += 1
        body = b"%d" % moment
        if step == "put":
            world.qm.put("Q", body, priority=priority)
            there.append((priority, moment, body))
        elif step == "get" and there:
            best = order()[0]
            assert world.qm.get("Q").body == best[2]
            there.remove(best)
        elif step == "begin" and unit is None:
            unit = world.qm.begin()
        elif step == "uput" and unit is not None:
            unit.put("Q", body, priority=priority)
            puts.append((priority, body))
        elif step == "uget" and unit is not None and there:
            best = order()[0]
            assert unit.get("Q").body == best[2]
            there.remove(best)
            gets.append(best)
        elif step == "commit" and unit is not None:
            unit.commit()
            for put_priority, put_body in puts:
                moment += 1
                there.append((put_priority, moment, put_body))
            unit, puts, gets = None, [], []
        elif step in ("backout", "restart") and (unit is not None or step == "restart"):
            if step == "backout":
                unit.backout()
            else:
                world.restart()
            there += gets
            unit, puts, gets = None, [], []
        elif step == "alter":
            fifo = not fifo
            world.qm.alter_queue("Q", delivery_sequence="FIFO" if fifo else "PRIORITY")
        assert bodies(world.qm, "Q") == [body for _, _, body in order()]


# ---- selection


def test_get_by_message_id_takes_that_one_from_the_middle(qm: qmgr.QueueManager) -> None:
    ids = [qm.put("A", b"%d" % n).message_id for n in range(5)]
    assert qm.get("A", message_id=ids[3]).body == b"3"
    assert qm.get("A", message_id=ids[0]).body == b"0"
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A", message_id=ids[3])
    assert drain(qm, "A") == [b"1", b"2", b"4"]


def test_get_by_correlation_id_takes_them_in_order_of_delivery(qm: qmgr.QueueManager) -> None:
    for n in range(6):
        qm.put("A", b"%d" % n, correlation_id=b"odd" if n % 2 else b"even", priority=9 if n == 5 else 0)
    assert [m.body for m in qm.browse("A", correlation_id=b"odd")] == [b"5", b"1", b"3"]
    assert [m.body for m in qm.get_many("A", 10, correlation_id=b"odd")] == [b"5", b"1", b"3"]
    assert drain(qm, "A") == [b"0", b"2", b"4"]


def test_get_by_both_ids_needs_both(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"1", message_id=b"m", correlation_id=b"c")
    qm.put("A", b"2", message_id=b"m", correlation_id=b"d")
    qm.put("A", b"3", message_id=b"n", correlation_id=b"d")
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A", message_id=b"n", correlation_id=b"c")
    assert qm.get("A", message_id=b"m", correlation_id=b"d").body == b"2"
    assert drain(qm, "A") == [b"1", b"3"]


def test_a_message_that_was_backed_out_is_found_by_its_ids(qm: qmgr.QueueManager) -> None:
    """The index is made while a unit of work holds the message, which has left the front of the queue by then."""
    ids = [qm.put("A", b"%d" % n, correlation_id=b"c%d" % n).message_id for n in range(3)]
    unit = qm.begin()
    assert unit.get("A").body == b"0"
    assert qm.get("A").body == b"1"
    assert qm.get("A", message_id=ids[2]).body == b"2"
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A", correlation_id=b"c0")
    unit.backout()
    assert [m.body for m in qm.browse("A", correlation_id=b"c0")] == [b"0"]
    assert qm.get("A", message_id=ids[0]).body == b"0"


def test_a_message_of_a_restart_is_found_by_its_ids(world: World) -> None:
    wanted = world.qm.put("A", b"1", correlation_id=b"c").message_id
    world.restart()
    assert [m.body for m in world.qm.browse("A", correlation_id=b"c")] == [b"1"]
    assert world.qm.get("A", message_id=wanted).body == b"1"


# ---- expiry


def test_a_message_whose_time_is_over_is_not_delivered(world: World) -> None:
    qm = world.qm
    qm.put("A", b"short", expiry=1.5)
    qm.put("A", b"long", expiry=100)
    qm.put("A", b"for ever")
    world.clock.advance(1.4)
    assert bodies(qm, "A") == [b"short", b"long", b"for ever"]
    world.clock.advance(0.2)
    assert bodies(qm, "A") == [b"long", b"for ever"]
    message = qm.get("A")
    assert message.body == b"long"
    assert message.expiry == pytest.approx(98.4, abs=0.1)
    assert qm.queue("A").depth == 1


def test_expired_messages_are_passed_over_by_every_way_of_getting(world: World) -> None:
    qm = world.qm
    ids = [qm.put("A", b"%d" % n, expiry=1 + n, correlation_id=b"c").message_id for n in range(4)]
    world.clock.advance(1.5)
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A", message_id=ids[0])
    assert [m.body for m in qm.browse("A", correlation_id=b"c")] == [b"1", b"2", b"3"]
    world.clock.advance(1)
    with qm.begin() as unit:
        assert [m.body for m in unit.get_many("A", 10)] == [b"2", b"3"]
    assert qm.queue("A").depth == 0


@pytest.mark.parametrize("paged", [False, True])
def test_a_browse_removes_the_expired_messages_that_it_finds(world: World, paged: bool) -> None:
    """Else a queue that looks empty is full."""
    world.qm.define_queue("Q", max_depth=6, default_persistence=True)
    for number in range(6):
        world.qm.put("Q", b"%d" % number, expiry=1.0 if number % 2 else None)
    if paged:
        world.qm.checkpoint()
        world.crash()
    world.clock.advance(2)
    with pytest.raises(qmgr.QueueFull):
        world.qm.put("Q", b"one more")
    assert [message.body for message in world.qm.browse("Q")] == [b"0", b"2", b"4"]
    assert world.qm.queue("Q").depth == 3
    world.qm.put("Q", b"one more")
    world.crash()
    assert [message.body for message in world.qm.get_many("Q", 9)] == [b"0", b"2", b"4", b"one more"]


def test_a_browse_that_finds_expired_messages_and_a_log_that_fails_says_that_it_has(world: World) -> None:
    world.qm.define_queue("Q", default_persistence=True)
    for _ in range(5):
        world.qm.put_many("Q", [b"x"] * 1000, expiry=1.0)
    world.clock.advance(2)
    world.disk.fail("write", errno.EIO, once=False, where=lambda path: path.endswith(".LOG"))
    with pytest.raises(qmgr.Unavailable):
        for _ in range(100):
            list(world.qm.browse("Q"))
            world.qm.put("Q", b"y")
    assert world.qm.refusal is not None


def test_a_browse_leaves_what_a_unit_of_work_has_got(world: World) -> None:
    world.qm.define_queue("Q")
    world.qm.put("Q", b"expires", expiry=1.0)
    unit = world.qm.begin()
    unit.get("Q")
    world.clock.advance(2)
    assert list(world.qm.browse("Q")) == []
    assert world.qm.queue("Q").uncommitted == 1
    unit.backout()
    assert list(world.qm.browse("Q")) == []
    assert (world.qm.queue("Q").depth, world.qm.queue("Q").uncommitted) == (0, 0)


def test_the_sweep_removes_expired_messages_without_a_get(world: World) -> None:
    qm = world.qm
    qm.put_many("A", [b"x"] * 250, expiry=10)
    qm.put_many("A", [b"n"] * 3, expiry=10, persistent=False)
    qm.put("A", b"stays")
    world.clock.advance(301)  # ExpiryInterval
    qm.put("B", b"any call")
    assert qm.queue("A").depth == 1
    assert bodies(qm, "A") == [b"stays"]
    world.crash()
    assert bodies(world.qm, "A") == [b"stays"]


def test_expiry_interval_is_configured(world: World) -> None:
    world.set_ini("ExpiryInterval", "20")
    qm = world.restart()
    qm.put("A", b"x", expiry=5)
    world.clock.advance(19)
    qm.put("B", b"")
    assert qm.queue("A").depth == 1
    world.clock.advance(2)
    qm.put("B", b"")
    assert qm.queue("A").depth == 0


def test_time_goes_on_while_the_queue_manager_is_down(world: World) -> None:
    world.qm.put("A", b"short", expiry=10)
    world.qm.put("A", b"long", expiry=1000)
    world.qm.end()
    world.clock.advance(20)
    world.start()
    assert bodies(world.qm, "A") == [b"long"]
    world.clock.advance(20)
    world.crash()
    assert world.qm.get("A").expiry == pytest.approx(960, abs=1)


def test_expiry_cap_bounds_what_puts_ask_for(world: World) -> None:
    qm = world.qm
    qm.define_queue("C", expiry_cap=5)
    assert qm.put("C", b"none asked").expiry == 5
    assert qm.put("C", b"more asked", expiry=100).expiry == 5
    assert qm.put("C", b"less asked", expiry=2).expiry == 2
    world.clock.advance(3)
    assert bodies(qm, "C") == [b"none asked", b"more asked"]
    world.clock.advance(3)
    assert bodies(qm, "C") == []
    qm.alter_queue("C", expiry_cap=None)
    assert qm.put("C", b"").expiry is None


def test_a_message_that_expires_while_it_is_locked_is_gone_when_it_is_backed_out(world: World) -> None:
    qm = world.qm
    qm.put("A", b"x", expiry=5)
    unit = qm.begin()
    assert unit.get("A").body == b"x"
    world.clock.advance(6)
    unit.backout()
    with pytest.raises(qmgr.NoMessageAvailable):
        qm.get("A")
    assert qm.queue("A").depth == 0


def test_the_time_of_an_uncommitted_put_runs_from_the_put(world: World) -> None:
    unit = world.qm.begin()
    unit.put("A", b"x", expiry=5)
    world.clock.advance(6)
    unit.commit()
    with pytest.raises(qmgr.NoMessageAvailable):
        world.qm.get("A")


# ---- browse


def test_browse_takes_nothing_away_and_may_be_left(qm: qmgr.QueueManager) -> None:
    for n in range(3):
        qm.put("A", b"%d" % n)
    looking = qm.browse("A")
    assert next(looking).body == b"0"
    assert bodies(qm, "A") == [b"0", b"1", b"2"]
    assert qm.queue("A").depth == 3


def test_browse_skips_what_is_gone_when_its_turn_comes(qm: qmgr.QueueManager) -> None:
    for n in range(4):
        qm.put("A", b"%d" % n)
    looking = qm.browse("A")
    assert next(looking).body == b"0"
    unit = qm.begin()
    assert [m.body for m in unit.get_many("A", 2)] == [b"0", b"1"]
    assert [m.body for m in looking] == [b"2", b"3"]


def test_browse_shows_no_uncommitted_message(qm: qmgr.QueueManager) -> None:
    unit = qm.begin()
    unit.put("A", b"x")
    assert bodies(qm, "A") == []
    unit.commit()
    assert bodies(qm, "A") == [b"x"]


@pytest.mark.parametrize("selected", [False, True])
def test_browse_shows_each_message_once_though_the_order_of_delivery_is_altered(
    qm: qmgr.QueueManager, selected: bool
) -> None:
    bodies = [b"%d" % n for n in range(400)]
    for n, body in enumerate(bodies):
        qm.put("A", body, priority=n * 7 % 10, correlation_id=b"x")
    looked_at = []
    for n, message in enumerate(qm.browse("A", correlation_id=b"x" if selected else None)):
        looked_at.append(message.body)
        if n % 70 == 69:
            qm.alter_queue("A", delivery_sequence="FIFO" if n % 140 == 69 else "PRIORITY")
    assert sorted(looked_at) == sorted(bodies)


def test_browse_of_an_unknown_queue_is_refused_at_the_call(qm: qmgr.QueueManager) -> None:
    with pytest.raises(qmgr.UnknownQueue):
        qm.browse("NO")


# ---- many at a time


def test_put_many_and_get_many_keep_order_options_and_ids(world: World) -> None:
    qm = world.qm
    put = qm.put_many(
        "A", [b"%d" % n for n in range(100)], priority=2, expiry=50, correlation_id=b"batch", properties={"n": 1},
        format="MQSTR", reply_to="B",
    )  # fmt: skip
    assert len({m.message_id for m in put}) == 100
    world.crash()
    got = world.qm.get_many("A", 60) + world.qm.get_many("A", 60)
    assert [m.body for m in got] == [b"%d" % n for n in range(100)]
    assert [m.message_id for m in got] == [m.message_id for m in put]
    assert {(m.priority, m.format, m.reply_to, m.persistent) for m in got} == {(2, "MQSTR", "B", True)}
    assert {m.correlation_id for m in got} == {b"batch".ljust(24, b"\0")}
    assert all(dict(m.properties) == {"n": 1} and m.expiry is not None and m.expiry <= 50 for m in got)
    assert world.qm.get_many("A", 5) == []


def test_put_many_takes_any_iterable_and_may_be_empty(qm: qmgr.QueueManager) -> None:
    assert [m.body for m in qm.put_many("A", (b"%d" % n for n in range(3)))] == [b"0", b"1", b"2"]
    assert qm.put_many("A", []) == []
    assert qm.queue("A").depth == 3


def test_put_many_is_all_or_nothing(qm: qmgr.QueueManager) -> None:
    qm.define_queue("S", max_depth=3, max_message_length=5)
    for wrong in ([b"1", b"2", b"3", b"4"], [b"1", b"123456"], [b"1", "2"], [b"1", None]):
        with pytest.raises(qmgr.MQError):
            qm.put_many("S", wrong)  # type: ignore[arg-type]
        with qm.begin() as unit, pytest.raises(qmgr.MQError):
            unit.put_many("S", wrong)  # type: ignore[arg-type]
    assert qm.queue("S").depth == 0
    assert qm.queue("S").uncommitted == 0


def test_put_many_with_one_id_gives_it_to_all(qm: qmgr.QueueManager) -> None:
    qm.put_many("A", [b"1", b"2"], message_id=b"same")
    assert [m.body for m in qm.get_many("A", 9, message_id=b"same")] == [b"1", b"2"]


def test_put_many_of_an_unknown_option_is_refused(qm: qmgr.QueueManager) -> None:
    with pytest.raises(TypeError, match="colour"):
        qm.put_many("A", [b""], colour="red")  # type: ignore[call-arg]
    assert qm.queue("A").depth == 0


def test_get_many_takes_up_to_the_limit_of_whatever_kind(qm: qmgr.QueueManager) -> None:
    for n in range(6):
        qm.put("A", b"%d" % n, persistent=n % 2 == 0)
    assert [m.body for m in qm.get_many("A", 4)] == [b"0", b"1", b"2", b"3"]
    assert [m.body for m in qm.get_many("A", 10**9)] == [b"4", b"5"]


def test_get_many_of_more_than_the_log_buffer_can_name(world: World) -> None:
    """The record of such a get is larger than the buffer of 18 pages; a put afterwards finds the log at work."""
    qm = world.qm
    for _ in range(6):
        qm.put_many("A", [b""] * 1000)
    assert len(soon(lambda: qm.get_many("A", 100_000))) == 6000
    soon(lambda: qm.put("A", b"after"))
    assert bodies(world.crash(), "A") == [b"after"]


# ---- properties


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"])),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False),
            st.booleans(),
            st.binary(),
        ),
        max_size=6,
    )
)
def test_properties_of_every_type_survive_a_restart(properties: dict[str, Any]) -> None:
    world = World()
    world.qm.define_queue("Q")
    world.qm.put("Q", b"body", properties=properties)
    found = dict(world.crash().get("Q").properties)
    assert found == properties
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in properties.items()}


def test_a_message_is_not_changed_by_changing_what_it_was_made_of(qm: qmgr.QueueManager) -> None:
    properties: dict[str, Any] = {"n": 1}
    body: Any = bytearray(b"one")
    put = qm.put("A", body, properties=properties)
    body[:] = b"two"
    properties["n"] = 2
    assert (put.body, dict(put.properties)) == (b"one", {"n": 1})
    got = qm.get("A")
    assert (got.body, dict(got.properties)) == (b"one", {"n": 1})


# ---- refusals


WRONG_PUTS: list[tuple[dict[str, Any], Reason]] = [
    ({"body": "text"}, Reason.MD_ERROR),
    ({"body": None}, Reason.MD_ERROR),
    ({"body": 5}, Reason.MD_ERROR),
    ({"body": [b"x"]}, Reason.MD_ERROR),
    ({"priority": 10}, Reason.PRIORITY_EXCEEDS_MAXIMUM),
    ({"priority": -1}, Reason.PRIORITY_ERROR),
    ({"priority": "4"}, Reason.PRIORITY_ERROR),
    ({"priority": 4.0}, Reason.PRIORITY_ERROR),
    ({"priority": True}, Reason.PRIORITY_ERROR),
    ({"persistent": 1}, Reason.PERSISTENCE_ERROR),
    ({"persistent": "yes"}, Reason.PERSISTENCE_ERROR),
    ({"expiry": 0}, Reason.EXPIRY_ERROR),
    ({"expiry": -1}, Reason.EXPIRY_ERROR),
    ({"expiry": float("nan")}, Reason.EXPIRY_ERROR),
    ({"expiry": float("inf")}, Reason.EXPIRY_ERROR),
    ({"expiry": 1e9}, Reason.EXPIRY_ERROR),
    ({"expiry": "5"}, Reason.EXPIRY_ERROR),
    ({"expiry": datetime.timedelta(seconds=5)}, Reason.EXPIRY_ERROR),
    ({"message_id": b"x" * 25}, Reason.MD_ERROR),
    ({"message_id": "x" * 24}, Reason.MD_ERROR),
    ({"correlation_id": b"x" * 25}, Reason.MD_ERROR),
    ({"correlation_id": 5}, Reason.MD_ERROR),
    ({"reply_to": "no good"}, Reason.OBJECT_NAME_ERROR),
    ({"reply_to": 5}, Reason.OBJECT_NAME_ERROR),
    ({"format": "NINE CHRS"}, Reason.MD_ERROR),
    ({"format": "ä"}, Reason.MD_ERROR),
    ({"format": b"MQSTR"}, Reason.MD_ERROR),
    ({"properties": [("a", 1)]}, Reason.PROPERTY_NAME_ERROR),
    ({"properties": {"": 1}}, Reason.PROPERTY_NAME_ERROR),
    ({"properties": {"n" * 256: 1}}, Reason.PROPERTY_NAME_ERROR),
    ({"properties": {5: 1}}, Reason.PROPERTY_NAME_ERROR),
    ({"properties": {"a": None}}, Reason.PROPERTY_TYPE_ERROR),
    ({"properties": {"a": [1]}}, Reason.PROPERTY_TYPE_ERROR),
    ({"properties": {"a": 2**63}}, Reason.PROPERTY_TYPE_ERROR),
    ({"properties": {"a": "\ud800"}}, Reason.PROPERTY_NAME_ERROR),
    ({"properties": {"\ud800": 1}}, Reason.PROPERTY_NAME_ERROR),
    ({"group_id": {b"set"}}, Reason.GROUP_ID_ERROR),
    ({"group_id": b"g", "group_sequence": http.HTTPStatus.OK}, Reason.MSG_SEQ_NUMBER_ERROR),
    ({"group_id": b"g", "last_in_group": {b"set"}}, Reason.MSG_FLAGS_ERROR),
]


@pytest.mark.parametrize(("options", "reason"), WRONG_PUTS, ids=lambda value: str(value)[:50])
def test_a_wrong_put_is_a_mistake_and_changes_nothing(
    qm: qmgr.QueueManager, options: dict[str, Any], reason: Reason
) -> None:
    options = {"body": b""} | options
    with pytest.raises(qmgr.Mistake) as caught:
        qm.put("A", **options)
    assert caught.value.reason == reason
    assert f"({reason.value} MQRC_{reason.name})" in str(caught.value)
    with qm.begin() as unit:
        with pytest.raises(qmgr.Mistake):
            unit.put("A", **options)
        with pytest.raises(qmgr.Mistake):
            unit.put_many("A", [options["body"]], **{name: v for name, v in options.items() if name != "body"})
    assert (qm.queue("A").depth, qm.queue("A").uncommitted) == (0, 0)
    assert qm.status().messages == 0


@pytest.mark.parametrize("wait", [-1, -0.001, float("nan"), "1", True, False, b"", [1]])
def test_a_wrong_wait_is_2090(qm: qmgr.QueueManager, wait: Any) -> None:
    for get in (qm.get, lambda name, wait: qm.get_many(name, 1, wait=wait), qm.begin().get):
        with pytest.raises(qmgr.Mistake) as caught:
            get("A", wait=wait)
        assert caught.value.reason == Reason.WAIT_INTERVAL_ERROR


@pytest.mark.parametrize("limit", [0, -1, 1.0, "1", None, True])
def test_a_wrong_limit_is_refused(qm: qmgr.QueueManager, limit: Any) -> None:
    qm.put("A", b"")
    for get_many in (qm.get_many, qm.begin().get_many):
        with pytest.raises(qmgr.Mistake, match="limit"):
            get_many("A", limit)
    assert qm.queue("A").depth == 1


@pytest.mark.parametrize(
    "selector", [{"message_id": b"x" * 25}, {"correlation_id": "c"}, {"message_id": 1}, {"message_id": False}]
)
def test_a_wrong_selector_is_refused(qm: qmgr.QueueManager, selector: dict[str, Any]) -> None:
    for call in (qm.get, qm.browse, qm.begin().get):
        with pytest.raises(qmgr.Mistake) as caught:
            call("A", **selector)
        assert caught.value.reason == Reason.MD_ERROR


@pytest.mark.parametrize("name", ["", "x" * 49, "a b", "a\n", "ü", "a*", 5, None, b"A", ["A"], {}])
def test_a_name_that_can_be_none_is_2152(qm: qmgr.QueueManager, name: Any) -> None:
    unit = qm.begin()
    for call in (
        lambda: qm.put(name, b""),
        lambda: qm.get(name),
        lambda: qm.put_many(name, [b""]),
        lambda: qm.get_many(name, 1),
        lambda: qm.browse(name),
        lambda: qm.queue(name),
        lambda: qm.define_queue(name),
        lambda: qm.alter_queue(name),
        lambda: qm.delete_queue(name),
        lambda: unit.put(name, b""),
        lambda: unit.get(name),
    ):
        with pytest.raises(qmgr.Mistake) as caught:
            call()
        assert caught.value.reason == Reason.OBJECT_NAME_ERROR


def test_an_unknown_queue_is_2085_and_named(qm: qmgr.QueueManager) -> None:
    unit = qm.begin()
    for call in (
        lambda: qm.put("NO", b""),
        lambda: qm.get("NO"),
        lambda: qm.get_many("NO", 1),
        lambda: qm.put_many("NO", [b""]),
        lambda: qm.put_many("NO", []),
        lambda: qm.queue("NO"),
        lambda: qm.alter_queue("NO", put_enabled=False),
        lambda: qm.delete_queue("NO"),
        lambda: unit.put("NO", b""),
        lambda: unit.get("NO"),
    ):
        with pytest.raises(qmgr.UnknownQueue, match="'NO'") as caught:
            call()
        assert (caught.value.reason, caught.value.name) == (Reason.UNKNOWN_OBJECT_NAME, "NO")
    with pytest.raises(qmgr.UnknownQueue):
        qm.put("a", b"")  # names have upper and lower case


def test_nothing_there_is_2033_and_a_queue_empty(qm: qmgr.QueueManager) -> None:
    with pytest.raises(queue.Empty) as caught:
        qm.get("A")
    assert isinstance(caught.value, qmgr.NoMessageAvailable)
    assert isinstance(caught.value, qmgr.TryAgain)
    assert (caught.value.reason, caught.value.name) == (Reason.NO_MSG_AVAILABLE, "A")


def test_puts_can_be_disabled_2051(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"x")
    qm.alter_queue("A", put_enabled=False)
    for call in (qm.put, qm.begin().put):
        with pytest.raises(qmgr.Inhibited) as caught:
            call("A", b"")
        assert caught.value.reason == Reason.PUT_INHIBITED
    assert qm.get("A").body == b"x"
    qm.alter_queue("A", put_enabled=True)
    qm.put("A", b"y")
    assert qm.get("A").body == b"y"


def test_gets_can_be_disabled_2016(qm: qmgr.QueueManager) -> None:
    qm.alter_queue("A", get_enabled=False)
    qm.put("A", b"x")
    for call in (qm.get, qm.begin().get, qm.browse, lambda name: qm.get_many(name, 1)):
        with pytest.raises(qmgr.Inhibited) as caught:
            call("A")
        assert caught.value.reason == Reason.GET_INHIBITED
    qm.alter_queue("A", get_enabled=True)
    assert qm.get("A").body == b"x"


def test_max_depth_is_2053_and_counts_uncommitted_puts(qm: qmgr.QueueManager) -> None:
    qm.define_queue("S", max_depth=2)
    qm.put("S", b"1")
    unit = qm.begin()
    unit.put("S", b"2")
    for call in (qm.put, unit.put):
        with pytest.raises(queue.Full) as caught:
            call("S", b"3")
        assert isinstance(caught.value, qmgr.QueueFull)
        assert caught.value.reason == Reason.Q_FULL
    unit.backout()
    qm.put("S", b"3")
    with pytest.raises(qmgr.QueueFull):
        qm.put_many("S", [b"4"])
    assert qm.get("S").body == b"1"
    qm.put("S", b"4")
    assert drain(qm, "S") == [b"3", b"4"]


def test_max_message_length_is_2030(qm: qmgr.QueueManager) -> None:
    qm.define_queue("S", max_message_length=10)
    qm.put("S", b"x" * 10, properties={"does": "not count"})
    with pytest.raises(qmgr.MessageTooBig, match="11 bytes") as caught:
        qm.put("S", b"x" * 11)
    assert caught.value.reason == Reason.MSG_TOO_BIG_FOR_Q
    qm.define_queue("N", max_message_length=0)
    qm.put("N", b"")
    with pytest.raises(qmgr.MessageTooBig):
        qm.put("N", b"x", persistent=False)


def test_what_the_log_can_never_hold_is_2031(qm: qmgr.QueueManager) -> None:
    big = bytes(500_000)  # of a log of 768 KiB
    for call in (qm.put, qm.begin().put, lambda name, body: qm.put_many(name, [body])):
        with pytest.raises(qmgr.MessageTooBig) as caught:
            call("A", big)
        assert caught.value.reason == Reason.MSG_TOO_BIG_FOR_Q_MGR
        assert "put less at once, or give it more or larger files" in str(caught.value)
    qm.put("A", big, persistent=False)
    assert qm.get("A").body == big


@pytest.mark.parametrize("size", [1, 4000, 30_000, 40_000, 70_000, 200_000, 262_144, 300_000])
def test_row_20_messages_of_every_size_come_back_from_the_log(size: int) -> None:
    world = World()
    world.qm.define_queue("Q")
    sent = []
    for n in range(3):
        body = bytes([65 + n]) * size
        sent.append(body)
        world.qm.put("Q", body)
        assert bodies(world.crash(), "Q") == sent[-1:]
        assert world.qm.get("Q").body == body


def test_a_deleted_queue_is_not_known_any_more(qm: qmgr.QueueManager) -> None:
    qm.delete_queue("A")
    for call in (lambda: qm.put("A", b""), lambda: qm.get("A"), lambda: qm.browse("A")):
        with pytest.raises(qmgr.UnknownQueue):
            call()


def test_wait_for_ages_is_a_wait(world: World) -> None:
    """Longer than the system can wait for at a time."""
    world.qm.put("A", b"x")
    assert world.qm.get("A", wait=1e300).body == b"x"
    assert world.qm.get_many("A", 1, wait=5) == []
    assert world.clock.waited == [5.0]


@pytest.mark.parametrize("expiry", [None, 100.0])
@pytest.mark.parametrize("known", [False, True])
def test_put_many_leaves_a_queue_as_puts_do(*, known: bool, expiry: float | None) -> None:
    """Also where messages are found by their ids, and so have been looked for before."""
    together, alone = World(), World()
    for world in (together, alone):
        world.qm.define_queue("A")
        if known:
            assert not world.qm.get_many("A", 1, correlation_id=b"c" * 24)
        world.qm.checkpoint()
    together.qm.put_many("A", [b"1", b"22"], correlation_id=b"c" * 24, expiry=expiry)
    for body in (b"1", b"22"):
        alone.qm.put("A", body, correlation_id=b"c" * 24, expiry=expiry)
    queues = [world.qm._engine.state.queues["A"] for world in (together, alone)]
    for what in ("depth", "next_sequence", "expiring", "memory_bytes", "changed"):
        assert getattr(queues[0], what) == getattr(queues[1], what), what
    assert weight(queues[0].fresh[1]) == weight(queues[1].fresh[1]) > 0
    for body in (b"1", b"22"):
        assert together.qm.get("A", correlation_id=b"c" * 24).body == body


def test_a_type_that_is_not_pythons_own_is_told_with_its_module() -> None:
    """Of numpy's bool it was "is a bool; allowed: str, int, float, bool, bytes"; and bytes of Arrow are no text."""
    qm = World().qm
    qm.define_queue("A")
    other = type("bool", (), {"__module__": "numpy"})()
    with pytest.raises(qmgr.Mistake, match=r"property 'a' is a numpy\.bool; allowed: str, int, float, bool, bytes"):
        qm.put("A", b"x", properties={"a": other})
    with pytest.raises(qmgr.Mistake, match=r"a message body is bytes, not numpy\.bool; make bytes of it first"):
        qm.put("A", other)
    with pytest.raises(qmgr.Mistake, match="a message body is bytes, not str; encode text first"):
        qm.put("A", "x")  # type: ignore[arg-type]
