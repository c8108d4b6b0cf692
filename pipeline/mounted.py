"""A clear error where a task's machine has no extent of the log: its file system is not mounted there."""

import contextlib
import platform
from collections.abc import Iterator

from logger.disk import Disk
from logger.errors import LogDamaged, LogError
from logger.posix_disk import PosixDisk
from pipeline.log_files import LogFiles


@contextlib.contextmanager
def seen(log: LogFiles, disk: Disk | None = None) -> Iterator[None]:
    """Read what was planned, maybe by another machine, of a log that is looked for only if that fails.

    Raises LogError where there is no extent of it, else what went wrong.
    """
    try:
        yield
    except (LogDamaged, FileNotFoundError) as exc:
        history = log.history(disk or PosixDisk())
        if history.places() or history.damaged:
            raise
        raise LogError(
            f"the machine {platform.node()} sees no extent of the log in {' or '.join(log.directories)}, and is to "
            f"read it: all machines that do work for Spark need the log under the same path"
        ) from exc
