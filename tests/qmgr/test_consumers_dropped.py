"""A consumer that nobody reads any more, with a unit of work that is open: wherever that strikes, it stops nothing."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmgr
from qmgr.consume import Consumer
from tests.conformance.calls import until
from tests.conftest import SOAK
from tests.qmgr.world import NAME, soon

PROGRAM = """
import sys, threading
import qmgr

qm = qmgr.start("{name}", data_path=sys.argv[1])

def work() -> None:
    while True:
        qm.put("Q", b"more")

def main() -> None:
    consumer = qm.consume("Q")
    next(consumer)
    threading.Thread(target=work, daemon=True).start()
    raise ZeroDivisionError("a bug of the application")

main()
"""


def test_a_program_that_fails_as_it_consumes_ends(tmp_path: Path) -> None:
    """Its other threads stand still by then, and what one of them was writing to the log is never done."""
    qmgr.create(NAME, data_path=tmp_path)
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        qm.define_queue("Q")
        qm.put("Q", b"first")
    for _ in range(20 if SOAK else 3):  # nearly always it has to wait
        program = [sys.executable, "-c", PROGRAM.format(name=NAME), str(tmp_path)]
        ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, "a bug of the application" in ended.stderr) == (1, True), ended.stderr
    with qmgr.start(NAME, data_path=tmp_path) as qm:
        assert qm.get("Q").body == b"first"


def left(qm: qmgr.QueueManager) -> None:
    """Garbage, in a cycle: the collector alone finds it."""
    consumer: Consumer[qmgr.UnitOfWork] = qm.consume("A")
    next(consumer)
    consumer.me = consumer  # type: ignore[attr-defined]


@pytest.fixture
def by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("by_hand")
def test_one_that_is_collected_in_the_midst_of_a_call_is_backed_out_after_it(qm: qmgr.QueueManager) -> None:
    def call() -> None:
        with qm._engine.lock:  # as any call may have it when garbage is collected
            gc.collect()
            assert qm._engine.state.queues["A"].uncommitted == 1

    qm.put("A", b"one")
    left(qm)
    soon(call)
    until(lambda: qm.queue("A").uncommitted == 0)
    assert qm.get("A").backout_count == 1
