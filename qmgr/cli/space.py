"""qm space: a picture of the active log in plain text: what is full, where head and tail are, and who holds the head.

`draw` is pure: a mapping as `published.py` has it becomes lines.
"""

import argparse
import datetime
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from logger import lsn
from logger.extent import file_name
from qmgr import qmstatus
from qmgr.cli import access
from qmgr.cli.command import BAD_ARGUMENTS, NOT_AVAILABLE, UNEXPECTED, Command, Failure, Parser
from qmgr.published import ACTIVE, Picture

NARROWEST, WIDEST = 64, 160  # columns
NAME_WIDTH = len("S0000000.LOG") + 2
CLASS_WIDTH = len(" 100 %  superfluous")
MAX_EXTENT_ROWS = 24  # with more, those where nothing is to be seen are one row
CONTEXT_EXTENTS = 2  # shown before and after an interesting one
KB, MB = 1 << 10, 1 << 20
CLEAR = "\x1b[H\x1b[J"


@attrs.frozen
class Signs:
    """What the bars are made of."""

    needed: str
    before: str  # written, and a restart does not need it
    free: str
    promised: str
    reserve: str


BLOCKS = Signs("█", "▒", "·", "▓", "░")
ASCII = Signs("#", "-", ".", "+", "~")


def options(parser: Parser) -> None:
    access.add_name(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, instead of the picture")
    parser.add_argument("--watch", metavar="SECONDS", type=interval, help="redraw it every so often, until interrupted")


def interval(text: str) -> float:
    """Seconds between two pictures."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if 0.1 <= seconds <= 86_400:
        return seconds
    raise Failure(BAD_ARGUMENTS, "AMQ7076E", f"--watch was given {text!r}; allowed: seconds, from 0.1 to 86400.")


def run(args: argparse.Namespace) -> int:
    if args.watch is not None and sys.stdout is None:  # it would go on for ever, and nobody would see it
        text = "standard output is closed, so pictures would go nowhere; give it a terminal or a file."
        raise Failure(UNEXPECTED, "AMQ7002S", text)
    name = access.chosen_name(args)
    while True:
        picture = access.current_picture(name, args.data_path)
        with access.damage_explained(name, args.data_path):
            if args.json:
                text = json.dumps(described(picture))
            else:
                text = "\n".join(draw(picture, shutil.get_terminal_size().columns, signs(sys.stdout)))
        if args.watch is None:
            print(text)
            return 0
        print(CLEAR + text if sys.stdout.isatty() and not args.json else text, flush=True)
        access.pause(args.watch)


def signs(stream: Any) -> Signs:
    """Those that the stream can encode."""
    try:
        "".join(attrs.astuple(BLOCKS)).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeError, AttributeError):
        return ASCII
    return BLOCKS


# The picture


def draw(picture: Picture, width: int, signs: Signs) -> list[str]:
    """The picture in lines that fit into `width` columns, unless that is very narrow."""
    log = picture["log"]
    width = min(max(width, NARROWEST), WIDEST)
    cells = width - NAME_WIDTH - CLASS_WIDTH
    return [
        *_wrapped(_title(picture), width),
        "",
        *_extents(log, cells, signs),
        "",
        *_whole(log, cells, signs),
        "",
        *_wrapped(_room(log), width),
        "",
        *_marks(log),
        "",
        *_wrapped([_holder(picture)], width),
    ]


def _wrapped(sentences: Iterable[str], width: int) -> Iterator[str]:
    for sentence in sentences:
        yield from textwrap.wrap(sentence, width, break_long_words=False, break_on_hyphens=False)


def _title(picture: Picture) -> Iterator[str]:
    log, config = picture["log"], picture["log"]["config"]
    files = f"{config['primary_files']} + {config['secondary_files']} extents of {size(log['extent_bytes'])}"
    moment = datetime.datetime.fromtimestamp(picture["published"] / 1e6, datetime.UTC)
    state = qmstatus.STATES[picture["state"]].lower()
    owner = f" by {picture['process']}" if picture["process"] else ""
    yield f"{picture['name']}: {state}{owner}, {moment:%Y-%m-%d %H:%M:%S} UTC"
    yield f"{config['log_type'].lower()} log, {files}, in {config['path']}/active"


def _extents(log: Mapping[str, Any], cells: int, signs: Signs) -> Iterator[str]:
    """A row for each extent in the order of the log, and below it the marks that lie in it."""
    extents = log["extents"]
    shown = _shown(extents, log)
    skipped: list[Mapping[str, Any]] = []
    for at, one in enumerate(extents):
        if at not in shown:
            skipped.append(one)
            continue
        if skipped:
            yield _summary(skipped)
            skipped = []
        start, end = one["sequence"] * log["extent_bytes"], (one["sequence"] + 1) * log["extent_bytes"]
        full = f"{_full(one, log) * 100 // log['extent_bytes']} %" if one["class"] == ACTIVE else ""
        yield f"{file_name(one['number']):<{NAME_WIDTH}}{_bar(one, log, cells, signs)} {full:>5}  {one['class']}"
        marks = [(letter, at) for letter, at in positions(log) if one["class"] == ACTIVE and start <= at < end]
        if marks:
            places = [(letter, (at - start) * cells // log["extent_bytes"]) for letter, at in marks]
            yield " " * NAME_WIDTH + _letters(places)


def _full(one: Mapping[str, Any], log: Mapping[str, Any]) -> int:
    """How many bytes of the log the extent holds."""
    at, size = one["sequence"], log["extent_bytes"]
    return min(max(log["tail"] - at * size, 0), size) if at else 0


def positions(log: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Head, checkpoint and tail, in their order."""
    return [("H", log["head"]), ("C", log["checkpoint"]), ("T", log["tail"])]


def _letters(places: Sequence[tuple[str, int]]) -> str:
    """Each letter in its column, or in the next free one."""
    line = ""
    for letter, column in places:
        line = line.ljust(column) + letter
    return line


def _bar(one: Mapping[str, Any], log: Mapping[str, Any], cells: int, signs: Signs) -> str:
    """The extent as a bar of cells, each of which shows what its first byte is."""
    if one["sequence"] == 0:
        return signs.free * cells
    if one["class"] != ACTIVE:
        return (signs.before if log["config"]["log_type"] == "LINEAR" else signs.free) * cells
    start = one["sequence"] * log["extent_bytes"]
    needed = _cells(log["head"] - start, log["extent_bytes"], cells, up=False)
    full = _cells(log["tail"] - start, log["extent_bytes"], cells, up=True)
    return signs.before * min(needed, full) + signs.needed * max(full - needed, 0) + signs.free * (cells - full)


def _cells(part: int, whole: int, cells: int, *, up: bool) -> int:
    """How many of the cells `part` takes, a bit of one counted if `up`; never less than none or more than all."""
    return min(max(-(-part * cells // whole) if up else part * cells // whole, 0), cells)


def _shown(extents: Sequence[Mapping[str, Any]], log: Mapping[str, Any]) -> set[int]:
    """Which of the extents get a row of their own."""
    if len(extents) <= MAX_EXTENT_ROWS:
        return set(range(len(extents)))
    sequences = {lsn_ // log["extent_bytes"] for _, lsn_ in positions(log)}
    centres = {0, len(extents) - 1, *(at for at, one in enumerate(extents) if one["sequence"] in sequences)}
    return {at for at in range(len(extents)) if any(abs(at - centre) <= CONTEXT_EXTENTS for centre in centres)}


def _summary(skipped: Sequence[Mapping[str, Any]]) -> str:
    classes = ", ".join(dict.fromkeys(one["class"] for one in skipped))
    first, last = file_name(skipped[0]["number"]), file_name(skipped[-1]["number"])
    return f"{'...':<{NAME_WIDTH}}{len(skipped)} more, {first} to {last}: {classes}"


def _whole(log: Mapping[str, Any], cells: int, signs: Signs) -> Iterator[str]:
    """The log against its capacity: what is used and promised, what is free, and the reserve behind 80 %."""
    capacity, used, promised = log["capacity"], log["used"], log["promised"]
    full = _cells(used, capacity, cells, up=True)
    owed = _cells(used + promised, capacity, cells, up=True)
    soft = _cells(log["soft"] - log["floor"], capacity, cells, up=False)
    free = "".join(signs.free if at < soft else signs.reserve for at in range(owed, cells))
    bar = signs.needed * full + signs.promised * (owed - full) + free
    yield f"{'log':<{NAME_WIDTH}}{bar} {used * 100 // capacity:>3} %"
    yield f"{'':<{NAME_WIDTH}}{' ' * soft}^ reserve"


def _room(log: Mapping[str, Any]) -> Iterator[str]:
    """What is used, and what happens where."""
    yield f"Used {size(log['used'])} of {size(log['capacity'])}, promised to units of work {size(log['promised'])}."
    yield (
        f"Beyond {size(log['checkpoint_at'] - log['floor'])} a checkpoint is taken if it moves the head, beyond "
        f"{size(log['soft'] - log['floor'])} units of work are released."
    )


def _marks(log: Mapping[str, Any]) -> Iterator[str]:
    behind = log["tail"] - log["durable"]
    yield f"H  head        {lsn.text(log['head']):<24} {size(log['tail'] - log['head'])} before the tail"
    yield f"C  checkpoint  {lsn.text(log['checkpoint']):<24} {size(log['tail'] - log['checkpoint'])} before the tail"
    yield f"T  tail        {lsn.text(log['tail']):<24} {size(behind) + ' not on disk yet' if behind else 'all on disk'}"


def _holder(picture: Picture) -> str:
    unit, log = picture["holder"], picture["log"]
    if unit is None:
        return "No unit of work holds the head: the next checkpoint moves it."
    since = datetime.datetime.fromtimestamp(unit["log_started"] / 1e6, datetime.UTC)
    owner = f" of {unit['owner']}" if unit["owner"] else ""
    now = unit["first_lsn"] // log["extent_bytes"] == log["head"] // log["extent_bytes"]
    return (
        f"Unit of work {access.number_text(unit['number'])} ({unit['state']}){owner} "
        f"{'holds the head' if now else 'will hold the head after the next checkpoint'}: it logs since "
        f"{since:%Y-%m-%d %H:%M:%S} UTC, from {lsn.text(unit['first_lsn'])} on, "
        f"{size(log['tail'] - unit['first_lsn'])} before the tail."
    )


def size(count: int) -> str:
    """Bytes in a unit that suits them."""
    if count >= MB:
        return f"{count / MB:.1f} MB".replace(".0 MB", " MB")
    return f"{count / KB:.1f} KB".replace(".0 KB", " KB") if count >= KB else f"{count} bytes"


# The same as JSON


def described(picture: Picture) -> dict[str, Any]:
    """What the picture shows, in bytes and LSNs as text."""
    log = picture["log"]
    return {
        "qmgr": picture["name"],
        "state": picture["state"],
        "process": picture["process"],
        **{name: lsn.text(log[name]) for name in ("head", "checkpoint", "tail", "durable")},
        **{name: log[name] for name in ("used", "promised", "capacity", "extent_bytes")},
        "checkpoint_beyond": log["checkpoint_at"] - log["floor"],
        "release_beyond": log["soft"] - log["floor"],
        "room": max(log["limit"] - log["tail"] - log["promised"], 0),
        "extents": [
            {
                "name": file_name(one["number"]),
                "sequence": one["sequence"],
                "class": one["class"],
                "full": _full(one, log),
            }
            for one in log["extents"]
        ],
        "holder": picture["holder"] and picture["holder"] | {"first_lsn": lsn.text(picture["holder"]["first_lsn"])},
    }


COMMAND = Command(
    name="space",
    purpose="Draw the active log: how full it is, head and tail, the reserve, and which unit of work holds the head.",
    notes="A running queue manager, in whatever process, is shown as it was a second ago; for one that is not\n"
    "running the log is read. Nothing is started or changed. docs/looking-inside.md says what to do about it.",
    usage="[[-m] QMgrName] [--json] [--watch SECONDS] [--data-path dir]",
    example="qm space -m QM1 --watch 2",
    codes={NOT_AVAILABLE: access.SILENT},
    options=options,
    run=run,
    own_name=False,
)
