"""Replay through the API: what was committed since a bookmark, in that order, from wherever the log lies by now."""

import datetime
import errno
import functools
import gc
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from logger import lsn
from qmgr.errors import MediaNotSupported
from qmgr.log_needs import MAX_IDLE_NS
from qmgr.replay import Where
from recovery import extent_index
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, Call, World, bodies, reason_of, soon
from tests.sim.life import Life, Setup, random_life
from tests.sim.loss import LOSE_ALL

UTC = datetime.UTC
ACTIVE = f"{DATA}/log/{NAME}/active"


@pytest.fixture
def world() -> World:
    """A queue manager with a linear log that keeps all there ever was, and the queues A and B."""
    return linear()


def linear(**options: Any) -> World:
    made = World(log_type="linear", **({"log_secondary_files": 14} | options))
    made.qm.define_queue("A")
    made.qm.define_queue("B")
    return made


def told(qm: qmgr.QueueManager, queue: str | int, start: Where = "oldest", end: Where | None = None) -> list[bytes]:
    return [replayed.message.body for replayed in qm.replay(queue, start, end)]


def fill(qm: qmgr.QueueManager, extents: int, *, queue: str = "B") -> None:
    """Log so much that the log goes on into so many more extents, with checkpoints."""
    extent_bytes = qm.status().log.config.extent_bytes
    wanted = qm.status().log.tail // extent_bytes + extents
    while qm.status().log.tail // extent_bytes < wanted:
        qm.put(queue, bytes(10_000))
        qm.get(queue)
        qm.checkpoint()


def active_directory(world: World) -> str:
    return next(path for path in world.disk.files() if path.endswith("S0000000.LOG")).rpartition("/")[0]


# ---- what comes, and in which order


def test_messages_come_in_the_order_of_commit(world: World) -> None:
    qm = world.qm
    qm.put("A", b"1")
    late, early = qm.begin(), qm.begin()
    late.put("A", b"late")
    early.put("A", b"early", priority=9)
    late.put("B", b"elsewhere")
    qm.put("A", b"2", priority=5)
    early.commit()
    qm.put_many("A", [b"3", b"4"])
    late.put("A", b"later")
    late.commit()
    with pytest.raises(RuntimeError), qm.begin() as dropped:
        dropped.put("A", b"dropped")
        raise RuntimeError
    qm.begin().put("A", b"in flight")
    assert told(qm, "A") == [b"1", b"2", b"early", b"3", b"4", b"late", b"later"]
    assert told(qm, "B") == [b"elsewhere"]


def test_what_is_got_is_told_all_the_same_and_a_backout_does_not_tell_it_again(world: World) -> None:
    qm = world.qm
    qm.put("A", b"1")
    unit = qm.begin()
    unit.get("A")
    unit.backout()
    qm.get("A")
    assert told(qm, "A") == [b"1"]
    assert bodies(qm, "A") == []


def test_messages_that_are_not_persistent_are_not_in_the_log(world: World) -> None:
    qm = world.qm
    with qm.begin() as unit:
        unit.put("A", b"volatile", persistent=False)
        unit.put("A", b"kept")
    qm.put("A", b"volatile", persistent=False)
    assert told(qm, "A") == [b"kept"]


def test_a_replayed_message_is_the_message_that_was_put(world: World) -> None:
    qm = world.qm
    put = qm.put(
        "A", b"x" * 300, priority=7, correlation_id=b"c", reply_to="B", format="MQSTR", properties={"n": 1}, expiry=60.0
    )
    before = qm.status().log.tail
    with qm.begin() as unit:
        unit.put("A", b"")
    first, second = qm.replay("A", "oldest")
    assert repr(first.message) == repr(put)
    assert (first.message.queue, first.message.put_time, first.message.backout_count) == ("A", put.put_time, 0)
    assert first.time >= put.put_time
    assert first.time.tzinfo is UTC
    assert (second.message.body, second.lsn, second.place) == (b"", before, 1)


def test_the_seconds_that_a_message_has_left_are_those_of_now(world: World) -> None:
    world.qm.put("A", b"1", expiry=60)
    world.clock.advance(59)
    assert [one.message.expiry for one in world.qm.replay("A", "oldest")] == [pytest.approx(1, abs=0.1)]
    world.clock.advance(10)
    assert [one.message.expiry for one in world.qm.replay("A", "oldest")] == [0]


# ---- bookmarks


