"""strmqm, endmqm, dspmq, dltmqm and qm checkini, as people run them: exit codes and sentences."""

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
from qmgr.cli.main import qm
from qmgr.daemon.__main__ import main as module
from tests.daemon.daemons import Daemons


@pytest.mark.parametrize(
    "words, code, amq",
    [
        ("strmqm", 39, "AMQ7006E"),
        ("strmqm A B", 39, "AMQ7075E"),
        ("strmqm -foo A", 39, "AMQ7075E"),
        ("strmqm --foreground 'A B'", 72, "AMQ7048E"),
        ("strmqm --foreground NOSUCH", 16, "AMQ8118E"),
        ("endmqm", 36, "AMQ7006E"),
        ("endmqm -i -p A", 36, "AMQ7076E"),
        ("endmqm -t 0 A", 36, "AMQ7076E"),
        ("endmqm -t x A", 36, "AMQ7076E"),
        ("endmqm -t 1 -tp 1 A", 36, "AMQ7076E"),
        ("endmqm 'A B'", 72, "AMQ7048E"),
        ("endmqm NOSUCH", 16, "AMQ8118E"),
        ("checkini", 72, "AMQ7048E"),
        ("checkini -m NOSUCH", 72, "AMQ7048E"),
        ("checkini /nowhere/qm.ini", 71, "AMQ7002S"),
        ("checkini -m A /x", 36, "AMQ7076E"),
    ],
)
def test_bad_words_get_one_line_and_the_exit_code_of_ibm_mq(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, code: int, amq: str
) -> None:
    monkeypatch.setenv("QMGR_DATA_PATH", str(tmp_path / "data"))
    assert qm(shlex.split(words)) == code
    said = capsys.readouterr()
    assert (said.err[:8], said.err.count("\n")) == (amq, 1)
    assert said.out in ("", "Queue manager 'NOSUCH' starting.\n", "Queue manager 'A B' starting.\n")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "words, code, amq", [([], 39, "AMQ7006E"), (["-x"], 39, "AMQ7006E"), (["NOSUCH"], 16, "AMQ8118E")]
)
def test_the_module_says_the_same(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: list[str],
    code: int,
    amq: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["qmgr.daemon", *words, *([str(tmp_path)] if words == ["NOSUCH"] else [])])
    assert module() == code
    said = capsys.readouterr()
    assert (said.out, said.err[:8], said.err.count("\n")) == ("", amq, 1)


def test_z_says_nothing_of_errors(daemons: Daemons) -> None:
    for words in ("strmqm -z NOSUCH", "endmqm -z NOSUCH"):
        done = daemons.run(words)
        assert (done.returncode, done.stderr) == (16, "")


# What keeps a queue manager from starting


def spoil_log(data: Path) -> None:
    (data / "log/QM1/amqhlctl.lfh").write_bytes(b"rubbish")


def remove_extents(data: Path) -> None:
    shutil.rmtree(data / "log/QM1/active")


def remove_log(data: Path) -> None:
    shutil.rmtree(data / "log/QM1")


def spoil_checkpoint(data: Path) -> None:
    for name in ("amqalchk.fil", "amqalchk.old"):
        (data / "qmgrs/QM1" / name).write_bytes(b"rubbish")


def spoil_ini(data: Path) -> None:
    with (data / "qmgrs/QM1/qm.ini").open("a") as file:
        file.write("Lag:\n")


def block_errors(data: Path) -> None:
    """The error log can't be written: nobody's problem."""
    shutil.rmtree(data / "qmgrs/QM1/errors")
    (data / "qmgrs/QM1/errors").write_text("a file")


def block_queues(data: Path) -> None:
    shutil.rmtree(data / "qmgrs/QM1/queues")
    (data / "qmgrs/QM1/queues").write_text("a file")


def take_the_name_of_the_socket(data: Path) -> None:
    (data / "qmgrs/QM1/qm.sock").mkdir()


def listen_nowhere(data: Path) -> None:
    with (data / "qmgrs/QM1/qm.ini").open("a") as file:
        file.write("Listener:\nName=far\nProtocol=QMGR\nAddress=192.0.2.1\nPort=1414\n")


@pytest.mark.parametrize(
    "spoil, code, words",
    [
        (spoil_log, 23, "AMQ7017E.*amqhlctl"),
        (remove_extents, 23, "AMQ7017E.*S0000000.LOG"),
        (remove_log, 100, "AMQ7064E.*LogPath.*no such directory"),
        (spoil_checkpoint, 23, "AMQ7017E"),
        (spoil_ini, 39, "AMQ7075E.*line [0-9]+.*'Lag'"),
        (block_errors, 0, "^$"),
        (take_the_name_of_the_socket, 71, "AMQ.*qm.sock"),
        (listen_nowhere, 71, "AMQ8101S.*listener 'far' can't use 192.0.2.1, port 1414"),
    ],
)
def test_what_keeps_it_from_starting_is_one_sentence(
    daemons: Daemons, spoil: Callable[[Path], None], code: int, words: str
) -> None:
    daemons.make()
    spoil(daemons.data)
    done = daemons.run("strmqm QM1")
    assert done.returncode == code, done.stderr
    assert re.search(words, done.stderr), done.stderr
    assert done.stderr.count("\n") == bool(code)
    if code:
        assert daemons.run("endmqm QM1").returncode == 40
        again = daemons.run("strmqm --foreground QM1")
        assert (again.returncode, again.stderr) == (code, done.stderr)


