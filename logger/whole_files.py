"""Whole files and directories, made and replaced so that any crash leaves the old ones or the new."""

import contextlib
import errno

from logger.disk import Buffer, Disk

NO_DIR_SYNC = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)  # a sync of one in which no directory is made
RMDIR_REFUSED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY)  # it has names, is a link, a mount point


def drop_dir(disk: Disk, path: str) -> None:
    """Remove a directory if it is empty. A link to one, or a mount point, stays."""
    try:
        disk.rmdir(path)
    except OSError as exc:
        if exc.errno not in RMDIR_REFUSED:
            raise


def make_dirs(disk: Disk, path: str) -> None:
    """Make `path` and the directories above it that are missing, durably."""
    if disk.exists(path):
        return
    parent = path.rsplit("/", 1)[0] or "/"
    make_dirs(disk, parent)
    disk.mkdir(path)
    try:
        disk.sync_dir(parent)
    except OSError:
        with contextlib.suppress(OSError):
            disk.rmdir(path)  # else the next call would find it, and take its name for durable
        raise


def make_and_keep_dirs(disk: Disk, path: str) -> None:
    """Make `path` and sync every directory above it: a killed process may have made some without syncing them."""
    make_dirs(disk, path)
    while path:
        path = path.rpartition("/")[0]
        try:
            disk.sync_dir(path or "/")
        except OSError as exc:
            if exc.errno not in NO_DIR_SYNC:
                raise


def read_whole(disk: Disk, path: str) -> bytes:
    """All bytes of a file."""
    file = disk.open_read(path)
    try:
        return file.read(0, file.size())
    except OSError as exc:
        exc.filename = exc.filename or path  # a read knows none
        raise
    finally:
        file.close()


def size_of(disk: Disk, path: str) -> int:
    """The bytes of a file."""
    with contextlib.closing(disk.open_read(path)) as file:
        return file.size()


def write_whole(disk: Disk, path: str, data: Buffer) -> None:
    """Write `data` as a new file at `path` and sync it; the name is durable when the caller syncs the directory."""
    if disk.exists(path):
        disk.unlink(path)
    file = disk.open(path, create=True)
    try:
        file.write(0, data)
        file.sync()
    finally:
        file.close()


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Put `data` in the place of the file at `path`: after any crash it holds the old bytes or the new.

    Where they can't be written, the OSError names the file, and nothing is left beside it. A link stays one: what it
    leads to is replaced.
    """
    path = disk.real_path(path)
    try:
        write_whole(disk, path + ".new", data)
        disk.rename(path + ".new", path)
    except OSError as exc:
        exc.filename = path
        del exc.filename2  # of the rename, which a file that is mounted by itself refuses: EBUSY
        with contextlib.suppress(OSError):
            disk.unlink(path + ".new")
        raise
    disk.sync_dir(path.rsplit("/", 1)[0])
