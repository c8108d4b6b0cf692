"""Replay from records alone: what is committed comes in the order of commit, and no half of a unit of work ever."""

import json
import struct
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import lsn
from logger.reader import Record
from recovery import records
from recovery.records import CheckpointMark, Kind, Xid, run_of_gets, run_of_puts
from recovery.replay import NO_PUT, Batch, Bookmark, PutTracker, known_from, last_head, parse, puts_in_runs

WANTED, OTHER = 7, 8
FIRST = 4096


class Written:
    """Records as they would lie in a log, one after the other."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.tail = FIRST

    def add(self, record: Any) -> int:
        kind, uow, head, data = record.encode()
        at, body = self.tail, bytes(head) + bytes(data)
        self.tail = at + 48 + (len(body) + 7 & -8)
        self.records.append(Record(at, self.tail, kind, uow, 1, at * 10, memoryview(body)))
        return at


def told(puts: PutTracker, read: Iterable[Record]) -> list[Batch]:
    return [batch for record in read if (batch := puts.take(record)) is not None]


def everything(written: Written) -> list[list[bytes]]:
    return [batch.messages for batch in told(PutTracker(WANTED, FIRST, whole=True), written.records)]


def put(body: bytes, ordinal: int, queue: int = WANTED) -> bytes:
    return b"".join(run_of_puts(queue, ordinal, [(body, b"")]))


# ---- each kind of record


def test_puts_outside_units_of_work_come_where_they_lie() -> None:
    log = Written()
    first = log.add(records.Put(WANTED, 1, b"head", b"body"))
    log.add(records.Put(OTHER, 1, b"not this one"))
    second = log.add(records.PutMany(WANTED, 2, [(b"a", b"b"), (b"", b""), (b"c", b"")]))
    log.add(records.PutMany(OTHER, 2, [(b"nor", b"this")]))
    assert told(PutTracker(WANTED, FIRST, whole=True), log.records) == [
        (first, first * 10, [b"headbody"], True),
        (second, second * 10, [b"ab", b"", b"c"], True),
    ]


def test_a_unit_of_work_comes_with_its_commit_in_the_order_of_its_puts() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"one", 0) + put(b"else", 1, OTHER)))
    log.add(records.Put(WANTED, 1, b"between"))
    log.add(records.Calls(1, run_of_gets(WANTED, [4, 5]) + put(b"two", 2)))
    at = log.add(records.Commit(1, {WANTED: 10, OTHER: 3}, put(b"three", 3) + run_of_gets(OTHER, [1])))
    puts = PutTracker(WANTED, FIRST, whole=True)
    assert [batch.messages for batch in told(puts, log.records)] == [[b"between"], [b"one", b"two", b"three"]]
    assert told(PutTracker(WANTED, FIRST, whole=True), log.records)[1].lsn == at
    assert puts.units == {}


def test_what_is_backed_out_or_has_no_outcome_never_comes() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"dropped", 0)))
    log.add(records.Calls(2, put(b"in flight", 0)))
    log.add(records.Backout(1, run_of_gets(WANTED, [9])))
    puts = PutTracker(WANTED, FIRST, whole=True)
    assert told(puts, log.records) == []
    assert puts.units == {2: [b"in flight"]}


def test_what_is_prepared_is_kept_until_it_is_resolved() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"kept", 0)))
    log.add(records.Prepare(1, Xid(1, b"g", b"b")))
    assert everything(log) == []
    log.add(records.Commit(1, {WANTED: 1}))
    assert everything(log) == [[b"kept"]]


def test_rolling_forward_replaces_what_was_logged_before() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"a", 0) + put(b"b", 1)))
    log.add(records.Prepare(1, Xid(1, b"g", b"b")))
    again = log.add(records.RollForward(1, Xid(1, b"g", b""), put(b"a", 0) + put(b"c", 1, OTHER) + put(b"b", 2)))
    log.add(records.Commit(1, {WANTED: 1, OTHER: 2}))
    assert everything(log) == [[b"a", b"b"]]
    from_there = [record for record in log.records if record.lsn >= again]
    assert [batch.messages for batch in told(PutTracker(WANTED, again, whole=False), from_there)] == [[b"a", b"b"]]


def test_what_a_damaged_queue_has_lost_is_told_although_the_unit_was_rolled_forward_without_it() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"a", 0) + put(b"b", 1, OTHER)))
    log.add(records.Prepare(1, Xid(1, b"g", b"b")))
    log.add(records.RollForward(1, Xid(1, b"g", b""), put(b"b", 1, OTHER)))
    log.add(records.Commit(1, {OTHER: 2}))
    assert everything(log) == [[b"a"]]


def test_records_of_no_concern_are_passed_over() -> None:
    log = Written()
    log.add(records.Get(WANTED, [1]))
    log.add(records.Expire(WANTED, [1]))
    log.add(records.Define(b'{"id": 7}'))
    log.add(records.Delete(WANTED))
    log.add(CheckpointMark(Kind.START_CHECKPOINT, b"{}"))
    log.add(records.Commit(3, {OTHER: 1}, put(b"other", 0, OTHER)))
    log.add(records.Commit(4, {}, run_of_gets(WANTED, [1])))
    assert everything(log) == []


# ---- beginning in the middle


def test_a_unit_whose_first_records_are_gone_is_said_to_be_half() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"gone", 0)))
    start = log.add(records.Calls(1, put(b"seen", 1)))
    at = log.add(records.Commit(1, {WANTED: 1}, put(b"last", 2)))
    read = [record for record in log.records if record.lsn >= start]
    (half,) = told(PutTracker(WANTED, start, whole=False), read)
    assert (half.lsn, half.whole) == (at, False)


def test_a_unit_that_is_rolled_forward_is_known_from_its_first_record_on() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"gone", 0)))
    start = log.add(records.Calls(1, put(b"seen", 1)))
    log.add(records.RollForward(1, Xid(1, b"g", b""), put(b"gone", 0) + put(b"seen", 1)))
    log.add(records.Commit(1, {WANTED: 1}))
    read = [record for record in log.records if record.lsn >= start]
    assert told(PutTracker(WANTED, start, whole=False), read)[0][2:] == ([b"gone", b"seen"], True)


def test_half_a_unit_is_no_more_than_that_when_it_is_rolled_forward_without_the_queue() -> None:
    """The queue was damaged, so the record that is to have all of the unit has nothing of it."""
    log = Written()
    log.add(records.Calls(1, put(b"gone", 0)))
    start = log.add(records.Calls(1, put(b"seen", 1) + put(b"other", 2, OTHER)))
    log.add(records.RollForward(1, Xid(1, b"g", b""), put(b"other", 2, OTHER)))
    log.add(records.Commit(1, {OTHER: 2}))
    read = [record for record in log.records if record.lsn >= start]
    assert [batch.whole for batch in told(PutTracker(WANTED, start, whole=False), read)] == [False]


def test_half_a_unit_is_told_although_nothing_of_it_was_seen() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"gone", 0)))
    start = log.add(records.Commit(1, {WANTED: 1}))
    assert [batch.whole for batch in told(PutTracker(WANTED, start, whole=False), log.records[1:])] == [False]


def test_a_unit_that_is_seen_from_its_first_put_is_whole() -> None:
    log = Written()
    log.add(records.Calls(1, put(b"a", 0, OTHER)))
    log.add(records.Calls(1, put(b"b", 1)))
    log.add(records.Commit(1, {WANTED: 1, OTHER: 2}))
    assert told(PutTracker(WANTED, FIRST, whole=False), log.records)[0][2:] == ([b"b"], True)


def test_a_unit_whose_first_records_are_gets_is_whole_from_its_first_put_on() -> None:
    log = Written()
    log.add(records.Calls(1, run_of_gets(WANTED, [1])))
    log.add(records.Calls(1, put(b"a", 0)))
    log.add(records.Commit(1, {WANTED: 1}))
    assert told(PutTracker(WANTED, FIRST, whole=False), log.records)[0][2:] == ([b"a"], True)


def test_nothing_is_kept_of_units_that_have_ended() -> None:
    log = Written()
    for unit, queue in enumerate((WANTED, OTHER, WANTED, OTHER)):
        log.add(records.Calls(unit, put(b"a", 0, queue)))
        log.add(records.Commit(unit, {queue: 1}) if unit < 2 else records.Backout(unit))
    puts = PutTracker(WANTED, FIRST, whole=False)
    assert [batch.messages for batch in told(puts, log.records)] == [[b"a"]]
    assert not puts.units and not puts._first


def test_a_checkpoint_that_reaches_back_no_further_makes_all_that_follows_whole() -> None:
    log = Written()
    first = log.add(records.Calls(1, put(b"a", 3)))
    log.add(CheckpointMark(Kind.START_CHECKPOINT, json.dumps({"head": lsn.text(first)}).encode()))
    log.add(records.Commit(1, {WANTED: 1}))
    assert told(PutTracker(WANTED, FIRST, whole=False), log.records)[0][2:] == ([b"a"], True)
    assert told(PutTracker(WANTED, first + 8, whole=False), log.records)[0].whole is False


@pytest.mark.parametrize(("notes", "head"), [({}, None), ({"head": None}, FIRST), ({"head": "<0:0:0:512>"}, 512)])
def test_a_checkpoint_says_from_where_its_units_are_known(notes: dict[str, Any], head: int | None) -> None:
    log = Written()
    log.add(CheckpointMark(Kind.START_CHECKPOINT, json.dumps(notes).encode()))
    assert known_from(log.records[0]) == head


# ---- garbage


@pytest.mark.parametrize(
    "runs", [b"\3", b"\1\7\0", put(b"cut", 0)[:-1], put(b"cut", 0, OTHER)[:-1], b"\1" + b"\xff" * 16]
)
def test_runs_that_can_not_be_understood_are_refused(runs: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        puts_in_runs(memoryview(runs), 0, WANTED, [])


def test_the_first_put_of_runs_is_that_to_any_queue() -> None:
    found: list[bytes] = []
    body = memoryview(b"xx" + run_of_gets(WANTED, [1, 2]) + put(b"o", 5, OTHER) + put(b"w", 6))
    assert (puts_in_runs(body, 2, WANTED, found), found) == (5, [b"w"])
    assert puts_in_runs(body, len(body), WANTED, found) == NO_PUT


# ---- bookmarks


@given(st.lists(st.builds(Bookmark, st.integers(0, (1 << 64) - 1), st.integers(0, 10**10 - 1)), max_size=20))
def test_the_text_of_bookmarks_comes_back_and_sorts_as_they_do(marks: list[Bookmark]) -> None:
    assert [parse(str(mark)) for mark in marks] == marks
    assert sorted(map(str, marks)) == [str(mark) for mark in sorted(marks)]


def test_an_lsn_is_a_bookmark_too() -> None:
    assert parse(" <0:0:4615:42406> ") == parse("0:0:4615:42406") == Bookmark(4615 << 16 | 42406)
    assert parse("<0:0:0:8>+3") == Bookmark(8, 3)


@pytest.mark.parametrize(
    "word", ["", "newest", "<0:0:0>", "<0:0:0:8>+", "<0:0:0:8>+x", "<0:0:0:8>+-1", "<0:0:0:65536>"]
)
def test_a_word_that_is_no_bookmark_gets_a_sentence(word: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse(word)


# ---- interleaved units of work


@attrs.define
class Unit:
    """A unit of work that is being written."""

    number: int
    ordinal: int = 0
    first: int = 0  # LSN of its first record
    puts: list[tuple[int, int, bytes]] = attrs.Factory(list)  # queue, ordinal, body
    held: bytes = b""
    touched: set[int] = attrs.Factory(set)
    prepared: bool = False


class History(Written):
    """A log of interleaved units of work, and what a replay of it should tell."""

    def __init__(self) -> None:
        super().__init__()
        self.units: list[Unit] = []
        self.count = 0
        self.expected: list[tuple[int, list[bytes]]] = []
        self.checkpoints: list[tuple[int, int]] = []  # LSN, head

    def body(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def step(self, kind: str, which: int, queue: int) -> None:
        unit = self.units[which % len(self.units)] if self.units else None
        if kind == "put":
            body = self.body()
            at = self.add(records.Put(queue, 1, body))
            self.expect(at, [body] if queue == WANTED else [])
        elif kind == "put many":
            bodies = [self.body(), self.body()]
            at = self.add(records.PutMany(queue, 1, [(body, b"") for body in bodies]))
            self.expect(at, bodies if queue == WANTED else [])
        elif kind == "begin":
            self.units.append(Unit(number=self.count + 100))
            self.count += 1
        elif kind == "checkpoint":
            heads = [unit.first for unit in self.units if unit.first]
            head = lsn.text(min(heads)) if heads else None
            at = self.add(CheckpointMark(Kind.START_CHECKPOINT, json.dumps({"head": head}).encode()))
            self.checkpoints.append((at, min(heads, default=at)))
        elif unit is not None:
            self.in_unit(unit, kind, queue)

    def in_unit(self, unit: Unit, kind: str, queue: int) -> None:
        if kind == "unlogged" and not unit.prepared:
            unit.ordinal += 1
        elif kind == "unit puts" and not unit.prepared:
            body = self.body()
            unit.puts.append((queue, unit.ordinal, body))
            unit.held += put(body, unit.ordinal, queue)
            unit.ordinal += 1
            unit.touched.add(queue)
        elif kind == "unit gets" and not unit.prepared:
            unit.held += run_of_gets(queue, [1, 2])
        elif kind == "calls" and unit.held:
            self.log(unit, records.Calls(unit.number, unit.held))
            unit.held = b""
        elif kind == "prepare" and not unit.prepared:
            if unit.held:
                self.in_unit(unit, "calls", queue)
            self.log(unit, records.Prepare(unit.number, Xid(1, b"g", b"")))
            unit.prepared = True
        elif kind == "roll forward" and unit.prepared:
            runs = b"".join(put(body, ordinal, queue) for queue, ordinal, body in unit.puts)
            unit.first = self.add(records.RollForward(unit.number, Xid(1, b"g", b""), runs))
        elif kind == "commit":
            at = self.add(records.Commit(unit.number, dict.fromkeys(unit.touched, 1), unit.held))
            self.expect(at, [body for queue, _, body in unit.puts if queue == WANTED])
            self.units.remove(unit)
        elif kind == "backout":
            self.add(records.Backout(unit.number))
            self.units.remove(unit)

    def log(self, unit: Unit, record: Any) -> None:
        unit.first = unit.first or self.tail
        self.add(record)

    def expect(self, at: int, bodies: list[bytes]) -> None:
        if bodies:
            self.expected.append((at, bodies))


KINDS = (
    *("put", "put many", "begin", "begin", "checkpoint", "unlogged", "unit puts", "unit puts", "unit puts"),
    *("unit gets", "calls", "calls", "prepare", "roll forward", "commit", "commit", "backout"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.sampled_from((WANTED, OTHER))), max_size=60)


def lived(steps: list[tuple[str, int, int]]) -> History:
    history = History()
    for step in steps:
        history.step(*step)
    return history


@given(STEPS)
def test_interleaved_units_come_whole_in_the_order_of_commit(steps: list[tuple[str, int, int]]) -> None:
    history = lived(steps)
    puts = PutTracker(WANTED, FIRST, whole=True)
    assert [(batch.lsn, batch.messages) for batch in told(puts, history.records)] == history.expected
    assert puts.units.keys() <= {unit.number for unit in history.units}  # nothing is kept of what has ended


@given(STEPS, st.data())
def test_reading_from_the_head_of_the_last_checkpoint_tells_all_from_a_bookmark_on(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    history = lived(steps)
    bookmark = data.draw(st.integers(FIRST, history.tail))
    head = max((head for at, head in history.checkpoints if at <= bookmark), default=FIRST)
    read = [record for record in history.records if record.lsn >= head]
    found = [batch for batch in told(PutTracker(WANTED, head, whole=True), read) if batch.lsn >= bookmark]
    assert [(batch.lsn, batch.messages) for batch in found] == [e for e in history.expected if e[0] >= bookmark]


@given(STEPS, st.data())
def test_from_anywhere_no_unit_is_told_by_half_and_none_is_forgotten(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    history = lived(steps)
    start = data.draw(st.sampled_from([record.lsn for record in history.records] or [FIRST]))
    read = [record for record in history.records if record.lsn >= start]
    found = told(PutTracker(WANTED, start, whole=False), read)
    expected = {at: bodies for at, bodies in history.expected if at >= start}
    assert [batch.lsn for batch in found] == sorted(expected)
    known = min((at for at, head in history.checkpoints if at >= start and head >= start), default=history.tail)
    for batch in found:
        assert not batch.whole or batch.messages == expected[batch.lsn]
        assert batch.whole or batch.lsn < known


def test_where_units_began_may_be_said_by_the_first_extent_and_be_where_the_log_begins() -> None:
    def head_in(sequence: int, at: int) -> int | None:
        return {1: 10}.get(sequence) if at > 12 else None

    for at in (15, 35):
        assert last_head(at, 10, 10, head_in) == 10
        assert last_head(at, 11, 10, head_in) is None, "the log does not reach back to it"
    assert last_head(12, 10, 10, head_in) is None
