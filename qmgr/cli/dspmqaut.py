"""dspmqaut: what a user who connects over a network may do."""

import argparse

from qmgr.authority import RIGHTS_ON, allowed, is_generic, is_there, shown
from qmgr.cli import access
from qmgr.cli.command import NOT_AVAILABLE, WHERE_FULL, Command, Failure
from qmgr.cli.rights import RIGHTS, UNKNOWN_OBJECT, options, profile


def run(args: argparse.Namespace) -> int:
    name, which = access.named(args.m, args.data_path), profile(args)
    with access.running(name, args.data_path, offline=args.offline) as manager:
        grants = manager.attributes.authorities
        if all(which != one.profile for one in grants) and (is_generic(which) or not is_there(manager, which)):
            what = "profile" if is_generic(which) else "queue, and no profile,"
            raise Failure(UNKNOWN_OBJECT, "AMQ7085E", f"there is no {what} {which!r}.")
    rights = [verb for verb in RIGHTS_ON[args.t] if allowed(grants, args.p, verb, which)]
    print(f"Entity {args.p} has the following authorizations for object {which or name}:")
    for verb in shown(rights):
        print(f"\t{verb}")
    return 0


COMMAND = Command(
    name="dspmqaut",
    purpose="Show what a user who connects over a network may do to a queue or to the queue manager.",
    notes=RIGHTS,
    usage="[-m QMgrName] -t qmgr|queue [-n Queue] -p User [--offline] [--data-path dir]",
    example="dspmqaut -m QM1 -t queue -n ORDERS.EU -p mia",
    codes={
        NOT_AVAILABLE: access.NOT_THERE,
        **access.ENDING_CODE,
        **WHERE_FULL,
        UNKNOWN_OBJECT: "there is no such queue or profile",
    },
    options=options,
    run=run,
)
