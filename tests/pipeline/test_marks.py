"""Marks: what is done twice, also at the same time, has its effect once."""

import datetime
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import pytest

import qmgr
from pipeline import marks
from pipeline.fingerprint import Fingerprint
from pipeline.marks import QUEUE, Claim, Key, Manager, claim
from qmgr.daemon.shared import shared
from qmgr.errors import BackedOut, Mistake, TryAgain, UnitOfWorkEnded
from tests.daemon.serving import LONG, SPAWN
from tests.qmgr.world import NAME, SMALL, Call, bodies
from tests.sim.clock import SimClock

KEY = Key("a query", "3")
Face = Callable[[], Manager]


@pytest.fixture
def qm(tmp_path: Path) -> Iterator[qmgr.QueueManager]:
    """A queue manager with queue A, served to others."""
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    with qmgr.start(NAME, data_path=tmp_path) as manager, shared(manager):
        manager.define_queue("A")
        yield manager


@pytest.fixture(params=["here", "through its socket"])
def face(request: pytest.FixtureRequest, qm: qmgr.QueueManager) -> Iterator[Face]:
    """Gives the queue manager, or another connection to it each time."""
    made: list[qmgr.Connection] = []

    def another() -> Manager:
        if request.param == "here":
            return qm
        made.append(qmgr.connect(NAME, data_path=qm._location.data_root))
        return made[-1]

    yield another
    for connection in made:
        connection.close()


def told(*rows: bytes) -> Fingerprint:
    made = Fingerprint()
    made.add("some rows", rows or (b"x",))
    return made


def attempt(qm: Manager, batch: int, body: bytes, key: Key = KEY) -> bool:
    """Put a message once for this part of the batch; False: it was done before."""
    with claim(qm, key, batch) as claimed:
        if claimed.done is None:
            claimed.unit.put("A", body)
            claimed.commit(told())
            return True
        return False


# ---- one attempt after the other


def test_a_part_of_a_batch_is_done_once_and_the_next_batch_again(face: Face, qm: qmgr.QueueManager) -> None:
    one, other = face(), face()
    done = [attempt(one, 0, b"0"), attempt(other, 0, b"0 again"), attempt(one, 1, b"1"), attempt(other, 1, b"1 again")]
    assert done == [True, False, True, False]
    assert bodies(qm, "A") == [b"0", b"1"]
    assert qm.queue(QUEUE).depth == 1  # the mark was replaced


def test_an_older_batch_is_refused_with_what_can_be_done(face: Face, qm: qmgr.QueueManager) -> None:
    attempt(face(), 7, b"7")
    for late in (lambda: claim(face(), KEY, 5), lambda: marks.done(face(), KEY, 5)):
        with pytest.raises(
            Mistake, match=r"part 3 of a query was done up to batch 7 before, .* comes with batch 5"
        ) as no:
            late()
        assert "marks.forget(qm, 'a query')" in str(no.value) and "marks.skip(qm, 'a query', 5)" in str(no.value)
    assert (bodies(qm, "A"), qm.transactions()) == ([b"7"], [])


def test_a_look_tells_what_a_claim_would(face: Face) -> None:
    one = face()
    assert marks.done(one, KEY, 0) is None  # there is no queue yet
    attempt(one, 3, b"3")
    found = marks.done(one, KEY, 3)
    assert found is not None and (found.key, found.batch, found.messages) == (KEY, 3, 1)
    assert found.digest == told().digest
    assert marks.done(one, KEY, 4) is None and marks.done(one, Key("another", "3"), 3) is None


