"""A linear log over every face: media images, recreating a queue, replay, archiving."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest

import qmgr
from logger.archive import Outcome
from qmgr import Reason
from tests.conformance.calls import bodies, facts, refused
from tests.conformance.faces import Face
from tests.conformance.test_messages import PROPERTIES
from tests.qmgr.world import NAME

Manager = qmgr.QueueManager
OPTIONS = {"log_type": "linear", "log_primary_files": 3, "log_secondary_files": 10}


def told(qm: Manager, queue: str | int, *where: int | str | datetime.datetime) -> list[bytes]:
    return [replayed.message.body for replayed in qm.replay(queue, *where)]


def test_a_replay_that_is_over_says_so_again_and_again_and_keeps_nothing_of_that(face: Face) -> None:
    queue = face.queue()
    face.qm.put(queue, b"x")
    replay = iter(face.qm.replay(queue, "oldest"))
    assert len(list(replay)) == 1
    frames = []
    for _ in range(3):
        with pytest.raises(StopIteration) as caught:
            next(replay)
        frames.append(len(caught.traceback))
    assert len(set(frames)) == 1


def test_threads_that_share_a_replay_are_told_each_message_once(face: Face) -> None:
    """Two that asked for the next page at the same time had one of the pages, or were told that it is over."""
    queue = face.queue()
    for _ in range(4):
        face.qm.put_many(queue, [b"%d" % n for n in range(500)])
    replay = face.qm.replay(queue, "oldest")
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: [one.bookmark for one in replay], range(4)))
    seen = sorted(bookmark for part in parts for bookmark in part)
    assert seen == [one.bookmark for one in face.qm.replay(queue, "oldest")]


def test_images_are_recorded_and_named(face: Face) -> None:
    qm, first, second = face.qm, face.queue(), face.queue()
    without = face.queue(image_recoverable="NO")
    assert qm.record_image(first) == [first]
    assert sorted(qm.record_image([first, second])) == sorted([first, second])
    everything = qm.record_image()
    assert {first, second} <= set(everything)
    assert without not in everything
    with refused(qmgr.NotImageRecoverable, Reason.FUNCTION_NOT_SUPPORTED, without):
        qm.record_image(without)
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, "NO"):
        qm.record_image("NO")
    qm.record_definitions()
    restart, media = qm.oldest_extents()
    assert restart.startswith("S") and media.startswith("S")


def test_a_queue_is_recreated(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    qm.put_many(queue, [b"%d" % n for n in range(20)])
    qm.record_image(queue)
    qm.get_many(queue, 5)
    qm.put(queue, b"later", properties=PROPERTIES)
    expected = [facts(m) for m in qm.browse(queue)]
    info = qm.recreate(queue)
    assert type(info) is qmgr.QueueInfo
    assert (info.name, info.depth, info.damaged) == (queue, 16, "")
    assert [facts(m) for m in qm.browse(queue)] == expected


def test_a_damaged_queue_is_2101_until_it_is_recreated(face: Face) -> None:
    """The first reading of its segment finds what the disk has lost."""
    queue = face.queue(image_recoverable="YES")
    face.qm.put_many(queue, [b"%d" % n for n in range(20)])
    face.qm.record_image(queue)
    face.qm.end("immediate")
    face.ended()
    (segment,) = (face.data_path / "qmgrs" / NAME / "queues" / queue).glob("*.seg")
    segment.write_bytes(b"")
    face.open()
    assert (face.qm.queue(queue).damaged, face.qm.queue(queue).depth) == ("", 20)  # recreated at the start
    assert bodies(face.qm, queue) == [b"%d" % n for n in range(20)]


def test_a_replay_tells_what_was_committed_in_that_order(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    qm.put(queue, b"0", properties=PROPERTIES, priority=3, correlation_id=b"c")
    qm.put(queue, b"not in the log", persistent=False)
    with qm.begin() as unit:
        unit.put(queue, b"2")
        unit.put(queue, b"3")
        qm.put(queue, b"1")
    unit = qm.begin()
    unit.put(queue, b"backed out")
    unit.backout()
    qm.get_many(queue, 100)
    replay = qm.replay(queue, "oldest")
    replayed = list(replay)
    assert [type(one) for one in replayed] == [qmgr.Replayed] * 4
    assert [one.message.body for one in replayed] == [b"0", b"1", b"2", b"3"]
    message = replayed[0].message
    assert (message.priority, message.queue, dict(message.properties)) == (3, queue, PROPERTIES)
    assert [one.place for one in replayed] == [1, 1, 1, 2]
    assert sorted(one.bookmark for one in replayed) == [one.bookmark for one in replayed]
    assert replayed[0].time.tzinfo is datetime.UTC
    assert replay.left_out == 0
    for n, one in enumerate(replayed):
        assert told(qm, queue, one.bookmark) == [b"0", b"1", b"2", b"3"][n + 1 :]
        assert told(qm, queue, "oldest", one.bookmark) == [b"0", b"1", b"2", b"3"][: n + 1]
    assert told(qm, queue, replayed[0].lsn, replayed[1].lsn) == [b"0"]
    assert told(qm, queue, replayed[0].time, replayed[0].time) == []
    assert told(qm, qm.queue(queue).id, "oldest") == [b"0", b"1", b"2", b"3"]
    assert told(qm, queue, "now") == []
    assert told(qm, queue, replay.bookmark) == []
    qm.put(queue, b"4")
    assert told(qm, queue, replay.bookmark) == [b"4"]


def test_a_replay_goes_on_while_others_work_and_may_be_left(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    qm.put_many(queue, [b"%d" % n for n in range(300)])
    replay = qm.replay(queue, "oldest")
    assert next(replay).message.body == b"0"
    reached = replay.bookmark
    qm.get_many(queue, 400)
    qm.put(queue, b"more")
    assert [one.message.body for one in replay][-1] == b"more"
    assert len(told(qm, queue, reached)) == 300
    with qm.replay(queue, "oldest") as left:
        next(left)
    assert list(left) == []
    qm.replay(queue, "oldest").close()


@pytest.mark.parametrize("start", ["yesterday", -1, None, 1.5, datetime.datetime(2020, 1, 1)], ids=repr)
def test_what_is_no_bookmark_is_2046(qm: Manager, shared: str, start: object) -> None:
    with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match=r"start is"):
        list(qm.replay(shared, start))  # type: ignore[arg-type]


def test_a_replay_of_what_is_not_there(qm: Manager) -> None:
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, "NO"):
        list(qm.replay("NO", "oldest"))
    with refused(qmgr.UnknownQueue, Reason.UNKNOWN_OBJECT_NAME, "99999"):
        list(qm.replay(99999, "oldest"))


def test_extents_are_archived_compressed_and_removed(face: Face) -> None:
    qm, queue = face.qm, face.queue(image_recoverable="NO")
    first = qm.status().log.file_numbers[0]
    while qm.status().log.file_numbers[0] < first + 3:
        qm.put_many(queue, [bytes(20_000)] * 5, persistent=True)
        qm.get_many(queue, 5)
        qm.checkpoint()
    qm.record_image()
    would = qm.archive_log(dry_run=True)
    done = qm.archive_log()
    assert type(done) is Outcome
    assert [step.sequence for step in would.done] == [step.sequence for step in done.done]
    assert done.done
    assert qm.compress_log().done
    assert type(qm.remove_log(older_than="36h", dry_run=True)) is Outcome
    with pytest.raises(qmgr.Mistake, match="older_than"):
        qm.archive_log(older_than="long ago")
    with pytest.raises(qmgr.Mistake, match="older_than"):
        qm.remove_log(older_than=float("inf"))  # type: ignore[arg-type]
    before, size = qm.status().log.tail, 64 * 4096
    assert qm.advance_log().startswith("S")
    assert qm.status().log.tail // size == -(-before // size)  # where an extent begins just there it is that one
    assert qm.reduce_log("MAX") >= 0
    with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match="AUTO"):
        qm.reduce_log("SOME")
