"""Undone: what an archive has of another past of the log, as the log remembers it, so that nobody reads that.

A log that is put back from an older copy finds an archive that went on. What that has from beyond the copy has the
right log id and sequences, often the same epoch, and for the extent in which the copy was made the same header: nothing
in the files tells it from what is going to be written. But only extents before the head of each checkpoint are
archived, and a start begins at the head of one. So whatever the archive has from there on is of another past, unless it
is what the active directory has too: a copy that somebody made by hand.

Two such starts are missed by that. A backup of before there was an archive knows nothing of it, and the log may go on
for long before ArchivePath names it again: so an archive that the log has never used is compared with all that the
active directory has. And a circular log has no archive: what that has from where the log became circular on does not
count when it is linear again.

Nothing is moved or deleted for that: the archive may be the one of a queue manager of which this is a copy. The log
remembers the names, in `amqharch.und` beside its control file, until it archives an extent under such a name itself, or
somebody else who reports that he has: what lies there is what the log has then.

JSON: `log_id` in hexadecimal; `names`; `since`, a sequence from which on nothing in the archive counts, as it could not
be looked at, or 0; `compared`, the directory that was compared and not used yet, if there is one; `unseen`, if one that
was not used yet could not be compared; and `crc`, the CRC-32 of these as text.
"""

import json
from typing import Any

import attrs

from logger.crc import crc32
from logger.disk import Disk
from logger.errors import LogDamaged
from logger.whole_files import read_whole, replace_file

NAME = "amqharch.und"


@attrs.frozen
class Undone:
    """The files of an archive that count for nothing."""

    names: frozenset[str] = frozenset()
    since: int = 0
    compared: str = ""
    unseen: bool = False  # nothing of it counts until it can be looked at

    def hides(self, name: str, sequence: int) -> bool:
        return self.unseen or name in self.names or 0 < self.since <= sequence


NOTHING = Undone()


def read(disk: Disk, directory: str, log_id: bytes) -> Undone:
    """What the log in `directory` remembers. Raises LogDamaged where that can't be told, OSError."""
    path = f"{directory}/{NAME}"
    if not disk.exists(path):
        return NOTHING
    try:
        said = json.loads(read_whole(disk, path))
        names, since = frozenset(map(str, said["names"])), int(said["since"])
        known = Undone(names, since, str(said.get("compared", "")), bool(said.get("unseen", False)))
        if said == _content(known, log_id):
            return known
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    text = f"{path} is damaged, which says what the archive has of a past that a backup has undone"
    raise LogDamaged(f"{text}; restore it, or delete it if no backup was put back while the archive stayed", path=path)


def write(disk: Disk, directory: str, log_id: bytes, known: Undone) -> None:
    """Let the log in `directory` remember what is known, durably. Raises OSError."""
    path = f"{directory}/{NAME}"
    if known != NOTHING:
        replace_file(disk, path, json.dumps(_content(known, log_id)).encode())
    elif disk.exists(path):
        disk.unlink(path)
        disk.sync_dir(directory)


def _content(known: Undone, log_id: bytes) -> dict[str, Any]:
    said: dict[str, Any] = {"log_id": log_id.hex(), "names": sorted(known.names), "since": known.since}
    if known.compared:
        said["compared"] = known.compared
    if known.unseen:
        said["unseen"] = True
    return said | {"crc": crc32(json.dumps(said).encode())}
