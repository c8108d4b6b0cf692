"""One queue against a naive model: what is ready, locked, given back, gone and paged out, in the order of delivery."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmgr import batch as batch_module
from qmgr import ids as by_id
from qmgr import lane as lane_module
from qmgr import message, segment_writer
from qmgr.batch import Batch, Items, message_runs, still_there, weight
from qmgr.entry import COPY, GONE, LOCKED, OVERHEAD, READY, Entry, read_entry
from qmgr.ids import BEFORE_ALL, MESSAGE_ID, Arrays
from qmgr.lane import Lane
from qmgr.objects import QueueDefinition
from qmgr.opened import LastOpened
from qmgr.openfiles import OpenFiles
from qmgr.queue import Queue
from qmgr.segment_format import Cell
from qmgr.segment_reader import SegmentReader
from qmgr.segment_writer import SegmentWriter
from qmgr.segments import Segment, from_description
from recovery.backouts import Backouts
from recovery.errors import QueueDamaged
from tests.conftest import SOAK
from tests.sim.disk import SimDisk


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "MIN_MESSAGES", 2)
        patch.setattr(batch_module, "MAX_MESSAGES", 3)
        yield


ID = b"i" * 16
AMPLE = 1 << 30


def entry(n: int, priority: int = 0, *, persistent: bool = True, expires: int = 0) -> Entry:
    message_id, correlation_id = ids(n)
    head = message.describe(priority, persistent, correlation_id=correlation_id, expires=expires).head(message_id, 0)
    return read_entry(head, b"%d" % n)


def ids(n: int) -> tuple[bytes, bytes]:
    return (b"m%d" % (n % 5)).ljust(24, b"\0"), (b"c%d" % (n % 3)).ljust(24, b"\0")


def bodies(entries: Iterable[Entry]) -> list[bytes]:
    return [one.body for one in entries]


def entries_of(items: Items) -> list[Entry]:
    return [entry for item in items for entry in ([item] if isinstance(item, Entry) else item.entries())]


def size(one: Entry) -> int:
    return len(one.head) + len(one.body) + OVERHEAD


class Paged:
    """A queue with segments, and what a checkpoint does with it."""

    def __init__(
        self, definition: QueueDefinition | None = None, *, buffer: int = AMPLE, index: int = AMPLE, fill: int = 1 << 24
    ) -> None:
        self.disk = SimDisk()
        self.buffer = buffer
        self.fill = fill  # bytes: a segment of this size is not appended to
        self.arrays = Arrays(index)
        self.queue = self._new(definition or QueueDefinition(name="Q"))
        self.segments = 0
        self.count = 0
        self.got: list[Entry] = []  # by units of work that may not have ended

    def _new(self, definition: QueueDefinition) -> Queue:
        reader = SegmentReader(self.disk, "/q", ID, definition.id, OpenFiles(self.disk))
        return Queue(definition, reader, self.arrays, LastOpened(), (self.buffer, self.buffer))

    def put(self, priority: int = 0, *, persistent: bool = True, expires: int = 0) -> Entry:
        self.count += 1
        one = entry(self.count, priority, persistent=persistent, expires=expires)
        self.queue.depth += 1
        self.queue.add(one, self.count, 0)
        return one

    def checkpoint(self, most: int = 5, *, ending: bool = False) -> None:
        """Write what is fresh, drop segments that are empty, page out."""
        queue = self.queue
        for number in [number for number, segment in queue.segments.items() if not len(segment)]:
            del queue.segments[number]
            self.arrays.drop(number)
        spill = ending or queue.memory_bytes[0] > queue.buffers[0]
        for persistent in (False, True) if spill else (True,):
            self._write(queue.fresh[persistent], persistent)
        queue.fresh = [] if spill else queue.fresh[0], []
        while queue.page_out(most, self.in_units):
            pass

    def in_units(self) -> Iterable[Entry]:
        """What units of work hold."""
        return [entry for entry in self.got if entry.status == LOCKED]

    def _write(self, items: Items, persistent: bool) -> None:
        fresh = sorted(still_there(items), key=lambda item: (item.priority, item.sequence))
        if fresh:
            there = [segment for segment in self.queue.segments.values() if segment.volatile is not persistent]
            last = there[-1] if there else None
            if last is None or last.length >= self.fill:
                self.segments += 1
                last = self.queue.segments[self.segments] = Segment(self.segments, volatile=not persistent)
            writer = SegmentWriter(self.disk, "/q", ID, self.queue.id, last)
            cells = [self._append(writer, item) for item in fresh]
            writer.write_rest()
            writer.force()
            self.queue.extend(last, writer.blocks, writer.length)
            for item, cell in zip(fresh, cells, strict=True):
                if isinstance(item, Batch):
                    self.queue.place(item, last.number, cell)
                else:
                    item.segment, item.cell = last.number, cell

    def _append(self, writer: SegmentWriter, item: Entry | Batch) -> int:
        """Write one message, or a batch; the first cell."""
        if isinstance(item, Entry):
            return writer.append(item.sequence, item.priority, item.expires, item.head, item.body)
        assert item.packed is not None
        places = enumerate(item.packed.pairs(0, item.count), item.sequence)
        first, *_ = [writer.append(at, item.priority, 0, head, body) for at, (head, body) in places]
        return first

    def restart(self, locked: Iterable[int] = (), *, volatile: bool = False) -> dict[int, Entry]:
        """Come back from the last checkpoint, with these messages locked, as a replay finds them; their entries.

        `volatile`: with the non-persistent messages that it held.
        """
        old = self.queue
        self.arrays = Arrays(self.arrays.bound)
        queue = self.queue = self._new(old.definition)
        queue.next_sequence = old.next_sequence
        queue.backed_out = old.backed_out[0].copy() if volatile else Backouts(), old.backed_out[1].copy()
        described = [from_description(json.loads(segment.describe())) for segment in old.segments.values()]
        queue.load([segment for segment in described if volatile or not segment.volatile])
        found = {}
        for sequence in locked:
            found[sequence] = queue.find(sequence)
            queue.lock(found[sequence])
        queue.forget_sequences()
        return found

    @property
    def lanes(self) -> list[Lane]:
        return list(self.queue._lanes.values())

    @property
    def paged(self) -> int:
        return sum(lane.paged for lane in self.lanes)

    @property
    def held(self) -> int:
        return sum(self.queue.memory_bytes)


def kind_of(lane: Lane) -> tuple[int, bool]:
    return lane.priority, lane.persistent


@attrs.define
class One:
    """A message as the model has it."""

    sequence: int
    priority: int
    persistent: bool
    expires: int
    backouts: int = 0


class Beside(Paged):
    """The queue beside a model: dicts and a sort."""

    def __init__(self, *, fifo: bool, buffer: int, index: int) -> None:
        super().__init__(self.definition(fifo), buffer=buffer, index=index, fill=6000)
        self.fifo = fifo
        self.ready: dict[int, One] = {}
        self.locked: dict[int, tuple[One, Entry]] = {}
        self.most_paged = self.volatile_paged = 0
        self.restarted = False  # after that a queue may count some as expiring that are gone

    def in_units(self) -> Iterable[Entry]:
        return [entry for _, entry in self.locked.values()]

    @staticmethod
    def definition(fifo: bool) -> QueueDefinition:
        return QueueDefinition(name="Q", delivery_sequence="FIFO" if fifo else "PRIORITY")

    def position(self, one: One) -> tuple[int, int]:
        return (0 if self.fifo else -one.priority), one.sequence

    def order(self) -> list[One]:
        return sorted(self.ready.values(), key=self.position)

    def chosen(self, k: int, how: str) -> Entry | None:
        """The entry of one of the ready messages, found in one of the ways in which the engine does."""
        expected = self.order()
        if not expected:
            return None
        if how == "first":
            k = 0
            found = self.queue.first()
        elif how == "ready":
            k %= min(len(expected), 4)
            found = next(islice(self.queue.ready(k + 1), k, None))
        else:
            k %= len(expected)
            message_id, correlation_id = ids(expected[k].sequence)
            entries = self.queue.select(*((message_id, None) if how == "message id" else (None, correlation_id)))
            found = next(one for one in entries if one.sequence == expected[k].sequence)
        assert found is not None
        self.same(found, expected[k])
        return found

    def same(self, found: Entry, one: One) -> None:
        assert (found.sequence, found.body) == (one.sequence, b"%d" % one.sequence)
        assert (found.priority, bool(found.persistent), found.expires) == (one.priority, one.persistent, one.expires)
        assert found.backouts == one.backouts
        assert found.status in (READY, COPY)

    def step(self, step: str, k: int, how: str, odd: bool) -> None:
        queue = self.queue
        if step == "put":
            expires = 100 * k if k > 6 else 0
            self.put(k, persistent=not odd, expires=expires)
            self.ready[self.count] = One(self.count, k, not odd, expires)
        elif step == "put many":
            for n in range(4 + k):
                self.step("put", k % 3, how, odd and n % 2 == 0)
        elif step == "take":
            found = self.chosen(k, how)
            if found is not None:
                queue.take(found)
                del self.ready[found.sequence]
                assert found.status == GONE
        elif step == "put each":
            self.put_each(k, odd)
        elif step == "take each":
            if how in ("message id", "correlation id") and self.ready:
                message_id, correlation_id = ids(k)
                several = queue.select(*((message_id, None) if how == "message id" else (None, correlation_id)))
            else:
                several = queue.ready(k + 1)
            taken = list(islice(several, k + 1))
            for found in taken:
                self.same(found, self.ready.pop(found.sequence))
            queue.changed = False
            queue.take_each(taken)
            assert queue.changed or not taken
            assert all(found.status == GONE and not found.body for found in taken)
        elif step == "remove each" and self.locked:
            gone = [self.locked.pop(sequence)[1] for sequence in sorted(self.locked)[: k + 1]]
            queue.changed = False
            queue.remove_each(gone)
            assert queue.changed
            assert not any(found.body for found in gone)
        elif step == "lock":
            found = self.chosen(k, how)
            if found is not None:
                queue.lock(found)
                self.locked[found.sequence] = self.ready.pop(found.sequence), found
                assert found.status == LOCKED
        elif step == "remove" and self.locked:
            _, found = self.locked.pop(sorted(self.locked)[k % len(self.locked)])
            queue.remove(found)
        elif step == "back" and self.locked:
            one, found = self.locked.pop(sorted(self.locked)[k % len(self.locked)])
            queue.give_back(found, count=odd)
            one.backouts += odd
            self.ready[one.sequence] = one
            self.same(found, one)
        elif step == "lock paged":
            for one in self.order():
                entry = next(e for e in queue.select(ids(one.sequence)[0], None) if e.sequence == one.sequence)
                if entry.status == COPY:
                    queue.lock(entry)
                    self.locked[one.sequence] = self.ready.pop(one.sequence), entry
        elif step == "back all":
            while self.locked:
                self.step("back", k, how, odd)
        elif step == "reorder":
            self.fifo = odd
            queue.redefine(self.definition(odd))
        elif step == "checkpoint":
            self.checkpoint(k + 1)
            self.is_paged_out()
        elif step == "restart":
            if odd:  # an end in order: nothing is locked then but by units that are in doubt
                for sequence in [s for s, (one, _) in self.locked.items() if not one.persistent]:
                    one, found = self.locked.pop(sequence)
                    queue.give_back(found, count=False)
                    self.ready[sequence] = one
            self.checkpoint(k + 1, ending=odd)
            self.restarted = True
            entries = self.restart(sorted(s for s, (one, _) in self.locked.items() if one.persistent), volatile=odd)
            self.ready = {s: one for s, one in self.ready.items() if one.persistent or odd}
            self.locked = {s: (self.locked[s][0], entry) for s, entry in entries.items()}
        elif step == "sweep":
            over = {s for s, one in self.ready.items() if 0 < one.expires <= 100 * k}
            most = 2 if odd else AMPLE
            while some := queue.sweep(100 * k, most):
                assert {one.sequence for one in some} <= over
                assert len(some) == len({one.sequence for one in some})
                assert len(some) >= min(most, len(over)) or not odd
                for found in some:
                    self.same(found, self.ready.pop(found.sequence))
                    over.remove(found.sequence)
                    queue.take(found)
            assert not over
        elif step == "look":
            self.select(k, odd)

    def put_each(self, k: int, odd: bool) -> None:
        run = []
        for n in range(2 + k):
            self.count += 1
            one = One(self.count, n // 4 % 3, not (odd and n % 2), 100 * n if n > 6 else 0)
            self.ready[one.sequence] = one
            made = entry(one.sequence, one.priority, persistent=one.persistent, expires=one.expires)
            run.append((made.head, made.body))
        self.queue.depth += len(run)
        at = self.count - len(run) + 1
        for messages in message_runs(run):
            self.queue.add_run(messages, at, 0)
            at += len(messages.heads)

    def select(self, k: int, keep: bool) -> None:
        """What each way to look at the queue shows."""
        expected = self.order()
        message_id, correlation_id = ids(k)
        mine = [one for one in expected if ids(one.sequence)[0] == message_id]
        theirs = [one for one in expected if ids(one.sequence)[1] == correlation_id]
        both = [one for one in mine if one in theirs]
        for selectors, those in (
            ((message_id, None), mine),
            ((None, correlation_id), theirs),
            ((message_id, correlation_id), both),
        ):
            found = list(self.queue.select(*selectors))
            assert len(found) == len(those), selectors
            if expected:  # and on from the middle
                middle = self.position(expected[k % len(expected)])
                behind = [self.queue.position(one) for one in self.queue.select(*selectors, behind=middle)]
                wanted = [self.position(one) for one in those if self.position(one) > middle]
                assert [position for position in behind if position > middle] == wanted
            for entry, one in zip(found, those, strict=True):
                self.same(entry, one)
                assert self.queue.claim(entry) is entry
            if keep:
                for entry in found:
                    assert self.queue.resident_entry(entry) is entry
                    assert entry.status == READY

    def is_paged_out(self) -> None:
        there = {e.sequence: e for e in self.queue.in_memory()} | {s: e for s, (_, e) in self.locked.items()}
        for kind in (0, 1):
            stuck = sum(
                size(e)
                for e in there.values()
                if e.persistent == kind and e.status != GONE
                if not e.segment or e.status != READY
            )
            assert self.queue.memory_bytes[kind] <= self.buffer + stuck

    def agrees(self, k: int, odd: bool) -> None:
        queue, expected = self.queue, self.order()
        assert (queue.depth, queue.uncommitted) == (len(self.ready), len(self.locked))
        assert queue.next_sequence == self.count + 1
        ones = {**self.ready, **{s: one for s, (one, _) in self.locked.items()}}
        expiring = sum(1 for one in ones.values() if one.expires)
        assert queue.expiring == expiring or (self.restarted and queue.expiring > expiring)
        for kind in (0, 1):
            counted = {s: one.backouts for s, one in ones.items() if one.backouts and one.persistent == kind}
            assert dict(queue.backed_out[kind].items()) == counted
        assert all(entry.status != GONE for entry in queue._resident.values())
        there: dict[int, Entry] = {}
        behind = [entry for lane in self.lanes for item in lane.behind if isinstance(item, list) for entry in item]
        for entry in (*chain.from_iterable(lane.all() for lane in self.lanes), *behind, *queue._resident.values()):
            if entry.status != GONE:
                assert there.setdefault(entry.sequence, entry) is entry, "two entries of one message"
        memory = {s: e for s, e in there.items() if e.status == READY}
        for lane in self.lanes:
            mine = [one for one in self.ready.values() if (one.priority, one.persistent) == kind_of(lane)]
            there_too = [e for e in memory.values() if (e.priority, bool(e.persistent)) == kind_of(lane)]
            batches = [item for item in lane.behind if isinstance(item, Batch)]
            assert lane.paged == len(mine) - len(there_too) - sum(batch.count for batch in batches)
            assert not batches or not queue._indexed
            assert lane.placed == weight([batch for batch in batches if batch.segment])
            assert lane.lacks(len(there_too) + 1)
            assert lane.more or not lane.lacks(len(there_too))
            if lane.paged:
                held = [e for e in [*there.values(), *(e for _, e in self.locked.values())] if lane.low <= e.sequence]
                within = {e.sequence for e in held if (e.priority, bool(e.persistent)) == kind_of(lane)}
                within -= {s for s in within if s > lane.high}
                assert within <= queue._resident.keys(), "they would be read again"
        self.most_paged = max(self.most_paged, self.paged)
        self.volatile_paged += any(lane.paged and not lane.persistent for lane in self.lanes)
        for kind in (0, 1):
            entries = [*memory.values(), *(e for _, e in self.locked.values())]
            batched = [b for lane in self.lanes for b in lane.behind if isinstance(b, Batch)] if kind else []
            assert queue.memory_bytes[kind] == sum(size(e) for e in entries if e.persistent == kind) + weight(
                [*batched]
            )
        cells = {(e.segment, e.cell) for e in queue._resident.values() if e.segment}
        assert queue._resident_cells <= cells, "a message would be passed over"
        for index in queue._by_id.values():
            for found in index._found.values():
                assert all(e.status == READY for e in ([found] if isinstance(found, Entry) else found.values()))
        assert queue.expiring >= sum(one.expires > 0 for one in self.ready.values())
        for found, one in zip(queue.after(BEFORE_ALL, AMPLE), expected, strict=True):
            self.same(found, one)
            assert queue.claim(found) is found
        if expected:  # browse on from the middle, for a few that were there by then
            middle, before = expected[k % len(expected)], max(1, self.count - k)
            behind = [o for o in expected if self.position(o) > self.position(middle) and o.sequence < before]
            few = list(islice(queue.after(self.position(middle), before), 3))
            assert bodies(few) == [b"%d" % one.sequence for one in behind[:3]]
        if odd:
            first = queue.first()
            assert (first is None) == (not expected)
            if first is not None:
                self.same(first, expected[0])

    def drain(self) -> None:
        for one in self.order():
            first = self.queue.first()
            assert first is not None
            self.same(first, one)
            self.queue.take(first)
        assert self.queue.first() is None
        assert self.queue.depth == 0
        assert self.paged == 0


STEPS = (
    *("put", "put", "put many", "put each", "take", "take each", "lock", "remove", "remove each", "back"),
    *("reorder", "look", "sweep"),
)
PAGES = ("checkpoint", "checkpoint", "restart", "lock paged", "back all")
WAYS = ("first", "first", "ready", "message id", "correlation id")


def steps(*names: str) -> st.SearchStrategy[list[tuple[str, int, str, bool]]]:
    one = st.tuples(st.sampled_from(names), st.integers(0, 9), st.sampled_from(WAYS), st.booleans())
    return st.lists(one, max_size=60)


@given(steps(*STEPS), st.booleans())
def test_a_queue_equals_a_sorted_list(steps: list[tuple[str, int, str, bool]], fifo: bool) -> None:
    beside = Beside(fifo=fifo, buffer=AMPLE, index=AMPLE)
    for step, k, how, odd in steps:
        beside.step(step, k, how, odd)
        beside.agrees(k, odd)
    beside.drain()
    assert not beside.most_paged


BEGINNING = [
    (step, k, "", odd)
    for odd in (False, True)
    for step, k in (("put many", 9), ("put", 8), ("put many", 6), ("checkpoint", 3))
]
seen: list[int] = []
volatile: list[bool] = []


@given(steps(*STEPS, *PAGES), st.booleans(), st.sampled_from([0, 0, 1100, 5000]), st.sampled_from([0, 100, AMPLE]))
def paged(steps: list[tuple[str, int, str, bool]], fifo: bool, buffer: int, index: int) -> None:
    """Of so many messages at the beginning that there are several blocks and several segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_writer, "MAX_BLOCK_BYTES", 600)
        patch.setattr(by_id, "MIN_GONE_RUN", 1)
        beside = Beside(fifo=fifo, buffer=buffer, index=index)
        for step, k, how, odd in [*BEGINNING, *steps]:
            beside.step(step, k, how, odd)
            beside.agrees(k, odd)
        beside.drain()
        seen.append(beside.most_paged)
        volatile.append(beside.volatile_paged > 0)


