"""What becomes of a disk while work goes on: read-only, forbidden, out of descriptors, hanging, gone; rows 55-58, 61.

The calls that fail once, or as the n-th, are in `test_disk_faults.py`. Here the trouble lasts until somebody ends it.
"""

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

import qmgr
from qmgr import queue_snapshot, segments
from recovery.checkpoint import MIN_RESERVE_BYTES
from tests.conftest import SOAK
from tests.qmgr.world import DATA, NAME, Call, World, bodies, soon
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.life import LOG, TRIPLE, Life, Setup
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed
from tests.test_crash import EVERY_LOG, born, work_on
from tests.test_disk_faults import REFUSALS, assert_stopped, busy, restarts_whole, until_it_fails

CHANGES = ("create", "write", "truncate", "rename", "unlink", "mkdir", "rmdir", "lock")
EVERYTHING = (
    *CHANGES,
    "open",
    "read",
    "size",
    "sync",
    "close",
    "list",
    "exists",
    "sync_dir",
    "locked_by",
    "free_bytes",
)


def is_right_or_stopped(life: Life, what: str) -> bool:
    """The state in memory is what it was told to be, or it is shown no more, with one sentence; whether it has stopped.

    The sentence is the same for each call.
    """
    refusal = life.qm.refusal
    if refusal is None:
        life.check()
        return False
    assert_stopped(life)
    for call in (lambda: life.qm.put("A", b"x"), lambda: list(life.qm.browse("A"))):
        with pytest.raises(qmgr.Unavailable) as caught:
            call()
        assert str(caught.value) == str(refusal), what
    assert "start it again" in str(refusal) and "\n" not in str(refusal), what
    return True


def start_is_refused_or_whole(life: Life, hinder: Callable[[SimDisk], Any]) -> None:
    """A start while the trouble lasts: one clear error, or it works; and then, without the trouble, all is there."""
    fork = life.fork(LOSE_ALL)
    disk = fork.disk
    hinder(disk)
    with contextlib.suppress(*REFUSALS):
        fork.start()
    disk.heal()
    disk.max_open = None
    fork.lose(disk.crash(LOSE_ALL))
    fork.restart()


# -- row 13 ----------------------------------------------------------------------------------------------------------


def test_row_13_a_directory_that_a_killed_process_had_made() -> None:
    """Faults 1, 13: killed after mkdir and before the sync; the next process finds it, and then the power fails."""
    life = Life()
    born(life)
    disk = life.disk

    def kill(kind: str, path: str) -> None:
        if kind == "sync_dir" and path.endswith("/queues"):
            raise SimCrash("killed, and the machine goes on")

    disk.before_effect = kill
    with pytest.raises(SimCrash):
        life.checkpoint()
    disk.before_effect = None
    disk.locks.clear()
    life.lose(disk)
    life.restart()
    life.checkpoint()
    life.crash(LOSE_ALL)
    life.restart()


# -- row 55 ----------------------------------------------------------------------------------------------------------


@EVERY_LOG
def test_row_55_a_disk_that_becomes_read_only(setup: Setup) -> None:
    """Faults 55: from the n-th change on, for good: it stops, and a restart has what was acknowledged."""
    stopped = 0
    for nth in range(1, 500, 3 if SOAK else 31 if setup.linear else 29):
        life = Life(setup)
        born(life)
        fault = life.disk.fail(CHANGES, errno.EROFS, nth=nth, once=False)
        error = until_it_fails(life, busy)
        if not fault.fired:
            break
        assert error is not None
        stopped += is_right_or_stopped(life, f"change {nth}")
        restarts_whole(life, nth)
        if nth == 1:
            start_is_refused_or_whole(life, lambda disk: disk.fail(CHANGES, errno.EROFS, once=False))
    assert stopped > 1


def below(directory: str) -> Callable[[str], bool]:
    return lambda path: path == directory or path.rpartition("/")[0] == directory


