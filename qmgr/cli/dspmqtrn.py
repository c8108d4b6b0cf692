"""dspmqtrn: the units of work that have no outcome yet."""

import argparse
import datetime
from collections.abc import Iterator

from logger import lsn
from qmgr.cli import access
from qmgr.cli.command import NOT_AVAILABLE, WHERE_FULL, Command, Parser, complain
from qmgr.infos import TransactionInfo
from recovery.uows import UowState

NO_TRANSACTIONS = 102


def options(parser: Parser) -> None:
    parser.add_argument("-e", action="store_true", help="in doubt and coordinated from outside, as all are here")
    parser.add_argument("-h", action="store_true", help="resolved by hand and not yet forgotten: there are none")
    parser.add_argument("-i", action="store_true", help="in doubt and coordinated by the queue manager: there are none")
    parser.add_argument(
        "-a", action="store_true", help="all units of work, in any state; a restart leaves only those in doubt"
    )
    parser.add_argument("-q", action="store_true", help="short: number and state only; alone the same as -a -q")
    parser.add_argument("-m", metavar="QMgrName", help="the queue manager; else the default one")


def run(args: argparse.Namespace) -> int:
    name = access.named(args.m, args.data_path)
    nothing_asked = not (args.e or args.h or args.i or args.a)
    with access.started(name, args.data_path) as manager:
        shown = [
            each
            for each in manager.transactions()
            if args.a or (nothing_asked and args.q) or (each.state is UowState.PREPARED and (args.e or nothing_asked))
        ]
    for each in shown:
        print("\n".join([brief(each)] if args.q else full(each)))
    if not shown:
        none = "no transactions in doubt" if nothing_asked and not args.q else "no such transactions"
        complain(f"AMQ7055I: queue manager {name!r} has {none}.")
        return NO_TRANSACTIONS
    return 0


def brief(each: TransactionInfo) -> str:
    return f"TRANNUM({access.number_text(each.number)}) UOWSTATE({each.state.name})"


def full(each: TransactionInfo) -> Iterator[str]:
    """The lines of one unit of work, in a form that people and their scripts rely on."""
    yield f"AMQ7056: Transaction number {access.number_text(each.number)} is {each.state.value}."
    if each.xid is not None:
        gtrid, bqual = each.xid.gtrid, each.xid.bqual
        yield f"   XID: formatID {each.xid.format_id}, gtrid_length {len(gtrid)}, bqual_length {len(bqual)}"
        yield f"        gtrid [{gtrid.hex().upper()}]"
        yield f"        bqual [{bqual.hex().upper()}]"
    for prefix, moment_us in [("UOWST", each.started), ("UOWLOG", each.log_started)]:
        if moment_us:
            moment = datetime.datetime.fromtimestamp(moment_us / 1_000_000, datetime.UTC)
            yield f"   {prefix}DA({moment:%Y-%m-%d}) {prefix}TI({moment:%H.%M.%S})"
    first = lsn.text(each.first_lsn) if each.first_lsn else " "  # nothing of it is logged yet
    yield f"   FIRSTLSN({first}) PUTS({each.puts}) GETS({each.gets})"


COMMAND = Command(
    name="dspmqtrn",
    purpose="Show the units of work that are in doubt: prepared, and neither committed nor backed out.",
    notes=access.WHERE_IT_RUNS.format(method="qm.transactions()") + "\n\n"
    "Every unit of work here is coordinated from outside, by whoever gave its XID, so -i shows none; one that\n"
    "rsvmqtrn resolves is forgotten at once, so -h shows none either. Dates and times are UTC.",
    usage="[-e] [-h] [-i] [-a] [-q] [-m QMgrName] [--data-path dir]",
    example="dspmqtrn -m QM1",
    codes={
        NOT_AVAILABLE: access.NO_ANSWER,
        **access.ENDING_CODE,
        **WHERE_FULL,
        NO_TRANSACTIONS: "no such transactions",
    },
    options=options,
    run=run,
)
