"""Log files: the beginning of a log, its durable end, and places between; what is missing or was cut at an end."""

import errno
import gzip
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmgr
from logger import lsn as lsns
from logger.errors import LogDamaged
from logger.extent import DATA as FRONT
from logger.extent import file_name, linear_number
from pipeline import dividing, finding
from pipeline.log_files import Last, LogFiles
from recovery import extent_index
from tests.pipeline import reference
from tests.pipeline.many_extents import a_log, folder
from tests.pipeline.reference import Row
from tests.pipeline.works import ACTIVE, Works, told_of
from tests.qmgr.world import DATA, NAME, World
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL

# ---- the beginning, the end, and places between


def test_the_end_is_behind_the_last_record(plain: tuple[Works, list[Row]]) -> None:
    works, rows = plain
    log = works.log()
    end = rows[-1]["end_lsn"]
    assert log.end(disk=works.disk) == end
    for row in rows[::40]:
        assert log.end(row["end_lsn"], works.disk) == end
    assert log.end(end, works.disk) == end
    assert log.first(works.disk) == log.extent_bytes


def test_the_end_is_made_durable() -> None:
    for read in (False, True):
        works = Works(log_sync="os")
        works.put()
        before = works.log().end(disk=works.world.disk.snapshot(LOSE_ALL))
        end = works.log().end(disk=works.disk) if read else before
        assert (end > before) == read
        assert works.log().end(disk=works.world.disk.crash(LOSE_ALL)) == end


def unforced(**options: Any) -> tuple[World, int]:
    """A unit of work that goes over extents which nobody has forced; an LSN that was durable before."""
    world = World(log_type="linear", log_primary_files=12, **options)
    world.qm.define_queue("Q")
    durable = finding.find(DATA, NAME, world.disk).end(disk=world.disk.snapshot(LOSE_ALL))
    unit = world.qm.begin()
    for _ in range(80):
        unit.put("Q", b"y" * 7000)
    return world, durable


@pytest.mark.parametrize("find", [folder, lambda disk: finding.find(DATA, NAME, disk)])
@pytest.mark.parametrize("from_before", [False, True])
def test_the_end_is_made_durable_over_several_extents(find: Callable[[SimDisk], LogFiles], from_before: bool) -> None:
    world, durable = unforced()
    log, disk = find(world.disk), world.disk
    assert find(disk).end(disk=disk.snapshot(LOSE_ALL)) < disk_end(disk) - log.extent_bytes
    end = log.end(durable if from_before else None, disk)
    assert end > durable + log.extent_bytes
    after = disk.crash(LOSE_ALL)
    assert log.end(durable, after) == end, "read from what had been durable before"
    world.disk = after
    world.start()
    world.qm.put("Q", b"later")
    found = [row for part in dividing.divided(log, end, log.end(disk=after), after) for row in told_of(part, after)]
    assert b"later" in [row["body"] for row in found]


def disk_end(disk: SimDisk) -> int:
    """Where the log ends, without anything made durable."""
    return finding.find(DATA, NAME, disk).end(disk=disk.snapshot())


def test_no_other_extents_are_synced_than_those_that_may_need_it() -> None:
    for find in (folder, lambda disk: finding.find(DATA, NAME, disk)):
        works = a_log()
        log, disk = find(works.world.disk), works.world.disk
        newest = log.end(disk=disk) // log.extent_bytes
        older = f"{ACTIVE}/{file_name(linear_number(newest - 1))}"
        disk.fail("sync", errno.EIO, where=older.__gt__, once=False)
        assert log.end(disk=disk) // log.extent_bytes == newest
        disk.fail("sync", errno.EIO, where=older.__lt__)
        with pytest.raises(OSError, match=r"EIO|Input/output"):
            log.end(disk=disk)
        disk.heal()
        assert newest > 5


@pytest.mark.parametrize("find", [folder, lambda disk: finding.find(DATA, NAME, disk)])
def test_a_disk_that_can_not_sync_tells_no_end_that_a_crash_takes_back(
    find: Callable[[SimDisk], LogFiles],
) -> None:
    world, durable = unforced()
    disk = world.disk
    disk.fail("sync", errno.EROFS, where=lambda path: path.endswith(".LOG"), once=False)
    found = find(disk).end(disk=disk)
    disk.heal()
    after = disk.crash(LOSE_ALL)
    assert find(after).first(after) < found <= find(after).end(disk=after)
    ends = {row["end_lsn"] for row in reference.rows(find(after), after)}
    assert found in ends and found <= durable + 4096


def test_a_disk_that_can_not_sync_is_read_up_to_what_the_log_says_was_durable() -> None:
    works = Works()
    for _ in range(5):
        works.one()
    disk = works.world.disk
    end = works.log().end(disk=disk)
    disk.fail("sync", errno.EROFS, where=lambda path: path.endswith(".LOG"), once=False)
    found = works.log().end(disk=disk)
    rows = reference.rows(works.log(), disk)
    assert works.log().durable(disk) < found < end, "by what records say, which is later than the control file does"
    assert found in {row["end_lsn"] for row in rows}
    disk.heal()


