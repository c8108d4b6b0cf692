"""strmqm: start a queue manager as a daemon."""

import argparse

from qmgr import life, locations
from qmgr.cli import access
from qmgr.cli.command import Command, Failure, Parser
from qmgr.daemon import starting
from qmgr.life import Stage
from qmgr.missing import unknown

BAD_PARAMETER = 39


def options(parser: Parser) -> None:
    parser.add_argument("--foreground", action="store_true", help="run in this process until it has ended")
    parser.add_argument("name", metavar="QMgrName", nargs="?", help="the queue manager; else the default one")


def run(args: argparse.Namespace) -> int:
    name = access.named(args.name, args.data_path)
    location = locations.find(name, args.data_path)
    if not access.DISK.exists(location.ini):
        raise _failure(*starting.explain(unknown(access.DISK, location)))
    printer = starting.Printer()
    if not _runs(location):
        printer.line(f"Queue manager {name!r} starting.")
    if args.foreground:
        code, text = starting.foreground(name, args.data_path)
    else:
        code, text = starting.background(name, args.data_path, printer.line)
    if code == starting.RUNNING and _ending(name, args.data_path):
        code, text = starting.STOPPING, f"AMQ8156E: queue manager {name!r} is ending; start it when it has ended."
    if text:
        raise _failure(code, text)
    return code


def _failure(code: int, text: str) -> Failure:
    amq, _, sentence = text.partition(": ")
    return Failure(code, amq, sentence)


def _runs(location: locations.Location) -> bool:
    try:
        return access.runs(location)
    except OSError:  # the start will meet it too, and say so
        return False


def _ending(name: str, data_path: str | None) -> bool:
    note = life.daemon(access.DISK, locations.find(name, data_path))
    return note is not None and note.stage in (Stage.QUIESCING, Stage.ENDING, Stage.KILLING)


COMMAND = Command(
    name="strmqm",
    purpose="Start a queue manager, restarting it from its log, and return when clients can connect.",
    notes="""\
It runs in a process of its own until endmqm or a signal ends it. With --foreground it runs in this one, which is for
systemd (examples/qmgr@.service) and containers; where NOTIFY_SOCKET is set, it reports there that it is ready.
SIGTERM and SIGINT let units of work in flight end; a second one backs them out; a third one kills the process.""",
    usage="[--foreground] [-z] [--data-path dir] [QMgrName]",
    elsewhere="-a -c -d -e -f -ns -r -si -ss -x",
    example="strmqm QM1",
    codes={
        BAD_PARAMETER: "arguments, or qm.ini, not valid",
        starting.RUNNING: "the queue manager is running",
        starting.UNKNOWN: "the queue manager does not exist",
        starting.LOG_NOT_AVAILABLE: "the log is not available, or damaged",
        starting.STILL_USED: "a command, or another process, still uses its files",
        starting.STOPPING: "the queue manager is ending",
        starting.NO_STORAGE: "no room on the disk, or in memory",
        starting.BAD_LOG_PATH: "LogPath in qm.ini is not valid",
    },
    options=options,
    run=run,
    bad_arguments=BAD_PARAMETER,
    quiet=True,
)
