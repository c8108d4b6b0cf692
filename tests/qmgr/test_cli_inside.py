"""qm status, logstat and space: a queue manager in another process, a stopped one, and those that say nothing."""

import copy
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger import lsn
from qmgr.cli import access
from qmgr.cli.main import qm as qm_command
from qmgr.cli.space import ASCII, BLOCKS, described, draw
from tests.commands import Commands
from tests.qmgr.test_qmstatus import CIRCULAR, EXTENT, MB

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]
INSIDE = ("status", "logstat", "space")

OWNER = """
import sys, qmgr
qm = qmgr.start('QM1', background=BACKGROUND)
qm.define_queue('A.QUEUE', max_depth=1000)
qm.put_many('A.QUEUE', [bytes(1000)] * 30)
unit = qm.begin(qmgr.Xid(1, b'g', b''))
unit.put('A.QUEUE', bytes(100))
unit.prepare()
qm.checkpoint()
print(unit.id, flush=True)
sys.stdin.read()
qm.end('immediate')
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    qmgr.create(
        "QM1", data_path=path, log_primary_files=2, log_secondary_files=1, log_file_pages=64, log_buffer_pages=18
    )
    return path


@pytest.fixture
def environment(data: Path) -> dict[str, str]:
    return {**os.environ, "QMGR_DATA_PATH": str(data), "PYTHONDEVMODE": "", "COLUMNS": "80", "PYTHONUTF8": "1"}


@pytest.fixture
def run(environment: dict[str, str], commands: Commands) -> Run:
    """Run `qm WORDS`; nothing may ever show a traceback. With more in its environment it is a new interpreter."""

    def run(words: str, **more: str) -> subprocess.CompletedProcess[str]:
        if more:
            command = [sys.executable, "-m", "qmgr.cli.main", *shlex.split(words)]
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=ROOT, env=environment | more, timeout=300, check=False
            )
        else:
            done = commands.run(shlex.split(words), environment)
        assert "Traceback" not in done.stderr
        assert "AMQ6118" not in done.stderr
        return done

    return run


def own(environment: dict[str, str], *, background: bool = True) -> tuple[subprocess.Popen[str], str]:
    """Another process that has QM1, and the number of the unit of work that it holds."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER.replace("BACKGROUND", str(background))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.fixture
