"""@stomp/stompjs on Node, in a process of its own; needs Node and, once, the npm registry: `make test-node`."""

import shutil
from pathlib import Path

import pytest

from tests.daemon.stomp_world import Server
from tests.daemon.test_stomp_clients import run

HERE = Path(__file__).parent


def test_stompjs_is_installed() -> None:
    assert shutil.which("node"), "there is no node on this machine; install Node 18 or newer"
    installed = HERE / "node_modules" / "@stomp" / "stompjs"
    assert installed.is_dir(), "stompjs is not installed; run `make test-node`, which needs the npm registry once"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stompjs_moves_messages_in_transactions(server: Server, version: str) -> None:
    said = run("node", str(HERE / "stompjs_client.mjs"), str(server.port), version)
    assert said["version"] == version
    assert said["receipts"] == ["r0", "r1", "r2", "r3"]
    orders = [f"order {number} of a:b\\c é" for number in range(4)]
    assert sorted(said["bodies"]) == sorted([*orders, orders[1]])
    assert sorted(said["again"]) == ["false"] * 4 + ["true"]
    assert said["colour"] == ("a\\cb" if version == "1.1" else "a:b")  # stompjs knows escapes in 1.2 only
    assert "there is no queue 'NONE'" in said["refused"][0]
    assert said["refused"][1] == "2085"
    invoices = sorted(f"invoice for {order}".encode() for order in orders)
    assert sorted(server.bodies("B")) == [b"\0\1\2\0\xff", *invoices]
    server.all_gone()
    assert server.bodies("A") == []
    assert server.qm.transactions() == []
