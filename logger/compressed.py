"""Compressed extents: chunks that can be read one by one, and a table of them at the end. Knows nothing of a log.

Each MiB of the original is a frame (zstd) or member (gzip) of its own, so `zstd -d` and `gunzip` read the whole file,
and a reader goes straight to the chunk that it wants. The table lies where both tools pass over it: for zstd in a
skippable frame, for gzip in the extra field of a last, empty member. It ends the file:

    offset  size  field     meaning
         0     8  magic     "QMGRCMP1": the format's version is its last character
         8     4  crc       CRC-32 of bytes 12 to the end of the entries
        12     4  chunk     bytes of the original in a chunk, the last one may have fewer
        16     8  size      of the original, bytes
        24   128  head      the first bytes of the original, so that an extent is identified without decompressing
       152     4  chunks    how many there are; for each of them 12 bytes:
              4  length    of the compressed chunk
              4  packed    CRC-32 of the compressed bytes
              4  plain     CRC-32 of the original ones
         -     4  length    of the table up to here
         -     4  end       "QMZT"

Nothing is decompressed before its CRC was right, and never to more bytes than the table says.
"""

import enum
import errno
import struct
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Protocol

import attrs

from logger.crc import crc32
from logger.disk import Buffer, Disk, File
from logger.errors import LogDamaged, LogError

CHUNK_BYTES = 1 << 20  # of the original
MAX_CHUNK_BYTES = 16 << 20
HEAD_BYTES = 128  # of the original, in the table
MAGIC = b"QMGRCMP1"
FRONT = struct.Struct(f"<8sIIQ{HEAD_BYTES}sI")
ENTRY = struct.Struct("<III")
FOOT = struct.Struct("<I4s")
END = b"QMZT"
MAX_TABLE_BYTES = 65_000  # what the extra field of a gzip member holds, which is 5 GB in chunks of 1 MiB
CACHED_CHUNKS = 2

SKIPPABLE = struct.Struct("<II")  # of zstd: magic, length
SKIPPABLE_MAGIC = 0x184D2A5E
EMPTY_MEMBER = struct.Struct("<10sH2sH")  # of gzip, up to the content of its extra field
EMPTY_HEADER = bytes.fromhex("1f8b 08 04 00000000 00 ff")
EMPTY_END = bytes.fromhex("0300 00000000 00000000")  # no data, its CRC and length
NEW_SUFFIX = ".new"  # of a file while it is written


class Compression(enum.Enum):
    """What packs the chunks, and what the file's name ends with then."""

    GZIP = "gzip"
    ZSTD = "zstd"

    @property
    def suffix(self) -> str:
        return ".gz" if self is Compression.GZIP else ".zst"


def compression_of(path: str) -> Compression | None:
    """What the file of this name is compressed with; None when it is not."""
    name = path.removesuffix(NEW_SUFFIX)
    return next((kind for kind in Compression if name.endswith(kind.suffix)), None)


class Codec(Protocol):
    """One way to compress."""

    def pack(self, data: bytes) -> bytes: ...

    def unpack(self, data: bytes, size: int) -> bytes | None:
        """The `size` bytes that `data` stands for; None when it is not that. Never makes more than `size` bytes."""
        ...


class Gzip:
    """Each chunk is a member."""

    def pack(self, data: bytes) -> bytes:
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()

    def unpack(self, data: bytes, size: int) -> bytes | None:
        unpacker = zlib.decompressobj(31)
        try:
            plain = unpacker.decompress(data, size) if size else b""
            # What is left is the end of the member; it may not become even one byte more.
            more = unpacker.decompress(unpacker.unconsumed_tail, 1)
        except zlib.error:
            return None
        whole = unpacker.eof and not unpacker.unused_data and not more and len(plain) == size
        return plain if whole else None


