"""Whose an archive is, and that it was used: what the next one reads of that rests on nothing that can be lost."""

from collections.abc import Callable
from itertools import count

import pytest

from logger import claims
from logger.disk import make_and_keep_dirs
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL

ID = b"identity of 16 b"


def claim(disk: SimDisk) -> None:
    claims.claim(disk, "/archive", ID, "the log of QM1")


def note_used(disk: SimDisk) -> None:
    claims.note_used(disk, "/log", "/archive")


def is_claimed(disk: SimDisk) -> bool:
    return claims.owners(disk, "/archive") == {ID}


def is_used(disk: SimDisk) -> bool:
    return claims.used_archives(disk, "/log") == ["/archive"]


@pytest.mark.parametrize(("do", "done"), [(claim, is_claimed), (note_used, is_used)])
def test_what_one_that_was_killed_has_left_is_durable_once_the_next_has_returned(
    do: Callable[[SimDisk], None], done: Callable[[SimDisk], bool]
) -> None:
    """The kill leaves it in the system's memory; the power failure comes later."""
    for moment in count(1):
        disk = SimDisk()
        for directory in ("/archive", "/log"):
            make_and_keep_dirs(disk, directory)
        disk.crash_after(moment)
        try:
            do(disk)
        except SimCrash:
            following = disk.crash(KEEP_ALL)
            do(following)
            assert done(following.crash(LOSE_ALL)), f"call {moment}"
        else:
            break
    assert moment > 3
