"""The text of an ini file: stanzas by name, attributes and their values; a line that is neither is refused."""

import re
from collections.abc import Iterator

import attrs

from qmgr.errors import IniError

MAX_FILE_BYTES = 1 << 20
MAX_LINE_CHARS = 4096
INDENT = "   "
STANZA = re.compile(r"([^:=]*[^:= \t])[ \t]*:[ \t]*")
Pattern = re.Pattern[str] | None
NO_TEXT = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters but the tab, and surrogates


@attrs.frozen
class Line:
    """The name of a stanza (`value` is None), or an attribute and its value. A line of the file may have several."""

    number: int
    name: str
    value: str | None = None


def complaint(amq: str, path: str, line: int | None, text: str) -> IniError:
    """The error to raise for a line of an ini file; `line` None: for the file as a whole."""
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
    """The lines of an ini file as they stand, from 1; raises IniError where the file as a whole can't be one."""
    if len(text) > MAX_FILE_BYTES:
        raise complaint("AMQ6162", path, None, f"the file is longer than {MAX_FILE_BYTES} bytes.")
    if isinstance(text, bytes):
        text = decoded(text, path)
    if text.startswith("\ufeff"):
        raise complaint("AMQ6162", path, 1, "the file begins with a byte order mark; save it as UTF-8 without one.")
    for number, raw in enumerate(text.split("\n"), 1):
        yield number, raw.removesuffix("\r")


def understood(number: int, line: str, path: str, more: Pattern) -> list[Line]:
    """What a line says. Raises IniError. `more` matches the blanks before each further attribute of the line."""
    if len(line) > MAX_LINE_CHARS:
        raise complaint("AMQ6162", path, number, f"the line is longer than {MAX_LINE_CHARS} characters.")
    wrong = NO_TEXT.search(line)
    if wrong is not None:
        raise complaint("AMQ6162", path, number, f"character U+{ord(wrong[0]):04X} can't stand in an ini file.")
    said = line.partition("#")[0].partition(";")[0].strip(" \t")
    if not said:
        return []
    found = []
    stanza = STANZA.match(said)
    if stanza is not None:
        found.append(Line(number, stanza[1]))
    rest = said[stanza.end() :] if stanza is not None else said
    parts = [part.partition("=") for part in (more.split(rest) if more else [rest])] if rest else []
    if all(equals and name.strip(" \t") for name, equals, _ in parts):
        return found + [Line(number, name.strip(" \t"), value.strip(" \t")) for name, _, value in parts]
    what = "is neither a stanza, `Name:`, nor an attribute, `Name=value`."
    raise complaint("AMQ6162", path, number, f"{shown(said)} {what}")


def lines(text: str | bytes, path: str, more: Pattern = None) -> Iterator[Line]:
    """The stanza names and attributes of an ini file, without blank lines and comments; raises IniError."""
    for number, raw in numbered(text, path):
        yield from understood(number, raw, path, more)


def shown(text: str) -> str:
    """`text` in quotes, shortened for a message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
