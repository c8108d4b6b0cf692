"""The real disk: what the protocol promises, on files of this machine."""

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from logger import posix_disk, posix_lock
from logger.disk import PAGE
from logger.disk_errors import advice, retry_advice
from logger.errors import LogInUse
from logger.posix_disk import PosixDisk, user_data_path
from logger.whole_files import make_and_keep_dirs, make_dirs, read_whole, replace_file
from tests.qmgr.world import Call
from tests.sim.disk import SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL


def test_reads_and_writes_at_offsets(tmp_path: Path) -> None:
    disk = PosixDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    file.write(5, b"abc")
    assert (file.size(), file.read(0, 99)) == (8, bytes(5) + b"abc")
    file.truncate(6)
    assert file.read(4, 10) == b"\0a"
    file.sync()
    file.close()
    file.close()
    with pytest.raises(FileExistsError):
        disk.open(f"{tmp_path}/f", create=True)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/g")


def test_what_is_forgotten_is_read_from_the_disk_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PosixDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    file.write(0, b"synced" + bytes(PAGE))
    file.sync()
    file.write(PAGE, b"not synced")
    disk.forget(f"{tmp_path}/f")  # that stays
    assert (file.read(0, 6), file.read(PAGE, 10)) == (b"synced", b"not synced")
    monkeypatch.delattr(os, "posix_fadvise", raising=False)  # as on macOS
    disk.forget(f"{tmp_path}/f")


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_where_the_system_takes_no_advice_nothing_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As a filter of system calls (seccomp) has it; a disk that fails is another matter."""
    (tmp_path / "f").touch()
    refused = OSError(number, os.strerror(number))

    def refuse(*args: object) -> None:
        raise refused

    monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    PosixDisk().forget(f"{tmp_path}/f")
    refused = OSError(errno.EIO, "a bad disk")
    with pytest.raises(OSError, match="a bad disk"):
        PosixDisk().forget(f"{tmp_path}/f")


@pytest.mark.parametrize("host", [r'"\q"', r'"\ud8"', '"a\0b"', '"a'])
def test_a_lock_file_whose_line_is_damaged_is_held_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    disk, path = PosixDisk(), tmp_path / "lock"
    monkeypatch.setattr(posix_lock, "LOCK_ATTEMPTS", 3)
    lock = disk.lock(str(path), "pid 1")
    path.write_text(f"pid 1 at - on {host}\n")
    assert disk.locked_by(str(path)) == f"pid 1 at - on {host}"
    with pytest.raises(LogInUse, match="pid 1"):
        disk.lock(str(path), "pid 2")
    lock.release()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.ENOLCK])
def test_where_there_are_no_locks_nobody_is_said_to_hold_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A file system without locks: the error names the file, and whoever has left his name there holds nothing."""
    path = f"{tmp_path}/qm.lock"
    (tmp_path / "qm.lock").write_text("pid 4711\n")

    def refuse(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for call in (lambda: PosixDisk().lock(path, "somebody"), lambda: PosixDisk().locked_by(path)):
        with pytest.raises(OSError) as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (number, path)


def test_a_directory_that_can_not_be_synced_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError) as caught:
        PosixDisk().sync_dir(str(tmp_path))
    assert caught.value.filename == str(tmp_path)


def test_row_53_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = PosixDisk().open(f"{tmp_path}/f", create=True)
    real_write, real_read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_write(fd, bytes(data)[:7], at))
    file.write(3, b"a long line of bytes")
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real_read(fd, min(size, 4), at))
    assert file.read(3, 100) == b"a long line of bytes"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="no more bytes"):
        file.write(0, b"x")


def test_a_read_that_fails_names_the_file(tmp_path: Path) -> None:
    file = PosixDisk().open_read(str(tmp_path))  # a directory, which can be opened and not be read
    try:
        with pytest.raises(IsADirectoryError) as caught:
            file.read(0, 10)
    finally:
        file.close()
    assert caught.value.filename == str(tmp_path)


