"""Frames of the client protocol: pure encode and decode with bounds. No sockets, no threads.

Every frame begins with its length. One request at a time goes over a socket, and is answered by one frame, or by
several of which all but the last say MORE or are PROGRESS or ALIVE. Little-endian; docs/protocol.md tells the rest.

    request  length u32 (of all that follows), op u8, flags u8, length of the name u16, unit u64; then the name and what
             the op has
    reply    length u32, op u8, flags u8, length of the name u16; with BEGAN the number of the unit of work u64 and an
             LSN u64; with EXPIRY seconds f64; then the name and what the request asked for

A name is that of a queue, or of the method that is called. `unit` is a number that the client has chosen for a unit of
work, never twice in a session; 0 stands for none. The unit begins with the first request that has it, and BEGIN.
"""

import math
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, cast

import attrs

from qmgr import values
from qmgr.errors import MessageTooBig, Reason
from qmgr.message import Message
from qmgr.objects import check_name
from qmgr.verbs import GetOptions, Wanted, wanted
from qmgr.wireoptions import CORRELATION_ID as CORRELATION_ID
from qmgr.wireoptions import MESSAGE_ID as MESSAGE_ID
from qmgr.wireoptions import OPTIONS as OPTIONS
from qmgr.wireoptions import SECONDS as SECONDS
from qmgr.wireoptions import TABLE as TABLE
from qmgr.wireoptions import ProtocolError as ProtocolError
from qmgr.wireoptions import encode_options, encode_wanted

VERSION = 2
MAGIC = b"QMGR"

LENGTH = struct.Struct("<I")
REQUEST = struct.Struct("<IBBHQ")
REPLY = struct.Struct("<IBBH")
HELLO_HEAD = struct.Struct("<IBBH4s")
BEGUN = struct.Struct("<QQ")  # `Begun`
GOT = struct.Struct("<II")  # backout count, length of the head
ITEM = struct.Struct("<IIId")  # lengths of head and body, backout count, expiry in seconds or NO_EXPIRY
REPLAYED_ITEM = struct.Struct("<QIQ")  # LSN, place, microseconds since 1970-01-01 UTC
PAGE = struct.Struct("<II")  # number of messages, cursor
STEP = struct.Struct("<QQ")  # of PROGRESS: done, total
MANY = struct.Struct("<dI")  # seconds to wait, limit

MAX_FIRST_FRAME_BYTES = 4096  # before the client is known
TOKEN_BYTES = 16  # a token names a session to its own client only
MIN_FRAME_BYTES = 8
RUN_BYTES = 32 << 10  # of requests that become one call
PAGE_BYTES = 1 << 20  # beyond this a reply is continued in another frame
FOR_EVER = -1.0
NO_EXPIRY = math.nan

# requests
HELLO, JOIN, ANSWER = 1, 2, 3
PUT, PUT_MANY, GET, GET_MANY, COMMIT, BACKOUT, PREPARE, BEGIN_UNIT, STATE, SENDS = range(16, 26)
BROWSE, REPLAY, NEXT, CLOSE, CALL = range(32, 37)

# replies
OK, ERROR, PROGRESS, WELCOME, CHALLENGE, ALIVE = range(128, 134)

# flags of requests
BEGIN = 1  # and those of wireoptions.py
# flags of replies
BEGAN, EXPIRY, MORE = 1, 2, 4


OK_ALONE = REPLY.pack(0, OK, 0, 0)[4:]  # op, flags, name length of a reply that has no flags and no name


# ---- requests


def request(op: int, flags: int, unit: int, name: object = "", rest: bytes = b"") -> bytes:
    """A request of any kind. Raises NameError_ for a name that can't be one."""
    told = name_bytes(name) if name != "" else b""
    return REQUEST.pack(12 + len(told) + len(rest), op, flags, len(told), unit) + told + rest


