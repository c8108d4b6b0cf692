"""Paths as users of Spark write them, who also know them as URIs: `file:/data` and `file:///data` are `/data`.

And what lies there, where an error of the disk is not to be taken for nothing, as `pathlib` takes many of them.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

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


def walk(folder: str | Path) -> Iterator[tuple[Path, list[Path]]]:
    """Each folder below, and this one as the last, with its files; nothing where it is not there. Raises OSError."""
    for path, _, names in os.walk(folder, topdown=False, onerror=_refuse):
        yield Path(path), [Path(path, name) for name in names]


def parquet_files(folder: str | Path) -> list[Path]:
    """The Parquet files below; a queue, whose name a folder has, may have such a name too. Raises OSError."""
    return [file for _, files in walk(folder) for file in files if file.suffix == ".parquet"]


def is_link(path: Path) -> bool:
    """Is it a link? Raises OSError where that can't be told."""
    try:
        return stat.S_ISLNK(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _refuse(exc: OSError) -> None:
    if not isinstance(exc, FileNotFoundError):
        raise exc
