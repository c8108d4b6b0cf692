"""Where the files of a queue manager are."""

from pathlib import Path

import pytest

import qmgr
from qmgr import Mistake, locations
from qmgr.errors import IniError
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


def test_who_has_no_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (locations.VARIABLE, "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user whom the system does not know
    with pytest.raises(Mistake, match="set QMGR_DATA_PATH"):
        locations.find("A")
    assert locations.find("A", "/else").data_root == "/else"


def test_a_path_that_qm_ini_can_not_hold_is_refused_and_the_error_is_not_its_own_cause(tmp_path: Path) -> None:
    with pytest.raises(IniError, match="can't hold LogPath") as caught:
        qmgr.create("A", data_path=tmp_path / "a#b")
    assert caught.value.__cause__ is None
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_is_refused_before_any_path_is_made() -> None:
    with pytest.raises(Mistake, match="queue manager"):
        locations.find("../up and away")


def test_who_runs_it() -> None:
    disk = SimDisk()
    found = locations.find("A", "/data")
    assert locations.running(found, disk) is None
