"""Messages over HTTP: the verbs with their headers and statuses, bounds, garbage, who is let in, metrics."""

import base64
import contextlib
import datetime
import email.utils
import errno
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr.configuration import ChannelsConfig, Clash, Protocol
from qmgr.daemon import http as listeners
from qmgr.daemon import http_messaging, metrics, strangers
from qmgr.daemon.http_frames import MAX_HEAD_BYTES, BadRequest, Head, date, parse
from qmgr.daemon.http_messaging import headers_of, properties
from qmgr.errors import Damaged, IniError, NotAuthorized
from qmgr.infos import Peer
from qmgr.message import Message, describe
from qmgr.session import AllRights
from qmgr.users import Users
from tests.daemon.certificates import Authority
from tests.daemon.faces import NAME, Face, face, listening
from tests.daemon.serving import until
from tests.qmgr.world import Call, World, bodies, soon

ROOT = f"/ibmmq/rest/v3/messaging/qmgr/{NAME}/queue"
TOKEN = {"ibm-mq-rest-csrf-token": ""}
FINE = {200, 201, 204}


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """What a refusal says."""
        [error] = json.loads(self.body)["error"]
        return dict(error)


Ask = Callable[..., Answer]


def all_of(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


class Server:
    """A listener, and clients of it."""

    def __init__(self, directory: Path, channels: ChannelsConfig | None = None, **options: Any) -> None:
        self.face: Face = face(directory, channels)
        self.qm = self.face.manager
        self.listener = listeners.HttpListener(self.face, listening(Protocol.HTTP, **options))
        self.listener.start()
        assert self.listener.address is not None
        self.host, self.port = self.listener.address

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """By the standard library."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, path, body or None, TOKEN | {k.replace("_", "-"): v for k, v in headers.items()})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def curl(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        words = ["curl", "--silent", "--include", "--max-time", "30", "--request", method, "--header"]
        words.append("ibm-mq-rest-csrf-token;")
        for name, value in headers.items():
            words += ["--header", f"{name.replace('_', '-')}: {value}"]
        if body:
            words += ["--data-binary", "@-"]
        words.append(f"http://{self.host}:{self.port}{path}")
        said = subprocess.run(words, input=body, capture_output=True, timeout=60, check=True).stdout
        while said.startswith(b"HTTP/1.1 100"):
            said = said.partition(b"\r\n\r\n")[2]
        head, _, content = said.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines)
        return Answer(int(first.split()[1]), {name.lower(): value for name, value in fields.items()}, content)

    def raw(self, data: bytes) -> bytes:
        """All that comes back."""
        with socket.create_connection((self.host, self.port), timeout=30) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return all_of(connection)

    def end(self) -> None:
        self.listener.close()
        self.qm.end("immediate")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.end()


CLIENTS = ["ask", "curl"] if shutil.which("curl") else ["ask"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_message_is_put_browsed_listed_and_got(server: Server, client: str) -> None:
    ask: Ask = getattr(server, client)
    put = ask(
        "POST",
        f"{ROOT}/A/message",
        "grüße".encode(),
        Content_Type="text/plain;charset=utf-8",
        ibm_mq_md_priority="7",
        ibm_mq_md_expiry="60000",
        ibm_mq_md_correlationId="ID:" + "0a" * 24,
        ibm_mq_md_replyTo=f"ANSWERS@{NAME}",
        ibm_mq_usr='count;5;integer, urgent;TRUE;boolean, who;"a%2Cb";string',
    )
    assert put.status == 201
    number = put.headers["ibm-mq-md-messageid"]
    (message,) = server.qm.browse("A")
    assert message.message_id.hex() == number
    assert (message.body.decode(), message.priority, message.format, message.reply_to) == (
        "grüße",
        7,
        "MQSTR",
        "ANSWERS",
    )
    assert message.correlation_id == b"\x0a" * 24
    assert dict(message.properties) == {"count": 5, "urgent": True, "who": "a,b"}
    assert message.persistent and message.expiry is not None and 0 < message.expiry <= 60
    listed = json.loads(ask("GET", f"{ROOT}/A/messagelist?limit=5").body)
    assert listed["messages"] == [
        {
            "messageId": number,
            "correlationId": "0a" * 24,
            "format": "MQSTR",
            "priority": 7,
            "persistence": "persistent",
            "length": len(message.body),
        }
    ]
    assert ask("GET", f"{ROOT}/A/message").body == message.body
    got = ask("DELETE", f"{ROOT}/A/message?messageId={number}")
    assert 60 < int(got.headers["ibm-mq-md-expiry"]) <= 60_000
    assert (got.headers["ibm-mq-md-correlationid"], got.headers["ibm-mq-md-replyto"]) == ("0a" * 24, "ANSWERS")
    assert (got.status, got.body, got.headers["ibm-mq-md-priority"]) == (200, message.body, "7")
    assert got.headers["ibm-mq-usr"] == 'count;5;integer, urgent;TRUE;boolean, who;"a%2Cb";string'
    assert got.headers["content-type"] == "text/plain;charset=utf-8"
    for method in ("GET", "DELETE"):
        assert ask(method, f"{ROOT}/A/message").status == 204
    assert server.qm.queue("A").depth == 0


@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_headers_may_say_what_is_no_ascii(server: Server, charset: str) -> None:
    """As curl and programs in a browser write them; a query says the same."""
    said = 'ibm-mq-md-correlationId: Köln\r\nibm-mq-usr: straße;"Grün";string\r\n'.encode(charset)
    put = b"POST %b/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n%bContent-Length: 1\r\n\r\nx"
    assert b" 201 Created" in server.raw(put % (ROOT.encode(), said))
    (message,) = server.qm.browse("A")
    assert dict(message.properties) == {"straße": "Grün"}
    assert message.correlation_id.rstrip(b"\0").decode() == "Köln"
    assert server.ask("DELETE", f"{ROOT}/A/message?correlationId=K%C3%B6ln").body == b"x"


@pytest.mark.parametrize("client", CLIENTS)
def test_bytes_of_any_length_come_back(server: Server, client: str) -> None:
    ask: Ask = getattr(server, client)
    body = bytes(range(256)) * 8192
    put = ask(
        "POST",
        f"{ROOT}/A/message",
        body,
        Content_Type="application/octet-stream",
        ibm_mq_md_persistence="nonPersistent",
    )
    assert put.status == 201
    got = ask("DELETE", f"{ROOT}/A/message")
    assert got.body == body
    assert (got.headers["content-type"], got.headers["ibm-mq-md-persistence"]) == (
        "application/octet-stream",
        "nonPersistent",
    )


@pytest.mark.parametrize(
    ("method", "disabled", "reason"), [("POST", "put_enabled", 2051), ("DELETE", "get_enabled", 2016)]
)
def test_what_an_operator_has_disabled_is_to_be_tried_again(
    server: Server, method: str, disabled: str, reason: int
) -> None:
    """A client does not repeat what was 400: its message would be lost."""
    server.qm.alter_queue("A", **{disabled: False})
    answer = server.ask(method, f"{ROOT}/A/message", b"x" if method == "POST" else b"")
    (error,) = json.loads(answer.body)["error"]
    assert (answer.status, error["reasonCode"]) == (503, reason)
    assert error["action"] == f"try again later, or alter it to {'PUT' if method == 'POST' else 'GET'}(ENABLED)"
    server.qm.alter_queue("A", **{disabled: True})
    assert server.ask(method, f"{ROOT}/A/message", b"x" if method == "POST" else b"").status in FINE


def test_a_queue_that_is_damaged_is_no_mistake_of_the_client() -> None:
    """To a 400 it would look for what is wrong with its request."""
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", b"x")
    world.qm.checkpoint()
    for path in world.disk.files("/data/qmgrs/QM1/queues/A/"):
        world.disk.poke(path, b"")
    world.crash()
    with pytest.raises(Damaged) as caught:
        world.qm.get("A")
    assert http_messaging.failure(caught.value).status == 500


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "says"),
    [
        ("POST", f"{ROOT}/NONE/message", {}, 404, "2085"),
        ("POST", f"{ROOT}/{'x' * 49}/message", {}, 400, "2152"),
        ("GET", f"{ROOT}/NONE/message", {}, 404, "2085"),
        ("GET", "/ibmmq/rest/v3/messaging/qmgr/OTHER/queue/A/message", {}, 404, "'OTHER' is not here"),
        ("GET", "/ibmmq/rest/v9/messaging/qmgr/QM1/queue/A/message", {}, 404, "there is"),
        ("GET", f"{ROOT}/A", {}, 404, "add /message"),
        ("GET", "/", {}, 404, "there is"),
        ("GET", "/metrics", {}, 404, "there is"),
        ("GET", f"{ROOT}/A/messages", {}, 404, "a queue has message and messagelist, not 'messages'"),
        ("PUT", f"{ROOT}/A/message", {}, 405, "PUT does not go with message; use POST, DELETE, GET, HEAD"),
        ("POST", f"{ROOT}/A/message", {"Content_Type": "image/png"}, 415, "image/png"),
        ("POST", f"{ROOT}/A/message", {"Content_Type": "text/plain; charset=ISO-8859-1"}, 415, "text is UTF-8"),
        ("POST", f"{ROOT}/A/message", {"Content_Encoding": "gzip"}, 415, "no Content-Encoding here, not 'gzip'"),
        ("POST", f"{ROOT}/A/message", {"ibm_mq_md_priority": "ten"}, 400, "at most 9"),
        ("POST", f"{ROOT}/A/message", {"ibm_mq_md_expiry": "0"}, 400, "ibm-mq-md-expiry is unlimited, or milliseconds"),
        ("POST", f"{ROOT}/A/message", {"ibm_mq_md_persistence": "maybe"}, 400, "persistent or nonPersistent"),
        ("POST", f"{ROOT}/A/message", {"ibm_mq_md_correlationId": "ID:zz"}, 400, "48 hexadecimal"),
        ("POST", f"{ROOT}/A/message", {"ibm_mq_usr": "a;b;c"}, 400, "name;value;type"),
        ("POST", f"{ROOT}/A/message", {"ibm_mq_usr": "a;1_000;integer"}, 400, "name;value;type"),
        ("DELETE", f"{ROOT}/A/message?wait=-1", {}, 400, "wait is a whole number"),
        ("DELETE", f"{ROOT}/A/message?wait={'9' * 5000}", {}, 400, "wait is a whole number"),
        ("DELETE", f"{ROOT}/A/message?messageId=12345678901234567890123456", {}, 400, "messageId"),
        ("DELETE", f"{ROOT}/A/message?messageId={'%20' * 48}", {}, 400, "messageId"),
        ("DELETE", f"{ROOT}/A/message?messageId=a&messageId=b", {}, 400, "'messageId' is given twice"),
        ("DELETE", f"{ROOT}/A/message?messageId=", {}, 400, "messageId is empty"),
        ("GET", f"{ROOT}/A/messagelist?correlationId=", {}, 400, "correlationId is empty"),
        ("GET", f"{ROOT}/A/messagelist?limit=x", {}, 400, "limit"),
        ("GET", f"{ROOT}/%ff/message", {}, 400, "UTF-8"),
        ("POST", f"{ROOT}/A/message", {"Transfer_Encoding": "chunked"}, 411, "Content-Length"),
    ],
)
def test_what_is_wrong_is_said(
    server: Server, method: str, path: str, headers: dict[str, str], status: int, says: str
) -> None:
    answer = server.ask(method, path, **headers)
    assert answer.status == status, answer.body
    (error,) = json.loads(answer.body)["error"]
    assert says in error["message"] + str(error["reasonCode"])
    kind = (2, "AMQ8101S", "qmgr") if error["reasonCode"] else (0, "MQWB0001E", "rest")
    assert (error["completionCode"], error["msgId"], error["type"]) == kind
    assert error["message"].startswith(error["explanation"]) and "MQRC_" not in error["explanation"] + error["action"]
    assert error["action"] and "try again" not in error["action"]
    assert server.qm.queue("A").depth == 0


def test_a_method_that_does_not_go_is_told_which_do(server: Server) -> None:
    assert server.ask("OPTIONS", f"{ROOT}/A/message").headers["allow"] == "POST, DELETE, GET, HEAD"
    assert server.ask("POST", f"{ROOT}/A/messagelist").headers["allow"] == "GET"
    answer = server.ask("OPTIONS", "/healthz")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_a_browse_and_a_list_show_what_is_asked_for(server: Server) -> None:
    put = [server.qm.put("A", b"%d" % number, correlation_id=b"%d" % number) for number in range(12)]
    for query, shown in (("", put[:10]), ("?limit=11", put[:11]), ("?correlationId=11", put[11:])):
        listed = json.loads(server.ask("GET", f"{ROOT}/A/messagelist{query}").body)["messages"]
        assert [each["messageId"] for each in listed] == [message.message_id.hex() for message in shown], query
    assert server.ask("GET", f"{ROOT}/A/message?messageId={put[7].message_id.hex()}").body == b"7"
    server.qm.define_queue("B")
    server.qm.put("B", b"", persistent=False, properties={"raw": b"\1\xff"})
    assert server.ask("GET", f"{ROOT}/B/message").headers["ibm-mq-usr"] == 'raw;"01ff";string'
    [told] = json.loads(server.ask("GET", f"{ROOT}/B/messagelist").body)["messages"]
    assert (told["persistence"], told["length"], told["format"]) == ("nonPersistent", 0, "")


def test_what_a_put_may_leave_to_others(server: Server) -> None:
    """Its version of the interface, its type, and what the queue decides; bytes have any charset."""
    path = f"{ROOT}/A/message"
    said = {"ibm_mq_md_priority": "asDestination", "ibm_mq_md_expiry": "UNLIMITED"}
    assert server.ask("POST", path.replace("/v3/", "/v1/"), b"x", **said).status == 201
    assert server.ask("POST", path, b"x", Content_Type="application/octet-stream; charset=binary").status == 201
    text, binary = server.qm.browse("A")
    assert (text.format, text.priority, text.expiry, binary.format) == ("MQSTR", 0, None, "")


@pytest.mark.parametrize("said", ['text/plain; charset="UTF-8"', "text/plain;charset=us-ascii", "application/json"])
def test_text_that_is_utf_8(server: Server, said: str) -> None:
    assert server.ask("POST", f"{ROOT}/A/message", b"x", Content_Type=said).status == 201
    assert server.ask("GET", f"{ROOT}/A/message").headers["content-type"] == "text/plain;charset=utf-8"


def test_bytes_that_are_no_utf_8_come_back_as_they_were(server: Server) -> None:
    assert server.ask("POST", f"{ROOT}/A/message", b"caf\xe9\0\xff", Content_Type="text/plain").status == 201
    answer = server.ask("DELETE", f"{ROOT}/A/message")
    assert (answer.body, answer.headers["content-type"]) == (b"caf\xe9\0\xff", "text/plain;charset=utf-8")


def test_a_client_that_begins_with_tls_is_told_at_once(server: Server) -> None:
    hello = bytes.fromhex("1603010200010001fc0303")  # and no more comes before an answer
    assert b"speaks HTTP without TLS" in server.raw(hello)
    with pytest.raises(ssl.SSLError, match=r"(?i)wrong.version.number"):
        ssl.create_default_context().wrap_socket(
            socket.create_connection((server.host, server.port), timeout=30), server_hostname="localhost"
        )


def test_without_the_token_nothing_is_changed(server: Server) -> None:
    server.qm.put("A", b"kept")
    for method in ("POST", "DELETE"):
        head = f"{method} {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\n"
        assert server.raw(f"{head}Content-Length: 1\r\n\r\nx".encode()).startswith(b"HTTP/1.1 403")
    assert bodies(server.qm, "A") == [b"kept"]


@pytest.mark.parametrize("path", ["/nowhere", f"{ROOT}/A/messagelist", f"{ROOT}/NONE/message", f"{ROOT}/A/message?x=1"])
def test_a_head_has_no_body_whatever_is_wrong(server: Server, path: str) -> None:
    head, end, rest = server.raw(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4") and end and rest == b""


def test_properties_that_would_be_others_are_refused(server: Server) -> None:
    for said in ("a;%ff;string", "%ff;x;string", "a;1e400;float", "a;1;integer,b;2;integer,a;3;integer"):
        answer = server.ask("POST", f"{ROOT}/A/message", b"x", ibm_mq_usr=said)
        told = json.loads(answer.body)["error"][0]
        assert answer.status == 400 and told["action"].startswith("give "), told
    assert server.qm.queue("A").depth == 0
    assert server.ask("POST", f"{ROOT}/A/message", b"x", ibm_mq_usr="a;inf;float, b;%C3%A4;string").status == 201
    assert server.qm.get("A").properties == {"a": float("inf"), "b": "\u00e4"}


def test_a_get_waits_for_a_message(server: Server) -> None:
    call = Call(lambda: server.ask("DELETE", f"{ROOT}/A/message?wait=30000"))
    server.qm.put("A", b"late")
    assert call.outcome(30).body == b"late"


def test_the_body_of_a_request_that_is_refused_is_no_request(server: Server) -> None:
    """Where there are too many clients it is not read; the next one may be let in."""
    server.face.sessions.limit = 0
    server.qm.put("A", b"kept")
    inner = f"DELETE {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n\r\n".encode()
    outer = f"POST {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n".encode()
    with socket.create_connection((server.host, server.port), timeout=30) as client:
        client.sendall(outer + b"Content-Length: %d\r\n\r\n" % len(inner))
        said = client.recv(65536)
        server.face.sessions.limit = None
        client.sendall(inner)
        client.shutdown(socket.SHUT_WR)
        while part := client.recv(65536):
            said += part
    assert (said.count(b"HTTP/1.1 "), b" 503 " in said, b"MQRC_MAX_CONNS_LIMIT_REACHED" in said) == (1, True, True)
    assert server.qm.get("A").body == b"kept"


def test_the_body_of_a_question_for_the_health_is_no_request(server: Server) -> None:
    server.qm.put("A", b"kept")
    inner = f"DELETE {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n\r\n".encode()
    outer = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(inner)
    said = server.raw(outer + inner)
    assert (said.count(b"HTTP/1.1 "), said[:13]) == (1, b"HTTP/1.1 405 ")
    assert server.qm.get("A").body == b"kept"


def test_a_message_for_a_client_that_is_gone_stays(server: Server) -> None:
    """Row 74."""
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        connection.sendall(
            f"DELETE {ROOT}/A/message?wait=86400000 HTTP/1.1\r\nHost:\r\nibm-mq-rest-csrf-token: 1\r\n\r\n".encode()
        )
        deadline = threading.Event()
        while not server.qm._engine.state.queues["A"].waiters.line:
            assert not deadline.wait(0.01)
    while len(server.face.sessions):
        assert not deadline.wait(0.01)
    server.qm.put("A", b"x")
    assert server.ask("DELETE", f"{ROOT}/A/message").body == b"x"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    "more", [b"\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000], ids=["a line", "requests"]
)
def test_a_message_for_a_client_that_has_said_more_and_is_gone_stays(tmp_path: Path, more: bytes, tls: bool) -> None:
    """Row 74. What it has said stands in front of the end of the connection, for who only looks."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    server = Server(tmp_path, **({"tls_certificate": certificate, "tls_key": key} if tls else {}))
    connection = socket.create_connection((server.host, server.port), timeout=30)
    if tls:
        context = ssl.create_default_context(cafile=authority.path)
        connection = context.wrap_socket(connection, server_hostname="localhost")
    with connection:
        waits = (
            f"DELETE {ROOT}/A/message?wait=86400000 HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token: 1\r\n\r\n"
        )
        connection.sendall(waits.encode())
        until(lambda: bool(server.qm._engine.state.queues["A"].waiters.line))
        connection.sendall(more)
    until(lambda: not len(server.face.sessions))
    server.qm.put("A", b"x")
    assert server.qm.get("A").body == b"x"
    server.end()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_row_75_who_reads_slowly_gets_all_of_it_however_long_that_takes(tmp_path: Path, tls: bool) -> None:
    """Who reads nothing is given up."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    options = {"tls_certificate": certificate, "tls_key": key} if tls else {}
    server = Server(tmp_path, ChannelsConfig(idle_timeout=2), **options)
    server.qm.alter(max_message_length=20_000_000)
    server.qm.alter_queue("A", max_message_length=20_000_000)
    body = os.urandom(1000) * 16_000

    def connected() -> socket.socket:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        plain.settimeout(30)
        plain.connect((server.host, server.port))
        context = ssl.create_default_context(cafile=authority.path)
        return context.wrap_socket(plain, server_hostname="localhost") if tls else plain

    wants = (
        f"DELETE {ROOT}/A/message HTTP/1.1\r\nHost:\r\nibm-mq-rest-csrf-token: 1\r\nConnection: close\r\n\r\n".encode()
    )
    server.qm.put("A", body, persistent=False)
    with connected() as connection:
        connection.sendall(wants)
        said, step = bytearray(), threading.Event()
        for _ in range(30):
            while len(said) < 16_000_000 and (part := connection.recv(65536)):
                said += part
                if len(said) % 500_000 < len(part):
                    break
            step.wait(0.1)
        said += all_of(connection)
        assert bytes(said).endswith(body)
    server.qm.put("A", body, persistent=False)
    with connected() as connection:
        connection.sendall(wants)
        until(lambda: not len(server.face.sessions) and not server.qm.queue("A").depth)
    server.end()


def test_a_message_that_stays_is_not_told(server: Server) -> None:
    """To a client that has closed its half of the connection, and may be there or gone."""
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(
            server.raw,
            f"DELETE {ROOT}/A/message?wait=900 HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n\r\n".encode(),
        )
        deadline = threading.Event()
        while not server.qm._engine.state.queues["A"].waiters.line:
            assert not deadline.wait(0.01)
        (connection,) = server.listener._open
        until(connection.gone)
        server.qm.put("A", b"x")
        assert asked.result().startswith(b"HTTP/1.1 400 ")
    assert server.qm.get("A").body == b"x"


def test_a_message_for_a_client_over_tls_that_is_gone_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 74. One that asks for more while it waits is there."""
    monkeypatch.setattr(http_messaging, "CHECK_EVERY_S", 0.02)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    server = Server(tmp_path, tls_certificate=certificate, tls_key=key)
    context = ssl.create_default_context(cafile=authority.path)
    waits = f"DELETE {ROOT}/A/message?wait=86400000 HTTP/1.1\r\nHost:\r\nibm-mq-rest-csrf-token: 1\r\n\r\n".encode()
    deadline = threading.Event()

    def connected() -> ssl.SSLSocket:
        plain = socket.create_connection((server.host, server.port), timeout=30)
        return context.wrap_socket(plain, server_hostname="localhost")

    for leave in (ssl.SSLSocket.close, lambda client: client.unwrap()):  # with a word, or without
        client = connected()
        client.sendall(waits)
        while not server.qm._engine.state.queues["A"].waiters.line:
            assert not deadline.wait(0.01)
        with contextlib.suppress(OSError):
            leave(client)
        while len(server.face.sessions):
            assert not deadline.wait(0.01)
        client.close()
    server.qm.put("A", b"x")
    assert server.qm.get("A").body == b"x"
    with connected() as client:
        client.sendall(waits + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not server.qm._engine.state.queues["A"].waiters.line:
            assert not deadline.wait(0.01)
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        (connection,) = server.listener._open
        while len(connection._read) <= MAX_HEAD_BYTES:  # the server looks whether the client is there
            assert not deadline.wait(0.01)
        server.qm.put("A", b"body")
        said = b""
        while part := client.recv(65536):
            said += part
    assert (said.count(b" 200 OK"), b"\r\n\r\nbodyHTTP" in said) == (503, True)
    server.end()


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200), (b"GET /healthz HTTP/1.1\r\n\r\n", 400)],
)
def test_a_client_over_tls_hears_that_nothing_more_comes(tmp_path: Path, data: bytes, status: int) -> None:
    """RFC 9112, 9.8: who hears no closure alert can't tell an end from a cut."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    server = Server(tmp_path, tls_certificate=certificate, tls_key=key)
    context = ssl.create_default_context(cafile=authority.path)
    with (
        socket.create_connection((server.host, server.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as client,
    ):
        client.sendall(data)
        assert all_of(client).startswith(b"HTTP/1.1 %d" % status)
        assert socket.socket.recv(client, 1) == b"", "it waits for no alert of ours"
    server.end()


def test_a_message_with_more_headers_than_clients_take_stays(server: Server) -> None:
    server.qm.put("A", b"x", properties={"note": "z" * 17_000})
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request("DELETE", f"{ROOT}/A/message", headers=TOKEN)
    refused = connection.getresponse()
    assert (refused.status, "so it stays" in refused.read().decode()) == (501, True)
    assert server.qm.get("A").body == b"x", "it is back before that is told, not when the connection ends"
    connection.close()


def test_one_connection_asks_again_and_again(server: Server) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    for number in range(20):
        connection.request("POST", f"{ROOT}/A/message", b"%d" % number, TOKEN)
        response = connection.getresponse()
        assert (response.status, response.read()) == (201, b"")
        assert len(server.face.sessions) == 1
        assert not len(server.listener.strangers)
    connection.close()
    pipelined = f"GET {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    assert server.raw(pipelined * 3).count(b"HTTP/1.1 200") == 3


def heard(server: Server, data: bytes) -> bytes:
    """All that comes back; nothing where the connection is reset, since not all was read."""
    try:
        return server.raw(data)
    except TimeoutError:
        raise
    except OSError:
        return b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"CONNECT\naccept-version:1.2\n\n\0",
        b"AMQP\0\1\0\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0" * 3000 + b"\r\n\r\n",
        b"\r\n" * 3000,
        bytes(range(256)) * 80,
    ],
)
def test_row_72_who_speaks_something_else_is_answered_and_closed(server: Server, data: bytes) -> None:
    said = heard(server, data)
    assert said == b"" or said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    until(lambda: not server.listener._open)
    assert server.ask("GET", "/healthz").body == b"ok\n"


LINES_OF_UNIX = b"GET /healthz HTTP/1.1\nHost: localhost\n\n"  # as `echo` has them


@pytest.mark.parametrize(
    "data",
    [
        *(b"CONNECT\naccept-version:1.2\n\n\0", b"AMQP\0\1\0\0", b"\x2d\0\0\0\1"),
        *(LINES_OF_UNIX, LINES_OF_UNIX.replace(b"\n", b"\r\n", 1)),
    ],
)
def test_who_speaks_something_else_and_waits_for_an_answer_has_it_at_once(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, though the server listens on for a while."""
    monkeypatch.setattr(listeners, "LINGER_S", 600)
    server = Server(tmp_path, ChannelsConfig(connect_timeout=600))
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        connection.sendall(data)
        assert all_of(connection).startswith(b"HTTP/1.1 400")
    server.end()


