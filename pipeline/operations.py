"""Operations: the puts, gets and other rows that the records of a window come to, as numpy arrays, in their order.

Records are taken all at once, kind by kind. Of those that hold runs (`recovery/records.py`) the first run of all is
taken, then the second of those that have one, and so on; when few are left, each is gone through by itself. Bodies of
messages are passed over by their lengths.
"""

import struct
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from logger.disk import PAGE
from logger.frame import HEADER as FRAME_HEADER
from logger.frame import LAST_START
from logger.reader import Record
from pipeline.windows import PADDING, Window
from recovery import records
from recovery.records import GETS, LENGTH16, LENGTH32, PUTS, QUEUE, QUEUE_PLACE, Kind

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

HEADER = np.dtype(
    [
        ("magic", "<u4"), ("crc", "<u4"), ("length", "<u4"), ("epoch", "<u4"), ("lsn", "<i8"), ("uow", "<i8"),
        ("time", "<i8"), ("back", "<u4"), ("kind", "<u2"), ("flags", "u1"), ("version", "u1"),
    ]
)  # fmt: skip
PLACE = np.dtype([("queue", "<u4"), ("sequence", "<u8")])
RUN_OF_PUTS = np.dtype([("tag", "u1"), ("queue", "<u4"), ("ordinal", "<u8"), ("count", "<u4"), ("length", "<u4")])
RUN_OF_GETS = np.dtype([("tag", "u1"), ("queue", "<u4"), ("count", "<u4")])
assert HEADER.itemsize == FRAME_HEADER.size
assert PLACE.itemsize == QUEUE_PLACE.size
assert RUN_OF_PUTS.itemsize == records.PUT_RUN.size
assert RUN_OF_GETS.itemsize == GETS.size

KINDS = tuple(Kind)  # a row's kind is a place in this
CODE = {kind: code for code, kind in enumerate(KINDS)}
PUT, GET, EXPIRE, COMMIT = CODE[Kind.PUT], CODE[Kind.GET], CODE[Kind.EXPIRE], CODE[Kind.COMMIT]
WITH_OWN_ROW = frozenset(KINDS) - {Kind.PUT, Kind.PUT_MANY, Kind.GET, Kind.CALLS, Kind.EXPIRE}
OWN_ROW_QUEUE_FIRST = (Kind.DELETE, Kind.IMAGE_START, Kind.IMAGE_PART, Kind.IMAGE_END)
MAX_ONE_BY_ONE = 16  # records: with more, numpy is faster
NONE = -1


@attrs.define
class Batch:
    """Records in memory, and where each has its body."""

    data: bytes
    headers: Array  # of HEADER
    bodies: Ints  # offset in the data
    ends: Ints
    end_lsns: Ints

    def take(self, size: int, at: Ints) -> Array:
        """The `size` bytes at each of these offsets: an array of len(at) items of dtype V<size>."""
        return np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, 0, (1,))[at]

    def of(self, kind: np.dtype[Any], at: Ints) -> Array:
        return self.take(kind.itemsize, at).view(kind)

    def numbers(self, kind: str, at: Ints) -> Ints:
        return self.of(np.dtype(kind), at).astype(np.int64)

    def keep(self, which: Any) -> None:
        """Forget the other records."""
        self.headers, self.bodies, self.ends = self.headers[which], self.bodies[which], self.ends[which]
        self.end_lsns = self.end_lsns[which]

    def only(self, which: Any) -> "Batch":
        """Some of these records."""
        found = Batch(self.data, self.headers, self.bodies, self.ends, self.end_lsns)
        found.keep(which)
        return found


def of_window(window: Window) -> Batch:
    at = window.offsets
    whole = Batch(window.data, np.empty(0, HEADER), at, at, at)
    headers = whole.of(HEADER, at)
    ends = at + headers["length"]
    place = window.lsns + headers["length"] + 7 & -8
    page, rest = place & -PAGE, place & PAGE - 1  # as `frame.next_start`, for all of them at once
    return Batch(window.data, headers, at + HEADER.itemsize, ends, np.where(rest <= LAST_START, place, page + PAGE))


