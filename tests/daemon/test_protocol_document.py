"""The example in docs/protocol.md, sent byte by byte as it stands there."""

import json
import re
from pathlib import Path

from qmgr.configuration import Tuning
from qmgr.objects import QmgrDefinition
from tests.daemon.raw import RawSocket
from tests.daemon.serving import Served
from tests.qmgr.world import bodies

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"
LINE = re.compile(r"^([→←]) ((?:[0-9a-f]{2,} ?)+)(.*)$", re.MULTILINE)


def test_the_example_of_the_document_does_what_it_says(served: Served, tmp_path: Path) -> None:
    assert served.manager.queue("A").depth == 0
    example = DOCUMENT.read_text(encoding="utf-8").partition("### An example")[2].partition("## When")[0]
    lines = LINE.findall(example)
    assert [way for way, *_ in lines] == ["→", "←"] * 5
    anchor, calls = RawSocket(tmp_path), RawSocket(tmp_path)
    token, got = b"", b""
    for number, (way, digits, text) in enumerate(lines):
        said = bytes.fromhex(digits)
        sock = anchor if number < 2 else calls
        if way == "→":
            frame = said + (token if text == "TOKEN" else text.encode())
            sock.send(len(frame).to_bytes(4, "little") + frame)
            continue
        frame = sock.receive()[0][4:]
        assert frame[: len(said)] == said, (frame, digits)
        if text.startswith("WELCOME"):
            token = bytes.fromhex(json.loads(frame[4:])["map"]["session"])
        if frame[1]:
            got = frame
    assert int.from_bytes(got[24:28], "little") == 80 and got[28 + 80 :] == b"hello"
    assert bodies(served.manager, "A") == []
    assert served.manager.transactions() == []
    calls.close()
    anchor.close()


def test_a_plain_object_is_told_what_a_value_looks_like(served: Served, tmp_path: Path) -> None:
    frame = b"\x01\0\x02\0QMGR" + json.dumps({"manager": served.manager.name, "process": 1}).encode()
    sock = RawSocket(tmp_path)
    refused = sock.refused(len(frame).to_bytes(4, "little") + frame)
    assert "an object has one key, such as map, and not 2" in str(refused)
    sock.close()


def test_the_limits_of_units_of_work_are_those_that_a_client_meets() -> None:
    limits = DOCUMENT.read_text(encoding="utf-8").partition("## Limits")[2]
    assert f"MAXHANDS of the queue manager, {QmgrDefinition().max_handles} unless altered: 2017" in limits
    most = f"{Tuning().max_uncommitted_messages:,}".replace(",", " ")
    assert f"MAXUMSGS, {most} unless altered: 2024" in limits
