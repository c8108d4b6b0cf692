"""What DISPLAY QMSTATUS and DISPLAY QSTATUS show, under MQ's names. Pure: from the mapping of `published.py`.

The values are text, as a console shows them: sizes in MB or KB, shares in percent, dates and times in UTC. Blank is
what the queue manager has not, or what is not known while nobody runs it.

    LOGINUSE   the log from the head's extent on, since extents are given back whole; percent of the primary extents
    LOGUTIL    the most of that in the last ten minutes, with what is promised to units of work that have not ended
    LOGSTRL    where the oldest extent in active/ begins that is still needed; LOGSTRDA, LOGSTRTI: when it was begun
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from logger import lsn
from logger.extent import DATA, file_name, linear_number
from qmgr.published import ACTIVE, INACTIVE

BLANK = " "
NONE = "NO"  # of UNCOM, as DISPLAY QSTATUS has it
SHARED = "SHARED"  # of the log's file system, which is that of the data
MB = 1 << 20
WIDTH = 40  # of a column
INDENT = "   "

STATES = {
    "starting": "STARTING",
    "running": "RUNNING",
    "quiescing": "QUIESCING",
    "ending": "QUIESCING",
    "failed": "FAILED",
    "ended": "ENDED NORMALLY",
    "stopped": "ENDED UNEXPECTEDLY",
}


def fields(picture: Mapping[str, Any]) -> dict[str, str]:
    """Every attribute of the queue manager and its log, in the order in which they are shown."""
    started, log = moment(picture["started"]), picture["log"]
    return {
        "QMNAME": picture["name"],
        "STATUS": STATES.get(picture["state"], picture["state"].upper()),
        "STARTDA": started[0],
        "STARTTI": started[1],
        **_extent_names(log),
        **{name: _number(size) for name, size in log_megabytes(log).items()},
        "LOGINUSE": _percent(log["used"], _primary_bytes(log)),
        "LOGUTIL": _percent(log.get("peak", log["used"]), _primary_bytes(log)),
        "LOGEXTSZ": str((log["extent_bytes"] + DATA) // 1024),
        "LOGPRIM": str(log["config"]["primary_files"]),
        "LOGSEC": str(log["config"]["secondary_files"]),
        "LOGTYPE": log["config"]["log_type"],
        **({} if picture.get("log_sync", "always") == "always" else {"LOGSYNC": picture["log_sync"].upper()}),
        "LOGPATH": f"{log['config']['path']}/active/",
        **_start_of_log(log),
        "DISKLSN": lsn.text(log["durable"]),
        "CHKPTCNT": str(picture["checkpoints"]),
        "CHKPTOPS": str(picture["records"]),
        "CHKPTSZ": str((log["tail"] - log["checkpoint"]) // MB),
        **_file_systems(picture["file_systems"]),
        "DATPATH": picture["data_dir"],
    }


def queue_fields(queue: Mapping[str, Any]) -> dict[str, str]:
    """The attributes of one of the mapping's `objects`."""
    shown = {
        "QUEUE": queue["name"],
        "TYPE": "QUEUE",
        "CURDEPTH": _number(queue["depth"]),
        "MAXDEPTH": _number(queue["max_depth"]),
        "UNCOM": NONE if queue["uncommitted"] == 0 else _number(queue["uncommitted"]),
    }
    return shown | ({"DAMAGED": queue["damaged"]} if queue["damaged"] else {})


def columns(shown: Mapping[str, str]) -> list[str]:
    """Attributes as `ATTR(value)`, in two columns."""
    return layout(f"{name}({value})" for name, value in shown.items())


def layout(words: Iterable[str]) -> list[str]:
    """These words in two columns; what is too long for one has a line of its own."""
    lines: list[str] = []
    left = ""
    for word in words:
        if len(word) >= WIDTH:
            lines += [left, word] if left else [word]
            left = ""
        elif left:
            lines.append(left.ljust(WIDTH) + word)
            left = ""
        else:
            left = word
    return [INDENT + line for line in [*lines, left] if line]


