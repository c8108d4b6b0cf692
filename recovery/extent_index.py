"""Extent indexes: what is in a sealed extent, told without reading it: when, which queues, which units of work.

`S0000007.IDX` lies beside `S0000007.LOG`, compressed or not, soon after that is full. It is a cache: it may be deleted
at any time, and is built again when it is missing, damaged, or of another extent than the one that lies there now.

    offset  size  field     meaning
         0     8  magic     "QMGRIDX1": the format's version is its last character
         8     4  crc       CRC-32 of bytes 12 to the end
        12     4  size      of the content before it was deflated
        16     -  content   JSON, deflated: the fields of `ExtentIndex`; `queues` and `units` as numbers that are each
                            the distance from the one before

Messages are passed over by their lengths and never decoded.
"""

import contextlib
import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any
from zlib import crc32

import attrs

from logger import lsn
from logger.control import ControlState
from logger.disk import Disk, read_whole, replace_file
from logger.errors import LogDamaged
from logger.extent import linear_number
from logger.history import History, Place, index_name
from logger.reader import LogReader
from recovery.records import GETS, LENGTH16, LENGTH32, PUTS, QUEUE, QUEUE_PLACE, Kind

HEADER = struct.Struct("<8sII")
MAGIC = b"QMGRIDX1"
A_MOMENT = 64  # records after which others may go on
LARGEST = 64 << 20  # bytes of content: more units of work than an extent can have
ONE_PUT_LENGTH = PUTS.size + LENGTH32.size

Ranges = tuple[tuple[int, int], ...]  # first and last of each run of numbers, rising


@attrs.frozen(kw_only=True)
class ExtentIndex:
    """What one extent holds. A record counts where it begins. LSNs as ints; times in microseconds since 1970 UTC."""

    log_id: str  # hexadecimal
    sequence: int
    taken: int  # when the extent took this sequence: another time is another extent
    first_lsn: int  # of the first record that begins in it; 0: none does, it is the middle of a long one
    end_lsn: int  # where the last of them ends, maybe in a later extent; 0: none
    low_time: int  # the earliest time of a record, and the latest; 0: none
    high_time: int
    kinds: dict[int, int]  # how many records of each kind
    queues: tuple[int, ...]  # numbers of the queues that records speak of, rising
    units: Ranges  # numbers of the units of work that have records here

    @property
    def records(self) -> int:
        return sum(self.kinds.values())

    def has_queue(self, number: int) -> bool:
        return number in self.queues

    def has_unit(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.units)


def ranges(numbers: Iterable[int]) -> Ranges:
    """The runs of numbers that follow each other."""
    found: list[tuple[int, int]] = []
    first = last = -1
    for number in sorted(numbers):
        if number != last + 1 or first < 0:
            if first >= 0:
                found.append((first, last))
            first = number
        last = number
    if first >= 0:
        found.append((first, last))
    return tuple(found)


# Building


def queues_in_runs(body: memoryview, at: int, found: set[int]) -> None:
    """Add the queues of the runs from `at` on; see `recovery/records.py`. Raises ValueError, struct.error."""
    end = len(body)
    while at < end:
        if body[at] == 1:
            _, queue, _, count = PUTS.unpack_from(body, at)
            found.add(queue)
            at += PUTS.size
            if count == 1:
                at += LENGTH32.size + LENGTH32.unpack_from(body, at)[0]
            else:
                at += LENGTH32.size * count + sum(struct.unpack_from(f"<{count}I", body, at))
        elif body[at] == 2:
            _, queue, count = GETS.unpack_from(body, at)
            found.add(queue)
            at += GETS.size + 8 * count
        else:
            raise ValueError(f"a run of kind {body[at]} is not known to this version")


def queues_of(kind: int, body: memoryview, found: set[int]) -> None:
    """Add the numbers of the queues that a record speaks of. Raises ValueError, KeyError, struct.error."""
    if kind in QUEUE_FIRST:
        found.add(QUEUE.unpack_from(body)[0])
    elif kind == Kind.COMMIT:
        at = LENGTH32.size
        for _ in range(LENGTH32.unpack_from(body)[0]):
            found.add(QUEUE.unpack_from(body, at)[0])
            at += QUEUE_PLACE.size
        queues_in_runs(body, at, found)
    elif kind in (Kind.CALLS, Kind.BACKOUT):
        queues_in_runs(body, 0, found)
    elif kind == Kind.ROLL_FORWARD:
        queues_in_runs(body, LENGTH16.size + LENGTH16.unpack_from(body)[0], found)
    elif kind == Kind.DEFINE:
        found.add(int(json.loads(bytes(body))["id"]))


