"""The examples do what they say, in a process each, and stay short."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qmgr import sockets
from tests.daemon.serving import Served, serving

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SAYS = {
    "put_get.py": """\
waiting: ['1 table', '3 chairs', 'do you have lamps?', '2 shelves', '4 shelves']
first: 1 table for Ada
asked: do you have lamps? answer to ANSWERS
rest: ['3 chairs', '2 shelves', '4 shelves']
nothing left: NO_MSG_AVAILABLE
""",
    "request_reply.py": """\
a chair is 40
a table is 120
a shelf is 65
nobody knows what a unicorn is
left: 0
""",
    "workers.py": """\
invoices: 98
put aside: 1 unicorn
workers ended with [0, 0, 0]
left: 0
""",
    "syncpoint.py": """\
before: 1 orders, 0 invoices
backed out: the printer is out of paper
after the backout: 1 orders, 0 invoices
after the commit: 0 orders, 1 invoices
invoice for 3 chairs
""",
    "two_phase.py": """\
in doubt: ['order 4711']
parcel: 3 chairs to Ada
""",
    "media_recovery.py": """\
OBJECT_DAMAGED
1000 messages are back
True b'one more, after the image'
""",
    "replay.py": """\
audit: ['3 chairs', '1 table', '2 lamps']
the worker gets: ['3 chairs', '1 table', '2 lamps', 'a wardrobe that took time']
left on the queue: 0
audit: ['a wardrobe that took time', '4 shelves', '1 mirror']
audit: []
since a moment: ['4 shelves', '1 mirror']
behind the table, in the middle of a unit of work: 2 lamps
""",
    "crash_restart.py": """\
killed after 200 units of work, then restarted
committed units lost: 0
half units of work: 0
in order: True
""",
    "outlive.py": """\
an invoice for each order, in order: True
left: 0
""",
}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run this Python, with its commands on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_says_what_it_should(name: str) -> None:
    done = run(str(EXAMPLES / name))
    assert (done.stdout, done.stderr, done.returncode) == (SAYS[name], "", 0)
    assert len((EXAMPLES / name).read_text().splitlines()) < 60


class Relay:
    """Between a daemon and its clients on this machine; once told so, passes on so many answers and cuts off one."""

    def __init__(self, served: Served) -> None:
        self.answers: int | None = None  # to pass on before the cut; None: all
        at = Path(served.manager._location.socket)
        self._real = str(at.rename(at.with_suffix(".real")))
        self._listener, _ = sockets.listen_unix(str(at))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                daemon = sockets.connect_unix(self._real)
                threading.Thread(target=self._pass, args=[client, daemon], daemon=True).start()
                threading.Thread(target=self._pass, args=[daemon, client, True], daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool = False) -> None:
        with source, contextlib.suppress(OSError):
            while (data := source.recv(65536)) and not (answers and self._cuts()):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
            source.shutdown(socket.SHUT_RDWR)

    def _cuts(self) -> bool:
        if self.answers is not None:
            self.answers -= 1
        return self.answers == -1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize("answers", range(6))
def test_an_order_is_put_once_whichever_answer_is_lost(tmp_path: Path, answers: int) -> None:
    """Each of three orders takes two answers: to its put, and to its commit, which is done when that is cut off."""
    from examples.outlive import put_once

    orders = [b"1 table", b"3 chairs", b"2 lamps"]
    with serving(tmp_path) as served, contextlib.closing(Relay(served)) as relay, served.connect() as qm:
        qm.define_queue("ORDERS")
        relay.answers = answers
        for order in orders:
            put_once(qm, order)
        assert relay.answers < 0
        assert [message.body for message in served.manager.browse("ORDERS")] == orders


def test_flights_all_arrive_although_the_worker_is_killed() -> None:
    done = run("-m", "examples.flights", "--rows", "30000", "--kills", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every flight is on its carrier's queue, once, in order." in done.stdout
    assert "kills" in done.stdout


def test_the_audit_of_the_flights_finds_each_kind_of_fault(tmp_path: Path) -> None:
    import qmgr
    from examples.flights import data
    from examples.flights.__main__ import prepare
    from examples.flights.audit import audit
    from examples.flights.worker import MARK, NAME, TO, Worker

    source, rows = data.find(), 600
    prepare(str(tmp_path), source, rows)
    with qmgr.start(NAME, data_path=str(tmp_path)) as qm:
        assert len(audit(qm, source, rows)) == rows + 1  # nothing has been put, and the mark says so
        Worker(qm, source, rows).run()
        assert audit(qm, source, rows) == []
        first = qm.get(TO + "UA")
        assert audit(qm, source, rows) == [f"flight {int(first.correlation_id)} is on no carrier queue"]
        qm.put(TO + "UA", first.body, correlation_id=first.correlation_id)
        (wrong,) = audit(qm, source, rows)
        assert "comes after" in wrong
        qm.put(TO + "UA", first.body, correlation_id=first.correlation_id)
        assert f"flight {int(first.correlation_id)} is there 2 times" in audit(qm, source, rows)
        qm.put(TO + "AA", first.body, correlation_id=first.correlation_id)
        assert any("is not that row of the file" in wrong for wrong in audit(qm, source, rows))
        qm.get(MARK)
        assert any(wrong.startswith("the mark says []") for wrong in audit(qm, source, rows))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rows", "0"], "'0' is neither a number of rows above 0 nor 'all'"),
        (["--rows", "many"], "'many' is neither a number of rows above 0 nor 'all'"),
        (["--kills", "-1"], "'-1' is not a number from 0 to 100"),
        (["--seed", "x"], "invalid int value: 'x'"),
        (["--color"], "unrecognized arguments: --color"),
    ],
)
def test_wrong_arguments_of_the_flights_get_a_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples.flights.__main__ import main

    monkeypatch.setattr(sys, "argv", ["flights", *arguments])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_wrong_arguments_of_the_flights_in_spark_get_a_sentence() -> None:
    done = run("-m", "examples.flights.pipeline", "--rows", "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'none' is neither a number of rows above 0 nor 'all'" in done.stderr


def test_flights_on_a_path_that_is_a_file_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    done = run("-m", "examples.flights", "--rows", "100", "--data-path", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith("the demo can't go on: ")
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_the_flights_is_refused(tmp_path: Path) -> None:
    from examples.flights import data

    path = tmp_path / "flights.csv.zip"
    path.write_bytes(b"no zip file")
    with pytest.raises(data.NoData, match="can't be read as the flights"):
        next(data.flights(path))


def test_the_benchmarks_run() -> None:
    done = run("-m", "benchmarks.run", "--quick", "--only", "move")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "move A → B" in done.stdout


def test_a_wrong_name_of_a_benchmark_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.run import main

    monkeypatch.setattr(sys, "argv", ["run", "--only", "nothing"])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module",
    [
        *(f"benchmarks.{name}" for name in ("run", "others", "daemon", "deep", "linear", "pipeline")),
        *("examples.flights", "examples.flights.pipeline"),
    ],
)
def test_help_that_can_not_be_written_is_no_success(module: str) -> None:
    """Nor where each write goes out at once, which argparse itself passes over."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-u", "-m", module, "--help"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode != 0 and "No space left on device" in done.stderr