def test_a_pipe_in_the_place_of_a_file_is_refused_and_nobody_waits_for_who_writes_into_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="this is a pipe, and no file") as caught:
        read_whole(PosixDisk(), f"{tmp_path}/pipe")
    assert caught.value.filename == f"{tmp_path}/pipe"


def test_what_a_full_disk_refuses_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = PosixDisk(), str(tmp_path / "f")
    file = disk.open(path, create=True)

    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for call in ("pwrite", "fdatasync", "fsync"):
        monkeypatch.setattr(os, call, full, raising=False)
    for call in (lambda: file.write(0, b"x"), file.sync):
        with pytest.raises(OSError, match="No space left") as caught:
            call()
        assert caught.value.filename == path


def test_durable_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system writes less at once, or does not know such writes."""
    file = PosixDisk().open(f"{tmp_path}/f", create=True)
    file.write_durably(3, b"one")
    assert file.read(0, 100) == bytes(3) + b"one"
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    monkeypatch.setattr(os, "pwritev", lambda fd, data, at, flags: os.pwrite(fd, data[0][:2], at))
    file.write_durably(0, b"another")
    assert file.read(0, 100) == b"another"

    def unknown(fd: int, data: list[bytes], at: int, flags: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "no such flag")

    monkeypatch.setattr(os, "pwritev", unknown)
    file.write_durably(0, b"ANOTHER")
    assert file.read(0, 100) == b"ANOTHER"
    assert synced == [file.fd] * 2


def test_a_pipe_in_the_place_of_a_lock_holds_up_nobody_who_looks(tmp_path: Path) -> None:
    """Every command that looks whether a queue manager runs used to wait there for ever."""
    os.mkfifo(tmp_path / "qm.lock")
    found: list[str | None] = []
    looking = threading.Thread(target=lambda: found.append(PosixDisk().locked_by(f"{tmp_path}/qm.lock")), daemon=True)
    looking.start()
    looking.join(60)
    assert found == [None]


def test_direct_buffers_are_aligned(tmp_path: Path) -> None:
    disk = PosixDisk()
    file = disk.open(f"{tmp_path}/f", create=True, direct=True)
    page = disk.buffer(2 * PAGE)
    assert bytes(page) == bytes(2 * PAGE)
    page[:3] = b"abc"
    file.write(PAGE, page)
    file.sync()
    assert read_whole(disk, f"{tmp_path}/f")[PAGE : PAGE + 3] == b"abc"


@pytest.mark.parametrize("write", ["write", "write_durably"])
def test_a_disk_with_larger_sectors_than_pages_is_written_through_the_systems_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """It was "Invalid argument", of crtmqm. A loop device with sectors of 8192 bytes refuses just so."""
    pwrite, pwritev, synced = os.pwrite, os.pwritev, []

    def check(fd: int, size: int, at: int) -> None:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0) and (at % 8192 or size % 8192):
            raise OSError(errno.EINVAL, "Invalid argument")

    def picky(fd: int, data: memoryview, at: int) -> int:
        check(fd, len(data), at)
        return pwrite(fd, data, at)

    def durably(fd: int, data: list[memoryview], at: int, flags: int) -> int:
        check(fd, len(data[0]), at)
        return pwritev(fd, data, at, flags)

    monkeypatch.setattr(os, "pwrite", picky)
    monkeypatch.setattr(os, "pwritev", durably)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    disk = PosixDisk()
    file = disk.open(f"{tmp_path}/f", create=True, direct=True)
    page = disk.buffer(PAGE)
    page[:3] = b"abc"
    getattr(file, write)(PAGE, page)
    assert read_whole(disk, f"{tmp_path}/f") == bytes(PAGE) + bytes(page)
    assert synced == [file.fd] * (write == "write_durably")
    getattr(file, write)(0, page)
    assert read_whole(disk, f"{tmp_path}/f") == bytes(page) * 2
    with pytest.raises(OSError, match="Invalid argument"):  # what is wrong otherwise stays so
        file.write(-1, page)


def test_a_lock_has_one_holder_and_dies_with_it(tmp_path: Path) -> None:
    disk = PosixDisk()
    path = f"{tmp_path}/lock"
    assert disk.locked_by(path) is None
    lock = disk.lock(path, "somebody")
    with pytest.raises(LogInUse, match="somebody") as caught:
        disk.lock(path, "else")
    assert caught.value.holder == "somebody"
    assert disk.locked_by(path) == "somebody"
    os.close(os.open(path, os.O_RDONLY))  # which would end a POSIX record lock
    assert disk.locked_by(path) == "somebody"
    lock.release()
    lock.release()
    assert disk.locked_by(path) is None
    disk.lock(path, "next").release()


@pytest.mark.parametrize(("code", "held"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_lock_on_a_full_disk_is_held_by_nobody_in_particular_and_one_on_a_bad_disk_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, held: bool
) -> None:
    """On a full disk messages can be got, if only the queue manager can be started."""
    disk, path = PosixDisk(), f"{tmp_path}/lock"

    def fails(*args: object) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        if held:
            lock = disk.lock(path, "somebody")
            assert disk.locked_by(path) == "another process"
            monkeypatch.setattr(posix_lock, "LOCK_ATTEMPTS", 3)
            with pytest.raises(LogInUse, match="another process"):
                disk.lock(path, "else")
            lock.release()
        else:
            with pytest.raises(OSError, match=path):
                disk.lock(path, "somebody")
    disk.lock(path, "next").release()


def test_a_lock_on_a_full_disk_says_whose_it_is_where_the_last_holder_left_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the line of its daemon a queue manager can't be ended by endmqm, long after there is room again."""
    disk, path, write = PosixDisk(), tmp_path / "lock", os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if at + len(data) > os.fstat(fd).st_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, at)

    disk.lock(str(path), "somebody").release()
    monkeypatch.setattr(os, "pwrite", full)
    for holder, left in (("somebodY", b"somebodY\n"), ("next", b"next\n"), ("somebody else", b"")):
        lock = disk.lock(str(path), holder)
        assert path.read_bytes() == left
        lock.release()


