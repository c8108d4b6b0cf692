"""Columns: the operations of a window as Arrow arrays, each made only when it is asked for."""

from collections.abc import Callable, Mapping

import attrs
import numpy as np
import pyarrow as pa

from logger.extent import file_name, linear_number
from pipeline.details import ALIASES, alias, definitions, details, texts, xid
from pipeline.operations import (
    CODE,
    COMMIT,
    HEADER,
    KINDS,
    NONE,
    PUT,
    WITH_OWN_ROW,
    Array,
    Batch,
    Ints,
    Operations,
    bases,
)
from pipeline.schema import ARROW, BASES, MOMENT, TEXTS
from qmgr.message import HEAD, IN_GROUP, PERSISTENT
from recovery.records import Kind

MESSAGE = np.dtype(
    [
        ("version", "u1"), ("flags", "u1"), ("priority", "u1"), ("format", "u1"), ("reply_to", "u1"), ("free", "V3"),
        ("properties", "<u4"), ("group", "<u4"), ("put_time", "<i8"), ("expires", "<i8"),
        ("message_id", "V24"), ("correlation_id", "V24"),
    ]
)  # fmt: skip
assert MESSAGE.itemsize == HEAD.size
KIND_NAMES = pa.array([kind.name for kind in KINDS], pa.string())
XIDS = (CODE[Kind.PREPARE], CODE[Kind.ROLL_FORWARD])
NOT_DESCRIBED = {Kind.COMMIT, Kind.BACKOUT, Kind.PREPARE, Kind.ROLL_FORWARD, Kind.FILL}
DESCRIBED = tuple(CODE[kind] for kind in WITH_OWN_ROW - NOT_DESCRIBED)
MAX_TABLE_NUMBERS = 1 << 20  # of queues, up to which a table by number is made
MAX_CACHED_PROPERTIES = 1000  # encodings


def validity(there: Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(there, bitorder="little"))


def ints(values: Array, kind: pa.DataType, there: Array | None = None) -> pa.Array:
    """Numbers, or moments, as an array; null where `there` is False."""
    values = np.ascontiguousarray(values, kind.to_pandas_dtype() if kind != MOMENT else np.int64)
    return pa.Array.from_buffers(kind, len(values), [None if there is None else validity(there), pa.py_buffer(values)])


def bools(values: Array, there: Array) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [validity(there), validity(values & there)])


