"""How a queue manager stands, as its owner publishes it: one JSON file for those who look from other processes.

The owner's housekeeping thread replaces `status.json` about once a second, and the end of the queue manager once more.
The file is no promise: nothing is synced, a restart never reads it, and nothing fails where the disk can't take it.
Publishing takes at most a hundredth of the time, so with very many queues it comes less often; a minute after the last
time it is due in any case.

The mapping has what `QueueManager.status()` gives, and what an operator needs beside it; `stopped.py` makes the same of
the files of a queue manager that nobody runs. Lengths are bytes, LSNs ints, moments microseconds since 1970-01-01 UTC:

    format          1
    process         who wrote it, as it names itself in the lock file; "": nobody runs the queue manager
    published       when; `started`: when the queue manager was
    data_dir        its data directory
    file_systems    data: [free, total]; log: the same; shared: whether the two are one
    transactions    of each unit of work: number, state, xid, started, log_started, first_lsn, puts, gets, owner
    holder          the one of those with the oldest log record, which the head of the log can't pass; or None
    objects         of each queue: name, depth, uncommitted, memory, max_depth, damaged; None: not known
    records         logged since the last checkpoint
    committed       units of work since the start, and backed_out; only where somebody runs it
    log             as in `LogStatus`, and extent_bytes, floor, limit, soft, checkpoint_at, for_gets, largest (see
                    `logger/space.py`), peak: the most of the log that was in use in the last ten minutes, and
                    extents: number, sequence, class, time when it took the sequence, in the order of the log
                    for linear logs it may hold: media, the media LSN; archived_from, the sequence of the oldest extent
                    that waits to be archived; media_bytes, archive_bytes, reuse_bytes
"""

import enum
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from logger import at_rest, extent
from logger.clock import Clock
from logger.disk import Disk
from logger.errors import LogError
from logger.space import Space
from logger.whole_files import read_whole
from qmgr import locations
from qmgr.errors import MQError, command_in
from qmgr.locations import Location

FORMAT = 1
INTERVAL_NS = 1_000_000_000
SHARE = 100  # publishing takes no more than one part in so many of the time
MAX_REST_NS = 60_000_000_000  # one took long also where the process was stopped in it, or the disk hung
PEAK_MINUTES = 10
MAX_FILE_BYTES = 64 << 20  # that are read

ACTIVE, INACTIVE, SUPERFLUOUS, READY = "active", "inactive", "superfluous", "ready"

Picture = dict[str, Any]

SHAPE: Mapping[str, type] = {
    "name": str,
    "state": str,
    "process": str,
    "published": int,
    "started": int,
    "data_dir": str,
    "file_systems": dict,
    "log": dict,
    "transactions": list,
    "objects": list,
    "records": int,
}


# Making the mapping


def jsonable(value: Any) -> Any:
    """An attrs object as JSON can have it."""
    return attrs.asdict(value, value_serializer=lambda _, __, held: _json_value(held))


