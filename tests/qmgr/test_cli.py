"""The commands, run as people run them: exit codes, what goes to stdout and stderr, and never a traceback."""

import argparse
import errno
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

import qmgr
from logger.errors import LogError
from logger.posix_disk import PosixDisk
from qmgr import locations, migration, mqsini, ownership, pointintime, repairing
from qmgr.cli import access, dspmq
from qmgr.cli.command import Command, explain
from qmgr.cli.main import commands, help_text, qm
from qmgr.errors import ResourceProblem, Unavailable
from qmgr.installed import is_compiled
from qmgr.locations import Location
from tests.commands import Commands

ROOT = Path(__file__).parents[2]
SMALL = "-lp 2 -ls 1 -lf 64"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(data: Path, commands: Commands) -> Run:
    """Run `qm WORDS` on a data path of its own; nothing may ever show a traceback.

    With options for its streams, environment or directory it is a new interpreter from the beginning.
    """

    def run(words: str, **options: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "QMGR_DATA_PATH": str(data), "PYTHONDEVMODE": ""}
        if options:
            standard = {"capture_output": True, "text": True, "cwd": ROOT, "env": environment, "timeout": 300}
            command = [sys.executable, "-m", "qmgr.cli.main", *shlex.split(words)]
            done = subprocess.run(command, **standard | options)
        else:
            done = commands.run(shlex.split(words), environment)
        assert "Traceback" not in (done.stderr or "")
        assert "AMQ6118" not in (done.stderr or "")
        return done

    return run


@pytest.fixture
def in_doubt(run: Run, data: Path) -> tuple[qmgr.Xid, qmgr.Xid]:
    """A queue manager QM1 with two units of work in doubt, and a message that nobody doubts."""
    xids = qmgr.Xid(5067085, b"\x01\xabglobal", b"b1"), qmgr.Xid(5067085, b"\x02global", b"")
    assert run(f"crtmqm {SMALL} QM1").returncode == 0
    with qmgr.start("QM1", data_path=str(data)) as manager:
        manager.define_queue("Q")
        manager.put("Q", b"there anyway")
        for xid in xids:
            unit = manager.begin(xid)
            unit.put("Q", b"in doubt " + xid.bqual)
            unit.prepare()
    return xids


