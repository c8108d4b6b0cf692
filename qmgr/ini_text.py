"""The text of an ini file: lines that name a stanza or give an attribute its value; what is no such line is refused."""

import re
from collections.abc import Iterator

import attrs

from qmgr.errors import IniError

MAX_FILE_BYTES = 1 << 20
MAX_LINE_CHARS = 4096
INDENT = "   "
NO_TEXT = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters but the tab, and surrogates


@attrs.frozen
class Line:
    """One line that says something: the name of a stanza (`value` is None), or an attribute and its value."""

    number: int
    name: str
    value: str | None = None


def complaint(amq: str, path: str, line: int | None, text: str) -> IniError:
    where = path if line is None else f"{path}, line {line}"
    return IniError(f"{amq}E: {where}: {text}", name=path)


def decoded(data: bytes, path: str) -> str:
    """The text of an ini file's bytes; raises IniError naming the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        number = data.count(b"\n", 0, exc.start) + 1
        text = f"byte 0x{data[exc.start]:02x} is not UTF-8 text; correct the line, or put the right file in its place."
        raise complaint("AMQ6162", path, number, text) from None


def numbered(text: str | bytes, path: str) -> Iterator[tuple[int, str]]:
    """The lines of an ini file as they stand, from 1; raises IniError where the file as a whole is none."""
    if len(text) > MAX_FILE_BYTES:
        raise complaint("AMQ6162", path, None, f"the file is longer than {MAX_FILE_BYTES} bytes.")
    if isinstance(text, bytes):
        text = decoded(text, path)
    if text.startswith("\ufeff"):
        raise complaint("AMQ6162", path, 1, "the file begins with a byte order mark; save it as UTF-8 without one.")
    for number, raw in enumerate(text.split("\n"), 1):
        yield number, raw.removesuffix("\r")


def understood(number: int, line: str, path: str) -> Line | None:
    """What a line says; None if that is nothing. Raises IniError."""
    if len(line) > MAX_LINE_CHARS:
        raise complaint("AMQ6162", path, number, f"the line is longer than {MAX_LINE_CHARS} characters.")
    wrong = NO_TEXT.search(line)
    if wrong is not None:
        raise complaint("AMQ6162", path, number, f"character U+{ord(wrong[0]):04X} can't stand in an ini file.")
    said = line.partition("#")[0].partition(";")[0].strip(" \t")
    if not said:
        return None
    name, equals, value = said.partition("=")
    name = name.rstrip(" \t")
    if equals and name:
        return Line(number, name, value.lstrip(" \t"))
    if said.endswith(":") and said[:-1].strip(" \t"):
        return Line(number, said[:-1].strip(" \t"))
    what = "is neither a stanza, `Name:`, nor an attribute, `Name=value`."
    raise complaint("AMQ6162", path, number, f"{shown(said)} {what}")


def lines(text: str | bytes, path: str) -> Iterator[Line]:
    """The stanza names and attributes of an ini file, without blank lines and comments; raises IniError."""
    for number, raw in numbered(text, path):
        line = understood(number, raw, path)
        if line is not None:
            yield line


def line_of(text: str | bytes, path: str, stanza: str, attribute: str) -> int | None:
    """The line that gives an attribute its value; None where it has its default. Raises IniError."""
    within = ""
    for line in lines(text, path):
        if line.value is None:
            within = line.name.upper()
        elif (within, line.name.upper()) == (stanza.upper(), attribute.upper()):
            return line.number
    return None


def shown(text: str) -> str:
    """`text` in quotes, shortened for a message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