# PUT, PUT_MANY, GET, EXPIRE, DELETE, IMAGE_START, IMAGE_PART, IMAGE_END
QUEUE_FIRST = frozenset((257, 258, 259, 261, 514, 515, 516, 517))


def _no_way() -> None:
    pass


def build(
    reader: LogReader, place: Place, log_id: bytes, extent_bytes: int, give_way: Callable[[], None] = _no_way
) -> ExtentIndex:
    """Read the extent at `place`, which nobody writes any more, and say what is in it. Raises LogDamaged, OSError.

    A record may have begun in the extent before, and the last one may end in a later one, which is then read too.
    `give_way` is called every few records, so that others can go on.
    """
    start = place.sequence * extent_bytes
    end = start + extent_bytes
    first_lsn = end_lsn = low = high = 0
    kinds: list[int] = []
    queues: set[int] = set()
    units: set[int] = set()
    at = start
    try:
        for at, after, kind, uow, _, time, body in reader.records(start, durable=end, resync=True):
            if at >= end:
                break
            if not kinds:
                first_lsn, low, high = at, time, time
            elif time < low:
                low = time
            elif time > high:
                high = time
            end_lsn = after
            kinds.append(kind)
            if not len(kinds) % A_MOMENT:
                give_way()
            if uow:
                units.add(uow)
            if kind in QUEUE_FIRST:
                queues.add(QUEUE.unpack_from(body)[0])
            else:
                queues_of(kind, body, queues)
    except (ValueError, KeyError, TypeError, struct.error) as exc:
        raise LogDamaged(
            f"the log record at {lsn.text(at)} in {place.path} can't be understood ({exc}); it was written by a later "
            f"version, or the file is not this log's: read it with that version, or restore the file from a backup",
            path=place.path,
            lsn=at,
        ) from exc
    return ExtentIndex(
        log_id=log_id.hex(),
        sequence=place.sequence,
        taken=place.taken,
        first_lsn=first_lsn,
        end_lsn=end_lsn,
        low_time=low,
        high_time=high,
        kinds=dict(sorted(Counter(kinds).items())),
        queues=tuple(sorted(queues)),
        units=ranges(units),
    )


# The file


def _distances(numbers: Iterable[int]) -> list[int]:
    last, found = 0, []
    for number in numbers:
        found.append(number - last)
        last = number
    return found


def encode(index: ExtentIndex) -> bytes:
    fields = attrs.asdict(index, recurse=False) | {
        "kinds": list(index.kinds.items()),
        "queues": _distances(index.queues),
        "units": _distances(number for one in index.units for number in one),
    }
    content = json.dumps(fields).encode()
    rest = len(content).to_bytes(4, "little") + zlib.compress(content)
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


def decode(data: bytes) -> ExtentIndex | None:
    """The index, or None when it is not whole."""
    if len(data) < HEADER.size:
        return None
    magic, crc, size = HEADER.unpack_from(data)
    if magic != MAGIC or crc32(data[12:]) != crc or not 0 < size <= LARGEST:
        return None
    fields: dict[str, Any] = json.loads(zlib.decompressobj().decompress(data[HEADER.size :], size))
    units = list(accumulate(fields["units"]))
    fields["kinds"] = dict(fields["kinds"])
    fields["queues"] = tuple(accumulate(fields["queues"]))
    fields["units"] = tuple(zip(units[::2], units[1::2], strict=True))
    return ExtentIndex(**fields)


def path_of(place: Place) -> str:
    """Where the index of the extent at `place` lies."""
    return f"{place.path.rpartition('/')[0]}/{index_name(linear_number(place.sequence))}"


def load(disk: Disk, place: Place, log_id: bytes) -> ExtentIndex | None:
    """The index of the extent at `place`, if there is a whole one that is of that extent."""
    try:
        data = read_whole(disk, path_of(place))
    except OSError:
        return None
    index = decode(data)
    wanted = log_id.hex(), place.sequence, place.taken
    return index if index is not None and (index.log_id, index.sequence, index.taken) == wanted else None


def load_or_build(disk: Disk, history: History, state: ControlState, place: Place) -> ExtentIndex:
    """The index of a sealed extent, built and kept beside it if need be. Raises LogDamaged, OSError.

    Where it can't be kept, on a full disk or one that is only read, the next caller builds it again.
    """
    index = load(disk, place, state.log_id)
    if index is None:
        reader = history.reader(state)
        try:
            index = build(reader, place, state.log_id, state.extent_bytes)
        finally:
            reader.close()
        with contextlib.suppress(OSError):
            keep(disk, place, index)
    return index


def keep(disk: Disk, place: Place, index: ExtentIndex) -> None:
    """Put the index beside its extent. Raises OSError."""
    replace_file(disk, path_of(place), encode(index))
