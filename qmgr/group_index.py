"""An index of a queue's message groups: what is there of each, and where a get in logical order can begin one.

It is made when first asked for, a few messages at a time from the front of the queue, and kept up as far as that has
come; changes further behind are met when it gets there. It takes some 50 bytes for a message where a group can begin, 4
for any other and 500 for a group. A place is the position of a message as one number. The index holds no messages, so
it does not matter whether they are in memory or in segments.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge

import attrs
from sortedcontainers import SortedList

from qmgr.ids import Position
from qmgr.message import group_of, group_sequence_of, is_last_in_group

MAX_INDEXED = 500_000  # messages; a queue with more is looked through
SEQUENCE_BITS = 64
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1
END_PLACE = 1 << SEQUENCE_BITS + 8  # behind all


def place_of(position: Position) -> int:
    """The position as one number, above 0 for any message: a level is -9 to 0, and that of BEFORE_ALL -10."""
    return (position[0] + 10) << SEQUENCE_BITS | position[1]


def position_of(place: int) -> Position:
    return (place >> SEQUENCE_BITS) - 10, place & SEQUENCE_MASK


@attrs.define(eq=False)
class _Group:
    """The messages of one group that can be got."""

    numbers: "array[int]" = attrs.Factory(lambda: array("I"))  # ascending, each once
    repeated: "array[int]" = attrs.Factory(lambda: array("I"))  # of further messages with the same number
    ends: "array[int]" = attrs.Factory(lambda: array("I"))  # of those that are marked as the last, ascending
    firsts: list[int] = attrs.Factory(list)  # the places of those with number 1
    whole: bool = False  # from 1 to the last

    def add(self, number: int) -> None:
        at = bisect_left(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number:
            insort(self.repeated, number)
        else:
            self.numbers.insert(at, number)

    def remove(self, number: int) -> None:
        numbers = self.repeated if number in self.repeated else self.numbers
        del numbers[bisect_left(numbers, number)]

    def is_whole(self) -> bool:
        if not self.ends:
            return False
        end = self.ends[0]
        return len(self.numbers) >= end and self.numbers[end - 1] == end


class GroupIndex:
    """The groups of one queue. The queue manager's lock guards it."""

    def __init__(self) -> None:
        self.reached = 0  # messages up to this place are in here
        self._count = 0
        self._unasked = 0  # changes since somebody asked
        self._groups: dict[bytes, _Group] = {}
        self._alone = SortedList[int]()  # places of messages that are in no group
        self._whole = SortedList[int]()  # of the first ones of groups that are there whole
        self._others = SortedList[int]()  # of the first ones of other groups

    def __len__(self) -> int:
        return self._count

    @property
    def complete(self) -> bool:
        """It has been made to its end."""
        return self.reached == END_PLACE

    @property
    def worthwhile(self) -> bool:
        """It is not too large, and was asked for in the last 2 * MAX_INDEXED changes: a queue emptied and filled."""
        return self._count <= MAX_INDEXED and self._unasked <= 2 * MAX_INDEXED

    def beginnings(self, behind: Position, *, whole: bool) -> Iterator[Position]:
        """The positions, in order, of messages in no group and of the first ones of groups, or of `whole` ones only."""
        self._unasked = 0
        low = place_of(behind) + 1
        lists = (self._alone, self._whole) if whole else (self._alone, self._whole, self._others)
        return map(position_of, merge(*[one.irange(low) for one in lists]))

    def firsts(self, group: bytes) -> list[Position]:
        """Where messages with number 1 of a group lie, in order."""
        known = self._groups.get(group)
        return [] if known is None else sorted(map(position_of, known.firsts))

    def is_whole(self, group: bytes) -> bool:
        known = self._groups.get(group)
        return known is not None and known.whole

    def add(self, position: Position, head: bytes) -> None:
        """A message can be got."""
        place = place_of(position)
        if place > self.reached:
            return
        self._unasked += 1
        self._count += 1
        key = group_of(head)
        if not key:
            self._alone.add(place)
            return
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        number = group_sequence_of(head)
        group.add(number)
        if is_last_in_group(head):
            insort(group.ends, number)
        if number == 1:
            group.firsts.append(place)
            (self._whole if group.whole else self._others).add(place)
        self._settle(group)

    def remove(self, position: Position, head: bytes) -> None:
        """A message that could be got can't be got any more."""
        place = place_of(position)
        if place > self.reached:
            return
        self._unasked += 1
        self._count -= 1
        key = group_of(head)
        if not key:
            self._alone.remove(place)
            return
        group, number = self._groups[key], group_sequence_of(head)
        group.remove(number)
        if is_last_in_group(head):
            group.ends.remove(number)
        if number == 1:
            group.firsts.remove(place)
            (self._whole if group.whole else self._others).remove(place)
        if not group.numbers:
            del self._groups[key]
        self._settle(group)

    def _settle(self, group: _Group) -> None:
        """Move its first messages to the other list where the group has become whole, or is so no longer."""
        whole = group.is_whole()
        if whole is not group.whole:
            group.whole = whole
            left, joined = (self._others, self._whole) if whole else (self._whole, self._others)
            for place in group.firsts:
                left.remove(place)
                joined.add(place)
