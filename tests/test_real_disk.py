"""The real disk beside the simulated one: what `PosixDisk` asks of the system guarantees what `SimDisk` promises.

The crash tests run on `SimDisk`. Here the system calls of `PosixDisk` are recorded, and what they guarantee is compared
with what `SimDisk` keeps when it loses all that it may; and a queue manager on the real disk, at any of its calls, with
what it has acknowledged by then.
"""

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import pytest

import qmgr
from logger import posix_disk, posix_file, posix_lock
from logger.disk import Disk, File
from logger.posix_disk import PosixDisk
from logger.posix_file import PosixFile
from logger.whole_files import make_dirs, replace_file
from qmgr import queue_snapshot, segments
from tests.conftest import SOAK
from tests.sim.calls import Calls
from tests.sim.clock import SimClock
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL

PAGE = 4096


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the real disk asks of the system from here on."""
    recorded = Calls()
    for module in (posix_disk, posix_file, posix_lock):
        monkeypatch.setattr(module, "os", recorded)
    return recorded


def mount(path: Path, kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system say that such a file system is mounted there; "": only another one, None: nothing."""
    mounts, device = path / "mountinfo", path.stat().st_dev
    if kind is not None:
        number = f"{os.major(device)}:{os.minor(device)}"
        there = f"23 22 {number} / /mnt/a\\040b rw shared:2 master:1 - {kind} pool rw,user_id=0\n" if kind else ""
        mounts.write_text(f"22 1 99:99 / / rw,relatime shared:1 - ext4 /dev/root rw\n{there}")
    monkeypatch.setattr(posix_file, "MOUNTS", str(mounts))


