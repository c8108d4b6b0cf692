"""runmqsc: run MQSC commands, from a terminal, from standard input or from a file."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from logger.errors import LogError
from qmgr import mqsc
from qmgr.cli import access
from qmgr.cli.command import COMMON_CODES, UNEXPECTED, Command, Failure, Parser, because, explain, typed, whole
from qmgr.errors import MQError
from qmgr.mqsc.console import Console, Execute
from recovery.errors import RecoveryError

NOT_RUN = 20
UNKNOWN = "AMQ8118E"
PAUSE = 0.2  # seconds between two looks whether the queue manager is there


class Stopped(Failure):
    """Some commands were run, and then its input or output failed."""


def options(parser: Parser) -> None:
    parser.add_argument("-e", action="store_true", help="do not print the commands themselves")
    verify = "verify only: look for syntax errors and attributes without effect, and run nothing"
    parser.add_argument("-v", action="store_true", help=verify)
    parser.add_argument("-n", action="store_true", help="the same, without a queue manager")
    parser.add_argument("-f", metavar="file", help="read the commands from this file; else from standard input")
    parser.add_argument("-p", metavar="prompt", help="print this before each line is read")
    parser.add_argument(
        "-w",
        metavar="sec",
        type=whole("-w", 1, 999_999, NOT_RUN),
        help="seconds to wait for the queue manager, and for each answer",
    )
    parser.add_argument("-x", action="store_true", help="no effect: in IBM MQ for queue managers on z/OS")
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager, instead of at the end")
    access.add_offline(parser)
    parser.add_argument("name", metavar="QMgrName", nargs="?", help="the queue manager; else the default one")


def run(args: argparse.Namespace) -> int:
    if args.name and args.m and args.name != args.m:
        text = f"-m names {args.m!r} and the last argument {args.name!r}; there is no way from one to the other."
        raise Failure(NOT_RUN, "AMQ7076E", text)
    try:
        lines = _lines(args.f, args.p)
        if args.n:
            return _converse(args, lines, mqsc.verify)
        name = access.named(args.name or args.m, args.data_path)
        if args.v:
            access.known(name, args.data_path, amq=UNKNOWN)
            return _converse(args, lines, mqsc.verify, name)
        with _available(name, args.data_path, args.w or 0, offline=args.offline) as execute:
            return _converse(args, lines, execute, name)
    except Stopped:
        raise
    except (Failure, MQError, LogError, RecoveryError, OSError) as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        amq, _, text = explain(exc)[1].partition(": ")
        raise Failure(NOT_RUN, amq, text) from exc


@contextlib.contextmanager
def _available(name: str, data_path: str | None, seconds: int, *, offline: bool) -> Iterator[Execute]:
    """What runs commands on the queue manager; waits up to `seconds` for it to be there."""
    deadline = access.CLOCK.elapsed_ns() + seconds * 1_000_000_000  # one that is there and silent takes long to say no
    with contextlib.ExitStack() as stack:
        while True:
            try:
                access.there(name, data_path, amq=UNKNOWN)
                manager = stack.enter_context(access.running(name, data_path, offline=offline, timeout=seconds))
                break
            except (Failure, MQError):
                if access.CLOCK.elapsed_ns() >= deadline:
                    raise
            access.pause(PAUSE)
        yield _going_on(manager)


def _going_on(manager: access.Manager) -> Execute:
    """What runs commands. A lost connection fails one command as any error does, and the next connects again."""

    def execute(text: str) -> mqsc.MqscResult:
        try:
            return manager.mqsc(text)
        except MQError as exc:
            return mqsc.undone(text, exc)

    return execute


def _converse(args: argparse.Namespace, lines: Iterator[str], execute: Execute, name: str = "") -> int:
    """Run what the lines say, and print what they are answered."""
    console = Console(execute, echo=not args.e)
    print(f"Starting MQSC for queue manager {name}." if name else "Verifying MQSC.", end="\n\n\n", flush=True)
    try:
        for line in lines:
            for said in console.add(line):
                print(typed(said), flush=True)
            if console.ended:
                break
        for said in console.end():
            print(typed(said), flush=True)
    except OSError as exc:
        if isinstance(exc, BrokenPipeError) or not console.read:
            raise
        text = f"standard input or output failed when {console.read} commands had been run: {because(exc)}"
        raise Stopped(UNEXPECTED, "AMQ7002S", text) from exc
    return console.code


def _lines(file: str | None, prompt: str | None) -> Iterator[str]:
    """The lines of the file, or of standard input. Bytes that are no text are kept, to be refused where they stand."""
    if file is not None:
        try:
            text = Path(file).read_text("utf-8", errors="surrogateescape")
        except OSError as exc:
            raise Failure(NOT_RUN, "AMQ8141E", f"{file} can't be read: {exc.strerror or exc}.") from exc
        return iter(text.removesuffix("\n").split("\n") if text else [])
    return _typed(prompt)


def _typed(prompt: str | None) -> Iterator[str]:
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  lines can be edited then
    elif sys.stdin is not None and hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")
    while True:
        if prompt is not None and not terminal:
            print(prompt, end="", flush=True)
        try:
            yield input(prompt or "") if terminal else _read()
        except EOFError:
            return


def _read() -> str:
    """Raises EOFError."""
    line = sys.stdin.readline() if sys.stdin is not None else ""
    if not line:
        raise EOFError
    return line.removesuffix("\n")


COMMAND = Command(
    name="runmqsc",
    purpose="Run MQSC commands: define, alter, display and delete queues, look at the queue manager and its log.",
    notes="Commands are read from a terminal until END, or from standard input. docs/mqsc.md describes them.\n"
    "The queue manager has to be running, unless --offline lets this process run it until the command ends.",
    usage="[-e] [-v] [-n] [-f file] [-p prompt] [-w sec] [-x] [-m QMgrName] [--offline] [--data-path dir] [QMgrName]",
    elsewhere="-c -u",
    example="runmqsc -e -f queues.mqsc QM1",
    codes={mqsc.COMMANDS_FAILED: "some had errors", NOT_RUN: "nothing was run"},
    common_codes={code: COMMON_CODES[code] for code in (0, UNEXPECTED)},  # with the others nothing was run
    options=options,
    run=run,
    bad_arguments=NOT_RUN,
)