@pytest.mark.parametrize("command", ["", " (qm repair)"])
def test_a_holder_is_named_as_whoever_asks_would_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """In a container the owner has number 1, as has another process in each of the others and on the machine itself."""
    disk, path, host = PosixDisk(), f"{tmp_path}/lock", os.uname()
    monkeypatch.setattr(posix_lock, "LOCK_ATTEMPTS", 3)

    def seen(numbers: str, name: str = host.nodename) -> str | None:
        monkeypatch.setattr(posix_lock, "process_numbers", lambda: numbers)
        monkeypatch.setattr(os, "uname", lambda: os.uname_result((host.sysname, name, *host[2:])))
        found = disk.locked_by(path)
        with pytest.raises(LogInUse) as caught:
            disk.lock(path, "pid 2")
        assert caught.value.holder == found
        return found

    for own in ("pid:[7]", ""):
        monkeypatch.setattr(posix_lock, "process_numbers", lambda own=own: own)
        lock = disk.lock(path, f"pid 1{command}")
        assert seen(own) == f"pid 1{command}"
        assert seen("pid:[8]") == f"pid 1 in another container{command}"
        assert seen(posix_lock.MACHINE) == f"pid 1 in a container{command}"
        assert seen(own, 'odd" \udcff)') == f"pid 1 on {host.nodename!r}{command}"
        seen(own)
        lock.release()
    monkeypatch.setattr(posix_lock, "process_numbers", lambda: posix_lock.MACHINE)
    lock = disk.lock(path, f"pid 1{command}")
    assert seen("pid:[7]") == f"pid 1 outside of this container{command}"
    lock.release()