def name_bytes(name: object) -> bytes:
    """The name of a queue; whether there is one is for the queue manager to say."""
    try:
        told = cast(str, name).encode()
    except (AttributeError, UnicodeEncodeError):
        told = b""
    if not 0 < len(told) <= 255:
        check_name(name, "queue")
    return told


def put(flags: int, unit: int, queue: str, body: bytes, options: Mapping[str, Any]) -> bytes:
    """A request to put. Raises what the put would raise for its options."""
    name = name_bytes(queue)
    if not options:
        return REQUEST.pack(12 + len(name) + len(body), PUT, flags, len(name), unit) + name + body
    told = encode_options(options)
    size = 12 + len(name) + len(told) + len(body)
    return REQUEST.pack(size, PUT, flags | OPTIONS, len(name), unit) + name + told + body


def put_many(flags: int, unit: int, queue: str, bodies: Sequence[bytes], options: Mapping[str, Any]) -> bytes:
    told = encode_options(options) if options else b""
    flags |= OPTIONS if options else 0
    lengths = struct.pack(f"<I{len(bodies)}I", len(bodies), *map(len, bodies))
    return request(PUT_MANY, flags, unit, queue, b"".join((told, lengths, *bodies)))


def sends(flags: int, unit: int, puts: Sequence[bytes]) -> bytes:
    """Requests to put to one unit of work, which have one answer."""
    return request(SENDS, flags, unit, "", b"".join(puts))


def get(flags: int, unit: int, queue: str, wait: float, options: GetOptions) -> bytes:
    """`wait` in seconds, FOR_EVER for no bound. Raises what the get would raise."""
    name = name_bytes(queue)
    told = b""
    if options:
        more, told = encode_wanted(wanted(options))
        flags |= more
    size = 12 + len(name) + SECONDS.size + len(told)
    return REQUEST.pack(size, GET, flags, len(name), unit) + name + SECONDS.pack(wait) + told


def get_many(flags: int, unit: int, queue: str, limit: int, wait: float, options: GetOptions) -> bytes:
    more, told = encode_wanted(wanted(options))
    return request(GET_MANY, flags | more, unit, queue, MANY.pack(wait, min(limit, 0xFFFFFFFF)) + told)


def browse(queue: str, most: int, selectors: Wanted) -> bytes:
    flags, told = encode_wanted(selectors)
    return request(BROWSE, flags, 0, queue, TABLE.pack(most) + told)


def next_page(cursor: int, most: int) -> bytes:
    """Ask for the next page of a browse or a replay, of up to `most` messages."""
    return request(NEXT, 0, cursor, "", TABLE.pack(most))


def call(
    method: str,
    args: Sequence[Any],
    options: Mapping[str, Any],
    *,
    progress: bool = False,
    flags: int = 0,
    unit: int = 0,
) -> bytes:
    told = {"args": list(args), "options": dict(options), "progress": progress}
    return request(CALL, flags, unit, method, values.dumps(told))


def hello(op: int, rest: bytes, version: int = VERSION) -> bytes:
    """HELLO with JSON, or JOIN with the token of a session."""
    return HELLO_HEAD.pack(HELLO_HEAD.size - 4 + len(rest), op, 0, version, MAGIC) + rest


class Request(NamedTuple):
    """The head of a request."""

    op: int
    flags: int
    unit: int
    name: str
    at: int  # where in the frame the rest begins


def decode_request(frame: bytes) -> Request:
    """The head of a request. Raises ProtocolError."""
    if len(frame) < REQUEST.size:
        raise ProtocolError(f"a request has at least {REQUEST.size} bytes, not {len(frame)}")
    _, op, flags, size, unit = REQUEST.unpack_from(frame)
    at = REQUEST.size + size
    if at > len(frame):
        raise ProtocolError(f"a request of {len(frame)} bytes can't have a name of {size}")
    try:
        return Request(op, flags, unit, frame[REQUEST.size : at].decode(), at)
    except UnicodeDecodeError:
        raise ProtocolError("the name in a request is UTF-8") from None