@pytest.fixture
def owner(run: Run, data: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has QM1."""
    assert run(f"crtmqm {SMALL} QM1").returncode == 0
    code = "import sys, qmgr\nwith qmgr.start('QM1'):\n  print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "QMGR_DATA_PATH": str(data)},
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.communicate("")


def numbers(text: str) -> list[str]:
    """The transaction numbers, as the scripts of IBM MQ users find them."""
    return re.findall(r"AMQ7056: Transaction number (\S+) ", text)


# Help


@pytest.mark.parametrize("command", commands().values(), ids=lambda c: c.name)
def test_help_has_purpose_example_and_exit_codes(command: Command):
    text = command.parser().format_help()
    assert command.purpose in text
    assert f"Example:\n  {command.program} " in text
    assert re.search(r"Exit codes:\n +0  done\n", text)


@pytest.mark.parametrize("command", commands().values(), ids=lambda c: c.name)
def test_usage_names_every_option(command: Command):
    usage = command.parser().format_usage()
    for option, action in command.parser()._option_string_actions.items():
        if option != "--help" and action.help != argparse.SUPPRESS:  # other words for what the usage has
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", usage), option


@pytest.mark.parametrize("command", commands().values(), ids=lambda c: c.name)
def test_people_of_ibm_mq_ask_for_help_in_other_words(command: Command, capsys: pytest.CaptureFixture[str]):
    wanted = command.parser().format_help()
    for word in ("-?", "-h"):
        if command.name in ("crtmqm", "dspmqtrn") and word == "-h":
            continue  # an option of its own
        assert command.main([word]) == 0
        assert capsys.readouterr() == (wanted, "")


def test_help_of_a_command_ends_well(run: Run):
    assert run("-?").stdout == run("--help").stdout
    assert run("dspmq --help").returncode == 0
    assert "dspmqtrn" in run("--help").stdout
    assert run("").returncode == 36
    said = run("--version").stdout
    assert re.match(r"qmgr \S+", said)
    assert said.endswith(", compiled\n") == is_compiled()


def test_commands_md_is_current_and_has_no_colours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHON_COLORS", "1")  # as on a terminal
    spec = importlib.util.spec_from_file_location("docs_commands", ROOT / "docs" / "commands.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == module.text(), "run python -m docs.commands"


def test_every_command_that_ibm_mq_has_is_installed_under_its_own_name():
    scripts = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name, command in commands().items():
        assert (f'{name} = "qmgr.cli.programs:{name}"' in scripts) == command.own_name
    assert 'qm = "qmgr.cli.programs:qm"' in scripts
    done = subprocess.run([sys.executable, "-m", "qmgr", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == help_text()


def test_a_program_that_starts_a_queue_manager_does_not_wait_for_rich(data: Path):
    """structlog has it for tracebacks on a terminal; where it is installed, an application's own process keeps it."""
    qmgr.create("QM1", data_path=str(data))
    words = ["--offline", "-m", "QM1", "-t", "qmgr", "-p", "mia", "--data-path", str(data)]
    for program, argv in (("dspmqaut", words), ("qm", ["dspmqaut", *words])):
        code = f"import sys; from qmgr.cli import programs; print(programs.{program}(), *sorted(sys.modules))"
        command = [sys.executable, "-c", code, *argv]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        ended, *loaded = done.stdout.splitlines()[-1].split()
        assert (ended, done.stderr) == ("0", "")
        assert "structlog" in loaded
        assert not [name for name in loaded if name.startswith("rich.")]


INTERRUPTED_AT = """
import importlib, os, signal, sys

class Interrupts:
    def find_spec(name, *_):
        if name == {at!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts)
sys.argv = {words!r}
sys.exit(getattr(importlib.import_module({module!r}), {attribute!r})())
"""


def test_mqrc_says_what_a_reason_code_is_called_and_what_a_message_says(run: Run):
    for code in ("2033", "0x7F1", "MQRC_NO_MSG_AVAILABLE", "no_msg_available"):
        assert run(f"mqrc {code}").stdout == "\n      2033  0x000007f1  MQRC_NO_MSG_AVAILABLE\n\n"
    all_of_them = run(f"mqrc {' '.join(str(int(reason)) for reason in qmgr.Reason)}").stdout.split()
    assert all_of_them[2::3] == [f"MQRC_{reason.name}" for reason in qmgr.Reason]
    text = "\nAMQ7485W: Transaction <number> was rolled forward to release log space.\n\nSeverity: warning\n\n"
    assert run("mqrc amq7485").stdout == run("mqrc AMQ7485W").stdout == text
    assert "queue manager <qmgr> started." in run("mqrc AMQ8003").stdout.lower()
    assert run("mqrc 2033 AMQ7485").stdout.count("\n") == 8
    assert run("mqrc 2033 2999").stdout == ""


@pytest.mark.parametrize("words", [["qm", "dspmq"], ["dspmq"]], ids=" ".join)
@pytest.mark.parametrize("at", ["argparse", "attrs", "qmgr.cli.access"])
def test_an_interrupt_while_a_program_is_loaded_ends_it_quietly(words: list[str], at: str):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, attribute = scripts[words[0]].partition(":")
    code = INTERRUPTED_AT.format(at=at, words=words, module=module, attribute=attribute)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# Bad words


@pytest.mark.parametrize(
    "words, code, amq",
    [
        ("frobnicate", 36, "AMQ7075E"),
        ("crtmqm", 39, "AMQ7006E"),
        ("crtmqm A B", 39, "AMQ7075E"),
        ("crtmqm -foo A", 39, "AMQ7075E"),
        ("crtmqm --nope", 39, "AMQ7075E: unrecognized arguments: --nope;"),
        ("crtmqm -sax QM1", 39, "AMQ7075E: unrecognized arguments: -sax (IBM MQ's, and not provided here);"),
        ("strmqm -x -d all QM1", 39, "AMQ7075E: unrecognized arguments: -x -d (IBM MQ's, and not provided here);"),
        ("dspmqver", 36, "AMQ7075E: IBM MQ's dspmqver is not provided here; use qm --version."),
        ("runmqdlq", 36, "AMQ7075E: IBM MQ's runmqdlq is not provided here; use an application with qmgr.deadletter."),
        ("addmqinf -s x", 36, "AMQ7075E: IBM MQ's addmqinf is not provided here; use mqs.ini, or --data-path."),
        ("crtmqm -lb 50 QM2", 39, "AMQ7075E: unrecognized arguments: -lb; see crtmqm --help."),
        ("dspmq -m A\udcff", 72, "AMQ7048E: 'A\\xff' can't be the name of a queue manager: use 1 to 48 of the"),
        ("dspmq A\udcff", 36, "AMQ7075E: unrecognized arguments: A\\xff;"),
        ("dltmqm -foo", 36, "AMQ7075E: unrecognized arguments: -foo;"),
        ("crtmqm -lp", 39, "AMQ7006E"),
        ("crtmqm -lp 3 -lp 5 A", 39, "AMQ7076E: -lp takes one value, and is given more than once; see crtmqm --help."),
        ("rcdmqimg -m A -m A -t all", 36, "AMQ7076E: -m takes one value, and is given more than once;"),
        ("crtmqm -lp 1 A", 115, "AMQ7076E"),
        ("crtmqm -ls 0 A", 115, "AMQ7076E"),
        ("crtmqm -lp 510 -ls 2 A", 115, "AMQ7076E"),
        ("crtmqm -lf 65536 A", 115, "AMQ7076E"),
        ("crtmqm -x 0 A", 39, "AMQ7076E"),
        ("crtmqm -x ten A", 39, "AMQ7076E"),
        ("crtmqm -lc -ll A", 39, "AMQ7076E"),
        ("crtmqm --data-path '' A", 39, "AMQ7076E"),
        ("crtmqm -md /x --data-path /y A", 39, "AMQ7076E"),
        (f"crtmqm -c {'x' * 65} A", 39, "AMQ7076E"),
        ("crtmqm -p 1414 A", 39, "AMQ7076E"),
        ("crtmqm -ic /not/there A", 39, "AMQ6166E"),
        ("crtmqm 'A B'", 72, "AMQ7048E"),
        ("crtmqm 'A;B'", 72, "AMQ7048E"),
        ("crtmqm ''", 72, "AMQ7048E"),
        (f"crtmqm {'A' * 49}", 72, "AMQ7048E"),
        ("crtmqm -u 'no such name!' A", 39, "AMQ7076E"),
        ("crtmqm -ld '/a#b' A", 100, "AMQ7064E"),
        ("dltmqm", 36, "AMQ7006E"),
        ("dltmqm NOSUCH", 16, "AMQ8118E"),
        ("dspmq -o everything", 36, "AMQ7076E"),
        ("dspmq -m NOSUCH", 72, "AMQ7048E"),
        ("dspmq ''", 36, "AMQ7075E: unrecognized arguments: '';"),
        ("dspmqaut -m A -t queue -p mia", 36, "AMQ7006E: -t queue takes -n, which names the queue or a profile"),
        ("dspmqaut -m A -t qmgr -n Q -p mia", 36, "AMQ7006E: -n names queues, so it goes with -t queue only."),
        ("mqrc", 36, "AMQ7006E"),
        ("mqrc 2999", 1, "AMQ7076E: no call here has the reason code 2999."),
        ("mqrc AMQ1111", 1, "AMQ7076E: the error log has no message AMQ1111;"),
        ("mqrc 'x y'", 36, "AMQ7076E: 'x y' is no reason code (2033),"),
        ("strmqm --data-path /not/there", 72, "AMQ7048E: the data path /not/there is not there;"),
        ("status --data-path /not/there", 72, "AMQ7048E: the data path /not/there is not there;"),
        ("dspmqtrn", 72, "AMQ7048E"),
        ("dspmqtrn -m NOSUCH", 72, "AMQ7048E"),
        ("rsvmqtrn -b 0,1", 36, "AMQ7006E"),
        ("rsvmqtrn -m A", 36, "AMQ7006E"),
        ("rsvmqtrn -m A -b", 36, "AMQ7006E"),
        ("rsvmqtrn -m A -b -c 0,1", 36, "AMQ7076E"),
        ("rsvmqtrn -m A -b first", 36, "AMQ7076E"),
        ("rsvmqtrn -m A -b 1,1", 36, "AMQ7076E"),
        ("rsvmqtrn -m A -a 0,1", 36, "AMQ7006E"),
        ("rsvmqtrn -m A -a", 72, "AMQ7048E"),
        ("rsvmqtrn -m A -r 1 0,1", 34, "AMQ7107E"),
        ("rsvmqtrn -m A -b 0,1", 72, "AMQ7048E"),
        ("dmpmqlog -s 1:2", 36, "AMQ7076E"),
        ("dmpmqlog -n 10000000", 36, "AMQ7076E"),
        ("dmpmqlog -b -n 1", 36, "AMQ7076E"),
        ("dmpmqlog -m NOSUCH", 72, "AMQ7048E"),
        ("dmpmqlog -f /nowhere", 100, "AMQ7064E"),
        ("recover-to -m A --lsn 0:0:9:0 --into 'a\tb'", 36, "AMQ7076E"),
        ("crtmqm --data-path 'a\tb' A", 39, "AMQ7076E"),
        ("status -m NOSUCH", 72, "AMQ7048E"),
        ("status", 72, "AMQ7048E"),
        ("status QM1 QM2", 36, "AMQ7075E"),
        ("logstat -m NOSUCH", 72, "AMQ7048E"),
        ("logstat -m 'A B'", 72, "AMQ7048E"),
        ("space -m NOSUCH", 72, "AMQ7048E"),
        ("space --watch 0 -m A", 36, "AMQ7076E"),
        ("space --watch nan -m A", 36, "AMQ7076E"),
        ("space --watch -m A", 36, "AMQ7006E"),
    ],
)
def test_bad_words_get_one_line_and_the_exit_code_of_ibm_mq(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: Path,
    words: str,
    code: int,
    amq: str,
):
    monkeypatch.setenv("QMGR_DATA_PATH", str(data))
    assert qm(shlex.split(words)) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(amq)
    assert said.err.count("\n") == 1
    assert "AMQ6118" not in said.err
    assert not (data / "qmgrs").exists()


@pytest.mark.parametrize("path", ["/proc/nowhere", "/dev/null", "/dev/null/below"])
def test_a_path_that_can_not_be_made_comes_with_what_to_do(data: Path, run: Run, path: str):
    assert run(f"crtmqm {SMALL} QM1").returncode == 0
    assert run("dspmqtrn -m QM1").returncode == 102  # it has been started once, and has none
    way = "[^;]*name another directory|a file lies [^;]*: name another directory, or move the file away"
    for words, code, says in (
        (f"crtmqm -ld {path} QM2", 100, "AMQ7064E: the log path can't be used: "),
        (f"crtmqm --data-path {path} QM2", 71, "AMQ7002S: (the data path|a file) can't be used: "),
        (f"migmqlog -m QM1 -ld {path}", 100, f"AMQ7064E: the log can't be in {path}: "),
        (f"recover-to -m QM1 --time 2999-01-01T00:00:00+00:00 --into {path}", 36, "AMQ7076E: --into was given "),
    ):
        done = run(words)
        assert done.returncode == code
        assert re.fullmatch(rf"{says}.*; ({way})\.\n", done.stderr), done.stderr


def test_z_says_nothing_of_errors(run: Run):
    done = run("dltmqm -z NOSUCH")
    assert (done.returncode, done.stdout, done.stderr) == (16, "", "")


# crtmqm, dspmq, dltmqm


def test_a_queue_manager_is_created_shown_and_deleted(run: Run, data: Path):
    made = run(f"crtmqm {SMALL} -q -x 7 saturn.queue/manager")
    assert (made.returncode, made.stderr) == (0, "")
    home = data / "qmgrs" / "saturn!queue&manager"
    assert made.stdout.splitlines() == [
        "Queue manager 'saturn.queue/manager' created.",
        f"Directory '{home}' created.",
        f"Log directory '{data}/log/saturn!queue&manager' created.",
        "Queue manager 'saturn.queue/manager' is the default one.",
        "Setup completed.",
    ]
    text = (home / "qm.ini").read_text(encoding="utf-8")
    for line in ("LogPrimaryFiles=2", "LogFilePages=64", "MaxUncommittedMsgs=7"):
        assert f"   {line}\n" in text
    assert run(f"crtmqm {SMALL} A").returncode == 0

    shown = run("dspmq")
    assert shown.stdout.splitlines() == [
        "QMNAME(A)".ljust(58) + "STATUS(Ended normally)",
        "QMNAME(saturn.queue/manager)".ljust(58) + "STATUS(Ended normally)",
    ]
    assert "DEFAULT(yes)" in run("dspmq -m saturn.queue/manager -o default").stdout
    everything = run("dspmq -o all -m A").stdout
    assert (
        f"STATUS(Ended normally) DEFAULT(no) STANDBY(Not permitted) DATAPATH({data}/qmgrs/A) LOGPATH({data}/log/A)"
        in everything
    )

    gone = run("dltmqm saturn.queue/manager")
    assert (gone.returncode, gone.stdout) == (0, "Queue manager 'saturn.queue/manager' deleted.\n")
    assert not home.exists()
    assert not (data / "log" / home.name).exists()
    assert run("dltmqm saturn.queue/manager").returncode == 16
    assert run("dspmq").stdout.count("QMNAME") == 1


def test_without_queue_managers_dspmq_shows_nothing_and_says_where(run: Run, data: Path):
    done = run("dspmq")
    assert (done.returncode, done.stdout) == (0, "")
    nowhere = f"AMQ8919I: there are no queue managers on the data path {data}"
    assert done.stderr == f"{nowhere}: there is no such directory; is its file system mounted?\n"
    data.mkdir()
    assert run("dspmq").stderr == f"{nowhere}.\n"


def test_where_there_is_no_default_queue_manager_the_way_out_is_said_and_works(run: Run, data: Path):
    run(f"crtmqm {SMALL} QM1")
    done = run("dspmqtrn")
    assert (done.returncode, done.stderr.count("\n")) == (72, 1)
    assert done.stderr.endswith(f"name one (dspmq shows them), or make it the default one in {data}/mqs.ini.\n")
    with (data / "mqs.ini").open("a") as file:
        file.write("DefaultQueueManager:\n   Name=QM1\n")
    assert run("dspmqtrn").returncode == 102


def test_creating_twice_is_refused_and_harms_nothing(run: Run, data: Path):
    assert run(f"crtmqm {SMALL} QM1").returncode == 0
    before = (data / "qmgrs" / "QM1" / "qm.ini").read_bytes()
    again = run("crtmqm -lp 9 QM1")
    assert (again.returncode, again.stderr[:8]) == (8, "AMQ8110E")
    assert "exists already; start it (strmqm QM1), or delete it first (dltmqm QM1)." in again.stderr
    assert (data / "qmgrs" / "QM1" / "qm.ini").read_bytes() == before
    assert run("dspmqtrn -m QM1").returncode == 102


def test_options_become_attributes_and_those_without_effect_are_noted(run: Run, data: Path):
    done = run(f"crtmqm {SMALL} -c 'The first' -u DEAD -d XMIT -t 5 -h 6 QM1")
    assert done.returncode == 0
    assert [line[:12] for line in done.stderr.splitlines()] == [f"AMQ7076W: -{each}" for each in "dt"]
    for _ in range(2):
        with qmgr.start("QM1", data_path=data) as qm:
            said = qm.attributes
            assert (said.description, said.dead_letter_queue, said.max_handles) == ("The first", "DEAD", 6)


def test_two_who_create_it_at_once_are_told_of_each_other(run: Run, data: Path):
    location = locations.find("QM1", str(data))
    for directory in (location.data_dir, location.log_dir):
        Path(directory).mkdir(parents=True)
    owned = ownership.own(PosixDisk(), location, location.log_dir)
    done = run(f"crtmqm {SMALL} QM1")
    text = f"AMQ8146E: queue manager 'QM1' can't be created: pid {os.getpid()} is about to.\n"
    assert (done.returncode, done.stderr) == (40, text)
    owned.release()
    assert run(f"crtmqm {SMALL} QM1").returncode == 0


@pytest.mark.parametrize("words", ["dspmq -m QM1", "amqsgbr Q QM1"])
def test_there_is_none_where_the_data_path_is_a_file(run: Run, tmp_path: Path, words: str):
    (tmp_path / "file").touch()
    done = run(f"{words} --data-path {tmp_path}/file")
    assert (done.returncode, done.stderr[:47]) == (72, "AMQ7048E: queue manager 'QM1' does not exist: t")


def test_who_gives_the_log_of_another_that_runs_is_told_so(run: Run, data: Path, tmp_path: Path):
    """Nobody is about to create it, so there is nothing to wait for."""
    assert run(f"crtmqm {SMALL} QM1").returncode == 0
    with qmgr.start("QM1", data_path=data):
        done = run(f"crtmqm {SMALL} --data-path {tmp_path}/other -ld {data}/log QM1")
    assert (done.returncode, done.stderr[:30]) == (40, f"AMQ8146E: the log in {data}"[:30])
    assert f"pid {os.getpid()} holds it" in done.stderr
    assert not (tmp_path / "other").exists()


def test_files_for_each_start_are_named_when_it_is_created(run: Run, data: Path, tmp_path: Path):
    (tmp_path / "a.mqsc").write_text("define qlocal(A)\n")
    (tmp_path / "more").mkdir()
    done = run(f"crtmqm {SMALL} -ic {tmp_path}/a.mqsc -ii {tmp_path}/more QM1")
    assert (done.returncode, done.stderr) == (0, "")
    text = (data / "qmgrs" / "QM1" / "qm.ini").read_text()
    assert f"AutoConfig:\n   MQSCConfig={tmp_path}/a.mqsc\n   IniConfig={tmp_path}/more\n" in text
    assert run("checkini -m QM1").returncode == 0
    (data / "qmgrs" / "QM1" / "users.json").write_text("{")
    done = run("checkini -m QM1")
    assert done.returncode == 10 and "users.json is damaged: it is no JSON from line 1" in done.stderr


def test_a_log_path_and_a_data_path_of_their_own(run: Run, tmp_path: Path):
    done = run(f"crtmqm {SMALL} -ld {tmp_path}/logs --data-path {tmp_path}/elsewhere QM1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "logs" / "QM1" / "active" / "S0000000.LOG").exists()
    assert "QMNAME(QM1)" in run(f"dspmq --data-path {tmp_path}/elsewhere").stdout
    assert run("dspmq").stdout == ""


def test_a_relative_data_path_is_seen_from_where_the_user_stands(run: Run, tmp_path: Path):
    here = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    assert run(f"crtmqm {SMALL} --data-path here QM1", **here).returncode == 0
    assert (tmp_path / "here" / "qmgrs" / "QM1" / "qm.ini").exists()


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_what_can_be_no_directory_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str], path: str):
    for words in (["dspmq"], ["dmpmqlog", "-m", "QM1"], ["status"]):
        assert qm([*words, "--data-path", path]) == 36
        said = capsys.readouterr().err
        assert said.startswith("AMQ7076E: argument --data-path: a directory can't be '") and said.count("\n") == 1


