"""recover-to: a new queue manager as another one was at an earlier moment."""

import argparse
import datetime

from logger import lsn
from qmgr.cli import access
from qmgr.cli.command import (
    ANOTHER_PATH,
    BAD_ARGUMENTS,
    NOT_AVAILABLE,
    WHERE_FULL,
    Bar,
    Command,
    Failure,
    Parser,
    absolute,
    position,
    with_way_out,
)
from qmgr.errors import AlreadyExists, IniError, InUse, Mistake, Unavailable
from qmgr.ini_values import Directory
from qmgr.message import EPOCH
from qmgr.pointintime import recover_to

EXISTS = 8


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--lsn", metavar="LSN", type=place, help="as it was before this LSN, such as 0:0:4615:42406")
    when.add_argument("--time", metavar="TIME", type=moment, help="as it was then, such as 2026-11-21T14:30:00+01:00")
    parser.add_argument("--into", metavar="DIR", required=True, type=directory, help="the data path of the new one")


def directory(text: str) -> str:
    try:
        return Directory().read(absolute(text))
    except ValueError:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"--into was given {text!r}; allowed: {Directory.allowed}.") from None


def place(text: str) -> int:
    """An LSN, also as the API has it."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else position(text)


def moment(text: str) -> int:
    """Microseconds since 1970-01-01 UTC."""
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Failure(
            BAD_ARGUMENTS,
            "AMQ7076E",
            f"{text!r} is not a moment; write it as 2026-11-21T14:30:00, in UTC or with +hh:mm.",
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
    return (at - EPOCH) // datetime.timedelta(microseconds=1)


def run(args: argparse.Namespace) -> int:
    name = access.named(args.m, args.data_path)
    access.known(name, args.data_path)
    bar = Bar()
    try:
        done = recover_to(name, args.into, lsn=args.lsn, time_us=args.time, data_path=args.data_path, progress=bar)
    except AlreadyExists as exc:
        raise Failure(EXISTS, "AMQ8110E", str(exc)) from exc
    except IniError:
        raise  # the original's qm.ini is wrong, not an argument: IniError is a Mistake too
    except Mistake as exc:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", str(exc)) from exc
    except InUse as exc:
        if not exc.name:  # it is mqs.ini that somebody else has
            raise
        raise access.still_runs(name, exc) from exc
    except Unavailable as exc:
        system = exc.__cause__
        if isinstance(system, NotADirectoryError | FileNotFoundError) and str(system.filename).startswith(args.into):
            text = f"--into was given {args.into!r}: {with_way_out(system, ANOTHER_PATH)}"
            raise Failure(BAD_ARGUMENTS, "AMQ7076E", text) from exc
        raise
    finally:
        bar.end()
    at = datetime.datetime.fromtimestamp(done.time / 1e6, datetime.UTC).isoformat(" ", "milliseconds")
    print(f"Queue manager {name!r} as of LSN {lsn.text(done.lsn)}, {at}, built in {done.data_path!r}.")
    print(f"Queues: {done.queues}; messages: {done.messages}; units of work in doubt: {done.in_doubt}; "
          f"in flight, so backed out: {done.backed_out}.")  # fmt: skip
    if args.time is not None and args.time > access.CLOCK.wall_us():
        print("--time is still to come, so this is all that the log has; without +hh:mm it is taken as UTC.")
    return 0


COMMAND = Command(
    name="recover-to",
    purpose="Build a new queue manager as another one was at an earlier moment, from its log and media images.",
    notes="The original must not be running, and is not changed. How far back it goes depends on the extents that are\n"
    "still there, archived ones too. Start the new one with its data path; its log begins anew.",
    usage="[-m QMgrName] (--lsn LSN | --time TIME) --into DIR [--data-path dir]",
    own_name=False,
    example="qm recover-to -m QM1 --time 2026-11-21T14:30:00 --into /tmp/then",
    codes={EXISTS: "the directory has a queue manager of that name", NOT_AVAILABLE: access.OWNED, **WHERE_FULL},
    options=options,
    run=run,
)
