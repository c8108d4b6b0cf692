"""dltmqm: delete a queue manager and all that it holds."""

import argparse

import qmgr
from qmgr import locations
from qmgr.cli import access
from qmgr.cli.command import NOT_AVAILABLE, WHERE_FULL, Command, Failure, Parser
from qmgr.creation import keep_deleted
from qmgr.errors import InUse, Reason, Unavailable

RUNNING = 5
UNKNOWN = 16


def options(parser: Parser) -> None:
    parser.add_argument("name", metavar="QMgrName", help="the queue manager")


def run(args: argparse.Namespace) -> int:
    location = locations.find(args.name, args.data_path)
    if not access.DISK.exists(location.deleted_ini):  # of a deletion that was interrupted
        if not access.DISK.exists(location.ini):
            keep_deleted(access.DISK, location)
        access.known(args.name, args.data_path, code=UNKNOWN, amq="AMQ8118E")
    access.registry(args.data_path)  # a damaged mqs.ini is better heard of before than after
    try:
        qmgr.delete(args.name, data_path=args.data_path)
    except InUse as exc:
        if not exc.name:  # it is mqs.ini that somebody else has
            raise
        raise Failure(RUNNING, "AMQ7005E", access.held(args.name, exc)) from exc
    except Unavailable as exc:
        if exc.reason is not Reason.Q_MGR_NAME_ERROR:
            raise
        raise Failure(UNKNOWN, "AMQ8118E", f"somebody else has deleted queue manager {args.name!r}.") from exc
    print(f"Queue manager {args.name!r} deleted.")
    return 0


COMMAND = Command(
    name="dltmqm",
    purpose="Delete a queue manager: its queues, messages, log and configuration.",
    notes="It must not be running. This can't be undone.",
    usage="[-z] [--data-path dir] QMgrName",
    example="dltmqm QM1",
    codes={
        RUNNING: "the queue manager is running",
        NOT_AVAILABLE: "somebody else has mqs.ini",
        UNKNOWN: "the queue manager does not exist",
        **WHERE_FULL,
    },
    options=options,
    run=run,
    quiet=True,
)
