"""amqsput: put each line of standard input as a message."""

import argparse
import sys

from qmgr.cli import samples
from qmgr.cli.command import Command
from qmgr.cli.samples import FAILED, CallFailed


def run(args: argparse.Namespace) -> int:
    print("Sample AMQSPUT0 start", flush=True)
    if sys.stdin is not None and hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")
    try:
        with samples.opened(args, f"target queue is {args.queue}", way="output") as manager:
            for line in sys.stdin or ():
                text = line.removesuffix("\n")
                if not text:
                    break
                with samples.call("MQPUT"):
                    manager.put(args.queue, text.encode("utf-8", "surrogateescape"), format="MQSTR")
    except CallFailed:
        return FAILED
    finally:
        print("Sample AMQSPUT0 end")
    return 0


COMMAND = Command(
    name="amqsput",
    purpose="Put each line of standard input as a message, until an empty line.",
    notes="Each message is put outside a unit of work, with the persistence that the queue has by default.",
    usage="[--offline] [--data-path dir] QName [QMgrName]",
    example="amqsput ORDERS QM1 < lines.txt",
    codes=samples.CODES,
    options=samples.options,
    run=run,
)