class Zstd:
    """Each chunk is a frame that says how long its content is."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._packer = module.ZstdCompressor(level=3)
        self._unpacker = module.ZstdDecompressor()

    def pack(self, data: bytes) -> bytes:
        packed: bytes = self._packer.compress(data)
        return packed

    def unpack(self, data: bytes, size: int) -> bytes | None:
        try:
            if self._module.get_frame_parameters(data).content_size != size:
                return None
            plain: bytes = self._unpacker.decompress(data, allow_extra_data=False)
        except self._module.ZstdError:
            return None
        return plain if len(plain) == size else None


def codec(compression: Compression, path: str) -> Codec:
    """What packs and unpacks; `path` is for the error that says that a package is missing. Raises LogError."""
    if compression is Compression.GZIP:
        return Gzip()
    try:
        import zstandard  # an optional package
    except ImportError:
        raise LogError(
            f"{path} can't be read or written: Compression=zstd needs the package zstandard, which is not installed; "
            f"install it (pip install zstandard), or compress with gzip"
        ) from None
    return Zstd(zstandard)


def wrapped(compression: Compression, table: bytes) -> bytes:
    """The table as the end of a file, in a form that other tools pass over; needs no package."""
    if compression is Compression.GZIP:
        return EMPTY_MEMBER.pack(EMPTY_HEADER, len(table) + 4, b"QM", len(table)) + table + EMPTY_END
    return SKIPPABLE.pack(SKIPPABLE_MAGIC, len(table)) + table


@attrs.frozen(kw_only=True)
class Table:
    """What the end of a compressed file says of it."""

    chunk: int
    size: int
    head: bytes
    entries: tuple[tuple[int, int, int], ...]  # length, CRC compressed, CRC of the original

    def encode(self) -> bytes:
        rest = FRONT.pack(MAGIC, 0, self.chunk, self.size, self.head, len(self.entries))[12:]
        rest += b"".join(ENTRY.pack(*entry) for entry in self.entries)
        table = MAGIC + crc32(rest).to_bytes(4, "little") + rest
        return table + FOOT.pack(len(table), END)


def decode_table(data: bytes) -> Table | None:
    """The table in `data`, which holds it without its last two fields; None when it is not whole."""
    if len(data) < FRONT.size:
        return None
    magic, crc, chunk, size, head, chunks = FRONT.unpack_from(data)
    if magic != MAGIC or crc32(data[12:]) != crc or len(data) != FRONT.size + chunks * ENTRY.size:
        return None
    if not 0 < chunk <= MAX_CHUNK_BYTES or chunks != -(-size // chunk):
        return None
    return Table(chunk=chunk, size=size, head=head, entries=tuple(ENTRY.iter_unpack(data[FRONT.size :])))


def compress(
    disk: Disk,
    source: str,
    target: str,
    compression: Compression,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    each_chunk: Callable[[int], None] = lambda done: None,
) -> None:
    """Write the file `source` compressed as the new file `target`, and sync it; its name is for the caller to sync.

    `each_chunk` is called with the bytes that are done. Raises OSError, LogError; then there may be part of a file.
    """
    packer = codec(compression, target)
    plain = disk.open_read(source)
    try:
        size = plain.size()
        if -(-size // chunk_bytes) * ENTRY.size + FRONT.size + FOOT.size > MAX_TABLE_BYTES:
            raise LogError(f"{source} is too large to be compressed: {size} bytes")
        packed = disk.open(target, create=True)
        try:
            entries: list[tuple[int, int, int]] = []
            head, at = b"", 0
            for start in range(0, size, chunk_bytes):
                data = plain.read(start, min(chunk_bytes, size - start))
                head = head or data[:HEAD_BYTES]
                chunk = packer.pack(data)
                packed.write(at, chunk)
                entries.append((len(chunk), crc32(chunk), crc32(data)))
                at += len(chunk)
                each_chunk(start + len(data))
            table = Table(chunk=chunk_bytes, size=size, head=head.ljust(HEAD_BYTES, b"\0"), entries=tuple(entries))
            packed.write(at, wrapped(compression, table.encode()))
            packed.sync()
        finally:
            packed.close()
    finally:
        plain.close()


def read_table(file: File, path: str) -> Table:
    """The table of an open compressed file. Raises LogDamaged, LogError, OSError."""
    compression = compression_of(path)
    assert compression is not None, "its name says how it is compressed"
    after = len(EMPTY_END) if compression is Compression.GZIP else 0
    size = file.size()
    foot = file.read(max(0, size - FOOT.size - after), FOOT.size)
    if len(foot) == FOOT.size:
        length, end = FOOT.unpack(foot)
        start = size - after - FOOT.size - length
        if end == END and length <= MAX_TABLE_BYTES and start >= 0:
            table = decode_table(file.read(start, length))
            if table is not None:
                ending = wrapped(compression, table.encode())
                packed = sum(length for length, _, _ in table.entries)
                if packed + len(ending) == size and file.read(packed, len(ending)) == ending:
                    return table
    raise damaged(path, "the table at its end is missing or damaged, so it was cut or overwritten")


def damaged(path: str, why: str) -> LogDamaged:
    return LogDamaged(
        f"compressed log extent {path} is damaged: {why}; restore the file from a backup, compressed or not", path=path
    )


class ReadOnly:
    """The methods of a `File` that write, refused: for files that can only be read."""

    def write(self, offset: int, data: Buffer) -> None:
        raise _read_only()

    def write_durably(self, offset: int, data: Buffer, *, may_poll: bool = False) -> None:
        raise _read_only()

    def begin_durably(self, offset: int, data: Buffer) -> bool:
        raise _read_only()

    def truncate(self, size: int) -> None:
        raise _read_only()

    def sync(self) -> None:
        raise _read_only()

    def still_open(self) -> bool:
        return True


def _read_only() -> OSError:
    return OSError(errno.EBADF, "the past of the log can only be read")


class CompressedFile(ReadOnly):
    """A compressed file as it was before: a `File` that can only be read."""

    def __init__(self, file: File, path: str) -> None:
        """Own `file`, which is closed when it is not what its name says. Raises LogDamaged, LogError, OSError."""
        self._file = file
        self._path = path
        self._cache: dict[int, bytes] = {}  # chunks, the one that was read last at the end
        try:
            compression = compression_of(path)
            assert compression is not None, "its name says how it is compressed"
            self._table = read_table(file, path)
            self._codec = codec(compression, path)
        except BaseException:
            file.close()
            raise
        self._places: list[int] = []
        at = 0
        for length, _, _ in self._table.entries:
            self._places.append(at)
            at += length

    def read(self, offset: int, size: int) -> bytes:
        """As `File.read`. Raises LogDamaged where the file is damaged."""
        chunk = self._table.chunk
        end = min(offset + size, self._table.size)
        if offset >= end:
            return b""
        first, last = offset // chunk, (end - 1) // chunk
        if first == last:
            return self._chunk(first)[offset - first * chunk : end - first * chunk]
        parts = [self._chunk(first)[offset - first * chunk :]]
        parts += [self._chunk(number) for number in range(first + 1, last)]
        parts.append(self._chunk(last)[: end - last * chunk])
        return b"".join(parts)

    def _chunk(self, number: int) -> bytes:
        found = self._cache.pop(number, None)
        if found is None:
            found = self._unpacked(number)
        self._cache[number] = found
        if len(self._cache) > CACHED_CHUNKS:
            del self._cache[next(iter(self._cache))]
        return found

    def _unpacked(self, number: int) -> bytes:
        table = self._table
        length, packed_crc, plain_crc = table.entries[number]
        at = self._places[number]
        packed = self._file.read(at, length)
        if len(packed) != length or crc32(packed) != packed_crc:
            raise damaged(self._path, f"the {length} bytes from byte {at} on are not what was written there")
        size = min(table.chunk, table.size - number * table.chunk)
        plain = self._codec.unpack(packed, size)
        if plain is None or crc32(plain) != plain_crc:
            raise damaged(self._path, f"the {length} bytes from byte {at} on do not become what was compressed")
        return plain

    def size(self) -> int:
        return self._table.size

    def close(self) -> None:
        self._cache.clear()
        self._file.close()


def open_plain(disk: Disk, path: str) -> File:
    """The file at `path`; one that is compressed as it was before. Raises LogDamaged, LogError, OSError."""
    file = disk.open_read(path)
    return file if compression_of(path) is None else CompressedFile(file, path)
