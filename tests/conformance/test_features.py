"""Aliases, groups, backout thresholds, dead letters, consuming, MQSC, rights and outcomes over every face."""

import datetime
import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

import qmgr
from qmgr import Reason, UowState, deadletter
from qmgr.errors import NameError_
from qmgr.mqsc import MqscResult
from qmgr.objects import AliasDefinition
from tests.conformance.calls import bodies, drain, facts, refused
from tests.conformance.faces import Face, numbers
from tests.conformance.test_units import new_xid

Manager = qmgr.QueueManager


def test_every_verb_takes_an_alias(face: Face) -> None:
    qm, queue, name = face.qm, face.queue(), f"ALSO{next(numbers)}"
    alias = qm.define_alias(name, queue, description="another name")
    assert type(alias) is AliasDefinition
    assert (alias.name, alias.target, alias.description) == (name, queue, "another name")
    assert alias in qm.aliases()
    assert qm.put(name, b"one").queue == queue
    assert {one.queue for one in qm.put_many(name, [b"two", b"three"])} == {queue}
    assert bodies(qm, name) == bodies(qm, queue) == [b"one", b"two", b"three"]
    with qm.begin() as unit:
        assert facts(unit.get(name))["queue"] == queue
        assert unit.put(name, b"four").queue == queue
        assert [m.queue for m in unit.get_many(name, 5)] == [queue] * 2
    assert qm.queue(name).name == queue
    changed = qm.alter_alias(name, get_enabled=False)
    assert changed == attrs.evolve(alias, get_enabled=False)
    with refused(qmgr.Inhibited, Reason.GET_INHIBITED, name):
        qm.get(name)
    assert drain(qm, queue) == [b"four"]
    with refused(qmgr.AlreadyExists, Reason.OBJECT_ALREADY_EXISTS, name):
        qm.define_queue(name)
    qm.delete_queue(queue)
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_ALIAS_BASE_Q):
        qm.put(name, b"")
    qm.delete_alias(name)
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, name):
        qm.put(name, b"")


@pytest.mark.parametrize("name", ["a b", 5], ids=repr)
def test_what_can_be_no_name_of_an_alias_is_called_so(qm: Manager, name: Any) -> None:
    for call in (lambda: qm.define_alias(name, "A"), lambda: qm.alter_alias(name), lambda: qm.delete_alias(name)):
        with refused(NameError_, Reason.OBJECT_NAME_ERROR, str(name), "can't be the name of an alias"):
            call()
    with refused(NameError_, Reason.OBJECT_NAME_ERROR, "a b", "can't be the name of a queue"):
        qm.define_alias(f"ALSO{next(numbers)}", "a b")


def test_groups_come_in_their_order_and_whole(qm: Manager, queue: str) -> None:
    for number in (2, 3, 1):
        put = qm.put(queue, b"G%d" % number, group_id=b"G", group_sequence=number, last_in_group=number == 3)
        assert (put.group_id, put.group_sequence, put.last_in_group) == (b"G".ljust(24, b"\0"), number, number == 3)
    with qm.begin() as unit:
        unit.put_many(queue, [b"H1", b"H2"], group_id=b"H")
    with qm.begin() as unit:
        got = [unit.get(queue, logical_order=True) for _ in range(3)]
        assert [(m.body, m.group_sequence) for m in got] == [(b"G1", 1), (b"G2", 2), (b"G3", 3)]
        with refused(qmgr.NoMessageAvailable, Reason.NO_MSG_AVAILABLE, queue):
            unit.get(queue, all_available=True)
        unit.backout()
    assert [m.body for m in qm.get_many(queue, 9, group_id=b"H")] == [b"H1", b"H2"]
    with refused(qmgr.Mistake, Reason.MSG_SEQ_NUMBER_ERROR, ""):
        qm.put_many(queue, [b"last", b"beyond"], group_id=b"H", group_sequence=999_999_999)
    assert qm.get_many(queue, 9, group_id=b"H") == []
    with refused(qmgr.Mistake, Reason.INCONSISTENT_UOW):
        qm.get(queue, logical_order=True)


