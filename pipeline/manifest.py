"""The manifest of a lake: which folders of Parquet files are in it, and up to which LSN of the log it goes.

A lake is a directory. `manifest.json` in it says all that readers believe; it is replaced by one rename, so they see a
run of the job `history` wholly or not at all. The files of a run lie in a folder of that run's alone:

    lake/manifest.json
    lake/run=<first LSN>-<LSN behind it>-<attempt>/day=2026-11-21/queue=ORDERS/part-….parquet

A folder that the manifest does not name is what a run left behind that was killed: it is not in the lake.
"""

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from logger.disk import Disk
from logger.posix_disk import PosixDisk, absolute_path
from logger.whole_files import read_whole, replace_file
from pipeline.paths import GLOB_CHARS, local, parquet_files
from qmgr.errors import Mistake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "manifest.json"
VERSION = 1
LAST = frozenset(("lsn", "epoch", "time", "end"))


@attrs.frozen(kw_only=True)
class Run:
    """What one run has brought in: the records that begin in [start, end), in its folder."""

    folder: str  # its name in the lake
    start: int
    end: int
    rows: int
    files: int | None = None  # of Parquet, and their bytes; None: a version before this one has made it
    size: int = 0


@attrs.frozen(kw_only=True)
class Manifest:
    """What is in a lake."""

    log_id: str  # hexadecimal: of the one log that it is of
    start: int  # LSN from which on it has everything
    runs: tuple[Run, ...] = ()
    open: dict[int, int] = attrs.field(factory=dict)  # units of work without an outcome yet -> LSN of their first row
    last: dict[str, int] | None = None  # record that it has: LSN, epoch, time, end

    @property
    def end(self) -> int:
        """The LSN that it has reached."""
        return self.runs[-1].end if self.runs else self.start

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION} | attrs.asdict(self), indent=1).encode()


def folder_of(start: int, end: int, attempt: str) -> str:
    """The name of the folder of a run."""
    return f"run={start:020d}-{end:020d}-{attempt}"


def decode(data: bytes) -> Manifest:
    """Raises ValueError, KeyError, TypeError, OverflowError for what is no manifest that this version knows."""
    try:
        fields: dict[str, Any] = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(fields, dict) or "version" not in fields:
        raise ValueError("it says no version")
    if fields.pop("version") != VERSION:
        raise ValueError("it was written by a later version")
    fields["runs"] = tuple(Run(**run) for run in fields["runs"])
    fields["open"] = {int(unit): first for unit, first in dict(fields["open"]).items()}
    known = Manifest(**fields)
    _check(known)
    return known


def _check(known: Manifest) -> None:
    """Raise ValueError for what no run has written: readers would take it for all of the lake, and runs go on there."""
    reached = known.start
    numbers = [known.start, *known.open, *known.open.values()]
    for run in known.runs:
        numbers += (run.start, run.end, run.rows, run.size, 0 if run.files is None else run.files)
    if known.last is not None:
        if not isinstance(known.last, dict) or known.last.keys() != LAST:
            raise ValueError(f"its last record is {known.last!r}")
        numbers += known.last.values()
    for number in numbers:
        if type(number) is not int or not 0 <= number < 1 << 63:
            raise ValueError(f"{number!r} is no number of bytes, rows or files, and no place in a log")
    for run in known.runs:
        if run.start != reached or run.end <= run.start:
            raise ValueError(f"what {run.folder} has does not follow what was before it")
        said_twice = folder_of(run.start, run.end, "[0-9a-f]{8}")
        if not isinstance(run.folder, str) or re.fullmatch(said_twice, run.folder) is None:
            raise ValueError(f"the folder of a run from {run.start} to {run.end} is {run.folder!r}")
        reached = run.end
    if not isinstance(known.log_id, str):
        raise ValueError(f"its log is {known.log_id!r}")


def load(folder: str, disk: Disk | None = None) -> Manifest | None:
    """The manifest of the lake in this folder; None where there is none yet. Raises Mistake, OSError."""
    disk = disk or PosixDisk()
    path = f"{folder}/{NAME}"
    if not disk.exists(path):
        return None
    try:
        return decode(read_whole(disk, path))
    except (ValueError, KeyError, TypeError, OverflowError) as exc:
        raise Mistake(f"{path} can't be read as the manifest of a lake: {exc}; restore it from a backup") from exc


def save(folder: str, manifest: Manifest, disk: Disk | None = None) -> None:
    """Let this manifest count, durably, at one moment. Raises OSError."""
    replace_file(disk or PosixDisk(), f"{folder}/{NAME}", manifest.encode())


def lake(spark: "SparkSession", folder: str) -> "DataFrame":
    """The log's rows that are in the lake in this folder, as `qmgr.log` has them, with `run`, `day` and `queue`.

    Rows without a queue, such as those of COMMIT records, have none in `queue` either. Raises Mistake, OSError.
    """
    if not folder:  # which would be whatever directory this process is in
        raise Mistake("lake needs the folder of a lake, which the job history makes; it was given ''")
    root = absolute_path(local(str(folder)))
    if GLOB_CHARS.intersection(root):
        raise Mistake(f"Spark takes {root!r} for a pattern, for one of {{}}[]*?\\ in it; give the lake another name")
    manifest = load(root)
    if manifest is None:
        raise Mistake(f"there is no lake in {root}: it has no {NAME}; the job history makes one")
    refuse_lost(root, manifest)
    return read_runs(spark, root, [run.folder for run in manifest.runs])


def measure(path: str) -> tuple[int, int]:
    """How many Parquet files there are below, and their bytes. Raises OSError."""
    sizes = [file.stat().st_size for file in parquet_files(path)]
    return len(sizes), sum(sizes)


def refuse_lost(root: str, known: Manifest) -> None:
    """Raise Mistake where files of the lake are gone, or were cut: what is left would be taken for all of it."""
    for run in known.runs:
        path = f"{root}/{run.folder}"
        files, size = measure(path)
        if run.files is not None and (files, size) != (run.files, run.size):
            raise Mistake(
                f"the lake in {root} is not what it was: {path} has {files} Parquet files of {size} bytes, and had "
                f"{run.files} of {run.size}; restore it from a backup, or make a lake in another folder"
            )


def read_runs(spark: "SparkSession", root: str, folders: list[str]) -> "DataFrame":
    """The rows in these folders of a lake."""
    from pipeline.schema import DDL

    schema = f"{DDL}, run STRING, day DATE, queue STRING"
    if not folders:
        return spark.createDataFrame([], schema)
    paths = [f"{root}/{folder}" for folder in folders]
    return spark.read.schema(schema).option("basePath", root).parquet(*paths)