def test_a_queue_that_is_paged_out_and_in_equals_a_sorted_list() -> None:
    seen.clear()
    settings(max_examples=5000 if SOAK else 90)(paged)()
    assert sum(most > 20 for most in seen) > 60, "nothing was ever paged out"
    assert sum(volatile) > 30, "nothing non-persistent was ever paged out"


@pytest.mark.parametrize("seed", range(2000 if SOAK else 20))
def test_long_lives_that_do_some_things_often_and_others_hardly_ever(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "MAX_BLOCK_BYTES", 600)
    monkeypatch.setattr(by_id, "MIN_GONE_RUN", 1)
    random = Random(seed)
    beside = Beside(fifo=random.random() < 0.3, buffer=random.choice([0, 1100, 5000]), index=random.choice([0, AMPLE]))
    names = [*dict.fromkeys((*STEPS, *PAGES))]
    often = {name: random.choice([0, 1, 1, 3]) for name in names} | {"put": 2, "checkpoint": 2, "reorder": 0}
    most = random.choice([1, 3, 9])
    for step in random.choices(names, [often[name] for name in names], k=100):
        k, how, odd = random.randint(0, most), random.choice(WAYS), random.random() < 0.5
        beside.step(step, k, how, odd)
        beside.agrees(k, odd)
    beside.drain()


