"""Who may connect over STOMP, how it says who it is, and what it may do then."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import qmgr
from logger.posix_disk import PosixDisk
from qmgr import locations, sockets
from qmgr.configuration import Clash
from qmgr.daemon.admission import MAX_DENIALS, MAX_DENIALS_OF_USER, Admission
from qmgr.daemon.stomp import StompListener
from qmgr.errors import IniError
from qmgr.users import Users
from tests.daemon.certificates import Authority
from tests.daemon.stomp_world import DEADLINE, QUICK, Server, Service, config_of, eventually, queue_manager, serving


@attrs.define
class Guarded:
    server: Server
    authority: Authority
    said: list[tuple[str, dict[str, Any]]]

    def context(self, name: str = "") -> ssl.SSLContext:
        """Of a client that trusts the authority, and shows the certificate of that name."""
        context = ssl.create_default_context(cafile=self.authority.path)
        if name:
            context.load_cert_chain(*self.authority.issue(name))
        return context

    def amq(self) -> list[str]:
        return [number for number, _ in self.said]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """TLS with PLAIN and EXTERNAL; mia may put to A, and tom may do nothing."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    said: list[tuple[str, dict[str, Any]]] = []
    with queue_manager(tmp_path / "data", "A") as manager:
        disk, location = PosixDisk(), locations.find("QM1", tmp_path / "data")
        for user in ("mia", "tom"):
            Users(disk, location).set(user, "secret:é")
        manager.authorize("mia", add=["connect"])
        manager.authorize("mia", "A", add=["put"])
        admission = Admission(manager, disk, location, lambda amq, **inserts: said.append((amq, inserts)))
        with serving(
            manager,
            authority=admission,
            tls_certificate=certificate,
            tls_key=key,
            tls_client_ca=authority.path,
            authentication=("PLAIN", "EXTERNAL"),
        ) as server:
            yield Guarded(server, authority, said)


def test_a_password_over_tls(guarded: Guarded) -> None:
    with guarded.server.stranger(guarded.context()) as client:
        client.connect(login="mia", passcode="secret:é")
        client.send("A", b"x" * 300_000)
        (_, info) = guarded.server.qm.connections()
        assert info.peer.user == "mia"
        client.subscribe("A", receipt="1")
        error = client.error()
        assert (error["reason-code"], error["receipt-id"]) == ("2035", "1")
    assert guarded.amq() == ["AMQ8077"]


@pytest.mark.parametrize("version", ["", "accept-version:1.0\n"])
def test_a_client_of_1_0_writes_a_space_before_a_value(guarded: Guarded, version: str) -> None:
    """As the examples of STOMP 1.0 do: `login: <username>`."""
    with guarded.server.stranger(guarded.context()) as client:
        client.raw(f"CONNECT\n{version}login: mia\npasscode: secret:é\nclient-id: till\n\n\0".encode())
        assert client.read()["version"] == "1.0"
        (_, info) = guarded.server.qm.connections()
        assert (info.peer.user, info.peer.application) == ("mia", "till")


def test_later_versions_say_that_spaces_belong_to_a_value(guarded: Guarded) -> None:
    with guarded.server.stranger(guarded.context()) as client:
        client.raw("CONNECT\naccept-version:1.2\nhost:x\nlogin: mia\npasscode:secret:é\n\n\0".encode())
        assert client.error()["reason-code"] == "2035"


