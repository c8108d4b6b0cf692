"""The thread that answers the quick calls of all sockets: nobody waits for another's wait, and forces are shared."""

import threading
from pathlib import Path

import pytest

import qmgr
from qmgr import wire
from qmgr.daemon import hands
from qmgr.daemon.hands import Hands
from qmgr.errors import Reason, Unavailable
from tests.daemon.raw import Raw
from tests.daemon.serving import LONG, Served, serving, until, waits
from tests.qmgr.world import bodies

BODY = b"x" * 256


def put(body: bytes = BODY, unit: int = 0) -> bytes:
    return wire.put(wire.BEGIN if unit else 0, unit, "A", body, {})


def get(wait: float = 0.0) -> bytes:
    return wire.get(0, 0, "A", wait, {})


def test_sockets_that_are_idle_have_no_threads(served: Served) -> None:
    with served.connect() as connection:
        connection.put("A", BODY)
        before = threading.active_count()
        clients = [Raw(served.path) for _ in range(20)]
        until(lambda: threading.active_count() <= before)
        for one in clients:
            assert one.calls.ask(put())[1].op == wire.OK
        assert threading.active_count() <= before
        for one in clients:
            one.close()
    assert len(bodies(served.manager, "A")) == 21


def test_calls_that_come_together_share_a_force(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    force = served.manager.force
    monkeypatch.setattr(served.manager, "force", lambda lsn: [forced.append(lsn), force(lsn)])
    clients = [Raw(served.path) for _ in range(8)]
    with served.manager._engine.lock:
        for one in clients:
            one.calls.send(put())
    assert {one.calls.receive()[1].op for one in clients} == {wire.OK}
    assert len(forced) == 1
    assert served.manager._engine.log.safe >= forced[0]
    for one in clients:
        one.close()


def test_a_commit_whose_force_fails_is_told_to_have_failed_and_does_not_count(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 2."""

    def fails(lsn: int) -> None:
        raise Unavailable("the log can't be written", reason=Reason.Q_MGR_NOT_AVAILABLE)

    raws = [Raw(served.path) for _ in range(2)]
    for one in raws:
        one.calls.ask(put(unit=1))
    monkeypatch.setattr(served.manager, "force", fails)
    with served.manager._engine.lock:
        for one in raws:
            one.calls.send(wire.request(wire.COMMIT, 0, 1))
    for one in raws:
        frame, head = one.calls.receive()
        assert head.op == wire.ERROR and "can't be written" in str(wire.error(frame, head))
    assert all(not client._ended for client in served.listener._clients._clients.values())
    for one in raws:
        one.close()


def test_what_a_client_had_sent_before_it_went_is_not_done(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lay in its socket while the thread was at work for another one."""
    connection.put("A", BODY)
    at_work, go_on, force = threading.Event(), threading.Event(), served.manager.force

    def slow(lsn: int) -> None:
        at_work.set()
        assert go_on.wait(LONG)
        force(lsn)

    with monkeypatch.context() as patched:
        patched.setattr(served.manager, "force", slow)
        busy, gone = Raw(served.path), Raw(served.path)
        busy.calls.send(put())
        assert at_work.wait(LONG)
        gone.calls.send(get())
        gone.close()
        until(lambda: len(served.manager.sessions) == 2)
        go_on.set()
        assert busy.calls.receive()[1].op == wire.OK
    connection.put("A", BODY)
    busy.close()
    assert bodies(served.manager, "A") == [BODY] * 3


def test_who_waits_keeps_nobody_waiting(served: Served, connection: qmgr.Connection) -> None:
    raws = [Raw(served.path) for _ in range(3)]
    for one in raws:
        one.calls.send(get(wait=LONG))
    waits(served, count=3)
    with connection.begin() as unit:
        unit.put("B", BODY)
    assert connection.get("B").body == BODY
    connection.put_many("A", [BODY] * 3)
    for one in raws:
        frame, head = one.calls.receive()
        assert wire.got_message(frame, head, "A").body == BODY
        assert one.calls.ask(put())[1].op == wire.OK  # its socket is among the others again
        one.close()
    assert bodies(served.manager, "A") == [BODY] * 3


def test_who_does_not_read_its_answer_keeps_nobody_waiting(tmp_path: Path) -> None:
    large = bytes(range(256)) * 4096
    with serving(tmp_path, log_file_pages=2048) as served, served.connect() as connection:
        connection.put("A", large)
        raw = Raw(served.path)
        raw.calls.send(get())
        until(lambda: not bodies(served.manager, "A"))
        connection.put("B", BODY)
        assert connection.get("B").body == BODY
        frame, head = raw.calls.receive()
        assert wire.got_message(frame, head, "A").body == large
        assert raw.calls.ask(put())[1].op == wire.OK
        raw.close()


def test_a_request_that_comes_in_pieces_keeps_nobody_waiting(served: Served, connection: qmgr.Connection) -> None:
    raw, frame = Raw(served.path), put()
    for piece in (frame[:2], frame[2:20], frame[20:]):
        raw.calls.send(piece)
        connection.put("B", BODY)
    assert raw.calls.receive()[1].op == wire.OK
    raw.close()
    assert bodies(served.manager, "A") == [BODY]


def test_who_outruns_checkpoints_waits_for_one_alone(served: Served, connection: qmgr.Connection) -> None:
    engine = served.manager._engine
    taken = engine.checkpointer.count
    with engine.lock:
        engine.checkpointer.came = 3 * engine.checkpointer.came_max
    engine.attention = True
    connection.put("A", BODY)
    assert engine.checkpointer.count > taken
    assert not served.manager.sessions.pressed


def test_a_call_for_which_there_is_no_thread_loses_its_connection_only(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 55."""

    def none(*args: object) -> None:
        raise RuntimeError("can't start new thread")

    raw = Raw(served.path)
    until(lambda: "qmgr client call" not in {one.name for one in threading.enumerate()})
    with monkeypatch.context() as patched:
        patched.setattr(hands, "start_thread", none)
        error = raw.calls.refused(get(wait=LONG))
        assert isinstance(error, Unavailable) and raw.calls.is_closed()
        connection.put("A", BODY)
    assert any("can't start new thread" in line for line in served.service.said)
    assert connection.get("A", wait=LONG).body == BODY
    raw.close()


def test_hands_are_used_again_and_go_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, done, used = Hands("hands of this test"), threading.Event(), set[int]()

    def work() -> None:
        used.add(threading.get_ident())
        done.set()

    def count() -> int:
        return sum(one.name == "hands of this test" for one in threading.enumerate())

    for _ in range(5):
        until(lambda: pool._free == count())
        done.clear()
        pool.do(work)
        assert done.wait(LONG)
    assert len(used) == 1
    monkeypatch.setattr(hands, "LINGER", 0.001)
    until(lambda: pool._free == count())
    pool.do(work)
    until(lambda: count() == 0)
    assert pool._free == 0
