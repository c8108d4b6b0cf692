"""What a checkpoint writes of one queue that has changed: its new messages, and which of its segments are rewritten.

All is as of the checkpoint's LSN, and taken under the lock, in proportion to what changed. How it is written and put in
its place is for `snapshot.py`.
"""

import json
from array import array
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

import attrs

from qmgr import segments
from qmgr.batch import Batch, Items, still_there
from qmgr.entry import GONE, Entry
from qmgr.packed import Packed
from qmgr.queue import Queue
from qmgr.segment_format import Block
from qmgr.segment_writer import SegmentWriter
from qmgr.segments import Segment
from recovery.backouts import Backouts
from recovery.errors import QueueDamaged

CHUNK_MESSAGES = 32  # messages that are written together
PRIORITY, TO_WRITE = attrgetter("priority"), attrgetter("body", "status", "head", "sequence", "expires")
MAX_SURPLUS_BYTES = 32 << 20  # of a queue; beyond that some of its segments are rewritten
NON_PERSISTENT, PERSISTENT = 0, 1
REWRITE_BYTES = 64 << 20  # of messages that one checkpoint rewrites for a queue, about
NO_BACKOUTS = Backouts()
NOTHING: tuple[Items, Items] = [], []
TRIES = 5  # for messages of one kind: the segment to append to may be missing, and names of new ones be taken


class EntryChunk(NamedTuple):
    """New messages of one priority, to be written."""

    priority: int
    items: Sequence[Entry]
    bodies: Sequence[bytes]
    heads: Sequence[bytes]
    sequences: Sequence[int]
    expires: Sequence[int]

    def append_to(self, writer: SegmentWriter) -> Sequence[int]:
        """Append them; return their lengths."""
        return writer.append_each(self.priority, self.sequences, self.expires, self.heads, self.bodies)

    @property
    def work(self) -> int:
        """How much it is to append them, in messages."""
        return len(self.heads)


class BatchChunk(NamedTuple):
    """A batch to be written."""

    priority: int
    items: Sequence[Batch]  # one
    packed: Packed
    first: int  # its sequence

    def append_to(self, writer: SegmentWriter) -> Sequence[int]:
        writer.append_packed(self.priority, self.first, self.packed.lengths, self.packed.data)
        return self.packed.lengths

    @property
    def work(self) -> int:
        return len(self.packed.lengths) // 4  # none of its messages is looked at


@attrs.define
class Append:
    """Messages that were appended to a segment."""

    target: Segment
    cell: int  # the first new one
    blocks: list[Block]
    length: int  # of the segment then
    placed: Items  # in the order of their cells
    sizes: "array[int]"  # bytes of their messages


@attrs.define
class Rewrite:
    """Segments that follow each other, and the one that takes their place."""

    sources: list[Segment]  # as they were
    target: Segment
    places: list["array[int]"]  # for each of them the new cell by the old one; -1: it was gone