@pytest.fixture
def sure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system is one whose durable writes are, whatever these tests run on."""
    mount(tmp_path, "ext4", monkeypatch)


# -- call by call --------------------------------------------------------------------------------------------------


class Pair:
    """The same calls on both disks, which must promise the same after each."""

    def __init__(self, calls: Calls, base: str) -> None:
        self.calls = calls
        self.base = base
        self.real, self.simulated = PosixDisk(), SimDisk()
        make_dirs(self.simulated, base)
        self.pages = self.real.buffer(2 * PAGE)
        self.open: dict[str, tuple[File, File]] = {}

    def do(self, call: Callable[[Disk], object]) -> None:
        for disk in (self.real, self.simulated):
            call(disk)
        self.compare()

    def create(self, path: str, *, direct: bool = True) -> None:
        self.open[path] = (
            self.real.open(path, create=True, direct=direct),
            self.simulated.open(path, create=True, direct=direct),
        )
        self.compare()

    def on(self, path: str, call: Callable[[File], object]) -> None:
        for file in self.open[path]:
            call(file)
        self.compare()

    def compare(self) -> None:
        after = self.simulated.snapshot(LOSE_ALL)
        assert self.calls.promises.files() == {path: after.peek(path) for path in after.files()}, self.calls.asked[-5:]

    def filled(self, byte: int, pages: int) -> memoryview:
        """An aligned buffer, full of that byte."""
        self.pages[:] = bytes([byte]) * len(self.pages)
        return self.pages[: PAGE * pages]

    def close(self) -> None:
        for pair in self.open.values():
            for file in pair:
                file.close()


def step(both: Pair, rng: random.Random, number: int) -> None:
    """One call, whichever."""
    places = [both.base, f"{both.base}/a", f"{both.base}/b"]
    new, place = f"{rng.choice(places)}/{number}", rng.choice(places)
    path = rng.choice([*both.open, ""])
    data, at = both.filled(number + 1, rng.choice((1, 2))), PAGE * rng.randrange(4)
    match rng.choice(("create", "replace", "sync_dir", "sync_dir", "directory", *("file",) * 6)):
        case "create":
            both.create(new, direct=number % 2 == 0)
        case "replace":
            both.do(lambda disk: replace_file(disk, f"{place}/whole", b"%d" % number))
        case "sync_dir":
            both.do(lambda disk: disk.sync_dir(place))
        case "directory":
            both.do(lambda disk: disk.rmdir(f"{place}/d") if disk.exists(f"{place}/d") else disk.mkdir(f"{place}/d"))
        case "file" if path:
            match rng.choice(
                ("write", "write", "write_durably", "write_durably", "sync", "truncate", "rename", "unlink")
            ):
                case "write":
                    both.on(path, lambda file: file.write(at, data))
                case "write_durably":
                    both.on(path, lambda file: file.write_durably(at, data))
                case "sync":
                    both.on(path, lambda file: file.sync())
                case "truncate":
                    both.on(path, lambda file: file.truncate(at))
                case "rename":
                    both.do(lambda disk: disk.rename(path, new))
                    both.open[new] = both.open.pop(path)
                case "unlink":
                    both.do(lambda disk: disk.unlink(path))
                    for file in both.open.pop(path):
                        file.close()


@pytest.mark.parametrize("seed", range(500 if SOAK else 25))
def test_after_each_call_both_disks_promise_the_same(seed: int, calls: Calls, sure: None, tmp_path: Path) -> None:
    both = Pair(calls, str(tmp_path))
    both.do(lambda disk: make_dirs(disk, f"{both.base}/a"))
    both.do(lambda disk: make_dirs(disk, f"{both.base}/b"))
    rng = random.Random(f"calls {seed}")
    for number in range(60):
        step(both, rng, number)
    both.close()


@pytest.mark.parametrize("refused", [0, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM])
def test_a_durable_write_that_the_system_refuses_or_does_by_half_is_synced(
    refused: int, calls: Calls, tmp_path: Path, sure: None
) -> None:
    """An old kernel refuses it, or what filters the system calls of a container."""
    both = Pair(calls, str(tmp_path))
    both.create(f"{tmp_path}/f")
    both.do(lambda disk: disk.sync_dir(both.base))
    calls.short = None if refused else PAGE
    calls.refused = refused
    both.on(f"{tmp_path}/f", lambda file: file.write_durably(PAGE, both.filled(7, 2)))
    assert calls.asked[-2:] == ["pwrite", "fdatasync"]
    both.close()


def test_a_durable_write_is_one_call_where_the_system_can_do_so(calls: Calls, tmp_path: Path, sure: None) -> None:
    both = Pair(calls, str(tmp_path))
    both.create(f"{tmp_path}/f")
    calls.asked.clear()
    both.on(f"{tmp_path}/f", lambda file: file.write_durably(0, both.filled(7, 1)))
    assert calls.asked == ["pwritev durably"]
    both.close()


@pytest.mark.parametrize("kind", ["fuse.pool", "fuse", "virtiofs", "cifs", "9p", "overlay", "", None])
def test_a_durable_write_is_synced_where_the_file_system_may_not_look_at_the_flag(
    kind: str | None, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`None`: nobody says what kind of file system that is; "": its number, as of a part of btrfs, is not listed."""
    mount(tmp_path, kind, monkeypatch)
    both = Pair(calls, str(tmp_path))
    both.create(f"{tmp_path}/f")
    both.do(lambda disk: disk.sync_dir(both.base))
    both.on(f"{tmp_path}/f", lambda file: file.write_durably(PAGE, both.filled(7, 2)))
    assert calls.asked[-2:] == ["pwrite", "fdatasync"]
    both.close()


# -- a queue manager -----------------------------------------------------------------------------------------------

Queues = dict[str, list[bytes]]


class Broken(AssertionError):
    """Something that was acknowledged hangs on more than the system guarantees."""