def test_row_62_who_only_looks_whether_it_is_locked_keeps_nobody_from_locking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`locked_by` holds the lock itself for a moment, or for longer where it has to wait for the processor."""
    disk, path = PosixDisk(), f"{tmp_path}/lock"
    disk.lock(path, "before").release()
    looks = os.open(path, os.O_RDWR)
    fcntl.flock(looks, fcntl.LOCK_SH)
    moments = iter([True] * 300 + [False])
    monkeypatch.setattr(posix_lock, "_wait_one_ms", lambda: next(moments) or fcntl.flock(looks, fcntl.LOCK_UN))
    lock = disk.lock(path, "somebody")
    with pytest.raises(LogInUse, match="somebody"):  # at once: there are no more moments
        disk.lock(path, "else")
    assert disk.locked_by(path) == "somebody"
    lock.release()
    os.close(looks)


def test_who_only_looks_whether_it_is_locked_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the queue managers of a file system that is mounted read-only can be shown."""
    path = str(tmp_path / "lock")
    PosixDisk().lock(path, "me").release()
    held = PosixDisk().lock(str(tmp_path / "held"), "me")
    real = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    assert PosixDisk().locked_by(path) is None
    assert PosixDisk().locked_by(str(tmp_path / "held")) == "me"
    held.release()


def test_a_directory_that_can_not_be_looked_at_for_now_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would end a queue manager which has nothing worse than no memory, say."""
    home = tmp_path / "home"
    home.mkdir()
    lock = PosixDisk().lock(f"{home}/qm.lock", "me")
    assert lock.in_place()

    def fail(path: str) -> os.stat_result:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", fail)
        assert lock.in_place()
    home.rename(tmp_path / "away")
    assert not lock.in_place()
    home.mkdir()
    assert not lock.in_place()
    lock.release()


def test_replace_file_leaves_no_trace_of_its_work(tmp_path: Path) -> None:
    disk = PosixDisk()
    for data in (b"one", b"two"):
        replace_file(disk, f"{tmp_path}/f", data)
        assert read_whole(disk, f"{tmp_path}/f") == data
    assert disk.list(str(tmp_path)) == ["f"]
    assert disk.list(f"{tmp_path}/none") == []


def test_what_was_put_in_the_place_of_a_file_is_there_after_a_crash() -> None:
    disk = SimDisk()
    disk.poke("/f", b"one")
    replace_file(disk, "/f", b"two")
    assert disk.crash(LOSE_ALL).peek("/f") == b"two"


def test_replace_file_on_a_full_disk_names_the_file_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = PosixDisk(), f"{tmp_path}/f"
    replace_file(disk, path, b"one")

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left on device") as caught:
            replace_file(disk, path, b"two")
    assert caught.value.filename == path
    assert disk.list(str(tmp_path)) == ["f"]
    assert read_whole(disk, path) == b"one"


def test_the_data_path_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PATH", "/some/where")
    assert user_data_path("SOME_PATH", "app") == "/some/where"
    monkeypatch.delenv("SOME_PATH")
    monkeypatch.setenv("XDG_DATA_HOME", "/xdg")
    monkeypatch.setattr("sys.platform", "linux")
    assert user_data_path("SOME_PATH", "app") == "/xdg/app"
    monkeypatch.setenv("XDG_DATA_HOME", "relative: not heeded")
    monkeypatch.setenv("HOME", "/home/me")
    assert user_data_path("SOME_PATH", "app") == "/home/me/.local/share/app"
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user whom the system does not know
    assert user_data_path("SOME_PATH", "app") == ""


def test_what_is_kept_for_root_is_neither_free_nor_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """As df counts: of a hundred blocks thirty are in use, and twenty are root's."""
    stat = os.statvfs_result((4096, 4096, 100, 70, 50, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: stat)
    free, total = PosixDisk().free_bytes("/")
    assert (free, total - free) == (50 * 4096, 30 * 4096)


def test_free_space_and_entropy(tmp_path: Path) -> None:
    free, total = PosixDisk().free_bytes(str(tmp_path))
    assert 0 <= free <= total
    assert len({PosixDisk().entropy(16) for _ in range(10)}) == 10
    assert PosixDisk().process() == f"pid {os.getpid()}"


def test_row_56_a_directory_whose_name_was_not_synced_is_made_again() -> None:
    """Faults 13, 56: the sync had no descriptor; who tries again finds no directory that a power failure takes."""
    disk = SimDisk()
    fault = disk.fail("sync_dir", errno.EMFILE, nth=2)
    with pytest.raises(OSError):
        make_dirs(disk, "/a/b/c")
    assert fault.fired
    make_dirs(disk, "/a/b/c")
    assert disk.crash(LOSE_ALL).exists("/a/b/c")


def test_directories_that_a_killed_process_left_in_memory_are_made_durable() -> None:
    disk = SimDisk()
    disk.mkdir("/a")
    disk.mkdir("/a/b")
    disk = disk.crash(KEEP_ALL)
    make_dirs(disk, "/a/b/c")
    assert not disk.snapshot(LOSE_ALL).exists("/a")
    make_and_keep_dirs(disk, "/a/b/c")
    assert disk.crash(LOSE_ALL).exists("/a/b/c")


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.EINVAL])
def test_a_directory_above_in_which_nobody_makes_any_need_not_be_synced(error: int) -> None:
    disk = SimDisk()
    make_dirs(disk, "/a")
    disk.fail("sync_dir", error, once=False, where=lambda path: path == "/")
    make_and_keep_dirs(disk, "/a/b/c")
    assert disk.crash(LOSE_ALL).exists("/a/b/c")


