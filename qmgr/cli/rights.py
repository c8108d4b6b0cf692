"""What the commands about the rights of users share: setmqaut and dspmqaut."""

import argparse
from typing import NoReturn

from qmgr.authority import VERBS
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, Failure, Parser

UNKNOWN_OBJECT = 133
TYPES = {"qmgr": "qmgr", "q": "queue", "queue": "queue", "ql": "queue", "qa": "queue"}
RIGHTS = (
    f"Rights: {', '.join(VERBS)}; alladm (admin, inquire), allmqi (all but admin), all, none.\n"
    "On a queue they are all but connect, on the queue manager connect, inquire and admin."
)


def options(parser: Parser, *, several: bool = False) -> None:
    """`several`: -p may be given more than once, and is a list."""
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    parser.add_argument("-t", metavar="ObjectType", required=True, type=kind, help="qmgr or queue")
    parser.add_argument("-n", metavar="Profile", default="", help="name of queues, with ? * ** as wildcards")
    user = parser.add_mutually_exclusive_group(required=True)
    if several:
        user.add_argument("-p", metavar="User", action="append", help="the user; may be given several times")
    else:
        user.add_argument("-p", metavar="User", help="the user")
    user.add_argument("-g", metavar="Group", type=no_group, help=argparse.SUPPRESS)
    access.add_offline(parser)


def no_group(text: str) -> NoReturn:
    text = f"-g was given {text!r}; rights are those of users here, there are no groups: name each user with -p."
    raise Failure(BAD_ARGUMENTS, "AMQ7076E", text)


def kind(text: str) -> str:
    if text not in TYPES:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"-t is qmgr or queue, not {text!r}.")
    return TYPES[text]


def profile(args: argparse.Namespace) -> str:
    if args.t == "queue" and not args.n:
        raise Failure(
            BAD_ARGUMENTS, "AMQ7006E", "-t queue takes -n, which names the queue or a profile such as 'ORDERS.**'."
        )
    if args.t != "queue" and args.n:
        raise Failure(BAD_ARGUMENTS, "AMQ7006E", "-n names queues, so it goes with -t queue only.")
    return str(args.n)