def a_history(world: World) -> list[qmgr.Replayed]:
    """Messages of every kind of call, over several extents, checkpoints and a restart."""
    qm = world.qm
    qm.put("A", b"single")
    xid = qmgr.Xid(1, b"doubt", b"")
    doubt = qm.begin(xid)
    doubt.put("A", b"doubt 1")
    qm.put_many("A", [b"many %d" % n for n in range(3)])
    doubt.put("A", b"doubt 2")
    doubt.prepare()
    fill(qm, 1)
    unit = qm.begin()
    for n in range(5):
        unit.put("A", b"unit %d" % n)
        unit.put("B", b"else")
        fill(qm, 1)
    unit.commit()
    qm.put("A", bytes(100_000))
    qm = world.restart()
    fill(qm, 2)
    qm.resolve(xid, commit=True)
    qm.put("A", b"last")
    return list(qm.replay("A", "oldest"))


def test_every_bookmark_goes_on_behind_its_message_and_every_end_stops_there(world: World) -> None:
    history = a_history(world)
    found = [one.message.body for one in history]
    assert [body[:8] for body in found] == [
        *(b"single", b"many 0", b"many 1", b"many 2", b"unit 0", b"unit 1", b"unit 2", b"unit 3", b"unit 4"),
        *(bytes(8), b"doubt 1", b"doubt 2", b"last"),
    ]
    assert sorted(one.bookmark for one in history) == [one.bookmark for one in history]
    for number, one in enumerate(history, 1):
        assert told(world.qm, "A", one.bookmark) == found[number:]
        assert told(world.qm, "A", "oldest", one.bookmark) == found[:number]
        at = [other.message.body for other in history if other.lsn >= one.lsn]
        assert told(world.qm, "A", one.lsn) == at
        assert told(world.qm, "A", lsn.text(one.lsn + 1)) == [o.message.body for o in history if o.lsn > one.lsn]
        assert told(world.qm, "A", one.time) == at
        assert told(world.qm, "A", "oldest", one.lsn) + at == told(world.qm, "A", "oldest", one.time) + at == found
        later = one.time + datetime.timedelta(microseconds=1)
        assert told(world.qm, "A", later) == [o.message.body for o in history if o.lsn > one.lsn]


def test_bookmarks_outlive_crashes_and_the_moving_of_extents(world: World) -> None:
    history = a_history(world)
    found = [one.message.body for one in history]
    for move in (world.qm.archive_log, world.qm.compress_log):
        move()
        for number in range(0, len(history), 3):
            assert told(world.qm, "A", history[number].bookmark) == found[number + 1 :]
    qm = world.crash(LOSE_ALL)
    for number in range(0, len(history), 3):
        assert told(qm, "A", history[number].bookmark) == found[number + 1 :]
    assert told(qm, "A") == found


def test_now_is_what_is_put_from_now_on(world: World) -> None:
    qm = world.qm
    qm.put("A", b"before")
    unit = qm.begin()
    unit.put("A", b"in flight")
    fill(qm, 2)
    from_now = qm.replay("A", "now")
    until_now = qm.replay("A", "oldest", "now")
    qm.put("A", b"after")
    unit.commit()
    assert [one.message.body for one in from_now] == [b"after", b"in flight"]
    assert [one.message.body for one in until_now] == [b"before"]


def test_what_comes_while_it_is_read_is_told_too(world: World) -> None:
    qm = world.qm
    qm.put("A", b"1")
    found = []
    for one in qm.replay("A", "oldest"):
        found.append(one.message.body)
        if len(found) < 40:
            qm.put("A", b"%d" % (len(found) + 1) + bytes(20_000))
    assert [int(body.rstrip(b"\0")) for body in found] == list(range(1, 41))


def test_a_replay_says_where_to_go_on_although_nothing_came(world: World) -> None:
    qm = world.qm
    found: list[bytes] = []
    mark = qm.replay("A", "now").bookmark
    for number in range(6):
        if number % 2:
            qm.put("A", b"%d" % number)
        qm.put("B", b"other")
        replay = qm.replay("A", mark)
        found += [one.message.body for one in replay]
        assert replay.bookmark > mark
        mark = replay.bookmark
    assert found == [b"1", b"3", b"5"]


def test_a_moment_is_found_whatever_the_clock_did(world: World) -> None:
    qm = world.qm
    moments = []
    for number in range(8):
        world.clock.jump_wall(random.Random(number).choice((5000, 3000, -4000)))
        qm.put("A", b"%d" % number)
        moments.append(list(qm.replay("A", "oldest"))[-1].time)
        fill(qm, 1)
    assert moments != sorted(moments)
    for moment in moments:
        first = next(number for number, other in enumerate(moments) if other >= moment)
        assert told(qm, "A", moment) == [b"%d" % number for number in range(first, 8)]
        assert told(qm, "A", "oldest", moment) == [b"%d" % number for number in range(first)]
    mountain_time = datetime.timezone(datetime.timedelta(hours=-7))
    assert told(qm, "A", max(moments).astimezone(mountain_time)) == told(qm, "A", max(moments))
    assert told(qm, "A", datetime.datetime(1970, 1, 1, tzinfo=UTC)) == told(qm, "A")
    assert told(qm, "A", datetime.datetime(2100, 1, 1, tzinfo=UTC)) == []


