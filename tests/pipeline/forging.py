"""Logs for the tests of jobs: their rows as tables, several logs as if they were one, and logs that are forged."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from logger import frame
from logger.extent import DATA, file_name, linear_number
from pipeline.finding import find
from pipeline.log_files import LogFiles
from pipeline.schema import ARROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
LSNS, UNITS, NUMBERS = 1 << 44, 1 << 55, 1000  # how far logs are moved apart


def table(spark: "SparkSession", rows: Iterable[Row], columns: Iterable[str]) -> "DataFrame":
    """The rows as the source gives them, with these columns."""
    wanted = set(columns)
    schema = pa.schema([field for field in ARROW if field.name in wanted])
    shown = [{name: row.get(name) for name in schema.names} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(shown, schema))


def apart(rows: list[Row], which: int) -> list[Row]:
    """The rows of another log: nothing in them is also in that of another number."""
    lsns, units, numbers = which * LSNS, which * UNITS, which * NUMBERS
    moved = []
    for row in rows:
        other = row | {"lsn": row["lsn"] + lsns, "end_lsn": row["end_lsn"] + lsns, "epoch": row["epoch"] + numbers}
        other["extent"] = f"{which}/{row['extent']}"
        if row["uow"] is not None:
            other["uow"] = row["uow"] + units
        if row["object_number"] is not None:
            other["object_number"] = row["object_number"] + numbers
        if row["bases"] is not None:
            other["bases"] = [(number + numbers, base) for number, base in row["bases"]]
        if row["object"] is not None:
            other["object"] = f"{which}.{row['object']}"
        if row["kind"].startswith("IMAGE"):
            said = json.loads(row["details"])
            places = {name: said[name] + lsns for name in ("image_start", "checkpoint", "media") if name in said}
            other["details"] = json.dumps(said | places)
        moved.append(other)
    return moved


class Forger:
    """Writes other records over those of a log that nobody uses, with the right checksums."""

    def __init__(self, data: Path, name: str) -> None:
        self.log: LogFiles = find(str(data), name)

    def rewrite(self, at: int, *, kind: int | None = None, uow: int | None = None, body: bytes | None = None) -> None:
        """The record at this LSN, which is one frame, is another one of the same length from now on."""
        path = Path(self.log.directories[0]) / file_name(linear_number(at // self.log.extent_bytes))
        data = bytearray(path.read_bytes())
        place, seed = DATA + at % self.log.extent_bytes, crc32(self.log.log_id)
        old = frame.decode(memoryview(data), place, at, seed)
        assert old is not None and old.flags == frame.WHOLE
        back = frame.HEADER.unpack_from(data, place)[7]
        new = bytes(old.body) if body is None else body.ljust(len(old.body))
        assert len(new) == len(old.body)
        what, unit = old.kind if kind is None else kind, old.uow if uow is None else uow
        frame.encode_into(
            memoryview(data), place, seed, old.epoch, at, unit, old.time, back, what, frame.WHOLE, new, b""
        )
        path.write_bytes(data)
