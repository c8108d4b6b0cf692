"""The folder that `--out` names: of one job, which alone works in it and never touches what it has not made itself.

*Operation*: make tables in a fresh folder of this run's, and put them in the places of the last run's when all is done.
*Goals*: nothing of anybody else is removed or written over, whatever `--out` names; two jobs do not mix; whoever looks
while a job runs, or after it was killed, sees what the last one left. *Plan*: a lock; a file that says which job the
folder is of, and which names in it are that job's, written while none of them was there.
"""

import argparse
import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from logger.disk import PosixDisk, read_whole, replace_file
from logger.errors import LogInUse
from pipeline.jobs.common import Failure, out_folder
from pipeline.report import Report
from qmgr.cli.command import because

LOCK = ".qmgr.lock"
MARKER = ".qmgr-job.json"
WORK = ".qmgr-work-"
WORKS = re.compile(rf"{re.escape(WORK)}[0-9a-f]{{16}}")


@attrs.frozen
class Output:
    """The folder of a job, while it has it."""

    folder: str
    work: str  # a folder of this run's, in it: gone at the end

    def publish(self, report: Report, *tables: str) -> None:
        """Put these tables, made in `work`, and the report in the places of the last run's. Raises OSError.

        The report is written first, so that one that can't be leaves all as it was; its text is put in place last.
        """
        for name in (*tables, *report.save(self.work)):
            place = Path(self.folder, name)
            if os.path.lexists(place):
                place.rename(Path(self.work, f"old {name}"))
            Path(self.work, name).rename(place)
        report.tell(self.folder)


@contextlib.contextmanager
def owned(folder: str, job: str, names: Iterable[str]) -> Iterator[None]:
    """Have the folder, which is there, for this job alone; `names`: what it writes there. Raises Failure, OSError."""
    wanted = frozenset(names)
    _refuse(folder, job, wanted)  # before a lock is left in a folder that is somebody else's
    disk = PosixDisk()
    try:
        lock = disk.lock(f"{folder}/{LOCK}", disk.process())
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
        for path in Path(folder).iterdir():
            if WORKS.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
        work = Path(folder, f"{WORK}{secrets.token_hex(8)}")
        work.mkdir()
        try:
            yield Output(folder, str(work))
        finally:
            shutil.rmtree(work, ignore_errors=True)


def check(args: argparse.Namespace, job: str, names: Iterable[str]) -> None:
    """Can the job have the folder that `--out` names, and write into it? Raises Failure, PermissionError."""
    try:
        with owned(out_folder(args), job, names):
            pass
    except PermissionError:
        raise
    except OSError as exc:
        raise Failure(f"--out was given {args.out!r}, which can't be written to: {because(exc)}") from None


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
        said = json.loads(read_whole(disk, path))
        return str(said["job"]), frozenset(map(str, said["names"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise Failure(f"{path} can't be read: {exc}; name another --out.") from None
