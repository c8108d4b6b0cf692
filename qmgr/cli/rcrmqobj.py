"""rcrmqobj: build lost or damaged objects again from their media images and the log."""

import argparse

from qmgr.cli import access, objects
from qmgr.cli.command import BAD_ARGUMENTS, NOT_AVAILABLE, WHERE_FULL, Bar, Command, Failure, Parser
from qmgr.errors import MediaImageMissing, MediaNotSupported, MQError, NotImageRecoverable, ObjectInUse

NOT_RECOVERABLE = 28
NO_IMAGE = 66
NOT_SUPPORTED = 68
IN_USE = 136
CODES: dict[type[MQError], tuple[int, str]] = {
    MediaNotSupported: (NOT_SUPPORTED, "AMQ7044E"),
    NotImageRecoverable: (NOT_RECOVERABLE, "AMQ7044E"),
    MediaImageMissing: (NO_IMAGE, "AMQ7042E"),
    ObjectInUse: (IN_USE, "AMQ8101E"),
}


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("-t", metavar="ObjectType", required=True, type=objects.check_type, help=objects.TYPES)
    parser.add_argument("name", metavar="GenericObjName", nargs="?", help="a name, or its start and *")


def run(args: argparse.Namespace) -> int:
    name = access.named(args.m, args.data_path)
    if args.name is None and not objects.definitions(args.t, args.name, name) and args.t != "clchltab":
        raise Failure(
            BAD_ARGUMENTS, "AMQ7006E", f"-t {args.t} needs a name, or its start and *, which may be '*' alone."
        )
    args.name = "*" if args.name is None else args.name
    tally = objects.Tally(CODES, quiet=args.z)
    with access.started(name, args.data_path) as manager:
        if args.t != objects.ON_ANY_LOG:
            try:
                manager.record_image([])  # which says whether there is media recovery at all
            except MediaNotSupported as exc:
                return tally.refused(exc)
        for queue in objects.queues(manager, args.t, args.name):
            try:
                recreate(manager, queue)
            except tally.errors as exc:
                if tally.refused(exc) == NOT_SUPPORTED:
                    return tally.code
            else:
                tally.done(f"Object {queue}, type qlocal recreated.")
        aliases = objects.aliases(manager, args.t, args.name)
        if objects.definitions(args.t, args.name, name) or aliases:
            manager.checkpoint()  # which writes all definitions anew
        for alias in aliases:
            tally.done(f"Object {alias}, type qalias recreated.")
        if objects.definitions(args.t, args.name, name):
            tally.done(f"Object {name}, type {objects.name_of(args.t)} recreated.")
        return tally.end(name, args.t, args.name)


def recreate(manager: access.Manager, queue: str) -> None:
    bar = Bar()
    try:
        manager.recreate(queue, progress=bar)
    finally:
        bar.end()


COMMAND = Command(
    name="rcrmqobj",
    purpose="Rebuild lost or damaged objects from their media images and the log.",
    notes=access.WHERE_IT_RUNS.format(method="qm.recreate()")
    + "\n\nLinear logging only, but for -t syncfile. Non-persistent messages are not recovered. -t qmgr, catalog and\n"
    "syncfile need no name.",
    usage="[-m QMgrName] [-z] -t ObjectType [--data-path dir] [GenericObjName]",
    example="rcrmqobj -m QM1 -t ql ORDERS",
    codes={
        NOT_RECOVERABLE: "an object is not media recoverable",
        NOT_AVAILABLE: access.NO_ANSWER,
        **access.ENDING_CODE,
        NO_IMAGE: "a media image, or an extent that it needs, is not available",
        **WHERE_FULL,
        NOT_SUPPORTED: "media recovery is not supported: the log is circular",
        objects.NO_OBJECTS: "no objects processed",
        IN_USE: "an object is in use",
    },
    options=options,
    run=run,
    quiet=True,
)
