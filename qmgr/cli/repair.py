"""qm repair: examine and mend a queue manager that will not start."""

import argparse

from qmgr import locations, repairing
from qmgr.cli import access
from qmgr.cli.command import (
    BAD_ARGUMENTS,
    NAME_ERROR,
    NOT_AVAILABLE,
    WHERE_FULL,
    Command,
    Failure,
    Parser,
    absolute,
    complain,
    tell,
)
from qmgr.errors import InUse
from qmgr.missing import away, unfinished

REPAIR_NEEDED = 10
WOULD_LOSE = 20
REFUSED = 30


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", required=True, help="the queue manager")
    parser.add_argument("--check", action="store_true", help="say what is wrong, and what repair would do and lose")
    parser.add_argument("--accept-loss", action="store_true", help="repair even if something is lost by it")
    parser.add_argument("-ld", metavar="DIR", type=absolute, help="where logs are, if there is no qm.ini to say it")


def run(args: argparse.Namespace) -> int:
    if args.check and args.accept_loss:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", "--check changes nothing, so --accept-loss has no meaning with it.")
    location = locations.find(args.m, args.data_path)
    if what := away(access.DISK, location):  # what would be made anew in its place would be hidden by it
        raise Failure(NAME_ERROR, "AMQ7048E", f"{what}.")
    if not access.DISK.exists(location.data_dir):  # not `known`: its qm.ini may be what is missing
        raise Failure(
            NAME_ERROR, "AMQ7048E", f"queue manager {args.m!r} does not exist: there is no {location.data_dir}."
        )
    if half := unfinished(access.DISK, location):
        raise Failure(NAME_ERROR, "AMQ7048E", f"{half}.")
    said: list[str] = []

    def say(done: repairing.Repair) -> None:
        """Print what was not said yet: all that is found and lost before anything is changed, which may fail."""
        for line in done.lines():
            if line not in said:
                said.append(line)
                tell(line)

    where = {"data_path": args.data_path, "log_path": args.ld}
    try:
        if args.check:
            done = repairing.check(args.m, **where)
        else:
            done = repairing.repair(args.m, **where, accept_loss=args.accept_loss, before=say)
    except InUse as exc:
        raise access.still_runs(args.m, exc) from exc
    say(done)
    return _code(args, done)


def _code(args: argparse.Namespace, done: repairing.Repair) -> int:
    """The exit code; what is to be done next, if anything, is said on stderr."""
    if done.examination.refused and not done.loses:
        complain(f"AMQ6767S: queue manager {args.m!r} can't be repaired; nothing was changed.")
        return REFUSED
    if done.saved:
        return 0
    if done.examination.lost is not None or done.loses:
        complain(
            f"AMQ6767W: a repair of queue manager {args.m!r} would lose that: qm repair -m {args.m} --accept-loss."
        )
        return WOULD_LOSE
    if done.needed:
        complain(
            f"AMQ6767W: queue manager {args.m!r} needs a repair, which loses no persistent message: "
            f"qm repair -m {args.m}."
        )
        return REPAIR_NEEDED
    return 0


COMMAND = Command(
    name="repair",
    purpose="Examine and mend a queue manager that will not start: its control file, checkpoint files and log extents.",
    notes="""\
No persistent message is lost without --accept-loss, and nothing is changed before the originals of what is changed
are saved in the queue manager's data directory, in repair-1, repair-2, ... A repair ends with a start and an end of
the queue manager in this process. It can be interrupted and run again. Where nothing is wrong it changes nothing and
starts nothing.
What it can find, and what it does then, is in docs/recovery.md.""",
    usage="-m QMgrName [--check | --accept-loss] [-ld dir] [--data-path dir]",
    example="qm repair --check -m QM1",
    codes={
        REPAIR_NEEDED: "a repair is needed, and loses no persistent message (--check)",
        WOULD_LOSE: "a repair would lose what was said; nothing was changed",
        REFUSED: "it can't be repaired; nothing was changed",
        NOT_AVAILABLE: access.OWNED,
        **WHERE_FULL,
    },
    options=options,
    run=run,
    own_name=False,
)
