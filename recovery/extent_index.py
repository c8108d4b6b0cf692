"""Extent indexes: times, queues, units of work and record positions of a sealed extent, in a file beside it.

`S0000007.IDX` lies beside `S0000007.LOG`, compressed or not, soon after that is full. It is a cache: it may be deleted
at any time, and is built again when it is missing, damaged, of an older format, or of another extent than the one that
lies there now.

    offset  size  field     meaning
         0     8  magic     "QMGRIDX2": the format's version is its last character
         8     4  crc       CRC-32 of bytes 12 to the end
        12     4  facts     length of the first part, deflated
        16     4  size      of it before
        20     4  size      of the second part (`arrays`) before it was deflated
        24     -  facts     JSON: the fields of `ExtentIndex` but the arrays; `queues` as numbers that are each the
                            distance from the one before; of `units` how many numbers they are; each block as a list
         -     -  arrays    `units` u64, each the distance from the one before; `places`; `subjects`

The extent is divided into blocks of 128 KiB. Each has a CRC of its bytes as a reader should see them, and the index
says where every record begins: so a block can be checked with one call, and its records found without looking for
them. `places` are the distances, in units of 8 bytes, of the first record from the beginning of the extent and of each
other one from the record before: first the lower 16 bits of each, then the upper ones. In the same form `subjects` are
the numbers of the queues of each record; 0: none, or several.

Messages are passed over by their lengths and never decoded.
"""

import contextlib
import json
import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any

import attrs

from logger.control import ControlState
from logger.crc import crc32
from logger.disk import Disk
from logger.extent import linear_number
from logger.history import History, Place, index_name
from logger.progress import GiveWay, no_pause
from logger.reader import LogReader
from logger.whole_files import read_whole, replace_file
from recovery.records import GETS, LENGTH16, LENGTH32, PUTS, QUEUE, QUEUE_PLACE, Kind, not_understood

HEADER = struct.Struct("<8sIIII")
MAGIC = b"QMGRIDX2"
BLOCK_BYTES = 128 << 10
MAX_NAMED_QUEUES = 64  # of a block
SEVERAL_QUEUES = 0  # instead of the number of one
YIELD_EVERY_RECORDS = 64
MAX_PART_BYTES = 64 << 20  # inflated: more units of work than an extent can have
COMMIT = int(Kind.COMMIT)
QUEUE_FIRST = frozenset(  # kinds whose bodies begin with the number of a queue
    map(int, (Kind.PUT, Kind.PUT_MANY, Kind.GET, Kind.EXPIRE, Kind.DELETE))
) | frozenset(map(int, (Kind.IMAGE_START, Kind.IMAGE_PART, Kind.IMAGE_END)))
ONE_PUT = struct.Struct("<IIQ" + "BIQII")  # one base, and a run of one put
ONE_GET = struct.Struct("<I" + "BIIQ")  # no base, and a run of one get

Ranges = tuple[tuple[int, int], ...]  # first and last of each run of numbers, rising


@attrs.frozen
class Block:
    """What begins in one block of an extent, and what its bytes come to."""

    crc: int  # of its bytes as a reader should see them
    records: int  # that begin in it
    low_time: int  # the earliest time of one, and the latest; 0: none
    high_time: int
    kinds: tuple[int, ...]  # of these records, rising
    queues: tuple[int, ...] | None  # numbers of the queues in these records, rising; None: too many


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
    queues: tuple[int, ...]  # numbers of the queues in its records, rising
    units: Ranges  # numbers of the units of work that have records here
    blocks: tuple[Block, ...]
    places: bytes  # where each record begins, as in the file
    subjects: bytes  # the queue of each record, in the same form

    @property
    def records(self) -> int:
        return len(self.places) // 4

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
    """Add the numbers of a record's queues. Raises ValueError, KeyError, struct.error."""
    if kind in QUEUE_FIRST:
        found.add(QUEUE.unpack_from(body)[0])
    elif kind == COMMIT:
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


