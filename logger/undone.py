"""Undone: extents in the archive that are of another past, put out of the way before anybody reads them.

A log that is put back from an older copy finds an archive that went on. What that has from beyond the copy has the
right log id and sequences, often the same epoch, and for the extent in which the copy was made the same header: nothing
in the files tells it from what is going to be written. But only extents before the head of each checkpoint are
archived, and a start begins at the head of one. So whatever the archive has from there on is of another past, unless it
is what the active directory has too: a copy that somebody made by hand. Indexes from there on are made again.
"""

import contextlib
import re

from logger.compressed import CHUNK, compression_of, open_compressed
from logger.disk import Disk, File, make_and_keep_dirs
from logger.errors import LogDamaged
from logger.history import INDEX, History, Place, is_before

DIRECTORY = re.compile(r"undone\.\d+")  # in the archive; the number is the epoch of the start that made it


def put_aside(disk: Disk, history: History, archive: str, *, head: int, current: int, epoch: int) -> list[str]:
    """Move what is of another past to a directory of its own; the new paths, of no more than there is.

    `head`: the sequence where a restart begins; `current`: the one that is written. Raises OSError, LogDamaged.
    """
    active = history.directories[0]
    for directory in history.directories:
        for name in disk.list(directory):
            index = INDEX.fullmatch(name)
            if index is not None and not is_before(int(index[1]), head):
                with contextlib.suppress(FileNotFoundError):
                    disk.unlink(f"{directory}/{name}")
    if not disk.exists(archive):
        return []
    moved: list[str] = []
    every = History(disk, history.directories, history.log_id, history.extent_bytes)
    for sequence, places in every.copies(since=head).items():
        if sequence < head:
            continue
        mine = next((place for place in places if _directory(place) == active), None)
        for place in places:
            if _directory(place) == archive and (mine is None or sequence >= current or not _same(disk, mine, place)):
                aside = f"{archive}/undone.{epoch}"
                if not moved:
                    make_and_keep_dirs(disk, aside)
                moved.append(f"{aside}/{place.path.rpartition('/')[2]}")
                disk.rename(place.path, moved[-1])
    for directory in {path.rpartition("/")[0] for path in moved}:
        disk.sync_dir(directory)
    disk.sync_dir(archive)  # also where a start before this one was killed too early
    return moved


def _directory(place: Place) -> str:
    return place.path.rpartition("/")[0]


def _same(disk: Disk, mine: Place, other: Place) -> bool:
    """Do both files hold the same extent, byte by byte?"""
    with contextlib.closing(disk.open_read(mine.path)) as one, contextlib.closing(_open(disk, other)) as two:
        size = one.size()
        with contextlib.suppress(LogDamaged):
            return two.size() == size and all(
                one.read(at, CHUNK) == two.read(at, CHUNK) for at in range(0, size, CHUNK)
            )
    return False


def _open(disk: Disk, place: Place) -> File:
    return disk.open_read(place.path) if compression_of(place.path) is None else open_compressed(disk, place.path)