@EVERY_LOG
def test_row_55_files_and_directories_that_may_not_be_opened(setup: Setup) -> None:
    """Faults 55: EACCES on one file, on one directory: what is open goes on; what is refused can be had later."""
    life = Life(setup)
    born(life)
    life.checkpoint()
    files = life.disk.files("/base")
    directories = {path.rpartition("/")[0] for path in files}
    chosen = sorted(directories) + [path for path in files if not path.endswith((".LOG", ".lock"))]
    chosen += [path for path in files if path.endswith(".LOG")][:1]
    assert len(directories) > 4
    went_on = 0
    for number, place in enumerate(chosen):
        whole = place in directories
        kinds = ("open", "create", "rename", "unlink", "mkdir", "rmdir", "list", "lock") if whole else ("open",)
        where = below(place) if whole else place.__eq__

        def hinder(disk: SimDisk, kinds: tuple[str, ...] = kinds, where: Callable[[str], bool] = where) -> None:
            disk.fail(kinds, errno.EACCES, once=False, where=where)

        life = Life(setup)
        born(life)
        life.checkpoint()
        hinder(life.disk)
        until_it_fails(life, busy)
        if not is_right_or_stopped(life, place):
            went_on += 1
            life.disk.heal()
            busy(life)
        life.crash(mixed(number))
        life.restart()
        start_is_refused_or_whole(life, hinder)
    assert went_on > 2


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("what", ["amqalchk.fil.new", ".seg"])
def test_row_55_a_checkpoint_that_may_not_be_written_is_refused_and_can_be_had_later(what: str, error: int) -> None:
    """Faults 55: a mode that somebody has changed; nothing of what was written before is in doubt."""
    life = Life()
    born(life)
    life.checkpoint()
    before = life.qm.status().checkpoints
    life.qm.put_many("A", [b"x"] * 3)
    life.disk.fail(("open", "create"), error, once=False, where=lambda path: path.endswith(what))
    with pytest.raises(qmgr.Unavailable, match="nothing is lost by that: be the user whose it is") as caught:
        life.qm.checkpoint()
    assert caught.value.reason == qmgr.Reason.FILE_SYSTEM_ERROR
    assert life.qm.status().checkpoints == before
    assert life.qm.get("A")
    life.disk.heal()
    life.qm.checkpoint()
    assert life.qm.status().checkpoints == before + 1


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_row_55_a_segment_that_may_not_be_deleted_is_deleted_later(error: int) -> None:
    """Faults 55: the checkpoint is complete, and that file is in nobody's way. A file system that copies what is
    written over has no room to delete when it is full: an end in order was none then, and lost what it had kept."""
    world = World()
    world.qm.define_queue("A")
    world.qm.define_queue("H", default_persistence=False, non_persistent_class="HIGH")

    def turn() -> int:
        before = world.qm.status().checkpoints
        world.qm.put_many("A", [bytes(3000)] * 50)
        world.qm.checkpoint()
        assert world.qm.status().checkpoints > before
        world.qm.get_many("A", 50)
        return len(world.disk.list("/data/qmgrs/QM1/queues/A"))

    usual = min(turn() for _ in range(4))
    world.disk.fail("unlink", error, once=False, where=lambda path: path.endswith(".seg"))
    assert [turn() for _ in range(4)][-1] >= usual + 4
    world.disk.heal()
    assert min(turn() for _ in range(4)) == usual
    world.disk.fail("unlink", error, once=False, where=lambda path: path.endswith(".seg"))
    world.qm.put_many("H", [b"h"] * 10)
    world.qm.end()
    world.disk.heal()
    world.start()
    assert world.depths() == {"A": 0, "H": 10}


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EIO])
def test_row_55_a_start_that_may_not_make_the_extents_that_it_is_to_have_is_refused(error: int) -> None:
    """Faults 55: a full disk is no reason to insist, since others are made later; anything else is said."""
    world = World(log_primary_files=3)
    world.qm.define_queue("A")
    world.qm.put("A", b"x")
    world.qm.end()
    world.set_ini("LogPrimaryFiles", "5")
    world.disk.fail(("create",), error, once=False, where=lambda path: "/active/" in path)
    with pytest.raises(qmgr.Unavailable) as caught:
        world.start()
    assert caught.value.reason in (qmgr.Reason.FILE_SYSTEM_ERROR, qmgr.Reason.NOT_AUTHORIZED)
    world.disk.heal()
    world.disk.fail(("create",), errno.ENOSPC, once=False, where=lambda path: "/active/" in path)
    world.start()
    assert bodies(world.qm, "A") == [b"x"]
    world.qm.put("A", b"y")
    world.qm.end()


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_row_55_a_segment_that_can_not_be_read_now_is_no_reason_for_a_checkpoint_to_fail(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults 55, 56: it was to be rewritten, since most of it is gone; it stays as it is until it can be."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 2000)
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)
    world = World()
    world.qm.define_queue("A")
    world.qm.put_many("A", [b"%d" % n + bytes(200) for n in range(40)])
    world.qm.checkpoint()
    left = [n for n in range(40) if n % 8 == 7]
    for message in list(world.qm.browse("A")):
        if int(message.body.partition(b"\0")[0]) not in left:
            world.qm.get("A", message_id=message.message_id)
    fault = world.disk.fail(("read",), error, once=False, where=lambda path: path.endswith(".seg"))
    world.qm.checkpoint()
    assert fault.fired
    world.disk.heal()
    world.qm.checkpoint()
    for again in (False, True):
        if again:
            world.crash()
        assert [int(body.partition(b"\0")[0]) for body in bodies(world.qm, "A")] == left
    world.qm.end()