def test_every_moment_begins_with_the_message_that_is_of_it(world: World) -> None:
    """Be it the last one of an extent, too."""
    for number in range(100):
        world.qm.put("A", b"%d" % number + bytes(10_000))
    every = list(world.qm.replay("A", "oldest"))
    assert len({one.time for one in every}) == len(every)
    fill(world.qm, 3)
    for one in every:
        assert next(world.qm.replay("A", one.time)).message.body == one.message.body


def test_an_end_in_the_first_record_of_an_extent_takes_it_in(world: World) -> None:
    extent_bytes = world.qm.status().log.config.extent_bytes

    def left() -> int:
        return extent_bytes - world.qm.status().log.tail % extent_bytes

    while left() > 20_000:
        world.qm.put("B", bytes(10_000))
    before = left()
    world.qm.put("B", bytes(100))
    more = before - left() - 100  # than its body takes in the log
    while left() > 2000:
        world.qm.put("B", bytes(min(1000, left() - 1500)))
    world.qm.put("B", bytes(left() - more))
    world.qm.put("A", b"first")
    world.qm.put("A", b"second")
    first, _ = world.qm.replay("A", "oldest")
    assert first.lsn % extent_bytes == 0
    assert told(world.qm, "A", end=first.bookmark) == [b"first"]


@pytest.mark.parametrize(
    ("start", "end", "sentence"),
    [
        ("newest", None, "start is 'newest'; it is the bookmark of a replayed message, an LSN such as"),
        ("oldest", "oldest", "end is 'oldest'; it is"),
        (-1, None, "start is -1;"),
        (True, None, "start is True;"),
        (None, None, "start is None;"),
        (1.5, None, "start is 1.5;"),
        (b"oldest", None, "start is b'oldest'"),
        (datetime.datetime(2026, 1, 1), None, "does not say its time zone"),
        ("now", datetime.datetime(2026, 1, 1), "end is .* does not say its time zone"),
        ("<1:0:0:0>", None, "the bookmark <1:0:0:0> is beyond the end of the log"),
    ],
)
def test_what_is_no_bookmark_gets_a_sentence(world: World, start: Any, end: Any, sentence: str) -> None:
    with pytest.raises(qmgr.Mistake, match=sentence):
        world.qm.replay("A", start, end)
    assert world.qm._retention.needs.needed_from().keys() == {"restart", "media recovery"}


# ---- queues


def test_a_queue_that_is_defined_again_is_another_one(world: World) -> None:
    qm = world.qm
    qm.put("A", b"old")
    number = qm._engine.state.queues["A"].id
    qm.delete_queue("A", purge=True)
    with pytest.raises(qmgr.UnknownQueue):
        qm.replay("A", "oldest")
    qm.define_queue("A")
    qm.put("A", b"new")
    assert told(qm, "A") == [b"new"]
    assert told(qm, number) == [b"old"]
    assert [one.message.queue for one in qm.replay(number, "oldest")] == [""]
    with pytest.raises(qmgr.UnknownQueue, match="no queue has ever had the number 99"):
        qm.replay(99, "oldest")
    with pytest.raises(qmgr.Mistake, match="can't be the name of a queue"):
        qm.replay("no name!", "oldest")


def test_circular_logging_keeps_no_history() -> None:
    world = World()
    world.qm.define_queue("A")
    with pytest.raises(MediaNotSupported, match="migmqlog") as caught:
        world.qm.replay("A", "oldest")
    assert reason_of(caught.value) == qmgr.Reason.FUNCTION_NOT_SUPPORTED


# ---- what is no longer there, or can't be read


def test_pinned_extents_stay_until_they_are_read_and_no_longer() -> None:
    world = linear(log_management="Automatic")
    qm = world.qm
    for number in range(5):
        qm.put("A", b"%d" % number)
        fill(qm, 1)
    start = qm.status().log.head
    replay = qm.replay("A", "now")
    qm.put("A", b"x")
    fill(qm, 4)
    for number in range(3):
        qm.put("A", b"%d" % number)
    assert next(replay).message.body == b"x"
    fill(qm, 3)
    assert qm._retention.needs.needed_from()["a reader"] * qm.status().log.config.extent_bytes >= start - (1 << 18)
    assert [one.message.body for one in replay] == [b"0", b"1", b"2"]
    assert "a reader" not in qm._retention.needs.needed_from()