@attrs.define
class Acknowledged:
    """A queue manager on the real disk, and what a crash must leave of it: as before the call, or as after it."""

    calls: Calls
    base: str
    every: int = 7  # of the system calls, a look before each of so many
    allowed: list[Queues] = attrs.field(factory=lambda: [{}])
    looks: int = 0
    seen: int = 0

    def create(self, integrity: str, log_type: str) -> "qmgr.QueueManager":
        files = {"log_primary_files": 2, "log_secondary_files": 1, "log_file_pages": 64, "log_buffer_pages": 18}
        named = {"log_type": log_type, "log_write_integrity": integrity, "log_management": "Automatic"}
        place = {"data_path": f"{self.base}/data", "log_path": f"{self.base}/log"}
        qmgr.create("REAL", **place, **files, **named)  # type: ignore[arg-type]
        self.look()
        self.calls.before = self.before
        return self.start()

    def start(self) -> "qmgr.QueueManager":
        return qmgr.start("REAL", data_path=f"{self.base}/data", background=False)

    def before(self) -> None:
        self.seen += 1
        if self.seen % self.every == 0:
            self.look()

    def call(self, after: Queues, call: Callable[[], object]) -> None:
        """Make a call after which the queues hold that."""
        self.allowed = [self.allowed[-1], after]
        call()
        self.allowed = [after]
        self.look()

    @property
    def queues(self) -> Queues:
        return {name: list(bodies) for name, bodies in self.allowed[-1].items()}

    def look(self) -> None:
        """Start a queue manager on nothing but what the system guarantees by now."""
        self.looks += 1
        disk = SimDisk()
        for path, data in self.calls.promises.files().items():
            make_dirs(disk, path.rpartition("/")[0])
            disk.poke(path, data)
        try:
            with qmgr.start(
                "REAL", data_path=f"{self.base}/data", disk=disk, clock=SimClock(), background=False
            ) as found:
                names = [queue.name for queue in found.queues() if not queue.name.startswith("SYSTEM.")]
                queues = {name: [message.body for message in found.browse(name)] for name in names}
        except qmgr.MQError as exc:
            raise Broken(f"look {self.looks}, after {self.calls.asked[-5:]}: {exc}") from exc
        if queues not in self.allowed:
            raise Broken(f"look {self.looks}, after {self.calls.asked[-5:]}: {queues}")


def live(found: Acknowledged, integrity: str, log_type: str) -> None:
    """Every kind of acknowledgement, over more than a lap of the log, an end and a start."""
    qm = found.create(integrity, log_type)
    for name in ("A", "B"):
        found.call(found.queues | {name: []}, partial(qm.define_queue, name))
    for number in range(12):
        round_of(found, qm, number)
        if number % 3 == 2:
            found.call(found.queues, qm.checkpoint)
            left = found.queues["B"][2:]
            found.call(found.queues | {"B": left}, partial(qm.get_many, "B", 2))
        if number == 6:
            found.call(found.queues, qm.end)
            qm = found.start()
    found.call(found.queues | {"C": []}, partial(qm.define_queue, "C"))
    found.call({name: bodies for name, bodies in found.queues.items() if name != "C"}, partial(qm.delete_queue, "C"))
    found.call(found.queues, qm.end)


def round_of(found: Acknowledged, qm: "qmgr.QueueManager", number: int) -> None:
    """A put, and a unit of work that moves a message."""
    body = (b"%d " % number).ljust(900 * number * number % 60_000, b"x")
    now = found.queues
    found.call(now | {"A": [*now["A"], body]}, partial(qm.put, "A", body))
    unit = qm.begin()
    moved = unit.get("A").body
    unit.put("B", moved)
    now = found.queues
    found.call({"A": now["A"][1:], "B": [*now["B"], moved]}, unit.commit)


@pytest.mark.parametrize(
    ("integrity", "log_type"), [("TripleWrite", "circular"), ("SingleWrite", "circular"), ("TripleWrite", "linear")]
)
def test_what_was_acknowledged_is_in_what_the_system_guarantees(
    integrity: str, log_type: str, calls: Calls, tmp_path: Path
) -> None:
    found = Acknowledged(calls, str(tmp_path), every=1 if SOAK else 9)
    live(found, integrity, log_type)
    assert found.looks > 50


def move_away(directory: Path) -> None:
    directory.rename(f"{directory}.moved")


def put_an_older_copy_in_its_place(directory: Path) -> None:
    move_away(directory)
    shutil.copytree(f"{directory}.older", directory)


def turn_a_link(directory: Path) -> None:
    """The path leads to an older copy by way of a link above it."""
    move_away(directory)
    directory.symlink_to(f"{directory}.older")


