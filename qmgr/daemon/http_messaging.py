"""Messages over HTTP, in the manner of IBM MQ's REST interface: put, get, browse and list, one message a request.

    POST   /ibmmq/rest/v3/messaging/qmgr/{qmgr}/queue/{queue}/message            put           201
    DELETE …/message?messageId=&correlationId=&wait=milliseconds                 get           200, or 204: none
    GET    …/message?messageId=&correlationId=                                   browse        200, or 204: none
    GET    …/messagelist?limit=&messageId=&correlationId=                        list          200

A response is sent when what it tells is on disk. Where the response to a get is lost, its message is lost too, unless
the client was seen to be gone before: who must not lose a message browses first, or uses a protocol with units of work.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from qmgr.daemon.http_frames import MAX_HEAD_BYTES, BadRequest, Head, Response, bad
from qmgr.errors import (
    Damaged,
    Inhibited,
    Mistake,
    MQError,
    NoMessageAvailable,
    NotAuthorized,
    Reason,
    TryAgain,
    Unavailable,
    UnknownQueue,
)
from qmgr.message import Message, Value
from qmgr.session import Session

PREFIX = ("ibmmq", "rest")
VERSIONS = ("v1", "v2", "v3")
TEXT = ("text/plain", "text/html", "text/xml", "application/json", "application/xml")
BYTES = "application/octet-stream"
CHARSETS = {"utf-8", "utf8", "us-ascii"}
PLAIN = "!#$&'()*+/:<=>?@[]^`{|}"  # what stands for itself in a property
QUERIES = {"messageId", "correlationId", "wait", "limit"}
HEX_ID = re.compile("[0-9A-Fa-f]{48}")
MAX_WAIT_MS = 24 * 3600 * 1000
CHECK_EVERY_S = 1.0  # while a get waits: between two looks whether the client is there
DEFAULT_LIMIT, MAX_LIMIT = 10, 10_000


def failure(exc: Exception) -> Response:
    """What went wrong, as IBM MQ's REST interface says it."""
    reason = exc.reason if isinstance(exc, MQError) else Reason.UNEXPECTED_ERROR
    status = exc.status if isinstance(exc, BadRequest) else status_of(exc)
    what, _, way_out = (exc.sentence if isinstance(exc, MQError) else str(exc)).partition("; ")
    said = {
        "type": "qmgr" if isinstance(exc, MQError) else "rest",
        "msgId": "AMQ8101S" if isinstance(exc, MQError) else "MQWB0001E",
        "completionCode": 2 if isinstance(exc, MQError) else 0,
        "reasonCode": int(reason) if isinstance(exc, MQError) else 0,
        "message": str(exc),
        "explanation": what,
        "action": way_out
        or ("try again later" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "change what was asked for"),
    }
    body = json.dumps({"error": [said]}).encode()
    headers = dict(exc.headers) if isinstance(exc, BadRequest) else {}
    return Response(status=status, body=body, content_type="application/json;charset=utf-8", headers=headers)


def status_of(exc: Exception) -> HTTPStatus:
    """The status that tells a client what to do about an error."""
    match exc:
        case NotAuthorized():
            return HTTPStatus.FORBIDDEN
        case UnknownQueue():
            return HTTPStatus.NOT_FOUND
        case TryAgain() | Unavailable() | Inhibited():  # it passes, or an operator ends it: for a 400 clients give up
            return HTTPStatus.SERVICE_UNAVAILABLE
        case Mistake():
            return HTTPStatus.BAD_REQUEST
        case Damaged() | _:
            return HTTPStatus.INTERNAL_SERVER_ERROR


