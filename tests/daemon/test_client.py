"""Connections: replays, progress, interrupts anywhere, and queue managers that are reached over TCP."""

import asyncio
import contextlib
import gc
import os
import re
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import qmgr
import qmgr.aio
from qmgr import locations, sasl, sockets, wire
from qmgr.client import FIRST_PAGE
from qmgr.configuration import ListenerConfig, Protocol
from qmgr.daemon import local
from qmgr.daemon.client import Client, Cursor
from qmgr.errors import Mistake, NotAuthorized, Reason, Unavailable
from qmgr.link import Link
from qmgr.message import Message
from qmgr.users import Users
from tests.conftest import SOAK
from tests.daemon.certificates import Authority
from tests.daemon.raw import MOST, RawSocket, hello
from tests.daemon.serving import LONG, Served, serving, until, waits
from tests.qmgr.test_interrupts import Tracer
from tests.qmgr.world import NAME, Call, bodies

NEVER_S = 1e6  # seconds; in place of a bound of ours that is not to be the one that counts


@pytest.fixture
def linear(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, log_type="linear", log_management="Archive") as one:
        yield one


@pytest.mark.parametrize("read", [0, 1, FIRST_PAGE, 2 * FIRST_PAGE])
@pytest.mark.parametrize("look", ["browse", "replay"])
def test_who_reads_on_when_the_connection_is_closed_hears_so(linear: Served, look: str, read: int) -> None:
    """What had come already was given all the same: so it went well with few messages, and failed with more."""
    linear.manager.put_many("A", [b""] * 4 * FIRST_PAGE)
    client = linear.connect()
    reading = client.browse("A") if look == "browse" else client.replay("A", "oldest")
    for _ in range(read):
        next(reading)
    client.close()
    with pytest.raises(Unavailable, match=f"the connection to queue manager '{NAME}' is closed") as caught:
        next(reading)
    assert caught.value.reason == Reason.HCONN_ERROR


# ---- replays and progress


def test_a_replay_is_that_of_the_queue_manager(linear: Served) -> None:
    with linear.connect() as client:
        for number in range(20):
            with client.begin() as unit:
                unit.put("A", b"%d" % number)
                unit.put_many("A", [b"a", b"b"])
                unit.put("B", b"other")
        ours = list(linear.manager.replay("A", "oldest"))
        theirs = client.replay("A", "oldest")
        first = theirs.bookmark
        found = [next(theirs)]
        assert theirs.bookmark == found[0].bookmark
        found += theirs
        assert [attrs.astuple(one) for one in found] == [attrs.astuple(one) for one in ours]
        assert len(found) == 60
        assert theirs.left_out == 0
        assert list(client.replay("A", first, found[2].bookmark))[-1].bookmark == found[2].bookmark
        assert [one.bookmark for one in client.replay("A", found[6].bookmark)] == [one.bookmark for one in ours[7:]]
        assert [one.message.body for one in client.replay("A", ours[-1].time)]
        ended = linear.manager.replay("A", ours[-1].bookmark)
        assert list(ended) == list(theirs) == []
        assert theirs.bookmark == ended.bookmark > found[-1].bookmark
        with client.replay("A", "oldest") as part:
            next(part)
        with pytest.raises(StopIteration):
            next(part)
        for wrong in ("nowhere", -1, 3.5):
            with pytest.raises(Mistake) as here:
                linear.manager.replay("A", wrong)  # type: ignore[arg-type]
            with pytest.raises(Mistake) as there:
                client.replay("A", wrong)  # type: ignore[arg-type]
            assert str(here.value) == str(there.value)


