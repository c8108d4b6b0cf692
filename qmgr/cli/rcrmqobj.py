"""rcrmqobj: build lost or damaged objects again from their media images and the log."""

import argparse

from qmgr import QueueManager
from qmgr.cli import access, objects
from qmgr.cli.command import NOT_AVAILABLE, Bar, Command, Parser, complain, explain
from qmgr.errors import MediaImageMissing, MediaNotSupported, MQError, NotImageRecoverable, ObjectInUse

NOT_RECOVERABLE = 28
NO_IMAGE = 66
NOT_SUPPORTED = 68
NOTHING = 128
IN_USE = 136


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("-t", metavar="ObjectType", required=True, type=objects.check_type, help=objects.TYPES)
    parser.add_argument("name", metavar="GenericObjName", help="a name, or its beginning and *")


def run(args: argparse.Namespace) -> int:
    name = access.named(args.m, args.data_path)
    with access.started(name, args.data_path) as manager:
        code = NOTHING
        for queue in objects.queues(manager, args.t, args.name):
            try:
                recreate(manager, queue)
            except (NotImageRecoverable, MediaImageMissing, MediaNotSupported, ObjectInUse) as exc:
                code = said(exc, quiet=args.z)
                if code == NOT_SUPPORTED:
                    return code
            else:
                print(f"Object {queue}, type qlocal recreated.")
                code = 0 if code == NOTHING else code
        if objects.definitions(args.t):
            manager.checkpoint()  # which writes all definitions anew
            print(f"Object {name}, type qmgr recreated.")
            code = 0 if code == NOTHING else code
        if code == NOTHING and not args.z:
            complain(f"AMQ7085E: queue manager {name!r} has no object {args.name!r} of type {args.t}.")
        return code


def recreate(manager: QueueManager, queue: str) -> None:
    bar = Bar()
    try:
        manager.recreate(queue, progress=bar)
    finally:
        bar.end()


def said(exc: MQError, *, quiet: bool) -> int:
    """Say what went wrong with one object; the exit code of it."""
    codes = {
        MediaNotSupported: (NOT_SUPPORTED, "AMQ7044E"),
        NotImageRecoverable: (NOT_RECOVERABLE, "AMQ7044E"),
        MediaImageMissing: (NO_IMAGE, "AMQ7042E"),
        ObjectInUse: (IN_USE, "AMQ8101E"),
    }
    code, amq = codes[type(exc)]
    if not quiet:
        complain(explain(exc)[1].replace("AMQ8101S", amq))
    return code


COMMAND = Command(
    name="rcrmqobj",
    purpose="Build lost or damaged objects again from their media images and the log.",
    notes=access.NO_DAEMON.replace("qm.transactions() and qm.resolve()", "qm.recreate()")
    + "\n\nLinear logging only. Non-persistent messages are not recovered.",
    usage="[-m QMgrName] [-z] -t ObjectType [--data-path dir] GenericObjName",
    example="rcrmqobj -m QM1 -t ql ORDERS",
    codes={
        NOT_RECOVERABLE: "an object is not media recoverable",
        NOT_AVAILABLE: access.OWNED,
        NO_IMAGE: "a media image, or an extent that it needs, is not available",
        NOT_SUPPORTED: "media recovery is not supported: the log is circular",
        NOTHING: "no objects processed",
        IN_USE: "an object is in use",
    },
    options=options,
    run=run,
    quiet=True,
)


def main() -> int:
    return COMMAND.main()
