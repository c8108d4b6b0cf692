"""The log control file `amqhlctl.lfh`: two copies written in turn; the newest whole copy counts.

Each copy has 16 KiB of its own, so that a torn write leaves the other one alone:

    offset  size  field     meaning
         0     8  magic     "QMGRCTL1": the format's version is its last character
         8     4  crc       CRC-32 of bytes 12..length
        12     4  length    of the copy, bytes
        16     8  number    counts the writes; the copy with the higher one is newer
        24     -  content   JSON: the fields of `ControlState`
"""

import json
import struct
from typing import Any

import attrs

from logger.config import LogType
from logger.crc import crc32
from logger.disk import Disk, File
from logger.errors import LogDamaged, refuse_later
from logger.whole_files import write_whole

HEADER = struct.Struct("<8sIIQ")
MAGIC = b"QMGRCTL1"
COPY_BYTES = 16384
NAME = "amqhlctl.lfh"


@attrs.frozen(kw_only=True)
class ControlState:
    """What is known of the log as a whole. Changed by `attrs.evolve`, durable when `ControlFile.write` returns."""

    log_id: bytes  # 16 bytes: the identity that every extent, frame and segment carries
    log_type: LogType
    extent_bytes: int
    epoch: int  # of the latest start
    epoch_from: int  # LSN where it began: older epochs' frames beyond it were left by lost writes
    head: int  # oldest LSN that a restart needs
    checkpoint: int  # LSN of the latest complete checkpoint
    durable: int  # an LSN that was durable when this was written
    clean_end: int  # the exact end of the log after an end in order; 0 while running or after a crash
    extents: tuple[tuple[int, int], ...]  # (file number, sequence) of every extent file; sequence 0: none yet

    def encode(self, number: int) -> bytes:
        fields = attrs.asdict(self, recurse=False) | {"log_id": self.log_id.hex(), "log_type": self.log_type.value}
        content = json.dumps(fields).encode()
        length = HEADER.size + len(content)
        rest = HEADER.pack(MAGIC, 0, length, number)[12:] + content
        return MAGIC + crc32(rest).to_bytes(4, "little") + rest


FIELDS = attrs.fields_dict(ControlState)  # others are of a later version, which works without them within a format


def decode(copy: bytes, path: str = "") -> tuple[int, ControlState] | None:
    """(number, state) of one copy, or None when it is not whole. Raises LaterFormat, if given the file's path."""
    if len(copy) < HEADER.size:
        return None
    magic, crc, length, number = HEADER.unpack_from(copy)
    if not HEADER.size <= length <= len(copy) or crc32(copy[12:length]) != crc:
        refuse_later(copy, MAGIC, path)
        return None
    if magic != MAGIC:
        return None
    fields: dict[str, Any] = json.loads(copy[HEADER.size : length])
    fields["log_id"] = bytes.fromhex(fields["log_id"])
    fields["log_type"] = LogType(fields["log_type"])
    fields["extents"] = tuple((number, sequence) for number, sequence in fields["extents"])
    return number, ControlState(**{name: value for name, value in fields.items() if name in FIELDS})


def read(disk: Disk, path: str) -> tuple[int, ControlState]:
    """The newest whole copy in the control file at `path`. Raises LogDamaged when there is none, LaterFormat."""
    try:
        file = disk.open_read(path)
    except FileNotFoundError:
        raise LogDamaged(f"the log control file {path} is missing; restore it from a backup", path=path) from None
    try:
        whole = whole_copies(file, path)
    finally:
        file.close()
    if not whole:
        raise LogDamaged(
            f"the log control file {path} has no whole copy; restore it from a backup of this queue manager", path=path
        )
    return whole[0]


def whole_copies(file: File, path: str = "") -> list[tuple[int, ControlState]]:
    """Those of the two copies that are whole, newest first. Raises LaterFormat, if given the file's path."""
    copies = [decode(file.read(at, COPY_BYTES), path) for at in (0, COPY_BYTES)]
    return sorted((copy for copy in copies if copy is not None), key=lambda copy: -copy[0])


def create(disk: Disk, path: str, state: ControlState) -> None:
    """Make the control file, both copies alike; the caller syncs the directory."""
    write_whole(disk, path, state.encode(1).ljust(COPY_BYTES, b"\0") + state.encode(2).ljust(COPY_BYTES, b"\0"))


class TakenOver(OSError):
    """Another process has begun an epoch of the log that this one has open, or has taken its directories away.

    For this one that is like a disk that is gone.
    """


class ControlFile:
    """The control file, open for life: the descriptor that may have seen an error is the one that syncs.

    What it says when it is opened is durable: the older copy can be written over, and what it alone named can go.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._number, self.state = read(disk, path)
        self.path = path
        self._file: File = disk.open(path)
        self._failed: OSError | None = None
        try:
            self._file.sync()  # the newest copy may not be synced: its writer was killed before that
            disk.forget(path)  # or its sync failed, and this one had nothing to write
            self._number, self.state = read(disk, path)
            self.one_copy = len(whole_copies(self._file)) < 2  # the other copy is not whole: it may be the newer one
        except BaseException:  # the caller has nothing to close
            self._file.close()
            raise

    def write(self, state: ControlState) -> None:
        """Make `state` durable in the older copy. Raises OSError, and from then on always: as a log does."""
        if self._failed is not None:
            raise self._failed
        number = self._number + 1
        data = state.encode(number)
        assert len(data) <= COPY_BYTES, "511 extents fit into a copy"
        try:
            self._file.write(COPY_BYTES * ((number - 1) % 2), data)
            self._file.sync()
        except OSError as exc:
            self._failed = exc
            raise
        self._number, self.state, self.one_copy = number, state, False

    def taken_over(self) -> int:
        """The epoch that another process has begun since, which has opened this log too; 0 if none has."""
        for at in (0, COPY_BYTES):
            head = self._file.read(at, HEADER.size)
            if len(head) == HEADER.size and HEADER.unpack(head)[3] > self._number:
                found = decode(self._file.read(at, COPY_BYTES))
                if found is not None and found[1].epoch > self.state.epoch:
                    return found[1].epoch
        return 0

    def still_open(self) -> bool:
        return self._file.still_open()

    def close(self) -> None:
        self._file.close()
