"""Power failures below real file systems: what a disk may hold at any moment is mounted, and the next worker audits it.

Workers (tests/kill_worker.py), in process or as clients of a daemon, work on a file system on a disk that keeps all
writes and flushes (recorder.py), and are killed and started again meanwhile. For moments in that record the disk is
made that a power failure leaves: everything before the last flush, and of what was written after it nothing, all, the
first few, some, or some sectors. The kernel mounts that and repairs it by its journal. Then everything that workers
were told up to this moment must be there.

Needs Linux, root for mounting, FUSE 3, and mkfs for each file system: `make test-power`.
"""

import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import qmgr
from logger.posix_disk import PosixDisk
from tests.books import Books
from tests.kill_worker import NAME
from tests.power.recorder import FLUSH, SAID, WRITE, Event, events

SIZE = 400 << 20  # bytes of the disk: xfs needs 300 MiB
SECTOR = 512
THREADS = 2
WORKERS = 4  # after each other
SECONDS = 2.0  # that each works, once it has audited the one before
MOMENTS = int(os.environ.get("MOMENTS", "40"))
FILE_SYSTEMS = {
    "ext4": (["mkfs.ext4", "-q", "-J", "size=8"], "ext4", "defaults"),
    "ext4, data=writeback": (["mkfs.ext4", "-q", "-J", "size=8"], "ext4", "data=writeback"),
    "xfs": (["mkfs.xfs", "-q", "-f"], "xfs", "nouuid"),
    "btrfs": (["mkfs.btrfs", "-q", "-f"], "btrfs", "defaults"),
}
LOGS = {
    "circular": {"log_secondary_files": 2},
    "single write": {"log_secondary_files": 2, "log_write_integrity": "SingleWrite"},
    "linear": {"log_type": "linear", "log_management": "Automatic"},
}


