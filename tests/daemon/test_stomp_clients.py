"""Independent clients, in processes of their own. Those of Node are in tests/daemon/node (make test-node)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logger.posix_disk import PosixDisk
from qmgr.daemon.admission import Admission
from qmgr.locations import find
from tests.daemon.certificates import Authority
from tests.daemon.stomp_world import Server, eventually, queue_manager, serving

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "stomp.md"


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


def test_the_program_of_the_page_moves_orders_and_hears_over_tls_that_the_connection_has_ended(tmp_path: Path) -> None:
    """stomp.py takes an empty read of a TLS socket for a pause: it is by heart-beats alone that it hears of the end."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    with queue_manager(tmp_path / "data", "ORDERS", "INVOICES") as qm:
        admission = Admission(qm, PosixDisk(), find("QM1", tmp_path / "data"), lambda amq, **inserts: None)
        admission.users.set("mia", "password")
        qm.authorize("mia", add=["connect"])
        qm.authorize("mia", "ORDERS", add=["get"])
        qm.authorize("mia", "INVOICES", add=["put"])
        tls = {"tls_certificate": certificate, "tls_key": key, "authentication": ("PLAIN",)}
        with serving(qm, authority=admission, **tls) as server:
            program = PAGE.read_text().partition("```py\n")[2].partition("```")[0]
            program = program.replace("61613", str(server.port)).replace("/etc/qmgr/ca.pem", authority.path)
            qm.put("ORDERS", b"3 chairs")
            running = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
            try:
                eventually(lambda: server.bodies("INVOICES") == [b"invoice for 3 chairs"])
                server.listener.close()
                assert running.wait(timeout=60) == 0
            finally:
                running.kill()
                running.wait()
