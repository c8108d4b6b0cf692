"""migmqlog and qm repair, run as people run them: exit codes, what they say, and never a traceback."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

import qmgr
from qmgr import repairing
from qmgr.cli.main import qm
from tests.qmgr.test_cli import SMALL, Run, data, owner, run  # noqa: F401  fixtures

XID = qmgr.Xid(5067085, b"global", b"")


@pytest.fixture
def made(run: Run, data: Path) -> Path:  # noqa: F811
    """A queue manager QM1 that ended in order, with messages and a unit of work in doubt; its log directory."""
    assert run(f"crtmqm {SMALL} QM1").returncode == 0
    with qmgr.start("QM1", data_path=str(data)) as manager:
        manager.define_queue("Q")
        for n in range(20):
            manager.put("Q", b"%d" % n * 5000)
        unit = manager.begin(XID)
        unit.get("Q")
        unit.prepare()
    return data / "log" / "QM1"


def holds(data: Path) -> tuple[int, int]:  # noqa: F811
    """How many messages can be got, and how many units of work are in doubt."""
    with qmgr.start("QM1", data_path=str(data)) as manager:
        return manager.queue("Q").depth, len(manager.in_doubt())


def test_to_linear_elsewhere_and_back(run: Run, data: Path, made: Path, tmp_path: Path) -> None:  # noqa: F811
    done = run(f"migmqlog -m QM1 -lla -ld {tmp_path}/fast")
    assert (done.returncode, done.stderr) == (0, "")
    ini = data / "qmgrs" / "QM1" / "qm.ini"
    assert f"{ini} says LogManagement=Automatic now.\n{ini} says LogType=LINEAR now." in done.stdout
    assert f"The log is in {tmp_path}/fast/QM1 now." in done.stdout
    assert not made.exists()
    assert f"LogPath={tmp_path}/fast/QM1" in ini.read_text()
    assert holds(data) == (19, 1)
    done = run("migmqlog -m QM1 -lc")
    assert done.returncode == 0 and done.stdout.startswith("Media recovery ends here: ")
    assert holds(data) == (19, 1)
    assert run("migmqlog -m QM1").stdout == "The log of queue manager 'QM1' is as it should be; it can be started.\n"


def test_nobody_who_reads_what_it_says_does_not_stop_it(run: Run, data: Path, made: Path) -> None:  # noqa: F811
    """Nor a full disk behind stdout: neither is a fault of the log."""
    env = {**os.environ, "QMGR_DATA_PATH": str(data)}
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open("/dev/full", "w") as full, os.fdopen(write_end, "w") as pipe:
        streams = {"capture_output": False, "stderr": subprocess.PIPE, "env": env}
        done = run("migmqlog -m QM1 -ll", stdout=pipe, **streams)
        assert (done.returncode, done.stderr) == (141, "")
        done = run("migmqlog -m QM1 -lc", stdout=full, **streams)
        why = "the command did its work, but standard output can't be written: No space left on device."
        assert (done.returncode, done.stderr) == (71, f"AMQ7002S: {why}\n")
        assert "LogType=CIRCULAR" in (data / "qmgrs" / "QM1" / "qm.ini").read_text()
        (made / "amqhlctl.lfh").unlink()
        done = run("repair -m QM1", stdout=full, **streams)
        assert (done.returncode, done.stderr) == (71, f"AMQ7002S: {why}\n")
    assert holds(data) == (19, 1)


def test_a_repair_says_what_it_loses_before_it_loses_it(
    run: Run,  # noqa: F811
    data: Path,  # noqa: F811
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where the start and the end behind it fail, after which a second repair finds nothing."""
    with qmgr.start("QM1", data_path=str(data)) as manager:
        manager.resolve(XID, commit=True)  # it would hold the log from before the checkpoint
    shutil.rmtree(made / "active")
    checked = run("repair --check -m QM1")
    assert checked.returncode == 20 and "\nLost: " in checked.stdout

    def start(*_: object, **__: object) -> NoReturn:
        raise qmgr.Unavailable("no", reason=qmgr.Reason.STORAGE_MEDIUM_FULL, name="QM1")

    monkeypatch.setattr(repairing, "start", start)
    monkeypatch.setenv("QMGR_DATA_PATH", str(data))
    assert qm(["repair", "-m", "QM1", "--accept-loss"]) == 70
    assert capsys.readouterr().out == checked.stdout
    monkeypatch.undo()
    assert run("repair -m QM1").stdout == "There is nothing to repair.\n"