def do(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def unmount(where: Path) -> None:
    """A process that was killed, and is nobody's child any more, may not be gone yet."""
    tries = 100
    while subprocess.run(["umount", str(where)], capture_output=tries > 1, check=tries == 1).returncode:
        tries -= 1
        time.sleep(0.1)


@contextmanager
def mounted(file: Path, where: Path, kind: str, options: str) -> Iterator[None]:
    """The disk in `file` as a loop device, mounted."""
    device = do("losetup", "--find", "--show", str(file))
    try:
        do("mount", "-t", kind, "-o", options, device, str(where))
        try:
            yield
        finally:
            unmount(where)
    finally:
        do("losetup", "--detach", device)


@contextmanager
def recorded(base: Path, record: Path) -> Iterator[Path]:
    """The folder with `disk` and `said`."""
    where = base / "recorder"
    where.mkdir()
    server = subprocess.Popen([sys.executable, "-m", "tests.power.recorder", str(where), str(SIZE), str(record)])
    try:
        while not (where / "disk").exists():
            assert server.poll() is None, "the recorder did not start; is FUSE 3 installed?"
            time.sleep(0.05)
        yield where
    finally:
        do("fusermount3", "-u", "-z", str(where))  # the loop device may not have let go of it yet
        assert server.wait(60) == 0


def worker(mount: Path, seed: int, through: str, stdout: int) -> subprocess.Popen[bytes]:
    """In a session of its own, with its daemon."""
    words = [str(mount / "data"), str(mount / "log"), str(seed), str(THREADS), through]
    return subprocess.Popen([sys.executable, "-m", "tests.kill_worker", *words], stdout=stdout, start_new_session=True)


def live(base: Path, mount: Path, file_system: str, log: str, through: str) -> list[Event]:
    """What workers did to a disk, and were told."""
    make, kind, options = FILE_SYSTEMS[file_system]
    record = base / "record"
    with recorded(base, record) as recorder:
        do(*make, str(recorder / "disk"))
        with mounted(recorder / "disk", mount, kind, options):
            small = {"log_primary_files": 2, "log_file_pages": 64}
            qmgr.create(NAME, data_path=mount / "data", log_path=mount / "log", **(small | LOGS[log]))
            said = os.open(recorder / "said", os.O_WRONLY)
            try:
                for seed in range(1, 1 + WORKERS):
                    one = worker(mount, seed, through, said)
                    try:
                        while record.read_bytes().count(b'"begin"') < seed:
                            assert one.poll() is None, "it died of itself"
                            time.sleep(0.2)
                        time.sleep(SECONDS)
                    finally:
                        os.killpg(one.pid, signal.SIGKILL)
                    assert one.wait(60) == -signal.SIGKILL, "it died of itself"
            finally:
                os.close(said)
    return list(events(record.read_bytes()))


def fail(disk: Path, undone: list[Event], rng: random.Random) -> str:
    """Of what was not flushed the disk keeps this or that; how."""
    how = rng.choice(("nothing", "all", "the first", "some", "some", "sectors"))
    first = rng.randint(0, len(undone))
    with open(disk, "r+b") as file:
        for n, (_, offset, data) in enumerate(undone):
            for at in range(0, len(data), SECTOR if how == "sectors" else len(data)):
                kept = {"nothing": False, "all": True, "the first": n < first}.get(how, rng.random() < 0.5)
                if kept:
                    file.seek(offset + at)
                    file.write(data[at : at + SECTOR] if how == "sectors" else data)
    return how


def audit(mount: Path, books: Books) -> None:
    """The next worker says what it has found, and ends in order."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kill_worker", str(mount / "data"), str(mount / "log"), "-1", str(THREADS)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    heard = [books.hear(line) for line in done.stdout.splitlines()]
    assert heard[-1] == "begin"


def test_this_machine_has_what_is_needed() -> None:
    assert os.geteuid() == 0, "only root can mount: run it as root"
    tools = ["losetup", "mount", "fusermount3", *(make[0] for make, _, _ in FILE_SYSTEMS.values())]
    assert [tool for tool in tools if shutil.which(tool) is None] == [], "these commands are not installed"
    assert Path("/dev/fuse").exists() and Path("/dev/loop-control").exists()


def test_a_durable_write_is_followed_by_a_flush_where_fuse_keeps_no_pages(tmp_path: Path) -> None:
    with recorded(tmp_path, tmp_path / "record") as recorder:
        file = PosixDisk().open(f"{recorder}/disk", direct=True)
        file.write_durably(0, PosixDisk().buffer(4096))
        file.close()
    assert [event.kind for event in events((tmp_path / "record").read_bytes())] == [WRITE, FLUSH]


@pytest.mark.parametrize("through", ["process", "daemon"])
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("file_system", FILE_SYSTEMS)
def test_what_was_told_is_there_after_a_power_failure(tmp_path: Path, file_system: str, log: str, through: str) -> None:
    _, kind, options = FILE_SYSTEMS[file_system]
    mount = tmp_path / "mount"  # the same in the record and after it: qm.ini has the log's path
    mount.mkdir()
    past = live(tmp_path, mount, file_system, log, through)
    begun = next(n for n, event in enumerate(past) if event.kind == SAID)
    rng = random.Random(f"{file_system} {log} {through}")
    moments = set(rng.sample(range(begun, len(past)), MOMENTS))
    durable, failing = tmp_path / "durable", tmp_path / "failing"
    durable.write_bytes(b"")
    os.truncate(durable, SIZE)
    books, said, undone, looked = Books(THREADS), b"", [], 0
    with open(durable, "r+b") as file, mmap.mmap(file.fileno(), SIZE) as disk:
        for moment, event in enumerate(past):
            if moment in moments and not books.resolving:
                disk.flush()
                shutil.copyfile(durable, failing)
                how = fail(failing, undone, rng)
                with mounted(failing, mount, kind, options):
                    try:
                        audit(mount, books.copy())
                    except AssertionError as exc:
                        exc.add_note(f"event {moment} of {len(past)}: {how} of {len(undone)} writes was kept")
                        raise
                looked += 1
            if event.kind == WRITE:
                undone.append(event)
            elif event.kind == FLUSH:
                for _, offset, data in undone:
                    disk[offset : offset + len(data)] = data
                undone.clear()
            else:
                *lines, said = (said + event.data).split(b"\n")
                for line in lines:
                    books.hear(line)
    assert looked >= MOMENTS // 2
    assert books.acknowledged > 20