def filled(count: int, *, buffer: int = AMPLE) -> Paged:
    made = Paged(buffer=buffer)
    for _ in range(count):
        made.put()
    return made


def test_an_index_forgets_what_is_gone() -> None:
    """P10: memory is bounded by what is there, not by what has ever been put."""
    made = filled(1)
    queue = made.queue
    assert bodies(queue.select(ids(1)[0], None)) == [b"1"]
    assert bodies(queue.select(None, ids(1)[1])) == [b"1"]
    for _ in range(2, 500):
        first = queue.first()
        assert first is not None
        queue.take(first)
        made.put()
    assert len(queue._by_id) == 2
    for index in queue._by_id.values():
        assert len(index) == 1
        assert len(index._found) == 1


def test_an_index_forgets_what_is_paged_out() -> None:
    """P10: of what is on disk alone the arrays know."""
    made = filled(300, buffer=3000)
    queue = made.queue
    assert len(list(queue.select(ids(1)[0], None))) == 60
    assert len(queue._by_id[MESSAGE_ID]) == 300
    made.checkpoint()
    assert len(queue._by_id[MESSAGE_ID]) == 300 - made.paged < 10
    assert bodies(queue.select(ids(1)[0], None)) == [b"%d" % n for n in range(1, 301, 5)]
    assert len(queue._by_id[MESSAGE_ID]) < 10
    assert bodies(queue.select(ids(1)[0], None)) == [b"%d" % n for n in range(1, 301, 5)]
    assert len(queue._by_id[MESSAGE_ID]) == 300 - made.paged


