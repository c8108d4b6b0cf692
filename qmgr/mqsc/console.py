"""What runmqsc prints: lines with their numbers, answers, and what all came to. Reads and writes nothing itself."""

from collections.abc import Callable, Iterator

from qmgr.mqsc import COMMANDS_FAILED, MqscResult
from qmgr.mqsc.source import Lines

Execute = Callable[[str], MqscResult]


class Console:
    """Takes lines one by one; `execute` is given the lines of one command."""

    def __init__(self, execute: Execute, *, echo: bool = True) -> None:
        self._execute = execute
        self._echo = echo
        self._lines = Lines()
        self._command: list[str] = []
        self._number = 0
        self.read = 0  # commands
        self._errors = self._failures = 0
        self.ended = False  # END was read

    def add(self, line: str) -> Iterator[str]:
        """What is printed for one line of input."""
        begun = self._lines.continued
        command = self._lines.add(line)
        first = not begun and (command is not None or self._lines.continued)
        self._number += first
        if self._echo:
            yield f"{self._number:6} : {line}" if first else f"       : {line}"
        if first or begun:
            self._command.append(line)
        if first and command is not None and command.last:
            self.ended = True
        elif command is not None:
            yield from self._run()

    def end(self) -> Iterator[str]:
        """What is printed when there is no more input."""
        if self._lines.end() is not None and not self.ended:
            yield from self._run()
        yield f"{_count(self.read, 'MQSC command')} read."
        yield f"{_count(self._errors, 'command')} {'has' if self._errors == 1 else 'have'} a syntax error."
        if self._failures:
            yield f"{_count(self._failures, 'valid MQSC command')} could not be processed."
        else:
            yield "All valid MQSC commands were processed."

    @property
    def code(self) -> int:
        return COMMANDS_FAILED if self._errors or self._failures else 0

    def _run(self) -> Iterator[str]:
        text, self._command = "\n".join(self._command), []
        result = self._execute(text)
        self.read += result.commands
        self._errors += result.errors
        self._failures += result.failures
        yield from result.text.splitlines()


def _count(number: int, what: str) -> str:
    """`No commands`, `One command`, `2 commands`."""
    return f"{ {0: 'No', 1: 'One'}.get(number, number) } {what}{'' if number == 1 else 's'}"
