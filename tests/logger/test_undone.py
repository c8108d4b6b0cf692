"""What the log remembers of another past in an archive: all of it whole, or damage; and from where on it hides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import undone
from logger.errors import LogDamaged
from logger.undone import Undone
from tests.sim.disk import SimDisk

ID = b"identity of 16 b"
KNOWN = Undone(frozenset({"S0000004.LOG", "S0000007.LOG.gz"}), 9, "/archive", True)


def noted() -> SimDisk:
    disk = SimDisk()
    undone.write(disk, "", ID, KNOWN)
    return disk


def test_what_was_noted_is_read_again_and_by_no_other_log() -> None:
    assert undone.read(noted(), "", ID) == KNOWN
    with pytest.raises(LogDamaged, match=undone.NAME):
        undone.read(noted(), "", b"another log's id")


@given(st.data())
def test_row_40_any_flip_is_noticed(data: st.DataObject) -> None:
    """A name that is not in it any more would be read as the log's own."""
    disk, path = noted(), f"/{undone.NAME}"
    whole = disk.peek(path)
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    disk.poke(path, whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
    with pytest.raises(LogDamaged, match=undone.NAME):
        undone.read(disk, "", ID)


def test_a_name_that_counts_for_nothing_and_all_from_a_sequence_on_are_hidden() -> None:
    known = Undone(frozenset({"S0000004.LOG"}), since=9)
    assert known.hides("S0000004.LOG", 5)
    assert [known.hides("S0000000.LOG", sequence) for sequence in (8, 9, 10)] == [False, True, True]
    assert not Undone().hides("S0000000.LOG", 1)
    assert Undone(unseen=True).hides("S0000000.LOG", 1)
