"""Independent clients, in processes of their own. Those of Node are in tests/daemon/node (make test-node)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.stomp_world import Server

HERE = Path(__file__).parent


def run(*command: str) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp_py_moves_messages_in_transactions(server: Server, version: str) -> None:
    said = run(sys.executable, str(HERE / "stomp_py_client.py"), str(server.port), version)
    assert said["receipts"] == ["r0", "r1", "r2", "r3", "bye"]
    orders = [f"order {number} of a:b\\c é" for number in range(4)]
    assert sorted(said["bodies"]) == sorted([*orders, orders[1]])
    assert sorted(said["again"]) == ["false"] * 4 + ["true"]
    assert said["colour"] == "a:b"
    assert "there is no queue 'NONE'" in said["refused"][0]
    assert server.bodies("A") == []
    assert sorted(server.bodies("B")) == sorted(f"invoice for {order}".encode() for order in orders)
    assert server.qm.transactions() == []
