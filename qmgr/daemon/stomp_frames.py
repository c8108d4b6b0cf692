"""STOMP frames: bytes to frames and back, for versions 1.0, 1.1 and 1.2. Pure: no sockets, no queues, no clock.

    COMMAND EOL  ( name ":" value EOL )*  EOL  body NUL  EOL*        EOL is LF or CR LF

The head (command and headers) is UTF-8. In 1.1 and 1.2 a header says `\\n` for LF, `\\c` for a colon and `\\\\` for a
backslash, in 1.2 also `\\r` for CR; CONNECT and CONNECTED are not escaped, and 1.0 knows no escapes. Of repeated
headers the first counts. A body ends at the first NUL, or after `content-length` bytes and may then have NULs. An EOL
between frames is a heart-beat. Our own frames have one behind them, as those of other servers do: there are clients
that take it for part of the frame, and lose the next one where it is missing.

What comes from a stranger is bounded before anything is made of it: see `Limits`.
"""

import re
from collections.abc import Iterable, Mapping

import attrs

from qmgr.errors import Mistake

CLIENT_COMMANDS = frozenset(
    {"CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"}
)
UNESCAPED = frozenset({"CONNECT", "STOMP", "CONNECTED"})
MAX_COMMAND_BYTES = max(map(len, CLIENT_COMMANDS))
END = b"\0\n"  # of a frame of ours
NUL_IN_HEAD = "a frame has a NUL before the empty line that ends its headers"
MAX_CACHED_HEAD_BYTES = 512  # a head that comes again is not decoded again
STRAY_BODY_BYTES = 16  # where a frame has no body: stray EOLs are overlooked


class FrameError(Mistake):
    """What came is no STOMP frame, or one beyond the limits; the stream can't be read on."""


@attrs.frozen
class Limits:
    """What a peer may send, in bytes but for `headers`."""

    head: int  # command and headers
    headers: int  # how many of them
    body: int


@attrs.frozen
class Dialect:
    """A version of STOMP, and how its headers are escaped."""

    version: str
    unescape: Mapping[str, str]
    escape: Mapping[str, str]

    @property
    def trims(self) -> bool:
        """Clients of 1.0 write `name: value`; later versions say that spaces belong to the value."""
        return self.version == "1.0"


def _dialect(version: str, unescape: Mapping[str, str]) -> Dialect:
    return Dialect(version, unescape, {"\0": " "} | {said: code for code, said in unescape.items()})


V10 = Dialect("1.0", {}, {"\0": " ", "\n": " ", "\r": " "})  # what it can't say becomes a space
V11 = _dialect("1.1", {"\\n": "\n", "\\c": ":", "\\\\": "\\"})
V12 = _dialect("1.2", {"\\n": "\n", "\\c": ":", "\\\\": "\\", "\\r": "\r"})
DIALECTS = {dialect.version: dialect for dialect in (V10, V11, V12)}

ESCAPE = re.compile(r"\\.?", re.DOTALL)
EOLS = re.compile(rb"(?:\r?\n)*")
SPECIAL = re.compile(r"[\0\\\r\n:]")


@attrs.define
class Frame:
    """One frame: the headers are unescaped, and of each name there is the first one."""

    command: str
    headers: dict[str, str]
    body: bytes = b""
    repeats: bool = attrs.field(default=False, eq=False)  # the head of a SEND before: `headers` is the same object


@attrs.frozen
class _Send:
    """The head of the last SEND: those of one client are often alike, and only their bodies differ."""

    head: bytes  # with the empty line
    headers: dict[str, str]
    length: int  # of the body
    limits: Limits  # under which it was read
    dialect: Dialect


