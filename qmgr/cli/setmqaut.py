"""setmqaut, dspmqaut: what users who connect over a network may do."""

import argparse

from qmgr.authority import VERBS, WORDS, allowed
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, NOT_AVAILABLE, Command, Failure, Parser

TYPES = {"qmgr": "qmgr", "q": "queue", "queue": "queue", "ql": "queue", "qa": "queue"}
RIGHTS = f"Rights: {', '.join(VERBS)}; alladm (admin, inquire), allmqi (all but admin), all."


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("-t", metavar="ObjectType", required=True, type=kind, help="qmgr or queue")
    parser.add_argument("-n", metavar="Profile", default="", help="name of queues, with ? * ** as wildcards")
    parser.add_argument("-p", metavar="User", required=True, help="the user")


def changes(parser: Parser) -> None:
    options(parser)
    parser.add_argument("-remove", action="store_true", help="forget all that was said of this user and profile")
    parser.add_argument("rights", metavar="+right|-right", nargs="*", help="what to give, and what to take away")


def kind(text: str) -> str:
    if text not in TYPES:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"-t is qmgr or queue, not {text!r}.")
    return TYPES[text]


def profile(args: argparse.Namespace) -> str:
    if (args.t == "queue") != bool(args.n):
        raise Failure(BAD_ARGUMENTS, "AMQ7006E", "-n names the queues with -t queue, and only there.")
    return str(args.n)


def change(args: argparse.Namespace) -> int:
    name, which = access.named(args.m, args.data_path), profile(args)
    if args.remove == bool(args.rights):
        raise Failure(BAD_ARGUMENTS, "AMQ7006E", "say either -remove, or rights such as +put -get.")
    for word in args.rights:
        if word[:1] not in ("+", "-") or word[1:].lower() not in WORDS:
            raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"{word!r} is no right with + or - before it. {RIGHTS}")
    with access.started(name, args.data_path) as manager:
        if args.remove:
            manager.unauthorize(args.p, which)
        else:
            add = [word[1:] for word in args.rights if word[0] == "+"]
            remove = [word[1:] for word in args.rights if word[0] == "-"]
            manager.authorize(args.p, which, add=add, remove=remove)
    print("The setmqaut command completed successfully.")
    return 0


def show(args: argparse.Namespace) -> int:
    name, which = access.named(args.m, args.data_path), profile(args)
    with access.started(name, args.data_path) as manager:
        grants = manager.attributes.authorities
    rights = [verb for verb in VERBS if allowed(grants, args.p, verb, which)]
    print(f"Entity {args.p} has the following authorizations for object {which or name}:")
    for verb in rights:
        print(f"\t{verb}")
    return 0


SETMQAUT = Command(
    name="setmqaut",
    purpose="Give users who connect over a network rights on queues and the queue manager, or take them away.",
    notes=f"{RIGHTS}\n\nOf the profiles that fit a queue the most specific one that names the user decides. Users are "
    f"made by qm setuser.\nWords with a minus stand behind `--`: setmqaut -t queue -n A -p mia -- +put -get",
    usage="[-m QMgrName] -t qmgr|queue [-n Profile] -p User (-remove | +right|-right ...) [--data-path dir]",
    example="setmqaut -m QM1 -t queue -n 'ORDERS.*' -p mia +put +browse",
    codes={NOT_AVAILABLE: access.OWNED},
    options=changes,
    run=change,
)
DSPMQAUT = Command(
    name="dspmqaut",
    purpose="Show what a user who connects over a network may do to a queue or to the queue manager.",
    notes=RIGHTS,
    usage="[-m QMgrName] -t qmgr|queue [-n Queue] -p User [--data-path dir]",
    example="dspmqaut -m QM1 -t queue -n ORDERS.EU -p mia",
    codes={NOT_AVAILABLE: access.OWNED},
    options=options,
    run=show,
)


def setmqaut() -> int:
    return SETMQAUT.main()


def dspmqaut() -> int:
    return DSPMQAUT.main()
