"""Archive: extents are moved, compressed and removed; whatever crashes or fails, none is lost and there is no gap."""

import contextlib
import errno
import itertools
from collections.abc import Callable, Iterator

import pytest

from logger import claims, undone
from logger.archive import Archive, undone_in
from logger.archive_plan import Action, ArchivePolicy, Held, Plan
from logger.compressed import Compression, compress
from logger.config import LogType
from logger.disk import PAGE, Disk
from logger.errors import ArchiveFailed, LogError
from logger.extent import linear_number
from logger.history import History, index_name
from tests.conftest import SOAK
from tests.logger.extents import (
    ACTIVE,
    ARCHIVE,
    HOUR,
    ID,
    SMALL,
    START,
    content,
    name,
    with_extents,
    written_by_the_log,
)
from tests.sim.disk import EFFECTS, SimCrash, SimDisk
from tests.sim.loss import DATA_ONLY, KEEP_ALL, LOSE_ALL, NAMES_ONLY, SIZES_ONLY, Loss, mixed

LAST = 6  # the extent that is written now
NOW = START + LAST * HOUR
LOSSES = [KEEP_ALL, LOSE_ALL, NAMES_ONLY, SIZES_ONLY, DATA_ONLY, *(mixed(seed) for seed in range(6))]


def made(disk: Disk) -> Archive:
    return Archive(disk, History(disk, [ACTIVE, ARCHIVE], ID, SMALL), ARCHIVE)


def plan(disk: Disk, action: Action, after: int = 0, active_from: int = LAST - 1, **rest: object) -> Plan:
    return made(disk).plan(action, after=after, now_us=NOW, active_from=active_from, **rest)  # type: ignore[arg-type]


def do(disk: Disk, action: Action, after: int = 0, **rest: object) -> None:
    made(disk).run(plan(disk, action, after, **rest))


def everything(disk: Disk) -> None:
    """A life of the extents in the order that most will choose, and in another."""
    do(disk, Action.ARCHIVE, after=3 * 3600)
    do(disk, Action.COMPRESS, after=2 * 3600)
    do(disk, Action.ARCHIVE, after=2 * 3600)
    do(disk, Action.COMPRESS, compression=Compression.ZSTD)
    do(disk, Action.REMOVE, after=2 * 3600)


def held(disk: SimDisk) -> dict[int, bytes]:
    """Every extent as it reads."""
    history = History(disk, [ACTIVE, ARCHIVE], ID, SMALL)
    found = {}
    for sequence in history.places():
        file = history.open(sequence)
        assert file is not None
        found[sequence] = file.read(0, file.size())
        file.close()
    return found


def extents_in(disk: SimDisk) -> list[str]:
    """All files of the log but the mark and the note of the archive."""
    mine = claims.mark_name(ID), claims.USED
    return [path for path in disk.files("/log") if path.rpartition("/")[2] not in mine]


def check(disk: SimDisk, lowest: int = 1, highest: int = LAST) -> None:
    """All extents from somewhere at or after `lowest` on are there, and hold what they did."""
    found = held(disk)
    assert list(found) == list(range(min(found), highest + 1))
    assert min(found) >= lowest
    assert found == {sequence: content(sequence) for sequence in found}


def test_a_plan_says_what_it_would_do() -> None:
    disk = with_extents(range(1, 3))
    first = plan(disk, Action.ARCHIVE).steps[0]
    size = len(content(1))
    assert first.text() == f"archive {ACTIVE}/S0000000.LOG to {ARCHIVE}/S0000000.LOG ({size} bytes)"
    assert plan(disk, Action.REMOVE).steps[0].text() == f"remove {ACTIVE}/S0000000.LOG ({size} bytes)"
    assert plan(disk, Action.REMOVE).size == size
    assert disk.files() == [f"{ACTIVE}/S0000000.LOG", f"{ACTIVE}/S0000001.LOG"]


# Doing it


def test_archived_means_moved_with_the_same_bytes() -> None:
    disk = with_extents(range(1, LAST + 1))
    steps: list[tuple[int, int]] = []
    ways: list[None] = []
    todo = plan(disk, Action.ARCHIVE, after=2 * 3600)
    done = made(disk).run(todo, progress=lambda *at: steps.append(at), give_way=lambda: ways.append(None))
    assert done.done == todo.steps
    assert done.held is None
    assert extents_in(disk) == [
        *(f"{ACTIVE}/{name(s)}" for s in (4, 5, 6)),
        *(f"{ARCHIVE}/{name(s)}" for s in (1, 2, 3)),
    ]
    check(disk)
    assert steps == sorted(steps)
    assert steps[-1] == (todo.size, todo.size)
    assert len(ways) >= 6
    assert plan(disk, Action.ARCHIVE, after=2 * 3600).steps == ()
    assert disk.open_files == 0


