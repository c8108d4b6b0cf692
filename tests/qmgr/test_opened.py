"""Blocks that gets of many have read: taken apart as they were put together, and read once for all that is got."""

from collections import Counter
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmgr
from qmgr.message import HEAD, STANDING
from qmgr.opened import MAX_BLOCKS, LastOpened, Opened, open_block
from qmgr.queue import Queue
from qmgr.segment_format import Block, block_of_cells
from qmgr.segment_reader import SegmentReader
from qmgr.segments import Segment
from tests.qmgr.test_front import numbers
from tests.qmgr.world import World, bodies
from tests.sim.loss import LOSE_ALL
from tests.sim.paging import Counted


def head(form: int, reply_to: int, properties: int) -> bytes:
    """One with such lengths."""
    fixed = bytearray(HEAD.size)
    STANDING.pack_into(fixed, 0, 1, 0, form, reply_to, properties, 0)
    return bytes(fixed) + b"f" * form + b"r" * reply_to + b"p" * properties


def opened(messages: list[tuple[bytes, bytes]]) -> Opened:
    lengths = [len(top) + len(body) for top, body in messages]
    data = block_of_cells(lengths, range(7, 7 + len(messages)), [top + body for top, body in messages])
    block = Block(0, len(data), 0, len(messages), 0, 7, 6 + len(messages), 0, 0)
    return open_block(data, Segment(1), block)


HEADS = st.builds(head, st.integers(0, 8), st.integers(0, 48), st.sampled_from([0, 1, 255, 256, 70_000]))
MESSAGES = st.tuples(HEADS, st.binary(max_size=40))
LIKE_ONE = st.builds(
    lambda top, size, count: [(top, bytes([at]) * size) for at in range(count)],
    HEADS,
    st.integers(0, 40),
    st.integers(1, 9),
)
NEARLY = st.builds(  # all as long as each other, but not their heads
    lambda field, form, count: (
        [(head(form + (field == 0), form + (field == 1), form + (field == 2)), b"%2d" % at) for at in range(count)]
        + [(head(form, form, form), b"the")]
    ),
    st.integers(0, 2),
    st.integers(0, 7),
    st.integers(1, 5),
)


@given(st.one_of(st.lists(MESSAGES, min_size=1, max_size=9), LIKE_ONE, NEARLY), st.data())
def test_messages_are_apart_as_they_were_put_together(messages: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    block = opened(messages)
    first = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(first + 1, len(messages)))
    assert list(zip(*block.packed.some(first, end), strict=True)) == messages[first:end]
    sorts = {(top[3], top[4], top[8:12], len(body)) for top, body in messages}
    assert bool(block.packed._head) is (len(sorts) == 1)


def test_as_many_are_kept_as_are_allowed_and_those_that_were_used_last() -> None:
    last, one = LastOpened(), opened([(head(0, 0, 0), b"")])
    for queue in range(MAX_BLOCKS):
        last.keep(queue, one)
    last.keep(0, one)
    last.keep(MAX_BLOCKS, one)
    assert len(last) == MAX_BLOCKS
    assert last.of(0) is one
    assert last.of(1) is None
    last.drop(0)
    last.drop(0)
    assert last.of(0) is None