# dspmq and dltmqm


def test_dspmq_shows_those_that_run(daemons: Daemons) -> None:
    for name in "ABC":
        daemons.make(name)
    assert daemons.run("dspmq -a").returncode == 0
    process = daemons.start("B")
    done = daemons.run("dspmq -a")
    assert (done.returncode, done.stdout) == (5, "QMNAME(B)".ljust(58) + "STATUS(Running)\n")
    assert daemons.run("dspmq -m A -a").stdout == ""
    assert daemons.run("dltmqm B").returncode == 5
    os.kill(process, signal.SIGKILL)
    daemons.ended("B")
    assert "QMNAME(B)".ljust(58) + "STATUS(Ended unexpectedly)\n" in daemons.run("dspmq").stdout
    assert daemons.run("dltmqm B").returncode == 0
    assert not (daemons.data / "qmgrs/B").exists()


# qm checkini


def test_checkini_says_all_that_is_wrong(daemons: Daemons, tmp_path: Path) -> None:
    daemons.make(ini="TCP:\n   Port=1414\n")
    good = daemons.run("checkini -m QM1")
    assert (good.returncode, good.stdout) == (0, f"{daemons.where().ini} is good.\n")
    assert good.stderr.startswith("AMQ7075W: ") and good.stderr.count("\n") == 1
    with open(daemons.where().ini, "a") as file:
        file.write("Lag:\nListener:\nName=a b\nProtocol=MQTT\nChannels:\nMaxChannels=0\n")
    bad = daemons.run("checkini -m QM1")
    assert (bad.returncode, bad.stdout) == (10, "")
    assert [line.partition(":")[0] for line in bad.stderr.splitlines()] == ["AMQ7075E", *["AMQ7076E"] * 3, "AMQ7006E"]
    assert daemons.run("strmqm QM1").returncode == 39

    there = tmp_path / "elsewhere.ini"
    overlay = tmp_path / "overlay.ini"
    overlay.write_text("TuningParameters:\nMaxHandles=0\n")
    there.write_text(
        f"Log:\nLogPath={tmp_path}/none\nAutoConfig:\nIniConfig={overlay}\nMQSCConfig={tmp_path}/no.mqsc\n"
        "Listener:\nName=a\nProtocol=QMGR\nPort=0\nTLSCertificate=/no/cert\nTLSKey=/no/key\n"
    )
    bad = daemons.run(f"checkini {there}")
    assert bad.returncode == 10
    for words in (
        f"AMQ7076E: {overlay}, line 2: value '0'",
        f"AMQ6166E: {tmp_path}/no.mqsc: No such file or directory.",
        f"AMQ6166E: {there}: LogPath is {tmp_path}/none, and there is no such file or directory.",
        f"AMQ6166E: {there}: TLSCertificate of listener 'a' is /no/cert",
        f"AMQ6166E: {there}: TLSKey of listener 'a' is /no/key",
    ):
        assert words in bad.stderr
    assert bad.stderr.count("\n") == 5


def test_checkini_knows_mqs_ini(daemons: Daemons, tmp_path: Path) -> None:
    daemons.make()
    path = daemons.data / "mqs.ini"
    assert daemons.run(f"checkini {path}").returncode == 0
    shutil.rmtree(daemons.data / "qmgrs/QM1")
    gone = daemons.run(f"checkini {path}")
    assert (gone.returncode, gone.stderr[:8]) == (0, "AMQ7048W")
    path.write_text("QueueManager:\nName=QM1\n")
    assert daemons.run(f"checkini {path}").stderr.startswith(f"AMQ7006E: {path}, line 1")


# Commands and a daemon


def test_a_daemon_does_what_commands_ask_for(daemons: Daemons) -> None:
    daemons.make(log_type="linear")
    daemons.start()
    with daemons.connect() as manager:
        manager.define_queue("Q")
        manager.put("Q", b"x")
        with manager.begin(qmgr.Xid(5, b"global", b"branch")) as unit:
            unit.put("Q", b"in doubt")
            unit.prepare()
        other = manager.begin()
        other.put("Q", b"in flight")

        shown = daemons.run("dspmqtrn -m QM1")
        assert (shown.returncode, shown.stderr) == (0, "")
        (number,) = re.findall(r"Transaction number (\S+) is", shown.stdout)
        assert daemons.run("dspmqtrn -q -m QM1").stdout.count("TRANNUM") == 2
        assert daemons.run(f"rsvmqtrn -m QM1 -c {number}").stdout == f"AMQ7053I: Transaction {number} was committed.\n"
        assert daemons.run("dspmqtrn -m QM1").returncode == 102
        other.commit()
        assert manager.queue("Q").depth == 3

        for words, said in [
            ("rcdmqimg -m QM1 -t ql Q", "Media image for object Q, type qlocal recorded."),
            ("rcrmqobj -m QM1 -t ql NONE", ""),
            ("archive-log -m QM1", "log extents, "),
            ("dmpmqlog -b -m QM1", "LOG RECORD"),
            ("status -m QM1", "QM1"),
        ]:
            done = daemons.run(words)
            assert said in done.stdout, (words, done)
        assert daemons.run("rcrmqobj -m QM1 -t ql NONE").returncode == 128
        manager.put("Q", b"goes on")
    assert daemons.status() == "Running"
