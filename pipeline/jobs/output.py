"""The folder that `--out` names: of one job, which alone works in it and never touches what it has not made itself.

*Operation*: make tables in a fresh folder of this run's, and put them in the places of the last run's when all is done.
*Goals*: nothing of anybody else is removed or written over, whatever `--out` names; two jobs do not mix, nor do two
runs of one; readers see the last run while a job runs, or after it was killed. *Plan*: a lock; a file
that says which job the folder is of, and which names in it are that job's, written while none of them was there; and
all that a run has made lies in a folder of its own, which one link names:

    out/report.txt       -> .qmgr-current/report.txt
    out/messages         -> .qmgr-current/messages
    out/.qmgr-current    -> .qmgr-run-<random>     replaced by one rename, when all of the run is durable
"""

import argparse
import contextlib
import errno
import json
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from logger.errors import LogInUse
from logger.posix_disk import PosixDisk
from logger.whole_files import read_whole, replace_file
from pipeline.jobs.common import Failure, out_folder
from pipeline.paths import is_link, walk
from pipeline.report import TEXT, Report
from qmgr.cli.command import ANOTHER_PATH, with_way_out

LOCK = ".qmgr.lock"
MARKER = ".qmgr-job.json"
WORK = ".qmgr-work-"
RUN = ".qmgr-run-"
CURRENT = ".qmgr-current"
FOLDERS = re.compile(rf"({re.escape(WORK)}|{re.escape(RUN)})[0-9a-f]{{16}}")
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # what file systems say that have none


@attrs.frozen
class Output:
    """The folder of a job, while it has it."""

    folder: str
    work: str  # a folder of this run's, in it: gone at the end
    names: tuple[str, ...]  # of all that the job may write

    def publish(self, report: Report, *tables: str) -> None:
        """Let these tables, made in `work`, and the report count, and no longer the last run's. Raises OSError.

        Nothing changes before all of it is durable, so what can't be written leaves all as it was.
        """
        made = (*tables, *report.save(self.work))
        run = self._folder_of_a_run()
        for name in made:
            Path(self.work, name).rename(run / name)
        make_durable(run)
        try:
            self._switch(run, made)
        except OSError as exc:
            if exc.errno not in NO_LINKS:
                raise
            self._replace(run, made)
        PosixDisk().sync_dir(self.folder)
        report.tell(self.folder)

    def _switch(self, run: Path, made: tuple[str, ...]) -> None:
        """By one rename of one link: readers see the last run or this one, whole."""
        current = Path(self.folder, CURRENT)
        if not is_link(current):
            self._link(self._folder_of_a_run().name, CURRENT)
        for name in self.names:
            place = Path(self.folder, name)
            if os.path.lexists(place) and not place.is_symlink():  # put there by `_replace`, or by an older version
                place.rename(Path(self.work, f"old {name}") if os.path.lexists(current / name) else current / name)
            if name in made or os.path.lexists(current / name):
                self._link(f"{CURRENT}/{name}", name)
        self._link(run.name, CURRENT)
        for name in self.names:
            if name not in made:
                Path(self.folder, name).unlink(missing_ok=True)

    def _link(self, to: str, name: str) -> None:
        place, new = Path(self.folder, name), Path(self.work, "link")
        if place.is_dir() and not place.is_symlink():  # of a copy in which links were followed
            place.rename(Path(self.work, f"old {name}"))
        new.symlink_to(to)
        new.replace(place)

    def _replace(self, run: Path, made: tuple[str, ...]) -> None:
        """Without links: one after the other, when nothing is left there of the last run. The report's text comes last.

        It went first, too: so where it is all the rest is.
        """
        for name in (TEXT, *self.names):
            place = Path(self.folder, name)
            if os.path.lexists(place):
                place.rename(Path(self.work, f"old {name}"))
        for name in made:
            (run / name).rename(Path(self.folder, name))

    def _folder_of_a_run(self) -> Path:
        path = Path(self.folder, f"{RUN}{secrets.token_hex(8)}")
        path.mkdir()
        return path


@contextlib.contextmanager
def owned(folder: str, job: str, names: Iterable[str]) -> Iterator[None]:
    """Have the folder, which is there, for this job alone; `names`: what it writes there. Raises Failure, OSError."""
    wanted = frozenset(names)
    _refuse(folder, job, wanted)  # before a lock is left in a folder that is somebody else's
    disk = PosixDisk()
    try:
        lock = disk.lock(f"{folder}/{LOCK}", f"{disk.process()} on {platform.node()}")
    except LogInUse as exc:
        raise Failure(f"another job works in {folder}: {exc.holder}; wait for it, or name another --out.") from None
    try:
        ours = sorted(wanted | _refuse(folder, job, wanted))
        replace_file(disk, f"{folder}/{MARKER}", json.dumps({"job": job, "names": ours}).encode())
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def workshop(folder: str, job: str, names: Iterable[str]) -> Iterator[Output]:
    """The same, with a fresh folder to work in. What runs that were killed have left of such is removed."""
    with owned(folder, job, names):
        _sweep(folder)
        work = Path(folder, f"{WORK}{secrets.token_hex(8)}")
        work.mkdir()
        try:
            yield Output(folder, str(work), tuple(names))
        finally:
            _sweep(folder)


def _sweep(folder: str) -> None:
    """Remove all folders of runs but the one that counts."""
    current = Path(folder, CURRENT)
    counts = current.readlink().name if is_link(current) else ""
    for path in Path(folder).iterdir():
        if FOLDERS.fullmatch(path.name) and path.name != counts and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def make_durable(folder: Path) -> None:
    """Sync every file below the folder, and every name. Raises OSError."""
    disk = PosixDisk()
    for path, files in walk(folder):
        for one in files:
            with contextlib.closing(disk.open_read(str(one))) as file:
                file.sync()
        disk.sync_dir(str(path))
    disk.sync_dir(str(folder.parent))


def check(args: argparse.Namespace, job: str, names: Iterable[str]) -> None:
    """Can the job have the folder that `--out` names, and write into it? Raises Failure, PermissionError."""
    try:
        with owned(out_folder(args), job, names):
            pass
    except PermissionError:
        raise
    except OSError as exc:
        why = with_way_out(exc, ANOTHER_PATH)
        raise Failure(f"--out was given {args.out!r}, which can't be written to: {why}") from None


def _refuse(folder: str, job: str, names: frozenset[str]) -> frozenset[str]:
    """The names that are this job's; Failure where the folder is another's, or has one of these from somebody else."""
    owner, ours = _marked(folder)
    if owner not in (None, job):
        raise Failure(f"{folder} has what the job {owner} wrote; name another --out for {job}.")
    for name in sorted(names - ours):
        if os.path.lexists(f"{folder}/{name}"):
            raise Failure(
                f"{folder}/{name} was not written by the job {job}, which would replace it; name another --out, such "
                f"as a new folder."
            )
    return ours


def _marked(folder: str) -> tuple[str | None, frozenset[str]]:
    """Which job the folder is of, and which names in it are that job's. Raises Failure, OSError."""
    disk, path = PosixDisk(), f"{folder}/{MARKER}"
    if not disk.exists(path):
        return None, frozenset()
    try:
        match json.loads(read_whole(disk, path)):
            case {"job": str(job), "names": [*names]} if all(isinstance(name, str) for name in names):
                return job, frozenset(names)
        raise ValueError("it does not say which job that was, and what that writes")
    except (ValueError, RecursionError) as exc:
        raise Failure(
            f"{path} is not what a job has written there ({exc}); name another --out. If this is a lake remove the "
            f"file: history goes on with it then."
        ) from None