def test_what_was_read_is_pinned_no_more() -> None:
    world = linear()
    qm = world.qm
    for number in range(5):
        qm.put("A", b"%d" % number)
        fill(qm, 1)
    replay = qm.replay("A", "oldest")
    pinned = [qm._retention.needs.needed_from()["a reader"] for _ in replay]
    assert pinned == sorted(pinned) and pinned[-1] >= pinned[0] + 4


IDLE = MAX_IDLE_NS / 1e9


def test_who_does_not_read_for_long_keeps_nothing_and_goes_on_from_its_bookmark() -> None:
    world = linear()
    qm = world.qm
    for number in range(7):
        qm.put("A", b"%d" % number)
    moment = datetime.datetime.fromtimestamp(world.clock.wall_us() / 1e6 + 5, UTC)
    replays = [qm.replay("A", "oldest"), qm.replay("A", "oldest", "now")]
    late = qm.replay("A", moment)
    fill(qm, 2)
    for number, replay in enumerate(replays, 1):
        assert [next(replay).message.body for _ in range(number)] == [b"0", b"1"][:number]
    world.clock.advance(IDLE - 1)
    assert qm._retention.needs.needed_from()["a reader"] == 1
    next(replays[0])
    world.clock.advance(2)
    assert qm._retention.needs.needed_from()["a reader"] == 1  # of one that was read
    world.clock.advance(IDLE)
    assert "a reader" not in qm._retention.needs.needed_from()
    qm.put("A", b"7")
    assert next(replays[0]).message.body == b"2"
    assert qm._retention.needs.needed_from()["a reader"] == 1
    assert [one.message.body for one in replays[0]] == [b"%d" % number for number in range(3, 8)]
    assert [one.message.body for one in replays[1]] == [b"%d" % number for number in range(2, 7)]
    assert [one.message.body for one in late] == [b"7"]
    assert "a reader" not in qm._retention.needs.needed_from()


def test_a_deleted_queue_is_told_on_after_a_long_pause(world: World) -> None:
    for number in range(3):
        world.qm.put("A", b"%d" % number)
    replay = world.qm.replay("A", "oldest")
    assert next(replay).message.body == b"0"
    world.qm.delete_queue("A", purge=True)
    world.qm.define_queue("A")
    world.qm.put("A", b"another queue's")
    world.clock.advance(IDLE)
    assert [one.message.body for one in replay] == [b"1", b"2"]


def test_who_does_not_read_for_long_may_come_too_late() -> None:
    world = linear(log_management="Automatic")
    qm = world.qm
    for number in range(3):
        qm.put("A", b"%d" % number)
    qm.get_many("A", 3)
    replay = qm.replay("A", "oldest")
    assert next(replay).message.body == b"0"
    mark = replay.bookmark
    world.clock.advance(IDLE)
    fill(qm, 6)
    qm.record_image()
    fill(qm, 6)
    with pytest.raises(qmgr.BookmarkTooOld, match="reaches back to"):
        next(replay)
    with pytest.raises(qmgr.BookmarkTooOld):
        next(replay)
    assert replay.bookmark == mark
    assert "a reader" not in qm._retention.needs.needed_from()


@pytest.mark.parametrize("way", ["close", "with", "forgotten", "collected", "exhausted"])
def test_a_pin_goes_with_its_replay(way: str) -> None:
    world = linear()
    qm = world.qm
    qm.put("A", b"1")
    qm.put("A", b"2")
    replay: Any = qm.replay("A", "oldest")
    assert qm._retention.needs.needed_from()["a reader"] == 1
    next(replay)
    if way == "close":
        replay.close()
        replay.close()
        assert list(replay) == []
    elif way == "with":
        with replay:
            pass
    elif way == "collected":
        circle = [replay]
        circle.append(circle)
        del circle
        replay = None
        gc.collect()
    elif way == "exhausted":
        assert len(list(replay)) == 1
        assert list(replay) == []
    replay = None
    assert "a reader" not in qm._retention.needs.needed_from()


def reused() -> tuple[World, str, str]:
    """A world whose first extents were used again: (it, a bookmark before that, one within what is left)."""
    world = linear(log_management="Automatic")
    qm = world.qm
    qm.put("A", b"gone")
    (gone,) = qm.replay("A", "oldest")
    qm.put("A", b"gone too")
    fill(qm, 6)
    qm.record_image()
    fill(qm, 3)
    qm.record_image()
    qm.checkpoint()
    qm.checkpoint()
    mark = qm.replay("A", "now").bookmark
    qm.put("A", b"there")
    return world, gone.bookmark, mark


