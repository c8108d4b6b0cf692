"""MQSC: the command language of IBM MQ, as far as there is something here that it can act on. See docs/mqsc.md."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from qmgr.errors import MQError
from qmgr.mqsc.answers import Answer, refusal, syntax_error
from qmgr.mqsc.interpreter import Interpreter, foreseen
from qmgr.mqsc.source import commands
from qmgr.mqsc.syntax import Statement, parse
from qmgr.mqsc.tokens import SyntaxFault

if TYPE_CHECKING:
    from qmgr.manager import QueueManager

COMMANDS_FAILED = 10

Run = Callable[[Statement], Answer]


@attrs.frozen(kw_only=True)
class MqscResult:
    """What commands were answered."""

    text: str  # lines, each with its newline
    commands: int = 0  # that were read
    errors: int = 0  # of them, with a syntax error
    failures: int = 0  # of the others, that could not be done

    @property
    def code(self) -> int:
        """0 when all was done, else 10, as runmqsc returns it."""
        return COMMANDS_FAILED if self.errors or self.failures else 0


def run(manager: "QueueManager", text: str) -> MqscResult:
    """Run the commands of a text, one after the other; an error in one is no reason to leave out the next."""
    return _each(text, Interpreter(manager).run)


def check(text: str) -> MqscResult:
    """Look for syntax errors only."""
    return _each(text, lambda statement: Answer(()))


def verify(text: str) -> MqscResult:
    """Look for syntax errors, and for what has no effect here; both are the same for every queue manager."""
    return _each(text, foreseen)


def undone(text: str, exc: MQError) -> MqscResult:
    """The result of commands that could not be brought to the queue manager, since the connection is lost, say."""
    checked = check(text)
    failures = checked.commands - checked.errors
    told = f"{refusal(exc)}\n" if failures else ""
    return attrs.evolve(checked, text=checked.text + told, failures=failures)


def _each(text: str, run: Run) -> MqscResult:
    lines: list[str] = []
    read = errors = failures = 0
    for command in commands(text):
        read += 1
        try:
            statement = parse(command)
        except SyntaxFault as fault:
            errors += 1
            lines += syntax_error(command, fault).lines
        else:
            answer = run(statement)
            failures += not answer.done
            lines += answer.lines
    return MqscResult(text="".join(f"{line}\n" for line in lines), commands=read, errors=errors, failures=failures)