def test_other_rows_under_the_number_of_a_batch_that_was_done_are_refused(face: Face) -> None:
    one = face()
    with claim(one, Key("a query", "4"), 2) as another:
        another.commit(told(b"y"))
    with claim(one, KEY, 2) as claimed:
        claimed.commit(told(b"1", b"2"))
    mark = claim(one, KEY, 2).done
    assert mark is not None
    marks.compare(one, mark, KEY, told(b"2", b"1"))  # the order is nothing that Spark promises
    for rows, sentence in (
        (
            (b"1",),
            "with 2 messages, and now it has 1; done of this batch are the parts 3 .2 messages., 4 .1 messages.. ",
        ),
        ((b"1", b"1"), "and now it has 2 others; "),
        ((b"1", b"2", b"2"), "and now it has 3; "),
    ):
        with pytest.raises(Mistake, match=f"part 3 of a query was done with batch 2 before, .*{sentence}"):
            marks.compare(one, mark, KEY, told(*rows))
    with pytest.raises(Mistake, match="and now it has 0; "):
        marks.compare(one, mark, KEY, Fingerprint())


def test_parts_that_a_batch_has_no_longer_are_refused(face: Face) -> None:
    one = face()
    for part in "012":
        attempt(one, 6 if part == "1" else 5, b"x", Key("q", part))
    marks.refuse_left_over(one, "q", 5, frozenset("0123"))
    marks.refuse_left_over(one, "q", 6, frozenset("1"))
    with pytest.raises(Mistake, match=r"batch 5 of q has 2 parts now, and before part 2 of q was done with it"):
        marks.refuse_left_over(one, "q", 5, frozenset("01"))
    with pytest.raises(Mistake, match=r"part 1 of q was done up to batch 6 before, .* comes with batch 5"):
        marks.refuse_left_over(one, "q", 5, frozenset("02"))


def test_who_skips_a_batch_goes_on_behind_it(face: Face, qm: qmgr.QueueManager) -> None:
    one, other = face(), Key("a query", "4")
    attempt(one, 7, b"7")
    attempt(one, 7, b"of another query", Key("another", "3"))
    marks.skip(one, "a query", 5)
    for key in (KEY, other):
        with claim(one, key, 5) as skipped:
            assert skipped.done is not None and skipped.done.digest is None
            marks.compare(one, skipped.done, key, told(b"whatever"))
        found = marks.done(one, key, 5)
        assert found is not None and found.digest is None
        with pytest.raises(Mistake, match="done up to batch 5 before"):
            claim(one, key, 4)
    marks.refuse_left_over(one, "a query", 5, frozenset("3"))
    assert attempt(one, 6, b"6") and not attempt(one, 6, b"6 again")
    marks.skip(one, "a query", 8)
    assert [attempt(one, batch, b"%d" % batch) for batch in (8, 9)] == [False, True]
    assert bodies(qm, "A") == [b"7", b"of another query", b"6", b"9"]
    assert [str(mark.key) for mark in marks.listed(one, "a query")] == ["part * of a query", "part 3 of a query"]
    assert marks.forget(one, "a query") == 2 and attempt(one, 0, b"0")


def test_parts_and_queries_have_marks_of_their_own(face: Face, qm: qmgr.QueueManager) -> None:
    keys = [KEY, Key("a query", "4"), Key("another", "3"), Key('a query"', "3"), Key("", "a query3")]
    assert [attempt(face(), 0, b"x", key) for key in keys] == [True] * 5
    assert [mark.key for mark in marks.listed(qm)] == sorted(keys)


def test_what_is_not_committed_leaves_no_mark_and_no_effect(face: Face, qm: qmgr.QueueManager) -> None:
    with pytest.raises(ZeroDivisionError), claim(face(), KEY, 0) as claimed:
        claimed.unit.put("A", b"x")
        _ = 1 / 0
    assert (bodies(qm, "A"), marks.listed(qm), qm.transactions()) == ([], [], [])
    attempt(face(), 0, b"0")
    with claim(face(), KEY, 1) as left:
        left.unit.put("A", b"x")
    assert [mark.batch for mark in marks.listed(qm)] == [0]  # the mark of the batch before has returned
    assert (bodies(qm, "A"), qm.transactions()) == ([b"0"], [])


