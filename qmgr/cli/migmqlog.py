"""migmqlog: change a stopped queue manager's log to linear or circular logging, or move it."""

import argparse

from logger.disk_errors import retry_advice
from qmgr.cli import access
from qmgr.cli.command import ANOTHER_PATH, NOT_AVAILABLE, WHERE_FULL, Command, Failure, Parser, tell, with_way_out
from qmgr.cli.crtmqm import BAD_LOG_PATH, LINEAR, log_directory
from qmgr.errors import IniError, InUse, Mistake, NameError_, Reason, Unavailable
from qmgr.migration import migrate_log


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", required=True, help="the queue manager; it must have ended in order")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("-lc", action="store_true", help="to circular logging; media recovery ends with that")
    for option, (_, text) in LINEAR.items():
        kind.add_argument(f"-{option}", action="store_true", help=f"to {text}")
    parser.add_argument(
        "-ld", metavar="DIR", type=log_directory, help="move the log into a directory of its name in DIR"
    )


def run(args: argparse.Namespace) -> int:
    access.known(args.m, args.data_path)
    management = next((management for option, (management, _) in LINEAR.items() if getattr(args, option)), None)
    log_type = "circular" if args.lc else "linear" if management else None
    try:
        migrate_log(
            args.m, data_path=args.data_path, log_type=log_type, log_management=management, log_path=args.ld, say=tell
        )
    except InUse as exc:
        raise access.still_runs(args.m, exc) from exc
    except (Unavailable, Mistake) as exc:
        wrong = isinstance(exc, Mistake) and not isinstance(exc, IniError | NameError_)
        system, text = exc.__cause__, str(exc)
        if exc.reason is Reason.FILE_SYSTEM_ERROR and isinstance(system, OSError):
            wrong = f"{system.filename}/".startswith(f"{args.ld}/")
            text = text if retry_advice(system) else with_way_out(system, ANOTHER_PATH)
        if args.ld and wrong:
            raise Failure(BAD_LOG_PATH, "AMQ7064E", f"the log can't be in {args.ld}: {text}") from exc
        raise
    if management:
        tell(
            "Its queues can be recovered once they have media images, some seconds after the next start (or rcdmqimg)."
        )
    tell(f"The log of queue manager {args.m!r} is as it should be; it can be started.")
    return 0


COMMAND = Command(
    name="migmqlog",
    purpose="Change the log of a stopped queue manager: to linear or circular logging, or to another directory.",
    notes="""\
Whatever interrupts it, the old log or the new one is whole: run the same command again until it completes. Without
-l options it completes a change that was interrupted. It needs room for one more extent, with -ld for another log.
qm.ini is changed too: LogType, LogManagement, LogPath; all else in it stays as it is.""",
    usage="-m QMgrName [-lc | -ll | -lla | -lln] [-ld dir] [--data-path dir]",
    example="migmqlog -m QM1 -lla",
    codes={NOT_AVAILABLE: access.OWNED, **WHERE_FULL, BAD_LOG_PATH: "log path not valid"},
    options=options,
    run=run,
)