class Messaging:
    """Answers requests for one client."""

    def __init__(self, session: Session, seconds: Callable[[], float], gone: Callable[[], bool]) -> None:
        """`seconds`: a clock; `gone`: has the client closed its connection?"""
        self._session = session
        self._seconds = seconds
        self._gone = gone

    def answer(self, head: Head, body: bytes) -> Response:
        """Do what a request asks for. Raises BadRequest, MQError."""
        queue, what = self._place(head.path)
        verbs = {
            ("POST", "message"): self._put,
            ("DELETE", "message"): self._get,
            ("GET", "message"): self._browse,
            ("HEAD", "message"): self._browse,
            ("GET", "messagelist"): self._list,
        }
        verb = verbs.get((head.method, what))
        if verb is None:
            allowed = ", ".join(method for method, where in verbs if where == what)
            text = f"{head.method} does not go with {what}; use {allowed}"
            raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, text, Allow=allowed)
        unknown = sorted(set(head.query) - QUERIES)
        if unknown:
            raise bad(f"there is no parameter {unknown[0][:40]!r}; there are {', '.join(sorted(QUERIES))}")
        if head.method in ("POST", "DELETE") and "ibm-mq-rest-csrf-token" not in head.headers:
            raise BadRequest(
                HTTPStatus.FORBIDDEN, "header ibm-mq-rest-csrf-token is missing; it may have any value, or none"
            )
        return verb(queue, head, body)

    def _place(self, path: tuple[str, ...]) -> tuple[str, str]:
        """The queue and the resource that a path names."""
        name = self._session.manager.name
        if len(path) == 8 and path[:2] == PREFIX and path[2] in VERSIONS and path[3] == "messaging":
            kind, manager, other, queue = path[4], path[5], path[6], path[7]
            raise BadRequest(HTTPStatus.NOT_FOUND, f"/{kind}/{manager}/{other}/{queue} is no resource; add /message")
        known = len(path) == 9 and path[:2] == PREFIX and path[2] in VERSIONS
        if not known or (path[3], path[4], path[6]) != ("messaging", "qmgr", "queue"):
            raise BadRequest(
                HTTPStatus.NOT_FOUND, f"there is /ibmmq/rest/v3/messaging/qmgr/{name}/queue/…/message and /messagelist"
            )
        if path[5] != name:
            raise BadRequest(HTTPStatus.NOT_FOUND, f"queue manager {path[5]!r} is not here; this is {name!r}")
        if path[8] not in ("message", "messagelist"):
            raise BadRequest(HTTPStatus.NOT_FOUND, f"a queue has message and messagelist, not {path[8]!r}")
        return path[7], path[8]

    # ---- the verbs

    def _put(self, queue: str, head: Head, body: bytes) -> Response:
        options = put_options(head)
        message = self._session.put(None, queue, body, options)  # type: ignore[arg-type]
        return Response(status=HTTPStatus.CREATED, headers=headers_of(message))

    def _get(self, queue: str, head: Head, body: bytes) -> Response:
        """Get in a unit of work: the message goes back where its headers are too long, or its client is gone."""
        wait = _number(head.query, "wait", 0, MAX_WAIT_MS) / 1000
        unit = self._session.begin()
        try:
            response = response_of(self._wait(unit, queue, wait, selectors(head)))
            _check_short(response)
            if self._gone():
                raise bad(
                    "the client has closed its half of the connection, as if it were gone; close it after the answer"
                )
        except BaseException:
            self._session.backout(unit)
            raise
        self._session.commit(unit)
        return response

    def _wait(self, unit: Any, queue: str, seconds: float, selected: Mapping[str, bytes]) -> Message | None:
        """The message; None when there is none in that time, or the client is gone."""
        until = self._seconds() + seconds
        while True:
            left = max(0.0, until - self._seconds())
            try:
                return self._session.get(unit, queue, wait=min(left, CHECK_EVERY_S), **selected)
            except NoMessageAvailable:
                if left <= CHECK_EVERY_S or self._gone():
                    return None

    def _browse(self, queue: str, head: Head, body: bytes) -> Response:
        return response_of(next(self._session.browse(queue, **selectors(head)), None))

    def _list(self, queue: str, head: Head, body: bytes) -> Response:
        limit = _number(head.query, "limit", DEFAULT_LIMIT, MAX_LIMIT)
        some = islice(self._session.browse(queue, **selectors(head)), limit)
        found = [
            {
                "messageId": message.message_id.hex(),
                "correlationId": message.correlation_id.hex(),
                "format": message.format,
                "priority": message.priority,
                "persistence": "persistent" if message.persistent else "nonPersistent",
                "length": len(message.body),
            }
            for message in some
        ]
        body = json.dumps({"messages": found}).encode()
        return Response(body=body, content_type="application/json;charset=utf-8")


# ---- headers


def put_options(head: Head) -> dict[str, Any]:
    """What the headers say of the message."""
    given = head.headers
    options: dict[str, Any] = {"format": _format(given)}
    persistence = {"persistent": True, "nonpersistent": False}
    if "ibm-mq-md-persistence" in given:
        value = given["ibm-mq-md-persistence"].lower()
        if value not in persistence:
            raise bad("ibm-mq-md-persistence is persistent or nonPersistent")
        options["persistent"] = persistence[value]
    if "ibm-mq-md-priority" in given and given["ibm-mq-md-priority"].lower() != "asdestination":
        options["priority"] = _number(given, "ibm-mq-md-priority", 0, 9)
    if given.get("ibm-mq-md-expiry", "unlimited").lower() != "unlimited":
        milliseconds = _number(given, "ibm-mq-md-expiry", 0, 99_999_999_900)
        if milliseconds == 0:
            raise bad("ibm-mq-md-expiry is unlimited, or milliseconds, 1 or more, not '0'")
        options["expiry"] = milliseconds / 1000
    if "ibm-mq-md-correlationid" in given:
        options["correlation_id"] = identifier(given["ibm-mq-md-correlationid"], "ibm-mq-md-correlationId")
    if "ibm-mq-md-replyto" in given:
        options["reply_to"] = given["ibm-mq-md-replyto"].partition("@")[0]
    if "ibm-mq-usr" in given:
        options["properties"] = properties(given["ibm-mq-usr"])
    return options