def decode_hello(frame: bytes) -> tuple[int, int, bytes]:
    """(op, version, the rest) of the first frame of a socket."""
    if len(frame) < HELLO_HEAD.size:
        raise ProtocolError("this is no client of a queue manager")
    _, op, _, version, magic = HELLO_HEAD.unpack_from(frame)
    if magic != MAGIC or op not in (HELLO, JOIN):
        raise ProtocolError("this is no client of a queue manager")
    return op, version, frame[HELLO_HEAD.size :]


def decode_bodies(frame: bytes, at: int) -> list[bytes]:
    """The bodies of PUT_MANY."""
    count = unpack(TABLE, frame, at)[0]
    first = at + TABLE.size
    at = first + 4 * count
    if at > len(frame):
        raise ProtocolError(f"{count} lengths of messages do not fit into the request")
    places = list(accumulate(struct.unpack_from(f"<{count}I", frame, first), initial=at))
    if places[-1] != len(frame):
        raise ProtocolError("the lengths of the messages do not come to that of the request")
    return [frame[begin:end] for begin, end in pairwise(places)]


def decode_sends(frame: bytes, at: int, unit: int) -> list[bytes]:
    """The requests to put of SENDS, all to this unit of work."""
    puts = []
    while at < len(frame):
        _, op, flags, _, number = unpack(REQUEST, frame, at)
        end = at + LENGTH.size + unpack(LENGTH, frame, at)[0]
        if op != PUT or flags & BEGIN or number != unit or not at + REQUEST.size <= end <= len(frame):
            raise ProtocolError("what is sent together are whole puts to one unit of work")
        puts.append(frame[at:end])
        at = end
    return puts


def run_of(puts: Sequence[bytes], first: int) -> tuple[bytes, list[bytes]]:
    """The queue of one of these requests, and the bodies of those from there on that are like it but for the body.

    One that has options stands for itself, and so does what is large.
    """
    _, _, flags, size, _ = REQUEST.unpack_from(puts[first])
    end = REQUEST.size + size
    head, bodies, left = puts[first][LENGTH.size : end], [puts[first][end:]], RUN_BYTES - len(puts[first])
    for at in range(first + 1, 0 if flags else len(puts)):
        left -= len(puts[at])
        if left < 0 or puts[at][LENGTH.size : end] != head:
            break
        bodies.append(puts[at][end:])
    return head[len(head) - size :], bodies


def unpack(form: struct.Struct, frame: bytes, at: int) -> tuple[Any, ...]:
    """The fields at a place of a frame. Raises ProtocolError where it ends before."""
    try:
        return form.unpack_from(frame, at)
    except struct.error:
        raise ProtocolError("a request ends too early") from None


# ---- replies


Begun = tuple[int, int]  # number of the unit of work, an LSN before which it has logged nothing


def reply(op: int, rest: bytes, *, flags: int = 0, begun: Begun | None = None, name: bytes = b"") -> bytes:
    if begun is not None:
        flags |= BEGAN
        name = BEGUN.pack(*begun) + name
    size = len(name) - (BEGUN.size if begun is not None else 0)
    return REPLY.pack(4 + len(name) + len(rest), op, flags, size) + name + rest


HEARTBEAT = reply(ALIVE, b"")


def put_reply(message: Message, begun: Begun | None, asked: str) -> bytes:
    """All but the body, which the client has."""
    if message.expiry is None and message.queue == asked:
        head = message.head
        if begun is None:
            return REPLY.pack(4 + len(head), OK, 0, 0) + head
        return REPLY.pack(20 + len(head), OK, BEGAN, 0) + BEGUN.pack(*begun) + head
    flags, front, size = _front(message, begun, asked)
    return REPLY.pack(4 + len(front) + len(message.head), OK, flags, size) + front + message.head


def got_reply(message: Message, begun: Begun | None, asked: str) -> bytes:
    flags, front, size = _front(message, begun, asked)
    head, body = message.head, message.body
    length = 4 + len(front) + GOT.size + len(head) + len(body)
    counts = GOT.pack(message.backout_count, len(head))
    return b"".join((REPLY.pack(length, OK, flags, size), front, counts, head, body))


