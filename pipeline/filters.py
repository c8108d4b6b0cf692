"""Filters: which rows are wanted, and whether an extent or a block of one may hold any. Pure: reads nothing."""

from collections.abc import Collection, Mapping

import attrs

from recovery.records import Kind

PUTS = frozenset((Kind.PUT, Kind.PUT_MANY, Kind.CALLS, Kind.COMMIT, Kind.ROLL_FORWARD))  # records that have PUT rows
GETS = frozenset((Kind.GET, Kind.CALLS, Kind.COMMIT, Kind.BACKOUT, Kind.ROLL_FORWARD))
ALIASES = frozenset((Kind.DEFINE_ALIAS, Kind.DELETE_ALIAS))  # these name their object themselves


@attrs.frozen
class Filters:
    """Which rows are wanted. Ranges are half-open; None: no bound. Times in microseconds since 1970-01-01 UTC."""

    low_lsn: int | None = None
    high_lsn: int | None = None
    low_time: int | None = None
    high_time: int | None = None
    objects: frozenset[str] | None = None
    kinds: frozenset[str] | None = None


EVERYTHING = Filters()


@attrs.frozen
class Wanted:
    """Filters in the numbers of a log."""

    filters: Filters
    kinds: frozenset[int] | None  # of records that have rows which are wanted
    numbers: frozenset[int] | None  # of the queues that have a name which is wanted

    def may_have(self, low: int, high: int, kinds: Collection[int], queues: Collection[int] | None) -> bool:
        """May records of these times (first and last), kinds and queues (None: any) be wanted?"""
        filters = self.filters
        if filters.low_time is not None and high < filters.low_time:
            return False
        if filters.high_time is not None and low >= filters.high_time:
            return False
        if self.kinds is not None and self.kinds.isdisjoint(kinds):
            return False
        if self.numbers is None or queues is None:
            return True
        return not self.numbers.isdisjoint(queues) or not ALIASES.isdisjoint(kinds)


def wanted(filters: Filters, names: Mapping[int, str]) -> Wanted:
    """The filters in the numbers of a log whose queues have these names."""
    kinds = None if filters.kinds is None else frozenset(kind for name in filters.kinds for kind in kinds_with(name))
    objects = filters.objects
    return Wanted(
        filters, kinds, None if objects is None else frozenset(n for n, name in names.items() if name in objects)
    )


def kinds_with(row: str) -> frozenset[int]:
    """The kinds of the records that have rows of this kind."""
    if row == Kind.PUT.name:
        return PUTS
    if row == Kind.GET.name:
        return GETS
    return frozenset((Kind[row],)) if row in Kind.__members__ else frozenset()
