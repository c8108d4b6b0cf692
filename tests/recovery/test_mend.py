"""Carrying out a plan of repair, step by step: what is done is durable before it says that it is done."""

import errno
import json

import pytest

from logger.at_rest import control_path
from logger.config import LogConfig, LogType
from logger.crc import crc32
from logger.history import index_name
from logger.whole_files import make_dirs, write_whole
from recovery.checkpoint import NAME, PREVIOUS
from recovery.mend import DONE, PLAN, UNREADABLE, _new_directory, carry_out, directories, fits
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL

REPAIR, LOG, EXTENT = "/data/repair-1", "/log", "/log/active/S0000001.LOG"


def planned(before: bytes, after: bytes | None) -> SimDisk:
    """A disk with one file, an extent, and the plan of a repair that changes or removes it."""
    disk = SimDisk()
    for directory in ("/log/active", f"{REPAIR}/new"):
        make_dirs(disk, directory)
    write_whole(disk, EXTENT, before)
    write_whole(disk, f"/log/active/{index_name(1)}", b"index")
    step = {"in": "log", "path": "active/S0000001.LOG", "before": crc32(before), "new": None, "after": None}
    if after is not None:
        write_whole(disk, f"{REPAIR}/new/0", after)
        step |= {"new": "new/0", "after": crc32(after)}
    write_whole(disk, f"{REPAIR}/{PLAN}", json.dumps({"steps": [step]}).encode())
    for directory in ("/log/active", f"{REPAIR}/new", REPAIR, "/data", "/log", "/"):
        disk.sync_dir(directory)
    return disk


@pytest.mark.parametrize("after", [b"mended", None])
def test_what_a_repair_has_changed_or_removed_is_so_after_a_crash_and_has_no_index(after: bytes | None) -> None:
    disk = planned(b"damaged", after)
    carry_out(disk, REPAIR, LOG)
    disk = disk.crash(LOSE_ALL)
    assert disk.exists(f"{REPAIR}/{DONE}")
    assert (disk.peek(EXTENT) if disk.exists(EXTENT) else None) == after
    assert not disk.exists(f"/log/active/{index_name(1)}")


@pytest.mark.parametrize("after", [b"mended", None])
def test_what_a_killed_repair_had_done_in_memory_is_durable_once_the_next_one_is_done(after: bytes | None) -> None:
    disk = planned(b"damaged", after)
    disk.unlink(f"/log/active/{index_name(1)}")
    disk.sync_dir("/log/active")
    if after is None:
        disk.unlink(EXTENT)
    else:
        write_whole(disk, f"{EXTENT}.new", after)
        disk.rename(f"{EXTENT}.new", EXTENT)
    carry_out(disk, REPAIR, LOG)
    disk = disk.crash(LOSE_ALL)
    assert disk.exists(f"{REPAIR}/{DONE}")
    assert (disk.peek(EXTENT) if disk.exists(EXTENT) else None) == after


def test_the_tenth_repair_comes_behind_the_ninth() -> None:
    disk = SimDisk()
    for number in (10, 9, 1):
        make_dirs(disk, f"/data/repair-{number}")
    assert directories(disk, "/data") == ["/data/repair-1", "/data/repair-9", "/data/repair-10"]


@pytest.mark.parametrize("where", [control_path(LOG), f"/data/{NAME}", f"/data/{PREVIOUS}"])
@pytest.mark.parametrize("then", [b"another", None])
def test_a_plan_does_not_fit_where_a_file_that_it_was_made_of_is_another_now(where: str, then: bytes | None) -> None:
    disk = planned(b"damaged", b"mended")
    made_of = [control_path(LOG), f"/data/{NAME}", f"/data/{PREVIOUS}"]
    for path in made_of:
        disk.poke(path, b"as it was")
    plan = json.loads(disk.peek(f"{REPAIR}/{PLAN}"))
    rests_on = {path.lstrip("/"): crc32(b"as it was") for path in made_of}
    disk.poke(f"{REPAIR}/{PLAN}", json.dumps(plan | {"rests_on": rests_on}).encode())
    config = LogConfig(path=LOG)
    assert fits(disk, REPAIR, config)
    if then is None:
        disk.remove(where)
    else:
        disk.poke(where, then)
    assert not fits(disk, REPAIR, config)


def test_a_new_plan_does_not_take_the_directory_of_one_that_fits_no_more_whose_originals_stay() -> None:
    disk = planned(b"damaged", b"mended")
    make_dirs(disk, f"{REPAIR}/data")
    disk.poke(f"{REPAIR}/data/kept", b"original")
    assert _new_directory(disk, "/data") == "/data/repair-2"
    assert disk.peek(f"{REPAIR}/data/kept") == b"original"


def test_what_a_repair_without_a_plan_has_left_is_not_taken_for_originals_of_the_next_one() -> None:
    disk = planned(b"damaged", b"mended")
    disk.remove(f"{REPAIR}/{PLAN}")
    left = [f"{REPAIR}/{part}/half" for part in ("log/active", "log", "data", "new")]
    for path in left:
        make_dirs(disk, path.rpartition("/")[0])
        disk.poke(path, b"half an original")
    assert _new_directory(disk, "/data") == REPAIR
    assert not any(map(disk.exists, left))


def test_a_plan_fits_where_the_archive_can_not_be_listed_for_now() -> None:
    disk = planned(b"damaged", b"mended")
    config = LogConfig(path=LOG)
    make_dirs(disk, config.archive_directory)
    listed = disk.list

    def refused(path: str) -> list[str]:
        if path == config.archive_directory:
            raise PermissionError(errno.EACCES, "not for this user", path)
        return listed(path)

    disk.list = refused  # type: ignore[method-assign]
    assert fits(disk, REPAIR, config)


@pytest.mark.parametrize("hidden", ["archive", "archive/S0000000.LOG"])
@pytest.mark.parametrize("when", ["planned", "completed"])
def test_a_plan_fits_where_another_user_may_not_look_at_the_archive(hidden: str, when: str) -> None:
    disk = planned(b"damaged", b"mended")
    config = LogConfig(path=LOG)
    make_dirs(disk, config.archive_directory)
    disk.poke(f"{config.archive_directory}/S0000000.LOG", b"archived")
    there = {"archive/S0000000.LOG": len(b"archived")}
    plan = json.loads(disk.peek(f"{REPAIR}/{PLAN}"))
    rests_on = {hidden: UNREADABLE} if when == "planned" else there
    disk.poke(f"{REPAIR}/{PLAN}", json.dumps(plan | {"rests_on": rests_on}).encode())
    if when == "completed":
        disk.fail(("list", "open"), errno.EACCES, once=False, where=lambda path: path.endswith(hidden))
    assert fits(disk, REPAIR, config)


@pytest.mark.parametrize("kind", ["list", "open"])
@pytest.mark.parametrize("where", ["active", "archive"])
def test_whether_a_plan_fits_is_not_told_where_files_can_not_be_looked_at_for_now(kind: str, where: str) -> None:
    disk = planned(b"damaged", b"mended")
    config = LogConfig(path=LOG, log_type=LogType.LINEAR)
    make_dirs(disk, config.archive_directory)
    disk.poke(f"{config.archive_directory}/S0000000.LOG", b"archived")
    disk.fail(kind, errno.EIO, where=lambda path: path.startswith(f"{LOG}/{where}"))
    with pytest.raises(OSError, match=r"archive|active"):
        fits(disk, REPAIR, config)
    assert fits(disk, REPAIR, config)
