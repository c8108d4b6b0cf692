"""Where the files of a queue manager are."""

from pathlib import Path

import pytest

from qmgr import Mistake, locations
from tests.sim.disk import SimDisk


def test_names_are_mangled_and_paths_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = locations.find("A.B/C", "data", log_path=Path("logs"))
    assert found.data_dir == f"{tmp_path}/data/qmgrs/A!B&C"
    assert found.log_dir == f"{tmp_path}/logs/A!B&C"
    assert found.ini == f"{tmp_path}/data/qmgrs/A!B&C/qm.ini"
    assert locations.find("A", tmp_path).log_dir == f"{tmp_path}/log/A"


def test_the_environment_names_the_data_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(locations.VARIABLE, "/some/where")
    assert locations.find("A").data_root == "/some/where"
    assert locations.find("A", "/else").data_root == "/else"


def test_a_wrong_name_is_refused_before_any_path_is_made() -> None:
    with pytest.raises(Mistake, match="queue manager"):
        locations.find("../up and away")


def test_who_runs_it() -> None:
    disk = SimDisk()
    found = locations.find("A", "/data")
    assert locations.running(found, disk) is None