def test_what_there_is_no_room_for_has_a_code_of_its_own():
    full = OSError(errno.ENOSPC, "No space left on device", "/log/active/S0000001.LOG")
    deep = ResourceProblem("the log is full", name="A")
    deep.__cause__ = LogError("no extent")
    assert explain(deep) == (70, "AMQ8139E: the log is full (2102 MQRC_RESOURCE_PROBLEM)")
    deep.__cause__.__cause__ = full
    for exc in (deep, full):
        text = "AMQ7002S: no room, free some space: No space left on device: /log/active/S0000001.LOG."
        assert explain(exc) == (70, text)
    limited = OSError(errno.EFBIG, "File too large", "/log/active/S0000001.LOG")
    assert explain(limited)[1].startswith("AMQ7002S: no room, raise the limit for the size of files (ulimit -f): File ")
    assert explain(OSError(errno.ENOSPC, "No space left on device"))[0] == 71  # of what is printed


def test_what_a_user_may_not_do_has_a_code_of_its_own_however_deep_it_was_found():
    denied = Unavailable("can't be started")
    denied.__cause__ = LogError("can't be read")
    denied.__cause__.__cause__ = PermissionError(13, "Permission denied", "/log/amqhlctl.lfh")
    code, text = explain(denied)
    assert (code, text) == (
        119,
        "AMQ7077E: you are not authorised: Permission denied: /log/amqhlctl.lfh; be the user whose it is, or "
        "correct its mode or its directory's.",
    )