def of_record(record: Record) -> Batch:
    """A record that was put together from several frames."""
    header = np.zeros(1, HEADER)
    for name in ("lsn", "uow", "epoch", "time", "kind"):
        header[name] = getattr(record, name)
    size = len(record.body)
    data = b"".join((record.body, PADDING))
    return Batch(data, header, np.zeros(1, np.int64), np.array([size]), np.array([record.end]))


@attrs.define
class Operations:
    """The rows that records come to, one place of each array for a row. NONE where there is nothing."""

    record: Ints  # place in the batch
    position: Ints  # in its record
    kind: Ints  # place in KINDS
    queue: Ints
    sequence: Ints
    ordinal: Ints
    message: Ints  # where it begins in the data
    end: Ints  # where it ends there

    def only(self, which: Any) -> "Operations":
        return Operations(*(getattr(self, name)[which] for name in FIELDS))

    def __len__(self) -> int:
        return len(self.record)


FIELDS = tuple(field.name for field in attrs.fields(Operations))


def spread(counts: Ints) -> tuple[Ints, Ints]:
    """Repeat the index of each count as often as it says: (those indexes, positions within each repetition)."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


class _Rows:
    """Gathers rows, and puts them in order."""

    def __init__(self, count: int) -> None:
        self._made = np.zeros(count, np.int64)  # rows of each record
        self._chunks: list[tuple[Ints, Ints, dict[str, Any]]] = []

    def add(self, which: Ints, kind: int | Ints, **fields: Any) -> None:
        """One more row of each of these records."""
        self._chunks.append((which, self._made[which], fields | {"kind": kind}))
        self._made[which] += 1

    def add_many(self, which: Ints, counts: Ints, owner: Ints, number: Ints, kind: int, **fields: Any) -> None:
        """`counts` more rows of each of these records; `owner` and `number` as from `spread`."""
        self._chunks.append((which[owner], self._made[which][owner] + number, fields | {"kind": kind}))
        self._made[which] += counts

    def in_order(self) -> Operations:
        starts = np.cumsum(self._made) - self._made
        total = int(self._made.sum())
        found = {name: np.full(total, NONE, np.int64) for name in FIELDS}
        for which, position, fields in self._chunks:
            place = starts[which] + position
            found["record"][place] = which
            found["position"][place] = position
            for name, values in fields.items():
                found[name][place] = values
        return Operations(**found)


def operations(batch: Batch) -> Operations:
    """The rows of the records. Raises ValueError, IndexError, KeyError for what can't be understood."""
    kinds = batch.headers["kind"]
    present = set(np.unique(kinds).tolist())
    rows = _Rows(len(kinds))
    at = np.full(len(kinds), NONE, np.int64)  # where the runs begin
    for kind in present:
        which = np.flatnonzero(kinds == kind)
        bodies = batch.bodies[which]
        match kind:
            case Kind.PUT:
                place = batch.of(PLACE, bodies)
                message = bodies + PLACE.itemsize
                rows.add(
                    which, PUT, queue=place["queue"], sequence=place["sequence"], message=message, end=batch.ends[which]
                )
            case Kind.PUT_MANY:
                _put_many(batch, rows, which)
            case Kind.GET | Kind.EXPIRE:
                _taken(batch, rows, which, CODE[Kind(kind)])
            case Kind.CALLS | Kind.BACKOUT:
                at[which] = bodies
            case Kind.COMMIT:
                at[which] = bodies + LENGTH32.size + QUEUE_PLACE.size * batch.numbers("<u4", bodies)
            case Kind.ROLL_FORWARD:
                at[which] = bodies + LENGTH16.size + batch.numbers("<u2", bodies)
            case _:
                Kind(kind)  # is it known?
    runs = np.flatnonzero(at >= 0)
    if len(runs):
        _runs(batch, rows, runs, at[runs])
    for kind in WITH_OWN_ROW & present:
        which = np.flatnonzero(kinds == kind)
        queue = batch.numbers("<u4", batch.bodies[which]) if kind in OWN_ROW_QUEUE_FIRST else NONE
        rows.add(which, CODE[kind], queue=queue)
    found = rows.in_order()
    if Kind.COMMIT in present:
        _place(batch, found)
    return found