def test_row_74_a_request_that_is_cut_off_anywhere_does_nothing(server: Server) -> None:
    head = f"HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n{next(iter(TOKEN))}: 1\r\n\r\n"
    post = f"POST {ROOT}/A/message {head}".encode() + b"body"
    for cut in range(0, len(post), 3):
        assert b"201" not in server.raw(post[:cut])
    assert b"201" not in server.raw(post[:-1])
    assert server.qm.queue("A").depth == 0
    server.qm.put("A", b"stays")
    delete = f"DELETE {ROOT}/A/message {head}".replace(": 4", ": 0").encode()
    for cut in range(0, len(delete), 3):
        assert b"200" not in server.raw(delete[:cut])
    assert server.qm.queue("A").depth == 1
    assert server.ask("DELETE", f"{ROOT}/A/message").body == b"stays"


def test_row_75_who_never_reads_is_closed_and_holds_up_nobody(tmp_path: Path) -> None:
    server = Server(tmp_path, ChannelsConfig(idle_timeout=1))
    server.qm.define_queue("BIG", default_persistence=False)
    server.qm.put("BIG", bytes(4_000_000))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((server.host, server.port))
        connection.sendall(f"GET {ROOT}/BIG/message HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: len(server.face.sessions) == 1)
        assert server.ask("POST", f"{ROOT}/A/message", b"x").status == 201
        until(lambda: not server.listener._open)
    server.end()


def test_row_76_a_connection_for_which_there_is_no_thread_is_closed_and_the_next_is_served(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = threading.Thread.start, [RuntimeError("can't start new thread"), MemoryError()]

    def scarce(thread: threading.Thread) -> None:
        if thread.name.startswith("HTTP-") and failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    for _ in range(2):
        assert heard(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
    assert not failures
    text = "listener 'test' can't accept: can't start new thread, since there is no memory for it"
    assert server.face.said == [("AMQ9213", {"text": text})]
    assert server.ask("GET", "/healthz").body == b"ok\n"
    until(lambda: not server.listener._open)


def test_row_76_while_there_are_no_descriptors_the_next_one_waits(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 2
    ours = server.listener._socket

    def scarce(self: socket.socket) -> Any:
        if self is ours and failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", scarce)
    for _ in range(2):  # the first was awaited before
        assert server.ask("GET", "/healthz").body == b"ok\n"
    assert not failures


def test_row_76_a_peer_that_is_gone_unheard_is_found_out(server: Server) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request("GET", f"{ROOT}/A/messagelist")
    connection.getresponse().read()
    [theirs] = server.listener._open
    assert theirs._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    connection.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9443", 200),
        ("127.0.0.1:9443", 200),
        ("[::1]:9443", 200),
        ("localhost:", 200),
        ("localhost.:9443", 200),
        ("::1", 200),
        ("web.example.com", 403),
        ("web.example.com.", 403),
        ("localhost:.example.com", 403),
        ("web.example.com:9443", 403),
        ("localhost.example.com", 403),
        ("127.0.0.1.example.com:80", 403),
    ],
)
def test_who_asks_nobody_is_not_asked_for_web_sites(server: Server, host: str, status: int) -> None:
    """The name of one may lead a browser to this machine, and its page may read the answers then."""
    server.qm.put("A", b"x")
    assert server.ask("GET", f"{ROOT}/A/message", Host=host).status == status
    assert server.ask("GET", "/healthz", Host=host).status == 200


def test_who_asks_nobody_is_asked_by_its_own_name() -> None:
    listeners._check_host("Mq.Example.com:9443", "mq.example.COM")


@pytest.mark.parametrize(
    ("target", "version", "host", "status"),
    [
        ("/healthz", "1.1", None, 400),
        ("http://localhost/healthz", "1.1", None, 400),
        ("/healthz", "1.0", None, 200),
        ("/healthz", "1.1", "", 200),
        ("/healthz", "1.1", "[::1]:9443", 200),
        ("/healthz", "1.1", "a b", 400),
        ("/healthz", "1.1", "a/b", 400),
        ("/healthz", "1.1", "user@a", 400),
        ("/healthz", "1.1", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", 400),
        ("/healthz", "1.0", "a b", 400),
        ("http://localhost/healthz", "1.1", "a b", 400),
    ],
)
def test_a_request_says_which_host_it_is_for(
    server: Server, target: str, version: str, host: str | None, status: int
) -> None:
    """RFC 9112, 3.2: it could not be known otherwise whether another reader takes it for another's."""
    said = "" if host is None else f"Host: {host}\r\n"
    assert server.raw(f"GET {target} HTTP/{version}\r\n{said}\r\n".encode()).startswith(b"HTTP/1.1 %d" % status)


def test_a_client_of_http_1_0_hears_nothing_before_its_answer(server: Server) -> None:
    """RFC 9110, 10.1.1: it would take the 100 for that."""
    head = f"POST {ROOT}/A/message HTTP/1.%d\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n"
    head += "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx"
    assert server.raw((head % 0).encode()).startswith(b"HTTP/1.1 201")
    assert server.raw((head % 1).encode()).startswith(b"HTTP/1.1 100")
    assert server.qm.queue("A").depth == 2


def test_what_comes_with_the_end_of_a_body_is_the_next_request(server: Server) -> None:
    head = f"POST {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n"
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: 4\r\n\r\n".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")  # it reads the body now
        connection.sendall(b"bodyGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        said = all_of(connection)
    assert (said.count(b"HTTP/1.1 "), said.startswith(b"HTTP/1.1 201"), said.endswith(b"\r\n\r\nok\n")) == (
        2,
        True,
        True,
    )
    assert bodies(server.qm, "A") == [b"body"]


def test_a_get_waits_as_many_milliseconds_as_it_says() -> None:
    world = World()
    world.qm.define_queue("A")
    session = world.qm.sessions.open(Peer(user="u"), AllRights())
    wants = parse(f"DELETE {ROOT}/A/message?wait=2500 HTTP/1.1\r\nHost: a\r\nibm-mq-rest-csrf-token:".encode(), 0)
    for gone, waited in ((False, 2.5), (True, http_messaging.CHECK_EVERY_S)):
        before = world.clock.elapsed
        asked = http_messaging.Messaging(session, lambda: world.clock.elapsed / 1e9, lambda gone=gone: gone)
        with contextlib.suppress(BadRequest):
            assert asked.answer(wants, b"").status == 204
        assert (world.clock.elapsed - before) / 1e9 == pytest.approx(waited)
    world.qm.end()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_who_says_close_is_closed_whatever_else_it_says(server: Server, version: str) -> None:
    """RFC 9112, 9.3."""
    said = server.raw(f"GET /healthz HTTP/{version}\r\nHost: a\r\nConnection: keep-alive, Close\r\n\r\n".encode() * 2)
    assert (said.count(b"HTTP/1.1 200"), said.count(b"Connection: close")) == (1, 1)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/healthz", 200), ("GET", "/nothing", 404)])
def test_an_answer_says_when_it_was_made(server: Server, method: str, path: str, status: int) -> None:
    """RFC 9110, 6.6.1."""
    answer = server.ask(method, path)
    at = datetime.datetime.strptime(answer.headers["date"], "%a, %d %b %Y %H:%M:%S GMT")
    off = datetime.datetime.now(datetime.UTC) - at.replace(tzinfo=datetime.UTC)
    assert answer.status == status
    assert abs(off.total_seconds()) < 60


@given(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2999, 1, 1)))
def test_the_date_of_an_answer_is_as_other_programs_write_it(moment: datetime.datetime) -> None:
    seconds = int(moment.replace(tzinfo=datetime.UTC).timestamp())
    assert date(seconds * 1_000_000) == email.utils.formatdate(seconds, usegmt=True)


@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
def test_a_target_may_be_of_the_absolute_form(server: Server, scheme: str) -> None:
    """As a server must take it (RFC 9112, 3.2.2)."""
    head = f"POST {scheme}://localhost:9443{ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token:\r\n"
    assert server.raw(f"{head}Content-Length: 1\r\n\r\nx".encode()).startswith(b"HTTP/1.1 201")
    shown = server.raw(f"GET {scheme}://[::1]{ROOT}/A/message? HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert shown.startswith(b"HTTP/1.1 200") and shown.endswith(b"\r\n\r\nx")


def test_the_host_of_a_target_counts_whatever_the_header_says(server: Server) -> None:
    server.qm.put("A", b"x")
    for host, header, status in (("web.example.com", "localhost", 403), ("localhost", "web.example.com", 200)):
        said = server.raw(f"GET http://{host}{ROOT}/A/message HTTP/1.1\r\nHost: {header}\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 %d" % status), said


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://a", ("",), {}),
        ("http://a/", ("",), {}),
        ("http://a?b=c", ("",), {"b": "c"}),
        ("https://a:1/b%2Fc/d?e=http://f", ("b/c", "d"), {"e": "http://f"}),
    ],
)
def test_the_path_of_a_target_of_the_absolute_form(target: str, path: tuple[str, ...], query: dict[str, str]) -> None:
    head = parse(f"GET {target} HTTP/1.1\r\nHost: b".encode(), 0)
    assert (head.path, head.query, head.headers["host"]) == (path, query, target.split("/")[2].partition("?")[0])