def test_who_tries_again_and_again_does_not_fill_the_error_log(guarded: Guarded) -> None:
    for _ in range(9):
        with guarded.server.stranger(guarded.context()) as client:
            client.connect(login="mia", passcode="secret:é")
            client.subscribe("A", receipt="1")
            assert client.error()["reason-code"] == "2035"
    assert guarded.amq() == ["AMQ8077"] * 4
    assert [inserts["more"] for _, inserts in guarded.said] == [
        "",
        *(f" ({count} times by now)" for count in (2, 4, 8)),
    ]


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        ({"login": "mia", "passcode": "wrong"}, "mia"),
        ({"login": "nobody", "passcode": "secret"}, "nobody"),
        ({"login": "mia"}, "mia"),
        ({}, ""),
    ],
)
def test_who_can_not_show_who_it_is_is_refused(guarded: Guarded, headers: dict[str, str], user: str) -> None:
    """Row 79."""
    with guarded.server.stranger(guarded.context()) as client:
        client.say("CONNECT", accept_version="1.2", **headers)
        client.say("SEND", b"x", destination="A")
        assert client.error()["reason-code"] == "2035"
    assert [(amq, inserts["user"]) for amq, inserts in guarded.said] == [("AMQ9557", user)]
    assert guarded.said[0][1]["address"].startswith("127.0.0.1:")
    assert guarded.server.bodies("A") == []
    assert len(guarded.server.qm.sessions) == 0


