"""Calls that fail: what was acknowledged stays, nothing is acknowledged on a guess, and space that is back is used."""

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger.disk import PAGE
from logger.errors import LogError
from logger.posix_disk import PosixDisk
from logger.whole_files import make_dirs
from qmgr import creation, locations, migration, mqsini, ownership, pointintime
from qmgr.creation import remove_tree
from qmgr.errors import InUse
from recovery.errors import RecoveryError
from tests.conftest import SOAK
from tests.sim.clock import SimClock
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import DATA, LOG, NAME, TRIPLE, Life, Setup
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed
from tests.test_crash import EVERY_LOG, XID, born, checkpoints, everything, laps, unit_of, work_on, written_behind

REFUSALS = (qmgr.MQError, LogError, RecoveryError)
Where = Callable[[str], bool]

LOG_FILES: Where = lambda path: path.endswith((".LOG", ".lfh")) and "/errors/" not in path  # noqa: E731
QUEUE_FILES: Where = lambda path: path.endswith(".seg") or "amqalchk" in path  # noqa: E731


def busy(life: Life) -> None:
    """Work that writes every kind of file."""
    checkpoints(life)
    unit = life.begin()
    life.get("A", unit=unit)
    life.put("B", size=5000, unit=unit)
    life.commit(unit)
    laps(life, 0.4)
    life.checkpoint()


def until_it_fails(life: Life, script: Callable[[Life], None]) -> qmgr.MQError | None:
    """Run the script until a call fails other than by a refusal that does nothing; what it failed with."""
    try:
        script(life)
    except qmgr.MQError as exc:
        return exc
    return None


def assert_stopped(life: Life) -> None:
    """Nothing is acknowledged any more."""
    calls: list[Callable[[], object]] = [
        lambda: life.qm.put("A", b"after the failure"),
        lambda: life.qm.define_queue("AFTER.FAILURE"),
        lambda: life.qm.get("A"),
        lambda: life.qm.checkpoint(),
    ]
    for call in calls:
        with pytest.raises(qmgr.MQError) as caught:
            call()
        assert caught.value.reason not in (qmgr.Reason.NO_MSG_AVAILABLE, qmgr.Reason.NONE), caught.value


def restarts_whole(life: Life, seed: int) -> None:
    """Whatever the failed calls left on the disk: everything acknowledged is there."""
    losses = [LOSE_ALL, KEEP_ALL, mixed(seed)]
    if not SOAK:
        del losses[random.Random(seed).randrange(3)]  # the seeds of a test may be all alike modulo 3
    for loss in losses:
        fork = life.fork(loss)
        fork.disk.heal()
        fork.restart()
        work_on(fork)
        fork.crash(LOSE_ALL)
        fork.restart()


# -- row 36 ----------------------------------------------------------------------------------------------------------


@EVERY_LOG
@pytest.mark.parametrize("kind", ["read", "open", "size", "list"])
def test_row_36_an_error_while_reading_stops_the_restart_and_changes_nothing(kind: str, setup: Setup) -> None:
    """Faults 36: the n-th read fails; nothing is cut; a restart without the error has everything."""
    life = Life(setup)
    born(life)
    busy(life)
    life.prepare(unit_of(life, XID))
    extent_bytes = setup.file_pages * PAGE
    begun = life.qm.status().log.tail // extent_bytes
    while life.qm.status().log.tail // extent_bytes == begun:  # what comes now is read by itself, and nothing vouches
        life.put("A", size=9000)  # for it but that it can be read
    base = life.disk.crash(KEEP_ALL)
    refused = 0
    for nth in range(1, 200):
        disk = base.snapshot(KEEP_ALL)
        fault = disk.fail(kind, errno.EIO, nth=nth)
        other = Life(disk=disk)
        try:
            other.start()
        except REFUSALS:
            refused += 1
        except OSError as exc:
            raise AssertionError(f"{kind} {nth}: a raw {exc!r}") from exc
        else:
            if not fault.fired:
                break
            damaged = [q.name for q in other.qm.queues() if is_damaged(other, q.name)]
            assert not damaged, f"{kind} {nth}: {damaged} damaged by an error that passes"
        disk.heal()
        again = life.fork(KEEP_ALL)
        again.lose(disk.crash(LOSE_ALL))
        again.restart()
    else:
        raise AssertionError("a restart that reads without end")
    assert refused or kind in ("size", "list")


