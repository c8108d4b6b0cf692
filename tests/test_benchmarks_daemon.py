"""The benchmarks of the daemon run, and leave nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOAK

ROOT = Path(__file__).resolve().parents[1]

SLOW = [
    ("client", "units of one put, a client ÷ in process"),
    ("idle", "1,000 idle connections"),
    ("life", "endmqm -i with 100 clients in units of work"),
]


@pytest.mark.parametrize(
    ("group", "figure"), [("stomp", "STOMP, transactions of 10 sends, one client"), *(SLOW if SOAK else [])]
)
def test_a_group_has_its_figures_and_leaves_nothing_behind(tmp_path: Path, group: str, figure: str) -> None:
    command = [sys.executable, "-m", "benchmarks.daemon", "--path", str(tmp_path), "--quick", "--only", group]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(f"^{re.escape(figure)}", done.stdout, re.MULTILINE), done.stdout
    assert "written to" not in done.stdout
    assert list(tmp_path.iterdir()) == []
