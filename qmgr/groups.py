"""Message groups: messages with one group id, numbered from 1 on, the last of them marked; got in that order.

A get in logical order takes, in a unit of work, the message that follows the one which that unit got last from the
queue, if that is in a group and not its last; else the next message that is in no group, or the first of a group. So
whoever has the first message of a group gets all of it: nobody else in logical order is given the others. There is no
state but the unit's own gets: when it is backed out the group is there again, whole, for anybody.

With `complete` a group is begun only when all of it is there: each number up to that of the last one.
"""

from collections.abc import Iterable, Iterator, Sequence

from qmgr.entry import Entry
from qmgr.message import group_of, group_sequence_of, is_last_in_group
from qmgr.queue import BEFORE_ALL, Queue

Gets = Sequence[tuple[Queue, Entry]]


def in_logical_order(
    queue: Queue, gets: Gets, limit: int, group: bytes | None, now_us: int, *, complete: bool, read: bool
) -> list[Entry]:
    """The next messages, up to `limit`, for a unit of work that has made these gets; of one `group`, if it is given.

    What is not in memory is found through indexes; where segments have to be read for them it raises Unindexed, unless
    it may `read`. Raises QueueDamaged, OSError.
    """
    chosen: list[Entry] = []
    last = next((entry for one, entry in reversed(gets) if one is queue), None)
    while len(chosen) < limit:
        within = None if last is None or is_last_in_group(last.head) else group_of(last.head) or None
        if within is not None and group in (None, within):
            assert last is not None
            wanted = group_sequence_of(last.head) + 1
            found = _live(queue.select(None, None, group_id=within, read=read), now_us, chosen)
            entry = next((one for one in found if group_sequence_of(one.head) == wanted), None)
        else:
            entry = _first(queue, gets, chosen, group, now_us, complete=complete, read=read)
        if entry is None:
            break
        chosen.append(entry)
        last = entry
    return chosen


def _live(entries: Iterable[Entry], now_us: int, but: Sequence[Entry]) -> Iterator[Entry]:
    """Those whose time is not over, `but` for some."""
    sequences = {entry.sequence for entry in but}
    return (entry for entry in entries if entry.sequence not in sequences and not 0 < entry.expires <= now_us)


def _first(
    queue: Queue, gets: Gets, chosen: list[Entry], group: bytes | None, now_us: int, *, complete: bool, read: bool
) -> Entry | None:
    """The next message that is in no group, or the first one of a group."""
    if group is not None:
        candidates: Iterable[Entry] = queue.select(None, None, group_id=group, read=read)
    else:
        candidates = queue.after(BEFORE_ALL, queue.next_sequence)
    incomplete: set[bytes] = set()
    for entry in _live(candidates, now_us, chosen):
        one = group_of(entry.head)
        if not one:
            return entry
        if group_sequence_of(entry.head) != 1 or one in incomplete:
            continue
        if not complete or _is_complete(queue, gets, chosen, one, now_us, read=read):
            return entry
        incomplete.add(one)
    return None


def _is_complete(queue: Queue, gets: Gets, chosen: list[Entry], group: bytes, now_us: int, *, read: bool) -> bool:
    """Is all of the group on the queue, or got by this unit of work?"""
    mine = [entry for one, entry in gets if one is queue and group_of(entry.head) == group]
    mine += [entry for entry in chosen if group_of(entry.head) == group]
    there = [*mine, *_live(queue.select(None, None, group_id=group, read=read), now_us, chosen)]
    numbers = {group_sequence_of(entry.head) for entry in there}
    ends = [group_sequence_of(entry.head) for entry in there if is_last_in_group(entry.head)]
    return bool(ends) and numbers >= set(range(1, min(ends) + 1))
