"""mqrc: what a reason code is called, which number a name has, and what a message of the error log says."""

import argparse
import re
from collections.abc import Iterator

from qmgr.cli.command import BAD_ARGUMENTS, Command, Failure, Parser
from qmgr.errorlog import MESSAGES
from qmgr.errors import Reason

NO_SUCH_CODE = 1
SEVERITIES = {"I": "information", "W": "warning", "E": "error", "S": "severe"}


def options(parser: Parser) -> None:
    text = "a reason code as a number, also as 0x7f1, or its name; or the number of a message of the error log"
    parser.add_argument("code", metavar="ReasonCode|MQRC_NAME|AMQnnnn", nargs="+", help=text)


def run(args: argparse.Namespace) -> int:
    for line in [line for code in args.code for line in explained(code)]:
        print(line)
    return 0


def explained(code: str) -> list[str]:
    """The lines that say what the code is. Raises Failure where there is none."""
    if found := re.fullmatch(r"AMQ(\d{4})[IWES]?", code, re.IGNORECASE):
        return list(_message(f"AMQ{found[1]}"))
    reason = _reason(code)
    return ["", f"{int(reason):>10}  {int(reason):#010x}  MQRC_{reason.name}", ""]


def _message(number: str) -> Iterator[str]:
    if number not in MESSAGES:
        raise Failure(
            NO_SUCH_CODE,
            "AMQ7076E",
            f"the error log has no message {number}; those of commands, and of runmqsc, say all there is to say.",
        )
    severity, text = MESSAGES[number]
    yield ""
    yield f"{number}{severity}: " + re.sub(r"{(\w+)[^}]*}", r"<\1>", text)
    yield ""
    yield f"Severity: {SEVERITIES[severity]}"
    yield ""


def _reason(code: str) -> Reason:
    """The reason code of this number or name."""
    if re.fullmatch(r"\d{1,9}|0x[0-9a-f]{1,8}", code, re.IGNORECASE | re.ASCII):
        number = int(code, 16 if code[:2] in ("0x", "0X") else 10)
        found = next((reason for reason in Reason if reason == number), None)
    elif re.fullmatch(r"[A-Z_]\w*", code, re.IGNORECASE | re.ASCII):
        found = Reason.__members__.get(code.upper().removeprefix("MQRC_"))
    else:
        text = f"{code!r} is no reason code (2033), name of one (MQRC_NO_MSG_AVAILABLE), or message (AMQ7469)"
        raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"{text}.")
    if found is None:
        raise Failure(NO_SUCH_CODE, "AMQ7076E", f"no call here has the reason code {code}.")
    return found


COMMAND = Command(
    name="mqrc",
    purpose="Say what a reason code is called, and what a message of the error log says.",
    usage="ReasonCode|MQRC_NAME|AMQnnnn... [--data-path dir]",
    example="mqrc 2033",
    codes={NO_SUCH_CODE: "there is no such reason code or message"},
    options=options,
    run=run,
)
