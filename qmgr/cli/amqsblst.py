"""amqsblst: write or read many numbered messages, in units of work of any size."""

import argparse
import contextlib
from contextlib import AbstractContextManager

from qmgr.cli import access, samples
from qmgr.cli.command import Command, Parser, whole
from qmgr.cli.samples import FAILED, CallFailed
from qmgr.errors import NoMessageAvailable
from qmgr.manager import UnitOfWork
from qmgr.remote import RemoteUnit

MIN_BODY_BYTES = 20  # the number and its blanks
WAIT_S = 5.0  # for a message that is to be read
Calls = access.Manager | UnitOfWork | RemoteUnit


def options(parser: Parser) -> None:
    access.add_offline(parser)
    parser.add_argument("name", metavar="QMgrName", help="the queue manager")
    parser.add_argument("queue", metavar="QName", help="the queue")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("-W", action="store_true", help="write messages")
    way.add_argument("-R", action="store_true", help="read messages")
    size = whole("-s", MIN_BODY_BYTES, 104_857_600)
    parser.add_argument("-s", metavar="size", type=size, default=1024, help="bytes of a message; default 1024")
    parser.add_argument(
        "-c", metavar="count", type=whole("-c", 1, 999_999_999), default=1000, help="how many; default 1000"
    )
    parser.add_argument(
        "-u", metavar="uowSize", type=whole("-u", 0, 999_999_999), default=0, help="messages in a unit of work"
    )
    parser.add_argument("-C", metavar="correlid", type=correlation, help="write it, or read those that have it")
    parser.add_argument("-v", action="store_true", help="say which message is written or read")


def correlation(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > 24:
        raise argparse.ArgumentTypeError("a correlation id has at most 24 bytes")
    return data


def run(args: argparse.Namespace) -> int:
    print(f"AMQSBLST {'writes' if args.W else 'reads'} {args.c} messages of queue {args.queue}", flush=True)
    done = 0
    began = access.CLOCK.elapsed_ns()
    try:
        with samples.opened(args) as manager:
            while done < args.c:
                count = min(args.u or 1, args.c - done)  # without -u one by one: those before a failure count
                now = batch(manager, args, done, count)
                done += now
                if now < count:
                    print("no more messages")
                    break
    except CallFailed:
        return FAILED
    finally:
        seconds = (access.CLOCK.elapsed_ns() - began) / 1e9
        print(f"{done} messages {'written' if args.W else 'read'} in {seconds:.3f} s, {done / seconds:.0f}/s")
    return 0


def batch(manager: access.Manager, args: argparse.Namespace, first: int, count: int) -> int:
    """Write or read `count` messages, in a unit of work if -u asks for it; returns how many there were."""
    one = write if args.W else read
    block: AbstractContextManager[Calls] = manager.begin() if args.u else contextlib.nullcontext(manager)
    with samples.call("MQCMIT"), block as calls:
        for done in range(count):
            if not one(calls, args, first + done):
                return done
    return count


def write(calls: Calls, args: argparse.Namespace, number: int) -> bool:
    body = f"{number:<{MIN_BODY_BYTES}}".encode().ljust(args.s, b".")
    with samples.call("MQPUT"):
        calls.put(args.queue, body, correlation_id=args.C)
    if args.v:
        print(f"message {number}, {args.s} bytes")
    return True


def read(calls: Calls, args: argparse.Namespace, number: int) -> bool:
    """False when no message has come."""
    with samples.call("MQGET"):
        try:
            message = calls.get(args.queue, wait=WAIT_S, correlation_id=args.C)
        except NoMessageAvailable:
            return False
    if args.v:
        print(f"message {samples.shown(message.body[:MIN_BODY_BYTES]).strip()}, {len(message.body)} bytes")
    return True


COMMAND = Command(
    name="amqsblst",
    purpose="Write or read many numbered messages, in units of work of any size.",
    notes="""\
A unit of work that needs more log than there is gets rolled back by the queue manager, which says AMQ7469 in its error
log; the call ends with 2003. That needs persistent messages: DEFPSIST(YES). -u 0, the default: no unit of work.""",
    usage="QMgrName QName -W|-R [-s size] [-c count] [-u uowSize] [-C correlid] [-v] [--offline] [--data-path dir]",
    example="amqsblst QM1 ORDERS -W -s 20000 -c 100000 -u 100000",
    codes=samples.CODES,
    options=options,
    run=run,
)