def _format(given: Mapping[str, str]) -> str:
    """The format of the body: text, which is UTF-8, or bytes.

    Other types, charsets and encodings are refused: the message has no place for them, and whoever gets it would not
    know of them.
    """
    kind, *words = (word.strip().lower() for word in given.get("content-type", "text/plain").split(";"))
    if kind not in (*TEXT, BYTES):
        raise _unsupported(f"Content-Type is {kind[:60]!r}; allowed: {', '.join((*TEXT, BYTES))}")
    if "content-encoding" in given:
        raise _unsupported(f"a body has no Content-Encoding here, not {given['content-encoding'][:60]!r}")
    for name, _, value in (word.partition("=") for word in words):
        if kind != BYTES and name == "charset" and value.strip('"') not in CHARSETS:
            raise _unsupported(f"text is UTF-8 here, not {value[:60]!r}; {BYTES} takes any bytes")
    return "" if kind == BYTES else "MQSTR"


def _unsupported(text: str) -> BadRequest:
    return BadRequest(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)


def headers_of(message: Message) -> dict[str, str]:
    """The headers that describe a message."""
    headers = {
        "ibm-mq-md-messageId": message.message_id.hex(),
        "ibm-mq-md-persistence": "persistent" if message.persistent else "nonPersistent",
        "ibm-mq-md-priority": str(message.priority),
        "ibm-mq-md-expiry": "unlimited" if message.expiry is None else str(int(message.expiry * 1000)),
    }
    if any(message.correlation_id):
        headers["ibm-mq-md-correlationId"] = message.correlation_id.hex()
    if message.reply_to:
        headers["ibm-mq-md-replyTo"] = message.reply_to
    if message.properties:
        headers["ibm-mq-usr"] = ", ".join(_property(name, value) for name, value in message.properties.items())
    return headers


def response_of(message: Message | None) -> Response:
    if message is None:
        return Response(status=HTTPStatus.NO_CONTENT)
    kind = "text/plain;charset=utf-8" if message.format == "MQSTR" else BYTES
    return Response(body=message.body, content_type=kind, headers=headers_of(message))


def _check_short(response: Response) -> None:
    """Refuse to send more headers than all clients take: one that gives up the response would lose the message."""
    size = len(response.encode(wall_us=0, keep_alive=True, without_body=True))
    if size > MAX_HEAD_BYTES:
        text = (
            f"properties of the message make {size} bytes of headers, more than the {MAX_HEAD_BYTES} that "
            f"all clients take"
        )
        raise BadRequest(HTTPStatus.NOT_IMPLEMENTED, f"{text}, so it stays; get it by STOMP or by qmgr.connect")


def selectors(head: Head) -> dict[str, bytes]:
    named = {"messageId": "message_id", "correlationId": "correlation_id"}
    for name in named:
        if head.query.get(name) == "":
            raise bad(f"{name} is empty, as where a script has not set it; leave it out to have any message")
    return {named[name]: identifier(head.query[name], name) for name in named if name in head.query}


def identifier(text: str, what: str) -> bytes:
    """48 hexadecimal digits, with `ID:` before them or not; anything else is the application's own, as text."""
    digits = text.removeprefix("ID:")
    if HEX_ID.fullmatch(digits):
        return bytes.fromhex(digits)
    if text.startswith("ID:") or len(text.encode()) > 24:
        raise bad(f"{what} is 48 hexadecimal digits, or text of at most 24 bytes")
    return text.encode()


def properties(text: str) -> dict[str, Value]:
    """`name;value;type` with commas between them: string, integer, float, boolean; commas in them as %2C, and so on."""
    found: dict[str, Value] = {}
    for part in text.split(","):
        name, _, rest = part.strip().partition(";")
        value, _, kind = rest.rpartition(";")
        try:
            name = unquote(name, errors="strict")
            typed = _typed(value, kind.strip().lower())
        except ValueError:
            kinds = "string, integer, float or boolean, and what is percent-encoded UTF-8"
            raise bad(
                f"{part.strip()[:60]!r} in ibm-mq-usr is no property; give name;value;type, the type {kinds}"
            ) from None
        if name in found:
            raise bad(f"ibm-mq-usr has property {name[:60]!r} twice; give it once")
        found[name] = typed
    return found


def _typed(value: str, kind: str) -> Value:
    if kind == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind in ("integer", "long", "short", "byte", "float", "double") and "_" in value:  # as in Python's own code only
        raise ValueError(value)
    if kind in ("integer", "long", "short", "byte"):
        return int(value)
    if kind in ("float", "double"):
        number = float(value)
        if math.isinf(number) and "inf" not in value.lower():
            raise ValueError(value)
        return number
    if kind == "string":
        text = value[1:-1] if value[:1] == value[-1:] == '"' and len(value) > 1 else value
        return unquote(text, errors="strict")
    raise ValueError(kind)


def _property(name: str, value: Value) -> str:
    name = quote(name, safe=PLAIN)
    match value:
        case bool():
            return f"{name};{str(value).upper()};boolean"
        case int():
            return f"{name};{value};integer"
        case float():
            return f"{name};{value};float"
        case bytes():
            return f'{name};"{value.hex()}";string'
    return f'{name};"{quote(value, safe=PLAIN)}";string'


def _number(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name)
    if text is None:
        return min(default, most)
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise bad(f"{name} is a whole number of at most {most}, not {text[:40]!r}")
    return int(text)