def is_damaged(life: Life, queue: str) -> bool:
    try:
        list(life.qm.browse(queue))
    except qmgr.MQError as exc:
        assert exc.reason == qmgr.Reason.OBJECT_DAMAGED
        return True
    return False


# -- rows 52, 53 -----------------------------------------------------------------------------------------------------


@EVERY_LOG
@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
def test_row_52_a_sync_of_the_log_fails(once: bool, setup: Setup) -> None:
    """Faults 52: the n-th; stop at once, acknowledge nothing more, never sync again as if it were good."""
    failed = 0
    for nth in range(1, 200) if SOAK else range(1 + 2 * once + setup.linear, 80, 5):
        life = Life(setup)
        born(life)
        before = set(life.disk.files())  # an extent that can't be made is another matter
        fault = life.disk.fail(
            "sync",
            errno.EIO,
            nth=nth,
            once=once,
            where=lambda path, before=before: LOG_FILES(path) and path in before,  # type: ignore[misc]
        )
        error = until_it_fails(life, busy)
        if not fault.fired:
            break
        failed += 1
        assert error is not None, f"sync {nth} failed and nobody was told"
        assert_stopped(life)
        restarts_whole(life, nth)
    assert failed > 9


ERRORS = [errno.EIO, errno.ENOSPC, errno.EROFS]


@EVERY_LOG
@pytest.mark.parametrize("part", [0.0, 0.5], ids=["none of it", "half of it"])
@pytest.mark.parametrize("error", ERRORS, ids=["EIO", "ENOSPC", "EROFS"])
def test_row_53_a_write_of_the_log_fails(part: float, error: int, setup: Setup) -> None:
    """Faults 53: the n-th, also after half of it: no half-written record is followed by an acknowledged one."""
    failed = 0
    first = 1 + ERRORS.index(error) + 3 * (part > 0) + 6 * setup.linear
    for nth in range(1, 200) if SOAK else range(first, 80, 9):
        life = Life(setup)
        born(life)
        before = set(life.disk.files())
        fault = life.disk.fail(
            "write",
            error,
            nth=nth,
            part=part,
            where=lambda path, before=before: LOG_FILES(path) and path in before,  # type: ignore[misc]
        )
        found = until_it_fails(life, busy)
        if not fault.fired:
            break
        failed += 1
        assert found is not None, f"write {nth} failed and nobody was told"
        assert_stopped(life)
        restarts_whole(life, nth)
    assert failed > 5


@EVERY_LOG
@pytest.mark.parametrize("part", [0.0, 0.5], ids=["none of it", "half of it"])
def test_row_53_a_write_of_the_log_ahead_of_the_force_fails(part: float, setup: Setup) -> None:
    """Faults 53: what it was to write has left the buffer, and whoever commits behind it is told that it failed."""
    failed = 0
    for nth in range(1, 200):
        life = Life(setup)
        born(life)
        fault = life.disk.fail("write", errno.EIO, nth=nth, part=part, where=LOG_FILES)
        found = until_it_fails(life, written_behind)
        if not fault.fired:
            break
        failed += 1
        assert found is not None, f"write {nth} failed and nobody was told"
        assert_stopped(life)
        restarts_whole(life, nth)
    assert failed > 5


def segments_go(life: Life) -> None:
    """Checkpoints after which the files are deleted that the ones before them refer to."""
    checkpoints(life)
    life.get("A", limit=1000)
    for _ in range(3):
        life.put("A")
        life.checkpoint()