def owner(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process, number = own(environment)
    yield process, number
    if process.poll() is None:
        process.communicate("")


def wait_for(run: Run, words: str, wanted: str) -> subprocess.CompletedProcess[str]:
    """The command's outcome once it says `wanted`, and nothing of how old that is: the owner may be held up."""
    last = time.monotonic() + 120
    while True:
        done = run(words)
        if wanted in done.stdout and "AMQ9009W" not in done.stderr:
            return done
        assert time.monotonic() < last, f"{words} does not come to say {wanted}: {done.stdout}{done.stderr}"


# A queue manager that another process runs


def test_a_queue_manager_of_another_process_is_seen(run: Run, owner: tuple[subprocess.Popen[str], str]) -> None:
    process, number = owner
    status = wait_for(run, "status -m QM1", "CHKPTCNT(2)")
    assert (status.returncode, status.stderr) == (0, "")
    lines = status.stdout.splitlines()
    assert lines[:2] == [
        "AMQ8705I: Display Queue Manager Status Details.",
        "   QMNAME(QM1)                             STATUS(RUNNING)",
    ]
    for shown in ("LOGPRIM(2)", "LOGSEC(1)", "LOGTYPE(CIRCULAR)", "LOGFSSZ(SHARED)", "CURRLOG( )", "REUSESZ(0)"):
        assert shown in status.stdout
    assert lines[-4:] == [
        "AMQ8450I: Display queue status details.",
        "   QUEUE(A.QUEUE)                          TYPE(QUEUE)",
        "   CURDEPTH(31)                            MAXDEPTH(1000)",
        "   UNCOM(1)",
    ]
    fields = json.loads(run("status -m QM1 --json").stdout)
    assert fields["qmstatus"]["STATUS"] == "RUNNING"
    assert (fields["qmstatus"]["LOGPRIM"], fields["qmstatus"]["CURRLOG"]) == (2, None)
    assert lsn.parse(fields["qmstatus"]["DISKLSN"]) > lsn.parse(fields["qmstatus"]["LOGSTRL"])
    assert fields["queues"] == [
        {"QUEUE": "A.QUEUE", "TYPE": "QUEUE", "CURDEPTH": 31, "MAXDEPTH": 1000, "UNCOM": 1},
    ]
    space = run("space -m QM1")
    assert f"Unit of work 0,{number} (prepared) of pid {process.pid} holds the head" in " ".join(space.stdout.split())
    assert space.stdout.startswith(f"QM1: running by pid {process.pid}, ")
    assert "█" in space.stdout
    assert max(len(line) for line in space.stdout.splitlines()[3:]) <= 80
    plain = run("space -m QM1", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert plain.returncode == 0 and plain.stdout.isascii() and "###" in plain.stdout
    seen = json.loads(run("space -m QM1 --json").stdout)
    assert (seen["holder"]["number"], seen["holder"]["owner"]) == (int(number), f"pid {process.pid}")
    assert [one["class"] for one in seen["extents"]] == ["active", "ready"]
    assert process.poll() is None


NAMES = (
    "logactive loginactive FileCount filenum logBufSz WriteSizeShort WriteSizeLong WriteSizeMax WriteTimeShort "
    "WriteTimeLong WriteTimeShortMax WriteTimeLongMax WriteTimeMax"
)


def test_the_log_writes_are_shown_by_the_names_of_amqldmpa(run: Run, owner: tuple[subprocess.Popen[str], str]) -> None:
    done = wait_for(run, "logstat -m QM1", "logactive")
    assert (done.returncode, done.stderr) == (0, "")
    values = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert list(values) == [*NAMES.split(), *(f"WriteTimeMax[{n}]" for n in range(8))]
    assert (values["logactive"], values["loginactive"], values["FileCount"]) == ("2 files", "1 files", "2 files")
    assert (values["filenum"], values["logBufSz"]) == ("0 1", "18 pages of 4 KB")
    assert re.fullmatch(r"\d+ bytes", values["WriteSizeShort"])
    assert re.fullmatch(r"\d+ us", values["WriteTimeLongMax"])
    assert re.fullmatch(r"\d+ us at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", values["WriteTimeMax"])
    fields = json.loads(run("logstat -m QM1 --json").stdout)
    assert {*NAMES.split(), "WriteTimeMax[0..7]"} <= set(fields)
    assert fields["WriteSizeMax"] >= fields["WriteSizeShort"] > 0
    assert fields["WriteTimeMax[0..7]"][0] == fields["WriteTimeMax"] > 0


def test_watching_shows_one_picture_after_the_other(
    run: Run, environment: dict[str, str], owner: tuple[subprocess.Popen[str], str]
) -> None:
    wait_for(run, "status -m QM1", "RUNNING")
    watch = subprocess.Popen(
        [sys.executable, "-m", "qmgr.cli.main", "space", "-m", "QM1", "--json", "--watch", "0.1"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert watch.stdout is not None
    assert [json.loads(watch.stdout.readline())["qmgr"] for _ in range(3)] == ["QM1"] * 3
    watch.send_signal(2)
    watch.communicate()
    assert watch.returncode == 130


def test_one_that_has_no_thread_says_nothing(run: Run, environment: dict[str, str]) -> None:
    process, _ = own(environment, background=False)
    for command in INSIDE:
        done = run(f"{command} -m QM1")
        assert (done.returncode, done.stdout, done.stderr[:8], done.stderr.count("\n")) == (40, "", "AMQ8146E", 1)
        assert f"pid {process.pid}" in done.stderr
    process.communicate("")
    assert run("status -m QM1").returncode == 0


# One that nobody runs


def test_a_stopped_queue_manager_is_read_from_its_files(
    run: Run, owner: tuple[subprocess.Popen[str], str], data: Path
) -> None:
    process, number = owner
    process.communicate("")
    status = run("status -m QM1")
    assert (status.returncode, status.stderr) == (0, "")
    for shown in ("STATUS(ENDED NORMALLY)", "STARTDA( )", "LOGPRIM(2)", "QUEUE(A.QUEUE)", "CURDEPTH( )"):
        assert shown in status.stdout
    space = run("space -m QM1")
    assert space.stdout.startswith("QM1: ended normally, ")
    assert f"Unit of work 0,{number} (prepared) holds the head" in space.stdout
    last = run("logstat -m QM1")
    assert last.returncode == 0
    assert last.stderr.startswith("AMQ9009W: queue manager 'QM1' is not running; this is how it stood at ")
    assert "WriteSizeMax" in last.stdout
    (data / "qmgrs" / "QM1" / "status.json").unlink()
    never = run("logstat -m QM1")
    assert (never.returncode, never.stdout, never.stderr[:8]) == (40, "", "AMQ8146E")


def test_a_killed_one_is_read_too(run: Run, owner: tuple[subprocess.Popen[str], str]) -> None:
    process, number = owner
    wait_for(run, "status -m QM1", "RUNNING")
    process.kill()
    process.wait()
    assert "STATUS(ENDED UNEXPECTEDLY)" in run("status -m QM1").stdout
    assert f"0,{number} (prepared)" in run("space -m QM1").stdout
    assert run("logstat -m QM1").returncode == 0
    for command in ("status", "logstat", "space"):  # the name with -m or without
        assert run(f"{command} QM1 --json").stdout == run(f"{command} --json -m QM1").stdout != ""
        assert run(f"{command} QM1 -m QM2").returncode == 36


# What is no good


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\0" * 4096, b"[1, 2]"])
def test_a_damaged_status_json_of_a_running_one_is_replaced(
    run: Run, owner: tuple[subprocess.Popen[str], str], data: Path, content: bytes
) -> None:
    wait_for(run, "status -m QM1", "RUNNING")
    (data / "qmgrs" / "QM1" / "status.json").write_bytes(content)
    assert wait_for(run, "status -m QM1", "STATUS(RUNNING)").returncode == 0


def test_a_damaged_status_json_of_a_stopped_one_is_no_help_and_no_harm(run: Run, data: Path) -> None:
    path = data / "qmgrs" / "QM1" / "status.json"
    path.write_bytes(b'{"format": 1')
    assert run("status -m QM1").returncode == 0
    assert run("space -m QM1").returncode == 0
    assert run("logstat -m QM1").returncode == 40
    with qmgr.start("QM1", data_path=data):
        pass
    picture = json.loads(path.read_bytes())
    for bad in ({"log": {}}, {"log": picture["log"] | {"writes": None}}, {"log": picture["log"] | {"extents": 3}}):
        path.write_text(json.dumps(picture | bad))
        done = run("logstat -m QM1")
        assert (done.returncode, done.stdout) == (71, "")
        assert re.search(rf"^AMQ9010E: {re.escape(str(path))} is damaged .*; delete it", done.stderr, re.MULTILINE)


def test_what_cannot_be_read_is_said(run: Run, owner: tuple[subprocess.Popen[str], str], data: Path) -> None:
    process, _ = owner
    process.communicate("")
    path = data / "qmgrs" / "QM1" / "status.json"
    path.unlink()
    path.symlink_to(path)
    done = run("logstat -m QM1")
    assert (done.returncode, done.stderr[:8], done.stderr.count("\n")) == (71, "AMQ7002S", 1)
    assert str(path) in done.stderr
    for command in INSIDE:
        done = run(f"{command} -m QM1 --data-path /proc/1/data")
        assert done.returncode in (72, 119)
        assert re.match(r"AMQ70(48|77)E: .*/proc/1", done.stderr)


def test_a_damaged_log_or_qm_ini_is_explained(run: Run, data: Path) -> None:
    control = data / "log" / "QM1" / "amqhlctl.lfh"
    whole = control.read_bytes()
    control.write_bytes(b"rubbish")
    for command in INSIDE:
        done = run(f"{command} -m QM1")
        assert (done.returncode, done.stdout, done.stderr[:8], done.stderr.count("\n")) == (71, "", "AMQ6767S", 1)
    control.write_bytes(whole)
    (data / "qmgrs" / "QM1" / "qm.ini").write_text("Log:\n   LogPrimaryFiles=1\n")
    for command in INSIDE:
        done = run(f"{command} -m QM1")
        assert done.returncode == 71
        assert re.match(r"AMQ7076E: .*qm\.ini, line 2: ", done.stderr)


def test_dmpmqlog_begins_at_an_extent_of_linear_logs_only(run: Run, data: Path) -> None:
    for words in ("-n 0 -m QM1", f"-n 0 -f {data}/log/QM1"):
        done = run(f"dmpmqlog {words}")
        assert (done.returncode, done.stdout, done.stderr[:8]) == (36, "", "AMQ7076E")
        assert "circular" in done.stderr
    header = run("dmpmqlog -m QM1").stdout
    for name, value in {"logactive": 2, "loginactive": 1, "softmax": 3 * 64 * 4096 * 80 // 100}.items():
        assert re.search(rf"^{name} \.+: {value}$", header, re.MULTILINE)


def test_dmpmqlog_reads_a_linear_log_from_any_extent_archived_ones_too(run: Run, data: Path) -> None:
    small = {"log_primary_files": 2, "log_secondary_files": 1, "log_file_pages": 64}
    qmgr.create("QL", data_path=data, log_type="linear", **small)
    with qmgr.start("QL", data_path=data) as qm:
        qm.define_queue("A")
        for _ in range(8):
            qm.put_many("A", [bytes(1000)] * 100)
            qm.get_many("A", 100)
            qm.checkpoint()
    log = data / "log" / "QL"
    (log / "archive").mkdir(exist_ok=True)
    (log / "active" / "S0000001.LOG").rename(log / "archive" / "S0000001.LOG")

    def shown(words: str) -> list[int]:
        done = run(f"dmpmqlog {words} --json")
        assert (done.returncode, done.stderr) == (0, "")
        header, *records = map(json.loads, done.stdout.splitlines())
        assert header["hflag1"] == "LOG RETAIN"
        return [lsn.parse(record["lsn"]) for record in records]

    all_ = shown("-n 0 -m QL")
    assert [at for at in all_ if at >= 3 * 64 * 4096] == shown("-n 2 -m QL") == shown(f"-n 2 -f {log}")
    assert {at // (64 * 4096) for at in all_} >= {1, 2, 3}
    assert shown(f"-s {lsn.text(all_[3])} -m QL".replace("<", "").replace(">", "")) == all_[3:]
    (log / "active" / "S0000000.LOG").rename(log / "away")
    done = run("dmpmqlog -n 0 -m QL")
    assert "S0000000.LOG is not there: it was used again or removed" in done.stderr
    (log / "away").rename(log / "active" / "S0000000.LOG")
    (log / "archive" / "S0000001.LOG").unlink()
    done = run("dmpmqlog -n 0 -m QL")
    assert (done.returncode, done.stderr[:8]) == (71, "AMQ6767S")
    assert "S0000001.LOG" in done.stderr
    assert "used again" not in done.stderr, "older ones are there"


def test_dmpmqlog_looks_again_where_a_linear_log_goes_on_before_its_extents_are_read(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"log_primary_files": 2, "log_file_pages": 64}
    qmgr.create("QL", data_path=data, log_type="linear", log_management="Automatic", **small)
    control = data / "log" / "QL" / "amqhlctl.lfh"
    with qmgr.start("QL", data_path=data, background=False) as qm:
        qm.define_queue("A")
        before = control.read_bytes()
        for _ in range(12):
            qm.put_many("A", [bytes(30_000)] * 6)
            qm.get_many("A", 6)
            qm.record_image("A")
            qm.record_definitions()
            qm.checkpoint()
        qm.reduce_log("MAX")
    after = control.read_bytes()
    monkeypatch.setattr(access, "pause", lambda seconds: control.write_bytes(after))
    control.write_bytes(before)  # as dmpmqlog has read it, which looks for the extents only now
    assert qm_command(["dmpmqlog", "-m", "QL", "--data-path", str(data)]) == 0
    said = capsys.readouterr()
    assert said.err == "" and "LOG FILE HEADER" in said.out and "damaged" not in said.out


# The picture, from what is given

HELD = {
    "number": 1099511627777,
    "state": "active",
    "owner": "pid 7",
    "log_started": 1_700_000_100_000_000,
    "first_lsn": 7 * EXTENT + MB,
}


def given(holder: dict[str, Any] | None = None, **log: Any) -> dict[str, Any]:
    """The mapping of `test_qmstatus`, with what a picture needs besides."""
    picture = copy.deepcopy(CIRCULAR) | {"published": 1_700_000_300_000_000, "holder": holder}
    start = 7 * EXTENT
    room = {
        "capacity": 5 * EXTENT,
        "floor": start,
        "soft": start + 4 * EXTENT,
        "checkpoint_at": start + 12 * EXTENT // 5,
    }
    picture["log"] |= {"promised": 5 * MB, "limit": start + 3 * EXTENT, **room, **log}
    picture["log"]["extents"].append({"number": 3, "sequence": 0, "class": "ready", "time": 0})
    return picture


GOLDEN = """\
QM1: running by pid 7, 2023-11-14 22:18:20 UTC
circular log, 3 + 2 extents of 16 MB, in /log/QM1/active

S0000002.LOG  ·····································        inactive
S0000000.LOG  ▒▒███████████████████████████████████ 100 %  active
                H
S0000001.LOG  ████████████·························  31 %  active
              C          T
S0000003.LOG  ·····································        ready

log           ██████████▓▓▓················░░░░░░░░  26 %
                                           ^ reserve

Used 21 MB of 80 MB, promised to units of work 5 MB.
Beyond 38.4 MB a checkpoint is taken if it moves the head, beyond 64
MB units of work are released.

H  head        <0:0:1808:0>             20 MB before the tail
C  checkpoint  <0:0:2048:0>             5 MB before the tail
T  tail        <0:0:2128:17>            17 bytes not on disk yet

Unit of work 0,1099511627777 (active) of pid 7 holds the head: it logs
since 2023-11-14 22:15:00 UTC, from <0:0:1808:0> on, 20 MB before the
tail."""


def test_the_picture_of_a_log_that_a_unit_of_work_holds() -> None:
    assert "\n".join(draw(given(HELD), 70, BLOCKS)) == GOLDEN


def test_the_same_in_ascii() -> None:
    drawn = "\n".join(draw(given(HELD), 70, ASCII))
    assert drawn == GOLDEN.translate(str.maketrans("█▒·▓░", "#-.+~"))
    assert drawn.isascii()


MANY = """\
S0000000.LOG  .....................................        inactive
S0000001.LOG  .....................................        inactive
S0000002.LOG  .....................................        inactive
...           3 more, S0000003.LOG to S0000005.LOG: inactive
S0000006.LOG  .....................................        inactive
S0000007.LOG  .....................................        inactive
S0000008.LOG  ##################################### 100 %  active
              H
S0000009.LOG  ##################################### 100 %  active
S0000010.LOG  ##################################### 100 %  active
...           26 more, S0000011.LOG to S0000036.LOG: active
S0000037.LOG  ##################################### 100 %  active
S0000038.LOG  ##################################### 100 %  active
S0000039.LOG  ##################################### 100 %  active
                       C
S0000040.LOG  ##################################### 100 %  active
S0000041.LOG  ##################################### 100 %  active
...           6 more, S0000042.LOG to S0000047.LOG: active
S0000048.LOG  ##################################### 100 %  active
S0000049.LOG  ##################################### 100 %  active
S0000050.LOG  ############.........................  31 %  active
                         T"""


def test_of_many_extents_those_that_matter_are_shown() -> None:
    many = [{"number": n, "sequence": n + 1, "class": "active" if n >= 8 else "inactive", "time": 0} for n in range(51)]
    log = {
        "extents": many,
        "head": 9 * EXTENT,
        "checkpoint": 40 * EXTENT + 4 * MB,
        "tail": 51 * EXTENT + 5 * MB,
        "durable": 51 * EXTENT + 5 * MB,
        "capacity": 80 * EXTENT,
        "used": 42 * EXTENT + 5 * MB,
    }
    picture = given(**log)
    picture["log"]["extents"].pop()
    lines = draw(picture, 70, ASCII)
    assert MANY in "\n".join(lines)
    assert lines[-1] == "No unit of work holds the head: the next checkpoint moves it."


@pytest.mark.parametrize("width", [1, 64, 80, 160, 1000])
def test_the_picture_fits_the_terminal(width: int) -> None:
    lines = draw(given(HELD), width, ASCII)
    assert max(map(len, lines)) <= max(64, min(width, 160))


def test_marks_that_fall_together_stand_beside_each_other() -> None:
    at = 8 * EXTENT + 5 * MB
    lines = draw(given(head=at, checkpoint=at, tail=at, durable=at), 80, ASCII)
    assert " " * (14 + 47 * 5 // 16) + "HCT" in lines
    assert any(line.endswith("all on disk") for line in lines)


def test_inactive_extents_of_a_linear_log_are_full() -> None:
    picture = given()
    picture["log"]["config"]["log_type"] = "LINEAR"
    lines = draw(picture, 70, ASCII)
    assert f"S0000002.LOG  {'-' * 37}        inactive" in lines


def test_the_picture_as_json() -> None:
    found = described(given(HELD))
    assert [one["full"] for one in found["extents"]] == [EXTENT, EXTENT, 5 * MB + 17, 0]
    assert (found["head"], found["holder"]["first_lsn"]) == (lsn.text(7 * EXTENT + MB),) * 2
    assert found["release_beyond"] == 4 * EXTENT
    assert described(given())["holder"] is None
    assert json.loads(json.dumps(found)) == found