@pytest.mark.parametrize("headers", [{}, {"login": "mia"}, {"passcode": "secret"}, {"login": "", "passcode": ""}])
def test_row_79_who_says_nothing_of_itself_is_refused_where_a_password_is_the_only_way(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    signer, said = Authority(tmp_path), list[str]()
    certificate, key = signer.issue("localhost")
    with queue_manager(tmp_path / "data", "A") as manager:
        disk, location = PosixDisk(), locations.find("QM1", tmp_path / "data")
        Users(disk, location).set("mia", "secret")
        manager.authorize("mia", add=["connect"])
        admission = Admission(manager, disk, location, lambda amq, **inserts: said.append(amq))
        tls = {"tls_certificate": certificate, "tls_key": key}
        context = ssl.create_default_context(cafile=signer.path)
        with (
            serving(manager, authority=admission, authentication=("PLAIN",), **tls) as server,
            server.stranger(context) as client,
        ):
            client.say("CONNECT", accept_version="1.2", **headers)
            error = client.error()
            assert (error["reason-code"], "no login and passcode" in error["message"]) == ("2035", True)
    assert said == ["AMQ9557"]


def test_who_may_not_connect_is_refused(guarded: Guarded) -> None:
    """Row 79."""
    with guarded.server.stranger(guarded.context()) as client:
        client.say("CONNECT", accept_version="1.2", login="tom", passcode="secret:é")
        assert client.error()["reason-code"] == "2035"
    assert guarded.said == [("AMQ8077", {"user": "tom", "verb": "connect", "name": "QM1", "more": ""})]


def test_a_certificate_says_who_it_is(guarded: Guarded) -> None:
    with guarded.server.stranger(guarded.context("mia")) as client:
        client.connect()
        client.send("A", b"x")
    with guarded.server.stranger(guarded.context("mia")) as client:
        client.say("CONNECT", accept_version="1.2", login="tom")
        assert client.error()["reason-code"] == "2035"
    assert guarded.amq() == ["AMQ9557"]


def test_a_login_without_a_name_is_none(guarded: Guarded) -> None:
    """A client that is configured with empty words, and has a certificate, writes both headers all the same."""
    with guarded.server.stranger(guarded.context("mia")) as client:
        client.connect(login="", passcode="")
        client.send("A", b"x")
    with guarded.server.stranger(guarded.context()) as client:
        client.say("CONNECT", accept_version="1.2", login="", passcode="")
        assert "the client has shown no certificate" in client.error()["message"]


def test_frames_sent_before_the_password_was_checked_wait_for_it(guarded: Guarded) -> None:
    with guarded.server.stranger(guarded.context()) as client:
        frames = [
            client.frame("CONNECT", accept_version="1.2", login="mia", passcode="secret:é"),
            client.frame("SEND", b"x", destination="A", receipt="1"),
        ]
        client.raw(b"".join(frames))
        assert [client.read().command for _ in frames] == ["CONNECTED", "RECEIPT"]


def test_who_leaves_while_its_password_is_checked_leaves_nothing(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, gate = threading.Event(), threading.Event()
    admission = guarded.server.service.authority
    check = admission.check_password

    def slowly(user: str, password: str) -> None:
        asked.set()
        assert gate.wait(DEADLINE)
        check(user, password)

    monkeypatch.setattr(admission, "check_password", slowly)
    with guarded.server.stranger(guarded.context()) as client:
        client.say("CONNECT", accept_version="1.2", login="mia", passcode="secret:é")
        assert asked.wait(DEADLINE)
        with guarded.server.stranger(guarded.context("mia")) as other:  # others are served meanwhile
            other.connect()
            other.ask("DISCONNECT")
    guarded.server.all_gone()
    gate.set()
    with guarded.server.stranger(guarded.context("mia")) as other:
        other.connect()
        other.ask("DISCONNECT")
    guarded.server.all_gone()


def test_the_error_log_hears_why_tls_fails_and_nothing_of_who_only_looks(guarded: Guarded) -> None:
    said = guarded.server.service.said
    for _ in range(3):  # as what watches over ports does
        socket.create_connection(("127.0.0.1", guarded.server.port)).close()
    with pytest.raises(ssl.SSLError):
        guarded.server.stranger(ssl.create_default_context())
    eventually(lambda: bool(said))
    guarded.server.all_gone()
    eventually(lambda: len(guarded.server.listener._strangers) == 0)
    ((amq, inserts),) = said
    assert (amq, "unknown ca" in inserts["text"]) == ("AMQ9213", True)


def test_who_does_not_finish_the_handshake_counts_and_is_cut_off(tmp_path: Path) -> None:
    """Row 75."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    hasty = attrs.evolve(QUICK, connect=2.0)
    with (
        queue_manager(tmp_path / "data", "A") as manager,
        serving(manager, hasty, tls_certificate=certificate, tls_key=key) as server,
        socket.create_connection(("127.0.0.1", server.port)) as silent,
        server.stranger(ssl.create_default_context(cafile=authority.path)) as client,
    ):
        client.connect()
        assert silent.recv(100) == b""
        client.send("A", b"x")
        eventually(lambda: any(amq == "AMQ9213" for amq, _ in server.service.said))


def test_a_listener_that_has_no_way_for_stomp_is_refused() -> None:
    with pytest.raises(Clash, match="has no way for SCRAM-SHA-256"):
        config_of(authentication=("SCRAM-SHA-256",))


def test_a_certificate_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    with queue_manager(tmp_path) as manager:
        service = Service(manager, manager.config.channels)
        with pytest.raises(IniError, match=r"/none\.pem"):
            StompListener(service, config_of(tls_certificate="/none.pem", tls_key="/none.key"))


def test_an_address_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with queue_manager(tmp_path) as manager, serving(manager) as server:
        other = StompListener(server.service, config_of(port=server.port))
        with pytest.raises(OSError) as caught:
            other.start()
        assert sockets.system_message(caught.value) == "Address already in use"
        other.close()


def test_who_tries_ever_other_names_does_not_fill_the_error_log(tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    with queue_manager(tmp_path) as qm:
        admission = Admission(
            qm, PosixDisk(), locations.find("QM1", tmp_path), lambda amq, **inserts: said.append((amq, inserts["more"]))
        )
        bob, eve = admission.rights("bob"), admission.rights("eve")
        with pytest.raises(qmgr.NotAuthorized):
            eve.require("put", "A")
        for number in range(20_000):
            with pytest.raises(qmgr.NotAuthorized):
                bob.require("put", f"Q{number}")
        assert len(said) < 1 + MAX_DENIALS_OF_USER + 20
        assert said[-1] == ("AMQ8077", " (it is one of 16384 others by now)")
        with pytest.raises(qmgr.NotAuthorized):
            eve.require("put", "A")
        assert said[-1] == ("AMQ8077", " (2 times by now)"), "bob has not made it forget others"
        for number in range(MAX_DENIALS // MAX_DENIALS_OF_USER):
            other = admission.rights(f"other{number}")
            for name in range(MAX_DENIALS_OF_USER):
                with pytest.raises(qmgr.NotAuthorized):
                    other.require("put", f"Q{name}")
        with pytest.raises(qmgr.NotAuthorized):
            bob.require("put", "ANOTHER")
        assert said[-1] == ("AMQ8077", ""), "there were too many to remember, and he begins anew as well"
