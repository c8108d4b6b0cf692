"""Lines of MQSC become commands: comments and blank lines go, continued lines are joined. Knows no command.

A line that begins with `*` is a comment. `+` at the end of a line goes on at the first character of the next line that
is not blank, `-` at its first column. A command that goes on at the end of the text lacks its rest, and is none.
"""

from collections.abc import Iterator

import attrs

MAX_LINE_CHARS = 2048
MAX_COMMAND_CHARS = 32_762
BYTE_ORDER_MARK = "\ufeff"  # which some editors put at the beginning of a file
LAST_COMMANDS = ("END", "EXIT", "QUIT")


@attrs.frozen
class Command:
    """One command, its lines joined."""

    text: str
    places: tuple[tuple[int, int, int], ...]  # (offset in `text`, line, column in it): where each of its lines begins
    fault: str = ""  # what is wrong with its lines

    @property
    def last(self) -> bool:
        """Does it say that no other follows?"""
        return self.text.strip(" ;").upper() in LAST_COMMANDS

    def place(self, offset: int) -> tuple[int, int]:
        """The line and the column, both from 1 on, of this offset in the text."""
        start, line, column = next(one for one in reversed(self.places) if one[0] <= offset)
        return line, column + offset - start


class Lines:
    """Takes one line after the other; each is a part of a command, its end, or nothing."""

    def __init__(self) -> None:
        self._text = ""
        self._places: list[tuple[int, int, int]] = []
        self._fault = ""
        self._from_the_first_column = False
        self._number = 0

    @property
    def continued(self) -> bool:
        """Has a command begun that goes on in the next line?"""
        return bool(self._places)

    def add(self, line: str) -> Command | None:
        """The command that ends with this line."""
        self._number += 1
        if self._number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if line.startswith("*") or not line.strip():
            return None
        part = line.rstrip()
        goes_on = part[-1] in "+-"
        joiner = part[-1]
        part = part[:-1] if goes_on else part
        stripped = part if self._from_the_first_column and self._places else part.lstrip()
        self._places.append((len(self._text), self._number, 1 + len(part) - len(stripped)))
        self._text += stripped
        if len(line) > MAX_LINE_CHARS:
            self._fault = self._fault or f"line {self._number} is longer than {MAX_LINE_CHARS} characters"
        self._from_the_first_column = goes_on and joiner == "-"
        return None if goes_on else self._made()

    def end(self) -> Command | None:
        """There are no more lines: the command that was to go on."""
        if not self._places:
            return None
        line = self._places[-1][1]  # blank lines and comments may stand behind it
        self._fault = self._fault or f"line {line} says that the command goes on, and there is no more"
        return self._made()

    def _made(self) -> Command:
        fault = self._fault
        if len(self._text) > MAX_COMMAND_CHARS:
            fault = fault or f"the command is longer than {MAX_COMMAND_CHARS} characters"
        made = Command(self._text, tuple(self._places), fault)
        self._text, self._places, self._fault = "", [], ""
        self._from_the_first_column = False
        return made


def commands(text: str) -> Iterator[Command]:
    """The commands of a text, up to END."""
    reading = Lines()
    lines = [reading.add(line) for line in text.split("\n")]
    for command in (*lines, reading.end()):
        if command is not None and command.last:
            return
        if command is not None:
            yield command