def test_a_log_that_did_not_end_in_order_is_not_migrated(run: Run, data: Path, made: Path) -> None:  # noqa: F811
    qmgr.start("QM1", data_path=str(data)).abandon()
    done = run("migmqlog -m QM1 -ll")
    assert done.returncode == 71
    assert done.stderr.startswith("AMQ7017S: ") and "start the queue manager and end it" in done.stderr


def test_an_ini_file_that_can_not_say_it_is_refused_first(run: Run, data: Path, made: Path) -> None:  # noqa: F811
    ini = data / "qmgrs" / "QM1" / "qm.ini"
    ini.write_text(ini.read_text() + "LogArchive:\n   ArchiveAfter=2d\n")
    done = run("migmqlog -m QM1 -lla")
    assert done.returncode == 71 and "LogManagement=Automatic" in done.stderr
    assert holds(data) == (19, 1)


def test_nothing_to_repair(run: Run, made: Path) -> None:  # noqa: F811
    for words in ("repair --check -m QM1", "repair -m QM1", "repair -m QM1 --accept-loss"):
        done = run(words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "There is nothing to repair.\n", "")


def test_a_directory_in_the_place_of_qm_ini(run: Run, data: Path, made: Path) -> None:  # noqa: F811
    ini = data / "qmgrs" / "QM1" / "qm.ini"
    ini.unlink()
    ini.mkdir()
    for words in ("repair --check -m QM1", "repair -m QM1"):
        done = run(words)
        assert done.returncode == 71
        assert f"{ini} is a directory; move it away, and have the file made anew (qm repair)" in done.stderr
    ini.rmdir()
    assert run("repair -m QM1").returncode == 0
    assert holds(data) == (19, 1)


@pytest.mark.parametrize("place", ["log/QM1/amqhlctl.lfh", "qmgrs/QM1/amqalchk.fil", "qmgrs/QM1/amqalchk.rsv"])
def test_a_directory_in_the_place_of_a_file(place: str, run: Run, data: Path, made: Path) -> None:  # noqa: F811
    path = data / place
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(qmgr.Unavailable, match=f"{path}'; that is where a file belongs: move it away, and try again"):
        qmgr.start("QM1", data_path=data)
    if not place.endswith(".rsv"):  # with which a repair has nothing to do
        for words in ("repair --check -m QM1", "repair -m QM1"):
            done = run(words)
            assert done.returncode == 71
            assert "that is where a file belongs: move it away, and try again" in done.stderr
    path.rmdir()
    run("repair -m QM1 --accept-loss")
    assert holds(data) == (19, 1)


@pytest.mark.parametrize("kind", ["-lc", "-lla"])
def test_a_lost_directory_of_extents(kind: str, run: Run, data: Path, made: Path, tmp_path: Path) -> None:  # noqa: F811
    """The messages of the last checkpoint are there again, with a log that goes on in a directory made anew."""
    assert run(f"migmqlog -m QM1 {kind}").returncode == 0
    with qmgr.start("QM1", data_path=str(data)) as manager:
        manager.resolve(XID, commit=True)  # it would hold the log from before the checkpoint
        if kind == "-lla":
            manager.advance_log()
    shutil.rmtree(made / "active")
    done = run(f"recover-to -m QM1 --lsn 0:0:5:0 --into {tmp_path}/then")
    assert done.returncode == 71 and re.search(r"LOG (is|and older ones are) missing", done.stderr)
    assert run("repair --check -m QM1").returncode == 20
    done = run("repair -m QM1 --accept-loss")
    assert (done.returncode, done.stderr) == (0, "")
    assert holds(data) == (19, 0)