def test_the_last_block_that_is_paged_may_be_in_memory_in_part() -> None:
    made = filled(50, buffer=20_000)
    queue = made.queue
    made.checkpoint()
    for _ in range(10):
        first = queue.first()
        assert first is not None
        queue.take(first)
    for _ in range(20):
        made.put()
    made.checkpoint(1)
    [lane], block = made.lanes, queue.segments[1].blocks[0][-1]
    assert block.first < lane.high < block.last
    for n in range(11, 71):
        assert n in [entry.sequence for entry in queue.select(*ids(n))]
        assert n in [entry.sequence for entry in queue.select(*ids(n), behind=(0, n - 1))]


@pytest.mark.parametrize("left", [0, 2])
def test_what_was_got_behind_all_that_is_paged_comes_once_when_it_is_given_back(left: int) -> None:
    """Also where some of it is still locked when more is paged out."""
    made = filled(20, buffer=0)
    queue, locked = made.queue, made.got
    made.checkpoint()
    for n in range(1, 21):
        locked.append(next(queue.select(*ids(n))))
        queue.lock(locked[-1])
    for _ in range(5):
        made.put()
    while (first := queue.first()) is not None:
        queue.lock(first)
        locked.append(first)
    queue.buffers = (12 * size(locked[0]),) * 2
    for entry in locked[: 25 - left]:
        queue.give_back(entry, count=False)
    made.checkpoint()
    for _ in range(5):
        made.put()
    made.checkpoint()
    there = [*range(1, 26 - left), *range(26, 31)]
    assert [entry.sequence for entry in queue.after(BEFORE_ALL, AMPLE)] == there
    for n in there:
        first = queue.first()
        assert first is not None and first.sequence == n
        queue.take(first)
    assert queue.first() is None
    assert (queue.depth, queue.uncommitted) == (0, left)


