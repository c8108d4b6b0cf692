"""Garbage, lies, clients that are slow or never read, and very many of them: nobody else is harmed."""

import contextlib
import errno
import os
import resource
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qmgr
from qmgr import sockets, values, wire
from qmgr.daemon import local
from qmgr.errors import (
    Mistake,
    Reason,
    Unavailable,
)
from qmgr.message import Message
from recovery.records import Xid
from tests.conftest import SOAK
from tests.daemon.raw import Raw, RawSocket, hello
from tests.daemon.serving import Served, daemon, serving, until
from tests.qmgr.world import bodies

XID = Xid(1, b"global", b"branch")


@settings(max_examples=400 if SOAK else 40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(min_size=1, max_size=60), begins=st.booleans())
def test_garbage_closes_the_connection_and_harms_nobody(served: Served, garbage: bytes, begins: bool) -> None:
    """Row 72."""
    raw = Raw(served.path) if begins else None
    sock = RawSocket(served.path) if raw is None else raw.calls
    sock.send(garbage)
    sock.sock.shutdown(socket.SHUT_WR)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            frame, head = sock.receive()
            assert head.op == wire.ERROR or frame
    sock.close()
    if raw is not None:
        raw.close()
    served.manager.put("B", b"x")
    assert served.manager.get("B").body == b"x"


def test_other_protocols_hellos_are_refused(served: Served) -> None:
    """Row 72."""
    tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    for other in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", tls, b"CONNECT\n\n\0"):
        sock = RawSocket(served.path)
        error = sock.refused(other)
        assert isinstance(error, Unavailable) and error.reason == Reason.CONNECTION_BROKEN
        assert sock.is_closed()
    assert any("AMQ9207" in line for line in served.service.said)


@pytest.mark.parametrize("length", [0, 3, 4097, 2**31, 2**32 - 1])
def test_lengths_are_bounded_before_anybody_is_known(served: Served, length: int) -> None:
    """Row 73."""
    sock = RawSocket(served.path)
    error = sock.refused(wire.LENGTH.pack(length) + b"xxxxxxxx")
    assert isinstance(error, Unavailable)
    assert sock.is_closed()


def test_a_long_frame_that_never_comes_reserves_nothing(served: Served) -> None:
    """Row 73."""
    raw = Raw(served.path)
    held = [raw.join() for _ in range(10)]
    tracemalloc.start()  # which sees what is asked of the system, though it may not have given it yet
    try:
        for sock in held:
            sock.send(wire.LENGTH.pack(100_000_000) + bytes(100))
        raw.calls.ask(wire.request(wire.CLOSE, 0, 1))
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    for sock in held:
        sock.close()
    raw.close()