@pytest.mark.parametrize(
    "target", ["http:/a", "http:///a", "http://", "http://u@a/b", "http://:1/b", "ftp://a/b", "a:1", "*", "a/b"]
)
def test_a_target_that_is_none(server: Server, target: str) -> None:
    assert server.raw(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).startswith(b"HTTP/1.1 400")


def test_empty_lines_before_a_request_are_passed_over(server: Server) -> None:
    """As some clients send them behind a body (RFC 9112, 2.2); each may come by itself."""
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for lines in (b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n", b"\n\n"):
        assert server.raw((lines + head) * 2).count(b"HTTP/1.1 200 OK") == 2, lines
    with socket.create_connection((server.host, server.port), timeout=30) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (b"\r\n", b"\r", b"\n", head[:9], head[9:]):
            one.sendall(part)
        one.shutdown(socket.SHUT_WR)
        assert all_of(one).startswith(b"HTTP/1.1 200 OK")


def test_the_server_as_a_whole_says_what_it_takes(server: Server) -> None:
    """`OPTIONS *` (RFC 9110, 9.3.7), which only this method may ask for."""
    said = server.raw(b"OPTIONS * HTTP/1.1\r\nHost: web.example.com\r\n\r\n" * 2)
    assert (
        said.count(b"HTTP/1.1 204 No Content\r\n")
        == said.count(b"\r\nAllow: GET, HEAD, POST, DELETE, OPTIONS\r\n")
        == 2
    )
    for wrong in ("XOPTIONS *", "OPTIONS *?a=b", "OPTIONS **", "OPTIONS http://localhost*", "OPTIONS * *"):
        said = server.raw(f"{wrong} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 4"), wrong
    said = server.raw(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
    assert said.startswith(b"HTTP/1.1 400 ")


def test_two_that_differ_in_what_they_read_are_refused(server: Server) -> None:
    """Row 72."""
    head = f"POST {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token: 1\r\n"
    for wrong in (
        "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "Content-Length: +1\r\n\r\nx",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length : 1\r\n\r\nx",
        " folded: 1\r\n\r\n",
        "Host: y\r\n\r\n",
        "y: a\nContent-Length: 1\r\n\r\nx",
        "y: a\0b\r\n\r\n",
    ):
        said = server.raw((head + wrong).encode())
        assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 411")), said
        assert said.count(b"HTTP/1.1") == 1
    assert server.qm.queue("A").depth == 0


def test_heads_and_bodies_are_bounded_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 73. Who sends on all the same hears why, and is not cut off."""
    monkeypatch.setattr(listeners, "LINGER_S", 600)
    server = Server(tmp_path, ChannelsConfig(max_frame_length=65_536))
    said = server.raw(f"GET {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nx: {'y' * 20_000}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 431")
    many = "".join(f"x{number}: y\r\n" for number in range(101))
    assert server.raw(f"GET {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\n{many}\r\n".encode()).startswith(
        b"HTTP/1.1 431"
    )
    said = server.raw(
        f"POST {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n".encode()
        + bytes(4_000_000)
    )
    assert said.startswith(b"HTTP/1.1 413")
    server.end()


def test_who_is_slow_or_says_nothing_is_closed_and_holds_up_nobody(tmp_path: Path) -> None:
    """Row 75."""
    server = Server(tmp_path, ChannelsConfig(connect_timeout=1))
    known = http.client.HTTPConnection(server.host, server.port, timeout=30)
    known.request("GET", f"{ROOT}/A/messagelist")
    known.getresponse().read()
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        connection.sendall(b"GET / HT")
        assert server.ask("GET", "/healthz").body == b"ok\n"
        assert all_of(connection).startswith(b"HTTP/1.1 408")
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        assert all_of(connection) == b"", "nothing was asked"
    until(lambda: not len(server.listener.strangers))
    known.request("GET", f"{ROOT}/A/messagelist")
    assert known.getresponse().status == 200, "it has IdleTimeout"
    known.close()
    server.end()


def test_row_75_a_body_that_does_not_come_to_its_end_is_given_up(tmp_path: Path) -> None:
    """Nothing of it is put, though the client would have gone on."""
    server = Server(tmp_path, ChannelsConfig(idle_timeout=1))
    head = (
        f"POST {ROOT}/A/message HTTP/1.1\r\nHost: localhost\r\nibm-mq-rest-csrf-token: x\r\nContent-Length: 10\r\n\r\n"
    )
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        connection.sendall(head.encode() + b"half")
        assert all_of(connection).startswith(b"HTTP/1.1 408")
    assert server.qm.queue("A").depth == 0
    until(lambda: len(server.qm.sessions) == 0)
    server.end()


def test_a_body_that_comes_in_crumbs_takes_no_more_memory_than_in_large_pieces(server: Server) -> None:
    class Crumbs:
        def settimeout(self, seconds: float) -> None:
            """They come at once."""

        def recv(self, most: int) -> bytes:
            return bytes(bytearray(min(2, most)))

    size = 200_000
    connection = listeners.Connection(server.listener, cast(socket.socket, Crumbs()), "127.0.0.1:1")
    head = parse(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d" % size, size)
    tracemalloc.start()
    try:
        assert connection._body(head) == bytes(size)
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()


def test_there_are_no_more_connections_than_allowed(tmp_path: Path) -> None:
    """Row 76."""
    server = Server(tmp_path, ChannelsConfig(max_channels=1))
    server.qm.sessions.limit = 1
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    for _ in range(2):
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        assert server.ask("GET", f"{ROOT}/A/messagelist").status == 200  # nobody knows who that connection is
        until(lambda: len(server.qm.sessions) == 0)
    connection.request("GET", f"{ROOT}/A/messagelist")
    connection.getresponse().read()
    refused = server.ask("GET", f"{ROOT}/A/messagelist")
    assert (refused.status, json.loads(refused.body)["error"][0]["reasonCode"]) == (503, 2025)
    assert server.ask("GET", f"{ROOT}/A/messagelist").status == 503
    full = ("AMQ9513", {"name": "test", "count": 1})
    assert server.face.said == [full], "once"
    assert server.ask("GET", "/healthz").status == 200
    connection.close()
    until(lambda: server.ask("GET", f"{ROOT}/A/messagelist").status == 200)
    until(lambda: len(server.qm.sessions) == 0)
    server.qm.sessions.limit = 0
    assert server.ask("GET", f"{ROOT}/A/messagelist").status == 503
    assert [amq for amq, _ in server.face.said] == ["AMQ9513"] * 2, "there was room meanwhile"
    server.end()


def test_row_76_strangers_go_for_those_who_come_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "GRACE_NS", 0)
    server = Server(tmp_path)
    server.listener.strangers._most = 3
    talks = http.client.HTTPConnection(server.host, server.port, timeout=30)
    talks.request("GET", "/healthz")
    assert talks.getresponse().read() == b"ok\n"
    silent = [socket.create_connection((server.host, server.port), timeout=30) for _ in range(30)]
    for one in silent[:-3]:
        assert one.recv(1) == b""
    assert server.ask("GET", f"{ROOT}/A/messagelist").status == 200
    talks.request("GET", "/healthz")
    assert talks.getresponse().read() == b"ok\n"
    for one in silent:
        one.close()
    server.end()


def test_row_76_who_goes_no_further_in_a_handshake_goes_for_those_who_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "GRACE_NS", 0)
    certificate, key = Authority(tmp_path).issue("localhost")
    options = {"tls_certificate": certificate, "tls_key": key, "authentication": ("PLAIN",)}
    server = Server(tmp_path, ChannelsConfig(connect_timeout=3600), **options)
    server.listener.strangers._most = 3
    silent = [socket.create_connection((server.host, server.port), timeout=30) for _ in range(30)]
    for one in silent[:-3]:
        assert one.recv(1) == b""
    server.listener.close()
    for one in silent:
        assert one.recv(1) == b""
        one.close()
    until(lambda: not server.listener._open)
    server.end()


def test_who_waits_for_room_hears_at_once_that_the_listener_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "GRACE_NS", 3600 * 1_000_000_000)
    server = Server(tmp_path, ChannelsConfig(connect_timeout=3600))
    server.listener.strangers._most = 1
    there, waiting = (socket.create_connection((server.host, server.port), timeout=30) for _ in range(2))
    until(lambda: len(server.listener._open) == 2)
    server.listener.refuse()
    assert waiting.recv(1) == b""
    until(lambda: len(server.listener._open) == len(server.listener.strangers) == 1)
    server.end()
    there.close()
    waiting.close()


@given(data=st.one_of(st.binary(max_size=300), st.binary(max_size=100).map(lambda b: b"GET / HTTP/1.1\r\n" + b)))
def test_any_bytes_are_a_head_or_a_refusal(data: bytes) -> None:
    """Row 72."""
    try:
        assert isinstance(parse(data, 1000), Head)
    except BadRequest as exc:
        assert 400 <= exc.status < 500


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20).filter(str.isprintable),
        st.text(max_size=20) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False),
        min_size=1,
        max_size=4,
    )
)
def test_properties_go_there_and_back(given: dict[str, Any]) -> None:
    head = describe(0, True, properties=given).head(bytes(24), 0)
    said = headers_of(Message(b"", head, "A"))["ibm-mq-usr"]
    assert said.isprintable()
    assert properties(said) == given


@pytest.mark.parametrize("said", ["a;" + "9" * 10_000 + ";integer", ", ".join(["a" * 5_000 + ";1;integer"] * 2)])
def test_what_is_said_of_a_wrong_property_repeats_its_beginning_only(said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        properties(said)
    assert len(str(caught.value)) < 250


def test_users_come_over_tls_with_their_rights(tmp_path: Path) -> None:
    """Row 79."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    mia = authority.issue("mia")
    tls: dict[str, Any] = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": authority.path}
    server = Server(tmp_path, **tls, authentication=("PLAIN", "EXTERNAL"))
    users: Users = server.face.authority.users
    users.set("tom", "geheim")
    server.qm.authorize("mia", add=["connect"])
    server.qm.authorize("mia", "A", add=["put"])
    server.qm.authorize("tom", add=["connect"])
    server.qm.authorize("tom", "A", add=["get"])

    def ask(
        method: str, user: tuple[str, str] | None = None, chain: tuple[str, str] | None = None, port: int = server.port
    ) -> Answer:
        context = ssl.create_default_context(cafile=authority.path)
        if chain:
            context.load_cert_chain(*chain)
        connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=context)
        headers = dict(TOKEN)
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
        connection.request(method, f"{ROOT}/A/message", b"x" if method == "POST" else None, headers)
        response = connection.getresponse()
        answer = Answer(response.status, dict(response.getheaders()), response.read())
        connection.close()
        return answer

    assert ask("POST", chain=mia).status == 201
    assert ask("DELETE", chain=mia).status == 403
    wrong, nobody = ask("DELETE", ("tom", "falsch")), ask("DELETE")
    assert (wrong.status, "WWW-Authenticate" in nobody.headers) == (401, True)
    password = "give a user and a password (Authorization: Basic)"
    certificate_way = "show a certificate that an authority of TLSClientCA has signed, and no Authorization"
    assert wrong.error["action"] == "give those that `qm setuser` has set"
    assert nobody.error["explanation"] == "nobody knows who asks"
    assert nobody.error["action"] == f"{password}, or {certificate_way}"
    assert ask("POST", ("tom", "geheim")).status == 403
    assert ask("DELETE", ("tom", "geheim"), chain=mia).body == b"x", "a password counts before a certificate"
    said = [amq for amq, _ in server.face.said]
    assert said.count("AMQ8077") == 2
    refused = [inserts["address"] for amq, inserts in server.face.said if amq == "AMQ9557"]
    assert [address.partition(":")[0] for address in refused] == ["127.0.0.1"] * 2
    strict = listeners.HttpListener(server.face, listening(Protocol.HTTP, **tls, authentication=("EXTERNAL",)))
    strict.start()
    assert strict.address is not None
    refusal = ask("DELETE", ("tom", "geheim"), mia, strict.address[1])
    assert (refusal.status, refusal.error["action"]) == (401, certificate_way), "it takes no passwords"
    strict.close()
    (tmp_path / "qmgrs" / NAME / "users.json").write_text("{")
    refusal = ask("DELETE", ("tom", "geheim"))
    assert (refusal.status, refusal.error["action"]) == (503, "its error log says why"), "a password is not at fault"
    assert _plain(server.port) == b""
    server.end()


def test_who_shows_something_else_than_a_password_is_told_what_is_taken(tmp_path: Path) -> None:
    """A token is no request that went wrong: its client may have a password too, and asks with that when it is told."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    server = Server(tmp_path, tls_certificate=certificate, tls_key=key, authentication=("PLAIN",))
    context = ssl.create_default_context(cafile=authority.path)

    def ask(said: str) -> tuple[int, str | None]:
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)
        connection.request("GET", f"{ROOT}/A/message", headers={"Authorization": said})
        response = connection.getresponse()
        connection.close()
        return response.status, response.headers["WWW-Authenticate"]

    tokens = ("Bearer eyJhbGciOiJub25lIn0.e30.", 'Digest username="mia", uri="/"', "Negotiate YII=", "bare")
    for said in tokens:
        assert ask(said) == (401, 'Basic realm="qmgr", charset="UTF-8"'), said
    for said in ("Basic !", "Basic /w=="):
        assert ask(said) == (400, None), said
    server.end()
    assert [amq for amq, _ in server.face.said] == ["AMQ9557"] * len(tokens)


def test_each_request_of_a_connection_has_the_rights_of_its_own_user(tmp_path: Path) -> None:
    """Row 79. As behind a proxy, which uses one connection for many."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    server = Server(tmp_path, tls_certificate=certificate, tls_key=key, authentication=("PLAIN",))
    for user, right in (("mia", "put"), ("tom", "get")):
        server.face.authority.users.set(user, f"of {user}")
        server.qm.authorize(user, add=["connect"])
        server.qm.authorize(user, "A", add=[right])
    context = ssl.create_default_context(cafile=authority.path)
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)

    def ask(method: str, user: str, password: str) -> int:
        said = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = TOKEN | ({"Authorization": f"Basic {said}"} if user else {})
        connection.request(method, f"{ROOT}/A/message", b"x" if method == "POST" else None, headers)
        response = connection.getresponse()
        response.read()
        return response.status

    assert [ask("POST", "mia", "of mia"), ask("DELETE", "mia", "of mia")] == [201, 403]
    assert [ask("POST", "tom", "of tom"), ask("DELETE", "tom", "of tom")] == [403, 200]
    assert ask("POST", "mia", "of mia") == 201
    assert len(server.qm.sessions) == 1
    assert ask("POST", "mia", "of tom") == 401
    assert ask("POST", "", "") == 401
    assert server.qm.queue("A").depth == 1
    connection.close()
    server.end()


