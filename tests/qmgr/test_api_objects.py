"""Queues and queue managers as objects: creating, defining, altering, deleting, showing; and what is refused."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import qmgr
from logger.posix_disk import PosixDisk
from qmgr import Reason
from qmgr.migration import migrate_log
from tests.qmgr.world import DATA, NAME, World, bodies, reason_of
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk

ATTRIBUTES: dict[str, Any] = {
    "description": "orders of today",
    "put_enabled": False,
    "get_enabled": False,
    "default_priority": 5,
    "default_persistence": False,
    "max_depth": 17,
    "max_message_length": 1000,
    "delivery_sequence": "FIFO",
    "non_persistent_class": "HIGH",
    "backout_threshold": 3,
    "backout_queue": "B",
    "image_recoverable": "NO",
    "depth_high": 90,
    "depth_low": 10,
    "expiry_cap": 12.5,
}


def test_the_defaults_are_those_of_mq_but_for_persistence_and_depth(qm: qmgr.QueueManager) -> None:
    info = qm.define_queue("Q")
    assert (info.put_enabled, info.get_enabled, info.default_priority) == (True, True, 0)
    assert (info.default_persistence, info.max_depth, info.max_message_length) == (True, 999_999_999, 4_194_304)
    assert (info.delivery_sequence, info.non_persistent_class, info.description) == ("PRIORITY", "NORMAL", "")
    assert (info.backout_threshold, info.backout_queue, info.image_recoverable) == (0, "", "QMGR")
    assert (info.depth_high, info.depth_low, info.expiry_cap) == (80, 20, None)
    assert (info.name, info.depth, info.uncommitted, info.damaged) == ("Q", 0, 0, "")


@pytest.mark.parametrize("again", ["live", "restart", "crash", "checkpoint and crash"])
def test_every_attribute_survives(world: World, again: str) -> None:
    world.qm.define_queue("D", **ATTRIBUTES)
    world.qm.alter_queue("A", **ATTRIBUTES)
    if again == "restart":
        world.restart()
    if "checkpoint" in again:
        world.qm.checkpoint()
    if "crash" in again:
        world.crash()
    for name in ("D", "A"):
        info = world.qm.queue(name)
        assert {attribute: getattr(info, attribute) for attribute in ATTRIBUTES} == ATTRIBUTES
    assert [q.name for q in world.qm.queues()] == ["A", "B", "D"]


WRONG: list[tuple[str, Any]] = [
    ("description", "x" * 65),
    ("description", "two\nlines"),
    ("description", 5),
    ("put_enabled", "YES"),
    ("get_enabled", 1),
    ("default_priority", 10),
    ("default_priority", -1),
    ("default_priority", True),
    ("default_persistence", None),
    ("max_depth", -1),
    ("max_depth", 1_000_000_000),
    ("max_depth", 5.0),
    ("max_message_length", 104_857_601),
    ("max_message_length", -1),
    ("delivery_sequence", "fifo"),
    ("delivery_sequence", ["FIFO"]),
    ("non_persistent_class", "LOW"),
    ("backout_threshold", -1),
    ("backout_queue", "no good"),
    ("backout_queue", None),
    ("image_recoverable", True),
    ("depth_high", 101),
    ("depth_low", -1),
    ("expiry_cap", 0),
    ("expiry_cap", -5),
    ("expiry_cap", float("nan")),
    ("expiry_cap", "5"),
    ("colour", "red"),
    ("id", 7),
]


@pytest.mark.parametrize(("attribute", "value"), WRONG, ids=lambda value: str(value)[:30])
def test_a_wrong_attribute_is_named_and_changes_nothing(qm: qmgr.QueueManager, attribute: str, value: Any) -> None:
    before = qm.queue("A")
    with pytest.raises(qmgr.Mistake, match=attribute if attribute != "backout_queue" else "name|backout_queue"):
        qm.alter_queue("A", **{attribute: value})
    with pytest.raises(qmgr.Mistake):
        qm.define_queue("NEW", **{attribute: value})
    assert qm.queue("A") == before
    assert [q.name for q in qm.queues()] == ["A", "B"]


def test_names_may_be_long_and_of_every_allowed_character(world: World) -> None:
    names = ["x" * 48, "A.B/C_D%1", ".", "..", "/", "a", "%"]
    for name in names:
        world.qm.define_queue(name)
        world.qm.put(name, name.encode())
    world.restart()
    world.crash()
    assert all(bodies(world.qm, name) == [name.encode()] for name in names)
    assert {q.name for q in world.qm.queues()} == {"A", "B", *names}


def test_defining_twice_is_2100(qm: qmgr.QueueManager) -> None:
    qm.put("A", b"x")
    with pytest.raises(qmgr.AlreadyExists, match="'A'") as caught:
        qm.define_queue("A", max_depth=1)
    assert caught.value.reason == Reason.OBJECT_ALREADY_EXISTS
    assert bodies(qm, "A") == [b"x"]


def test_altering_a_queue_with_messages_leaves_them(world: World) -> None:
    qm = world.qm
    for n in range(6):
        qm.put("A", b"%d" % n, priority=n % 3)
    unit = qm.begin()
    assert unit.get("A").body == b"2"
    qm.alter_queue("A", delivery_sequence="FIFO", max_depth=2, max_message_length=0)
    assert bodies(qm, "A") == [b"0", b"1", b"3", b"4", b"5"]
    unit.backout()
    assert bodies(qm, "A") == [b"0", b"1", b"2", b"3", b"4", b"5"]
    with pytest.raises(qmgr.MQError):
        qm.put("A", b"")
    world.crash()
    assert bodies(world.qm, "A") == [b"0", b"1", b"2", b"3", b"4", b"5"]
    world.qm.alter_queue("A", delivery_sequence="PRIORITY")
    assert bodies(world.qm, "A") == [b"2", b"5", b"1", b"4", b"0", b"3"]


def test_a_queue_with_messages_is_deleted_only_with_purge(world: World) -> None:
    qm = world.qm
    qm.put("A", b"x")
    with pytest.raises(qmgr.ObjectInUse) as caught:
        qm.delete_queue("A")
    assert caught.value.reason == Reason.Q_NOT_EMPTY
    assert bodies(qm, "A") == [b"x"]
    qm.checkpoint()
    qm.delete_queue("A", purge=True)
    world.crash()
    assert [q.name for q in world.qm.queues()] == ["B"]
    world.qm.define_queue("A")
    assert bodies(world.qm, "A") == []  # and not the messages of the old one
    world.qm.put("A", b"new")
    world.restart()
    assert bodies(world.qm, "A") == [b"new"]


def test_a_queue_of_a_unit_in_flight_is_not_deleted_2042(qm: qmgr.QueueManager) -> None:
    unit = qm.begin()
    unit.put("A", b"x")
    for purge in (False, True):
        with pytest.raises(qmgr.ObjectInUse) as caught:
            qm.delete_queue("A", purge=purge)
        assert caught.value.reason == Reason.OBJECT_IN_USE
    unit.backout()
    qm.delete_queue("A")


def test_the_files_of_a_deleted_queue_go_away(world: World) -> None:
    world.qm.put("A", b"x")
    world.qm.checkpoint()
    assert any("/queues/A/" in path for path in world.disk.files())
    world.qm.delete_queue("A", purge=True)
    world.restart()
    world.restart()
    assert not any("/queues/A/" in path for path in world.disk.files())


def test_segments_of_messages_that_are_gone_go_away(world: World) -> None:
    for n in range(10):
        world.qm.put_many("A", [b"%d" % n] * 10)
        world.qm.checkpoint()
        world.qm.get_many("A", 10)
    world.qm.checkpoint()
    world.restart()
    world.restart()
    assert [path for path in world.disk.files() if path.endswith(".seg")] == []


# ---- queue managers


def test_a_queue_manager_is_created_once(world: World) -> None:
    world.qm.put("A", b"x")
    world.qm.end()
    with pytest.raises(qmgr.AlreadyExists, match=NAME) as caught:
        qmgr.create(NAME, data_path=DATA, disk=world.disk)
    assert caught.value.reason == Reason.OBJECT_ALREADY_EXISTS
    world.start()
    assert bodies(world.qm, "A") == [b"x"]


def test_starting_what_is_not_there_is_2058(tmp_path: Path) -> None:
    for call in (qmgr.start, qmgr.delete):
        with pytest.raises(qmgr.Unavailable, match="no queue manager 'NONE'") as caught:
            call("NONE", data_path=tmp_path)
        assert caught.value.reason == Reason.Q_MGR_NAME_ERROR
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "x" * 49, "a b", "a-b", "ä", None, 5, b"QM"])
def test_a_name_that_no_queue_manager_can_have(tmp_path: Path, name: Any) -> None:
    for call in (qmgr.create, qmgr.start, qmgr.delete):
        with pytest.raises(qmgr.Mistake, match="queue manager"):
            call(name, data_path=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"log_primary_files": 1},
        {"log_primary_files": 511},
        {"log_primary_files": "3"},
        {"log_primary_files": True},
        {"log_secondary_files": 0},
        {"log_primary_files": 510, "log_secondary_files": 2},
        {"log_file_pages": 63},
        {"log_file_pages": 65536},
        {"log_buffer_pages": 4097},
        {"log_buffer_pages": -1},
        {"log_buffer_pages": "x"},
        {"log_write_integrity": "QuadrupleWrite"},
        {"log_sync": "sometimes"},
        {"log_sync_interval": 0},
        {"log_type": None},
        {"max_uncommitted": 0},
        {"max_uncommitted": 1_000_000_000},
        {"attributes": "description"},
        {"attributes": None},
    ],
    ids=str,
)
def test_a_wrong_option_creates_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(qmgr.Mistake, match="allowed: "):
        qmgr.create("QM", data_path=tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_created_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(qmgr.MQError) as caught:
        qmgr.create("QM", data_path=tmp_path / "file")
    assert reason_of(caught.value) == Reason.FILE_SYSTEM_ERROR


def test_deleting_takes_the_files_and_only_its_own(tmp_path: Path) -> None:
    for name in ("ONE", "TWO"):
        qmgr.create(name, data_path=tmp_path, log_path=tmp_path / "elsewhere")
    with qmgr.start("TWO", data_path=tmp_path) as two:
        two.define_queue("Q")
        two.put("Q", b"x")
        with pytest.raises(qmgr.InUse):
            qmgr.delete("TWO", data_path=tmp_path)
        qmgr.delete("ONE", data_path=tmp_path)
    assert not (tmp_path / "qmgrs" / "ONE").exists()
    assert not (tmp_path / "elsewhere" / "ONE").exists()
    with qmgr.start("TWO", data_path=tmp_path) as two:
        assert bodies(two, "Q") == [b"x"]


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    qmgr.create("QM", data_path=tmp_path)
    with qmgr.start("QM", data_path=tmp_path) as qm:
        qm.define_queue("Q")
        qm.put("Q", b"x")
    found = [path for base in ("qmgrs", "log") for path in (tmp_path / base).rglob("*")]
    assert len(found) > 8
    for path in found:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_the_path_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMGR_DATA_PATH", str(tmp_path / "data"))
    qmgr.create("QM.A/B")
    assert (tmp_path / "data" / "qmgrs" / "QM!A&B" / "qm.ini").exists()
    with qmgr.start("QM.A/B") as qm:
        assert qm.name == "QM.A/B"
    qmgr.delete("QM.A/B")
    assert not (tmp_path / "data" / "qmgrs" / "QM!A&B").exists()


def test_status_shows_what_there_is(world: World) -> None:
    world.qm.put("A", b"x" * 100)
    with world.qm.begin() as unit:
        unit.put("B", b"y")
        status = world.qm.status()
        assert (status.name, status.state, status.queues, status.messages) == (NAME, "running", 2, 2)
        assert (status.units_of_work, status.in_doubt, status.log_sync) == (1, 0, "always")
    log = world.qm.status().log
    assert log.files == 2
    assert log.head <= log.checkpoint <= log.durable <= log.tail
    assert log.capacity == 3 * 64 * 4096
    assert log.writes.writes > 0
    assert log.writes.bytes_logged > 100
    assert log.writes.bytes_written >= 4096
    assert status.restart == world.qm.restart_report


def test_a_bad_mqs_ini_is_found_before_anything_is_done() -> None:
    world = World()
    world.qm.end()
    good = world.disk.peek(f"{DATA}/mqs.ini")
    world.disk.poke(f"{DATA}/mqs.ini", b"garbage\n")
    for change in (qmgr.create, qmgr.delete):
        for name in ("QM1", "QM9"):
            with pytest.raises(qmgr.MQError):
                change(name, data_path=DATA, disk=world.disk)
    assert not world.disk.exists(f"{DATA}/qmgrs/QM9")
    world.disk.poke(f"{DATA}/mqs.ini", good)
    world.start()
    with pytest.raises(qmgr.AlreadyExists, match="start it, or delete it first"):
        qmgr.create("QM1", data_path=DATA, disk=world.disk)


@pytest.mark.parametrize("path", ["", 5, "a\0b"])
def test_a_path_that_can_not_be_one_is_a_mistake(path: Any) -> None:
    for option in ("data_path", "log_path"):
        with pytest.raises(qmgr.Mistake, match=option):
            qmgr.create("QM9", **{option: path})


@pytest.mark.parametrize("value", ["no", 1, None])
def test_the_default_queue_manager_and_its_threads_are_a_matter_of_true_and_false(value: Any) -> None:
    world = World()
    with pytest.raises(qmgr.Mistake, match="default is True or False"):
        qmgr.create("QM9", data_path=DATA, disk=world.disk, default=value)
    world.qm.end()
    with pytest.raises(qmgr.Mistake, match="background is True or False"):
        qmgr.start(NAME, data_path=DATA, disk=world.disk, background=value)
    world.start()


def test_only_true_purges() -> None:
    world = World()
    world.qm.define_queue("A")
    world.qm.put("A", b"kept")
    with pytest.raises(qmgr.Mistake, match="purge is True or False"):
        world.qm.delete_queue("A", purge="no")  # type: ignore[arg-type]
    with pytest.raises(qmgr.Mistake, match="several bodies"):
        world.qm.put_many("A", b"abc")  # type: ignore[arg-type]
    assert world.depths() == {"A": 1}


@pytest.mark.parametrize(
    ("keyword", "value", "allowed"),
    [
        ("log_type", "linar", "CIRCULAR, LINEAR"),
        ("log_type", 3, "CIRCULAR, LINEAR"),
        ("log_write_integrity", "x", "SingleWrite, DoubleWrite, TripleWrite"),
        ("log_sync", None, "always, interval, os"),
        ("log_management", "", "Manual, Automatic, Archive"),
        ("log_primary_files", 1, "a whole number from 2 to 510"),
        ("log_sync_interval", 0, "a whole number from 1 to 3600000"),
    ],
)
def test_a_creation_says_what_may_be_chosen(keyword: str, value: Any, allowed: str) -> None:
    disk = SimDisk()
    with pytest.raises(qmgr.Mistake, match=f"created: {keyword} is {value!r}; allowed: {allowed}"):
        qmgr.create(NAME, data_path=DATA, disk=disk, clock=SimClock(), **{keyword: value})
    qmgr.create(NAME, data_path=DATA, disk=disk, clock=SimClock(), log_type="Linear", log_sync="ALWAYS")
    with pytest.raises(qmgr.Mistake, match="log_type is 'x'; allowed: CIRCULAR, LINEAR"):
        migrate_log(NAME, data_path=DATA, disk=disk, log_type="x")


def test_a_creation_names_the_path_that_is_none() -> None:
    for given in (("/a.ini",), 5, b"/a.ini", "a.ini"):
        with pytest.raises(qmgr.Mistake, match=r"can't hold IniConfig=.*; allowed: none or an absolute path"):
            qmgr.create(NAME, data_path=DATA, disk=SimDisk(), clock=SimClock(), ini_config=given)  # type: ignore[arg-type]


def test_a_deletion_needs_nothing_of_other_queue_managers(tmp_path: Path) -> None:
    """Another user's, say; and a link to the queue manager itself is none."""

    class Private(PosixDisk):
        def open_read(self, path: str, **options: Any) -> Any:
            if path.endswith("/other/qm.ini"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            return super().open_read(path, **options)

    for name in ("Q", "other"):
        qmgr.create(name, data_path=tmp_path)
    (tmp_path / "qmgrs" / "link").symlink_to(tmp_path / "qmgrs" / "Q")
    qmgr.delete("Q", data_path=tmp_path, disk=Private())
    assert not (tmp_path / "log" / "Q").exists()
    qmgr.start("other", data_path=tmp_path).end()


def test_deleting_what_may_not_be_deleted_names_the_file_and_can_be_repeated(tmp_path: Path) -> None:
    """A directory that may not be written refuses its files; some systems say the same of any directory."""

    class ReadOnly(PosixDisk):
        def unlink(self, path: str) -> None:
            if path.endswith("AMQERR01.LOG"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            super().unlink(path)

    qmgr.create("Q", data_path=tmp_path)
    qmgr.start("Q", data_path=tmp_path).end()
    with pytest.raises(qmgr.Unavailable, match=r"may not use .*AMQERR01\.LOG"):
        qmgr.delete("Q", data_path=tmp_path, disk=ReadOnly())
    qmgr.delete("Q", data_path=tmp_path)
    assert not (tmp_path / "qmgrs" / "Q").exists()


@pytest.mark.parametrize("way", ["file", "file/below", "a" * 300])
@pytest.mark.parametrize("keyword", ["data_path", "log_path"])
def test_a_path_that_can_not_be_made_is_said_with_a_way_out(way: str, keyword: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    paths = {"data_path": tmp_path / "data", keyword: tmp_path / way}
    with pytest.raises(qmgr.Unavailable, match="and a log path, where directories can be made") as caught:
        qmgr.create("QM1", **paths)
    assert str(tmp_path / way) in str(caught.value)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"kept")]