@pytest.mark.parametrize("kind", list(Compression))
def test_compressed_in_place_wherever_it_lies(kind: Compression) -> None:
    disk = with_extents(range(1, LAST + 1))
    do(disk, Action.ARCHIVE, after=4 * 3600)
    do(disk, Action.COMPRESS, compression=kind)
    names = [f"{ACTIVE}/{name(s)}{kind.suffix}" for s in (2, 3, 4)]
    assert extents_in(disk) == sorted(
        [f"{ARCHIVE}/{name(1)}{kind.suffix}", *names, f"{ACTIVE}/{name(5)}", f"{ACTIVE}/{name(6)}"]
    )
    check(disk)
    assert plan(disk, Action.COMPRESS).steps == ()


def test_removed_means_gone_with_every_copy_and_index() -> None:
    disk = with_extents(range(1, LAST + 1))
    do(disk, Action.COMPRESS, after=3 * 3600)
    disk.poke(f"{ACTIVE}/{name(1)}", content(1))  # what a crash left
    disk.poke(f"{ACTIVE}/S0000000.IDX", b"index")
    disk.poke(f"{ACTIVE}/S0000004.IDX", b"index")
    do(disk, Action.REMOVE, after=4 * 3600)
    assert disk.files("/log") == [
        f"{ACTIVE}/S0000001.LOG.gz",
        f"{ACTIVE}/S0000002.LOG",
        f"{ACTIVE}/S0000003.LOG",
        f"{ACTIVE}/S0000004.IDX",
        f"{ACTIVE}/S0000004.LOG",
        f"{ACTIVE}/S0000005.LOG",
    ]


def test_a_policy_is_kept_in_one_go_and_again_as_time_goes_by() -> None:
    disk = with_extents(range(1, LAST + 1))
    policy = ArchivePolicy(archive_after=2 * 3600, compress_after=3 * 3600, remove_after=4 * 3600)
    seen = []
    for hours in range(4):
        moment = {"now_us": NOW + hours * HOUR, "active_from": LAST - 1, "needed_from": lambda: {"media recovery": 3}}
        done = made(disk).apply_policy(policy, **moment)  # type: ignore[arg-type]
        check(disk)
        seen.append({action: [step.sequence for step in outcome.done] for action, outcome in done.items()})
    assert seen == [
        {Action.REMOVE: [1], Action.ARCHIVE: [2, 3], Action.COMPRESS: [2]},
        {Action.REMOVE: [2], Action.ARCHIVE: [4], Action.COMPRESS: [3]},
        {Action.REMOVE: [], Action.ARCHIVE: [], Action.COMPRESS: [4]},
        {Action.REMOVE: [], Action.ARCHIVE: [], Action.COMPRESS: []},
    ]
    assert done[Action.REMOVE].held == Held(sequence=3, path=f"{ARCHIVE}/{name(3)}.gz", gates=("media recovery",))
    assert made(disk).apply_policy(ArchivePolicy(), now_us=NOW, active_from=LAST) == {}


def test_a_gate_that_came_down_since_the_plan_was_made_holds() -> None:
    disk = with_extents(range(1, LAST + 1))
    asked = iter([{}, {"reader": 2}])
    done = made(disk).run(plan(disk, Action.REMOVE), needed_from=lambda: next(asked))
    assert [step.sequence for step in done.done] == [1]
    assert done.held == Held(sequence=2, path=f"{ACTIVE}/{name(2)}", gates=("reader",))
    assert list(held(disk)) == [2, 3, 4, 5, 6]


def test_the_index_goes_along_and_one_without_its_extent_is_swept() -> None:
    disk = with_extents(range(1, LAST + 1))
    disk.poke(f"{ACTIVE}/S0000000.IDX", b"index")
    disk.poke(f"{ACTIVE}/S0000077.IDX", b"of nothing")
    disk.poke(f"{ACTIVE}/S0000001.IDX.new", b"half")
    disk.poke(f"{ACTIVE}/notes.new", b"somebody's own")
    do(disk, Action.ARCHIVE, after=4 * 3600)
    do(disk, Action.COMPRESS, after=4 * 3600)
    assert disk.peek(f"{ARCHIVE}/S0000000.IDX") == b"index"
    assert [path for path in disk.files("/log") if "IDX" in path] == [f"{ARCHIVE}/S0000000.IDX"]
    assert disk.exists(f"{ACTIVE}/notes.new")


