"""The benchmarks of linear logging run, on a small queue, and refuse what they can't measure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOAK

ROOT = Path(__file__).resolve().parents[1]


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.linear", "--path", str(path), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


SLOW: list[tuple[str, list[str]]] = [
    (
        "media",
        [
            "p99 of a put beside an image of 50,000 × 256 bytes ÷ beside none",
            "recreate it from its image; loading it",
            "most resident in making it from its image; before",
        ],
    ),
    ("reading", ["zstd ÷ plain, read and decoded", "gzip ÷ plain, read and decoded"]),
    ("archiving", ["commits while extents are compressed with zstd ÷ while none are"]),
]


@pytest.mark.parametrize(
    ("group", "figures"),
    [
        ("logtype", ["commits, linear, Manual ÷ circular"]),
        *(SLOW if SOAK else []),
    ],
)
def test_a_group_has_its_figures_and_leaves_nothing_behind(tmp_path: Path, group: str, figures: list[str]) -> None:
    done = run(tmp_path, "--quick", "--messages", "50000", "--only", group)
    assert done.returncode == 0, done.stdout + done.stderr
    for figure in [*figures, f"of the processors, taken by others during {group}"]:
        assert re.search(f"^{re.escape(figure)}", done.stdout, re.MULTILINE), done.stdout
    assert "written to" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "nothing"], "invalid choice: 'nothing'"),
        (["--messages", "1000"], "--messages 1000: a multiple of 1000 is needed, 50000 at least"),
        (["--messages", "1000000000000"], "GB are needed"),
    ],
)
def test_what_can_not_be_measured_gets_a_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
