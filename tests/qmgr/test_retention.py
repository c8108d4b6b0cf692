"""LogManagement=Archive, what an operator sees of it, and the policy of ages in a queue manager that runs for real."""

import errno
import gzip
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger import extent
from logger.disk import PAGE
from logger.posix_disk import PosixDisk
from qmgr import archive_watch, housekeeping, qmstatus, retention
from qmgr.errors import MediaNotSupported, Mistake
from qmgr.log_needs import Reading
from recovery import extent_index
from tests.qmgr.world import DATA, NAME, World, bodies
from tests.sim.clock import SimClock
from tests.sim.disk import SimCrash
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed

EXTENT = 64 * 4096
ACTIVE = f"{DATA}/log/{NAME}/active"


def world(management: str = "Archive") -> World:
    made = World(log_type="linear", log_management=management, log_primary_files=3)
    made.qm.define_queue("Q")
    made.qm.define_queue("KEPT")
    made.qm.put("KEPT", b"kept")
    return made


def fill(made: World, extents: int, *, image: bool = True) -> None:
    """So many extents go by; nothing of them is needed then, unless there is no image."""
    for _ in range(extents):
        made.qm.put("Q", bytes(180_000))
        made.qm.put("Q", bytes(80_000))
        made.qm.get_many("Q", 2)
    if image:
        made.qm.record_image()
    settle(made)


def settle(made: World) -> None:
    """Two checkpoints: a restart must be able to do with the one before the last."""
    made.qm.checkpoint()
    made.qm.checkpoint()


def sequences(made: World) -> list[int]:
    return list(made.qm._log.history().places())


def name_of(sequence: int) -> str:
    return f"S{sequence - 1:07d}.LOG"


def shown(made: World) -> dict[str, str]:
    """What `qm status` shows of the log, in bytes where IBM MQ shows megabytes."""
    log = made.qm.picture()["log"]
    found = qmstatus._extent_names(log)
    return found | {"ARCHSZ": log["archive_bytes"], "REUSESZ": log["reuse_bytes"], "MEDIASZ": log["media_bytes"]}


def ready(made: World) -> int:
    """Files that are kept for reuse."""
    return sum(1 for path in made.disk.files(ACTIVE) if path.rsplit("/", 1)[1].startswith("R"))


# -- LogManagement=Archive -------------------------------------------------------------------------------------------


def test_an_extent_waits_until_it_was_reported_as_archived() -> None:
    """SET LOG ARCHIVED: one by one in any order; the oldest that waits holds all behind it."""
    made = world()
    fill(made, 8)
    there = sequences(made)
    assert there[0] == 1
    needed = min(made.qm._retention.needs.needed_from().values())
    assert needed > 6
    for sequence in (3, 2, 4):
        made.qm.note_archived(name_of(sequence))
        settle(made)
        assert sequences(made)[0] == 1, "the first one still waits"
    made.qm.note_archived(name_of(1))
    settle(made)
    assert sequences(made)[0] == 5
    assert ready(made) > 0
    made.qm.note_archived(name_of(needed - 1), all_before=True)
    settle(made)
    assert sequences(made)[0] == needed
    made.crash(LOSE_ALL)
    assert bodies(made.qm, "KEPT") == [b"kept"]


def test_all_before_is_all_before() -> None:
    """RESET QMGR TYPE(ARCHLOG)."""
    made = world()
    fill(made, 8)
    made.qm.note_archived(name_of(5), all_before=True)
    settle(made)
    assert sequences(made)[0] == 6


def test_what_media_recovery_needs_stays_though_it_was_archived() -> None:
    made = world()
    fill(made, 6, image=False)
    active = made.qm._retention.needs.needed_from()["restart"]
    made.qm.note_archived(name_of(active - 1), all_before=True)
    settle(made)
    assert sequences(made)[0] == 1
    for path in made.disk.files(f"{DATA}/qmgrs/{NAME}/queues/KEPT"):
        made.disk.remove(path)
    assert made.qm.recreate("KEPT").depth == 1
    made.qm.record_image()
    settle(made)
    assert sequences(made)[0] >= active


def test_what_was_reported_goes_soon_though_no_checkpoint_comes() -> None:
    """Neither has one that asks for room to wait for a checkpoint, which an idle queue manager does not take."""
    made = world()
    fill(made, 8)
    needed = min(made.qm._retention.needs.needed_from().values())
    made.qm.note_archived(name_of(2), all_before=True)
    assert sequences(made)[0] == 1
    made.clock.advance(11)
    made.qm._retention.keep_house_if_due()
    assert sequences(made)[0] == 3
    made.qm.note_archived(name_of(needed - 1), all_before=True)
    made.qm._retention.keep_house_if_due()
    assert sequences(made)[0] == 3, "not that often"
    assert made.qm.reduce_log("MAX") > 0
    assert sequences(made)[0] == needed
    assert ready(made) == 0