def queue_of_one_call(body: memoryview) -> int:
    """The queue of a COMMIT that holds all of a unit of work of one put or one get, as most are; 0 for any other."""
    size = len(body)
    if size == ONE_GET.size:
        bases, tag, queue, count, _ = ONE_GET.unpack_from(body)
        return int(queue) if bases == 0 and tag == 2 and count == 1 else 0
    if size < ONE_PUT.size:
        return 0
    bases, queue, _, tag, other, _, count, length = ONE_PUT.unpack_from(body)
    one = bases == 1 and tag == 1 and count == 1 and queue == other and size == ONE_PUT.size + length
    return int(queue) if one else 0


def _subject(kind: int, body: memoryview, queues: set[int]) -> int:
    """Add the queues of a record to `queues`; return its only one, or SEVERAL_QUEUES. Raises as `queues_of`."""
    queue = SEVERAL_QUEUES
    if kind in QUEUE_FIRST:
        queue = QUEUE.unpack_from(body)[0]
    elif kind == COMMIT:
        queue = queue_of_one_call(body)
    if queue:
        queues.add(queue)
        return queue
    found: set[int] = set()
    queues_of(kind, body, found)
    queues |= found
    return found.pop() if len(found) == 1 else SEVERAL_QUEUES


def build(
    reader: LogReader, place: Place, log_id: bytes, extent_bytes: int, give_way: GiveWay = no_pause
) -> ExtentIndex:
    """Index the sealed extent at `place` by reading it. Raises LogDamaged, OSError.

    A record may have begun in the extent before, and the last one may end in a later one, which is then read too.
    `give_way` is called every YIELD_EVERY_RECORDS records and at each block, so that other threads can run.
    """
    start = place.sequence * extent_bytes
    end = start + extent_bytes
    border = start + BLOCK_BYTES
    end_lsn = 0
    lsns, times, kinds, subjects = array("Q"), array("Q"), array("H"), array("I")
    blocks: list[set[int]] = [set()]  # the queues of each
    queues = blocks[0]
    units: set[int] = set()
    at = start
    try:
        for at, after, kind, uow, _, time, body in reader.records(start, durable=end, resync=True):
            if at >= border:
                if at >= end:
                    break
                while at >= border:
                    queues = set()
                    blocks.append(queues)
                    border += BLOCK_BYTES
            lsns.append(at)
            times.append(time)
            kinds.append(kind)
            end_lsn = after
            if not len(kinds) % YIELD_EVERY_RECORDS:
                give_way()
            if uow:
                units.add(uow)
            subjects.append(_subject(kind, body, queues))
        crcs = checksums(reader, place.sequence, start, end, give_way)
    except (ValueError, KeyError, TypeError, struct.error) as exc:
        raise not_understood(place.path, at, exc) from exc
    return ExtentIndex(
        log_id=log_id.hex(),
        sequence=place.sequence,
        taken=place.taken,
        first_lsn=lsns[0] if lsns else 0,
        end_lsn=end_lsn,
        low_time=min(times, default=0),
        high_time=max(times, default=0),
        kinds=dict(sorted(Counter(kinds).items())),
        queues=tuple(sorted(set().union(*blocks))),
        units=ranges(units),
        blocks=tuple(_blocks(start, crcs, lsns, times, kinds, blocks)),
        places=_split_halves(array("I", [(after - before) >> 3 for before, after in pairwise((start, *lsns))])),
        subjects=_split_halves(subjects),
    )


def checksums(reader: LogReader, sequence: int, start: int, end: int, give_way: GiveWay) -> list[int]:
    """The CRC of each block of an extent. Raises LogDamaged, OSError."""
    view = reader.view(sequence)
    found = []
    for at in range(start, end, BLOCK_BYTES):
        give_way()
        found.append(crc32(view.read(at, BLOCK_BYTES)))
    return found


def _blocks(
    start: int, crcs: list[int], lsns: "array[int]", times: "array[int]", kinds: "array[int]", queues: list[set[int]]
) -> Iterator[Block]:
    first = 0
    for number, crc in enumerate(crcs):
        last = bisect_left(lsns, start + (number + 1) * BLOCK_BYTES, first)
        here = times[first:last]
        named = queues[number] if number < len(queues) else set()
        yield Block(
            crc,
            last - first,
            min(here, default=0),
            max(here, default=0),
            tuple(sorted(set(kinds[first:last]))),
            tuple(sorted(named)) if len(named) <= MAX_NAMED_QUEUES else None,
        )
        first = last