def test_the_error_log_hears_why_tls_fails_and_nothing_of_who_only_looks(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("localhost")
    hasty = ChannelsConfig(connect_timeout=1)
    server = Server(tmp_path, hasty, tls_certificate=certificate, tls_key=key, authentication=("PLAIN",))
    for _ in range(3):  # as what watches over ports does
        socket.create_connection((server.host, server.port)).close()
    with socket.create_connection((server.host, server.port), timeout=30) as silent:
        assert silent.recv(1) == b""
    until(lambda: bool(server.face.said))
    [(amq, inserts)] = server.face.said
    assert (amq, "timed out" in str(inserts)) == ("AMQ9213", True)
    server.face.said.clear()
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=ssl.create_default_context())
    with pytest.raises(ssl.SSLError):
        connection.request("GET", "/healthz")
    until(lambda: bool(server.face.said))
    assert [(amq, "unknown ca" in str(inserts)) for amq, inserts in server.face.said] == [("AMQ9213", True)]
    server.end()


def _plain(port: int) -> bytes:
    """What a client without TLS hears."""
    with socket.create_connection(("localhost", port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        try:
            return connection.recv(100)[:0]
        except ConnectionError:
            return b""


def test_a_listener_that_nobody_could_use_is_refused(tmp_path: Path) -> None:
    made = face(tmp_path)
    with pytest.raises(Clash, match="HTTP has no way for SCRAM-SHA-256"):
        listening(Protocol.HTTP, authentication=("SCRAM-SHA-256",))
    for name in ("cert", "key"):
        (tmp_path / name).write_text("no PEM")
    with pytest.raises(IniError, match="AMQ9255E"):
        listeners.HttpListener(
            made,
            listening(
                Protocol.HTTP,
                tls_certificate=str(tmp_path / "cert"),
                tls_key=str(tmp_path / "key"),
                authentication=("PLAIN",),
            ),
        )
    made.manager.end()


def test_health_and_metrics(tmp_path: Path) -> None:
    server = Server(tmp_path, metrics=True)
    server.qm.put("A", b"x")
    assert server.ask("GET", "/healthz").body == b"ok\n"
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert samples['ibmmq_queue_depth{qmgr="QM1",platform="UNIX",queue="A",usage="NORMAL"}'] == "1"
    assert 0 <= float(samples['ibmmq_queue_time_since_put{qmgr="QM1",platform="UNIX",queue="A",usage="NORMAL"}']) < 3600
    assert not any(name.startswith("ibmmq_queue_time_since_get") for name in samples)  # there was none
    assert samples['ibmmq_qmgr_status{qmgr="QM1",platform="UNIX"}'] == "2"
    assert float(samples['ibmmq_qmgr_log_logical_written_bytes{qmgr="QM1",platform="UNIX"}']) > 0
    for line in lines:
        assert line.startswith(("# HELP ibmmq_", "# TYPE ibmmq_", "ibmmq_")), line
    assert server.ask("POST", "/metrics").status == 405
    server.qm.abandon()
    assert server.ask("GET", "/healthz").status == 503
    server.listener.close()


def test_health_while_the_queue_manager_quiesces(server: Server) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read() == b"ok\n"
    unit = server.qm.begin()
    unit.put("A", b"x")
    server.listener.refuse()  # as the daemon does
    server.qm.quiesce()
    with pytest.raises(OSError):
        socket.create_connection((server.host, server.port), timeout=5)
    connection.request("GET", "/healthz")
    response = connection.getresponse()
    assert (response.status, response.getheader("Connection")) == (503, "close")
    unit.commit()


def test_metrics_are_made_for_one_client_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(tmp_path, metrics=True)
    at_work, go_on = threading.Semaphore(0), threading.Event()

    def slow(manager: qmgr.QueueManager, connections: int) -> str:
        at_work.release()
        assert go_on.wait(30)
        return "metrics"

    monkeypatch.setattr(metrics, "exposition", slow)
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(server.ask, "GET", "/metrics") for _ in range(3)]
        try:
            assert at_work.acquire(timeout=30)
            assert not at_work.acquire(timeout=0.3)
        finally:
            go_on.set()
        assert [one.result().body for one in asked] == [b"metrics"] * 3
    server.end()


def test_metrics_that_several_wait_for_are_made_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who gave up have left their requests behind: an answer to each of them would keep the next for minutes."""
    at_work, go_on, made = threading.Event(), threading.Event(), 0

    def make() -> bytes:
        nonlocal made
        made += 1
        at_work.set()
        assert go_on.wait(30)
        return b"%d" % made

    class Maker:
        """Counts who comes; the first of them makes the answer."""

        came = 0
        lock = threading.Lock()

        def acquire(self, *, blocking: bool) -> bool:
            with self.lock:
                self.came += 1
                return self.came == 1

    answers, maker = metrics.Answers(make), Maker()
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(answers.get)
        try:
            assert at_work.wait(30)
            monkeypatch.setattr(answers._next, "maker", maker)
            came = [pool.submit(answers.get) for _ in range(19)]
            until(lambda: maker.came == 19)
        finally:
            go_on.set()
        assert first.result() == b"1"  # it was begun before the others came
        assert {one.result() for one in came} == {b"2"}
        assert answers.get() == b"3"


def test_who_asks_for_metrics_again_after_an_error_gets_them() -> None:
    bodies = iter((MemoryError(), b"metrics"))

    def make() -> bytes:
        body = next(bodies)
        if isinstance(body, MemoryError):
            raise body
        return body

    answers = metrics.Answers(make)
    with pytest.raises(MemoryError):
        answers.get()
    assert answers.get() == b"metrics"


def test_who_finds_no_memory_to_ask_for_metrics_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = metrics.Answers(lambda: b"metrics")

    def refused() -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(metrics, "_Answer", refused)
        with pytest.raises(MemoryError):
            answers.get()
    assert soon(answers.get) == b"metrics"


@pytest.mark.parametrize("log_type", ["circular", "linear"])
def test_metrics_say_of_the_log_what_display_says(tmp_path: Path, log_type: str) -> None:
    with face(tmp_path, log_type=log_type).manager as qm:
        if log_type == "linear":
            qm.advance_log()
        lines = metrics.exposition(qm, 0).splitlines()
        shown = qm.mqsc("display qmstatus log").text
    samples = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if not line.startswith("#")}
    extents = {"current": "CURRLOG", "restart": "RECLOG", "media": "MEDIALOG", "archive": "ARCHLOG"}
    for name, attribute in extents.items():
        number = samples.get(f"ibmmq_qmgr_log_extent_{name}")
        assert f"{attribute}({' ' if number is None else f'S{int(number):07}.LOG'})" in shown, (name, number, shown)
    assert ("ibmmq_qmgr_log_extent_current" in samples) == (log_type == "linear")
    assert int(samples["ibmmq_qmgr_log_file_system_free_space_bytes"]) > 0
    for name, attribute in {"archive": "ARCHSZ", "media": "MEDIASZ", "restart": "RECSZ", "reusable": "REUSESZ"}.items():
        assert f"{attribute}({samples.get(f'ibmmq_qmgr_log_size_{name}', ' ')})" in shown, (name, shown)
    began = datetime.datetime.fromtimestamp(int(samples["ibmmq_qmgr_log_start_epoch"]) / 1000, datetime.UTC)
    assert f"LOGSTRDA({began:%Y-%m-%d})" in shown and f"LOGSTRTI({began:%H.%M.%S})" in shown


@pytest.mark.parametrize("jump", [-1e6, 1e6])
def test_row_68_the_uptime_is_elapsed_time(jump: float) -> None:
    world = World()
    world.clock.jump_wall(jump)
    world.clock.advance(70)
    (line,) = (line for line in metrics.exposition(world.qm, 0).splitlines() if line.startswith("ibmmq_qmgr_uptime{"))
    assert float(line.split()[-1]) == pytest.approx(70, abs=1)


def test_metrics_count_the_ends_of_units_of_work_since_the_start(tmp_path: Path) -> None:
    def counts(qm: qmgr.QueueManager) -> tuple[str, ...]:
        lines = metrics.exposition(qm, 0).splitlines()
        found = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if "_count{" in line}
        return found["ibmmq_qmgr_commit_count"], found["ibmmq_qmgr_rollback_count"]

    made = face(tmp_path)
    with made.manager as qm:
        assert counts(qm) == ("0", "0")
        for persistent in (True, False):
            with qm.begin() as unit:
                unit.put("A", b"x", persistent=persistent)
        unit = qm.begin(qmgr.Xid(1, b"g", b"b"))
        unit.put("A", b"x")
        unit.prepare()
        qm.resolve(qmgr.Xid(1, b"g", b"b"), commit=True)
        unit = qm.begin()
        unit.get("A")
        unit.backout()
        qm.put("A", b"no unit of work")
        assert counts(qm) == ("3", "1")
    with qmgr.start(qm.name, data_path=tmp_path, background=False) as again:
        assert counts(again) == ("0", "0")


def test_refusing_and_closing(server: Server) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request("POST", f"{ROOT}/A/message", b"x", TOKEN)
    connection.getresponse().read()
    waiting = Call(lambda: server.raw(f"DELETE {ROOT}/B/message HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))
    waiting.outcome()
    server.listener.refuse()
    with pytest.raises(OSError):
        socket.create_connection((server.host, server.port), timeout=5)
    until(lambda: all(thread.name != "LISTENER-test" for thread in threading.enumerate()))
    connection.request("GET", f"{ROOT}/A/message")
    response = connection.getresponse()
    assert (response.read(), response.getheader("Connection")) == (b"x", "close")
    server.listener.close()
    while len(server.face.sessions):
        pass


@pytest.mark.parametrize("directory", [False, True])
def test_a_stranger_hears_no_path_when_the_users_can_not_be_read(tmp_path: Path, directory: bool) -> None:
    made = face(tmp_path)
    users = tmp_path / "qmgrs" / NAME / "users.json"
    users.mkdir() if directory else users.write_text("{")
    with pytest.raises(NotAuthorized) as caught:
        made.authority.check_password("mia", "x")
    assert str(tmp_path) not in str(caught.value)
    made.authority.refused("mia", caught.value, "192.0.2.1:7")
    [(amq, inserts)] = made.said
    assert (amq, inserts["address"], str(tmp_path) in inserts["text"]) == ("AMQ9557", "192.0.2.1:7", True)
    made.manager.end()