def test_what_was_reported_while_somebody_moves_extents_goes_when_he_is_done() -> None:
    made = world()
    fill(made, 8)
    made.qm.note_archived(name_of(2), all_before=True)
    with made.qm._retention._working:
        made.clock.advance(11)
        made.qm._retention.keep_house_if_due()
    assert sequences(made)[0] == 1
    made.clock.advance(11)
    made.qm._retention.keep_house_if_due()
    assert sequences(made)[0] == 3


def test_what_an_image_makes_superfluous_goes_soon_though_no_checkpoint_comes() -> None:
    made = world("Automatic")
    fill(made, 8, image=False)
    assert sequences(made)[0] == 1
    made.qm.record_image()
    made.clock.advance(11)
    made.qm._retention.keep_house_if_due()
    assert sequences(made)[0] == min(made.qm._retention.needs.needed_from().values()) > 1


def test_what_an_image_makes_superfluous_while_somebody_moves_extents_goes_when_he_is_done() -> None:
    made = world("Automatic")
    fill(made, 8, image=False)
    made.qm.record_image()
    with made.qm._retention._working:
        made.clock.advance(11)
        made.qm._retention.keep_house_if_due()
        made.qm.checkpoint()
    assert sequences(made)[0] == 1
    made.clock.advance(11)
    made.qm._retention.keep_house_if_due()
    assert sequences(made)[0] == min(made.qm._retention.needs.needed_from().values()) > 1


def test_the_status_shows_since_when_the_oldest_extent_that_is_needed_has_been_in_use() -> None:
    """Superfluous ones that nobody has removed do not hide it."""
    made = world("Manual")
    fill(made, 3)
    made.clock.advance(3600)
    fill(made, 5)
    log = made.qm.picture()["log"]
    oldest = min(made.qm._retention.needs.needed_from().values())
    assert sequences(made)[0] == 1 < oldest, "what is before it is superfluous"
    header = extent.decode_header(made.disk.peek(f"{ACTIVE}/{name_of(oldest)}")[:PAGE])
    assert header is not None
    assert qmstatus.log_began(log) == header.time > 0


@pytest.mark.parametrize("loss", [LOSE_ALL, mixed(1), mixed(2)])
def test_a_report_is_durable_when_the_call_returns(loss: Any) -> None:
    made = world()
    fill(made, 6)
    made.qm.note_archived(name_of(1))
    made.qm.note_archived(name_of(3))
    made.crash(loss)
    assert shown(made)["ARCHLOG"] == name_of(2)
    made.qm.note_archived(name_of(2))
    settle(made)
    assert sequences(made)[0] == 4


def filled_by_what_is_not_committed() -> tuple[World, qmgr.UnitOfWork, int]:
    """A unit of work has filled an extent and gone on to the next one; most of that waits in the log buffer."""
    made = World(log_type="linear", log_management="Archive", log_primary_files=3, log_buffer_pages=512)
    made.qm.define_queue("Q")
    log, unit = made.qm._log, made.qm.begin()
    sequence = log.buffer.tail // EXTENT
    while log.buffer.tail <= (sequence + 1) * EXTENT:
        unit.put("Q", bytes(9000))
    return made, unit, sequence


@pytest.mark.parametrize("loss", [KEEP_ALL, LOSE_ALL, mixed(3)])
def test_an_extent_that_was_reported_is_never_written_again(loss: Any) -> None:
    """Else the copy of somebody who was told that it is noted lacks messages, and nothing keeps the extent itself."""
    made, _, sequence = filled_by_what_is_not_committed()
    made.qm.note_archived(name_of(sequence))
    copied = made.disk.peek(f"{ACTIVE}/{name_of(sequence)}")
    made.crash(loss)
    made.qm.put("Q", b"acknowledged")
    assert made.disk.peek(f"{ACTIVE}/{name_of(sequence)}") == copied


def test_what_is_before_the_current_extent_is_whole() -> None:
    """CURRLOG says up to where one can copy: an extent of which the end waits in the buffer is still written."""
    made, unit, sequence = filled_by_what_is_not_committed()
    assert shown(made)["CURRLOG"] == name_of(sequence)
    unit.commit()
    assert shown(made)["CURRLOG"] == name_of(sequence + 1)


def test_what_can_not_be_reported_is_refused_with_a_sentence() -> None:
    made = world()
    fill(made, 4)
    current = made.qm._log.buffer.tail // EXTENT
    before = sequences(made)
    for name, says in (
        (name_of(current), "is being written; it can be archived when the next one is"),
        (name_of(current + 1), "log extent"),
        (name_of(99), "there is no log extent"),
        ("R0000000.LOG", "there is no log extent"),
        ("s0000000.log", "there is no log extent"),
        ("../active/S0000000.LOG", "there is no log extent"),
        ("", "there is no log extent"),
        (None, "there is no log extent"),
        (1, "there is no log extent"),
    ):
        for all_before in (False, True):
            with pytest.raises(Mistake, match=says):
                made.qm.note_archived(name, all_before=all_before)  # type: ignore[arg-type]
    settle(made)
    assert sequences(made) == before
    made.qm.note_archived(name_of(1))
    made.qm.note_archived(name_of(1))  # again, which is no error


