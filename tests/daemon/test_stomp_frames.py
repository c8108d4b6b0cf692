"""STOMP frames: however the stream is cut, what is escaped how, and what is refused before anything is made of it."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmgr.daemon.stomp_frames import CLIENT_COMMANDS, V10, V11, V12, Dialect, Frame, FrameError, Limits, Parser, encode

LIMITS = Limits(head=4096, headers=50, body=10_000)


def parser_of(dialect: Dialect = V12, limits: Limits = LIMITS) -> Parser:
    parser = Parser(limits)
    parser.dialect = dialect
    return parser


def frames_of(*pieces: bytes, dialect: Dialect = V12, limits: Limits = LIMITS) -> list[Frame]:
    parser = parser_of(dialect, limits)
    frames = []
    for piece in pieces:
        parser.feed(piece)
        while (frame := parser.next()) is not None:
            frames.append(frame)
    return frames


# ---- what is understood


def test_a_frame_with_headers_and_a_body() -> None:
    assert frames_of(b"SEND\ndestination:/queue/Q\npriority:4\n\nhello\0") == [
        Frame("SEND", {"destination": "/queue/Q", "priority": "4"}, b"hello")
    ]


def test_lines_may_end_with_cr_lf_also_mixed() -> None:
    wanted = [Frame("SEND", {"a": "1", "b": "2"}, b"\n\nbody\r\n")]
    assert frames_of(b"SEND\r\na:1\r\nb:2\r\n\r\n\n\nbody\r\n\0\r\n") == wanted
    assert frames_of(b"SEND\na:1\r\nb:2\n\r\n\n\nbody\r\n\0") == wanted
    assert frames_of(b"SEND\r\na:1\nb:2\r\n\n\n\nbody\r\n\0") == wanted


def test_with_a_content_length_a_body_may_have_nuls() -> None:
    assert frames_of(b"SEND\ncontent-length:5\n\na\0b\0c\0BEGIN\n\n\0") == [
        Frame("SEND", {"content-length": "5"}, b"a\0b\0c"),
        Frame("BEGIN", {}),
    ]


def test_of_repeated_headers_the_first_counts() -> None:
    assert frames_of(b"SEND\na:1\na:2\n\n\0")[0].headers == {"a": "1"}
    assert frames_of(b"SEND\na\\c:1\na\\c:2\n\n\0")[0].headers == {"a:": "1"}
    assert frames_of(b"SEND\na :1\na:2\n\n\0", dialect=V10)[0].headers == {"a": "1"}


def test_what_each_version_unescapes() -> None:
    head = rb"SEND" + b"\n" + rb"a\cb:x\ny\\z" + b"\n\n\0"
    assert frames_of(head, dialect=V12)[0].headers == {"a:b": "x\ny\\z"}
    assert frames_of(head, dialect=V11)[0].headers == {"a:b": "x\ny\\z"}
    assert frames_of(head, dialect=V10)[0].headers == {r"a\cb": r"x\ny\\z"}
    assert frames_of(b"SEND\na:x\\ry\n\n\0")[0].headers == {"a": "x\ry"}
    assert frames_of(b"CONNECT\npasscode:a\\tb\\\\\n\n\0")[0].headers == {"passcode": "a\\tb\\\\"}


def test_spaces_belong_to_a_value_except_in_1_0() -> None:
    assert frames_of(b"SEND\na: b \n\n\0")[0].headers == {"a": " b "}
    assert frames_of(b"SEND\na: b \n\n\0", dialect=V10)[0].headers == {"a": "b"}


def test_a_head_that_repeats_is_not_read_again_and_means_the_same() -> None:
    head = b"SEND\ndestination:/queue/Q\na\\cb:c\n"
    stream = b"".join(
        [
            head + b"\none\0",
            head + b"\ntwo\0\n\r\n",
            head + b"\n\0",
            head + b"d:e\n\nthree\0",
            head + b"\nfour\0",
            b"BEGIN\ntransaction:t\n\n\0",
            head + b"\nfive\0",
        ]
    )
    headers = {"destination": "/queue/Q", "a:b": "c"}
    for step in (1, 7, len(stream)):
        frames = frames_of(*(stream[at : at + step] for at in range(0, len(stream), step)))
        assert [frame.body for frame in frames] == [b"one", b"two", b"", b"three", b"four", b"", b"five"]
        assert [frame.repeats for frame in frames] == [False, True, True, False, False, False, True]
        assert [frame.headers for frame in frames] == [
            *([headers] * 3),
            headers | {"d": "e"},
            headers,
            {"transaction": "t"},
            headers,
        ]
    counted = b"SEND\ncontent-length:%d\n\n%b\0"
    bodies = [frame.body for frame in frames_of(counted % (3, b"a\0b"), counted % (3, b"\0\0\0"), counted % (1, b"\0"))]
    assert bodies == [b"a\0b", b"\0\0\0", b"\0"]


def test_a_head_that_repeats_under_other_rules_is_read_again() -> None:
    stream = b"SEND\na: b\ncontent-length:5\n\nhello\0"
    parser = parser_of()
    parser.feed(stream * 3)
    first = parser.next()
    parser.dialect = V10
    second = parser.next()
    assert first is not None and second is not None
    assert (first.headers["a"], second.headers["a"]) == (" b", "b")
    parser.limits = Limits(head=4096, headers=50, body=4)
    with pytest.raises(FrameError, match="longer than the 4 bytes"):
        parser.next()


def test_an_empty_value_and_a_value_with_colons() -> None:
    assert frames_of(b"SEND\na:\nb:c:d\n\n\0")[0].headers == {"a": "", "b": "c:d"}


def test_eols_between_frames_are_heart_beats() -> None:
    parser = parser_of()
    for data in (b"\n", b"\r\n\n", b"\r", b"\n"):
        parser.feed(data)
        assert parser.next() is None
    assert not parser.begun
    parser.feed(b"BEGIN\n\n\0\n\nCOM")
    assert parser.next() == Frame("BEGIN", {})
    assert parser.next() is None
    assert parser.begun


def test_an_eol_in_the_place_of_a_body_is_overlooked() -> None:
    assert [frame.command for frame in frames_of(b"CONNECT\n\n\n\0", b"BEGIN\n\n\r\n\0")] == ["CONNECT", "BEGIN"]


# ---- what is refused

REFUSED = [
    (b"GET / HTTP/1.1\r\n", "is no command of a STOMP client; does the client speak STOMP?"),
    (b"\x16\x03\x01\x02\0\x01", "it begins with TLS, and this listener has none"),
    (b"SENDX", "is no command"),
    (b"send\n", "is no command"),
    (b"DISCONNECTED", "is no command"),
    (b"MESSAGE\n\n\0", "is no command"),
    (b"\rBEGIN\n\n\0", "is no command"),
    (b"BEGIN\n\0", "NUL before"),
    (b"SEND\na:\0\n\n\0", "NUL before"),
    (b"SEND\nnocolon\n\n\0", "name:value"),
    (b"SEND\n:novalue\n\n\0", "name:value"),
    (b"SEND\na:\xff\n\n\0", "no UTF-8"),
    (b"SEND\na:b\rc\n\n\0", "CR within a header"),
    (b"SEND\na:\\t\n\n\0", "no escape"),
    (b"SEND\na:b\\\n\n\0", "no escape"),
    (b"SEND\ncontent-length:-1\n\n\0", "content-length is"),
    (b"SEND\ncontent-length:1e3\n\n\0", "content-length is"),
    (b"SEND\ncontent-length:\xd9\xa3\n\n\0", "content-length is"),  # a digit, of another script
    (b"SEND\ncontent-length:99999999999999999999\n\n", "content-length is"),
    (b"SEND\ncontent-length:10001\n\n", "longer than the 10000 bytes"),
    (b"SEND\ncontent-length:3\n\nabcd", "no NUL"),
    (b"SEND\n\n" + b"x" * 10_001, "longer than the 10000 bytes"),
    (b"SEND\n\n" + b"x" * 10_001 + b"\0", "longer than the 10000 bytes"),
    (b"SEND\na:" + b"x" * 5000, "longer than the 4096 bytes"),
    (b"SEND\n" + b"a:b\n" * 51 + b"\n", "51 headers"),
    (b"BEGIN\n\nbody\0", "has no body"),
    (b"BEGIN\ncontent-length:17\n\n", "has no body"),
    (b"BEGIN\n\n" + b"\n" * 17, "has no body"),
]


@pytest.mark.parametrize(("data", "why"), REFUSED, ids=[repr(data[:30]) for data, _ in REFUSED])
def test_what_is_no_frame_is_refused_as_soon_as_that_is_seen(data: bytes, why: str) -> None:
    """Row 73."""
    with pytest.raises(FrameError, match=why):
        frames_of(data)
    with pytest.raises(FrameError, match=why):
        frames_of(*[data[at : at + 1] for at in range(len(data))])


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_passcode_of_two_lines_is_not_shown(command: str) -> None:
    """What is refused is told in the error log."""
    for head in ("login:mia\npasscode:sec\nret", "login:mia\npasscode secret", "login:mia\nret\nret"):
        with pytest.raises(FrameError, match=f"a header is name:value, not header [23] of {command} ") as caught:
            frames_of(f"{command}\n{head}\n\n\0".encode())
        assert "ret" not in str(caught.value)


def test_what_is_just_within_the_limits_is_taken() -> None:
    body = b"x" * 10_000
    assert frames_of(b"SEND\n\n", body, b"\0")[0].body == body
    assert frames_of(b"SEND\ncontent-length:10000\n\n", body, b"\0")[0].body == body
    assert len(frames_of(b"SEND\n" + b"".join(b"a%d:b\n" % n for n in range(50)) + b"\n\0")[0].headers) == 50


def test_1_1_has_no_escape_for_cr() -> None:
    with pytest.raises(FrameError, match=r"STOMP 1.1 has no escape '\\\\r'"):
        frames_of(b"SEND\na:\\r\n\n\0", dialect=V11)


# ---- frames that are sent


@pytest.mark.parametrize("dialect", [V10, V11, V12])
def test_no_header_has_the_nul_that_ends_a_frame_for_some_clients(dialect: Dialect) -> None:
    assert encode(dialect, "MESSAGE", {"a\0b": "c\0d"}) == b"MESSAGE\na b:c d\n\n\0\n"


def test_what_each_version_escapes() -> None:
    headers = {"a:b": "x\ny\\z\r:"}
    assert encode(V12, "MESSAGE", headers, b"m") == b"MESSAGE\na\\cb:x\\ny\\\\z\\r\\c\n\nm\0\n"
    assert encode(V10, "MESSAGE", headers) == b"MESSAGE\na_b:x y\\z :\n\n\0\n"
    assert encode(V12, "CONNECTED", {"server": "a/1:2"}) == b"CONNECTED\nserver:a/1:2\n\n\0\n"
    assert encode(V12, "RECEIPT", {"receipt-id": "1"}) == b"RECEIPT\nreceipt-id:1\n\n\0\n"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
HEADERS = st.dictionaries(TEXT.filter(bool), TEXT, max_size=6)


@given(
    st.lists(st.tuples(HEADERS, st.binary(max_size=50)), max_size=4),
    st.lists(st.integers(0, 400), max_size=20),
    st.sampled_from(["\n", "\n\n\r\n", ""]),
)
def test_what_is_encoded_is_parsed_back_however_it_is_cut(
    sent: list[tuple[dict[str, str], bytes]], cuts: list[int], between: str
) -> None:
    stream = b""
    for headers, body in sent:
        headers.pop("content-length", None)
        headers["content-length"] = str(len(body))
        stream += encode(V12, "SEND", headers, body) + between.encode()
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[low:high] for low, high in itertools.pairwise(places)]
    assert [(frame.headers, frame.body) for frame in frames_of(*pieces)] == sent


PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([command.encode() for command in sorted(CLIENT_COMMANDS)]),
    st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\0", b":", b"\\c", b"\\", b"content-length:3\n", b"destination:Q\n"]),
)


@given(st.lists(PIECES, max_size=30), st.sampled_from([V10, V11, V12]), st.booleans())
def test_garbage_gives_frames_or_a_frame_error_the_same_however_it_is_cut(
    pieces: list[bytes], dialect: Dialect, bytewise: bool
) -> None:
    """Row 72."""
    stream = b"".join(pieces)
    if bytewise:
        pieces = [stream[at : at + 1] for at in range(len(stream))]
    results = []
    for cut in ([stream], pieces):
        parser = parser_of(dialect, Limits(head=200, headers=5, body=100))
        frames, failed = [], False
        with contextlib.suppress(FrameError):
            failed = True
            for piece in cut:
                parser.feed(piece)
                while (frame := parser.next()) is not None:
                    frames.append(frame)
            failed = False
        results.append((frames, failed))
    assert results[0] == results[1]
