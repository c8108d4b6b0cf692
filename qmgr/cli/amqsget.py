"""amqsget: get all messages of a queue, and wait a while for more."""

import argparse

from qmgr.cli import samples
from qmgr.cli.command import Command, Parser, whole
from qmgr.cli.samples import FAILED, CallFailed
from qmgr.errors import NoMessageAvailable

WAIT = 15  # seconds


def options(parser: Parser) -> None:
    parser.add_argument(
        "-w",
        metavar="sec",
        default=WAIT,
        type=whole("-w", 0, 999_999, 36),
        help=f"wait so long for another message; {WAIT}",
    )
    samples.options(parser)


def run(args: argparse.Namespace) -> int:
    print("Sample AMQSGET0 start", flush=True)
    try:
        with samples.opened(args) as manager:
            while True:
                with samples.call("MQGET"):
                    try:
                        message = manager.get(args.queue, wait=args.w)
                    except NoMessageAvailable:
                        break
                print(f"message <{samples.shown(message.body)}>", flush=True)
        print("no more messages")
    except CallFailed:
        return FAILED
    finally:
        print("Sample AMQSGET0 end")
    return 0


COMMAND = Command(
    name="amqsget",
    purpose="Get all messages of a queue, print them, and wait a while for more.",
    notes="Each message is got outside a unit of work: it is gone when it is printed.",
    usage="[-w sec] [--offline] [--data-path dir] QName [QMgrName]",
    example="amqsget ORDERS QM1",
    codes=samples.CODES,
    options=options,
    run=run,
)


def main() -> int:
    return COMMAND.main()