def test_a_message_that_was_backed_out_too_often_is_moved_away(face: Face) -> None:
    qm, failed = face.qm, face.queue()
    queue = face.queue(backout_threshold=2, backout_queue=failed)
    qm.put_many(queue, [b"poison", b"good"])
    for _ in range(2):
        unit = qm.begin()
        assert unit.get(queue, backout_requeue=True).body == b"poison"
        unit.backout()
    with qm.begin() as unit:
        assert unit.get(queue, backout_requeue=True, wait=5).body == b"good"
        assert bodies(qm, failed) == []
    assert [(m.body, m.backout_count) for m in qm.browse(failed)] == [(b"poison", 0)]


@pytest.fixture
def dead(face: Face) -> Iterator[str]:
    """A dead-letter queue."""
    name = face.queue()
    face.qm.alter(dead_letter_queue=name)
    yield name
    face.qm.alter(dead_letter_queue="")


def test_dead_letters_say_why(face: Face, dead: str) -> None:
    qm, queue = face.qm, face.queue()
    qm.put(queue, b"body", format="MQSTR")
    for outcome in ("backout", "commit"):
        with qm.begin() as unit:
            put = qm.dead_letter(unit, unit.get(queue), 2030)
            assert type(put) is qmgr.Message
            getattr(unit, outcome)()
        assert (len(bodies(qm, queue)), len(bodies(qm, dead))) == ((1, 0) if outcome == "backout" else (0, 1))
    assert qm.dead_letter(None, qm.put(queue, b"other")).queue == dead
    first, second = qm.get_many(dead, 9)
    header, body = deadletter.decode(first.body)
    assert (header.reason, header.queue, header.format, body) == (2030, queue, "MQSTR", b"body")
    assert deadletter.decode(second.body)[0].reason == Reason.BACKOUT_THRESHOLD_REACHED


def test_without_a_dead_letter_queue_it_is_2085(qm: Manager, queue: str) -> None:
    message = qm.put(queue, b"body")
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, match="dead_letter_queue"):
        qm.dead_letter(None, message)
    with refused(qmgr.Mistake, Reason.MD_ERROR):
        qm.dead_letter(None, b"body")  # type: ignore[arg-type]
    with refused(qmgr.Mistake, Reason.DLH_ERROR):
        qm.dead_letter(None, message, 2**31)


def test_consume_gives_each_message_in_a_unit_of_work(face: Face) -> None:
    qm, queue, target = face.qm, face.queue(), face.queue()
    qm.put_many(queue, [b"1", b"2", b"3"])
    for message, unit in qm.consume(queue, wait=0.0):
        if message.body == b"2" and not message.backout_count:
            unit.backout()
            continue
        with unit:
            unit.put(target, message.body * 2)
    assert drain(qm, target) == [b"11", b"22", b"33"]
    assert qm.transactions() == []
    qm.put_many(queue, [b"4", b"5"])
    with qm.consume(queue) as messages:
        for message, _ in messages:
            if message.body == b"5":
                break
    assert bodies(qm, queue) == []
    qm.put(queue, b"6")
    with pytest.raises(ZeroDivisionError), qm.consume(queue) as messages:
        next(messages)
        raise ZeroDivisionError
    assert [m.backout_count for m in qm.browse(queue)] == [1]
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, "NO"):
        next(iter(qm.consume("NO")))
    assert qm.transactions() == []


def test_consume_moves_more_than_a_unit_of_work_holds_that_nobody_can_work_on(face: Face) -> None:
    qm, moved = face.qm, face.queue()
    queue = face.queue(backout_threshold=1, backout_queue=moved)
    poison = [b"%d" % number for number in range(7)]
    qm.put_many(queue, poison)
    with qm.begin() as unit:
        unit.get_many(queue, len(poison))
        unit.backout()
    qm.put(queue, b"good")
    usual = qm.attributes.max_uncommitted
    qm.alter(max_uncommitted=4)
    try:
        assert [message.body for message, _ in qm.consume(queue, wait=0.0)] == [b"good"]
    finally:
        qm.alter(max_uncommitted=usual)
    assert (bodies(qm, queue), bodies(qm, moved)) == ([], poison)


def test_a_queue_is_cleared(qm: Manager, queue: str) -> None:
    qm.put_many(queue, [b"x"] * 7)
    with qm.begin() as unit:
        unit.get(queue)
        with refused(qmgr.ObjectInUse, Reason.OBJECT_IN_USE, queue):
            qm.clear_queue(queue)
    assert qm.clear_queue(queue) == 6
    assert qm.get_many(queue, 9, group_id=b"H") == []


