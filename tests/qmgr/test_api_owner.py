"""Who owns a queue manager: one process at a time, one manager in it; forks and failures."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger.disk import Buffer
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile
from qmgr import Reason, locations, migration, mqsini, repairing
from tests.qmgr.world import DATA, NAME, SMALL, Call, World, bodies, soon
from tests.sim.disk import SimDisk

Real = Callable[..., qmgr.QueueManager]

HOLDER = """
import sys, qmgr
qm = qmgr.start("QM1", data_path=sys.argv[1])
qm.put("A", b"from the child")
print("started", flush=True)
sys.stdin.read()
"""


def hold(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that owns the queue manager."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    return child


def test_row_62_a_second_start_in_this_process_says_who_holds_it(real: Real, tmp_path: Path) -> None:
    qm = real()
    qm.define_queue("A")
    for _ in range(3):
        with pytest.raises(qmgr.InUse, match=f"pid {os.getpid()}") as caught:
            qmgr.start(NAME, data_path=tmp_path)
        assert caught.value.holder == f"pid {os.getpid()}"
        assert isinstance(caught.value, qmgr.Unavailable)
    qm.put("A", b"still works")
    qm.end()
    assert bodies(real(), "A") == [b"still works"]


def test_a_python_without_the_gil_is_refused_and_holds_nothing(
    real: Real, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real().end()
    with monkeypatch.context() as without_gil:
        without_gil.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        with pytest.raises(qmgr.Unavailable, match=r"start it with PYTHON_GIL=1: queue manager 'QM1'"):
            qmgr.start(NAME, data_path=tmp_path)
    assert real().status().name == NAME


def test_who_calls_again_and_again_when_it_has_ended_fills_no_memory(world: World) -> None:
    world.qm.end()
    calls: list[Callable[[], object]] = [lambda: world.qm.put("A", b""), lambda: world.qm.get("A"), world.qm.begin]
    for call in (*calls, world.qm.status, lambda: world.qm.put_many("A", [b""])):
        raised = []
        for _ in range(3):
            with pytest.raises(qmgr.Unavailable, match="has ended") as caught:
                call()
            raised.append(len(caught.traceback))
        assert len(set(raised)) == 1, "frames of the calls before are kept"


@pytest.mark.parametrize("locked", [False, True])
def test_one_that_could_not_be_listed_was_not_created_and_can_be_tried_again(
    locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimDisk()
    monkeypatch.setattr(mqsini, "LOCK_PAUSE_S", 0.0)
    if locked:
        disk.mkdir("/data")
        held = disk.lock("/data/mqs.ini.lock", "somebody")
    else:
        disk.fail("write", errno.ENOSPC, once=False, where=lambda path: "mqs.ini" in path)
    with pytest.raises(qmgr.Unavailable):
        qmgr.create(NAME, data_path=DATA, disk=disk, **SMALL)
    with pytest.raises(qmgr.Unavailable, match="there is no queue manager"):
        qmgr.start(NAME, data_path=DATA, disk=disk)
    if locked:
        held.release()
    disk.heal()
    qmgr.create(NAME, data_path=DATA, disk=disk, **SMALL)
    assert mqsini.read(disk, f"{DATA}/mqs.ini").find(NAME)


def test_row_62_a_start_in_another_process_says_who_holds_it(real: Real, tmp_path: Path) -> None:
    qm = real()
    qm.define_queue("A")
    qm.end()
    child = hold(tmp_path)
    try:
        with pytest.raises(qmgr.InUse, match=f"pid {child.pid}") as caught:
            qmgr.start(NAME, data_path=tmp_path)
        assert caught.value.holder == f"pid {child.pid}"
        with pytest.raises(qmgr.InUse):
            qmgr.delete(NAME, data_path=tmp_path)
        assert locations.running(locations.find(NAME, tmp_path), PosixDisk()) == f"pid {child.pid}"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert locations.running(locations.find(NAME, tmp_path), PosixDisk()) is None
    again = real()  # a dead owner's lock is free, and what it put is there
    assert bodies(again, "A") == [b"from the child"]


def test_row_62_of_many_starts_at_once_one_wins(real: Real, tmp_path: Path) -> None:
    real().end()

    def attempt() -> qmgr.QueueManager | None:
        try:
            return qmgr.start(NAME, data_path=tmp_path)
        except qmgr.InUse:
            return None

    winners = [qm for qm in [call.outcome() for call in [Call(attempt) for _ in range(6)]] if qm is not None]
    assert len(winners) == 1
    winners[0].end()


def test_row_62_a_start_that_is_refused_leaves_the_lock_free(world: World) -> None:
    world.qm.end()
    world.set_ini("LogPrimaryFiles", "1")
    with pytest.raises(qmgr.IniError):
        world.start()
    world.set_ini("LogPrimaryFiles", "2")
    world.disk.remove(f"{DATA}/log/{NAME}/active/S0000000.LOG")
    with pytest.raises(qmgr.MQError):
        world.start()
    assert world.disk.locked_by(f"{DATA}/qmgrs/{NAME}/qm.lock") is None


def test_row_62_a_copy_of_the_data_can_not_be_started_beside_the_original(real: Real, tmp_path: Path) -> None:
    """Its qm.ini leads to the same log, which has a lock of its own."""
    real().end()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "qmgrs", copy / "qmgrs")
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"the original's")
    with pytest.raises(qmgr.InUse, match=rf"^the log in {tmp_path}.* is running already: pid {os.getpid()} holds it"):
        qmgr.start(NAME, data_path=copy)
    with pytest.raises(qmgr.InUse, match=rf"^the log in {tmp_path}"):
        qmgr.delete(NAME, data_path=copy)
    with pytest.raises(qmgr.InUse, match=rf"^the log in {tmp_path}"):
        repairing.repair(NAME, data_path=copy, accept_loss=True)
    with pytest.raises(qmgr.InUse, match=rf"^the log in {tmp_path}"):
        migration.migrate_log(NAME, data_path=copy, log_type="linear")
    assert locations.running(locations.find(NAME, copy), PosixDisk()) is None
    qm.end()
    assert bodies(real(), "A") == [b"the original's"]


# ---- fork


def in_child(work: Callable[[], None]) -> str:
    """What `work` says of itself in a forked child: "ok", or the error."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(into, b"ok")
        except BaseException as exc:
            os.write(into, f"{type(exc).__name__}: {exc}".encode())
        finally:
            os._exit(0)
    os.close(into)
    said = b""
    while data := os.read(out, 4096):
        said += data
    os.close(out)
    os.waitpid(pid, 0)
    return said.decode()


