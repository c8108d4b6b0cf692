"""What all jobs share: their words, the log as their table, progress on stderr, one sentence for what goes wrong."""

import argparse
import builtins
import contextlib
import datetime
import importlib
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from logger import control
from logger import lsn as lsns
from logger.errors import LogError, NotInLog
from logger.posix_disk import PosixDisk, absolute_path
from pipeline import finding, log_options, session
from pipeline.log_files import LogFiles
from pipeline.paths import GLOB_CHARS, local
from pipeline.session import INSTALL
from qmgr import locations
from qmgr.cli import access, command
from qmgr.cli.command import NO_ROOM, NOT_AUTHORISED, NOT_AVAILABLE, UNEXPECTED
from qmgr.errors import Mistake, MQError
from qmgr.objects import NAME, unmangle
from qmgr.ownership import is_data_dir
from recovery.errors import RecoveryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOOD = 0
BAD_ARGUMENTS = 2
DIFFERENT = 10
PRINT_EVERY_S = 10.0  # a line of progress, where stderr is no terminal
POLL_S = 0.5
OURS = re.compile(r"^\s*((?:logger|recovery|qmgr|pipeline)(?:\.\w+)*)\.(\w+): (.+)$", re.MULTILINE)
CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] .+")
OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|Java heap space|GC overhead|SparkContext was shut down|cleanUpAfterSchedulerStop"
)
MORE_MEMORY = "give Java more memory, such as by SPARK_DRIVER_MEMORY=4g in the environment"
FULL = re.compile(r"No space left on device|Disk quota exceeded")
MORE_ROOM = (
    "make room where --out lies, and where Spark has its scratch files (/tmp, unless SPARK_LOCAL_DIRS in the "
    "environment names others)"
)
JAVA_ENDED = f"AMQ6118S: Java has ended while Spark was at work in it; {MORE_MEMORY}"
WORKER_ENDED = "Python worker exited unexpectedly"
PYTHON_ENDED = (
    "AMQ6118S: a Python process of Spark has ended in the middle of its work, as where the system kills one for want "
    "of memory; see that there is enough, and run the job again"
)
NO_RECORDS = "there is no record in this part of the log; look at --from and --to."
UNANSWERED = re.compile(r"An error occurred while calling \S+\s*")  # all that py4j says when Java dies meanwhile
CAUSE = re.compile(r"^\s*Caused by: (?:[\w.$]+: )*(.+)$", re.MULTILINE)
PYTHONS = re.compile(r"^\s*(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
OF_A_FILE = re.compile(r"\[Errno (\d+)\] (.+): '([^'\\]+)'")  # what Python says of an error of the system's


class Failure(command.Failure):
    """The job ends with this status; the reason is one sentence."""

    def __init__(self, text: str, code: int = BAD_ARGUMENTS) -> None:
        super().__init__(code, "AMQ7076E", text)


# Words


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words that all jobs take which read a log from one place to another."""
    log_arguments(parser)
    where = "an LSN such as 0:0:4615:42406 or as a number, or a time such as 2026-11-21T14:30:00, UTC unless it says"
    parser.add_argument("--from", metavar="WHERE", dest="since", type=place, help=f"begin there: {where}")
    parser.add_argument("--to", metavar="WHERE", dest="until", type=place, help="end before it, likewise")


def log_arguments(parser: argparse.ArgumentParser) -> None:
    """The words that say which log, and where to write."""
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        type=log_path,
        help="a data path (with --qmgr; without PATH it is found as qm commands find it), a queue manager's name or "
        "folder, a log directory, or a folder of extents, plain or compressed",
    )
    parser.add_argument("--qmgr", metavar="NAME", help="the queue manager whose log is read; PATH is its data path")
    parser.add_argument(
        "--out", metavar="DIR", type=directory, required=True, help="the folder for Parquet files and the report"
    )


def resolve_manager(args: argparse.Namespace) -> None:
    """Let both PATH and --qmgr say which queue manager it is, where one of them does. Raises Failure."""
    disk, root = PosixDisk(), locations.data_root()
    if args.path is None:
        args.path, args.qmgr = root, args.qmgr or access.registry(None).default
        if args.qmgr is None:
            raise Failure(f"name a log by PATH or --qmgr, or make a queue manager the default one in {root}/mqs.ini.")
        return
    above, _, folder = absolute_path(args.path).rpartition("/qmgrs/")
    if disk.exists(f"{above}/qmgrs/{folder}/qm.ini") and args.qmgr in (None, unmangle(folder)):
        args.path, args.qmgr = above, unmangle(folder)
    elif args.qmgr is None and not disk.exists(absolute_path(args.path)) and _is_queue_manager(args.path):
        args.path, args.qmgr = root, args.path


def _is_queue_manager(text: str) -> bool:
    return NAME.fullmatch(text) is not None and access.exists(text, None)


def directory(text: str) -> str:
    """What `--out` was given. Raises Failure."""
    return path_given("--out", text, "a directory that this machine and all workers have mounted")


def log_path(text: str) -> str:
    """What PATH was given. Raises Failure."""
    return path_given("PATH", text, "a path where this machine has the log mounted")


def path_given(what: str, text: str, wanted: str) -> str:
    """The path on a disk of this machine that `what` was given. Raises Failure, which asks for what is `wanted`."""
    with contextlib.suppress(Mistake, UnicodeEncodeError):
        text.encode()  # py4j breaks off in the middle of a name that is no UTF-8
        if text:
            return local(text)
    raise Failure(f"{what} was given {text!r}; name {wanted}.")


Place = int | datetime.datetime  # an LSN, or a moment
MAX_NUMBER_CHARS = 40  # and so much of a text is shown


def place(text: str) -> Place:
    """An LSN or a moment. Raises Failure for anything else."""
    digits = text.isascii() and text.isdigit()  # too many of them would be a moment of the year that they begin with
    with contextlib.suppress(ValueError):
        return log_options.number(text) if digits else lsns.parse(text)
    try:
        at = datetime.datetime.fromisoformat("" if digits else text)
    except ValueError:
        raise Failure(
            f"{text[:MAX_NUMBER_CHARS]!r} is no LSN and no moment; write 0:0:4615:42406, or 2026-11-21T14:30:00, in "
            f"UTC or with +hh:mm."
        ) from None
    try:
        return at.astimezone(datetime.UTC) if at.tzinfo else at.replace(tzinfo=datetime.UTC)
    except OverflowError:
        raise Failure(f"{text!r} lies, in UTC, outside of the years 1 to 9999.") from None


def find_log(args: argparse.Namespace) -> LogFiles:
    """The log, which lies elsewhere than `--out`. Raises Failure, LogError, OSError."""
    log = finding.find(args.path, args.qmgr)
    out = os.path.realpath(directory(args.out))  # of a loop too
    if out in {os.path.realpath(one) for one in log.directories}:
        raise Failure(f"--out is {args.out!r}, where the log lies; name a folder of its own.")
    refuse_queue_managers(args, out)
    return log


def refuse_queue_managers(args: argparse.Namespace, out: str) -> None:
    """Raise Failure where the path `out` is among a queue manager's files: all there goes when that is deleted."""
    disk = PosixDisk()
    for above in (Path(out), *Path(out).parents):
        with contextlib.suppress(OSError):  # what can't be looked at is told when it is made
            if disk.exists(f"{above}/{control.NAME}") or is_data_dir(disk, str(above)):
                raise Failure(f"--out is {args.out!r}, among a queue manager's own files; name a folder of its own.")
    root = absolute_path(args.path)
    if args.qmgr is not None and out in {os.path.realpath(one) for one in (root, f"{root}/qmgrs", f"{root}/log")}:
        raise Failure(f"--out is {args.out!r}, where queue managers lie; name a folder of its own.")


def check(args: argparse.Namespace) -> tuple[int, int]:
    """Is there a log, and are `--from` and `--to` places in it? Where it begins and ends for this job.

    Raises Failure, LogError, OSError.
    """
    log = find_log(args)
    since, until = bounds(log, args)
    return log_options.lsn_of(log_options.OLDEST if since is None else since, log), until


def check_some(args: argparse.Namespace) -> None:
    """As `check`; raises Failure also where nothing lies between the two places."""
    since, until = check(args)
    if since >= until:
        raise Failure(NO_RECORDS)


def out_folder(args: argparse.Namespace, *parts: str) -> str:
    """The absolute path of a folder below `--out`, which is made. Raises Failure, PermissionError."""
    folder = Path(directory(args.out)).absolute().joinpath(*parts)
    if GLOB_CHARS.intersection(str(folder)):
        raise Failure(
            f"--out is {str(folder)!r}: Spark takes a path with one of {{}}[]*?\\ for a pattern; name another."
        )
    if os.path.realpath(folder) == "/":
        raise Failure(f"--out is {args.out!r}, where all else lies too; name a folder of its own.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except PermissionError:
        raise
    except OSError as exc:
        why = command.with_way_out(exc, command.ANOTHER_PATH)
        raise Failure(f"--out was given {args.out!r}, which can't be made: {why}") from None
    return str(folder)


# The log


def log_table(spark: "SparkSession", args: argparse.Namespace, columns: str | None = None) -> "DataFrame":
    """The log as a table (`pipeline/schema.py`), from `--from` to `--to`; `columns`, as DDL: only these.

    Raises Failure, LogError, OSError.
    """
    log = finding.find(args.path, args.qmgr)
    since, until = bounds(log, args)
    session.fit(spark, until - (log.first() if since is None else since))
    return read_log(spark, args.path, args.qmgr, since, until, columns)


def bounds(log: LogFiles, args: argparse.Namespace) -> tuple[int | None, int]:
    """`--from` and `--to` as LSNs, `--to` no later than the durable end: behind that nothing is of the log yet.

    Raises Failure for a `--from` behind that, or behind `--to`, LogError, OSError.
    """
    moments = isinstance(args.since, datetime.datetime) and isinstance(args.until, datetime.datetime)
    if moments and args.since > args.until:
        raise Failure(f"--from is {args.since:%Y-%m-%dT%H:%M:%SZ}, which lies behind --to.")
    since, until = (lsn_of(log, where) for where in (args.since, args.until))
    end = log.end()
    if since is not None and since > end:
        raise Failure(f"the log ends at {lsns.text(end)}, so {lsns.text(since)} (--from) is not in it.")
    if since is not None and until is not None and since > until:
        raise Failure(f"--from is {lsns.text(since)}, and that lies behind --to, which is {lsns.text(until)}.")
    return since, end if until is None else min(until, end)


def lsn_of(log: LogFiles, where: Place | None) -> int | None:
    """A moment as the LSN of the first record of then or later; an LSN, or None, as it is."""
    return log.at_time(log_options.microseconds(where)) if isinstance(where, datetime.datetime) else where


def read_log(
    spark: "SparkSession",
    path: str,
    qmgr: str | None,
    since: int | None = None,
    until: int | None = None,
    columns: str | None = None,
) -> "DataFrame":
    """The log as a table: the records that begin in [since, until); None: no bound. `columns` as in `log_table`."""
    given = {"qmgr": qmgr, "startingLsn": since, "endingLsn": until}
    options = {name: str(value) for name, value in given.items() if value is not None}
    reader = spark.read.format("qmgr.log").options(**options)
    if columns is not None:
        reader = reader.schema(columns)
    return reader.load(str(Path(path).absolute()))


# Progress


def say(text: str) -> None:
    """A line to stderr, where all progress goes."""
    command.complain(text)


@contextlib.contextmanager
def step(spark: "SparkSession", text: str) -> Iterator[None]:
    """Say what goes on, how far Spark has come with it, and how long it took."""
    began = monotonic()
    say(f"{text} …")
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, text, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    say(f"{text}: {monotonic() - began:.1f} s")


def _watch(spark: "SparkSession", text: str, over: threading.Event) -> None:
    """On a terminal a line that changes; else a line every few seconds, which a file can bear."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    last = monotonic()
    shown = ""
    while not over.wait(POLL_S):
        done, tasks = _tasks(spark)
        line = f"{text}: {done} of {tasks} tasks"
        if not tasks or line == shown or (not done and not terminal):
            continue
        if terminal:
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
        elif monotonic() - last >= PRINT_EVERY_S:
            say(line)
            last = monotonic()
        else:
            continue
        shown = line
    if terminal and shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """Tasks done and to do of the stages that run now; nothing where the session can't say, as over Spark Connect."""
    done = tasks = 0
    with contextlib.suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                tasks += info.numTasks
    return done, tasks


# What goes wrong


def explain(exc: Exception) -> tuple[int, str]:
    """The exit status and the sentence of an error, also of one that was raised in a task of Spark."""
    if type(exc).__module__.partition(".")[0] in ("pyspark", "py4j"):
        text = _text_of(exc)
        if UNANSWERED.fullmatch(text):
            return UNEXPECTED, JAVA_ENDED
        found = _python_error_in(text)
        if found is not None:
            return found
        if os.environ.get("QMGR_TRACEBACK"):
            traceback.print_exception(exc)
        if WORKER_ENDED in text and OUT_OF_MEMORY.search(text) is None:
            return UNEXPECTED, PYTHON_ENDED
        ways_out = ((OUT_OF_MEMORY, MORE_MEMORY), (FULL, MORE_ROOM))
        more = "".join(f"; {way}" for sign, way in ways_out if sign.search(text))
        return UNEXPECTED, f"AMQ6118S: Spark failed: {_spark_message(text)}{more}"
    if isinstance(exc, (ConnectionRefusedError, ConnectionResetError)):  # nobody else is connected to
        return UNEXPECTED, JAVA_ENDED
    if isinstance(exc, (Mistake, NotInLog)):
        return BAD_ARGUMENTS, command.numbered(str(exc), "AMQ7076E")
    if isinstance(exc, ModuleNotFoundError):
        said = str(exc)
        return BAD_ARGUMENTS, f"AMQ7076E: {said if INSTALL in said else f'{said}; {INSTALL}'}"
    return _as_commands_do(exc)


def _as_commands_do(exc: Exception) -> tuple[int, str]:
    """What any command says of it, with a status that jobs have."""
    status, text = command.explain(exc)
    return UNEXPECTED if status in (NO_ROOM, NOT_AVAILABLE) else status, text


def _text_of(exc: Exception) -> str:
    """What it says; nothing where only Java could say it, and that has ended."""
    try:
        return str(exc)
    except Exception:
        return "SparkContext was shut down"


def _python_error_in(text: str) -> tuple[int, str] | None:
    """Exit status and sentence of the last Python error in a text of Java's; None: there is none."""
    found = OURS.findall(text)
    if found:
        module, name, sentence = found[-1]
        return _explain_as(getattr(importlib.import_module(module), name, Exception), sentence.strip())
    found = PYTHONS.findall(text)
    if found:
        name, sentence = found[-1]
        return _explain_as(getattr(builtins, name, Exception), sentence.strip())
    return None


def _explain_as(kind: type[BaseException], sentence: str) -> tuple[int, str]:
    if issubclass(kind, (Mistake, NotInLog, ValueError)):
        return BAD_ARGUMENTS, command.numbered(sentence, "AMQ7076E")
    if issubclass(kind, (LogError, RecoveryError)):
        return UNEXPECTED, f"{kind.amq}S: {sentence}"
    if issubclass(kind, MQError):
        return UNEXPECTED, f"AMQ8101S: {sentence}"
    if issubclass(kind, OSError) and (found := OF_A_FILE.fullmatch(sentence)) is not None:
        return _as_commands_do(OSError(int(found[1]), found[2], found[3]))
    if issubclass(kind, PermissionError):
        return NOT_AUTHORISED, f"AMQ7077E: you are not authorised: {sentence}"
    if issubclass(kind, OSError):
        return UNEXPECTED, f"AMQ7002S: a file can't be used: {sentence}"
    return UNEXPECTED, f"AMQ6118S: a task of Spark failed: {kind.__name__}: {sentence}"


def _spark_message(text: str) -> str:
    """The line with the name of the condition, where there is one, and its cause, such as a disk that is full."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [found[0] for line in lines if (found := CONDITION.search(line))][:1]
    causes = [cause.strip() for cause in CAUSE.findall(text)][-1:]
    reasons = [*named, *(cause for cause in causes if not named or cause not in named[0])] or lines[:1]
    return ": ".join(reasons) or "it does not say why"
