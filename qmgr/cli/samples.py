"""What the sample programs share: opening a queue, and saying which call has failed with which reason code."""

import argparse
import contextlib
from collections.abc import Iterator

from qmgr.cli import access
from qmgr.cli.command import (
    ENDING,
    NAME_ERROR,
    NOT_AUTHORISED,
    NOT_AVAILABLE,
    WHERE_FULL,
    Parser,
    complain,
    explain,
    typed,
)
from qmgr.errors import MQError, Reason

FAILED = 2  # MQCC_FAILED
CONNECT = {  # exit code of a command that finds no queue manager -> reason code of the call that would have found it
    NAME_ERROR: Reason.Q_MGR_NAME_ERROR,
    NOT_AVAILABLE: Reason.Q_MGR_NOT_AVAILABLE,
    ENDING: Reason.Q_MGR_QUIESCING,
    NOT_AUTHORISED: Reason.NOT_AUTHORIZED,
}
CODES = {
    FAILED: "a call failed; its reason code is printed",
    NOT_AVAILABLE: access.NOT_THERE,
    **access.ENDING_CODE,
    **WHERE_FULL,
}


def options(parser: Parser) -> None:
    """Queue and queue manager, in the order of IBM MQ's samples."""
    access.add_offline(parser)
    parser.add_argument("queue", metavar="QName", help="the queue")
    parser.add_argument("name", metavar="QMgrName", nargs="?", help="the queue manager; else the default one")


class CallFailed(Exception):
    """A call has failed, and that was said."""


@contextlib.contextmanager
def call(verb: str, in_short: str = "") -> Iterator[None]:
    """Report an MQError in the block as that of the MQI's call `verb`, and print `in_short` too. Raises CallFailed."""
    try:
        yield
    except MQError as exc:
        print(f"{verb} ended with reason code {exc.reason.value}", flush=True)
        if in_short:
            print(in_short, flush=True)
        complain(str(exc))
        raise CallFailed from exc


@contextlib.contextmanager
def opened(args: argparse.Namespace, connected: str = "", *, way: str = "") -> Iterator[access.Manager]:
    """The queue manager, which has the queue; once there is a connection `connected` is printed. Raises CallFailed.

    `way`: what IBM MQ's sample says that it has opened the queue for, where it could not.
    """
    with contextlib.ExitStack() as stack:
        try:
            name = access.named(args.name, args.data_path)
            manager = stack.enter_context(access.running(name, args.data_path, offline=args.offline))
        except Exception as exc:
            if (reason := CONNECT.get(explain(exc)[0])) is not None:
                print(f"MQCONNX ended with reason code {reason.value}", flush=True)
            raise
        if connected:
            print(typed(connected), flush=True)
        with call("MQOPEN", f"unable to open queue for {way}" if way else ""):
            manager.queue(args.queue)
        yield manager


def shown(body: bytes) -> str:
    """Text, as far as it is text."""
    return body.decode("utf-8", "backslashreplace")
