"""amqsgbr: look at all messages of a queue."""

import argparse

from qmgr.cli import samples
from qmgr.cli.command import Command
from qmgr.cli.samples import FAILED, CallFailed


def run(args: argparse.Namespace) -> int:
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
    name="amqsgbr",
    purpose="Look at all messages of a queue and print them; they stay.",
    usage="[--offline] [--data-path dir] QName [QMgrName]",
    example="amqsgbr ORDERS QM1",
    codes=samples.CODES,
    options=samples.options,
    run=run,
)