def test_a_mark_survives_a_crash_with_its_effect(tmp_path: Path, qm: qmgr.QueueManager) -> None:
    attempt(qm, 0, b"0")
    unfinished = claim(qm, KEY, 1)
    unfinished.unit.put("A", b"1")
    qm.abandon()
    with qmgr.start(NAME, data_path=tmp_path) as again:
        assert [(mark.batch, mark.messages) for mark in marks.listed(again)] == [(0, 1)]
        assert not attempt(again, 0, b"0 again") and attempt(again, 1, b"1")
        assert bodies(again, "A") == [b"0", b"1"]


def test_what_an_attempt_finds_done_is_durable_when_it_hears_of_it(qm: qmgr.QueueManager) -> None:
    attempt(qm, 0, b"0")
    engine = qm._engine
    unit = qm.begin()
    unit.put("A", b"not on disk yet")
    end = engine.commit_later(unit._unit)  # as if its force were still under way
    assert engine.log.durable < end
    assert not attempt(qm, 0, b"0 again")
    assert engine.log.durable >= end


# ---- two attempts at the same time


def test_a_second_begin_of_the_same_xid_is_refused_at_once(face: Face) -> None:
    one, other = face(), face()
    unit = one.begin(KEY.xid)
    with pytest.raises(Mistake, match="in flight or in doubt") as refused:
        other.begin(KEY.xid)
    assert refused.value.reason == qmgr.Reason.UOW_IN_PROGRESS
    unit.backout()
    other.begin(KEY.xid).backout()


def test_of_two_attempts_at_once_the_second_waits_and_finds_it_done(face: Face, qm: qmgr.QueueManager) -> None:
    attempt(qm, 0, b"0")
    first = claim(face(), KEY, 1)  # it has taken the mark, which nobody sees now
    first.unit.put("A", b"1")
    second = Call(lambda: attempt(face(), 1, b"1 again"))
    second.join(0.3)
    assert second.is_alive()
    first.commit(told())
    assert second.outcome() is False
    assert bodies(qm, "A") == [b"0", b"1"]


def test_of_two_attempts_at_once_the_second_goes_on_when_the_first_is_backed_out(
    face: Face, qm: qmgr.QueueManager
) -> None:
    first = claim(face(), KEY, 0)
    first.unit.put("A", b"0")
    second = Call(lambda: attempt(face(), 0, b"0 by the second"))
    second.join(0.2)
    assert second.is_alive()
    first.unit.backout()
    assert second.outcome() is True
    with pytest.raises(UnitOfWorkEnded):
        first.commit(told())
    assert bodies(qm, "A") == [b"0 by the second"]


def test_many_attempts_at_once_have_one_effect_for_each_batch(face: Face, qm: qmgr.QueueManager) -> None:
    def all_batches(worker: int) -> list[bool]:
        return [once(batch) for batch in range(10)]

    def once(batch: int) -> bool:
        try:
            return attempt(face(), batch, b"%d" % batch)
        except Mistake as exc:  # the others are further already
            assert f"comes with batch {batch}" in str(exc)
            return False

    calls = [Call(lambda worker=worker: all_batches(worker)) for worker in range(4)]  # type: ignore[misc]
    done = [call.outcome() for call in calls]
    assert bodies(qm, "A") == [b"%d" % batch for batch in range(10)]
    assert [sum(each[batch] for each in done) for batch in range(10)] == [1] * 10


def test_an_attempt_that_was_rolled_back_to_free_the_log_can_not_commit(face: Face, qm: qmgr.QueueManager) -> None:
    first = claim(face(), KEY, 0)
    first.unit.put("A", b"0")
    with qm._engine.lock:
        [evicted] = qm._engine.state.uows
        evicted.evicted = True
        qm._engine.back_out_locked(evicted)
    assert attempt(face(), 0, b"0 by the second")
    with pytest.raises(BackedOut), first:
        first.commit(told())
    assert bodies(qm, "A") == [b"0 by the second"]


def claim_and_hang(path: Path, told: Pipe) -> None:
    """An attempt that never ends."""
    claimed = claim(qmgr.connect(NAME, data_path=path), KEY, 0)
    claimed.unit.put("A", b"of the dead")
    told.send("claimed")
    signal.pause()