def test_a_disk_that_can_only_be_read_is_read_up_to_the_last_record_after_an_end_in_order() -> None:
    works = Works()
    for _ in range(5):
        works.one()
    works.stop()
    disk = works.world.disk
    disk.fail("sync", errno.EROFS, where=lambda path: path.endswith(".LOG"), once=False)
    found = works.log().end(disk=disk)
    disk.heal()
    assert found == max(row["end_lsn"] for row in reference.rows(works.log(), disk))


def test_the_first_record_of_a_moment_is_found(
    plain: tuple[Works, list[Row]], indexed: tuple[Works, list[Row]]
) -> None:
    for works, rows in (plain, indexed):
        log = works.log()
        for row in rows[::150]:
            wanted = next(other["lsn"] for other in rows if other["time"] >= row["time"])
            assert log.at_time(row["time"], works.disk) == wanted
        assert log.at_time(0, works.disk) == rows[0]["lsn"]
        assert log.at_time(rows[-1]["time"] + 1, works.disk) == log.end(disk=works.disk)


@pytest.mark.parametrize("which", ["plain", "indexed"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_boundary_is_where_a_record_ends(which: str, data: st.DataObject, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    log = works.log()
    ends = sorted({row["end_lsn"] for row in rows})
    start = data.draw(st.sampled_from([log.first(works.disk), *ends]))
    end = data.draw(st.sampled_from([ends[-1], ends[-1], start, start + 80_000]))
    most = data.draw(st.sampled_from([1, 100, 5000, 300_000, 1 << 40]))
    found = log.boundary(start, min(end, ends[-1]), most, works.disk)
    later = [one for one in ends if start < one <= min(end, ends[-1])]
    near = [one for one in later if one <= start + most]
    assert found == (near[-1] if near else later[0] if later else start)


@pytest.mark.parametrize("which", ["plain", "indexed"])
def test_the_last_record_before_an_lsn_is_told(which: str, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    log = works.log()
    told_of = {row["end_lsn"]: Last(row["lsn"], row["epoch"], row["time"], row["end_lsn"]) for row in rows}
    ends = sorted(told_of)
    for end in (*ends[:3], *ends[3::97], ends[-1]):
        assert log.last_before(end, works.disk) == told_of[end]
    begun = next(row for row in rows if row["end_lsn"] - row["lsn"] > log.extent_bytes)
    for inside in (begun["lsn"] + 8, begun["lsn"] + log.extent_bytes, begun["end_lsn"] - 8):
        assert log.last_before(inside, works.disk) == told_of[begun["end_lsn"]]
    assert log.last_before(log.extent_bytes, works.disk) is None


def test_a_boundary_is_found_around_a_record_longer_than_an_extent(indexed: tuple[Works, list[Row]]) -> None:
    works, rows = indexed
    log = works.log()
    history = log.history(works.disk)
    found = [extent_index.load(works.disk, place, log.log_id) for place in history.places().values()]
    assert any(index is not None and not index.records for index in found)
    first, ends = log.first(works.disk), sorted({row["end_lsn"] for row in rows})
    for most in range(50_000, ends[-1] - first, 100_000):
        assert log.boundary(first, ends[-1], most, works.disk) == max(one for one in ends if one <= first + most)
    begins = next(row["lsn"] for row in rows if row["end_lsn"] - row["lsn"] > log.extent_bytes)
    assert log.boundary(begins, ends[-1], 100, works.disk) == next(one for one in ends if one > begins)
    assert log.boundary(begins, begins + 8, 100, works.disk) == begins, "what ends behind the end is not in there"


# ---- what is missing, was cut, or can't be read


@pytest.mark.parametrize("how", ["by another tool", "cut", "damaged"])
def test_first_extents_that_are_there_and_can_not_be_read_are_not_passed_over(how: str) -> None:
    """As those of a folder that somebody has compressed with `gzip`: a log that began behind them would be shorter."""
    disk = a_log().world.disk
    for number in (0, 1):
        path = f"{ACTIVE}/S000000{number}.LOG"
        content = disk.peek(path)
        disk.remove(path)
        if how == "by another tool":
            path, content = f"{path}.gz", gzip.compress(content)
        elif how == "cut":
            content = content[:-8192]
        else:
            content = bytes(FRONT + 64) + content[FRONT + 64 :]
        disk.poke(path, content)
    log = finding.find(ACTIVE, disk=disk)
    with pytest.raises(LogDamaged, match=f"{re.escape(path)} .* move it away to do without it"):
        log.first(disk)
    disk.remove(path)
    assert log.first(disk) == 3 * log.extent_bytes


def test_an_extent_that_may_not_be_read_is_not_taken_for_a_missing_one() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    end = log.end(disk=disk)
    disk.fail("open", errno.EACCES, where=lambda path: path.endswith("S0000002.LOG"), once=False)
    for ask in (log.first, lambda disk: log.unbroken(end, disk)):
        with pytest.raises(PermissionError, match="Permission denied"):
            ask(disk)
    disk.heal()
    disk.remove(f"{ACTIVE}/S0000002.LOG")
    assert log.unbroken(end, disk) == 4 * log.extent_bytes


def test_an_extent_that_can_not_be_read_just_once_is_not_taken_for_a_missing_one() -> None:
    works = a_log()
    disk, log = works.world.disk, works.log()
    first, end = log.first(disk), log.end(disk=disk)
    for ask, answer in ((lambda: log.end(disk=disk), end), (lambda: log.has(first, end, disk), True)):
        for path in disk.files(ACTIVE):
            for nth in count(1):
                fault = disk.fail("open", errno.EIO, nth=nth, where=path.__eq__)
                try:
                    assert ask() == answer
                except OSError as exc:
                    assert exc.filename == path
                disk.heal()
                if not fault.fired:
                    break


def test_no_one_is_told_to_do_without_an_extent_between_others() -> None:
    disk = a_log().world.disk
    path = f"{ACTIVE}/S0000002.LOG"
    disk.poke(path, disk.peek(path)[:-8192])
    with pytest.raises(LogDamaged, match=rf"{path} was cut, .*; restore it from a backup$"):
        folder(disk).first(disk)


def test_a_log_that_ends_before_what_was_durable_is_refused() -> None:
    """Its newest extents are missing, or were cut; a folder of extents alone can't know."""
    works = a_log()
    disk, log = works.world.disk, works.log()
    end, earlier = log.end(disk=disk), log.last_before(3 * log.extent_bytes, disk)
    assert earlier is not None
    newest = (end - 1) // log.extent_bytes
    path = f"{ACTIVE}/{file_name(newest - 1)}"
    good = disk.peek(path)
    disk.poke(path, good[:FRONT] + bytes(len(good) - FRONT))
    for since in (None, earlier.end):
        with pytest.raises(LogDamaged, match=rf"{path} is damaged at .* durable up to {re.escape(lsns.text(end))}"):
            log.end(since, disk)
    for gone in (newest, newest - 1):
        for later in range(gone, newest + 9):
            if disk.exists(f"{ACTIVE}/{file_name(later - 1)}"):
                disk.remove(f"{ACTIVE}/{file_name(later - 1)}")
        for since in (None, earlier.end):
            with pytest.raises(LogDamaged, match=rf"{file_name(gone - 1)} is missing") as caught:
                log.end(since, disk)
            assert caught.value.lsn == gone * log.extent_bytes
    assert folder(disk).end(disk=disk) <= (newest - 1) * log.extent_bytes


def test_a_queue_manager_that_has_gone_on_far_meanwhile_has_lost_no_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the control file named may be removed by the time that it is looked for."""
    works = a_log()
    disk, log = works.world.disk, works.log()
    end = log.end(disk=disk)
    disk.remove(f"{ACTIVE}/S0000000.LOG")
    told, newest = [1], LogFiles._newest
    monkeypatch.setattr(LogFiles, "_newest", lambda self, disk: told.pop() if told else newest(self, disk))
    assert log.end(disk=disk) == end
    assert not told


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "zeros"])
@pytest.mark.parametrize("find", [folder, lambda disk: finding.find(DATA, NAME, disk)])
def test_a_log_without_its_newest_extent_is_no_shorter_log(find: Callable[[SimDisk], LogFiles], how: str) -> None:
    """After a crash the control file does not say that anything in it was durable, but that it has a part of it."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    for _ in range(40):
        world.qm.put("A", bytes(7000))
    disk = world.disk.crash(KEEP_ALL)
    log = find(disk)
    end = log.end(disk=disk)
    path = f"{ACTIVE}/{file_name(linear_number(end // log.extent_bytes))}"
    content = disk.peek(path)
    disk.remove(path)
    if how != "gone":
        disk.poke(path, {"empty": b"", "cut": content[:-8192], "zeros": bytes(len(content))}[how])
    if log.control or how != "gone":
        with pytest.raises(LogDamaged, match=path):
            find(disk).end(disk=disk)
    else:
        assert find(disk).end(disk=disk) < end, "a folder may lack the newest ones"
    if log.control:
        with pytest.raises(qmgr.Damaged, match=path):
            qmgr.start(NAME, data_path=DATA, disk=disk, clock=world.clock, background=False)


def test_who_has_read_up_to_the_newest_extent_hears_that_it_is_missing() -> None:
    """A stream, before anything else says that there is more than it has read."""
    world = World(log_type="linear")
    world.qm.define_queue("A")
    log = finding.find(DATA, NAME, world.disk)
    while log._newest(world.disk) < 3:
        world.qm.put("A", bytes(7000))
    last = log.last_before(3 * log.extent_bytes, world.disk)
    assert last is not None
    assert log.end(last.end, world.disk) > last.end >= log.durable(world.disk)
    path = f"{ACTIVE}/{file_name(linear_number(3))}"
    world.disk.remove(path)
    assert log.grown(last.end, world.disk)
    with pytest.raises(LogDamaged, match=f"{path} is missing"):
        log.end(last.end, world.disk)