def test_a_path_that_is_a_file_is_refused(run: Run, data: Path):
    data.write_text("not a directory")
    for words, code in [("crtmqm QM1", 71), ("crtmqm -ld /dev/null/log --data-path {}2 QM1", 100)]:
        done = run(words.format(data))
        assert done.returncode == code
        assert re.match(r"AMQ70(02|64)", done.stderr)


def test_a_directory_of_somebody_else_is_refused(run: Run):
    """`/proc/1` takes nobody's files, not even root's."""
    done = run("crtmqm --data-path /proc/1/data QM1")
    assert done.returncode in (71, 119)
    assert re.match(r"AMQ70(02S|77E): .*/proc/1", done.stderr)


def test_a_damaged_qm_ini_is_explained(run: Run, data: Path):
    assert run(f"crtmqm {SMALL} QM1").returncode == 0
    path = data / "qmgrs" / "QM1" / "qm.ini"
    path.write_bytes(path.read_bytes() + b"\xff\n")
    for words in ("dspmqtrn -m QM1", "dmpmqlog -m QM1"):
        done = run(words)
        assert done.returncode == 71
        assert done.stderr.startswith(f"AMQ6162E: {path}, line ")


def test_a_damaged_log_is_explained_and_hides_no_other(run: Run, data: Path):
    for name in ("A", "B", "C"):
        assert run(f"crtmqm {SMALL} {name}").returncode == 0
    (data / "log" / "A" / "amqhlctl.lfh").write_bytes(b"rubbish")
    (data / "qmgrs" / "B" / "qm.ini").write_bytes(b"rubbish")
    lines = run("dspmq -o all").stdout.splitlines()
    assert [re.search(r"STATUS\((.*?)\)", line)[1] for line in lines] == [
        "Status not available",
        "Status not available",
        "Ended normally",
    ]
    for words in ("dspmqtrn -m A", "rsvmqtrn -m A -c 0,1", "dmpmqlog -m A"):
        done = run(words)
        assert (done.returncode, done.stderr[:8], done.stderr.count("\n")) == (71, "AMQ6767S", 1)
    assert run("dltmqm A").returncode == 0


def test_a_damaged_mqs_ini_is_explained_before_anything_is_done(run: Run, data: Path):
    assert run(f"crtmqm {SMALL} A").returncode == 0
    (data / "mqs.ini").write_bytes(b"rubbish")
    for words in (f"crtmqm {SMALL} B", "dltmqm A", "dspmq"):
        done = run(words)
        assert (done.returncode, done.stdout) == (71, "")
        assert done.stderr.startswith(f"AMQ6162E: {data}/mqs.ini, line 1: ")
    assert sorted(each.name for each in (data / "qmgrs").iterdir()) == ["A"]


