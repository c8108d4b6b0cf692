"""One queue against a naive model: what is ready, locked, given back and gone, in the order of delivery."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmgr import message
from qmgr.entry import GONE, LOCKED, READY, Entry, read_entry
from qmgr.objects import QueueDefinition
from qmgr.queue import Queue


def entry(n: int, priority: int = 0, *, persistent: bool = True) -> Entry:
    message_id, correlation_id = ids(n)
    head = message.describe(priority, persistent, correlation_id=correlation_id).head(message_id, 0)
    return read_entry(head, b"%d" % n)


def ids(n: int) -> tuple[bytes, bytes]:
    return (b"m%d" % (n % 5)).ljust(24, b"\0"), (b"c%d" % (n % 3)).ljust(24, b"\0")


def bodies(entries: Any) -> list[bytes]:
    return [one.body for one in entries]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "take", "lock", "remove", "back", "reorder", "select"]), st.integers(0, 9)
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_a_queue_equals_a_sorted_list(steps: list[tuple[str, int]], fifo: bool) -> None:
    definition = QueueDefinition(name="Q", delivery_sequence="FIFO" if fifo else "PRIORITY")
    queue = Queue(definition)
    ready: dict[int, Entry] = {}
    locked: dict[int, Entry] = {}

    def order() -> list[Entry]:
        return sorted(ready.values(), key=lambda e: (0 if fifo else -e.priority, e.sequence))

    for n, (step, k) in enumerate(steps, 1):
        if step == "add":
            queue.depth += 1
            one = entry(n, k)
            queue.add(one, n, 0)
            ready[n] = one
        elif step == "take" and ready:
            one = order()[k % len(ready)]
            queue.take(one)
            del ready[one.sequence]
            assert one.status == GONE
        elif step == "lock" and ready:
            one = order()[k % len(ready)]
            queue.lock(one)
            locked[one.sequence] = ready.pop(one.sequence)
            assert one.status == LOCKED
        elif step == "remove" and locked:
            one = locked.pop(sorted(locked)[k % len(locked)])
            queue.remove(one)
        elif step == "back" and locked:
            one = locked.pop(sorted(locked)[k % len(locked)])
            queue.give_back(one, count=True)
            ready[one.sequence] = one
            assert one.status == READY
        elif step == "reorder":
            fifo = not fifo
            definition = QueueDefinition(name="Q", delivery_sequence="FIFO" if fifo else "PRIORITY")
            queue.redefine(definition)
        expected = order()
        assert bodies(queue.ready()) == bodies(expected)
        first = queue.first()
        assert (first is None) == (not expected)
        if first is not None:
            assert first is expected[0]
        message_id, correlation_id = ids(k)
        if step == "select":
            mine = [e for e in expected if message.ids_of(e.head)[0] == message_id]
            assert bodies(queue.select(message_id, None)) == bodies(mine)
            theirs = [e for e in expected if message.ids_of(e.head)[1] == correlation_id]
            assert bodies(queue.select(None, correlation_id)) == bodies(theirs)
            both = [e for e in mine if e in theirs]
            assert bodies(queue.select(message_id, correlation_id)) == bodies(both)
        assert (queue.depth, queue.uncommitted) == (len(ready), len(locked))


def filled(count: int) -> Queue:
    queue = Queue(QueueDefinition(name="Q"))
    for n in range(1, count + 1):
        queue.depth += 1
        queue.add(entry(n), n, 0)
    return queue


def test_an_index_forgets_what_is_gone() -> None:
    """P10: memory is bounded by what is there, not by what has ever been put."""
    queue = filled(1)
    assert bodies(queue.select(ids(1)[0], None)) == [b"1"]
    assert bodies(queue.select(None, ids(1)[1])) == [b"1"]
    for n in range(2, 500):
        first = queue.first()
        assert first is not None
        queue.take(first)
        queue.depth += 1
        queue.add(entry(n), n, 0)
    for index in (queue._by_message_id, queue._by_correlation_id):
        assert index is not None
        assert sum(len(entries) for entries in index.values()) == 1
        assert len(index) == 1


def test_backing_out_one_message_again_and_again_costs_no_memory() -> None:
    queue = filled(3)
    for _ in range(500):
        first = queue.first()
        assert first is not None
        queue.lock(first)
        queue.give_back(first, count=True)
    assert sum(len(lane.given_back) for lane in queue._lanes) <= 3
    assert bodies(queue.ready()) == [b"1", b"2", b"3"]


def test_taking_from_the_middle_costs_no_memory() -> None:
    queue = filled(1000)
    for one in list(queue.ready())[1:]:
        queue.take(one)
    assert sum(len(lane.line) for lane in queue._lanes) < 300
    assert bodies(queue.ready()) == [b"1"]


def test_replay_finds_by_sequence_and_refuses_what_is_taken_twice() -> None:
    queue = filled(5)
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


def test_only_persistent_messages_are_for_the_next_checkpoint() -> None:
    queue = Queue(QueueDefinition(name="Q"))
    for n in range(4):
        queue.depth += 1
        queue.add(entry(n, persistent=n % 2 == 0), n, 0)
    assert bodies(queue.fresh) == [b"0", b"2"]
    assert queue.next_sequence == 4