class QueueSnapshot:
    """One changed queue as of the checkpoint's LSN."""

    __slots__ = (
        *("_fresh", "_removed", "appends", "backouts", "damaged", "definition", "empty", "image", "keep_volatile"),
        *("kept_in_memory", "more_to_rewrite", "new_damage", "next_sequence", "no_room", "plan", "queue", "rewrites"),
        "segments",
    )

    def __init__(self, queue: Queue, *, ending: bool, rewrite: bool, spare: int | None) -> None:
        """`rewrite`: rewrite segments of which most is gone, where they take much of the disk.

        `spare`: the disk is short, and has so many bytes for rewriting; then they need not take much. None: it is not.
        """
        self.queue = queue
        self.definition = queue.definition
        self.next_sequence = queue.next_sequence
        self.damaged = "" if queue.blocked else queue.damaged
        self.image = queue.image
        self.keep_volatile = ending and queue.definition.non_persistent_class == "HIGH"
        others, persistent = queue.backed_out
        self.backouts = (
            others.copy() if others and self.keep_volatile else NO_BACKOUTS,
            persistent.copy() if persistent else NO_BACKOUTS,
        )
        self._fresh = NOTHING
        if any(queue.fresh):
            spill = self.keep_volatile or queue.memory_bytes[0] > queue.buffers[0]
            unwritten = still_there(queue.fresh[0])
            self._fresh = unwritten if spill else [], queue.fresh[1]
            queue.fresh = [] if spill else unwritten, []
        self._removed = queue.begin_snapshot()
        self.segments: list[Segment] = []
        self.empty: list[int] = []
        for number, segment in queue.segments.items():
            if segment.cells > segment.gone_count or queue.damaged:
                self.segments.append(segment.copy())
            else:
                self.empty.append(number)
        self.plan: list[list[Segment]] = []
        self.more_to_rewrite = False  # there is more to rewrite, which is for the next checkpoint
        self.no_room = False  # for some of it
        if not queue.damaged:
            self._plan_rewrites(rewrite, spare)
        self.rewrites: list[Rewrite] = []
        self.appends: list[Append] = []
        self.new_damage: QueueDamaged | None = None
        self.kept_in_memory = False  # there was no room for the non-persistent ones, which can stay in memory

    def _plan_rewrites(self, rewrite: bool, spare: int | None) -> None:
        if spare is None and sum([segment.length for segment in self.segments]) <= MAX_SURPLUS_BYTES:
            return  # mostly; to look further would take longer than all else
        if segments.surplus(self.segments) <= (MAX_SURPLUS_BYTES if spare is None else 0):
            return
        for kind in (NON_PERSISTENT, PERSISTENT):
            last = spare is not None and not self._fresh[kind]  # nothing is appended to it now, and room is scarce
            groups, more, no_room = _rewrite_groups(self.of_kind(kind), spare, last=last)
            self.more_to_rewrite = self.more_to_rewrite or more or bool(groups and not rewrite)
            self.no_room = self.no_room or no_room
            self.plan += groups if rewrite else []

    def new_segments(self) -> int:
        """How many segments it may make at most."""
        return TRIES * sum(1 for entries in self._fresh if entries) + len(self.plan)

    def writes(self, kind: int) -> bool:
        """Are there new messages of that kind?"""
        return bool(self._fresh[kind])

    def of_kind(self, kind: int) -> list[Segment]:
        """The segments of non-persistent (0) or persistent messages (1)."""
        return [segment for segment in self.segments if segment.volatile is (kind == 0)]

    def fresh(self, kind: int) -> Iterator[EntryChunk | BatchChunk]:
        """The new messages of one kind, by priority and then in their order. Without the lock.

        A call that takes one meanwhile first puts its body into `removed`, then sets the status GONE, and only then
        empties the entry: so the body is in one of the two.
        """
        items = self._fresh[kind]
        for priority in sorted(set(map(PRIORITY, items))):
            entries: list[Entry] = []
            for item in items:
                if item.priority != priority:
                    continue
                if isinstance(item, Entry):
                    entries.append(item)
                    continue
                packed = item.packed  # read once: who makes entries of the batch takes it away
                if packed is None:
                    entries += item.entries()
                    continue
                yield from self._of_entries(priority, entries)
                entries = []
                yield BatchChunk(priority, [item], packed, item.sequence)  # none of it is got as it lies meanwhile
            yield from self._of_entries(priority, entries)

    def _of_entries(self, priority: int, entries: Sequence[Entry]) -> Iterator[EntryChunk]:
        for at in range(0, len(entries), CHUNK_MESSAGES):
            few = entries[at : at + CHUNK_MESSAGES]
            columns: list[Sequence[Any]] = [few, *zip(*map(TO_WRITE, few), strict=True)]
            statuses = columns.pop(2)
            if GONE in statuses:
                said = zip(few, columns[1], statuses, strict=True)
                columns[1] = [self._removed.get(entry) if gone == GONE else body for entry, body, gone in said]
                there = [body is not None for body in columns[1]]
                columns = [list(compress(column, there)) for column in columns]
            if columns[0]:
                yield EntryChunk(priority, *columns)

    def _still_there(self, kind: int) -> Items:
        return still_there(self._fresh[kind])

    def settle(self, *, gives_back: bool) -> None:
        """All is written, and in its place. The lock is held.

        What had no room is tried again by the next checkpoint, which comes soon if this one or the next `gives_back`
        files.
        """
        queue = self.queue
        queue.end_snapshot()
        queue.kept_surplus = segments.surplus(self.segments)
        # If no rewrite worked, another try would not either.
        if self.more_to_rewrite and (self.rewrites or not self.plan):
            queue.kept_surplus = 0
            queue.changed = True
        elif self.no_room:
            queue.kept_surplus *= not gives_back
            queue.changed = True
        if self.kept_in_memory:
            queue.fresh = self._still_there(0) + queue.fresh[0], queue.fresh[1]
        for copy in self.segments:
            queue.segments[copy.number].described_by(copy)

    def line(self) -> bytes:
        """The line of the catalogue."""
        fields = {
            "definition": attrs.asdict(self.definition, recurse=False),
            "next": self.next_sequence,
            "backouts": [counts.text() for counts in self.backouts],
            "damaged": self.damaged,
            "image": self.image,
        }
        kept = [segment for segment in self.segments if self.keep_volatile or not segment.volatile]
        described = b", ".join([segment.describe() for segment in kept])
        return json.dumps(fields).encode()[:-1] + b', "segments": [' + described + b"]}"

    def give_up(self) -> None:
        """Nothing was written: all is as it was. The lock is held."""
        queue = self.queue
        queue.changed = True
        queue.end_snapshot()
        queue.fresh = self._still_there(0) + queue.fresh[0], self._still_there(1) + queue.fresh[1]
        for segment in queue.segments.values():
            segment.sealed = True  # a sync may have failed: nothing is ever appended to it again


def _rewrite_groups(live: list[Segment], spare: int | None, *, last: bool) -> tuple[list[list[Segment]], bool, bool]:
    """(groups of segments to rewrite, whether there are more than one checkpoint should rewrite, or has room for).

    The segments, all of one kind, of which at least half is gone. Each group is of neighbours, and becomes one new
    segment. With `spare` only where that is room for the new one. `last`: also the one that is appended to.
    """
    if not segments.surplus(live):
        return [], False, False
    most = segments.MAX_SEGMENT_BYTES if spare is None else min(spare, segments.MAX_SEGMENT_BYTES)
    groups: list[list[Segment]] = []
    size = total = 0  # of the last group, and of all
    before = None
    no_room = False
    for segment in live if last or is_full(live[-1]) else live[:-1]:
        more = segment.live_bytes
        gone = 2 * more <= segment.length
        if gone and spare is not None and more > spare:
            no_room = True
        elif gone:
            if total >= REWRITE_BYTES:
                return groups, True, no_room
            if not groups or groups[-1][-1] is not before or size + more > most:
                groups.append([])
                size = 0
            groups[-1].append(segment)
            size += more
            total += more
        before = segment
    return groups, False, no_room


def is_full(segment: Segment) -> bool:
    """Nothing is appended to it any more."""
    return segment.sealed or segment.length >= segments.MAX_SEGMENT_BYTES
