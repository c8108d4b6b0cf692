"""amqsbcg: look at all messages of a queue, each with its descriptor and a dump of its bytes."""

import argparse
from collections.abc import Iterator

from qmgr.cli import samples
from qmgr.cli.command import Command
from qmgr.cli.samples import FAILED, CallFailed
from qmgr.message import NO_ID, Message

ROW = 16  # bytes in a line of the dump
UNLIMITED = -1
DATAGRAM = 8
IN_GROUP, LAST_IN_GROUP = 8, 16  # MQMF
NATIVE = 0x222  # MQENC_NATIVE: of this machine's kind


def run(args: argparse.Namespace) -> int:
    print("\nAMQSBCG0 - starts here\n**********************\n", flush=True)
    try:
        with samples.opened(args) as manager:
            print(f" MQOPEN - '{args.queue}'\n\n")
            with samples.call("MQGET"):
                for number, message in enumerate(manager.browse(args.queue), 1):
                    print(f" MQGET of message number {number}, CompCode:0 Reason:0")
                    print("\n".join([*descriptor(message), *properties(message), *dump(message.body)]))
        print("\n No more messages\n MQCLOSE\n MQDISC")
    except CallFailed:
        return FAILED
    return 0


def descriptor(message: Message) -> Iterator[str]:
    """The fields of MQ's message descriptor; those that messages do not have here with their default values."""
    expiry = UNLIMITED if message.expiry is None else round(message.expiry * 10)
    put = message.put_time
    yield "****Message descriptor****\n"
    yield "  StrucId  : 'MD  '  Version : 2"
    yield f"  Report   : 0  MsgType : {DATAGRAM}"
    yield f"  Expiry   : {expiry}  Feedback : 0"
    yield f"  Encoding : {NATIVE}  CodedCharSetId : 1208"
    yield f"  Format : '{message.format:<8}'"
    yield f"  Priority : {message.priority}  Persistence : {int(message.persistent)}"
    yield f"  MsgId : X'{message.message_id.hex().upper()}'"
    yield f"  CorrelId : X'{message.correlation_id.hex().upper()}'"
    yield f"  BackoutCount : {message.backout_count}"
    yield f"  ReplyToQ       : '{message.reply_to:<48}'"
    yield f"  ReplyToQMgr    : '{'':<48}'"
    yield "  ** Identity Context"
    yield f"  UserIdentifier : '{'':<12}'"
    yield f"  AccountingToken :\n   X'{bytes(32).hex()}'"
    yield f"  ApplIdentityData : '{'':<32}'"
    yield "  ** Origin Context"
    yield "  PutApplType    : '0'"
    yield f"  PutApplName    : '{'':<28}'"
    yield f"  PutDate  : '{put:%Y%m%d}'    PutTime  : '{put:%H%M%S}{put.microsecond // 10_000:02}'"
    yield f"  ApplOriginData : '{'':<4}'"
    yield ""
    yield f"  GroupId : X'{(message.group_id or NO_ID).hex().upper()}'"
    yield f"  MsgSeqNumber   : '{message.group_sequence or 1}'"
    yield "  Offset         : '0'"
    yield f"  MsgFlags       : '{IN_GROUP * bool(message.group_id) + LAST_IN_GROUP * message.last_in_group}'"
    yield "  OriginalLength : '-1'\n"


def properties(message: Message) -> Iterator[str]:
    """The properties of a message, by name."""
    if message.properties:
        yield "****Message properties****\n"
        for name, value in sorted(message.properties.items()):
            yield f"  {name if name.isprintable() else repr(name)} : {value!r}"
        yield ""


def dump(body: bytes) -> Iterator[str]:
    """The bytes, sixteen on a line, as hexadecimal digits and as text."""
    yield "****   Message      ****\n"
    yield f" length - {len(body)} of {len(body)} bytes\n"
    for at in range(0, len(body), ROW):
        row = body[at : at + ROW]
        digits = " ".join(row[n : n + 2].hex().upper() for n in range(0, len(row), 2))
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:08X}:  {digits:<39} '{text:<16}'"
    yield ""


COMMAND = Command(
    name="amqsbcg",
    purpose="Look at all messages of a queue, with their descriptors and a dump of their bytes; they stay.",
    usage="[--offline] [--data-path dir] QName [QMgrName]",
    example="amqsbcg ORDERS QM1",
    codes=samples.CODES,
    options=samples.options,
    run=run,
)
