"""archive-log, compress-log and remove-log, as people type them."""

import gzip
import shlex
from pathlib import Path

import pytest

import qmgr
from qmgr.cli.main import qm
from qmgr.daemon.process import start_lines


class Shell:
    """A data path, and what commands say there."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data = data
        self._capsys = capsys
        self.log = data / "log" / "QM1"

    def run(self, words: str, code: int = 0) -> tuple[list[str], str]:
        """(lines on stdout, stderr)."""
        assert qm([*shlex.split(words), "--data-path", str(self.data)]) == code
        said = self._capsys.readouterr()
        assert "AMQ6118" not in said.err
        return said.out.splitlines(), said.err

    def names(self, directory: str = "active") -> list[str]:
        return sorted(path.name for path in (self.log / directory).glob("S*"))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A linear queue manager QM1 with some extents that nothing needs."""
    data = tmp_path / "data"
    options = {"log_type": "linear", "log_file_pages": 64, "log_primary_files": 3}
    qmgr.create("QM1", data_path=data, **options)  # type: ignore[arg-type]
    with qmgr.start("QM1", data_path=data, background=False) as manager:
        manager.define_queue("Q")
        for _ in range(8):
            manager.put("Q", bytes(180_000))
            manager.get("Q")
            manager.checkpoint()
        manager.put("Q", b"kept")
        manager.record_image()
        manager.checkpoint()
    return Shell(data, capsys)


def test_extents_go_to_the_archive_are_compressed_and_removed(shell: Shell) -> None:
    before = shell.names()
    first = (shell.log / "active" / "S0000000.LOG").read_bytes()
    said, _ = shell.run("archive-log -m QM1 --older-than 0s --dry-run")
    assert said[0].startswith(f"would archive {shell.log}/active/S0000000.LOG to {shell.log}/archive/S0000000.LOG (")
    assert shell.names("archive") == []

    said, _ = shell.run("archive-log -m QM1 --older-than 0s")
    assert said[0].startswith(f"archive {shell.log}/active/S0000000.LOG to ")
    moved = shell.names("archive")
    assert len(moved) >= 4
    assert said[-1].startswith(f"{len(moved)} log extents, ")
    assert (shell.log / "archive" / "S0000000.LOG").read_bytes() == first
    assert set(moved).isdisjoint(shell.names())
    assert set(moved) | set(shell.names()) >= set(before)

    shell.run("compress-log -m QM1 --older-than 0s")
    assert set(shell.names("archive")) >= {f"{name}.gz" for name in moved}
    assert gzip.decompress((shell.log / "archive" / "S0000000.LOG.gz").read_bytes()) == first

    with qmgr.start("QM1", data_path=shell.data, background=False) as manager:
        assert manager.get("Q").body == b"kept"  # which held its own history
        manager.put("Q", b"kept")
    said, _ = shell.run("remove-log -m QM1 --older-than 0s")
    assert said[0].startswith(f"remove {shell.log}/archive/S0000000.LOG.gz (")
    assert not set(shell.names("archive")) & {f"{name}.gz" for name in moved}
    with qmgr.start("QM1", data_path=shell.data) as manager:
        assert manager.get("Q").body == b"kept"


def test_nothing_that_is_old_enough_is_said_so(shell: Shell) -> None:
    before = shell.names()
    for action in ("archive", "compress", "remove"):
        said, why = shell.run(f"{action}-log -m QM1 --older-than 4w --dry-run")
        assert said == ["0 log extents, 0 bytes."]
        assert f"nothing to {action}: each extent is needed for a restart, was last written less than 4w ago" in why
        assert why.endswith({"remove": "ago.\n"}.get(action, f", or is {action.rstrip('e')}ed already.\n"))
    assert shell.names()[: len(before)] == before


def test_what_a_policy_asks_of_a_circular_log_is_said_to_have_no_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, capsys)
    qmgr.create("QM1", data_path=tmp_path, log_management="archive", log_file_pages=64)
    path = tmp_path / "qmgrs" / "QM1" / "qm.ini"
    path.write_text(path.read_text() + "LogArchive:\n   ArchiveAfter=1d\n   RemoveAfter=never\n   CompressAfter=1w\n")
    said, why = shell.run("checkini QM1")
    qmgr.start("QM1", data_path=tmp_path).end()
    log = (tmp_path / "qmgrs" / "QM1" / "errors" / "AMQERR01.LOG").read_text()
    for where in (" ".join(said) + why, " ".join(log.split())):
        for what in ("LogManagement of stanza Log", "ArchiveAfter of stanza LogArchive", "CompressAfter of stanza"):
            assert f"attribute {what}" in where
        assert where.count("has no effect with LogType=CIRCULAR, which reuses its extents by itself") == 3