def test_a_lost_control_file(run: Run, data: Path, made: Path) -> None:  # noqa: F811
    (made / "amqhlctl.lfh").unlink()
    done = run("repair --check -m QM1")
    assert done.returncode == 10
    assert f"Found: {made}/amqhlctl.lfh: the control file is missing." in done.stdout
    assert done.stderr.startswith("AMQ6767W: ") and "loses no persistent message" in done.stderr
    done = run("repair -m QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"The originals of what was changed are in {data}/qmgrs/QM1/repair-1." in done.stdout
    assert "The queue manager was started: " in done.stdout and ", 1 are in doubt." in done.stdout
    assert holds(data) == (19, 1)


def test_a_record_in_the_middle(run: Run, data: Path, made: Path) -> None:  # noqa: F811
    manager = qmgr.start("QM1", data_path=str(data))
    at = manager.status().log.tail
    for _ in range(5):
        manager.put("Q", b"later" * 1000)
    number = manager.status().log.file_numbers[-1]
    manager.abandon()
    path = made / "active" / f"S{number:07d}.LOG"
    content = bytearray(path.read_bytes())
    content[12288 + at % (64 * 4096) + 100] ^= 255
    path.write_bytes(content)
    assert run("dspmqtrn -m QM1").returncode == 71
    for words in ("repair --check -m QM1", "repair -m QM1"):
        done = run(words)
        assert done.returncode == 20
        assert "Lost: 4 records that can still be read" in done.stdout
        assert done.stderr == (
            "AMQ6767W: a repair of queue manager 'QM1' would lose that: qm repair -m QM1 --accept-loss.\n"
        )
    done = run("repair -m QM1 --accept-loss")
    assert (done.returncode, done.stderr) == (0, "")
    assert holds(data) == (19, 1)
    assert (data / "qmgrs" / "QM1" / "repair-1" / "log" / "active" / path.name).read_bytes() == content


def test_what_can_not_be_repaired(run: Run, data: Path, made: Path) -> None:  # noqa: F811
    for extent in (made / "active").iterdir():
        extent.unlink()
    (made / "amqhlctl.lfh").unlink()
    for words in ("repair --check -m QM1", "repair -m QM1 --accept-loss"):
        done = run(words)
        assert done.returncode == 30
        assert done.stderr == "AMQ6767S: queue manager 'QM1' can't be repaired; nothing was changed.\n"


@pytest.mark.parametrize("words", ["migmqlog -m QM1 -ll", "repair -m QM1", "repair --check -m QM1"])
def test_one_that_another_process_has(run: Run, owner: "subprocess.Popen[str]", words: str) -> None:  # noqa: F811
    done = run(words)
    assert done.returncode == 40 and done.stderr.startswith("AMQ7005E: ") and "pid" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "amq"),
    [
        ("migmqlog", 36, "AMQ7006E"),
        ("migmqlog -m NOSUCH", 72, "AMQ7048E"),
        ("migmqlog -m 'A B' -lc", 72, "AMQ7048E"),
        ("migmqlog -m A -lc -ll", 36, "AMQ7076E"),
        ("migmqlog -m A -ld '/x#y'", 100, "AMQ7064E"),
        ("repair", 36, "AMQ7006E"),
        ("repair -m NOSUCH", 72, "AMQ7048E"),
        ("repair --check -m NOSUCH", 72, "AMQ7048E"),
        ("repair --check --accept-loss -m A", 36, "AMQ7076E"),
        ("repair -m A -ld ''", 36, "AMQ7076E"),
    ],
)
def test_bad_words_get_one_line(run: Run, words: str, code: int, amq: str) -> None:  # noqa: F811
    done = run(words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(amq) and done.stderr.count("\n") == 1


def test_a_recovery_that_was_interrupted_is_no_queue_manager_to_repair(run: Run, data: Path):  # noqa: F811
    run(f"crtmqm {SMALL} QM1")
    (data / "qmgrs/QM1/qm.ini").rename(data / "qmgrs/QM1/qm.ini.unfinished")
    for words in ("repair --check -m QM1", "repair -m QM1", "status QM1"):
        done = run(words)
        assert (done.returncode, done.stderr.startswith("AMQ7048E: the recovery of queue manager 'QM1'")) == (72, True)