@EVERY_LOG
@pytest.mark.parametrize("kind", ["sync", "write", "create", "sync_dir", "rename", "unlink", "open"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_row_52_a_call_on_the_queue_files_fails(kind: str, error: int, setup: Setup) -> None:
    """Faults 52, 54: a checkpoint that fails costs nothing: the one before it counts on.

    For want of space it is told and work goes on; after any other error the queue manager may stop, until a restart.
    """
    script, fired = segments_go if kind == "unlink" else checkpoints, 0
    for nth in range(1, 60, 1 if SOAK else 7 if setup.linear else 8):
        life = Life(setup)
        born(life)
        fault = life.disk.fail(kind, error, nth=nth, where=lambda path: QUEUE_FILES(path) or "/queues" in path)
        for _ in range(6):  # a checkpoint fails, the work goes on
            if until_it_fails(life, script) is None:
                break
        if not fault.fired:
            break
        fired += 1
        stopped = until_it_fails(life, lambda life: life.check())
        assert stopped is None or error == errno.EIO, f"{kind} {nth}: {stopped!r}"
        if stopped is None:
            life.checkpoint()
        else:
            assert_stopped(life)
        restarts_whole(life, nth)
    assert fired


@pytest.mark.parametrize("by_itself", [False, True], ids=["asked for", "by itself"])
@pytest.mark.parametrize(
    ("kind", "ending"),
    [("sync", ".seg"), ("sync", "amqalchk.fil.new"), ("sync_dir", "/queues/A"), ("sync_dir", "/qmgrs/SIM")],
)
def test_row_52_after_a_checkpoint_whose_sync_failed_nothing_is_acknowledged(
    kind: str, ending: str, by_itself: bool
) -> None:
    """Faults 52: once, and as good as before afterwards: nobody knows what that sync should have made durable."""
    life = Life(Setup(checkpoint_records=20) if by_itself else TRIPLE)
    born(life)
    fault = life.disk.fail(kind, errno.EIO, where=lambda path: path.endswith(ending))
    if by_itself:
        assert until_it_fails(life, lambda life: [life.put("A") for _ in range(100)].clear()) is not None
    else:
        with pytest.raises(qmgr.Unavailable, match=r"has stopped: .*; mend the disk and start it again"):
            life.qm.checkpoint()
    assert fault.fired
    assert life.qm.refusal is not None
    assert_stopped(life)
    restarts_whole(life, 52 + by_itself)


def test_row_52_creation_on_a_disk_that_fails() -> None:
    """Faults 52, 54: the n-th change of the disk fails while the queue manager is made; then it can be made."""
    for kind in ("create", "write", "sync", "sync_dir", "mkdir", "rename"):
        for nth in range(1, 60):
            disk = SimDisk()
            fault = disk.fail(kind, errno.ENOSPC, nth=nth)
            life = Life(disk=disk)
            try:
                life.create()
            except REFUSALS:
                pass
            except OSError as exc:
                raise AssertionError(f"{kind} {nth}: a raw {exc!r}") from exc
            if not fault.fired:
                assert life.made
                break
            disk.heal()
            assert not disk.exists(f"{DATA}/qmgrs") and not disk.exists(LOG), f"{kind} {nth}"
            life.restart()
            work_on(life)


# -- row 54 ----------------------------------------------------------------------------------------------------------


NO_ROOM = (
    qmgr.Reason.RESOURCE_PROBLEM,
    qmgr.Reason.STORAGE_MEDIUM_FULL,
)
FULL = pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT], ids=["ENOSPC", "EDQUOT"])


@FULL
def test_row_54_no_space_for_log_extents_then_space_again(error: int) -> None:
    """Faults 54: put is refused with a reason; get, commit and backout go on; puts too when space is back."""
    life = Life(Setup(primary_files=2, secondary_files=3))
    life.disk.says_full = error
    born(life)
    life.put("A", number=20, size=1000)
    qm, disk = life.qm, life.disk
    committed, backed = qm.begin(), qm.begin()
    committed.put("B", b"to be committed")
    backed.put("B", b"to be backed out")
    got = committed.get("A")
    disk.capacity = disk.used  # full
    sent = 0
    with pytest.raises(qmgr.MQError) as caught:
        for _ in range(3000):
            holder = qm.begin()  # open units of work keep the log from moving on
            holder.put("B", bytes(9000))
            sent += 1
    assert caught.value.reason in NO_ROOM, caught.value
    assert sent > 5
    first = next(m.body for m in qm.browse("A"))
    assert qm.get("A").body == first  # there is room for what makes room
    committed.commit()
    backed.backout()
    assert [m.body for m in qm.browse("B")] == [b"to be committed"]
    assert got.body not in [first, *(m.body for m in qm.browse("A"))]
    disk.capacity = None
    qm.checkpoint()
    for _ in range(50):
        qm.put("A", bytes(9000))  # without a restart
    before = [m.body for m in qm.browse("A")]
    other = Life(disk=disk.crash(LOSE_ALL))
    other.start()
    assert [m.body for m in other.qm.browse("A")] == before


