"""Paths as users of Spark write them, who also know them as URIs: `file:/data` and `file:///data` are `/data`."""

import os
import re

from qmgr.errors import Mistake, quoted
from qmgr.locations import can_be

FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)
GLOB_CHARS = frozenset("{}[]*?\\")  # Spark writes to a path with these as it stands, and doesn't find it again
ELSEWHERE = re.compile(r"(?:file:|[a-z][a-z0-9+.-]*://)", re.IGNORECASE)


def local(text: str) -> str:
    """The path that it stands for, `~` being a home. Raises Mistake for a URI of what is no file of this machine."""
    return os.path.expanduser(without_scheme(text))  # noqa: PTH111 - a home that is not there raises nothing


def without_scheme(text: str) -> str:
    """The same of a path that Spark takes too, to which `~` is a folder like any other."""
    if text and not can_be(text):
        raise Mistake(f"{quoted(text)} can't be a path: it has a NUL, or half a surrogate pair")
    found = FILE.fullmatch(text)
    if found is not None:
        return found[1]
    if ELSEWHERE.match(text):
        raise Mistake(f"{text!r} is no path on this machine; mount it here and name that, such as /data or file:/data")
    return text