# -- row 56 ----------------------------------------------------------------------------------------------------------


def work_without(life: Life, rounds: int) -> int:
    """Calls of every kind while checkpoints may find no descriptor; how many checkpoints did not."""
    refused = 0
    for n in range(rounds):
        life.put("A", size=9000)
        unit = life.begin()
        life.get("A", unit=unit)
        life.put("B", size=100, unit=unit)
        life.backout(unit) if n % 3 == 2 else life.commit(unit)
        life.get("B")
        try:
            life.checkpoint()
        except qmgr.Unavailable as exc:
            assert "raise the limit (ulimit -n)" in str(exc)
            refused += 1
    return refused


@EVERY_LOG
def test_row_56_without_descriptors_calls_go_on(setup: Setup) -> None:
    """Faults 56: only some, or none, are left: the log has its own, and a checkpoint is tried again later."""
    refused = []
    for left in range(5):
        life = Life(setup)
        born(life)
        life.disk.max_open = life.disk.open_files + left
        refused.append(work_without(life, 12))
        life.check()
        fork = life.fork(LOSE_ALL)
        fork.disk.max_open = None
        fork.restart()
        life.disk.max_open = None
        life.clock.advance(2)
        life.checkpoint()
        assert work_without(life, 3) == 0
        life.crash(LOSE_ALL)
        life.restart()
        work_on(life)
    assert refused[0] == 12 and refused[-1] == 0, refused


@EVERY_LOG
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE], ids=["EMFILE", "ENFILE"])
def test_row_56_a_call_that_gets_no_descriptor(error: int, setup: Setup) -> None:
    """Faults 56: the n-th that needs one, for good: nothing is lost, and nothing stops."""
    kinds = ("open", "create", "list", "sync_dir")
    for nth in range(1 + error % 2, 100, 1 if SOAK else 11 if setup.linear else 9):
        life = Life(setup)
        born(life)
        fault = life.disk.fail(kinds, error, nth=nth, once=False)
        work_without(life, 5)
        assert life.qm.refusal is None, f"call {nth}: {life.qm.refusal}"
        life.check()
        if not fault.fired:
            break
        life.disk.heal()
        life.clock.advance(2)
        busy(life)
        restarts_whole(life, nth)
    else:
        raise AssertionError("calls without end")


@pytest.mark.parametrize("size", [0, 1 << 20])  # of what is kept for the next checkpoint: too small, or enough
def test_row_56_a_checkpoint_that_is_complete_has_not_failed_for_want_of_a_descriptor(size: int) -> None:
    world = World()
    reserve = f"{DATA}/qmgrs/{NAME}/amqalchk.rsv"
    world.disk.poke(reserve, bytes(size))
    world.disk.fail("open", errno.EMFILE, once=False, where=lambda path: path == reserve)
    before = world.qm.status()
    world.qm.checkpoint()
    assert world.qm.status().checkpoints == before.checkpoints + 1
    assert "AMQ9002" not in world.errors()
    world.disk.heal()
    world.qm.checkpoint()
    assert len(world.disk.peek(reserve)) >= max(size, MIN_RESERVE_BYTES)


def test_row_56_a_checkpoint_that_is_complete_has_not_failed_as_its_reserve_can_not_be_deleted() -> None:
    """As above: where a file system copies, there is no room for that either."""
    world = World()
    world.qm.define_queue("H", default_persistence=False, non_persistent_class="HIGH")
    world.qm.put("H", b"h")
    reserve = f"{DATA}/qmgrs/{NAME}/amqalchk.rsv"
    world.disk.poke(reserve, b"")
    world.disk.fail("write", errno.ENOSPC, once=False, where=lambda path: path == reserve)
    deleting = world.disk.fail("unlink", errno.ENOSPC, nth=2, once=False, where=lambda path: path == reserve)
    world.qm.end()
    assert deleting.fired
    world.disk.heal()
    world.start()
    assert bodies(world.qm, "H") == [b"h"]