@pytest.mark.parametrize(
    "spoil",
    [
        b"Lag:\n",
        b"rubbish\n",
        b"# caf\xe9\n",
        b"Log:\nLogPrimaryFiles=0\n",
        b"Log:\nLogPrimary=3\n",
        b"Log:\nLogType=CIRCULAR\n",
        b"Listener:\n",
    ],
)
def test_a_queue_manager_whose_qm_ini_is_wrong_can_be_deleted(run: Run, data: Path, spoil: bytes):
    run(f"crtmqm {SMALL} QM1")
    with (data / "qmgrs/QM1/qm.ini").open("ab") as file:
        file.write(spoil)
    assert (run("dltmqm QM1").returncode, list((data / "qmgrs").iterdir()), list((data / "log").iterdir())) == (
        0,
        [],
        [],
    )


def test_where_qm_ini_does_not_say_where_the_log_is_nothing_is_deleted(run: Run, data: Path):
    run(f"crtmqm {SMALL} QM1")
    path = data / "qmgrs/QM1/qm.ini"
    text = path.read_text()
    for spoilt, words in [
        (text.replace("LogPath", "LogPass"), "LogPath"),
        (text.replace("LogPath=/", "LogPath="), "LogPath"),
        (text + "Log:\nLogPath=/nowhere\n", "LogPath"),
    ]:
        path.write_text(spoilt)
        done = run("dltmqm QM1")
        assert (done.returncode, words in done.stderr, done.stderr.count("\n")) == (71, True, 1)
    path.write_text(text)
    assert run("dltmqm QM1").returncode == 0


def test_a_queue_manager_whose_log_is_lost_can_be_deleted(run: Run, data: Path):
    run(f"crtmqm {SMALL} QM1")
    shutil.rmtree(data / "log/QM1")
    assert (run("dltmqm QM1").returncode, list((data / "qmgrs").iterdir())) == (0, [])


@pytest.mark.parametrize("lost", ["", "checkpoint files", "ini of the other one", "and its control file"])
def test_the_log_of_another_queue_manager_is_not_deleted_where_log_path_leads_there(run: Run, data: Path, lost: str):
    for name in ("QM1", "QM2"):
        run(f"crtmqm {SMALL} {name}")
        with qmgr.start(name, data_path=data) as manager:
            manager.define_queue("A")
            manager.put("A", name.encode())
    wrong, other = data / "qmgrs/QM2/qm.ini", data / "qmgrs/QM1/qm.ini"
    text, kept = wrong.read_text(), other.read_text()
    wrong.write_text(text.replace(f"{data}/log/QM2", f"{data}/log/QM1"))
    if lost == "checkpoint files":
        for each in (data / "qmgrs/QM2").glob("amqalchk.*"):
            each.write_bytes(b"")
    elif lost:
        other.write_text("rubbish\n")
    if lost == "and its control file":
        (data / "log/QM1/amqhlctl.lfh").rename(data / "kept")
    done = run("dltmqm QM2")
    assert (done.returncode, done.stderr.count("\n")) == (71, 1)
    assert f"LogPath in {wrong} is {data}/log/QM1, and that is " in done.stderr
    if lost == "and its control file":
        (data / "kept").rename(data / "log/QM1/amqhlctl.lfh")
    other.write_text(kept)
    with qmgr.start("QM1", data_path=data) as manager:
        assert manager.get("A").body == b"QM1"
    wrong.write_text(text)
    assert [run(f"dltmqm {name}").returncode for name in ("QM2", "QM1")] == [0, 0]
    assert [*(data / "qmgrs").iterdir(), *(data / "log").iterdir()] == []


def test_a_copy_of_the_data_does_not_take_the_log_with_it(run: Run, data: Path):
    run(f"crtmqm {SMALL} QM1")
    shutil.copytree(data / "qmgrs/QM1", data / "qmgrs/QM2")
    done = run("dltmqm QM2")
    assert (done.returncode, f"that of {data}/qmgrs/QM1/qm.ini too" in done.stderr) == (71, True)
    assert run("dspmqtrn -m QM1").returncode == 102


def test_a_deletion_that_was_interrupted_is_said_and_can_be_repeated(run: Run, data: Path):
    run(f"crtmqm {SMALL} QM1")
    (data / "qmgrs/QM1/qm.ini").rename(data / "qmgrs/QM1/qm.ini.deleted")
    for words, code in [("runmqsc QM1", 20), ("dspmqtrn -m QM1", 72), ("endmqm QM1", 16), ("strmqm QM1", 16)]:
        done = run(words)
        assert (done.returncode, "was interrupted; repeat it (dltmqm)" in done.stderr) == (code, True)
    done = run("dspmq")
    assert (done.returncode, done.stdout, done.stderr.startswith("AMQ8118W: the deletion of")) == (0, "", True)
    assert (run("dltmqm QM1").returncode, list((data / "qmgrs").iterdir()), list((data / "log").iterdir())) == (
        0,
        [],
        [],
    )


def test_what_others_put_into_our_directories_is_passed_over_and_left_alone(run: Run, data: Path) -> None:
    """A file system of its own has lost+found, a share .nfs files, and somebody leaves notes."""
    assert run(f"crtmqm -ll {SMALL} QM1").returncode == 0
    directories = [one for one in data.rglob("*") if one.is_dir()]
    for directory in directories:
        (directory / "lost+found").mkdir()
        for name in (".nfs0001", "notes", "notes.txt"):
            (directory / name).write_text("somebody's")
    for number in range(3):
        with qmgr.start("QM1", data_path=data) as qm:
            if not number:
                qm.define_queue("Q")
            qm.put("Q", bytes(100_000))
            qm.checkpoint()
            qm.record_image("Q")
            qm.recreate("Q")
            assert qm.queue("Q").depth == number + 1
    assert run("dspmq").stdout.count("QMNAME") == 1
    for words in ("qm checkini QM1", "qm repair -m QM1", "migmqlog -m QM1 -lc", f"migmqlog -m QM1 -ld {data}/moved"):
        done = run(words.removeprefix("qm "))
        assert (done.returncode, done.stderr) == (0, ""), words
    left = {one.relative_to(data) for one in (data / "log").rglob("*") if one.is_file()}
    assert {path.name for path in left} - {"qm.lock"} == {".nfs0001", "notes", "notes.txt"}, "the log was moved away"
    with qmgr.start("QM1", data_path=data) as qm:
        assert len(qm.get_many("Q", 9)) == 3