def test_row_66_a_forked_child_gets_a_clear_error_from_every_call(real: Real) -> None:
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"x")
    unit = qm.begin()
    unit.put("A", b"y")
    looking = qm.browse("A")

    def work() -> None:
        calls: list[Callable[[], object]] = [
            lambda: qm.put("A", b""),
            lambda: qm.get("A", wait=None),
            lambda: qm.put_many("A", [b""]),
            lambda: qm.get_many("A", 1),
            lambda: qm.browse("A"),
            lambda: next(looking),
            lambda: qm.begin(),
            lambda: unit.put("A", b""),
            unit.commit,
            unit.backout,
            lambda: qm.define_queue("C"),
            lambda: qm.alter_queue("A"),
            lambda: qm.delete_queue("A"),
            qm.queues,
            lambda: qm.queue("A"),
            qm.checkpoint,
            qm.status,
            qm.in_doubt,
            qm.transactions,
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except qmgr.Unavailable as exc:
                assert exc.reason == Reason.HCONN_ERROR, (number, exc)
                assert "parent" in str(exc)
            else:
                raise AssertionError(f"call {number} worked")
        qm.end()  # does nothing, as leaving a `with` block of the parent's does

    assert in_child(work) == "ok"
    unit.commit()
    assert bodies(qm, "A") == [b"x", b"y"]


def test_row_66_a_fork_while_another_thread_is_inside_of_a_call_leaves_the_child_no_lock(real: Real) -> None:
    """What the parent has begun the child can only end: leaving its `with` blocks must not wait for that thread."""
    qm = real(log_type="linear")
    qm.define_queue("A")
    unit, prepared = qm.begin(), qm.begin(qmgr.Xid(1, b"forked", b""))
    unit.put("A", b"x")
    qm.put("A", b"w")
    looking, again = qm.browse("A"), qm.replay("A", "oldest")
    inside, go_on = threading.Event(), threading.Event()

    def call() -> None:
        with again._turn, qm._engine.lock:  # as in its __next__
            inside.set()
            go_on.wait(60)

    def work() -> None:
        signal.alarm(20)
        for each in (unit.commit, unit.backout, prepared.prepare, lambda: next(looking), lambda: unit.put("A", b"y")):
            with pytest.raises(qmgr.Unavailable, match="parent"):
                each()
        with pytest.raises(qmgr.Unavailable, match="parent"), unit:
            pass
        with pytest.raises(qmgr.Unavailable, match="parent"):
            next(again)
        with pytest.raises(ZeroDivisionError), qm, unit, again:
            raise ZeroDivisionError

    other = Call(call)
    assert inside.wait(60)
    said = in_child(work)
    go_on.set()
    other.outcome()
    assert said == "ok"
    unit.commit()
    assert bodies(qm, "A") == [b"w", b"x"]
    assert [found.message.body for found in again] == [b"w", b"x"]


def test_row_66_a_fork_while_other_threads_work_leaves_the_parent_whole(real: Real, tmp_path: Path) -> None:
    qm = real()
    qm.define_queue("A")
    stop = threading.Event()

    def work() -> int:
        n = 0
        while not stop.is_set():
            qm.put("A", b"%d" % n)
            n += 1
        return n

    calls = [Call(work) for _ in range(2)]
    said = []
    for _ in range(5):
        said.append(in_child(lambda: [qm.put("A", b"child")].clear()))
        said.append(in_child(lambda: qmgr.start(NAME, data_path=tmp_path).end()))
    stop.set()
    total = sum(call.outcome() for call in calls)
    assert all(word.startswith("Unavailable") for word in said[::2]), said
    assert all(word.startswith("InUse") for word in said[1::2]), said
    assert qm.queue("A").depth == total
    qm.end()
    assert real().queue("A").depth == total


def test_row_66_a_child_may_own_another_queue_manager(real: Real, tmp_path: Path) -> None:
    real()
    qmgr.create("QM2", data_path=tmp_path, **SMALL)

    def work() -> None:
        with qmgr.start("QM2", data_path=tmp_path) as other:
            other.define_queue("A")
            other.put("A", b"x")

    assert in_child(work) == "ok"
    with qmgr.start("QM2", data_path=tmp_path) as other:
        assert bodies(other, "A") == [b"x"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not say what is open")
def test_row_66_a_child_has_nothing_open_of_the_queue_manager_of_its_parent(real: Real, tmp_path: Path) -> None:
    qm = real()
    qm.define_queue("A")
    qm.put("A", b"x")

    def files() -> list[str]:
        found = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the list itself
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
        return [path for path in found if path.startswith(str(tmp_path))]

    def work() -> None:  # a thread of the parent may have been writing its picture in the moment of the fork
        assert [path for path in files() if "/status.json" not in path] == []

    assert len(files()) > 3
    assert in_child(work) == "ok"
    qm.put("A", b"goes on")


def test_rows_62_and_66_a_child_that_lives_on_keeps_no_lock_of_its_parent(real: Real) -> None:
    qm = real()
    qm.define_queue("A")
    out, into = os.pipe()
    until, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        os.write(into, b"lives")
        os.read(until, 1)
        os._exit(0)
    try:
        assert os.read(out, 10) == b"lives"
        qm.put("A", b"x")
        qm.abandon()  # as if it were killed
        assert bodies(real(), "A") == [b"x"]
    finally:
        os.close(end)
        os.waitpid(pid, 0)
        for fd in (out, into, until):
            os.close(fd)


def test_row_66_a_fork_after_the_end_is_nobodys_business(real: Real, tmp_path: Path) -> None:
    qm = real()
    qm.define_queue("A")
    qm.end()

    def work() -> None:
        with qmgr.start(NAME, data_path=tmp_path) as again:
            again.put("A", b"child")

    assert in_child(work) == "ok"
    assert bodies(real(), "A") == [b"child"]


# ---- a thread dies as the leader of a group commit


class Died(BaseException):
    """Kills a thread, as SystemExit or an interrupt would."""


class KillingFile(PosixFile):
    disk: "KillingDisk"

    def write_durably(self, offset: int, data: Buffer, *, may_poll: bool = False) -> None:
        self.disk.syncing(self.path)
        super().write_durably(offset, data, may_poll=may_poll)

    def sync(self) -> None:
        self.disk.syncing(self.path)
        super().sync()


class KillingDisk(PosixDisk):
    """A disk at which one sync of the log waits until others have queued up, and then kills its thread."""

    armed = False

    def __init__(self, queued: Callable[[], bool], how: BaseException) -> None:
        self.queued = queued
        self.how = how
        self.killed: str | None = None

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> KillingFile:
        plain = super().open(path, create=create, direct=direct)
        file = KillingFile(os.dup(plain.fd), plain.path)
        file.disk = self
        return file

    def syncing(self, path: str) -> None:
        if self.armed and path.endswith(".LOG") and "active" in path:
            self.armed = False
            for _ in range(20_000):
                if self.queued():
                    break
                threading.Event().wait(0.001)
            self.killed = threading.current_thread().name
            raise self.how


@pytest.mark.parametrize("how", [Died(), KeyboardInterrupt(), OSError(5, "EIO")], ids=["died", "interrupt", "EIO"])
def test_row_67_followers_of_a_leader_that_dies_get_a_new_leader_or_an_error(
    tmp_path: Path, how: BaseException
) -> None:
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    followers = 5
    disk = KillingDisk(lambda: len(qm._log._waiting) >= followers, how)
    qm = qmgr.start(NAME, data_path=tmp_path, disk=disk)
    qm.define_queue("A")
    qm.put("A", b"before")
    acknowledged = [b"before"]

    def put(body: bytes) -> None:
        qm.put("A", body)
        acknowledged.append(body)

    disk.armed = True
    calls = [Call(lambda n=n: put(b"%d" % n)) for n in range(followers + 1)]  # type: ignore[misc]
    for call in calls:
        call.join(120)
        assert not call.is_alive(), "a follower waits in silence"
    assert disk.killed is not None
    failed = [call.raised for call in calls if call.raised is not None]
    assert failed, "the leader was killed"
    for raised in failed:
        assert isinstance(raised, (qmgr.Unavailable, Died, KeyboardInterrupt))
    if isinstance(how, OSError):
        assert len(failed) == followers + 1  # nobody knows what reached the disk
        with pytest.raises(qmgr.Unavailable, match="start it again"):
            qm.put("A", b"after")
    else:
        try:
            soon(lambda: put(b"after"))
        except qmgr.Unavailable as exc:
            assert "start it again" in str(exc)
    qm.abandon()
    with qmgr.start(NAME, data_path=tmp_path) as again:
        found = bodies(again, "A")
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found))


