"""Runs the MQSC commands that a queue manager is given at each start, and says where one of them fails."""

from collections.abc import Iterator

from qmgr.manager import QueueManager
from qmgr.mqsc.answers import syntax_error
from qmgr.mqsc.interpreter import Interpreter
from qmgr.mqsc.source import commands
from qmgr.mqsc.syntax import parse
from qmgr.mqsc.tokens import SyntaxFault


def run(manager: QueueManager, path: str, text: str) -> Iterator[str]:
    """Run the commands of the file at `path`, one after the other; a sentence for each that fails."""
    interpreter = Interpreter(manager)
    for command in commands(text):
        try:
            answer = interpreter.run(parse(command))
            said = answer.lines
        except SyntaxFault as fault:
            answer = syntax_error(command, fault)
            number, place = answer.lines[0].partition(":")[0], answer.lines[-1]
            said = (f"{number}: {place}",)  # the command and the mark below it mean nothing in one line
        if not answer.done:
            line, _ = command.place(0)
            yield f"{path}, line {line}: {' '.join(' '.join(said).split())}"