def test_a_replay_that_is_closed_where_there_is_no_socket_lets_go_of_the_log_later(
    linear: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its close was refused, which hid what had ended its block, and the daemon kept it."""
    linear.manager.put_many("A", [b"x"] * 10)
    with far(linear, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as client:
        [theirs] = [one for one in gc.get_objects() if type(one) is Client and not one.closed]
        monkeypatch.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
        with pytest.raises(ValueError), client.replay("A", "oldest"):
            waiting = Call(lambda: client.get("B", wait=LONG))
            waits(linear, "B")
            raise ValueError
        with pytest.raises(Unavailable):
            client.queues()
        assert len(theirs.cursors) == 1
        linear.manager.put("B", b"x")
        waiting.outcome()
        client.queues()
        assert not theirs.cursors


@pytest.mark.parametrize("how", ["no socket", "interrupt", "interrupt of close"])
def test_a_replay_whose_call_never_came_to_the_daemon_lets_go_of_the_log_later(
    linear: Served, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The daemon kept it, and with it the log, until the connection ended."""

    def struck(*_: object) -> Any:
        raise KeyboardInterrupt

    linear.manager.put_many("A", [b"x"] * 300)
    with far(linear, authentication=("NONE",)) as place, qmgr.connect(f"qmgr://{place}") as client:
        [theirs] = [one for one in gc.get_objects() if type(one) is Client and not one.closed]
        replay = client.replay("A", "oldest")
        with monkeypatch.context() as patched:
            if how == "no socket":
                patched.setattr("qmgr.daemon.client.MAX_REMOTE_SOCKETS", 1)
                waiting = Call(lambda: client.get("B", wait=LONG))
                waits(linear, "B")
            else:
                patched.setattr(Link, "ask", struck)
            with pytest.raises((Unavailable, KeyboardInterrupt)):
                if how == "interrupt of close":
                    replay.close()
                list(replay)
            replay.close()
        assert len(theirs.cursors) == 1
        linear.manager.put("B", b"x")
        if how == "no socket":
            waiting.outcome()
        client.queues()
        assert not theirs.cursors


def test_replays_that_nobody_reads_let_go_of_the_log(linear: Served) -> None:
    with linear.connect() as client:
        client.put_many("A", [b"x"] * 300)
        replay = client.replay("A", "oldest")
        next(replay)
        assert len(linear.manager._retention.needs._readers) == 1
        del replay
        assert len(list(client.browse("A"))) == 300
        assert len(linear.manager._retention.needs._readers) == 0
        held = client.replay("A", "oldest")
    for _ in range(2):  # it has not come to its end
        with pytest.raises(Unavailable):
            list(held)


@pytest.mark.parametrize("look", ["browse", "replay"])
def test_what_was_read_to_its_end_is_forgotten(linear: Served, look: str) -> None:
    with linear.connect() as client:
        client.put_many("A", [b"x"] * 20)
        [theirs] = [one for one in gc.get_objects() if type(one) is Client and not one.closed]
        assert len(list(client.browse("A") if look == "browse" else client.replay("A", "oldest"))) == 20
        assert not theirs.cursors


def test_what_goes_wrong_behind_messages_of_a_page_is_told_by_the_next_one(linear: Served) -> None:
    def breaks() -> Iterator[Message]:
        yield from messages
        raise Unavailable("it breaks off")

    messages = linear.manager.put_many("A", [b"1", b"2"])
    cursor = Cursor(1, breaks(), lambda: None)
    assert cursor.next_page(10) == (messages, True)
    for _ in range(2):
        with pytest.raises(Unavailable):
            cursor.next_page(10)


def archive(client: qmgr.Connection, **options: Any) -> Any:
    """As soon as the queue manager does not do so of its own accord."""
    for _ in range(1000):
        with contextlib.suppress(qmgr.ObjectInUse):
            return client.archive_log(**options)
        threading.Event().wait(0.01)
    raise AssertionError("it never ends")


def test_long_calls_say_how_far_they_have_come(linear: Served) -> None:
    with linear.connect() as client:
        for _ in range(30):
            client.put_many("A", [bytes(20_000)] * 2)
            client.get_many("A", 2)
        client.checkpoint()
        heard: list[tuple[int, int]] = []
        planned = archive(client, dry_run=True)
        done = archive(client, progress=lambda done, total: heard.append((done, total)))
        assert done.done and len(done.done) == len(planned.done)
        assert type(done) is type(planned)
        assert heard and heard[-1][0] == heard[-1][1]


def test_who_is_slow_to_hear_of_progress_hears_all_of_it(linear: Served) -> None:
    """Several small frames have come together by then."""
    with linear.connect() as client:
        for _ in range(30):
            client.put_many("A", [bytes(20_000)] * 2)
            client.get_many("A", 2)
        client.checkpoint()
        planned = archive(client, dry_run=True)
        assert len(planned.done) > 3
        heard: list[tuple[int, int]] = []

        def hear(done: int, total: int) -> None:
            until(lambda: not any(Path(path).exists() for step in planned.done for path in step.paths))
            heard.append((done, total))

        assert len(archive(client, progress=hear).done) == len(planned.done)
        assert heard[-1][0] == heard[-1][1]


class Enough(Exception):
    pass


def test_who_hears_of_progress_can_stop_it(linear: Served) -> None:
    def stop(done: int, total: int) -> None:
        raise Enough

    with linear.connect() as client:
        for _ in range(30):
            client.put_many("A", [bytes(20_000)] * 2)
            client.get_many("A", 2)
        client.checkpoint()
        with pytest.raises(Enough):
            archive(client, progress=stop)
        client.put("A", b"goes on")
        assert client.get("A").body == b"goes on"


# ---- interrupts


def test_an_interrupt_anywhere_in_a_call_leaves_all_usable(tmp_path: Path) -> None:
    """At the n-th line of a unit of work: it is there wholly or not at all, and the connection goes on."""
    with serving(tmp_path) as served, served.connect() as client:
        client.put("A", b"warm")
        client.get("A")
        n, step = 1, 1 if SOAK else 3
        while True:
            tracer = Tracer(n)
            if not interrupted(client, tracer):
                break
            assert served.manager.transactions() == [] or client.queues(), tracer.where
            for left in list(served.manager.transactions()):  # begun, and never in the caller's hands
                assert left.puts == 0, tracer.where
            found = [one.body for one in client.get_many("A", 10)]
            assert found in ([], [b"one", b"two"]), tracer.where
            client.put("A", b"after")
            assert client.get("A").body == b"after", tracer.where
            n += step
        assert n > 50


def interrupted(client: qmgr.Connection, tracer: Tracer) -> bool:
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with client.begin() as unit:
            unit.put("A", b"one")
            unit.put("A", b"two")
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)


