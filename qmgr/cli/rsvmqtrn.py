"""rsvmqtrn: give a unit of work that is in doubt its outcome by hand."""

import argparse
import re

from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, NOT_AVAILABLE, WHERE_FULL, Command, Failure, Parser, complain
from recovery.uows import UowState

NOT_RESOLVED = 32
NO_RESOURCE_MANAGER = 34
UNKNOWN_TRANSACTION = 85


def options(parser: Parser) -> None:
    parser.add_argument("-m", metavar="QMgrName", required=True, help="the queue manager")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-a", action="store_true", help="resolve all that the queue manager coordinates: there are none")
    what.add_argument("-b", action="store_true", help="back the transaction out")
    what.add_argument("-c", action="store_true", help="commit the transaction")
    what.add_argument("-f", action="store_true", help="forget a transaction that was resolved by hand: there are none")
    what.add_argument("-r", metavar="RMID", help="leave a resource manager out: there are none but the queue manager")
    parser.add_argument("number", metavar="Transaction", nargs="?", type=number, help="as dspmqtrn shows it: 0,n")


def number(text: str) -> int:
    """The unit of work in `0,n`, `0.n` or `n`."""
    if not (found := re.fullmatch(r"(?:0[,.])?([0-9]{1,19})", text, re.ASCII)):
        why = f"{text!r} is not a transaction number; write it as dspmqtrn does, such as 0,7."
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", why)
    return int(found[1])


def run(args: argparse.Namespace) -> int:
    if args.a == (args.number is not None):
        wanted = "-a takes no transaction" if args.a else "the transaction to resolve is missing, such as 0,7"
        raise Failure(BAD_ARGUMENTS, "AMQ7006E", f"{wanted}; see rsvmqtrn --help.")
    if args.r is not None:
        raise Failure(NO_RESOURCE_MANAGER, "AMQ7107E", f"there is no resource manager {args.r!r} to leave out.")
    if args.a:
        access.there(args.m, args.data_path)
        complain("AMQ7055I: the queue manager coordinates nothing itself, so -a has nothing to resolve; use -b or -c.")
        return 0
    which = f"transaction {access.number_text(args.number)}"
    with access.started(args.m, args.data_path) as manager:
        each = next((each for each in manager.transactions() if each.number == args.number), None)
        if each is None:
            raise Failure(UNKNOWN_TRANSACTION, "AMQ7055E", f"{which} is not known to queue manager {args.m!r}.")
        if args.f:
            raise Failure(NOT_RESOLVED, "AMQ7055E", f"{which} was not resolved by hand; use -b or -c.")
        if each.xid is None or each.state is not UowState.PREPARED:
            raise Failure(NOT_RESOLVED, "AMQ7055E", f"{which} is {each.state.value}, and so not in doubt.")
        manager.resolve(each.xid, commit=args.c)
        # said before the end of a queue manager run here: should that fail, this is done even so
        print(f"AMQ7053I: T{which[1:]} was committed." if args.c else f"AMQ7054I: T{which[1:]} was backed out.")
    return 0


COMMAND = Command(
    name="rsvmqtrn",
    purpose="Resolve a unit of work that is in doubt by hand, when its coordinator will never do so.",
    notes=access.WHERE_IT_RUNS.format(method="qm.resolve()") + "\n\n"
    "Whoever prepared the unit of work may have decided otherwise elsewhere: ask there before -b or -c.",
    usage="-m QMgrName (-a | (-b | -c | -f | -r RMID) Transaction) [--data-path dir]",
    example="rsvmqtrn -m QM1 -c 0,7",
    codes={
        NOT_RESOLVED: "the transaction can't be resolved so: it is not in doubt, or not to be forgotten",
        NO_RESOURCE_MANAGER: "no such resource manager",
        NOT_AVAILABLE: access.NO_ANSWER,
        **access.ENDING_CODE,
        **WHERE_FULL,
        UNKNOWN_TRANSACTION: "no such transaction",
    },
    options=options,
    run=run,
)