# ---- after a failure


def test_a_queue_manager_that_failed_can_be_ended_and_started_again(world: World) -> None:
    """The error says: start it again; so end() has to let go of what failed."""
    world.qm.put("A", b"x")
    world.disk.fail("sync", 5)
    with pytest.raises(qmgr.Unavailable, match="start it again"):
        world.qm.put("A", b"y")
    for _ in range(3):
        with pytest.raises(qmgr.Unavailable, match="start it again"):
            world.qm.get("A")
    world.disk.heal()
    world.qm.end()
    world.start()
    assert bodies(world.qm, "A")[:1] == [b"x"]


def test_a_with_block_over_a_failure_lets_go(world: World) -> None:
    with pytest.raises(qmgr.Unavailable, match="stopped"), world.qm as qm:
        qm.put("A", b"x")
        world.disk.fail("sync", 5)
        qm.put("A", b"y")
    world.disk.heal()
    world.start()
    assert bodies(world.qm, "A")[:1] == [b"x"]


def test_after_the_end_every_call_is_2162(world: World) -> None:
    unit = world.qm.begin()
    looking = world.qm.browse("A")
    world.qm.put("A", b"x")
    world.qm.end()
    world.qm.end()
    world.qm.end("immediate")
    for call in (
        lambda: world.qm.put("A", b""),
        lambda: world.qm.get("A"),
        lambda: world.qm.browse("A"),
        lambda: list(world.qm.browse("A")),
        world.qm.begin,
        unit.commit,
        world.qm.queues,
        world.qm.status,
        world.qm.checkpoint,
        world.qm.in_doubt,
        lambda: world.qm.define_queue("X"),
    ):
        with pytest.raises(qmgr.Unavailable) as caught:
            call()
        assert caught.value.reason == Reason.Q_MGR_STOPPING
    assert list(looking) == []


