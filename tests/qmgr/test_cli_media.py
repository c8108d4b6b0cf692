"""rcdmqimg and rcrmqobj, run as people run them: the walk-through of a damaged queue, and what is refused how."""

import subprocess
from pathlib import Path

import pytest

import qmgr
from tests.qmgr.test_cli import SMALL, Run, data, run

__all__ = ["data", "run"]


def queue_files(data: Path, queue: str) -> list[Path]:
    return list(data.glob(f"qmgrs/*/queues/{queue.replace('.', '!')}/*.seg"))


def told(done: subprocess.CompletedProcess[str], code: int, *texts: str) -> None:
    """It ended with that code, and said that."""
    assert done.returncode == code, done
    for text in texts:
        assert text in done.stdout + done.stderr, done
    assert len(done.stderr.splitlines()) <= 3, done.stderr


@pytest.fixture
def linear(run: Run, data: Path) -> Path:
    """A queue manager QM1 with a linear log, and the walk-through's two messages on QL.A."""
    told(run(f"crtmqm -ll {SMALL} QM1"), 0)
    with qmgr.start("QM1", data_path=str(data)) as manager:
        for name in ("QL.A", "QL.B", "OTHER"):
            manager.define_queue(name)
        manager.alter_queue("OTHER", image_recoverable="NO")
        manager.put("QL.A", b"persistent")
        manager.put("QL.A", b"not", persistent=False)
        manager.put("QL.B", b"of B")
    return data


def bodies(data: Path, queue: str) -> list[bytes]:
    with qmgr.start("QM1", data_path=str(data)) as manager:
        return [message.body for message in manager.browse(queue)]


def test_the_walk_through(run: Run, linear: Path) -> None:
    """Record, lose the queue's file, recreate: the persistent message is there. The next start does it by itself."""
    told(run("rcdmqimg -m QM1 -t ql QL.A"), 0, "Media image for object QL.A, type qlocal recorded.")
    files = queue_files(linear, "QL.A")
    assert files
    for path in files:
        path.unlink()
    told(run("rcrmqobj -m QM1 -t ql QL.A"), 0, "Object QL.A, type qlocal recreated.")
    assert bodies(linear, "QL.A") == [b"persistent"]
    for path in queue_files(linear, "QL.A"):
        path.write_bytes(b"nonsense")
    assert bodies(linear, "QL.A") == [b"persistent"]
    assert bodies(linear, "QL.B") == [b"of B"]


def test_generic_names_types_and_the_oldest_extents(run: Run, linear: Path) -> None:
    done = run("rcdmqimg -m QM1 -l -t queue 'QL.*'")
    told(done, 0, "QL.A, type qlocal recorded", "QL.B, type qlocal recorded", "AMQ7467I", "AMQ7468I", "S0000000.LOG")
    assert "OTHER" not in done.stdout
    told(run("rcdmqimg -m QM1 -t qmgr"), 0, "type qmgr recorded")
    told(run("rcrmqobj -m QM1 -t ql 'QL.*'"), 0, "QL.A, type qlocal recreated", "QL.B, type qlocal recreated")
    told(run("rcdmqimg -m QM1 -t all"), 28, "QL.A, type qlocal recorded", "OTHER")
    assert run("rcdmqimg -m QM1 -t cupboard QL.A").returncode == 36


def test_what_is_not_there_or_not_recoverable(run: Run, linear: Path) -> None:
    """28 not recoverable, 40 not available, 128 no such object; -z says nothing of them."""
    for command in ("rcdmqimg", "rcrmqobj"):
        told(run(f"{command} -m QM1 -t ql OTHER"), 28, "OTHER")
        told(run(f"{command} -m QM1 -t ql NOBODY"), 128, "NOBODY")
        quiet = run(f"{command} -m QM1 -z -t ql NOBODY")
        assert (quiet.returncode, quiet.stderr) == (128, "")
        assert run(f"{command} -m NONE -t ql QL.A").returncode != 0
    with qmgr.start("QM1", data_path=str(linear)):
        assert run("rcdmqimg -m QM1 -t ql QL.A").returncode == 40


def test_circular_logging(run: Run, data: Path) -> None:
    """68: there is nothing to recover from."""
    told(run(f"crtmqm {SMALL} QM1"), 0)
    with qmgr.start("QM1", data_path=str(data)) as manager:
        manager.define_queue("QL.A")
    told(run("rcdmqimg -m QM1 -t ql QL.A"), 68, "circular")
    told(run("rcrmqobj -m QM1 -t ql QL.A"), 68, "circular")


def test_an_extent_that_is_missing(run: Run, linear: Path) -> None:
    """66, with its name; put back, the queue is recreated."""
    with qmgr.start("QM1", data_path=str(linear)) as manager:
        for _ in range(60):
            manager.put("QL.B", bytes(20000))
            manager.get("QL.B")
            manager.checkpoint()
    (first,) = linear.parent.rglob("S0000000.LOG")
    aside = first.rename(first.with_suffix(".aside"))
    told(run("rcrmqobj -m QM1 -t ql QL.A"), 66, "AMQ6767", "S0000000.LOG")
    assert bodies(linear, "QL.A") == [b"persistent"]
    aside.rename(first)
    told(run("rcrmqobj -m QM1 -t ql QL.A"), 0, "QL.A, type qlocal recreated")
    assert bodies(linear, "QL.A") == [b"persistent"]