def test_the_xid_of_a_process_that_is_killed_is_free_at_once(qm: qmgr.QueueManager, tmp_path: Path) -> None:
    told, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=claim_and_hang, args=(tmp_path, theirs))
    process.start()
    assert told.poll(LONG) and told.recv() == "claimed"
    second = Call(lambda: attempt(qm, 0, b"of the living"))
    second.join(0.2)
    assert second.is_alive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert second.outcome() is True
    process.join(LONG)
    assert bodies(qm, "A") == [b"of the living"]


def test_who_waits_too_long_is_told_what_to_do(qm: qmgr.QueueManager) -> None:
    first = claim(qm, KEY, 0)
    clock = SimClock()
    with pytest.raises(TryAgain, match=r"at work on part 3 of a query for 5 seconds, at queue manager 'QM1'; wait"):
        claim(qm, KEY, 0, patience=5.0, clock=clock)
    first.unit.backout()


# ---- the queue


def test_the_queue_is_defined_when_it_is_first_used_also_by_two_at_once(face: Face, qm: qmgr.QueueManager) -> None:
    calls = [Call(lambda n=n: attempt(face(), 0, b"x", Key("q", str(n)))) for n in range(4)]  # type: ignore[misc]
    assert [call.outcome() for call in calls] == [True] * 4
    assert qm.queue(QUEUE).depth == 4
    marks.define(face())  # once more


def test_marks_that_are_to_live_for_a_time_only_expire(qm: qmgr.QueueManager) -> None:
    with claim(qm, KEY, 0) as claimed:
        claimed.commit(told(), life=3600.0)
    [mark] = qm.browse(QUEUE)
    assert mark.expiry == pytest.approx(3600, abs=60)
    assert not attempt(qm, 0, b"x")


def test_marks_are_listed_and_forgotten(face: Face, qm: qmgr.QueueManager) -> None:
    one = face()
    assert marks.listed(one) == [] and marks.forget(one, "old") == 0  # there is no queue yet
    for query in ("old", "new"):
        for part in range(3):
            attempt(one, 4, b"x", Key(query, str(part)))
    assert [(mark.key.query, mark.key.part, mark.batch, mark.messages) for mark in marks.listed(one)] == [
        (query, part, 4, 1) for query in ("new", "old") for part in "012"
    ]
    busy = claim(one, Key("old", "0"), 5)
    assert marks.forget(one, "old") == 2
    busy.commit(told())  # it was at work meanwhile
    assert [str(mark.key) for mark in marks.listed(one) if mark.key.query == "old"] == ["part 0 of old"]
    now = datetime.datetime.now(datetime.UTC)
    assert marks.forget(one, before=now - datetime.timedelta(hours=1)) == 0
    assert marks.forget(one, before=now + datetime.timedelta(hours=1)) == 4
    assert marks.listed(one) == []


