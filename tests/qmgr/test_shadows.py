"""A user's own module named `logger` or `recovery` is told from ours, by name and file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["logger", "recovery"])
def test_a_stranger_in_our_packages_place_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("x = 1\n")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", "import qmgr"], capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: qmgr needs its own package")
    assert str(tmp_path / f"{name}.py") in last
    assert "rename that module" in last
