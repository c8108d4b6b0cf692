"""Message groups: messages with one group id, numbered from 1 on, the last of them marked; got in that order.

A get in logical order, always in a unit of work, goes on with the group of the message that the unit got last from the
queue, unless that was the last of its group. Else it takes the next message that is in no group, or is the first of
one. So the unit that got the first message of a group gets all of it: nobody else in logical order is given the others.
There is no state but the unit's own gets: when it is backed out the group is there again, whole, for anybody.

With `complete` a group is begun only when all of it is there: each number up to that of the last one.

Where groups can begin is known from group_index.py. A queue with too many messages for that is looked through.
"""

from collections.abc import Iterable, Iterator, Sequence

import attrs

from qmgr.entry import Entry
from qmgr.ids import BEFORE_ALL, Position, Unindexed
from qmgr.message import group_of, group_sequence_of, is_last_in_group
from qmgr.queue import Queue

Gets = Sequence[tuple[Queue, Entry]]
GROUP_CHUNK = 10_000  # messages that are indexed in one step, here without letting others have the lock in between


def in_logical_order(
    queue: Queue, gets: Gets, limit: int, group: bytes | None, now_us: int, *, complete: bool, read: bool
) -> list[Entry]:
    """The next messages, up to `limit`, for a unit of work that has made these gets; of one `group`, if it is given.

    What is not in memory is found through indexes; where segments have to be read for them it raises Unindexed, unless
    it may `read`. Raises QueueDamaged, OSError.
    """
    mine = [entry for one, entry in gets if one is queue]
    search = _Search(queue, mine, now_us, complete, read)
    last = mine[-1] if mine else None
    while len(search.chosen) < limit:
        within = None if last is None or is_last_in_group(last.head) else group_of(last.head) or None
        if within is not None and group in (None, within):
            assert last is not None
            entry = search.follower(within, group_sequence_of(last.head) + 1)
        else:
            entry = search.beginning(group)
        if entry is None:
            break
        search.chosen[entry.sequence] = entry
        last = entry
    return list(search.chosen.values())


@attrs.define
class _Search:
    """What one get looks for. Nothing changes meanwhile."""

    queue: Queue
    mine: list[Entry]  # that the unit of work has got from the queue
    now_us: int
    complete: bool
    read: bool
    chosen: dict[int, Entry] = attrs.Factory(dict)  # by sequence, in the order of choosing
    behind: Position = BEFORE_ALL  # up to here no further group can begin
    incomplete: set[bytes] = attrs.Factory(set)

    def follower(self, group: bytes, number: int) -> Entry | None:
        """The message of the group with this number."""
        found = self._live(self._of(group))
        return next((one for one in found if group_sequence_of(one.head) == number), None)

    def beginning(self, group: bytes | None) -> Entry | None:
        """The next message that is in no group, or the first one of a group."""
        for entry in self._live(self._candidates() if group is None else self._of(group)):
            one = group_of(entry.head)
            if not one or (group_sequence_of(entry.head) == 1 and self._may_begin(one)):
                self.behind = max(self.behind, self.queue.position(entry))
                return entry
        return None

    def _live(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Those that are not chosen and whose time is not over."""
        return (one for one in entries if one.sequence not in self.chosen and not 0 < one.expires <= self.now_us)

    def _of(self, group: bytes) -> Iterator[Entry]:
        return self.queue.select(None, None, group_id=group, read=self.read)

    def _candidates(self) -> Iterator[Entry]:
        """Messages among which are all that may come next, in order."""
        queue = self.queue
        if queue.group_index is None and queue.can_index_groups:
            if not self.read:
                raise Unindexed
            while queue.index_groups(GROUP_CHUNK):
                pass
        index = queue.group_index
        if index is None:
            return queue.after(self.behind, queue.next_sequence)
        places = index.beginnings(self.behind, whole=self.complete)
        begun = {group_of(entry.head) for entry in self.mine} - {b""} if self.complete else set()
        if begun:  # these may be whole if what this unit of work has got is counted
            others = {place for group in begun for place in index.firsts(group) if place > self.behind}
            places = iter(sorted({*places, *others}) if others else places)
        return map(queue.at, places)

    def _may_begin(self, group: bytes) -> bool:
        if not self.complete:
            return True
        if group in self.incomplete:
            return False
        if self._is_complete(group):
            return True
        self.incomplete.add(group)
        return False

    def _is_complete(self, group: bytes) -> bool:
        """Is all of the group on the queue, or got by this unit of work?"""
        index = self.queue.group_index
        if index is not None and not self.now_us and index.is_whole(group):
            return True
        mine = [entry for entry in [*self.mine, *self.chosen.values()] if group_of(entry.head) == group]
        there = [*mine, *self._live(self._of(group))]
        numbers = {group_sequence_of(entry.head) for entry in there}
        end = min((group_sequence_of(entry.head) for entry in there if is_last_in_group(entry.head)), default=0)
        return end > 0 and sum(number <= end for number in numbers) == end