def test_what_was_given_back_behind_what_leaves_memory_comes_once() -> None:
    """What came while a checkpoint wrote is in no segment when those before it leave; the next one has it, and may
    leave it in memory when what is behind it goes."""
    made = filled(20, buffer=0)
    queue = made.queue
    made.checkpoint()
    made.put()
    made.got = [entry for _ in range(21) if (entry := queue.first()) is not None and not queue.lock(entry)]
    for entry in made.got:
        queue.give_back(entry, count=False)
    assert not queue.page_out(100, made.in_units)
    assert (made.paged, made.held) == (20, size(made.got[-1]))
    for _ in range(5):
        made.put()
    queue.buffers = (size(made.got[-1]),) * 2
    made.checkpoint()
    assert (made.paged, made.held) == (25, size(made.got[-1]))
    for n in range(1, 27):
        first = queue.first()
        assert first is not None
        assert first.sequence == n
        queue.take(first)
    assert queue.first() is None


@pytest.mark.interpreted
def test_steps_of_letting_go_look_at_no_more_than_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much came while the checkpoint wrote: to pass over that in each step took seconds under the lock."""
    made = filled(200, buffer=0)
    queue = made.queue
    made.checkpoint(1000)
    queue.snapshot_before = queue.next_sequence
    for _ in range(500):
        made.put()
    made.got = [entry for _ in range(700) if (entry := queue.first()) is not None and not queue.lock(entry)]
    for entry in made.got:
        queue.give_back(entry, count=False)
    looked = 0
    real = lane_module._may_leave

    def counted(entry: Entry) -> bool:
        nonlocal looked
        looked += 1
        return real(entry)

    monkeypatch.setattr(lane_module, "_may_leave", counted)
    steps = 1
    while queue.page_out(10, made.in_units):
        steps += 1
    assert (made.paged, steps) == (200, 21)
    assert looked <= 200 + steps


@pytest.mark.parametrize("kinds", [1, 3], ids=["alike", "of three priorities"])
@pytest.mark.parametrize("buffer", [0, 60_000])
@pytest.mark.parametrize("how", ["take", "lock"])
def test_of_many_messages_with_one_id_each_is_read_once(
    how: str, buffer: int, kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are got by it one by one, outside a unit of work or in one, which holds them."""
    made = Paged(buffer=buffer)
    for n in range(600):
        made.put(n % kinds)
    made.checkpoint()
    read: list[int] = []
    read_one = SegmentReader.read_one

    def counting(*given: Any) -> Cell:
        cell = read_one(*given)
        read.append(cell[1])
        return cell

    monkeypatch.setattr(SegmentReader, "read_one", counting)
    queue, key = made.queue, ids(0)[1]
    mine = sorted(range(3, 601, 3), key=lambda n: (-((n - 1) % kinds), n))
    held = []
    for n in mine:
        entry = next(queue.select(None, key))
        assert entry.sequence == n
        getattr(queue, how)(entry)
        held.append(entry)
    assert next(queue.select(None, key), None) is None
    assert len(read) <= kinds * len(mine), "what is in memory, or gone, was read"
    if how == "lock":
        for entry in held:
            queue.give_back(entry, count=True)
        made.checkpoint()
        assert [entry.sequence for entry in queue.select(None, key)] == mine


