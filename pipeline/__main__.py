"""The command: `python -m pipeline JOB [PATH] [--qmgr NAME] --out DIR …`; also the main file of a `spark-submit`."""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

try:
    from pipeline import jobs, session
    from qmgr.cli import command
    from qmgr.errors import Mistake

    try:
        session.check_packages("matplotlib")  # which a job would miss when all its work is done
        from pipeline.jobs import common
        from pipeline.jobs.common import Failure
    except (ModuleNotFoundError, Mistake) as exc:
        sys.exit(f"AMQ6118S: {exc.sentence if isinstance(exc, Mistake) else exc}")
except KeyboardInterrupt:  # to load all that takes a second
    sys.exit(130)  # as qmgr.cli.command.INTERRUPTED, which may not be there yet

PROGRAM = "python -m pipeline"
CODES = """\
exit status:
  0    done, and all is as it should be
  1    a package that the pipeline needs is not installed
  2    wrong words, --out is refused, or no Java fits
  10   differences or violations were found; the report lists them
  71   the log is damaged, or something else went wrong
  119  not authorised: the files belong to somebody else
  130  interrupted"""


class Parser(command.SaysItsHelp):
    """Complains in one sentence, also of an option of one value that is given more than once."""

    def __init__(self, **other: Any) -> None:
        super().__init__(**other)
        self.register("action", None, command.Once)  # of each argument that takes a value and names no action

    def error(self, message: str) -> NoReturn:
        raise Failure(f"{message}; see {self.prog} --help.")


def listing() -> str:
    """Every job with its line."""
    found = [(name, jobs.job(name).HELP) for name in jobs.NAMES]
    width = max(len(name) for name, _ in found)
    lines = [f"  {name:<{width}}  {text}" for name, text in found]
    return "\n".join([f"usage: {PROGRAM} JOB [PATH] [--qmgr NAME] --out DIR …", "", "jobs:", *lines, "", CODES])


def parser_of(job: jobs.Job) -> Parser:
    parser = Parser(
        prog=f"{PROGRAM} {job.NAME}",
        description=job.HELP,
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    job.arguments(parser)
    return parser


def run(words: Sequence[str]) -> int:
    """Do what the words say; the exit status. Raises whatever goes wrong."""
    if not words or words[0] in ("-h", "--help"):
        print(listing())
        return 0
    name, *rest = words
    if name not in jobs.NAMES:
        raise Failure(f"there is no job {name!r}; there are {', '.join(jobs.NAMES)}.")
    job = jobs.job(name)
    args = parser_of(job).parse_args(rest)
    common.resolve_manager(args)
    job.check(args)  # at once, and not when Java has come up
    if not session.is_active():
        common.say("starting Spark …")
    spark = session.spark(f"qmgr {name}")
    if threading.current_thread() is not threading.main_thread():
        return job.run(args, spark)
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        return job.run(args, spark)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(_number: int, _frame: object) -> NoReturn:
    """End at Ctrl-C. Spark's own handler talks to Java in the middle of whatever is being said to it."""
    logging.disable()  # py4j would log where it was, with a traceback
    raise KeyboardInterrupt


def attempt(words: Sequence[str]) -> int:
    """As `run`, with a sentence on stderr for what goes wrong."""
    try:
        return run(words)
    except Exception as exc:
        status, text = common.explain(exc)
        command.complain(text)
        return status


def is_ours(record: logging.LogRecord) -> bool:
    """Drop py4j's traceback for a Java that has ended: the job reports that in its sentence."""
    return record.module != "java_gateway"


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if not os.environ.get("QMGR_TRACEBACK"):
        logging.getLogger().addFilter(is_ours)
    return command.printed(lambda: attempt(words))


if __name__ == "__main__":
    sys.exit(main())