# ---- over TCP


def listener(**options: Any) -> ListenerConfig:
    return ListenerConfig(name="far", protocol=Protocol.QMGR, port=0, **options)


@contextlib.contextmanager
def far(served: Served, **options: Any) -> Iterator[str]:
    """Another listener of the same queue manager, over TCP; its host and port."""
    made = local.make(served.service, listener(**options))
    made.start()
    try:
        yield f"localhost:{made.address[1]}/{NAME}"
    finally:
        made.close()


def test_over_loopback_nobody_has_to_say_who_it_is_where_that_is_configured(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as served,
        far(served, authentication=("NONE",)) as place,
        qmgr.connect(f"qmgr://{place}", application="till") as client,
    ):
        with client.begin() as unit:
            unit.put("A", b"x" * 100_000)
        assert client.get("A").body == b"x" * 100_000
        [(_, me)] = [(one.number, one.peer) for one in client.connections() if one.number]
        assert (me.channel, me.application) == ("TCP", "till")
        assert me.address.startswith("127.0.0.1:")
    with pytest.raises(ValueError, match="loopback"):
        listener(authentication=("NONE",), address="0.0.0.0")
    with serving(tmp_path) as served:  # ::1, written out, was taken for an address of others
        local.make(served.service, listener(authentication=("NONE",), address="0:0:0:0:0:0:0:1"))