def test_an_index_that_can_not_be_taken_along_holds_up_nothing() -> None:
    disk = with_extents(range(1, LAST + 1))
    disk.poke(f"{ACTIVE}/S0000000.IDX", b"index")
    disk.fail(EFFECTS, errno.ENOSPC, once=False, where=lambda path: path.startswith(f"{ARCHIVE}/S0000000.IDX"))
    do(disk, Action.ARCHIVE, after=4 * 3600)
    disk.heal()
    assert [path for path in disk.files("/log") if "S0000000" in path] == [f"{ARCHIVE}/{name(1)}"]
    check(disk)


def test_a_file_that_nobody_can_read_is_no_stranger_in_the_place_of_another() -> None:
    disk = with_extents(range(1, LAST + 1))
    steps = plan(disk, Action.COMPRESS, after=4 * 3600)
    disk.poke(f"{ACTIVE}/{name(1)}.gz", b"garbage")
    made(disk).run(steps)
    assert [path for path in disk.files("/log") if "S0000000" in path] == [f"{ACTIVE}/{name(1)}.gz"]
    check(disk)


def test_of_several_copies_the_others_are_removed_when_one_is_gone_already() -> None:
    disk = with_extents(range(1, LAST + 1))
    do(disk, Action.COMPRESS, after=4 * 3600)
    disk.poke(f"{ACTIVE}/{name(1)}", content(1))  # what a crash left
    steps = plan(disk, Action.REMOVE, after=4 * 3600)
    disk.remove(steps.steps[0].paths[0])
    made(disk).run(steps)
    assert [path for path in disk.files("/log") if "S0000000" in path] == []


def test_what_is_gone_when_its_turn_comes_is_passed_over() -> None:
    for action in Action:
        disk = with_extents(range(1, LAST + 1))
        todo = plan(disk, action)
        disk.remove(f"{ACTIVE}/{name(1)}")
        made(disk).run(todo)
        assert list(held(disk)) == ([2, 3, 4, 5, 6] if action is not Action.REMOVE else [5, 6])


def test_another_queue_managers_extent_is_not_written_over() -> None:
    disk = with_extents(range(1, LAST + 1))
    disk.mkdir(ARCHIVE)
    disk.poke(f"{ARCHIVE}/{name(1)}", content(1, log_id=b"y" * 16))
    with pytest.raises(ArchiveFailed, match=r"another queue manager's log.*ArchivePath of its own"):
        do(disk, Action.ARCHIVE)
    assert disk.peek(f"{ARCHIVE}/{name(1)}") == content(1, log_id=b"y" * 16)
    disk.poke(f"{ARCHIVE}/{name(1)}", content(10_000_001))
    with pytest.raises(ArchiveFailed, match="another part of this log"):
        do(disk, Action.ARCHIVE)
    disk.remove(f"{ARCHIVE}/{name(1)}")
    do(disk, Action.ARCHIVE)
    check(disk)


def test_an_archive_belongs_to_one_log_alone() -> None:
    """Two would write under the same temporary names, sweep each other's files, and drop what the other has made."""
    disk = with_extents(range(1, LAST + 1))
    do(disk, Action.ARCHIVE, after=4 * 3600)
    theirs = b"z" * 16
    other = "/other/active"
    for path in ("/other", other):
        disk.mkdir(path)
    for sequence in range(7, 10):
        disk.poke(f"{other}/{name(sequence)}", content(sequence, log_id=theirs))
    disk.poke(f"{ARCHIVE}/{name(2)}.new", b"half made")
    disk.poke(f"{ARCHIVE}/S0000099.IDX", b"index")
    archive = Archive(disk, History(disk, [other, ARCHIVE], theirs, SMALL), ARCHIVE)
    todo = archive.plan(Action.ARCHIVE, after=0, now_us=START + 99 * HOUR, active_from=9)
    assert len(todo.steps) == 2
    with pytest.raises(ArchiveFailed, match=r"archive of another queue manager's log.*ArchivePath of its own"):
        archive.run(todo)
    archive.run(Plan(steps=()))
    assert disk.exists(f"{ARCHIVE}/{name(2)}.new")
    assert disk.exists(f"{ARCHIVE}/S0000099.IDX")
    assert len([path for path in disk.files("/other") if "LOG" in path]) == 3
    do(disk, Action.ARCHIVE)
    check(disk)
    assert not disk.exists(f"{ARCHIVE}/S0000099.IDX")


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("mount_point", [False, True])
def test_an_archive_that_is_not_mounted_is_no_place_for_copies(action: Action, mount_point: bool) -> None:
    """They would be hidden when it is again; and to remove what is younger than that makes a gap."""
    disk = with_extents(range(1, LAST + 1))
    do(disk, Action.ARCHIVE, after=4 * 3600)
    away = {path: disk.peek(path) for path in disk.files(ARCHIVE)}
    for path in away:
        disk.remove(path)
    if not mount_point:
        disk.rmdir(ARCHIVE)
    before = disk.files()
    with pytest.raises(ArchiveFailed, match="mount its file system"):
        do(disk, action)
    assert disk.files() == before
    disk.mkdir(ARCHIVE)
    for path, data in away.items():
        disk.poke(path, data)
    do(disk, action)
    check(disk)


