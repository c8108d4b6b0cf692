"""qm logstat: how large and how slow the writes of the log are, under the names of amqldmpa."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from logger.clock import moment
from logger.config import DEFAULT_BUFFER_PAGES
from qmgr.cli import access
from qmgr.cli.command import NOT_AVAILABLE, Command, Failure, Parser, complain
from qmgr.published import Picture

FILES, PAGES, BYTES, TIME = "files", "pages of 4 KB", "bytes", "us"
NAME_WIDTH = 18
MAX_WRITE_TIMES = 8


def options(parser: Parser) -> None:
    access.add_name(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, with the same names")


def run(args: argparse.Namespace) -> int:
    name = access.chosen_name(args)
    picture = access.current_picture(name, args.data_path)
    if not picture["process"]:
        picture = _last(name, args.data_path)
    with access.damage_explained(name, args.data_path):
        found = fields(picture["log"])
    print(json.dumps({"qmgr": name, "moment": moment(picture["published"]), **found}) if args.json else _text(found))
    return 0


def _last(name: str, data_path: str | None) -> Picture:
    """What a queue manager that nobody runs has published last, with a warning that says when. Raises Failure."""
    last = access.last_published(name, data_path)
    if last is None:
        raise Failure(NOT_AVAILABLE, "AMQ8146E", f"queue manager {name!r} is not running, so its log is not written.")
    complain(f"AMQ9009W: queue manager {name!r} is not running; this is how it stood at {moment(last['published'])}.")
    return last


def fields(log: Mapping[str, Any]) -> dict[str, Any]:
    """The figures, by their names: sizes in bytes, times in microseconds."""
    writes, config = log["writes"], log["config"]
    maxima = (list(writes["write_time_max_extents"]) + [0] * MAX_WRITE_TIMES)[:MAX_WRITE_TIMES]
    return {
        "logactive": config["primary_files"],
        "loginactive": config["secondary_files"],
        "FileCount": log["files"],
        "filenum": [one["number"] for one in log["extents"]],
        "logBufSz": config["buffer_pages"] or DEFAULT_BUFFER_PAGES,
        "WriteSizeShort": round(writes["write_size_short"]),
        "WriteSizeLong": round(writes["write_size_long"]),
        "WriteSizeMax": writes["write_size_max"],
        "WriteTimeShort": round(writes["write_time_short"]),
        "WriteTimeLong": round(writes["write_time_long"]),
        "WriteTimeShortMax": round(writes["write_time_short_max"]),
        "WriteTimeLongMax": round(writes["write_time_long_max"]),
        "WriteTimeMax": round(writes["write_time_max"]),
        "WriteTimeMaxMoment": moment(writes["write_time_max_at"]) if writes["write_time_max_at"] else None,
        "WriteTimeMax[0..7]": [round(us) for us in maxima],
    }


def _text(found: Mapping[str, Any]) -> str:
    moment = found["WriteTimeMaxMoment"]
    values = {
        "logactive": f"{found['logactive']} {FILES}",
        "loginactive": f"{found['loginactive']} {FILES}",
        "FileCount": f"{found['FileCount']} {FILES}",
        "filenum": " ".join(map(str, found["filenum"])),
        "logBufSz": f"{found['logBufSz']} {PAGES}",
        **{name: f"{found[name]} {BYTES}" for name in ("WriteSizeShort", "WriteSizeLong", "WriteSizeMax")},
        **{
            f"WriteTime{name}": f"{found[f'WriteTime{name}']} {TIME}"
            for name in ("Short", "Long", "ShortMax", "LongMax")
        },
        "WriteTimeMax": f"{found['WriteTimeMax']} {TIME}" + (f" at {moment}" if moment else ""),
        **{f"WriteTimeMax[{n}]": f"{us} {TIME}" for n, us in enumerate(found["WriteTimeMax[0..7]"])},
    }
    return "\n".join(f"{name:<{NAME_WIDTH}} {value}" for name, value in values.items())


COMMAND = Command(
    name="logstat",
    purpose="Show how large and how slow the writes of the log are, under the names of amqldmpa -c H.",
    notes="Short and Long are means of the last 64 and 1024 writes, ShortMax and LongMax the highest that these means\n"
    "have been since the start; WriteTimeMax[0] is the longest write in the latest extent, [7] in the eighth last.\n"
    "Moments are UTC. For a queue manager that is not running these are the figures of its last run.\n"
    "docs/looking-inside.md says what the numbers mean, and what to do about them.",
    usage="[[-m] QMgrName] [--json] [--data-path dir]",
    example="qm logstat -m QM1",
    codes={NOT_AVAILABLE: access.SILENT},
    options=options,
    run=run,
    own_name=False,
)