def test_a_bookmark_that_the_log_has_left_behind_is_refused() -> None:
    world, gone, mark = reused()
    qm = world.qm
    assert told(qm, "A", mark) == told(qm, "A", "oldest") == [b"there"]
    with pytest.raises(qmgr.BookmarkTooOld, match="which reaches back to <0:") as caught:
        qm.replay("A", gone)
    reaches_back_to = str(caught.value).partition("reaches back to ")[2].partition(";")[0]
    assert told(qm, "A", reaches_back_to) == [b"there"]
    with pytest.raises(qmgr.BookmarkTooOld, match="the moment 2023"):
        qm.replay("A", datetime.datetime(2023, 1, 1, tzinfo=UTC))
    with pytest.raises(qmgr.BookmarkTooOld):
        qm.replay("A", 0)


def test_units_of_work_that_began_before_the_log_that_is_there_are_left_out_whole() -> None:
    """Also by a replay that has made a pause."""
    world = linear()
    qm = world.qm
    with qm.begin() as half:
        half.put("A", b"gone")
        fill(qm, 1)
        first = qm.status().log.tail
        half.put("A", b"half")
    qm.put("A", b"whole")
    fill(qm, 3)
    extent_bytes = qm.status().log.config.extent_bytes
    directory = active_directory(world)
    for number in range(first // extent_bytes - 1):
        world.disk.remove(f"{directory}/S{number:07d}.LOG")
    replay = qm.replay("A", "oldest")
    assert next(replay).message.body == b"whole"
    world.clock.advance(IDLE)
    assert list(replay) == []
    assert replay.left_out == 1
    paused = qm.replay("A", "oldest")
    world.clock.advance(IDLE)
    assert [one.message.body for one in paused] == [b"whole"]
    assert paused.left_out == 1
    with pytest.raises(qmgr.BookmarkTooOld, match="can't be told whole"):
        told(qm, "A", first // extent_bytes * extent_bytes)


def test_an_extent_that_can_not_be_read_just_now_makes_no_bookmark_too_old() -> None:
    world = linear()
    qm = world.qm
    with qm.begin() as unit:
        unit.put("A", b"first")
        fill(qm, 1)
        behind = qm.status().log.tail
        unit.put("A", b"second")
    fill(qm, 3)
    sequence = behind // qm.status().log.config.extent_bytes
    before = f"{active_directory(world)}/S{sequence - 2:07d}.LOG"
    start = sequence * qm.status().log.config.extent_bytes
    world.disk.fail("open", errno.EIO, where=lambda path: path == before)
    with pytest.raises(qmgr.Unavailable, match=rf"{before}.*replay from the last bookmark"):
        told(qm, "A", start)
    assert told(qm, "A", start) == [b"first", b"second"]


def test_a_missing_extent_is_named_and_never_jumped(world: World) -> None:
    qm = world.qm
    history = a_history(world)
    qm = world.qm
    extent_bytes = qm.status().log.config.extent_bytes
    sequence = history[6].lsn // extent_bytes - 1
    world.disk.remove(f"{active_directory(world)}/S{sequence - 1:07d}.LOG")
    replay = qm.replay("A", "oldest")
    with pytest.raises(qmgr.Damaged, match=f"S{sequence - 1:07d}.LOG is missing") as caught:
        list(replay)
    assert reason_of(caught.value) == qmgr.Reason.OBJECT_DAMAGED
    with pytest.raises(qmgr.Damaged):
        next(replay)
    qm.checkpoint()
    qm.put("A", b"more")
    assert told(qm, "A", qm.status().log.checkpoint) == [b"more"]


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("fault", ["cut", "not readable"])
def test_what_can_not_be_read_is_not_taken_for_removed(world: World, number: int, fault: str) -> None:
    qm = world.qm
    qm.put("A", b"1")
    (first,) = qm.replay("A", "oldest")
    qm.put("A", b"2")
    fill(qm, 6)
    qm.put("A", b"3")
    path = f"{active_directory(world)}/S{number:07d}.LOG"
    content = world.disk.peek(path)
    error: type[qmgr.MQError] = qmgr.Unavailable
    if fault == "cut":
        error = qmgr.Damaged
        world.disk.poke(path, content[:5000])
    else:
        world.disk.fail("open", errno.EACCES, once=False, where=path.__eq__)
    for start in ("oldest", first.bookmark, first.time):
        with pytest.raises(error, match=path):
            qm.replay("A", start)
    assert told(qm, "A", "now") == []
    world.disk.heal()
    world.disk.poke(path, content)
    assert told(qm, "A") == [b"1", b"2", b"3"]


def test_an_error_of_the_disk_is_told_and_ends_that_replay_only(world: World) -> None:
    qm = world.qm
    qm.put("A", b"1")
    fill(qm, 3)
    qm.put("A", b"2")
    replay = qm.replay("A", "oldest")
    world.disk.fail("read", errno.EIO)
    with pytest.raises(qmgr.Unavailable) as caught:
        list(replay)
    assert reason_of(caught.value) == qmgr.Reason.FILE_SYSTEM_ERROR
    assert told(qm, "A") == [b"1", b"2"]


@pytest.mark.parametrize("mount_point", [False, True])
def test_an_archive_that_is_not_mounted_is_not_taken_for_the_end_of_the_past(world: World, mount_point: bool) -> None:
    """What lies there would be left out without a word, or be said to be gone for good."""
    qm = world.qm
    qm.put("A", b"1")
    (first,) = qm.replay("A", "oldest")
    fill(qm, 3)
    qm.put("A", b"2")
    under_way = qm.replay("A", "oldest")
    assert next(under_way).message.body == b"1"
    assert qm.archive_log().done
    archive = f"{DATA}/log/{NAME}/archive"
    away = {path: world.disk.peek(path) for path in world.disk.files(archive)}
    for path in away:
        world.disk.remove(path)
    if not mount_point:
        world.disk.rmdir(archive)
    for start in ("oldest", first.bookmark, first.time, 0):
        with pytest.raises(qmgr.Unavailable, match="mount its file system") as caught:
            qm.replay("A", start)
        assert reason_of(caught.value) == qmgr.Reason.FILE_SYSTEM_ERROR
    with pytest.raises(qmgr.Unavailable, match="mount its file system"):
        list(under_way)
    assert told(qm, "A", "now") == []
    world.disk.mkdir(archive)
    for path, data in away.items():
        world.disk.poke(path, data)
    assert told(qm, "A") == [b"1", b"2"]
    assert told(qm, "A", first.bookmark) == [b"2"]


def test_an_archive_of_a_later_past_than_that_of_a_queue_manager_put_back_is_not_told() -> None:
    world = linear()
    qm = world.qm
    qm.put("A", b"kept")
    fill(qm, 1)
    qm.end("immediate")
    archive = f"{DATA}/log/{NAME}/archive"
    copy = {path: world.disk.peek(path) for path in world.disk.files()}

    def work_on(qm: qmgr.QueueManager, body: bytes) -> None:
        for _ in range(4):
            qm.put("A", body)
            fill(qm, 1)

    qm = world.start()
    work_on(qm, b"lost")
    assert qm.archive_log().done
    qm.end("immediate")
    for path in world.disk.files():
        if not path.startswith(archive):
            world.disk.remove(path)
    for path, data in copy.items():
        world.disk.poke(path, data)
    qm = world.start()
    replay = qm.replay("A", "oldest")
    found = [next(replay).message.body]
    work_on(qm, b"new")  # where those lie that were lost, in the same extents
    assert found + [one.message.body for one in replay] == [b"kept"] + 4 * [b"new"]
    for _ in range(2):
        assert told(qm, "A") == [b"kept"] + 4 * [b"new"]
        assert qm.archive_log().done
        qm = world.restart()
        fill(qm, 2)


def test_a_head_in_an_extent_that_nothing_was_written_to_is_no_damage() -> None:
    """The disk has room for no more extents, and no record has followed the last one that was ended."""
    world = World(log_type="linear", log_primary_files=3)
    world.qm.define_queue("A")
    world.disk.capacity = world.disk.used + 20_000
    world.clock.advance(2)
    world.qm.look_around()
    world.qm.advance_log()
    world.qm.advance_log()
    world.qm.checkpoint()
    log = world.qm._log
    assert log.state.head == log.buffer.tail
    assert log.state.head % log.state.extent_bytes == 0
    for start in ("oldest", "now", datetime.datetime.fromtimestamp(0, datetime.UTC)):
        assert list(world.qm.replay("A", start)) == []


def test_an_error_at_any_read_leaves_nothing_out_and_tells_nothing_twice(world: World) -> None:
    history = a_history(world)
    world.qm.archive_log()
    world.qm.compress_log()
    index_all(world)
    expected = [one.message.body for one in history]
    for start in (history[0].bookmark, history[4].time):
        wanted = [one.message.body for one in world.qm.replay("A", start)]
        assert wanted == expected[len(expected) - len(wanted) :]
        nth, fired = 0, 1
        while fired:
            nth += 1
            fault = world.disk.fail("read", errno.EIO, nth=nth)
            found, mark = [], start
            try:
                for one in world.qm.replay("A", start):
                    found.append(one.message.body)
                    mark = one.bookmark
            except qmgr.MQError as exc:
                assert isinstance(exc, (qmgr.Unavailable, qmgr.Damaged))
            fired = fault.fired
            world.disk.heal()
            assert found + told(world.qm, "A", mark) == wanted
        assert nth > 5


def test_a_replay_ends_with_its_queue_manager(world: World) -> None:
    qm = world.qm
    qm.put_many("A", [b"1", b"2", b"3"])
    replay = qm.replay("A", "oldest")
    mark = next(replay).bookmark
    world.restart()
    for _ in range(2):
        with pytest.raises(qmgr.Unavailable):
            next(replay)
    with pytest.raises(qmgr.Unavailable):
        qm.replay("A", "oldest")
    assert told(world.qm, "A", mark) == [b"2", b"3"]


def test_an_interrupted_replay_does_not_look_finished(world: World) -> None:
    qm = world.qm
    qm.put_many("A", [b"1", b"2"])
    replay = qm.replay("A", "oldest")
    next(replay)

    def interrupt() -> None:
        raise KeyboardInterrupt

    for _ in range(100):
        qm.put("B", b"")
    world.clock.give_way = interrupt  # type: ignore[method-assign]
    next(replay)
    with pytest.raises(KeyboardInterrupt):
        next(replay)
    with pytest.raises(qmgr.Mistake, match="interrupted"):
        next(replay)


# ---- indexes


def index_all(world: World) -> None:
    """An index beside every extent that is full."""
    log = world.qm._log
    history = log.history()
    for sequence, place in history.places().items():
        if sequence < log.durable // log.config.extent_bytes:
            extent_index.load_or_build(world.disk, history, log.state, place)


def test_extents_without_the_queue_are_passed_over(world: World) -> None:
    qm = world.qm
    qm.put("A", b"first")
    fill(qm, 2)
    unit = qm.begin()
    unit.put("A", b"unit")
    fill(qm, 3)
    empty = qm.status().log.tail // qm.status().log.config.extent_bytes - 1
    unit.commit()
    fill(qm, 2)
    index_all(world)
    path = f"{active_directory(world)}/S{empty - 1:07d}.LOG"
    data = bytearray(world.disk.peek(path))
    data[100_000] ^= 1
    world.disk.poke(path, bytes(data))
    assert told(qm, "A") == [b"first", b"unit"]
    with pytest.raises(qmgr.Damaged, match="is damaged at"):
        told(qm, "B")
    for name in world.disk.list(active_directory(world)):
        if name.endswith(".IDX"):
            world.disk.remove(f"{active_directory(world)}/{name}")
    with pytest.raises(qmgr.Damaged, match="is damaged at"):
        told(qm, "A")


def test_what_is_told_is_the_same_with_indexes(world: World) -> None:
    history = a_history(world)
    index_all(world)
    again = list(world.qm.replay("A", "oldest"))
    assert [(one.bookmark, one.message.body) for one in again] == [(o.bookmark, o.message.body) for o in history]
    for number, one in enumerate(history, 1):
        assert told(world.qm, "A", one.bookmark) == [other.message.body for other in history[number:]]


def test_a_message_that_lies_in_several_extents_is_told(world: World) -> None:
    qm = world.qm
    extent_bytes = qm.status().log.config.extent_bytes
    large = random.Random(1).randbytes(extent_bytes // 2 + extent_bytes // 4)
    qm.put("A", b"1")
    for number in range(6):
        qm.put("A" if number % 2 else "B", large)
        qm.get("A" if number % 2 else "B")
        qm.checkpoint()
    qm.put("A", b"2")
    expected = [b"1", large, large, large, b"2"]
    marks = [one.bookmark for one in qm.replay("A", "oldest")]
    for _ in range(2):
        assert told(qm, "A") == expected
        assert [told(qm, "A", mark) for mark in marks] == [expected[n:] for n in range(1, 6)]
        index_all(world)


# ---- random lives


def setups() -> list[Setup]:
    return [Setup(log_type="linear"), Setup(log_type="linear", write_integrity="SingleWrite", checkpoint_records=40)]


def check(life: Life, rng: random.Random) -> None:
    """What a replay tells is what was put and committed, from the oldest, and from any bookmark on."""
    for queue, expected in life.model.history.items():
        history = list(life.qm.replay(queue, "oldest"))
        assert [one.message.body for one in history] == expected, life.tell()
        for _ in range(4):
            if history:
                number = rng.randrange(len(history))
                assert told(life.qm, queue, history[number].bookmark) == expected[number + 1 :], life.tell()
        at = rng.randrange(life.qm.status().log.tail)
        assert told(life.qm, queue, at) == [one.message.body for one in history if one.lsn >= at], life.tell()
        assert told(life.qm, queue, "oldest", at) == [one.message.body for one in history if one.lsn < at], life.tell()


@pytest.mark.parametrize("setup", setups(), ids=["triple", "single"])
@pytest.mark.parametrize("seed", range(60 if SOAK else 3))
def test_replay_tells_what_the_model_put_and_committed_over_any_crashes(setup: Setup, seed: int) -> None:
    life = Life(setup, seed=seed)
    rng = random.Random(f"replay {seed}")
    for _ in range(4):
        random_life(life, rng, 25)
        check(life, rng)
        extent = life.qm.status().log.tail // life.qm.status().log.config.extent_bytes
        if extent > 2 and rng.random() < 0.7:
            rng.choice((life.qm.archive_log, life.qm.compress_log))()
            check(life, rng)
    assert any(life.model.history.values())


# ---- real threads, a real disk


@pytest.mark.parametrize("moving", [False, True], ids=["reused", "moved"])
def test_writers_go_on_while_a_replay_follows_them(real: Callable[..., qmgr.QueueManager], moving: bool) -> None:
    qm = real(log_type="linear", log_management="Manual" if moving else "Automatic", log_primary_files=3)
    qm.define_queue("A")
    qm.define_queue("B")
    start = qm.replay("A", "now").bookmark
    done = threading.Event()

    def write(writer: int) -> None:
        rng = random.Random(writer)
        for number in range(150):
            with qm.begin() as unit:
                for part in range(rng.randint(1, 4)):
                    unit.put("B", bytes(rng.choice((10, 3000))))
                    unit.put("A", b"%d %d %d " % (writer, number, part) + bytes(rng.choice((10, 1000))))
            if number % 5 == 0:
                qm.get_many("A", 100)
                qm.get_many("B", 100)

    followed: list[qmgr.Replayed] = []

    def follow() -> None:
        mark = start
        while True:
            last = done.is_set()
            with qm.replay("A", mark) as replay:
                for number, one in enumerate(replay):
                    followed.append(one)
                    if number == 50 and not last:  # from the middle of a unit of work on, often
                        break
            mark = replay.bookmark
            if last:
                return

    def move() -> None:
        while not done.is_set():
            qm.checkpoint()
            qm.archive_log()
            qm.compress_log()
            qm.remove_log(older_than=0)

    with qm.replay("A", start) as whole:
        writers = [Call(functools.partial(write, writer)) for writer in range(3)]
        others = [Call(follow), Call(move if moving else done.wait)]
        for call in writers:
            call.outcome()
        done.set()
        for call in others:
            call.outcome()
        found = [one.message.body for one in whole]
    assert [one.message.body for one in followed] == found
    numbers = [tuple(map(int, body.split(b" ")[:3])) for body in found]
    for writer in range(3):
        mine = [number for number in numbers if number[0] == writer]
        assert mine == sorted(mine)
        assert {number for _, number, _ in mine} == set(range(150))
    extent_bytes = qm.status().log.config.extent_bytes
    assert qm.status().log.tail // extent_bytes > 5


def test_a_replay_of_what_is_there_never_meets_the_removal_of_it(real: Callable[..., qmgr.QueueManager]) -> None:
    qm = real(log_type="linear", log_primary_files=3)
    for queue in ("A", "B"):
        qm.define_queue(queue)
    done = threading.Event()
    lengths: list[int] = []

    def write() -> None:
        for number in range(3000):
            qm.put("A", bytes(30_000))
            qm.get("A")
            qm.record_image()
            if number >= 60 and lengths and min(qm._log.history().places()) > 1:  # the others have had their turns
                break

    def remove() -> None:
        while not done.is_set():
            qm.remove_log(older_than=0)

    writer, remover = Call(write), Call(remove)
    while writer.is_alive():
        lengths.append(len(told(qm, "A", "oldest", "now")))
    done.set()
    writer.outcome()
    remover.outcome()
    assert lengths
    assert min(qm._log.history().places()) > 1  # something was removed


def test_two_replays_and_a_restart_on_the_real_disk(real: Callable[..., qmgr.QueueManager]) -> None:
    qm = real(log_type="linear", log_sync="os")
    qm.define_queue("A")
    expected = [b"%d" % number for number in range(300)]
    for body in expected:
        qm.put("A", body)
    one, other = qm.replay("A", "oldest"), qm.replay("A", "oldest")
    pairs = [(a.message.body, b.message.body) for a, b in zip(one, other, strict=True)]
    assert pairs == [(body, body) for body in expected]  # what is durable only now is told too
    marks = [replayed.bookmark for replayed in qm.replay("A", "oldest")]
    qm.end("immediate")
    qm = real()
    qm.put("A", b"more")
    assert soon(lambda: told(qm, "A", marks[100])) == [*expected[101:], b"more"]
