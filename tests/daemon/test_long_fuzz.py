"""Row 72: very many frames, right ones and spoilt ones, for the parsers of all listeners; each is read or refused.

A million of each in the long run, 20,000 in the short one; the same ones for the same seed. Memory stays flat.
"""

import gc
import random
import sys
from collections.abc import Callable

import pytest

from qmgr import values, wire, wireoptions
from qmgr.daemon.http_frames import BadRequest, parse
from qmgr.daemon.http_messaging import properties
from qmgr.daemon.stomp_frames import V10, V12, FrameError, Limits, Parser
from qmgr.daemon.stomp_messages import put_options
from qmgr.errors import MQError
from qmgr.wire import ProtocolError
from recovery.records import Xid
from tests.conftest import SOAK

COUNT = 1_000_000 if SOAK else 20_000
LIMITS = Limits(head=2000, headers=20, body=2000)
MOST = 20_000  # blocks of memory in use in the end, over those in the beginning

STOMP = [
    b"CONNECT\naccept-version:1.0,1.2\nhost:x\nheart-beat:1000,0\n\n\0",
    b"SEND\ndestination:/queue/A\npriority:9\nexpires:0\npersistent:true\ncorrelation-id:x\nreply-to:B\n\nbody\0",
    b"SEND\ndestination:A\nJMSXGroupID:g\nJMSXGroupSeq:2\nJMS_IBM_Last_Msg_In_Group:true\ncontent-length:3\n\na\0b\0",
    b"SUBSCRIBE\nid:1\ndestination:/queue/A\nack:client\\c\n\n\0\n\n",
    b"ACK\nid:1\ntransaction:t\n\n\0",
]
HTTP = [
    b"GET /ibmmq/rest/v3/messaging/qmgr/QM1/queue/A/message?messageId=00&wait=10 HTTP/1.1\r\nHost: x",
    b"POST /a%2Fb HTTP/1.1\r\nHost: x\r\nContent-Length: 5"
    b'\r\nibm-mq-usr: a;1;integer, b;"x";string\r\nExpect: 100-continue',
    b"DELETE / HTTP/1.0\r\nConnection: close, keep-alive\r\nAuthorization: Basic YTpi",
]
OURS = [
    wire.hello(wire.HELLO, values.dumps({"manager": "QM1", "patience": 1.0, "first": b"x"})),
    wire.hello(wire.JOIN, bytes(16)),
    wire.put(wire.BEGIN, 7, "A", b"body", {"priority": 3, "properties": {"a": 1}, "group_id": b"g", "expiry": 1.0}),
    wire.put_many(0, 0, "A", [b"one", b"two"], {"message_id": b"m"}),
    wire.sends(wire.BEGIN, 7, [wire.put(0, 7, "A", b"one", {"priority": 3}), wire.put(0, 7, "B", b"two", {})]),
    wire.get(0, 0, "A", 5.0, {"correlation_id": b"c", "group_id": b"g"}),
    wire.request(wire.BEGIN_UNIT, wire.BEGIN, 1, "", values.dumps(Xid(1, b"g", b"b"))),
    wire.call("define_queue", ["A"], {"max_depth": 5}),
]


def spoilt(rng: random.Random, data: bytes) -> bytes:
    """Some bytes are others, are gone, or are there twice."""
    made = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 5, 20))):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(4):
            case 0:
                made[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 1:
                del made[at : at + rng.randrange(1, 9)]
            case 2:
                made[at : at + 1] = bytes([rng.randrange(256)])
            case _:
                made[at:at] = made[rng.randrange(len(made) + 1) :][: rng.randrange(60)]
    return bytes(made)


def stomp(rng: random.Random) -> bool:
    data = b"".join(spoilt(rng, rng.choice(STOMP)) for _ in range(rng.choice((1, 1, 3))))
    parser = Parser(LIMITS)
    parser.dialect = rng.choice((V10, V12))
    cut = rng.randrange(len(data) + 1)
    try:
        for piece in (data[:cut], data[cut:]):
            parser.feed(piece)
            while (frame := parser.next()) is not None:
                assert len(frame.body) <= LIMITS.body and len(frame.headers) <= LIMITS.headers
                put_options(frame.headers, lambda: 0)
    except FrameError:
        return False
    except MQError:  # of what a header says
        return True
    return True


def web(rng: random.Random) -> bool:
    data = spoilt(rng, rng.choice(HTTP))
    try:
        head = parse(data, 1000)
        assert 0 <= head.length <= 1000
        properties(head.headers.get("ibm-mq-usr", ""))
    except (BadRequest, MQError):
        return False
    return True


def ours(rng: random.Random) -> bool:
    frame = spoilt(rng, rng.choice(OURS))
    try:
        if len(frame) < wire.MIN_FRAME_BYTES:
            return False
        if frame[4] in (wire.HELLO, wire.JOIN):
            _, _, rest = wire.decode_hello(frame)
            values.loads(rest)
            return True
        request = wire.decode_request(frame)
        at = request.at
        match request.op:
            case wire.PUT | wire.PUT_MANY:
                if request.flags & wire.OPTIONS:
                    _, at = wireoptions.decode_options(frame, at)
                if request.op == wire.PUT_MANY:
                    wire.decode_bodies(frame, at)
            case wire.SENDS:
                wire.decode_sends(frame, at, request.unit)
            case wire.GET:
                wire.unpack(wire.SECONDS, frame, at)
                wireoptions.decode_wanted(request.flags, frame, at + wire.SECONDS.size)
            case _:
                values.loads(frame[at:])
    except (ProtocolError, ValueError, TypeError, MQError):  # what a listener answers or ends a connection for
        return False
    return True


@pytest.mark.parametrize("read", [stomp, web, ours])
def test_row_72_any_frame_is_read_or_refused(read: Callable[[random.Random], bool]) -> None:
    rng = random.Random(72)
    for _ in range(1000):  # what is made once is there then
        read(rng)
    before = sys.getallocatedblocks()
    fine = sum(read(rng) for _ in range(COUNT))
    gc.collect()
    assert COUNT // 20 < fine < COUNT, "both happen"
    assert sys.getallocatedblocks() - before < MOST
