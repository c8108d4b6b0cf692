"""One lane: the line, what is paged behind it, the tail behind that, and what was given back beside them."""

from collections.abc import Iterable

from qmgr import message
from qmgr.entry import GONE, LOCKED, READY, Entry, read_entry
from qmgr.lane import Lane

HEAD = message.describe(0, True).head(bytes(24), 0)


def entry(sequence: int, *, segment: int = 0) -> Entry:
    one = read_entry(HEAD, b"%d" % sequence)
    one.sequence = sequence
    one.segment, one.cell = segment, sequence
    return one


def lane_of(written: int, fresh: int = 0) -> tuple[Lane, dict[int, Entry]]:
    """A lane with so many entries that a segment has, and then so many that none has; and all of them by sequence."""
    lane = Lane(0)
    every = {n: entry(n, segment=n <= written) for n in range(1, written + fresh + 1)}
    lane.end.extend(every.values())
    return lane, every


def numbers(entries: Iterable[Entry]) -> list[int]:
    return [one.sequence for one in entries]


def page_out(lane: Lane, count: int) -> list[int]:
    """Let so many go, as a queue does with what is ready."""
    out = []
    for _ in range(count):
        one = lane.next_out(full=True)
        assert one is not None
        assert one.status == READY
        lane.paged += 1
        out.append(one.sequence)
    return out


def page_in(lane: Lane, *sequences: int) -> None:
    lane.line.extend(entry(n, segment=1) for n in sequences)
    lane.paged -= len(sequences)
    lane.low = sequences[-1] + 1


def test_what_is_put_first_comes_first() -> None:
    lane, every = lane_of(0, 3)
    for n in (1, 2, 3):
        first = lane.first()
        assert first is every[n]
        assert lane.first() is first  # still in its place
        first.status = GONE
        lane.mark_taken(first, {})
    assert lane.first() is None
    lane.end.append(entry(4))
    assert numbers(lane.ready()) == [4]


def test_what_is_given_back_finds_its_old_place() -> None:
    lane, every = lane_of(0, 6)
    for n in (1, 2, 4):
        every[n].status = LOCKED
        lane.mark_taken(every[n], {})
    assert numbers(lane.ready()) == [3, 5, 6]
    for n in (4, 2):
        every[n].status = READY
        lane.given_back[n] = every[n]
    assert numbers(lane.ready()) == [2, 3, 4, 5, 6]  # 4 stands in the line as well, and comes once
    assert lane.first() is every[2]
    assert numbers(lane.after(2)) == [3, 4, 5, 6]
    assert (lane.lacks(5), lane.lacks(6)) == (0, 1)


def test_the_last_ones_are_paged_out_first_and_what_no_segment_has_stays() -> None:
    lane, _ = lane_of(5, 2)
    assert page_out(lane, 3) == [5, 4, 3]
    assert (lane.low, lane.high, lane.paged) == (3, 5, 3)
    assert numbers(lane.ready()) == [1, 2]
    assert (lane.lacks(2), lane.lacks(3)) == (0, 1)
    assert numbers(lane.after(0)) == [1, 2, 6, 7]
    assert [lane.holds_paged(n) for n in (2, 3, 5, 6)] == [False, True, True, False]
    lane.end.append(entry(8))
    assert numbers(lane.after(5)) == [6, 7, 8]
    assert page_out(lane, 2) == [2, 1]
    assert lane.next_out(full=True) is None
    assert lane.first() is None


def test_what_was_put_meanwhile_follows_what_is_paged_when_a_segment_has_it() -> None:
    lane, every = lane_of(4, 3)
    page_out(lane, 2)
    assert lane.next_out(full=False) is None
    for n in (5, 6):
        every[n].segment = 2
    out = [lane.next_out(full=False), lane.next_out(full=False), lane.next_out(full=False)]
    assert out == [every[5], every[6], None]
    assert (lane.low, lane.high) == (3, 6)


def test_the_tail_becomes_the_line_when_nothing_is_paged_any_more() -> None:
    lane, every = lane_of(4, 2)
    page_out(lane, 4)
    assert lane.first() is None
    page_in(lane, 1, 2)
    assert numbers(lane.ready()) == [1, 2]
    lane.line.clear()
    assert lane.first() is None
    page_in(lane, 3, 4)
    assert numbers(lane.ready()) == [3, 4, 5, 6]
    assert (lane.lacks(4), lane.lacks(5)) == (0, 1)
    lane.line.clear()
    assert lane.first() is every[5]
    assert lane.end is lane.line
    lane.end.append(entry(7))
    assert numbers(lane.ready()) == [5, 6, 7]


def test_with_nothing_in_a_segment_nothing_is_paged_out() -> None:
    lane, _ = lane_of(0, 4)
    assert lane.next_out(full=True) is None
    lane.end.append(entry(5))
    assert numbers(lane.ready()) == [1, 2, 3, 4, 5]


def test_the_tail_alone_is_paged_out_too() -> None:
    """All that was paged has been got, and nobody has looked for more."""
    lane, _ = lane_of(2)
    page_out(lane, 2)
    page_in(lane, 1, 2)
    lane.line.clear()
    for n in (3, 4, 5):
        lane.end.append(entry(n, segment=2 if n < 5 else 0))
    assert page_out(lane, 2) in ([4, 3], [3, 4])
    assert (lane.low, lane.high) == (3, 4)
    assert numbers(lane.after(0)) == [5]


def test_what_was_given_back_comes_before_and_behind_what_is_paged() -> None:
    lane, every = lane_of(6)
    for n in (1, 5):
        every[n].status = LOCKED
        lane.mark_taken(every[n], {})
    resident: dict[int, Entry] = {}
    for n in (6, 5, 4):
        out = lane.next_out(full=True)
        assert out is every[n]
        if out.status == LOCKED:
            lane.dead -= 1
            resident[n] = out
        else:
            lane.paged += 1
    for n in (1, 5):
        every[n].status = READY
        lane.given_back[n] = every[n]
    assert numbers(lane.ready()) == [1, 2, 3]
    assert numbers(lane.after(0)) == [1, 2, 3, 5]
    for n in (1, 2, 3):
        first = lane.first()
        assert first is every[n]
        first.status = GONE
        lane.mark_taken(first, resident)
    assert lane.first() is None  # 4 has to be read before 5 comes
    page_in(lane, 4)
    assert numbers(lane.ready()) == [4]
    page_in(lane, 6)
    assert numbers(lane.ready()) == [4, 5, 6]


def test_a_line_does_not_fill_up_with_what_is_not_there() -> None:
    """What is locked is kept apart, since a block that is read may have it too."""
    lane, every = lane_of(400)
    resident: dict[int, Entry] = {}
    for n in range(2, 350):
        every[n].status = LOCKED if n % 3 else GONE
        lane.mark_taken(every[n], resident)
        assert (lane.lacks(401 - n), lane.lacks(402 - n)) == (0, 1)
    assert len(lane.line) < 200
    assert numbers(lane.ready()) == [1, *range(350, 401)]
    assert len(resident) > 150
    assert all(one.status == LOCKED for one in resident.values())
    locked = {n for n in range(2, 350) if n % 3}
    assert locked <= resident.keys() | set(numbers(lane.line))


def test_all_that_is_in_memory_is_there_to_be_looked_at() -> None:
    lane, every = lane_of(4, 2)
    page_out(lane, 2)
    every[1].status = LOCKED
    lane.mark_taken(every[1], {})
    every[1].status = READY
    lane.given_back[1] = every[1]
    assert sorted(numbers(lane.all())) == [1, 2, 5, 6]
