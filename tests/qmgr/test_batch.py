"""Batches: what came together is entries only when it is asked for, and leaves memory whole when nobody does."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmgr import batch as batch_module
from qmgr import message, segment_writer, snapshot, units
from qmgr.batch import (
    MAX_BYTES,
    MAX_MESSAGES,
    MIN_MESSAGES,
    Batch,
    MessageRun,
    message_runs,
    put_time,
    still_there,
    weight,
)
from qmgr.entry import GONE, OVERHEAD, Entry
from qmgr.lane import Lane
from qmgr.queue import Queue
from qmgr.queue_snapshot import PERSISTENT
from qmgr.units import encoded_calls
from recovery.records import with_lengths
from tests.qmgr.world import World, bodies
from tests.sim.loss import LOSE_ALL


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MIN_MESSAGES", 2)


def encoded(body: bytes, priority: int = 0, *, persistent: bool = True, expires: int = 0) -> tuple[bytes, bytes]:
    return message.describe(priority, persistent, expires=expires).head(body.ljust(24), 77), body


def made_of(count: int = 3) -> Batch:
    [one] = message_runs([encoded(b"%d" % number) for number in range(count)])
    [made] = one.in_places(11, 5)
    assert isinstance(made, Batch)
    return made


def a_queue(**attributes: Any) -> tuple[World, Queue]:
    world = World()
    world.qm.define_queue("A", **attributes)
    return world, world.qm._engine.state.queues["A"]


def lane_of(queue: Queue) -> Lane:
    [lane] = queue._lanes.values()
    return lane


def waiting(queue: Queue) -> int:
    """How many messages have no entries, and are in memory."""
    return sum(item.count for lane in queue._lanes.values() for item in lane.behind if isinstance(item, Batch))


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_neighbours_are_together_that_are_alike() -> None:
    kinds: list[dict[str, Any]] = [
        *[{}, {}, {"priority": 1}, {"priority": 1}, {"persistent": False}, {}, {"expires": 9}, {"expires": 8}],
        *[{"expires": 8, "persistent": False}, {}],
    ]
    messages = [encoded(b"%d" % number, **kind) for number, kind in enumerate(kinds)]
    runs = list(message_runs(messages))
    assert [len(one.heads) for one in runs] == [2, 2, 1, 1, 2, 1, 1]
    assert [(one.priority, bool(one.persistent), one.expiring) for one in runs] == [
        *[(0, True, False), (1, True, False), (0, False, False), (0, True, False), (0, True, True), (0, False, True)],
        (0, True, False),
    ]
    entries = [entry for one in runs for entry in one.entries()]
    assert [(entry.head, entry.body) for entry in entries] == messages
    assert [entry.expires for entry in entries] == [kind.get("expires", 0) for kind in kinds]
    whole = list(message_runs([(head + body, b"") for head, body in messages]))
    assert [(one.heads, one.bodies) for one in whole] == [(one.heads, one.bodies) for one in runs]


PROPERTIES = st.sampled_from([{}, {}, {"a": 1}, {"long": "x" * 300}])
MESSAGES = st.builds(
    lambda properties, body: (message.describe(0, True, properties=properties).head(bytes(24), 77), body),
    PROPERTIES,
    st.one_of(st.binary(max_size=40), st.sampled_from([b"", bytes(500), bytes(900), bytes(2000)])),
)


@pytest.mark.interpreted
@given(st.lists(MESSAGES, min_size=1, max_size=30), st.integers(1, 40), st.integers(100, 3000))
def test_a_run_as_bytes_has_all_its_messages_in_parts_of_bounded_size(
    messages: list[tuple[bytes, bytes]], most: int, most_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "MAX_MESSAGES", most)
        patch.setattr(batch_module, "MAX_BYTES", most_bytes)
        run = MessageRun([head for head, _ in messages], [body for _, body in messages], 1, 0, False)
        parts, count, size = run.packed(), len(messages), sum(len(head) + len(body) for head, body in messages)
        small = 2 * size <= count * most_bytes or (count <= most and size <= most_bytes)
        assert bool(parts) is (small and count >= 2)
        if parts:
            assert [pair for one in parts for pair in one.pairs(0, len(one.lengths))] == messages
        for one in parts:
            assert len(one.lengths) == 1 or (len(one.lengths) <= most and len(one.data) <= most_bytes)
        for keep in (True, False):
            assert b"".join(run.encoded(keep=keep)) == b"".join(with_lengths(messages))
        there: list[tuple[int, int, bytes, bytes]] = []
        for some in run.in_places(11, 5):
            if isinstance(some, Batch):
                assert some.count >= 2
                some = some.entries()
            there += [(entry.sequence, entry.lsn, entry.head, entry.body) for entry in some]
        assert there == [(at, 5, *message) for at, message in enumerate(messages, 11)]


def test_parts_are_about_as_long_as_each_other() -> None:
    """A few messages alone would be entries between batches."""
    for count, size in ((513, 10), (1025, 10), (100, 6000), (200, 500)):
        [run] = message_runs([encoded(bytes(size))] * count)
        counts = [len(one.lengths) for one in run.packed()]
        assert sum(counts) == count
        assert max(counts) - min(counts) <= 1


def test_what_is_kept_of_a_run_is_of_all_its_messages() -> None:
    """Whoever wanted the bytes for the log may have been interrupted, and more was put."""
    [run] = message_runs([encoded(body) for body in numbers(0, 10)])
    kept = run.packed()
    assert run.packed() is kept
    [more] = message_runs([encoded(body) for body in numbers(10, 5)])
    run.heads += more.heads
    run.bodies += more.bodies
    assert [len(one.lengths) for one in run.packed()] == [15]
    assert b"".join(run.encoded(keep=True)) == b"".join(with_lengths(list(zip(run.heads, run.bodies, strict=True))))
    kept = run.packed()
    run.encoded(keep=False)
    assert run.packed() is not kept, "it was let go of"


@pytest.mark.parametrize("where", ["commit", "another's put"])
@pytest.mark.interpreted
def test_a_unit_that_goes_on_after_an_interrupt_has_all_its_messages(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record said how many there were, and had those of before: nothing could be read any more."""
    world, _ = a_queue()
    world.qm.define_queue("B")
    unit = world.qm.begin()
    for body in numbers(0, 20):
        unit.put("A", body)

    def struck(*args: Any, **options: Any) -> Any:
        encoded_calls(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(units, "encoded_calls", struck)
        if where == "commit":
            unit.commit()
        else:
            world.qm.put("B", b"x")
    for body in numbers(20, 10):
        unit.put("A", body)
    unit.commit()
    assert bodies(world.qm, "A") == numbers(0, 30)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == numbers(0, 30)


@given(st.lists(MESSAGES, min_size=2, max_size=12), st.data())
def test_what_is_left_of_a_batch_is_what_lies_behind(messages: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    run = MessageRun([head for head, _ in messages], [body for _, body in messages], 1, 0, False)
    [batch] = run.in_places(11, 5)
    assert isinstance(batch, Batch)
    batch.segment, batch.cell = 3, 40
    gone, whole = 0, batch.weight
    while gone < len(messages) - 1:
        count = data.draw(st.integers(1, len(messages) - 1 - gone))
        size = batch.drop(count)
        assert size == sum(len(head) + len(body) + OVERHEAD for head, body in messages[gone : gone + count])
        gone, whole = gone + count, whole - size
        assert batch.packed is not None
        left = list(batch.packed.pairs(0, batch.count))
        assert (left, batch.weight, batch.sequence, batch.cell) == (messages[gone:], whole, 11 + gone, 40 + gone)
    assert [(entry.head, entry.body, entry.sequence) for entry in batch.entries()] == [
        (*messages[-1], 10 + len(messages))
    ]


@pytest.mark.parametrize("where", [0, 30, 59])
def test_a_large_message_among_many_keeps_its_place(where: int) -> None:
    world, queue = a_queue()
    there = numbers(0, 60)
    there[where] = bytes(MAX_BYTES + 1)
    world.qm.put_many("A", there)
    world.qm.put_many("A", numbers(60, 10))
    few = [part for part in (where, 59 - where) if part < MIN_MESSAGES]
    assert waiting(queue) == 69 - sum(few)
    assert [m.body for m in world.qm.get_many("A", 5)] == there[:5]
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == there[5:] + numbers(60, 10)


def test_large_messages_are_not_copied_to_lie_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    world, queue = a_queue()
    large = [bytes([number]) * (MAX_BYTES // MIN_MESSAGES) for number in range(20)]
    with world.qm.begin() as unit:
        unit.put_many("A", large)
    world.qm.put_many("A", large)
    assert waiting(queue) == 0
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == large + large


def test_entries_of_a_batch_are_made_once_and_lie_where_the_batch_does() -> None:
    batch = made_of()
    batch.segment, batch.cell = 4, 20
    entries = batch.entries()
    assert [(e.sequence, e.lsn, e.segment, e.cell) for e in entries] == [(11, 5, 4, 20), (12, 5, 4, 21), (13, 5, 4, 22)]
    assert batch.entries() is entries
    assert batch.packed is None


def test_what_is_still_there_of_a_batch_and_what_it_takes() -> None:
    whole, some, none = made_of(), made_of(), made_of()
    some.entries()[1].status = GONE
    for entry in none.entries():
        entry.status = GONE
    alone, gone = Entry(*encoded(b"x"), 1, 0, 0), Entry(*encoded(b"y"), 1, 0, 0)
    gone.status = GONE
    left = still_there([whole, some, none, alone, gone])
    assert left == [whole, some.entries()[0], some.entries()[2], alone]
    assert weight(left) == 6 * (81 + OVERHEAD)


def test_when_the_first_of_them_was_put() -> None:
    batch = made_of()
    assert put_time(batch) == 77
    assert put_time(batch.entries()) == put_time(batch) == 77


@pytest.mark.parametrize("how", ["one call", "a unit of calls"])
def test_what_came_together_has_no_entries_before_it_is_asked_for(how: str) -> None:
    world, queue = a_queue()
    for first in (0, 10):
        if how == "one call":
            world.qm.put_many("A", numbers(first, 10))
        else:
            with world.qm.begin() as unit:
                for body in numbers(first, 10):
                    unit.put("A", body)
    assert waiting(queue) == 20
    assert world.qm.get("A").body == b"0"
    assert waiting(queue) == 10
    assert [m.body for m in world.qm.get_many("A", 12)] == numbers(1, 12)
    assert waiting(queue) == 7
    assert bodies(world.qm, "A") == numbers(13, 7)
    assert waiting(queue) == 0


def test_what_expires_or_is_lost_with_a_crash_has_entries_at_once() -> None:
    world, queue = a_queue()
    world.qm.put_many("A", numbers(0, 5), expiry=10.0)
    world.qm.put_many("A", numbers(5, 5), persistent=False)
    assert waiting(queue) == 0


def test_few_have_entries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    world, queue = a_queue()
    world.qm.put_many("A", numbers(0, MIN_MESSAGES - 1))
    assert waiting(queue) == 0
    world.qm.put_many("A", numbers(MIN_MESSAGES - 1, MIN_MESSAGES))
    world.qm.put_many("A", numbers(2 * MIN_MESSAGES - 1, 2))
    assert waiting(queue) == MIN_MESSAGES
    assert bodies(world.qm, "A") == numbers(0, 2 * MIN_MESSAGES + 1)


def test_a_long_run_is_more_than_one_batch() -> None:
    world, queue = a_queue()
    world.qm.put_many("A", numbers(0, MAX_MESSAGES + 5))
    assert [len(item) if isinstance(item, list) else item.count for item in lane_of(queue).behind] == [258, 259]
    assert world.qm.get("A").body == b"0"
    assert waiting(queue) == 259
    assert bodies(world.qm, "A") == numbers(1, MAX_MESSAGES + 4)


def test_single_messages_keep_their_places_between_batches() -> None:
    world, queue = a_queue()
    for first in range(0, 60, 6):
        world.qm.put_many("A", numbers(first, 4))
        for body in numbers(first + 4, 2):
            world.qm.put("A", body)
    assert waiting(queue) == 40
    assert [world.qm.get("A").body for _ in range(9)] == numbers(0, 9)
    assert waiting(queue) == 32
    assert [m.body for m in world.qm.get_many("A", 21)] == numbers(9, 21)
    assert bodies(world.qm, "A") == numbers(30, 30)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == numbers(30, 30)


def test_a_browse_makes_entries_of_what_it_comes_to() -> None:
    world, queue = a_queue()
    for first in range(0, 50, 10):
        world.qm.put_many("A", numbers(first, 10))
    with world.qm._engine.lock:
        shown = queue.after((0, 0), queue.next_sequence)
        assert [next(shown).body for _ in range(15)] == numbers(0, 15)
    assert waiting(queue) == 30


@pytest.mark.parametrize("which", ["message_id", "correlation_id", "group_id"])
def test_a_search_by_an_id_finds_what_is_in_batches(which: str) -> None:
    world, queue = a_queue()
    world.qm.put_many("A", numbers(0, 20), **{which: b"a"})
    world.qm.put_many("A", numbers(20, 20), **{which: b"b"})
    assert waiting(queue) == 40
    assert world.qm.get("A", **{which: b"b"}).body == b"20"
    assert waiting(queue) == 0
    world.qm.put_many("A", numbers(40, 5), **{which: b"b"})
    assert waiting(queue) == 0, "what is indexed has entries"
    assert [m.body for m in world.qm.get_many("A", 99, **{which: b"b"})] == numbers(21, 24)


def test_a_checkpoint_lets_batches_leave_memory_but_for_what_the_buffer_holds() -> None:
    world, queue = a_queue(buffer_size=25 * (90 + OVERHEAD))
    for first in range(0, 200, 10):
        world.qm.put_many("A", numbers(first, 10))
    assert world.qm.get("A").body == b"0"
    world.qm.checkpoint()
    assert 20 <= 199 - lane_of(queue).paged <= 26
    assert waiting(queue) == 0
    world.qm.put_many("A", numbers(200, 10))
    assert waiting(queue) == 10
    world.qm.checkpoint()
    assert waiting(queue) == 0, "others are paged, so it leaves whole"
    assert lane_of(queue).paged >= 184
    assert [m.body for m in world.qm.get_many("A", 999)] == numbers(1, 209)


def test_batches_that_a_segment_has_stay_in_a_buffer_that_holds_them() -> None:
    world, queue = a_queue(buffer_size=1 << 20)
    world.qm.put_many("A", numbers(0, 50))
    world.qm.checkpoint()
    assert waiting(queue) == 50
    assert [world.qm.get("A").body for _ in range(20)] == numbers(0, 20)
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == numbers(20, 30)


def test_entries_of_which_all_are_gone_are_let_go_of() -> None:
    """Else all that was got since the last checkpoint would stay in memory, and be looked at by each collection."""
    world, queue = a_queue()
    world.qm.put_many("A", numbers(0, 10))
    world.qm.checkpoint()
    assert len(world.qm.get_many("A", 99)) == 10
    for first in range(0, 100, 10):
        world.qm.put_many("A", numbers(first, 10))
    for _ in range(95):
        world.qm.get("A")
    fresh = [item for item in queue.fresh[1] if isinstance(item, Batch)]
    assert [len(batch.made or []) for batch in fresh] == [0] * 9 + [10]
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == numbers(95, 5)


def during_a_checkpoint(world: World, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a checkpoint; something happens when its files are about to be written, without the lock."""
    real = snapshot.StateSnapshot._write_fresh

    def write(self: Any, one: Any, kind: int, forcing: Any) -> None:
        if kind == PERSISTENT:
            happens()
        real(self, one, kind, forcing)

    with monkeypatch.context() as patch:
        patch.setattr(snapshot.StateSnapshot, "_write_fresh", write)
        world.qm.checkpoint()


@pytest.mark.interpreted
@pytest.mark.parametrize("before", [0, 5, 10, 15])
@pytest.mark.parametrize("during", [1, 10, 25, 40])
@pytest.mark.parametrize("later", ["crash", "restart", "go on"])
def test_what_is_got_while_a_checkpoint_writes_is_in_its_files_and_its_get_in_the_log(
    before: int, during: int, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = a_queue()
    for first in range(0, 50, 10):
        world.qm.put_many("A", numbers(first, 10))
    for _ in range(before):
        world.qm.get("A")

    def happens() -> None:
        assert [world.qm.get("A").body for _ in range(min(during, 50 - before))] == numbers(before, during)[
            : 50 - before
        ]
        world.qm.put_many("A", numbers(50, 10))

    during_a_checkpoint(world, happens, monkeypatch)
    if later == "crash":
        world.crash(LOSE_ALL)
    elif later == "restart":
        world.restart()
    left = numbers(0, 60)[min(before + during, 50) :]
    assert bodies(world.qm, "A") == left
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == left


def test_threads_that_put_and_get_batches_while_checkpoints_are_taken_lose_nothing() -> None:
    world, _ = a_queue(buffer_size=2000)
    got: list[bytes] = []

    def put(first: int) -> None:
        for at in range(first, first + 400, 20):
            world.qm.put_many("A", numbers(at, 20))

    def get() -> None:
        while len(got) < 1600:
            got.extend(m.body for m in world.qm.get_many("A", 7))
            world.qm.checkpoint()

    threads = [threading.Thread(target=put, args=(first,)) for first in range(0, 1600, 400)]
    threads.append(threading.Thread(target=get))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, got)) == list(range(1600))
    for first in range(0, 1600, 400):
        mine = [int(body) for body in got if first <= int(body) < first + 400]
        assert mine == sorted(mine)
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == []


def test_an_alike_run_of_one_is_as_a_single_message() -> None:
    one = MessageRun([encoded(b"x")[0]], [b"x"], 1, 0, False)
    [entry] = one.entries()
    assert (entry.body, entry.expires) == (b"x", 0)
    [[entry]] = one.in_places(7, 5)
    assert (entry.body, entry.sequence, entry.lsn) == (b"x", 7, 5)


@pytest.mark.parametrize("how", ["each by itself", "between batches", "paged"])
@pytest.mark.parametrize("in_unit", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 20, 50])
def test_expired_messages_between_others_do_not_make_a_get_of_many_smaller(
    how: str, in_unit: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "MAX_BLOCK_BYTES", 500)
    world, queue = a_queue(buffer_size=1 if how == "paged" else None)
    live: list[bytes] = []
    for turn in range(0, 60, 3):
        bodies_of_turn = numbers(turn, 2)
        if how == "each by itself":
            for body in bodies_of_turn:
                world.qm.put("A", body)
        else:
            world.qm.put_many("A", bodies_of_turn)
        live += bodies_of_turn
        for body in numbers(turn + 2, 1 if turn % 2 else 9):
            world.qm.put("A", body, expiry=1.0)
    assert (waiting(queue) > 0) is (how != "each by itself")
    world.qm.checkpoint()
    world.clock.advance(5.0)
    while live:
        if in_unit:
            with world.qm.begin() as unit:
                got = unit.get_many("A", limit)
        else:
            got = world.qm.get_many("A", limit)
        assert [message.body for message in got] == live[:limit]
        live = live[limit:]
    assert world.qm.get_many("A", limit) == []
    assert world.qm.queue("A").depth == 0


def test_what_was_backed_out_too_often_is_moved_away_from_behind_expired_messages_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_writer, "MAX_BLOCK_BYTES", 500)
    world, _ = a_queue(backout_threshold=1, backout_queue="B", buffer_size=1)
    world.qm.define_queue("B")
    for body in numbers(0, 12):
        world.qm.put("A", body, message_id=body, expiry=1.0 if 0 < int(body) < 8 else None)
    with pytest.raises(RuntimeError), world.qm.begin() as unit:
        unit.get("A", message_id=b"8")
        raise RuntimeError
    world.qm.checkpoint()
    world.crash(LOSE_ALL)
    world.clock.advance(5.0)
    assert [m.body for m in world.qm.get_many("A", 3, backout_requeue=True)] == [b"0", b"9", b"10"]
    assert bodies(world.qm, "B") == [b"8"]


@pytest.mark.parametrize("delivery", ["PRIORITY", "FIFO"])
@pytest.mark.parametrize("limit", [2, 3, 4, 7])
def test_what_has_no_entries_yet_still_comes_before_what_is_behind_it(delivery: str, limit: int) -> None:
    """Also where those whose time is over make a get look further than it thought."""
    world, queue = a_queue(delivery_sequence=delivery)
    for turn in range(0, 40, 4):
        for _ in range(8):
            world.qm.put("A", b"over", priority=5, expiry=1.0)
        world.qm.put_many("A", numbers(turn, 3), priority=5)
        for body in numbers(100 + turn, 3):
            world.qm.put("A", body, priority=0)
    assert waiting(queue) == 30
    world.clock.advance(5.0)
    high = [body for turn in range(0, 40, 4) for body in numbers(turn, 3)]
    low = [body for turn in range(0, 40, 4) for body in numbers(100 + turn, 3)]
    mixed = [body for turn in range(0, 40, 4) for body in (*numbers(turn, 3), *numbers(100 + turn, 3))]
    got: list[bytes] = []
    while some := world.qm.get_many("A", limit):
        got += [message.body for message in some]
    assert got == (mixed if delivery == "FIFO" else [*high, *low])


@pytest.mark.parametrize("indexed", [False, True])
def test_a_browse_over_entries_and_batches_shows_each_message_once(indexed: bool) -> None:
    """It keeps in mind how far it has come, in the entries before the batches and in each of those."""
    world, queue = a_queue()
    wanted = [b"%d" % number for number in range(17)]
    for body in wanted[:3]:
        world.qm.put("A", body)
    for at in (3, 7, 11):
        world.qm.put_many("A", wanted[at : at + 4])
    for body in wanted[15:]:
        world.qm.put("A", body)
    assert waiting(queue) == 12
    browse = world.qm.browse("A")
    shown = [next(browse).body]
    if indexed:
        assert list(world.qm.browse("A", message_id=b"x" * 24)) == []
    assert shown + [message.body for message in browse] == wanted
    with world.qm._engine.lock:
        behind = [entry.sequence for entry in queue.after((0, 2), queue.next_sequence)]
    assert behind == list(range(3, 18))
