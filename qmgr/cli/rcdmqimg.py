"""rcdmqimg: record media images in the log."""

import argparse

from qmgr.cli import access, objects
from qmgr.cli.command import NOT_AVAILABLE, WHERE_FULL, Command, Parser, complain
from qmgr.errors import Damaged, MediaNotSupported, MQError, NotImageRecoverable

NOT_RECOVERABLE = 28
NOT_SUPPORTED = 68
DAMAGED = 132
CODES: dict[type[MQError], tuple[int, str]] = {
    MediaNotSupported: (NOT_SUPPORTED, "AMQ7044E"),
    NotImageRecoverable: (NOT_RECOVERABLE, "AMQ7044E"),
    Damaged: (DAMAGED, "AMQ8149E"),
}


def options(parser: Parser) -> None:
    parser.add_argument("-l", action="store_true", help="write the names of the oldest log extents that are needed")
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("-t", metavar="ObjectType", required=True, type=objects.check_type, help=objects.TYPES)
    parser.add_argument("name", metavar="GenericObjName", nargs="?", default="*", help="a name, or its start and *")


def run(args: argparse.Namespace) -> int:
    name = access.named(args.m, args.data_path)
    tally = objects.Tally(CODES, quiet=args.z)
    with access.started(name, args.data_path) as manager:
        queues = objects.queues(manager, args.t, args.name)
        try:
            manager.record_image([])  # which says whether there are media images at all
        except MediaNotSupported as exc:
            return tally.refused(exc)
        while queues:
            try:
                for queue in manager.record_image(queues):
                    tally.done(f"Media image for object {queue}, type qlocal recorded.")
                break
            except (NotImageRecoverable, Damaged) as exc:
                tally.refused(exc)
                queues.remove(exc.name)  # nothing was done: the same without it
        aliases = objects.aliases(manager, args.t, args.name)
        if objects.definitions(args.t, args.name, name) or aliases:
            manager.record_definitions()
        for alias in aliases:
            tally.done(f"Media image for object {alias}, type qalias recorded.")
        if objects.definitions(args.t, args.name, name):
            tally.done(f"Media image for object {name}, type {objects.name_of(args.t)} recorded.")
        code = tally.end(name, args.t, args.name)
        if args.l:
            restart, media = manager.oldest_extents()
            complain(f"AMQ7467I: the oldest log file needed to start queue manager {name!r} is {restart}.")
            complain(f"AMQ7468I: the oldest log file needed for media recovery of it is {media}.")
        return code


COMMAND = Command(
    name="rcdmqimg",
    purpose="Record media images of objects in the log: what a lost or damaged queue is rebuilt from.",
    notes=access.WHERE_IT_RUNS.format(method="qm.record_image()") + "\n\nLinear logging only.",
    usage="[-l] [-m QMgrName] -t ObjectType [-z] [--data-path dir] [GenericObjName]",
    example="rcdmqimg -m QM1 -l -t ql 'ORDERS.*'",
    codes={
        NOT_RECOVERABLE: "an object is not media recoverable",
        NOT_AVAILABLE: access.NO_ANSWER,
        **access.ENDING_CODE,
        **WHERE_FULL,
        NOT_SUPPORTED: "media recovery is not supported: the log is circular",
        objects.NO_OBJECTS: "no objects processed",
        DAMAGED: "an object is damaged",
    },
    options=options,
    run=run,
    quiet=True,
)
