"""What a queue manager publishes of itself: who writes it, when, what is in it, and what becomes of a bad one."""

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import qmgr
from logger import posix_lock
from logger.clock import SystemClock
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile
from qmgr import locations, published
from qmgr.published import INTERVAL_NS, SHARE, Peak, Publisher, decode
from tests.qmgr.world import DATA, NAME, SMALL, World
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk
from tests.sim.loss import Loss, mixed

Real = Callable[..., qmgr.QueueManager]
PATH = "/status.json"


def look() -> dict[str, Any]:
    """A mapping that is good enough to be read again."""
    return {
        "name": NAME,
        "state": "running",
        "process": "sim",
        "started": 1,
        "data_dir": DATA,
        "file_systems": {},
        "log": {"used": 100, "promised": 7},
        "transactions": [],
        "objects": [],
        "records": 0,
    }


def publisher(disk: SimDisk, clock: SimClock, seen: list[int] | None = None) -> Publisher:
    """One that counts how often it looks."""

    def counting() -> dict[str, Any]:
        if seen is not None:
            seen.append(clock.elapsed)
        return look()

    return Publisher(disk, clock, PATH, counting)


def wait_for(path: Path, wanted: Callable[[dict[str, Any]], bool], seconds: float = 120) -> dict[str, Any]:
    """What is published, once it is as wanted."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        found = decode(path.read_bytes(), NAME) if path.exists() else None
        if found is not None and wanted(found):
            return found
        time.sleep(0.02)
    raise AssertionError(f"{path} does not come to say that")


# A real one


def test_a_running_queue_manager_says_what_status_and_transactions_say(real: Real, tmp_path: Path) -> None:
    qm = real()
    qm.define_queue("A", max_depth=10)
    qm.put("A", b"1")
    unit = qm.begin(qmgr.Xid(7, b"g", b"b"))
    unit.put("A", b"2")
    unit.prepare()
    status, (transaction,) = qm.status(), qm.transactions()

    def forced(one: dict[str, Any]) -> bool:  # what is published may say first that the unit is in doubt
        return bool(one["in_doubt"] == 1 and one["log"]["durable"] == status.log.durable)

    found = wait_for(tmp_path / "qmgrs" / NAME / "status.json", forced)
    assert (found["state"], found["process"]) == ("running", f"pid {os.getpid()}")
    for name in ("head", "tail", "durable", "checkpoint", "used", "promised", "capacity", "files", "epoch"):
        assert found["log"][name] == getattr(status.log, name)
    for name in ("units_of_work", "in_doubt", "queues", "messages", "checkpoints", "log_sync"):
        assert found[name] == getattr(status, name)
    assert found["log"]["writes"] == json.loads(json.dumps(attrs.asdict(status.log.writes)))
    assert found["transactions"] == [
        {
            **{name: getattr(transaction, name) for name in ("number", "started", "log_started", "first_lsn", "owner")},
            "state": "prepared",
            "puts": 1,
            "gets": 0,
            "xid": {"format_id": 7, "gtrid": "67", "bqual": "62"},
        }
    ]
    assert found["holder"] == found["transactions"][0]
    queue = qm.queue("A")
    said = ("memory", "last_put", "last_get")
    assert found["objects"] == [
        {"name": "A", "depth": 2, "uncommitted": 1, "max_depth": 10, "damaged": ""}
        | {name: getattr(queue, name) for name in said}
    ]
    assert queue.last_put
    assert [one["class"] for one in found["log"]["extents"]] == ["active", "ready"]
    assert found["log"]["floor"] < found["log"]["checkpoint_at"] <= found["log"]["soft"]
    unit.commit()


def test_the_end_is_published_and_a_crash_is_not(real: Real, tmp_path: Path) -> None:
    path = tmp_path / "qmgrs" / NAME / "status.json"
    location = locations.find(NAME, tmp_path)
    qm = real()
    wait_for(path, lambda one: one["state"] == "running")
    now = published.read(PosixDisk(), SystemClock(), location)
    assert now is not None and now.alive and now.age < 10
    qm.end()
    ended = published.read(PosixDisk(), SystemClock(), location)
    assert ended is not None and not ended.alive and ended.picture["state"] == "ended"
    again = real()
    wait_for(path, lambda one: one["state"] == "running")
    again.abandon()
    left = published.read(PosixDisk(), SystemClock(), location)
    assert left is not None and not left.alive and left.picture["state"] == "running"


def test_what_an_owner_in_another_container_publishes_is_its_own(
    real: Real, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qm = real()
    wait_for(tmp_path / "qmgrs" / NAME / "status.json", lambda one: one["state"] == "running")
    monkeypatch.setattr(posix_lock, "process_numbers", lambda: "pid:[1]")
    location = locations.find(NAME, tmp_path)
    assert "container" in (locations.running(location, PosixDisk()) or "")
    now = published.read(PosixDisk(), SystemClock(), location)
    assert now is not None and now.alive
    qm.end()


def test_a_queue_manager_that_has_failed_says_so(tmp_path: Path) -> None:
    class Failing(PosixDisk):
        def open(self, path: str, *, create: bool = False, direct: bool = False) -> PosixFile:
            file = super().open(path, create=create, direct=direct)
            return file if path.endswith("status.json.new") else FailingFile(os.dup(file.fd), path)

    class FailingFile(PosixFile):
        def write_durably(self, offset: int, data: Any, *, may_poll: bool = False) -> None:
            if "broken" in flags and "active" in self.path:
                raise OSError(errno.EIO, "no more")
            super().write_durably(offset, data, may_poll=may_poll)

    flags: set[str] = set()
    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    path = tmp_path / "qmgrs" / NAME / "status.json"
    qm = qmgr.start(NAME, data_path=tmp_path, disk=Failing())
    qm.define_queue("A")
    flags.add("broken")
    with pytest.raises(qmgr.Unavailable):
        qm.put("A", b"")
    assert wait_for(path, lambda one: one["state"] == "failed")["process"] == f"pid {os.getpid()}"
    qm.end("immediate")
    assert wait_for(path, lambda one: True)["state"] == "failed"


def test_with_a_housekeeping_thread_no_call_of_an_application_publishes(tmp_path: Path) -> None:
    writers: list[str] = []

    class Watched(PosixDisk):
        def open(self, path: str, *, create: bool = False, direct: bool = False) -> PosixFile:
            if path.endswith("status.json.new"):
                writers.append(threading.current_thread().name)
            return super().open(path, create=create, direct=direct)

    qmgr.create(NAME, data_path=tmp_path, **SMALL)
    qm = qmgr.start(NAME, data_path=tmp_path, disk=Watched())
    qm.define_queue("A")
    last = time.monotonic() + 120
    while len(writers) < 3 and time.monotonic() < last:  # so many calls that the log wraps, and some of every kind
        qm.put("A", b"")
        with qm.begin() as unit:
            unit.put_many("A", [bytes(1000)] * 20)
            unit.get("A")
        qm.get_many("A", 100)
        qm.put("A", b"")
        qm.get("A")
        qm.checkpoint()
        qm.status()
        qm.begin().backout()
    assert len(writers) >= 3
    assert set(writers) == {f"CHECKPOINT-{NAME}"}
    qm.end()
    assert writers[-1] == threading.current_thread().name


def test_without_a_thread_nothing_is_published(world: World) -> None:
    for _ in range(5):
        world.clock.advance(10)
        world.qm.put("A", b"")
    world.qm.end()
    assert not [path for path in world.disk.files() if "status.json" in path]


# When


def test_it_is_replaced_once_a_second() -> None:
    disk, clock, seen = SimDisk(), SimClock(), list[int]()
    one = publisher(disk, clock, seen)
    for _ in range(100):
        one.tick()
        clock.advance(0.1)
    assert len(seen) == 10
    assert decode(disk.peek(PATH), NAME) is not None
    assert disk.files() == [PATH]


def test_it_takes_no_more_than_its_share_of_the_time() -> None:
    disk, clock, seen = SimDisk(), SimClock(), list[int]()

    def slow() -> dict[str, Any]:
        seen.append(clock.elapsed)
        clock.advance(0.05)
        return look()

    one = Publisher(disk, clock, PATH, slow)
    while len(seen) < 3:
        one.tick()
        clock.advance(0.1)
    assert seen[2] - seen[1] >= 0.05 * SHARE * INTERVAL_NS


def test_one_that_took_hours_keeps_none_from_being_published() -> None:
    """The machine was suspended in it, or the process stopped: it was not replaced for a hundred times as long."""
    disk, clock, seen = SimDisk(), SimClock(), list[int]()

    def stopped() -> dict[str, Any]:
        seen.append(clock.elapsed)
        if len(seen) == 1:
            clock.advance(7200)
        return look()

    one = Publisher(disk, clock, PATH, stopped)
    for _ in range(62):
        one.tick()
        clock.advance(1)
    assert len(seen) == 3


def test_after_the_end_nothing_is_published() -> None:
    disk, clock, seen = SimDisk(), SimClock(), list[int]()
    one = publisher(disk, clock, seen)
    one.end("ended")
    clock.advance(10)
    one.tick()
    one.end("failed")
    assert len(seen) == 1
    found = decode(disk.peek(PATH), NAME)
    assert found is not None and found["state"] == "ended"


def test_the_peak_is_that_of_the_last_ten_minutes() -> None:
    peak = Peak()
    minute = 60_000_000_000
    assert peak.add(5, 0) == 5
    assert peak.add(3, minute - 1) == 5
    assert peak.add(4, 9 * minute) == 5
    assert peak.add(1, 10 * minute) == 4
    assert peak.add(1, 30 * minute) == 1


# A disk that can't take it


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("kind", ["create", "write", "rename", "unlink", "exists"])
def test_an_error_of_the_disk_is_nobodys_problem(kind: str, error: int) -> None:
    disk, clock = SimDisk(), SimClock()
    one = publisher(disk, clock)
    one.tick()
    disk.poke(PATH + ".new", b"left behind")
    before = disk.peek(PATH)
    disk.fail(kind, error, once=False)
    clock.advance(2)
    one.tick()
    assert disk.peek(PATH) == before
    disk.heal()
    clock.advance(2)
    one.tick()
    assert disk.peek(PATH) != before


@pytest.mark.parametrize("loss", [Loss(seed=1), *(mixed(seed) for seed in range(30))])
def test_after_a_power_failure_it_is_an_old_one_or_none(loss: Loss) -> None:
    for effects in range(1, 12):
        disk, clock = SimDisk(), SimClock()
        one = publisher(disk, clock)
        disk.crash_after(effects)
        try:
            for _ in range(3):
                one.tick()
                clock.advance(2)
        except BaseException as exc:
            assert type(exc).__name__ == "SimCrash"
        after = disk.crash(loss)
        if after.exists(PATH):
            found = decode(after.peek(PATH), NAME)
            assert found is None or found["log"]["used"] == 100
        publisher(after, clock).tick()
        assert decode(after.peek(PATH), NAME) is not None


# What is no good


def test_what_is_cut_or_altered_is_not_believed() -> None:
    disk = SimDisk()
    publisher(disk, SimClock()).tick()
    good = disk.peek(PATH)
    assert decode(good, NAME) is not None
    for cut in range(len(good)):
        assert decode(good[:cut], NAME) is None
    assert decode(good, "OTHER") is None
    assert decode(good.replace(b'"format": 1', b'"format": 2'), NAME) is None
    for bad in (b"[]", b"null", b"\xff" * 99, b"\0" * 99, b'{"format": 1}', b"[" * 100_000):
        assert decode(bad, NAME) is None
    fields = json.loads(good)
    for name in published.SHAPE:
        assert decode(json.dumps({key: value for key, value in fields.items() if key != name}).encode(), NAME) is None
        assert decode(json.dumps(fields | {name: None}).encode(), NAME) is None


def test_there_may_be_none(world: World) -> None:
    location = locations.find(NAME, DATA)
    assert published.read(world.disk, world.clock, location) is None
    world.disk.poke(location.published, b"rubbish")
    assert published.read(world.disk, world.clock, location) is None
    world.disk.poke(location.published, json.dumps(look() | {"format": 1, "published": 0}).encode())
    found = published.read(world.disk, world.clock, location)
    assert found is not None and found.alive and found.age > 0
    world.disk.fail("open", errno.EACCES)
    with pytest.raises(OSError):
        published.read(world.disk, world.clock, location)