def test_an_extent_that_was_cut_is_not_passed_over_in_silence(shell: Shell) -> None:
    cut = shell.log / "active" / "S0000001.LOG"
    whole = cut.read_bytes()
    cut.write_bytes(whole[:4000])
    for words in ("archive-log -m QM1 --dry-run", "archive-log -m QM1", "compress-log -m QM1"):
        said, err = shell.run(words)
        assert err.startswith(f"AMQ9013W: Log extent {cut} was cut or is damaged")
        assert err.count("\n") == 1, "nothing else is damaged, not the extents made ahead"
        assert "S0000002.LOG" in "".join(said)
    packed = shell.log / "archive" / "S0000002.LOG.gz"
    packed.write_bytes(packed.read_bytes()[:100])
    cut.write_bytes(whole)
    _, err = shell.run("compress-log -m QM1")
    assert err.startswith(f"AMQ9013W: Log extent {packed} ")
    assert err.count("\n") == 1


def test_what_is_kept_is_said_with_the_reason(shell: Shell) -> None:
    with qmgr.start("QM1", data_path=shell.data, background=False) as manager:
        for _ in range(3):
            manager.put("Q", bytes(180_000))
            manager.checkpoint()
    _, err = shell.run("remove-log -m QM1 --older-than 0s")
    assert err.startswith("AMQ9008I: ")
    assert "is still needed for " in err


@pytest.mark.parametrize("action", ["archive", "compress", "remove"])
def test_bad_words_get_one_line_and_an_exit_code(shell: Shell, action: str) -> None:
    before = shell.names()
    for words, code, amq in (
        ("-m NOSUCH --older-than 1d", 72, "AMQ7048E"),
        ("-m QM1 --older-than 7", 36, "AMQ7076E"),
        ("-m QM1 --older-than", 36, "AMQ7006E"),
        ("-m QM1 --older-than 1d S0000000.LOG", 36, "AMQ7075E"),
    ):
        said, err = shell.run(f"{action}-log {words}", code)
        assert said == []
        assert err.startswith(amq)
        assert err.count("\n") == 1
    assert set(shell.names()) >= set(before)


def test_a_circular_log_is_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(tmp_path, capsys)
    qmgr.create("QM1", data_path=tmp_path)
    _, err = shell.run("archive-log -m QM1 --older-than 1d", 68)
    assert err.startswith("AMQ7044E: ")
    assert "circular logging" in err


def test_while_somebody_has_it_the_command_says_so(shell: Shell) -> None:
    with qmgr.start("QM1", data_path=shell.data):
        _, err = shell.run("archive-log -m QM1 --older-than 1d", 40)
    assert err.startswith("AMQ8146E: ")


def test_an_archive_that_is_away_is_named_by_all_that_would_read_in_it(shell: Shell, tmp_path: Path) -> None:
    with qmgr.start("QM1", data_path=shell.data, background=False) as manager:
        manager.define_queue("OLD")
        with manager.begin() as unit:
            unit.put("OLD", b"its image is in the archive")
        for _ in range(4):
            manager.put("Q", bytes(180_000))
            manager.checkpoint()
    shell.run("archive-log -m QM1 --older-than 0s")
    archive, away = shell.log / "archive", tmp_path / "away"
    archive.rename(away)
    said = f"{archive} is this log's archive, and its "
    _, err = shell.run(f"recover-to -m QM1 --lsn 0:0:8:0 --into {tmp_path / 'then'}", 71)
    assert said in err
    assert said in shell.run("dmpmqlog -m QM1 -s 0:0:8:0", 71)[1]
    assert said in shell.run("dmpmqlog -m QM1 -n 2", 36)[1]
    with qmgr.start("QM1", data_path=shell.data, background=False) as manager:
        lines = start_lines(manager)
        assert [line for line in lines if said in line and line.startswith("AMQ9014W: ")]
        with pytest.raises(qmgr.Unavailable, match=f"what became of unit of work {unit.id} .* away: {said}"):
            manager.outcome(unit.id)
        with pytest.raises(qmgr.MQError, match=said):
            manager.recreate("OLD")
    errors = shell.data / "qmgrs/QM1/errors/AMQERR01.LOG"
    assert errors.read_text().count(f"AMQ9014W: The archive of the log of queue manager 'QM1' is away: {said}") == 1

    away.rename(archive)
    with qmgr.start("QM1", data_path=shell.data, background=False) as manager:
        assert (manager.outcome(unit.id), manager.archive_away) == (qmgr.UowState.COMMITTED, "")
        manager.recreate("OLD")
        assert manager.get("OLD").body == b"its image is in the archive"
    shell.run(f"recover-to -m QM1 --lsn 0:0:8:0 --into {tmp_path / 'then'}")
