"""Whose an archive is, and that it was used: what the next one reads of that rests on nothing that can be lost."""

from collections.abc import Callable
from itertools import count

import pytest

from logger import claims
from logger.errors import ArchiveFailed
from logger.whole_files import make_and_keep_dirs
from tests.logger.extents import content, name
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


def test_of_two_that_claim_an_archive_at_the_same_time_neither_has_it() -> None:
    disk = SimDisk()
    make_and_keep_dirs(disk, "/archive")
    theirs = f"/archive/{claims.mark_name(b'z' * 16)}"

    def other(kind: str, path: str) -> None:
        if kind == "create" and not disk.exists(theirs):
            disk.poke(theirs, b"the log of QM2\n")

    disk.before_effect = other
    with pytest.raises(ArchiveFailed, match=r"archive of another queue manager's log, as 7a.*\.log-id there says"):
        claim(disk)
    assert claims.owners(disk, "/archive") == {b"z" * 16}


def test_an_archive_that_two_logs_have_claimed_is_nobodys() -> None:
    disk = SimDisk()
    make_and_keep_dirs(disk, "/archive")
    for log_id in (ID, b"z" * 16):
        disk.poke(f"/archive/{claims.mark_name(log_id)}", b"")
    with pytest.raises(ArchiveFailed, match="archive of another queue manager's log"):
        claim(disk)


def test_a_directory_with_extents_of_another_log_is_not_claimed() -> None:
    disk = SimDisk()
    make_and_keep_dirs(disk, "/archive")
    disk.poke(f"/archive/{name(1)}", b"of no use")
    disk.poke(f"/archive/{name(2)}.gz", b"of no use either")
    disk.poke(f"/archive/{name(3)}", content(3, log_id=b"z" * 16))
    with pytest.raises(ArchiveFailed, match=rf"{name(3)} belongs to another queue manager's log"):
        claim(disk)
    assert claims.owners(disk, "/archive") == set()
    disk.remove(f"/archive/{name(3)}")
    claim(disk)
    assert is_claimed(disk)


def test_every_archive_that_a_log_has_used_is_remembered_and_nothing_that_was_not_written_there() -> None:
    disk = SimDisk()
    make_and_keep_dirs(disk, "/log")
    for archive in ("/archive", "/another", "/archive"):
        claims.note_used(disk, "/log", archive)
    assert claims.used_archives(disk, "/log") == ["/archive", "/another"]
    disk.poke(f"/log/{claims.USED}", b"/archive\n/\x01\nrelative\n\xff\n\n")
    assert claims.used_archives(disk, "/log") == ["/archive"]
