"""Connections of which nobody knows whose they are: a bounded number of them, and who is known feels nothing of it."""

from pathlib import Path

import attrs
import pytest

import qmgr
from qmgr import sockets
from qmgr.daemon import local, strangers
from qmgr.daemon.strangers import GRACE_NS, Stranger, Strangers
from tests.daemon.certificates import Authority
from tests.daemon.serving import LONG, serving, until
from tests.daemon.stomp_world import Server, eventually
from tests.daemon.test_client import listener


@attrs.define
class Door:
    """Three strangers at most, by a clock that is set."""

    now: int = 0
    gone: list[str] = attrs.Factory(list)
    crowded: int = 0
    strangers: Strangers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.strangers = Strangers(lambda: self.now, self.say, most=3)

    def say(self, count: int) -> None:
        assert count == 3
        self.crowded += 1

    def come(self, name: str) -> Stranger | None:
        return self.strangers.admit(lambda: self.gone.append(name))


def test_the_oldest_goes_for_a_new_one() -> None:
    door = Door()
    for name in "abc":
        assert door.come(name) is not None
    door.now = GRACE_NS
    assert door.come("d") is not None
    assert (door.gone, door.crowded, len(door.strangers)) == (["a"], 1, 3)


def test_who_has_spoken_goes_last() -> None:
    door = Door()
    for name in "abc":
        one = door.come(name)
        assert one is not None
        one.spoken = name != "b"
    door.now = GRACE_NS
    assert door.come("d") is not None
    assert door.come("e") is not None  # "d" came just now
    assert door.gone == ["b", "a"]


def test_nobody_goes_who_has_not_had_a_moment() -> None:
    door = Door()
    first = door.come("a")
    assert first is not None and door.come("b") is not None and door.come("c") is not None
    door.now = GRACE_NS - 1
    assert door.come("d") is None
    assert door.gone == []
    door.strangers.leave(first)
    assert door.come("d") is not None


def test_it_is_said_once_until_there_is_room() -> None:
    door = Door()
    made = [door.come(str(number)) for number in range(3)]
    for step in range(1, 4):
        door.now = step * GRACE_NS
        made.append(door.come("x"))
    assert door.crowded == 1
    last = made[-1]
    assert last is not None
    door.strangers.leave(last)
    assert door.come("y") is not None
    door.now = 9 * GRACE_NS
    assert door.come("z") is not None
    assert door.crowded == 2


def test_row_76_strangers_take_no_room_from_those_who_are_known(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More strangers come than may be there, while a client works and others connect."""
    monkeypatch.setattr(strangers, "GRACE_NS", 0)
    server.listener._strangers._most = 5
    server.qm.sessions.limit = 2
    with server.client() as client:
        silent = [server.stranger() for _ in range(40)]
        for one in silent[:-5]:
            assert one.at_end()
        client.send("A", b"served")
        with server.client() as other:
            other.send("A", b"let in")
            with server.stranger() as refused:
                assert refused.error()["reason-code"] == "2025"
    assert server.bodies("A") == [b"served", b"let in"]
    assert [amq for amq, _ in server.service.said] == ["AMQ9032", "AMQ9513"]
    for one in silent:
        one.close()
    server.all_gone()
    eventually(lambda: len(server.listener._strangers) == 0)


@pytest.mark.parametrize("tls", [False, True])
def test_row_76_nor_do_those_who_would_speak_the_client_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    monkeypatch.setattr(strangers, "GRACE_NS", 0)
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    options = {"tls_certificate": certificate, "tls_key": key} if tls else {}
    with serving(tmp_path) as served:
        listening = local.make(served.service, listener(authentication=("NONE",), **options))
        listening.start()
        listening._strangers._most = 5
        host, port = listening.address[:2]
        url, ca = f"qmgr{'s' * tls}://localhost:{port}/QM1", signer.path if tls else None
        with qmgr.connect(url, ca=ca) as client:
            client.queues()
            until(lambda: not listening._by_socket)
            silent = [sockets.connect_tcp(host, port, LONG) for _ in range(40)]
            for one in silent[:-5]:
                one.settimeout(LONG)
                assert one.recv(1) == b""
            client.put("A", b"served")
            with qmgr.connect(url, ca=ca) as other:
                assert other.get("A").body == b"served"
        [said] = [line for line in served.service.said if "AMQ9032" in line]
        assert "'name': 'far'" in said
        for one in silent:
            one.close()
        until(lambda: not listening._by_socket and not len(listening._strangers))
        listening.close()


def test_two_who_connect_at_once_where_there_is_room_for_one(server: Server) -> None:
    server.qm.sessions.limit = 1
    with server.stranger() as one, server.stranger() as other:
        one.connect()
        other.say("CONNECT", accept_version="1.2", host="qm")
        assert other.error()["reason-code"] == "2025"
        one.send("A", b"x")
    assert [amq for amq, _ in server.service.said] == ["AMQ9513"]