def test_row_76_peers_that_are_gone_unheard_are_found_out(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        made = local.make(served.service, listener(authentication=("NONE",)))
        made.start()
        with qmgr.connect(f"qmgr://localhost:{made.address[1]}/{NAME}") as client:
            client.put("A", b"x")
            [theirs] = made._clients._clients.values()
            for sock in (*theirs._sockets, theirs.anchor):
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        made.close()


def test_row_76_the_error_log_hears_of_clients_for_whom_there_is_no_room(tmp_path: Path) -> None:
    with serving(tmp_path) as served, far(served, authentication=("NONE",)) as place:
        served.service.sessions.limit = 1
        url = f"qmgr://{place}"
        for count in (1, 2):
            with qmgr.connect(url):
                for _ in range(2):
                    with pytest.raises(Unavailable) as caught:
                        qmgr.connect(url)
                    assert caught.value.reason == Reason.MAX_CONNS_LIMIT_REACHED
            until(lambda: not len(served.service.sessions))
            assert served.service.said == ["AMQ9513 {'name': 'far', 'count': 1}"] * count


def test_a_client_that_goes_before_it_is_known_is_none_that_sends_nonsense(tmp_path: Path) -> None:
    with serving(tmp_path) as served, far(served, authentication=("SCRAM-SHA-256",)) as place:
        host, port = place.split("/")[0].split(":")
        with sockets.connect_tcp(host, int(port), LONG) as sock:
            sock.sendall(hello(mechanism="SCRAM-SHA-256", first=b"n,,n=mia,r=abcdef"))
            assert wire.decode_reply(sockets.receive(sock, MOST)).op == wire.CHALLENGE
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(LONG)
            sock.recv(1)
        assert served.service.said == []


def test_row_79_a_challenge_is_answered_before_anything_else(tmp_path: Path) -> None:
    """What is said in place of the answer is no proof, though its content would be one."""
    with serving(tmp_path) as served, far(served, authentication=("SCRAM-SHA-256",)) as place:
        Users(served.manager._disk, served.service.location).set("mia", "secret")
        served.manager.authorize("mia", add=["connect"])
        host, port = place.split("/")[0].split(":")
        proof = sasl.Client("SCRAM-SHA-256", "mia", "secret", os.urandom)
        with sockets.connect_tcp(host, int(port), LONG) as sock:
            sock.settimeout(LONG)
            sock.sendall(hello(mechanism="SCRAM-SHA-256", first=proof.first()))
            challenge = sockets.receive(sock, MOST)
            answer = proof.answer(challenge[wire.decode_reply(challenge).at :])
            sock.sendall(wire.request(wire.BEGIN_UNIT, 0, 0, "", answer))
            told = sockets.receive(sock, MOST)
            assert "a challenge is answered before anything else" in str(wire.error(told, wire.decode_reply(told)))
            assert sock.recv(1) == b""
        assert len(served.service.sessions) == 0


def test_a_user_shows_the_password_without_sending_it(tmp_path: Path) -> None:
    """Row 79."""
    with serving(tmp_path) as served, far(served, authentication=("SCRAM-SHA-256",)) as place:
        Users(served.manager._disk, served.service.location).set("mia", "secret")
        served.manager.authorize("mia", add=["connect"])
        served.manager.authorize("mia", "A", add=["put"])
        url = f"qmgr://{place}"
        with qmgr.connect(url, user="mia", password="secret") as client:
            with client.begin() as unit:
                unit.put("A", b"x")
            assert client.outcome(unit.id) is qmgr.UowState.COMMITTED
            served.manager.alter(dead_letter_queue="B")
            message = served.manager.put("B", b"z")
            for refused in (
                lambda: client.get("A"),
                lambda: client.put("B", b""),
                lambda: client.dead_letter(None, message),
                lambda: client.end(),
            ):
                with pytest.raises(NotAuthorized) as caught:
                    refused()
                assert caught.value.reason == Reason.NOT_AUTHORIZED
        with qmgr.connect(f"qmgr://mia:%73ecret@{place}") as client:
            client.put("A", b"y")
        for user, password in (("mia", "wrong"), ("eve", "secret")):
            with pytest.raises(NotAuthorized, match="not known, or the password is wrong"):
                qmgr.connect(url, user=user, password=password)
        with pytest.raises(
            NotAuthorized, match="takes SCRAM-SHA-256 for who comes, and not 'NONE'; give user and password"
        ):
            qmgr.connect(url)
        assert bodies(served.manager, "A") == [b"x", b"y"]
        refused = [line for line in served.service.said if "AMQ9557" in line]
        assert len(refused) == 3
        assert "not 'NONE'" in refused[-1]  # a way to say who one is that the listener does not take, too
        Path(served.service.location.users).write_text("{")
        with pytest.raises(NotAuthorized, match="can't tell who you are; its error log says why"):
            qmgr.connect(url, user="mia", password="secret")
        [*_, said] = [line for line in served.service.said if "AMQ9557" in line]
        assert "AMQ6162E" in said and "127.0.0.1:" in said
        assert sum("AMQ9557" in line for line in served.service.said) == 4


@pytest.mark.parametrize("look", ["browse", "replay"])
def test_a_right_that_is_taken_ends_a_browse_and_a_replay_with_their_next_page(tmp_path: Path, look: str) -> None:
    with serving(tmp_path, log_type="linear") as served, far(served, authentication=("SCRAM-SHA-256",)) as place:
        Users(served.manager._disk, served.service.location).set("mia", "secret")
        served.manager.authorize("mia", add=["connect"])
        served.manager.authorize("mia", "A", add=["browse"])
        for _ in range(5):
            served.manager.put("A", bytes(150_000))
        with qmgr.connect(f"qmgr://{place}", user="mia", password="secret") as client:
            [theirs] = [one for one in gc.get_objects() if type(one) is Client and not one.closed]
            found = iter(client.browse("A") if look == "browse" else client.replay("A", "oldest"))
            next(found)
            assert len(theirs.cursors) == 1
            served.manager.authorize("mia", "A", remove=["browse"])
            with pytest.raises(NotAuthorized):
                list(found)
            assert not theirs.cursors


def test_tls_shows_both_sides(tmp_path: Path) -> None:
    """Row 79."""
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    mine = signer.issue("mia")
    tls = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": signer.path}
    with serving(tmp_path) as served, far(served, authentication=("EXTERNAL",), **tls) as place:
        served.manager.authorize("mia", add=["connect"])
        served.manager.authorize("mia", "A", add=["put", "get"])
        url = f"qmgrs://{place}"
        with qmgr.connect(url, ca=signer.path, certificate=mine[0], key=mine[1]) as client:
            large = bytes(range(256)) * 400
            with client.begin() as unit:
                unit.put("A", large)
            waiting: list[bytes] = []
            thread = threading.Thread(target=lambda: waiting.append(client.get("A", wait=30).body))
            thread.start()
            thread.join()
            assert waiting == [large]
        for wrong in ({"ca": signer.path}, {"certificate": mine[0], "key": mine[1]}):
            with pytest.raises((Unavailable, NotAuthorized)):
                qmgr.connect(url, **wrong)
        with pytest.raises(Mistake, match=r"TLS files .* can't be used"):
            qmgr.connect(url, ca=str(tmp_path / "none.pem"))
        with pytest.raises(
            Unavailable, match=r"certificate verify failed.*; ca= names a file with who signs it \(2059"
        ):
            qmgr.connect(url)  # the system knows nobody who signed it
        with pytest.raises(Unavailable):
            qmgr.connect(f"qmgr://{place}")  # without TLS
    with pytest.raises(Unavailable, match="where that is nobody knows"):
        qmgr.connect("qmgr://no-host.invalid:1/QM1")
    with pytest.raises(Unavailable, match="nobody listens"):
        qmgr.connect(f"qmgr://{place}")


def test_the_bound_of_time_for_connecting_is_none_for_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmgr.link.HANDSHAKE_TIMEOUT_S", 0.5)
    with (
        serving(tmp_path) as served,
        far(served, authentication=("NONE",)) as place,
        qmgr.connect(f"qmgr://{place}", timeout=None) as client,
    ):
        waiting = Call(lambda: client.get("A", wait=None))
        waiting.join(1.0)
        assert waiting.is_alive()
        served.manager.put("A", b"x")
        assert waiting.outcome().body == b"x"


def test_a_daemon_that_is_silent_in_the_handshake_of_tls_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was after 30 seconds, and 60 with asyncio, whatever `timeout` said; and it was said to be no TLS."""
    monkeypatch.setattr("qmgr.link.HANDSHAKE_TIMEOUT_S", NEVER_S)
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")

    async def call(url: str) -> None:
        async with qmgr.aio.connect(url, ca=signer.path, timeout=2.0) as client:
            monkeypatch.setattr(sockets, "connect_tcp", lambda *_: socket.create_connection(silent.getsockname()))
            await client.queues()

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        serving(tmp_path / "data") as served,
        far(served, authentication=("NONE",), tls_certificate=certificate, tls_key=key) as place,
    ):
        url = f"qmgrs://localhost:{silent.getsockname()[1]}/{NAME}"
        connecting = Call(lambda: qmgr.connect(url, ca=signer.path, timeout=0.5))
        with pytest.raises(Unavailable, match=r"does not answer \(no TLS with it within 0.5 seconds\); its process"):
            connecting.outcome()
        with pytest.raises(Unavailable, match=r"longer than 2.0 seconds.*; nothing was done"):
            Call(lambda: asyncio.run(call(f"qmgrs://{place}"))).outcome()


@pytest.mark.skipif(sys.platform != "linux", reason="others refuse at once")
def test_a_daemon_that_accepts_nobody_is_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many wait as the system lets wait; it was after 30 seconds, and "temporarily unavailable"."""
    monkeypatch.setattr("qmgr.link.HANDSHAKE_TIMEOUT_S", NEVER_S)
    monkeypatch.setattr(sockets.connect_unix, "__defaults__", (NEVER_S,))
    qmgr.create(NAME, data_path=tmp_path)
    path = locations.find(NAME, tmp_path).socket
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as stopped, socket.socket(socket.AF_UNIX) as waits:
        stopped.bind(path)
        stopped.listen(0)
        waits.connect(path)
        connecting = Call(lambda: qmgr.connect(NAME, data_path=tmp_path, timeout=0.5))
        with pytest.raises(
            Unavailable, match=r"does not answer \(it has accepted nobody for 0.5 seconds\); its process"
        ):
            connecting.outcome()


def test_row_75_who_says_nothing_for_long_between_two_calls_over_tls_keeps_its_session(tmp_path: Path) -> None:
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    with (
        serving(tmp_path, channels={"connect_timeout": 1, "idle_timeout": 1}) as served,
        far(served, authentication=("NONE",), tls_certificate=certificate, tls_key=key) as place,
        qmgr.connect(f"qmgrs://{place}", ca=signer.path) as client,
    ):
        sent = [b"comes at once", bytes(300_000)]
        with client.begin() as unit:
            for body in sent:
                unit.put("A", body)
                threading.Event().wait(1.5)
        assert bodies(served.manager, "A") == sent


def test_what_can_be_no_name_of_a_host_is_a_mistake() -> None:
    for host in ("a..b", "x" * 64):
        with pytest.raises(Mistake, match=f"'{host}' can't be the name of a host; write qmgr://host:port/QM1"):
            qmgr.connect(f"qmgr://mia:secret@{host}:1414/QM1")


@pytest.mark.parametrize("place", ["localhost:1/QM1", "localhost:x/QM1", "[::1]:1/QM1", "/QM1"])
@pytest.mark.parametrize(
    "password", ["xyz/uvw", "12/34", "xyz#uvw", "xyz?uvw", "xyz[uvw]", "xyz[uvw", "xyz\N{ACCOUNT OF}uvw"]
)
def test_no_part_of_a_password_that_does_not_fit_in_a_url_is_shown(password: str, place: str) -> None:
    with pytest.raises(Mistake, match=r"in a user or password letters and digits stand as they are") as caught:
        qmgr.connect(f"qmgr://mia:{password}@{place}")
    text = str(caught.value)
    assert text.startswith(f"'qmgr://{place}' can't be connected to")
    assert not [part for part in re.split(r"\W", password) if len(part) > 1 and part in text]


def test_of_a_long_url_the_beginning_is_shown() -> None:
    with pytest.raises(Mistake, match="its scheme is not qmgr or qmgrs") as caught:
        qmgr.connect(f"http://localhost:1/{'x' * 100_000}")
    assert len(str(caught.value)) < 1000


def test_tls_to_a_listener_without_a_certificate_says_what_to_use(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as served,
        far(served) as place,
        pytest.raises(Unavailable, match=r"no TLS with .*; where the listener has no certificate use qmgr://, or "),
    ):
        qmgr.connect(f"qmgrs://{place}")


@pytest.mark.parametrize(
    ("place", "options", "what"),
    [
        ("://localhost:1", {"user": "mia"}, "user 'mia' has no password"),
        ("://mia@localhost:1", {}, "user 'mia' has no password"),
        ("://localhost:1", {"password": "secret"}, "there is a password and no user"),
        ("s://localhost:1", {"key": "/etc/qmgr/key.pem"}, "there is a key and no certificate"),
    ],
)
def test_half_of_who_one_is_is_a_mistake(place: str, options: dict[str, str], what: str) -> None:
    with pytest.raises(Mistake, match=f"{what}: give it too, as "):
        qmgr.connect(f"qmgr{place}/QM1", **options)


@pytest.mark.parametrize("wrong", [5, b"mia", ["mia"], "\ud800"], ids=repr)
@pytest.mark.parametrize("what", ["user", "password"])
def test_a_user_and_a_password_are_text(tmp_path: Path, what: str, wrong: Any) -> None:
    who: dict[str, Any] = {"user": "mia", "password": "secret", what: wrong}
    with serving(tmp_path) as served, far(served) as place:
        with pytest.raises(Mistake, match=f"the {what} is text"):
            qmgr.connect(f"qmgr://{place}", **who)
        with pytest.raises(Mistake, match=f"the {what} is text"):
            qmgr.aio.connect(f"qmgr://{place}", **who)


def test_the_error_log_hears_why_tls_fails_and_the_client_what_may_be_the_matter(tmp_path: Path) -> None:
    signer, theirs = Authority(tmp_path), tmp_path / "theirs"
    theirs.mkdir()
    certificate, key = signer.issue("localhost")
    other = Authority(theirs).issue("mia")
    tls = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": signer.path}
    mine = {"ca": signer.path}
    wrong = [
        (
            "qmgr://{}",
            {},
            r"this port may speak TLS: use qmgrs://; or it is the port of a listener for STOMP or HTTP\)",
        ),
        (
            "qmgrs://{}",
            mine,
            r"it may ask for a certificate: name certificate and key; or it is the port of .* STOMP or HTTP\)",
        ),
        (
            "qmgrs://{}",
            mine | {"certificate": other[0], "key": other[1]},
            r"the certificate was perhaps not accepted\)",
        ),
    ]
    with (
        serving(tmp_path, channels={"connect_timeout": 1}) as served,
        far(served, authentication=("EXTERNAL",), **tls) as place,
    ):
        said = served.service.said
        for count, (url, options, why) in enumerate(wrong, 1):
            with pytest.raises(Unavailable, match=why):
                qmgr.connect(url.format(place), **options)
            until(lambda count=count: len(said) == count)  # type: ignore[misc]
        host, port = place.split("/")[0].split(":")
        for _ in range(3):  # as what watches over ports does
            socket.create_connection((host, int(port))).close()
        with socket.create_connection((host, int(port))) as silent:
            assert silent.recv(100) == b""
        until(lambda: len(said) == 4)
        assert all(
            line.startswith("AMQ9213") and "TLS with a client of listener 'far' failed: " in line for line in said
        )
        assert "timed out" in said[3]


def test_a_handshake_that_stops_has_its_time(tmp_path: Path) -> None:
    """Row 75."""
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    with (
        serving(tmp_path, channels={"connect_timeout": 1}) as served,
        far(served, authentication=("SCRAM-SHA-256",), tls_certificate=certificate, tls_key=key) as place,
    ):
        host, port = place.split("/")[0].split(":")
        sock = socket.create_connection((host, int(port)), timeout=30)
        sock.sendall(b"\x16\x03\x01")
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(100):
                pass
        sock.close()
        silent = RawSocket(tmp_path)
        assert silent.is_closed()


@pytest.mark.parametrize("says", ["nothing", "a part of its first frame", "its first frame in two parts"])
def test_row_75_who_speaks_tls_and_then_no_more_has_its_time(tmp_path: Path, says: str) -> None:
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    with (
        serving(tmp_path, channels={"connect_timeout": 1}) as served,
        far(served, authentication=("SCRAM-SHA-256",), tls_certificate=certificate, tls_key=key) as place,
    ):
        Users(served.manager._disk, served.manager._location).set("mia", "secret")
        host, port = place.split("/")[0].split(":")
        sock = sockets.connect_tcp(host, int(port), LONG)
        sock = sockets.with_tls(sock, ssl.create_default_context(cafile=signer.path), LONG, "localhost")
        sock.settimeout(LONG)
        if says != "nothing":
            first = hello(
                mechanism="SCRAM-SHA-256", first=sasl.Client("SCRAM-SHA-256", "mia", "secret", os.urandom).first()
            )
            sock.sendall(first[:9])
            if says == "its first frame in two parts":
                sock.sendall(first[9:])
                assert wire.decode_reply(sockets.receive(sock, MOST)).op == wire.CHALLENGE
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
        sock.close()