def test_mqsc_is_answered(qm: Manager, queue: str) -> None:
    qm.put(queue, b"x")
    result = qm.mqsc(f"DISPLAY QLOCAL({queue}) CURDEPTH")
    assert type(result) is MqscResult
    assert (result.commands, result.errors, result.failures, result.code) == (1, 0, 0, 0)
    assert "CURDEPTH(1)" in result.text
    result = qm.mqsc("DISPLAY QLOCAL(NOT.THERE)\nNONSENSE")
    assert (result.commands, result.errors, result.code) == (2, 1, 10)


def test_rights_are_given_and_taken(qm: Manager) -> None:
    before = qm.attributes
    for rights in ("put", None, 5):
        with pytest.raises(qmgr.Mistake, match=f"rights are several words, not {rights!r}"):
            qm.authorize("mia", "ORDERS.*", add=rights)  # type: ignore[arg-type]
    given = qm.authorize("mia", "ORDERS.*", add=["put", "browse"])
    assert given == qm.attributes != before
    assert qm.unauthorize("mia", "ORDERS.*") == before
    with pytest.raises(qmgr.Mistake, match="mia"):
        qm.unauthorize("mia", "ORDERS.*")
    with pytest.raises(qmgr.Mistake, match="there is no right 5"):
        qm.authorize("mia", "ORDERS.*", add=[5])  # type: ignore[list-item]


def test_what_became_of_units_of_work_can_be_asked_for(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    units = {}
    for end in ("commit", "backout", "prepare"):
        unit = units[end] = qm.begin(new_xid())
        unit.put(queue, b"")
        assert qm.outcome(unit.id) is UowState.ACTIVE
        getattr(unit, end)()
    ids = {end: unit.id for end, unit in units.items()}
    for _ in range(2):
        assert face.qm.outcome(ids["commit"]) is UowState.COMMITTED
        assert face.qm.outcome(ids["backout"]) is UowState.BACKED_OUT
        assert face.qm.outcome(ids["prepare"]) is UowState.PREPARED
        face.crash()
    [xid] = face.qm.in_doubt()
    face.qm.resolve(xid, commit=False)
    assert face.qm.outcome(ids["prepare"]) is UowState.BACKED_OUT
    for wrong in (0, 12345, -1, "x", None):
        with refused(qmgr.Mistake, Reason.UOW_NOT_AVAILABLE):
            face.qm.outcome(wrong)  # type: ignore[arg-type]


def test_arguments_of_a_wrong_type_are_mistakes_wherever_they_are_found_to_be_that(qm: Manager, queue: str) -> None:
    """Some are refused before they are sent to the queue manager, and in the same class."""
    day: Any = datetime.timedelta(days=1)
    for call in (
        lambda: qm.queue(day),
        lambda: qm.clear_queue(day),
        lambda: qm.define_queue("LATER", expiry_cap=day),
        lambda: qm.alter_queue(queue, max_depth=day),
        lambda: qm.alter(dead_letter_queue=day),
        lambda: qm.define_alias("LATER", day),
        lambda: list(qm.replay(queue, day)),
        lambda: qm.outcome(day),
        lambda: qm.outcome([day]),  # type: ignore[arg-type]
        lambda: qm.dead_letter(day, qm.put(queue, b"body")),
        lambda: qm.record_image(day),
        lambda: qm.record_image([day]),
        lambda: qm.archive_log(older_than=day),
        lambda: qm.reduce_log(day),
        lambda: qm.note_archived(day),
        lambda: qm.note_archived("S0000000.LOG", all_before=day),
        lambda: qm.stop_connection(day),
        lambda: qm.stop_connection(1, quiesce=day),
        lambda: qm.alter(authorities=day),
        lambda: qm.alter(authorities=""),  # it would take away all that there are
        lambda: qm.alter(authorities={}),
    ):
        with pytest.raises(qmgr.Mistake):
            call()


@pytest.mark.parametrize(
    "wrong", [{"older_than": True}, {"older_than": -1}, {"older_than": -0.5}, {"older_than": float("nan")},
              {"older_than": float("inf")}, {"older_than": "1"}, {"dry_run": None}, {"dry_run": 0}], ids=str
)  # fmt: skip
def test_what_is_to_be_done_with_log_extents_is_said_clearly_or_refused(qm: Manager, wrong: dict[str, Any]) -> None:
    """Taken for 0 and False these would have everything archived, or removed."""
    options: dict[str, Any] = {"older_than": 0, "dry_run": True, **wrong}
    for call in (qm.archive_log, qm.compress_log, qm.remove_log):
        with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match=next(iter(wrong))):
            call(**options)