def test_row_56_a_start_with_too_few_descriptors() -> None:
    """Faults 56: it says that they have run out, changes nothing, and works as soon as there are enough."""
    life = Life()
    born(life)
    life.checkpoint()
    base = life.disk.crash(KEEP_ALL)
    started = False
    for limit in range(1, 40):
        other = Life(disk=base.snapshot(KEEP_ALL))
        other.disk.max_open = limit
        try:
            other.start()
        except qmgr.MQError as exc:
            assert "file descriptors have run out" in str(exc), exc
            assert other.disk.open_files == 0, "what was opened is closed"
            again = life.fork(KEEP_ALL)
            again.lose(other.disk.crash(LOSE_ALL))
            again.disk.max_open = None
            again.restart()
        else:
            started = True
            break
    assert started and limit > 3


@EVERY_LOG
@pytest.mark.parametrize("where", ["log", "data"])
def test_row_56_a_file_that_may_not_grow(where: str, setup: Setup) -> None:
    """Faults 56: EFBIG (ulimit -f) at the n-th write and all that follow: stop or refuse, lose nothing."""
    fired = 0
    for nth in range(1, 200, 1 if SOAK else 17 if where == "log" else 5):
        life = Life(setup)
        born(life)
        fault = life.disk.fail(
            "write", errno.EFBIG, nth=nth, once=False, where=lambda path: path.startswith(LOG) == (where == "log")
        )
        error = until_it_fails(life, busy)
        if not fault.fired:
            break
        fired += 1
        stopped = is_right_or_stopped(life, f"write {nth}")
        assert stopped <= (error is not None)
        restarts_whole(life, nth)
    assert fired > 1


# -- row 58 ----------------------------------------------------------------------------------------------------------


class Hanging:
    """The syncs of some files hang until `go_on`; then they end well, or with an error."""

    def __init__(self, disk: SimDisk, suffix: str, error: int = 0) -> None:
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self._suffix = suffix
        self._error = error
        disk.during_sync = self._sync

    def _sync(self, path: str) -> None:
        if path.endswith(self._suffix):
            self.hangs.set()
            assert self.go_on.wait(120)
            if self._error:
                raise OSError(self._error, "the sync hung, and then failed", path)


def wait_in_line(life: Life, number: int) -> None:
    """So many calls wait for the log to be forced."""
    never = threading.Event()
    for _ in range(12_000):
        if len(life.qm._log._waiting) == number:
            return
        never.wait(0.01)
    raise AssertionError("they do not wait")


@EVERY_LOG
@pytest.mark.parametrize("error", [0, errno.EIO], ids=["ends", "fails"])
def test_row_58_a_sync_of_the_log_hangs(error: int, setup: Setup) -> None:
    """Faults 58: nobody is told that it is done, however long it takes; the others wait; looking goes on."""
    life = Life(setup)
    born(life)
    qm = life.qm
    held = [message.body for message in qm.browse("A")]
    unit = qm.begin()
    unit.put("B", b"committed")
    told: list[str] = []

    def call(name: str, make: Callable[[], Any]) -> Call:
        def made() -> Any:
            result = make()
            told.append(name)
            return result

        return Call(made)

    disk = Hanging(life.disk, ".LOG", error)
    calls = [call("first", lambda: qm.put("B", b"first"))]
    assert disk.hangs.wait(120)
    calls.append(call("commit", unit.commit))
    wait_in_line(life, 1)
    calls.append(call("put", lambda: qm.put_many("B", [b"one", b"two"])))
    wait_in_line(life, 2)
    calls.append(call("get", lambda: qm.get("A").body))
    wait_in_line(life, 3)
    calls.append(call("checkpoint", qm.checkpoint))
    wait_in_line(life, 4)
    life.clock.advance(3600)
    assert soon(lambda: bodies(qm, "A")) == held[1:]
    assert {queue.name for queue in soon(qm.queues)} >= {"A", "B"}
    assert soon(lambda: qm.status().log.tail) > soon(lambda: qm.status().log.durable)
    assert [one.id for one in soon(qm.transactions)] == []
    assert soon(lambda: qm.queue("B").depth) == 4
    assert told == []
    other = Life(disk=life.disk.snapshot(LOSE_ALL))  # nothing was said, so nothing need be there
    other.start()
    assert bodies(other.qm, "B") in ([], [b"first"])
    disk.go_on.set()
    if error:
        for one in calls:
            with pytest.raises(qmgr.MQError):
                one.outcome()
        assert told == []
        assert_stopped(life)
    else:
        assert [one.outcome() for one in calls][3] == held[0]
        assert sorted(told) == ["checkpoint", "commit", "first", "get", "put"]
    again = Life(disk=life.disk.crash(LOSE_ALL))
    again.start()
    if not error:
        assert bodies(again.qm, "A") == held[1:]
        assert sorted(bodies(again.qm, "B")) == [b"committed", b"first", b"one", b"two"]


