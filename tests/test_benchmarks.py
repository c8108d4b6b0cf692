"""The benchmarks run, on what is small, leave nothing behind, and refuse what they can't measure."""

import contextlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import rivals
from tests.conftest import SOAK

ROOT = Path(__file__).resolve().parents[1]

# How each is asked for little.
SMALL = {
    "daemon": [],
    "deep": ["--messages", "1000", "--queues", "10"],
    "linear": ["--messages", "50000"],
    "others": [],
    "pipeline": ["--records", "100000"],
}

# Module, group and how lines of what it prints begin.
QUICK: list[tuple[str, str, list[str]]] = [
    ("daemon", "stomp", ["STOMP, transactions of 10 sends, one client"]),
    ("deep", "memory", ["resident, 1,000 × 256 bytes queued"]),
    (
        "deep",
        "select",
        [f"get by correlation id among 1,000, beyond {what}" for what in ("a raw sync of 2 KiB", "a plain get")],
    ),
    (
        "linear",
        "logtype",
        ["commits, linear, Manual ÷ circular", "of the processors, taken by others during logtype"],
    ),
    ("pipeline", "filters", ["bytes read for one queue of 50", "bytes read for a twentieth of the time"]),
]

SLOW: list[tuple[str, str, list[str]]] = [
    ("daemon", "client", ["units of one put, a client ÷ in process"]),
    ("daemon", "idle", ["1,000 idle connections"]),
    ("daemon", "life", ["endmqm -i with 100 clients in units of work"]),
    ("deep", "start", ["start after kill -9 in full flow, 1,000 queued"]),
    ("deep", "through", ["through 1,000 ÷ through none, one by one"]),
    ("deep", "checkpoint", ["checkpoint of 50,000 changes, 1,000 queued: longest put"]),
    ("deep", "queues", ["puts to one of 10 queues"]),
    (
        "linear",
        "media",
        [
            "p99 of a put beside an image of 50,000 × 256 bytes ÷ beside none",
            "recreate it from its image; loading it",
            "most resident in making it from its image; before",
            "of the processors, taken by others during media",
        ],
    ),
    (
        "linear",
        "reading",
        [
            "zstd ÷ plain, read and decoded",
            "gzip ÷ plain, read and decoded",
            "of the processors, taken by others during reading",
        ],
    ),
    (
        "linear",
        "archiving",
        [
            "commits while extents are compressed with zstd ÷ while none are",
            "of the processors, taken by others during archiving",
        ],
    ),
    ("others", "sqlite3", ["one put: in process ÷ sqlite3", "one put, 8 clients: by the daemon ÷ sqlite3"]),
    (
        "pipeline",
        "plain",
        ["decoding a log of puts without bodies", "decoding a log of units with 256-byte bodies"],
    ),
    (
        "pipeline",
        "spark",
        ["Spark, local[1], a log of puts without bodies", "Spark, local[2], a log of units with 256-byte bodies"],
    ),
]

# What the work is compared with, where it is installed: none of it is needed but sqlite3.
RIVALS = [
    ("postgresql", "psycopg", "pg_ctl"),
    ("redis", "redis", "redis-server"),
    ("rabbitmq", "pika", "rabbitmq-server"),
]
INSTALLED = ["sqlite3", *(name for name, client, server in RIVALS if find_spec(client) and shutil.which(server))]


def run(module: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"benchmarks.{module}", "--path", str(path), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize(("module", "group", "figures"), [*QUICK, *(SLOW if SOAK else [])])
def test_a_group_has_its_figures_and_leaves_nothing_behind(
    tmp_path: Path, module: str, group: str, figures: list[str]
) -> None:
    done = run(module, tmp_path, "--quick", *SMALL[module], "--only", group)
    assert done.returncode == 0, done.stdout + done.stderr
    for figure in figures:
        assert re.search(f"^{re.escape(figure)}", done.stdout, re.MULTILINE), done.stdout
    assert "written to" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "arguments", "sentence"),
    [
        *((module, ["--only", "nothing"], "invalid choice: 'nothing'") for module in SMALL),
        ("deep", ["--messages", "10"], "--messages 10: a multiple of 1000 is needed"),
        ("deep", ["--messages", "1000000000000"], "GB are needed"),
        ("deep", ["--queues", "0"], "--queues 0: one queue at least is needed"),
        ("linear", ["--messages", "1000"], "--messages 1000: a multiple of 1000 is needed, 50000 at least"),
        ("linear", ["--messages", "1000000000000"], "GB are needed"),
        ("pipeline", ["--records", "1000"], "--records 1000: 100000 at least are needed"),
        ("pipeline", ["--records", "1000000000000"], "GB are needed"),
    ],
)
def test_what_can_not_be_measured_gets_a_sentence(
    tmp_path: Path,
    module: str,
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--path", str(tmp_path), *arguments])
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(f"benchmarks.{module}").main()
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("name", INSTALLED)
def test_a_rival_does_the_work_and_none_of_it_in_vain(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of them is handicapped by how it is asked, the comparison says nothing."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home.chmod(0o755)
        queue = stack.enter_context(rivals.ALL[name](home)).connect()
        stack.callback(queue.close)
        if isinstance(queue, rivals.Rabbit):  # a message that is asked for by itself takes as long as all of them
            monkeypatch.setattr(queue._transactions, "basic_get", None)
        queue.put_many([b"%d" % n for n in range(250)])
        queue.get_many(100)
        queue.get_many(50)
        if isinstance(queue, rivals.Rabbit):
            monkeypatch.undo()
        if isinstance(queue, rivals.Redis):  # what is no part of the transaction takes a sync of its own
            monkeypatch.setattr(queue._db, "execute_command", None)
        queue.move()
        monkeypatch.undo()
        for _ in range(99):
            queue.get()
        if isinstance(queue, rivals.Rabbit):
            assert [queue._channel.basic_get("Q", auto_ack=True)[2] for _ in range(2)] == [b"150", None]
        else:
            assert "150" in str(queue.get())
            assert not queue.get()
