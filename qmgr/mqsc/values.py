"""The kinds of values that attributes have: how each is read from a command, shown on a console, and compared.

A kind knows no attribute. `read` takes what stands in the parentheses and returns the Python value; `show` is the
other way. What can't be read raises ValueError, whose text says what is allowed.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from qmgr.objects import NAME, UNLIMITED

BLANK = " "


def either(words: Sequence[str]) -> str:
    """`A, B or C`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


class Value(Protocol):
    """How the values of an attribute are written. Those of `Words` are several, and come with commas between them."""

    def read(self, text: str) -> Any:
        """The Python value. Raises ValueError, with what is allowed."""

    def show(self, value: Any) -> str:
        """As MQSC writes it; blank is one space."""


@attrs.frozen
class Whole:
    """A whole number."""

    low: int
    high: int

    def read(self, text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < 20 and self.low <= int(text) <= self.high:
            return int(text)
        raise ValueError(f"a whole number from {self.low} to {self.high}")

    def show(self, value: Any) -> str:
        return str(value)


@attrs.frozen
class WholeOr:
    """A whole number, or a word that stands for None."""

    word: str
    high: int = UNLIMITED

    def read(self, text: str) -> int | None:
        try:
            return None if text == self.word else Whole(1, self.high).read(text)
        except ValueError as exc:
            raise ValueError(f"{self.word}, or {exc}") from None

    def show(self, value: Any) -> str:
        return self.word if value is None else str(value)


@attrs.frozen
class Tenths:
    """Tenths of a second, which are seconds in Python; NOLIMIT stands for None."""

    def read(self, text: str) -> float | None:
        tenths = WholeOr("NOLIMIT").read(text)
        return None if tenths is None else tenths / 10

    def show(self, value: Any) -> str:
        return "NOLIMIT" if value is None else str(max(1, round(value * 10)))


@attrs.frozen
class Flag:
    """One word for True, another one for False."""

    true: str
    false: str

    def read(self, text: str) -> bool:
        if text not in (self.true, self.false):
            raise ValueError(f"{self.true} or {self.false}")
        return text == self.true

    def show(self, value: Any) -> str:
        return self.true if value else self.false


class OneOf:
    """One of a few words, which are the Python value too."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def read(self, text: str) -> str:
        if text not in self.words:
            raise ValueError(either(self.words))
        return text

    def show(self, value: Any) -> str:
        return str(value)


@attrs.frozen
class Text:
    """Text up to so many characters."""

    most: int

    def read(self, text: str) -> str:
        value = text.rstrip()
        if len(value) > self.most or not value.isprintable():
            raise ValueError(f"text of at most {self.most} printable characters")
        return value

    def show(self, value: Any) -> str:
        return str(value) or BLANK


@attrs.frozen
class Name:
    """The name of an object; blank only if it may be."""

    blank: bool = True

    def read(self, text: str) -> str:
        name = text.strip()
        if (name == "" and self.blank) or NAME.fullmatch(name):
            return name
        raise ValueError("a name of 1 to 48 of the characters A-Z a-z 0-9 . / _ %" + (", or ' '" if self.blank else ""))

    def show(self, value: Any) -> str:
        return str(value) or BLANK


@attrs.frozen
class Inherited:
    """A value, or blank, which is None in Python: that of the queue which is meant counts."""

    value: Value

    def read(self, text: str) -> Any:
        try:
            return None if not text.strip() else self.value.read(text)
        except ValueError as exc:
            raise ValueError(f"{exc}, or ' '") from None

    def show(self, value: Any) -> str:
        return BLANK if value is None else self.value.show(value)


@attrs.frozen
class Pattern:
    """Text that fits a pattern."""

    pattern: re.Pattern[str]
    allowed: str

    def read(self, text: str) -> str:
        if not self.pattern.fullmatch(text):
            raise ValueError(self.allowed)
        return text

    def show(self, value: Any) -> str:
        return str(value) or BLANK


@attrs.frozen
class Words:
    """Several of a few words, with commas between them."""

    known: tuple[str, ...]

    def read(self, text: str) -> tuple[str, ...]:
        words = tuple(text.split(","))
        if not set(words) <= set(self.known):
            raise ValueError(f"one or more of {', '.join(self.known)}")
        return words

    def show(self, value: Any) -> str:
        return ",".join(value) or BLANK


def order(text: str) -> tuple[int, int, str]:
    """What a shown value is sorted and compared by: numbers as numbers, before all text."""
    return (0, int(text), "") if text.isascii() and text.isdigit() and len(text) < 20 else (1, 0, text.strip())


def text_order(text: str) -> tuple[int, int, str]:
    """The same for attributes whose values are text, even one of digits."""
    return (1, 0, text.strip())
