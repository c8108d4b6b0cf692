"""strmqm, endmqm, dspmq, dltmqm and qm checkini, as people run them: exit codes and sentences."""

import datetime
import errno
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

import qmgr
from logger.posix_disk import PosixDisk
from qmgr import life, link
from qmgr.cli.command import explain
from qmgr.cli.main import qm
from qmgr.daemon import starting
from qmgr.daemon.__main__ import main as module
from qmgr.errors import Unavailable
from qmgr.life import Stage
from qmgr.users import Users
from tests.commands import ROOT
from tests.conformance.nursery import halt
from tests.daemon.certificates import Authority
from tests.daemon.daemons import Daemons, wait_for


@pytest.mark.parametrize(
    "words, code, amq",
    [
        ("strmqm", 72, "AMQ7048E"),
        ("strmqm A B", 39, "AMQ7075E"),
        ("strmqm -foo A", 39, "AMQ7075E"),
        ("strmqm --foreground 'A B'", 72, "AMQ7048E"),
        ("strmqm NOSUCH", 16, "AMQ8118E"),
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
    assert said.out == ""
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


def test_strmqm_without_a_name_starts_the_default_queue_manager(daemons: Daemons) -> None:
    daemons.make("OTHER")
    daemons.make("USUAL", default=True)
    done = daemons.run("strmqm")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Queue manager 'USUAL' starting.")
    assert (daemons.status("USUAL"), daemons.status("OTHER")) == ("Running", "Ended normally")


# What keeps a queue manager from starting


def test_what_the_system_refuses_is_said_without_its_number() -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", "/data/qmgrs/QM1/qm.ini")
    code, text = starting.explain(denied)
    assert code == 119
    assert text == (
        "AMQ7077E: you are not authorised to start the queue manager: Permission denied: /data/qmgrs/QM1/qm.ini; "
        "be the user whose it is, or correct its mode or its directory's"
    )


def test_a_start_without_descriptors_says_what_helps() -> None:
    code, text = starting.explain(OSError(errno.EMFILE, "Too many open files"))
    assert (code, text) == (
        71,
        "AMQ7002S: Too many open files; nothing is lost by that: file descriptors have run out: close files, or raise "
        "the limit (ulimit -n), and try again",
    )
    ini = "/data/qmgrs/QM1/qm.ini"  # which has nothing wrong in it
    code, text = starting.explain(OSError(errno.EMFILE, "Too many open files", ini))
    assert (code, text.partition(";")[0]) == (71, f"AMQ7002S: Too many open files: {ini}")
    assert "ulimit -n" in text
    code, text = starting.explain(OSError(errno.EIO, "Input/output error", ini))
    assert (code, text) == (71, f"AMQ7002S: Input/output error: {ini}; mend the disk and try again")


@pytest.mark.parametrize("how", [[], ["--foreground"]])
def test_without_memory_for_a_thread_it_says_so(daemons: Daemons, how: list[str]) -> None:
    daemons.make()
    code = (
        "import sys, threading\nfrom qmgr.cli.main import qm\n"
        'def none(thread): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = none\nsys.exit(qm(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "strmqm", *how, "QM1"]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=daemons.environment, timeout=300, check=False
    )
    assert done.returncode == 69
    text = "the system has no thread for it (can't start new thread); raise the limit of processes (ulimit -u), or of"
    assert done.stderr == f"AMQ6708E: there is no room to start the queue manager: {text} memory, and try again\n"


def test_without_room_for_a_process_it_says_so(daemons: Daemons) -> None:
    """It was told that a file can't be used."""
    daemons.make()
    code = (
        "import os, sys\nfrom qmgr.cli.main import qm\n"
        "def none(): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "os.fork = none\nsys.exit(qm(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "strmqm", "QM1"]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=daemons.environment, timeout=300, check=False
    )
    assert done.returncode == 69
    text = (
        "the system has no process for it (Resource temporarily unavailable); raise the limit of processes (ulimit -u)"
    )
    assert done.stderr.startswith(f"AMQ6708E: there is no room to start the queue manager: {text}")


ORPHAN = """
import os, signal, subprocess, sys, threading, time
from qmgr.cli.main import qm
from tests.daemon.daemons import wait_for
import qmgr

assert os.getpid() == 1


def there():
    try:
        qmgr.connect("QM1").close()
    except qmgr.Unavailable:
        return False
    return True


def beside():
    try:
        wait_for(there)
        subprocess.run(["sh", "-c", "sleep 0.2 &"])  # os.fork would warn of the threads here, from Python 3.12 on
        time.sleep(0.6)
        try:
            print("left over:", os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            print("none is left over")
    finally:
        os.kill(1, signal.SIGTERM)


threading.Thread(target=beside).start()
sys.exit(qm(["strmqm", "--foreground", "QM1"]))
"""


def test_process_1_of_a_container_leaves_no_dead_children_of_others(daemons: Daemons) -> None:
    """They would keep their numbers for as long as the container is there."""
    daemons.make()
    ways = [["unshare", *user, "--pid", "--fork", "--kill-child"] for user in ([], ["--user", "--map-root-user"])]
    able = [
        way
        for way in ways
        if shutil.which("unshare") and subprocess.call([*way, "true"], stderr=subprocess.DEVNULL) == 0
    ]
    if not able:
        pytest.skip("this system lets this user make no namespace of process numbers")
    words = [*able[0], sys.executable, "-c", ORPHAN]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=daemons.environment, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "none is left over" in done.stdout, done.stdout


@pytest.mark.parametrize("command", ["qm status", "qm space", "qm logstat"])
def test_one_that_starts_does_not_show_how_an_earlier_process_of_its_number_stood(
    daemons: Daemons, command: str
) -> None:
    """Process 1 of a container that is started again is process 1."""
    daemons.made()
    wait_for(lambda: os.path.exists(daemons.where().published))
    life.write(PosixDisk(), daemons.where(), attrs.evolve(daemons.note(), stage=Stage.STARTING))
    done = daemons.run(f"{command.removeprefix('qm ')} -m QM1")
    assert (done.returncode, done.stdout) == (40, "")
    assert "queue manager 'QM1' is starting" in done.stderr


def test_an_owner_in_a_container_is_named_as_one(daemons: Daemons) -> None:
    """Its number is another process's here: whoever ended that would end somebody else's."""
    daemons.made()
    note = life.last(PosixDisk(), daemons.where())
    assert note is not None
    life.write(PosixDisk(), daemons.where(), attrs.evolve(note, numbers="pid:[1]"))
    done = daemons.run("strmqm QM1")
    assert done.returncode == 5
    assert re.search(rf"pid {note.process} in (a|another) container holds it; endmqm QM1 ends it", done.stderr)


def test_in_the_background_a_system_without_dev_null_is_said(daemons: Daemons) -> None:
    """A chroot has none; the daemon's process ended, and nobody was told why."""
    daemons.make()
    code = "import os, sys\nfrom qmgr.cli.main import qm\nos.devnull = '/nowhere/null'\nsys.exit(qm(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "strmqm", "QM1"]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=daemons.environment, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (71, "AMQ7002S: No such file or directory: /nowhere/null\n")


def spoil_log(data: Path) -> None:
    (data / "log/QM1/amqhlctl.lfh").write_bytes(b"rubbish")


def remove_extents(data: Path) -> None:
    shutil.rmtree(data / "log/QM1/active")


def test_an_end_that_fails_says_why_and_what_to_do(daemons: Daemons) -> None:
    """It named the error log only, which a full disk may have no room for."""
    daemons.made()
    with daemons.connect() as manager:
        manager.define_queue("Q")
    in_the_way = daemons.data / "qmgrs" / "QM1" / "amqalchk.fil.new"
    in_the_way.mkdir()
    done = daemons.run("endmqm -i QM1")
    assert done.returncode == 71
    assert done.stderr.startswith(
        "AMQ8144E: queue manager 'QM1' could not be ended in order ([Errno 21] Is a directory: "
    )
    assert "move away what lies in its place, and start it again, which recovers it. The error log" in done.stderr
    in_the_way.rmdir()
    assert daemons.run("strmqm QM1").returncode == 0


def remove_log(data: Path) -> None:
    shutil.rmtree(data / "log/QM1")


def put_a_file_for_the_log(data: Path) -> None:
    remove_log(data)
    (data / "log/QM1").touch()


def empty_log(data: Path) -> None:
    remove_log(data)
    (data / "log/QM1").mkdir()


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


def test_a_queue_that_is_damaged_is_told_by_strmqm(daemons: Daemons) -> None:
    """It stops no start, and who starts it would else hear of it from the first program that gets 2101."""
    daemons.make()
    with qmgr.start("QM1", data_path=daemons.data) as manager:
        for name in ("ORDERS", "INVOICES"):
            manager.define_queue(name)
            manager.put(name, b"1")
    (segment,) = (daemons.data / "qmgrs/QM1/queues/ORDERS").glob("*.seg")
    segment.unlink()
    done = daemons.run("strmqm QM1")
    told = [line for line in done.stdout.splitlines() if line.startswith("AMQ")]
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "Queue manager 'QM1' started.")
    assert len(told) == 1 and told[0].startswith("AMQ7472E: Object ORDERS, type queue, is damaged: "), done.stdout
    assert segment.name in told[0]


@pytest.mark.parametrize(
    "spoil, code, words",
    [
        (spoil_log, 23, "AMQ7017E.*amqhlctl"),
        (remove_extents, 23, "AMQ7017E.*/log/QM1/active is not there; mount"),
        (remove_log, 100, "AMQ7064E.*LogPath.*no such directory"),
        (put_a_file_for_the_log, 100, "AMQ7064E.*LogPath.*no such directory"),
        (empty_log, 100, "AMQ7064E.*LogPath.*no log in it"),
        (spoil_checkpoint, 23, "AMQ7017E"),
        (spoil_ini, 39, "AMQ7075E.*line [0-9]+.*'Lag'"),
        (block_errors, 0, "^$"),
        (take_the_name_of_the_socket, 71, "AMQ.*qm.sock"),
        (listen_nowhere, 71, "AMQ9218E.*listener 'far' can't use 192.0.2.1, port 1414"),
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


@pytest.mark.parametrize("note", ["", "rubbish"])  # empty: there was no room on the disk for the first one
def test_a_daemon_whose_note_can_not_be_read_is_ended_over_a_connection(daemons: Daemons, note: str) -> None:
    process = daemons.made()
    path = Path(life.path(daemons.where()))
    path.write_text(note)
    assert daemons.status() == "Running"
    done = daemons.run("strmqm QM1")
    assert (done.returncode, f" pid {process} holds it; endmqm QM1 ends it" in done.stderr) == (5, True), done.stderr
    done = daemons.run("endmqm -p QM1")
    assert done.returncode == 40
    assert done.stderr.startswith("AMQ8146E: queue manager 'QM1' is a daemon, ")
    assert done.stderr.endswith(f"{path}, which names its process, is empty or damaged; kill pid {process}.\n")
    done = daemons.run("endmqm -i QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Queue manager 'QM1' ended.\n")
    assert daemons.status() == "Ended immediately"
    daemons.start()
    assert daemons.status() == "Running"


def test_dspmq_shows_those_that_run(daemons: Daemons) -> None:
    for name in "ABC":
        daemons.make(name)
    assert daemons.run("dspmq -a").returncode == 0
    process = daemons.start("B")
    done = daemons.run("dspmq -a")
    assert (done.returncode, done.stdout) == (5, "QMNAME(B)".ljust(58) + "STATUS(Running)\n")
    assert daemons.run("dspmq -m A -a").stdout == ""
    lines = daemons.run("dspmq -o standby -o status -x").stdout.splitlines()
    assert [line[58:] for line in lines if line.startswith("QMNAME(B)")] == ["STATUS(Running) STANDBY(Not permitted)"]
    assert lines.index(f"    INSTANCE({os.uname().nodename}) MODE(Active)") == 2  # behind B, and nowhere else
    assert len(lines) == 4
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
        f"AMQ6166E: {there}: LogPath is {tmp_path}/none, and there is no such file or directory; correct it",
        f"AMQ6166E: {there}: TLSCertificate of listener 'a' is /no/cert",
        f"AMQ6166E: {there}: TLSKey of listener 'a' is /no/key",
    ):
        assert words in bad.stderr
    assert bad.stderr.count("\n") == 5


def test_checkini_takes_the_name_as_other_commands_do(daemons: Daemons, tmp_path: Path) -> None:
    path = Path(daemons.make().ini)
    for words in ("checkini QM1", "checkini -m QM1", f"checkini {path}"):
        assert daemons.run(words).stdout == f"{path} is good.\n"
    (tmp_path / "QM2").write_text("rubbish\n")
    done = daemons.run(f"checkini {tmp_path}/QM2")
    assert (done.returncode, f"{tmp_path}/QM2, line 1" in done.stderr) == (10, True)
    done = daemons.run("checkini NOSUCH")
    assert (done.returncode, "neither a queue manager 'NOSUCH' nor a file " in done.stderr) == (72, True)
    with qmgr.start("QM1", data_path=str(daemons.data)):
        pass
    Path(path).unlink()
    done = daemons.run("checkini QM1")
    assert (done.returncode, "qm.ini is missing; put it back" in done.stderr) == (72, True)


def test_checkini_says_what_is_not_good_for_tls(daemons: Daemons, tmp_path: Path) -> None:
    signer = Authority(tmp_path)
    certificate, key = signer.issue("localhost")
    other = signer.issue("other")[1]
    text = "Listener:\nName=far\nProtocol=QMGR\nPort=0\nTLSCertificate={}\nTLSKey={}\n"
    path = Path(daemons.make().ini)
    log = path.read_text()
    path.write_text(log + text.format(certificate, key))
    assert daemons.run("checkini -m QM1").returncode == 0
    path.write_text(log + text.format(certificate, other))
    bad = daemons.run("checkini -m QM1")
    assert (bad.returncode, bad.stdout) == (10, "")
    assert bad.stderr.startswith(f"AMQ9255E: listener 'far' can't use {other} (TLSKey) for TLS: it is not the key of")
    assert daemons.run("strmqm QM1").stderr.startswith(bad.stderr.rstrip())
    path.write_text(log + text.format(certificate, "/no/key"))
    assert daemons.run("strmqm QM1").stderr.startswith("AMQ9255E: listener 'far' can't use /no/key (TLSKey) for ")
    old, key = signer.issue("old", not_after=datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC))
    path.write_text(log + text.format(old, key))
    bad = daemons.run("checkini -m QM1")
    assert (bad.returncode, bad.stdout) == (10, "")
    assert bad.stderr == (
        f"AMQ9633E: the certificate in {old} (TLSCertificate of listener 'far') was good until 2020-01-02 00:00:00 "
        f"UTC: clients refuse it; have it renewed.\n"
    )
    begun = daemons.run("strmqm QM1")
    assert begun.returncode == 0  # the others work on
    told = f"AMQ9633W: Bad certificate: the certificate in {old} (TLSCertificate of listener 'far') was good until "
    assert begun.stdout.splitlines()[-2].startswith(told)
    assert told in daemons.errors()


@pytest.mark.parametrize("line", ["LogFilePages=128", "LogType=LINEAR"])
def test_checkini_says_what_a_start_would_be_refused_for(daemons: Daemons, line: str) -> None:
    path = Path(daemons.make().ini)
    name = line.partition("=")[0]
    path.write_text(re.sub(f"{name}=.*", line, path.read_text()))
    bad = daemons.run("checkini QM1")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (10, "", 1)
    assert bad.stderr.startswith(f"AMQ7076E: {path}, line ") and name in bad.stderr
    assert daemons.run("strmqm QM1").stderr.startswith(bad.stderr.rstrip())


def test_checkini_says_nothing_of_what_a_file_that_is_no_text_has_not(daemons: Daemons) -> None:
    path = Path(daemons.make().ini)
    path.write_bytes(path.read_bytes() + b"# caf\xe9\n")
    bad = daemons.run("checkini -m QM1").stderr
    assert (bad[:9], bad.count("\n"), "not UTF-8" in bad) == ("AMQ6162E:", 1, True)


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


def test_runmqsc_goes_on_when_its_queue_manager_is_killed_and_started_again(daemons: Daemons) -> None:
    process = daemons.made()
    words = [sys.executable, "-m", "qmgr.cli.main", "runmqsc", "-e", "QM1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, cwd=ROOT, env=daemons.environment, text=True) as console:
        assert console.stdin is not None and console.stdout is not None and console.stderr is not None

        def said(command: str) -> str:
            console.stdin.write(f"{command}\n")
            console.stdin.flush()
            return next(line for line in console.stdout if line.startswith("AMQ"))

        assert said("ping qmgr").startswith("AMQ8415I: ")
        os.kill(process, signal.SIGKILL)
        daemons.ended()
        lost = said("ping qmgr")
        assert lost.startswith("AMQ8145E: Connection broken: the connection to queue manager 'QM1' was lost (")
        assert "Errno" not in lost
        assert said("ping qmgr").startswith("AMQ8146E: Queue manager not available: ")
        assert said("pnig qmgr").startswith("AMQ8405I: ")
        daemons.start()
        assert said("ping qmgr").startswith("AMQ8415I: ")
        rest, errors = console.communicate("end\n", timeout=60)
    assert (console.returncode, errors) == (10, "")
    assert rest.endswith(
        "5 MQSC commands read.\nOne command has a syntax error.\n2 valid MQSC commands could not be processed.\n"
    )


def test_root_leaves_nothing_among_the_files_of_another_user(daemons: Daemons) -> None:
    if os.geteuid() != 0:
        assert PosixDisk().foreign_owner("/") == ""  # the files' modes refuse any other user, or let it in
        return
    daemons.make(log_type="linear")
    for path in (daemons.data, *daemons.data.rglob("*")):
        os.chown(path, 65534, 65534)
    for words, code in (
        ("strmqm QM1", 119),
        ("strmqm --foreground QM1", 119),
        ("dspmqtrn -m QM1", 119),
        ("runmqsc --offline QM1", 20),
        ("amqsput --offline Q QM1", 119),
        ("rcdmqimg -m QM1 -t all *", 119),
        ("migmqlog -m QM1 -lc", 119),
        ("repair -m QM1", 119),
        ("crtmqm QM2", 119),
        ("dltmqm QM1", 119),
        (f"recover-to -m QM1 --time 2000-01-01 --into {daemons.data}/then", 119),
    ):
        done = daemons.run(words)
        assert (done.returncode, done.stderr[:8]) == (code, "AMQ7077E"), (words, done)
        assert "this is user '" in done.stderr and "be that user: /" in done.stderr
    for words in ("dspmq", "dmpmqlog -m QM1", "status -m QM1", "repair --check -m QM1", "checkini -m QM1"):
        assert daemons.run(words).returncode == 0, words
    with pytest.raises(qmgr.Unavailable, match="be that user"):
        Users(PosixDisk(), daemons.where()).set("mia", "secret")
    assert [path for path in daemons.data.rglob("*") if path.stat().st_uid == 0] == []


def test_root_may_go_on_where_all_files_are_made_another_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on shares that map root to nobody, and in containers on directories of the host."""
    path = tmp_path / "mqs.ini"
    path.write_bytes(b"")
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        assert PosixDisk().foreign_owner(str(path))
    monkeypatch.setattr("logger.posix_disk._owner_of_new", lambda directory: path.stat().st_uid)
    assert PosixDisk().foreign_owner(str(path)) == ""
    assert list(tmp_path.iterdir()) == [path]


def test_commands_that_come_while_it_quiesces_hear_that_it_does(daemons: Daemons) -> None:
    daemons.make(log_type="linear")
    daemons.start()
    with daemons.connect() as manager:
        manager.define_queue("Q")
        unit = manager.begin()
        unit.put("Q", b"in flight")
        assert daemons.run("endmqm QM1").returncode == 0
        daemons.until(Stage.QUIESCING)
        for words, code in (
            ("runmqsc QM1", 20),
            ("amqsput Q QM1", 49),
            ("setmqaut -m QM1 -t qmgr -p mia +connect", 49),
            ("rcdmqimg -m QM1 -t ql Q", 49),
            ("dspmqtrn -m QM1", 49),
        ):
            done = daemons.run(words)
            assert (done.returncode, done.stderr) == (
                code,
                "AMQ8156E: queue manager 'QM1' is ending (2161 MQRC_Q_MGR_QUIESCING)\n",
            )
            assert ("MQCONNX ended with reason code 2161" in done.stdout) == words.startswith("amqs")
        unit.commit()
    daemons.ended()


@pytest.mark.parametrize("words, code", [("dspmqtrn -m QM1", 40), ("runmqsc -e QM1", 20), ("amqsput A QM1", 40)])
def test_a_daemon_that_says_nothing_is_not_available(
    daemons: Daemons, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, code: int
) -> None:
    process = daemons.made()
    monkeypatch.setenv("QMGR_DATA_PATH", str(daemons.data))
    monkeypatch.setattr(link, "HANDSHAKE_TIMEOUT_S", 0.1)
    halt(process)
    try:
        assert qm(shlex.split(words)) == code
        said = capsys.readouterr()
    finally:
        os.kill(process, signal.SIGCONT)
    assert said.err.startswith("AMQ8146E: queue manager 'QM1' does not answer") and "endmqm -p QM1" in said.err
    assert ("MQCONNX ended with reason code 2059" in said.out) == ("amqsput" in words)


def test_a_daemon_that_dies_during_a_command_is_not_available(daemons: Daemons) -> None:
    process = daemons.made()
    with daemons.connect() as connection:
        connection.queues()
        os.kill(process, signal.SIGKILL)
        daemons.ended()
        with pytest.raises(Unavailable) as caught:
            connection.queues()
    assert explain(caught.value)[0] == 40
