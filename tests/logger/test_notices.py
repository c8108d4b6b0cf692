"""Notices: kept over any crash; what can't be read says that nobody was told anything."""

import errno
import json

import pytest

from logger.notices import ArchivedNotices
from tests.logger.extents import ID, with_extents
from tests.sim.disk import SimCrash
from tests.sim.loss import DATA_ONLY, KEEP_ALL, LOSE_ALL, NAMES_ONLY, SIZES_ONLY, mixed

LOSSES = [KEEP_ALL, LOSE_ALL, NAMES_ONLY, SIZES_ONLY, DATA_ONLY, *(mixed(seed) for seed in range(6))]


def test_notices_are_kept_over_a_crash() -> None:
    disk = with_extents(range(0))
    notices = ArchivedNotices(disk, "/log", ID)
    assert not notices.covers(1)
    for sequence in (3, 1, 2, 9, 3):
        notices.add(sequence)
    notices.add(20, 25)
    for seen in (notices, ArchivedNotices(disk.crash(LOSE_ALL), "/log", ID)):
        assert [s for s in range(30) if seen.covers(s)] == [1, 2, 3, 9, 20, 21, 22, 23, 24, 25]
    said = json.loads(disk.peek("/log/amqharch.fil"))
    assert said["archived"] == [[1, 3], [9, 9], [20, 25]]
    assert said["log_id"] == ID.hex()


def test_a_notice_is_there_or_not_whatever_crashes_and_never_another() -> None:
    for moment in range(1, 20):
        disk = with_extents(range(0))
        ArchivedNotices(disk, "/log", ID).add(1)
        disk.crash_after(moment)
        try:
            ArchivedNotices(disk, "/log", ID).add(5)
            done = True
        except SimCrash:
            done = False
        for loss in LOSSES:
            seen = ArchivedNotices(disk.crash(loss), "/log", ID)
            found = [s for s in range(10) if seen.covers(s)]
            assert found == [1, 5] or (found == [1] and not done)


def test_what_is_noted_again_is_durable_though_a_killed_process_had_noted_it() -> None:
    there = 0
    for moment in range(1, 20):
        disk = with_extents(range(0))
        ArchivedNotices(disk, "/log", ID).add(1)
        disk.crash_after(moment)
        try:
            ArchivedNotices(disk, "/log", ID).add(5)
        except SimCrash:
            disk = disk.crash(KEEP_ALL)
        disk.no_crash()
        notices = ArchivedNotices(disk, "/log", ID)
        there += notices.covers(5)
        notices.add(5)
        assert ArchivedNotices(disk.crash(LOSE_ALL), "/log", ID).covers(5), moment
    assert there > 1


def test_row_40_notices_that_can_not_be_read_say_that_nobody_was_told_anything() -> None:
    disk = with_extents(range(0))
    ArchivedNotices(disk, "/log", ID).add(5)
    good = disk.peek("/log/amqharch.fil")
    for at in range(len(good)):
        disk.poke("/log/amqharch.fil", good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert not any(ArchivedNotices(disk, "/log", ID).covers(s) for s in range(100)), at
    for bad in (
        b"",
        b"[]",
        b"5",
        b"null",
        b'{"archived": 5}',
        b'{"archived": [[1]]}',
        b"[" * 100_000,
        good[:-1],
        b"\xff",
    ):
        disk.poke("/log/amqharch.fil", bad)
        notices = ArchivedNotices(disk, "/log", ID)
        assert not notices.covers(5)
    notices.add(7)
    assert ArchivedNotices(disk, "/log", ID).covers(7)
    assert not ArchivedNotices(disk, "/log", b"z" * 16).covers(7)


def test_a_notice_that_can_not_be_written_is_not_believed() -> None:
    disk = with_extents(range(0))
    notices = ArchivedNotices(disk, "/log", ID)
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(OSError):
        notices.add(1)
    assert not notices.covers(1)
    notices.add(1)
    assert notices.covers(1)


def test_what_nobody_reported_is_not_covered_by_what_lies_around_it() -> None:
    disk = with_extents(range(0))
    notices = ArchivedNotices(disk, "/log", ID)
    notices.add(1)
    notices.add(3)
    assert [s for s in range(6) if notices.covers(s)] == [1, 3]
    notices.add(2)
    assert json.loads(disk.peek("/log/amqharch.fil"))["archived"] == [[1, 3]]


def test_a_notice_of_a_part_of_what_was_reported_takes_nothing_back() -> None:
    disk = with_extents(range(0))
    notices = ArchivedNotices(disk, "/log", ID)
    notices.add(1, 9)
    notices.add(3)
    notices.add(4, 6)
    assert [s for s in range(12) if notices.covers(s)] == list(range(1, 10))


def test_what_is_still_to_be_written_is_forgotten_durably() -> None:
    disk = with_extents(range(0))
    notices = ArchivedNotices(disk, "/log", ID)
    notices.add(1, 4)
    notices.add(8, 9)
    notices.forget_from(10)
    for sequence, left in ((8, [1, 2, 3, 4]), (3, [1, 2]), (1, [])):
        notices.forget_from(sequence)
        for seen in (notices, ArchivedNotices(disk.snapshot(LOSE_ALL), "/log", ID)):
            assert [s for s in range(12) if seen.covers(s)] == left