@pytest.mark.parametrize("management", ["Manual", "Automatic"])
def test_only_this_management_is_told_of_archiving(management: str) -> None:
    made = world(management)
    fill(made, 3)
    with pytest.raises(Mistake, match="LogManagement=Archive only"):
        made.qm.note_archived(name_of(sequences(made)[0]))
    circular = World()
    with pytest.raises(MediaNotSupported, match="circular logging"):
        circular.qm.note_archived("S0000000.LOG")


def test_the_status_shows_what_waits_what_is_needed_and_what_is_ready() -> None:
    """ARCHLOG, ARCHSZ, MEDIALOG, MEDIASZ, REUSESZ."""
    made = world()
    found = shown(made)
    assert (found["ARCHLOG"], found["ARCHSZ"]) == (qmstatus.BLANK, 0)
    fill(made, 8)
    needed = made.qm._retention.needs.needed_from()
    sizes = {path.rsplit("/", 1)[1]: len(made.disk.peek(path)) for path in made.disk.files(ACTIVE)}
    found = shown(made)
    assert found["ARCHLOG"] == name_of(1)
    assert found["MEDIALOG"] == name_of(needed["media recovery"])
    assert found["RECLOG"] == name_of(made.qm.status().log.head // EXTENT)
    first = min(needed.values())
    assert found["ARCHSZ"] == sum(sizes[name_of(sequence)] for sequence in range(1, first))
    assert found["MEDIASZ"] == sum(sizes[name_of(sequence)] for sequence in range(first, needed["restart"]))

    made.qm.archive_log(older_than=0)
    found = shown(made)
    assert (found["ARCHLOG"], found["ARCHSZ"]) == (qmstatus.BLANK, 0), "what our own archive has taken waits for nobody"


def test_the_status_counts_what_the_archive_has_for_media_recovery() -> None:
    made = world()
    fill(made, 8, image=False)
    size = shown(made)["MEDIASZ"]
    assert size > 0
    done = made.qm.archive_log(older_than=0).done
    assert done
    assert shown(made)["MEDIASZ"] == size
    made.crash(KEEP_ALL)
    assert shown(made)["MEDIASZ"] >= size
    made.disk.remove(done[-1].target)  # by somebody else
    size = shown(made)["MEDIASZ"]
    made.clock.advance(housekeeping.CHORES_INTERVAL_NS / 1e9)
    made.qm.put("Q", b"")
    assert shown(made)["MEDIASZ"] == size - done[-1].size


def test_the_status_and_the_housekeeping_do_not_look_at_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file system hung, and nothing was synced any more with LogSync=interval; or it failed, and no status came."""
    made = world()
    made.qm.alter(logger_events=True)
    fill(made, 8)
    made.qm.archive_log(older_than=0)
    archive, usual = made.qm._log.config.archive_directory, made.disk.list
    before = shown(made)
    looked: list[str] = []

    def away(path: str) -> list[str]:
        looked.append(path)
        if path == archive:
            raise OSError(errno.ESTALE, "Stale file handle")
        return usual(path)

    monkeypatch.setattr(made.disk, "list", away)
    assert shown(made) == before
    made.qm._tick()
    assert looked
    assert archive not in looked
    made.clock.advance(housekeeping.CHORES_INTERVAL_NS / 1e9)
    made.qm.put("Q", b"")
    assert archive in looked
    assert shown(made)["MEDIASZ"] == before["MEDIASZ"], "what can't be looked at counts as it was"


def test_the_status_shows_what_waits_behind_what_was_reported() -> None:
    made = world()
    fill(made, 8)
    needed = made.qm._retention.needs.needed_from()
    sizes = {path.rsplit("/", 1)[1]: len(made.disk.peek(path)) for path in made.disk.files(ACTIVE)}
    first, found = min(needed.values()), shown(made)
    made.qm.note_archived(name_of(2))
    assert shown(made)["ARCHLOG"] == name_of(1)
    assert shown(made)["ARCHSZ"] == found["ARCHSZ"] - sizes[name_of(2)]
    made.qm.note_archived(name_of(1))
    assert shown(made)["ARCHLOG"] == name_of(3)
    settle(made)
    assert sequences(made)[0] == 3
    reusable = sum(len(made.disk.peek(p)) for p in made.disk.files(ACTIVE) if p.rsplit("/", 1)[1].startswith("R"))
    assert reusable > 0
    assert shown(made)["REUSESZ"] >= reusable
    made.qm.note_archived(name_of(first - 1), all_before=True)
    settle(made)
    left = [sequence for sequence in sequences(made) if sequence < made.qm._retention.needs.needed_from()["restart"]]
    assert shown(made)["ARCHLOG"] == (name_of(left[0]) if left else qmstatus.BLANK)
    assert shown(made)["ARCHSZ"] == 0


def test_what_others_have_archived_stays_where_the_policy_archives_it_too() -> None:
    """Else the archive would have a gap."""
    made = world()
    path = f"{DATA}/qmgrs/{NAME}/qm.ini"
    made.disk.poke(path, made.disk.peek(path) + b"LogArchive:\n   ArchiveAfter=1h\n")
    made.restart()
    fill(made, 6)
    there = sequences(made)
    made.qm.note_archived(name_of(made.qm._retention.needs.needed_from()["restart"] - 1), all_before=True)
    settle(made)
    assert sequences(made) == there
    made.clock.advance(7200)
    made.qm._retention.keep_policy()
    assert sequences(made) == there
    assert made.qm._log.history().places()[1].path.startswith(made.qm._log.config.archive_directory)


def test_a_disk_that_can_not_note_it_says_so_and_nothing_is_let_go_of() -> None:
    made = world()
    fill(made, 5)
    for kind in ("create", "write", "sync", "rename"):
        fault = made.disk.fail(kind, 28, where=lambda path: "arch" in path)
        try:
            made.qm.note_archived(name_of(1))
        except qmgr.MQError:
            assert fault.fired
        except OSError as exc:
            raise AssertionError(f"{kind}: a raw {exc!r}") from exc
        made.disk.heal()
    made.crash(LOSE_ALL)
    made.qm.note_archived(name_of(1))
    settle(made)
    assert sequences(made)[0] == 2


# -- indexes ---------------------------------------------------------------------------------------------------------


def indexed(made: World) -> list[int]:
    """The sequences of the extents that have a whole index of theirs beside them."""
    places, log_id = made.qm._log.history().places(), made.qm._log.state.log_id
    return [s for s, place in places.items() if extent_index.load(made.disk, place, log_id) is not None]


def test_extents_that_are_full_have_an_index_which_goes_where_they_go() -> None:
    made = world("Manual")
    fill(made, 6)
    made.qm._retention.indexing.index_extents()
    there = sequences(made)
    assert indexed(made) == there[: len(indexed(made))]
    assert len(there) - 2 <= len(indexed(made)) < len(there)
    before = indexed(made)
    reads = made.disk.counts.get("read", 0)
    made.qm._retention.indexing.index_extents()
    assert made.disk.counts.get("read", 0) == reads, "nothing is looked at twice"
    made.qm.archive_log()
    assert indexed(made) == before
    made.qm.compress_log()
    assert indexed(made) == before
    made.qm.get("KEPT")
    made.qm.remove_log(older_than=0)
    assert not [path for path in made.disk.files(ACTIVE) if path.endswith("S0000000.IDX")]
    made.qm.define_queue("LATE")
    fill(made, 3)
    made.restart()
    made.qm._retention.indexing.index_extents()
    assert indexed(made)[-1] >= there[-1]


def test_an_index_of_an_older_format_is_built_again() -> None:
    made = world("Manual")
    fill(made, 6)
    made.qm._retention.indexing.index_extents()
    before = indexed(made)
    path = next(path for path in made.disk.files(ACTIVE) if path.endswith("S0000000.IDX"))
    made.disk.poke(path, b"QMGRIDX1" + made.disk.peek(path)[8:])
    assert indexed(made) == before[1:]
    made.restart()
    made.qm._retention.indexing.index_extents()
    assert indexed(made)[: len(before)] == before


def test_what_is_used_again_leaves_no_index_behind() -> None:
    made = world("Automatic")
    for _ in range(4):
        fill(made, 3)
        made.qm._retention.indexing.index_extents()
        names = {path.rpartition("/")[2][:8] for path in made.disk.files(ACTIVE) if not path.endswith(".IDX")}
        assert {path.rpartition("/")[2][:8] for path in made.disk.files(ACTIVE) if path.endswith(".IDX")} <= names


def test_row_23_a_crash_while_an_index_is_built_costs_nothing() -> None:
    made = world("Manual")
    fill(made, 3)
    disk = made.disk
    for effect in range(1, 60):
        made.disk = disk.snapshot(KEEP_ALL)
        made.start()
        made.disk.crash_after(effect)
        try:
            made.qm._retention.indexing.index_extents()
        except SimCrash:
            pass
        else:
            break
        made.crash(mixed(effect))
        assert bodies(made.qm, "KEPT") == [b"kept"]
        made.qm._retention.indexing.index_extents()
        assert len(indexed(made)) >= 2
        assert made.qm.archive_log().done
        assert not [path for path in made.disk.files(DATA) if path.endswith(".IDX.new")]
    assert effect > 5


def test_indexes_come_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "CHORES_INTERVAL_NS", 50_000_000)
    qmgr.create(NAME, data_path=tmp_path, log_type="linear", log_primary_files=3, log_file_pages=64)
    with qmgr.start(NAME, data_path=tmp_path) as manager:
        manager.define_queue("Q")
        for _ in range(4):
            manager.put("Q", bytes(200_000))
            manager.get("Q")
        wait_for(lambda: (tmp_path / "log" / NAME / "active" / "S0000001.IDX").exists())


def test_an_end_does_not_wait_for_indexes() -> None:
    made = world("Manual")
    fill(made, 3)
    made.qm._engine.ending = qmgr.Reason.Q_MGR_QUIESCING
    made.qm._retention.indexing.index_extents()
    assert indexed(made) == []


# -- the policy, by a thread and a real disk -------------------------------------------------------------------------


def wait_for(what: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.02)


@pytest.mark.parametrize("management", ["Manual", "Archive"])
def test_extents_grow_old_and_are_archived_compressed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, management: str
) -> None:
    """While puts and gets go on; all is readable meanwhile, and what a queue needs is not removed."""
    monkeypatch.setattr(housekeeping, "CHORES_INTERVAL_NS", 50_000_000)
    monkeypatch.setattr(retention, "POLICY_INTERVAL_NS", 50_000_000)
    monkeypatch.setattr(retention, "REST_FACTOR", 1)
    qmgr.create(
        NAME, data_path=tmp_path, log_type="linear", log_management=management, log_primary_files=3, log_file_pages=64
    )
    path = tmp_path / "qmgrs" / NAME / "qm.ini"
    policy = "LogArchive:\n   ArchiveAfter=1s\n   CompressAfter=1s\n   RemoveAfter=2s\n"
    path.write_text(path.read_text() + policy)
    log = tmp_path / "log" / NAME
    with qmgr.start(NAME, data_path=tmp_path) as manager:
        manager.define_queue("Q")
        manager.define_queue("KEPT", buffer_size=1)
        manager.put("KEPT", b"kept")
        for _ in range(6):
            manager.put("Q", bytes(200_000))
            manager.get("Q")
        manager.checkpoint()
        manager.checkpoint()
        wait_for(lambda: (log / "archive" / "S0000000.LOG.gz").exists() and not list(log.rglob("S0000002.LOG")))
        assert len(gzip.decompress((log / "archive" / "S0000000.LOG.gz").read_bytes())) > EXTENT
        for segment in (tmp_path / "qmgrs" / NAME / "queues" / "KEPT").glob("*.seg"):
            segment.unlink()
        assert manager.recreate("KEPT").depth == 1  # from the archive: its definition is its only image
        time.sleep(2.2)
        assert (log / "archive" / "S0000000.LOG.gz").exists(), "removed, though media recovery needs it"
        assert manager.get("KEPT").body == b"kept"
        manager.record_image()
        manager.checkpoint()
        manager.checkpoint()
        wait_for(lambda: not list(log.rglob("S0000000*")))
        manager.put("KEPT", b"later")
        assert manager.recreate("KEPT").depth == 1
    errors = (tmp_path / "qmgrs" / NAME / "errors" / "AMQERR01.LOG").read_text()
    assert "AMQ9007" not in errors
    with qmgr.start(NAME, data_path=tmp_path) as manager:
        assert manager.get("KEPT").body == b"later"


def test_nobody_begins_to_read_between_the_decision_that_an_extent_can_go_and_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who reads from where a restart needs the log does not wait: none of that goes."""
    made, held = world("Automatic"), list[bool]()
    needs, log = made.qm._retention.needs, made.qm._log
    recycle, lock = log.recycle, needs.deciding

    def noted(sequence: int) -> None:
        held.append(lock.locked())
        recycle(sequence)

    monkeypatch.setattr(log, "recycle", noted)
    fill(made, 8)
    assert set(held) == {True}
    reads = threading.Thread(target=lambda: needs.pin(0))
    with lock:
        needs.pin(log.state.head)
        reads.start()
        wait_for(lambda: is_in(reads, "pin"))
        time.sleep(0.2)
        assert reads.is_alive()
    reads.join(120)
    assert not reads.is_alive()


def test_row_43_what_the_checkpoint_before_the_last_needs_is_not_removed() -> None:
    """Also right after an image, whose own checkpoint needs less: the newest checkpoint file may turn out damaged."""
    made = world("Manual")
    made.qm.get("KEPT")
    fill(made, 2)
    for _ in range(2):
        made.qm.put("Q", bytes(180_000))
        made.qm.get("Q")
    made.qm.put("Q", b"kept")
    before = made.qm.oldest_extents()[0]
    made.qm.record_image()
    assert before < made.qm.oldest_extents()[0]
    made.qm.remove_log(older_than=0)
    for loss in (KEEP_ALL, LOSE_ALL):
        disk = made.disk.snapshot(loss)
        disk.poke(f"{DATA}/qmgrs/{NAME}/amqalchk.fil", b"damaged")
        with qmgr.start(NAME, data_path=DATA, disk=disk, clock=made.clock, background=False) as qm:
            assert bodies(qm, "Q") == [b"kept"]


@pytest.mark.interpreted
def test_row_24_an_image_frees_nothing_before_its_end_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may keep house in the moment in which the end of an image is in memory, and a crash takes it."""
    made, needed = world("Manual"), set[int]()
    made.qm.record_image()
    fill(made, 2, image=False)
    engine, log_own = made.qm._engine, made.qm._engine.log_own

    def logged(*args: Any) -> int:
        end = log_own(*args)
        said = made.qm._retention.needs.needed_from()["media recovery"]
        needed.add(said)
        disk = made.disk.snapshot(LOSE_ALL)
        with qmgr.start(NAME, data_path=DATA, disk=disk, clock=made.clock, background=False) as qm:
            assert qm._retention.needs.needed_from()["media recovery"] >= said
        return end

    monkeypatch.setattr(engine, "log_own", logged)
    made.qm.record_image()
    assert len(needed) > 1


@pytest.mark.parametrize("by_policy", [False, True])
def test_who_begins_to_read_while_extents_are_removed_keeps_what_has_not_gone_yet(by_policy: bool) -> None:
    made = World(log_type="linear", log_management="Manual", log_primary_files=3)
    if by_policy:
        ini = f"{DATA}/qmgrs/{NAME}/qm.ini"
        made.disk.poke(ini, made.disk.peek(ini) + b"LogArchive:\n   RemoveAfter=1h\n")
        made.restart()
    made.qm.define_queue("Q")
    fill(made, 6)
    needs = made.qm._retention.needs
    there = sequences(made)
    unlink, begun = made.disk.unlink, list[Any]()

    def unlinked(path: str) -> None:
        if path.endswith(name_of(there[1])) and not begun:
            assert needs.deciding.locked(), "somebody could begin to read what is just going"
            begun.append(Reading(there[2] * EXTENT))
            needs._readers.add(begun[0])
        unlink(path)

    made.disk.unlink = unlinked  # type: ignore[method-assign]
    made.clock.jump_wall(7200)
    if by_policy:
        made.qm._retention.keep_policy()
    else:
        made.qm.remove_log(older_than=0)
    assert begun
    assert sequences(made)[0] == there[2]


def test_an_image_that_nobody_keeps_any_more_is_not_believed_after_a_restart() -> None:
    """IMGRCOVQ of the queue manager was NO for a while: what lay behind the image may be gone."""
    made = world("Manual")
    made.qm.record_image()
    made.qm.checkpoint()
    made.qm.alter(image_recover_queues=False)
    made.qm.checkpoint()
    made.qm.alter(image_recover_queues=True)
    made.crash(LOSE_ALL)
    assert {queue.image for queue in made.qm._engine.state.by_id.values()} == {None}


def test_extents_that_only_an_image_would_free_are_told_of_when_they_are_many() -> None:
    """Nobody records images unless asked to: a log that "the queue manager frees" grows without an end."""
    made = world("Automatic")
    fill(made, 3, image=False)
    assert "AMQ9015" not in made.errors(), "no more than there are primaries and secondaries"
    fill(made, 4, image=False)
    assert made.errors().count("AMQ9015W") == 1
    assert "from S0000000.LOG on, are kept for media recovery only" in made.errors()
    fill(made, 40, image=False)
    told = made.errors().count("AMQ9015W")
    assert 2 <= told <= 5, "each time that they have become twice as many"
    made.qm.record_image()
    settle(made)
    made.restart()
    made.qm.alter(image_schedule="AUTO")
    fill(made, 12, image=False)
    assert made.errors().count("AMQ9015W") == told


def test_what_a_queue_is_built_again_from_stays_though_it_ceases_to_be_recoverable_meanwhile() -> None:
    made = world("Automatic")
    made.qm.record_image()
    for _ in range(60):
        made.qm.put("KEPT", bytes(10_000))
    for queue in made.qm.queues():
        if queue.name != "KEPT":
            made.qm.record_image(queue.name)
    made.qm.record_definitions()
    settle(made)
    there: list[list[int]] = [sequences(made)]

    def progress(done: int, total: int) -> None:
        if len(there) == 1:
            made.qm.alter(image_recover_queues=False)
            settle(made)
            there.append(sequences(made))

    assert made.qm.recreate("KEPT", progress=progress).depth == 61
    assert there[0] == there[1]
    settle(made)
    assert sequences(made)[0] > there[0][0]
    assert len(bodies(made.qm, "KEPT")) == 61


def test_an_extent_whose_successor_came_in_the_moment_of_a_put_may_have_that_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world("Manual")
    made.clock.advance(5)
    now = made.clock.wall_us()
    with monkeypatch.context() as one_moment:
        one_moment.setattr(made.clock, "wall_us", lambda: now)
        made.qm.put("KEPT", b"in the first extent")
        made.qm.get("KEPT")
        fill(made, 3)
    made.clock.advance(10)
    outcome = made.qm.remove_log(older_than=0)
    assert outcome.held is not None and "undelivered" in outcome.held.text()
    assert sequences(made)[0] == 1


@pytest.mark.parametrize("one_moment", [False, True])
def test_an_extent_that_ended_while_the_clock_was_set_back_may_have_the_oldest_message(
    one_moment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its successor it is older than that message, and older than its own beginning."""
    made = world("Manual")
    made.clock.advance(5)
    now = made.clock.wall_us()
    with monkeypatch.context() as stopped:
        if one_moment:  # the message's record is as late as any in the extent
            stopped.setattr(made.clock, "wall_us", lambda: now)
        made.qm.put("KEPT", b"in the first extent")
        made.qm.get("KEPT")
    made.clock.jump_wall(-3600)
    fill(made, 3)
    made.clock.jump_wall(7200)
    outcome = made.qm.remove_log(older_than=0)
    assert outcome.held is not None and "undelivered" in outcome.held.text()
    assert sequences(made)[0] == 1


class Hanging(PosixDisk):
    """A disk on which one kind of call on a directory, or in it, hangs when it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = str(directory)
        self.call, self.caller = "list", ""
        self.goes_on, self.asked = threading.Event(), threading.Event()
        self.goes_on.set()

    def _wait(self, call: str, path: str) -> None:
        mine = call == self.call and path.startswith(self._directory) and not self.goes_on.is_set()
        if mine and (not self.caller or is_in(threading.current_thread(), self.caller)):
            self.asked.set()
            assert self.goes_on.wait(120)

    def list(self, path: str) -> list[str]:
        self._wait("list", path)
        return super().list(path)

    def unlink(self, path: str) -> None:
        self._wait("unlink", path)
        super().unlink(path)

    def rename(self, old: str, new: str) -> None:
        self._wait("rename", new)
        super().rename(old, new)


def is_in(thread: threading.Thread, call: str) -> bool:
    """Is the thread in a function of this name?"""
    frames = sys._current_frames()
    return thread.ident in frames and any(
        frame.f_code.co_name == call for frame, _ in traceback.walk_stack(frames[thread.ident])
    )


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    """The disk of a queue manager whose archive hangs when it is told to."""
    monkeypatch.setattr(housekeeping, "CHORES_INTERVAL_NS", 50_000_000)
    monkeypatch.setattr(archive_watch, "LONG_NS", 1_500_000_000)
    disk = Hanging(tmp_path / "log" / NAME / "archive")
    qmgr.create(NAME, data_path=tmp_path, log_type="linear", log_file_pages=64)
    yield disk
    disk.goes_on.set()


def said(tmp_path: Path, message: str = "AMQ9019W") -> list[str]:
    """What the error log has of a wait for the archive, or of something else."""
    path = tmp_path / "qmgrs" / NAME / "errors" / "AMQERR01.LOG"
    return [line for line in path.read_text().splitlines() if message in line] if path.exists() else []


def test_while_the_archive_hangs_images_are_recorded_and_it_is_told_that_an_end_waits(
    tmp_path: Path, hanging: Hanging
) -> None:
    manager = qmgr.start(NAME, data_path=tmp_path, disk=hanging)
    manager.define_queue("Q", image_recoverable="NO")
    hanging.goes_on.clear()
    assert hanging.asked.wait(120)
    manager.put("Q", b"kept")
    manager.alter(image_schedule="AUTO")
    manager.alter_queue("Q", image_recoverable="YES")
    wait_for(lambda: manager._engine.state.queues["Q"].image is not None)
    ends = threading.Thread(target=manager.end, daemon=True)
    ends.start()
    wait_for(lambda: bool(said(tmp_path)))
    assert f"{tmp_path}/log/{NAME}/archive has waited for " in said(tmp_path)[0]
    assert ends.is_alive() and len(said(tmp_path)) == 1
    hanging.goes_on.set()
    ends.join(120)
    assert not ends.is_alive()
    with qmgr.start(NAME, data_path=tmp_path) as again:
        assert again.get("Q").body == b"kept"


def test_that_the_archive_hangs_is_told_also_where_indexes_wait_for_it(tmp_path: Path, hanging: Hanging) -> None:
    manager = qmgr.start(NAME, data_path=tmp_path, disk=hanging)
    manager.define_queue("Q")
    hanging.caller = "index_extents"
    hanging.goes_on.clear()
    for _ in range(4):
        manager.put("Q", bytes(200_000))
    assert hanging.asked.wait(120)
    wait_for(lambda: bool(said(tmp_path)))
    hanging.goes_on.set()
    manager.end()


@pytest.mark.parametrize("caller", ["keep_policy", "do"])
def test_that_the_archive_hangs_is_told_whoever_waits_for_it(tmp_path: Path, hanging: Hanging, caller: str) -> None:
    ini = tmp_path / "qmgrs" / NAME / "qm.ini"
    ini.write_text(ini.read_text() + "LogArchive:\n   ArchiveAfter=1h\n")
    manager = qmgr.start(NAME, data_path=tmp_path, disk=hanging)
    hanging.caller = caller
    hanging.goes_on.clear()
    if caller == "do":
        threading.Thread(target=manager.archive_log, daemon=True).start()
    assert hanging.asked.wait(120)
    wait_for(lambda: bool(said(tmp_path)))
    hanging.goes_on.set()
    manager.end()


def test_long_work_at_the_archive_that_goes_on_is_no_wait_for_it() -> None:
    made, calls = world("Manual"), list[int]()
    fill(made, 4)

    def progress(done: int, total: int) -> None:
        calls.append(done)
        made.clock.advance(25)
        made.qm._archive_watch.look()

    assert made.qm.archive_log(progress=progress).done
    assert len(calls) > 3
    assert "AMQ9019" not in made.errors()


def test_while_an_index_waits_for_the_archive_checkpoints_are_taken(tmp_path: Path, hanging: Hanging) -> None:
    archive = tmp_path / "log" / NAME / "archive"
    ini = tmp_path / "qmgrs" / NAME / "qm.ini"
    ini.write_text(ini.read_text().replace("LogManagement=Manual", "LogManagement=Archive"))
    manager = qmgr.start(NAME, data_path=tmp_path, disk=hanging)
    manager.define_queue("Q")
    for _ in range(4):
        manager.put("Q", bytes(200_000))
        manager.get("Q")
    for _ in range(2):
        manager.checkpoint()
    assert manager.archive_log().done
    manager.end()
    for path in archive.glob("*.IDX"):
        path.unlink()
    hanging.call = "rename"
    hanging.goes_on.clear()
    manager = qmgr.start(NAME, data_path=tmp_path, disk=hanging)
    assert hanging.asked.wait(120)
    for _ in range(4):
        manager.put("Q", bytes(200_000))
        manager.get("Q")
    checkpoints = threading.Thread(target=lambda: [manager.checkpoint() for _ in range(2)], daemon=True)
    checkpoints.start()
    checkpoints.join(120)
    assert not checkpoints.is_alive()
    wait_for(lambda: manager._retention._left_over)  # it is looked at again
    hanging.goes_on.set()
    manager.end()


def test_while_a_removal_from_the_archive_hangs_images_are_recorded(tmp_path: Path, hanging: Hanging) -> None:
    manager = qmgr.start(NAME, data_path=tmp_path, disk=hanging)
    manager.define_queue("Q")
    for _ in range(4):
        manager.put("Q", bytes(200_000))
        manager.get("Q")
    manager.record_image()
    for _ in range(2):
        manager.checkpoint()
    assert manager.archive_log().done
    removes = threading.Thread(target=lambda: manager.remove_log(older_than=0), daemon=True)
    hanging.call = "unlink"
    hanging.goes_on.clear()
    removes.start()
    assert hanging.asked.wait(120)
    images = threading.Thread(target=manager.record_image, daemon=True)
    images.start()
    images.join(120)
    assert not images.is_alive()
    hanging.goes_on.set()
    removes.join(120)
    manager.end()


def test_an_end_waits_for_work_at_the_archive_that_begins_only_then(tmp_path: Path, hanging: Hanging) -> None:
    """Housekeeping was held up in something else, and had that still to do."""
    of_others = set(threading.enumerate())
    manager = qmgr.start(NAME, data_path=tmp_path, disk=hanging)

    def mine(name: str) -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name.startswith(name) and one not in of_others]

    [keeper] = mine(f"CHECKPOINT-{NAME}")
    ends = threading.Thread(target=manager.end, daemon=True)
    with manager._housekeeper.log_space.one_at_a_time:
        wait_for(lambda: is_in(keeper, "work"))
        wait_for(lambda: not mine("ARCHIVE"))
        hanging.goes_on.clear()
        ends.start()
        wait_for(lambda: is_in(ends, "await_end"))
    assert hanging.asked.wait(120)
    time.sleep(0.5)
    assert ends.is_alive() and not said(tmp_path, "AMQ8004I")
    hanging.goes_on.set()
    ends.join(120)
    assert not ends.is_alive() and said(tmp_path, "AMQ8004I")


def test_that_an_operator_works_at_the_archive_for_long_is_no_wait_for_it() -> None:
    made = world("Manual")
    path = f"{DATA}/qmgrs/{NAME}/qm.ini"
    made.disk.poke(path, made.disk.peek(path) + b"LogArchive:\n   ArchiveAfter=1h\n")
    made.restart()
    keeps = threading.Thread(target=made.qm._retention.keep_policy, daemon=True)
    with made.qm._retention._working:
        keeps.start()
        wait_for(lambda: is_in(keeps, "keep_policy"))
        time.sleep(0.1)
        made.clock.advance(archive_watch.LONG_NS / 1e9)
        made.qm._archive_watch.look()
    keeps.join(120)
    assert "AMQ9019" not in made.errors()


def test_a_start_for_which_the_archive_hangs_is_told(tmp_path: Path, hanging: Hanging) -> None:
    hanging.goes_on.clear()
    started: list[qmgr.QueueManager] = []
    starts = threading.Thread(
        target=lambda: started.append(qmgr.start(NAME, data_path=tmp_path, disk=hanging)), daemon=True
    )
    starts.start()
    wait_for(lambda: bool(said(tmp_path)))
    assert not started
    hanging.goes_on.set()
    starts.join(120)
    started[0].end()


def test_a_wait_for_the_archive_is_told_once_for_each_step() -> None:
    clock, told = SimClock(), []
    watch = archive_watch.ArchiveWatch(clock, told.append)
    with watch.at_work():
        clock.advance(59)
        watch.look()
        assert not told
        clock.advance(2)
        for _ in range(2):
            watch.look()
        assert told == [61]
        watch.step()
        clock.advance(59)
        watch.look()
        assert told == [61]
        clock.advance(1)
        watch.look()
        assert told == [61, 60]
    clock.advance(99)
    watch.look()
    assert told == [61, 60]


def test_of_those_who_wait_for_the_archive_the_one_that_has_waited_longest_is_told() -> None:
    clock, told = SimClock(), []
    watch = archive_watch.ArchiveWatch(clock, told.append)

    def come_later() -> None:
        with watch.at_work():
            clock.advance(10)
            watch.look()

    with watch.at_work():
        clock.advance(55)
        other = threading.Thread(target=come_later)
        other.start()
        other.join()
    assert told == [65]