def _front(message: Message, begun: Begun | None, asked: str) -> tuple[int, bytes, int]:
    """(flags, what stands before the message, the length of the name in it)."""
    flags, front, size = 0, b"", 0
    if begun is not None:
        flags, front = BEGAN, BEGUN.pack(*begun)
    if message.expiry is not None:
        flags, front = flags | EXPIRY, front + SECONDS.pack(message.expiry)
    if message.queue != asked:
        name = message.queue.encode()
        front, size = front + name, len(name)
    return flags, front, size


class Reply(NamedTuple):
    """The head of a reply."""

    op: int
    flags: int
    begun: Begun | None
    expiry: float | None
    name: str
    at: int  # where in the frame the rest begins


def decode_reply(frame: bytes) -> Reply:
    """The head of a reply, which may tell an error: see `decode_or_raise`. Raises ProtocolError."""
    _, op, flags, size = unpack(REPLY, frame, 0)
    at = REPLY.size
    begun = expiry = None
    if flags & BEGAN:
        begun = cast(Begun, unpack(BEGUN, frame, at))
        at += BEGUN.size
    if flags & EXPIRY:
        (expiry,) = unpack(SECONDS, frame, at)
        at += SECONDS.size
    return Reply(op, flags, begun, expiry, frame[at : at + size].decode(), at + size)


def decode_or_raise(frame: bytes) -> Reply:
    """The head of a reply. Raises the error that it tells."""
    head = decode_reply(frame)
    if head.op == ERROR:
        raise error(frame, head)
    return head


def is_continued(frame: bytes) -> bool:
    """Does another frame of the same answer follow?"""
    return frame[4] == PROGRESS or frame[4] == ALIVE or frame[5] & MORE != 0


def put_message(frame: bytes, told: Reply, queue: str, body: bytes) -> Message:
    """The message of a put, whose body the client has."""
    return Message(body, frame[told.at :], told.name or queue, 0, told.expiry)


def put_messages(answers: list[tuple[bytes, Reply]], queue: str, bodies: list[bytes]) -> list[Message]:
    """Those of PUT_MANY, whose bodies the client has."""
    heads: list[bytes] = []
    name, left = queue, None
    for answer, told in answers:
        count, _ = unpack(PAGE, answer, told.at)
        if not count:
            continue
        first = told.at + PAGE.size
        size, _, _, expiry = unpack(ITEM, answer, first)  # all are alike
        at = first + ITEM.size * count
        if not size or len(answer) != at + size * count:
            raise ProtocolError("an answer ends too early")
        heads += [answer[begin : begin + size] for begin in range(at, len(answer), size)]
        name, left = told.name or queue, None if expiry != expiry else expiry
    return [Message(body, head, name, 0, left) for body, head in zip(bodies, heads, strict=True)]


def got_messages(answers: list[tuple[bytes, Reply]], queue: str) -> list[Message]:
    return [one for answer, told in answers for one in page_messages(answer, told, queue)[0]]


def got_message(frame: bytes, told: Reply, queue: str) -> Message:
    backouts, size = unpack(GOT, frame, told.at)
    at = told.at + GOT.size
    return Message(frame[at + size :], frame[at : at + size], told.name or queue, backouts, told.expiry)


# ---- pages: several messages of one queue


def put_pages(messages: Sequence[Message], begun: Begun | None) -> Iterator[bytes]:
    """Frames with all that one call has put, without bodies: the heads differ in the message id alone."""
    return _pages(messages, begun, 0, [len(one.head) for one in messages], _heads)


def pages(messages: Sequence[Message], begun: Begun | None, *, cursor: int = 0) -> Iterator[bytes]:
    """Frames with all of them; `cursor`: by which more can be asked for."""
    return _pages(messages, begun, cursor, [len(one.body) + len(one.head) for one in messages], _page)