def test_backing_out_one_message_again_and_again_costs_no_memory() -> None:
    queue = filled(3).queue
    for _ in range(500):
        first = queue.first()
        assert first is not None
        queue.lock(first)
        queue.give_back(first, count=True)
    assert sum(len(lane.given_back) for lane in queue._lanes.values()) <= 3
    assert bodies(queue.ready(9)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("how", ["take", "take_each", "lock"])
@pytest.mark.parametrize("buffer", [0, AMPLE])
@pytest.mark.parametrize("left", [0, 1])
def test_what_was_given_back_and_is_got_by_its_id_costs_no_memory(how: str, buffer: int, left: int) -> None:
    """Also where one that nobody gets is left in front."""
    made = filled(100, buffer=buffer)
    queue = made.queue
    made.checkpoint()

    def with_sequence(n: int) -> Entry:
        return next(entry for entry in queue.select(*ids(n)) if entry.sequence == n)

    for n in range(100, 0, -1):  # all but the first stay in the line as well
        entry = with_sequence(n)
        queue.lock(entry)
        queue.give_back(entry, count=True)
    for n in range(1 + left, 101):
        if how == "take_each":
            queue.take_each([with_sequence(n)])
        else:
            getattr(queue, how)(with_sequence(n))
    assert [len(lane.given_back) for lane in made.lanes] == [left]
    assert bodies(queue.ready(9)) == [b"1"][:left]


def test_what_expires_when_it_has_left_memory_costs_none() -> None:
    """A sweep makes entries of it; nobody gets any of the queue."""
    made = Paged(buffer=0)
    for _ in range(100):
        made.put(expires=5)
    made.checkpoint()
    while expired := made.queue.sweep(9, 30):
        made.queue.take_each(expired)
    assert (made.queue.depth, made.held) == (0, 0)
    assert [len(lane.given_back) for lane in made.lanes] == [0]


def test_an_empty_queue_has_nothing_that_expires_however_many_a_restart_has_counted() -> None:
    """It counts all messages of a block that has one which expires: each get would look at the clock for good."""
    made = Paged(buffer=0)
    for n in range(100):
        made.put(expires=50 if n == 50 else 0)
    made.checkpoint()
    made.restart()
    queue = made.queue
    assert queue.expiring > 1
    for expired in (queue.sweep(9, 30), queue.sweep(99, 30)):
        queue.take_each(expired)
    assert queue.expiring > 1
    while (first := queue.first()) is not None:
        queue.lock(first)
        made.got.append(first)
    queue.sweep(99, 30)
    assert queue.expiring, "what is locked may come back"
    for entry in made.got:
        queue.remove(entry)
    queue.sweep(99, 30)
    assert queue.expiring == 0


def test_taking_from_the_middle_costs_no_memory() -> None:
    queue = filled(1000).queue
    for one in list(queue.ready(1000))[1:]:
        queue.take(one)
    assert sum(len(lane.line) for lane in queue._lanes.values()) < 300
    assert bodies(queue.ready(9)) == [b"1"]


def test_a_deep_queue_keeps_its_buffer_in_memory_and_reads_a_block_at_a_time() -> None:
    made = filled(5000, buffer=20_000)
    queue = made.queue
    made.checkpoint(100)
    assert made.held <= 20_000
    assert made.paged > 4900
    largest = max(block.cells for segment in queue.segments.values() for block in segment.blocks[0])
    for n in range(1, 5001):
        first = queue.first()
        assert first is not None
        assert first.body == b"%d" % n
        assert made.held <= 20_000 + largest * (OVERHEAD + 100)
        queue.take(first)
    assert made.held == 0
    assert made.disk.counts["read"] <= 5000 // largest + 1


def test_what_is_put_behind_paged_messages_stays_in_memory_until_a_checkpoint_has_it() -> None:
    made = filled(20, buffer=1)
    made.checkpoint()
    assert made.held == 0
    for _ in range(5):
        made.put()
    assert not made.queue.page_out(100, made.in_units)
    assert made.held == sum(map(size, entries_of(made.queue.fresh[1])))
    assert bodies(made.queue.after(BEFORE_ALL, AMPLE)) == [b"%d" % n for n in range(1, 26)]
    made.checkpoint()
    assert (made.held, made.paged) == (0, 25)


def test_non_persistent_messages_keep_their_places_between_paged_ones() -> None:
    made = Paged(buffer=1)
    for n in range(20):
        made.put(persistent=n % 4 != 0)
    made.checkpoint()
    assert made.paged == 20
    made.put(persistent=False)
    assert bodies(made.queue.after(BEFORE_ALL, AMPLE)) == [b"%d" % n for n in range(1, 22)]
    for n in range(1, 22):
        first = made.queue.first()
        assert first is not None
        assert first.body == b"%d" % n
        made.queue.take(first)


def test_a_non_persistent_message_between_paged_ones_is_got_by_its_id() -> None:
    """It was taken for the copy of a paged one, and another message was not found any more."""
    made = Paged(buffer=1)
    for n in range(6):
        made.put(persistent=n != 3)
    made.queue.redefine(QueueDefinition(name="Q", buffer_size=600))
    made.checkpoint()
    assert made.paged == 4
    assert bodies(made.queue.select(ids(4)[0], None)) == [b"4"]
    assert made.paged == 4
    for n in range(1, 7):
        first = made.queue.first()
        assert first is not None
        assert first.body == b"%d" % n
        made.queue.take(first)


def test_a_smaller_buffer_counts_from_the_next_checkpoint_on() -> None:
    made = filled(50)
    made.checkpoint()
    assert made.paged == 0
    made.queue.redefine(QueueDefinition(name="Q", buffer_size=5000))
    made.checkpoint()
    assert made.held <= 5000
    assert made.paged > 30
    made.queue.redefine(QueueDefinition(name="Q"))
    assert made.queue.buffers == (AMPLE, AMPLE)


def test_replay_finds_by_sequence_and_refuses_what_is_taken_twice() -> None:
    queue = filled(5).queue
    assert queue.find(1).body == b"1"
    three = queue.find(3)
    assert three.body == b"3"
    queue.take(three)
    with pytest.raises(KeyError):
        queue.find(3)
    with pytest.raises(KeyError):
        queue.find(99)
    queue.forget_sequences()
    assert queue.find(4).body == b"4"


def test_replay_finds_what_is_paged_by_sequence_and_refuses_what_is_taken_twice() -> None:
    made = filled(50, buffer=1)
    made.checkpoint()
    made.restart()
    queue = made.queue
    assert made.paged == 50
    thirty = queue.find(30)
    assert thirty.body == b"30"
    queue.lock(thirty)
    with pytest.raises(KeyError):
        queue.find(30)
    queue.give_back(thirty, count=False)
    assert queue.find(30) is thirty
    queue.take(thirty)
    with pytest.raises(KeyError):
        queue.find(30)
    for n in [*range(1, 30), *range(31, 51)]:  # one after the other, as a log nearly always has them
        queue.take(queue.find(n))
    for n in (1, 7, 30, 50, 99):
        with pytest.raises(KeyError):
            queue.find(n)
    assert (queue.depth, made.held, made.paged) == (0, 0, 0)


def test_replay_reads_each_block_once_when_messages_go_in_their_order() -> None:
    made = filled(5000, buffer=1)
    made.checkpoint(1000)
    made.restart()
    before = made.disk.counts["read"]
    for n in range(1, 5001):
        made.queue.take(made.queue.find(n))
    blocks = sum(len(segment.blocks[0]) for segment in made.queue.segments.values())
    assert made.disk.counts["read"] - before == blocks


def test_what_is_fresh_is_known_by_its_persistence() -> None:
    queue = filled(0).queue
    for n in range(4):
        queue.depth += 1
        queue.add(entry(n, persistent=n % 2 == 0), n, 0)
    assert [bodies(entries) for entries in map(entries_of, queue.fresh)] == [[b"1", b"3"], [b"0", b"2"]]
    assert queue.next_sequence == 4


@pytest.mark.parametrize("blocks", [1, 40])
@pytest.mark.parametrize("how", ["take", "lock", "read and page out"])
def test_what_was_looked_up_is_claimed_unless_it_is_gone(
    how: str, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browse looks up copies of paged messages; they may be got before it shows them, or come into memory.

    Where each has a block to itself, those that are found by their id are still paged then.
    """
    if blocks > 1:
        monkeypatch.setattr(segment_writer, "MAX_BLOCK_BYTES", 1)
    made = filled(40, buffer=1)
    made.checkpoint()
    queue = made.queue
    looked_up = [*queue.after(BEFORE_ALL, AMPLE), *queue.select(ids(12)[0], None)]
    assert all(one.status == COPY for one in looked_up)
    for _ in range(1, 9):
        first = queue.first()
        assert first is not None
        by_id = next(iter(queue.select(ids(first.sequence + 2)[0], None)))
        for one in {first.sequence: first, by_id.sequence: by_id}.values():
            if how == "take":
                queue.take(one)
            elif how == "lock":
                queue.lock(one)
            else:
                looked_up.append(queue.resident_entry(one))
                looked_up.append(first)
    if how == "read and page out":
        made.checkpoint()
    there = [one.sequence for one in queue.after(BEFORE_ALL, AMPLE)]
    assert len(there) == (40 if how == "read and page out" else 24)
    for one in looked_up:
        claimed = queue.claim(one)
        assert (claimed is not None) == (one.sequence in there)
        if claimed is not None:
            assert (claimed.sequence, claimed.body) == (one.sequence, one.body)
    for one in looked_up:
        claimed = queue.claim(one)
        if claimed is not None:
            queue.take(claimed)
        assert queue.claim(one) is None
    assert queue.depth == 0 or how != "read and page out"


READS: dict[str, Callable[[Queue], object]] = {
    "first": lambda queue: queue.first(),
    "ready": lambda queue: list(queue.ready(5)),
    "after": lambda queue: list(queue.after(BEFORE_ALL, AMPLE)),
    "select": lambda queue: list(queue.select(ids(4)[0], None)),
    "find": lambda queue: queue.find(25),
    "sweep": lambda queue: queue.sweep(1000, AMPLE),
}


@pytest.mark.parametrize("how", READS)
def test_row_52_what_can_not_be_read_changes_nothing(how: str) -> None:
    """An error of the disk that passes: the same call succeeds then, and everything is there."""
    for kind in ("open", "read"):
        for nth in range(1, 100):
            made = Paged(buffer=1)
            for n in range(50):
                made.put(n % 2, expires=900 if n == 20 else 5000)
            made.checkpoint()
            fault = made.disk.fail(kind, 5, nth=nth)
            try:
                READS[how](made.queue)
            except OSError:
                assert fault.fired
            assert made.queue.depth == 50
            there = {e.sequence: e for e in made.queue.in_memory()}
            assert made.paged + len(there) == 50
            assert made.held == sum(map(size, there.values()))
            made.disk.heal()
            READS[how](made.queue)
            expected = [b"%d" % n for n in (*range(2, 51, 2), *range(1, 51, 2))]
            assert bodies(made.queue.ready(50)) == expected
            if not fault.fired:
                break
        assert nth > 1


@pytest.mark.parametrize("how", READS)
def test_row_40_damage_is_told_by_whoever_reads_it(how: str) -> None:
    made = Paged(buffer=1)
    for _ in range(50):
        made.put(expires=900)
    made.checkpoint()
    path = made.queue.reader.path(next(iter(made.queue.segments.values())))
    whole = made.disk.peek(path)
    made.disk.poke(path, whole[:4200] + bytes([whole[4200] ^ 1]) + whole[4201:])
    with pytest.raises(QueueDamaged, match=r"/q/00000001\.seg is damaged"):
        READS[how](made.queue)
