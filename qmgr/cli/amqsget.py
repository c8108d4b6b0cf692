"""amqsget: get all messages of a queue, and wait a while for more. amqsgbr looks at them only."""

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


def get(args: argparse.Namespace) -> int:
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


def browse(args: argparse.Namespace) -> int:
    print("Sample AMQSGBR0 (browse) start")
    print(f"Messages for {args.queue}", flush=True)
    try:
        with samples.opened(args) as manager, samples.call("MQGET"):
            for number, message in enumerate(manager.browse(args.queue), 1):
                print(f"{number:3} <{samples.shown(message.body)}>")
        print("no more messages")
    except CallFailed:
        return FAILED
    finally:
        print("Sample AMQSGBR0 (browse) end")
    return 0


COMMAND = Command(
    name="amqsget",
    purpose="Get all messages of a queue, print them, and wait a while for more.",
    notes="Each message is got outside a unit of work: it is gone when it is printed.",
    usage="[-w sec] [--data-path dir] QName [QMgrName]",
    example="amqsget ORDERS QM1",
    codes=samples.CODES,
    options=options,
    run=get,
)
BROWSE = Command(
    name="amqsgbr",
    purpose="Look at all messages of a queue and print them; they stay.",
    usage="[--data-path dir] QName [QMgrName]",
    example="amqsgbr ORDERS QM1",
    codes=samples.CODES,
    options=samples.options,
    run=browse,
)


def main() -> int:
    return COMMAND.main()


def main_browse() -> int:
    return BROWSE.main()