def _pages(
    messages: Sequence[Message],
    begun: Begun | None,
    cursor: int,
    sizes: list[int],
    made: Callable[[Sequence[Message], int], bytes],
) -> Iterator[bytes]:
    start, ends = 0, list(accumulate(sizes))
    while True:
        before = ends[start - 1] if start else 0
        end = min(bisect_left(ends, before + PAGE_BYTES) + 1, len(messages))
        more = end < len(messages)
        page = made(messages[start:end], cursor)
        name = messages[start].queue.encode() if messages else b""
        yield reply(OK, page, flags=MORE if more else 0, begun=begun, name=name)
        if not more:
            return
        begun, start = None, end


def _page(messages: Sequence[Message], cursor: int) -> bytes:
    table = [
        ITEM.pack(len(one.head), len(one.body), one.backout_count, NO_EXPIRY if one.expiry is None else one.expiry)
        for one in messages
    ]
    data = [part for one in messages for part in (one.head, one.body)]
    return b"".join((PAGE.pack(len(messages), cursor), *table, *data))


def _heads(messages: Sequence[Message], cursor: int) -> bytes:
    heads = [one.head for one in messages]
    expiry = messages[0].expiry if messages else None
    item = ITEM.pack(len(heads[0]) if heads else 0, 0, 0, NO_EXPIRY if expiry is None else expiry)
    return b"".join((PAGE.pack(len(heads), cursor), item * len(heads), *heads))


def page_messages(frame: bytes, told: Reply, queue: str = "") -> tuple[list[Message], int, int]:
    """(the messages of a page, its cursor, where in the frame they end)."""
    count, cursor = unpack(PAGE, frame, told.at)
    first = told.at + PAGE.size
    at = first + ITEM.size * count
    if at > len(frame):
        raise ProtocolError("an answer ends too early")
    found, name = [], told.name or queue
    for head, body, backouts, expiry in ITEM.iter_unpack(frame[first:at]):
        middle = at + head
        end = middle + body
        left = None if expiry != expiry else expiry  # a number that is none differs from itself
        found.append(Message(frame[middle:end], frame[at:middle], name, backouts, left))
        at = end
    return found, cursor, at


@attrs.frozen
class ReplayPage:
    """Messages of a replay, each with where and when it became visible, and how far the replay has come."""

    messages: list[tuple[Message, int, int, int]]  # with LSN, place, microseconds
    cursor: int  # 0: the replay is over
    first: str  # the bookmark before these
    bookmark: str  # and how far the replay has read
    left_out: int


def replay_page(page: ReplayPage) -> bytes:
    messages = [found[0] for found in page.messages]
    name = messages[0].queue.encode() if messages else b""
    places = b"".join([REPLAYED_ITEM.pack(*found[1:]) for found in page.messages])
    rest = values.dumps({"first": page.first, "bookmark": page.bookmark, "left_out": page.left_out})
    return reply(OK, _page(messages, page.cursor) + places + rest, name=name)


def decode_replay_page(frame: bytes, told: Reply) -> ReplayPage:
    messages, cursor, at = page_messages(frame, told)
    found = []
    for message in messages:
        found.append((message, *unpack(REPLAYED_ITEM, frame, at)))
        at += REPLAYED_ITEM.size
    facts = values.loads(frame[at:])
    return ReplayPage(cast(Any, found), cursor, facts["first"], facts["bookmark"], facts["left_out"])


# ---- errors


def error_reply(exc: Exception, begun: Begun | None = None) -> bytes:
    """An error with its class, reason, name and text."""
    return reply(ERROR, values.dump_error(exc), begun=begun)


def error(frame: bytes, told: Reply) -> Exception:
    """The error that a reply tells."""
    return values.load_error(frame[told.at :])


def too_long(size: int, most: int) -> MessageTooBig:
    """What the client says of a request that the queue manager would not take."""
    return MessageTooBig(
        f"a call of {size} bytes is longer than the {most} that the queue manager takes at once (MaxFrameLength)",
        reason=Reason.MSG_TOO_BIG_FOR_Q_MGR,
    )
