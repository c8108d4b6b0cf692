"""A log at rest: it is made and deleted durably, with all that is its own and nothing else."""

import itertools

from logger import at_rest, claims, notices, undone
from logger.config import LogConfig, LogType
from logger.whole_files import make_dirs
from tests.logger.extents import ACTIVE, ARCHIVE, ID, content, name
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL

THEIRS = b"z" * 16


def made(epoch: int = 0) -> SimDisk:
    disk = SimDisk()
    config = LogConfig(path="/log", log_type=LogType.LINEAR, primary_files=2, secondary_files=1, file_pages=64)
    at_rest.create(disk, config, ID, epoch)
    return disk


def test_a_log_that_was_made_is_there_whatever_crashes_then_and_begins_behind_every_epoch_that_was_used() -> None:
    disk = made(epoch=7).crash(LOSE_ALL)
    state, reader = at_rest.read_only(disk, "/log")
    assert (state.log_id, state.epoch, list(reader.records(state.head, durable=state.clean_end))) == (ID, 7, [])
    reader.close()
    assert not at_rest.was_started(disk, "/log")


def test_what_is_no_log_any_more_does_not_come_back() -> None:
    disk = made()
    at_rest.remove_control(disk, "/log")
    assert at_rest.belongs_to(disk.crash(LOSE_ALL), "/log", {THEIRS}), "it is none at all"


def test_a_log_is_deleted_durably_with_all_that_is_its_own_and_nothing_else() -> None:
    disk = made()
    disk.mkdir(ARCHIVE)
    claims.claim(disk, ARCHIVE, ID, "the log of QM1")
    claims.note_used(disk, "/log", ARCHIVE)
    notices.ArchivedNotices(disk, "/log", ID).add(1)
    undone.write(disk, "/log", ID, undone.Undone(frozenset({name(1)})))
    for path in (f"{ARCHIVE}/{name(1)}", f"{ARCHIVE}/{name(2)}.gz", f"{ACTIVE}/R0000001.LOG", f"{ACTIVE}/S0000000.IDX"):
        disk.poke(path, b"of the log")
    stay = [f"{ACTIVE}/notes.txt", f"{ARCHIVE}/notes.txt", "/log/notes.txt"]
    for path in stay:
        disk.poke(path, b"not of the log")
    at_rest.delete(disk, "/log")
    assert disk.crash(LOSE_ALL).files("/") == sorted(stay)


def test_directories_that_a_log_leaves_empty_go_with_it_for_good() -> None:
    disk = made()
    make_dirs(disk, ARCHIVE)
    at_rest.delete(disk, "/log")
    after = disk.crash(LOSE_ALL)
    assert (after.exists("/log"), after.list("/log")) == (True, [])


def test_an_archive_below_the_log_that_is_another_logs_stays() -> None:
    disk = made()
    make_dirs(disk, ARCHIVE)
    claims.claim(disk, ARCHIVE, THEIRS, "the log of QM2")
    disk.poke(f"{ARCHIVE}/{name(1)}", content(1, log_id=THEIRS))
    for _ in range(2):  # again: it was interrupted behind that
        at_rest.delete(disk, "/log")
        assert disk.files("/") == [f"{ARCHIVE}/{claims.mark_name(THEIRS)}", f"{ARCHIVE}/{name(1)}"]


def test_whose_a_log_is_its_extents_say_where_the_control_file_does_not() -> None:
    disk = made()
    disk.poke(f"{ACTIVE}/{name(9)}", content(9, log_id=THEIRS))
    assert at_rest.log_ids(disk, "/log") == {ID}
    disk.remove(at_rest.control_path("/log"))
    assert at_rest.log_ids(disk, "/log") == {ID, THEIRS}
    assert at_rest.was_started(disk, "/log"), "one of them holds a part of a log"


def test_a_deletion_of_a_log_without_its_control_file_is_finished_wherever_it_was_interrupted() -> None:
    for interrupted in itertools.count():
        disk = made()
        disk.remove(at_rest.control_path("/log"))
        disk.mkdir(ARCHIVE)
        claims.claim(disk, ARCHIVE, ID, "the log of QM1")
        disk.poke(f"{ARCHIVE}/{name(1)}", b"of the log")
        left = interrupted

        def interrupt(kind: str, path: str) -> None:
            nonlocal left
            if left == 0 and kind == "unlink":
                raise KeyboardInterrupt
            left -= kind == "unlink"

        disk.before_effect = interrupt
        try:
            at_rest.delete(disk, "/log")
        except KeyboardInterrupt:
            disk.before_effect = None
            at_rest.delete(disk, "/log")
            assert disk.files("/") == []
        else:
            assert interrupted > 3
            break