def test_dspmq_shows_the_others_beside_one_that_this_user_may_not_look_at(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("QM1", "QM2"):
        assert run(f"crtmqm {SMALL} {name}").returncode == 0
    there = access.there

    def denied(name: str, data_path: str | None) -> Location:
        if name == "QM1":
            raise PermissionError(13, "Permission denied", f"{data}/qmgrs/QM1")
        return there(name, data_path)

    monkeypatch.setattr(access, "there", denied)
    assert dspmq.COMMAND.main(["--data-path", str(data)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(None, 1)[1] for line in shown] == ["STATUS(Status not available)", "STATUS(Ended normally)"]
    assert dspmq.COMMAND.main(["--data-path", str(data), "-m", "QM1"]) == 119


def test_dspmq_shows_the_others_beside_one_that_can_not_be_looked_at(run: Run, data: Path):
    """Whose disk does not answer, say: it used to be the only one that was told of."""
    for name in ("QM1", "QM2"):
        assert run(f"crtmqm {SMALL} {name}").returncode == 0
    home = data / "qmgrs/QM1"
    home.rename(data / "away")
    home.symlink_to(home)
    done = run("dspmq")
    assert [line.split(None, 1) for line in done.stdout.splitlines()] == [
        ["QMNAME(QM1)", "STATUS(Status not available)"],
        ["QMNAME(QM2)", "STATUS(Ended normally)"],
    ]
    assert done.stderr.startswith("AMQ8118W: queue manager 'QM1' can't be looked at: Too many levels of symbolic links")
    assert (done.returncode, done.stderr.count("\n"), run("dspmq -m QM1").returncode) == (0, 1, 71)


def test_dspmq_tells_of_a_queue_manager_that_has_lost_its_qm_ini(run: Run, data: Path):
    for name in ("QM1", "QM2"):
        run(f"crtmqm {SMALL} {name}")
    run("runmqsc --offline QM1", input="def ql(A)\n")
    path = data / "qmgrs/QM1/qm.ini"
    path.unlink()
    done = run("dspmq")
    assert (done.returncode, re.findall(r"QMNAME\((.*?)\)", done.stdout)) == (0, ["QM2"])
    assert done.stderr == f"AMQ8118W: {path} is missing; put it back, or have it made anew (qm repair -m QM1).\n"
    assert run("dspmq -m QM2").stderr == ""
    assert run("dltmqm QM2").returncode == 0
    assert "AMQ8919I" not in run("dspmq").stderr


AWAY = [("dspmq -m", 72), ("strmqm", 16), ("endmqm", 16), ("dltmqm", 16), ("runmqsc", 20), ("dspmqtrn -m", 72),
        ("qm repair -m", 72), ("checkini", 72), ("crtmqm", 8)]  # fmt: skip


@pytest.mark.parametrize("mount_point", [False, True])
def test_a_queue_manager_whose_directory_is_away_is_said_and_not_made_anew_in_its_place(
    run: Run, data: Path, tmp_path: Path, mount_point: bool
):
    for name in ("QM1", "QM2"):
        run(f"crtmqm {SMALL} {name}")
    home = data / "qmgrs/QM1"
    home.rename(tmp_path / "away")
    if mount_point:
        home.mkdir()
    listing = f"{data}/mqs.ini"
    said = f"listed in {listing}, but {home} is {'empty' if mount_point else 'not there'}; mount its file system"
    for words, code in AWAY:
        done = run(f"{words.removeprefix('qm ')} QM1")
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (code, True, 1), words
    for refused in (qmgr.create, qmgr.start, qmgr.connect, repairing.repair, migration.migrate_log):
        with pytest.raises(qmgr.MQError, match="mount its file system"):
            refused("QM1", data_path=data)
    with pytest.raises(qmgr.MQError, match="mount its file system"):
        pointintime.refuse_target(PosixDisk(), locations.find("QM1", data))
    done = run("dspmq")
    assert (done.returncode, re.findall(r"QMNAME\((.*?)\)", done.stdout)) == (0, ["QM2"])
    assert done.stderr.startswith("AMQ8118W: queue manager 'QM1' is listed")
    assert list(home.iterdir() if mount_point else []) == []
    shutil.rmtree(home, ignore_errors=True)
    (tmp_path / "away").rename(home)
    assert (run("dspmq").stderr, run("dltmqm QM1").returncode) == ("", 0)


@pytest.mark.parametrize("mount_point", [False, True])
def test_a_start_is_refused_while_the_queues_are_away(run: Run, data: Path, tmp_path: Path, mount_point: bool):
    run(f"crtmqm {SMALL} QM1")
    with qmgr.start("QM1", data_path=data) as qm:
        for name in ("A", "B"):
            qm.define_queue(name)
            qm.put_many(name, [b"one", b"two"])
        qm.checkpoint()
        qm.put("B", b"in the log only")
    queues = data / "qmgrs/QM1/queues"
    queues.rename(tmp_path / "away")
    if mount_point:
        queues.mkdir()
    done = run("strmqm QM1")
    said = f"the queues' directory {queues} is {'empty' if mount_point else 'not there'}; mount its file system"
    assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (71, True, 1), done.stderr
    for words in ("repair --check", "repair"):
        done = run(f"{words} -m QM1")
        assert (done.returncode, said in done.stdout, done.stderr.count("\n")) == (30, True, 1), done.stdout
    assert list(queues.iterdir() if mount_point else []) == []
    (tmp_path / "away").rename(queues)
    with qmgr.start("QM1", data_path=data) as qm:
        assert [m.body for m in qm.get_many("B", 9)] == [b"one", b"two", b"in the log only"]
    shutil.rmtree(queues)
    (queues / "A").mkdir(parents=True)  # as is said: they are gone for good
    with qmgr.start("QM1", data_path=data) as qm:
        assert set(qm.damaged()) == {"A"}
        qm.put("B", b"works")


def test_a_start_is_refused_while_a_queue_is_away_of_which_no_image_was_recorded_yet(
    run: Run, data: Path, tmp_path: Path
):
    run(f"crtmqm -ll {SMALL} QM1")
    with qmgr.start("QM1", data_path=data) as qm:
        qm.define_queue("A", image_recoverable="NO")
        qm.put_many("A", [b"one", b"two"])
        qm.alter_queue("A", image_recoverable="YES")
    queues = data / "qmgrs/QM1/queues"
    queues.rename(tmp_path / "away")
    done = run("strmqm QM1")
    assert (done.returncode, "mount its file system" in done.stderr) == (71, True), done.stderr
    (tmp_path / "away").rename(queues)
    with qmgr.start("QM1", data_path=data) as qm:
        assert [m.body for m in qm.get_many("A", 9)] == [b"one", b"two"]


def test_a_log_path_where_another_one_has_its_log_that_was_never_started(run: Run, tmp_path: Path) -> None:
    for root, code in (("one", 0), ("two", 8)):
        assert run(f"crtmqm {SMALL} --data-path {tmp_path / root} -ld {tmp_path / 'logs'} QM1").returncode == code
    assert not (tmp_path / "two/qmgrs/QM1").exists()
    with qmgr.start("QM1", data_path=tmp_path / "one") as qm:
        assert qm.queues() == []


def test_one_whose_directory_is_gone_for_good_can_be_made_anew_as_is_said(run: Run, data: Path):
    run(f"crtmqm {SMALL} QM1")
    shutil.rmtree(data / "qmgrs/QM1")
    assert "take its QueueManager stanza out of" in run(f"crtmqm {SMALL} QM1").stderr
    (data / "mqs.ini").write_text("")
    assert "move it away if that queue manager is gone for good" in run(f"crtmqm {SMALL} QM1").stderr
    (data / "log/QM1").rename(data / "old")
    assert (run(f"crtmqm {SMALL} QM1").returncode, run("dspmq").stdout.count("QMNAME")) == (0, 1)
    for directory in ("qmgrs/QM1", "log/QM1"):
        shutil.rmtree(data / directory)
    assert (run(f"crtmqm {SMALL} QM1").returncode, run("dspmq").stdout.count("QMNAME")) == (0, 1), "all was removed"


def test_a_data_path_that_is_away_is_said(run: Run, data: Path):
    said = f"the data path {data} is not there; mount its file system"
    for words, code in AWAY[:6]:
        done = run(f"{words} QM1")
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (code, True, 1), words
        assert "name another one (QMGR_DATA_PATH)" in done.stderr, words
    for face in (qmgr.start, qmgr.connect):
        with pytest.raises(qmgr.Unavailable, match=said):
            face("QM1", data_path=data)


def test_a_deletion_that_is_killed_at_its_end_leaves_nothing_that_looks_like_one_that_is_away(run: Run, data: Path):
    run(f"crtmqm {SMALL} QM1")
    disk = _DiesIn("rmdir", str(data / "qmgrs/QM1"))
    with pytest.raises(KeyboardInterrupt):
        qmgr.delete("QM1", data_path=data, disk=disk)
    assert (run("dspmq").stderr, run(f"crtmqm {SMALL} QM1").returncode) == (
        f"AMQ8919I: there are no queue managers on the data path {data}.\n",
        0,
    )


class _DiesIn(PosixDisk):
    """A disk on which the process is ended in one call, for one path."""

    def __init__(self, call: str, path: str) -> None:
        self._path = path
        setattr(self, call, self._die)

    def _die(self, path: str) -> None:
        if path == self._path:
            raise KeyboardInterrupt


def test_strange_directories_are_not_shown(run: Run, data: Path):
    assert run(f"crtmqm {SMALL} A").returncode == 0
    for stranger in ("A.B", "no name", "empty"):
        (data / "qmgrs" / stranger).mkdir()
    for stranger in ("A.B", "no name"):
        (data / "qmgrs" / stranger / "qm.ini").touch()
    assert re.findall(r"QMNAME\((.*?)\)", run("dspmq").stdout) == ["A"]


def test_many_commands_at_once(run: Run, data: Path):
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(run, [f"crtmqm {SMALL} {name}" for name in "AABCDE"]))
    codes = [each.returncode for each in made]
    assert codes[2:] == [0, 0, 0, 0]
    assert sorted(codes[:2]) in ([0, 8], [0, 40])
    text = (data / "mqs.ini").read_text(encoding="utf-8")
    assert sorted(re.findall(r"Name=(\w)", text)) == ["A", "B", "C", "D", "E"]


# A queue manager that somebody has


def test_a_running_queue_manager_is_shown_and_left_alone(run: Run, owner: subprocess.Popen[str]):
    assert "STATUS(Running)" in run("dspmq -m QM1").stdout
    for words, code, amq in [
        ("dltmqm QM1", 5, "AMQ7005E"),
        ("dspmqtrn -m QM1", 40, "AMQ8146E"),
        ("rsvmqtrn -m QM1 -c 0,1", 40, "AMQ8146E"),
    ]:
        done = run(words)
        assert (done.returncode, done.stderr[:8]) == (code, amq)
        assert f"pid {owner.pid}" in done.stderr
    assert run("dmpmqlog -m QM1").returncode == 0
    assert owner.poll() is None


@pytest.mark.parametrize("words", ["dltmqm A", "recover-to -m A --into {}/then --time 2099-01-01T00:00:00"])
def test_a_list_that_is_being_changed_is_not_taken_for_a_queue_manager_that_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path, run: Run, words: str
):
    assert run(f"crtmqm -ll {SMALL} A").returncode == 0
    assert run("dspmqtrn -m A").returncode == 102  # it has been started
    monkeypatch.setenv("QMGR_DATA_PATH", str(data))
    monkeypatch.setattr(mqsini, "LOCK_TRIES", 1)
    for root in (data, data / "then"):
        root.mkdir(exist_ok=True)
        PosixDisk().lock(f"{root}/mqs.ini.lock", "pid 4711")
    assert qm(shlex.split(words.format(data))) == 40
    assert capsys.readouterr().err.startswith("AMQ8146E: mqs.ini is being changed: ")