@pytest.mark.parametrize("log_type", ["circular", "linear"])
@pytest.mark.parametrize("full", ["all", "log", "segments"])
def test_row_54_a_full_disk_takes_no_unit_of_work_from_its_application(
    full: str, log_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults 54: to roll one back gives no extent where no checkpoint can be taken, and it is not the log that is full.

    Gets have a tenth of the log. When that is used up one is rolled back for them, but on a linear log, which that
    gives nothing without a new extent.
    """
    life = Life(Setup(primary_files=2, secondary_files=1 if full == "segments" else 20, log_type=log_type))
    born(life)
    life.put("A", number=20, size=1000)
    qm, disk = life.qm, life.disk
    qm.put_many("A", [b"small"] * 2000)
    qm.checkpoint()
    units = [qm.begin() for _ in range(3)]
    for unit in units:
        unit.put("B", b"mine")
    doubt = qm.begin(qmgr.Xid(1, b"full", b""))
    doubt.put("B", b"in doubt")
    doubt.prepare()
    if full == "all":
        disk.capacity = disk.used
    elif full == "log":  # which has a file system of its own
        disk.fail("create", errno.ENOSPC, once=False, where=lambda path: path.startswith(f"{LOG}/"))
    else:
        disk.fail(("write", "create"), errno.ENOSPC, once=False, where=lambda path: QUEUE_FILES(path))
        monkeypatch.setattr(disk, "free_bytes", lambda path: (0, 1 << 30))
    with pytest.raises(qmgr.MQError) as caught:
        for _ in range(3000):
            qm.put("A", bytes(9000))
    assert caught.value.reason in NO_ROOM, caught.value
    taken = qm.status().checkpoints
    for _ in range(20):
        with pytest.raises(qmgr.MQError):
            qm.put("A", bytes(9000))
    assert qm.status().checkpoints <= taken + 2, "none for each that is refused"
    for _ in range(30):
        qm.get("A")
    if log_type == "linear" and full != "segments":
        with pytest.raises(qmgr.MQError, match="can get no more room"):
            while True:
                qm.get("A")
    assert [unit.state for unit in units] == [qmgr.UowState.ACTIVE] * 3
    units[0].commit()
    with contextlib.suppress(qmgr.MQError):  # this may be refused as well
        units[1].put("B", bytes(5000))
    units[1].backout()
    units[2].commit()
    qm.resolve(qmgr.Xid(1, b"full", b""), commit=True)
    assert [m.body for m in qm.browse("B")] == [b"mine", b"mine", b"in doubt"]
    disk.capacity = None
    disk.heal()
    monkeypatch.undo()
    life.clock.advance(2)
    for _ in range(50):
        qm.put("A", bytes(9000))


@FULL
def test_row_54_no_space_for_segments_then_space_again(error: int) -> None:
    """Faults 54: a checkpoint that finds no room is told and harmless; with space it succeeds."""
    life = Life(Setup(primary_files=2, secondary_files=3))
    life.disk.says_full = error
    born(life)
    disk = life.disk
    life.put("A", number=10, size=10_000)
    disk.capacity = disk.used + 5000
    with pytest.raises(qmgr.MQError) as caught:
        life.checkpoint()
    assert caught.value.reason in (*NO_ROOM, qmgr.Reason.FILE_SYSTEM_ERROR), caught.value
    life.check()
    life.put("A", size=100)
    life.get("A", limit=3)
    unit = life.begin()
    life.get("A", unit=unit)
    life.put("B", unit=unit)
    life.commit(unit)
    fork = life.fork(LOSE_ALL)
    fork.disk.capacity = None
    fork.restart()
    disk.capacity = None
    life.checkpoint()
    life.crash(LOSE_ALL)
    life.restart()


@FULL
@pytest.mark.parametrize("share", [0.35, 0.6, 0.85, 1.1, 1.6])
def test_row_54_a_small_disk_from_the_beginning(share: float, error: int) -> None:
    """Faults 54: whatever does not fit is refused with a reason; what was accepted is there."""
    need = 3 * 67 * 4096
    disk = SimDisk(capacity=int(need * share))
    disk.says_full = error
    life = Life(disk=disk)
    try:
        life.create()
        life.start()
        life.define("A")
        life.define("B")
        for n in range(60):
            life.put("A", size=9000)
            if n % 10 == 9:
                life.checkpoint()
    except qmgr.MQError as exc:
        assert share < 1.2, exc
    disk.capacity = None
    life.crash(LOSE_ALL)
    life.restart()
    work_on(life)


# -- rows 32, 67 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM])
def test_row_32_checkpoints_that_can_not_finish(error: int) -> None:
    """Faults 32: it is said, the log does not grow beyond its files, and all goes on when the cause is gone."""
    life = Life(Setup(primary_files=2, secondary_files=2))
    born(life)
    disk = life.disk
    files = len([path for path in disk.files() if path.endswith(".LOG")])
    disk.fail(("write", "create"), error, once=False, where=lambda path: QUEUE_FILES(path))
    for _ in range(300):
        if not life.put("A", size=9000):
            break
    else:
        raise AssertionError("without a checkpoint the log must fill up")
    extents = [path for path in disk.files() if path.rsplit("/", 1)[1].startswith("S0")]
    assert len(extents) <= 4 <= files + 2
    said = next(disk.peek(path).decode() for path in disk.files() if path.endswith("AMQERR01.LOG"))
    assert os.strerror(error) in said
    life.check()
    fork = life.fork(LOSE_ALL)  # a restart is bounded by the log
    fork.restart()
    assert fork.qm.restart_report.records_replayed < 400
    disk.heal()
    life.clock.advance(2)
    for _ in range(100):
        assert life.put("A", size=9000)
    life.check()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_row_67_the_thread_that_leads_a_group_commit_dies(kind: type[BaseException]) -> None:
    """Faults 67: the others get an error or a new leader, never silence; what they were told is true."""
    life = Life(TRIPLE)
    born(life)
    in_sync, go_on = threading.Event(), threading.Event()
    strikes = [kind("inside the sync")]

    def strike(path: str) -> None:
        if path.endswith(".LOG") and strikes:
            in_sync.set()
            assert go_on.wait(120)
            raise strikes.pop()

    done: list[bytes] = []
    failed: list[BaseException] = []

    def put(body: bytes) -> None:
        try:
            life.qm.put("B", body)
            done.append(body)
        except BaseException as error:
            failed.append(error)

    life.disk.during_sync = strike
    threads = [threading.Thread(target=put, args=(b"%d" % n,), daemon=True) for n in range(6)]
    threads[0].start()
    assert in_sync.wait(120)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a follower waits for ever"
    assert len(done) + len(failed) == 6
    assert any(isinstance(error, kind) for error in failed), failed
    assert all(isinstance(error, (kind, qmgr.MQError)) for error in failed), failed
    life.disk.during_sync = None
    again = Life(disk=life.disk.crash(LOSE_ALL))
    again.start()
    assert set(done) <= {m.body for m in again.qm.browse("B")}


# -- row 59 ----------------------------------------------------------------------------------------------------------


@EVERY_LOG
@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
def test_row_59_an_error_at_close_loses_nothing(once: bool, setup: Setup) -> None:
    """Faults 59: what was acknowledged was synced through the descriptor that wrote it, before any close."""
    for nth in range(1, 12, 1 if SOAK else 3):
        life = Life(setup)
        born(life)
        life.disk.fail("close", errno.EIO, nth=nth, once=once)
        until_it_fails(life, busy)
        restarts_whole(life, nth)


def test_row_59_no_file_is_synced_through_a_descriptor_that_did_not_write_it() -> None:
    """Faults 59: an error is reported to one descriptor only; a sync through another proves nothing."""
    life = Life(TRIPLE)
    dirty: dict[str, int] = {}
    wrong: list[str] = []
    real_open = life.disk.open

    def opened(path: str, *, create: bool = False, direct: bool = False) -> object:
        file = real_open(path, create=create, direct=direct)
        write, sync = file.write, file.sync
        me = id(file)

        class Watched:
            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

            def write(self, offset: int, data: bytes) -> None:
                if dirty.setdefault(path, me) != me:
                    wrong.append(f"{path} written through two descriptors")
                write(offset, data)

            def sync(self) -> None:
                if dirty.get(path, me) != me:
                    wrong.append(f"{path} synced through another descriptor than it was written")
                sync()
                dirty.pop(path, None)

            def close(self) -> None:
                if dirty.get(path) == me and not path.endswith(("ERR01.LOG", ".lock")):
                    wrong.append(f"{path} closed before it was synced")
                dirty.pop(path, None)
                file.close()

        return Watched()

    life.disk.open = opened  # type: ignore[method-assign, assignment]
    everything(life)
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "unlink"])
def test_row_53_a_checkpoint_that_the_system_has_no_memory_for_is_taken_later(kind: str) -> None:
    """It stopped the queue manager, whose log had nothing to do with it."""
    missed = 0
    for nth in range(1, 40):
        life = Life()
        born(life)
        checkpoints(life)
        fault = life.disk.fail(kind, errno.ENOMEM, nth=nth, where=QUEUE_FILES)
        for _ in range(3):
            life.put("A", size=5000)
            life.get("A", limit=2)
            try:
                life.qm.checkpoint()
            except qmgr.MQError as exc:
                missed += 1
                assert "the system has no memory for it: give it more, and try again" in str(exc)
        if not fault.fired:
            break
        assert life.put("A"), "it goes on"
        life.check()
        life.qm.checkpoint()
        restarts_whole(life, nth)
    assert nth > 1
    assert missed or kind == "unlink"


# -- creation, where something lies already ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error"), [("read", errno.EIO), ("open", errno.EMFILE), ("open", errno.EIO), ("list", errno.EMFILE)]
)
def test_a_creation_that_can_not_look_at_a_log_leaves_it(kind: str, error: int) -> None:
    """The data directory is lost and not the log; the queue manager is created anew by mistake, and a call fails."""
    for nth in range(1, 60):
        life = Life()
        born(life)
        life.end()
        disk = life.disk
        remove_tree(disk, f"{DATA}/qmgrs/{NAME}")
        disk.unlink(f"{DATA}/mqs.ini")  # which lists it: it would be away
        log = {path: disk.peek(path) for path in disk.files() if LOG_FILES(path)}
        fault = disk.fail(kind, error, nth=nth, where=lambda path: path.startswith(LOG))
        with pytest.raises(qmgr.MQError):
            Life(disk=disk).create()
        assert {path: disk.peek(path) for path in disk.files() if LOG_FILES(path)} == log
        if not fault.fired:
            break
    assert nth > 1


def test_a_creation_that_is_refused_leaves_no_directory() -> None:
    life = Life()
    born(life)
    life.end()
    disk = life.disk
    before = disk.files()
    with pytest.raises(qmgr.AlreadyExists, match="holds the log of another queue manager"):
        qmgr.create(NAME, data_path="/other/data", log_path=LOG, disk=disk, clock=SimClock())
    assert disk.files() == before
    assert not disk.exists("/other")


@pytest.mark.parametrize("data, logs", [("/made", "/made/qmgrs"), (f"/made/{NAME}", "/made")])
def test_a_log_where_the_data_is_or_above_it_is_refused(data: str, logs: str) -> None:
    """What is made for it would be removed with all that lies there, were there no room."""
    disk = SimDisk()
    disk.mkdir("/made")
    with pytest.raises(qmgr.Mistake, match="can't lie where its data is, nor in a directory above"):
        qmgr.create(NAME, data_path=data, log_path=logs, disk=disk, clock=SimClock())
    assert disk.list("/made") == []


@pytest.mark.parametrize("inner", ["", "/queues", "/errors/deep"])
def test_a_place_in_the_directory_of_another_queue_manager_is_refused(tmp_path: Path, inner: str) -> None:
    """The deletion of that one would take the data, or the log, of this one along."""
    other, small = tmp_path / "link" / "qmgrs" / "A", {"log_file_pages": 64}
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "qm.ini").write_text("a template, say")  # which makes no queue manager's directory of this one
    qmgr.create("A", data_path=tmp_path / "data", **small)
    before = PosixDisk().list(f"{other}{inner}")
    for data, logs in ((tmp_path / "data", f"{other}{inner}"), (f"{other}{inner}", tmp_path / "elsewhere")):
        with pytest.raises(qmgr.Mistake, match="lies in the directory of another queue manager"):
            qmgr.create("B", data_path=data, log_path=logs, **small)
    qmgr.create("B", data_path=tmp_path / "data", **small)
    with pytest.raises(qmgr.Mistake, match="lies in the directory of another queue manager"):
        migration.migrate_log("B", data_path=tmp_path / "data", log_path=f"{other}{inner}")
    with pytest.raises(qmgr.Mistake, match="lies in the directory of another queue manager"):
        pointintime.recover_to("B", f"{other}{inner}", time_us=1, data_path=tmp_path / "data")
    assert PosixDisk().list(f"{other}{inner}") == before
    assert not (tmp_path / "elsewhere").exists()
    qmgr.delete("A", data_path=tmp_path / "data")
    qmgr.start("B", data_path=tmp_path / "data").end()


def test_a_creation_that_failed_takes_no_lock_from_who_creates_it_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first has removed the next one makes again, at once."""
    location, others = locations.find(NAME, tmp_path), []

    def unmade(*given: Any) -> None:
        usual(*given)
        for path in (location.data_dir, location.log_dir):
            make_dirs(PosixDisk(), path)
        others.append(ownership.own(PosixDisk(), location, location.log_dir))

    usual = creation._remove_made
    monkeypatch.setattr(creation, "_remove_made", unmade)
    monkeypatch.setattr(mqsini, "LOCK_TRIES", 1)
    held = PosixDisk().lock(f"{tmp_path}/mqs.ini.lock", "somebody")
    with pytest.raises(qmgr.Unavailable, match=r"mqs\.ini is being changed"):
        qmgr.create(NAME, data_path=tmp_path)
    held.release()
    with pytest.raises(InUse):
        ownership.own(PosixDisk(), location, location.log_dir)
    others[0].release()


def test_row_08_what_a_killed_creation_left_is_durable_before_anything_is_acknowledged() -> None:
    """Faults 8: the name of qm.ini is in memory only, and the first checkpoint of the start has no room."""
    made = SimDisk()
    Life(disk=made).create()
    starts = 0
    for at in range(made.effects - 8, made.effects + 1):
        disk = SimDisk()
        disk.crash_after(at)
        with contextlib.suppress(SimCrash):
            Life(disk=disk).create()
        disk = disk.crash(KEEP_ALL)
        if not disk.exists(f"{DATA}/qmgrs/{NAME}/qm.ini"):
            continue
        disk.fail("create", errno.ENOSPC, once=False, where=lambda path: "amqalchk" in path)
        qm = qmgr.start(NAME, data_path=DATA, disk=disk, clock=SimClock(), background=False)
        qm.define_queue("A")
        qm.put("A", b"acknowledged")
        starts += 1
        after = disk.crash(LOSE_ALL)
        with qmgr.start(NAME, data_path=DATA, disk=after, clock=SimClock(), background=False) as qm:
            assert [message.body for message in qm.browse("A")] == [b"acknowledged"]
    assert starts


def test_row_08_what_a_killed_creation_has_made_is_durable_when_the_next_one_returns() -> None:
    """Faults 8, 13: names that are in memory only, of directories too, from the first one on; then the power fails."""
    made = SimDisk()
    Life(disk=made).create()
    made_again = 0
    for at in range(1, made.effects + 1):
        disk = SimDisk()
        disk.crash_after(at)
        with contextlib.suppress(SimCrash):
            Life(disk=disk).create()
        disk = disk.crash(KEEP_ALL)
        try:
            Life(disk=disk).create()
        except qmgr.AlreadyExists:
            continue
        life = Life(disk=disk.crash(LOSE_ALL))
        life.start()
        assert life.qm.queues() == [], at
        made_again += 1
    assert made_again > 20


def test_row_17_a_creation_that_is_killed_anywhere_and_again_in_the_next_is_made_by_the_third() -> None:
    """Whose the log is that was left behind is known each time."""
    made = SimDisk()
    Life(disk=made).create()
    every = 7 if SOAK else 13
    cases = [
        (first, second)
        for first in range(1, made.effects + 1)
        for second in range(1 + first % every, made.effects, every)
    ]
    for number, (first, second) in enumerate(cases):
        disk = SimDisk()
        for change in (first, second):
            disk.crash_after(change)
            with contextlib.suppress(SimCrash, qmgr.AlreadyExists):
                Life(disk=disk).create()
            disk = disk.crash(mixed(number))
        with contextlib.suppress(qmgr.AlreadyExists):
            Life(disk=disk).create()
        with qmgr.start(NAME, data_path=DATA, disk=disk, clock=SimClock(), background=False) as qm:
            assert qm.queues() == []


def test_a_queue_manager_that_has_lost_its_ini_is_not_created_over() -> None:
    life = Life()
    born(life)
    life.end()
    disk = life.disk
    disk.remove(f"{DATA}/qmgrs/{NAME}/qm.ini")
    before = {path: disk.peek(path) for path in disk.files() if not path.endswith(".lock")}
    for log_path in (LOG, "/base/elsewhere"):
        with pytest.raises(qmgr.AlreadyExists, match=f"qm.ini is missing; put it back, .* .qm repair -m {NAME}"):
            qmgr.create(NAME, data_path=DATA, log_path=log_path, disk=disk, clock=SimClock())
    with pytest.raises(qmgr.Unavailable, match=f"qm.ini is missing; put it back, or .* .qm repair -m {NAME}"):
        qmgr.start(NAME, data_path=DATA, disk=disk, clock=SimClock())
    assert {path: disk.peek(path) for path in disk.files() if not path.endswith(".lock")} == before


def test_a_deletion_that_failed_anywhere_is_repeated() -> None:
    life = Life()
    born(life)
    life.end()
    location, failed = f"{DATA}/qmgrs/{NAME}", 0
    while True:
        disk = life.disk.snapshot(KEEP_ALL)
        disk.fail(("rename", "unlink", "rmdir", "sync_dir"), errno.EIO, nth=failed + 1)
        try:
            qmgr.delete(NAME, data_path=DATA, disk=disk)
            break
        except qmgr.MQError:
            failed += 1
        disk.heal()
        if disk.exists(f"{location}/qm.ini.deleted"):
            with pytest.raises(qmgr.AlreadyExists, match="interrupted; repeat it"):
                qmgr.create(NAME, data_path=DATA, log_path=LOG, disk=disk, clock=SimClock())
            with pytest.raises(qmgr.Unavailable, match="interrupted; repeat it"):
                qmgr.start(NAME, data_path=DATA, disk=disk, clock=SimClock())
        if disk.exists(f"{location}/qm.ini.deleted") or disk.exists(f"{location}/qm.ini"):
            qmgr.delete(NAME, data_path=DATA, disk=disk)
        else:
            with pytest.raises(qmgr.Unavailable, match="there is no queue manager"):
                qmgr.delete(NAME, data_path=DATA, disk=disk)
        assert not [path for path in disk.files() if NAME in path]
        assert not disk.exists(location)
        qmgr.create(NAME, data_path=DATA, log_path=LOG, disk=disk, clock=SimClock())
        with qmgr.start(NAME, data_path=DATA, disk=disk, clock=SimClock(), background=False) as qm:
            assert qm.queues() == []
    assert failed > 10


def test_a_deletion_leaves_the_lock_of_what_is_listed_since_its_file_system_may_not_be_mounted() -> None:
    life = Life()
    born(life)
    life.end()
    location = f"{DATA}/qmgrs/{NAME}"
    for path in life.disk.files(location):
        if not path.endswith("/qm.lock"):
            life.disk.remove(path)
    for name in life.disk.list(location):
        if name != "qm.lock":
            for below in life.disk.list(f"{location}/{name}"):
                life.disk.rmdir(f"{location}/{name}/{below}")
            life.disk.rmdir(f"{location}/{name}")
    assert life.disk.list(location) == ["qm.lock"]
    with pytest.raises(qmgr.Unavailable):
        qmgr.delete(NAME, data_path=DATA, disk=life.disk)
    assert life.disk.list(location) == ["qm.lock"]
