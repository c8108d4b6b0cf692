"""Room in the log is plain arithmetic."""

from hypothesis import given
from hypothesis import strategies as st

from logger.space import CHECKPOINT_BYTES, EXTENT_WASTE_BYTES, RESERVE_PERCENT, Space

EXTENT = 64 * 4096
files = st.integers(1, 8)


@given(files, files, st.integers(0, 100))
def test_the_limit_leaves_room_for_waste_and_checkpoints(primary: int, more: int, floor: int) -> None:
    space = Space(EXTENT, primary + more, primary, floor * EXTENT)
    assert space.limit == floor * EXTENT + primary * (EXTENT - EXTENT_WASTE_BYTES) - CHECKPOINT_BYTES
    assert space.capacity == (primary + more) * EXTENT
    assert space.soft == floor * EXTENT + space.capacity * (100 - RESERVE_PERCENT) // 100
    assert space.used(floor * EXTENT + 17) == 17
    assert space.can_grow()
    space.set_files(primary + more)
    assert not space.can_grow()


@given(st.integers(0, 3 * EXTENT), st.integers(0, 2 * CHECKPOINT_BYTES))
def test_a_checkpoint_finds_its_room_where_nothing_else_does(promised: int, size: int) -> None:
    space = Space(EXTENT, 3, 3, EXTENT)
    space.promised = promised
    full = space.limit - promised
    assert not space.fits(full, 1, 0)
    assert space.fits_for_checkpoint(full, size) == (size <= CHECKPOINT_BYTES)


@given(st.integers(0, 3 * EXTENT), st.integers(0, EXTENT), st.integers(0, EXTENT), st.integers(0, EXTENT))
def test_what_fits_leaves_what_was_promised(used: int, size: int, promise: int, promised: int) -> None:
    space = Space(EXTENT, 3, 3, EXTENT)
    space.promised = promised
    tail = EXTENT + used
    if space.fits(tail, size, promise):
        assert tail + size + promised + promise <= space.limit
        assert space.fits(tail, size - 1 if size else 0, promise)
        assert space.fits_for_checkpoint(tail, size)
        space.promised += promise
        assert space.fits(tail + size, 0, 0)
        assert space.would_fit(tail + size, 3)
    else:
        assert tail + size + promised + promise > space.limit


def test_moving_the_head_and_growing_make_room() -> None:
    space = Space(EXTENT, 3, 2, EXTENT)
    tail = EXTENT + 2 * EXTENT - 100
    assert not space.fits(tail, 200, 0)
    space.set_files(3)
    assert space.fits(tail, 200, 0)
    space.set_files(2)
    space.set_floor(2 * EXTENT, 2)
    assert space.fits(tail, 200, 0)
    assert not space.would_fit(tail, 1)


def test_puts_leave_a_part_to_gets() -> None:
    space = Space(EXTENT, 3, 3, EXTENT)
    assert 0 < space.for_gets < space.capacity // 5