def _put_many(batch: Batch, rows: _Rows, which: Ints) -> None:
    bodies = batch.bodies[which]
    place = batch.of(PLACE, bodies)
    counts = batch.numbers("<u4", bodies + PLACE.itemsize)
    owner, number, message, end, _ = _messages(batch, bodies + PLACE.itemsize + 4, counts, batch.ends[which])
    sequence = place["sequence"].astype(np.int64)[owner] + number
    rows.add_many(
        which, counts, owner, number, PUT, queue=place["queue"][owner], sequence=sequence, message=message, end=end
    )


def _messages(batch: Batch, at: Ints, counts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """(owner, number, begin, end) of messages whose lengths stand at `at`, and where the last of each owner ends."""
    if (at + 4 * counts > ends).any():
        raise ValueError("a record is shorter than it says")
    owner, number = spread(counts)
    lengths = batch.numbers("<u4", at[owner] + 4 * number)
    total = np.cumsum(lengths)
    firsts = np.cumsum(counts) - counts
    before = np.concatenate(([0], total))[firsts]  # bytes of the messages of earlier owners
    begin = (at + 4 * counts)[owner] + (total - lengths) - before[owner]
    last = at + 4 * counts + np.concatenate(([0], total))[firsts + counts] - before
    if (last > ends).any():
        raise ValueError("a message is longer than its record")
    return owner, number, begin, begin + lengths, last


def _taken(batch: Batch, rows: _Rows, which: Ints, kind: int) -> None:
    bodies = batch.bodies[which]
    queue = batch.numbers("<u4", bodies)
    counts = (batch.ends[which] - bodies - QUEUE.size) // 8
    if (counts == 1).all():
        rows.add(which, kind, queue=queue, sequence=batch.numbers("<u8", bodies + QUEUE.size))
        return
    owner, number = spread(counts)
    sequence = batch.numbers("<u8", bodies[owner] + QUEUE.size + 8 * number)
    rows.add_many(which, counts, owner, number, kind, queue=queue[owner], sequence=sequence)


def _runs(batch: Batch, rows: _Rows, which: Ints, at: Ints) -> None:
    """All runs of these records, which begin at `at`: the first of each, then the second, and so on."""
    ends = batch.ends[which]
    while True:
        more = at < ends
        if (at > ends).any():
            raise ValueError("a run is longer than its record")
        which, at, ends = which[more], at[more], ends[more]
        if len(which) <= MAX_ONE_BY_ONE:
            break
        tags = np.frombuffer(batch.data, np.uint8)[at]
        if ((tags != 1) & (tags != 2)).any():
            raise ValueError(f"a run of kind {tags[(tags != 1) & (tags != 2)][0]} is not known to this version")
        after = at.copy()
        puts, gets = np.flatnonzero(tags == 1), np.flatnonzero(tags == 2)
        if len(puts):
            after[puts] = _run_of_puts(batch, rows, which[puts], at[puts], ends[puts])
        if len(gets):
            after[gets] = _run_of_gets(batch, rows, which[gets], at[gets], ends[gets])
        at = after
    for record, begin, end in zip(which.tolist(), at.tolist(), ends.tolist(), strict=True):
        _one_by_one(batch, rows, record, begin, end)


def _run_of_puts(batch: Batch, rows: _Rows, which: Ints, at: Ints, ends: Ints) -> Ints:
    """The first run of each, of puts; where it ends."""
    head = batch.of(RUN_OF_PUTS, at)
    queue, ordinal, counts = (head[name].astype(np.int64) for name in ("queue", "ordinal", "count"))
    if (counts == 1).all():
        begin = at + RUN_OF_PUTS.itemsize
        end: Ints = begin + head["length"]
        if (end > ends).any():
            raise ValueError("a message is longer than its record")
        rows.add(which, PUT, queue=queue, ordinal=ordinal, message=begin, end=end)
        return end
    owner, number, begin, end, last = _messages(batch, at + PUTS.size, counts, ends)
    rows.add_many(
        which, counts, owner, number, PUT, queue=queue[owner], ordinal=ordinal[owner] + number, message=begin, end=end
    )
    return last


def _run_of_gets(batch: Batch, rows: _Rows, which: Ints, at: Ints, ends: Ints) -> Ints:
    head = batch.of(RUN_OF_GETS, at)
    queue, counts = head["queue"].astype(np.int64), head["count"].astype(np.int64)
    begin = at + GETS.size
    last = begin + 8 * counts
    if (last > ends).any():
        raise ValueError("a run is longer than its record")
    if (counts == 1).all():
        rows.add(which, GET, queue=queue, sequence=batch.numbers("<u8", begin))
    else:
        owner, number = spread(counts)
        sequence = batch.numbers("<u8", begin[owner] + 8 * number)
        rows.add_many(which, counts, owner, number, GET, queue=queue[owner], sequence=sequence)
    return last


def _one_by_one(batch: Batch, rows: _Rows, record: int, at: int, end: int) -> None:
    """The runs of one record. A long run is taken at once, short ones are not worth that."""
    data, here = batch.data, np.array([record])
    found: list[tuple[int, int, int, int, int, int]] = []  # kind, queue, sequence, ordinal, message, end

    def hand_over() -> None:
        if found:
            kind, queue, sequence, ordinal, message, ends = np.array(found, np.int64).T
            count = np.array([len(found)])
            rows.add_many(
                here,
                count,
                *spread(count),
                kind,
                queue=queue,
                sequence=sequence,
                ordinal=ordinal,
                message=message,
                end=ends,
            )
            found.clear()

    while at < end:
        if data[at] == 1:
            _, queue, ordinal, count = PUTS.unpack_from(data, at)
        elif data[at] == 2:
            _, queue, count = GETS.unpack_from(data, at)
        else:
            raise ValueError(f"a run of kind {data[at]} is not known to this version")
        if count > MAX_ONE_BY_ONE:
            hand_over()
            take = _run_of_puts if data[at] == 1 else _run_of_gets
            at = int(take(batch, rows, here, np.array([at]), np.array([end]))[0])
        elif data[at] == 1:
            lengths = struct.unpack_from(f"<{count}I", data, at + PUTS.size)
            at += PUTS.size + 4 * count
            for place, length in enumerate(lengths, ordinal):
                found.append((PUT, queue, NONE, place, at, at + length))
                at += length
        else:
            sequences = struct.unpack_from(f"<{count}Q", data, at + GETS.size)
            found += [(GET, queue, sequence, NONE, NONE, NONE) for sequence in sequences]
            at += GETS.size + 8 * count
        if at > end:
            raise ValueError("a run is longer than its record")
    hand_over()


def bases(batch: Batch, commits: Ints) -> tuple[Ints, Ints, Ints]:
    """(how many, queues, sequences of ordinal 0) of these COMMIT records."""
    at = batch.bodies[commits]
    counts = batch.numbers("<u4", at)
    owner, number = spread(counts)
    places = batch.of(PLACE, at[owner] + LENGTH32.size + PLACE.itemsize * number)
    return counts, places["queue"].astype(np.int64), places["sequence"].astype(np.int64)


def _place(batch: Batch, found: Operations) -> None:
    """Give puts that lie in a COMMIT record their sequences."""
    commits = np.flatnonzero(batch.headers["kind"] == Kind.COMMIT)
    counts, queues, sequences = bases(batch, commits)
    if not len(queues):
        return
    keys = np.repeat(commits, counts) << 32 | queues
    order = np.argsort(keys, kind="stable")
    keys, sequences = keys[order], sequences[order]
    puts = np.flatnonzero((found.kind == PUT) & (batch.headers["kind"][found.record] == Kind.COMMIT))
    wanted = found.record[puts] << 32 | found.queue[puts]
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    there = keys[place] == wanted
    found.sequence[puts] = np.where(there, sequences[place] + found.ordinal[puts], NONE)