class Parser:
    """Frames out of a stream, however it is cut. `feed` it, then take `next` until that is None.

    `dialect` and `limits` may be changed between two frames. After a FrameError it is of no more use.
    """

    __slots__ = ("_at", "_begun", "_buffer", "_length", "_scan", "_send", "dialect", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.dialect = V12
        self._buffer = bytearray()
        self._at = 0  # where the next frame begins, or the body of the one that has begun
        self._scan = 0  # up to here its end was looked for
        self._begun: Frame | None = None  # its head was read
        self._length = -1  # of its body; -1: up to the first NUL
        self._send: _Send | None = None

    @property
    def begun(self) -> bool:
        """A part of a frame is there. Said of the moment when `next` has returned None."""
        return self._begun is not None or self._at < len(self._buffer)

    @property
    def receipt(self) -> str | None:
        """What the frame asks for whose head was read, and whose body has not come or was refused."""
        return None if self._begun is None else self._begun.headers.get("receipt")

    def feed(self, data: bytes) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._scan -= self._at
            self._at = 0
        self._buffer += data

    def next(self) -> Frame | None:
        """The next whole frame, or None until more is fed. Raises FrameError."""
        if self._begun is None:
            self._read_head()
        return None if self._begun is None else self._read_body(self._begun)

    # ---- the head

    def _read_head(self) -> None:
        """Read the head of the next frame, if all of it has come: then the frame is in `_begun`. Raises FrameError."""
        buffer, at = self._buffer, self._at
        size = len(buffer)
        skipped = EOLS.match(buffer, at)
        assert skipped is not None, "it matches nothing too"
        if skipped.end() != at:
            self._at = at = skipped.end()
            self._scan = max(self._scan, at)
        if at == size:
            return
        send = self._send
        if send is not None and buffer.startswith(send.head, at) and self._reads_as(send):
            self._begun, self._length = Frame("SEND", send.headers, repeats=True), send.length
            self._at = self._scan = at + len(send.head)
            return
        most = at + self.limits.head
        end, body = self._end_of_head(most)
        if end < 0:
            self._check_unfinished(most)
            return
        count = buffer.count(b"\n", at, end)
        if count > self.limits.headers:
            raise FrameError(f"a frame has {count} headers, and at most {self.limits.headers} are taken")
        self._begun = frame = self._decode_head(buffer[at:end])
        self._at = self._scan = body
        self._length = self._body_length(frame)
        if frame.command == "SEND" and body - at <= MAX_CACHED_HEAD_BYTES:
            head = bytes(buffer[at:body])
            self._send = _Send(head, frame.headers, self._length, self.limits, self.dialect)

    def _reads_as(self, send: _Send) -> bool:
        """Would its head be read as it was then?"""
        return send.limits is self.limits and send.dialect is self.dialect

    def _end_of_head(self, most: int) -> tuple[int, int]:
        """(where the head ends, where the body begins); (-1, -1) where the empty line has not come yet."""
        buffer, scan = self._buffer, self._scan
        plain = buffer.find(b"\n\n", scan, most)
        returned = buffer.find(b"\n\r\n", scan, most if plain < 0 else plain + 2)
        if returned >= 0:
            return returned, returned + 3
        if plain >= 0:
            return plain, plain + 2
        return -1, -1

    def _check_unfinished(self, most: int) -> None:
        """Refuse at once what can't become a head any more: another protocol, say."""
        buffer, at = self._buffer, self._at
        line, eol, _ = bytes(buffer[at : at + MAX_COMMAND_BYTES + 2]).partition(b"\n")
        word = line.removesuffix(b"\r").decode("latin-1")
        if not eol and len(word) <= MAX_COMMAND_BYTES:
            if not any(command.startswith(word) for command in CLIENT_COMMANDS):
                raise _unknown_command(word)
        else:
            _known_command(word)
        if buffer.find(b"\0", self._scan, most) >= 0:
            raise FrameError(NUL_IN_HEAD)
        if len(buffer) >= most:
            raise FrameError(f"the headers of a frame are longer than the {self.limits.head} bytes that are taken")
        self._scan = max(at, len(buffer) - 2)

    def _decode_head(self, head: bytearray) -> Frame:
        if 0 in head:
            raise FrameError(NUL_IN_HEAD)
        try:
            text = head.decode()
        except UnicodeDecodeError as exc:
            raise FrameError(f"the headers of a frame are no UTF-8 at byte {exc.start}") from None
        lines = text.split("\n")
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        command = lines[0]
        _known_command(command)
        if "\r" in text and any("\r" in line for line in lines):
            raise FrameError(r"a frame has a CR within a header; STOMP 1.2 writes it as \r")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name:
                # of a CONNECT it may be a passcode, or its second line, and the error log is not for that
                shown = f"header {lines.index(line)} of {command}" if command in UNESCAPED else repr(line[:100])
                raise FrameError(f"a header is name:value, not {shown}")
            if name not in headers:
                headers[name] = value
        dialect = self.dialect
        if dialect.trims:
            headers = trimmed(headers)
        elif "\\" in text and command not in UNESCAPED:
            headers = _first_of((self._unescaped(name), self._unescaped(value)) for name, value in headers.items())
        return Frame(command, headers)

    def _unescaped(self, text: str) -> str:
        def one(match: re.Match[str]) -> str:
            said = self.dialect.unescape.get(match[0])
            if said is None:
                raise FrameError(f"STOMP {self.dialect.version} has no escape {match[0]!r}, as in {text[:100]!r}")
            return said

        return ESCAPE.sub(one, text) if "\\" in text else text

    # ---- the body

    def _body_length(self, frame: Frame) -> int:
        """Bytes of the body that follows, -1 where only its end will tell."""
        said = frame.headers.get("content-length")
        if said is None:
            return -1
        if not said.isascii() or not said.isdigit() or len(said) > 18:
            raise FrameError(f"content-length is a number of bytes, not {said[:100]!r}")
        length = int(said)
        if length > self._most(frame):
            raise self._too_long(frame)
        return length

    def _most(self, frame: Frame) -> int:
        return self.limits.body if frame.command == "SEND" else STRAY_BODY_BYTES

    def _too_long(self, frame: Frame) -> FrameError:
        if frame.command != "SEND":
            return FrameError(f"a {frame.command} frame has no body")
        return FrameError(f"a body is longer than the {self.limits.body} bytes (MaxFrameLength) that are taken")

    def _read_body(self, frame: Frame) -> Frame | None:
        """The frame with its body; None until all of it has come. Raises FrameError."""
        buffer, at, length = self._buffer, self._at, self._length
        if length < 0:
            most = at + self._most(frame)
            end = buffer.find(b"\0", self._scan, most + 1)
            if end < 0:
                if len(buffer) > most:
                    raise self._too_long(frame)
                self._scan = len(buffer)
                return None
        else:
            end = at + length
            if len(buffer) <= end:
                return None
            if buffer[end]:
                raise FrameError(f"after the {length} bytes that content-length announced comes no NUL")
        if end > at:
            with memoryview(buffer) as view:
                frame.body = bytes(view[at:end])
            if frame.command != "SEND" and frame.body.strip(b"\r\n"):
                raise self._too_long(frame)
        self._begun = None
        self._at = self._scan = end + 1
        if self._at == len(buffer):  # a large body does not stay until more comes
            buffer.clear()
            self._at = self._scan = 0
        return frame


def _known_command(command: str) -> None:
    if command not in CLIENT_COMMANDS:
        raise _unknown_command(command)


def _unknown_command(command: str) -> FrameError:
    what = f"{command[:20]!r} is no command of a STOMP client"
    if command.startswith("\x16"):  # as a handshake does
        return FrameError(f"{what}: it begins with TLS, and this listener has none")
    return FrameError(f"{what}; does the client speak STOMP?")


def trimmed(headers: Mapping[str, str]) -> dict[str, str]:
    """As a dialect that `trims` has them."""
    return _first_of((name.strip(" "), value.strip(" ")) for name, value in headers.items())


def _first_of(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    first: dict[str, str] = {}
    for name, value in headers:
        first.setdefault(name, value)
    return first


# ---- frames that a server sends


def encode(dialect: Dialect, command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A frame as bytes; the caller gives `content-length` where the body may have NULs."""
    return b"%b\n%b\n%b%b" % (command.encode(), encode_headers(dialect, headers, command), body, END)


def encode_headers(dialect: Dialect, headers: Mapping[str, str], command: str = "") -> bytes:
    """The lines of the headers, escaped as the dialect has it."""
    text = "".join([f"{name}:{value}\n" for name, value in headers.items()])
    count = len(headers)
    special = text.count("\n") != count or text.count(":") != count or "\\" in text or "\r" in text or "\0" in text
    if special and command not in UNESCAPED:
        escape = dialect.escape
        text = "".join([f"{_name(dialect, name)}:{_escaped(escape, value)}\n" for name, value in headers.items()])
    return text.encode("utf-8", "replace")


def _escaped(escape: Mapping[str, str], text: str) -> str:
    return SPECIAL.sub(lambda match: escape.get(match[0], match[0]), text)


def _name(dialect: Dialect, name: str) -> str:
    escaped = _escaped(dialect.escape, name)
    return escaped if ":" not in escaped else escaped.replace(":", "_")