def _number(value: int | None) -> str:
    return BLANK if value is None else str(value)


def _percent(part: int, whole: int) -> str:
    return str(part * 100 // whole) if whole else BLANK


def _primary_bytes(log: Mapping[str, Any]) -> int:
    return int(log["config"]["primary_files"]) * int(log["extent_bytes"])


def moment(us: int) -> tuple[str, str]:
    """Date and time as MQ writes them; blank for 0."""
    if not us:
        return BLANK, BLANK
    when = datetime.datetime.fromtimestamp(us / 1e6, datetime.UTC)
    return f"{when:%Y-%m-%d}", f"{when:%H.%M.%S}"


def extent_numbers(log: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of the files that a linear log begins and ends with, for each purpose; without those it has not."""
    if log["config"]["log_type"] != "LINEAR":
        return {}
    size = log["extent_bytes"]
    sequences = {
        "CURRLOG": max(log["head"] // size, (log["durable"] - 1) // size),  # those before it are whole: copy them
        "RECLOG": log["head"] // size,
        "MEDIALOG": (log.get("media") or 0) // size,
        "ARCHLOG": log.get("archived_from") or 0,
    }
    return {name: linear_number(sequence) for name, sequence in sequences.items() if sequence}


def _extent_names(log: Mapping[str, Any]) -> dict[str, str]:
    names = dict.fromkeys(("CURRLOG", "RECLOG", "MEDIALOG", "ARCHLOG"), BLANK)
    return names | {name: file_name(number) for name, number in extent_numbers(log).items()}


def log_megabytes(log: Mapping[str, Any]) -> dict[str, int | None]:
    """How much log each purpose takes; None: not known, or a circular log has no such thing."""
    linear = log["config"]["log_type"] == "LINEAR"

    def size(key: str) -> int | None:
        return log[key] // MB if linear and log.get(key) is not None else None

    return {
        "ARCHSZ": size("archive_bytes"),
        "MEDIASZ": size("media_bytes"),
        "RECSZ": (log["tail"] - log["head"]) // MB,
        "REUSESZ": size("reuse_bytes") if linear else 0,
    }


def _oldest(log: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The extent in which the log begins: an inactive one, as far as there are any that media recovery needs."""
    kept = {ACTIVE, INACTIVE} if log["config"]["log_type"] == "LINEAR" else {ACTIVE}
    return min((e for e in log["extents"] if e["class"] in kept), key=lambda e: int(e["sequence"]), default=None)


def log_began(log: Mapping[str, Any]) -> int | None:
    """When, in microseconds since 1970, the extent was begun in which the log begins; None: not known."""
    oldest = _oldest(log)
    return oldest["time"] or None if oldest else None


def _start_of_log(log: Mapping[str, Any]) -> dict[str, str]:
    oldest = _oldest(log)
    date, time = moment(oldest["time"]) if oldest else (BLANK, BLANK)
    start = oldest["sequence"] * log["extent_bytes"] if oldest else log["head"]
    return {"LOGSTRL": lsn.text(start), "LOGSTRDA": date, "LOGSTRTI": time}


def _file_systems(found: Mapping[str, Any]) -> dict[str, str]:
    """Sizes in MB, and how much of them is used."""

    def size_and_use(pair: Iterable[int] | None) -> tuple[str, str]:
        if pair is None:
            return BLANK, BLANK
        free, total = pair
        return str(total // MB), _percent(total - free, total)

    size, use = size_and_use(found.get("data"))
    of_log = (SHARED, SHARED) if found.get("shared") else size_and_use(found.get("log"))
    of_data = (SHARED, SHARED) if found else (BLANK, BLANK)
    return {
        "LOGFSSZ": of_log[0],
        "LOGFSUSE": of_log[1],
        "QMFSSZ": size,
        "QMFSUSE": use,
        "DATFSSZ": of_data[0],
        "DATFSUSE": of_data[1],
    }
