"""Where the files of a queue manager are."""

from pathlib import Path
from typing import Any

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


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", f"{tmp_path}/home")
    monkeypatch.setenv(locations.VARIABLE, "~/named")
    assert locations.find("A").data_root == f"{tmp_path}/home/named"
    found = locations.find("A", Path("~/data"), log_path="~/logs")
    assert (found.data_root, found.log_dir) == (f"{tmp_path}/home/data", f"{tmp_path}/home/logs/A")
    assert locations.find("A", f"{tmp_path}/~").data_root == f"{tmp_path}/~"
    monkeypatch.chdir(tmp_path)
    qmgr.create("QM1", data_path="~/data", log_file_pages=64)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


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


@pytest.mark.parametrize("path", ["", "a\0b", "half a pair \ud800", 5, b"bytes"])
def test_what_can_be_no_path_is_refused_by_the_name_of_its_argument(path: Any) -> None:
    for argument, call in (
        ("data_path", lambda: qmgr.start("QM1", data_path=path)),
        ("data_path", lambda: qmgr.connect("QM1", data_path=path)),
        ("data_path", lambda: qmgr.delete("QM1", data_path=path)),
        ("into", lambda: qmgr.recover_to("QM1", path, lsn=1)),
    ):
        with pytest.raises(Mistake, match=f"^{argument} is the path of a directory"):
            call()
    assert locations.find("QM1", "/a byte \udcff").data_root == "/a byte \udcff"


def test_a_path_that_is_too_long_is_told_as_any_other_failure_of_the_file_system(tmp_path: Path) -> None:
    qmgr.create("QM1", data_path=tmp_path)
    with pytest.raises(qmgr.Unavailable, match=r"'QM1' can't be recovered: .*too long") as caught:
        qmgr.recover_to("QM1", "/tmp/" + 1000 * "a", lsn=1, data_path=tmp_path)
    assert caught.value.reason == qmgr.Reason.FILE_SYSTEM_ERROR
