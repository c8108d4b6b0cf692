"""What may stand after the `=` of an attribute: reading its text, writing it, and saying what is allowed."""

import enum
import re
from typing import Any, Protocol

from logger.archive_plan import age_text, parse_age

MAX_PATH_CHARS = 4000
HOST = re.compile(
    r"(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


class Values(Protocol):
    """The values of an attribute. `read` raises ValueError for any other."""

    allowed: str

    def read(self, text: str) -> Any: ...

    def write(self, value: Any) -> str: ...


class Whole:
    """A whole number; `words` are words that stand for numbers outside the range."""

    def __init__(self, low: int, high: int, **words: int) -> None:
        self.low, self.high, self.words = low, high, words
        self.allowed = " or ".join([*words, f"a whole number from {low} to {high}"])

    def read(self, text: str) -> int:
        if text.upper() in self.words:
            return self.words[text.upper()]
        if not (text.isascii() and text.isdigit() and self.low <= (number := int(text)) <= self.high):
            raise ValueError(text)
        return number

    def write(self, value: int) -> str:
        return next((word for word, number in self.words.items() if number == value), str(value))


class Choice:
    """A word of an enumeration, in any case."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        self.words = {member.value.upper(): member for member in kind}
        *most, last = (member.value for member in kind)
        self.allowed = f"{', '.join(most)} or {last}"

    def read(self, text: str) -> enum.Enum:
        try:
            return self.words[text.upper()]
        except KeyError:
            raise ValueError(text) from None

    def write(self, value: enum.Enum) -> str:
        return str(value.value)


class Directory:
    """An absolute path. A comment may follow any value, so `#` and `;` can't be part of one."""

    allowed = f"an absolute path of at most {MAX_PATH_CHARS} printable characters without # and ;"

    def read(self, text: str) -> str:
        path = text.rstrip("/") or text[:1]
        plain = path.isprintable() and path == path.strip() and not set("#;") & set(path)
        if not plain or not path.startswith("/") or len(path) > MAX_PATH_CHARS:
            raise ValueError(text)
        return path

    def write(self, value: str) -> str:
        return self.read(value).rstrip("/") + "/"


class FileOrDirectory(Directory):
    """An absolute path of a file or a directory."""

    def write(self, value: str) -> str:
        return self.read(value)


class Word:
    """A name of our own, which goes into messages."""

    allowed = "1 to 48 characters of A-Z a-z 0-9 . _ -, the first one a letter or digit"

    def read(self, text: str) -> str:
        if not WORD.fullmatch(text):
            raise ValueError(text)
        return text

    def write(self, value: str) -> str:
        return self.read(value)


class Address:
    """An IP address or the name of a host."""

    allowed = "an IP address such as 127.0.0.1, ::1 or 0.0.0.0, or the name of a host"

    def read(self, text: str) -> str:
        if HOST.fullmatch(text):
            return text.lower()
        import ipaddress  # takes longer than all of this module, and few have a listener

        return str(ipaddress.ip_address(text))

    def write(self, value: str) -> str:
        return self.read(value)


class Several:
    """Some of a few words, with commas between them, in the order of preference."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.allowed = f"one or more of {', '.join(words)}, with commas between them"

    def read(self, text: str) -> tuple[str, ...]:
        said = tuple(word.strip().upper() for word in text.split(","))
        if not set(said) <= set(self.words) or len(set(said)) < len(said):
            raise ValueError(text)
        return said

    def write(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


class YesNo:
    """YES or NO, in any case."""

    allowed = "YES or NO"

    def read(self, text: str) -> bool:
        if text.upper() not in ("YES", "NO"):
            raise ValueError(text)
        return text.upper() == "YES"

    def write(self, value: bool) -> str:
        return "YES" if value else "NO"


class Age:
    """A time in seconds, written with its unit."""

    allowed = "a whole number with s, m, h, d or w behind it, such as 36h, at most 11574d"

    def read(self, text: str) -> int:
        return parse_age(text)

    def write(self, value: int) -> str:
        return age_text(value)


class Unless:
    """Other values, or a word that stands for None."""

    def __init__(self, word: str, values: Values) -> None:
        self.word, self.values = word, values
        self.allowed = f"{word} or {values.allowed}"

    def read(self, text: str) -> Any:
        return None if text.lower() == self.word.lower() else self.values.read(text)

    def write(self, value: Any) -> str:
        return self.word if value is None else self.values.write(value)