def test_a_frame_that_there_is_no_memory_for_is_not_called_invalid(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 57: neither the client nor the error log was told what was wrong."""

    def no_memory(*_: object) -> bytes:
        raise MemoryError

    raw = Raw(served.path)
    monkeypatch.setattr(sockets, "receive_rest", no_memory)
    error = raw.calls.refused(wire.LENGTH.pack(50_000_000) + bytes(100))
    assert "no memory for what was sent" in str(error)
    assert raw.calls.is_closed()
    raw.close()
    (line,) = served.service.said
    assert line.startswith("AMQ9213") and "no memory" in line


def test_requests_that_lie_get_one_answer(served: Served) -> None:
    """Row 73."""
    for lie in (
        wire.request(99, 0, 0),
        wire.request(wire.PUT, wire.OPTIONS, 0, "A", b"\xff\xff"),
        wire.request(wire.PUT_MANY, 0, 0, "A", b"\xff\xff\xff\xff"),
        wire.request(wire.GET, 0, 0, "A", b"short"),
        wire.request(wire.GET, wire.MESSAGE_ID, 0, "A", bytes(20)),
        wire.request(wire.NEXT, 0, 1),
        wire.REQUEST.pack(12, wire.GET, 0, 500, 0),
        wire.REQUEST.pack(13, wire.PUT, 0, 500, 0) + b"A",
        wire.LENGTH.pack(8) + bytes(8),
        wire.request(wire.CALL, 0, 0, "queue", values.dumps({})),
        wire.request(wire.REPLAY, 0, 0, "", values.dumps(7)),
        wire.request(wire.BEGIN_UNIT, wire.BEGIN, 1, "", values.dumps(7)),
        wire.request(wire.PREPARE, 0, 0),
        wire.request(wire.CALL, 0, 0, "queue", values.dumps({"args": {}, "options": {}})),
        wire.request(wire.CALL, 0, 0, "queue", values.dumps({"args": [], "options": []})),
    ):
        raw = Raw(served.path)
        assert isinstance(raw.calls.refused(lie), Unavailable)
        assert raw.calls.is_closed()
        raw.close()
    raw = Raw(served.path)
    for odd in (
        wire.request(wire.CALL, 0, 0, "close", values.dumps({"args": [], "options": {}})),
        wire.request(wire.CALL, 0, 0, "_fail", values.dumps({"args": [1], "options": {}})),
        wire.request(wire.CALL, 0, 0, "queue", values.dumps({"args": [1, 2, 3], "options": {"a": 1}})),
        wire.request(wire.CALL, 0, 0, "queue", b"{"),
        wire.call("queue", [Message(b"x", b"", "A", 0, None)], {}),
        wire.request(wire.CALL, 0, 0, "mqsc", values.dumps({"args": [["a"]], "options": {}})),
        wire.request(wire.NEXT, 0, 77, "", wire.TABLE.pack(1)),
        wire.get(0, 0, "A", -3.0, {}),
    ):
        error = raw.calls.refused(odd)
        assert isinstance(error, Mistake), error
    raw.calls.ask(wire.put(0, 0, "A", b"fine", {}))
    raw.close()
    assert not any("AMQ6118" in line for line in served.service.said), served.service.said


def test_first_frames_that_lie_get_one_answer(served: Served) -> None:
    """Row 73."""
    lies = (
        hello(manager=7),
        hello(process="1"),
        hello(patience=1),
        hello(patience=-1.0),
        hello(patience=1e300),
        hello(replaces="what is no token"),
        wire.hello(wire.HELLO, values.dumps([])),
        wire.hello(wire.HELLO, b"{"),
    )
    for lie in lies:
        stranger = RawSocket(served.path)
        assert isinstance(stranger.refused(lie), Unavailable)
        assert stranger.is_closed()
        stranger.close()
    with served.connect() as client:
        client.put("A", b"fine")
    assert [line.split()[0] for line in served.service.said] == ["AMQ9207"] * len(lies)


def test_a_request_before_the_answer_is_refused(served: Served) -> None:
    raw = Raw(served.path)
    error = raw.calls.refused(wire.put(0, 0, "A", b"x", {}) * 2)
    assert "before the one before it was answered" in str(error)
    raw.close()


def test_a_frame_that_was_begun_has_its_time(tmp_path: Path) -> None:
    """Row 75."""
    with serving(tmp_path, channels={"idle_timeout": 1, "connect_timeout": 1}) as served:
        raw, stranger, silent = Raw(tmp_path), RawSocket(tmp_path), RawSocket(tmp_path)
        raw.calls.send(wire.put(0, 0, "A", b"x", {})[:-1])
        stranger.send(hello()[:9])
        for sock in (raw.calls, stranger, silent):
            assert sock.is_closed()
        _, head = raw.join().ask(wire.put(0, 0, "A", b"x", {}))  # the session goes on
        assert head.op == wire.OK
        raw.close()
        with served.connect() as client:
            assert client.get("A").body == b"x"


def test_who_never_reads_is_left_and_blocks_nobody(tmp_path: Path) -> None:
    """Row 75."""
    channels = {"idle_timeout": 1, "connect_timeout": 3600}
    with serving(tmp_path, channels=channels) as served, served.connect() as client:
        client.define_queue("BIG", default_persistence=False)
        client.put_many("BIG", [bytes(1_000_000)] * 5)
        raw = Raw(tmp_path)
        [theirs] = [one for one in served.listener._clients._clients.values() if one.token == raw.token]
        raw.calls.send(wire.request(wire.BROWSE, 0, 0, "BIG", wire.TABLE.pack(100)))
        client.put("A", b"x")
        assert client.get("A").body == b"x"
        until(lambda: not theirs._sockets)
        raw.close()


@pytest.mark.parametrize("exc", [OSError(errno.EMFILE, "none left"), RuntimeError("no threads"), MemoryError()])
def test_row_76_what_a_connection_needs_runs_out_and_comes_back(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch, exc: Exception
) -> None:
    begin, failures = served.listener._let_in, [exc, exc]

    def scarce(sock: Any) -> None:
        if failures:
            raise failures.pop()
        begin(sock)

    monkeypatch.setattr(served.listener, "_let_in", scarce)
    for _ in range(2):
        assert RawSocket(served.path).is_closed()
    connection.put("A", b"x")  # over a socket of before
    with served.connect() as other:
        assert other.get("A").body == b"x"
    assert sum("can't accept" in line for line in served.service.said) == 1
    assert not served.listener._by_socket


def test_row_77_units_of_work_that_a_client_leaks_are_bounded(served: Served, connection: qmgr.Connection) -> None:
    served.manager.alter(max_handles=3)
    units = [connection.begin() for _ in range(4)]
    for unit in units[:3]:
        unit.put("A", b"x")
    with pytest.raises(Mistake, match="MAXHANDS") as caught:
        units[3].put("A", b"one too many")
    assert caught.value.reason == Reason.HANDLE_NOT_AVAILABLE
    with served.connect() as other, other.begin() as unit:
        unit.put("A", b"others are not counted")
    units[0].commit()
    units[3].put("A", b"now")
    units[3].commit()
    connection.close()
    until(lambda: len(served.manager.sessions) == 0)
    assert bodies(served.manager, "A") == [b"others are not counted", b"x", b"now"]
    assert served.manager.transactions() == []


def test_row_76_a_stranger_for_whom_there_is_no_thread_takes_no_room(
    served: Served, connection: qmgr.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = local.start_thread, [RuntimeError("can't start new thread"), MemoryError()]

    def scarce(work: Callable[[], None], name: str) -> None:
        if failures:
            raise failures.pop()
        start(work, name)

    monkeypatch.setattr(local, "start_thread", scarce)
    for _ in range(2):
        assert RawSocket(served.path).is_closed()
    with served.connect() as other:
        other.put("A", b"x")
    until(lambda: not served.listener._by_socket)
    assert len(served.listener._strangers) == 0


@pytest.mark.parametrize("size", [0, 1])
def test_row_73_a_frame_that_is_too_short_for_any_is_refused(served: Served, size: int) -> None:
    raw = Raw(served.path)
    error = raw.calls.refused(size.to_bytes(4, "little") + b"x" * size)
    assert f"a frame of {4 + size} bytes is not one of" in str(error)
    assert raw.calls.is_closed()
    raw.close()


def test_sockets_of_one_session_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 76."""
    monkeypatch.setattr("qmgr.daemon.client.MAX_SOCKETS", 3)
    raw = Raw(served.path)
    held = [raw.join() for _ in range(2)]
    sock = RawSocket(served.path)
    error = sock.refused(wire.hello(wire.JOIN, raw.token))
    assert isinstance(error, Unavailable) and error.reason == Reason.MAX_CONNS_LIMIT_REACHED
    held[0].close()
    until(lambda: _joins(raw))
    raw.close()


def _joins(raw: Raw) -> bool:
    sock = RawSocket(raw._path)
    return sock.ask(wire.hello(wire.JOIN, raw.token))[1].op == wire.OK


def test_idle_connections_cost_little_and_come_back(tmp_path: Path) -> None:
    """Row 76."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, (descriptors - 200) // 2) if SOAK else 100  # each has two at either end

    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096

    with daemon(tmp_path) as one, one.connect() as client:
        client.put("A", b"x")
        pid = one.process.pid
        assert pid is not None
        before = resident(pid)
        many = [one.connect() for _ in range(count)]
        for each in many:
            each.queue("A")
        assert resident(pid) - before < count * 60_000
        assert len(client.connections()) == count + 2
        for each in many:
            each.close()
        until(lambda: len(client.connections()) == 2)
        until(lambda: len(os.listdir(f"/proc/{pid}/fd")) < 40)
        assert client.get("A").body == b"x"


@pytest.mark.parametrize("more", [0, 1])
def test_row_73_a_first_frame_that_is_too_long_is_refused_though_all_of_it_has_come(served: Served, more: int) -> None:
    sock = RawSocket(served.path)
    room = wire.MAX_FIRST_FRAME_BYTES - len(hello(application=""))
    _, head = sock.ask(hello(application="x" * (room + more)))
    assert head.op == (wire.ERROR if more else wire.WELCOME)
    sock.close()


def test_an_application_may_have_a_name_for_which_a_first_frame_has_no_room(served: Served) -> None:
    with served.connect(application="ä" * wire.MAX_FIRST_FRAME_BYTES):
        assert [session.peer.application for session in served.manager.sessions] == ["ä" * 60]