def test_an_archive_that_is_gone_for_good_is_begun_anew_when_its_line_is() -> None:
    disk = with_extents(range(1, LAST + 1))
    do(disk, Action.ARCHIVE, after=4 * 3600)
    for path in disk.files(ARCHIVE):
        disk.remove(path)
    with pytest.raises(ArchiveFailed, match=r"take its line out of /log/amqharch\.dir"):
        do(disk, Action.ARCHIVE)
    disk.poke(f"/log/{claims.USED}", b"")
    do(disk, Action.ARCHIVE)
    check(disk, lowest=2)


@pytest.mark.parametrize("action", [Action.ARCHIVE, Action.COMPRESS])
def test_row_23_a_copy_that_does_not_read_back_the_same_is_given_up(action: Action) -> None:
    disk = with_extents(range(1, LAST + 1))

    def flip(kind: str, path: str) -> None:
        if kind == "sync" and path.endswith(".new"):
            node = disk._file(path)
            node.own_live()[len(node.live) // 2] ^= 1

    disk.before_effect = flip
    with pytest.raises(ArchiveFailed, match=r"was not what .* holds when it was read back.*still where it was"):
        do(disk, action)
    disk.before_effect = None
    assert extents_in(disk) == [f"{ACTIVE}/{name(s)}" for s in range(1, LAST + 1)]
    check(disk)


# Crashes: row 23


def fresh() -> SimDisk:
    return with_extents(range(1, LAST + 1))


def moments(work: Callable[[Disk], None], first: int = 1, every: int = 1) -> Iterator[SimDisk]:
    """The disk dead before each call that changes it, or every so many, and at the end."""
    whole = fresh()
    before = whole.effects
    work(whole)
    assert whole.effects - before > 70
    for moment in range(first, whole.effects - before + 1, every):
        disk = fresh()
        disk.crash_after(moment)
        with pytest.raises(SimCrash):
            work(disk)
        yield disk
    yield whole


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_row_23_a_crash_at_any_call_loses_no_extent_and_the_work_can_be_done_again(loss: Loss) -> None:
    for disk in moments(everything) if SOAK else moments(everything, 1 + LOSSES.index(loss) % 7, 7):
        after = disk.crash(loss)
        check(after)
        everything(after)
        again = after.crash(LOSE_ALL)
        check(again)
        if loss.alive:  # the killed one had removed an extent and not synced that: it is back, and is removed again
            everything(again)
        assert list(held(again)) == [4, 5, 6]
        assert not [path for path in again.files("/log") if path.endswith(".new")]


def killed(moment: int) -> SimDisk:
    """The disk of a process that was killed while the machine went on: what was not synced still is not."""
    disk = fresh()
    disk.crash_after(moment)
    with pytest.raises(SimCrash):
        everything(disk)
    disk.dead = False
    disk.no_crash()
    return disk


def test_row_23_killed_anywhere_and_then_a_power_failure_anywhere() -> None:
    """The first crash leaves names and bytes in memory only; whoever goes on must not build on them."""
    for first in range(1, 75, 1 if SOAK else 7):
        for second in range(1 + first % 6, 200, 6):
            disk = killed(first)
            disk.crash_after(second)
            try:
                everything(disk)
            except SimCrash:
                for loss in (LOSE_ALL, DATA_ONLY, mixed(first), mixed(second)):
                    check(disk.crash(loss))
            else:
                break


def test_row_23_a_file_whose_removal_was_killed_does_not_come_back_before_others_that_went_later() -> None:
    """A power failure may take one of two removals and leave the other: the older one's alone would make a gap."""
    whole = fresh()
    before = len(whole.trace)
    everything(whole)
    tried = 0
    for first, (done, next_) in enumerate(itertools.pairwise(whole.trace[before:]), 2):
        if done[0] != "unlink" or not done[1].startswith(ARCHIVE) or next_[0] != "sync_dir":
            continue
        for second in range(1, 5):
            disk = killed(first)
            disk.crash_after(second)
            with contextlib.suppress(SimCrash):
                everything(disk)
            for seed in range(50):
                check(disk.crash(Loss(seed=seed, sectors="new", sizes="new")))
                tried += 1
    assert tried > 200


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("once", [True, False])
def test_row_54_an_error_at_any_call_loses_nothing_and_says_what_to_do(error: int, once: bool) -> None:
    kinds = tuple(sorted(EFFECTS)) if error == errno.ENOSPC else (*sorted(EFFECTS), "read", "open", "size")
    for nth in range(1 if SOAK else 1 + once + 2 * (error == errno.EIO), 2000, 1 if SOAK else 4):
        disk = fresh()
        fault = disk.fail(kinds, error, nth=nth, once=once, part=0.5)
        try:
            everything(disk)
        except LogError as exc:
            assert "nothing is lost: " in str(exc)
            assert ("free some space" if error == errno.ENOSPC else "mend the disk") in str(exc)
        except OSError:
            assert error == errno.EIO  # while it was looked what there is to do: nothing was begun
        disk.heal()
        check(disk.snapshot(LOSE_ALL))
        everything(disk)
        check(disk.snapshot(LOSE_ALL))
        assert list(held(disk)) == [4, 5, 6]
        assert disk.open_files == 0
        if not fault.fired:
            return
    raise AssertionError("the work never ended")


def test_row_54_a_full_disk_leaves_the_extent_and_nothing_half_done() -> None:
    disk = fresh()
    disk.capacity = disk.used + 1000
    for action in (Action.ARCHIVE, Action.COMPRESS):
        with pytest.raises(ArchiveFailed, match=r"S0000000\.LOG could not be .*nothing is lost: free some space"):
            do(disk, action)
        assert extents_in(disk) == [f"{ACTIVE}/{name(s)}" for s in range(1, LAST + 1)]
    do(disk, Action.REMOVE, after=4 * 3600)  # which needs no room, and makes some
    do(disk, Action.ARCHIVE)
    check(disk)


# Notices


def test_the_names_above_an_archive_elsewhere_are_durable_before_anything_is_moved_there() -> None:
    """Also those that somebody has made before who was killed, and could not sync them."""
    far = "/another/disk/archive"
    disk = with_extents(range(1, LAST + 1))
    disk.mkdir("/another")
    history = History(disk, [ACTIVE, far], ID, SMALL)
    archive = Archive(disk, history, far)
    before = history.places()
    archive.run(archive.plan(Action.ARCHIVE, after=0, now_us=NOW, active_from=LAST - 1))
    after = History(disk.crash(LOSE_ALL), [ACTIVE, far], ID, SMALL).places()
    assert set(after) == set(before)
    assert any(place.path.startswith(far) for place in after.values())


# What is promised to those who ask


def test_a_plan_tells_no_damage_of_an_extent_that_may_be_being_made() -> None:
    disk = with_extents(range(1, LAST + 1))
    for sequence in (2, LAST - 1, LAST):
        disk.poke(f"{ACTIVE}/{name(sequence)}", content(sequence)[:-1])
    assert plan(disk, Action.ARCHIVE).damaged == (f"{ACTIVE}/{name(2)}",)


def test_between_the_last_question_for_a_gate_and_the_removal_none_comes_down() -> None:
    disk = with_extents(range(1, LAST + 1))
    said: list[str] = []

    class Deciding:
        def __enter__(self) -> None:
            said.append("decide")

        def __exit__(self, *exc: object) -> None:
            said.append("decided")

    def gates() -> dict[str, int]:
        said.append("ask")
        return {}

    disk.before_effect = lambda kind, path: said.append("remove") if kind == "unlink" else None
    todo = plan(disk, Action.REMOVE, after=4 * 3600)
    made(disk).run(todo, needed_from=gates, removing=Deciding())
    assert said == ["decide", "ask", "remove", "decided"] * len(todo.steps) != []


def test_an_archive_that_goes_meanwhile_is_an_error_and_its_extents_are_not_passed_over() -> None:
    """The system says of it the same as of an extent that somebody else has removed."""
    disk = with_extents(range(1, LAST + 1))
    disk.fail("create", errno.ENOENT, where=lambda path: path.startswith(f"{ARCHIVE}/S"))
    with pytest.raises(ArchiveFailed, match="could not be archived"):
        do(disk, Action.ARCHIVE)
    check(disk)


def test_of_a_past_that_was_undone_no_index_is_left_beside_the_extents_that_are_written_anew() -> None:
    disk = with_extents(range(1, LAST + 1))
    for sequence in range(1, LAST + 1):
        disk.poke(f"{ACTIVE}/{index_name(linear_number(sequence))}", b"index")
    assert undone_in(disk, History(disk, [ACTIVE, ARCHIVE], ID, SMALL), since=4, current=LAST) == frozenset()
    left = [path for path in disk.files(ACTIVE) if path.endswith(".IDX")]
    assert left == [f"{ACTIVE}/{index_name(linear_number(sequence))}" for sequence in (1, 2, 3)]


@pytest.mark.parametrize("action", [Action.ARCHIVE, Action.COMPRESS])
def test_what_has_come_in_the_place_of_an_extent_since_the_plan_was_made_stays_what_it_is(action: Action) -> None:
    for other in (content(1, log_id=b"y" * 16), content(7), bytes(len(content(1)))):
        disk = with_extents(range(1, LAST + 1))
        todo = plan(disk, action)
        disk.poke(f"{ACTIVE}/{name(1)}", other)
        with pytest.raises(ArchiveFailed, match="was not what"):
            made(disk).run(todo)
        assert [disk.peek(path) for path in disk.files("/log") if "S0000000" in path] == [other]


@pytest.mark.parametrize("action", [Action.ARCHIVE, Action.COMPRESS])
def test_an_extent_whose_header_is_damaged_is_known_by_its_records(action: Action) -> None:
    disk, state = written_by_the_log([(300, 0, bytes(20_000))] * 40, log_type=LogType.LINEAR)
    history = History(disk, [ACTIVE, ARCHIVE], ID, state.extent_bytes)
    damaged = history.places()[2].path
    disk.poke(damaged, bytes(PAGE) + disk.peek(damaged)[PAGE:])
    archive = Archive(disk, history, ARCHIVE)
    todo = archive.plan(action, after=0, now_us=NOW, active_from=4)
    assert [step.sequence for step in todo.steps] == [1, 2, 3]
    assert archive.run(todo).done == todo.steps
    assert not disk.exists(damaged)
    assert set(history.places()) >= {1, 2, 3}


def test_only_a_copy_that_is_the_same_byte_by_byte_counts_again_when_it_is_reported() -> None:
    """Others in the archive are of a past that a backup has undone, though of the same sequence and epoch."""
    disk = with_extents(range(1, LAST + 1))
    disk.mkdir(ARCHIVE)
    hidden = {name(sequence) for sequence in range(1, 5)}
    undone.write(disk, "/log", ID, undone.Undone(frozenset(hidden)))
    for sequence, theirs in ((1, content(1)), (2, content(2)[:-1] + b"x"), (3, content(3) + b"x")):
        disk.poke(f"{ARCHIVE}/{name(sequence)}", theirs)
    made(disk).recognise(History(disk, [ACTIVE, ARCHIVE], ID, SMALL).places().values())
    assert undone.read(disk, "/log", ID).names == hidden - {name(1)}


def test_a_name_that_counts_for_nothing_in_the_archive_is_no_leave_to_write_over_one_of_the_active_directory() -> None:
    disk = with_extents(range(1, LAST + 1))
    disk.poke("/other", content(1)[:-1] + b"x")
    compress(disk, "/other", f"{ACTIVE}/{name(1)}.gz", Compression.GZIP)
    undone.write(disk, "/log", ID, undone.Undone(frozenset({f"{name(1)}.gz"})))
    before = disk.peek(f"{ACTIVE}/{name(1)}.gz")
    with pytest.raises(ArchiveFailed, match="the same part of the log otherwise; compare the two"):
        do(disk, Action.COMPRESS)
    assert disk.peek(f"{ACTIVE}/{name(1)}.gz") == before
    assert disk.peek(f"{ACTIVE}/{name(1)}") == content(1)
