"""What a user asks of the source `qmgr.log`: which log, from where to where, which rows and columns of it."""

import datetime
import re
from collections.abc import Mapping
from pathlib import Path

import attrs
import pyarrow as pa
from pyspark.sql.types import StructType

from logger import lsn
from logger.disk import Disk
from logger.errors import NotInLog
from logger.extent import file_name, linear_number
from logger.posix_disk import PosixDisk
from pipeline.filters import EVERYTHING, Filters
from pipeline.finding import find
from pipeline.log_files import LogFiles
from pipeline.paths import local
from pipeline.schema import ARROW, COLUMNS, SQL, column
from qmgr.errors import Mistake
from qmgr.message import EPOCH
from recovery.records import Kind

OLDEST, LATEST = "oldest", "latest"
OPTIONS = (
    *("path", "qmgr", "columns", "objects", "kinds", "startingLsn", "startingTime", "endingLsn", "endingTime"),
    *("maxBytesPerTrigger", "pushdown"),
)
KINDS = [name for name, kind in Kind.__members__.items() if kind not in (Kind.PUT_MANY, Kind.CALLS)]  # of rows
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
NO_LSN = 1 << 64  # the first number that is none

Place = int | datetime.datetime | str  # an LSN, a moment, OLDEST or LATEST


@attrs.frozen(kw_only=True)
class Asked:
    """The options of one read, checked. Holds no file and can be sent to other processes."""

    path: str
    qmgr: str | None = None
    columns: tuple[str, ...] = COLUMNS
    filters: Filters = EVERYTHING
    start: Place = OLDEST
    end: Place = LATEST
    max_bytes: int | None = None
    pushdown: bool | None = None  # as it is safe with this version of Spark
    loaded: int | None = None  # up to where the log was durable when a DataFrame was made; None: not known

    def log(self, disk: Disk | None = None) -> LogFiles:
        """Where the log lies now. Raises LogError, MQError, OSError."""
        return find(self.path, self.qmgr, disk)


def asked(options: Mapping[str, str]) -> Asked:
    """Raises Mistake for an option that is not known, is missing, or has a wrong value."""
    known = {name.lower(): name for name in OPTIONS}
    given = {}
    for name, value in options.items():
        if name.lower() not in known:
            raise Mistake(f"qmgr.log has no option {name!r}; it has {', '.join(OPTIONS)}")
        given[known[name.lower()]] = value
    if not given.get("path"):  # "" would be whatever directory this process is in
        raise Mistake(
            'qmgr.log needs a path: load("/data") with the option qmgr for a queue manager, or load the directory of '
            "a log or of its extents"
        )
    limit = given.get("maxBytesPerTrigger")
    return Asked(
        path=str(Path(local(given["path"]))),
        qmgr=given.get("qmgr"),
        columns=_columns(given["columns"]) if "columns" in given else COLUMNS,
        filters=Filters(objects=_set(given.get("objects")), kinds=_kinds(given.get("kinds"))),
        start=_place(given, "starting", OLDEST),
        end=_place(given, "ending", LATEST),
        max_bytes=None if limit is None else _bytes(limit),
        pushdown=switch(given["pushdown"], "pushdown") if "pushdown" in given else None,
    )


def _place(given: Mapping[str, str], which: str, default: str) -> Place:
    at, moment = given.get(f"{which}Lsn"), given.get(f"{which}Time")
    if at is not None and moment is not None:
        raise Mistake(f"give {which}Lsn or {which}Time, not both")
    if at is not None:
        return _lsn(at, f"{which}Lsn")
    return default if moment is None else _moment(moment, f"{which}Time")


def _lsn(text: str, option: str) -> Place:
    word = text.strip().lower()
    if word in (OLDEST, LATEST):
        return word
    try:
        return number(word) if word.isascii() and word.isdigit() else lsn.parse(word)
    except ValueError:
        raise Mistake(
            f"{option} is an LSN as a number or as 0:0:4615:42406, {OLDEST!r} or {LATEST!r}, not {text!r}"
        ) from None