def test_what_is_no_function_can_not_hear_of_progress(qm: Manager, queue: str) -> None:
    calls: list[Any] = [qm.archive_log, qm.compress_log, lambda **more: qm.recreate(queue, **more)]
    for call in calls:
        with pytest.raises((qmgr.Mistake, TypeError), match="progress"):  # asynchronous ones have none
            call(progress=5)


def test_a_connection_is_stopped_by_its_number_and_nothing_that_is_equal_to_it(qm: Manager) -> None:
    numbers = [one.number for one in qm.connections() if one.number]
    for wrong in (True, *map(float, numbers)):
        with refused(qmgr.Mistake, Reason.OPTIONS_ERROR):
            qm.stop_connection(wrong)  # type: ignore[arg-type]
    assert [one.number for one in qm.connections() if one.number] == numbers


def test_what_is_named_is_looked_at_one_by_one_and_may_not_end(qm: Manager, queue: str) -> None:
    for call in (
        lambda: qm.put_many(queue, itertools.count()),  # type: ignore[arg-type]
        lambda: qm.record_image(itertools.count()),  # type: ignore[arg-type]
        lambda: qm.authorize("mia", queue, add=itertools.count()),  # type: ignore[arg-type]
    ):
        with pytest.raises(qmgr.Mistake):
            call()


@pytest.mark.parametrize(
    "huge", [b"x" * 1_000_000, "x" * 1_000_000, 10**5000, ["x" * 1_000_000]], ids=lambda one: type(one).__name__
)
def test_a_wrong_value_of_any_size_is_a_short_sentence(qm: Manager, queue: str, huge: Any) -> None:
    """A body that is given in place of an option, say; of an int with more than 4300 digits Python makes no text."""
    unit = qm.begin()
    for call in (
        lambda: qm.put(queue, b"", message_id=huge),
        lambda: qm.put(queue, b"", priority=huge),
        lambda: qm.put(queue, b"", expiry=huge),
        lambda: qm.put(queue, b"", format=huge),
        lambda: qm.put(queue, b"", group_id=huge),
        lambda: qm.put(queue, b"", reply_to=huge),
        lambda: qm.put(huge, b""),
        lambda: unit.get(huge),
        lambda: unit.get(queue, correlation_id=huge),
        lambda: unit.get(queue, backout_requeue=huge),
        lambda: list(qm.browse(queue, message_id=huge)),
        lambda: qm.dead_letter(None, huge),
        lambda: qm.dead_letter(huge, qm.put(queue, b"")),
        lambda: qm.begin(huge),
        lambda: qm.resolve(huge, True),
        lambda: list(qm.replay(huge, "oldest")),
        lambda: list(qm.replay(queue, huge)),
        lambda: qm.reduce_log(huge),
        lambda: qm.record_image(huge),
        lambda: qm.authorize(huge),
        lambda: qm.unauthorize(huge),
        lambda: qm.authorize("mia", huge, add=["put"]),
        lambda: qm.authorize("mia", queue, add=[huge]),
        lambda: qm.delete_queue(queue, huge),
        lambda: qm.alter_queue(queue, max_depth=huge),
        lambda: qm.end(huge),
        lambda: qmgr.create("HUGE", log_primary_files=huge),
        lambda: qmgr.create("HUGE", log_type=huge),
        lambda: qmgr.create("HUGE", max_uncommitted=huge),
    ):
        with pytest.raises(qmgr.Mistake) as caught:
            call()
        assert len(str(caught.value)) < 1000 and "Exceeds" not in str(caught.value)
    for name in (lambda: qmgr.Xid(huge, b"g", b""), lambda: qmgr.Xid(1, huge, b"")):
        with pytest.raises(ValueError, match=r"^an Xid's .{1,500}$"):
            name()
    unit.backout()