def offsets(lengths: Array) -> pa.Buffer:
    """Arrow's offsets of values with these lengths: int32, one more than there are values."""
    return pa.py_buffer(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


@attrs.define
class Names:
    """The names of queues by number, as something to take from."""

    names: Mapping[int, str]
    _table: pa.Array = None

    def of(self, numbers: Ints) -> pa.Array:
        if self._table is None:
            most = max((number for number in self.names if number < MAX_TABLE_NUMBERS), default=0)
            self._table = pa.array([*map(self.names.get, range(most + 1)), None], pa.string())
        last = len(self._table) - 1
        if (numbers >= last).any() and max(self.names, default=0) >= last:
            return pa.array([self.names.get(number) for number in numbers.tolist()], pa.string())
        return self._table.take(pa.array(np.where((numbers < 0) | (numbers > last), last, numbers)))


class Columns:
    """The columns of some operations."""

    def __init__(self, batch: Batch, found: Operations, names: Names, extent_bytes: int) -> None:
        self._batch = batch
        self._found = found
        self._names = names
        self._extent_bytes = extent_bytes
        self._headers_made: Array | None = None
        self._messages_made: Array | None = None
        self._is_put = found.kind == PUT
        self._present = set(np.flatnonzero(np.bincount(found.kind)).tolist())  # kinds of rows
        self._puts = np.flatnonzero(self._is_put)

    @property
    def first_lsn(self) -> int:
        return int(self._batch.headers["lsn"][self._found.record[0]])

    def named(self, name: str) -> pa.Array:
        make: Callable[[], pa.Array] = getattr(self, name)
        return make()

    # ---- what the columns are made of

    @property
    def _headers(self) -> Array:
        """The header of each row's record."""
        if self._headers_made is None:
            whole = self._batch.headers.view(f"V{HEADER.itemsize}")  # much faster than field by field
            self._headers_made = whole[self._found.record].view(HEADER)
        return self._headers_made

    @property
    def _messages(self) -> Array:
        """The heads of the messages of PUT rows, as they begin."""
        if self._messages_made is None:
            self._messages_made = self._batch.of(MESSAGE, self._found.message[self._puts])
            self._check(self._messages_made)
        return self._messages_made

    def _check(self, heads: Array) -> None:
        at, end = self._found.message[self._puts], self._found.end[self._puts]
        size = heads["format"].astype(np.int64) + heads["reply_to"] + heads["properties"] + HEAD.size
        if (heads["version"] != 1).any() or (at + size > end).any():
            raise ValueError("a message is not encoded as this version knows it")

    def _of_puts(self, values: Array, kind: pa.DataType, there: Array | None = None) -> pa.Array:
        """Numbers of PUT rows as a column of all rows."""
        column = np.zeros(len(self._found), values.dtype)
        column[self._puts] = values
        seen = self._is_put
        if there is not None:
            seen = seen.copy()
            seen[self._puts] = there
        return ints(column, kind, seen)

    def _ids(self, name: str) -> pa.Array:
        data = pa.py_buffer(np.ascontiguousarray(self._messages[name]))
        lengths = np.where(self._is_put, 24, 0)
        return pa.Array.from_buffers(pa.binary(), len(self._found), [validity(self._is_put), offsets(lengths), data])

    def _slices(self, kind: pa.DataType, begin: Ints, end: Ints) -> pa.Array:
        """Bytes of the data, for PUT rows, as a column of all rows."""
        if not (end > begin).any():
            none = np.zeros(len(self._found) + 1, np.int32)
            buffers = [validity(self._is_put), pa.py_buffer(none), pa.py_buffer(b"")]
            return pa.Array.from_buffers(kind, len(self._found), buffers)
        place = np.arange(len(begin))
        if (begin[1:] < end[:-1]).any():  # in a sparse window long records lie behind the others
            order = np.argsort(begin, kind="stable")
            begin, end = begin[order], end[order]
            place[order] = place.copy()
        first = int(begin[0])
        borders = np.empty(2 * len(begin), np.int32)
        borders[::2], borders[1::2] = begin - first, end - first
        data = [None, pa.py_buffer(borders), pa.py_buffer(self._batch.data).slice(first)]
        among = pa.Array.from_buffers(kind, len(borders) - 1, data)  # each, and what lies before the next one
        if len(begin) == len(self._found):
            return among.take(pa.array(2 * place))
        places = np.zeros(len(self._found), np.int64)
        places[self._puts] = 2 * place
        return among.take(ints(places, pa.int64(), self._is_put))

    def _texts(self, kinds: tuple[int, ...], decoded: Callable[[int, memoryview], str | None]) -> pa.Array:
        """A column of texts for the few rows of these kinds; null elsewhere."""
        rows = self._of(kinds)
        if not rows:
            return pa.nulls(len(self._found), pa.string())
        said: list[str | None] = [None] * len(self._found)
        for row in rows:
            said[row] = decoded(*self._body(row))
        return pa.array(said, pa.string())

    def _of(self, kinds: tuple[int, ...]) -> list[int]:
        """The rows of these kinds."""
        if self._present.isdisjoint(kinds):
            return []
        rows: list[int] = np.flatnonzero(np.isin(self._found.kind, kinds)).tolist()
        return rows

    def _body(self, row: int) -> tuple[int, memoryview]:
        """Kind and body of the record of a row."""
        record = int(self._found.record[row])
        batch = self._batch
        body = memoryview(batch.data)[int(batch.bodies[record]) : int(batch.ends[record])]
        return int(batch.headers["kind"][record]), body

    # ---- columns

    def lsn(self) -> pa.Array:
        return ints(self._headers["lsn"], pa.int64())

    def end_lsn(self) -> pa.Array:
        return ints(self._batch.end_lsns[self._found.record], pa.int64())

    def extent(self) -> pa.Array:
        sequences = self._headers["lsn"] // self._extent_bytes
        names = [file_name(linear_number(one)) for one in range(int(sequences[0]), int(sequences[-1]) + 1)]
        return pa.array(names).take(pa.array(sequences - sequences[0]))

    def epoch(self) -> pa.Array:
        return ints(self._headers["epoch"], pa.int32())

    def time(self) -> pa.Array:
        return ints(self._headers["time"], MOMENT)

    def kind(self) -> pa.Array:
        return KIND_NAMES.take(pa.array(self._found.kind))

    def position(self) -> pa.Array:
        return ints(self._found.position, pa.int32())

    def uow(self) -> pa.Array:
        uow = self._headers["uow"]
        return ints(uow, pa.int64(), uow != 0)

    def xid(self) -> pa.Array:
        return self._texts(XIDS, xid)

    def object(self) -> pa.Array:
        names = self._names.of(self.numbers)
        aliases = self.aliases
        if not aliases:
            return names
        said = names.to_pylist()
        for row, name in aliases.items():
            said[row] = name
        return pa.array(said, pa.string())

    def object_number(self) -> pa.Array:
        numbers = self.numbers
        return ints(numbers, pa.int32(), numbers != NONE)

    @property
    def numbers(self) -> Ints:
        """The numbers of the rows' queues; a definition says its number in JSON."""
        numbers = self._found.queue
        rows = self._of((CODE[Kind.DEFINE],))
        if rows:
            numbers = numbers.copy()
            for row in rows:
                [(numbers[row], _)] = definitions(*self._body(row))
        return numbers

    @property
    def aliases(self) -> dict[int, str]:
        """The names in rows of aliases, by row."""
        return {row: alias(*self._body(row)) for row in self._of(tuple(CODE[kind] for kind in ALIASES))}

    def sequence(self) -> pa.Array:
        return ints(self._found.sequence, pa.int64(), self._found.sequence != NONE)

    def ordinal(self) -> pa.Array:
        return ints(self._found.ordinal, pa.int64(), self._found.ordinal != NONE)

    def repeated(self) -> pa.Array:
        own = self._found.kind == CODE[Kind.ROLL_FORWARD]
        return bools((self._headers["kind"] == Kind.ROLL_FORWARD) & ~own, np.ones(len(own), np.bool_))

    def bases(self) -> pa.Array:
        own = self._found.kind == COMMIT
        counts, queues, sequences = bases(self._batch, self._found.record[own])
        lengths = np.zeros(len(own), np.int64)
        lengths[own] = counts
        return _map(BASES, own, lengths, ints(queues, pa.int32()), ints(sequences, pa.int64()))

    def message_id(self) -> pa.Array:
        return self._ids("message_id")

    def correlation_id(self) -> pa.Array:
        return self._ids("correlation_id")

    def priority(self) -> pa.Array:
        return self._of_puts(self._messages["priority"], pa.int32())

    def persistent(self) -> pa.Array:
        values = np.zeros(len(self._found), np.bool_)
        values[self._puts] = self._messages["flags"] & PERSISTENT != 0
        return bools(values, self._is_put)

    def put_time(self) -> pa.Array:
        return self._of_puts(self._messages["put_time"], MOMENT)

    def expiry(self) -> pa.Array:
        expires = self._messages["expires"]
        return self._of_puts(expires, MOMENT, expires != 0)

    def backout_count(self) -> pa.Array:
        return self._of_puts(np.zeros(len(self._puts), np.int32), pa.int32())

    def properties(self) -> pa.Array:
        heads, at = self._messages, self._found.message[self._puts] + HEAD.size
        begin = at + heads["format"] + heads["reply_to"]
        sizes = heads["properties"] - np.where(heads["flags"] & IN_GROUP, 24, 0)
        lengths = np.zeros(len(self._found), np.int64)
        keys: list[str] = []
        values: list[str] = []
        known: dict[bytes, list[tuple[str, str]]] = {}
        data = self._batch.data
        some = np.flatnonzero(sizes > 0)
        places = begin[some]
        for row, low, size in zip(self._puts[some].tolist(), places.tolist(), sizes[some].tolist(), strict=True):
            encoded = data[low : low + size]
            said = known.get(encoded)
            if said is None:
                said = texts(encoded)
                if len(known) < MAX_CACHED_PROPERTIES:
                    known[encoded] = said
            lengths[row] = len(said)
            for key, value in said:
                keys.append(key)
                values.append(value)
        return _map(TEXTS, self._is_put, lengths, pa.array(keys, pa.string()), pa.array(values, pa.string()))

    def format(self) -> pa.Array:
        begin = self._found.message[self._puts] + HEAD.size
        return self._slices(pa.string(), begin, begin + self._messages["format"])

    def reply_to(self) -> pa.Array:
        begin = self._found.message[self._puts] + HEAD.size + self._messages["format"]
        return self._slices(pa.string(), begin, begin + self._messages["reply_to"])

    def _bodies(self) -> Ints:
        """Where the bodies of the messages begin."""
        heads = self._messages
        sizes = heads["format"].astype(np.int64) + heads["reply_to"] + heads["properties"]
        begin: Ints = self._found.message[self._puts] + HEAD.size + sizes
        return begin

    def body_length(self) -> pa.Array:
        return self._of_puts(self._found.end[self._puts] - self._bodies(), pa.int32())

    def body(self) -> pa.Array:
        return self._slices(pa.binary(), self._bodies(), self._found.end[self._puts])

    def details(self) -> pa.Array:
        return self._texts(DESCRIBED, details)


def _map(kind: pa.DataType, there: Array, lengths: Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    pairs = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(there), [validity(there), offsets(lengths)], children=[pairs])


assert all(hasattr(Columns, name) for name in ARROW.names)