LOOKS: dict[str, Callable[[qmgr.QueueManager, qmgr.UnitOfWork], qmgr.Message]] = {
    "browse": lambda qm, unit: next(qm.browse("B")),
    "get": lambda qm, unit: unit.get("B"),
    "get with a wait": lambda qm, unit: unit.get("B", wait=60.0),
    "get many": lambda qm, unit: unit.get_many("B", 2)[0],
    "get by correlation": lambda qm, unit: unit.get("B", correlation_id=b"c"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_row_58_nobody_sees_a_message_that_a_crash_may_still_take(look: str) -> None:
    """Faults 2, 58: the sync of its put hangs, and whoever finds it waits for that too."""
    life = Life()
    born(life)
    qm = life.qm
    soon(lambda: qm.get_many("B", 100))
    unit = qm.begin()
    disk = Hanging(life.disk, ".LOG")
    put = Call(lambda: qm.put("B", b"not safe", correlation_id=b"c"))
    assert disk.hangs.wait(120)
    looking = Call(lambda: LOOKS[look](qm, unit).body)
    never = threading.Event()
    while looking.is_alive() and not life.qm._log._waiting:
        never.wait(0.001)
    assert looking.is_alive(), "it was shown"
    other = Life(disk=life.disk.snapshot(LOSE_ALL))
    other.start()
    assert bodies(other.qm, "B") == []
    disk.go_on.set()
    assert looking.outcome() == b"not safe"
    put.outcome()


@EVERY_LOG
def test_row_58_a_sync_of_the_queue_files_hangs(setup: Setup) -> None:
    """Faults 58: a checkpoint that hangs holds up nobody, and what they were told is true whatever it does."""
    life = Life(setup)
    born(life)
    disk = Hanging(life.disk, ".seg")
    checkpoint = Call(life.qm.checkpoint)
    assert disk.hangs.wait(120)
    soon(lambda: life.put("B", number=3, size=5000))
    soon(lambda: life.get("A"))
    unit = life.begin()
    soon(lambda: life.get("A", unit=unit))
    soon(lambda: life.put("B", unit=unit))
    soon(lambda: life.commit(unit))
    soon(life.check)
    assert checkpoint.is_alive()
    fork = life.fork(LOSE_ALL)
    fork.restart()
    disk.go_on.set()
    checkpoint.outcome()
    life.check()
    life.crash(LOSE_ALL)
    life.restart()


# -- row 61 ----------------------------------------------------------------------------------------------------------


@EVERY_LOG
@pytest.mark.parametrize("gone", ["log", "all"])
@pytest.mark.parametrize("error", [errno.ESTALE, errno.EIO], ids=["ESTALE", "EIO"])
def test_row_61_storage_that_is_gone_in_mid_run(error: int, gone: str, setup: Setup) -> None:
    """Faults 61: every call fails from the n-th on: as a sync that fails; who ends it holds no lock afterwards."""
    fired = 0
    for nth in range(1 + error % 7, 2000, 3 if SOAK else 53 if setup.linear else 47):
        life = Life(setup)
        born(life)
        fault = life.disk.fail(
            EVERYTHING, error, nth=nth, once=False, where=lambda path: gone == "all" or path.startswith(LOG)
        )
        until_it_fails(life, busy)
        if not fault.fired:
            break
        fired += 1
        if not is_right_or_stopped(life, f"call {nth}"):  # it was a read, or housekeeping, that met it first
            assert until_it_fails(life, lambda life: life.put("A")) is not None, f"call {nth}"
        assert life.qm.refusal is not None, f"call {nth}"
        restarts_whole(life, nth)
        with contextlib.suppress(qmgr.Unavailable):
            life.qm.end("immediate")
        assert life.disk.locks == {}, "somebody else may start it"
    assert fired > 1


def test_row_61_a_start_on_storage_that_goes() -> None:
    """Faults 61: one clear error, no lock is left, nothing is cut."""
    life = Life(TRIPLE)
    born(life)
    busy(life)
    for nth in range(1, 1000, 1 if SOAK else 9):
        fork = life.fork(LOSE_ALL)
        fault = fork.disk.fail(EVERYTHING, errno.ESTALE, nth=nth, once=False)
        try:
            fork.start()
        except REFUSALS as exc:
            assert "\n" not in str(exc)
        if not fault.fired:
            break
        assert fork.disk.locks == {} or fork.qm is not None
        fork.disk.heal()
        fork.lose(fork.disk.crash(LOSE_ALL))
        fork.restart()
    else:
        raise AssertionError("a start without end")
