"""The benchmarks of deep queues run, on a small one, and refuse what they can't measure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOAK

ROOT = Path(__file__).resolve().parents[1]


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.deep", "--path", str(path), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


SLOW = [
    ("start", "start after kill -9 in full flow, 1,000 queued"),
    ("through", "through 1,000 ÷ through none, one by one"),
    ("checkpoint", "checkpoint of 50,000 changes, 1,000 queued: longest put"),
    ("queues", "puts to one of 10 queues"),
]


@pytest.mark.parametrize(
    ("group", "figure"),
    [
        ("memory", "resident, 1,000 × 256 bytes queued"),
        ("select", "get by correlation id among 1,000, beyond a plain get"),
        *(SLOW if SOAK else []),
    ],
)
def test_a_group_has_its_figures_and_leaves_nothing_behind(tmp_path: Path, group: str, figure: str) -> None:
    done = run(tmp_path, "--quick", "--messages", "1000", "--queues", "10", "--only", group)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(f"^{re.escape(figure)}", done.stdout, re.MULTILINE), done.stdout
    assert "written to" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "nothing"], "invalid choice: 'nothing'"),
        (["--messages", "10"], "--messages 10: a multiple of 1000 is needed"),
        (["--messages", "1000000000000"], "GB are needed"),
        (["--queues", "0"], "--queues 0: one queue at least is needed"),
    ],
)
def test_what_can_not_be_measured_gets_a_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