@pytest.mark.parametrize("mode", ["", "slowly", None, 5])
def test_a_wrong_mode_of_ending_ends_nothing(world: World, mode: str) -> None:
    with pytest.raises(qmgr.Mistake, match="quiesce"):
        world.qm.end(mode)
    world.qm.put("A", b"x")
    assert bodies(world.qm, "A") == [b"x"]


@pytest.mark.parametrize("kind, path", [("open", "qm.ini"), ("lock", "qm.lock")])
def test_another_user_hears_what_it_may_not_use_and_who_may(kind: str, path: str) -> None:
    world = World(start=False)
    world.disk.fail(kind, errno.EACCES, where=lambda each: each.endswith(path))
    with pytest.raises(qmgr.Unavailable) as caught:
        world.start()
    assert caught.value.reason == Reason.NOT_AUTHORIZED
    said = str(caught.value)
    assert (
        f"{path}; be the user whose it is, or correct its mode or its directory's (2035" in said and "Errno" not in said
    )
    world.start().end()


def test_another_user_who_connects_hears_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody runs it: what says so can't be opened."""
    qmgr.create(NAME, data_path=tmp_path, **SMALL)

    def denied(disk: PosixDisk, path: str) -> str | None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(PosixDisk, "locked_by", denied)
    with pytest.raises(
        qmgr.NotAuthorized,
        match=r"qm.lock; be the user whose it is, or correct its mode or its directory's, or connect over TCP",
    ):
        qmgr.connect(NAME, data_path=tmp_path)


@pytest.mark.parametrize("lsn", [None, "1", 1.5, 10**30])
def test_a_force_beyond_the_end_of_the_log_is_refused(qm: qmgr.QueueManager, lsn: Any) -> None:
    with pytest.raises(qmgr.Mistake, match="no LSN of this log"):
        qm.force(lsn)
    qm.put("A", b"", persistent=True)  # who commits is not kept waiting
