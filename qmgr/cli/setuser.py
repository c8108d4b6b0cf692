"""qm setuser: who may connect over a network, and with which password."""

import argparse
import getpass
import sys

from qmgr.authority import check_user
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, WHERE_FULL, Command, Failure, Parser
from qmgr.users import Users


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--remove", action="store_true", help="no longer let the user in")
    what.add_argument("--list", action="store_true", help="list the users")
    parser.add_argument("user", metavar="User", nargs="?", help="the user")


def run(args: argparse.Namespace) -> int:
    location = access.known(access.named(args.m, args.data_path), args.data_path)
    users = Users(access.DISK, location)
    if args.list:
        for name in users.names():
            print(name)
        return 0
    if not args.user:
        raise Failure(BAD_ARGUMENTS, "AMQ7006E", "the user is missing; see qm setuser --help.")
    if args.remove:
        users.remove(args.user)
        print(f"User {args.user} removed. What the user might do stays said: setmqaut -remove forgets it.")
    else:
        check_user(args.user)  # before anybody is asked for a password
        users.set(args.user, password(args.user))
        print(f"User {args.user} set.")
    return 0


def password(user: str) -> str:
    """Asked for twice on a terminal; else the first line of standard input."""
    if sys.stdin is None or not sys.stdin.isatty():
        given = sys.stdin.readline().rstrip("\n") if sys.stdin is not None else ""
        if not given:
            raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"no password for {user}: it is the first line of standard input.")
        return given
    first = getpass.getpass(f"Password of {user}: ")
    if getpass.getpass("Once more: ") != first:
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", "the two passwords differ; nothing was changed.")
    return first


COMMAND = Command(
    name="setuser",
    purpose="Set who may connect over a network, and with which password.",
    notes="The password is asked for, or read from the first line of standard input. It takes effect with the next\n"
    "connection; a verifier (SCRAM-SHA-256) is stored, not the password. setmqaut sets what the user may do.",
    usage="[-m QMgrName] (--list | [--remove] User) [--data-path dir]",
    example="qm setuser -m QM1 mia",
    codes=WHERE_FULL,
    options=options,
    run=run,
    own_name=False,
)
