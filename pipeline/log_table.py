"""The recovery log as a table of Spark: a partition is a part of an extent, read as Arrow batches.

Filters say which extents need not be read. Spark has no means to say which columns it needs: the schema that the user
gives does.
"""

import datetime
from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from logger import lsn
from logger.disk import Disk
from pipeline import worker
from pipeline.dividing import Part, plan
from pipeline.filters import Filters
from pipeline.log_options import LATEST, Asked, lsn_of, microseconds
from pipeline.mounted import seen
from pipeline.rows import batches
from pipeline.schema import batch_of
from pipeline.unusable import with_way_out
from qmgr.errors import Mistake


class LogPartition(InputPartition):
    """A part of the log, and which of its rows are wanted."""

    def __init__(self, part: Part, filters: Filters) -> None:
        super().__init__(part)
        self.filters = filters


def rows_in(partition: InputPartition, target: pa.Schema, disk: Disk | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of a partition, with the columns of `target` and exactly its types.

    Raises Mistake as `batch_of`, LogError, OSError.
    """
    if not isinstance(partition, LogPartition):
        return  # where there is nothing to read Spark makes up a partition
    with with_way_out(), seen(partition.value.log, disk):
        for batch in batches(partition.value, tuple(map(str.lower, target.names)), partition.filters, disk):
            yield batch_of(batch.columns, target)


def needs_names(target: pa.Schema, filters: Filters) -> bool:
    """Have the names of queues to be known for these columns and rows?"""
    return filters.objects is not None or "object" in map(str.lower, target.names)


class LogTable(DataSourceReader):
    """Plans the reading of a log as it stands now, and reads it."""

    def __init__(self, options: Asked, target: pa.Schema) -> None:
        self.asked = options
        self.target = target
        self.filters = options.filters

    @with_way_out()
    def partitions(self) -> Sequence[InputPartition]:
        """Raises LogError, MQError, OSError."""
        return self.planned()

    def planned(self, disk: Disk | None = None) -> list[InputPartition]:
        log = self.asked.log(disk)
        last = log.end(disk=disk)
        if self.asked.loaded is not None:
            last = min(last, self.asked.loaded)
        start = min(last, lsn_of(self.asked.start, log, disk, last))  # a moment may be behind what there was by then
        end = last if self.asked.end == LATEST else min(last, lsn_of(self.asked.end, log, disk, ends=True))
        if self.asked.end != LATEST and end < start:
            raise Mistake(f"reading is to begin at {lsn.text(start)} and to end before that, at {lsn.text(end)}")
        names = needs_names(self.target, self.filters)
        return [LogPartition(part, self.filters) for part in plan(log, start, end, self.filters, disk, names=names)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises LogDamaged, OSError."""
        yield from rows_in(partition, self.target)
        worker.freeze_loaded()


class PushedLogTable(LogTable):
    """The same with filters that Spark pushes down: extents without such rows are not read."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Use those that are understood; all are returned, for Spark to apply again."""
        for one in filters:
            self.filters = narrowed(self.filters, one)
        return iter(filters)


def narrowed(filters: Filters, one: Filter) -> Filters:
    """The filters with this one too, if it is of a column by which extents can be skipped."""
    if not isinstance(one, (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
        return filters
    values = [value for value in (one.value if isinstance(one, In) else (one.value,)) if value is not None]
    if not values or len(one.attribute) != 1:
        return filters
    match one.attribute[0].lower():
        case "lsn":
            low, high = _bounds(one, values)
            return attrs.evolve(filters, low_lsn=_higher(filters.low_lsn, low), high_lsn=_lower(filters.high_lsn, high))
        case "time":
            low, high = _bounds(one, [_instant(value) for value in values])
            return attrs.evolve(
                filters, low_time=_higher(filters.low_time, low), high_time=_lower(filters.high_time, high)
            )
        case "object" if isinstance(one, (EqualTo, EqualNullSafe, In)):
            return attrs.evolve(filters, objects=_among(filters.objects, values))
        case "kind" if isinstance(one, (EqualTo, EqualNullSafe, In)):
            return attrs.evolve(filters, kinds=_among(filters.kinds, values))
    return filters


def _bounds(one: Filter, values: list[int]) -> tuple[int | None, int | None]:
    """The half-open range in which whole numbers pass the filter, or may pass it."""
    match one:
        case GreaterThan():
            return values[0] + 1, None
        case GreaterThanOrEqual():
            return values[0], None
        case LessThan():
            return None, values[0]
        case LessThanOrEqual():
            return None, values[0] + 1
    return min(values), max(values) + 1


def _instant(value: datetime.datetime) -> int:
    return microseconds(value if value.tzinfo else value.replace(tzinfo=datetime.UTC))


def _higher(bound: int | None, other: int | None) -> int | None:
    return other if bound is None else bound if other is None else max(bound, other)


def _lower(bound: int | None, other: int | None) -> int | None:
    return other if bound is None else bound if other is None else min(bound, other)


def _among(known: frozenset[str] | None, values: list[str]) -> frozenset[str]:
    return frozenset(values) if known is None else known & frozenset(values)