def test_a_directory_above_that_can_not_be_synced_is_an_error() -> None:
    disk = SimDisk()
    make_dirs(disk, "/a")
    disk.fail("sync_dir", errno.EIO, where=lambda path: path == "/")
    with pytest.raises(OSError, match="Input/output"):
        make_and_keep_dirs(disk, "/a/b")


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (errno.EACCES, "be the user whose it is, or let this one use it,"),
        (errno.EPERM, "be the user whose it is, or let this one use it,"),
        (errno.ENOSPC, "free some space"),
        (errno.EISDIR, "a file belongs there: move away what lies in its place,"),
        (errno.EIO, "mend the disk"),
        (errno.ESTALE, "mount its file system again,"),
    ],
)
def test_a_way_out_of_what_the_system_says(error: int, way: str) -> None:
    assert advice(OSError(error, os.strerror(error))) == way


def test_a_lock_is_not_refused_before_its_owner_has_said_who_it_is(tmp_path: Path) -> None:
    """Row 62: it has locked the file, and not written into it yet."""
    path = tmp_path / "qm.lock"
    with path.open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        asked = Call(lambda: PosixDisk().lock(str(path), "pid 2"))
        time.sleep(0.02)
        owner.write("pid 1\n")
        owner.flush()
        with pytest.raises(LogInUse) as caught:
            asked.outcome()
    assert caught.value.holder == "pid 1"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errno.EMFILE, "; nothing is lost by that: file descriptors have run out: "),
        (errno.EIO, "; mend the disk and try again"),
        (errno.ESTALE, "; mount its file system again, and try again"),
        (errno.EINVAL, ""),
    ],
)
def test_only_where_it_is_known_nothing_is_said_to_be_lost(error: int, text: str) -> None:
    said = retry_advice(OSError(error, "x"))
    assert said.startswith(text)
    assert bool(said) is bool(text)


@pytest.mark.parametrize("call", ["sync_dir", "truncate", "size"])
def test_an_error_of_what_is_open_names_it(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system knows only its number, and somebody has to know which disk to mend."""
    disk = PosixDisk()
    path = str(tmp_path / "file")
    file = disk.open(path, create=True)

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    calls = {
        "sync_dir": (str(tmp_path), lambda: disk.sync_dir(str(tmp_path))),
        "truncate": (path, lambda: file.truncate(0)),
        "size": (path, file.size),
    }
    named, do = calls[call]
    with monkeypatch.context() as patched:
        for name in ("fsync", "ftruncate", "fstat"):
            patched.setattr(posix_disk.os, name, failing)
        with pytest.raises(OSError, match=f"'{named}'"):
            do()
    file.close()
