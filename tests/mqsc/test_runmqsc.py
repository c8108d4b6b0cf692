"""runmqsc and the samples as people run them: what is printed, exit codes, and never a traceback."""

import errno
import io
import os
import pty
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import qmgr
from qmgr.cli import access, runmqsc
from qmgr.cli.main import qm
from qmgr.errors import Unavailable
from qmgr.verbs import PutOptions

ROOT = Path(__file__).parents[2]
HEAD = "Starting MQSC for queue manager QM1.\n\n\n"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "data"
    monkeypatch.setenv("QMGR_DATA_PATH", str(path))
    qmgr.create(
        "QM1", data_path=path, log_primary_files=2, log_secondary_files=1, log_file_pages=64, log_buffer_pages=18
    )
    return path


@pytest.fixture
def run(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `qm WORDS` in this process, with these bytes as standard input."""

    def run(words: str, given: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        code = qm(words.split())
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "AMQ6118" not in said.err
        return code, said.out, said.err

    return run


def test_commands_come_from_standard_input_and_are_echoed_with_their_numbers(run: Run) -> None:
    code, out, err = run("runmqsc --offline QM1", b"* first\ndef ql(A)\ndef ql(A)\nrubbish\nend\ndef ql(B)\n")
    assert (code, err) == (10, "")
    assert out == HEAD + (
        "       : * first\n"
        "     1 : def ql(A)\n"
        "AMQ8006I: Queue created.\n"
        "     2 : def ql(A)\n"
        "AMQ8150E: Object A already exists.\n"
        "     3 : rubbish\n"
        "AMQ8405I: Syntax error detected at or near end of command segment below:-\n"
        "rubbish\n"
        "      ^\n"
        "line 1, column 7: there is no command RUBBISH; there are DEFINE, ALTER, DELETE, CLEAR, DISPLAY, RESET, SET, "
        "PING, REFRESH, STOP\n"
        "     4 : end\n"
        "3 MQSC commands read.\n"
        "One command has a syntax error.\n"
        "One valid MQSC command could not be processed.\n"
    )
    code, out, err = run("runmqsc --offline -e -p mqsc> -m QM1", b"dis ql(*) where(curdepth eq 0)\n\nping qmgr")
    assert (code, err) == (0, "")
    assert "mqsc>AMQ8409I: Display Queue details.\n   QUEUE(A)  " in out
    assert "QUEUE(B)" not in out
    assert out.endswith(
        "mqsc>mqsc>AMQ8415I: Ping Queue Manager command complete.\nmqsc>2 MQSC commands read.\n"
        "No commands have a syntax error.\nAll valid MQSC commands were processed.\n"
    )


def test_a_disk_that_becomes_full_ends_it_and_what_was_run_is_told(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 would say that nothing was run."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            if "created" in text:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(text)

    monkeypatch.setattr(sys, "stdin", io.StringIO("def ql(A)\ndef ql(B)\n"))
    monkeypatch.setattr(sys, "stdout", Full())
    assert qm(["runmqsc", "--offline", "QM1"]) == 71
    told = "AMQ7002S: standard input or output failed when 1 commands had been run: No space left on device."
    assert capsys.readouterr().err.startswith(told)
    with qmgr.start("QM1") as manager:
        assert [queue.name for queue in manager.queues()] == ["A"]


def test_commands_come_from_a_file_and_can_be_verified_only(run: Run, data: Path) -> None:
    script = data / "script.mqsc"
    script.write_bytes(b"def ql(A) +\r\n  descr('x')\r\ndef ql(\xff)\r\n")
    for words in ("-v QM1", "-n"):
        code, out, err = run(f"runmqsc {words} -f {script}")
        assert (code, err) == (10, "")
        assert "2 MQSC commands read.\nOne command has a syntax error.\n" in out
    code, out, _ = run(f"runmqsc --offline -f {script} QM1")
    assert code == 10
    assert (
        "     1 : def ql(A) +\n       :   descr('x')\nAMQ8006I: Queue created.\n     2 : def ql(\\xff)\n"
        in out.replace("\r", "")
    )
    assert "line 1, column 8: byte 0xff is not UTF-8 text\n" in out
    with qmgr.start("QM1", data_path=data) as manager:
        assert manager.queue("A").description == "x"
        assert manager.queue("A").max_depth == 5000
        assert not manager.queue("A").default_persistence


def test_a_script_that_is_no_utf_8_is_told_so_where_that_matters(run: Run, data: Path) -> None:
    script = data / "script.mqsc"
    script.write_text("* f\xfcr B\xfccher\ndef ql(A) descr('B\xfccher')\ndis ql(*)\n", "iso-8859-1")
    code, out, _ = run(f"runmqsc --offline -f {script} QM1")
    assert (code, out.splitlines()[3:9]) == (
        10,
        [
            "       : * f\\xfcr B\\xfccher",
            "     1 : def ql(A) descr('B\\xfccher')",
            "AMQ8405I: Syntax error detected at or near end of command segment below:-",
            "def ql(A) descr('B?",
            "                  ^",
            "line 1, column 19: byte 0xfc is not UTF-8 text",
        ],
    )


def test_what_has_no_effect_is_told_without_running_it(run: Run, data: Path) -> None:
    script = data / "script.mqsc"
    script.write_text("def ql(A) share\ndef ql(B) trigger\nalter qmgr chlauth(disabled) chlev(disabled)\ndis ql(*)\n")
    for words in ("-v QM1", "-n"):
        code, out, _ = run(f"runmqsc -e {words} -f {script}")
        assert (code, out.splitlines()[3:]) == (
            10,
            [
                "AMQ9051E: TRIGGER has no effect here; only NOTRIGGER is accepted.",
                "AMQ9052I: Accepted and without effect here: CHLAUTH.",
                "4 MQSC commands read.",
                "No commands have a syntax error.",
                "One valid MQSC command could not be processed.",
            ],
        )


def test_a_byte_order_mark_is_no_part_of_the_first_command(run: Run, data: Path) -> None:
    script = data / "script.mqsc"
    for text in (b"def ql(A)\n", b"* a comment\ndef ql(B)\n"):
        script.write_bytes(b"\xef\xbb\xbf" + text)
        code, out, _ = run(f"runmqsc --offline -f {script} QM1")
        assert (code, "One MQSC command read.\n" in out) == (0, True), out


def test_nothing_is_run_where_there_is_nothing_to_run_it(run: Run, data: Path) -> None:
    for words, why in (
        ("runmqsc NONE", "AMQ8118E: queue manager 'NONE' does not exist"),
        ("runmqsc -v NONE", "AMQ8118E: queue manager 'NONE' does not exist"),
        ("runmqsc", "AMQ7048E: no queue manager is named"),
        ("runmqsc NO-NAME", "AMQ7048E: 'NO-NAME' can't be the name"),
        ("runmqsc -f /not/there QM1", "AMQ8141E: /not/there can't be read: No such file or directory"),
        ("runmqsc -w 0 QM1", "AMQ7076E: -w was given '0'"),
        ("runmqsc -m QM2 QM1", "AMQ7076E: -m names 'QM2'"),
        (
            "runmqsc QM1",
            "AMQ8146E: queue manager 'QM1' is not running; start it (strmqm QM1), or run it for the time of",
        ),
        ("runmqsc -w 1 QM1", "AMQ8146E: queue manager 'QM1' is not running"),
        ("runmqsc --nonsense", "AMQ7075E: unrecognized arguments"),
    ):
        code, _, err = run(words, b"ping qmgr\n")
        assert code == 20, words
        assert err.startswith(why) and err.count("\n") == 1, err


def test_it_waits_for_a_queue_manager_that_somebody_else_starts_or_has(run: Run, data: Path) -> None:
    manager = qmgr.start("QM1", data_path=data, background=False)
    for words in ("runmqsc QM1", "runmqsc --offline QM1"):
        code, _, err = run(words, b"ping qmgr\n")
        assert (code, "is not available to this command: " in err) == (20, True)
    ending = threading.Timer(0.5, manager.end)
    ending.start()
    try:
        assert run("runmqsc --offline -w 60 QM1", b"ping qmgr\n")[0] == 0
    finally:
        ending.join()


def test_one_that_takes_long_to_say_no_is_not_asked_more_often_than_there_is_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def silent(name: str, *_: object, **__: object) -> None:
        asked.append(name)
        time.sleep(0.4)
        raise Unavailable("it has said nothing")

    monkeypatch.setattr(access, "running", silent)
    code, _, err = run("runmqsc -w 1 QM1", b"ping qmgr\n")
    assert (code, "it has said nothing" in err) == (20, True)
    assert 1 < len(asked) <= 3


def test_help_names_the_exit_codes_that_there_are() -> None:
    codes = runmqsc.COMMAND.parser().format_help().partition("Exit codes:\n")[2].splitlines()
    assert [int(line.split()[0]) for line in codes] == [0, 10, 20, 71]


def test_it_waits_for_a_daemon(run: Run, data: Path) -> None:
    words = [sys.executable, "-m", "qmgr.cli.main", "strmqm", "QM1"]
    starting = threading.Timer(0.5, lambda: subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL))
    starting.start()
    try:
        assert run("runmqsc -w 60 QM1", b"ping qmgr\n")[0] == 0
    finally:
        starting.join()
        assert run("endmqm -w QM1")[0] == 0


def test_the_samples(run: Run) -> None:
    run("runmqsc --offline QM1", b"def ql(A) defpsist(yes)\ndef ql(MEM)\n")
    code, out, _ = run("amqsput --offline A QM1", b"hello\nw\xff\n\nnever")
    assert (code, out) == (0, "Sample AMQSPUT0 start\ntarget queue is A\nSample AMQSPUT0 end\n")
    code, out, _ = run("amqsgbr --offline A QM1")
    assert code == 0
    assert "Messages for A\n  1 <hello>\n  2 <w\\xff>\nno more messages\n" in out
    code, out, _ = run("amqsbcg --offline A QM1")
    assert code == 0
    assert "MQGET of message number 2, CompCode:0 Reason:0\n****Message descriptor****" in out
    assert "  Format : 'MQSTR   '\n  Priority : 0  Persistence : 1\n  MsgId : X'414D5120514D3120" in out
    assert " length - 5 of 5 bytes\n\n00000000:  6865 6C6C 6F                            'hello           '\n" in out
    code, out, _ = run("amqsget --offline -w 0 A QM1")
    assert code == 0
    assert out == ("Sample AMQSGET0 start\nmessage <hello>\nmessage <w\\xff>\nno more messages\nSample AMQSGET0 end\n")
    for sample in ("amqsput", "amqsget", "amqsgbr", "amqsbcg"):
        code, out, err = run(f"{sample} --offline NONE QM1", b"x\n")
        assert code == 2
        short = {"amqsput": "unable to open queue for output\n", "amqsget": "unable to open queue for input\n"}
        assert f"MQOPEN ended with reason code 2085\n{short.get(sample, '')}" in out
        assert "there is no queue 'NONE'" in err


@pytest.mark.parametrize("closed", [False, True])
def test_amqsget_leaves_what_it_can_not_print(data: Path, closed: bool) -> None:
    with qmgr.start("QM1", data_path=data, background=False) as manager:
        manager.define_queue("A")
        manager.put_many("A", [bytes(100_000), b"two"])  # the first is longer than a pipe
    words = [sys.executable, "-m", "qmgr.cli.main", "amqsget", "--offline", "-w", "0", "A", "QM1"]
    if closed:
        shell = f"{shlex.join(words)} >&-"
        done = subprocess.run(["sh", "-c", shell], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "standard output is closed" in done.stderr) == (71, True)
    else:
        # Unbuffered: a buffer of Python 3.14 has 128 KiB, into which all of the message would go.
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == b"Sample AMQSGET0 start\n"
            process.stdout.read(50)
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141
    with qmgr.start("QM1", data_path=data, background=False) as manager:
        left = [(len(message.body), message.backout_count) for message in manager.browse("A")]
    assert left == [(100_000, 0 if closed else 1), (3, 0)]


def test_bytes_of_a_name_that_are_no_utf_8_are_shown_as_bytes(run: Run) -> None:
    code, out, err = run("amqsput --offline A\udcff QM1")
    assert (code, "target queue is A\\xff\n" in out) == (2, True)
    assert err.startswith("'A\\xff' can't be the name of a queue: ")


def test_samples_say_what_connecting_has_ended_with(run: Run, data: Path) -> None:
    for words in ("amqsput A QM1", "amqsget A QM1", "amqsgbr A QM1", "amqsbcg A QM1", "amqsblst QM1 A -R"):
        code, out, err = run(words, b"x\n")
        assert (code, "MQCONNX ended with reason code 2059\n" in out) == (40, True)
        assert err.startswith("AMQ8146E: queue manager 'QM1' is not running; start it (strmqm QM1)")
    for words in ("amqsput A qm1", "amqsget A", "amqsgbr A NO-NAME"):
        code, out, err = run(words)
        assert (code, "MQCONNX ended with reason code 2058\n" in out, "target queue" in out) == (72, True, False)
        assert err.startswith("AMQ7048E: ")
    with qmgr.start("QM1", data_path=data, background=False) as manager:
        assert manager.queues() == []


def test_amqsbcg_shows_all_that_a_message_says_of_itself(run: Run, data: Path) -> None:
    with qmgr.start("QM1", data_path=data, background=False) as manager:
        manager.define_queue("A")
        options: PutOptions = {"priority": 3, "expiry": 60, "correlation_id": b"c", "reply_to": "B"}
        grouped: PutOptions = {"group_id": b"g", "group_sequence": 2, "last_in_group": True}
        manager.put("A", bytes(range(40)), properties={"n": 1, "t": "x", "z\r\n\x1b[2J": 2}, **options, **grouped)
    code, out, _ = run("amqsbcg --offline A QM1")
    assert code == 0
    for line in (
        "  Priority : 3  Persistence : 1",
        f"  CorrelId : X'63{'00' * 23}'",
        f"  ReplyToQ       : 'B{' ' * 47}'",
        f"  GroupId : X'67{'00' * 23}'",
        "  MsgSeqNumber   : '2'",
        "  MsgFlags       : '24'",
        "****Message properties****\n\n  n : 1\n  t : 'x'\n  'z\\r\\n\\x1b[2J' : 2\n",
        " length - 40 of 40 bytes",
        "00000000:  0001 0203 0405 0607 0809 0A0B 0C0D 0E0F '................'",
        "00000020:  2021 2223 2425 2627                     ' !\"#$%&'        '",
    ):
        assert line in out, line
    assert re.search(r"  Expiry   : [1-9]\d\d  Feedback : 0", out)


def test_amqsblst_writes_and_reads_what_is_numbered(run: Run) -> None:
    run("runmqsc --offline QM1", b"def ql(A) defpsist(yes)\n")
    code, out, _ = run("amqsblst --offline QM1 A -W -c 25 -u 10 -s 100 -C one")
    assert code == 0
    assert "\n25 messages written in " in out
    code, out, _ = run("amqsblst --offline QM1 A -R -c 25 -u 7 -v -C one")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("message ")] == [
        f"message {number}, 100 bytes" for number in range(25)
    ]
    for words in (
        "amqsblst QM1 A",
        "amqsblst QM1 A -W -R",
        "amqsblst QM1 A -W -s 19",
        "amqsblst QM1 A -W -C " + "x" * 25,
    ):
        code, _, err = run(words)
        assert code == 36, words
        assert err.startswith(("AMQ7076E", "AMQ7006E"))


def test_amqsblst_says_how_many_were_written_before_a_failure(run: Run) -> None:
    run("runmqsc --offline QM1", b"def ql(A) maxdepth(5)\n")
    for unit, written in (("-u 0", 5), ("-u 2", 4), ("-u 6", 0)):
        run("runmqsc --offline QM1", b"clear ql(A)\n")
        code, out, _ = run(f"amqsblst --offline QM1 A -W -c 10 {unit}")
        assert code == 2
        assert "MQPUT ended with reason code 2053\n" in out
        assert f"\n{written} messages written in " in out, unit


def test_amqsblst_provokes_the_release_of_log_space(run: Run, data: Path) -> None:
    """A unit of work that is larger than the log is rolled back, which the error log says; the next one goes on."""
    run("runmqsc --offline QM1", b"def ql(A) defpsist(yes)\n")
    code, out, err = run("amqsblst --offline QM1 A -W -s 10000 -c 200 -u 200")
    assert code == 2
    assert "MQPUT ended with reason code 2003\n0 messages written in " in out
    assert "was rolled back by the queue manager to release log space" in err
    said = (data / "qmgrs/QM1/errors/AMQERR01.LOG").read_text()
    assert "AMQ7486I: Transaction 0," in said
    assert re.search(
        r"AMQ7487I: Application .*pid \d+ was preventing log space from being released, by transaction 0,\d+\.\n", said
    )
    assert "AMQ7469W: Transaction 0," in said
    code, out, _ = run("amqsblst --offline QM1 A -W -s 10000 -c 20 -u 10")
    assert code == 0
    assert "CURDEPTH(20)" in run("runmqsc --offline QM1", b"dis ql(A) curdepth\n")[1]


def test_it_runs_as_a_program_under_its_own_name(data: Path) -> None:
    code = "import sys; from qmgr.cli.runmqsc import COMMAND; sys.exit(COMMAND.main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "--offline", "QM1"],
        input=b"def ql(A)\ndis ql(A) curdepth\n",
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONDEVMODE": ""},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert done.stdout.decode() == HEAD + (
        "     1 : def ql(A)\n"
        "AMQ8006I: Queue created.\n"
        "     2 : dis ql(A) curdepth\n"
        "AMQ8409I: Display Queue details.\n"
        "   QUEUE(A)                                TYPE(QLOCAL)\n"
        "   CURDEPTH(0)\n"
        "2 MQSC commands read.\n"
        "No commands have a syntax error.\n"
        "All valid MQSC commands were processed.\n"
    )


def test_a_daemon_is_administered_by_the_same_commands(run: Run, data: Path) -> None:
    assert run("strmqm QM1")[0] == 0
    try:
        assert run("runmqsc QM1", b"def ql(A) defpsist(yes)\n")[0] == 0
        assert run("amqsput A QM1", b"one\ntwo\n")[0] == 0
        code, out, _ = run("amqsblst QM1 A -W -s 10000 -c 200 -u 200")
        assert (code, "MQPUT ended with reason code 2003" in out) == (2, True)
        with qmgr.connect("QM1", data_path=data) as connection, connection.begin() as unit:
            assert unit.get("A").body == b"one"
            code, out, _ = run("runmqsc QM1", b"dis qs(A) uncom\ndis conn(*) where(uowstate eq active) pid channel\n")
            assert code == 0
            assert "UNCOM(1)\n" in out
            assert "UOWSTATE(ACTIVE)" in out
            assert f"PID({os.getpid()})                             ".rstrip() in out
            result = connection.mqsc("ping qmgr\nrubbish")
            assert (result.commands, result.errors, result.code) == (2, 1, 10)
        assert "message <two>" in run("amqsget -w 0 A QM1")[1]
    finally:
        assert run("endmqm -w QM1")[0] == 0
    assert run("runmqsc --offline QM1", b"dis ql(A) curdepth\n")[1].count("CURDEPTH(0)") == 1


def test_on_a_terminal_each_line_is_asked_for(data: Path) -> None:
    code = "import sys; from qmgr.cli.runmqsc import COMMAND; sys.exit(COMMAND.main())"
    terminal, side = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "-e", "-p", "mqsc> ", "--offline", "QM1"],
            stdin=side,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONDEVMODE": "", "TERM": "dumb"},
        )
        os.write(terminal, b"define +\nqlocal(A)\nping qmgr\nend\n")
        out, _ = process.communicate(timeout=60)
    finally:
        os.close(terminal)
        os.close(side)
    assert process.returncode == 0
    assert out.decode().replace("\r", "") == HEAD + (
        "mqsc> mqsc> AMQ8006I: Queue created.\n"
        "mqsc> AMQ8415I: Ping Queue Manager command complete.\n"
        "mqsc> 2 MQSC commands read.\n"
        "No commands have a syntax error.\n"
        "All valid MQSC commands were processed.\n"
    )