def _split_halves(numbers: "array[int]") -> bytes:
    """In a form that deflates well: the lower halves, then the upper ones."""
    halves = array("H", _little_endian(numbers).tobytes())
    return halves[::2].tobytes() + halves[1::2].tobytes()


def _little_endian(numbers: "array[int]") -> "array[int]":
    """Little-endian on any machine, or back from that."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# The file


def _distances(numbers: Iterable[int]) -> list[int]:
    last, found = 0, []
    for number in numbers:
        found.append(number - last)
        last = number
    return found


def encode(index: ExtentIndex) -> bytes:
    units = array("Q", _distances(number for one in index.units for number in one))
    fields = attrs.asdict(index, recurse=False) | {
        "kinds": list(index.kinds.items()),
        "queues": _distances(index.queues),
        "units": len(units),
        "blocks": [attrs.astuple(block) for block in index.blocks],
    }
    del fields["places"], fields["subjects"]
    facts = json.dumps(fields, separators=(",", ":")).encode()
    arrays = _little_endian(units).tobytes() + index.places + index.subjects
    first, second = zlib.compress(facts, 1), zlib.compress(arrays, 1)
    rest = HEADER.pack(MAGIC, 0, len(first), len(facts), len(arrays))[12:] + first + second
    return MAGIC + crc32(rest).to_bytes(4, "little") + rest


def decode(data: bytes) -> ExtentIndex | None:
    """The index, or None when it is not whole."""
    if len(data) < HEADER.size:
        return None
    magic, crc, length, size, arrays_size = HEADER.unpack_from(data)
    if magic != MAGIC or crc32(data[12:]) != crc or not 0 < size <= MAX_PART_BYTES or arrays_size > MAX_PART_BYTES:
        return None
    middle = HEADER.size + length
    fields: dict[str, Any] = json.loads(zlib.decompressobj().decompress(data[HEADER.size : middle], size))
    arrays = zlib.decompressobj().decompress(data[middle:], arrays_size) if arrays_size else b""
    ends = 8 * fields["units"]
    units = list(accumulate(_little_endian(array("Q", arrays[:ends]))))
    fields["kinds"] = dict(fields["kinds"])
    fields["queues"] = tuple(accumulate(fields["queues"]))
    fields["units"] = tuple(zip(units[::2], units[1::2], strict=True))
    fields["blocks"] = tuple(_block(*block) for block in fields["blocks"])
    middle = (len(arrays) + ends) // 2
    return ExtentIndex(**fields, places=arrays[ends:middle], subjects=arrays[middle:])


def _block(crc: int, records: int, low: int, high: int, kinds: list[int], queues: list[int] | None) -> Block:
    return Block(crc, records, low, high, tuple(kinds), None if queues is None else tuple(queues))


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


def is_stored(disk: Disk, place: Place) -> bool:
    """Is there an index of this format beside the extent? Of another extent it may be. Raises OSError."""
    begun = _header_of(disk, place)
    return begun is not None and begun[: len(MAGIC)] == MAGIC


def header_of(disk: Disk, place: Place) -> bytes | None:
    """The header of the index beside the extent, by whose checksum two differ; None: there is none."""
    try:
        return _header_of(disk, place)
    except OSError:
        return None


def _header_of(disk: Disk, place: Place) -> bytes | None:
    try:
        file = disk.open_read(path_of(place))
    except FileNotFoundError:
        return None
    with contextlib.closing(file):
        return file.read(0, HEADER.size)


def load_or_build(disk: Disk, history: History, state: ControlState, place: Place) -> ExtentIndex:
    """The index of a sealed extent, built and kept beside it if need be. Raises LogDamaged, OSError.

    Where it can't be kept, on a full disk or one that is only read, the next caller builds it again.
    """
    index = load(disk, place, state.log_id)
    if index is None:
        with contextlib.closing(history.reader(state)) as reader:
            index = build(reader, place, state.log_id, state.extent_bytes)
        with contextlib.suppress(OSError):
            store(disk, place, index)
    return index


def store(disk: Disk, place: Place, index: ExtentIndex) -> None:
    """Put the index beside its extent. Raises OSError."""
    replace_file(disk, path_of(place), encode(index))
