"""The benchmarks of the pipeline run, on a small log, and refuse what they can't measure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOAK

ROOT = Path(__file__).resolve().parents[1]


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.pipeline", "--path", str(path), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)


SLOW: list[tuple[str, list[str]]] = [
    ("plain", ["decoding a log of puts without bodies", "decoding a log of units with 256-byte bodies"]),
    (
        "spark",
        ["Spark, local[1], a log of puts without bodies", "Spark, local[2], a log of units with 256-byte bodies"],
    ),
]


@pytest.mark.parametrize(
    ("group", "figures"),
    [
        ("filters", ["bytes read for one queue of 50", "bytes read for a twentieth of the time"]),
        *(SLOW if SOAK else []),
    ],
)
def test_a_group_has_its_figures_and_leaves_nothing_behind(tmp_path: Path, group: str, figures: list[str]) -> None:
    done = run(tmp_path, "--quick", "--records", "100000", "--only", group)
    assert done.returncode == 0, done.stdout + done.stderr
    for figure in figures:
        assert re.search(f"^{re.escape(figure)}", done.stdout, re.MULTILINE), done.stdout
    assert "written to" not in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "nothing"], "invalid choice: 'nothing'"),
        (["--records", "1000"], "--records 1000: 100000 at least are needed"),
        (["--records", "1000000000000"], "GB are needed"),
    ],
)
def test_what_can_not_be_measured_gets_a_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