def test_what_is_done_while_a_batch_is_skipped_stays_done(
    face: Face, qm: qmgr.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the mark that stands for all parts and the end of those that the query had."""
    attempt(face(), 7, b"7")
    other = face()
    put = marks._put

    def put_and_go_on(unit: marks.Unit, key: Key, *more: Any) -> None:
        put(unit, key, *more)
        if key.part == marks.ALL:
            going.append(Call(lambda: attempt(other, 9, b"9")).outcome())

    going: list[bool] = []
    monkeypatch.setattr(marks, "_put", put_and_go_on)
    marks.skip(face(), KEY.query, 8)
    monkeypatch.undo()
    assert going == [True]
    assert {mark.key.part: mark.batch for mark in marks.listed(qm, KEY.query)} == {marks.ALL: 8, KEY.part: 9}
    assert attempt(face(), 9, b"9") is False
    assert bodies(qm, "A") == [b"7", b"9"]


def test_a_mark_is_forgotten_when_no_attempt_has_it(face: Face, qm: qmgr.QueueManager) -> None:
    attempt(face(), 7, b"7")
    found = list(marks._browsed(qm, KEY.query))
    with claim(qm, KEY, 8) as claimed:
        with pytest.raises(TryAgain, match="another attempt has been at work on part 3 of a query"):
            marks._delete(face(), found, 0.0)
        waiting = Call(lambda: marks._delete(qm, found, LONG))
        claimed.unit.backout()
    assert waiting.outcome() == 1
    assert marks.listed(qm) == []


def test_forget_asks_which(qm: qmgr.QueueManager) -> None:
    for words in ({}, {"query": "q", "before": datetime.datetime.now(datetime.UTC)}):
        with pytest.raises(Mistake, match="a query, or the moment before"):
            marks.forget(qm, **words)  # type: ignore[arg-type]


FIELDS = '{"query": "a query", "part": "3", "batch": %s, "messages": %s, "digest": null}'


@pytest.mark.parametrize(
    "body",
    ["{}", "not even JSON", "[]", FIELDS % ("Infinity", 1), FIELDS % (1, "Infinity"), FIELDS % (1.5, 1),
     FIELDS % ("true", 1), FIELDS % ('"7"', 1), FIELDS % ("[" * 200_000, 1)],
    ids=["empty", "text", "list", "infinity", "infinite", "fraction", "truth", "digits", "deep"],
)  # fmt: skip
def test_what_is_no_mark_is_said_to_be_none(qm: qmgr.QueueManager, body: str) -> None:
    marks.define(qm)
    put = qm.put(QUEUE, body.encode(), correlation_id=KEY.correlation_id)
    with pytest.raises(Mistake, match=f"message {put.message_id.hex()} on queue {QUEUE} is no mark"):
        attempt(qm, 0, b"x")
    assert qm.transactions() == []


def test_a_mark_that_can_not_be_read_stops_its_own_query_alone(face: Face, qm: qmgr.QueueManager) -> None:
    """And those who look at all marks."""
    marks.define(qm)
    other = Key("another query", "0")
    attempt(qm, 0, b"x", other)
    qm.put(QUEUE, b"{}", correlation_id=KEY.correlation_id, group_id=KEY.group_id)
    assert attempt(face(), 1, b"y", other)
    assert [mark.batch for mark in marks.listed(face(), other.query)] == [1]
    assert marks.forget(face(), other.query) == 1
    now = datetime.datetime.now(datetime.UTC)
    for look in (marks.listed, lambda qm: marks.forget(qm, before=now), lambda qm: marks.listed(qm, KEY.query)):
        with pytest.raises(Mistake, match="is no mark"):
            look(face())


def test_what_is_advised_for_a_mark_that_can_not_be_read_repeats_nothing(face: Face, qm: qmgr.QueueManager) -> None:
    """The mark of a batch was damaged, and Spark runs that batch again."""
    attempt(qm, 4, b"of batch 4")
    with qm.begin() as unit:
        mark = unit.get(QUEUE)
        unit.put(QUEUE, mark.body[:-1], correlation_id=mark.correlation_id, group_id=mark.group_id)
        unit.commit()
    with pytest.raises(Mistake, match=r"has its effect again without it.*and skip what may be run again") as told_so:
        attempt(face(), 4, b"of batch 4")
    assert told_so.value.name == QUEUE
    qm.put("A", qm.get(QUEUE).body)
    marks.skip(face(), KEY.query, 4)
    assert not attempt(face(), 4, b"of batch 4")
    assert attempt(face(), 5, b"of batch 5")
    assert bodies(qm, "A") == [b"of batch 4", mark.body[:-1], b"of batch 5"]


def test_a_claim_says_what_it_is_for(qm: qmgr.QueueManager) -> None:
    with claim(qm, KEY, 2) as claimed:
        assert isinstance(claimed, Claim)
        [unit] = qm.transactions()
        assert (claimed.key, claimed.batch, unit.xid) == (KEY, 2, KEY.xid)
    assert len(KEY.correlation_id) == 24 and len(KEY.xid.gtrid) == 32
