"""Where the system is not Linux, or has 32 bits: a queue manager does the same with less, or says what can't be."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logger import posix_file
from logger.posix_disk import PosixDisk

ROOT = Path(__file__).parents[1]
SYSTEMS = ["bare", "macos", "share", "narrow"]


def there(system: str, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that takes this system for its own."""
    text = f"import sys\nfrom tests import systems\nsystems.{system}()\n{program}"
    environment = {name: value for name, value in os.environ.items() if name != "QMGR_DATA_PATH"}
    return subprocess.run(
        [sys.executable, "-c", text, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_put_crash_restart_get(system: str, tmp_path: Path) -> None:
    done = there(system, "systems.life(sys.argv[1])\nprint(systems.full_syncs > 0)", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{system == 'macos'}\n", "")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_daemon_from_start_to_end(system: str, tmp_path: Path) -> None:
    done = there(system, "systems.daemon(sys.argv[1])", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "Queue manager 'QM1' ended." in done.stdout


def test_a_path_that_is_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 100)
    program = "from qmgr.cli import main\nmain.qm(['crtmqm', 'QM1'])\nsys.exit(main.qm(['strmqm', 'QM1']))"
    done = there("macos", f"import os\nos.environ['QMGR_DATA_PATH'] = sys.argv[1]\n{program}", str(long))
    assert done.returncode == 71 and "Traceback" not in done.stderr
    assert "100 bytes at most; choose a shorter data path" in done.stderr


def test_the_limit_of_descriptors_is_raised_as_far_as_it_goes() -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, max(20000, 256)))
from qmgr.daemon.starting import _raise_limit
_raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    assert there("macos", program).stdout == "10240\n"


def test_a_full_sync_is_made_of_files_and_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it says counts, but for what a file system says that has none."""
    monkeypatch.setattr(posix_file, "FULL_SYNC", 51)
    synced: list[str] = []
    answer = 0

    def control(fd: int, command: int) -> int:
        assert command == 51
        synced.append("full")
        if answer:
            raise OSError(answer, os.strerror(answer))
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append("plain"))
    PosixDisk().sync_dir(str(tmp_path))
    assert synced == ["full"]
    answer = errno.ENOTSUP
    PosixDisk().sync_dir(str(tmp_path))
    assert synced == ["full", "full", "plain"]
    answer = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        PosixDisk().sync_dir(str(tmp_path))
    assert synced == ["full", "full", "plain", "full"]
