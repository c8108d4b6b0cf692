"""amqsget: get all messages of a queue, and wait a while for more."""

import argparse
import sys

from qmgr.cli import access, samples
from qmgr.cli.command import UNEXPECTED, Command, Failure, Parser, whole
from qmgr.cli.samples import FAILED, CallFailed
from qmgr.errors import NoMessageAvailable

DEFAULT_WAIT_S = 15


def options(parser: Parser) -> None:
    parser.add_argument(
        "-w",
        metavar="sec",
        default=DEFAULT_WAIT_S,
        type=whole("-w", 0, 999_999),
        help=f"seconds to wait for another message; default {DEFAULT_WAIT_S}",
    )
    samples.options(parser)


def run(args: argparse.Namespace) -> int:
    if sys.stdout is None:
        raise Failure(
            UNEXPECTED, "AMQ7002S", "standard output is closed, so messages would go nowhere; give it a file."
        )
    print("Sample AMQSGET0 start", flush=True)
    try:
        with samples.opened(args, way="input") as manager:
            while got_one(manager, args.queue, args.w):
                pass
        print("no more messages")
    except CallFailed:
        return FAILED
    finally:
        print("Sample AMQSGET0 end")
    return 0


def got_one(manager: access.Manager, queue: str, seconds: int) -> bool:
    """Get a message and print it, or leave it where it is; False when there is none. Raises CallFailed, OSError."""
    with manager.begin() as unit:
        with samples.call("MQGET"):
            try:
                message = unit.get(queue, wait=seconds)
            except NoMessageAvailable:
                return False
        print(f"message <{samples.shown(message.body)}>", flush=True)
        with samples.call("MQCMIT"):
            unit.commit()
    return True


COMMAND = Command(
    name="amqsget",
    purpose="Get all messages of a queue, print them, and wait a while for more.",
    notes="""\
Each message is got in a unit of work of its own, which is committed when it is printed: what can't be printed stays on
the queue, with a higher backout count.""",
    usage="[-w sec] [--offline] [--data-path dir] QName [QMgrName]",
    example="amqsget ORDERS QM1",
    codes=samples.CODES,
    options=options,
    run=run,
)
