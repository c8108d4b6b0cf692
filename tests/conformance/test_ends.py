"""Ending and coming back over every face: what is kept, what is refused, what waits for whom."""

import threading

import pytest

import qmgr
from qmgr import Reason
from tests.conformance.calls import bodies, drain, refused
from tests.conformance.faces import Face
from tests.qmgr.world import Call

GONE = (Reason.Q_MGR_STOPPING, Reason.Q_MGR_QUIESCING, Reason.CONNECTION_BROKEN, Reason.Q_MGR_NOT_AVAILABLE)


def test_what_was_acknowledged_outlives_every_end(face: Face) -> None:
    queue = face.queue()
    for n in range(3):
        face.qm.put(queue, b"put %d" % n)
        with face.qm.begin() as unit:
            unit.put(queue, b"committed %d" % n)
            unit.get(queue)
        (face.restart, face.crash, face.restart)[n]()
    assert drain(face.qm, queue) == [b"committed 1", b"put 2", b"committed 2"]


def test_non_persistent_messages_go_with_a_restart_unless_npmclass_is_high(face: Face) -> None:
    queue, high = face.queue(), face.queue(non_persistent_class="HIGH")
    for name in (queue, high):
        face.qm.put_many(name, [b"n"], persistent=False)
        face.qm.put(name, b"p")
    face.restart()
    assert (bodies(face.qm, queue), bodies(face.qm, high)) == ([b"p"], [b"n", b"p"])
    assert face.qm.status().restart.torn_tail is False


def test_after_the_end_every_call_says_so(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    unit = qm.begin()
    unit.put(queue, b"x")
    qm.end("immediate")
    face.ended()
    for late in (lambda: unit.put(queue, b""), unit.commit):
        with pytest.raises(qmgr.MQError) as caught:
            late()
        assert caught.value.reason in (*GONE, Reason.BACKED_OUT, Reason.UOW_NOT_AVAILABLE)
    for call in (
        lambda: qm.put(queue, b""),
        lambda: qm.get(queue, wait=None),
        lambda: list(qm.browse(queue)),
        lambda: qm.begin().put(queue, b""),
        qm.queues,
        qm.status,
        qm.checkpoint,
        qm.in_doubt,
        lambda: qm.define_queue("X"),
    ):
        with pytest.raises(qmgr.Unavailable, match="QM1") as caught:
            call()
        assert caught.value.reason in GONE
    face.open()
    assert bodies(face.qm, queue) == []


@pytest.mark.parametrize("mode", ["", "slowly", None, 5], ids=repr)
def test_a_wrong_mode_of_ending_ends_nothing(face: Face, mode: str) -> None:
    with refused(qmgr.Mistake, Reason.OPTIONS_ERROR, match="quiesce"):
        face.qm.end(mode)
    queue = face.queue()
    face.qm.put(queue, b"x")
    assert bodies(face.qm, queue) == [b"x"]


def test_quiesce_lets_the_units_of_others_end(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        with qm.begin() as unit:
            unit.put(queue, b"1")
            begun.set()
            go.wait()
            unit.put(queue, b"2")

    worker = Call(work)
    begun.wait()
    ending = Call(lambda: qm.end("quiesce"))
    try:
        while True:
            with qm.begin() as unit:
                unit.put(queue, b"0")
    except qmgr.Unavailable as exc:
        assert exc.reason in (Reason.Q_MGR_QUIESCING, Reason.Q_MGR_STOPPING)
    go.set()
    worker.outcome()
    ending.outcome()
    face.ended()
    face.open()
    assert [body for body in bodies(face.qm, queue) if body != b"0"] == [b"1", b"2"]


def test_immediate_backs_out_the_units_of_others(face: Face) -> None:
    qm, queue = face.qm, face.queue()
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        with qm.begin() as unit:
            unit.put(queue, b"1")
            begun.set()
            go.wait()

    worker = Call(work)
    begun.wait()
    qm.end("immediate")
    face.ended()
    go.set()
    with pytest.raises(qmgr.MQError) as caught:
        worker.outcome()
    assert caught.value.reason in (*GONE, Reason.BACKED_OUT)
    face.open()
    assert face.qm.queue(queue).depth == 0


def test_leaving_a_with_block_over_an_exception_keeps_what_was_done(face: Face) -> None:
    """In-process it ends the queue manager; a connection is closed, and the queue manager goes on."""
    queue = face.queue()
    with pytest.raises(ValueError, match="mine"), face.qm as qm:
        qm.put(queue, b"x")
        qm.begin().put(queue, b"not committed")
        raise ValueError("mine")
    with pytest.raises(qmgr.Unavailable):
        qm.put(queue, b"too late")
    face.left()
    face.open()
    assert bodies(face.qm, queue) == [b"x"]
    assert face.qm.queue(queue).depth == 1
