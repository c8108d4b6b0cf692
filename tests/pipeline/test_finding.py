"""Finding a log: of a queue manager, in a folder of extents of every form; what is none is said so."""

from pathlib import Path

import pytest

import qmgr
from logger.compressed import Compression
from logger.errors import LogError
from logger.posix_disk import PosixDisk
from pipeline import finding
from tests.logger.extents import content
from tests.pipeline import reference
from tests.pipeline.many_extents import a_log, moved
from tests.pipeline.reference import Row
from tests.pipeline.works import ACTIVE, Works, told
from tests.qmgr.world import DATA, NAME


@pytest.mark.parametrize("with_index", [False, True])
def test_archived_compressed_and_active_extents_are_one_log(with_index: bool) -> None:
    works = a_log(indexed=with_index)
    rows = reference.rows(works.log(), works.disk)
    moved(works, [None, Compression.GZIP, Compression.ZSTD])
    kinds = {path.rpartition(".")[2] for path in works.world.disk.files() if "/archive/" in path}
    assert kinds >= {"LOG", "gz", "zst"}
    assert told(works.log(), works.disk) == rows
    for folder in (f"{DATA}/log/{NAME}", f"{DATA}/log/{NAME}/"):
        log = finding.find(folder, disk=works.disk)
        assert told(log, works.disk) == rows


def test_a_folder_of_extents_is_a_log(indexed: tuple[Works, list[Row]]) -> None:
    works, rows = indexed
    log = finding.find(ACTIVE, disk=works.disk)
    assert log.control == ""
    assert told(log, works.disk) == rows


def test_what_is_no_log_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no log in"):
        finding.find(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogError, match="there is no log in"):
        finding.find(str(tmp_path / "file"))
    with pytest.raises(LogError, match="queue manager 'QM9' does not exist"):
        finding.find(str(tmp_path), "QM9")
    qmgr.create("C", data_path=tmp_path)
    for path, name in ((tmp_path, "C"), (tmp_path / "log" / "C", None)):
        with pytest.raises(LogError, match=r"is circular.*migmqlog"):
            finding.find(str(path), name)


def test_what_is_no_file_beside_extents_is_left_alone(tmp_path: Path) -> None:
    """A name that was listed may be of a file that is compressed, or moved, by the time that it is opened."""
    disk = a_log().world.disk
    for path in disk.files(ACTIVE):
        (tmp_path / path.rpartition("/")[2]).write_bytes(disk.peek(path))
    log = finding.find(str(tmp_path))
    end, rows = log.end(), told(log, PosixDisk())
    (tmp_path / "S0000900.LOG").symlink_to(tmp_path / "gone")
    (tmp_path / "S0000901.LOG.gz").mkdir()
    log = finding.find(str(tmp_path))
    assert log.end() == end
    assert told(log, PosixDisk()) == rows


def test_extents_of_two_logs_are_not_read_as_one() -> None:
    one, other = Works(), Works()
    one.stop()
    other.stop()
    disk = one.world.disk
    disk.poke(f"{ACTIVE}/S0000007.LOG", other.world.disk.peek(f"{ACTIVE}/S0000000.LOG"))
    if one.log().log_id == other.log().log_id:
        disk.poke(f"{ACTIVE}/S0000007.LOG", content(8))
    with pytest.raises(LogError, match="different logs"):
        finding.find(ACTIVE, disk=disk)