def _json_value(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return value.hex() if isinstance(value, bytes) else value


def class_of(sequence: int, needed: int, media: int | None) -> str:
    """What an extent is good for: `needed` is the head's sequence, `media` that of the media LSN, if there is one."""
    if sequence == 0:
        return READY
    if sequence >= needed:
        return ACTIVE
    return INACTIVE if media is None or sequence >= media else SUPERFLUOUS


def describe_extents(extents: Iterable[tuple[int, int, int]], needed: int, media: int | None) -> list[dict[str, Any]]:
    """(number, sequence, time) of extents in words, in the order of the log; those that hold nothing are last."""
    return [
        {"number": number, "sequence": sequence, "class": class_of(sequence, needed, media), "time": time}
        for number, sequence, time in sorted(extents, key=lambda one: (not one[1], one[1], one[0]))
    ]


def time_of(disk: Disk, log_dir: str, number: int) -> int:
    """When the extent took its part of the log; 0 where its header can't be read."""
    path = f"{at_rest.active_path(log_dir)}/{extent.file_name(number)}"
    if not disk.exists(path):
        return 0
    header = extent.decode_header(at_rest.read_page(disk, path, 0))
    return header.time if header is not None else 0


def describe_inactive(
    disk: Disk, log_dir: str, sequences: Sequence[int], media: int | None
) -> list[tuple[int, int, int]]:
    """(number, sequence, time) of extents that no restart needs; the time only of the oldest one needed, else 0."""
    oldest = min((sequence for sequence in sequences if sequence >= (media or 0)), default=0)
    return [
        (number, sequence, time_of(disk, log_dir, number) if sequence == oldest else 0)
        for sequence in sequences
        for number in (extent.linear_number(sequence),)
    ]


def describe_space(space: Space) -> dict[str, int]:
    """The thresholds of the log."""
    names = ("floor", "promised", "limit", "soft", "checkpoint_at", "for_gets", "largest", "capacity")
    return {name: getattr(space, name) for name in names}


def file_systems(disk: Disk, data_dir: str, log_dir: str) -> dict[str, Any]:
    """How full they are; nothing where that can't be asked."""
    try:
        return {
            "data": disk.free_bytes(data_dir),
            "log": disk.free_bytes(log_dir),
            "shared": disk.same_file_system(data_dir, log_dir),
        }
    except OSError:
        return {}


class Peak:
    """The highest of the values of the last ten minutes."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}  # by minute

    def add(self, value: int, now_ns: int) -> int:
        minute = now_ns // 60_000_000_000
        kept = {at: high for at, high in self._highest.items() if at > minute - PEAK_MINUTES}
        kept[minute] = max(value, kept.get(minute, 0))
        self._highest = kept
        return max(kept.values())


# Publishing


class Publisher:
    """Writes down what `look` sees of the queue manager. `tick` is for a thread that has nothing better to do."""

    def __init__(self, disk: Disk, clock: Clock, path: str, look: Callable[[], Picture]) -> None:
        self._disk = disk
        self._clock = clock
        self._path = path
        self._look = look
        self._next_ns = clock.elapsed_ns()
        self._peak = Peak()
        self._one_at_a_time = threading.Lock()
        self._ended = False

    def tick(self) -> None:
        """Publish, if it is time."""
        if self._clock.elapsed_ns() >= self._next_ns:
            with self._one_at_a_time:
                if not self._ended:
                    self._publish({})

    def end(self, state: str) -> None:
        """Publish how the queue manager has ended; nothing is published after that."""
        with self._one_at_a_time:
            if not self._ended:
                self._ended = True
                self._publish({"state": state})

    def _publish(self, more: Picture) -> None:
        began = self._clock.elapsed_ns()
        try:
            picture = self._look() | more
            log = picture["log"]
            log["peak"] = self._peak.add(log["used"] + log["promised"], began)
            picture |= {"format": FORMAT, "published": self._clock.wall_us()}
            self._replace(json.dumps(picture).encode())
        except (OSError, LogError, MQError):
            pass  # the next one may be written again
        ended = self._clock.elapsed_ns()
        self._next_ns = max(began + INTERVAL_NS, ended + min((ended - began) * (SHARE - 1), MAX_REST_NS))

    def _replace(self, data: bytes) -> None:
        """Whoever opens the file finds the whole of the old or the whole of the new one, while the machine is up."""
        disk, new = self._disk, self._path + ".new"
        if disk.exists(new):
            disk.unlink(new)
        file = disk.open(new, create=True)
        try:
            file.write(0, data)
        finally:
            file.close()
        disk.rename(new, self._path)


# Reading


@attrs.frozen(kw_only=True)
class Published:
    """What was read, how old it is, and whether its writer still has the queue manager."""

    picture: Picture
    age: float  # seconds, by the wall clock
    alive: bool


def read(disk: Disk, clock: Clock, location: Location) -> Published | None:
    """What the owner has published; None where there is nothing, or it can't be understood.

    Raises OSError when the file is there and can't be read.
    """
    try:
        picture = decode(read_whole(disk, location.published), location.name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if picture is None:
        return None
    age = max(0.0, (clock.wall_us() - picture["published"]) / 1e6)
    return Published(picture=picture, age=age, alive=_is_of(picture["process"], locations.running(location, disk)))


def _is_of(process: str, holder: str | None) -> bool:
    """Is it this process that runs the queue manager? The holder may be named with where its number means something."""
    if holder is None or command_in(holder):
        return False
    return holder == process or holder.startswith(f"{process} ")


def decode(data: bytes, name: str) -> Picture | None:
    """The mapping in `data`, or None: after a power failure the file may hold anything."""
    try:
        picture = json.loads(data[:MAX_FILE_BYTES])
    except (ValueError, RecursionError):
        return None
    if not isinstance(picture, dict) or picture.get("format") != FORMAT or picture.get("name") != name:
        return None
    return picture if all(isinstance(picture.get(key), kind) for key, kind in SHAPE.items()) else None