def test_a_killed_queue_manager_ended_unexpectedly(run: Run, owner: subprocess.Popen[str]):
    owner.kill()
    owner.wait()
    assert "STATUS(Ended unexpectedly)" in run("dspmq -m QM1").stdout
    assert run("dspmqtrn -m QM1").returncode == 102
    assert "STATUS(Ended normally)" in run("dspmq -m QM1").stdout


# Transactions


def test_units_of_work_in_doubt_are_shown_and_resolved(run: Run, data: Path, in_doubt: tuple[qmgr.Xid, qmgr.Xid]):
    shown = run("dspmqtrn -m QM1")
    assert (shown.returncode, shown.stderr) == (0, "")
    first, second = numbers(shown.stdout)
    assert (
        "   XID: formatID 5067085, gtrid_length 8, bqual_length 2\n"
        "        gtrid [01AB676C6F62616C]\n"
        "        bqual [6231]\n"
    ) in shown.stdout
    assert numbers(run("dspmqtrn -e -m QM1").stdout) == [first, second]
    assert numbers(run("dspmqtrn -a -m QM1").stdout) == [first, second]
    assert run("dspmqtrn -q -m QM1").stdout.splitlines() == [
        f"TRANNUM({number}) UOWSTATE(PREPARED)" for number in (first, second)
    ]
    for option in ("-i", "-h"):
        assert run(f"dspmqtrn {option} -m QM1").returncode == 102

    committed = run(f"rsvmqtrn -m QM1 -c {first}")
    assert (committed.returncode, committed.stdout) == (0, f"AMQ7053I: Transaction {first} was committed.\n")
    backed_out = run(f"rsvmqtrn -m QM1 -b {second.replace(',', '.')}")
    assert (backed_out.returncode, backed_out.stdout) == (0, f"AMQ7054I: Transaction {second} was backed out.\n")
    assert run("dspmqtrn -m QM1").returncode == 102
    with qmgr.start("QM1", data_path=str(data)) as manager:
        assert [message.body for message in manager.browse("Q")] == [b"there anyway", b"in doubt b1"]