@pytest.mark.parametrize("log_type", ["circular", "linear"])
@pytest.mark.parametrize("which", ["data", "log"])
@pytest.mark.parametrize("how", [move_away, put_an_older_copy_in_its_place, turn_a_link])
def test_row_61_a_directory_that_leaves_its_path_takes_nothing_with_it(
    how: Callable[[Path], None], which: str, log_type: str, tmp_path: Path
) -> None:
    """Faults 61: moved away, unmounted or mounted over: the files that are open are there, others of that name are not.

    A checkpoint that is written elsewhere must not let the log go that it would take the place of.
    """
    base = str(tmp_path / "data")
    files = {"log_primary_files": 2, "log_secondary_files": 1, "log_file_pages": 64}
    named = {"log_type": log_type, "log_management": "Automatic"}
    qmgr.create("REAL", data_path=base, log_path=tmp_path / "log", **named, **files)  # type: ignore[arg-type]
    directory = tmp_path / which
    shutil.copytree(directory, f"{directory}.older")
    qm = qmgr.start("REAL", data_path=base, background=False)
    qm.define_queue("A")
    how(directory)
    acknowledged = []
    with pytest.raises(qmgr.Unavailable, match="was moved, or its file system unmounted"):
        for number in range(1000):  # more than two laps
            qm.put("A", (b"%d " % number).ljust(5000, b"x"))
            acknowledged.append(number)
    qm.abandon()
    assert len(acknowledged) < 900
    if how is move_away:
        assert not directory.exists(), "it is to be seen that it is gone"
    elif how is turn_a_link:
        directory.unlink()
    else:
        shutil.rmtree(directory)
    Path(f"{directory}.moved").rename(directory)
    with qmgr.start("REAL", data_path=base, background=False) as qm:
        assert [int(message.body.split()[0]) for message in qm.browse("A")][: len(acknowledged)] == acknowledged


