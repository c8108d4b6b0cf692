"""rcdmqimg, rcrmqobj, recover-to and migmqlog on a real disk: what they do, say and end with.

The walk-through is made of real processes. Where many words are tried they are said to the commands in this process,
which would else start a hundred others; whoever else has the queue manager is another process always.
"""

import datetime
import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import qmgr
from logger import lsn
from logger.disk import File
from logger.posix_disk import PosixDisk
from qmgr.cli import rcrmqobj
from qmgr.cli.main import qm
from qmgr.cli.objects import Tally
from qmgr.errors import ObjectInUse

ROOT = Path(__file__).parents[2]
Run = Callable[..., tuple[str, str]]

APPLICATION = """
import sys, qmgr
with qmgr.start("QM1") as qm:
    print("up", flush=True)
    for line in sys.stdin:
        verb, queue, *more = line.split()
        try:
            if verb == "get":
                print(qm.get(queue).body.decode(), flush=True)
            elif verb == "depth":
                print(qm.queue(queue).depth, flush=True)
            else:
                qm.put(queue, more[0].encode(), persistent=verb == "put")
                print("put", flush=True)
        except qmgr.MQError as exc:
            print(int(exc.reason), flush=True)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def environment(data: Path) -> dict[str, str]:
    return {**os.environ, "QMGR_DATA_PATH": str(data), "PYTHONDEVMODE": ""}


def checked(words: str, code: int, ended: int, out: str, err: str) -> tuple[str, str]:
    assert ended == code, (words, ended, out, err)
    assert all(line.startswith("AMQ") for line in err.splitlines()), err
    assert "AMQ6118" not in err
    return out, err


@pytest.fixture
def run(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`qm WORDS` ends with that code: (stdout, stderr). What goes wrong is a line of its own, never a traceback."""
    monkeypatch.setenv("QMGR_DATA_PATH", environment["QMGR_DATA_PATH"])

    def run(words: str, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        ended = qm(shlex.split(words))
        return checked(words, code, ended, *capsys.readouterr())

    return run


@pytest.fixture
def process(environment: dict[str, str]) -> Run:
    """The same by a process."""

    def run(words: str, code: int = 0) -> tuple[str, str]:
        command = [sys.executable, "-m", "qmgr.cli.main", *shlex.split(words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
        return checked(words, code, done.returncode, done.stdout, done.stderr)

    return run


class Application:
    """Another process that has QM1, and does what it is told."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", APPLICATION],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, words: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self.process.communicate(timeout=300)
        assert self.process.returncode == 0


def files(data: Path, queue: str) -> list[Path]:
    return list((data / "qmgrs" / "QM1" / "queues" / queue.replace(".", "!")).glob("*.seg"))


def errors(data: Path) -> str:
    return (data / "qmgrs" / "QM1" / "errors" / "AMQERR01.LOG").read_text()


@pytest.fixture
def made(run: Run, data: Path) -> Path:
    """QM1 with linear logging and the queues QL.A, QL.B and OTHER, which has no images."""
    run("crtmqm -ll -lp 3 -lf 64 QM1")
    with qmgr.start("QM1", data_path=data) as manager:
        for queue in ("QL.A", "QL.B"):
            manager.define_queue(queue)
            manager.put(queue, queue.encode())
        manager.define_queue("OTHER", image_recoverable="NO")
        manager.define_alias("ALSO", "QL.A")
    return data


# -- the walk-through ------------------------------------------------------------------------------------------------


def test_the_published_walk_through(process: Run, data: Path, environment: dict[str, str]) -> None:
    """ibm-mq.md 4.6: with our commands, word for word."""
    process("crtmqm -ll QM1")
    with qmgr.start("QM1", data_path=data) as manager:
        manager.define_queue("QL.A", buffer_size=1)  # so that its messages are in its file only
    application = Application(environment)
    assert application.tell("put QL.A persistent") == "put"
    assert application.tell("put-not-persistent QL.A not") == "put"
    assert application.tell("depth QL.A") == "2"
    application.end()
    assert process("rcdmqimg -m QM1 -t ql QL.A") == ("Media image for object QL.A, type qlocal recorded.\n", "")
    application = Application(environment)
    assert files(data, "QL.A")
    for path in files(data, "QL.A"):
        path.unlink()
    assert application.tell("get QL.A") == "2101"
    assert application.tell("put QL.A more") == "2101"
    _, err = process("rcrmqobj -m QM1 -t ql QL.A", 40)
    assert err.startswith("AMQ8146E: queue manager 'QM1' is not available")
    application.end()
    assert process("rcrmqobj -m QM1 -t ql QL.A") == ("Object QL.A, type qlocal recreated.\n", "")
    application = Application(environment)
    assert application.tell("depth QL.A") == "1"
    assert application.tell("get QL.A") == "persistent"
    assert application.tell("get QL.A") == "2033"
    application.end()
    assert "AMQ7472" in errors(data)
    assert "AMQ9004I: Object QL.A, type qlocal recreated" in errors(data)


def test_damage_that_is_found_at_a_start_is_mended_by_it(made: Path, environment: dict[str, str]) -> None:
    for path in files(made, "QL.A"):
        path.write_bytes(path.read_bytes()[:-20])
    application = Application(environment)
    assert application.tell("depth QL.B") == "1"
    assert application.tell("get QL.A") == "QL.A"
    application.end()
    assert "AMQ7472E: Object QL.A, type queue, is damaged" in errors(made)
    assert "AMQ9004I: Object QL.A, type qlocal recreated: 1 messages." in errors(made)


def test_an_extent_that_is_missing_is_named_and_put_back_it_counts(
    made: Path, run: Run, environment: dict[str, str]
) -> None:
    """Nothing is half done: the queue stays damaged, the others work."""
    with qmgr.start("QM1", data_path=made) as manager:
        manager.get("QL.B")
        for _ in range(12):
            manager.put("QL.B", bytes(100_000))
            manager.get("QL.B")
        manager.put("QL.B", b"QL.B")
        manager.checkpoint()
    first = made / "log" / "QM1" / "active" / "S0000000.LOG"
    kept = first.read_bytes()
    first.unlink()
    for path in files(made, "QL.A"):
        path.unlink()
    out, err = run("rcrmqobj -m QM1 -t ql QL.*", 66)
    assert "QL.A" not in out
    line = next(line for line in err.splitlines() if "'QL.A'" in line)
    assert line.startswith("AMQ6767S: queue 'QL.A' can't be recreated: ")
    assert "S0000000.LOG" in line
    _, err = run("rcrmqobj -m QM1 -z -t ql QL.A", 66)
    assert err == ""
    out, err = run("rcdmqimg -m QM1 -t ql *", 132)
    assert out == "Media image for object QL.B, type qlocal recorded.\n"
    assert "AMQ8149E: queue 'QL.A' is damaged" in err
    application = Application(environment)
    assert application.tell("get QL.A") == "2101"
    assert application.tell("get QL.B") == "QL.B"
    application.end()
    first.write_bytes(kept)
    assert run("rcrmqobj -m QM1 -t ql QL.A") == ("Object QL.A, type qlocal recreated.\n", "")
    application = Application(environment)
    assert application.tell("get QL.A") == "QL.A"
    application.end()


# -- options, messages and exit codes --------------------------------------------------------------------------------

IMAGE = "Media image for object {}, type {} recorded.\n"
OBJECT = "Object {}, type {} recreated.\n"
QUEUE = "qlocal"
BOTH = [("QL.A", QUEUE), ("QL.B", QUEUE)]


@pytest.mark.parametrize(
    ("words", "done", "code", "amq"),
    [
        ("-t ql QL.A", BOTH[:1], 0, ""),
        ("-t qlocal 'QL.*'", BOTH, 0, ""),
        ("-t q 'QL*'", BOTH, 0, ""),
        ("-t queue QL.B", BOTH[1:], 0, ""),
        ("-t QL QL.B", BOTH[1:], 0, ""),
        ("-t ql '*'", BOTH, 28, "AMQ7044E: queue 'OTHER' is not media recoverable"),
        ("-t ql OTHER", [], 28, "AMQ7044E: queue 'OTHER' is not media recoverable"),
        ("-t all '*'", [*BOTH, ("QM1", "qmgr")], 28, "AMQ7044E: queue 'OTHER' is not media recoverable"),
        ("-t '*' 'QL*'", [*BOTH, ("QM1", "qmgr")], 0, ""),
        ("-t all QM1", [("QM1", "qmgr")], 0, ""),
        ("-t all NONE", [], 128, "AMQ7085E: queue manager 'QM1' has no object 'NONE' of type all."),
        ("-t queue 'AL*'", [("ALSO", "qalias")], 0, ""),
        ("-t qmgr '*'", [("QM1", "qmgr")], 0, ""),
        ("-t ctlg '*'", [("QM1", "catalog")], 0, ""),
        ("-t syncfile", [("QM1", "syncfile")], 0, ""),
        ("-t clchltab", [], 128, "AMQ7085E: queue manager 'QM1' has no object '*' of type clchltab."),
        ("-t qa ALSO", [("ALSO", "qalias")], 0, ""),
        ("-t qalias 'QL*'", [], 128, "AMQ7085E: queue manager 'QM1' has no object 'QL*' of type qalias."),
        ("-t ql NONE", [], 128, "AMQ7085E: queue manager 'QM1' has no object 'NONE' of type ql."),
        ("-t ql ql.a", [], 128, "AMQ7085E"),
        ("-t channel '*'", [], 128, "AMQ7085E"),
        ("-t rubbish '*'", [], 36, "AMQ7076E: -t was given 'rubbish'; allowed: queue,"),
        ("QL.A", [], 36, "AMQ7006E"),
        ("-t ql QL.A QL.B", [], 36, "AMQ7075E"),
        ("-t ql -x QL.A", [], 36, "AMQ7075E"),
    ],
)
def test_what_is_named_is_recorded_and_recreated(
    made: Path, run: Run, words: str, done: list[tuple[str, str]], code: int, amq: str
) -> None:
    for command, text in (("rcdmqimg", IMAGE), ("rcrmqobj", OBJECT)):
        out, err = run(f"{command} -m QM1 {words}", code)
        assert sorted(out.splitlines(keepends=True)) == sorted(text.format(*each) for each in done)
        assert err.startswith(amq)
        assert err.count("\n") == bool(amq)
        out, err = run(f"{command} -m QM1 -z {words}", code)
        assert sorted(out.splitlines(keepends=True)) == sorted(text.format(*each) for each in done)
        assert err == ""


def test_l_says_the_oldest_extents_that_are_needed(made: Path, run: Run) -> None:
    with qmgr.start("QM1", data_path=made) as manager:
        for _ in range(12):
            manager.put("QL.B", bytes(100_000))
            manager.get("QL.B")
    _, err = run("rcdmqimg -m QM1 -l -t ql QL.B")
    restart, media = err.splitlines()
    assert restart.startswith("AMQ7467I: the oldest log file needed to start queue manager 'QM1' is S000000")
    assert "S0000000.LOG" not in restart
    assert media == "AMQ7468I: the oldest log file needed for media recovery of it is S0000000.LOG."
    _, err = run("rcdmqimg -m QM1 -l -t all 'QL*'")
    restart, media = err.splitlines()
    assert media.split(" is ")[1] == restart.split(" is ")[1]
    _, err = run("rcdmqimg -m QM1 -l -z -t ql NONE", 128)
    assert err.startswith("AMQ7467I")


def test_names_of_queue_managers(run: Run, made: Path) -> None:
    for words in ("rcdmqimg -t ql '*'", "rcrmqobj -t ql '*'", f"recover-to --lsn 0:0:5:0 --into {made}2"):
        command, _, rest = words.partition(" ")
        _, err = run(f"{command} -m NONE {rest}", 72)
        assert err.startswith("AMQ7048E: queue manager 'NONE' does not exist")
        _, err = run(words, 72)
        assert err.startswith("AMQ7048E: no queue manager is named, and there is no default one; name one")


def test_while_another_process_has_it(made: Path, run: Run, environment: dict[str, str]) -> None:
    application = Application(environment)
    for words in (
        "rcdmqimg -m QM1 -t ql '*'",
        "rcrmqobj -m QM1 -t ql QL.A",
        "archive-log -m QM1",
        "migmqlog -m QM1 -lla",
        f"recover-to -m QM1 --time 2999-01-01 --into {made}2",
        "repair -m QM1",
        "repair -m QM1 --check",
    ):
        _, err = run(words, 40)
        ended = words.startswith(("migmqlog", "recover-to", "repair"))  # it is to be
        assert err.startswith("AMQ7005E" if ended else "AMQ8146E")
        assert str(application.process.pid) in err
        assert ("End it first." in err) == ended
    assert application.tell("get QL.A") == "QL.A"
    application.end()
    assert not Path(f"{made}2/qmgrs/QM1/qm.ini").exists()


def test_circular_logging_is_not_supported(run: Run, data: Path) -> None:
    run("crtmqm QM1")
    with qmgr.start("QM1", data_path=data) as manager:
        manager.define_queue("A")
    for words in (
        *("rcdmqimg -m QM1 -t ql A", "rcdmqimg -m QM1 -t qmgr", "rcrmqobj -m QM1 -t ql A"),
        *("rcrmqobj -m QM1 -t qmgr", "rcrmqobj -m QM1 -t ctlg"),
    ):
        out, err = run(words, 68)
        assert out == ""
        assert err.startswith("AMQ7044E: queue manager 'QM1' has circular logging")
        assert "migmqlog" in err
        assert run(words.replace("-t", "-z -t"), 68) == ("", "")


def test_the_syncfile_is_made_again_whatever_the_log(run: Run) -> None:
    run("crtmqm QM1")
    assert run("rcrmqobj -m QM1 -t syncfile") == (OBJECT.format("QM1", "syncfile"), "")


def test_an_object_in_use_has_a_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(rcrmqobj.CODES, quiet=False)
    assert tally.refused(ObjectInUse("queue 'A' can't be recreated now")) == 136
    assert capsys.readouterr().err.startswith("AMQ8101E: queue 'A' can't be recreated now")


# -- recover-to ------------------------------------------------------------------------------------------------------


def test_recover_to_an_lsn_and_to_a_time(made: Path, run: Run, tmp_path: Path) -> None:
    with qmgr.start("QM1", data_path=made) as manager:
        manager.put("QL.A", b"second")
        unit = manager.begin(qmgr.Xid(1, b"x", b""))
        unit.put("QL.B", b"doubtful")
        unit.prepare()
        tail = manager.status().log.tail
        then = datetime.datetime.now(datetime.UTC)
        manager.resolve(qmgr.Xid(1, b"x", b""), commit=False)
        manager.delete_queue("QL.A", purge=True)
    written = {path: path.read_bytes() for path in made.rglob("S*.LOG")}
    elsewhere = then.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
    for number, when in enumerate(
        [
            f"--lsn '{lsn.text(tail)}'",
            f"--lsn {lsn.text(tail).strip('<>')}",
            f"--time {then.isoformat()}",
            f"--time {then.replace(tzinfo=None).isoformat()}",
            f"--time {elsewhere.isoformat()}",
            f"--lsn {tail}",
        ]
    ):
        into = tmp_path / f"then{number}"
        out, err = run(f"recover-to -m QM1 {when} --into {into}")
        first, second = out.splitlines()
        assert first.startswith(f"Queue manager 'QM1' as of LSN {lsn.text(tail)}, ")
        assert first.endswith(f"built in '{into}'.")
        assert second == "Queues: 3; messages: 3; units of work in doubt: 1; in flight, so backed out: 0."
        assert err == ""
        assert "QMNAME(QM1)" in run(f"dspmq --data-path {into}")[0]
        with qmgr.start("QM1", data_path=into) as manager:
            assert [message.body for message in manager.browse("QL.A")] == [b"QL.A", b"second"]
            assert manager.in_doubt() == [qmgr.Xid(1, b"x", b"")]
            manager.resolve(qmgr.Xid(1, b"x", b""), commit=True)
            assert [message.body for message in manager.browse("QL.B")] == [b"QL.B", b"doubtful"]
    assert {path: path.read_bytes() for path in made.rglob("S*.LOG")} == written
    assert run("rcdmqimg -m QM1 -t ql QL.B")[0] == IMAGE.format("QL.B", QUEUE)


def test_recover_to_refuses_in_a_line(made: Path, run: Run, tmp_path: Path) -> None:
    into = tmp_path / "no"
    for words, code, says in (
        (f"--into {into}", 36, "AMQ7006E: one of the arguments --lsn --time is required"),
        ("--lsn 0:0:5:0", 36, "AMQ7006E: the following arguments are required: --into"),
        (f"--lsn 0:0:5:0 --time 2026-01-01 --into {into}", 36, "AMQ7076E: argument --time: not allowed with"),
        (f"--lsn 0:5:0 --into {into}", 36, "AMQ7076E: '0:5:0' is not an LSN"),
        (f"--lsn 0:0:0:70000 --into {into}", 36, "AMQ7076E: '0:0:0:70000' is not an LSN"),
        (f"--time yesterday --into {into}", 36, "AMQ7076E: 'yesterday' is not a moment"),
        (f"--lsn 0:0:999:0 --into {into}", 36, "AMQ7076E: the log ends at <0:0:4:"),
        (f"--lsn 0:0:0:0 --into {into}", 36, "AMQ7076E: the log begins at <0:0:4:0>"),
        (
            f"--time 1999-12-31 --into {into}",
            36,
            "AMQ7076E: the log begins at <0:0:4:0>, and what is asked for was before that",
        ),
        (f"--time 2999-01-01 --into {made}", 8, "AMQ8110E: "),
    ):
        out, err = run(f"recover-to -m QM1 {words}", code)
        assert out == ""
        assert err.startswith(says), err
        assert err.count("\n") == 1
        assert not into.exists()
    out, _ = run(f"recover-to -m QM1 --time 2999-01-01 --into {into}")
    assert out.splitlines()[2:] == [
        "--time is still to come, so this is all that the log has; without +hh:mm it is taken as UTC."
    ]
    _, err = run(f"recover-to -m QM1 --time 2999-01-01 --into {into}", 8)
    assert err.startswith(f"AMQ8110E: {into} has a queue manager 'QM1' already; give an empty directory")


def test_recover_to_of_one_that_was_never_started_says_so(run: Run, tmp_path: Path) -> None:
    run("crtmqm -ll -lp 2 -lf 64 QM1")
    for when in ("--time 2999-01-01", "--lsn 262144"):
        _, err = run(f"recover-to -m QM1 {when} --into {tmp_path / 'no'}", 36)
        assert err.startswith("AMQ7076E: its log holds nothing yet: the queue manager was never started")
        assert not (tmp_path / "no").exists()


def test_a_disk_without_room_has_a_code_of_its_own(
    made: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, real = tmp_path / "full", PosixDisk.open

    def opened(disk: PosixDisk, path: str, *, create: bool = False, direct: bool = False) -> File:
        if create and path.startswith((str(into), f"{made}/qmgrs/QM1/repair-1")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real(disk, path, create=create, direct=direct)

    monkeypatch.setattr(PosixDisk, "open", opened)
    (made / "log" / "QM1" / "amqhlctl.lfh").rename(tmp_path / "control")
    for words in (
        "repair -m QM1",
        f"recover-to -m QM1 --time 2999-01-01 --into {into}",
        f"migmqlog -m QM1 -ld {into}",
        f"crtmqm -md {into} -ld {into} -lf 64 N",
    ):
        _, err = run(words, 70)
        assert err.startswith(f"AMQ7002S: no room, free some space: {os.strerror(errno.ENOSPC)}: ")
        if words.startswith("migmqlog"):  # which goes on there
            shutil.rmtree(into)
        assert not into.exists()
        if words.startswith("repair"):
            (tmp_path / "control").rename(made / "log" / "QM1" / "amqhlctl.lfh")
            (made / "qmgrs" / "QM1" / "repair-1").exists() and shutil.rmtree(made / "qmgrs" / "QM1" / "repair-1")


@pytest.mark.parametrize(
    "words",
    [
        "dspmqtrn -m QM1",
        "rsvmqtrn -m QM1 -c 0,1",
        "rcdmqimg -m QM1 -t all",
        "rcrmqobj -m QM1 -t all *",
        "archive-log -m QM1",
        "dmpmqcfg -m QM1 --offline",
        "setmqaut -m QM1 -t qmgr -p mia +connect --offline",
        "dspmqaut -m QM1 -t qmgr -p mia --offline",
        "amqsput --offline QL.A QM1",
        "amqsget --offline QL.A QM1",
        "amqsgbr --offline QL.A QM1",
        "amqsbcg --offline QL.A QM1",
        "amqsblst QM1 QL.A -W --offline",
        "migmqlog -m QM1 -lc",
        "dltmqm QM1",
    ],
)
def test_its_code_is_among_those_of_each_command_that_needs_room(
    made: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def lock(disk: PosixDisk, path: str, holder: str, held: object = None) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(PosixDisk, "lock", lock)
    _, err = run(words, 70)
    assert "free some space" in err
    codes, _ = run(f"{words.split()[0]} --help")
    assert "\n   70  no room on the disk, or in the log\n" in codes


def test_what_was_done_is_said_also_where_the_end_fails(made: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever asks again hears that there is no such transaction, and not what became of it."""
    with qmgr.start("QM1", data_path=made) as manager:
        unit = manager.begin(qmgr.Xid(1, b"bank", b"1"))
        unit.put("QL.B", b"in doubt")
        unit.prepare()
        number = f"0,{unit.id}"
    done, rename = [], PosixDisk.rename

    def renamed(disk: PosixDisk, old: str, new: str) -> None:
        if done and new.endswith("amqalchk.fil"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), new)
        rename(disk, old, new)

    monkeypatch.setattr(PosixDisk, "rename", renamed)
    resolve, archive = qmgr.QueueManager.resolve, qmgr.QueueManager.archive_log
    monkeypatch.setattr(qmgr.QueueManager, "resolve", lambda self, *a, **k: done.append(resolve(self, *a, **k)))
    monkeypatch.setattr(qmgr.QueueManager, "archive_log", lambda self, **k: done.append(archive(self, **k)) or done[-1])
    for words, says in (
        (f"rsvmqtrn -m QM1 -c {number}", f"AMQ7053I: Transaction {number} was committed.\n"),
        ("archive-log -m QM1", "0 log extents, 0 bytes.\n"),
    ):
        done.clear()
        out, err = run(words, 71)
        assert out == says
        assert "could not be ended in order" in err
        assert err.count("\n") == 1


def test_recover_to_names_what_is_missing(made: Path, run: Run, tmp_path: Path) -> None:
    with qmgr.start("QM1", data_path=made) as manager:
        moment = manager.status().log.tail
        for _ in range(12):
            manager.put("QL.B", bytes(100_000))
            manager.get("QL.B")
        manager.checkpoint()
    (made / "log" / "QM1" / "active" / "S0000000.LOG").unlink()
    _, err = run(f"recover-to -m QM1 --lsn '{lsn.text(moment)}' --into {tmp_path / 'no'}", 71)
    assert "S0000000.LOG" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "no").exists()


# -- migmqlog --------------------------------------------------------------------------------------------------------


def test_from_circular_to_linear_and_back(run: Run, data: Path, tmp_path: Path) -> None:
    run("crtmqm -lc -lp 2 -lf 64 QM1")
    with qmgr.start("QM1", data_path=data) as manager:
        manager.define_queue("A")
        manager.put("A", b"kept")
    for option, management in (("-ll", "Manual"), ("-lla", "Automatic"), ("-lln", "Archive")):
        out, _ = run(f"migmqlog -m QM1 {option}")
        assert out.splitlines()[-1] == "The log of queue manager 'QM1' is as it should be; it can be started."
        ini = (data / "qmgrs" / "QM1" / "qm.ini").read_text()
        assert "LogType=LINEAR" in ini
        assert management in ini or management == "Manual"
        with qmgr.start("QM1", data_path=data) as manager:
            assert manager.config.log_management.value == management
    assert run("rcdmqimg -m QM1 -t all")[0] == IMAGE.format("A", QUEUE) + IMAGE.format("QM1", "qmgr")
    for path in files(data, "A"):
        path.unlink()
    assert run("rcrmqobj -m QM1 -t ql A")[0] == OBJECT.format("A", QUEUE)
    out, _ = run(f"migmqlog -m QM1 -ld {tmp_path / 'logs'}")
    assert f"The log is in {tmp_path / 'logs' / 'QM1'} now." in out
    assert not (data / "log" / "QM1" / "active").exists()
    out, _ = run("migmqlog -m QM1 -lc")
    assert out.startswith("Media recovery ends here: ")
    run("rcdmqimg -m QM1 -t ql A", 68)
    with qmgr.start("QM1", data_path=data) as manager:
        assert manager.get("A").body == b"kept"


def test_a_log_does_not_move_to_where_the_data_is(made: Path, run: Run) -> None:
    _, err = run(f"migmqlog -m QM1 -ld {made / 'qmgrs'}", 100)
    assert "the log can't lie where the data is, nor in a directory above that; give another path" in err
    assert (made / "log" / "QM1" / "amqhlctl.lfh").exists()


def test_no_name_at_all_builds_no_queue_again(made: Path, run: Run) -> None:
    """As of a variable that is not set: it would take the non-persistent messages of all queues."""
    assert run("rcrmqobj -m QM1 -t ql ''", 128) == ("", "AMQ7085E: queue manager 'QM1' has no object '' of type ql.\n")


def test_migmqlog_refuses_in_a_line(made: Path, run: Run, environment: dict[str, str]) -> None:
    for words, code, says in (
        ("-m NONE -lc", 72, "AMQ7048E"),
        ("-lc", 36, "AMQ7006E"),
        ("-m QM1 -lc -ll", 36, "AMQ7076E"),
        ("-m QM1 -lq", 36, "AMQ7075E"),
    ):
        out, err = run(f"migmqlog {words}", code)
        assert out == ""
        assert err.startswith(says), err
        assert err.count("\n") == 1
    for path in ("/dev/null", made / "log" / "QM1" / "active"):
        _, err = run(f"migmqlog -m QM1 -ld {path}", 100)
        assert err.startswith(f"AMQ7064E: the log can't be in {path}: ")
    run("recover-to -m QM1 --lsn 0:0:5:0 --into /dev/null", 36)
    run("dmpmqlog -m QM1 -n 999", 36)
    run("dmpmqlog -m QM1 -s 0:0:0:8", 36)
    application = Application(environment)
    application.process.kill()
    application.process.communicate()
    _, err = run("migmqlog -m QM1 -lc", 71)
    assert "did not end in order" in err or "start it and end it" in err
    assert err.count("\n") == 1
    run("rcdmqimg -m QM1 -t ql QL.A")
    run("migmqlog -m QM1 -lc")


def test_circular_logging_is_said_also_where_there_is_no_queue(run: Run) -> None:
    run("crtmqm -lp 2 -ls 1 -lf 64 QM1")
    _, err = run("rcdmqimg -m QM1 -t ql '*'", 68)
    assert "has circular logging" in err