def number(digits: str) -> int:
    """The LSN that these digits are. Raises ValueError for more than an LSN can be."""
    at = int(digits)
    if at >= NO_LSN:
        raise ValueError(digits)
    return at


def _moment(text: str, option: str) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise Mistake(
            f"{option} is a moment such as 2026-11-21T14:30:00, in UTC or with +hh:mm, not {text!r}"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,40})\s*([kmg]?)b?", text.strip().lower())
    if found is None or not int(found[1]):
        raise Mistake(f"maxBytesPerTrigger is a number of bytes, such as 67108864 or 64m, not {text!r}")
    return int(found[1]) * UNITS[found[2]]


def switch(text: str, option: str) -> bool:
    """Raises Mistake."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise Mistake(f"{option} is true or false, not {text!r}")
    return word == "true"


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _set(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    words = frozenset(_words(text))
    if not words:  # of a variable that nobody has set, perhaps: no row at all would seem to be there
        raise Mistake("an option that names objects or kinds names none; leave it out for all of them")
    return words


def _kinds(text: str | None) -> frozenset[str] | None:
    kinds = _set(text)
    for kind in sorted(kinds or ()):
        if kind not in KINDS:
            raise Mistake(f"there are no rows of kind {kind!r}; there are {', '.join(KINDS)}")
    return kinds


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.lower() for name in _words(text))
    _check_columns(names)
    return names


def _check_columns(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in COLUMNS:
            raise Mistake(f"qmgr.log has no column {name!r}; it has {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise Mistake(f"column {name!r} was asked for twice")
    if not names:
        raise Mistake("no column was asked for: name at least one")


def ddl(columns: tuple[str, ...]) -> str:
    """The columns in Spark's words."""
    return ", ".join(f"{name} {SQL[ARROW.field(name).type]}" for name in columns)


def target_of(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for `schema`, its or the user's. Raises Mistake for what the log has not."""
    _check_columns(tuple(name.lower() for name in schema.fieldNames()))
    fields = []
    for field in schema.fields:
        kind = ARROW.field(field.name.lower()).type
        fields.append(column(field.name, kind, field.dataType.simpleString(), nullable=field.nullable))
    return pa.schema(fields)


def microseconds(moment: datetime.datetime) -> int:
    """A moment as microseconds since 1970-01-01 UTC."""
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def lsn_of(
    place: Place, log: LogFiles, disk: Disk | None = None, last: int | None = None, *, ends: bool = False
) -> int:
    """The LSN of that place in the log as it is now.

    `last`: where the log ends, and behind which there is nothing to begin with. `ends`: reading ends there, so what
    begins there may be missing. Raises NotInLog for an LSN before all that there is, Mistake for one behind `last`,
    LogDamaged, OSError.
    """
    if place == LATEST:
        return log.end(disk=disk) if last is None else last
    if isinstance(place, datetime.datetime):
        return log.at_time(microseconds(place), disk)
    if not isinstance(place, int):
        return log.first(disk)
    history = log.history(disk or PosixDisk())
    places = history.places()
    oldest, sequence = min(places, default=0), place // log.extent_bytes
    if 0 < sequence < oldest:
        raise NotInLog(
            f"the log is there from {lsn.text(oldest * log.extent_bytes)} on, so {lsn.text(place)}, in "
            f"{file_name(linear_number(sequence))}, can't be read: put that extent and those behind it into "
            f"{' or '.join(log.directories)}, or begin with {OLDEST!r}",
            lsn=place,
        )
    if last is not None and place > last:
        raise Mistake(
            f"the log in {log.directories[0]} ends at {lsn.text(last)}, before {lsn.text(place)}: begin there or "
            f"before, or with {LATEST!r}"
        )
    if ends:
        sequence = max(0, place - 1) // log.extent_bytes
    if sequence > oldest and sequence not in places:
        history.refuse_gap(sequence)
    return max(place, oldest * log.extent_bytes)