LEFT_OUT = {
    "RWF_DSYNC": (PosixFile, "write_durably", lambda self, at, data, **how: self.write(at, data)),
    "fdatasync": (PosixFile, "sync", lambda self: None),
    "fsync of directories": (PosixDisk, "sync_dir", lambda self, path: None),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_sync_that_the_real_disk_leaves_out_is_noticed(
    what: str, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, instead = LEFT_OUT[what]
    monkeypatch.setattr(owner, name, instead)
    with pytest.raises(Broken):
        live(Acknowledged(calls, str(tmp_path)), "TripleWrite", "circular")


WITHOUT_STREAMS = """
import os, qmgr
for stream in (0, 1, 2):
    os.close(stream)
qm = qmgr.start("CLOSED")
qm.define_queue("A")
for size in (10, 200_000):  # the second one makes the log take a new extent
    qm.put("A", bytes(size))
    for stream in (0, 1, 2):
        try:
            os.write(stream, b"what a library prints where standard error should be " * 1000)
        except OSError:
            pass
qm.put("A", b"last")
os._exit(9)
"""


def test_what_is_printed_where_the_standard_streams_are_closed_goes_into_no_file_of_ours(tmp_path: Path) -> None:
    qmgr.create("CLOSED", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    lock = tmp_path / "qmgrs" / "CLOSED" / "qm.lock"
    environment = os.environ | {"QMGR_DATA_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WITHOUT_STREAMS], env=environment, timeout=120, check=False)
    assert done.returncode == 9
    assert len(lock.read_bytes()) < 100
    assert not [one for one in tmp_path.rglob("*") if one.is_file() and b"a library prints" in one.read_bytes()]
    with qmgr.start("CLOSED", data_path=tmp_path) as qm:
        assert [len(message.body) for message in qm.get_many("A", 9)] == [10, 200_000, 4]


CLOSED_BY_OTHERS = """
import os, sys, time, qmgr
qm = qmgr.start("CLOSED", background=sys.argv[1] == "background")
qm.define_queue("A")
qm.put("A", b"acknowledged")
time.sleep(0.1)  # sooner nobody looks
os.closerange(3, 1000)
files = [open(f"{sys.argv[2]}/{number}", "wb+") for number in range(40)]
for file in files:
    file.write(b"the application's")
    file.flush()
for call in (lambda: qm.put("A", b"lost"), lambda: qm.put("A", b"lost"), qm.end):
    try:
        call()
    except qmgr.Unavailable as exc:
        assert "were closed by something else in this process" in str(exc), exc
assert all(file.write(b" file") for file in files)
for file in files:
    file.close()
os._exit(9)
"""


@pytest.mark.parametrize("how", ["background", "alone"])
def test_whoever_closes_descriptors_that_are_not_his_own_has_nothing_acknowledged_and_nothing_overwritten(
    how: str, tmp_path: Path
) -> None:
    """Their numbers go to the files that are opened next, and the log would be written into those."""
    qmgr.create("CLOSED", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    environment = os.environ | {"QMGR_DATA_PATH": str(tmp_path)}
    words = [sys.executable, "-c", CLOSED_BY_OTHERS, how, str(theirs)]
    done = subprocess.run(words, env=environment, timeout=120, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (9, "")
    assert {one.read_bytes() for one in theirs.iterdir()} == {b"the application's file"}
    with qmgr.start("CLOSED", data_path=tmp_path) as qm:
        assert [message.body for message in qm.get_many("A", 9)] == [b"acknowledged"]


def test_that_the_system_does_not_say_which_file_a_descriptor_has_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system can refuse that for a moment; what is written next says whether the file is there."""
    qmgr.create("REAL", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    asked = []
    fstat = os.fstat

    def refused(fd: int) -> os.stat_result:
        if Path(f"/dev/fd/{fd}").resolve().name.startswith("S0"):
            asked.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return fstat(fd)

    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        qm.put("A", b"before")
        time.sleep(0.1)  # sooner nobody looks
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", refused)
            qm.put("A", b"meanwhile")
            assert asked
        qm.put("A", b"after")
    before = len(os.listdir("/dev/fd"))
    with qmgr.start("REAL", data_path=tmp_path) as qm:
        assert [message.body for message in qm.get_many("A", 9)] == [b"before", b"meanwhile", b"after"]
    assert len(os.listdir("/dev/fd")) == before


def a_directory(path: Path) -> None:
    path.mkdir()
    (path / "theirs").write_text("not ours")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def a_file_for_its_directory(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("not ours")


@pytest.mark.parametrize("log_type", ["circular", "linear"])
@pytest.mark.parametrize("how", [a_directory, a_link_to_itself, os.mkfifo, a_file_for_its_directory])
def test_row_49_what_is_no_file_in_the_place_of_a_segment_costs_its_queue_and_no_other(
    how: Callable[[Path], None], log_type: str, tmp_path: Path
) -> None:
    """Faults 42, 49, 50: it is set aside as a damaged file is; a linear log builds the queue again."""
    qmgr.create("REAL", data_path=tmp_path, log_type=log_type, log_primary_files=2, log_file_pages=64)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        for name in ("A", "B"):
            qm.define_queue(name)
            qm.put(name, b"of %s" % name.encode())
    (segment,) = (tmp_path / "qmgrs" / "REAL" / "queues" / "A").iterdir()
    segment.unlink()
    how(segment)
    for _ in range(2):
        with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
            assert [message.body for message in qm.browse("B")] == [b"of B"]
            if log_type == "linear":
                assert [message.body for message in qm.browse("A")] == [b"of A"]
            else:
                with pytest.raises(qmgr.Damaged, match=f"{segment} is (no file|missing)"):
                    qm.get("A")
            qm.put("B", b"more")
            qm.checkpoint()
            assert qm.get("B").body == b"of B"
            qm.put("B", b"of B", priority=9)
            qm.get("B", message_id=[m.message_id for m in qm.browse("B")][1])
    place = segment.parent if how is a_file_for_its_directory else segment
    aside = place.with_name(f"{place.name}.damaged")
    assert aside.is_dir() or aside.is_symlink() or aside.is_fifo() or aside.read_text() == "not ours"
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        qm.delete_queue("A", purge=True)
        qm.checkpoint()
        qm.define_queue("A")
        qm.put("A", b"again")
        qm.checkpoint()
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        assert qm.get("A").body == b"again"


@pytest.mark.parametrize("how", [a_directory, a_link_to_itself])
def test_what_lies_among_the_queues_files_and_is_somebody_elses_stops_no_start(
    how: Callable[[Path], None], tmp_path: Path
) -> None:
    """Under the name of a segment that is none, and of a queue's directory."""
    qmgr.create("REAL", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        qm.put("A", b"ours")
    queues = tmp_path / "qmgrs" / "REAL" / "queues"
    theirs = [queues / "A" / "00000099.seg", queues / "B"]
    for path in theirs:
        how(path)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        assert qm.get("A").body == b"ours"
    for path in theirs if how is a_directory else ():
        assert (path / "theirs").read_text() == "not ours"


def a_file(path: Path) -> None:
    path.write_text("not ours")


@pytest.mark.parametrize("there", [True, False], ids=["with a segment", "without one"])
@pytest.mark.parametrize("how", [a_file, os.mkfifo, a_link_to_itself])
def test_row_49_what_is_no_directory_in_the_place_of_a_queues_is_set_aside_while_work_goes_on(
    how: Callable[[Path], None], there: bool, tmp_path: Path
) -> None:
    """Faults 42, 49, 50: checkpoints go on, and so does the queue, if it had nothing there."""
    qmgr.create("REAL", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    queues = tmp_path / "qmgrs" / "REAL" / "queues"
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        for name in ("A", "B"):
            qm.define_queue(name)
        if there:
            qm.put("A", b"lost")
            qm.checkpoint()
            shutil.rmtree(queues / "A")
        how(queues / "A")
        for name in ("A", "B"):
            qm.put(name, b"second")
        qm.checkpoint()
        assert os.path.lexists(queues / "A.damaged")
        assert (queues / "A").is_dir()
        told = (queues.parent / "errors" / "AMQERR01.LOG").read_text()
        assert told.count("AMQ9005W") == 1
        assert f"set aside as {queues / 'A'}.damaged." in told
        qm.put("B", b"third")
        qm.checkpoint()
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        assert [message.body for message in qm.browse("B")] == [b"second", b"third"]
        if there:  # the checkpoint has kept what was found there
            why = "is no file" if how is a_link_to_itself else "is missing"
            with pytest.raises(qmgr.Damaged, match=f"segment {queues / 'A'}/.* {why}"):
                qm.get("A")
        else:
            assert qm.get("A").body == b"second"


def test_what_is_no_directory_where_a_queue_is_built_again_is_set_aside_and_that_is_said(tmp_path: Path) -> None:
    qmgr.create("REAL", data_path=tmp_path, log_type="linear", log_primary_files=2, log_file_pages=64)
    directory = tmp_path / "qmgrs" / "REAL" / "queues" / "A"
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        qm.put("A", b"first")
        qm.record_image("A")
        shutil.rmtree(directory)
        qm.put("A", b"second")
        qm.checkpoint()
        assert qm.queue("A").damaged
        shutil.rmtree(directory)
        a_file(directory)
        qm.recreate("A")
        assert [message.body for message in qm.browse("A")] == [b"first", b"second"]
    told = (directory.parents[1] / "errors" / "AMQERR01.LOG").read_text()
    assert f"set aside as {directory}.damaged." in told


@pytest.mark.parametrize("how", [a_directory, a_link_to_itself, os.mkfifo])
def test_row_49_what_is_no_file_in_the_place_of_a_segment_is_found_while_work_goes_on(
    how: Callable[[Path], None], tmp_path: Path
) -> None:
    """Faults 42, 49: by the checkpoint that was to append to it, and after that checkpoints go on."""
    qmgr.create("REAL", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        for name in ("A", "B"):
            qm.define_queue(name)
            qm.put(name, b"first")
        qm.checkpoint()
        (segment,) = (tmp_path / "qmgrs" / "REAL" / "queues" / "A").iterdir()
        segment.unlink()
        how(segment)
        qm.put("A", b"second")
        qm.checkpoint()
        with pytest.raises(qmgr.Damaged, match=r"is no file \((Is a directory|Too many levels|it is a pipe)"):
            qm.get("A")
        assert qm.get("B").body == b"first"
        qm.checkpoint()
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        assert qm.queue("B").depth == 0


@pytest.mark.parametrize("taken", [1, 2, 4])
@pytest.mark.parametrize("how", [a_directory, a_link_to_itself, a_link_to_nothing])
def test_what_has_the_name_of_a_segment_that_is_to_be_made_damages_no_queue(
    how: Callable[[Path], None], taken: int, tmp_path: Path
) -> None:
    """Nothing of the queue was there, so nothing of it is lost: it goes on under another number."""
    qmgr.create("REAL", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        qm.put("A", b"ours")
        directory = tmp_path / "qmgrs" / "REAL" / "queues" / "A"
        directory.mkdir(exist_ok=True)
        for number in range(1, 1 + taken):
            how(directory / f"0000000{number}.seg")
        qm.checkpoint()
        assert [message.body for message in qm.browse("A")] == [b"ours"]
        qm.define_queue("B")
        qm.put("B", b"theirs")
        qm.checkpoint()
    assert (directory / f"0000000{taken + 1}.seg").is_file()
    assert (directory.parent / "B" / f"0000000{taken + 2}.seg").is_file()  # no number is lost by it
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        assert qm.get("A").body == b"ours"


def test_a_segment_that_is_missing_where_the_names_of_the_next_ones_are_taken_damages_its_queue_alone(
    tmp_path: Path,
) -> None:
    qmgr.create("REAL", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        for name in ("A", "B"):
            qm.define_queue(name)
            qm.put(name, b"first")
        qm.checkpoint()
        (segment,) = (tmp_path / "qmgrs" / "REAL" / "queues" / "A").iterdir()
        segment.unlink()
        for number in (3, 4):
            a_directory(segment.with_name(f"0000000{number}.seg"))
        qm.put("A", b"second")
        qm.checkpoint()
        assert set(qm.damaged()) == {"A"}
        assert qm.get("B").body == b"first"


@pytest.mark.interpreted
@pytest.mark.parametrize("how", [a_directory, a_link_to_itself, a_link_to_nothing])
def test_what_has_the_name_of_a_segment_that_others_are_to_be_rewritten_to_stops_no_checkpoint(
    how: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay as they are, and the next checkpoint rewrites them under another number."""
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 2000)
    monkeypatch.setattr(queue_snapshot, "MAX_SURPLUS_BYTES", 0)
    qmgr.create("REAL", data_path=tmp_path, log_primary_files=2, log_file_pages=64)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        qm.define_queue("A")
        qm.put_many("A", [b"%d" % number for number in range(100)])
        qm.checkpoint()
        qm.get_many("A", 80)
        (directory,) = (tmp_path / "qmgrs" / "REAL" / "queues").iterdir()
        how(directory / "00000002.seg")
        qm.checkpoint()
        assert (directory / "00000001.seg").is_file()
        qm.get("A")
        qm.checkpoint()
        assert (directory / "00000003.seg").is_file()
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        assert [message.body for message in qm.browse("A")] == [b"%d" % number for number in range(81, 100)]


@pytest.mark.parametrize("log_type", ["circular", "linear"])
@pytest.mark.parametrize("leads", ["nowhere", "to itself"])
def test_row_49_a_link_in_the_place_of_a_queues_directory_costs_that_queue_until_it_leads_to_it_again(
    leads: str, log_type: str, tmp_path: Path
) -> None:
    """Faults 42, 49: the queue lies on another file system, say, which is not mounted."""
    qmgr.create("REAL", data_path=tmp_path, log_type=log_type, log_primary_files=2, log_file_pages=64)
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        for name in ("A", "B"):
            qm.define_queue(name)
            qm.put(name, b"of %s" % name.encode())
    directory = tmp_path / "qmgrs" / "REAL" / "queues" / "A"
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "nowhere" if leads == "nowhere" else directory)
    for turn in range(2):
        with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
            with pytest.raises(qmgr.Damaged):
                qm.get("A")
            qm.put("B", b"more")
            qm.checkpoint()
            assert len(list(qm.browse("B"))) == 2 + turn
    directory.unlink()
    directory.symlink_to(tmp_path / "elsewhere")
    with qmgr.start("REAL", data_path=tmp_path, background=False) as qm:
        assert len(list(qm.browse("B"))) == 3
        if log_type == "linear":
            assert qm.get("A").body == b"of A"
