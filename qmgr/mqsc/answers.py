"""What a command is answered: lines for a console, and whether it was done. The AMQ numbers of errors."""

from collections.abc import Iterable

import attrs

from qmgr.errors import MQError, Reason
from qmgr.mqsc.source import Command
from qmgr.mqsc.tokens import SyntaxFault

NOT_FOUND, IN_USE, EXISTS, NOT_EMPTY = "AMQ8147E", "AMQ8148E", "AMQ8150E", "AMQ8143E"
OTHER_TYPE, NO_STATUS, NO_CONNECTION = "AMQ8151E", "AMQ8565E", "AMQ8461E"
NO_RIGHTS = "AMQ8871E"
LINEAR_ONLY, NO_EFFECT, NEEDED = "AMQ8518E", "AMQ9051E", "AMQ9053E"

PLAIN = frozenset({Reason.UNKNOWN_OBJECT_NAME, Reason.OBJECT_ALREADY_EXISTS})  # nothing more is to be said of them
NUMBERS = {
    Reason.UNKNOWN_OBJECT_NAME: (NOT_FOUND, "Object {name} not found"),
    Reason.OBJECT_ALREADY_EXISTS: (EXISTS, "Object {name} already exists"),
    Reason.Q_NOT_EMPTY: (NOT_EMPTY, "Queue not empty"),
    Reason.OBJECT_IN_USE: (IN_USE, "Object in use"),
    Reason.OBJECT_DAMAGED: ("AMQ8149E", "Object {name} damaged"),
    Reason.NOT_AUTHORIZED: ("AMQ8135E", "Not authorized"),
    Reason.CONNECTION_BROKEN: ("AMQ8145E", "Connection broken"),
    Reason.Q_MGR_NOT_AVAILABLE: ("AMQ8146E", "Queue manager not available"),
    Reason.Q_MGR_QUIESCING: ("AMQ8156E", "Queue manager quiescing"),
    Reason.Q_MGR_STOPPING: ("AMQ8146E", "Queue manager not available"),
    Reason.STORAGE_MEDIUM_FULL: ("AMQ8139E", "Storage not available"),
    Reason.RESOURCE_PROBLEM: ("AMQ8139E", "Storage not available"),
    Reason.LOG_TYPE_ERROR: ("AMQ9056E", "Nothing noted as archived"),
    Reason.LOG_EXTENT_NOT_FOUND: ("AMQ9056E", "Nothing noted as archived"),
    Reason.CURRENT_LOG_EXTENT: ("AMQ9056E", "Nothing noted as archived"),
}
OTHER = "AMQ8101E"


@attrs.frozen
class Answer:
    """The answer to one command."""

    lines: tuple[str, ...]
    done: bool = True


class Refused(Exception):
    """A command that can be understood and not be done."""

    def __init__(self, number: str, text: str) -> None:
        super().__init__(f"{number}: {text}")
        self.number = number


def not_found(name: str, hint: str = "") -> Refused:
    return Refused(NOT_FOUND, f"Object {name} not found{': ' + hint if hint else ''}.")


def said(number: str, text: str, *more: str) -> Answer:
    """A command was done: the line that says so, and more lines."""
    return Answer((f"{number}: {text}", *more))


def records(lines: Iterable[str], done: bool = True) -> Answer:
    """What a DISPLAY has found."""
    return Answer(tuple(lines), done)


def refusal(exc: MQError) -> str:
    """The line that an error becomes."""
    number, text = NUMBERS.get(exc.reason, (OTHER, ""))
    told = " ".join(str(exc).split())
    if not text:
        return f"{number}: {told}"
    head = f"{number}: {text.format(name=exc.name or ' ')}"
    return f"{head}." if exc.reason in PLAIN else f"{head}: {told}"


def syntax_error(command: Command, fault: SyntaxFault) -> Answer:
    """The command up to the place, that place marked, and what is wrong there."""
    segment = command.text[: fault.offset]
    shown = "".join(char if char.isprintable() else "?" for char in segment)
    line, column = command.place(max(0, fault.offset - 1))
    return Answer(
        (
            "AMQ8405I: Syntax error detected at or near end of command segment below:-",
            shown,
            " " * max(0, len(shown) - 1) + "^",
            f"line {line}, column {column}: {fault}",
        ),
        done=False,
    )
