"""Changes values of the Log stanza in the text of a qm.ini; comments, order and all else stay. Pure."""

import re
from collections.abc import Mapping

from qmgr import ini
from qmgr.errors import IniError
from qmgr.ini_stanzas import ATTRIBUTES


def reworded(text: bytes, path: str, values: Mapping[str, str]) -> bytes:
    """The text with these values, by the names of attributes; one that it does not have is added. Raises IniError."""
    wanted = {name.upper(): (name, value) for name, value in values.items()}
    raw = ini.decoded(text, path).split("\n")
    stanza, first = "", None
    for line in ini.lines(text, path):
        if line.value is None:
            stanza = line.name.upper()
            first = line.number if stanza == "LOG" and first is None else first
        elif stanza == "LOG" and line.name.upper() in wanted:
            _, value = wanted.pop(line.name.upper())
            before = re.compile(rf"(?<![^ \t:]){re.escape(line.name)}[ \t]*=[ \t]*")
            said = raw[line.number - 1]
            found = before.search(said)
            assert found is not None, "it was read there"
            raw[line.number - 1] = said[: found.end()] + value + said[found.end() + len(line.value) :]
    if first is None:
        raise IniError(f"AMQ7006E: {path}: stanza Log is missing; it is required.", name=path)
    ending = "\r" if raw[first - 1].endswith("\r") else ""
    raw[first:first] = [f"{ini.INDENT}{name}={value}{ending}" for name, value in wanted.values()]
    for name, value in values.items():
        _check(name, value, path)
    changed = "\n".join(raw).encode()
    ini.parse(changed, path)  # what can't be read again is not written
    return changed


def _check(name: str, value: str, path: str) -> None:
    allowed = ATTRIBUTES["LOG"][name.upper()].values
    try:
        allowed.read(value)
    except ValueError:
        raise IniError(
            f"AMQ7076E: {path}: {name}={ini.shown(value)} is not valid; allowed: {allowed.allowed}.", name=path
        ) from None