class Reads(Counter[str]):
    """Blocks that were read, and gets of many that took them as they lie, counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        read, take = SegmentReader.read_block, Queue.take_front

        def reading(reader: SegmentReader, segment: Segment, block: Block, *, leave_open: bool = False) -> bytes:
            self["blocks"] += 1
            return read(reader, segment, block, leave_open=leave_open)

        def taking(queue: Queue, front: object) -> None:
            self["gets"] += 1
            take(queue, front)  # type: ignore[arg-type]

        patch.setattr(SegmentReader, "read_block", reading)
        patch.setattr(Queue, "take_front", taking)


def deep(world: World, name: str, count: int = 90) -> Queue:
    """A queue of which only segments have the messages."""
    world.qm.define_queue(name, buffer_size=1)
    world.qm.put_many(name, numbers(0, count))
    world.qm.checkpoint()
    queue = world.qm._engine.state.queues[name]
    [lane] = queue._lanes.values()
    assert lane.paged == count
    return queue


def got(world: World, name: str, limit: int) -> list[bytes]:
    return [message.body for message in world.qm.get_many(name, limit)]


@pytest.mark.interpreted
def test_a_block_is_read_once_for_all_gets_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    one, other = deep(world, "A"), deep(world, "B")
    [block] = next(iter(one.segments.values())).blocks[0]
    assert block.cells == 90
    reads = Reads(monkeypatch)
    for at in range(0, 90, 30):
        assert got(world, "A", 30) == got(world, "B", 30) == numbers(at, 30)
    assert reads == {"blocks": 2, "gets": 6}
    assert len(one._opened) == 0, "nothing of them is left"
    assert one._opened is other._opened


@pytest.mark.interpreted
def test_what_a_queue_has_open_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    queue = deep(world, "A")
    assert got(world, "A", 30) == numbers(0, 30)
    assert len(queue._opened) == 1
    world.qm.delete_queue("A", purge=True)
    assert len(queue._opened) == 0
    deep(world, "A")
    assert got(world, "A", 90) == numbers(0, 90)


@pytest.mark.interpreted
def test_a_message_that_went_out_of_turn_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    deep(world, "A")
    reads = Reads(monkeypatch)
    assert got(world, "A", 30) == numbers(0, 30)
    found = next(message for message in world.qm.browse("A") if message.body == b"40")
    assert world.qm.get("A", message_id=found.message_id).body == b"40"
    assert got(world, "A", 30) == [*numbers(30, 10), *numbers(41, 20)]
    assert reads["gets"] == 1
    world.crash(LOSE_ALL)
    assert bodies(world.qm, "A") == numbers(61, 29)


@pytest.mark.interpreted
def test_the_rest_of_a_block_that_was_written_anew_is_read_anew(
    small_segments: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewritten segments have other cells; what was open of the old ones is not used."""
    world = World()
    queue = deep(world, "A", 300)
    at = 0
    reads = Reads(monkeypatch)
    while queue.depth:
        assert got(world, "A", 6) == numbers(at, 6)
        at += 6
        if at % 30 == 0:
            world.qm.checkpoint()
            assert {segment.number for segment in queue.segments.values()} == set(queue.segments)
    assert small_segments.calls["_rewrite"] > 0
    assert reads["gets"] > 40
    assert at == 300


def test_of_two_priorities_each_has_its_own_blocks() -> None:
    world = World()
    world.qm.define_queue("A", buffer_size=1)
    for priority in (2, 7):
        world.qm.put_many("A", numbers(100 * priority, 40), priority=priority)
    world.qm.checkpoint()
    assert got(world, "A", 30) == numbers(700, 30)
    assert got(world, "A", 10) == numbers(730, 10)
    assert got(world, "A", 25) == numbers(200, 25)
    world.qm.put_many("A", numbers(900, 30), priority=7)
    world.qm.checkpoint()
    assert got(world, "A", 10) == numbers(900, 10)
    world.crash(LOSE_ALL)
    assert got(world, "A", 20) == numbers(910, 20)
    assert bodies(world.qm, "A") == numbers(225, 15)


def test_the_block_of_another_priority_is_another_one() -> None:
    """Its sequences lie among those of this one."""
    world = World()
    world.qm.define_queue("A", buffer_size=1)
    for at in range(0, 60, 10):
        world.qm.put_many("A", numbers(at, 10), priority=at // 10 % 2)
    world.qm.checkpoint()
    queue = world.qm._engine.state.queues["A"]
    assert got(world, "A", 20) == [*numbers(10, 10), *numbers(30, 10)]
    other = queue._opened.of(queue.id)
    assert other is not None
    assert [world.qm.get("A").body for _ in range(10)] == numbers(50, 10)
    [block] = next(iter(queue.segments.values())).blocks[0]
    assert other.block.first < block.last
    lane = queue._lanes[1]
    assert not queue._is_next(other, lane, other.block.first)
    assert queue._is_next(attrs.evolve(other, block=block), lane, other.block.first)


def test_a_segment_that_took_the_place_of_another_one_is_looked_at_itself() -> None:
    world = World()
    queue = deep(world, "A")
    assert got(world, "A", 30) == numbers(0, 30)
    [(number, segment)] = queue.segments.items()
    queue.segments[number] = segment.copy()
    assert got(world, "A", 30) == numbers(30, 30)
    assert queue.segments[number].gone_count == 60
    assert segment.gone_count == 30


def test_a_queue_that_was_made_again_has_no_more_than_others(tmp_path: Path) -> None:
    qmgr.create("M", data_path=tmp_path, log_type="linear")
    with qmgr.start("M", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A", buffer_size=1)
        qm.put_many("A", numbers(0, 90))
        qm.checkpoint()
        state = qm._engine.state
        for first in (0, 30):
            assert [message.body for message in qm.get_many("A", 30)] == numbers(first, 30)
            assert len(state.opened) == 1
            qm.record_image("A")
            qm.recreate("A")
            assert len(state.opened) == 0, "the old one has left nothing"
        assert state.queues["A"]._opened is state.opened


def test_damage_is_found_when_the_block_is_read() -> None:
    world = World()
    queue = deep(world, "A")
    [segment] = queue.segments.values()
    path = queue.reader.path(segment)
    data = world.disk.peek(path)
    world.disk.poke(path, data[:-9].ljust(len(data), b"?"))
    with pytest.raises(qmgr.Damaged):
        got(world, "A", 30)
    assert queue.damaged
