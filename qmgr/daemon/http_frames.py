"""HTTP/1.1 requests and responses as bytes. Pure, and bounded.

What a proxy might read differently than this is refused, lest a request be hidden in another one (request smuggling).
"""

import datetime
import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

import attrs

MAX_HEAD_BYTES = 16_384  # of request line and headers
MAX_HEADERS = 100
TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# method, host (of a target in absolute form, as a proxy is asked), path with query, digit of the version; `OPTIONS *`
# asks for the server as a whole
REQUEST = re.compile(
    rb'([A-Z]{1,20}) (?:(?i:https?)://(?!:)([!"$-.0->A-~]+))?((?(2)(?:[/?][!-~]*)?|(?:/[!-~]*|(?<=^OPTIONS )\*)))'
    rb" HTTP/1\.([01])"
)
HOST = re.compile(r"[!$&-.0-;=A-Z_a-z~%\[\]]*")  # with its port, as far as one can say that of any host
REQUEST_START = re.compile(rb"[A-Z]{1,20}( [!-~ ]*)?\r?")  # of such a line
END = b"\r\n\r\n"
LONE_LF = re.compile(rb"(?<!\r)\n")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class BadRequest(Exception):
    """A request that can only be answered with this status."""

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers  # of the answer


@attrs.frozen(kw_only=True)
class Head:
    """Request line and headers. Names of headers are in lower case; of one that repeats the values are joined."""

    method: str
    path: tuple[str, ...]  # between the slashes, decoded; () in `OPTIONS *`
    query: Mapping[str, str]
    headers: Mapping[str, str]
    length: int  # of the body, bytes
    keep_alive: bool
    expects: bool  # `100 Continue`, before it sends the body


@attrs.define(kw_only=True)
class Response:
    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = attrs.Factory(dict)

    def encode(self, *, wall_us: int, keep_alive: bool, without_body: bool = False) -> bytes:
        """The response as bytes. `wall_us`: now; `without_body`: as HEAD is answered."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Date: {date(wall_us)}",
            "Server: qmgr",
            "X-Content-Type-Options: nosniff",
        ]
        if self.status is not HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(self.body)}")
        if self.content_type:
            lines.append(f"Content-Type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines.append(f"Connection: {'keep-alive' if keep_alive else 'close'}")
        head = "\r\n".join(lines).encode("latin-1", "replace") + END
        return head if without_body else head + self.body


def date(wall_us: int) -> str:
    """The moment as a header has it, in English whatever the locale."""
    at = datetime.datetime.fromtimestamp(wall_us // 1_000_000, datetime.UTC)
    return f"{DAYS[at.weekday()]}, {at:%d} {MONTHS[at.month - 1]} {at:%Y %H:%M:%S} GMT"


def bad(text: str) -> BadRequest:
    return BadRequest(HTTPStatus.BAD_REQUEST, text)


def check_begin(data: bytes) -> None:
    """Raises BadRequest for what can't become a request any more: its client would wait until the time is up."""
    head = data.lstrip(b"\r\n").partition(END)[0]
    line, end, _ = head.partition(b"\n")
    if (line and not REQUEST_START.fullmatch(line)) or (end and not REQUEST.fullmatch(line.removesuffix(b"\r"))):
        raise bad("the request line is not that of HTTP/1.1")
    if LONE_LF.search(head):
        raise bad("the lines of a head end with CR LF, and one of them ends with LF alone")


def parse(data: bytes, longest: int) -> Head:
    """Parse a head, which comes without its empty line. `longest`: bytes that a body may have. Raises BadRequest."""
    first, *lines = data.split(b"\r\n")
    request = REQUEST.fullmatch(first)
    if request is None:
        raise bad("the request line is not that of HTTP/1.1")
    if len(lines) > MAX_HEADERS:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"there are more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.fullmatch(name) or any(byte < 32 and byte != 9 for byte in value):
            raise bad("a header is not `name: value`")
        key, text = name.decode("ascii").lower(), _decoded(value.strip(b" \t"))
        if key in ("content-length", "host") and key in headers:
            raise bad(f"header {key} is there twice")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    older = request[4] == b"0"
    host = headers.get("host", "" if older else None)
    if host is None or not HOST.fullmatch(host):
        raise bad("a request of HTTP/1.1 has a Host header, which names a host and maybe a port")
    if request[2] is not None:  # a host in the target counts, whatever the header says (RFC 9112, 3.2.2)
        headers["host"] = request[2].decode("ascii")
    target, _, query = request[3].decode("ascii").partition("?")
    try:
        path = tuple(unquote(part, errors="strict") for part in (target or "/").split("/")[1:])
        given = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise bad("the path or the query is not UTF-8, percent-encoded") from None
    asked: dict[str, str] = {}
    for name, value in given:
        if name in asked:  # one of the two would be passed over: a DELETE might take another message than was meant
            raise bad(f"parameter {name[:40]!r} is given twice; give it once")
        asked[name] = value
    wishes = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    return Head(
        method=request[1].decode("ascii"),
        path=path,
        query=asked,
        headers=headers,
        length=_length(headers, longest),
        keep_alive="close" not in wishes and (not older or "keep-alive" in wishes),
        expects=not older and headers.get("expect", "").lower() == "100-continue",
    )


def _decoded(value: bytes) -> str:
    """The text of a header: UTF-8, as curl sends it, or where it is none ISO-8859-1, as programs in a browser do."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _length(headers: Mapping[str, str], longest: int) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(
            HTTPStatus.LENGTH_REQUIRED, "Transfer-Encoding is not supported; give the body a Content-Length"
        )
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad("Content-Length is not a number")
    if int(text) > longest:
        raise BadRequest(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {longest} bytes here (MaxFrameLength), not {text}"
        )
    return int(text)
