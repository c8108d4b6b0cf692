"""One extent file: a header page, two spare pages, then the pages of records, written with zeros once at full size.

page  content
   0  header, in its first 128 bytes
 1-2  spare pages: versions of the partial last page (`integrity.py`)
 3-   records: byte (LSN modulo extent bytes) of the stream lies at 12288 + that

offset  size  field         meaning
     0     8  magic         "QMGRLOG1": the format's version is its last character
     8     4  crc           CRC-32 of bytes 12..128
    12     4  number        the file's number: S0000007.LOG is 7
    16    16  log id        which queue manager's log
    32     8  sequence      which part of the stream it holds: LSN divided by extent bytes; 0 = none yet
    40     8  extent bytes  of records, header and spare pages not counted
    48     4  epoch         in which it took this sequence
    52     4  -
    56     8  time          when it took this sequence, microseconds since 1970-01-01 UTC
    64    64  -
"""

import re
import struct

import attrs

from logger.crc import crc32
from logger.disk import PAGE, Disk, File
from logger.errors import refuse_later
from logger.posix_disk import HUGE_PAGE
from logger.progress import GiveWay, no_pause

HEADER = struct.Struct("<8sII16sQQI4xQ64x")
assert HEADER.size == 128
MAGIC = b"QMGRLOG1"
SPARES = 2
DATA = (1 + SPARES) * PAGE  # where records begin
# A virtual disk that is first written in small pieces (64 KiB) takes a fifth longer for each large write that comes
# later. Where others write too, a force waits for the disk as long as one of these lasts.
ZERO_WRITE_BYTES, ZERO_WRITE_BYTES_SHARED = HUGE_PAGE, 256 << 10
NAME = re.compile(r"S(\d{7})\.LOG")
FILE_NUMBERS = 10_000_000  # from 0 on


def file_name(number: int) -> str:
    return f"S{number:07d}.LOG"


def number_of(name: str) -> int | None:
    """The number in an extent's file name; None when it is not one."""
    match = NAME.fullmatch(name)
    return int(match[1]) if match else None


def linear_number(sequence: int) -> int:
    """The number of the file that holds this sequence in a linear log."""
    return (sequence - 1) % FILE_NUMBERS


@attrs.frozen(kw_only=True)
class ExtentHeader:
    """What the first page of an extent says of it."""

    number: int
    log_id: bytes
    sequence: int
    extent_bytes: int
    epoch: int
    time: int

    def encode(self) -> bytes:
        rest = HEADER.pack(MAGIC, 0, self.number, self.log_id, self.sequence, self.extent_bytes, self.epoch, self.time)[
            12:
        ]
        return (MAGIC + crc32(rest).to_bytes(4, "little") + rest).ljust(PAGE, b"\0")


def decode_header(page: bytes, path: str = "") -> ExtentHeader | None:
    """The header in an extent's first page, or None when it is not whole. Raises LaterFormat, if it has `path`."""
    if len(page) < HEADER.size:
        return None
    magic, crc, number, log_id, sequence, extent_bytes, epoch, time = HEADER.unpack_from(page)
    if crc32(page[12 : HEADER.size]) != crc:
        refuse_later(page, MAGIC, path)
        return None
    if magic != MAGIC:
        return None
    return ExtentHeader(
        number=number, log_id=log_id, sequence=sequence, extent_bytes=extent_bytes, epoch=epoch, time=time
    )


class Extent:
    """An extent that is open for writing. The header is written by whoever first writes into a new sequence."""

    __slots__ = ("file", "front", "header", "header_written", "path")

    def __init__(self, disk: Disk, file: File, path: str, header: ExtentHeader) -> None:
        self.file = file
        self.front = disk.buffer(DATA)
        self.path = path
        self.header = header
        self.header_written = True

    @property
    def number(self) -> int:
        return self.header.number

    @property
    def sequence(self) -> int:
        return self.header.sequence

    def take_sequence(self, sequence: int, epoch: int, time: int) -> None:
        """From now on the extent holds this part of the stream; the disk hears of it before the first record."""
        self.header_written = False  # first: see `Extents.table`
        self.header = attrs.evolve(self.header, sequence=sequence, epoch=epoch, time=time)

    def write_header(self) -> None:
        """Write the header, wipe the spare pages, sync: records lie only in an extent that says what it is."""
        self.front[:PAGE] = self.header.encode()
        self.file.write(0, self.front)
        self.file.sync()
        self.header_written = True


def is_blank(file: File, start: int = 0) -> bool:
    """Is there nothing but zeros from byte `start` on?

    An extent has a header from its making on, so one that is all zeros is lost. A new one is blank behind its header.
    """
    return not any(any(file.read(at, ZERO_WRITE_BYTES)) for at in range(start, file.size(), ZERO_WRITE_BYTES))


def create(
    disk: Disk, directory: str, header: ExtentHeader, *, direct: bool = True, pause: GiveWay = no_pause
) -> Extent:
    """Make an extent file at full size, filled with zeros, and its header; durable, with its name, on return.

    What an interrupted attempt left behind under the name is replaced. `pause()` lets others have the disk between two
    writes. Raises OSError; then nothing is left.
    """
    path = f"{directory}/{file_name(header.number)}"
    if disk.exists(path):
        disk.unlink(path)
    file = disk.open(path, create=True, direct=direct)
    try:
        size = DATA + header.extent_bytes
        zeros = disk.buffer(HUGE_PAGE)[: min(ZERO_WRITE_BYTES if pause is no_pause else ZERO_WRITE_BYTES_SHARED, size)]
        zeros[:] = bytes(len(zeros))  # else it is one small page of the system's, read again and again
        for at in range(0, size, len(zeros)):
            file.write(at, zeros[: min(len(zeros), size - at)])
            pause()
        extent = Extent(disk, file, path, header)
        extent.write_header()
        disk.sync_dir(directory)
    except OSError as exc:
        file.close()
        disk.unlink(path)
        raise OSError(exc.errno, exc.strerror or str(exc), path) from exc
    return extent