def test_what_is_not_in_doubt_is_not_resolved(run: Run, in_doubt: tuple[qmgr.Xid, qmgr.Xid]):
    (first, _) = numbers(run("dspmqtrn -m QM1").stdout)
    for words, code in (("-c 0,999999", 85), ("-b 999999", 85), (f"-f {first}", 32)):
        done = run(f"rsvmqtrn -m QM1 {words}")
        assert (done.returncode, done.stderr[:8]) == (code, "AMQ7055E")
    done = run("rsvmqtrn -m QM1 -a")
    assert done.returncode == 0
    assert "nothing to resolve" in done.stderr
    assert len(numbers(run("dspmqtrn -m QM1").stdout)) == 2


# dmpmqlog


def test_a_log_is_dumped_though_its_checkpoint_file_can_not_be_read(
    run: Run, data: Path, in_doubt: tuple[qmgr.Xid, qmgr.Xid]
):
    """Which has only the names of queues that were defined before the log that there is."""
    whole = run("dmpmqlog -b -m QM1")
    for name in ("amqalchk.fil", "amqalchk.old"):
        path = data / "qmgrs" / "QM1" / name
        path.unlink(missing_ok=True)
        path.mkdir()
    done = run("dmpmqlog -b -m QM1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("LOG RECORD - LSN <") == whole.stdout.count("LOG RECORD - LSN <")


def test_the_log_is_dumped_as_text_and_json(run: Run, in_doubt: tuple[qmgr.Xid, qmgr.Xid]):
    text = run("dmpmqlog -b -m QM1")
    assert (text.returncode, text.stderr) == (0, "")
    assert text.stdout.count("LOG RECORD - LSN <") > 5
    lines = [json.loads(line) for line in run("dmpmqlog -b --json -m QM1").stdout.splitlines()]
    assert len(lines) == text.stdout.count("LOG RECORD - LSN <") + 1


# Streams


def test_a_reader_that_leaves_is_no_error(run: Run, in_doubt: tuple[qmgr.Xid, qmgr.Xid]):
    read, write = os.pipe()
    os.close(read)
    for words in ("dmpmqlog -b -m QM1", "dspmq", "dspmq --help", "--help"):
        done = run(words, capture_output=False, stdout=write, stderr=subprocess.PIPE)
        assert done.stderr == "", words
        assert done.returncode in (0, 141)
    os.close(write)


@pytest.mark.parametrize(
    "unbuffered, what",
    [
        ("", "the command did its work, but standard output can't be written"),
        ("1", "a file, or standard output, can't be used"),
    ],
)
def test_a_full_disk_behind_stdout_is_said(run: Run, data: Path, unbuffered: str, what: str):
    env = {**os.environ, "QMGR_DATA_PATH": str(data), "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        for words in (f"crtmqm {SMALL} QM1", "dspmq"):
            done = run(words, capture_output=False, stdout=full, stderr=subprocess.PIPE, env=env)
            assert (done.returncode, done.stderr) == (71, f"AMQ7002S: {what}: No space left on device.\n")
        for words in ("dspmq --help", "--help"):
            done = run(words, capture_output=False, stdout=full, stderr=subprocess.PIPE, env=env)
            assert (done.returncode, done.stderr) == (71, f"AMQ7002S: {what}: No space left on device.\n")
    assert run("dspmq").stdout.startswith("QMNAME(QM1)")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_streams_are_no_error(data: Path, closed: str):
    env = {**os.environ, "QMGR_DATA_PATH": str(data)}
    commands = [("dspmq", 0), ("dltmqm NOSUCH", 16), ("--help", 0), ("dspmq --help", 0)]
    if ">&-" in closed.split():
        commands.append(("space -m NOSUCH --watch 1", 71))  # which would show pictures to nobody, for ever
    for words, code in commands:
        command = f"{shlex.quote(sys.executable)} -m qmgr.cli.main {words} {closed}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, env=env, timeout=300)
        assert done.returncode == code
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
        assert "AMQ6118" not in done.stderr


def test_names_that_the_terminal_cannot_show_are_escaped(run: Run, data: Path):
    env = {**os.environ, "QMGR_DATA_PATH": str(data), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run("crtmqm Zürich", env=env)
    assert done.returncode == 72
    assert "Z\\xfcrich" in done.stderr


def test_who_may_not_do_that_is_not_authorised_and_made_no_mistake_in_words(capsys: pytest.CaptureFixture[str]):
    def refused(args: argparse.Namespace) -> int:
        raise qmgr.NotAuthorized("this user may not connect")

    assert attrs.evolve(dspmq.COMMAND, run=refused).main([]) == 119
    assert capsys.readouterr().err == "AMQ7077E: this user may not connect (2035 MQRC_NOT_AUTHORIZED)\n"


def test_crtmqm_takes_what_log_defaults_says_unless_it_is_told_otherwise(run: Run, data: Path, tmp_path: Path) -> None:
    data.mkdir(exist_ok=True)
    said = f"LogType=LINEAR\n   LogManagement=Automatic\n   LogFilePages=64\n   LogDefaultPath={tmp_path}/fast"
    (data / "mqs.ini").write_text(f"LogDefaults:\n   {said}\n")
    assert run("crtmqm QM1").returncode == 0
    assert run(f"crtmqm -lc -lf 128 -ld {tmp_path}/slow QM2").returncode == 0
    texts = [(data / "qmgrs" / name / "qm.ini").read_text() for name in ("QM1", "QM2")]
    for text, wanted in zip(
        texts,
        (
            ("LogType=LINEAR", "LogManagement=Automatic", "LogFilePages=64", f"LogPath={tmp_path}/fast/QM1/"),
            ("LogType=CIRCULAR", "LogManagement=Manual", "LogFilePages=128", f"LogPath={tmp_path}/slow/QM2/"),
        ),
        strict=True,
    ):
        assert [line for line in wanted if f"   {line}\n" not in text] == []
    (data / "mqs.ini").write_text("LogDefaults:\n   LogPrimaryFiles=2\n   LogSecondaryFiles=1\n   LogFilePages=64\n")
    assert run("crtmqm -z -lp 510 QM4").returncode == 0
    (data / "mqs.ini").write_text("LogDefaults:\n   LogSecondaryFiles=500\n")
    refused = run("crtmqm -lp 100 QM3")
    assert (refused.returncode, refused.stderr) == (
        115,
        "AMQ7076E: -lp and -ls, here 100 and 500, add up to 600 extents; allowed: 3 to 511.\n",
    )
    (data / "mqs.ini").write_text("LogDefaults:\n   LogFilePages=1\n")
    refused = run("crtmqm QM3")
    says = f"{data}/mqs.ini, line 2: value '1' of attribute LogFilePages of stanza LogDefaults"
    assert refused.returncode == 39 and says in refused.stderr
    (data / "mqs.ini").write_text("LogDefaults:\n   LogFilePages=1\n   Foo=2\n")
    checked = run(f"checkini {data}/mqs.ini")
    assert checked.returncode == 10 and says in checked.stderr
    assert f"{data}/mqs.ini, line 3: unknown attribute 'Foo' of stanza LogDefaults" in checked.stderr
    assert "LogDefaultPath" in checked.stderr and "LogPath" not in checked.stderr
